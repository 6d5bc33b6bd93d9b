//! What all layers of a chunk share: the positions of its tokens, the rows of the caches that they are written to, which
//! rows they attend to, and their rotations.
//!
//! A layer with an attention window reads a slice of the caches that holds the window of each token, and not all rows
//! up to the tokens' position. The slice has a fixed length and begins at a computed row, so that one plan serves every
//! position.

use super::DESKTOP;
use super::decoder::{Decoder, POSITION, SEQUENCE};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Slices of caches begin at multiples of this: vectors of keys that are aligned in the cache stay so.
const ALIGNMENT: usize = 32;

/// What all layers of a chunk share.
pub(super) struct ChunkContext {
    /// Positions of the tokens in their text, `[n]`.
    pub(super) at: Tensor,
    /// Indices of the cache rows that the tokens' keys and values are written to, `[n]`.
    pub(super) rows: Tensor,
    /// Which texts the tokens belong to.
    pub(super) texts: Texts,
    /// Attention masks, true for the rows of the caches that a token attends to: of global layers `[n, capacity]`, all up
    /// to its own, and of layers with a window `[n, length of the slice]`, the last ones of these.
    pub(super) masks: Vec<Tensor>,
    /// The slice of the caches that layers with a window read; `None` if it is not shorter than a text.
    pub(super) slice: Option<Slice>,
    /// Cosines and sines of the tokens' positions, `[n, width / 2]`, in the order of `Decoder::rotations`.
    pub(super) rotations: Vec<[Tensor; 2]>,
}

/// Successive rows of the caches within a text.
pub(super) struct Slice {
    /// Where it begins: `[1]`, or `[n]` if each token belongs to a text of its own.
    pub(super) starts: Tensor,
    /// The number of rows.
    pub(super) len: usize,
}

/// The only token of a chunk whose final state is wanted. In the last layer only its query and feed-forward
/// part are computed.
pub(super) struct WantedToken<'a> {
    pub(super) which: &'a Tensor,
    /// Its position, masks and rotation.
    pub(super) context: ChunkContext,
}

impl WantedToken<'_> {
    /// The row of `x [n, width]` that belongs to this token: `[1, width]`.
    pub(super) fn of(&self, x: &Tensor) -> Result<Tensor> {
        x.narrow_at(0, self.which, 1)
    }
}

/// Which texts the tokens of a chunk belong to.
pub(super) enum Texts {
    /// All belong to the only text.
    Only,
    /// All belong to the text whose rows of the caches begin at this index.
    From(Tensor),
    /// The i-th token belongs to the i-th text.
    Each,
    /// So many complete texts of equal length, one after the other (training); they use no cache.
    Whole(usize),
}

/// The number of rows in a slice that holds the windows of `n` successive tokens and begins at a multiple of
/// [`ALIGNMENT`], wherever the tokens are; `None` if all `capacity` rows are not more.
fn slice_len(window: usize, n: usize, capacity: usize) -> Option<usize> {
    let least = window.checked_add(n + ALIGNMENT - 2)?;
    // The last slice ends with the cache, and is aligned as the others are
    let rest = capacity % ALIGNMENT;
    let len = least.saturating_sub(rest).checked_next_multiple_of(ALIGNMENT)?.checked_add(rest)?;
    (len < capacity).then_some(len)
}

impl Decoder {
    /// Positions, cache rows and masks of `n` consecutive tokens of one text.
    pub(super) fn chunk_context(&self, n: usize) -> Result<ChunkContext> {
        let (s, capacity) = (self.session(), self.capacity());
        let count = Tensor::arange(s, 0.0, n as f64, 1.0, DType::I32)?;
        let at = count.add(Tensor::variable(s, POSITION, 0, (capacity - n) as i32)?)?;
        if !DESKTOP || self.sequences == 1 {
            return self.context_for(at.clone(), at, Texts::Only, None);
        }
        let which = Tensor::variable(s, SEQUENCE, 0, self.sequences as i32 - 1)?;
        let from = which.mul(capacity)?;
        self.context_for(at.clone(), at.add(&from)?, Texts::From(from), None)
    }

