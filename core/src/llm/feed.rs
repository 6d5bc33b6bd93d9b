//! The feed-forward networks of layers.

use super::arch::{Act, Feed};
use super::config::unsupported;
use super::decoder::Decoder;
use crate::error::Result;
use crate::tensor::Tensor;

impl Decoder {
    /// The feed-forward network of layer `i`: `[n, width]` to `[n, width]`.
    pub(super) fn feed(&self, i: usize, x: &Tensor) -> Result<Tensor> {
        let of = |part: &str| format!("blk.{i}.{part}");
        self.gated(x, &of("ffn_gate"), &of("ffn_up"), &of("ffn_down"))
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
}
