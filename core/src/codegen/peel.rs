//! Splits the innermost loop of a kernel into its first iterations, its middle and its last iterations (loop peeling),
//! where masks matter only in the first and last ones: padded windows, reflections, concatenated tensors. The middle
//! loop then has no masks. Before that, a select between two loads from one buffer becomes one load from a selected
//! address, if the condition is the same for the whole tile.
//!
//! In: a kernel whose opts are applied, with the loops that the launch has left. Out: the same Stores once for each
//! part; the parts' loops are in [`Kernel::peeled_loops`] and follow one another inside all other loops. Kernels with
//! reduction loops stay as they are: in them masks take little of the time, and the code of a part is long.

use super::axes::Kernel;
use crate::analysis::linear::Linear;
use crate::rewrite::substitute1;
use crate::rules::{simplify_under, simplify_with};
use crate::uop::{AxisKind, Op, RangeSet, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The fewest iterations of a loop that is split, in kernels without reductions and in kernels with (unrolled) ones.
const LEAST: [usize; 2] = [2, 3];
/// The largest kernel, in nodes, whose code may be repeated three times.
const MOST_NODES: usize = 600;

/// Merges selected loads, and splits the innermost loop if its middle part then has fewer masks.
pub(super) fn split(k: &mut Kernel) {
    choose_addresses(k);
    let Some(&r) = k.ranges_of(AxisKind::Loop).last() else { return };
    let (n, nodes) = (k.g.range_len(r), k.nodes());
    let kept = |&u: &UOp| match k.g.op(u) {
        Op::Range => matches!(k.g.kind(u), AxisKind::Walk | AxisKind::Reduce),
        op => op == Op::Stage,
    };
    let ends = !k.needed_conditions.is_empty() || !k.needed_iterations.is_empty() || !k.loop_limits.is_empty();
    let least = LEAST[usize::from(nodes.iter().any(|&u| k.g.op(u) == Op::Reduce))];
    if n < least || ends || nodes.len() > MOST_NODES || nodes.iter().any(kept) {
        return;
    }
    let mut best = (masks(k, k.sink, r), None);
    // the last tile of a row may overlap the one before it, so that the border is in the last two iterations
    for (first, last) in [(0, 1), (1, 0), (1, 1), (0, 2), (1, 2)].into_iter().filter(|(first, last)| first + last < n) {
        let Some((p, middle)) = piece(k, r, first, n - last) else { return };
        let left = masks(k, middle, p);
        if left < best.0 {
            best = (left, Some((first, last, p, middle)));
        }
    }
    let Some((first, last, p, middle)) = best.1 else { return };
    let mut pieces: SmallVec<[(UOp, UOp); 3]> = SmallVec::from_slice(&[(p, middle)]);
    for (at, from, to) in [(0, 0, first), (first.min(1) + 1, n - last, n)].into_iter().filter(|x| x.1 < x.2) {
        let Some(edge) = piece(k, r, from, to) else { return };
        pieces.insert(at, edge);
    }
    let mut stores: SmallVec<[UOp; 4]> = SmallVec::new();
    for (index, sink) in pieces {
        stores.extend(k.g.srcs(sink));
        k.peeled_loops.extend(Some(index).filter(|&p| k.g.op(p) == Op::Range));
    }
    k.sink = k.g.sink(&stores);
}

/// The iterations `from..to` as a separate loop, or as straight-line code if it is a single iteration: the loop's range
/// (or the constant index) and a sink with the Stores.
fn piece(k: &mut Kernel, r: UOp, from: usize, to: usize) -> Option<(UOp, UOp)> {
    let start = k.g.idx(from as i64);
    let (index, at) = match to - from {
        1 => (start, start),
        n => {
            let p = k.new_range(n, AxisKind::Loop, false).ok()?;
            (p, k.g.binary(Op::Add, p, start))
        }
    };
    let sink = substitute1(&mut k.g, k.sink, &[(r, at)].into_iter().collect());
    Some((index, simplify_with(&mut k.g, sink, &mut k.memo)))
}

/// Number of comparisons that depend on the loop.
fn masks(k: &Kernel, sink: UOp, index: UOp) -> usize {
    let all = k.g.reachable(&[sink]);
    all.iter()
        .filter(|&&u| matches!(k.g.op(u), Op::CmpLt | Op::CmpNe) && k.g.ranges(u) & k.g.ranges(index) != 0)
        .count()
}

/// Replaces a select between two loads from one buffer by one load from a selected address, where the condition is the
/// same for the whole tile.
fn choose_addresses(k: &mut Kernel) {
    let tile = |r: &UOp| !matches!(k.g.kind(*r), AxisKind::Loop | AxisKind::Grid(_) | AxisKind::Reduce);
    let tile = k.ranges().into_iter().filter(tile).fold(0, |m: RangeSet, r| m | k.g.ranges(r));
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut chosen = false;
    for u in k.nodes() {
        let src: SmallVec<[UOp; 4]> = k.g.src(u).iter().map(|s| image[s]).collect();
        let new = k.g.with_src(u, &src);
        let one = chosen_load(k, new, tile);
        chosen |= one.is_some();
        image.insert(u, one.unwrap_or(new));
    }
    if chosen {
        k.sink = simplify_with(&mut k.g, image[&k.sink], &mut k.memo);
    }
}

/// The load that replaces the select, if both addresses differ by an amount that is the same for the whole tile.
fn chosen_load(k: &mut Kernel, u: UOp, tile: RangeSet) -> Option<UOp> {
    let (Op::Where, &[c, x, y]) = (k.g.op(u), &k.g.srcs(u)[..]) else { return None };
    let (Op::Load, Op::Load, 0) = (k.g.op(x), k.g.op(y), k.g.ranges(c) & tile) else { return None };
    let (of, to) = (k.g.srcs(x), k.g.srcs(y));
    let (p, i, j) = (k.g.src_at(of[0], 0), k.g.src_at(of[0], 1), k.g.src_at(to[0], 1));
    let mut difference = Linear::of(&k.g, i);
    difference.add(&Linear::of(&k.g, j), -1);
    difference.sort(&k.g);
    let dt = k.g.dtype(j);
    let difference = difference.build(&mut k.g, dt)?;
    if p != k.g.src_at(to[0], 0) || k.g.op(p) != Op::Param || k.g.ranges(difference) & tile != 0 {
        return None;
    }
    let (yes, zero) = (k.g.bool(true), k.g.idx(0));
    let no = k.g.binary(Op::CmpNe, c, yes);
    let no = simplify_with(&mut k.g, no, &mut k.memo);
    let a = of.get(2).map_or(yes, |&gate| simplify_under(&mut k.g, c, gate));
    let b = to.get(2).map_or(yes, |&gate| simplify_under(&mut k.g, no, gate));
    let (gate, by) = (k.g.select(c, a, b), k.g.select(c, difference, zero));
    let gate = simplify_with(&mut k.g, gate, &mut k.memo);
    let at = k.g.binary(Op::Add, j, by);
    let index = k.g.index(p, at);
    let alt = of.get(1).or(to.get(1)).copied();
    if gate != yes && to.get(1).is_some_and(|&other| Some(other) != alt) {
        return None;
    }
    let index = simplify_with(&mut k.g, index, &mut k.memo);
    Some(match alt.filter(|_| gate != yes) {
        Some(alt) => k.g.load_gated(index, alt, gate),
        None => k.g.load(index),
    })
}
