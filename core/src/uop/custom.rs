//! Kernels that users write. In the IR one is an op over whole buffers, with what a launch needs beside it: code in WGSL, that nothing here
//! reads, or loops in the IR itself, which are compiled like any others.

use super::{Graph, UOp};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A kernel as its user wrote it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Custom {
    /// What messages call it.
    pub name: Box<str>,
    /// A module in WGSL, whose entry point is `main` and whose bindings are those of group 0 in the order of the op's sources; or the text
    /// of the loops.
    pub code: Box<str>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// How many of the sources it writes: the first ones.
    pub outputs: usize,
    /// What the code says, if it is no WGSL: a kernel over params in the order of the op's sources.
    pub loops: Option<Loops>,
}

/// A kernel as the scheduler makes it: its Sink has one Store, into param 0. It is what a text says, so that texts are compared in its place.
#[derive(Clone)]
pub struct Loops {
    /// The nodes.
    pub graph: Arc<Graph>,
    /// The Sink.
    pub sink: UOp,
}

impl PartialEq for Loops {
    fn eq(&self, _: &Loops) -> bool {
        true
    }
}

impl Eq for Loops {}

impl Hash for Loops {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("loops")
    }
}
