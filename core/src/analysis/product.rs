//! Recognises sums of products: matrix products, convolutions and the like. In: a reduction of a tensor graph or of a
//! kernel. Out: its two factors, and on which loops each of them depends. An axis of only one factor is a row or column
//! axis; one of both factors is summed over or a batch axis.
//!
//! Every pass that treats contractions specially asks here whether a node is one, and adds only its own requirements
//! (dtypes, constant factors, sizes).

use crate::DType;
use crate::uop::{Arg, Graph, Op, RangeSet, ReduceOp, UOp};
use smallvec::SmallVec;

/// The two factors of the terms of a sum, if these are products.
pub(crate) fn factors(g: &Graph, sum: UOp) -> Option<[UOp; 2]> {
    let adds = g.op(sum) == Op::Reduce && matches!(g.arg(sum), Arg::Reduce(ReduceOp::Add, _));
    if !adds { None } else { product(g, g.src_at(sum, 0)) }
}

/// The two factors of a product.
pub(crate) fn product(g: &Graph, u: UOp) -> Option<[UOp; 2]> {
    match g.src(u) {
        &[a, b] if g.op(u) == Op::Mul => Some([a, b]),
        _ => None,
    }
}

/// The terms of a sum of products.
pub(crate) struct Terms {
    /// The two factors.
    pub(crate) pair: [UOp; 2],
    /// The condition under which a term counts; where it is false the term is zero.
    pub(crate) gate: Option<UOp>,
    /// The constant by which all terms are multiplied.
    pub(crate) scale: f64,
}

/// The terms of a sum, if they are products. Two roundings are ignored: a term that is rounded to 16 bits before it is
/// added counts as the exact product; and a constant by which a 16-bit factor is multiplied counts as a factor of the
/// sum, so that a matrix tile can load the factor as it is stored.
pub(crate) fn terms_of(g: &Graph, sum: UOp) -> Option<Terms> {
    if !matches!(g.arg(sum), Arg::Reduce(ReduceOp::Add, _)) {
        return None;
    }
    let (mut term, mut gate, mut scale) = (g.src_at(sum, 0), None, 1.0);
    if g.op(term) == Op::Where && g.const_val(g.src_at(term, 2)).is_some_and(|c| c.as_f64() == 0.0) {
        gate = Some(g.src_at(term, 0));
        term = g.src_at(term, 1);
    }
    let widened = |u: UOp| g.op(u) == Op::Cast && is_half(g.dtype(g.src_at(u, 0))) && g.dtype(u).is_float();
    if widened(term) {
        term = g.src_at(term, 0);
    }
    let bare = |u: UOp| if widened(u) { g.src_at(u, 0) } else { u };
    let pair = product(g, term)?.map(bare).map(|u| {
        let by = (g.op(u) == Op::Mul && is_half(g.dtype(u))).then(|| g.const_val(g.src_at(u, 1))).flatten();
        let Some(by) = by.map(|c| c.as_f64()).filter(|c| c.is_finite() && *c != 0.0) else { return u };
        scale *= by;
        g.src_at(u, 0)
    });
    Some(Terms { pair, gate, scale })
}

/// Is it a 16-bit float?
pub(crate) fn is_half(dt: DType) -> bool {
    matches!(dt, DType::F16 | DType::BF16)
}

/// Does a factor in a tensor graph have fewer elements, below its movement ops, than the product? Then each of its
/// elements is used several times.
pub(crate) fn repeats(g: &Graph, mut factor: UOp, product: UOp) -> bool {
    while g.op(factor).is_movement() {
        factor = g.src_at(factor, 0);
    }
    g.numel(factor) < g.numel(product)
}

/// Loops, grouped by which of two factors depends on them.
pub(crate) struct Sides {
    /// Loops on which only the first factor depends, and those on which only the second does: rows and columns.
    pub(crate) own: [SmallVec<[UOp; 4]>; 2],
    /// Loops on which both factors depend.
    pub(crate) both: SmallVec<[UOp; 4]>,
}

/// Groups loops by the factors that depend on them, given as the set of ranges of each. Loops that neither has are
/// dropped.
pub(crate) fn sides(g: &Graph, loops: &[UOp], factors: [RangeSet; 2]) -> Sides {
    let mut out = Sides { own: Default::default(), both: SmallVec::new() };
    for &r in loops {
        match factors.map(|set| set >> g.range_arg(r).id & 1 == 1) {
            [true, false] => out.own[0].push(r),
            [false, true] => out.own[1].push(r),
            [true, true] => out.both.push(r),
            [false, false] => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::uop::AxisKind;

    #[test]
    fn a_matrix_product_has_two_factors_that_repeat() {
        let mut g = Graph::new();
        let (a, b) = (g.param(0, F32, 12), g.param(1, F32, 20));
        let (a, b) = (g.reshape(a, &[3, 4, 1]), g.reshape(b, &[1, 4, 5]));
        let (a, b) = (g.expand(a, &[3, 4, 5]), g.expand(b, &[3, 4, 5]));
        let product = g.binary(Op::Mul, a, b);
        let (sum, most) = (g.reduce(product, ReduceOp::Add, &[1]), g.reduce(product, ReduceOp::Max, &[1]));
        assert_eq!((factors(&g, sum), factors(&g, most), factors(&g, product)), (Some([a, b]), None, None));
        assert!(repeats(&g, a, product) && repeats(&g, b, product));
        let square = g.binary(Op::Mul, product, product);
        assert!(!repeats(&g, product, square));
    }

    #[test]
    fn loops_are_sorted_by_the_factors_that_have_them() {
        let mut g = Graph::new();
        let [batch, m, n, k, z] = [0, 1, 2, 3, 4].map(|id| g.range(4, id, AxisKind::Loop));
        let set = |list: [UOp; 3]| list.iter().fold(0, |s: RangeSet, &r| s | g.ranges(r));
        let found = sides(&g, &[batch, m, n, k, z], [set([batch, m, k]), set([batch, n, k])]);
        assert_eq!((&found.own[0][..], &found.own[1][..], &found.both[..]), (&[m][..], &[n][..], &[batch, k][..]));
    }
}
