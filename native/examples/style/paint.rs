//! A run of the network, and how far pictures are from each other.

use super::pictures::Picture;
use gradloom::io::HostTensor;
use gradloom::{OnnxModel, Result};

/// Pixels of a side.
pub(crate) const SIDE: usize = 256;
pub(crate) const STYLES: usize = 26;

/// The middle of a picture as the network takes it, `[1, 3, 256, 256]` from 0 to 1.
pub(crate) fn values(picture: &Picture) -> Result<HostTensor> {
    let data: Vec<f32> = picture.covering(SIDE, SIDE).into_iter().map(|b| f32::from(b) / 255.0).collect();
    HostTensor::from_f32(vec![1, 3, SIDE, SIDE], &data)
}

/// The picture in these styles, each with the same weight: `3 * 256 * 256` values from 0 to 1.
pub(crate) fn paint(model: &mut OnnxModel, picture: &HostTensor, styles: &[usize]) -> Result<Vec<f64>> {
    let mut weights = vec![0f32; STYLES];
    for &style in styles {
        weights[style] = 1.0 / styles.len() as f32;
    }
    let weights = HostTensor::from_f32(vec![STYLES], &weights)?;
    let out = model.run(&[("image", picture.clone()), ("style_weights", weights)])?;
    Ok(out.first().map(|o| o.1.to_f64()).unwrap_or_default())
}

/// The largest difference; of pictures of other sizes, or of what is no number, as large as can be.
pub(crate) fn most(a: &[f64], b: &[f64]) -> f64 {
    let off = |(x, y): (&f64, &f64)| if (x - y).is_finite() { (x - y).abs() } else { f64::INFINITY };
    if a.len() == b.len() { a.iter().zip(b).map(off).fold(0.0, f64::max) } else { f64::INFINITY }
}

/// The mean difference.
pub(crate) fn mean(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).sum::<f64>() / a.len() as f64
}
