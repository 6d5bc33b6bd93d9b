//! Recurrences on every device: as a kernel that loops over the steps, and unrolled, beside plain loops in f64.

use gradloom::nn::{Gru, Lstm};
use gradloom::tensor::{States, Tensor};
use gradloom::{NativeHost, Result, Runtime, Session};
use gradloom_core::DType;
use gradloom_tests::here;

const DEVICES: [&str; 7] = ["eval", "cpu:guarded", "cpu:avx2", "c", "llvm", "wgpu", "opencl"];

/// Small numbers of both signs; smaller ones for large matrices, so that differences do not grow from step to step.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    let scale = if n > 30_000 { 0.125 } else { 1.0 };
    (0..n).map(|i| (((i * 7919 + seed * 104_729 + i / 7) % 33) as f32 / 64.0 - 0.25) * scale).collect()
}

fn tensor(s: &Session, shape: &[usize], seed: usize) -> Result<Tensor> {
    Tensor::new(s, &numbers(shape.iter().product(), seed), shape)
}

/// A product of rows `[batch, n]` and a matrix `[n, m]` in f64.
fn product(x: &[f64], w: &[f32], m: usize) -> Vec<f64> {
    let n = w.len() / m;
    let row = |r: &[f64]| (0..m).map(|j| (0..n).map(|i| r[i] * f64::from(w[i * m + j])).sum()).collect::<Vec<f64>>();
    x.chunks(n).flat_map(row).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The sizes of a test.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    steps: usize,
    batch: usize,
    hidden: usize,
}

const SIZES: [Sizes; 8] = [
    Sizes { steps: 20, batch: 1, hidden: 32 },
    Sizes { steps: 7, batch: 3, hidden: 24 },
    Sizes { steps: 5, batch: 2, hidden: 17 },
    Sizes { steps: 1, batch: 1, hidden: 8 },
    Sizes { steps: 6, batch: 1, hidden: 37 },
    Sizes { steps: 2, batch: 4, hidden: 1 },
    // more than one launch
    Sizes { steps: 70, batch: 1, hidden: 192 },
    // launches of two steps, of which the last computes one again
    Sizes { steps: 21, batch: 8, hidden: 300 },
];

/// Compares what `build` gives on each device with `want`.
fn check(name: &str, sizes: Sizes, want: &[f64], build: impl Fn(&Session) -> Result<Tensor>) {
    for device in DEVICES {
        let is_processor = matches!(device, "cpu:guarded" | "cpu:avx2" | "eval");
        // other compilers take long
        let most = if is_processor { 20 } else { 7 };
        if device != "cpu:guarded" && sizes.steps > most {
            continue;
        }
        for threads in if is_processor { 1..3 } else { 1..2 } {
            let Some(mut rt) = here::device(device, Runtime::open(device, threads)) else { continue };
            let y = build(rt.session()).unwrap_or_else(|e| panic!("{name}: {e}"));
            let got = rt.to_vec::<f32>(&y).unwrap_or_else(|e| panic!("{name} {sizes:?} on {device}: {e}"));
            assert_eq!(got.len(), want.len(), "{name} {sizes:?} on {device}");
            let wrong = got.iter().zip(want).position(|(a, b)| !((f64::from(*a) - b).abs() <= 1e-5));
            assert!(
                wrong.is_none(),
                "{name} {sizes:?} on {device}, {threads} threads: element {wrong:?} is {}, not {}",
                got[wrong.unwrap()],
                want[wrong.unwrap()]
            );
        }
    }
}

/// All states of `h = tanh(h w + x)`.
fn tanh_of_sums(s: &Session, Sizes { steps, batch, hidden }: Sizes) -> Result<Tensor> {
    let (x, w) = (tensor(s, &[steps, batch, hidden], 1)?, tensor(s, &[hidden, hidden], 2)?);
    let h = tensor(s, &[batch, hidden], 3)?;
    let all = Tensor::recurrence(&[&h], &[&x], |h, x| Ok(vec![h[0].matmul(&w)?.add(&x[0])?.tanh()?]))?;
    Ok(all[0].after.clone())
}

fn realize_tanh(rt: &mut Runtime, sizes: Sizes) {
    let y = tanh_of_sums(&rt.session().clone(), sizes).unwrap();
    rt.realize(&[&y]).unwrap();
}

#[test]
fn one_state() {
    for z in SIZES {
        let Sizes { steps, batch, hidden } = z;
        let (x, w) = (numbers(steps * batch * hidden, 1), numbers(hidden * hidden, 2));
        let mut h: Vec<f64> = numbers(batch * hidden, 3).iter().map(|&v| f64::from(v)).collect();
        let mut want = Vec::new();
        for t in 0..steps {
            let own = &x[t * batch * hidden..(t + 1) * batch * hidden];
            h = product(&h, &w, hidden).iter().zip(own).map(|(a, b)| (a + f64::from(*b)).tanh()).collect();
            want.extend(&h);
        }
        check("tanh", z, &want, |s| tanh_of_sums(s, z));
    }
}

