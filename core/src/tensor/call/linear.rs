//! Rows of the table: linear systems, decompositions, Fourier transforms and windows.

use super::*;
use crate::tensor::PadMode;
use crate::tensor::spectral::{Norm, bessel_i0};
use std::f64::consts::PI;

ops! {
    // ---- systems and decompositions
    "linalg.inv" | "inverse" (input: Tensor) input.inverse();
    "linalg.inv_ex" (input: Tensor, check_errors: bool = false) { let _ = check_errors; Ok((input.inverse()?, no_error(&input)?)) };
    "linalg.solve" (A: Tensor, B: Tensor, left: bool = true) A.solve(&B, left);
    "linalg.solve_ex" (A: Tensor, B: Tensor, left: bool = true, check_errors: bool = false) { let _ = check_errors; Ok((A.solve(&B,
        left)?, no_error(&A)?)) };
    "linalg.solve_triangular" (A: Tensor, B: Tensor, upper: bool, left: bool = true, unitriangular: bool = false)
        A.solve_triangular(&B, upper, left, unitriangular);
    "triangular_solve" (b: Tensor, A: Tensor, upper: bool = true, transpose: bool = false, unitriangular: bool = false) {
        let m = if transpose { A.t()? } else { A.clone() };
        Ok((m.solve_triangular(&b, upper != transpose, true, unitriangular)?, A))
    };
    "linalg.tensorsolve" (A: Tensor, B: Tensor, dims: Option<Vec<i64>>) A.tensorsolve(&B, dims.as_deref());
    "linalg.tensorinv" (A: Tensor, ind: usize = 2) A.tensorinv(ind);
    "linalg.det" | "det" (input: Tensor) input.det();
    "linalg.slogdet" | "slogdet" (input: Tensor) input.slogdet();
    "logdet" (input: Tensor) {
        let (sign, log) = input.slogdet()?;
        sign.lt(0)?.select(f64::NAN, log)
    };
    "linalg.cholesky" | "cholesky" (input: Tensor, upper: bool = false) input.cholesky(upper);
    "linalg.cholesky_ex" (input: Tensor, upper: bool = false, check_errors: bool = false) { let _ = check_errors;
        Ok((input.cholesky(upper)?, no_error(&input)?)) };
    "cholesky_solve" (b: Tensor, L: Tensor, upper: bool = false) {
        let low = if upper { L.triu(0)?.t()? } else { L.tril(0)? };
        low.t()?.solve_triangular(&low.solve_triangular(&b, false, true, false)?, true, true, false)
    };
    "cholesky_inverse" (L: Tensor, upper: bool = false) {
        let low = if upper { L.triu(0)?.t()? } else { L.tril(0)? };
        let eye = Tensor::eye(L.session(), low.dim(-1)?, low.dim(-1)?, L.dtype())?;
        let x = low.solve_triangular(&eye, false, true, false)?;
        x.t()?.matmul(&x)
    };
    "linalg.qr" | "qr" (input: Tensor, mode: &str = "reduced") input.qr(mode == "complete");
    "linalg.householder_product" (input: Tensor, tau: Tensor) input.householder_product(&tau);
    "linalg.eigh" (input: Tensor, UPLO: &str = "L") input.eigh(UPLO == "U");
    "linalg.eigvalsh" (input: Tensor, UPLO: &str = "L") Ok(input.eigh(UPLO == "U")?.0);
    "linalg.svd" (input: Tensor, full_matrices: bool = true) input.svd(full_matrices);
    "svd" (input: Tensor, some: bool = true, compute_uv: bool = true) {
        let _ = compute_uv;
        let (u, s, vh) = input.svd(!some)?;
        Ok((u, s, vh.t()?))
    };
    "linalg.svdvals" (input: Tensor) input.svdvals();
    "linalg.lu" (input: Tensor, pivot: bool = true) input.lu(pivot);
    "linalg.lu_factor" (A: Tensor, pivot: bool = true) A.lu_factor(pivot);
    "linalg.lu_factor_ex" (A: Tensor, pivot: bool = true, check_errors: bool = false) {
        let _ = check_errors;
        let (lu, pivots) = A.lu_factor(pivot)?;
        Ok((lu, pivots, no_error(&A)?))
    };
    "lu_unpack" (LU_data: Tensor, LU_pivots: Tensor) LU_data.lu_unpack(&LU_pivots);
    "linalg.lu_solve" (LU: Tensor, pivots: Tensor, B: Tensor, left: bool = true, adjoint: bool = false)
        LU.lu_solve(&pivots, &B, left, adjoint);
    "lu_solve" (b: Tensor, LU_data: Tensor, LU_pivots: Tensor) LU_data.lu_solve(&LU_pivots, &b, true, false);
    "linalg.matrix_rank" (A: Tensor, atol: Option<Operand>, rtol: Option<Operand>, hermitian: bool = false)
        A.matrix_rank(atol.as_ref(), rtol.as_ref(), hermitian);
    "linalg.pinv" (A: Tensor, atol: Option<Operand>, rtol: Option<Operand>, hermitian: bool = false)
        A.pinv(atol.as_ref(), rtol.as_ref(), hermitian);
    "pinverse" (input: Tensor, rcond: f64 = 1e-15) input.pinv(None, Some(&Operand::Float(rcond)), false);
    "linalg.lstsq" (A: Tensor, B: Tensor, rcond: Option<f64>, driver: &str = "gelsy") A.lstsq_by(&B, rcond, driver);
    "linalg.matrix_sqrth" (A: Tensor) A.matrix_sqrth();
    "linalg.polar" (A: Tensor) A.polar_factors();
    "linalg.matrix_power" | "matrix_power" (input: Tensor, n: i64) input.matrix_power(n);
    "matrix_exp" | "linalg.matrix_exp" (input: Tensor) input.matrix_exp();
    "linalg.cond" (input: Tensor, p: Option<&Value>) {
        let order = match p { None => "2".to_string(), Some(Value::Text(t)) => t.clone(), Some(v) => f64::from_value(v).unwrap_or(2.0).to_string() };
        if order == "2" || order == "-2" {
            let s = input.svdvals()?;
            let (big, small) = (s.max(&[-1], false)?, s.min(&[-1], false)?);
            return if order == "2" { big.div(small) } else { small.div(big) };
        }
        input.matrix_norm(&order, &[], false)?.mul(input.inverse()?.matrix_norm(&order, &[], false)?)
    };
    // ---- Fourier
    "fft.fft" (input: Tensor, n: Option<usize>, dim: i64 = -1, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.fftn(as_slice(&n), Some(&[dim]), Norm::parse(norm)?, false);
    "fft.ifft" (input: Tensor, n: Option<usize>, dim: i64 = -1, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.fftn(as_slice(&n), Some(&[dim]), Norm::parse(norm)?, true);
    "fft.fft2" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.fftn(s.as_deref(), Some(&dim.unwrap_or(vec![-2, -1])), Norm::parse(norm)?, false);
    "fft.ifft2" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.fftn(s.as_deref(), Some(&dim.unwrap_or(vec![-2, -1])), Norm::parse(norm)?, true);
    "fft.fftn" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.fftn(s.as_deref(), dim.as_deref(), Norm::parse(norm)?, false);
    "fft.ifftn" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.fftn(s.as_deref(), dim.as_deref(), Norm::parse(norm)?, true);
    "fft.rfft" (input: Tensor, n: Option<usize>, dim: i64 = -1, norm: Option<&str>) input.rfftn(as_slice(&n), Some(&[dim]), Norm::parse(norm)?);
    "fft.rfft2" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>) input.rfftn(s.as_deref(),
        Some(&dim.unwrap_or(vec![-2, -1])), Norm::parse(norm)?);
    "fft.rfftn" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>) input.rfftn(s.as_deref(),
        dim.as_deref(), Norm::parse(norm)?);
    "fft.irfft" (input: Tensor, n: Option<usize>, dim: i64 = -1, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.irfftn(as_slice(&n), Some(&[dim]), Norm::parse(norm)?);
    "fft.irfft2" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.irfftn(s.as_deref(), Some(&dim.unwrap_or(vec![-2, -1])), Norm::parse(norm)?);
    "fft.irfftn" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.irfftn(s.as_deref(), dim.as_deref(), Norm::parse(norm)?);
    "fft.hfft" (input: Tensor, n: Option<usize>, dim: i64 = -1, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.half_spectrum(as_slice(&n), Some(&[dim]), Norm::parse(norm)?, false);
    "fft.hfft2" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.half_spectrum(s.as_deref(), Some(&dim.unwrap_or(vec![-2, -1])), Norm::parse(norm)?, false);
    "fft.hfftn" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>, complex: bool = false)
        pairs(&input, complex)?.half_spectrum(s.as_deref(), dim.as_deref(), Norm::parse(norm)?, false);
    "fft.ihfft" (input: Tensor, n: Option<usize>, dim: i64 = -1, norm: Option<&str>) input.ihfftn(as_slice(&n), Some(&[dim]), Norm::parse(norm)?);
    "fft.ihfft2" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>) input.ihfftn(s.as_deref(),
        Some(&dim.unwrap_or(vec![-2, -1])), Norm::parse(norm)?);
    "fft.ihfftn" (input: Tensor, s: Option<Vec<usize>>, dim: Option<Vec<i64>>, norm: Option<&str>) input.ihfftn(s.as_deref(),
        dim.as_deref(), Norm::parse(norm)?);
    "fft.fftshift" (input: Tensor, dim: Option<Vec<i64>>) input.fftshift(dim.as_deref(), false);
    "fft.ifftshift" (input: Tensor, dim: Option<Vec<i64>>) input.fftshift(dim.as_deref(), true);
    "stft" (input: Tensor, n_fft: usize, hop_length: Option<usize>, win_length: Option<usize>, window: Option<Tensor>,
        center: bool = true, pad_mode: &str = "reflect", normalized: bool = false, onesided: bool = true, return_complex: bool = true) {
        let _ = return_complex;
        let mode = if pad_mode == "constant" { PadMode::Constant } else { PadMode::Reflect };
        input.stft(n_fft, hop_length, win_length, window.as_ref(), center.then_some(mode), normalized, onesided)
    };
    "istft" (input: Tensor, n_fft: usize, hop_length: Option<usize>, win_length: Option<usize>, window: Option<Tensor>,
        center: bool = true, normalized: bool = false, onesided: bool = true, length: Option<usize>) {
        // the first half of a whole spectrum says everything of a real signal
        let _ = onesided;
        let window = match (window, win_length) {
            (None, Some(n)) => Some(Tensor::ones(input.session(), input.dtype(), &[n])?),
            (window, _) => window,
        };
        input.istft(n_fft, hop_length, window.as_ref(), center, normalized, length)
    };
    "signal.windows.general_cosine" (s: Session, M: usize, a: Vec<f64>, sym: bool = true, dtype: Option<DType>)
        Tensor::cosine_window(&s, M, sym, dtype, &a);
    "signal.windows.hann" (s: Session, M: usize, sym: bool = true, dtype: Option<DType>)
        Tensor::cosine_window(&s, M, sym, dtype, &[0.5, 0.5]);
    "signal.windows.hamming" (s: Session, M: usize, sym: bool = true, dtype: Option<DType>)
        Tensor::cosine_window(&s, M, sym, dtype, &[0.54, 0.46]);
    "signal.windows.general_hamming" (s: Session, M: usize, alpha: f64 = 0.54, sym: bool = true, dtype: Option<DType>)
        Tensor::cosine_window(&s, M, sym, dtype, &[alpha, 1.0 - alpha]);
    "signal.windows.blackman" (s: Session, M: usize, sym: bool = true, dtype: Option<DType>)
        Tensor::cosine_window(&s, M, sym, dtype, &[0.42, 0.5, 0.08]);
    "signal.windows.nuttall" (s: Session, M: usize, sym: bool = true, dtype: Option<DType>)
        Tensor::cosine_window(&s, M, sym, dtype, &[0.3635819, 0.4891775, 0.1365995, 0.0106411]);
    "signal.windows.bartlett" (s: Session, M: usize, sym: bool = true, dtype: Option<DType>) Tensor::window(&s, M, sym, dtype,
        |i, over| 1.0 - (2.0 * i / over - 1.0).abs());
    "signal.windows.cosine" (s: Session, M: usize, sym: bool = true, dtype: Option<DType>) Tensor::window(&s, M, sym, dtype,
        |i, over| (PI * (i + 0.5) / (over + 1.0)).sin());
    "signal.windows.exponential" (s: Session, M: usize, center: Option<f64>, tau: f64 = 1.0, sym: bool = true, dtype: Option<DType>)
        Tensor::window(&s, M, sym, dtype, |i, over| (-(i - center.unwrap_or(over / 2.0)).abs() / tau).exp());
    "signal.windows.gaussian" (s: Session, M: usize, std: f64 = 1.0, sym: bool = true, dtype: Option<DType>) Tensor::window(&s, M, sym,
        dtype, |i, over| (-0.5 * ((i - over / 2.0) / std).powi(2)).exp());
    "signal.windows.kaiser" (s: Session, M: usize, beta: f64 = 12.0, sym: bool = true, dtype: Option<DType>) Tensor::window(&s, M, sym,
        dtype, |i, over| bessel_i0(beta * (1.0 - (2.0 * i / over - 1.0).powi(2)).max(0.0).sqrt()) / bessel_i0(beta));
}

