//! The Moore-Penrose inverse and what is made of it.

use super::{Operand, Tensor};
use crate::{DType, Error, Result};

impl Tensor {
    /// The Moore-Penrose inverse `[.., m, n]` of matrices `[.., n, m]`; singular values (absolute eigenvalues of the lower
    /// triangle, if `hermitian`) up to `max(atol, rtol * the largest)` count as zero, by default what rounding makes of zero.
    /// The gradient is that of matrices of this rank (Golub and Pereyra, 1973), of the whole matrix also if `hermitian`, as
    /// torch's; it can be taken twice.
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
        // a step of Newton's iteration: what the decomposition rounded
        let product = x.matmul(&fixed)?.matmul(&x)?;
        let x = x.mul(2)?.sub(product)?.contiguous().detach();
        let first = x.pseudo_gradient(&a, &x)?;
        x.pseudo_gradient(&a, &first)
    }

    /// These values with the gradient of the inverse of `a`, taken at `x`: with `x` another of the same, it can be taken again.
    /// `dX = -X dA X + X X' dA' (1 - A X) + (1 - X A) dA' X' X`.
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

    /// The square root of symmetric matrices (their lower triangles) without negative eigenvalues; those that rounding made
    /// count as zero.
    pub fn matrix_sqrth(&self) -> Result<Tensor> {
        let (l, q) = self.eigh(false)?;
        if l.numel() == 0 {
            return Ok(q);
        }
        q.mul(l.maximum(0)?.sqrt_or_zero()?.unsqueeze(-2)?)?.matmul(&q.t()?)
    }

    /// torch's `linalg.lstsq`: the solution of least squares (of least norm), squared residuals, ranks and singular values. The
    /// last three are empty where torch's are by the `driver`, of which `gels` takes full rank for granted.
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
