//! Convolution of any rank, and its transpose. A convolution is windows times weights under one sum; the compiler sees a
//! single reduction and materialises no windows.

use super::pool::{per_axis, window_count};
use super::{PadMode, Tensor};
use crate::{Error, Result};

/// How a convolution moves. Lists may be empty (the default), of one number for all axes, or one each.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvOpts {
    /// Steps between windows. Default 1.
    pub stride: Vec<usize>,
    /// Steps inside a window. Default 1.
    pub dilation: Vec<usize>,
    /// Zero padding `(before, after)` per axis; negative crops. Default none.
    pub padding: Vec<(i64, i64)>,
    /// Groups of channels that do not mix.
    pub groups: usize,
}

impl Default for ConvOpts {
    fn default() -> Self {
        ConvOpts { stride: Vec::new(), dilation: Vec::new(), padding: Vec::new(), groups: 1 }
    }
}

impl ConvOpts {
    /// Stride 1, no padding, one group.
    pub fn new() -> ConvOpts {
        ConvOpts::default()
    }

    /// With these strides.
    pub fn stride(mut self, stride: &[usize]) -> ConvOpts {
        self.stride = stride.to_vec();
        self
    }

    /// With these dilations.
    pub fn dilation(mut self, dilation: &[usize]) -> ConvOpts {
        self.dilation = dilation.to_vec();
        self
    }

    /// With this padding on both sides of each axis.
    pub fn padding(mut self, padding: &[usize]) -> ConvOpts {
        self.padding = padding.iter().map(|&p| (p as i64, p as i64)).collect();
        self
    }

    /// With this many groups.
    pub fn groups(mut self, groups: usize) -> ConvOpts {
        self.groups = groups;
        self
    }
}

/// How a transposed convolution moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvTransposeOpts {
    /// As the forward convolution's: here padding crops the result.
    pub conv: ConvOpts,
    /// Extra size at the end of each axis. Default 0.
    pub output_padding: Vec<usize>,
}

impl Tensor {
    /// `[batch, in, n1, ..] * [out, in/groups, k1, ..] (+ [out]) -> [batch, out, o1, ..]`, any number of axes; this is
    /// correlation, as in every framework (the kernel is not flipped).
    pub fn conv(&self, weight: &Tensor, bias: Option<&Tensor>, opts: &ConvOpts) -> Result<Tensor> {
        let (x, w) = (self.shape(), weight.shape());
        let misfit = || Error::Shape { op: "conv", lhs: x.clone(), rhs: w.clone() };
        Tensor::same_session("conv", self, weight)?;
        let groups = opts.groups;
        if x.len() < 3 || w.len() != x.len() || groups == 0 || x[1] != w[1] * groups || w[0] % groups != 0 {
            return Err(misfit());
        }
        let d = x.len() - 2;
        let kernel = &w[2..];
        let stride = per_axis("conv", "stride", &opts.stride, d, 1)?;
        let dilation = per_axis("conv", "dilation", &opts.dilation, d, 1)?;
        let padding = per_axis("conv", "padding", &opts.padding, d, (0, 0))?;
        let dtype = self.dtype().promote(weight.dtype());
        let mut pairs = vec![(0, 0), (0, 0)];
        pairs.extend_from_slice(&padding);
        let wide = |t: &Tensor| t.cast(dtype)?.cast(dtype.product_dtype());
        let padded = wide(self)?.pad(&pairs, PadMode::Constant, 0)?;
        // [b, g*ci, o.., k..]
        let win = padded.windows(kernel, &stride, &dilation)?;
        let out: Vec<usize> = win.shape()[2..2 + d].to_vec();
        let (batch, ci, co) = (x[0], w[1], w[0] / groups);
        // [b, g, 1, o.., ci, k..] x [1, g, co, 1.., ci, k..]
        let mut shape = vec![batch, groups, ci];
        shape.extend_from_slice(&win.shape()[2..]);
        let mut order: Vec<i64> = vec![0, 1];
        order.extend((0..d).map(|i| 3 + i as i64));
        order.push(2);
        order.extend((0..d).map(|i| (3 + d + i) as i64));
        let win = win.reshape(&shape)?.permute(&order)?.unsqueeze(2)?;
        let mut wshape = vec![1, groups, co];
        wshape.extend(std::iter::repeat_n(1, d));
        wshape.push(ci);
        wshape.extend_from_slice(kernel);
        let weight = wide(weight)?.reshape(&wshape)?;
        let axes: Vec<i64> = (1..=d as i64 + 1).map(|i| -i).collect();
        let mut result = vec![batch, groups * co];
        result.extend_from_slice(&out);
        let y = win.mul(weight)?.sum(&axes, false)?.reshape(&result)?.cast(dtype.sum_dtype())?;
        y.add_channel_bias("conv", bias)
    }

