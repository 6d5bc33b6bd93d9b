//! Lowers each materialised node to a kernel graph: movement ops become index expressions. In: the tensor graph and its
//! cuts. Out: one kernel per cut (two for a Scatter, two or more for a Recurrence), not yet in order ([`Pending`]).
//!
//! A *request* asks for the value of one node at one tuple of indices, under a validity condition. Padding and gathers
//! add to this condition, and it ends up as the gate of loads. For example a request for `pad(x, 1)` at `i` becomes one
//! for `x` at `i - 1`, valid where `1 <= i < n + 1`.
//!
//! Requests are passed down from the cut to its sources, nodes with higher numbers first, so that all tuples at which a
//! node is needed are known before the node is visited. Values are then built in the opposite order. Nothing recurses
//! except the evaluation of gather indices.

mod kept;
pub(super) mod recurrence;
mod sums;
mod twins;
mod walk;

use super::collapse;
use super::fuse::{self, Cuts};
use super::order::{Pending, State};
use super::rows::{Part, Rows};
use super::{Ast, BufferInfo, Buffers, Kernel, Origin};
use crate::analysis::reshape::groups;
use crate::dtype::Scalar;
use crate::rewrite::Memo;
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Graph, Op, RangeArg, ReduceOp, UOp, graph::MAX_RANGES};
use crate::util::sorted::SortedSet;
use crate::util::{gather, sort};
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

type Tuple = SmallVec<[UOp; 6]>;

/// Lowers the cuts one by one in index order: one kernel for each, several for a Scatter with updates and for a
/// Recurrence, none for a cut without elements.
#[derive(Default)]
pub struct Lowering {
    cuts: std::vec::IntoIter<UOp>,
    outputs: FxHashSet<UOp>,
    versions: FxHashMap<UOp, u32>,
    twins: twins::Twins,
    out: Vec<Pending>,
}

impl Lowering {
    /// A lowering that has made no kernel yet.
    pub fn new(g: &Graph, roots: &[UOp], cuts: &Cuts) -> Lowering {
        let outputs = roots.iter().map(|&r| fuse::buffer_node(g, r)).collect();
        let mut list = g.reachable(roots);
        list.retain(|&u| cuts.is_cut(u));
        let versions = versions(g, roots, cuts);
        Lowering { cuts: list.into_iter(), outputs, versions, ..Lowering::default() }
    }

    /// The kernels made so far.
    pub fn kernels(&self) -> &[Pending] {
        &self.out
    }

    /// Hands over the kernels.
    pub fn take_kernels(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.out)
    }

    /// Lowers the next cut. False if there is none left.
    pub fn step(&mut self, g: &Graph, cuts: &Cuts, buffers: &mut Buffers, t: &Target) -> Result<bool> {
        let Some(u) = self.cuts.next() else { return Ok(false) };
        let target = match g.op(u) {
            Op::Store | Op::Custom => g.src_at(u, 0),
            _ => {
                let origin = if self.outputs.contains(&u) { Origin::Output } else { Origin::Temp };
                buffers.of.insert(u, buffers.list.len());
                let (dtype, bytes) = (g.dtype(u), g.numel(u).saturating_mul(g.dtype(u).size() as u64));
                if bytes > isize::MAX as u64 {
                    let what = format!("a result {dtype} {:?} would take {bytes} bytes of memory", g.shape(u));
                    return Err(Error::value("realize", what));
                }
                buffers.list.push(BufferInfo { dtype, len: g.memory_len(u), origin });
                u
            }
        };
        if g.numel(target) == 0 {
            return Ok(true);
        }
        let lower = || Lower::new(g, cuts, buffers, &self.versions, t);
        match g.op(u) {
            Op::Scan => self.out.push(lower().scan(u)?),
            Op::Custom => self.out.push(lower().custom(u)?),
            Op::Recurrence => {
                let Some(kernels) = super::recurrence::kernels() else {
                    return Err(Error::Internal("a recurrence that was not unrolled".into()));
                };
                self.out.extend(kernels(g, u, cuts, buffers, &self.versions, t)?);
            }
            Op::Scatter => {
                self.out.push(lower().kernel(u)?);
                if g.numel(g.src_at(u, 1)) > 0 {
                    self.out.push(lower().scatter(u)?);
                }
            }
            _ => {
                let kernel = || lower().kernel(u);
                self.out.push(self.twins.kernel((g, cuts, buffers, &self.versions), u, &self.out, kernel)?);
            }
        }
        Ok(true)
    }
}

