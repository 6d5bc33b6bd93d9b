//! Reading and writing by index tensors in the further forms that torch has, on top of [`Tensor::gather`] and
//! [`Tensor::scatter`].
//!
//! Where the number of results depends on the data (`nonzero`, `masked_select`, `unique`), a method returns a pair: a
//! tensor of the largest possible size, whose elements after the results are unspecified, and the number of results (an
//! i32 scalar). The work is linear, or `n log n` where elements are sorted.

use super::index::OutOfRange;
use super::{Operand, ScatterOp, Tensor, broadcast_shape, check_axis};
use crate::{DType, Error, Result};

impl Tensor {
    // ---- reading

    /// [`Tensor::gather`] with broadcasting of the other axes; without an axis it reads from the flattened tensor by
    /// the flattened index.
    pub fn take_along_dim(&self, index: &Tensor, axis: Option<i64>) -> Result<Tensor> {
        let Some(axis) = axis else { return self.reshape(&[-1])?.gather(0, &index.reshape(&[-1])?) };
        let a = check_axis("take_along_dim", axis, self.rank())?;
        let (mut x, mut i) = (self.shape(), index.shape());
        if x.len() != i.len() {
            return Err(Error::Shape { op: "take_along_dim", lhs: x, rhs: i });
        }
        let (n, m) = (x[a], i[a]);
        (x[a], i[a]) = (1, 1);
        let common = broadcast_shape("take_along_dim", &x, &i)?.to_vec();
        let with = |size: usize| {
            let mut s = common.clone();
            s[a] = size;
            s
        };
        self.expand(&with(n))?.gather(axis, &index.expand(&with(m))?)
    }

    /// Indexing by tensors, one for each of the first axes, by numpy's rules. The index tensors broadcast against each
    /// other. Their common axes replace the indexed axes if those are adjacent, and come first otherwise. `None` keeps
    /// an axis. A bool mask is `Error::DType`, since the number of its true elements is unknown (see
    /// [`Tensor::masked_select_counted`]).
    pub fn index(&self, indices: &[Option<Tensor>]) -> Result<Tensor> {
        let Some(p) = self.index_plan(indices)? else { return Ok(self.clone()) };
        let out = self.permute(&p.order)?.reshape(&p.flat_shape)?.index_select(0, &p.flat)?;
        p.place(&out)
    }

    fn index_plan(&self, indices: &[Option<Tensor>]) -> Result<Option<IndexPlan>> {
        let shape = self.shape();
        let used: Vec<usize> = (0..indices.len()).filter(|&i| indices[i].is_some()).collect();
        let (Some(&first), Some(&last)) = (used.first(), used.last()) else { return Ok(None) };
        if last >= shape.len() {
            return Err(Error::value("index", format!("{} indices for shape {shape:?}", indices.len())));
        }
        let mut common = Vec::new();
        for t in indices.iter().flatten() {
            if !t.dtype().is_int() {
                let why = "an index is an integer tensor".into();
                return Err(Error::DType { op: "index", dtype: t.dtype(), why });
            }
            common = broadcast_shape("index", &common, &t.shape())?.to_vec();
        }
        let rest: Vec<usize> = (0..shape.len()).filter(|i| !used.contains(i)).collect();
        let parts: Vec<Tensor> = indices.iter().flatten().cloned().collect();
        let sizes: Vec<usize> = used.iter().map(|&a| shape[a]).collect();
        let flat = Tensor::flat_index(&parts, &sizes, OutOfRange::PastEnd)?.expand(&common)?;
        let order: Vec<i64> = used.iter().chain(&rest).map(|&a| a as i64).collect();
        let rest: Vec<usize> = rest.iter().map(|&a| shape[a]).collect();
        let mut flat_shape = vec![used.iter().map(|&a| shape[a]).product()];
        flat_shape.extend(&rest);
        let neighbours = last - first + 1 == used.len();
        Ok(Some(IndexPlan { order, flat_shape, flat, common, at: if neighbours { first } else { 0 }, rest }))
    }

    /// The `len` elements of an axis that begin at an index computed at run time (an integer tensor of one element;
    /// negative from the end).
    pub fn narrow_at(&self, axis: i64, start: &Tensor, len: usize) -> Result<Tensor> {
        let n = self.dim(axis)?;
        if len > n {
            return Err(Error::value("narrow", format!("{len} of axis {axis} of size {n}")));
        }
        let start = start.reshape(&[1usize])?.cast(DType::I32)?;
        let start = start.lt(0)?.select(start.add(n)?, &start)?;
        self.index_select(axis, &Tensor::iota(self.session(), len)?.add(start)?)
    }

