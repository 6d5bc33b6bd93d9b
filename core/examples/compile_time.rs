//! Prints where compile time goes, cold and on one thread, without a device: `cargo run --release -p gradloom-core
//! --features x86 --example compile_time [NAME ..]`. `resnet50` and `bert` are networks in their real sizes; `causal:N`, `chain:N`,
//! `wide:N`, `layers:N`, `lstm:N`, `train:N`, `step:N`, and the chains of moves `gathers:N`, `resizes:N`, `transposes:N`
//! grow with N, to show how each pass does.
#![allow(missing_docs)]

use gradloom_core::device::NullDevice;
use gradloom_core::engine::{Engine, close, fold, scale, siblings};
use gradloom_core::nn::Lstm;
use gradloom_core::optim::{Adam, AdamOpts, Optimizer};
use gradloom_core::schedule::schedule;
use gradloom_core::target::{Isa, Target};
use gradloom_core::tensor::{Attention, ConvOpts, Interpolate, PoolOpts, Session, Tensor};
use gradloom_core::uop::hash;
use gradloom_core::{DType, Result, codegen, render};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Fresh weights: only shapes matter here.
fn weight(s: &Session, shape: &[usize]) -> Result<Tensor> {
    Tensor::empty(s, DType::F32, shape)
}

fn conv_bn(s: &Session, x: &Tensor, out: usize, kernel: usize, stride: usize) -> Result<Tensor> {
    let channels = x.shape()[1];
    let opts = ConvOpts::new().padding(&[kernel / 2, kernel / 2]).stride(&[stride, stride]);
    let y = x.conv(&weight(s, &[out, channels, kernel, kernel])?, None, &opts)?;
    let v = || weight(s, &[out])?.reshape(&[1, out, 1, 1]);
    let scale = v()?.div(&v()?.add(1e-5)?.sqrt()?)?;
    y.sub(&v()?)?.mul(&scale)?.add(&v()?)
}

fn resnet50(s: &Session) -> Result<Tensor> {
    let x = weight(s, &[1, 3, 224, 224])?;
    let mut x = conv_bn(s, &x, 64, 7, 2)?.relu()?;
    x = x.max_pool(&PoolOpts::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]))?;
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for b in 0..blocks {
            let stride = if b == 0 && stage > 0 { 2 } else { 1 };
            let y = conv_bn(s, &x, width, 1, 1)?.relu()?;
            let y = conv_bn(s, &y, width, 3, stride)?.relu()?;
            let y = conv_bn(s, &y, width * 4, 1, 1)?;
            let skip = if b == 0 { conv_bn(s, &x, width * 4, 1, stride)? } else { x.clone() };
            x = y.add(&skip)?.relu()?;
        }
    }
    x.mean(&[2, 3], false)?.linear(&weight(s, &[1000, 2048])?, Some(&weight(s, &[1000])?))?.softmax(-1)
}

fn norm(s: &Session, x: &Tensor) -> Result<Tensor> {
    let width = x.shape()[x.shape().len() - 1];
    x.layer_norm(1, Some(&weight(s, &[width])?), Some(&weight(s, &[width])?), 1e-12)
}

fn bert(s: &Session, layers: usize) -> Result<Tensor> {
    let (batch, len, width, heads) = (1, 128, 768, 12);
    let ids = Tensor::empty(s, DType::I32, &[batch, len])?;
    let mask = Tensor::empty(s, DType::I32, &[batch, len])?;
    let mask = mask.reshape(&[batch, 1, 1, len])?.cast(DType::F32)?.sub(1.0)?.mul(10000.0)?;
    let linear = |x: &Tensor, n: usize| x.linear(&weight(s, &[n, x.shape()[2]])?, Some(&weight(s, &[n])?));
    let x = weight(s, &[30522, width])?.embedding(&ids)?.add(&weight(s, &[1, len, width])?)?;
    let mut x = norm(s, &x)?;
    for _ in 0..layers {
        let split = |t: Tensor| t.reshape(&[batch, len, heads, width / heads])?.permute(&[0, 2, 1, 3]);
        let (q, k, v) = (split(linear(&x, width)?)?, split(linear(&x, width)?)?, split(linear(&x, width)?)?);
        let scores = q.matmul(&k.transpose(2, 3)?)?.div(8.0)?.add(&mask)?.softmax(-1)?;
        let y = scores.matmul(&v)?.permute(&[0, 2, 1, 3])?.reshape(&[batch, len, width])?;
        let y = norm(s, &linear(&y, width)?.add(&x)?)?;
        let z = linear(&linear(&y, 4 * width)?.gelu()?, width)?;
        x = norm(s, &z.add(&y)?)?;
    }
    Ok(x)
}