/// For each node the version of its storage that it reads or makes: the number of stores into that storage so far.
fn versions(g: &Graph, roots: &[UOp], cuts: &Cuts) -> FxHashMap<UOp, u32> {
    let mut v: FxHashMap<UOp, u32> = FxHashMap::default();
    for u in g.reachable(roots) {
        let at = |s: UOp, v: &FxHashMap<UOp, u32>| v.get(&s).copied().unwrap_or(0);
        let version = match g.op(u) {
            Op::Store => at(fuse::stored_to(g, g.src_at(u, 0)), &v) + 1,
            // its outputs hold nothing before it runs
            Op::Custom => 1,
            Op::After => g.src(u).iter().map(|&s| at(s, &v)).max().unwrap_or(0),
            Op::Scatter => (g.numel(g.src_at(u, 1)) > 0) as u32,
            Op::Recurrence => super::recurrence::number_of_launches(g, u),
            // a movement op that is materialised has storage of its own
            op if op.is_movement() && !cuts.is_cut(u) => at(g.src_at(u, 0), &v),
            _ => 0,
        };
        v.insert(u, version);
    }
    v
}

struct Request {
    node: UOp,
    idx: Tuple,
    valid: Option<UOp>,
    srcs: SmallVec<[usize; 3]>,
    /// Of a Reduce the ranges it reduces over; of a Pad or Gather the condition that this node adds.
    extra: SmallVec<[UOp; 4]>,
    /// Does this request compute the local array of a kept value (see `kept`), rather than read it?
    fills: bool,
}

impl Request {
    fn new(node: UOp, idx: Tuple, valid: Option<UOp>) -> Request {
        Request { node, idx, valid, srcs: SmallVec::new(), extra: SmallVec::new(), fills: false }
    }
}

struct Lower<'a> {
    g: &'a Graph,
    cuts: &'a Cuts,
    buffers: &'a Buffers,
    versions: &'a FxHashMap<UOp, u32>,
    t: &'a Target,
    k: Graph,
    memo: Memo,
    args: Vec<usize>,
    reads: Vec<(usize, u32)>,
    n_ranges: usize,
    /// The plan of the kernel, if it is a row kernel.
    rows: Option<&'a Rows>,
    /// The parameters of the step, in the kernel of a recurrence.
    step: Option<recurrence::Step>,
    /// The local array (Stage) of each kept node.
    stages: FxHashMap<UOp, UOp>,
    values: FxHashMap<(UOp, Tuple, Option<UOp>), UOp>,
}

impl<'a> Lower<'a> {
    fn new(
        g: &'a Graph,
        cuts: &'a Cuts,
        buffers: &'a Buffers,
        versions: &'a FxHashMap<UOp, u32>,
        t: &'a Target,
    ) -> Self {
        Lower {
            g,
            cuts,
            buffers,
            versions,
            t,
            k: Graph::new(),
            memo: Memo::new(),
            args: Vec::new(),
            reads: Vec::new(),
            n_ranges: 0,
            rows: None,
            step: None,
            stages: FxHashMap::default(),
            values: FxHashMap::default(),
        }
    }

