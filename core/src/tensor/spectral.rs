//! Fourier transforms. Complex numbers are pairs on a last axis of size 2 (real, imaginary), as torch's `view_as_real`.
//! A length is split into its smallest factor and the rest until what is left is short, then it is one product with the
//! matrix of roots of unity (computed on the host in f64): `n * (sum of factors)` work, long primes are quadratic.

use super::{PadMode, Session, Tensor, check_axis};
use crate::{DType, Error, Result};
use std::f64::consts::PI;

/// Longest transform done as one product with its matrix.
const DIRECT: usize = 64;

/// Lengths without factors up to this are one matrix product, whose table has the square of the length.
const PRIME: usize = 512;

/// The longest window, and the longest transform, of whose factors the host makes a table.
const LONGEST: usize = 1 << 24;

/// How transforms are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// The inverse by `1/n`.
    Backward,
    /// Both by `1/sqrt n`.
    Ortho,
    /// The forward by `1/n`.
    Forward,
}

impl Norm {
    /// By torch's name.
    pub fn parse(name: Option<&str>) -> Result<Norm> {
        match name {
            None | Some("backward") => Ok(Norm::Backward),
            Some("ortho") => Ok(Norm::Ortho),
            Some("forward") => Ok(Norm::Forward),
            Some(n) => Err(Error::value("fft", format!("there is no norm `{n}`"))),
        }
    }

    fn scale(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (Norm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / n as f64,
            _ => 1.0,
        }
    }
}

fn roots(s: &Session, dtype: DType, angles: impl Iterator<Item = f64>, shape: &[usize]) -> Result<(Tensor, Tensor)> {
    let angles: Vec<f64> = angles.collect();
    let make = |f: fn(f64) -> f64| -> Result<Tensor> {
        let v: Vec<f64> = angles.iter().map(|&a| f(a)).collect();
        if dtype == DType::F64 {
            return Tensor::new(s, &v, shape);
        }
        Tensor::new(s, &v.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape)?.cast(dtype)
    };
    Ok((make(f64::cos)?, make(f64::sin)?))
}

/// A complex tensor as its two parts.
#[derive(Clone)]
struct Pair {
    re: Tensor,
    im: Tensor,
}

impl Pair {
    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Pair> {
        Ok(Pair { re: f(&self.re)?, im: f(&self.im)? })
    }

    /// Times `(c, s)`, elementwise or as matrices.
    fn times(&self, c: &Tensor, s: &Tensor, f: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Pair> {
        Ok(Pair { re: f(&self.re, c)?.sub(f(&self.im, s)?)?, im: f(&self.re, s)?.add(f(&self.im, c)?)? })
    }

    /// The unscaled transform of the last axis.
    fn transform(&self, sign: f64) -> Result<Pair> {
        let (s, dt) = (self.re.session().clone(), self.re.dtype());
        let n = self.re.dim(-1)?;
        if n <= 1 {
            return Ok(self.clone());
        }
        if n > LONGEST {
            return Err(Error::value("fft", format!("{n} values: {LONGEST} at most")));
        }
        let factor = (2..=n).take_while(|p| p * p <= n).filter(|p| n % p == 0).max().filter(|_| n > DIRECT);
        let Some(a) = factor else {
            if n > PRIME {
                return self.chirped(sign);
            }
            let angle = move |i: usize| sign * 2.0 * PI * ((i / n * (i % n)) % n) as f64 / n as f64;
            let (c, d) = roots(&s, dt, (0..n * n).map(angle), &[n, n])?;
            return self.times(&c, &d, |x, m| x.matmul(m));
        };
        // n = a * b: element i = i1 * b + i2, frequency k = k2 * a + k1
        let b = n / a;
        let rows = self.map(|t| t.unflatten(-1, &[a, b])?.transpose(-1, -2))?.transform(sign)?;
        let angle = move |i: usize| sign * 2.0 * PI * (i / a * (i % a)) as f64 / n as f64;
        let (c, d) = roots(&s, dt, (0..n).map(angle), &[b, a])?;
        let turned = rows.times(&c, &d, |x, m| x.mul(m))?.map(|t| Ok(t.transpose(-1, -2)?.contiguous()))?;
        turned.transform(sign)?.map(|t| t.transpose(-1, -2)?.flatten(-2, -1))
    }

    /// The unscaled transform of an axis whose length has no factors, as a convolution with a chirp (Bluestein, 1970).
    fn chirped(&self, sign: f64) -> Result<Pair> {
        let (s, dt) = (self.re.session().clone(), self.re.dtype());
        let n = self.re.dim(-1)?;
        let m = (2 * n - 1).next_power_of_two();
        // j k = (j^2 + k^2 - (k - j)^2) / 2
        let angle = move |k: usize| sign * PI * ((k as u64).pow(2) % (2 * n as u64)) as f64 / n as f64;
        let (c, d) = roots(&s, dt, (0..n).map(angle), &[n])?;
        let around = |t: &Tensor| {
            let gap = Tensor::zeros(&s, dt, &[m + 1 - 2 * n])?;
            Tensor::cat(&[t, &gap, &t.narrow(0, 1, n - 1)?.flip(&[0])?], 0)
        };
        let chirp = Pair { re: around(&c)?, im: around(&d.neg()?)? }.transform(1.0)?;
        let long = self.times(&c, &d, |x, y| x.mul(y))?.map(|t| t.sized(t.rank() - 1, m))?;
        let product = long.transform(1.0)?.times(&chirp.re, &chirp.im, |x, y| x.mul(y))?;
        let back = product.transform(-1.0)?.map(|t| t.narrow(-1, 0, n)?.div(m as f64))?;
        back.times(&c, &d, |x, y| x.mul(y))
    }

    fn stack(&self) -> Result<Tensor> {
        Tensor::stack(&[&self.re, &self.im], -1)
    }
}

impl Tensor {
    fn parts(&self) -> Result<Pair> {
        if self.rank() == 0 || self.dim(-1)? != 2 {
            return Err(Error::value(
                "fft",
                format!("shape {:?} has no last axis of real and imaginary parts", self.shape()),
            ));
        }
        Ok(Pair { re: self.select_at(-1, 0)?.to_float()?, im: self.select_at(-1, 1)?.to_float()? })
    }

