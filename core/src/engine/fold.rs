//! Constant folding of whole subgraphs: values that depend on weights alone are computed once, when a model is first
//! planned, and become weights.

use crate::analysis::constant::constants;
use crate::rewrite::substitute;
use crate::uop::{Graph, Op, UOp};
use crate::{Error, Result};

/// `roots` rewritten to read a buffer in place of each listed node, once the constant nodes are computed: `buffers` are
/// pairs of node and buffer.
///
/// # Errors
/// `E_VALUE` for a buffer of another dtype or shape than the node that it replaces.
pub fn read(g: &mut Graph, roots: &[UOp], buffers: &[(UOp, UOp)]) -> Result<Vec<UOp>> {
    if let Some((u, b)) = buffers.iter().find(|(u, b)| g.dtype(*u) != g.dtype(*b) || g.shape(*u) != g.shape(*b)) {
        return Err(Error::value("buffer", format!("{:?} in place of {:?}", g.shape(*b), g.shape(*u))));
    }
    Ok(substitute(g, roots, &buffers.iter().copied().collect()))
}

/// The outermost constant nodes that are worth computing once: computed (not just moved) from buffers other than
/// `inputs`, read by a node that is not constant, and at most four times as large as everything together that they are
/// computed from.
pub fn constant_nodes(g: &Graph, roots: &[UOp], inputs: &[u32]) -> Vec<UOp> {
    let nodes = g.value_nodes(roots);
    let constant = constants(g, &nodes, inputs);
    let mut elements = vec![0u64; g.len()];
    let mut computes = vec![false; g.len()];
    for &u in &nodes {
        let i = u.0 as usize;
        let src = g.src(u);
        elements[i] = match g.op(u) {
            Op::Buffer => g.numel(u),
            _ => src.iter().map(|s| elements[s.0 as usize]).fold(0, u64::saturating_add),
        };
        let work = g.op(u).is_alu() && g.op(u) != Op::Cast
            || matches!(g.op(u), Op::Reduce | Op::Gather | Op::Scatter | Op::Scan | Op::Recurrence | Op::Contiguous);
        computes[i] = work || src.iter().any(|s| computes[s.0 as usize]);
    }
    let mut wanted = vec![false; g.len()];
    for &u in &nodes {
        if !constant[u.0 as usize] {
            for &s in g.src(u) {
                wanted[s.0 as usize] = constant[s.0 as usize];
            }
        }
    }
    let mut out = Vec::new();
    for &u in nodes.iter().rev() {
        let i = u.0 as usize;
        if !wanted[i] {
            continue;
        }
        // look through views, since the computed value below them is what is kept, and through casts of bytes to other
        // dtypes, which cost nothing to repeat
        let bytes = |s: UOp| g.dtype(s).size() == 1 && g.dtype(s).is_int();
        if g.op(u).is_movement() || g.op(u) == Op::Cast && bytes(g.src_at(u, 0)) {
            wanted[g.src_at(u, 0).0 as usize] |= constant[g.src_at(u, 0).0 as usize];
            continue;
        }
        let small = g.numel(u) <= elements[i].saturating_mul(4);
        if computes[i] && elements[i] > 0 && small && !matches!(g.op(u), Op::Buffer | Op::Const | Op::Iota) {
            out.push(u);
        }
    }
    out.reverse();
    out
}
