//! The IR, which is complete and usable without the rest of the compiler: one node type serves from the user's tensor
//! to the program that a renderer prints.
//!
//! A [`UOp`] is a `u32` handle into a hash-consed, append-only [`Graph`]. A source's index is below its user's, so
//! index order is a topological order and every analysis is a dense side table. Nodes never change, and equal nodes are
//! the same node. What must not be here: rewriting, devices, anything that needs a target.

pub mod arg;
mod bounds;
mod build;
pub mod custom;
pub mod eval;
pub mod graph;
pub mod hash;
pub mod label;
pub mod mma;
pub mod op;
pub mod parse;
pub mod print;
pub mod random;
pub mod recurrence;
mod shape;
pub mod spec;
pub mod trace;

pub use arg::{Arg, Axes, AxisKind, Pairs, RangeArg, Shape, Space};
pub use graph::{Graph, RangeSet, UOp};
pub use op::{Op, ReduceOp, ScatterMode};
pub use trace::{Firing, Trace};

#[cfg(test)]
mod tests;
