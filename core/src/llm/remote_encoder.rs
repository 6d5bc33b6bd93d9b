//! An encoder that is built in a session without a device, for a session elsewhere that has one: see [`super::Remote`],
//! which does the same for decoders.

use super::arch::Arch;
use super::config::{Config, class};
use super::encoder::Encoder;
use super::encoders::{ENCODERS, is_read, own_name};
use super::pooling::Pooler;
use super::remote_files::{Buffer, Input, RemoteFiles, Serialised};
use super::rope::FACTORS;
use super::{err, names};
use crate::error::Result;
use crate::io::gguf::Gguf;
use crate::io::json::Json;
use crate::tensor::Tensor;
use std::ops::Range;

/// An encoder whose weights are held by the other side.
pub struct RemoteEncoder {
    files: RemoteFiles,
    /// How a folder's model makes embeddings; GGUF files say it themselves.
    pooler: Pooler,
    /// Whether a folder's model has a classification head.
    classifies: bool,
    encoder: Option<Encoder>,
}

/// A graph that reads the tokens of several texts, for the other side. Realize what
/// [`wire::read`](crate::tensor::wire::read) gives; the result can be replayed.
#[derive(Debug)]
pub struct PackGraph {
    /// The serialised graph.
    pub bytes: Vec<u8>,
    /// Its inputs, in order.
    pub inputs: Vec<Input>,
    /// The buffers that the other side does not have yet.
    pub buffers: Vec<Buffer>,
    /// The numbers of the buffers that are written before each run, with what [`Encoder::inputs`] gives: tokens, kinds,
    /// positions, texts (i32), and shares (f32).
    pub given: [u32; 5],
    /// The number of the buffer of vectors or scores, f32.
    pub values: u32,
}

impl RemoteEncoder {
    /// Reads the first bytes `start` of a GGUF file of `len` bytes, the first file if the model is split. An error may
    /// mean that `start` is too short.
    pub fn new(start: &[u8], len: u64) -> Result<RemoteEncoder> {
        let index = Gguf::parse_header(start, len)?;
        let config = Config::of_gguf(&index, ENCODERS)?;
        let unread = |name: &&str| !FACTORS.contains(name) && !is_read(&config, name);
        // What cannot be run is refused before its weights are fetched, if the one file tells it
        if let (1, Some(name)) = (index.part().1, index.entries.iter().map(|e| &*e.name).find(unread)) {
            return Err(names::unread_error(config.arch, name));
        }
        let pooler = Pooler::from_gguf(&index)?;
        Ok(RemoteEncoder { files: RemoteFiles::of_gguf(config.arch, index), pooler, classifies: false, encoder: None })
    }

    /// Reads a `config.json`; the safetensors files follow by [`RemoteEncoder::part`]. How states are pooled is other
    /// files' matter ([`Pooler::from_modules`]).
    pub fn from_config(config: &[u8], pooler: Pooler) -> Result<RemoteEncoder> {
        let json = Json::parse(config)?;
        let arch = Config::of_json(&json, ENCODERS)?.arch;
        let classifies = class(&json)?.ends_with("ForSequenceClassification");
        Ok(RemoteEncoder { files: RemoteFiles::of_folder(arch, config), pooler, classifies, encoder: None })
    }

    /// Reads a folder's `model.safetensors.index.json`. Gives the names of the files that have to be passed to
    /// [`RemoteEncoder::part`], in this order.
    pub fn shards(&mut self, index: &[u8]) -> Result<Vec<String>> {
        self.files.shards(index)
    }

    /// As [`super::Remote::part`].
    pub fn part(&mut self, start: &[u8], len: u64, name: &str) -> Result<()> {
        let (arch, classifies) = (self.files.arch, self.classifies);
        self.files.part(start, len, name, &|tensor| Ok(own_name(arch, tensor, classifies)?.is_some()))
    }

    /// Of each tensor that [`RemoteEncoder::weight`] expects, the number of its file and its byte range there.
    pub fn places(&self) -> &[(usize, Range<u64>)] {
        &self.files.places
    }

    /// The model's architecture.
    pub fn arch(&self) -> &'static Arch {
        self.files.arch
    }

    /// The index of the GGUF files, with the metadata of the first one.
    pub fn index(&self) -> &Gguf {
        &self.files.index
    }

    /// The encoder, once [`RemoteEncoder::build`] has made it.
    ///
    /// # Errors
    /// `E_MODEL` before that.
    pub fn encoder(&self) -> Result<&Encoder> {
        self.encoder.as_ref().ok_or_else(|| err("the model is not built yet"))
    }

    /// As [`super::Remote::set_draws`].
    pub fn set_draws(&mut self, draws: u32) {
        self.files.session.state().draws = draws;
    }

    /// As [`super::Remote::weight`].
    ///
    /// # Errors
    /// `E_MODEL` for another number of bytes or an unknown tensor.
    pub fn weight(&mut self, number: usize, bytes: Vec<u8>) -> Result<Vec<Buffer>> {
        self.files.weight(number, bytes)
    }

    /// Makes the encoder from all weights that have arrived, for texts of up to `capacity` tokens.
    pub fn build(&mut self, capacity: usize) -> Result<()> {
        let (files, classifies) = (&mut self.files, self.classifies);
        let arch = files.arch;
        let weights = files.take_weights(&|name| own_name(arch, name, classifies).is_ok_and(|own| own.is_some()))?;
        self.encoder = Some(match &files.folder {
            Some(folder) => {
                let tensors = weights.into_iter().map(|(name, t, _)| (name, t)).collect();
                Encoder::from_tensors(&files.session, &folder.config, tensors, self.pooler, capacity)?
            }
            None => Encoder::from_matrices(&files.session, &files.index, weights, &files.factors, capacity)?,
        });
        Ok(())
    }

    /// Builds the graph that reads `n` tokens of several texts.
    pub fn graph(&mut self, n: usize) -> Result<PackGraph> {
        let pack = self.encoder()?.pack(n)?;
        let values = pack.values.clone();
        let Serialised { bytes, inputs, mut buffers } = self.files.serialised(&[values])?;
        let all = [&pack.tokens, &pack.kinds, &pack.positions, &pack.texts, &pack.shares];
        // Not every model reads all of them, but all are written
        buffers.extend(self.files.take_new_buffers(&all.map(Tensor::node)));
        let number = |t: &Tensor| self.files.number(t);
        let mut given = [0; 5];
        for (to, t) in given.iter_mut().zip(all) {
            *to = number(t)?;
        }
        Ok(PackGraph { bytes, inputs, buffers, given, values: number(&pack.values)? })
    }
}
