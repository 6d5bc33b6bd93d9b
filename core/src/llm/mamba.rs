//! The layers of Mamba (Gu and Dao 2023): instead of attention a short convolution over time, and a linear recurrence
//! `h' = exp(dt A) h + dt x B`, `y = C h'` for each channel, where `dt`, `B` and `C` depend on the token.
//!
//! A text's state stays on the device: the last inputs of the convolution, and `h`. It is that of exactly the tokens which
//! were read, so a text cannot go back: it goes on, or begins anew, with zeros, at position 0. Tokens that fill a chunk up
//! have `dt = 0`, which leaves `h` as it is.
//!
//! The tokens of a chunk are computed at once: with `c` the running sum of `dt`, the state after token t holds the input of
//! token s times `exp(A (c_t - c_s))`. This is quadratic in the number of tokens, so chunks are short ([`MOST_TOKENS`]), and the
//! whole texts of training are computed in pieces as short.
//! Weights have GGUF's names; there `A` is stored, and in safetensors files the logarithm of its negative.

use super::config::Config;
use super::context::{ChunkContext, Texts};
use super::decoder::{Decoder, LAST};
use super::err;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{Session, Tensor};

/// The most tokens of a chunk: the work for states grows with their number, and soon exceeds that of matrix products.
pub(super) const MOST_TOKENS: usize = 8;

/// The sizes of a layer with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssm {
    /// The number of channels.
    pub inner: usize,
    /// Elements of a channel's state.
    pub state: usize,
    /// Taps of the convolution over time.
    pub kernel: usize,
    /// The rank of the projection that makes `dt`.
    pub rank: usize,
}

/// The state of a layer, of several texts.
pub(super) struct LayerState {
    /// The last inputs of the convolution: `[texts, kernel - 1, inner]`.
    inputs: Tensor,
    /// `[texts, inner, state]`.
    hidden: Tensor,
}

/// Zero states of each layer of `texts` texts.
pub(super) fn states(session: &Session, c: &Config, texts: usize) -> Result<Vec<LayerState>> {
    let Some(s) = c.ssm else { return Ok(Vec::new()) };
    let zeros = |shape: [usize; 3]| Tensor::zeros(session, DType::F32, &shape)?.to_storage();
    let one = |_| {
        let inputs = zeros([texts, s.kernel - 1, s.inner])?;
        Ok(LayerState { inputs, hidden: zeros([texts, s.inner, s.state])? })
    };
    (0..c.layers).map(one).collect()
}

impl LayerState {
    pub(super) fn tensors(&self) -> [&Tensor; 2] {
        [&self.inputs, &self.hidden]
    }
}

/// Parts of a layer: the name in safetensors files, and GGUF's name.
const PARTS: &[(&str, &str)] = &[
    ("norm.weight", "attn_norm.weight"),
    ("mixer.in_proj.weight", "ssm_in.weight"),
    ("mixer.in_proj.bias", "ssm_in.bias"),
    ("mixer.conv1d.weight", "ssm_conv1d.weight"),
    ("mixer.conv1d.bias", "ssm_conv1d.bias"),
    ("mixer.x_proj.weight", "ssm_x.weight"),
    ("mixer.dt_proj.weight", "ssm_dt.weight"),
    ("mixer.dt_proj.bias", "ssm_dt.bias"),
    ("mixer.A_log", "ssm_a"),
    ("mixer.D", "ssm_d"),
    ("mixer.out_proj.weight", "ssm_out.weight"),
    ("mixer.out_proj.bias", "ssm_out.bias"),
];

