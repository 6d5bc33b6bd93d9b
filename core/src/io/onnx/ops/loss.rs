//! Losses, gradients, and optimiser steps.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, float_op};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    OpDef { domain: "ai.onnx.preview.training", ..float_op("Gradient", 0, 0, gradient) },
    float_op("NegativeLogLikelihoodLoss", 5, 0, |o| {
        let x = o.arg(0)?;
        one(likelihood(o, &x))
    }),
    float_op("SoftmaxCrossEntropyLoss", 5, 0, |o| {
        let x = o.arg(0)?;
        o.want_rank(&x, 2)?;
        let log = log_softmax(o.cx, &x, &[1])?;
        Ok(vec![likelihood(o, &log)?, log])
    }),
    OpDef { domain: "ai.onnx.preview.training", ..float_op("Momentum", 0xfffffffd, 0, |o| each(o, 2, momentum)) },
    OpDef { domain: "ai.onnx.preview.training", ..float_op("Adagrad", 0xfffffffd, 0, |o| each(o, 2, adagrad)) },
    OpDef { domain: "ai.onnx.preview.training", ..float_op("Adam", 0xfffffffd, 0, |o| each(o, 3, adam)) },
];

/// The logarithm of a softmax over some axes.
pub(super) fn log_softmax(cx: &Cx<'_>, x: &Value, axes: &[usize]) -> Result<Value> {
    cx.in_f32(x, &|x| {
        let x = cx.sub(x, &cx.reduce(Tensor::max, x, axes, true)?)?;
        let sum = cx.reduce(Tensor::sum, &cx.unary(Tensor::exp, &x)?, axes, true)?;
        cx.sub(&x, &cx.unary(Tensor::log, &sum)?)
    })
}

/// The negative log-likelihood: the negated entry of `[n, classes, ..]` at each target `[n, ..]`, weighted and reduced.
fn likelihood(o: &Op<'_, '_>, x: &Value) -> Result<Value> {
    let (target, weight, cx) = (o.arg(1)?, o.opt(2), &o.cx);
    let (lead, rest) = (x.shape().first().copied(), x.shape().get(2..));
    let fits = target.rank() > 0 && lead == target.shape().first().copied() && rest == target.shape().get(1..);
    if !fits || weight.as_ref().is_some_and(|w| w.shape() != [x.extent(1)]) {
        return o.fail(format!("targets {:?} for scores {:?}", target.shape(), x.shape()));
    }
    let target = cx.cast(&target, DType::I64)?;
    let ignored = o.int_opt("ignore_index")?.map(|i| cx.eq(&target, &cx.ints(&[i])?)).transpose()?;
    // The ignored index need not be a valid class, so it is replaced before the lookup.
    let class = match &ignored {
        Some(i) => cx.select(i, &cx.scalar_like(&target, 0.0), &target)?,
        None => target.clone(),
    };
    let mut at = target.shape().to_vec();
    at.insert(1, 1);
    let picked = cx.gather_elements(x, &cx.reshape(&class, &at)?, 1)?;
    let mut loss = cx.unary(Tensor::neg, &cx.reshape(&picked, target.shape())?)?;
    let mut weights = weight.map(|w| cx.gather(&w, &class, 0)).transpose()?;
    if let Some(i) = &ignored {
        let own = weights.unwrap_or_else(|| cx.scalar_like(x, 1.0));
        let kept = cx.select(i, &cx.scalar_like(x, 0.0), &own)?;
        weights = Some(cx.expand(&kept, target.shape())?);
    }
    if let Some(w) = &weights {
        loss = cx.mul(&loss, w)?;
    }
    let all: Vec<usize> = (0..target.rank()).collect();
    match (o.str("reduction", "mean")?.as_str(), weights) {
        ("none", _) => Ok(loss),
        ("sum", _) => cx.reduce(Tensor::sum, &loss, &all, false),
        ("mean", None) => cx.mean(&loss, &all, false),
        ("mean", Some(w)) => {
            cx.div(&cx.reduce(Tensor::sum, &loss, &all, false)?, &cx.reduce(Tensor::sum, &w, &all, false)?)
        }
        (other, _) => o.fail(format!("the reduction `{other}` is unknown")),
    }
}

