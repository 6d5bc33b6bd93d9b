//! Lets loops end early where a mask makes all further iterations useless: the keys after a query in causal attention,
//! the zeros of a triangular matrix. A masked term of a sum or a maximum is the identity of the reduction, so the
//! iterations after the last unmasked one need not run, nor the iterations that fill a local array for them.
//!
//! [`find`] runs before any opt, while conditions are still simple, and puts them into `Kernel::loop_limits`, where
//! opts rewrite them together with the loops. [`ends`] turns the conditions into loop bounds that depend only on outer
//! loops, and [`apply`] puts these bounds into the finished loops.
//!
//! A term of a sum is taken to be zero if one of its factors is, as everywhere (`schedule/lower/sums.rs`). In the
//! softmax of a row whose largest value is -Inf or NaN every term is NaN, masked or not: a loop runs at least one
//! iteration, so that its sum is NaN too.

use super::axes::Kernel;
use super::peel;
use crate::DType;
use crate::rewrite::substitute1;
use crate::rules::{simplify_with, upper_limit};
use crate::uop::{Arg, AxisKind, Graph, Op, RangeArg, RangeSet, ReduceOp, UOp, graph::MAX_RANGES};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// The most nodes that the search for one condition visits.
const MOST_NODES: usize = 64;
/// All loops under one mask end at the same element, rounded up to whole iterations of each loop, that is to a common
/// multiple of the elements that one iteration of each covers. If that multiple exceeds this number of elements, so
/// little would be skipped that the loops keep their full length.
const MOST_COMMON: i64 = 1024;

/// The fewest elements of a loop for which an early end pays.
const LEAST: i64 = 32;

/// Ids of ranges that run over the same elements under the same mask.
type MaskGroup = Vec<u8>;

/// The functions of this pass, in a table that [`enable`] fills at run time, as in [`super::live`]: a browser build
/// that computes only on a GPU, where the threads of a workgroup run loops together, does not have to download them.
struct Hooks {
    find: fn(&mut Kernel) -> Vec<MaskGroup>,
    ends: fn(&mut Kernel, &[MaskGroup]),
    peel: fn(&mut Kernel),
}

static HOOKS: OnceLock<Box<Hooks>> = OnceLock::new();

/// Enables early ends of loops. Only WebAssembly modules have to call it; native builds always have them enabled.
pub fn enable() {
    let hooks = || Hooks { find: find_in, ends: ends_in, peel: peel::split };
    HOOKS.get_or_init(|| Box::new(hooks()));
}

fn hooks() -> Option<&'static Hooks> {
    if cfg!(not(target_arch = "wasm32")) {
        enable();
    }
    HOOKS.get().map(|hooks| &**hooks)
}

/// Finds the loops that a mask can end early, puts their conditions into `k.loop_limits`, and returns the groups of
/// loops that share a mask.
pub fn find(k: &mut Kernel) -> Vec<MaskGroup> {
    hooks().map_or(Vec::new(), |hooks| (hooks.find)(k))
}

/// Replaces the conditions in `k.loop_limits` by loop bounds, once the opts are applied.
pub fn ends(k: &mut Kernel, groups: &[MaskGroup]) {
    match hooks() {
        Some(hooks) => (hooks.ends)(k, groups),
        None => k.loop_limits.clear(),
    }
}

/// Splits the first and last iterations off the innermost loop, if masks matter only there: [`peel::split`].
pub fn peel_loops(k: &mut Kernel) {
    if let Some(hooks) = hooks() {
        (hooks.peel)(k);
    }
}

