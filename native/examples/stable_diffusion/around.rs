//! What is around the U-Net: the text encoder of CLIP, the decoder that makes pictures of latents, and the steps from noise to latents.

use super::blocks::{attend, conv, group_norm, larger, residual, to_maps, to_rows};
use super::noise::Weights;
use gradloom::{Result, Tensor};

/// Words of a text, and how wide what is known of each is.
pub(crate) const WORDS: usize = 8;
pub(crate) const VOCABULARY: usize = 50;
pub(crate) const WIDTH: usize = 32;
const TEXT_LAYERS: usize = 2;
const TEXT_HEADS: usize = 4;
/// Of the decoder.
const EPS: f64 = 1e-6;
/// Channels of the decoder's levels, from the smallest map on.
const LEVELS: [usize; 4] = [32, 32, 16, 16];
const BLOCKS: usize = 3;
/// Steps that a picture was drowned in when the network learned.
const TIMES: usize = 1000;

/// CLIP (Radford et al., 2021): tokens `[batch, words]` to `[batch, words, width]`.
pub(crate) fn text(w: &Weights, tokens: &Tensor) -> Result<Tensor> {
    let table = |name: &str, rows| w.get(&format!("text_encoder.embeddings.{name}_embedding.weight"), &[rows, WIDTH]);
    let mut x = table("token", VOCABULARY)?.embedding(tokens)?.add(table("position", WORDS)?)?;
    for i in 0..TEXT_LAYERS {
        let at = |part: &str| format!("text_encoder.encoder.layers.{i}.{part}");
        let n = w.layer_norm(&x, &at("layer_norm1"), 1e-5)?;
        let part = |which: &str| w.linear(&n, &at(&format!("self_attn.{which}_proj")), WIDTH);
        let seen = attend(&part("q")?, &part("k")?, &part("v")?, TEXT_HEADS, true)?;
        x = x.add(w.linear(&seen, &at("self_attn.out_proj"), WIDTH)?)?;
        let n = w.layer_norm(&x, &at("layer_norm2"), 1e-5)?;
        let n = w.linear(&n, &at("mlp.fc1"), 4 * WIDTH)?.quick_gelu()?;
        x = x.add(w.linear(&n, &at("mlp.fc2"), WIDTH)?)?;
    }
    w.layer_norm(&x, "text_encoder.final_layer_norm", 1e-5)
}

/// Latents `[batch, 4, rows, columns]` to a picture 8 times as large, `[batch, 3, ..]` from -1 to 1.
pub(crate) fn picture(w: &Weights, latents: &Tensor) -> Result<Tensor> {
    let x = conv(w, &latents.div(0.18215)?, "vae.post_quant_conv", 4, 1, 1)?;
    let width = LEVELS[0];
    let x = conv(w, &x, "vae.decoder.conv_in", width, 3, 1)?;
    let at = |part: &str| format!("vae.decoder.mid_block.{part}");
    let x = residual(w, &x, None, &at("resnets.0"), width, EPS)?;
    let n = to_rows(&group_norm(w, &x, &at("attentions.0.group_norm"), EPS)?)?;
    let part = |which: &str| w.linear(&n, &at(&format!("attentions.0.{which}")), width);
    let seen = attend(&part("to_q")?, &part("to_k")?, &part("to_v")?, 1, false)?;
    let x = x.add(to_maps(&w.linear(&seen, &at("attentions.0.to_out.0"), width)?, &x)?)?;
    let mut x = residual(w, &x, None, &at("resnets.1"), width, EPS)?;
    for (level, &channels) in LEVELS.iter().enumerate() {
        let name = format!("vae.decoder.up_blocks.{level}");
        for i in 0..BLOCKS {
            x = residual(w, &x, None, &format!("{name}.resnets.{i}"), channels, EPS)?;
        }
        if level + 1 < LEVELS.len() {
            x = larger(w, &x, &format!("{name}.upsamplers.0"))?;
        }
    }
    conv(w, &group_norm(w, &x, "vae.decoder.conv_norm_out", EPS)?.silu()?, "vae.decoder.conv_out", 3, 3, 1)
}

/// Song, Meng, Ermon, "Denoising diffusion implicit models" (2020), without noise of its own.
pub(crate) struct Steps {
    /// How much of a picture is left at each time, squared.
    left: Vec<f64>,
    every: usize,
    /// The times of the steps, the noisiest first.
    pub(crate) times: Vec<usize>,
}

impl Steps {
    /// So many steps, spaced evenly.
    pub(crate) fn new(steps: usize) -> Steps {
        let (from, to) = (0.00085f64.sqrt(), 0.012f64.sqrt());
        let lost = |t: usize| (from + (to - from) * t as f64 / (TIMES - 1) as f64).powi(2);
        let left = (0..TIMES).scan(1.0, |all, t| {
            *all *= 1.0 - lost(t);
            Some(*all)
        });
        let every = TIMES / steps;
        Steps { left: left.collect(), every, times: (0..steps).rev().map(|i| i * every + 1).collect() }
    }

    /// How much there is of a picture and of noise at a time, and how much there shall be after its step: what [`Steps::step`] takes.
    pub(crate) fn shares(&self, time: usize) -> [f32; 4] {
        let next = self.left[time.saturating_sub(self.every)];
        let now = self.left[time];
        [now.sqrt(), (1.0 - now).sqrt(), next.sqrt(), (1.0 - next).sqrt()].map(|x| x as f32)
    }

    /// Latents one step later, where `noise` is in them. `shares` `[4]` is a tensor, so that all steps are one plan.
    pub(crate) fn step(latents: &Tensor, noise: &Tensor, shares: &Tensor) -> Result<Tensor> {
        let share = |i: i64| shares.select_at(0, i);
        let clean = latents.sub(noise.mul(share(1)?)?)?.div(share(0)?)?;
        clean.mul(share(2)?)?.add(noise.mul(share(3)?)?)
    }
}