/// Applies an optimiser's step to each tensor. Inputs: learning rate, step count, all tensors, all gradients, then all
/// tensors of each kind of state.
fn each(
    o: &mut Op<'_, '_>,
    groups: usize,
    step: fn(&Op<'_, '_>, &Value, &Value, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Value>> {
    let (rate, count) = (o.arg(0)?, o.arg(1)?);
    let all = (2..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    let n = all.len() / (groups + 1);
    if n * (groups + 1) != all.len() {
        return o.fail(format!("{} inputs do not come in groups of {}", all.len(), groups + 1));
    }
    let mut out: Vec<Vec<Value>> = vec![Vec::new(); groups];
    for i in 0..n {
        let own: Vec<Value> = (0..=groups).map(|g| all[g * n + i].clone()).collect();
        for (list, v) in out.iter_mut().zip(step(o, &rate, &count, &own)?) {
            list.push(v);
        }
    }
    Ok(out.concat())
}

/// The gradient of the loss with its L2 penalty: `norm_coefficient * x + g`.
fn regular(o: &Op<'_, '_>, x: &Value, g: &Value) -> Result<Value> {
    o.cx.add(&o.cx.with(Cx::mul, x, o.float("norm_coefficient", 0.0)?)?, g)
}

fn momentum(o: &Op<'_, '_>, rate: &Value, count: &Value, v: &[Value]) -> Result<Vec<Value>> {
    let cx = &o.cx;
    let (alpha, beta) = (o.float("alpha", 0.0)?, o.float("beta", 0.0)?);
    let g = regular(o, &v[0], &v[1])?;
    // The first step applies no damping.
    let first = cx.eq(count, &cx.scalar_like(count, 0.0))?;
    let beta = cx.select(&first, &cx.scalar_like(&g, 1.0), &cx.scalar_like(&g, beta))?;
    let speed = cx.add(&cx.with(Cx::mul, &v[2], alpha)?, &cx.mul(&beta, &g)?)?;
    let by = match o.str("mode", "standard")?.as_str() {
        "standard" => speed.clone(),
        "nesterov" => cx.add(&g, &cx.with(Cx::mul, &speed, alpha)?)?,
        other => return o.fail(format!("the mode `{other}` is unknown")),
    };
    Ok(vec![cx.sub(&v[0], &cx.mul(rate, &by)?)?, speed])
}

fn adagrad(o: &Op<'_, '_>, rate: &Value, count: &Value, v: &[Value]) -> Result<Vec<Value>> {
    let cx = &o.cx;
    let steps = cx.with(Cx::mul, &cx.cast(count, rate.dtype())?, o.float("decay_factor", 0.0)?)?;
    let rate = cx.div(rate, &cx.with(Cx::add, &steps, 1.0)?)?;
    let g = regular(o, &v[0], &v[1])?;
    let squares = cx.add(&v[2], &cx.mul(&g, &g)?)?;
    let size = cx.with(Cx::add, &cx.unary(Tensor::sqrt, &squares)?, o.float("epsilon", 0.0)?)?;
    Ok(vec![cx.sub(&v[0], &cx.div(&cx.mul(&rate, &g)?, &size)?)?, squares])
}

fn adam(o: &Op<'_, '_>, rate: &Value, count: &Value, v: &[Value]) -> Result<Vec<Value>> {
    let cx = &o.cx;
    let (alpha, beta) = (o.float("alpha", 0.9)?, o.float("beta", 0.999)?);
    let g = regular(o, &v[0], &v[1])?;
    let blend = |old: &Value, new: &Value, k: f64| cx.add(&cx.with(Cx::mul, old, k)?, &cx.with(Cx::mul, new, 1.0 - k)?);
    let (mean, square) = (blend(&v[2], &g, alpha)?, blend(&v[3], &cx.mul(&g, &g)?, beta)?);
    // Corrects the bias of the moving averages in the first steps.
    let steps = cx.cast(count, rate.dtype())?;
    let rest = |k: f64| -> Result<Value> {
        let power = cx.pow(&cx.scalar_like(&steps, k), &steps)?;
        cx.sub(&cx.scalar_like(&steps, 1.0), &power)
    };
    let adjusted = cx.div(&cx.mul(rate, &cx.unary(Tensor::sqrt, &rest(beta)?)?)?, &rest(alpha)?)?;
    let started = cx.lt(&cx.scalar_like(count, 0.0), count)?;
    let rate = cx.select(&started, &adjusted, rate)?;
    let size = cx.with(Cx::add, &cx.unary(Tensor::sqrt, &square)?, o.float("epsilon", 0.0)?)?;
    let moved = cx.sub(&v[0], &cx.div(&cx.mul(&rate, &mean)?, &size)?)?;
    let kept = 1.0 - o.float("norm_coefficient_post", 0.0)?;
    Ok(vec![cx.with(Cx::mul, &moved, kept)?, mean, square])
}

/// Gradients of a value of the enclosing graph with respect to values that it was computed from.
fn gradient(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (xs, zs, y) = (o.strs("xs")?, o.strs("zs")?, o.str("y", "")?);
    if o.cx.resumed {
        return o.unsupported("a value behind one that depends on the data");
    }
    for (i, name) in xs.iter().chain(&zs).enumerate() {
        if o.scope.get(name).map(Value::id) != o.opt(i).map(|v| v.id()) {
            return o.unsupported(format!("other values than `{name}` has"));
        }
    }
    let Some(y) = o.scope.get(&y).cloned() else { return o.fail(format!("there is no value `{y}`")) };
    let targets = (0..xs.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    if let Some(i) = targets.iter().chain([&y]).position(|v| !v.is_lazy()) {
        return o.unsupported(format!("the constant `{}`", xs.get(i).map_or("y", |n| n.as_str())));
    }
    let targets = targets.iter().map(|v| o.cx.lazy(v)).collect::<Result<Vec<_>>>()?;
    let y = o.cx.lazy(&y)?;
    let grads = y.grad_from(&y.full_like(1)?, &targets.iter().collect::<Vec<_>>())?;
    Ok(grads.into_iter().map(Value::lazy).collect())
}
