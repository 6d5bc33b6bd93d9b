//! Attention with and without a causal mask, 12 heads of 64, on one thread: `cargo run --release --example attention [N..]`.
#![allow(missing_docs)]

use gradloom::cpu::CpuDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::Isa;
use gradloom_core::tensor::{Attention, Session, Tensor};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut sizes: Vec<usize> = std::env::args().skip(1).map(|n| n.parse()).collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        sizes = vec![128, 512, 1024];
    }
    for n in sizes {
        let mut runs = Vec::new();
        for causal in [false, true] {
            let s = Session::new();
            let data: Vec<f32> = (0..12 * n * 64).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
            let part = || Tensor::new(&s, &data, &[1, 12, n, 64]);
            let (q, k, v) = (part()?, part()?, part()?);
            let y = q.attention(&k, &v, &Attention { causal, ..Attention::default() })?;
            let mut e = Engine::new(Box::new(CpuDevice::with_isa(Isa::Avx512, 1)?));
            let p = e.start(&mut s.state(), &[y.root()])?;
            let name = e.program(p.plan().calls[0].program).map(|c| c.source.name.clone()).unwrap_or_default();
            let r = e.finish(&mut s.state(), p)?;
            runs.push((causal, name, s, e, r, [q, k, v], f64::MAX));
        }
        for _ in 0..60 {
            for (_, _, s, e, r, _, best) in &mut runs {
                let t = Instant::now();
                e.replay(&mut s.state(), r, &Default::default())?;
                e.device().sync()?;
                *best = best.min(t.elapsed().as_secs_f64());
                e.collect(&mut s.state());
            }
        }
        for (causal, name, .., best) in &runs {
            println!("{n} queries and keys, causal: {causal:5} {:8.3} ms  {name}", best * 1e3);
        }
    }
    Ok(())
}
