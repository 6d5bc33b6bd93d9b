//! Simplifies the tensor graph before scheduling, as far as that needs no index arithmetic: merges adjacent reshapes,
//! permutes and expands, and drops Detach and redundant Contiguous nodes. One forward pass, since sources come first.
//!
//! The same pass cuts long sums into pieces ([`super::split`]), and long scans and scatters too
//! ([`super::scan_scatter`]), and turns joins into memory with a Store for each part ([`super::join`]).

use super::join::Joins;
use super::{scan_scatter, split};
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, ReduceOp, UOp};
use smallvec::SmallVec;

/// Copies what `roots` need into a fresh graph, simplified. Parameters of the result with slots from `n_params` on are
/// the memory of joins.
pub fn simplify(g: &Graph, roots: &[UOp], n_params: usize, t: &Target) -> (Graph, Vec<UOp>) {
    let mut out = Graph::new();
    let mut map = vec![UOp(u32::MAX); g.len()];
    let nodes = g.reachable(roots);
    let mut joins = Joins::find(g, &nodes, n_params, t);
    for u in nodes {
        let src: SmallVec<[UOp; 4]> = g.src(u).iter().map(|s| map[s.0 as usize]).collect();
        let copy = match joins.is_memory(&out, &src) && g.op(u) == Op::Contiguous {
            true => src[0],
            false => rebuild(&mut out, g, u, &src, t),
        };
        map[u.0 as usize] = joins.copied(&mut out, g, u, copy, &|out, g, m, x| rebuild(out, g, m, &[x], t));
    }
    let roots = roots.iter().map(|r| map[r.0 as usize]).collect();
    (out, roots)
}

fn rebuild(out: &mut Graph, g: &Graph, u: UOp, src: &[UOp], t: &Target) -> UOp {
    match (g.op(u), g.arg(u)) {
        (Op::Detach, _) => src[0],
        // movement ops do not change a constant
        (Op::Reshape | Op::Permute | Op::Expand | Op::Shrink | Op::Flip, _) if splat(out, src[0]) => {
            let shape = g.shape(u).clone();
            spread(out, src[0], &shape)
        }
        (Op::Reshape, Arg::Shape(s)) => {
            // reshape(reshape(x)) is one reshape
            let x = if out.op(src[0]) == Op::Reshape { out.src_at(src[0], 0) } else { src[0] };
            out.reshape(x, s)
        }
        (Op::Permute, Arg::Axes(axes)) => match (out.op(src[0]), out.arg(src[0]).clone()) {
            (Op::Permute, Arg::Axes(inner)) => {
                let x = out.src_at(src[0], 0);
                let axes: SmallVec<[u8; 8]> = axes.iter().map(|&a| inner[a as usize]).collect();
                out.permute(x, &axes)
            }
            _ => out.permute(src[0], axes),
        },
        (Op::Expand, Arg::Shape(s)) => {
            let x = if out.op(src[0]) == Op::Expand { out.src_at(src[0], 0) } else { src[0] };
            out.expand(x, s)
        }
        (Op::Reduce, Arg::Reduce(op, axes)) if split::is_too_long(out, src[0], axes, t) => {
            split::within_loop_limit(out, src[0], *op, axes, t)
        }
        (Op::Reduce, Arg::Reduce(ReduceOp::Add, axes)) => match split::pieces(out, src[0], axes, t) {
            Some((axis, n)) => split::in_pieces(out, src[0], (ReduceOp::Add, axes), axis, n),
            None => out.node(Op::Reduce, g.dtype(u), src, g.arg(u).clone()),
        },
        (Op::Scan, Arg::Reduce(op, axes)) => scan_scatter::scan(out, src, *op, axes[0], t),
        (Op::Scatter, Arg::Scatter(how, axis)) => scan_scatter::scatter(out, [src[0], src[1], src[2]], *how, *axis, t),
        (Op::Cast, _) => out.cast(src[0], g.dtype(u)),
        (Op::Contiguous, _) if src.len() == 1 && matches!(out.op(src[0]), Op::Contiguous | Op::Param) => src[0],
        (op, arg) => out.node(op, g.dtype(u), src, arg.clone()),
    }
}

/// Is it a scalar constant, possibly reshaped and expanded?
fn splat(g: &Graph, mut u: UOp) -> bool {
    while matches!(g.op(u), Op::Reshape | Op::Expand) {
        u = g.src_at(u, 0);
    }
    g.op(u) == Op::Const
}

fn spread(g: &mut Graph, mut u: UOp, shape: &[usize]) -> UOp {
    while matches!(g.op(u), Op::Reshape | Op::Expand) {
        u = g.src_at(u, 0);
    }
    let ones: SmallVec<[usize; 6]> = shape.iter().map(|_| 1).collect();
    let u = g.reshape(u, &ones);
    g.expand(u, shape)
}
