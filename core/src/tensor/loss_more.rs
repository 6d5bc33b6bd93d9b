//! Elementwise losses, for callers that reduce or weight them themselves; and losses with more structure (margins,
//! CTC).

use super::{Operand, Tensor};
use crate::{DType, Error, Result};
use std::f64::consts::PI;

impl Tensor {
    /// Smooth L1 loss of each difference `d`: `d^2 / (2 beta)` where `|d| < beta`, and `|d| - beta/2` beyond.
    pub fn smooth_l1(&self, target: &Tensor, beta: f64) -> Result<Tensor> {
        let d = self.sub(target)?.abs()?;
        if beta == 0.0 {
            return Ok(d);
        }
        let near = d.lt(beta)?;
        near.select(d.square()?.mul(0.5 / beta)?, d.sub(0.5 * beta)?)
    }

    /// Negative log likelihood of log-probabilities `[batch, classes, ..]` (or `[classes]`) under integer targets, with
    /// class weights `[classes]`. `reduction` is `mean` (weighted), `sum` or `none`. Targets equal to `ignore` have a
    /// loss of 0 and no weight.
    pub fn nll_loss_by(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        ignore: i64,
        reduction: &str,
    ) -> Result<Tensor> {
        if self.rank() == 1 {
            let one = self.unsqueeze(0)?.nll_loss_by(&target.unsqueeze(0)?, weight, ignore, reduction)?;
            return if reduction == "none" { one.squeeze(0) } else { Ok(one) };
        }
        let (loss, w) = self.nll_parts(target, weight, ignore)?;
        finish(loss, w, reduction)
    }

    /// The weighted loss of each target, and its weight (0 where ignored).
    fn nll_parts(&self, target: &Tensor, weight: Option<&Tensor>, ignore: i64) -> Result<(Tensor, Tensor)> {
        let counts = target.ne(ignore)?;
        let class = counts.select(target, 0)?;
        let picked = self.gather(1, &class.unsqueeze(1)?)?.squeeze(1)?;
        let w = match weight {
            Some(w) => w.index_select(0, &class)?,
            None => picked.ones_like()?,
        };
        let w = counts.select(w, 0)?;
        Ok((counts.select(picked.neg()?, 0)?.mul(&w)?, w))
    }

    /// Cross entropy of logits `[batch, classes, ..]` (or `[classes]`) under integer targets `[batch, ..]`, or under
    /// probabilities in the shape of the logits, with class weights `[classes]` and label smoothing. `reduction` and
    /// `ignore` as for [`Tensor::nll_loss_by`].
    pub fn cross_entropy_by(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        ignore: i64,
        reduction: &str,
        smoothing: f64,
    ) -> Result<Tensor> {
        if self.rank() == 1 {
            let one =
                self.unsqueeze(0)?.cross_entropy_by(&target.unsqueeze(0)?, weight, ignore, reduction, smoothing)?;
            return if reduction == "none" { one.squeeze(0) } else { Ok(one) };
        }
        let logp = self.log_softmax(1)?;
        let classes = self.dim(1)?;
        let per_class = |t: &Tensor| match weight {
            Some(w) => t.mul(w.per_channel("cross_entropy", &self.shape())?),
            None => Ok(t.clone()),
        };
        if target.dtype().is_float() {
            let t = target.mul(1.0 - smoothing)?.add(smoothing / classes as f64)?;
            let loss = per_class(&logp.mul(t)?)?.sum(&[1], false)?.neg()?;
            return match reduction {
                "mean" => loss.sum(&[], false)?.div((self.numel() / classes.max(1)) as f64),
                "sum" => loss.sum(&[], false),
                _ => Ok(loss),
            };
        }
        let (loss, w) = logp.nll_parts(target, weight, ignore)?;
        if smoothing == 0.0 {
            return finish(loss, w, reduction);
        }
        let spread = target.ne(ignore)?.select(per_class(&logp)?.sum(&[1], false)?.neg()?, 0)?;
        let loss = loss.mul(1.0 - smoothing)?.add(spread.mul(smoothing / classes as f64)?)?;
        finish(loss, w, reduction)
    }

