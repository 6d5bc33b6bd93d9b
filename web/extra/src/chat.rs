//! Chat templates for JavaScript.

use crate::throw;
use gradloom_core::Result;
use gradloom_core::io::gguf::Gguf;
use gradloom_core::io::json::Json;
use gradloom_core::text::{ChatOptions, ChatTemplate, DateTime};
use wasm_bindgen::prelude::*;

/// A chat template, of a `tokenizer_config.json`, a GGUF file or its source alone.
#[wasm_bindgen]
pub struct RawChatTemplate(ChatTemplate);

#[wasm_bindgen]
impl RawChatTemplate {
    /// Reads a file; of several templates in it `name` chooses one.
    #[wasm_bindgen(constructor)]
    pub fn new(file: &[u8], name: Option<String>) -> std::result::Result<RawChatTemplate, JsValue> {
        let t = match file.starts_with(b"GGUF") {
            true => Gguf::parse(file).and_then(|g| ChatTemplate::from_gguf(&g)),
            false => ChatTemplate::from_config(file, name.as_deref()),
        };
        t.map(RawChatTemplate).map_err(throw)
    }

    /// Compiles a template.
    #[wasm_bindgen(js_name = fromSource)]
    pub fn from_source(source: &str) -> std::result::Result<RawChatTemplate, JsValue> {
        ChatTemplate::new(source).map(RawChatTemplate).map_err(throw)
    }

    /// Sets a special token's text.
    #[wasm_bindgen(js_name = setToken)]
    pub fn set_token(&mut self, name: &str, text: &str) {
        self.0.set_token(name, text);
    }

    /// The text of messages (JSON), with tools (JSON) and other variables (a JSON object). `now` is the year, month, day, hour,
    /// minute and second.
    pub fn apply(
        &self,
        messages: &str,
        prompt: bool,
        tools: Option<String>,
        variables: &str,
        now: &[u32],
    ) -> std::result::Result<String, JsValue> {
        self.run(messages, prompt, tools, variables, now).map_err(throw)
    }
}

impl RawChatTemplate {
    fn run(&self, messages: &str, prompt: bool, tools: Option<String>, variables: &str, now: &[u32]) -> Result<String> {
        let now = match *now {
            [year, month, day, hour, minute, second] => {
                Some(DateTime { year: year as i32, month, day, hour, minute, second })
            }
            _ => None,
        };
        let variables = match Json::parse(variables.as_bytes())? {
            Json::Object(list) => list,
            _ => Vec::new(),
        };
        let tools = tools.map(|t| Json::parse(t.as_bytes())).transpose()?;
        let options = ChatOptions { add_generation_prompt: prompt, tools, variables, now };
        self.0.apply(&Json::parse(messages.as_bytes())?, &options)
    }
}
