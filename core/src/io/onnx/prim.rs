//! The primitives that operators are written with: each folds on the host if it can and is a lazy tensor otherwise.

use super::host::{self, Bin, Red, Un};
use super::lazy;
use super::value::{Cx, Value};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};

/// Geometry of a convolution or pooling over the spatial axes.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub(super) kernel: Vec<usize>,
    pub(super) stride: Vec<usize>,
    pub(super) dilation: Vec<usize>,
    /// Padding before and after each axis.
    pub(super) pads: Vec<(usize, usize)>,
}

fn misfit(op: &'static str, a: &Value, b: &Value) -> Error {
    Error::Shape { op, lhs: a.shape().to_vec(), rhs: b.shape().to_vec() }
}

/// Axes of a value, each named at most once.
fn check_axes(v: &Value, axes: &[usize]) -> Result<()> {
    for (i, &a) in axes.iter().enumerate() {
        v.dim(a)?;
        if axes.iter().take(i).any(|&b| a == b) {
            return Err(Error::value("onnx", format!("axes {axes:?} name one axis twice")));
        }
    }
    Ok(())
}

/// Lists with one number for each axis.
fn check_lists(v: &Value, lists: [usize; 2]) -> Result<()> {
    if lists.iter().all(|&n| n == v.rank()) {
        return Ok(());
    }
    let what = format!("{} and {} numbers for the axes of {:?}", lists[0], lists[1], v.shape());
    Err(Error::value("onnx", what))
}

