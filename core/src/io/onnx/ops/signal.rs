//! Fourier transforms as matrix products with constant matrices, and window functions.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, float_op, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use std::f64::consts::PI;

pub(super) static OPS: &[OpDef] = &[
    float_op("DFT", 1, 6, dft),
    float_op("STFT", 5, 10, stft),
    op("HannWindow", 1, |o| window(o, [0.5, -0.5, 0.0])),
    op("HammingWindow", 1, |o| window(o, [25.0 / 46.0, -21.0 / 46.0, 0.0])),
    op("BlackmanWindow", 1, |o| window(o, [0.42, -0.5, 0.08])),
];

/// The longest transform, in samples; the matrix of a longer one would be too large.
const MAX_TRANSFORM_LEN: usize = 1 << 12;

/// `c0 + c1 cos(2 pi n / N) + c2 cos(4 pi n / N)`
fn window(o: &mut Op<'_, '_>, c: [f64; 3]) -> Result<Vec<Value>> {
    let n = o.size(o.known_ints(0)?.first().copied().unwrap_or(-1))?;
    let dtype = o.dtype_attr("output_datatype", DType::F32)?;
    let period = if o.flag("periodic", true)? { n } else { n.saturating_sub(1) }.max(1) as f64;
    let at = |i: usize| {
        let x = 2.0 * PI * i as f64 / period;
        Scalar::from_f64(c[0] + c[1] * x.cos() + c[2] * (2.0 * x).cos(), dtype)
    };
    one(o.cx.table(dtype, &[n], at))
}

/// The matrix of `weight(i) * f(2 pi i j / n)` for rows i and columns j.
fn matrix(
    cx: &Cx<'_>,
    dtype: DType,
    (rows, columns, n): (usize, usize, usize),
    f: fn(f64) -> f64,
    weight: &dyn Fn(usize) -> f64,
) -> Result<Value> {
    let at = |i: usize, j: usize| Scalar::from_f64(weight(i) * f(2.0 * PI * (i * j % n) as f64 / n as f64), dtype);
    cx.table(dtype, &[rows, columns], |k| at(k / columns.max(1), k % columns.max(1)))
}

/// The parameters of a transform.
struct Plan {
    n: usize,
    inverse: bool,
    onesided: bool,
}

/// Transforms `[.., time, 1 or 2]` to `[.., bins, 2]`, or back. The last axis holds the real and imaginary parts.
fn transform(o: &Op<'_, '_>, x: &Value, p: &Plan) -> Result<Value> {
    let (cx, rank) = (&o.cx, x.rank());
    let (parts, lead) = (x.dim(rank - 1)?, x.shape_in(..rank - 2)?);
    if !(1..=MAX_TRANSFORM_LEN).contains(&p.n) || !(1..=2).contains(&parts) {
        return o.unsupported(format!("a length of {} with {parts} parts", p.n));
    }
    let half = p.n / 2 + 1;
    let rows = if p.inverse && p.onesided { half } else { p.n };
    let have = x.dim(rank - 2)?.min(rows);
    let part = |i: usize| {
        cx.reshape(&cx.narrow(&cx.narrow(x, rank - 1, i, 1)?, rank - 2, 0, have)?, &[lead, &[have]].concat())
    };
    let re = part(0)?;
    let im = if parts == 2 { Some(part(1)?) } else { None };
    let columns = if p.onesided && !p.inverse { half } else { p.n };
    // In the one-sided spectrum of a real signal each inner bin also stands for its mirrored conjugate.
    let weight = |i: usize| match p.inverse {
        false => 1.0,
        true if p.onesided && i != 0 && 2 * i != p.n => 2.0 / p.n as f64,
        true => 1.0 / p.n as f64,
    };
    let table = |f: fn(f64) -> f64| matrix(cx, x.dtype(), (have, columns, p.n), f, &weight);
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    let column = |v: Value| cx.reshape(&v, &[lead, &[columns, 1]].concat());
    // The forward transform has the exponent -i, the inverse one +i.
    let sign = if p.inverse { -1.0 } else { 1.0 };
    let mut real = cx.matmul(&re, &cos)?;
    let mut imag = cx.with(Cx::mul, &cx.matmul(&re, &sin)?, -sign)?;
    if let Some(im) = &im {
        real = cx.add(&real, &cx.with(Cx::mul, &cx.matmul(im, &sin)?, sign)?)?;
        imag = cx.add(&imag, &cx.matmul(im, &cos)?)?;
    }
    if p.inverse && p.onesided {
        return column(real);
    }
    cx.concat(&[column(real)?, column(imag)?], rank - 1)
}

fn dft(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    o.want_rank(&x, 2)?;
    let axis = match (o.int_opt("axis")?, o.known_ints_opt(2)?) {
        (Some(a), _) => a,
        (None, Some(a)) => a.first().copied().unwrap_or(-2),
        (None, None) if o.opset < 20 => 1,
        (None, None) => -2,
    };
    let axis = o.axis(axis, x.rank())?;
    let last = x.nth_last(1)?;
    if axis == last {
        return o.fail("the axis of the parts can not be transformed");
    }
    let (inverse, onesided) = (o.flag("inverse", false)?, o.flag("onesided", false)?);
    let own = x.dim(axis)?;
    let n = match o.known_ints_opt(1)?.and_then(|n| n.first().copied()) {
        Some(n) => o.size(n)?,
        None if inverse && onesided => 2 * own.saturating_sub(1),
        None => own,
    };
    let moved = o.cx.swap(&x, axis, last - 1)?;
    let y = transform(o, &moved, &Plan { n, inverse, onesided })?;
    one(o.cx.swap(&y, axis, last - 1))
}

fn stft(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, step) = (o.arg(0)?, o.size(o.known_ints(1)?.first().copied().unwrap_or(0))?);
    let [b, len, parts] = *x.shape() else { return o.fail(format!("a signal of {:?}", x.shape())) };
    let n = match (o.known_ints_opt(3)?, o.opt(2)) {
        (Some(n), _) => o.size(n.first().copied().unwrap_or(0))?,
        (None, Some(w)) => w.len(),
        (None, None) => len,
    };
    if step == 0 || n == 0 || n > len || o.opt(2).is_some_and(|w| w.len() != n) {
        return o.fail(format!("frames of {n} every {step} of {len}"));
    }
    let frames = (len - n) / step + 1;
    let first = o.cx.with(Cx::mul, &o.cx.reshape(&o.cx.count_up(frames)?, &[frames, 1])?, step as f64)?;
    let index = o.cx.add(&first, &o.cx.count_up(n)?)?;
    let mut y = o.cx.gather(&x, &index, 1)?;
    if let Some(w) = o.opt(2) {
        y = o.cx.mul(&y, &o.cx.reshape(&w, &[1, 1, n, 1])?)?;
    }
    debug_assert_eq!(y.shape(), [b, frames, n, parts]);
    let onesided = o.flag("onesided", true)?;
    one(transform(o, &y, &Plan { n, inverse: false, onesided }))
}
