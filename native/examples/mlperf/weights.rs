//! What the networks of this example have in common: weights of noise (`../noise`), and a training step that can be compared.

pub(crate) use super::noise::Weights;
use gradloom::optim::{Optimizer, Sgd, SgdOpts};
use gradloom::{Result, Runtime, Tensor};

/// The step that is compared: descent with this rate.
const RATE: f64 = 0.01;

impl Weights {
    /// Batch normalisation by the batch's own statistics.
    pub(crate) fn batch_norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let (weight, bias) = self.scale(name, x.shape()[1])?;
        let (mean, var) = x.batch_stats()?;
        x.batch_norm(&mean, &var, Some(&weight), Some(&bias), 1e-5)
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
