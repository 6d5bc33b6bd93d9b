//! What all layers of a chunk share: the positions of its tokens, the rows of the caches that they are written to, which
//! rows they attend to, and their rotations.
//!
//! In a layer with an attention window the rows of a text are a ring (`cache.rs`): the token at a position has the row
//! that is the position modulo their number. They are as many as a window and the tokens of the longest chunk need, so
//! that a chunk overwrites nothing that its tokens attend to; the rest of them lets a text go back a little.

use super::DESKTOP;
use super::decoder::{Decoder, POSITION, SEQUENCE};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// The rows of a ring are a multiple of this, so that vectors of keys are aligned in the cache.
const ALIGNMENT: usize = 32;

/// What all layers of a chunk share.
pub(super) struct ChunkContext {
    /// Positions of the tokens in their text, `[n]`.
    pub(super) at: Tensor,
    /// Indices of the cache rows that the tokens' keys and values are written to, `[n]`: in global layers, and in layers
    /// with a window.
    pub(super) rows: [Tensor; 2],
    /// Which texts the tokens belong to.
    pub(super) texts: Texts,
    /// Attention masks, true for the rows of a text that a token attends to: of global layers `[n, capacity]`, all up to
    /// its own, and of layers with a window `[n, rows]`, the last ones of these.
    pub(super) masks: [Tensor; 2],
    /// Cosines and sines of the tokens' positions, `[n, width / 2]`, in the order of `Decoder::rotations`.
    pub(super) rotations: Vec<[Tensor; 2]>,
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
    /// All belong to the text of this number.
    From(Tensor),
    /// The i-th token belongs to the i-th text, and has this position there, `[n]`; below 0 the text takes no part.
    Each(Tensor),
    /// So many complete texts of equal length, one after the other (training); they use no cache.
    Whole(usize),
}

/// The number of rows in which layers with this window keep a text, if chunks have at most `longest` tokens; `None` if
/// `capacity` rows, one for each token of a text, are not more.
pub(super) fn ring(window: usize, longest: usize, capacity: usize) -> Option<usize> {
    let rows = window.checked_add(longest)?.checked_next_multiple_of(ALIGNMENT)?;
    (rows < capacity).then_some(rows)
}

impl Decoder {
    /// Positions, cache rows and masks of `n` consecutive tokens of one text.
    pub(super) fn chunk_context(&self, n: usize) -> Result<ChunkContext> {
        let s = self.session();
        let count = Tensor::arange(s, 0.0, n as f64, 1.0, DType::I32)?;
        let first = Tensor::variable(s, POSITION, 0, (self.capacity() - n) as i32)?;
        let texts = match DESKTOP && self.sequences > 1 {
            true => Texts::From(Tensor::variable(s, SEQUENCE, 0, self.sequences as i32 - 1)?),
            false => Texts::Only,
        };
        self.context_for(count.add(&first)?, texts, &first.add(n - 1)?, None)
    }

    /// Rows, masks and rotations for tokens at the positions `at`. The last position that is written in a text is `newest`, of
    /// all or `[n, 1]` for each token's text. `longest` is an upper bound of all positions; it ends the loops over keys where
    /// positions are values of a tensor.
    pub(super) fn context_for(
        &self,
        at: Tensor,
        texts: Texts,
        newest: &Tensor,
        longest: Option<&Tensor>,
    ) -> Result<ChunkContext> {
        let row = at.reshape(&[at.dim(0)?, 1])?;
        let mask = |ring: Option<usize>, window: Option<usize>| -> Result<Tensor> {
            let len = ring.unwrap_or(self.capacity());
            let col = Tensor::arange(self.session(), 0.0, len as f64, 1.0, DType::I32)?;
            let key = match ring {
                // Rows up to that of the newest token were written in this turn, the others in the turn before
                Some(rows) => {
                    let turn = newest.modulo(rows)?;
                    let before = col.gt(&turn)?.select(rows as i32, 0)?;
                    newest.sub(&turn)?.add(&col)?.sub(before)?
                }
                None => col.clone(),
            };
            let mut seen = key.le(&row)?;
            if let Some(w) = window {
                seen = seen.logical_and(key.add(w)?.gt(&row)?)?;
            }
            // In the first turn there is no turn before; loops over the keys of a short text end there, too
            if ring.is_some() {
                seen = seen.logical_and(col.le(&row)?)?;
            }
            longest.map_or(Ok(seen.clone()), |most| seen.logical_and(col.le(most)?))
        };
        let masks = [mask(None, None)?, mask(self.ring, self.config().window)?];
        let rows = [self.rows(&at, &texts, None)?, self.rows(&at, &texts, self.ring)?];
        let rotation =
            |t: &[Tensor; 2]| Ok([t[0].index_select(0, &at)?.contiguous(), t[1].index_select(0, &at)?.contiguous()]);
        let rotations = self.all_rotations().iter().map(rotation).collect::<Result<_>>()?;
        Ok(ChunkContext { at, rows, texts, masks, rotations })
    }

    /// The rows that tokens at these positions are written to, in caches with a ring of rows for each text or without.
    fn rows(&self, at: &Tensor, texts: &Texts, ring: Option<usize>) -> Result<Tensor> {
        let room = ring.unwrap_or(self.capacity());
        let row = ring.map_or(Ok(at.clone()), |rows| at.modulo(rows))?;
        match texts {
            Texts::From(which) if DESKTOP => row.add(which.mul(room)?),
            Texts::Each(positions) if DESKTOP => {
                let count = Tensor::arange(self.session(), 0.0, at.dim(0)? as f64, 1.0, DType::I32)?;
                // The row of a text that takes no part is behind the end of the caches, where stores are dropped
                positions.lt(0)?.select((self.sequences * room) as i32, row.add(count.mul(room)?)?)
            }
            _ => Ok(row),
        }
    }

    /// How many of the first `same` tokens of a text, of which `read` were read, need not be read again. Since the text began,
    /// rows up to the position `written` were written, padding of chunks and wrong guesses included: it is larger than `read`
    /// where the text went back. A text with a state goes on or begins anew; one that goes back far has lost what layers with a
    /// window attended to.
    pub fn kept(&self, read: usize, written: usize, same: usize) -> usize {
        let is_there = match (self.ring, self.config().window) {
            _ if self.is_recurrent() => same >= read,
            (Some(rows), Some(window)) => written <= rows || same + 1 + rows >= written + window,
            _ => true,
        };
        if is_there { same } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_hold_the_windows_of_all_tokens_of_a_chunk() {
        for (window, n, capacity) in
            [(16, 1, 256), (16, 8, 250), (1, 1, 97), (100, 128, 4096), (33, 32, 131), (7, 3, 64)]
        {
            let Some(rows) = ring(window, n, capacity) else { continue };
            assert!(rows < capacity && rows.is_multiple_of(ALIGNMENT), "{window} {n} {capacity}: {rows}");
            for first in 0..=capacity - n {
                // what remains after the chunk was written
                let oldest = (first + n).saturating_sub(rows);
                assert!(oldest <= (first + 1).saturating_sub(window), "{window} {n} {capacity}: {first}");
            }
        }
        assert_eq!(ring(512, 128, 4096), Some(640));
        assert_eq!(ring(100, 128, 256), None);
        assert_eq!(ring(usize::MAX, 1, 256), None);
    }
}
