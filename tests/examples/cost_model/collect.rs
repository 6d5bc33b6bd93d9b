//! Kernels to look at: those of the benchmark's networks, of the models of this repository, and of random blocks. The same for the same
//! target and seed.

use gradloom::io::npz;
use gradloom::{NativeHost, OnnxModel};
use gradloom_core::device::NullDevice;
use gradloom_core::engine::plan::kernel_key;
use gradloom_core::optim::{Adam, AdamOpts, Optimizer};
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::tensor::{
    Attention, ConvOpts, ConvTransposeOpts, Interpolate, PadMode, PoolOpts, ScatterOp, Tensor,
};
use gradloom_core::uop::random::Rng;
use gradloom_core::{DType, Result};
use gradloom_tests::networks::{BENCHMARKS, Net, build, kernels, load};
use std::collections::HashSet;
use std::path::Path;

/// A kernel, and where it comes from.
pub(crate) struct Case {
    pub(crate) from: String,
    pub(crate) ast: Ast,
}

/// Bytes of all buffers of a kernel at most: larger ones take long to fill.
const MAX_BYTES: usize = 300 << 20;

/// All of them, each different kernel once.
pub(crate) fn collect(t: &Target, blocks: usize) -> Vec<Case> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    let mut add = |from: &str, asts: Vec<Ast>| {
        for ast in asts {
            if seen.insert(kernel_key(&ast)) && bytes(&ast) <= MAX_BYTES {
                out.push(Case { from: from.to_string(), ast });
            }
        }
    };
    for name in BENCHMARKS {
        add(name, network(t, |net| build(net, name)));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let mut models: Vec<_> = std::fs::read_dir(&folder).expect("models").filter_map(|e| Some(e.ok()?.path())).collect();
    models.sort();
    for dir in models {
        let file = ["model.onnx", "model.tflite"].map(|f| dir.join(f)).into_iter().find(|f| f.exists());
        let Some(file) = file else { continue };
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match model(t, &file) {
            Ok(asts) => add(&name, asts),
            Err(e) => eprintln!("{name}: {e}"),
        }
    }
    for seed in 0..blocks as u64 {
        let kind = BLOCKS[seed as usize % BLOCKS.len()];
        add(kind.0, network(t, |net| kind.1(&Block { net, rng: Rng(seed).into() })));
    }
    out
}

fn bytes(ast: &Ast) -> usize {
    let params = gradloom_core::codegen::ParamInfo::all(&ast.g, ast.sink);
    params.iter().map(|p| p.len.saturating_mul(p.dtype.size())).sum()
}

/// The kernels of a network; none if it cannot be built of these sizes.
fn network(t: &Target, make: impl Fn(&Net) -> Result<Vec<Tensor>>) -> Vec<Ast> {
    let net = Net::default();
    let list = make(&net).and_then(|outs| kernels(&net, &load(&net, &outs, t)?, t));
    list.map_or_else(
        |e| {
            eprintln!("left out: {e}");
            Vec::new()
        },
        |list| list.into_iter().map(|k| k.0).collect(),
    )
}

fn model(t: &Target, file: &Path) -> Result<Vec<Ast>> {
    let device = Box::new(NullDevice::new(t.clone()));
    let mut model = OnnxModel::with_host(gradloom::model::parse(file)?, device, NativeHost::without_cache());
    let bytes = std::fs::read(file.with_file_name("input.npz")).expect("inputs of the model");
    let arrays = npz::read(&bytes)?;
    let inputs: Vec<_> = arrays.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    model.kernels(&inputs)
}

/// A random block in the making.
struct Block<'a> {
    net: &'a Net,
    rng: std::cell::RefCell<Rng>,
}

