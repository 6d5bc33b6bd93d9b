//! Images and feature maps: adaptive and inverse pooling, patches, pixel shuffling, sampling at computed positions,
//! pooling of boxes.

use super::pool::per_axis;
use super::{Interpolate, PadMode, ScatterOp, Tensor};
use crate::{DType, Error, Result};

/// Where a RoIAlign samples each box.
pub(crate) struct RoiGrid {
    /// Number of bins in each box: rows, columns.
    pub(crate) output: (usize, usize),
    /// Factor from box coordinates to pixels.
    pub(crate) scale: f64,
    /// Whether coordinates are shifted by half a pixel, so that integers are pixel corners.
    pub(crate) aligned: bool,
    /// Samples in each bin: rows, columns; the most, if the grid is adaptive.
    pub(crate) samples: (usize, usize),
    /// Whether each bin gets one sample for each pixel of its height and width.
    pub(crate) adaptive: bool,
}

impl RoiGrid {
    /// Start and size of boxes along an axis, in pixels.
    pub(crate) fn span(&self, lo: &Tensor, hi: &Tensor) -> Result<(Tensor, Tensor)> {
        let shift = if self.aligned { 0.5 } else { 0.0 };
        let (a, b) = (lo.mul(self.scale)?.sub(shift)?, hi.mul(self.scale)?.sub(shift)?);
        let size = b.sub(&a)?;
        Ok((a, if self.aligned { size } else { size.maximum(1)? }))
    }
}

impl Tensor {
    /// Largest element of each cell of a grid that divides the last axes into `sizes` regions (those of
    /// [`Tensor::adaptive_avg_pool`]), and its flat row-major index (i32) in these axes. `Error::Value` for sizes of 0.
    pub fn adaptive_max_pool(&self, sizes: &[usize]) -> Result<(Tensor, Tensor)> {
        let (shape, d) = (self.shape(), sizes.len());
        if d > shape.len() || sizes.contains(&0) || shape[shape.len() - d..].contains(&0) {
            return Err(Error::value("adaptive_max_pool", format!("sizes {sizes:?} for shape {shape:?}")));
        }
        let spatial = &shape[shape.len() - d..];
        // every region is gathered with the length of the longest one; shorter ones repeat their last element
        let mut flat = Tensor::zeros(self.session(), DType::I32, &[])?;
        for (i, (&n, &o)) in spatial.iter().zip(sizes).enumerate() {
            let start = |j: usize| j * n / o;
            let end = |j: usize| ((j + 1) * n).div_ceil(o);
            super::check_host(o)?;
            let k = (0..o).map(|j| end(j) - start(j)).max().unwrap_or(1);
            super::check_host(o.saturating_mul(k))?;
            let index: Vec<i32> =
                (0..o).flat_map(|j| (0..k).map(move |r| (start(j) + r).min(end(j) - 1) as i32)).collect();
            let mut own = vec![1; 2 * d];
            (own[i], own[d + i]) = (o, k);
            flat = flat.mul(n)?.add(Tensor::new(self.session(), &index, &[o, k])?.reshape(&own)?)?;
        }
        let lead = shape.len() - d;
        let count: usize = sizes.iter().product();
        let flat = flat.reshape(&[count as i64, -1])?;
        let x = self.flatten(lead as i64, -1)?;
        let best = x.index_select(-1, &flat)?.argmax(-1, false)?;
        let mut wide = shape[..lead].to_vec();
        wide.push(count);
        let index =
            flat.expand(&[&shape[..lead], &flat.shape()].concat())?.gather(-1, &best.unsqueeze(-1)?)?.reshape(&wide)?;
        let mut out = shape[..lead].to_vec();
        out.extend(sizes);
        Ok((x.gather(-1, &index)?.reshape(&out)?, index.reshape(&out)?))
    }

