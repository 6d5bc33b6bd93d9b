//! What instructions without memory compute: the function of each name. Values are the bits of registers; those of 32 bits have zeros above.

use half::{bf16, f16};

/// A function of up to three operands.
pub(crate) type Alu = fn(u64, u64, u64) -> u64;

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn g(x: u64) -> f64 {
    f64::from_bits(x)
}

fn of_f(x: f32) -> u64 {
    // a result that is no number has one form
    if x.is_nan() { 0x7fff_ffff } else { u64::from(x.to_bits()) }
}

fn of_g(x: f64) -> u64 {
    if x.is_nan() { 0x7fff_ffff_ffff_ffff } else { x.to_bits() }
}

fn word(x: i32) -> u64 {
    u64::from(x as u32)
}

fn mask(n: u64) -> u64 {
    u64::from(n as u32)
}

fn signed(byte: u8) -> i32 {
    i32::from(byte as i8)
}

fn unsigned(byte: u8) -> i32 {
    i32::from(byte)
}

/// `c` and the products of the bytes of two words, which wraps.
fn dot(a: u64, b: u64, c: u64, of_a: fn(u8) -> i32, of_b: fn(u8) -> i32) -> u64 {
    let pairs = (a as u32).to_le_bytes().into_iter().zip((b as u32).to_le_bytes());
    word(pairs.fold(c as i32, |sum, (x, y)| sum.wrapping_add(of_a(x) * of_b(y))))
}

/// Larger or smaller of two floats: a number before NaN.
fn extreme(a: f64, b: f64, first: bool) -> f64 {
    if a.is_nan() || (!b.is_nan() && !first) { b } else { a }
}

