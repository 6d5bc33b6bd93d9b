//! Weights by the names of PyTorch's, with values that both sides make of those names: examples that are compared with PyTorch need no file of them.
//! `tests/zoo/mlperf.py` has the other side.

use gradloom::tensor::{ConvOpts, Session};
use gradloom::{Result, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Noise from -1 to 1 of a seed that a name gives, the late digits of a sine in f64: PyTorch's side makes the same.
fn noise(name: &str, n: usize) -> Vec<f64> {
    let seed = name.bytes().fold(0u32, |h, b| (h * 31 + u32::from(b)) % 9973);
    let late = |i: usize| (12.9898 * i as f64 + f64::from(seed)).sin() * 43758.5453;
    (0..n).map(|i| 2.0 * (late(i) - late(i).floor()) - 1.0).collect()
}

/// Named weights, made when they are first asked for.
pub(crate) struct Weights {
    pub(crate) session: Session,
    pub(crate) all: RefCell<BTreeMap<String, Tensor>>,
}

impl Weights {
    pub(crate) fn new(session: &Session) -> Weights {
        Weights { session: session.clone(), all: RefCell::default() }
    }

    /// A tensor of this name and shape: matrices are as large as their inputs are many, scales around 1, the rest small.
    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        if let Some(t) = self.all.borrow().get(name) {
            return Ok(t.clone());
        }
        let inputs = shape[1..].iter().product::<usize>().max(1) as f64;
        let value = |x: f64| match shape.len() {
            1 if name.ends_with("weight") => 1.0 + 0.1 * x,
            1 => 0.1 * x,
            _ => x * (3.0 / inputs).sqrt(),
        };
        let data: Vec<f32> = noise(name, shape.iter().product()).into_iter().map(|x| value(x) as f32).collect();
        let t = Tensor::new(&self.session, &data, shape)?.to_storage()?;
        self.all.borrow_mut().insert(name.to_owned(), t.clone());
        Ok(t)
    }

    /// What the network is given: values within -1 and 1.
    pub(crate) fn input(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let data: Vec<f32> = noise(name, shape.iter().product()).into_iter().map(|x| x as f32).collect();
        Tensor::new(&self.session, &data, shape)
    }

    /// Numbers below `limit`, as labels or tokens: places of such noise.
    pub(crate) fn labels(&self, name: &str, shape: &[usize], limit: usize) -> Result<Tensor> {
        let place = |x: f64| ((x * 0.5 + 0.5) * limit as f64).min(limit as f64 - 1.0) as i32;
        let data: Vec<i32> = noise(name, shape.iter().product()).into_iter().map(place).collect();
        Tensor::new(&self.session, &data, shape)
    }

    /// `[.., inputs] -> [.., outputs]`.
    pub(crate) fn linear(&self, x: &Tensor, name: &str, outputs: usize) -> Result<Tensor> {
        let inputs = x.shape()[x.rank() - 1];
        let w = self.get(&format!("{name}.weight"), &[outputs, inputs])?;
        x.linear(&w, Some(&self.get(&format!("{name}.bias"), &[outputs])?))
    }

    /// A convolution without a bias: `[batch, channels, n..] -> [batch, outputs, o..]`.
    pub(crate) fn conv(
        &self,
        x: &Tensor,
        name: &str,
        outputs: usize,
        kernel: &[usize],
        opts: ConvOpts,
    ) -> Result<Tensor> {
        let shape = [&[outputs, x.shape()[1] / opts.groups], kernel].concat();
        x.conv(&self.get(&format!("{name}.weight"), &shape)?, None, &opts)
    }

    /// The same with one.
    pub(crate) fn conv_bias(
        &self,
        x: &Tensor,
        name: &str,
        outputs: usize,
        kernel: &[usize],
        opts: ConvOpts,
    ) -> Result<Tensor> {
        let rank = kernel.len();
        let bias = self.get(&format!("{name}.bias"), &[outputs])?;
        let shape = [vec![1, outputs], vec![1; rank]].concat();
        self.conv(x, name, outputs, kernel, opts)?.add(bias.reshape(&shape)?)
    }

    /// Scale and shift of a normalisation over so many channels.
    pub(crate) fn scale(&self, name: &str, channels: usize) -> Result<(Tensor, Tensor)> {
        Ok((self.get(&format!("{name}.weight"), &[channels])?, self.get(&format!("{name}.bias"), &[channels])?))
    }

    pub(crate) fn layer_norm(&self, x: &Tensor, name: &str, eps: f64) -> Result<Tensor> {
        let (weight, bias) = self.scale(name, x.shape()[x.rank() - 1])?;
        x.layer_norm(1, Some(&weight), Some(&bias), eps)
    }
}
