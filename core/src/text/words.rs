//! The tokenizer models other than byte pair encoding: WordPiece, WordLevel, Unigram.

use super::config::{Config, err};
use super::vocab::{Token, Vocab};
use crate::error::Result;
use crate::io::json::Json;

/// Repeatedly takes the longest token that the rest of a word begins with.
#[derive(Clone, Debug)]
pub(super) struct WordPiece {
    pub vocab: Vocab,
    pub unk: u32,
    pub prefix: String,
    pub max_chars: usize,
}

impl WordPiece {
    pub(super) fn new(c: &Config<'_>, vocab: Vocab) -> Result<WordPiece> {
        let unk = c.text_or("unk_token", "[UNK]")?;
        Ok(WordPiece {
            unk: vocab.id(unk).ok_or_else(|| err(format!("the unknown token `{unk}` is no token")))?,
            vocab,
            prefix: c.text_or("continuing_subword_prefix", "##")?.to_owned(),
            max_chars: c.size("max_input_chars_per_word", 100)?,
        })
    }

    pub(super) fn encode(&self, word: &str, out: &mut Vec<Token>) {
        let unknown = Token { id: self.unk, start: 0, end: word.len() };
        if word.chars().count() > self.max_chars {
            out.push(unknown);
            return;
        }
        let first = out.len();
        let mut start = 0;
        let mut buffer = String::new();
        while start < word.len() {
            let rest = &word[start..];
            let ends = rest.char_indices().rev().map(|(i, c)| i + c.len_utf8());
            let found = ends.into_iter().find_map(|end| {
                buffer.clear();
                buffer.push_str(if start > 0 { &self.prefix } else { "" });
                buffer.push_str(&rest[..end]);
                Some((self.vocab.id(&buffer)?, end))
            });
            let Some((id, end)) = found else {
                out.truncate(first);
                out.push(unknown);
                return;
            };
            out.push(Token { id, start, end: start + end });
            start += end;
        }
    }
}

/// A word is a token of the vocabulary, or unknown.
#[derive(Clone, Debug)]
pub(super) struct WordLevel {
    pub vocab: Vocab,
    pub unk: Option<u32>,
}

impl WordLevel {
    pub(super) fn encode(&self, word: &str, out: &mut Vec<Token>) -> Result<()> {
        let id = self.vocab.id(word).or(self.unk);
        let id = id.ok_or_else(|| err(format!("`{word}` is unknown and there is no token for that")))?;
        out.push(Token { id, start: 0, end: word.len() });
        Ok(())
    }
}

/// Chooses the sequence of tokens with the largest sum of scores (log probabilities).
#[derive(Clone, Debug)]
pub(super) struct Unigram {
    pub vocab: Vocab,
    scores: Vec<f64>,
    unk: Option<u32>,
    byte_fallback: bool,
    min_score: f64,
    /// The length of the longest token in bytes.
    longest: usize,
}

/// The score of an unknown character is the least score of all tokens minus this.
const UNK_PENALTY: f64 = 10.0;

impl Unigram {
    pub(super) fn new(c: &Config<'_>) -> Result<Unigram> {
        let list = c.get("vocab").and_then(Json::as_array).ok_or_else(|| err("`vocab` is no list"))?;
        let mut tokens = Vec::with_capacity(list.len());
        for t in list {
            match t.as_array() {
                Some([Json::Str(t), score]) => {
                    let score = score.as_f64().ok_or_else(|| err("a score is no number"))?;
                    tokens.push((t.as_str(), as_serde_reads(score)));
                }
                _ => return Err(err("a token of a Unigram model is no pair")),
            }
        }
        let unk = c.get("unk_id").map(super::config::id).transpose()?;
        Unigram::from_tokens(&tokens, unk, c.flag("byte_fallback", false)?)
    }

