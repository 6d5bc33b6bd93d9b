//! Linear systems and decompositions of small matrices; leading axes are a batch. The algorithms are the classical ones
//! (elimination with partial pivoting, Cholesky, Householder reflections, Jacobi rotations), unrolled over the size of
//! the matrix into the graph, so sizes are limited to [`MAX_DIM`].
//!
//! Gradients of inverses, linear systems, eigenvalues and singular values do not go through the algorithm. Its result,
//! treated as a constant, is corrected by Newton steps, whose derivatives are the exact ones: gradients of first and
//! second order are right, and cheap. LU, determinants, Cholesky and QR are differentiated through their steps, with
//! the order of pivots fixed.

use super::Tensor;
use crate::{DType, Error, Result};

/// The largest number of rows or columns of a matrix that is decomposed: the graph grows with the size.
const MAX_DIM: usize = 64;

/// The result of [`Tensor::eliminate`].
pub(super) struct Eliminated {
    /// L below the diagonal (whose ones are not stored) and U on and above it, in one matrix.
    lu: Tensor,
    /// The order of rows after pivoting: row `i` of the eliminated matrix is row `order[i]` of the original; i32.
    order: Tensor,
    /// The sign of that permutation.
    sign: Tensor,
    /// For each column the row that was swapped with the diagonal row, `[.., 1]` i32; none for the last row, which has
    /// no other candidate.
    pub(super) swaps: Vec<Tensor>,
}

impl Tensor {
    /// The sizes of the last two axes; `Error::Value` if there are fewer axes, or a size exceeds [`MAX_DIM`].
    pub(super) fn matrix(&self, op: &'static str) -> Result<(usize, usize)> {
        let shape = self.shape();
        match shape.as_slice() {
            &[.., n, m] if n.max(m) <= MAX_DIM => Ok((n, m)),
            &[.., n, m] => {
                Err(Error::value(op, format!("{n}x{m} is larger than {MAX_DIM}, to which this is unrolled")))
            }
            _ => Err(Error::value(op, format!("a matrix is needed, not shape {shape:?}"))),
        }
    }

    /// The size of square matrices; `Error::Value` otherwise.
    pub(super) fn square_matrix(&self, op: &'static str) -> Result<usize> {
        let (n, m) = self.matrix(op)?;
        if n == m { Ok(n) } else { Err(Error::value(op, format!("the matrix is {n}x{m}, not square"))) }
    }

    /// The identity matrix `[n, n]` in this dtype.
    fn eye_like(&self, n: usize) -> Result<Tensor> {
        Tensor::eye(self.session(), n, n, self.dtype())
    }

    /// Row indices `[n, 1]` and column indices `[1, m]`, i32.
    fn row_col_indices(&self, n: usize, m: usize) -> Result<(Tensor, Tensor)> {
        let s = self.session();
        Ok((Tensor::iota(s, n)?.reshape(&[n, 1])?, Tensor::iota(s, m)?.reshape(&[1, m])?))
    }

    // ---- LU

    /// Gaussian elimination, with partial pivoting or without; not differentiable.
    pub(super) fn eliminate(&self, pivot: bool) -> Result<Eliminated> {
        let (n, m) = self.matrix("lu")?;
        let (rows, cols) = self.row_col_indices(n, m)?;
        let mut a = self.detach().contiguous();
        let lead = self.shape()[..self.rank() - 2].to_vec();
        let mut order = Tensor::iota(self.session(), n)?.expand(&[lead.as_slice(), &[n]].concat())?;
        let mut sign = Tensor::ones(self.session(), a.dtype(), &lead)?;
        let place = Tensor::iota(self.session(), n)?;
        let mut swaps = Vec::new();
        for k in 0..n.min(m) {
            if pivot && k + 1 < n {
                let column = a.select_at(-1, k as i64)?.abs()?;
                let below = place.ge(k)?.select(column, -1.0)?;
                let p = below.argmax(-1, true)?;
                // swap rows k and p
                let source = place.eq(k)?.select(&p, place.eq(&p)?.select(k as i32, &place)?)?;
                let index = source.unsqueeze(-1)?.expand(&a.shape())?;
                a = a.gather(-2, &index)?;
                order = order.gather(-1, &source)?;
                sign = p.squeeze(-1)?.ne(k as i32)?.select(sign.neg()?, &sign)?;
                swaps.push(p);
            }
            let top = a.narrow(-2, k, 1)?;
            let d = top.narrow(-1, k, 1)?;
            let safe = d.eq(0)?.select(1, &d)?;
            let factor = rows.gt(k)?.select(a.narrow(-1, k, 1)?.div(safe)?, 0)?;
            let reduced = a.sub(factor.mul(&top)?)?;
            let column = cols.eq(k)?.logical_and(rows.gt(k)?)?;
            a = column.select(factor, cols.gt(k)?.select(reduced, &a)?)?.contiguous();
        }
        Ok(Eliminated { lu: a, order, sign, swaps })
    }

