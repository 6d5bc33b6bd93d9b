//! Proves that the address of a load is inside its buffer wherever the load's gate is true. In: the load's index and
//! its gate. The callers use it when an axis is rounded up: the load then needs no further condition, because what is
//! read past the axis' end is never stored. So the mask of a padded window stays a single mask for all its taps.

use crate::analysis::{Affine, affine};
use crate::uop::{Arg, Graph, Op, UOp};
use smallvec::SmallVec;

/// Is the index inside the parameter's buffer for all values of the loops for which `gate` holds? False if it cannot be
/// proved.
pub(super) fn stays_inside(g: &Graph, index: UOp, gate: Option<UOp>) -> bool {
    let Arg::Param { len, .. } = *g.arg(g.src_at(index, 0)) else { return false };
    let at = affine(g, g.src_at(index, 1));
    if !at.is_whole() {
        return false;
    }
    let mut left: SmallVec<[(UOp, i64); 8]> = SmallVec::new();
    for &(r, times) in &at.terms {
        match left.iter_mut().find(|t| t.0 == r) {
            Some(t) => t.1 += times,
            None => left.push((r, times)),
        }
    }
    let (mut least, mut most) = (at.constant, at.constant);
    let mut add = |times: i64, (lo, hi): (i64, i64)| {
        let ends = [times.saturating_mul(lo), times.saturating_mul(hi)];
        least = least.saturating_add(ends[0].min(ends[1]));
        most = most.saturating_add(ends[0].max(ends[1]));
    };
    for (sum, (lo, hi)) in bounded_sums(g, gate) {
        // the factor with which the bounded sum is contained in the remaining terms of the address
        let of = |r: UOp| left.iter().find(|t| t.0 == r).map_or(0, |t| t.1);
        let Some(&(first, unit)) = sum.terms.first().filter(|t| t.1 != 0) else { continue };
        let times = of(first) / unit;
        if times != 0 && sum.terms.iter().all(|&(r, c)| c.checked_mul(times) == Some(of(r))) {
            left.retain(|t| !sum.terms.iter().any(|s| s.0 == t.0));
            add(times, (lo.saturating_sub(sum.constant), hi.saturating_sub(sum.constant)));
        }
    }
    left.iter().for_each(|&(r, times)| add(times, g.bounds(r)));
    least >= 0 && most < len as i64
}

/// The sums of several ranges that the gate compares with constants, with their least and largest values where it
/// holds.
fn bounded_sums(g: &Graph, gate: Option<UOp>) -> Vec<(Affine, (i64, i64))> {
    let mut found: Vec<(UOp, (i64, i64))> = Vec::new();
    let mut stack: SmallVec<[UOp; 8]> = gate.into_iter().collect();
    while let Some(c) = stack.pop() {
        let (x, y) = match (g.op(c), g.src(c)) {
            (Op::And, src) => {
                stack.extend_from_slice(src);
                continue;
            }
            (Op::CmpLt, &[x, y]) => (x, y),
            _ => continue,
        };
        let (sum, limit) = match (g.const_int(x), g.const_int(y)) {
            (Some(c), None) => (y, (c.saturating_add(1), i64::MAX)),
            (None, Some(c)) => (x, (i64::MIN, c.saturating_sub(1))),
            _ => continue,
        };
        let at = found.iter().position(|f| f.0 == sum).unwrap_or(found.len());
        if at == found.len() {
            found.push((sum, g.bounds(sum)));
        }
        let (lo, hi) = found[at].1;
        found[at].1 = (lo.max(limit.0), hi.min(limit.1));
    }
    let whole = found.into_iter().map(|(u, limit)| (affine(g, u), limit));
    whole.filter(|(sum, _)| sum.is_whole() && sum.terms.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::uop::AxisKind;

    /// Whether the access stays inside for 5 rows of 7 elements with a masked border of 3, read at 7 taps by `columns`
    /// results.
    fn row(columns: usize, masked: bool) -> bool {
        let mut g = Graph::new();
        let x = g.param(1, F32, 5 * 7);
        let (y, column) = (g.range(5, 0, AxisKind::Loop), g.range(columns, 1, AxisKind::Loop));
        let tap = g.range(7, 2, AxisKind::Reduce);
        let (seven, three, last, two) = (g.idx(7), g.idx(-3), g.idx(10), g.idx(2));
        let sum = g.binary(Op::Add, column, tap);
        let (above, below) = (g.binary(Op::CmpLt, two, sum), g.binary(Op::CmpLt, sum, last));
        let gate = g.binary(Op::And, above, below);
        let at = g.binary(Op::Mul, y, seven);
        let at = g.binary(Op::Add, at, sum);
        let at = g.binary(Op::Add, at, three);
        let index = g.index(x, at);
        stays_inside(&g, index, masked.then_some(gate))
    }

    #[test]
    fn a_masked_border_keeps_a_longer_axis_inside() {
        assert!(row(7, true) && row(8, true) && row(16, true));
        // without the mask the first tap is before the buffer
        assert!(!row(7, false) && !row(8, false));
    }
}
