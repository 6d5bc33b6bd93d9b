//! Convolution layers over any number of axes.

use super::{Layer, Mode, Module, Role, bias_init, each};
use crate::tensor::{ConvOpts, ConvTransposeOpts, Session, Tensor};
use crate::{Error, Result};

/// A convolution over `kernel.len()` axes.
pub struct Conv {
    /// Weights `[out, in/groups, kernel..]`.
    pub weight: Tensor,
    /// Bias `[out]`.
    pub bias: Option<Tensor>,
    /// Stride, padding, dilation, groups.
    pub opts: ConvOpts,
}

impl Conv {
    /// A layer with torch's initial distribution. `kernel` has one size for each axis: `&[3, 3]` for images.
    /// `Error::Value` where the groups do not divide the channels, or a size is 0.
    pub fn new(session: &Session, inputs: usize, outputs: usize, kernel: &[usize], opts: ConvOpts) -> Result<Conv> {
        let shape = weight_shape("conv", outputs, inputs, kernel, opts.groups)?;
        let fan_in = shape[1..].iter().product();
        let weight = Tensor::kaiming_uniform(session, 5f64.sqrt(), &shape)?.to_storage()?;
        Ok(Conv { weight, bias: Some(bias_init(session, fan_in, &[outputs])?), opts })
    }

    /// This layer without a bias.
    pub fn without_bias(mut self) -> Conv {
        self.bias = None;
        self
    }

    /// Applies the convolution: `[batch, in, n..] -> [batch, out, o..]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.conv(&self.weight, self.bias.as_ref(), &self.opts)
    }
}

/// A transposed convolution over `kernel.len()` axes.
pub struct ConvTranspose {
    /// Weights `[in, out/groups, kernel..]`.
    pub weight: Tensor,
    /// Bias `[out]`.
    pub bias: Option<Tensor>,
    /// Stride, padding, dilation, groups, output padding.
    pub opts: ConvTransposeOpts,
}

impl ConvTranspose {
    /// A layer with torch's initial distribution. Arguments and errors as for [`Conv::new`].
    pub fn new(
        session: &Session,
        inputs: usize,
        outputs: usize,
        kernel: &[usize],
        opts: ConvTransposeOpts,
    ) -> Result<ConvTranspose> {
        let shape = weight_shape("conv_transpose", inputs, outputs, kernel, opts.conv.groups)?;
        let fan_in = shape[1..].iter().product();
        let weight = Tensor::kaiming_uniform(session, 5f64.sqrt(), &shape)?.to_storage()?;
        Ok(ConvTranspose { weight, bias: Some(bias_init(session, fan_in, &[outputs])?), opts })
    }

    /// This layer without a bias.
    pub fn without_bias(mut self) -> ConvTranspose {
        self.bias = None;
        self
    }

    /// Applies the transposed convolution: `[batch, in, n..] -> [batch, out, o..]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.conv_transpose(&self.weight, self.bias.as_ref(), &self.opts)
    }
}

/// The shape of a weight `[first, second/groups, kernel..]`.
fn weight_shape(op: &'static str, first: usize, second: usize, kernel: &[usize], groups: usize) -> Result<Vec<usize>> {
    if kernel.is_empty() || kernel.contains(&0) || groups == 0 || first % groups != 0 || second % groups != 0 {
        let what = format!("{groups} groups, channels {first} and {second}, kernel {kernel:?} do not fit");
        return Err(Error::value(op, what));
    }
    let mut shape = vec![first, second / groups];
    shape.extend_from_slice(kernel);
    Ok(shape)
}

impl Module for Conv {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight)), ("bias", self.bias.as_ref())]);
    }
}

impl Layer for Conv {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

impl Module for ConvTranspose {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight)), ("bias", self.bias.as_ref())]);
    }
}

impl Layer for ConvTranspose {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}
