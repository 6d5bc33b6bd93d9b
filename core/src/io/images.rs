//! Reads files of image data sets: IDX (MNIST and similar sets, plain or gzipped) and CIFAR's binary files. Nothing is
//! allocated before the size was checked against the file's length.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{HostTensor, MAX_RANK, byte_count, zip};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The largest ratio of unpacked to packed size of a gzip file that is accepted above [`FREE_SIZE`]; pictures compress
/// far less.
const MAX_RATIO: u64 = 100;
/// Unpacked size in bytes up to which the ratio is not checked.
const FREE_SIZE: u64 = 64 << 20;

/// A tensor of an IDX file: `[count]` labels, `[count, rows, columns]` images. Gzipped files are unpacked.
///
/// # Errors
/// `E_FORMAT` for a file that is not in the IDX format, is cut short, or has bytes left over.
pub fn idx(file: &[u8]) -> Result<HostTensor> {
    let bad = |what: String| Error::format("idx", what, None);
    if file.starts_with(&[0x1f, 0x8b]) {
        return idx_plain(&gunzip(file).ok_or_else(|| bad("the gzip data is corrupt".into()))?);
    }
    idx_plain(file)
}

fn idx_plain(file: &[u8]) -> Result<HostTensor> {
    let bad = |what: String, at: usize| Error::format("idx", what, Some(at as u64));
    let (&[0, 0, code, rank], mut rest) =
        file.split_first_chunk::<4>().ok_or_else(|| bad("the file is too short".into(), 0))?
    else {
        return Err(bad("the file does not begin with two zero bytes".into(), 0));
    };
    let dtype = match code {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0b => DType::I16,
        0x0c => DType::I32,
        0x0d => DType::F32,
        0x0e => DType::F64,
        c => return Err(bad(format!("there is no element type {c:#04x}"), 2)),
    };
    if usize::from(rank) > MAX_RANK {
        return Err(bad(format!("{rank} axes are too many"), 3));
    }
    let mut shape = Vec::with_capacity(usize::from(rank));
    for _ in 0..rank {
        let (n, left) = rest.split_first_chunk::<4>().ok_or_else(|| bad("the sizes are cut short".into(), 4))?;
        shape.push(u32::from_be_bytes(*n) as usize);
        rest = left;
    }
    if byte_count(dtype, &shape) != Some(rest.len()) {
        return Err(bad(format!("{} bytes do not fill {dtype} {shape:?}", rest.len()), 4 + 4 * shape.len()));
    }
    let mut data = rest.to_vec();
    if dtype.size() > 1 {
        data.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    HostTensor::new(dtype, shape, data)
}

/// Unpacks a gzip file with a single member (RFC 1952).
fn gunzip(file: &[u8]) -> Option<Vec<u8>> {
    let (&[0x1f, 0x8b, 8, flags, ..], mut rest) = file.split_first_chunk::<10>()? else { return None };
    let skip_text = |rest: &mut &[u8]| -> Option<()> {
        let end = rest.iter().position(|&b| b == 0)?;
        *rest = rest.get(end + 1..)?;
        Some(())
    };
    if flags & 4 != 0 {
        let (n, left) = rest.split_first_chunk::<2>()?;
        rest = left.get(usize::from(u16::from_le_bytes(*n))..)?;
    }
    for text in [8, 16] {
        if flags & text != 0 {
            skip_text(&mut rest)?;
        }
    }
    if flags & 2 != 0 {
        rest = rest.get(2..)?;
    }
    let (packed, end) = rest.split_last_chunk::<8>()?;
    let size = u32::from_le_bytes(end.last_chunk::<4>().copied()?) as usize;
    if size as u64 > FREE_SIZE.max(packed.len() as u64 * MAX_RATIO) {
        return None;
    }
    let data = miniz_oxide::inflate::decompress_to_vec_with_limit(packed, size).ok()?;
    (data.len() == size && zip::crc32(&data).to_le_bytes() == *end.first_chunk::<4>()?).then_some(data)
}

/// Which of the CIFAR data sets a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cifar {
    /// 10 classes.
    Ten,
    /// 100 classes, which are grouped into 20 coarse classes.
    Hundred,
}

/// Images and their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// u8 `[count, channels, rows, columns]`.
    pub images: HostTensor,
    /// u8 `[count]`.
    pub labels: HostTensor,
}

