//! Optimisation as data: a kernel's schedule is a short list of [`Opt`]s, whoever found it.

pub mod actions;
mod block;
mod chain;
mod dot;
mod gpu;
pub mod heuristic;
pub mod launch;
mod matrix;
pub mod rows;
mod software;
mod tiled;

/// What an opt does to an axis. An output axis that `amount` does not divide is cut so that its last piece overlaps the one
/// before, where the kernel may compute an element twice (on a CPU, in kernels that do not read what they write).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum OptOp {
    /// The inner `amount` of an output axis becomes tile registers.
    Upcast,
    /// The inner `amount` of an axis becomes the vector axis (of a reduced axis: with lane-wise accumulators).
    Lane,
    /// The inner `amount` of a reduced axis gets accumulators of its own.
    Accum,
    /// The loop body is repeated `amount` times.
    Unroll,
    /// The inner `amount` of a reduced axis are added up at once, for instructions that do so: the innermost axis of copies.
    Dot,
    /// The inner `amount` of an axis is a side of a matrix tile, which one instruction multiplies: of an output axis its rows or its columns,
    /// of a reduced axis what it sums over. Takes all three; where the axes of a target's tile have these lengths, it is used.
    Tile,
    /// The inner `amount` of an output axis becomes threads of the workgroup.
    Local,
    /// The inner `amount` of a reduced axis becomes threads of the workgroup, which share the reduction: each reduces its
    /// part, and all read the parts of all from workgroup memory.
    Group,
    /// The axis is rounded up to a multiple of `amount`.
    PadTo,
    /// The inner `amount` of an axis becomes an inner loop.
    Split,
    /// The axis and the axis `amount` change places in the loop nest.
    Swap,
    /// What is loaded from parameter `amount & 0x7fff` (its load number `amount >> 16` there) is first copied to a local
    /// array, inside of the loop `axis` ([`OUTSIDE`] for none) and outside of all loops below that. Overlapping windows
    /// share elements, unless `amount` has the bit [`APART`].
    Stage,
    /// What the reduction over the axis computes and others compute again, each along an axis of its own, is computed once,
    /// into a local array. Comes before opts that give such values tile axes.
    Keep,
}

/// The level of [`OptOp::Stage`] outside of all loops.
pub const OUTSIDE: u8 = u8::MAX;
/// With [`OptOp::Stage`]: each window has elements of its own.
pub const APART: u32 = 0x8000;

/// One action on the axis with range id `axis`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Opt {
    /// What.
    pub op: OptOp,
    /// Range id.
    pub axis: u8,
    /// How much.
    pub amount: u32,
}

impl std::fmt::Display for Opt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.op.name(), self.axis, self.amount)
    }
}

/// The last of the proposals that are made of a choice: nothing.
pub(super) const LAST_PROPOSAL: usize = 3;

/// What is proposed after so many proposals were refused: what was chosen; without local arrays; without what follows the first opt
/// that makes loops, since it may be about these; nothing.
pub(super) fn proposal(mut chosen: Vec<Opt>, refused: usize) -> Vec<Opt> {
    use OptOp::{Keep, Split, Stage, Swap};
    match refused {
        0 => {}
        1 => chosen.retain(|o| !matches!(o.op, Stage | Keep)),
        2 => chosen.truncate(chosen.iter().position(|o| matches!(o.op, Stage | Keep | Split | Swap)).unwrap_or(0)),
        _ => chosen.clear(),
    }
    chosen
}