    /// Repeats each element of an axis as often as `counts` says (one number for all, or one for each element). The
    /// result's size is the sum of the counts, so they must be host data: `Error::Value` for computed counts.
    pub fn repeat_each(&self, counts: &Tensor, axis: i64) -> Result<Tensor> {
        let host = counts.host_ints().ok_or_else(|| {
            Error::value("repeat_interleave", "counts that are computed give a size that is not known")
        })?;
        let n = self.dim(axis)?;
        let count = |i: usize| if host.len() == 1 { host[0] } else { *host.get(i).unwrap_or(&0) }.max(0) as usize;
        super::check_host(n)?;
        super::check_host((0..n).fold(0, |sum, i| count(i).saturating_add(sum)))?;
        let mut index = Vec::new();
        for i in 0..n {
            index.extend(std::iter::repeat_n(i as i32, count(i)));
        }
        let len = index.len();
        self.index_select(axis, &Tensor::new(self.session(), &index, &[len])?)
    }

    /// One more than the largest of these integers, which must be host data (`Error::Value` otherwise): the default
    /// number of classes.
    pub(crate) fn host_max_plus_one(&self, op: &'static str) -> Result<usize> {
        let host = self.host_ints().ok_or_else(|| Error::value(op, "the number of classes is needed"))?;
        Ok(host.iter().copied().max().map_or(0, |m| m.max(-1).saturating_add(1)) as usize)
    }

    /// The values of an integer tensor that was made from host data and at most reshaped; `None` for others.
    pub(crate) fn host_ints(&self) -> Option<Vec<i64>> {
        let dt = self.dtype();
        let n = self.numel();
        let s = self.session().state();
        let mut u = s.node(self.root());
        while s.graph.op(u) == crate::uop::Op::Reshape {
            u = s.graph.src_at(u, 0);
        }
        let crate::uop::Arg::Buffer { id, .. } = *s.graph.arg(u) else { return None };
        let host = s.buffer(id)?.host.clone()?;
        let bytes: &[u8] = &host;
        let read = |c: &[u8]| crate::dtype::Scalar::read(dt, c).as_i64();
        (bytes.len() == n * dt.size() && dt.is_int()).then(|| bytes.chunks_exact(dt.size()).map(read).collect())
    }

    // ---- results whose number depends on the data

    /// The position of each true element among the true elements of the flattened tensor (i32; for other elements the
    /// number of elements, which is out of range), and the number of true elements.
    fn compact_positions(&self) -> Result<(Tensor, Tensor)> {
        let mask = self.to_bool()?.reshape(&[-1])?;
        let n = mask.numel();
        let ones = mask.cast(DType::I32)?;
        let place = mask.select(ones.cumsum(0)?.sub(1)?, n as i32)?;
        Ok((place, ones.sum(&[], false)?))
    }

    /// Indices of the nonzero elements in row-major order, `[numel, rank]` i32, and how many there are; later rows are
    /// unspecified.
    pub fn nonzero_counted(&self) -> Result<(Tensor, Tensor)> {
        let (place, count) = self.compact_positions()?;
        let n = place.numel();
        let source = Tensor::iota(self.session(), n)?.scatter_unique(0, &place, n)?;
        Ok((self.unravel(&source)?, count))
    }

    /// Flat row-major indices `[n]` of this tensor's elements as indices along its axes, `[n, rank]`.
    fn unravel(&self, flat: &Tensor) -> Result<Tensor> {
        let shape = self.shape();
        let n = flat.numel();
        let mut parts = Vec::new();
        let mut stride: usize = shape.iter().product();
        for &size in &shape {
            stride /= size.max(1);
            parts.push(flat.floor_div(stride.max(1) as i32)?.modulo(size.max(1) as i32)?);
        }
        match parts.is_empty() {
            true => Tensor::zeros(self.session(), DType::I32, &[n, 0]),
            false => Tensor::stack(&parts.iter().collect::<Vec<_>>(), -1),
        }
    }

