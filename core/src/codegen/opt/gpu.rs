//! The part of the choice of opts that only GPUs need. In: a kernel and the opts so far. Out: more of them, which say how many threads a
//! workgroup has along each output axis, and how many share a reduction where there are too few results to keep a GPU busy; besides the
//! bounds on registers and code that a choice of tiles keeps to.

use super::heuristic::{Access, Tile, View};
use super::{Opt, Part, software};
use crate::uop::UOp;
use crate::uop::mma::BUILT;

/// Multiply-adds in the body of a reduction's loop.
const BODY: usize = 96;
/// Most threads that share the sum of a result beside neighbours that read one piece of memory.
const SHARED: usize = 16;
/// Steps of a reduction that are left to each of those that share one.
const LEAST_SHARED: usize = 8;
/// Most threads that share a reduction whose neighbours in memory belong to other outputs.
const SPLIT: usize = 16;

impl View<'_> {
    /// Vector registers that a tile may take.
    pub(super) fn registers(&self) -> usize {
        self.t.vector_registers
    }

    /// Multiply-adds that the body of a reduction's loop may have.
    pub(super) fn body(&self) -> usize {
        if self.emulated() { software::BODY } else { BODY }
    }

    /// How much longer a kernel of such tiles takes because there are too few of them.
    pub(super) fn idle(&self, tile: &Tile) -> f64 {
        let w = self.t.machine.workgroups;
        if !self.t.has_local || self.t.software {
            return 1.0;
        }
        let outs: usize = self.outs.iter().map(|&r| self.len(r)).product();
        let along = tile.lane.is_some_and(|l| self.outs.contains(&l));
        let each = tile.ups.iter().map(|u| u.1).product::<usize>() * if along { tile.width } else { 1 };
        if let Some(r) = self.across_rows() {
            // its threads share the sum: what matters is that they are enough to have all of the matrix on its way
            return (w.busy as f64 / (outs.div_ceil(each) * self.len(r).min(w.group)) as f64).max(1.0);
        }
        let threads = outs.div_ceil(each);
        // where there are few, threads will share the sum; lanes that read what is apart gain nothing by it
        let near = |l: UOp| {
            let beside = |a: &Access| !a.has(self.id(l)) || a.affine.stride(&self.k.g, l) == Some(1);
            self.outs.contains(&l) && self.inner.iter().all(beside)
        };
        let shared = match tile.lane {
            Some(l) if self.is_few(threads) && near(l) => {
                let longest = self.reds.iter().map(|&r| self.len(r)).max().unwrap_or(1);
                power_of_two_in(longest, (longest / LEAST_SHARED).clamp(1, w.group))
            }
            _ => 1,
        };
        (w.full[0] as f64 / (threads * shared) as f64).max(1.0)
    }

    /// Are so many threads few for each processor, even if several share each sum?
    fn is_few(&self, threads: usize) -> bool {
        let w = self.t.machine.workgroups;
        BUILT && threads * SPLIT <= w.few * self.t.processors
    }

    /// Of a product with a matrix of bytes of which rows lie interleaved, as those in blocks do: the longest axis of the sum along which nothing
    /// lies side by side.
    fn across_rows(&self) -> Option<UOp> {
        if self.k.reduces().len() != 1 || self.reds.len() < 2 {
            return None;
        }
        let near = |r: UOp, a: &Access| a.affine.stride(&self.k.g, r) == Some(1);
        let interleaved = self.outs.iter().any(|&r| self.inner.iter().any(|a| a.size == 1 && near(r, a)));
        let apart = self.reds.iter().copied().filter(|&r| !self.inner.iter().any(|a| near(r, a)));
        apart.max_by_key(|&r| self.len(r)).filter(|_| interleaved)
    }

    /// Shares the sum of such a product between threads, beside those of neighbouring results that read side by side: so many of these that they
    /// read whole pieces of memory. Does so where results are few.
    fn share_rows(&self, opts: &mut Vec<Opt>) -> bool {
        let w = self.t.machine.workgroups;
        let Some(r) = self.across_rows() else { return false };
        let threads: usize = self.outs.iter().map(|&r| self.left(r, opts)).product();
        let across = opts
            .iter()
            .any(|o| o.cuts(Part::Lane).is_some() && self.outs.iter().any(|&r| o.axis() == Some(self.id(r))));
        let each = if across { 4 } else { 1 };
        // smaller pieces where whole ones would leave multiprocessors without a workgroup
        let few = threads * each / w.piece < self.t.processors;
        let rows = if few { w.piece / 2 } else { w.piece } / each;
        let most = (self.t.max_local_total as usize / rows).min(SHARED);
        let tile: usize = self.outs.iter().map(|&r| self.len(r).div_ceil(self.left(r, opts).max(1))).product();
        let fits = |f: &usize| self.left(r, opts).is_multiple_of(*f) && tile * rows * f * 4 <= self.t.workgroup_bytes;
        let Some(f) = (1..=6).rev().map(|bits| 1usize << bits).filter(|f| *f <= most).find(fits) else { return false };
        if threads >= w.busy || opts.iter().any(|o| o.axis() == Some(self.id(r))) {
            return false;
        }
        opts.push(Opt::group(self.id(r), f));
        self.local(rows, opts);
        true
    }

    /// A vector times a matrix in blocks whose codes are words, row by row, four codes side by side in each. Threads side by side take words side
    /// by side of a row, some of them at a time. Several rows of a thread share what it reads of the vector, as long as there are threads enough
    /// to have all of the matrix on its way.
    pub(super) fn words_of_rows(&self) -> Option<Vec<Opt>> {
        let w = self.t.machine.workgroups;
        let row = self.outs.iter().copied().rev().find(|&r| BUILT && self.len(r) > 1)?;
        let [words, codes] = self.reds[..] else { return None };
        if !self.t.has_local || self.t.software || self.k.reduces().len() != 1 || self.len(codes) != 4 {
            return None;
        }
        let reads = |a: &Access, r: UOp| a.has(self.id(r));
        // the codes of a word are read with it, and what they are multiplied by is not
        let word = |a: &Access| a.size == 4 && reads(a, row) && reads(a, words) && !reads(a, codes);
        if !self.inner.iter().any(word) || !self.inner.iter().any(|a| reads(a, codes) && !reads(a, row)) {
            return None;
        }
        let all: usize = self.outs.iter().map(|&r| self.len(r)).product();
        let shared = power_of_two_in(self.len(words), self.t.subgroup.max(1) as usize);
        let enough = self.t.processors * w.rows[0];
        let fits = |n: &usize| self.len(row).is_multiple_of(*n) && all / n * shared >= enough;
        let rows = [4, 2].into_iter().find(fits).unwrap_or(1);
        let turns = power_of_two_in(self.len(words) / shared, w.rows[1] / rows);
        let beside = power_of_two_in(self.len(row) / rows, (w.wide / shared).max(1));
        let mut opts = vec![
            Opt::unroll(self.id(codes), 4),
            Opt::group(self.id(words), shared),
            Opt::unroll(self.id(words), turns),
            Opt::upcast(self.id(row), rows),
            Opt::local(self.id(row), beside),
        ];
        opts.retain(|o| !matches!(o, Opt::Cut { by: 1, .. }));
        Some(opts)
    }

    /// Threads: those that share a reduction, then those of the outputs.
    pub(super) fn launch(&self, opts: &mut Vec<Opt>) {
        let w = self.t.machine.workgroups;
        // starting a workgroup of a processor costs as much as some threads that need no sums; on hardware few threads in each would leave
        // it idle, since it holds a number of workgroups at most
        let most = match (self.t.software, self.reds.is_empty()) {
            (true, false) => 32,
            (false, true) => w.wide,
            _ => 64,
        };
        let most = most.min(self.t.max_local_total as usize);
        if !self.t.software && self.share_rows(opts) {
            return;
        }
        let grouped = opts.iter().find_map(|o| o.cuts(Part::Group));
        let shared = match grouped {
            Some(n) => n,
            None if self.t.software => 1,
            None => self.group(opts),
        };
        self.local(most / shared.min(most), opts);
    }

    /// What opts leave of an axis.
    fn left(&self, r: UOp, opts: &[Opt]) -> usize {
        let mut n = self.len(r);
        for o in opts.iter().filter(|o| o.axis() == Some(self.id(r))) {
            match *o {
                Opt::Pad { to, .. } => n = n.next_multiple_of(to as usize),
                // done before the view was made
                Opt::Cut { part: Part::Dot, .. } => {}
                Opt::Cut { by, .. } => n /= by as usize,
                Opt::Swap { .. } | Opt::Join { .. } | Opt::Stage(_) | Opt::Keep { .. } => {}
            }
        }
        n
    }

    /// Shares the reduction between threads where there are too few outputs for the GPU, or where its neighbours in memory
    /// are steps of the reduction: then threads side by side read side by side. Returns how many share it.
    fn group(&self, opts: &mut Vec<Opt>) -> usize {
        let w = self.t.machine.workgroups;
        if self.k.reduces().len() != 1 {
            return 1;
        }
        let threads: usize = self.outs.iter().map(|&r| self.left(r, opts)).product();
        let has_lanes = |r: UOp| opts.iter().any(|o| o.cuts(Part::Lane).is_some() && o.axis() == Some(self.id(r)));
        let lane = self.reds.iter().copied().find(|&r| has_lanes(r));
        let Some(r) = lane.or_else(|| self.reds.iter().copied().max_by_key(|&r| self.left(r, opts))) else { return 1 };
        let few = self.is_few(threads);
        let (steps, most) = (self.left(r, opts), if lane.is_some() || few { w.group } else { SPLIT });
        let fits = |f: &usize| {
            // packed words are neighbours whoever reads them, so short sums are no loss where a small GPU has idle threads
            let short = lane.is_some() || self.lanes.is_some() && threads * f <= w.full[0];
            let rest = if short { 1 } else { LEAST_SHARED };
            steps.is_multiple_of(*f) && steps / f >= rest && (lane.is_some() || threads * f <= 2 * w.busy)
        };
        let f = (2..=6).rev().map(|bits| 1usize << bits).filter(|f| *f <= most).find(fits);
        if lane.is_some() && self.pad_for_all(r, threads, steps, opts) {
            return w.all;
        }
        let Some(f) = f else { return 1 };
        let tile: usize = self.outs.iter().map(|&r| self.len(r).div_ceil(self.left(r, opts).max(1))).product();
        if threads >= w.busy && lane.is_none() || tile * w.group * 8 > self.t.workgroup_bytes {
            return 1;
        }
        let at = match lane {
            // before the axis is cut further
            Some(_) => opts.iter().position(|o| o.cuts(Part::Lane).is_some()).map_or(opts.len(), |i| i + 1),
            None => opts.len(),
        };
        opts.insert(at, Opt::group(self.id(r), f));
        f
    }

    /// Lets a whole workgroup share each of a few long reductions along an axis, which is rounded up for it.
    fn pad_for_all(&self, r: UOp, threads: usize, steps: usize, opts: &mut Vec<Opt>) -> bool {
        let w = self.t.machine.workgroups;
        let (n, own) = (self.len(r), |o: &Opt| o.axis() == Some(self.id(r)));
        let padded = opts.iter().any(|o| own(o) && matches!(o, Opt::Pad { .. }));
        if !BUILT
            || threads > self.t.processors / 4
            || steps < 4 * w.group
            || padded
            || (self.t.max_local_total as usize) < w.all
        {
            return false;
        }
        let whole = n / steps * w.all;
        let at = opts.iter().position(|o| own(o) && o.cuts(Part::Lane).is_some()).map_or(opts.len(), |i| i + 1);
        opts.insert(at, Opt::group(self.id(r), w.all));
        if !n.is_multiple_of(whole) {
            opts.insert(0, Opt::pad(self.id(r), whole));
        }
        true
    }

    /// Threads of a workgroup: from the innermost output axis outwards.
    fn local(&self, mut budget: usize, opts: &mut Vec<Opt>) {
        let w = self.t.machine.workgroups;
        let left = self.outs.iter().map(|&r| (r, self.left(r, opts))).filter(|x| x.1 > 1).collect::<Vec<_>>();
        // those that share a reduction have an axis of their own
        let most = 3 - usize::from(opts.iter().any(|o| o.cuts(Part::Group).is_some()));
        let mut dims = 0;
        for &(r, n) in left.iter().rev() {
            if dims == most || budget < 2 {
                break;
            }
            let limit = budget.min(self.t.max_local[dims] as usize).min(if dims == 0 { w.wide } else { 16 });
            let mut f = (2..=limit).rev().find(|f| n.is_multiple_of(*f)).unwrap_or(1);
            if f < limit / 4 && n > limit {
                // an awkward length: round it up, the last workgroup is partly idle
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
