//! Normalisation layers: batch, layer, RMS, group and instance norm. All preserve the shape of their input.

use super::{Layer, Mode, Module, Role, each};
use crate::tensor::{Session, Tensor};
use crate::{DType, Result};

fn ones(session: &Session, shape: &[usize]) -> Result<Tensor> {
    Tensor::ones(session, DType::F32, shape)?.to_storage()
}

fn zeros(session: &Session, shape: &[usize]) -> Result<Tensor> {
    Tensor::zeros(session, DType::F32, shape)?.to_storage()
}

/// Normalises each channel of `[batch, channels, ..]` over the batch; keeps running statistics, which are used in
/// inference.
pub struct BatchNorm {
    /// Scale `[channels]`.
    pub weight: Option<Tensor>,
    /// Shift `[channels]`.
    pub bias: Option<Tensor>,
    /// Running mean `[channels]`.
    pub running_mean: Tensor,
    /// Running sample variance `[channels]`.
    pub running_var: Tensor,
    /// Added to the variance, so that it is not 0.
    pub eps: f64,
    /// Weight of a new batch in the running statistics.
    pub momentum: f64,
}

impl BatchNorm {
    /// A layer for `channels` channels: scale 1, shift 0, eps 1e-5, momentum 0.1.
    pub fn new(session: &Session, channels: usize) -> Result<BatchNorm> {
        Ok(BatchNorm {
            weight: Some(ones(session, &[channels])?),
            bias: Some(zeros(session, &[channels])?),
            running_mean: zeros(session, &[channels])?,
            running_var: ones(session, &[channels])?,
            eps: 1e-5,
            momentum: 0.1,
        })
    }

    /// Normalises by the running statistics.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.batch_norm(&self.running_mean, &self.running_var, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }

    /// Normalises by the statistics of this batch, and blends these into the running ones (realize those together with
    /// the step).
    pub fn forward_train(&self, x: &Tensor) -> Result<Tensor> {
        let (mean, var) = x.batch_stats()?;
        let n = x.numel() / mean.numel().max(1);
        // the running variance is the sample variance, as in torch
        let unbiased = var.detach().mul(n as f64 / n.saturating_sub(1).max(1) as f64)?;
        let blend = |running: &Tensor, new: &Tensor| running.assign(running.lerp(new, self.momentum)?);
        blend(&self.running_mean, &mean.detach())?;
        blend(&self.running_var, &unbiased)?;
        x.batch_norm(&mean, &var, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

impl Module for BatchNorm {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", self.weight.as_ref()), ("bias", self.bias.as_ref())]);
        let running = [("running_mean", Some(&self.running_mean)), ("running_var", Some(&self.running_var))];
        each(prefix, Role::Buffer, f, &running);
    }
}

impl Layer for BatchNorm {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if mode == Mode::Train { self.forward_train(x) } else { self.forward(x) }
    }
}

/// Normalises over the last axes.
pub struct LayerNorm {
    /// Scale, of the normalised axes' shape.
    pub weight: Option<Tensor>,
    /// Shift, of the normalised axes' shape.
    pub bias: Option<Tensor>,
    /// The number of last axes that are normalised over.
    pub dims: usize,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// A layer over last axes of this shape: scale 1, shift 0, eps 1e-5.
    pub fn new(session: &Session, shape: &[usize]) -> Result<LayerNorm> {
        let (weight, bias) = (Some(ones(session, shape)?), Some(zeros(session, shape)?));
        Ok(LayerNorm { weight, bias, dims: shape.len(), eps: 1e-5 })
    }

    /// Applies the norm; the shape stays.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(self.dims, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

/// Divides the last axis by its root mean square.
pub struct RmsNorm {
    /// Scale `[width]`.
    pub weight: Option<Tensor>,
    /// Added to the mean square.
    pub eps: f64,
}

impl RmsNorm {
    /// A layer for a last axis of `width`: scale 1, eps 1e-6.
    pub fn new(session: &Session, width: usize) -> Result<RmsNorm> {
        Ok(RmsNorm { weight: Some(ones(session, &[width])?), eps: 1e-6 })
    }

