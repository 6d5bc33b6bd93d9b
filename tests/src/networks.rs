//! The networks that benchmarks run, in their real sizes and without values: what the compiler makes of them is looked at without a
//! device. `tests/bench/native/make_models.py` makes the same as files.

use gradloom_core::engine::passes::Outcome;
use gradloom_core::engine::{GRAPH_PASSES, close, fold, plan};
use gradloom_core::nn::Lstm;
use gradloom_core::optim::{Adam, AdamOpts, Optimizer};
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::tensor::{Attention, ConvOpts, ConvTransposeOpts, Interpolate, PadMode, PoolOpts, Session, Tensor};
use gradloom_core::uop::{Arg, Op, UOp};
use gradloom_core::{DType, Error, Result};
use std::cell::RefCell;

/// A network in the making: which of its buffers are inputs, all others being weights.
pub struct Net {
    /// Where its tensors are.
    pub session: Session,
    inputs: RefCell<Vec<u32>>,
    float: DType,
}

impl Default for Net {
    fn default() -> Net {
        Net::of(DType::F32)
    }
}

/// The buffer of a tensor that is one.
fn buffer(t: &Tensor) -> Option<u32> {
    let mut u = t.node();
    let state = t.session().state();
    while state.graph.op(u) == Op::Reshape {
        u = state.graph.src_at(u, 0);
    }
    match state.graph.arg(u) {
        Arg::Buffer { id, .. } => Some(*id),
        _ => None,
    }
}

impl Net {
    /// One whose weights, inputs and values are of this dtype.
    pub fn of(float: DType) -> Net {
        Net { session: Session::default(), inputs: RefCell::default(), float }
    }

    /// An input: a buffer that is not a weight.
    ///
    /// # Errors
    /// Shapes that are too large.
    pub fn input_of(&self, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let x = Tensor::empty(&self.session, dtype, shape)?;
        self.inputs.borrow_mut().extend(buffer(&x));
        Ok(x)
    }

    fn input(&self, shape: &[usize]) -> Result<Tensor> {
        self.input_of(self.float, shape)
    }

    /// A weight: a buffer that stays the same from run to run.
    ///
    /// # Errors
    /// Shapes that are too large.
    pub fn weight(&self, shape: &[usize]) -> Result<Tensor> {
        Tensor::empty(&self.session, self.float, shape)
    }

    fn linear(&self, x: &Tensor, n: usize) -> Result<Tensor> {
        x.linear(&self.weight(&[n, x.shape()[x.shape().len() - 1]])?, Some(&self.weight(&[n])?))
    }

    fn norm(&self, x: &Tensor) -> Result<Tensor> {
        let width = x.shape()[x.shape().len() - 1];
        x.layer_norm(1, Some(&self.weight(&[width])?), Some(&self.weight(&[width])?), 1e-12)
    }

    /// A convolution and its normalisation.
    fn conv(&self, x: &Tensor, out: usize, kernel: usize, stride: usize, groups: usize) -> Result<Tensor> {
        let channels = x.shape()[1] / groups;
        let pad = kernel / 2;
        let opts = ConvOpts::new().padding(&[pad, pad]).stride(&[stride, stride]).groups(groups);
        let y = x.conv(&self.weight(&[out, channels, kernel, kernel])?, None, &opts)?;
        let v = || self.weight(&[out])?.reshape(&[1, out, 1, 1]);
        let scale = v()?.div(&v()?.add(1e-5)?.sqrt()?)?;
        y.sub(&v()?)?.mul(&scale)?.add(&v()?)
    }
}

fn resnet50(net: &Net, images: usize) -> Result<Tensor> {
    let mut x = net.conv(&net.input(&[images, 3, 224, 224])?, 64, 7, 2, 1)?.relu()?;
    x = x.max_pool(&PoolOpts::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]))?;
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for b in 0..blocks {
            let stride = if b == 0 && stage > 0 { 2 } else { 1 };
            let y = net.conv(&x, width, 1, 1, 1)?.relu()?;
            let y = net.conv(&y, width, 3, stride, 1)?.relu()?;
            let y = net.conv(&y, width * 4, 1, 1, 1)?;
            let skip = if b == 0 { net.conv(&x, width * 4, 1, stride, 1)? } else { x.clone() };
            x = y.add(&skip)?.relu()?;
        }
    }
    net.linear(&x.mean(&[2, 3], false)?, 1000)?.softmax(-1)
}

