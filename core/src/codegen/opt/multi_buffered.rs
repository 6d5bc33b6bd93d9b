//! Opts for contractions without matrix tiles on GPUs with asynchronous copies to workgroup memory: blocks of both
//! factors are staged there, some blocks ahead of the computation. In: a kernel with one sum of products of two loads
//! of f32. Out: opts, or `None` if another choice of opts is needed.
//!
//! Rows are the axes on which only one factor depends, columns those on which only the other one does, and terms those
//! of the sum. Several axes of a kind are fused into one, so that a convolution becomes a matrix product whose second
//! factor is copied element by element, with zeros for padding. The rows and columns of a thread have a stride of the
//! number of threads along them: those of neighbouring threads lie in between, in different banks of workgroup memory.

use super::heuristic::{Access, View};
use super::{Level, Opt};
use crate::analysis::product::{factors, sides};
use crate::codegen::axes::Kernel;
use crate::codegen::shared;
use crate::target::{Copies, Target};
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Op, UOp};

/// Rows and columns of a thread, in the order in which they are tried. With more than 64 results there is no room for a
/// second workgroup of the same size on a processor.
const THREADS: [(usize, usize); 8] = [(16, 8), (8, 8), (8, 12), (8, 4), (6, 4), (4, 8), (4, 4), (4, 12)];
/// Threads of a workgroup along rows and along columns, and the range of their product.
const DOWN: [usize; 3] = [4, 8, 16];
const ACROSS: [usize; 3] = [8, 14, 16];
const GROUP: std::ops::RangeInclusive<usize> = 64..=256;
/// Threads that share a sum: each takes some terms of every block. More than one only where both factors are copied in
/// pieces of 16 bytes.
const SHARED: [usize; 3] = [1, 2, 4];
/// Terms of a block, which are copied at a time: at least, preferred, and at most.
const BLOCK: [usize; 3] = [8, 16, 40];
/// The most terms in an unrolled loop body.
const BODY: usize = 16;
/// A sum with at least `LONG` terms is worth so many registers that only one workgroup fits on a processor; in others a
/// thread has at most `RESULTS` results.
const LONG: usize = 512;
const RESULTS: usize = 64;

/// A kernel seen as a matrix product: which of its loops are rows, columns and terms.
struct Shape {
    joins: Vec<Opt>,
    /// Range ids of the rows, the columns and the terms.
    axes: [u8; 3],
    lens: [usize; 3],
    /// Number of independent products (the remaining output axes).
    others: usize,
    /// Parameter slots of the factors.
    slots: [u32; 2],
    /// Whether each factor is contiguous along the terms.
    along: [bool; 2],
    /// Whether each factor is copied in pieces of 16 bytes.
    whole: [bool; 2],
    /// Number of terms of a convolution window, which blocks keep together.
    window: usize,
}

/// If the workgroups would leave most of the GPU idle, sums of at least this many terms are left to other kernels, in
/// which more threads share a sum.
const SHARED_BY_MORE: usize = 512;

/// Results of a thread (`each`) and threads of a workgroup, along rows and columns.
#[derive(Clone, Copy)]
struct Plan {
    each: [usize; 2],
    threads: [usize; 2],
    /// Number of threads that share a sum.
    shared: usize,
    cost: f64,
}

