//! GFLOP/s of f32 matmul through the whole stack on one thread: `cargo run --release --example matmul [N..]`.
#![allow(missing_docs)]

use gradloom::cpu::CpuDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::Isa;
use gradloom_core::tensor::{Session, Tensor};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for n in [256usize, 512, 1024] {
        for isa in [Isa::Avx2, Isa::Avx512] {
            let s = Session::new();
            let data: Vec<f32> = (0..n * n).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
            let a = Tensor::new(&s, &data, &[n, n])?;
            let b = Tensor::new(&s, &data, &[n, n])?;
            let c = a.matmul(&b)?;
            let mut e = Engine::new(Box::new(CpuDevice::with_isa(isa, 1)?));
            let p = e.start(&mut s.state(), &[c.root()])?;
            let name = e.program(p.plan().calls[0].program).map(|c| c.source.name.clone());
            let r = e.finish(&mut s.state(), p)?;
            let mut best = f64::MAX;
            for _ in 0..30 {
                let t = Instant::now();
                e.replay(&mut s.state(), &r, &Default::default())?;
                e.device().sync()?;
                best = best.min(t.elapsed().as_secs_f64());
                e.collect(&mut s.state());
            }
            println!("{n} {isa:?} {name:?}: {:.1} GFLOP/s", 2.0 * (n as f64).powi(3) / best / 1e9);
        }
    }
    Ok(())
}
