//! Chooses the nodes that are materialised, called *cuts*: their values are stored in buffers, and a kernel ends there.
//! All other nodes are computed in the kernels of their users. In: the tensor graph and the target. Out: [`Cuts`].
//!
//! 1. Backward, consumers first: each node collects the *contexts* in which it is used. A context is the cut that owns
//!    the kernel and a number for the path of index arithmetic that leads from there to the node. A compute node that is
//!    used in two contexts, or below an expansion, becomes a candidate for a cut.
//! 2. Forward: a candidate that holds no reduction is recomputed in its users instead of stored if that is cheaper
//!    ([`super::cost`]). A kernel keeps one reduction (where operands of a node each hold one, only the largest stays
//!    and the others are cut) and reads at most as many buffers as the target allows.
//! 3. Reductions whose results are read back over the rows that they reduced (softmax, norms) are fused into their
//!    reader's kernel after all ([`super::rows`]).

use super::Buffers;
use super::cost::{Costs, Value};
use super::rows::Rows;
use super::{attention, chain};
use crate::DType;
use crate::analysis::work::work;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, ReduceOp, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The most reshapes and gathers that may lie between a kernel's result and memory, as each substitutes its index
/// expressions into those of the next one. The number of nodes grows with the square of the chain's length, and the
/// time to simplify them faster still; 16 steps give some 200 nodes.
const MOST_STEPS: u32 = 16;
/// The most operations of a mask that is recomputed wherever it is read: two comparisons with the ends of a window, and
/// the index arithmetic that computes the compared positions.
const MASK_OPS: u32 = 32;
/// Buffers of at most this many elements are taken for the lengths of sequences when a mask reads them.
const MOST_LENGTHS: u64 = 64;
/// A sum over the results of another sum is fused with it into one reduction while the outer one has at most this many
/// terms per result. Beyond that the inner sum is materialised.
const MAX_FUSED_OUTER_TERMS: u64 = 32;

/// The nodes that are materialised, and which of them are special kernels.
#[derive(Default)]
pub struct Cuts {
    cut: Vec<bool>,
    forced: Vec<bool>,
    /// The row kernels, by the node they compute.
    pub rows: FxHashMap<UOp, Rows>,
    /// The keys of `rows` whose kernels are attention.
    pub attention: FxHashSet<UOp>,
}

impl Cuts {
    /// No cuts, for a graph that is lowered into one kernel.
    pub(super) fn none(g: &Graph) -> Cuts {
        let none = vec![false; g.len()];
        Cuts { cut: none.clone(), forced: none, rows: FxHashMap::default(), attention: FxHashSet::default() }
    }

    /// Is the node materialised?
    pub fn is_cut(&self, u: UOp) -> bool {
        self.cut[u.0 as usize]
    }

    /// Is the node materialised, now that cuts may have been chosen?
    pub(super) fn is_stored(&self, u: UOp) -> bool {
        self.cut.get(u.0 as usize) == Some(&true)
    }

    /// Must the node be materialised, whatever it costs?
    pub fn is_forced(&self, u: UOp) -> bool {
        self.forced[u.0 as usize]
    }

    /// Sets whether the node is materialised or computed in its users' kernels.
    pub fn set(&mut self, u: UOp, cut: bool) {
        self.cut[u.0 as usize] = cut;
    }

    /// The buffer that holds a root.
    pub fn buffer_of(&self, g: &Graph, root: UOp, buffers: &Buffers) -> usize {
        let u = buffer_node(g, root);
        buffers.of[&u]
    }
}

/// The node whose buffer holds exactly the elements of `u`: looks through assigns (`After`) and through reshapes of
/// whole buffers.
pub fn buffer_node(g: &Graph, mut u: UOp) -> UOp {
    loop {
        match g.op(u) {
            Op::After => u = g.src_at(u, 0),
            Op::Reshape if is_whole_buffer(g, u) => u = g.src_at(u, 0),
            _ => return u,
        }
    }
}

