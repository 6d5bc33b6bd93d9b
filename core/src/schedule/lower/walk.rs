//! Lowers Scatter and Scan, whose elements along one axis are processed in order by a loop of kind [`AxisKind::Walk`].
//! What earlier iterations stored is loaded from the result buffer itself, through a pointer (`After`) that depends on
//! the loop, so that the load is not hoisted out of it. The other axes are output loops as in any kernel: their
//! elements are independent.

use super::super::order::Pending;
use super::{Lower, Tuple};
use crate::dtype::Scalar;
use crate::uop::{Arg, AxisKind, Op, ScatterMode, UOp};
use crate::{DType, Result};
use smallvec::SmallVec;

impl Lower<'_> {
    /// The second kernel of a Scatter, which applies the updates. The first kernel has stored the old values.
    pub(super) fn scatter(mut self, u: UOp) -> Result<Pending> {
        let g = self.g;
        let &Arg::Scatter(how, axis) = g.arg(u) else { unreachable!("scatter has its arg") };
        let (axis, shape) = (axis as usize, g.shape(u).clone());
        let updates = g.shape(g.src_at(u, 1)).clone();
        let ordered_axis = if how == ScatterMode::Unique { updates.len() } else { axis };
        let (idx, ordered_loop) = self.ordered_indices(&updates, ordered_axis)?;
        let (buffer, to, ptr) = self.target(u, ordered_loop)?;
        self.reads.push((buffer, 0));
        let at = self.evaluate(g.src_at(u, 1), idx.clone(), false)?;
        let value = self.evaluate(g.src_at(u, 2), idx.clone(), false)?;
        let gate = self.inside(at, shape[axis] as i64);
        let mut place = idx;
        place[axis] = self.clamped(at, shape[axis]);
        let offset = self.flat(&shape, &place);
        let (stored, dt) = (self.k.dtype(to), g.dtype(u));
        let value = match how {
            ScatterMode::Unique | ScatterMode::Overwrite => value,
            ScatterMode::Combine(op) => {
                let (zero, from) = (self.k.constant(Scalar::Int(0), stored), self.k.index(ptr, offset));
                let old = self.k.load_gated(from, zero, gate);
                let old = self.k.cast(old, dt);
                self.k.binary(op.op(), old, value)
            }
        };
        let value = self.k.cast(value, stored);
        let index = self.k.index(to, offset);
        let always = self.k.const_int(gate) == Some(1);
        let src: &[UOp] = if always { &[index, value] } else { &[index, value, gate] };
        let store = self.k.node(Op::Store, DType::Void, src, Arg::None);
        Ok(self.finished(u, store, (buffer, 1)))
    }

    pub(super) fn scan(mut self, u: UOp) -> Result<Pending> {
        let g = self.g;
        let Arg::Reduce(op, axes) = g.arg(u) else { unreachable!("scan has its arg") };
        let (axis, shape) = (axes[0] as usize, g.shape(u).clone());
        let (idx, ordered_loop) = self.ordered_indices(&shape, axis)?;
        let (buffer, to, ptr) = self.target(u, ordered_loop)?;
        let mut value = self.evaluate(g.src_at(u, 0), idx.clone(), false)?;
        let factor = match g.src(u).get(1) {
            Some(&a) => Some(self.evaluate(a, idx.clone(), false)?),
            None => None,
        };
        let (stored, dt) = (self.k.dtype(to), g.dtype(u));
        let offset = self.flat(&shape, &idx);
        if let Some(ordered_loop) = ordered_loop {
            let mut before = idx;
            before[axis] = self.shift(ordered_loop, -1);
            let before = self.flat(&shape, &before);
            let (one, yes) = (self.k.int(1, self.k.dtype(ordered_loop)), self.k.bool(true));
            let first = self.k.binary(Op::CmpLt, ordered_loop, one);
            let later = self.k.binary(Op::Xor, first, yes);
            // the identity of the logical dtype: that of a wider stored dtype would be another value after the cast
            let none = op.identity(dt).cast(dt, stored);
            let (zero, from) = (self.k.constant(none, stored), self.k.index(ptr, before));
            let old = self.k.load_gated(from, zero, later);
            let mut old = self.k.cast(old, dt);
            if let Some(a) = factor {
                old = self.k.binary(Op::Mul, old, a);
            }
            value = self.k.binary(op.op(), old, value);
            if factor.is_some() {
                // the first element is not multiplied at all, whatever its factor is
                let own = self.k.src_at(value, 1);
                value = self.k.select(first, own, value);
            }
        }
        let value = self.k.cast(value, stored);
        let index = self.k.index(to, offset);
        let store = self.k.store(index, value);
        Ok(self.finished(u, store, (buffer, 0)))
    }

    /// The indices of a kernel that processes `axis` in order (an `axis` past the last means none), and the loop over
    /// `axis` if it has more than one iteration.
    fn ordered_indices(&mut self, shape: &[usize], axis: usize) -> Result<(Tuple, Option<UOp>)> {
        let kind = |a| if a == axis { AxisKind::Walk } else { AxisKind::Loop };
        let idx: Tuple = shape.iter().enumerate().map(|(a, &n)| self.range(n, kind(a))).collect::<Result<_>>()?;
        let ordered_loop = idx.get(axis).copied().filter(|&r| self.k.op(r) == Op::Range);
        Ok((idx, ordered_loop))
    }

    /// The buffer of the result, the pointer for stores to it, and the pointer through which iterations of the loop
    /// `ordered_loop` load from it.
    fn target(&mut self, u: UOp, ordered_loop: Option<UOp>) -> Result<(usize, UOp, UOp)> {
        let buffer = self.buffers.of[&u];
        let info = self.buffers.list[buffer];
        self.args.push(buffer);
        let to = self.k.param(0, self.t.stored_as(info.dtype)?, info.len);
        let deps: SmallVec<[UOp; 1]> = ordered_loop.into_iter().collect();
        let from = if deps.is_empty() { to } else { self.k.after(to, &deps) };
        Ok((buffer, to, from))
    }

    /// The condition `0 <= at < n`.
    pub(super) fn inside(&mut self, at: UOp, n: i64) -> UOp {
        let (lo, hi) = (self.k.idx(0), self.k.idx(n));
        let (lo, hi) = (self.k.cast(lo, self.k.dtype(at)), self.k.cast(hi, self.k.dtype(at)));
        let neg = self.k.binary(Op::CmpLt, at, lo);
        let yes = self.k.bool(true);
        let not_neg = self.k.binary(Op::Xor, neg, yes);
        let below = self.k.binary(Op::CmpLt, at, hi);
        let cond = self.k.binary(Op::And, not_neg, below);
        self.simp(cond)
    }

    /// Clamps an index that a gate has checked to `0..n`, so that its bounds are known to later passes.
    pub(super) fn clamped(&mut self, at: UOp, n: usize) -> UOp {
        let dt = if i32::try_from(n).is_ok() { DType::I32 } else { DType::I64 };
        let at = self.k.cast(at, dt);
        let (zero, last) = (self.k.int(0, dt), self.k.int(n as i64 - 1, dt));
        let at = self.k.binary(Op::Max, at, zero);
        let at = self.k.binary(Op::Min, at, last);
        self.simp(at)
    }
}
