//! Fuses kernels into kernels with several results (horizontal fusion). Elementwise kernels over the same loops become
//! one where they share what they read, or where one reads what the other writes at the same index. An optimiser's step
//! becomes one kernel per parameter this way.
//!
//! A kernel that copies the result of any other kernel becomes a second Store of that kernel. In this way a part of a
//! join ([`super::join`]) that has other users is stored in both buffers at once.

use super::order::{Pending, edges};
use super::{Ast, Kernel};
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::util::sort;
use crate::util::sorted::SortedSet;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The number of earlier kernels over the same loops with which each kernel is compared.
const LOOK_BACK: usize = 4;
/// A kernel of more nodes than this is not fused.
const MAX_NODES: usize = 400;

/// Fuses groups of kernels; the others stay as they are.
pub fn merge(mut pending: Vec<Pending>, t: &Target) -> Vec<Pending> {
    let then = edges(&pending);
    // for each kernel the group it belongs to; a group has the number of its first kernel
    let mut group: Vec<usize> = (0..pending.len()).collect();
    let mut members: Vec<Vec<usize>> = (0..pending.len()).map(|i| vec![i]).collect();
    let mut by_loops: FxHashMap<Vec<usize>, Vec<usize>> = FxHashMap::default();
    // for each buffer the kernel that stores it, if that is not elementwise
    let buffers = pending.iter().flat_map(|p| p.kernel.args.iter()).max().map_or(0, |b| b + 1);
    let mut sums: Vec<Option<usize>> = vec![None; buffers];
    let mut waits = vec![0usize; pending.len()];
    then.iter().flatten().for_each(|&i| waits[i] += 1);
    for i in 0..pending.len() {
        let Some(loops) = elementwise(&pending[i].kernel.ast) else {
            pending[i].writes.iter().filter(|w| w.1 == 0).for_each(|w| sums[w.0] = Some(i));
            continue;
        };
        // the kernel depends on nothing but the buffer that it copies
        if waits[i] == 1
            && let Some(a) = copied(&pending[i]).and_then(|from| *sums.get(from)?)
            && results(&pending[a].kernel.ast).as_ref() == Some(&loops)
            && let Some(p) = joined(&pending[a], &pending[i], t)
        {
            pending[a] = p;
            group[i] = a;
            members[a].push(i);
            members[i].clear();
            continue;
        }
        let list = by_loops.entry(loops).or_default();
        let found = list.iter().rev().take(LOOK_BACK).copied().find_map(|a| {
            let deps = GroupDeps { then: &then, group: &group, members: &members };
            if !related(&pending[a], &pending[i]) || deps.reaches(i, a, false) || deps.reaches(a, i, true) {
                return None;
            }
            joined(&pending[a], &pending[i], t).map(|p| (a, p))
        });
        match found {
            Some((a, p)) => {
                pending[a] = p;
                group[i] = a;
                members[a].push(i);
                members[i].clear();
            }
            None => list.push(i),
        }
    }
    pending.into_iter().enumerate().filter(|(i, _)| group[*i] == *i).map(|(_, p)| p).collect()
}

/// The lengths of the loops of an elementwise kernel, outermost first. `None` if the kernel reduces, computes the
/// address of its store from loaded values, runs a loop in order, or is too large.
pub(super) fn elementwise(ast: &Ast) -> Option<Vec<usize>> {
    let g = &ast.g;
    let indirect = |u: UOp| g.reachable(&[g.src_at(u, 0)]).iter().any(|&x| g.op(x) == Op::Load);
    let ordered = |u: UOp| match g.op(u) {
        Op::Range => g.kind(u) == AxisKind::Walk,
        Op::Store => indirect(u),
        op => matches!(op, Op::Reduce | Op::Custom),
    };
    if g.len() > MAX_NODES || g.iter().any(ordered) {
        return None;
    }
    let mut loops: Vec<(u8, usize)> =
        g.iter().filter(|&u| g.op(u) == Op::Range).map(|u| (g.range_arg(u).id, g.range_len(u))).collect();
    sort::ascending(&mut loops);
    // a loop on which nothing depends is simplified away and leaves a gap in the numbering; kernels are fused loop by
    // loop by their numbers, so there may be no gap
    let numbered = loops.iter().enumerate().all(|(i, l)| i == l.0 as usize);
    numbered.then(|| loops.into_iter().map(|l| l.1).collect())
}

