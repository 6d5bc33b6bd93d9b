//! Stochastic gradient descent with momentum.

use super::{Optimizer, check};
use crate::Result;
use crate::tensor::{IntoOperand, Operand, Tensor};

/// Options of [`Sgd`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdOpts {
    /// Factor by which the velocity of the previous step is kept; 0 for no momentum.
    pub momentum: f64,
    /// Use Nesterov's momentum: the step is the gradient plus `momentum` times the updated velocity.
    pub nesterov: bool,
    /// L2 penalty: this times the parameter is added to its gradient.
    pub weight_decay: f64,
}

/// Stochastic gradient descent.
pub struct Sgd {
    /// Learning rate.
    pub lr: Operand,
    params: Vec<Tensor>,
    velocity: Vec<Tensor>,
    opts: SgdOpts,
}

impl Sgd {
    /// An optimiser of these parameters.
    pub fn new(params: Vec<Tensor>, lr: impl IntoOperand, opts: SgdOpts) -> Result<Sgd> {
        let velocity = match opts.momentum {
            0.0 => Vec::new(),
            _ => params.iter().map(|p| p.zeros_like()?.to_storage()).collect::<Result<_>>()?,
        };
        Ok(Sgd { lr: lr.into_operand()?, params, velocity, opts })
    }
}

impl Optimizer for Sgd {
    fn step(&mut self, grads: &[Tensor]) -> Result<()> {
        check("sgd", &self.params, grads)?;
        for (i, (p, g)) in self.params.iter().zip(grads).enumerate() {
            let mut g = g.clone();
            if self.opts.weight_decay != 0.0 {
                g = g.add(p.mul(self.opts.weight_decay)?)?;
            }
            if let Some(v) = self.velocity.get(i) {
                v.assign(v.mul(self.opts.momentum)?.add(&g)?)?;
                g = if self.opts.nesterov { g.add(v.mul(self.opts.momentum)?)? } else { v.clone() };
            }
            p.assign(p.sub(g.mul(&self.lr)?)?)?;
        }
        Ok(())
    }

    fn parameters(&self) -> &[Tensor] {
        &self.params
    }

    fn tensors(&self) -> Vec<Tensor> {
        self.params.iter().chain(&self.velocity).cloned().collect()
    }
}
