//! Simplifies floor division and remainder of linear forms (sums of terms times constants) by positive constants, and
//! recombines `x//d*d + x%d` to x. Example: with `0 <= r1 < 6`, `(r0*6 + r1)//6` is `r0` and `(r0*6 + r1)%6` is `r1`.
//!
//! All reasoning is in unbounded integers, which is right because the forms are known not to overflow. With each factor
//! written as `c = q*d + s` (s has the sign of c, and |s| < d): `(sum)//d = sum(q*t) + (sum(s*t) + c0)//d` and
//! `(sum)%d = (sum(s*t) + c0)%d`. The rest, `sum(s*t) + c0`, is then reduced by the first of these that applies, as
//! often as possible: its interval lies between two consecutive multiples of d, so that no division is left; all its
//! factors have a common divisor; some of them have a common divisor f, and the interval of the sum of the others lies
//! between two consecutive multiples of f. Quotient and remainder are reduced in the same way, so that their numerators
//! stay equal and they can be recombined.

use crate::analysis::linear::{Interval, Linear, bounds, fits, gcd, no_wrap};
use crate::uop::{Graph, Op, UOp};
use crate::util::sort;
use smallvec::SmallVec;

/// Simplifies `FloorDiv(x, d)`.
pub(super) fn div(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (x, d, dt) = (g.src_at(u, 0), g.src_at(u, 1), g.dtype(u));
    if let Some(v) = by_symbolic_divisor(g, u) {
        return Some(v);
    }
    let d = positive_const(g, d)?;
    if d == 1 {
        return Some(x);
    }
    if let Some(k) = constant_quotient(bounds(g, x), d) {
        return Some(g.int(k as i64, dt));
    }
    let whole = Linear::of(g, x);
    // (y//a + k)//d = (y + k*a)//(a*d)
    if let [(t, 1)] = whole.terms[..]
        && g.op(t) == Op::FloorDiv
        && let Some(a) = positive_const(g, g.src_at(t, 1))
        && let Some(ad) = checked_product(a, d, dt)
    {
        let mut y = Linear::of(g, g.src_at(t, 0));
        y.konst += whole.konst * a;
        if let Some(y) = y.build(g, dt) {
            let ad = g.int(ad, dt);
            return Some(g.binary(Op::FloorDiv, y, ad));
        }
    }
    // (y % (k*d)) // d = (y // d) % k
    if whole.konst == 0
        && let [(t, 1)] = whole.terms[..]
        && g.op(t) == Op::FloorMod
        && let Some(m) = positive_const(g, g.src_at(t, 1))
        && m % d == 0
    {
        let (y, d, k) = (g.src_at(t, 0), g.int(d as i64, dt), g.int((m / d) as i64, dt));
        let q = g.binary(Op::FloorDiv, y, d);
        return Some(g.binary(Op::FloorMod, q, k));
    }
    let mut s = Split::of(&whole, d);
    s.reduce(g);
    if s.is_unchanged(&whole) {
        return None;
    }
    let mut out = s.quotient;
    if s.d > 1 {
        let rest = s.rest.build(g, dt)?;
        let d = g.int(s.d as i64, dt);
        let q = g.binary(Op::FloorDiv, rest, d);
        out.add(&Linear::term(q, 1), 1);
    } else {
        out.add(&s.rest, 1);
    }
    out.sort(g);
    out.build(g, dt)
}

/// Simplifies `FloorMod(x, d)`.
pub(super) fn modulo(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (x, d, dt) = (g.src_at(u, 0), g.src_at(u, 1), g.dtype(u));
    if let Some(v) = by_symbolic_divisor(g, u) {
        return Some(v);
    }
    let d = positive_const(g, d)?;
    if d == 1 {
        return Some(g.int(0, dt));
    }
    let mut whole = Linear::of(g, x);
    if let Some(k) = constant_quotient(bounds(g, x), d) {
        whole.konst -= k * d;
        return whole.build(g, dt);
    }
    let opened = open_remainders(g, &whole, d);
    [opened, whole.clone()].iter().find_map(|form| {
        let mut s = Split::of(form, d);
        s.reduce(g);
        if s.is_unchanged(&whole) {
            return None;
        }
        let mut out = s.remainder;
        if s.d > 1 {
            let rest = s.rest.build(g, dt)?;
            let c = g.int(s.d as i64, dt);
            let r = g.binary(Op::FloorMod, rest, c);
            out.add(&Linear::term(r, s.scale), 1);
        }
        out.sort(g);
        out.build(g, dt).filter(|&v| v != u)
    })
}

/// `(s*(y % m) + ..) % d` is `(s*y + ..) % d` if d divides s*m; the form without such remainders.
fn open_remainders(g: &Graph, x: &Linear, d: i128) -> Linear {
    let mut out = Linear { konst: x.konst, ..Linear::default() };
    for &(t, k) in &x.terms {
        let m = if g.op(t) == Op::FloorMod { positive_const(g, g.src_at(t, 1)) } else { None };
        match m {
            Some(m) if k * m % d == 0 => out.add(&Linear::of(g, g.src_at(t, 0)), k),
            _ => out.add(&Linear::term(t, k), 1),
        }
    }
    out.sort(g);
    out
}

