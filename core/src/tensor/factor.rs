//! Systems solved from given factors (packed LU with pivots), ranks of matrices and polar factors; compositions of the
//! decompositions in `decomp`.

use super::{Operand, Tensor};
use crate::{DType, Result};

impl Tensor {
    /// Pads matrices with zeros at the bottom and on the right to `n` by `m`.
    fn matrix_padded(&self, n: usize, m: usize) -> Result<Tensor> {
        let shape = self.shape();
        let mut pairs = vec![(0, 0); shape.len()];
        (pairs[shape.len() - 2].1, pairs[shape.len() - 1].1) = (n - shape[shape.len() - 2], m - shape[shape.len() - 1]);
        self.pad_zeros(&pairs)
    }

    /// The factors of `A = P L U` in one matrix (L without its unit diagonal), and the pivots as LAPACK has them: for
    /// each row the row that it was swapped with, i32, counted from 1.
    pub fn lu_factor(&self, pivot: bool) -> Result<(Tensor, Tensor)> {
        let a = self.to_float()?;
        let (n, m) = a.matrix("lu_factor")?;
        let shape = a.shape();
        let lead = &shape[..shape.len() - 2];
        if a.numel() == 0 {
            let pivots = Tensor::zeros(a.session(), DType::I32, &[lead, &[n.min(m)]].concat())?;
            return Ok((a, pivots));
        }
        let (_, l, u) = a.lu(pivot)?;
        let mut swaps = a.eliminate(pivot)?.swaps;
        for k in swaps.len()..n.min(m) {
            swaps.push(Tensor::full(a.session(), k as i32, DType::I32, &[lead, &[1]].concat())?);
        }
        let pivots = Tensor::cat(&swaps.iter().collect::<Vec<_>>(), -1)?.add(1)?;
        Ok((l.tril(-1)?.matrix_padded(n, m)?.add(u.matrix_padded(n, m)?)?, pivots))
    }

    /// `(P, L, U)` from the two results of [`Tensor::lu_factor`], of which this tensor is the first. `Error::Shape`
    /// where the pivots do not fit.
    pub fn lu_unpack(&self, pivots: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        let (n, m) = self.matrix("lu_unpack")?;
        let k = n.min(m);
        if self.numel() == 0 {
            return Ok((self.zeros_shaped(n, n)?, self.zeros_shaped(n, k)?, self.zeros_shaped(k, m)?));
        }
        let lead = &self.shape()[..self.rank() - 2];
        if pivots.shape() != [lead, &[k]].concat() {
            return Err(crate::Error::Shape { op: "lu_unpack", lhs: self.shape(), rhs: pivots.shape() });
        }
        let (place, pivots) = (Tensor::iota(self.session(), n)?, pivots.cast(DType::I32)?.sub(1)?);
        let mut order = place.expand(&[lead, &[n]].concat())?;
        for i in 0..k {
            let p = pivots.narrow(-1, i, 1)?;
            let source = place.eq(i as i32)?.select(&p, place.eq(&p)?.select(i as i32, &place)?)?;
            order = order.gather(-1, &source.expand(&order.shape())?)?;
        }
        let l = self.narrow(-1, 0, k)?.tril(-1)?.add(Tensor::eye(self.session(), n, k, self.dtype())?)?;
        Ok((order.row_permutation(n, self.dtype())?, l, self.narrow(-2, 0, k)?.triu(0)?))
    }

    /// Solves `A X = B` (`left`) or `X A = B` from the results of [`Tensor::lu_factor`] for A; with `adjoint`, for the
    /// transpose of A.
    pub fn lu_solve(&self, pivots: &Tensor, b: &Tensor, left: bool, adjoint: bool) -> Result<Tensor> {
        if !left {
            return self.lu_solve(pivots, &b.t()?, true, !adjoint)?.t();
        }
        self.square_matrix("lu_solve")?;
        if self.numel() == 0 || b.numel() == 0 {
            return self.matmul(b);
        }
        let p = self.lu_unpack(pivots)?.0;
        match adjoint {
            false => {
                let y = self.solve_triangular(&p.t()?.matmul(b)?, false, true, true)?;
                self.solve_triangular(&y, true, true, false)
            }
            true => {
                let turned = self.t()?;
                let y = turned.solve_triangular(b, false, true, false)?;
                p.matmul(&turned.solve_triangular(&y, true, true, true)?)
            }
        }
    }

    /// The limit up to which singular values count as zero: the larger of `atol` and `rtol` times the largest one. By
    /// default it is 4 `eps` times `size`, relative to the largest: a few times LAPACK's, because these singular values
    /// come from a Gram matrix.
    pub(super) fn rank_limit(&self, size: usize, atol: Option<&Operand>, rtol: Option<&Operand>) -> Result<Tensor> {
        let top = self.detach().max(&[-1], false)?;
        let operand = |o: &Operand| self.full_operand(o)?.cast(self.dtype());
        let atol = atol.map(operand).transpose()?;
        let eps = match self.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON as f64,
        } * 4.0
            * size as f64;
        let rtol = match (rtol, &atol) {
            (Some(r), _) => operand(r)?,
            (None, Some(a)) => a.gt(0)?.select(0.0, Tensor::full(self.session(), eps, self.dtype(), &[])?)?,
            (None, None) => Tensor::full(self.session(), eps, self.dtype(), &[])?,
        };
        let relative = rtol.mul(&top)?;
        match atol {
            Some(a) => a.maximum(relative),
            None => Ok(relative),
        }
    }

    /// The rank: how many singular values (absolute eigenvalues, if `hermitian`) exceed
    /// `max(atol, rtol * the largest)`: `[.., n, m] -> [..]`, i32.
    pub fn matrix_rank(&self, atol: Option<&Operand>, rtol: Option<&Operand>, hermitian: bool) -> Result<Tensor> {
        let (n, m) = self.matrix("matrix_rank")?;
        let a = self.to_float()?;
        if a.numel() == 0 {
            let shape = a.shape();
            return Tensor::zeros(a.session(), DType::I32, &shape[..shape.len() - 2]);
        }
        let s = if hermitian { a.eigh(false)?.0.abs()? } else { a.svdvals()? };
        let limit = s.rank_limit(n.max(m), atol, rtol)?;
        s.gt(limit.unsqueeze(-1)?)?.cast(DType::I32)?.sum(&[-1], false)
    }

    /// The polar decomposition `(U, P)` with `A = U P`: U has orthonormal columns, and P is symmetric and positive
    /// semidefinite.
    pub fn polar_factors(&self) -> Result<(Tensor, Tensor)> {
        let k = self.matrix("polar")?;
        let k = k.0.min(k.1);
        // complete bases, because the reduced ones have zero columns for singular values of zero
        let (u, s, vh) = self.svd(true)?;
        let (u, vh) = (u.narrow(-1, 0, k)?, vh.narrow(-2, 0, k)?);
        Ok((u.matmul(&vh)?, vh.t()?.mul(s.unsqueeze(-2)?)?.matmul(&vh)?))
    }
}
