//! Tables of the operations that a target may lack: for each output language, the ops for which it has a function or
//! instruction, the dtypes, and the name to print. Ops without a row are decomposed into simpler ones (`rules/decomp`);
//! printers take the name from the same row, so the two cannot disagree. Never: how an op is decomposed.

use super::DTypeSet;
use crate::DType;
use crate::uop::Op;
use std::fmt;

/// A function or instruction of a language, as a row of its table.
#[derive(Clone, Copy, PartialEq)]
pub struct Function {
    /// The op that it computes.
    pub op: Op,
    /// The dtypes that it takes.
    pub dtypes: DTypeSet,
    /// Its name in the language; empty where the printer or emitter does not print a named function for it.
    pub word: &'static str,
}

/// Prints the op alone. This text becomes part of cache keys, which also hold a fingerprint of the build, and the rest
/// of a row is fixed within a build.
impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.op.fmt(f)
    }
}

const FLOATS: DTypeSet = DTypeSet::of(&[DType::F16, DType::BF16, DType::F32, DType::F64]);
const F32: DTypeSet = DTypeSet::of(&[DType::F32]);
const F64: DTypeSet = DTypeSet::of(&[DType::F64]);
const I32: DTypeSet = DTypeSet::of(&[DType::I32]);

const fn row(op: Op, dtypes: DTypeSet, word: &'static str) -> Function {
    Function { op, dtypes, word }
}

/// Functions of the interpreter. It has every op that a target may lack although the target computes in the op's dtype,
/// so this table also lists the ops that are optional. Float results are within 2 ulp.
pub const EVAL: &[Function] = &[
    row(Op::Exp2, FLOATS, ""),
    row(Op::Log2, FLOATS, ""),
    row(Op::Sin, FLOATS, ""),
    row(Op::Cos, FLOATS, ""),
    row(Op::Tan, FLOATS, ""),
    row(Op::Sqrt, FLOATS, ""),
    row(Op::Trunc, FLOATS, ""),
    row(Op::Pow, FLOATS, ""),
    row(Op::Imod, FLOATS, ""),
    row(Op::DotBytes, I32, ""),
    row(Op::DotPairs, I32, ""),
    row(Op::LookupBytes, I32, ""),
];

/// Instructions of AArch64.
pub const PROCESSOR: &[Function] =
    &[row(Op::Sqrt, FLOATS, ""), row(Op::Trunc, FLOATS, ""), row(Op::LookupBytes, I32, "")];

/// Instructions of WebAssembly.
pub const WASM: &[Function] =
    &[row(Op::Sqrt, FLOATS, ""), row(Op::Trunc, FLOATS, ""), row(Op::DotPairs, I32, ""), row(Op::LookupBytes, I32, "")];

/// Instructions of x86-64.
pub const X86: &[Function] = &[
    row(Op::Sqrt, FLOATS, ""),
    row(Op::Trunc, FLOATS, ""),
    row(Op::DotBytes, I32, ""),
    row(Op::DotPairs, I32, ""),
    row(Op::LookupBytes, I32, ""),
];

/// Functions of WGSL.
pub const WGSL: &[Function] = &[row(Op::Sqrt, FLOATS, "sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Functions of C's `math.h`.
pub const C: &[Function] = &[
    row(Op::Sqrt, F32, "sqrtf"),
    row(Op::Trunc, F32, "truncf"),
    row(Op::Sqrt, F64, "sqrt"),
    row(Op::Trunc, F64, "trunc"),
];

/// Builtins of GCC and clang, which HIP has too.
pub const GNU_C: &[Function] = &[
    row(Op::Sqrt, F32, "__builtin_sqrtf"),
    row(Op::Trunc, F32, "__builtin_truncf"),
    row(Op::Sqrt, F64, "__builtin_sqrt"),
    row(Op::Trunc, F64, "__builtin_trunc"),
];

/// Intrinsics of LLVM: the part of the name between `llvm.` and the type.
pub const LLVM: &[Function] = &[row(Op::Sqrt, FLOATS, "sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Functions of OpenCL C.
pub const OPENCL: &[Function] = &[row(Op::Sqrt, FLOATS, "sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Functions of Metal's shading language.
pub const METAL: &[Function] = &[row(Op::Sqrt, FLOATS, "precise::sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Instructions of PTX.
pub const PTX: &[Function] = &[
    row(Op::Sqrt, F32, "sqrt.rn.f32"),
    row(Op::Trunc, F32, "cvt.rzi.f32.f32"),
    row(Op::Sqrt, F64, "sqrt.rn.f64"),
    row(Op::Trunc, F64, "cvt.rzi.f64.f64"),
    row(Op::DotBytes, I32, ""),
];

/// The row for an op on a dtype.
pub fn find(functions: &[Function], op: Op, dt: DType) -> Option<&Function> {
    functions.iter().find(|f| f.op == op && f.dtypes.has(dt))
}

/// The name of the function for `op` on `dt`; `None` if there is no row for it or the row has no name.
pub fn word(functions: &[Function], op: Op, dt: DType) -> Option<&'static str> {
    find(functions, op, dt).map(|f| f.word).filter(|w| !w.is_empty())
}
