//! Vectors of 64-bit values: elementwise work gives the evaluator's bits at every length around the widths of vectors, sums
//! and products of matrices its numbers.

use gradloom::tensor::Tensor;
use gradloom::{Result, Runtime, Session};
use gradloom_core::DType::{self, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use gradloom_core::uop::random::Rng;
use gradloom_tests::here;

/// The evaluator first.
const DEVICES: [&str; 5] = ["eval", "cpu", "cpu:avx2", "llvm", "c"];

/// Lengths that fill no vector, one, several, and leave every remainder of four and of eight.
const LENGTHS: [usize; 11] = [1, 2, 3, 4, 7, 8, 9, 13, 16, 30, 131];

/// Whole numbers, many of them at the edges of narrower types; as floats halves and zeros of both signs too.
fn numbers(s: &Session, rng: &mut Rng, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    const EDGES: [i64; 12] =
        [0, 1, -1, 127, -128, 65_535, -32_768, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 40, -(1 << 52)];
    let n: usize = shape.iter().product();
    let whole = |rng: &mut Rng| match rng.below(3) {
        0 => rng.pick(&EDGES),
        1 => rng.below(2_000) as i64 - 1_000,
        _ => (rng.below(1 << 30) as i64 - (1 << 29)) << rng.below(20),
    };
    let all: Vec<i64> = (0..n).map(|_| whole(rng)).collect();
    if dtype == F64 {
        let floats: Vec<f64> =
            all.iter().map(|&x| if x == 0 { rng.pick(&[0.0, -0.0]) } else { x as f64 * 0.5 }).collect();
        return Tensor::new(s, &floats, shape);
    }
    Tensor::new(s, &all, shape)?.cast(dtype)
}

/// Numbers between -4 and 4, of which no sum or product is far off.
fn small(s: &Session, rng: &mut Rng, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    if dtype == F64 {
        let all: Vec<f64> = (0..n).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 17) - 4.0).collect();
        return Tensor::new(s, &all, shape);
    }
    let all: Vec<i64> = (0..n).map(|_| rng.below(9) as i64 - 4).collect();
    Tensor::new(s, &all, shape)?.cast(dtype)
}

/// Work on vectors of `n` numbers whose results are the same bits everywhere.
fn elementwise(s: &Session, dtype: DType, n: usize) -> Result<Vec<Tensor>> {
    let rng = &mut Rng(n as u64 * 3 + 1);
    let (a, b) = (numbers(s, rng, dtype, &[n])?, numbers(s, rng, dtype, &[n])?);
    // a column beside a row: lanes of which one operand has one value
    let column = numbers(s, rng, dtype, &[3, 1])?;
    let some = a.lt(&b)?;
    let mut out = vec![
        a.add(&b)?,
        a.sub(&b)?,
        a.mul(&b)?,
        a.mul(2)?.add(&column)?,
        // which of two zeros is the larger is unspecified (docs/numerics.md), so no two meet
        a.eq(0)?.select(1, &a)?.maximum(&b)?,
        a.eq(0)?.select(1, &a)?.minimum(&b)?,
        some.select(&a, &b)?,
        a.le(&b)?,
        a.eq(&b)?,
        a.ne(0)?,
        // a mask made by narrow values chooses wide ones, and one made by wide values narrow ones
        a.cast(I32)?.lt(&b.cast(I32)?)?.select(&a, 0)?,
        some.select(a.cast(I32)?, b.cast(I32)?)?,
        Tensor::cat(&[&a, &b, &a], 0)?,
        a.flip(&[0])?,
        a.pad_zeros(&[(3, 2)])?.mul(3)?,
    ];
    if dtype == F64 {
        out.extend([a.div(&b)?, a.abs()?.sqrt()?, a.neg()?, a.reciprocal()?, a.floor()?, a.trunc()?, a.round()?]);
        out.extend([a.bitcast(I64)?.bit_and(255)?, a.cast(F32)?, a.cast(F32)?.cast(F64)?.add(&b)?, a.cast(F16)?]);
    } else {
        let nonzero = b.eq(0)?.select(7, &b)?;
        out.extend([a.floor_div(&nonzero)?, a.modulo(&nonzero)?, a.bit_and(&b)?, a.bit_or(&b)?, a.bit_xor(&b)?]);
        out.extend([a.bit_not()?, a.shift_left(3)?, a.shift_right(5)?, a.shift_right(33)?]);
        for to in [F64, F32, I8, U8, I16, U16, I32, U32, Bool, if dtype == I64 { U64 } else { I64 }] {
            out.push(a.cast(to)?);
        }
        // what is computed in narrow lanes, made wide and added
        for from in [I8, U8, I16, U16, I32, U32, Bool] {
            out.push(b.cast(from)?.cast(dtype)?.add(&a)?);
        }
        out.extend([a.sum(&[0], false)?, a.max(&[0], false)?, a.min(&[0], false)?, a.cumsum(0)?, a.argmax(0, false)?]);
    }
    Ok(out)
}

