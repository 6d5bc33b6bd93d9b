//! Multi-head attention with its projections of queries, keys, values and output.

use super::{Linear, Module, Role, each, join};
use crate::tensor::{Attention, Session, Tensor};
use crate::{DType, Error, Result};

/// Attention of several heads, laid out as torch's `MultiheadAttention` with `batch_first`.
pub struct MultiHeadAttention {
    /// The projections of queries, keys and values, concatenated along the first axis: `[3 * width, width]`.
    pub in_proj_weight: Tensor,
    /// Biases of these projections, `[3 * width]`.
    pub in_proj_bias: Option<Tensor>,
    /// Output projection.
    pub out_proj: Linear,
    /// Number of heads.
    pub heads: usize,
}

impl MultiHeadAttention {
    /// A layer for vectors of `width` elements. `Error::Value` unless `width` is a multiple of `heads`.
    pub fn new(session: &Session, width: usize, heads: usize) -> Result<MultiHeadAttention> {
        if heads == 0 || width % heads != 0 {
            return Err(Error::value("attention", format!("{heads} heads do not divide width {width}")));
        }
        let zeros = |n: usize| Tensor::zeros(session, DType::F32, &[n])?.to_storage();
        let out_proj = Linear { bias: Some(zeros(width)?), ..Linear::new(session, width, width)? };
        Ok(MultiHeadAttention {
            in_proj_weight: Tensor::xavier_uniform(session, 1.0, &[3 * width, width])?.to_storage()?,
            in_proj_bias: Some(zeros(3 * width)?),
            out_proj,
            heads,
        })
    }

    /// Queries `[batch, n, width]`, keys and values `[batch, m, width]` give `[batch, n, width]`. A mask broadcasts to
    /// `[batch, heads, n, m]`.
    pub fn forward(&self, q: &Tensor, k: &Tensor, v: &Tensor, opts: &Attention<'_>) -> Result<Tensor> {
        Ok(self.forward_weighted(q, k, v, opts)?.0)
    }

    /// [`MultiHeadAttention::forward`], and the attention weights of each head, `[batch, heads, n, m]`. torch returns
    /// their mean over the heads by default.
    pub fn forward_weighted(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        opts: &Attention<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let width = self.in_proj_weight.dim(1)?;
        let weights = self.in_proj_weight.chunk(3, 0)?;
        let biases = self.in_proj_bias.as_ref().map(|b| b.chunk(3, 0)).transpose()?;
        let project = |x: &Tensor, i: usize| -> Result<Tensor> {
            let shape = x.want_rank("attention", 3)?;
            let y = x.linear(&weights[i], biases.as_ref().map(|b| &b[i]))?;
            y.reshape(&[shape[0], shape[1], self.heads, width / self.heads])?.transpose(1, 2)
        };
        let (q, k, v) = (project(q, 0)?, project(k, 1)?, project(v, 2)?);
        let (y, seen) = q.attention_weighted(&k, &v, opts)?;
        Ok((self.out_proj.forward(&y.transpose(1, 2)?.flatten(2, 3)?)?, seen))
    }
}

impl Module for MultiHeadAttention {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        let own = [("in_proj_weight", Some(&self.in_proj_weight)), ("in_proj_bias", self.in_proj_bias.as_ref())];
        each(prefix, Role::Parameter, f, &own);
        self.out_proj.visit(&join(prefix, "out_proj"), f);
    }
}
