//! Optimisation as data: how a kernel is computed is decided by a short list of [`Opt`]s (tile, vectorise, unroll,
//! stage, …), whether the heuristic, a search, a person or a test wrote it. `axes.rs` applies them.
//!
//! Axes are named by the ids of their ranges and operands by the slots of their parameters, as in the printed IR;
//! `text.rs` reads and writes the text form, e.g. `upcast r1 by 6, stage p2 in r3`.

pub mod actions;
mod block;
mod chain;
mod dot;
mod dot_bytes;
mod elementwise;
mod gpu;
pub mod heuristic;
pub mod launch;
mod matrix;
mod multi_buffered;
mod picked;
pub mod recurrence;
mod refetch;
mod registers;
pub(super) mod reorder;
pub mod rows;
mod slide;
mod software;
mod text;
mod tiled;
mod wide;

pub(super) use wide::lanes_of_a_vector;

/// One transformation that changes how a kernel computes its results, and not what they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Opt {
    /// Strip-mining: the axis is split into an outer axis, which keeps the id, and an inner axis of length `by`, which
    /// becomes `part`. If `by` does not divide the length of an output axis, the last tile is moved back so that it
    /// overlaps the one before it. That computes some elements twice, so it is done only where the kernel may (on a
    /// CPU, in kernels that do not read the buffers that they write).
    Cut {
        /// Range id.
        axis: u8,
        /// Length of the inner axis.
        by: u32,
        /// What the inner axis becomes.
        part: Part,
    },
    /// The length of an axis is rounded up to a multiple of `to`; the added iterations are masked.
    Pad {
        /// Range id.
        axis: u8,
        /// The new length is a multiple of this.
        to: u32,
    },
    /// Two axes swap their positions in the loop nest (loop interchange).
    Swap {
        /// Range id.
        axis: u8,
        /// Range id.
        with: u8,
    },
    /// Two output axes, or two axes of one reduction, are fused into one, even if addresses then need divisions: `axis`
    /// is the outer factor of the fused index and `with` the inner one. For GPUs, in builds with matrix tiles.
    Join {
        /// Range id of the outer axis; the fused axis keeps it.
        axis: u8,
        /// Range id.
        with: u8,
    },
    /// The elements that a load reads are first copied to a local array, and read from there.
    Stage(Staging),
    /// A value that the reduction over `axis` computes, and that other loops of the same length compute again, is
    /// computed once into a local array. Has to come before opts that give such a value tile axes.
    Keep {
        /// Range id.
        axis: u8,
    },
}

/// What the inner axis of a [`Opt::Cut`] becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// An inner loop.
    Loop,
    /// Of an output axis: several elements per iteration, in registers (a register tile).
    Upcast,
    /// The lanes of a vector. On a reduced axis each lane has a partial result of its own, and the lanes are combined
    /// after the loop.
    Lane,
    /// Of a reduced axis: several independent accumulators, which are combined after the loop.
    Accum,
    /// Of a reduced axis: the loop's body is repeated `by` times.
    Unroll,
    /// Of a reduced axis: the terms that one dot-product instruction adds up. It is the innermost axis of packed
    /// copies.
    Dot,
    /// One dimension of a matrix tile that a single instruction multiplies: rows or columns if the axis is an output
    /// axis, the summed dimension if it is a reduced one. All three have to be cut, to the lengths of one of the
    /// target's tiles.
    Tile,
    /// Of an output axis: the threads of a workgroup.
    Local,
    /// Of a reduced axis: the threads of a workgroup share the reduction. Each reduces its part, and all of them read
    /// all partial results from workgroup memory.
    Group,
}

/// Which load is staged in a local array, and where in the loop nest the array is filled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Staging {
    /// Slot of the parameter that the load reads.
    pub param: u32,
    /// Index among the loads from that parameter, in graph order.
    pub load: u16,
    /// Where in the loop nest the array is filled.
    pub level: Level,
    /// The array has separate elements for every window, even where overlapping windows could share them.
    pub separate_windows: bool,
}

/// A position in a loop nest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Outside all loops.
    Outside,
    /// Inside the loop with this range id, and outside all loops nested in it.
    In(u8),
}

macro_rules! cuts {
    ($($name:ident $part:ident),*) => {
        $(
            #[doc = concat!("[`Opt::Cut`] to [`Part::", stringify!($part), "`].")]
            pub const fn $name(axis: u8, by: usize) -> Opt {
                Opt::Cut { axis, by: by as u32, part: Part::$part }
            }
        )*
    };
}

impl Opt {
    cuts!(split Loop, upcast Upcast, lane Lane, accum Accum, unroll Unroll, dot Dot, tile Tile, local Local, group Group);

    /// [`Opt::Pad`].
    pub const fn pad(axis: u8, to: usize) -> Opt {
        Opt::Pad { axis, to: to as u32 }
    }

    /// [`Opt::Swap`].
    pub const fn swap(axis: u8, with: u8) -> Opt {
        Opt::Swap { axis, with }
    }

    /// [`Opt::Join`].
    pub const fn join(axis: u8, with: u8) -> Opt {
        Opt::Join { axis, with }
    }

    /// [`Opt::Stage`] of a parameter's first load.
    pub const fn stage(param: u32, level: Level) -> Opt {
        Opt::Stage(Staging { param, load: 0, level, separate_windows: false })
    }

    /// [`Opt::Keep`].
    pub const fn keep(axis: u8) -> Opt {
        Opt::Keep { axis }
    }

    /// The axis that the opt changes.
    pub const fn axis(&self) -> Option<u8> {
        match *self {
            Opt::Cut { axis, .. }
            | Opt::Pad { axis, .. }
            | Opt::Swap { axis, .. }
            | Opt::Join { axis, .. }
            | Opt::Keep { axis } => Some(axis),
            Opt::Stage(_) => None,
        }
    }

    /// The length of the inner axis, if the opt is a cut to this kind of part.
    pub fn cuts(&self, to: Part) -> Option<usize> {
        match *self {
            Opt::Cut { by, part, .. } if part == to => Some(by as usize),
            _ => None,
        }
    }

    /// Does the opt create a local array?
    const fn is_array(&self) -> bool {
        matches!(self, Opt::Stage(_) | Opt::Keep { .. })
    }
}

/// The number of the last attempt of [`proposal`], which has no opts.
pub(super) const LAST_PROPOSAL: usize = 3;

/// The opts to try after `refused` failed attempts: 0: all that were chosen; 1: without local arrays; 2: only those
/// before the first opt that makes loops or arrays, since the later ones may refer to these; 3: none.
pub(super) fn proposal(mut chosen: Vec<Opt>, refused: usize) -> Vec<Opt> {
    let loops = |o: &Opt| o.is_array() || matches!(o, Opt::Cut { part: Part::Loop, .. } | Opt::Swap { .. });
    match refused {
        0 => {}
        1 => chosen.retain(|o| !o.is_array()),
        2 => chosen.truncate(chosen.iter().position(loops).unwrap_or(0)),
        _ => chosen.clear(),
    }
    chosen
}
