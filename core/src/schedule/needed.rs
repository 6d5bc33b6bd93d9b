//! How far stored values are read. In: kernels in the order in which they run, and how much of an output is wanted
//! (`Contiguous` with ends). Out: for each kernel, conditions on its loops without which nobody reads what they compute ([`Ast::live`]): where
//! lengths are launch scalars, buffers have room for the longest, and masks throw away what lies behind a length. What a mask throws away
//! need not be computed, nor what that alone would have been made of; so this goes from the last kernel to the first.
//!
//! Of a load it is known under which conditions its value is used: those of the masks between it and the results, of its gate, and what
//! is known of the loops. Along each axis of the kernel that stored the value they give an end, or all of it is read. An element that
//! nobody reads may hold anything. So what is read to compute an address or a gate is read as a whole: such a value must be sound
//! even where it is not used. [`check`] says whether conditions are sound; debug builds ask it.

use super::{Ast, BufferInfo, Kernel, Origin};
use crate::analysis::affine;
use crate::rewrite::Memo;
use crate::rules::{conjuncts, simplify_under, simplify_with};
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::OnceLock;

type Apply = fn(&mut [Kernel], &[BufferInfo], &Graph, &[UOp], &[usize]);

/// [`apply`], once somebody makes plans for every length: a pointer that is set at run time, so that a WebAssembly module which makes no such
/// plans does not contain it (see the table in `codegen/live.rs`).
static APPLY: OnceLock<Box<Apply>> = OnceLock::new();

/// From now on work follows lengths.
pub(crate) fn enable() {
    APPLY.get_or_init(|| Box::new(apply));
}

/// [`apply`], where it is enabled, to kernels that give these roots of `from` in these buffers.
pub(super) fn follow(kernels: &mut [Kernel], list: &[BufferInfo], from: &Graph, roots: &[UOp], buffers: &[usize]) {
    if let Some(apply) = APPLY.get() {
        apply(kernels, list, from, roots, buffers);
    }
}

/// What is known where a value is used.
type Known = SmallVec<[UOp; 8]>;

/// An axis of a buffer, along which each kernel that stores there has a loop over all of it.
struct Axis {
    stride: i64,
    len: i64,
    end: End,
}

/// How far an axis is read.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// By nobody so far.
    Unread,
    /// Up to here: a node of the graph of ends.
    Below(UOp),
    All,
}

/// Which buffers have axes, and the ends found for them.
struct Needs {
    axes: FxHashMap<usize, Vec<Axis>>,
    /// Elements of each buffer.
    lens: Vec<usize>,
    ends: Graph,
}

/// How much of a buffer is wanted that a run hands out.
struct Wanted {
    buffer: usize,
    /// Its sizes.
    shape: Vec<usize>,
    /// Axes of which only what lies below an end is wanted, a scalar of `from`.
    below: Vec<(usize, UOp)>,
}

/// Outputs of which not all is wanted: roots of `g` in these buffers.
fn wanted(g: &Graph, roots: &[UOp], buffers: &[usize]) -> Vec<Wanted> {
    let ends = |(&r, &buffer): (&UOp, &usize)| {
        let Arg::Axes(axes) = g.arg(r) else { return None };
        let below = axes.iter().map(|&a| a as usize).zip(g.src(r).iter().skip(1).copied()).collect();
        let shape = g.shape(r).to_vec();
        // of a value that is handed out twice all may be wanted
        let once = buffers.iter().filter(|b| **b == buffer).count() == 1;
        (g.op(r) == Op::Contiguous && once).then_some(Wanted { buffer, shape, below })
    };
    roots.iter().zip(buffers).filter_map(ends).collect()
}

/// Finds out which turns of each kernel's loops are needed, and sets [`Ast::live`].
fn apply(kernels: &mut [Kernel], list: &[BufferInfo], from: &Graph, roots: &[UOp], buffers: &[usize]) {
    let wanted = wanted(from, roots, buffers);
    if wanted.is_empty() {
        return;
    }
    let lens = list.iter().map(|b| b.len).collect();
    let mut needs = Needs { axes: axes(kernels, list, &wanted), lens, ends: Graph::new() };
    for w in &wanted {
        needs.want(from, w);
    }
    for k in kernels.iter_mut().rev() {
        needs.kernel(k);
    }
}

