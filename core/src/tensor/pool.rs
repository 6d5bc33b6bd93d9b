//! Sliding windows, and max and average pooling over any number of axes.
//!
//! Windows are pure views. For a window of size `k`, stride `s`, dilation `d` and `o` windows, an axis of size `n` is
//! repeated, cropped to `k` rows of `n*f + d` elements (`f` such that a row has at least `o*s`) and reshaped, so that
//! row `j` is the axis shifted by `j*d`; then every `s`-th column is kept. Index simplification turns this into the
//! load `x[o*s + j*d]`.

use super::{Tensor, check_numel};
use crate::{DType, Error, Result};

/// The windows over the last axes. A list may be empty (the default), or have one number for all axes or one for each
/// axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolOpts {
    /// Size of the window along each axis. Required.
    pub kernel: Vec<usize>,
    /// Distance between neighbouring windows. Default: the window's size.
    pub stride: Vec<usize>,
    /// Distance between neighbouring elements of a window. Default 1.
    pub dilation: Vec<usize>,
    /// Padding `(before, after)` of each axis. Default none.
    pub padding: Vec<(usize, usize)>,
    /// Whether a last window that extends beyond the end is kept (unless it starts in the padding).
    pub ceil_mode: bool,
    /// Whether average pooling counts padded zeros as elements.
    pub count_include_pad: bool,
}

impl PoolOpts {
    /// Windows of size `kernel` that touch but do not overlap.
    pub fn new(kernel: &[usize]) -> PoolOpts {
        PoolOpts { kernel: kernel.to_vec(), ..PoolOpts::default() }
    }

    /// Sets the strides.
    pub fn stride(mut self, stride: &[usize]) -> PoolOpts {
        self.stride = stride.to_vec();
        self
    }

    /// Sets the same padding on both sides of each axis.
    pub fn padding(mut self, padding: &[usize]) -> PoolOpts {
        self.padding = padding.iter().map(|&p| (p, p)).collect();
        self
    }
}

/// An option's list as one number for each of `rank` axes; `Error::Value` for another length.
pub(crate) fn per_axis<T: Copy>(op: &'static str, what: &str, list: &[T], rank: usize, default: T) -> Result<Vec<T>> {
    match list {
        [] => Ok(vec![default; rank]),
        &[one] => Ok(vec![one; rank]),
        many if many.len() == rank => Ok(many.to_vec()),
        many => Err(Error::value(op, format!("{} numbers of {what} for {rank} axes", many.len()))),
    }
}

/// The number of windows that fit an axis: `(size - dilation*(kernel-1) - 1) / stride + 1`; 0 if none does.
pub(crate) fn window_count(size: usize, kernel: usize, stride: usize, dilation: usize) -> usize {
    let reach = dilation * (kernel - 1) + 1;
    if size < reach { 0 } else { (size - reach) / stride + 1 }
}

impl Tensor {
    /// Windows over the last `kernel.len()` axes: `[.., n1, n2] -> [.., o1, o2, k1, k2]`. `Error::Value` where no
    /// window fits.
    pub fn windows(&self, kernel: &[usize], stride: &[usize], dilation: &[usize]) -> Result<Tensor> {
        let shape = self.shape();
        let d = kernel.len();
        if d > shape.len() {
            return Err(Error::value("windows", format!("{d} window axes for shape {shape:?}")));
        }
        let stride = per_axis("windows", "stride", stride, d, 1)?;
        let dilation = per_axis("windows", "dilation", dilation, d, 1)?;
        if kernel.iter().chain(&stride).chain(&dilation).any(|&v| v == 0 || v > u32::MAX as usize) {
            return Err(Error::value("windows", "kernel, stride and dilation must be positive"));
        }
        let lead = shape.len() - d;
        let mut t = self.clone();
        for i in 0..d {
            let n = shape[lead + i];
            let count = window_count(n, kernel[i], stride[i], dilation[i]);
            if count == 0 {
                let what = format!("a window of {} by {} does not fit axis of size {n}", kernel[i], dilation[i]);
                return Err(Error::value("windows", what));
            }
            // each axis of window elements moves to the end, behind those of the axes before
            t = t
                .windows_axis(lead + i, kernel[i], stride[i], dilation[i], count)?
                .move_axis((lead + i + 1) as i64, -1)?;
        }
        Ok(t)
    }

