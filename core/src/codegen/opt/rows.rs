//! Opts for row kernels (softmax, norms): reductions over a row one after the other, then loops over the same row. In:
//! such a kernel. Out: opts for lanes, for values that are kept, and on GPUs for threads that share a row.
//!
//! Either each reduction and each final loop has lanes of its own (rows that are contiguous in memory), or an output
//! loop around all of them has lanes (reductions over columns, many short rows).

use super::wide::wide_values;
use super::{Opt, Part};
use crate::DType::Bool;
use crate::analysis::work::work;
use crate::analysis::{Affine, affine};
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{AxisKind, Op, RangeSet, UOp};
use crate::util::sort;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// A node as the cost estimate sees it.
struct Work {
    ranges: RangeSet,
    /// Number of elements that are computed in all.
    points: f64,
    /// For loads and stores: the address as an affine expression of ranges.
    address: Option<Affine>,
    /// Instructions per vector or scalar.
    ops: f64,
}

/// Cost, in instructions, of combining the lanes after a reduction: shuffles and additions that depend on each other.
const FOLD: f64 = 20.0;

/// A value of at least this many instructions is cheaper to store and load than to compute again.
const KEPT_OPS: f64 = 8.0;
/// The longest row, in elements, that is kept in a local array, of which each thread has one: 4 MB for f32. A softmax of a
/// million elements, which no L2 cache holds, took 0.8 of the time that computing the exponentials twice took.
const KEPT_ELEMS: usize = 1 << 20;

/// Chooses the opts of a row kernel.
pub fn choose(k: &Kernel, t: &Target) -> Vec<Opt> {
    if t.caps.lanes < 2 {
        return Vec::new();
    }
    if let Some(opts) = workgroup(k, t) {
        return opts;
    }
    let work = survey(k);
    let (outer, row) = k.row_loops();
    let mut parts: Vec<Vec<UOp>> = k.reduces().iter().map(|&r| k.g.src(r)[1..].to_vec()).collect();
    if !row.is_empty() {
        parts.push(row);
    }
    let mut own: SmallVec<[UOp; 4]> = parts.iter().filter_map(|p| best(k, t, &work, p)).collect();
    // if two of these ranges are nested, some value depends on both and can have lanes along only one
    while let Some((i, j)) = together(k, &work, &own) {
        let [a, b] = [i, j].map(|x| cost(k, t, &work, &[own[x]]));
        own.remove(if a <= b { j } else { i });
    }
    let rows: usize = outer.iter().map(|&r| k.g.range_len(r)).product();
    let folds = rows as f64 * FOLD * k.reduces().len() as f64;
    let along = cost(k, t, &work, &own) + folds;
    let across = best(k, t, &work, &outer).filter(|&r| cost(k, t, &work, &[r]) < along);
    if let Some(r) = across {
        return lanes(k, t, &[r]);
    }
    let vectors = lanes(k, t, &own);
    let width = vectors.iter().find_map(|o| o.cuts(Part::Lane)).unwrap_or(1);
    let mut opts = kept(k, t, width);
    opts.extend(vectors);
    opts
}

