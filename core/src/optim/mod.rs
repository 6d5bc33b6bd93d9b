//! Optimisers. A step assigns to the parameters and to the optimiser's own state, in place and lazily: realize
//! [`Optimizer::tensors`] (and whatever else the step computed, such as the loss) to run it. Formulas and defaults are
//! torch's. The learning rate is a number or a tensor, for instance a launch variable that a learning-rate schedule
//! changes.

mod adam;
mod rule;
mod schedule;
mod sgd;

pub use adam::{Adam, AdamOpts};
pub use rule::{Rule, Tuned, clip_grad_norm, clip_grad_value};
pub use schedule::Schedule;
pub use sgd::{Sgd, SgdOpts};

use crate::tensor::Tensor;
use crate::{Error, Result};

/// Something that updates parameters from gradients.
pub trait Optimizer {
    /// Does one update. `grads` are in the order of the parameters.
    fn step(&mut self, grads: &[Tensor]) -> Result<()>;

    /// The parameters, in the order given.
    fn parameters(&self) -> &[Tensor];

    /// All tensors that a step assigns to: the parameters and the optimiser's state.
    fn tensors(&self) -> Vec<Tensor>;

    /// Computes the gradients of `loss` with respect to the parameters and does one step with them.
    fn minimize(&mut self, loss: &Tensor) -> Result<()> {
        let grads = loss.grad(&self.parameters().iter().collect::<Vec<_>>())?;
        self.step(&grads)
    }
}

/// Errors unless there is one gradient of fitting shape per parameter.
fn check(op: &'static str, params: &[Tensor], grads: &[Tensor]) -> Result<()> {
    if params.len() != grads.len() {
        return Err(Error::value(op, format!("{} gradients for {} parameters", grads.len(), params.len())));
    }
    for (p, g) in params.iter().zip(grads) {
        if p.shape() != g.shape() {
            return Err(Error::Shape { op, lhs: p.shape(), rhs: g.shape() });
        }
    }
    Ok(())
}
