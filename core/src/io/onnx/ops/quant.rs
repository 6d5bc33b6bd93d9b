//! Quantisation, dequantisation, integer products, and `com.microsoft` operators on quantised tensors.

use super::super::tensor::{is_code_type, packed_bits};
use super::super::value::{Cx, Value};
use super::cast::{decode, encode, narrow_range};
use super::contrib::{float_ms, ms};
use super::elementwise::{leaky, one};
use super::nn::{average, conv, max_pool};
use super::{Op, OpDef, float_op, op};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    op("QuantizeLinear", 0, quantize_op),
    op("DequantizeLinear", 0, dequantize_op),
    float_op("DynamicQuantizeLinear", 1, 0, |o| {
        let (y, scale, zero) = dynamic(o.cx, &o.arg(0)?)?;
        Ok(vec![y, scale, zero])
    }),
    op("MatMulInteger", 0, |o| {
        let (a, b) = (shifted(o, 0, 2, Side::Row)?, shifted(o, 1, 3, Side::Column)?);
        one(o.cx.matmul(&a, &b))
    }),
    op("ConvInteger", 0, |o| {
        let (x, w) = (shifted(o, 0, 2, Side::All)?, shifted(o, 1, 3, Side::Channel)?);
        one(conv(o, &x, &w))
    }),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    float_op("QLinearMatMul", 82, 0, qlinear_matmul),
    float_op("QLinearConv", 82, 0, qlinear_conv),
    ms("MatMulInteger16", 0, |o| {
        let wide = |i: usize| o.cx.cast(&o.arg(i)?, DType::I32);
        one(o.cx.matmul(&wide(0)?, &wide(1)?))
    }),
    float_ms("QuantizeLinear", 3, 0, quantize_op),
    float_ms("DequantizeLinear", 2, 0, dequantize_op),
    float_ms("MatMulIntegerToFloat", 76, 0, |o| {
        let y = o.cx.matmul(&shifted(o, 0, 4, Side::Row)?, &shifted(o, 1, 5, Side::Column)?)?;
        let (a, b) = (along(o, &o.arg(2)?, 2, Side::Row)?, along(o, &o.arg(3)?, 2, Side::Column)?);
        one(scaled_sum(o, &y, &a, &b, 6))
    }),
    float_ms("DynamicQuantizeMatMul", 21, 0, |o| {
        let x = o.arg(0)?;
        let (q, scale, zero) = dynamic(o.cx, &x)?;
        let wide = |v: &Value| o.cx.cast(v, DType::I32);
        let y = o.cx.matmul(&o.cx.sub(&wide(&q)?, &wide(&zero)?)?, &shifted(o, 1, 3, Side::Column)?)?;
        let b = along(o, &o.arg(2)?, 2, Side::Column)?;
        one(scaled_sum(o, &y, &scale, &b, 4))
    }),
    float_ms("QLinearAdd", 82, 0, |o| qlinear(o, Cx::add)),
    float_ms("QLinearMul", 82, 0, |o| qlinear(o, Cx::mul)),
    float_ms("QLinearSigmoid", 10, 0, |o| qlinear_map(o, |o, x| o.cx.unary(Tensor::sigmoid, x))),
    float_ms("QLinearLeakyRelu", 10, 0, |o| {
        qlinear_map(o, |o, x| {
            let slope = o.float("alpha", 0.01)?;
            leaky(o.cx, x, &o.cx.scalar_like(x, slope))
        })
    }),
    float_ms("QLinearSoftmax", 10, 0, |o| {
        qlinear_map(o, |o, x| {
            let before = o.int("opset", 13)? < 13;
            let axis = o.axis(o.int("axis", -1)?, x.rank())?;
            let axes: Vec<usize> = if before { (axis..x.rank()).collect() } else { vec![axis] };
            super::reduce::softmax(o.cx, x, &axes)
        })
    }),
    float_ms("QGemm", 146, 0, qgemm),
    float_ms("QLinearGlobalAveragePool", 10, 0, |o| {
        with_layout(o, |o| qlinear_map(o, |o, x| o.cx.mean(x, &(2..x.rank()).collect::<Vec<_>>(), true)))
    }),
    float_ms("QLinearAveragePool", 10, 0, |o| with_layout(o, |o| qlinear_map(o, average))),
    float_ms("QLinearConv", 82, 0, |o| with_layout(o, qlinear_conv)),
    ms("NhwcMaxPool", 0, |o| channels_last(o, max_pool)),
    float_ms("QLinearWhere", 164, 0, |o| {
        let side = |i: usize| real(o, &o.arg(i)?, &o.arg(i + 1)?, o.opt(i + 2).as_ref());
        let (y, dtype) = (o.cx.select(&o.arg(0)?, &side(1)?, &side(4)?)?, o.arg(1)?.dtype());
        one(quantize(o, &y, &o.arg(7)?, o.opt(8).as_ref(), dtype))
    }),
    float_ms("QLinearConcat", 1, 0, qlinear_concat),
];

