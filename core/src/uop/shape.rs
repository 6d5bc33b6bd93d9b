//! Shape inference: the shape of a node from its op, its argument and the shapes of its sources. It reports no errors,
//! because callers have checked that the sources fit (the frontend returns typed errors).

use super::{Arg, Graph, Op, Shape, UOp};
use smallvec::smallvec;

pub(super) fn infer(g: &Graph, op: Op, src: &[UOp], arg_id: u32) -> Shape {
    let arg = g.arg_by_id(arg_id);
    let first = || src.first().map(|&s| g.shape(s).clone()).unwrap_or_default();
    match (op, arg) {
        (Op::Buffer, Arg::Buffer { len, .. }) => smallvec![*len],
        (Op::Param, Arg::Param { len, .. }) => smallvec![*len],
        (Op::Iota | Op::Reshape | Op::Expand, Arg::Shape(s)) => s.clone(),
        (Op::Permute, Arg::Axes(a)) => {
            let s = g.shape(src[0]);
            a.iter().map(|&i| s[i as usize]).collect()
        }
        (Op::Pad, Arg::Pairs(p)) => g.shape(src[0]).iter().zip(p).map(|(n, (a, b))| n + a + b).collect(),
        (Op::Shrink, Arg::Pairs(p)) => p.iter().map(|(a, b)| b - a).collect(),
        (Op::Gather, _) => g.shape(src[1]).clone(),
        (Op::Reduce, Arg::Reduce(_, axes)) if src.len() == 1 => {
            let mut s = g.shape(src[0]).clone();
            for &a in axes {
                s[a as usize] = 1;
            }
            s
        }
        (Op::Flip | Op::Scatter | Op::Scan | Op::Contiguous | Op::Detach | Op::After, _) => first(),
        (Op::Recurrence, Arg::Recurrence(r)) => {
            let mut s = first();
            s.insert_from_slice(0, &[r.states, r.steps + 1]);
            s
        }
        _ if op.is_alu() => src.iter().map(|&s| g.shape(s)).find(|s| !s.is_empty()).cloned().unwrap_or_default(),
        _ => Shape::new(),
    }
}