    pub(super) fn from_tokens(tokens: &[(&str, f64)], unk: Option<u32>, byte_fallback: bool) -> Result<Unigram> {
        if unk.is_some_and(|u| u as usize >= tokens.len()) {
            return Err(err("the unknown token is no token"));
        }
        let mut vocab = Vocab::default();
        for (i, (t, _)) in tokens.iter().enumerate() {
            vocab.add(t, i as u32)?;
        }
        Ok(Unigram {
            vocab,
            scores: tokens.iter().map(|t| t.1).collect(),
            unk,
            byte_fallback,
            min_score: tokens.iter().map(|t| t.1).fold(f64::INFINITY, f64::min),
            longest: tokens.iter().map(|t| t.0.len()).max().unwrap_or(0),
        })
    }

    pub(super) fn encode(&self, text: &str, out: &mut Vec<Token>) -> Result<()> {
        let mut tokens = self.best_path(text);
        tokens.reverse();
        // Adjacent unknown characters are merged into one unknown text
        let mut i = 0;
        while i < tokens.len() {
            let (start, mut end, id) = tokens[i];
            i += 1;
            if let Some(id) = id.filter(|_| id != self.unk) {
                out.push(Token { id, start, end });
                continue;
            }
            while let Some(&(_, e, next)) = tokens.get(i)
                && (next.is_none() || next == self.unk)
            {
                end = e;
                i += 1;
            }
            self.unknown(&text[start..end], start, out)?;
        }
        Ok(())
    }

    fn unknown(&self, text: &str, start: usize, out: &mut Vec<Token>) -> Result<()> {
        let token = |id| Token { id, start, end: start + text.len() };
        if let Some(id) = self.vocab.id(text) {
            out.push(token(id));
        } else if let Some(bytes) = self.byte_fallback.then(|| self.vocab.bytes(text)).flatten() {
            out.extend(bytes.into_iter().map(token));
        } else {
            let unk = self.unk.ok_or_else(|| err(format!("`{text}` is unknown and there is no token for that")))?;
            out.push(token(unk));
        }
        Ok(())
    }

    /// The best segmentation as (start, end, token) from the last token to the first; `None` for a character that no
    /// token covers and without an unknown token.
    fn best_path(&self, text: &str) -> Vec<(usize, usize, Option<u32>)> {
        // For each byte offset, the best path that ends there: its score, the start of its last token, and that token
        let mut best: Vec<(f64, usize, Option<u32>)> = vec![(0.0, usize::MAX, None); text.len() + 1];
        for (start, c) in text.char_indices() {
            let so_far = best[start].0;
            let width = c.len_utf8();
            let mut single = false;
            let ends = text[start..].char_indices().map(|(i, c)| i + c.len_utf8());
            for len in ends.take_while(|&n| n <= self.longest) {
                let Some(id) = self.vocab.id(&text[start..start + len]) else { continue };
                let score = so_far + self.scores[id as usize];
                let at = &mut best[start + len];
                if at.1 == usize::MAX || score > at.0 {
                    *at = (score, start, Some(id));
                }
                single |= len == width;
            }
            let score = so_far + (self.min_score - UNK_PENALTY);
            let at = &mut best[start + width];
            if !single && (at.1 == usize::MAX || score > at.0) {
                *at = (score, start, self.unk);
            }
        }
        let mut out = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let (_, start, id) = best[end];
            if start >= end {
                break;
            }
            out.push((start, end, id));
            end = start;
        }
        out
    }
}

/// Rounds a number as serde_json reads it: digits times a power of ten, rounded twice, so that the last bit may be off
/// by one. The reference tokenizer's choice between segmentations of equal score depends on that.
fn as_serde_reads(x: f64) -> f64 {
    let text = crate::util::decimal::Shown(x.abs()).scientific();
    let parts = text.split_once('e').and_then(|(digits, e)| {
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let significand = format!("{whole}{fraction}").parse::<u64>().ok()?;
        Some((significand as f64, e.parse::<i32>().ok()? - fraction.len() as i32))
    });
    match parts {
        Some((f, e @ -22..0)) => (f / 10f64.powi(-e)).copysign(x),
        _ => x,
    }
}
