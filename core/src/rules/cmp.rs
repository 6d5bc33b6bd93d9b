//! Simplification of comparisons of linear forms (sums of terms times constants), and of conjunctions of such
//! comparisons.
//!
//! The two sides are subtracted, so that the comparison is with zero; it is decided by bounds if possible, else common
//! factors are divided out, and the rest is written with positive factors on both sides: `a < b + c`, `a < c` or
//! `c < b`. All reasoning is in unbounded integers, which is right because the forms are known not to overflow.
//! Example: with `0 <= r1 < 32`, `r0*32 + r1 < 640` becomes `r0 < 20`.

use crate::DType;
use crate::analysis::linear::{Interval, Linear, bounds, fits, gcd, no_wrap, order};
use crate::uop::{Graph, Op, UOp};
use crate::util::sort;
use smallvec::SmallVec;

/// The knowledge that a node is within an interval: `range.0 <= x <= range.1`.
pub(super) struct Clause {
    pub(super) x: UOp,
    pub(super) range: Interval,
}

/// Simplifies a `CmpLt`, `CmpEq` or `CmpNe` of integers; `None` if it cannot become simpler.
pub(super) fn compare(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (x, y, op) = (g.src_at(u, 0), g.src_at(u, 1), g.op(u));
    let dt = g.dtype(x);
    if !dt.is_int() || dt == DType::U64 {
        return None;
    }
    let mut form = Linear::of(g, x);
    form.add(&Linear::of(g, y), -1);
    form.sort(g);
    let v = match op {
        Op::CmpLt => less(g, form, dt),
        _ => equal(g, form, dt, op),
    };
    v.filter(|&v| v != u)
}

/// Simplifies `form < 0`.
fn less(g: &mut Graph, mut form: Linear, dt: DType) -> Option<UOp> {
    // the comparison is `form < k` from here on, with a form without a constant
    let mut k = -form.konst;
    form.konst = 0;
    loop {
        let f = form.gcd();
        if f > 1 {
            form.terms.iter_mut().for_each(|t| t.1 /= f);
            k = -(-k).div_euclid(f); // ceiling
        }
        let (lo, hi) = form.bounds(g);
        if hi < k || lo >= k {
            return Some(g.bool(hi < k));
        }
        // a division on one side is removed: `t//d < k` is `t < k*d`, and `-(t//d) < k` is `-t < (k-1)*d + 1`
        if let [(t, c)] = form.terms[..]
            && c.abs() == 1
            && g.op(t) == Op::FloorDiv
            && let Some(d) = g.const_int(g.src_at(t, 1)).filter(|&d| d > 0)
        {
            let y = Linear::of(g, g.src_at(t, 0));
            form = Linear::default();
            form.add(&y, c);
            k = if c > 0 { k * d as i128 } else { (k - 1) * d as i128 + 1 } - form.konst;
            form.konst = 0;
            continue;
        }
        if let Some(both) = remainder_below(g, &form, k, dt) {
            return Some(both);
        }
        if !drop_inner(g, &mut form, &mut k) {
            break;
        }
    }
    build_comparison(g, Op::CmpLt, &form, k, dt)
}

/// `e % b < k` becomes `0 <= d && d < k`, where d differs from e by a multiple of b and is always at least `k - b` and
/// below b. Such remainders arise where the windows of a convolution are made by padding and reshaping:
/// `(i + j*(b - 1)) % b` has `d = i - j`.
fn remainder_below(g: &mut Graph, form: &Linear, k: i128, dt: DType) -> Option<UOp> {
    let [(t, 1)] = form.terms[..] else { return None };
    let b = Some(t).filter(|&t| g.op(t) == Op::FloorMod).and_then(|t| g.const_int(g.src_at(t, 1)))? as i128;
    if k <= 0 || k >= b || dt.is_unsigned() {
        return None;
    }
    let least = |c: i128| {
        let c = c.rem_euclid(b);
        if 2 * c > b { c - b } else { c }
    };
    let e = Linear::of(g, g.src_at(t, 0));
    let mut d = Linear { konst: least(e.konst), ..Linear::default() };
    d.terms.extend(e.terms.iter().map(|&(t, c)| (t, least(c))));
    d.sort(g);
    let (lo, hi) = d.bounds(g);
    if lo < k - b || hi >= b {
        return None;
    }
    // the two comparisons, `-d < 1` and `d < k`, as forms that are to be below zero
    let (mut from, mut to) = (Linear::default(), d.clone());
    from.add(&d, -1);
    from.konst -= 1;
    to.konst -= k;
    let parts = [from, to].map(|f| {
        let (lo, hi) = f.bounds(g);
        if hi < 0 || lo >= 0 {
            return Some(g.bool(hi < 0));
        }
        let k = -f.konst;
        build_comparison(g, Op::CmpLt, &Linear { konst: 0, ..f }, k, dt)
    });
    let [Some(from), Some(to)] = parts else { return None };
    Some(g.binary(Op::And, from, to))
}