/// The images of a CIFAR binary file, `[count, 3, 32, 32]`, with their labels (the fine ones for CIFAR-100).
///
/// # Errors
/// `E_FORMAT` for a file that does not consist of whole records, or has a label out of range.
pub fn cifar(file: &[u8], set: Cifar) -> Result<Labelled> {
    const PIXELS: usize = 3 * 32 * 32;
    let (labels, classes) = if set == Cifar::Ten { (1, 10) } else { (2, 100) };
    let record = PIXELS + labels;
    if file.len() % record != 0 {
        return Err(Error::format("cifar", format!("{} bytes are not records of {record}", file.len()), None));
    }
    let count = file.len() / record;
    let (mut pixels, mut names) = (Vec::with_capacity(count * PIXELS), Vec::with_capacity(count));
    for (i, r) in file.chunks_exact(record).enumerate() {
        let (head, image) = r.split_at(labels);
        let label = head.last().copied().unwrap_or_default();
        if label >= classes {
            let what = format!("image {i} is of class {label}, there are {classes}");
            return Err(Error::format("cifar", what, Some((i * record) as u64)));
        }
        names.push(label);
        pixels.extend_from_slice(image);
    }
    Ok(Labelled {
        images: HostTensor::new(DType::U8, vec![count, 3, 32, 32], pixels)?,
        labels: HostTensor::new(DType::U8, vec![count], names)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn idx_file() -> Vec<u8> {
        [&[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3][..], &[1, 2, 3, 4, 5, 6]].concat()
    }

    #[test]
    fn idx_files_are_read() {
        let t = idx(&idx_file()).unwrap();
        assert_eq!((t.dtype, t.shape.as_slice(), t.data), (DType::U8, &[2, 3][..], vec![1, 2, 3, 4, 5, 6]));
        let t = idx(&[0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 2, 0xff, 0xfe]).unwrap();
        assert_eq!(
            t,
            HostTensor::new(DType::I16, vec![2], [0x102i16, -2].iter().flat_map(|v| v.to_le_bytes()).collect())
                .unwrap()
        );
    }

    #[test]
    fn gzipped_idx_files_are_read() {
        let file = idx_file();
        let packed = miniz_oxide::deflate::compress_to_vec(&file, 6);
        let name = b"train\0";
        let head = [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];
        let size = (file.len() as u32).to_le_bytes();
        let gz = [&head[..], name, &packed, &zip::crc32(&file).to_le_bytes(), &size].concat();
        assert_eq!(idx(&gz).unwrap(), idx(&file).unwrap());
        // The check value of the specification.
        assert_eq!(zip::crc32(b"123456789"), 0xcbf4_3926);
        for cut in 0..gz.len() {
            assert!(idx(&gz[..cut]).is_err(), "cut at {cut}");
        }
        // Zeros beyond the free size, compressed by more than the accepted ratio.
        let zeros = vec![0; 65 << 20];
        let packed = miniz_oxide::deflate::compress_to_vec(&zeros, 6);
        let ends = [zip::crc32(&zeros).to_le_bytes(), (zeros.len() as u32).to_le_bytes()].concat();
        assert!(gunzip(&[&head[..], name, &packed, &ends].concat()).is_none());
        let mut wrong = gz.clone();
        let last = wrong.len() - 6;
        wrong[last] ^= 1;
        assert_eq!(idx(&wrong).unwrap_err().code(), "E_FORMAT");
    }

    #[test]
    fn broken_idx_files_are_errors() {
        let file = idx_file();
        for cut in 0..file.len() {
            assert_eq!(idx(&file[..cut]).unwrap_err().code(), "E_FORMAT", "cut at {cut}");
        }
        assert!(idx(&[&file[..], &[0]].concat()).is_err());
        // Sizes whose product overflows.
        let huge = [&[0, 0, 0x0e, 3][..], &[0xff; 12]].concat();
        assert_eq!(idx(&huge).unwrap_err().code(), "E_FORMAT");
        assert!(idx(&[0, 0, 7, 0]).is_err());
        assert!(idx(&[0, 0, 8, 255]).is_err());
    }

    #[test]
    fn cifar_files_are_read() {
        let record = |head: &[u8], v: u8| [head, &[v; 3072]].concat();
        let ten = cifar(&[record(&[3], 7), record(&[9], 8)].concat(), Cifar::Ten).unwrap();
        assert_eq!((ten.images.shape, ten.labels.data), (vec![2, 3, 32, 32], vec![3, 9]));
        assert_eq!((ten.images.data[0], ten.images.data[3072]), (7, 8));
        let hundred = cifar(&record(&[19, 99], 1), Cifar::Hundred).unwrap();
        assert_eq!(hundred.labels.data, [99]);
        assert_eq!(cifar(&record(&[10], 1), Cifar::Ten).unwrap_err().code(), "E_FORMAT");
        assert_eq!(cifar(&[0; 3072], Cifar::Ten).unwrap_err().code(), "E_FORMAT");
        assert_eq!(cifar(&[], Cifar::Ten).unwrap().labels.shape, [0]);
    }
}
