//! Scheduler: cuts a tensor graph into kernels. It decides which nodes are materialised in a buffer, so that a kernel
//! ends there ([`fuse`]), turns movement ops into index arithmetic ([`lower`]) and orders the kernels ([`order`]). Its
//! passes are a table, [`SCHEDULE_PASSES`].
//!
//! For example `softmax(a @ b) + c` becomes two kernels: the matrix product, which is materialised, and one row kernel
//! ([`rows`]) that holds the softmax and the addition.
//!
//! The input is closed: concrete buffers are replaced by numbered `Param`s beforehand, so that equal computations give
//! equal schedules whatever buffers they run on. Never: renderers, devices.

pub(crate) mod attention;
pub mod chain;
pub mod collapse;
mod cost;
pub mod early;
pub mod fuse;
pub mod horizontal;
pub mod integers;
mod join;
pub mod lower;
pub mod needed;
pub mod order;
pub mod passes;
pub(crate) mod recurrence;
pub mod rows;
mod scan_scatter;
pub mod share;
mod small_assigns;
mod split;

pub use passes::{SCHEDULE_PASSES, SchedulePass};

use crate::analysis::Role;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::{DType, Error, Result};
use fuse::Cuts;
use passes::Then;

/// A kernel graph. For each output the `Sink` has one source: a `Store(Index(Param 0, ..), value)` over open ranges of
/// kind Loop, or a `Custom` node for a kernel that a user wrote.
#[derive(Clone)]
pub struct Ast {
    /// Its own graph, numbered canonically.
    pub g: Graph,
    /// The Sink.
    pub sink: UOp,
    /// What the kernel computes as a whole (elementwise, contraction, ..).
    pub role: Role,
    /// Parameter slots whose contents are the same in every run (weights) and which no other kernel of the plan reads.
    /// Code generation may pack them: rearrange them once, ahead of all runs.
    pub constants: Vec<u32>,
    /// Conditions `loop < scalar` that say which iterations of the kernel's loops are needed (see [`needed`]). What the
    /// other iterations store is never read, so it may be anything.
    pub live: Vec<UOp>,
}

impl Ast {
    /// A kernel without constant operands.
    pub fn new(g: Graph, sink: UOp) -> Ast {
        Ast { role: Role::of(&g, sink), g, sink, constants: Vec::new(), live: Vec::new() }
    }

    /// All roots of the kernel's graph: the Sink and the conditions in `live`.
    pub fn roots(&self) -> Vec<UOp> {
        let mut roots = vec![self.sink];
        roots.extend(&self.live);
        roots
    }

    /// The `Custom` node, if a user wrote this kernel.
    pub fn custom(&self) -> Option<UOp> {
        self.g.src(self.sink).first().copied().filter(|&u| self.g.op(u) == Op::Custom)
    }
}

/// One kernel call.
#[derive(Clone)]
pub struct Kernel {
    /// What to compute.
    pub ast: Ast,
    /// Index into [`Schedule::buffers`] per parameter slot; those written come first.
    pub args: Vec<usize>,
    /// Values of the launch scalars that [`share`] has put in place of constant offsets.
    pub scalars: Vec<i32>,
}

impl Kernel {
    /// The arguments that the kernel writes, and those that it only reads.
    pub fn split_args(&self) -> (&[usize], &[usize]) {
        self.args.split_at(self.ast.g.src(self.ast.sink).len().min(self.args.len()))
    }
}

/// Where a buffer of a schedule comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Given by the caller: `Param` slot.
    External(u32),
    /// Made for this run, dead after its last use.
    Temp,
    /// Made for this run and handed to the caller.
    Output,
}

/// A buffer of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct BufferInfo {
    /// Logical element type (`Target::stored_as` gives the type in device memory).
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// Who allocates it, and how long it lives.
    pub origin: Origin,
}

/// Kernels in execution order, and the buffers they use.
#[derive(Clone)]
pub struct Schedule {
    /// Kernel calls in order.
    pub kernels: Vec<Kernel>,
    /// Buffers: first the `n` external ones by slot, then the rest.
    pub buffers: Vec<BufferInfo>,
    /// Buffer that holds each root, row-major and whole.
    pub roots: Vec<usize>,
}

/// Schedules the computation of `roots`, each of which ends in one buffer, whole and row-major. A root that is a
/// `Store` (an assign) writes in place.
pub fn schedule(g: &Graph, roots: &[UOp], n_params: usize, t: &Target) -> Result<Schedule> {
    let mut s = Scheduling::new(g, roots, n_params, t);
    loop {
        if let Stepped::Done(schedule) = s.step()? {
            return Ok(schedule);
        }
    }
}

