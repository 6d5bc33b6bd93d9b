//! Integer sums as linear forms `c1*t1 + .. + cn*tn + c0`, exact in Z: a node is expanded into its sources only if it
//! provably does not wrap. The canonical order of terms depends on structure alone, so that generated source does not
//! depend on the order in which nodes were made.

use crate::DType;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::util::sort;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// A sum of scaled terms and a constant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Linear {
    /// Terms with nonzero factors, in canonical order. No term is itself a sum, a constant or a product with a
    /// constant.
    pub(crate) terms: SmallVec<[(UOp, i128); 8]>,
    /// The constant.
    pub(crate) konst: i128,
}

/// A closed interval of integers.
pub(crate) type Interval = (i128, i128);

/// Is the integer value known not to have wrapped? It is if its bounds are narrower than its dtype's range.
pub(crate) fn no_wrap(g: &Graph, u: UOp) -> bool {
    let dt = g.dtype(u);
    let (lo, hi) = g.bounds(u);
    match dt.int_range() {
        Some(full) if dt != DType::U64 && dt != DType::Bool => (lo as i128, hi as i128) != full,
        _ => false,
    }
}

/// Interval of a node.
pub(crate) fn bounds(g: &Graph, u: UOp) -> Interval {
    let (lo, hi) = g.bounds(u);
    (lo as i128, hi as i128)
}

/// Does an interval lie inside `dt`?
pub(crate) fn fits(dt: DType, (lo, hi): Interval) -> bool {
    dt.int_range().is_some_and(|(a, b)| a <= lo && hi <= b) && dt != DType::U64
}

impl Linear {
    /// `k * t`.
    pub(crate) fn term(t: UOp, k: i128) -> Linear {
        Linear { terms: SmallVec::from_slice(&[(t, k)]), konst: 0 }
    }

    /// The linear form of an integer node. A sum or product that may wrap is a term of its own.
    pub(crate) fn of(g: &Graph, u: UOp) -> Linear {
        let mut out = Linear::default();
        out.open(g, u, 1);
        out.sort(g);
        out
    }

    /// Adds `scale * u` without sorting.
    fn open(&mut self, g: &Graph, u: UOp, scale: i128) {
        let mut stack: SmallVec<[(UOp, i128); 8]> = SmallVec::new();
        stack.push((u, scale));
        while let Some((u, k)) = stack.pop() {
            let src = g.src(u);
            match g.op(u) {
                Op::Const if g.dtype(u) != DType::U64 => self.konst += k * g.const_int(u).unwrap_or(0) as i128,
                Op::Add if no_wrap(g, u) => stack.extend([(src[1], k), (src[0], k)]),
                Op::Sub if no_wrap(g, u) => stack.extend([(src[1], -k), (src[0], k)]),
                Op::Neg if no_wrap(g, u) => stack.push((src[0], -k)),
                Op::Mul if no_wrap(g, u) && g.op(src[1]) == Op::Const => {
                    stack.push((src[0], k * g.const_int(src[1]).unwrap_or(0) as i128));
                }
                _ => self.add_term(u, k),
            }
        }
    }

    fn add_term(&mut self, t: UOp, k: i128) {
        match self.terms.iter_mut().find(|x| x.0 == t) {
            Some(x) => x.1 += k,
            None => self.terms.push((t, k)),
        }
    }

    /// Adds `scale * other`; call [`Linear::sort`] after.
    pub(crate) fn add(&mut self, other: &Linear, scale: i128) {
        for &(t, k) in &other.terms {
            self.add_term(t, k * scale);
        }
        self.konst += scale * other.konst;
    }

    /// Drops zero terms and restores canonical order.
    pub(crate) fn sort(&mut self, g: &Graph) {
        self.terms.retain(|t| t.1 != 0);
        sort::by(&mut self.terms, |a, b| order(g, a.0, b.0));
    }

    /// The factor of a term, 0 if absent.
    pub(crate) fn factor(&self, t: UOp) -> i128 {
        self.terms.iter().find(|x| x.0 == t).map_or(0, |x| x.1)
    }