impl View<'_> {
    /// Opts for a product whose factors are copied ahead, if the kernel is one and there are enough workgroups.
    pub(super) fn multi_buffered(&self) -> Option<Vec<Opt>> {
        if !MATRIX_TILES_ENABLED || self.t.machine.software || self.t.caps.lanes != 4 {
            return None;
        }
        let copies = self.t.caps.copies?;
        let best = [false, true].into_iter().filter_map(|joined| {
            let shape = self.shape(joined)?;
            let block = block(&shape)?;
            let plan = shape.plan(self.t, block, copies)?;
            Some((shape, block, plan))
        });
        let (shape, block, plan) = best.min_by(|a, b| a.2.cost.total_cmp(&b.2.cost))?;
        let w = self.t.machine.workgroups;
        let idle = w.idle_processors_per_workgroup * shape.groups(&plan) < self.t.machine.processors;
        if idle && shape.lens[2] >= SHARED_BY_MORE {
            return None;
        }
        let opts = shape.opts(self.k, self.t, block, plan)?;
        let mut trial = self.k.clone();
        trial.apply_all(&opts, self.t).ok()?;
        shared::copies_all(&trial, 2).then_some(opts)
    }

    /// The kernel as a product of two loads: with its longest axis of rows and of columns, or with all rows and all
    /// columns fused.
    fn shape(&self, joined: bool) -> Option<Shape> {
        let g = &self.k.g;
        let [sum] = *self.k.reduces() else { return None };
        let pair = factors(g, sum)?;
        let loads = pair.iter().all(|&u| g.op(u) == Op::Load && g.dtype(u).is_float() && g.dtype(u).size() == 4);
        if !loads || g.dtype(sum).size() != 4 {
            return None;
        }
        let sets = pair.map(|u| g.ranges(u));
        let found = sides(g, &self.out_axes, sets);
        let both = sides(g, &self.reduce_axes, sets).both;
        // lanes run along columns, so the columns are the axis that is contiguous in the result
        let contiguous = |list: &[UOp]| list.iter().any(|&r| self.store_stride(r) == Some(1));
        let swap_factors = contiguous(&found.own[0]) && !contiguous(&found.own[1]);
        let order = if swap_factors { [1, 0] } else { [0, 1] };
        let lists = order.map(|i| &found.own[i]);
        if both.len() != self.reduce_axes.len() || lists.iter().any(|l| l.is_empty()) || !self.reduce_axes.is_sorted() {
            return None;
        }
        let mut joins = Vec::new();
        let mut join = |list: &[UOp]| {
            let first = self.id(list[0]);
            joins.extend(list[1..].iter().map(|&r| Opt::join(first, self.id(r))));
            first
        };
        let terms = join(&self.reduce_axes);
        let axes = match joined {
            true => [join(lists[0]), join(lists[1]), terms],
            false => {
                let row = lists[0].iter().copied().max_by_key(|&r| self.len(r))?;
                let contiguous = lists[1].iter().copied().find(|&r| self.store_stride(r) == Some(1));
                let column = contiguous.or_else(|| lists[1].iter().copied().max_by_key(|&r| self.len(r)))?;
                [self.id(row), self.id(column), terms]
            }
        };
        if joined && lists.iter().all(|l| l.len() == 1) {
            return None;
        }
        let mut k = self.k.clone();
        k.apply_all(&joins, self.t).ok()?;
        let view = View::new(&k, self.t);
        let ranges = axes.map(|id| k.range_by_id(id));
        let [Some(row), Some(column), Some(term)] = ranges else { return None };
        let slots = order.map(|i| self.k.slot_below(g.src_at(pair[i], 0)));
        let [Some(a), Some(b)] = slots else { return None };
        let access = |slot: u32| view.inner.iter().find(|x| x.slot == Some(slot));
        let (x, y) = (access(a)?, access(b)?);
        let stride = |x: &Access, r: UOp| x.affine.stride(&k.g, r);
        let along = [(x, row), (y, column)].map(|(x, r)| stride(x, term) == Some(1) && stride(x, r) != Some(1));
        let whole = [(x, along[0], row), (y, along[1], column)].map(|(x, along, r)| {
            let last = if along { term } else { r };
            let rest = x.affine.terms.iter().all(|t| t.0 == last || t.1 % 4 == 0);
            stride(x, last) == Some(1) && x.affine.is_whole() && rest && x.affine.constant % 4 == 0
        });
        let lens = [row, column, term].map(|r| k.g.range_len(r));
        let all: usize = view.out_axes.iter().map(|&r| k.g.range_len(r)).product();
        let window = self.reduce_axes[1..].iter().map(|&r| self.len(r)).product();
        Some(Shape { joins, axes, lens, others: all / (lens[0] * lens[1]).max(1), slots: [a, b], along, whole, window })
    }
}

