//! Sliding windows along an axis whose length changes. `Tensor::windows` makes them by repeating the axis and cutting
//! the result into rows, each of which begins a little later. The length of a row is a multiple of the axis' length
//! plus the dilation, so the intermediate axes are no forms that a padded tensor could have. But the source element of
//! each element of a window does not depend on the length, so this recognises the whole pattern in the builds and makes
//! the same windows of the padded axis.

use super::nodes::span;
use super::{Axis, AxisPart, Form, Lengths, Made, PaddedTensor, Tuple, padded_shape};
use crate::uop::{Arg, Op, Pairs, UOp};
use smallvec::SmallVec;

/// The windows in one build.
#[derive(Clone, Copy)]
struct Cut {
    /// The node that the windows are taken from; the axis before the windowed one has one element.
    of: UOp,
    /// The windowed axis.
    axis: usize,
    /// Elements of a window, and the distance between two of them.
    k: usize,
    dilation: usize,
    /// Number of windows.
    count: usize,
    /// Distance between the first elements of two windows.
    stride: usize,
    /// Length of the windowed axis.
    len: usize,
    /// Is there an axis of one element after that of the windows?
    thin: bool,
}

/// The windows in all builds.
pub(super) struct Windows {
    pub(super) of: Tuple,
    cuts: SmallVec<[Cut; 8]>,
}

