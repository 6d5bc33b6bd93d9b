//! Steps of optimisers over many small parameters: their kernels go together, whatever the lengths, and compute the same.

use gradloom::tensor::Tensor;
use gradloom::{Result, Runtime, Session};
use gradloom_core::optim::{Adam, AdamOpts, Optimizer};

/// Parameters of these lengths and all of the state, after two steps.
fn stepped(device: &str, lens: &[usize]) -> Result<Option<Vec<Vec<f32>>>> {
    let Ok(mut rt) = Runtime::open(device, 1) else { return Ok(None) };
    let s = rt.session().clone();
    let some = |s: &Session, seed: usize| -> Result<Vec<Tensor>> {
        let one = |n: usize| (0..n).map(|i| ((i * 37 + n * 11 + seed) % 23) as f32 / 8.0 - 1.0).collect::<Vec<f32>>();
        lens.iter().map(|&n| Tensor::new(s, &one(n), &[n])).collect()
    };
    let mut adam = Adam::new(some(&s, 0)?, 0.1, AdamOpts::default())?;
    for step in 1..=2 {
        adam.step(&some(&s, step)?)?;
        rt.realize(&adam.tensors().iter().collect::<Vec<_>>())?;
    }
    adam.tensors().iter().map(|t| rt.to_vec::<f32>(t)).collect::<Result<_>>().map(Some)
}

#[test]
fn a_step_over_small_parameters_of_any_lengths() {
    for lens in [&[33, 34][..], &[32, 33, 1, 7], &[1, 2, 3, 5, 17, 40, 100], &[64; 20]] {
        let want = stepped("eval", lens).expect("the evaluator").expect("is there");
        for device in ["cpu", "cpu:avx2", "llvm", "c", "wgpu"] {
            let Some(got) = stepped(device, lens).unwrap_or_else(|e| panic!("{device}, {lens:?}: {e}")) else {
                continue;
            };
            for (g, w) in got.iter().flatten().zip(want.iter().flatten()) {
                assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{device}, {lens:?}: {g} instead of {w}");
            }
        }
    }
}
