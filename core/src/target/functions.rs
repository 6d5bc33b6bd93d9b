//! Functions that languages have for ops which others compute of simpler ones: for each language the ops that it has, on which dtypes, and the
//! word for them. What a printer calls a function and what `rules/decomp` leaves alone is the same row. Never: how the simpler ones go.

use super::DTypeSet;
use crate::DType;
use crate::uop::Op;
use std::fmt;

/// A function of a language.
#[derive(Clone, Copy, PartialEq)]
pub struct Function {
    /// What it computes.
    pub op: Op,
    /// The dtypes that it takes.
    pub dtypes: DTypeSet,
    /// What it is called; empty where the printer or emitter has its own way.
    pub word: &'static str,
}

/// For keys, which tell builds apart too: the rest of a row is the build's.
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

/// The interpreter's, which are all that a target may lack although it has their dtype. Floats of these are within 2 ulp.
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
];

/// Instructions of AArch64 and of WebAssembly.
pub const PROCESSOR: &[Function] = &[row(Op::Sqrt, FLOATS, ""), row(Op::Trunc, FLOATS, "")];

/// Instructions of x86-64.
pub const X86: &[Function] = &[row(Op::Sqrt, FLOATS, ""), row(Op::Trunc, FLOATS, ""), row(Op::DotBytes, I32, "")];

/// Of WGSL.
pub const WGSL: &[Function] = &[row(Op::Sqrt, FLOATS, "sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Of C's `math.h`.
pub const C: &[Function] = &[
    row(Op::Sqrt, F32, "sqrtf"),
    row(Op::Trunc, F32, "truncf"),
    row(Op::Sqrt, F64, "sqrt"),
    row(Op::Trunc, F64, "trunc"),
];

/// Of GCC and clang, as HIP has them too.
pub const GNU_C: &[Function] = &[
    row(Op::Sqrt, F32, "__builtin_sqrtf"),
    row(Op::Trunc, F32, "__builtin_truncf"),
    row(Op::Sqrt, F64, "__builtin_sqrt"),
    row(Op::Trunc, F64, "__builtin_trunc"),
];

/// Intrinsics of LLVM, after `llvm.` and before the type.
pub const LLVM: &[Function] = &[row(Op::Sqrt, FLOATS, "sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Of OpenCL C.
pub const OPENCL: &[Function] = &[row(Op::Sqrt, FLOATS, "sqrt"), row(Op::Trunc, FLOATS, "trunc")];

/// Of Metal's shading language.
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

/// What a language with these functions calls an op on a dtype, if it has a word for it.
pub fn word(functions: &[Function], op: Op, dt: DType) -> Option<&'static str> {
    find(functions, op, dt).map(|f| f.word).filter(|w| !w.is_empty())
}
