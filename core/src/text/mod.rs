//! Tokenizers: text to token ids and back, with byte-level and other BPE, WordPiece, Unigram and WordLevel models, read
//! from a `tokenizer.json` or from the metadata of a GGUF file. Results equal those of Hugging Face's `tokenizers` and
//! are tested against it.
//!
//! | file | contents |
//! |---|---|
//! | `normalize`, `charsmap` | normalizers, which change the text first |
//! | `split`, `regex`, `unicode` | pre-tokenizers, which cut the text into words |
//! | `bpe`, `words`, `vocab` | the models, which turn words into tokens |
//! | `added` | special and added tokens, which are found in the text before all that |
//! | `post` | special tokens around the text; decoders |
//! | `gguf` | tokenizers of GGUF files |
//! | `chat`, `guard`, `pystr` | chat templates (feature `chat`) |
//!
//! Never here: files, and padding to batches (tensors do that). Unicode normalization and grapheme clusters come from
//! the host as functions. Files are untrusted: regular expressions have a limit of steps, and recursion has stated
//! limits.
#![deny(clippy::unwrap_used)]

mod added;
mod bpe;
mod charsmap;
#[cfg(feature = "chat")]
mod chat;
mod config;
mod gguf;
#[cfg(feature = "chat")]
mod guard;
mod normalize;
mod post;
mod pre;
#[cfg(feature = "chat")]
mod pystr;
mod regex;
mod split;
#[cfg(test)]
mod tests;
mod unicode;
mod vocab;
mod words;

#[cfg(feature = "chat")]
pub use chat::{ChatOptions, ChatTemplate, DateTime};
pub use normalize::{Form, Unicode};

use crate::error::Result;
use crate::io::json::Json;
use added::Added;
use bpe::Bpe;
use config::{Config, err, unknown};
use normalize::Normalizer;
use post::{Decoder, Part, Template};
use split::{Piece, Split};
use vocab::Vocab;
use words::{Unigram, WordLevel, WordPiece};

#[derive(Clone, Debug)]
enum TokenModel {
    Bpe(Bpe),
    WordPiece(WordPiece),
    WordLevel(WordLevel),
    Unigram(Unigram),
}

/// A tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    normalizer: Option<Normalizer>,
    split: Option<Split>,
    model: TokenModel,
    added: Added,
    template: Option<Template>,
    decoder: Option<Decoder>,
    max_length: Option<usize>,
    host: Unicode,
}

