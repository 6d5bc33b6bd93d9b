//! Transposed convolution over any number of axes, written in one of two ways: as a convolution of the input with zeros
//! between its elements, which the compiler splits by the positions of results modulo the stride, or as one product
//! over the channels, whose results are then added where they overlap.

use super::conv::ConvOpts;
use super::pool::{per_axis, window_count};
use super::{PadMode, Tensor};
use crate::{DType, Error, Result};

/// Options of a transposed convolution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvTransposeOpts {
    /// The options of the convolution that it is the transpose of, so that padding crops the result.
    pub conv: ConvOpts,
    /// Number of elements added at the end of each axis. Default 0.
    pub output_padding: Vec<usize>,
}

/// Adding the overlapping products costs about as much for each filter tap and channel as this many float operations of
/// a product do, measured in WebAssembly.
const FLOPS_PER_ADDED_TAP: usize = 56;
/// With at most this many results for each input element, a convolution reads its input too often.
const FEW_RESULTS: usize = 16;
/// With so many filter taps that holds on every device: measured with filters of 9x9 as they enlarge pictures.
const MANY_TAPS: usize = 64;
/// The fewest input channels of a group for which a product over them pays.
const MIN_CHANNELS: usize = 32;
/// The most sums that are added for a result. They are separate terms of the graph.
const MAX_OVERLAPS: usize = 16;
/// The most elements of the products, which take several times the memory of the result.
const MAX_PRODUCTS: usize = 1 << 24;

impl Tensor {
    /// Transposed convolution: `[batch, in, n1, ..] * [in, out/groups, k1, ..] (+ [out]) -> [batch, out, o1, ..]` with
    /// `o = (n-1)*stride - before - after + dilation*(k-1) + output_padding + 1`. Errors as for [`Tensor::conv`].
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
        let (mut around, mut out) = (Vec::new(), Vec::new());
        for i in 0..d {
            let reach = (dilation[i] * (w[2 + i] - 1)) as i64;
            let (before, after) = (reach - padding[i].0, reach - padding[i].1 + extra[i] as i64);
            let size = (x[2 + i].max(1) - 1) as i64 * stride[i] as i64 + 1 + before + after;
            if size < 1 || window_count(size as usize, w[2 + i], 1, dilation[i]) == 0 {
                return Err(misfit());
            }
            around.push((before, after));
            out.push((size as usize).saturating_sub(reach as usize));
        }
        if dilation.iter().all(|&n| n == 1)
            && let Some(y) = self.conv_transpose_by_products(weight, bias, &stride, &padding, &out, groups)?
        {
            return Ok(y);
        }
        let (ci, co) = (w[0] / groups, w[1]);
        let spatial: Vec<i64> = (2..2 + d as i64).collect();
        let mut shape = vec![groups, ci, co];
        shape.extend_from_slice(&w[2..]);
        let flipped = weight.flip(&spatial)?.reshape(&shape)?.transpose(1, 2)?;
        let mut shape = vec![groups * co, ci];
        shape.extend_from_slice(&w[2..]);
        let flipped = flipped.reshape(&shape)?;
        self.conv_zero_inserted(&flipped, bias, &stride, &around, &dilation, groups)
    }

    /// [`Tensor::conv_transpose`] with the products of all filter taps computed first, at all positions of the input.
    /// There are exactly as many as the filter has taps, where the other way pads the filter to a multiple of the
    /// stride: to 16 taps in place of 9 for a filter of 3x3 and a stride of 2. `None` where that saves less than adding
    /// the overlapping products costs.
    fn conv_transpose_by_products(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: &[usize],
        padding: &[(i64, i64)],
        out: &[usize],
        groups: usize,
    ) -> Result<Option<Tensor>> {
        let (x, w, d) = (self.shape(), weight.shape(), stride.len());
        let (ci, co, kernel) = (w[0] / groups, w[1], &w[2..]);
        let (mut taps, mut overlaps, mut results, mut order) = (1usize, 1usize, 1usize, vec![0, 1]);
        for (i, (&k, &s)) in kernel.iter().zip(stride).enumerate() {
            taps = taps.saturating_mul(k);
            overlaps = overlaps.saturating_mul(k.div_ceil(s));
            results = results.saturating_mul(s);
            order.extend([(2 + d + i) as i64, (2 + i) as i64]);
        }
        let padded = overlaps.saturating_mul(results);
        let products = x[2..].iter().fold(x[0].saturating_mul(groups * co * taps), |n, &m| n.saturating_mul(m));
        // 16-bit floats would be rounded before they are added
        let exact = overlaps == 1
            || matches!((self.dtype(), weight.dtype()), (DType::F32, DType::F32) | (DType::F64, DType::F64));
        // without overlaps the products are the results
        let is_result = kernel == stride && padding.iter().all(|&p| p == (0, 0));
        let is_few = co.saturating_mul(results) <= FEW_RESULTS;
        let saves = match self.session().state().products_before_taps {
            true => {
                let saved = (2 * ci).saturating_mul(padded.saturating_sub(taps));
                is_few || saved >= padded.saturating_mul(FLOPS_PER_ADDED_TAP)
            }
            false => is_few && taps >= MANY_TAPS,
        };
        let fits = overlaps <= MAX_OVERLAPS && products <= MAX_PRODUCTS && ci >= MIN_CHANNELS;
        if x.contains(&0) || results == 1 || !exact || !(is_result || saves && fits) {
            return Ok(None);
        }
        let flat = weight.reshape(&[groups, ci, co * taps])?.transpose(1, 2)?;
        let mut point = vec![1; 2 + d];
        (point[0], point[1]) = (groups * co * taps, ci);
        let all = self.conv(&flat.reshape(&point)?, None, &ConvOpts::new().groups(groups))?;
        let mut shape = vec![x[0], groups * co];
        shape.extend(kernel);
        shape.extend(&x[2..]);
        // [b, c, n1, k1, n2, k2, ..]; each pair of axes becomes one
        let mut t = all.reshape(&shape)?.permute(&order)?;
        for (i, (&k, &s)) in kernel.iter().zip(stride).enumerate() {
            let (axis, last) = (2 + i as i64, k.div_ceil(s) - 1);
            let mut sum: Option<Tensor> = None;
            for at in 0..=last {
                // these taps go to the results of an input element so many strides later
                let part = t.narrow(axis + 1, at * s, s.min(k - at * s))?;
                let mut around = vec![(0, 0); part.rank()];
                (around[2 + i], around[3 + i]) = ((at, last - at), (0, s - s.min(k - at * s)));
                let part = part.pad_zeros(&around)?;
                sum = Some(match sum {
                    Some(sum) => sum.add(&part)?,
                    None => part,
                });
            }
            t = sum.unwrap_or(t).flatten(axis, axis + 1)?;
            let mut crop = vec![(0, 0); t.rank()];
            crop[2 + i] = (-padding[i].0, out[i] as i64 + padding[i].0 - t.shape()[2 + i] as i64);
            t = t.pad(&crop, PadMode::Constant, 0)?;
        }
        t.add_channel_bias("conv_transpose", bias).map(Some)
    }
}
