//! Folders of images as a data set: each subfolder is a class and has PNG and JPEG files. Images are read
//! when a batch needs them.

use crate::contain::contain;
use crate::model::read_regular;
use gradloom_core::io::HostTensor;
use gradloom_core::io::dataset::Dataset;
use gradloom_core::{DType, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The largest side of an image in pixels.
const MAX_SIDE: usize = 1 << 14;

/// Images in one folder per class, scaled to cover the given size and cropped to it: u8 `[n, 3, rows,
/// columns]`, and i64 classes `[n]`.
pub struct ImageFolder {
    /// Names of the classes, in the order of their numbers.
    pub classes: Vec<String>,
    files: Vec<(PathBuf, i64)>,
    rows: usize,
    columns: usize,
}

impl ImageFolder {
    /// Lists the files. Classes and files are in the order of their names; names that begin with a dot are skipped.
    ///
    /// # Errors
    /// `E_INPUT` for a folder that cannot be read, `E_VALUE` for a size of 0 or for no images.
    pub fn open(folder: &Path, rows: usize, columns: usize) -> Result<ImageFolder> {
        if !(1..=MAX_SIDE).contains(&rows) || !(1..=MAX_SIDE).contains(&columns) {
            return Err(Error::value("images", format!("a size of {rows} x {columns}")));
        }
        let mut classes = Vec::new();
        let mut files = Vec::new();
        for class in sorted(folder)?.into_iter().filter(|p| p.is_dir()) {
            let number = classes.len() as i64;
            classes.push(class.file_name().unwrap_or_default().to_string_lossy().into_owned());
            let is_image = |p: &PathBuf| {
                let end = p.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
                ["png", "jpg", "jpeg"].contains(&end.as_str())
            };
            files.extend(sorted(&class)?.into_iter().filter(is_image).map(|p| (p, number)));
        }
        if files.is_empty() {
            return Err(Error::value("images", format!("no images in folders of {}", folder.display())));
        }
        Ok(ImageFolder { classes, files, rows, columns })
    }
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let bad = |e: std::io::Error| Error::Input { name: folder.display().to_string(), what: e.to_string() };
    let mut list =
        fs::read_dir(folder).map_err(bad)?.map(|e| Ok(e.map_err(bad)?.path())).collect::<Result<Vec<_>>>()?;
    // Files that editors and version control keep there are neither classes nor images
    list.retain(|p| !p.file_name().unwrap_or_default().as_encoded_bytes().starts_with(b"."));
    list.sort_unstable();
    Ok(list)
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn batch(&self, rows: &[usize]) -> Result<Vec<HostTensor>> {
        let mut pixels = Vec::new();
        let mut labels = Vec::with_capacity(rows.len());
        for &row in rows {
            let missing = || Error::value("images", format!("there is no image {row} of {}", self.files.len()));
            let (path, class) = self.files.get(row).ok_or_else(missing)?;
            let in_file = |what: String| Error::Input { name: path.display().to_string(), what };
            let image = contain(|| decode(&read_regular(path)?).map_err(in_file))?;
            pixels.extend(image.covering(self.rows, self.columns));
            labels.push(*class);
        }
        let shape = vec![rows.len(), 3, self.rows, self.columns];
        Ok(vec![HostTensor::new(DType::U8, shape, pixels)?, HostTensor::from_i64(vec![rows.len()], &labels)?])
    }
}

/// RGB pixels, row by row.
#[derive(Debug, PartialEq)]
pub struct Image {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `3 * width * height` bytes.
    pub pixels: Vec<u8>,
}

/// Decodes a PNG or JPEG image. Grey images become RGB; transparency is dropped.
///
/// # Errors
/// The reason why the file cannot be decoded.
pub fn decode(file: &[u8]) -> std::result::Result<Image, String> {
    if file.starts_with(b"\x89PNG") { decode_png(file) } else { decode_jpeg(file) }
}

fn decode_png(file: &[u8]) -> std::result::Result<Image, String> {
    let limits = png::Limits { bytes: 3 * MAX_SIDE * MAX_SIDE };
    let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(file), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    small(width, height)?;
    let mut data = vec![0; reader.output_buffer_size().ok_or("a size that overflows")?];
    let info = reader.next_frame(&mut data).map_err(|e| e.to_string())?;
    data.truncate(info.buffer_size());
    let channels = info.color_type.samples();
    let pixels = match channels {
        3 => data,
        4 => data.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect(),
        n => data.chunks_exact(n).flat_map(|p| [p[0]; 3]).collect(),
    };
    Ok(Image { width, height, pixels })
}

fn decode_jpeg(file: &[u8]) -> std::result::Result<Image, String> {
    use zune_jpeg::zune_core::{colorspace::ColorSpace, options::DecoderOptions};
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(file, options);
    let pixels = decoder.decode().map_err(|e| format!("{e:?}"))?;
    let (width, height) = decoder.dimensions().ok_or("the file says no size")?;
    small(width, height)?;
    let pixels = match pixels.len() / (width * height) {
        3 => pixels,
        // Some grey images are not converted by the decoder
        1 => pixels.into_iter().flat_map(|p| [p; 3]).collect(),
        n => return Err(format!("{n} bytes a pixel")),
    };
    if pixels.len() == 3 * width * height {
        Ok(Image { width, height, pixels })
    } else {
        Err("pixels are missing".into())
    }
}

fn small(width: usize, height: usize) -> std::result::Result<(), String> {
    let fits = |n: usize| (1..=MAX_SIDE).contains(&n);
    if fits(width) && fits(height) { Ok(()) } else { Err(format!("a size of {width} x {height}")) }
}

impl Image {
    /// Scales the image so that it covers the given size, and crops to its middle; channels first: `[3,
    /// rows, columns]`.
    pub fn covering(&self, rows: usize, columns: usize) -> Vec<u8> {
        let scale = (rows as f64 / self.height as f64).max(columns as f64 / self.width as f64);
        let (down, across) = (taps(self.height, rows, scale), taps(self.width, columns, scale));
        let mut out = vec![0; 3 * rows * columns];
        let mut line = vec![0f32; 3 * self.width];
        for (y, (top, weights)) in down.iter().enumerate() {
            line.fill(0.0);
            for (i, w) in weights.iter().enumerate() {
                let row = &self.pixels[(top + i) * 3 * self.width..][..3 * self.width];
                line.iter_mut().zip(row).for_each(|(sum, &p)| *sum += w * f32::from(p));
            }
            for (x, (left, weights)) in across.iter().enumerate() {
                for c in 0..3 {
                    let sum: f32 = weights.iter().enumerate().map(|(i, w)| w * line[3 * (left + i) + c]).sum();
                    out[(c * rows + y) * columns + x] = sum.round().clamp(0.0, 255.0) as u8;
                }
            }
        }
        out
    }
}

/// The filter for resampling an axis of `from` pixels by `scale`, cropped in the middle to `to` pixels: for each result
/// the first pixel that it reads, and the weights from there on. Linear between pixels when enlarging; when reducing,
/// over all pixels that become one.
fn taps(from: usize, to: usize, scale: f64) -> Vec<(usize, Vec<f32>)> {
    let reach = (1.0 / scale).max(1.0);
    let offset = (from as f64 * scale - to as f64) / 2.0;
    let tap = |i: usize| {
        let centre = (i as f64 + 0.5 + offset) / scale;
        let first = ((centre - reach).ceil().max(0.0) as usize).min(from - 1);
        let last = ((centre + reach).ceil() as usize).clamp(first + 1, from);
        let weight = |p: usize| (1.0 - (p as f64 + 0.5 - centre).abs() / reach).max(0.0);
        let raw: Vec<f64> = (first..last).map(weight).collect();
        let sum: f64 = raw.iter().sum();
        match sum > 0.0 {
            true => (first, raw.iter().map(|w| (w / sum) as f32).collect()),
            false => (first, vec![1.0]),
        }
    };
    (0..to).map(tap).collect()
}