fn mobilenetv2(net: &Net, images: usize) -> Result<Tensor> {
    let six = |x: Tensor| x.clamp(0.0, 6.0);
    let mut x = six(net.conv(&net.input(&[images, 3, 224, 224])?, 32, 3, 2, 1)?)?;
    let stages =
        [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
    for (factor, out, blocks, first) in stages {
        for b in 0..blocks {
            let (stride, hidden) = (if b == 0 { first } else { 1 }, x.shape()[1] * factor);
            let y = if factor == 1 { x.clone() } else { six(net.conv(&x, hidden, 1, 1, 1)?)? };
            let y = six(net.conv(&y, hidden, 3, stride, hidden)?)?;
            let y = net.conv(&y, out, 1, 1, 1)?;
            x = if stride == 1 && x.shape()[1] == out { x.add(&y)? } else { y };
        }
    }
    let x = six(net.conv(&x, 1280, 1, 1, 1)?)?;
    net.linear(&x.mean(&[2, 3], false)?, 1000)
}

/// A transformer encoder: layers, width, heads.
fn encoder(net: &Net, layers: usize, width: usize, heads: usize) -> Result<Tensor> {
    let (batch, len) = (1, 128);
    let ids = net.input_of(DType::I32, &[batch, len])?;
    let mask = net.input_of(DType::I32, &[batch, len])?;
    let mask = mask.reshape(&[batch, 1, 1, len])?.cast(net.float)?.sub(1.0)?.mul(10000.0)?;
    let x = net.weight(&[30522, width])?.embedding(&ids)?.add(&net.weight(&[1, len, width])?)?;
    let mut x = net.norm(&x)?;
    for _ in 0..layers {
        let split = |t: Tensor| t.reshape(&[batch, len, heads, width / heads])?.permute(&[0, 2, 1, 3]);
        let part = || split(net.linear(&x, width)?);
        let (q, k, v) = (part()?, part()?, part()?);
        let scale = ((width / heads) as f64).sqrt();
        let scores = q.matmul(&k.transpose(2, 3)?)?.div(scale)?.add(&mask)?.softmax(-1)?;
        let y = scores.matmul(&v)?.permute(&[0, 2, 1, 3])?.reshape(&[batch, len, width])?;
        let y = net.norm(&net.linear(&y, width)?.add(&x)?)?;
        x = net.norm(&net.linear(&net.linear(&y, 4 * width)?.gelu()?, width)?.add(&y)?)?;
    }
    Ok(x)
}

/// A step of GPT-2 small over a cache of 128 tokens.
fn gpt2step(net: &Net, layers: usize) -> Result<Vec<Tensor>> {
    let (width, heads, past, vocab) = (768, 12, 128, 50257);
    let size = width / heads;
    let (ids, pos) = (net.input_of(DType::I32, &[1, 1])?, net.input_of(DType::I32, &[1, 1])?);
    let cache = net.input(&[layers, 2, 1, heads, past, size])?;
    let table = net.weight(&[vocab, width])?;
    let mut x = table.embedding(&ids)?.add(&net.weight(&[1024, width])?.embedding(&pos)?)?;
    let mut out = Vec::new();
    for i in 0..layers {
        let qkv = net.linear(&net.norm(&x)?, 3 * width)?;
        let part = |j: usize| qkv.narrow(2, j * width, width)?.reshape(&[1, 1, heads, size])?.permute(&[0, 2, 1, 3]);
        let old = |j: usize| cache.narrow(0, i, 1)?.narrow(1, j, 1)?.reshape(&[1, heads, past, size]);
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let (keys, values) = (Tensor::cat(&[&old(0)?, &k], 2)?, Tensor::cat(&[&old(1)?, &v], 2)?);
        let p = q.matmul(&keys.transpose(2, 3)?)?.div((size as f64).sqrt())?.softmax(-1)?;
        let y = p.matmul(&values)?.permute(&[0, 2, 1, 3])?.reshape(&[1, 1, width])?;
        x = x.add(&net.linear(&y, width)?)?;
        x = x.add(&net.linear(&net.linear(&net.norm(&x)?, 4 * width)?.gelu_tanh()?, width)?)?;
        out.extend([k, v]);
    }
    out.insert(0, net.norm(&x)?.reshape(&[1, width])?.matmul(&table.t()?)?);
    Ok(out)
}

fn mnist_layers(net: &Net, x: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
    let mut weights = Vec::new();
    let mut weight = |shape: &[usize]| {
        let w = net.weight(shape)?;
        weights.push(w.clone());
        Ok::<_, Error>(w)
    };
    let mut x = x.clone();
    for (size, from, to) in [(5, 1, 32), (5, 32, 32), (3, 32, 64), (3, 64, 64)] {
        x = x.conv(&weight(&[to, from, size, size])?, Some(&weight(&[to])?), &ConvOpts::new())?.relu()?;
        if from == to {
            x = x.max_pool(&PoolOpts::new(&[2, 2]).stride(&[2, 2]))?;
        }
    }
    let y = x.flatten(1, -1)?.linear(&weight(&[10, 576])?, Some(&weight(&[10])?))?;
    Ok((y, weights))
}

/// A step of Adam on the MNIST network.
fn mnist_step(net: &Net, batch: usize) -> Result<Vec<Tensor>> {
    let (logits, weights) = mnist_layers(net, &net.input(&[batch, 1, 28, 28])?)?;
    let loss = logits.cross_entropy(&net.input_of(DType::I32, &[batch])?, None, 0.0)?;
    let refs: Vec<&Tensor> = weights.iter().collect();
    let grads = loss.grad(&refs)?;
    let mut adam = Adam::new(weights.clone(), 1e-3, AdamOpts::default())?;
    adam.step(&grads)?;
    let mut out = adam.tensors();
    out.push(loss);
    Ok(out)
}

/// A block of ConvNeXt: a depthwise convolution, a norm of channels and two products.
fn convnext(net: &Net, width: usize, side: usize) -> Result<Tensor> {
    let x = net.input(&[1, width, side, side])?;
    let opts = ConvOpts::new().padding(&[3, 3]).groups(width);
    let y = x.conv(&net.weight(&[width, 1, 7, 7])?, Some(&net.weight(&[width])?), &opts)?.permute(&[0, 2, 3, 1])?;
    let y = net.linear(&net.linear(&net.norm(&y)?, 4 * width)?.gelu()?, width)?;
    x.add(&y.mul(&net.weight(&[width])?)?.permute(&[0, 3, 1, 2])?)
}

/// `n` elementwise steps one after the other.
fn chain(net: &Net, n: usize) -> Result<Tensor> {
    let (mut x, y) = (net.input(&[256])?, net.input(&[256])?);
    for i in 0..n / 2 {
        x = if i % 2 == 0 { x.mul(&y)?.add(1.0)? } else { x.sub(&y)?.relu()? };
    }
    Ok(x)
}

/// A sum of `n / 4` products of different buffers.
fn wide(net: &Net, n: usize) -> Result<Tensor> {
    let mut terms: Vec<Tensor> = Vec::new();
    for _ in 0..n / 4 {
        terms.push(net.input(&[64])?.mul(&net.input(&[64])?)?);
    }
    while terms.len() > 1 {
        let pairs = terms.chunks(2).map(|p| if p.len() == 2 { p[0].add(&p[1]) } else { Ok(p[0].clone()) });
        terms = pairs.collect::<Result<_>>()?;
    }
    Ok(terms.remove(0))
}

/// Perceptron layers, 12 nodes or so each; every layer is the same kernels.
fn layers(net: &Net, n: usize) -> Result<Tensor> {
    let mut x = net.input(&[8, 64])?;
    for _ in 0..n / 12 {
        x = net.linear(&x, 64)?.gelu()?.add(&x)?;
    }
    Ok(x)
}

fn lstm(net: &Net, steps: usize) -> Result<Tensor> {
    Ok(Lstm::new(&net.session, 32, 32, 1)?.forward(&net.input(&[1, steps, 32])?, None)?.0)
}

/// Blocks whose loops are chosen in ways of their own: windows with strides, padding, the largest few, a recurrence both ways, transpositions.
fn blocks(net: &Net) -> Result<Vec<Tensor>> {
    let map = |channels: usize, side: usize| net.input(&[1, channels, side, side]);
    let means = map(64, 40)?.avg_pool(&PoolOpts::new(&[5, 5]).stride(&[5, 5]))?;
    let largest = map(64, 56)?.max_pool(&PoolOpts::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]))?;
    let near = map(64, 28)?.max_pool(&PoolOpts::new(&[5, 5]).stride(&[1, 1]).padding(&[2, 2]))?;
    let depthwise = |side: usize, k: usize, stride: usize| {
        let opts = ConvOpts::new().padding(&[k / 2, k / 2]).stride(&[stride, stride]).groups(64);
        map(64, side)?.conv(&net.weight(&[64, 1, k, k])?, None, &opts)
    };
    let few_out = ConvOpts::new().padding(&[1, 1]).stride(&[2, 2]);
    let strided = map(64, 86)?.conv(&net.weight(&[16, 64, 3, 3])?, None, &few_out)?;
    let phases = ConvTransposeOpts { conv: ConvOpts::new().stride(&[2, 2]), output_padding: Vec::new() };
    let phases = map(256, 28)?.conv_transpose(&net.weight(&[256, 96, 4, 4])?, None, &phases)?;
    let padded = map(32, 56)?.pad(&[(0, 0), (0, 0), (3, 3), (3, 3)], PadMode::Reflect, 0.0)?;
    let (few, _) = net.input(&[257, 197])?.topk(5, -1, true)?;
    let both = Lstm::bidirectional(&net.session, 32, 64, 1)?.forward(&net.input(&[1, 8, 32])?, None)?.0;
    let turned = net.input(&[192, 257])?.t()?.add(1.0)?;
    Ok(vec![
        means,
        largest,
        near,
        depthwise(56, 7, 2)?,
        depthwise(14, 7, 1)?,
        strided,
        phases,
        padded,
        few,
        both,
        turned,
    ])
}

