//! Cheaper exponentials for `exp(x - max(x))`, as in a softmax: the argument is never above zero, so the result cannot
//! overflow. In: a kernel whose exponentials are still one op each. Out: exponentials of a difference from a maximum
//! over the same elements are marked before opts change the loops ([`mark`]), and afterwards expanded to a polynomial
//! without an upper bound on the argument, and with one power of two instead of two ([`lower`]); all others are left to
//! the pass that decomposes ops that a target lacks.

use super::axes::Kernel;
use crate::analysis::affine;
use crate::rules::decomp::{exp_below_zero, is_exponential};
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, ReduceOp, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Marks these exponentials, if the target has none of its own. Where an axis is rounded up later, what they have past
/// its end is not used.
pub(super) fn mark(k: &mut Kernel, t: &Target) {
    let mut map = FxHashMap::default();
    for u in k.nodes() {
        let g = &mut k.g;
        if g.op(u) == Op::Exp2 && is_exponential(g, u, t) && is_below_maximum(g, g.src_at(g.src_at(u, 0), 0)) {
            let (dt, x) = (g.dtype(u), g.src_at(u, 0));
            map.insert(u, g.node(Op::Exp2, dt, &[x], Arg::Number(NOT_ABOVE_ZERO)));
        }
    }
    if !map.is_empty() {
        k.replace(&map);
    }
}

/// Expands the marked exponentials.
pub(super) fn lower(k: &mut Kernel, t: &Target) {
    let mut map = FxHashMap::default();
    for u in k.nodes() {
        if k.g.op(u) == Op::Exp2 && *k.g.arg(u) == Arg::Number(NOT_ABOVE_ZERO) {
            let expanded = match exp_below_zero(&mut k.g, u, t) {
                Some(expanded) => expanded,
                // its operand has become another expression, so it is a power like others
                None => k.g.unary(Op::Exp2, k.g.src_at(u, 0)),
            };
            map.insert(u, expanded);
        }
    }
    if !map.is_empty() {
        k.replace(&map);
    }
}

/// The argument of an [`Op::Exp2`] whose operand is known to be at most zero or NaN.
const NOT_ABOVE_ZERO: u32 = 0;

/// Is `x` the difference of an element and a maximum over elements that include it?
fn is_below_maximum(g: &Graph, x: UOp) -> bool {
    if g.op(x) != Op::Sub {
        return false;
    }
    let (a, m) = (g.src_at(x, 0), g.src_at(x, 1));
    if g.op(m) != Op::Reduce || !matches!(g.arg(m), Arg::Reduce(ReduceOp::Max, _)) {
        return false;
    }
    let b = g.src_at(m, 0);
    let plain = |u: UOp| g.op(u) == Op::Load && g.src(u).len() == 1;
    plain(a) && plain(b) && covers(g, g.src_at(b, 0), &g.src(m)[1..], g.src_at(a, 0))
}

/// Does the address `all`, while the ranges `over` run through all their values, reach every address that `one` can be?
/// Ranges that both depend on are equal in both.
fn covers(g: &Graph, all: UOp, over: &[UOp], one: UOp) -> bool {
    let base = g.src_at(all, 0);
    if base != g.src_at(one, 0) || g.op(base) != Op::Param {
        return false;
    }
    let (all, mut one) = (affine(g, g.src_at(all, 1)), affine(g, g.src_at(one, 1)));
    if !all.is_whole() || !one.is_whole() {
        return false;
    }
    let mut inner: SmallVec<[(UOp, i64); 6]> = SmallVec::new();
    for x in all.terms {
        if over.contains(&x.0) {
            inner.push(x);
        } else if let Some(i) = one.terms.iter().position(|&y| y == x) {
            one.terms.remove(i);
        } else {
            return false;
        }
    }
    // the maximum is over consecutive multiples of the smallest stride, without a gap
    sort::by_key(&mut inner, |x| x.1);
    let step = inner.first().map_or(1, |x| x.1);
    let mut n = step;
    for &(r, stride) in &inner {
        if stride != n || stride <= 0 {
            return false;
        }
        n *= g.range_len(r) as i64;
    }
    let mut last = 0;
    for &(r, stride) in &one.terms {
        if stride <= 0 || stride % step != 0 {
            return false;
        }
        last += stride * (g.range_len(r) as i64 - 1);
    }
    all.constant == one.constant && last < n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::uop::AxisKind;

    /// Is the element at `[y, x]` recognised to be at most the maximum of the `n` elements from `y * rows + first` on,
    /// with a stride of `step`?
    fn seen(at: [i64; 2], rows: i64, step: i64, n: usize, first: i64) -> bool {
        let mut g = Graph::new();
        let (y, x) = (g.range(8, 0, AxisKind::Loop), g.range(8, 1, AxisKind::Loop));
        let r = g.range(n, 2, AxisKind::Reduce);
        let p = g.param(1, F32, 64);
        let load = |g: &mut Graph, terms: &[(UOp, i64)], c: i64| {
            let mut sum = g.idx(c);
            for &(r, stride) in terms {
                let s = g.idx(stride);
                let m = g.binary(Op::Mul, r, s);
                sum = g.binary(Op::Add, sum, m);
            }
            let index = g.index(p, sum);
            g.load(index)
        };
        let all = load(&mut g, &[(y, rows), (r, step)], first);
        let one = load(&mut g, &[(y, at[0]), (x, at[1])], 0);
        let m = g.reduce_over(all, ReduceOp::Max, &[r]);
        let d = g.binary(Op::Sub, one, m);
        is_below_maximum(&g, d)
    }

    #[test]
    fn only_maxima_over_the_element_count() {
        assert!(seen([8, 1], 8, 1, 8, 0), "a row");
        assert!(seen([1, 8], 1, 8, 8, 0), "a column");
        assert!(seen([8, 1], 8, 1, 9, 0), "a row and more");
        assert!(!seen([8, 1], 8, 1, 7, 0), "all but the last");
        assert!(!seen([8, 1], 8, 2, 8, 0), "every second element");
        assert!(!seen([8, 1], 8, 1, 8, 1), "from the second element on");
        assert!(!seen([1, 8], 8, 1, 8, 0), "another row");
        assert!(!seen([8, 1], 1, 8, 8, 0), "another column");
    }
}
