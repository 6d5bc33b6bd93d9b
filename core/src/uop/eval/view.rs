//! Strided views of host bytes: how movement ops change offset and strides instead of copying, and how any part of a
//! view is read in row-major order.

use super::lanes::{Lanes, Positions, Run};
use crate::DType;
use crate::uop::{Arg, Graph, Op, UOp};
use smallvec::SmallVec;
use std::rc::Rc;

/// Size and stride (in elements) of each axis, outermost first.
pub(super) type Dims = SmallVec<[(usize, isize); 6]>;

/// A strided view of the elements of `dt` in `data`; `offset` is the element position of its first element.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) data: Rc<Vec<u8>>,
    pub(super) dt: DType,
    pub(super) offset: isize,
    pub(super) dims: Dims,
}

/// The sizes and strides of a contiguous row-major tensor.
pub(super) fn row_major(shape: &[usize]) -> Dims {
    let mut dims: Dims = shape.iter().map(|&n| (n, 0)).collect();
    let mut stride = 1isize;
    for d in dims.iter_mut().rev() {
        d.1 = stride;
        stride *= d.0.max(1) as isize;
    }
    dims
}

impl View {
    /// A view of all of `data`, which holds a row-major tensor of this shape.
    pub(super) fn new(data: Vec<u8>, dt: DType, shape: &[usize]) -> View {
        View { data: Rc::new(data), dt, offset: 0, dims: row_major(shape) }
    }

    pub(super) fn numel(&self) -> usize {
        self.dims.iter().map(|d| d.0).product()
    }

    /// Does it cover all of its data, in order?
    pub(super) fn is_plain(&self) -> bool {
        let shape: SmallVec<[usize; 6]> = self.dims.iter().map(|d| d.0).collect();
        self.offset == 0 && self.data.len() == self.numel() * self.dt.size() && self.dims == row_major(&shape)
    }

    /// Reads elements `start..start + n` in row-major order. `runs` is a work area that callers keep for the next call.
    pub(super) fn read(&self, start: usize, n: usize, runs: &mut Vec<Run>) -> Lanes {
        self.read_as(&self.dims, start, n, runs)
    }

    /// Like [`View::read`], with other sizes and strides over the same data and offset.
    pub(super) fn read_as(&self, dims: &[(usize, isize)], start: usize, n: usize, runs: &mut Vec<Run>) -> Lanes {
        fill_runs(dims, self.offset, start, n, runs);
        Lanes::read(self.dt, &self.data, Positions { runs, n })
    }

