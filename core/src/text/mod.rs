//! Tokenizers: text to token ids and back, with byte-level and other BPE, WordPiece, Unigram and WordLevel models, read
//! from a `tokenizer.json` or from the metadata of a GGUF file. Results equal those of Hugging Face's `tokenizers` and
//! are tested against it.
//!
//! | file | contents |
//! |---|---|
//! | `aligned` | a text that remembers where its bytes come from, for offsets |
//! | `normalize`, `charsmap` | normalizers, which change the text first |
//! | `split`, `regex`, `unicode` | pre-tokenizers, which cut the text into words |
//! | `bpe`, `words`, `vocab` | the models, which turn words into tokens |
//! | `added` | special and added tokens, which are found in the text before all that |
//! | `post` | special tokens around the text; decoders |
//! | `windows` | truncation, and windows over long texts |
//! | `gguf` | tokenizers of GGUF files |
//! | `chat`, `guard`, `pystr` | chat templates (feature `chat`) |
//!
//! Never here: files, and padding to batches (tensors do that). Unicode normalization and grapheme clusters come from
//! the host as functions. Files are untrusted: regular expressions have a limit of steps, and recursion has stated
//! limits.
#![deny(clippy::unwrap_used)]

mod added;
mod aligned;
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
mod windows;
mod words;

#[cfg(feature = "chat")]
pub use chat::{ChatOptions, ChatTemplate, DateTime};
pub use normalize::{Form, Unicode};
pub use windows::{EncodeOptions, Encoding, Truncation, TruncationSide, TruncationStrategy};

