//! A decoder in a session without a device, for a session elsewhere that has one: weights go there as they come, and graphs of
//! chunks as bytes (`tensor::wire`), whose buffers are numbers that both sides know. So a wasm module that knows language models
//! needs no compiler, and the one with the compiler knows none.

use super::adapter::Adapter;
use super::arch::Arch;
use super::config::{Config, ends, ends_of};
use super::decoder::{Decoder, FACTORS, use_of};
use super::learn::{Learned, Learner, Lora, Windows};
use super::{err, names};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::Result;
use crate::io::gguf::{self, Gguf, Packed};
use crate::io::safetensors::{self, SafeTensors};
use crate::tensor::{Session, Tensor, wire};
use crate::uop::{Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// A model whose values are elsewhere.
pub struct Remote {
    session: Session,
    arch: &'static Arch,
    /// Of GGUF files: the metadata of the first one, and the tensors of all.
    index: Gguf,
    /// In place of these.
    folder: Option<Folder>,
    /// Files whose indices came.
    files: usize,
    /// Where tensors lie: in which file, and where in that.
    places: Vec<(usize, Range<u64>)>,
    ends: Vec<u32>,
    weights: Vec<(String, Tensor, Option<Packed>)>,
    factors: Option<Vec<f64>>,
    decoder: Option<Decoder>,
    adapters: Vec<Adapter>,
    learning: Option<Learning>,
    /// Buffers that the other side has.
    known: FxHashSet<u32>,
}

/// An adapter that learns.
struct Learning {
    learner: Learner,
    windows: Windows,
    batch: usize,
    time: usize,
}

/// What a folder of Hugging Face's has.
struct Folder {
    config: Vec<u8>,
    /// Which file has which tensor, where there are several.
    shards: Vec<(String, String)>,
    /// Tensors that the model reads.
    entries: Vec<safetensors::Entry>,
}

/// A buffer that the other side makes, and calls by this number from now on.
#[derive(Debug)]
pub struct Buffer {
    /// Its number.
    pub number: u32,
    /// What it holds.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
    /// What it begins with, little-endian; zeros if empty.
    pub bytes: Vec<u8>,
}

/// What takes the place of an input of a graph.
#[derive(Debug)]
pub enum Input {
    /// All elements of a buffer, in one row.
    Buffer(u32),
    /// A launch variable with inclusive bounds.
    Variable(String, i64, i64),
}

/// What a graph gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The logits of the next token, and that which is most likely.
    Next,
    /// States of all tokens.
    States,
}

/// A graph that reads some tokens, for the other side: realize what [`wire::read`] gives, which can be replayed.
#[derive(Debug)]
pub struct Graph {
    /// The graph.
    pub bytes: Vec<u8>,
    /// Its inputs, in order.
    pub inputs: Vec<Input>,
    /// Buffers that are new.
    pub buffers: Vec<Buffer>,
    /// The buffer of the tokens, i32: write it before each run.
    pub tokens: u32,
    /// The buffer of logits or states, f32.
    pub values: u32,
    /// The buffer of the most likely token, i32, if there are logits.
    pub best: Option<u32>,
}

/// The graph of a batch's loss, for the other side, which has the optimiser: [`wire::read`] gives a tensor `[1]` of f32, which has gradients of the
/// parameters.
#[derive(Debug)]
pub struct Loss {
    /// The graph.
    pub bytes: Vec<u8>,
    /// The buffers that are its inputs, in order.
    pub inputs: Vec<u32>,
    /// Buffers that are new.
    pub buffers: Vec<Buffer>,
    /// The buffers of tokens and of targets, i32: write them before each step.
    pub given: [u32; 2],
    /// The buffers of what learns, f32.
    pub parameters: Vec<u32>,
}

impl Remote {
    /// Of the first bytes of a GGUF file of `len`, the first one of a split model: an error may mean that they are too few.
    pub fn new(start: &[u8], len: u64) -> Result<Remote> {
        let index = Gguf::parse_header(start, len)?;
        let arch = Config::from_gguf(&index)?.arch;
        let places = index.entries.iter().map(|e| (0, e.range.clone())).collect();
        let ends = ends(&index);
        Ok(Remote { index, places, ends, files: 1, ..Remote::empty(arch) })
    }

