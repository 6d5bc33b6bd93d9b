//! Products of matrices and vectors. A product is a broadcast multiplication under a sum; the scheduler fuses both, so
//! the multiplication is never materialised.

use super::{Tensor, broadcast_shape};
use crate::{Error, Result};

impl Tensor {
    /// Matrix product `[.., m, k] x [.., k, n] -> [.., m, n]`; leading axes broadcast. A vector on the left is a row,
    /// on the right a column, and its axis is removed from the result. Dtypes promote; narrow integers give the dtype
    /// of [`Tensor::sum`], 16-bit floats are multiplied in f32 and keep their dtype. `Error::Shape` where the shapes do
    /// not fit.
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.shape(), rhs.shape());
        let misfit = || Error::Shape { op: "matmul", lhs: a.clone(), rhs: b.clone() };
        Tensor::same_session("matmul", self, rhs)?;
        if a.is_empty() || b.is_empty() {
            return Err(misfit());
        }
        if a.len() == 1 {
            return self.unsqueeze(0)?.matmul(rhs).map_err(|_| misfit())?.squeeze(if b.len() == 1 { 0 } else { -2 });
        }
        if b.len() == 1 {
            return self.matmul(&rhs.unsqueeze(1)?).map_err(|_| misfit())?.squeeze(-1);
        }
        let (m, k) = (a[a.len() - 2], a[a.len() - 1]);
        let (k2, n) = (b[b.len() - 2], b[b.len() - 1]);
        if k != k2 {
            return Err(misfit());
        }
        let lead = broadcast_shape("matmul", &a[..a.len() - 2], &b[..b.len() - 2]).map_err(|_| misfit())?;
        let dtype = self.dtype().promote(rhs.dtype());
        // one more axis on each side, so that the product broadcasts: [.., m, 1, k] x [.., 1, n, k]
        let wide = |t: &Tensor| t.cast(dtype)?.cast(dtype.product_dtype());
        let x = wide(self)?.unsqueeze(-2)?;
        let y = wide(rhs)?.transpose(-1, -2)?.unsqueeze(-3)?;
        let mut out = lead.to_vec();
        out.extend([m, n]);
        x.mul(y)?.sum(&[-1], false)?.reshape(&out)?.cast(dtype.sum_dtype())
    }

    /// Dot product of two vectors: `[n] x [n] -> []`.
    pub fn dot(&self, rhs: &Tensor) -> Result<Tensor> {
        self.want_rank("dot", 1)?;
        rhs.want_rank("dot", 1)?;
        self.matmul(rhs)
    }

    /// Outer product of two vectors: `[m] x [n] -> [m, n]`.
    pub fn outer(&self, rhs: &Tensor) -> Result<Tensor> {
        self.want_rank("outer", 1)?;
        rhs.want_rank("outer", 1)?;
        self.unsqueeze(1)?.mul(rhs.unsqueeze(0)?)
    }

    /// `self x weight^T + bias`: `[.., in] -> [.., out]` with `weight` `[out, in]` and `bias` `[out]`, as torch stores
    /// them.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let (x, w) = (self.shape(), weight.want_rank("linear", 2)?);
        if x.last() != Some(&w[1]) {
            return Err(Error::Shape { op: "linear", lhs: x, rhs: w });
        }
        let y = self.matmul(&weight.t()?)?;
        match bias {
            Some(b) if b.shape() != [w[0]] => Err(Error::Shape { op: "linear", lhs: w, rhs: b.shape() }),
            Some(b) => y.add(b),
            None => Ok(y),
        }
    }
}
