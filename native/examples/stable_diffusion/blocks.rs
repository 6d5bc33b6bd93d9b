//! What the networks of latent diffusion are made of: Rombach et al., "High-resolution image synthesis with latent diffusion models" (2022). Names are
//! those of Hugging Face's diffusers.

use super::noise::Weights;
use gradloom::tensor::{Attention, ConvOpts, Interpolate};
use gradloom::{DType, Result, Tensor};

/// Groups of channels that are normalised together; 32 in the published sizes.
const GROUPS: usize = 8;

pub(crate) fn conv(
    w: &Weights,
    x: &Tensor,
    name: &str,
    channels: usize,
    kernel: usize,
    stride: usize,
) -> Result<Tensor> {
    let opts = ConvOpts::new().stride(&[stride; 2]).padding(&[kernel / 2; 2]);
    w.conv_bias(x, name, channels, &[kernel; 2], opts)
}

pub(crate) fn group_norm(w: &Weights, x: &Tensor, name: &str, eps: f64) -> Result<Tensor> {
    let (scale, shift) = w.scale(name, x.shape()[1])?;
    x.group_norm(GROUPS, Some(&scale), Some(&shift), eps)
}

/// Two convolutions beside a way past them; `time` `[batch, width]` shifts what is between.
pub(crate) fn residual(
    w: &Weights,
    x: &Tensor,
    time: Option<&Tensor>,
    name: &str,
    channels: usize,
    eps: f64,
) -> Result<Tensor> {
    let at = |part: &str| format!("{name}.{part}");
    let mut y = conv(w, &group_norm(w, x, &at("norm1"), eps)?.silu()?, &at("conv1"), channels, 3, 1)?;
    if let Some(time) = time {
        y = y.add(w.linear(&time.silu()?, &at("time_emb_proj"), channels)?.unsqueeze(-1)?.unsqueeze(-1)?)?;
    }
    let y = conv(w, &group_norm(w, &y, &at("norm2"), eps)?.silu()?, &at("conv2"), channels, 3, 1)?;
    match x.shape()[1] == channels {
        true => x.add(y),
        false => conv(w, x, &at("conv_shortcut"), channels, 1, 1)?.add(y),
    }
}

/// Twice the size, and a convolution.
pub(crate) fn larger(w: &Weights, x: &Tensor, name: &str) -> Result<Tensor> {
    let shape = x.shape();
    let x = x.interpolate(&[2 * shape[2], 2 * shape[3]], Interpolate::Nearest, false)?;
    conv(w, &x, &format!("{name}.conv"), shape[1], 3, 1)
}

/// Attention of queries `[batch, queries, width]` to keys `[batch, keys, any]`, where all of them are there.
pub(crate) fn attend(q: &Tensor, k: &Tensor, v: &Tensor, heads: usize, causal: bool) -> Result<Tensor> {
    let split = |x: &Tensor| -> Result<Tensor> {
        let shape = x.shape();
        x.reshape(&[shape[0], shape[1], heads, shape[2] / heads])?.transpose(1, 2)
    };
    let y = split(q)?.attention(&split(k)?, &split(v)?, &Attention { causal, ..Attention::default() })?;
    y.transpose(1, 2)?.flatten(2, 3)
}

/// Sines and cosines of a number at `width / 2` frequencies, the cosines first: `[n] -> [n, width]`.
pub(crate) fn waves(x: &Tensor, width: usize) -> Result<Tensor> {
    let half = width / 2;
    let frequencies: Vec<f32> = (0..half).map(|i| (-(10000f64.ln()) * i as f64 / half as f64).exp() as f32).collect();
    let angles = x.cast(DType::F32)?.unsqueeze(-1)?.mul(Tensor::new(x.session(), &frequencies, &[1, half])?)?;
    Tensor::cat(&[&angles.cos()?, &angles.sin()?], 1)
}

/// `[batch, channels, rows, columns]` to `[batch, rows * columns, channels]`.
pub(crate) fn to_rows(x: &Tensor) -> Result<Tensor> {
    x.flatten(2, 3)?.transpose(1, 2)
}

/// Back, with the shape of `like`.
pub(crate) fn to_maps(x: &Tensor, like: &Tensor) -> Result<Tensor> {
    x.transpose(1, 2)?.reshape(&like.shape())
}
