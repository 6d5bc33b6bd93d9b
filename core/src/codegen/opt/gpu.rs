//! The part of the choice of opts that only GPUs need. In: a kernel and the opts so far. Out: further opts that set the
//! number of threads of a workgroup along each output axis, and the number of threads that share a reduction where
//! there are too few results to keep the GPU busy. Also here: the limits on registers and code size that the choice of
//! tiles observes.

use super::heuristic::{Access, Tile, View};
use super::{Opt, Part, software};
use crate::uop::UOp;
use crate::uop::mma::MATRIX_TILES_ENABLED;

/// The most multiply-adds in the unrolled body of a reduction loop.
const BODY: usize = 96;
/// The most threads that share the sum of one result, if neighbouring threads compute neighbouring results and together
/// read contiguous memory ([`View::share_rows`]).
const MAX_SHARING_INTERLEAVED: usize = 16;
/// The fewest steps of a reduction that are left to each of the threads that share it.
const LEAST_SHARED: usize = 8;
/// The most threads that share a reduction whose terms are not contiguous in memory, because neighbouring elements
/// belong to other outputs.
const MAX_SHARING_STRIDED: usize = 16;

impl View<'_> {
    /// Number of vector registers that a tile may take.
    pub(super) fn registers(&self) -> usize {
        self.t.caps.vector_registers
    }

    /// The most multiply-adds in the unrolled body of a reduction loop.
    pub(super) fn body(&self) -> usize {
        if self.emulated() { software::BODY } else { BODY }
    }

    /// Factor by which a kernel with such tiles takes longer because they are too few to occupy the GPU.
    pub(super) fn idle(&self, tile: &Tile) -> f64 {
        let w = self.t.machine.workgroups;
        if !self.t.caps.has_local || self.t.machine.software {
            return 1.0;
        }
        let outs: usize = self.out_axes.iter().map(|&r| self.len(r)).product();
        let along = tile.lane.is_some_and(|l| self.out_axes.contains(&l));
        let each = tile.ups.iter().map(|u| u.1).product::<usize>() * if along { tile.width } else { 1 };
        if let Some(r) = self.across_rows() {
            // threads share the sum: there have to be enough of them that loads of the whole matrix are in flight
            return (w.busy as f64 / (outs.div_ceil(each) * self.len(r).min(w.reduction_workgroup)) as f64).max(1.0);
        }
        let threads = outs.div_ceil(each);
        // where results are few, threads will share the sum; that gains nothing for lanes whose loads are not
        // contiguous
        let contiguous = |l: UOp| {
            let reads_contiguously = |a: &Access| !a.has(self.id(l)) || a.affine.stride(&self.k.g, l) == Some(1);
            self.out_axes.contains(&l) && self.inner.iter().all(reads_contiguously)
        };
        let shared = match tile.lane {
            Some(l) if self.is_few(threads) && contiguous(l) => {
                let longest = self.reduce_axes.iter().map(|&r| self.len(r)).max().unwrap_or(1);
                power_of_two_in(longest, (longest / LEAST_SHARED).clamp(1, w.reduction_workgroup))
            }
            _ => 1,
        };
        (w.full[0] as f64 / (threads * shared) as f64).max(1.0)
    }

    /// Are these threads too few for the processors, even if several threads share each sum?
    fn is_few(&self, threads: usize) -> bool {
        let w = self.t.machine.workgroups;
        MATRIX_TILES_ENABLED
            && threads * MAX_SHARING_STRIDED <= w.shared_threads_per_processor * self.t.machine.processors
    }

    /// For a product with a matrix of bytes whose rows are interleaved in memory (block formats): the longest axis of
    /// the sum along which no operand is contiguous. `None` for other kernels.
    fn across_rows(&self) -> Option<UOp> {
        if self.k.reduces().len() != 1 || self.reduce_axes.len() < 2 {
            return None;
        }
        let contiguous = |r: UOp, a: &Access| a.affine.stride(&self.k.g, r) == Some(1);
        let interleaved = self.out_axes.iter().any(|&r| self.inner.iter().any(|a| a.size == 1 && contiguous(r, a)));
        let strided = self.reduce_axes.iter().copied().filter(|&r| !self.inner.iter().any(|a| contiguous(r, a)));
        strided.max_by_key(|&r| self.len(r)).filter(|_| interleaved)
    }

    /// Lets several threads share each sum of such a product where results are few. Threads of neighbouring results,
    /// which read contiguous memory, form the other dimension of the workgroup, as many as read whole memory
    /// transactions. False if it does not apply.
    fn share_rows(&self, opts: &mut Vec<Opt>) -> bool {
        let w = self.t.machine.workgroups;
        let Some(r) = self.across_rows() else { return false };
        let threads: usize = self.out_axes.iter().map(|&r| self.left(r, opts)).product();
        let across = opts
            .iter()
            .any(|o| o.cuts(Part::Lane).is_some() && self.out_axes.iter().any(|&r| o.axis() == Some(self.id(r))));
        let each = if across { 4 } else { 1 };
        // half transactions where whole ones would leave processors without a workgroup
        let few = threads * each / w.transaction_bytes < self.t.machine.processors;
        let rows = if few { w.transaction_bytes / 2 } else { w.transaction_bytes } / each;
        let most = (self.t.limits.max_local_total as usize / rows).min(MAX_SHARING_INTERLEAVED);
        let tile: usize = self.out_axes.iter().map(|&r| self.len(r).div_ceil(self.left(r, opts).max(1))).product();
        let fits =
            |f: &usize| self.left(r, opts).is_multiple_of(*f) && tile * rows * f * 4 <= self.t.limits.workgroup_bytes;
        let Some(f) = (1..=6).rev().map(|bits| 1usize << bits).filter(|f| *f <= most).find(fits) else { return false };
        if threads >= w.busy || opts.iter().any(|o| o.axis() == Some(self.id(r))) {
            return false;
        }
        opts.push(Opt::group(self.id(r), f));
        self.local(rows, opts);
        true
    }

    /// Opts for a product of a vector with a matrix in a block format whose codes are stored row by row in words, four
    /// codes in each. Neighbouring threads read neighbouring words of a row, several per thread. Several rows per
    /// thread share what it reads of the vector, as long as there are enough threads that loads of the whole matrix are
    /// in flight.
    pub(super) fn words_of_rows(&self) -> Option<Vec<Opt>> {
        let w = self.t.machine.workgroups;
        let row = self.out_axes.iter().copied().rev().find(|&r| MATRIX_TILES_ENABLED && self.len(r) > 1)?;
        let [words, codes] = self.reduce_axes[..] else { return None };
        if !self.t.caps.has_local || self.t.machine.software || self.k.reduces().len() != 1 || self.len(codes) != 4 {
            return None;
        }
        let reads = |a: &Access, r: UOp| a.has(self.id(r));
        // the load of a word does not depend on the axis of codes in it, but the load of the vector does
        let word = |a: &Access| a.size == 4 && reads(a, row) && reads(a, words) && !reads(a, codes);
        if !self.inner.iter().any(word) || !self.inner.iter().any(|a| reads(a, codes) && !reads(a, row)) {
            return None;
        }
        let all: usize = self.out_axes.iter().map(|&r| self.len(r)).product();
        let shared = power_of_two_in(self.len(words), self.t.caps.subgroup.max(1) as usize);
        let enough = self.t.machine.processors * w.rows[0];
        let fits = |n: &usize| self.len(row).is_multiple_of(*n) && all / n * shared >= enough;
        let rows = [4, 2].into_iter().find(fits).unwrap_or(1);
        let unroll = power_of_two_in(self.len(words) / shared, w.rows[1] / rows);
        let beside = power_of_two_in(self.len(row) / rows, (w.elementwise_workgroup / shared).max(1));
        let mut opts = vec![
            Opt::unroll(self.id(codes), 4),
            Opt::group(self.id(words), shared),
            Opt::unroll(self.id(words), unroll),
            Opt::upcast(self.id(row), rows),
            Opt::local(self.id(row), beside),
        ];
        opts.retain(|o| !matches!(o, Opt::Cut { by: 1, .. }));
        Some(opts)
    }

    /// Appends the opts for threads: first those that share a reduction, then those along output axes.
    pub(super) fn launch(&self, opts: &mut Vec<Opt>) {
        let w = self.t.machine.workgroups;
        // on an emulated GPU, starting a workgroup costs as much as several threads without sums; on hardware, small
        // workgroups would leave a processor idle, because it holds only a limited number of workgroups
        let most = match (self.t.machine.software, self.reduce_axes.is_empty()) {
            (true, false) => 32,
            (false, true) => w.elementwise_workgroup,
            _ => 64,
        };
        let most = most.min(self.t.limits.max_local_total as usize);
        if !self.t.machine.software && self.share_rows(opts) {
            return;
        }
        let grouped = opts.iter().find_map(|o| o.cuts(Part::Group));
        let shared = match grouped {
            Some(n) => n,
            None if self.t.machine.software => 1,
            None => self.group(opts),
        };
        self.local(most / shared.min(most), opts);
    }

    /// The length of an axis after these opts.
    fn left(&self, r: UOp, opts: &[Opt]) -> usize {
        let mut n = self.len(r);
        for o in opts.iter().filter(|o| o.axis() == Some(self.id(r))) {
            match *o {
                Opt::Pad { to, .. } => n = n.next_multiple_of(to as usize),
                // it was applied before this view was made
                Opt::Cut { part: Part::Dot, .. } => {}
                Opt::Cut { by, .. } => n /= by as usize,
                Opt::Swap { .. } | Opt::Join { .. } | Opt::Stage(_) | Opt::Keep { .. } => {}
            }
        }
        n
    }

    /// Lets threads share the reduction if there are too few outputs for the GPU, or if the terms of the reduction are
    /// contiguous in memory, so that neighbouring threads read neighbouring elements. Returns the number of threads
    /// that share it.
    fn group(&self, opts: &mut Vec<Opt>) -> usize {
        let w = self.t.machine.workgroups;
        if self.k.reduces().len() != 1 {
            return 1;
        }
        let threads: usize = self.out_axes.iter().map(|&r| self.left(r, opts)).product();
        let has_lanes = |r: UOp| opts.iter().any(|o| o.cuts(Part::Lane).is_some() && o.axis() == Some(self.id(r)));
        let lane = self.reduce_axes.iter().copied().find(|&r| has_lanes(r));
        let Some(r) = lane.or_else(|| self.reduce_axes.iter().copied().max_by_key(|&r| self.left(r, opts))) else {
            return 1;
        };
        let few = self.is_few(threads);
        let (steps, most) =
            (self.left(r, opts), if lane.is_some() || few { w.reduction_workgroup } else { MAX_SHARING_STRIDED });
        let fits = |f: &usize| {
            // packed words are contiguous for any assignment of threads, so sharing short sums does no harm where a
            // small GPU has idle threads
            let short = lane.is_some() || self.lanes.is_some() && threads * f <= w.full[0];
            let rest = if short { 1 } else { LEAST_SHARED };
            steps.is_multiple_of(*f) && steps / f >= rest && (lane.is_some() || threads * f <= 2 * w.busy)
        };
        let f = (2..=6).rev().map(|bits| 1usize << bits).filter(|f| *f <= most).find(fits);
        if lane.is_some() && self.pad_for_all(r, threads, steps, opts) {
            return w.threads_per_rare_reduction;
        }
        let Some(f) = f else { return 1 };
        let tile: usize = self.out_axes.iter().map(|&r| self.len(r).div_ceil(self.left(r, opts).max(1))).product();
        if threads >= w.busy && lane.is_none() || tile * w.reduction_workgroup * 8 > self.t.limits.workgroup_bytes {
            return 1;
        }
        let at = match lane {
            // it has to come before opts that cut the axis further
            Some(_) => opts.iter().position(|o| o.cuts(Part::Lane).is_some()).map_or(opts.len(), |i| i + 1),
            None => opts.len(),
        };
        opts.insert(at, Opt::group(self.id(r), f));
        f
    }

    /// Lets a whole workgroup share each of a few long reductions over an axis, whose length is rounded up for that.
    /// False if it does not apply.
    fn pad_for_all(&self, r: UOp, threads: usize, steps: usize, opts: &mut Vec<Opt>) -> bool {
        let w = self.t.machine.workgroups;
        let (n, own) = (self.len(r), |o: &Opt| o.axis() == Some(self.id(r)));
        let padded = opts.iter().any(|o| own(o) && matches!(o, Opt::Pad { .. }));
        if !MATRIX_TILES_ENABLED
            || threads > self.t.machine.processors / 4
            || steps < 4 * w.reduction_workgroup
            || padded
            || (self.t.limits.max_local_total as usize) < w.threads_per_rare_reduction
        {
            return false;
        }
        let whole = n / steps * w.threads_per_rare_reduction;
        let at = opts.iter().position(|o| own(o) && o.cuts(Part::Lane).is_some()).map_or(opts.len(), |i| i + 1);
        opts.insert(at, Opt::group(self.id(r), w.threads_per_rare_reduction));
        if !n.is_multiple_of(whole) {
            opts.insert(0, Opt::pad(self.id(r), whole));
        }
        true
    }

    /// Appends the opts that make output axes threads of the workgroup, from the innermost axis outwards, at most
    /// `budget` threads in all.
    fn local(&self, mut budget: usize, opts: &mut Vec<Opt>) {
        let w = self.t.machine.workgroups;
        let left = self.out_axes.iter().map(|&r| (r, self.left(r, opts))).filter(|x| x.1 > 1).collect::<Vec<_>>();
        // threads that share a reduction take one of the three dimensions
        let most = 3 - usize::from(opts.iter().any(|o| o.cuts(Part::Group).is_some()));
        let mut dims = 0;
        for &(r, n) in left.iter().rev() {
            if dims == most || budget < 2 {
                break;
            }
            let limit = budget.min(self.t.limits.max_local[dims] as usize).min(if dims == 0 {
                w.elementwise_workgroup
            } else {
                16
            });
            let mut f = (2..=limit).rev().find(|f| n.is_multiple_of(*f)).unwrap_or(1);
            if f < limit / 4 && n > limit {
                // no suitable divisor: the length is rounded up, and the last workgroup is partly idle
                f = limit.min(32);
                opts.push(Opt::pad(self.id(r), f));
            }
            if f > 1 {
                opts.push(Opt::local(self.id(r), f));
                budget /= f;
                dims += 1;
            }
        }
    }
}

/// The largest power of two that divides `n` and is not above `most`.
pub(super) fn power_of_two_in(n: usize, most: usize) -> usize {
    1 << n.trailing_zeros().min(most.ilog2())
}