/// Dequantises codes with one scale and zero point to f32.
pub(super) fn real(o: &Op<'_, '_>, x: &Value, scale: &Value, zero: Option<&Value>) -> Result<Value> {
    let mut wide = o.cx.cast(x, DType::F32)?;
    if let Some(z) = zero {
        wide = o.cx.sub(&wide, &o.cx.cast(&o.cx.reshape(z, &[])?, DType::F32)?)?;
    }
    o.cx.mul(&wide, &o.cx.reshape(scale, &[])?)
}

/// An elementwise operator on two quantised operands. Inputs: code, scale and zero point of each operand, then scale
/// and zero point of the result.
fn qlinear<'m>(o: &mut Op<'_, 'm>, f: super::super::prim::Binary<'m>) -> Result<Vec<Value>> {
    let side = |i: usize| real(o, &o.arg(i)?, &o.arg(i + 1)?, o.opt(i + 2).as_ref());
    let y = f(o.cx, &side(0)?, &side(3)?)?;
    let dtype = o.arg(0)?.dtype();
    one(quantize(o, &y, &o.arg(6)?, o.opt(7).as_ref(), dtype))
}

fn qlinear_map(o: &mut Op<'_, '_>, f: fn(&Op<'_, '_>, &Value) -> Result<Value>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let y = f(o, &real(o, &x, &o.arg(1)?, o.opt(2).as_ref())?)?;
    one(quantize(o, &y, &o.arg(3)?, o.opt(4).as_ref(), x.dtype()))
}

/// Builds an operator whose first input may have its channels last (`channels_last`).
fn with_layout(o: &mut Op<'_, '_>, f: super::Build) -> Result<Vec<Value>> {
    if o.flag("channels_last", false)? { channels_last(o, f) } else { f(o) }
}

fn channels_last(o: &mut Op<'_, '_>, f: super::Build) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    o.want_rank(&x, 2)?;
    let last = x.nth_last(1)?;
    let first = [0, last].into_iter().chain(1..last).collect::<Vec<_>>();
    let back = [0].into_iter().chain(2..=last).chain([1]).collect::<Vec<_>>();
    o.set(0, o.cx.permute(&x, &first)?);
    f(o)?.iter().map(|y| o.cx.permute(y, &back)).collect()
}

fn qlinear_concat(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut parts = Vec::new();
    for i in (2..o.args.len()).step_by(3) {
        parts.push(real(o, &o.arg(i)?, &o.arg(i + 1)?, o.opt(i + 2).as_ref())?);
    }
    let axis = o.axis(o.int("axis", 0)?, parts.first().map_or(0, Value::rank))?;
    let (y, zero) = (o.cx.concat(&parts, axis)?, o.arg(1)?);
    one(quantize(o, &y, &o.arg(0)?, Some(&zero), zero.dtype()))
}

/// Scales an integer product to floats, and adds the bias if there is an input `bias`.
pub(super) fn scaled_sum(o: &Op<'_, '_>, y: &Value, a: &Value, b: &Value, bias: usize) -> Result<Value> {
    let y = o.cx.mul(&o.cx.cast(y, a.dtype())?, &o.cx.mul(a, b)?)?;
    o.opt(bias).map_or(Ok(y.clone()), |b| o.cx.add(&y, &b))
}

