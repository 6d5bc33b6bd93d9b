//! Language models for JavaScript: what is not the device's. Files' metadata and tensors come in and buffers go out, graphs go out as
//! bytes, logits come in and tokens go out, tokens come in and text goes out. The main module has the values and runs the graphs.

use crate::model::{buffers, entries, inputs, metadata};
use crate::text::{RawTokenizer, UNICODE};
use crate::throw;
use gradloom_core::dtype::DType;
use gradloom_core::llm::{self, Grammar, Lora, Matcher, Remote, Sampler, SamplingOptions, Stream, Vocabulary, Wanted};
use gradloom_core::text::Tokenizer;
use gradloom_core::{Error, Result};
use js_sys::{Array, Object, Uint8Array};
use std::sync::Arc;
use wasm_bindgen::prelude::*;

/// A model of GGUF files or a folder of Hugging Face's, and the bytes of its tokens once a form was asked for.
#[wasm_bindgen]
pub struct RawModel(Remote, Option<Arc<Vocabulary>>);

#[wasm_bindgen]
impl RawModel {
    /// Of the first bytes of a file of `len`. An error may mean that they are too few: nothing tells in advance how many it takes.
    #[wasm_bindgen(constructor)]
    pub fn new(start: &[u8], len: f64) -> std::result::Result<RawModel, JsValue> {
        Ok(RawModel(Remote::new(start, len as u64).map_err(throw)?, None))
    }

    /// Of a folder's `config.json`, and its `generation_config.json` if it has one.
    #[wasm_bindgen(js_name = ofFolder)]
    pub fn of_folder(config: &[u8], generation: Option<Vec<u8>>) -> std::result::Result<RawModel, JsValue> {
        Ok(RawModel(Remote::from_config(config, generation.as_deref()).map_err(throw)?, None))
    }