/// The number of terms of a block: whole windows, and preferably a multiple of 4, so that rows can be copied in pieces
/// of 16 bytes.
fn block(s: &Shape) -> Option<usize> {
    let [least, want, most] = BLOCK;
    let n = s.lens[2];
    let fits = |f: &usize| n.is_multiple_of(*f) && n / f >= 2 && f.is_multiple_of(s.window.min(n)) && body(*f) > 1;
    let mismatch = |f: &usize| (!f.is_multiple_of(4), f.abs_diff(if s.window > 1 { most } else { want }));
    let exact = (least..=most.max(s.window)).filter(fits).min_by_key(mismatch);
    exact.or_else(|| (n > want && s.window == 1).then_some(want))
}

/// The number of terms in the unrolled body of the loop over a block; 1 if there is no suitable divisor.
fn body(block: usize) -> usize {
    (2..=BODY.min(block)).filter(|&f| block.is_multiple_of(f)).max_by_key(|&f| (f.is_multiple_of(4), f)).unwrap_or(1)
}

impl Shape {
    /// Number of workgroups.
    fn groups(&self, p: &Plan) -> usize {
        let side = |i: usize| self.lens[i].div_ceil(p.each[i] * p.threads[i]);
        self.others * side(0) * side(1)
    }

    fn plan(&self, t: &Target, block: usize, copies: Copies) -> Option<Plan> {
        let mut best: Option<Plan> = None;
        for shared in SHARED {
            let all = block * shared;
            let shares = self.whole == [true, true] && block.is_multiple_of(4) && self.lens[2].is_multiple_of(all);
            if shared > 1 && !(shares && self.lens[2] / all >= 2) {
                continue;
            }
            for each in THREADS {
                for (down, across) in DOWN.iter().flat_map(|&d| ACROSS.iter().map(move |&a| (d, a))) {
                    // shared sums, and elements that are copied one by one, need more registers for addresses
                    let most = match self.whole {
                        [true, true] if shared == 1 && self.lens[2] >= LONG => usize::MAX,
                        [true, true] => RESULTS,
                        _ => RESULTS / 2,
                    };
                    if each.0 * each.1 > most {
                        continue;
                    }
                    let plan = Plan { each: [each.0, each.1], threads: [down, across], shared, cost: 0.0 };
                    let Some(cost) = self.cost(t, block, copies, &plan) else { continue };
                    if best.is_none_or(|b| cost < b.cost) {
                        best = Some(Plan { cost, ..plan });
                    }
                }
            }
        }
        best
    }

