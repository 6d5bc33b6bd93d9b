//! Optimisers that update each parameter by one formula: RMSprop, Adagrad, Adadelta, Adamax, LAMB, LARS, Lion, Muon,
//! Adafactor.

use super::{Optimizer, check};
use crate::tensor::{IntoOperand, Operand, Tensor};
use crate::{DType, Error, Result};

/// The formula of an optimiser, with its constants. Defaults (see the functions of [`Rule`]) are torch's, or the
/// papers' where torch has no such optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the papers' names")]
pub enum Rule {
    /// Root mean square propagation (Hinton), with momentum and centring as torch has them.
    RmsProp { alpha: f64, eps: f64, momentum: f64, centered: bool },
    /// Adagrad (Duchi et al.), with a decay of the learning rate.
    Adagrad { lr_decay: f64, eps: f64 },
    /// Adadelta (Zeiler).
    Adadelta { rho: f64, eps: f64 },
    /// Adam with the infinity norm (Kingma and Ba).
    Adamax { beta1: f64, beta2: f64, eps: f64 },
    /// Layerwise adaptive moments for batches (You et al.).
    Lamb { beta1: f64, beta2: f64, eps: f64 },
    /// Layerwise adaptive rate scaling (You et al.).
    Lars { momentum: f64, trust: f64, eps: f64 },
    /// Evolved sign momentum (Chen et al.).
    Lion { beta1: f64, beta2: f64 },
    /// Momentum, orthogonalised by Newton-Schulz iteration (Jordan et al.); for matrices only.
    Muon { momentum: f64, nesterov: bool, steps: usize },
    /// Adafactor (Shazeer and Stern): the second moments of a matrix are factored into those of its rows and columns.
    Adafactor { beta2_decay: f64, eps: f64, floor: f64, clip: f64 },
}

impl Rule {
    /// RMSprop with torch's defaults.
    pub fn rmsprop() -> Rule {
        Rule::RmsProp { alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false }
    }

    /// Adagrad with torch's defaults.
    pub fn adagrad() -> Rule {
        Rule::Adagrad { lr_decay: 0.0, eps: 1e-10 }
    }

    /// Adadelta with torch's defaults.
    pub fn adadelta() -> Rule {
        Rule::Adadelta { rho: 0.9, eps: 1e-6 }
    }

    /// Adamax with torch's defaults.
    pub fn adamax() -> Rule {
        Rule::Adamax { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }

    /// LAMB with the paper's defaults.
    pub fn lamb() -> Rule {
        Rule::Lamb { beta1: 0.9, beta2: 0.999, eps: 1e-6 }
    }

    /// LARS with the paper's defaults.
    pub fn lars() -> Rule {
        Rule::Lars { momentum: 0.9, trust: 0.001, eps: 0.0 }
    }

    /// Lion with the paper's defaults.
    pub fn lion() -> Rule {
        Rule::Lion { beta1: 0.9, beta2: 0.99 }
    }

    /// Muon with torch's defaults.
    pub fn muon() -> Rule {
        Rule::Muon { momentum: 0.95, nesterov: true, steps: 5 }
    }

    /// Adafactor with torch's defaults for f32.
    pub fn adafactor() -> Rule {
        Rule::Adafactor { beta2_decay: -0.8, eps: f32::EPSILON as f64, floor: 1e-3, clip: 1.0 }
    }

    /// Shapes of the state tensors of a parameter with this shape.
    fn state(&self, shape: &[usize]) -> Vec<Vec<usize>> {
        let full = shape.to_vec();
        match *self {
            Rule::RmsProp { momentum, centered, .. } => {
                let count = 1 + (momentum != 0.0) as usize + centered as usize;
                vec![full; count]
            }
            Rule::Adagrad { .. } | Rule::Lars { .. } | Rule::Lion { .. } | Rule::Muon { .. } => vec![full],
            Rule::Adadelta { .. } | Rule::Adamax { .. } | Rule::Lamb { .. } => vec![full.clone(), full],
            Rule::Adafactor { .. } => match shape {
                [lead @ .., n, m] => vec![[lead, &[*n, 1]].concat(), [lead, &[1, *m]].concat()],
                _ => vec![full],
            },
        }
    }
}

/// An optimiser that follows a [`Rule`].
pub struct Tuned {
    /// Learning rate.
    pub lr: Operand,
    rule: Rule,
    weight_decay: f64,
    params: Vec<Tensor>,
    state: Vec<Vec<Tensor>>,
    steps: Option<Tensor>,
}

impl Tuned {
    /// An optimiser of these parameters. Weight decay is added to the gradient (L2) in RMSprop, Adagrad, Adadelta,
    /// Adamax and LARS, and applied to the parameter itself (decoupled) in the others.
    ///
    /// # Errors
    /// `E_VALUE` for Muon over a parameter that is not a matrix.
    pub fn new(rule: Rule, params: Vec<Tensor>, lr: impl IntoOperand, weight_decay: f64) -> Result<Tuned> {
        if let (Rule::Muon { .. }, Some(p)) = (rule, params.iter().find(|p| p.rank() != 2)) {
            return Err(Error::value("muon", format!("a parameter of shape {:?} is no matrix", p.shape())));
        }
        let zeros = |p: &Tensor, shape: &Vec<usize>| Tensor::zeros(p.session(), p.dtype(), shape)?.to_storage();
        let slots = |p: &Tensor| rule.state(&p.shape()).iter().map(|s| zeros(p, s)).collect::<Result<Vec<_>>>();
        let state = params.iter().map(slots).collect::<Result<Vec<_>>>()?;
        let count = |p: &Tensor| Tensor::zeros(p.session(), DType::F32, &[1])?.to_storage();
        let steps = params.first().map(count).transpose()?;
        Ok(Tuned { lr: lr.into_operand()?, rule, weight_decay, params, state, steps })
    }