    /// Of a `config.json` and a `generation_config.json`: safetensors files come with [`Remote::part`].
    pub fn from_config(config: &[u8], generation: Option<&[u8]>) -> Result<Remote> {
        let arch = Config::from_json(config)?.arch;
        let mut ends = generation.map(ends_of).transpose()?.unwrap_or_default();
        ends.extend(ends_of(config)?);
        let folder = Folder { config: config.to_vec(), shards: Vec::new(), entries: Vec::new() };
        Ok(Remote { folder: Some(folder), ends, ..Remote::empty(arch) })
    }

    fn empty(arch: &'static Arch) -> Remote {
        Remote {
            session: Session::new(),
            arch,
            index: Gguf::default(),
            folder: None,
            files: 0,
            places: Vec::new(),
            ends: Vec::new(),
            weights: Vec::new(),
            factors: None,
            decoder: None,
            adapters: Vec::new(),
            learning: None,
            known: FxHashSet::default(),
        }
    }

    /// Takes a folder's `model.safetensors.index.json`, and names the files that come with [`Remote::part`], in this order.
    pub fn shards(&mut self, index: &[u8]) -> Result<Vec<String>> {
        let shards = safetensors::shards(index)?;
        let mut files: Vec<String> = Vec::new();
        for (_, file) in &shards {
            if !files.contains(file) {
                files.push(file.clone());
            }
        }
        let folder = self.folder.as_mut().ok_or_else(|| err("a GGUF file has no index of others"))?;
        folder.shards = shards;
        Ok(files)
    }

    /// Takes the first bytes of the next file: a GGUF file after the first one, or a safetensors file. Of the former an error may mean that they
    /// are too few, of the latter [`safetensors::header_len`] says how many it takes.
    pub fn part(&mut self, start: &[u8], len: u64, name: &str) -> Result<()> {
        match &mut self.folder {
            Some(folder) => {
                let file = SafeTensors::parse_header(start, len)?;
                let is_here = |tensor: &str| match folder.shards.is_empty() {
                    true => true,
                    false => folder.shards.iter().any(|(t, file)| t == tensor && file == name),
                };
                let wanted =
                    |e: &safetensors::Entry| names::translate(self.arch, &e.name).is_some() && is_here(&e.name);
                let entries: Vec<_> = file.entries.into_iter().filter(wanted).collect();
                self.places.extend(entries.iter().map(|e| (self.files, e.range.clone())));
                folder.entries.extend(entries);
            }
            None => {
                let next = Gguf::parse_header(start, len)?;
                let places: Vec<_> = next.entries.iter().map(|e| (self.files, e.range.clone())).collect();
                self.index.extend(next, self.files as u64 - 1)?;
                self.places.extend(places);
            }
        }
        self.files += 1;
        Ok(())
    }

    /// Where the tensors lie that are to come: in which file, and where in that.
    pub fn places(&self) -> &[(usize, Range<u64>)] {
        &self.places
    }

    /// What kind of model it is.
    pub fn arch(&self) -> &'static Arch {
        self.arch
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// What a GGUF file says of itself.
    pub fn index(&self) -> &Gguf {
        &self.index
    }

    /// The decoder, once it is built.
    ///
    /// # Errors
    /// `E_MODEL` before.
    pub fn decoder(&self) -> Result<&Decoder> {
        self.decoder.as_ref().ok_or_else(|| err("the model is not built yet"))
    }

    /// How far the random stream of the other side is, which takes it from the next graph.
    pub fn set_draws(&mut self, draws: u32) {
        self.session.state().draws = draws;
    }

    /// Takes the tensor of that number of its bytes; what is kept of it, in buffers for the other side.
    ///
    /// # Errors
    /// `E_MODEL` for another number of bytes or an unknown tensor.
    pub fn weight(&mut self, number: usize, bytes: &[u8]) -> Result<Vec<Buffer>> {
        let unknown = || err(format!("there is no tensor {number}"));
        let few = |name: &str| err(format!("{} bytes are not all of the tensor `{name}`", bytes.len()));
        let is_whole = |r: &Range<u64>| r.end - r.start == bytes.len() as u64;
        let (name, t, packed) = match &self.folder {
            Some(folder) => {
                let e = folder.entries.get(number).ok_or_else(unknown)?;
                if !is_whole(&e.range) {
                    return Err(few(&e.name));
                }
                let t = Tensor::from_bytes(&self.session, e.dtype, &e.shape, Bytes::new(bytes.to_vec()))?;
                (e.name.clone(), t, None)
            }
            None => {
                let e = self.index.entries.get(number).ok_or_else(unknown)?;
                if !is_whole(&e.range) {
                    return Err(few(&e.name));
                }
                if e.name == FACTORS {
                    self.factors = Some(gguf::decode(e.kind, &e.shape, bytes)?.to_f64());
                    return Ok(Vec::new());
                }
                let purpose = use_of(&self.index, &e.name, gguf::Activations::F32);
                let (t, packed) = gguf::matrix_of(&self.session, e, &Bytes::new(bytes.to_vec()), purpose)?;
                (e.name.clone(), t, packed)
            }
        };
        let buffers = self.given(&[t.node()]);
        self.weights.push((name, t, packed));
        Ok(buffers)
    }