    /// Masks and rotations for tokens at the positions `at` whose keys and values go to the cache rows `rows`.
    /// `longest` is an upper bound of all positions; it ends the loops over keys where positions are values of a
    /// tensor.
    pub(super) fn context_for(
        &self,
        at: Tensor,
        rows: Tensor,
        texts: Texts,
        longest: Option<&Tensor>,
    ) -> Result<ChunkContext> {
        let row = at.reshape(&[at.dim(0)?, 1])?;
        let bound = longest.unwrap_or(&row);
        let mask = |slice: Option<&Slice>, window: Option<usize>| -> Result<Tensor> {
            let len = slice.map_or(self.capacity(), |s| s.len);
            let col = Tensor::arange(self.session(), 0.0, len as f64, 1.0, DType::I32)?;
            let key = match slice {
                Some(s) => col.add(s.starts.reshape(&[s.starts.dim(0)?, 1])?)?,
                None => col.clone(),
            };
            let mut seen = key.le(&row)?;
            if let Some(w) = window {
                seen = seen.logical_and(key.add(w)?.gt(&row)?)?;
            }
            // Of a slice nothing follows from this, but loops over the keys of a short text end there
            let ends = slice.is_some() || longest.is_some();
            if ends { seen.logical_and(col.le(bound)?) } else { Ok(seen) }
        };
        let slice = self.slice(&at, &texts)?;
        let masks = vec![mask(None, None)?, mask(slice.as_ref(), self.config().window)?];
        let rotation =
            |t: &[Tensor; 2]| Ok([t[0].index_select(0, &at)?.contiguous(), t[1].index_select(0, &at)?.contiguous()]);
        let rotations = self.all_rotations().iter().map(rotation).collect::<Result<_>>()?;
        Ok(ChunkContext { at, rows, texts, masks, slice, rotations })
    }

    /// The rows that tokens at these positions attend to in layers with a window.
    fn slice(&self, at: &Tensor, texts: &Texts) -> Result<Option<Slice>> {
        let (firsts, n) = match texts {
            Texts::Whole(_) => return Ok(None),
            Texts::Each if DESKTOP => (at.clone(), 1),
            Texts::Each | Texts::Only | Texts::From(_) => (at.narrow(0, 0, 1)?, at.dim(0)?),
        };
        let Some(window) = self.config().window else { return Ok(None) };
        let Some(len) = slice_len(window, n, self.capacity()) else { return Ok(None) };
        let last = (self.capacity() - len) / ALIGNMENT;
        let starts = firsts.sub(window - 1)?.maximum(0)?.floor_div(ALIGNMENT)?.minimum(last)?.mul(ALIGNMENT)?;
        Ok(Some(Slice { starts, len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_the_windows_of_all_tokens() {
        let sizes = [(16, 1, 256), (16, 8, 250), (1, 1, 97), (100, 128, 4096), (33, 32, 131), (7, 3, 64)];
        for (window, n, capacity) in sizes {
            let Some(len) = slice_len(window, n, capacity) else { continue };
            assert!(len < capacity && (capacity - len).is_multiple_of(ALIGNMENT), "{window} {n} {capacity}: {len}");
            for first in 0..=capacity - n {
                let start = (first + 1usize).saturating_sub(window) / ALIGNMENT;
                let start = start.min((capacity - len) / ALIGNMENT) * ALIGNMENT;
                let needed = (first + 1usize).saturating_sub(window)..first + n;
                assert!(start <= needed.start && needed.end <= start + len, "{window} {n} {capacity}: {first}");
            }
        }
        assert_eq!(slice_len(512, 1, 4096), Some(544));
        assert_eq!(slice_len(250, 1, 256), None);
        assert_eq!(slice_len(usize::MAX, 1, 256), None);
    }
}
