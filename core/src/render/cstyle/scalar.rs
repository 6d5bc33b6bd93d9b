//! Scalar expressions for the languages of C's family, over types named after dtypes (`f32`, `u8`), and the text of
//! helper functions for operations that C lacks or defines differently from the IR (docs/numerics.md). A language
//! supplies its types, its bit casts and the names of its functions.
//!
//! f16 and bf16 values are held as their bits (`u16`); only casts interpret them.

use super::Alu;
use crate::DType::{self, *};
use crate::dtype::Scalar;
use crate::target::functions::{self, Function};
use crate::uop::Op;

/// What is spelled differently in each language.
pub(in crate::render) struct Spelling {
    /// Its functions, such as `sqrt`.
    pub functions: &'static [Function],
    /// The suffix of a 64-bit integer literal.
    pub long: &'static str,
    /// Signed integer arithmetic wraps in this language. If not, operations that may overflow are done on unsigned
    /// integers.
    pub wraps: bool,
}

/// The type in memory. A bool is a byte there.
pub(in crate::render) fn memory_type(dt: DType) -> &'static str {
    match dt {
        Bool => "u8",
        F16 | BF16 => "u16",
        Void => "void",
        _ => dt.name(),
    }
}

/// A literal.
pub(in crate::render) fn literal(w: &Spelling, v: Scalar, dt: DType) -> String {
    let (f, long) = (v.as_f64(), w.long);
    match dt {
        I64 if v.as_i64() == i64::MIN => format!("(-9223372036854775807{long} - 1)"),
        I64 if v.as_i64() < 0 => format!("({}{long})", v.as_i64()),
        I64 => format!("{}{long}", v.as_i64()),
        U64 => format!("{}U{long}", v.as_i64() as u64),
        I32 if v.as_i64() == i32::MIN as i64 => "(-2147483647 - 1)".into(),
        U32 => format!("{}U", v.as_i64() as u32),
        F16 => half::f16::from_f64(f).to_bits().to_string(),
        BF16 => half::bf16::from_f64(f).to_bits().to_string(),
        F32 if !(f as f32).is_finite() => format!("gl_f32_bits({:#x}U)", (f as f32).to_bits()),
        F32 => format!("({:?}f)", f as f32),
        F64 if !f.is_finite() => format!("gl_f64_bits({:#x}U{long})", f.to_bits()),
        F64 => format!("({f:?})"),
        _ if v.as_i64() < 0 => format!("({})", v.as_i64()),
        _ => v.as_i64().to_string(),
    }
}

/// The expression of an operation; `x` are names or literals. `None` if the languages have none.
pub(in crate::render) fn scalar(w: &Spelling, a: Alu, x: &[String]) -> Option<String> {
    let (ty, from) = (memory_type(a.to), memory_type(a.from));
    let bits = a.from.bits() - 1;
    Some(match a.op {
        Op::Cast => cast(a.from, a.to, &x[0])?,
        Op::Bitcast => bitcast(a.from, a.to, &x[0])?,
        Op::Where => format!("{} ? {} : {}", x[0], x[1], x[2]),
        Op::CmpLt if a.from == Bool => format!("!{} & {}", x[0], x[1]),
        Op::CmpLt => format!("{} < {}", x[0], x[1]),
        Op::CmpEq => format!("{} == {}", x[0], x[1]),
        Op::CmpNe => format!("{} != {}", x[0], x[1]),
        _ if matches!(a.from, F16 | BF16) => return None,
        Op::Neg if a.from.is_float() => format!("-{}", x[0]),
        Op::Recip if a.from.is_float() => format!("1 / {}", x[0]),
        Op::Div if a.from.is_float() => format!("{} / {}", x[0], x[1]),
        Op::Max | Op::Min if a.from.is_float() => format!("gl_{}_{from}({}, {})", a.op.name(), x[0], x[1]),
        // not `a > b ? a : b`: GCC 12.2 computes that in vectors of masks, whose true lanes are 255, and stores 255
        Op::Add | Op::Max if a.from == Bool => format!("{} | {}", x[0], x[1]),
        Op::Min if a.from == Bool => format!("{} & {}", x[0], x[1]),
        Op::MulAdd if a.from == Bool => format!("({} & {}) | {}", x[0], x[1], x[2]),
        Op::Neg | Op::Add | Op::Sub | Op::Mul | Op::MulAdd => arithmetic(w, a, x),
        Op::Idiv if a.positive => format!("({ty})({} / {})", x[0], x[1]),
        Op::Imod if a.positive => format!("({ty})({} % {})", x[0], x[1]),
        Op::Idiv => format!("gl_div_{from}({}, {})", x[0], x[1]),
        Op::Imod => format!("gl_mod_{from}({}, {})", x[0], x[1]),
        Op::Max => format!("{0} > {1} ? {0} : {1}", x[0], x[1]),
        Op::Min => format!("{0} < {1} ? {0} : {1}", x[0], x[1]),
        Op::And => format!("({ty})({} & {})", x[0], x[1]),
        Op::Or => format!("({ty})({} | {})", x[0], x[1]),
        Op::Xor => format!("({ty})({} ^ {})", x[0], x[1]),
        Op::Shl if unsigned(w, a).is_some() => {
            format!("({ty})(({}){} << ({} & {bits}))", unsigned(w, a)?, x[0], x[1])
        }
        Op::Shl => format!("({ty})({} << ({} & {bits}))", x[0], x[1]),
        Op::Shr => format!("({ty})({} >> ({} & {bits}))", x[0], x[1]),
        op => format!("{}({})", functions::word(w.functions, op, a.from)?, x[0]),
    })
}

