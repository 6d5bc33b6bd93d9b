//! How an index depends on loops: `sum(stride * range) + constant`, and what does not fit into that form. In: an integer expression of a
//! kernel, as addresses are made of. Indices are built so that they do not wrap ([`super::linear`] is for integers of which nobody knows that).

use crate::uop::{Graph, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// An index as far as it is a sum of multiples of ranges.
pub struct Affine {
    /// Ranges, each with its factor. One that occurs twice is there twice.
    pub terms: SmallVec<[(UOp, i64); 6]>,
    /// What is added whatever the ranges are.
    pub constant: i64,
    /// Other parts of the sum.
    pub others: SmallVec<[UOp; 2]>,
    /// Ranges that other parts depend on.
    pub tangled: RangeSet,
}

/// Takes an integer expression apart.
pub fn affine(g: &Graph, index: UOp) -> Affine {
    let mut out = Affine { terms: SmallVec::new(), constant: 0, others: SmallVec::new(), tangled: 0 };
    let mut stack: SmallVec<[(UOp, i64); 8]> = SmallVec::from_slice(&[(index, 1)]);
    while let Some((u, times)) = stack.pop() {
        let scaled = |c: UOp| g.const_int(c)?.checked_mul(times);
        match (g.op(u), g.src(u)) {
            (Op::Add, src) => stack.extend(src.iter().map(|&s| (s, times))),
            (Op::Mul, &[x, c]) if scaled(c).is_some() => stack.push((x, scaled(c).unwrap_or(0))),
            (Op::Cast, &[x]) if g.dtype(x).is_int() && g.bounds(u) == g.bounds(x) => stack.push((x, times)),
            (Op::Range, _) => out.terms.push((u, times)),
            (Op::Const, _) => out.constant = out.constant.wrapping_add(scaled(u).unwrap_or(0)),
            _ => {
                out.tangled |= g.ranges(u);
                out.others.push(u);
            }
        }
    }
    out
}

impl Affine {
    /// Stride along a range: `Some(0)` if it does not matter, `None` if it matters in another way.
    pub fn stride(&self, g: &Graph, range: UOp) -> Option<i64> {
        if self.tangled >> g.range_arg(range).id & 1 == 1 {
            return None;
        }
        Some(self.factor(range))
    }

    /// What a range is multiplied with, whatever else depends on it.
    pub fn factor(&self, range: UOp) -> i64 {
        self.terms.iter().filter(|t| t.0 == range).map(|t| t.1).sum()
    }

    /// Is it made of ranges and constants alone?
    pub fn is_whole(&self) -> bool {
        self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::I64;
    use crate::uop::AxisKind;

    #[test]
    fn sums_of_multiples_are_taken_apart_and_the_rest_is_named() {
        let mut g = Graph::new();
        let (y, x) = (g.range(8, 0, AxisKind::Loop), g.range(6, 1, AxisKind::Loop));
        let (six, two, five) = (g.idx(6), g.idx(2), g.idx(5));
        let row = g.binary(Op::Mul, y, six);
        let at = g.binary(Op::Add, row, x);
        let at = g.binary(Op::Add, at, five);
        let at = g.binary(Op::Mul, at, two);
        let wide = g.cast(at, I64);
        let a = affine(&g, wide);
        assert_eq!((a.stride(&g, y), a.stride(&g, x), a.constant), (Some(12), Some(2), 10));
        assert!(a.is_whole());
        // a digit of one range leaves the stride of the other
        let half = g.binary(Op::FloorDiv, x, two);
        let at = g.binary(Op::Add, row, half);
        let b = affine(&g, at);
        assert_eq!((b.stride(&g, y), b.stride(&g, x), &b.others[..]), (Some(6), None, &[half][..]));
        // twice the same range
        let twice = g.binary(Op::Add, row, y);
        assert_eq!(affine(&g, twice).stride(&g, y), Some(7));
    }

    #[test]
    fn a_cast_that_loses_bits_is_not_looked_through() {
        let mut g = Graph::new();
        let r = g.range(300, 0, AxisKind::Loop);
        let byte = g.cast(r, crate::DType::U8);
        assert_eq!(affine(&g, byte).stride(&g, r), None);
    }
}
