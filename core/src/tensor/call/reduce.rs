//! Rows of the table: reductions, scans, statistics, sorting.

use super::*;
use crate::tensor::stats::Quantile;

ops! {
    "sum" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>) typed(&input, dtype)?.sum(&dim.0, keepdim);
    "nansum" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>) input.without_nan()?.sum(&dim.0,
        keepdim).and_then(|t| typed(&t, dtype));
    "prod" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>) typed(&input, dtype)?.prod(&dim.0, keepdim);
    "mean" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>) typed(&input, dtype)?.mean(&dim.0, keepdim);
    "nanmean" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>) typed(&input.nanmean(&dim.0, keepdim)?, dtype);
    "amax" (input: Tensor, dim: Axes, keepdim: bool = false) input.max(&dim.0, keepdim);
    "amin" (input: Tensor, dim: Axes, keepdim: bool = false) input.min(&dim.0, keepdim);
    "aminmax" (input: Tensor, dim: Axes, keepdim: bool = false) Ok((input.min(&dim.0, keepdim)?, input.max(&dim.0, keepdim)?));
    "max" (input: Tensor, dim: Option<&Value>, keepdim: bool = false) match dim {
        None => input.max(&[], false).map(|t| vec![t]),
        Some(Value::Tensor(t)) => input.maximum(t).map(|t| vec![t]),
        Some(v) => input.max_along(axis(v)?, keepdim).outs(),
    };
    "min" (input: Tensor, dim: Option<&Value>, keepdim: bool = false) match dim {
        None => input.min(&[], false).map(|t| vec![t]),
        Some(Value::Tensor(t)) => input.minimum(t).map(|t| vec![t]),
        Some(v) => input.min_along(axis(v)?, keepdim).outs(),
    };
    "argmax" (input: Tensor, dim: Option<i64>, keepdim: bool = false) argument(&input, dim, keepdim, Tensor::argmax);
    "argmin" (input: Tensor, dim: Option<i64>, keepdim: bool = false) argument(&input, dim, keepdim, Tensor::argmin);
    "any" (input: Tensor, dim: Axes, keepdim: bool = false) input.any(&dim.0, keepdim);
    "all" (input: Tensor, dim: Axes, keepdim: bool = false) input.all(&dim.0, keepdim);
    "count_nonzero" (input: Tensor, dim: Axes) input.count_nonzero(&dim.0, false);
    "logsumexp" (input: Tensor, dim: Axes, keepdim: bool = false) input.logsumexp(&dim.0, keepdim);
    "var" (input: Tensor, dim: Option<&Value>, unbiased: bool = true, correction: Option<f64>, keepdim: bool = false) {
        let (axes, n) = spread_of(dim, unbiased, correction)?; input.var_by(&axes, n, keepdim)
    };
    "std" (input: Tensor, dim: Option<&Value>, unbiased: bool = true, correction: Option<f64>, keepdim: bool = false) {
        let (axes, n) = spread_of(dim, unbiased, correction)?; input.std_by(&axes, n, keepdim)
    };
    "var_mean" (input: Tensor, dim: Option<&Value>, unbiased: bool = true, correction: Option<f64>, keepdim: bool = false) {
        let (axes, n) = spread_of(dim, unbiased, correction)?; Ok((input.var_by(&axes, n, keepdim)?, input.mean(&axes, keepdim)?))
    };
    "std_mean" (input: Tensor, dim: Option<&Value>, unbiased: bool = true, correction: Option<f64>, keepdim: bool = false) {
        let (axes, n) = spread_of(dim, unbiased, correction)?; Ok((input.std_by(&axes, n, keepdim)?, input.mean(&axes, keepdim)?))
    };
    "softmax" (input: Tensor, dim: i64, dtype: Option<DType>) typed(&input, dtype)?.softmax(dim);
    "torch.ops.aten._safe_softmax.default" (input: Tensor, dim: i64, dtype: Option<DType>) {
        let never = input.max(&[dim], true)?.eq(f64::NEG_INFINITY)?;
        never.select(0, typed(&never.select(0, &input)?, dtype)?.softmax(dim)?)
    };
    "log_softmax" (input: Tensor, dim: i64, dtype: Option<DType>) typed(&input, dtype)?.log_softmax(dim);
    "nn.functional.softmin" (input: Tensor, dim: i64, dtype: Option<DType>) typed(&input, dtype)?.neg()?.softmax(dim);
    "norm" (input: Tensor, p: Option<&Value>, dim: Axes, keepdim: bool = false, dtype: Option<DType>) {
        let x = typed(&input, dtype)?;
        match p {
            Some(Value::Text(t)) if t == "nuc" => x.matrix_norm("nuc", &dim.0, keepdim),
            p => x.vector_norm(order(p)?, &dim.0, keepdim),
        }
    };
    "linalg.vector_norm" (input: Tensor, ord: f64 = 2.0, dim: Axes, keepdim: bool = false, dtype: Option<DType>) typed(&input,
        dtype)?.vector_norm(ord, &dim.0, keepdim);
    "linalg.matrix_norm" (input: Tensor, ord: Option<&Value>, dim: Axes, keepdim: bool = false, dtype: Option<DType>) typed(&input,
        dtype)?.matrix_norm(&order_text(ord)?, &dim.0, keepdim);
    "linalg.norm" (input: Tensor, ord: Option<&Value>, dim: Option<Vec<i64>>, keepdim: bool = false, dtype: Option<DType>) {
        let x = typed(&input, dtype)?;
        let axes = dim.clone().unwrap_or_default();
        match (ord, axes.len()) {
            (None, 0) => x.vector_norm(2.0, &[], keepdim),
            (None, _) => x.vector_norm(2.0, &axes, keepdim),
            (ord, 2) => x.matrix_norm(&order_text(ord)?, &axes, keepdim),
            (ord, 0) if x.rank() == 2 => x.matrix_norm(&order_text(ord)?, &[], keepdim),
            (ord, _) => x.vector_norm(order(ord)?, &axes, keepdim),
        }
    };
    "nn.functional.normalize" (input: Tensor, p: f64 = 2.0, dim: i64 = 1, eps: f64 = 1e-12) input.div(input.vector_norm(p, &[dim],
        true)?.maximum(eps)?);
    "renorm" (input: Tensor, p: f64, dim: i64, maxnorm: f64) input.renorm(p, dim, maxnorm);
    // ---- scans
    "cumsum" (input: Tensor, dim: i64, dtype: Option<DType>) typed(&input, dtype)?.cumsum(dim);
    "cumprod" (input: Tensor, dim: i64, dtype: Option<DType>) typed(&input, dtype)?.cumprod(dim);
    "cummax" (input: Tensor, dim: i64) input.cummax_with_indices(dim);
    "cummin" (input: Tensor, dim: i64) input.cummin_with_indices(dim);
    "logcumsumexp" (input: Tensor, dim: i64) input.logcumsumexp(dim);
    "diff" (input: Tensor, n: usize = 1, dim: i64 = -1, prepend: Option<Tensor>, append: Option<Tensor>) input.diff(n, dim,
        prepend.as_ref(), append.as_ref());
    "trapezoid" | "trapz" (y: Tensor, x: Option<Tensor>, dx: f64 = 1.0, dim: i64 = -1) y.trapezoid(x.as_ref(), dx, dim)?.sum(&[dim], false);
    "cumulative_trapezoid" (y: Tensor, x: Option<Tensor>, dx: f64 = 1.0, dim: i64 = -1) y.trapezoid(x.as_ref(), dx, dim)?.cumsum(dim);
    "gradient" (input: Tensor, spacing: Option<&Value>, dim: Axes, edge_order: usize = 1) {
        let axes = super::super::check_axes("gradient", &dim.0, input.rank())?;
        let mut outs = Vec::new();
        for (i, &a) in axes.iter().enumerate() {
            let (at, step) = match spacing {
                Some(Value::List(l)) => match l.get(i) {
                    Some(Value::Tensor(t)) => (Some(t.clone()), 1.0),
                    Some(v) => (None, f64::from_value(v).unwrap_or(1.0)),
                    None => (None, 1.0),
                },
                Some(v) => (None, f64::from_value(v).unwrap_or(1.0)),
                None => (None, 1.0),
            };
            outs.push(input.differences(a as i64, at.as_ref(), step, edge_order)?);
        }
        Ok(outs)
    };
    // ---- order
    "sort" (input: Tensor, dim: i64 = -1, descending: bool = false, stable: bool = true) { let _ = stable; input.sort0(dim, descending) };
    "argsort" (input: Tensor, dim: i64 = -1, descending: bool = false, stable: bool = true) { let _ = stable; Ok(input.sort0(dim, descending)?.1) };
    "msort" (input: Tensor) Ok(input.sort0(0, false)?.0);
    "topk" (input: Tensor, k: usize, dim: i64 = -1, largest: bool = true, sorted: bool = true) {
        let _ = sorted;
        if input.rank() == 0 { input.sort0(dim, largest) } else { input.topk(k, dim, largest) }
    };
    "kthvalue" (input: Tensor, k: usize, dim: i64 = -1, keepdim: bool = false) input.kthvalue(k, dim, keepdim);
    "mode" (input: Tensor, dim: i64 = -1, keepdim: bool = false) input.mode(dim, keepdim);
    "median" (input: Tensor, dim: Option<i64>, keepdim: bool = false) match dim {
        None => input.flatten(0, -1)?.median(0, false).map(|(v, _)| vec![v]),
        Some(d) => input.median(d, keepdim).outs(),
    };
    "nanmedian" (input: Tensor, dim: Option<i64>, keepdim: bool = false) match dim {
        None => input.flatten(0, -1)?.nanmedian(0, false).map(|(v, _)| vec![v]),
        Some(d) => input.nanmedian(d, keepdim).outs(),
    };
    "quantile" (s: Session, input: Tensor, q: Operand, dim: Option<i64>, keepdim: bool = false, interpolation: &str = "linear")
        input.quantile(&tensor(&s, q)?, dim, keepdim, Quantile::parse(interpolation)?);
    "nanquantile" (s: Session, input: Tensor, q: Operand, dim: Option<i64>, keepdim: bool = false, interpolation: &str = "linear")
        input.nanquantile(&tensor(&s, q)?, dim, keepdim, Quantile::parse(interpolation)?);
    "searchsorted" (s: Session, sorted_sequence: Tensor, input: Operand, right: bool = false, side: &str = "left", sorter: Option<Tensor>) {
        let sorted = match sorter { Some(order) => sorted_sequence.gather(-1, &order)?, None => sorted_sequence };
        sorted.searchsorted(&tensor(&s, input)?, right || side == "right")
    };
    "bucketize" (s: Session, input: Operand, boundaries: Tensor, right: bool = false) boundaries.searchsorted(&tensor(&s, input)?, right);
    "histogram" (input: Tensor, bins: &Value, range: Option<Vec<f64>>, weight: Option<Tensor>, density: bool = false) {
        let edges = match (bins, range.as_deref()) {
            (Value::Tensor(t), _) => t.clone(),
            (n, range) => {
                let n = usize::from_value(n).ok_or_else(|| Error::value("histogram", "bins are a number or edges"))?;
                let range = match range {
                    None => None,
                    Some(&[low, high]) if low <= high => Some((low, high)),
                    Some(r) => return Err(Error::value("histogram", format!("a range of {r:?}"))),
                };
                input.histogram_edges(n, range)?
            }
        };
        Ok((input.histogram(&edges, weight.as_ref(), density)?, edges))
    };
    "segment_reduce" | "_segment_reduce" (data: Tensor, reduce: &str, lengths: Option<Tensor>, indices: Option<Tensor>, offsets: Option<Tensor>,
        axis: i64 = 0, initial: Option<f64>) {
        let _ = indices;
        match (lengths, offsets) {
            (Some(l), _) => data.segment_reduce(reduce, &l, axis, initial),
            (None, Some(o)) => data.segments(reduce, &o, axis, initial),
            (None, None) => Err(Error::value("segment_reduce", "lengths or offsets are needed")),
        }
    };
    "histc" (input: Tensor, bins: usize = 100, min: f64 = 0.0, max: f64 = 0.0) input.histc(bins, min, max);
    "cov" (input: Tensor, correction: f64 = 1.0, fweights: Option<Tensor>, aweights: Option<Tensor>) input.cov(correction,
        fweights.as_ref(), aweights.as_ref());
    "corrcoef" (input: Tensor) input.corrcoef();
    "isin" (s: Session, elements: Operand, test_elements: Operand, assume_unique: bool = false, invert: bool = false) {
        let _ = assume_unique;
        tensor(&s, elements)?.isin(&tensor(&s, test_elements)?, invert)
    };
    // ---- masked
    "masked.sum" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input,
        mask, 0.0)?, dtype)?.sum(&dim.0, keepdim);
    "masked.prod" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input,
        mask, 1.0)?, dtype)?.prod(&dim.0, keepdim);
    "masked.amax" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input,
        mask, f64::NEG_INFINITY)?, dtype)?.max(&dim.0, keepdim);
    "masked.amin" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input,
        mask, f64::INFINITY)?, dtype)?.min(&dim.0, keepdim);
    "masked.argmax" (input: Tensor, dim: Option<i64>, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>)
        { let _ = dtype; argument(&masked(&input, mask, f64::NEG_INFINITY)?, dim, keepdim, Tensor::argmax) };
    "masked.argmin" (input: Tensor, dim: Option<i64>, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>)
        { let _ = dtype; argument(&masked(&input, mask, f64::INFINITY)?, dim, keepdim, Tensor::argmin) };
    "masked.mean" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>) {
        let n = counted(&input, &mask, &dim.0, keepdim)?;
        typed(&masked(&input, mask, 0.0)?, dtype)?.sum(&dim.0, keepdim)?.div(n)
    };
    "masked.var" (input: Tensor, dim: Axes, unbiased: bool = true, correction: Option<f64>, keepdim: bool = false,
        dtype: Option<DType>, mask: Option<Tensor>) masked_var(&typed(&input, dtype)?, &dim.0,
        correction.unwrap_or(unbiased as u8 as f64), keepdim, mask);
    "masked.std" (input: Tensor, dim: Axes, unbiased: bool = true, correction: Option<f64>, keepdim: bool = false,
        dtype: Option<DType>, mask: Option<Tensor>) masked_var(&typed(&input, dtype)?, &dim.0,
        correction.unwrap_or(unbiased as u8 as f64), keepdim, mask)?.sqrt_or_zero();
    "masked.norm" (input: Tensor, ord: f64, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>) {
        let fill = if ord == f64::NEG_INFINITY { f64::INFINITY } else { 0.0 };
        typed(&masked(&input, mask, fill)?, dtype)?.vector_norm(ord, &dim.0, keepdim)
    };
    "masked.normalize" (input: Tensor, ord: f64, dim: i64, eps: f64 = 1e-12, dtype: Option<DType>, mask: Option<Tensor>) {
        let x = typed(&masked(&input, mask, 0.0)?, dtype)?;
        x.div(x.vector_norm(ord, &[dim], true)?.maximum(eps)?)
    };
    "masked.logsumexp" (input: Tensor, dim: Axes, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>)
        typed(&masked(&input, mask, f64::NEG_INFINITY)?, dtype)?.logsumexp(&dim.0, keepdim);
    "masked.softmax" (input: Tensor, dim: i64, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input, mask,
        f64::NEG_INFINITY)?, dtype)?.softmax(dim);
    "masked.softmin" (input: Tensor, dim: i64, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input, mask, f64::INFINITY)?,
        dtype)?.neg()?.softmax(dim);
    "masked.log_softmax" (input: Tensor, dim: i64, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input, mask,
        f64::NEG_INFINITY)?, dtype)?.log_softmax(dim);
    "masked.cumsum" (input: Tensor, dim: i64, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input, mask, 0.0)?, dtype)?.cumsum(dim);
    "masked.cumprod" (input: Tensor, dim: i64, dtype: Option<DType>, mask: Option<Tensor>) typed(&masked(&input, mask, 1.0)?, dtype)?.cumprod(dim);
    "masked.median" (input: Tensor, dim: i64, keepdim: bool = false, dtype: Option<DType>, mask: Option<Tensor>)
        Ok(typed(&masked(&input, mask, f64::NAN)?, dtype)?.nanmedian(dim, keepdim)?.0);
    "masked.logaddexp" (input: Tensor, other: Tensor, dtype: Option<DType>, input_mask: Option<Tensor>, other_mask: Option<Tensor>) {
        let (a, b) = (masked(&input, input_mask, f64::NEG_INFINITY)?, masked(&other, other_mask, f64::NEG_INFINITY)?);
        typed(&a, dtype)?.logaddexp(&typed(&b, dtype)?)
    };
}

