//! How an index depends on loops: `sum(stride * range) + constant`, and what does not fit into that form. In: an integer expression of a
//! kernel, as addresses are made of. Sums and products are taken apart where they do not wrap, by their bounds. Where an element that is an
//! index has no bounds, its sums count as such that do not: it is checked before ([`super::linear`] is for integers of which nobody knows that).

use crate::DType;
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
            (Op::Add | Op::Mul, _) if may_wrap(g, u) => {
                out.tangled |= g.ranges(u);
                out.others.push(u);
            }
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

/// Does a sum or a product lose its upper bits, as far as bounds tell? Numbers of 32 and 64 bits with a sign, which indices are made of, do
/// not if nothing is known of an operand; those of other dtypes are the program's own.
fn may_wrap(g: &Graph, u: UOp) -> bool {
    let unknown = |v: UOp| {
        let full =
            g.dtype(v).int_range().map(|(lo, hi)| (lo.max(i64::MIN.into()) as i64, hi.min(i64::MAX.into()) as i64));
        full.is_none_or(|full| g.bounds(v) == full)
    };
    let index = matches!(g.dtype(u), DType::I32 | DType::I64);
    (unknown(u) || g.dtype(u) == DType::U64) && !(index && g.srcs(u).iter().any(|&s| unknown(s)))
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
        let wide = g.cast(at, DType::I64);
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
        let byte = g.cast(r, DType::U8);
        assert_eq!(affine(&g, byte).stride(&g, r), None);
    }

    #[test]
    fn sums_that_wrap_are_not_looked_through() {
        let mut g = Graph::new();
        let r = g.range(100, 0, AxisKind::Loop);
        // of a byte: r + 1, of which 255 more are r
        let one = g.idx(1);
        let next = g.binary(Op::Add, r, one);
        let next = g.cast(next, DType::U8);
        let most = g.int(255, DType::U8);
        let same = g.binary(Op::Add, next, most);
        let at = g.cast(same, DType::I32);
        let a = affine(&g, at);
        assert_eq!((a.stride(&g, r), a.constant, a.is_whole()), (None, 0, false));
        // of 32 bits: from r = 2 on it begins anew
        let half = g.idx(1 << 30);
        let far = g.binary(Op::Mul, r, half);
        assert_eq!(affine(&g, far).stride(&g, r), None);
        // an element that is an index
        let table = g.param(0, DType::I32, 100);
        let element = g.index(table, r);
        let element = g.load(element);
        let width = g.idx(64);
        let row = g.binary(Op::Mul, element, width);
        let x = g.range(64, 1, AxisKind::Loop);
        let at = g.binary(Op::Add, row, x);
        assert_eq!(affine(&g, at).stride(&g, x), Some(1));
    }
}