    /// Real numbers as complex pairs.
    pub fn to_complex(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        Tensor::stack(&[&x, &x.zeros_like()?], -1)
    }

    /// An axis cropped or padded with zeros to `n`.
    fn sized(&self, axis: usize, n: usize) -> Result<Tensor> {
        let have = self.shape()[axis];
        if n <= have {
            return self.narrow(axis as i64, 0, n);
        }
        let mut pad = vec![(0, 0); self.rank()];
        pad[axis].1 = n - have;
        self.pad_zeros(&pad)
    }

    /// The complex transform of axes of a complex tensor (axes counted without the last, all by default), each cropped or
    /// padded to the given sizes.
    pub fn fftn(&self, sizes: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm, inverse: bool) -> Result<Tensor> {
        let p = self.parts()?;
        let rank = p.re.rank();
        let axes = fft_axes(rank, sizes, axes)?;
        let sign = if inverse { 1.0 } else { -1.0 };
        let mut p = p;
        for (i, &a) in axes.iter().enumerate() {
            let n = sizes.and_then(|s| s.get(i)).copied().unwrap_or(p.re.shape()[a]);
            if n == 0 {
                return Err(Error::value("fft", "an axis is empty"));
            }
            let scale = norm.scale(n, inverse);
            let at = p.map(|t| t.sized(a, n)?.move_axis(a as i64, -1))?.transform(sign)?;
            p = at.map(|t| {
                let t = t.move_axis(-1, a as i64)?;
                if scale == 1.0 { Ok(t) } else { t.mul(scale) }
            })?;
        }
        p.stack()
    }

    /// The transform of a real tensor: the last of the axes keeps frequencies 0 to n/2; complex pairs.
    pub fn rfftn(&self, sizes: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
        self.real_transform(sizes, axes, norm, false)
    }

    /// The inverse transform of a real tensor: the last of the axes keeps frequencies 0 to n/2; complex pairs.
    pub fn ihfftn(&self, sizes: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
        self.real_transform(sizes, axes, norm, true)
    }

    fn real_transform(
        &self,
        sizes: Option<&[usize]>,
        axes: Option<&[i64]>,
        norm: Norm,
        inverse: bool,
    ) -> Result<Tensor> {
        let full = self.to_complex()?.fftn(sizes, axes, norm, inverse)?;
        let last = *fft_axes(self.rank(), sizes, axes)?.last().ok_or_else(|| Error::value("rfft", "no axes"))?;
        let n = full.shape()[last];
        full.narrow(last as i64, 0, n / 2 + 1)
    }

    /// The inverse of [`Tensor::rfftn`], real; the last axis has size `n` (default `2 (m - 1)`).
    pub fn irfftn(&self, sizes: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
        self.half_spectrum(sizes, axes, norm, true)
    }

