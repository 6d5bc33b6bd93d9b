//! The graph of an encoder (Devlin et al. 2019): all tokens of some texts in, one vector or some scores for each text out.
//!
//! The tokens of several texts are one list, which is filled up to a power of two ([`Pack`]), so that few plans serve
//! batches of any lengths. Tokens attend to those of their own text; the loops over keys end behind the last token, which the
//! launch variable [`USED`] says. What the states of a text are pooled to is their product with the row of a matrix
//! ([`super::Pooling::shares`]). Weights and matrix products are those of [`Decoder`].
//!
//! GELU is the exact one, as in the transformers library, also of GGUF files, where llama.cpp takes its tanh approximation.

use super::arch::PositionEncoding;
use super::config::{Config, class, unsupported};
use super::decoder::Decoder;
use super::encoders::{ENCODERS, first_position, is_read, own_name, refuse};
use super::pooling::{Pooler, Pooling};
use super::read::read_files;
use super::rotary::rotated;
use super::{err, names};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::io::gguf::{Activations, Gguf, Matrix, Value};
use crate::io::json::Json;
use crate::tensor::{Session, Tensor};
use crate::text::Encoding;
use rustc_hash::FxHashMap;

/// The launch variable with the number of tokens of all texts of a pack.
pub const USED: &str = "used";
/// The most tokens of a pack of several texts; a longer text has one for itself.
const MOST: usize = 512;
/// The fewest tokens of a pack.
const LEAST: usize = 16;
/// The distance from which on the biases of attention scores are those of the largest distance (Raffel et al. 2020).
const FAR: f64 = 128.0;

/// An encoder whose weights belong to one session.
pub struct Encoder {
    decoder: Decoder,
    pooler: Pooler,
    /// The rows of the matrix of the classification head, if there is one.
    labels: Option<usize>,
}

/// A graph that reads `n` tokens of several texts. Write its inputs before each run, and the launch variable [`USED`].
pub struct Pack {
    /// `[n]`, i32: the token ids.
    pub tokens: Tensor,
    /// `[n]`, i32: the tokens' types.
    pub kinds: Tensor,
    /// `[n]`, i32: the tokens' positions in their texts.
    pub positions: Tensor,
    /// `[n]`, i32: the numbers of the tokens' texts.
    pub texts: Tensor,
    /// `[rows, n]`: the share of each token in the vector of each text.
    pub shares: Tensor,
    /// `[rows, width]`, or `[rows, labels]` of an encoder with a classification head.
    pub values: Tensor,
}

/// The values of the inputs of a [`Pack`].
pub struct PackInputs {
    /// Values of [`Pack::tokens`].
    pub tokens: Vec<i32>,
    /// Values of [`Pack::kinds`].
    pub kinds: Vec<i32>,
    /// Values of [`Pack::positions`].
    pub positions: Vec<i32>,
    /// Values of [`Pack::texts`].
    pub texts: Vec<i32>,
    /// Values of [`Pack::shares`].
    pub shares: Vec<f32>,
    /// The value of [`USED`].
    pub used: usize,
}

/// The most texts of a pack of `n` tokens; a long text has a pack for itself.
fn rows(n: usize) -> usize {
    if n > MOST { 1 } else { n / 4 }
}

/// Divides texts of these lengths into packs: of each its size in tokens, and the number of the texts in it.
pub fn packs(lengths: &[usize]) -> Vec<(usize, usize)> {
    let size = |tokens: usize, texts: usize| tokens.max(4 * texts).max(LEAST).next_power_of_two();
    let (mut out, mut tokens, mut texts) = (Vec::new(), 0, 0);
    for &length in lengths {
        if texts > 0 && size(tokens + length, texts + 1) > MOST {
            out.push((size(tokens, texts), texts));
            (tokens, texts) = (0, 0);
        }
        (tokens, texts) = (tokens + length, texts + 1);
    }
    if texts > 0 {
        out.push((size(tokens, texts), texts));
    }
    out
}

/// What all layers of a pack share.
struct Context {
    /// `[n, n]`: which tokens attend to which.
    mask: Tensor,
    /// `[heads, n, n]`: what is added to attention scores.
    bias: Option<Tensor>,
    /// Cosines and sines of the tokens' positions.
    rotation: Option<[Tensor; 2]>,
}

