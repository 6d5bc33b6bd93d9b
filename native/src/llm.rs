//! Runs language models from files: the loop over tokens that [`gradloom_core::llm`] leaves to the host.

mod adapters;
mod background;
mod batch;
mod embedder;
mod files;
mod learn;
mod scoring;

pub use adapters::AdapterFile;
pub use embedder::Embedder;
pub use gradloom_core::llm::*;
pub use learn::Finetune;
pub use scoring::{GuessStats, Likelihood};

use crate::contain::contain;
use crate::text::{ChatTemplate, Tokenizer};
use crate::{NativeHost, Runtime};
use background::Background;
use gradloom_core::device::Device;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Counters, Plan, Replay};
pub use gradloom_core::io::gguf::Activations;
use gradloom_core::target::Target;
use gradloom_core::tensor::{ConstantCache, Tensor};
use gradloom_core::uop::Op;
use gradloom_core::{DType, Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A language model on a device, with the text, or the several texts, that it has read so far.
pub struct LanguageModel {
    rt: Runtime,
    decoder: Decoder,
    ready: BTreeMap<Kind, Ready>,
    /// Constants that were computed from its weights, shared by all plans.
    folded: ConstantCache,
    /// The tokens of each text that have been read.
    texts: Vec<Vec<u32>>,
    /// How far the caches of each text were written since it began at position 0, padding and wrong guesses included.
    written: Vec<usize>,
    /// The index of the text that [`LanguageModel::read`] continues.
    text: usize,
    /// The kind of plan that ran last.
    last: Option<Kind>,
    /// Its tokenizer and chat template, which are loaded in the background.
    known: Background<files::Text>,
    ends: Vec<u32>,
    /// How it makes embeddings.
    pooler: Pooler,
    /// The adapters by name, and the index of the one in use.
    adapters: Vec<(String, Adapter)>,
    adapter: Option<usize>,
}

/// The kinds of plans, by their inputs and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Reads this many tokens; gives the logits of the next token.
    Next(usize),
    /// Reads this many tokens; gives the logits after each of them.
    Every(usize),
    /// Reads this many tokens; gives their hidden states.
    States(usize),
    /// Reads one token of each of this many texts.
    Each(usize),
}

/// A graph with its plan.
struct Ready {
    io: Io,
    replay: Replay,
    /// Tensors that keep the plan's inputs alive.
    _held: Vec<Tensor>,
}

/// The tensors that are written before a plan runs, and read after it.
struct Io {
    tokens: Tensor,
    /// The positions of the texts, for [`Kind::Each`].
    positions: Option<Tensor>,
    /// Logits, or hidden states.
    values: Tensor,
    /// The most likely tokens, if the plan gives logits.
    best: Option<Tensor>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model chose a token that ends the text, or the grammar's text is complete.
    Token,
    /// The wanted number of tokens was generated.
    Length,
    /// The caller's function returned false.
    Caller,
    /// The text has reached the model's capacity.
    Room,
}

/// Options of loading a language model.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The capacity in tokens of each text; 0 for the model's context length, at most 4096.
    pub capacity: usize,
    /// The number of texts.
    pub texts: usize,
    /// The form of the vectors that quantised matrices of GGUF files are multiplied with. `None` takes the fastest on
    /// this device that keeps logits within two thousandths.
    pub activations: Option<Activations>,
    /// The dtype of the KV cache: f32; f16, which takes half the memory; or i8, which takes about a quarter: bytes with a
    /// factor for each head of each token.
    pub cache: DType,
    /// Adapters that [`LanguageModel::use_adapter`] can put into use.
    pub adapters: Vec<AdapterFile>,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { capacity: 0, texts: 1, activations: None, cache: DType::F32, adapters: Vec::new() }
    }
}

