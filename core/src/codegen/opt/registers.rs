//! How many registers the operands of a tile take.

use super::heuristic::{Access, Tile, View};
use crate::uop::UOp;
use crate::util::sort;
use smallvec::SmallVec;

/// The most registers of operands that are used as soon as they are loaded: the two sides of a product, each with a
/// factor or an addend.
const MOST_PASSING: usize = 4;

impl View<'_> {
    /// Registers needed for operands, beside the accumulators. Multiply-adds run over the tile with its first axis
    /// outermost, and a loaded value stays in a register while an axis that it does not depend on is still running.
    /// Values that no axis reuses are loaded one after the other as a long expression needs them, a few at a time.
    /// `cheaper` says whether an operand is read from a copy.
    pub(super) fn operand_registers(&self, tile: &Tile, cheaper: impl Fn(&Access) -> bool) -> usize {
        let mut axes: SmallVec<[(usize, UOp, usize); 2]> = SmallVec::new();
        for (i, &(r, f)) in tile.ups.iter().enumerate() {
            if let Some(r) = r.filter(|_| f > 1) {
                // an axis that becomes a tile axis as a whole keeps its id; the inner part of a split axis gets a new,
                // higher id
                axes.push((if f == self.len(r) { self.id(r) as usize } else { 1000 + i }, r, f));
            }
        }
        sort::ascending(&mut axes);
        let mut passing = 0;
        let mut one = |a: &Access| {
            let has = |r: UOp| a.has(self.id(r));
            let vectors = if tile.lane.is_some_and(has) { tile.vectors } else { 1 };
            // lane masks that a copy does not take care of are kept in registers, for each tap
            let masks = self.may_overlap_and_stage && tile.lane.is_some_and(|l| a.gated >> self.id(l) & 1 == 1);
            let masks = if masks && !cheaper(a) { 3 * tile.vectors } else { 0 };
            if self.t.machine.hoists_loads {
                return masks + axes.iter().filter(|x| has(x.1)).map(|x| x.2).product::<usize>() * vectors;
            }
            let Some(first) = axes.iter().position(|x| !has(x.1)) else {
                passing += 1;
                return masks;
            };
            masks + axes[first..].iter().filter(|x| has(x.1)).map(|x| x.2).product::<usize>() * vectors
        };
        let kept: usize = self.inner.iter().map(&mut one).sum();
        kept + passing.min(MOST_PASSING)
    }
}