    /// The inverse of max pooling with indices over the last `rank` axes: each value at its index in a tensor of zeros,
    /// whose size is `size` or follows from the window. `Error::Shape` unless the indices have this tensor's shape.
    pub fn max_unpool(
        &self,
        indices: &Tensor,
        rank: usize,
        kernel: &[usize],
        stride: Option<&[usize]>,
        padding: &[usize],
        size: Option<&[usize]>,
    ) -> Result<Tensor> {
        let op = "max_unpool";
        let (shape, d) = (self.shape(), rank);
        if indices.shape() != shape || shape.len() < d {
            return Err(Error::Shape { op, lhs: shape, rhs: indices.shape() });
        }
        let lead = shape.len() - d;
        let kernel = per_axis(op, "kernel", kernel, d, 1)?;
        let stride = per_axis(op, "stride", stride.unwrap_or(&kernel), d, 1)?;
        let padding = per_axis(op, "padding", padding, d, 0)?;
        let sizes = match size {
            Some(s) if s.len() >= d => s[s.len() - d..].to_vec(),
            Some(s) => return Err(Error::value(op, format!("bad size {s:?}"))),
            None => (0..d)
                .map(|i| ((shape[lead + i].max(1) - 1) * stride[i] + kernel[i]).saturating_sub(2 * padding[i]))
                .collect(),
        };
        let n: usize = sizes.iter().product();
        let mut flat = shape[..lead].to_vec();
        flat.push(n);
        let zeros = Tensor::zeros(self.session(), self.dtype(), &flat)?;
        let (at, values) = (indices.flatten(lead as i64, -1)?, self.flatten(lead as i64, -1)?);
        let out = zeros.scatter(-1, &at, &values.detach(), ScatterOp::Set)?;
        // every value gets the gradient of the element that it was written to, even where several share an index
        let sum = zeros.scatter(-1, &at, &values, ScatterOp::Add)?;
        let out = out.add(sum.sub(sum.detach())?)?;
        let mut shape = shape[..lead].to_vec();
        shape.extend(sizes);
        out.reshape(&shape)
    }

    /// The patches of an image as columns (im2col):
    /// `[batch, channels, h, w] -> [batch, channels * kernel elements, patches]`.
    pub fn unfold(&self, kernel: &[usize], dilation: &[usize], padding: &[usize], stride: &[usize]) -> Result<Tensor> {
        let op = "unfold";
        let shape = self.want_rank(op, 4)?;
        let (k, p) = (per_axis(op, "kernel", kernel, 2, 1)?, per_axis(op, "padding", padding, 2, 0)?);
        let t = self.pad_zeros(&[(0, 0), (0, 0), (p[0], p[0]), (p[1], p[1])])?;
        let w = t.windows(&k, &per_axis(op, "stride", stride, 2, 1)?, &per_axis(op, "dilation", dilation, 2, 1)?)?;
        let places = w.shape()[2] * w.shape()[3];
        w.permute(&[0, 1, 4, 5, 2, 3])?.reshape(&[shape[0], shape[1] * k[0] * k[1], places])
    }

    /// The transpose of [`Tensor::unfold`] (col2im): sums columns back into an image `[batch, channels, h, w]` of this
    /// `size`.
    pub fn fold(
        &self,
        size: &[usize],
        kernel: &[usize],
        dilation: &[usize],
        padding: &[usize],
        stride: &[usize],
    ) -> Result<Tensor> {
        if self.rank() == 2 {
            return self.unsqueeze(0)?.fold(size, kernel, dilation, padding, stride)?.squeeze(0);
        }
        let shape = self.want_rank("fold", 3)?;
        let kernels = per_axis("fold", "kernel", kernel, 2, 1)?;
        let k = kernels.iter().try_fold(1usize, |n, &k| n.checked_mul(k)).unwrap_or(usize::MAX);
        let size = per_axis("fold", "size", size, 2, 1)?;
        if k == 0 || shape[1] % k != 0 {
            return Err(Error::value("fold", format!("{} rows are not whole patches of {k}", shape[1])));
        }
        // unfold is linear, so its transpose is the gradient of its product with the columns
        let zeros = Tensor::zeros(self.session(), self.dtype(), &[shape[0], shape[1] / k, size[0], size[1]])?;
        let image = zeros.contiguous();
        let columns = image.unfold(kernel, dilation, padding, stride)?;
        if columns.shape() != shape {
            return Err(Error::Shape { op: "fold", lhs: shape, rhs: columns.shape() });
        }
        Ok(columns.grad_from(self, &[&image])?.swap_remove(0))
    }

