//! Loaders and writers: bytes in, tensors and graphs out. Pure functions over byte slices.
//!
//! This module never touches the file system, the network or a device: the caller reads the file and passes its bytes.
//! Files that a model refers to (external ONNX weights) are requested through [`onnx::ExternalData`], which only
//! callers implement.
//!
//! Every input is untrusted, so all loaders keep these rules: no panic, no recursion deeper than a stated limit, sizes
//! are checked in u64 against the length of the input *before* anything is allocated, and weights are not copied while
//! parsing (a tensor is a range of its file until its elements are requested).

pub(crate) mod bytes;
pub mod dataset;
pub mod gguf;
pub mod images;
pub mod json;
pub mod npy;
pub mod npz;
pub mod onnx;
pub mod protobuf;
pub mod safetensors;
pub mod tflite;
pub mod torch;
pub mod weights;
pub mod zip;

use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};

/// The largest rank a loader accepts.
pub const MAX_RANK: usize = 32;

/// A tensor on the host: little-endian elements in C order. Bool is one byte, 0 or 1.
#[derive(Clone, PartialEq, Debug)]
pub struct HostTensor {
    /// Element type.
    pub dtype: DType,
    /// Extent of each axis; empty for a scalar.
    pub shape: Vec<usize>,
    /// `dtype.size()` bytes for each element, C order.
    pub data: Vec<u8>,
}

/// Number of elements of a shape; `None` when the product of the nonzero extents overflows `usize`.
///
/// An extent of zero does not excuse absurd other extents: `[0, 2^60, 2^60]` is `None`, not 0.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    let nonzero = shape.iter().filter(|&&d| d != 0).try_fold(1usize, |n, &d| n.checked_mul(d))?;
    Some(if shape.contains(&0) { 0 } else { nonzero })
}

/// Size in bytes of a tensor of this dtype and shape; `None` when it exceeds `isize::MAX`.
pub fn byte_count(dtype: DType, shape: &[usize]) -> Option<usize> {
    element_count(shape)?.checked_mul(dtype.size()).filter(|&n| n <= isize::MAX as usize)
}

impl HostTensor {
    /// A tensor from bytes; an error unless their number is exactly what dtype and shape need.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Vec<u8>) -> Result<HostTensor> {
        if byte_count(dtype, &shape) != Some(data.len()) {
            let what = format!("{} bytes do not fill a {dtype} tensor of shape {shape:?}", data.len());
            return Err(Error::value("HostTensor", what));
        }
        Ok(HostTensor { dtype, shape, data })
    }

    /// A tensor of i64.
    pub fn from_i64(shape: Vec<usize>, values: &[i64]) -> Result<HostTensor> {
        HostTensor::new(DType::I64, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A tensor of f32.
    pub fn from_f32(shape: Vec<usize>, values: &[f32]) -> Result<HostTensor> {
        HostTensor::new(DType::F32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A tensor of any dtype from scalars already of that dtype.
    pub fn from_scalars(dtype: DType, shape: Vec<usize>, values: &[Scalar]) -> Result<HostTensor> {
        let mut data = vec![0u8; values.len() * dtype.size()];
        if dtype.size() > 0 {
            for (out, v) in data.chunks_exact_mut(dtype.size()).zip(values) {
                v.write(dtype, out);
            }
        }
        HostTensor::new(dtype, shape, data)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size().max(1)
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The elements in C order.
    pub fn scalars(&self) -> impl ExactSizeIterator<Item = Scalar> + '_ {
        self.data.chunks_exact(self.dtype.size().max(1)).map(|b| Scalar::read(self.dtype, b))
    }

    /// The elements as i64; floats are truncated towards zero and saturate.
    pub fn to_i64(&self) -> Vec<i64> {
        self.scalars().map(|s| s.cast(self.dtype, DType::I64).as_i64()).collect()
    }

    /// The elements as f64.
    pub fn to_f64(&self) -> Vec<f64> {
        self.scalars().map(|s| s.as_f64_of(self.dtype)).collect()
    }

    /// Every element converted with the rules of [`Scalar::cast`].
    pub fn cast(&self, to: DType) -> HostTensor {
        if to == self.dtype {
            return self.clone();
        }
        let mut data = vec![0u8; self.len() * to.size()];
        for (out, s) in data.chunks_exact_mut(to.size().max(1)).zip(self.scalars()) {
            s.cast(self.dtype, to).write(to, out);
        }
        HostTensor { dtype: to, shape: self.shape.clone(), data }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers for parser tests: truncation at every offset and seeded mutation.

    /// A deterministic linear congruential generator.
    pub(crate) struct Lcg(pub(crate) u64);

    impl Lcg {
        pub(crate) fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as u32
        }

        pub(crate) fn below(&mut self, n: usize) -> usize {
            self.next() as usize % n.max(1)
        }
    }

    /// Runs `parse` on `rounds` mutated copies (bit flips, byte writes, deletions, duplications). `parse` may return
    /// errors but must not panic.
    pub(crate) fn mutate(bytes: &[u8], rounds: usize, mut parse: impl FnMut(&[u8])) {
        let mut rng = Lcg(bytes.len() as u64);
        for _ in 0..rounds {
            let mut m = bytes.to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(m.len());
                match rng.below(5) {
                    0 => m[at] ^= 1 << rng.below(8),
                    1 => m[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
                    2 => drop(m.drain(at..(at + 1 + rng.below(8)).min(m.len()))),
                    3 => {
                        let piece = m[at..(at + 1 + rng.below(8)).min(m.len())].to_vec();
                        m.splice(at..at, piece);
                    }
                    _ => m[at] = rng.next() as u8,
                }
                if m.is_empty() {
                    break;
                }
            }
            parse(&m);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_counts_do_not_overflow() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(element_count(&[2, 0, 3]), Some(0));
        assert_eq!(element_count(&[usize::MAX, 2]), None);
        assert_eq!(element_count(&[0, usize::MAX, 2]), None);
        assert_eq!(byte_count(DType::F64, &[usize::MAX / 8]), None);
        assert!(HostTensor::new(DType::F32, vec![2], vec![0; 7]).is_err());
    }

    #[test]
    fn host_tensors_convert() {
        let t = HostTensor::from_f32(vec![3], &[1.5, -2.5, f32::NAN]).unwrap();
        assert_eq!(t.to_i64(), [1, -2, 0]);
        assert_eq!(t.cast(DType::F16).to_f64()[..2], [1.5, -2.5]);
        assert_eq!(t.cast(DType::Bool).data, [1, 1, 1]);
    }
}
