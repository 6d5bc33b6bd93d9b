//! Several texts at once, each with a length of its own: tokens of many clients are read in one step.

use super::{Kind, LONGEST, LanguageModel};
use gradloom_core::dtype::Scalar;
use gradloom_core::{Error, Result};

impl LanguageModel {
    /// The number of texts that the caches have space for.
    pub fn texts(&self) -> usize {
        self.texts.len()
    }

    /// The tokens of a text that have been read.
    pub fn text(&self, which: usize) -> &[u32] {
        self.texts.get(which).map_or(&[], Vec::as_slice)
    }

    /// The length of the common prefix of a text and these tokens, which need not be read again; 0 if the model cannot
    /// go on from there ([`Decoder::kept`](super::Decoder::kept)).
    pub fn shared(&self, which: usize, tokens: &[u32]) -> usize {
        self.kept(which, self.text(which).iter().zip(tokens).take_while(|(a, b)| a == b).count())
    }

    fn kept(&self, which: usize, same: usize) -> usize {
        let written = self.written.get(which).copied().unwrap_or_default();
        self.decoder.kept(self.text(which).len(), written, same)
    }

    /// Selects the text to continue, and truncates it to its first `keep` tokens.
    ///
    /// # Errors
    /// `E_VALUE` if there is no text of this number, or if a part of it is to be kept that the model cannot go on from
    /// ([`LanguageModel::shared`]).
    pub fn choose_text(&mut self, which: usize, keep: usize) -> Result<()> {
        let n = self.texts.len();
        let none = || Error::value("generate", format!("text {which} of {n}"));
        let read = self.texts.get(which).ok_or_else(none)?.len();
        if self.kept(which, keep.min(read)) != keep.min(read) {
            return Err(Error::value(
                "generate",
                format!("{keep} of {read} tokens of a text that cannot go back so far"),
            ));
        }
        self.texts[which].truncate(keep);
        self.text = which;
        Ok(())
    }

    /// Reads one token of each of these texts.
    ///
    /// # Errors
    /// `E_VALUE` for a text that does not exist, is named twice, or is full.
    pub fn read_each(&mut self, tokens: &[(usize, u32)]) -> Result<()> {
        let (all, capacity) = (self.texts.len(), self.decoder.capacity());
        let highest = tokens.iter().map(|t| t.0).max().ok_or_else(|| Error::value("generate", "no text is read"))?;
        if highest >= all {
            return Err(Error::value("generate", format!("text {highest} of {all}")));
        }
        self.check(&tokens.iter().map(|t| t.1).collect::<Vec<_>>())?;
        // Rounded up to a power of two, so that there are few different plans
        let n = (highest + 1).next_power_of_two().min(all);
        let (mut ids, mut positions) = (vec![0; n], vec![-1; n]);
        for (which, token) in tokens {
            let at = self.texts[*which].len();
            if at >= capacity || positions[*which] >= 0 {
                return Err(Error::value("generate", format!("text {which} has no room, or is read twice")));
            }
            (ids[*which], positions[*which]) = (*token as i32, at as i32);
        }
        let longest = positions.iter().copied().max().unwrap_or_default();
        self.rt.engine().set_var(LONGEST, Scalar::Int(i64::from(longest)));
        tokens.iter().for_each(|(which, _)| self.note(*which, 1));
        self.run(Kind::Each(n), &ids, &positions)?;
        tokens.iter().for_each(|(which, token)| self.texts[*which].push(*token));
        Ok(())
    }

    /// The most likely next tokens after [`LanguageModel::read_each`], indexed by text.
    pub fn best_each(&mut self) -> Result<Vec<u32>> {
        self.all_best()
    }

    /// The logits of the next tokens, a row for each text, indexed by text.
    pub fn logits_each(&mut self) -> Result<Vec<f32>> {
        self.values()
    }
}
