//! An image classifier (EfficientNet-Lite0) from the file that `torch.save` wrote, built of `nn` modules.

use crate::models::{arrays, cached, error, folder};
use gradloom::engine::Bytes;
use gradloom::io::torch;
use gradloom::nn::{BatchNorm, Conv, Layer, Linear, Mode, Module, Role, StateDict};
use gradloom::tensor::ConvOpts;
use gradloom::{DType, Result, Runtime, Session, Tensor};
use gradloom_tests::here;

/// Repeats, kernel, first stride, expansion, channels out (Tan and Le 2019, table 1, without squeeze and excitation).
const STAGES: [[usize; 5]; 7] = [
    [1, 3, 1, 1, 16],
    [2, 3, 2, 6, 24],
    [2, 5, 2, 6, 40],
    [3, 3, 2, 6, 80],
    [3, 5, 1, 6, 112],
    [4, 5, 2, 6, 192],
    [1, 3, 1, 6, 320],
];

/// A convolution with TensorFlow's padding and a norm.
struct ConvNorm {
    names: [&'static str; 2],
    conv: Conv,
    norm: BatchNorm,
}

impl ConvNorm {
    fn new(
        s: &Session,
        names: [&'static str; 2],
        channels: [usize; 2],
        kernel: usize,
        opts: ConvOpts,
    ) -> Result<ConvNorm> {
        let conv = Conv::new(s, channels[0], channels[1], &[kernel, kernel], opts)?.without_bias();
        Ok(ConvNorm { names, conv, norm: BatchNorm { eps: 1e-3, ..BatchNorm::new(s, channels[1])? } })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (kernel, mut opts) = (self.conv.weight.dim(-1)?, self.conv.opts.clone());
        let stride = opts.stride.first().copied().unwrap_or(1);
        let pad = |n: usize| {
            let all = ((n.div_ceil(stride) - 1) * stride + kernel).saturating_sub(n) as i64;
            (all / 2, all - all / 2)
        };
        opts.padding = x.shape()[2..].iter().map(|&n| pad(n)).collect();
        self.norm.forward(&x.conv(&self.conv.weight, None, &opts)?)
    }
}

impl Module for ConvNorm {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.conv.visit(&format!("{prefix}{}", self.names[0]), f);
        self.norm.visit(&format!("{prefix}{}", self.names[1]), f);
    }
}

struct Block {
    expand: Option<ConvNorm>,
    depthwise: ConvNorm,
    project: ConvNorm,
    residual: bool,
}

impl Block {
    fn new(s: &Session, kernel: usize, stride: usize, expand: usize, channels: [usize; 2]) -> Result<Block> {
        let [inputs, outputs] = channels;
        let (wide, plain) = (inputs * expand, ConvOpts::new);
        let expand = match expand {
            1 => None,
            _ => Some(ConvNorm::new(s, ["_expand_conv", "_bn0"], [inputs, wide], 1, plain())?),
        };
        let each = plain().stride(&[stride, stride]).groups(wide);
        Ok(Block {
            expand,
            depthwise: ConvNorm::new(s, ["_depthwise_conv", "_bn1"], [wide, wide], kernel, each)?,
            project: ConvNorm::new(s, ["_project_conv", "_bn2"], [wide, outputs], 1, plain())?,
            residual: stride == 1 && inputs == outputs,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let wide = match &self.expand {
            Some(e) => e.forward(x)?.relu6()?,
            None => x.clone(),
        };
        let y = self.project.forward(&self.depthwise.forward(&wide)?.relu6()?)?;
        if self.residual { y.add(x) } else { Ok(y) }
    }
}

struct EfficientNet {
    stem: ConvNorm,
    blocks: Vec<Block>,
    head: ConvNorm,
    output: Linear,
}

impl EfficientNet {
    fn new(s: &Session) -> Result<EfficientNet> {
        let mut blocks = Vec::new();
        let mut inputs = 32;
        for [repeats, kernel, stride, expand, outputs] in STAGES {
            for i in 0..repeats {
                let stride = if i == 0 { stride } else { 1 };
                blocks.push(Block::new(s, kernel, stride, expand, [inputs, outputs])?);
                inputs = outputs;
            }
        }
        let half = ConvOpts::new().stride(&[2, 2]);
        Ok(EfficientNet {
            stem: ConvNorm::new(s, ["_conv_stem", "_bn0"], [3, 32], 3, half)?,
            blocks,
            head: ConvNorm::new(s, ["_conv_head", "_bn1"], [inputs, 1280], 1, ConvOpts::new())?,
            output: Linear::new(s, 1280, 1000)?,
        })
    }
}

impl Module for EfficientNet {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        self.stem.visit(prefix, f);
        for (i, b) in self.blocks.iter().enumerate() {
            let parts = b.expand.iter().chain([&b.depthwise, &b.project]);
            parts.for_each(|p| p.visit(&format!("{prefix}_blocks.{i}."), f));
        }
        self.head.visit(prefix, f);
        self.output.visit(&format!("{prefix}_fc"), f);
    }
}

impl Layer for EfficientNet {
    /// Pictures `[batch, 3, height, width]` of -1 to 1 to logits `[batch, 1000]`.
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        let mut x = self.stem.forward(x)?.relu6()?;
        for b in &self.blocks {
            x = b.forward(&x)?;
        }
        self.output.forward(&self.head.forward(&x)?.relu6()?.mean(&[2, 3], false)?)
    }
}

fn check(device: &str) {
    let Some(file) = cached("efficientnet_lite0/model.pth", "efficientnet") else { return };
    let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
    let dict: StateDict =
        torch::tensors(rt.session(), &std::fs::read(file).unwrap().into()).unwrap().into_iter().collect();
    let net = EfficientNet::new(rt.session()).unwrap();
    let left = net.load_state_dict(&dict).unwrap();
    assert!(left.iter().all(|name| name.ends_with("num_batches_tracked")), "{left:?}");
    let dir = folder("efficientnet_lite0");
    let photos = arrays(&dir.join("input.npz")).remove(0).1;
    let photos = Tensor::from_bytes(rt.session(), photos.dtype, &photos.shape, Bytes::new(photos.data)).unwrap();
    let x = photos.cast(DType::F32).and_then(|x| x.div(127.5)).and_then(|x| x.sub(1.0)).unwrap();
    let logits = net.apply(&x, Mode::Eval).unwrap();
    let classes = logits.argmax(1, false).unwrap();
    rt.realize(&[&logits, &classes]).unwrap();
    let e = error(&rt.read(&logits).unwrap(), &arrays(&dir.join("expected.npz"))[0].1);
    assert!(e <= 1e-4, "efficientnet on {device}: off by {e:.1e}");
    // an Egyptian cat, an espresso
    assert_eq!(rt.to_vec::<i32>(&classes).unwrap(), [285, 967]);
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn efficientnet_runs_on_the_processor() {
    check("cpu");
}

#[test]
#[cfg(feature = "wgpu")]
fn efficientnet_runs_on_wgpu() {
    check("wgpu");
}
