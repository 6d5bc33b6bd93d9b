//! Rows of the table: creation, movement, joining, indexing, scatter.

use super::*;
use crate::tensor::{PadMode, ScatterOp, Slice};

ops! {
    // ---- creation
    "zeros" (s: Session, size: Vec<usize>, dtype: DType = DType::F32) Tensor::zeros(&s, dtype, &size);
    "ones" (s: Session, size: Vec<usize>, dtype: DType = DType::F32) Tensor::ones(&s, dtype, &size);
    "full" (s: Session, size: Vec<usize>, fill_value: Operand, dtype: Option<DType>) {
        let dt = dtype.unwrap_or(Tensor::scalar(&s, &fill_value)?.dtype());
        Tensor::full(&s, fill_value, dt, &size)
    };
    "zeros_like" | "zero_" (input: Tensor, dtype: Option<DType>) Tensor::zeros(input.session(), dtype.unwrap_or(input.dtype()), &input.shape());
    "ones_like" (input: Tensor, dtype: Option<DType>) Tensor::ones(input.session(), dtype.unwrap_or(input.dtype()), &input.shape());
    "full_like" (input: Tensor, fill_value: Operand, dtype: Option<DType>) Tensor::full(input.session(), fill_value,
        dtype.unwrap_or(input.dtype()), &input.shape());
    "fill" (input: Tensor, value: Operand) match value {
        Operand::Tensor(t) => t.cast(input.dtype())?.expand(&input.shape()),
        v => input.full_like(v),
    };
    "new_zeros" (input: Tensor, size: Vec<usize>, dtype: Option<DType>) Tensor::zeros(input.session(), dtype.unwrap_or(input.dtype()), &size);
    "new_ones" (input: Tensor, size: Vec<usize>, dtype: Option<DType>) Tensor::ones(input.session(), dtype.unwrap_or(input.dtype()), &size);
    "new_full" (input: Tensor, size: Vec<usize>, fill_value: Operand, dtype: Option<DType>) Tensor::full(input.session(), fill_value,
        dtype.unwrap_or(input.dtype()), &size);
    "scalar_tensor" (s: Session, value: Operand, dtype: Option<DType>) Tensor::full(&s, &value, dtype.unwrap_or(DType::F32), &[]);
    "arange" (s: Session, start: Operand, end: Option<Operand>, step: Option<Operand>, dtype: Option<DType>) {
        let whole = [Some(&start), end.as_ref(), step.as_ref()].into_iter().flatten().all(|v| matches!(v, Operand::Int(_)));
        let dt = dtype.unwrap_or(if whole { DType::I64 } else { DType::F32 });
        let num = |o: &Operand| match o { Operand::Int(i) => *i as f64, Operand::Float(f) => *f, Operand::Bool(b) => *b as u8 as f64, _ => f64::NAN };
        let (from, to) = match &end { Some(e) => (num(&start), num(e)), None => (0.0, num(&start)) };
        Tensor::arange(&s, from, to, step.as_ref().map_or(1.0, num), dt)
    };
    "linspace" (s: Session, start: Operand, end: Operand, steps: usize, dtype: Option<DType>) {
        let (a, b) = (tensor(&s, start)?.to_float()?, tensor(&s, end)?.to_float()?);
        Tensor::linspace_between(&a, &b, steps)?.cast(dtype.unwrap_or(DType::F32))
    };
    "logspace" (s: Session, start: Operand, end: Operand, steps: usize, base: f64 = 10.0, dtype: Option<DType>) {
        let (a, b) = (tensor(&s, start)?.to_float()?, tensor(&s, end)?.to_float()?);
        let at = Tensor::linspace_between(&a, &b, steps)?;
        Tensor::full(&s, base, at.dtype(), &[])?.pow(at)?.cast(dtype.unwrap_or(DType::F32))
    };
    "eye" (s: Session, n: usize, m: Option<usize>, dtype: DType = DType::F32) Tensor::eye(&s, n, m.unwrap_or(n), dtype);
    "tril_indices" (s: Session, row: usize, col: usize, offset: i64 = 0) Tensor::triangle_indices(&s, row, col, offset, true);
    "triu_indices" (s: Session, row: usize, col: usize, offset: i64 = 0) Tensor::triangle_indices(&s, row, col, offset, false);
    "linalg.vander" (input: Tensor, N: Option<usize>) {
        let input = if input.rank() == 0 { input.reshape(&[1usize])? } else { input };
        let n = N.unwrap_or(input.dim(-1)?);
        input.unsqueeze(-1)?.vander(n)
    };
    // ---- movement
    "clone" | "contiguous" (input: Tensor) Ok(input);
    "reshape" | "view" | "view_copy" (input: Tensor, shape: Vec<i64>) input.reshape(&shape);
    "reshape_as" | "view_as" (input: Tensor, other: Tensor) input.reshape(&other.shape());
    "permute" | "permute_copy" (input: Tensor, dims: Vec<i64>) input.permute(&dims);
    "transpose" | "transpose_copy" | "swapaxes" | "swapdims" (input: Tensor, dim0: i64, dim1: i64) if input.rank() == 0 { Ok(input)
        } else { input.transpose(dim0, dim1) };
    "t" | "t_copy" | "T" (input: Tensor) if input.rank() < 2 { Ok(input) } else { input.permute(&(0..input.rank()
        as i64).rev().collect::<Vec<_>>()) };
    "mT" | "mH" | "H" (input: Tensor) if input.rank() < 2 { Ok(input) } else { input.t() };
    "movedim" | "moveaxis" (input: Tensor, source: Vec<i64>, destination: Vec<i64>) input.move_axes(&source, &destination);
    "flatten" (input: Tensor, start_dim: i64 = 0, end_dim: i64 = -1) input.flatten(start_dim, end_dim);
    "ravel" (input: Tensor) input.reshape(&[-1]);
    "unflatten" (input: Tensor, dim: i64, sizes: Vec<i64>) input.unflatten(dim, &sizes);
    "squeeze" | "squeeze_copy" (input: Tensor, dim: Option<Vec<i64>>) input.squeeze_axes(dim.as_deref());
    "unsqueeze" | "unsqueeze_copy" (input: Tensor, dim: i64) input.unsqueeze(dim);
    "expand" | "broadcast_to" | "expand_copy" (input: Tensor, size: Vec<i64>) input.expand_to(&size);
    // axes by name, as einops: `axes` lists names separated by spaces, `lengths` their sizes
    "rearrange" (input: Tensor, pattern: &str, axes: &str = "", lengths: Option<Vec<usize>>) {
        let (names, lengths): (Vec<&str>, _) = (axes.split_whitespace().collect(), lengths.unwrap_or_default());
        if names.len() != lengths.len() {
            return Err(Error::value("rearrange", format!("{} lengths for the axes `{axes}`", lengths.len())));
        }
        input.rearrange(pattern, &names.into_iter().zip(lengths).collect::<Vec<_>>())
    };
    // a size of -1 leaves an axis as it is
    "pad_to" (input: Tensor, size: Vec<i64>) input.pad_to(&size.iter().map(|&n| usize::try_from(n).ok()).collect::<Vec<_>>());
    "shrink_to" (input: Tensor, size: Vec<i64>) input.shrink_to(&size.iter().map(|&n| usize::try_from(n).ok()).collect::<Vec<_>>());
    "expand_as" (input: Tensor, other: Tensor) input.expand(&other.shape());
    "sum_to_size" (input: Tensor, size: Vec<usize>) input.sum_to(&size);
    "broadcast_tensors" (tensors: Vec<Tensor>) Tensor::broadcast_all(&tensors);
    "flip" (input: Tensor, dims: Vec<i64>) if dims.is_empty() { Ok(input) } else { input.flip(&dims) };
    "fliplr" (input: Tensor) input.flip(&[1]);
    "flipud" (input: Tensor) input.flip(&[0]);
    "rot90" (input: Tensor, k: i64 = 1, dims: Option<Vec<i64>>) input.rot90(k, &dims.unwrap_or(vec![0, 1]));
    "roll" (input: Tensor, shifts: Vec<i64>, dims: Option<Vec<i64>>) match dims.filter(|d| !d.is_empty()) {
        None => input.reshape(&[-1])?.roll(shifts.first().copied().unwrap_or(0), 0)?.reshape(&input.shape()),
        Some(d) => shifts.iter().zip(d).try_fold(input, |t, (&n, a)| t.roll(n, a)),
    };
    "repeat" (input: Tensor, repeats: Vec<usize>) input.repeat(&repeats);
    "tile" (input: Tensor, dims: Vec<usize>) {
        let mut counts = vec![1; input.rank().saturating_sub(dims.len())];
        counts.extend(dims);
        input.repeat(&counts)
    };
    "repeat_interleave" (input: Tensor, repeats: &Value, dim: Option<i64>) {
        let (x, a) = match dim { Some(d) => (input, d), None => (input.reshape(&[-1])?, 0) };
        match repeats {
            Value::Tensor(t) => x.repeat_each(t, a),
            v => x.repeat_interleave(usize::from_value(v).ok_or_else(|| Error::value("repeat_interleave", "a bad count"))?, a),
        }
    };
    "narrow" | "narrow_copy" (input: Tensor, dim: i64, start: &Value, length: usize) match start {
        Value::Tensor(t) => input.narrow_at(dim, t, length),
        v => {
            let at = axis_number(v)?;
            let n = input.dim(dim)? as i64;
            input.narrow(dim, (if at < 0 { at + n } else { at }).max(0) as usize, length)
        }
    };
    "select" (input: Tensor, dim: i64, index: i64) input.select_at(dim, index);
    "slice" (input: Tensor, dim: i64 = 0, start: Option<i64>, end: Option<i64>, step: i64 = 1) {
        let a = super::super::check_axis("slice", dim, input.rank())?;
        let mut slices = vec![Slice::ALL; a];
        slices.push(Slice::step(start, end, step));
        input.slice(&slices)
    };
    "unfold" | "unfold_copy" (input: Tensor, dimension: i64, size: usize, step: usize) input.unfold_axis(dimension, size, step);
    "diagonal" | "diagonal_copy" | "linalg.diagonal" (input: Tensor, offset: i64 = 0, dim1: Option<i64>, dim2: Option<i64>) {
        input.diagonal_of(offset, dim1.unwrap_or(0), dim2.unwrap_or(1))
    };
    "diag" (input: Tensor, diagonal: i64 = 0) if input.rank() == 1 { input.diag_embed(diagonal) } else { input.diagonal_of(diagonal, 0, 1) };
    "diag_embed" (input: Tensor, offset: i64 = 0, dim1: i64 = -2, dim2: i64 = -1) {
        let rank = input.rank() + 1;
        let (a, b) = (super::super::check_axis("diag_embed", dim1, rank)? as i64, super::super::check_axis("diag_embed", dim2, rank)? as i64);
        let m = if a > b { input.diag_embed(offset.saturating_neg())? } else { input.diag_embed(offset)? };
        m.move_axes(&[-2, -1], &[a.min(b), a.max(b)])
    };
    "diagflat" (input: Tensor, offset: i64 = 0) input.reshape(&[-1])?.diag_embed(offset);
    "tril" (input: Tensor, diagonal: i64 = 0) input.tril(diagonal);
    "triu" (input: Tensor, diagonal: i64 = 0) input.triu(diagonal);
    "trace" (input: Tensor) input.diagonal_of(0, 0, 1)?.sum(&[], false);
    "atleast_1d" (tensors: Vec<Tensor>) tensors.iter().map(|t| if t.rank() < 1 { t.reshape(&[1usize]) } else { Ok(t.clone())
        }).collect::<Result<Vec<_>>>();
    "atleast_2d" (tensors: Vec<Tensor>) tensors.iter().map(Tensor::at_least_2d).collect::<Result<Vec<_>>>();
    "atleast_3d" (tensors: Vec<Tensor>) tensors.iter().map(|t| match t.rank() {
        0 => t.reshape(&[1usize, 1, 1]),
        1 => t.unsqueeze(0)?.unsqueeze(-1),
        2 => t.unsqueeze(-1),
        _ => Ok(t.clone()),
    }).collect::<Result<Vec<_>>>();
    "constant_pad_nd" (input: Tensor, pad: Vec<i64>, value: Operand = Operand::Int(0)) input.pad_last(&pad, PadMode::Constant, value);
    "nn.functional.pad" (input: Tensor, pad: Vec<i64>, mode: &str = "constant", value: Option<Operand>) {
        input.pad_last(&pad, pad_mode(mode)?, value.unwrap_or(Operand::Int(0)))
    };
    // ---- joining and splitting
    "cat" | "concat" | "concatenate" (tensors: Vec<Tensor>, dim: i64 = 0) {
        // as in torch, an empty vector can be joined with anything
        let some: Vec<&Tensor> = tensors.iter().filter(|t| t.shape() != [0]).collect();
        if some.is_empty() { Tensor::cat(&tensors.iter().collect::<Vec<_>>(), dim) } else { Tensor::cat(&some, dim) }
    };
    "stack" (tensors: Vec<Tensor>, dim: i64 = 0) Tensor::stack(&tensors.iter().collect::<Vec<_>>(), dim);
    "hstack" (tensors: Vec<Tensor>) {
        let ts: Vec<Tensor> = tensors.iter().map(|t| if t.rank() < 1 { t.reshape(&[1usize]) } else { Ok(t.clone()) }).collect::<Result<_>>()?;
        let a = if ts.first().is_some_and(|t| t.rank() == 1) { 0 } else { 1 };
        Tensor::cat(&ts.iter().collect::<Vec<_>>(), a)
    };
    "vstack" | "row_stack" (tensors: Vec<Tensor>) {
        let ts: Vec<Tensor> = tensors.iter().map(Tensor::at_least_2d).collect::<Result<_>>()?;
        Tensor::cat(&ts.iter().collect::<Vec<_>>(), 0)
    };
    "dstack" (tensors: Vec<Tensor>) {
        let ts: Vec<Tensor> = tensors.iter().map(|t| {
            let t = t.at_least_2d()?;
            if t.rank() == 2 { t.unsqueeze(-1) } else { Ok(t) }
        }).collect::<Result<_>>()?;
        Tensor::cat(&ts.iter().collect::<Vec<_>>(), 2)
    };
    "column_stack" (tensors: Vec<Tensor>) {
        let ts: Vec<Tensor> = tensors.iter().map(|t| if t.rank() < 2 { t.reshape(&[-1, 1]) } else { Ok(t.clone()) }).collect::<Result<_>>()?;
        Tensor::cat(&ts.iter().collect::<Vec<_>>(), 1)
    };
    "block_diag" (tensors: Vec<Tensor>) Tensor::block_diag(&tensors);
    "cartesian_prod" (tensors: Vec<Tensor>) Tensor::cartesian_prod(&tensors);
    "meshgrid" (tensors: Vec<Tensor>, indexing: &str = "ij") Tensor::meshgrid(&tensors, indexing == "xy");
    "chunk" | "unsafe_chunk" (input: Tensor, chunks: usize, dim: i64 = 0) input.chunk(chunks, dim);
    "split" | "unsafe_split" (input: Tensor, split_size: &Value, dim: i64 = 0) match split_size {
        Value::List(_) => input.split(&Vec::from_value(split_size).ok_or_else(|| Error::value("split", "bad sizes"))?, dim),
        v => {
            let (n, size) = (input.dim(dim)?, usize::from_value(v).ok_or_else(|| Error::value("split", "a bad size"))?);
            super::super::check_repetitions("split", n.div_ceil(size.max(1)))?;
            let sizes: Vec<usize> = if n == 0 { vec![0] } else { (0..n).step_by(size.max(1)).map(|i| size.min(n - i)).collect() };
            input.split(&sizes, dim)
        }
    };
    "split_with_sizes" | "split_with_sizes_copy" (input: Tensor, split_sizes: Vec<usize>, dim: i64 = 0) input.split(&split_sizes, dim);
    "tensor_split" (input: Tensor, indices_or_sections: &Value, dim: i64 = 0) input.tensor_split(indices_or_sections, dim);
    "hsplit" (input: Tensor, indices_or_sections: &Value) input.tensor_split(indices_or_sections, if input.rank() == 1 { 0 } else { 1 });
    "vsplit" (input: Tensor, indices_or_sections: &Value) input.tensor_split(indices_or_sections, 0);
    "dsplit" (input: Tensor, indices_or_sections: &Value) input.tensor_split(indices_or_sections, 2);
    "unbind" | "unbind_copy" (input: Tensor, dim: i64 = 0) (0..super::super::check_repetitions("unbind", input.dim(dim)?)?)
        .map(|i| input.select_at(dim, i as i64)).collect::<Result<Vec<_>>>();
    "_chunk_cat" (tensors: Vec<Tensor>, dim: i64, num_chunks: usize) Tensor::chunk_cat(&tensors, dim, num_chunks);
    "combinations" (input: Tensor, r: usize = 2, with_replacement: bool = false) input.combinations(r, with_replacement);
    // ---- indexing
    "gather" (input: Tensor, dim: i64, index: Tensor) {
        if index.numel() == 0 { return Tensor::zeros(input.session(), input.dtype(), &index.shape()); }
        if input.rank() == 0 { return input.reshape(&[1usize])?.gather(0, &index.reshape(&[-1])?)?.reshape(&index.shape()); }
        input.gather(dim, &index)
    };
    "take_along_dim" (input: Tensor, indices: Tensor, dim: Option<i64>) input.take_along_dim(&indices, dim);
    "take" (input: Tensor, index: Tensor) input.reshape(&[-1])?.index_select(0, &index);
    "index_select" (input: Tensor, dim: i64, index: Tensor) {
        if input.rank() == 0 { return Ok(input); }
        input.index_select(dim, &index.reshape(&[-1])?)
    };
    "__getitem__" (input: Tensor, indices: &Value) input.index(&index_list(&input, indices)?);
    "_unsafe_masked_index" (input: Tensor, mask: Tensor, indices: &Value, fill: Operand) {
        let got = input.index(&index_list(&input, indices)?)?;
        mask.select(&got, got.full_operand(&fill)?)
    };
    "nn.functional.embedding" (input: Tensor, weight: Tensor, padding_idx: Option<i64>, max_norm: Option<f64>, norm_type: f64 = 2.0,
        scale_grad_by_freq: bool = false, sparse: bool = false) {
        let _ = sparse;
        let mut table = weight.clone();
        if let Some(m) = max_norm { table = table.renorm(norm_type, 0, m)?; }
        let n = table.dim(0)? as i64;
        let mut out = table.embedding(&input)?;
        if scale_grad_by_freq {
            // the gradient of a row is divided by the number of times that the row occurs
            let flat = input.reshape(&[-1])?;
            let count = flat.unsqueeze(-1)?.eq(flat.unsqueeze(0)?)?.cast(DType::F32)?.sum(&[-1], false)?.reshape(&input.shape())?.unsqueeze(-1)?;
            let part = out.div(count)?;
            out = out.detach().sub(part.detach())?.add(part)?;
        }
        match padding_idx {
            Some(p) => input.eq(if p < 0 { p + n } else { p })?.unsqueeze(-1)?.select(out.detach(), out),
            None => Ok(out),
        }
    };
    "nn.functional.one_hot" (input: Tensor, num_classes: i64 = -1)
        input.one_hot(usize::try_from(num_classes).or_else(|_| input.host_max_plus_one("one_hot"))?);
    "nonzero_static" (input: Tensor, size: usize, fill_value: i64 = -1) input.nonzero_static(size, fill_value);
    "nonzero" | "argwhere" (input: Tensor) input.nonzero_counted();
    "masked_select" (input: Tensor, mask: Tensor) input.masked_select_counted(&mask);
    "unique" (input: Tensor) input.unique_counted();
    "unique_consecutive" (input: Tensor) input.unique_consecutive_counted();
    "bincount" (input: Tensor, weights: Option<Tensor>, minlength: usize = 0) {
        input.bincount(weights.as_ref(), minlength.max(input.host_max_plus_one("bincount")?))
    };
    // ---- writing by index
    "scatter" (input: Tensor, dim: i64, index: Tensor, src: Operand, reduce: Option<&str>) {
        let how = match reduce { None => ScatterOp::Set, Some("add") => ScatterOp::Add, Some(_) => ScatterOp::Mul };
        input.scatter_values(dim, &index, &src, how, true)
    };
    "scatter_add" (input: Tensor, dim: i64, index: Tensor, src: Tensor) input.scatter_values(dim, &index, &Operand::Tensor(src),
        ScatterOp::Add, true);
    "scatter_reduce" (input: Tensor, dim: i64, index: Tensor, src: Tensor, reduce: &str, include_self: bool = true)
        input.scatter_values(dim, &index, &Operand::Tensor(src), scatter_op(reduce)?, include_self);
    // ONNX's operators GatherND and ScatterND
    "gather_nd" (input: Tensor, indices: Tensor, batch_dims: usize = 0) input.gather_nd(&indices, batch_dims);
    "scatter_nd" (input: Tensor, indices: Tensor, updates: Tensor, reduce: &str = "none") {
        let how = match reduce {
            "none" => ScatterOp::Set,
            "add" => ScatterOp::Add,
            "mul" => ScatterOp::Mul,
            "max" => ScatterOp::Max,
            "min" => ScatterOp::Min,
            _ => return Err(Error::value("scatter_nd", format!("there is no reduction `{reduce}`"))),
        };
        input.scatter_nd(&indices, &updates, how)
    };
    "index_add" (input: Tensor, dim: i64, index: Tensor, source: Tensor, alpha: Operand = Operand::Int(1)) input.index_write(dim,
        &index, &source.mul(alpha)?, ScatterOp::Add, true);
    "index_copy" (input: Tensor, dim: i64, index: Tensor, source: Tensor) input.index_write(dim, &index, &source, ScatterOp::Set, true);
    "index_fill" (input: Tensor, dim: i64, index: Tensor, value: Operand) input.index_fill(dim, &index, &value);
    "index_reduce" (input: Tensor, dim: i64, index: Tensor, source: Tensor, reduce: &str, include_self: bool = true)
        input.index_write(dim, &index, &source, scatter_op(reduce)?, include_self);
    "index_put" (input: Tensor, indices: &Value, values: Tensor, accumulate: bool = false) input.index_put(&index_list(&input,
        indices)?, &values, accumulate);
    "_unsafe_masked_index_put_accumulate" (input: Tensor, mask: Tensor, indices: &Value, values: Tensor) {
        let values = mask.select(&values, 0)?;
        input.index_put(&index_list(&input, indices)?, &values, true)
    };
    "put" (input: Tensor, index: Tensor, source: Tensor, accumulate: bool = false) {
        let how = if accumulate { ScatterOp::Add } else { ScatterOp::Set };
        input.reshape(&[-1])?.scatter_values(0, &index.reshape(&[-1])?, &Operand::Tensor(source.reshape(&[-1])?), how, true)?.reshape(&input.shape())
    };
    "masked_scatter" (input: Tensor, mask: Tensor, source: Tensor) input.masked_scatter(&mask, &source);
    "select_scatter" (input: Tensor, src: Tensor, dim: i64, index: i64) {
        let n = input.dim(dim)?;
        let i = super::super::check_axis("select_scatter", index, n)?;
        input.write_slice(&src.unsqueeze(super::super::check_axis("select_scatter", dim, input.rank())? as i64)?, dim, i, 1)
    };
    "slice_scatter" (input: Tensor, src: Tensor, dim: i64 = 0, start: Option<i64>, end: Option<i64>, step: usize = 1) {
        let n = input.dim(dim)? as i64;
        let at = start.unwrap_or(0);
        let _ = end;
        input.write_slice(&src, dim, (if at < 0 { at + n } else { at }).clamp(0, n) as usize, step)
    };
    "diagonal_scatter" (input: Tensor, src: Tensor, offset: i64 = 0, dim1: i64 = 0, dim2: i64 = 1) input.diagonal_scatter(&src, offset, dim1, dim2);
}

