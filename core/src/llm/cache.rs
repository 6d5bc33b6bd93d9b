//! The KV cache of a layer: what is written to it and how it is read. In f32, in f16, or as bytes with a factor for each
//! head of each row (i8). Attention of one token applies the factors to whole scores and weights, so that it multiplies with
//! the bytes themselves; for several tokens the rows of a text are made floats first, which all of them read.
//!
//! A text has as many rows as it has room for tokens, in layers with an attention window at most some more than its window:
//! there the rows are a ring, in which a token takes the place of one that is a whole number of turns before it.

use super::DESKTOP;
use super::config::Config;
use super::context::Texts;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{Session, Tensor};

/// The largest byte.
const MOST: f64 = 127.0;

/// The keys and values of one layer.
pub(super) struct Cache {
    /// `[heads, width, rows]`, so that the keys which one query is multiplied with are contiguous.
    keys: Tensor,
    /// `[heads, rows, width]`.
    values: Tensor,
    /// Of bytes, what they are multiplied with: the keys', then the values', `[heads, rows]` each.
    scales: Option<[Tensor; 2]>,
    /// The rows of each text.
    room: usize,
}

/// The rows of a cache that some queries attend to. Dimensions before the last two are `[heads]`, or `[texts, heads]`
/// where each query has a text of its own.
pub(super) struct Rows {
    /// `[.., width, rows]`.
    pub(super) keys: Tensor,
    /// `[.., rows, width]`.
    pub(super) values: Tensor,
    /// What scores, and then weights, are multiplied with: `[.., 1, rows]`.
    pub(super) scales: Option<[Tensor; 2]>,
}

impl Cache {
    /// Zeros for so many texts with `room` rows each.
    ///
    /// # Errors
    /// `E_DTYPE` for another dtype than f32, f16 and i8.
    pub(super) fn new(session: &Session, c: &Config, texts: usize, room: usize, dtype: DType) -> Result<Cache> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::I8) {
            return Err(Error::DType { op: "keys and values", dtype, why: "f32, f16 or i8 is wanted".into() });
        }
        let (heads, width, rows) = (c.kv_heads, c.head_width, texts * room);
        let zeros = |dtype: DType, shape: &[usize]| Tensor::zeros(session, dtype, shape)?.to_storage();
        let scale = || zeros(DType::F32, &[heads, rows]);
        Ok(Cache {
            keys: zeros(dtype, &[heads, width, rows])?,
            values: zeros(dtype, &[heads, rows, width])?,
            scales: if dtype == DType::I8 { Some([scale()?, scale()?]) } else { None },
            room,
        })
    }

    /// The dtype of its elements.
    pub(super) fn dtype(&self) -> DType {
        self.keys.dtype()
    }

    /// All its buffers.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.keys, &self.values].into_iter().chain(self.scales.iter().flatten())
    }

    /// Writes keys and values `[heads, n, width]` to these rows `[n]`.
    pub(super) fn write(&self, rows: &Tensor, k: &Tensor, v: &Tensor) -> Result<()> {
        // With several tokens the rotated keys are stored first, so that what remains is a plain transposition
        let k = if k.dim(1)? > 1 || self.scales.is_some() { k.contiguous() } else { k.clone() };
        let Some([of_keys, of_values]) = &self.scales else {
            self.keys.assign_at(2, rows, k.t()?.cast(self.dtype())?)?;
            return self.values.assign_at(1, rows, v.cast(self.dtype())?);
        };
        let (k, most) = quantised(&k)?;
        self.keys.assign_at(2, rows, k.t()?)?;
        of_keys.assign_at(1, rows, most)?;
        let (v, most) = quantised(&v.contiguous())?;
        self.values.assign_at(1, rows, v)?;
        of_values.assign_at(1, rows, most)
    }

    /// The rows of the texts that the `n` tokens of a chunk belong to.
    pub(super) fn read(&self, texts: &Texts, n: usize) -> Result<Rows> {
        let rows = match texts {
            Texts::Each(_) if DESKTOP => return self.of_each(n),
            Texts::From(which) if DESKTOP => {
                let from = which.mul(self.room)?;
                self.part(|t, axis| t.narrow_at(axis, &from, self.room))
            }
            _ => self.part(|t, _| Ok(t.clone())),
        }?;
        match &rows.scales {
            Some([of_keys, of_values]) if n > 1 => Ok(Rows {
                keys: rows.keys.mul(of_keys)?.contiguous(),
                values: rows.values.mul(of_values.t()?)?.contiguous(),
                scales: None,
            }),
            _ => Ok(rows),
        }
    }

    /// `of` takes the wanted elements of an axis, which has the rows of the cache.
    fn part(&self, of: impl Fn(&Tensor, i64) -> Result<Tensor>) -> Result<Rows> {
        let scale = |t: &Tensor| of(t, 1)?.unsqueeze(1);
        let scales = match &self.scales {
            Some([k, v]) => Some([scale(k)?, scale(v)?]),
            None => None,
        };
        let floats = |t: Tensor| t.cast(DType::F32);
        Ok(Rows { keys: floats(of(&self.keys, 2)?)?, values: floats(of(&self.values, 1)?)?, scales })
    }

    /// The rows of each of the first `n` texts.
    fn of_each(&self, n: usize) -> Result<Rows> {
        let all = self.part(|t, axis| {
            let t = t.narrow(axis, 0, n * self.room)?;
            // The axis of rows becomes that of texts and that of their rows; texts come first
            let (mut shape, axis) = (t.shape(), axis as usize);
            shape.splice(axis..=axis, [n, self.room]);
            let others = (0..shape.len()).filter(|a| *a != axis);
            let order: Vec<i64> = std::iter::once(axis).chain(others).map(|a| a as i64).collect();
            t.reshape(&shape)?.permute(&order)
        })?;
        // `part` put the axis of scales that heads share behind the texts
        let scales = match all.scales {
            Some([k, v]) => Some([k.transpose(1, 2)?, v.transpose(1, 2)?]),
            None => None,
        };
        Ok(Rows { scales, ..all })
    }
}

impl Rows {
    /// The number of rows.
    pub(super) fn count(&self) -> Result<usize> {
        self.keys.dim(-1)
    }

    /// Scores of queries, `[.., queries, width]` to `[.., queries, rows]`.
    pub(super) fn scores(&self, q: &Tensor) -> Result<Tensor> {
        let scores = q.matmul(&self.keys)?;
        match &self.scales {
            Some([of_keys, _]) => scores.mul(of_keys),
            None => Ok(scores),
        }
    }

    /// Weights `[.., queries, rows]` as values are multiplied with them.
    pub(super) fn scaled(&self, weights: Tensor) -> Result<Tensor> {
        match &self.scales {
            Some([_, of_values]) => weights.mul(of_values),
            None => Ok(weights),
        }
    }
}

/// Vectors `[heads, n, width]` as bytes, and what each is multiplied with, `[heads, n]`.
fn quantised(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let most = x.abs()?.max(&[-1], true)?;
    let by = most.gt(0.0)?.select(most.reciprocal()?.mul(MOST)?, 0.0)?;
    let bytes = x.mul(by)?.round()?.cast(DType::I8)?;
    Ok((bytes, most.div(MOST)?.squeeze(-1)?))
}
