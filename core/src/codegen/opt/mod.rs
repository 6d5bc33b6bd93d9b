//! Optimisation as data: a kernel's schedule is a short list of [`Opt`]s, whoever found it.

pub mod heuristic;
pub mod launch;

/// What an opt does to an axis.
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
    /// The inner `amount` of an output axis becomes threads of the workgroup.
    Local,
    /// The axis is rounded up to a multiple of `amount`.
    PadTo,
}

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
