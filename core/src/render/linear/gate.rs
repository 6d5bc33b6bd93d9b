//! Evaluates load conditions (gates) at compile time for single elements of a tile, by interval arithmetic over the
//! tile's indices. In a padded window most elements lie inside the array wherever the tile is, so only those at the
//! tile's border need a gated load.

use super::lower::{Lower, Point};
use super::machine::Machine;
use crate::DType;
use crate::uop::{Op, UOp};

/// The deepest chain of operations of an index that the interval analysis follows; below it the bounds of the node are
/// used.
const DEPTH: u32 = 24;

/// What is known of a load's gate at one element: always true, always false, or true if a remaining condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::render) enum Gate {
    Open,
    Closed,
    Conditional(UOp),
}

impl<M: Machine> Lower<'_, M> {
    /// The gate of a load in lanes `off..off+w`, without the parts that are known to hold.
    pub(in crate::render) fn gate(&self, load: UOp, pt: &Point, off: usize, w: usize) -> Gate {
        let Some(&gate) = self.g.src(load).get(2) else { return Gate::Open };
        match self.known_value(gate, pt, off, w) {
            Some(true) => Gate::Open,
            Some(false) => Gate::Closed,
            None => Gate::Conditional(self.unknown_part(gate, pt, off, w)),
        }
    }

    /// The value of a condition, if it is the same in lanes `off..off+w` of every iteration.
    pub(in crate::render) fn known_value(&self, u: UOp, pt: &Point, off: usize, w: usize) -> Option<bool> {
        let g = self.g;
        if let Some(c) = g.const_val(u) {
            return Some(c.as_bool());
        }
        let of = |i: usize| self.known_value(g.src_at(u, i), pt, off, w);
        match g.op(u) {
            // the bounds of a u64 are given for its bits as an i64, which is ordered differently
            Op::CmpLt if g.dtype(g.src_at(u, 0)).is_int() && g.dtype(g.src_at(u, 0)) != DType::U64 => {
                let [a, b] = [0, 1].map(|i| self.interval(g.src_at(u, i), pt, off, w, DEPTH));
                (a.1 < b.0).then_some(true).or_else(|| (a.0 >= b.1).then_some(false))
            }
            Op::And => match (of(0), of(1)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            _ => None,
        }
    }

    /// A conjunction without the terms that always hold.
    pub(in crate::render) fn unknown_part(&self, mut u: UOp, pt: &Point, off: usize, w: usize) -> UOp {
        while self.g.op(u) == Op::And {
            let (a, b) = (self.g.src_at(u, 0), self.g.src_at(u, 1));
            match (self.known_value(a, pt, off, w), self.known_value(b, pt, off, w)) {
                (Some(true), _) => u = b,
                (_, Some(true)) => u = a,
                _ => return u,
            }
        }
        u
    }

    /// The least and the largest value of an integer in lanes `off..off+w` at an element.
    fn interval(&self, u: UOp, pt: &Point, off: usize, w: usize, depth: u32) -> (i64, i64) {
        let g = self.g;
        let whole = g.bounds(u);
        let tile = &self.tiles[u.0 as usize];
        if depth == 0 || tile.regs.is_empty() && tile.lane == 0 {
            return whole;
        }
        let of = |i: usize| self.interval(g.src_at(u, i), pt, off, w, depth - 1);
        let ends = match g.op(u) {
            Op::Range if g.range_arg(u).lane => Some((off as i64, (off + w) as i64 - 1)),
            Op::Range => tile.regs.first().map(|&(a, _)| (pt.0[a as usize] as i64, pt.0[a as usize] as i64)),
            Op::Add => {
                let (a, b) = (of(0), of(1));
                a.0.checked_add(b.0).zip(a.1.checked_add(b.1))
            }
            Op::Mul => g.const_int(g.src_at(u, 1)).and_then(|c| {
                let a = of(0);
                let (x, y) = a.0.checked_mul(c).zip(a.1.checked_mul(c))?;
                Some((x.min(y), x.max(y)))
            }),
            Op::Cast if g.dtype(g.src_at(u, 0)).is_int() && g.bounds(g.src_at(u, 0)) == whole => Some(of(0)),
            _ => None,
        };
        // an interval outside the dtype's bounds would mean wrapping arithmetic, which is not followed
        ends.filter(|&(lo, hi)| lo >= whole.0 && hi <= whole.1).unwrap_or(whole)
    }
}
