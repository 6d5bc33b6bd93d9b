//! Normalisations: layer, RMS, batch, group, instance. Variances are computed in two passes (the mean first), and `eps`
//! is added to the variance. Shapes are preserved; integers give f32.

use super::{Tensor, check_axes};
use crate::{Error, Result};

impl Tensor {
    /// `(x - mean) / sqrt(var + eps)` over `axes`, with the population variance.
    pub fn standardize(&self, axes: &[i64], eps: f64) -> Result<Tensor> {
        self.in_f32(&|x| {
            let centred = x.sub(x.mean(axes, true)?)?;
            centred.mul(centred.square()?.mean(axes, true)?.add(eps)?.rsqrt()?)
        })
    }

    /// Normalises over the last `dims` axes, then multiplies by `weight` and adds `bias`, which have the shape of those
    /// axes. `Error::Value` unless `1 <= dims <= rank`, `Error::Shape` where weight or bias do not fit.
    pub fn layer_norm(&self, dims: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let axes = self.last_axes("layer_norm", dims)?;
        self.standardize(&axes, eps)?.affine("layer_norm", weight, bias)
    }

    /// `x / sqrt(mean(x^2) + eps)` over the last `dims` axes, times `weight`. Errors as for [`Tensor::layer_norm`].
    pub fn rms_norm(&self, dims: usize, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let axes = self.last_axes("rms_norm", dims)?;
        let scaled = self.in_f32(&|x| x.mul(x.square()?.mean(&axes, true)?.add(eps)?.rsqrt()?))?;
        scaled.affine("rms_norm", weight, None)
    }

    /// Normalises `[batch, channels, ..]` by the given statistics of each channel `[channels]` (a trained model's, or
    /// those of this batch from [`Tensor::batch_stats`]), then multiplies by `weight` and adds `bias` `[channels]`.
    /// `Error::Shape` where these do not fit.
    pub fn batch_norm(
        &self,
        mean: &Tensor,
        var: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let shape = self.shape();
        let op = "batch_norm";
        let mut scale = var.add(eps)?.rsqrt()?;
        if let Some(w) = weight {
            scale = scale.mul(w)?;
        }
        let y = self.sub(mean.per_channel(op, &shape)?)?.mul(scale.per_channel(op, &shape)?)?;
        y.add_channel_bias(op, bias)
    }

    /// The mean and population variance of each channel: `[batch, channels, ..]` gives two `[channels]`. `Error::Value`
    /// for fewer than 2 axes.
    pub fn batch_stats(&self) -> Result<(Tensor, Tensor)> {
        let rank = self.rank();
        if rank < 2 {
            return Err(Error::value("batch_norm", format!("shape {:?} has no channel axis", self.shape())));
        }
        let axes: Vec<i64> = (0..rank as i64).filter(|&a| a != 1).collect();
        Ok((self.mean(&axes, false)?, self.var(&axes, 0, false)?))
    }

    /// Normalises each sample of `[batch, channels, ..]` over each of `groups` groups of channels, then multiplies by
    /// `weight` and adds `bias` `[channels]`. `Error::Value` unless the groups divide the channels.
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let shape = self.shape();
        if shape.len() < 2 || groups == 0 || shape[1] % groups != 0 {
            return Err(Error::value("group_norm", format!("{groups} groups do not divide the channels of {shape:?}")));
        }
        let inner = shape[1..].iter().product::<usize>() / groups;
        let y = self.reshape(&[shape[0], groups, inner])?.standardize(&[-1], eps)?.reshape(&shape)?;
        let y = match weight {
            Some(w) => y.mul(w.per_channel("group_norm", &shape)?)?,
            None => y,
        };
        y.add_channel_bias("group_norm", bias)
    }

    /// Normalises each channel of each sample of `[batch, channels, ..]`, then multiplies by `weight` and adds `bias`
    /// `[channels]`. `Error::Value` for fewer than 3 axes.
    pub fn instance_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let shape = self.shape();
        if shape.len() < 3 {
            return Err(Error::value("instance_norm", format!("shape {shape:?} has no axis to normalise")));
        }
        let axes: Vec<i64> = (2..shape.len() as i64).collect();
        let y = self.standardize(&axes, eps)?;
        let y = match weight {
            Some(w) => y.mul(w.per_channel("instance_norm", &shape)?)?,
            None => y,
        };
        y.add_channel_bias("instance_norm", bias)
    }

    fn last_axes(&self, op: &'static str, dims: usize) -> Result<Vec<i64>> {
        let rank = self.rank();
        if dims == 0 || dims > rank {
            return Err(Error::value(op, format!("{dims} axes of {rank}")));
        }
        check_axes(op, &(1..=dims as i64).map(|i| -i).collect::<Vec<_>>(), rank)
            .map(|axes| axes.into_iter().map(|a| a as i64).collect())
    }

    /// Multiplies by `weight` and adds `bias`, which have the shape of the last axes (`Error::Shape` otherwise).
    fn affine(&self, op: &'static str, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
        let shape = self.shape();
        let fits = |t: &Tensor| match shape.ends_with(&t.shape()) {
            true => Ok(()),
            false => Err(Error::Shape { op, lhs: shape.clone(), rhs: t.shape() }),
        };
        let mut y = self.clone();
        if let Some(w) = weight {
            fits(w)?;
            y = y.mul(w)?;
        }
        if let Some(b) = bias {
            fits(b)?;
            y = y.add(b)?;
        }
        Ok(y)
    }
}
