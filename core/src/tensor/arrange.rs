//! Rearrangements in further forms that numpy and torch have: axes by list, diagonals, grids, windows of one axis,
//! combinations.

use super::call::Value;
use super::{Tensor, check_axis};
use crate::{DType, Error, Result};

impl Tensor {
    /// Moves the axes `from` to the positions `to`; the other axes keep their order.
    pub fn move_axes(&self, from: &[i64], to: &[i64]) -> Result<Tensor> {
        let rank = self.rank();
        if from.len() != to.len() {
            return Err(Error::value("movedim", format!("{from:?} and {to:?} differ in length")));
        }
        let of = |l: &[i64]| l.iter().map(|&a| check_axis("movedim", a, rank)).collect::<Result<Vec<_>>>();
        let (from, to) = (of(from)?, of(to)?);
        let mut order = vec![None; rank];
        from.iter().zip(&to).for_each(|(&f, &t)| order[t] = Some(f as i64));
        let mut rest = (0..rank).filter(|a| !from.contains(a)).map(|a| a as i64);
        let order: Option<Vec<i64>> = order.into_iter().map(|o| o.or_else(|| rest.next())).collect();
        self.permute(&order.ok_or_else(|| Error::value("movedim", "an axis is named twice"))?)
    }

    /// Removes those of the listed axes that have size 1 (all axes of size 1 for `None`); other listed axes stay.
    pub fn squeeze_axes(&self, axes: Option<&[i64]>) -> Result<Tensor> {
        let Some(axes) = axes else { return self.squeeze_all() };
        let shape = self.shape();
        if shape.is_empty() {
            return Ok(self.clone());
        }
        let axes = axes.iter().map(|&a| check_axis("squeeze", a, shape.len())).collect::<Result<Vec<_>>>()?;
        let keep = |i: &usize| shape[*i] != 1 || !axes.contains(i);
        self.reshape(&(0..shape.len()).filter(keep).map(|i| shape[i]).collect::<Vec<_>>())
    }

    /// [`Tensor::expand`], with -1 for a size that stays.
    pub fn expand_to(&self, sizes: &[i64]) -> Result<Tensor> {
        let own = self.shape();
        let lead = sizes.len().saturating_sub(own.len());
        let size = |(i, &n): (usize, &i64)| match n {
            -1 if i >= lead => Ok(own[i - lead]),
            n => usize::try_from(n).map_err(|_| Error::value("expand", format!("bad sizes {sizes:?}"))),
        };
        self.expand(&sizes.iter().enumerate().map(size).collect::<Result<Vec<_>>>()?)
    }

    /// The inverse of broadcasting, as gradients need it: sums over the leading axes that `size` lacks and over those
    /// where `size` has 1. `Error::Shape` if this tensor's shape is not a broadcast of `size`.
    pub fn sum_to(&self, size: &[usize]) -> Result<Tensor> {
        let shape = self.shape();
        let misfit = || Error::Shape { op: "sum_to_size", lhs: shape.clone(), rhs: size.to_vec() };
        let lead = shape.len().checked_sub(size.len()).ok_or_else(misfit)?;
        let mut axes: Vec<i64> = (0..lead as i64).collect();
        for (i, &n) in size.iter().enumerate() {
            match shape[lead + i] {
                m if m == n => {}
                _ if n == 1 => axes.push((lead + i) as i64),
                _ => return Err(misfit()),
            }
        }
        if axes.is_empty() {
            return Ok(self.clone());
        }
        self.sum(&axes, true)?.reshape(size)
    }

    /// All tensors broadcast to their common shape.
    pub fn broadcast_all(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut shape = Vec::new();
        for t in tensors {
            shape = super::broadcast_shape("broadcast_tensors", &shape, &t.shape())?.to_vec();
        }
        tensors.iter().map(|t| t.expand(&shape)).collect()
    }

    /// Rotates by `k` right angles in the plane of two axes, from the first axis toward the second.
    pub fn rot90(&self, k: i64, axes: &[i64]) -> Result<Tensor> {
        let &[a, b] = axes else { return Err(Error::value("rot90", "two axes are needed")) };
        match k.rem_euclid(4) {
            0 => Ok(self.clone()),
            1 => self.flip(&[b])?.transpose(a, b),
            2 => self.flip(&[a, b]),
            _ => self.transpose(a, b)?.flip(&[b]),
        }
    }