/// Is `u` a whole buffer, up to reshape?
pub fn is_whole_buffer(g: &Graph, mut u: UOp) -> bool {
    while matches!(g.op(u), Op::Reshape | Op::After) {
        u = g.src_at(u, 0);
    }
    g.op(u) == Op::Param
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Use {
    owner: u32,
    path: u32,
    flags: u8,
    /// Number of elements of the node that this use reads in all, counted as [`Value::wanted`] is.
    wanted: u64,
    /// For a factor of a contraction: how many results at one position share each of its elements (in a convolution,
    /// the output channels); else 0.
    results: u64,
}

/// The uses of a node, summed up over all its contexts.
#[derive(Clone, Copy, Default)]
struct Wanted {
    flags: u8,
    contexts: usize,
    elements: u64,
    /// The largest [`Use::results`].
    results: u64,
}

/// Flag of a use: read through an expanded axis, so that each element is read several times.
const EXPANDED: u8 = 1;
/// Flag of a use: read inside a reduction.
const REDUCED: u8 = 2;
/// Flag of a use: expanded inside a reduction, as the operand of a contraction is.
const OPERAND: u8 = 4;
/// Flag of a use: read through padding.
const PADDED: u8 = 8;
/// Flag of a use: read by a product that a reduction reads.
const FACTOR: u8 = 16;
/// Flag of a use: read with its axes in another order than the loops of the reader (through a permute).
const PERMUTED: u8 = 32;

/// Flag of a node: read in several contexts.
const SHARED: u8 = 64;

/// Chooses the cuts for computing `roots`, deciding on each node by itself. The values of the Stores in `cyclic_assigns`
/// are materialised before anything is stored. After this the caller runs [`super::rows::merge`] and then
/// [`fuse_across_cuts`].
pub(super) fn choose_cuts(g: &Graph, roots: &[UOp], cyclic_assigns: &[UOp], t: &Target) -> Cuts {
    let nodes = g.reachable(roots);
    let mut forced = forced_cuts(g, roots, &nodes);
    cyclic_assigns.iter().for_each(|&u| forced[g.src_at(u, 1).0 as usize] = true);
    let (mut cut, wanted) = candidates(g, &nodes, &forced, t);
    decide_candidates(g, &nodes, &forced, &mut cut, &wanted, t);
    Cuts { cut, forced, rows: FxHashMap::default(), attention: FxHashSet::default() }
}

/// Fuses kernels that [`choose_cuts`] has separated: chains, and on GPUs attention. The nodes in `not_attention` look
/// like the ends of attention but were found not to be, and stay separate.
pub(super) fn fuse_across_cuts(g: &Graph, roots: &[UOp], not_attention: &[UOp], cuts: &mut Cuts, t: &Target) {
    let nodes = g.reachable(roots);
    chain::merge(g, roots, &nodes, cuts, t);
    if t.caps.has_local {
        attention::merge(g, &nodes, not_attention, cuts, t);
    }
}

fn is_compute(op: Op) -> bool {
    op.is_alu() || matches!(op, Op::Reduce | Op::Gather | Op::Scatter | Op::Scan | Op::Recurrence | Op::Contiguous)
}

fn forced_cuts(g: &Graph, roots: &[UOp], nodes: &[UOp]) -> Vec<bool> {
    let mut forced = vec![false; g.len()];
    for &u in roots {
        if !is_whole_buffer(g, u) && g.op(u) != Op::Store {
            forced[u.0 as usize] = true;
        }
    }
    for &u in nodes {
        match g.op(u) {
            Op::Contiguous => {
                forced[u.0 as usize] = true;
                // dependencies have to be complete before this kernel runs; where the marker has an argument, its other
                // sources are not dependencies but the ends of its axes (scalars)
                let waits = if *g.arg(u) == Arg::None { &g.src(u)[1..] } else { &[] };
                for b in waits.iter().map(|&s| base(g, s)).filter(|&b| is_compute(g.op(b))) {
                    forced[b.0 as usize] = true;
                }
            }
            Op::Scatter | Op::Scan | Op::Recurrence => forced[u.0 as usize] = true,
            Op::Store | Op::Custom => forced[u.0 as usize] = true,
            _ => {}
        }
    }
    let read = first_reads(g, nodes);
    for &u in nodes.iter().filter(|&&u| g.op(u) == Op::Store) {
        let (target, value) = (g.src_at(u, 0), g.src_at(u, 1));
        let first = read[buffer_node(g, stored_to(g, target)).0 as usize];
        // an in-place store that reads its target at other positions: the value must be complete before the store
        // begins
        if first <= u.0 && reads_elsewhere(g, target, value) {
            forced[value.0 as usize] = true;
        }
    }
    forced
}

/// For each storage node the first node that reads it other than as the target of a Store, or `u32::MAX` if none does.
/// The value of a Store with a lower index than that node cannot read the storage, which saves [`reads_elsewhere`] a
/// search through everything the value is computed from.
fn first_reads(g: &Graph, nodes: &[UOp]) -> Vec<u32> {
    let mut targets = vec![false; g.len()];
    let mut read = vec![u32::MAX; g.len()];
    for &u in nodes.iter().filter(|&&u| g.op(u) == Op::Store) {
        let mut at = g.src_at(u, 0);
        while !std::mem::replace(&mut targets[at.0 as usize], true)
            && (g.op(at).is_movement() || g.op(at) == Op::Gather)
        {
            at = g.src_at(at, 0);
        }
    }
    for &u in nodes.iter().rev().filter(|u| !targets[u.0 as usize]) {
        // the target of a Store and the first source of an After are not read
        let read_from = usize::from(matches!(g.op(u), Op::Store | Op::After));
        for &s in &g.src(u)[read_from..] {
            read[buffer_node(g, stored_to(g, s)).0 as usize] = u.0;
        }
    }
    read
}

/// Does `value` read the storage of `target` at other positions than the one it is stored to?
fn reads_elsewhere(g: &Graph, target: UOp, value: UOp) -> bool {
    let base = stored_to(g, target);
    // elementwise use of the very same view is safe; any other path to the storage is not
    let mut stack = vec![(value, false)];
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some((u, moved)) = stack.pop() {
        if (u == target && !moved) || g.op(u) == Op::Contiguous || !seen.insert((u, moved)) {
            continue;
        }
        if buffer_node(g, u) == buffer_node(g, base) {
            return true;
        }
        let moves = g.op(u).is_movement()
            || matches!(g.op(u), Op::Reduce | Op::Gather | Op::Scatter | Op::Scan | Op::Recurrence);
        stack.extend(g.src(u).iter().map(|&s| (s, moved || moves)));
    }
    false
}

fn candidates(g: &Graph, nodes: &[UOp], forced: &[bool], t: &Target) -> (Vec<bool>, Vec<Wanted>) {
    let n = g.len();
    let mut has_reduce = vec![false; n];
    for &u in nodes {
        has_reduce[u.0 as usize] = g.op(u) == Op::Reduce || g.src(u).iter().any(|s| has_reduce[s.0 as usize]);
    }
    let users = only_users(g, nodes);
    let mut uses: Vec<SmallVec<[Use; 2]>> = vec![SmallVec::new(); n];
    let mut cut = vec![false; n];
    let mut wanted = vec![Wanted::default(); n];
    let mut paths: FxHashMap<(u32, u32, u32), u32> = FxHashMap::default();
    for &u in nodes.iter().rev() {
        let i = u.0 as usize;
        let all = uses[i].iter().fold(0, |m, x| m | x.flags);
        let mut seen: SmallVec<[Use; 4]> = SmallVec::new();
        for x in &uses[i] {
            if !seen.iter().any(|s| (s.owner, s.path) == (x.owner, x.path)) {
                seen.push(*x);
            }
        }
        let contexts = seen.len();
        let elements = seen.iter().fold(0u64, |n, x| n.saturating_add(x.wanted));
        let results = seen.iter().map(|x| x.results).max().unwrap_or(0);
        wanted[i] = Wanted { flags: all | if contexts > 1 { SHARED } else { 0 }, contexts, elements, results };
        let reduced = has_reduce[i] && all & (REDUCED | PADDED) != 0 && outer_sum(g, u, &users).is_none();
        let splits = contexts > 1 || all & EXPANDED != 0 || reduced;
        // matrix tiles multiply 16-bit factors, so the narrow value is what should be stored, not its f32 cast
        let half = widens(g, u, DType::F16) || widens(g, u, DType::BF16);
        let factor = t.has_tiles() && half;
        cut[i] = forced[i] || (is_compute(g.op(u)) && splits && !factor);
        let below: SmallVec<[Use; 2]> = match (cut[i], g.op(u)) {
            (_, Op::Sink | Op::After) => SmallVec::new(),
            (true, op) => {
                // a product under a reduction is likely to be fused into the reduction's kernel
                let product = op == Op::Mul && !forced[i] && all & REDUCED != 0;
                let flags = if product { FACTOR } else { 0 };
                SmallVec::from_elem(Use { owner: u.0, path: 0, flags, wanted: g.numel(u), results: 0 }, 1)
            }
            _ => std::mem::take(&mut uses[i]),
        };
        for x in below {
            let ends = g.op(u) == Op::Contiguous && *g.arg(u) != Arg::None;
            for (k, &s) in g.src(u).iter().enumerate().take(if ends { 1 } else { usize::MAX }) {
                let down = step(g, u, k, s, x, &mut paths);
                let list = &mut uses[s.0 as usize];
                if !list.contains(&down) && list.len() < 16 {
                    list.push(down);
                }
            }
        }
    }
    (cut, wanted)
}

/// Is `u` a cast of a 16-bit float of this dtype to f32?
fn widens(g: &Graph, u: UOp, half: DType) -> bool {
    g.op(u) == Op::Cast && g.dtype(u) == DType::F32 && g.dtype(g.src_at(u, 0)) == half
}

/// The user of each node that has just one.
fn only_users(g: &Graph, nodes: &[UOp]) -> Vec<Option<UOp>> {
    let mut users = vec![None; g.len()];
    let mut several = vec![false; g.len()];
    for &u in nodes {
        for s in g.src(u) {
            let i = s.0 as usize;
            several[i] |= users[i].replace(u).is_some();
        }
    }
    users.iter_mut().zip(several).filter(|x| x.1).for_each(|x| *x.0 = None);
    users
}

/// The outer sum, if `u` is a sum whose only user is, through movement ops that repeat nothing, a sum of at most
/// [`MAX_FUSED_OUTER_TERMS`] terms: the two are one sum over the axes of both. The gradient of a convolution has this
/// form; as two kernels it would store every product of a window.
fn outer_sum(g: &Graph, u: UOp, users: &[Option<UOp>]) -> Option<UOp> {
    let sum = |u: UOp| matches!(g.arg(u), Arg::Reduce(ReduceOp::Add, _)) && g.op(u) == Op::Reduce;
    let mut above = users[u.0 as usize].filter(|_| sum(u))?;
    while g.op(above).is_movement() {
        if g.op(above) == Op::Expand && g.numel(above) > g.numel(g.src_at(above, 0)) {
            return None;
        }
        above = users[above.0 as usize]?;
    }
    let whole = g.numel(g.src_at(above, 0));
    let short = whole <= MAX_FUSED_OUTER_TERMS * g.numel(above);
    // padding between the two sums is computed as well, so it may at most double the work
    (sum(above) && short && whole <= 2 * g.numel(u)).then_some(above)
}

/// How a use of `u` becomes a use of its source `s`.
fn step(g: &Graph, u: UOp, k: usize, s: UOp, x: Use, paths: &mut FxHashMap<(u32, u32, u32), u32>) -> Use {
    let mut flags = x.flags;
    let grows = g.numel(s) < g.numel(u);
    let expand = |f: u8| f | EXPANDED | if f & (REDUCED | FACTOR) != 0 { OPERAND } else { 0 };
    let mut wanted = x.wanted;
    let moved = match g.op(u) {
        Op::Expand => {
            if grows {
                flags = expand(flags);
                if flags & PERMUTED == 0 {
                    wanted /= repeats_inside(g, s, u);
                }
            }
            true
        }
        Op::Permute => {
            flags |= PERMUTED;
            true
        }
        Op::Pad => {
            flags |= PADDED;
            true
        }
        Op::Reduce => {
            flags |= REDUCED;
            wanted = wanted.saturating_mul((g.numel(s) / g.numel(u).max(1)).max(1));
            true
        }
        Op::Gather => {
            // a choice of no more elements than there are repeats few of them: what is chosen from is computed where it
            // is read, and the rest of it never
            if k == 0 && g.numel(u) > g.numel(s) {
                flags = expand(flags);
            }
            true
        }
        // the old values are stored by a kernel of their own; a scatter's loop over its updates, and the loop of a
        // scan, can hold no reduction
        Op::Scatter if k == 0 => true,
        Op::Scatter | Op::Scan => {
            flags |= REDUCED;
            true
        }
        // the initial states are stored by a kernel of their own
        Op::Recurrence => true,
        op if op.is_movement() => true,
        _ if g.shape(s).is_empty() && !g.shape(u).is_empty() => {
            if grows {
                flags = expand(flags);
                wanted = 1;
            }
            true
        }
        _ => false,
    };
    if !moved {
        let factor = g.op(u) == Op::Mul && flags & REDUCED != 0 && x.results == 0;
        return Use { flags, results: if factor { repeats(g, s) } else { x.results }, ..x };
    }
    let k = if matches!(g.op(u), Op::Scatter | Op::Scan) { k.min(1) } else { k };
    let next = paths.len() as u32 + 1;
    let path = *paths.entry((u.0, x.path, k as u32)).or_insert(next);
    Use { owner: x.owner, path, flags, wanted, ..x }
}

/// How many elements of `u` are copies of the same element, if `u` is an Expand; else 1.
fn repeats(g: &Graph, u: UOp) -> u64 {
    if g.op(u) == Op::Expand { g.numel(u) / g.numel(g.src_at(u, 0)).max(1) } else { 1 }
}

/// The number of times that the innermost loops on which `s` does not depend repeat it when it is expanded to `u`. Code
/// generation hoists the value out of these loops, so the repeats cost nothing.
fn repeats_inside(g: &Graph, s: UOp, u: UOp) -> u64 {
    let axes = g.shape(s).iter().zip(g.shape(u)).rev();
    axes.take_while(|(own, _)| **own == 1).map(|(_, all)| *all as u64).product::<u64>().max(1)
}

/// What fusing a node into its consumer's kernel adds to that kernel.
#[derive(Clone, Default)]
struct Inline {
    ops: u32,
    /// Reshapes and gathers on the longest path from the node down to memory (see [`MOST_STEPS`]).
    steps: u32,
    buffers: SmallVec<[u32; 8]>,
    reduces: SmallVec<[u32; 2]>,
}

impl Inline {
    fn join(&mut self, o: &Inline) {
        self.ops = self.ops.saturating_add(o.ops);
        self.steps = self.steps.max(o.steps);
        for b in &o.buffers {
            if !self.buffers.contains(b) {
                self.buffers.push(*b);
            }
        }
        for r in &o.reduces {
            if !self.reduces.contains(r) {
                self.reduces.push(*r);
            }
        }
    }
}

/// The most elements of a table that a GPU kernel recomputes rather than loads, if computing them needs no load.
const MAX_TABLE_ELEMS: u64 = 8;

fn decide_candidates(g: &Graph, nodes: &[UOp], forced: &[bool], cut: &mut [bool], wanted: &[Wanted], t: &Target) {
    let max_inputs = t.limits.max_buffers.saturating_sub(1).max(2);
    let costs = Costs::of(t);
    let mut info: Vec<Inline> = vec![Inline::default(); g.len()];
    let whole = |u: UOp| Inline { buffers: SmallVec::from_elem(u.0, 1), ..Inline::default() };
    for &u in nodes {
        let i = u.0 as usize;
        if matches!(g.op(u), Op::Param | Op::After) {
            info[i] = whole(buffer_node(g, u));
            continue;
        }
        let mut here = joined(g, u, &info);
        if g.op(u).is_alu() || g.op(u) == Op::Sink {
            while here.reduces.len() > 1 {
                let Some(s) = weakest_reduction(g, u, &info) else { break };
                cut_below(g, s, cut, &mut info);
                here = joined(g, u, &info);
            }
        }
        while here.buffers.len() > max_inputs {
            let widest = g.src(u).iter().map(|&s| base(g, s)).filter(|&b| is_compute(g.op(b)) && !cut[b.0 as usize]);
            let Some(b) = widest.max_by_key(|b| info[b.0 as usize].buffers.len()) else { break };
            if info[b.0 as usize].buffers.len() < 2 {
                break;
            }
            for s in g.srcs(u) {
                if base(g, s) == b {
                    cut_below(g, s, cut, &mut info);
                }
            }
            here = joined(g, u, &info);
        }
        let mut steps = steps(g, u, &info);
        while steps > MOST_STEPS && cut_deepest(g, u, cut, &mut info) {
            here = joined(g, u, &info);
            steps = self::steps(g, u, &info);
        }
        here.steps = steps;
        let converted = if widens(g, u, DType::F16) { t.machine.half_ops } else { 0 };
        here.ops = here.ops.saturating_add(work(g.op(u)).hidden + converted);
        if g.op(u) == Op::Reduce {
            // inner sums have been fused into this one
            here.reduces.clear();
            here.reduces.push(u.0);
        }
        if wanted[i].flags & OPERAND != 0 && here.reduces.is_empty() && is_border(g, u) {
            let Wanted { elements, results, .. } = wanted[i];
            cut[i] |= costs.store_padding(g.numel(u) * g.dtype(u).size() as u64, elements, results);
        } else if cut[i] && !forced[i] {
            // a node with one reader that reads each element once is never computed twice: it became a candidate
            // because of a reduction below it, which is a cut of its own by now
            let once = wanted[i].flags & (EXPANDED | SHARED) == 0;
            // tables computed from positions, such as the shifts that unpack a word, become constants when their loop
            // is unrolled
            let table = t.caps.has_local && here.buffers.is_empty() && g.numel(u) <= MAX_TABLE_ELEMS;
            let stays =
                || once || table || is_place_mask(g, u, &here, t) || costs.recompute(&value(g, u, &here, &wanted[i]));
            if here.reduces.is_empty() && stays() {
                cut[i] = false;
            }
        }
        info[i] = if cut[i] { whole(u) } else { here };
    }
}

/// Is `u` a mask that compares positions with each other, with launch variables or with lengths in memory? A kernel that
/// computes such a mask itself can end its loops where the mask is false; loaded from a buffer it would be as opaque as
/// any other value.
fn is_place_mask(g: &Graph, u: UOp, here: &Inline, t: &Target) -> bool {
    let is_mask = g.dtype(u) == crate::DType::Bool && here.ops <= MASK_OPS;
    let has = |op: Op| g.reachable(&[u]).iter().any(|&x| g.op(x) == op);
    let lengths = |b: &u32| g.numel(UOp(*b)) <= MOST_LENGTHS;
    let ends_loops = !t.caps.has_local && here.buffers.iter().all(lengths);
    is_mask && (here.buffers.is_empty() && has(Op::Var) || ends_loops && has(Op::CmpLt))
}

/// Is `u` a float tensor with a border of zeros? Excluded are zeros between elements, as in a transposed convolution,
/// which are better left out of the sums, and zeros only at the end of an axis, which round strides up and are never
/// read.
fn is_border(g: &Graph, u: UOp) -> bool {
    let Arg::Pairs(pairs) = g.arg(u) else { return false };
    if g.op(u) != Op::Pad || !g.dtype(u).is_float() {
        return false;
    }
    let s = g.src_at(u, 0);
    let between = |(&n, &(before, after)): (&usize, &(usize, usize))| n == 1 && before + after > 0;
    let mut below = s;
    while g.op(below).is_movement() && g.op(below) != Op::Pad {
        below = g.src_at(below, 0);
    }
    let before = pairs.iter().any(|p| p.0 > 0);
    before && g.op(below) != Op::Pad && !g.shape(s).iter().zip(pairs).any(between)
}

/// The node in the form that [`Costs`] judges.
fn value(g: &Graph, u: UOp, here: &Inline, wanted: &Wanted) -> Value {
    // a bool is a byte in memory, but vector code converts it to a mask and back, which costs as much as a 4-byte load
    let size = if g.dtype(u) == crate::DType::Bool { 4 } else { g.dtype(u).size() };
    let len = g.numel(u);
    // only a view of a large buffer may be read
    let bytes = |b: &u32| g.numel(UOp(*b)).min(len) * g.dtype(UOp(*b)).size() as u64;
    Value {
        len,
        size,
        ops: here.ops,
        buffers: here.buffers.len(),
        read: here.buffers.iter().map(bytes).sum(),
        readers: wanted.contexts,
        wanted: wanted.elements,
        is_row_operand: wanted.flags & (SHARED | REDUCED | OPERAND) == SHARED | REDUCED,
        operand: wanted.flags & OPERAND != 0,
    }
}

fn joined(g: &Graph, u: UOp, info: &[Inline]) -> Inline {
    let mut here = Inline::default();
    let mut seen: SmallVec<[UOp; 4]> = SmallVec::new();
    for &s in g.src(u) {
        if !seen.contains(&s) {
            here.join(&info[s.0 as usize]);
            seen.push(s);
        }
    }
    here
}

/// The source of `u` whose reductions are the least work, if more than one source holds a reduction.
fn weakest_reduction(g: &Graph, u: UOp, info: &[Inline]) -> Option<UOp> {
    let work =
        |s: UOp| -> u64 { info[s.0 as usize].reduces.iter().map(|&r| g.numel(g.src_at(UOp(r), 0))).max().unwrap_or(0) };
    let with: SmallVec<[UOp; 4]> =
        g.src(u).iter().copied().filter(|s| !info[s.0 as usize].reduces.is_empty()).collect();
    with.iter().copied().filter(|&s| is_compute(g.op(base(g, s)))).min_by_key(|&s| (work(s), s))
}

fn cut_below(g: &Graph, s: UOp, cut: &mut [bool], info: &mut [Inline]) {
    let b = base(g, s);
    cut[b.0 as usize] = true;
    let mut v = s;
    loop {
        info[v.0 as usize] = Inline { buffers: SmallVec::from_elem(b.0, 1), ..Inline::default() };
        if v == b {
            return;
        }
        v = g.src_at(v, 0);
    }
}

/// Reshapes and gathers between a node and memory. Counted are reshapes that merge or split axes, and gathers, whose
/// index expression is part of the address of the other operand.
fn steps(g: &Graph, u: UOp, info: &[Inline]) -> u32 {
    let of = |s: &UOp| info[s.0 as usize].steps;
    match (g.op(u), g.src(u)) {
        (Op::Gather, [x, at]) => of(x) + of(at) + 2,
        (Op::Reshape, [x]) => {
            let long = |u: UOp| g.shape(u).iter().filter(|n| **n != 1).collect::<SmallVec<[_; 6]>>();
            of(x) + u32::from(long(*x) != long(u))
        }
        (_, src) => src.iter().map(of).max().unwrap_or(0),
    }
}

/// Materialises the source of `u` with the most steps between it and memory, or the node below its movement ops. False
/// if no source has any.
fn cut_deepest(g: &Graph, u: UOp, cut: &mut [bool], info: &mut [Inline]) -> bool {
    let Some(&s) = g.src(u).iter().max_by_key(|s| info[s.0 as usize].steps) else { return false };
    let b = base(g, s);
    let (above, below) = (info[s.0 as usize].steps, info[b.0 as usize].steps);
    if above == 0 {
        return false;
    }
    if is_compute(g.op(b)) && 2 * below >= above {
        cut_below(g, s, cut, info);
    } else {
        cut[s.0 as usize] = true;
        info[s.0 as usize] = Inline { buffers: SmallVec::from_elem(s.0, 1), ..Inline::default() };
    }
    true
}

/// The node below a chain of movement ops.
pub fn base(g: &Graph, mut u: UOp) -> UOp {
    while g.op(u).is_movement() {
        u = g.src_at(u, 0);
    }
    u
}

/// The node below the movement ops and gathers of a Store's target.
pub fn stored_to(g: &Graph, mut target: UOp) -> UOp {
    while g.op(target).is_movement() || g.op(target) == Op::Gather {
        target = g.src_at(target, 0);
    }
    target
}
