//! Views: operations that rearrange, repeat, cut or zero-pad elements without computing new values. All of them become
//! index arithmetic (and masks, for padding) in the kernels that read them; none copies.

use super::{Tensor, broadcast_shape, check_axes, check_axis, check_numel};
use crate::uop::Shape;
use crate::uop::graph::elements;
use crate::{Error, Result};

/// A size given to [`Tensor::reshape`]: any integer type. -1 stands for the size that the number of elements leaves
/// over.
pub trait Dim: Copy {
    /// The size; -1 if it is to be inferred.
    fn size(self) -> i64;
}

impl Dim for usize {
    fn size(self) -> i64 {
        self as i64
    }
}
impl Dim for i64 {
    fn size(self) -> i64 {
        self
    }
}
impl Dim for i32 {
    fn size(self) -> i64 {
        self as i64
    }
}

/// The elements of an axis that [`Tensor::slice`] takes: Python's `start:end:step`, all optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slice {
    /// Index of the first element; a negative one counts from the end, and one out of range is clamped.
    pub start: Option<i64>,
    /// Index one past the last element; a negative one counts from the end, and one out of range is clamped.
    pub end: Option<i64>,
    /// Step from one element to the next; negative steps go backwards. 0 stands for the default 1.
    pub step: i64,
}

impl Slice {
    /// The whole axis.
    pub const ALL: Slice = Slice { start: None, end: None, step: 1 };

    /// The indices `start..end`.
    pub fn range(start: i64, end: i64) -> Slice {
        Slice { start: Some(start), end: Some(end), step: 1 }
    }

    /// Every `step`-th index of `start..end`.
    pub fn step(start: Option<i64>, end: Option<i64>, step: i64) -> Slice {
        Slice { start, end, step }
    }

    /// The slice of an axis of size `n` as `(begin, end, stride, reversed)`, with ascending indices; `reversed` says
    /// that the taken elements are then flipped.
    fn resolve(self, n: usize) -> (usize, usize, usize, bool) {
        let n = n as i64;
        let step = if self.step == 0 { 1 } else { self.step };
        let from_end = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        if step > 0 {
            let begin = self.start.map_or(0, from_end).clamp(0, n);
            let end = self.end.map_or(n, from_end).clamp(begin, n);
            return (begin as usize, end as usize, step as usize, false);
        }
        let first = self.start.map_or(n - 1, from_end).clamp(-1, n - 1);
        let stop = self.end.map_or(-1, from_end).clamp(-1, first.max(-1));
        let count = (first - stop + (-step) - 1) / -step;
        // the lowest index taken: ascending by |step| from there ends exactly at `first`
        let low = first - (count - 1).max(0) * -step;
        if count <= 0 {
            (0, 0, 1, true)
        } else {
            (low as usize, first as usize + 1, step.unsigned_abs() as usize, true)
        }
    }
}

impl From<std::ops::Range<usize>> for Slice {
    fn from(r: std::ops::Range<usize>) -> Slice {
        Slice::range(r.start as i64, r.end as i64)
    }
}

impl Tensor {
    /// The same elements, in row-major order, with another shape. One size may be -1 and is inferred. `Error::Value` if
    /// the number of elements differs.
    pub fn reshape<D: Dim>(&self, shape: &[D]) -> Result<Tensor> {
        let own = self.shape();
        let numel = elements(&own);
        let wanted: Vec<i64> = shape.iter().map(|d| d.size()).collect();
        let misfit = || {
            let what = format!("{numel} elements of shape {own:?} do not fit {wanted:?}");
            Error::value("reshape", what)
        };
        let mut out: Vec<usize> = wanted.iter().map(|&d| usize::try_from(d).unwrap_or(1)).collect();
        let known = check_numel("reshape", &out)?;
        match wanted.iter().filter(|&&d| d < 0).count() {
            0 if known == numel => {}
            1 if known > 0 && numel % known == 0 => {
                let at = wanted.iter().position(|&d| d < 0).expect("one is negative");
                if wanted[at] != -1 {
                    return Err(misfit());
                }
                out[at] = usize::try_from(numel / known).map_err(|_| misfit())?;
            }
            _ => return Err(misfit()),
        }
        Ok(self.map(|g, u| g.reshape(u, &out)))
    }

