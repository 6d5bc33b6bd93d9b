//! Classifies a kernel by what it computes as a whole. In: a kernel as the scheduler made it, before any opt. Out: its
//! [`Role`], which stays with the kernel ([`crate::schedule::Ast`]), so that no pass has to guess it from a graph that
//! opts have changed.

use super::product::factors;
use crate::uop::{AxisKind, Graph, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// The kind of computation that a kernel is, which decides how it is optimised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Each element is computed by itself.
    Elementwise,
    /// Iterations of one loop run in order, since each reads what an earlier one wrote: a scan, a scatter.
    Walk,
    /// The steps of a recurrence in order, each with local arrays between loops over its elements.
    Recurrence,
    /// One reduction for each result, but not of products: sums, maxima, pooling.
    Reduction,
    /// One sum of products for each result: matrix products, convolutions.
    Contraction,
    /// Several reductions, or one whose result is read back over the row that it reduced: softmax, norms.
    Rows,
    /// Matrix products with row operations between them, whose intermediate rows stay in local arrays: attention on
    /// CPUs.
    Chain,
    /// The same without local arrays, where one loop over keys can compute it all: attention on GPUs.
    Attention,
}

impl Role {
    /// The role of a kernel graph.
    pub fn of(g: &Graph, sink: UOp) -> Role {
        let nodes = g.reachable(&[sink]);
        let all = |op: Op| nodes.iter().copied().filter(move |&u| g.op(u) == op);
        let walks = || all(Op::Range).any(|r| g.kind(r) == AxisKind::Walk);
        if all(Op::Stage).next().is_some() {
            return if walks() { Role::Recurrence } else { Role::Chain };
        }
        let reduces: SmallVec<[UOp; 4]> = all(Op::Reduce).collect();
        let Some(&first) = reduces.first() else {
            return if walks() { Role::Walk } else { Role::Elementwise };
        };
        if super::attention::find(g, sink).is_some() {
            return Role::Attention;
        }
        let inside = reduces.iter().fold(!0, |m: RangeSet, &r| m & g.ranges(r));
        let reads_back = |r: UOp| g.kind(r) == AxisKind::Loop && inside & g.ranges(r) == 0;
        match () {
            () if reduces.len() > 1 || all(Op::Range).any(reads_back) => Role::Rows,
            () if factors(g, first).is_some() => Role::Contraction,
            () => Role::Reduction,
        }
    }

    /// Does the kernel process whole rows rather than tiles of results?
    pub fn is_rows(self) -> bool {
        matches!(self, Role::Rows | Role::Chain | Role::Attention | Role::Recurrence)
    }
}