    /// Windows of one axis: `[.., n, ..] -> [.., o, k, ..]`, see the head of this file.
    fn windows_axis(&self, axis: usize, k: usize, s: usize, d: usize, o: usize) -> Result<Tensor> {
        let shape = self.shape();
        let n = shape[axis];
        let whole = |t: &Tensor| -> Vec<(usize, usize)> { t.shape().iter().map(|&n| (0, n)).collect() };
        let a = axis as i64;
        if k == 1 {
            let t = self.narrow(a, 0, (o - 1) * s + 1)?.stride_axis(axis, s)?;
            return t.unsqueeze(a + 1);
        }
        if k <= s && d == 1 {
            // windows that do not overlap: pad or crop to whole strides, split, keep the first k of each
            let mut pad = vec![(0, 0); shape.len()];
            pad[axis].1 = (o * s).saturating_sub(n);
            let t = self.pad_zeros(&pad)?.narrow(a, 0, o * s)?.unflatten(a, &[o, s])?;
            let mut keep = whole(&t);
            keep[axis + 1] = (0, k);
            return t.shrink(&keep);
        }
        // f: rows of n*f + d elements have at least o*s columns
        let f = (o * s).saturating_sub(d).div_ceil(n).max(1);
        let row = n * f + d;
        let times = (k * row).div_ceil(n);
        let mut counts = vec![1; shape.len()];
        counts[axis] = times;
        let mut check = shape.clone();
        check[axis] = n.checked_mul(times).ok_or_else(|| Error::value("windows", "a size overflows"))?;
        check_numel("windows", &check)?;
        let t = self.repeat(&counts)?.narrow(a, 0, k * row)?.unflatten(a, &[k, row])?;
        let mut t = t.narrow(a + 1, 0, (o * s).min(row))?;
        if s > 1 {
            t = t.unflatten(a + 1, &[o, s])?.narrow(a + 2, 0, 1)?.squeeze(a + 2)?;
        }
        t.transpose(a, a + 1)
    }

    /// The windows of a pooling operation over the tensor padded with `fill`, and the padding that was applied, which
    /// includes what `ceil_mode` adds.
    pub(crate) fn pool_windows(
        &self,
        op: &'static str,
        o: &PoolOpts,
        fill: f64,
    ) -> Result<(Tensor, Vec<(usize, usize)>)> {
        let shape = self.shape();
        let d = o.kernel.len();
        if d == 0 || d > shape.len() || o.kernel.contains(&0) {
            return Err(Error::value(op, format!("kernel {:?} for shape {shape:?}", o.kernel)));
        }
        let stride = if o.stride.is_empty() { o.kernel.clone() } else { per_axis(op, "stride", &o.stride, d, 1)? };
        let dilation = per_axis(op, "dilation", &o.dilation, d, 1)?;
        let mut padding = per_axis(op, "padding", &o.padding, d, (0, 0))?;
        if stride.contains(&0) || dilation.contains(&0) {
            return Err(Error::value(op, "stride and dilation must be positive"));
        }
        let lead = shape.len() - d;
        for i in 0..d {
            let n = shape[lead + i].saturating_add(padding[i].0).saturating_add(padding[i].1);
            let reach = dilation[i].saturating_mul(o.kernel[i] - 1).saturating_add(1);
            if n < reach {
                let what = format!("a window of {reach} does not fit axis of size {n} (shape {shape:?})");
                return Err(Error::value(op, what));
            }
            if o.ceil_mode && (n - reach) % stride[i] != 0 {
                let start = ((n - reach) / stride[i] + 1) * stride[i];
                // as torch: a window that would start beyond the data and the padding before it is dropped
                if start < shape[lead + i] + padding[i].0 {
                    padding[i].1 += start + reach - n;
                }
            }
        }
        let mut pairs = vec![(0, 0); lead];
        pairs.extend(padding.iter().map(|&(a, b)| (a as i64, b as i64)));
        let t = self.pad(&pairs, super::PadMode::Constant, fill)?;
        Ok((t.windows(&o.kernel, &stride, &dilation)?, padding))
    }

    /// Largest element of each window over the last `kernel.len()` axes: `[.., n1, ..] -> [.., o1, ..]`; NaN if a
    /// window has one.
    pub fn max_pool(&self, opts: &PoolOpts) -> Result<Tensor> {
        match self.separable_passes(opts) {
            Some(axes) => axes.iter().try_fold(self.clone(), |t, o| t.max_pool_at_once(o)),
            None => self.max_pool_at_once(opts),
        }
    }