fn typed(t: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| Ok(t.clone()), |d| t.cast(d))
}

fn axis(v: &Value) -> Result<i64> {
    i64::from_value(v).ok_or_else(|| Error::value("call", "an axis should be a number"))
}

/// argmax or argmin along an axis, or of the flattened tensor without one.
fn argument(t: &Tensor, dim: Option<i64>, keep: bool, f: fn(&Tensor, i64, bool) -> Result<Tensor>) -> Result<Tensor> {
    match dim {
        Some(_) if t.rank() == 0 => f(&t.reshape(&[1usize])?, 0, false),
        Some(d) => f(t, d, keep),
        None => {
            let out = f(&t.flatten(0, -1)?, 0, false)?;
            if keep { out.reshape(&vec![1usize; t.rank()]) } else { Ok(out) }
        }
    }
}

/// The axes and the correction of a variance. torch has two forms: the second argument is either the axes or
/// `unbiased`.
fn spread_of(dim: Option<&Value>, unbiased: bool, correction: Option<f64>) -> Result<(Vec<i64>, f64)> {
    let of = |b: bool| b as i64 as f64;
    Ok(match dim {
        None => (Vec::new(), correction.unwrap_or(of(unbiased))),
        Some(Value::Bool(b)) => (Vec::new(), of(*b)),
        Some(v) => {
            let axes = Vec::from_value(v).ok_or_else(|| Error::value("call", "axes should be numbers"))?;
            (axes, correction.unwrap_or(of(unbiased)))
        }
    })
}