impl Cx<'_> {
    pub(super) fn unary(&self, op: Un, v: &Value) -> Result<Value> {
        if let Some(t) = self.fold(&[v], v.len()) {
            return Ok(Value::known(host::unary(op, &t[0])));
        }
        lazy::unary(op, &self.lazy(v)?).map(Value::lazy)
    }

    /// Operands have one dtype; shapes broadcast.
    pub(super) fn binary(&self, op: Bin, a: &Value, b: &Value) -> Result<Value> {
        if a.dtype() != b.dtype() {
            let why = format!("the other operand is {}", b.dtype());
            return Err(Error::DType { op: "onnx", dtype: a.dtype(), why });
        }
        let shape = host::broadcast(a.shape(), b.shape()).ok_or_else(|| misfit("broadcast", a, b))?;
        if let Some(t) = self.fold(&[a, b], self.check_shape(&shape)?)
            && let Some(out) = host::binary(op, &t[0], &t[1])
        {
            return Ok(Value::known(out));
        }
        if op == Bin::Pow
            && b.rank() <= a.rank()
            && let Some(t) = self.fold(&[b], 0)
            && let [exponent] = t[0].to_f64()[..]
        {
            return lazy::pow(&self.lazy(a)?, exponent).map(Value::lazy);
        }
        lazy::binary(op, &self.lazy(a)?, &self.lazy(b)?).map(Value::lazy)
    }

    /// A binary primitive with a number of the operand's dtype on the right.
    pub(super) fn with(&self, op: Bin, a: &Value, b: f64) -> Result<Value> {
        self.binary(op, a, &self.scalar_like(a, b))
    }

    pub(super) fn add(&self, a: &Value, b: &Value) -> Result<Value> {
        self.binary(Bin::Add, a, b)
    }

    pub(super) fn sub(&self, a: &Value, b: &Value) -> Result<Value> {
        self.binary(Bin::Sub, a, b)
    }

    pub(super) fn mul(&self, a: &Value, b: &Value) -> Result<Value> {
        self.binary(Bin::Mul, a, b)
    }

    pub(super) fn div(&self, a: &Value, b: &Value) -> Result<Value> {
        self.binary(Bin::Div, a, b)
    }

    pub(super) fn not(&self, a: &Value) -> Result<Value> {
        self.unary(Un::Not, a)
    }

    /// Clamps to [lo, hi].
    pub(super) fn clamp(&self, v: &Value, lo: f64, hi: f64) -> Result<Value> {
        self.with(Bin::Min, &self.with(Bin::Max, v, lo)?, hi)
    }

    pub(super) fn select(&self, c: &Value, a: &Value, b: &Value) -> Result<Value> {
        if a.dtype() != b.dtype() {
            let why = format!("the other branch is {}", b.dtype());
            return Err(Error::DType { op: "where", dtype: a.dtype(), why });
        }
        if c.dtype() != DType::Bool {
            return Err(Error::DType { op: "where", dtype: c.dtype(), why: "a condition is bool".to_owned() });
        }
        let shape = host::broadcast(a.shape(), b.shape()).ok_or_else(|| misfit("where", a, b))?;
        let shape = host::broadcast(&shape, c.shape()).ok_or_else(|| misfit("where", c, a))?;
        if let Some(t) = self.fold(&[c, a, b], self.check_shape(&shape)?)
            && let Some(out) = host::select(&t[0], &t[1], &t[2])
        {
            return Ok(Value::known(out));
        }
        lazy::select(&self.lazy(c)?, &self.lazy(a)?, &self.lazy(b)?).map(Value::lazy)
    }

    pub(super) fn cast(&self, v: &Value, to: DType) -> Result<Value> {
        if v.dtype() == to {
            return Ok(v.clone());
        }
        if let Some(t) = self.fold(&[v], v.len()) {
            return Ok(Value::known(t[0].cast(to)));
        }
        lazy::cast(&self.lazy(v)?, to).map(Value::lazy)
    }

    /// The same bits as another dtype of the same size.
    pub(super) fn bitcast(&self, v: &Value, to: DType) -> Result<Value> {
        if v.dtype() == to {
            return Ok(v.clone());
        }
        if let Some(mut t) = self.fold(&[v], v.len()) {
            t[0].dtype = to;
            return Ok(Value::known(t.swap_remove(0)));
        }
        self.lazy(v)?.bitcast(to).map(Value::lazy)
    }

    pub(super) fn reshape(&self, v: &Value, shape: &[usize]) -> Result<Value> {
        if v.shape() == shape {
            return Ok(v.clone());
        }
        if self.check_shape(shape)? != v.len() {
            return Err(Error::Shape { op: "reshape", lhs: v.shape().to_vec(), rhs: shape.to_vec() });
        }
        if let Some(mut t) = self.fold(&[v], v.len()) {
            t[0].shape = shape.to_vec();
            return Ok(Value::known(t.swap_remove(0)));
        }
        lazy::reshape(&self.lazy(v)?, shape).map(Value::lazy)
    }

    pub(super) fn permute(&self, v: &Value, order: &[usize]) -> Result<Value> {
        check_axes(v, order)?;
        check_lists(v, [order.len(); 2])?;
        if order.iter().enumerate().all(|(i, &a)| i == a) {
            return Ok(v.clone());
        }
        if let Some(t) = self.fold(&[v], v.len()) {
            return Ok(Value::known(host::permute(&t[0], order)));
        }
        lazy::permute(&self.lazy(v)?, order).map(Value::lazy)
    }

    /// The same values, side by side in storage of their own.
    pub(super) fn stored(&self, v: &Value) -> Result<Value> {
        if v.is_known() { Ok(v.clone()) } else { Ok(Value::lazy(self.lazy(v)?.contiguous())) }
    }

    pub(super) fn swap(&self, v: &Value, a: usize, b: usize) -> Result<Value> {
        v.dim(a.max(b))?;
        let mut order: Vec<usize> = (0..v.rank()).collect();
        order.swap(a, b);
        self.permute(v, &order)
    }

    /// Broadcasts to exactly `shape`.
    pub(super) fn expand(&self, v: &Value, shape: &[usize]) -> Result<Value> {
        if v.shape() == shape {
            return Ok(v.clone());
        }
        if host::broadcast(v.shape(), shape).as_deref() != Some(shape) {
            return Err(Error::Shape { op: "expand", lhs: v.shape().to_vec(), rhs: shape.to_vec() });
        }
        if let Some(t) = self.fold(&[v], self.check_shape(shape)?) {
            return Ok(Value::known(host::expand(&t[0], shape)));
        }
        lazy::expand(&self.lazy(v)?, shape).map(Value::lazy)
    }

    /// `len[i]` elements of each axis from `start[i]` by `step[i]` (not 0).
    pub(super) fn slice(&self, v: &Value, start: &[usize], len: &[usize], step: &[isize]) -> Result<Value> {
        if len == v.shape() && step.iter().all(|&s| s == 1) {
            return Ok(v.clone());
        }
        check_lists(v, [start.len(), len.len()])?;
        check_lists(v, [step.len(); 2])?;
        // the last place that each axis reads
        let inside = |(((&at, &n), &by), &size): (((&usize, &usize), &isize), &usize)| match n.checked_sub(1) {
            None => true,
            Some(turns) => {
                let end = turns.checked_mul(by.unsigned_abs()).and_then(|reach| match by > 0 {
                    true => at.checked_add(reach),
                    false => at.checked_sub(reach).map(|_| at),
                });
                by != 0 && end.is_some_and(|end| end < size)
            }
        };
        if !start.iter().zip(len).zip(step).zip(v.shape()).all(inside) {
            let what = format!("{len:?} elements from {start:?} by {step:?} do not lie in {:?}", v.shape());
            return Err(Error::value("slice", what));
        }
        if let Some(t) = self.fold(&[v], v.len()) {
            return Ok(Value::known(host::slice(&t[0], start, len, step)));
        }
        if len.contains(&0) {
            return self.full(v.dtype(), len, Scalar::from_i64(0, v.dtype()));
        }
        lazy::slice(&self.lazy(v)?, start, len, step).map(Value::lazy)
    }

    /// Elements `start .. start + len` of one axis.
    pub(super) fn narrow(&self, v: &Value, axis: usize, start: usize, len: usize) -> Result<Value> {
        let (mut s, mut l) = (vec![0; v.rank()], v.shape().to_vec());
        let (Some(at), Some(size)) = (s.get_mut(axis), l.get_mut(axis)) else { return Err(v.no_axis(axis)) };
        (*at, *size) = (start, len);
        self.slice(v, &s, &l, &vec![1; v.rank()])
    }

    pub(super) fn flip(&self, v: &Value, axis: usize) -> Result<Value> {
        let n = v.dim(axis)?;
        let (mut start, mut step) = (vec![0; v.rank()], vec![1; v.rank()]);
        (start[axis], step[axis]) = (n.saturating_sub(1), -1);
        if v.len() == 0 { Ok(v.clone()) } else { self.slice(v, &start, v.shape(), &step) }
    }

    pub(super) fn pad(&self, v: &Value, before: &[usize], after: &[usize], with: Scalar) -> Result<Value> {
        check_lists(v, [before.len(), after.len()])?;
        if before.iter().chain(after).all(|&n| n == 0) {
            return Ok(v.clone());
        }
        let grow = |((d, a), b): ((&usize, &usize), &usize)| d.checked_add(*a)?.checked_add(*b);
        let shape: Option<Vec<usize>> = v.shape().iter().zip(before).zip(after).map(grow).collect();
        let shape = shape.ok_or_else(|| Error::value("pad", "the padded size overflows"))?;
        if let Some(t) = self.fold(&[v], self.check_shape(&shape)?) {
            return Ok(Value::known(host::pad(&t[0], before, after, with)));
        }
        lazy::pad(&self.lazy(v)?, before, after, with).map(Value::lazy)
    }

    pub(super) fn concat(&self, parts: &[Value], axis: usize) -> Result<Value> {
        let (first, rest) = parts.split_first().ok_or_else(|| Error::value("concat", "nothing to join"))?;
        first.dim(axis)?;
        for p in rest {
            let same = p.rank() == first.rank()
                && p.shape().iter().zip(first.shape()).enumerate().all(|(i, (a, b))| i == axis || a == b);
            if !same {
                return Err(misfit("concat", first, p));
            }
            if p.dtype() != first.dtype() {
                let why = format!("the first part is {}", first.dtype());
                return Err(Error::DType { op: "concat", dtype: p.dtype(), why });
            }
        }
        if rest.is_empty() {
            return Ok(first.clone());
        }
        let mut shape = first.shape().to_vec();
        let total = parts.iter().try_fold(0usize, |n, p| n.checked_add(p.extent(axis)));
        let total = total.ok_or_else(|| Error::value("concat", "the joined size overflows"))?;
        *shape.get_mut(axis).ok_or_else(|| first.no_axis(axis))? = total;
        if let Some(t) = self.fold(&parts.iter().collect::<Vec<_>>(), self.check_shape(&shape)?) {
            return Ok(Value::known(host::concat(&t.iter().collect::<Vec<_>>(), axis)));
        }
        let full: Vec<&Value> = parts.iter().filter(|p| p.extent(axis) > 0).collect();
        match &full[..] {
            [] => Ok(first.clone()),
            [one] => Ok((*one).clone()),
            _ => {
                let list = full.iter().map(|p| self.lazy(p)).collect::<Result<Vec<_>>>()?;
                lazy::concat(&list, axis).map(Value::lazy)
            }
        }
    }

    /// Reduces `axes`; they stay with length 1 if `keep`.
    pub(super) fn reduce(&self, op: Red, v: &Value, axes: &[usize], keep: bool) -> Result<Value> {
        check_axes(v, axes)?;
        let kept: Vec<usize> =
            v.shape().iter().enumerate().map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect();
        let out = if axes.is_empty() {
            v.clone()
        } else if let Some(t) = self.fold(&[v], v.len()) {
            Value::known(host::reduce(op, &t[0], axes))
        } else {
            Value::lazy(lazy::reduce(op, &self.lazy(v)?, axes)?)
        };
        self.drop_axes(&out, &kept, axes, keep)
    }

    fn drop_axes(&self, v: &Value, kept: &[usize], axes: &[usize], keep: bool) -> Result<Value> {
        if keep {
            return self.reshape(v, kept);
        }
        let shape: Vec<usize> = (0..kept.len()).filter(|i| !axes.contains(i)).map(|i| kept[i]).collect();
        self.reshape(v, &shape)
    }

    /// `f` of it, of 16-bit floats in f32 and rounded once.
    pub(super) fn in_f32(&self, v: &Value, f: &dyn Fn(&Value) -> Result<Value>) -> Result<Value> {
        match v.dtype() {
            dt @ (DType::F16 | DType::BF16) => self.cast(&f(&self.cast(v, DType::F32)?)?, dt),
            _ => f(v),
        }
    }

    /// Mean over `axes`.
    pub(super) fn mean(&self, v: &Value, axes: &[usize], keep: bool) -> Result<Value> {
        // neither the sum nor the count has to fit a 16-bit float
        self.in_f32(v, &|v| self.mean_wide(v, axes, keep))
    }

    fn mean_wide(&self, v: &Value, axes: &[usize], keep: bool) -> Result<Value> {
        let n: usize = axes.iter().map(|&a| v.extent(a)).product();
        let sum = self.reduce(Red::Sum, v, axes, keep)?;
        if v.dtype().is_float() {
            self.with(Bin::Mul, &sum, 1.0 / n as f64)
        } else {
            self.with(Bin::Div, &sum, n as f64)
        }
    }

    /// Index (i64) of the first largest element.
    pub(super) fn argmax(&self, v: &Value, axis: usize, keep: bool) -> Result<Value> {
        let mut kept = v.shape().to_vec();
        *kept.get_mut(axis).ok_or_else(|| v.no_axis(axis))? = 1;
        let out = if let Some(t) = self.fold(&[v], v.len()) {
            Value::known(host::argmax(&t[0], axis))
        } else {
            Value::lazy(lazy::argmax(&self.lazy(v)?, axis)?)
        };
        self.drop_axes(&out, &kept, &[axis], keep)
    }

    pub(super) fn cumsum(&self, v: &Value, axis: usize) -> Result<Value> {
        v.dim(axis)?;
        if let Some(t) = self.fold(&[v], v.len()) {
            return Ok(Value::known(host::cumsum(&t[0], axis)));
        }
        lazy::cumsum(&self.lazy(v)?, axis).map(Value::lazy)
    }

    /// Product of all elements up to each.
    pub(super) fn cumprod(&self, v: &Value, axis: usize) -> Result<Value> {
        self.lazy(v)?.cumprod(axis as i64)?.cast(v.dtype()).map(Value::lazy)
    }

    pub(super) fn top_k(&self, v: &Value, axis: usize, k: usize, largest: bool) -> Result<(Value, Value)> {
        if k > v.dim(axis)? {
            return Err(Error::value("top_k", format!("{k} elements of {:?} along axis {axis}", v.shape())));
        }
        if let Some(t) = self.fold(&[v], v.len()) {
            let (a, b) = host::top_k(&t[0], axis, k, largest);
            return Ok((Value::known(a), Value::known(b)));
        }
        let (a, b) = lazy::top_k(&self.lazy(v)?, axis, k, largest)?;
        Ok((Value::lazy(a), Value::lazy(b)))
    }

    /// `out[.., i.., ..] = v[.., index[i..], ..]`; negative indices count from the end.
    pub(super) fn gather(&self, v: &Value, index: &Value, axis: usize) -> Result<Value> {
        let shape = [v.shape_in(..axis)?, index.shape(), v.shape_in(axis + 1..)?].concat();
        self.check_shape(&shape)?;
        // a small pick out of a large constant is worth reading it, but only if the pick is known
        if let Some(t) = self.fold(&[v, index], 0) {
            let out = host::gather(&t[0], &t[1], axis);
            let bad = || Error::value("gather", format!("an index is out of range for axis {axis} of {:?}", v.shape()));
            return out.map(Value::known).ok_or_else(bad);
        }
        if let Some(t) = self.fold(&[index], 0)
            && let [i] = t[0].to_i64()[..]
        {
            // one known index is a slice
            let n = v.dim(axis)?;
            let at = if i < 0 { i + n as i64 } else { i };
            let at = usize::try_from(at).ok().filter(|&at| at < n);
            let at = at.ok_or_else(|| Error::value("gather", format!("index {i} is out of range for {n}")))?;
            return self.reshape(&self.narrow(v, axis, at, 1)?, &shape);
        }
        lazy::gather(&self.lazy(v)?, &self.lazy(index)?, axis).map(Value::lazy)
    }

    pub(super) fn gather_elements(&self, v: &Value, index: &Value, axis: usize) -> Result<Value> {
        let fits = v.rank() == index.rank()
            && v.shape().iter().zip(index.shape()).enumerate().all(|(a, (&n, &m))| a == axis || m <= n);
        if !fits {
            return Err(misfit("gather_elements", v, index));
        }
        v.dim(axis)?;
        if let Some(t) = self.fold(&[v, index], index.len()) {
            let out = host::gather_elements(&t[0], &t[1], axis);
            return out.map(Value::known).ok_or_else(|| Error::value("gather", "an index is out of range"));
        }
        lazy::gather_elements(&self.lazy(v)?, &self.lazy(index)?, axis).map(Value::lazy)
    }

    pub(super) fn scatter_elements(
        &self,
        v: &Value,
        index: &Value,
        updates: &Value,
        axis: usize,
        how: Option<Bin>,
    ) -> Result<Value> {
        let fits = v.rank() == index.rank()
            && v.shape().iter().zip(index.shape()).enumerate().all(|(a, (&n, &m))| a == axis || m <= n)
            && index.shape() == updates.shape();
        if !fits {
            return Err(misfit("scatter", v, index));
        }
        v.dim(axis)?;
        if let Some(t) = self.fold(&[v, index, updates], v.len()) {
            let out = host::scatter_elements(&t[0], &t[1], &t[2], axis, how);
            return out.map(Value::known).ok_or_else(|| Error::value("scatter", "an index is out of range"));
        }
        lazy::scatter_elements(&self.lazy(v)?, &self.lazy(index)?, &self.lazy(updates)?, axis, how).map(Value::lazy)
    }

    /// Slices of `v` at rows of coordinates, replaced by `updates` or combined with them.
    pub(super) fn scatter_nd(&self, v: &Value, index: &Value, updates: &Value, how: Option<Bin>) -> Result<Value> {
        if index.extent(index.rank().wrapping_sub(1)) > v.rank() || index.rank() == 0 {
            return Err(misfit("scatter_nd", v, index));
        }
        if let Some(t) = self.fold(&[v, index, updates], v.len()) {
            let out = host::scatter_nd(&t[0], &t[1], &t[2], how);
            return out.map(Value::known).ok_or_else(|| Error::value("scatter", "an index is out of range"));
        }
        lazy::scatter_nd(&self.lazy(v)?, &self.lazy(index)?, &self.lazy(updates)?, how).map(Value::lazy)
    }

    /// Product of the last two axes, the others broadcast; integers too.
    pub(super) fn matmul(&self, a: &Value, b: &Value) -> Result<Value> {
        let (ra, rb) = (a.rank(), b.rank());
        if ra == 0 || rb == 0 || a.dtype() != b.dtype() {
            return Err(misfit("matmul", a, b));
        }
        // vectors become matrices and their axis goes away again
        let a2 = if ra == 1 { self.reshape(a, &[1, a.dim(0)?])? } else { a.clone() };
        let b2 = if rb == 1 { self.reshape(b, &[b.dim(0)?, 1])? } else { b.clone() };
        let (sa, sb) = (a2.shape(), b2.shape());
        let ((la, ma), (lb, mb)) = (sa.split_at(sa.len() - 2), sb.split_at(sb.len() - 2));
        let lead = host::broadcast(la, lb).filter(|_| ma[1] == mb[0]).ok_or_else(|| misfit("matmul", a, b))?;
        let mut shape = [&lead[..], &[ma[0], mb[1]]].concat();
        let out = if ma[1] == 0 {
            self.full(a.dtype(), &shape, Scalar::from_i64(0, a.dtype()))?
        } else if let Some(t) = self.fold(&[&a2, &b2], self.check_shape(&shape)?) {
            Value::known(super::host_nn::matmul(&t[0], &t[1], &lead))
        } else {
            Value::lazy(lazy::matmul(&self.lazy(&a2)?, &self.lazy(&b2)?)?)
        };
        if rb == 1 {
            shape.pop();
        }
        if ra == 1 {
            shape.remove(lead.len());
        }
        self.reshape(&out, &shape)
    }

    /// Cross-correlation of [n, c, ..] with [o, c / groups, ..]; shapes are checked by the caller.
    pub(super) fn conv(&self, x: &Value, w: &Value, win: &Window, groups: usize) -> Result<Value> {
        if self.fold_limit == usize::MAX
            && let Some(t) = self.fold(&[x, w], 0)
        {
            return Ok(Value::known(super::host_nn::conv(&t[0], &t[1], win, groups)));
        }
        lazy::conv(&self.lazy(x)?, &self.lazy(w)?, win, groups).map(Value::lazy)
    }

    /// The transpose of [`Cx::conv`] in x: [n, c, ..] with [c, o / groups, ..]; output padding is done by the caller.
    pub(super) fn conv_transpose(&self, x: &Value, w: &Value, win: &Window, groups: usize) -> Result<Value> {
        let apart = win.kernel == win.stride && win.dilation.iter().all(|&d| d == 1);
        if apart && win.pads.iter().all(|&p| p == (0, 0)) {
            return self.conv_transpose_apart(x, w, win, groups);
        }
        // zeros between the elements, then a convolution with the flipped kernel
        let spatial = win.kernel.len();
        let x = self.dilate(x, &win.stride)?;
        let (c, o) = (w.dim(0)?, w.dim(1)?);
        let mut w = w.clone();
        for i in 0..spatial {
            w = self.flip(&w, 2 + i)?;
        }
        let w = self.reshape(&w, &[&[groups, c / groups, o], &win.kernel[..]].concat())?;
        let w = self.swap(&w, 1, 2)?;
        let w = self.reshape(&w, &[&[groups * o, c / groups], &win.kernel[..]].concat())?;
        // full correlation is padded by reach; what the caller cuts off is padded less, or cut
        let reach: Vec<usize> = win.kernel.iter().zip(&win.dilation).map(|(k, d)| (k - 1) * d).collect();
        let mut inner = Window { stride: vec![1; spatial], pads: vec![(0, 0); spatial], ..win.clone() };
        let (mut start, mut len) = (vec![0; x.rank()], x.shape().to_vec());
        for i in 0..spatial {
            let (before, after) = win.pads[i];
            inner.pads[i] = (reach[i].saturating_sub(before), reach[i].saturating_sub(after));
            start[2 + i] = before.saturating_sub(reach[i]);
            len[2 + i] = len[2 + i].saturating_sub(start[2 + i] + after.saturating_sub(reach[i]));
        }
        let x = self.slice(&x, &start, &len, &vec![1; x.rank()])?;
        self.conv(&x, &w, &inner, groups)
    }

    /// A transposed convolution whose results do not overlap: a product over the channels gives every tap of every place.
    fn conv_transpose_apart(&self, x: &Value, w: &Value, win: &Window, groups: usize) -> Result<Value> {
        let (c, o, spatial) = (w.dim(0)?, w.dim(1)?, win.kernel.len());
        let taps: usize = win.kernel.iter().product();
        let w = self.reshape(w, &[groups, c / groups, o * taps])?;
        let w = self.swap(&w, 1, 2)?;
        let w = self.reshape(&w, &[&[groups * o * taps, c / groups][..], &vec![1; spatial]].concat())?;
        let one = vec![1; spatial];
        let point = Window { kernel: one.clone(), stride: one.clone(), dilation: one, pads: vec![(0, 0); spatial] };
        let y = self.conv(x, &w, &point, groups)?;
        let (n, places) = (y.dim(0)?, x.shape_in(2..)?.to_vec());
        let y = self.reshape(&y, &[&[n, groups * o][..], &win.kernel, &places].concat())?;
        let pairs = (0..spatial).flat_map(|i| [2 + spatial + i, 2 + i]);
        let y = self.permute(&y, &[0, 1].into_iter().chain(pairs).collect::<Vec<_>>())?;
        let out: Vec<usize> = places.iter().zip(&win.kernel).map(|(p, k)| p * k).collect();
        self.reshape(&y, &[&[n, groups * o][..], &out].concat())
    }

    /// Puts `stride - 1` zeros between elements of the spatial axes.
    fn dilate(&self, x: &Value, stride: &[usize]) -> Result<Value> {
        let mut x = x.clone();
        for (i, &s) in stride.iter().enumerate().filter(|(_, s)| **s > 1) {
            let axis = 2 + i;
            let mut shape = x.shape().to_vec();
            let n = shape[axis];
            shape.insert(axis + 1, 1);
            let wide = self.reshape(&x, &shape)?;
            let (zero, mut after) = (vec![0; shape.len()], vec![0; shape.len()]);
            after[axis + 1] = s - 1;
            let wide = self.pad(&wide, &zero, &after, Scalar::from_i64(0, x.dtype()))?;
            shape.remove(axis + 1);
            shape[axis] = n * s;
            x = self.narrow(&self.reshape(&wide, &shape)?, axis, 0, (n * s).saturating_sub(s - 1))?;
        }
        Ok(x)
    }

    /// The windows over the spatial (last) axes of an already padded tensor: [.., out.., kernel..].
    pub(super) fn windows(&self, x: &Value, win: &Window) -> Result<Value> {
        if let Some(t) = self.fold(&[x], 0) {
            return Ok(Value::known(super::host_nn::windows(&t[0], win)));
        }
        lazy::windows(&self.lazy(x)?, win).map(Value::lazy)
    }
}
