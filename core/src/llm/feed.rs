//! The feed-forward networks of layers. In mixtures of experts (Shazeer et al. 2017) a token chooses a few experts by its
//! scores, and their outputs are summed by their shares. Only the chosen experts' rows are read: the choice is an index
//! into the stored matrices, so that quantised ones are decoded by the kernel that multiplies with them.

use super::arch::{Act, Feed};
use super::config::unsupported;
use super::decoder::Decoder;
use super::{err, mamba};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

impl Decoder {
    /// The most tokens that are read at once. The kernels that multiply with the experts of a mixture decode them where
    /// they read them as long as no more experts are chosen than there are; otherwise all of them would be decoded and
    /// stored first.
    pub(super) fn most_tokens(&self) -> usize {
        if self.is_recurrent() {
            return mamba::MOST_TOKENS;
        }
        let is_quantised = (0..self.config().layers).any(|i| self.is_quantised(&format!("blk.{i}.ffn_up_exps.weight")));
        self.config().experts.filter(|_| is_quantised).map_or(usize::MAX, |e| (e.count / e.used).max(1))
    }

    /// The feed-forward network of layer `i`: `[n, width]` to `[n, width]`.
    pub(super) fn feed(&self, i: usize, x: &Tensor) -> Result<Tensor> {
        let of = |part: &str| format!("blk.{i}.{part}");
        match self.has_weight(&of("ffn_gate_inp.weight")) {
            true => self.mixture(i, x),
            false => self.gated(x, &of("ffn_gate"), &of("ffn_up"), &of("ffn_down")),
        }
    }

    /// A feed-forward network of matrices of these names.
    fn gated(&self, x: &Tensor, gate: &str, up: &str, down: &str) -> Result<Tensor> {
        // Each product gets a kernel of its own: two products in one kernel are computed row by row, and
        // cannot be tiled
        let up = self.linear(x, up)?.contiguous();
        let y = match self.config().arch.feed {
            Feed::Plain(_) => self.activated(&up)?,
            Feed::Gated(_) if self.has_weight(&format!("{gate}.weight")) => {
                self.activated(&self.linear(x, gate)?.contiguous())?.mul(up)?
            }
            // Gate and up projection are stored as one matrix
            Feed::Gated(_) => {
                let both = up.chunk(2, -1)?;
                let [gate, up] = &both[..] else {
                    return Err(unsupported(self.config().arch, "an odd feed-forward part"));
                };
                self.activated(gate)?.mul(up)?
            }
        };
        self.linear(&y, down)
    }

    fn activated(&self, x: &Tensor) -> Result<Tensor> {
        match self.config().act {
            Act::Silu => x.silu(),
            Act::GeluTanh => x.gelu_tanh(),
            Act::Gelu => x.gelu(),
            Act::Relu => x.relu(),
        }
    }

    /// The mixture of layer `i`: `[n, width]` to `[n, width]`.
    fn mixture(&self, i: usize, x: &Tensor) -> Result<Tensor> {
        let of = |part: &str| format!("blk.{i}.{part}");
        let (x, n) = (&x.contiguous(), x.dim(0)?);
        let e = self.config().experts.ok_or_else(|| err("it is not known how many experts there are"))?;
        let scores = self.product(x, &of("ffn_gate_inp"))?;
        if scores.shape() != [n, e.count] {
            return Err(err(format!("scores {:?} of {} experts in layer {i}", scores.shape(), e.count)));
        }
        let (mut share, chosen) = scores.softmax(-1)?.contiguous().top_few(e.used)?;
        if e.normalised {
            share = share.div(share.sum(&[-1], true)?)?;
        }
        let chosen = chosen.contiguous();
        let own = x.unsqueeze(1)?;
        let up = self.chosen_product(&own, &of("ffn_up_exps.weight"), &chosen)?;
        let gate = self.chosen_product(&own, &of("ffn_gate_exps.weight"), &chosen)?;
        let inner = self.activated(&gate)?.mul(up)?.contiguous();
        let y = self.chosen_product(&inner, &of("ffn_down_exps.weight"), &chosen)?;
        let y = y.mul(share.unsqueeze(-1)?)?.sum(&[1], false)?;
        if !self.has_weight(&of("ffn_gate_inp_shexp.weight")) {
            return Ok(y);
        }
        let width = x.dim(1)? as i64;
        let gate = self.weight(&of("ffn_gate_inp_shexp.weight"))?.cast(DType::F32)?.reshape(&[1, width])?;
        let gate = x.mul(gate)?.sum(&[-1], true)?.sigmoid()?;
        y.add(self.gated(x, &of("ffn_gate_shexp"), &of("ffn_up_shexp"), &of("ffn_down_shexp"))?.mul(gate)?)
    }

    /// Products of `x` `[n, 1, inputs]` or `[n, k, inputs]` with the matrices `[outputs, inputs]` of the experts
    /// `chosen` `[n, k]`: `[n, k, outputs]`.
    fn chosen_product(&self, x: &Tensor, name: &str, chosen: &Tensor) -> Result<Tensor> {
        let all = self.weight(name)?;
        let (given, shape) = (x.shape(), all.shape());
        let count = self.config().experts.map_or(0, |e| e.count);
        let (&[n, one, inputs], &[experts, outputs, own]) = (&given[..], &shape[..]) else {
            return Err(err(format!("`{name}` has shape {shape:?}")));
        };
        let split = self.split(name, inputs);
        if own != inputs || experts != count || split.iter().product::<usize>() != inputs {
            return Err(err(format!("`{name}` has shape {shape:?}, {inputs} inputs of {count} experts are given")));
        }
        let picked = all.index_select(0, &chosen.flatten(0, -1)?)?.cast(DType::F32)?;
        let w = picked.reshape(&[&[n, chosen.dim(1)?, outputs], &split[..]].concat())?;
        let axes: Vec<i64> = (1..=split.len() as i64).map(|a| -a).collect();
        Ok(w.mul(x.reshape(&[&[n, one, 1], &split[..]].concat())?)?.sum(&axes, false)?.contiguous())
    }
}
