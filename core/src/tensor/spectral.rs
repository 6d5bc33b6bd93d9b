//! Fourier transforms, windows, and the short-time transform. Complex numbers are pairs (real, imaginary) on a last
//! axis of size 2, as torch's `view_as_real` gives them.
//!
//! A length `n` is split into factors until they are short; a transform of such a length is one product with the matrix
//! of roots of unity, which the host computes in f64. The work is `n * (sum of factors)`, so that it is quadratic for
//! primes; those above [`MAX_DIRECT_PRIME_LEN`] become a convolution (Bluestein).

use super::{PadMode, Session, Tensor, check_axis};
use crate::{DType, Error, Result};
use std::f64::consts::PI;

/// The longest transform that is one product with its matrix although it has factors.
const MAX_DIRECT_LEN: usize = 64;

/// The longest transform of prime length that is one product with its matrix, which has the square of the length
/// elements.
const MAX_DIRECT_PRIME_LEN: usize = 512;

/// The longest window, and the longest transform: the host computes a table for each.
const MAX_LEN: usize = 1 << 24;

/// How transforms are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// The inverse transform is divided by `n`.
    Backward,
    /// Both transforms are divided by `sqrt n`.
    Ortho,
    /// The forward transform is divided by `n`.
    Forward,
}

impl Norm {
    /// The variant with this name in torch, [`Norm::Backward`] if `None`; `Error::Value` for another name.
    pub fn parse(name: Option<&str>) -> Result<Norm> {
        match name {
            None | Some("backward") => Ok(Norm::Backward),
            Some("ortho") => Ok(Norm::Ortho),
            Some("forward") => Ok(Norm::Forward),
            Some(n) => Err(Error::value("fft", format!("there is no norm `{n}`"))),
        }
    }

    /// The factor on a transform of length `n`.
    fn scale(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (Norm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / n as f64,
            _ => 1.0,
        }
    }
}