/// Forward and backward through perceptron layers.
fn train(net: &Net, n: usize) -> Result<Vec<Tensor>> {
    let mut params = Vec::new();
    let mut x = net.input(&[8, 64])?;
    for _ in 0..n / 40 {
        let w = net.weight(&[64, 64])?;
        x = x.matmul(&w)?.relu()?;
        params.push(w);
    }
    let loss = x.mul(&x)?.mean(&[], false)?;
    let refs: Vec<&Tensor> = params.iter().collect();
    loss.grad(&refs)
}

/// A step of Adam over `n` vectors of different lengths.
fn step(net: &Net, n: usize) -> Result<Vec<Tensor>> {
    let all = || (0..n).map(|i| net.weight(&[32 + i % 7])).collect::<Result<Vec<_>>>();
    let mut adam = Adam::new(all()?, 1e-3, AdamOpts::default())?;
    adam.step(&all()?)?;
    Ok(adam.tensors())
}

/// Causal attention, 12 heads, `n` queries and keys.
fn causal(net: &Net, n: usize) -> Result<Tensor> {
    let part = || net.input(&[1, 12, n, 64]);
    part()?.attention(&part()?, &part()?, &Attention { causal: true, ..Attention::default() })
}

/// `n` gathers of one table, each at the places that the one before gave.
fn gathers(net: &Net, n: usize) -> Result<Tensor> {
    let table = net.input_of(DType::I32, &[64])?;
    let mut x = net.input_of(DType::I32, &[32])?;
    for _ in 0..n {
        x = table.index_select(0, &x)?;
    }
    Ok(x)
}