/// `n` elementwise steps one after the other.
fn chain(s: &Session, n: usize) -> Result<Tensor> {
    let mut x = weight(s, &[256])?;
    let y = weight(s, &[256])?;
    for i in 0..n / 2 {
        x = if i % 2 == 0 { x.mul(&y)?.add(1.0)? } else { x.sub(&y)?.relu()? };
    }
    Ok(x)
}

/// A sum of `n / 4` products of different buffers.
fn wide(s: &Session, n: usize) -> Result<Tensor> {
    let mut terms: Vec<Tensor> = Vec::new();
    for _ in 0..n / 4 {
        terms.push(weight(s, &[64])?.mul(&weight(s, &[64])?)?);
    }
    while terms.len() > 1 {
        terms = terms
            .chunks(2)
            .map(|p| if p.len() == 2 { p[0].add(&p[1]) } else { Ok(p[0].clone()) })
            .collect::<Result<_>>()?;
    }
    Ok(terms.remove(0))
}

/// Perceptron layers, 12 nodes or so each; every layer is the same kernels.
fn layers(s: &Session, n: usize) -> Result<Tensor> {
    let mut x = weight(s, &[8, 64])?;
    for _ in 0..n / 12 {
        x = x.linear(&weight(s, &[64, 64])?, Some(&weight(s, &[64])?))?.gelu()?.add(&x)?;
    }
    Ok(x)
}

fn lstm(s: &Session, steps: usize) -> Result<Tensor> {
    let x = weight(s, &[1, steps, 32])?;
    Ok(Lstm::new(s, 32, 32, 1)?.forward(&x, None)?.0)
}

/// Forward and backward through perceptron layers.
fn train(s: &Session, n: usize) -> Result<Vec<Tensor>> {
    let mut params = Vec::new();
    let mut x = weight(s, &[8, 64])?;
    for _ in 0..n / 40 {
        let w = weight(s, &[64, 64])?;
        x = x.matmul(&w)?.relu()?;
        params.push(w);
    }
    let loss = x.mul(&x)?.mean(&[], false)?;
    let refs: Vec<&Tensor> = params.iter().collect();
    loss.grad(&refs)
}

/// A step of Adam over `n` vectors of different lengths.
fn step(s: &Session, n: usize) -> Result<Vec<Tensor>> {
    let all = |s: &Session| (0..n).map(|i| weight(s, &[32 + i % 7])).collect::<Result<Vec<_>>>();
    let mut adam = Adam::new(all(s)?, 1e-3, AdamOpts::default())?;
    adam.step(&all(s)?)?;
    Ok(adam.tensors())
}

/// Causal attention, 12 heads, `n` queries and keys.
fn causal(s: &Session, n: usize) -> Result<Tensor> {
    let part = || weight(s, &[1, 12, n, 64]);
    part()?.attention(&part()?, &part()?, &Attention { causal: true, ..Attention::default() })
}

/// `n` gathers of one table, each at the places that the one before gave.
fn gathers(s: &Session, n: usize) -> Result<Tensor> {
    let table = Tensor::empty(s, DType::I32, &[64])?;
    let mut x = Tensor::empty(s, DType::I32, &[32])?;
    for _ in 0..n {
        x = table.index_select(0, &x)?;
    }
    Ok(x)
}

/// `n` nearest resizes, there and back.
fn resizes(s: &Session, n: usize) -> Result<Tensor> {
    let mut x = weight(s, &[1, 2, 17, 13])?;
    for i in 0..n {
        x = x.interpolate(&[[23, 31], [17, 13]][i % 2], Interpolate::Nearest, false)?;
    }
    Ok(x)
}

/// `n` pairs of a reshape and a transposition that do not cancel.
fn transposes(s: &Session, n: usize) -> Result<Tensor> {
    let mut x = weight(s, &[6, 35])?;
    for i in 0..n {
        x = x.reshape(&[[6, 35], [14, 15], [10, 21], [7, 30]][i % 4])?.t()?;
    }
    Ok(x)
}

