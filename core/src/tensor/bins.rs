//! Histograms with given edges, and reductions over segments of an axis.

use super::{Tensor, check_axis};
use crate::{DType, Error, Result};

impl Tensor {
    /// How many elements lie in each interval between neighbouring `edges`, or the sums of their weights:
    /// `[edges - 1]`. The last interval includes its upper edge. With `density` the result is divided by the total and
    /// by each interval's width. `Error::Value` unless `edges` is a vector of at least 2.
    pub fn histogram(&self, edges: &Tensor, weight: Option<&Tensor>, density: bool) -> Result<Tensor> {
        let n = edges.numel();
        if edges.rank() != 1 || n < 2 {
            return Err(Error::value("histogram", format!("edges of shape {:?}", edges.shape())));
        }
        let x = self.to_float()?.reshape(&[-1])?;
        let (first, last) = (edges.narrow(0, 0, 1)?, edges.narrow(0, n - 1, 1)?);
        let bin = edges.searchsorted(&x, true)?.sub(1)?;
        let bin = x.eq(&last)?.select(n as i32 - 2, bin)?;
        let inside = x.ge(&first)?.logical_and(x.le(&last)?)?;
        let place = Tensor::iota(self.session(), n - 1)?.unsqueeze(1)?;
        let hit = place.eq(bin.unsqueeze(0)?)?.logical_and(inside.unsqueeze(0)?)?;
        let w = match weight {
            Some(w) => w.reshape(&[1, -1])?.cast(x.dtype())?,
            None => x.ones_like()?.unsqueeze(0)?,
        };
        let counts = hit.select(w, 0)?.sum(&[-1], false)?;
        if !density {
            return Ok(counts);
        }
        let width = edges.narrow(0, 1, n - 1)?.sub(edges.narrow(0, 0, n - 1)?)?;
        counts.div(counts.sum(&[], true)?.mul(width)?)
    }

    /// The `bins + 1` edges of equal intervals over `range`, or over the range of the data.
    pub fn histogram_edges(&self, bins: usize, range: Option<(f64, f64)>) -> Result<Tensor> {
        if bins == 0 {
            return Err(Error::value("histogram", "no bins"));
        }
        let x = self.to_float()?;
        let number = |v: f64| Tensor::full(self.session(), v, x.dtype(), &[]);
        let (lo, hi) = match range {
            Some((a, b)) => (number(a)?, number(b)?),
            None if x.numel() == 0 => (number(0.0)?, number(1.0)?),
            None => (x.min(&[], false)?, x.max(&[], false)?),
        };
        let flat = lo.eq(&hi)?;
        let (lo, hi) = (flat.select(lo.sub(0.5)?, &lo)?, flat.select(hi.add(0.5)?, &hi)?);
        Tensor::linspace_between(&lo, &hi, bins + 1)
    }

    /// Reduces consecutive segments of an axis to one element each: `how` is `sum`, `mean`, `prod`, `max` or `min`. The
    /// last axis of `lengths` has the sizes of the segments; its other axes are those before `axis`. Each reduction
    /// starts with `initial`, by default its identity (NaN for the mean of an empty segment).
    pub fn segment_reduce(&self, how: &str, lengths: &Tensor, axis: i64, initial: Option<f64>) -> Result<Tensor> {
        let ends = lengths.cast(DType::I32)?.cumsum(-1)?;
        let zero = Tensor::zeros(
            self.session(),
            ends.dtype(),
            &[&lengths.shape()[..lengths.rank().max(1) - 1], &[1]].concat(),
        )?;
        self.segments(how, &Tensor::cat(&[&zero, &ends], -1)?, axis, initial)
    }

    /// [`Tensor::segment_reduce`] with the boundaries of the segments instead of their lengths: where each one begins,
    /// and where the last one ends.
    pub fn segments(&self, how: &str, offsets: &Tensor, axis: i64, initial: Option<f64>) -> Result<Tensor> {
        let axis = check_axis("segment_reduce", axis, self.rank())?;
        let count = offsets.dim(-1)?.saturating_sub(1);
        if offsets.rank() != axis + 1 {
            let what = format!("segments of shape {:?} along axis {axis}", offsets.shape());
            return Err(Error::value("segment_reduce", what));
        }
        let (x, n) = (self.to_float()?, self.shape()[axis]);
        let offsets = offsets.cast(DType::I32)?;
        let (begin, end) = (offsets.narrow(-1, 0, count)?, offsets.narrow(-1, 1, count)?);
        let place = Tensor::iota(self.session(), n)?;
        let mut mask = place.ge(begin.unsqueeze(-1)?)?.logical_and(place.lt(end.unsqueeze(-1)?)?)?;
        let mut length = end.sub(&begin)?;
        for _ in axis + 1..self.rank() {
            (mask, length) = (mask.unsqueeze(-1)?, length.unsqueeze(-1)?);
        }
        let at = axis as i64;
        let (x, along) = (x.unsqueeze(at)?, [at + 1]);
        let start = |neutral: f64| initial.unwrap_or(neutral);
        match how {
            "sum" => mask.select(&x, 0)?.sum(&along, false)?.add(start(0.0)),
            "prod" => mask.select(&x, 1)?.prod(&along, false)?.mul(start(1.0)),
            "max" => mask.select(&x, f64::NEG_INFINITY)?.max(&along, false)?.maximum(start(f64::NEG_INFINITY)),
            "min" => mask.select(&x, f64::INFINITY)?.min(&along, false)?.minimum(start(f64::INFINITY)),
            "mean" => {
                let (sum, none) = (mask.select(&x, 0)?.sum(&along, false)?.add(start(0.0))?, length.eq(0)?);
                none.select(start(f64::NAN), sum.div(none.select(1, &length)?)?)
            }
            _ => Err(Error::value("segment_reduce", format!("there is no reduction `{how}`"))),
        }
    }
}