    /// Transposed convolution: `[batch, in, n1, ..] * [in, out/groups, k1, ..] (+ [out]) -> [batch, out, o1, ..]` with
    /// `o = (n-1)*stride - before - after + dilation*(k-1) + output_padding + 1`.
    pub fn conv_transpose(&self, weight: &Tensor, bias: Option<&Tensor>, opts: &ConvTransposeOpts) -> Result<Tensor> {
        let (x, w) = (self.shape(), weight.shape());
        let misfit = || Error::Shape { op: "conv_transpose", lhs: x.clone(), rhs: w.clone() };
        Tensor::same_session("conv_transpose", self, weight)?;
        let groups = opts.conv.groups;
        if x.len() < 3 || w.len() != x.len() || groups == 0 || x[1] != w[0] || w[0] % groups != 0 || w.contains(&0) {
            return Err(misfit());
        }
        let d = x.len() - 2;
        let op = "conv_transpose";
        let stride = per_axis(op, "stride", &opts.conv.stride, d, 1)?;
        let dilation = per_axis(op, "dilation", &opts.conv.dilation, d, 1)?;
        let padding = per_axis(op, "padding", &opts.conv.padding, d, (0, 0))?;
        let extra = per_axis(op, "output_padding", &opts.output_padding, d, 0)?;
        if stride.contains(&0) || dilation.contains(&0) {
            return Err(Error::value(op, "stride and dilation must be positive"));
        }
        let (ci, co) = (w[0] / groups, w[1]);
        let spatial: Vec<i64> = (2..2 + d as i64).collect();
        let mut shape = vec![groups, ci, co];
        shape.extend_from_slice(&w[2..]);
        let flipped = weight.flip(&spatial)?.reshape(&shape)?.transpose(1, 2)?;
        let mut shape = vec![groups * co, ci];
        shape.extend_from_slice(&w[2..]);
        let flipped = flipped.reshape(&shape)?;
        let mut conv = ConvOpts { stride: vec![1; d], dilation: dilation.clone(), padding: Vec::new(), groups };
        // zeros between the elements, then a plain convolution with the flipped kernel; a border before that may be stored, which pays
        // where each result has taps of its own number
        let mut borders = vec![(0, 0); 2];
        for i in 0..d {
            let (n, s, k) = (x[2 + i], stride[i], w[2 + i]);
            let reach = (dilation[i] * (k - 1)) as i64;
            let (before, after) = (reach - padding[i].0, reach - padding[i].1 + extra[i] as i64);
            let size = (n.max(1) - 1) as i64 * s as i64 + 1 + before + after;
            if size < 1 || window_count(size as usize, k, 1, dilation[i]) == 0 {
                return Err(misfit());
            }
            let border = |p: i64| if k % s == 0 || n == 0 { 0 } else { (p.max(0) as usize).div_ceil(s) };
            let (b, a) = (border(before), border(after));
            borders.push((b, a));
            conv.padding.push((before - (b * s) as i64, after - (a * s) as i64));
        }
        let mut t = self.pad_zeros(&borders)?;
        for (i, &s) in stride.iter().enumerate().filter(|(i, s)| **s > 1 && x[2 + i] > 0) {
            let axis = 2 + i as i64;
            let (n, mut u) = (t.shape()[2 + i], t.unsqueeze(axis + 1)?);
            let mut pad = vec![(0, 0); u.rank()];
            pad[3 + i].1 = s - 1;
            u = u.pad_zeros(&pad)?;
            t = u.flatten(axis, axis + 1)?.narrow(axis, 0, (n - 1) * s + 1)?;
        }
        t.conv(&flipped, bias, &conv)
    }

    /// Adds `bias` `[channels]` along axis 1.
    pub(crate) fn add_channel_bias(&self, op: &'static str, bias: Option<&Tensor>) -> Result<Tensor> {
        let Some(bias) = bias else { return Ok(self.clone()) };
        self.add(bias.per_channel(op, &self.shape())?)
    }

    /// A `[channels]` vector shaped to broadcast along axis 1 of `shape`.
    pub(crate) fn per_channel(&self, op: &'static str, shape: &[usize]) -> Result<Tensor> {
        let own = self.shape();
        if own.len() != 1 || shape.len() < 2 || own[0] != shape[1] {
            return Err(Error::Shape { op, lhs: shape.to_vec(), rhs: own });
        }
        let mut out = vec![1; shape.len()];
        out[1] = own[0];
        self.reshape(&out)
    }
}