/// The unsigned type in which integers are added and multiplied if their own type must not overflow.
fn unsigned(w: &Spelling, a: Alu) -> Option<&'static str> {
    match a.from {
        _ if w.wraps || a.no_wrap => None,
        // narrow integers are promoted to int, which is signed, so their products may overflow
        I8 | I16 | U16 | I32 => Some("u32"),
        I64 => Some("u64"),
        _ => None,
    }
}

fn arithmetic(w: &Spelling, a: Alu, x: &[String]) -> String {
    let ty = memory_type(a.to);
    let x: Vec<String> = match unsigned(w, a) {
        Some(u) => x.iter().map(|x| format!("({u}){x}")).collect(),
        None => x.to_vec(),
    };
    match a.op {
        Op::Neg if unsigned(w, a).is_some() => format!("({ty})(0U - {})", x[0]),
        Op::Neg => format!("({ty})(0 - {})", x[0]),
        Op::Add => format!("({ty})({} + {})", x[0], x[1]),
        Op::Sub => format!("({ty})({} - {})", x[0], x[1]),
        Op::Mul => format!("({ty})({} * {})", x[0], x[1]),
        _ => format!("({ty})({} * {} + {})", x[0], x[1], x[2]),
    }
}

fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    // 16-bit floats go through f32
    match (from, to) {
        (F16, _) => return cast(F32, to, &format!("gl_from_f16({x})")),
        (BF16, _) => return cast(F32, to, &format!("gl_from_bf16({x})")),
        (_, F16) => return Some(format!("gl_to_f16((f32)({x}))")),
        (_, BF16) => return Some(format!("gl_to_bf16((f32)({x}))")),
        _ => {}
    }
    Some(match to {
        Bool => format!("{x} != 0"),
        _ if from.is_float() && to.is_int() => format!("gl_{}_{}({x})", from.name(), to.name()),
        _ => format!("({})({x})", memory_type(to)),
    })
}

fn bitcast(from: DType, to: DType, x: &str) -> Option<String> {
    Some(match (from, to) {
        (F32, _) if to.size() == 4 => format!("({})gl_bits_f32({x})", memory_type(to)),
        (F64, _) if to.size() == 8 => format!("({})gl_bits_f64({x})", memory_type(to)),
        (_, F32) if from.size() == 4 => format!("gl_f32_bits((u32){x})"),
        (_, F64) if from.size() == 8 => format!("gl_f64_bits((u64){x})"),
        _ if from.size() == to.size() => format!("({}){x}", memory_type(to)),
        _ => return None,
    })
}

/// Helper functions on types that are named after dtypes. Before this text a language defines how a function begins
/// (`GL_FN`) and the bit casts `gl_bits_f32` and `gl_f32_bits`, and if it has f64, `GL_F64` and the casts for it. No
/// constant here has a suffix in which languages differ: powers of two are exact as f32.
pub(in crate::render) const FUNCTIONS: &str = r##"#define GL_INT(T) \
  GL_FN T gl_div_##T(T x, T y) { return y == 0 ? x : (T)-1 < 0 && y == (T)-1 ? (T)GL_NEG(x) : (T)(x / y); } \
  GL_FN T gl_mod_##T(T x, T y) { return y == 0 || ((T)-1 < 0 && y == (T)-1) ? 0 : (T)(x % y); }
#define GL_NEG(x) ((u64)0 - (u64)(x))
GL_INT(i8) GL_INT(i16) GL_INT(i32) GL_INT(i64) GL_INT(u8) GL_INT(u16) GL_INT(u32) GL_INT(u64)
#define GL_I64_MAX ((i64)(~(u64)0 >> 1))
#define GL_SAT(F, T, MIN, MAX, END) \
  GL_FN T gl_##F##_##T(F x) { return x != x ? 0 : x <= (F)(MIN) ? (T)(MIN) : x >= (F)(END) ? (T)(MAX) : (T)x; }
#define GL_SATS(F) \
  GL_SAT(F, i8, -128, 127, 128) GL_SAT(F, i16, -32768, 32767, 32768) \
  GL_SAT(F, i32, -2147483647 - 1, 2147483647, 2147483648.0f) \
  GL_SAT(F, i64, -GL_I64_MAX - 1, GL_I64_MAX, 9223372036854775808.0f) \
  GL_SAT(F, u8, 0, 255, 256) GL_SAT(F, u16, 0, 65535, 65536) GL_SAT(F, u32, 0, 4294967295U, 4294967296.0f) \
  GL_SAT(F, u64, 0, ~(u64)0, 18446744073709551616.0f)
#define GL_FLOAT(T) \
  GL_FN T gl_max_##T(T x, T y) { return x != x || x > y ? x : y; } \
  GL_FN T gl_min_##T(T x, T y) { return x != x || x < y ? x : y; }
GL_SATS(f32) GL_FLOAT(f32)
#ifdef GL_F64
GL_SATS(f64) GL_FLOAT(f64)
#endif
GL_FN f32 gl_from_bf16(u16 x) { return gl_f32_bits((u32)x << 16); }
GL_FN u16 gl_to_bf16(f32 x) {
  u32 a = gl_bits_f32(x);
  return x != x ? (u16)(a >> 16 | 64) : (u16)((a + 0x7fff + ((a >> 16) & 1)) >> 16);
}
"##;
