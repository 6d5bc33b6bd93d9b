//! Casts, including the element types that no device supports: 8-bit floats and types narrower than a byte. Their
//! elements are held as codes of one byte, marked with ONNX's number of the type ([`Value::code_type`]); arithmetic
//! decodes them first. Formats: OCP OFP8 and MX, and the `fnuz` variants, as in ONNX's technical notes on float8 and
//! int4.

use super::super::strings::STRING;
use super::super::tensor::{dtype_of, elem_name, is_code_type, packed_bits};
use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, op};
use crate::dtype::DType;
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    op("Cast", 0, |o| {
        let (x, to) = (o.arg(0)?, o.int("to", 1)?);
        one(cast(o, &x, to as i32))
    }),
    op("CastLike", 0, |o| {
        let (x, like) = (o.arg(0)?, o.arg(1)?);
        if like.code_type() != 0 {
            return one(cast(o, &x, like.code_type()));
        }
        one(o.cx.cast(&decode(o.cx, &x)?, like.dtype()))
    }),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[op("BitCast", 0, bit_cast)];

/// A float format of at most 8 bits: total bits, mantissa bits, exponent bias, largest finite code, codes of infinity
/// and NaN, and whether it lacks a negative zero (whose code then is NaN).
struct Format {
    bits: u32,
    mantissa: i32,
    bias: i32,
    max: i32,
    inf: Option<i32>,
    nan: Option<i32>,
    unsigned_zero: bool,
}

fn format(elem: i32) -> Option<Format> {
    let f = |bits, mantissa, bias, max, inf, nan, unsigned_zero| {
        Some(Format { bits, mantissa, bias, max, inf, nan, unsigned_zero })
    };
    match elem {
        17 => f(8, 3, 7, 0x7e, None, Some(0x7f), false),
        18 => f(8, 3, 8, 0x7f, None, Some(0x80), true),
        19 => f(8, 2, 15, 0x7b, Some(0x7c), Some(0x7e), false),
        20 => f(8, 2, 16, 0x7f, None, Some(0x80), true),
        23 => f(4, 1, 1, 7, None, None, false),
        _ => None,
    }
}

impl Format {
    /// The number that a code represents.
    fn value(&self, code: i32) -> f64 {
        let sign = 1 << (self.bits - 1);
        let size = code & (sign - 1);
        if self.unsigned_zero && code == sign || self.nan.is_some_and(|n| !self.unsigned_zero && size >= n.min(0x7f)) {
            return f64::NAN;
        }
        let negative = if code & sign != 0 { -1.0 } else { 1.0 };
        if self.inf.is_some_and(|i| size >= i) {
            return if self.inf == Some(size) { negative * f64::INFINITY } else { f64::NAN };
        }
        let (exponent, part) = (size >> self.mantissa, size & ((1 << self.mantissa) - 1));
        let whole = if exponent > 0 { part + (1 << self.mantissa) } else { part };
        negative * f64::from(whole) * f64::from(exponent.max(1) - self.bias - self.mantissa).exp2()
    }
}

/// Decodes a value for arithmetic: narrow floats become f32, narrow integers stay bytes.
pub(super) fn decode(cx: &Cx<'_>, x: &Value) -> Result<Value> {
    let table: Vec<f32> = match (x.code_type(), format(x.code_type())) {
        (24, _) => (0..256).map(|c| if c == 255 { f32::NAN } else { f64::from(c - 127).exp2() as f32 }).collect(),
        (_, Some(f)) => (0..1 << f.bits).map(|c| f.value(c) as f32).collect(),
        _ => return Ok(x.with_code_type(0)),
    };
    let table = Value::known(HostTensor::from_f32(vec![table.len()], &table)?);
    cx.gather(&table, &cx.cast(&x.with_code_type(0), DType::I32)?, 0)
}

/// Encodes floats as codes of a narrow float format, rounded to nearest even. Values out of range become the largest
/// finite code if `saturate`, else infinity or NaN.
fn encode_float(cx: &Cx<'_>, x: &Value, f: &Format, saturate: bool) -> Result<Value> {
    let x = cx.cast(x, DType::F32)?;
    let bits = cx.bitcast(&x, DType::I32)?;
    let size = cx.with(Cx::and, &bits, f64::from(i32::MAX))?;
    let exponent = cx.with(Cx::sub, &cx.with(Cx::shr, &size, 23.0)?, 127.0)?;
    // The unit in the last place of the result is `2^unit`.
    let least = 1 - f.bias - f.mantissa;
    let unit = cx.with(Cx::max, &cx.with(Cx::sub, &exponent, f64::from(f.mantissa))?, f64::from(least))?;
    let inverse = cx.with(Cx::shl, &cx.sub(&cx.scalar_like(&unit, 127.0), &unit)?, 23.0)?;
    let scaled = cx.mul(&cx.bitcast(&size, DType::F32)?, &cx.bitcast(&inverse, DType::F32)?)?;
    let whole = cx.cast(&cx.unary(Tensor::round, &scaled)?, DType::I32)?;
    let steps = cx.with(Cx::shl, &cx.with(Cx::sub, &unit, f64::from(least))?, f64::from(f.mantissa))?;
    let code = cx.add(&steps, &whole)?;
    let constant = |v: i32| cx.scalar_like(&code, f64::from(v));
    let (special, max) = (0x7f80_0000, constant(f.max));
    let over = cx.or(&cx.lt(&max, &code)?, &cx.not(&cx.lt(&size, &constant(special))?)?)?;
    let beyond = match (saturate, f.inf.or(f.nan)) {
        (false, Some(code)) => constant(code),
        _ => max,
    };
    let code = cx.select(&over, &beyond, &code)?;
    let is_nan = cx.lt(&constant(special), &size)?;
    // The 4-bit format has no NaN; a NaN becomes negative zero.
    let sign = 1 << (f.bits - 1);
    let mut negative = cx.lt(&bits, &constant(0))?;
    if f.unsigned_zero {
        let some = cx.lt(&constant(0), &code)?;
        negative = cx.and(&negative, &some)?;
    }
    let code = cx.select(&is_nan, &constant(f.nan.unwrap_or(sign)), &code)?;
    let code = cx.select(&negative, &cx.with(Cx::or, &code, f64::from(sign))?, &code)?;
    cx.cast(&code, DType::U8)
}

