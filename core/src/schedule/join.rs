//! Turns joins of tensors into memory. In: a graph in which a join ([`crate::tensor::Tensor::cat`], and the gradient of
//! splitting a tensor) is a selection among padded parts, or their sum. Out: a graph in which the join is a buffer with
//! a Store for each part, where that is cheaper.
//!
//! In a selection each element tests for every part whether it lies in it, so `n` parts cost `n` times the work of a
//! copy; for long recurrences this took more time than computing the parts. The Store of a part directly follows the
//! part in the graph, so that [`super::horizontal`] finds their kernels close together and fuses them.
//!
//! Never: joins that are cheaper inside the kernels of their readers.

use super::cost::Costs;
use super::fuse::{base, buffer_node};
use crate::analysis::work::work;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, UOp};
use smallvec::SmallVec;

/// A join of at most this many parts stays a selection if one of its parts would need a kernel of its own: selecting
/// among few parts costs little, and nothing where the reader computes anyway. It is also the most different shapes
/// that parts with kernels of their own may have, as each shape is a program to compile.
const MAX_SELECTED_PARTS: usize = 4;

/// The longest axis of a join, in elements, because recognition keeps one flag for each index along it.
const MAX_JOIN_AXIS: usize = 1 << 20;

/// A join that becomes memory.
struct Join {
    /// The node that is the whole join.
    whole: UOp,
    axis: usize,
    /// Is the join a sum of padded parts? Then 0.0 is added to each stored part, which turns -0.0 into 0.0 as the sum
    /// does.
    sum: bool,
    /// The parts, and the index along the axis at which each begins.
    parts: Vec<(UOp, usize)>,
    /// The memory (a parameter), once a part is stored.
    memory: Option<UOp>,
    stores: Vec<UOp>,
}

/// A part of a join; `next` is the next part in `Joins::places` that is a view of the same node.
struct Place {
    join: usize,
    value: UOp,
    begin: usize,
    next: usize,
}

/// Copies a movement op into the graph that is being built. Its arguments are that graph, the graph that contains the
/// op, the op, and the copy of its source.
pub(super) type View<'a> = &'a dyn Fn(&mut Graph, &Graph, UOp, UOp) -> UOp;

/// Marks a node that is no join or has no part.
const NONE: usize = usize::MAX;

/// The joins of a graph that become memory.
pub(super) struct Joins {
    list: Vec<Join>,
    /// For each node the join that it is.
    whole: Vec<usize>,
    /// For each node the first part that is a view of it.
    first: Vec<usize>,
    places: Vec<Place>,
    /// Number of parameters that precede the joins' own.
    n_params: usize,
}

impl Joins {
    /// The joins among `nodes` that are cheaper as memory. Their parameters follow the first `n_params`.
    pub(super) fn find(g: &Graph, nodes: &[UOp], n_params: usize, t: &Target) -> Joins {
        let mut joins = Joins { list: Vec::new(), whole: Vec::new(), first: Vec::new(), places: Vec::new(), n_params };
        if !nodes.iter().any(|&u| is_join(g, u)) {
            return joins;
        }
        (joins.whole, joins.first) = (vec![NONE; g.len()], vec![NONE; g.len()]);
        let mut users = vec![0usize; g.len()];
        for &u in nodes {
            g.src(u).iter().for_each(|s| users[s.0 as usize] += 1);
        }
        let mut inside = vec![false; g.len()];
        // users first, so that a join is seen before the selections inside it
        for &u in nodes.iter().rev().filter(|&&u| is_join(g, u)) {
            if inside[u.0 as usize] {
                continue;
            }
            let Some(join) = recognised(g, u, &mut inside).filter(|j| pays(g, u, j, &users, t)) else { continue };
            joins.whole[u.0 as usize] = joins.list.len();
            for &(value, begin) in &join.parts {
                let first = &mut joins.first[base(g, value).0 as usize];
                let next = std::mem::replace(first, joins.places.len());
                joins.places.push(Place { join: joins.list.len(), value, begin, next });
            }
            joins.list.push(join);
        }
        joins
    }

