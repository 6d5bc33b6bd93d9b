//! Finds how far stored values are read, where lengths are launch scalars, buffers are sized for the greatest length,
//! and masks discard what lies past the end. In: kernels in execution order, and how much of each output is wanted
//! (`Contiguous` with ends). Out: for each kernel conditions on its loops, outside of which nobody reads what it
//! computes ([`Ast::live`]).
//!
//! A value that a mask discards need not be computed, nor the values that only it is computed from, so the analysis
//! goes from the last kernel to the first. For each load it knows the conditions under which its value is used: those
//! of the masks between the load and the results, that of its gate, and those on the loops. Along each axis of the
//! kernel that stored the buffer these conditions give an end (for example `n`, if the load is used where `index < n`),
//! or else the whole axis is read.
//!
//! An element that nobody reads may hold anything. Values from which addresses or gates are computed are therefore
//! always read as a whole: they must be valid even where they are not used. [`check`] verifies the conditions; debug
//! builds call it.

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

/// [`apply`], set once a caller makes plans that serve every length. A pointer set at run time, so that a WebAssembly
/// module that makes no such plans does not contain the function (see the table in `codegen/live.rs`).
static APPLY: OnceLock<Box<Apply>> = OnceLock::new();

/// Enables the analysis for all later schedules.
pub fn enable() {
    APPLY.get_or_init(|| Box::new(apply));
}

/// Calls [`apply`], where it is enabled. The kernels compute `roots` of the graph `from` into `buffers`.
pub(super) fn follow(kernels: &mut [Kernel], list: &[BufferInfo], from: &Graph, roots: &[UOp], buffers: &[usize]) {
    if let Some(apply) = APPLY.get() {
        apply(kernels, list, from, roots, buffers);
    }
}

/// The conditions that hold where a value is used.
type Known = SmallVec<[UOp; 8]>;

/// An axis of a buffer over which each kernel that stores to the buffer has a full loop.
struct Axis {
    stride: i64,
    len: i64,
    end: End,
}

/// How far an axis is read.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// No reader has been found yet.
    Unread,
    /// Only indices below this scalar are read, a node of `Needs::ends`.
    Below(UOp),
    All,
}

/// The axes of all buffers and the ends found for them.
struct Needs {
    axes: FxHashMap<usize, Vec<Axis>>,
    /// Number of elements of each buffer.
    lens: Vec<usize>,
    ends: Graph,
}

/// How much of an output buffer the caller wants.
struct Wanted {
    buffer: usize,
    /// The shape of the output.
    shape: Vec<usize>,
    /// The axes of which only indices below an end are wanted, each with its end, a scalar of `from`.
    below: Vec<(usize, UOp)>,
}

/// The outputs that are wanted only in part: roots of `g` in these buffers.
fn wanted(g: &Graph, roots: &[UOp], buffers: &[usize]) -> Vec<Wanted> {
    let ends = |(&r, &buffer): (&UOp, &usize)| {
        let Arg::Axes(axes) = g.arg(r) else { return None };
        let below = axes.iter().map(|&a| a as usize).zip(g.src(r).iter().skip(1).copied()).collect();
        let shape = g.shape(r).to_vec();
        // a value that is returned twice may be wanted as a whole
        let once = buffers.iter().filter(|b| **b == buffer).count() == 1;
        (g.op(r) == Op::Contiguous && once).then_some(Wanted { buffer, shape, below })
    };
    roots.iter().zip(buffers).filter_map(ends).collect()
}

/// Finds the iterations of each kernel's loops that are needed, and sets [`Ast::live`].
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

/// For each buffer the axes on which all kernels that store to it agree.
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

/// The loops of a store that are axes of its buffer, with stride and length: each runs from the axis' first index to
/// its last.
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
        // smaller strides together stay below the axis' stride, and larger ones, and the constant offset of a part, are
        // multiples of the whole axis
        let inside: i64 = others().filter(|t| t.1 < stride).map(last).sum();
        let outside = others().filter(|t| t.1 >= stride).all(|t| t.1 % (stride * n) == 0);
        if outside && to.constant % stride + inside < stride && to.constant / stride % n == 0 {
            out.push((range, stride, n));
        }
    }
    out
}

