//! Joins of tensors whose parts are stored where they belong. In: a graph in which a join ([`crate::tensor::Tensor::cat`], and the gradient of
//! cutting something into pieces) is a choice among padded parts, or their sum. Out: one in which it is memory with a Store for each part, where
//! that is cheaper. In a choice each element asks every part whether it is its own, so that n parts are n times the work of a copy: what a
//! recurrence computed step by step took longer to put together than to compute. A Store comes right behind what it stores, so that
//! [`super::outputs`] has one kernel compute a part and put it there, and a sum or product goes to its place by itself.
//! Never: joins that are cheaper in the kernels of their readers.

use super::fuse::{base, storage};
use crate::analysis::work::work;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, Shape, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// So few parts may not need kernels of their own: a choice among them costs little, and nothing where their reader computes anyway. Nor may
/// parts have more shapes, each of which is a program.
const FEW: usize = 4;

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

/// Copies a movement of the first graph to another one, where this is what it moves.
pub(super) type View<'a> = &'a dyn Fn(&mut Graph, &Graph, UOp, UOp) -> UOp;

/// The joins of a graph that are made in memory of their own.
pub(super) struct Joins {
    list: Vec<Join>,
    /// By the node that is the whole.
    whole: FxHashMap<UOp, usize>,
    /// The parts that are views of a node: of which join, what, and where it begins.
    places: FxHashMap<UOp, SmallVec<[(usize, UOp, usize); 1]>>,
    /// Parameters before theirs.
    n_params: usize,
}

impl Joins {
    /// Those of `nodes` that are cheaper as memory, which come behind so many parameters.
    pub(super) fn find(g: &Graph, nodes: &[UOp], n_params: usize, t: &Target) -> Joins {
        let (whole, places) = (FxHashMap::default(), FxHashMap::default());
        let mut joins = Joins { list: Vec::new(), whole, places, n_params };
        let mut ends = nodes.iter().rev().filter(|&&u| is_join(g, u)).peekable();
        if ends.peek().is_none() {
            return joins;
        }
        let mut users = vec![0u32; g.len()];
        for &u in nodes {
            g.src(u).iter().for_each(|s| users[s.0 as usize] += 1);
        }
        let mut inside = vec![false; g.len()];
        for &u in ends {
            // the whole comes before the choices that it is made of
            if !inside[u.0 as usize]
                && let Some(join) = recognised(g, u, &mut inside)
                && pays(g, u, &join, &users, t)
            {
                joins.whole.insert(u, joins.list.len());
                for &(value, begin) in &join.parts {
                    joins.places.entry(base(g, value)).or_default().push((joins.list.len(), value, begin));
                }
                joins.list.push(join);
            }
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
    pub(super) fn copied(&mut self, out: &mut Graph, g: &Graph, u: UOp, copy: UOp, view: View) -> UOp {
        let whole = self.whole.get(&u).map(|&at| &self.list[at]);
        let copy = match whole.and_then(|join| Some((join, join.memory?))) {
            Some((join, memory)) => {
                let filled = out.after(memory, &join.stores);
                out.reshape(filled, g.shape(u))
            }
            None => copy,
        };
        for &(at, value, begin) in self.places.get(&u).into_iter().flatten() {
            let mut moves: SmallVec<[UOp; 4]> = SmallVec::new();
            let mut x = value;
            while x != u {
                moves.push(x);
                x = g.src_at(x, 0);
            }
            let part = moves.iter().rev().fold(copy, |part, &m| view(out, g, m, part));
            let join = &mut self.list[at];
            let w = join.whole;
            let slot = (self.n_params + at) as u32;
            let memory = *join.memory.get_or_insert_with(|| out.param(slot, g.dtype(w), g.memory_len(w)));
            let mut pairs: SmallVec<[(usize, usize); 6]> = g.shape(w).iter().map(|&n| (0, n)).collect();
            pairs[join.axis] = (begin, begin + g.shape(value)[join.axis]);
            let target = out.reshape(memory, g.shape(w));
            let target = out.shrink(target, &pairs);
            let value = match join.sum && g.dtype(w).is_float() {
                true => {
                    let zero = out.float(0.0, g.dtype(w));
                    out.binary(Op::Add, part, zero)
                }
                false => part,
            };
            join.stores.push(out.store(target, value));
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
    let mut parts: Vec<(UOp, usize)> = Vec::with_capacity(leaves.len());
    for &(x, end) in &leaves {
        let pairs = padded(x)?;
        let (value, begin) = (g.src_at(x, 0), pairs[axis].0);
        let until = begin + g.shape(value)[axis];
        let alone = pairs.iter().enumerate().all(|(a, p)| a == axis || *p == (0, 0));
        if !alone || begin == until || end.is_some_and(|e| e != until) {
            return None;
        }
        parts.push((value, begin));
    }
    sort::by_key(&mut parts, |p| p.1);
    // one after the other, from the first place to the last
    let mut at = 0;
    for &(value, begin) in &parts {
        if begin != at {
            return None;
        }
        at += g.shape(value)[axis];
    }
    let join = Join { whole: u, axis, sum: op == Op::Add, parts, memory: None, stores: Vec::new() };
    (at == g.shape(u)[axis] && join.parts.len() > 1).then_some(join)
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
fn pays(g: &Graph, u: UOp, join: &Join, users: &[u32], t: &Target) -> bool {
    let m = &t.machine;
    let bytes = |x: UOp| g.numel(x) as f64 * g.dtype(x).size() as f64;
    let all = g.numel(u) as f64;
    let (mut stored, mut chosen) = (0.0, 0.0);
    let mut shapes: SmallVec<[&Shape; FEW]> = SmallVec::new();
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
                if !shapes.contains(&g.shape(value)) {
                    shapes.push(g.shape(value));
                }
            }
        }
    }
    g.memory_len(u) as u64 == g.numel(u) && shapes.len() <= FEW && stored < chosen
}

/// What storing a part takes.
enum Stored {
    /// Nothing: it is a sum or so that is wanted nowhere else, whose kernel stores it there.
    Alone,
    /// It is computed for others, and stored once more.
    Too,
    /// A kernel, which computes it with so many operations.
    Again(u32),
}

fn kernel_of(g: &Graph, value: UOp, users: &[u32]) -> Stored {
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
