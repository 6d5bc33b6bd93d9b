//! What one kernel language has to say for itself, as data and small functions from words to words.

use super::super::cstyle::Words;
use crate::DType;
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
    /// What the thread has for a value whose number differs in these bits: a scalar of a dtype, or a vector of so many lanes.
    pub shuffle: Option<fn(&str, DType, usize, u8) -> String>,
    /// The text of a function `gl_dot`, from two words of four signed bytes and an `i32`, to which it adds their products.
    pub dot: Option<&'static str>,
    /// The text of a function `gl_mma` that adds the product of two matrix tiles to variables: its parameters are theirs, then the
    /// registers of the left factor and of the right one. `None` for a tile that it does not have.
    pub tile: fn(&MatrixTile) -> Option<String>,
}

/// What languages that grew out of C++ have in common: vectors are made by functions of the prelude, a kernel gets its buffers with their
/// offsets added and launch scalars as parameters, and has no matrix tiles. Each language names what differs.
pub(super) const CPLUSPLUS: Table = Table {
    name: "",
    prelude: String::new,
    words: Words { functions: &[], long: "LL", wraps: false },
    vector: structure,
    pack: |ty, xs| format!("gl_{ty}({xs})"),
    vector_floats: false,
    group: ["blockIdx.x", "blockIdx.y", "blockIdx.z"],
    thread: ["threadIdx.x", "threadIdx.y", "threadIdx.z"],
    barrier: "__syncthreads();",
    shared: "__shared__",
    kernel: |k| format!("void {}({})", k.name, k.parameters),
    parameter: |b| format!("{}{}* __restrict__ b{}", constant(b), b.ty, b.slot),
    view: |_| String::new(),
    scalars: parameters,
    scalar: None,
    shuffle: Some(|x, _, _, bits| format!("gl_shuffle({x}, {bits})")),
    dot: None,
    tile: |_| None,
};

/// A vector as a structure, which is moved at once, with the function that makes it and the one that exchanges it.
fn structure(e: &str, n: usize, bytes: usize) -> String {
    let list = |f: &dyn Fn(&str) -> String, between: &str| lanes(n).map(f).collect::<Vec<_>>().join(between);
    let (fields, each) = (list(&|l| l.to_string(), ", "), list(&|l| format!("{e} {l}"), ", "));
    let (set, moved) = (list(&|l| format!("v.{l} = {l};"), " "), list(&|l| format!("gl_shuffle(v.{l}, bits)"), ", "));
    let ty = format!("{e}x{n}");
    // no load is of more than 16 bytes
    let align = bytes.min(16);
    format!(
        "struct __attribute__((aligned({align}))) {ty} {{ {e} {fields}; }};\n\
         GL_FN {ty} gl_{ty}({each}) {{ {ty} v; {set} return v; }}\n\
         GL_FN {ty} gl_select_{ty}(bool m, {ty} x, {ty} y) {{ return m ? x : y; }}\n\
         GL_FN {ty} gl_shuffle({ty} v, u32 bits) {{ return gl_{ty}({moved}); }}\n"
    )
}

/// Begins the type of what a buffer's pointer points to.
pub(super) fn constant(b: &Buffer) -> &'static str {
    if b.written { "" } else { "const " }
}

/// The name of an element type in languages that have OpenCL's names for them, which [`TYPES`] names after dtypes.
pub(super) fn word(element: &str) -> &str {
    match element {
        "i8" => "char",
        "i16" => "short",
        "i32" => "int",
        "i64" => "long",
        "u8" => "uchar",
        "u16" => "ushort",
        "u32" => "uint",
        "u64" => "ulong",
        "f32" => "float",
        _ => "double",
    }
}

/// See [`word`].
pub(super) const TYPES: &str = r##"typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;
"##;

/// `f` of each number below `n`, with commas.
pub(super) fn list(n: usize, f: impl Fn(usize) -> String) -> String {
    (0..n).map(f).collect::<Vec<_>>().join(", ")
}

/// Registers of a thread in each matrix of a tile.
pub(super) fn held(tile: &MatrixTile) -> [usize; 3] {
    [&tile.layout.a, &tile.layout.b, &tile.layout.c].map(|s| s.held())
}

/// Launch scalars as parameters of their own.
fn parameters(types: &[&str], _buffers: usize) -> Vec<String> {
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
    /// Threads of a subgroup, where they exchange values.
    pub subgroup: Option<u32>,
}

/// A buffer, as the kernel's head shows it.
pub(super) struct Buffer<'a> {
    pub slot: usize,
    /// The type of an array element.
    pub ty: &'a str,
    pub written: bool,
}