/// Reduces `f*A + R < k` to `A < q` if there is one q for all values of the remaining terms R; true if it did.
fn drop_inner(g: &Graph, form: &mut Linear, k: &mut i128) -> bool {
    let mut factors: SmallVec<[i128; 8]> = form.terms.iter().map(|t| t.1.abs()).filter(|&f| f > 1).collect();
    sort::ascending(&mut factors);
    factors.dedup();
    for f in factors.into_iter().rev() {
        let mut inner = Linear::default();
        inner.terms.extend(form.terms.iter().filter(|t| t.1 % f != 0).copied());
        if inner.terms.is_empty() {
            continue;
        }
        let (lo, hi) = inner.bounds(g);
        // the largest A that fulfils the comparison must be the same for the largest R and for the smallest
        let q = (*k - 1 - hi).div_euclid(f);
        if q != (*k - 1 - lo).div_euclid(f) {
            continue;
        }
        form.terms.retain(|t| t.1 % f == 0);
        form.terms.iter_mut().for_each(|t| t.1 /= f);
        *k = q + 1;
        return true;
    }
    false
}

/// Simplifies `form == 0` or `form != 0`.
fn equal(g: &mut Graph, mut form: Linear, dt: DType, op: Op) -> Option<UOp> {
    let (lo, hi) = form.bounds(g);
    let f = form.gcd();
    if lo > 0 || hi < 0 || (f > 0 && form.konst % f != 0) {
        return Some(g.bool(op == Op::CmpNe));
    }
    if form.terms.is_empty() {
        return Some(g.bool((form.konst == 0) == (op == Op::CmpEq)));
    }
    let f = if form.terms[0].1 < 0 { -f } else { f };
    form.terms.iter_mut().for_each(|t| t.1 /= f);
    let k = -form.konst / f;
    form.konst = 0;
    build_comparison(g, op, &form, k, dt)
}

/// The node of `form op k`, with the terms of negative factor moved to the right side.
fn build_comparison(g: &mut Graph, op: Op, form: &Linear, k: i128, dt: DType) -> Option<UOp> {
    let (mut a, mut b) = (Linear::default(), Linear::default());
    for &(t, c) in &form.terms {
        if c > 0 { a.terms.push((t, c)) } else { b.terms.push((t, -c)) }
    }
    match (a.terms.is_empty(), b.terms.is_empty()) {
        (true, _) => a.konst = -k,
        (_, true) => b.konst = k,
        _ if k >= 0 || !dt.is_unsigned() => b.konst = k,
        _ => a.konst = -k,
    }
    let (a, b) = (a.build(g, dt)?, b.build(g, dt)?);
    Some(g.binary(op, a, b))
}

/// The interval that a condition of the form `x < c`, `c < x` or `x == c` implies for x.
pub(super) fn clause(g: &Graph, u: UOp) -> Option<Clause> {
    let &[a, b] = g.src(u) else { return None };
    if !g.dtype(a).is_int() || g.dtype(a) == DType::U64 {
        return None;
    }
    let konst = |u: UOp| g.const_int(u).map(|c| c as i128);
    match (g.op(u), konst(a), konst(b)) {
        (Op::CmpLt, None, Some(c)) => Some(Clause { x: a, range: (bounds(g, a).0, c - 1) }),
        (Op::CmpLt, Some(c), None) => Some(Clause { x: b, range: (c + 1, bounds(g, b).1) }),
        (Op::CmpEq, None, Some(c)) => Some(Clause { x: a, range: (c, c) }),
        _ => None,
    }
}

/// The interval that `a < b` implies for the linear form `a - b` without its constant (or for its negative, if its
/// first factor is negative).
pub(super) fn difference(g: &mut Graph, u: UOp) -> Option<Clause> {
    let &[a, b] = g.src(u) else { return None };
    let dt = g.dtype(a);
    if g.op(u) != Op::CmpLt || !dt.is_int() || dt.is_unsigned() || !g.shape(a).is_empty() {
        return None;
    }
    let mut form = Linear::of(g, a);
    form.add(&Linear::of(g, b), -1);
    form.sort(g);
    // a < b is `form + k < 0`
    let k = std::mem::take(&mut form.konst);
    let negative = form.terms.first()?.1 < 0;
    if form.terms.len() < 2 {
        return None;
    }
    if negative {
        form.terms.iter_mut().for_each(|t| t.1 = -t.1);
    }
    let x = form.build(g, dt)?;
    let (lo, hi) = bounds(g, x);
    Some(Clause { x, range: if negative { (lo.max(k + 1), hi) } else { (lo, hi.min(-k - 1)) } })
}

