//! Encoders for JavaScript: what is not the device's. Files' metadata and tensors come in and buffers go out, graphs go out as bytes,
//! texts come in and what is written for each run of a graph goes out. The main module has the values and runs the graphs.

use crate::model::{buffers, entries, inputs, metadata};
use crate::text::{RawTokenizer, UNICODE};
use crate::throw;
use gradloom_core::llm::{Pooler, RemoteEncoder, packs};
use gradloom_core::text::{Encoding, Tokenizer};
use gradloom_core::{Error, Result};
use js_sys::{Array, Object, Uint8Array};
use wasm_bindgen::prelude::*;

/// A model of GGUF files or a folder of Hugging Face's.
#[wasm_bindgen]
pub struct RawEncoder(RemoteEncoder);

/// Texts, or pairs of them, as tokens.
#[wasm_bindgen]
pub struct RawTexts(Vec<Encoding>);

#[wasm_bindgen]
impl RawEncoder {
    /// Of the first bytes of a file of `len`. An error may mean that they are too few: nothing tells in advance how many it takes.
    #[wasm_bindgen(constructor)]
    pub fn new(start: &[u8], len: f64) -> std::result::Result<RawEncoder, JsValue> {
        RemoteEncoder::new(start, len as u64).map(RawEncoder).map_err(throw)
    }

    /// Of a folder's `config.json`, its `modules.json` if it has one, and the files of these names, which that one refers to.
    #[wasm_bindgen(js_name = ofFolder)]
    pub fn of_folder(
        config: &[u8],
        modules: Option<Vec<u8>>,
        names: Vec<String>,
        files: Vec<Uint8Array>,
    ) -> std::result::Result<RawEncoder, JsValue> {
        let read = |name: &str| match names.iter().position(|n| n == name).and_then(|i| files.get(i)) {
            Some(file) => Ok(file.to_vec()),
            None => Err(Error::Input { name: name.to_owned(), what: "`modules.json` refers to it".into() }),
        };
        let pooler = modules.map_or_else(|| Ok(Pooler::default()), |m| Pooler::from_modules(&m, &read));
        pooler.and_then(|p| RemoteEncoder::from_config(config, p)).map(RawEncoder).map_err(throw)
    }

    /// Takes a folder's index of safetensors files, and names these in the order in which they come.
    pub fn shards(&mut self, index: &[u8]) -> std::result::Result<Vec<String>, JsValue> {
        self.0.shards(index).map_err(throw)
    }

    /// Takes the first bytes of the next file of a split GGUF file, or of a safetensors file of that name.
    pub fn part(&mut self, start: &[u8], len: f64, name: &str) -> std::result::Result<(), JsValue> {
        self.0.part(start, len as u64, name).map_err(throw)
    }

    /// Each tensor's `[file, start, end]`: where its bytes lie in which file.
    pub fn entries(&self) -> Array {
        entries(self.0.places())
    }

    /// What kind of model it is, as GGUF names it.
    pub fn architecture(&self) -> String {
        self.0.arch().name.to_owned()
    }

    /// What a GGUF file says of itself, but for long lists.
    pub fn metadata(&self) -> Object {
        metadata(self.0.index())
    }

    /// The tokenizer of a GGUF file.
    pub fn tokenizer(&self) -> std::result::Result<RawTokenizer, JsValue> {
        Tokenizer::from_gguf(self.0.index(), UNICODE).map(RawTokenizer).map_err(throw)
    }

    /// Takes the tensor of that number of its bytes: the buffers that the main module is to make.
    pub fn weight(&mut self, number: usize, bytes: Vec<u8>) -> std::result::Result<Array, JsValue> {
        self.0.weight(number, bytes).map(buffers).map_err(throw)
    }

