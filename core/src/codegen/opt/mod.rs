//! Optimisation as data: a kernel's schedule is a short list of [`Opt`]s, whoever found it: the heuristic, a search, a person, a test.
//!
//! Axes are named by the ids of their ranges and operands by the slots of their parameters, as the IR prints them; `text.rs` has the form
//! that people read and write.

pub mod actions;
mod ahead;
mod block;
mod chain;
mod dot;
mod elementwise;
mod gpu;
pub mod heuristic;
pub mod launch;
mod matrix;
pub(super) mod others;
mod refetch;
pub mod rows;
mod slide;
mod software;
mod text;
mod tiled;
mod words;

/// One step that changes how a kernel computes, and not what.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Opt {
    /// The inner `by` of an axis become `part`, what is left stays the axis. An output axis that `by` does not divide is cut so that its
    /// last piece overlaps the one before, where the kernel may compute an element twice (on a CPU, in kernels that do not read what
    /// they write).
    Cut {
        /// Range id.
        axis: u8,
        /// Length of the inner part.
        by: u32,
        /// What the inner part becomes.
        part: Part,
    },
    /// An axis is rounded up to a multiple of a number.
    Pad {
        /// Range id.
        axis: u8,
        /// What divides its length then.
        to: u32,
    },
    /// Two axes change places in the loop nest.
    Swap {
        /// Range id.
        axis: u8,
        /// Range id.
        with: u8,
    },
    /// Two output axes, or two of one reduction, become one, whatever addresses make of that: the first is the outer of its digits. For
    /// GPUs, in a build with matrix tiles.
    Join {
        /// Range id, which stays that of both.
        axis: u8,
        /// Range id.
        with: u8,
    },
    /// What a load reads is first copied to a local array.
    Stage(Staging),
    /// What the reduction over an axis computes and others compute again, each along an axis of its own, is computed once,
    /// into a local array. Comes before opts that give such values tile axes.
    Keep {
        /// Range id.
        axis: u8,
    },
}

/// What the inner part of an axis becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// An inner loop.
    Loop,
    /// Of an output axis: registers of the tile that a thread computes.
    Upcast,
    /// The vector axis (of a reduced axis: with lane-wise accumulators).
    Lane,
    /// Of a reduced axis: accumulators of their own.
    Accum,
    /// Of a reduced axis: the loop's body, so many times.
    Unroll,
    /// Of a reduced axis: what one instruction adds up, the innermost axis of copies.
    Dot,
    /// A side of a matrix tile, which one instruction multiplies: of an output axis its rows or its columns, of a reduced axis
    /// what it sums over. Takes all three; where the axes of a target's tile have these lengths, it is used.
    Tile,
    /// Of an output axis: threads of the workgroup.
    Local,
    /// Of a reduced axis: threads of the workgroup, which share the reduction: each reduces its part, and all read the parts of
    /// all from workgroup memory.
    Group,
}

/// Which load is copied to a local array, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Staging {
    /// Slot of the parameter that is read.
    pub param: u32,
    /// Which of its loads, in the order of the graph.
    pub load: u16,
    /// Where in the loop nest the copy is made.
    pub level: Level,
    /// Each window has elements of its own, also where overlapping ones could share them.
    pub apart: bool,
}

/// A place in a loop nest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Outside of all loops.
    Outside,
    /// Inside of the loop with this range id, and outside of all below it.
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
        Opt::Stage(Staging { param, load: 0, level, apart: false })
    }

    /// [`Opt::Keep`].
    pub const fn keep(axis: u8) -> Opt {
        Opt::Keep { axis }
    }

    /// The axis that it changes.
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

    /// The length of the part, if it cuts an axis to such parts.
    pub fn cuts(&self, to: Part) -> Option<usize> {
        match *self {
            Opt::Cut { by, part, .. } if part == to => Some(by as usize),
            _ => None,
        }
    }

    /// Is it about local arrays?
    const fn is_array(&self) -> bool {
        matches!(self, Opt::Stage(_) | Opt::Keep { .. })
    }
}

/// The last of the proposals that are made of a choice: nothing.
pub(super) const LAST_PROPOSAL: usize = 3;

/// What is proposed after so many proposals were refused: what was chosen; without local arrays; without what follows the first opt
/// that makes loops, since it may be about these; nothing.
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
