//! Pictures of examples: PNG and JPEG files in, PNG files out.

use gradloom::image_folder::{Image, decode};
use gradloom::model::read_file;
use gradloom::{Error, Result};
use std::path::Path;

/// RGB pixels, row by row.
pub(crate) type Picture = Image;

fn bad(path: &Path, what: String) -> Error {
    Error::Input { name: path.display().to_string(), what }
}

/// A PNG or JPEG file.
///
/// # Errors
/// `E_INPUT` for one that cannot be read.
pub(crate) fn read(path: &Path) -> Result<Picture> {
    decode(&read_file(path)?).map_err(|e| bad(path, e))
}

/// Writes a PNG file.
///
/// # Errors
/// `E_INPUT` where that fails.
pub(crate) fn write(path: &Path, picture: &Picture) -> Result<()> {
    let file = std::fs::File::create(path).map_err(|e| bad(path, e.to_string()))?;
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), picture.width as u32, picture.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let done = encoder.write_header().and_then(|mut w| w.write_image_data(&picture.pixels).and_then(|()| w.finish()));
    done.map_err(|e| bad(path, e.to_string()))
}

/// The picture of `[3, rows, columns]` values from 0 to 1.
pub(crate) fn picture(values: &[f32], height: usize, width: usize) -> Picture {
    let n = width * height;
    let pixels = (0..n).flat_map(|at| [0, 1, 2].map(|c| (values[c * n + at] * 255.0).round().clamp(0.0, 255.0) as u8));
    Picture { width, height, pixels: pixels.collect() }
}