/// The cosines and sines of these angles, computed in f64 on the host and rounded to `dtype`.
fn roots_of_unity(
    s: &Session,
    dtype: DType,
    angles: impl Iterator<Item = f64>,
    shape: &[usize],
) -> Result<(Tensor, Tensor)> {
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

/// A complex tensor as its real and imaginary parts.
#[derive(Clone)]
struct Complex {
    re: Tensor,
    im: Tensor,
}

impl Complex {
    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Complex> {
        Ok(Complex { re: f(&self.re)?, im: f(&self.im)? })
    }

    /// The complex product with `(c, s)`, where `f` multiplies real tensors: elementwise or as matrices.
    fn times(&self, c: &Tensor, s: &Tensor, f: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Complex> {
        Ok(Complex { re: f(&self.re, c)?.sub(f(&self.im, s)?)?, im: f(&self.re, s)?.add(f(&self.im, c)?)? })
    }

    /// The unscaled transform of the last axis; `sign` is that of the exponent, -1 for the forward transform.
    fn transform(&self, sign: f64) -> Result<Complex> {
        let (s, dt) = (self.re.session().clone(), self.re.dtype());
        let n = self.re.dim(-1)?;
        if n <= 1 {
            return Ok(self.clone());
        }
        if n > MAX_LEN {
            return Err(Error::value("fft", format!("{n} values: {MAX_LEN} at most")));
        }
        let factor = (2..=n).take_while(|p| p * p <= n).filter(|p| n % p == 0).max().filter(|_| n > MAX_DIRECT_LEN);
        let Some(a) = factor else {
            if n > MAX_DIRECT_PRIME_LEN {
                return self.bluestein(sign);
            }
            let angle = move |i: usize| sign * 2.0 * PI * ((i / n * (i % n)) % n) as f64 / n as f64;
            let (c, d) = roots_of_unity(&s, dt, (0..n * n).map(angle), &[n, n])?;
            return self.times(&c, &d, |x, m| x.matmul(m));
        };
        // n = a * b: element i = i1 * b + i2, frequency k = k2 * a + k1
        let b = n / a;
        let rows = self.map(|t| t.unflatten(-1, &[a, b])?.transpose(-1, -2))?.transform(sign)?;
        let angle = move |i: usize| sign * 2.0 * PI * (i / a * (i % a)) as f64 / n as f64;
        let (c, d) = roots_of_unity(&s, dt, (0..n).map(angle), &[b, a])?;
        let twiddled = rows.times(&c, &d, |x, m| x.mul(m))?.map(|t| Ok(t.transpose(-1, -2)?.contiguous()))?;
        twiddled.transform(sign)?.map(|t| t.transpose(-1, -2)?.flatten(-2, -1))
    }

    /// The unscaled transform of the last axis, whose length is a large prime, as a convolution with a chirp
    /// (Bluestein, 1970).
    fn bluestein(&self, sign: f64) -> Result<Complex> {
        let (s, dt) = (self.re.session().clone(), self.re.dtype());
        let n = self.re.dim(-1)?;
        let m = (2 * n - 1).next_power_of_two();
        // j k = (j^2 + k^2 - (k - j)^2) / 2
        let angle = move |k: usize| sign * PI * ((k as u64).pow(2) % (2 * n as u64)) as f64 / n as f64;
        let (c, d) = roots_of_unity(&s, dt, (0..n).map(angle), &[n])?;
        let around = |t: &Tensor| {
            let gap = Tensor::zeros(&s, dt, &[m + 1 - 2 * n])?;
            Tensor::cat(&[t, &gap, &t.narrow(0, 1, n - 1)?.flip(&[0])?], 0)
        };
        let chirp = Complex { re: around(&c)?, im: around(&d.neg()?)? }.transform(1.0)?;
        let long = self.times(&c, &d, |x, y| x.mul(y))?.map(|t| t.crop_or_pad(t.rank() - 1, m))?;
        let product = long.transform(1.0)?.times(&chirp.re, &chirp.im, |x, y| x.mul(y))?;
        let back = product.transform(-1.0)?.map(|t| t.narrow(-1, 0, n)?.div(m as f64))?;
        back.times(&c, &d, |x, y| x.mul(y))
    }

    fn stack(&self) -> Result<Tensor> {
        Tensor::stack(&[&self.re, &self.im], -1)
    }
}

impl Tensor {
    /// The parts of a tensor of complex pairs; `Error::Value` unless the last axis has size 2.
    fn parts(&self) -> Result<Complex> {
        if self.rank() == 0 || self.dim(-1)? != 2 {
            return Err(Error::value(
                "fft",
                format!("shape {:?} has no last axis of real and imaginary parts", self.shape()),
            ));
        }
        Ok(Complex { re: self.select_at(-1, 0)?.to_float()?, im: self.select_at(-1, 1)?.to_float()? })
    }

    /// Real numbers as complex pairs with imaginary part 0: `[..] -> [.., 2]`.
    pub fn to_complex(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        Tensor::stack(&[&x, &x.zeros_like()?], -1)
    }

    /// Crops an axis to `n` elements, or pads it with zeros.
    fn crop_or_pad(&self, axis: usize, n: usize) -> Result<Tensor> {
        let have = self.shape()[axis];
        if n <= have {
            return self.narrow(axis as i64, 0, n);
        }
        let mut pad = vec![(0, 0); self.rank()];
        pad[axis].1 = n - have;
        self.pad_zeros(&pad)
    }

    /// The complex Fourier transform along axes of a tensor of complex pairs. The axes are counted without the last
    /// one; `None` means all. Each is first cropped or zero-padded to the given size. `Error::Value` for an empty axis,
    /// or where the numbers of sizes and axes differ.
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
            let at = p.map(|t| t.crop_or_pad(a, n)?.move_axis(a as i64, -1))?.transform(sign)?;
            p = at.map(|t| {
                let t = t.move_axis(-1, a as i64)?;
                if scale == 1.0 { Ok(t) } else { t.mul(scale) }
            })?;
        }
        p.stack()
    }

    /// The Fourier transform of a real tensor, as complex pairs: the last transformed axis has the frequencies 0 to n/2
    /// only, since the others are their conjugates. Arguments as for [`Tensor::fftn`].
    pub fn rfftn(&self, sizes: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
        self.real_transform(sizes, axes, norm, false)
    }

    /// The inverse Fourier transform of a real tensor, as complex pairs, with the frequencies 0 to n/2 along the last
    /// transformed axis. Arguments as for [`Tensor::fftn`].
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

    /// The inverse of [`Tensor::rfftn`], a real tensor. The size of the last transformed axis is the last of `sizes`,
    /// by default `2 (m - 1)` for `m` frequencies.
    pub fn irfftn(&self, sizes: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Tensor> {
        self.half_spectrum(sizes, axes, norm, true)
    }

    /// Transforms the frequencies 0 to n/2 of a spectrum, whose other half is their conjugate, to a real tensor. Sizes
    /// as for [`Tensor::irfftn`].
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
        let half = t.crop_or_pad(last, m)?.parts()?.map(|t| t.move_axis(last as i64, -1))?;
        // x[j] = sum over k of w_k (re cos - im sin), where each frequency but the ends also stands for its conjugate:
        // w_k = 2
        let sign = if inverse { 1.0 } else { -1.0 };
        let weight = move |k: usize| if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
        if n > MAX_DIRECT_LEN {
            // complete the spectrum: the other half is the conjugate in reverse order, and the ends are real
            let inner = n - m;
            let tail = half.map(|t| t.narrow(-1, 1, inner)?.flip(&[-1]))?;
            let real = Tensor::iota(self.session(), m)?.mul(2)?;
            let ends = real.eq(0)?.logical_or(real.eq(n as i64)?)?;
            let im = ends.select(0, &half.im)?;
            let re = Tensor::cat(&[&half.re, &tail.re], -1)?;
            let im = Tensor::cat(&[&im, &tail.im.neg()?], -1)?;
            let out = Complex { re, im }.transform(sign)?.re.mul(norm.scale(n, inverse))?;
            return out.move_axis(-1, last as i64);
        }
        let s = self.session();
        let angle = move |i: usize| 2.0 * PI * ((i / n * (i % n)) % n) as f64 / n as f64;
        let (c, d) = roots_of_unity(s, half.re.dtype(), (0..m * n).map(angle), &[m, n])?;
        let w: Vec<f32> = (0..m).map(|k| weight(k) as f32).collect();
        let w = Tensor::new(s, &w, &[m, 1])?.cast(half.re.dtype())?;
        let out = half.re.matmul(&c.mul(&w)?)?.sub(half.im.matmul(&d.mul(w)?.mul(sign)?)?)?;
        out.mul(norm.scale(n, inverse))?.move_axis(-1, last as i64)
    }

    /// Short-time Fourier transform of `[.., time]` as complex pairs `[.., frequencies, frames, 2]`: frames of `n_fft`
    /// samples, one every `hop` (default `n_fft / 4`), times `window` (default ones, `win_length` of them, centred).
    /// With `center` the signal is first padded by `n_fft / 2` in this mode. `normalized` divides by `sqrt(n_fft)`;
    /// `onesided` gives the frequencies 0 to n_fft/2 only.
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

    /// A window padded with zeros on both sides to `n` elements; `Error::Value` if it is longer.
    fn centred(&self, n: usize) -> Result<Tensor> {
        let have = self.want_rank("stft", 1)?[0];
        let gap = n.checked_sub(have).ok_or_else(|| Error::value("stft", "the window is longer than the transform"))?;
        self.pad_zeros(&[(gap / 2, gap - gap / 2)])
    }

    /// The inverse of [`Tensor::stft`] by overlap and add: complex pairs `[.., frequencies, frames, 2] -> [.., time]`.
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
            // overlap-add is the transpose of taking windows, hence its gradient
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
                out.crop_or_pad(axis, want)
            }
            _ => Ok(out),
        }
    }

    /// Moves the zero frequency to the middle of each axis, or back with `inverse`; all axes if `None`.
    pub fn fftshift(&self, axes: Option<&[i64]>, inverse: bool) -> Result<Tensor> {
        let all: Vec<i64> = (0..self.rank() as i64).collect();
        axes.unwrap_or(&all).iter().try_fold(self.clone(), |t, &a| {
            let n = t.dim(a)? as i64;
            t.roll(if inverse { -(n / 2) } else { n / 2 }, a)
        })
    }

    /// A window of `n` samples that is a sum of cosines, `sum of a_k (-1)^k cos(2 pi k i / n)`; symmetric if `sym`,
    /// else periodic. f32 if no dtype is given.
    pub fn cosine_window(s: &Session, n: usize, sym: bool, dtype: Option<DType>, a: &[f64]) -> Result<Tensor> {
        Tensor::window(s, n, sym, dtype, |i, over| {
            let at = |k: usize| (2.0 * PI * k as f64 * i / over).cos() * if k % 2 == 0 { 1.0 } else { -1.0 };
            a.iter().enumerate().map(|(k, a)| a * at(k)).sum()
        })
    }

    /// A window of `n` samples `f(i, over)`, where `over` is the distance between its ends: `n - 1` if it is symmetric
    /// (`sym`), `n` if it is periodic. f32 if no dtype is given. `Error::Value` for more than 2^24 samples.
    pub fn window(
        s: &Session,
        n: usize,
        sym: bool,
        dtype: Option<DType>,
        f: impl Fn(f64, f64) -> f64,
    ) -> Result<Tensor> {
        if n > MAX_LEN {
            return Err(Error::value("window", format!("{n} values: {MAX_LEN} at most")));
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

/// The modified Bessel function I0 of a number, by its power series.
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

/// The axes to transform as indices: those given, or the last ones for which there are sizes, or all.
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
