//! Further graphs of a decoder: one token of each of several texts at once, the logits of every token that is read, and
//! hidden states, from which embeddings of texts are made.
//!
//! Texts share the caches, where the rows of one text follow those of another. A batch of size n reads one
//! token of each of the first n texts. Their lengths differ and are given by a tensor. A text that takes no part in a
//! step has the position -1: nothing is written to its caches, its query attends to the text's first row only, and its results
//! have no meaning.

use super::context::Texts;
use super::decoder::{Chunk, Decoder};
use super::{err, mamba};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// The launch variable with an upper bound of all positions of a batch: loops over keys end there.
pub const LONGEST: &str = "longest";

/// A graph that reads one token of each of `n` texts.
pub struct Batch {
    /// `[n]`, i32: the token ids; write them before each run.
    pub tokens: Tensor,
    /// `[n]`, i32: how many tokens precede in each text, or -1 for a text that takes no part. Write them
    /// before each run.
    pub positions: Tensor,
    /// `[n, vocabulary]`: the logits of each text's next token.
    pub logits: Tensor,
    /// `[n]`, i32: the most likely next tokens.
    pub best: Tensor,
    caches: Vec<Tensor>,
}

impl Batch {
    /// Everything that a run computes, including the updated caches.
    pub fn roots(&self) -> Vec<&Tensor> {
        [&self.logits, &self.best].into_iter().chain(&self.caches).collect()
    }
}

/// A graph that reads `n` tokens of one text and gives their hidden states.
pub struct States {
    /// `[n]`, i32: the token ids; write them before each run.
    pub tokens: Tensor,
    /// `[n, width]`: hidden states after the last layer and the output normalisation.
    pub states: Tensor,
    caches: Vec<Tensor>,
}

impl States {
    /// Everything that a run computes, including the updated caches.
    pub fn roots(&self) -> Vec<&Tensor> {
        std::iter::once(&self.states).chain(&self.caches).collect()
    }
}

impl Decoder {
    /// The same model with caches for `n` texts of [`Decoder::capacity`] tokens each. A chunk then belongs to the text
    /// whose number is [`super::SEQUENCE`]. Call it before any graph is made.
    ///
    /// # Errors
    /// `E_MODEL` for zero texts, or more cache rows than an i32 can index.
    pub fn with_sequences(mut self, n: usize) -> Result<Decoder> {
        if n == 0 || n.checked_mul(self.capacity()).is_none_or(|rows| rows >= 1 << 30) {
            return Err(err(format!("room for {n} texts of {} tokens", self.capacity())));
        }
        let dtype = self.cache_dtype();
        self.sequences = n;
        self.states = mamba::states(self.session(), self.config(), n)?;
        self.with_new_caches(dtype)
    }

    /// The number of texts that the caches have space for.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Builds the graph that reads a token of each of the first `n` texts.
    pub fn batch(&self, n: usize) -> Result<Batch> {
        if n == 0 || n > self.sequences {
            return Err(err(format!("a token of each of {n} texts, with room for {}", self.sequences)));
        }
        let s = self.session();
        let vector = || Tensor::empty(s, DType::I32, &[n]);
        let (tokens, positions, best) = (vector()?, vector()?, vector()?);
        let logits = Tensor::empty(s, DType::F32, &[n, self.vocabulary()?])?;
        let longest = Tensor::variable(s, LONGEST, 0, self.capacity() as i32 - 1)?;
        let at = positions.maximum(0)?;
        let newest = at.reshape(&[n, 1])?;
        let context = self.context_for(at, Texts::Each(positions.clone()), &newest, Some(&longest))?;
        let x = self.hidden_states(&tokens, &context)?;
        logits.assign(self.output(&x)?)?;
        best.assign(logits.argmax(-1, false)?)?;
        Ok(Batch { tokens, positions, logits, best, caches: self.buffers() })
    }

    /// Builds the graph that reads `n` tokens of one text and gives the logits after each of them.
    pub fn every(&self, n: usize) -> Result<Chunk> {
        self.fits(n)?;
        let s = self.session();
        let vector = || Tensor::empty(s, DType::I32, &[n]);
        let (tokens, best) = (vector()?, vector()?);
        let logits = Tensor::empty(s, DType::F32, &[n, self.vocabulary()?])?;
        logits.assign(self.output(&self.hidden_states(&tokens, &self.chunk_context(n)?)?)?)?;
        best.assign(logits.argmax(-1, false)?)?;
        Ok(Chunk { tokens, logits, best, caches: self.buffers() })
    }

    /// Builds the graph that reads `n` tokens of one text and gives their hidden states.
    pub fn states(&self, n: usize) -> Result<States> {
        self.fits(n)?;
        let s = self.session();
        let tokens = Tensor::empty(s, DType::I32, &[n])?;
        let states = Tensor::empty(s, DType::F32, &[n, self.config().width])?;
        states.assign(self.norm(&self.hidden_states(&tokens, &self.chunk_context(n)?)?, "output_norm")?)?;
        Ok(States { tokens, states, caches: self.buffers() })
    }

    /// The tokens of a chunk must not overwrite what its first token attends to.
    pub(super) fn fits(&self, n: usize) -> Result<()> {
        let window = self.config().window.unwrap_or_default();
        let most = self.ring.map_or(self.capacity(), |rows| rows + 1 - window);
        match n > 0 && n <= most {
            true => Ok(()),
            false => Err(err(format!("{n} tokens at once, with room for {most}"))),
        }
    }
}