    fn kernel(mut self, u: UOp) -> Result<Pending> {
        let g = self.g;
        let (target, value) = match g.op(u) {
            Op::Store => (g.src_at(u, 0), g.src_at(u, 1)),
            Op::Contiguous | Op::Scatter => (u, g.src_at(u, 0)),
            _ => (u, u),
        };
        let shape = g.shape(target).clone();
        self.rows = self.cuts.rows.get(&u);
        let idx: Tuple = match self.rows {
            Some(rows) => self.row_index(shape.len(), &rows.loops)?,
            None => shape.iter().map(|&n| self.range(n, AxisKind::Loop)).collect::<Result<_>>()?,
        };
        let stored = if g.op(u) == Op::Store { fuse::buffer_node(g, fuse::stored_to(g, target)) } else { u };
        let buffer = self.buffers.of[&stored];
        let info = self.buffers.list[buffer];
        self.args.push(buffer);
        let ptr = self.k.param(0, self.t.stored_as(info.dtype)?, info.len);
        // the address of the store: the index passed down through the movement ops of the target view
        let (mut at, mut place, mut gate) = (target, idx.clone(), None);
        while g.op(u) == Op::Store && (g.op(at).is_movement() || g.op(at) == Op::Gather) {
            match (g.op(at), g.arg(at)) {
                (Op::Pad | Op::Expand, _) => {
                    return Err(Error::value("assign", "the target is not a view of one buffer"));
                }
                (Op::Gather, Arg::Axes(axes)) => {
                    let (axis, n) = (axes[0] as usize, g.shape(g.src_at(at, 0))[axes[0] as usize]);
                    let to = self.evaluate(g.src_at(at, 1), place.clone(), false)?;
                    let inside = self.inside(to, n as i64);
                    gate = self.both(gate, inside);
                    place[axis] = self.clamped(to, n.max(1));
                }
                _ => place = self.move_index(at, &place).0,
            }
            at = g.src_at(at, 0);
        }
        let at_shape = g.shape(at).clone();
        let offset = self.flat(&at_shape, &place);
        let is_whole = value == u; // the cut itself: look through the cut to its op
        let value = self.evaluate(value, idx, is_whole)?;
        if g.op(u) == Op::Contiguous && *g.arg(u) == Arg::None {
            self.wait_for(&g.src(u)[1..]);
        }
        let value = self.k.cast(value, self.t.stored_as(info.dtype)?);
        let index = self.k.index(ptr, offset);
        let store = match gate {
            None => self.k.store(index, value),
            Some(gate) => self.k.node(Op::Store, DType::Void, &[index, value, gate], Arg::None),
        };
        let version = if g.op(u) == Op::Store { self.versions[&u] } else { 0 };
        Ok(self.finished(u, store, (buffer, version)))
    }

    /// Simplifies the finished kernel and wraps it up; `written` is the buffer and version that it stores to.
    fn finished(mut self, node: UOp, store: UOp, written: State) -> Pending {
        let sink = self.k.sink(&[store]);
        let sink = simplify_with(&mut self.k, sink, &mut self.memo);
        // a fresh graph, whose numbering depends on structure alone and not on nodes that were tried on the way, with
        // parameters only for the buffers that are still used
        let used: Vec<u32> = self.slots_of(sink);
        let mut clean = Graph::new();
        let k = &self.k;
        let sink = clean.import(k, &[sink], |clean, u| match k.arg(u) {
            Arg::Param { slot, len } => {
                let at = used.iter().position(|s| s == slot).unwrap_or(0);
                Some(clean.param(at as u32, k.dtype(u), *len))
            }
            _ => None,
        })[0];
        self.args = used.iter().map(|&s| self.args[s as usize]).collect();
        Pending {
            node,
            kernel: Kernel { ast: Ast::new(clean, sink), args: self.args, scalars: Vec::new() },
            reads: self.reads,
            writes: SmallVec::from_elem(written, 1),
        }
    }

    /// A kernel that a user wrote, over the buffers of its sources.
    fn custom(mut self, u: UOp) -> Result<Pending> {
        let g = self.g;
        let Arg::Custom(c) = g.arg(u) else { return Err(Error::Internal("a custom kernel without code".into())) };
        let mut src: SmallVec<[UOp; 8]> = SmallVec::new();
        for (slot, &s) in (0u32..).zip(g.src(u)) {
            let buffer = self.buffers.of[&fuse::buffer_node(g, s)];
            let info = self.buffers.list[buffer];
            src.push(self.k.param(slot, self.t.stored_as(info.dtype)?, info.len));
            self.args.push(buffer);
        }
        self.wait_for(&g.src(u)[c.outputs..]);
        if let Some(ir) = &c.ir {
            let (store, written) = ((ir.copy_into)(ir, &mut self.k, &src), (self.args[0], self.versions[&u]));
            return Ok(self.finished(u, store, written));
        }
        let writes = self.args[..c.outputs].iter().map(|&b| (b, self.versions[&u])).collect();
        let op = self.k.node(Op::Custom, DType::Void, &src, g.arg(u).clone());
        let sink = self.k.sink(&vec![op; c.outputs]);
        let kernel = Kernel { ast: Ast::new(self.k, sink), args: self.args, scalars: Vec::new() };
        Ok(Pending { node: u, kernel, reads: self.reads, writes })
    }