    /// Half a spectrum (its mirror image is the conjugate) transformed to real numbers.
    pub fn half_spectrum(
        &self,
        sizes: Option<&[usize]>,
        axes: Option<&[i64]>,
        norm: Norm,
        inverse: bool,
    ) -> Result<Tensor> {
        let rank = self.rank().saturating_sub(1);
        let axes = fft_axes(rank, sizes, axes)?;
        let (&last, rest) = axes.split_last().ok_or_else(|| Error::value("irfft", "no axes"))?;
        let n = match sizes.and_then(|s| s.last()) {
            Some(&n) => n,
            None => 2 * self.shape()[last].max(1) - 2,
        };
        if n == 0 {
            return Err(Error::value("irfft", "the output is empty"));
        }
        let mut t = self.clone();
        if !rest.is_empty() {
            let rest: Vec<i64> = rest.iter().map(|&a| a as i64).collect();
            let most = sizes.map(|s| &s[..s.len() - 1]);
            t = t.fftn(most, Some(&rest), norm, inverse)?;
        }
        let m = n / 2 + 1;
        let half = t.sized(last, m)?.parts()?.map(|t| t.move_axis(last as i64, -1))?;
        // x[j] = sum over k of w_k (re cos - im sin), where all but the ends stand for two
        let sign = if inverse { 1.0 } else { -1.0 };
        let weight = move |k: usize| if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
        if n > DIRECT {
            // the whole spectrum: the rest is the conjugate backwards; the ends are real
            let inner = n - m;
            let tail = half.map(|t| t.narrow(-1, 1, inner)?.flip(&[-1]))?;
            let real = Tensor::iota(self.session(), m)?.mul(2)?;
            let ends = real.eq(0)?.logical_or(real.eq(n as i64)?)?;
            let im = ends.select(0, &half.im)?;
            let re = Tensor::cat(&[&half.re, &tail.re], -1)?;
            let im = Tensor::cat(&[&im, &tail.im.neg()?], -1)?;
            let out = Pair { re, im }.transform(sign)?.re.mul(norm.scale(n, inverse))?;
            return out.move_axis(-1, last as i64);
        }
        let s = self.session();
        let angle = move |i: usize| 2.0 * PI * ((i / n * (i % n)) % n) as f64 / n as f64;
        let (c, d) = roots(s, half.re.dtype(), (0..m * n).map(angle), &[m, n])?;
        let w: Vec<f32> = (0..m).map(|k| weight(k) as f32).collect();
        let w = Tensor::new(s, &w, &[m, 1])?.cast(half.re.dtype())?;
        let out = half.re.matmul(&c.mul(&w)?)?.sub(half.im.matmul(&d.mul(w)?.mul(sign)?)?)?;
        out.mul(norm.scale(n, inverse))?.move_axis(-1, last as i64)
    }

    /// Short-time Fourier transform of `[.., time]`: windows of `n_fft` every `hop`, complex pairs
    /// `[.., frequencies, frames, 2]`.
    #[allow(clippy::too_many_arguments, reason = "torch's parameters")]
    pub fn stft(
        &self,
        n_fft: usize,
        hop: Option<usize>,
        win_length: Option<usize>,
        window: Option<&Tensor>,
        center: Option<PadMode>,
        normalized: bool,
        onesided: bool,
    ) -> Result<Tensor> {
        let hop = hop.unwrap_or(n_fft / 4).max(1);
        let mut x = self.to_float()?;
        if let Some(mode) = center {
            let half = (n_fft / 2) as i64;
            x = x.pad_last(&[half, half], mode, 0)?;
        }
        let frames = x.windows(&[n_fft], &[hop], &[1])?;
        let frames = match window {
            Some(w) => frames.mul(w.centred(n_fft)?)?,
            None => {
                frames.mul(Tensor::ones(self.session(), x.dtype(), &[win_length.unwrap_or(n_fft)])?.centred(n_fft)?)?
            }
        };
        let norm = if normalized { Norm::Ortho } else { Norm::Backward };
        let spectrum = match onesided {
            true => frames.rfftn(None, Some(&[-1]), norm)?,
            false => frames.to_complex()?.fftn(None, Some(&[-1]), norm, false)?,
        };
        spectrum.transpose(-2, -3)
    }

    /// A window padded with zeros on both sides to `n`.
    fn centred(&self, n: usize) -> Result<Tensor> {
        let have = self.want_rank("stft", 1)?[0];
        let gap = n.checked_sub(have).ok_or_else(|| Error::value("stft", "the window is longer than the transform"))?;
        self.pad_zeros(&[(gap / 2, gap - gap / 2)])
    }

