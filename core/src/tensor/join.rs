//! Joining and splitting: cat, stack, split, chunk, roll. A join is an elementwise expression over the parts, each
//! padded with zeros to the full size: their sum for integers, their logical or for bools, and for floats a choice by
//! index. The scheduler makes one masked kernel of it, or stores each part separately (`schedule/join.rs`).

use super::{Tensor, check_axis};
use crate::uop::Op;
use crate::{DType, Error, Result};

impl Tensor {
    /// Concatenates tensors along an axis: `[.., n, ..]` and `[.., m, ..]` give `[.., n + m, ..]`. Dtypes promote.
    /// `Error::Value` for no tensors, `Error::Shape` where other sizes differ.
    pub fn cat(tensors: &[&Tensor], axis: i64) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::value("cat", "no tensors"));
        };
        let shape = first.shape();
        let a = check_axis("cat", axis, shape.len())?;
        let mut dtype = first.dtype();
        let mut total = 0usize;
        for t in tensors {
            Tensor::same_session("cat", first, t)?;
            let other = t.shape();
            let fits =
                other.len() == shape.len() && other.iter().zip(&shape).enumerate().all(|(i, (x, y))| i == a || x == y);
            if !fits {
                return Err(Error::Shape { op: "cat", lhs: shape, rhs: other });
            }
            dtype = dtype.promote(t.dtype());
            total += other[a];
        }
        let mut at = 0;
        let mut parts = Vec::new();
        for t in tensors {
            let n = t.shape()[a];
            if n == 0 {
                continue;
            }
            let mut pad = vec![(0, 0); shape.len()];
            pad[a] = (at, total - at - n);
            at += n;
            parts.push(t.cast(dtype)?.pad_zeros(&pad)?);
        }
        let Some((head, rest)) = parts.split_first() else { return first.cast(dtype) };
        // a choice for floats, because adding the zeros of other parts would turn -0.0 into 0.0
        if rest.is_empty() {
            return Ok(head.clone());
        }
        if !dtype.is_float() {
            let op = if dtype == DType::Bool { Op::Or } else { Op::Add };
            return rest.iter().try_fold(head.clone(), |acc, p| acc.join(op, p));
        }
        let mut ends = Vec::new();
        let mut end = 0;
        for t in tensors.iter().filter(|t| t.shape()[a] > 0) {
            end += t.shape()[a];
            ends.push(end);
        }
        let mut index_shape = vec![1; shape.len()];
        index_shape[a] = total;
        let index = Tensor::iota(first.session(), total)?.reshape(&index_shape)?;
        let last = parts.len() - 1;
        (0..last).rev().try_fold(parts[last].clone(), |acc, i| index.lt(ends[i])?.select(&parts[i], acc))
    }

    /// One binary node over two tensors of the same shape and dtype, without the checks of the public operations.
    fn join(&self, op: Op, other: &Tensor) -> Result<Tensor> {
        let mut s = self.session().state();
        let (x, y) = (s.node(self.root()), s.node(other.root()));
        let node = s.graph.binary(op, x, y);
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: self.session().clone(), root })
    }

    /// Joins tensors of the same shape along a new axis: `[..]` each give `[.., count, ..]`.
    pub fn stack(tensors: &[&Tensor], axis: i64) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::value("stack", "no tensors"));
        };
        let a = check_axis("stack", axis, first.rank() + 1)?;
        let parts = tensors.iter().map(|t| t.unsqueeze(a as i64)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), a as i64)
    }

    /// Splits an axis into pieces of the given sizes. `Error::Value` unless these add up to the axis' size.
    pub fn split(&self, sizes: &[usize], axis: i64) -> Result<Vec<Tensor>> {
        let n = self.dim(axis)?;
        if sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b)) != Some(n) {
            return Err(Error::value("split", format!("sizes {sizes:?} do not add up to {n}")));
        }
        let mut at = 0;
        let mut out = Vec::with_capacity(sizes.len());
        for &len in sizes {
            out.push(self.narrow(axis, at, len)?);
            at += len;
        }
        Ok(out)
    }

    /// Splits an axis into at most `count` pieces of equal size, of which the last may be smaller. As in torch there
    /// may be fewer: 5 elements in 4 pieces give 2, 2 and 1. `Error::Value` for a count of 0.
    pub fn chunk(&self, count: usize, axis: i64) -> Result<Vec<Tensor>> {
        let n = self.dim(axis)?;
        if count == 0 {
            return Err(Error::value("chunk", "0 pieces"));
        }
        let size = n.div_ceil(count).max(1);
        super::check_repetitions("chunk", n.div_ceil(size))?;
        let sizes: Vec<usize> = (0..n.div_ceil(size).max(1)).map(|i| size.min(n - i * size)).collect();
        self.split(&sizes, axis)
    }

    /// Shifts the elements along an axis by `shift`; elements pushed off one end come back at the other.
    pub fn roll(&self, shift: i64, axis: i64) -> Result<Tensor> {
        let n = self.dim(axis)?;
        if n == 0 {
            return Ok(self.clone());
        }
        let k = shift.rem_euclid(n as i64) as usize;
        if k == 0 {
            return Ok(self.clone());
        }
        let (head, tail) = (self.narrow(axis, 0, n - k)?, self.narrow(axis, n - k, k)?);
        Tensor::cat(&[&tail, &head], axis)
    }
}