    /// Cycles of the whole product, or `None` if this division does not fit.
    fn cost(&self, t: &Target, block: usize, copies: Copies, p: &Plan) -> Option<f64> {
        let w = t.machine.workgroups;
        let threads = p.threads[0] * p.threads[1] * p.shared;
        let sides = [0, 1].map(|i| p.each[i] * p.threads[i]);
        let terms = block * p.shared;
        let pitch = |i: usize| if self.along[i] && terms.is_multiple_of(8) { terms + 4 } else { terms };
        let bytes = 4 * (sides[0] * pitch(0) + sides[1] * pitch(1));
        let starts = [0, 1].map(|i| sides[i] * terms / threads / if self.whole[i] { 4 } else { 1 });
        let vectors = self.along[0] || p.each[0].is_multiple_of(4);
        let fits = vectors && GROUP.contains(&threads) && threads.is_multiple_of(32) && 2 * bytes <= copies.bytes;
        if !fits || starts.iter().any(|&n| n >= shared::UNROLLED_ASYNC) {
            return None;
        }
        let groups = self.lens[0].div_ceil(sides[0]) * self.lens[1].div_ceil(sides[1]) * self.others;
        let (results, warps) = ((p.each[0] * p.each[1]) as f64, threads as f64 / 32.0);
        // cycles per term: for all threads together, and (below, `alone`) for a single thread
        let multiplies = results * threads as f64 / w.lanes as f64;
        let reads = [0, 1].map(|i| p.each[i] as f64 / 4.0);
        // threads that share a sum read different terms, and so more addresses at once
        let places = if p.shared > 1 { w.shared_read_cycles[2] } else { 1.0 };
        let reading = warps * places * (reads[0] * w.shared_read_cycles[0] + reads[1] * w.shared_read_cycles[1]);
        let copied = (starts[0] + starts[1]) as f64 / block as f64 * threads as f64 * w.copy;
        let term = multiplies.max(reading) + 0.25 * multiplies.min(reading) + copied;
        let alone = (results + reads[0] + reads[1]) * block as f64;
        // workgroups per processor: in all, and at the same time
        let all = groups.div_ceil(t.machine.processors.max(1));
        let held = w.registers / results.max(RESULTS as f64 / 2.0) as usize / threads;
        let room = held.min(copies.bytes / (copies.blocks * bytes)).max(1);
        let waiting = w.half_stall_warps[usize::from(self.whole != [true, true])];
        let round = |n: usize| {
            let busy = n as f64 * warps;
            let block_cycles = (n as f64 * term * block as f64 * (busy + waiting) / busy)
                .max(alone * (busy / w.parallel_warps).max(1.0) + w.loop_overhead_cycles[1]);
            let adds = if p.shared > 1 { w.loop_overhead_cycles[2] * results / 16.0 } else { 0.0 };
            block_cycles * (self.lens[2] as f64 / terms as f64) + w.loop_overhead_cycles[0] + adds
        };
        let rest = if all % room > 0 { round(all % room) } else { 0.0 };
        Some((all / room) as f64 * round(room) + rest)
    }

    fn opts(&self, k: &Kernel, t: &Target, block: usize, p: Plan) -> Option<Vec<Opt>> {
        let mut trial = k.clone();
        let mut opts = Vec::new();
        let mut put = |trial: &mut Kernel, opt: Opt| -> Option<()> {
            if !matches!(opt, Opt::Cut { by: 1, .. }) {
                trial.apply(&opt, t).ok()?;
                opts.push(opt);
            }
            Some(())
        };
        for &join in &self.joins {
            put(&mut trial, join)?;
        }
        let [row, column, terms] = self.axes;
        // vectors run along the terms if these are contiguous, or else along adjacent rows or columns
        let pieces = [0, 1].map(|i| if self.along[i] { 1 } else { 4 });
        for (i, axis) in [row, column].into_iter().enumerate() {
            let (each, threads) = (p.each[i] / pieces[i], p.threads[i]);
            let whole = self.lens[i].is_multiple_of(pieces[i]);
            if !whole && !self.lens[i].is_multiple_of(p.each[i] * threads) {
                put(&mut trial, Opt::pad(axis, p.each[i] * threads))?;
            }
            if pieces[i] > 1 {
                put(&mut trial, if i == 0 { Opt::upcast(axis, pieces[i]) } else { Opt::lane(axis, pieces[i]) })?;
            }
            if whole && !self.lens[i].is_multiple_of(p.each[i] * threads) {
                put(&mut trial, Opt::pad(axis, each * threads))?;
            }
            put(&mut trial, Opt::local(axis, threads))?;
            put(&mut trial, Opt::upcast(axis, each))?;
        }
        if !self.lens[2].is_multiple_of(block) {
            put(&mut trial, Opt::pad(terms, block))?;
        }
        let inner = trial.next_id;
        put(&mut trial, Opt::split(terms, block * p.shared))?;
        let mut body = body(block);
        if p.shared > 1 {
            // the threads that share a sum take alternate vectors of 4 terms
            body /= 4;
            put(&mut trial, Opt::unroll(inner, 4))?;
            put(&mut trial, Opt::group(inner, p.shared))?;
        }
        put(&mut trial, Opt::unroll(inner, body))?;
        for slot in self.slots {
            let staging = super::Staging { param: slot, load: 0, level: Level::In(terms), separate_windows: true };
            put(&mut trial, Opt::Stage(staging))?;
        }
        Some(opts)
    }
}