/// Work whose sums may be in any order.
fn sums(s: &Session, dtype: DType, n: usize) -> Result<Vec<Tensor>> {
    let rng = &mut Rng(n as u64 * 5 + 2);
    let x = small(s, rng, dtype, &[6, n])?;
    let w = small(s, rng, dtype, &[n, 19])?;
    let mut out = vec![
        x.matmul(&w)?,
        x.permute(&[1, 0])?.matmul(&small(s, rng, dtype, &[6, n])?)?,
        x.sum(&[0], false)?,
        x.sum(&[1], false)?,
        x.sum(&[0, 1], false)?,
        x.max(&[0], false)?,
        x.min(&[1], false)?,
        x.cumsum(1)?,
        x.mul(&x)?.sum(&[1], true)?.add(&x)?,
    ];
    if dtype == F64 {
        out.extend([x.softmax(1)?, x.softmax(0)?, x.exp()?, x.abs()?.add(1.0)?.log()?, x.tanh()?, x.sin()?, x.gelu()?]);
        out.extend([x.var(&[1], 0, false)?, x.mean(&[0], false)?, x.sigmoid()?.prod(&[0], false)?]);
        // rounded to narrow values between two products
        out.push(x.matmul(&w)?.cast(F32)?.cast(F64)?.matmul(&small(s, rng, dtype, &[19, 5])?)?);
    }
    Ok(out)
}

/// The values of a device as bits: whole numbers as they are, floats as f64.
fn values(rt: &mut Runtime, t: &Tensor) -> Result<Vec<u64>> {
    Ok(if t.dtype().is_float() {
        rt.to_vec::<f64>(&t.cast(F64)?)?.into_iter().map(f64::to_bits).collect()
    } else {
        rt.to_vec::<i64>(&t.cast(I64)?)?.into_iter().map(|x| x as u64).collect()
    })
}

type Make = fn(&Session, DType, usize) -> Result<Vec<Tensor>>;

/// Every tensor that `make` gives, on all devices; `same` judges a value beside the evaluator's.
fn check(dtype: DType, make: Make, same: impl Fn(bool, u64, u64) -> bool) {
    let run = |device: &str, n: usize| -> Option<Vec<(DType, Vec<u64>)>> {
        let mut rt = here::device(device, Runtime::open(device, 1))?;
        let mut go = || {
            let out = make(&rt.session().clone(), dtype, n)?;
            // all at once: results that share operands become one kernel where they can
            rt.realize(&out.iter().collect::<Vec<_>>())?;
            out.iter().map(|t| Ok((t.dtype(), values(&mut rt, t)?))).collect::<Result<Vec<_>>>()
        };
        Some({ go }().unwrap_or_else(|e| panic!("{device}, {dtype}, {n}: {e}")))
    };
    for n in LENGTHS {
        let want = run(DEVICES[0], n).expect("the evaluator");
        // compilers that are programs of their own take long
        for device in &DEVICES[1..if n > 99 { 5 } else { 3 }] {
            let Some(got) = run(device, n) else { continue };
            for (at, ((dt, g), (_, w))) in got.iter().zip(&want).enumerate() {
                let off = g.iter().zip(w).position(|(&a, &b)| !same(dt.is_float(), a, b));
                assert!(
                    g.len() == w.len() && off.is_none(),
                    "{device}, {dtype}, {n} numbers, result {at}: element {off:?}"
                );
            }
        }
    }
}

#[test]
fn elementwise_work_on_wide_values_has_the_evaluators_bits() {
    // the sign and the payload of NaN are unspecified
    let same =
        |float: bool, a: u64, b: u64| a == b || float && f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan();
    for dtype in [F64, I64, U64] {
        check(dtype, elementwise, same);
    }
}

#[test]
fn sums_and_products_of_wide_values_have_the_evaluators_numbers() {
    let close = |float: bool, a: u64, b: u64| {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        a == b || float && (x - y).abs() <= 1e-12 * y.abs().max(1.0)
    };
    for dtype in [F64, I64] {
        check(dtype, sums, close);
    }
}
