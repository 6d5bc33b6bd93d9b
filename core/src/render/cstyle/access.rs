//! Analysis of addresses: the pointers that a program uses, arrays that are accessed in whole vectors only, and known
//! divisors of an offset.

use crate::DType;
use crate::codegen::{Program, TileAxis};
use crate::uop::{Arg, Graph, Op, UOp};

/// The Param and Scratch nodes that the program's addresses are based on.
pub(in crate::render) fn pointers(p: &Program) -> Vec<UOp> {
    let mut found: Vec<UOp> = p.g.reachable(&p.order);
    found.retain(|&u| matches!(p.g.op(u), Op::Param | Op::Scratch));
    found
}

/// The loads and stores of an array, whose Param or Scratch is `base`.
pub(in crate::render) fn accesses(p: &Program, base: UOp) -> impl Iterator<Item = UOp> {
    p.order.iter().copied().filter(move |&u| matches!(p.g.op(u), Op::Load | Op::Store) && p.base(u) == base)
}

/// How many elements one array element of a buffer or local array may hold: the lane count if every access is of whole
/// aligned vectors, along the lanes or, for loads, along a register axis; otherwise 1. `fits` says which vectors the
/// language has.
pub(in crate::render) fn vector_width(
    p: &Program,
    base: UOp,
    dt: DType,
    len: usize,
    fits: &dyn Fn(DType, usize) -> bool,
) -> usize {
    let lanes = p.tiles.iter().filter(|t| t.lane).map(|t| t.len).next();
    let n = lanes.unwrap_or(4);
    if !fits(dt, n) || !len.is_multiple_of(n) {
        return 1;
    }
    // asynchronous copies to the array have widths of their own
    let copies = |u: UOp| p.g.op(u) == Op::Store && *p.g.arg(u) != Arg::None;
    let mut all = accesses(p, base).filter(|&u| !copies(u)).peekable();
    if all.peek().is_some() && all.all(|u| is_whole(p, u, n)) { n } else { 1 }
}

/// Is an Index a multiple of `n` elements: its offset, and its strides along all axes but those in `but`?
pub(in crate::render) fn aligned(p: &Program, index: UOp, but: &[u8], n: usize) -> bool {
    let others = match p.g.arg(index) {
        Arg::Strides(s) => s.iter().filter(|s| !but.contains(&s.0)).all(|s| s.1 % n as i64 == 0),
        _ => true,
    };
    others && divisible(&p.g, p.g.src_at(index, 1), n as i64)
}

/// Does an access read or write whole aligned vectors of `n` elements?
pub(in crate::render) fn is_whole(p: &Program, u: UOp, n: usize) -> bool {
    let index = p.g.src_at(u, 0);
    let gate_of = |id: u8| p.g.src(u).get(2).is_some_and(|&c| p.g.ranges(c) >> id & 1 == 1);
    let whole = |axis: &TileAxis| {
        // a load along lanes may have one gate per lane
        let one_gate = axis.lane && p.g.op(u) == Op::Load || !gate_of(axis.id);
        let one_offset = p.g.ranges(p.g.src_at(index, 1)) >> axis.id & 1 == 0;
        p.stride(index, axis.id) == 1 && aligned(p, index, &[axis.id], n) && one_gate && one_offset
    };
    match p.tiles.iter().find(|t| t.lane && p.g.ranges(index) >> t.id & 1 == 1) {
        Some(lane) => lane.len == n && whole(lane),
        None => p.g.op(u) == Op::Load && p.quad_axis(u, n).is_some_and(|a| whole(&a)),
    }
}

/// Is the integer `u` provably a multiple of `n`, a power of two? Wrapping at 32 or 64 bits preserves such multiples.
pub(in crate::render) fn divisible(g: &Graph, u: UOp, n: i64) -> bool {
    n <= 1 || factor(g, u, 0) % n as u64 == 0
}

/// A known divisor of `u`; 0 stands for "every number" (the value is 0).
fn factor(g: &Graph, u: UOp, depth: usize) -> u64 {
    let of = |i: usize| factor(g, g.src_at(u, i), depth + 1);
    if depth > 64 {
        return 1;
    }
    if let Some(c) = g.const_int(u) {
        return c.unsigned_abs();
    }
    match g.op(u) {
        Op::Add | Op::Sub | Op::Max | Op::Min => gcd(of(0), of(1)),
        Op::Where => gcd(of(1), of(2)),
        Op::Mul => low_bits(of(0)).saturating_mul(low_bits(of(1))).min(1 << 40),
        Op::MulAdd => gcd(low_bits(of(0)).saturating_mul(low_bits(of(1))).min(1 << 40), of(2)),
        Op::Neg | Op::After => of(0),
        Op::Cast if !g.dtype(g.src_at(u, 0)).is_float() && g.dtype(u).bits() >= 32 => of(0),
        Op::Shl => match g.const_int(g.src_at(u, 1)) {
            Some(s) if (0..32).contains(&s) => low_bits(of(0)).saturating_mul(1 << s).min(1 << 40),
            _ => 1,
        },
        Op::And => match g.const_int(g.src_at(u, 1)) {
            Some(m) if m != 0 => 1 << m.trailing_zeros().min(40),
            _ => 1,
        },
        Op::Imod => gcd(of(0), of(1)),
        Op::Idiv => match g.const_int(g.src_at(u, 1)) {
            Some(c) if c > 0 && of(0) % c as u64 == 0 => of(0) / c as u64,
            _ => 1,
        },
        _ => 1,
    }
}

/// The largest power of two that divides `f`, so that products of divisors do not overflow; 0 stays 0.
fn low_bits(f: u64) -> u64 {
    if f == 0 { 0 } else { f & f.wrapping_neg() }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::I32;
    use crate::uop::AxisKind;

    #[test]
    fn multiples_of_four_are_seen_and_others_are_not() {
        let mut g = Graph::new();
        let r = g.range(10, 0, AxisKind::Loop);
        let (four, six, two) = (g.int(4, I32), g.int(6, I32), g.int(2, I32));
        let r4 = g.binary(Op::Mul, r, four);
        let r6 = g.binary(Op::Mul, r, six);
        let r12 = g.binary(Op::Mul, r6, two);
        let sum = g.binary(Op::Add, r4, r12);
        assert!(divisible(&g, sum, 4));
        assert!(!divisible(&g, r6, 4));
        let odd = g.binary(Op::Add, sum, six);
        assert!(!divisible(&g, odd, 4) && divisible(&g, odd, 2));
        let m = g.binary(Op::Imod, r4, six);
        assert!(!divisible(&g, m, 4) && divisible(&g, m, 2));
        let d = g.binary(Op::Idiv, r12, two);
        assert!(!divisible(&g, d, 4), "12r/2 = 6r, of which the analysis sees 2");
        let zero = g.int(0, I32);
        assert!(divisible(&g, zero, 4));
    }
}
