//! Reading and writing at indices that are tensors: gather, embedding, one-hot, scatter. Index tensors have any integer
//! dtype. A negative index counts from the end; an index out of range reads 0 and writes nothing. The work of a scatter
//! is proportional to its updates plus the size of its target.

use super::{Tensor, check_axis, lift, spread};
use crate::uop::{Arg, Axes, Op, ReduceOp, ScatterMode};
use crate::{DType, Error, Result};

/// How a scatter combines an update with the old value, and with other updates of the same element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterOp {
    /// The last update replaces the value.
    Set,
    /// Sum with the old value.
    Add,
    /// Product with the old value.
    Mul,
    /// The largest of the updates and the old value.
    Max,
    /// The smallest of the updates and the old value.
    Min,
    /// The mean of the updates and the old value; only [`Tensor::scatter_values`] takes it.
    Mean,
}

/// The flat position that stands for an index out of range.
#[derive(Clone, Copy)]
pub(super) enum OutOfRange {
    /// -1: for the Gather node, to which a negative index is out of range.
    MinusOne,
    /// One past the last position: for functions that count negative indices from the end.
    PastEnd,
}

impl Tensor {
    /// `Error::DType` unless this is an integer tensor.
    pub(super) fn want_index(&self, op: &'static str) -> Result<()> {
        match self.dtype() {
            dt if dt.is_int() => Ok(()),
            dtype => Err(Error::DType { op, dtype, why: "indices must be integers".into() }),
        }
    }

    /// Indices into an axis of size `n`, with negative ones replaced by `index + n`; in i32, or in i64 where `n` does
    /// not fit. Indices out of range stay out of range.
    pub(super) fn wrapped(&self, n: usize) -> Result<Tensor> {
        // an index that was broadcast over other axes is converted before the broadcast
        if let Some(narrow) = self.expand_source() {
            return narrow.wrapped(n)?.expand(&self.shape());
        }
        // the cast to i32 must not wrap a large index into the valid range: limit it in its own dtype first
        let dt = self.dtype();
        let index = match dt {
            DType::I64 => self.clamp(-(n as i64) - 1, n as i64)?,
            DType::U32 | DType::U64 => self.minimum(n as i64)?,
            _ => self.clone(),
        };
        let index = index.cast(if n < i32::MAX as usize { DType::I32 } else { DType::I64 })?;
        if dt.is_unsigned() {
            return Ok(index);
        }
        index.lt(0)?.select(index.add(n as i64)?, &index)
    }

    /// The tensor below the last operation if that was an expand.
    fn expand_source(&self) -> Option<Tensor> {
        let mut s = self.session().state();
        let u = s.node(self.root());
        let root = (s.graph.op(u) == Op::Expand).then(|| s.graph.src_at(u, 0)).map(|x| s.add_root(x))?;
        drop(s);
        Some(Tensor { session: self.session().clone(), root })
    }

    /// Row-major flat positions for several index tensors, one for each axis of the given sizes, which broadcast
    /// against each other. Where any index is out of range the position is that of `out_of_range`.
    pub(super) fn flat_index(indices: &[Tensor], sizes: &[usize], out_of_range: OutOfRange) -> Result<Tensor> {
        let total: usize = sizes.iter().product();
        let dt = if total < i32::MAX as usize { DType::I32 } else { DType::I64 };
        let (mut flat, mut valid) = (None::<Tensor>, None::<Tensor>);
        for (one, &n) in indices.iter().zip(sizes) {
            let one = one.wrapped(n)?.cast(dt)?;
            let inside = one.ge(0)?.logical_and(one.lt(n)?)?;
            valid = Some(valid.map_or(Ok(inside.clone()), |v| v.logical_and(&inside))?);
            flat = Some(flat.map_or(Ok(one.clone()), |f| f.mul(n)?.add(&one))?);
        }
        let (Some(flat), Some(valid)) = (flat, valid) else { return Err(Error::value("index", "no axes")) };
        match out_of_range {
            OutOfRange::MinusOne => valid.select(flat, -1),
            OutOfRange::PastEnd => valid.select(flat, total as i64),
        }
    }