/// The axes of buffers, as all kernels that store there have them.
fn axes(kernels: &[Kernel], buffers: &[BufferInfo], wanted: &[Wanted]) -> FxHashMap<usize, Vec<Axis>> {
    let mut out: FxHashMap<usize, Vec<Axis>> = FxHashMap::default();
    for k in kernels {
        let g = &k.ast.g;
        for (i, &b) in k.split_args().0.iter().enumerate() {
            let known = match buffers[b].origin {
                Origin::External(_) => false,
                Origin::Temp => true,
                Origin::Output => wanted.iter().any(|w| w.buffer == b),
            };
            let own = if known && k.ast.custom().is_none() { loops(g, g.src_at(k.ast.sink, i)) } else { Vec::new() };
            let own = own.into_iter().map(|(_, stride, len)| Axis { stride, len, end: End::Unread });
            match out.get_mut(&b) {
                None => _ = out.insert(b, own.collect()),
                Some(axes) => {
                    let own: Vec<Axis> = own.collect();
                    axes.retain(|a| own.iter().any(|o| (o.stride, o.len) == (a.stride, a.len)));
                }
            }
        }
    }
    out
}

/// The loops of a store that are axes of its buffer, with stride and length: each counts from the axis' first element to its last.
fn loops(g: &Graph, store: UOp) -> Vec<(UOp, i64, i64)> {
    if g.op(store) != Op::Store || g.src(store).len() != 2 {
        return Vec::new();
    }
    let to = affine(g, g.src_at(g.src_at(store, 0), 1));
    let is_loop = |r: UOp| g.op(r) == Op::Range && g.kind(r) == AxisKind::Loop && g.dtype(r) == DType::I32;
    if !to.is_whole() || to.constant < 0 || !to.terms.iter().all(|t| is_loop(t.0) && t.1 > 0) {
        return Vec::new();
    }
    let last = |&(r, by): &(UOp, i64)| (g.range_len(r) as i64 - 1) * by;
    let mut out = Vec::new();
    for &(range, stride) in &to.terms {
        let (n, others) = (g.range_len(range) as i64, || to.terms.iter().filter(move |t| t.0 != range));
        // what lies below the axis stays below its stride, and what lies above it, a part's place too, are steps of the whole axis
        let inside: i64 = others().filter(|t| t.1 < stride).map(last).sum();
        let outside = others().filter(|t| t.1 >= stride).all(|t| t.1 % (stride * n) == 0);
        if outside && to.constant % stride + inside < stride && to.constant / stride % n == 0 {
            out.push((range, stride, n));
        }
    }
    out
}

impl Needs {
    /// What a caller reads of an output.
    fn want(&mut self, from: &Graph, w: &Wanted) {
        let mut g = Graph::new();
        let (mut at, mut stride, mut known) = (g.idx(0), 1i64, Known::new());
        for (i, &n) in w.shape.iter().enumerate().rev() {
            let r = g.range(n, i as u8, AxisKind::Loop);
            let step = g.idx(stride);
            let term = g.binary(Op::Mul, r, step);
            at = g.binary(Op::Add, at, term);
            stride *= n as i64;
            if let Some(&(_, end)) = w.below.iter().find(|b| b.0 == i) {
                let end = g.import(from, &[end], |_, _| None)[0];
                known.push(g.binary(Op::CmpLt, r, end));
            }
        }
        self.read(&mut g, &mut Memo::sparse(), w.buffer, at, &known);
    }

    /// What one kernel has to compute, and what it reads for that.
    fn kernel(&mut self, k: &mut Kernel) {
        let mut g = k.ast.g.clone();
        let live = self.live(k, &mut g);
        self.reads(k, &mut g, &live);
        if !live.is_empty() {
            let mut roots = vec![k.ast.sink];
            roots.extend(live);
            let mut clean = Graph::new();
            let roots = clean.import(&g, &roots, |_, _| None);
            (k.ast.g, k.ast.sink, k.ast.live) = (clean, roots[0], roots[1..].to_vec());
        }
    }

    /// Conditions on its loops.
    fn live(&mut self, k: &Kernel, g: &mut Graph) -> Vec<UOp> {
        let stores = g.srcs(k.ast.sink);
        let mut ends: Option<Vec<(UOp, End)>> = None;
        for (i, b) in k.split_args().0.iter().enumerate() {
            let Some(axes) = self.axes.get(b) else { return Vec::new() };
            let mut own = Vec::new();
            for (range, stride, len) in loops(g, stores[i]) {
                own.extend(axes.iter().find(|a| (a.stride, a.len) == (stride, len)).map(|a| (range, a.end)));
            }
            ends = Some(match ends {
                None => own,
                Some(before) => {
                    let both = |(r, a): (UOp, End)| Some((r, self.ends.joined(a, own.iter().find(|o| o.0 == r)?.1)));
                    before.into_iter().filter_map(both).collect()
                }
            });
        }
        let mut out = Vec::new();
        for (range, end) in ends.unwrap_or_default() {
            if let End::Below(end) = end {
                let end = g.import(&self.ends, &[end], |_, _| None)[0];
                out.push(g.binary(Op::CmpLt, range, end));
            }
        }
        out
    }

