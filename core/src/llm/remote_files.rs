//! What a model in a session without a device has in common, be it a decoder or an encoder: the indices of its files,
//! weights that arrive one by one, and buffers that the other side, which has the device, knows by number.

use super::arch::Arch;
use super::err;
use super::read::use_of;
use super::rope::FACTORS;
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::Result;
use crate::io::gguf::{self, Gguf, Matrix};
use crate::io::safetensors::{self, SafeTensors};
use crate::tensor::{Session, Tensor, wire};
use crate::uop::{Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// The files of a model whose weights are held by the other side.
pub(super) struct RemoteFiles {
    pub(super) session: Session,
    pub(super) arch: &'static Arch,
    /// Of GGUF files: the metadata of the first file, and the tensors of all files.
    pub(super) index: Gguf,
    /// Of a folder in Hugging Face's format, in place of the index.
    pub(super) folder: Option<Folder>,
    /// Number of files whose header has been read.
    files: usize,
    /// Of each tensor, the number of its file and its byte range there.
    pub(super) places: Vec<(usize, Range<u64>)>,
    weights: Vec<Matrix>,
    pub(super) factors: Vec<(String, Vec<f64>)>,
    /// How matrices of GGUF files are multiplied.
    pub(super) activations: gguf::Activations,
    /// Numbers of the buffers that the other side has already.
    known: FxHashSet<u32>,
}

/// A model folder in Hugging Face's format.
pub(super) struct Folder {
    pub(super) config: Vec<u8>,
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

/// A graph for the other side, which realizes what [`wire::read`] gives.
pub(super) struct Serialised {
    pub(super) bytes: Vec<u8>,
    pub(super) inputs: Vec<Input>,
    pub(super) buffers: Vec<Buffer>,
}

impl RemoteFiles {
    /// Of the index of a model's first GGUF file.
    pub(super) fn of_gguf(arch: &'static Arch, index: Gguf) -> RemoteFiles {
        let places = index.entries.iter().map(|e| (0, e.range.clone())).collect();
        RemoteFiles { index, places, files: 1, ..RemoteFiles::empty(arch) }
    }

    /// Of a folder's `config.json`; the safetensors files follow by [`RemoteFiles::part`].
    pub(super) fn of_folder(arch: &'static Arch, config: &[u8]) -> RemoteFiles {
        let folder = Folder { config: config.to_vec(), shards: Vec::new(), entries: Vec::new() };
        RemoteFiles { folder: Some(folder), ..RemoteFiles::empty(arch) }
    }

    fn empty(arch: &'static Arch) -> RemoteFiles {
        RemoteFiles {
            session: Session::new(),
            arch,
            index: Gguf::default(),
            folder: None,
            files: 0,
            places: Vec::new(),
            weights: Vec::new(),
            factors: Vec::new(),
            activations: gguf::Activations::F32,
            known: FxHashSet::default(),
        }
    }

    /// Reads a folder's `model.safetensors.index.json`. Gives the names of the files that have to be passed to
    /// [`RemoteFiles::part`], in this order.
    pub(super) fn shards(&mut self, index: &[u8]) -> Result<Vec<String>> {
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

    /// Reads the first bytes of the next file: a further GGUF file, or a safetensors file, of whose tensors the model
    /// reads those for which `is_read` says so.
    pub(super) fn part(
        &mut self,
        start: &[u8],
        len: u64,
        name: &str,
        is_read: &dyn Fn(&str) -> Result<bool>,
    ) -> Result<()> {
        match &mut self.folder {
            Some(folder) => {
                let file = SafeTensors::parse_header(start, len)?;
                let is_here = |tensor: &str| match folder.shards.is_empty() {
                    true => true,
                    false => folder.shards.iter().any(|(t, file)| t == tensor && file == name),
                };
                let mut entries = Vec::with_capacity(file.entries.len());
                for e in file.entries {
                    if is_here(&e.name) && is_read(&e.name)? {
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

    /// Takes the bytes of the tensor with this number. Gives the buffers that the other side has to create for it.
    ///
    /// # Errors
    /// `E_MODEL` for another number of bytes or an unknown tensor.
    pub(super) fn weight(&mut self, number: usize, bytes: Vec<u8>) -> Result<Vec<Buffer>> {
        let unknown = || err(format!("there is no tensor {number}"));
        let given = bytes.len();
        let few = |name: &str| err(format!("{given} bytes are not all of the tensor `{name}`"));
        let is_whole = |r: &Range<u64>| r.end - r.start == given as u64;
        let (name, t, packed) = match &self.folder {
            Some(folder) => {
                let e = folder.entries.get(number).ok_or_else(unknown)?;
                if !is_whole(&e.range) {
                    return Err(few(&e.name));
                }
                let t = Tensor::from_bytes(&self.session, e.dtype, &e.shape, Bytes::new(bytes))?;
                (e.name.clone(), t, None)
            }
            None => {
                let e = self.index.entries.get(number).ok_or_else(unknown)?;
                if !is_whole(&e.range) {
                    return Err(few(&e.name));
                }
                if FACTORS.contains(&&*e.name) {
                    self.factors.push((e.name.clone(), gguf::decode(e.kind, &e.shape, &bytes)?.to_f64()));
                    return Ok(Vec::new());
                }
                let purpose = use_of(&self.index, &e.name, self.activations);
                let (t, packed) = gguf::matrix_of(&self.session, e, &Bytes::new(bytes), purpose)?;
                (e.name.clone(), t, packed)
            }
        };
        let buffers = self.take_new_buffers(&[t.node()]);
        self.weights.push((name, t, packed));
        Ok(buffers)
    }

    /// All weights that have arrived, once none of those is missing which the index of a folder names and the model reads.
    pub(super) fn take_weights(&mut self, is_read: &dyn Fn(&str) -> bool) -> Result<Vec<Matrix>> {
        let weights = std::mem::take(&mut self.weights);
        match &self.folder {
            Some(folder) => {
                let is_there = |name: &str| weights.iter().any(|w| w.0 == name);
                if let Some((name, file)) = folder.shards.iter().find(|(name, _)| is_read(name) && !is_there(name)) {
                    return Err(err(format!("`{file}` lacks the tensor `{name}`")));
                }
            }
            None => self.index.check_whole()?,
        }
        Ok(weights)
    }

    /// The number of the buffer that a tensor is a view of.
    pub(super) fn number(&self, t: &Tensor) -> Result<u32> {
        let s = self.session.state();
        let flat = s.storage(s.node(t.root())).and_then(|u| s.buffer_below(u));
        flat.and_then(|u| s.buffer_id(u)).ok_or_else(|| err("a result has no buffer"))
    }

    /// What the other side needs to compute these tensors.
    pub(super) fn serialised(&mut self, roots: &[Tensor]) -> Result<Serialised> {
        let nodes: Vec<UOp> = roots.iter().map(Tensor::node).collect();
        let buffers = self.take_new_buffers(&nodes);
        let (inputs, places) = self.inputs(&nodes);
        let bytes = wire::write(&self.session, roots, &places)?;
        Ok(Serialised { bytes, inputs, buffers })
    }

    /// The buffers below these nodes that the other side does not have yet. Their bytes are moved out of this session.
    pub(super) fn take_new_buffers(&mut self, nodes: &[UOp]) -> Vec<Buffer> {
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
    pub(super) fn drop_updates(&self) -> Result<()> {
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
