//! Joins of many tensors: parts are stored where they belong, and the values are those of the evaluator, bit by bit.

use gradloom::tensor::Tensor;
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::{self, Bool, F16, F32, I32};
use gradloom_core::nn::{Lstm, RecurrentOpts};
use gradloom_core::uop::random::Rng;
use gradloom_tests::here;

const DEVICES: [&str; 6] = ["cpu", "cpu:avx2", "llvm", "c", "opencl", "wgpu"];

/// Numbers with zeros of both signs among them.
fn numbers(s: &Session, rng: &mut Rng, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|_| rng.pick(&[-0.0, 0.0, 1.0, -2.5, 7.0, 0.125])).collect();
    Tensor::new(s, &data, shape)?.cast(dtype)
}

/// A join of many parts of all kinds, and what reads it.
fn join(s: &Session, seed: u64) -> Result<Vec<Tensor>> {
    let rng = &mut Rng(seed);
    let dtype = rng.pick(&[F32, F32, F16, I32, Bool]);
    let mut shape: Vec<usize> = (0..1 + rng.below(3)).map(|_| 1 + rng.below(5)).collect();
    let axis = rng.below(shape.len());
    let count = rng.pick(&[2, 3, 5, 9, 24]);
    let most = shape[axis];
    let shared = {
        let mut all = shape.clone();
        all[axis] = most * 4;
        numbers(s, rng, dtype, &all)?
    };
    let mut parts: Vec<Tensor> = Vec::new();
    for _ in 0..count {
        shape[axis] = 1 + rng.below(most);
        let x = numbers(s, rng, dtype, &shape)?;
        parts.push(match rng.below(6) {
            0 => shared.narrow(axis as i64, rng.below(most * 3), shape[axis])?,
            // computed for this alone, and for others too
            1 if dtype.is_float() => x.neg()?,
            2 if dtype.is_float() => shared.narrow(axis as i64, 0, shape[axis])?.mul(&x)?.contiguous(),
            // a sum of products
            3 if dtype.is_float() => {
                let mut wide = shape.clone();
                wide.push(3);
                numbers(s, rng, dtype, &wide)?.sum(&[-1], false)?
            }
            // the same part twice
            4 => match parts.last() {
                Some(before) if before.shape()[axis] == shape[axis] => before.clone(),
                _ => x,
            },
            _ => x,
        });
    }
    let whole = Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as i64)?;
    let mut out = vec![match rng.below(5) {
        0 => whole.clone(),
        1 => whole.contiguous(),
        2 => whole.flip(&[axis as i64])?,
        3 if dtype != Bool => whole.add(&whole)?,
        // joined once more
        _ => Tensor::cat(&[&whole, &parts[0], &whole], axis as i64)?,
    }];
    if dtype.is_float() {
        out.push(whole.sum(&[axis as i64], false)?);
        // it is no zero whose sign is lost
        out.push(whole.reciprocal()?);
    }
    out.push(parts[count - 1].clone().contiguous());
    Ok(out)
}

/// The gradient of pieces, which is a sum of them among zeros.
fn pieces(s: &Session, seed: u64) -> Result<Vec<Tensor>> {
    let rng = &mut Rng(seed);
    let (rows, count) = (1 + rng.below(4), rng.pick(&[3, 7, 20]));
    let x = numbers(s, rng, F32, &[count, rows])?;
    let w = numbers(s, rng, F32, &[rows, rows])?;
    let mut state = numbers(s, rng, F32, &[1, rows])?;
    for i in 0..count {
        state = x.narrow(0, i, 1)?.add(state.matmul(&w)?)?.tanh()?.contiguous();
    }
    let loss = state.sum(&[0, 1], false)?;
    loss.grad(&[&x, &w])
}

#[test]
fn joins_have_the_evaluators_values() {
    let run = |device: &str, make: fn(&Session, u64) -> Result<Vec<Tensor>>, seed| -> Option<Vec<Vec<f32>>> {
        let mut rt = here::device(device, Runtime::open(device, 2))?;
        let s = rt.session().clone();
        let go = || {
            let out = make(&s, seed)?;
            rt.realize(&out.iter().collect::<Vec<_>>())?;
            out.iter().map(|t| rt.to_vec::<f32>(&t.cast(F32)?)).collect::<Result<_>>()
        };
        Some({ go }().unwrap_or_else(|e| panic!("{device}, seed {seed}: {e}")))
    };
    for device in DEVICES {
        for (make, exact) in [(join as fn(&Session, u64) -> _, true), (pieces, false)] {
            for seed in 0..if device.starts_with("cpu") { 60 } else { 12 } {
                let Some(got) = run(device, make, seed) else { continue };
                let want = run("eval", make, seed).expect("the evaluator");
                for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                    let same = |(a, b): (&f32, &f32)| match exact {
                        true => {
                            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() || (at > 0 && (a - b).abs() <= 1e-3)
                        }
                        false => (a - b).abs() <= 1e-4 * b.abs().max(1.0),
                    };
                    assert!(
                        g.len() == w.len() && g.iter().zip(w).all(same),
                        "{device}, seed {seed}, {at}: {g:?}, not {w:?}"
                    );
                }
            }
        }
    }
}

/// A step of a recurrence is two kernels, whose results go where they belong among those of all steps; putting them together takes none.
#[test]
fn the_steps_of_a_recurrence_take_no_kernels_to_join() {
    let mut rt = Runtime::open("cpu", 1).expect("the processor");
    let s = rt.session().clone();
    for bidirectional in [false, true] {
        let (time, hidden) = (50, 24);
        let opts = RecurrentOpts { bidirectional, ..RecurrentOpts::default() };
        let lstm = Lstm::with(&s, 8, hidden, opts).expect("a network");
        let x = Tensor::randn(&s, &[1, time, 8]).expect("numbers");
        let (y, _) = lstm.forward(&x, None).expect("a graph");
        rt.realize(&[&x]).expect("numbers");
        let before = rt.counters().launches;
        rt.realize(&[&y]).expect("a run");
        let (launches, directions) = (rt.counters().launches - before, 1 + u64::from(bidirectional));
        // besides steps the inputs of all gates, packed weights, and the join of two directions
        assert!(launches <= directions * (2 * time as u64 + 4), "{launches} launches");
    }
}