    /// Makes the kernel depend on those that compute `deps`.
    fn wait_for(&mut self, deps: &[UOp]) {
        for b in deps.iter().map(|&d| fuse::base(self.g, d)) {
            if let Some(&buffer) = self.buffers.of.get(&fuse::buffer_node(self.g, b)) {
                self.reads.push((buffer, self.versions.get(&b).copied().unwrap_or(0)));
            }
        }
    }

    /// The slots of the parameters in use, ascending; slot 0 is always the target.
    fn slots_of(&self, sink: UOp) -> Vec<u32> {
        let slot = |u: &UOp| match self.k.arg(*u) {
            Arg::Param { slot, .. } => Some(*slot),
            _ => None,
        };
        let mut used: Vec<u32> = self.k.reachable(&[sink]).iter().filter_map(slot).collect();
        sort::ascending(&mut used);
        used
    }

    fn range(&mut self, len: usize, kind: AxisKind) -> Result<UOp> {
        if len == 1 {
            return Ok(self.k.idx(0));
        }
        if self.n_ranges == MAX_RANGES {
            return Err(Error::Unsupported {
                what: "a kernel with more than 128 axes".into(),
                context: "scheduler".into(),
            });
        }
        let id = self.n_ranges as u8;
        self.n_ranges += 1;
        Ok(self.k.range_with(len, RangeArg { id, kind, lane: false }))
    }

    /// The indices of a row kernel's result: each axis is the sum of its loops (parts) times their strides.
    fn row_index(&mut self, rank: usize, loops: &[Part]) -> Result<Tuple> {
        let mut idx: Tuple = SmallVec::from_elem(self.k.idx(0), rank);
        for p in loops {
            let r = self.range(p.len, AxisKind::Loop)?;
            let stride = self.k.idx(p.stride as i64);
            let step = self.mul_idx(r, stride);
            let sum = self.add_idx(idx[p.axis], step);
            idx[p.axis] = self.simp(sum);
        }
        Ok(idx)
    }

    fn simp(&mut self, u: UOp) -> UOp {
        simplify_with(&mut self.k, u, &mut self.memo)
    }

    /// The value of `root` at `idx`. With `open` the root is computed even if it is a cut, instead of loaded.
    fn evaluate(&mut self, root: UOp, idx: Tuple, open: bool) -> Result<UOp> {
        self.evaluate_under(root, idx, None, open)
    }

    fn evaluate_under(&mut self, root: UOp, idx: Tuple, valid: Option<UOp>, open: bool) -> Result<UOp> {
        let mut requests = vec![Request::new(root, idx, valid)];
        let mut known: FxHashMap<(UOp, Tuple, Option<UOp>), usize> = FxHashMap::default();
        // consumers first
        let mut pending: SortedSet<UOp> = gather([root]);
        let mut requested: FxHashMap<UOp, Vec<usize>> = FxHashMap::default();
        requested.insert(root, vec![0]);
        let mut done = Vec::new();
        while let Some(node) = pending.pop_last() {
            let mut ids = requested.remove(&node).unwrap_or_default();
            if self.kept(node).is_some() {
                done.append(&mut ids);
                if !self.stages.contains_key(&node) {
                    ids.push(requests.len());
                    requests.push(self.fill(&requests[done[done.len() - 1]])?);
                }
            }
            for r in ids {
                done.push(r);
                if self.is_leaf(node) && !(open && r == 0) {
                    continue;
                }
                for (src, idx, valid) in self.expand(&mut requests[r])? {
                    let key = (src, idx, valid);
                    let id = match known.get(&key) {
                        Some(&id) => id,
                        None => {
                            let id = requests.len();
                            requests.push(Request::new(src, key.1.clone(), valid));
                            known.insert(key, id);
                            pending.insert(src);
                            requested.entry(src).or_default().push(id);
                            id
                        }
                    };
                    requests[r].srcs.push(id);
                }
            }
        }
        let mut values = vec![UOp(u32::MAX); requests.len()];
        for r in done.into_iter().rev() {
            let req = &requests[r];
            if let (Some(row), false) = (self.kept(req.node), req.fills) {
                values[r] = self.read_kept(req, row);
                continue;
            }
            let key = (req.node, req.idx.clone(), req.valid);
            if let (Some(&v), true) = (self.values.get(&key), r != 0) {
                values[r] = v;
                continue;
            }
            let srcs: SmallVec<[UOp; 3]> = req.srcs.iter().map(|&s| values[s]).collect();
            let v = if self.is_leaf(req.node) && !(open && r == 0) {
                self.read(req.node, &req.idx, req.valid)
            } else {
                self.compute(req, &srcs)
            };
            if req.fills {
                self.store_kept(req, v);
                continue;
            }
            values[r] = v;
            self.values.insert(key, v);
        }
        Ok(values[0])
    }