    /// Indices of the first `size` nonzero elements in row-major order, `[size, rank]` i32. If there are fewer, the
    /// remaining rows hold `fill`.
    pub fn nonzero_static(&self, size: usize, fill: i64) -> Result<Tensor> {
        let n = self.numel();
        let (all, count) = self.nonzero_counted()?;
        let rank = self.rank();
        let all = match size > n {
            true => all.pad_zeros(&[(0, size - n), (0, 0)])?,
            false => all.narrow(0, 0, size)?,
        };
        let real = Tensor::iota(self.session(), size)?.lt(count)?.unsqueeze(1)?.expand(&[size, rank])?;
        real.select(all, fill)
    }

    /// The elements where `mask` is true, in row-major order, and how many there are; later elements are unspecified.
    /// The tensors broadcast.
    pub fn masked_select_counted(&self, mask: &Tensor) -> Result<(Tensor, Tensor)> {
        let (x, mask) = self.broadcast_with(mask)?;
        let (place, count) = mask.compact_positions()?;
        Ok((x.reshape(&[-1])?.scatter_unique(0, &place, place.numel())?, count))
    }

    /// The distinct elements in ascending order, and how many there are; later elements are unspecified.
    pub fn unique_counted(&self) -> Result<(Tensor, Tensor)> {
        let x = self.reshape(&[-1])?;
        let n = x.numel();
        if n == 0 {
            return Ok((x, Tensor::zeros(self.session(), DType::I32, &[])?));
        }
        x.sort(0, false)?.0.unique_consecutive_counted()
    }

    /// The elements of the flattened tensor that differ from the one before them, and how many there are; later
    /// elements are unspecified.
    pub fn unique_consecutive_counted(&self) -> Result<(Tensor, Tensor)> {
        let x = self.reshape(&[-1])?;
        let n = x.numel();
        if n == 0 {
            return Ok((x, Tensor::zeros(self.session(), DType::I32, &[])?));
        }
        let head = Tensor::ones(self.session(), DType::Bool, &[1])?;
        let new = x.narrow(0, 1, n - 1)?.ne(x.narrow(0, 0, n - 1)?)?;
        x.masked_select_counted(&Tensor::cat(&[&head, &new], 0)?)
    }

