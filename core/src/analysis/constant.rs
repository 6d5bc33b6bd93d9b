//! Finds the nodes with the same value in every run: those computed from weights and constants alone. In: a tensor
//! graph, and the buffers that differ from run to run.

use crate::uop::{Arg, Graph, Op, UOp};

/// Is a node the same in every run? `source` says this of its sources; `inputs` are the buffers whose contents change.
pub(crate) fn is_constant(g: &Graph, u: UOp, inputs: &[u32], source: impl Fn(UOp) -> bool) -> bool {
    match (g.op(u), g.arg(u)) {
        (Op::Buffer, Arg::Buffer { id, .. }) => !inputs.contains(id),
        (Op::Const | Op::Iota, _) => true,
        (Op::Var | Op::Store | Op::After | Op::Sink | Op::Param, _) => false,
        // the further sources of a Detach serve gradients and do not affect its value
        _ => g.value_src(u).iter().all(|&s| source(s)),
    }
}

/// For each node of the graph, by index: is it the same in every run? Only `nodes`, sources first, are looked at.
pub(crate) fn constants(g: &Graph, nodes: &[UOp], inputs: &[u32]) -> Vec<bool> {
    let mut out = vec![false; g.len()];
    for &u in nodes {
        out[u.0 as usize] = is_constant(g, u, inputs, |s| out[s.0 as usize]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn what_reads_an_input_or_a_variable_is_no_constant() {
        let mut g = Graph::new();
        let buffer = |g: &mut Graph, id| g.node(Op::Buffer, DType::F32, &[], Arg::Buffer { id, len: 4 });
        let (x, w) = (buffer(&mut g, 0), buffer(&mut g, 1));
        let var = g.node(Op::Var, DType::I32, &[], Arg::Var { name: "n".into(), min: 0, max: 9 });
        let two = g.float(2.0, DType::F32);
        let (weights, all) = (g.binary(Op::Mul, w, two), g.binary(Op::Mul, w, x));
        let sum = g.reduce(weights, crate::uop::ReduceOp::Add, &[0]);
        let nodes: Vec<UOp> = g.iter().collect();
        let known = constants(&g, &nodes, &[0]);
        let of = |u: UOp| known[u.0 as usize];
        assert!(of(w) && of(two) && of(weights) && of(sum));
        assert!(!of(x) && !of(var) && !of(all));
    }
}
