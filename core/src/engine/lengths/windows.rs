//! Windows along an axis whose length changes: what `Tensor::windows` makes by repeating the axis and cutting it into rows, so that each row
//! begins a little later. Such a row is as long as the axis, so the parts of the repeated one are no forms of a tensor with room; but where an
//! element of a window comes from does not depend on the length, so the same windows of all the room are those of every length.

use super::nodes::span;
use super::{Axis, Factor, Form, Lengths, Made, Roomy, Tuple, room_of};
use crate::uop::{Arg, Op, Pairs, UOp};
use smallvec::SmallVec;

/// Windows in one build.
#[derive(Clone, Copy)]
struct Cut {
    /// What they are of; the axis before theirs has one element.
    of: UOp,
    /// That one.
    axis: usize,
    /// Elements of a window, and from one to the next.
    k: usize,
    dilation: usize,
    /// How many there are.
    count: usize,
    /// From the first element of a window to that of the next one.
    stride: usize,
    /// Elements of the axis.
    len: usize,
    /// Is there an axis of one element behind that of the windows?
    thin: bool,
}

/// Windows in all builds.
pub(super) struct Windows {
    pub(super) of: Tuple,
    cuts: SmallVec<[Cut; 8]>,
}

impl Lengths<'_> {
    /// The only axis that a slice makes shorter, from its first element on, and its length then.
    fn cut_axis(&self, u: UOp) -> Option<(usize, usize)> {
        let Arg::Pairs(pairs) = self.g.arg(u) else { return None };
        let shape = self.g.shape(self.g.src_at(u, 0));
        let mut cut = pairs.iter().zip(shape).enumerate().filter(|(_, (p, n))| **p != (0, **n));
        let (axis, (&(begin, end), _)) = cut.next()?;
        (begin == 0 && cut.next().is_none()).then_some((axis, end))
    }

    /// Rows of an axis that is repeated, each as long as it and the dilation, of which the first `wide` elements are taken.
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

    /// Windows that end with this node.
    fn cut_of(&self, u: UOp) -> Option<Cut> {
        if self.g.op(u) != Op::Shrink {
            return None;
        }
        let inside = |c: &Cut| (c.k - 1) * c.dilation + (c.count - 1) * c.stride < c.len;
        if let Some((cut, _)) = self.rows_of(u) {
            return Some(cut).filter(|c| c.k > 0 && c.count > 0 && inside(c));
        }
        // the first of each few elements of a row
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

    /// The windows that a node is in each of the builds, if their axis changes its length.
    pub(super) fn windows_of(&self, t: &Tuple) -> Option<Windows> {
        let cuts = t.iter().map(|&u| self.cut_of(u)).collect::<Option<SmallVec<[Cut; 8]>>>()?;
        let first = cuts[0];
        let what = |c: &Cut| (c.axis, c.k, c.dilation, c.stride, c.thin);
        let alike = cuts.iter().all(|c| what(c) == what(&first)) && cuts.iter().any(|c| c.len != first.len);
        alike.then(|| Windows { of: cuts.iter().map(|c| c.of).collect(), cuts })
    }

    /// The same windows of a tensor with room.
    pub(super) fn windows(&mut self, w: &Windows, x: &Roomy) -> Made<Roomy> {
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
        let (n, o) = (shape[at], count.room);
        if (k - 1) * dilation + o.saturating_sub(1) * stride >= n {
            return Err("windows that do not fit".to_owned());
        }
        // as `Tensor::windows` does it
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
            let one = Factor { len: Form::number(n as i64), room: n };
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
        debug_assert_eq!(self.g.shape(node).as_slice(), room_of(&out.axes).as_slice());
        Ok(Roomy { node, axes: out.axes, fill: None })
    }

    /// The first `n` elements of an axis.
    fn first(&mut self, x: UOp, axis: usize, n: usize) -> UOp {
        let mut keep: Pairs = self.g.shape(x).iter().map(|&n| (0, n)).collect();
        keep[axis].1 = n;
        self.g.shrink(x, &keep)
    }
}