use crate::error::Result;
use crate::io::json::Json;
use added::Added;
use aligned::Aligned;
use bpe::Bpe;
use config::{Config, err, unknown};
use normalize::Normalizer;
use post::{Decoder, Part, Post};
use split::{Piece, Split};
use vocab::{Token, Vocab};
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
    post: Post,
    decoder: Option<Decoder>,
    truncation: Option<Truncation>,
    host: Unicode,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Truncation is taken over, padding is not.
    pub fn from_json(file: &[u8], host: Unicode) -> Result<Tokenizer> {
        let json = Json::parse(file)?;
        let model = Config::member(&json, "model").ok_or_else(|| err("there is no model"))?;
        let model = read_model(&model)?;
        let normalizer = Config::member(&json, "normalizer").map(|c| Normalizer::new(&c)).transpose()?;
        let added = Added::new(json.get("added_tokens").and_then(Json::as_array).unwrap_or_default(), |t| {
            let mut text = Aligned::plain(t.to_owned());
            normalizer.as_ref().map_or(Ok(()), |n| n.run(&mut text, host, &mut true))?;
            Ok(text.text)
        })?;
        Ok(Tokenizer {
            split: Config::member(&json, "pre_tokenizer").map(|c| Split::new(&c)).transpose()?,
            post: Config::member(&json, "post_processor").map(|c| Post::new(&c)).transpose()?.unwrap_or_default(),
            decoder: Config::member(&json, "decoder").map(|c| Decoder::new(&c)).transpose()?,
            truncation: Config::member(&json, "truncation").map(|c| read_truncation(&c)).transpose()?,
            normalizer,
            model,
            added,
            host,
        })
    }

    /// Tokens of a text, including the special tokens that the model expects around it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_ids(text, true)
    }

    /// Tokens of a text, with or without special tokens around them. Texts that are too long lose tokens whatever the
    /// file's strategy for pairs is.
    pub fn encode_ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let tokens = self.tokens(Aligned::plain(text.to_owned()))?;
        let template = self.post.template.as_ref().filter(|_| special);
        let parts = template.map_or(&[Part::Text(0, 0)][..], |t| &t.single);
        let Truncation { max_length, side, .. } = self.truncation();
        let kept = tokens.len().min(max_length.saturating_sub(windows::around(parts)));
        let kept = match side {
            TruncationSide::Right => &tokens[..kept],
            TruncationSide::Left => &tokens[tokens.len() - kept..],
        };
        let mut out = Vec::with_capacity(kept.len() + 2);
        for p in parts {
            match p {
                Part::Text(0, _) => out.extend(kept.iter().map(|t| t.id)),
                Part::Text(..) => {}
                Part::Special(ids, _) => out.extend(ids),
            }
        }
        Ok(out)
    }

    /// Tokens of a pair of texts, for models that compare them.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoding> {
        self.encode_with(first, Some(second), true)
    }

    /// Tokens of a pair of texts, of which the longer one is cut where both have more than `most` tokens.
    pub fn encode_pair_within(&self, first: &str, second: &str, most: usize) -> Result<Encoding> {
        let max_length = self.truncation().max_length.min(most);
        let truncation = Truncation { max_length, strategy: TruncationStrategy::LongestFirst, ..self.truncation() };
        let options = EncodeOptions { special: true, offsets: false, truncation: Some(truncation), overflow: false };
        Ok(self.encode_windows(first, Some(second), &options)?.swap_remove(0))
    }

    /// Tokens of one or two texts, with or without special tokens around them.
    pub fn encode_with(&self, text: &str, second: Option<&str>, special: bool) -> Result<Encoding> {
        let texts = self.all_tokens(text, second, &|t| Ok(Aligned::plain(t.to_owned())))?;
        let plain = plain_parts(&texts);
        let parts = self.parts(&texts, special).unwrap_or(&plain);
        let truncation = self.truncation();
        let kept = truncation.kept_ranges(&texts.iter().map(Vec::len).collect::<Vec<_>>(), windows::around(parts))?;
        let kept: Vec<&[Token]> = texts.iter().zip(kept).map(|(t, r)| &t[r]).collect();
        Ok(windows::join(parts, &kept))
    }

    /// Tokens of one or two texts. With `overflow`, texts that are too long are several windows: the first is what
    /// truncation leaves, and the others have what it removed. There is always one.
    ///
    /// # Errors
    /// `E_VALUE` if the text that may lose tokens is too short for that, or the stride as long as a window.
    pub fn encode_windows(&self, text: &str, second: Option<&str>, options: &EncodeOptions) -> Result<Vec<Encoding>> {
        let texts = self.all_tokens(text, second, &|t| match options.offsets {
            true => Aligned::original(t),
            false => Ok(Aligned::plain(t.to_owned())),
        })?;
        let plain = plain_parts(&texts);
        let parts = self.parts(&texts, options.special).unwrap_or(&plain);
        let lens: Vec<usize> = texts.iter().map(Vec::len).collect();
        let truncation = options.truncation.unwrap_or(self.truncation());
        let windows = match options.overflow {
            true => truncation.windows(&lens, windows::around(parts))?,
            false => truncation.kept_ranges(&lens, windows::around(parts))?.into_iter().map(|r| vec![r]).collect(),
        };
        let [first, others @ ..] = windows.as_slice() else { return Ok(Vec::new()) };
        // The windows of the second text come after each other beside a window of the first one; the first window of the
        // first text comes beside further ones of the second only at the end
        let beside = others.first().map_or(1, Vec::len);
        let after = (1..first.len()).flat_map(|i| (0..beside).map(move |j| (i, j)));
        let order = std::iter::once((0, 0)).chain(after).chain((1..beside).map(|j| (0, j)));
        let one = |(i, j): (usize, usize)| {
            let tokens =
                texts.iter().zip(&windows).zip([i, j]).map(|((t, w), k)| self.trimmed(&t[w[k].clone()], options));
            let tokens: Vec<Vec<Token>> = tokens.collect();
            windows::join(parts, &tokens.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        Ok(order.map(one).collect())
    }

    /// A window's tokens with the ranges that the post-processor leaves.
    fn trimmed(&self, tokens: &[Token], options: &EncodeOptions) -> Vec<Token> {
        let mut out = tokens.to_vec();
        for (i, t) in out.iter_mut().enumerate() {
            if let (true, Some(trim), Some(token)) = (options.offsets, self.post.trim, self.token(t.id)) {
                (t.start, t.end) = trim.narrow(i, token, (t.start, t.end));
            }
        }
        out
    }

    /// The template for so many texts, if special tokens are wanted and there are some.
    fn parts(&self, texts: &[Vec<Token>], special: bool) -> Option<&Vec<Part>> {
        let template = self.post.template.as_ref().filter(|_| special)?;
        Some(if texts.len() > 1 { &template.pair } else { &template.single })
    }

    fn all_tokens(
        &self,
        text: &str,
        second: Option<&str>,
        aligned: &dyn Fn(&str) -> Result<Aligned>,
    ) -> Result<Vec<Vec<Token>>> {
        [Some(text), second].into_iter().flatten().map(|t| self.tokens(aligned(t)?)).collect()
    }

    fn tokens(&self, text: Aligned) -> Result<Vec<Token>> {
        let about = text.text.len() / 3 + 1;
        let mut pieces = Vec::new();
        for mut p in self.added.cut_raw(Piece { text, token: None, first: true }) {
            if p.token.is_some() {
                pieces.push(p);
                continue;
            }
            if let Some(n) = &self.normalizer {
                n.run(&mut p.text, self.host, &mut p.first)?;
            }
            pieces.extend(self.added.cut_normalized(p));
        }
        pieces.retain(|p| p.token.is_some() || !p.text.text.is_empty());
        if let Some(s) = &self.split {
            pieces = s.run(pieces)?;
        }
        let mut out = Vec::with_capacity(about);
        for p in &pieces {
            let (start, word) = (out.len(), p.text.text.as_str());
            match (p.token, &self.model) {
                (Some(id), _) => out.push(Token { id, start: 0, end: word.len() }),
                (_, TokenModel::Bpe(m)) => m.encode(word, &mut out),
                (_, TokenModel::WordPiece(m)) => m.encode(word, &mut out),
                (_, TokenModel::WordLevel(m)) => m.encode(word, &mut out)?,
                (_, TokenModel::Unigram(m)) => m.encode(word, &mut out)?,
            }
            for t in &mut out[start..] {
                (t.start, t.end) = p.text.span(t.start, t.end);
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

    /// How texts are truncated: as the file says, with the length of `set_max_length`.
    pub fn truncation(&self) -> Truncation {
        self.truncation.unwrap_or(DEFAULT_TRUNCATION)
    }

    /// Truncates encodings to this many tokens, including special ones; `None` does not truncate.
    pub fn set_max_length(&mut self, tokens: Option<usize>) {
        self.truncation = tokens.map(|max_length| Truncation { max_length, ..self.truncation() });
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

/// The template without special tokens.
fn plain_parts(texts: &[Vec<Token>]) -> Vec<Part> {
    (0..texts.len()).map(|i| Part::Text(i, i as u32)).collect()
}

/// What a file leaves out.
const DEFAULT_TRUNCATION: Truncation = Truncation {
    max_length: usize::MAX,
    strategy: TruncationStrategy::LongestFirst,
    side: TruncationSide::Right,
    stride: 0,
};

fn read_truncation(c: &Config<'_>) -> Result<Truncation> {
    Ok(Truncation {
        max_length: c.size("max_length", usize::MAX)?,
        strategy: match c.text_or("strategy", "LongestFirst")? {
            "LongestFirst" => TruncationStrategy::LongestFirst,
            "OnlyFirst" => TruncationStrategy::OnlyFirst,
            "OnlySecond" => TruncationStrategy::OnlySecond,
            other => return Err(unknown("truncation", other)),
        },
        side: match c.text_or("direction", "Right")? {
            "Right" => TruncationSide::Right,
            "Left" => TruncationSide::Left,
            other => return Err(unknown("truncation", other)),
        },
        stride: c.size("stride", 0)?,
    })
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