    /// Makes the decoder of all weights that came, with room for so many tokens.
    pub fn build(&mut self, room: usize) -> Result<()> {
        let weights = std::mem::take(&mut self.weights);
        let decoder = match &self.folder {
            Some(folder) => {
                let is_there = |name: &str| weights.iter().any(|w| w.0 == name);
                let read = |name: &str| names::translate(self.arch, name).is_some();
                if let Some((name, file)) = folder.shards.iter().find(|(name, _)| read(name) && !is_there(name)) {
                    return Err(err(format!("`{file}` lacks the tensor `{name}`")));
                }
                let tensors = weights.into_iter().map(|(name, t, _)| (name, t)).collect();
                Decoder::from_tensors(&self.session, &folder.config, tensors, room)?
            }
            None => {
                self.index.check_whole()?;
                Decoder::from_matrices(&self.session, &self.index, weights, self.factors.as_deref(), room)?
            }
        };
        self.decoder = Some(decoder.with_adapters(&self.adapters)?);
        self.rest()
    }

    /// Takes an adapter of a GGUF file, or of PEFT's two files. Call it before [`Remote::build`].
    pub fn adapter(&mut self, config: Option<&[u8]>, file: &[u8], scale: f64) -> Result<()> {
        self.adapters.push(match config {
            Some(config) => Adapter::from_peft(self.arch, config, file, scale)?,
            None => Adapter::from_gguf(self.arch, file, scale)?,
        });
        Ok(())
    }

    /// Buffers that the other side makes, and what it then writes to which of them, so that the adapter of that number, or none, is in use.
    pub fn use_adapter(&mut self, which: Option<usize>) -> Result<(Vec<Buffer>, Vec<(u32, Vec<u8>)>)> {
        let decoder = self.decoder()?;
        let bytes = decoder.adapter_bytes(which.and_then(|i| self.adapters.get(i)));
        let tensors: Vec<Tensor> = decoder.adapter_buffers().into_iter().cloned().collect();
        let numbers = tensors.iter().map(|t| self.number(t)).collect::<Result<Vec<_>>>()?;
        let nodes: Vec<UOp> = tensors.iter().map(Tensor::node).collect();
        Ok((self.given(&nodes), numbers.into_iter().zip(bytes).collect()))
    }

    /// The number of the buffer that a tensor is.
    fn number(&self, t: &Tensor) -> Result<u32> {
        let s = self.session.state();
        let flat = s.storage(s.node(t.root())).and_then(|u| s.buffer_below(u));
        flat.and_then(|u| s.buffer_id(u)).ok_or_else(|| err("a result has no buffer"))
    }

    /// The graph that reads so many tokens.
    pub fn graph(&mut self, n: usize, wanted: Wanted) -> Result<Graph> {
        let decoder = self.decoder()?;
        let (roots, tokens, values, best) = match wanted {
            Wanted::Next => {
                let c = decoder.chunk(n)?;
                let roots: Vec<Tensor> = c.roots().into_iter().cloned().collect();
                (roots, c.tokens, c.logits, Some(c.best))
            }
            Wanted::States => {
                let s = decoder.states(n)?;
                let roots: Vec<Tensor> = s.roots().into_iter().cloned().collect();
                (roots, s.tokens, s.states, None)
            }
        };
        let nodes: Vec<UOp> = roots.iter().map(Tensor::node).collect();
        let buffers = self.given(&nodes);
        let (inputs, places) = self.inputs(&nodes);
        let bytes = wire::write(&self.session, &roots, &places)?;
        let number = |t: &Tensor| self.number(t);
        let (tokens, values, best) = (number(&tokens)?, number(&values)?, best.as_ref().map(number).transpose()?);
        self.rest()?;
        Ok(Graph { bytes, inputs, buffers, tokens, values, best })
    }

