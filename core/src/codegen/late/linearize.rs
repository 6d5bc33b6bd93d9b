//! Execution order: each node goes into the outermost loop in which it can be computed (loop-invariant code motion), as
//! late as possible there.
//!
//! Loops form a tree: output loops and a walk (a loop whose iterations run in order) nest by id, and reduction loops
//! are nested inside the ranges that are open around their reduction. A node's level is the deepest loop among the
//! ranges that it depends on. Within a level nodes are emitted on demand, sources that contain a loop first, so that a
//! value needed only after a loop is not kept in a register across it.

use crate::codegen::axes::Kernel;
use crate::codegen::reduce::LoopInfo;
use crate::uop::{AxisKind, Graph, Op, RangeSet, UOp, graph::MAX_RANGES};
use crate::util::sort;
use crate::{Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

const ROOT: usize = usize::MAX;
/// Marks a loop whose depth is being computed, to detect cycles.
const OPEN: u32 = u32::MAX;

struct Lin<'a> {
    g: &'a Graph,
    /// Depth of each loop by range id; the outermost has depth 1.
    depth: FxHashMap<u8, u32>,
    /// Level of each node: the range id of the deepest loop that it depends on, or `ROOT`.
    level: Vec<usize>,
    /// Does the node depend on the End of a loop that is opened at its own level?
    has_end: Vec<bool>,
    emitted: Vec<bool>,
    order: Vec<UOp>,
}

/// Orders the kernel's nodes for execution, and adds the End nodes of output loops. It is an error if opts have nested
/// loops in a cycle.
pub fn linearize(k: &mut Kernel, loops: &FxHashMap<u8, LoopInfo>) -> Result<Vec<UOp>> {
    let ranges = k.ranges();
    let is_peeled = |r: &UOp| k.peeled_loops.iter().any(|p| k.g.range_arg(*p).id == k.g.range_arg(*r).id);
    let is_out = |r: &UOp| matches!(k.g.kind(*r), AxisKind::Loop | AxisKind::Walk);
    let (peeled, outs): (Vec<UOp>, Vec<UOp>) = ranges.iter().copied().filter(is_out).partition(is_peeled);
    let has_threads = ranges.iter().any(|&r| matches!(k.g.kind(r), AxisKind::Local(_) | AxisKind::Grid(1..)));
    let grid = ranges.iter().copied().find(|&r| k.g.kind(r) == AxisKind::Grid(0)).filter(|_| !has_threads);
    let mut body: SmallVec<[UOp; 4]> = k.g.srcs(k.sink);
    for &p in &peeled {
        let inside = |u: &UOp| k.g.ranges(*u) & k.g.ranges(p) != 0;
        let at = body.iter().position(inside).unwrap_or(0);
        let (own, mut rest): (SmallVec<[UOp; 4]>, SmallVec<[UOp; 4]>) = body.iter().copied().partition(inside);
        let src = [&[p], &own[..]].concat();
        rest.insert(at, k.g.node(Op::End, crate::DType::Void, &src, crate::uop::Arg::None));
        body = rest;
    }
    for &r in outs.iter().rev() {
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[r]);
        src.extend_from_slice(&body);
        body = SmallVec::from_elem(k.g.node(Op::End, crate::DType::Void, &src, crate::uop::Arg::None), 1);
    }
    k.sink = k.g.sink(&body);
    let g = &k.g;
    let mut depth: FxHashMap<u8, u32> = FxHashMap::default();
    for (d, r) in grid.iter().chain(&outs).chain(&peeled).enumerate() {
        depth.insert(g.range_arg(*r).id, d as u32 + 1);
    }
    for &id in loops.keys() {
        if depth_of(id, loops, &mut depth).is_none() {
            return Err(Error::value("opts", format!("loop {id} would have to be inside of itself")));
        }
    }
    let n = k.sink.0 as usize + 1;
    let mut lin =
        Lin { g, depth, level: vec![ROOT; n], has_end: vec![false; n], emitted: vec![false; n], order: Vec::new() };
    lin.analyse();
    for &r in &k.tiles {
        lin.emitted[r.0 as usize] = true;
        lin.order.push(r);
    }
    for &r in &ranges {
        // thread and workgroup indices are known from the start
        if g.kind(r).is_launch() && Some(r) != grid {
            lin.emitted[r.0 as usize] = true;
            lin.order.push(r);
        }
    }
    match grid {
        Some(r) => lin.open(r, &body, ROOT, None),
        None => body.iter().for_each(|&u| lin.emit(u, ROOT)),
    }
    Ok(lin.order)
}