impl LanguageModel {
    /// Loads a GGUF file (of a split model any file, `x-00001-of-00003.gguf`), or a folder with `config.json`,
    /// safetensors and tokenizer files. `capacity` is in tokens (0 for the model's context length, at most
    /// 4096).
    pub fn load(path: &Path, device: Box<dyn Device>, host: NativeHost, capacity: usize) -> Result<LanguageModel> {
        LanguageModel::load_for(path, device, host, capacity, 1)
    }

    /// As [`LanguageModel::load`] for several texts, each with caches for `capacity` tokens.
    pub fn load_for(
        path: &Path,
        device: Box<dyn Device>,
        host: NativeHost,
        capacity: usize,
        texts: usize,
    ) -> Result<LanguageModel> {
        LanguageModel::load_with(path, device, host, &LoadOptions { capacity, texts, ..LoadOptions::default() })
    }

    /// As [`LanguageModel::load`], with options.
    pub fn load_with(
        path: &Path,
        device: Box<dyn Device>,
        host: NativeHost,
        options: &LoadOptions,
    ) -> Result<LanguageModel> {
        let &LoadOptions { capacity, texts, activations, cache, ref adapters } = options;
        let activations = activations_for(device.target(), activations);
        let mut rt = Runtime::with_host(device, host);
        let session = rt.session().clone();
        let capacity = if capacity == 0 { 4096 } else { capacity };
        let (decoder, known, ends, pooler) = contain(|| match path.is_dir() {
            true => files::from_folder(path, &session, capacity),
            false => files::from_gguf(path, &session, capacity, activations),
        })?;
        let decoder = if activations == Activations::F16 { decoder.with_half_precision()? } else { decoder };
        let decoder = if cache == DType::F32 { decoder } else { decoder.with_cache(cache)? };
        let decoder = if texts == 1 { decoder } else { decoder.with_sequences(texts)? };
        let adapters = contain(|| adapters::read(adapters, &decoder))?;
        let decoder = match adapters.is_empty() {
            true => decoder,
            false => decoder.with_adapters(&adapters.iter().map(|a| a.1.clone()).collect::<Vec<_>>())?,
        };
        let buffers = decoder.caches().into_iter().chain(decoder.adapter_buffers()).chain(decoder.stacks());
        rt.realize(&buffers.collect::<Vec<_>>())?;
        let (ready, texts, written) = (BTreeMap::new(), vec![Vec::new(); texts], vec![0; texts]);
        let folded = ConstantCache::default();
        let (text, last, adapter) = (0, None, None);
        Ok(LanguageModel {
            rt,
            decoder,
            ready,
            folded,
            texts,
            written,
            text,
            last,
            known,
            ends,
            pooler,
            adapters,
            adapter,
        })
    }