/// Encodes floats as e8m0: the exponent alone, rounded as the attribute `round_mode` says.
fn encode_exponent(o: &Op<'_, '_>, x: &Value) -> Result<Value> {
    let cx = &o.cx;
    let bits = cx.bitcast(&cx.cast(x, DType::F32)?, DType::I32)?;
    let exponent = cx.with(Cx::and, &cx.with(Cx::shr, &bits, 23.0)?, 255.0)?;
    let rest = cx.with(Cx::and, &bits, f64::from(0x7f_ffff))?;
    let least = match o.str("round_mode", "up")?.as_str() {
        "up" => 1,
        "down" => i32::MAX,
        "nearest" => 0x40_0000,
        mode => return o.fail(format!("the rounding `{mode}` is unknown")),
    };
    let up = cx.not(&cx.lt(&rest, &cx.scalar_like(&rest, f64::from(least)))?)?;
    let last = if o.flag("saturate", true)? { 254.0 } else { 255.0 };
    let can = cx.lt(&exponent, &cx.scalar_like(&exponent, last))?;
    let up = cx.cast(&cx.and(&up, &can)?, DType::I32)?;
    cx.cast(&cx.add(&exponent, &up)?, DType::U8)
}

/// Encodes a value as a narrow type; integers wrap around.
pub(super) fn encode(o: &Op<'_, '_>, x: &Value, elem: i32, saturate: bool) -> Result<Value> {
    let code = match (format(elem), packed_bits(elem)) {
        (Some(f), _) => encode_float(o.cx, x, &f, saturate || f.nan.is_none())?,
        (None, Some(bits)) => {
            let x = o.cx.cast(x, DType::I32)?;
            let unsigned = o.cx.with(Cx::and, &x, f64::from((1 << bits) - 1))?;
            wrap(o.cx, &unsigned, elem, bits)?
        }
        _ => encode_exponent(o, x)?,
    };
    Ok(code.with_code_type(elem))
}

/// Converts the low bits of integers to elements of a narrow integer type; signed types extend the highest of these
/// bits.
fn wrap(cx: &Cx<'_>, low: &Value, elem: i32, bits: u32) -> Result<Value> {
    if !matches!(elem, 22 | 26) {
        return cx.cast(low, DType::U8);
    }
    let half = f64::from(1 << (bits - 1));
    cx.cast(&cx.with(Cx::sub, &cx.with(Cx::xor, low, half)?, half)?, DType::I8)
}

fn cast(o: &Op<'_, '_>, x: &Value, to: i32) -> Result<Value> {
    if x.code_type() == to {
        return Ok(x.clone());
    }
    if to == STRING {
        return o.unsupported("strings");
    }
    let x = decode(o.cx, x)?;
    match dtype_of(to) {
        Some(_) if is_code_type(to) => encode(o, &x, to, o.flag("saturate", true)?),
        Some(dtype) => o.cx.cast(&x, dtype),
        None => o.unsupported(format!("element type {}", elem_name(to))),
    }
}

fn bit_cast(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, to) = (o.arg(0)?, o.int("to", 0)? as i32);
    let Some(dtype) = dtype_of(to).filter(|_| to != STRING) else {
        return o.unsupported(format!("element type {}", elem_name(to)));
    };
    let bits = |elem: i32, d: DType| packed_bits(elem).unwrap_or(8 * d.size() as u32);
    if bits(x.code_type(), x.dtype()) != bits(to, dtype) {
        return o.fail(format!("{} has not the size of {}", x.dtype(), elem_name(to)));
    }
    let own = if is_code_type(to) { to } else { 0 };
    if let Some(bits) = packed_bits(to) {
        let low = o.cx.with(Cx::and, &o.cx.cast(&x.with_code_type(0), DType::I32)?, f64::from((1 << bits) - 1))?;
        return Ok(vec![wrap(o.cx, &low, to, bits)?.with_code_type(own)]);
    }
    let x = x.with_code_type(0);
    // A bool is stored as one byte.
    let y = match (x.dtype(), dtype) {
        (DType::Bool, _) => o.cx.bitcast(&o.cx.cast(&x, DType::U8)?, dtype)?,
        (_, DType::Bool) => o.cx.cast(&x, DType::Bool)?,
        _ => o.cx.bitcast(&x, dtype)?,
    };
    Ok(vec![y.with_code_type(own)])
}

/// The least and largest number of a narrow integer type; `None` for other types.
pub(super) fn narrow_range(elem: i32) -> Option<(i128, i128)> {
    let bits = packed_bits(elem).filter(|_| elem != 23)?;
    let n = 1i128 << bits;
    Some(if matches!(elem, 22 | 26) { (-n / 2, n / 2 - 1) } else { (0, n - 1) })
}