/// [`schedule`] in small steps, each of them a pass over the graph or one kernel, so that a caller can do other work in
/// between or give up.
pub struct Scheduling {
    g: Graph,
    roots: Vec<UOp>,
    n_params: usize,
    t: Target,
    /// Assigns that wait for each other in a cycle: their values are computed into temporaries first.
    cyclic_assigns: Vec<UOp>,
    /// Nodes of kernels that were fused as attention in an earlier round, but that code generation would not recognise:
    /// the next round leaves them unfused.
    not_attention: Vec<UOp>,
    cuts: Cuts,
    buffers: Buffers,
    lowering: lower::Lowering,
    /// Kernels that are not yet in order, and those that are.
    pending: Vec<order::Pending>,
    kernels: Vec<Kernel>,
    /// The index of the next pass.
    next: usize,
}

/// What [`Scheduling::step`] did.
pub enum Stepped {
    /// A part of a pass.
    Part,
    /// A pass, or the last part of one.
    Pass(&'static SchedulePass),
    /// All passes were done before: the schedule.
    Done(Schedule),
}

impl Scheduling {
    /// A scheduling of which no step is done yet.
    pub fn new(g: &Graph, roots: &[UOp], n_params: usize, t: &Target) -> Scheduling {
        Scheduling {
            g: g.clone(),
            roots: roots.to_vec(),
            n_params,
            t: t.clone(),
            cyclic_assigns: Vec::new(),
            not_attention: Vec::new(),
            cuts: Cuts::default(),
            buffers: Buffers::default(),
            lowering: lower::Lowering::default(),
            pending: Vec::new(),
            kernels: Vec::new(),
            next: 0,
        }
    }

    /// The target that is scheduled for.
    pub fn target(&self) -> &Target {
        &self.t
    }

    /// Does the next step.
    ///
    /// # Errors
    /// Those of the passes; in debug builds also `Internal` with the pass and the node, if what a pass made violates the
    /// spec.
    pub fn step(&mut self) -> Result<Stepped> {
        let Some(pass) = SCHEDULE_PASSES.get(self.next) else { return self.done().map(Stepped::Done) };
        let then = (pass.run)(self)?;
        if let Then::Again = then {
            return Ok(Stepped::Part);
        }
        if cfg!(debug_assertions) {
            self.verify(pass)?;
        }
        self.next = if let Then::Cuts = then { passes::CUTS } else { self.next + 1 };
        Ok(Stepped::Pass(pass))
    }

    // a step of its own, since what the caller does next with the schedule takes long too
    fn done(&mut self) -> Result<Schedule> {
        if self.next > SCHEDULE_PASSES.len() {
            return Err(Error::Internal("a schedule that is done goes on".into()));
        }
        self.next += 1;
        let (roots, buffers) = (self.root_buffers(), std::mem::take(&mut self.buffers.list));
        Ok(Schedule { kernels: std::mem::take(&mut self.kernels), buffers, roots })
    }
}

/// The buffers of a schedule, to which lowering adds one for each materialised node.
#[derive(Default)]
pub struct Buffers {
    /// All buffers.
    pub list: Vec<BufferInfo>,
    /// Buffer of a materialised node.
    pub of: rustc_hash::FxHashMap<UOp, usize>,
}

fn external_buffers(g: &Graph, roots: &[UOp], n_params: usize) -> Buffers {
    let void = BufferInfo { dtype: DType::Void, len: 0, origin: Origin::Temp };
    let mut b = Buffers { list: vec![void; n_params], of: Default::default() };
    let outputs: rustc_hash::FxHashSet<UOp> = roots.iter().map(|&r| fuse::buffer_node(g, r)).collect();
    for u in g.reachable(roots) {
        if let (Op::Param, Arg::Param { slot, len }) = (g.op(u), g.arg(u)) {
            let at = *slot as usize;
            let origin = match outputs.contains(&u) {
                _ if at < n_params => Origin::External(*slot),
                // the memory of a join (see `join`)
                true => Origin::Output,
                false => Origin::Temp,
            };
            b.list.resize(b.list.len().max(at + 1), void);
            b.list[at] = BufferInfo { dtype: g.dtype(u), len: *len, origin };
            b.of.insert(u, at);
        }
    }
    b
}