/// The buffer that a kernel copies whole and in order, if that buffer is stored only once.
fn copied(p: &Pending) -> Option<usize> {
    let g = &p.kernel.ast.g;
    let (&[store], &[from]) = (g.src(p.kernel.ast.sink), &p.reads[..]) else { return None };
    let plain = |u: UOp, n: usize| g.src(u).len() == n;
    let value = (g.op(store) == Op::Store && plain(store, 2)).then(|| g.src_at(store, 1))?;
    (g.op(value) == Op::Load && plain(value, 1) && from.1 == 0).then_some(from.0)
}

/// The lengths of the output loops of a kernel that has only plain reductions besides, if these loops have the lowest
/// numbers.
fn results(ast: &Ast) -> Option<Vec<usize>> {
    let g = &ast.g;
    let is_plain = |u: UOp| !matches!(g.op(u), Op::Custom | Op::Stage | Op::Scratch | Op::Barrier);
    let mut ranges: Vec<UOp> = g.iter().filter(|&u| g.op(u) == Op::Range).collect();
    sort::by_key(&mut ranges, |&r| g.range_arg(r).id);
    let n = ranges.iter().take_while(|&&r| g.kind(r) == AxisKind::Loop).count();
    let (own, rest) = ranges.split_at(n);
    let first = own.iter().enumerate().all(|(i, &r)| i == g.range_arg(r).id as usize);
    let plain = first && rest.iter().all(|&r| g.kind(r) == AxisKind::Reduce) && g.iter().all(is_plain);
    plain.then(|| own.iter().map(|&r| g.range_len(r)).collect())
}

/// Do two kernels read the same buffer, or does `b` read what `a` writes?
fn related(a: &Pending, b: &Pending) -> bool {
    b.reads.iter().any(|r| a.writes.contains(r) || a.reads.contains(r))
}

/// Dependencies between groups of fused kernels.
pub(super) struct GroupDeps<'a> {
    pub(super) then: &'a [SortedSet<usize>],
    pub(super) group: &'a [usize],
    pub(super) members: &'a [Vec<usize>],
}

impl GroupDeps<'_> {
    /// Must group `to` run after group `from`? With `around`, only paths through other groups count.
    pub(super) fn reaches(&self, from: usize, to: usize, around: bool) -> bool {
        let mut seen = FxHashSet::default();
        let mut stack = vec![(from, true)];
        while let Some((x, first)) = stack.pop() {
            for &j in self.members[x].iter().flat_map(|m| &self.then[*m]) {
                let y = self.group[j];
                if y == to && !(first && around) {
                    return true;
                }
                if y != to && y != from && seen.insert(y) {
                    stack.push((y, false));
                }
            }
        }
        false
    }
}

