//! Tokenizers and chat templates from files, with Unicode tables and the current date. A panic in them, which is a bug
//! of this library, is returned as `E_INTERNAL`.

pub use gradloom_core::text::*;

use crate::contain::contain;
use crate::model::read_file;
use gradloom_core::Result;
use gradloom_core::io::gguf::Gguf;
use gradloom_core::io::json::Json;
use gradloom_core::llm::text_with_calls;
use gradloom_core::text;
use std::ops::Deref;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

/// Unicode functions for [`Tokenizer::from_json`] and [`Tokenizer::from_gguf`].
pub const UNICODE: Unicode = Unicode { normalize, clusters };

fn normalize(form: Form, text: &str) -> String {
    match form {
        Form::Nfc => text.nfc().collect(),
        Form::Nfd => text.nfd().collect(),
        Form::Nfkc => text.nfkc().collect(),
        Form::Nfkd => text.nfkd().collect(),
    }
}

fn clusters(text: &str) -> Vec<usize> {
    text.grapheme_indices(true).map(|(start, cluster)| start + cluster.len()).collect()
}

/// A tokenizer of the core whose panics are caught.
#[derive(Clone, Debug)]
pub struct Tokenizer(text::Tokenizer);

impl Tokenizer {
    /// Reads a `tokenizer.json` ([`text::Tokenizer::from_json`]).
    pub fn from_json(file: &[u8], host: Unicode) -> Result<Tokenizer> {
        contain(|| text::Tokenizer::from_json(file, host).map(Tokenizer))
    }

    /// Reads a GGUF file's metadata ([`text::Tokenizer::from_gguf`]).
    pub fn from_gguf(file: &Gguf, host: Unicode) -> Result<Tokenizer> {
        contain(|| text::Tokenizer::from_gguf(file, host).map(Tokenizer))
    }

    /// Tokens of a text, including the special tokens that the model expects around it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        contain(|| self.0.encode(text))
    }

    /// Tokens of a pair of texts, for models that compare them.
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoding> {
        contain(|| self.0.encode_pair(first, second))
    }

    /// Tokens of a pair of texts, of which the longer one is cut where both have more than `most` tokens.
    pub fn encode_pair_within(&self, first: &str, second: &str, most: usize) -> Result<Encoding> {
        contain(|| self.0.encode_pair_within(first, second, most))
    }

    /// Tokens of one or two texts, with or without special tokens around them.
    pub fn encode_with(&self, text: &str, second: Option<&str>, special: bool) -> Result<Encoding> {
        contain(|| self.0.encode_with(text, second, special))
    }

    /// Tokens of one or two texts with offsets, truncated or in windows ([`text::Tokenizer::encode_windows`]).
    pub fn encode_windows(&self, text: &str, second: Option<&str>, options: &EncodeOptions) -> Result<Vec<Encoding>> {
        contain(|| self.0.encode_windows(text, second, options))
    }

    /// The text of tokens, without special tokens. Unknown ids are skipped.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        contain(|| self.0.decode(ids))
    }

    /// The text of tokens, with or without special tokens.
    pub fn decode_with(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        contain(|| self.0.decode_with(ids, skip_special))
    }

    /// The text of tokens that may contain function calls ([`gradloom_core::llm::text_with_calls`]).
    pub fn decode_with_calls(&self, ids: &[u32]) -> Result<String> {
        contain(|| text_with_calls(&self.0, ids))
    }

    /// Truncates encodings to this many tokens, including special ones; `None` does not truncate.
    pub fn set_max_length(&mut self, tokens: Option<usize>) {
        self.0.set_max_length(tokens);
    }
}

impl Deref for Tokenizer {
    type Target = text::Tokenizer;

    fn deref(&self) -> &text::Tokenizer {
        &self.0
    }
}

/// A chat template of the core whose panics are caught.
pub struct ChatTemplate(text::ChatTemplate);

impl ChatTemplate {
    /// Compiles a template's source. Errors name the line.
    pub fn new(source: &str) -> Result<ChatTemplate> {
        contain(|| text::ChatTemplate::new(source).map(ChatTemplate))
    }

    /// Reads the `chat_template` of a `tokenizer_config.json` ([`text::ChatTemplate::from_config`]).
    pub fn from_config(file: &[u8], name: Option<&str>) -> Result<ChatTemplate> {
        contain(|| text::ChatTemplate::from_config(file, name).map(ChatTemplate))
    }

    /// Reads the template in a GGUF file's metadata.
    pub fn from_gguf(file: &Gguf) -> Result<ChatTemplate> {
        contain(|| text::ChatTemplate::from_gguf(file).map(ChatTemplate))
    }

    /// Sets the text of a special token such as `bos_token`.
    pub fn set_token(&mut self, name: &str, text: &str) {
        self.0.set_token(name, text);
    }

    /// Formats messages ([`text::ChatTemplate::apply`]).
    pub fn apply(&self, messages: &Json, options: &ChatOptions) -> Result<String> {
        contain(|| self.0.apply(messages, options))
    }
}

/// The tokenizer of a `tokenizer.json`, or of a GGUF file's metadata.
pub fn load(path: &Path) -> Result<Tokenizer> {
    let file = read_file(path)?;
    match file.starts_with(b"GGUF") {
        true => Tokenizer::from_gguf(&contain(|| Gguf::parse(&file))?, UNICODE),
        false => Tokenizer::from_json(&file, UNICODE),
    }
}

/// The chat template of a `tokenizer_config.json`, or of a GGUF file's metadata.
pub fn load_chat(path: &Path) -> Result<ChatTemplate> {
    let file = read_file(path)?;
    match file.starts_with(b"GGUF") {
        true => ChatTemplate::from_gguf(&contain(|| Gguf::parse(&file))?),
        false => ChatTemplate::from_config(&file, None),
    }
}

/// The current date and time in UTC.
pub fn now() -> DateTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, (seconds % 86_400) as u32);
    // Counts days from 1 March of the year 0, so that leap days are at the end of years, centuries and eras
    // of 400 years
    let days = days + 719_468;
    let (century, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    DateTime {
        year: (year + century * 400 + next) as i32,
        month: month as u32,
        day: day as u32,
        hour: rest / 3600,
        minute: rest / 60 % 60,
        second: rest % 60,
    }
}
