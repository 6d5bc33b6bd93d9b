//! Byte pair encoding: adjacent symbols are merged, the pair of lowest rank first, until no pair can be merged. The
//! rank of a pair is its index in a list of merges, or follows from the score of the token that it becomes
//! (SentencePiece's models in GGUF).

use super::config::{Config, err};
use super::vocab::{Token, Vocab};
use crate::error::Result;
use crate::io::json::Json;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Debug)]
pub(super) struct Bpe {
    pub vocab: Vocab,
    pub merges: Merges,
    pub unk: Option<u32>,
    pub prefix: String,
    pub suffix: String,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    /// Whether a word that is a token of the vocabulary is encoded as that token, without looking at merges.
    pub ignore_merges: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Merges {
    /// For each pair, its rank and the merged token.
    List(FxHashMap<(u32, u32), (u32, u32)>),
    /// For each token, the rank of a pair that becomes it: the higher the token's score, the lower the rank.
    Scores(Vec<u32>),
}

impl Bpe {
    pub(super) fn new(c: &Config<'_>, vocab: Vocab) -> Result<Bpe> {
        let prefix = c.text_or("continuing_subword_prefix", "")?.to_owned();
        let list = c.get("merges").and_then(Json::as_array).ok_or_else(|| err("`merges` is no list"))?;
        let pairs = list.iter().map(|m| match m {
            Json::Str(s) => s.split_once(' ').ok_or_else(|| err(format!("the merge `{s}` is no pair"))),
            Json::Array(p) => match p.as_slice() {
                [Json::Str(a), Json::Str(b)] => Ok((a.as_str(), b.as_str())),
                _ => Err(err("a merge is no pair")),
            },
            _ => Err(err("a merge is no pair")),
        });
        let merges = Merges::list(&vocab, pairs, &prefix)?;
        let unk = match c.get("unk_token") {
            Some(t) => vocab.id(t.as_str().unwrap_or_default()),
            None => None,
        };
        Ok(Bpe {
            vocab,
            merges,
            unk,
            prefix,
            suffix: c.text_or("end_of_word_suffix", "")?.to_owned(),
            fuse_unk: c.flag("fuse_unk", false)?,
            byte_fallback: c.flag("byte_fallback", false)?,
            ignore_merges: c.flag("ignore_merges", false)?,
        })
    }

    pub(super) fn encode(&self, word: &str, out: &mut Vec<Token>) {
        if self.ignore_merges
            && let Some(id) = self.vocab.id(word)
        {
            out.push(Token { id, start: 0, end: word.len() });
            return;
        }
        let symbols = self.symbols(word);
        self.merge(symbols, out);
    }

    /// The tokens of the word's single characters, each with its length in bytes.
    fn symbols(&self, word: &str) -> Vec<(u32, usize)> {
        let mut symbols = Vec::with_capacity(word.len());
        let mut unknown: Option<(u32, usize)> = None;
        let mut buffer = String::new();
        for (i, c) in word.char_indices() {
            let end = i + c.len_utf8();
            let (first, last) = (i == 0, end == word.len());
            let plain = &word[i..end];
            let s = if !first && !self.prefix.is_empty() || last && !self.suffix.is_empty() {
                buffer.clear();
                buffer.push_str(if first { "" } else { &self.prefix });
                buffer.push_str(plain);
                buffer.push_str(if last { &self.suffix } else { "" });
                &buffer
            } else {
                plain
            };
            if let Some(id) = self.vocab.id(s) {
                symbols.extend(unknown.take());
                symbols.push((id, plain.len()));
                continue;
            }
            if let Some(bytes) = self.byte_fallback.then(|| self.vocab.bytes(s)).flatten() {
                symbols.extend(bytes.into_iter().map(|id| (id, 1)));
            } else if let Some(unk) = self.unk {
                let mut len = plain.len();
                match unknown {
                    Some(before) if self.fuse_unk => len += before.1,
                    before => symbols.extend(before),
                }
                unknown = Some((unk, len));
            }
        }
        symbols.extend(unknown);
        symbols
    }

    fn rank(&self, a: u32, b: u32, buffer: &mut String) -> Option<(u32, u32)> {
        match &self.merges {
            Merges::List(map) => map.get(&(a, b)).copied(),
            Merges::Scores(ranks) => {
                buffer.clear();
                buffer.push_str(self.vocab.token(a)?);
                buffer.push_str(self.vocab.token(b)?);
                let id = self.vocab.id(buffer)?;
                Some((*ranks.get(id as usize)?, id))
            }
        }
    }

    fn merge(&self, mut symbols: Vec<(u32, usize)>, out: &mut Vec<Token>) {
        // A doubly linked list over the symbols; of a merged pair the right symbol is unlinked
        let n = symbols.len();
        let mut next: Vec<usize> = (1..=n).collect();
        let mut before: Vec<usize> = (0..n).map(|i| i.wrapping_sub(1)).collect();
        let mut gone = vec![false; n];
        let mut buffer = String::new();
        let mut queue = BinaryHeap::new();
        for i in 1..n {
            if let Some((rank, id)) = self.rank(symbols[i - 1].0, symbols[i].0, &mut buffer) {
                queue.push(Reverse((rank, i - 1, id)));
            }
        }
        while let Some(Reverse((rank, i, id))) = queue.pop() {
            let j = next[i];
            // One of the two symbols may have been merged since this entry was pushed
            if gone[i] || j >= n || self.rank(symbols[i].0, symbols[j].0, &mut buffer) != Some((rank, id)) {
                continue;
            }
            symbols[i] = (id, symbols[i].1 + symbols[j].1);
            gone[j] = true;
            next[i] = next[j];
            if next[i] < n {
                before[next[i]] = i;
                if let Some((rank, id)) = self.rank(id, symbols[next[i]].0, &mut buffer) {
                    queue.push(Reverse((rank, i, id)));
                }
            }
            if before[i] < n
                && let Some((rank, id)) = self.rank(symbols[before[i]].0, id, &mut buffer)
            {
                queue.push(Reverse((rank, before[i], id)));
            }
        }
        let mut start = 0;
        for (&(id, len), _) in symbols.iter().zip(&gone).filter(|s| !s.1) {
            out.push(Token { id, start, end: start + len });
            start += len;
        }
    }
}

impl Merges {
    /// Reads pairs in the order of their rank. `prefix` marks tokens inside a word, and is removed from the right token
    /// of a merged pair.
    pub(super) fn list<'a>(
        vocab: &Vocab,
        pairs: impl Iterator<Item = Result<(&'a str, &'a str)>>,
        prefix: &str,
    ) -> Result<Merges> {
        let (mut map, mut whole) = (FxHashMap::default(), String::new());
        map.reserve(pairs.size_hint().0);
        for (rank, pair) in pairs.enumerate() {
            let (a, b) = pair?;
            let id =
                |t: &str| vocab.id(t).ok_or_else(|| err(format!("the merge of `{a}` and `{b}` lacks the token `{t}`")));
            whole.clear();
            whole.push_str(a);
            whole.push_str(b.strip_prefix(prefix).unwrap_or(b));
            map.insert((id(a)?, id(b)?), (rank as u32, id(&whole)?));
        }
        Ok(Merges::List(map))
    }
}
