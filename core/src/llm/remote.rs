//! A decoder that is built in a session without a device, for a session elsewhere (the other side) that has one.
//! Weights are passed on as they arrive, and graphs of chunks as bytes (`tensor::wire`), in which buffers are numbers
//! that both sides know. So the wasm module that knows language models contains no compiler, and the module with the
//! compiler knows nothing of language models.

use super::adapter::Adapter;
use super::arch::Arch;
use super::config::{Config, ends, ends_of};
use super::decoder::Decoder;
use super::learn::{Learned, Learner, Lora, Windows};
use super::read::use_of;
use super::rope::FACTORS;
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

/// A model whose weights and caches are held by the other side.
pub struct Remote {
    session: Session,
    arch: &'static Arch,
    /// Of GGUF files: the metadata of the first file, and the tensors of all files.
    index: Gguf,
    /// Of a folder in Hugging Face's format, in place of the index.
    folder: Option<Folder>,
    /// Number of files whose header has been read.
    files: usize,
    /// Of each tensor, the number of its file and its byte range there.
    places: Vec<(usize, Range<u64>)>,
    ends: Vec<u32>,
    weights: Vec<(String, Tensor, Option<Packed>)>,
    factors: Vec<(String, Vec<f64>)>,
    decoder: Option<Decoder>,
    adapters: Vec<Adapter>,
    learning: Option<Learning>,
    /// Numbers of the buffers that the other side has already.
    known: FxHashSet<u32>,
}

/// An adapter in training.
struct Learning {
    learner: Learner,
    windows: Windows,
    batch: usize,
    time: usize,
}

/// A model folder in Hugging Face's format.
struct Folder {
    config: Vec<u8>,
    /// Pairs of tensor and file name, if the model is split into several files.
    shards: Vec<(String, String)>,
    /// The tensors that the model reads.
    entries: Vec<safetensors::Entry>,
}

/// A buffer that the other side has to create, and knows by this number from then on.
#[derive(Debug)]
pub struct Buffer {
    /// The buffer's number.
    pub number: u32,
    /// The dtype of its elements.
    pub dtype: DType,
    /// The number of its elements.
    pub len: usize,
    /// Its initial contents, little-endian; zeros if empty.
    pub bytes: Vec<u8>,
}

/// What the other side passes for an input of a graph.
#[derive(Debug)]
pub enum Input {
    /// All elements of a buffer, as a tensor of rank 1.
    Buffer(u32),
    /// A launch variable with inclusive bounds.
    Variable(String, i64, i64),
}

/// The results of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The logits of the next token, and the most likely token.
    Next,
    /// The hidden states of all tokens.
    States,
    /// The logits after each token, and the most likely tokens.
    Every,
}

/// A graph that reads some tokens, for the other side. Realize what [`wire::read`] gives; the result can be replayed.
#[derive(Debug)]
pub struct Graph {
    /// The serialised graph.
    pub bytes: Vec<u8>,
    /// Its inputs, in order.
    pub inputs: Vec<Input>,
    /// The buffers that the other side does not have yet.
    pub buffers: Vec<Buffer>,
    /// The number of the buffer of token ids, i32: write it before each run.
    pub tokens: u32,
    /// The number of the buffer of logits or hidden states, f32.
    pub values: u32,
    /// The number of the buffer of the most likely token, i32, if the graph gives logits.
    pub best: Option<u32>,
}

/// The graph of a batch's loss, for the other side, which has the optimiser. [`wire::read`] gives a tensor `[1]` of f32
/// that is differentiable in the parameters.
#[derive(Debug)]
pub struct Loss {
    /// The serialised graph.
    pub bytes: Vec<u8>,
    /// The numbers of the buffers that are its inputs, in order.
    pub inputs: Vec<u32>,
    /// The buffers that the other side does not have yet.
    pub buffers: Vec<Buffer>,
    /// The numbers of the buffers of tokens and of targets, i32: write them before each step.
    pub given: [u32; 2],
    /// The numbers of the buffers of the parameters, f32.
    pub parameters: Vec<u32>,
}

impl Remote {
    /// Reads the first bytes `start` of a GGUF file of `len` bytes, the first file if the model is split. An error may
    /// mean that `start` is too short.
    pub fn new(start: &[u8], len: u64) -> Result<Remote> {
        let index = Gguf::parse_header(start, len)?;
        let config = Config::from_gguf(&index)?;
        let arch = config.arch;
        // What cannot be run is refused before its weights are fetched, if the one file tells it
        let names: Vec<&str> = index.entries.iter().map(|e| &*e.name).filter(|name| !FACTORS.contains(name)).collect();
        if let (1, Some(name)) = (index.part().1, names::unread(&config, &names)) {
            return Err(names::unread_error(arch, name));
        }
        let places = index.entries.iter().map(|e| (0, e.range.clone())).collect();
        let ends = ends(&index);
        Ok(Remote { index, places, ends, files: 1, ..Remote::empty(arch) })
    }