impl Needs {
    /// Records what the caller reads of an output.
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

    /// Determines what one kernel has to compute, and records what it reads for that.
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

    /// The conditions on the kernel's loops that its readers allow.
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

    /// Traverses a kernel from its results to its loads, collecting conditions, and records how far each buffer is
    /// read.
    fn reads(&mut self, k: &Kernel, g: &mut Graph, live: &[UOp]) {
        if k.ast.custom().is_some() {
            return k.args.iter().for_each(|b| self.whole(*b));
        }
        let nodes = g.reachable(&[k.ast.sink]);
        let addressing_loads = addressing(g, &nodes);
        let mut memo = Memo::sparse();
        let mut known: FxHashMap<UOp, Known> = FxHashMap::default();
        // how far each local array is read along each of its axes
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
                    let known: &[UOp] = if addressing_loads.contains(&u) { &[] } else { &now };
                    match (g.op(memory), g.arg(memory).clone()) {
                        (Op::Param, Arg::Param { slot, .. }) => {
                            let buffer = k.args[slot as usize];
                            match addressing_loads.contains(&u) {
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

    /// Records that a whole buffer is read.
    fn whole(&mut self, buffer: usize) {
        self.axes.get_mut(&buffer).into_iter().flatten().for_each(|a| a.end = End::All);
    }

    /// Records that a buffer is read at the offset `at` where the conditions `known` hold.
    fn read(&mut self, g: &mut Graph, memo: &mut Memo, buffer: usize, at: UOp, known: &[UOp]) {
        let Some(axes) = self.axes.get_mut(&buffer) else { return };
        let len = self.lens[buffer] as i64;
        for a in axes.iter_mut().filter(|a| a.end != End::All) {
            let place = index_along_axis(g, memo, at, a.stride, a.len);
            let mut end = end_of(&mut self.ends, g, memo, place, a.len, known);
            if end == End::All && known.iter().any(|&c| ends_one_of(g, c, place)) {
                // positions of a window before the start or past the end of an axis would be elements of its
                // neighbours, except that the gate excludes them
                let all = known.iter().copied().reduce(|a, b| g.binary(Op::And, a, b));
                let inside = all.map_or(place, |all| simplify_under(g, all, place));
                end = end_of(&mut self.ends, g, memo, inside, a.len, known);
                if end == End::All && a.stride * a.len == len {
                    // this is the outermost axis, and no load leaves the buffer, so the remainder by the axis' length
                    // can be dropped
                    let step = g.int(a.stride, g.dtype(at));
                    let place = g.binary(Op::FloorDiv, at, step);
                    let place = simplify_with(g, place, memo);
                    end = end_of(&mut self.ends, g, memo, place, a.len, known);
                }
            }
            a.end = self.ends.joined(a.end, end);
        }
    }

    /// Records that a local array is read at an offset.
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
            let place = index_along_axis(g, memo, at, stride, n);
            let end = end_of(&mut self.ends, g, memo, place, n, known);
            list[i] = self.ends.joined(list[i], end);
            stride *= n;
        }
    }
}

impl Graph {
    /// The larger of two ends.
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

/// The loads from whose values addresses or gates are computed.
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

/// The index along an axis that an offset has: `offset / stride % len`.
fn index_along_axis(g: &mut Graph, memo: &mut Memo, at: UOp, stride: i64, len: i64) -> UOp {
    let dt = g.dtype(at);
    let (step, n) = (g.int(stride, dt), g.int(len, dt));
    let place = g.binary(Op::FloorDiv, at, step);
    let place = g.binary(Op::FloorMod, place, n);
    simplify_with(g, place, memo)
}

/// The end of an axis of `len` elements that is read at `place`.
fn end_of(ends: &mut Graph, g: &mut Graph, memo: &mut Memo, place: UOp, len: i64, known: &[UOp]) -> End {
    let Some(end) = exclusive_upper_bound(g, place, known).filter(|&e| g.dtype(e) == DType::I32) else {
        return End::All;
    };
    let end = simplify_with(g, end, memo);
    match g.bounds(end).0 >= len {
        true => End::All,
        false => End::Below(ends.import(g, &[end], |_, _| None)[0]),
    }
}

/// The smallest upper bound (exclusive) of an integer that can be derived, made of constants and launch scalars alone.
fn exclusive_upper_bound(g: &mut Graph, u: UOp, known: &[UOp]) -> Option<UOp> {
    if let Some(end) = known.iter().find_map(|&c| bound_from_condition(g, u, c)) {
        return Some(if end.1 { plus(g, end.0, 1) } else { end.0 });
    }
    let src = g.srcs(u);
    let positive = |g: &Graph, c: UOp| g.const_int(c).filter(|c| *c > 0);
    let found = match (g.op(u), &src[..]) {
        (Op::Var, _) => Some(plus(g, u, 1)),
        (Op::Add, &[x, y]) => {
            let (x, y) = (exclusive_upper_bound(g, x, known)?, exclusive_upper_bound(g, y, known)?);
            let sum = g.binary(Op::Add, x, y);
            Some(plus(g, sum, -1))
        }
        (Op::Mul, &[x, c]) if positive(g, c).is_some() => {
            let last = exclusive_upper_bound(g, x, known)?;
            let last = plus(g, last, -1);
            let last = g.binary(Op::Mul, last, c);
            Some(plus(g, last, 1))
        }
        (Op::FloorDiv, &[x, c]) if positive(g, c).is_some() => {
            let last = exclusive_upper_bound(g, x, known)?;
            let last = plus(g, last, -1);
            let last = g.binary(Op::FloorDiv, last, c);
            Some(plus(g, last, 1))
        }
        (Op::FloorMod, &[_, n]) if g.op(n) != Op::Const && is_scalar(g, n) => {
            let one = g.int(1, g.dtype(n));
            Some(g.binary(Op::Max, n, one))
        }
        (Op::Min, &[_, last]) if g.op(last) != Op::Const && is_scalar(g, last) => Some(plus(g, last, 1)),
        (Op::Min, &[x, y]) => exclusive_upper_bound(g, x, known).or_else(|| exclusive_upper_bound(g, y, known)),
        (Op::Max, &[x, y]) => {
            let (x, y) = (exclusive_upper_bound(g, x, known)?, exclusive_upper_bound(g, y, known)?);
            Some(g.binary(Op::Max, x, y))
        }
        _ => None,
    };
    found.or_else(|| {
        let most = g.bounds(u).1;
        (most < i64::from(i32::MAX)).then(|| g.int(most + 1, g.dtype(u)))
    })
}

/// The bound that a condition sets to `u`: a scalar, and whether it is inclusive (`u <= scalar`, not `u < scalar`).
fn bound_from_condition(g: &Graph, u: UOp, cond: UOp) -> Option<(UOp, bool)> {
    if let (Op::CmpLt, &[x, end]) = (g.op(cond), g.src(cond)) {
        return (x == u && is_scalar(g, end)).then_some((end, false));
    }
    let less = opposite(g, cond)?;
    let (Op::CmpLt, &[last, x]) = (g.op(less), g.src(less)) else { return None };
    (x == u && is_scalar(g, last)).then_some((last, true))
}

/// The operand of a negated condition (`x != true` or `x ^ true`).
fn opposite(g: &Graph, cond: UOp) -> Option<UOp> {
    let &[x, yes] = g.src(cond) else { return None };
    let negates = matches!(g.op(cond), Op::CmpNe | Op::Xor) && g.dtype(x) == DType::Bool;
    (negates && g.const_int(yes) == Some(1)).then_some(x)
}

/// Does a condition bound a loop on which `place` depends by a scalar that differs from run to run?
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

/// Checks that the conditions of a kernel have the form that code generation accepts: an output loop is below a scalar.
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

    /// The bound that a condition gives a loop, in both of its forms: `x < 5` and the negation of `5 < x`, with a
    /// constant and with a launch scalar in place of 5.
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
                let end = exclusive_upper_bound(&mut g, x, &[cond]).expect("an end");
                let end = simplify_with(&mut g, end, &mut Memo::sparse());
                assert_eq!(g.bounds(end).1, most);
            }
        }
        assert_eq!(exclusive_upper_bound(&mut g, x, &[]).and_then(|end| g.const_int(end)), Some(64));
    }
}
