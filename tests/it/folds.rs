//! A number with itself or with zero, which a compiler of shaders may take for finite: what comes of infinities and NaN. And sums
//! that it may simplify.

use gradloom::{NativeHost, Runtime};
use gradloom_core::{DType, Result, Session, Tensor};
use gradloom_tests::here;

/// More than a vector, and an odd number of them.
const VALUES: [f32; 9] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, 1.5, -3e38, 1e-3, 4e37];

/// The text, the tensor, and the same arithmetic on the host.
type Case = (&'static str, Tensor, fn(f32) -> f32);

fn folds(x: &Tensor) -> Result<Vec<Case>> {
    let full = |v| Tensor::full(x.session(), v, DType::F32, &[VALUES.len()]);
    let (zero, one) = (full(0.0)?, full(1.0)?);
    Ok(vec![
        ("x - x", x.sub(x)?, |x| x - x),
        ("x + -x", x.add(&x.neg()?)?, |x| x - x),
        ("-x + x", x.neg()?.add(x)?, |x| x - x),
        ("x / x", x.div(x)?, |x| x / x),
        ("x * (1 / x)", x.mul(&one.div(x)?)?, |x| x * (1.0 / x)),
        ("x * 0", x.mul(0.0)?, |x| x * 0.0),
        ("x * -0", x.mul(-0.0)?, |x| x * -0.0),
        ("x * 0 / x", x.mul(0.0)?.div(x)?, |x| x * 0.0 / x),
        ("0 / x", zero.div(x)?, |x| 0.0 / x),
        ("-0 / x", full(-0.0)?.div(x)?, |x| -0.0 / x),
        ("x * 0 + 2", x.mul(0.0)?.add(2.0)?, |x| x * 0.0 + 2.0),
        ("x * x - x * x", x.mul(x)?.sub(&x.mul(x)?)?, |x| x * x - x * x),
        ("|x| - |x|", x.abs()?.sub(&x.abs()?)?, |x| x.abs() - x.abs()),
        ("sqrt(x) - sqrt(x)", x.sqrt()?.sub(&x.sqrt()?)?, |x| x.sqrt() - x.sqrt()),
        ("x + 0", x.add(0.0)?, |x| x + 0.0),
        ("x - 0", x.sub(0.0)?, |x| x - 0.0),
        ("min(x, x)", x.minimum(x)?, |x| x),
        ("x == x", x.eq(x)?.cast(DType::F32)?, |x| f32::from(x == x)),
        ("x < x", x.lt(x)?.cast(DType::F32)?, |_| 0.0),
        ("x <= x", x.le(x)?.cast(DType::F32)?, |x| f32::from(x <= x)),
    ])
}

fn sums(x: &Tensor) -> Result<Vec<Case>> {
    Ok(vec![
        ("(x + 1) - x", x.add(1.0)?.sub(x)?, |x| (x + 1.0) - x),
        ("x - (x + 1)", x.sub(&x.add(1.0)?)?, |x| x - (x + 1.0)),
        ("(x - 1) - x", x.sub(1.0)?.sub(x)?, |x| (x - 1.0) - x),
    ])
}

fn check(device: &str, make: fn(&Tensor) -> Result<Vec<Case>>) {
    let Some(opened) = here::device(device, gradloom::open(device, 1)) else { return };
    let mut rt = Runtime::with_host(opened, NativeHost::without_cache());
    let session: Session = rt.session().clone();
    let mut wrong = Vec::new();
    // elements alone, and in vectors
    for n in [1, VALUES.len()] {
        for values in VALUES.chunks(n) {
            let x = Tensor::new(&session, values, &[n]).and_then(|x| x.expand(&[VALUES.len()])).expect("an input");
            for (what, t, f) in make(&x).expect("graphs") {
                let got = rt.to_vec::<f32>(&t).expect("values");
                for (i, y) in got.into_iter().enumerate() {
                    let (x, want) = (values[i % n], f(values[i % n]));
                    // of a sum that is zero the sign is left open
                    let zero = y == 0.0 && !what.contains('+');
                    let same = y == want && (!zero || y.is_sign_negative() == want.is_sign_negative());
                    if !same && !(y.is_nan() && want.is_nan()) {
                        wrong.push(format!("{what} of {x} is {y}, not {want}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{device}: {wrong:#?}");
}

#[test]
fn a_number_with_itself_or_with_zero_keeps_infinity_and_nan() {
    for device in ["eval", "cpu", "llvm", "c", "wgpu", "wgpu:hardware"] {
        check(device, folds);
    }
}

/// In shaders a number may leave a sum that it is subtracted from.
#[test]
fn sums_are_not_simplified_outside_of_shaders() {
    for device in ["eval", "cpu", "llvm", "c"] {
        check(device, sums);
    }
}