    /// How often each of the numbers `0..minlength` occurs in a vector of integers, or the sums of their `weights`:
    /// `[minlength]`. Other numbers are not counted.
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        let index = self.want_rank("bincount", 1).map(|_| self.clone())?;
        let values = match weights {
            Some(w) => w.clone(),
            None => Tensor::ones(self.session(), DType::I32, &self.shape())?,
        };
        let index = index.ge(0)?.select(&index, minlength as i32)?;
        Tensor::zeros(self.session(), values.dtype(), &[minlength])?.scatter(0, &index, &values, ScatterOp::Add)
    }

    // ---- writing

    /// [`Tensor::scatter`] with torch's further rules: `src` may be a scalar or larger than `index`; a scalar tensor
    /// counts as a vector of one element; and without `include_self` the old values of elements that are written do not
    /// take part in the reduction.
    pub fn scatter_values(
        &self,
        axis: i64,
        index: &Tensor,
        src: &Operand,
        how: ScatterOp,
        include_self: bool,
    ) -> Result<Tensor> {
        if self.rank() == 0 {
            let src = match src {
                Operand::Tensor(t) => Operand::Tensor(t.reshape(&[-1])?),
                v => v.clone(),
            };
            let out = self.reshape(&[1usize])?.scatter_values(0, &index.reshape(&[-1])?, &src, how, include_self)?;
            return out.reshape(&[0usize; 0]);
        }
        let ishape = index.shape();
        let src = match src {
            Operand::Tensor(t) if t.rank() == ishape.len() => {
                let fits = t.shape().iter().zip(&ishape).all(|(a, b)| a >= b);
                if !fits {
                    return Err(Error::Shape { op: "scatter", lhs: t.shape(), rhs: ishape });
                }
                t.shrink(&ishape.iter().map(|&n| (0, n)).collect::<Vec<_>>())?
            }
            Operand::Tensor(t) => return Err(Error::Shape { op: "scatter", lhs: t.shape(), rhs: ishape }),
            v => Tensor::full(self.session(), v, self.dtype(), &ishape)?,
        };
        if how == ScatterOp::Set {
            return self.scatter(axis, index, &src, how);
        }
        let ones = Tensor::ones(self.session(), DType::I32, &ishape)?;
        let zeros = Tensor::zeros(self.session(), DType::I32, &self.shape())?;
        if how == ScatterOp::Mean {
            let count = zeros.scatter(axis, index, &ones, ScatterOp::Add)?;
            let touched = count.gt(0)?;
            let base = if include_self { self.clone() } else { touched.select(0, self)? };
            let sum = base.scatter(axis, index, &src, ScatterOp::Add)?;
            let count = if include_self { count.add(1)? } else { count.maximum(1)? };
            let mean = if self.dtype().is_float() { sum.div(count)? } else { sum.floor_div(count)? };
            return mean.cast(self.dtype());
        }
        let base = match include_self {
            true => self.clone(),
            false => {
                let touched = zeros.scatter(axis, index, &ones, ScatterOp::Max)?.gt(0)?;
                use crate::uop::ReduceOp;
                let op = match how {
                    ScatterOp::Mul => ReduceOp::Mul,
                    ScatterOp::Max => ReduceOp::Max,
                    ScatterOp::Min => ReduceOp::Min,
                    _ => ReduceOp::Add,
                };
                touched.select(Tensor::identity(self.session(), op, self.dtype(), &[]), self)?
            }
        };
        base.scatter(axis, index, &src, how)
    }

    /// Writes the slices of `source` along an axis at the positions of an index vector, combined as `how` says (torch's
    /// `index_add`, `index_copy` and `index_reduce`).
    pub fn index_write(
        &self,
        axis: i64,
        index: &Tensor,
        source: &Tensor,
        how: ScatterOp,
        include_self: bool,
    ) -> Result<Tensor> {
        if self.rank() == 0 {
            let source = source.reshape(&[1usize])?;
            let out = self.reshape(&[1usize])?.index_write(0, index, &source, how, include_self)?;
            return out.reshape(&[0usize; 0]);
        }
        let a = check_axis("index_add", axis, self.rank())?;
        let n = index.numel();
        let source = match source.rank() {
            0 => source.reshape(&vec![1usize; self.rank()])?,
            _ => source.clone(),
        };
        let mut shape = self.shape();
        shape[a] = n;
        let mut column = vec![1; shape.len()];
        column[a] = n;
        let index = index.reshape(&column)?.expand(&shape)?;
        self.scatter_values(axis, &index, &Operand::Tensor(source.expand(&shape)?), how, include_self)
    }

    /// Sets the slices at the positions of an index vector along an axis to a scalar.
    pub fn index_fill(&self, axis: i64, index: &Tensor, value: &Operand) -> Result<Tensor> {
        if self.rank() == 0 {
            let out = self.reshape(&[1usize])?.index_fill(0, &index.reshape(&[-1])?, value)?;
            return out.reshape(&[0usize; 0]);
        }
        let a = check_axis("index_fill", axis, self.rank())?;
        let n = self.shape()[a];
        let index = index.reshape(&[-1])?;
        let ones = Tensor::ones(self.session(), DType::I32, &index.shape())?;
        let hit = Tensor::zeros(self.session(), DType::I32, &[n])?.scatter(0, &index, &ones, ScatterOp::Max)?;
        let mut shape = vec![1; self.rank()];
        shape[a] = n;
        hit.gt(0)?.reshape(&shape)?.select(value, self)?.cast(self.dtype())
    }

    /// Writes `values` at the elements that [`Tensor::index`] would read, or adds them with `accumulate`. A single bool
    /// mask is accepted too; it takes the values in order.
    pub fn index_put(&self, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
        if let [Some(mask)] = indices
            && mask.dtype() == DType::Bool
        {
            return self.mask_put(mask, values, accumulate);
        }
        let Some(p) = self.index_plan(indices)? else { return Ok(self.clone()) };
        let values = values.cast(self.dtype())?.expand(&p.result_shape())?;
        let values = p.unplace(&values)?;
        let how = if accumulate { ScatterOp::Add } else { ScatterOp::Set };
        let base = self.permute(&p.order)?;
        let out = base.reshape(&p.flat_shape)?.index_write(0, &p.flat.reshape(&[-1])?, &values, how, true)?;
        let mut inverse = vec![0; p.order.len()];
        p.order.iter().enumerate().for_each(|(i, &a)| inverse[a as usize] = i as i64);
        out.reshape(&base.shape())?.permute(&inverse)
    }

    /// [`Tensor::index_put`] with a bool mask over the first axes.
    fn mask_put(&self, mask: &Tensor, values: &Tensor, accumulate: bool) -> Result<Tensor> {
        let (shape, m) = (self.shape(), mask.rank());
        let rest = shape[m.min(shape.len())..].to_vec();
        let new = match values.rank() > rest.len() && values.dim(0)? != 1 {
            true => {
                let rank = mask.reshape(&[-1])?.cast(DType::I32)?.cumsum(0)?.sub(1)?.maximum(0)?;
                let mut lead = mask.shape();
                lead.extend(&values.shape()[1..]);
                values.index_select(0, &rank)?.reshape(&lead)?
            }
            false => values.clone(),
        };
        let mut wide = mask.shape();
        wide.extend(rest.iter().map(|_| 1));
        let new = new.cast(self.dtype())?;
        let new = if accumulate { self.add(new)? } else { new };
        mask.reshape(&wide)?.select(new, self)
    }

    /// Replaces the elements where `mask` is true by those of `source`, in order.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        let (x, mask) = self.broadcast_with(mask)?;
        let shape = x.shape();
        if source.numel() == 0 {
            return Ok(x);
        }
        let place = mask.reshape(&[-1])?.cast(DType::I32)?.cumsum(0)?.sub(1)?.maximum(0)?;
        let picked = source.reshape(&[-1])?.index_select(0, &place)?.reshape(&shape)?;
        mask.select(picked.cast(x.dtype())?, &x)
    }

    /// Writes `src` at every `step`-th index of an axis, beginning with `start`.
    pub fn write_slice(&self, src: &Tensor, axis: i64, start: usize, step: usize) -> Result<Tensor> {
        let a = check_axis("slice_scatter", axis, self.rank())?;
        let (n, m) = (self.shape()[a], src.dim(axis)?);
        if m == 0 || step == 0 {
            return Ok(self.clone());
        }
        let mut shape = vec![1; self.rank()];
        shape[a] = n;
        let place = Tensor::iota(self.session(), n)?.reshape(&shape)?.sub(start)?;
        let (at, left) = (place.floor_div(step as i32)?, place.modulo(step as i32)?);
        let hit = left.eq(0)?.logical_and(at.ge(0)?)?.logical_and(at.lt(m)?)?;
        let at = at.clamp(0, m as i64 - 1)?.reshape(&[n])?;
        hit.select(src.cast(self.dtype())?.index_select(axis, &at)?, self)
    }
}