    /// Moves blocks of `r*r` channels to pixels (depth to space): `[.., c*r*r, h, w] -> [.., c, h*r, w*r]`.
    /// `Error::Value` unless `r*r` divides the channels.
    pub fn pixel_shuffle(&self, r: usize) -> Result<Tensor> {
        let shape = self.shape();
        let &[ref lead @ .., c, h, w] = shape.as_slice() else {
            return Err(Error::value("pixel_shuffle", format!("shape {shape:?} has no channels and two axes")));
        };
        if r.checked_mul(r).is_none_or(|square| square == 0 || c % square != 0) {
            return Err(Error::value("pixel_shuffle", format!("{c} channels by a factor of {r}")));
        }
        let n = lead.len() as i64;
        let mut order: Vec<i64> = (0..=n).collect();
        order.extend([n + 3, n + 1, n + 4, n + 2]);
        let t = self.reshape(&[lead, &[c / (r * r), r, r, h, w]].concat())?.permute(&order)?;
        t.reshape(&[lead, &[c / (r * r), h * r, w * r]].concat())
    }

    /// The inverse of [`Tensor::pixel_shuffle`]: `[.., c, h*r, w*r] -> [.., c*r*r, h, w]`.
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Tensor> {
        let shape = self.shape();
        let &[ref lead @ .., c, h, w] = shape.as_slice() else {
            return Err(Error::value("pixel_unshuffle", format!("shape {shape:?} has no channels and two axes")));
        };
        if r == 0 || h % r != 0 || w % r != 0 {
            return Err(Error::value("pixel_unshuffle", format!("{h}x{w} by a factor of {r}")));
        }
        let n = lead.len() as i64;
        let mut order: Vec<i64> = (0..=n).collect();
        order.extend([n + 2, n + 4, n + 1, n + 3]);
        let t = self.reshape(&[lead, &[c, h / r, r, w / r, r]].concat())?.permute(&order)?;
        t.reshape(&[lead, &[c * r * r, h / r, w / r]].concat())
    }