    /// An adapter begins to learn from texts, so many pieces of at most `time` tokens in a step.
    ///
    /// # Errors
    /// `E_VALUE` for no texts, unknown tokens, and targets that no matrix has.
    pub fn learn(
        &mut self,
        texts: &[Vec<u32>],
        lora: &Lora,
        from: Option<usize>,
        batch: usize,
        time: usize,
    ) -> Result<Loss> {
        let decoder = self.decoder()?;
        decoder.check_tokens(texts.iter().flatten())?;
        let windows = Windows::new(texts, time.min(decoder.room()), lora.seed)?;
        let time = windows.longest();
        let learner = match from {
            Some(i) => {
                let none = || err(format!("there is no adapter {i}"));
                decoder.learner_from(lora, self.adapters.get(i).ok_or_else(none)?)?
            }
            None => decoder.learner(lora)?,
        };
        let lesson = learner.lesson(batch, time)?;
        let nodes = [lesson.loss.node()];
        let parameters = learner.parameters();
        let parameters = parameters.iter().map(|t| self.number(t)).collect::<Result<Vec<_>>>()?;
        let given = [self.number(&lesson.tokens)?, self.number(&lesson.targets)?];
        let buffers = self.given(&nodes);
        let (inputs, places) = self.inputs(&nodes);
        let bytes = wire::write(&self.session, &[lesson.loss], &places)?;
        let inputs = inputs.into_iter().map(|i| match i {
            Input::Buffer(number) => Ok(number),
            Input::Variable(name, ..) => Err(err(format!("a loss depends on the variable `{name}`"))),
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        self.learning = Some(Learning { learner, windows, batch, time });
        Ok(Loss { bytes, inputs, buffers, given, parameters })
    }

    /// Tokens and targets of a step.
    pub fn lesson(&self, step: usize) -> Result<[Vec<i32>; 2]> {
        let l = self.learning.as_ref().ok_or_else(|| err("nothing learns"))?;
        Ok(l.windows.batch(step, l.batch, l.time))
    }

    /// What was learned, of the values of the parameters; [`Remote::use_adapter`] knows it as the last adapter from now on. Says whether graphs
    /// that were made before are of no use any more, for it takes other buffers; no adapter is in use then.
    pub fn learned(&mut self, values: Vec<Vec<f32>>) -> Result<(Learned, bool)> {
        let l = self.learning.take().ok_or_else(|| err("nothing learns"))?;
        let learned = l.learner.learned(values)?;
        let fits = self.decoder()?.has_room(&learned.adapter);
        self.adapters.push(learned.adapter.clone());
        if let Some(decoder) = self.decoder.as_mut().filter(|_| !fits) {
            decoder.set_adapters(&self.adapters)?;
            self.rest()?;
        }
        Ok((learned, !fits))
    }

    /// Buffers below nodes that the other side does not have yet. Their bytes leave this session.
    fn given(&mut self, nodes: &[UOp]) -> Vec<Buffer> {
        let mut s = self.session.state();
        let mut out = Vec::new();
        for u in s.graph.reachable(nodes) {
            let Some(number) = s.buffer_id(u).filter(|id| self.known.insert(*id)) else { continue };
            let Some(info) = s.buffer_mut(number) else { continue };
            let bytes = info.host.take().map(|b| b.in_memory()).unwrap_or_default();
            out.push(Buffer { number, dtype: info.dtype, len: info.len, bytes });
        }
        out
    }

    /// Buffers and variables below nodes, and tensors of them.
    fn inputs(&self, nodes: &[UOp]) -> (Vec<Input>, Vec<Tensor>) {
        let (mut inputs, mut places) = (Vec::new(), Vec::new());
        let s = self.session.state();
        for u in s.graph.reachable(nodes) {
            let input = match s.graph.arg(u) {
                Arg::Buffer { id, .. } => Input::Buffer(*id),
                Arg::Var { name, min, max } => Input::Variable(name.to_string(), *min, *max),
                _ => continue,
            };
            inputs.push(input);
            places.push(u);
        }
        drop(s);
        (inputs, places.into_iter().map(|u| Tensor::from_node(&self.session, u)).collect())
    }

    /// The caches as if all that writes them had run: it does so on the other side.
    fn rest(&self) -> Result<()> {
        let mut s = self.session.state();
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        let nodes: Vec<UOp> = s.live_roots().map(|r| r.1).collect();
        for u in s.graph.reachable(&nodes) {
            if s.graph.op(u) == Op::After
                && let Some(b) = s.buffer_below(u)
            {
                map.insert(u, b);
            }
        }
        s.substitute(&map)
    }
}