    /// Binary cross entropy of each probability; logarithms are at least -100.
    pub fn bce_each(&self, target: &Tensor) -> Result<Tensor> {
        let one = Tensor::full(self.session(), 1, self.want_float("bce_loss")?, &[])?;
        // where the logarithm is limited, torch's gradient divides by at least 1e-12
        let log = |p: &Tensor| p.maximum(1e-44)?.log()?.maximum(-100);
        let (yes, no) = (log(self)?, log(&one.sub(self)?)?);
        target.mul(yes)?.add(one.sub(target)?.mul(no)?)?.neg()
    }

    /// Binary cross entropy of each logit, with a factor on the loss of positive targets.
    pub fn bce_logits_each(&self, target: &Tensor, positive: Option<&Tensor>) -> Result<Tensor> {
        let one = Tensor::full(self.session(), 1, self.want_float("bce_with_logits")?, &[])?;
        let Some(p) = positive else { return self.softplus(1.0)?.sub(self.mul(target)?) };
        // (1-y) x + (1 + (p-1) y) softplus(-x)
        let factor = p.sub(1)?.mul(target)?.add(1)?;
        one.sub(target)?.mul(self)?.add(factor.mul(self.neg()?.softplus(1.0)?)?)
    }

    /// The Kullback-Leibler divergence's term for each element: this tensor has log-probabilities, `target`
    /// probabilities (their logarithms with `log_target`).
    pub fn kl_div(&self, target: &Tensor, log_target: bool) -> Result<Tensor> {
        if log_target {
            return target.exp()?.mul(target.sub(self)?);
        }
        target.xlogy(target)?.sub(target.mul(self)?)
    }

    /// Hinge embedding loss of each element `x`: `x` where the target is 1, `max(0, margin - x)` where it is -1.
    pub fn hinge_embedding(&self, target: &Tensor, margin: f64) -> Result<Tensor> {
        let apart = target.ne(1)?.select(self.neg()?.add(margin)?.relu()?, 0)?;
        target.ne(-1)?.select(self, 0)?.add(apart)
    }

    /// Margin ranking loss: `max(0, margin - target * (self - other))`, so that a target of 1 wants `self` above
    /// `other` by the margin, and -1 below.
    pub fn margin_ranking(&self, other: &Tensor, target: &Tensor, margin: f64) -> Result<Tensor> {
        target.neg()?.mul(self.sub(other)?)?.add(margin)?.clamp_to(Some(Operand::Int(0)), None)
    }

    /// Soft margin loss: `log(1 + exp(-y x))` of each element `x` under targets `y` of 1 and -1.
    pub fn soft_margin(&self, target: &Tensor) -> Result<Tensor> {
        target.neg()?.mul(self)?.softplus(1.0)
    }

    /// Mean binary cross entropy over the classes: logits `[.., classes] -> [..]`, with class weights.
    pub fn multilabel_soft_margin(&self, target: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
        let loss = self.bce_logits_each(target, None)?;
        match weight {
            Some(w) => loss.mul(w)?,
            None => loss,
        }
        .mean(&[-1], false)
    }

    /// Negative log likelihood of `target` under a Poisson distribution with this rate (its logarithm with
    /// `log_input`); `full` adds Stirling's approximation of the constant term.
    pub fn poisson_nll(&self, target: &Tensor, log_input: bool, full: bool, eps: f64) -> Result<Tensor> {
        let loss = match log_input {
            true => self.exp()?.sub(target.mul(self)?)?,
            false => self.sub(target.mul(self.add(eps)?.log()?)?)?,
        };
        if !full {
            return Ok(loss);
        }
        let large = target.gt(1)?;
        let t = large.select(target, 2)?;
        // Stirling
        let term = t.mul(t.log()?)?.sub(&t)?.add(t.mul(2.0 * PI)?.log()?.mul(0.5)?)?;
        loss.add(large.select(term, 0)?)
    }

    /// Negative log likelihood of `target` under a normal distribution with this mean and the variance `var`, which is
    /// at least `eps`; `full` adds the constant term.
    pub fn gaussian_nll(&self, target: &Tensor, var: &Tensor, full: bool, eps: f64) -> Result<Tensor> {
        let mut var = var.to_float()?;
        if var.rank() > 0 && var.rank() + 1 == self.rank() {
            var = var.unsqueeze(-1)?;
        }
        // a variance below eps still gets its gradient, as in torch
        let limited = var.add(var.maximum(eps)?.sub(&var)?.detach())?;
        let loss = limited.log()?.add(self.sub(target)?.square()?.div(&limited)?)?.mul(0.5)?;
        if full { loss.add(0.5 * (2.0 * PI).ln()) } else { Ok(loss) }
    }

