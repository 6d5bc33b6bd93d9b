//! The primitives that ONNX operators are composed of: methods of tensors with checked operands. A primitive is folded
//! on the host if its operands are known and small, and is a lazy tensor otherwise ([`Cx::apply`]).

use super::fold::in_dtype;
use super::value::{Cx, Value};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::tensor::{ConvOpts, ConvTransposeOpts, Operand, PadMode, ScatterOp, Tensor, broadcast_shape};

/// A primitive on one operand.
pub(super) type Unary = fn(&Tensor) -> Result<Tensor>;
/// A primitive on two operands of equal dtype, with broadcasting.
pub(super) type Binary<'m> = fn(&Cx<'m>, &Value, &Value) -> Result<Value>;
/// A reduction of some axes; the flag keeps them with length 1.
pub(super) type Reduction = fn(&Tensor, &[i64], bool) -> Result<Tensor>;

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

/// Checks that the value has these axes and that none is named twice.
fn check_axes(v: &Value, axes: &[usize]) -> Result<()> {
    for (i, &a) in axes.iter().enumerate() {
        v.dim(a)?;
        if axes.iter().take(i).any(|&b| a == b) {
            return Err(Error::value("onnx", format!("axes {axes:?} name one axis twice")));
        }
    }
    Ok(())
}

/// Checks that two lists have one number for each axis.
fn check_lists(v: &Value, lists: [usize; 2]) -> Result<()> {
    if lists.iter().all(|&n| n == v.rank()) {
        return Ok(());
    }
    let what = format!("{} and {} numbers for the axes of {:?}", lists[0], lists[1], v.shape());
    Err(Error::value("onnx", what))
}

/// A scalar of this dtype as an operand of a tensor method.
pub(super) fn operand(dtype: DType, v: Scalar) -> Operand {
    match dtype {
        DType::Bool => Operand::Bool(v.as_bool()),
        d if d.is_float() => Operand::Float(v.as_f64()),
        _ => Operand::Int(v.as_i64()),
    }
}

fn signed(axes: &[usize]) -> Vec<i64> {
    axes.iter().map(|&a| a as i64).collect()
}

/// `len[i] > 0` elements of each axis, beginning at `start[i]`, in steps of `step[i]`.
fn strided(t: &Tensor, start: &[usize], len: &[usize], step: &[isize]) -> Result<Tensor> {
    let reach = |i: usize| (len[i] - 1) * step[i].unsigned_abs();
    let cut = |i: usize| match step[i] > 0 {
        true => (start[i], start[i] + reach(i) + 1),
        false => (start[i] - reach(i), start[i] + 1),
    };
    let mut t = t.shrink(&(0..len.len()).map(cut).collect::<Vec<_>>())?;
    let back: Vec<usize> = (0..len.len()).filter(|&i| step[i] < 0 && len[i] > 1).collect();
    if !back.is_empty() {
        t = t.flip(&signed(&back))?;
    }
    for i in (0..len.len()).filter(|&i| step[i].unsigned_abs() > 1 && len[i] > 1) {
        t = t.stride_axis(i, step[i].unsigned_abs())?;
    }
    Ok(t)
}

/// Defines methods for elementwise primitives on two operands.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = |$a:ident, $b:ident| $e:expr;)*) => {
        impl Cx<'_> {$(
            $(#[$doc])*
            pub(super) fn $name(&self, a: &Value, b: &Value) -> Result<Value> {
                self.binary(a, b, &|$a, $b| $e)
            }
        )*}
    };
}
binary! {
    add = |a, b| a.add(b);
    sub = |a, b| a.sub(b);
    mul = |a, b| a.mul(b);
    /// The quotient; integers are truncated towards zero.
    div = |a, b| if a.dtype().is_float() { in_f32(a, b, &|t| t[0].div(&t[1])) } else { a.trunc_div(b) };
    /// `a - b * trunc(a / b)`, with the sign of a (C's `%`, `fmod`).
    rem = |a, b| in_f32(a, b, &|t| t[0].fmod(&t[1]));
    /// The larger operand; NaN if either is NaN.
    max = |a, b| a.maximum(b);
    /// The smaller operand; NaN if either is NaN.
    min = |a, b| a.minimum(b);
    lt = |a, b| a.lt(b);
    eq = |a, b| a.eq(b);
    /// Bitwise, or logical for bools, as are the next two.
    and = |a, b| a.bit_and(b);
    or = |a, b| a.bit_or(b);
    xor = |a, b| a.bit_xor(b);
    shl = |a, b| a.shift_left(b);
    shr = |a, b| a.shift_right(b);
}

