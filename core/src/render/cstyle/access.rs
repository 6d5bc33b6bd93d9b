//! What is known about addresses: the pointers in use, divisors of an offset.

use crate::codegen::Program;
use crate::uop::{Graph, Op, UOp};

/// The pointer nodes that the program's addresses go through.
pub(in crate::render) fn pointers(p: &Program) -> Vec<UOp> {
    let mut found: Vec<UOp> = p.g.reachable(&p.order);
    found.retain(|&u| matches!(p.g.op(u), Op::Param | Op::Scratch));
    found
}

/// Is the integer `u` provably a multiple of `n`, a power of two? Wrapping at 32 or 64 bits keeps that.
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

/// The power of two in `f`, so that products do not overflow into nonsense; 0 stays 0.
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
