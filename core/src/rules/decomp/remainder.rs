//! Remainders of floats, exact for f32 as C's `fmod`. They are computed by long division: each step finds some bits of
//! the quotient and subtracts their product with the divisor, which is exact.
//!
//! Quotients of f32 have up to 277 bits. Where the target has f64, 28 bits are found in each step, with a single
//! division for all steps (a reciprocal); elsewhere 8 bits at a time in integer arithmetic.

use super::build::{Build, F32, F64};
use super::transcendental::scale;
use crate::DType;
use crate::target::Target;
use crate::uop::{Graph, Op, UOp};

/// Bits of the quotient that a step in f64 finds: the estimate has one bit more, and its product with a divisor of 24
/// bits then fits the 53 bits of an f64 mantissa.
const STEP_BITS: i32 = 28;
/// Number of steps that suffice for the largest f32 divided by the smallest.
const STEPS: i32 = 10;
/// Bits of the quotient that a step in 32-bit integers finds: a remainder has 24 bits and is shifted left by so many.
const INTEGER_STEP_BITS: i64 = 8;
const INTEGER_STEPS: usize = 32;

/// `x - y * trunc(x / y)` without any rounding, with the sign of x.
pub(super) fn fmod(g: &mut Graph, x: UOp, y: UOp, t: &Target) -> Option<UOp> {
    if g.dtype(x) == DType::F64 {
        return Some(short_division(g, x, y));
    }
    if g.dtype(x) != DType::F32 {
        return None;
    }
    let shader = t.caps.reassociates;
    let sign = |g: &mut Graph, u: UOp, mask: i64| {
        let b = &mut Build { g, f: F32, shader };
        let bits = b.bits(u);
        b.uand(bits, mask)
    };
    let [sx, mx, my] = [(x, 1 << 31), (x, i64::from(i32::MAX)), (y, i64::from(i32::MAX))].map(|(u, m)| sign(g, u, m));
    let r = match t.caps.arithmetic.has(DType::F64) {
        true => fmod_via_f64(g, mx, my),
        false => fmod_via_integers(&mut Build { g, f: F32, shader }, mx, my),
    };
    let b = &mut Build { g, f: F32, shader };
    let bits = b.bits(r);
    let signed = b.g.binary(Op::Or, bits, sx);
    let signed = b.float(signed);
    // where |x| < |y| the remainder is x; this makes infinite divisors right
    let [ax, ay] = [mx, my].map(|u| b.float(u));
    let below = b.less(ax, ay);
    Some(b.select(below, x, signed))
}

/// The remainder of two magnitudes, given as the bits of f32, computed in f64.
fn fmod_via_f64(g: &mut Graph, x: UOp, y: UOp) -> UOp {
    let [x, y] = [x, y].map(|u| {
        let u = g.bitcast(u, DType::F32);
        g.cast(u, DType::F64)
    });
    let b = &mut Build { g, f: F64, shader: false };
    let inverse = b.g.unary(Op::Recip, y);
    let mut r = x;
    for step in (0..STEPS).rev() {
        let power = 2f64.powi(step * STEP_BITS);
        let (up, down) = (b.mulc(y, power), b.mulc(inverse, 1.0 / power));
        // the estimate may be one too large, and the remainder then a little below zero; later steps and the final
        // correction fix that
        let q = b.mul(r, down);
        let q = b.g.unary(Op::Trunc, q);
        let back = b.mul(q, up);
        r = b.sub(r, back);
    }
    let zero = b.c(0.0);
    let (negative, more) = (b.less(r, zero), b.add(r, y));
    r = b.select(negative, more, r);
    let (whole, less) = (b.less(r, y), b.sub(r, y));
    r = b.select(whole, r, less);
    // a NaN compares false with everything and is preserved
    b.g.cast(r, DType::F32)
}

/// The remainder of two magnitudes, given as the bits of f32, computed in integers.
fn fmod_via_integers(b: &mut Build<'_>, x: UOp, y: UOp) -> UOp {
    // split both into mantissa and exponent; subnormal numbers have the smallest exponent and no implicit bit
    let [(mx, ex), (my, ey)] = [x, y].map(|u| {
        let e = b.shr(u, 23);
        let m = b.uand(u, (1 << 23) - 1);
        let (one, zero) = (b.uc(1), b.uc(0));
        let normal = b.g.binary(Op::CmpNe, e, zero);
        let implicit = b.uc(1 << 23);
        let whole = b.g.binary(Op::Or, m, implicit);
        (b.select(normal, whole, m), b.select(normal, e, one))
    });
    let mut left = b.g.binary(Op::Sub, ex, ey);
    let mut r = b.g.binary(Op::Imod, mx, my);
    let most = b.uc(INTEGER_STEP_BITS);
    for _ in 0..INTEGER_STEPS {
        let by = b.g.binary(Op::Min, left, most);
        r = b.g.binary(Op::Shl, r, by);
        r = b.g.binary(Op::Imod, r, my);
        left = b.g.binary(Op::Sub, left, by);
    }
    // the remainder is r * 2^(ey - 150); `scale` takes the exponent plus twice the bias: ey - 150 + 254
    let exponent = b.uadd(ey, 104);
    let float = b.int_to_float(r);
    let r = scale(b, float, exponent);
    let (zero, end) = (b.uc(0), b.uc(0x7F80_0000));
    let no_divisor = b.g.binary(Op::CmpEq, y, zero);
    let no_number = b.g.binary(Op::CmpLt, end, y);
    let endless = b.less(x, end);
    let (nan, one) = (b.c(f64::NAN), b.g.bool(true));
    let bad = b.g.binary(Op::Or, no_divisor, no_number);
    let endless = b.g.binary(Op::Xor, endless, one);
    let bad = b.g.binary(Op::Or, bad, endless);
    b.select(bad, nan, r)
}

/// The remainder of f64, for which there is no wider dtype: `x - y * trunc(x / y)` with a correction by one divisor. It
/// is as accurate as the rounded product while the quotient fits the mantissa, and 0 for quotients far beyond that.
fn short_division(g: &mut Graph, x: UOp, y: UOp) -> UOp {
    let zero = g.float(0.0, g.dtype(x));
    let q = g.binary(Op::Div, x, y);
    let q = g.unary(Op::Trunc, q);
    let qy = g.binary(Op::Mul, q, y);
    let r = g.binary(Op::Sub, x, qy);
    let length = |g: &mut Graph, v: UOp| {
        let minus = g.unary(Op::Neg, v);
        g.binary(Op::Max, v, minus)
    };
    let (long, own) = (length(g, y), length(g, r));
    let [rn, xn] = [r, x].map(|v| g.binary(Op::CmpLt, v, zero));
    // if the quotient was rounded up to the next integer, it is one too large, and the remainder has the wrong sign
    let (turned, some) = (g.binary(Op::CmpNe, rn, xn), g.binary(Op::CmpNe, r, zero));
    let over = g.binary(Op::And, turned, some);
    let up = g.binary(Op::Add, r, long);
    let down = g.binary(Op::Sub, r, long);
    let moved = g.select(xn, down, up);
    let inside = g.select(over, moved, r);
    let two = g.binary(Op::Add, long, long);
    let lost = g.binary(Op::CmpLt, two, own);
    let r = g.select(lost, zero, inside);
    // where |x| < |y| the remainder is exactly x, also for infinite y
    let small = g.binary(Op::CmpEq, q, zero);
    g.select(small, x, r)
}
