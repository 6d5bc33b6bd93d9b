//! Tokenizers for JavaScript. What Unicode knows is the host's own.

use crate::throw;
use gradloom_core::io::gguf::Gguf;
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

    /// Tokens of one or two texts; then as many numbers that say which text each token is of.
    pub fn encode(&self, text: &str, second: Option<String>, special: bool) -> Result<Vec<u32>, JsValue> {
        let e = self.0.encode_with(text, second.as_deref(), special).map_err(throw)?;
        Ok([e.ids, e.type_ids].concat())
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