/// The division of a form x by `d*scale` in progress: `x = d*scale*quotient + scale*rest + remainder`, where
/// `x // (d*scale) = quotient + rest//d` and `x % (d*scale) = scale*(rest % d) + remainder`. Reducing it makes d
/// smaller and scale larger; their product stays the divisor.
struct Split {
    d: i128,
    scale: i128,
    quotient: Linear,
    rest: Linear,
    remainder: Linear,
}

impl Split {
    fn of(x: &Linear, d: i128) -> Split {
        let (mut quotient, mut rest) = (Linear::default(), Linear::default());
        for &(t, c) in &x.terms {
            quotient.terms.push((t, c / d));
            rest.terms.push((t, c % d));
        }
        (quotient.konst, rest.konst) = (x.konst.div_euclid(d), x.konst.rem_euclid(d));
        quotient.terms.retain(|t| t.1 != 0);
        rest.terms.retain(|t| t.1 != 0);
        Split { d, scale: 1, quotient, rest, remainder: Linear::default() }
    }

    fn is_unchanged(&self, x: &Linear) -> bool {
        self.scale == 1 && self.d != 1 && self.rest.terms == x.terms && self.rest.konst == x.konst
    }

    fn reduce(&mut self, g: &Graph) {
        while self.d > 1
            && (self.reduce_to_constant_quotient(g)
                || self.divide_by_common_factor(g)
                || self.divide_by_partial_factor(g))
        {}
    }

    /// If the rest lies between two consecutive multiples of d, it belongs to the remainder, and no division is left.
    fn reduce_to_constant_quotient(&mut self, g: &Graph) -> bool {
        // factors are tried as they are, then each replaced by the smaller in size of s and s - d (s + d if s is
        // negative)
        let mut centered = self.rest.clone();
        for t in &mut centered.terms {
            if t.1.abs() * 2 > self.d {
                t.1 -= self.d * t.1.signum();
            }
        }
        for r in [self.rest.clone(), centered] {
            if let Some(k) = constant_quotient(r.bounds(g), self.d) {
                for (&(t, s), &(_, n)) in self.rest.terms.iter().zip(&r.terms) {
                    let q = Linear::term(t, (s - n) / self.d);
                    self.quotient.add(&q, 1);
                }
                self.quotient.konst += k;
                self.remainder.add(&r, self.scale);
                self.remainder.konst -= k * self.d * self.scale;
                self.rest = Linear::default();
                self.d = 1;
                return true;
            }
        }
        false
    }

    /// `(f*A + c)//(f*d) = (A + c//f)//d`.
    fn divide_by_common_factor(&mut self, _: &Graph) -> bool {
        let f = gcd(self.rest.gcd(), self.d);
        f > 1 && self.divide(f, |_, _| false)
    }

    /// `(f*A + R)//(f*d) = (A + k)//d` where `k*f <= R < (k+1)*f`.
    fn divide_by_partial_factor(&mut self, g: &Graph) -> bool {
        let mut factors: SmallVec<[i128; 8]> = self.rest.terms.iter().map(|t| gcd(t.1, self.d)).collect();
        sort::by(&mut factors, |a, b| b.cmp(a));
        factors.dedup();
        for f in factors {
            if f == 1 || f == self.d {
                continue;
            }
            let mut inner = Linear { konst: self.rest.konst.rem_euclid(f), ..Linear::default() };
            inner.terms.extend(self.rest.terms.iter().filter(|t| t.1 % f != 0).copied());
            if let Some(k) = constant_quotient(inner.bounds(g), f)
                && self.divide(f, |t, _| inner.factor(t) != 0)
            {
                self.rest.konst += k;
                self.remainder.konst -= k * f * (self.scale / f);
                return true;
            }
        }
        false
    }

    /// Divides d and the rest by `f`, but for the terms that are `inner`, which move to the remainder.
    fn divide(&mut self, f: i128, inner: impl Fn(UOp, i128) -> bool) -> bool {
        let mut r = Linear { konst: self.rest.konst.rem_euclid(f), ..Linear::default() };
        let mut rest = Linear { konst: self.rest.konst.div_euclid(f), ..Linear::default() };
        for &(t, c) in &self.rest.terms {
            if inner(t, c) { r.terms.push((t, c)) } else { rest.terms.push((t, c / f)) }
        }
        self.remainder.add(&r, self.scale);
        self.rest = rest;
        self.d /= f;
        self.scale *= f;
        true
    }
}

/// The floor quotient by `d`, if it is the same for all values of the interval.
fn constant_quotient((lo, hi): Interval, d: i128) -> Option<i128> {
    let k = lo.div_euclid(d);
    (k == hi.div_euclid(d)).then_some(k)
}

fn positive_const(g: &Graph, u: UOp) -> Option<i128> {
    g.const_int(u).filter(|&d| d > 0 && g.dtype(u).is_int()).map(|d| d as i128)
}

fn checked_product(a: i128, b: i128, dt: crate::DType) -> Option<i64> {
    Some(a * b).filter(|&p| fits(dt, (p, p))).map(|p| p as i64)
}