    /// Reorders axes: axis `i` of the result is axis `axes[i]` of this tensor. `Error::Value` unless each axis is named
    /// once.
    pub fn permute(&self, axes: &[i64]) -> Result<Tensor> {
        let rank = self.rank();
        let order = axes.iter().map(|&a| check_axis("permute", a, rank)).collect::<Result<Vec<_>>>()?;
        let mut seen = vec![false; rank];
        order.iter().for_each(|&a| seen[a] = true);
        if order.len() != rank || seen.contains(&false) {
            return Err(Error::value("permute", format!("{axes:?} is not an order of {rank} axes")));
        }
        let order: Vec<u8> = order.iter().map(|&a| a as u8).collect();
        Ok(self.map(|g, u| g.permute(u, &order)))
    }

    /// Swaps two axes.
    pub fn transpose(&self, a: i64, b: i64) -> Result<Tensor> {
        let rank = self.rank();
        let (a, b) = (check_axis("transpose", a, rank)?, check_axis("transpose", b, rank)?);
        let mut order: Vec<i64> = (0..rank as i64).collect();
        order.swap(a, b);
        self.permute(&order)
    }

    /// Transposes the last two axes: `[.., n, m] -> [.., m, n]`.
    pub fn t(&self) -> Result<Tensor> {
        self.transpose(-2, -1)
    }

    /// Moves one axis to another position; the other axes keep their order.
    pub fn move_axis(&self, from: i64, to: i64) -> Result<Tensor> {
        let rank = self.rank();
        let (from, to) = (check_axis("move_axis", from, rank)?, check_axis("move_axis", to, rank)?);
        let mut order: Vec<i64> = (0..rank as i64).filter(|&a| a != from as i64).collect();
        order.insert(to, from as i64);
        self.permute(&order)
    }

    /// Merges the axes `start..=end` into one. A scalar gives shape `[1]`.
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor> {
        let shape = self.shape();
        if shape.is_empty() {
            return self.reshape(&[1usize]);
        }
        let (a, b) = (check_axis("flatten", start, shape.len())?, check_axis("flatten", end, shape.len())?);
        if a > b {
            return Err(Error::value("flatten", format!("axis {start} lies after axis {end}")));
        }
        let mut out = shape[..a].to_vec();
        out.push(shape[a..=b].iter().product());
        out.extend_from_slice(&shape[b + 1..]);
        self.reshape(&out)
    }

    /// Splits one axis into axes of the given sizes, of which one may be -1. `Error::Value` if their product is not the
    /// axis' size.
    pub fn unflatten<D: Dim>(&self, axis: i64, sizes: &[D]) -> Result<Tensor> {
        let shape = self.shape();
        let a = check_axis("unflatten", axis, shape.len())?;
        let sizes: Vec<i64> = sizes.iter().map(|d| d.size()).collect();
        let known = sizes.iter().filter(|&&d| d >= 0).try_fold(1i64, |n, &d| n.checked_mul(d)).unwrap_or(i64::MAX);
        let rest = shape[a] as i64;
        if sizes.iter().filter(|&&d| d < 0).count() > 1
            || known == 0 && rest != 0
            || known != 0 && rest % known != 0
            || !sizes.iter().any(|&d| d < 0) && known != rest
        {
            return Err(Error::value("unflatten", format!("axis of size {rest} does not split into {sizes:?}")));
        }
        let mut out: Vec<i64> = shape[..a].iter().map(|&n| n as i64).collect();
        out.extend(sizes.iter().map(|&d| if d < 0 { rest / known.max(1) } else { d }));
        out.extend(shape[a + 1..].iter().map(|&n| n as i64));
        self.reshape(&out)
    }

    /// Removes an axis of size 1; `Error::Value` for another size.
    pub fn squeeze(&self, axis: i64) -> Result<Tensor> {
        let mut shape = self.shape();
        let a = check_axis("squeeze", axis, shape.len())?;
        if shape[a] != 1 {
            return Err(Error::value("squeeze", format!("axis {axis} of {shape:?} has size {}, not 1", shape[a])));
        }
        shape.remove(a);
        self.reshape(&shape)
    }

    /// Removes every axis of size 1.
    pub fn squeeze_all(&self) -> Result<Tensor> {
        let shape: Vec<usize> = self.shape().into_iter().filter(|&n| n != 1).collect();
        self.reshape(&shape)
    }