    /// Is the only source the memory of a join? Nothing writes to that any more, so it needs no copy.
    pub(super) fn is_memory(&self, out: &Graph, src: &[UOp]) -> bool {
        let &[x] = src else { return false };
        matches!(out.arg(buffer_node(out, x)), Arg::Param { slot, .. } if *slot as usize >= self.n_params)
    }

    /// Handles the node `u` of `g`, whose copy in `out` is `copy`: stores it where it is part of a join, and returns
    /// the memory in its place if it is a join. `view` copies a movement op.
    pub(super) fn copied(&mut self, out: &mut Graph, g: &Graph, u: UOp, mut copy: UOp, view: View) -> UOp {
        if self.list.is_empty() {
            return copy;
        }
        if let Some(Join { memory: Some(memory), stores, .. }) = self.list.get(self.whole[u.0 as usize]) {
            let filled = out.after(*memory, stores);
            copy = out.reshape(filled, g.shape(u));
        }
        let mut at = self.first[u.0 as usize];
        while let Some(&Place { join, value, begin, next }) = self.places.get(at) {
            at = next;
            let mut moves = Vec::new();
            let mut x = value;
            while x != u {
                moves.push(x);
                x = g.src_at(x, 0);
            }
            let mut part = moves.iter().rev().fold(copy, |part, &m| view(out, g, m, part));
            let slot = (self.n_params + join) as u32;
            let join = &mut self.list[join];
            let (dtype, shape) = (g.dtype(join.whole), g.shape(join.whole));
            let memory = *join.memory.get_or_insert_with(|| out.param(slot, dtype, g.memory_len(join.whole)));
            let mut pairs: SmallVec<[(usize, usize); 6]> = shape.iter().map(|&n| (0, n)).collect();
            pairs[join.axis] = (begin, begin + g.shape(value)[join.axis]);
            let target = out.reshape(memory, shape);
            let target = out.shrink(target, &pairs);
            if join.sum && dtype.is_float() {
                let zero = out.float(0.0, dtype);
                part = out.binary(Op::Add, part, zero);
            }
            join.stores.push(out.store(target, part));
        }
        copy
    }
}

/// Does the node look like a join?
fn is_join(g: &Graph, u: UOp) -> bool {
    links(g, u).is_some_and(|parts| parts.iter().any(|&s| g.op(s) == Op::Pad))
}

/// The parts and the rest of the chain, if a node is of an op that can be a link in a chain of parts.
fn links(g: &Graph, u: UOp) -> Option<&[UOp]> {
    match g.op(u) {
        Op::Where => Some(&g.src(u)[1..]),
        Op::Add | Op::Or => Some(g.src(u)),
        _ => None,
    }
}

/// The join whose last link is `u`. All links visited are marked in `seen`, even if this is no join.
fn recognised(g: &Graph, u: UOp, seen: &mut [bool]) -> Option<Join> {
    let op = g.op(u);
    let padded = |x: UOp| match g.arg(x) {
        Arg::Pairs(pairs) if g.op(x) == Op::Pad => Some(pairs),
        _ => None,
    };
    let axis = links(g, u)?.iter().find_map(|&s| padded(s)?.iter().position(|p| *p != (0, 0)))?;
    // each part, and the index at which the condition says that it ends
    let (mut leaves, mut stack): (Vec<(UOp, Option<usize>)>, Vec<UOp>) = (Vec::new(), vec![u]);
    while let Some(x) = stack.pop() {
        match (g.op(x) == op && !std::mem::replace(&mut seen[x.0 as usize], true), g.src(x)) {
            (true, &[cond, part, rest]) => {
                leaves.push((part, Some(end_of(g, cond, axis)?)));
                stack.push(rest);
            }
            (true, src) => stack.extend(src),
            (false, _) => leaves.push((x, None)),
        }
    }
    let n = g.shape(u)[axis];
    if n > MAX_JOIN_AXIS {
        return None;
    }
    // each index must belong to exactly one part
    let mut parts = Vec::with_capacity(leaves.len());
    let mut taken = vec![false; n];
    for &(x, end) in &leaves {
        let pairs = padded(x)?;
        let (value, begin) = (g.src_at(x, 0), pairs[axis].0);
        let until = begin + g.shape(value)[axis];
        let alone = pairs.iter().enumerate().all(|(a, p)| a == axis || *p == (0, 0));
        let free = taken[begin..until].iter_mut().all(|t| !std::mem::replace(t, true));
        if !alone || !free || begin == until || end.is_some_and(|e| e != until) {
            return None;
        }
        parts.push((value, begin));
    }
    let join = Join { whole: u, axis, sum: op == Op::Add, parts, memory: None, stores: Vec::new() };
    (taken.iter().all(|t| *t) && join.parts.len() > 1).then_some(join)
}