#[test]
fn two_states() {
    for z in SIZES {
        let Sizes { steps, batch, hidden } = z;
        let (x, w) = (numbers(steps * batch * hidden * 4, 1), numbers(hidden * hidden * 4, 2));
        let bias = numbers(hidden * 4, 5);
        let mut h: Vec<f64> = vec![0.0; batch * hidden];
        let mut c: Vec<f64> = numbers(batch * hidden, 4).iter().map(|&v| f64::from(v)).collect();
        let (mut hs, mut cs) = (Vec::new(), Vec::new());
        for t in 0..steps {
            let gates = product(&h, &w, hidden * 4);
            for b in 0..batch {
                for j in 0..hidden {
                    let gate = |g: usize| {
                        let at = g * hidden + j;
                        gates[b * hidden * 4 + at]
                            + f64::from(x[(t * batch + b) * hidden * 4 + at])
                            + f64::from(bias[at])
                    };
                    let new = sigmoid(gate(1)) * c[b * hidden + j] + sigmoid(gate(0)) * gate(2).tanh();
                    c[b * hidden + j] = new;
                    h[b * hidden + j] = sigmoid(gate(3)) * new.tanh();
                }
            }
            hs.extend(&h);
            cs.extend(&c);
        }
        let lstm = |s: &Session| -> Result<Vec<States>> {
            let (x, w) = (tensor(s, &[steps, batch, hidden * 4], 1)?, tensor(s, &[hidden, hidden * 4], 2)?);
            let (h, c) = (x.narrow(2, 0, hidden)?.select_at(0, 0)?.mul(0.0)?, tensor(s, &[batch, hidden], 4)?);
            let bias = tensor(s, &[hidden * 4], 5)?;
            Tensor::recurrence(&[&h, &c], &[&x], |state, x| {
                let gates = state[0].matmul(&w)?.add(&x[0])?.add(&bias)?.chunk(4, -1)?;
                let (i, f, o) = (gates[0].sigmoid()?, gates[1].sigmoid()?, gates[3].sigmoid()?);
                let c = f.mul(&state[1])?.add(i.mul(gates[2].tanh()?)?)?;
                Ok(vec![o.mul(c.tanh()?)?, c])
            })
        };
        let n = batch * hidden;
        let last: Vec<f64> = hs.iter().chain(&c).copied().collect();
        // all values of one state, and the last ones of the other
        check("lstm", z, &last, |s| {
            let all = lstm(s)?;
            Tensor::cat(&[&all[0].after.reshape(&[steps * n])?, &all[1].last.reshape(&[n])?], 0)
        });
        check("cells of an lstm", z, &cs, |s| Ok(lstm(s)?[1].after.clone()));
    }
}

#[test]
fn reductions_of_reductions() {
    for z in SIZES {
        let Sizes { steps, batch, hidden } = z;
        let (x, v) = (numbers(steps * batch * hidden, 1), numbers(hidden * hidden, 2));
        let w = numbers(hidden * hidden, 3);
        let mut h: Vec<f64> = numbers(batch * hidden, 4).iter().map(|&v| f64::from(v)).collect();
        let mut want = Vec::new();
        for t in 0..steps {
            let own = &x[t * batch * hidden..(t + 1) * batch * hidden];
            let reset: Vec<f64> = product(&h, &v, hidden).iter().zip(&h).map(|(a, b)| sigmoid(*a) * b).collect();
            let new = product(&reset, &w, hidden);
            // each row of the batch less its mean
            let new: Vec<f64> = new.iter().zip(own).map(|(a, b)| (a + f64::from(*b)).tanh()).collect();
            let mean = |r: &[f64]| r.iter().sum::<f64>() / hidden as f64;
            h = new.chunks(hidden).flat_map(|r| r.iter().map(|v| v - mean(r)).collect::<Vec<f64>>()).collect();
            want.extend(&h);
        }
        check("gated", z, &want, |s| {
            let x = tensor(s, &[steps, batch, hidden], 1)?;
            let (v, w) = (tensor(s, &[hidden, hidden], 2)?, tensor(s, &[hidden, hidden], 3)?);
            let h = tensor(s, &[batch, hidden], 4)?;
            let all = Tensor::recurrence(&[&h], &[&x], |h, x| {
                let reset = h[0].matmul(&v)?.sigmoid()?.mul(&h[0])?;
                let new = reset.matmul(&w)?.add(&x[0])?.tanh()?;
                Ok(vec![new.sub(new.mean(&[-1], true)?)?])
            })?;
            Ok(all[0].after.clone())
        });
    }
}

#[test]
fn processors_loop_in_one_kernel() {
    let mut rt = Runtime::open("cpu", 1).unwrap();
    realize_tanh(&mut rt, Sizes { steps: 50, batch: 1, hidden: 16 });
    // the initial state, all the steps, and a copy of what is asked for
    assert_eq!(rt.counters().launches, 3);
}

