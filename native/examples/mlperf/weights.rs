//! What the networks of this example have in common: weights by the names of PyTorch's, with values that both sides make of those names, and a
//! training step that can be compared.

use gradloom::optim::{Optimizer, Sgd, SgdOpts};
use gradloom::tensor::{ConvOpts, Session};
use gradloom::{Result, Runtime, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The step that is compared: descent with this rate.
const RATE: f64 = 0.01;

/// Noise from -1 to 1 of a seed that a name gives, the late digits of a sine in f64: PyTorch's side makes the same.
fn noise(name: &str, n: usize) -> Vec<f64> {
    let seed = name.bytes().fold(0u32, |h, b| (h * 31 + u32::from(b)) % 9973);
    let late = |i: usize| (12.9898 * i as f64 + f64::from(seed)).sin() * 43758.5453;
    (0..n).map(|i| 2.0 * (late(i) - late(i).floor()) - 1.0).collect()
}

/// Named weights, made when they are first asked for.
pub(crate) struct Weights {
    pub(crate) session: Session,
    all: RefCell<BTreeMap<String, Tensor>>,
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

    /// Batch normalisation by the batch's own statistics.
    pub(crate) fn batch_norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let (weight, bias) = self.scale(name, x.shape()[1])?;
        let (mean, var) = x.batch_stats()?;
        x.batch_norm(&mean, &var, Some(&weight), Some(&bias), 1e-5)
    }

    pub(crate) fn layer_norm(&self, x: &Tensor, name: &str, eps: f64) -> Result<Tensor> {
        let (weight, bias) = self.scale(name, x.shape()[x.rank() - 1])?;
        x.layer_norm(1, Some(&weight), Some(&bias), eps)
    }
}

/// What a network gives for its sample.
pub(crate) struct Output {
    /// Logits, or whatever else it predicts.
    pub(crate) prediction: Tensor,
    /// A scalar.
    pub(crate) loss: Tensor,
}

/// What a forward pass and a training step came to.
pub(crate) struct Step {
    /// Eight elements of the prediction, from the first to the last.
    pub(crate) prediction: Vec<f64>,
    /// Before the step and after it.
    pub(crate) losses: [f64; 2],
    /// The length of each gradient, by the names of the weights in order.
    pub(crate) gradients: Vec<(String, f64)>,
}

/// One step of descent on a network's own sample.
pub(crate) fn train(rt: &mut Runtime, network: &dyn Fn(&Weights) -> Result<Output>) -> Result<Step> {
    let w = Weights::new(rt.session());
    let first = network(&w)?;
    let (names, params): (Vec<String>, Vec<Tensor>) = w.all.borrow().clone().into_iter().unzip();
    let gradients = first.loss.grad(&params.iter().collect::<Vec<_>>())?;
    let lengths = gradients.iter().map(|g| g.square()?.sum(&[], false)?.sqrt()).collect::<Result<Vec<_>>>()?;
    let mut descent = Sgd::new(params.clone(), RATE, SgdOpts::default())?;
    descent.step(&gradients)?;
    let changed = descent.tensors();
    let wanted = [&first.prediction, &first.loss].into_iter().chain(&lengths).chain(&changed);
    rt.realize(&wanted.collect::<Vec<_>>())?;
    let all = rt.to_vec::<f32>(&first.prediction)?;
    let prediction = (0..8).map(|i| f64::from(all[i * (all.len() - 1) / 7])).collect();
    let before = rt.to_vec::<f32>(&first.loss)?[0];
    let after = network(&w)?.loss;
    let after = rt.to_vec::<f32>(&after)?[0];
    let length = |(name, t): (String, &Tensor)| Ok((name, f64::from(rt.to_vec::<f32>(t)?[0])));
    let gradients = names.into_iter().zip(&lengths).map(length).collect::<Result<_>>()?;
    Ok(Step { prediction, losses: [f64::from(before), f64::from(after)], gradients })
}