/// The `n` of a condition `index < n` on the index along an axis.
fn end_of(g: &Graph, cond: UOp, axis: usize) -> Option<usize> {
    let unspread = |u: UOp| if g.op(u) == Op::Expand { g.src_at(u, 0) } else { u };
    let cond = unspread(cond);
    let (Op::CmpLt, &[place, end]) = (g.op(cond), g.src(cond)) else { return None };
    let place = unspread(place);
    let along = g.shape(place).get(axis).is_some_and(|&n| n as u64 == g.numel(place));
    let line = if g.op(place) == Op::Reshape { g.src_at(place, 0) } else { place };
    let end = g.const_int(base(g, end)).and_then(|e| usize::try_from(e).ok())?;
    (along && g.op(line) == Op::Iota).then_some(end)
}

/// Is memory to which parts are stored cheaper than a selection?
fn pays(g: &Graph, u: UOp, join: &Join, users: &[usize], t: &Target) -> bool {
    let costs = Costs::of(t);
    let bytes = |x: UOp| g.numel(x) as f64 * g.dtype(x).size() as f64;
    let all = g.numel(u) as f64;
    let (mut stored, mut chosen) = (0.0, 0.0);
    let mut shapes: Vec<UOp> = Vec::new();
    for &(value, _) in &join.parts {
        chosen += costs.choose_part(all);
        match kernel_of(g, value, users) {
            Stored::OwnReduction => {}
            Stored::OwnKernel(_) if join.parts.len() <= MAX_SELECTED_PARTS => return false,
            Stored::ExtraStore => stored += costs.store(bytes(value)),
            Stored::OwnKernel(ops) => {
                stored += costs.part_kernel(bytes(value));
                chosen += costs.compute(all, ops);
                // parts of one shape share a program
                if !shapes.iter().any(|&s| g.shape(s) == g.shape(value)) {
                    shapes.push(value);
                }
            }
        }
    }
    g.memory_len(u) as u64 == g.numel(u) && shapes.len() <= MAX_SELECTED_PARTS && stored < chosen
}

/// The cost of storing a part.
enum Stored {
    /// None: it holds a reduction without other users, which has a kernel anyway.
    OwnReduction,
    /// One more store in the kernel that computes the part for other users.
    ExtraStore,
    /// A kernel of its own, with this many operations for each element.
    OwnKernel(u32),
}

/// How a part would be stored, depending on the other users of the nodes that compute it.
fn kernel_of(g: &Graph, value: UOp, users: &[usize]) -> Stored {
    let b = base(g, value);
    if is_join(g, b) {
        return Stored::OwnKernel(0);
    }
    let shared = users[b.0 as usize] > 1 || users[value.0 as usize] > 1;
    if g.op(b) == Op::Contiguous || shared && (g.op(b).is_alu() || g.op(b) == Op::Reduce) {
        return Stored::ExtraStore;
    }
    // search the nodes below that have no other users
    let (mut stack, mut ops) = (vec![value], 0u32);
    while let Some(x) = stack.pop() {
        match g.op(x) {
            _ if users[x.0 as usize] > 1 => {}
            Op::Reduce => return Stored::OwnReduction,
            op if op.is_movement() || op.is_alu() => {
                ops = ops.saturating_add(work(op).hidden);
                stack.extend(g.src(x));
            }
            _ => {}
        }
    }
    Stored::OwnKernel(ops)
}
