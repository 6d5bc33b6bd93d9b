//! What one kernel language has to say for itself, as data and small functions from words to words.

use super::super::cstyle::Words;
use crate::target::MatrixTile;

/// A kernel language.
pub(super) struct Table {
    /// For messages.
    pub name: &'static str,
    /// Types named after dtypes, the beginning of a function (`GL_FN`), casts of bits, and 16-bit floats from and to bits:
    /// what [`super::super::cstyle::FUNCTIONS`] asks for, with these functions in their place.
    pub prelude: fn() -> String,
    /// Functions and constants.
    pub words: Words,
    /// Declares the vector of so many of an element type, as `{element}x{n}`; its lanes are `x`, `y`, `z`, `w`. The last is its size in
    /// bytes. What picks one of two whole vectors is `gl_select_{element}x{n}`, unless the language makes a vector of the bool.
    pub vector: fn(&str, usize, usize) -> String,
    /// A vector of a type made of scalars.
    pub pack: fn(&str, &str) -> String,
    /// Sums, products and quotients of vectors of floats are written as those of scalars.
    pub vector_floats: bool,
    /// The number of the group along each dimension of the grid.
    pub group: [&'static str; 3],
    /// The number of the thread in its group.
    pub thread: [&'static str; 3],
    /// The statement at which the threads of a group wait for each other and see what all have written to their arrays.
    pub barrier: &'static str,
    /// Begins the declaration of an array of the group.
    pub shared: &'static str,
    /// The head of a kernel, up to its body.
    pub kernel: fn(&Kernel) -> String,
    /// The parameters of a buffer.
    pub parameter: fn(&Buffer) -> String,
    /// The statement that makes `b{slot}` of them.
    pub view: fn(&Buffer) -> String,
    /// The parameters of launch scalars, of which these are the types; those of so many buffers come before.
    pub scalars: fn(&[&str], usize) -> Vec<String>,
    /// The statement that makes `n{i}`, of a type, of the parameters, unless one of them has that name.
    pub scalar: Option<fn(usize, &str) -> String>,
    /// What the thread has for a value whose number differs in these bits.
    pub shuffle: Option<fn(&str, u8) -> String>,
    /// The text of a function `gl_mma` that adds the product of two matrix tiles to variables: its parameters are theirs, then the
    /// registers of the left factor and of the right one. `None` for a tile that it does not have.
    pub tile: fn(&MatrixTile) -> Option<String>,
}

/// `f` of each number below `n`, with commas.
pub(super) fn list(n: usize, f: impl Fn(usize) -> String) -> String {
    (0..n).map(f).collect::<Vec<_>>().join(", ")
}

/// Registers of a thread in each matrix of a tile.
pub(super) fn held(tile: &MatrixTile) -> [usize; 3] {
    [&tile.layout.a, &tile.layout.b, &tile.layout.c].map(|s| s.held())
}

/// Launch scalars as parameters of their own.
pub(super) fn parameters(types: &[&str], _buffers: usize) -> Vec<String> {
    types.iter().enumerate().map(|(i, ty)| format!("const {ty} n{i}")).collect()
}

/// Lanes `x`, `y`, `z`, `w`, of which there are so many.
pub(super) fn lanes(n: usize) -> impl Iterator<Item = &'static str> {
    ["x", "y", "z", "w"].into_iter().take(n)
}

/// A kernel, as its head shows it.
pub(super) struct Kernel<'a> {
    pub name: &'a str,
    pub local: [u32; 3],
    /// All of them, with commas.
    pub parameters: &'a str,
}

/// A buffer, as the kernel's head shows it.
pub(super) struct Buffer<'a> {
    pub slot: usize,
    /// The type of an array element.
    pub ty: &'a str,
    pub written: bool,
}