    /// The device has an instruction for products of pairs of 16-bit integers: before the first weight. `several`: use it
    /// for prompts too, not only for single tokens.
    #[wasm_bindgen(js_name = multiplyPairs)]
    pub fn multiply_pairs(&mut self, several: bool) {
        self.0.multiply_pairs(several);
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

    /// Tokens that end a text.
    pub fn ends(&self) -> Vec<u32> {
        self.0.ends().to_vec()
    }

    /// Takes the tensor of that number of its bytes: the buffers that the main module is to make.
    pub fn weight(&mut self, number: usize, bytes: Vec<u8>) -> std::result::Result<Array, JsValue> {
        self.0.weight(number, bytes).map(buffers).map_err(throw)
    }

    /// Takes an adapter of a GGUF file, or of PEFT's two files: before the model is built.
    pub fn adapter(&mut self, config: Option<Vec<u8>>, file: &[u8], scale: f64) -> std::result::Result<(), JsValue> {
        self.0.adapter(config.as_deref(), file, scale).map_err(throw)
    }

    /// `[buffers, [number, bytes][]]`: what the main module makes, and what it then writes, so that the adapter of that number is in use, or none.
    #[wasm_bindgen(js_name = useAdapter)]
    pub fn use_adapter(&mut self, which: Option<usize>) -> std::result::Result<Array, JsValue> {
        let (made, written) = self.0.use_adapter(which).map_err(throw)?;
        let one = |(number, bytes): &(u32, Vec<u8>)| Array::of2(&(*number).into(), &Uint8Array::from(&**bytes));
        Ok(Array::of2(&buffers(made), &written.iter().map(one).collect::<Array>()))
    }

    /// Makes the model of what came, with room for so many tokens, and says `[room, vocabulary, context, layers, width]`. Keys and values have
    /// the dtype of that name.
    pub fn build(&mut self, room: usize, cache: &str) -> std::result::Result<Vec<f64>, JsValue> {
        let cache = DType::from_name(cache).unwrap_or(DType::F32);
        let mut run = || -> Result<Vec<f64>> {
            self.0.build(room, cache)?;
            let d = self.0.decoder()?;
            let c = d.config();
            Ok([d.capacity(), d.vocabulary()?, c.context, c.layers, c.width].map(|n| n as f64).to_vec())
        };
        run().map_err(throw)
    }

    /// The graph that reads `n` tokens: `[bytes, inputs, buffers, tokens, values, best]`. An input is a buffer's number, or
    /// `[name, least, most]` of a variable. `wanted` is `next`; `every` for logits and best tokens after each token; or
    /// `states`, where there is no best token, and the values are states, not logits. `draws` is how far the main module's
    /// random stream is.
    pub fn graph(&mut self, n: usize, wanted: &str, draws: u32) -> std::result::Result<Array, JsValue> {
        let wanted = match wanted {
            "states" => Wanted::States,
            "every" => Wanted::Every,
            _ => Wanted::Next,
        };
        self.0.set_draws(draws);
        let g = self.0.graph(n, wanted).map_err(throw)?;
        let (bytes, inputs) = (Uint8Array::from(&*g.bytes), inputs(&g.inputs));
        let out = Array::of5(&bytes, &inputs, &buffers(g.buffers), &g.tokens.into(), &g.values.into());
        out.push(&g.best.map_or(JsValue::UNDEFINED, JsValue::from));
        Ok(out)
    }

    /// An adapter begins to learn from texts, whose tokens come one text after the other: `[bytes, inputs, buffers, tokens, targets, parameters]`, a
    /// graph of the loss and the numbers of buffers. `how` is the rank, alpha, the seed, the texts of a step, and tokens of each. The adapter of
    /// number `from` goes on learning.
    pub fn learn(
        &mut self,
        tokens: &[u32],
        lengths: &[u32],
        targets: Vec<String>,
        how: &[f64],
        from: Option<usize>,
    ) -> std::result::Result<Array, JsValue> {
        let &[rank, alpha, seed, batch, time] = how else {
            return Err(throw(Error::value("finetune", "options are missing")));
        };
        let mut rest = tokens;
        let mut texts = Vec::with_capacity(lengths.len());
        for &n in lengths {
            let (text, later) = rest.split_at((n as usize).min(rest.len()));
            texts.push(text.to_vec());
            rest = later;
        }
        let lora = Lora { rank: rank as usize, alpha, targets, seed: seed as u64 };
        let l = self.0.learn(&texts, &lora, from, batch as usize, time as usize).map_err(throw)?;
        let [tokens, targets] = l.given;
        let out = Array::of5(
            &Uint8Array::from(&*l.bytes),
            &l.inputs.into(),
            &buffers(l.buffers),
            &tokens.into(),
            &targets.into(),
        );
        out.push(&l.parameters.into());
        Ok(out)
    }

    /// The bytes of the tokens and targets of a step.
    pub fn lesson(&self, step: usize) -> std::result::Result<Array, JsValue> {
        let [tokens, targets] = self.0.batch_values(step).map_err(throw)?;
        let bytes = |list: Vec<i32>| list.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
        Ok(Array::of2(&Uint8Array::from(&*bytes(tokens)), &Uint8Array::from(&*bytes(targets))))
    }

    /// What was learned, of the bytes of the parameters' values: PEFT's `[config, file]`, and whether graphs are to be made anew. The
    /// adapter is the last one from now on.
    pub fn learned(&mut self, values: Vec<Uint8Array>) -> std::result::Result<Array, JsValue> {
        let floats = |list: &Uint8Array| -> Vec<f32> {
            list.to_vec().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        };
        let (l, is_new) = self.0.learned(values.iter().map(floats).collect()).map_err(throw)?;
        Ok(Array::of3(&l.config.into(), &Uint8Array::from(&*l.file), &is_new.into()))
    }

    /// From now on only tokens come that a grammar lets come, which the module of forms has made.
    pub fn follow(
        &mut self,
        writer: &mut RawWriter,
        tokenizer: &RawTokenizer,
        grammar: &[u32],
    ) -> std::result::Result<(), JsValue> {
        let mut run = || -> Result<()> {
            let size = self.0.decoder()?.vocabulary()?;
            let bytes = self.1.get_or_insert_with(|| Arc::new(Vocabulary::new(&tokenizer.0, size)));
            let grammar = Arc::new(Grammar::from_words(grammar).unwrap_or_default());
            let matcher = Matcher::new(&grammar, bytes)?;
            writer.shows_calls = matcher.has_calls();
            writer.sampler.constrain(matcher, self.0.ends());
            Ok(())
        };
        run().map_err(throw)
    }

    /// At most `most` tokens that may follow the text, guessed from repetitions in it.
    pub fn guess(&self, text: &[u32], most: usize) -> Vec<u32> {
        // A state would be that of wrong guesses, too
        let can_check = self.0.decoder().is_ok_and(|d| !d.is_recurrent());
        if can_check { llm::guess(text, most) } else { Vec::new() }
    }

    /// How many of the first `same` tokens of a text, of which `read` were read, need not be read again. Caches were written up to the
    /// position `written`.
    pub fn kept(&self, read: usize, written: usize, same: usize) -> usize {
        self.0.decoder().map_or(0, |d| d.kept(read, written, same))
    }

    /// In how many parts `n` tokens are read after `position` others: of each part how long its graph is, and how many of the tokens it
    /// reads.
    pub fn parts(&self, n: usize, position: usize) -> std::result::Result<Vec<u32>, JsValue> {
        let decoder = self.0.decoder().map_err(throw)?;
        let all = llm::chunks(decoder.lengths(), n, position, decoder.capacity());
        Ok(all.into_iter().flat_map(|(len, n)| [len as u32, n as u32]).collect())
    }
}

/// Tokens of logits, and text of tokens.
#[wasm_bindgen]
pub struct RawWriter {
    sampler: Sampler,
    stream: Stream,
    /// Whether the text has the markers of calls of functions.
    shows_calls: bool,
}

#[wasm_bindgen]
impl RawWriter {
    /// `how` is the temperature, top-k, top-p, min-p, the penalties of repetition, presence and frequency, and the seed.
    #[wasm_bindgen(constructor)]
    pub fn new(
        how: &[f64],
        biased: &[u32],
        biases: &[f32],
        stops: Vec<String>,
    ) -> std::result::Result<RawWriter, JsValue> {
        let &[temperature, top_k, top_p, min_p, repetition, presence, frequency, seed] = how else {
            return Err(throw(Error::value("sample", "options are missing")));
        };
        let bias = biased.iter().copied().zip(biases.iter().copied()).collect();
        let top_k = if top_k >= 0.0 { top_k as usize } else { 0 };
        let how = SamplingOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition,
            presence,
            frequency,
            bias,
            seed: seed as u64,
        };
        let sampler = Sampler::new(&how).map_err(throw)?;
        Ok(RawWriter { sampler, stream: Stream::new(&stops), shows_calls: false })
    }