impl Encoder {
    /// Is the model of this GGUF file an encoder?
    pub fn is_gguf(file: &Gguf) -> bool {
        let name = file.get("general.architecture").and_then(Value::as_str);
        ENCODERS.iter().any(|a| Some(a.name) == name)
    }

    /// Is the model of this `config.json` an encoder?
    pub fn is_json(file: &[u8]) -> Result<bool> {
        let json = Json::parse(file)?;
        let class = class(&json)?;
        Ok(ENCODERS.iter().any(|a| a.classes.contains(&class)))
    }

    /// Builds the model of GGUF files, of which the caller has parsed the indices (one for each file), for texts of up to
    /// `capacity` tokens. Also gives the merged index.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an unknown architecture, for values of the configuration that no encoder has, and for weights
    /// that it does not read; `E_MODEL` for weights that are missing or have another shape.
    pub fn from_indexed(
        session: &Session,
        files: &[Bytes],
        indices: Vec<Gguf>,
        capacity: usize,
        activations: Activations,
    ) -> Result<(Encoder, Gguf)> {
        let (index, tensors, factors) = read_files(session, files, indices, activations)?;
        Ok((Encoder::from_matrices(session, &index, tensors, &factors, capacity)?, index))
    }

    /// As [`Encoder::from_indexed`], from the merged index of the files, their tensors (which a caller may have loaded
    /// one by one), and the names and values of those of the tensors [`super::FACTORS`] that they have.
    pub fn from_matrices(
        session: &Session,
        index: &Gguf,
        tensors: Vec<Matrix>,
        factors: &[(String, Vec<f64>)],
        capacity: usize,
    ) -> Result<Encoder> {
        let config = Config::of_gguf(index, ENCODERS)?;
        let decoder = Decoder::of_matrices(session, config, index, tensors, factors, capacity)?;
        Encoder::new(decoder, Pooler::from_gguf(index)?, &FxHashMap::default())
    }

    /// Builds a model from a `config.json` and the tensors of its safetensors files. How states are pooled is another file's
    /// matter ([`Pooler::from_modules`]).
    ///
    /// # Errors
    /// As for [`Encoder::from_indexed`].
    pub fn from_tensors(
        session: &Session,
        config: &[u8],
        tensors: Vec<(String, Tensor)>,
        pooler: Pooler,
        capacity: usize,
    ) -> Result<Encoder> {
        let json = Json::parse(config)?;
        let mut config = Config::of_json(&json, ENCODERS)?;
        refuse(config.arch, &json)?;
        let first = match config.arch.positions {
            PositionEncoding::Learned => first_position(config.arch, &json),
            PositionEncoding::Rotary(_) | PositionEncoding::None => 0,
        };
        // Nomic's models stretch rotations in longer texts than those of their training
        let trained = json.get("max_trained_positions").and_then(Json::as_u64).map_or(usize::MAX, |n| n as usize);
        config.context = config.context.saturating_sub(first).min(trained);
        let classifies = class(&json)?.ends_with("ForSequenceClassification");
        let (mut weights, mut theirs) = (FxHashMap::default(), FxHashMap::default());
        for (name, mut t) in tensors {
            let Some(own) = own_name(config.arch, &name, classifies)? else { continue };
            if own == "position_embd.weight" && first > 0 {
                let n = t.dim(0)?;
                let left = n.checked_sub(first).ok_or_else(|| err(format!("`{name}` has {n} rows")))?;
                t = t.narrow(0, first, left)?;
            }
            if let Some(other) = theirs.insert(own.clone(), name.clone()) {
                return Err(err(format!("`{other}` and `{name}` are the same weight")));
            }
            weights.insert(own, t);
        }
        let pooler = if classifies { Pooler { pooling: Pooling::First, ..pooler } } else { pooler };
        Encoder::new(Decoder::new(session, config, weights, &theirs, capacity)?, pooler, &theirs)
    }

