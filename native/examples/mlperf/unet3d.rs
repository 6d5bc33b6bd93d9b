//! 3D U-Net: Çiçek, Abdulkadir, Lienkamp, Brox, Ronneberger, "3D U-Net: learning dense volumetric segmentation from sparse annotation" (2016), as
//! MLPerf trains it on kidneys: instance normalisation, strided convolutions on the way down, and the sum of the Dice loss and cross-entropy.

use super::weights::{Output, Weights};
use gradloom::tensor::{ConvOpts, ConvTransposeOpts};
use gradloom::{DType, Result, Tensor};

/// Channels of each level, from the full resolution down.
const WIDTHS: [usize; 3] = [8, 16, 32];
const CLASSES: usize = 3;
const SIDE: usize = 16;

fn layer(w: &Weights, x: &Tensor, name: &str, channels: usize, stride: usize) -> Result<Tensor> {
    let opts = ConvOpts::new().stride(&[stride; 3]).padding(&[1; 3]);
    let y = w.conv(x, &format!("{name}.conv"), channels, &[3, 3, 3], opts)?;
    let (weight, bias) = w.scale(&format!("{name}.norm"), channels)?;
    y.instance_norm(Some(&weight), Some(&bias), 1e-5)?.relu()
}

/// Two convolutions; the first one halves the sides where `stride` is 2.
fn block(w: &Weights, x: &Tensor, name: &str, channels: usize, stride: usize) -> Result<Tensor> {
    let y = layer(w, x, &format!("{name}.0"), channels, stride)?;
    layer(w, &y, &format!("{name}.1"), channels, 1)
}

/// Twice as large, and what the encoder had at that size beside it.
fn up(w: &Weights, x: &Tensor, skip: &Tensor, name: &str, channels: usize) -> Result<Tensor> {
    let weight = w.get(&format!("{name}.up.weight"), &[x.shape()[1], channels, 2, 2, 2])?;
    let bias = w.get(&format!("{name}.up.bias"), &[channels])?;
    let opts = ConvTransposeOpts { conv: ConvOpts::new().stride(&[2; 3]), ..ConvTransposeOpts::default() };
    let y = x.conv_transpose(&weight, Some(&bias), &opts)?;
    block(w, &Tensor::cat(&[&y, skip], 1)?, &format!("{name}.block"), channels, 1)
}

/// `[batch, 1, d, h, w]` to logits `[batch, classes, d, h, w]`.
fn forward(w: &Weights, x: &Tensor) -> Result<Tensor> {
    let mut skips = vec![block(w, x, "down.0", WIDTHS[0], 1)?];
    for (i, &channels) in WIDTHS.iter().enumerate().skip(1) {
        let deeper = block(w, &skips[i - 1], &format!("down.{i}"), channels, 2)?;
        skips.push(deeper);
    }
    let mut x = skips.pop().expect("a level");
    for (i, skip) in skips.iter().enumerate().rev() {
        x = up(w, &x, skip, &format!("up.{i}"), WIDTHS[i])?;
    }
    w.conv_bias(&x, "out", CLASSES, &[1, 1, 1], ConvOpts::new())
}

/// One less what prediction and truth share, as a part of both, the mean over samples and classes.
fn dice(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let truth = labels.one_hot(CLASSES)?.cast(DType::F32)?.permute(&[0, 4, 1, 2, 3])?;
    let guess = logits.softmax(1)?;
    let space = [2, 3, 4];
    let shared = guess.mul(&truth)?.sum(&space, false)?;
    let both = guess.sum(&space, false)?.add(truth.sum(&space, false)?)?;
    let score = shared.mul(2.0)?.add(1e-6)?.div(both.add(1e-6)?)?;
    score.neg()?.add(1.0)?.mean(&[], false)
}

pub(crate) fn network(w: &Weights) -> Result<Output> {
    let x = w.input("image", &[2, 1, SIDE, SIDE, SIDE])?;
    let y = w.labels("label", &[2, SIDE, SIDE, SIDE], CLASSES)?;
    let prediction = forward(w, &x)?;
    let loss = dice(&prediction, &y)?.add(prediction.cross_entropy(&y, None, 0.0)?)?;
    Ok(Output { prediction, loss })
}
