//! A decoder that is built in a session without a device, for a session elsewhere (the other side) that has one.
//! Weights are passed on as they arrive, and graphs of chunks as bytes (`tensor::wire`), in which buffers are numbers
//! that both sides know. So the wasm module that knows language models contains no compiler, and the module with the
//! compiler knows nothing of language models.

use super::adapter::Adapter;
use super::arch::Arch;
use super::config::{Config, ends, ends_of};
use super::decoder::Decoder;
use super::learn::{Learned, Learner, Lora, Windows};
use super::remote_files::{Buffer, Input, RemoteFiles, Serialised};
use super::rope::FACTORS;
use super::{err, names};
use crate::dtype::DType;
use crate::error::Result;
use crate::io::gguf::{Activations, Gguf};
use crate::tensor::Tensor;
use crate::uop::UOp;
use std::ops::Range;

/// A model whose weights and caches are held by the other side.
pub struct Remote {
    files: RemoteFiles,
    ends: Vec<u32>,
    decoder: Option<Decoder>,
    adapters: Vec<Adapter>,
    learning: Option<Learning>,
}

/// An adapter in training.
struct Learning {
    learner: Learner,
    windows: Windows,
    batch: usize,
    time: usize,
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

/// A graph that reads some tokens, for the other side. Realize what [`wire::read`](crate::tensor::wire::read) gives; the
/// result can be replayed.
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

/// The graph of a batch's loss, for the other side, which has the optimiser. [`wire::read`](crate::tensor::wire::read)
/// gives a tensor `[1]` of f32 that is differentiable in the parameters.
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
        let ends = ends(&index);
        Ok(Remote::of_files(RemoteFiles::of_gguf(arch, index), ends))
    }

    /// Reads a `config.json` and a `generation_config.json`; the safetensors files follow by [`Remote::part`].
    pub fn from_config(config: &[u8], generation: Option<&[u8]>) -> Result<Remote> {
        let arch = Config::from_json(config)?.arch;
        let mut ends = generation.map(ends_of).transpose()?.unwrap_or_default();
        ends.extend(ends_of(config)?);
        Ok(Remote::of_files(RemoteFiles::of_folder(arch, config), ends))
    }

    fn of_files(files: RemoteFiles, ends: Vec<u32>) -> Remote {
        Remote { files, ends, decoder: None, adapters: Vec::new(), learning: None }
    }

    /// From now on quantised matrices are read for products of pairs of 16-bit integers
    /// ([`Activations::I16Pairs`](crate::io::gguf::Activations::I16Pairs)), which WebAssembly has an instruction for. `several`:
    /// also for products with several vectors.
    pub fn multiply_pairs(&mut self, several: bool) {
        self.files.activations = Activations::I16Pairs { short: true, several };
    }

    /// Reads a folder's `model.safetensors.index.json`. Gives the names of the files that have to be passed to
    /// [`Remote::part`], in this order.
    pub fn shards(&mut self, index: &[u8]) -> Result<Vec<String>> {
        self.files.shards(index)
    }

    /// Reads the first bytes of the next file: a further GGUF file, or a safetensors file. For a GGUF file an error may
    /// mean that the bytes are too few; for a safetensors file
    /// [`header_len`](crate::io::safetensors::header_len) tells how many are needed.
    pub fn part(&mut self, start: &[u8], len: u64, name: &str) -> Result<()> {
        let arch = self.files.arch;
        self.files.part(start, len, name, &|tensor| Ok(names::own_name(arch, tensor)?.is_some()))
    }

    /// Of each tensor that [`Remote::weight`] expects, the number of its file and its byte range there.
    pub fn places(&self) -> &[(usize, Range<u64>)] {
        &self.files.places
    }

    /// The model's architecture.
    pub fn arch(&self) -> &'static Arch {
        self.files.arch
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The index of the GGUF files, with the metadata of the first one.
    pub fn index(&self) -> &Gguf {
        &self.files.index
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
        self.files.session.state().draws = draws;
    }

    /// Takes the bytes of the tensor with this number. Gives the buffers that the other side has to create for it.
    ///
    /// # Errors
    /// `E_MODEL` for another number of bytes or an unknown tensor.
    pub fn weight(&mut self, number: usize, bytes: Vec<u8>) -> Result<Vec<Buffer>> {
        self.files.weight(number, bytes)
    }

    /// Makes the decoder from all weights that have arrived, with caches of this dtype for `capacity` tokens.
    pub fn build(&mut self, capacity: usize, cache: DType) -> Result<()> {
        let files = &mut self.files;
        let arch = files.arch;
        let weights = files.take_weights(&|name| names::translate(arch, name).is_some())?;
        let decoder = match &files.folder {
            Some(folder) => {
                let tensors = weights.into_iter().map(|(name, t, _)| (name, t)).collect();
                Decoder::from_tensors(&files.session, &folder.config, tensors, capacity)?
            }
            None => Decoder::from_matrices(&files.session, &files.index, weights, &files.factors, capacity)?,
        };
        let decoder = if cache == DType::F32 { decoder } else { decoder.with_cache(cache)? };
        self.decoder = Some(decoder.with_adapters(&self.adapters)?);
        self.files.drop_updates()
    }

    /// Reads an adapter from a GGUF file, or from PEFT's two files. Call it before [`Remote::build`].
    pub fn adapter(&mut self, config: Option<&[u8]>, file: &[u8], scale: f64) -> Result<()> {
        self.adapters.push(match config {
            Some(config) => Adapter::from_peft(self.files.arch, config, file, scale)?,
            None => Adapter::from_gguf(self.files.arch, file, scale)?,
        });
        Ok(())
    }

    /// Puts the adapter of that number, or none, into use. Gives the buffers that the other side has to create, and
    /// then the bytes that it has to write to each of these buffer numbers.
    pub fn use_adapter(&mut self, which: Option<usize>) -> Result<(Vec<Buffer>, Vec<(u32, Vec<u8>)>)> {
        let decoder = self.decoder()?;
        let bytes = decoder.adapter_bytes(which.and_then(|i| self.adapters.get(i)));
        let tensors: Vec<Tensor> = decoder.adapter_buffers().into_iter().cloned().collect();
        let numbers = tensors.iter().map(|t| self.files.number(t)).collect::<Result<Vec<_>>>()?;
        let nodes: Vec<UOp> = tensors.iter().map(Tensor::node).collect();
        Ok((self.files.take_new_buffers(&nodes), numbers.into_iter().zip(bytes).collect()))
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
        let Serialised { bytes, inputs, buffers } = self.files.serialised(&roots)?;
        let number = |t: &Tensor| self.files.number(t);
        let (tokens, values, best) = (number(&tokens)?, number(&values)?, best.as_ref().map(number).transpose()?);
        self.files.drop_updates()?;
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
        let parameters = learner.parameters();
        let parameters = parameters.iter().map(|t| self.files.number(t)).collect::<Result<Vec<_>>>()?;
        let given = [self.files.number(&batch_graph.tokens)?, self.files.number(&batch_graph.targets)?];
        let Serialised { bytes, inputs, buffers } = self.files.serialised(&[batch_graph.loss])?;
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
            self.files.drop_updates()?;
        }
        Ok((learned, !fits))
    }
}