fn find_in(k: &mut Kernel) -> Vec<MaskGroup> {
    let nodes = k.nodes();
    let masks = |u: &UOp| k.g.op(*u) == Op::CmpLt;
    if k.next_id as usize >= MAX_RANGES || !nodes.iter().any(masks) {
        return k.loop_limits.iter().map(|t| vec![t.0]).collect();
    }
    let mut found: Vec<(UOp, MaskGroup)> = Vec::new();
    // by range id: the mask of the range, as a key that identifies its group; `None` if its reductions do not all have
    // the same mask
    let mut of: FxHashMap<u8, Option<UOp>> = FxHashMap::default();
    for &u in &nodes {
        let (Op::Reduce, &Arg::Reduce(op, _)) = (k.g.op(u), k.g.arg(u)) else { continue };
        for r in k.g.srcs(u).into_iter().skip(1) {
            let mut left = MOST_NODES;
            let x = k.g.src_at(u, 0);
            let cond = match op {
                ReduceOp::Add => zero_unless(k, x, r, &mut left),
                ReduceOp::Max => neg_inf_unless(k, x, r, &mut left),
                _ => None,
            };
            let key = cond.map(|c| key(k, c, r));
            let id = k.g.range_arg(r).id;
            match of.get(&id) {
                Some(old) if *old != key => _ = of.insert(id, None),
                _ => _ = of.insert(id, key),
            }
        }
    }
    let stages: Vec<UOp> = nodes.iter().rev().copied().filter(|&u| k.g.op(u) == Op::Stage).collect();
    for s in stages {
        for (i, p) in k.g.srcs(s).into_iter().skip(1).enumerate() {
            let read = readers(k, &nodes, s, i);
            let of_one = |r: &Option<UOp>| of.get(&k.g.range_arg((*r)?).id).copied().flatten();
            let Some(key) = read.first().and_then(of_one).filter(|_| k.g.op(p) == Op::Range) else { continue };
            // the mask has to be computable where the array is filled
            let own = 1 << (MAX_RANGES - 1) | k.g.ranges(s);
            if read.iter().all(|r| of_one(r) == Some(key)) && k.g.ranges(key) & !own == 0 {
                of.insert(k.g.range_arg(p).id, Some(key));
            }
        }
    }
    let taps: Vec<MaskGroup> = k.loop_limits.iter().map(|t| vec![t.0]).collect();
    for r in k.ranges() {
        let id = k.g.range_arg(r).id;
        let Some(key) = of.get(&id).copied().flatten().filter(|_| k.taps >> id & 1 == 0) else { continue };
        // an end is computed before the loop, and is no part of the graph in which later passes lower these
        if k.g.reachable(&[key]).into_iter().any(|u| matches!(k.g.op(u), Op::Reduce | Op::Stage)) {
            continue;
        }
        let map = [(stand_in(k, r), r)].into_iter().collect();
        let cond = substitute1(&mut k.g, key, &map);
        k.loop_limits.push((id, cond));
        match found.iter_mut().find(|f| f.0 == key) {
            Some(f) => f.1.push(id),
            None => found.push((key, vec![id])),
        }
    }
    found.into_iter().map(|f| f.1).chain(taps).collect()
}

/// For each read of a local array the range that indexes its axis `i`; `None` for a read with any other index.
fn readers(k: &mut Kernel, nodes: &[UOp], stage: UOp, i: usize) -> Vec<Option<UOp>> {
    let is = |k: &Kernel, u: UOp| k.g.op(u) == Op::Index && k.g.src_at(u, 0) == stage;
    let reads: Vec<UOp> = nodes.iter().copied().filter(|&u| is(k, u)).collect();
    let at = |index: UOp| axis_indices(k, index)?.get(i).copied().filter(|&r| k.g.op(r) == Op::Range);
    reads.into_iter().map(at).collect()
}

/// A placeholder for any range of this length, so that equal conditions on different ranges are identical nodes.
fn stand_in(k: &mut Kernel, r: UOp) -> UOp {
    let n = k.g.range_len(r);
    k.g.range_with(n, RangeArg { id: MAX_RANGES as u8 - 1, kind: AxisKind::Reduce, lane: false })
}

/// A condition with the placeholder in place of its range.
fn key(k: &mut Kernel, cond: UOp, r: UOp) -> UOp {
    let map = [(r, stand_in(k, r))].into_iter().collect();
    let key = substitute1(&mut k.g, cond, &map);
    simplify_with(&mut k.g, key, &mut k.memo)
}

