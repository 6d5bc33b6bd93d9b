//! The graph of a decoder: some token ids in, logits out; keys and values are appended to caches that stay
//! on the device.
//!
//! The position of the tokens in the text is the launch variable [`POSITION`], so that one plan serves every position:
//! new rows of the caches are written at that offset, attention masks compare with it, and rotary embeddings are rows
//! of a table. Caches have the capacity for the longest text (`capacity`), or for the window of a layer (`context.rs`); loops
//! over keys end where the mask does.

use super::adapter::Slot;
use super::arch::{Block, HeadNorm, Norm, PositionEncoding};
use super::cache::{Cache, Rows};
use super::config::{Config, unsupported};
use super::context::{ChunkContext, Texts, WantedToken, ring};
use super::mamba::LayerState;
use super::read::read_files;
use super::rotary::{rotated, table};
use super::{DESKTOP, err, half_precision, mamba, names};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::io::gguf::{Activations, Gguf, Matrix, Packed};
use crate::tensor::{Session, Tensor};
use crate::util::sort;
use rustc_hash::FxHashMap;

/// The launch variable with the number of tokens that precede the chunk in its text.
pub const POSITION: &str = "position";
/// The launch variable with the index, within the chunk, of the token whose logits are wanted.
pub const LAST: &str = "last";
/// The launch variable with the number of the text that the chunk belongs to, where the caches hold several texts.
pub const SEQUENCE: &str = "sequence";

/// A model whose weights and caches belong to one session.
pub struct Decoder {
    session: Session,
    config: Config,
    weights: FxHashMap<String, Tensor>,
    /// Of each quantised weight, the number of elements in a block of its format.
    blocks: FxHashMap<String, usize>,
    /// Of each weight that products read in its quantised form, the packed matrix.
    packed: FxHashMap<String, Packed>,
    /// Weights that are stacks of tensors of the files.
    stacks: Vec<Tensor>,
    /// The KV cache of each layer, with `capacity` rows for each text, or `ring` rows in layers with a window.
    pub(super) caches: Vec<Cache>,
    /// The rows of each text in layers with a window, if they are fewer.
    pub(super) ring: Option<usize>,
    /// The states of the layers of a model without attention.
    pub(super) states: Vec<LayerState>,
    /// Cosines and sines of the rotary embedding by position: of layers with global attention, then of
    /// layers with a window.
    rotations: Vec<[Tensor; 2]>,
    capacity: usize,
    /// The number of texts that the caches have space for.
    pub(super) sequences: usize,
    /// The buffers of adapters, one pair for each adapted matrix.
    pub(super) slots: Vec<Slot>,
    /// Whether matrix products of several tokens are computed in 16 bits (`half_precision.rs`).
    half_precision: bool,
}

/// A graph that reads a fixed number of tokens, `n`. Realize [`Chunk::roots`]; the result can be replayed with other
/// tokens and variables.
pub struct Chunk {
    /// `[n]`, i32: the token ids; write them before each run.
    pub tokens: Tensor,
    /// `[vocabulary]`: the logits after the token at index [`LAST`]. In the chunk of [`Decoder::every`],
    /// `[n, vocabulary]`.
    pub logits: Tensor,
    /// `[1]`, i32: the most likely next token. In the chunk of [`Decoder::every`], `[n]`.
    pub best: Tensor,
    pub(super) caches: Vec<Tensor>,
}

impl Chunk {
    /// Everything that a run computes, including the updated caches.
    pub fn roots(&self) -> Vec<&Tensor> {
        [&self.logits, &self.best].into_iter().chain(&self.caches).collect()
    }
}

impl Decoder {
    /// Builds the model of a GGUF file, with caches for `capacity` tokens.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an unknown architecture, for values of the configuration that the decoder does not have, and
    /// for weights that it does not read; `E_MODEL` for weights that are missing or have another shape.
    pub fn from_gguf(session: &Session, file: &Bytes, capacity: usize) -> Result<Decoder> {
        Decoder::from_gguf_for(session, file, capacity, Activations::F32)
    }