    /// Interval of the sum, term by term.
    pub(crate) fn bounds(&self, g: &Graph) -> Interval {
        self.bounds_by(|t| bounds(g, t))
    }

    /// Interval of the sum with given intervals of the terms.
    pub(crate) fn bounds_by(&self, of: impl Fn(UOp) -> Interval) -> Interval {
        self.terms.iter().fold((self.konst, self.konst), |(lo, hi), &(t, k)| {
            let (a, b) = of(t);
            if k >= 0 { (lo + k * a, hi + k * b) } else { (lo + k * b, hi + k * a) }
        })
    }

    /// Greatest common divisor of the factors (not the constant); 0 if there are none.
    pub(crate) fn gcd(&self) -> i128 {
        self.terms.iter().fold(0, |d, t| gcd(d, t.1))
    }

    /// The canonical node of dtype `dt`: terms in order, constant last. `None` if that may wrap or needs a negative factor
    /// of an unsigned type.
    pub(crate) fn build(&self, g: &mut Graph, dt: DType) -> Option<UOp> {
        if !fits(dt, self.bounds(g)) || (dt.is_unsigned() && (self.konst < 0 || self.terms.iter().any(|t| t.1 < 0))) {
            return None;
        }
        let mut sum: Option<UOp> = None;
        for &(t, k) in &self.terms {
            let x = if k == 1 {
                t
            } else {
                let k = g.int(i64::try_from(k).ok().filter(|&k| fits(dt, (k as i128, k as i128)))?, dt);
                g.binary(Op::Mul, t, k)
            };
            sum = Some(match sum {
                None => x,
                Some(s) => g.binary(Op::Add, s, x),
            });
        }
        if self.konst != 0 || sum.is_none() {
            let c = g.int(i64::try_from(self.konst).ok().filter(|&k| fits(dt, (k as i128, k as i128)))?, dt);
            sum = Some(match sum {
                None => c,
                Some(s) => g.binary(Op::Add, s, c),
            });
        }
        let sum = sum?;
        // partial sums may leave the type although the whole does not
        (self.terms.len() + usize::from(self.konst != 0) < 2 || no_wrap(g, sum)).then_some(sum)
    }
}

/// Greatest common divisor, never negative.
pub(crate) fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Canonical order of operands: outer ranges first, then by structure. The node's number decides only between nodes
/// that differ in an argument without an order.
pub(crate) fn order(g: &Graph, mut a: UOp, mut b: UOp) -> Ordering {
    loop {
        if a == b {
            return Ordering::Equal;
        }
        let first = |u: UOp| (g.op(u) == Op::Const, g.ranges(u).trailing_zeros());
        let head = |u: UOp| (g.ranges(u), g.op(u), g.dtype(u), g.src(u).len());
        let by_head = first(a).cmp(&first(b)).then_with(|| head(a).cmp(&head(b))).then_with(|| by_arg(g, a, b));
        if by_head != Ordering::Equal {
            return by_head;
        }
        match g.src(a).iter().zip(g.src(b)).find(|(x, y)| x != y) {
            Some((&x, &y)) => (a, b) = (x, y),
            None => return a.cmp(&b),
        }
    }
}

fn by_arg(g: &Graph, a: UOp, b: UOp) -> Ordering {
    match (g.arg(a), g.arg(b)) {
        (Arg::Const(_), Arg::Const(_)) => {
            let (x, y) = (g.const_val(a), g.const_val(b));
            let (x, y) = (x.map_or(0.0, |v| v.as_f64()), y.map_or(0.0, |v| v.as_f64()));
            x.total_cmp(&y)
        }
        (Arg::Range(x), Arg::Range(y)) => x.cmp(y),
        (Arg::Param { slot: x, .. }, Arg::Param { slot: y, .. }) => x.cmp(y),
        (Arg::Var { name: x, .. }, Arg::Var { name: y, .. }) => x.cmp(y),
        (Arg::Acc(x), Arg::Acc(y)) => x.cmp(y),
        (Arg::Scratch { id: x, .. }, Arg::Scratch { id: y, .. }) => x.cmp(y),
        _ => Ordering::Equal,
    }
}
