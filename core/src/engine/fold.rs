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

/// Constants that are computed from bytes that the graph stores ([`Op::Contiguous`]) are not stored as well if they have
/// more than this many times as many bytes: they are elements of packed weights, which the kernels that read them unpack.
const MOST_UNPACKED: u64 = 2;

/// The outermost constant nodes that are worth computing once: computed (not just moved) from buffers other than
/// `inputs`, read by a node that is not constant, and at most four times as large as everything together that they are
/// computed from.
pub fn constant_nodes(g: &Graph, roots: &[UOp], inputs: &[u32]) -> Vec<UOp> {
    let nodes = g.value_nodes(roots);
    let constant = constants(g, &nodes, inputs);
    let mut elements = vec![0u64; g.len()];
    let mut computes = vec![false; g.len()];
    // the size in bytes of the buffers and stored constants that a constant is computed from, and whether packed weights
    // are among them
    let mut bytes = vec![(0u64, false); g.len()];
    for &u in &nodes {
        let i = u.0 as usize;
        let src = g.src(u);
        let size = g.numel(u).saturating_mul(g.dtype(u).size() as u64);
        bytes[i] = match g.op(u) {
            Op::Buffer => (size, false),
            Op::Contiguous => (size, g.dtype(u).size() == 1),
            _ => src.iter().map(|s| bytes[s.0 as usize]).fold((0, false), |a, b| (a.0.saturating_add(b.0), a.1 | b.1)),
        };
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
        // look through views, since the computed value below them is what is kept, through casts of bytes to other
        // dtypes, which cost nothing to repeat, and through limits on integers, which tell kernels where indices lie
        let byte = |s: UOp| g.dtype(s).size() == 1 && g.dtype(s).is_int();
        let repeats = match g.op(u) {
            Op::Cast => byte(g.src_at(u, 0)),
            Op::Min | Op::Max => g.dtype(u).is_int() && g.op(g.src_at(u, 1)) == Op::Const,
            op => op.is_movement(),
        };
        if repeats {
            wanted[g.src_at(u, 0).0 as usize] |= constant[g.src_at(u, 0).0 as usize];
            continue;
        }
        let size = g.numel(u).saturating_mul(g.dtype(u).size() as u64);
        if g.op(u) != Op::Contiguous && bytes[i].1 && size > bytes[i].0.saturating_mul(MOST_UNPACKED) {
            g.src(u).iter().for_each(|s| wanted[s.0 as usize] |= constant[s.0 as usize]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::uop::Arg;

    #[test]
    fn elements_of_packed_weights_are_not_stored() {
        let mut g = Graph::new();
        let mut buffer = |dtype, id, len| g.node(Op::Buffer, dtype, &[], Arg::Buffer { id, len });
        let (x, bytes, floats) = (buffer(DType::F32, 0, 8), buffer(DType::U8, 1, 8), buffer(DType::F32, 2, 8));
        // two codes a byte, of bytes that are put in another order, and of bytes as they are
        let decoded = |g: &mut Graph, from: UOp| {
            let wide = g.cast(from, DType::I32);
            let four = g.int(4, DType::I32);
            let code = g.binary(Op::Shr, wide, four);
            g.cast(code, DType::F32)
        };
        let reordered = g.flip(bytes, &[0]);
        let stored = g.node(Op::Contiguous, DType::U8, &[reordered], Arg::None);
        let packed = decoded(&mut g, stored);
        let plain = decoded(&mut g, bytes);
        let three = g.float(3.0, DType::F32);
        let scaled = g.binary(Op::Mul, floats, three);
        let mut found = |w: UOp| {
            let y = g.binary(Op::Mul, x, w);
            constant_nodes(&g, &[y], &[0])
        };
        assert_eq!(found(packed), [stored]);
        assert_eq!(found(plain), [plain]);
        assert_eq!(found(scaled), [scaled]);
    }
}