    /// The model's decoder, which has its graphs and hyperparameters.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Its tokenizer, if its files have a supported one.
    pub fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        self.known.get().0.as_ref().ok()
    }

    /// Its tokenizer.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` and others that say why its files have none that is supported.
    pub fn need_tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        self.known.get().0.as_ref().map_err(Error::clone)
    }

    /// Its chat template.
    pub fn chat(&self) -> Option<&Arc<ChatTemplate>> {
        self.known.get().1.as_ref().ok()
    }

    /// Its chat template.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` and others that say why its files have none that is supported.
    pub fn need_chat(&self) -> Result<&Arc<ChatTemplate>> {
        self.known.get().1.as_ref().map_err(Error::clone)
    }

    /// The tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Counts of what the engine did so far.
    pub fn counters(&self) -> Counters {
        self.rt.counters()
    }

    /// The runtime.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.rt
    }

    /// The plan that reads this many tokens at once, if it was made.
    pub fn replay(&self, len: usize) -> Option<&Replay> {
        self.ready.get(&Kind::Next(len)).map(|r| &r.replay)
    }

    /// The plan that reads this many tokens at the end of the text, and for each of its calls the shortest time in
    /// seconds over some rounds. The text is forgotten.
    ///
    /// # Errors
    /// `E_VALUE` for no token, or more than the capacity.
    pub fn profile(&mut self, tokens: usize, rounds: usize) -> Result<(Plan, Vec<f64>)> {
        let capacity = self.decoder.capacity();
        if tokens == 0 || tokens > capacity {
            return Err(Error::value("generate", format!("the time of {tokens} tokens with room for {capacity}")));
        }
        let (kind, read) = (Kind::Next(tokens), self.texts[self.text].len());
        self.texts[self.text].clear();
        if !self.ready.contains_key(&kind) {
            self.chunk(kind, tokens, &vec![0; tokens])?;
            self.texts[self.text].clear();
        }
        let none = || Error::Internal("a plan for these tokens was made".into());
        let replay = self.ready.get(&kind).map(|r| r.replay.clone()).ok_or_else(none)?;
        // Several tokens are the last ones of the text read again; a single one follows the text
        let at = if tokens == 1 { read } else { read.saturating_sub(tokens) }.min(capacity - tokens);
        let session = self.rt.session().clone();
        let engine = self.rt.engine();
        engine.set_var(POSITION, Scalar::Int(at as i64));
        engine.set_var(LAST, Scalar::Int(tokens as i64 - 1));
        engine.set_var(SEQUENCE, Scalar::Int(self.text as i64));
        let begin = Instant::now();
        let mut clock = || begin.elapsed().as_secs_f64();
        let mut best: Vec<f64> = Vec::new();
        for _ in 0..rounds.max(1) {
            let times = engine.time_calls(&mut session.state(), &replay, &Default::default(), &mut clock)?;
            best = if best.is_empty() { times } else { best.iter().zip(&times).map(|(a, b)| a.min(*b)).collect() };
        }
        Ok((replay.plan().clone(), best))
    }

    /// Begins a text. The prefix that it shares with the previous text is not read again.
    ///
    /// # Errors
    /// `E_VALUE` for no token, unknown ones, or more than the capacity.
    pub fn begin(&mut self, tokens: &[u32]) -> Result<()> {
        let Some((_, all_but_last)) = tokens.split_last() else {
            return Err(Error::value("generate", "the prompt is empty"));
        };
        // The last token is always read, because its logits are wanted
        let same = self.shared(self.text, all_but_last);
        self.texts[self.text].truncate(same);
        self.read(&tokens[same..])
    }

    /// Reads further tokens of the text.
    pub fn read(&mut self, tokens: &[u32]) -> Result<()> {
        self.read_as(tokens, Kind::Next, |_| Ok(()))
    }

    /// Reads further tokens, and calls `then` after each chunk.
    fn read_as(
        &mut self,
        tokens: &[u32],
        kind: impl Fn(usize) -> Kind,
        mut then: impl FnMut(&mut LanguageModel) -> Result<()>,
    ) -> Result<()> {
        self.check(tokens)?;
        let (at, capacity) = (self.texts[self.text].len(), self.decoder.capacity());
        if at + tokens.len() > capacity {
            return Err(Error::value("generate", format!("{} tokens with room for {capacity}", at + tokens.len())));
        }
        let mut rest = tokens;
        for (len, n) in chunks(self.decoder.lengths(), tokens.len(), at, capacity) {
            let (now, later) = rest.split_at(n);
            self.chunk(kind(len), len, now)?;
            then(self)?;
            rest = later;
        }
        Ok(())
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        self.decoder.check_tokens(tokens)
    }

    /// Runs a plan that reads `len` tokens; `tokens` are the first ones of them, the rest is padding.
    fn chunk(&mut self, kind: Kind, len: usize, tokens: &[u32]) -> Result<()> {
        let mut ids: Vec<i32> = tokens.iter().map(|&t| t as i32).collect();
        ids.resize(len, 0);
        let engine = self.rt.engine();
        engine.set_var(POSITION, Scalar::Int(self.texts[self.text].len() as i64));
        engine.set_var(LAST, Scalar::Int(tokens.len() as i64 - 1));
        engine.set_var(SEQUENCE, Scalar::Int(self.text as i64));
        self.note(self.text, len);
        self.run(kind, &ids, &[])?;
        self.texts[self.text].extend(tokens);
        Ok(())
    }

    /// Notes that the rows of `len` more tokens of a text are about to be written.
    fn note(&mut self, which: usize, len: usize) {
        let (at, written) = (self.texts[which].len(), &mut self.written[which]);
        *written = (at + len).max(if at == 0 { 0 } else { *written });
    }

    /// Runs a plan; makes it if this is the first time.
    fn run(&mut self, kind: Kind, tokens: &[i32], positions: &[i32]) -> Result<()> {
        let bytes = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|i| i.to_le_bytes()).collect() };
        let write = |rt: &mut Runtime, io: &Io| {
            rt.write(&io.tokens, &bytes(tokens))?;
            io.positions.as_ref().map_or(Ok(()), |t| rt.write(t, &bytes(positions)))
        };
        self.last = Some(kind);
        if let Some(ready) = self.ready.get(&kind) {
            write(&mut self.rt, &ready.io)?;
            self.rt.replay(&ready.replay)?;
            return Ok(());
        }
        let (io, roots) = self.graph(kind)?;
        write(&mut self.rt, &io)?;
        let list: Vec<&Tensor> = roots.iter().collect();
        let inputs =
            no_weights(&self.rt, &list, self.decoder.caches().into_iter().chain(self.decoder.adapter_buffers()));
        self.rt.load(&list, &inputs, &mut self.folded)?;
        let replay = self.rt.realize(&list)?;
        let held = inputs_of(&self.rt, &list, &replay);
        self.ready.insert(kind, Ready { io, replay, _held: held });
        Ok(())
    }

    fn graph(&self, kind: Kind) -> Result<(Io, Vec<Tensor>)> {
        let own = |list: Vec<&Tensor>| list.into_iter().cloned().collect();
        Ok(match kind {
            Kind::Next(n) | Kind::Every(n) => {
                let c = if kind == Kind::Next(n) { self.decoder.chunk(n)? } else { self.decoder.every(n)? };
                let roots = own(c.roots());
                (Io { tokens: c.tokens, positions: None, values: c.logits, best: Some(c.best) }, roots)
            }
            Kind::States(n) => {
                let s = self.decoder.states(n)?;
                let roots = own(s.roots());
                (Io { tokens: s.tokens, positions: None, values: s.states, best: None }, roots)
            }
            Kind::Each(n) => {
                let b = self.decoder.batch(n)?;
                let roots = own(b.roots());
                (Io { tokens: b.tokens, positions: Some(b.positions), values: b.logits, best: Some(b.best) }, roots)
            }
        })
    }

    fn last(&self) -> Result<&Io> {
        let none = || Error::value("generate", "nothing was read yet");
        self.last.and_then(|k| self.ready.get(&k)).map(|r| &r.io).ok_or_else(none)
    }

    fn all_best(&mut self) -> Result<Vec<u32>> {
        let none = || Error::value("generate", "states have no next token");
        let t = self.last()?.best.clone().ok_or_else(none)?;
        let bytes = self.rt.fetch(&t)?;
        Ok(bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as u32).collect())
    }

    fn values(&mut self) -> Result<Vec<f32>> {
        let t = self.last()?.values.clone();
        let bytes = self.rt.fetch(&t)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// The most likely next token of the text that was read last.
    pub fn best(&mut self) -> Result<u32> {
        Ok(self.all_best()?.first().copied().unwrap_or_default())
    }

    /// The logits of the next token of the text that was read last.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        self.values()
    }

    /// Generates up to `most` tokens after those that were read, until a token ends the text or `on_token` returns
    /// false. `on_token` is called before the token is read, and the last token is not read at all.
    pub fn generate(
        &mut self,
        most: usize,
        sampler: &mut Sampler,
        stop_at_ends: bool,
        mut on_token: impl FnMut(&mut LanguageModel, u32) -> Result<bool>,
    ) -> Result<End> {
        for i in 0..most {
            let token = match sampler.is_greedy() {
                true => self.best()?,
                false => sampler.choose(&mut self.logits()?),
            };
            sampler.see(token);
            if let Some(e) = sampler.failed() {
                return Err(e.clone());
            }
            if stop_at_ends && self.ends.contains(&token) {
                return Ok(End::Token);
            }
            if !on_token(self, token)? {
                return Ok(End::Caller);
            }
            if sampler.is_complete() {
                return Ok(End::Token);
            }
            if i + 1 < most {
                if self.texts[self.text].len() == self.decoder.capacity() {
                    return Ok(End::Room);
                }
                self.read(&[token])?;
            }
        }
        Ok(End::Length)
    }
}