/// The distinct clauses of a conjunction; of any other condition itself.
pub(crate) fn conjuncts(g: &Graph, cond: UOp) -> SmallVec<[UOp; 8]> {
    let mut out: SmallVec<[UOp; 8]> = SmallVec::new();
    let mut stack: SmallVec<[UOp; 8]> = SmallVec::from_slice(&[cond]);
    while let Some(u) = stack.pop() {
        match g.op(u) {
            Op::And if g.dtype(u) == DType::Bool => stack.extend([g.src_at(u, 1), g.src_at(u, 0)]),
            _ if out.contains(&u) => {}
            _ => out.push(u),
        }
    }
    out
}

/// Simplifies a conjunction: sorts its clauses, removes duplicates and clauses that the others imply, and gives false
/// if they contradict each other.
pub(super) fn conjunction(g: &mut Graph, u: UOp) -> Option<UOp> {
    if g.dtype(u) != DType::Bool || !g.shape(u).is_empty() {
        return None;
    }
    let mut list = conjuncts(g, u);
    sort::by(&mut list, |&a, &b| order(g, a, b));
    let negated =
        |g: &Graph, u: UOp| (g.op(u) == Op::CmpNe && g.const_int(g.src_at(u, 1)) == Some(1)).then(|| g.src_at(u, 0));
    let mut i = 0;
    while i < list.len() {
        if negated(g, list[i]).is_some_and(|x| list.contains(&x)) {
            return Some(g.bool(false));
        }
        let known: SmallVec<[Clause; 8]> =
            (0..list.len()).filter(|&j| j != i).filter_map(|j| clause(g, list[j])).collect();
        match decide(g, list[i], &known) {
            Some(true) => drop(list.remove(i)),
            Some(false) => return Some(g.bool(false)),
            None => i += 1,
        }
    }
    let mut out: Option<UOp> = None;
    for c in list {
        out = Some(out.map_or(c, |o| g.binary(Op::And, o, c)));
    }
    Some(out.unwrap_or_else(|| g.bool(true))).filter(|&v| v != u)
}

/// The value of a comparison if the intervals `known` of nodes in it decide it, else `None`.
pub(super) fn decide(g: &Graph, u: UOp, known: &[Clause]) -> Option<bool> {
    let op = g.op(u);
    if known.is_empty() || !matches!(op, Op::CmpLt | Op::CmpEq | Op::CmpNe) {
        return None;
    }
    let (a, b) = (g.src_at(u, 0), g.src_at(u, 1));
    if !g.dtype(a).is_int() || g.dtype(a) == DType::U64 {
        return None;
    }
    let mut form = Linear::of(g, a);
    form.add(&Linear::of(g, b), -1);
    form.sort(g);
    let narrowed = |t: UOp| {
        known.iter().filter(|c| c.x == t).fold(bounds(g, t), |(lo, hi), c| (lo.max(c.range.0), hi.min(c.range.1)))
    };
    let (mut lo, mut hi) = form.bounds_by(narrowed);
    // a known interval of a sum with the same terms, up to a common factor, bounds the form directly
    for c in known {
        let other = Linear::of(g, c.x);
        let Some((&(t, k), &(_, first))) = form.terms.first().zip(other.terms.first()) else { continue };
        if other.terms.len() != form.terms.len() || other.factor(t) == 0 || k % first != 0 {
            continue;
        }
        let f = k / first;
        if form.terms.iter().all(|&(t, k)| other.factor(t) * f == k) {
            let (x, y) = ((c.range.0 - other.konst) * f + form.konst, (c.range.1 - other.konst) * f + form.konst);
            (lo, hi) = (lo.max(x.min(y)), hi.min(x.max(y)));
        }
    }
    if lo > hi {
        return Some(false); // the clauses contradict each other: the conjunction is false whatever this one is
    }
    match op {
        Op::CmpLt if hi < 0 => Some(true),
        Op::CmpLt if lo >= 0 => Some(false),
        Op::CmpEq | Op::CmpNe if lo > 0 || hi < 0 => Some(op == Op::CmpNe),
        Op::CmpEq | Op::CmpNe if (lo, hi) == (0, 0) => Some(op == Op::CmpEq),
        _ => None,
    }
}

/// The power of two that a shift by the constant `shift` multiplies or divides by, if the dtype has it as a positive
/// value.
pub(super) fn as_power(g: &Graph, shift: UOp, dt: DType) -> Option<i64> {
    let s = g.const_int(shift).filter(|&s| s >= 0 && s < dt.bits() as i64 - 1)?;
    let p = 1i128 << s;
    (fits(dt, (p, p)) && gcd(p, 2) > 0).then_some(p as i64)
}

/// Is the value known not to overflow, as the rules for divisions require?
pub(super) fn is_index(g: &Graph, u: UOp) -> bool {
    no_wrap(g, u)
}
