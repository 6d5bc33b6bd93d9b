//! Statistics and order: norms of any order, variances with any correction, scans with indices, differences, quantiles,
//! binary search, histograms. The methods that return `(values, indices)` read the values at the indices, so that the
//! gradient of a value goes to that one element, as in torch.

use super::{Operand, Tensor, check_axes, check_axis};
use crate::{DType, Error, Result};

/// How a quantile that lies between two elements is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// Linear interpolation between them.
    Linear,
    /// The smaller of them.
    Lower,
    /// The larger of them.
    Higher,
    /// Their mean.
    Midpoint,
    /// The nearer of them; halfway, the one with the even index in sorted order.
    Nearest,
}

impl Quantile {
    /// The variant with this name in torch; `Error::Value` for another name.
    pub fn parse(name: &str) -> Result<Quantile> {
        Ok(match name {
            "linear" => Quantile::Linear,
            "lower" => Quantile::Lower,
            "higher" => Quantile::Higher,
            "midpoint" => Quantile::Midpoint,
            "nearest" => Quantile::Nearest,
            _ => return Err(Error::value("quantile", format!("there is no interpolation `{name}`"))),
        })
    }
}

impl Tensor {
    /// The size of an axis; a scalar counts as a vector of one element, with the axis 0 or -1.
    pub(crate) fn dim0(&self, axis: i64) -> Result<usize> {
        if self.rank() == 0 {
            check_axis("axis", axis, 1)?;
            return Ok(1);
        }
        self.dim(axis)
    }

    /// Applies `f` to this tensor and the axis; a scalar is passed as a vector of one element with axis 0.
    fn at_least_1d<R>(&self, axis: i64, f: impl FnOnce(&Tensor, i64) -> Result<R>) -> Result<R> {
        match self.rank() {
            0 => {
                check_axis("axis", axis, 1)?;
                f(&self.reshape(&[1usize])?, 0)
            }
            _ => f(self, axis),
        }
    }

    /// Removes the reduced axis of `out` unless it is kept; the result for a scalar is a scalar.
    fn finish(&self, out: Tensor, axis: i64, keep: bool) -> Result<Tensor> {
        match self.rank() {
            0 => out.reshape(&[0usize; 0]),
            _ if keep => Ok(out),
            _ => out.squeeze(axis),
        }
    }

    // ---- reductions

