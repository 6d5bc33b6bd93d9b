//! A decoder in a session without a device, for a session elsewhere that has one: weights go there as they come, and graphs of
//! chunks as bytes (`tensor::wire`), whose buffers are numbers that both sides know. So a wasm module that knows language models
//! needs no compiler, and the one with the compiler knows none.

use super::adapter::Adapter;
use super::decoder::{Decoder, FACTORS};
use super::err;
use crate::dtype::DType;
use crate::error::Result;
use crate::io::gguf::{self, Gguf, Packed};
use crate::tensor::{Session, Tensor, wire};
use crate::uop::{Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// A model whose values are elsewhere.
pub struct Remote {
    session: Session,
    index: Gguf,
    weights: Vec<(String, Tensor, Option<Packed>)>,
    factors: Option<Vec<f64>>,
    decoder: Option<Decoder>,
    adapters: Vec<Adapter>,
    /// Buffers that the other side has.
    known: FxHashSet<u32>,
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

impl Remote {
    /// Of the first bytes of a GGUF file of `len`: an error may mean that they are too few.
    pub fn new(start: &[u8], len: u64) -> Result<Remote> {
        let index = Gguf::parse_header(start, len)?;
        super::Config::from_gguf(&index)?;
        let (weights, known) = (Vec::new(), FxHashSet::default());
        let (session, adapters) = (Session::new(), Vec::new());
        Ok(Remote { session, index, weights, factors: None, decoder: None, adapters, known })
    }

    /// What the file says of itself.
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
        let e = self.index.entries.get(number).ok_or_else(|| err(format!("there is no tensor {number}")))?;
        if e.range.end - e.range.start != bytes.len() as u64 {
            return Err(err(format!("{} bytes are not all of the tensor `{}`", bytes.len(), e.name)));
        }
        if e.name == FACTORS {
            self.factors = Some(gguf::decode(e.kind, &e.shape, bytes)?.to_f64());
            return Ok(Vec::new());
        }
        let (t, packed) = gguf::matrix_of(&self.session, e, bytes, gguf::Activations::F32)?;
        let name = e.name.clone();
        let buffers = self.given(&[t.node()]);
        self.weights.push((name, t, packed));
        Ok(buffers)
    }

    /// Makes the decoder of all weights that came, with room for so many tokens.
    pub fn build(&mut self, room: usize) -> Result<()> {
        let weights = std::mem::take(&mut self.weights);
        let decoder = Decoder::from_matrices(&self.session, &self.index, weights, self.factors.as_deref(), room)?;
        self.decoder = Some(decoder.with_adapters(&self.adapters)?);
        self.rest()
    }

    /// Takes an adapter of a GGUF file, or of PEFT's two files. Call it before [`Remote::build`].
    pub fn adapter(&mut self, config: Option<&[u8]>, file: &[u8], scale: f64) -> Result<()> {
        let arch = super::Config::from_gguf(&self.index)?.arch;
        self.adapters.push(match config {
            Some(config) => Adapter::from_peft(arch, config, file, scale)?,
            None => Adapter::from_gguf(arch, file, scale)?,
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

    /// Buffers below nodes that the other side does not have yet. Their bytes leave this session.
    fn given(&mut self, nodes: &[UOp]) -> Vec<Buffer> {
        let mut s = self.session.state();
        let mut out = Vec::new();
        for u in s.graph.reachable(nodes) {
            let Some(number) = s.buffer_id(u).filter(|id| self.known.insert(*id)) else { continue };
            let Some(info) = s.buffer_mut(number) else { continue };
            let bytes = info.host.take().map(|b| b.to_vec()).unwrap_or_default();
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
