//! Analyses of loops and masks: which part of a range a condition leaves ([`limits`], [`upper_limit`]), and whether
//! addresses fall as a range rises ([`addresses_fall`]). The scheduler shortens reductions by the first, `codegen` ends
//! loops early by the second. Nothing is rewritten here. Example: of `r1` in `0..6`, the condition `2 < r1` leaves 3 to
//! 5.

use super::cmp::conjuncts;
use crate::analysis::linear::{Linear, bounds};
use crate::dtype::DType;
use crate::uop::{Graph, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// The conditions that must all hold for the product `x` to be nonzero: the clauses of its masks and of the gates of
/// its loads.
pub(crate) fn nonzero_conditions(g: &Graph, x: UOp) -> SmallVec<[UOp; 8]> {
    let zero = |u: UOp| g.const_val(u).is_some_and(|c| c.is(0));
    let mut out: SmallVec<[UOp; 8]> = SmallVec::new();
    let mut stack: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[x]);
    while let Some(u) = stack.pop() {
        match (g.op(u), g.src(u)) {
            (Op::Mul, &[a, b]) => stack.extend([a, b]),
            (Op::Cast, &[a]) => stack.push(a),
            (Op::Load, &[_, alt, gate]) if zero(alt) => out.extend(conjuncts(g, gate)),
            (Op::Where, &[cond, y, alt]) if zero(alt) => {
                out.extend(conjuncts(g, cond));
                stack.push(y);
            }
            _ => {}
        }
    }
    out
}

/// The integer `u` as a sum of ranges times constant factors, and a constant; `None` if it is not of that form.
pub(crate) fn sum_of_ranges(g: &Graph, u: UOp) -> Option<(SmallVec<[(UOp, i64); 4]>, i64)> {
    let form = Linear::of(g, u);
    let term = |&(r, k): &(UOp, i128)| Some((r, i64::try_from(k).ok()?)).filter(|_| g.op(r) == Op::Range);
    Some((form.terms.iter().map(term).collect::<Option<_>>()?, i64::try_from(form.konst).ok()?))
}

/// The smallest and the largest value of the range `r` at which `cond` may hold. They follow from its comparisons, each
/// by itself and each combined with another one such that a term cancels. Empty (`lo > hi`) if the condition never
/// holds.
pub fn limits(g: &Graph, cond: UOp, r: UOp) -> (i64, i64) {
    // linear forms that the condition makes at most 0
    let mut forms: SmallVec<[Linear; 8]> = SmallVec::new();
    for c in conjuncts(g, cond) {
        let &[a, b] = g.src(c) else { continue };
        let int = g.dtype(a).is_int() && g.dtype(a) != DType::U64 && g.shape(c).is_empty();
        if !int || !matches!(g.op(c), Op::CmpLt | Op::CmpEq) {
            continue;
        }
        let mut form = Linear::of(g, a);
        form.add(&Linear::of(g, b), -1);
        form.sort(g);
        if g.op(c) == Op::CmpEq {
            let mut back = Linear::default();
            back.add(&form, -1);
            back.sort(g);
            forms.push(back);
        } else {
            form.konst += 1;
        }
        forms.push(form);
    }
    let mut range = bounds(g, r);
    for (i, f) in forms.iter().enumerate() {
        narrow(g, f, r, &mut range);
        for (j, other) in forms.iter().enumerate().filter(|x| x.0 != i) {
            for &(t, c) in f.terms.iter().filter(|t| t.0 != r) {
                let d = other.factor(t);
                if d == 0 || (c > 0) == (d > 0) || (j < i && other.factor(r) != 0 && f.factor(r) == 0) {
                    continue;
                }
                let mut sum = Linear::default();
                sum.add(f, d.abs());
                sum.add(other, c.abs());
                sum.sort(g);
                narrow(g, &sum, r, &mut range);
            }
        }
    }
    (range.0 as i64, range.1 as i64)
}

/// Narrows the interval of `r` by the condition `form <= 0`.
fn narrow(g: &Graph, form: &Linear, r: UOp, range: &mut (i128, i128)) {
    let c = form.factor(r);
    if c == 0 {
        return;
    }
    let mut rest = form.clone();
    rest.terms.retain(|t| t.0 != r);
    // c*r <= -least
    let least = rest.bounds(g).0;
    if c > 0 {
        range.1 = range.1.min((-least).div_euclid(c));
    } else {
        range.0 = range.0.max(-((-least).div_euclid(-c)));
    }
}