/// Two of these ranges on which one node depends, by their positions in `of`.
fn together(k: &Kernel, work: &[Work], of: &[UOp]) -> Option<(usize, usize)> {
    let has = |w: &Work, r: UOp| w.ranges >> k.g.range_arg(r).id & 1 == 1;
    let pairs = (0..of.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
    pairs.into_iter().find(|&(i, j)| work.iter().any(|w| has(w, of[i]) && has(w, of[j])))
}

/// On a hardware GPU: opts with which the threads of a workgroup share each reduction over a long row, and the loops
/// that use the results.
fn workgroup(k: &Kernel, t: &Target) -> Option<Vec<Opt>> {
    const SHORT: usize = 64;
    // the most vectors of a row that a thread keeps in registers, and the most elements over all arrays that the kernel
    // reads
    const STEPS: usize = 8;
    const HELD: usize = 64;
    let g = &k.g;
    let (outer, mut ranges) = k.row_loops();
    for u in k.reduces() {
        ranges.extend(g.src(u)[1..].iter().copied().filter(|r| !ranges.contains(r)).collect::<Vec<_>>());
    }
    let n = g.range_len(*ranges.first()?);
    if t.machine.software || !t.caps.has_local || n < SHORT || ranges.iter().any(|&r| g.range_len(r) != n) {
        return None;
    }
    let along = |r: UOp| {
        let id = g.range_arg(r).id;
        let memory = k.nodes().into_iter().filter(|&u| matches!(g.op(u), Op::Load | Op::Store));
        let mut strides = memory.map(|u| g.src_at(u, 0)).filter(|&i| g.ranges(i) >> id & 1 == 1);
        may_vectorise(k, t, r) && strides.all(|i| affine(g, g.src_at(i, 1)).stride(g, r) == Some(1))
    };
    if !ranges.iter().all(|&r| along(r)) {
        return None;
    }
    let lanes = if n.is_multiple_of(t.caps.lanes) { t.caps.lanes } else { 1 };
    let units = n / lanes;
    let rows: usize = outer.iter().map(|&r| g.range_len(r)).product();
    // many threads per row if there are few rows or if rows are long
    let loads = k.nodes().into_iter().filter(|&u| g.op(u) == Op::Load);
    let arrays: FxHashSet<Option<u32>> = loads.map(|u| k.slot_below(g.src_at(u, 0))).collect();
    let held = STEPS.min(HELD / (lanes * arrays.len().max(1)));
    let long = [64, 128].into_iter().find(|f| units <= held * f).unwrap_or(256);
    let most = if rows < 1024 { 256 } else { long }.min(t.limits.max_local_total as usize);
    let waste = |f: usize| units.next_multiple_of(f) * 8 <= units * 9;
    let f = [256, 128, 64, 32, 16].into_iter().filter(|&f| f <= most && f * 2 <= units.max(32)).find(|&f| waste(f))?;
    // a row that is read several times is kept in registers: all steps are unrolled
    let steps = units.div_ceil(f);
    let whole = steps > 1 && steps <= held;
    let mut trial = k.clone();
    let mut opts = Vec::new();
    for &r in &ranges {
        let axis = g.range_arg(r).id;
        if lanes > 1 {
            opts.push(Opt::lane(axis, lanes));
        }
        if !units.is_multiple_of(f) {
            opts.push(Opt::pad(axis, f));
        }
        let reduced = g.kind(r).is_reduce();
        opts.push(if reduced { Opt::group(axis, f) } else { Opt::local(axis, f) });
        if whole {
            opts.push(if reduced { Opt::unroll(axis, steps) } else { Opt::upcast(axis, steps) });
        }
    }
    // opts of reductions come before those of the loops that use them
    sort::by_key(&mut opts, |o| {
        !g.kind(ranges[ranges.iter().position(|&r| Some(g.range_arg(r).id) == o.axis()).unwrap_or(0)]).is_reduce()
    });
    trial.apply_all(&opts, t).ok().map(|()| opts)
}

/// Opts that keep expensive values, which several loops over a row compute, in a local array, if a row is short enough
/// for the caches.
fn kept(k: &Kernel, t: &Target, width: usize) -> Vec<Opt> {
    if t.caps.has_local {
        return Vec::new();
    }
    let mut k = k.clone();
    let mut opts = Vec::new();
    for r in k.ranges_of(AxisKind::Reduce) {
        let n = k.g.range_len(r);
        if n < width || n > KEPT_ELEMS {
            continue;
        }
        let Some(found) = k.repeated(r) else { continue };
        let id = k.g.range_arg(r).id;
        let own = |u: &UOp| k.g.ranges(*u) >> id & 1 == 1 && k.g.dtype(*u).size() >= 4;
        let parts = k.g.reachable(&[found.first.0]);
        let ops: f64 = parts.into_iter().filter(own).map(|u| instructions(&k, u)).sum();
        let opt = Opt::keep(id);
        if ops >= KEPT_OPS && k.apply(&opt, t).is_ok() {
            opts.push(opt);
        }
    }
    opts
}

fn survey(k: &Kernel) -> Vec<Work> {
    let g = &k.g;
    let all = k.ranges();
    let mut out = Vec::new();
    for u in k.nodes() {
        let ranges = match g.op(u) {
            Op::Reduce => g.ranges(g.src_at(u, 0)),
            _ => g.ranges(u),
        };
        let memory = matches!(g.op(u), Op::Load | Op::Store);
        let address = memory.then(|| affine(g, g.src_at(g.src_at(u, 0), 1)));
        let ops = instructions(k, u);
        if ops == 0.0 {
            continue;
        }
        let points = all.iter().filter(|&&r| ranges >> g.range_arg(r).id & 1 == 1);
        let points = points.map(|&r| g.range_len(r) as f64).product();
        out.push(Work { ranges, points, address, ops });
    }
    out
}

/// Instructions of a node, per vector or scalar.
fn instructions(k: &Kernel, u: UOp) -> f64 {
    match k.g.op(u) {
        Op::Load | Op::Store | Op::Reduce => 1.0,
        // integer arithmetic is mostly addresses
        _ if k.g.dtype(u).is_int() => 0.0,
        op => f64::from(work(op).instructions),
    }
}

/// Estimated instructions of the kernel if these ranges have lanes.
fn cost(k: &Kernel, t: &Target, work: &[Work], lanes: &[UOp]) -> f64 {
    let n = t.caps.lanes as f64;
    let one = |w: &Work| {
        let lane = lanes.iter().find(|&&r| w.ranges >> k.g.range_arg(r).id & 1 == 1);
        let Some(&r) = lane else { return w.points * w.ops };
        let len = k.g.range_len(r);
        let waste = len.next_multiple_of(t.caps.lanes) as f64 / len as f64;
        let each = match w.address.as_ref().map(|a| a.stride(&k.g, r)) {
            None | Some(Some(1)) => 1.0 / n,
            Some(_) => 1.5,
        };
        w.points * w.ops * waste * each
    };
    work.iter().map(one).sum()
}

/// The range for which lanes give the lowest cost.
fn best(k: &Kernel, t: &Target, work: &[Work], ranges: &[UOp]) -> Option<UOp> {
    let fits = ranges.iter().copied().filter(|&r| k.g.range_len(r) > 1 && may_vectorise(k, t, r));
    let costs = fits.map(|r| (cost(k, t, work, &[r]), r));
    // among equals the inner one
    costs.reduce(|a, b| if b.0 <= a.0 { b } else { a }).map(|c| c.1)
}

/// May the range have lanes? All values that depend on it must be 32 bits wide, or 64 if the target has vectors of them
/// and they compute no address; narrow types may be loaded, stored and converted.
fn may_vectorise(k: &Kernel, t: &Target, r: UOp) -> bool {
    let g = &k.g;
    let wide = if t.caps.wide_vectors { wide_values(k).1 } else { Vec::new() };
    let id = g.range_arg(r).id;
    k.nodes().into_iter().filter(|&u| g.ranges(u) >> id & 1 == 1).all(|u| {
        let dt = g.dtype(u);
        let moved = matches!(g.op(u), Op::Load | Op::Store | Op::Index | Op::Param | Op::Cast);
        match dt.size() {
            0 | 4 => true,
            1 | 2 => dt == Bool || moved && !t.caps.has_local || widened(k, u, t),
            _ => wide.contains(&u),
        }
    })
}

/// Does the node have a narrow dtype that the GPU stores as such, and computes in 32 bits?
pub(super) fn widened(k: &Kernel, u: UOp, t: &Target) -> bool {
    t.caps.has_local && t.caps.storage.has(k.g.dtype(u)) && k.g.op(u) != Op::Bitcast
}

/// Opts that give each of the ranges lanes of the same width.
fn lanes(k: &Kernel, t: &Target, ranges: &[UOp]) -> Vec<Opt> {
    let len = |r: UOp| k.g.range_len(r);
    // several vectors at once hide the latency of accumulators: an iteration costs about one vector more than it has
    let most = t.machine.row_vectors;
    let steps = |v: usize| -> usize { ranges.iter().map(|&r| len(r).div_ceil(t.caps.lanes * v)).sum() };
    let vectors = (1..=most).min_by_key(|&v| (steps(v) * (v + 1), std::cmp::Reverse(v))).unwrap_or(1);
    let width = t.caps.lanes * vectors;
    let mut opts = Vec::new();
    for &r in ranges {
        let axis = k.g.range_arg(r).id;
        // the last vector of a row may overlap the one before
        let overlap = !t.caps.has_local && !k.g.kind(r).is_reduce() && len(r) > width && k.repeatable();
        if !len(r).is_multiple_of(width) && !overlap {
            opts.push(Opt::pad(axis, width));
        }
        opts.push(Opt::lane(axis, width));
    }
    opts
}