    /// The inverse of [`Tensor::stft`] by overlap and add: complex pairs `[.., frequencies, frames, 2]` to `[.., time]`.
    pub fn istft(
        &self,
        n_fft: usize,
        hop: Option<usize>,
        window: Option<&Tensor>,
        center: bool,
        normalized: bool,
        length: Option<usize>,
    ) -> Result<Tensor> {
        let hop = hop.unwrap_or(n_fft / 4).max(1);
        let norm = if normalized { Norm::Ortho } else { Norm::Backward };
        let frames = self.transpose(-2, -3)?.irfftn(Some(&[n_fft]), Some(&[-1]), norm)?;
        let w = match window {
            Some(w) => w.to_float()?.centred(n_fft)?,
            None => Tensor::ones(self.session(), frames.dtype(), &[n_fft])?,
        };
        let count = frames.dim(-2)?;
        let total = n_fft + hop * (count.max(1) - 1);
        let overlap = |t: &Tensor| -> Result<Tensor> {
            // the transpose of taking windows
            let mut shape = t.shape()[..t.rank() - 2].to_vec();
            shape.push(total);
            let line = Tensor::zeros(t.session(), t.dtype(), &shape)?.contiguous();
            let windows = line.windows(&[n_fft], &[hop], &[1])?;
            Ok(windows.grad_from(t, &[&line])?.swap_remove(0))
        };
        let signal = overlap(&frames.mul(&w)?)?;
        let weight = overlap(&w.square()?.expand(&[count, n_fft])?)?;
        let out = signal.div(weight.gt(1e-11)?.select(&weight, 1)?)?;
        let from = if center { n_fft / 2 } else { 0 };
        let len = length.unwrap_or(total - 2 * from).min(total - from);
        let out = out.narrow(-1, from, len)?;
        match length {
            Some(want) if want > len => {
                let axis = out.rank() - 1;
                out.sized(axis, want)
            }
            _ => Ok(out),
        }
    }

    /// Zero frequency moved to the middle of each axis (or back, for `inverse`).
    pub fn fftshift(&self, axes: Option<&[i64]>, inverse: bool) -> Result<Tensor> {
        let all: Vec<i64> = (0..self.rank() as i64).collect();
        axes.unwrap_or(&all).iter().try_fold(self.clone(), |t, &a| {
            let n = t.dim(a)? as i64;
            t.roll(if inverse { -(n / 2) } else { n / 2 }, a)
        })
    }

    /// A sum of cosines as a window: `sum of a_k (-1)^k cos(2 pi k i / n)`, symmetric or periodic.
    pub fn cosine_window(s: &Session, n: usize, sym: bool, dtype: Option<DType>, a: &[f64]) -> Result<Tensor> {
        Tensor::window(s, n, sym, dtype, |i, over| {
            let at = |k: usize| (2.0 * PI * k as f64 * i / over).cos() * if k % 2 == 0 { 1.0 } else { -1.0 };
            a.iter().enumerate().map(|(k, a)| a * at(k)).sum()
        })
    }

    /// A window by its values: `f(i, over)` for each `i` of `n`, where `over` is the length of what it spans, one less than the
    /// period; symmetric or periodic. In f32 unless told.
    pub fn window(
        s: &Session,
        n: usize,
        sym: bool,
        dtype: Option<DType>,
        f: impl Fn(f64, f64) -> f64,
    ) -> Result<Tensor> {
        if n > LONGEST {
            return Err(Error::value("window", format!("{n} values: {LONGEST} at most")));
        }
        let over = if sym { n.max(2) - 1 } else { n.max(1) } as f64;
        let values = (0..n).map(|i| if n == 1 { 1.0 } else { f(i as f64, over) });
        match dtype {
            Some(DType::F64) => Tensor::new(s, &values.collect::<Vec<f64>>(), &[n]),
            dtype => {
                Tensor::new(s, &values.map(|v| v as f32).collect::<Vec<f32>>(), &[n])?.cast(dtype.unwrap_or(DType::F32))
            }
        }
    }
}

/// The modified Bessel function I0, by its series.
pub(super) fn bessel_i0(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..500 {
        term *= (x / 2.0 / k as f64).powi(2);
        sum += term;
        if term < sum * 1e-18 {
            break;
        }
    }
    sum
}

fn fft_axes(rank: usize, sizes: Option<&[usize]>, axes: Option<&[i64]>) -> Result<Vec<usize>> {
    let axes: Vec<usize> = match (axes, sizes) {
        (Some(a), _) => a.iter().map(|&a| check_axis("fft", a, rank)).collect::<Result<_>>()?,
        (None, Some(s)) if s.len() <= rank => (rank - s.len()..rank).collect(),
        (None, Some(s)) => return Err(Error::value("fft", format!("{} sizes for {rank} axes", s.len()))),
        (None, None) => (0..rank).collect(),
    };
    match sizes {
        Some(s) if s.len() != axes.len() => Err(Error::value("fft", "sizes and axes differ in length")),
        _ => Ok(axes),
    }
}
