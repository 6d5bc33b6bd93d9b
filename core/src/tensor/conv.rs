//! Convolution over any number of axes. A convolution is windows of the input times the weights
//! under one sum; the compiler sees a single reduction and materialises no windows.

use super::pool::per_axis;
use super::{PadMode, Tensor};
use crate::uop::{Arg, Graph, Op, UOp};
use crate::{DType, Error, Result};

/// Options of a convolution. A list may be empty (the default), or have one number for all axes or one for each axis.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvOpts {
    /// Distance between neighbouring windows. Default 1.
    pub stride: Vec<usize>,
    /// Distance between neighbouring elements of a window. Default 1.
    pub dilation: Vec<usize>,
    /// Zero padding `(before, after)` for each axis; negative numbers crop. Default none.
    pub padding: Vec<(i64, i64)>,
    /// Number of groups of channels; an output channel depends on the input channels of its group only. Default 1.
    pub groups: usize,
}

impl Default for ConvOpts {
    fn default() -> Self {
        ConvOpts { stride: Vec::new(), dilation: Vec::new(), padding: Vec::new(), groups: 1 }
    }
}

impl ConvOpts {
    /// The default options: stride 1, no padding, one group.
    pub fn new() -> ConvOpts {
        ConvOpts::default()
    }

    /// Sets the strides.
    pub fn stride(mut self, stride: &[usize]) -> ConvOpts {
        self.stride = stride.to_vec();
        self
    }

    /// Sets the dilations.
    pub fn dilation(mut self, dilation: &[usize]) -> ConvOpts {
        self.dilation = dilation.to_vec();
        self
    }

    /// Sets the same padding on both sides of each axis.
    pub fn padding(mut self, padding: &[usize]) -> ConvOpts {
        self.padding = padding.iter().map(|&p| (p as i64, p as i64)).collect();
        self
    }

    /// Sets the number of groups.
    pub fn groups(mut self, groups: usize) -> ConvOpts {
        self.groups = groups;
        self
    }
}

/// [`Tensor::conv_of_upsampled`] replaces a filter of size `k` along each axis by one of size `k + s - 1` made of sums
/// of weights, where `s` is the number of repetitions. It does so only while there are at most this many times as many
/// sums as weights.
const MAX_WEIGHT_GROWTH: usize = 4;

impl Tensor {
    /// Convolution over any number of axes:
    /// `[batch, in, n1, ..] * [out, in/groups, k1, ..] (+ [out]) -> [batch, out, o1, ..]`. As in every framework it is
    /// a correlation: the filter is not flipped. Dtypes promote; 16-bit floats are multiplied in f32. `Error::Shape`
    /// where the shapes do not fit, `Error::Value` where a window does not fit the padded input.
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

