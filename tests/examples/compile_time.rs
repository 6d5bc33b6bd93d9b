//! Prints where compile time goes, cold and on one thread, without a device: `cargo run --release -p gradloom-tests
//! --example compile_time [NAME ..]`. `resnet50:1` and `bert:12` are networks in their real sizes; `causal:N`, `chain:N`,
//! `wide:N`, `layers:N`, `lstm:N`, `train:N`, `step:N`, and the chains of moves `gathers:N`, `resizes:N`, `transposes:N`
//! grow with N, to show how each pass does.
#![allow(missing_docs)]

use gradloom_core::device::NullDevice;
use gradloom_core::engine::{Engine, close};
use gradloom_core::schedule::schedule;
use gradloom_core::target::{Isa, Target};
use gradloom_core::tensor::Tensor;
use gradloom_core::uop::hash;
use gradloom_core::{Result, codegen, render};
use gradloom_tests::networks::{Net, build, load};
use std::collections::HashSet;
use std::time::{Duration, Instant};

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn measure(name: &str, target: &Target) -> Result<()> {
    let net = Net::default();
    let s = &net.session;
    let start = Instant::now();
    let outs = build(&net, name)?;
    let built = start.elapsed();
    let start = Instant::now();
    load(&net, &outs, target)?;
    let load = start.elapsed();
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
            "resnet50:1",
            "bert:1",
            "bert:12",
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