    /// As [`Decoder::from_gguf`], where vectors are brought to the form `activations` before they are
    /// multiplied with quantised matrices.
    pub fn from_gguf_for(
        session: &Session,
        file: &Bytes,
        capacity: usize,
        activations: Activations,
    ) -> Result<Decoder> {
        Decoder::from_parts(session, std::slice::from_ref(file), capacity, activations)
    }

    /// As [`Decoder::from_gguf_for`], from all files of a split model, in their order.
    pub fn from_parts(
        session: &Session,
        files: &[Bytes],
        capacity: usize,
        activations: Activations,
    ) -> Result<Decoder> {
        let indices = files.iter().map(|file| Gguf::parse(file)).collect::<Result<_>>()?;
        Ok(Decoder::from_indexed(session, files, indices, capacity, activations)?.0)
    }

    /// As [`Decoder::from_parts`], where the caller has parsed the files' indices (one for each file). Also
    /// gives the merged index.
    pub fn from_indexed(
        session: &Session,
        files: &[Bytes],
        indices: Vec<Gguf>,
        capacity: usize,
        activations: Activations,
    ) -> Result<(Decoder, Gguf)> {
        let (index, tensors, factors) = read_files(session, files, indices, activations)?;
        Ok((Decoder::from_matrices(session, &index, tensors, &factors, capacity)?, index))
    }

    /// As [`Decoder::from_gguf`], from the file's index, its tensors (which a caller may have loaded one by one), and
    /// the names and values of those of the tensors [`super::FACTORS`] that the file has.
    pub fn from_matrices(
        session: &Session,
        index: &Gguf,
        tensors: Vec<Matrix>,
        factors: &[(String, Vec<f64>)],
        capacity: usize,
    ) -> Result<Decoder> {
        Decoder::of_matrices(session, Config::from_gguf(index)?, index, tensors, factors, capacity)
    }

    /// As [`Decoder::from_matrices`], from a configuration that was read already.
    pub(super) fn of_matrices(
        session: &Session,
        mut config: Config,
        index: &Gguf,
        tensors: Vec<Matrix>,
        factors: &[(String, Vec<f64>)],
        capacity: usize,
    ) -> Result<Decoder> {
        let blocks = index.entries.iter().filter(|e| e.kind.plain().is_none());
        let blocks: FxHashMap<String, usize> = blocks.map(|e| (e.name.clone(), e.kind.block_elems())).collect();
        config.set_factors(factors)?;
        let (mut weights, mut packed) = (FxHashMap::default(), FxHashMap::default());
        // The factors are part of the configuration now
        for (name, t, p) in tensors.into_iter().filter(|t| factors.iter().all(|f| t.0 != f.0)) {
            packed.extend(p.map(|p| (name.clone(), p)));
            weights.insert(name, t);
        }
        Ok(Decoder { blocks, packed, ..Decoder::new(session, config, weights, &FxHashMap::default(), capacity)? })
    }

