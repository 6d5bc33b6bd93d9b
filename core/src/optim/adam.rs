//! Adam, and AdamW with decoupled weight decay.

use super::{Optimizer, check};
use crate::tensor::{IntoOperand, Operand, Tensor};
use crate::{DType, Result};

/// Options of [`Adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOpts {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment.
    pub eps: f64,
    /// L2 penalty, or, if `decoupled`, the decay of the parameter itself.
    pub weight_decay: f64,
    /// AdamW: decay the parameter, not the gradient.
    pub decoupled: bool,
}

impl Default for AdamOpts {
    fn default() -> Self {
        AdamOpts { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

/// Adam (Kingma and Ba), or AdamW (Loshchilov and Hutter).
pub struct Adam {
    /// Learning rate.
    pub lr: Operand,
    params: Vec<Tensor>,
    first: Vec<Tensor>,
    second: Vec<Tensor>,
    /// Steps done so far, one f32. It is on the device so that a captured step goes on counting when it is replayed.
    /// `None` without parameters.
    steps: Option<Tensor>,
    opts: AdamOpts,
}

impl Adam {
    /// An optimiser of these parameters.
    pub fn new(params: Vec<Tensor>, lr: impl IntoOperand, opts: AdamOpts) -> Result<Adam> {
        let zeros = || params.iter().map(|p| p.zeros_like()?.to_storage()).collect::<Result<Vec<_>>>();
        let count = |p: &Tensor| Tensor::zeros(p.session(), DType::F32, &[1])?.to_storage();
        let steps = params.first().map(count).transpose()?;
        Ok(Adam { lr: lr.into_operand()?, first: zeros()?, second: zeros()?, steps, params, opts })
    }

    /// AdamW: decoupled weight decay, 0.01 by default in torch.
    pub fn decoupled(params: Vec<Tensor>, lr: impl IntoOperand, weight_decay: f64) -> Result<Adam> {
        Adam::new(params, lr, AdamOpts { weight_decay, decoupled: true, ..AdamOpts::default() })
    }
}

impl Optimizer for Adam {
    fn step(&mut self, grads: &[Tensor]) -> Result<()> {
        check("adam", &self.params, grads)?;
        let o = self.opts;
        let Some(steps) = &self.steps else { return Ok(()) };
        steps.assign(steps.add(1)?)?;
        // 1 - beta^t as -expm1(t ln beta): 1 - 0.999 itself would lose four digits in f32
        let t = steps.reshape::<usize>(&[])?;
        let rest = |beta: f64| t.mul(beta.ln())?.expm1()?.neg();
        let (c1, c2) = (rest(o.beta1)?, rest(o.beta2)?.sqrt()?);
        let rate = match &self.lr {
            Operand::Tensor(t) => t.div(&c1)?,
            lr => c1.reciprocal()?.mul(lr)?,
        };
        for (i, (p, g)) in self.params.iter().zip(grads).enumerate() {
            let mut g = g.clone();
            let mut old = p.clone();
            if o.weight_decay != 0.0 {
                match o.decoupled {
                    true => old = old.sub(old.mul(&self.lr)?.mul(o.weight_decay)?)?,
                    false => g = g.add(p.mul(o.weight_decay)?)?,
                }
            }
            let (m, v) = (&self.first[i], &self.second[i]);
            m.assign(m.mul(o.beta1)?.add(g.mul(1.0 - o.beta1)?)?)?;
            v.assign(v.mul(o.beta2)?.add(g.square()?.mul(1.0 - o.beta2)?)?)?;
            let size = v.sqrt()?.div(&c2)?.add(o.eps)?;
            p.assign(old.sub(m.div(size)?.mul(&rate)?)?)?;
        }
        Ok(())
    }

    fn parameters(&self) -> &[Tensor] {
        &self.params
    }

    fn tensors(&self) -> Vec<Tensor> {
        [&self.params[..], &self.first, &self.second].into_iter().flatten().chain(&self.steps).cloned().collect()
    }
}
