//! Tokenizers and chat templates from files, with what they need to know of Unicode and of the date.

pub use gradloom_core::text::*;

use crate::model::read_file;
use gradloom_core::Result;
use gradloom_core::io::gguf::Gguf;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

/// Unicode's tables, for [`Tokenizer::from_json`] and [`Tokenizer::from_gguf`].
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

/// The tokenizer of a `tokenizer.json`, or of a GGUF file's metadata.
pub fn load(path: &Path) -> Result<Tokenizer> {
    let file = read_file(path)?;
    match file.starts_with(b"GGUF") {
        true => Tokenizer::from_gguf(&Gguf::parse(&file)?, UNICODE),
        false => Tokenizer::from_json(&file, UNICODE),
    }
}

/// The chat template of a `tokenizer_config.json`, or of a GGUF file's metadata.
pub fn load_chat(path: &Path) -> Result<ChatTemplate> {
    let file = read_file(path)?;
    match file.starts_with(b"GGUF") {
        true => ChatTemplate::from_gguf(&Gguf::parse(&file)?),
        false => ChatTemplate::from_config(&file, None),
    }
}

/// The date and time now, UTC.
pub fn now() -> DateTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, (seconds % 86_400) as u32);
    // days of years that begin with March, from a 29th of February that ended four centuries
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
