//! Quantises f32 elements to blocks of ggml's types; [`super::decode`] is the inverse. Blocks are those of the elements in
//! order, so the length of a matrix' rows must be a multiple of a block's.
#![deny(clippy::unwrap_used)]

use super::err;
use crate::error::{Error, Result};
use half::f16;

/// The error of elements that are no whole number of blocks.
fn uneven(values: &[f32], block: usize) -> Error {
    err(format!("{} elements are no whole number of blocks of {block}", values.len()))
}

/// Quantises f32 elements to Q8_0 blocks; their number must be a multiple of 32. Rounds halves away from zero, as ggml
/// does.
pub fn quantize_q8_0(values: &[f32]) -> Result<Vec<u8>> {
    let (blocks, rest) = values.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(uneven(values, 32));
    }
    let mut out = Vec::with_capacity(blocks.len() * 34);
    for b in blocks {
        let d = b.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out.extend(f16::from_f32(d).to_le_bytes());
        out.extend(b.iter().map(|x| (x * inverse).round() as i8 as u8));
    }
    Ok(out)
}

/// Quantises f32 elements to Q4_0 blocks; their number must be a multiple of 32. The element of largest magnitude in a
/// block becomes code -8, as in ggml.
pub fn quantize_q4_0(values: &[f32]) -> Result<Vec<u8>> {
    let (blocks, rest) = values.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(uneven(values, 32));
    }
    let mut out = Vec::with_capacity(blocks.len() * 18);
    for b in blocks {
        let largest = b.iter().fold(0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
        let d = largest / -8.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out.extend(f16::from_f32(d).to_le_bytes());
        // The sum is at least 0.5, so the conversion to u8 only saturates at 0 for NaN.
        let code = |x: &f32| ((x * inverse + 8.5) as u8).min(15);
        let (low, high) = b.split_at(16);
        out.extend(low.iter().zip(high).map(|(l, h)| code(l) | code(h) << 4));
    }
    Ok(out)
}

/// The largest code of Q4_K, and the largest factor of one of its groups.
const MOST_CODE: f32 = 15.0;
const MOST_FACTOR: f32 = 63.0;
/// How much wider or narrower than the range of its elements, in codes, the steps of a group are tried.
const TRIALS: [f32; 9] = [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0];

/// A group of 32 elements as `scale * code - min`, with `min` not negative.
#[derive(Clone, Copy, Default)]
struct Fit {
    scale: f32,
    min: f32,
}

impl Fit {
    fn code(self, x: f32) -> f32 {
        // A conversion of NaN to an integer gives 0
        if self.scale > 0.0 { ((x + self.min) / self.scale).round().clamp(0.0, MOST_CODE) } else { 0.0 }
    }

    /// The weighted sum of squared errors.
    fn error(self, x: &[f32; 32], weights: &[f32; 32]) -> f32 {
        let one = |(x, w): (&f32, &f32)| w * (self.scale * self.code(*x) - self.min - x).powi(2);
        x.iter().zip(weights).map(one).sum()
    }

    /// The best scale and minimum for the codes that elements have now: linear regression.
    fn refined(self, x: &[f32; 32], weights: &[f32; 32]) -> Fit {
        let [mut w, mut q, mut qq, mut y, mut yq] = [0f32; 5];
        for (x, weight) in x.iter().zip(weights) {
            let code = self.code(*x);
            w += weight;
            q += weight * code;
            qq += weight * code * code;
            y += weight * x;
            yq += weight * x * code;
        }
        let (det, base) = (w * qq - q * q, qq * y - q * yq);
        match det > 0.0 && base <= 0.0 {
            true => Fit { scale: (w * yq - q * y) / det, min: -base / det },
            // No element is below zero
            false if qq > 0.0 => Fit { scale: yq / qq, min: 0.0 },
            false => self,
        }
    }