    /// Is it the most likely token always?
    #[wasm_bindgen(js_name = isGreedy)]
    pub fn is_greedy(&self) -> bool {
        self.sampler.is_greedy()
    }

    /// Notes the tokens of the prompt.
    pub fn prompt(&mut self, tokens: &[u32]) {
        tokens.iter().for_each(|&t| self.sampler.see_prompt(t));
    }

    /// The next token of logits, f32 as bytes.
    pub fn choose(&mut self, logits: &[u8]) -> std::result::Result<u32, JsValue> {
        let mut list: Vec<f32> = logits.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let token = self.sampler.choose(&mut list);
        match self.sampler.failed() {
            Some(e) => Err(throw(e.clone())),
            None => Ok(token),
        }
    }

    /// Is the text whole, so that nothing can follow?
    #[wasm_bindgen(js_name = isComplete)]
    pub fn is_complete(&self) -> bool {
        self.sampler.is_complete()
    }

    /// The text that a token makes certain.
    pub fn push(&mut self, token: u32, tokenizer: &RawTokenizer) -> std::result::Result<String, JsValue> {
        self.sampler.see(token);
        let decode = self.decode();
        self.stream.push(token, &|ids| decode(&tokenizer.0, ids)).map_err(throw)
    }

    /// The rest of the text.
    pub fn finish(&mut self, tokenizer: &RawTokenizer) -> std::result::Result<String, JsValue> {
        let decode = self.decode();
        self.stream.finish(&|ids| decode(&tokenizer.0, ids)).map_err(throw)
    }

    /// Did a stop string come?
    pub fn stopped(&self) -> bool {
        self.stream.stopped()
    }
}

impl RawWriter {
    /// What makes text of tokens.
    fn decode(&self) -> fn(&Tokenizer, &[u32]) -> Result<String> {
        if self.shows_calls { llm::text_with_calls } else { Tokenizer::decode }
    }
}