    /// Multi-class margin loss of scores `[batch, classes]` (or `[classes]`) under integer targets `[batch]`: for each
    /// sample the sum over the other classes `j` of `max(0, margin + x_j - x_target)^p`, times the weight of the
    /// target's class, divided by the number of classes: `[batch]`.
    pub fn multi_margin(&self, target: &Tensor, p: f64, margin: f64, weight: Option<&Tensor>) -> Result<Tensor> {
        if self.rank() < 2 {
            return self.reshape(&[1, -1])?.multi_margin(&target.reshape(&[1usize])?, p, margin, weight)?.squeeze(0);
        }
        let n = self.want_rank("multi_margin_loss", 2)?[1];
        let target = target.reshape(&[-1])?;
        let own = self.gather(1, &target.unsqueeze(1)?)?;
        let mut z = self.sub(own)?.add(margin)?.clamp_to(Some(Operand::Int(0)), None)?;
        if p != 1.0 {
            z = z.pow(p)?;
        }
        if let Some(w) = weight {
            z = z.mul(w.index_select(0, &target)?.unsqueeze(1)?)?;
        }
        let other = Tensor::iota(self.session(), n)?.unsqueeze(0)?.ne(target.unsqueeze(1)?)?;
        other.select(z, 0)?.sum(&[1], false)?.div(n as f64)
    }

    /// Multi-label margin loss: target classes are listed up to the first -1; for each sample the sum of
    /// `max(0, 1 + x_j - x_i)` over target classes `i` and other classes `j`, divided by the number of classes:
    /// `[batch]`.
    pub fn multilabel_margin(&self, target: &Tensor) -> Result<Tensor> {
        if self.rank() < 2 {
            return self.reshape(&[1, -1])?.multilabel_margin(&target.reshape(&[1, -1])?)?.squeeze(0);
        }
        let n = self.want_rank("multilabel_margin_loss", 2)?[1];
        // a target counts while no -1 came before it
        let valid = target.lt(0)?.cast(DType::I32)?.cumsum(1)?.eq(0)?;
        let at = valid.select(target, 0)?;
        let class = Tensor::iota(self.session(), n)?;
        let is_target = at.unsqueeze(-1)?.eq(class)?.logical_and(valid.unsqueeze(-1)?)?.any(&[1], false)?;
        let own = self.gather(1, &at)?;
        let z = self.unsqueeze(1)?.sub(own.unsqueeze(2)?)?.add(1)?.relu()?;
        let pairs = valid.unsqueeze(2)?.logical_and(is_target.logical_not()?.unsqueeze(1)?)?;
        pairs.select(z, 0)?.sum(&[1, 2], false)?.div(n as f64)
    }

    /// The cosine of the angle between vectors along an axis; norms count as at least `eps`.
    pub fn cosine_similarity(&self, other: &Tensor, axis: i64, eps: f64) -> Result<Tensor> {
        let (a, b) = self.to_float()?.broadcast_with(&other.to_float()?)?;
        let norm = |t: &Tensor| t.vector_norm(2.0, &[axis], true)?.clamp_to(Some(Operand::Float(eps)), None);
        a.div(norm(&a)?)?.mul(b.div(norm(&b)?)?)?.sum(&[axis], false)
    }

    /// Cosine embedding loss of vectors along the last axis: `1 - cos` where the target is 1, `max(0, cos - margin)`
    /// where it is -1.
    pub fn cosine_embedding(&self, other: &Tensor, target: &Tensor, margin: f64) -> Result<Tensor> {
        const EPS: f64 = 1e-12;
        let (aa, bb) = (self.square()?.sum(&[-1], false)?.add(EPS)?, other.square()?.sum(&[-1], false)?.add(EPS)?);
        let cos = self.mul(other)?.sum(&[-1], false)?.div(aa.mul(bb)?.sqrt()?)?;
        let same = target.eq(1)?.select(cos.neg()?.add(1)?, 0)?;
        let apart = target.eq(-1)?.select(cos.sub(margin)?.clamp_to(Some(Operand::Int(0)), None)?, 0)?;
        same.add(apart)
    }