    /// The permutation matrix `P` of `A = P L U`; `self` is the order of rows `[.., n]`.
    pub(super) fn row_permutation(&self, n: usize, dtype: DType) -> Result<Tensor> {
        // column j of P has its one in row order[j]
        let rows = Tensor::iota(self.session(), n)?.reshape(&[n, 1])?;
        rows.eq(self.unsqueeze(-2)?)?.cast(dtype)
    }

    /// `(P, L, U)` with `A = P L U`: `[.., n, m]` gives `[.., n, n]`, `[.., n, k]` and `[.., k, m]`, where `k` is the
    /// smaller of `n` and `m`.
    pub fn lu(&self, pivot: bool) -> Result<(Tensor, Tensor, Tensor)> {
        let (n, m) = self.matrix("lu")?;
        let k = n.min(m);
        if self.numel() == 0 {
            let z = |a: usize, b: usize| self.zeros_shaped(a, b);
            return Ok((z(n, n)?, z(n, k)?, z(k, m)?));
        }
        let order = self.eliminate(pivot)?.order;
        let p = order.row_permutation(n, self.dtype())?;
        let ordered = self.gather(-2, &order.unsqueeze(-1)?.expand(&self.shape())?)?;
        // the rows are in their final order, so the elimination needs no pivoting and is itself differentiated
        let (l, u) = ordered.lu_without_pivots()?;
        Ok((p, l, u))
    }

    /// `(L, U)` without pivoting, differentiable through the elimination.
    fn lu_without_pivots(&self) -> Result<(Tensor, Tensor)> {
        let (n, m) = self.matrix("lu")?;
        let k = n.min(m);
        let (rows, cols) = self.row_col_indices(n, m)?;
        let mut a = self.clone();
        let mut columns = Vec::new();
        for i in 0..k {
            let top = a.narrow(-2, i, 1)?;
            let d = top.narrow(-1, i, 1)?;
            let column = a.narrow(-1, i, 1)?.div(&d)?;
            let at = Tensor::iota(self.session(), n)?.reshape(&[n, 1])?;
            let l = at.lt(i)?.select(0, at.eq(i)?.select(1, &column)?)?;
            columns.push(l);
            let below = rows.gt(i)?;
            let reduced = a.sub(below.select(column, 0)?.mul(&top)?)?;
            a = below.select(cols.le(i)?.select(0, reduced)?, &a)?;
        }
        let l = Tensor::cat(&columns.iter().collect::<Vec<_>>(), -1)?;
        Ok((l, a.narrow(-2, 0, k)?.triu(0)?))
    }

    /// Zeros with this tensor's batch axes and dtype: `[.., n, m]`.
    pub(super) fn zeros_shaped(&self, n: usize, m: usize) -> Result<Tensor> {
        let shape = self.shape();
        Tensor::zeros(self.session(), self.dtype(), &[&shape[..shape.len() - 2], &[n, m]].concat())
    }

    /// Solves a triangular system by substitution, row by row; not differentiable.
    fn substitute(&self, b: &Tensor, upper: bool, unit: bool) -> Result<Tensor> {
        let n = self.square_matrix("solve_triangular")?;
        let rows = Tensor::iota(self.session(), n)?.reshape(&[n, 1])?;
        let mut x = b.clone();
        for i in 0..n {
            let k = if upper { n - 1 - i } else { i };
            let mut row = x.narrow(-2, k, 1)?;
            if !unit {
                row = row.div(self.narrow(-2, k, 1)?.narrow(-1, k, 1)?)?;
            }
            let rest = if upper { rows.lt(k)? } else { rows.gt(k)? };
            let moved = x.sub(self.narrow(-1, k, 1)?.mul(&row)?)?;
            x = rows.eq(k)?.select(&row, rest.select(moved, &x)?)?.contiguous();
        }
        Ok(x)
    }