/// A condition on `r` such that wherever it is false, `u` is zero, or NaN in a row in which all values are NaN.
fn zero_unless(k: &mut Kernel, u: UOp, r: UOp, left: &mut usize) -> Option<UOp> {
    *left = left.checked_sub(1)?;
    let zero = |g: &Graph, u: UOp| g.const_val(u).is_some_and(|c| c.as_f64() == 0.0);
    let src = k.g.srcs(u);
    match (k.g.op(u), &src[..]) {
        (Op::Where, &[c, y, alt]) if zero(&k.g, alt) => {
            upper_bound_clause(k, c, r).or_else(|| otherwise_zero(k, (c, y), r, left))
        }
        (Op::Where, &[c, y, alt]) if zero(&k.g, y) => {
            let c = negated(k, c);
            upper_bound_clause(k, c, r).or_else(|| otherwise_zero(k, (c, alt), r, left))
        }
        (Op::Load, &[_, alt, gate]) if zero(&k.g, alt) => upper_bound_clause(k, gate, r),
        (Op::Load, &[index]) => {
            let x = staged_value(k, index)?;
            zero_unless(k, x, r, left)
        }
        (Op::Cast, &[c]) if k.g.dtype(c) == DType::Bool => upper_bound_clause(k, c, r),
        (Op::Cast, &[x]) if k.g.dtype(x).is_float() && k.g.dtype(u).is_float() => zero_unless(k, x, r, left),
        (Op::Neg, &[x]) => zero_unless(k, x, r, left),
        (Op::Mul, &[x, y]) => zero_unless(k, x, r, left).or_else(|| zero_unless(k, y, r, left)),
        (Op::Exp2, &[x]) => neg_inf_after_max_unless(k, x, r, left),
        _ => None,
    }
}

/// Like [`zero_unless`], for the other branch `u` of a select with a zero. That branch may be NaN where it is chosen for
/// some elements of a row alone, so then it counts only if it is a masked value, which is never NaN where its mask is
/// false.
fn otherwise_zero(k: &mut Kernel, (cond, u): (UOp, UOp), r: UOp, left: &mut usize) -> Option<UOp> {
    let whole_rows = k.g.ranges(cond) >> k.g.range_arg(r).id & 1 == 0;
    match k.g.op(u) {
        Op::Where | Op::Load if k.g.src(u).len() == 3 => zero_unless(k, u, r, left),
        _ if whole_rows => zero_unless(k, u, r, left),
        _ => None,
    }
}

/// A condition on `r` such that wherever it is false, `u` is -Inf, also for `u = x - max(x)`: in a row whose largest
/// value is -Inf or NaN all values are NaN instead.
fn neg_inf_after_max_unless(k: &mut Kernel, u: UOp, r: UOp, left: &mut usize) -> Option<UOp> {
    *left = left.checked_sub(1)?;
    match (k.g.op(u), &k.g.srcs(u)[..]) {
        (Op::Mul, &[x, f]) if is_positive(&k.g, f) => neg_inf_after_max_unless(k, x, r, left),
        (Op::Sub, &[x, most]) => {
            let cond = neg_inf_unless(k, x, r, left)?;
            let (Op::Reduce, Arg::Reduce(ReduceOp::Max, _), &[body, over]) =
                (k.g.op(most), k.g.arg(most), &k.g.srcs(most)[..])
            else {
                return None;
            };
            let map = [(over, r)].into_iter().collect();
            let here = substitute1(&mut k.g, body, &map);
            let here = simplify_with(&mut k.g, here, &mut k.memo);
            (here == x && k.g.range_len(over) == k.g.range_len(r)).then_some(cond)
        }
        _ => neg_inf_unless(k, u, r, left),
    }
}

/// A condition on `r` such that wherever it is false, `u` is -Inf.
fn neg_inf_unless(k: &mut Kernel, u: UOp, r: UOp, left: &mut usize) -> Option<UOp> {
    *left = left.checked_sub(1)?;
    let least = |g: &Graph, u: UOp| g.const_val(u).is_some_and(|c| c.as_f64() == f64::NEG_INFINITY);
    let src = k.g.srcs(u);
    match (k.g.op(u), &src[..]) {
        _ if !k.g.dtype(u).is_float() => None,
        (Op::Where, &[c, y, alt]) if least(&k.g, alt) => {
            upper_bound_clause(k, c, r).or_else(|| neg_inf_unless(k, y, r, left))
        }
        (Op::Where, &[c, y, alt]) if least(&k.g, y) => {
            let c = negated(k, c);
            upper_bound_clause(k, c, r).or_else(|| neg_inf_unless(k, alt, r, left))
        }
        (Op::Load, &[index]) => {
            let x = staged_value(k, index)?;
            neg_inf_unless(k, x, r, left)
        }
        (Op::Cast, &[x]) => neg_inf_unless(k, x, r, left),
        (Op::Mul, &[x, f]) if is_positive(&k.g, f) => neg_inf_unless(k, x, r, left),
        _ => None,
    }
}

