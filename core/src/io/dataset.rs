//! Data sets, and the order in which training reads their examples. This module is synchronous; `gradloom::data`
//! prefetches batches on threads.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::HostTensor;
use crate::error::{Error, Result};
use crate::tensor::threefry2x32;

/// Examples that are accessed by index, several at once.
pub trait Dataset {
    /// Number of examples.
    fn len(&self) -> usize;

    /// True if there are no examples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The examples with these indices: for each part of an example (image, label) one tensor whose first axis counts
    /// the examples.
    ///
    /// # Errors
    /// `E_VALUE` for an index out of range, and whatever error reading an example gives.
    fn batch(&self, rows: &[usize]) -> Result<Vec<HostTensor>>;
}

/// Tensors in memory whose first axes count the examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrays {
    parts: Vec<HostTensor>,
    len: usize,
}

impl Arrays {
    /// One tensor for each part of an example.
    ///
    /// # Errors
    /// `E_VALUE` if there is none, or if their first axes differ.
    pub fn new(parts: Vec<HostTensor>) -> Result<Arrays> {
        let counts: Vec<Option<usize>> = parts.iter().map(|t| t.shape.first().copied()).collect();
        match counts.first() {
            Some(&Some(len)) if counts.iter().all(|c| *c == Some(len)) => Ok(Arrays { parts, len }),
            _ => Err(Error::value("dataset", format!("the parts have {counts:?} examples"))),
        }
    }
}

impl Dataset for Arrays {
    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, rows: &[usize]) -> Result<Vec<HostTensor>> {
        let mut out = Vec::with_capacity(self.parts.len());
        for t in &self.parts {
            let size = t.data.len() / self.len.max(1);
            let mut data = Vec::with_capacity(size * rows.len());
            for &row in rows {
                let example = (row < self.len).then(|| t.data.get(row * size..(row + 1) * size)).flatten();
                let missing = || Error::value("dataset", format!("there is no example {row} of {}", self.len));
                data.extend_from_slice(example.ok_or_else(missing)?);
            }
            let mut shape = t.shape.clone();
            if let Some(first) = shape.first_mut() {
                *first = rows.len();
            }
            out.push(HostTensor::new(t.dtype, shape, data)?);
        }
        Ok(out)
    }
}

/// How examples are grouped into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOpts {
    /// Examples in a batch, at least 1.
    pub size: usize,
    /// A seed for a new random order in each epoch; `None` keeps the order of the data set.
    pub shuffle: Option<u64>,
    /// True to omit the last batch if it is not full.
    pub drop_last: bool,
}

impl BatchOpts {
    /// Batches of this size, in the data set's order; the last one may be smaller.
    pub fn new(size: usize) -> BatchOpts {
        BatchOpts { size, shuffle: None, drop_last: false }
    }

    /// The indices of the examples in each batch of an epoch.
    pub fn epoch(&self, len: usize, epoch: u32) -> Vec<Vec<usize>> {
        let order = match self.shuffle {
            Some(seed) => shuffled(len, seed, epoch),
            None => (0..len).collect(),
        };
        let size = self.size.max(1);
        let full = |b: &&[usize]| !self.drop_last || b.len() == size;
        order.chunks(size).filter(full).map(<[usize]>::to_vec).collect()
    }
}

/// The numbers below `len` in a random order that depends on seed and epoch alone: the same on every host.
pub fn shuffled(len: usize, seed: u64, epoch: u32) -> Vec<usize> {
    let key = threefry2x32([(seed >> 32) as u32, seed as u32], [0, epoch]);
    let mut order: Vec<usize> = (0..len).collect();
    // Fisher-Yates shuffle, from the end.
    for i in (1..len).rev() {
        let [a, b] = threefry2x32(key, [(i as u64 >> 32) as u32, i as u32]);
        let bits = u64::from(a) << 32 | u64::from(b);
        // The high word of bits * (i + 1); the bias is below 2^-32 for any set that fits in memory.
        let j = (u128::from(bits) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn epochs_cover_every_example_once() {
        let opts = BatchOpts { size: 4, shuffle: Some(7), drop_last: false };
        let (first, again, second) = (opts.epoch(10, 0), opts.epoch(10, 0), opts.epoch(10, 1));
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(first, again);
        assert_ne!(first, second);
        let mut all = second.concat();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        let opts = BatchOpts { drop_last: true, shuffle: None, ..opts };
        assert_eq!(opts.epoch(10, 3), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert!(BatchOpts::new(0).epoch(0, 0).is_empty());
    }

    #[test]
    fn shuffles_are_even() {
        // The position of example 0 over many epochs.
        let mut counts = [0; 5];
        for epoch in 0..5000 {
            counts[shuffled(5, 1, epoch).iter().position(|&x| x == 0).unwrap()] += 1;
        }
        assert!(counts.iter().all(|c| (900..1100).contains(c)), "{counts:?}");
    }

    #[test]
    fn batches_gather_rows() {
        let x = HostTensor::new(DType::U8, vec![3, 2], vec![1, 2, 3, 4, 5, 6]).unwrap();
        let y = HostTensor::from_i64(vec![3], &[10, 20, 30]).unwrap();
        let set = Arrays::new(vec![x.clone(), y]).unwrap();
        let batch = set.batch(&[2, 0]).unwrap();
        assert_eq!((batch[0].shape.as_slice(), batch[0].data.as_slice()), (&[2, 2][..], &[5, 6, 1, 2][..]));
        assert_eq!(batch[1], HostTensor::from_i64(vec![2], &[30, 10]).unwrap());
        assert_eq!(set.batch(&[3]).unwrap_err().code(), "E_VALUE");
        assert_eq!(
            Arrays::new(vec![x, HostTensor::from_i64(vec![2], &[1, 2]).unwrap()]).unwrap_err().code(),
            "E_VALUE"
        );
        assert_eq!(Arrays::new(vec![]).unwrap_err().code(), "E_VALUE");
    }
}
