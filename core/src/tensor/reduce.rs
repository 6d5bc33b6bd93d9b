//! Reductions and what is made of them: statistics, norms, softmax, argmax.
//!
//! `axes` is a list of axes (negative from the end); an empty list means all. `keep` keeps reduced axes with size 1.
//! A reduction over no elements gives the identity: 0 for sum, 1 for prod, -inf for max.

use super::{Tensor, check_axes, check_axis};
use crate::uop::ReduceOp;
use crate::{DType, Error, Result};
use std::f64::consts::LN_2;

impl Tensor {
    fn reduce(&self, name: &'static str, op: ReduceOp, axes: &[i64], keep: bool) -> Result<Tensor> {
        let shape = self.shape();
        let axes = check_axes(name, axes, shape.len())?;
        let mut kept = shape.clone();
        axes.iter().for_each(|&a| kept[a] = 1);
        let out = if axes.iter().any(|&a| shape[a] == 0) {
            Tensor::identity(self.session(), op, self.dtype(), &kept)
        } else {
            let list: Vec<u8> = axes.iter().filter(|&&a| shape[a] != 1).map(|&a| a as u8).collect();
            self.map(|g, u| g.reduce(u, op, &list))
        };
        if keep {
            return Ok(out);
        }
        let squeezed: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).map(|a| shape[a]).collect();
        out.reshape(&squeezed)
    }

    /// Sum. Narrow ints accumulate in i32 or u32; f16 and bf16 keep their dtype (the accumulator is wider).
    pub fn sum(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.reduce("sum", ReduceOp::Add, axes, keep)
    }

    /// Product, accumulating as [`Tensor::sum`].
    pub fn prod(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.reduce("prod", ReduceOp::Mul, axes, keep)
    }

    /// Largest element; NaN if any is NaN.
    pub fn max(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.reduce("max", ReduceOp::Max, axes, keep)
    }

    /// Smallest element; NaN if any is NaN.
    pub fn min(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.reduce("min", ReduceOp::Min, axes, keep)
    }

    /// True if any element is nonzero.
    pub fn any(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.to_bool()?.reduce("any", ReduceOp::Max, axes, keep)
    }

    /// True if every element is nonzero.
    pub fn all(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.to_bool()?.reduce("all", ReduceOp::Min, axes, keep)
    }

    /// Elements that each result of a reduction over `axes` is made of.
    fn reduced_count(&self, axes: &[i64]) -> Result<usize> {
        let shape = self.shape();
        Ok(check_axes("reduce", axes, shape.len())?.iter().map(|&a| shape[a]).product())
    }

    /// Arithmetic mean; ints give f32.
    pub fn mean(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        let n = self.reduced_count(axes)?;
        // neither the sum nor the count has to fit a 16-bit float
        self.in_f32(&|x| x.sum(axes, keep)?.div(n as f64))
    }

    /// Variance with divisor `n - correction` (0: population, 1: sample), by two passes.
    pub fn var(&self, axes: &[i64], correction: usize, keep: bool) -> Result<Tensor> {
        let n = self.reduced_count(axes)?;
        self.in_f32(&|x| {
            let centred = x.sub(x.mean(axes, true)?)?;
            centred.square()?.sum(axes, keep)?.div(n.saturating_sub(correction) as f64)
        })
    }

    /// Standard deviation with divisor `n - correction`.
    pub fn std(&self, axes: &[i64], correction: usize, keep: bool) -> Result<Tensor> {
        self.var(axes, correction, keep)?.sqrt()
    }

    /// The p-norm: p = 1, 2, any other positive number, or infinity.
    pub fn norm(&self, p: f64, axes: &[i64], keep: bool) -> Result<Tensor> {
        let x = self.to_float()?;
        match p {
            1.0 => x.abs()?.sum(axes, keep),
            2.0 => {
                // at the zero vector the root has no slope: the norm is a constant 0 there, as torch
                let s = x.square()?.sum(axes, keep)?;
                let zero = s.eq(0)?;
                zero.select(0, zero.select(1, s)?.sqrt()?)
            }
            p if p == f64::INFINITY => x.abs()?.max(axes, keep),
            p if p > 0.0 => x.abs()?.pow(p)?.sum(axes, keep)?.pow(1.0 / p),
            _ => Err(Error::value("norm", format!("p = {p} is not positive"))),
        }
    }

    /// Scaled to unit p-norm along an axis, the norm being at least `eps`.
    pub fn normalize(&self, p: f64, axis: i64, eps: f64) -> Result<Tensor> {
        self.div(self.norm(p, &[axis], true)?.maximum(eps)?)
    }

    // ---- softmax and kin

    /// `x - max` along an axis, with an infinite maximum left out so that rows of equal infinities stay NaN-free.
    fn shifted(&self, axes: &[i64]) -> Result<(Tensor, Tensor)> {
        let x = self.to_float()?;
        let m = x.max(axes, true)?.detach();
        let m = m.isinf()?.select(0, m)?;
        Ok((x.sub(&m)?, m))
    }

    /// `e^x / sum(e^x)` along an axis.
    pub fn softmax(&self, axis: i64) -> Result<Tensor> {
        self.in_f32(&|x| {
            let e = x.sub(x.max(&[axis], true)?.detach())?.exp()?;
            e.mul(e.sum(&[axis], true)?.reciprocal()?)
        })
    }

    /// `ln(softmax(x))` along an axis.
    pub fn log_softmax(&self, axis: i64) -> Result<Tensor> {
        self.in_f32(&|x| {
            let d = x.sub(x.max(&[axis], true)?.detach())?;
            d.sub(d.exp()?.sum(&[axis], true)?.log2()?.mul(LN_2)?)
        })
    }

    /// `ln(sum(e^x))`, without overflow.
    pub fn logsumexp(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        let r = self.in_f32(&|x| {
            let (d, m) = x.shifted(axes)?;
            d.exp()?.sum(axes, true)?.log()?.add(m)
        })?;
        if keep {
            return Ok(r);
        }
        let (shape, axes) = (self.shape(), check_axes("logsumexp", axes, self.rank())?);
        let squeezed: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).map(|a| shape[a]).collect();
        r.reshape(&squeezed)
    }

    // ---- argmax

    /// Index (i32) of the largest element along an axis; the lowest index among equals; the first NaN if there is one.
    pub fn argmax(&self, axis: i64, keep: bool) -> Result<Tensor> {
        self.arg("argmax", ReduceOp::Max, axis, keep)
    }

    /// Index (i32) of the smallest element along an axis; the lowest index among equals.
    pub fn argmin(&self, axis: i64, keep: bool) -> Result<Tensor> {
        self.arg("argmin", ReduceOp::Min, axis, keep)
    }

    fn arg(&self, name: &'static str, op: ReduceOp, axis: i64, keep: bool) -> Result<Tensor> {
        let shape = self.shape();
        let a = check_axis(name, axis, shape.len())?;
        if shape[a] == 0 {
            return Err(Error::value(name, format!("axis {axis} of {shape:?} is empty")));
        }
        let best = self.reduce(name, op, &[axis], true)?;
        let mut hit = self.eq(&best)?;
        if self.dtype().is_float() {
            hit = hit.logical_or(self.isnan()?)?;
        }
        let mut index_shape = vec![1; shape.len()];
        index_shape[a] = shape[a];
        let index = Tensor::iota(self.session(), shape[a])?.reshape(&index_shape)?;
        hit.select(index, shape[a] as i32)?.cast(DType::I32)?.reduce(name, ReduceOp::Min, &[axis], keep)
    }
}