/// The axis of an operand that a vector of scales or zero points runs along; `All` allows only a single one.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    All,
    Row,
    Column,
    Channel,
}

/// Shapes a scale or zero point to broadcast against an operand of that rank.
pub(super) fn along(o: &Op<'_, '_>, v: &Value, rank: usize, side: Side) -> Result<Value> {
    if v.len() == 1 {
        return o.cx.reshape(v, &[]);
    }
    if v.rank() > 1 {
        return Ok(v.clone());
    }
    let mut shape = vec![1; rank];
    let axis = match side {
        Side::All => return o.fail("one scale and zero point are wanted"),
        Side::Row => rank.saturating_sub(2),
        Side::Column => rank.saturating_sub(1),
        Side::Channel => 0,
    };
    match shape.get_mut(axis) {
        Some(n) => *n = v.len(),
        None => return o.fail(format!("scales or zero points {:?} for a scalar", v.shape())),
    }
    o.cx.reshape(v, &shape)
}

/// Keeps constant byte weights as a lazy tensor of bytes, so that they are not folded to a wider type: devices multiply
/// bytes directly.
fn weights(o: &Op<'_, '_>, x: Value) -> Result<Value> {
    let stay = x.is_known() && x.rank() > 1 && x.dtype().size() == 1;
    if stay { o.cx.lazy(&x).map(Value::lazy) } else { Ok(x) }
}

/// An operand as i32, minus its zero point.
pub(super) fn shifted(o: &Op<'_, '_>, i: usize, zero: usize, side: Side) -> Result<Value> {
    let x = weights(o, o.arg(i)?)?;
    let wide = o.cx.cast(&x, DType::I32)?;
    match o.opt(zero) {
        None => Ok(wide),
        Some(z) => o.cx.sub(&wide, &o.cx.cast(&along(o, &z, x.rank(), side)?, DType::I32)?),
    }
}

/// Broadcasts scales or zero points along the attribute `axis`, or in blocks along it.
fn spread(o: &Op<'_, '_>, x: &Value, v: &Value) -> Result<Value> {
    if v.len() == 1 {
        return o.cx.reshape(v, &[]);
    }
    let axis = o.axis(o.int("axis", 1)?, x.rank())?;
    let block = o.size(o.int("block_size", 0)?)?;
    let n = x.dim(axis)?;
    if block == 0 {
        if v.rank() != 1 || v.len() != n {
            return o.fail(format!("scales {:?} along axis {axis} of {:?}", v.shape(), x.shape()));
        }
        let mut shape = vec![1; x.rank()];
        shape[axis] = n;
        return o.cx.reshape(v, &shape);
    }
    let blocks = n.div_ceil(block);
    if v.rank() != x.rank() || v.dim(axis)? != blocks {
        return o.fail(format!("scales {:?} in blocks of {block} along axis {axis} of {:?}", v.shape(), x.shape()));
    }
    blocks_along(o, v, axis, block, n)
}

/// Repeats every element `block` times along an axis, and keeps the first `n`.
pub(super) fn blocks_along(o: &Op<'_, '_>, v: &Value, axis: usize, block: usize, n: usize) -> Result<Value> {
    let mut shape = v.shape().to_vec();
    let blocks = shape[axis];
    shape.insert(axis + 1, 1);
    let wide = o.cx.reshape(v, &shape)?;
    shape[axis + 1] = block;
    let wide = o.cx.expand(&wide, &shape)?;
    shape.remove(axis + 1);
    shape[axis] = blocks.saturating_mul(block);
    o.cx.narrow(&o.cx.reshape(&wide, &shape)?, axis, 0, n)
}

/// round(x / scale) + zero, saturated to the range, as f32.
fn rounded(o: &Op<'_, '_>, x: &Value, scale: &Value, zero: Option<&Value>, (lo, hi): (i128, i128)) -> Result<Value> {
    let x = o.cx.cast(x, DType::F32)?;
    let q = o.cx.unary(Tensor::round, &o.cx.div(&x, &o.cx.cast(scale, DType::F32)?)?)?;
    let q = match zero {
        Some(z) => o.cx.add(&q, &o.cx.cast(z, DType::F32)?)?,
        None => q,
    };
    o.cx.clamp(&q, lo as f64, hi as f64)
}