    fn max_pool_at_once(&self, opts: &PoolOpts) -> Result<Tensor> {
        let lowest = match self.dtype().int_range() {
            Some((lo, _)) => lo as f64,
            None => f64::NEG_INFINITY,
        };
        let (w, _) = self.pool_windows("max_pool", opts, lowest)?;
        let axes: Vec<i64> = (1..=opts.kernel.len() as i64).map(|i| -i).collect();
        w.max(&axes, false)
    }

    /// The same pooling as one pass for each axis, if that costs less than whole windows: the maximum of maxima is the
    /// maximum of all, and the same holds for sums. The last axis comes last: its stride makes a vector's loads
    /// non-contiguous, and when the other axes are reduced already there are fewer of them.
    fn separable_passes(&self, o: &PoolOpts) -> Option<Vec<PoolOpts>> {
        /// Cost of storing an intermediate element and loading it again, relative to loading one element of a window.
        const MATERIALISE_COST: usize = 2;
        /// Cost of loading an element where a vector's lanes are not contiguous (a stride along the last axis),
        /// relative to a contiguous load.
        const STRIDED_LOAD_COST: usize = 4;
        let (shape, d) = (self.shape(), o.kernel.len());
        let lead = shape.len().checked_sub(d)?;
        let list = |list: &[usize]| per_axis("max_pool", "an option", list, d, 1).ok();
        let stride = if o.stride.is_empty() { o.kernel.clone() } else { list(&o.stride)? };
        let (dilation, padding) = (list(&o.dilation)?, per_axis("max_pool", "padding", &o.padding, d, (0, 0)).ok()?);
        if d < 2 || o.kernel.iter().chain(&stride).chain(&dilation).any(|&v| v == 0 || v > 1 << 16) {
            return None;
        }
        let size = |i: usize| shape[lead + i].saturating_add(padding[i].0).saturating_add(padding[i].1);
        let counts: Vec<usize> = (0..d).map(|i| window_count(size(i), o.kernel[i], stride[i], dilation[i])).collect();
        let product = |list: &[usize]| list.iter().fold(1usize, |n, &x| n.saturating_mul(x));
        // only a stride along the last axis makes lanes non-contiguous, and not where there is a single window along it
        let load = if stride[d - 1] > 1 && counts[d - 1] > 1 { STRIDED_LOAD_COST } else { 1 };
        let whole = product(&counts).saturating_mul(product(&o.kernel)).saturating_mul(load);
        let of_axis = |i: usize| product(&counts[..=i]).saturating_mul(product(&shape[lead + i + 1..]));
        let of_one = |i: usize| o.kernel[i].saturating_mul(if i == d - 1 { load } else { 1 }) + MATERIALISE_COST;
        let apart = (0..d).fold(0usize, |n, i| n.saturating_add(of_axis(i).saturating_mul(of_one(i))));
        let one = |i: usize| PoolOpts {
            kernel: (0..d).map(|j| if i == j { o.kernel[j] } else { 1 }).collect(),
            stride: (0..d).map(|j| if i == j { stride[j] } else { 1 }).collect(),
            dilation: (0..d).map(|j| if i == j { dilation[j] } else { 1 }).collect(),
            padding: (0..d).map(|j| if i == j { padding[j] } else { (0, 0) }).collect(),
            ..o.clone()
        };
        (whole > apart).then(|| (0..d).map(one).collect())
    }

    /// Largest element of each window, and its flat row-major index (i32) in the pooled axes of the input; the first
    /// one of equals.
    pub fn max_pool_with_indices(&self, opts: &PoolOpts) -> Result<(Tensor, Tensor)> {
        let shape = self.shape();
        let values = self.max_pool(opts)?;
        let d = opts.kernel.len();
        let spatial = &shape[shape.len() - d..];
        let n: usize = spatial.iter().product();
        let lowest = self.dtype().int_range().map_or(f64::NEG_INFINITY, |(lo, _)| lo as f64);
        let (w, _) = self.pool_windows("max_pool", opts, lowest)?;
        let index = Tensor::iota(self.session(), n)?.reshape(spatial)?;
        // index n marks padding, which must never be chosen
        let (index, _) = index.sub(n as i32)?.pool_windows("max_pool", opts, 0.0)?;
        let index = index.add(n as i32)?;
        let mut best_shape = values.shape();
        best_shape.extend(std::iter::repeat_n(1, d));
        let best = values.reshape(&best_shape)?;
        let mut hit = w.eq(best)?;
        if self.dtype().is_float() {
            hit = hit.logical_or(w.isnan()?)?;
        }
        let axes: Vec<i64> = (1..=d as i64).map(|i| -i).collect();
        Ok((values, hit.select(index, n as i32)?.min(&axes, false)?))
    }

