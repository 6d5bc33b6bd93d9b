//! Elementwise ops as WGSL expressions, by dtype.

use super::super::cstyle::Alu;
use super::dialect::{Wgsl, memory_type, scalar_type};
use crate::DType::{self, *};
use crate::target::functions;
use crate::uop::Op;
use crate::{Error, Result};

/// An expression for the op; `x` holds the operands, which are names or literals.
pub(super) fn print(w: &mut Wgsl, a: Alu, x: &[String], lanes: usize) -> Result<String> {
    if a.op == Op::Cast {
        return Ok(cast(w, a.from, a.to, &x[0], lanes));
    }
    if a.op == Op::Bitcast {
        return bitcast(w, a.from, a.to, &x[0], lanes);
    }
    if a.op == Op::Where {
        return Ok(format!("select({}, {}, {})", x[2], x[1], x[0]));
    }
    let e = match a.from {
        from if let Some(word) = functions::word(functions::WGSL, a.op, from) => Some(format!("{word}({})", x[0])),
        Bool => boolean(a, x, lanes),
        I64 | U64 => w.long(a, x),
        _ if a.from.is_float() => folded(w, a, x, lanes).or_else(|| float(w, a, x, lanes)),
        _ => integer(w, a, x, lanes),
    };
    let e =
        e.ok_or_else(|| Error::Unsupported { what: format!("{:?} on {}", a.op, a.from), context: "wgsl".into() })?;
    Ok(if a.to == a.from { narrow(w, a.to, e, lanes) } else { e })
}

/// Wraps or rounds the result of 32-bit arithmetic to a narrower dtype.
pub(super) fn narrow(w: &mut Wgsl, dt: DType, e: String, lanes: usize) -> String {
    match dt {
        I8 => format!("extractBits({e}, 0u, 8u)"),
        I16 => format!("extractBits({e}, 0u, 16u)"),
        U8 => format!("(({e}) & {}(255u))", memory_type(U32, lanes)),
        U16 => format!("(({e}) & {}(65535u))", memory_type(U32, lanes)),
        F16 => format!("{}({e})", w.round_f16(lanes)),
        BF16 => format!("{}({e})", w.round_bf16(lanes)),
        _ => e,
    }
}

fn boolean(a: Alu, x: &[String], lanes: usize) -> Option<String> {
    // `&` and `|`, unlike `&&` and `||`, accept vectors and do not branch
    Some(match a.op {
        Op::Add | Op::Or | Op::Max => format!("{} | {}", x[0], x[1]),
        Op::Mul | Op::And | Op::Min => format!("{} & {}", x[0], x[1]),
        Op::MulAdd => format!("({} & {}) | {}", x[0], x[1], x[2]),
        Op::Xor | Op::CmpNe | Op::Sub => format!("{} != {}", x[0], x[1]),
        Op::CmpEq => format!("{} == {}", x[0], x[1]),
        Op::CmpLt if lanes == 1 => format!("!{} & {}", x[0], x[1]),
        Op::CmpLt => format!("!({}) & {}", x[0], x[1]),
        Op::Neg => x[0].clone(),
        _ => return None,
    })
}