    /// Makes the model of what came, for texts of so many tokens, and says `[tokens, vocabulary, context, layers, width, outputs, labels]`;
    /// without a classification head there are 0 labels.
    pub fn build(&mut self, capacity: usize) -> std::result::Result<Vec<f64>, JsValue> {
        let mut run = || -> Result<Vec<f64>> {
            self.0.build(capacity)?;
            let e = self.0.encoder()?;
            let (c, labels) = (e.config(), e.labels().unwrap_or(0));
            let sizes = [e.capacity(), e.vocabulary()?, c.context, c.layers, c.width, e.outputs(), labels];
            Ok(sizes.map(|n| n as f64).to_vec())
        };
        run().map_err(throw)
    }

    /// The graph that reads `n` tokens: `[bytes, inputs, buffers, given, values]`. An input is a buffer's number, or `[name, least, most]`
    /// of a variable; before each run the buffers `given` are written. `draws` is how far the main module's random stream is.
    pub fn graph(&mut self, n: usize, draws: u32) -> std::result::Result<Array, JsValue> {
        self.0.set_draws(draws);
        let g = self.0.graph(n).map_err(throw)?;
        let given: Array = g.given.iter().map(|n| JsValue::from(*n)).collect();
        let (bytes, inputs) = (Uint8Array::from(&*g.bytes), inputs(&g.inputs));
        Ok(Array::of5(&bytes, &inputs, &buffers(g.buffers), &given, &g.values.into()))
    }

    /// `[used, tokens, kinds, positions, texts, shares]` of `count` texts from number `from` on, in a pack of `n` tokens: a number, and the
    /// bytes of the buffers that are given.
    pub fn inputs(&self, texts: &RawTexts, from: usize, count: usize, n: usize) -> std::result::Result<Array, JsValue> {
        let list: Vec<&Encoding> = texts.0.iter().skip(from).take(count).collect();
        let i = self.0.encoder().and_then(|e| e.inputs(n, &list)).map_err(throw)?;
        let out = Array::of1(&(i.used as u32).into());
        for list in [&i.tokens, &i.kinds, &i.positions, &i.texts] {
            let bytes: Vec<u8> = list.iter().flat_map(|i| i.to_le_bytes()).collect();
            out.push(&Uint8Array::from(&*bytes));
        }
        let bytes: Vec<u8> = i.shares.iter().flat_map(|x| x.to_le_bytes()).collect();
        out.push(&Uint8Array::from(&*bytes));
        Ok(out)
    }
}

#[wasm_bindgen]
impl RawTexts {
    /// No texts yet.
    #[wasm_bindgen(constructor)]
    #[allow(clippy::new_without_default, reason = "JavaScript has no Default")]
    pub fn new() -> RawTexts {
        RawTexts(Vec::new())
    }

    /// Adds a text.
    pub fn text(&mut self, tokenizer: &RawTokenizer, text: &str) -> std::result::Result<(), JsValue> {
        self.0.push(tokenizer.0.encode_with(text, None, true).map_err(throw)?);
        Ok(())
    }

    /// Adds a text of these tokens.
    pub fn tokens(&mut self, ids: Vec<u32>) {
        self.0.push(Encoding { type_ids: vec![0; ids.len()], ids, ..Encoding::default() });
    }

    /// Adds a pair, of which the longer text is cut where both have more than `most` tokens.
    pub fn pair(
        &mut self,
        tokenizer: &RawTokenizer,
        first: &str,
        second: &str,
        most: usize,
    ) -> std::result::Result<(), JsValue> {
        self.0.push(tokenizer.0.encode_pair_within(first, second, most).map_err(throw)?);
        Ok(())
    }

    /// In which packs the texts are run, none of which may have more than `most` tokens: of each its size in tokens, and the number of
    /// the texts in it.
    pub fn packs(&self, most: usize) -> std::result::Result<Vec<u32>, JsValue> {
        let lengths: Vec<usize> = self.0.iter().map(|t| t.ids.len()).collect();
        if let Some(n) = lengths.iter().find(|&&n| n == 0 || n > most) {
            return Err(throw(Error::value("embed", format!("a text of {n} tokens with room for {most}"))));
        }
        Ok(packs(&lengths).into_iter().flat_map(|(n, count)| [n as u32, count as u32]).collect())
    }
}