    /// Goes from the results to what they are made of.
    fn reads(&mut self, k: &Kernel, g: &mut Graph, live: &[UOp]) {
        if k.ast.custom().is_some() {
            return k.args.iter().for_each(|b| self.whole(*b));
        }
        let nodes = g.reachable(&[k.ast.sink]);
        let sound = addressing(g, &nodes);
        let mut memo = Memo::sparse();
        let mut known: FxHashMap<UOp, Known> = FxHashMap::default();
        // how far a local array is read, along each axis
        let mut arrays: FxHashMap<UOp, Vec<End>> = FxHashMap::default();
        known.insert(k.ast.sink, live.iter().copied().collect());
        for &u in nodes.iter().rev() {
            let here = known.remove(&u).unwrap_or_default();
            let src = g.srcs(u);
            let mut below: SmallVec<[(UOp, Known); 4]> = src.iter().map(|&s| (s, here.clone())).collect();
            match g.op(u) {
                Op::Where => {
                    below[1].1.extend(conjuncts(g, src[0]));
                    if let Some(c) = opposite(g, src[0]) {
                        below[2].1.extend(conjuncts(g, c));
                    }
                }
                Op::Store if src.len() == 3 => {
                    let gate = conjuncts(g, src[2]);
                    below[..2].iter_mut().for_each(|b| b.1.extend(gate.iter().copied()));
                }
                Op::Load => {
                    let mut now = here.clone();
                    if src.len() == 3 {
                        now.extend(conjuncts(g, src[2]));
                    }
                    let (memory, at) = (g.src_at(src[0], 0), g.src_at(src[0], 1));
                    let known: &[UOp] = if sound.contains(&u) { &[] } else { &now };
                    match (g.op(memory), g.arg(memory).clone()) {
                        (Op::Param, Arg::Param { slot, .. }) => {
                            let buffer = k.args[slot as usize];
                            match sound.contains(&u) {
                                true => self.whole(buffer),
                                false => self.read(g, &mut memo, buffer, at, known),
                            }
                        }
                        (Op::Stage, _) => self.array(g, &mut memo, memory, at, known, &mut arrays),
                        _ => {}
                    }
                    below[0].1 = now;
                }
                Op::Stage => {
                    for (&p, &end) in src[1..].iter().zip(arrays.get(&u).into_iter().flatten()) {
                        if let End::Below(end) = end {
                            let end = g.import(&self.ends, &[end], |_, _| None)[0];
                            below[0].1.push(g.binary(Op::CmpLt, p, end));
                        }
                    }
                }
                _ => {}
            }
            for (s, new) in below {
                match known.get_mut(&s) {
                    Some(old) => old.retain(|c| new.contains(c)),
                    None => _ = known.insert(s, new),
                }
            }
        }
    }

    /// All of a buffer is read.
    fn whole(&mut self, buffer: usize) {
        self.axes.get_mut(&buffer).into_iter().flatten().for_each(|a| a.end = End::All);
    }

    /// A buffer is read at an offset, by loops of which this is known.
    fn read(&mut self, g: &mut Graph, memo: &mut Memo, buffer: usize, at: UOp, known: &[UOp]) {
        let Some(axes) = self.axes.get_mut(&buffer) else { return };
        let len = self.lens[buffer] as i64;
        for a in axes.iter_mut().filter(|a| a.end != End::All) {
            let place = digit(g, memo, at, a.stride, a.len);
            let mut end = end_of(&mut self.ends, g, memo, place, a.len, known);
            if end == End::All && known.iter().any(|&c| ends_one_of(g, c, place)) {
                // what a window reads before the first element of an axis and behind its last is another one's, but for what its gate says
                let all = known.iter().copied().reduce(|a, b| g.binary(Op::And, a, b));
                let inside = all.map_or(place, |all| simplify_under(g, all, place));
                end = end_of(&mut self.ends, g, memo, inside, a.len, known);
                if end == End::All && a.stride * a.len == len {
                    // whatever is read is in the buffer, of which this is the outermost axis
                    let step = g.int(a.stride, g.dtype(at));
                    let place = g.binary(Op::FloorDiv, at, step);
                    let place = simplify_with(g, place, memo);
                    end = end_of(&mut self.ends, g, memo, place, a.len, known);
                }
            }
            a.end = self.ends.joined(a.end, end);
        }
    }

