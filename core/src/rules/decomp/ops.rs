//! Decompositions of small ops that a target may lack (trunc, remainders of floats, products and lookups of bytes) into
//! other ops.

use super::build::{Build, Format};
use super::remainder::fmod;
use crate::DType;
use crate::rewrite::rules;
use crate::target::{HAS_DOT_BYTES, Target};
use crate::uop::{Graph, Op, UOp};
use smallvec::SmallVec;

rules! {
    /// Decomposes ops that a target may lack although it has their dtype.
    pub static OPS(g, u, t: Target) = {
        trunc: (Trunc x) if { t.caps.arithmetic.has(g.dtype(x)) && !t.has_op(Op::Trunc, g.dtype(x)) } => { trunc(g, x) };
        fmod:  (Imod x y) if { t.caps.arithmetic.has(g.dtype(x)) && !t.has_op(Op::Imod, g.dtype(x)) } => { fmod(g, x, y, t) };
        dot_bytes: (DotBytes a b c) if { HAS_DOT_BYTES && !t.has_op(Op::DotBytes, g.dtype(c)) } => { dot_bytes(g, a, b, c) };
        dot_pairs: (DotPairs a b c) if { HAS_DOT_BYTES && !t.has_op(Op::DotPairs, g.dtype(c)) } => { dot_pairs(g, a, b, c) };
        lookup_bytes: (LookupBytes) if { !t.has_op(Op::LookupBytes, g.dtype(u)) || has_computed_table(g, u) } => { lookup_bytes(g, u) };
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

/// Extracts each pair of halves by shifts, and adds up their products.
fn dot_pairs(g: &mut Graph, a: UOp, b: UOp, c: UOp) -> UOp {
    let sixteen = g.int(16, g.dtype(c));
    let mut half = |x: UOp, at: usize| {
        let x = if at == 0 { g.binary(Op::Shl, x, sixteen) } else { x };
        g.binary(Op::Shr, x, sixteen)
    };
    let halves = [(half(a, 0), half(b, 0)), (half(a, 1), half(b, 1))];
    halves.into_iter().fold(c, |sum, (x, y)| {
        let product = g.binary(Op::Mul, x, y);
        g.binary(Op::Add, sum, product)
    })
}

/// True for a lookup in a table that is not constant, for which no target has an instruction.
pub(super) fn has_computed_table(g: &Graph, u: UOp) -> bool {
    g.op(u) == Op::LookupBytes && g.lookup_table(u).is_none()
}

/// Looks the bytes up one by one.
fn lookup_bytes(g: &mut Graph, u: UOp) -> UOp {
    let index = g.src_at(u, 0);
    // an index below 16 is one byte; the upper ones are zero, which choose the first entry
    let (least, most) = g.bounds(index);
    let is_one_byte = least >= 0 && most < 16;
    let mut word = lookup_byte(g, u, 0);
    if is_one_byte && let Some(table) = g.lookup_table(u) {
        let rest = g.int(i64::from(i32::from_le_bytes([0, table[0], table[0], table[0]])), DType::I32);
        return g.binary(Op::Or, word, rest);
    }
    for at in 1..4 {
        let up = g.int(i64::from(8 * at), DType::I32);
        let byte = lookup_byte(g, u, at);
        let byte = g.binary(Op::Shl, byte, up);
        word = g.binary(Op::Or, word, byte);
    }
    word
}

/// Byte `at` of a lookup, as an i32 from 0 to 255: bits 2 and 3 of the index choose a word of the table, bits 0 and 1 a
/// byte of it.
fn lookup_byte(g: &mut Graph, u: UOp, at: u32) -> UOp {
    let src: SmallVec<[UOp; 5]> = SmallVec::from_slice(&g.srcs(u));
    let n = |g: &mut Graph, n: i64| g.int(n, DType::I32);
    let bit = |g: &mut Graph, i: u32| {
        let (mask, zero) = (n(g, 1 << (8 * at + i)), n(g, 0));
        let bit = g.binary(Op::And, src[0], mask);
        g.binary(Op::CmpNe, bit, zero)
    };
    let (second, upper) = (bit(g, 2), bit(g, 3));
    let low = g.select(second, src[2], src[1]);
    let high = g.select(second, src[4], src[3]);
    let word = g.select(upper, high, low);
    let (three, mask) = (n(g, 3), n(g, 255));
    let down = n(g, i64::from(8 * at));
    let byte = g.binary(Op::Shr, src[0], down);
    let byte = g.binary(Op::And, byte, three);
    let bits = g.binary(Op::Shl, byte, three);
    let word = g.binary(Op::Shr, word, bits);
    g.binary(Op::And, word, mask)
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