/// The tokens of a text, or of two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoding {
    /// The token ids.
    pub ids: Vec<u32>,
    /// For each token, 0 if it belongs to the first text and 1 for the second, where the model distinguishes the two.
    pub type_ids: Vec<u32>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Truncation is taken over, padding is not.
    pub fn from_json(file: &[u8], host: Unicode) -> Result<Tokenizer> {
        let json = Json::parse(file)?;
        let model = Config::member(&json, "model").ok_or_else(|| err("there is no model"))?;
        let model = read_model(&model)?;
        let normalizer = Config::member(&json, "normalizer").map(|c| Normalizer::new(&c)).transpose()?;
        let added = Added::new(json.get("added_tokens").and_then(Json::as_array).unwrap_or_default(), |t| {
            normalizer.as_ref().map_or(Ok(t.to_owned()), |n| n.run(t.to_owned(), host, &mut true))
        })?;
        let truncation = Config::member(&json, "truncation");
        Ok(Tokenizer {
            split: Config::member(&json, "pre_tokenizer").map(|c| Split::new(&c)).transpose()?,
            template: match Config::member(&json, "post_processor") {
                Some(c) => Template::new(&c)?,
                None => None,
            },
            decoder: Config::member(&json, "decoder").map(|c| Decoder::new(&c)).transpose()?,
            max_length: truncation.map(|c| c.size("max_length", usize::MAX)).transpose()?,
            normalizer,
            model,
            added,
            host,
        })
    }

    /// Tokens of a text, including the special tokens that the model expects around it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.encode_with(text, None, true)?.ids)
    }

    /// Tokens of a pair of texts, for models that compare them.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoding> {
        self.encode_with(first, Some(second), true)
    }

    /// Tokens of a pair of texts, of which the longer one is cut where both have more than `most` tokens.
    pub fn encode_pair_within(&self, first: &str, second: &str, most: usize) -> Result<Encoding> {
        self.encode_up_to(first, Some(second), true, Some(self.max_length.map_or(most, |own| own.min(most))))
    }

    /// Tokens of one or two texts, with or without special tokens around them.
    pub fn encode_with(&self, text: &str, second: Option<&str>, special: bool) -> Result<Encoding> {
        self.encode_up_to(text, second, special, self.max_length)
    }

    fn encode_up_to(&self, text: &str, second: Option<&str>, special: bool, most: Option<usize>) -> Result<Encoding> {
        let mut texts = vec![self.tokens(text)?];
        if let Some(t) = second {
            texts.push(self.tokens(t)?);
        }
        let plain: Vec<Part> = (0..texts.len()).map(|i| Part::Text(i, i as u32)).collect();
        let parts = match &self.template {
            Some(t) if special => {
                if second.is_some() {
                    &t.pair
                } else {
                    &t.single
                }
            }
            _ => &plain,
        };
        if let Some(max) = most {
            let around = parts.iter().map(|p| if let Part::Special(ids, _) = p { ids.len() } else { 0 }).sum();
            truncate(&mut texts, max.saturating_sub(around));
        }
        let mut out = Encoding::default();
        for p in parts {
            let (ids, kind) = match p {
                Part::Text(i, kind) => (texts.get(*i).map_or(&[][..], |t| t), *kind),
                Part::Special(ids, kind) => (ids.as_slice(), *kind),
            };
            out.ids.extend(ids);
            out.type_ids.resize(out.ids.len(), kind);
        }
        Ok(out)
    }

    fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let mut pieces = Vec::new();
        for p in self.added.cut_raw(Piece { text: text.to_owned(), token: None, first: true }) {
            match (&self.normalizer, p.token) {
                (Some(n), None) => {
                    let mut first = p.first;
                    let text = n.run(p.text, self.host, &mut first)?;
                    pieces.extend(self.added.cut_normalized(Piece { text, first, token: None }));
                }
                (None, None) => pieces.extend(self.added.cut_normalized(p)),
                _ => pieces.push(p),
            }
        }
        pieces.retain(|p| p.token.is_some() || !p.text.is_empty());
        if let Some(s) = &self.split {
            pieces = s.run(pieces)?;
        }
        let mut out = Vec::with_capacity(text.len() / 3 + 1);
        for p in &pieces {
            match (p.token, &self.model) {
                (Some(id), _) => out.push(id),
                (_, TokenModel::Bpe(m)) => m.encode(&p.text, &mut out),
                (_, TokenModel::WordPiece(m)) => m.encode(&p.text, &mut out),
                (_, TokenModel::WordLevel(m)) => m.encode(&p.text, &mut out)?,
                (_, TokenModel::Unigram(m)) => m.encode(&p.text, &mut out)?,
            }
        }
        Ok(out)
    }

    /// The text of tokens, without special tokens. Unknown ids are skipped.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decode_with(ids, true)
    }

    /// The text of tokens, with or without special tokens.
    pub fn decode_with(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.decode_showing(ids, &|_| !skip_special)
    }

    /// The text of tokens, with those special tokens for which `special` is true.
    pub(crate) fn decode_showing(&self, ids: &[u32], special: &dyn Fn(&str) -> bool) -> Result<String> {
        let shown = |&id: &u32| {
            let t = self.token(id)?;
            (!self.added.is_special(t) || special(t)).then(|| t.to_owned())
        };
        let tokens: Vec<String> = ids.iter().filter_map(shown).collect();
        Ok(match &self.decoder {
            Some(d) => d.run(tokens)?.concat(),
            None => tokens.join(" "),
        })
    }

    /// The token with this id, as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.added.token(id).or_else(|| self.vocab().token(id))
    }

    /// The bytes of text that a token stands for; `None` for special tokens, and where the bytes depend on
    /// neighbouring tokens.
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.token(id).filter(|t| !self.added.is_special(t))?;
        self.decoder.as_ref()?.bytes(token)
    }

    /// The id of a token that is given as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.vocab().id(token))
    }

    /// The number of tokens, including added ones.
    pub fn len(&self) -> usize {
        self.vocab().len() + self.added.outside(self.vocab())
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Truncates encodings to this many tokens, including special ones; `None` does not truncate.
    pub fn set_max_length(&mut self, tokens: Option<usize>) {
        self.max_length = tokens;
    }

    fn vocab(&self) -> &Vocab {
        match &self.model {
            TokenModel::Bpe(m) => &m.vocab,
            TokenModel::WordPiece(m) => &m.vocab,
            TokenModel::WordLevel(m) => &m.vocab,
            TokenModel::Unigram(m) => &m.vocab,
        }
    }
}

/// Removes tokens from the end of the longer text until both fit.
fn truncate(texts: &mut [Vec<u32>], max: usize) {
    match texts {
        [one] => one.truncate(max),
        [a, b] => {
            // The shorter text is kept whole if it has at most half of the tokens
            let (n, m) = (a.len(), b.len());
            if n + m <= max {
                return;
            }
            let (short, long) = if n <= m { (n, m) } else { (m, n) };
            let (short, long) = if short > max / 2 && long > max / 2 {
                (max / 2, max - max / 2)
            } else {
                (short.min(max), max.saturating_sub(short))
            };
            let (x, y) = if n <= m { (short, long) } else { (long, short) };
            a.truncate(x);
            b.truncate(y);
        }
        _ => {}
    }
}

fn read_model(c: &Config<'_>) -> Result<TokenModel> {
    // Old files do not state the type
    let kind = match c.get("type").and_then(Json::as_str) {
        Some(kind) => kind,
        None if c.get("merges").is_some() => "BPE",
        None if c.get("vocab").is_some_and(|v| v.as_array().is_some()) => "Unigram",
        None if c.get("continuing_subword_prefix").is_some() => "WordPiece",
        None => "WordLevel",
    };
    if kind == "Unigram" {
        return Ok(TokenModel::Unigram(Unigram::new(c)?));
    }
    let mut vocab = Vocab::default();
    for (token, n) in c.get("vocab").and_then(Json::as_object).ok_or_else(|| err("`vocab` is no object"))? {
        vocab.add(token, config::id(n)?)?;
    }
    Ok(match kind {
        "BPE" => TokenModel::Bpe(Bpe::new(c, vocab)?),
        "WordPiece" => TokenModel::WordPiece(WordPiece::new(c, vocab)?),
        "WordLevel" => {
            let unk = vocab.id(c.text_or("unk_token", "<unk>")?);
            TokenModel::WordLevel(WordLevel { vocab, unk })
        }
        kind => return Err(unknown("model", kind)),
    })
}
