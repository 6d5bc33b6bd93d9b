//! Zeros with a sign, infinities and NaN through functions that are made of others, as C99 and numpy have them.

use gradloom::tensor::Tensor;
use gradloom::{Result, Runtime};
use gradloom_core::DType;
use gradloom_tests::here;

/// Shader languages promise neither infinities nor NaN.
const DEVICES: [&str; 4] = ["eval", "cpu", "c", "llvm"];

fn on_devices(f: impl Fn(&str, &mut Runtime)) {
    for device in DEVICES {
        if let Some(mut rt) = here::device(device, Runtime::open(device, 1)) {
            f(device, &mut rt);
        }
    }
}

fn run(rt: &mut Runtime, x: &[f32], f: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<f32> {
    let s = rt.session().clone();
    let x = Tensor::new(&s, x, &[x.len()]).expect("an input");
    let y = f(&x).and_then(|y| y.cast(DType::F32)).expect("a graph");
    rt.to_vec(&y).expect("a result")
}

/// Equal to a relative difference, in the sign of zeros too.
fn assert_near(got: f32, want: f32, limit: f32, what: &str) {
    let same = got.is_nan() && want.is_nan() || got == want && got.is_sign_negative() == want.is_sign_negative();
    let near = want != 0.0 && (got - want).abs() <= limit * want.abs() + 3e-45;
    assert!(same || near, "{what}: {got:?}, {want:?} wanted");
}

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

#[test]
fn powers_of_special_values() {
    let bases = [-INF, -3e38, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, INF, NAN];
    let exponents = [-INF, -1e10, -3.0, -2.0, -1.5, -1.0, -0.0, 0.0, 0.25, 1.0, 2.0, 3.0, 7.5, 1e10, INF, NAN];
    // numpy's, where a special value goes in or comes out
    let known = [
        (-0.0, -1.0, -INF),
        (0.0, -1.0, INF),
        (-0.0, -2.0, INF),
        (-0.0, 3.0, -0.0),
        (-0.0, 2.0, 0.0),
        (-0.0, 0.25, 0.0),
        (-INF, 3.0, -INF),
        (-INF, -3.0, -0.0),
        (-INF, 2.0, INF),
        (-INF, 7.5, INF),
        (-INF, -1.5, 0.0),
        (-1.0, INF, 1.0),
        (-1.0, -INF, 1.0),
        (1.0, NAN, 1.0),
        (NAN, 0.0, 1.0),
        (NAN, -0.0, 1.0),
        (-3.0, 0.25, NAN),
        (0.5, INF, 0.0),
        (-0.5, -INF, INF),
        (3.0, INF, INF),
        (INF, -1.0, 0.0),
        (-INF, NAN, NAN),
        (-1.0, NAN, NAN),
        (-3.0, 1e10, INF),
    ];
    let grid: Vec<(f32, f32, f32)> =
        bases.iter().flat_map(|&x| exponents.iter().map(move |&y| (x, y, x.powf(y)))).chain(known).collect();
    let ys: Vec<f32> = grid.iter().map(|p| p.1).collect();
    let xs: Vec<f32> = grid.iter().map(|p| p.0).collect();
    on_devices(|device, rt| {
        let s = rt.session().clone();
        let y = Tensor::new(&s, &ys, &[ys.len()]).expect("exponents");
        let got = run(rt, &xs, |x| x.pow(&y));
        for ((x, y, want), got) in grid.iter().zip(got) {
            assert_near(got, *want, 1e-5, &format!("{x:?} ^ {y:?} on {device}"));
        }
    });
}

/// `y x^(y-1)` and `x^y ln x`, also where the power is 1.
#[test]
fn slopes_of_powers_that_are_one() {
    on_devices(|device, rt| {
        let s = rt.session().clone();
        let x = Tensor::new(&s, &[1f32, 1.0, 3.0, 0.0, 0.0, -2.0, 0.0], &[7]).expect("bases");
        let y = Tensor::new(&s, &[2f32, -3.0, 0.0, 2.0, 1.0, 3.0, 0.0], &[7]).expect("exponents");
        let sum = x.pow(&y).and_then(|p| p.sum(&[], false)).expect("a graph");
        let slopes = sum.grad(&[&x, &y]).expect("gradients");
        let wanted = [[2.0, -3.0, 0.0, 0.0, 1.0, 12.0, 0.0], [0.0, 0.0, 3f32.ln(), 0.0, 0.0, -8.0 * 2f32.ln(), 0.0]];
        for (t, want) in slopes.iter().zip(wanted) {
            for (g, w) in rt.to_vec::<f32>(t).expect("a result").into_iter().zip(want) {
                assert!((g - w).abs() < 1e-5, "{g}, {w} wanted on {device}");
            }
        }
        for (n, want) in [(1.5, [1.5, 1.5, 1.5 * 3f32.sqrt(), 0.0]), (0.25, [0.25, 0.25, 0.25 * 3f32.powf(-0.75), INF])]
        {
            let sum = x.narrow(0, 0, 4).and_then(|x| x.pow(n)?.sum(&[], false)).expect("a graph");
            let slopes = sum.grad(&[&x]).expect("a gradient");
            for (g, w) in rt.to_vec::<f32>(&slopes[0]).expect("a result").into_iter().zip(want) {
                assert_near(g, w, 1e-6, &format!("slope of a power {n} on {device}"));
            }
        }
    });
}

#[test]
fn absolute_values_of_zeros_are_positive() {
    let x: Vec<f32> = [0.0, -0.0, 1.5, -1.5, INF, -INF, NAN].iter().copied().cycle().take(35).collect();
    on_devices(|device, rt| {
        for dt in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for (what, got) in [
                ("|x|", run(rt, &x, |x| x.cast(dt)?.contiguous().abs())),
                ("|-x|", run(rt, &x, |x| x.cast(dt)?.contiguous().neg()?.abs())),
            ] {
                for (x, got) in x.iter().zip(got) {
                    assert_near(got, x.abs(), 0.0, &format!("{what} of {x:?} as {dt} on {device}"));
                }
            }
        }
    });
}