    /// Builds a model from a `config.json` and the tensors of its safetensors files.
    ///
    /// # Errors
    /// As for [`Decoder::from_gguf`].
    pub fn from_tensors(
        session: &Session,
        config: &[u8],
        tensors: Vec<(String, Tensor)>,
        capacity: usize,
    ) -> Result<Decoder> {
        let config = Config::from_json(config)?;
        let (mut weights, mut theirs) = (FxHashMap::default(), FxHashMap::default());
        let mut slices: Vec<(String, usize, Tensor)> = Vec::new();
        for (name, mut t) in tensors {
            let Some(own) = names::own_name(config.arch, &name)? else { continue };
            if config.arch.positions == PositionEncoding::Learned && names::is_transposed(&name) {
                t = t.t()?;
            }
            if config.arch.recurrent {
                t = mamba::converted(&own, &t)?;
            }
            if config.arch.offset_norms && own.ends_with("norm.weight") {
                t = t.cast(DType::F32)?.add(1.0)?;
            }
            if let Some(other) = theirs.insert(own.clone(), name.clone()) {
                return Err(err(format!("`{other}` and `{name}` are the same weight")));
            }
            match names::slice_of(&own) {
                Some((all, number)) => {
                    theirs.insert(all.clone(), name);
                    slices.push((all, number, t));
                }
                None => {
                    weights.insert(own, t);
                }
            }
        }
        let mut stacks = Vec::new();
        sort::by(&mut slices, |a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        for parts in slices.chunk_by(|a, b| a.0 == b.0) {
            let name = &parts[0].0;
            if let Some(i) = (0..parts.len()).find(|&i| parts[i].1 != i) {
                return Err(err(format!("`{name}` lacks its part {i}")));
            }
            let stack = Tensor::stack(&parts.iter().map(|p| &p.2).collect::<Vec<_>>(), 0)?;
            stacks.push(stack.clone());
            weights.insert(name.clone(), stack);
        }
        Ok(Decoder { stacks, ..Decoder::new(session, config, weights, &theirs, capacity)? })
    }

    /// `theirs` has the names by which the files call the weights, where they do not use GGUF's.
    pub(super) fn new(
        session: &Session,
        mut config: Config,
        weights: FxHashMap<String, Tensor>,
        theirs: &FxHashMap<String, String>,
        capacity: usize,
    ) -> Result<Decoder> {
        let capacity = capacity.min(config.context);
        if capacity == 0 {
            return Err(err("room for no token"));
        }
        let states = mamba::states(session, &config, 1)?;
        config.rope.iter_mut().try_for_each(|r| r.fix(capacity))?;
        let mut rotations = Vec::new();
        if let PositionEncoding::Rotary(_) = config.arch.positions {
            rotations =
                config.rope.iter().map(|r| table(session, r, capacity, config.pairs())).collect::<Result<_>>()?;
        }
        let (blocks, packed) = (FxHashMap::default(), FxHashMap::default());
        let (session, slots) = (session.clone(), Vec::new());
        let (sequences, half_precision) = (1, false);
        let d = Decoder {
            session,
            config,
            weights,
            blocks,
            packed,
            stacks: Vec::new(),
            caches: Vec::new(),
            ring: None,
            states,
            rotations,
            capacity,
            sequences,
            slots,
            half_precision,
        };
        d.check()?;
        if !d.config.arch.causal {
            return Ok(d);
        }
        let d = d.with_new_caches(DType::F32)?;
        let names = d.names();
        match names::unread(&d.config, &names) {
            Some(name) => Err(names::unread_error(d.config.arch, theirs.get(name).map_or(name, String::as_str))),
            None => Ok(d),
        }
    }

    /// The names of its weights.
    pub(super) fn names(&self) -> Vec<&str> {
        self.weights.keys().map(String::as_str).collect()
    }

    /// Cosines and sines of rotary embeddings by position: of layers with global attention, then of layers with a window.
    pub(super) fn all_rotations(&self) -> &[[Tensor; 2]] {
        &self.rotations
    }

    /// Those of layers with global attention.
    pub(super) fn rotations(&self) -> Option<&[Tensor; 2]> {
        self.rotations.first()
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The largest number of tokens of a text (the capacity of the caches).
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of tokens in the vocabulary.
    pub fn vocabulary(&self) -> Result<usize> {
        self.weight("token_embd.weight")?.dim(0)
    }

    /// Checks that all tokens are in the vocabulary.
    ///
    /// # Errors
    /// `E_VALUE` for a token that is not.
    pub fn check_tokens<'a>(&self, tokens: impl IntoIterator<Item = &'a u32>) -> Result<()> {
        let known = self.vocabulary()?;
        match tokens.into_iter().find(|t| **t as usize >= known) {
            Some(t) => Err(Error::value("generate", format!("token {t} of a vocabulary of {known}"))),
            None => Ok(()),
        }
    }

    /// Checks that the weights which every layer must have are there and have the right shape.
    fn check(&self) -> Result<()> {
        let c = &self.config;
        let embedding = self.weight("token_embd.weight")?.shape();
        if embedding.len() != 2 || embedding[1] != c.width {
            return Err(err(format!("`token_embd.weight` has shape {embedding:?}, {} wide is wanted", c.width)));
        }
        for i in 0..c.layers {
            if let Some(ssm) = c.ssm.as_ref() {
                self.check_ssm(i, ssm)?;
                continue;
            }
            let of = |part: &str| format!("blk.{i}.{part}.weight");
            let output = self.weight(&of("attn_output"))?.shape();
            if output != [c.width, c.heads * c.head_width] {
                return Err(err(format!("`{}` has shape {output:?}", of("attn_output"))));
            }
            let is_mixture = self.has_weight(&of("ffn_gate_inp"));
            self.weight(&of(if is_mixture { "ffn_down_exps" } else { "ffn_down" }))?;
        }
        Ok(())
    }

    /// The same weights with other adapters: without caches, with unpacked matrices, and with f32 products, so that
    /// everything has a gradient.
    pub(super) fn with_training_adapters(&self, slots: Vec<Slot>) -> Decoder {
        Decoder {
            session: self.session.clone(),
            config: self.config.clone(),
            weights: self.weights.clone(),
            blocks: FxHashMap::default(),
            packed: FxHashMap::default(),
            stacks: Vec::new(),
            caches: Vec::new(),
            ring: None,
            states: Vec::new(),
            rotations: self.rotations.clone(),
            capacity: self.capacity,
            sequences: 1,
            slots,
            half_precision: false,
        }
    }

    /// The same model with products of several tokens computed in 16 bits ([`Activations::F16`]). Call it
    /// before any graph is made.
    pub fn with_half_precision(self) -> Result<Decoder> {
        let dtype = self.cache_dtype();
        // Chunks are longer
        Decoder { half_precision: half_precision::HAS_F16_PRODUCTS, ..self }.with_new_caches(dtype)
    }

    /// The same model with zeros in its caches of keys and values.
    pub(super) fn with_new_caches(mut self, dtype: DType) -> Result<Decoder> {
        let c = &self.config;
        if !c.arch.causal || c.arch.recurrent {
            return Ok(self);
        }
        let longest = if self.half_precision { LENGTHS[4] } else { LENGTHS[3] };
        self.ring = c.window.and_then(|w| ring(w, longest, self.capacity));
        let room = |i: usize| if self.is_global(i) { self.capacity } else { self.ring.unwrap_or(self.capacity) };
        let cache = |i: usize| Cache::new(&self.session, c, self.sequences, room(i), dtype);
        self.caches = (0..c.layers).map(cache).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Whether layer `i` attends to all tokens before.
    fn is_global(&self, i: usize) -> bool {
        self.config.window.is_none() || self.config.global[i]
    }

    /// The chunk sizes in tokens, ascending. A larger chunk pays until a product takes longer than reading
    /// its matrix does.
    pub fn lengths(&self) -> &'static [usize] {
        let all = if self.half_precision { LENGTHS.len() } else { LENGTHS.len() - 1 };
        let most = self.most_tokens();
        &LENGTHS[..LENGTHS.iter().take_while(|&&n| n <= most).count().min(all)]
    }

    pub(super) fn has_weight(&self, name: &str) -> bool {
        self.weights.contains_key(name)
    }

    pub(super) fn is_quantised(&self, name: &str) -> bool {
        self.blocks.contains_key(name)
    }

    pub(super) fn weight(&self, name: &str) -> Result<&Tensor> {
        let lacks = || err(format!("a model of architecture {} lacks the weight `{name}`", self.config.arch.name));
        self.weights.get(name).ok_or_else(lacks)
    }

    /// The caches of keys and values. Realize them before the first chunk.
    pub fn caches(&self) -> Vec<&Tensor> {
        self.caches.iter().flat_map(Cache::tensors).chain(self.states.iter().flat_map(LayerState::tensors)).collect()
    }

    /// Whether texts have a state instead of caches, so that they go on or begin anew, but lose no tokens.
    pub fn is_recurrent(&self) -> bool {
        self.config.arch.recurrent
    }

    /// The weights that are stacks of tensors of the files, as those of experts in safetensors files. Realize them before
    /// the first chunk, as otherwise each run makes them again.
    pub fn stacks(&self) -> Vec<&Tensor> {
        self.stacks.iter().collect()
    }

    /// The same model with its caches in f32, in f16, or as bytes (i8), with a factor for each head of each row. Call it
    /// before any graph is made.
    ///
    /// # Errors
    /// `E_DTYPE` for another dtype, `E_UNSUPPORTED` for a model without keys and values.
    pub fn with_cache(self, dtype: DType) -> Result<Decoder> {
        if self.is_recurrent() {
            return Err(unsupported(self.config.arch, &format!("keys and values in {dtype}")));
        }
        self.with_new_caches(dtype)
    }

    /// The dtype of the caches.
    pub(super) fn cache_dtype(&self) -> DType {
        self.caches.first().map_or(DType::F32, Cache::dtype)
    }

    /// Builds the graph that reads `n` tokens of one text.
    pub fn chunk(&self, n: usize) -> Result<Chunk> {
        self.fits(n)?;
        let s = &self.session;
        let (tokens, best) = (Tensor::empty(s, DType::I32, &[n])?, Tensor::empty(s, DType::I32, &[1])?);
        let logits = Tensor::empty(s, DType::F32, &[self.vocabulary()?])?;
        let last = Tensor::variable(s, LAST, 0, n as i32 - 1)?;
        let y = self.output(&self.hidden_state_of(&tokens, &self.chunk_context(n)?, &last)?)?;
        logits.assign(y.flatten(0, -1)?)?;
        best.assign(logits.argmax(-1, false)?.reshape(&[1])?)?;
        Ok(Chunk { tokens, logits, best, caches: self.buffers() })
    }

    /// What every graph updates.
    pub(super) fn buffers(&self) -> Vec<Tensor> {
        self.caches().into_iter().cloned().collect()
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The hidden states `[n, width]` of all tokens after the last layer.
    pub(super) fn hidden_states(&self, tokens: &Tensor, context: &ChunkContext) -> Result<Tensor> {
        let mut x = self.embed(tokens, context)?;
        for i in 0..self.config.layers {
            x = self.layer(i, &x, context, None)?;
        }
        Ok(x)
    }

    /// The hidden state `[1, width]` of one token after the last layer. Of the other tokens the last layer computes
    /// keys and values only.
    fn hidden_state_of(&self, tokens: &Tensor, context: &ChunkContext, which: &Tensor) -> Result<Tensor> {
        let (n, layers) = (tokens.dim(0)?, self.config.layers);
        if n == 1 || layers == 0 {
            return self.hidden_states(tokens, context)?.narrow_at(0, which, 1);
        }
        let first = Tensor::variable(&self.session, POSITION, 0, (self.capacity - n) as i32)?;
        let (at, newest) = (first.add(which)?.reshape(&[1])?, first.add(n - 1)?);
        let one = WantedToken { which, context: self.context_for(at, Texts::Only, &newest, None)? };
        let mut x = self.embed(tokens, context)?;
        for i in 0..layers {
            x = self.layer(i, &x, context, (i + 1 == layers).then_some(&one))?;
        }
        Ok(x)
    }

    /// Logits `[n, vocabulary]` from hidden states `[n, width]`.
    pub(super) fn output(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.norm(x, "output_norm")?.contiguous();
        let is_own = self.config.untied || self.weights.contains_key("output.weight");
        let output = if is_own { "output" } else { "token_embd" };
        let y = self.adapted(&x, "output", self.product(&x, output)?)?;
        match self.config.logit_cap {
            Some(cap) => limited(&y, cap),
            None => Ok(y),
        }
    }

    fn embed(&self, tokens: &Tensor, context: &ChunkContext) -> Result<Tensor> {
        let mut x = self.weight("token_embd.weight")?.embedding(tokens)?.cast(DType::F32)?;
        if self.config.arch.scaled_embedding {
            x = x.mul((self.config.width as f64).sqrt())?;
        }
        match self.config.arch.positions {
            PositionEncoding::Learned => {
                x.add(self.weight("position_embd.weight")?.embedding(&context.at)?.cast(DType::F32)?)
            }
            PositionEncoding::Rotary(_) | PositionEncoding::None => Ok(x),
        }
    }

    /// One layer: `[n, width]` to `[n, width]`, or to `[1, width]` where only the token `one` is wanted.
    fn layer(&self, i: usize, x: &Tensor, context: &ChunkContext, one: Option<&WantedToken>) -> Result<Tensor> {
        let of = |part: &str| format!("blk.{i}.{part}");
        let block = self.config.arch.block;
        let before = |x: &Tensor, part: &str| match block {
            Block::After => Ok(x.clone()),
            _ => self.norm(x, &of(part)),
        };
        let after = |x: Tensor, part: &str| match block {
            Block::After | Block::Both => self.norm(&x, &of(part)),
            _ => Ok(x),
        };
        if self.is_recurrent() {
            let y = x.add(self.mamba(i, &self.norm(x, &of("attn_norm"))?.contiguous(), context)?)?;
            return one.map_or(Ok(y.contiguous()), |one| one.of(&y.contiguous()));
        }
        let own = before(x, "attn_norm")?;
        let y = after(self.attention(i, &own, context, one)?, "post_attention_norm")?;
        let [x, own] = match one {
            Some(one) => [one.of(x)?, one.of(&own)?],
            None => [x.clone(), own],
        };
        if block == Block::Parallel && self.config.parallel {
            return Ok(x.add(y)?.add(self.feed(i, &own)?)?.contiguous());
        }
        let x = x.add(y)?.contiguous();
        let y = after(self.feed(i, &before(&x, "ffn_norm")?)?, "post_ffw_norm")?;
        Ok(x.add(y)?.contiguous())
    }

    fn attention(&self, i: usize, x: &Tensor, context: &ChunkContext, one: Option<&WantedToken>) -> Result<Tensor> {
        let c = &self.config;
        let (n, d) = (x.dim(0)?, c.head_width);
        let of = |part: &str| format!("blk.{i}.{part}");
        let counts = [c.heads, c.kv_heads, c.kv_heads];
        let parts: Vec<Tensor> = match self.weights.contains_key(&of("attn_qkv.weight")) {
            true => self.linear(x, &of("attn_qkv"))?.split(&counts.map(|h| h * d), -1)?,
            false => {
                let asked = one.map(|one| one.of(x)).transpose()?;
                let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(of);
                vec![self.linear(asked.as_ref().unwrap_or(x), &q)?, self.linear(x, &k)?, self.linear(x, &v)?]
            }
        };
        if parts.iter().zip(counts).any(|(p, h)| p.shape().get(1) != Some(&(h * d))) {
            return Err(err(format!("projections of layer {i} have other shapes than {counts:?} heads of {d}")));
        }
        let which = usize::from(!self.is_global(i));
        let head = |t: &Tensor, heads: usize, norm: Option<&str>, context: &ChunkContext| -> Result<Tensor> {
            let n = t.dim(0)?;
            let t = match norm.map(|p| (of(p), c.norm_width(heads))) {
                Some((name, Some(_))) if c.arch.heads == HeadNorm::Own => {
                    match self.weights.get(&format!("{name}.weight")) {
                        Some(w) if w.shape() == [heads, d] => {
                            t.reshape(&[n, heads, d])?.layer_norm(1, None, None, c.eps)?.mul(w.cast(DType::F32)?)?
                        }
                        Some(w) => return Err(err(format!("`{name}.weight` has shape {:?}", w.shape()))),
                        None => t.clone(),
                    }
                }
                Some((name, Some(width))) => self.norm(&t.reshape(&[n * heads * d / width, width])?, &name)?,
                _ => t.clone(),
            };
            let t = c.clip.map_or_else(|| Ok(t.clone()), |most| t.clamp(-most, most))?;
            let t = t.reshape(&[n, heads, d])?.transpose(0, 1)?;
            match (norm, c.arch.positions) {
                (Some(_), PositionEncoding::Rotary(_)) if !c.unrotated.get(i).copied().unwrap_or(false) => {
                    rotated(&t, &context.rotations[which], &c.rope[which], c.pairs())
                }
                _ => Ok(t),
            }
        };
        let asked = match one {
            Some(one) if parts[0].dim(0)? == n => one.of(&parts[0])?,
            _ => parts[0].clone(),
        };
        let own = one.map_or(context, |one| &one.context);
        let q = head(&asked, c.heads, Some("attn_q_norm"), own)?;
        let k = head(&parts[1], c.kv_heads, Some("attn_k_norm"), context)?;
        let v = head(&parts[2], c.kv_heads, None, context)?;
        let q = q.mul(c.scale)?;
        let (mask, asked) = (&own.masks[which], q.dim(1)?);
        if let Texts::Whole(batch) = context.texts {
            let y = self.attend_whole([&q, &k, &v], mask, batch)?;
            return self.linear(&y.reshape(&[n, c.heads * d])?, &of("attn_output"));
        }
        let cache = &self.caches[i];
        cache.write(&context.rows[which], &k, &v)?;
        let rows = cache.read(&context.texts, n)?;
        let y = match &context.texts {
            Texts::Each(_) if DESKTOP => self.attend_each(&q, &rows, mask)?,
            _ => self.attend(&q, rows, mask)?,
        };
        self.linear(&y.reshape(&[asked, c.heads * d])?, &of("attn_output"))
    }

    /// Attention of queries `[heads, n, width]` of one text over its keys and values: `[n, heads, width]`.
    fn attend(&self, q: &Tensor, rows: Rows, mask: &Tensor) -> Result<Tensor> {
        let c = &self.config;
        let (n, d, len, group) = (q.dim(1)?, c.head_width, rows.count()?, c.heads / c.kv_heads);
        let half_precision = self.half_precision && half_precision::uses_f16_attention(n, d);
        let stored = |t: &Tensor| if half_precision { half_precision::stored(t) } else { Ok(t.clone()) };
        let (q, rows) = (stored(q)?, Rows { keys: stored(&rows.keys)?, values: stored(&rows.values)?, ..rows });
        // Heads that share keys (grouped-query attention) become rows of one product, so that keys are read once
        let scores = self.capped(rows.scores(&q.reshape(&[c.kv_heads, group * n, d])?)?)?;
        let scores = scores.reshape(&[c.kv_heads, group, n, len])?;
        let weights = mask.reshape(&[1, 1, n, len])?.select(scores, f64::NEG_INFINITY)?.softmax(-1)?;
        let weights = rows.scaled(weights.reshape(&[c.kv_heads, group * n, len])?)?;
        let weights = if half_precision { half_precision::rounded(&weights)? } else { weights };
        weights.matmul(&rows.values)?.reshape(&[c.heads, n, d])?.transpose(0, 1)
    }

    /// Attention of one query for each of the first n texts, `[heads, n, width]`, over that text's keys and values:
    /// `[n, heads, width]`.
    fn attend_each(&self, q: &Tensor, rows: &Rows, mask: &Tensor) -> Result<Tensor> {
        let c = &self.config;
        let (n, d, kv, group) = (q.dim(1)?, c.head_width, c.kv_heads, c.heads / c.kv_heads);
        let q = q.reshape(&[kv, group, n, d])?.permute(&[2, 0, 1, 3])?;
        let scores = self.capped(rows.scores(&q)?)?;
        let weights = mask.reshape(&[n, 1, 1, rows.count()?])?.select(scores, f64::NEG_INFINITY)?.softmax(-1)?;
        rows.scaled(weights)?.matmul(&rows.values)
    }

    /// Attention scores, soft-capped where the model has a cap.
    pub(super) fn capped(&self, scores: Tensor) -> Result<Tensor> {
        match self.config.score_cap {
            Some(cap) => limited(&scores, cap),
            None => Ok(scores),
        }
    }

    pub(super) fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        self.adapted(x, name, self.product(x, name)?)
    }

    pub(super) fn product(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let key = format!("{name}.weight");
        let own = self.weight(&key)?;
        let weight = own.cast(DType::F32)?;
        let bias = self.weights.get(&format!("{name}.bias")).map(|b| b.cast(DType::F32)).transpose()?;
        let block = self.blocks.get(&key).copied();
        let stored = if block.is_some() { DType::F16 } else { own.dtype() };
        if self.half_precision && x.shape().first().is_some_and(|&n| half_precision::uses_f16_product(n, stored)) {
            let rounded = if block.is_some() { own.cast(stored)?.contiguous() } else { own.clone() };
            let y = half_precision::product(x, &rounded)?;
            return bias.map_or(Ok(y.clone()), |b| y.add(b));
        }
        let Some(block) = block else { return x.linear(&weight, bias.as_ref()) };
        let (wanted, shape) = (x.shape(), weight.want_rank("linear", 2)?);
        let &[n, inputs] = &wanted[..] else { return x.linear(&weight, bias.as_ref()) };
        if inputs != shape[1] || inputs % block != 0 {
            return Err(err(format!("`{key}` has shape {shape:?}, {inputs} inputs are given")));
        }
        let packed = self.packed.get(&key);
        let product = match (packed, packed.and_then(Packed::words)) {
            (_, Some(words)) if n == 1 || words.suits_several() => Some(words.products(x)?),
            (Some(m), None) if n == 1 => Some(m.product(&x.contiguous().flatten(0, -1)?)?.reshape(&[1, shape[0]])?),
            _ => None,
        };
        if let Some(y) = product {
            return match bias {
                Some(b) => y.add(b),
                None => Ok(y),
            };
        }
        let split = self.split(&key, inputs);
        let axes: Vec<i64> = (1..=split.len() as i64).map(|a| -a).collect();
        let x = x.reshape(&[&[n, 1], &split[..]].concat())?;
        let y = x.mul(weight.reshape(&[&[1, shape[0]], &split[..]].concat())?)?.sum(&axes, false)?;
        match bias {
            Some(b) => y.add(b),
            None => Ok(y),
        }
    }

    /// The axes that a kernel sums over which decodes this weight: the axis of a block is split into factors of 2 and a
    /// rest of at most 16 elements, since the bit fields and the scales of a block each hold for some of these parts.
    pub(super) fn split(&self, name: &str, inputs: usize) -> Vec<usize> {
        let Some(&block) = self.blocks.get(name) else { return vec![inputs] };
        let mut split = vec![inputs / block];
        let mut left = block;
        while left > 16 && left % 2 == 0 {
            split.push(2);
            left /= 2;
        }
        split.push(left);
        split
    }

    pub(super) fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let eps = self.config.eps;
        if self.config.arch.norm == Norm::Plain {
            return x.layer_norm(1, None, None, eps);
        }
        let weight = self.weight(&format!("{name}.weight"))?.cast(DType::F32)?;
        match self.config.arch.norm {
            Norm::Rms => x.rms_norm(1, Some(&weight), eps),
            _ => {
                let bias = self.weights.get(&format!("{name}.bias")).map(|b| b.cast(DType::F32)).transpose()?;
                x.layer_norm(1, Some(&weight), bias.as_ref(), eps)
            }
        }
    }
}

