//! The importer's only door to the frontend: its primitives as lazy tensors. Operands have been checked.

use super::host::{Bin, Red, Un};
use super::prim::Window;
use crate::dtype::{DType, Scalar};
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::tensor::{ConvOpts, Operand, PadMode, ScatterOp};
use crate::tensor::{Session, Tensor};

fn operand(dtype: DType, v: Scalar) -> Operand {
    match dtype {
        DType::Bool => Operand::Bool(v.as_bool()),
        d if d.is_float() => Operand::Float(v.as_f64()),
        _ => Operand::Int(v.as_i64()),
    }
}

fn axis(a: usize) -> i64 {
    a as i64
}

pub(super) fn full(s: &Session, dtype: DType, shape: &[usize], v: Scalar) -> Result<Tensor> {
    Tensor::full(s, operand(dtype, v), dtype, shape)
}

pub(super) fn constant(s: &Session, dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Tensor> {
    Tensor::from_bytes(s, dtype, shape, bytes)
}

/// Does the frontend make this of steps that would each round to a 16-bit type? Such are taken in f32 and rounded once, as the
/// operator sets mean it.
fn is_composed(op: Un) -> bool {
    !matches!(
        op,
        Un::Neg | Un::Abs | Un::Floor | Un::Ceil | Un::Round | Un::Sign | Un::IsNan | Un::Not | Un::Sqrt | Un::Recip
    )
}

fn is_half(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::F16 | DType::BF16)
}

pub(super) fn unary(op: Un, t: &Tensor) -> Result<Tensor> {
    if is_half(t) && is_composed(op) {
        return unary(op, &t.cast(DType::F32)?)?.cast(t.dtype());
    }
    match op {
        Un::Neg => t.neg(),
        Un::Abs => t.abs(),
        Un::Exp => t.exp(),
        Un::Log => t.log(),
        Un::Sqrt => t.sqrt(),
        Un::Recip => t.reciprocal(),
        Un::Sin => t.sin(),
        Un::Cos => t.cos(),
        Un::Tan => t.tan(),
        Un::Asin => t.asin(),
        Un::Acos => t.acos(),
        Un::Atan => t.atan(),
        Un::Sinh => t.sinh(),
        Un::Cosh => t.cosh(),
        Un::Tanh => t.tanh(),
        Un::Asinh => t.asinh(),
        Un::Acosh => t.acosh(),
        Un::Atanh => t.atanh(),
        Un::Sigmoid => t.sigmoid(),
        Un::Erf => t.erf(),
        Un::Floor => t.floor(),
        Un::Ceil => t.ceil(),
        Un::Round => t.round(),
        Un::Sign => t.sign(),
        Un::IsNan => t.isnan(),
        Un::Not => t.bit_not(),
    }
}

pub(super) fn binary(op: Bin, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if is_half(a) && matches!(op, Bin::Div | Bin::Pow | Bin::Rem) {
        return binary(op, &a.cast(DType::F32)?, &b.cast(DType::F32)?)?.cast(a.dtype());
    }
    let bools = a.dtype() == DType::Bool;
    match op {
        Bin::Add => a.add(b),
        Bin::Sub => a.sub(b),
        Bin::Mul => a.mul(b),
        Bin::Div if a.dtype().is_float() => a.div(b),
        Bin::Div => a.trunc_div(b),
        Bin::Rem => a.fmod(b),
        Bin::Pow => a.pow(b),
        Bin::Max => a.maximum(b),
        Bin::Min => a.minimum(b),
        Bin::Lt => a.lt(b),
        Bin::Eq => a.eq(b),
        Bin::And if bools => a.logical_and(b),
        Bin::Or if bools => a.logical_or(b),
        Bin::Xor if bools => a.logical_xor(b),
        Bin::And => a.bit_and(b),
        Bin::Or => a.bit_or(b),
        Bin::Xor => a.bit_xor(b),
        Bin::Shl => a.shift_left(b),
        Bin::Shr => a.shift_right(b),
    }
}

/// A power whose exponent is known.
pub(super) fn pow(t: &Tensor, exponent: f64) -> Result<Tensor> {
    if is_half(t) {
        return t.cast(DType::F32)?.pow(exponent)?.cast(t.dtype());
    }
    if t.dtype().is_float() { t.pow(exponent) } else { t.pow(exponent as i64) }
}

pub(super) fn select(c: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    c.select(a, b)
}

pub(super) fn cast(t: &Tensor, to: DType) -> Result<Tensor> {
    t.cast(to)
}

pub(super) fn reshape(t: &Tensor, shape: &[usize]) -> Result<Tensor> {
    t.reshape(shape)
}