#[test]
fn hyperbolic_functions_to_the_end_of_their_range() {
    let x = [0.0f32, -0.0, 0.5, 1.5, -20.0, 80.0, 88.7, 88.8, 89.4, -89.4, 89.5, -89.5, -INF, INF, NAN];
    on_devices(|device, rt| {
        let (sinh, cosh) = (run(rt, &x, Tensor::sinh), run(rt, &x, Tensor::cosh));
        for ((x, sinh), cosh) in x.iter().zip(sinh).zip(cosh) {
            let wide = f64::from(*x);
            assert_near(sinh, wide.sinh() as f32, 1e-6, &format!("sinh {x} on {device}"));
            assert_near(cosh, wide.cosh() as f32, 1e-6, &format!("cosh {x} on {device}"));
        }
    });
}

/// u64 on both sides of 2^63, where the order of its bits as i64 turns: read from memory, beside a constant and beside memory.
#[test]
fn u64_compares_as_unsigned() {
    const VALUES: [u64; 6] = [0, 5, i64::MAX as u64, 1 << 63, u64::MAX - 2, u64::MAX];
    for device in ["eval", "cpu:avx2", "cpu", "llvm", "c"] {
        let Some(mut rt) = gradloom_tests::here::device(device, Runtime::open(device, 1)) else { continue };
        let s = rt.session().clone();
        let x = Tensor::new(&s, &VALUES, &[VALUES.len()]).expect("a tensor");
        for b in VALUES {
            // the same bits: a constant is given as i64
            let constant = Tensor::full(&s, b as i64, DType::U64, &[]).expect("a constant");
            let stored = Tensor::new(&s, &[b], &[1]).expect("a tensor");
            for (i, &a) in VALUES.iter().enumerate() {
                let x = x.narrow(0, i, 1).expect("an element");
                for y in [&constant, &stored] {
                    let all = [x.lt(y), x.le(y), x.gt(y), x.ge(y), x.eq(y), x.ne(y), y.lt(&x)];
                    let all: Vec<Tensor> = all.into_iter().map(|t| t.expect("a comparison")).collect();
                    let all = Tensor::cat(&all.iter().collect::<Vec<_>>(), 0).expect("a list");
                    let got = rt.read(&all).expect("values").to_f64();
                    let want = [a < b, a <= b, a > b, a >= b, a == b, a != b, b < a].map(|w| f64::from(u8::from(w)));
                    assert_eq!(got, want, "{a} beside {b} on {device}: <, <=, >, >=, ==, !=, reversed <");
                }
            }
        }
    }
}