    /// A local array is read at an offset.
    fn array(
        &mut self,
        g: &mut Graph,
        memo: &mut Memo,
        stage: UOp,
        at: UOp,
        known: &[UOp],
        arrays: &mut FxHashMap<UOp, Vec<End>>,
    ) {
        let own = g.srcs(stage);
        let list = arrays.entry(stage).or_insert_with(|| vec![End::Unread; own.len() - 1]);
        let mut stride = 1;
        for (i, &p) in own[1..].iter().enumerate().rev() {
            if g.op(p) != Op::Range {
                return list.fill(End::All);
            }
            let n = g.range_len(p) as i64;
            let place = digit(g, memo, at, stride, n);
            let end = end_of(&mut self.ends, g, memo, place, n, known);
            list[i] = self.ends.joined(list[i], end);
            stride *= n;
        }
    }
}

impl Graph {
    /// The farther of two ends.
    fn joined(&mut self, a: End, b: End) -> End {
        match (a, b) {
            (End::Unread, x) | (x, End::Unread) => x,
            (End::All, _) | (_, End::All) => End::All,
            (End::Below(x), End::Below(y)) if x == y => a,
            (End::Below(x), End::Below(y)) => {
                let most = self.binary(Op::Max, x, y);
                End::Below(simplify_with(self, most, &mut Memo::sparse()))
            }
        }
    }
}

/// Loads whose values make addresses, or say whether something is loaded or stored.
fn addressing(g: &Graph, nodes: &[UOp]) -> FxHashSet<UOp> {
    let mut roots = Vec::new();
    for &u in nodes {
        match (g.op(u), g.src(u)) {
            (Op::Index, &[_, at]) => roots.push(at),
            (Op::Load | Op::Store, &[_, _, gate]) => roots.push(gate),
            _ => {}
        }
    }
    g.reachable(&roots).into_iter().filter(|&u| g.op(u) == Op::Load).collect()
}

/// The place along an axis of an offset.
fn digit(g: &mut Graph, memo: &mut Memo, at: UOp, stride: i64, len: i64) -> UOp {
    let dt = g.dtype(at);
    let (step, n) = (g.int(stride, dt), g.int(len, dt));
    let place = g.binary(Op::FloorDiv, at, step);
    let place = g.binary(Op::FloorMod, place, n);
    simplify_with(g, place, memo)
}

/// The end of an axis of `len` elements that is read at `place`.
fn end_of(ends: &mut Graph, g: &mut Graph, memo: &mut Memo, place: UOp, len: i64, known: &[UOp]) -> End {
    let Some(end) = above(g, place, known).filter(|&e| g.dtype(e) == DType::I32) else { return End::All };
    let end = simplify_with(g, end, memo);
    match g.bounds(end).0 >= len {
        true => End::All,
        false => End::Below(ends.import(g, &[end], |_, _| None)[0]),
    }
}

/// The least scalar, as far as can be told, that an integer is always below, made of constants and launch scalars alone.
fn above(g: &mut Graph, u: UOp, known: &[UOp]) -> Option<UOp> {
    if let Some(end) = known.iter().find_map(|&c| said(g, u, c)) {
        return Some(if end.1 { plus(g, end.0, 1) } else { end.0 });
    }
    let src = g.srcs(u);
    let positive = |g: &Graph, c: UOp| g.const_int(c).filter(|c| *c > 0);
    let found = match (g.op(u), &src[..]) {
        (Op::Var, _) => Some(plus(g, u, 1)),
        (Op::Add, &[x, y]) => {
            let (x, y) = (above(g, x, known)?, above(g, y, known)?);
            let sum = g.binary(Op::Add, x, y);
            Some(plus(g, sum, -1))
        }
        (Op::Mul, &[x, c]) if positive(g, c).is_some() => {
            let last = above(g, x, known)?;
            let last = plus(g, last, -1);
            let last = g.binary(Op::Mul, last, c);
            Some(plus(g, last, 1))
        }
        (Op::FloorDiv, &[x, c]) if positive(g, c).is_some() => {
            let last = above(g, x, known)?;
            let last = plus(g, last, -1);
            let last = g.binary(Op::FloorDiv, last, c);
            Some(plus(g, last, 1))
        }
        (Op::FloorMod, &[_, n]) if g.op(n) != Op::Const && is_scalar(g, n) => {
            let one = g.int(1, g.dtype(n));
            Some(g.binary(Op::Max, n, one))
        }
        (Op::Min, &[_, last]) if g.op(last) != Op::Const && is_scalar(g, last) => Some(plus(g, last, 1)),
        (Op::Min, &[x, y]) => above(g, x, known).or_else(|| above(g, y, known)),
        (Op::Max, &[x, y]) => {
            let (x, y) = (above(g, x, known)?, above(g, y, known)?);
            Some(g.binary(Op::Max, x, y))
        }
        _ => None,
    };
    found.or_else(|| {
        let most = g.bounds(u).1;
        (most < i64::from(i32::MAX)).then(|| g.int(most + 1, g.dtype(u)))
    })
}

