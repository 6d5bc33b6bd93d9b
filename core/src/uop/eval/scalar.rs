//! Evaluates one elementwise op on constants, and whole scalar expressions over leaves whose values the caller
//! supplies. Constant folding and the translation validation of rewrite rules use these functions.

use super::lanes::{Lanes, alu};
use crate::DType;
use crate::dtype::Scalar;
use crate::uop::{Graph, Op, UOp};
use smallvec::SmallVec;

/// The value of `op` with result dtype `dt` on constants, or `None` if the op is not elementwise or does not take these
/// dtypes.
pub fn eval_alu(op: Op, dt: DType, src: &[(Scalar, DType)]) -> Option<Scalar> {
    if !op.is_alu() {
        return None;
    }
    let vals: SmallVec<[Lanes; 3]> = src.iter().map(|&(v, dt)| Lanes::splat(v, dt, 1)).collect();
    let refs: SmallVec<[&Lanes; 3]> = vals.iter().collect();
    let dts: SmallVec<[DType; 3]> = src.iter().map(|s| s.1).collect();
    alu(op, dt, &refs, &dts).map(|v| v.get(0))
}

/// The values of scalar expressions. `leaf` is called first for every node and supplies the values of leaves; it may
/// also override the value of any other node. A result is `None` where it depends on a leaf without a value or on an op
/// that needs memory. Of a `Where` only the chosen side needs a value.
pub fn eval_exprs(g: &Graph, roots: &[UOp], mut leaf: impl FnMut(UOp) -> Option<Scalar>) -> Vec<Option<Scalar>> {
    let order = g.reachable(roots);
    let mut vals: Vec<Option<Scalar>> = vec![None; order.last().map_or(0, |u| u.0 as usize + 1)];
    for u in order {
        let at = |i: usize| vals[g.src_at(u, i).0 as usize];
        vals[u.0 as usize] = match leaf(u) {
            Some(v) => Some(v),
            None if g.op(u) == Op::Where => at(0).and_then(|c| if c.as_bool() { at(1) } else { at(2) }),
            None if g.op(u).is_alu() => g
                .src(u)
                .iter()
                .map(|&s| Some((vals[s.0 as usize]?, g.dtype(s))))
                .collect::<Option<SmallVec<[_; 3]>>>()
                .and_then(|src| eval_alu(g.op(u), g.dtype(u), &src)),
            None if matches!(g.op(u), Op::Contiguous | Op::Detach | Op::After) => at(0),
            None => g.const_val(u),
        };
    }
    roots.iter().map(|r| vals[r.0 as usize]).collect()
}
