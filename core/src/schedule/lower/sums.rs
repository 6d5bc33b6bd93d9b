//! Rewrites sums while they are lowered. A sum of sums becomes one sum over the ranges of both; ranges are shortened to
//! the terms that masks leave; and ranges along which addresses would decrease are reversed. For example
//! `sum_r (2 <= r < 5 ? x(r) : 0)` becomes `sum_s x(s + 2)` with `s < 3`.

use super::Lower;
use crate::DType;
use crate::rewrite::substitute1;
use crate::rules::{addresses_fall, limits, nonzero_conditions, simplify_with};
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most nodes of a factor that [`Lower::stays_finite`] searches; a larger factor counts as one that may not stay
/// finite.
const MOST_LOOKED_AT: usize = 32;

impl Lower<'_> {
    /// The terms of `x` without the sums at its root, whose ranges are appended to `ranges`: a sum of sums becomes one
    /// sum.
    pub(super) fn flattened(&mut self, mut x: UOp, ranges: &mut SmallVec<[UOp; 4]>) -> UOp {
        let mut cond: Option<UOp> = None;
        loop {
            let k = &self.k;
            match (k.op(x), k.src(x), k.arg(x)) {
                // a condition that itself contains this sum is known only once the sum is complete, so it cannot move
                // into the sum's loop
                (Op::Reduce, src, Arg::Reduce(ReduceOp::Add, _))
                    if !cond.is_some_and(|c| loops_over(k, c, &src[1..])) =>
                {
                    ranges.extend_from_slice(&src[1..]);
                    x = src[0];
                }
                (Op::Where, &[c, y, zero], _) if k.const_val(zero).is_some_and(|z| z.is(0)) && self.is_sum(y) => {
                    cond = self.both(cond, c);
                    x = y;
                }
                _ => break,
            }
        }
        let (cond, x) = self.trimmed(cond, x, ranges);
        match cond {
            Some(c) => self.masked_product(c, x),
            None => x,
        }
    }

    /// Removes the ranges on which the terms do not depend, and returns how often each term occurs in the sum: `sum_r c`
    /// is `c * n`, and the largest of equal values is that value.
    pub(super) fn without_repeats(&self, x: UOp, op: ReduceOp, ranges: &mut SmallVec<[UOp; 4]>) -> i64 {
        /// Products with such a number have the rounding error of one operation.
        const EXACT: i64 = 1 << 24;
        let k = &self.k;
        let mut repeats = 1;
        match op {
            // sums and products of truth values are "or" and "and"
            _ if k.dtype(x) == DType::Bool => ranges.retain(|r| k.depends(x, *r)),
            ReduceOp::Max | ReduceOp::Min => ranges.retain(|r| k.depends(x, *r)),
            ReduceOp::Add if matches!(k.dtype(x), DType::F32 | DType::F64 | DType::I32 | DType::I64) => {
                ranges.retain(|r| {
                    let n = repeats * k.range_len(*r) as i64;
                    let keep = k.depends(x, *r) || n > EXACT;
                    repeats = if keep { repeats } else { n };
                    keep
                })
            }
            ReduceOp::Mul if k.const_int(x).is_some_and(|c| matches!(c, 0 | 1)) => ranges.clear(),
            ReduceOp::Add | ReduceOp::Mul => {}
        }
        repeats
    }

    /// `cond ? x : 0`, with each range shortened to the values for which the term may be nonzero.
    fn trimmed(&mut self, cond: Option<UOp>, x: UOp, ranges: &mut SmallVec<[UOp; 4]>) -> (Option<UOp>, UOp) {
        let conditions = nonzero_conditions(&self.k, x);
        let Some(all) = conditions.into_iter().chain(cond).reduce(|a, b| self.k.binary(Op::And, a, b)) else {
            return (cond, x);
        };
        let mut map = FxHashMap::default();
        for r in ranges.iter_mut() {
            let (lo, hi) = limits(&self.k, all, *r);
            let n = self.k.range_len(*r) as i64;
            if lo > hi || hi - lo + 1 == n {
                continue;
            }
            let Ok(short) = self.range((hi - lo + 1) as usize, AxisKind::Reduce) else { continue };
            let there = self.shift(short, lo);
            map.insert(*r, there);
            *r = short;
        }
        if map.is_empty() {
            return (cond, x);
        }
        ranges.retain(|r| self.k.op(*r) == Op::Range);
        let mut there = |u: UOp| {
            let v = substitute1(&mut self.k, u, &map);
            simplify_with(&mut self.k, v, &mut self.memo)
        };
        (cond.map(&mut there), there(x))
    }

    /// Reverses the ranges along which the addresses of masked loads decrease, as those of the overlapping windows in a
    /// convolution's gradient do.
    pub(super) fn reverse_descending(&mut self, x: UOp, ranges: &[UOp]) -> UOp {
        let mut map = FxHashMap::default();
        for &r in ranges {
            if !addresses_fall(&self.k, x, r) {
                continue;
            }
            let minus = self.k.idx(-1);
            let back = self.mul_idx(r, minus);
            let from_end = self.shift(back, self.k.range_len(r) as i64 - 1);
            map.insert(r, from_end);
        }
        if map.is_empty() {
            return x;
        }
        let x = substitute1(&mut self.k, x, &map);
        self.simp(x)
    }

    /// Is it a sum, possibly under a mask?
    fn is_sum(&self, mut x: UOp) -> bool {
        while self.k.op(x) == Op::Where {
            x = self.k.src_at(x, 1);
        }
        matches!(self.k.arg(x), Arg::Reduce(ReduceOp::Add, _)) && self.k.op(x) == Op::Reduce
    }

    /// `cond ? x : 0`. If `x` is a product of which one factor is a load that `cond` gates, this is the product itself:
    /// the masked factor is already zero. The other factor may then be loaded without the condition, if its address
    /// stays inside the buffer. The result differs only where that other factor is Inf or NaN.
    fn masked_product(&mut self, cond: UOp, x: UOp) -> UOp {
        let gate = |k: &Graph, u: UOp| (k.op(u) == Op::Load && k.src(u).len() == 3).then(|| k.src_at(u, 2));
        if self.k.op(x) != Op::Mul {
            return self.masked(cond, x);
        }
        let factors = [self.k.src_at(x, 0), self.k.src_at(x, 1)];
        let gates = factors.map(|f| gate(&self.k, f));
        let implies = |gate: UOp| {
            let mut have: SmallVec<[UOp; 8]> = SmallVec::new();
            let mut want: SmallVec<[UOp; 8]> = SmallVec::new();
            for (root, list) in [(gate, &mut have), (cond, &mut want)] {
                let mut stack = vec![root];
                while let Some(u) = stack.pop() {
                    if self.k.op(u) == Op::And {
                        stack.extend_from_slice(self.k.src(u));
                    } else {
                        list.push(u);
                    }
                }
            }
            want.iter().all(|c| have.contains(c))
        };
        for i in 0..2 {
            let (Some(here), other) = (gates[i], factors[1 - i]) else { continue };
            if !implies(here) {
                continue;
            }
            let Some(there) = gates[1 - i] else {
                return if self.stays_finite(other) { x } else { self.masked(cond, x) };
            };
            let index = self.k.src_at(other, 0);
            let Arg::Param { len, .. } = *self.k.arg(self.k.src_at(index, 0)) else { return x };
            let (lo, hi) = self.k.bounds(self.k.src_at(index, 1));
            let foreign = self.k.ranges(there) & !self.k.ranges(index) != 0;
            if there == here && foreign && lo >= 0 && (hi as usize) < len {
                let free = self.k.load(index);
                return self.k.binary(Op::Mul, factors[i], free);
            }
        }
        if gates.iter().flatten().any(|&g| implies(g)) { x } else { self.masked(cond, x) }
    }

    /// Does `x` stay finite where all its gated loads give zero? It may not if it divides by one of them.
    fn stays_finite(&self, x: UOp) -> bool {
        let divides = |op: Op| matches!(op, Op::Div | Op::Recip | Op::Log2);
        let mut stack: SmallVec<[UOp; 8]> = SmallVec::from_slice(&[x]);
        let mut left = MOST_LOOKED_AT;
        while let Some(u) = stack.pop() {
            let op = self.k.op(u);
            if divides(op) || left == 0 {
                return false;
            }
            left -= 1;
            if op.is_alu() || op == Op::Reduce {
                stack.extend_from_slice(self.k.src(u));
            }
        }
        true
    }
}

/// Does a reduction in or below `u` run over one of these ranges?
fn loops_over(k: &Graph, u: UOp, ranges: &[UOp]) -> bool {
    k.reachable(&[u]).into_iter().any(|u| k.op(u) == Op::Reduce && k.src(u)[1..].iter().any(|r| ranges.contains(r)))
}