/// What a condition says of `u`: it is below a scalar, or (true) not above it.
fn said(g: &Graph, u: UOp, cond: UOp) -> Option<(UOp, bool)> {
    if let (Op::CmpLt, &[x, end]) = (g.op(cond), g.src(cond)) {
        return (x == u && is_scalar(g, end)).then_some((end, false));
    }
    let less = opposite(g, cond)?;
    let (Op::CmpLt, &[last, x]) = (g.op(less), g.src(less)) else { return None };
    (x == u && is_scalar(g, last)).then_some((last, true))
}

/// The condition that this one is the opposite of.
fn opposite(g: &Graph, cond: UOp) -> Option<UOp> {
    let &[x, yes] = g.src(cond) else { return None };
    let turns = matches!(g.op(cond), Op::CmpNe | Op::Xor) && g.dtype(x) == DType::Bool;
    (turns && g.const_int(yes) == Some(1)).then_some(x)
}

/// Does a condition give a loop that `place` depends on an end which differs from run to run?
fn ends_one_of(g: &Graph, cond: UOp, place: UOp) -> bool {
    let changes = |u: UOp| is_scalar(g, u) && g.op(u) != Op::Const;
    g.ranges(cond) & g.ranges(place) != 0 && g.src(opposite(g, cond).unwrap_or(cond)).iter().any(|&s| changes(s))
}

fn is_scalar(g: &Graph, u: UOp) -> bool {
    g.dtype(u) == DType::I32 && g.ranges(u) == 0 && !g.reachable(&[u]).iter().any(|&x| g.op(x) == Op::Load)
}

fn plus(g: &mut Graph, u: UOp, n: i64) -> UOp {
    let n = g.int(n, g.dtype(u));
    g.binary(Op::Add, u, n)
}

/// Are the conditions of a kernel what its compiler takes: a loop of its results is below a scalar?
pub(crate) fn check(ast: &Ast) -> Result<()> {
    let g = &ast.g;
    let bad = |c: UOp| Err(Error::Internal(format!("{c:?} is no condition on a loop of a kernel")));
    for &c in &ast.live {
        let (Op::CmpLt, &[r, end]) = (g.op(c), g.src(c)) else { return bad(c) };
        if g.op(r) != Op::Range || g.kind(r) != AxisKind::Loop || !is_scalar(g, end) {
            return bad(c);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end that conditions give a loop, whatever form they have: `x < 5`, not `5 < x`, and the same of a launch scalar.
    #[test]
    fn ends_are_above_all_that_conditions_leave() {
        let mut g = Graph::new();
        let x = g.range(64, 0, AxisKind::Loop);
        let n = g.node(Op::Var, DType::I32, &[], Arg::Var { name: "n".into(), min: 1, max: 9 });
        let (five, yes) = (g.idx(5), g.int(1, DType::Bool));
        for (scalar, least) in [(five, 5), (n, 9)] {
            let below = g.binary(Op::CmpLt, x, scalar);
            let greater = g.binary(Op::CmpLt, scalar, x);
            let not_above = g.node(Op::CmpNe, DType::Bool, &[greater, yes], Arg::None);
            for (cond, most) in [(below, least), (not_above, least + 1)] {
                let end = above(&mut g, x, &[cond]).expect("an end");
                let end = simplify_with(&mut g, end, &mut Memo::sparse());
                assert_eq!(g.bounds(end).1, most);
            }
        }
        assert_eq!(above(&mut g, x, &[]).and_then(|end| g.const_int(end)), Some(64));
    }
}