    /// Windows of `size` elements along one axis, one every `step` elements: the axis becomes the number of windows,
    /// and a last axis of `size` is added.
    pub fn unfold_axis(&self, axis: i64, size: usize, step: usize) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape(&[1usize])?.narrow(0, 0, size);
        }
        let a = check_axis("unfold", axis, self.rank())?;
        let n = self.shape()[a];
        if size == 0 {
            let mut shape = self.shape();
            shape[a] = if step == 0 { 0 } else { n / step + 1 };
            shape.push(0);
            return Tensor::zeros(self.session(), self.dtype(), &shape);
        }
        if step == 0 || size > n {
            return Err(Error::value("unfold", format!("windows of {size} by {step} on an axis of size {n}")));
        }
        self.move_axis(a as i64, -1)?.windows(&[size], &[step], &[1])?.move_axis(-2, a as i64)
    }

    /// A diagonal of the matrices that two axes span, as a new last axis; the two axes are removed. A positive offset
    /// is above the main diagonal.
    pub fn diagonal_of(&self, offset: i64, axis1: i64, axis2: i64) -> Result<Tensor> {
        let rank = self.rank();
        let (a, b) = (check_axis("diagonal", axis1, rank)?, check_axis("diagonal", axis2, rank)?);
        if a == b {
            return Err(Error::value("diagonal", "the two axes are one"));
        }
        let t = self.move_axes(&[a as i64, b as i64], &[-2, -1])?;
        let (n, m) = (t.dim(-2)? as i64, t.dim(-1)? as i64);
        let (down, right) = (offset.saturating_neg().clamp(0, n), offset.clamp(0, m));
        t.narrow(-2, down as usize, (n - down) as usize)?.narrow(-1, right as usize, (m - right) as usize)?.diagonal()
    }

    /// Matrices with the last axis on a diagonal and zeros elsewhere: `[.., n] -> [.., n + |offset|, n + |offset|]`.
    pub fn diag_embed(&self, offset: i64) -> Result<Tensor> {
        let n = self.dim(-1)?;
        let size = n.saturating_add(offset.unsigned_abs() as usize);
        let rows = Tensor::iota(self.session(), size)?.unsqueeze(1)?;
        let cols = Tensor::iota(self.session(), size)?.unsqueeze(0)?;
        let mut pad = vec![(0, 0); self.rank()];
        let last = pad.len() - 1;
        pad[last] = if offset > 0 { (offset as usize, 0) } else { (0, offset.unsigned_abs() as usize) };
        cols.sub(rows)?.eq(offset)?.select(self.pad_zeros(&pad)?.unsqueeze(-2)?, 0)?.cast(self.dtype())
    }

    /// A copy in which a diagonal of the matrices that two axes span is replaced by `src`, whose last axis runs along
    /// it.
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, axis1: i64, axis2: i64) -> Result<Tensor> {
        let rank = self.rank();
        let (a, b) = (check_axis("diagonal", axis1, rank)? as i64, check_axis("diagonal", axis2, rank)? as i64);
        let t = self.move_axes(&[a, b], &[-2, -1])?;
        let (n, m) = (t.dim(-2)?, t.dim(-1)?);
        let rows = Tensor::iota(self.session(), n)?.unsqueeze(1)?;
        let cols = Tensor::iota(self.session(), m)?.unsqueeze(0)?;
        let hit = cols.sub(&rows)?.eq(offset)?;
        let k = src.dim(-1)?;
        if k == 0 {
            return Ok(self.clone());
        }
        // element i of the diagonal is in row i for offsets above, and in column i for offsets below the main diagonal
        let along = if offset < 0 { Tensor::iota(self.session(), m)? } else { Tensor::iota(self.session(), n)? };
        let spread = src.index_select(-1, &along.minimum(k as i64 - 1)?)?;
        let spread = if offset < 0 { spread.unsqueeze(-2)? } else { spread.unsqueeze(-1)? };
        hit.select(spread.cast(self.dtype())?, t)?.move_axes(&[-2, -1], &[a, b])
    }

    /// As a matrix: a scalar becomes `[1, 1]`, a vector one row.
    pub(crate) fn at_least_2d(&self) -> Result<Tensor> {
        match self.rank() {
            0 => self.reshape(&[1usize, 1]),
            1 => self.unsqueeze(0),
            _ => Ok(self.clone()),
        }
    }

    /// A block-diagonal matrix of the given matrices; scalars and vectors count as single rows.
    pub fn block_diag(tensors: &[Tensor]) -> Result<Tensor> {
        let ms: Vec<Tensor> = tensors.iter().map(Tensor::at_least_2d).collect::<Result<_>>()?;
        let cols: usize = ms.iter().map(|m| m.shape()[1]).sum();
        let (mut rows, mut left) = (Vec::new(), 0);
        for m in &ms {
            let w = m.want_rank("block_diag", 2)?[1];
            rows.push(m.pad_zeros(&[(0, 0), (left, cols - left - w)])?);
            left += w;
        }
        Tensor::cat(&rows.iter().collect::<Vec<_>>(), 0)
    }

    /// All combinations of one element of each vector, as the rows of a matrix `[product of lengths, vectors]`.
    pub fn cartesian_prod(tensors: &[Tensor]) -> Result<Tensor> {
        if let [one] = tensors {
            return Ok(one.clone());
        }
        let grids = Tensor::meshgrid(tensors, false)?;
        let flat = grids.iter().map(|g| g.reshape(&[-1])).collect::<Result<Vec<_>>>()?;
        Tensor::stack(&flat.iter().collect::<Vec<_>>(), 1)
    }

    /// The coordinates of a grid: tensor `i` of the result varies along axis `i` only and has the values of vector `i`.
    /// With `xy` the first two axes are swapped (numpy's `indexing="xy"`).
    pub fn meshgrid(tensors: &[Tensor], xy: bool) -> Result<Vec<Tensor>> {
        let n = tensors.len();
        let shape: Vec<usize> = tensors.iter().map(Tensor::numel).collect();
        let grid = |(i, t): (usize, &Tensor)| {
            let mut own = vec![1; n];
            own[i] = shape[i];
            let g = t.reshape(&own)?.expand(&shape)?;
            if xy && n >= 2 { g.transpose(0, 1) } else { Ok(g) }
        };
        tensors.iter().enumerate().map(grid).collect()
    }

    /// Splits an axis at a list of indices, or into a number of sections whose sizes differ by at most one.
    pub(crate) fn tensor_split(&self, at: &Value, axis: i64) -> Result<Vec<Tensor>> {
        let n = self.dim(axis)? as i64;
        let bad = || Error::value("tensor_split", "indices or a number of sections are needed");
        let mut cuts = match at {
            Value::Int(k) if *k > 0 => {
                super::check_repetitions("tensor_split", usize::try_from(*k).unwrap_or(usize::MAX))?;
                let (base, extra) = (n / k, n % k);
                (1..*k).map(|i| i * base + i.min(extra)).collect::<Vec<_>>()
            }
            Value::Tensor(t) => {
                let host = t.host_ints().ok_or_else(bad)?;
                if t.rank() == 0 {
                    return self.tensor_split(&Value::Int(*host.first().ok_or_else(bad)?), axis);
                }
                host.iter().map(|&i| (if i < 0 { i + n } else { i }).clamp(0, n)).collect()
            }
            Value::List(l) => {
                let int = |v: &Value| if let Value::Int(i) = v { Some(*i) } else { None };
                let l: Option<Vec<i64>> = l.iter().map(int).collect();
                l.ok_or_else(bad)?.iter().map(|&i| (if i < 0 { i + n } else { i }).clamp(0, n)).collect()
            }
            _ => return Err(bad()),
        };
        cuts.push(n);
        let mut from = 0;
        let mut out = Vec::new();
        for to in cuts {
            out.push(self.narrow(axis, from as usize, (to - from).max(0) as usize)?);
            from = to;
        }
        Ok(out)
    }

    /// torch's `_chunk_cat`: splits `axis` of each tensor into `chunks` parts, the last one padded with zeros, flattens
    /// each part and joins the parts of all tensors side by side: `[.., chunks, elements]`.
    pub(crate) fn chunk_cat(tensors: &[Tensor], axis: i64, chunks: usize) -> Result<Tensor> {
        if chunks == 0 {
            return Err(Error::value("chunk_cat", "0 pieces"));
        }
        let mut rows = Vec::new();
        for t in tensors {
            let a = check_axis("chunk_cat", axis, t.rank())?;
            let n = t.shape()[a];
            let size = n.div_ceil(chunks);
            let mut pad = vec![(0, 0); t.rank()];
            let grown = size.checked_mul(chunks).and_then(|n| i64::try_from(n).ok());
            pad[a].1 = grown.ok_or_else(|| Error::value("chunk_cat", "a size overflows"))? as usize - n;
            let mut shape = t.shape()[..a].to_vec();
            shape.push(chunks);
            let lead: Vec<i64> = shape.iter().map(|&n| n as i64).chain([-1]).collect();
            rows.push(t.pad_zeros(&pad)?.reshape(&lead)?);
        }
        Tensor::cat(&rows.iter().collect::<Vec<_>>(), -1)
    }

    /// Combinations of `r` elements of a vector, as rows, in lexicographic order of their indices. `Error::Value` for
    /// results of more than 2^24 elements.
    pub fn combinations(&self, r: usize, with_replacement: bool) -> Result<Tensor> {
        let n = self.want_rank("combinations", 1)?[0];
        if r > n && !with_replacement {
            return Tensor::zeros(self.session(), self.dtype(), &[0, super::check_host(r)?]);
        }
        super::check_repetitions("combinations", r)?;
        let mut index: Vec<i32> = Vec::new();
        let mut count = 0;
        let mut pick: Vec<usize> = (0..r).map(|i| if with_replacement { 0 } else { i }).collect();
        let top = |i: usize| if with_replacement { n } else { (n + i + 1).saturating_sub(r) };
        let mut more = r > 0 && pick.iter().enumerate().all(|(i, &p)| p < top(i));
        while more {
            index.extend(pick.iter().map(|&p| p as i32));
            count += 1;
            if count * r > 1 << 24 {
                return Err(Error::value("combinations", "there are too many"));
            }
            let at = (0..r).rev().find(|&i| pick[i] + 1 < top(i));
            more = at.is_some();
            if let Some(i) = at {
                pick[i] += 1;
                for j in i + 1..r {
                    pick[j] = pick[j - 1] + !with_replacement as usize;
                }
            }
        }
        match r {
            0 => Tensor::zeros(self.session(), self.dtype(), &[0]),
            _ => self.index_select(0, &Tensor::new(self.session(), &index, &[count, r])?),
        }
    }

    /// `steps` evenly spaced values from `start` to `end`, both included, along a new first axis: `[steps, ..]`.
    pub fn linspace_between(start: &Tensor, end: &Tensor, steps: usize) -> Result<Tensor> {
        let (a, b) = start.broadcast_with(end)?;
        let mut shape = vec![steps];
        shape.extend(std::iter::repeat_n(1, a.rank()));
        let i = Tensor::iota(a.session(), steps)?.cast(a.dtype())?.reshape(&shape)?;
        if steps < 2 {
            return a.unsqueeze(0)?.add(i);
        }
        let step = b.sub(&a)?.div((steps - 1) as f64)?;
        let up = a.add(step.mul(&i)?)?;
        let down = b.sub(step.mul(i.neg()?.add((steps - 1) as f64)?)?)?;
        i.lt((steps / 2) as f64)?.select(up, down)
    }

    /// Row and column indices of the elements of a triangle of a `[rows, cols]` matrix: `[2, count]`, i32. `lower`
    /// takes the elements on and below the diagonal `offset`, otherwise those on and above it.
    pub fn triangle_indices(s: &super::Session, rows: usize, cols: usize, offset: i64, lower: bool) -> Result<Tensor> {
        super::check_host(super::check_len("tril_indices", &[rows, cols])?)?;
        // rows without columns have no elements, however many there are
        let rows = if cols == 0 { 0 } else { rows };
        let inside = |r: usize, c: usize| {
            let d = c as i64 - r as i64;
            if lower { d <= offset } else { d >= offset }
        };
        let pairs: Vec<(usize, usize)> =
            (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))).filter(|&(r, c)| inside(r, c)).collect();
        let mut flat: Vec<i32> = pairs.iter().map(|p| p.0 as i32).collect();
        flat.extend(pairs.iter().map(|p| p.1 as i32));
        match pairs.len() {
            0 => Tensor::zeros(s, DType::I32, &[2, 0]),
            n => Tensor::new(s, &flat, &[2, n]),
        }
    }

    /// The Vandermonde matrix of a column `[.., 1]`: its powers 0 to `n - 1`, `[.., n]`.
    pub(crate) fn vander(&self, n: usize) -> Result<Tensor> {
        let mut columns = vec![self.ones_like()?];
        for i in 1..super::check_repetitions("vander", n)? {
            columns.push(columns[i - 1].mul(self)?);
        }
        columns.truncate(n);
        Tensor::cat(&columns.iter().collect::<Vec<_>>(), -1)
    }
}
