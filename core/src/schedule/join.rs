//! Joins of tensors whose parts are stored where they belong. In: a graph in which a join ([`crate::tensor::Tensor::cat`], and the gradient of
//! cutting something into pieces) is a choice among padded parts, or their sum. Out: one in which it is memory with a Store for each part, where
//! that is cheaper. In a choice each element asks every part whether it is its own, so that n parts are n times the work of a copy: the steps of
//! a long recurrence took more time to put together than to compute. A Store comes right behind what it stores, so that [`super::outputs`] finds
//! both kernels near each other and makes them one, which computes a part and puts it there.
//! Never: joins that are cheaper in the kernels of their readers.

use super::fuse::{base, storage};
use crate::analysis::work::work;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, UOp};
use smallvec::SmallVec;

/// So few parts may not need kernels of their own: a choice among them costs little, and nothing where their reader computes anyway. Nor may
/// parts have more shapes, each of which is a program.
const FEW: usize = 4;

/// Longest axis of a join: which places are taken is noted one by one.
const LONGEST: usize = 1 << 20;

/// A join whose parts are stored.
struct Join {
    /// The node that it is.
    whole: UOp,
    axis: usize,
    /// Are its parts added to zeros? A sum has no negative zeros.
    sum: bool,
    /// What is put there, and the first place of each along the axis.
    parts: Vec<(UOp, usize)>,
    /// The memory, and the Stores so far.
    memory: Option<UOp>,
    stores: Vec<UOp>,
}

/// A part of a join, and the next one that is a view of the same node.
struct Place {
    join: usize,
    value: UOp,
    begin: usize,
    next: usize,
}

/// Copies a movement op into the graph that is being built: given that graph, the one that the op is in, the op, and the copy of its source.
pub(super) type View<'a> = &'a dyn Fn(&mut Graph, &Graph, UOp, UOp) -> UOp;

/// In place of a number, where there is no join or no part.
const NONE: usize = usize::MAX;

/// The joins of a graph that are made in memory of their own.
pub(super) struct Joins {
    list: Vec<Join>,
    /// By node: the join that it is.
    whole: Vec<usize>,
    /// By node: the first part that is a view of it.
    first: Vec<usize>,
    places: Vec<Place>,
    /// Parameters before theirs.
    n_params: usize,
}

impl Joins {
    /// Those of `nodes` that are cheaper as memory, which come behind so many parameters.
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
        // the whole comes before the choices that it is made of
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

    /// Is it one value, and that the memory of a join? Nobody writes there any more.
    pub(super) fn is_memory(&self, out: &Graph, src: &[UOp]) -> bool {
        let &[x] = src else { return false };
        matches!(out.arg(storage(out, x)), Arg::Param { slot, .. } if *slot as usize >= self.n_params)
    }

    /// `copy` is node `u` of `g` in `out`. Stores it where it is part of a join, and gives what takes its place if it is one. `view` makes a copy
    /// of a movement.
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

/// Does it look like a join?
fn is_join(g: &Graph, u: UOp) -> bool {
    links(g, u).is_some_and(|parts| parts.iter().any(|&s| g.op(s) == Op::Pad))
}

/// What a node would join, if it is one link of a chain that joins: the part or parts, and the rest of the chain.
fn links(g: &Graph, u: UOp) -> Option<&[UOp]> {
    match g.op(u) {
        Op::Where => Some(&g.src(u)[1..]),
        Op::Add | Op::Or => Some(g.src(u)),
        _ => None,
    }
}

/// The join that ends with `u`. What it is made of is `seen` then, also if it is none.
fn recognised(g: &Graph, u: UOp, seen: &mut [bool]) -> Option<Join> {
    let op = g.op(u);
    let padded = |x: UOp| match g.arg(x) {
        Arg::Pairs(pairs) if g.op(x) == Op::Pad => Some(pairs),
        _ => None,
    };
    let axis = links(g, u)?.iter().find_map(|&s| padded(s)?.iter().position(|p| *p != (0, 0)))?;
    // each part, and where the choice says that it ends
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
    if n > LONGEST {
        return None;
    }
    // each place belongs to one part
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

/// The number that a condition says places along an axis are below.
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

/// Is memory that parts are stored to cheaper than a choice?
fn pays(g: &Graph, u: UOp, join: &Join, users: &[usize], t: &Target) -> bool {
    let m = &t.machine;
    let bytes = |x: UOp| g.numel(x) as f64 * g.dtype(x).size() as f64;
    let all = g.numel(u) as f64;
    let (mut stored, mut chosen) = (0.0, 0.0);
    let mut shapes: Vec<UOp> = Vec::new();
    for &(value, _) in &join.parts {
        // each element loads from every part, under a mask of two bounds, and chooses
        chosen += all * 4.0 * (m.op + m.load);
        match kernel_of(g, value, users) {
            Stored::Alone => {}
            Stored::Again(_) if join.parts.len() <= FEW => return false,
            Stored::Too => stored += bytes(value) * m.byte,
            Stored::Again(ops) => {
                stored += m.prices.launch + 2.0 * bytes(value) * m.byte;
                chosen += all * f64::from(ops) * m.op;
                // parts of one shape share a program
                if !shapes.iter().any(|&s| g.shape(s) == g.shape(value)) {
                    shapes.push(value);
                }
            }
        }
    }
    g.memory_len(u) as u64 == g.numel(u) && shapes.len() <= FEW && stored < chosen
}

/// What storing a part takes.
enum Stored {
    /// Nothing: it holds a reduction that nobody else wants, which has a kernel anyway.
    Alone,
    /// One more store in the kernel that computes it for others.
    Too,
    /// A kernel of its own, which computes it with so many operations.
    Again(u32),
}

/// Which kernel would store a part, by who else uses what it is made of.
fn kernel_of(g: &Graph, value: UOp, users: &[usize]) -> Stored {
    let b = base(g, value);
    if is_join(g, b) {
        return Stored::Again(0);
    }
    let shared = users[b.0 as usize] > 1 || users[value.0 as usize] > 1;
    if g.op(b) == Op::Contiguous || shared && (g.op(b).is_alu() || g.op(b) == Op::Reduce) {
        return Stored::Too;
    }
    // down through what nobody else wants
    let (mut stack, mut ops) = (vec![value], 0u32);
    while let Some(x) = stack.pop() {
        match g.op(x) {
            _ if users[x.0 as usize] > 1 => {}
            Op::Reduce => return Stored::Alone,
            op if op.is_movement() || op.is_alu() => {
                ops = ops.saturating_add(work(op).hidden);
                stack.extend(g.src(x));
            }
            _ => {}
        }
    }
    Stored::Again(ops)
}
