//! What a launch costs on each device: chains of kernels that do next to nothing, as one plan that is run again and again.
//!
//! `cargo run --release -p gradloom --features wgpu --example launches -- vulkan wgpu`

use gradloom::{Result, Runtime, Tensor};
use std::time::Instant;

/// Kernels of each chain; the difference between two is what a launch costs.
const CHAINS: [usize; 2] = [1, 101];
/// Rounds, in which the devices take turns.
const ROUNDS: usize = 200;

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let names = if names.is_empty() { vec!["vulkan".into()] } else { names };
    let mut chains = Vec::new();
    for name in &names {
        for n in CHAINS {
            let mut rt = Runtime::open(name, 0)?;
            let mut t = Tensor::new(rt.session(), &[1.0f32; 64], &[64])?;
            for _ in 0..n {
                // each element is computed from another one, so no two steps can be one kernel
                t = t.flip(&[0])?.add(1.0)?.contiguous();
            }
            let replay = rt.realize(&[&t])?;
            let before = rt.counters().launches;
            rt.replay(&replay)?;
            assert_eq!(rt.counters().launches - before, n as u64, "every step is a launch");
            chains.push((rt, replay, f64::INFINITY));
        }
    }
    for _ in 0..ROUNDS {
        for (rt, replay, best) in &mut chains {
            let start = Instant::now();
            rt.replay(replay)?;
            rt.engine().device().sync()?;
            *best = best.min(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    for (name, pair) in names.iter().zip(chains.chunks(2)) {
        let (one, many) = (pair[0].2, pair[1].2);
        let each = (many - one) / (CHAINS[1] - CHAINS[0]) as f64;
        println!("{name}: a run of {} is {one:.0} us, each further launch {each:.2} us", CHAINS[0]);
    }
    Ok(())
}
