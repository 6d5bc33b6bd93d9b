//! Merges assigns to small buffers into one kernel, whatever their shapes: an optimiser's step over biases, scales and
//! their moments.
//!
//! Such kernels depend on nothing but what they read, and no other kernel of the run depends on them, so they can run
//! together. Their loops become one loop with as many iterations as the longest; the loads and stores of the shorter
//! ones are gated.

use super::horizontal::{GroupDeps, elementwise, joined};
use super::order::{Pending, edges};
use super::{Ast, BufferInfo, Kernel, Origin};
use crate::rewrite::{Memo, substitute1};
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::{AxisKind, Graph, Op, RangeArg, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most elements that a kernel stores for its buffers to count as small.
const MAX_SMALL_ELEMS: usize = 1 << 11;
/// The most nodes of a merged kernel.
const MAX_NODES: usize = 1000;

/// A group of merged kernels that can still grow.
struct OpenGroup {
    /// Number of the first kernel in the group.
    first: usize,
    /// Iterations of the merged kernel's loop.
    len: usize,
    kernel: Pending,
}

/// Merges kernels that assign to small buffers; the others stay as they are.
pub(super) fn merge(mut pending: Vec<Pending>, list: &[BufferInfo], t: &Target) -> Vec<Pending> {
    let was_there = |buffer: usize| matches!(list[buffer].origin, Origin::External(_));
    let small: Vec<(usize, Vec<usize>)> = (0..pending.len())
        .filter(|&i| pending[i].writes.iter().any(|w| w.1 > 0 && was_there(w.0)))
        .filter_map(|i| Some((i, elementwise(&pending[i].kernel.ast)?)))
        .filter(|(_, loops)| loops.iter().product::<usize>() <= MAX_SMALL_ELEMS)
        .collect();
    if small.len() < 2 {
        return pending;
    }
    let then = edges(&pending);
    let mut group: Vec<usize> = (0..pending.len()).collect();
    let mut members: Vec<Vec<usize>> = (0..pending.len()).map(|i| vec![i]).collect();
    let mut open: Vec<OpenGroup> = Vec::new();
    let mut done: Vec<OpenGroup> = Vec::new();
    for (i, loops) in small {
        let n: usize = loops.iter().product();
        let own = flatten_loops(&pending[i], n);
        let mut found = None;
        let mut at = 0;
        while at < open.len() && found.is_none() {
            let o = &open[at];
            let deps = GroupDeps { then: &then, group: &group, members: &members };
            if deps.reaches(i, o.first, false) || deps.reaches(o.first, i, false) {
                at += 1;
                continue;
            }
            // the group may be gated for a shorter loop already: further gates are added with And
            let all = n.max(o.len);
            let fits = buffers(&o.kernel, &own) <= t.limits.max_buffers;
            let both =
                fits.then(|| joined(&extend_loop(&o.kernel, o.len, all), &extend_loop(&own, n, all), t)).flatten();
            match both {
                Some(p) if p.kernel.ast.g.len() <= MAX_NODES => {
                    found = Some(OpenGroup { first: o.first, len: all, kernel: p })
                }
                // the group is too large for one more kernel, so it is closed and not tried for each of the remaining
                // ones
                Some(_) => done.push(open.swap_remove(at)),
                None if !fits => done.push(open.swap_remove(at)),
                None => at += 1,
            }
        }
        match found {
            Some(o) => {
                group[i] = o.first;
                members[o.first].push(i);
                members[i].clear();
                open[at] = o;
            }
            None => open.push(OpenGroup { first: i, len: n, kernel: own }),
        }
    }
    for o in done.into_iter().chain(open) {
        if members[o.first].len() > 1 {
            pending[o.first] = o.kernel;
        }
    }
    pending.into_iter().enumerate().filter(|(i, _)| group[*i] == *i).map(|(_, p)| p).collect()
}

/// Number of distinct buffers that two kernels use.
fn buffers(a: &Pending, b: &Pending) -> usize {
    let own = b.kernel.args.iter().filter(|x| !a.kernel.args.contains(x));
    a.kernel.args.len() + own.count()
}

/// The kernel with its loops replaced by one loop of `n` iterations, their product.
fn flatten_loops(p: &Pending, n: usize) -> Pending {
    rebuilt(p, |g, sink, memo| {
        let mut own = g.reachable(&[sink]);
        own.retain(|u| g.op(*u) == Op::Range);
        sort::by_key(&mut own, |&u| std::cmp::Reverse(g.range_arg(u).id));
        let all = single_loop(g, n);
        let mut stride = 1;
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for r in own {
            let (step, len) = (g.idx(stride as i64), g.idx(g.range_len(r) as i64));
            let at = g.binary(Op::FloorDiv, all, step);
            let at = g.binary(Op::FloorMod, at, len);
            let at = g.cast(at, g.dtype(r));
            stride *= g.range_len(r);
            map.insert(r, at);
        }
        // the kernel's only loop may already be that loop, and substitution must not map it to an expression of itself
        let sink = if map.contains_key(&all) { sink } else { substitute1(g, sink, &map) };
        simplify_with(g, sink, memo)
    })
}

/// Turns a kernel over one loop of `n` iterations into one over `all`, of which only the first `n` load and store.
fn extend_loop(p: &Pending, n: usize, all: usize) -> Pending {
    if n == all {
        return rebuilt(p, |_, sink, _| sink);
    }
    rebuilt(p, |g, sink, _| {
        let (old, new) = (single_loop(g, n), single_loop(g, all));
        let end = g.idx(n as i64);
        let gate = g.binary(Op::CmpLt, new, end);
        let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
        for u in g.reachable(&[sink]) {
            let mut src: SmallVec<[UOp; 4]> = g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
            // a kernel without a loop gets one: each iteration stores to an address of its own (and only the first is
            // not gated off)
            if n == 1 && g.op(u) == Op::Store {
                let (ptr, at) = (g.src_at(src[0], 0), g.src_at(src[0], 1));
                let at = g.binary(Op::Add, at, new);
                src[0] = g.index(ptr, at);
            }
            // a load at a fixed address is valid in every iteration and needs no gate
            let moves = g.op(u) == Op::Store || g.ranges(u) != 0;
            match (g.op(u), src.len()) {
                _ if !moves => {}
                (Op::Load, 1) => {
                    let zero = g.int(0, g.dtype(u));
                    src.extend([zero, gate]);
                }
                (Op::Store, 2) => src.push(gate),
                (Op::Load | Op::Store, 3) => src[2] = g.binary(Op::And, src[2], gate),
                _ => {}
            }
            let v = if n > 1 && u == old { new } else { g.with_src(u, &src) };
            image.insert(u, v);
        }
        image[&sink]
    })
}

/// The loop variable of a kernel with one loop, or the constant 0 for a loop of one iteration.
fn single_loop(g: &mut Graph, n: usize) -> UOp {
    if n == 1 { g.idx(0) } else { g.range_with(n, RangeArg { id: 0, kind: AxisKind::Loop, lane: false }) }
}

fn rebuilt(p: &Pending, change: impl FnOnce(&mut Graph, UOp, &mut Memo) -> UOp) -> Pending {
    let mut g = p.kernel.ast.g.clone();
    let sink = change(&mut g, p.kernel.ast.sink, &mut Memo::sparse());
    let kernel = Kernel { ast: Ast::new(g, sink), args: p.kernel.args.clone(), scalars: p.kernel.scalars.clone() };
    Pending { node: p.node, kernel, reads: p.reads.clone(), writes: p.writes.clone() }
}
