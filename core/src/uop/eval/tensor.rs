//! The reference interpreter of tensor graphs. Nodes are evaluated in index order. Movement ops give strided views
//! where strides can express them. An elementwise value whose only user is elementwise or a reduction over the same
//! shape is not stored but computed block by block inside that user, so that a convolution that is written as expand,
//! multiply and reduce needs little memory.

mod ordered;

use super::lanes::{Lanes, Reducer, Run, alu};
use super::view::{Dims, View};
use crate::dtype::Scalar;
use crate::uop::spec::{self, Stage};
use crate::uop::{Arg, Graph, Op, Shape, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use smallvec::SmallVec;
use std::rc::Rc;

/// A tensor on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostValue {
    /// Element type.
    pub dtype: DType,
    /// Sizes per axis.
    pub shape: Shape,
    /// Little-endian elements, row-major.
    pub data: Vec<u8>,
}

/// The results of evaluating a tensor graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// The roots' values, in order; void roots (stores, sinks) give an empty value.
    pub values: Vec<HostValue>,
    /// The final contents of the buffers (or parameters) that were stored to: `(id or slot, bytes)`, in the order of
    /// the first store to each.
    pub writes: Vec<(u32, Vec<u8>)>,
}

/// Bytes of a buffer by its id, or of a parameter by its slot.
pub type Storage<'a> = dyn FnMut(u32) -> Option<Vec<u8>> + 'a;

/// The values of the roots. `buffers` supplies the bytes of a buffer by its id, or of a parameter by its slot, and
/// `vars` the launch scalars. Errors: `Input` for storage and variables that are missing or have the wrong size,
/// `Internal` for an invalid graph.
pub fn eval_tensor(
    g: &Graph,
    roots: &[UOp],
    buffers: &mut Storage<'_>,
    vars: &dyn Fn(&str) -> Option<Scalar>,
) -> Result<Vec<HostValue>> {
    Ok(eval_graph(g, roots, buffers, vars)?.values)
}

/// Like [`eval_tensor`], but also returns the contents of the buffers that were stored to.
///
/// A buffer that is read directly has the contents from before all stores; `After(buffer, stores..)` has those after
/// the given stores.
pub fn eval_graph(
    g: &Graph,
    roots: &[UOp],
    buffers: &mut Storage<'_>,
    vars: &dyn Fn(&str) -> Option<Scalar>,
) -> Result<Evaluated> {
    spec::verify(g, roots, Stage::Tensor)?;
    let order = g.value_nodes(roots);
    let mut ev = Eval::new(g, &order, roots);
    for &u in &order {
        ev.step(u, buffers, vars)?;
    }
    let values = roots.iter().map(|&r| ev.host_value(r)).collect();
    let writes = ev.current.into_iter().map(|(_, id, data)| (id, Rc::unwrap_or_clone(data))).collect();
    Ok(Evaluated { values, writes })
}

/// Number of elements that a fused expression is computed for at a time.
const BLOCK: usize = 4096;
/// The most nodes of a fused expression; the values of longer chains are stored in between.
const MAX_TAPE: usize = 64;

enum Value {
    /// Computed and stored.
    View(View),
    /// To be computed inside its only user; the number of nodes of its fused expression.
    Deferred(usize),
}

/// An evaluated store: `bytes` holds the stored elements, and `at` their destinations in `storage`, counted from 1; an
/// element with destination 0 is dropped.
struct Stored {
    storage: UOp,
    at: Rc<Vec<i64>>,
    bytes: Rc<Vec<u8>>,
}

struct Eval<'a> {
    g: &'a Graph,
    vals: Vec<Option<Value>>,
    /// By node: how many uses are still to be evaluated; being a root counts as one.
    uses: Vec<u32>,
    /// By node: one of its users, if it has any and is not a root.
    user: Vec<Option<UOp>>,
    stores: Vec<(UOp, Stored)>,
    /// Contents of storage that was stored to: node, id, bytes.
    current: Vec<(UOp, u32, Rc<Vec<u8>>)>,
    runs: Vec<Run>,
}

/// A node of a fused elementwise expression.
enum Step {
    Leaf { view: View, dims: Dims },
    Alu { op: Op, dt: DType, src: SmallVec<[usize; 3]>, sdt: SmallVec<[DType; 3]> },
}