/// Soft cap: `cap * tanh(x / cap)`, which stays between `-cap` and `cap`.
fn limited(x: &Tensor, cap: f64) -> Result<Tensor> {
    x.div(cap)?.tanh()?.mul(cap)
}

/// Covers `n` tokens that begin at `position` with chunks of the given sizes: for each chunk its size and how many of
/// its tokens are text. The rest of the last chunk is padding; its cache rows are overwritten by later tokens.
pub fn chunks(lengths: &[usize], n: usize, position: usize, capacity: usize) -> Vec<(usize, usize)> {
    let (mut left, mut at, mut out) = (n, position, Vec::new());
    while left > 0 {
        let fits = |len: &&usize| at + **len <= capacity;
        let whole = lengths.iter().filter(fits).find(|&&len| len >= left && len <= 2 * left);
        let part = lengths.iter().rev().filter(fits).find(|&&len| len <= left);
        let Some(&len) = whole.or(part) else { break };
        out.push((len, len.min(left)));
        at += len.min(left);
        left -= len.min(left);
    }
    out
}

/// Chunk sizes in tokens. The largest one is used only where products are computed in 16 bits.
const LENGTHS: [usize; 5] = [1, 8, 32, 128, 512];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_in_chunks() {
        assert_eq!(chunks(&LENGTHS[..4], 1, 5, 100), [(1, 1)]);
        assert_eq!(chunks(&LENGTHS[..4], 32, 0, 100), [(32, 32)]);
        assert_eq!(chunks(&LENGTHS[..4], 300, 0, 1000), [(128, 128), (128, 128), (32, 32), (8, 8), (8, 4)]);
        assert_eq!(chunks(&LENGTHS[..4], 100, 0, 1000), [(128, 100)]);
        assert_eq!(chunks(&LENGTHS[..4], 5, 95, 100), [(1, 1); 5], "no chunk leaves the room");
        assert_eq!(chunks(&LENGTHS, 700, 0, 1000), [(512, 512), (128, 128), (32, 32), (32, 28)]);
        assert!(chunks(&LENGTHS[..4], 3, 99, 100).iter().map(|c| c.1).sum::<usize>() < 3, "no room");
    }
}
