//! Prints where compile time goes for a ResNet-like network (no device needed): `cargo run --release --example compile_time`.
#![allow(missing_docs)]

use gradloom_core::codegen;
use gradloom_core::engine::close;
use gradloom_core::schedule::schedule;
use gradloom_core::target::{Isa, Target};
use gradloom_core::tensor::{ConvOpts, Session, Tensor};
use gradloom_core::{DType, Result};
use std::time::Instant;

fn net(s: &Session) -> Result<Tensor> {
    let w = |shape: &[usize]| Tensor::empty(s, DType::F32, shape);
    let mut x = w(&[1, 3, 224, 224])?;
    let mut c = 3;
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for b in 0..blocks {
            let stride = if b == 0 && stage > 0 {
                2
            } else if b == 0 {
                4
            } else {
                1
            };
            let o = ConvOpts::new().padding(&[1, 1]);
            let y =
                x.conv(&w(&[width, c, 3, 3])?, Some(&w(&[width])?), &o.clone().stride(&[stride, stride]))?.relu()?;
            let y = y.conv(&w(&[width, width, 3, 3])?, Some(&w(&[width])?), &o)?;
            let skip = match (b, c == width) {
                (0, _) => x.conv(&w(&[width, c, 1, 1])?, None, &ConvOpts::new().stride(&[stride, stride]))?,
                _ => x.clone(),
            };
            x = y.add(&skip)?.relu()?;
            c = width;
        }
    }
    x.mean(&[2, 3], false)?.linear(&w(&[1000, 512])?, Some(&w(&[1000])?))?.softmax(-1)
}

fn main() -> Result<()> {
    for _ in 0..3 {
        let start = Instant::now();
        let s = Session::new();
        let y = net(&s)?;
        let built = start.elapsed();
        let root = y.node();
        let (g, roots, externals) = close(&s.state().graph, &[root]);
        let t = Target::x86(Isa::Avx2, 2);
        let start = Instant::now();
        let plan = schedule(&g, &roots, externals.len(), &t)?;
        let scheduled = start.elapsed();
        let start = Instant::now();
        let mut seen = std::collections::HashMap::new();
        let mut slowest = (std::time::Duration::ZERO, String::new());
        for k in &plan.kernels {
            let key = gradloom_core::uop::hash::key(&k.ast.g, &[k.ast.sink]);
            if seen.contains_key(&key) {
                continue;
            }
            let one = Instant::now();
            let p = codegen::compile(&k.ast, &t, None)?;
            if one.elapsed() > slowest.0 {
                slowest = (one.elapsed(), format!("{} {} nodes", p.name, p.g.len()));
            }
            seen.insert(key, p.name);
        }
        println!(
            "{} nodes, {} kernels, {} distinct: build {built:?} schedule {scheduled:?} codegen {:?}, slowest {slowest:?}",
            g.len(),
            plan.kernels.len(),
            seen.len(),
            start.elapsed()
        );
    }
    Ok(())
}