impl<'a> Eval<'a> {
    fn new(g: &'a Graph, order: &[UOp], roots: &[UOp]) -> Eval<'a> {
        let n = order.last().map_or(0, |u| u.0 as usize + 1);
        let (mut uses, mut user) = (vec![0; n], vec![None; n]);
        for &u in order {
            for s in g.value_src(u) {
                uses[s.0 as usize] += 1;
                user[s.0 as usize] = Some(u);
            }
        }
        for r in roots {
            uses[r.0 as usize] += 1;
            user[r.0 as usize] = None;
        }
        let vals = (0..n).map(|_| None).collect();
        Eval { g, vals, uses, user, stores: Vec::new(), current: Vec::new(), runs: Vec::new() }
    }

    fn step(&mut self, u: UOp, buffers: &mut Storage<'_>, vars: &dyn Fn(&str) -> Option<Scalar>) -> Result<()> {
        let (g, dt) = (self.g, self.g.dtype(u));
        let shape = g.shape(u);
        let value = match (g.op(u), g.arg(u)) {
            (Op::Const, Arg::Const(c)) => scalar_view(*c, dt),
            (Op::Buffer, Arg::Buffer { id, len }) => storage(buffers, *id, *len, dt, "buffer")?,
            (Op::Param, Arg::Param { slot, len }) => storage(buffers, *slot, *len, dt, "parameter")?,
            (Op::Var, Arg::Var { name, min, max }) => {
                let v = vars(name).ok_or_else(|| Error::Input { name: name.to_string(), what: "no value".into() })?;
                if dt.is_int() && !(*min..=*max).contains(&v.as_i64()) {
                    let what = format!("{v:?} is outside {min}..={max}");
                    return Err(Error::Input { name: name.to_string(), what });
                }
                scalar_view(v, dt)
            }
            (Op::Iota, _) => {
                let data = (0..shape[0] as i32).flat_map(|i| i.to_le_bytes()).collect();
                View::new(data, dt, shape)
            }
            (Op::Contiguous | Op::Detach, _) => self.view(g.src_at(u, 0)),
            (op, _) if op.is_movement() => self.view(g.src_at(u, 0)).moved(g, u),
            (Op::Gather, Arg::Axes(axes)) => self.gather(u, axes[0] as usize),
            (Op::Scatter, Arg::Scatter(how, axis)) => self.scatter(u, *how, *axis as usize),
            (Op::Scan, Arg::Reduce(op, axes)) => self.scan(u, *op, axes[0] as usize),
            (Op::Recurrence, Arg::Recurrence(r)) => self.recurrence(u, r, vars)?,
            (Op::Reduce, Arg::Reduce(op, axes)) => {
                let of = Reducer { op: *op, dt };
                return self.reduce(u, of, axes);
            }
            (op, _) if op.is_alu() => {
                let size = 1 + g.src(u).iter().map(|s| self.deferred(*s)).sum::<usize>();
                if size < MAX_TAPE && self.defers(u) {
                    self.vals[u.0 as usize] = Some(Value::Deferred(size));
                    return Ok(());
                }
                return self.elementwise(u);
            }
            (Op::Store, _) => {
                self.store(u);
                View::new(Vec::new(), dt, &[0])
            }
            (Op::Custom, Arg::Custom(c)) => {
                let what = format!("custom kernel `{}`, which is code in WGSL", c.name);
                return Err(Error::Unsupported { what, context: "the evaluator".into() });
            }
            (Op::After, _) => self.after(u),
            (Op::Sink, _) => View::new(Vec::new(), dt, &[0]),
            (op, arg) => return Err(Error::Internal(format!("{u:?}: {op:?} {arg:?} is not a tensor op"))),
        };
        self.finish(u, value, &[u]);
        Ok(())
    }

    /// Is `u` to be computed inside its only user rather than stored?
    fn defers(&self, u: UOp) -> bool {
        let Some(user) = self.user[u.0 as usize].filter(|_| self.uses[u.0 as usize] == 1) else { return false };
        let op = self.g.op(user);
        let same = self.g.shape(self.g.src_at(user, 0)) == self.g.shape(u) || op != Op::Reduce;
        same && (op == Op::Reduce || op.is_alu() && self.g.shape(user) == self.g.shape(u))
    }

    /// The number of nodes of the fused expression of a deferred node; 0 for a stored one.
    fn deferred(&self, u: UOp) -> usize {
        match self.vals[u.0 as usize] {
            Some(Value::Deferred(n)) => n,
            _ => 0,
        }
    }

    /// Records the value of `u`, and frees the sources of the nodes `taken`, which were computed for it, where this was
    /// their last use.
    fn finish(&mut self, u: UOp, view: View, taken: &[UOp]) {
        self.vals[u.0 as usize] = Some(Value::View(view));
        for &t in taken {
            for s in self.g.value_src(t) {
                let n = &mut self.uses[s.0 as usize];
                *n -= 1;
                // contents of storage are kept, since a later store may start from them
                if *n == 0 && !matches!(self.g.op(*s), Op::Buffer | Op::Param | Op::After) {
                    self.vals[s.0 as usize] = None;
                }
            }
        }
    }

    /// The stored value of a node that is not deferred.
    fn view(&self, u: UOp) -> View {
        match &self.vals[u.0 as usize] {
            Some(Value::View(v)) => v.clone(),
            _ => unreachable!("{u:?} {:?} has no stored value", self.g.op(u)),
        }
    }

    /// The steps of the fused expression that ends in `root`, and the nodes that it computes. Elements are computed
    /// with the axes of `shape` nested in the given `order`, which the strides of the leaves follow.
    fn tape(&self, root: UOp, shape: &[usize], order: &[usize]) -> (Vec<Step>, Vec<UOp>) {
        let g = self.g;
        let mut nodes = vec![root];
        let mut i = 0;
        while i < nodes.len() {
            let u = nodes[i];
            if i == 0 && g.op(u).is_alu() && !self.is_view(u) || self.deferred(u) > 0 {
                nodes.extend_from_slice(g.src(u));
            }
            i += 1;
        }
        sort::ascending(&mut nodes);
        nodes.dedup();
        let mut steps = Vec::with_capacity(nodes.len());
        let mut taken = Vec::new();
        for &u in &nodes {
            if self.is_view(u) {
                let view = self.view(u);
                let dims = if view.dims.is_empty() {
                    order.iter().map(|&a| (shape[a], 0)).collect()
                } else {
                    order.iter().map(|&a| view.dims[a]).collect()
                };
                steps.push(Step::Leaf { view, dims });
            } else {
                let at = |s: &UOp| nodes.binary_search(s).expect("sources of a fused node are in the tape");
                let src = g.src(u).iter().map(at).collect();
                let sdt = g.src(u).iter().map(|&s| g.dtype(s)).collect();
                steps.push(Step::Alu { op: g.op(u), dt: g.dtype(u), src, sdt });
                taken.push(u);
            }
        }
        coalesce_leaves(&mut steps);
        (steps, taken)
    }

    fn is_view(&self, u: UOp) -> bool {
        matches!(self.vals[u.0 as usize], Some(Value::View(_)))
    }

    /// Computes elements `start..start + n` of the last step.
    fn run(&mut self, steps: &[Step], start: usize, n: usize) -> Result<Lanes> {
        let mut regs: Vec<Lanes> = Vec::with_capacity(steps.len());
        for s in steps {
            let v = match s {
                Step::Leaf { view, dims } => view.read_as(dims, start, n, &mut self.runs),
                Step::Alu { op, dt, src, sdt } => {
                    let refs: SmallVec<[&Lanes; 3]> = src.iter().map(|&i| &regs[i]).collect();
                    alu(*op, *dt, &refs, sdt)
                        .ok_or_else(|| Error::Internal(format!("{op:?} of {sdt:?} to {dt} is not defined")))?
                }
            };
            regs.push(v);
        }
        Ok(regs.pop().expect("a tape has its root"))
    }

    fn elementwise(&mut self, u: UOp) -> Result<()> {
        let (g, dt) = (self.g, self.g.dtype(u));
        let (shape, n) = (g.shape(u), g.memory_len(u));
        let order: SmallVec<[usize; 6]> = (0..shape.len()).collect();
        let (steps, taken) = self.tape(u, shape, &order);
        let mut out = Vec::with_capacity(n * dt.size());
        for start in (0..n).step_by(BLOCK) {
            self.run(&steps, start, BLOCK.min(n - start))?.append_bytes(dt, &mut out);
        }
        self.finish(u, View::new(out, dt, shape), &taken);
        Ok(())
    }

    fn reduce(&mut self, u: UOp, of: Reducer, axes: &[u8]) -> Result<()> {
        let g = self.g;
        let x = g.src_at(u, 0);
        let shape = g.shape(x);
        let (reduced, kept): (Vec<usize>, Vec<usize>) = (0..shape.len()).partition(|a| axes.contains(&(*a as u8)));
        let len = |axes: &[usize]| axes.iter().map(|&a| shape[a]).product::<usize>();
        let (n_out, n_red) = (len(&kept), len(&reduced));
        // the reduced axes are innermost, unless rows along the kept axes are longer
        let last = |axes: &[usize]| axes.iter().rev().map(|&a| shape[a]).find(|&n| n > 1).unwrap_or(1);
        let outputs_inner = n_out > 0 && last(&reduced) < 32 && last(&kept) > last(&reduced);
        let order: Vec<usize> =
            if outputs_inner { [&reduced[..], &kept].concat() } else { [&kept[..], &reduced].concat() };
        let (steps, mut taken) = self.tape(x, shape, &order);
        let mut acc = of.start(n_out);
        if outputs_inner {
            let mut parts = Vec::new();
            for start in (0..n_out).step_by(BLOCK) {
                let n = BLOCK.min(n_out - start);
                let mut part = of.start(n);
                for r in 0..n_red {
                    let v = self.run(&steps, r * n_out + start, n)?;
                    of.fold_each(&mut part, &v);
                }
                parts.push(part);
            }
            acc = Lanes::concat(parts);
        } else {
            let total = n_out * n_red;
            for start in (0..total).step_by(BLOCK) {
                let n = BLOCK.min(total - start);
                let v = self.run(&steps, start, n)?;
                let mut i = 0;
                while i < n {
                    let out = (start + i) / n_red;
                    let end = ((out + 1) * n_red - start).min(n);
                    of.fold(&mut acc, out, &v, i..end);
                    i = end;
                }
            }
        }
        let mut data = Vec::new();
        of.finish(acc).append_bytes(of.dt, &mut data);
        taken.push(u);
        self.finish(u, View::new(data, of.dt, g.shape(u)), &taken);
        Ok(())
    }

    fn gather(&mut self, u: UOp, axis: usize) -> View {
        self.gather_of(self.view(self.g.src_at(u, 0)), u, axis)
    }

    /// The result of the Gather `u` applied to the view `x`.
    fn gather_of(&mut self, x: View, u: UOp, axis: usize) -> View {
        let (g, dt) = (self.g, x.dt);
        let idx = self.view(g.src_at(u, 1));
        let (n, size) = (g.memory_len(u), dt.size());
        let (len, stride) = x.dims[axis];
        let mut along = x.dims.clone();
        along[axis] = (idx.dims[axis].0, 0);
        let mut out = Vec::with_capacity(n * size);
        for start in (0..n).step_by(BLOCK) {
            let count = BLOCK.min(n - start);
            let at = idx.read(start, count, &mut self.runs);
            super::view::fill_runs(&along, x.offset, start, count, &mut self.runs);
            let bases = self.runs.iter().flat_map(|r| (0..r.n as isize).map(|i| r.start as isize + i * r.stride));
            for (i, base) in bases.enumerate() {
                // a u64 index above i64::MAX is negative here, and out of range either way
                match usize::try_from(at.get(i).as_i64()) {
                    Ok(k) if k < len => {
                        let p = (base + k as isize * stride) as usize * size;
                        out.extend_from_slice(&x.data[p..p + size]);
                    }
                    _ => out.resize(out.len() + size, 0),
                }
            }
        }
        View::new(out, dt, g.shape(u))
    }

    /// The storage under a chain of movement ops, Gathers and Afters (`None` if there is none), and the ops of the
    /// chain but for the Afters, the one nearest to the storage last.
    fn storage_of(&self, mut u: UOp) -> (Option<UOp>, Vec<UOp>) {
        let mut chain = Vec::new();
        loop {
            match self.g.op(u) {
                Op::Buffer | Op::Param => return (Some(u), chain),
                op if op.is_movement() || op == Op::Gather => chain.push(u),
                Op::After => {}
                _ => return (None, chain),
            }
            u = self.g.src_at(u, 0);
        }
    }

    fn store(&mut self, u: UOp) {
        let g = self.g;
        let (target, value) = (g.src_at(u, 0), g.src_at(u, 1));
        let (Some(storage), chain) = self.storage_of(target) else { unreachable!("{u:?} stores to no buffer: spec") };
        let len = g.memory_len(storage);
        // to find the destination of each element, the movement ops of the target are applied to the element numbers of
        // the storage; these count from 1, so that 0 is what a Gather gives for an index out of range
        let numbers: Vec<u8> = (1..=len as i64).flat_map(i64::to_le_bytes).collect();
        let mut at = View::new(numbers, DType::I64, &[len]);
        for &m in chain.iter().rev() {
            at = match g.arg(m) {
                Arg::Axes(axes) if g.op(m) == Op::Gather => self.gather_of(at, m, axes[0] as usize),
                _ => at.moved(g, m),
            };
        }
        let n = at.numel();
        let Lanes::Int(at) = at.read(0, n, &mut self.runs) else { unreachable!("numbers are ints") };
        let mut v = self.view(value);
        if v.dims.is_empty() {
            v.dims = g.shape(target).iter().map(|&n| (n, 0)).collect();
        }
        let stored = Stored { storage, at: Rc::new(at), bytes: Rc::new(v.to_bytes()) };
        let i = self.current.iter().position(|c| c.0 == storage).unwrap_or_else(|| {
            let id = match g.arg(storage) {
                Arg::Buffer { id, .. } | Arg::Param { slot: id, .. } => *id,
                a => unreachable!("{a:?} is not storage"),
            };
            self.current.push((storage, id, self.initial(target)));
            self.current.len() - 1
        });
        stored.apply(&mut self.current[i].2, g.dtype(storage).size());
        self.stores.push((u, stored));
    }

    /// The contents of the storage under a chain of movement ops and Gathers.
    fn initial(&self, mut u: UOp) -> Rc<Vec<u8>> {
        while self.g.op(u).is_movement() || self.g.op(u) == Op::Gather {
            u = self.g.src_at(u, 0);
        }
        self.view(u).data
    }

    fn after(&mut self, u: UOp) -> View {
        let g = self.g;
        let x = g.src_at(u, 0);
        let (Some(storage), _) = self.storage_of(x) else { return self.view(x) };
        let deps = &g.src(u)[1..];
        let mine: Vec<&Stored> =
            self.stores.iter().filter(|(s, st)| deps.contains(s) && st.storage == storage).map(|s| &s.1).collect();
        if mine.is_empty() {
            return self.view(x);
        }
        let mut chain = Vec::new();
        let mut base = x;
        while g.op(base).is_movement() {
            chain.push(base);
            base = g.src_at(base, 0);
        }
        let mut v = self.view(base);
        for s in mine {
            s.apply(&mut v.data, v.dt.size());
        }
        chain.iter().rev().fold(v, |v, &m| v.moved(g, m))
    }

    fn host_value(&self, r: UOp) -> HostValue {
        let (dtype, shape) = (self.g.dtype(r), self.g.shape(r).clone());
        HostValue { dtype, shape, data: self.view(r).to_bytes() }
    }
}

impl Stored {
    fn apply(&self, data: &mut Rc<Vec<u8>>, size: usize) {
        let data = Rc::make_mut(data);
        for (&at, v) in self.at.iter().zip(self.bytes.chunks_exact(size)) {
            if let Some(at) = (at as usize).checked_sub(1) {
                data[at * size..][..size].copy_from_slice(v);
            }
        }
    }
}

fn scalar_view(v: Scalar, dt: DType) -> View {
    let mut data = vec![0; dt.size()];
    v.write(dt, &mut data);
    View::new(data, dt, &[])
}

fn storage(buffers: &mut Storage<'_>, id: u32, len: usize, dt: DType, what: &str) -> Result<View> {
    let name = format!("{what} {id}");
    let Some(data) = buffers(id) else {
        return Err(Error::Input { name, what: "no contents".into() });
    };
    if data.len() != len * dt.size() {
        let what = format!("{} bytes given, {len} elements of {dt} wanted", data.len());
        return Err(Error::Input { name, what });
    }
    Ok(View::new(data, dt, &[len]))
}

/// Merges neighbouring axes that are contiguous in every leaf, and drops axes of size 1.
fn coalesce_leaves(steps: &mut [Step]) {
    let mut leaves: Vec<&mut Dims> =
        steps.iter_mut().filter_map(|s| if let Step::Leaf { dims, .. } = s { Some(dims) } else { None }).collect();
    let rank = leaves.first().map_or(0, |d| d.len());
    let mut out: Vec<Dims> = leaves.iter().map(|_| Dims::new()).collect();
    for a in 0..rank {
        if leaves[0][a].0 == 1 {
            continue;
        }
        let joins = !out[0].is_empty()
            && leaves.iter().zip(&out).all(|(d, o)| o.last().is_some_and(|l| l.1 == d[a].1 * d[a].0 as isize));
        for (d, o) in leaves.iter().zip(&mut out) {
            match o.last_mut() {
                Some(l) if joins => *l = (l.0 * d[a].0, d[a].1),
                _ => o.push(d[a]),
            }
        }
    }
    for (d, o) in leaves.iter_mut().zip(out) {
        **d = o;
    }
}