/// Quantises to a dtype: round(x / scale) + zero, saturated to the dtype's range.
fn quantize(o: &Op<'_, '_>, x: &Value, scale: &Value, zero: Option<&Value>, to: DType) -> Result<Value> {
    let Some(range) = to.int_range() else { return o.unsupported(format!("quantisation to {to}")) };
    if to.size() > 2 {
        return o.cx.cast(&rounded(o, x, scale, zero, range)?, to);
    }
    let x = o.cx.div(&o.cx.cast(x, DType::F32)?, &o.cx.cast(scale, DType::F32)?)?;
    codes(o.cx, &x, zero, range, to)
}

/// Rounds scaled values to integers of up to 16 bits. They are first clamped to the range less the zero point. Adding
/// 1.5 * 2^23 then rounds halves to even, and the low bits of the f32 sum are the integer.
fn codes(cx: &Cx<'_>, x: &Value, zero: Option<&Value>, (lo, hi): (i128, i128), to: DType) -> Result<Value> {
    const ROUND_TO_INTEGER: f64 = 12_582_912.0;
    let limit = |n: i128| {
        let n = cx.scalar(DType::F32, n as f64);
        zero.map_or(Ok(n.clone()), |z| cx.sub(&n, &cx.cast(z, DType::F32)?))
    };
    let x = cx.min(&cx.max(x, &limit(lo)?)?, &limit(hi)?)?;
    let bits = cx.bitcast(&cx.with(Cx::add, &x, ROUND_TO_INTEGER)?, DType::I32)?;
    let sum = zero.map_or(Ok(bits.clone()), |z| cx.add(&bits, &cx.cast(z, DType::I32)?))?;
    cx.cast(&sum, to)
}

fn quantize_op(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale) = (o.arg(0)?, o.arg(1)?);
    let zero = o.opt(2);
    let code_type = match &zero {
        Some(z) => z.code_type(),
        None => o.int("output_dtype", 0)? as i32,
    };
    let scale = spread(o, &x, &scale)?;
    let to = match &zero {
        Some(z) => z.dtype(),
        None if is_code_type(code_type) => DType::U8,
        None => o.dtype_attr("output_dtype", DType::U8)?,
    };
    let zero = zero.map(|z| spread(o, &x, &decode(o.cx, &z)?)).transpose()?;
    if !is_code_type(code_type) {
        return one(quantize(o, &x, &scale, zero.as_ref(), to));
    }
    let codes = match narrow_range(code_type) {
        Some(range) => rounded(o, &x, &scale, zero.as_ref(), range)?,
        None => {
            let q = o.cx.div(&o.cx.cast(&x, DType::F32)?, &o.cx.cast(&scale, DType::F32)?)?;
            // Of the float types only the 4-bit one has a zero point.
            match zero.filter(|_| packed_bits(code_type).is_some()) {
                Some(z) => o.cx.add(&q, &o.cx.cast(&z, DType::F32)?)?,
                None => q,
            }
        }
    };
    one(encode(o, &codes, code_type, o.flag("saturate", true)?))
}

fn dequantize_op(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale) = (weights(o, decode(o.cx, &o.arg(0)?)?)?, o.arg(1)?);
    let dtype = scale.dtype();
    // Integers of up to 16 bits and their differences are exact in f32.
    let work = if x.dtype().size() > 2 && !x.dtype().is_float() { DType::I32 } else { DType::F32 };
    let mut y = o.cx.cast(&x, work)?;
    if let Some(z) = o.opt(2) {
        let z = decode(o.cx, &z)?;
        y = o.cx.sub(&y, &o.cx.cast(&spread(o, &x, &z)?, work)?)?;
    }
    let y = o.cx.mul(&o.cx.cast(&y, DType::F32)?, &o.cx.cast(&spread(o, &x, &scale)?, DType::F32)?)?;
    one(o.cx.cast(&y, dtype))
}