/// The function of an instruction by its full name; `None` if it is none of these.
pub(crate) fn find(name: &str) -> Option<Alu> {
    let parts: Vec<&str> = name.split('.').collect();
    let alu: Alu = match *parts.as_slice() {
        ["mov", "pred" | "b16" | "b32" | "b64" | "u32" | "u64" | "f32" | "f64"] => |a, _, _| a,
        ["cvta", "to", "global", "u64"] => |a, _, _| a,
        ["add", "s32" | "u32"] => |a, b, _| mask(a.wrapping_add(b)),
        ["sub", "s32" | "u32"] => |a, b, _| mask(a.wrapping_sub(b)),
        ["mul", "lo", "s32" | "u32"] => |a, b, _| mask(a.wrapping_mul(b)),
        ["mad", "lo", "s32" | "u32"] => |a, b, c| mask(a.wrapping_mul(b).wrapping_add(c)),
        ["mad", "wide", "s32"] => |a, b, c| ((a as i32 as i64) * (b as i32 as i64)).wrapping_add(c as i64) as u64,
        ["dp4a", "s32", "s32"] => |a, b, c| dot(a, b, c, signed, signed),
        ["dp4a", "s32", "u32"] => |a, b, c| dot(a, b, c, signed, unsigned),
        ["dp4a", "u32", "s32"] => |a, b, c| dot(a, b, c, unsigned, signed),
        ["dp4a", "u32", "u32"] => |a, b, c| dot(a, b, c, unsigned, unsigned),
        ["neg", "s32"] => |a, _, _| mask(0u64.wrapping_sub(a)),
        ["add", "s64" | "u64"] => |a, b, _| a.wrapping_add(b),
        ["sub", "s64" | "u64"] => |a, b, _| a.wrapping_sub(b),
        ["mul", "lo", "s64" | "u64"] => |a, b, _| a.wrapping_mul(b),
        ["mad", "lo", "s64" | "u64"] => |a, b, c| a.wrapping_mul(b).wrapping_add(c),
        ["neg", "s64"] => |a, _, _| 0u64.wrapping_sub(a),
        // what a division by zero gives is not said
        ["div", "s32"] => |a, b, _| word((a as i32).checked_div(b as i32).unwrap_or(-1)),
        ["rem", "s32"] => |a, b, _| word((a as i32).checked_rem(b as i32).unwrap_or(-1)),
        ["div", "u32"] => |a, b, _| u64::from((a as u32).checked_div(b as u32).unwrap_or(u32::MAX)),
        ["rem", "u32"] => |a, b, _| u64::from((a as u32).checked_rem(b as u32).unwrap_or(u32::MAX)),
        ["div", "s64"] => |a, b, _| (a as i64).checked_div(b as i64).unwrap_or(-1) as u64,
        ["rem", "s64"] => |a, b, _| (a as i64).checked_rem(b as i64).unwrap_or(-1) as u64,
        ["div", "u64"] => |a, b, _| a.checked_div(b).unwrap_or(u64::MAX),
        ["rem", "u64"] => |a, b, _| a.checked_rem(b).unwrap_or(u64::MAX),
        ["max", "s32"] => |a, b, _| word((a as i32).max(b as i32)),
        ["min", "s32"] => |a, b, _| word((a as i32).min(b as i32)),
        ["max", "u32"] => |a, b, _| mask(a).max(mask(b)),
        ["min", "u32"] => |a, b, _| mask(a).min(mask(b)),
        ["max", "s64"] => |a, b, _| (a as i64).max(b as i64) as u64,
        ["min", "s64"] => |a, b, _| (a as i64).min(b as i64) as u64,
        ["max", "u64"] => |a, b, _| a.max(b),
        ["min", "u64"] => |a, b, _| a.min(b),
        ["and", "b32"] => |a, b, _| mask(a & b),
        ["or", "b32"] => |a, b, _| mask(a | b),
        ["xor", "b32"] => |a, b, _| mask(a ^ b),
        ["and", "b64" | "pred"] => |a, b, _| a & b,
        ["or", "b64" | "pred"] => |a, b, _| a | b,
        ["xor", "b64" | "pred"] => |a, b, _| a ^ b,
        ["not", "pred"] => |a, _, _| a ^ 1,
        // shifts by more than there are bits leave none
        ["shl", "b32"] => |a, b, _| mask(mask(a).checked_shl(b as u32).filter(|_| mask(b) < 32).unwrap_or(0)),
        ["shr", "u32"] => |a, b, _| if mask(b) < 32 { mask(a) >> b } else { 0 },
        ["shr", "s32"] => |a, b, _| word((a as i32) >> mask(b).min(31)),
        ["shl", "b64"] => |a, b, _| if mask(b) < 64 { a << b } else { 0 },
        ["shr", "u64"] => |a, b, _| if mask(b) < 64 { a >> b } else { 0 },
        ["shr", "s64"] => |a, b, _| ((a as i64) >> mask(b).min(63)) as u64,
        ["selp", "b16" | "b32" | "b64" | "f32" | "f64"] => |a, b, c| if c != 0 { a } else { b },
        ["add", "rn", "f32"] => |a, b, _| of_f(f(a) + f(b)),
        ["sub", "rn", "f32"] => |a, b, _| of_f(f(a) - f(b)),
        ["mul", "rn", "f32"] => |a, b, _| of_f(f(a) * f(b)),
        ["div", "rn", "f32"] => |a, b, _| of_f(f(a) / f(b)),
        ["fma", "rn", "f32"] => |a, b, c| of_f(f(a).mul_add(f(b), f(c))),
        ["neg", "f32"] => |a, _, _| a ^ 0x8000_0000,
        ["sqrt", "rn", "f32"] => |a, _, _| of_f(f(a).sqrt()),
        ["rcp", "rn", "f32"] => |a, _, _| of_f(1.0 / f(a)),
        ["add", "rn", "f64"] => |a, b, _| of_g(g(a) + g(b)),
        ["sub", "rn", "f64"] => |a, b, _| of_g(g(a) - g(b)),
        ["mul", "rn", "f64"] => |a, b, _| of_g(g(a) * g(b)),
        ["div", "rn", "f64"] => |a, b, _| of_g(g(a) / g(b)),
        ["fma", "rn", "f64"] => |a, b, c| of_g(g(a).mul_add(g(b), g(c))),
        ["neg", "f64"] => |a, _, _| a ^ (1 << 63),
        ["cvt", "rn", "f16x2", "f32"] => {
            |a, b, _| u64::from(f16::from_f32(f(a)).to_bits()) << 16 | u64::from(f16::from_f32(f(b)).to_bits())
        }
        ["cvt", "rn", "bf16x2", "f32"] => {
            |a, b, _| u64::from(bf16::from_f32(f(a)).to_bits()) << 16 | u64::from(bf16::from_f32(f(b)).to_bits())
        }
        ["ex2", "approx", "ftz", "f32"] => |a, _, _| {
            let power = f(a).exp2();
            of_f(if power.is_subnormal() { 0.0 } else { power })
        },
        ["sqrt", "rn", "f64"] => |a, _, _| of_g(g(a).sqrt()),
        ["rcp", "rn", "f64"] => |a, _, _| of_g(1.0 / g(a)),
        ["max", "NaN", "f32"] => |a, b, _| {
            let nan = f(a).is_nan() || f(b).is_nan();
            if nan { 0x7fff_ffff } else { of_f(extreme(f(a).into(), f(b).into(), f(a) > f(b)) as f32) }
        },
        ["min", "NaN", "f32"] => |a, b, _| {
            let nan = f(a).is_nan() || f(b).is_nan();
            if nan { 0x7fff_ffff } else { of_f(extreme(f(a).into(), f(b).into(), f(a) < f(b)) as f32) }
        },
        ["setp", cmp, ty] => return compare(cmp, ty),
        ["cvt", ..] => return convert(&parts[1..]),
        _ => return None,
    };
    Some(alu)
}