    // ---- systems

    /// The inverse of square matrices `[.., n, n]`. A singular matrix gives infinities or NaN. `Error::Value` unless
    /// they are square and at most 64x64.
    pub fn inverse(&self) -> Result<Tensor> {
        let n = self.square_matrix("inv")?;
        let a = self.to_float()?;
        if a.numel() == 0 {
            return Ok(a);
        }
        let Eliminated { lu, order, .. } = a.eliminate(true)?;
        let start = a.eye_like(n)?.expand(&a.shape())?;
        let permuted = start.gather(-2, &order.unsqueeze(-1)?.expand(&a.shape())?)?;
        let y = lu.substitute(&permuted, false, true)?;
        let x = lu.substitute(&y, true, false)?;
        a.newton_inverse(&x, n)
    }

    /// Two Newton steps `X (2 - A X)` from an inverse that is treated as a constant: derivatives up to third order are
    /// exact.
    fn newton_inverse(&self, start: &Tensor, n: usize) -> Result<Tensor> {
        let two = self.eye_like(n)?.mul(2)?;
        let mut x = start.detach().contiguous();
        for _ in 0..2 {
            x = x.matmul(&two.sub(self.matmul(&x)?)?)?.contiguous();
        }
        Ok(x)
    }

    /// Solves `A X = B` (`left`) or `X A = B` for square matrices `self` `[.., n, n]` and `b` `[.., n, m]`. `b` is
    /// taken as one vector for each matrix if its shape is `[n]` or that of `self` without the last axis.
    pub fn solve(&self, b: &Tensor, left: bool) -> Result<Tensor> {
        let (sa, sb) = (self.shape(), b.shape());
        let vector = sb.len() == 1 || sb.len() + 1 == sa.len() && sb[..] == sa[..sa.len() - 1];
        if vector {
            return self.solve(&b.unsqueeze(-1)?, true)?.squeeze(-1);
        }
        let x = self.inverse()?;
        if left { x.matmul(b) } else { b.matmul(&x) }
    }

    /// [`Tensor::solve`] for triangular matrices, of which only the `upper` or lower triangle is read; with `unit` the
    /// diagonal counts as ones.
    pub fn solve_triangular(&self, b: &Tensor, upper: bool, left: bool, unit: bool) -> Result<Tensor> {
        let n = self.square_matrix("solve_triangular")?;
        let mut a = if upper { self.triu(0)? } else { self.tril(0)? }.to_float()?;
        let eye = a.eye_like(n)?;
        if unit {
            a = eye.ne(0)?.select(1, a)?;
        }
        if a.numel() == 0 || b.numel() == 0 {
            return if left { a.matmul(b) } else { b.matmul(&a) };
        }
        let x = a.detach().substitute(&eye.expand(&a.shape())?, upper, unit)?;
        let x = a.newton_inverse(&x, n)?;
        if left { x.matmul(b) } else { b.matmul(&x) }
    }

    /// The determinant of square matrices: `[.., n, n] -> [..]`.
    pub fn det(&self) -> Result<Tensor> {
        let (sign, log) = self.det_parts()?;
        sign.mul(log)
    }

    /// The sign of the row permutation and the product of the pivots, both `[..]`.
    fn det_parts(&self) -> Result<(Tensor, Tensor)> {
        let a = self.to_float()?;
        let n = a.square_matrix("det")?;
        let lead = a.shape()[..a.rank() - 2].to_vec();
        let one = Tensor::ones(a.session(), a.dtype(), &lead)?;
        if a.numel() == 0 {
            return Ok((one.clone(), one));
        }
        let Eliminated { order, sign, .. } = a.eliminate(true)?;
        let ordered = a.gather(-2, &order.unsqueeze(-1)?.expand(&a.shape())?)?;
        let u = ordered.pivots(n)?;
        Ok((sign, u.prod(&[-1], false)?))
    }

    /// The pivots `[.., n]` of an elimination without row swaps; differentiable.
    fn pivots(&self, n: usize) -> Result<Tensor> {
        let mut a = self.clone();
        let mut out = Vec::new();
        for k in 0..n {
            let d = a.narrow(-2, 0, 1)?.narrow(-1, 0, 1)?;
            out.push(d.squeeze(-1)?);
            let left = n - k - 1;
            if left == 0 {
                break;
            }
            let safe = d.eq(0)?.select(1, &d)?;
            let factor = a.narrow(-2, 1, left)?.narrow(-1, 0, 1)?.div(safe)?;
            let top = a.narrow(-2, 0, 1)?.narrow(-1, 1, left)?;
            a = a.narrow(-2, 1, left)?.narrow(-1, 1, left)?.sub(factor.mul(top)?)?;
        }
        Tensor::cat(&out.iter().collect::<Vec<_>>(), -1)
    }