/// The buffers whose contents may change from run to run. Weights of a narrower dtype than f32 are among them, too:
/// constants folded from them would be larger than the weights.
fn no_weights<'a>(rt: &Runtime, roots: &[&Tensor], changing: impl Iterator<Item = &'a Tensor>) -> Vec<u32> {
    let mut inputs: Vec<u32> = changing.filter_map(Tensor::buffer).collect();
    let state = rt.session().state();
    let nodes: Vec<_> = roots.iter().map(|t| state.node(t.root())).collect();
    let narrow = |id: &u32| state.buffer(*id).is_some_and(|b| b.dtype != DType::F32);
    let below = state.graph.value_nodes(&nodes);
    inputs.extend(below.iter().filter_map(|&u| state.buffer_id(u)).filter(narrow));
    // What the graph writes has other contents in the next run
    let written = below.iter().filter(|&&u| state.graph.op(u) == Op::After).filter_map(|&u| state.buffer_below(u));
    inputs.extend(written.filter_map(|u| state.buffer_id(u)));
    inputs
}

/// Tensors that keep the inputs of a plan alive.
fn inputs_of(rt: &Runtime, roots: &[&Tensor], replay: &Replay) -> Vec<Tensor> {
    let session = rt.session();
    let nodes: Vec<_> = {
        let state = session.state();
        // Tensors that are written in place must not be held from elsewhere
        let written = |u| roots.iter().any(|t| state.storage(state.node(t.root())) == Some(u));
        let read = |u: &_| state.buffer_id(*u).is_some_and(|id| replay.externals().contains(&id));
        state.graph.iter().filter(read).filter(|&u| !written(u)).collect()
    };
    nodes.into_iter().map(|u| Tensor::from_node(session, u)).collect()
}

/// What is asked for, or the best of the device. Integers of 16 bits are multiplied in the form that it has instructions
/// for.
fn activations_for(t: &Target, wanted: Option<Activations>) -> Activations {
    match wanted.unwrap_or_else(|| best_activations(t)) {
        Activations::I16 if t.caps.dots.is_none() && t.has_op(Op::DotPairs, DType::I32) => {
            Activations::I16Pairs { short: t.machine.spills_long_bodies, several: !t.machine.hoists_loads }
        }
        activations => activations,
    }
}

/// On processors with instructions for sums of products of bytes or of 16-bit integers, integers of 16 bits: with 8 bits
/// logits are some hundredths off. On GPUs 16-bit floats if there are matrix tiles for them and asynchronous copies of their
/// factors.
fn best_activations(t: &Target) -> Activations {
    match t.caps.isa.is_some() && (t.caps.dots.is_some() || t.has_op(Op::DotPairs, DType::I32)) {
        true => Activations::I16,
        false if t.has_tiles() && t.caps.copies.is_some() => Activations::F16,
        false => Activations::F32,
    }
}
