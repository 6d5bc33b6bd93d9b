//! Reductions, and functions built from them: mean, variance, norms, softmax, argmax.
//!
//! `axes` is a list of axes (negative ones count from the end); an empty list means all axes. With `keep` the reduced
//! axes stay with size 1, otherwise they are removed. A reduction over no elements gives the operation's identity: 0
//! for sum, 1 for prod, -inf for max.

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

    /// Sum over axes. bool, i8 and i16 are summed and returned in i32, u8 and u16 in u32; f16 and bf16 keep their
    /// dtype, with an f32 accumulator.
    pub fn sum(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.reduce("sum", ReduceOp::Add, axes, keep)
    }

    /// Product over axes, with the dtypes of [`Tensor::sum`].
    pub fn prod(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.reduce("prod", ReduceOp::Mul, axes, keep)
    }

    /// Largest element over axes; NaN if any element is NaN.
    pub fn max(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.reduce("max", ReduceOp::Max, axes, keep)
    }

    /// Smallest element over axes; NaN if any element is NaN.
    pub fn min(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.reduce("min", ReduceOp::Min, axes, keep)
    }

    /// Bool: true if any element is nonzero.
    pub fn any(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.to_bool()?.reduce("any", ReduceOp::Max, axes, keep)
    }

    /// Bool: true if every element is nonzero.
    pub fn all(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.to_bool()?.reduce("all", ReduceOp::Min, axes, keep)
    }

    /// The number of elements that each result of a reduction over `axes` is computed from.
    fn reduced_count(&self, axes: &[i64]) -> Result<usize> {
        let shape = self.shape();
        Ok(check_axes("reduce", axes, shape.len())?.iter().map(|&a| shape[a]).product())
    }

    /// Arithmetic mean over axes; integers and bools give f32.
    pub fn mean(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        let n = self.reduced_count(axes)?;
        // in f32, since neither the sum nor the count need fit a 16-bit float
        self.in_f32(&|x| x.sum(axes, keep)?.div(n as f64))
    }

    /// Variance over axes with the divisor `n - correction` (0: population, 1: sample), computed in two passes: the
    /// mean, then the squared distances from it.
    pub fn var(&self, axes: &[i64], correction: usize, keep: bool) -> Result<Tensor> {
        let n = self.reduced_count(axes)?;
        self.in_f32(&|x| {
            let centred = x.sub(x.mean(axes, true)?)?;
            centred.square()?.sum(axes, keep)?.div(n.saturating_sub(correction) as f64)
        })
    }

    /// Standard deviation over axes with the divisor `n - correction`.
    pub fn std(&self, axes: &[i64], correction: usize, keep: bool) -> Result<Tensor> {
        self.var(axes, correction, keep)?.sqrt()
    }

    /// The p-norm over axes, for a positive `p` or infinity; `Error::Value` for others (see [`Tensor::vector_norm`]).
    pub fn norm(&self, p: f64, axes: &[i64], keep: bool) -> Result<Tensor> {
        let x = self.to_float()?;
        match p {
            1.0 => x.abs()?.sum(axes, keep),
            2.0 => {
                // the square root has an infinite slope at 0: as in torch, the gradient of the norm of a zero vector is
                // 0
                let s = x.square()?.sum(axes, keep)?;
                let zero = s.eq(0)?;
                zero.select(0, zero.select(1, s)?.sqrt()?)
            }
            p if p == f64::INFINITY => x.abs()?.max(axes, keep),
            p if p > 0.0 => x.abs()?.pow(p)?.sum(axes, keep)?.pow(1.0 / p),
            _ => Err(Error::value("norm", format!("p = {p} is not positive"))),
        }
    }

    /// Divides vectors along an axis by their p-norm, or by `eps` where the norm is smaller.
    pub fn normalize(&self, p: f64, axis: i64, eps: f64) -> Result<Tensor> {
        self.div(self.norm(p, &[axis], true)?.maximum(eps)?)
    }

    // ---- softmax and related functions

    /// `(x - max, max)` over axes, where an infinite maximum counts as 0: otherwise a row of equal infinities would
    /// give `inf - inf`, a NaN.
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

    /// `ln(sum(e^x))` over axes, without overflow.
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

    /// Index (i32) of the largest element along an axis: the lowest index among equal ones, and the first NaN if there
    /// is one. `Error::Value` if the axis is empty.
    pub fn argmax(&self, axis: i64, keep: bool) -> Result<Tensor> {
        self.arg("argmax", ReduceOp::Max, axis, keep)
    }

    /// Index (i32) of the smallest element along an axis: the lowest index among equal ones, and the first NaN if there
    /// is one. `Error::Value` if the axis is empty.
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
