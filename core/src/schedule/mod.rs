//! Tensor graph -> kernels: decide what is materialised ([`fuse`]), turn movement ops into index math ([`lower`]), order
//! the kernels ([`order`]).
//!
//! The input is closed: concrete buffers have become numbered `Param`s, so equal computations give equal schedules
//! whatever buffers they run on. Never: renderers, devices.

pub mod chain;
pub mod collapse;
mod cost;
pub mod early;
pub mod fuse;
pub mod integers;
pub mod lower;
pub mod order;
mod ordered;
pub mod outputs;
pub mod rows;
pub mod share;
mod split;
mod states;

use crate::target::Target;
use crate::uop::{Graph, Op, UOp};
use crate::{DType, Error, Result};

/// A kernel graph: `Sink(Store(Index(Param 0, ..), value), ..)` over open ranges of kind Loop.
#[derive(Clone)]
pub struct Ast {
    /// Its own graph, numbered canonically.
    pub g: Graph,
    /// The Sink.
    pub sink: UOp,
    /// Slots whose contents are the same in every run, and which no other kernel of the plan reads: they may be packed.
    pub constants: Vec<u32>,
}

impl Ast {
    /// A kernel without constant operands.
    pub fn new(g: Graph, sink: UOp) -> Ast {
        Ast { g, sink, constants: Vec::new() }
    }
}

/// One kernel call.
#[derive(Clone)]
pub struct Kernel {
    /// What to compute.
    pub ast: Ast,
    /// Index into [`Schedule::buffers`] per parameter slot; those written come first.
    pub args: Vec<usize>,
    /// Values of the launch scalars that [`share`] made.
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
    /// Logical element type (its form in device memory is the target's `stored_as`).
    pub dtype: DType,
    /// Elements.
    pub len: usize,
    /// Where it comes from.
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

/// Schedules the computation of `roots`, each to a whole buffer. `Store` roots (assigns) write in place.
pub fn schedule(g: &Graph, roots: &[UOp], n_params: usize, t: &Target) -> Result<Schedule> {
    let (g, roots) = early::simplify(g, roots, t);
    let mut knots = Vec::new();
    let (cuts, buffers, kernels) = loop {
        let cuts = fuse::choose(&g, &roots, &knots, t);
        let mut buffers = external_buffers(&g, &roots, n_params);
        let kernels = lower::kernels(&g, &roots, &cuts, &mut buffers, t)?;
        let found = order::knots(&g, &kernels);
        if found.is_empty() {
            break (cuts, buffers, kernels);
        }
        if found.iter().any(|k| knots.contains(k)) {
            return Err(Error::Internal("kernels wait for each other".into()));
        }
        knots.extend(found);
    };
    let temp_bytes = |b: usize| match buffers.list[b] {
        BufferInfo { dtype, len, origin: Origin::Temp } => len.saturating_mul(dtype.size()),
        _ => 0,
    };
    let mut kernels = order::order(states::merge(outputs::merge(kernels, t), t), temp_bytes);
    share::share(&mut kernels);
    let roots = roots.iter().map(|&r| cuts.buffer_of(&g, r, &buffers)).collect();
    Ok(Schedule { kernels, buffers: buffers.list, roots })
}

/// The growing buffer table of a schedule.
pub struct Buffers {
    /// All buffers.
    pub list: Vec<BufferInfo>,
    /// Buffer of a materialised node.
    pub of: rustc_hash::FxHashMap<UOp, usize>,
}

fn external_buffers(g: &Graph, roots: &[UOp], n_params: usize) -> Buffers {
    let void = BufferInfo { dtype: DType::Void, len: 0, origin: Origin::Temp };
    let mut b = Buffers { list: vec![void; n_params], of: Default::default() };
    for u in g.reachable(roots) {
        if let (Op::Param, crate::uop::Arg::Param { slot, len }) = (g.op(u), g.arg(u)) {
            b.list[*slot as usize] = BufferInfo { dtype: g.dtype(u), len: *len, origin: Origin::External(*slot) };
            b.of.insert(u, *slot as usize);
        }
    }
    b
}