    fn of(x: &[f32; 32], weights: &[f32; 32]) -> Fit {
        let (low, high) = x.iter().fold((0f32, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
        if high <= low {
            return Fit { scale: 0.0, min: -low };
        }
        let mut best = (f32::INFINITY, Fit::default());
        for wider in TRIALS {
            let mut fit = Fit { scale: (high - low) / (MOST_CODE + wider), min: -low };
            for _ in 0..2 {
                let error = fit.error(x, weights);
                if error < best.0 {
                    best = (error, fit);
                }
                fit = fit.refined(x, weights);
            }
            let error = fit.error(x, weights);
            if error < best.0 && fit.scale >= 0.0 {
                best = (error, fit);
            }
        }
        best.1
    }
}

/// How much the error of each element of a group counts: large ones matter more, as they change products more.
fn weights_of(x: &[f32; 32]) -> [f32; 32] {
    let root = (x.iter().map(|x| x * x).sum::<f32>() / 32.0).sqrt();
    x.map(|x| root + x.abs())
}

/// The factors of a group's scale and minimum, in these units: those of its fit rounded, or their neighbours where these have a
/// lesser error.
fn factors_of(x: &[f32; 32], weights: &[f32; 32], fit: Fit, units: Fit) -> [u8; 2] {
    let rounded = |value: f32, unit: f32| if unit > 0.0 { (value / unit).round() } else { 0.0 };
    let (scale, min) = (rounded(fit.scale, units.scale), rounded(fit.min, units.min));
    let mut best = (f32::INFINITY, [0; 2]);
    for ds in [0.0, -1.0, 1.0] {
        for dm in [0.0, -1.0, 1.0] {
            let [s, m] = [scale + ds, min + dm].map(|f: f32| f.clamp(0.0, MOST_FACTOR));
            let error = Fit { scale: units.scale * s, min: units.min * m }.error(x, weights);
            if error < best.0 {
                best = (error, [s as u8, m as u8]);
            }
        }
    }
    best.1
}

/// Quantises f32 elements to Q4_K blocks; their number must be a multiple of 256. The scale and the minimum of each group of
/// 32 elements are those with the least squared error that a few trials and a regression find, stored as the factors with
/// the least error among those near them.
pub fn quantize_q4_k(values: &[f32]) -> Result<Vec<u8>> {
    let (blocks, rest) = values.as_chunks::<256>();
    if !rest.is_empty() {
        return Err(uneven(values, 256));
    }
    let mut out = Vec::with_capacity(blocks.len() * 144);
    for b in blocks {
        let groups = b.as_chunks::<32>().0;
        let fits: Vec<(&[f32; 32], [f32; 32], Fit)> = groups
            .iter()
            .map(|x| {
                let weights = weights_of(x);
                (x, weights, Fit::of(x, &weights))
            })
            .collect();
        // Scales and minima of groups are integers times those of the block
        let most = |of: fn(&Fit) -> f32| fits.iter().map(|f| of(&f.2)).fold(0f32, f32::max);
        let [d, dmin] = [most(|f| f.scale), most(|f| f.min)].map(|m| f16::from_f32(m / MOST_FACTOR));
        let units = Fit { scale: d.to_f32(), min: dmin.to_f32() };
        let factors: Vec<[u8; 2]> = fits.iter().map(|(x, w, fit)| factors_of(x, w, *fit, units)).collect();
        let [scales, mins] = [0, 1].map(|i| factors.iter().map(|f| f[i]).collect::<Vec<u8>>());
        out.extend(d.to_le_bytes());
        out.extend(dmin.to_le_bytes());
        // Six bits each: the first four scales, the first four minima, and then the lower halves of the others, whose
        // upper bits are in the first eight bytes
        let high = |i: usize, list: &[u8]| list[i] | list[i + 4] >> 4 << 6;
        out.extend((0..4).map(|i| high(i, &scales)));
        out.extend((0..4).map(|i| high(i, &mins)));
        out.extend((4..8).map(|i| scales[i] & 15 | mins[i] << 4));
        let stored = scales.iter().zip(&mins);
        let stored: Vec<Fit> =
            stored.map(|(s, m)| Fit { scale: units.scale * f32::from(*s), min: units.min * f32::from(*m) }).collect();
        for (pair, fits) in groups.as_chunks::<2>().0.iter().zip(stored.as_chunks::<2>().0) {
            let [low, high] = [0, 1].map(|i| pair[i].map(|x| fits[i].code(x) as u8));
            out.extend(low.iter().zip(&high).map(|(l, h)| l | h << 4));
        }
    }
    Ok(out)
}
