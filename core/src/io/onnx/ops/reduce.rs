//! Reductions, cumulative sums and products, and softmax.

use super::super::prim::{Reduction, Unary};
use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::index::arg_best;
use super::loss::log_softmax;
use super::{Op, OpDef, float_op, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    op("ReduceSum", 2, |o| reduce(o, |cx, x, a, k| cx.reduce(Tensor::sum, x, a, k))),
    op("ReduceMean", 2, |o| reduce(o, |cx, x, a, k| cx.mean(x, a, k))),
    op("ReduceMax", 2, |o| reduce(o, |cx, x, a, k| min_or_max(cx, Tensor::max, x, a, k))),
    op("ReduceMin", 2, |o| reduce(o, |cx, x, a, k| min_or_max(cx, Tensor::min, x, a, k))),
    op("ReduceProd", 2, |o| reduce(o, |cx, x, a, k| cx.reduce(Tensor::prod, x, a, k))),
    op("ReduceL1", 2, |o| reduce(o, |cx, x, a, k| cx.reduce(Tensor::sum, &cx.unary(Tensor::abs, x)?, a, k))),
    op("ReduceL2", 2, |o| reduce(o, l2)),
    op("ReduceSumSquare", 2, |o| reduce(o, |cx, x, a, k| cx.reduce(Tensor::sum, &cx.mul(x, x)?, a, k))),
    op("ReduceLogSum", 2, |o| reduce(o, |cx, x, a, k| whole(cx, Tensor::log, &cx.reduce(Tensor::sum, x, a, k)?))),
    op("ReduceLogSumExp", 2, |o| reduce(o, log_sum_exp)),
    op("ArgMax", 0, |o| arg_best(o, true)),
    op("ArgMin", 0, |o| arg_best(o, false)),
    op("CumSum", 2, |o| cumulate(o, 0.0, |cx, x, a| cx.cumsum(x, a))),
    op("CumProd", 2, |o| cumulate(o, 1.0, |cx, x, a| cx.cumprod(x, a))),
    float_op("Softmax", 1, 0, |o| soft(o, false)),
    float_op("LogSoftmax", 1, 0, |o| soft(o, true)),
    float_op("Hardmax", 1, 0, hardmax),
];

