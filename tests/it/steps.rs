//! Steps of optimisers over many small parameters: their kernels go together, whatever the lengths, and compute the same.

use gradloom::tensor::Tensor;
use gradloom::{Result, Runtime, Session};
use gradloom_core::optim::{Adam, AdamOpts, Optimizer, Sgd, SgdOpts, clip_grad_norm, clip_grad_value};
use gradloom_tests::here;

/// Parameters of these lengths and all of the state, after two steps.
fn stepped(device: &str, lens: &[usize]) -> Result<Option<Vec<Vec<f32>>>> {
    let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { return Ok(None) };
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

#[test]
fn steps_that_draw_numbers_are_one_plan() {
    let mut rt = Runtime::open("cpu", 1).expect("the processor");
    let s = rt.session().clone();
    let weight = Tensor::new(&s, &[0.5f32; 48], &[8, 6]).and_then(|t| t.to_storage()).expect("a parameter");
    let mut adam = Adam::new(vec![weight.clone()], 0.1, AdamOpts::default()).expect("an optimiser");
    let (mut counted, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let x = Tensor::randn(&s, &[16, 8]).expect("numbers");
        let loss = x.matmul(&weight).and_then(|y| y.dropout(0.5)?.square()?.mean(&[0, 1], false)).expect("a loss");
        adam.minimize(&loss).expect("a step");
        let mut all = adam.tensors();
        all.push(loss.clone());
        rt.realize(&all.iter().collect::<Vec<_>>()).expect("a step");
        losses.push(rt.to_vec::<f32>(&loss).expect("a loss")[0]);
        let c = rt.counters();
        counted.push((c.plans, c.programs));
    }
    assert_eq!(counted[1], counted[3], "plans and programs of each step");
    assert!(losses.windows(2).all(|w| w[0] != w[1]), "each step draws anew: {losses:?}");
}

/// Twenty steps of `rule` on a parameter, beside a recurrence in f64: `state` is updated by a gradient and gives the step.
fn twenty(make: impl Fn(Tensor) -> Result<Box<dyn Optimizer>>, mut step: impl FnMut(usize, usize, f64, f64) -> f64) {
    let mut rt = Runtime::open("eval", 1).expect("the evaluator");
    let s = rt.session().clone();
    let start = [0.5f32, -1.25, 2.0, 0.0, 3.5];
    let grad = |t: usize, i: usize, p: f64| p * (0.3 + i as f64 / 4.0) - 0.5 + ((t * 7 + i) % 5) as f64 / 8.0;
    let parameter = Tensor::new(&s, &start, &[5]).and_then(|t| t.to_storage()).expect("a parameter");
    let mut optimizer = make(parameter.clone()).expect("an optimiser");
    let mut want: Vec<f64> = start.iter().map(|&v| f64::from(v)).collect();
    for t in 0..20 {
        let got = rt.to_vec::<f32>(&parameter).expect("values");
        for (g, w) in got.iter().zip(&want) {
            assert!((f64::from(*g) - w).abs() <= 1e-5 * w.abs().max(1.0), "step {t}: {g} instead of {w}");
        }
        let grads: Vec<f32> = want.iter().enumerate().map(|(i, &p)| grad(t, i, p) as f32).collect();
        let grads = [Tensor::new(&s, &grads, &[5]).expect("gradients")];
        optimizer.step(&grads).expect("a step");
        rt.realize(&optimizer.tensors().iter().collect::<Vec<_>>()).expect("a step");
        for (i, p) in want.iter_mut().enumerate() {
            let g = f64::from(grad(t, i, *p) as f32);
            *p = step(t + 1, i, *p, g);
        }
    }
    assert!(want.iter().zip(start).all(|(w, s)| (w - f64::from(s)).abs() > 1e-3), "nothing moved");
}

/// The recurrences that torch documents for SGD, Adam and AdamW.
#[test]
fn twenty_steps_are_those_of_torch() {
    for nesterov in [false, true] {
        let mut m = [0.0f64; 5];
        let opts = SgdOpts { momentum: 0.9, weight_decay: 0.01, nesterov };
        twenty(
            |p| Ok(Box::new(Sgd::new(vec![p], 0.05, opts)?)),
            |t, i, p, g| {
                let g = g + 0.01 * p;
                m[i] = if t == 1 { g } else { 0.9 * m[i] + g };
                p - 0.05 * if nesterov { g + 0.9 * m[i] } else { m[i] }
            },
        );
    }
    for (coupled, apart) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2)] {
        let (mut m, mut v) = ([0.0f64; 5], [0.0f64; 5]);
        twenty(
            |p| {
                let opts = AdamOpts { weight_decay: coupled, ..AdamOpts::default() };
                Ok(Box::new(match apart > 0.0 {
                    true => Adam::decoupled(vec![p], 0.1, apart)?,
                    false => Adam::new(vec![p], 0.1, opts)?,
                }))
            },
            |t, i, p, g| {
                let (p, g) = (p * (1.0 - 0.1 * apart), g + coupled * p);
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                let (a, b) = (1.0 - 0.9f64.powi(t as i32), 1.0 - 0.999f64.powi(t as i32));
                p - 0.1 * (m[i] / a) / ((v[i] / b).sqrt() + 1e-8)
            },
        );
    }
}

#[test]
fn gradients_are_clipped_as_torch_does() {
    let mut rt = Runtime::open("eval", 1).expect("the evaluator");
    let s = rt.session().clone();
    let of = |v: &[f32]| Tensor::new(&s, v, &[v.len()]).expect("a gradient");
    let grads = [of(&[3.0, -4.0]), of(&[12.0])];
    for (p, norm) in [(2.0, 13.0), (1.0, 19.0), (f64::INFINITY, 12.0)] {
        for max in [1.0f32, 100.0] {
            let (clipped, total) = clip_grad_norm(&grads, f64::from(max), p).expect("clipped");
            let factor = (max / (norm + 1e-6)).min(1.0);
            assert_eq!(rt.to_vec::<f32>(&total).expect("a norm"), [norm]);
            let got =
                [rt.to_vec::<f32>(&clipped[0]).expect("one"), rt.to_vec::<f32>(&clipped[1]).expect("two")].concat();
            for (g, w) in got.iter().zip([3.0, -4.0, 12.0]) {
                assert!((g - w * factor).abs() <= 1e-6 * w.abs(), "norm {p}, at most {max}: {got:?}");
            }
        }
    }
    let clipped = clip_grad_value(&grads, 3.5).expect("clipped");
    assert_eq!(rt.to_vec::<f32>(&clipped[0]).expect("one"), [3.0, -3.5]);
    assert_eq!(rt.to_vec::<f32>(&clipped[1]).expect("two"), [3.5]);
}
