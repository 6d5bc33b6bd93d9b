//! Opts for sums of products of bytes, where one instruction adds up a group of products. In: a contraction of bytes
//! with a constant operand. Out: the reduced axis along which the other operand is contiguous is cut into such groups,
//! and the constant is packed so that the elements of a group are adjacent in each lane.

use super::heuristic::{Access, View};
use super::{Opt, Part};
use crate::DType;
use crate::analysis::{Role, product::factors};
use crate::target::Dots;
use crate::uop::{Op, RangeSet, UOp};

impl View<'_> {
    /// Opts that use such instructions, if the kernel allows it.
    pub(super) fn dots(&self) -> Option<Vec<Opt>> {
        let Some(Dots { group: n, stored }) = self.t.caps.dots else { return None };
        if !self.may_overlap_and_stage && !self.t.caps.has_local || self.k.role != Role::Contraction {
            return None;
        }
        let (axis, lanes) = self.groups(n, stored)?;
        let mut opts = vec![Opt::dot(axis, n)];
        let mut k = self.k.clone();
        k.apply(&opts[0], self.t).ok()?;
        let mut v = View::new(&k, self.t);
        v.lanes = Some(lanes);
        v.contraction(true, &mut opts);
        if !opts.iter().any(|o| o.cuts(Part::Lane).is_some()) {
            return None;
        }
        if self.t.caps.has_local {
            v.launch(&mut opts);
        }
        v.pack(&mut opts);
        Some(opts)
    }

    /// The axis to cut into groups of `n`, and the axes along which lanes may run.
    fn groups(&self, n: usize, stored: DType) -> Option<(u8, RangeSet)> {
        let g = &self.k.g;
        let [sum] = *self.k.reduces() else { return None };
        let pair = factors(g, sum)?;
        if g.dtype(pair[0]) != DType::I32 || self.inner.len() != 2 {
            return None;
        }
        let bytes = |u: UOp| {
            let load = g.src_at(u, 0);
            let narrow = matches!(g.dtype(load), DType::I8 | DType::U8) || g.dtype(load) == stored;
            (g.op(u) == Op::Cast && g.op(load) == Op::Load && narrow).then(|| self.k.slot_below(g.src_at(load, 0)))?
        };
        let [a, b] = [bytes(pair[0])?, bytes(pair[1])?];
        let of = |slot: u32| self.inner.iter().find(|x| x.slot == Some(slot));
        let (x, w) = match (of(a)?, of(b)?) {
            (x, w) if w.constant => (x, w),
            (w, x) if w.constant => (x, w),
            _ => return None,
        };
        let whole = |r: &&UOp| self.len(**r).is_multiple_of(n) && x.gated >> self.id(**r) & 1 == 0;
        let next = |a: &Access, r: UOp| a.affine.stride(g, r) == Some(1);
        let axis = self.reduce_axes.iter().filter(whole).find(|&&r| next(x, r) && w.has(self.id(r)))?;
        let own = self.out_axes.iter().map(|&r| self.id(r)).filter(|&id| w.has(id) && !x.has(id));
        let lanes: RangeSet = own.fold(0, |m, id| m | 1 << id);
        (lanes != 0).then(|| (self.id(*axis), lanes))
    }
}
