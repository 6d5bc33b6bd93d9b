//! Transformers (Vaswani et al. 2017) as torch builds them, with the batch as the first axis.

use super::{Dropout, Layer, LayerNorm, Linear, Mode, Module, MultiHeadAttention, Role, init, join};
use crate::tensor::{Attention, Session, Tensor, check_repetitions};
use crate::{Error, Result};

/// Options of the layers of a transformer. The defaults are torch's, except that the batch is the first axis.
#[derive(Clone, Copy, Debug)]
pub struct TransformerOpts {
    /// Width of the hidden layer of the feed-forward network.
    pub feed_forward: usize,
    /// Probability of dropping, in training: attention weights, hidden features, and what each sublayer adds.
    pub dropout: f64,
    /// The activation function of the feed-forward network.
    pub activation: fn(&Tensor) -> Result<Tensor>,
    /// `eps` of the layer norms.
    pub eps: f64,
    /// Whether norms come before attention and feed-forward network (pre-norm) rather than after them.
    pub norm_first: bool,
}

impl Default for TransformerOpts {
    fn default() -> TransformerOpts {
        TransformerOpts { feed_forward: 2048, dropout: 0.1, activation: Tensor::relu, eps: 1e-5, norm_first: false }
    }
}

/// Which keys a query may attend to; all by default. Masks broadcast to `[batch, heads, queries, keys]`, and true means
/// that the query may attend to the key (torch's boolean masks mean the opposite).
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionMask<'a> {
    /// A bool mask, or floats that are added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Whether a query may not attend to later keys.
    pub causal: bool,
}

/// The feed-forward network after attention: two linear maps with an activation between them.
struct FeedForward {
    linear1: Linear,
    linear2: Linear,
    opts: TransformerOpts,
}

impl FeedForward {
    fn new(s: &Session, width: usize, opts: TransformerOpts) -> Result<FeedForward> {
        let (linear1, linear2) = (Linear::new(s, width, opts.feed_forward)?, Linear::new(s, opts.feed_forward, width)?);
        Ok(FeedForward { linear1, linear2, opts })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let inner = (self.opts.activation)(&self.linear1.forward(x)?)?;
        self.linear2.forward(&dropped(&inner, &self.opts, mode)?)
    }

    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.linear1.visit(&join(prefix, "linear1"), f);
        self.linear2.visit(&join(prefix, "linear2"), f);
    }
}

fn dropped(x: &Tensor, opts: &TransformerOpts, mode: Mode) -> Result<Tensor> {
    Dropout { p: opts.dropout }.apply(x, mode)
}

fn norm(s: &Session, width: usize, opts: &TransformerOpts) -> Result<LayerNorm> {
    Ok(LayerNorm { eps: opts.eps, ..LayerNorm::new(s, &[width])? })
}

/// A residual sublayer: `x` plus the output of `f`, with the norm before `f` or after the sum.
fn residual(
    x: &Tensor,
    norm: &LayerNorm,
    opts: &TransformerOpts,
    mode: Mode,
    f: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if opts.norm_first {
        return x.add(dropped(&f(&norm.forward(x)?)?, opts, mode)?);
    }
    norm.forward(&x.add(dropped(&f(x)?, opts, mode)?)?)
}

fn attend(
    m: &MultiHeadAttention,
    q: &Tensor,
    kv: &Tensor,
    mask: &AttentionMask<'_>,
    opts: &TransformerOpts,
    mode: Mode,
) -> Result<Tensor> {
    let dropout = if mode == Mode::Train { opts.dropout } else { 0.0 };
    m.forward(q, kv, kv, &Attention { mask: mask.mask, causal: mask.causal, dropout, ..Attention::default() })
}

/// An encoder layer: attention of a sequence to itself, and a feed-forward network at each position.
pub struct TransformerEncoderLayer {
    self_attn: MultiHeadAttention,
    feed_forward: FeedForward,
    norm1: LayerNorm,
    norm2: LayerNorm,
    opts: TransformerOpts,
}