/// The tensor as complex pairs: it holds them already if `complex`, otherwise its elements are real.
fn pairs(x: &Tensor, complex: bool) -> Result<Tensor> {
    if complex { x.to_float() } else { x.to_complex() }
}

/// One size as a list.
fn as_slice(n: &Option<usize>) -> Option<&[usize]> {
    n.as_ref().map(std::slice::from_ref)
}

/// The `info` result of torch's `_ex` functions: zeros for each matrix, no error is ever reported.
fn no_error(a: &Tensor) -> Result<Tensor> {
    let shape = a.shape();
    Tensor::zeros(a.session(), DType::I32, &shape[..shape.len().saturating_sub(2)])
}

impl Tensor {
    /// Solves `tensordot(A, X) = B` for X (torch's `tensorsolve`).
    fn tensorsolve(&self, b: &Tensor, axes: Option<&[i64]>) -> Result<Tensor> {
        let a = match axes {
            Some(l) => self.move_axes(l, &(-(l.len() as i64)..0).collect::<Vec<_>>())?,
            None => self.clone(),
        };
        let rest = a.shape().get(b.rank()..).unwrap_or(&[]).to_vec();
        let n = b.numel();
        a.reshape(&[n as i64, -1])?.solve(&b.reshape(&[n, 1])?, true)?.reshape(&rest)
    }

    /// The inverse of a tensor as a linear map from its last axes to the first `split` ones (torch's `tensorinv`).
    fn tensorinv(&self, split: usize) -> Result<Tensor> {
        let shape = self.shape();
        let (lead, rest) = shape.split_at(split.min(shape.len()));
        let n: usize = lead.iter().product();
        self.reshape(&[n as i64, -1])?.inverse()?.reshape(&[rest, lead].concat())
    }
}