/// The order of a vector norm; 2 by default.
fn order(p: Option<&Value>) -> Result<f64> {
    match p {
        None => Ok(2.0),
        Some(Value::Text(t)) if t == "fro" => Ok(2.0),
        Some(v) => f64::from_value(v).ok_or_else(|| Error::value("norm", "the order should be a number or `fro`")),
    }
}

/// The name of a matrix norm; `fro` by default.
fn order_text(p: Option<&Value>) -> Result<String> {
    match p {
        None => Ok("fro".into()),
        Some(Value::Text(t)) => Ok(t.clone()),
        Some(v) => Ok(f64::from_value(v).ok_or_else(|| Error::value("norm", "a bad order"))?.to_string()),
    }
}

/// The tensor with `fill` where the mask is false; for integers, an infinite `fill` is the least or largest number of
/// the dtype.
fn masked(t: &Tensor, mask: Option<Tensor>, fill: f64) -> Result<Tensor> {
    let Some(mask) = mask else { return Ok(t.clone()) };
    let fill = match t.dtype().int_range() {
        Some((lo, _)) if fill == f64::NEG_INFINITY => Operand::Int(lo as i64),
        Some((_, hi)) if fill == f64::INFINITY => Operand::Int(hi as i64),
        Some(_) if fill.is_finite() => Operand::Int(fill as i64),
        _ => Operand::Float(fill),
    };
    mask.select(t, fill)
}

/// The number of elements, along axes, where the mask is true.
fn counted(t: &Tensor, mask: &Option<Tensor>, axes: &[i64], keep: bool) -> Result<Tensor> {
    let ones = Tensor::ones(t.session(), DType::F32, &t.shape())?;
    masked(&ones, mask.clone(), 0.0)?.sum(axes, keep)
}

fn masked_var(t: &Tensor, axes: &[i64], correction: f64, keep: bool, mask: Option<Tensor>) -> Result<Tensor> {
    let t = t.to_float()?;
    let n = counted(&t, &mask, axes, true)?;
    let mean = masked(&t, mask.clone(), 0.0)?.sum(axes, true)?.div(n)?;
    let centred = masked(&t.sub(mean)?, mask.clone(), 0.0)?;
    let n = counted(&t, &mask, axes, keep)?;
    let n = n.sub(correction)?.maximum(0)?;
    centred.square()?.sum(axes, keep)?.div(n)
}
