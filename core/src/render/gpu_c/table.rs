//! The table of what differs between these kernel languages, as strings and small functions from strings to strings.

use super::super::cstyle::Spelling;
use crate::DType;
use crate::target::MatrixTile;

/// A kernel language.
pub(super) struct Table {
    /// Name of the language in error messages.
    pub name: &'static str,
    /// The text at the beginning of a unit: types named after dtypes, how a function begins (`GL_FN`), bit casts,
    /// conversions of 16-bit floats from and to bits, and [`super::super::cstyle::FUNCTIONS`] after the declarations
    /// that it needs.
    pub prelude: fn() -> String,
    /// Spelling of functions and constants.
    pub spelling: Spelling,
    /// Text that declares the vector type `{element}x{n}` with the lanes `x`, `y`, `z`, `w`; the arguments are the
    /// element type, n, and the size in bytes. It also declares `gl_select_{element}x{n}`, which selects one of two
    /// whole vectors by a bool, unless the language widens the bool to a vector by itself.
    pub vector: fn(&str, usize, usize) -> String,
    /// The expression for a vector of a type, from its scalars.
    pub pack: fn(&str, &str) -> String,
    /// Sums, differences, products and quotients of float vectors are written as those of scalars.
    pub vector_floats: bool,
    /// Expressions for the workgroup's number along each dimension of the grid.
    pub group: [&'static str; 3],
    /// Expressions for the thread's number in its workgroup.
    pub thread: [&'static str; 3],
    /// The statement at which the threads of a workgroup wait for each other; after it they see all writes to workgroup
    /// memory.
    pub barrier: &'static str,
    /// The keyword that begins the declaration of a workgroup array.
    pub shared: &'static str,
    /// The head of a kernel, up to its body.
    pub kernel: fn(&Kernel) -> String,
    /// The kernel parameters of a buffer.
    pub parameter: fn(&Buffer) -> String,
    /// The statement that computes the pointer `b{slot}` from these parameters; empty if a parameter is that pointer.
    pub view: fn(&Buffer) -> String,
    /// The kernel parameters of the launch scalars. The arguments are their types, and the number of buffers, whose
    /// parameters come before.
    pub scalars: fn(&[&str], usize) -> Vec<String>,
    /// The statement that defines the launch scalar `n{i}` of a type; `None` if a parameter has that name.
    pub scalar: Option<fn(usize, &str) -> String>,
    /// The expression for an exchange within a subgroup: a value, its dtype, its lanes and the bits in which the other
    /// thread's number differs.
    pub shuffle: Option<fn(&str, DType, usize, u8) -> String>,
    /// The text of a function `gl_dot(a, b, c)`, which adds to the `i32` c the products of the four signed bytes of the
    /// words a and b.
    pub dot: Option<&'static str>,
    /// The text of a function `gl_mma` that adds the product of two matrix tiles to variables: its parameters are
    /// references to these, then the registers of the left factor and of the right one. `None` for a tile that the
    /// language does not have.
    pub tile: fn(&MatrixTile) -> Option<String>,
}

/// Defaults for languages that are based on C++: vectors are made by functions of the prelude, a kernel gets buffers
/// with their offsets added and launch scalars as parameters, and there are no matrix tiles. Each language overrides
/// what differs.
pub(super) const CPP_DEFAULTS: Table = Table {
    name: "",
    prelude: String::new,
    spelling: Spelling { functions: &[], long: "LL", wraps: false },
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

/// Declares a vector as a structure, which is loaded and stored at once, with functions to make, select and exchange
/// it.
fn structure(e: &str, n: usize, bytes: usize) -> String {
    let list = |f: &dyn Fn(&str) -> String, between: &str| lanes(n).map(f).collect::<Vec<_>>().join(between);
    let (fields, each) = (list(&|l| l.to_string(), ", "), list(&|l| format!("{e} {l}"), ", "));
    let (set, moved) = (list(&|l| format!("v.{l} = {l};"), " "), list(&|l| format!("gl_shuffle(v.{l}, bits)"), ", "));
    let ty = format!("{e}x{n}");
    // loads have at most 16 bytes
    let align = bytes.min(16);
    format!(
        "struct __attribute__((aligned({align}))) {ty} {{ {e} {fields}; }};\n\
         GL_FN {ty} gl_{ty}({each}) {{ {ty} v; {set} return v; }}\n\
         GL_FN {ty} gl_select_{ty}(bool m, {ty} x, {ty} y) {{ return m ? x : y; }}\n\
         GL_FN {ty} gl_shuffle({ty} v, u32 bits) {{ return gl_{ty}({moved}); }}\n"
    )
}

/// The qualifier of a buffer's element type: `const` unless the kernel writes the buffer.
pub(super) fn constant(b: &Buffer) -> &'static str {
    if b.written { "" } else { "const " }
}

/// The name of an element type in languages with OpenCL's type names; [`TYPES`] defines the names after dtypes by
/// these.
pub(super) fn opencl_type(element: &str) -> &str {
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

/// Type definitions for languages with OpenCL's type names (see [`opencl_type`]).
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

/// `f` of each number below `n`, separated by commas.
pub(super) fn list(n: usize, f: impl Fn(usize) -> String) -> String {
    (0..n).map(f).collect::<Vec<_>>().join(", ")
}

/// Number of registers of a thread for each matrix of a tile.
pub(super) fn registers_per_thread(tile: &MatrixTile) -> [usize; 3] {
    [&tile.layout.a, &tile.layout.b, &tile.layout.c].map(|s| s.held())
}

/// Launch scalars as one parameter each.
fn parameters(types: &[&str], _buffers: usize) -> Vec<String> {
    types.iter().enumerate().map(|(i, ty)| format!("const {ty} n{i}")).collect()
}

/// The names of the first `n` lanes: `x`, `y`, `z`, `w`.
pub(super) fn lanes(n: usize) -> impl Iterator<Item = &'static str> {
    ["x", "y", "z", "w"].into_iter().take(n)
}

/// What a kernel's head contains.
pub(super) struct Kernel<'a> {
    pub name: &'a str,
    pub local: [u32; 3],
    /// All parameters, separated by commas.
    pub parameters: &'a str,
    /// Threads of a subgroup, if the kernel exchanges values within subgroups.
    pub subgroup: Option<u32>,
}

/// What a kernel's head contains of a buffer.
pub(super) struct Buffer<'a> {
    pub slot: usize,
    /// The type of an array element.
    pub ty: &'a str,
    pub written: bool,
}
