//! Simplification under a condition: what a gate or a selection guards is computed, or read, only where the condition holds, so that
//! it may rest on it. In: a condition and an integer expression. Out: an expression of the same value wherever the condition holds.

use super::cmp::{Clause, clause, conjuncts, difference};
use super::simplify_with;
use crate::analysis::linear::{Linear, bounds, no_wrap};
use crate::rewrite::{Memo, substitute1};
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// `x`, simplified for the case that `cond` holds. What the condition bounds is replaced by a variable with those bounds;
/// for a bounded sum, a term of it is replaced by the variable minus the others. Kept only if it got cheaper.
pub(crate) fn simplify_under(g: &mut Graph, cond: UOp, x: UOp) -> UOp {
    let mut known: SmallVec<[Clause; 8]> = SmallVec::new();
    for c in conjuncts(g, cond) {
        let known_of = clause(g, c).or_else(|| difference(g, c));
        let Some(c) = known_of.filter(|c| g.shape(c.x).is_empty()) else { continue };
        match known.iter_mut().find(|k| k.x == c.x) {
            Some(k) => k.range = (k.range.0.max(c.range.0), k.range.1.min(c.range.1)),
            None => known.push(c),
        }
    }
    if known.iter().any(|k| k.range.0 > k.range.1) || !g.op(x).is_alu() || !g.shape(x).is_empty() {
        return x;
    }
    let mut best = x;
    // every bounded node at once
    let mut there = FxHashMap::default();
    let mut back = FxHashMap::default();
    for (n, k) in known.iter().enumerate() {
        let v = stand_in(g, k, n);
        there.insert(k.x, v);
        if g.op(v) == Op::Var {
            back.insert(v, k.x);
        }
    }
    attempt(g, &mut best, &there, &back);
    // one bounded sum at a time, solved for a term, and all of them at once
    let mut solved_there = there;
    let mut taken: SmallVec<[UOp; 8]> = SmallVec::new();
    for (n, k) in known.iter().enumerate() {
        let form = Linear::of(g, k.x);
        if form.terms.len() < 2 && form.konst == 0 {
            continue;
        }
        let v = stand_in(g, k, n);
        if g.op(v) == Op::Const {
            continue;
        }
        let mut joint = false;
        for &(t, c) in form.terms.iter().filter(|t| t.1.abs() == 1) {
            // k.x = v, so t = c*(v - (k.x - c*t)), since c is 1 or -1
            let mut solved = Linear::term(v, c);
            solved.add(&form, -c);
            solved.add(&Linear::term(t, 1), 1);
            solved.sort(g);
            let Some(solved) = solved.build(g, g.dtype(t)) else { continue };
            if !joint && !form.terms.iter().any(|f| taken.contains(&f.0)) {
                joint = true;
                solved_there.insert(t, solved);
            }
            attempt(g, &mut best, &FxHashMap::from_iter([(t, solved)]), &FxHashMap::from_iter([(v, k.x)]));
        }
        taken.extend(form.terms.iter().map(|t| t.0));
    }
    if known.len() > 1 {
        attempt(g, &mut best, &solved_there, &back);
    }
    best
}

/// A variable (or constant) with the clause's bounds.
fn stand_in(g: &mut Graph, k: &Clause, n: usize) -> UOp {
    let (dt, (lo, hi)) = (g.dtype(k.x), k.range);
    let (a, b) = bounds(g, k.x);
    let (min, max) = (lo.max(a) as i64, hi.min(b) as i64);
    if min == max {
        return g.int(min, dt);
    }
    g.node(Op::Var, dt, &[], Arg::Var { name: format!("~{n}").into(), min, max })
}

fn attempt(g: &mut Graph, best: &mut UOp, there: &FxHashMap<UOp, UOp>, back: &FxHashMap<UOp, UOp>) {
    // A load is done whether the condition holds or not, so nothing in its address or gate may count on it. It is simplified
    // already: doing so again, in here, would take twice as long for each load inside of another one's address.
    let (mut there, mut memo) = (there.clone(), Memo::sparse());
    for u in nodes(g, *best).into_iter().filter(|&u| g.op(u) == Op::Load) {
        there.entry(u).or_insert(u);
        memo.keep(u);
    }
    let inside = substitute1(g, *best, &there);
    if inside == *best {
        return;
    }
    let inside = simplify_with(g, inside, &mut memo);
    let after = substitute1(g, inside, back);
    let after = simplify_with(g, after, &mut memo);
    // a solved term may still stand next to its stand-in: then nothing was gained
    // and an address must not come to depend on a range that it did not
    let same_ranges = g.ranges(after) & !g.ranges(*best) == 0;
    if same_ranges && cost(g, after) < cost(g, *best) && (no_wrap(g, after) || !no_wrap(g, *best)) {
        *best = after;
    }
}

/// What an expression costs to compute.
fn cost(g: &Graph, u: UOp) -> usize {
    let one = |u: UOp| match g.op(u) {
        Op::FloorDiv | Op::FloorMod | Op::Idiv | Op::Imod => 8,
        op if op.is_alu() => 2,
        Op::Load => 20,
        _ => 1,
    };
    nodes(g, u).into_iter().map(one).sum()
}

/// The nodes of an expression, but for what loads are made of.
fn nodes(g: &Graph, u: UOp) -> Vec<UOp> {
    let mut seen = FxHashSet::default();
    let (mut stack, mut list) = (vec![u], Vec::new());
    while let Some(u) = stack.pop() {
        if seen.insert(u) {
            list.push(u);
            if g.op(u) != Op::Load {
                stack.extend_from_slice(g.src(u));
            }
        }
    }
    list
}
