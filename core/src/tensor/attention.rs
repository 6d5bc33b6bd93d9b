//! Scaled dot-product attention.

use super::Tensor;
use crate::{DType, Error, Result};

/// Options of [`Tensor::attention`].
#[derive(Clone, Debug, Default)]
pub struct Attention<'a> {
    /// Broadcasts to `[.., queries, keys]`. Bool: true where a query may attend to a key; float: added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Whether query `i` may attend to keys `0..=i` only.
    pub causal: bool,
    /// Factor on the scores; `1/sqrt(width)` if `None`.
    pub scale: Option<f64>,
    /// Probability of dropping an attention weight; for training.
    pub dropout: f64,
}

impl Tensor {
    /// `softmax(scale * self k^T + mask) v` with queries `self` `[.., heads, queries, width]`, keys `k`
    /// `[.., kv_heads, keys, width]` and values `v` `[.., kv_heads, keys, width]` give `[.., heads, queries, width]`.
    /// Where there are fewer key heads than query heads, each is shared by a group of consecutive query heads (`heads`
    /// must be a multiple of `kv_heads`). `Error::Shape` where shapes do not fit, `Error::DType` unless the queries are
    /// floats.
    pub fn attention(&self, k: &Tensor, v: &Tensor, opts: &Attention<'_>) -> Result<Tensor> {
        Ok(self.attention_weighted(k, v, opts)?.0)
    }

    /// [`Tensor::attention`], and the attention weights `[.., heads, queries, keys]` (after dropout).
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
