//! Simplification under a condition. An expression that a gate or a selection guards matters only where the condition
//! holds, so it may be simplified as if the condition were true. Input: a condition and an integer expression; output:
//! an expression that has the same value wherever the condition holds. Example: `0 < r0` and `r0 < 129` make
//! `((r0 + 1)//2 + 63) % 64` the simpler `(r0 - 1)//2`.

use super::cmp::{Clause, clause, conjuncts, difference};
use super::simplify_with;
use crate::analysis::linear::{Linear, bounds, no_wrap};
use crate::rewrite::{Memo, substitute1};
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// `x`, simplified for the case that `cond` holds. Each node that the condition bounds is replaced by a variable with
/// those bounds, the expression is simplified, and the variable is replaced back. Where a sum is bounded, one of its
/// terms may be replaced instead, by the variable minus the other terms. A result is kept only if it is cheaper to
/// compute.
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
    // first all bounded nodes at once
    let mut substitution = FxHashMap::default();
    let mut inverse = FxHashMap::default();
    for (n, k) in known.iter().enumerate() {
        let v = bounded_variable(g, k, n);
        substitution.insert(k.x, v);
        if g.op(v) == Op::Var {
            inverse.insert(v, k.x);
        }
    }
    attempt(g, &mut best, &substitution, &inverse);
    // then bounded sums that are part of a quotient's or remainder's first operand, times some number
    let multiples = multiples_of_bounded(g, best, &known, &substitution);
    attempt(g, &mut best, &multiples, &inverse);
    // then each bounded sum by itself, solved for one of its terms, and finally all of them at once
    let mut solved_substitution = substitution;
    let mut taken: SmallVec<[UOp; 8]> = SmallVec::new();
    for (n, k) in known.iter().enumerate() {
        let form = Linear::of(g, k.x);
        if form.terms.len() < 2 && form.konst == 0 {
            continue;
        }
        let v = bounded_variable(g, k, n);
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
                solved_substitution.insert(t, solved);
            }
            attempt(g, &mut best, &FxHashMap::from_iter([(t, solved)]), &FxHashMap::from_iter([(v, k.x)]));
        }
        taken.extend(form.terms.iter().map(|t| t.0));
    }
    if known.len() > 1 {
        attempt(g, &mut best, &solved_substitution, &inverse);
    }
    best
}

/// For each quotient and remainder in `x`: its first operand, written with the variables of those bounded sums of which
/// it contains a multiple. So the condition `0 <= 3*r0 + 2*r1 - 6 < 70` bounds `210*r0 + 140*r1 + r2`, as it occurs in
/// the address of a strided and dilated window.
fn multiples_of_bounded(
    g: &mut Graph,
    x: UOp,
    known: &[Clause],
    variables: &FxHashMap<UOp, UOp>,
) -> FxHashMap<UOp, UOp> {
    let mut out = FxHashMap::default();
    for u in nodes(g, x) {
        if !matches!(g.op(u), Op::FloorDiv | Op::FloorMod | Op::Idiv | Op::Imod) {
            continue;
        }
        let operand = g.src_at(u, 0);
        let mut form = Linear::of(g, operand);
        let before = form.terms.len();
        for k in known {
            let part = Linear::of(g, k.x);
            let (Some(&(first, c)), Some(&v)) = (part.terms.first(), variables.get(&k.x)) else { continue };
            let times = form.factor(first) / c;
            if part.terms.len() > 1 && times != 0 && part.terms.iter().all(|&(t, c)| form.factor(t) == times * c) {
                form.add(&part, -times);
                form.add(&Linear::of(g, v), times);
                form.sort(g);
            }
        }
        if form.terms.len() < before
            && let Some(shorter) = form.build(g, g.dtype(operand))
        {
            out.insert(operand, shorter);
        }
    }
    out
}

/// A new variable with the bounds of the clause, or a constant if they leave one value.
fn bounded_variable(g: &mut Graph, k: &Clause, n: usize) -> UOp {
    let (dt, (lo, hi)) = (g.dtype(k.x), k.range);
    let (a, b) = bounds(g, k.x);
    let (min, max) = (lo.max(a) as i64, hi.min(b) as i64);
    if min == max {
        return g.int(min, dt);
    }
    g.node(Op::Var, dt, &[], Arg::Var { name: format!("~{n}").into(), min, max })
}

/// Applies `substitution` to `best`, simplifies, applies `inverse`, and replaces `best` by the result if it is cheaper.
fn attempt(g: &mut Graph, best: &mut UOp, substitution: &FxHashMap<UOp, UOp>, inverse: &FxHashMap<UOp, UOp>) {
    // Loads in the expression stay as they are. A load is executed whether the condition holds or not, so its address
    // and gate must not be simplified under it. They are simplified already, and repeating that here would double the
    // time for each load that is nested in the address of another.
    let (mut substitution, mut memo) = (substitution.clone(), Memo::sparse());
    for u in nodes(g, *best).into_iter().filter(|&u| g.op(u) == Op::Load) {
        substitution.entry(u).or_insert(u);
        memo.keep(u);
    }
    let inside = substitute1(g, *best, &substitution);
    if inside == *best {
        return;
    }
    let inside = simplify_with(g, inside, &mut memo);
    let after = substitute1(g, inside, inverse);
    let after = simplify_with(g, after, &mut memo);
    // a solved term may still occur beside its variable: then nothing was gained; and an address must not come to
    // depend on a range on which it did not depend
    let same_ranges = g.ranges(after) & !g.ranges(*best) == 0;
    if same_ranges && cost(g, after) < cost(g, *best) && (no_wrap(g, after) || !no_wrap(g, *best)) {
        *best = after;
    }
}

/// The estimated cost to compute an expression, relative to other expressions.
fn cost(g: &Graph, u: UOp) -> usize {
    let one = |u: UOp| match g.op(u) {
        Op::FloorDiv | Op::FloorMod | Op::Idiv | Op::Imod => 8,
        op if op.is_alu() => 2,
        Op::Load => 20,
        _ => 1,
    };
    nodes(g, u).into_iter().map(one).sum()
}

/// The nodes of an expression, without those below its loads.
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
