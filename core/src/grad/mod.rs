//! Reverse-mode differentiation of tensor graphs: one vector-Jacobian rule for each op (`rules`), and the traversal
//! that applies them from the loss down. The result consists of ordinary nodes, so gradients are scheduled, fused and
//! differentiated again like any other value. Never: the tensor API.

mod ordered;
mod rules;

use crate::dtype::Scalar;
use crate::uop::{Graph, Op, ReduceOp, Shape, UOp, recurrence};
use crate::{Error, Result};
use smallvec::SmallVec;

/// Contributions of one node to the gradients of its sources: pairs of a source and a gradient.
pub(crate) type Flow = SmallVec<[(UOp, UOp); 3]>;

/// Gradients of `loss` with respect to each of `targets`, given the gradient `seed` of the loss itself (its shape and
/// dtype). A target that the loss does not depend on gives `None`.
///
/// Nodes are visited in descending index order, so every user of a node has contributed before the node is visited.
/// Only nodes between the targets and the loss are visited.
pub(crate) fn gradient(g: &mut Graph, loss: UOp, seed: UOp, targets: &[UOp]) -> Result<Vec<Option<UOp>>> {
    if !g.dtype(loss).is_float() {
        return Err(Error::DType { op: "grad", dtype: g.dtype(loss), why: "only floats have gradients".into() });
    }
    // a recurrence has the gradient of its steps
    let roots: Vec<UOp> = [loss, seed].iter().chain(targets).copied().collect();
    let roots = recurrence::unroll(g, &roots, &|_| true);
    let (loss, seed, targets) = (roots[0], roots[1], &roots[2..]);
    let order = g.reachable(&[loss]);
    let mut on_path = vec![false; loss.0 as usize + 1];
    let held: Vec<UOp> = targets.iter().map(|&t| memory(g, t)).collect();
    for &u in &order {
        let through = match g.op(u) {
            Op::Detach => g.src(u).len() > 1,
            op => g.dtype(u).is_float() || matches!(op, Op::Store | Op::Custom),
        };
        let reads = |s: &UOp| on_path[s.0 as usize] || g.op(u) == Op::Custom && held.contains(s);
        let from_source = through && g.src(u).iter().any(reads);
        on_path[u.0 as usize] = from_source || targets.contains(&u);
    }
    let mut grads: Vec<Option<UOp>> = vec![None; on_path.len()];
    grads[loss.0 as usize] = Some(spread(g, seed, &g.shape(loss).clone()));
    for &u in order.iter().rev() {
        let Some(dy) = grads[u.0 as usize].filter(|_| on_path[u.0 as usize]) else { continue };
        for (x, dx) in rules::vjp(g, u, dy)? {
            if !on_path[x.0 as usize] {
                continue;
            }
            let dx = fit(g, dx, x);
            let slot = &mut grads[x.0 as usize];
            *slot = Some(match *slot {
                Some(sum) => g.binary(Op::Add, sum, dx),
                None => dx,
            });
        }
    }
    Ok(targets.iter().map(|t| grads.get(t.0 as usize).copied().flatten()).collect())
}

/// The buffer below reshapes, if the value is in memory: custom kernels read the buffer itself, whatever the shape of
/// the view.
pub(crate) fn memory(g: &Graph, mut u: UOp) -> UOp {
    while g.op(u) == Op::Reshape {
        u = g.src_at(u, 0);
    }
    u
}

/// Gives a contribution exactly the shape of the node that it goes to. A scalar is expanded; for a scalar that an
/// elementwise op had broadcast, the contributions are summed.
fn fit(g: &mut Graph, dx: UOp, x: UOp) -> UOp {
    let (have, want) = (g.shape(dx).clone(), g.shape(x).clone());
    if have == want {
        return dx;
    }
    if want.is_empty() {
        let axes: Vec<u8> = (0..have.len() as u8).filter(|&a| have[a as usize] != 1).collect();
        let sum = g.reduce(dx, ReduceOp::Add, &axes);
        return g.reshape(sum, &[]);
    }
    spread(g, dx, &want)
}

/// Expands a scalar to `shape`; `u` itself if it has that shape already.
pub(crate) fn spread(g: &mut Graph, u: UOp, shape: &Shape) -> UOp {
    if g.shape(u) == shape {
        return u;
    }
    let ones: Shape = shape.iter().map(|_| 1).collect();
    let u = g.reshape(u, &ones);
    g.expand(u, shape)
}

/// A constant of `like`'s dtype.
pub(crate) fn constant(g: &mut Graph, v: f64, like: UOp) -> UOp {
    let dt = g.dtype(like);
    g.constant(Scalar::float(v), dt)
}