fn axis_number(v: &Value) -> Result<i64> {
    i64::from_value(v).ok_or_else(|| Error::value("call", "a whole number is needed"))
}

fn scatter_op(name: &str) -> Result<ScatterOp> {
    Ok(match name {
        "sum" | "add" => ScatterOp::Add,
        "prod" | "multiply" => ScatterOp::Mul,
        "amax" => ScatterOp::Max,
        "amin" => ScatterOp::Min,
        "mean" => ScatterOp::Mean,
        _ => return Err(Error::value("scatter", format!("there is no reduction `{name}`"))),
    })
}

fn pad_mode(name: &str) -> Result<PadMode> {
    Ok(match name {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        _ => return Err(Error::value("pad", format!("there is no mode `{name}`"))),
    })
}

/// The index tensors of the first axes: numbers and lists of numbers become tensors, a missing index keeps its axis.
fn index_list(t: &Tensor, v: &Value) -> Result<Vec<Option<Tensor>>> {
    let bad = || Error::value("index", "indices should be tensors or numbers");
    let one = |v: &Value| -> Result<Option<Tensor>> {
        Ok(Some(match v {
            Value::None => return Ok(None),
            Value::Tensor(t) => t.clone(),
            Value::Int(i) => Tensor::new(t.session(), &[*i as i32], &[])?,
            list => {
                let v: Vec<i64> = Vec::from_value(list).ok_or_else(bad)?;
                Tensor::new(t.session(), &v.iter().map(|&i| i as i32).collect::<Vec<_>>(), &[v.len()])?
            }
        }))
    };
    match v {
        // a flat list of numbers is one index, not one for each axis
        Value::List(l) if !l.iter().all(|v| matches!(v, Value::Int(_))) => l.iter().map(one).collect(),
        v => Ok(vec![one(v)?]),
    }
}
