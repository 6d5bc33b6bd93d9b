//! Layers whose weight is computed from other tensors: weight norm (Salimans and Kingma 2016) and spectral norm (Miyato
//! et al. 2018), with the names of torch's `nn.utils.parametrizations`.

use super::{Conv, ConvTranspose, Layer, Linear, Mode, Module, Role, each, join};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Power iterations that are run when a spectral norm is created.
const WARM_UP: usize = 15;

/// A layer that can be applied with another weight than its own.
pub trait Weighted: Module {
    /// The layer's own weight.
    fn weight(&self) -> &Tensor;
    /// The axis of the weight that runs over outputs.
    fn output_axis(&self) -> i64;
    /// The layer's output with `weight` in place of its own.
    fn apply_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor>;
}

impl Weighted for Linear {
    fn weight(&self) -> &Tensor {
        &self.weight
    }

    fn output_axis(&self) -> i64 {
        0
    }

    fn apply_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor> {
        x.linear(weight, self.bias.as_ref())
    }
}

impl Weighted for Conv {
    fn weight(&self) -> &Tensor {
        &self.weight
    }

    fn output_axis(&self) -> i64 {
        0
    }

    fn apply_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor> {
        x.conv(weight, self.bias.as_ref(), &self.opts)
    }
}

impl Weighted for ConvTranspose {
    fn weight(&self) -> &Tensor {
        &self.weight
    }

    fn output_axis(&self) -> i64 {
        1
    }

    fn apply_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor> {
        x.conv_transpose(weight, self.bias.as_ref(), &self.opts)
    }
}

/// Visits the tensors of a layer other than its weight.
fn visit_rest(layer: &dyn Weighted, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
    let weight = join(prefix, "weight");
    layer.visit(prefix, &mut |name, role, t| {
        if name != weight {
            f(name, role, t);
        }
    });
}

/// A layer whose weight is a direction times a length: `g v / |v|`, with one length for each index along `axis`.
pub struct WeightNorm<L> {
    layer: L,
    /// The lengths `g`, with the weight's rank (size 1 along the other axes).
    pub length: Tensor,
    /// The directions `v`, in the weight's shape.
    pub direction: Tensor,
    axis: i64,
}

/// The Euclidean norm over all axes but one; the others stay with size 1.
fn length(v: &Tensor, axis: i64) -> Result<Tensor> {
    let axes: Vec<i64> = (0..v.rank() as i64).filter(|&a| a != axis).collect();
    v.square()?.sum(&axes, true)?.sqrt()
}

impl<L: Weighted> WeightNorm<L> {
    /// Splits the layer's weight into directions and lengths, one for each index of axis 0 (torch's default).
    pub fn new(layer: L) -> Result<WeightNorm<L>> {
        WeightNorm::along(layer, 0)
    }

    /// As [`WeightNorm::new`], with a length for each index of `axis`. `Error::Value` unless the weight has that axis.
    pub fn along(layer: L, axis: i64) -> Result<WeightNorm<L>> {
        let rank = layer.weight().rank() as i64;
        if !(0..rank).contains(&axis) {
            return Err(Error::value("weight_norm", format!("axis {axis} of {rank}")));
        }
        let direction = layer.weight().to_storage()?;
        Ok(WeightNorm { length: length(layer.weight(), axis)?.to_storage()?, direction, layer, axis })
    }

    /// The weight that directions and lengths make.
    pub fn weight(&self) -> Result<Tensor> {
        self.direction.mul(self.length.div(length(&self.direction, self.axis)?)?)
    }
}

impl<L: Weighted> Module for WeightNorm<L> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        visit_rest(&self.layer, prefix, f);
        let parts = [("original0", Some(&self.length)), ("original1", Some(&self.direction))];
        each(&join(prefix, "parametrizations.weight"), Role::Parameter, f, &parts);
    }
}

impl<L: Weighted> Layer for WeightNorm<L> {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.layer.apply_with(&self.weight()?, x)
    }
}

/// A layer whose weight, as a matrix, is divided by an estimate of its largest singular value. In training each
/// application improves the estimate by one power iteration (realize the buffers with the step).
pub struct SpectralNorm<L> {
    layer: L,
    /// The weight before the division.
    pub original: Tensor,
    /// The estimates of the singular vectors, `[outputs]` and `[elements per output]`.
    pub vectors: [Tensor; 2],
    /// The least length that a vector is divided by.
    pub eps: f64,
}

impl<L: Weighted> SpectralNorm<L> {
    /// A spectral norm of the layer's weight, from random vectors after 15 iterations; eps 1e-12.
    pub fn new(layer: L) -> Result<SpectralNorm<L>> {
        let original = layer.weight().to_storage()?;
        let (s, rows) = (original.session(), original.dim(layer.output_axis())?);
        let start = |n: usize| Tensor::randn(s, &[n])?.normalize(2.0, 0, 1e-12);
        let vectors = [start(rows)?, start(original.numel() / rows.max(1))?];
        let mut norm = SpectralNorm { layer, original: original.clone(), vectors, eps: 1e-12 };
        for _ in 0..WARM_UP {
            norm.vectors = norm.iterate()?;
        }
        norm.vectors = [norm.vectors[0].to_storage()?, norm.vectors[1].to_storage()?];
        Ok(norm)
    }

    /// The weight as a matrix `[outputs, elements per output]`.
    fn matrix(&self) -> Result<Tensor> {
        let w = self.original.move_axis(self.layer.output_axis(), 0)?;
        let rows = w.dim(0)?;
        w.reshape(&[rows, w.numel() / rows.max(1)])
    }

    /// The vectors after one more power iteration.
    fn iterate(&self) -> Result<[Tensor; 2]> {
        let w = self.matrix()?.detach();
        let u = w.matmul(&self.vectors[1].detach())?.normalize(2.0, 0, self.eps)?;
        let v = w.t()?.matmul(&u)?.normalize(2.0, 0, self.eps)?;
        Ok([u.contiguous(), v.contiguous()])
    }

    /// The divided weight, by the present vectors, which stay unchanged.
    pub fn weight(&self) -> Result<Tensor> {
        self.weight_by(&self.vectors)
    }

    fn weight_by(&self, [u, v]: &[Tensor; 2]) -> Result<Tensor> {
        let sigma = u.mul(self.matrix()?.matmul(v)?)?.sum(&[], false)?;
        self.original.div(sigma)
    }
}

impl<L: Weighted> Module for SpectralNorm<L> {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        visit_rest(&self.layer, prefix, f);
        let at = join(prefix, "parametrizations.weight");
        each(&at, Role::Parameter, f, &[("original", Some(&self.original))]);
        let vectors = [("0._u", Some(&self.vectors[0])), ("0._v", Some(&self.vectors[1]))];
        each(&at, Role::Buffer, f, &vectors);
    }
}

impl<L: Weighted> Layer for SpectralNorm<L> {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if mode == Mode::Eval {
            return self.layer.apply_with(&self.weight()?, x);
        }
        let next = self.iterate()?;
        for (old, new) in self.vectors.iter().zip(&next) {
            old.assign(new)?;
        }
        self.layer.apply_with(&self.weight_by(&next)?, x)
    }
}