    /// Interleaves the channels of `groups` groups: `[batch, g*k, ..]` read as `[batch, g, k, ..]` and transposed to
    /// `[batch, k, g, ..]`.
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        let c = self.dim(1)?;
        if groups == 0 || c % groups != 0 {
            return Err(Error::value("channel_shuffle", format!("{c} channels in {groups} groups")));
        }
        self.unflatten(1, &[groups, c / groups])?.transpose(1, 2)?.flatten(1, 2)
    }

    /// Divides each element by `(k + alpha * m)^beta`, where `m` is the mean of the squares over `size` neighbouring
    /// channels.
    pub fn local_response_norm(&self, size: usize, alpha: f64, beta: f64, k: f64) -> Result<Tensor> {
        if size == 0 || self.rank() < 2 {
            return Err(Error::value("local_response_norm", "a size and a channel axis are needed"));
        }
        let t = self.square()?.move_axis(1, -1)?;
        let mut pad = vec![(0, 0); t.rank()];
        pad[t.rank() - 1] = (size / 2, (size - 1) / 2);
        let mean = t.pad_zeros(&pad)?.windows(&[size], &[1], &[1])?.mean(&[-1], false)?.move_axis(-1, 1)?;
        self.div(mean.mul(alpha)?.add(k)?.pow(beta)?)
    }

    /// [`Tensor::interpolate`] with torch's scale factors: where a factor is given, coordinates use it instead of the
    /// quotient of the sizes.
    pub fn interpolate_by(
        &self,
        sizes: &[usize],
        factors: Option<&[f64]>,
        how: Interpolate,
        align: bool,
    ) -> Result<Tensor> {
        let (shape, d) = (self.shape(), sizes.len());
        if d > shape.len() || sizes.contains(&0) || shape[shape.len() - d..].contains(&0) {
            return Err(Error::value("interpolate", format!("sizes {sizes:?} for shape {shape:?}")));
        }
        let mut t = self.clone();
        for (i, &out) in sizes.iter().enumerate() {
            let axis = shape.len() - d + i;
            let n = shape[axis];
            super::check_host(out)?;
            let scale = factors.and_then(|f| f.get(i)).map_or(n as f64 / out as f64, |f| 1.0 / f);
            // torch computes coordinates in f32
            let single = |o: usize, shift: f32| ((o as f32 + shift) * scale as f32) as f64;
            let at = |o: usize| match how {
                Interpolate::Nearest | Interpolate::NearestRound => single(o, 0.0),
                Interpolate::NearestExact => single(o, 0.5),
                _ if align && out > 1 => o as f64 * (n - 1) as f64 / (out - 1) as f64,
                _ if align => 0.0,
                _ => (o as f64 + 0.5) * scale - 0.5,
            };
            let clamp_low = matches!(how, Interpolate::Linear);
            t = t.resample(axis as i64, &(0..out).map(at).collect::<Vec<_>>(), how, clamp_low)?;
        }
        Ok(t)
    }

    /// The sampling grid of affine maps, for [`Tensor::grid_sample`]: `theta` `[batch, d, d+1]` and an output of `size`
    /// `[batch, channels, out..]` give positions `[batch, out.., d]`.
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        let shape = self.want_rank("affine_grid", 3)?;
        let d = shape[1];
        if shape[2] != d + 1 || size.len() != d + 2 || size[0] != shape[0] {
            return Err(Error::Shape { op: "affine_grid", lhs: shape, rhs: size.to_vec() });
        }
        let spatial = &size[2..];
        let axis = |n: usize| -> Result<Tensor> {
            let place = |i: usize| match (align_corners, n) {
                (true, 1) => 0.0,
                (true, _) => 2.0 * i as f32 / (n - 1) as f32 - 1.0,
                (false, _) => (2 * i + 1) as f32 / n as f32 - 1.0,
            };
            Tensor::new(self.session(), &(0..super::check_host(n)?).map(place).collect::<Vec<f32>>(), &[n])
        };
        let grids = Tensor::meshgrid(&spatial.iter().map(|&n| axis(n)).collect::<Result<Vec<_>>>()?, false)?;
        // x belongs to the last axis
        let mut parts: Vec<&Tensor> = grids.iter().rev().collect();
        let one = grids[0].ones_like()?;
        parts.push(&one);
        let base = Tensor::stack(&parts, -1)?.reshape(&[-1, d as i64 + 1])?.cast(self.dtype())?;
        let mut out = vec![size[0]];
        out.extend(spatial);
        out.push(d);
        base.matmul(&self.t()?)?.reshape(&out)
    }

    /// Samples `[batch, channels, ..]` at positions `[batch, out.., d]`, whose coordinates (x first) run from -1 to 1
    /// along each axis: `[batch, channels, out..]`. `mode` is `bilinear`, `nearest` or `bicubic`; `padding` says what
    /// lies outside: `zeros`, `border` or `reflection`. `Error::Value` for other names, `Error::Shape` where shapes do
    /// not fit.
    pub fn grid_sample(&self, grid: &Tensor, mode: &str, padding: &str, align_corners: bool) -> Result<Tensor> {
        let (shape, gshape) = (self.shape(), grid.shape());
        let d = shape.len().saturating_sub(2);
        if d == 0 || gshape.len() != shape.len() || gshape[d + 1] != d || gshape[0] != shape[0] {
            return Err(Error::Shape { op: "grid_sample", lhs: shape, rhs: gshape });
        }
        if !["zeros", "border", "reflection"].contains(&padding) || shape[2..].contains(&0) {
            return Err(Error::value("grid_sample", format!("padding `{padding}` for shape {shape:?}")));
        }
        let grid = grid.reshape(&[gshape[0] as i64, -1, d as i64])?;
        let spatial = &shape[2..];
        // coordinates in units of samples, in the order of the axes
        let mut at = Vec::new();
        for (i, &n) in spatial.iter().enumerate() {
            let c = grid.select_at(-1, (d - 1 - i) as i64)?;
            let half = (n as f64 - 1.0) / 2.0;
            let c = match align_corners {
                true => c.add(1)?.mul(half)?,
                false => c.add(1)?.mul(n as f64 / 2.0)?.sub(0.5)?,
            };
            // for bicubic, each of the neighbours is moved inside separately
            at.push(if mode == "bicubic" { c } else { c.inside(n, padding, align_corners)? });
        }
        let taps: Vec<Vec<(Tensor, Tensor)>> = at
            .iter()
            .map(|c| {
                let low = c.floor()?.detach();
                let f = c.sub(&low)?;
                match mode {
                    "nearest" => Ok(vec![(c.round()?.detach(), c.zeros_like()?.add(1)?)]),
                    "bilinear" => Ok(vec![(low.clone(), f.neg()?.add(1)?), (low.add(1)?, f)]),
                    "bicubic" => (-1..=2).map(|k| Ok((low.add(k)?, f.sub(k)?.cubic_weight(-0.75)?))).collect(),
                    _ => Err(Error::value("grid_sample", format!("there is no mode `{mode}`"))),
                }
            })
            .collect::<Result<_>>()?;
        let flat = self.flatten(2, -1)?;
        let (batch, channels, places) = (shape[0], shape[1], grid.shape()[1]);
        let mut sum = None::<Tensor>;
        for pick in 0..taps.iter().map(Vec::len).product::<usize>() {
            let (mut left, mut index, mut weight, mut ok) = (pick, None::<Tensor>, None::<Tensor>, None::<Tensor>);
            for (&n, taps) in spatial.iter().zip(&taps) {
                let (place, w) = &taps[left % taps.len()];
                left /= taps.len();
                let place =
                    if mode == "bicubic" { place.inside(n, padding, align_corners)?.round()? } else { place.clone() };
                let valid = place.ge(0)?.logical_and(place.le((n - 1) as f64)?)?;
                let i = place.clamp(0, n as i64 - 1)?.cast(DType::I32)?;
                index = Some(match index {
                    Some(x) => x.mul(n)?.add(&i)?,
                    None => i,
                });
                weight = Some(match weight {
                    Some(x) => x.mul(w)?,
                    None => w.clone(),
                });
                ok = Some(match ok {
                    Some(x) => x.logical_and(&valid)?,
                    None => valid,
                });
            }
            let (Some(index), Some(weight), Some(ok)) = (index, weight, ok) else { continue };
            let index = index.unsqueeze(1)?.expand(&[batch, channels, places])?;
            let value = flat.gather(2, &index)?.times_weight(&ok.select(weight, 0)?.unsqueeze(1)?)?;
            sum = Some(match sum {
                Some(s) => s.add(value)?,
                None => value,
            });
        }
        let mut out = vec![batch, channels];
        out.extend(&gshape[1..=d]);
        sum.ok_or_else(|| Error::Internal("a sample has taps".into()))?.reshape(&out)
    }

    /// The product with a weight; where the weight is zero the result is zero, even for infinities and NaN.
    fn times_weight(&self, weight: &Tensor) -> Result<Tensor> {
        // finite values are not replaced, so that a weight of zero still has a gradient
        weight.ne(0)?.logical_or(self.isfinite()?)?.select(self, 0)?.mul(weight)
    }

    /// Moves coordinates into an axis of `n` samples as the padding mode says.
    fn inside(&self, n: usize, padding: &str, align_corners: bool) -> Result<Tensor> {
        let top = (n - 1) as f64;
        match padding {
            "border" => self.clamp(0.0, top),
            "reflection" => {
                // a triangle wave between -0.5 and n-0.5, or between 0 and n-1
                let (low, span) = if align_corners { (0.0, top) } else { (-0.5, n as f64) };
                if span == 0.0 {
                    return self.mul(0);
                }
                let x = self.sub(low)?.abs()?;
                let turns = x.div(span)?.floor()?.detach();
                let extra = x.sub(turns.mul(span)?)?;
                let odd = turns.modulo(2)?.ne(0)?;
                let r = odd.select(extra.neg()?.add(span)?, extra)?.add(low)?;
                r.clamp(0.0, top)
            }
            _ => Ok(self.clone()),
        }
    }

    /// Keys' cubic convolution kernel at this distance.
    fn cubic_weight(&self, a: f64) -> Result<Tensor> {
        let x = self.abs()?;
        let near = x.mul(a + 2.0)?.sub(a + 3.0)?.mul(&x)?.mul(&x)?.add(1)?;
        let far = x.sub(5)?.mul(&x)?.add(8)?.mul(&x)?.sub(4)?.mul(a)?;
        x.le(1)?.select(near, x.lt(2)?.select(far, 0)?)
    }

    /// RoIAlign: the mean of bilinear samples in each bin of boxes `[n, 5]` (batch index, x1, y1, x2, y2) on this
    /// `[batch, channels, h, w]`: `[n, channels, rows, columns]`. `samples` is their number along each side of a bin.
    pub fn roi_align(
        &self,
        boxes: &Tensor,
        output: (usize, usize),
        scale: f64,
        samples: usize,
        aligned: bool,
    ) -> Result<Tensor> {
        let grid = RoiGrid { output, scale, aligned, samples: (samples, samples), adaptive: false };
        self.roi_pool(boxes, &grid, false)
    }

    /// [`Tensor::roi_align`] with any sampling grid; `largest` takes the largest weighted neighbour of all samples in a
    /// bin, as ONNX's mode `max` does.
    pub(crate) fn roi_pool(&self, boxes: &Tensor, grid: &RoiGrid, largest: bool) -> Result<Tensor> {
        let shape = self.want_rank("roi_align", 4)?;
        let n = boxes.want_rank("roi_align", 2)?[0];
        let (rows, columns) = grid.samples;
        if boxes.shape()[1] != 5 || rows == 0 || columns == 0 {
            return Err(Error::Shape { op: "roi_align", lhs: shape, rhs: boxes.shape() });
        }
        let column = |i: i64| boxes.select_at(1, i);
        let (h, w) = (shape[2], shape[3]);
        // sample positions and whether they are used, [n, bins * samples], and how many each bin uses, [n, 1]
        let axis = |lo: i64, hi: i64, bins: usize, samples: usize| -> Result<(Tensor, Tensor, Tensor)> {
            let (a, size) = grid.span(&column(lo)?, &column(hi)?)?;
            let (a, size) = (a.unsqueeze(1)?, size.unsqueeze(1)?);
            let count = match grid.adaptive {
                true => size.div(bins as f64)?.ceil()?.clamp(0, samples as i64)?,
                false => Tensor::full(self.session(), samples as f64, DType::F32, &[n, 1])?,
            };
            let i = Tensor::iota(self.session(), bins * samples)?;
            let (bin, k) =
                (i.floor_div(samples as i32)?.cast(DType::F32)?, i.modulo(samples as i32)?.cast(DType::F32)?);
            let part = k.add(0.5)?.unsqueeze(0)?.div(count.maximum(1)?)?;
            let at = a.add(size.div(bins as f64)?.mul(bin.unsqueeze(0)?.add(part)?)?)?;
            Ok((at, k.unsqueeze(0)?.lt(&count)?, count))
        };
        let (ys, use_y, count_y) = axis(2, 4, grid.output.0, rows)?;
        let (xs, use_x, count_x) = axis(1, 3, grid.output.1, columns)?;
        let weights = |at: &Tensor, used: &Tensor, size: usize| -> Result<(Tensor, Tensor, Tensor, Tensor)> {
            let ok = at.ge(-1)?.logical_and(at.le(size as f64)?)?.logical_and(used)?;
            let c = at.clamp(0, size as i64 - 1)?;
            let low = c.floor()?.detach();
            let f = c.sub(&low)?;
            let high = low.add(1)?.minimum(size as f64 - 1.0)?.cast(DType::I32)?;
            Ok((low.cast(DType::I32)?, high, ok.select(&f, 0)?, ok.cast(DType::F32)?))
        };
        let (y0, y1, fy, oky) = weights(&ys, &use_y, h)?;
        let (x0, x1, fx, okx) = weights(&xs, &use_x, w)?;
        let image = self.index_select(0, &column(0)?.cast(DType::I32)?)?.flatten(2, -1)?;
        let (ny, nx) = (ys.shape()[1], xs.shape()[1]);
        let sample = |y: &Tensor, x: &Tensor, wy: &Tensor, wx: &Tensor| -> Result<Tensor> {
            let index = y.unsqueeze(2)?.mul(w)?.add(x.unsqueeze(1)?)?.reshape(&[n, 1, ny * nx])?;
            let value = image.gather(2, &index.expand(&[n, shape[1], ny * nx])?)?;
            let weight = wy.unsqueeze(2)?.mul(wx.unsqueeze(1)?)?.reshape(&[n, 1, ny * nx])?;
            value.times_weight(&weight)
        };
        let (gy, gx) = (oky.sub(&fy)?, okx.sub(&fx)?);
        let parts = [
            sample(&y0, &x0, &gy, &gx)?,
            sample(&y0, &x1, &gy, &fx)?,
            sample(&y1, &x0, &fy, &gx)?,
            sample(&y1, &x1, &fy, &fx)?,
        ];
        let bins = [n, shape[1], grid.output.0, rows, grid.output.1, columns];
        let [a, b, c, d] = &parts;
        if largest {
            let used = use_y.unsqueeze(2)?.logical_and(use_x.unsqueeze(1)?)?.reshape(&[n, 1, ny * nx])?;
            let best = a.maximum(b)?.maximum(c)?.maximum(d)?;
            let best = used.select(best, f64::NEG_INFINITY)?.reshape(&bins)?.max(&[3, 5], false)?;
            // a bin without samples is empty
            return best.eq(f64::NEG_INFINITY)?.select(0, best);
        }
        let sum = a.add(b)?.add(c)?.add(d)?.reshape(&bins)?.sum(&[3, 5], false)?;
        sum.div(count_y.mul(count_x)?.maximum(1)?.reshape(&[n, 1, 1, 1])?)
    }

    /// Non-maximum suppression of boxes `[n, 4]` (x1, y1, x2, y2) by scores `[n]`: bool `[n]`, true for the boxes that
    /// are kept. The usual greedy rule: in order of falling score, a box is dropped if a kept one before it overlaps it
    /// by more than `threshold` (intersection over union). It takes `n` sequential steps.
    pub fn nms(&self, scores: &Tensor, threshold: f64) -> Result<Tensor> {
        let shape = self.want_rank("nms", 2)?;
        let n = shape[0];
        if shape[1] != 4 || scores.shape() != [n] {
            return Err(Error::Shape { op: "nms", lhs: shape, rhs: scores.shape() });
        }
        let order = scores.argsort(0, true)?;
        let b = self.index_select(0, &order)?;
        let c = |i: i64| b.select_at(1, i);
        let (x1, y1, x2, y2) = (c(0)?, c(1)?, c(2)?, c(3)?);
        let area = x2.sub(&x1)?.mul(y2.sub(&y1)?)?;
        let meet = |lo: &Tensor, hi: &Tensor| -> Result<Tensor> {
            let (l, h) = (lo.unsqueeze(1)?.maximum(lo.unsqueeze(0)?)?, hi.unsqueeze(1)?.minimum(hi.unsqueeze(0)?)?);
            h.sub(l)?.maximum(0)
        };
        let common = meet(&x1, &x2)?.mul(meet(&y1, &y2)?)?;
        let union = area.unsqueeze(1)?.add(area.unsqueeze(0)?)?.sub(&common)?;
        let place = Tensor::iota(self.session(), n)?;
        let later = place.unsqueeze(0)?.gt(place.unsqueeze(1)?)?;
        // over[i, j]: box i precedes j and overlaps it too much
        let over = common.gt(union.mul(threshold)?)?.logical_and(later)?.contiguous();
        // step i: if box i is still kept, it suppresses the later boxes that overlap it
        let mut keep = Tensor::ones(self.session(), DType::Bool, &[n])?;
        for i in 0..super::check_repetitions("nms", n)? {
            let row = over.select_at(0, i as i64)?.logical_and(keep.select_at(0, i as i64)?)?;
            keep = keep.logical_and(row.logical_not()?)?.contiguous();
        }
        // back to the given order
        let back = order.argsort(0, false)?;
        keep.index_select(0, &back)
    }

    /// [`Tensor::pad_last`] with the mode's name in torch or numpy. `Error::Value` for another name.
    pub fn pad_by_name(&self, pads: &[i64], mode: &str, value: f64) -> Result<Tensor> {
        let mode = match mode {
            "constant" => PadMode::Constant,
            "reflect" => PadMode::Reflect,
            "replicate" | "edge" => PadMode::Replicate,
            "circular" | "wrap" => PadMode::Circular,
            _ => return Err(Error::value("pad", format!("there is no mode `{mode}`"))),
        };
        self.pad_last(pads, mode, value)
    }
}
