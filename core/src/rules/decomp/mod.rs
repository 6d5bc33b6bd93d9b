//! Replaces ops that the [`Target`] lacks by ops that it has:
//!
//! - [`dtype`]: arithmetic on a dtype that the target lacks is done in a wider one and converted back;
//! - [`ops`]: small ops (trunc, remainders of floats, dot products of bytes) in terms of others;
//! - [`transcendental`]: exp2, log2, powers, sin, cos and tan as polynomials, without branches.
//!
//! How values are stored is not decided here: a kernel's parameters already have the dtypes that the target stores
//! (`Target::stored_as`).

mod build;
mod circular;
pub mod dtype;
pub mod ops;
mod power;
mod remainder;
pub mod transcendental;

use crate::rewrite::rewrite1;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::{DType, Error, Result};
pub use dtype::WIDEN;
pub use ops::OPS;
pub use transcendental::TRANSCENDENTAL;
pub(crate) use transcendental::{exp_below_zero, is_exponential};

/// Decomposes everything under `sink` for the target. Run before `LATE`. Fails with `Unsupported` where an op on a dtype
/// has no lowering (f64 on a device without it).
pub fn decompose(g: &mut Graph, sink: UOp, t: &Target) -> Result<UOp> {
    let exp = |g: &Graph, u: UOp| g.op(u) == Op::Exp2 && transcendental::is_eval_exp(g, u, t);
    let needed = |g: &Graph, u: UOp| lacks(g, u, t) || dtype::converts_narrow_float(g, u, t) || exp(g, u);
    if !g.reachable(&[sink]).into_iter().any(|u| needed(g, u)) {
        return Ok(sink);
    }
    let out = rewrite1(g, sink, &[&WIDEN, &OPS, &TRANSCENDENTAL], &mut t.clone());
    match g.reachable(&[out]).into_iter().find(|&u| lacks(g, u, t)) {
        None => Ok(out),
        Some(u) => Err(Error::Unsupported {
            what: match g.op(u) {
                Op::Cast => format!("cast of {} to {}", operand_dtype(g, u), g.dtype(u)),
                op => format!("{} on {}", op.name(), operand_dtype(g, u)),
            },
            context: format!("device {}", t.name),
        }),
    }
}

/// The dtype that an elementwise op computes on.
fn operand_dtype(g: &Graph, u: UOp) -> DType {
    g.src(u).last().map_or(DType::Void, |&s| g.dtype(s))
}

/// Is this an op that the target lacks?
fn lacks(g: &Graph, u: UOp, t: &Target) -> bool {
    let op = g.op(u);
    let moves = matches!(op, Op::Where | Op::Bitcast) && operand_dtype(g, u) != DType::F64;
    let converts = op == Op::Cast && ![g.dtype(u), operand_dtype(g, u)].contains(&DType::F64);
    let rough = op == Op::Exp2 && *g.arg(u) == Arg::Number(16) && t.has_rough_powers();
    op.is_alu() && !moves && !converts && !rough && {
        let dt = operand_dtype(g, u);
        !t.has_op(op, dt)
            || ops::has_computed_table(g, u)
            || (op == Op::Cast && !t.caps.arithmetic.has(g.dtype(u)) && g.dtype(u) == DType::F64)
    }
}
