//! Cache blocking for contractions on a CPU. In: a contraction and its chosen register tile. Out: opts that stage one
//! operand, order the loops and set the size of its panel.
//!
//! The operand that has the lanes is copied to a packed panel that the tiles of all rows then read: the loops of that
//! operand go outermost, the loops that reuse it inside the loop over panels, and the vectors of one panel innermost.

use super::heuristic::{Access, Tile, View};
use super::{Level, Opt, Staging};
use crate::uop::UOp;
use crate::util::sort;
use smallvec::SmallVec;

/// Tasks wanted per thread, for load balance.
const TASKS: usize = 3;

/// The cost of an operand that is read from a panel, per step of the reduction.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    /// Reading the panel, in units of a vector load.
    pub(super) read: f64,
    /// The copy to the panel, divided by the number of tiles that read it.
    pub(super) copy: f64,
    /// It is cheaper to copy overlapping windows separately than to share their elements.
    pub(super) separate_windows: bool,
}

impl Staged {
    pub(super) fn all(&self) -> f64 {
        self.read + self.copy
    }
}

impl View<'_> {
    /// How many tiles read the same elements of `a`.
    pub(super) fn reuse(&self, a: &Access, tile: &Tile) -> usize {
        let outside = |r: &&UOp| !a.has(self.id(**r)) && Some(**r) != tile.lane;
        self.out_axes.iter().filter(outside).map(|&r| self.tiles_of(r, tile)).product()
    }

    /// Number of tiles along an output axis.
    pub(super) fn tiles_of(&self, r: UOp, tile: &Tile) -> usize {
        let up = tile.ups.iter().find(|u| u.0 == Some(r)).map_or(1, |u| u.1);
        let f = if Some(r) == tile.lane { tile.width } else { up };
        self.len(r).div_ceil(f)
    }

    /// Cycles to copy one vector of `a` to a panel; `None` if it cannot be staged. `joined`: overlapping windows share
    /// elements of the panel.
    fn copy_cost(&self, a: &Access, tile: &Tile, joined: bool) -> Option<f64> {
        let lane = tile.lane.filter(|l| self.out_axes.contains(l))?;
        if !self.may_overlap_and_stage || a.constant || !a.has(self.id(lane)) || a.slot.is_none() {
            return None;
        }
        let stride = |r: UOp| a.affine.stride(&self.k.g, r);
        let lanes = self.t.caps.lanes as f64;
        let [plain, gated, gated_once, transposed] = self.t.machine.copy;
        let gated = if self.reuse(a, tile) == 1 { gated_once } else { gated };
        // elements that are copied one by one have a branch each if there is a mask
        let one_by_one = |each: f64| lanes * if a.gated == 0 { each } else { each + self.t.machine.guarded_load };
        Some(match stride(lane) {
            Some(s) if s == 1 || s == 2 && joined => {
                if a.gated != 0 {
                    gated
                } else {
                    plain
                }
            }
            _ if joined && self.reuse(a, tile) == 1 && self.transposes_in_registers(a, tile) => transposed,
            // twice as many elements are read, and a permutation picks the right ones
            Some(2) if self.t.caps.permutes => 1.5 * if a.gated != 0 { gated } else { plain },
            _ => match self.reduce_axes.iter().find(|&&r| stride(r) == Some(1)) {
                // squares of elements are transposed where whole vectors lie along the sum
                Some(&r) if a.gated == 0 && self.len(r).is_multiple_of(tile.width) => transposed,
                Some(_) => one_by_one(1.3),
                None => one_by_one(3.0),
            },
        })
    }

    /// Cost per step of reading `a` from a panel, including the copy; `None` if it cannot be staged or gains nothing
    /// from it.
    pub(super) fn staged_cost(&self, a: &Access, tile: &Tile) -> Option<Staged> {
        let rows = tile.ups.iter().filter(|u| u.0.is_some_and(|r| a.has(self.id(r))));
        let vectors = (rows.map(|u| u.1).product::<usize>() * tile.vectors) as f64;
        let (points, elems) = self.panel(a, tile, &[]);
        let reuse = self.reuse(a, tile) as f64;
        let panel_factor = self.panel_distance_factor(points);
        let cycles = |joined: bool| Some(1.5 * vectors * self.copy_cost(a, tile, joined)? / reuse);
        let pairs = tile.lane.and_then(|l| a.affine.stride(&self.k.g, l)) == Some(2);
        // with stride 2, tiles of the same size read very different numbers of vectors, so each load counts in full
        let each = if pairs { self.vector_load(tile) } else { 1.0 };
        // copies convert elements where they are transposed in registers; elsewhere they keep the operand's type
        let converted = if self.t.caps.permutes { 0.0 } else { vectors * a.conversion[0] };
        let read = vectors * panel_factor * each + converted;
        let separate = Staged { read, copy: panel_factor * cycles(false)?, separate_windows: true };
        if elems >= points {
            // an operand that is read only once is not copied unless the copy transposes it
            let once = self.t.machine.parallel_loads
                && self.reuse(a, tile) == 1
                && self.inner.len() == 1
                && !self.transposes_in_registers(a, tile);
            if once {
                return None;
            }
            return Some(Staged { separate_windows: false, ..separate });
        }
        // loads of overlapping windows straddle cache lines
        let across = 1.0 + (self.t.caps.lanes * 4) as f64 / 64.0;
        let read = match () {
            _ if pairs => (2.0 * self.vector_load(tile) * across).max(3.0),
            _ if self.reuse(a, tile) == 1 && self.transposes_in_registers(a, tile) => 1.0,
            _ => across,
        };
        let mut once = elems as f64 / points as f64;
        let mut read = vectors * read;
        if let Some([_, copied]) = self.sliding_cost(a, tile) {
            // rows of such a copy are written in whole vectors
            let steps = self.reduce_axes.iter().filter(|&&r| a.affine.stride(&self.k.g, r) == Some(1));
            let row = tile.width + steps.map(|&r| self.len(r) - 1).sum::<usize>();
            if self.reuse(a, tile) == 1 {
                let tiles = self.out_axes.iter().fold(1usize, |n, &r| n.saturating_mul(self.tiles_of(r, tile)));
                once = self.copied_once(a, tile).1 as f64 / tiles as f64 / points as f64;
            }
            once *= row.next_multiple_of(tile.width.min(self.t.caps.lanes)) as f64 / row as f64;
            read = copied;
        }
        let joined = Staged { read: read + converted, copy: cycles(true)? * once, separate_windows: false };
        Some(if separate.all() < joined.all() { separate } else { joined })
    }

    /// Factor on the cost of reading a panel of so many elements: more than 1 if it does not stay in the L2 cache.
    pub(super) fn panel_distance_factor(&self, points: usize) -> f64 {
        if points.saturating_mul(4) > self.t.machine.caches.panel { 1.5 } else { 1.0 }
    }

    /// The number of reads of `a` by one tile in all steps of the reduction, and the number of elements of an array for
    /// them, in which overlapping windows share elements. Along the axes in `whole` all tiles are counted, not only
    /// one.
    pub(super) fn panel(&self, a: &Access, tile: &Tile, whole: &[UOp]) -> (usize, usize) {
        let mut axes: Vec<(i64, usize, bool)> = Vec::new();
        let (mut points, mut elems) = (1usize, 1usize);
        let ups = tile.ups.iter().filter_map(|u| Some((u.0?, u.1)));
        let tiled: SmallVec<[(UOp, usize); 8]> = ups.chain(tile.lane.map(|l| (l, tile.width))).collect();
        // if the last tile is rounded up, tiles are not contiguous in a copy, and each has elements of its own
        let apart = |r: UOp| tiled.iter().any(|x| x.0 == r && whole.contains(&r) && !self.len(r).is_multiple_of(x.1));
        let part = tiled.iter().copied().filter(|x| !whole.contains(&x.0));
        let all = self.reduce_axes.iter().chain(whole).map(|&r| (r, self.len(r))).chain(part);
        for (r, n) in all.filter(|x| a.has(self.id(x.0))) {
            points = points.saturating_mul(n);
            match a.affine.stride(&self.k.g, r).filter(|&s| s > 0) {
                Some(s) if !apart(r) => axes.push((s, n, self.reduce_axes.contains(&r))),
                _ => elems = elems.saturating_mul(n),
            }
        }
        sort::ascending(&mut axes);
        let mut i = 0;
        while i < axes.len() {
            let (step, mut len, reduced) = axes[i];
            let first = i;
            i += 1;
            while i < axes.len() && axes[i].0 % step == 0 && axes[i].0 / step < len as i64 {
                // under a mask only a result's axis and a tap's axis share elements, and no further axis
                if a.gated != 0 && self.t.caps.memory_operands && (i > first + 1 || axes[i].2 == reduced) {
                    break;
                }
                len += (axes[i].0 / step) as usize * (axes[i].1 - 1);
                i += 1;
            }
            elems = elems.saturating_mul(len);
        }
        (points.max(1), elems)
    }

    /// Do the lines of `a` that a column of tiles reads again and again evict each other from the L1 cache?
    pub(super) fn thrashes(&self, a: &Access, tile: &Tile) -> bool {
        if tile.lane.is_none_or(|l| !a.has(self.id(l)) || self.reduce_axes.contains(&l)) {
            return false; // rows along the reduction are a few sequential streams
        }
        if !matches!(tile.lane.and_then(|l| a.affine.stride(&self.k.g, l)), Some(1 | 2)) {
            return false; // gathers cost more than cache misses
        }
        let inside = self.reduce_axes.iter().filter(|&&r| a.has(self.id(r)));
        let steps: usize = inside.clone().map(|&r| self.len(r)).product();
        let rows: usize = tile.ups.iter().filter(|u| u.0.is_some_and(|r| self.is_far(a, r))).map(|u| u.1).product();
        let lines = steps * rows * (tile.width * 4).div_ceil(64);
        let bytes = |r: UOp| a.affine.stride(&self.k.g, r).map_or(64, |s| s.unsigned_abs() as usize * 4);
        // the stride of the longest loop decides over how many sets of the cache the lines spread
        let Some(longest) = inside.copied().max_by_key(|&r| self.len(r)) else { return false };
        let step = bytes(longest);
        let caches = self.t.machine.caches;
        lines > caches.sets_of(step).max(rows * (tile.width * 4).div_ceil(64)) * caches.l1_sets_ways[1] / 2
    }

    /// Do lanes read more lines from the same sets of the L1 cache than these sets hold, so that no line is still there
    /// for its neighbouring elements? This happens where a plane of an image is a multiple of 4 kB and lanes are along
    /// the channels.
    pub(super) fn lanes_evict_lines(&self, a: &Access, lane: UOp, width: usize) -> bool {
        let bytes = |r: UOp| a.affine.stride(&self.k.g, r).map_or(0, |s| s.unsigned_abs() as usize * a.size);
        let caches = self.t.machine.caches;
        let step = bytes(lane);
        let others = self.out_axes.iter().chain(&self.reduce_axes).filter(|&&r| r != lane);
        self.may_overlap_and_stage
            && step >= 64
            && width > caches.sets_of(step) * caches.l1_sets_ways[1]
            && others.map(|&r| bytes(r)).any(|next| (1..64).contains(&next))
    }

    /// Factor on the cost of an access that thrashes: multiply-adds do not hide such loads.
    pub(super) fn thrashing(&self) -> f64 {
        self.t.machine.thrashing[match self.store.as_ref().map_or(0, |a| a.bytes) >> 20 {
            0..2 => 0,
            2..4 => 1,
            _ => 2,
        }]
    }

    /// The number of pieces into which to cut `n`, from `least` to four times that, with which all threads finish
    /// soonest, if each piece comes `times` times.
    fn even(&self, n: usize, least: usize, times: usize) -> usize {
        let least = least.clamp(1, n.max(1));
        let rounds = |p: usize| (p * times.max(1)).div_ceil(self.t.limits.threads.max(1));
        (least..=(4 * least).min(n)).min_by_key(|&p| n.div_ceil(p) * rounds(p)).unwrap_or(least)
    }

    /// Appends opts that stage the operand that gains most, after the opts of the tile itself.
    pub(super) fn block(&self, tile: &Tile, opts: &mut Vec<Opt>) {
        let caches = self.t.machine.caches;
        // a constant operand is packed outside the kernel; only the loop order is left to choose, so that its panel
        // stays in a cache
        let shares_panel = |a: &Access| {
            self.reuse(a, tile) > 1 && tile.lane.is_some_and(|l| self.out_axes.contains(&l) && a.has(self.id(l)))
        };
        let gain = |a: &Access| match () {
            _ if a.constant && shares_panel(a) => f64::INFINITY,
            _ => self.plain_cost(a, tile) - self.staged_cost(a, tile).map_or(f64::INFINITY, |s| s.all()),
        };
        if let Some(a) = self.inner.iter().find(|a| self.is_staged_once(a, tile)) {
            return self.stage_once(a, tile, opts);
        }
        let best = self.inner.iter().filter(|a| gain(a) > 0.0).max_by(|a, b| gain(a).total_cmp(&gain(b)));
        // even without a panel the columns go outermost, so that rows reuse what was read just before
        let columns_first = |a: &&Access| self.t.machine.columns_first && shares_panel(a) && self.thrashes(a, tile);
        let (Some(a), Some(lane)) = (best.or_else(|| self.inner.iter().find(columns_first)), tile.lane) else { return };
        let own = |r: UOp| r == lane || a.has(self.id(r));
        let loops: Vec<UOp> = self.out_axes.iter().copied().filter(|&r| self.tiles_of(r, tile) > 1).collect();
        let separate_windows = a.constant || self.staged_cost(a, tile).is_some_and(|s| s.separate_windows);
        let (points, elems) = self.panel(a, tile, &[]);
        let bytes = if separate_windows { points } else { elems }.saturating_mul(4);
        // number of tiles along the lane axis
        let columns = self.tiles_of(lane, tile);
        let others: usize = loops.iter().filter(|&&r| own(r) && r != lane).map(|&r| self.tiles_of(r, tile)).product();
        let tasks = if self.t.limits.threads > 1 { self.t.limits.threads * TASKS } else { 1 };
        let least =
            columns.div_ceil((caches.panel / bytes.max(1)).max(1)).max(tasks.div_ceil(others.max(1)).min(columns));
        let panels = if best.is_some() { self.even(columns, least, others) } else { columns };
        let together = columns.div_ceil(panels);
        // the loops that reuse the panel are cut only if there would otherwise be too few tasks for the threads
        let mut order: Vec<UOp> = Vec::new();
        let rows = loops.iter().copied().filter(|&r| !own(r)).max_by_key(|&r| self.tiles_of(r, tile));
        let mut cut = None;
        // the images of a batch go one by one, so that what every strip of columns reads again comes from a cache
        let read = self.inner.iter().filter(|x| !x.constant).map(|x| x.bytes).max().unwrap_or(0);
        let image = loops.iter().copied().find(|&r| !own(r) && self.inner.iter().any(|x| self.is_far(x, r)));
        let image = image.filter(|_| a.constant && columns * others > 1 && read > caches.l3_share_bytes);
        let image = image.filter(|&r| a.bytes <= caches.panel.max(read / self.tiles_of(r, tile)));
        // a single packed panel is never exchanged, so the rows are distributed as they are
        let one = columns == 1 && a.constant;
        if let Some(r) = rows.filter(|_| panels * others < tasks && !one && image.is_none()) {
            let n = self.tiles_of(r, tile);
            let pieces = self.even(n, tasks.div_ceil(panels * others).min(n.div_ceil(2)), panels * others);
            if pieces > 1 && n.div_ceil(pieces) > 1 {
                cut = Some((r, n.div_ceil(pieces)));
            }
        }
        order.extend(cut.map(|c| c.0).or(image));
        order.extend(loops.iter().copied().filter(|&r| own(r) && (r != lane || panels > 1)));
        let inside: Vec<UOp> = loops.iter().copied().filter(|r| !order.contains(r)).collect();
        if order.is_empty() || (cut.is_some() || image.is_some()) && order.len() == 1 {
            // there is only one panel, which is filled once per call
            order.extend(inside.iter().filter(|&&r| r == lane));
        }
        let level = order.len();
        order.extend(inside.iter().copied().filter(|r| !order[..level].contains(r)).collect::<Vec<_>>());
        // loops nest in the order of their ids: the ranges swap ids until they are in the wanted order
        let places: Vec<u8> = loops.iter().map(|&r| self.id(r)).collect();
        let mut now = loops.clone();
        for i in 0..places.len() {
            let Some(j) = now.iter().position(|&r| r == order[i]) else { return };
            if i != j {
                opts.push(Opt::swap(places[i], places[j]));
                now.swap(i, j);
            }
        }
        let place = |r: UOp| order.iter().position(|&x| x == r).map(|i| places[i]);
        if let Some((r, n)) = cut
            && let Some(axis) = place(r)
        {
            opts.push(Opt::split(axis, n));
        }
        if let Some(axis) = place(lane).filter(|_| together > 1 && panels > 1) {
            opts.push(Opt::split(axis, together));
        }
        if a.constant || best.is_none() {
            return;
        }
        let level = level.checked_sub(1).map_or(Level::Outside, |i| Level::In(places[i]));
        opts.push(Opt::Stage(Staging { param: a.slot.unwrap_or(0), load: 0, level, separate_windows }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::heuristic::choose;
    use super::super::{Opt, Part};
    use crate::DType::F32;
    use crate::codegen::axes::Kernel;
    use crate::schedule::schedule;
    use crate::target::{Isa, Target};
    use crate::uop::{Graph, Op, ReduceOp};

    fn matmul(m: usize, k: usize, n: usize, constants: &[u32], t: &Target) -> Vec<Opt> {
        let mut g = Graph::new();
        let (a, b) = (g.param(0, F32, m * k), g.param(1, F32, k * n));
        let (a, b) = (g.reshape(a, &[m, k, 1]), g.reshape(b, &[1, k, n]));
        let (a, b) = (g.expand(a, &[m, k, n]), g.expand(b, &[m, k, n]));
        let product = g.binary(Op::Mul, a, b);
        let sum = g.reduce(product, ReduceOp::Add, &[1]);
        let mut ast = schedule(&g, &[sum], 2, t).unwrap().kernels.remove(0).ast;
        ast.constants.extend(constants);
        let mut k = Kernel::new(&ast);
        k.settle_axes();
        choose(&k, t)
    }

    #[test]
    fn panels_are_for_many_rows() {
        let t = Target::x86(Isa::Avx512, 1);
        let swaps = |opts: &[Opt]| opts.iter().any(|o| matches!(o, Opt::Swap { .. }));
        let stages = |opts: &[Opt]| opts.iter().any(|o| matches!(o, Opt::Stage(_)));
        // with 43 tiles of rows or fewer, the columns are read directly from memory, one strip after the other
        for (m, k, n) in [(16, 256, 1024), (32, 1024, 1024), (128, 384, 1536), (256, 256, 256)] {
            let opts = matmul(m, k, n, &[], &t);
            assert!(swaps(&opts) && !stages(&opts), "{m}x{k}x{n}: {opts:?}");
        }
        for n in [768, 1024] {
            let opts = matmul(n, n, n, &[], &t);
            assert!(stages(&opts), "{n}: {opts:?}");
        }
    }

    #[test]
    fn an_axis_is_wide_as_a_whole_where_its_panel_is_near() {
        let t = Target::x86(Isa::Avx512, 1);
        let width = |k: usize| matmul(63, k, 112, &[2], &t).iter().find_map(|o| o.cuts(Part::Lane));
        assert_eq!(width(144), Some(112));
        assert!(width(2304) < Some(112));
    }

    #[test]
    fn images_of_a_batch_come_one_by_one() {
        // strips of a 1x1 convolution's columns go outermost, unless all images together do not fit in a cache
        let columns_first = |images: usize| {
            let (c, n, points) = (256, 512, 784);
            let mut g = Graph::new();
            let (x, w) = (g.param(0, F32, images * c * points), g.param(1, F32, c * n));
            let (x, w) = (g.reshape(x, &[images, c, points]), g.reshape(w, &[1, 1, c, n]));
            let x = g.permute(x, &[0, 2, 1]);
            let x = g.reshape(x, &[images, points, c, 1]);
            let (x, w) = (g.expand(x, &[images, points, c, n]), g.expand(w, &[images, points, c, n]));
            let product = g.binary(Op::Mul, x, w);
            let sum = g.reduce(product, ReduceOp::Add, &[2]);
            let t = Target::x86(Isa::Avx512, 1);
            let mut ast = schedule(&g, &[sum], 2, &t).unwrap().kernels.remove(0).ast;
            ast.constants.extend([2]);
            let mut k = Kernel::new(&ast);
            k.settle_axes();
            let images = k.g.range_arg(k.row_loops().0[0]).id;
            choose(&k, &t).iter().any(|o| matches!(o, Opt::Swap { axis, .. } if *axis == images))
        };
        assert!(columns_first(3) && !columns_first(16));
    }

    #[test]
    fn pieces_overlap_little() {
        let t = Target::x86(Isa::Avx512, 1);
        // five strips of 64 columns, of which three would share a panel of the weights: with two pieces of three, one
        // strip would be computed twice
        let opts = matmul(49, 960, 320, &[2], &t);
        let amount = |part: Part| opts.iter().find_map(|o| o.cuts(part));
        let strips = 320usize.div_ceil(amount(Part::Lane).unwrap());
        let split = amount(Part::Loop).unwrap_or(1);
        assert_eq!(strips.div_ceil(split) * split, strips, "{opts:?}");
    }
}