    /// Sum of each window over the last `kernel.len()` axes, zeros outside of the tensor, and the padding that was
    /// applied (see [`Tensor::pool_windows`]).
    pub(crate) fn window_sums(&self, op: &'static str, opts: &PoolOpts) -> Result<(Tensor, Vec<(usize, usize)>)> {
        let at_once = |t: &Tensor, opts: &PoolOpts| -> Result<(Tensor, Vec<(usize, usize)>)> {
            let (w, padding) = t.pool_windows(op, opts, 0.0)?;
            let axes: Vec<i64> = (1..=opts.kernel.len() as i64).map(|i| -i).collect();
            Ok((w.sum(&axes, false)?, padding))
        };
        let Some(axes) = self.separable_passes(opts) else { return at_once(self, opts) };
        let (mut t, mut padding) = (self.clone(), vec![(0, 0); opts.kernel.len()]);
        for (i, o) in axes.iter().enumerate() {
            let (sum, of_axis) = at_once(&t, o)?;
            // stored, because the scheduler would merge a sum of sums into one sum
            t = if i + 1 < axes.len() { sum.contiguous() } else { sum };
            padding.iter_mut().zip(of_axis).for_each(|(all, p)| *all = (all.0 + p.0, all.1 + p.1));
        }
        Ok((t, padding))
    }

    /// Mean of each window over the last `kernel.len()` axes: `[.., n1, ..] -> [.., o1, ..]`; integers give f32.
    pub fn avg_pool(&self, opts: &PoolOpts) -> Result<Tensor> {
        self.in_f32(&|x| x.avg_pool_wide(opts))
    }

    fn avg_pool_wide(&self, opts: &PoolOpts) -> Result<Tensor> {
        let x = self;
        let (sum, padding) = x.window_sums("avg_pool", opts)?;
        let size: f64 = opts.kernel.iter().map(|&k| k as f64).product();
        if padding.iter().all(|&p| p == (0, 0)) {
            return sum.div(size);
        }
        let d = opts.kernel.len();
        let shape = self.shape();
        let mut ones = Tensor::ones(self.session(), DType::F32, &shape[shape.len() - d..])?;
        let mut counted = opts.clone();
        if opts.count_include_pad {
            // the requested padding counts as elements, what ceil_mode adds does not
            let asked = per_axis("avg_pool", "padding", &opts.padding, d, (0, 0))?;
            if asked == padding {
                return sum.div(size);
            }
            let pairs: Vec<(i64, i64)> = asked.iter().map(|&(a, b)| (a as i64, b as i64)).collect();
            ones = ones.pad(&pairs, super::PadMode::Constant, 1)?;
            counted.padding = Vec::new();
        }
        sum.div(ones.window_sums("avg_pool", &counted)?.0.cast(x.dtype())?)
    }

    /// `(sum x^p)^(1/p)` of each window over the last `kernel.len()` axes (torch's `lp_pool`). `Error::Value` for a `p`
    /// of 0 or one that is not finite.
    pub fn lp_pool(&self, p: f64, opts: &PoolOpts) -> Result<Tensor> {
        if p == 0.0 || !p.is_finite() {
            return Err(Error::value("lp_pool", format!("power {p}")));
        }
        let size: f64 = opts.kernel.iter().map(|&k| k as f64).product();
        // as torch: a last window that extends beyond the end counts as a whole one, and negative sums keep their sign
        let sum = self.pow(p)?.avg_pool(opts)?.mul(size)?;
        sum.sign()?.mul(sum.abs()?.relu()?)?.pow(1.0 / p)
    }

