//! Constant subgraphs: what depends on weights alone is computed once, when a model is first planned.

use crate::analysis::constant::constants;
use crate::rewrite::substitute;
use crate::uop::{Graph, Op, UOp};
use crate::{Error, Result};

/// The images of `roots` where they read a buffer in place of each node, as they do once constant nodes are computed.
///
/// # Errors
/// A buffer of another dtype or shape than the node that it takes the place of.
pub fn read(g: &mut Graph, roots: &[UOp], buffers: &[(UOp, UOp)]) -> Result<Vec<UOp>> {
    if let Some((u, b)) = buffers.iter().find(|(u, b)| g.dtype(*u) != g.dtype(*b) || g.shape(*u) != g.shape(*b)) {
        return Err(Error::value("buffer", format!("{:?} in place of {:?}", g.shape(*b), g.shape(*u))));
    }
    Ok(substitute(g, roots, &buffers.iter().copied().collect()))
}

/// The largest constant nodes worth keeping: computed (not just moved) from buffers other than `inputs`, used by something
/// that is not constant, and not blown up to more than a few times what they were computed from.
pub fn constant_nodes(g: &Graph, roots: &[UOp], inputs: &[u32]) -> Vec<UOp> {
    let nodes = g.needed(roots);
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
            || matches!(g.op(u), Op::Reduce | Op::Gather | Op::Scatter | Op::Scan | Op::Contiguous);
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
        // look through views: the computed value below is what is kept
        // and through wider forms of bytes, which cost nothing to widen
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
