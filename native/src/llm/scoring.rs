//! Uses of a model that need more than the logits of the next token: speculative decoding, perplexity, embeddings.

use super::{End, Kind, LanguageModel, Pooler, accepted, guess};
use gradloom_core::{Error, Result};

/// The number of tokens that are checked at once: the certain token and the guesses after it.
const AT_ONCE: usize = 8;

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// The number of tokens that were predicted.
    pub tokens: usize,
    /// The sum of their negative log-likelihoods in nats.
    pub nats: f64,
}

impl Likelihood {
    /// The perplexity: the number of equally likely choices that would be as uncertain as the model is
    /// about each token.
    pub fn perplexity(&self) -> f64 {
        (self.nats / self.tokens as f64).exp()
    }
}

/// Statistics of speculative decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuessStats {
    /// Runs of a graph.
    pub runs: usize,
    /// Guesses that were checked.
    pub guesses: usize,
    /// Guesses that were right.
    pub right: usize,
}

impl LanguageModel {
    /// Generates the tokens that [`LanguageModel::generate`] would generate greedily. Guesses from repetitions in the
    /// text are checked several at once.
    pub fn generate_guessing(
        &mut self,
        most: usize,
        stop_at_ends: bool,
        mut on_token: impl FnMut(&mut LanguageModel, u32) -> Result<bool>,
    ) -> Result<(End, GuessStats)> {
        let (mut made, mut count) = (0, GuessStats::default());
        let mut next = self.best()?;
        let capacity = self.decoder.capacity();
        while made < most {
            // `next` is the correct token and has not been read yet
            if stop_at_ends && self.ends.contains(&next) {
                return Ok((End::Token, count));
            }
            if !on_token(self, next)? {
                return Ok((End::Caller, count));
            }
            made += 1;
            if made == most {
                break;
            }
            if self.texts[self.text].len() == capacity {
                return Ok((End::Room, count));
            }
            let (right, after) = self.read_guessing(next, most - made, &mut count)?;
            next = after;
            for token in &right {
                if stop_at_ends && self.ends.contains(token) {
                    return Ok((End::Token, count));
                }
                if !on_token(self, *token)? {
                    return Ok((End::Caller, count));
                }
                made += 1;
            }
        }
        Ok((End::Length, count))
    }

    /// Reads the next token of the text, and with it guesses of at most `most - 1` tokens after it. Returns those of them that
    /// the model chooses, and the token that it chooses after these, which is not read yet.
    pub fn read_guessing(&mut self, next: u32, most: usize, count: &mut GuessStats) -> Result<(Vec<u32>, u32)> {
        let capacity = self.decoder.capacity();
        let mut text = self.texts[self.text].clone();
        text.push(next);
        let here = text.len();
        let left = (AT_ONCE - 1).min(most.saturating_sub(1)).min(capacity.saturating_sub(here));
        // A state would be that of wrong guesses, too
        let can_check = here - 1 + AT_ONCE <= capacity && !self.decoder.is_recurrent();
        let mut guesses = if can_check { guess(&text, left) } else { Vec::new() };
        count.runs += 1;
        if guesses.is_empty() {
            self.read(&[next])?;
            return Ok((guesses, self.best()?));
        }
        let tokens: Vec<u32> = std::iter::once(next).chain(guesses.iter().copied()).collect();
        self.check(&tokens)?;
        self.chunk(Kind::Every(AT_ONCE), AT_ONCE, &tokens)?;
        let chosen = self.all_best()?;
        let right = accepted(&guesses, &chosen);
        (count.guesses, count.right) = (count.guesses + guesses.len(), count.right + right);
        // The cache rows of wrong guesses are overwritten by later tokens
        self.texts[self.text].truncate(here + right);
        guesses.truncate(right);
        Ok((guesses, chosen.get(right).copied().unwrap_or_default()))
    }

    /// Measures how well the model predicts these tokens, each from those before it. A text longer than the capacity is
    /// read in windows, each of which begins half a window after the one before. The text read so far is forgotten.
    ///
    /// # Errors
    /// `E_VALUE` for fewer than two tokens.
    pub fn perplexity_of(&mut self, tokens: &[u32]) -> Result<Likelihood> {
        let capacity = self.decoder.capacity();
        if tokens.len() < 2 || capacity < 2 {
            return Err(Error::value("perplexity", format!("{} tokens with room for {capacity}", tokens.len())));
        }
        let vocabulary = self.decoder.vocabulary()?;
        let mut sum = Likelihood { tokens: 0, nats: 0.0 };
        let (mut from, mut known) = (0, 1);
        while known < tokens.len() {
            let end = (from + capacity).min(tokens.len());
            self.choose_text(self.text, 0)?;
            let mut at = from;
            self.read_as(&tokens[from..end], Kind::Every, |m| {
                let upto = from + m.texts[m.text].len();
                if upto < known {
                    at = upto;
                    return Ok(());
                }
                let logits = m.values()?;
                for (row, target) in logits.chunks_exact(vocabulary).zip(at + 1..=upto) {
                    if target >= known && target < end {
                        let token = tokens.get(target).map_or(0, |&t| t as usize);
                        sum.nats -= log_likelihood(row, token);
                        sum.tokens += 1;
                    }
                }
                at = upto;
                Ok(())
            })?;
            known = end;
            from = end.saturating_sub(capacity / 2);
        }
        Ok(sum)
    }

    /// How it makes embeddings.
    pub fn pooler(&self) -> Pooler {
        self.pooler
    }

    /// The embedding of a text: its tokens' hidden states, pooled as the model's files say; their mean, normalised to
    /// length 1, where they say nothing. The selected text is forgotten.
    pub fn embed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::value("embed", "there is no token"));
        }
        let width = self.decoder.config().width;
        let (mut sum, shares) = (vec![0.0f64; width], self.pooler.pooling.shares(tokens.len()));
        self.choose_text(self.text, 0)?;
        let mut at = 0;
        self.read_as(tokens, Kind::States, |m| {
            let upto = m.texts[m.text].len();
            let states = m.values()?;
            for (row, share) in states.chunks_exact(width).zip(&shares[at..upto]) {
                sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(share * x));
            }
            at = upto;
            Ok(())
        })?;
        let length = match self.pooler.normalised {
            true => sum.iter().map(|x| x * x).sum::<f64>().sqrt(),
            false => 1.0,
        };
        Ok(sum.iter().map(|x| (x / length) as f32).collect())
    }
}

/// The log-likelihood of a token.
fn log_likelihood(logits: &[f32], token: usize) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let all: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    logits.get(token).map_or(f64::NEG_INFINITY, |x| f64::from(x - most)) - all.ln()
}
