//! Kernels that users write: code that nothing here reads. In the IR one is an op over whole buffers, with what a launch needs beside it.

/// A kernel as its user wrote it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Custom {
    /// What messages call it.
    pub name: Box<str>,
    /// A module in WGSL, whose entry point is `main` and whose bindings are those of group 0 in the order of the op's sources.
    pub code: Box<str>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// How many of the sources it writes: the first ones.
    pub outputs: usize,
}