pub(super) fn permute(t: &Tensor, order: &[usize]) -> Result<Tensor> {
    t.permute(&order.iter().map(|&a| axis(a)).collect::<Vec<_>>())
}

pub(super) fn expand(t: &Tensor, shape: &[usize]) -> Result<Tensor> {
    t.expand(shape)
}

/// `len[i] > 0` elements of each axis from `start[i]` by `step[i]`.
pub(super) fn slice(t: &Tensor, start: &[usize], len: &[usize], step: &[isize]) -> Result<Tensor> {
    let reach = |i: usize| (len[i] - 1) * step[i].unsigned_abs();
    let cut = |i: usize| match step[i] > 0 {
        true => (start[i], start[i] + reach(i) + 1),
        false => (start[i] - reach(i), start[i] + 1),
    };
    let mut t = t.shrink(&(0..len.len()).map(cut).collect::<Vec<_>>())?;
    let back: Vec<i64> = (0..len.len()).filter(|&i| step[i] < 0 && len[i] > 1).map(axis).collect();
    if !back.is_empty() {
        t = t.flip(&back)?;
    }
    for i in (0..len.len()).filter(|&i| step[i].unsigned_abs() > 1 && len[i] > 1) {
        t = t.stride_axis(i, step[i].unsigned_abs())?;
    }
    Ok(t)
}

pub(super) fn pad(t: &Tensor, before: &[usize], after: &[usize], v: Scalar) -> Result<Tensor> {
    let pairs: Vec<(i64, i64)> = before.iter().zip(after).map(|(&a, &b)| (a as i64, b as i64)).collect();
    t.pad(&pairs, PadMode::Constant, operand(t.dtype(), v))
}

pub(super) fn concat(parts: &[Tensor], a: usize) -> Result<Tensor> {
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis(a))
}

/// Reduced axes stay with length 1; the dtype stays too.
pub(super) fn reduce(op: Red, t: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let list: Vec<i64> = axes.iter().map(|&a| axis(a)).collect();
    let out = match op {
        Red::Sum => t.sum(&list, true),
        Red::Prod => t.prod(&list, true),
        Red::Max => t.max(&list, true),
        Red::Min => t.min(&list, true),
    };
    out?.cast(t.dtype())
}

pub(super) fn argmax(t: &Tensor, a: usize) -> Result<Tensor> {
    t.argmax(axis(a), true)?.cast(DType::I64)
}

pub(super) fn cumsum(t: &Tensor, a: usize) -> Result<Tensor> {
    t.cumsum(axis(a))?.cast(t.dtype())
}

pub(super) fn top_k(t: &Tensor, a: usize, k: usize, largest: bool) -> Result<(Tensor, Tensor)> {
    let (values, index) = t.topk(k, axis(a), largest)?;
    Ok((values, index.cast(DType::I64)?))
}

pub(super) fn gather(t: &Tensor, index: &Tensor, a: usize) -> Result<Tensor> {
    t.index_select(axis(a), index)
}

pub(super) fn gather_elements(t: &Tensor, index: &Tensor, a: usize) -> Result<Tensor> {
    t.gather(axis(a), index)
}

fn scatter_op(how: Option<Bin>) -> Result<ScatterOp> {
    Ok(match how {
        None => ScatterOp::Set,
        Some(Bin::Add) => ScatterOp::Add,
        Some(Bin::Mul) => ScatterOp::Mul,
        Some(Bin::Max) => ScatterOp::Max,
        Some(Bin::Min) => ScatterOp::Min,
        Some(op) => return Err(Error::Internal(format!("a scatter with {op:?}"))),
    })
}

pub(super) fn scatter_elements(t: &Tensor, i: &Tensor, u: &Tensor, a: usize, how: Option<Bin>) -> Result<Tensor> {
    t.scatter(axis(a), i, u, scatter_op(how)?)
}

pub(super) fn scatter_nd(t: &Tensor, index: &Tensor, updates: &Tensor, how: Option<Bin>) -> Result<Tensor> {
    t.scatter_nd(index, updates, scatter_op(how)?)
}

pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.matmul(b)?.cast(a.dtype())
}

pub(super) fn conv(x: &Tensor, w: &Tensor, win: &Window, groups: usize) -> Result<Tensor> {
    let opts = ConvOpts {
        stride: win.stride.clone(),
        dilation: win.dilation.clone(),
        padding: win.pads.iter().map(|&(a, b)| (a as i64, b as i64)).collect(),
        groups,
    };
    x.conv(w, None, &opts)?.cast(x.dtype())
}

pub(super) fn windows(x: &Tensor, win: &Window) -> Result<Tensor> {
    x.windows(&win.kernel, &win.stride, &win.dilation)
}
