//! Systems by their factors: packed LU with pivots, polar factors and ranks of matrices. Compositions of what `decomp` has.

use super::{Operand, Tensor};
use crate::{DType, Result};

impl Tensor {
    /// Zeros below and to the right of matrices, to `n` by `m`.
    fn matrix_padded(&self, n: usize, m: usize) -> Result<Tensor> {
        let shape = self.shape();
        let mut pairs = vec![(0, 0); shape.len()];
        (pairs[shape.len() - 2].1, pairs[shape.len() - 1].1) = (n - shape[shape.len() - 2], m - shape[shape.len() - 1]);
        self.pad_zeros(&pairs)
    }

    /// The factors of `A = P L U` in one matrix (L without its ones), and pivots as LAPACK counts them: i32, from 1.
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

    /// `(P, L, U)` of what [`Tensor::lu_factor`] gives.
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

    /// `X` with `A X = B` (`left`) or `X A = B`, of what [`Tensor::lu_factor`] gives of A; of its transpose for `adjoint`.
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

    /// Below which singular values count as zero: the larger of `atol` and `rtol` times the largest; by default the rounding of
    /// that, which is a few times LAPACK's for values that come from a Gram matrix.
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

    /// How many singular values (eigenvalues, if symmetric) are larger than `max(atol, rtol * the largest)`; i32.
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

    /// `(U, P)` with `A = U P`: orthonormal columns, and a symmetric matrix without negative eigenvalues.
    pub fn polar_factors(&self) -> Result<(Tensor, Tensor)> {
        let k = self.matrix("polar")?;
        let k = k.0.min(k.1);
        // whole bases: the columns of singular values of zero are not zero
        let (u, s, vh) = self.svd(true)?;
        let (u, vh) = (u.narrow(-1, 0, k)?, vh.narrow(-2, 0, k)?);
        Ok((u.matmul(&vh)?, vh.t()?.mul(s.unsqueeze(-2)?)?.matmul(&vh)?))
    }
}