fn build(s: &Session, name: &str) -> Result<Vec<Tensor>> {
    let (kind, n) = name.split_once(':').unwrap_or((name, "0"));
    let n: usize = n.parse().unwrap_or(0);
    Ok(vec![match kind {
        "resnet50" => resnet50(s)?,
        "bert" => bert(s, if n == 0 { 12 } else { n })?,
        "chain" => chain(s, n)?,
        "wide" => wide(s, n)?,
        "layers" => layers(s, n)?,
        "lstm" => lstm(s, n)?,
        "causal" => causal(s, n)?,
        "gathers" => gathers(s, n)?,
        "resizes" => resizes(s, n)?,
        "transposes" => transposes(s, n)?,
        "train" => return train(s, n),
        "step" => return step(s, n),
        _ => panic!("unknown network {name}"),
    }])
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// What is done to the graph of a model when it is loaded: everything but the first buffer is a weight.
fn load(s: &Session, outs: &[Tensor]) -> Duration {
    let mut state = s.state();
    let nodes: Vec<_> = outs.iter().map(|t| state.node(t.root())).collect();
    let start = Instant::now();
    let nodes = scale::into_constants(&mut state.graph, &nodes, &[0]);
    let nodes = siblings::join(&mut state.graph, &nodes, &[0]);
    fold::constant_nodes(&state.graph, &nodes, &[0]);
    start.elapsed()
}

fn measure(name: &str, target: &Target) -> Result<()> {
    let s = Session::new();
    let start = Instant::now();
    let outs = build(&s, name)?;
    let built = start.elapsed();
    let load = load(&s, &outs);
    // passes one by one
    let roots: Vec<_> = outs.iter().map(Tensor::node).collect();
    let start = Instant::now();
    let (key, externals) = hash::closed_key(&s.state().graph, &roots);
    let (g, closed) = close(&s.state().graph, &roots);
    let close_time = start.elapsed();
    let start = Instant::now();
    let plan = schedule(&g, &closed, externals.len(), target)?;
    let scheduled = start.elapsed();
    let (mut hashing, mut lowering, mut rendering) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut slowest = (Duration::ZERO, String::new());
    let mut seen = HashSet::new();
    for k in &plan.kernels {
        let t = Instant::now();
        let fresh = seen.insert(hash::key(&k.ast.g, &[k.ast.sink]));
        hashing += t.elapsed();
        if !fresh {
            continue;
        }
        let t = Instant::now();
        let p = codegen::compile(&k.ast, target, None)?;
        let one = t.elapsed();
        lowering += one;
        let t = Instant::now();
        render::render(&p, target)?;
        rendering += t.elapsed();
        if one > slowest.0 {
            slowest = (one, format!("{} ({} nodes)", p.name, p.g.len()));
        }
    }
    // and all of it as a program would
    let mut engine = Engine::new(Box::new(NullDevice::new(target.clone())));
    let ids: Vec<_> = outs.iter().map(Tensor::root).collect();
    let start = Instant::now();
    let pending = engine.start(&mut s.state(), &ids)?;
    let started = start.elapsed();
    let start = Instant::now();
    engine.finish(&mut s.state(), pending)?;
    let finished = start.elapsed();
    println!(
        "{name:12} {:7} nodes {:6} kernels {:5} distinct | build {:8.2} load {:7.2} close {:7.2} schedule {:8.2} key {:6.2} codegen {:8.2} \
         render {:7.2} | engine: start {:8.2} finish {:8.2} ms | slowest {:.2} ms {} [{key:032x}]",
        g.len(),
        plan.kernels.len(),
        seen.len(),
        ms(built),
        ms(load),
        ms(close_time),
        ms(scheduled),
        ms(hashing),
        ms(lowering),
        ms(rendering),
        ms(started),
        ms(finished),
        ms(slowest.0),
        slowest.1,
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = [
            "resnet50",
            "bert:1",
            "bert",
            "chain:1000",
            "layers:1000",
            "layers:10000",
            "wide:1000",
            "lstm:50",
            "train:1000",
            "step:100",
            "step:1000",
        ]
        .map(String::from)
        .to_vec();
    }
    let target = Target::x86(Isa::Avx512, 1);
    for name in &names {
        for _ in 0..2 {
            measure(name, &target)?;
        }
    }
    Ok(())
}
