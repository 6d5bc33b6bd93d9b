//! Rule sets that several passes share. Policy: a rule is exact (same value for every input, NaN and -0.0 included) unless
//! its set says otherwise; integer rules that rest on ranges use `Graph::bounds` as the proof that nothing wraps.
//!
//! | set | what | float policy |
//! |---|---|---|
//! | [`SYMBOLIC`] | simplification and canonical forms | exact |
//! | [`decomp`] | ops and dtypes that a target lacks | as each says |
//! | [`LATE`] | floor division, subtraction, fused multiply-add as a program has them; never with `SYMBOLIC` | fma |

mod cmp;
pub mod decomp;
mod divmod;
mod fold;
mod late;
mod limits;
mod symbolic;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod under;

pub(crate) use cmp::conjuncts;
pub use fold::{fold, fold_node};
pub use late::LATE;
pub(crate) use limits::{below, needed, sum_of_ranges};
pub use limits::{limits, runs_down};
pub use symbolic::SYMBOLIC;
pub(crate) use under::simplify_under;

use crate::rewrite::{Memo, rewrite_with};
use crate::uop::{Graph, UOp};

/// Simplifies one expression with [`SYMBOLIC`].
pub fn simplify(g: &mut Graph, u: UOp) -> UOp {
    simplify_all(g, &[u], &mut Memo::sparse())[0]
}

/// Simplifies several expressions; the memo may be kept for later calls on the same graph.
pub fn simplify_all(g: &mut Graph, roots: &[UOp], memo: &mut Memo) -> Vec<UOp> {
    rewrite_with(g, roots, &[&SYMBOLIC], &mut (), memo)
}

/// Simplifies one expression, keeping results in `memo` for later calls on the same graph.
pub fn simplify_with(g: &mut Graph, u: UOp, memo: &mut Memo) -> UOp {
    simplify_all(g, &[u], memo)[0]
}