    /// Applies the norm; the shape stays.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(1, self.weight.as_ref(), self.eps)
    }
}

/// Normalises over groups of channels of each sample of `[batch, channels, ..]`.
pub struct GroupNorm {
    /// Scale `[channels]`.
    pub weight: Option<Tensor>,
    /// Shift `[channels]`.
    pub bias: Option<Tensor>,
    /// Number of groups.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// Scale 1, shift 0, eps 1e-5.
    pub fn new(session: &Session, groups: usize, channels: usize) -> Result<GroupNorm> {
        let (weight, bias) = (Some(ones(session, &[channels])?), Some(zeros(session, &[channels])?));
        Ok(GroupNorm { weight, bias, groups, eps: 1e-5 })
    }

    /// Applies the norm; the shape stays.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.group_norm(self.groups, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

/// Normalises each channel of each sample of `[batch, channels, ..]`.
pub struct InstanceNorm {
    /// Scale `[channels]`.
    pub weight: Option<Tensor>,
    /// Shift `[channels]`.
    pub bias: Option<Tensor>,
    /// Running mean and sample variance `[channels]`; if there are any, inference normalises by them.
    pub running: Option<(Tensor, Tensor)>,
    /// Added to the variance.
    pub eps: f64,
    /// Weight of a new batch in the running statistics.
    pub momentum: f64,
}

impl InstanceNorm {
    /// Scale 1, shift 0, eps 1e-5.
    pub fn new(session: &Session, channels: usize) -> Result<InstanceNorm> {
        Ok(InstanceNorm {
            weight: Some(ones(session, &[channels])?),
            bias: Some(zeros(session, &[channels])?),
            running: None,
            eps: 1e-5,
            momentum: 0.1,
        })
    }

    /// This layer with running statistics: torch's `track_running_stats`.
    pub fn tracking(mut self, session: &Session, channels: usize) -> Result<InstanceNorm> {
        self.running = Some((zeros(session, &[channels])?, ones(session, &[channels])?));
        Ok(self)
    }

    /// Normalises by the running statistics, or by each sample's own where none are kept. The shape stays.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        match &self.running {
            Some((mean, var)) => x.batch_norm(mean, var, weight, bias, self.eps),
            None => x.instance_norm(weight, bias, self.eps),
        }
    }

    /// Normalises by each sample's own statistics, and blends their means into the running ones (realize those together
    /// with the step).
    pub fn forward_train(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.instance_norm(self.weight.as_ref(), self.bias.as_ref(), self.eps)?;
        if let Some((mean, var)) = &self.running {
            let axes: Vec<i64> = (2..x.rank() as i64).collect();
            let x = x.detach();
            let blend = |running: &Tensor, new: Tensor| running.assign(running.lerp(&new, self.momentum)?);
            blend(mean, x.mean(&axes, false)?.mean(&[0], false)?)?;
            blend(var, x.var(&axes, 1, false)?.mean(&[0], false)?)?;
        }
        Ok(y)
    }
}

impl Module for InstanceNorm {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", self.weight.as_ref()), ("bias", self.bias.as_ref())]);
        if let Some((mean, var)) = &self.running {
            each(prefix, Role::Buffer, f, &[("running_mean", Some(mean)), ("running_var", Some(var))]);
        }
    }
}

impl Layer for InstanceNorm {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if mode == Mode::Train { self.forward_train(x) } else { self.forward(x) }
    }
}

impl Module for RmsNorm {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", self.weight.as_ref())]);
    }
}

impl Layer for RmsNorm {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

macro_rules! scaled_and_shifted {
    ($($layer:ident),*) => {$(
        impl Module for $layer {
            fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
                each(prefix, Role::Parameter, f, &[("weight", self.weight.as_ref()), ("bias", self.bias.as_ref())]);
            }
        }

        impl Layer for $layer {
            fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
                self.forward(x)
            }
        }
    )*};
}
scaled_and_shifted!(LayerNorm, GroupNorm);