    /// Largest element of each of `sizes` windows at random positions along the last axes of `[batch, channels, n..]`
    /// (Graham 2014). `samples` `[batch, channels, axes]` has a number in `[0, 1)` for each axis, the last axis first;
    /// drawn from the session if `None`.
    pub fn fractional_max_pool(&self, kernel: &[usize], sizes: &[usize], samples: Option<&Tensor>) -> Result<Tensor> {
        let (op, d, shape) = ("fractional_max_pool", kernel.len(), self.shape());
        if d == 0 || sizes.len() != d || shape.len() != d + 2 || kernel.contains(&0) || sizes.contains(&0) {
            return Err(Error::value(op, format!("kernel {kernel:?} and sizes {sizes:?} for shape {shape:?}")));
        }
        let drawn = [shape[0], shape[1], d];
        let samples = match samples {
            Some(s) if s.shape() == drawn => s.clone(),
            Some(s) => return Err(Error::Shape { op, lhs: s.shape(), rhs: drawn.to_vec() }),
            None => Tensor::rand(self.session(), &drawn)?,
        };
        let mut y = self.max_pool(&PoolOpts::new(kernel).stride(&vec![1; d]))?;
        for i in 0..d {
            let (places, count) = (y.dim(2 + i as i64)?, sizes[i]);
            if count > places {
                return Err(Error::value(op, format!("{count} windows at {places} places")));
            }
            // window j begins at floor((j + s) a) - floor(s a), the last one at the end
            let sample = samples.select_at(2, (d - 1 - i) as i64)?.unsqueeze(-1)?;
            let step = if count > 1 { (places - 1) as f64 / (count - 1) as f64 } else { 0.0 };
            let at = Tensor::iota(self.session(), count)?;
            let first = at.cast(sample.dtype())?.add(&sample)?.mul(step)?.trunc()?.sub(sample.mul(step)?.trunc()?)?;
            let first = at.eq(count as i32 - 1)?.select(places as i32 - 1, first.cast(DType::I32)?)?;
            let mut wide = vec![shape[0], shape[1]];
            wide.extend((0..d).map(|j| if j == i { count } else { 1 }));
            let mut all = y.shape();
            all[2 + i] = count;
            y = y.gather(2 + i as i64, &first.reshape(&wide)?.expand(&all)?)?;
        }
        Ok(y)
    }

    /// Mean over each cell of a grid that divides the last axes into `sizes` regions. As in torch, region `i` of `o` on
    /// an axis of size `n` is `floor(i*n/o) .. ceil((i+1)*n/o)`, so that regions may overlap.
    pub fn adaptive_avg_pool(&self, sizes: &[usize]) -> Result<Tensor> {
        let d = sizes.len();
        let shape = self.shape();
        if d > shape.len() || sizes.contains(&0) {
            return Err(Error::value("adaptive_avg_pool", format!("sizes {sizes:?} for shape {shape:?}")));
        }
        self.in_f32(&|x| x.adaptive_wide(sizes))
    }

    fn adaptive_wide(&self, sizes: &[usize]) -> Result<Tensor> {
        let (d, shape) = (sizes.len(), self.shape());
        let mut t = self.clone();
        for (i, &o) in sizes.iter().enumerate() {
            let axis = shape.len() - d + i;
            let n = shape[axis];
            t = if n % o == 0 {
                t.unflatten(axis as i64, &[o, n / o])?.mean(&[axis as i64 + 1], false)?
            } else {
                t.adaptive_axis(axis, o)?
            };
        }
        Ok(t)
    }

    /// Regions of different sizes along one axis: the sum of each, divided by its size. Elements outside a region are
    /// left out by a mask rather than multiplied by zero, so that an infinity elsewhere does not make the mean NaN.
    fn adaptive_axis(&self, axis: usize, o: usize) -> Result<Tensor> {
        let n = self.shape()[axis];
        let (i, j) = (Tensor::iota(self.session(), o)?, Tensor::iota(self.session(), n)?.reshape(&[1, n])?);
        let start = i.mul(n)?.floor_div(o)?;
        let end = i.add(1)?.mul(n)?.add(o - 1)?.floor_div(o)?;
        let size = end.sub(&start)?.cast(self.dtype())?;
        let member = j.ge(start.unsqueeze(1)?)?.logical_and(j.lt(end.unsqueeze(1)?)?)?;
        let x = self.move_axis(axis as i64, -1)?.unsqueeze(-2)?;
        member.select(x, 0)?.sum(&[-1], false)?.div(size)?.move_axis(-1, axis as i64)
    }
}