    fn is_leaf(&self, u: UOp) -> bool {
        matches!(self.g.op(u), Op::Param | Op::After | Op::Const | Op::Var | Op::Iota) || self.cuts.is_cut(u)
    }

    /// The requests that a request makes of its node's sources.
    fn expand(&mut self, r: &mut Request) -> Result<SmallVec<[(UOp, Tuple, Option<UOp>); 3]>> {
        let (g, u) = (self.g, r.node);
        let src = g.src(u);
        let mut out: SmallVec<[(UOp, Tuple, Option<UOp>); 3]> = SmallVec::new();
        match (g.op(u), g.arg(u)) {
            (Op::Reduce, Arg::Reduce(_, axes)) => {
                let mut idx = r.idx.clone();
                for &a in axes {
                    let n = g.shape(src[0])[a as usize];
                    idx[a as usize] = self.range(n, AxisKind::Reduce)?;
                    if n > 1 {
                        r.extra.push(idx[a as usize]);
                    }
                }
                out.push((src[0], idx, r.valid));
            }
            (Op::Gather, Arg::Axes(axes)) => {
                let axis = axes[0] as usize;
                let n = g.shape(src[0])[axis] as i64;
                let at = self.evaluate_under(src[1], r.idx.clone(), r.valid, false)?;
                let cond = self.inside(at, n);
                // clamped to the axis, so that offsets computed from it fit 32 bits
                let mut idx = r.idx.clone();
                idx[axis] = self.clamped(at, n.max(1) as usize);
                let valid = self.both(r.valid, cond);
                r.extra.push(cond);
                out.push((src[0], idx, valid));
            }
            (op, _) if op.is_movement() => {
                let (idx, cond) = self.move_index(u, &r.idx.clone());
                let mut valid = r.valid;
                if let Some(c) = cond {
                    valid = self.both(valid, c);
                    r.extra.push(c);
                }
                out.push((src[0], idx, valid));
            }
            _ => {
                for &s in src {
                    let idx = if g.shape(s).is_empty() { Tuple::new() } else { r.idx.clone() };
                    out.push((s, idx, r.valid));
                }
            }
        }
        Ok(out)
    }

    fn compute(&mut self, r: &Request, srcs: &[UOp]) -> UOp {
        let (g, u) = (self.g, r.node);
        match (g.op(u), g.arg(u)) {
            (Op::Reduce, Arg::Reduce(op, axes)) => {
                let empty = axes.iter().any(|&a| g.shape(g.src_at(u, 0))[a as usize] == 0);
                if empty {
                    return self.k.constant(op.identity(g.dtype(u)), g.dtype(u));
                }
                let mut x = self.simp(srcs[0]);
                let mut ranges = r.extra.clone();
                if *op == ReduceOp::Add {
                    x = self.flattened(x, &mut ranges);
                    x = self.reverse_descending(x, &ranges);
                }
                while let Some((i, v)) = ranges
                    .iter()
                    .enumerate()
                    .find_map(|(i, &range)| collapse::one_hot(&mut self.k, *op, x, range).map(|v| (i, v)))
                {
                    ranges.remove(i);
                    x = self.simp(v);
                }
                let repeats = self.without_repeats(x, *op, &mut ranges);
                let sum =
                    match self.rows.is_some_and(|r| r.scaled == Some(u)).then(|| self.scaled(x, &ranges)).flatten() {
                        Some((x, how, factor)) => {
                            let sum = self.k.reduce_over(x, *op, &ranges);
                            self.k.binary(how, sum, factor)
                        }
                        None => self.k.reduce_over(x, *op, &ranges),
                    };
                if repeats == 1 {
                    return sum;
                }
                let dt = self.k.dtype(sum);
                let repeats = self.k.constant(Scalar::from_i64(repeats, dt), dt);
                self.k.binary(Op::Mul, sum, repeats)
            }
            (Op::Pad | Op::Gather, _) => match r.extra.first() {
                Some(&cond) => self.masked(cond, srcs[0]),
                None => srcs[0],
            },
            (op, _) if op.is_movement() || op == Op::Contiguous => srcs[0],
            (op, arg) => self.k.node(op, g.dtype(u), srcs, arg.clone()),
        }
    }

