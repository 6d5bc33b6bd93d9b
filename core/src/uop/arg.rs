//! The arguments of nodes: what a node carries besides its op, dtype and sources. Equal arguments are stored once per
//! graph.

use super::custom::Custom;
use super::mma::Layout;
use super::recurrence::Recurrence;
use super::{ReduceOp, ScatterMode};
use crate::dtype::Scalar;
use smallvec::SmallVec;

/// Sizes per axis, outermost first.
pub type Shape = SmallVec<[usize; 6]>;
/// Axis numbers.
pub type Axes = SmallVec<[u8; 8]>;
/// A pair per axis: for Pad `(before, after)`, for Shrink `(begin, end)`.
pub type Pairs = SmallVec<[(usize, usize); 6]>;

/// What a [`super::Op::Range`] becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AxisKind {
    /// Launch dimension: the workgroup index on a GPU (0 = x); on CPU and WASM, which have dimension 0 only, the loop
    /// over the slice `lo..hi` of the grid that a call computes.
    Grid(u8),
    /// Index of the thread in its workgroup (0 = x); GPU only.
    Local(u8),
    /// An output axis that is a loop, unless an opt gives it another kind.
    Loop,
    /// A reduced axis that is a loop.
    Reduce,
    /// Tile axis of the output: one register (or vector lane) per index.
    Upcast,
    /// Tile axis of a reduction whose elements are folded in order into the same accumulator.
    Unroll,
    /// Tile axis of a reduction with one accumulator per index; these are folded pairwise after the loops.
    Accum,
    /// Tile axis of a reduction: consecutive elements whose products one dot-product instruction adds up.
    Dot,
    /// A loop that fills the array of a [`super::Op::Stage`], over one of the array's axes.
    Fill,
    /// A loop whose iterations run strictly in order, since each may read what earlier iterations stored.
    Walk,
    /// Rows or columns of a matrix tile, before its elements are distributed over threads and registers.
    Tile,
}

impl AxisKind {
    /// Is a value that depends on it a register tile (rather than a scalar inside a loop)?
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
    /// Number of the range in its kernel.
    pub id: u8,
    /// What it becomes.
    pub kind: AxisKind,
    /// Is it held in vector lanes? A value depends on at most one such range, and all lane ranges of a kernel have the
    /// same length.
    pub lane: bool,
}

/// Where kernel-local storage lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Shared by a workgroup.
    Workgroup,
    /// One per invocation (CPU, WASM: per thread).
    Private,
    /// Shared by a workgroup, but each thread reads only what one other thread of its subgroup wrote: the thread whose
    /// number differs in these bits (xor). It is rendered as a subgroup shuffle instruction and takes no memory.
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
    /// Permute, Flip, Gather, Contiguous.
    Axes(Axes),
    /// Pad, Shrink.
    Pairs(Pairs),
    /// Reduce, Scan, AccUpdate, Fold.
    Reduce(ReduceOp, Axes),
    /// Range.
    Range(RangeArg),
    /// Index, after its address is split into a scalar offset and tile strides: `(id, stride in elements)` per tile
    /// range, sorted by id.
    Strides(SmallVec<[(u8, i64); 4]>),
    /// Scatter: what happens to elements with the same destination, and the axis.
    Scatter(ScatterMode, u8),
    /// Acc: its number in the kernel.
    Acc(u32),
    /// Scratch: number, element count and memory space.
    Scratch {
        /// Number in the kernel.
        id: u32,
        /// Elements.
        len: usize,
        /// Where it lives.
        space: Space,
    },
    /// Mma: how the elements of the three matrices are distributed over threads and registers.
    Mma(Box<Layout>),
    /// Exp2, Store, Barrier, Stage, LoadMatrix: a number whose meaning [`super::Op`] says at each.
    Number(u32),
    /// Custom: the user's kernel.
    Custom(Box<Custom>),
    /// Recurrence: the step.
    Recurrence(Box<Recurrence>),
}
