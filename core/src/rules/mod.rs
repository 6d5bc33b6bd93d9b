//! Rewrite rules that several passes share. A rule is exact, which means that it gives the same value for every input,
//! NaN and -0.0 included, unless its set says otherwise. Integer rules that hold only where nothing overflows take the
//! proof of that from `Graph::bounds`.
//!
//! | set | contents | float policy |
//! |---|---|---|
//! | [`SYMBOLIC`] | simplification and canonical forms | exact |
//! | [`decomp`] | replacements of ops and dtypes that a target lacks | stated at each |
//! | [`LATE`] | final forms of divisions, subtractions, multiply-adds; never run together with `SYMBOLIC` | may fuse to fma |

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
pub use limits::{addresses_fall, limits};
pub(crate) use limits::{nonzero_conditions, sum_of_ranges, upper_limit};
pub use symbolic::SYMBOLIC;
pub(crate) use under::simplify_under;

use crate::rewrite::{Memo, rewrite_with};
use crate::uop::{Graph, UOp};

/// Simplifies one expression with [`SYMBOLIC`].
pub fn simplify(g: &mut Graph, u: UOp) -> UOp {
    simplify_all(g, &[u], &mut Memo::sparse())[0]
}

/// Simplifies several expressions, and keeps results in `memo` for later calls on the same graph.
pub fn simplify_all(g: &mut Graph, roots: &[UOp], memo: &mut Memo) -> Vec<UOp> {
    rewrite_with(g, roots, &[&SYMBOLIC], &mut (), memo)
}

/// Simplifies one expression, keeping results in `memo` for later calls on the same graph.
pub fn simplify_with(g: &mut Graph, u: UOp, memo: &mut Memo) -> UOp {
    simplify_all(g, &[u], memo)[0]
}