    fn new(decoder: Decoder, pooler: Pooler, theirs: &FxHashMap<String, String>) -> Result<Encoder> {
        let c = decoder.config();
        if let Some(name) = decoder.names().into_iter().filter(|name| !is_read(c, name)).min() {
            return Err(names::unread_error(c.arch, theirs.get(name).map_or(name, String::as_str)));
        }
        if c.kv_heads != c.heads || c.window.is_some() {
            return Err(unsupported(c.arch, "grouped or windowed attention"));
        }
        let tables = [
            ("position_embd.weight", c.arch.positions == PositionEncoding::Learned, c.width),
            ("token_types.weight", decoder.has_weight("token_types.weight"), c.width),
            ("distance_bias.weight", decoder.has_weight("distance_bias.weight"), c.heads),
        ];
        for (name, _, width) in tables.iter().filter(|t| t.1) {
            let shape = decoder.weight(name)?.shape();
            let least = if *name == "position_embd.weight" { decoder.capacity() } else { 1 };
            if shape.len() != 2 || shape[0] < least || shape[1] != *width {
                return Err(err(format!("`{name}` has shape {shape:?}, {width} wide is wanted")));
            }
        }
        let mut labels = None;
        for head in ["cls.weight", "cls.output.weight"].into_iter().filter(|head| decoder.has_weight(head)) {
            let shape = decoder.weight(head)?.shape();
            let inputs = labels.unwrap_or(c.width);
            match shape[..] {
                [outputs, own] if own == inputs && outputs > 0 => labels = Some(outputs),
                _ => return Err(err(format!("`{head}` has shape {shape:?}, {inputs} inputs are given"))),
            }
        }
        Ok(Encoder { decoder, pooler, labels })
    }

