//! What a kernel is as a whole. In: a kernel as the scheduler made it, before any opt. Out: its [`Role`], which goes with it from there
//! on ([`crate::schedule::Ast`]), so that no pass guesses it from what opts have left.

use super::product::factors;
use crate::uop::{AxisKind, Graph, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// What decides how a kernel is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Each element by itself.
    Elementwise,
    /// Turns of one loop follow each other, since each reads what an earlier one wrote: a scan, a scatter.
    Walk,
    /// One reduction for each result, of what is no product: sums, maxima, pools.
    Reduction,
    /// One sum of products for each result: matrix products, convolutions.
    Contraction,
    /// Reductions of a row, one after the other or read back over the row: softmax, norms.
    Rows,
    /// Rows between matrix products that stay in local arrays: attention.
    Chain,
    /// The same without arrays, where one loop over keys can do it all: attention on GPUs.
    Attention,
}

impl Role {
    /// The role of a kernel graph.
    pub fn of(g: &Graph, sink: UOp) -> Role {
        let nodes = g.reachable(&[sink]);
        let all = |op: Op| nodes.iter().copied().filter(move |&u| g.op(u) == op);
        if all(Op::Stage).next().is_some() {
            return Role::Chain;
        }
        let reduces: SmallVec<[UOp; 4]> = all(Op::Reduce).collect();
        let Some(&first) = reduces.first() else {
            let walks = all(Op::Range).any(|r| g.kind(r) == AxisKind::Walk);
            return if walks { Role::Walk } else { Role::Elementwise };
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

    /// Is it about whole rows rather than tiles of results?
    pub fn is_rows(self) -> bool {
        matches!(self, Role::Rows | Role::Chain | Role::Attention)
    }
}
