//! Tokenizers from files, with the Unicode normalization that they need.

pub use gradloom_core::text::*;

use crate::model::read_file;
use gradloom_core::Result;
use gradloom_core::io::gguf::Gguf;
use std::path::Path;
use unicode_normalization::UnicodeNormalization;

/// Unicode normalization, for [`Tokenizer::from_json`] and [`Tokenizer::from_gguf`].
pub fn normalize(form: Form, text: &str) -> String {
    match form {
        Form::Nfc => text.nfc().collect(),
        Form::Nfd => text.nfd().collect(),
        Form::Nfkc => text.nfkc().collect(),
        Form::Nfkd => text.nfkd().collect(),
    }
}

/// The tokenizer of a `tokenizer.json`, or of a GGUF file's metadata.
pub fn load(path: &Path) -> Result<Tokenizer> {
    let file = read_file(path)?;
    match file.starts_with(b"GGUF") {
        true => Tokenizer::from_gguf(&Gguf::parse(&file)?, normalize),
        false => Tokenizer::from_json(&file, normalize),
    }
}