    /// The same model with products computed in 16 bits ([`Activations::F16`]). Call it before any graph is made.
    pub fn with_half_precision(self) -> Result<Encoder> {
        Ok(Encoder { decoder: self.decoder.with_half_precision()?, ..self })
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> &Config {
        self.decoder.config()
    }

    /// The largest number of tokens of a text.
    pub fn capacity(&self) -> usize {
        self.decoder.capacity()
    }

    /// The number of tokens in the vocabulary.
    pub fn vocabulary(&self) -> Result<usize> {
        self.decoder.vocabulary()
    }

    /// How it makes embeddings.
    pub fn pooler(&self) -> Pooler {
        self.pooler
    }

    /// The number of scores that the classification head gives, if the model has one (a cross-encoder).
    pub fn labels(&self) -> Option<usize> {
        self.labels
    }

    /// The elements of a text's vector, or the number of its scores.
    pub fn outputs(&self) -> usize {
        self.labels.unwrap_or(self.config().width)
    }

    /// The inputs for these texts in a pack of `n` tokens.
    ///
    /// # Errors
    /// `E_VALUE` for a text without a token, for one that is longer than the capacity, for texts that the pack has no
    /// room for, and for tokens that are not in the vocabulary.
    pub fn inputs(&self, n: usize, texts: &[&Encoding]) -> Result<PackInputs> {
        let (capacity, used) = (self.capacity(), texts.iter().map(|t| t.ids.len()).sum());
        let bad = |t: &&&Encoding| t.ids.is_empty() || t.ids.len() > capacity || t.type_ids.len() != t.ids.len();
        if let Some(t) = texts.iter().find(bad) {
            return Err(Error::value("embed", format!("a text of {} tokens with room for {capacity}", t.ids.len())));
        }
        if texts.is_empty() || used > n || texts.len() > rows(n) {
            let what = format!("{} texts of {used} tokens in a pack of {n}", texts.len());
            return Err(Error::value("embed", what));
        }
        self.decoder.check_tokens(texts.iter().flat_map(|t| &t.ids))?;
        // Models without a second type (RoBERTa) read pairs as one text, whatever their tokenizers say
        let types = self.decoder.weight("token_types.weight").map_or(Ok(1), |t| t.dim(0))?;
        let kind = |&k: &u32| (k as usize).min(types - 1) as i32;
        let (mut tokens, mut kinds, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut numbers, mut shares) = (Vec::new(), vec![0.0; rows(n) * n]);
        for (i, t) in texts.iter().enumerate() {
            let len = t.ids.len();
            let from = i * n + tokens.len();
            shares[from..from + len].copy_from_slice(&self.pooler.pooling.shares(len));
            tokens.extend(t.ids.iter().map(|&id| id as i32));
            kinds.extend(t.type_ids.iter().map(kind));
            positions.extend(0..len as i32);
            numbers.resize(tokens.len(), i as i32);
        }
        tokens.resize(n, 0);
        kinds.resize(n, 0);
        positions.resize(n, 0);
        // What fills the pack up attends to the last text, so that its states are finite
        numbers.resize(n, texts.len() as i32 - 1);
        Ok(PackInputs { tokens, kinds, positions, texts: numbers, shares, used })
    }

    /// Builds the graph that reads `n` tokens of several texts.
    ///
    /// # Errors
    /// `E_MODEL` if the weights' shapes do not fit, or there is room for no text.
    pub fn pack(&self, n: usize) -> Result<Pack> {
        if n < LEAST || n > MOST.max(self.capacity().next_power_of_two()) {
            return Err(err(format!("{n} tokens at once, with room for {}", self.capacity())));
        }
        let s = self.decoder.session();
        let vector = || Tensor::empty(s, DType::I32, &[n]);
        let (tokens, kinds, positions, texts) = (vector()?, vector()?, vector()?, vector()?);
        let shares = Tensor::empty(s, DType::F32, &[rows(n), n])?;
        let values = Tensor::empty(s, DType::F32, &[rows(n), self.outputs()])?;
        let context = self.context(&positions, &texts)?;
        let mut x = self.embed(&tokens, &kinds, &positions)?;
        for i in 0..self.config().layers {
            x = self.layer(i, &x, &context)?;
        }
        let pooled = shares.matmul(&x)?;
        values.assign(match self.labels {
            Some(_) => self.classified(pooled.contiguous())?,
            None if self.pooler.normalised => {
                pooled.div(pooled.mul(&pooled)?.sum(&[-1], true)?.sqrt()?.maximum(1e-12)?)?
            }
            None => pooled,
        })?;
        Ok(Pack { tokens, kinds, positions, texts, shares, values })
    }

    fn context(&self, positions: &Tensor, texts: &Tensor) -> Result<Context> {
        let (c, s, n) = (self.config(), self.decoder.session(), positions.dim(0)?);
        let used = Tensor::variable(s, USED, 1, n as i32)?;
        let keys = Tensor::arange(s, 0.0, n as f64, 1.0, DType::I32)?.reshape(&[1, n])?;
        let mask = texts.reshape(&[n, 1])?.eq(texts.reshape(&[1, n])?)?.logical_and(keys.lt(&used)?)?;
        let rotation = match self.decoder.rotations() {
            Some([cos, sin]) => {
                Some([cos.index_select(0, positions)?.contiguous(), sin.index_select(0, positions)?.contiguous()])
            }
            None => None,
        };
        let bias = match self.decoder.has_weight("distance_bias.weight") {
            false => None,
            true => {
                let own = self.decoder.weight("distance_bias.weight")?.cast(DType::F32)?;
                let most = self.capacity() as i64 - 1;
                let classes: Vec<i32> = (-most..=most).map(|d| distance_class(d, own.shape()[0])).collect();
                let by_distance = own.index_select(0, &Tensor::new(s, &classes, &[classes.len()])?)?;
                let distance = positions.reshape(&[1, n])?.sub(positions.reshape(&[n, 1])?)?.add(most)?;
                // Distances between different texts have no meaning, but are indices all the same
                let distance = distance.clamp(0.0, 2.0 * most as f64)?.cast(DType::I32)?;
                let all = by_distance.index_select(0, &distance.flatten(0, -1)?)?;
                Some(all.reshape(&[n, n, c.heads])?.permute(&[2, 0, 1])?.contiguous())
            }
        };
        Ok(Context { mask, bias, rotation })
    }

    /// Embeddings of tokens, of their types and of their positions: `[n, width]`.
    fn embed(&self, tokens: &Tensor, kinds: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let of = |name: &str, index: &Tensor| self.decoder.weight(name)?.embedding(index)?.cast(DType::F32);
        let mut x = of("token_embd.weight", tokens)?;
        if self.decoder.has_weight("token_types.weight") {
            x = x.add(of("token_types.weight", kinds)?)?;
        }
        if self.config().arch.positions == PositionEncoding::Learned {
            x = x.add(of("position_embd.weight", positions)?)?;
        }
        Ok(self.decoder.norm(&x, "token_embd_norm")?.contiguous())
    }

    /// One layer: `[n, width]`, same shape.
    fn layer(&self, i: usize, x: &Tensor, context: &Context) -> Result<Tensor> {
        let norm = |x: Tensor, part: &str| Ok(self.decoder.norm(&x, &format!("blk.{i}.{part}"))?.contiguous());
        let x = norm(x.add(self.attention(i, x, context)?)?, "attn_output_norm")?;
        norm(x.add(self.decoder.feed(i, &x)?)?, "layer_output_norm")
    }

    fn attention(&self, i: usize, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (c, n) = (self.config(), x.dim(0)?);
        let (heads, d) = (c.heads, c.head_width);
        let of = |part: &str| format!("blk.{i}.{part}");
        let parts: Vec<Tensor> = match self.decoder.has_weight(&of("attn_qkv.weight")) {
            true => self.decoder.product(x, &of("attn_qkv"))?.split(&[heads * d; 3], -1)?,
            false => {
                ["attn_q", "attn_k", "attn_v"].iter().map(|p| self.decoder.product(x, &of(p))).collect::<Result<_>>()?
            }
        };
        if parts.iter().any(|p| p.shape() != [n, heads * d]) {
            return Err(err(format!("projections of layer {i} have other shapes than {heads} heads of {d}")));
        }
        let head = |t: &Tensor| t.reshape(&[n, heads, d])?.transpose(0, 1);
        let turned = |t: &Tensor| match &context.rotation {
            Some(rotation) => rotated(&head(t)?, rotation, &c.rope[0], c.pairs()),
            None => head(t),
        };
        let (q, k, v) = (turned(&parts[0])?.mul(c.scale)?, turned(&parts[1])?, head(&parts[2])?);
        let mut scores = q.matmul(&k.transpose(1, 2)?)?;
        if let Some(bias) = &context.bias {
            scores = scores.add(bias)?;
        }
        let weights = context.mask.reshape(&[1, n, n])?.select(scores, f64::NEG_INFINITY)?.softmax(-1)?;
        let y = weights.matmul(&v)?.transpose(0, 1)?.reshape(&[n, heads * d])?;
        self.decoder.product(&y, &of("attn_output"))
    }

    /// The scores of texts from the states of their first tokens: `[rows, width]` to `[rows, labels]`.
    fn classified(&self, x: Tensor) -> Result<Tensor> {
        let x = match self.decoder.has_weight("cls.weight") {
            true => self.decoder.product(&x, "cls")?.tanh()?.contiguous(),
            false => x,
        };
        match self.decoder.has_weight("cls.output.weight") {
            true => self.decoder.product(&x, "cls.output"),
            false => Ok(x),
        }
    }
}

/// The class of a distance from a query to a key, of `count` classes: half of them are for keys that come later. Short
/// distances have classes of their own, those of longer ones grow with the logarithm (Raffel et al. 2020).
fn distance_class(distance: i64, count: usize) -> i32 {
    let half = (count / 2).max(1);
    let (far, exact) = (distance.unsigned_abs() as usize, (half / 2).max(1));
    let class = match far < exact {
        true => far,
        false => {
            let part = (far as f64 / exact as f64).ln() / (FAR / exact as f64).ln();
            (exact + (part * (half - exact.min(half)) as f64) as usize).min(half - 1)
        }
    };
    (class + if distance > 0 { half.min(count - 1) } else { 0 }) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_share_packs() {
        assert_eq!(packs(&[]), []);
        assert_eq!(packs(&[5]), [(16, 1)]);
        assert_eq!(packs(&[5, 9, 3]), [(32, 3)], "17 tokens");
        assert_eq!(packs(&[2; 10]), [(64, 10)], "a pack has a text for four tokens");
        assert_eq!(packs(&[300, 300, 100]), [(512, 1), (512, 2)]);
        assert_eq!(packs(&[700, 3]), [(1024, 1), (16, 1)]);
        let many = packs(&[1; 1000]);
        assert_eq!(many.iter().map(|p| p.1).sum::<usize>(), 1000);
        assert!(many.iter().all(|p| p.0 <= MOST && p.1 <= rows(p.0)));
    }

    #[test]
    fn distances_have_the_classes_of_the_transformers_library() {
        let of = |d: i64| distance_class(d, 32);
        assert_eq!([0, -1, -7, -8, -9, -20, -127, -128, -500].map(of), [0, 1, 7, 8, 8, 10, 15, 15, 15]);
        assert_eq!([1, 7, 8, 12, 64, 1000].map(of), [17, 23, 24, 25, 30, 31]);
        assert!((-300..300).all(|d| (0..1).contains(&distance_class(d, 1)) && (0..3).contains(&distance_class(d, 3))));
    }
}