/// Depth of a loop; `None` if loops are nested in each other in a cycle, which opts of a search can ask for.
fn depth_of(id: u8, loops: &FxHashMap<u8, LoopInfo>, depth: &mut FxHashMap<u8, u32>) -> Option<u32> {
    if let Some(&d) = depth.get(&id) {
        return (d != OPEN).then_some(d);
    }
    let Some(info) = loops.get(&id) else { return Some(0) };
    depth.insert(id, OPEN);
    let mut d = info.parent.map_or(Some(0), |p| depth_of(p, loops, depth))?;
    for other in 0..MAX_RANGES as u8 {
        if info.around >> other & 1 == 1 {
            d = d.max(depth_of(other, loops, depth)?);
        }
    }
    depth.insert(id, d + 1);
    Some(d + 1)
}

impl Lin<'_> {
    fn deepest(&self, set: RangeSet) -> usize {
        let ids = self.depth.iter().filter(|(id, _)| set >> **id & 1 == 1);
        ids.max_by_key(|(id, d)| (**d, **id)).map_or(ROOT, |(id, _)| *id as usize)
    }

    fn analyse(&mut self) {
        let mut seen: FxHashMap<RangeSet, usize> = FxHashMap::default();
        for i in 0..self.level.len() {
            let u = UOp(i as u32);
            let set = self.g.ranges(u);
            self.level[i] = match seen.get(&set) {
                Some(&l) => l,
                None => {
                    let l = self.deepest(set);
                    seen.insert(set, l);
                    l
                }
            };
            let level = self.level[i];
            self.has_end[i] = self.g.op(u) == Op::End
                || self.g.src(u).iter().any(|s| self.has_end[s.0 as usize] && self.level[s.0 as usize] == level);
        }
    }

    /// Emits `root` and the sources that it needs, all at level `here`; everything at outer levels has been emitted
    /// before.
    fn emit(&mut self, root: UOp, here: usize) {
        let mut stack: Vec<(UOp, bool)> = vec![(root, false)];
        while let Some((u, ready)) = stack.pop() {
            let i = u.0 as usize;
            if self.emitted[i] {
                continue;
            }
            let op = self.g.op(u);
            if op == Op::End && self.closes_loop(u) {
                let range = self.g.src_at(u, 0);
                let body = self.g.srcs(u);
                self.open(range, &body[1..], here, Some(u));
                continue;
            }
            if ready {
                self.emitted[i] = true;
                if !self.silent(u) {
                    self.order.push(u);
                }
                continue;
            }
            stack.push((u, true));
            let mut src = self.g.srcs(u);
            // the stack pops the last one first: sources that contain a loop are pushed last, so that they are emitted
            // first
            src.reverse();
            sort::by_key(&mut src, |s| self.has_end[s.0 as usize] && self.level[s.0 as usize] == here);
            for s in src {
                if !self.emitted[s.0 as usize] {
                    stack.push((s, false));
                }
            }
        }
    }

    fn closes_loop(&self, end: UOp) -> bool {
        self.g.kind(self.g.src_at(end, 0)).is_loop()
    }

    /// Emits a loop: first everything outside the loop that its body needs, then the range, the body and the End.
    fn open(&mut self, range: UOp, body: &[UOp], here: usize, end: Option<UOp>) {
        let inner = self.g.range_arg(range).id as usize;
        for u in self.needed_outside(body, here) {
            self.emit(u, here);
        }
        self.emitted[range.0 as usize] = true;
        self.order.push(range);
        for &u in body {
            self.emit(u, inner);
        }
        if let Some(end) = end {
            self.emitted[end.0 as usize] = true;
            self.order.push(end);
        }
    }

    /// The nodes at level `here` or outside it that the body's deeper nodes use directly: those that contain a loop
    /// first, then by index.
    fn needed_outside(&self, body: &[UOp], here: usize) -> Vec<UOp> {
        let here_depth = if here == ROOT { 0 } else { self.depth[&(here as u8)] };
        let depth = |u: UOp| match self.level[u.0 as usize] {
            ROOT => 0,
            l => self.depth[&(l as u8)],
        };
        let mut out = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        let mut stack: Vec<UOp> = body.to_vec();
        while let Some(u) = stack.pop() {
            if self.emitted[u.0 as usize] || !seen.insert(u) {
                continue;
            }
            if depth(u) <= here_depth {
                out.push(u);
            } else {
                stack.extend_from_slice(self.g.src(u));
            }
        }
        out.retain(|&u| !(self.g.op(u) == Op::Range && self.g.kind(u).is_loop()));
        sort::by_key(&mut out, |u| (!self.has_end[u.0 as usize], *u));
        out
    }

    /// Nodes that need no position in the order.
    fn silent(&self, u: UOp) -> bool {
        matches!(self.g.op(u), Op::Const | Op::Param | Op::Sink | Op::Range)
    }
}