impl TransformerEncoderLayer {
    /// A layer for vectors of `width` elements, which must be a multiple of `heads` (`Error::Value`).
    pub fn new(s: &Session, width: usize, heads: usize, opts: TransformerOpts) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: MultiHeadAttention::new(s, width, heads)?,
            feed_forward: FeedForward::new(s, width, opts)?,
            norm1: norm(s, width, &opts)?,
            norm2: norm(s, width, &opts)?,
            opts,
        })
    }

    /// Applies the layer to `[batch, n, width]`; the shape stays.
    pub fn forward(&self, x: &Tensor, mask: &AttentionMask<'_>, mode: Mode) -> Result<Tensor> {
        let o = &self.opts;
        let x = residual(x, &self.norm1, o, mode, |x| attend(&self.self_attn, x, x, mask, o, mode))?;
        residual(&x, &self.norm2, o, mode, |x| self.feed_forward.forward(x, mode))
    }
}

impl Module for TransformerEncoderLayer {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.self_attn.visit(&join(prefix, "self_attn"), f);
        self.feed_forward.visit(prefix, f);
        self.norm1.visit(&join(prefix, "norm1"), f);
        self.norm2.visit(&join(prefix, "norm2"), f);
    }
}

/// A decoder layer: attention of a sequence to itself, attention to a memory (the encoder's output), and a feed-forward
/// network at each position.
pub struct TransformerDecoderLayer {
    self_attn: MultiHeadAttention,
    multihead_attn: MultiHeadAttention,
    feed_forward: FeedForward,
    norms: [LayerNorm; 3],
    opts: TransformerOpts,
}

impl TransformerDecoderLayer {
    /// A layer for vectors of `width` elements, which must be a multiple of `heads` (`Error::Value`).
    pub fn new(s: &Session, width: usize, heads: usize, opts: TransformerOpts) -> Result<TransformerDecoderLayer> {
        Ok(TransformerDecoderLayer {
            self_attn: MultiHeadAttention::new(s, width, heads)?,
            multihead_attn: MultiHeadAttention::new(s, width, heads)?,
            feed_forward: FeedForward::new(s, width, opts)?,
            norms: [norm(s, width, &opts)?, norm(s, width, &opts)?, norm(s, width, &opts)?],
            opts,
        })
    }

    /// Applies the layer to `x` `[batch, n, width]` with `memory` `[batch, m, width]`; the shape of `x` stays.
    /// `self_mask` says which positions of `x` may be attended to, `memory_mask` which ones of the memory.
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        self_mask: &AttentionMask<'_>,
        memory_mask: &AttentionMask<'_>,
        mode: Mode,
    ) -> Result<Tensor> {
        let o = &self.opts;
        let x = residual(x, &self.norms[0], o, mode, |x| attend(&self.self_attn, x, x, self_mask, o, mode))?;
        let x =
            residual(&x, &self.norms[1], o, mode, |x| attend(&self.multihead_attn, x, memory, memory_mask, o, mode))?;
        residual(&x, &self.norms[2], o, mode, |x| self.feed_forward.forward(x, mode))
    }
}

impl Module for TransformerDecoderLayer {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.self_attn.visit(&join(prefix, "self_attn"), f);
        self.multihead_attn.visit(&join(prefix, "multihead_attn"), f);
        self.feed_forward.visit(prefix, f);
        for (i, n) in self.norms.iter().enumerate() {
            n.visit(&join(prefix, &format!("norm{}", i + 1)), f);
        }
    }
}

/// Encoder layers applied in order.
pub struct TransformerEncoder {
    /// The layers, from the first to the last.
    pub layers: Vec<TransformerEncoderLayer>,
    /// A norm after the last layer.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// A stack of `depth` layers, without a norm after them.
    pub fn new(
        s: &Session,
        width: usize,
        heads: usize,
        depth: usize,
        opts: TransformerOpts,
    ) -> Result<TransformerEncoder> {
        let layer = |_| TransformerEncoderLayer::new(s, width, heads, opts);
        Ok(TransformerEncoder {
            layers: (0..check_repetitions("transformer", depth)?).map(layer).collect::<Result<_>>()?,
            norm: None,
        })
    }