/// Fuses two kernels. `None` if one reads what the other writes at another index, or if there are too many buffers.
pub(super) fn joined(a: &Pending, b: &Pending, t: &Target) -> Option<Pending> {
    let written = |p: &Pending| p.writes.iter().map(|s| s.0).collect::<Vec<_>>();
    let (wa, wb) = (written(a), written(b));
    if wa.iter().any(|x| wb.contains(x)) {
        return None;
    }
    // results first, then the buffers that are only read
    let mut args: Vec<usize> = wa.iter().chain(&wb).copied().collect();
    for x in a.kernel.args.iter().chain(&b.kernel.args) {
        if !args.contains(x) {
            args.push(*x);
        }
    }
    if args.len() > t.limits.max_buffers {
        return None;
    }
    let mut g = Graph::new();
    let mut bring = |p: &Pending| -> UOp {
        let from = &p.kernel.ast.g;
        g.import(from, &[p.kernel.ast.sink], |g, u| match from.arg(u) {
            Arg::Param { slot, len } => {
                let at = args.iter().position(|x| *x == p.kernel.args[*slot as usize])?;
                Some(g.param(at as u32, from.dtype(u), *len))
            }
            _ => None,
        })[0]
    };
    let (sa, sb) = (bring(a), bring(b));
    let stores: Vec<UOp> = g.srcs(sa).into_iter().collect();
    // loads by `b` of results of `a` are replaced by the values themselves
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in g.reachable(&[sb]) {
        let src: SmallVec<[UOp; 4]> = g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
        let mut v = g.with_src(u, &src);
        if g.op(v) == Op::Load
            && let Some(slot) = slot(&g, v).filter(|s| *s < wa.len())
        {
            let store = stores.iter().copied().find(|&s| self::slot(&g, s) == Some(slot))?;
            let same = g.src_at(store, 0) == g.src_at(v, 0) && g.src(store).len() == 2 && g.src(v).len() == 1;
            v = if same { g.src_at(store, 1) } else { return None };
        }
        image.insert(u, v);
    }
    let mut all = stores;
    let last = g.srcs(image[&sb]);
    // `a` may read a buffer that `b` overwrites only at the same index
    let own = g.reachable(&[sa]);
    for u in own.into_iter().filter(|&u| g.op(u) == Op::Load) {
        let over = last.iter().copied().find(|&s| slot(&g, s) == slot(&g, u));
        if over.is_some_and(|s| g.src_at(s, 0) != g.src_at(u, 0)) {
            return None;
        }
    }
    all.extend(last);
    let sink = g.sink(&all);
    let mut clean = Graph::new();
    let sink = clean.import(&g, &[sink], |_, _| None)[0];
    let mut reads = a.reads.clone();
    reads.extend(b.reads.iter().filter(|r| !a.reads.contains(r) && !a.writes.contains(r)));
    let writes = a.writes.iter().chain(&b.writes).copied().collect();
    // a buffer that is no longer read has lost its parameter
    let used: FxHashSet<usize> = clean.iter().filter_map(|u| param(&clean, u)).collect();
    if used.len() != args.len() {
        return renumbered(a.node, clean, sink, args, &used, reads, writes);
    }
    Some(Pending {
        node: a.node,
        kernel: Kernel { ast: Ast::new(clean, sink), args, scalars: Vec::new() },
        reads,
        writes,
    })
}

/// The fused kernel with its parameter slots renumbered, so that they have no gaps.
fn renumbered(
    node: UOp,
    g: Graph,
    sink: UOp,
    args: Vec<usize>,
    used: &FxHashSet<usize>,
    reads: Vec<(usize, u32)>,
    writes: SmallVec<[(usize, u32); 1]>,
) -> Option<Pending> {
    let kept: Vec<usize> = (0..args.len()).filter(|i| used.contains(i)).collect();
    let mut out = Graph::new();
    let sink = out.import(&g, &[sink], |out, u| match g.arg(u) {
        Arg::Param { slot, len } => {
            let at = kept.iter().position(|k| *k == *slot as usize)?;
            Some(out.param(at as u32, g.dtype(u), *len))
        }
        _ => None,
    })[0];
    let args = kept.into_iter().map(|i| args[i]).collect();
    Some(Pending { node, kernel: Kernel { ast: Ast::new(out, sink), args, scalars: Vec::new() }, reads, writes })
}

fn param(g: &Graph, u: UOp) -> Option<usize> {
    match g.arg(u) {
        Arg::Param { slot, .. } if g.op(u) == Op::Param => Some(*slot as usize),
        _ => None,
    }
}

/// The slot that a Load or Store addresses.
fn slot(g: &Graph, u: UOp) -> Option<usize> {
    param(g, g.src_at(g.src_at(u, 0), 0))
}