/// Comparisons give 1 or 0.
fn compare(cmp: &str, ty: &str) -> Option<Alu> {
    let alu: Alu = match (cmp, ty) {
        ("eq", "s32" | "u32") => |a, b, _| u64::from(a as u32 == b as u32),
        ("ne", "s32" | "u32") => |a, b, _| u64::from(a as u32 != b as u32),
        ("lt", "s32") => |a, b, _| u64::from((a as i32) < b as i32),
        ("ge", "s32") => |a, b, _| u64::from(a as i32 >= b as i32),
        ("lt", "u32") => |a, b, _| u64::from((a as u32) < b as u32),
        ("eq", "s64" | "u64") => |a, b, _| u64::from(a == b),
        ("ne", "s64" | "u64") => |a, b, _| u64::from(a != b),
        ("lt", "s64") => |a, b, _| u64::from((a as i64) < b as i64),
        ("ge", "s64") => |a, b, _| u64::from(a as i64 >= b as i64),
        ("lt", "u64") => |a, b, _| u64::from(a < b),
        ("eq", "f32") => |a, b, _| u64::from(f(a) == f(b)),
        ("neu", "f32") => |a, b, _| u64::from(f(a) != f(b)),
        ("lt", "f32") => |a, b, _| u64::from(f(a) < f(b)),
        ("gt", "f32") => |a, b, _| u64::from(f(a) > f(b)),
        ("nan", "f32") => |a, b, _| u64::from(f(a).is_nan() || f(b).is_nan()),
        ("num", "f32") => |a, b, _| u64::from(!f(a).is_nan() && !f(b).is_nan()),
        ("eq", "f64") => |a, b, _| u64::from(g(a) == g(b)),
        ("neu", "f64") => |a, b, _| u64::from(g(a) != g(b)),
        ("lt", "f64") => |a, b, _| u64::from(g(a) < g(b)),
        ("gt", "f64") => |a, b, _| u64::from(g(a) > g(b)),
        ("nan", "f64") => |a, b, _| u64::from(g(a).is_nan() || g(b).is_nan()),
        ("num", "f64") => |a, b, _| u64::from(!g(a).is_nan() && !g(b).is_nan()),
        _ => return None,
    };
    Some(alu)
}

/// Conversions. Of NaN an integer of 32 bits is made as 0, one of 64 bits as its least (signed) or largest number.
fn convert(parts: &[&str]) -> Option<Alu> {
    let alu: Alu = match *parts {
        ["s32", "s8"] => |a, _, _| word(i32::from(a as i8)),
        ["s32", "s16"] => |a, _, _| word(i32::from(a as i16)),
        ["u32", "u16"] => |a, _, _| a & 0xffff,
        ["u16", "u32"] => |a, _, _| a & 0xffff,
        ["u32", "u64"] => |a, _, _| mask(a),
        ["u64" | "s64", "u32"] => |a, _, _| mask(a),
        ["u64" | "s64", "s32"] => |a, _, _| a as i32 as i64 as u64,
        ["f32", "f16"] => |a, _, _| of_f(f16::from_bits(a as u16).to_f32()),
        ["rn", "f16", "f32"] => |a, _, _| if f(a).is_nan() { 0x7fff } else { f16::from_f32(f(a)).to_bits().into() },
        ["rn", "bf16", "f32"] => |a, _, _| if f(a).is_nan() { 0x7fff } else { bf16::from_f32(f(a)).to_bits().into() },
        ["f64", "f32"] => |a, _, _| of_g(f(a).into()),
        ["rn", "f32", "f64"] => |a, _, _| of_f(g(a) as f32),
        ["rn", "f32", "s32"] => |a, _, _| of_f(a as i32 as f32),
        ["rn", "f32", "u32"] => |a, _, _| of_f(a as u32 as f32),
        ["rn", "f32", "s64"] => |a, _, _| of_f(a as i64 as f32),
        ["rn", "f32", "u64"] => |a, _, _| of_f(a as f32),
        ["rn", "f64", "s32"] => |a, _, _| of_g(a as i32 as f64),
        ["rn", "f64", "u32"] => |a, _, _| of_g(a as u32 as f64),
        ["rn", "f64", "s64"] => |a, _, _| of_g(a as i64 as f64),
        ["rn", "f64", "u64"] => |a, _, _| of_g(a as f64),
        ["rzi", "f32", "f32"] => |a, _, _| of_f(f(a).trunc()),
        ["rzi", "f64", "f64"] => |a, _, _| of_g(g(a).trunc()),
        ["rzi", "s32", "f32"] => |a, _, _| word(f(a) as i32),
        ["rzi", "u32", "f32"] => |a, _, _| u64::from(f(a) as u32),
        ["rzi", "s32", "f64"] => |a, _, _| if g(a).is_nan() { 1 << 31 } else { word(g(a) as i32) },
        ["rzi", "u32", "f64"] => |a, _, _| if g(a).is_nan() { 0x8000_0000 } else { u64::from(g(a) as u32) },
        ["rzi", "s64", "f32"] => |a, _, _| if f(a).is_nan() { 1 << 63 } else { f(a) as i64 as u64 },
        ["rzi", "u64", "f32"] => |a, _, _| if f(a).is_nan() { 1 << 63 } else { f(a) as u64 },
        ["rzi", "s64", "f64"] => |a, _, _| if g(a).is_nan() { 1 << 63 } else { g(a) as i64 as u64 },
        ["rzi", "u64", "f64"] => |a, _, _| if g(a).is_nan() { 1 << 63 } else { g(a) as u64 },
        _ => return None,
    };
    Some(alu)
}
