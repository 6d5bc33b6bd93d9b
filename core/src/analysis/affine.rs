//! Splits an index of a kernel into `sum(stride * range) + constant` and the parts that do not have this form. In: an
//! integer expression, such as an address. For example `6*y + x/2 + 5` has the term `y` with factor 6, the constant 5,
//! and `x/2` as another part.
//!
//! Sums and products are expanded where their bounds show that they do not wrap. A loaded element that serves as an
//! index has no bounds; sums with it are taken not to wrap, because the element is checked before it is used.
//! ([`super::linear`] makes no such assumption.)

use crate::DType;
use crate::uop::{Graph, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// An index, as far as it is a sum of multiples of ranges.
pub struct Affine {
    /// Ranges with their factors. A range that occurs twice in the sum has two entries.
    pub terms: SmallVec<[(UOp, i64); 6]>,
    /// The constant part of the sum.
    pub constant: i64,
    /// The other parts of the sum.
    pub others: SmallVec<[UOp; 2]>,
    /// The ranges on which the other parts depend.
    pub non_affine_ranges: RangeSet,
}

/// Splits an integer expression into its affine part and the rest.
pub fn affine(g: &Graph, index: UOp) -> Affine {
    let mut out = Affine { terms: SmallVec::new(), constant: 0, others: SmallVec::new(), non_affine_ranges: 0 };
    let mut stack: SmallVec<[(UOp, i64); 8]> = SmallVec::from_slice(&[(index, 1)]);
    while let Some((u, times)) = stack.pop() {
        let scaled = |c: UOp| g.const_int(c)?.checked_mul(times);
        match (g.op(u), g.src(u)) {
            (Op::Add | Op::Mul, _) if may_wrap(g, u) => {
                out.non_affine_ranges |= g.ranges(u);
                out.others.push(u);
            }
            (Op::Add, src) => stack.extend(src.iter().map(|&s| (s, times))),
            (Op::Mul, &[x, c]) if scaled(c).is_some() => stack.push((x, scaled(c).unwrap_or(0))),
            (Op::Cast, &[x]) if g.dtype(x).is_int() && g.bounds(u) == g.bounds(x) => stack.push((x, times)),
            (Op::Range, _) => out.terms.push((u, times)),
            (Op::Const, _) => out.constant = out.constant.wrapping_add(scaled(u).unwrap_or(0)),
            _ => {
                out.non_affine_ranges |= g.ranges(u);
                out.others.push(u);
            }
        }
    }
    out
}

/// May a sum or product overflow, as far as bounds tell? An i32 or i64 with an operand of unknown bounds is taken to be
/// an index and not to overflow; other dtypes may hold any number of the program.
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
    /// The stride along a range: `Some(0)` if the index does not depend on it, `None` if it depends on it in another
    /// form.
    pub fn stride(&self, g: &Graph, range: UOp) -> Option<i64> {
        if self.non_affine_ranges >> g.range_arg(range).id & 1 == 1 {
            return None;
        }
        Some(self.factor(range))
    }

    /// The factor of a range in the affine part, whether or not other parts depend on it as well.
    pub fn factor(&self, range: UOp) -> i64 {
        self.terms.iter().filter(|t| t.0 == range).map(|t| t.1).sum()
    }

    /// Is the whole index affine?
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
        // a quotient of one range leaves the stride of the other known
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
        // a byte wraps: adding 255 to r + 1 gives r
        let one = g.idx(1);
        let next = g.binary(Op::Add, r, one);
        let next = g.cast(next, DType::U8);
        let most = g.int(255, DType::U8);
        let same = g.binary(Op::Add, next, most);
        let at = g.cast(same, DType::I32);
        let a = affine(&g, at);
        assert_eq!((a.stride(&g, r), a.constant, a.is_whole()), (None, 0, false));
        // 32 bits wrap: from r = 2 on
        let half = g.idx(1 << 30);
        let far = g.binary(Op::Mul, r, half);
        assert_eq!(affine(&g, far).stride(&g, r), None);
        // a loaded element as an index
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
