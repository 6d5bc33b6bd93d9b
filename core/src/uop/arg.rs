//! What a node carries besides its sources: a real enum, interned once per graph.

use super::custom::Custom;
use super::mma::Layout;
use super::{Meet, ReduceOp};
use crate::dtype::Scalar;
use smallvec::SmallVec;

/// Sizes per axis, outermost first.
pub type Shape = SmallVec<[usize; 6]>;
/// Axis numbers.
pub type Axes = SmallVec<[u8; 8]>;
/// A pair per axis: pad `(before, after)`, shrink `(begin, end)`.
pub type Pairs = SmallVec<[(usize, usize); 6]>;

/// What a [`super::Op::Range`] becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AxisKind {
    /// Launch dimension: workgroup index on a GPU (0 = x), the grid loop `lo..hi` on CPU and WASM (0 only).
    Grid(u8),
    /// Thread in the workgroup (0 = x); GPU only.
    Local(u8),
    /// An output axis that is (still) a loop.
    Loop,
    /// A reduced axis that is a loop.
    Reduce,
    /// Tile axis of the output: a register (or lane) per index.
    Upcast,
    /// Tile axis of a reduction, folded in order into one accumulator.
    Unroll,
    /// Tile axis of a reduction with accumulators of its own, folded pairwise after the loops.
    Accum,
    /// Tile axis of a reduction: neighbours whose products one instruction adds up.
    Dot,
    /// A loop of a [`super::Op::Stage`], over an axis of its array.
    Fill,
    /// A loop whose turns run strictly in order: each may read what earlier ones stored.
    Walk,
    /// Rows or columns of a matrix tile, before its elements are spread over threads and registers.
    Tile,
}

impl AxisKind {
    /// Is a value that depends on it a tile (rather than inside a loop)?
    pub const fn is_tile(self) -> bool {
        matches!(self, AxisKind::Upcast | AxisKind::Unroll | AxisKind::Accum | AxisKind::Dot | AxisKind::Tile)
    }

    /// Is it rendered as a counted loop with an `End`?
    pub const fn is_loop(self) -> bool {
        matches!(self, AxisKind::Loop | AxisKind::Reduce | AxisKind::Fill | AxisKind::Walk)
    }

    /// Is it a launch index (workgroup, thread, grid slice)?
    pub const fn is_launch(self) -> bool {
        matches!(self, AxisKind::Grid(_) | AxisKind::Local(_))
    }

    /// Is it reduced over?
    pub const fn is_reduce(self) -> bool {
        matches!(self, AxisKind::Reduce | AxisKind::Unroll | AxisKind::Accum | AxisKind::Dot)
    }
}

/// Identity and kind of a range. `id` is unique in a kernel and below [`super::graph::MAX_RANGES`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RangeArg {
    /// Identity.
    pub id: u8,
    /// What it becomes.
    pub kind: AxisKind,
    /// A vector axis: at most one tile range of a value has it, and all in a kernel are of one length.
    pub lane: bool,
}

/// Where kernel-local storage lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Shared by a workgroup.
    Workgroup,
    /// One per invocation (CPU, WASM: per thread).
    Private,
    /// Shared by a workgroup, but each thread reads only what the thread wrote whose number differs in these bits: within
    /// a subgroup that is an instruction, with no memory behind it.
    Subgroup(u8),
}

/// A node's argument.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Arg {
    /// Nothing.
    None,
    /// Const: the value.
    Const(Scalar),
    /// Buffer: session-wide id and element count.
    Buffer {
        /// Identity in the session.
        id: u32,
        /// Elements.
        len: usize,
    },
    /// Param: argument position and element count.
    Param {
        /// Position.
        slot: u32,
        /// Elements.
        len: usize,
    },
    /// Var: name and inclusive bounds (i32; for f32 both 0).
    Var {
        /// Name, unique in a plan.
        name: Box<str>,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Reshape, Expand, Iota.
    Shape(Shape),
    /// Permute, Flip, Gather.
    Axes(Axes),
    /// Pad, Shrink.
    Pairs(Pairs),
    /// Reduce, Scan, AccUpdate, Fold.
    Reduce(ReduceOp, Axes),
    /// Range.
    Range(RangeArg),
    /// Index after address splitting: element stride per tile range, `(id, stride)` sorted by id.
    Strides(SmallVec<[(u8, i64); 4]>),
    /// Scatter: how elements meet what is there, and along which axis.
    Scatter(Meet, u8),
    /// Acc: identity.
    Acc(u32),
    /// Scratch: identity, elements, where.
    Scratch {
        /// Identity.
        id: u32,
        /// Elements.
        len: usize,
        /// Memory.
        space: Space,
    },
    /// Mma: where the elements of the three matrices are.
    Mma(Box<Layout>),
    /// Store, Barrier, Stage, LoadMatrix: a number that these ops explain.
    Number(u32),
    /// Custom: its code.
    Custom(Box<Custom>),
}
