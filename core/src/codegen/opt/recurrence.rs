//! Opts for recurrences, kernels with a loop over steps whose intermediate values are kept in local arrays. In: such a
//! kernel. Out: opts that give lanes to the longest axis of each array and of the states, compute all states at once,
//! and unroll the reductions. Nothing is moved across the loop over steps: an iteration reads all of what the one
//! before stored.

use super::Opt;
use crate::analysis::affine;
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{AxisKind, Op, UOp};

/// The most vectors of an array that are computed at once. Each is an accumulator of its own, and several hide the
/// latency of additions.
const MAX_VECTORS: usize = 4;
/// Iterations of a reduction in one loop body.
const UNROLL: [usize; 2] = [4, 2];

/// Chooses the opts.
pub(super) fn choose(k: &Kernel, t: &Target) -> Vec<Opt> {
    let mut opts = Vec::new();
    let mut now = k.clone();
    let mut push = |now: &mut Kernel, opt: Opt| {
        let mut next = now.clone();
        if next.apply(&opt, t).is_ok() {
            *now = next;
            opts.push(opt);
        }
    };
    let id = |k: &Kernel, r: UOp| k.g.range_arg(r).id;
    let loops = k.ranges_of(AxisKind::Loop);
    // the loop over the states is the last one: all of them are computed from the same values
    if let Some(&states) = loops.last().filter(|&&r| is_over_states(k, r)) {
        push(&mut now, Opt::upcast(id(k, states), k.g.range_len(states)));
    }
    for r in k.reduces() {
        let Some(&last) = k.g.src(r)[1..].last() else { continue };
        if let Some(f) = UNROLL.into_iter().find(|&f| k.g.range_len(last).is_multiple_of(f)) {
            push(&mut now, Opt::unroll(id(k, last), f));
        }
    }
    let mut along: Vec<UOp> = Vec::new();
    for u in now.nodes().into_iter().filter(|&u| now.g.op(u) == Op::Stage) {
        along.extend(longest(&now, &now.g.src(u)[1..]));
    }
    along.extend(longest(&now, &now.ranges_of(AxisKind::Loop)));
    let lengths: Vec<usize> = along.iter().map(|&r| now.g.range_len(r)).collect();
    let fits = |v: usize| lengths.iter().all(|n| n.is_multiple_of(v * t.lanes));
    let vectors = (1..=MAX_VECTORS).rev().find(|&v| fits(v));
    let Some(vectors) = vectors.filter(|_| t.lanes > 1) else { return opts };
    for id in along.iter().map(|&r| id(&now, r)).collect::<Vec<_>>() {
        push(&mut now, Opt::lane(id, vectors * t.lanes));
    }
    opts
}

/// Is it the loop over the states, whose elements lie furthest apart in the result?
fn is_over_states(k: &Kernel, r: UOp) -> bool {
    let to = affine(&k.g, k.g.src_at(k.g.src_at(k.store(), 0), 1));
    let stride = |r: &UOp| to.stride(&k.g, *r).unwrap_or(0);
    let walk = k.ranges_of(AxisKind::Walk);
    walk.iter().all(|w| stride(w) < stride(&r))
}

fn longest(k: &Kernel, axes: &[UOp]) -> Option<UOp> {
    axes.iter().copied().max_by_key(|&r| k.g.range_len(r))
}