    /// Inserts an axis of size 1 at position `axis` of the result.
    pub fn unsqueeze(&self, axis: i64) -> Result<Tensor> {
        let mut shape = self.shape();
        let a = check_axis("unsqueeze", axis, shape.len() + 1)?;
        shape.insert(a, 1);
        self.reshape(&shape)
    }

    /// Broadcasts to `shape`: repeats axes of size 1 and adds leading axes. `Error::Shape` if another size differs.
    pub fn expand(&self, shape: &[usize]) -> Result<Tensor> {
        let own = self.shape();
        check_numel("expand", shape)?;
        let fits = |(&a, &b): (&usize, &usize)| a == b || a == 1;
        if own.len() > shape.len() || !own.iter().rev().zip(shape.iter().rev()).all(fits) {
            return Err(Error::Shape { op: "expand", lhs: own, rhs: shape.to_vec() });
        }
        Ok(self.map(|g, u| super::spread(g, u, shape)))
    }

    /// Both tensors broadcast to their common shape.
    pub fn broadcast_with(&self, other: &Tensor) -> Result<(Tensor, Tensor)> {
        let shape = broadcast_shape("broadcast", &self.shape(), &other.shape())?;
        Ok((self.expand(&shape)?, other.expand(&shape)?))
    }

    /// Reverses the order of the elements along the listed axes; an empty list means all axes.
    pub fn flip(&self, axes: &[i64]) -> Result<Tensor> {
        let axes = check_axes("flip", axes, self.rank())?;
        let axes: Vec<u8> = axes.iter().map(|&a| a as u8).collect();
        Ok(self.map(|g, u| g.flip(u, &axes)))
    }

    /// Keeps the indices `begin..end` of every axis; one pair for each axis.
    pub fn shrink(&self, pairs: &[(usize, usize)]) -> Result<Tensor> {
        let shape = self.shape();
        if pairs.len() != shape.len() || pairs.iter().zip(&shape).any(|(&(a, b), &n)| a > b || b > n) {
            return Err(Error::value("shrink", format!("{pairs:?} is not inside shape {shape:?}")));
        }
        Ok(self.map(|g, u| g.shrink(u, pairs)))
    }

    /// Adds `before` zeros at the beginning and `after` zeros at the end of every axis; one pair for each axis.
    pub fn pad_zeros(&self, pairs: &[(usize, usize)]) -> Result<Tensor> {
        let shape = self.shape();
        if pairs.len() != shape.len() {
            return Err(Error::value("pad", format!("{} pairs for shape {shape:?}", pairs.len())));
        }
        let grown = shape.iter().zip(pairs).map(|(n, (a, b))| a.checked_add(*b).and_then(|p| n.checked_add(p)));
        let grown: Option<Shape> = grown.collect();
        check_numel("pad", &grown.ok_or_else(|| Error::value("pad", "a size overflows"))?)?;
        Ok(self.map(|g, u| g.pad(u, pairs)))
    }

    /// Takes a [`Slice`] of each of the first axes; axes that are not listed are kept whole.
    pub fn slice(&self, slices: &[Slice]) -> Result<Tensor> {
        let shape = self.shape();
        if slices.len() > shape.len() {
            return Err(Error::value("slice", format!("{} slices for shape {shape:?}", slices.len())));
        }
        let mut t = self.clone();
        for (axis, s) in slices.iter().enumerate().filter(|(_, s)| **s != Slice::ALL) {
            t = t.slice_axis(axis, *s)?;
        }
        Ok(t)
    }

    fn slice_axis(&self, axis: usize, s: Slice) -> Result<Tensor> {
        let shape = self.shape();
        let (begin, end, step, reversed) = s.resolve(shape[axis]);
        let mut pairs: Vec<(usize, usize)> = shape.iter().map(|&n| (0, n)).collect();
        pairs[axis] = (begin, end);
        let mut t = self.shrink(&pairs)?;
        if step > 1 {
            t = t.stride_axis(axis, step)?;
        }
        if reversed { t.flip(&[axis as i64]) } else { Ok(t) }
    }