/// How [`Tensor::index`] and [`Tensor::index_put`] read with index tensors: the indexed axes are moved to the front and
/// flattened, so that one flat index selects slices.
struct IndexPlan {
    /// The order of axes with the indexed ones first.
    order: Vec<i64>,
    /// The shape with the indexed axes merged into one, followed by the other axes.
    flat_shape: Vec<usize>,
    /// Flat positions in the merged axis, in the common shape of the index tensors.
    flat: Tensor,
    common: Vec<usize>,
    /// The position among `rest` where the common axes are inserted in the result.
    at: usize,
    rest: Vec<usize>,
}

impl IndexPlan {
    fn result_shape(&self) -> Vec<usize> {
        let mut out = self.rest[..self.at].to_vec();
        out.extend(&self.common);
        out.extend(&self.rest[self.at..]);
        out
    }

    /// Moves the common axes of `[common.., rest..]` to their position in the result.
    fn place(&self, t: &Tensor) -> Result<Tensor> {
        let c = self.common.len();
        let mut order: Vec<i64> = (0..self.at).map(|i| (c + i) as i64).collect();
        order.extend((0..c).map(|i| i as i64));
        order.extend((self.at..self.rest.len()).map(|i| (c + i) as i64));
        t.permute(&order)
    }

    /// The inverse of [`IndexPlan::place`], with the common axes merged into one.
    fn unplace(&self, t: &Tensor) -> Result<Tensor> {
        let c = self.common.len();
        let mut order: Vec<i64> = (0..c).map(|i| (self.at + i) as i64).collect();
        order.extend((0..self.at).map(|i| i as i64));
        order.extend((self.at..self.rest.len()).map(|i| (c + i) as i64));
        let mut shape: Vec<usize> = vec![self.common.iter().product()];
        shape.extend(&self.rest);
        t.permute(&order)?.reshape(&shape)
    }
}