/// `n` nearest resizes, there and back.
fn resizes(net: &Net, n: usize) -> Result<Tensor> {
    let mut x = net.input(&[1, 2, 17, 13])?;
    for i in 0..n {
        x = x.interpolate(&[[23, 31], [17, 13]][i % 2], Interpolate::Nearest, false)?;
    }
    Ok(x)
}

/// `n` pairs of a reshape and a transposition that do not cancel.
fn transposes(net: &Net, n: usize) -> Result<Tensor> {
    let mut x = net.input(&[6, 35])?;
    for i in 0..n {
        x = x.reshape(&[[6, 35], [14, 15], [10, 21], [7, 30]][i % 4])?.t()?;
    }
    Ok(x)
}

/// The benchmark's networks, by the names that [`build`] knows.
pub const BENCHMARKS: [&str; 27] = [
    "matmul:256",
    "matmul:1024",
    "wmatmul:1024",
    "matvec:4096",
    "matvect:4096",
    "conv:56",
    "softmax:4096",
    "layernorm:4096",
    "gelu:16777216",
    "sum:16777216",
    "transpose:4096",
    "mobilenetv2:1",
    "mobilenetv2:8",
    "resnet50:1",
    "resnet50:8",
    "bertmini",
    "minilm",
    "bert:12",
    "gpt2step:12",
    "mnist:1",
    "mnist:512",
    "mnist-step:512",
    "convnext:96",
    "lstm:20",
    "causal:512",
    "step:100",
    "blocks",
];

