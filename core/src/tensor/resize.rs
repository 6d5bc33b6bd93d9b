//! Interpolation of the last axes. Each axis is resampled by itself: nearest modes select elements by index, linear and
//! cubic ones blend neighbours that are selected by index. The source coordinates are computed on the host in f64, so
//! that every device uses the same ones.

use super::Tensor;
use crate::{DType, Error, Result};

/// How values between samples are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolate {
    /// The sample at `floor` of the source coordinate.
    Nearest,
    /// The nearest sample, halves rounding down (ONNX's `round_prefer_floor`).
    NearestRound,
    /// The sample whose pixel holds the source coordinate (torch's nearest-exact).
    NearestExact,
    /// Linear interpolation along each axis.
    Linear,
    /// Cubic convolution with this coefficient (torch -0.75, ONNX default -0.75).
    Cubic(f64),
}

impl Tensor {
    /// Resizes the last `sizes.len()` axes to `sizes`, as torch's `interpolate`: nearest takes the element
    /// `floor(i * in/out)`; linear and cubic place samples at the centres of pixels, or with `align_corners` at their
    /// corners. Linear and cubic give floats. `Error::Value` for sizes of 0.
    pub fn interpolate(&self, sizes: &[usize], how: Interpolate, align_corners: bool) -> Result<Tensor> {
        let shape = self.shape();
        let d = sizes.len();
        if d > shape.len() || sizes.contains(&0) || shape[shape.len() - d..].contains(&0) {
            return Err(Error::value("interpolate", format!("sizes {sizes:?} for shape {shape:?}")));
        }
        let mut t = self.clone();
        for (i, &out) in sizes.iter().enumerate() {
            super::check_host(out)?;
            let axis = shape.len() - d + i;
            let n = shape[axis];
            let scale = n as f64 / out as f64;
            let at = |o: usize| match how {
                Interpolate::Nearest | Interpolate::NearestRound => o as f64 * scale,
                Interpolate::NearestExact => (o as f64 + 0.5) * scale,
                _ if align_corners && out > 1 => o as f64 * (n - 1) as f64 / (out - 1) as f64,
                _ if align_corners => 0.0,
                _ => (o as f64 + 0.5) * scale - 0.5,
            };
            t = t.resample(axis as i64, &(0..out).map(at).collect::<Vec<_>>(), how, true)?;
        }
        Ok(t)
    }

    /// Resamples one axis at the given source coordinates; those outside take the border samples. With `clamp_low`,
    /// linear coordinates below 0 become 0 before blending, as in torch. `Error::Value` for an empty axis and for
    /// coordinates that are not finite.
    pub fn resample(&self, axis: i64, at: &[f64], how: Interpolate, clamp_low: bool) -> Result<Tensor> {
        let n = self.dim(axis)? as i64;
        if n == 0 || at.iter().any(|c| !c.is_finite()) {
            return Err(Error::value("resample", format!("an axis of size {n} at bad coordinates")));
        }
        let pick = |t: &Tensor, index: Vec<i64>| -> Result<Tensor> {
            t.take_at(axis, &index.into_iter().map(|i| i.clamp(0, n - 1) as usize).collect::<Vec<_>>())
        };
        match how {
            Interpolate::Nearest | Interpolate::NearestExact => {
                pick(self, at.iter().map(|c| c.floor() as i64).collect())
            }
            Interpolate::NearestRound => pick(self, at.iter().map(|c| (c - 0.5).ceil() as i64).collect()),
            Interpolate::Linear => {
                let x = self.to_float()?;
                let at: Vec<f64> = at.iter().map(|&c| if clamp_low { c.max(0.0) } else { c }).collect();
                let low: Vec<i64> = at.iter().map(|c| c.floor() as i64).collect();
                let frac: Vec<f64> = at.iter().map(|c| c - c.floor()).collect();
                if frac.iter().all(|&f| f == 0.0) {
                    return pick(&x, low);
                }
                let rest: Vec<f64> = frac.iter().map(|f| 1.0 - f).collect();
                let a = pick(&x, low.clone())?.weighted(axis, &rest)?;
                a.add(pick(&x, low.iter().map(|l| l + 1).collect())?.weighted(axis, &frac)?)
            }
            Interpolate::Cubic(coefficient) => {
                let x = self.to_float()?;
                let low: Vec<i64> = at.iter().map(|c| c.floor() as i64).collect();
                let mut sum = None::<Tensor>;
                for tap in -1..=2i64 {
                    let weights: Vec<f64> = at.iter().map(|c| cubic(c - c.floor() - tap as f64, coefficient)).collect();
                    let part = pick(&x, low.iter().map(|l| l + tap).collect())?.weighted(axis, &weights)?;
                    sum = Some(sum.map_or(Ok(part.clone()), |s| s.add(&part))?);
                }
                sum.ok_or_else(|| Error::Internal("a cubic has four taps".into()))
            }
        }
    }

    /// Multiplies each element of an axis by its weight; a weight of zero gives 0 even for an infinity.
    fn weighted(&self, axis: i64, weights: &[f64]) -> Result<Tensor> {
        let along = self.along(axis, weights)?;
        let x = if weights.contains(&0.0) { along.ne(0)?.select(self, 0)? } else { self.clone() };
        x.mul(along)
    }

    /// A constant with these numbers along one axis, shaped to broadcast against this tensor.
    fn along(&self, axis: i64, values: &[f64]) -> Result<Tensor> {
        let rank = self.rank();
        let mut shape = vec![1; rank];
        shape[super::check_axis("resample", axis, rank)?] = values.len();
        if self.dtype() == DType::F64 {
            return Tensor::new(self.session(), values, &shape);
        }
        // rounded to f32 on the host, since a device may have no f64
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        Tensor::new(self.session(), &values, &shape)?.cast(self.dtype())
    }
}

/// Keys' cubic convolution kernel.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    match x {
        x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * a,
        _ => 0.0,
    }
}
