//! Scaled dot-product attention.

use super::Tensor;
use crate::{DType, Error, Result};

/// Options of [`Tensor::attention`].
#[derive(Clone, Debug, Default)]
pub struct Attention<'a> {
    /// Bool (true: may look) or float (added to the scores), broadcasting to `[.., queries, keys]`.
    pub mask: Option<&'a Tensor>,
    /// Query `i` sees keys `0..=i` only.
    pub causal: bool,
    /// Factor on the scores; default `1/sqrt(width)`.
    pub scale: Option<f64>,
    /// Probability with which a weight is dropped; for training.
    pub dropout: f64,
}

impl Tensor {
    /// `softmax(self k^T * scale + mask) v` with `self` `[.., heads, queries, width]`, `k` and `v`
    /// `[.., kv_heads, keys, width]`. Fewer kv heads than heads are shared by groups (`heads` a multiple of `kv_heads`).
    pub fn attention(&self, k: &Tensor, v: &Tensor, opts: &Attention<'_>) -> Result<Tensor> {
        Ok(self.attention_weighted(k, v, opts)?.0)
    }

    /// The same, and the weights `[.., heads, queries, keys]` that the values were summed with.
    pub fn attention_weighted(&self, k: &Tensor, v: &Tensor, opts: &Attention<'_>) -> Result<(Tensor, Tensor)> {
        let (q_shape, k_shape, v_shape) = (self.shape(), k.shape(), v.shape());
        let misfit = |rhs: &[usize]| Error::Shape { op: "attention", lhs: q_shape.clone(), rhs: rhs.to_vec() };
        if q_shape.len() < 2 || k_shape.len() != q_shape.len() || v_shape.len() != q_shape.len() {
            return Err(misfit(&k_shape));
        }
        let rank = q_shape.len();
        if k_shape[..rank - 1] != v_shape[..rank - 1] {
            return Err(misfit(&v_shape));
        }
        let (mut k, mut v) = (k.clone(), v.clone());
        if rank > 2 && q_shape[rank - 3] != k_shape[rank - 3] && k_shape[rank - 3] != 1 {
            let (heads, kv) = (q_shape[rank - 3], k_shape[rank - 3]);
            if kv == 0 || heads % kv != 0 {
                return Err(misfit(&k_shape));
            }
            k = k.repeat_interleave(heads / kv, -3)?;
            v = v.repeat_interleave(heads / kv, -3)?;
        }
        let q = self.want_float("attention").map(|_| self)?;
        let scale = opts.scale.unwrap_or(1.0 / (q_shape[rank - 1] as f64).sqrt());
        let mut scores = q.mul(scale)?.matmul(&k.t()?)?;
        if opts.causal {
            let (n, m) = (q_shape[rank - 2], k_shape[rank - 2]);
            let rows = Tensor::iota(self.session(), n)?.reshape(&[n, 1])?;
            let cols = Tensor::iota(self.session(), m)?.reshape(&[1, m])?;
            scores = cols.le(rows)?.select(scores, f64::NEG_INFINITY)?;
        }
        if let Some(mask) = opts.mask {
            scores = match mask.dtype() {
                DType::Bool => mask.select(scores, f64::NEG_INFINITY)?,
                _ => scores.add(mask)?,
            };
        }
        let weights = scores.softmax(-1)?;
        let weights = if opts.dropout == 0.0 { weights } else { weights.dropout(opts.dropout)? };
        Ok((weights.matmul(&v)?, weights))
    }
}
