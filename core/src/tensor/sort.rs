//! Sorting along an axis, stable: equal elements keep their order, NaN counts as largest (as torch).
//!
//! Short axes are sorted by rank: an element goes to the place that is the number of elements before it, two kernels with
//! n^2 comparisons. Long ones go through a bitonic network of `log2(n)^2 / 2` compare-exchange steps that carries indices.

use super::{Tensor, check_axis};
use crate::{DType, Error, Result};

/// Longest axis sorted by counting ranks.
const RANK_LIMIT: usize = 2048;

impl Tensor {
    /// Sorted values and their indices (i32) along an axis.
    pub fn sort(&self, axis: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let index = self.argsort(axis, descending)?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// Indices (i32) that sort an axis.
    pub fn argsort(&self, axis: i64, descending: bool) -> Result<Tensor> {
        self.top_indices("argsort", axis, descending, None)
    }

    /// The `k` largest (or smallest) elements along an axis, in order, and their indices (i32).
    pub fn topk(&self, k: usize, axis: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let n = self.dim(axis)?;
        if k > n {
            return Err(Error::value("topk", format!("{k} of an axis of size {n}")));
        }
        let index = self.top_indices("topk", axis, largest, Some(k))?;
        Ok((self.gather(axis, &index)?, index))
    }

    fn top_indices(&self, name: &'static str, axis: i64, descending: bool, k: Option<usize>) -> Result<Tensor> {
        let a = check_axis(name, axis, self.rank())? as i64;
        let t = self.detach().move_axis(a, -1)?;
        let n = t.dim(-1)?;
        let k = k.unwrap_or(n);
        let t = if t.dtype() == DType::Bool { t.cast(DType::U8)? } else { t };
        let index = if n <= RANK_LIMIT || k <= 32 && n <= 16 * RANK_LIMIT {
            t.rank_order(descending, k)?
        } else {
            t.bitonic_order(descending)?.narrow(-1, 0, k)?
        };
        index.move_axis(-1, a)
    }

    /// Is `self` strictly before `other` in the order?
    fn before(&self, other: &Tensor, descending: bool) -> Result<Tensor> {
        let (x, y) = if descending { (other, self) } else { (self, other) };
        let less = x.lt(y)?;
        if !self.dtype().is_float() {
            return Ok(less);
        }
        less.logical_or(y.isnan()?.logical_and(x.isnan()?.logical_not()?)?)
    }

    fn rank_order(&self, descending: bool, k: usize) -> Result<Tensor> {
        let n = self.dim(-1)?;
        let (x, y) = (self.unsqueeze(-1)?, self.unsqueeze(-2)?);
        let (i, j) = (Tensor::iota(self.session(), n)?.unsqueeze(-1)?, Tensor::iota(self.session(), n)?.unsqueeze(0)?);
        // y[j] goes before x[i] if it is smaller, or neither is and j < i
        let first = y.before(&x, descending)?;
        let tied = first.logical_or(x.before(&y, descending)?)?.logical_not()?;
        let ahead = first.logical_or(tied.logical_and(j.lt(&i)?)?)?;
        let rank = ahead.cast(DType::I32)?.sum(&[-1], false)?;
        // the index whose rank is r
        let place = Tensor::iota(self.session(), k)?.unsqueeze(-1)?;
        let hit = rank.unsqueeze(-2)?.eq(place)?;
        hit.select(Tensor::iota(self.session(), n)?, 0)?.sum(&[-1], false)
    }

    fn bitonic_order(&self, descending: bool) -> Result<Tensor> {
        let n = self.dim(-1)?;
        let size = n.next_power_of_two();
        let steps = size.trailing_zeros();
        let mut pad = vec![(0, 0); self.rank()];
        pad.last_mut().expect("a sorted tensor has an axis").1 = size - n;
        let mut value = self.pad_zeros(&pad)?;
        let lead = value.shape()[..self.rank() - 1].to_vec();
        let mut index = Tensor::iota(self.session(), size)?.expand(&value.shape())?;
        // the sorted position is decided by (is padding, value, index): padding goes last in either direction
        for stage in 1..=steps {
            for sub in (0..stage).rev() {
                let distance = 1usize << sub;
                let block = |t: &Tensor| {
                    let mut shape = lead.clone();
                    shape.extend([size / (2 * distance), 2, distance]);
                    t.reshape(&shape)
                };
                let (v, ix) = (block(&value)?, block(&index)?);
                let (v_other, i_other) = (v.flip(&[-2])?, ix.flip(&[-2])?);
                // ascending blocks of 2^stage alternate with descending ones
                let position = block(&Tensor::iota(self.session(), size)?.expand(&value.shape())?)?;
                let upper = position.shift_right(sub)?.bit_and(1)?.ne(0)?;
                let falling = position.shift_right(stage)?.bit_and(1)?.ne(0)?;
                let (real, real_other) = (ix.lt(n as i32)?, i_other.lt(n as i32)?);
                let first = v.before(&v_other, descending)?;
                let second = v_other.before(&v, descending)?;
                let tied = first.logical_or(second)?.logical_not()?;
                let first = first.logical_or(tied.logical_and(ix.lt(&i_other)?)?)?;
                let first = real.logical_and(real_other.logical_not()?.logical_or(first)?)?;
                let both_pad = real.logical_or(&real_other)?.logical_not()?;
                let first = first.logical_or(both_pad.logical_and(ix.lt(&i_other)?)?)?;
                // the lower place keeps its own if it is first and the block rises
                let keep = first.logical_xor(upper.logical_xor(falling)?)?;
                let full = value.shape();
                value = keep.select(&v, v_other)?.reshape(&full)?.contiguous();
                index = keep.select(&ix, i_other)?.reshape(&full)?.contiguous();
            }
        }
        index.narrow(-1, 0, n)
    }
}