    /// Applies the layers to `[batch, n, width]`; the shape stays.
    pub fn forward(&self, x: &Tensor, mask: &AttentionMask<'_>, mode: Mode) -> Result<Tensor> {
        let y = self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x, mask, mode))?;
        self.norm.as_ref().map_or(Ok(y.clone()), |n| n.forward(&y))
    }
}

/// Decoder layers applied in order.
pub struct TransformerDecoder {
    /// The layers, from the first to the last.
    pub layers: Vec<TransformerDecoderLayer>,
    /// A norm after the last layer.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// A stack of `depth` layers, without a norm after them.
    pub fn new(
        s: &Session,
        width: usize,
        heads: usize,
        depth: usize,
        opts: TransformerOpts,
    ) -> Result<TransformerDecoder> {
        let layer = |_| TransformerDecoderLayer::new(s, width, heads, opts);
        Ok(TransformerDecoder {
            layers: (0..check_repetitions("transformer", depth)?).map(layer).collect::<Result<_>>()?,
            norm: None,
        })
    }

    /// Applies the layers to `x` `[batch, n, width]`, see [`TransformerDecoderLayer::forward`].
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        self_mask: &AttentionMask<'_>,
        memory_mask: &AttentionMask<'_>,
        mode: Mode,
    ) -> Result<Tensor> {
        let y = self
            .layers
            .iter()
            .try_fold(x.clone(), |x, layer| layer.forward(&x, memory, self_mask, memory_mask, mode))?;
        self.norm.as_ref().map_or(Ok(y.clone()), |n| n.forward(&y))
    }
}

macro_rules! stacks {
    ($($stack:ident),*) => {$(
        impl Module for $stack {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
                for (i, layer) in self.layers.iter().enumerate() {
                    layer.visit(&join(prefix, &format!("layers.{i}")), f);
                }
                if let Some(n) = &self.norm {
                    n.visit(&join(prefix, "norm"), f);
                }
            }
        }
    )*};
}
stacks!(TransformerEncoder, TransformerDecoder);

/// An encoder and a decoder, each with a norm after its last layer.
pub struct Transformer {
    /// The encoder of the source.
    pub encoder: TransformerEncoder,
    /// The decoder of the target, whose memory is the encoded source.
    pub decoder: TransformerDecoder,
}

impl Transformer {
    /// A transformer with `depth.0` encoder and `depth.1` decoder layers. `Error::Value` if either is 0.
    pub fn new(
        s: &Session,
        width: usize,
        heads: usize,
        depth: (usize, usize),
        opts: TransformerOpts,
    ) -> Result<Transformer> {
        if depth.0 == 0 || depth.1 == 0 {
            return Err(Error::value("transformer", "no layers"));
        }
        let mut encoder = TransformerEncoder::new(s, width, heads, depth.0, opts)?;
        let mut decoder = TransformerDecoder::new(s, width, heads, depth.1, opts)?;
        encoder.norm = Some(norm(s, width, &opts)?);
        decoder.norm = Some(norm(s, width, &opts)?);
        let t = Transformer { encoder, decoder };
        for p in t.parameters().iter().filter(|p| p.rank() > 1) {
            init::xavier_uniform(p, 1.0)?;
        }
        Ok(t)
    }

    /// A source `[batch, n, width]` and a target `[batch, m, width]` give `[batch, m, width]`. `masks` says which
    /// positions may be attended to: by the source in the source, by the target in the target, and by the target in the
    /// source.
    pub fn forward(
        &self,
        source: &Tensor,
        target: &Tensor,
        masks: [&AttentionMask<'_>; 3],
        mode: Mode,
    ) -> Result<Tensor> {
        let memory = self.encoder.forward(source, masks[0], mode)?;
        self.decoder.forward(target, &memory, masks[1], masks[2], mode)
    }
}

impl Module for Transformer {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.encoder.visit(&join(prefix, "encoder"), f);
        self.decoder.visit(&join(prefix, "decoder"), f);
    }
}
