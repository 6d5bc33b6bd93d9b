//! Decompositions of small ops that a target may lack (trunc, remainders of floats, dot products of bytes) into other
//! ops.

use super::build::{Build, Format};
use super::remainder::fmod;
use crate::rewrite::rules;
use crate::target::Target;
use crate::uop::{Graph, Op, UOp};

rules! {
    /// Decomposes ops that a target may lack although it has their dtype.
    pub static OPS(g, u, t: Target) = {
        trunc: (Trunc x) if { t.caps.arithmetic.has(g.dtype(x)) && !t.has_op(Op::Trunc, g.dtype(x)) } => { trunc(g, x) };
        fmod:  (Imod x y) if { t.caps.arithmetic.has(g.dtype(x)) && !t.has_op(Op::Imod, g.dtype(x)) } => { fmod(g, x, y, t) };
        dot_bytes: (DotBytes a b c) if { !t.has_op(Op::DotBytes, g.dtype(c)) } => { dot_bytes(g, a, b, c) };
    }
}

/// Extracts each pair of bytes by shifts, and adds up their products.
fn dot_bytes(g: &mut Graph, a: UOp, b: UOp, c: UOp) -> UOp {
    let dt = g.dtype(c);
    let n = |g: &mut Graph, n: i64| g.int(n, dt);
    let mut sum = c;
    for i in 0..4 {
        let (low, mask) = (n(g, 8 * i), n(g, 255));
        let x = g.binary(Op::Shr, a, low);
        let x = g.binary(Op::And, x, mask);
        let (up, down) = (n(g, 24 - 8 * i), n(g, 24));
        let y = g.binary(Op::Shl, b, up);
        let y = g.binary(Op::Shr, y, down);
        let product = g.binary(Op::Mul, x, y);
        sum = g.binary(Op::Add, sum, product);
    }
    sum
}

/// Converts x to an integer and back, and restores its sign (of zeros too), if it is small enough for that to be exact.
/// Larger values are integers already and stay, as NaN does.
fn trunc(g: &mut Graph, x: UOp) -> Option<UOp> {
    let f = Format::of(g.dtype(x))?;
    let b = &mut Build { g, f, shader: true };
    let sign = -1i64 << (f.bits.bits() - 1);
    let all = b.bits(x);
    let magnitude = b.uand(all, !sign);
    let (sign, magnitude) = (b.uand(all, sign), b.float(magnitude));
    let limit = b.c((1u64 << f.mantissa) as f64);
    let small = b.less(magnitude, limit);
    let whole = b.g.cast(x, f.signed);
    let whole = b.g.cast(whole, f.float);
    let whole = b.bits(whole);
    let signed = b.g.binary(Op::Or, whole, sign);
    let signed = b.float(signed);
    Some(b.select(small, signed, x))
}