fn is_positive(g: &Graph, u: UOp) -> bool {
    g.const_val(u).is_some_and(|c| c.as_f64() > 0.0)
}

fn negated(k: &mut Kernel, c: UOp) -> UOp {
    let yes = k.g.bool(true);
    let not = k.g.binary(Op::CmpNe, c, yes);
    simplify_with(&mut k.g, not, &mut k.memo)
}

/// The conjunct of a condition that bounds `r` from above by a value that is known outside its loop.
fn upper_bound_clause(k: &mut Kernel, cond: UOp, r: UOp) -> Option<UOp> {
    let mut stack: SmallVec<[UOp; 4]> = SmallVec::from_elem(cond, 1);
    let outer = outer_ranges(k);
    while let Some(c) = stack.pop() {
        match k.g.op(c) {
            Op::And => stack.extend_from_slice(k.g.src(c)),
            Op::CmpLt | Op::CmpNe if is_known(k, c, outer) && upper_limit(&mut k.g, c, r, outer).is_some() => {
                return Some(c);
            }
            _ => {}
        }
    }
    None
}

/// Are all elements that a condition reads known before the loops start? They are if outer loops alone choose them, and
/// if they are in a buffer that the kernel does not write: the length of each text of a batch, for example.
fn is_known(k: &Kernel, cond: UOp, outer: RangeSet) -> bool {
    let g = &k.g;
    let written = g.src(k.store()).first().and_then(|&to| k.slot_below(to));
    g.reachable(&[cond]).iter().filter(|&&u| g.op(u) == Op::Load).all(|&u| {
        let index = g.src_at(u, 0);
        let slot = k.slot_below(index).filter(|_| g.op(g.src_at(index, 0)) == Op::Param);
        g.ranges(u) & !outer == 0 && slot.is_some() && slot != written
    })
}

/// The output loops and launch ranges.
fn outer_ranges(k: &Kernel) -> RangeSet {
    let is_outer = |r: &UOp| matches!(k.g.kind(*r), AxisKind::Loop | AxisKind::Grid(_));
    k.ranges().into_iter().filter(is_outer).fold(0, |m, r| m | 1 << k.g.range_arg(r).id)
}

/// The index along each axis of a local array, computed from the linear index of a read.
fn axis_indices(k: &mut Kernel, index: UOp) -> Option<SmallVec<[UOp; 4]>> {
    let (stage, at) = (k.g.src_at(index, 0), k.g.src_at(index, 1));
    let own = k.g.srcs(stage);
    if own[1..].iter().any(|&p| k.g.op(p) != Op::Range) {
        return None;
    }
    let mut out = SmallVec::from_elem(at, own.len() - 1);
    let mut stride = 1;
    for (i, &p) in own[1..].iter().enumerate().rev() {
        let n = k.g.range_len(p) as i64;
        let (step, len) = (k.g.idx(stride), k.g.idx(n));
        let x = k.g.binary(Op::FloorDiv, at, step);
        let x = if i > 0 { k.g.binary(Op::FloorMod, x, len) } else { x };
        out[i] = simplify_with(&mut k.g, x, &mut k.memo);
        stride *= n;
    }
    Some(out)
}

/// The value that was stored into the element of a local array that is read at `index`.
fn staged_value(k: &mut Kernel, index: UOp) -> Option<UOp> {
    let stage = k.g.src_at(index, 0);
    if k.g.op(index) != Op::Index || k.g.op(stage) != Op::Stage {
        return None;
    }
    let at = axis_indices(k, index)?;
    let own = k.g.srcs(stage);
    let map = own[1..].iter().copied().zip(at).collect();
    let value = substitute1(&mut k.g, own[0], &map);
    Some(simplify_with(&mut k.g, value, &mut k.memo))
}