fn integer(w: &mut Wgsl, a: Alu, x: &[String], lanes: usize) -> Option<String> {
    let ty = memory_type(a.from, lanes);
    let unsigned = memory_type(U32, lanes);
    Some(match a.op {
        Op::Neg if a.from.is_signed() => format!("-{}", x[0]),
        Op::Neg => format!("{ty}(0u) - {}", x[0]),
        Op::Add => format!("{} + {}", x[0], x[1]),
        Op::Sub => format!("{} - {}", x[0], x[1]),
        Op::Mul => format!("{} * {}", x[0], x[1]),
        Op::MulAdd => format!("{} * {} + {}", x[0], x[1], x[2]),
        // WGSL defines x/0 = x, x%0 = 0 and MIN/-1 = MIN, but not all drivers do it, so only positive divisors use the
        // operator
        Op::Idiv if a.positive => format!("{} / {}", x[0], x[1]),
        Op::Imod if a.positive => format!("{} % {}", x[0], x[1]),
        Op::Idiv | Op::Imod => format!("{}({}, {})", w.divide(a.op, a.from, lanes), x[0], x[1]),
        Op::Max => format!("max({}, {})", x[0], x[1]),
        Op::Min => format!("min({}, {})", x[0], x[1]),
        Op::And => format!("{} & {}", x[0], x[1]),
        Op::Or => format!("{} | {}", x[0], x[1]),
        Op::Xor => format!("{} ^ {}", x[0], x[1]),
        Op::Shl | Op::Shr => {
            let sign = if a.op == Op::Shl { "<<" } else { ">>" };
            let whole = |v: &'_ str| Some(v.strip_prefix(&format!("{ty}("))?.strip_suffix(')')?.to_string());
            let literal = whole(&x[1]).unwrap_or_else(|| x[1].clone());
            let by = literal.trim_end_matches(['i', 'u']).parse::<u32>();
            if let Some(by) = by.ok().filter(|&n| n < a.from.bits() as u32) {
                return Some(match lanes {
                    1 => format!("{} {sign} {by}u", x[0]),
                    _ => format!("{} {sign} {unsigned}({by}u)", x[0]),
                });
            }
            format!("{} {sign} ({unsigned}({}) & {unsigned}({}u))", x[0], x[1], a.from.bits() - 1)
        }
        Op::CmpLt => format!("{} < {}", x[0], x[1]),
        Op::CmpEq => format!("{} == {}", x[0], x[1]),
        Op::CmpNe => format!("{} != {}", x[0], x[1]),
        _ => return None,
    })
}

/// Expressions that a shader compiler may fold to a constant, since it may assume that there are no infinities and
/// NaNs: `x - x`, `x + -x`, `x / x`, and products and quotients with zero. They are printed as selections by the bits
/// of x instead, which give the right result for every x.
fn folded(w: &mut Wgsl, a: Alu, x: &[String], lanes: usize) -> Option<String> {
    let (ty, u32v) = (memory_type(F32, lanes), memory_type(U32, lanes));
    let of = match a.op {
        Op::Sub | Op::Div if a.same => &x[0],
        Op::Add if a.opposite => &x[0],
        Op::Mul | Op::MulAdd => &x[1 - a.zero_source?],
        Op::Div if a.zero_source == Some(0) => &x[1],
        _ => return None,
    };
    let mut odd = match a.op {
        Op::Div if !a.same => format!("{}({of})", w.is_nan(lanes)),
        _ => format!("{}({of})", w.is_not_finite(lanes)),
    };
    if a.op == Op::Div {
        odd = format!("({odd} | ({of} == {ty}(0.0)))");
    }
    let value = match a.zero_source {
        _ if a.same || a.opposite => format!("{ty}({})", if a.op == Op::Div { "1.0" } else { "0.0" }),
        // a zero with the sign of the product or quotient
        zero => {
            let zero = &x[zero?];
            format!("bitcast<{ty}>((bitcast<{u32v}>({of}) ^ bitcast<{u32v}>({zero})) & {u32v}(0x80000000u))")
        }
    };
    let e = format!("select({value}, {ty}({}), {odd})", w.float(f32::NAN));
    Some(if a.op == Op::MulAdd { format!("{e} + {}", x[2]) } else { e })
}

fn float(w: &mut Wgsl, a: Alu, x: &[String], lanes: usize) -> Option<String> {
    let ty = memory_type(F32, lanes);
    Some(match a.op {
        Op::Neg => format!("-{}", x[0]),
        Op::Recip => format!("{ty}(1.0) / {}", x[0]),
        Op::Add => format!("{} + {}", x[0], x[1]),
        Op::Sub => format!("{} - {}", x[0], x[1]),
        Op::Mul => format!("{} * {}", x[0], x[1]),
        Op::MulAdd => format!("fma({}, {}, {})", x[0], x[1], x[2]),
        Op::Div => format!("{} / {}", x[0], x[1]),
        Op::Max | Op::Min => format!("{}({}, {})", w.min_max_helper(a.op, a.second_is_not_nan, lanes), x[0], x[1]),
        Op::CmpLt => format!("{} < {}", x[0], x[1]),
        Op::CmpEq if a.same => format!("!{}({})", w.is_nan(lanes), x[0]),
        Op::CmpNe if a.same => format!("{}({})", w.is_nan(lanes), x[0]),
        Op::CmpEq => format!("{} == {}", x[0], x[1]),
        // SwiftShader evaluates `!=` as false if an operand is NaN
        Op::CmpNe => format!("!({} == {})", x[0], x[1]),
        _ => return None,
    })
}