fn reduce(o: &mut Op<'_, '_>, f: fn(&Cx<'_>, &Value, &[usize], bool) -> Result<Value>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let keep = o.flag("keepdims", true)?;
    let axes = match o.ints_either("axes", 1)?.filter(|a| !a.is_empty()) {
        Some(axes) => o.axes(&axes, x.rank())?,
        None if o.flag("noop_with_empty_axes", false)? => Vec::new(),
        None => (0..x.rank()).collect(),
    };
    one(o.cx.in_f32(&x, &|x| f(o.cx, x, &axes, keep)))
}

/// Maximum or minimum; for bools `any` or `all`.
fn min_or_max(cx: &Cx<'_>, op: Reduction, x: &Value, axes: &[usize], keep: bool) -> Result<Value> {
    if x.dtype() == DType::Bool {
        return cx.cast(&cx.reduce(op, &cx.cast(x, DType::U8)?, axes, keep)?, DType::Bool);
    }
    cx.reduce(op, x, axes, keep)
}

fn l2(cx: &Cx<'_>, x: &Value, axes: &[usize], keep: bool) -> Result<Value> {
    whole(cx, Tensor::sqrt, &cx.reduce(Tensor::sum, &cx.mul(x, x)?, axes, keep)?)
}

/// Applies a float function; for integers it is computed in f32 and truncated.
fn whole(cx: &Cx<'_>, f: Unary, x: &Value) -> Result<Value> {
    if x.dtype().is_float() {
        return cx.unary(f, x);
    }
    cx.cast(&cx.unary(f, &cx.cast(x, DType::F32)?)?, x.dtype())
}

fn log_sum_exp(cx: &Cx<'_>, x: &Value, axes: &[usize], keep: bool) -> Result<Value> {
    if !x.dtype().is_float() {
        return cx.cast(&log_sum_exp(cx, &cx.cast(x, DType::F32)?, axes, keep)?, x.dtype());
    }
    let top = cx.reduce(Tensor::max, x, axes, true)?;
    // An infinite maximum is not subtracted, since inf - inf is NaN.
    let infinite = cx.eq(&cx.unary(Tensor::abs, &top)?, &cx.scalar_like(&top, f64::INFINITY))?;
    let top = cx.select(&infinite, &cx.scalar_like(&top, 0.0), &top)?;
    let sum = cx.reduce(Tensor::sum, &cx.unary(Tensor::exp, &cx.sub(x, &top)?)?, axes, true)?;
    let out = cx.add(&cx.unary(Tensor::log, &sum)?, &top)?;
    if keep {
        return Ok(out);
    }
    let shape: Vec<usize> = (0..x.rank()).filter(|a| !axes.contains(a)).map(|a| x.extent(a)).collect();
    cx.reshape(&out, &shape)
}

/// Cumulates all elements up to each one, or (`exclusive`) all before it, beginning with `first`.
fn cumulate(o: &mut Op<'_, '_>, first: f64, f: fn(&Cx<'_>, &Value, usize) -> Result<Value>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.known_ints(1)?.first().copied().unwrap_or(0);
    let axis = o.axis(axis, x.rank())?;
    let reverse = o.flag("reverse", false)?;
    let from = if reverse { o.cx.flip(&x, axis)? } else { x.clone() };
    let mut y = f(o.cx, &from, axis)?;
    if o.flag("exclusive", false)? && x.len() > 0 {
        let mut before = vec![0; x.rank()];
        before[axis] = 1;
        let kept = o.cx.narrow(&y, axis, 0, x.dim(axis)? - 1)?;
        y = o.cx.pad(&kept, &before, &vec![0; x.rank()], Scalar::from_f64(first, x.dtype()))?;
    }
    one(if reverse { o.cx.flip(&y, axis) } else { Ok(y) })
}

/// Softmax over some axes.
pub(super) fn softmax(cx: &Cx<'_>, x: &Value, axes: &[usize]) -> Result<Value> {
    cx.in_f32(x, &|x| {
        let e = cx.unary(Tensor::exp, &cx.sub(x, &cx.reduce(Tensor::max, x, axes, true)?)?)?;
        cx.mul(&e, &cx.unary(Tensor::reciprocal, &cx.reduce(Tensor::sum, &e, axes, true)?)?)
    })
}

/// The axes of a softmax: one axis since operator set 13; before that all axes from the given one on.
fn soft_axes(o: &Op<'_, '_>, x: &Value) -> Result<Vec<usize>> {
    let axis = o.axis(o.int("axis", if o.opset < 13 { 1 } else { -1 })?, x.rank())?;
    Ok(if o.opset < 13 { (axis..x.rank()).collect() } else { vec![axis] })
}

fn soft(o: &mut Op<'_, '_>, log: bool) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axes = soft_axes(o, &x)?;
    one(if log { log_softmax(o.cx, &x, &axes) } else { softmax(o.cx, &x, &axes) })
}

fn hardmax(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axes = soft_axes(o, &x)?;
    let (lead, rest) = x.shape().split_at(axes[0]);
    let (flat, axis) = if o.opset < 13 {
        (o.cx.reshape(&x, &[lead.iter().product(), rest.iter().product()])?, 1)
    } else {
        (x.clone(), axes[0])
    };
    let at = o.cx.argmax(&flat, axis, true)?;
    let mut shape = vec![1; flat.rank()];
    shape[axis] = flat.dim(axis)?;
    let steps = o.cx.count_up(shape[axis])?;
    let hit = o.cx.eq(&at, &o.cx.reshape(&steps, &shape)?)?;
    one(o.cx.reshape(&o.cx.cast(&hit, x.dtype())?, x.shape()))
}
