//! The Moore-Penrose inverse, square roots of symmetric matrices, and least squares.

use super::{Operand, Tensor};
use crate::{DType, Error, Result};

impl Tensor {
    /// The Moore-Penrose inverse `[.., m, n]` of matrices `[.., n, m]`. Singular values (absolute eigenvalues of the
    /// lower triangle, if `hermitian`) up to `max(atol, rtol * the largest)` count as zero; the default limit is the
    /// rounding error of a zero. The gradient assumes that the rank stays the same (Golub and Pereyra, 1973). Also if
    /// `hermitian` it is that of the whole matrix, as in torch. It can be differentiated once more.
    ///
    /// # Errors
    /// `E_VALUE` for matrices too large to be decomposed.
    pub fn pinv(&self, atol: Option<&Operand>, rtol: Option<&Operand>, hermitian: bool) -> Result<Tensor> {
        let (n, m) = self.matrix("pinv")?;
        let a = self.to_float()?;
        if a.numel() == 0 {
            return a.zeros_shaped(m, n);
        }
        let mut fixed = a.detach();
        if hermitian {
            fixed = fixed.symmetric(false, self.square_matrix("pinv")?)?;
        }
        let (u, s, vh) = match hermitian {
            true => {
                let (l, q) = fixed.eigh(false)?;
                (q.clone(), l, q.t()?)
            }
            false => fixed.svd(false)?,
        };
        let size = s.abs()?;
        let keep = size.gt(size.rank_limit(n.max(m), atol, rtol)?.unsqueeze(-1)?)?;
        let inverse = keep.select(keep.select(&s, 1)?.reciprocal()?, 0)?;
        let x = vh.t()?.mul(inverse.unsqueeze(-2)?)?.matmul(&u.t()?)?.contiguous();
        // a Newton step removes the rounding errors of the decomposition
        let product = x.matmul(&fixed)?.matmul(&x)?;
        let x = x.mul(2)?.sub(product)?.contiguous().detach();
        let first = x.pseudo_gradient(&a, &x)?;
        x.pseudo_gradient(&a, &first)
    }

    /// These values with the gradient of the pseudo-inverse of `a`, computed from `x`, the pseudo-inverse. If `x` has a
    /// gradient of its own, the gradient can be differentiated again.
    fn pseudo_gradient(&self, a: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.custom_grad(&[a], |grad| {
            let (g, xt) = (grad.t()?, x.t()?);
            let left = g.matmul(x)?.matmul(&xt)?;
            let left = left.sub(a.matmul(&x.matmul(&left)?)?)?;
            let right = xt.matmul(x)?.matmul(&g)?;
            let right = right.sub(right.matmul(x)?.matmul(a)?)?;
            Ok(vec![left.add(right)?.sub(xt.matmul(grad)?.matmul(&xt)?)?])
        })
    }

    /// The square root of symmetric positive semidefinite matrices, of which the lower triangle is read; eigenvalues
    /// that rounding made negative count as zero.
    pub fn matrix_sqrth(&self) -> Result<Tensor> {
        let (l, q) = self.eigh(false)?;
        if l.numel() == 0 {
            return Ok(q);
        }
        q.mul(l.maximum(0)?.sqrt_or_zero()?.unsqueeze(-2)?)?.matmul(&q.t()?)
    }

    /// torch's `linalg.lstsq`: the least-squares solution (of least norm), the squared residuals, the ranks and the
    /// singular values. The last three are empty where torch's are for that `driver`; `gels` assumes full rank.
    ///
    /// # Errors
    /// `E_VALUE` for a driver of another name.
    pub fn lstsq_by(&self, b: &Tensor, rcond: Option<f64>, driver: &str) -> Result<[Tensor; 4]> {
        if !["gels", "gelsy", "gelsd", "gelss"].contains(&driver) {
            return Err(Error::value("lstsq", format!("there is no driver `{driver}`")));
        }
        let a = self.to_float()?;
        let (n, m) = a.matrix("lstsq")?;
        if b.rank() + 1 == a.rank() && b.shape()[..] == a.shape()[..a.rank() - 1] {
            let [x, residuals, rank, values] = a.lstsq_by(&b.unsqueeze(-1)?, rcond, driver)?;
            return Ok([x.squeeze(-1)?, residuals, rank, values]);
        }
        let rtol = rcond.map(Operand::Float);
        let x = match (driver, a.numel() == 0 || b.numel() == 0) {
            (_, true) => Tensor::zeros(a.session(), a.dtype(), &a.t()?.matmul(b)?.shape())?,
            ("gels", _) => a.lstsq(b)?,
            _ => a.pinv(None, rtol.as_ref(), false)?.matmul(b)?,
        };
        let none = |dt: DType| Tensor::zeros(a.session(), dt, &[0]);
        let residuals = match n > m && driver != "gelsy" {
            true => a.matmul(&x)?.sub(b)?.square()?.sum(&[-2], false)?,
            false => none(a.dtype())?,
        };
        let fixed = a.detach();
        let rank = if driver == "gels" { none(DType::I32)? } else { fixed.matrix_rank(None, rtol.as_ref(), false)? };
        let values = if matches!(driver, "gels" | "gelsy") { none(a.dtype())? } else { fixed.svdvals()? };
        Ok([x, residuals, rank, values])
    }
}