fn cast(w: &mut Wgsl, from: DType, to: DType, x: &str, lanes: usize) -> String {
    if matches!(from, I64 | U64) || matches!(to, I64 | U64) {
        return w.long_cast(from, to, x);
    }
    let (i32v, u32v, ty) = (memory_type(I32, lanes), memory_type(U32, lanes), memory_type(to, lanes));
    match (from, to) {
        (_, Bool) if from.is_float() => {
            format!("((bitcast<{u32v}>({x}) & {u32v}(0x7fffffffu)) != {u32v}(0u))")
        }
        (_, Bool) => format!("({x} != {}({}))", memory_type(from, lanes), if from.is_signed() { "0i" } else { "0u" }),
        (Bool, _) => format!("{ty}({x})"),
        _ if from.is_float() && to.is_float() => {
            let widens = to == F32 || to == from;
            if widens { x.to_string() } else { narrow(w, to, x.to_string(), lanes) }
        }
        _ if to.is_float() => {
            let e = format!("{}({x})", memory_type(F32, lanes));
            narrow(w, to, e, lanes)
        }
        _ if from.is_float() => {
            let e = format!("{}({x})", w.saturate(scalar_type(to), lanes));
            match to {
                I8 => format!("clamp({e}, {i32v}(-128), {i32v}(127))"),
                I16 => format!("clamp({e}, {i32v}(-32768), {i32v}(32767))"),
                U8 => format!("min({e}, {u32v}(255u))"),
                U16 => format!("min({e}, {u32v}(65535u))"),
                _ => e,
            }
        }
        _ => {
            let fits = match (from.int_range(), to.int_range()) {
                (Some((a, b)), Some((c, d))) => a >= c && b <= d,
                _ => false,
            };
            let e = if scalar_type(from) == scalar_type(to) { x.to_string() } else { format!("{ty}({x})") };
            if fits { e } else { narrow(w, to, e, lanes) }
        }
    }
}

fn bitcast(w: &mut Wgsl, from: DType, to: DType, x: &str, lanes: usize) -> Result<String> {
    let (u32v, ty) = (memory_type(U32, lanes), memory_type(to, lanes));
    if matches!(from, I64 | U64) && matches!(to, I64 | U64) {
        return Ok(x.to_string());
    }
    if from.size() == 4 && to.size() == 4 {
        return Ok(format!("bitcast<{ty}>({x})"));
    }
    if !from.is_float() && !to.is_float() && from != Bool && to != Bool {
        let e = if scalar_type(from) == scalar_type(to) { x.to_string() } else { format!("bitcast<{ty}>({x})") };
        return Ok(narrow(w, to, e, lanes));
    }
    // 16-bit floats are held in f32, so their bits are converted from or to those of the f32
    let bits = match from {
        F16 => format!("{}({x})", w.f16_bits(lanes)),
        BF16 => format!("(bitcast<{u32v}>({x}) >> {u32v}(16u))"),
        I16 | U16 => format!("({u32v}({x}) & {u32v}(65535u))"),
        _ => return unsupported(from, to, lanes),
    };
    Ok(match to {
        F16 if lanes == 1 => format!("unpack2x16float({bits}).x"),
        BF16 => format!("bitcast<{ty}>({bits} << {u32v}(16u))"),
        I16 => narrow(w, I16, format!("bitcast<{ty}>({bits})"), lanes),
        U16 => bits,
        _ => return unsupported(from, to, lanes),
    })
}

fn unsupported(from: DType, to: DType, lanes: usize) -> Result<String> {
    Err(Error::Unsupported { what: format!("bitcast {from} -> {to} x{lanes}"), context: "wgsl".into() })
}