    /// Reads a `config.json` and a `generation_config.json`; the safetensors files follow by [`Remote::part`].
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
            factors: Vec::new(),
            decoder: None,
            adapters: Vec::new(),
            learning: None,
            known: FxHashSet::default(),
        }
    }

    /// Reads a folder's `model.safetensors.index.json`. Gives the names of the files that have to be passed to
    /// [`Remote::part`], in this order.
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

    /// Reads the first bytes of the next file: a further GGUF file, or a safetensors file. For a GGUF file an error may
    /// mean that the bytes are too few; for a safetensors file [`safetensors::header_len`] tells how many are needed.
    pub fn part(&mut self, start: &[u8], len: u64, name: &str) -> Result<()> {
        match &mut self.folder {
            Some(folder) => {
                let file = SafeTensors::parse_header(start, len)?;
                let is_here = |tensor: &str| match folder.shards.is_empty() {
                    true => true,
                    false => folder.shards.iter().any(|(t, file)| t == tensor && file == name),
                };
                let mut entries = Vec::with_capacity(file.entries.len());
                for e in file.entries {
                    if is_here(&e.name) && names::own_name(self.arch, &e.name)?.is_some() {
                        entries.push(e);
                    }
                }
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

    /// Of each tensor that [`Remote::weight`] expects, the number of its file and its byte range there.
    pub fn places(&self) -> &[(usize, Range<u64>)] {
        &self.places
    }

    /// The model's architecture.
    pub fn arch(&self) -> &'static Arch {
        self.arch
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The index of the GGUF files, with the metadata of the first one.
    pub fn index(&self) -> &Gguf {
        &self.index
    }

    /// The decoder, once [`Remote::build`] has made it.
    ///
    /// # Errors
    /// `E_MODEL` before that.
    pub fn decoder(&self) -> Result<&Decoder> {
        self.decoder.as_ref().ok_or_else(|| err("the model is not built yet"))
    }

    /// Sets how many random numbers the other side's session has drawn: the next graph carries the count, and that
    /// session continues from it.
    pub fn set_draws(&mut self, draws: u32) {
        self.session.state().draws = draws;
    }

    /// Takes the bytes of the tensor with this number. Gives the buffers that the other side has to create for it.
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
                if FACTORS.contains(&&*e.name) {
                    self.factors.push((e.name.clone(), gguf::decode(e.kind, &e.shape, bytes)?.to_f64()));
                    return Ok(Vec::new());
                }
                let purpose = use_of(&self.index, &e.name, gguf::Activations::F32);
                let (t, packed) = gguf::matrix_of(&self.session, e, &Bytes::new(bytes.to_vec()), purpose)?;
                (e.name.clone(), t, packed)
            }
        };
        let buffers = self.take_new_buffers(&[t.node()]);
        self.weights.push((name, t, packed));
        Ok(buffers)
    }

    /// Makes the decoder from all weights that have arrived, with caches for `capacity` tokens.
    pub fn build(&mut self, capacity: usize) -> Result<()> {
        let weights = std::mem::take(&mut self.weights);
        let decoder = match &self.folder {
            Some(folder) => {
                let is_there = |name: &str| weights.iter().any(|w| w.0 == name);
                let read = |name: &str| names::translate(self.arch, name).is_some();
                if let Some((name, file)) = folder.shards.iter().find(|(name, _)| read(name) && !is_there(name)) {
                    return Err(err(format!("`{file}` lacks the tensor `{name}`")));
                }
                let tensors = weights.into_iter().map(|(name, t, _)| (name, t)).collect();
                Decoder::from_tensors(&self.session, &folder.config, tensors, capacity)?
            }
            None => {
                self.index.check_whole()?;
                Decoder::from_matrices(&self.session, &self.index, weights, &self.factors, capacity)?
            }
        };
        self.decoder = Some(decoder.with_adapters(&self.adapters)?);
        self.drop_updates()
    }

    /// Reads an adapter from a GGUF file, or from PEFT's two files. Call it before [`Remote::build`].
    pub fn adapter(&mut self, config: Option<&[u8]>, file: &[u8], scale: f64) -> Result<()> {
        self.adapters.push(match config {
            Some(config) => Adapter::from_peft(self.arch, config, file, scale)?,
            None => Adapter::from_gguf(self.arch, file, scale)?,
        });
        Ok(())
    }

    /// Puts the adapter of that number, or none, into use. Gives the buffers that the other side has to create, and
    /// then the bytes that it has to write to each of these buffer numbers.
    pub fn use_adapter(&mut self, which: Option<usize>) -> Result<(Vec<Buffer>, Vec<(u32, Vec<u8>)>)> {
        let decoder = self.decoder()?;
        let bytes = decoder.adapter_bytes(which.and_then(|i| self.adapters.get(i)));
        let tensors: Vec<Tensor> = decoder.adapter_buffers().into_iter().cloned().collect();
        let numbers = tensors.iter().map(|t| self.number(t)).collect::<Result<Vec<_>>>()?;
        let nodes: Vec<UOp> = tensors.iter().map(Tensor::node).collect();
        Ok((self.take_new_buffers(&nodes), numbers.into_iter().zip(bytes).collect()))
    }

    /// The number of the buffer that a tensor is a view of.
    fn number(&self, t: &Tensor) -> Result<u32> {
        let s = self.session.state();
        let flat = s.storage(s.node(t.root())).and_then(|u| s.buffer_below(u));
        flat.and_then(|u| s.buffer_id(u)).ok_or_else(|| err("a result has no buffer"))
    }

    /// Builds the graph that reads `n` tokens.
    pub fn graph(&mut self, n: usize, wanted: Wanted) -> Result<Graph> {
        let decoder = self.decoder()?;
        let (roots, tokens, values, best) = match wanted {
            Wanted::Next | Wanted::Every => {
                let c = if wanted == Wanted::Every { decoder.every(n)? } else { decoder.chunk(n)? };
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
        let buffers = self.take_new_buffers(&nodes);
        let (inputs, places) = self.inputs(&nodes);
        let bytes = wire::write(&self.session, &roots, &places)?;
        let number = |t: &Tensor| self.number(t);
        let (tokens, values, best) = (number(&tokens)?, number(&values)?, best.as_ref().map(number).transpose()?);
        self.drop_updates()?;
        Ok(Graph { bytes, inputs, buffers, tokens, values, best })
    }

    /// Begins to train an adapter on texts, with `batch` pieces of at most `time` tokens in a step. `from` is the
    /// number of the adapter to continue from.
    ///
    /// # Errors
    /// `E_VALUE` for no texts, for unknown tokens, and for targets that name no matrix.
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
        let windows = Windows::new(texts, time.min(decoder.capacity()), lora.seed)?;
        let time = windows.longest();
        let learner = match from {
            Some(i) => {
                let none = || err(format!("there is no adapter {i}"));
                decoder.learner_from(lora, self.adapters.get(i).ok_or_else(none)?)?
            }
            None => decoder.learner(lora)?,
        };
        let batch_graph = learner.training_batch(batch, time)?;
        let nodes = [batch_graph.loss.node()];
        let parameters = learner.parameters();
        let parameters = parameters.iter().map(|t| self.number(t)).collect::<Result<Vec<_>>>()?;
        let given = [self.number(&batch_graph.tokens)?, self.number(&batch_graph.targets)?];
        let buffers = self.take_new_buffers(&nodes);
        let (inputs, places) = self.inputs(&nodes);
        let bytes = wire::write(&self.session, &[batch_graph.loss], &places)?;
        let inputs = inputs.into_iter().map(|i| match i {
            Input::Buffer(number) => Ok(number),
            Input::Variable(name, ..) => Err(err(format!("a loss depends on the variable `{name}`"))),
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        self.learning = Some(Learning { learner, windows, batch, time });
        Ok(Loss { bytes, inputs, buffers, given, parameters })
    }

    /// The values of tokens and targets for a step.
    pub fn batch_values(&self, step: usize) -> Result<[Vec<i32>; 2]> {
        let l = self.learning.as_ref().ok_or_else(|| err("nothing learns"))?;
        Ok(l.windows.batch(step, l.batch, l.time))
    }

    /// Ends training: the adapter with these values of the parameters. [`Remote::use_adapter`] knows it from now on as
    /// the last adapter. The flag is true if its size required new buffers: then graphs that were made before are
    /// useless, and no adapter is in use.
    pub fn learned(&mut self, values: Vec<Vec<f32>>) -> Result<(Learned, bool)> {
        let l = self.learning.take().ok_or_else(|| err("nothing learns"))?;
        let learned = l.learner.learned(values)?;
        let fits = self.decoder()?.has_capacity_for(&learned.adapter);
        self.adapters.push(learned.adapter.clone());
        if let Some(decoder) = self.decoder.as_mut().filter(|_| !fits) {
            decoder.set_adapters(&self.adapters)?;
            self.drop_updates()?;
        }
        Ok((learned, !fits))
    }

    /// The buffers below these nodes that the other side does not have yet. Their bytes are moved out of this session.
    fn take_new_buffers(&mut self, nodes: &[UOp]) -> Vec<Buffer> {
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

    /// The buffers and variables below these nodes, and a tensor for each of them.
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

    /// Replaces each updated buffer (a cache) in the session's graphs by the buffer itself, as if the updates had run:
    /// they run on the other side.
    fn drop_updates(&self) -> Result<()> {
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
