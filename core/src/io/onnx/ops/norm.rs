//! Normalisations.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, float_op, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    float_op("BatchNormalization", 31, 0, batch_norm),
    float_op("InstanceNormalization", 7, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        let axes: Vec<usize> = (2..x.rank()).collect();
        let y = standard(o.cx, &x, &axes, o.float("epsilon", 1e-5)?)?;
        one(scale_channels(o, &y, &o.arg(1)?, Some(&o.arg(2)?)))
    }),
    float_op("LayerNormalization", 7, 0, layer_norm),
    float_op("RMSNormalization", 3, 0, rms_norm),
    op("SimplifiedLayerNormalization", 0, rms_norm),
    float_op("GroupNormalization", 7, 0, group_norm),
    float_op("LRN", 1, 0, lrn),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    super::contrib::ms("SimplifiedLayerNormalization", 0, rms_norm),
    float_op("MeanVarianceNormalization", 1, 0, |o| {
        let x = o.arg(0)?;
        let axes = o.ints_opt("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
        let axes = o.axes(&axes, x.rank())?;
        one(o.cx.in_f32(&x, &|x| {
            let mean = o.cx.mean(x, &axes, true)?;
            let square = o.cx.mean(&o.cx.mul(x, x)?, &axes, true)?;
            let deviation = o.cx.unary(Tensor::sqrt, &o.cx.sub(&square, &o.cx.mul(&mean, &mean)?)?)?;
            o.cx.div(&o.cx.sub(x, &mean)?, &o.cx.with(Cx::add, &deviation, 1e-9)?)
        }))
    }),
    float_op("LpNormalization", 1, 0, |o| {
        let x = o.arg(0)?;
        let axis = o.axis(o.int("axis", -1)?, x.rank())?;
        let p = o.int("p", 2)?;
        one(o.cx.in_f32(&x, &|x| {
            let norm = match p {
                1 => o.cx.reduce(Tensor::sum, &o.cx.unary(Tensor::abs, x)?, &[axis], true)?,
                2 => o.cx.unary(Tensor::sqrt, &o.cx.reduce(Tensor::sum, &o.cx.mul(x, x)?, &[axis], true)?)?,
                p => return o.fail(format!("p is {p}")),
            };
            // a zero vector stays zero
            let zero = o.cx.eq(&norm, &o.cx.scalar_like(&norm, 0.0))?;
            let norm = o.cx.select(&zero, &o.cx.scalar_like(&norm, 1.0), &norm)?;
            o.cx.div(x, &norm)
        }))
    }),
];

/// (x - mean) / sqrt(variance + eps) over some axes.
fn standard(cx: &Cx<'_>, x: &Value, axes: &[usize], eps: f64) -> Result<Value> {
    cx.in_f32(x, &|x| {
        let centred = cx.sub(x, &cx.mean(x, axes, true)?)?;
        cx.mul(&centred, &inverse(cx, &cx.mean(&cx.mul(&centred, &centred)?, axes, true)?, eps)?)
    })
}

/// 1 / sqrt(v + eps)
fn inverse(cx: &Cx<'_>, v: &Value, eps: f64) -> Result<Value> {
    cx.unary(Tensor::reciprocal, &cx.unary(Tensor::sqrt, &cx.with(Cx::add, v, eps)?)?)
}

/// A vector shaped to broadcast along the channel axis 1.
fn channels(o: &Op<'_, '_>, x: &Value, v: &Value) -> Result<Value> {
    if v.len() != x.dim(1)? {
        return o.fail(format!("{:?} does not fit the channels of {:?}", v.shape(), x.shape()));
    }
    let mut shape = vec![1; x.rank()];
    shape[1] = v.len();
    o.cx.cast(&o.cx.reshape(v, &shape)?, x.dtype())
}

fn scale_channels(o: &Op<'_, '_>, x: &Value, scale: &Value, bias: Option<&Value>) -> Result<Value> {
    let y = o.cx.mul(x, &channels(o, x, scale)?)?;
    match bias {
        Some(b) => o.cx.add(&y, &channels(o, x, b)?),
        None => Ok(y),
    }
}

fn batch_norm(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    o.want_rank(&x, 2)?;
    let eps = o.float("epsilon", 1e-5)?;
    let (scale, bias) = (o.arg(1)?, o.arg(2)?);
    let old = (o.arg(3)?, o.arg(4)?);
    let training = o.flag("training_mode", false)?;
    let axes: Vec<usize> = (0..x.rank()).filter(|&a| a != 1).collect();
    let (mean, variance) = if training {
        let mean = o.cx.mean(&x, &axes, true)?;
        let centred = o.cx.sub(&x, &mean)?;
        let variance = o.cx.mean(&o.cx.mul(&centred, &centred)?, &axes, true)?;
        (o.cx.reshape(&mean, &[x.dim(1)?])?, o.cx.reshape(&variance, &[x.dim(1)?])?)
    } else {
        old.clone()
    };
    // One multiplication and one addition for each channel, whose operands are folded if they are constants.
    let f = |v: &Value| o.cx.cast(v, x.dtype());
    let k = o.cx.mul(&f(&scale)?, &inverse(o.cx, &f(&variance)?, eps)?)?;
    let b = o.cx.sub(&f(&bias)?, &o.cx.mul(&f(&mean)?, &k)?)?;
    // Before operator set 9, each position of a channel may have its own parameters.
    let y = if o.opset < 9 && !o.flag("spatial", true)? && k.shape() == x.shape_in(1..)? {
        o.cx.add(&o.cx.mul(&x, &k)?, &b)?
    } else {
        scale_channels(o, &x, &k, Some(&b))?
    };
    if !training {
        return Ok(vec![y]);
    }
    let momentum = o.float("momentum", 0.9)?;
    let blend = |old: &Value, new: &Value| {
        let new = o.cx.with(Cx::mul, &o.cx.cast(new, old.dtype())?, 1.0 - momentum)?;
        o.cx.add(&o.cx.with(Cx::mul, old, momentum)?, &new)
    };
    Ok(vec![y, blend(&old.0, &mean)?, blend(&old.1, &variance)?])
}

