//! Opts for sums of dot products of words (`Op::DotBytes`, `Op::DotPairs`) on CPUs. In: such a kernel, a product of a
//! quantised matrix with vectors. Out: lanes along the rows of the matrix, several vectors that share what is read and
//! unpacked of the matrix, and the loop order. Loop bodies are long, so registers are not counted exactly: each digit
//! of a vector needs one accumulator, and the remaining registers hold the words of a part of a row.

use super::Opt;
use super::heuristic::View;
use crate::target::{HAS_DOT_BYTES, HAS_DOTS};
use crate::uop::{Op, UOp};

/// The most vectors that share a part of the matrix.
const MOST_VECTORS: usize = 8;
/// The most registers of rows (lanes) if there is only one vector.
const MOST_ROWS: usize = 4;
/// The least rows, as lanes of all registers, that share the words of several vectors.
const LEAST_ROWS: usize = 8;

impl View<'_> {
    /// Opts for a kernel with such products; `None` for other kernels.
    pub(super) fn dot_bytes(&self) -> Option<Vec<Opt>> {
        let g = &self.k.g;
        if !HAS_DOTS || !self.may_overlap_and_stage || self.reduce_axes.is_empty() || self.k.role.is_rows() {
            return None;
        }
        let dots: Vec<UOp> = self.k.nodes().into_iter().filter(|&u| g.op(u).is_dot()).collect();
        let ranges = |i: usize| dots.iter().fold(0, |m, &u| m | g.ranges(g.src_at(u, i)));
        let (matrix, vectors) = (ranges(0), ranges(1));
        let has = |m: crate::uop::RangeSet, r: UOp| m >> self.id(r) & 1 == 1;
        let lanes = self.t.caps.lanes;
        let lane = self.out_axes.iter().copied().find(|&r| {
            has(matrix, r)
                && !has(vectors, r)
                && self.len(r).is_multiple_of(lanes)
                && self.inner.iter().any(|a| a.affine.stride(g, r) == Some(1))
        })?;
        let vector = self.out_axes.iter().copied().find(|&r| has(vectors, r) && !has(matrix, r));
        let fits = |r: UOp, most: usize| (1..=most).rev().find(|&f| self.len(r).is_multiple_of(f)).unwrap_or(1);
        // The digits of a vector are separate parameters, each a word and with an accumulator of its own. Pairs are two
        // words that add up in one.
        let (mut digits, mut words) = (1, 2);
        if HAS_DOT_BYTES && dots.iter().any(|&u| g.op(u) == Op::DotBytes) {
            let mut all: Vec<UOp> = dots.iter().flat_map(|&u| g.reachable(&[g.src_at(u, 1)])).collect();
            all.retain(|&u| g.op(u) == Op::Param);
            all.sort_unstable();
            all.dedup();
            digits = all.len().max(1);
            words = digits;
        }
        let shared = vector.map_or(1, |r| fits(r, MOST_VECTORS.min(self.t.caps.vector_registers / 3) / digits));
        // As many of the adjacent rows as possible, so that whole cache lines are read. Several vectors share two
        // registers of rows if these are narrow, as each word of a vector is loaded for at least eight rows then, or if
        // accumulators, the words of all vectors and those of the rows fit.
        let fit = 2 * shared * digits + shared * words + 2 <= self.t.caps.vector_registers;
        let most = if shared <= 2 { MOST_ROWS / shared } else { 1 + usize::from(fit || 2 * lanes <= LEAST_ROWS) };
        let rows = (1..=most).rev().find(|n| self.len(lane).is_multiple_of(n * lanes)).unwrap_or(1);
        let mut opts = Vec::new();
        if let Some(r) = vector.filter(|_| shared > 1) {
            opts.push(Opt::upcast(self.id(r), shared));
        }
        opts.push(Opt::lane(self.id(lane), rows * lanes));
        // rows go outermost: a part of the matrix stays in a cache while it is multiplied with all vectors
        if let Some(r) = vector.filter(|&r| self.len(r) > shared) {
            let later =
                self.out_axes.iter().copied().filter(|&x| self.id(x) > self.id(r) && x != lane && has(matrix, x));
            if let Some(x) = later.max_by_key(|&x| self.len(x)) {
                opts.push(Opt::swap(self.id(r), self.id(x)));
            }
        }
        Some(opts)
    }
}