type Make = fn(&Block<'_>) -> Result<Vec<Tensor>>;

const BLOCKS: [(&str, Make); 24] = [
    ("matmul", |b| b.matmul()),
    ("conv", |b| b.conv()),
    ("elementwise", |b| b.elementwise()),
    ("reduce", |b| b.reduce()),
    ("depthwise", |b| b.depthwise()),
    ("softmax", |b| b.softmax()),
    ("norm", |b| b.norm()),
    ("matmul", |b| b.matmul()),
    ("pool", |b| b.pool()),
    ("move", |b| b.movement()),
    ("gather", |b| b.gather()),
    ("conv", |b| b.conv()),
    ("attention", |b| b.attention()),
    ("scan", |b| b.scan()),
    ("conv1x1", |b| b.conv1x1()),
    ("elementwise", |b| b.elementwise()),
    ("optimiser", |b| b.optimiser()),
    ("reduce", |b| b.reduce()),
    ("scatter", |b| b.scatter()),
    ("resize", |b| b.resize()),
    ("transposed", |b| b.transposed()),
    ("order", |b| b.order()),
    ("loss", |b| b.loss()),
    ("matvec", |b| b.matvec()),
];

impl Block<'_> {
    fn pick(&self, of: &[usize]) -> usize {
        self.rng.borrow_mut().pick(of)
    }

    fn one(&self, n: usize) -> bool {
        self.rng.borrow_mut().once_in(n)
    }

    fn x(&self, shape: &[usize]) -> Result<Tensor> {
        self.net.input_of(DType::F32, shape)
    }

    fn w(&self, shape: &[usize]) -> Result<Tensor> {
        self.net.weight(shape)
    }

    fn ids(&self, shape: &[usize]) -> Result<Tensor> {
        self.net.input_of(DType::I32, shape)
    }

    fn unary(&self, x: &Tensor) -> Result<Tensor> {
        match self.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]) {
            0 => x.exp(),
            1 => x.abs()?.add(1.0)?.log(),
            2 => x.tanh(),
            3 => x.sigmoid(),
            4 => x.gelu(),
            5 => x.silu(),
            6 => x.sin(),
            7 => x.erf(),
            8 => x.abs()?.sqrt(),
            9 => x.clamp(0.0, 6.0),
            10 => x.mul(x),
            11 => x.abs()?.add(1.0)?.reciprocal(),
            _ => x.relu(),
        }
    }

    fn maybe(&self, x: Tensor) -> Result<Tensor> {
        if self.one(2) { self.unary(&x) } else { Ok(x) }
    }

    fn matmul(&self) -> Result<Vec<Tensor>> {
        let size = [4, 7, 16, 33, 50, 64, 100, 128, 196, 256, 384, 512, 768];
        let (m, k, n) = (self.pick(&size), self.pick(&size), self.pick(&size));
        let y = match self.pick(&[0, 1, 2, 3]) {
            0 => self.x(&[m, k])?.matmul(&self.x(&[k, n])?)?,
            1 => self.x(&[m, k])?.matmul(&self.w(&[k, n])?)?,
            2 => self.x(&[m, k])?.linear(&self.w(&[n, k])?, Some(&self.w(&[n])?))?,
            _ => self.x(&[8, m.min(128), 32])?.matmul(&self.x(&[8, n.min(128), 32])?.transpose(1, 2)?)?,
        };
        Ok(vec![self.maybe(y)?])
    }

    fn matvec(&self) -> Result<Vec<Tensor>> {
        let size = [64, 100, 256, 500, 768, 1000, 1280, 2048, 3072];
        let (k, n) = (self.pick(&size), self.pick(&size));
        let w = if self.one(2) { self.x(&[k, n])? } else { self.x(&[n, k])?.t()? };
        Ok(vec![self.maybe(self.x(&[1, k])?.matmul(&w)?)?])
    }

    fn conv(&self) -> Result<Vec<Tensor>> {
        let (ci, co) = (self.pick(&[1, 3, 8, 16, 24, 32, 64, 96]), self.pick(&[8, 16, 24, 32, 64, 96, 128]));
        let (side, k, stride) =
            (self.pick(&[7, 13, 14, 28, 33, 56]), self.pick(&[2, 3, 3, 5, 7]), self.pick(&[1, 1, 2]));
        let opts = ConvOpts::new().padding(&[k / 2, k / 2]).stride(&[stride, stride]);
        let y = self.x(&[1, ci, side, side])?.conv(&self.w(&[co, ci, k, k])?, Some(&self.w(&[co])?), &opts)?;
        Ok(vec![self.maybe(y)?])
    }

    fn conv1x1(&self) -> Result<Vec<Tensor>> {
        let c = [16, 24, 40, 96, 112, 128, 240, 256, 480];
        let (ci, co, side) = (self.pick(&c), self.pick(&c), self.pick(&[7, 13, 14, 28, 40, 56]));
        let y =
            self.x(&[1, ci, side, side])?.conv(&self.w(&[co, ci, 1, 1])?, Some(&self.w(&[co])?), &ConvOpts::new())?;
        Ok(vec![self.maybe(y)?])
    }

    fn depthwise(&self) -> Result<Vec<Tensor>> {
        let (c, per) = (self.pick(&[16, 24, 32, 72, 96, 144, 240]), self.pick(&[1, 1, 1, 4]));
        let (side, k, stride) =
            (self.pick(&[7, 13, 14, 28, 33, 56, 112]), self.pick(&[3, 3, 5, 7]), self.pick(&[1, 1, 2]));
        let opts = ConvOpts::new().padding(&[k / 2, k / 2]).stride(&[stride, stride]).groups(c / per);
        let y = self.x(&[1, c, side, side])?.conv(&self.w(&[c, per, k, k])?, Some(&self.w(&[c])?), &opts)?;
        Ok(vec![self.maybe(y)?])
    }

    fn transposed(&self) -> Result<Vec<Tensor>> {
        let (ci, co, side, k) =
            (self.pick(&[8, 16, 32, 64]), self.pick(&[8, 16, 24, 64]), self.pick(&[7, 14, 28]), self.pick(&[2, 3, 4]));
        let opts = ConvTransposeOpts { conv: ConvOpts::new().stride(&[2, 2]), ..ConvTransposeOpts::default() };
        let y =
            self.x(&[1, ci, side, side])?.conv_transpose(&self.w(&[ci, co, k, k])?, Some(&self.w(&[co])?), &opts)?;
        Ok(vec![self.maybe(y)?])
    }

    /// Three axes whose lengths vary.
    fn shape(&self) -> [usize; 3] {
        [self.pick(&[1, 3, 8, 32]), self.pick(&[5, 16, 49, 64, 196]), self.pick(&[7, 32, 100, 128, 257, 384, 1024])]
    }

    fn elementwise(&self) -> Result<Vec<Tensor>> {
        let s = self.shape();
        let mut x = self.x(&s)?;
        for _ in 0..self.pick(&[1, 2, 3, 5]) {
            x = self.unary(&x)?;
            x = match self.pick(&[0, 1, 2, 3, 4]) {
                0 => x.add(&self.x(&s)?)?,
                1 => x.mul(&self.w(&[s[2]])?)?,
                2 => x.mul(&self.w(&[s[1], 1])?)?,
                3 => x.div(&self.x(&s)?.abs()?.add(1.0)?)?,
                _ => x.add(0.5)?,
            };
        }
        Ok(vec![x])
    }

    fn reduce(&self) -> Result<Vec<Tensor>> {
        let x = self.x(&self.shape())?;
        let x = self.maybe(x)?;
        let axes: &[&[i64]] = &[&[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[]];
        let axes = axes[self.pick(&[0, 1, 2, 3, 4, 5, 6])];
        Ok(vec![match self.pick(&[0, 1, 2, 3, 4]) {
            0 => x.sum(axes, false)?,
            1 => x.max(axes, false)?,
            2 => x.mean(axes, false)?,
            3 => x.argmax(self.pick(&[1, 2]) as i64, false)?,
            _ => x.var(axes, 0, false)?,
        }])
    }

    fn softmax(&self) -> Result<Vec<Tensor>> {
        let x = self.x(&self.shape())?;
        let axis = self.pick(&[1, 2, 2, 2]) as i64;
        Ok(vec![match self.pick(&[0, 1, 2]) {
            0 => x.log_softmax(axis)?,
            1 => x.logsumexp(&[axis], false)?,
            _ => x.mul(0.125)?.softmax(axis)?,
        }])
    }

    fn norm(&self) -> Result<Vec<Tensor>> {
        let s = self.shape();
        let w = || self.w(&[s[2]]);
        Ok(vec![match self.pick(&[0, 1, 2, 3]) {
            0 => self.x(&s)?.rms_norm(1, Some(&w()?), 1e-5)?,
            1 => {
                let (c, side) = (self.pick(&[16, 32, 64]), self.pick(&[7, 14, 28]));
                let y = self.x(&[1, c, side, side])?;
                let y = y.group_norm(self.pick(&[1, 4, 8]), Some(&self.w(&[c])?), Some(&self.w(&[c])?), 1e-5)?;
                self.maybe(y)?
            }
            2 => self.x(&s)?.add(&self.x(&s)?)?.layer_norm(1, Some(&w()?), Some(&w()?), 1e-5)?,
            _ => self.x(&s)?.layer_norm(1, Some(&w()?), Some(&w()?), 1e-5)?,
        }])
    }

    fn pool(&self) -> Result<Vec<Tensor>> {
        let (c, side, k) = (self.pick(&[8, 32, 64, 128]), self.pick(&[14, 28, 33, 56]), self.pick(&[2, 3, 5]));
        let x = self.x(&[1, c, side, side])?;
        let stride = self.pick(&[1, 2]);
        let opts = PoolOpts::new(&[k, k]).stride(&[stride, stride]);
        Ok(vec![if self.one(2) { x.max_pool(&opts)? } else { x.avg_pool(&opts)? }])
    }

    fn movement(&self) -> Result<Vec<Tensor>> {
        let s = self.shape();
        let x = self.x(&s)?;
        Ok(vec![match self.pick(&[0, 1, 2, 3, 4, 5, 6]) {
            0 => x.permute(&[0, 2, 1])?.contiguous(),
            1 => x.permute(&[2, 0, 1])?.contiguous(),
            2 => Tensor::cat(&[&x, &self.x(&s)?], self.pick(&[0, 1, 2]) as i64)?,
            3 => x.flip(&[2])?.contiguous(),
            4 => x.pad(&[(0, 0), (1, 1), (2, 2)], PadMode::Constant, 0.0)?,
            5 => x.roll(3, self.pick(&[1, 2]) as i64)?.contiguous(),
            _ => x.permute(&[1, 0, 2])?.add(&self.w(&[s[2]])?)?,
        }])
    }

    fn gather(&self) -> Result<Vec<Tensor>> {
        let (rows, width, n) =
            (self.pick(&[50, 1000, 20000]), self.pick(&[16, 100, 384]), self.pick(&[8, 77, 128, 1000]));
        Ok(vec![match self.pick(&[0, 1, 2]) {
            0 => self.w(&[rows, width])?.embedding(&self.ids(&[n])?)?,
            1 => self.x(&[width, rows])?.index_select(1, &self.ids(&[n])?)?,
            _ => self.x(&[rows, width])?.gather(1, &self.ids(&[rows, width / 2])?)?,
        }])
    }

    fn attention(&self) -> Result<Vec<Tensor>> {
        let (heads, q, k, d) = (
            self.pick(&[1, 4, 8]),
            self.pick(&[1, 16, 49, 128, 197]),
            self.pick(&[16, 64, 128, 197]),
            self.pick(&[16, 32, 64]),
        );
        let causal = self.one(3);
        let k = if causal { q } else { k };
        let opts = Attention { causal, ..Attention::default() };
        let x = |n: usize| self.x(&[1, heads, n, d]);
        Ok(vec![x(q)?.attention(&x(k)?, &x(k)?, &opts)?])
    }

    fn scan(&self) -> Result<Vec<Tensor>> {
        let x = self.x(&self.shape())?;
        let axis = self.pick(&[1, 2]) as i64;
        Ok(vec![if self.one(4) { x.mul(&x)?.cumsum(axis)? } else { x.cumsum(axis)? }])
    }

    fn scatter(&self) -> Result<Vec<Tensor>> {
        let (rows, width, n) = (self.pick(&[50, 1000, 4000]), self.pick(&[16, 64, 100]), self.pick(&[32, 128, 500]));
        if self.one(2) {
            let (table, ids) = (self.w(&[rows, width])?, self.ids(&[n])?);
            let y = table.embedding(&ids)?;
            return y.mul(&y)?.sum(&[], false)?.grad(&[&table]);
        }
        let x = self.x(&[rows, width])?;
        Ok(vec![x.scatter(0, &self.ids(&[n.min(rows), width])?, &self.x(&[n.min(rows), width])?, ScatterOp::Add)?])
    }

    fn resize(&self) -> Result<Vec<Tensor>> {
        let (c, side) = (self.pick(&[3, 16, 32, 64]), self.pick(&[14, 28, 33, 56]));
        let x = self.x(&[1, c, side, side])?;
        if self.one(4) {
            return Ok(vec![self.x(&[1, 4 * c, side, side])?.pixel_shuffle(2)?.relu()?]);
        }
        let how = if self.one(2) { Interpolate::Linear } else { Interpolate::Nearest };
        Ok(vec![x.interpolate(&[2 * side, 2 * side + self.pick(&[0, 0, 3])], how, false)?])
    }

    fn order(&self) -> Result<Vec<Tensor>> {
        let (rows, n) = (self.pick(&[1, 8, 64]), self.pick(&[16, 100, 256]));
        let x = self.x(&[rows, n])?;
        let (values, places) = if self.one(2) { x.sort(1, false)? } else { x.topk(5, 1, true)? };
        Ok(vec![values, places])
    }

    fn loss(&self) -> Result<Vec<Tensor>> {
        let (n, from, to) = (self.pick(&[8, 32, 128]), self.pick(&[64, 100, 256]), self.pick(&[10, 64, 100]));
        let (w, v) = (self.w(&[from, 128])?, self.w(&[128, to])?);
        let y = self.maybe(self.x(&[n, from])?.matmul(&w)?)?.matmul(&v)?;
        let loss = y.cross_entropy(&self.ids(&[n])?, None, 0.0)?;
        loss.grad(&[&w, &v])
    }

    fn optimiser(&self) -> Result<Vec<Tensor>> {
        let all = || {
            let n = self.pick(&[1, 2, 3]);
            (0..n).map(|i| self.w(&[128 * (i + 1), self.pick(&[10, 64, 300, 1000])])).collect::<Result<Vec<_>>>()
        };
        let weights = all()?;
        let grads = weights.iter().map(|w| self.w(&w.shape())).collect::<Result<Vec<_>>>()?;
        let mut adam = Adam::new(weights, 1e-3, AdamOpts::default())?;
        adam.step(&grads)?;
        Ok(adam.tensors())
    }
}
