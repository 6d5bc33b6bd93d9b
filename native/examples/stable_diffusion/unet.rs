//! The network that says what of a noisy picture is noise, which the time and a text tell it: Stable Diffusion 1, and XL (Podell et al., "SDXL", 2023),
//! whose attention is deeper where maps are small, and which knows what size is wanted.

use super::blocks::{attend, conv, group_norm, larger, residual, to_maps, to_rows, waves};
use super::noise::Weights;
use gradloom::{Result, Tensor};

const EPS: f64 = 1e-5;

/// One level of the network.
#[derive(Clone, Copy)]
pub(crate) struct Level {
    pub(crate) channels: usize,
    /// Layers of attention after each residual block.
    pub(crate) attention: usize,
    pub(crate) heads: usize,
}

/// The levels from the largest map on; the middle is one more of the last.
pub(crate) struct Unet {
    pub(crate) levels: Vec<Level>,
    /// Layers of attention in the middle.
    pub(crate) middle: usize,
    /// Residual blocks of a level on the way down; there is one more on the way up.
    pub(crate) blocks: usize,
    /// Waves that each wanted size becomes, for XL.
    pub(crate) size_waves: usize,
    /// Whether projections around attention are matrices (XL), rather than convolutions of one pixel.
    pub(crate) linear: bool,
}

/// What the network is told beside a text.
pub(crate) struct Wanted<'a> {
    /// `[batch, any]`: the text as a whole.
    pub(crate) pooled: &'a Tensor,
    /// `[batch, 6]`: sizes and corners, in pixels.
    pub(crate) sizes: &'a Tensor,
}

impl Unet {
    /// Stable Diffusion 1's, 10 times narrower.
    pub(crate) fn sd() -> Unet {
        let level = |channels, attention| Level { channels, attention, heads: 4 };
        let levels = vec![level(32, 1), level(64, 1), level(96, 1), level(96, 0)];
        Unet { levels, middle: 1, blocks: 2, size_waves: 0, linear: false }
    }

    /// That of XL, 10 times narrower, with 3 layers of attention where it has 10.
    pub(crate) fn sdxl() -> Unet {
        let level = |channels, attention, heads| Level { channels, attention, heads };
        let levels = vec![level(32, 0, 2), level(64, 2, 4), level(96, 3, 6)];
        Unet { levels, middle: 3, blocks: 2, size_waves: 8, linear: true }
    }

    /// Pictures look at themselves and at the text.
    fn attention(
        &self,
        w: &Weights,
        x: &Tensor,
        text: &Tensor,
        name: &str,
        layers: usize,
        heads: usize,
    ) -> Result<Tensor> {
        let width = x.shape()[1];
        let y = group_norm(w, x, &format!("{name}.norm"), 1e-6)?;
        let mut y = match self.linear {
            true => w.linear(&to_rows(&y)?, &format!("{name}.proj_in"), width)?,
            false => to_rows(&conv(w, &y, &format!("{name}.proj_in"), width, 1, 1)?)?,
        };
        for i in 0..layers {
            let at = |part: &str| format!("{name}.transformer_blocks.{i}.{part}");
            let matrix = |x: &Tensor, part: &str| -> Result<Tensor> {
                x.linear(&w.get(&at(&format!("{part}.weight")), &[width, x.shape()[2]])?, None)
            };
            let n = w.layer_norm(&y, &at("norm1"), EPS)?;
            let part = |which: &str| matrix(&n, &format!("attn1.{which}"));
            let seen = attend(&part("to_q")?, &part("to_k")?, &part("to_v")?, heads, false)?;
            y = y.add(w.linear(&seen, &at("attn1.to_out.0"), width)?)?;
            let n = w.layer_norm(&y, &at("norm2"), EPS)?;
            let (k, v) = (matrix(text, "attn2.to_k")?, matrix(text, "attn2.to_v")?);
            let seen = attend(&matrix(&n, "attn2.to_q")?, &k, &v, heads, false)?;
            y = y.add(w.linear(&seen, &at("attn2.to_out.0"), width)?)?;
            let n = w.layer_norm(&y, &at("norm3"), EPS)?;
            let both = w.linear(&n, &at("ff.net.0.proj"), 8 * width)?.chunk(2, 2)?;
            y = y.add(w.linear(&both[0].mul(both[1].gelu()?)?, &at("ff.net.2"), width)?)?;
        }
        let y = match self.linear {
            true => to_maps(&w.linear(&y, &format!("{name}.proj_out"), width)?, x)?,
            false => conv(w, &to_maps(&y, x)?, &format!("{name}.proj_out"), width, 1, 1)?,
        };
        x.add(y)
    }

    /// Latents `[batch, 4, rows, columns]`, a time `[1]`, and a text `[batch, words, width]`, to the noise in them.
    pub(crate) fn forward(
        &self,
        w: &Weights,
        latents: &Tensor,
        time: &Tensor,
        text: &Tensor,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<Tensor> {
        let (batch, first) = (latents.shape()[0], self.levels[0].channels);
        let two = |x: &Tensor, name: &str| -> Result<Tensor> {
            let x = w.linear(x, &format!("{name}.linear_1"), 4 * first)?.silu()?;
            w.linear(&x, &format!("{name}.linear_2"), 4 * first)
        };
        let mut told = two(&waves(time, first)?, "unet.time_embedding")?.expand(&[batch, 4 * first])?;
        if let Some(wanted) = wanted {
            let sizes = waves(&wanted.sizes.flatten(0, 1)?, self.size_waves)?.reshape(&[batch, 6 * self.size_waves])?;
            told = told.add(two(&Tensor::cat(&[wanted.pooled, &sizes], 1)?, "unet.add_embedding")?)?;
        }
        let block = |x: &Tensor, name: &str, i: usize, level: &Level, layers: usize| -> Result<Tensor> {
            let x = residual(w, x, Some(&told), &format!("{name}.resnets.{i}"), level.channels, EPS)?;
            match layers {
                0 => Ok(x),
                n => self.attention(w, &x, text, &format!("{name}.attentions.{i}"), n, level.heads),
            }
        };
        let mut x = conv(w, latents, "unet.conv_in", first, 3, 1)?;
        let mut passed = vec![x.clone()];
        for (at, level) in self.levels.iter().enumerate() {
            let name = format!("unet.down_blocks.{at}");
            for i in 0..self.blocks {
                x = block(&x, &name, i, level, level.attention)?;
                passed.push(x.clone());
            }
            if at + 1 < self.levels.len() {
                x = conv(w, &x, &format!("{name}.downsamplers.0.conv"), level.channels, 3, 2)?;
                passed.push(x.clone());
            }
        }
        let last = &self.levels[self.levels.len() - 1];
        x = block(&x, "unet.mid_block", 0, last, self.middle)?;
        x = block(&x, "unet.mid_block", 1, last, 0)?;
        for (at, level) in self.levels.iter().rev().enumerate() {
            let name = format!("unet.up_blocks.{at}");
            for i in 0..=self.blocks {
                let before = passed.pop().expect("as many maps as there were on the way down");
                x = block(&Tensor::cat(&[&x, &before], 1)?, &name, i, level, level.attention)?;
            }
            if at + 1 < self.levels.len() {
                x = larger(w, &x, &format!("{name}.upsamplers.0"))?;
            }
        }
        conv(w, &group_norm(w, &x, "unet.conv_norm_out", EPS)?.silu()?, "unet.conv_out", 4, 3, 1)
    }
}