#[test]
fn launches_of_a_recurrence_are_one_kernel() {
    let mut rt = Runtime::with_host(gradloom::open("cpu", 1).unwrap(), NativeHost::without_cache());
    realize_tanh(&mut rt, Sizes { steps: 9, batch: 8, hidden: 512 });
    // two steps a launch, between the initial state and the copy
    assert_eq!((rt.counters().launches, rt.counters().programs), (7, 3));
}

#[test]
fn gradients_are_those_of_the_steps() {
    let mut rt = Runtime::open("cpu", 1).unwrap();
    let s = rt.session().clone();
    let (x, w) = (tensor(&s, &[6, 2, 8], 1).unwrap(), tensor(&s, &[8, 8], 2).unwrap());
    let h = tensor(&s, &[2, 8], 3).unwrap();
    let step = |h: &Tensor, x: &Tensor| h.matmul(&w)?.add(x)?.tanh();
    let all = Tensor::recurrence(&[&h], &[&x], |h, x| Ok(vec![step(&h[0], &x[0])?])).unwrap();
    let mut state = h.clone();
    let mut list = Vec::new();
    for t in 0..6 {
        state = step(&state, &x.select_at(0, t).unwrap()).unwrap();
        list.push(state.clone());
    }
    let by_hand = Tensor::stack(&list.iter().collect::<Vec<_>>(), 0).unwrap();
    let mut grads = Vec::new();
    for (y, last) in [(all[0].after.clone(), all[0].last.clone()), (by_hand, state)] {
        let loss = y.mul(&y).unwrap().sum(&[], false).unwrap().add(last.sum(&[], false).unwrap()).unwrap();
        for g in loss.grad(&[&x, &w, &h]).unwrap() {
            grads.push(rt.to_vec::<f32>(&g).unwrap());
        }
    }
    for (a, b) in grads[..3].iter().zip(&grads[3..]) {
        assert!(a.iter().any(|v| *v != 0.0) && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5), "{a:?} {b:?}");
    }
}

#[test]
fn other_dtypes_have_the_evaluators_values() {
    for dtype in [DType::F64, DType::F16, DType::I32] {
        let build = |s: &Session| -> Result<Tensor> {
            let whole =
                |shape: &[usize], seed| tensor(s, shape, seed)?.mul(if dtype == DType::I32 { 9.0 } else { 1.0 });
            let (x, w) = (whole(&[5, 3, 20], 1)?.cast(dtype)?, whole(&[20, 20], 2)?.cast(dtype)?);
            let h = whole(&[3, 20], 3)?.cast(dtype)?;
            let all = Tensor::recurrence(&[&h], &[&x], |h, x| {
                let y = h[0].matmul(&w)?.add(&x[0])?;
                Ok(vec![if dtype == DType::I32 { y.clamp(-5, 5)?.cast(dtype)? } else { y.tanh()? }])
            })?;
            all[0].after.cast(DType::F64)
        };
        let values = |device: &str| {
            let mut rt = here::device(device, Runtime::open(device, 1))?;
            let y = build(rt.session()).unwrap_or_else(|e| panic!("{dtype}: {e}"));
            Some(rt.to_vec::<f64>(&y).unwrap_or_else(|e| panic!("{dtype} on {device}: {e}")))
        };
        let want = values("eval").unwrap();
        assert!(want.iter().any(|v| *v != 0.0));
        for device in ["cpu:guarded", "cpu:avx2", "c", "llvm"] {
            let Some(got) = values(device) else { continue };
            let most = if dtype == DType::F16 { 2e-3 } else { 1e-9 };
            let wrong = got.iter().zip(&want).position(|(a, b)| !((a - b).abs() <= most));
            assert!(wrong.is_none(), "{dtype} on {device}: {:?} {:?}", got[wrong.unwrap()], want[wrong.unwrap()]);
        }
    }
}

#[test]
fn networks_with_wider_weights_than_their_input_compute_in_the_wider_dtype() {
    let mut rt = Runtime::open("cpu", 1).unwrap();
    let s = rt.session().clone();
    let (lstm, gru) = (Lstm::new(&s, 6, 5, 1).unwrap(), Gru::new(&s, 6, 5, 1).unwrap());
    let x = tensor(&s, &[2, 4, 6], 1).unwrap().cast(DType::F16).unwrap();
    let wide = x.cast(DType::F32).unwrap();
    let of = |x: &Tensor| [lstm.forward(x, None).unwrap().0, gru.forward(x, None).unwrap().0];
    for (y, want) in of(&x).iter().zip(&of(&wide)) {
        assert_eq!(y.dtype(), DType::F32);
        assert_eq!(rt.to_vec::<f32>(y).unwrap(), rt.to_vec::<f32>(want).unwrap());
    }
}
