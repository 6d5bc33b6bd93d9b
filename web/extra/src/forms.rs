//! The forms that generated text can be given, for JavaScript: grammars of JSON schemas, of GBNF and of function calls, and
//! what finds these calls in text. A grammar goes as numbers to the module of language models, which has the matcher.

use crate::throw;
use gradloom_core::Result;
use gradloom_core::io::json::Json;
use gradloom_core::llm::{Calls, Grammar, Splitter};
use wasm_bindgen::prelude::*;

fn words(g: Result<Grammar>) -> std::result::Result<Vec<u32>, JsValue> {
    g.map(|g| g.to_words()).map_err(throw)
}

/// A grammar in GBNF.
#[wasm_bindgen(js_name = grammarOfGbnf)]
pub fn grammar_of_gbnf(text: &str) -> std::result::Result<Vec<u32>, JsValue> {
    words(Grammar::from_gbnf(text))
}

/// The grammar of JSON texts that fit a schema.
#[wasm_bindgen(js_name = grammarOfSchema)]
pub fn grammar_of_schema(schema: &str) -> std::result::Result<Vec<u32>, JsValue> {
    words(Json::parse(schema.as_bytes()).and_then(|s| Grammar::from_schema(&s)))
}

/// The grammar of texts in which functions of these descriptions (JSON) may be called, must be if `must`, or that of a name.
#[wasm_bindgen(js_name = grammarOfTools)]
pub fn grammar_of_tools(tools: &str, must: bool, name: Option<String>) -> std::result::Result<Vec<u32>, JsValue> {
    let calls = match name {
        Some(name) => Calls::This(name),
        None if must => Calls::Must,
        None => Calls::May,
    };
    words(Json::parse(tools.as_bytes()).and_then(|tools| Grammar::from_tools(&tools, &calls, true)))
}

/// Tells calls of functions from text.
#[wasm_bindgen]
pub struct RawSplitter(Splitter);

#[wasm_bindgen]
impl RawSplitter {
    /// For functions of these descriptions (JSON).
    #[wasm_bindgen(constructor)]
    pub fn new(tools: &str) -> std::result::Result<RawSplitter, JsValue> {
        Json::parse(tools.as_bytes()).map(|tools| RawSplitter(Splitter::new(&tools))).map_err(throw)
    }

    /// Takes new text; gives the text that is certainly no part of a call.
    pub fn push(&mut self, new: &str) -> String {
        self.0.push(new)
    }

    /// The rest of the text, and then each call's name and arguments, the latter as JSON.
    pub fn finish(&mut self) -> Vec<String> {
        let (rest, calls) = self.0.finish();
        std::iter::once(rest).chain(calls.into_iter().flat_map(|c| [c.name, c.arguments])).collect()
    }
}