    /// Triplet margin loss: for each anchor (this tensor) `max(0, d(positive) - d(negative) + margin)` with p-norm
    /// distances along the last axis. With `swap`, the distance between positive and negative is used where it is
    /// smaller than `d(negative)`.
    #[allow(clippy::too_many_arguments, reason = "the loss's parameters")]
    pub fn triplet_margin(
        &self,
        positive: &Tensor,
        negative: &Tensor,
        margin: f64,
        p: f64,
        eps: f64,
        swap: bool,
    ) -> Result<Tensor> {
        let distance = |a: &Tensor, b: &Tensor| a.sub(b)?.add(eps)?.vector_norm(p, &[-1], false);
        let mut far = distance(self, negative)?;
        if swap {
            far = far.minimum(distance(positive, negative)?)?;
        }
        distance(self, positive)?.sub(far)?.add(margin)?.clamp_to(Some(Operand::Int(0)), None)
    }

    /// Connectionist temporal classification (Graves): the negative log likelihood of each sample, `[batch]`, for
    /// log-probabilities `[time, batch, classes]`, targets `[batch, longest]`, and the numbers of time steps `times`
    /// and of targets `lengths` `[batch]`. One step of the forward recursion for each time step. `Error::Shape` where
    /// the shapes do not fit.
    pub fn ctc_loss(&self, targets: &Tensor, times: &Tensor, lengths: &Tensor, blank: usize) -> Result<Tensor> {
        let shape = self.want_rank("ctc_loss", 3)?;
        let tshape = targets.want_rank("ctc_loss", 2)?;
        let (t_len, batch, s_len) = (shape[0], shape[1], tshape[1]);
        if tshape[0] != batch || t_len == 0 {
            return Err(Error::Shape { op: "ctc_loss", lhs: shape, rhs: tshape });
        }
        let states = 2 * s_len + 1;
        let s = self.session();
        // blank, target 0, blank, target 1, .., blank
        let blanks = Tensor::full(s, blank, DType::I32, &[batch, s_len])?;
        let pairs = Tensor::stack(&[&blanks, &targets.cast(DType::I32)?], 2)?.reshape(&[batch, 2 * s_len])?;
        let labels = Tensor::cat(&[&pairs, &Tensor::full(s, blank, DType::I32, &[batch, 1])?], 1)?;
        let place = Tensor::iota(s, states)?.unsqueeze(0)?;
        let skip_from = labels.pad(&[(0, 0), (2, 0)], super::PadMode::Constant, blank)?.narrow(1, 0, states)?;
        let may_skip = labels.ne(blank)?.logical_and(labels.ne(skip_from)?)?.logical_and(place.ge(2)?)?;
        // a finite stand-in for ln 0 keeps gradients free of NaN
        const LOG_ZERO: f64 = -1e30;
        let emit = |t: usize| self.select_at(0, t as i64)?.gather(1, &labels);
        let mut alpha = place.lt(2)?.select(emit(0)?, LOG_ZERO)?;
        for t in 1..t_len {
            let shifted = |by: usize| {
                alpha.pad(&[(0, 0), (by as i64, 0)], super::PadMode::Constant, LOG_ZERO)?.narrow(1, 0, states)
            };
            let skipped = may_skip.select(shifted(2)?, LOG_ZERO)?;
            let before = Tensor::stack(&[&alpha, &shifted(1)?, &skipped], 2)?.logsumexp(&[2], false)?;
            let next = before.add(emit(t)?)?;
            let running = times.gt(t as i64)?.unsqueeze(1)?;
            alpha = running.select(next, &alpha)?;
        }
        let last = lengths.cast(DType::I32)?.mul(2)?.unsqueeze(1)?;
        let end = |at: Tensor| alpha.gather(1, &at);
        let two =
            Tensor::cat(&[&end(last.clone())?, &last.gt(0)?.select(end(last.sub(1)?.maximum(0)?)?, LOG_ZERO)?], 1)?;
        two.logsumexp(&[1], false)?.neg()
    }
}

/// The weighted mean of losses, their sum, or the losses themselves.
fn finish(loss: Tensor, weight: Tensor, reduction: &str) -> Result<Tensor> {
    match reduction {
        "mean" => loss.sum(&[], false)?.div(weight.sum(&[], false)?),
        "sum" => loss.sum(&[], false),
        _ => Ok(loss),
    }
}
