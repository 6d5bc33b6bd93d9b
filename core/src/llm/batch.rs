//! Graphs for more than the next token of one text: a token of each of several texts at once, the logits of every token that is read,
//! and the states of a text as its embedding.
//!
//! Texts share the caches: text i has rows `i * room` and on. A batch of n steps is a token of each of the first n texts, with
//! lengths of their own, which come in as a tensor; a text that rests has the position -1, is written nowhere and sees its first row.

use super::decoder::{Chunk, Decoder, Texts, caches};
use super::err;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// The launch variable that no position of a batch is above: loops over keys end there.
pub const LONGEST: &str = "longest";

/// A graph that reads a token of each of some texts.
pub struct Batch {
    /// `[n]`, i32: write them before each run.
    pub tokens: Tensor,
    /// `[n]`, i32: how many tokens came before in each text, -1 for one that rests. Write them before each run.
    pub positions: Tensor,
    /// `[n, vocabulary]`: logits of what follows.
    pub logits: Tensor,
    /// `[n]`, i32: the most likely tokens.
    pub best: Tensor,
    caches: Vec<Tensor>,
}

impl Batch {
    /// What a run computes, the caches among it.
    pub fn roots(&self) -> Vec<&Tensor> {
        [&self.logits, &self.best].into_iter().chain(&self.caches).collect()
    }
}

/// A graph that reads so many tokens and gives their states.
pub struct States {
    /// `[n]`, i32: write them before each run.
    pub tokens: Tensor,
    /// `[n, width]`: states after the last layer, normalised as the output reads them.
    pub states: Tensor,
    caches: Vec<Tensor>,
}

impl States {
    /// What a run computes, the caches among it.
    pub fn roots(&self) -> Vec<&Tensor> {
        std::iter::once(&self.states).chain(&self.caches).collect()
    }
}

impl Decoder {
    /// The same model with room for several texts, each of [`Decoder::room`] tokens. Chunks then belong to the text
    /// [`super::SEQUENCE`]. Call it before any graph is made.
    ///
    /// # Errors
    /// `E_MODEL` for none, or more rows than an i32 counts.
    pub fn with_sequences(mut self, n: usize) -> Result<Decoder> {
        if n == 0 || n.checked_mul(self.room()).is_none_or(|rows| rows >= 1 << 30) {
            return Err(err(format!("room for {n} texts of {} tokens", self.room())));
        }
        self.caches = caches(self.session(), self.config(), n * self.room(), self.cache_dtype())?;
        self.sequences = n;
        Ok(self)
    }

    /// Texts that there is room for.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// The graph that reads a token of each of the first `n` texts.
    pub fn batch(&self, n: usize) -> Result<Batch> {
        if n == 0 || n > self.sequences {
            return Err(err(format!("a token of each of {n} texts, with room for {}", self.sequences)));
        }
        let s = self.session();
        let vector = || Tensor::empty(s, DType::I32, &[n]);
        let (tokens, positions, best) = (vector()?, vector()?, vector()?);
        let logits = Tensor::empty(s, DType::F32, &[n, self.vocabulary()?])?;
        let room = self.room();
        let longest = Tensor::variable(s, LONGEST, 0, room as i32 - 1)?;
        let rows = Tensor::arange(s, 0.0, n as f64, 1.0, DType::I32)?.mul(room)?.add(&positions)?;
        // outside of the caches nothing is written
        let rows = positions.lt(0)?.select((self.sequences * room) as i32, &rows)?;
        let at = positions.maximum(0)?;
        let x = self.through(&tokens, &self.places(at, rows, Texts::Each, Some(&longest))?)?;
        logits.assign(self.output(&x)?)?;
        best.assign(logits.argmax(-1, false)?)?;
        Ok(Batch { tokens, positions, logits, best, caches: self.rows() })
    }

    /// The graph that reads `n` tokens and gives the logits after each of them.
    pub fn every(&self, n: usize) -> Result<Chunk> {
        self.fits(n)?;
        let s = self.session();
        let vector = || Tensor::empty(s, DType::I32, &[n]);
        let (tokens, best) = (vector()?, vector()?);
        let logits = Tensor::empty(s, DType::F32, &[n, self.vocabulary()?])?;
        logits.assign(self.output(&self.through(&tokens, &self.place(n)?)?)?)?;
        best.assign(logits.argmax(-1, false)?)?;
        Ok(Chunk { tokens, logits, best, caches: self.rows() })
    }

    /// The graph that reads `n` tokens and gives their states.
    pub fn states(&self, n: usize) -> Result<States> {
        self.fits(n)?;
        let s = self.session();
        let tokens = Tensor::empty(s, DType::I32, &[n])?;
        let states = Tensor::empty(s, DType::F32, &[n, self.config().width])?;
        states.assign(self.norm(&self.through(&tokens, &self.place(n)?)?, "output_norm")?)?;
        Ok(States { tokens, states, caches: self.rows() })
    }

    pub(super) fn fits(&self, n: usize) -> Result<()> {
        match n > 0 && n <= self.room() {
            true => Ok(()),
            false => Err(err(format!("{n} tokens at once, with room for {}", self.room()))),
        }
    }

    fn rows(&self) -> Vec<Tensor> {
        self.caches.iter().flatten().cloned().collect()
    }
}
