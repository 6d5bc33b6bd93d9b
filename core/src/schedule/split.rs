//! Splits long sums into two stages, partial sums of pieces and the sum of those. Threads can then share a sum that has
//! few results, and what one piece of a long contraction reads stays in a cache while all of its results are computed.
//! Reductions of any kind are split if they are longer than the target's loops may be.

use super::scan_scatter::padded;
use crate::DType;
use crate::analysis::product;
use crate::target::Target;
use crate::uop::{Graph, Op, ReduceOp, Shape, UOp};
use smallvec::SmallVec;

/// The length of a piece of a long contraction on a CPU, in elements of each operand's row: a few vectors of them fit a
/// second-level cache.
const PIECE: usize = 4096;
/// Contractions with fewer terms than this stay whole on a CPU.
const MIN_SPLIT_TERMS: usize = 16_384;
/// Contractions with fewer results than this stay whole on a CPU, as partial results do not pay.
const MIN_SPLIT_RESULTS: usize = 256;
/// A sum with fewer results than threads is shared out among threads from this many terms on, over all its results.
const MIN_SHARED_ELEMS: usize = 1 << 18;
/// On a GPU a contraction with few results leaves most of it idle, as each thread computes a tile of them, so it is
/// split into pieces. `GPU_RESULTS` is the most partial results that are worth making, `GPU_PIECE` the fewest terms of
/// a piece, and `GPU_PIECES` the most pieces.
const GPU_RESULTS: usize = 1 << 19;
const GPU_PIECE: usize = 512;
const GPU_PIECES: usize = 64;
/// Pieces for each thread of a CPU that shares a sum.
const PER_THREAD: usize = 4;

/// The axis along which to split the sum of `x` over `axes`, and the number of pieces, if it is faster split.
pub(super) fn pieces(g: &Graph, x: UOp, axes: &[u8], t: &Target) -> Option<(usize, usize)> {
    if t.machine.software && t.caps.has_local || t.caps.lanes < 2 {
        return None;
    }
    let shape = g.shape(x);
    let terms: usize = axes.iter().map(|&a| shape[a as usize]).product();
    let results = usize::try_from(g.numel(x) / terms.max(1) as u64).unwrap_or(usize::MAX);
    let axis = axes.iter().map(|&a| a as usize).find(|&a| shape[a] > 1)?;
    let n = shape[axis];
    let most = |want: usize| (2..=want.min(n)).rev().find(|&p| n.is_multiple_of(p)).map(|p| (axis, p));
    if t.caps.has_local {
        let parts = (terms / GPU_PIECE).min(GPU_RESULTS / results.max(1)).min(GPU_PIECES);
        return if is_contraction(g, x) && parts >= 4 { most(parts) } else { None };
    }
    if is_contraction(g, x) {
        let long = terms >= MIN_SPLIT_TERMS && results >= MIN_SPLIT_RESULTS;
        return if long { most(terms / PIECE) } else { None };
    }
    let wanted = t.limits.threads * PER_THREAD;
    if t.limits.threads < 2 || results >= t.limits.threads || g.numel(x) < MIN_SHARED_ELEMS as u64 {
        return None;
    }
    most(wanted)
}

/// Is it a product of which each factor is broadcast, as in a matrix product?
fn is_contraction(g: &Graph, x: UOp) -> bool {
    product::product(g, x).is_some_and(|pair| pair.into_iter().all(|s| product::repeats(g, s, x)))
}

/// Reductions of so many terms are never split: two of two terms each would be no shorter than one of three.
const FEWEST: usize = 4;

/// Does the reduction have more terms than one thread of the target may process?
pub(super) fn is_too_long(g: &Graph, x: UOp, axes: &[u8], t: &Target) -> bool {
    terms(g, x, axes) > (t.limits.max_loop_iterations as usize).max(FEWEST)
}

fn terms(g: &Graph, x: UOp, axes: &[u8]) -> usize {
    axes.iter().map(|&a| g.shape(x)[a as usize]).fold(1, usize::saturating_mul)
}

/// A reduction split recursively until each thread runs at most half of `max_loop_iterations` iterations. Iterations of
/// nested loops count together, hence only half.
pub(super) fn within_loop_limit(g: &mut Graph, x: UOp, op: ReduceOp, axes: &[u8], t: &Target) -> UOp {
    let most = (t.limits.max_loop_iterations as usize / 2).max(FEWEST);
    let longest = axes.iter().map(|&a| a as usize).max_by_key(|&a| g.shape(x)[a]);
    let (Some(axis), true) = (longest, is_too_long(g, x, axes, t)) else { return g.reduce(x, op, axes) };
    let n = g.shape(x)[axis];
    let wanted = terms(g, x, axes).div_ceil(most).clamp(2, n.max(2));
    let pieces = (wanted..=(2 * wanted).min(n)).find(|&p| n.is_multiple_of(p)).unwrap_or(wanted);
    let padding = pieces * n.div_ceil(pieces) - n;
    let nothing = op.identity(g.dtype(x));
    let x = padded(g, x, axis, (0, padding), nothing);
    pieced(g, x, (op, axes), (axis, pieces), &|g, x, axes| within_loop_limit(g, x, op, axes, t))
}

/// The sum of `x` over `axes`, computed as the sum of `n` materialised partial sums along `axis`.
pub(super) fn in_pieces(g: &mut Graph, x: UOp, (op, axes): (ReduceOp, &[u8]), axis: usize, n: usize) -> UOp {
    pieced(g, x, (op, axes), (axis, n), &|g, x, axes| g.reduce(x, op, axes))
}

/// A reduction in two stages, each made by `reduce`: `n` materialised partial ones along `axis`, then the reduction of
/// those. Partial sums and products of 16-bit floats are stored in f32, as the accumulator of an unsplit reduction
/// would be.
fn pieced(
    g: &mut Graph,
    x: UOp,
    (op, axes): (ReduceOp, &[u8]),
    (axis, n): (usize, usize),
    reduce: &dyn Fn(&mut Graph, UOp, &[u8]) -> UOp,
) -> UOp {
    let shape: Shape = g.shape(x).clone();
    let mut cut = shape.clone();
    cut[axis] /= n;
    cut.insert(axis, n);
    let x = g.reshape(x, &cut);
    let asked = g.dtype(x);
    let rounds = matches!(op, ReduceOp::Add | ReduceOp::Mul);
    let x = if rounds && matches!(asked, DType::F16 | DType::BF16) { g.cast(x, DType::F32) } else { x };
    let inner: SmallVec<[u8; 8]> = axes.iter().map(|&a| if a as usize >= axis { a + 1 } else { a }).collect();
    let parts = reduce(g, x, &inner);
    let dt = g.dtype(parts);
    let parts = g.node(Op::Contiguous, dt, &[parts], crate::uop::Arg::None);
    let whole = reduce(g, parts, &[axis as u8]);
    let whole = g.cast(whole, asked);
    let mut out = shape;
    axes.iter().for_each(|&a| out[a as usize] = 1);
    g.reshape(whole, &out)
}