/// Simplifies division or remainder by a positive divisor that is not a constant.
fn by_symbolic_divisor(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (x, d, dt) = (g.src_at(u, 0), g.src_at(u, 1), g.dtype(u));
    if g.op(d) == Op::Const || g.bounds(d).0 < 1 || dt == crate::DType::U64 {
        return None;
    }
    let is_div = g.op(u) == Op::FloorDiv;
    let (b, n) = (bounds(g, x), bounds(g, d));
    if b.0 >= 0 && b.1 < n.0 {
        return Some(if is_div { g.int(0, dt) } else { x });
    }
    // terms that are d or a product with d are divided out
    let whole = Linear::of(g, x);
    let (mut out, mut rest) = (Linear::default(), Linear { konst: whole.konst, ..Linear::default() });
    for &(t, k) in &whole.terms {
        let src = g.src(t);
        if t == d {
            out.konst += k;
        } else if g.op(t) == Op::Mul && no_wrap(g, t) && src.contains(&d) {
            let other = if src[0] == d { src[1] } else { src[0] };
            out.add(&Linear::term(other, 1), k);
        } else {
            rest.add(&Linear::term(t, 1), k);
        }
    }
    if out.terms.is_empty() && out.konst == 0 {
        return None;
    }
    out.sort(g);
    rest.sort(g);
    let rest = rest.build(g, dt)?;
    if !is_div {
        return Some(g.binary(Op::FloorMod, rest, d));
    }
    let q = g.binary(Op::FloorDiv, rest, d);
    out.add(&Linear::term(q, 1), 1);
    out.sort(g);
    out.build(g, dt)
}

/// Merges a quotient and a remainder of a sum that have the same numerator; true if the sum changed.
pub(super) fn recombine(g: &mut Graph, sum: &mut Linear) -> bool {
    for i in 0..sum.terms.len() {
        let (t, a) = sum.terms[i];
        let joined = match g.op(t) {
            Op::FloorMod => join_remainder(g, sum, t, a),
            Op::FloorDiv => join_quotient(g, sum, t, a),
            _ => None,
        };
        if let Some(new) = joined {
            *sum = new;
            sum.sort(g);
            return true;
        }
    }
    false
}

/// `a*(y % m) + a*m*(y // m) = a*y`, and `a*(y % m) + a*m*((y // m) % n) = a*(y % (m*n))`.
fn join_remainder(g: &mut Graph, sum: &Linear, t: UOp, a: i128) -> Option<Linear> {
    let (y, m) = (g.src_at(t, 0), positive_const(g, g.src_at(t, 1))?);
    let dt = g.dtype(t);
    // `y//m`, also in the form to which `div` rewrites it if y is itself a quotient: `(z//k)//m` is `z//(k*m)`
    let is_quotient = |g: &Graph, q: UOp| {
        let (op, src) = (g.op(q), g.src(q));
        if op != Op::FloorDiv {
            return false;
        }
        let by = g.const_int(src[1]).unwrap_or(0) as i128;
        let direct = src[0] == y && by == m;
        let deeper = g.op(y) == Op::FloorDiv && src[0] == g.src_at(y, 0) && {
            positive_const(g, g.src_at(y, 1)).is_some_and(|k| by == k * m)
        };
        direct || deeper
    };
    for &(q, b) in &sum.terms {
        if b != a * m {
            continue;
        }
        let mut out = sum.clone();
        if is_quotient(g, q) {
            out.add(&Linear { terms: SmallVec::from_slice(&[(t, -a), (q, -b)]), konst: 0 }, 1);
            out.add(&Linear::of(g, y), a);
            return Some(out);
        }
        if g.op(q) == Op::FloorMod
            && is_quotient(g, g.src_at(q, 0))
            && let Some(n) = positive_const(g, g.src_at(q, 1))
            && let Some(mn) = checked_product(m, n, dt)
        {
            let mn = g.int(mn, dt);
            let whole = g.binary(Op::FloorMod, y, mn);
            out.add(&Linear { terms: SmallVec::from_slice(&[(t, -a), (q, -b), (whole, a)]), konst: 0 }, 1);
            return Some(out);
        }
    }
    None
}

/// `k*y - k*d*(y // d) = k*(y % d)`.
fn join_quotient(g: &mut Graph, sum: &Linear, t: UOp, b: i128) -> Option<Linear> {
    let (y, d) = (g.src_at(t, 0), positive_const(g, g.src_at(t, 1))?);
    if b % d != 0 {
        return None;
    }
    let (k, dt) = (-b / d, g.dtype(t));
    let form = Linear::of(g, y);
    if form.terms.is_empty() || !form.terms.iter().all(|&(x, c)| sum.factor(x) == k * c) {
        return None;
    }
    let c = g.int(d as i64, dt);
    let r = g.binary(Op::FloorMod, y, c);
    let mut out = sum.clone();
    out.add(&form, -k);
    out.add(&Linear { terms: SmallVec::from_slice(&[(t, -b), (r, k)]), konst: 0 }, 1);
    Some(out)
}
