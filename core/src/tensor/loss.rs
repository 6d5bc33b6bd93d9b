//! Losses. Each returns a scalar: the mean over the elements (or the targets that are not ignored). `loss_more` has
//! elementwise forms.

use super::Tensor;
use crate::util::decimal::Shown;
use crate::{DType, Error, Result};

impl Tensor {
    /// Mean of the squared differences: `[]`.
    pub fn mse_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.sub(target)?.square()?.mean(&[], false)
    }

    /// Mean of the absolute differences: `[]`.
    pub fn l1_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.sub(target)?.abs()?.mean(&[], false)
    }

    /// Huber loss: the mean over differences `d` of `d^2 / 2` where `|d| <= delta`, and `delta * (|d| - delta / 2)`
    /// beyond.
    pub fn huber_loss(&self, target: &Tensor, delta: f64) -> Result<Tensor> {
        let a = self.sub(target)?.abs()?;
        let near = a.minimum(delta)?;
        // min(a, d)^2 / 2 + d * (a - min(a, d))
        near.square()?.mul(0.5)?.add(a.sub(&near)?.mul(delta)?)?.mean(&[], false)
    }

    /// Mean negative log likelihood of log-probabilities `[batch, classes, ..]` under integer targets `[batch, ..]`;
    /// targets equal to `ignore_index` are not counted. `Error::Shape` where the shapes do not fit, `Error::DType`
    /// unless the targets are integers and the log-probabilities floats.
    pub fn nll_loss(&self, target: &Tensor, ignore_index: Option<i64>) -> Result<Tensor> {
        let (picked, counts) = self.pick_classes("nll_loss", target, ignore_index)?;
        counts.select(picked.neg()?, 0)?.sum(&[], false)?.div(counts.cast(DType::F32)?.sum(&[], false)?)
    }

    /// Mean cross entropy of logits `[batch, classes, ..]` under integer targets `[batch, ..]`, with label smoothing in
    /// [0, 1]; targets equal to `ignore_index` are not counted. `Error::Value` for another smoothing; others as for
    /// [`Tensor::nll_loss`].
    pub fn cross_entropy(&self, target: &Tensor, ignore_index: Option<i64>, smoothing: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(Error::value(
                "cross_entropy",
                format!("label smoothing {} is not in [0, 1]", Shown(smoothing)),
            ));
        }
        if self.rank() < 2 {
            return Err(Error::Shape { op: "cross_entropy", lhs: self.shape(), rhs: target.shape() });
        }
        let logp = self.log_softmax(1)?;
        let (picked, counts) = logp.pick_classes("cross_entropy", target, ignore_index)?;
        let mut loss = picked.neg()?;
        if smoothing > 0.0 {
            loss = loss.mul(1.0 - smoothing)?.sub(logp.mean(&[1], false)?.mul(smoothing)?)?;
        }
        counts.select(loss, 0)?.sum(&[], false)?.div(counts.cast(DType::F32)?.sum(&[], false)?)
    }

    /// The entry of axis 1 that each target names, `[batch, ..]`, and which targets count (bool). The entry is picked
    /// by a one-hot mask and a sum, so that its gradient is an elementwise expression.
    fn pick_classes(&self, op: &'static str, target: &Tensor, ignore: Option<i64>) -> Result<(Tensor, Tensor)> {
        let (shape, tshape) = (self.shape(), target.shape());
        self.want_float(op)?;
        if !target.dtype().is_int() {
            return Err(Error::DType { op, dtype: target.dtype(), why: "targets are class numbers".into() });
        }
        let fits = shape.len() >= 2 && tshape.first() == shape.first() && tshape[1..] == shape[2..];
        if !fits {
            return Err(Error::Shape { op, lhs: shape, rhs: tshape });
        }
        let mut class_shape = vec![1; shape.len()];
        class_shape[1] = shape[1];
        let classes = Tensor::iota(self.session(), shape[1])?.reshape(&class_shape)?.cast(target.dtype())?;
        let hit = target.unsqueeze(1)?.eq(classes)?;
        let picked = hit.select(self, 0)?.sum(&[1], false)?;
        let counts = match ignore {
            Some(i) => target.ne(i)?,
            None => Tensor::full(self.session(), true, DType::Bool, &tshape)?,
        };
        Ok((picked, counts))
    }

    /// Mean binary cross entropy of probabilities; as in torch, logarithms are at least -100. `Error::DType` unless
    /// they are floats.
    pub fn bce_loss(&self, target: &Tensor) -> Result<Tensor> {
        let one = Tensor::full(self.session(), 1, self.want_float("bce_loss")?, &[])?;
        let (yes, no) = (self.log()?.maximum(-100)?, one.sub(self)?.log()?.maximum(-100)?);
        target.mul(yes)?.add(one.sub(target)?.mul(no)?)?.mean(&[], false)?.neg()
    }

    /// Mean binary cross entropy of logits, without overflow. `Error::DType` unless they are floats.
    pub fn bce_with_logits(&self, target: &Tensor) -> Result<Tensor> {
        self.want_float("bce_with_logits")?;
        // softplus(x) - x y
        self.softplus(1.0)?.sub(self.mul(target)?)?.mean(&[], false)
    }
}