    /// The bytes of all elements in row-major order.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        if self.is_plain() {
            return self.data.as_ref().clone();
        }
        let (n, size, dims) = (self.numel(), self.dt.size(), coalesce(&self.dims));
        let (mut out, mut runs) = (Vec::with_capacity(n * size), Vec::new());
        for start in (0..n).step_by(1 << 16) {
            fill_runs(&dims, self.offset, start, (n - start).min(1 << 16), &mut runs);
            for r in &runs {
                if r.stride == 1 {
                    out.extend_from_slice(&self.data[r.start * size..(r.start + r.n) * size]);
                } else {
                    for i in 0..r.n as isize {
                        let at = (r.start as isize + i * r.stride) as usize * size;
                        out.extend_from_slice(&self.data[at..at + size]);
                    }
                }
            }
        }
        out
    }

    /// The result of the movement op `u` on this view; it copies where strides cannot express the result.
    pub(super) fn moved(self, g: &Graph, u: UOp) -> View {
        let shape = g.shape(u);
        let mut v = self;
        match (g.op(u), g.arg(u)) {
            (Op::Reshape, _) => match merge(&v.dims, shape) {
                Some(dims) => v.dims = dims,
                None => v = View::new(v.to_bytes(), v.dt, shape),
            },
            (Op::Permute, Arg::Axes(axes)) => v.dims = axes.iter().map(|&a| v.dims[a as usize]).collect(),
            (Op::Expand, _) => {
                for (d, &n) in v.dims.iter_mut().zip(shape) {
                    if d.0 != n {
                        *d = (n, 0);
                    }
                }
            }
            (Op::Shrink, Arg::Pairs(pairs)) => {
                for (d, &(a, b)) in v.dims.iter_mut().zip(pairs) {
                    v.offset += a as isize * d.1;
                    d.0 = b - a;
                }
            }
            (Op::Flip, Arg::Axes(axes)) => {
                for &a in axes {
                    let d = &mut v.dims[a as usize];
                    v.offset += (d.0 as isize - 1).max(0) * d.1;
                    d.1 = -d.1;
                }
            }
            (Op::Pad, Arg::Pairs(pairs)) => v = v.padded(pairs, shape),
            (op, arg) => unreachable!("{op:?} {arg:?} is not a movement"),
        }
        v
    }

    fn padded(&self, pairs: &[(usize, usize)], shape: &[usize]) -> View {
        let (size, n) = (self.dt.size(), self.numel());
        let mut out = View::new(vec![0; shape.iter().product::<usize>() * size], self.dt, shape);
        let inner: Dims = out.dims.iter().zip(&self.dims).map(|(o, d)| (d.0, o.1)).collect();
        let at: isize = out.dims.iter().zip(pairs).map(|(o, p)| o.1 * p.0 as isize).sum();
        let bytes = self.to_bytes();
        let mut runs = Vec::new();
        fill_runs(&inner, at, 0, n, &mut runs);
        let data = Rc::make_mut(&mut out.data);
        let mut from = 0;
        for r in &runs {
            // `inner` has strides of a row-major tensor, so runs are contiguous, or consist of single elements
            let step = if r.stride == 1 { r.n } else { 1 };
            for i in 0..r.n / step {
                let to = (r.start as isize + i as isize * r.stride) as usize * size;
                data[to..to + step * size].copy_from_slice(&bytes[from..from + step * size]);
                from += step * size;
            }
        }
        out
    }
}

/// Merges neighbouring axes that are contiguous with each other in memory, and drops axes of size 1.
pub(super) fn coalesce(dims: &[(usize, isize)]) -> Dims {
    let mut out = Dims::new();
    for &(n, s) in dims.iter().filter(|d| d.0 != 1) {
        match out.last_mut() {
            Some(last) if last.1 == s * n as isize => *last = (last.0 * n, s),
            _ => out.push((n, s)),
        }
    }
    out
}

/// Sets `runs` to the positions of elements `start..start + n`, in row-major order of `dims`, as runs along the
/// innermost axis.
pub(super) fn fill_runs(dims: &[(usize, isize)], offset: isize, start: usize, n: usize, runs: &mut Vec<Run>) {
    runs.clear();
    if n == 0 {
        return;
    }
    let Some((&(len, stride), outer)) = dims.split_last() else {
        runs.push(Run { start: offset as usize, stride: 0, n });
        return;
    };
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, outer.len());
    let (mut i, mut rest, mut base) = (start % len, start / len, offset);
    for (k, &(m, s)) in outer.iter().enumerate().rev() {
        index[k] = rest % m;
        rest /= m;
        base += index[k] as isize * s;
    }
    let mut left = n;
    loop {
        let take = (len - i).min(left);
        runs.push(Run { start: (base + i as isize * stride) as usize, stride, n: take });
        left -= take;
        if left == 0 {
            return;
        }
        i = 0;
        for k in (0..outer.len()).rev() {
            let (m, s) = outer[k];
            index[k] += 1;
            base += s;
            if index[k] < m {
                break;
            }
            index[k] = 0;
            base -= m as isize * s;
        }
    }
}

/// The sizes and strides of a reshape to `shape`; `None` if strides cannot express it and the data has to be copied.
fn merge(dims: &[(usize, isize)], shape: &[usize]) -> Option<Dims> {
    if shape.contains(&0) {
        return Some(row_major(shape));
    }
    let from = coalesce(dims);
    let mut out = Dims::new();
    let mut groups = from.iter();
    let (mut left, mut inner) = (1usize, 0isize); // elements of the merged axis not yet assigned, and its stride
    for &n in shape {
        if n == 1 {
            out.push((1, 0));
            continue;
        }
        if left == 1 {
            (left, inner) = *groups.next()?;
        }
        if left % n != 0 {
            return None;
        }
        left /= n;
        out.push((n, inner * left as isize));
    }
    Some(out)
}