    /// The new value of a parameter. Assigns its state.
    fn update(&self, p: &Tensor, g: &Tensor, s: &[Tensor], t: &Tensor) -> Result<Tensor> {
        let decay = self.weight_decay;
        let l2 = || if decay == 0.0 { Ok(g.clone()) } else { g.add(p.mul(decay)?) };
        let shrunk = || if decay == 0.0 { Ok(p.clone()) } else { p.sub(p.mul(&self.lr)?.mul(decay)?) };
        let norm = |t: &Tensor| t.norm(2.0, &[], false);
        let blend = |m: &Tensor, x: &Tensor, beta: f64| m.assign(m.mul(beta)?.add(x.mul(1.0 - beta)?)?);
        // 1 - beta^t without cancellation
        let rest = |beta: f64| t.mul(beta.ln())?.expm1()?.neg();
        match self.rule {
            Rule::RmsProp { alpha, eps, momentum, centered } => {
                let g = l2()?;
                blend(&s[0], &g.square()?, alpha)?;
                let mut v = s[0].clone();
                if centered {
                    blend(&s[1], &g, alpha)?;
                    v = v.sub(s[1].square()?)?;
                }
                let step = g.div(v.sqrt()?.add(eps)?)?;
                if momentum == 0.0 {
                    return p.sub(step.mul(&self.lr)?);
                }
                let m = &s[1 + centered as usize];
                m.assign(m.mul(momentum)?.add(step)?)?;
                p.sub(m.mul(&self.lr)?)
            }
            Rule::Adagrad { lr_decay, eps } => {
                let g = l2()?;
                s[0].assign(s[0].add(g.square()?)?)?;
                let rate = t.sub(1)?.mul(lr_decay)?.add(1)?.reciprocal()?.mul(&self.lr)?;
                p.sub(g.div(s[0].sqrt()?.add(eps)?)?.mul(rate)?)
            }
            Rule::Adadelta { rho, eps } => {
                let g = l2()?;
                blend(&s[0], &g.square()?, rho)?;
                let step = s[1].add(eps)?.sqrt()?.div(s[0].add(eps)?.sqrt()?)?.mul(g)?;
                blend(&s[1], &step.square()?, rho)?;
                p.sub(step.mul(&self.lr)?)
            }
            Rule::Adamax { beta1, beta2, eps } => {
                let g = l2()?;
                blend(&s[0], &g, beta1)?;
                s[1].assign(s[1].mul(beta2)?.maximum(g.abs()?.add(eps)?)?)?;
                p.sub(s[0].div(s[1].mul(rest(beta1)?)?)?.mul(&self.lr)?)
            }
            Rule::Lamb { beta1, beta2, eps } => {
                blend(&s[0], g, beta1)?;
                blend(&s[1], &g.square()?, beta2)?;
                let (m, v) = (s[0].div(rest(beta1)?)?, s[1].div(rest(beta2)?)?);
                let mut step = m.div(v.sqrt()?.add(eps)?)?;
                if decay != 0.0 {
                    step = step.add(p.mul(decay)?)?;
                }
                let (a, b) = (norm(p)?, norm(&step)?);
                let usable = a.gt(0)?.logical_and(b.gt(0)?)?;
                let trust = usable.select(a.div(usable.select(b, 1)?)?, 1)?;
                p.sub(step.mul(trust)?.mul(&self.lr)?)
            }
            Rule::Lars { momentum, trust, eps } => {
                let (a, b) = (norm(p)?, norm(g)?);
                let usable = a.gt(0)?.logical_and(b.gt(0)?)?;
                let size = usable.select(b.add(a.mul(decay)?)?.add(eps)?, 1)?;
                let local = usable.select(a.mul(trust)?.div(size)?, 1)?;
                s[0].assign(s[0].mul(momentum)?.add(l2()?.mul(local)?.mul(&self.lr)?)?)?;
                p.sub(&s[0])
            }
            Rule::Lion { beta1, beta2 } => {
                let step = s[0].mul(beta1)?.add(g.mul(1.0 - beta1)?)?.sign()?;
                let out = shrunk()?.sub(step.mul(&self.lr)?)?;
                blend(&s[0], g, beta2)?;
                Ok(out)
            }
            Rule::Muon { momentum, nesterov, steps } => {
                blend(&s[0], g, momentum)?;
                let step = if nesterov { g.mul(1.0 - momentum)?.add(s[0].mul(momentum)?)? } else { s[0].clone() };
                let shape = p.shape();
                let ratio = (shape[0] as f64 / shape[1].max(1) as f64).max(1.0).sqrt();
                shrunk()?.sub(step.newton_schulz(steps)?.mul(&self.lr)?.mul(ratio)?)
            }
            Rule::Adafactor { beta2_decay, eps, floor, clip } => {
                // t^decay
                let weight = t.pow(beta2_decay)?;
                let rms = |x: &Tensor| norm(x)?.div((x.numel() as f64).sqrt());
                let root = t.rsqrt()?;
                let rate = match &self.lr {
                    Operand::Tensor(lr) => root.minimum(lr)?,
                    lr => root.minimum(lr)?,
                };
                let alpha = rms(p)?.maximum(floor)?.mul(rate)?;
                let toward = |m: &Tensor, x: Tensor| m.assign(m.add(x.sub(m)?.mul(&weight)?)?);
                let estimate = match s {
                    [rows, cols] => {
                        toward(rows, g.square()?.mean(&[-1], true)?)?;
                        toward(cols, g.square()?.mean(&[-2], true)?)?;
                        rows.mul(cols)?.div(rows.mean(&[-2], true)?.maximum(eps)?)?
                    }
                    _ => {
                        toward(&s[0], g.square()?)?;
                        s[0].clone()
                    }
                };
                let step = estimate.maximum(eps * eps)?.rsqrt()?.mul(g)?;
                let size = rms(&step)?.div(clip)?.maximum(1)?;
                shrunk()?.sub(step.mul(alpha.div(size)?)?)
            }
        }
    }
}

impl Optimizer for Tuned {
    fn step(&mut self, grads: &[Tensor]) -> Result<()> {
        check("optimizer", &self.params, grads)?;
        let Some(steps) = &self.steps else { return Ok(()) };
        steps.assign(steps.add(1)?)?;
        let t = steps.reshape::<usize>(&[])?;
        for ((p, g), s) in self.params.iter().zip(grads).zip(&self.state) {
            let new = self.update(p, g, s, &t)?;
            p.assign(new)?;
        }
        Ok(())
    }