    /// `cond ? x : 0`, or `x` itself if it is a load whose gate already includes `cond`.
    fn masked(&mut self, cond: UOp, x: UOp) -> UOp {
        if self.k.const_int(cond) == Some(1) {
            return x;
        }
        let inner = if self.k.op(x) == Op::Cast { self.k.src_at(x, 0) } else { x };
        if self.k.op(inner) == Op::Load && self.k.src(inner).len() == 3 {
            let gate = self.k.src_at(inner, 2);
            if gate == cond || (self.k.op(gate) == Op::And && self.k.src(gate).contains(&cond)) {
                return x;
            }
        }
        let zero = self.k.constant(Scalar::Int(0), self.k.dtype(x));
        self.k.select(cond, x, zero)
    }

    fn both(&mut self, a: Option<UOp>, b: UOp) -> Option<UOp> {
        if self.k.const_int(b) == Some(1) {
            return a;
        }
        match a {
            None => Some(b),
            Some(a) => {
                let c = self.k.binary(Op::And, a, b);
                Some(self.simp(c))
            }
        }
    }

    /// The value of a leaf of the kernel: a load, a constant, a launch variable or an index.
    fn read(&mut self, u: UOp, idx: &Tuple, valid: Option<UOp>) -> UOp {
        let g = self.g;
        match (g.op(u), g.arg(u)) {
            (Op::Const | Op::Var, arg) => self.k.node(g.op(u), g.dtype(u), &[], arg.clone()),
            (Op::Iota, _) => self.k.cast(idx[0], g.dtype(u)),
            (Op::Param, &Arg::Param { slot, .. }) if let Some(step) = &self.step => {
                let value = step.value;
                value(self, u, slot, idx[0], valid)
            }
            _ => {
                let stored = fuse::buffer_node(g, u);
                let buffer = self.buffers.of[&stored];
                let state = (buffer, self.versions.get(&u).copied().unwrap_or(0));
                if !self.reads.contains(&state) {
                    self.reads.push(state);
                }
                let info = self.buffers.list[buffer];
                let slot = self.args.iter().position(|&b| b == buffer).unwrap_or_else(|| {
                    self.args.push(buffer);
                    self.args.len() - 1
                });
                let dt = self.t.stored_as(info.dtype).unwrap_or(info.dtype);
                let ptr = self.k.param(slot as u32, dt, info.len);
                let offset = self.flat(&g.shape(u).clone(), idx);
                let index = self.k.index(ptr, offset);
                let load = match valid {
                    None => self.k.load(index),
                    Some(gate) => {
                        let zero = self.k.constant(Scalar::Int(0), dt);
                        self.k.load_gated(index, zero, gate)
                    }
                };
                self.k.cast(load, g.dtype(u))
            }
        }
    }

    /// Row-major offset of an index tuple.
    fn flat(&mut self, shape: &[usize], idx: &[UOp]) -> UOp {
        let mut sum = self.k.idx(0);
        let mut stride = 1i64;
        for (&n, &i) in shape.iter().zip(idx).rev() {
            let c = self.k.idx(stride);
            let term = self.mul_idx(i, c);
            sum = self.add_idx(sum, term);
            stride *= n as i64;
        }
        self.simp(sum)
    }