    /// NaN replaced by 0.
    pub(crate) fn without_nan(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.isnan()?.select(0, self) } else { Ok(self.clone()) }
    }

    /// Square root whose gradient at 0 is 0 rather than infinite.
    pub(crate) fn sqrt_or_zero(&self) -> Result<Tensor> {
        let zero = self.eq(0)?;
        zero.select(0, zero.select(1, self)?.sqrt()?)
    }

    /// Mean over axes of the elements that are not NaN.
    pub fn nanmean(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        let n = self.isnan()?.logical_not()?.cast(DType::F32)?.sum(axes, keep)?;
        self.in_f32(&|x| x.without_nan()?.sum(axes, keep)?.div(&n))
    }

    /// Number of nonzero elements over axes; i32.
    pub fn count_nonzero(&self, axes: &[i64], keep: bool) -> Result<Tensor> {
        self.to_bool()?.cast(DType::I32)?.sum(axes, keep)
    }

    /// Variance over axes with the divisor `max(0, n - correction)`.
    pub fn var_by(&self, axes: &[i64], correction: f64, keep: bool) -> Result<Tensor> {
        let shape = self.shape();
        let n: usize = check_axes("var", axes, shape.len())?.iter().map(|&a| shape[a]).product();
        self.in_f32(&|x| {
            let centred = x.sub(x.mean(axes, true)?)?;
            centred.square()?.sum(axes, keep)?.div((n as f64 - correction).max(0.0))
        })
    }

    /// The square root of [`Tensor::var_by`].
    pub fn std_by(&self, axes: &[i64], correction: f64, keep: bool) -> Result<Tensor> {
        self.var_by(axes, correction, keep)?.sqrt_or_zero()
    }

    /// Largest element along an axis and its index (i32), with the rules of [`Tensor::argmax`].
    pub fn max_along(&self, axis: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let index = self.at_least_1d(axis, |t, a| t.argmax(a, true))?;
        self.picked(axis, index, keep)
    }

    /// Smallest element along an axis and its index (i32), with the rules of [`Tensor::argmin`].
    pub fn min_along(&self, axis: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let index = self.at_least_1d(axis, |t, a| t.argmin(a, true))?;
        self.picked(axis, index, keep)
    }

    /// The values at `index` along an axis, and the index.
    fn picked(&self, axis: i64, index: Tensor, keep: bool) -> Result<(Tensor, Tensor)> {
        let values = self.at_least_1d(axis, |t, a| t.gather(a, &index))?;
        Ok((self.finish(values, axis, keep)?, self.finish(index, axis, keep)?))
    }

    /// The p-norm over axes for any `p`: 0 counts the nonzero elements, infinity and minus infinity give the largest
    /// and smallest absolute value.
    pub fn vector_norm(&self, p: f64, axes: &[i64], keep: bool) -> Result<Tensor> {
        let x = self.to_float()?;
        if p == 0.0 {
            return x.ne(0)?.cast(x.dtype())?.sum(axes, keep);
        }
        if p == f64::NEG_INFINITY {
            return x.abs()?.min(axes, keep);
        }
        if p == 1.0 || p == 2.0 || p == f64::INFINITY {
            return x.norm(p, axes, keep);
        }
        // a zero is replaced before the power: the absolute value has no slope there, and a power below 1 an infinite
        // one
        let zero = x.eq(0)?;
        let a = zero.select(1, &x)?.abs()?;
        let at_zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
        let s = zero.select(at_zero, a.pow(p)?)?.sum(axes, keep)?;
        let empty = s.eq(0)?;
        empty.select(if p > 0.0 { 0.0 } else { f64::INFINITY }, empty.select(1, s)?.pow(1.0 / p)?)
    }

    /// Matrix norms over two axes (the last two for an empty list): `fro`, `nuc`, `1`, `-1`, `2`, `-2`, `inf` or
    /// `-inf`. `Error::Value` for another name.
    pub fn matrix_norm(&self, order: &str, axes: &[i64], keep: bool) -> Result<Tensor> {
        let rank = self.rank();
        let axes = if axes.is_empty() { [-2, -1].as_slice() } else { axes };
        let &[a, b] = axes else { return Err(Error::value("matrix_norm", "two axes are needed")) };
        let (a, b) = (check_axis("matrix_norm", a, rank)? as i64, check_axis("matrix_norm", b, rank)? as i64);
        if a == b {
            return Err(Error::value("matrix_norm", "the two axes are one"));
        }
        let x = self.to_float()?;
        let sums = |first: i64, then: i64, largest: bool| -> Result<Tensor> {
            let s = x.abs()?.sum(&[first], true)?;
            if largest { s.max(&[then], true) } else { s.min(&[then], true) }
        };
        let out = match order {
            "fro" => x.vector_norm(2.0, &[a, b], true)?,
            "1" => sums(a, b, true)?,
            "-1" => sums(a, b, false)?,
            "inf" => sums(b, a, true)?,
            "-inf" => sums(b, a, false)?,
            "2" | "-2" | "nuc" => {
                let mut rest: Vec<i64> = (0..rank as i64).filter(|&i| i != a && i != b).collect();
                rest.extend([a, b]);
                let s: Tensor = x.permute(&rest)?.svdvals()?;
                let s = match order {
                    "2" => s.max(&[-1], false)?,
                    "-2" => s.min(&[-1], false)?,
                    _ => s.sum(&[-1], false)?,
                };
                let mut shape = self.shape();
                (shape[a as usize], shape[b as usize]) = (1, 1);
                s.reshape(&shape)?
            }
            _ => return Err(Error::value("matrix_norm", format!("there is no norm `{order}`"))),
        };
        if keep {
            return Ok(out);
        }
        out.squeeze(a.max(b))?.squeeze(a.min(b))
    }

    /// Scales the slices along an axis down to a p-norm of at most `max_norm`.
    pub fn renorm(&self, p: f64, axis: i64, max_norm: f64) -> Result<Tensor> {
        let a = check_axis("renorm", axis, self.rank())?;
        let rest: Vec<i64> = (0..self.rank() as i64).filter(|&i| i != a as i64).collect();
        let n = self.vector_norm(p, &rest, true)?;
        let factor = n.gt(max_norm)?.select(n.add(1e-7)?.reciprocal()?.mul(max_norm)?, 1)?;
        self.mul(factor)
    }

    // ---- scans

    /// Running maximum along an axis and the index (i32) of the last element equal to it.
    pub fn cummax_with_indices(&self, axis: i64) -> Result<(Tensor, Tensor)> {
        self.cumulative_with_indices(axis, Tensor::cummax)
    }

    /// Running minimum along an axis and the index (i32) of the last element equal to it.
    pub fn cummin_with_indices(&self, axis: i64) -> Result<(Tensor, Tensor)> {
        self.cumulative_with_indices(axis, Tensor::cummin)
    }

    fn cumulative_with_indices(&self, axis: i64, f: fn(&Tensor, i64) -> Result<Tensor>) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            check_axis("cummax", axis, 1)?;
            return Ok((self.clone(), Tensor::zeros(self.session(), DType::I32, &[])?));
        }
        let a = check_axis("cummax", axis, self.rank())?;
        let best = f(&self.detach(), axis)?;
        let mut hit = self.eq(&best)?;
        if self.dtype().is_float() {
            hit = hit.logical_or(self.isnan()?)?;
        }
        let mut shape = vec![1; self.rank()];
        shape[a] = self.shape()[a];
        let place = Tensor::iota(self.session(), shape[a])?.reshape(&shape)?;
        let index = hit.select(place, 0)?.cast(DType::I32)?.cummax(axis)?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// Running `ln(sum(e^x))` along an axis, without overflow.
    pub fn logcumsumexp(&self, axis: i64) -> Result<Tensor> {
        if self.rank() == 0 {
            check_axis("logcumsumexp", axis, 1)?;
            return Ok(self.clone());
        }
        self.to_float()?.move_axis(axis, -1)?.logcumsumexp_last(false)?.move_axis(-1, axis)
    }

    /// Running `ln(sum(e^x))` along the last axis, without the element itself if `exclusive`. Axes of up to `BLOCK`
    /// elements are one masked reduction with n^2 terms; longer ones are split into blocks, and each element is
    /// combined with the running value of the blocks before its own.
    fn logcumsumexp_last(&self, exclusive: bool) -> Result<Tensor> {
        const BLOCK: usize = 64;
        let n = self.dim(-1)?;
        if n <= BLOCK {
            let i = Tensor::iota(self.session(), n)?.unsqueeze(-1)?;
            let j = Tensor::iota(self.session(), n)?.unsqueeze(0)?;
            let mask = if exclusive { j.lt(i)? } else { j.le(i)? };
            return mask.select(self.unsqueeze(-2)?, f64::NEG_INFINITY)?.logsumexp(&[-1], false);
        }
        let blocks = n.div_ceil(BLOCK);
        let mut pad = vec![(0, 0); self.rank()];
        pad.last_mut().expect("a scanned tensor has an axis").1 = (blocks * BLOCK - n) as i64;
        let t = self.pad(&pad, super::PadMode::Constant, f64::NEG_INFINITY)?.unflatten(-1, &[blocks, BLOCK])?;
        let before = t.logsumexp(&[-1], false)?.logcumsumexp_last(true)?.unsqueeze(-1)?;
        // before the first block the sum is empty, and its logarithm -inf
        let both = Tensor::stack(&[&t.logcumsumexp_last(exclusive)?, &before.expand(&t.shape())?], -1)?;
        both.logsumexp(&[-1], false)?.flatten(-2, -1)?.narrow(-1, 0, n)
    }

    /// The `n`-th differences between neighbours along an axis, of this tensor with `before` and `after` joined to its
    /// ends. Bools give their exclusive or.
    pub fn diff(&self, n: usize, axis: i64, before: Option<&Tensor>, after: Option<&Tensor>) -> Result<Tensor> {
        let parts: Vec<&Tensor> = [before, Some(self), after].into_iter().flatten().collect();
        let mut t = if parts.len() > 1 { Tensor::cat(&parts, axis)? } else { self.clone() };
        for _ in 0..super::check_repetitions("diff", n.min(t.dim(axis)?.saturating_add(1)))? {
            let len = t.dim(axis)?;
            if len == 0 {
                return Ok(t);
            }
            let (a, b) = (t.narrow(axis, 1, len - 1)?, t.narrow(axis, 0, len - 1)?);
            t = if t.dtype() == DType::Bool { a.logical_xor(b)? } else { a.sub(b)? };
        }
        Ok(t)
    }

    /// The areas of the trapezoids between neighbours along an axis: `[.., n, ..] -> [.., n-1, ..]`. The points have
    /// the coordinates `x`, or a distance of `dx`.
    pub fn trapezoid(&self, x: Option<&Tensor>, dx: f64, axis: i64) -> Result<Tensor> {
        let n = self.dim(axis)?;
        let y = self.to_float()?;
        if n == 0 {
            return Ok(y);
        }
        let sum = y.narrow(axis, 1, n - 1)?.add(y.narrow(axis, 0, n - 1)?)?.mul(0.5)?;
        match x {
            None => sum.mul(dx),
            Some(x) if x.rank() == 1 => {
                let mut shape = vec![1i64; self.rank()];
                shape[check_axis("trapezoid", axis, self.rank())?] = -1;
                sum.mul(x.diff(1, 0, None, None)?.reshape(&shape)?)
            }
            Some(x) => {
                // the axes of x align with the last ones of y
                let at = if axis < 0 { axis } else { axis - self.rank() as i64 };
                sum.mul(x.diff(1, at, None, None)?)
            }
        }
    }

    /// Derivatives along an axis by central differences (numpy's and torch's `gradient`) for points with the
    /// coordinates `at`, or a distance of `step`. At the ends the differences are one-sided, of first or second order.
    /// `Error::Value` for another order or too few points.
    pub fn differences(&self, axis: i64, at: Option<&Tensor>, step: f64, edge_order: usize) -> Result<Tensor> {
        let n = self.dim(axis)?;
        if n < edge_order + 1 || !(1..=2).contains(&edge_order) {
            return Err(Error::value("gradient", format!("order {edge_order} with {n} points")));
        }
        let y = self.to_float()?;
        let mut shape = vec![1i64; self.rank()];
        shape[check_axis("gradient", axis, self.rank())?] = -1;
        let h = match at {
            Some(t) => t.to_float()?.diff(1, 0, None, None)?.reshape(&shape)?,
            None => Tensor::full(self.session(), step, y.dtype(), &[n - 1])?.reshape(&shape)?,
        };
        let slope = y.diff(1, axis, None, None)?.div(&h)?;
        let first = |t: &Tensor, i: usize| t.narrow(axis, i, 1);
        let (mut low, mut high) = (first(&slope, 0)?, first(&slope, n - 2)?);
        if n == 2 {
            return Tensor::cat(&[&low, &high], axis);
        }
        let (h0, h1) = (h.narrow(axis, 0, n - 2)?, h.narrow(axis, 1, n - 2)?);
        let (s0, s1) = (slope.narrow(axis, 0, n - 2)?, slope.narrow(axis, 1, n - 2)?);
        let middle = s0.mul(&h1)?.add(s1.mul(&h0)?)?.div(h0.add(&h1)?)?;
        if edge_order == 2 {
            // the parabola through the three outermost points
            low = low.mul(2)?.sub(first(&middle, 0)?)?;
            high = high.mul(2)?.sub(first(&middle, n - 3)?)?;
        }
        Tensor::cat(&[&low, &middle, &high], axis)
    }

    // ---- order

    /// [`Tensor::sort`], where a scalar counts as one element.
    pub(crate) fn sort0(&self, axis: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            check_axis("sort", axis, 1)?;
            return Ok((self.clone(), Tensor::zeros(self.session(), DType::I32, &[])?));
        }
        self.sort(axis, descending)
    }

    /// The `k`-th smallest element along an axis, counted from 1, and its index (i32). `Error::Value` unless
    /// `1 <= k <= n`.
    pub fn kthvalue(&self, k: usize, axis: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let n = self.dim0(axis)?;
        if k == 0 || k > n {
            return Err(Error::value("kthvalue", format!("k = {k} of an axis of size {n}")));
        }
        let index = self.at_least_1d(axis, |t, a| t.argsort(a, false)?.narrow(a, k - 1, 1))?;
        self.picked(axis, index, keep)
    }

    /// The lower median along an axis and its index (i32); NaN if there is a NaN. `Error::Value` if the axis is empty.
    pub fn median(&self, axis: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let n = self.dim0(axis)?;
        if n == 0 {
            return Err(Error::value("median", "the axis is empty"));
        }
        let index = self.at_least_1d(axis, |t, a| {
            let index = t.argsort(a, false)?.narrow(a, (n - 1) / 2, 1)?;
            if !t.dtype().is_float() {
                return Ok(index);
            }
            // if there is a NaN, the index of the first one
            t.isnan()?.any(&[a], true)?.select(t.argmax(a, true)?, index)
        })?;
        self.picked(axis, index, keep)
    }

    /// The lower median of the elements that are not NaN, and its index (i32).
    pub fn nanmedian(&self, axis: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        if !self.dtype().is_float() {
            return self.median(axis, keep);
        }
        let index = self.at_least_1d(axis, |t, a| {
            let count = t.isnan()?.logical_not()?.cast(DType::I32)?.sum(&[a], true)?;
            let at = count.sub(1)?.maximum(0)?.floor_div(2)?;
            t.argsort(a, false)?.gather(a, &at)
        })?;
        self.picked(axis, index, keep)
    }

    /// The most frequent value along an axis (the smallest, if several are) and the index (i32) of its last occurrence.
    pub fn mode(&self, axis: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let index = self.at_least_1d(axis, |t, a| {
            let n = t.dim(a)?;
            let (sorted, order) = t.move_axis(a, -1)?.detach().sort(-1, false)?;
            // in sorted order: how many equal elements precede each one
            let place = Tensor::iota(t.session(), n)?;
            let head = sorted.narrow(-1, 0, n.min(1))?.ne(sorted.narrow(-1, 0, n.min(1))?)?.logical_not()?;
            let starts = match n {
                0 | 1 => head,
                _ => Tensor::cat(&[&head, &sorted.narrow(-1, 1, n - 1)?.ne(sorted.narrow(-1, 0, n - 1)?)?], -1)?,
            };
            let start = starts.select(&place, 0)?.cast(DType::I32)?.cummax(-1)?;
            let run = place.expand(&start.shape())?.sub(start)?;
            order.gather(-1, &run.argmax(-1, true)?)?.move_axis(-1, a)
        })?;
        self.picked(axis, index, keep)
    }

    /// Quantiles along an axis, or of all elements if `axis` is `None`. `q` is a scalar, or a vector whose axis becomes
    /// the first of the result. NaN if any element is. `Error::Value` for other ranks of `q`, or no elements.
    pub fn quantile(&self, q: &Tensor, axis: Option<i64>, keep: bool, how: Quantile) -> Result<Tensor> {
        self.quantiles(q, axis, keep, how, false)
    }

    /// [`Tensor::quantile`] of the elements that are not NaN.
    pub fn nanquantile(&self, q: &Tensor, axis: Option<i64>, keep: bool, how: Quantile) -> Result<Tensor> {
        self.quantiles(q, axis, keep, how, true)
    }

    fn quantiles(&self, q: &Tensor, axis: Option<i64>, keep: bool, how: Quantile, skip: bool) -> Result<Tensor> {
        let x = self.to_float()?;
        let x0 = if x.rank() == 0 { x.reshape(&[1usize])? } else { x };
        let (t, a) = match axis {
            Some(a) => (x0.clone(), check_axis("quantile", a, x0.rank())?),
            None => (x0.flatten(0, -1)?, 0),
        };
        if q.rank() > 1 {
            return Err(Error::value("quantile", "q should be a scalar or a vector"));
        }
        let vector = q.rank() == 1;
        let q = q.reshape(&[-1])?.cast(t.dtype())?;
        let m = q.numel();
        let sorted = t.sort(a as i64, false)?.0.move_axis(a as i64, -1)?;
        let n = sorted.dim(-1)?;
        if n == 0 {
            return Err(Error::value("quantile", "there are no elements"));
        }
        let nan = sorted.isnan()?;
        let last = match skip {
            true => nan.logical_not()?.cast(DType::I32)?.sum(&[-1], true)?.sub(1)?.maximum(0)?,
            false => Tensor::full(self.session(), n as i64 - 1, DType::I32, &[])?,
        };
        let mut shape = sorted.shape();
        *shape.last_mut().expect("a sorted tensor has an axis") = m;
        let at = q.mul(last.cast(t.dtype())?)?.expand(&shape)?;
        let (low, high) = (at.floor()?, at.ceil()?);
        let pick = |i: Tensor| sorted.gather(-1, &i.cast(DType::I32)?);
        let out = match how {
            Quantile::Lower => pick(low)?,
            Quantile::Higher => pick(high)?,
            Quantile::Nearest => pick(at.round()?)?,
            Quantile::Midpoint => pick(low)?.add(pick(high)?)?.mul(0.5)?,
            Quantile::Linear => pick(low.clone())?.lerp(&pick(high)?, at.sub(low)?)?,
        };
        let out = if skip { out } else { nan.any(&[-1], true)?.select(f64::NAN, out)? };
        // the axis of the quantiles moves to the front
        let out = out.move_axis(-1, 0)?;
        let mut kept = vec![m];
        let own = self.shape();
        match axis {
            None if keep => kept.extend(std::iter::repeat_n(1, own.len())),
            None => {}
            Some(_) => kept.extend((0..own.len()).filter(|&i| keep || i != a).map(|i| if i == a { 1 } else { own[i] })),
        }
        let out = out.reshape(&kept)?;
        if vector { Ok(out) } else { out.select_at(0, 0) }
    }

    /// The index (i32) at which each value would be inserted into this tensor, sorted along its last axis, to keep it
    /// sorted: before equal elements, or after them with `right`. The result has the shape of `values`. This tensor is
    /// a vector, or has the leading axes of `values` (`Error::Shape` otherwise). A binary search of `log2 n` steps; NaN
    /// counts as largest.
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let (shape, vshape) = (self.shape(), values.shape());
        let Some((&n, lead)) = shape.split_last() else {
            return Err(Error::value("searchsorted", "a sorted vector is needed"));
        };
        let dt = self.dtype().promote(values.dtype());
        let (sorted, values) = (self.cast(dt)?, values.cast(dt)?);
        // one sorted vector is searched for values of any shape
        let v = match lead.is_empty() {
            true => values.flatten(0, -1)?,
            false if vshape.len() == shape.len() && vshape[..lead.len()] == *lead => values.clone(),
            false => return Err(Error::Shape { op: "searchsorted", lhs: shape, rhs: vshape }),
        };
        let mut low = Tensor::zeros(self.session(), DType::I32, &v.shape())?;
        if n == 0 {
            return low.reshape(&vshape);
        }
        let mut step = n.next_power_of_two();
        while step > 0 {
            let probe = low.add(step as i32)?;
            let inside = probe.le(n as i32)?;
            let at = inside.select(probe.sub(1)?, 0)?;
            let there = sorted.gather(-1, &at)?;
            let mut before = if right { there.le(&v)? } else { there.lt(&v)? };
            if dt.is_float() {
                // NaN counts as largest
                let nan = v.isnan()?;
                let past = if right { nan.clone() } else { nan.logical_and(there.isnan()?.logical_not()?)? };
                before = before.logical_or(past)?;
            }
            low = inside.logical_and(before)?.select(probe, &low)?;
            step /= 2;
        }
        low.reshape(&vshape)
    }

    /// Histogram: how many elements lie in each of `bins` equal intervals of `min..=max`, or of the range of the data
    /// if both bounds are equal. Counts have this tensor's dtype. `Error::Value` for no bins or `min > max`.
    pub fn histc(&self, bins: usize, min: f64, max: f64) -> Result<Tensor> {
        if bins == 0 || !(min <= max) {
            return Err(Error::value("histc", format!("{bins} bins of {min}..{max}")));
        }
        let x = self.to_float()?.flatten(0, -1)?;
        let constant = |v: f64| Tensor::full(self.session(), v, x.dtype(), &[]);
        let (lo, hi) = match min == max && x.numel() > 0 {
            true => (x.min(&[], false)?, x.max(&[], false)?),
            false => (constant(min)?, constant(max)?),
        };
        let flat = lo.eq(&hi)?;
        let (lo, hi) = (flat.select(lo.sub(1)?, &lo)?, flat.select(hi.add(1)?, &hi)?);
        let inside = x.ge(&lo)?.logical_and(x.le(&hi)?)?;
        let bin = x.sub(&lo)?.mul(bins as f64)?.div(hi.sub(&lo)?)?.floor()?.clamp(0, bins as i64 - 1)?;
        let bin = inside.select(bin, -1)?.cast(DType::I32)?;
        let place = Tensor::iota(self.session(), bins)?.unsqueeze(1)?;
        place.eq(bin.unsqueeze(0)?)?.cast(self.dtype())?.sum(&[-1], false)?.cast(self.dtype())
    }

    /// The covariance matrix of the rows of a matrix `[variables, observations]`, or the variance of a vector, with the
    /// divisor `n - correction`. Observations may be repeated by `counts` and weighted by `weights`.
    pub fn cov(&self, correction: f64, counts: Option<&Tensor>, weights: Option<&Tensor>) -> Result<Tensor> {
        let scalar = self.rank() < 2;
        let x = if scalar { self.to_float()?.reshape(&[1, -1])? } else { self.to_float()? };
        let n = x.want_rank("cov", 2)?[1];
        let w = match (counts, weights) {
            (None, None) => None,
            (Some(f), None) => Some(f.to_float()?),
            (None, Some(a)) => Some(a.to_float()?),
            (Some(f), Some(a)) => Some(f.to_float()?.mul(a.to_float()?)?),
        };
        let Some(w) = w else {
            let c = x.sub(x.mean(&[1], true)?)?;
            let out = c.matmul(&c.t()?)?.div((n as f64 - correction).max(0.0))?;
            return if scalar || out.numel() == 1 { out.reshape(&[0usize; 0]) } else { Ok(out) };
        };
        let total = w.sum(&[], false)?;
        let c = x.sub(x.mul(&w)?.sum(&[1], true)?.div(&total)?)?;
        let scale = match weights {
            Some(a) if correction != 0.0 => {
                let spread = w.mul(a.to_float()?)?.sum(&[], false)?.mul(correction)?;
                total.sub(spread.div(&total)?)?
            }
            _ => total.sub(correction)?,
        };
        let out = c.mul(w)?.matmul(&c.t()?)?.div(scale.maximum(0)?)?;
        if scalar || out.numel() == 1 { out.reshape(&[0usize; 0]) } else { Ok(out) }
    }

    /// The matrix of Pearson's correlation coefficients of the rows of a matrix.
    pub fn corrcoef(&self) -> Result<Tensor> {
        let c = self.cov(1.0, None, None)?;
        if c.rank() == 0 {
            return c.div(&c);
        }
        let d = c.diagonal()?.sqrt()?;
        c.div(d.unsqueeze(1)?)?.div(d.unsqueeze(0)?)?.clamp_to(Some(Operand::Int(-1)), Some(Operand::Int(1)))
    }

    /// Bool: whether each element occurs in `test`; the opposite with `invert`.
    pub fn isin(&self, test: &Tensor, invert: bool) -> Result<Tensor> {
        let hit = self.unsqueeze(-1)?.eq(test.reshape(&[-1])?)?.any(&[-1], false)?;
        if invert { hit.logical_not() } else { Ok(hit) }
    }
}