/// Weights outside of layers.
const NON_LAYER_WEIGHTS: &[(&str, &str)] = &[
    ("backbone.embeddings.weight", "token_embd.weight"),
    ("backbone.norm_f.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// GGUF's name for a weight of a safetensors file; `None` for a tensor that is not read.
pub(super) fn translate(name: &str) -> Option<String> {
    let of = |list: &'static [(&str, &str)], name: &str| list.iter().find(|p| p.0 == name).map(|p| p.1);
    if let Some(own) = of(NON_LAYER_WEIGHTS, name) {
        return Some(own.to_owned());
    }
    let (layer, part) = name.strip_prefix("backbone.layers.")?.split_once('.')?;
    Some(format!("blk.{layer}.{}", of(PARTS, part)?))
}

/// Does a model of this many layers read a weight of this name?
pub(super) fn is_read(layers: usize, name: &str) -> bool {
    match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        None => NON_LAYER_WEIGHTS.iter().any(|w| w.1 == name),
        Some((layer, part)) => {
            let is_layer = layer.parse::<usize>().is_ok_and(|i| i < layers && i.to_string() == layer);
            is_layer && PARTS.iter().any(|p| p.1 == part)
        }
    }
}

/// A tensor of a safetensors file as GGUF files have it.
pub(super) fn converted(own: &str, t: &Tensor) -> Result<Tensor> {
    match own.ends_with("ssm_a") {
        true => t.cast(DType::F32)?.exp()?.neg(),
        false => Ok(t.clone()),
    }
}

impl Decoder {
    /// Checks the shapes of a layer's weights.
    pub(super) fn check_ssm(&self, i: usize, s: &Ssm) -> Result<()> {
        let width = self.config().width;
        for (part, wanted) in [
            ("ssm_in.weight", [2 * s.inner, width]),
            ("ssm_x.weight", [s.rank + 2 * s.state, s.inner]),
            ("ssm_dt.weight", [s.inner, s.rank]),
            ("ssm_a", [s.inner, s.state]),
            ("ssm_out.weight", [width, s.inner]),
        ] {
            let name = format!("blk.{i}.{part}");
            let shape = self.weight(&name)?.shape();
            if shape != wanted {
                return Err(err(format!("`{name}` has shape {shape:?}, {wanted:?} is wanted")));
            }
        }
        for (part, wanted) in
            [("ssm_conv1d.weight", s.inner * s.kernel), ("ssm_conv1d.bias", s.inner), ("ssm_d", s.inner)]
        {
            let name = format!("blk.{i}.{part}");
            if part.ends_with("bias") && !self.has_weight(&name) {
                continue;
            }
            let shape = self.weight(&name)?.shape();
            if shape.iter().product::<usize>() != wanted {
                return Err(err(format!("`{name}` has shape {shape:?}, {wanted} elements are wanted")));
            }
        }
        Ok(())
    }

    /// What layer `i` adds to its input: `[n, width]`, same shape. The states of the texts are updated, but for those of
    /// whole texts, which have none.
    pub(super) fn mamba(&self, i: usize, x: &Tensor, context: &ChunkContext) -> Result<Tensor> {
        let Some(s) = self.config().ssm else { return Err(err("a layer without a state")) };
        let (n, session, out) = (x.dim(0)?, self.session(), format!("blk.{i}.ssm_out"));
        if let Texts::Whole(texts) = context.texts {
            let zeros = |shape: [usize; 3]| Tensor::zeros(session, DType::F32, &shape);
            let (inputs, hidden) = (zeros([texts, s.kernel - 1, s.inner])?, zeros([texts, s.inner, s.state])?);
            return self.linear(&self.mixed(i, x, &LayerState { inputs, hidden }, None)?.0, &out);
        }
        let state = &self.states[i];
        let iota = |len: usize| Tensor::arange(session, 0.0, len as f64, 1.0, DType::I32);
        // Texts, tokens of each, where their states are (past the end: nowhere), and their first positions
        let all = state.hidden.dim(0)?;
        let (texts, t, which) = match &context.texts {
            Texts::From(which) => (1, n, which.reshape(&[1])?),
            Texts::Each(positions) => (n, 1, positions.lt(0)?.select(all as i32, iota(n)?)?),
            Texts::Only | Texts::Whole(_) => (1, n, iota(1)?),
        };
        let last = if t > 1 { Some(Tensor::variable(session, LAST, 0, t as i32 - 1)?) } else { None };
        let is_first = context.at.narrow(0, 0, texts)?.eq(0)?.reshape(&[texts, 1, 1])?;
        let earlier = |of: &Tensor| match context.texts {
            Texts::Each(_) => is_first.select(0.0, of.narrow(0, 0, n)?),
            _ => is_first.select(0.0, of.narrow_at(0, &which, 1)?),
        };
        let before = LayerState { inputs: earlier(&state.inputs)?, hidden: earlier(&state.hidden)? };
        let (y, new) = self.mixed(i, x, &before, last.as_ref())?;
        // Both are computed before the state that they are computed from is overwritten
        state.inputs.assign_at(0, &which, new.inputs.contiguous())?;
        state.hidden.assign_at(0, &which, new.hidden.contiguous())?;
        self.linear(&y, &out)
    }

    /// What the last matrix of layer `i` is multiplied with, `[n, inner]`, for as many tokens of each text as there are, and the
    /// states after them. Tokens behind `last` are padding.
    fn mixed(&self, i: usize, x: &Tensor, before: &LayerState, last: Option<&Tensor>) -> Result<(Tensor, LayerState)> {
        let Some(s) = self.config().ssm else { return Err(err("a layer without a state")) };
        let (n, texts) = (x.dim(0)?, before.hidden.dim(0)?);
        let t = n / texts;
        let of = |part: &str| format!("blk.{i}.{part}");
        let both = self.linear(x, &of("ssm_in"))?.contiguous().split(&[s.inner; 2], -1)?;
        let [x, gate] = &both[..] else { return Err(err("an odd projection")) };
        let x = Tensor::cat(&[&before.inputs, &x.reshape(&[texts, t, s.inner])?], 1)?.contiguous();
        let inputs = match last {
            Some(last) => x.narrow_at(1, &last.add(1)?, s.kernel - 1)?,
            None => x.narrow(1, t, s.kernel - 1)?,
        };
        let x = self.convolution(&x, &of("ssm_conv1d"), t, &s)?.silu()?.contiguous();
        let parts = self.linear(&x.reshape(&[n, s.inner])?, &of("ssm_x"))?.contiguous();
        let parts = parts.split(&[s.rank, s.state, s.state], -1)?;
        let [dt, b, c] = &parts[..] else { return Err(err("an odd projection")) };
        let dt = self.linear(dt, &of("ssm_dt"))?.softplus(1.0)?.reshape(&[texts, t, s.inner])?;
        let dt = match last {
            Some(last) => {
                let count = Tensor::arange(self.session(), 0.0, t as f64, 1.0, DType::I32)?;
                count.le(last)?.reshape(&[1, t, 1])?.select(dt, 0.0)?
            }
            None => dt,
        };
        let dt = dt.contiguous();
        let [b, c] = [b.reshape(&[texts, t, 1, s.state])?, c.reshape(&[texts, t, 1, s.state])?];
        let a = self.weight(&of("ssm_a"))?.cast(DType::F32)?;
        let (mut pieces, mut hidden) = (Vec::new(), before.hidden.clone());
        for from in (0..t).step_by(MOST_TOKENS) {
            let piece = |v: &Tensor| v.narrow(1, from, MOST_TOKENS.min(t - from));
            let (y, after) = recurrence(&a, &piece(&dt)?, &piece(&x)?, &piece(&b)?, &piece(&c)?, &hidden)?;
            pieces.push(y);
            hidden = if t > MOST_TOKENS { after.contiguous() } else { after };
        }
        let y = if let [y] = &pieces[..] { y.clone() } else { Tensor::cat(&pieces.iter().collect::<Vec<_>>(), 1)? };
        let d = self.weight(&of("ssm_d"))?.cast(DType::F32)?.reshape(&[s.inner])?;
        let y = y.add(x.mul(d)?)?.reshape(&[n, s.inner])?.mul(gate.silu()?)?.contiguous();
        Ok((y, LayerState { inputs, hidden }))
    }

    /// The convolution over time of each channel: `[texts, kernel - 1 + t, inner]` to `[texts, t, inner]`.
    fn convolution(&self, x: &Tensor, name: &str, t: usize, s: &Ssm) -> Result<Tensor> {
        let taps = self.weight(&format!("{name}.weight"))?.cast(DType::F32)?.reshape(&[s.inner, s.kernel])?;
        let bias = format!("{name}.bias");
        let mut y = match self.has_weight(&bias) {
            true => self.weight(&bias)?.cast(DType::F32)?.reshape(&[s.inner])?,
            false => Tensor::zeros(self.session(), DType::F32, &[s.inner])?,
        };
        for k in 0..s.kernel {
            let tap = taps.narrow(1, k, 1)?.reshape(&[s.inner])?;
            y = y.add(x.narrow(1, k, t)?.mul(tap)?)?;
        }
        Ok(y)
    }
}

/// The outputs `[texts, t, inner]` and the states `[texts, inner, state]` after the last token, of `dt` and `x`
/// `[texts, t, inner]`, `b` and `c` `[texts, t, 1, state]`, and the states `hidden` before the first token.
fn recurrence(
    a: &Tensor,
    dt: &Tensor,
    x: &Tensor,
    b: &Tensor,
    c: &Tensor,
    hidden: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let (texts, t, inner) = (dt.dim(0)?, dt.dim(1)?, dt.dim(2)?);
    let column = |v: &Tensor| v.unsqueeze(-1);
    // What a token puts into the state: `[texts, t, inner, 1]`
    let put = column(&dt.mul(x)?)?;
    if t == 1 {
        let decay = column(dt)?.mul(a)?.exp()?;
        let new = decay.mul(hidden.unsqueeze(1)?)?.add(put.mul(b)?)?.contiguous();
        return Ok((new.mul(c)?.sum(&[-1], false)?, new.reshape(&[texts, inner, a.dim(1)?])?));
    }
    let count = Tensor::arange(dt.session(), 0.0, t as f64, 1.0, DType::I32)?;
    let is_before = count.reshape(&[1, t])?.le(count.reshape(&[t, 1])?)?;
    let is_read = is_before.reshape(&[1, t, t, 1])?;
    // The running sum: `[texts, t, inner]`
    let sum = is_read.select(dt.unsqueeze(1)?, 0.0)?.sum(&[2], false)?.contiguous();
    // How much of what token s put there token t reads: `[texts, t, s, inner]`
    // What comes later is not read: its power overflows, and an infinite factor of zero has no gradient
    let apart = is_read.select(sum.unsqueeze(2)?.sub(sum.unsqueeze(1)?)?, 0.0)?;
    let pairs = column(&apart)?.mul(a)?.exp()?.mul(c.unsqueeze(2)?)?.mul(b.unsqueeze(1)?)?.sum(&[-1], false)?;
    let pairs = is_read.select(pairs, 0.0)?.contiguous();
    let own = pairs.mul(put.squeeze(-1)?.unsqueeze(1)?)?.sum(&[2], false)?;
    let old = column(&sum)?.mul(a)?.exp()?.mul(hidden.unsqueeze(1)?)?.mul(c)?.sum(&[-1], false)?;
    let end = sum.narrow(1, t - 1, 1)?;
    let left = column(&end.sub(&sum)?)?.mul(a)?.exp()?.mul(put)?.mul(b)?.sum(&[1], false)?;
    let kept = column(&end.reshape(&[texts, inner])?)?.mul(a)?.exp()?.mul(hidden)?;
    Ok((own.add(old)?, left.add(kept)?))
}