    /// The index tuple at which a movement op reads its source, and for a Pad the condition that this lies inside the
    /// source.
    fn move_index(&mut self, u: UOp, idx: &Tuple) -> (Tuple, Option<UOp>) {
        let g = self.g;
        let inner = g.shape(g.src_at(u, 0)).clone();
        match (g.op(u), g.arg(u)) {
            (Op::Reshape, _) => (self.reshape_index(&g.shape(u).clone(), &inner, idx), None),
            (Op::Permute, Arg::Axes(axes)) => {
                let mut out = idx.clone();
                for (i, &a) in axes.iter().enumerate() {
                    out[a as usize] = idx[i];
                }
                (out, None)
            }
            (Op::Expand, _) => {
                let zero = self.k.idx(0);
                (idx.iter().zip(&inner).map(|(&i, &n)| if n == 1 { zero } else { i }).collect(), None)
            }
            (Op::Shrink, Arg::Pairs(p)) => {
                let p = p.clone();
                let shifted = idx.iter().zip(&p).map(|(&i, &(b, _))| self.shift(i, b as i64)).collect();
                (shifted, None)
            }
            (Op::Flip, Arg::Axes(axes)) => {
                let mut out = idx.clone();
                for &a in axes {
                    let last = self.k.idx(inner[a as usize] as i64 - 1);
                    let minus = self.k.idx(-1);
                    let neg = self.mul_idx(idx[a as usize], minus);
                    let i = self.add_idx(neg, last);
                    out[a as usize] = self.simp(i);
                }
                (out, None)
            }
            (Op::Pad, Arg::Pairs(p)) => {
                let mut cond = self.k.bool(true);
                let mut out = Tuple::new();
                for (axis, &(before, after)) in p.clone().iter().enumerate() {
                    let i = idx[axis];
                    out.push(self.shift(i, -(before as i64)));
                    if before > 0 {
                        let lo = self.k.idx(before as i64);
                        let c = self.k.binary(Op::CmpLt, i, lo);
                        let yes = self.k.bool(true);
                        let c = self.k.binary(Op::Xor, c, yes);
                        cond = self.k.binary(Op::And, cond, c);
                    }
                    if after > 0 {
                        let hi = self.k.idx((before + inner[axis]) as i64);
                        let c = self.k.binary(Op::CmpLt, i, hi);
                        cond = self.k.binary(Op::And, cond, c);
                    }
                }
                let cond = self.simp(cond);
                (out, Some(cond))
            }
            (op, _) => unreachable!("{op:?} is not a movement op"),
        }
    }

    fn shift(&mut self, i: UOp, by: i64) -> UOp {
        if by == 0 {
            return i;
        }
        let c = self.k.idx(by);
        let s = self.add_idx(i, c);
        self.simp(s)
    }

    /// The index tuple below a reshape, computed for one group of axes with equal products at a time, so that axes that
    /// the reshape leaves alone keep their index expression.
    fn reshape_index(&mut self, outer: &[usize], inner: &[usize], idx: &[UOp]) -> Tuple {
        if outer.contains(&0) || inner.contains(&0) {
            let zero = self.k.idx(0);
            return inner.iter().map(|_| zero).collect();
        }
        let mut out = Tuple::new();
        for group in groups(outer, inner) {
            let idx = &idx[group.from.clone()];
            if group.is_axis() {
                out.push(idx[0]);
                continue;
            }
            let flat = self.flat(&outer[group.from], idx);
            let inner = &inner[group.to];
            let mut stride: i64 = inner.iter().map(|&n| n as i64).product();
            for &n in inner {
                stride /= n as i64;
                let c = self.k.idx(stride);
                let c = self.k.cast_const(c, self.k.dtype(flat));
                let q = self.k.binary(Op::FloorDiv, flat, c);
                let m = self.k.int(n as i64, self.k.dtype(flat));
                let m = self.k.binary(Op::FloorMod, q, m);
                out.push(self.simp(m));
            }
        }
        out
    }

    /// Adds indices, in i64 only where i32 could overflow.
    fn add_idx(&mut self, a: UOp, b: UOp) -> UOp {
        self.widen(Op::Add, a, b)
    }

    fn mul_idx(&mut self, a: UOp, b: UOp) -> UOp {
        self.widen(Op::Mul, a, b)
    }

    fn widen(&mut self, op: Op, a: UOp, b: UOp) -> UOp {
        let (x, y) = (self.k.bounds(a), self.k.bounds(b));
        let corners = [(x.0, y.0), (x.0, y.1), (x.1, y.0), (x.1, y.1)];
        let fits = corners.iter().all(|&(p, q)| {
            let v = if op == Op::Add { p as i128 + q as i128 } else { p as i128 * q as i128 };
            i32::try_from(v).is_ok()
        });
        let dt = if fits && self.k.dtype(a) == DType::I32 && self.k.dtype(b) == DType::I32 {
            DType::I32
        } else {
            DType::I64
        };
        let (a, b) = (self.k.cast_const(a, dt), self.k.cast_const(b, dt));
        self.k.binary(op, a, b)
    }
}

impl Graph {
    /// Casts `u`; of an integer constant it makes a constant of the new dtype instead of a cast.
    pub(crate) fn cast_const(&mut self, u: UOp, dt: DType) -> UOp {
        match self.const_int(u) {
            Some(v) if !dt.is_float() => self.int(v, dt),
            _ => self.cast(u, dt),
        }
    }
}