/// The value in f32 if its type is narrower, for statistics.
fn wide(cx: &Cx<'_>, x: &Value) -> Result<Value> {
    if matches!(x.dtype(), DType::F16 | DType::BF16) { cx.cast(x, DType::F32) } else { Ok(x.clone()) }
}

/// (x - mean) / sqrt(variance + eps) over the axes from `axis` on, computed in f32 at least; with the mean and the
/// inverse standard deviation.
pub(super) fn normalized(cx: &Cx<'_>, x: &Value, axis: usize, eps: f64) -> Result<(Value, Value, Value)> {
    let axes: Vec<usize> = (axis..x.rank()).collect();
    let wide = wide(cx, x)?;
    let mean = cx.mean(&wide, &axes, true)?;
    let centred = cx.sub(&wide, &mean)?;
    let inverse = inverse(cx, &cx.mean(&cx.mul(&centred, &centred)?, &axes, true)?, eps)?;
    Ok((cx.cast(&cx.mul(&centred, &inverse)?, x.dtype())?, mean, inverse))
}

/// x / sqrt(mean of squares + eps) over the axes from `axis` on.
pub(super) fn scaled_by_rms(cx: &Cx<'_>, x: &Value, axis: usize, eps: f64) -> Result<Value> {
    let axes: Vec<usize> = (axis..x.rank()).collect();
    let wide = wide(cx, x)?;
    let inverse = inverse(cx, &cx.mean(&cx.mul(&wide, &wide)?, &axes, true)?, eps)?;
    cx.cast(&cx.mul(&wide, &inverse)?, x.dtype())
}

fn layer_norm(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.axis(o.int("axis", -1)?, x.rank())?;
    let (eps, cx) = (o.float("epsilon", 1e-5)?, &o.cx);
    let (mut y, mean, inverse) = normalized(cx, &x, axis, eps)?;
    if let Some(scale) = o.opt(1) {
        y = cx.mul(&y, &scale)?;
    }
    if let Some(bias) = o.opt(2) {
        y = cx.add(&y, &bias)?;
    }
    Ok(vec![y, mean, inverse])
}

fn rms_norm(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.axis(o.int("axis", -1)?, x.rank())?;
    let y = scaled_by_rms(o.cx, &x, axis, o.float("epsilon", 1e-5)?)?;
    one(o.cx.mul(&y, &o.arg(1)?))
}

fn group_norm(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    o.want_rank(&x, 2)?;
    let groups = o.size(o.int("num_groups", 0)?)?;
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    if groups == 0 || c % groups != 0 {
        return o.fail(format!("{c} channels in {groups} groups"));
    }
    let rest: usize = x.shape_in(2..)?.iter().product();
    let y = o.cx.reshape(&x, &[n, groups, c / groups * rest])?;
    let y = o.cx.cast(&standard(o.cx, &wide(o.cx, &y)?, &[2], o.float("epsilon", 1e-5)?)?, x.dtype())?;
    // Operator sets before 21 have a scale for each group, later ones for each channel.
    if o.opset < 21 && scale.len() == groups && groups != c {
        let side = |v: &Value| o.cx.reshape(v, &[1, groups, 1]);
        let y = o.cx.add(&o.cx.mul(&y, &side(&scale)?)?, &side(&bias)?)?;
        return one(o.cx.reshape(&y, x.shape()));
    }
    one(scale_channels(o, &o.cx.reshape(&y, x.shape())?, &scale, Some(&bias)))
}

fn lrn(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    o.want_rank(&x, 2)?;
    let size = o.size(o.int("size", 1)?)?;
    let c = x.dim(1)?;
    if size == 0 || size > 1 << 16 {
        return o.fail(format!("a size of {size}"));
    }
    o.cx.work(2 * size)?;
    let (alpha, beta, bias) = (o.float("alpha", 1e-4)?, o.float("beta", 0.75)?, o.float("bias", 1.0)?);
    let square = o.cx.mul(&x, &x)?;
    let (mut before, mut after) = (vec![0; x.rank()], vec![0; x.rank()]);
    (before[1], after[1]) = ((size - 1) / 2, size / 2);
    // The sum over a window of `size` channels, as a sum of shifted slices.
    let padded = o.cx.pad(&square, &before, &after, Scalar::float(0.0))?;
    let mut sum = o.cx.narrow(&padded, 1, 0, c)?;
    for i in 1..size {
        sum = o.cx.add(&sum, &o.cx.narrow(&padded, 1, i, c)?)?;
    }
    let base = o.cx.with(Cx::add, &o.cx.with(Cx::mul, &sum, alpha / size as f64)?, bias)?;
    one(o.cx.div(&x, &o.cx.with(Cx::pow, &base, beta)?))
}
