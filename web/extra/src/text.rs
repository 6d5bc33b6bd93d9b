//! Tokenizers for JavaScript. What Unicode knows is the host's own.

use crate::throw;
use gradloom_core::io::gguf::Gguf;
#[cfg(feature = "text")]
use gradloom_core::text::{EncodeOptions, TruncationSide, TruncationStrategy};
use gradloom_core::text::{Form, Tokenizer, Unicode};
use js_sys::{Array, Intl, JsString};
use wasm_bindgen::prelude::*;

/// A tokenizer of a `tokenizer.json` or of a GGUF file.
#[wasm_bindgen]
pub struct RawTokenizer(pub(crate) Tokenizer);

fn normalize(form: Form, text: &str) -> String {
    let form = match form {
        Form::Nfc => "NFC",
        Form::Nfd => "NFD",
        Form::Nfkc => "NFKC",
        Form::Nfkd => "NFKD",
    };
    String::from(JsString::from(text).normalize(form))
}

fn clusters(text: &str) -> Vec<usize> {
    thread_local!(static SEGMENTER: Intl::Segmenter = Intl::Segmenter::default());
    let segments = SEGMENTER.with(|s| Array::from(&s.segment(text)));
    let ends = segments.iter().scan(0, |end, one| {
        *end += String::from(one.unchecked_into::<Intl::SegmentData>().segment()).len();
        Some(*end)
    });
    ends.collect()
}

/// For each byte of a text, and its end, how many UTF-16 units come before its character.
#[cfg(feature = "text")]
fn units(text: &str) -> Vec<u32> {
    let mut out = Vec::with_capacity(text.len() + 1);
    let mut units = 0;
    for c in text.chars() {
        out.resize(out.len() + c.len_utf8(), units);
        units += c.len_utf16() as u32;
    }
    out.push(units);
    out
}

/// What the host knows of Unicode.
pub(crate) const UNICODE: Unicode = Unicode { normalize, clusters };

#[wasm_bindgen]
impl RawTokenizer {
    /// Reads a file.
    #[wasm_bindgen(constructor)]
    pub fn new(file: &[u8]) -> Result<RawTokenizer, JsValue> {
        let t = match file.starts_with(b"GGUF") {
            true => Gguf::parse(file).and_then(|g| Tokenizer::from_gguf(&g, UNICODE)),
            false => Tokenizer::from_json(file, UNICODE),
        };
        t.map(RawTokenizer).map_err(throw)
    }

    /// Tokens of a text.
    #[cfg(not(feature = "text"))]
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, JsValue> {
        self.0.encode_ids(text, special).map_err(throw)
    }

    /// Windows of tokens. Each is its number of tokens, their ids, their types, the texts they are from (2 for none), and
    /// where they begin and end there in UTF-16 units. `how` are a `max_length` (0: the file's), a strategy and a side, both
    /// in the order of their variants, whether offsets are wanted, and a stride; without a stride there is one window.
    #[cfg(feature = "text")]
    pub fn windows(&self, text: &str, second: Option<String>, special: bool, how: &[u32]) -> Result<Vec<u32>, JsValue> {
        let number = |i: usize| how.get(i).map(|&n| n as usize);
        let mut truncation = self.0.truncation();
        truncation.max_length = number(0).filter(|&n| n > 0).unwrap_or(truncation.max_length);
        truncation.strategy = match number(1) {
            Some(0) => TruncationStrategy::LongestFirst,
            Some(1) => TruncationStrategy::OnlyFirst,
            Some(2) => TruncationStrategy::OnlySecond,
            _ => truncation.strategy,
        };
        truncation.side = match number(2) {
            Some(0) => TruncationSide::Right,
            Some(1) => TruncationSide::Left,
            _ => truncation.side,
        };
        truncation.stride = number(4).unwrap_or_default();
        let (offsets, overflow) = (number(3) == Some(1), number(4).is_some());
        let options = EncodeOptions { special, offsets, truncation: Some(truncation), overflow };
        let windows = self.0.encode_windows(text, second.as_deref(), &options).map_err(throw)?;
        let units = [text, second.as_deref().unwrap_or_default()].map(|t| if offsets { units(t) } else { Vec::new() });
        let mut out = Vec::new();
        for w in windows {
            out.push(w.ids.len() as u32);
            out.extend(&w.ids);
            out.extend(&w.type_ids);
            out.extend(w.sequence_ids.iter().map(|s| s.unwrap_or(2)));
            let tokens = || w.offsets.iter().zip(&w.sequence_ids);
            let unit = |at: usize, sequence: &Option<u32>| {
                let of = sequence.and_then(|s| units.get(s as usize));
                of.and_then(|u| u.get(at).copied()).unwrap_or(0)
            };
            out.extend(tokens().map(|(o, s)| unit(o.0, s)));
            out.extend(tokens().map(|(o, s)| unit(o.1, s)));
        }
        Ok(out)
    }

    /// The text of tokens.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, JsValue> {
        self.0.decode_with(ids, skip_special).map_err(throw)
    }

    /// A token's number.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.0.id(token)
    }

    /// A number's token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.0.token(id).map(str::to_owned)
    }

    /// How many tokens there are.
    pub fn size(&self) -> u32 {
        self.0.len() as u32
    }

    /// Cuts texts to so many tokens; 0 leaves them whole.
    #[wasm_bindgen(js_name = setMaxLength)]
    pub fn set_max_length(&mut self, tokens: u32) {
        self.0.set_max_length((tokens > 0).then_some(tokens as usize));
    }
}