/// The results of a network: a name, and after a colon its size.
///
/// # Errors
/// A name that is unknown.
pub fn build(net: &Net, name: &str) -> Result<Vec<Tensor>> {
    let (kind, n) = name.split_once(':').unwrap_or((name, "1"));
    let n: usize = n.parse().map_err(|_| Error::value("size", name))?;
    Ok(vec![match kind {
        "matmul" => net.input(&[n, n])?.matmul(&net.input(&[n, n])?)?,
        "wmatmul" => net.input(&[n, n])?.matmul(&net.weight(&[n, n])?)?,
        "matvec" => net.input(&[1, n])?.matmul(&net.weight(&[n, n])?)?,
        "matvect" => net.input(&[1, n])?.linear(&net.weight(&[n, n])?, None)?,
        "conv" => {
            net.input(&[1, 64, n, n])?.conv(&net.weight(&[64, 64, 3, 3])?, None, &ConvOpts::new().padding(&[1, 1]))?
        }
        "softmax" => net.input(&[n, n])?.softmax(-1)?,
        "layernorm" => net.norm(&net.input(&[n, n])?)?,
        "gelu" => net.input(&[n])?.mul(&net.input(&[n])?)?.add(&net.input(&[n])?)?.gelu_tanh()?,
        "sum" => net.input(&[n])?.sum(&[], false)?,
        "transpose" => net.input(&[n, n])?.t()?.contiguous(),
        "mobilenetv2" => mobilenetv2(net, n)?,
        "resnet50" => resnet50(net, n)?,
        "bertmini" => encoder(net, 4, 256, 4)?,
        "minilm" => encoder(net, 6, 384, 12)?,
        "bert" => encoder(net, n, 768, 12)?,
        "gpt2step" => return gpt2step(net, n),
        "mnist" => mnist_layers(net, &net.input(&[n, 1, 28, 28])?)?.0,
        "mnist-step" => return mnist_step(net, n),
        "convnext" => convnext(net, n, 56)?,
        "chain" => chain(net, n)?,
        "wide" => wide(net, n)?,
        "layers" => layers(net, n)?,
        "blocks" => return blocks(net),
        "lstm" => lstm(net, n)?,
        "causal" => causal(net, n)?,
        "gathers" => gathers(net, n)?,
        "resizes" => resizes(net, n)?,
        "transposes" => transposes(net, n)?,
        "train" => return train(net, n),
        "step" => return step(net, n),
        _ => return Err(Error::value("network", name)),
    }])
}

/// What is done to the graph of a model when it is loaded: the images of its results, which read computed weights as buffers.
///
/// # Errors
/// Those of making the buffers.
pub fn load(net: &Net, outs: &[Tensor], t: &Target) -> Result<Vec<UOp>> {
    let nodes: Vec<UOp> = outs.iter().map(Tensor::node).collect();
    let (nodes, constants) = {
        let (mut state, inputs) = (net.session.state(), net.inputs.borrow());
        let g = &mut state.graph;
        let (mut nodes, mut constants) = (nodes, Vec::new());
        for pass in &GRAPH_PASSES {
            match pass.run(g, &nodes, &inputs, t)? {
                Outcome::Same => {}
                Outcome::Roots(new) => nodes = new,
                Outcome::Constants(found) => constants = found,
            }
        }
        let kinds = constants.into_iter().map(|u| (u, g.dtype(u), g.shape(u).to_vec()));
        (nodes, kinds.collect::<Vec<_>>())
    };
    let new =
        constants.into_iter().map(|(u, dtype, shape)| Ok((u, Tensor::empty(&net.session, dtype, &shape)?.node())));
    let new = new.collect::<Result<Vec<_>>>()?;
    fold::read(&mut net.session.state().graph, &nodes, &new)
}

/// The kernels of a network on a target, each with the number of its launches, in order of first use.
///
/// # Errors
/// Those of the scheduler.
pub fn kernels(net: &Net, nodes: &[UOp], t: &Target) -> Result<Vec<(Ast, usize)>> {
    let state = net.session.state();
    let inputs = net.inputs.borrow();
    let buffers = gradloom_core::uop::hash::closed_key(&state.graph, nodes).1;
    let constant: Vec<bool> = buffers.iter().map(|b| !inputs.contains(b)).collect();
    let (g, roots) = close(&state.graph, nodes);
    let (plan, jobs) = plan::plan(&g, &roots, &constant, t)?;
    let calls = |key: u128| plan.calls.iter().filter(|c| c.program == key).count();
    Ok(jobs.into_iter().map(|j| (j.ast, calls(j.key))).collect())
}