impl Lengths<'_> {
    /// The only axis that a slice shortens, if it keeps the first elements, and its length afterwards.
    fn cut_axis(&self, u: UOp) -> Option<(usize, usize)> {
        let Arg::Pairs(pairs) = self.g.arg(u) else { return None };
        let shape = self.g.shape(self.g.src_at(u, 0));
        let mut cut = pairs.iter().zip(shape).enumerate().filter(|(_, (p, n))| **p != (0, **n));
        let (axis, (&(begin, end), _)) = cut.next()?;
        (begin == 0 && cut.next().is_none()).then_some((axis, end))
    }

    /// Recognises the rows of a repeated axis, each as long as a multiple of the axis plus the dilation, of which the
    /// first `wide` elements are kept.
    fn rows_of(&self, u: UOp) -> Option<(Cut, usize)> {
        let (b, wide) = self.cut_axis(u)?;
        let rows = self.g.src_at(u, 0);
        let (a, shape) = (b.checked_sub(1)?, self.g.shape(rows).to_vec());
        let (k, row) = (shape[a], shape[b]);
        let mut below = (self.g.op(rows) == Op::Reshape).then(|| self.g.src_at(rows, 0))?;
        if self.g.op(below) == Op::Shrink {
            (self.cut_axis(below)? == (a, k * row)).then_some(())?;
            below = self.g.src_at(below, 0);
        }
        if self.g.op(below) == Op::Reshape {
            below = self.g.src_at(below, 0);
        }
        if self.g.op(below) != Op::Expand {
            return None;
        }
        let (spread, of) = (self.g.shape(below).to_vec(), self.g.src_at(below, 0));
        let n = *spread.get(a + 1)?;
        let mut thin = spread.clone();
        thin[a] = 1;
        let mut whole = shape.clone();
        (whole[a], whole[b]) = (spread[a], n);
        let dilation = row % n.max(1);
        let fits = whole == spread && self.g.shape(of).as_slice() == thin && spread[a] * n >= k * row && dilation > 0;
        let cut = Cut { of, axis: a + 1, k, dilation, count: wide, stride: 1, len: n, thin: false };
        fits.then_some((cut, wide))
    }

    /// The windows whose last node this is.
    fn cut_of(&self, u: UOp) -> Option<Cut> {
        if self.g.op(u) != Op::Shrink {
            return None;
        }
        let inside = |c: &Cut| (c.k - 1) * c.dilation + (c.count - 1) * c.stride < c.len;
        if let Some((cut, _)) = self.rows_of(u) {
            return Some(cut).filter(|c| c.k > 0 && c.count > 0 && inside(c));
        }
        // with a stride: the first of every `stride` elements of a row
        let (c, one) = self.cut_axis(u)?;
        let split = self.g.src_at(u, 0);
        let shape = self.g.shape(split).to_vec();
        let (count, stride) = (*shape.get(c.checked_sub(1)?)?, shape[c]);
        let rows = (one == 1 && self.g.op(split) == Op::Reshape).then(|| self.g.src_at(split, 0))?;
        if self.g.op(rows) != Op::Shrink {
            return None;
        }
        let (cut, wide) = self.rows_of(rows)?;
        let mut joined = shape.clone();
        joined.remove(c);
        joined[c - 1] = count * stride;
        let same = cut.axis == c - 1 && wide == count * stride && self.g.shape(rows).as_slice() == joined;
        let cut = Cut { count, stride, thin: true, ..cut };
        Some(cut).filter(|c| same && c.k > 0 && c.count > 0 && inside(c))
    }

    /// The windows that a node is in each of the builds, if the length of their axis changes.
    pub(super) fn windows_of(&self, t: &Tuple) -> Option<Windows> {
        let cuts = t.iter().map(|&u| self.cut_of(u)).collect::<Option<SmallVec<[Cut; 8]>>>()?;
        let first = cuts[0];
        let what = |c: &Cut| (c.axis, c.k, c.dilation, c.stride, c.thin);
        let alike = cuts.iter().all(|c| what(c) == what(&first)) && cuts.iter().any(|c| c.len != first.len);
        alike.then(|| Windows { of: cuts.iter().map(|c| c.of).collect(), cuts })
    }

    /// The same windows of a padded tensor.
    pub(super) fn windows(&mut self, w: &Windows, x: &PaddedTensor) -> Made<PaddedTensor> {
        let Cut { axis, k, dilation, stride, thin, .. } = w.cuts[0];
        let mut out = x.clone();
        self.join_parts(&mut out, axis);
        let counts: Vec<i64> = w.cuts.iter().map(|c| c.count as i64).collect();
        let count = self.axis(&counts)?;
        let [count] = &count[..] else { return Err("windows of several lengths".to_owned()) };
        let (at, parts) = span(&out.axes, axis);
        if parts != 1 || span(&out.axes, axis - 1).1 != 1 {
            return Err("windows of an axis that was made of several lengths".to_owned());
        }
        let shape = self.g.shape(out.node).to_vec();
        let (n, o) = (shape[at], count.capacity);
        if (k - 1) * dilation + o.saturating_sub(1) * stride >= n {
            return Err("windows that do not fit".to_owned());
        }
        // the same construction as in `Tensor::windows`
        let row = n * (o * stride).saturating_sub(dilation).div_ceil(n).max(1) + dilation;
        let times = (k * row).div_ceil(n);
        let mut sizes = shape.clone();
        sizes[at - 1] = times;
        let mut node = self.g.expand(out.node, &sizes);
        sizes.remove(at - 1);
        sizes[at - 1] = times * n;
        node = self.g.reshape(node, &sizes);
        node = self.first(node, at - 1, k * row);
        sizes[at - 1] = k;
        sizes.insert(at, row);
        node = self.g.reshape(node, &sizes);
        node = self.first(node, at, o * stride);
        sizes[at] = o;
        let number = |n: usize| -> Axis {
            let one = AxisPart { len: Form::number(n as i64), capacity: n };
            if n == 1 { Axis::new() } else { [one].into_iter().collect() }
        };
        out.axes[axis - 1] = number(k);
        out.axes[axis] = [count.clone()].into_iter().collect();
        if thin {
            sizes.insert(at + 1, stride);
            node = self.g.reshape(node, &sizes);
            node = self.first(node, at + 1, 1);
            out.axes.insert(axis + 1, Axis::new());
        }
        debug_assert_eq!(self.g.shape(node).as_slice(), padded_shape(&out.axes).as_slice());
        Ok(PaddedTensor { node, axes: out.axes, fill: None })
    }

    /// The first `n` elements of an axis.
    fn first(&mut self, x: UOp, axis: usize, n: usize) -> UOp {
        let mut keep: Pairs = self.g.shape(x).iter().map(|&n| (0, n)).collect();
        keep[axis].1 = n;
        self.g.shrink(x, &keep)
    }
}