/// Computes operations on 16-bit floats in f32 and rounds once, as the ONNX operator sets specify.
fn in_f32(a: &Tensor, b: &Tensor, make: super::fold::Make<'_>) -> Result<Tensor> {
    let both = [a.clone(), b.clone()];
    if matches!(a.dtype(), DType::F16 | DType::BF16) { in_dtype(DType::F32, &both, make) } else { make(&both) }
}

impl Cx<'_> {
    pub(super) fn unary(&self, f: Unary, v: &Value) -> Result<Value> {
        self.compute(&[v], v.len(), &|t| f(&t[0]))
    }

    /// Number of elements of the shape that both operands broadcast to.
    fn common(&self, a: &Value, b: &Value) -> Result<usize> {
        if a.dtype() != b.dtype() {
            let why = format!("the other operand is {}", b.dtype());
            return Err(Error::DType { op: "onnx", dtype: a.dtype(), why });
        }
        self.check_shape(&broadcast_shape("broadcast", a.shape(), b.shape())?)
    }

    fn binary(&self, a: &Value, b: &Value, f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Value> {
        self.apply(&[a, b], self.common(a, b)?, &|t| f(&t[0], &t[1]))
    }

    /// a to the power b.
    pub(super) fn pow(&self, a: &Value, b: &Value) -> Result<Value> {
        let len = self.common(a, b)?;
        // A known exponent lets square roots and small powers do without logarithms.
        let exponent = self.fold(&[b], 0).filter(|_| b.rank() <= a.rank() && b.len() == 1);
        match exponent.and_then(|t| t[0].scalars().next()) {
            Some(n) => self.compute(&[a], len, &|t| t[0].pow(operand(a.dtype(), n))),
            None => self.compute(&[a, b], len, &|t| t[0].pow(&t[1])),
        }
    }

    /// A binary primitive whose right operand is this number in the left operand's dtype.
    pub(super) fn with(&self, f: fn(&Self, &Value, &Value) -> Result<Value>, a: &Value, b: f64) -> Result<Value> {
        f(self, a, &self.scalar_like(a, b))
    }

    pub(super) fn not(&self, a: &Value) -> Result<Value> {
        self.unary(Tensor::bit_not, a)
    }

    /// Clamps to [lo, hi].
    pub(super) fn clamp(&self, v: &Value, lo: f64, hi: f64) -> Result<Value> {
        self.with(Cx::min, &self.with(Cx::max, v, lo)?, hi)
    }

    pub(super) fn select(&self, c: &Value, a: &Value, b: &Value) -> Result<Value> {
        if a.dtype() != b.dtype() {
            let why = format!("the other branch is {}", b.dtype());
            return Err(Error::DType { op: "where", dtype: a.dtype(), why });
        }
        if c.dtype() != DType::Bool {
            return Err(Error::DType { op: "where", dtype: c.dtype(), why: "a condition is bool".to_owned() });
        }
        let shape = broadcast_shape("where", a.shape(), b.shape())?;
        let shape = broadcast_shape("where", &shape, c.shape())?;
        self.apply(&[c, a, b], self.check_shape(&shape)?, &|t| t[0].select(&t[1], &t[2]))
    }

    pub(super) fn cast(&self, v: &Value, to: DType) -> Result<Value> {
        if v.dtype() == to {
            return Ok(v.clone());
        }
        self.apply(&[v], v.len(), &|t| t[0].cast(to))
    }

    /// Reinterprets the bits as another dtype of the same size.
    pub(super) fn bitcast(&self, v: &Value, to: DType) -> Result<Value> {
        if v.dtype() == to {
            return Ok(v.clone());
        }
        self.apply(&[v], v.len(), &|t| t[0].bitcast(to))
    }

    pub(super) fn reshape(&self, v: &Value, shape: &[usize]) -> Result<Value> {
        if v.shape() == shape {
            return Ok(v.clone());
        }
        if self.check_shape(shape)? != v.len() {
            return Err(Error::Shape { op: "reshape", lhs: v.shape().to_vec(), rhs: shape.to_vec() });
        }
        self.apply(&[v], v.len(), &|t| t[0].reshape(shape))
    }

    pub(super) fn permute(&self, v: &Value, order: &[usize]) -> Result<Value> {
        check_axes(v, order)?;
        check_lists(v, [order.len(); 2])?;
        if order.iter().enumerate().all(|(i, &a)| i == a) {
            return Ok(v.clone());
        }
        self.apply(&[v], v.len(), &|t| t[0].permute(&signed(order)))
    }

    /// The same values, contiguous in a buffer of their own.
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
        self.apply(&[v], self.check_shape(shape)?, &|t| t[0].expand(shape))
    }

    /// `len[i]` elements of each axis, beginning at `start[i]`, in steps of `step[i]` (not 0).
    pub(super) fn slice(&self, v: &Value, start: &[usize], len: &[usize], step: &[isize]) -> Result<Value> {
        if len == v.shape() && step.iter().all(|&s| s == 1) {
            return Ok(v.clone());
        }
        check_lists(v, [start.len(), len.len()])?;
        check_lists(v, [step.len(); 2])?;
        // Checks that the last index read along each axis is inside it.
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
        if len.contains(&0) {
            return self.full(v.dtype(), len, Scalar::from_i64(0, v.dtype()));
        }
        self.apply(&[v], v.len(), &|t| strided(&t[0], start, len, step))
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
        let pairs: Vec<(i64, i64)> = before.iter().zip(after).map(|(&a, &b)| (a as i64, b as i64)).collect();
        let with = operand(v.dtype(), with);
        self.apply(&[v], self.check_shape(&shape)?, &|t| t[0].pad(&pairs, PadMode::Constant, &with))
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
        let len = self.check_shape(&shape)?;
        let full: Vec<&Value> = parts.iter().filter(|p| p.extent(axis) > 0).collect();
        match &full[..] {
            [] => Ok(first.clone()),
            [one] => Ok((*one).clone()),
            _ => self.apply(&full, len, &|t| Tensor::cat(&t.iter().collect::<Vec<_>>(), axis as i64)),
        }
    }

    /// Reduces `axes`, which are kept with length 1 if `keep`. The result has the operand's dtype.
    pub(super) fn reduce(&self, f: Reduction, v: &Value, axes: &[usize], keep: bool) -> Result<Value> {
        check_axes(v, axes)?;
        if axes.is_empty() {
            return Ok(v.clone());
        }
        self.compute(&[v], v.len(), &|t| f(&t[0], &signed(axes), keep)?.cast(t[0].dtype()))
    }

    /// Applies `f`; for 16-bit floats in f32, rounded once at the end.
    pub(super) fn in_f32(&self, v: &Value, f: &dyn Fn(&Value) -> Result<Value>) -> Result<Value> {
        match v.dtype() {
            dt @ (DType::F16 | DType::BF16) => self.cast(&f(&self.cast(v, DType::F32)?)?, dt),
            _ => f(v),
        }
    }

    /// Mean over `axes`.
    pub(super) fn mean(&self, v: &Value, axes: &[usize], keep: bool) -> Result<Value> {
        // In f32, since neither the sum nor the count need fit a 16-bit float.
        self.in_f32(v, &|v| self.mean_wide(v, axes, keep))
    }

    fn mean_wide(&self, v: &Value, axes: &[usize], keep: bool) -> Result<Value> {
        let n: usize = axes.iter().map(|&a| v.extent(a)).product();
        let sum = self.reduce(Tensor::sum, v, axes, keep)?;
        if v.dtype().is_float() { self.with(Cx::mul, &sum, 1.0 / n as f64) } else { self.with(Cx::div, &sum, n as f64) }
    }

    /// Index (i64) of the first largest element.
    pub(super) fn argmax(&self, v: &Value, axis: usize, keep: bool) -> Result<Value> {
        v.dim(axis)?;
        self.apply(&[v], v.len(), &|t| t[0].argmax(axis as i64, keep)?.cast(DType::I64))
    }

    pub(super) fn cumsum(&self, v: &Value, axis: usize) -> Result<Value> {
        v.dim(axis)?;
        self.compute(&[v], v.len(), &|t| t[0].cumsum(axis as i64)?.cast(t[0].dtype()))
    }

    /// Cumulative product, inclusive.
    pub(super) fn cumprod(&self, v: &Value, axis: usize) -> Result<Value> {
        v.dim(axis)?;
        self.compute(&[v], v.len(), &|t| t[0].cumprod(axis as i64)?.cast(t[0].dtype()))
    }

    /// The `k` largest (or smallest) elements along an axis, sorted, and their indices (i64).
    pub(super) fn top_k(&self, v: &Value, axis: usize, k: usize, largest: bool) -> Result<(Value, Value)> {
        if k > v.dim(axis)? {
            return Err(Error::value("top_k", format!("{k} elements of {:?} along axis {axis}", v.shape())));
        }
        let both = self.apply_all(&[v], v.len(), &|t| {
            let (values, index) = t[0].topk(k, axis as i64, largest)?;
            Ok(vec![values, index.cast(DType::I64)?])
        })?;
        <[Value; 2]>::try_from(both).map(|[a, b]| (a, b)).map_err(|_| Error::Internal("top_k lost a result".to_owned()))
    }

    /// Checks indices that are known: they must lie in `-n..n`; negative ones count from the end. Lookups on a device
    /// give 0 for indices out of range.
    fn check_index(&self, op: &'static str, index: &Value, n: usize) -> Result<()> {
        let known = self.fold(&[index], 0);
        let bad = known.iter().flat_map(|t| t[0].to_i64()).find(|i| !(-(n as i64)..n as i64).contains(i));
        bad.map_or(Ok(()), |i| Err(Error::value(op, format!("index {i} is out of range for {n}"))))
    }

    /// `out[.., i.., ..] = v[.., index[i..], ..]`; negative indices count from the end.
    pub(super) fn gather(&self, v: &Value, index: &Value, axis: usize) -> Result<Value> {
        let shape = [v.shape_in(..axis)?, index.shape(), v.shape_in(axis + 1..)?].concat();
        let len = self.check_shape(&shape)?;
        if self.folds(&[v, index], len) {
            self.check_index("gather", index, v.dim(axis)?)?;
        } else if index.len() == 1
            && let Some(i) = self.fold(&[index], 0).and_then(|t| t[0].to_i64().pop())
        {
            // One known index into a value that is not known is a slice.
            self.check_index("gather", index, v.dim(axis)?)?;
            let at = if i < 0 { i + v.dim(axis)? as i64 } else { i };
            return self.reshape(&self.narrow(v, axis, at as usize, 1)?, &shape);
        } else if let Some(at) = self.known_positions(index, v.dim(axis)?) {
            return self.reshape(&self.take_at(v, axis, &at)?, &shape);
        }
        self.apply(&[v, index], len, &|t| t[0].index_select(axis as i64, &t[1]))
    }

    /// Positions on an axis of `n` elements, if `index` is known and none of them is outside.
    fn known_positions(&self, index: &Value, n: usize) -> Option<Vec<usize>> {
        const MOST: usize = 1 << 16;
        // positions from the end are not known where the length of an axis may vary
        if self.is_of_lengths() || !(1..=MOST).contains(&index.len()) {
            return None;
        }
        let at = self.fold(&[index], 0)?[0].to_i64();
        let place = |i: i64| usize::try_from(if i < 0 { i.checked_add(n as i64)? } else { i }).ok().filter(|&i| i < n);
        at.into_iter().map(place).collect()
    }

    /// The elements of an axis at known positions on it.
    pub(super) fn take_at(&self, v: &Value, axis: usize, at: &[usize]) -> Result<Value> {
        let mut shape = v.shape().to_vec();
        shape[axis] = at.len();
        self.apply(&[v], self.check_shape(&shape)?, &|t| t[0].take_at(axis as i64, at))
    }

    pub(super) fn gather_elements(&self, v: &Value, index: &Value, axis: usize) -> Result<Value> {
        let n = v.dim(axis)?;
        if self.folds(&[v, index], index.len()) {
            self.check_index("gather", index, n)?;
        }
        self.apply(&[v, index], index.len(), &|t| t[0].gather(axis as i64, &t[1]))
    }

    pub(super) fn scatter_elements(
        &self,
        v: &Value,
        index: &Value,
        updates: &Value,
        axis: usize,
        how: ScatterOp,
    ) -> Result<Value> {
        let n = v.dim(axis)?;
        if self.folds(&[v, index, updates], v.len()) {
            self.check_index("scatter", index, n)?;
        }
        self.apply(&[v, index, updates], v.len(), &|t| t[0].scatter(axis as i64, &t[1], &t[2], how))
    }

    /// `v` with the slices along an axis that `index` names replaced by those of `updates`; no two of them may be equal,
    /// and those out of range are dropped.
    pub(super) fn scatter_slices(&self, v: &Value, index: &Value, updates: &Value, axis: usize) -> Result<Value> {
        self.apply(&[v, index, updates], v.len(), &|t| t[0].scatter_slices(axis, &t[1], &t[2]))
    }

    /// `v` with the slices at the coordinates in `index`'s last axis replaced by `updates`, or combined with them.
    pub(super) fn scatter_nd(&self, v: &Value, index: &Value, updates: &Value, how: ScatterOp) -> Result<Value> {
        let last = index.nth_last(1)?;
        let sizes = v.shape_in(..index.dim(last)?)?;
        if self.folds(&[v, index, updates], v.len()) {
            for (i, &n) in sizes.iter().enumerate() {
                self.check_index("scatter", &self.narrow(index, last, i, 1)?, n)?;
            }
        }
        self.apply(&[v, index, updates], v.len(), &|t| t[0].scatter_nd(&t[1], &t[2], how))
    }

    /// Matrix product of the last two axes with broadcasting of the others; also for integers.
    pub(super) fn matmul(&self, a: &Value, b: &Value) -> Result<Value> {
        let (ra, rb) = (a.rank(), b.rank());
        if ra == 0 || rb == 0 || a.dtype() != b.dtype() {
            return Err(misfit("matmul", a, b));
        }
        // Vectors become matrices; the added axis is removed from the result.
        let a2 = if ra == 1 { self.reshape(a, &[1, a.dim(0)?])? } else { a.clone() };
        let b2 = if rb == 1 { self.reshape(b, &[b.dim(0)?, 1])? } else { b.clone() };
        let (sa, sb) = (a2.shape(), b2.shape());
        let ((la, ma), (lb, mb)) = (sa.split_at(sa.len() - 2), sb.split_at(sb.len() - 2));
        let lead = broadcast_shape("matmul", la, lb)?;
        if ma[1] != mb[0] {
            return Err(misfit("matmul", a, b));
        }
        let mut shape = [&lead[..], &[ma[0], mb[1]]].concat();
        let out = if ma[1] == 0 {
            self.full(a.dtype(), &shape, Scalar::from_i64(0, a.dtype()))?
        } else {
            self.compute(&[&a2, &b2], self.check_shape(&shape)?, &|t| t[0].matmul(&t[1])?.cast(t[0].dtype()))?
        };
        if rb == 1 {
            shape.pop();
        }
        if ra == 1 {
            shape.remove(lead.len());
        }
        self.reshape(&out, &shape)
    }

    /// Cross-correlation of [n, c, ..] with [o, c / groups, ..]. The caller checks shapes.
    pub(super) fn conv(&self, x: &Value, w: &Value, win: &Window, groups: usize) -> Result<Value> {
        let opts = conv_opts(win, groups);
        self.convolve(x, w, &|t| {
            let sums = if w.is_known() { t[0].conv_of_upsampled(&t[1], &opts)? } else { None };
            sums.map_or_else(|| t[0].conv(&t[1], None, &opts), Ok)?.cast(t[0].dtype())
        })
    }

    /// A convolution is never folded, since it is too much work for a build; except without a device
    /// (`Model::evaluate`).
    fn convolve(&self, x: &Value, w: &Value, make: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Result<Value> {
        if self.fold_limit == usize::MAX {
            return self.compute(&[x, w], 0, make);
        }
        make(&[self.lazy(x)?, self.lazy(w)?]).map(Value::lazy)
    }

    /// The transposed convolution of [n, c, ..] with [c, o / groups, ..]. The caller applies output padding.
    pub(super) fn conv_transpose(&self, x: &Value, w: &Value, win: &Window, groups: usize) -> Result<Value> {
        let opts = ConvTransposeOpts { conv: conv_opts(win, groups), output_padding: Vec::new() };
        self.convolve(x, w, &|t| t[0].conv_transpose(&t[1], None, &opts)?.cast(t[0].dtype()))
    }

    /// All windows over the spatial (last) axes of an already padded tensor: [.., out.., kernel..].
    pub(super) fn windows(&self, x: &Value, win: &Window) -> Result<Value> {
        let taps = win.kernel.iter().fold(x.len(), |n, &k| n.saturating_mul(k));
        self.apply(&[x], taps, &|t| t[0].windows(&win.kernel, &win.stride, &win.dilation))
    }
}

/// The window geometry as options of the tensor methods.
fn conv_opts(win: &Window, groups: usize) -> ConvOpts {
    let padding = win.pads.iter().map(|&(a, b)| (a as i64, b as i64)).collect();
    ConvOpts { stride: win.stride.clone(), dilation: win.dilation.clone(), padding, groups }
}