    fn parameters(&self) -> &[Tensor] {
        &self.params
    }

    fn tensors(&self) -> Vec<Tensor> {
        self.params.iter().chain(self.state.iter().flatten()).chain(&self.steps).cloned().collect()
    }
}

impl Tensor {
    /// An approximation of the nearest orthogonal matrix, by a Newton-Schulz iteration of fifth order with Muon's
    /// coefficients (singular values end between about 0.7 and 1.2).
    pub fn newton_schulz(&self, steps: usize) -> Result<Tensor> {
        let shape = self.want_rank("newton_schulz", 2)?;
        let tall = shape[0] > shape[1];
        let mut x = if tall { self.t()? } else { self.clone() };
        x = x.div(x.norm(2.0, &[], false)?.maximum(1e-7)?)?;
        for _ in 0..crate::tensor::check_repetitions("newton_schulz", steps)? {
            let gram = x.matmul(&x.t()?)?.contiguous();
            let mix = gram.mul(-4.775)?.add(gram.matmul(&gram)?.mul(2.0315)?)?.contiguous();
            x = x.mul(3.4445)?.add(mix.matmul(&x)?)?.contiguous();
        }
        if tall { x.t() } else { Ok(x) }
    }
}

/// Gradients scaled so that their joint p-norm is at most `max_norm`, and the norm before scaling.
pub fn clip_grad_norm(grads: &[Tensor], max_norm: f64, p: f64) -> Result<(Vec<Tensor>, Tensor)> {
    let norms = grads.iter().map(|g| g.vector_norm(p, &[], false)?.cast(DType::F32)).collect::<Result<Vec<_>>>()?;
    if norms.is_empty() {
        return Err(Error::value("clip_grad_norm", "there are no gradients"));
    }
    let total = Tensor::stack(&norms.iter().collect::<Vec<_>>(), 0)?.vector_norm(p, &[], false)?;
    let factor = total.add(1e-6)?.reciprocal()?.mul(max_norm)?.minimum(1)?;
    let out = grads.iter().map(|g| g.mul(factor.cast(g.dtype())?)).collect::<Result<_>>()?;
    Ok((out, total))
}

/// Gradients limited to `-value..=value`.
pub fn clip_grad_value(grads: &[Tensor], value: f64) -> Result<Vec<Tensor>> {
    grads.iter().map(|g| g.clamp(-value, value)).collect()
}