/// An upper limit that `cond` sets to `r`, as `(step, end)` with `step * r < end`. `end` depends on no ranges but those
/// in `outer`; for all other ranges it is the maximum over their values. `None` if no comparison of the condition gives
/// a limit.
pub(crate) fn upper_limit(g: &mut Graph, cond: UOp, r: UOp, outer: RangeSet) -> Option<(i64, UOp)> {
    let id = g.range_arg(r).id;
    'clauses: for c in conjuncts(g, cond) {
        let &[a, b] = g.src(c) else { continue };
        let negated = g.op(c) == Op::CmpNe && g.const_int(b) == Some(1) && g.op(a) == Op::CmpLt;
        let c = if negated { a } else { c };
        let &[a, b] = g.src(c) else { continue };
        if g.op(c) != Op::CmpLt || g.dtype(a) != DType::I32 || !g.shape(c).is_empty() {
            continue;
        }
        // the comparison says `0 < form`
        let mut form = Linear::of(g, if negated { a } else { b });
        form.add(&Linear::of(g, if negated { b } else { a }), -1);
        form.konst += i128::from(negated);
        form.sort(g);
        let (mut step, mut end) = (0, Linear { konst: form.konst, ..Linear::default() });
        for &(t, k) in &form.terms {
            let set = g.ranges(t);
            match growth_per_iteration(g, t, r) {
                Some(n) => step -= k * n,
                None if set >> id & 1 == 1 => continue 'clauses,
                None if set & !outer == 0 => end.add(&Linear::term(t, k), 1),
                None => end.konst += Linear::term(t, k).bounds(g).1,
            }
        }
        end.sort(g);
        if let Some(end) = end.build(g, DType::I32).filter(|_| step > 0 && step < 1 << 16) {
            return Some((step as i64, end));
        }
    }
    None
}

/// By how much `t` grows in each iteration of `r`: t is the range itself, or the start of a tile, `min(r*w, n)`, where
/// the last tile starts earlier so that it does not extend beyond the end.
fn growth_per_iteration(g: &Graph, t: UOp, r: UOp) -> Option<i128> {
    match (g.op(t), g.src(t)) {
        _ if t == r => Some(1),
        (Op::Min, &[x, n]) if g.op(n) == Op::Const => match (g.op(x), g.src(x)) {
            (Op::Mul, &[y, w]) if y == r => g.const_int(w).map(i128::from),
            _ => (x == r).then_some(1),
        },
        _ => None,
    }
}

/// Do the addresses of all gated loads in `x` fall as `r` rises? They do in the gradient of a convolution, whose
/// windows are reversed.
pub fn addresses_fall(g: &Graph, x: UOp, r: UOp) -> bool {
    let id = g.range_arg(r).id;
    let gated = |u: &UOp| g.op(*u) == Op::Load && g.src(*u).len() == 3 && g.ranges(*u) >> id & 1 == 1;
    let mut down = false;
    for u in g.reachable(&[x]).into_iter().filter(gated) {
        let c = Linear::of(g, g.src_at(g.src_at(u, 0), 1)).factor(r);
        if c >= 0 {
            return false;
        }
        down = true;
    }
    down
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{parse, range};

    #[test]
    fn conditions_end_loops() {
        let g = &mut Graph::new();
        let rs = [("r0", range(g, 0, 24)), ("r1", range(g, 1, 6)), ("r2", range(g, 2, 4))];
        // r0 is an outer loop, r2 a tile axis inside r1
        for (cond, want) in [
            ("r1 < r0 + 1", Some((1, "r0 + 1"))),
            ("(r0 < r1) != true", Some((1, "r0 + 1"))),
            ("r1*4 + r2 < r0", Some((4, "r0"))),
            ("r1*2 < r0 + r2", Some((2, "r0 + 3"))),
            ("r0 < r1", None),
            ("r1 < 3 & r0 < 5", Some((1, "3"))),
        ] {
            let c = parse(g, cond, &rs);
            let want = want.map(|(step, end)| (step, parse(g, end, &rs)));
            assert_eq!(upper_limit(g, c, rs[1].1, 1), want, "{cond}");
        }
    }

    #[test]
    fn conditions_limit_ranges() {
        let g = &mut Graph::new();
        let rs = [("r0", range(g, 0, 24)), ("r1", range(g, 1, 6))];
        for (cond, want) in [
            ("r1 < 3", (0, 2)),
            ("2 < r1", (3, 5)),
            ("r1 == 4", (4, 4)),
            ("r0 + r1 < 30", (0, 5)),
            // the two comparisons limit r1 only together
            ("r0 + r1*24 < 125 & r1 < r0 + 1", (0, 4)),
            ("r0 + r1*24 < 125", (0, 5)),
            ("r1 < 2 & 3 < r1", (4, 1)),
        ] {
            let c = parse(g, cond, &rs);
            assert_eq!(limits(g, c, rs[1].1), want, "{cond}");
        }
    }
}