/// Quantises a tensor to u8 by its own range, which is extended to include 0: codes, scale and zero point.
pub(super) fn dynamic(cx: &Cx<'_>, x: &Value) -> Result<(Value, Value, Value)> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    let lo = cx.with(Cx::min, &cx.reduce(Tensor::min, x, &axes, false)?, 0.0)?;
    let hi = cx.with(Cx::max, &cx.reduce(Tensor::max, x, &axes, false)?, 0.0)?;
    let scale = cx.with(Cx::div, &cx.sub(&hi, &lo)?, 255.0)?;
    // A tensor of zeros alone gets scale 1.
    let scale = cx.select(&cx.with(Cx::eq, &scale, 0.0)?, &cx.scalar_like(&scale, 1.0), &scale)?;
    let zero = cx.div(&cx.unary(Tensor::neg, &lo)?, &scale)?;
    let zero = cx.clamp(&cx.unary(Tensor::round, &zero)?, 0.0, 255.0)?;
    let zero = cx.cast(&zero, DType::U8)?;
    let codes = codes(cx, &cx.div(x, &scale)?, Some(&zero), (0, 255), DType::U8)?;
    Ok((codes, scale, zero))
}

fn qlinear_matmul(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (a, b) = (shifted(o, 0, 2, Side::Row)?, shifted(o, 3, 5, Side::Column)?);
    let y = o.cx.cast(&o.cx.matmul(&a, &b)?, DType::F32)?;
    let scale = |i: usize, rank: usize, side: Side| o.cx.cast(&along(o, &o.arg(i)?, rank, side)?, DType::F32);
    let y = o.cx.mul(&y, &scale(1, a.rank(), Side::Row)?)?;
    let y = o.cx.mul(&y, &scale(4, b.rank(), Side::Column)?)?;
    let zero = along(o, &o.arg(7)?, y.rank(), Side::Row)?;
    one(quantize(o, &y, &scale(6, y.rank(), Side::Row)?, Some(&zero), zero.dtype()))
}

fn qgemm(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let turned = o.flag("transB", false)?;
    let (mut a, mut b) =
        (shifted(o, 0, 2, Side::All)?, shifted(o, 3, 5, if turned { Side::Channel } else { Side::Column })?);
    if a.rank() != 2 || b.rank() != 2 {
        return o.fail(format!("the factors are {:?} and {:?}, not matrices", a.shape(), b.shape()));
    }
    if o.flag("transA", false)? {
        a = o.cx.swap(&a, 0, 1)?;
    }
    if turned {
        b = o.cx.swap(&b, 0, 1)?;
    }
    let mut y = o.cx.matmul(&a, &b)?;
    if let Some(c) = o.opt(6) {
        y = o.cx.add(&y, &c)?;
    }
    let scale = o.cx.mul(&along(o, &o.arg(4)?, 2, Side::Column)?, &o.cx.reshape(&o.arg(1)?, &[])?)?;
    let scale = o.cx.with(Cx::mul, &scale, o.float("alpha", 1.0)?)?;
    let y = o.cx.mul(&o.cx.cast(&y, DType::F32)?, &scale)?;
    let (Some(scale), Some(zero)) = (o.opt(7), o.opt(8)) else { return one(Ok(y)) };
    let scale = o.cx.reshape(&scale, &[])?;
    one(quantize(o, &y, &scale, Some(&o.cx.reshape(&zero, &[])?), zero.dtype()))
}

fn qlinear_conv(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, w) = (shifted(o, 0, 2, Side::All)?, shifted(o, 3, 5, Side::Channel)?);
    let mut y = conv(o, &x, &w)?;
    let mut shape = vec![1; y.rank()];
    shape[1] = y.dim(1)?;
    if let Some(b) = o.opt(8) {
        y = o.cx.add(&y, &o.cx.reshape(&b, &shape)?)?;
    }
    let scale = o.arg(4)?;
    let scale = o.cx.reshape(&scale, if scale.len() == 1 { &[] } else { &shape })?;
    let y = o.cx.mul(&o.cx.cast(&y, DType::F32)?, &o.cx.mul(&scale, &o.arg(1)?)?)?;
    let zero = o.arg(7)?;
    one(quantize(o, &y, &o.arg(6)?, Some(&zero), zero.dtype()))
}