fn ends_in(k: &mut Kernel, groups: &[MaskGroup]) {
    let loop_limits = std::mem::take(&mut k.loop_limits);
    for group in groups {
        let conds: Vec<(u8, UOp)> = loop_limits.iter().copied().filter(|c| group.contains(&c.0)).collect();
        let found = group_ends(k, &conds);
        if let (true, &[(id, cond)]) = (found.is_some(), &conds[..]) {
            keep_taps(k, id, cond);
        }
        k.loop_limits.extend(found.into_iter().flatten());
    }
}

/// Drops the condition of a loop over taps from its body, if the loop ends exactly where the condition becomes false.
fn keep_taps(k: &mut Kernel, id: u8, cond: UOp) {
    let outer = outer_ranges(k);
    let Some(r) = k.range_by_id(id).filter(|_| k.taps >> id & 1 == 1 && k.g.ranges(cond) & !outer == 1 << id) else {
        return;
    };
    if upper_limit(&mut k.g, cond, r, outer).is_some_and(|(_, end)| k.g.bounds(end).0 > 0) {
        let yes = k.g.bool(true);
        k.replace(&[(cond, yes)].into_iter().collect());
    }
}

/// Bounds for all loops of a group: they end at one element, rounded up to whole iterations of each. `None` if they
/// have no common end or it does not pay.
fn group_ends(k: &mut Kernel, conds: &[(u8, UOp)]) -> Option<Vec<(u8, UOp)>> {
    let outer = outer_ranges(k);
    let mut iterations: Vec<(u8, i64, i64)> = Vec::new();
    let (mut rest, mut common) = (None, 1);
    for &(id, cond) in conds {
        let r = k.range_by_id(id).filter(|&r| k.g.kind(r).is_loop() && k.g.dtype(r) == DType::I32)?;
        let (step, end) = upper_limit(&mut k.g, cond, r, outer)?;
        if *rest.get_or_insert(end) != end {
            return None;
        }
        let (mut a, mut b) = (common, step);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        common = common / a * step;
        iterations.push((id, step, k.g.range_len(r) as i64));
    }
    let rest = rest.filter(|_| common <= MOST_COMMON)?;
    let pays = |&(_, step, n): &(u8, i64, i64)| pays(step.saturating_mul(n), k.g.bounds(rest));
    if !iterations.iter().all(|x| k.taps >> x.0 & 1 == 1 || pays(x)) {
        return None;
    }
    let (all, above, one) = (k.g.idx(common), k.g.idx(common - 1), k.g.idx(1));
    let whole = k.g.binary(Op::Add, rest, above);
    let whole = k.g.binary(Op::FloorDiv, whole, all);
    let whole = k.g.binary(Op::Max, whole, one);
    let mut bound = |(id, step, n): (u8, i64, i64)| {
        let (times, n) = (k.g.idx(common / step), k.g.idx(n));
        let end = k.g.binary(Op::Mul, whole, times);
        let end = k.g.binary(Op::Min, end, n);
        (id, simplify_with(&mut k.g, end, &mut k.memo))
    };
    Some(iterations.into_iter().map(&mut bound).collect())
}

/// Does an early end skip at least an eighth of `n` elements on average, if all ends from `lo` to `hi` are equally
/// likely?
fn pays(n: i64, (lo, hi): (i64, i64)) -> bool {
    let left = |end: i64| i128::from(n - end.clamp(0, n));
    let (all, most) = (left(lo).pow(2) - left(hi).pow(2), i128::from(n) * (i128::from(hi) - i128::from(lo.max(0)) + 1));
    n >= LEAST && all * 4 >= most
}

/// Puts the bounds in `k.loop_limits` and `k.ends` into the loops.
pub fn apply(k: &mut Kernel) {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for r in k.ranges() {
        let arg = k.g.range_arg(r);
        let end = k.loop_limits.iter().chain(&k.ends).find(|x| x.0 == arg.id && arg.kind.is_loop());
        let Some(&(_, end)) = end else { continue };
        let n = k.g.src_at(r, 0);
        let end = k.g.binary(Op::Min, end, n);
        let end = simplify_with(&mut k.g, end, &mut k.memo);
        let short = k.g.node(Op::Range, k.g.dtype(r), &[end], Arg::Range(arg));
        map.insert(r, short);
    }
    if !map.is_empty() {
        k.sink = substitute1(&mut k.g, k.sink, &map);
    }
}
