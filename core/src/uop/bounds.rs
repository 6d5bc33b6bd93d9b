//! Interval analysis: inclusive bounds of every integer and bool node, computed once, when the node is added, from
//! those of its sources. Where the exact interval does not fit the dtype the op may wrap, and the bounds are the
//! dtype's whole range; so bounds that are narrower than the dtype also prove that the node does not overflow. Example:
//! the sum of two i32 nodes with bounds 0..=9 and 1..=2 has bounds 1..=11.

use super::{Arg, Graph, Op, ReduceOp, ScatterMode, UOp};
use crate::DType;

pub(super) fn infer(g: &Graph, u: UOp) -> (i64, i64) {
    let Some((lo, hi)) = g.dtype(u).int_range() else { return (i64::MIN, i64::MAX) };
    let full = (lo.max(i64::MIN as i128) as i64, hi.min(i64::MAX as i128) as i64);
    if g.dtype(u) == DType::U64 {
        // a u64 is stored as the i64 of its bit pattern, so no interval of it is useful but that of a constant
        return g.const_int(u).map_or((i64::MIN, i64::MAX), |c| (c, c));
    }
    match exact(g, u) {
        Some((a, b)) if a >= full.0 as i128 && b <= full.1 as i128 => (a as i64, b as i64),
        _ => full,
    }
}

/// The smallest number of iterations that a range may have.
fn least_len(g: &Graph, range: UOp) -> i64 {
    g.bounds(g.src_at(range, 0)).0
}

fn exact(g: &Graph, u: UOp) -> Option<(i128, i128)> {
    let (src, dt) = (g.src(u), g.dtype(u));
    let b = |i: usize| {
        let (a, b) = g.bounds(src[i]);
        (a as i128, b as i128)
    };
    let known_int = |i: usize| !g.dtype(src[i]).is_float() && g.dtype(src[i]) != DType::U64;
    let corners = |f: &dyn Fn(i128, i128) -> i128| {
        let ((a, b), (c, d)) = (b(0), b(1));
        let v = [f(a, c), f(a, d), f(b, c), f(b, d)];
        v[1..].iter().fold((v[0], v[0]), |(lo, hi), &x| (lo.min(x), hi.max(x)))
    };
    let shift = |i: usize| Some(b(i).0).filter(|&s| s == b(i).1 && (0..dt.bits() as i128).contains(&s));
    match g.op(u) {
        Op::Const => g.const_int(u).map(|c| (c as i128, c as i128)),
        Op::Var => match g.arg(u) {
            Arg::Var { min, max, .. } => Some((*min as i128, *max as i128)),
            _ => None,
        },
        Op::Iota => Some((0, g.shape(u)[0] as i128 - 1)).filter(|r| r.1 >= 0),
        Op::Range => Some((0, (b(0).1 - 1).max(0))),
        op if op.is_movement() && op != Op::Pad => Some(b(0)),
        Op::Contiguous | Op::Detach | Op::AccRead | Op::After if g.dtype(src[0]) == dt => Some(b(0)),
        Op::Scatter => match g.arg(u) {
            Arg::Scatter(
                ScatterMode::Unique | ScatterMode::Overwrite | ScatterMode::Combine(ReduceOp::Max | ReduceOp::Min),
                _,
            ) => Some((b(0).0.min(b(2).0), b(0).1.max(b(2).1))),
            _ => None,
        },
        Op::Scan => match g.arg(u) {
            Arg::Reduce(ReduceOp::Max | ReduceOp::Min, _) => Some(b(0)),
            _ => None,
        },
        Op::Pad | Op::Gather => Some((b(0).0.min(0), b(0).1.max(0))),
        Op::Reduce | Op::Fold => match g.arg(u) {
            // an empty reduction gives the identity
            Arg::Reduce(ReduceOp::Max | ReduceOp::Min, _) => {
                let empty = g.shape(src[0]).contains(&0)
                    || src[1..].iter().any(|&r| g.op(r) == Op::Range && least_len(g, r) < 1);
                Some(b(0)).filter(|_| !empty)
            }
            _ => None,
        },
        Op::Cast if dt == DType::Bool && known_int(0) => {
            Some(((b(0).0 > 0 || b(0).1 < 0) as i128, (b(0) != (0, 0)) as i128))
        }
        Op::Cast if known_int(0) => Some(b(0)),
        Op::Neg => Some((-b(0).1, -b(0).0)),
        Op::Add | Op::Or if dt == DType::Bool => Some((b(0).0.max(b(1).0), b(0).1.max(b(1).1))),
        Op::Add => Some((b(0).0 + b(1).0, b(0).1 + b(1).1)),
        Op::Sub => Some((b(0).0 - b(1).1, b(0).1 - b(1).0)),
        Op::Mul => Some(corners(&|x, y| x * y)),
        Op::Max => Some((b(0).0.max(b(1).0), b(0).1.max(b(1).1))),
        Op::Min => Some((b(0).0.min(b(1).0), b(0).1.min(b(1).1))),
        Op::FloorDiv if b(1).0 > 0 => Some(corners(&|x, y| x.div_euclid(y))),
        Op::Idiv if b(1).0 > 0 => Some(corners(&|x, y| x / y)),
        Op::FloorMod if b(1).0 > 0 => Some(match (b(0), b(1)) {
            ((lo, hi), (m, _)) if lo >= 0 && hi < m => (lo, hi),
            ((lo, hi), (m, n)) if m == n && lo.div_euclid(m) == hi.div_euclid(m) => {
                (lo.rem_euclid(m), hi.rem_euclid(m))
            }
            (_, (_, n)) => (0, n - 1),
        }),
        Op::Imod if b(1).0 > 0 => Some(match (b(0), b(1)) {
            ((lo, hi), (m, _)) if lo >= 0 && hi < m => (lo, hi),
            ((lo, hi), (_, n)) if lo >= 0 => (0, (n - 1).min(hi)),
            (_, (_, n)) => (1 - n, n - 1),
        }),
        Op::And if b(1).0 >= 0 => Some((0, if b(0).0 >= 0 { b(0).1.min(b(1).1) } else { b(1).1 })),
        Op::And if b(0).0 >= 0 => Some((0, b(0).1)),
        Op::Or | Op::Xor if b(0).0 >= 0 && b(1).0 >= 0 => {
            Some((0, (1i128 << (128 - b(0).1.max(b(1).1).leading_zeros())) - 1))
        }
        Op::Shl => shift(1).map(|s| (b(0).0 << s, b(0).1 << s)),
        Op::Shr => shift(1).map(|s| (b(0).0 >> s, b(0).1 >> s)),
        Op::CmpLt if known_int(0) => Some(((b(0).1 < b(1).0) as i128, (b(0).0 < b(1).1) as i128)),
        Op::CmpEq | Op::CmpNe if known_int(0) => {
            let same = b(0).0 == b(0).1 && b(0) == b(1);
            let apart = b(0).1 < b(1).0 || b(1).1 < b(0).0;
            Some(if g.op(u) == Op::CmpEq { (same as i128, !apart as i128) } else { (apart as i128, !same as i128) })
        }
        Op::Where => Some((b(1).0.min(b(2).0), b(1).1.max(b(2).1))),
        _ => None,
    }
}