    /// The sign of the determinant and the logarithm of its absolute value, both `[..]`.
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        let a = self.to_float()?;
        let n = a.square_matrix("slogdet")?;
        let lead = a.shape()[..a.rank() - 2].to_vec();
        if a.numel() == 0 {
            let z = Tensor::zeros(a.session(), a.dtype(), &lead)?;
            return Ok((z.add(1)?, z));
        }
        let Eliminated { order, sign, .. } = a.eliminate(true)?;
        let u = a.gather(-2, &order.unsqueeze(-1)?.expand(&a.shape())?)?.pivots(n)?;
        Ok((u.detach().sign()?.prod(&[-1], false)?.mul(sign)?, u.abs()?.log()?.sum(&[-1], false)?))
    }

    /// A square matrix to a whole power, by repeated squaring; negative powers use the inverse.
    pub fn matrix_power(&self, power: i64) -> Result<Tensor> {
        let n = self.square_matrix("matrix_power")?;
        let mut base = if power < 0 { self.inverse()? } else { self.clone() };
        let (mut left, mut out) = (power.unsigned_abs(), None::<Tensor>);
        while left > 0 {
            if left & 1 == 1 {
                out = Some(out.map_or(Ok(base.clone()), |o| o.matmul(&base))?);
            }
            left >>= 1;
            if left > 0 {
                base = base.matmul(&base)?.contiguous();
            }
        }
        out.map_or_else(|| self.eye_like(n)?.expand(&self.shape()), Ok)
    }

    /// The exponential of square matrices: a Taylor polynomial of degree 14 of the matrix over 2^4, squared 4 times.
    pub fn matrix_exp(&self) -> Result<Tensor> {
        let n = self.square_matrix("matrix_exp")?;
        let a = self.to_float()?;
        if a.numel() == 0 {
            return Ok(a);
        }
        const SQUARINGS: u32 = 4;
        let x = a.mul(0.5f64.powi(SQUARINGS as i32))?;
        let eye = a.eye_like(n)?;
        let mut sum = eye.clone().expand(&a.shape())?;
        for k in (1..=14).rev() {
            sum = eye.add(x.matmul(&sum)?.div(k as f64)?)?.contiguous();
        }
        for _ in 0..SQUARINGS {
            sum = sum.matmul(&sum)?.contiguous();
        }
        Ok(sum)
    }

    // ---- Cholesky

    /// The lower triangular `L` with `A = L L^T` of symmetric positive definite matrices, of which the lower triangle
    /// is read; with `upper` the upper triangle is read and `L^T` returned.
    pub fn cholesky(&self, upper: bool) -> Result<Tensor> {
        let n = self.square_matrix("cholesky")?;
        let a = self.to_float()?;
        if a.numel() == 0 {
            return Ok(a);
        }
        let a = a.symmetric(upper, n)?;
        let (rows, cols) = a.row_col_indices(n, n)?;
        let mut rest = a.clone();
        let mut columns = Vec::new();
        for k in 0..n {
            let d = rest.narrow(-2, k, 1)?.narrow(-1, k, 1)?.sqrt()?;
            let at = Tensor::iota(a.session(), n)?.reshape(&[n, 1])?;
            let column = at.lt(k)?.select(0, rest.narrow(-1, k, 1)?.div(&d)?)?;
            let update = column.mul(column.t()?)?;
            rest = rows.gt(k)?.logical_and(cols.gt(k)?)?.select(rest.sub(update)?, &rest)?;
            columns.push(column);
        }
        let l = Tensor::cat(&columns.iter().collect::<Vec<_>>(), -1)?;
        if upper { l.t() } else { Ok(l) }
    }

    // ---- orthogonal

    /// `(Q, R)` with `A = Q R` for matrices `[.., n, m]`, by Householder reflections. Reduced: `[.., n, k]` and
    /// `[.., k, m]` with `k` the smaller of `n` and `m`; complete: `[.., n, n]` and `[.., n, m]`.
    pub fn qr(&self, complete: bool) -> Result<(Tensor, Tensor)> {
        let (n, m) = self.matrix("qr")?;
        let k = n.min(m);
        let a = self.to_float()?;
        let mut q = a.eye_like(n)?.expand(&a.zeros_shaped(n, n)?.shape())?;
        let mut r = a.clone();
        let at = Tensor::iota(a.session(), n)?.reshape(&[n, 1])?;
        for i in 0..if a.numel() == 0 { 0 } else { k.min(n - 1) } {
            let x = at.ge(i)?.select(r.narrow(-1, i, 1)?, 0)?;
            let head = r.narrow(-2, i, 1)?.narrow(-1, i, 1)?;
            let tail = at.gt(i)?.select(&x, 0)?.square()?.sum(&[-2], true)?;
            // a column that is zero below the diagonal needs no reflection
            let flat = tail.eq(0)?;
            let norm = flat.select(1, head.square()?.add(&tail)?)?.sqrt()?;
            let beta = head.lt(0)?.select(&norm, norm.neg()?)?;
            let v = at.eq(i)?.select(head.sub(&beta)?, x)?;
            let vv = flat.select(1, v.square()?.sum(&[-2], true)?)?;
            let scale = flat.select(0, vv.reciprocal()?.mul(2)?)?;
            let reflect = |t: &Tensor| -> Result<Tensor> {
                let along = v.t()?.matmul(t)?;
                Ok(t.sub(v.mul(&scale)?.mul(along)?)?.contiguous())
            };
            r = reflect(&r)?;
            q = q.sub(q.matmul(&v)?.mul(v.t()?.mul(&scale)?)?)?.contiguous();
        }
        if complete {
            return Ok((q, r.triu(0)?));
        }
        Ok((q.narrow(-1, 0, k)?, r.narrow(-2, 0, k)?.triu(0)?))
    }

    /// The first columns of the product of Householder reflections `1 - tau v v^T`, whose vectors `v` are stored below
    /// the diagonal of this matrix `[.., n, m]` (LAPACK's `orgqr`).
    pub fn householder_product(&self, tau: &Tensor) -> Result<Tensor> {
        let (n, m) = self.matrix("householder_product")?;
        let mut q = self.eye_like(n)?.narrow(-1, 0, m)?.expand(&self.shape())?;
        if self.numel() == 0 {
            return Ok(q);
        }
        let at = Tensor::iota(self.session(), n)?.reshape(&[n, 1])?;
        for i in (0..tau.dim(-1)?).rev() {
            let column = self.narrow(-1, i, 1)?;
            let v = at.lt(i)?.select(0, at.eq(i)?.select(1, column)?)?;
            let t = tau.narrow(-1, i, 1)?.unsqueeze(-1)?;
            q = q.sub(v.mul(t)?.matmul(&v.t()?.matmul(&q)?)?)?;
        }
        Ok(q)
    }

    /// Eigenvalues `[.., n]` in ascending order and eigenvectors (the columns of `[.., n, n]`) of symmetric matrices,
    /// by Jacobi rotations. The lower triangle is read, or the `upper` one.
    pub fn eigh(&self, upper: bool) -> Result<(Tensor, Tensor)> {
        let n = self.square_matrix("eigh")?;
        let x = self.to_float()?;
        if x.numel() == 0 {
            let shape = x.shape();
            return Ok((Tensor::zeros(x.session(), x.dtype(), &shape[..shape.len() - 1])?, x));
        }
        let a = x.symmetric(upper, n)?;
        let vectors = a.detach().jacobi(n)?;
        a.newton_eigen(vectors, n)
    }

    /// The symmetric matrix given by its lower (or `upper`) triangle. As in torch, both triangles get half of the
    /// gradient.
    pub(super) fn symmetric(&self, upper: bool, n: usize) -> Result<Tensor> {
        let x = self.detach();
        let half = if upper { x.triu(1)?.t()? } else { x.tril(-1)? };
        let diagonal = x.eye_like(n)?.ne(0)?.select(&x, 0)?;
        let both = self.add(self.t()?)?.mul(0.5)?;
        half.add(half.t()?)?.add(diagonal)?.add(both.sub(both.detach())?)
    }

    /// Cyclic Jacobi method: an orthogonal matrix that nearly diagonalises a symmetric one. A sweep visits all pairs of
    /// indices in rounds as of a round-robin tournament; the pairs of a round are disjoint and are rotated at once.
    fn jacobi(&self, n: usize) -> Result<Tensor> {
        let size = n + n % 2;
        let eye = self.eye_like(n)?;
        let mut v = eye.expand(&self.shape())?;
        if n < 2 {
            return Ok(v);
        }
        let sweeps = 6 + (n > 8) as usize * 2;
        let mut a = self.contiguous();
        for _ in 0..sweeps {
            for round in 0..size - 1 {
                // the pairs of this round, by the circle method
                let mut partner: Vec<i32> = (0..n as i32).collect();
                for i in 0..size / 2 {
                    let seat = |p: usize| if p == 0 { 0 } else { (p - 1 + round) % (size - 1) + 1 };
                    let (p, q) = (seat(i), seat(size - 1 - i));
                    if p < n && q < n {
                        (partner[p], partner[q]) = (q as i32, p as i32);
                    }
                }
                let partner = Tensor::new(self.session(), &partner, &[n])?;
                let (rows, cols) = self.row_col_indices(n, n)?;
                let meets = partner.unsqueeze(1)?.eq(&cols)?.logical_and(rows.ne(&cols)?)?;
                let d = a.diagonal()?;
                // the sum of both triangles, which rounding makes differ: both indices of a pair must rotate by the
                // same angle to the last bit
                let off = meets.select(a.add(a.t()?)?, 0)?.sum(&[-1], false)?;
                let other = d.index_select(-1, &partner)?;
                // t = sgn(theta) / (|theta| + sqrt(theta^2 + 1)), theta = (other - own) / off
                let still = off.eq(0)?;
                let theta = other.sub(&d)?.div(still.select(1, &off)?)?;
                let limited = theta.clamp(-1e15, 1e15)?;
                let t = limited.abs()?.add(limited.square()?.add(1)?.sqrt()?)?.reciprocal()?;
                let first = partner.gt(Tensor::iota(self.session(), n)?)?;
                // where both diagonal elements are equal, the two indices must still rotate in opposite directions
                let positive = theta.gt(0)?.logical_or(theta.eq(0)?.logical_and(&first)?)?;
                let t = still.select(0, positive.select(&t, t.neg()?)?)?;
                let c = t.square()?.add(1)?.rsqrt()?;
                let s = t.mul(&c)?;
                // column p of the rotation: c at p, -s at its partner
                let turn = rows.eq(&cols)?.select(c.unsqueeze(-2)?, meets.select(s.unsqueeze(-2)?.neg()?, 0)?)?;
                let turn = turn.contiguous();
                a = turn.t()?.matmul(&a)?.contiguous().matmul(&turn)?.contiguous();
                v = v.matmul(&turn)?.contiguous();
            }
        }
        Ok(v)
    }

    /// Sorted eigenvalues and eigenvectors from nearly exact vectors, which are treated as constants, by perturbation
    /// theory: two steps, whose derivatives are exact to second order.
    fn newton_eigen(&self, start: Tensor, n: usize) -> Result<(Tensor, Tensor)> {
        let rough = start.t()?.matmul(&self.detach())?.matmul(&start)?.diagonal()?;
        let order = rough.argsort(-1, false)?;
        let index = order.unsqueeze(-2)?.expand(&start.shape())?;
        let mut v = start.gather(-1, &index)?.detach().contiguous();
        let off = self.eye_like(n)?.eq(0)?;
        for _ in 0..2 {
            let b = v.t()?.matmul(self)?.matmul(&v)?;
            let b = b.add(b.t()?)?.mul(0.5)?;
            let gram = v.t()?.matmul(&v)?;
            let d = b.diagonal()?.div(gram.diagonal()?)?;
            // gap[i, j] = d_j - d_i; vectors of equal eigenvalues are not rotated into each other
            let gap = d.unsqueeze(-2)?.sub(d.unsqueeze(-1)?)?;
            let scale = d.detach().abs()?.max(&[-1], true)?.unsqueeze(-1)?.add(1e-30)?;
            let apart = off.logical_and(gap.detach().abs()?.gt(scale.mul(3e-7)?)?)?;
            let error = self.eye_like(n)?.sub(&gram)?;
            // Ogita and Aishima's refinement E, which is (B + R D) / gap off the diagonal and R/2 on it, written as the
            // sum of a rotation, whose two sides are opposite to the last bit, and R/2: the vectors stay orthogonal
            // however small the gap is
            let mean = d.unsqueeze(-2)?.add(d.unsqueeze(-1)?)?.mul(0.5)?;
            let turn = b.add(error.mul(mean)?)?.div(apart.select(gap, 1)?)?;
            // a large rotation is rounding error over a small gap: only its derivative is used
            let fine = turn.detach().abs()?.lt(1e-3)?;
            let turn = fine.select(&turn, turn.sub(turn.detach())?)?;
            let e = apart.select(turn, 0)?.add(error.mul(0.5)?)?;
            v = v.add(v.matmul(&e)?)?.contiguous();
        }
        let b = v.t()?.matmul(self)?.matmul(&v)?.diagonal()?;
        Ok((b.div(v.square()?.sum(&[-2], false)?)?, v))
    }

    /// Singular value decomposition `(U, S, Vh)` with `A = U diag(S) Vh` for matrices `[.., n, m]`, singular values
    /// descending: `[.., n, k]`, `[.., k]` and `[.., k, m]` with `k` the smaller of `n` and `m`; with `full`, U is
    /// `[.., n, n]` and Vh `[.., m, m]`. Computed from the eigenvectors of the smaller Gram matrix, so singular values
    /// below `1e-3` of the largest lose digits in f32.
    pub fn svd(&self, full: bool) -> Result<(Tensor, Tensor, Tensor)> {
        let (n, m) = self.matrix("svd")?;
        let a = self.to_float()?;
        let k = n.min(m);
        if a.numel() == 0 {
            let eye = |n: usize, k: usize| a.eye_like(n)?.narrow(-1, 0, k)?.expand(&a.zeros_shaped(n, k)?.shape());
            let shape = a.shape();
            let s = Tensor::zeros(a.session(), a.dtype(), &[&shape[..shape.len() - 2], &[k]].concat())?;
            let (ku, kv) = if full { (n, m) } else { (k, k) };
            return Ok((eye(n, ku)?, s, eye(m, kv)?.t()?));
        }
        if n < m {
            let (u, s, vh) = a.t()?.svd(full)?;
            return Ok((vh.t()?, s, u.t()?));
        }
        // A^T A = V S^2 V^T; then A V = U S, whose columns have the lengths S
        let scale = a.detach().abs()?.max(&[-1, -2], true)?.maximum(1e-30)?;
        let w = a.div(&scale)?;
        let (_, v) = w.t()?.matmul(&w)?.eigh(false)?;
        let v = v.flip(&[-1])?;
        let us = a.matmul(&v)?;
        let s = us.square()?.sum(&[-2], false)?.sqrt_or_zero()?;
        let tiny = s.le(s.detach().max(&[-1], true)?.mul(1e-6)?)?;
        let quotient = us.div(tiny.select(1, &s)?.unsqueeze(-2)?)?;
        let u = match full || n == 0 {
            // an orthogonal basis that starts with these columns
            true => {
                let (q, r) = quotient.qr(true)?;
                let d = r.narrow(-2, 0, k)?.diagonal()?.lt(0)?;
                let mut sign = d.select(d.cast(a.dtype())?.neg()?, 1.0)?;
                if n > k {
                    let mut lead = sign.shape();
                    *lead.last_mut().expect("it has an axis") = n - k;
                    sign = Tensor::cat(&[&sign, &Tensor::ones(a.session(), a.dtype(), &lead)?], -1)?;
                }
                q.mul(sign.unsqueeze(-2)?)?
            }
            false => quotient,
        };
        Ok((u, s, v.t()?))
    }

    /// Singular values in descending order: `[.., n, m] -> [.., min(n, m)]`.
    pub fn svdvals(&self) -> Result<Tensor> {
        Ok(self.svd(false)?.1)
    }

    /// The least-squares solution of `A X = B` (of least norm where `A` has fewer rows than columns), for matrices of
    /// full rank: `[.., n, m]` and `[.., n, k]` give `[.., m, k]`.
    pub fn lstsq(&self, b: &Tensor) -> Result<Tensor> {
        let (n, m) = self.matrix("lstsq")?;
        let at = self.t()?;
        match n >= m {
            // (Q R) X = B
            true => {
                let (q, r) = self.qr(false)?;
                r.solve_triangular(&q.t()?.matmul(b)?, true, true, false)
            }
            false => {
                let (q, r) = at.qr(false)?;
                q.matmul(&r.t()?.solve_triangular(b, false, true, false)?)
            }
        }
    }
}
