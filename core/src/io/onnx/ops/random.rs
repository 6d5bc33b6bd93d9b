//! Operators that draw random numbers. Each run has a new random key, which is an input of its plan, so that a replay
//! draws other numbers. A node with a `seed` draws the same numbers in every run.

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, random_op};
use crate::dtype::{DType, Scalar};
use crate::engine::Bytes;
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[random_op("Dropout", 4, dropout)];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    random_op("RandomUniform", 0, |o| shaped(o, uniform)),
    random_op("RandomUniformLike", 0, |o| like(o, uniform)),
    random_op("RandomNormal", 0, |o| shaped(o, normal)),
    random_op("RandomNormalLike", 0, |o| like(o, normal)),
    OpDef {
        floats: 1,
        ..random_op("Bernoulli", 0, |o| {
            let p = o.arg(0)?;
            let dtype = o.dtype_attr("dtype", p.dtype())?;
            let draw = unit(o, p.shape())?;
            let hit = o.cx.lt(&draw, &o.cx.cast(&p, DType::F32)?)?;
            one(o.cx.cast(&hit, dtype))
        })
    },
    OpDef { floats: 1, ..random_op("Multinomial", 0, multinomial) },
];

/// Random 32-bit words.
fn bits(o: &mut Op<'_, '_>, shape: &[usize]) -> Result<Tensor> {
    o.cx.check_shape(shape)?;
    let seed = match (o.float_opt("seed"), o.int_opt("seed")) {
        (Ok(v), _) => v.map(f64::to_bits),
        (_, Ok(v)) => v.map(|v| v as u64),
        (Err(e), _) => return Err(e),
    };
    let words = |n: u64| Tensor::from_bytes(&o.cx.session, DType::U32, &[2], Bytes::new(n.to_le_bytes().to_vec()));
    let key = match (seed, &o.cx.key) {
        (Some(seed), _) => words(seed)?,
        (None, Some(key)) => key.clone(),
        (None, None) => words(0)?,
    };
    Tensor::rand_bits_keyed(&key, o.cx.draw(), shape)
}

/// Uniform in `[0, 1)`, f32.
fn unit(o: &mut Op<'_, '_>, shape: &[usize]) -> Result<Value> {
    if o.cx.check_shape(shape)? == 0 {
        return o.cx.full(DType::F32, shape, Scalar::float(0.0));
    }
    bits(o, shape)?.bits_to_unit().map(Value::lazy)
}

fn uniform(o: &mut Op<'_, '_>, shape: &[usize]) -> Result<Value> {
    let (low, high) = (o.float("low", 0.0)?, o.float("high", 1.0)?);
    let u = unit(o, shape)?;
    o.cx.with(Cx::add, &o.cx.with(Cx::mul, &u, high - low)?, low)
}

fn normal(o: &mut Op<'_, '_>, shape: &[usize]) -> Result<Value> {
    let (mean, scale) = (o.float("mean", 0.0)?, o.float("scale", 1.0)?);
    if o.cx.check_shape(shape)? == 0 {
        return o.cx.full(DType::F32, shape, Scalar::float(0.0));
    }
    let n = bits(o, &[&[2], shape].concat())?.bits_to_normal().map(Value::lazy)?;
    o.cx.with(Cx::add, &o.cx.with(Cx::mul, &n, scale)?, mean)
}

type Draw = fn(&mut Op<'_, '_>, &[usize]) -> Result<Value>;

fn shaped(o: &mut Op<'_, '_>, draw: Draw) -> Result<Vec<Value>> {
    let Some(shape) = o.ints_opt("shape")? else { return o.fail("the attribute `shape` is missing") };
    let (shape, dtype) = (o.sizes(&shape)?, o.dtype_attr("dtype", DType::F32)?);
    let v = draw(o, &shape)?;
    one(o.cx.cast(&v, dtype))
}

fn like(o: &mut Op<'_, '_>, draw: Draw) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let dtype = o.dtype_attr("dtype", x.dtype())?;
    let v = draw(o, x.shape())?;
    one(o.cx.cast(&v, dtype))
}

/// Class indices drawn from unnormalised log-probabilities `[batch, classes]`: `[batch, samples]`.
fn multinomial(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let &[batch, classes] = x.shape() else { return o.fail(format!("log-probabilities {:?}", x.shape())) };
    let samples = o.size(o.int("sample_size", 1)?)?;
    let dtype = o.dtype_attr("dtype", DType::I32)?;
    if classes == 0 {
        return o.fail("there are no classes");
    }
    o.cx.check_shape(&[batch, samples, classes])?;
    let x = o.cx.cast(&x, DType::F32)?;
    let top = o.cx.reduce(Tensor::max, &x, &[1], true)?;
    let sums = o.cx.cumsum(&o.cx.unary(Tensor::exp, &o.cx.sub(&x, &top)?)?, 1)?;
    let total = o.cx.narrow(&sums, 1, classes - 1, 1)?;
    let draw = unit(o, &[batch, samples])?;
    let draw = o.cx.mul(&draw, &total)?;
    // The class is the number of cumulative sums that are at most the draw.
    let draw = o.cx.reshape(&draw, &[batch, samples, 1])?;
    let over = o.cx.not(&o.cx.lt(&draw, &o.cx.reshape(&sums, &[batch, 1, classes])?)?)?;
    let at = o.cx.reduce(Tensor::sum, &o.cx.cast(&over, DType::I32)?, &[2], false)?;
    one(o.cx.cast(&o.cx.with(Cx::min, &at, (classes - 1) as f64)?, dtype))
}

/// The unchanged input and a mask of ones, except in training mode.
fn dropout(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let trains = o.known_floats_opt(2)?.is_some_and(|t| t.first().is_some_and(|&v| v != 0.0));
    let ratio = match o.opt(1).filter(|_| trains) {
        Some(r) if r.len() != 1 => return o.fail(format!("a ratio {:?}", r.shape())),
        Some(r) => o.cx.reshape(&o.cx.cast(&r, DType::F32)?, &[])?,
        None => o.cx.scalar(DType::F32, if trains { 0.5 } else { 0.0 }),
    };
    if !trains || o.cx.host(&ratio)?.is_some_and(|r| r.to_f64().iter().all(|&v| v == 0.0)) {
        let mask = o.cx.full(DType::Bool, x.shape(), Scalar::Int(1))?;
        return Ok(vec![x, mask]);
    }
    let draw = unit(o, x.shape())?;
    let mask = o.cx.not(&o.cx.lt(&draw, &ratio)?)?;
    let rest = o.cx.cast(&o.cx.sub(&o.cx.scalar(DType::F32, 1.0), &ratio)?, x.dtype())?;
    let kept = o.cx.div(&x, &rest)?;
    Ok(vec![o.cx.select(&mask, &kept, &o.cx.scalar_like(&x, 0.0))?, mask])
}