    /// The convolution, with weights `[out, in/groups, k1, ..]` and stride 1, of this tensor with `stride - 1` zeros
    /// inserted between its elements and `around` zeros (before, after) at the ends of each axis.
    pub(super) fn conv_zero_inserted(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: &[usize],
        around: &[(i64, i64)],
        dilation: &[usize],
        groups: usize,
    ) -> Result<Tensor> {
        let (x, kernel) = (self.shape(), weight.shape());
        let mut conv = ConvOpts { dilation: dilation.to_vec(), groups, ..ConvOpts::default() };
        // padding that is added before the zeros are inserted may be stored with the image, which pays where the
        // positions of the result modulo the stride have different numbers of filter taps (the filter's size is not a
        // multiple of the stride)
        let mut borders = vec![(0, 0); 2];
        for (i, (&s, &(before, after))) in stride.iter().zip(around).enumerate() {
            let none = kernel[2 + i].is_multiple_of(s) || x[2 + i] == 0;
            let border = |p: i64| if none { 0 } else { (p.max(0) as usize).div_ceil(s) };
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
        t.conv(weight, bias, &conv)
    }

    /// [`Tensor::conv`] without bias for an input whose elements are repeated, as nearest upsampling does: the
    /// convolution of the image before the repetition. Neighbours that are copies of one element share one weight, the
    /// sum of theirs, so that a 3x3 convolution after a factor of 2 has 4 products for each result instead of 9. It
    /// pays where the weights are constants, whose sums are computed once. `None` where nothing is repeated, or where
    /// the options or dtypes do not allow it.
    pub(crate) fn conv_of_upsampled(&self, weight: &Tensor, opts: &ConvOpts) -> Result<Option<Tensor>> {
        let (x, w, dtype) = (self.shape(), weight.shape(), self.dtype());
        let plain = |list: &[usize]| list.iter().all(|&n| n == 1);
        let fits = x.len() > 2 && w.len() == x.len() && opts.groups > 0 && x[1] == w[1] * opts.groups;
        // in 16-bit floats the sums of weights would be rounded
        let wide = matches!(dtype, DType::F32 | DType::F64) && weight.dtype() == dtype;
        if !fits || !wide || !plain(&opts.stride) || !plain(&opts.dilation) || x.contains(&0) {
            return Ok(None);
        }
        let (all, crop) = self.crop_source();
        let (image, times) = all.repeat_source();
        let (spatial, kernel) = (&times[2..], &w[2..]);
        let larger: usize = spatial.iter().zip(kernel).map(|(s, k)| k + s - 1).product();
        if plain(spatial)
            || !plain(&times[..2])
            || crop[..2].iter().any(|&c| c != (0, 0))
            || spatial.iter().zip(kernel).any(|(&s, &k)| s > 1 && k == 1)
            || larger > MAX_WEIGHT_GROWTH * kernel.iter().product::<usize>()
        {
            return Ok(None);
        }
        let padding = per_axis("conv", "padding", &opts.padding, spatial.len(), (0, 0))?;
        let (mut around, mut sums) = (Vec::new(), weight.clone());
        for (axis, (&s, &k)) in times.iter().zip(&w).enumerate().skip(2) {
            let ((before, after), (first, last)) = (padding[axis - 2], crop[axis]);
            // padding would have to replace repeated elements that a crop removed, but the image before the crop still
            // has them
            let covers = before > 0 && first > 0 || after > 0 && last > 0;
            if covers || x[axis] as i64 + before + after < k as i64 {
                return Ok(None);
            }
            let mut pad = vec![(0, 0); x.len()];
            pad[axis] = (s - 1, s - 1);
            let wide = sums.pad_zeros(&pad)?;
            sums = wide.narrow(axis as i64, 0, k + s - 1)?;
            for r in 1..s {
                sums = sums.add(&wide.narrow(axis as i64, r, k + s - 1)?)?;
            }
            around.push((before - first + s as i64 - 1, after - last + s as i64 - 1));
        }
        let dilation = vec![1; spatial.len()];
        image.conv_zero_inserted(&sums, None, spatial, &around, &dilation, opts.groups).map(Some)
    }

    /// The tensor that this one is cropped from, and how many elements the crop removes `(before, after)` along each
    /// axis.
    fn crop_source(&self) -> (Tensor, Vec<(i64, i64)>) {
        let mut crop = vec![(0, 0); self.rank()];
        let all = self.map(|g, mut u| {
            while let (Op::Shrink, Arg::Pairs(kept)) = (g.op(u), g.arg(u)) {
                let before = g.src_at(u, 0);
                for ((c, kept), &n) in crop.iter_mut().zip(kept).zip(g.shape(before)) {
                    *c = (c.0 + kept.0 as i64, c.1 + (n - kept.1) as i64);
                }
                u = before;
            }
            u
        });
        (all, crop)
    }

    /// The tensor whose elements this one repeats, and how often along each axis.
    pub(crate) fn repeat_source(&self) -> (Tensor, Vec<usize>) {
        let mut shape = self.shape();
        let mut times = vec![1; shape.len()];
        let image = self.map(|g, mut u| {
            while let Some((before, more)) = repetition(g, u, &shape) {
                for (axis, n) in more.into_iter().enumerate() {
                    (times[axis], shape[axis]) = (times[axis] * n, shape[axis] / n);
                }
                u = g.reshape(before, &shape);
            }
            u
        });
        (image, times)
    }

    /// Adds a bias `[channels]` along axis 1.
    pub(crate) fn add_channel_bias(&self, op: &'static str, bias: Option<&Tensor>) -> Result<Tensor> {
        let Some(bias) = bias else { return Ok(self.clone()) };
        self.add(bias.per_channel(op, &self.shape())?)
    }

    /// This vector `[channels]` reshaped to broadcast along axis 1 of `shape`.
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

/// If `u`, read with this shape, repeats each element of another value: that value, and how often along each of its
/// axes.
fn repetition(g: &Graph, u: UOp, shape: &[usize]) -> Option<(UOp, Vec<usize>)> {
    let mut wide = u;
    while g.op(wide) == Op::Reshape {
        wide = g.src_at(wide, 0);
    }
    let narrow = (g.op(wide) == Op::Expand).then(|| g.src_at(wide, 0))?;
    let (mut joined, mut times) = (Vec::new(), Vec::new());
    for (&n, &before) in g.shape(wide).iter().zip(g.shape(narrow)) {
        if n == before {
            joined.push(n);
            times.push(1);
        } else {
            *joined.last_mut()? *= n;
            *times.last_mut()? *= n;
        }
    }
    (joined == shape && !times.contains(&0)).then_some((narrow, times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Session;

    #[test]
    fn repetitions_are_found_however_they_are_written() {
        let x = Tensor::new(&Session::new(), &[0.5f32; 24], &[2, 3, 4]).unwrap();
        let at_once =
            x.reshape(&[2, 3, 1, 4, 1]).unwrap().expand(&[2, 3, 5, 4, 2]).unwrap().reshape(&[2, 15, 8]).unwrap();
        let in_turn = x.repeat_interleave(2, 2).unwrap().repeat_interleave(5, 1).unwrap();
        for y in [at_once, in_turn] {
            let (image, times) = y.repeat_source();
            assert_eq!((image.shape(), times), (vec![2, 3, 4], vec![1, 5, 2]));
        }
        // the whole tensor is repeated, not each of its elements
        let whole = x.reshape(&[2, 1, 3, 4]).unwrap().expand(&[2, 2, 3, 4]).unwrap().reshape(&[2, 6, 4]).unwrap();
        assert_eq!(whole.repeat_source().1, [1, 1, 1]);
        assert_eq!(x.expand(&[2, 3, 4]).unwrap().repeat_source().1, [1, 1, 1]);
    }
}