    /// Reads along an axis by an index tensor of the same rank (torch's `gather`): for axis 1,
    /// `out[i, j, k] = self[i, index[i, j, k], k]`. The result has the shape of `index`, whose other axes may be
    /// smaller than this tensor's. `Error::Shape` otherwise, `Error::DType` unless the index is an integer tensor.
    pub fn gather(&self, axis: i64, index: &Tensor) -> Result<Tensor> {
        let shape = self.shape();
        let a = check_axis("gather", axis, shape.len())?;
        index.want_index("gather")?;
        Tensor::same_session("gather", self, index)?;
        let wanted = index.shape();
        let fits = wanted.len() == shape.len() && (0..shape.len()).all(|i| i == a || wanted[i] <= shape[i]);
        if !fits {
            return Err(Error::Shape { op: "gather", lhs: shape, rhs: wanted });
        }
        let mut pairs: Vec<(usize, usize)> = wanted.iter().map(|&n| (0, n)).collect();
        pairs[a] = (0, shape[a]);
        let source = self.shrink(&pairs)?;
        let index = index.wrapped(shape[a])?;
        source.gather_node(a, &index)
    }

    /// Appends the Gather node. The shapes agree but for `axis`, and negative indices are converted already.
    pub(super) fn gather_node(&self, axis: usize, index: &Tensor) -> Result<Tensor> {
        let (shape, wanted) = (self.shape(), index.shape());
        if shape[axis] == 0 {
            return Tensor::zeros(self.session(), self.dtype(), &wanted);
        }
        let mut s = self.session().state();
        let (x, i) = (s.node(self.root()), s.node(index.root()));
        let g = &mut s.graph;
        let dt = g.dtype(x);
        let i = lift(g, i, &wanted);
        let node = g.node(Op::Gather, dt, &[x, i], Arg::Axes(Axes::from_slice(&[axis as u8])));
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: self.session().clone(), root })
    }

    /// Slices along an axis, selected by an index tensor of any shape, whose axes replace the axis (ONNX Gather,
    /// numpy's `take`): `[a, n, b]` at axis 1 with an index `[i, j]` gives `[a, i, j, b]`. `Error::DType` unless the
    /// index is an integer tensor.
    pub fn index_select(&self, axis: i64, index: &Tensor) -> Result<Tensor> {
        let shape = self.shape();
        let a = check_axis("index_select", axis, shape.len())?;
        index.want_index("index_select")?;
        Tensor::same_session("index_select", self, index)?;
        let picked = index.shape();
        let count: usize = picked.iter().product();
        let mut spread = vec![1; shape.len()];
        spread[a] = count;
        let mut full = shape.clone();
        full[a] = count;
        let index = index.wrapped(shape[a])?.reshape(&spread)?.expand(&full)?;
        let out = self.gather_node(a, &index)?;
        let mut result = shape[..a].to_vec();
        result.extend(&picked);
        result.extend(&shape[a + 1..]);
        out.reshape(&result)
    }

    /// Rows of this table `[vocabulary, width]`: an index `[..]` gives `[.., width]`.
    pub fn embedding(&self, index: &Tensor) -> Result<Tensor> {
        self.want_rank("embedding", 2)?;
        self.index_select(0, index)
    }

    /// ONNX's GatherND: each row of `index` `[.., k]` gives the position in `k` axes of this tensor, after `batch`
    /// leading axes that both have in common; the remaining axes are copied. `Error::Shape` where the shapes do not
    /// fit.
    pub fn gather_nd(&self, index: &Tensor, batch: usize) -> Result<Tensor> {
        let (shape, ishape) = (self.shape(), index.shape());
        index.want_index("gather_nd")?;
        let k = *ishape.last().ok_or_else(|| Error::value("gather_nd", "the index is a scalar"))?;
        let misfit = batch >= ishape.len() || batch + k > shape.len() || k == 0;
        if misfit || shape[..batch] != ishape[..batch] {
            return Err(Error::Shape { op: "gather_nd", lhs: shape, rhs: ishape });
        }
        let rows: usize = ishape[batch..ishape.len() - 1].iter().product();
        let lead: usize = shape[..batch].iter().product();
        let index = index.reshape(&[lead, rows, k])?;
        let parts = (0..k).map(|i| index.select_at(-1, i as i64)).collect::<Result<Vec<_>>>()?;
        let flat = Tensor::flat_index(&parts, &shape[batch..batch + k], OutOfRange::MinusOne)?;
        let n: usize = shape[batch..batch + k].iter().product();
        let tail: usize = shape[batch + k..].iter().product();
        let index = flat.reshape(&[lead, rows, 1])?.expand(&[lead, rows, tail])?;
        let out = self.reshape(&[lead, n, tail])?.gather_node(1, &index)?;
        let mut result = ishape[..ishape.len() - 1].to_vec();
        result.extend(&shape[batch + k..]);
        out.reshape(&result)
    }

    /// One-hot encoding of class numbers: `[..] -> [.., classes]`, i32, with 1 at each index and 0 elsewhere. An index
    /// out of range gives zeros.
    pub fn one_hot(&self, classes: usize) -> Result<Tensor> {
        self.want_index("one_hot")?;
        let index = self.wrapped(classes)?.unsqueeze(-1)?;
        index.eq(Tensor::iota(self.session(), classes)?)?.cast(DType::I32)
    }

    /// A copy with `src` written at `index` along an axis (torch's `scatter`): for axis 1,
    /// `out[i, index[i, j, k], k] = src[i, j, k]`. `index` and `src` have the same shape, whose other axes may be
    /// smaller than this tensor's. Updates of the same element are applied in order of their index. `src` is cast to
    /// this dtype. `Error::Shape` where shapes do not fit, `Error::Value` for [`ScatterOp::Mean`].
    pub fn scatter(&self, axis: i64, index: &Tensor, src: &Tensor, how: ScatterOp) -> Result<Tensor> {
        let shape = self.shape();
        let a = check_axis("scatter", axis, shape.len())?;
        index.want_index("scatter")?;
        Tensor::same_session("scatter", self, index)?;
        Tensor::same_session("scatter", self, src)?;
        let ishape = index.shape();
        let fits = ishape.len() == shape.len() && (0..shape.len()).all(|i| i == a || ishape[i] <= shape[i]);
        if !fits || src.shape() != ishape {
            return Err(Error::Shape { op: "scatter", lhs: shape, rhs: if fits { src.shape() } else { ishape } });
        }
        let dtype = self.dtype();
        let m = ishape[a];
        if m == 0 || self.numel() == 0 {
            return Ok(self.clone());
        }
        let index = index.wrapped(shape[a])?;
        let op = match how {
            ScatterOp::Set => ScatterMode::Overwrite,
            ScatterOp::Add => ScatterMode::Combine(ReduceOp::Add),
            ScatterOp::Mul => ScatterMode::Combine(ReduceOp::Mul),
            ScatterOp::Max => ScatterMode::Combine(ReduceOp::Max),
            ScatterOp::Min => ScatterMode::Combine(ReduceOp::Min),
            ScatterOp::Mean => return Err(Error::value("scatter", "a mean is made by scatter_values")),
        };
        let src = src.cast(dtype)?;
        if m == 1 && (0..shape.len()).all(|i| i == a || ishape[i] == shape[i]) {
            // with a single update for each slice, a mask over the whole axis: it fuses with other operations
            let mut position = vec![1; shape.len()];
            position[a] = shape[a];
            let hit = index.eq(Tensor::iota(self.session(), shape[a])?.reshape(&position)?)?;
            let new = match how {
                ScatterOp::Set => src,
                ScatterOp::Add => self.add(&src)?,
                ScatterOp::Mul => self.mul(&src)?,
                ScatterOp::Max => self.maximum(&src)?,
                _ => self.minimum(&src)?,
            };
            return hit.select(new, self);
        }
        Ok(self.scatter_node(a, &index, &src, op))
    }

    /// Appends the Scatter node. Shapes and dtypes fit, and negative indices are converted already.
    fn scatter_node(&self, axis: usize, index: &Tensor, src: &Tensor, how: ScatterMode) -> Tensor {
        let mut s = self.session().state();
        let [x, i, v] = [self, index, src].map(|t| s.node(t.root()));
        let (shape, updates) = (s.graph.shape(x).clone(), s.graph.shape(i).clone());
        let g = &mut s.graph;
        let dt = g.dtype(x);
        let (x, i, v) = (spread(g, x, &shape), spread(g, i, &updates), spread(g, v, &updates));
        let node = g.node(Op::Scatter, dt, &[x, i, v], Arg::Scatter(how, axis as u8));
        let root = s.add_root(node);
        drop(s);
        Tensor { session: self.session().clone(), root }
    }

    /// A copy of this tensor in which the slices along `axis` that `index` names are those of `values`; both have the
    /// same shape, which differs from this one along the axis alone. No two indices of a row may be equal. An index out of
    /// range writes nothing.
    pub(crate) fn scatter_slices(&self, axis: usize, index: &Tensor, values: &Tensor) -> Result<Tensor> {
        let (shape, updates) = (self.shape(), index.shape());
        let fits = updates.len() == shape.len() && (0..shape.len()).all(|i| i == axis || updates[i] == shape[i]);
        if !fits || axis >= shape.len() || values.shape() != updates {
            return Err(Error::Shape { op: "scatter", lhs: shape, rhs: updates });
        }
        index.want_index("scatter")?;
        Tensor::same_session("scatter", self, index)?;
        Tensor::same_session("scatter", self, values)?;
        if index.numel() == 0 || self.numel() == 0 {
            return Ok(self.clone());
        }
        Ok(self.scatter_node(axis, index, &values.cast(self.dtype())?, ScatterMode::Unique))
    }

    /// The elements of this tensor moved along an axis to the positions that `index` gives, in an axis of size `n`. No
    /// two elements may have the same position. Elements whose index is out of range are dropped; positions without an
    /// element are zero.
    pub(super) fn scatter_unique(&self, axis: i64, index: &Tensor, n: usize) -> Result<Tensor> {
        let a = check_axis("scatter", axis, self.rank())?;
        let mut shape = self.shape();
        shape[a] = n;
        let zeros = Tensor::zeros(self.session(), self.dtype(), &shape)?;
        if n == 0 || self.numel() == 0 {
            return Ok(zeros);
        }
        Ok(zeros.scatter_node(a, index, self, ScatterMode::Unique))
    }

    /// ONNX's ScatterND: a copy in which slices of the first `k` axes are written or combined: `index` is
    /// `[rows.., k]`, `updates` is `[rows.., rest..]` with the sizes of the remaining axes. `Error::Shape` where shapes
    /// do not fit.
    pub fn scatter_nd(&self, index: &Tensor, updates: &Tensor, how: ScatterOp) -> Result<Tensor> {
        let (shape, ishape) = (self.shape(), index.shape());
        index.want_index("scatter_nd")?;
        let k = *ishape.last().ok_or_else(|| Error::value("scatter_nd", "the index is a scalar"))?;
        if k == 0 || k > shape.len() {
            return Err(Error::Shape { op: "scatter_nd", lhs: shape, rhs: ishape });
        }
        let mut wanted = ishape[..ishape.len() - 1].to_vec();
        let rows: usize = wanted.iter().product();
        wanted.extend(&shape[k..]);
        if updates.shape() != wanted {
            return Err(Error::Shape { op: "scatter_nd", lhs: wanted, rhs: updates.shape() });
        }
        let index = index.reshape(&[rows, k])?;
        let parts = (0..k).map(|i| index.select_at(-1, i as i64)).collect::<Result<Vec<_>>>()?;
        let flat = Tensor::flat_index(&parts, &shape[..k], OutOfRange::PastEnd)?;
        let n: usize = shape[..k].iter().product();
        let tail: usize = shape[k..].iter().product();
        let flat = flat.reshape(&[rows, 1])?.expand(&[rows, tail])?;
        let out = self.reshape(&[n, tail])?.scatter(0, &flat, &updates.reshape(&[rows, tail])?, how)?;
        out.reshape(&shape)
    }
}
