//! Opts for kernels without reductions. In: such a kernel as the cost estimates see it. Out: the vector axis along
//! which loads and stores are contiguous; square tiles for transpositions; pairs of registers for interleaved results;
//! and several independent rows at once for loops whose iterations depend on one another (scans).

use super::Opt;
use super::heuristic::{Access, View};
use crate::uop::{AxisKind, Op, UOp};

impl View<'_> {
    pub(super) fn elementwise(&self, opts: &mut Vec<Opt>) {
        let lanes = self.t.caps.lanes;
        let cost = |r: UOp| -> f64 {
            let at = |a: &Access| match a.affine.stride(&self.k.g, r) {
                Some(0) if a.ranges >> self.id(r) & 1 == 0 => 0.1,
                Some(1) => 1.0,
                None if self.permutes(a, r) => 2.0,
                // a contiguous vector in reversed order
                Some(-1) if self.t.caps.permutes && !a.store => 2.0,
                _ => lanes as f64 * if a.store { 2.0 } else { 1.0 },
            };
            let waste = self.len(r).div_ceil(lanes) as f64 * lanes as f64 / self.len(r) as f64;
            self.inner.iter().chain(&self.store).map(at).sum::<f64>() * waste
        };
        let walk = self.k.ranges_of(AxisKind::Walk).first().map(|&w| self.id(w));
        if walk.is_none() && self.scalar_ranges == 0 && (self.transpose(opts) || self.interleave(opts)) {
            return;
        }
        // no lanes along an axis whose results are scattered by a loaded index: they would be stored one by one
        let to = self.k.g.src_at(self.k.store(), 0);
        let indirect = walk.is_some() || self.k.g.reachable(&[to]).iter().any(|&u| self.k.g.op(u) == Op::Load);
        let places =
            |r: UOp| self.scalar_ranges >> self.id(r) & 1 == 0 && (!indirect || self.store_stride(r).is_some());
        let options = self.out_axes.iter().copied().filter(|&r| self.len(r) > 1 && places(r));
        let best = options.min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
        let best = best.filter(|&r| cost(r) < (lanes * (self.inner.len() + 1)) as f64);
        if let Some(walk) = walk.filter(|_| !self.t.caps.has_local) {
            return self.walk(walk, best, opts);
        }
        let Some(best) = best else { return self.unroll_scalar(opts) };
        let n = self.len(best);
        let vectors = if self.t.caps.has_local {
            1
        } else if n.is_multiple_of(lanes * 2) {
            2
        } else {
            1
        };
        self.lane(best, vectors * lanes, opts);
    }

    /// Unrolls the innermost loop where no axis has lanes: on a CPU, loop control takes as long as moving one element.
    fn unroll_scalar(&self, opts: &mut Vec<Opt>) {
        const UNROLL: usize = 8;
        let Some(&r) = self.out_axes.last().filter(|_| !self.t.caps.has_local) else { return };
        let n = self.len(r);
        // the last tile overlaps the one before it, unless no element may be computed twice
        let uneven = || if self.k.repeatable() { UNROLL / 2 } else { 1 };
        let by = if n <= UNROLL { n } else { (2..=UNROLL).rev().find(|&f| n.is_multiple_of(f)).unwrap_or_else(uneven) };
        if by > 1 {
            opts.push(Opt::upcast(self.id(r), by));
        }
    }

    /// Opts for a walk on a CPU, a loop whose iterations run in order: what one iteration stores and the next one reads
    /// has a latency, which several independent rows per iteration hide. Inside the walk remains a loop over a part of
    /// each row, with as many parts as threads need.
    fn walk(&self, walk: u8, lane: Option<UOp>, opts: &mut Vec<Opt>) {
        const CHAINS: usize = 4;
        let fits = |n: usize, f: usize| (1..=f).rev().find(|&f| n.is_multiple_of(f)).unwrap_or(1);
        let Some(lane) = lane else {
            let rows = self.out_axes.iter().copied().max_by_key(|&r| self.len(r));
            let Some((r, f)) = rows.map(|r| (r, fits(self.len(r), CHAINS))).filter(|x| x.1 > 1) else { return };
            return opts.push(Opt::upcast(self.id(r), f));
        };
        let lanes = self.t.caps.lanes;
        let vectors = self.len(lane).div_ceil(lanes);
        let wide = if self.len(lane).is_multiple_of(lanes) { fits(vectors, CHAINS) } else { 1 };
        self.lane(lane, wide * lanes, opts);
        let (left, rows) = (vectors / wide, self.out_axes.iter().filter(|&&r| self.id(r) < walk).map(|&r| self.len(r)));
        let parts = self.t.limits.threads.div_ceil(rows.product::<usize>().max(1));
        let parts = (parts..=left).find(|&p| left.is_multiple_of(p)).unwrap_or(left).max(1);
        if self.id(lane) > walk && parts < left && left / parts > 1 {
            opts.push(Opt::split(self.id(lane), left / parts));
        }
    }

    /// Interleaved results, as in depth-to-space or an image that is enlarged by two: lanes along the axis that is
    /// contiguous in the input, and a pair of registers along the axis of length 2 whose elements lie between two lanes
    /// in the output.
    fn interleave(&self, opts: &mut Vec<Opt>) -> bool {
        let (lanes, Some(store)) = (self.t.caps.lanes, &self.store) else { return false };
        let stride = |a: &Access, r: UOp| a.affine.stride(&self.k.g, r);
        let reads = |r: UOp| self.inner.iter().all(|a| stride(a, r) == Some(1) || !a.has(self.id(r)));
        for &lane in self.out_axes.iter().filter(|&&r| self.len(r) >= lanes && reads(r)) {
            let between = |&&r: &&UOp| self.len(r) == 2 && self.interleaves(store, lane, r);
            if let Some(&both) = self.out_axes.iter().find(between) {
                opts.push(Opt::upcast(self.id(both), 2));
                self.lane(lane, if self.len(lane).is_multiple_of(lanes * 2) { 2 * lanes } else { lanes }, opts);
                return true;
            }
        }
        false
    }

    /// A transposition: lanes along the axis that is contiguous in the input, registers along the one that is
    /// contiguous in the output, in square tiles ordered so that few memory pages are open at a time. Where the target
    /// cannot transpose a square in registers, lanes go along the output, and several elements of each input line are
    /// used while it is in the cache.
    fn transpose(&self, opts: &mut Vec<Opt>) -> bool {
        const ROWS: usize = 8;
        const PAGES: usize = 256;
        let stride = |a: &Access, r: UOp| a.affine.stride(&self.k.g, r);
        let Some(store) = self.store.as_ref().filter(|a| self.may_overlap_and_stage && a.gated == 0) else {
            return false;
        };
        let long = |r: &UOp| self.len(*r) >= 2 * ROWS;
        let to = self.out_axes.iter().copied().filter(long).find(|&r| stride(store, r) == Some(1));
        let from = self.out_axes.iter().copied().filter(long).find(|&r| {
            Some(r) != to
                && self.inner.iter().all(|a| stride(a, r) == Some(1) || a.ranges >> self.id(r) & 1 == 0)
                && self.inner.iter().any(|a| stride(a, r) == Some(1) && to.is_some_and(|t| stride(a, t) != Some(0)))
        });
        let (Some(to), Some(from)) = (to, from) else { return false };
        if !self.t.caps.permutes {
            opts.push(Opt::upcast(self.id(from), ROWS));
            opts.push(Opt::lane(self.id(to), 2 * self.t.caps.lanes));
            return true;
        }
        let width = if self.len(from) >= 16 { 16 } else { 8 };
        opts.push(Opt::upcast(self.id(to), ROWS));
        opts.push(Opt::lane(self.id(from), width));
        let rows = self.len(to).div_ceil(ROWS);
        // if the lanes take the whole axis, there is no loop left to swap with
        let loops = self.len(from) > width && self.out_axes.len() == 2;
        if rows > 2 * PAGES / ROWS && self.id(from) < self.id(to) && loops {
            opts.push(Opt::split(self.id(to), PAGES / ROWS));
            opts.push(Opt::swap(self.id(from), self.id(to)));
        }
        true
    }
}
