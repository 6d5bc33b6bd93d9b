//! ResNet with bottlenecks: He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2015), with the stride in the 3x3 convolution as in
//! MLPerf's ResNet-50 v1.5, one block a stage and an eighth of the width; softmax with labels smoothed by a tenth.

use super::weights::{Output, Weights};
use gradloom::tensor::{ConvOpts, PoolOpts};
use gradloom::{Result, Tensor};

/// Channels inside the blocks of each stage; four times as many come out.
const WIDTHS: [usize; 4] = [8, 16, 32, 64];
const CLASSES: usize = 10;

fn conv(w: &Weights, x: &Tensor, name: &str, channels: usize, kernel: usize, stride: usize) -> Result<Tensor> {
    w.conv(x, name, channels, &[kernel; 2], ConvOpts::new().stride(&[stride; 2]).padding(&[kernel / 2; 2]))
}

/// `x + F(x)`, where the input goes through a convolution of its own if its shape is another.
fn bottleneck(w: &Weights, x: &Tensor, name: &str, width: usize, stride: usize) -> Result<Tensor> {
    let at = |part: &str| format!("{name}.{part}");
    let y = w.batch_norm(&conv(w, x, &at("conv1"), width, 1, 1)?, &at("bn1"))?.relu()?;
    let y = w.batch_norm(&conv(w, &y, &at("conv2"), width, 3, stride)?, &at("bn2"))?.relu()?;
    let y = w.batch_norm(&conv(w, &y, &at("conv3"), 4 * width, 1, 1)?, &at("bn3"))?;
    let same = match stride == 1 && x.shape()[1] == 4 * width {
        true => x.clone(),
        false => w.batch_norm(&conv(w, x, &at("downsample.0"), 4 * width, 1, stride)?, &at("downsample.1"))?,
    };
    y.add(same)?.relu()
}

/// The maps of each stage, each half as large as the one before.
pub(crate) fn stages(w: &Weights, x: &Tensor) -> Result<Vec<Tensor>> {
    let x = w.batch_norm(&conv(w, x, "conv1", WIDTHS[0], 7, 2)?, "bn1")?.relu()?;
    let mut x = x.max_pool(&PoolOpts::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]))?;
    let mut out = Vec::new();
    for (i, &width) in WIDTHS.iter().enumerate() {
        x = bottleneck(w, &x, &format!("layer{}.0", i + 1), width, if i == 0 { 1 } else { 2 })?;
        out.push(x.clone());
    }
    Ok(out)
}

pub(crate) fn network(w: &Weights) -> Result<Output> {
    let (x, y) = (w.input("image", &[4, 3, 64, 64])?, w.labels("label", &[4], CLASSES)?);
    let last = stages(w, &x)?.pop().expect("a stage");
    let prediction = w.linear(&last.mean(&[2, 3], false)?, "fc", CLASSES)?;
    let loss = prediction.cross_entropy(&y, None, 0.1)?;
    Ok(Output { prediction, loss })
}