    /// Every `step`-th element of an axis, beginning with the first: pads the axis to a multiple of the step, splits it
    /// into `[count, step]` and keeps index 0 of the second part.
    pub(crate) fn stride_axis(&self, axis: usize, step: usize) -> Result<Tensor> {
        let shape = self.shape();
        let count = shape[axis].div_ceil(step);
        if count <= 1 {
            let mut pairs: Vec<(usize, usize)> = shape.iter().map(|&n| (0, n)).collect();
            pairs[axis] = (0, count);
            return self.shrink(&pairs);
        }
        let mut pad = vec![(0, 0); shape.len()];
        pad[axis].1 = count * step - shape[axis];
        let t = self.pad_zeros(&pad)?.unflatten(axis as i64, &[count, step])?;
        let mut pairs: Vec<(usize, usize)> = t.shape().iter().map(|&n| (0, n)).collect();
        pairs[axis + 1] = (0, 1);
        t.shrink(&pairs)?.squeeze(axis as i64 + 1)
    }

    /// The `len` elements of one axis that begin at index `start`.
    pub fn narrow(&self, axis: i64, start: usize, len: usize) -> Result<Tensor> {
        let shape = self.shape();
        let a = check_axis("narrow", axis, shape.len())?;
        let end = start.checked_add(len).filter(|&e| e <= shape[a]);
        let Some(end) = end else {
            return Err(Error::value("narrow", format!("{start}+{len} is outside axis {axis} of {shape:?}")));
        };
        let mut pairs: Vec<(usize, usize)> = shape.iter().map(|&n| (0, n)).collect();
        pairs[a] = (start, end);
        self.shrink(&pairs)
    }

    /// The slice at one index of an axis; the axis is removed. A negative index counts from the end.
    pub fn select_at(&self, axis: i64, index: i64) -> Result<Tensor> {
        let a = check_axis("select_at", axis, self.rank())?;
        let n = self.shape()[a];
        let Ok(i) = check_axis("select_at", index, n) else {
            return Err(Error::value("select_at", format!("index {index} is outside axis of size {n}")));
        };
        self.narrow(a as i64, i, 1)?.squeeze(a as i64)
    }

    /// Repeats the whole tensor `counts[i]` times along axis `i`; more counts than axes add leading axes.
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        let own = self.shape();
        if counts.len() < own.len() {
            return Err(Error::value("repeat", format!("{} counts for shape {own:?}", counts.len())));
        }
        let mut base = vec![1; counts.len() - own.len()];
        base.extend_from_slice(&own);
        let (mut split, mut spread, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for (&n, &c) in base.iter().zip(counts) {
            // an axis with a count of 1 needs no second axis to expand
            if c != 1 {
                split.push(1);
                spread.push(c);
            }
            split.push(n);
            spread.push(n);
            joined.push(n.checked_mul(c).ok_or_else(|| Error::value("repeat", "a size overflows"))?);
        }
        self.reshape(&split)?.expand(&spread)?.reshape(&joined)
    }

    /// Repeats each element of an axis `count` times in a row: `[a, b]` with a count of 2 gives `[a, a, b, b]`.
    pub fn repeat_interleave(&self, count: usize, axis: i64) -> Result<Tensor> {
        let mut shape = self.shape();
        let a = check_axis("repeat_interleave", axis, shape.len())?;
        let t = self.unsqueeze(a as i64 + 1)?;
        let mut spread = shape.clone();
        spread.insert(a + 1, count);
        shape[a] = shape[a].checked_mul(count).ok_or_else(|| Error::value("repeat_interleave", "a size overflows"))?;
        t.expand(&spread)?.reshape(&shape)
    }

    /// The main diagonal of the last two axes: `[.., n, m] -> [.., min(n, m)]`.
    pub fn diagonal(&self) -> Result<Tensor> {
        let shape = self.shape();
        let &[.., n, m] = shape.as_slice() else {
            return Err(Error::value("diagonal", format!("a matrix is needed, not shape {shape:?}")));
        };
        let k = n.min(m);
        let lead = &shape[..shape.len() - 2];
        // rows of k elements laid end to end and read again as rows of k + 1: the diagonal is then the first column
        let mut pairs: Vec<(usize, usize)> = lead.iter().map(|&n| (0, n)).collect();
        pairs.extend([(0, k), (0, k)]);
        let t = self.shrink(&pairs)?.flatten(-2, -1)?;
        let mut pad = vec![(0, 0); lead.len()];
        pad.push((0, k));
        let t = t.pad_zeros(&pad)?.unflatten(-1, &[k, k + 1])?;
        t.narrow(-1, 0, 1)?.squeeze(-1)
    }
}
