//! Layers with parameters. The names of tensors, their shapes and their initial distributions are torch's, so that a
//! state dict of torch loads without changes. Input of a layer: tensors, and for some the [`Mode`]; output: lazy
//! tensors.
//! | layer | input -> output |
//! |---|---|
//! | [`Linear`] | `[.., in] -> [.., out]` |
//! | [`Conv`], [`ConvTranspose`] | `[batch, in, n..] -> [batch, out, o..]`, 1 to any number of axes |
//! | [`BatchNorm`], [`GroupNorm`], [`InstanceNorm`] | `[batch, channels, ..]`, same shape |
//! | [`LayerNorm`], [`RmsNorm`] | normalise the last axes, same shape |
//! | [`Embedding`], [`EmbeddingBag`] | integers `[..] -> [.., width]`, `[bags, n] -> [bags, width]` |
//! | [`Rnn`], [`Lstm`], [`Gru`] | `[batch, time, in] -> [batch, time, hidden * directions]` |
//! | [`RnnCell`], [`LstmCell`], [`GruCell`] | one step of these: `[batch, in]` and a state to a state |
//! | [`MultiHeadAttention`] | queries `[batch, n, width]`, keys and values `[batch, m, width]` -> `[batch, n, width]` |
//! | [`Transformer`] and its parts | `[batch, n, width]`, same shape |
//! | [`Bilinear`], [`PRelu`], [`AdaptiveLogSoftmax`] | |
//! | [`WeightNorm`], [`SpectralNorm`] | around a [`Linear`] or a convolution |
//! | [`Dropout`], [`ChannelDropout`], [`AlphaDropout`], [`Sequential`] | |
//!
//! Those layers of torch that have no parameters (activations, pools, padding, upsampling, shuffles, losses) are
//! methods of [`Tensor`], and become layers of a [`Sequential`] by [`Sequential::function`]. torch's `nn.init` is
//! [`init`]. Not here: lazy modules, `kdim`, `vdim`, `bias_kv` and `zero_attn` of attention, `max_norm` of embeddings.
//!
//! A parameter is a tensor with storage of its own. Optimiser steps assign to it, and every clone of it sees the new
//! values. Nothing runs until the engine realizes the tensors ([`Module::tensors`]).

mod adaptive;
mod attention;
mod basic;
mod conv;
mod embedding;
pub mod init;
mod norm;
mod parametrize;
mod recurrent;
mod transformer;

pub use adaptive::AdaptiveLogSoftmax;
pub use attention::MultiHeadAttention;
pub use basic::{AlphaDropout, Bilinear, ChannelDropout, Dropout, Linear, PRelu, Sequential};
pub use conv::{Conv, ConvTranspose};
pub use embedding::{Bag, Embedding, EmbeddingBag};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use parametrize::{SpectralNorm, WeightNorm, Weighted};
pub use recurrent::{
    Gru, GruCell, Lstm, LstmCell, LstmState, Nonlinearity, Recurrent, RecurrentOpts, Rnn, RnnCell, recurrent,
};
pub use transformer::{
    AttentionMask, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerOpts,
};

use crate::tensor::{Session, Tensor};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Named tensors, as in a safetensors file or a torch state dict.
pub type StateDict = BTreeMap<String, Tensor>;

/// Whether a model is being trained or used, which changes what dropout and batch norm do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training: dropout drops elements, and norms use the statistics of the batch.
    Train,
    /// Inference: dropout does nothing, and norms use the running statistics.
    Eval,
}

/// What the named tensor of a module is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is trained by an optimiser.
    Parameter,
    /// State that training updates without gradients, such as running statistics.
    Buffer,
}

/// A module: a collection of named tensors.
pub trait Module {
    /// Calls `f` with the name, role and tensor of everything inside, in a fixed order; names begin with `prefix`.
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor));

    /// The parameters, which an optimiser trains.
    fn parameters(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        self.visit("", &mut |_, role, t| {
            if role == Role::Parameter {
                out.push(t.clone());
            }
        });
        out
    }

    /// All tensors, which are to be realized after loading or a training step.
    fn tensors(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        self.visit("", &mut |_, _, t| out.push(t.clone()));
        out
    }

    /// All tensors by name.
    fn state_dict(&self) -> StateDict {
        let mut out = StateDict::new();
        self.visit("", &mut |name, _, t| {
            out.insert(name.to_string(), t.clone());
        });
        out
    }

    /// Replaces every tensor by that of its name in `dict`; nothing is copied, unless the dtype differs and is cast.
    /// Returns the names in `dict` that the module does not have. `Error::Input` for a missing name or another shape;
    /// the module is then unchanged.
    fn load_state_dict(&self, dict: &StateDict) -> Result<Vec<String>> {
        let own = self.state_dict();
        for (name, t) in &own {
            let Some(new) = dict.get(name) else {
                return Err(Error::Input { name: name.clone(), what: "missing from the state dict".into() });
            };
            if new.shape() != t.shape() {
                let what = format!("has shape {:?}, the module wants {:?}", new.shape(), t.shape());
                return Err(Error::Input { name: name.clone(), what });
            }
        }
        for (name, t) in &own {
            t.set(&dict[name])?;
        }
        Ok(dict.keys().filter(|k| !own.contains_key(*k)).cloned().collect())
    }
}

/// A module that maps one tensor to one tensor.
pub trait Layer: Module {
    /// The layer's output.
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor>;
}

/// `prefix.name`, or `name` alone.
pub(crate) fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

/// Calls a visitor with those of the `(name, tensor)` pairs that have a tensor, all of one role.
pub(crate) fn each(
    prefix: &str,
    role: Role,
    f: &mut dyn FnMut(&str, Role, &Tensor),
    tensors: &[(&str, Option<&Tensor>)],
) {
    for (name, t) in tensors {
        if let Some(t) = t {
            f(&join(prefix, name), role, t);
        }
    }
}

/// A bias with storage, uniform in `[-limit, limit)` with `limit = 1/sqrt(fan_in)`: torch's default.
pub(crate) fn bias_init(session: &Session, fan_in: usize, shape: &[usize]) -> Result<Tensor> {
    let limit = 1.0 / (fan_in.max(1) as f64).sqrt();
    Tensor::uniform(session, -limit, limit, shape)?.to_storage()
}
