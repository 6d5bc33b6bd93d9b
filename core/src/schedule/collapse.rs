//! Replaces a reduction over a one-hot mask by one gated load: `sum_r (r == e ? a(r) : 0)` becomes
//! `0 <= e < n ? a(e) : 0`.
//!
//! A one-hot matrix times a table (an embedding written as a matrix product) then costs a lookup. A product with a 0/1
//! mask is treated as a selection, which gives another result only where the table holds Inf or NaN.

use crate::DType;
use crate::dtype::Scalar;
use crate::uop::{Graph, Op, ReduceOp, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The sum of `x` over `range`, without a loop over the range, if a mask in `x` leaves at most one index.
pub(crate) fn one_hot(g: &mut Graph, op: ReduceOp, x: UOp, range: UOp) -> Option<UOp> {
    if op != ReduceOp::Add {
        return None;
    }
    let (mask, value) = selection(g, x)?;
    let mut clauses: SmallVec<[UOp; 4]> = SmallVec::new();
    flatten(g, mask, &mut clauses);
    let (at, hot) = clauses.iter().enumerate().find_map(|(i, &c)| Some((i, equals(g, c, range)?)))?;
    clauses.remove(at);
    let n = g.range_len(range) as i64;
    let mut gate = inside(g, hot, n);
    let index = g.cast(hot, g.dtype(range));
    for c in clauses {
        let c = replace(g, c, range, index, gate);
        gate = g.binary(Op::And, gate, c);
    }
    let value = replace(g, value, range, index, gate);
    let zero = g.constant(Scalar::Int(0), g.dtype(value));
    Some(g.select(gate, value, zero))
}

/// `0 <= x < n`, without the comparisons that the dtype of `x` makes pointless or cannot express: an unsigned value is
/// never below 0, and 8 bits do not hold 256.
fn inside(g: &mut Graph, x: UOp, n: i64) -> UOp {
    let dt = g.dtype(x);
    let mut gate = g.bool(true);
    if dt.is_signed() {
        let minus = g.int(-1, dt);
        gate = g.binary(Op::CmpLt, minus, x);
    }
    if holds(dt, n) {
        let end = g.int(n, dt);
        let below = g.binary(Op::CmpLt, x, end);
        gate = if dt.is_signed() { g.binary(Op::And, gate, below) } else { below };
    }
    gate
}

fn holds(dt: DType, v: i64) -> bool {
    dt.int_range().is_some_and(|(lo, hi)| (lo..=hi).contains(&i128::from(v)))
}

/// The mask and the value of `mask ? value : 0`, written as a Where or as a product with a 0/1 value.
fn selection(g: &Graph, x: UOp) -> Option<(UOp, UOp)> {
    match g.op(x) {
        Op::Where if is(g, g.src_at(x, 2), 0) => Some((g.src_at(x, 0), g.src_at(x, 1))),
        Op::Mul => {
            let (a, b) = (g.src_at(x, 0), g.src_at(x, 1));
            as_mask(g, a).map(|m| (m, b)).or_else(|| as_mask(g, b).map(|m| (m, a)))
        }
        _ => None,
    }
}

/// The bool from which a 0/1 value was made.
fn as_mask(g: &Graph, u: UOp) -> Option<UOp> {
    match g.op(u) {
        Op::Cast if g.dtype(g.src_at(u, 0)) == DType::Bool => Some(g.src_at(u, 0)),
        Op::Cast => as_mask(g, g.src_at(u, 0)),
        Op::Where if is(g, g.src_at(u, 1), 1) && is(g, g.src_at(u, 2), 0) => Some(g.src_at(u, 0)),
        _ => None,
    }
}

fn is(g: &Graph, u: UOp, v: i64) -> bool {
    g.const_val(u).is_some_and(|c| c.is(v))
}

fn flatten(g: &Graph, u: UOp, out: &mut SmallVec<[UOp; 4]>) {
    if g.op(u) == Op::And {
        flatten(g, g.src_at(u, 0), out);
        flatten(g, g.src_at(u, 1), out);
    } else {
        out.push(u);
    }
}

/// The `e` of a condition `range == e`, if it does not depend on the range.
fn equals(g: &Graph, c: UOp, range: UOp) -> Option<UOp> {
    let (a, b) = match g.op(c) {
        Op::CmpEq => (g.src_at(c, 0), g.src_at(c, 1)),
        _ => return None,
    };
    let (id, last) = (g.range_arg(range).id, g.range_len(range) as i64 - 1);
    // looks through casts to dtypes that hold all values of the range
    let is_range = |mut u: UOp| {
        while g.op(u) == Op::Cast && g.dtype(u).is_int() && holds(g.dtype(u), last) {
            u = g.src_at(u, 0);
        }
        u == range
    };
    let free = |u: UOp| g.ranges(u) >> id & 1 == 0 && g.dtype(u).is_int();
    if is_range(a) && free(b) {
        return Some(b);
    }
    (is_range(b) && free(a)).then_some(a)
}

/// `x` with `range` replaced by `index`. Loads that depended on the range are gated with `gate`.
fn replace(g: &mut Graph, x: UOp, range: UOp, index: UOp, gate: UOp) -> UOp {
    let id = g.range_arg(range).id;
    let mut image: FxHashMap<UOp, UOp> = [(range, index)].into_iter().collect();
    for u in g.reachable(&[x]) {
        if image.contains_key(&u) || g.ranges(u) >> id & 1 == 0 {
            continue;
        }
        let mut src: SmallVec<[UOp; 4]> = g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
        if g.op(u) == Op::Load {
            if src.len() == 3 {
                src[2] = g.binary(Op::And, gate, src[2]);
            } else {
                let zero = g.constant(Scalar::Int(0), g.dtype(u));
                src.extend_from_slice(&[zero, gate]);
            }
        }
        let v = g.with_src(u, &src);
        image.insert(u, v);
    }
    image.get(&x).copied().unwrap_or(x)
}
