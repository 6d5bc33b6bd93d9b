//! Operators that gather or scatter elements by index.

use super::super::value::{Cx, Value, strides};
use super::elementwise::one;
use super::{Op, OpDef, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::{ScatterOp, Tensor};

pub(super) static OPS: &[OpDef] = &[
    op("Gather", 0, |o| {
        let (x, index) = (o.arg(0)?, o.arg(1)?);
        let axis = o.axis(o.int("axis", 0)?, x.rank())?;
        one(o.cx.gather(&x, &index, axis))
    }),
    op("GatherElements", 0, |o| {
        let (x, index) = (o.arg(0)?, o.arg(1)?);
        let axis = o.axis(o.int("axis", 0)?, x.rank())?;
        aligned(o, &x, &index, axis)?;
        one(o.cx.gather_elements(&x, &index, axis))
    }),
    op("GatherND", 0, gather_nd),
    op("ScatterElements", 0, scatter_elements),
    op("Scatter", 0, scatter_elements),
    op("ScatterND", 0, scatter_nd),
    op("OneHot", 2, one_hot),
    op("TopK", 2, top_k),
    op("NonZero", 0, non_zero),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    super::contrib::ms("GatherND", 0, gather_nd),
    op("Compress", 0, compress),
    op("ReverseSequence", 2, reverse_sequence),
];

fn aligned(o: &Op<'_, '_>, x: &Value, index: &Value, axis: usize) -> Result<()> {
    let fits = index.rank() == x.rank()
        && index.shape().iter().zip(x.shape()).enumerate().all(|(i, (a, b))| i == axis || a <= b);
    if fits { Ok(()) } else { o.fail(format!("indices {:?} do not fit {:?}", index.shape(), x.shape())) }
}

/// Converts rows of coordinates to indices into the flattened leading axes; coordinates out of range give the number of
/// elements, one past the last index.
fn flat_index(o: &Op<'_, '_>, index: &Value, dims: &[usize]) -> Result<Value> {
    let last = index.nth_last(1)?;
    let total: usize = dims.iter().product();
    let wide = total >= i32::MAX as usize || !matches!(index.dtype(), DType::I32 | DType::I64);
    let index = &if wide { o.cx.cast(index, DType::I64)? } else { index.clone() };
    let (mut at, mut valid): (Option<Value>, Option<Value>) = (None, None);
    for (j, &d) in dims.iter().enumerate() {
        let part = o.cx.narrow(index, last, j, 1)?;
        let negative = o.cx.lt(&part, &o.cx.scalar_like(&part, 0.0))?;
        let part = o.cx.select(&negative, &o.cx.with(Cx::add, &part, d as f64)?, &part)?;
        let below = o.cx.lt(&part, &o.cx.scalar_like(&part, 0.0))?;
        let inside = o.cx.lt(&part, &o.cx.scalar_like(&part, d as f64))?;
        let inside = o.cx.and(&o.cx.not(&below)?, &inside)?;
        valid = Some(match valid {
            None => inside,
            Some(valid) => o.cx.and(&valid, &inside)?,
        });
        at = Some(match at {
            None => part,
            Some(at) => o.cx.add(&o.cx.with(Cx::mul, &at, d as f64)?, &part)?,
        });
    }
    let lead = index.shape_in(..last)?.to_vec();
    match at.zip(valid) {
        Some((at, valid)) => o.cx.reshape(&o.cx.select(&valid, &at, &o.cx.scalar_like(&at, total as f64))?, &lead),
        None => o.cx.full(DType::I64, &lead, Scalar::Int(0)),
    }
}

fn gather_nd(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, mut index) = (o.arg(0)?, o.arg(1)?);
    let batch = o.size(o.int("batch_dims", 0)?)?;
    o.want_rank(&index, 1)?;
    let width = index.dim(index.nth_last(1)?)?;
    let fits = batch < index.rank() && batch + width <= x.rank() && x.shape_in(..batch)? == index.shape_in(..batch)?;
    if !fits {
        return o.fail(format!("indices {:?} do not fit {:?} with {batch} batch axes", index.shape(), x.shape()));
    }
    // Batch axes become additional coordinates.
    for b in (0..batch).rev() {
        let mut shape = vec![1; index.rank()];
        shape[b] = x.dim(b)?;
        let column = o.cx.cast(&o.cx.reshape(&o.cx.count_up(x.dim(b)?)?, &shape)?, index.dtype())?;
        let mut wide = index.shape().to_vec();
        wide[index.nth_last(1)?] = 1;
        let column = o.cx.expand(&column, &wide)?;
        index = o.cx.concat(&[column, index.clone()], index.nth_last(1)?)?;
    }
    let width = batch + width;
    let (lead, rest) = x.shape().split_at(width);
    let at = flat_index(o, &index, lead)?;
    let flat = o.cx.reshape(&x, &[&[lead.iter().product()], rest].concat())?;
    one(o.cx.gather(&flat, &at, 0))
}

fn reduction(o: &Op<'_, '_>) -> Result<ScatterOp> {
    Ok(match o.str("reduction", "none")?.as_str() {
        "none" => ScatterOp::Set,
        "add" => ScatterOp::Add,
        "mul" => ScatterOp::Mul,
        "max" => ScatterOp::Max,
        "min" => ScatterOp::Min,
        other => return o.fail(format!("the reduction `{other}` is unknown")),
    })
}

fn scatter_elements(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, index, updates) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let axis = o.axis(o.int("axis", 0)?, x.rank())?;
    aligned(o, &x, &index, axis)?;
    if updates.shape() != index.shape() || updates.dtype() != x.dtype() {
        return o.fail(format!("updates {:?} do not fit indices {:?}", updates.shape(), index.shape()));
    }
    let how = reduction(o)?;
    one(o.cx.scatter_elements(&x, &index, &updates, axis, how))
}

fn scatter_nd(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, index, updates) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    o.want_rank(&index, 1)?;
    let (rows, width) = index.shape().split_at(index.nth_last(1)?);
    let width = width[0];
    if width > x.rank() || updates.shape() != [rows, x.shape_in(width..)?].concat() || updates.dtype() != x.dtype() {
        return o.fail(format!(
            "updates {:?} and indices {:?} do not fit {:?}",
            updates.shape(),
            index.shape(),
            x.shape()
        ));
    }
    let how = reduction(o)?;
    one(o.cx.scatter_nd(&x, &index, &updates, how))
}

fn one_hot(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (index, values) = (o.arg(0)?, o.arg(2)?);
    // The depth may be stored as a float.
    let depth = o.known_floats_opt(1)?.and_then(|d| d.first().copied()).unwrap_or(-1.0);
    let depth = o.size(depth as i64)?;
    let axis = o.axis(o.int("axis", -1)?, index.rank() + 1)?;
    if values.len() != 2 {
        return o.fail("values are not two elements");
    }
    let pick = |i: usize| o.cx.reshape(&o.cx.narrow(&o.cx.reshape(&values, &[2])?, 0, i, 1)?, &[]);
    let (off, on) = (pick(0)?, pick(1)?);
    let mut shape = index.shape().to_vec();
    shape.insert(axis, 1);
    let index = o.cx.reshape(&o.cx.cast(&index, DType::I64)?, &shape)?;
    let negative = o.cx.lt(&index, &o.cx.scalar_like(&index, 0.0))?;
    let index = o.cx.select(&negative, &o.cx.with(Cx::add, &index, depth as f64)?, &index)?;
    o.cx.check_shape(&[depth, shape.iter().product()])?;
    let mut steps_shape = vec![1; shape.len()];
    steps_shape[axis] = depth;
    let steps = o.cx.reshape(&o.cx.count_up(depth)?, &steps_shape)?;
    let hit = o.cx.eq(&index, &steps)?;
    one(o.cx.select(&hit, &on, &off))
}

fn top_k(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.axis(o.int("axis", -1)?, x.rank())?;
    let k = match o.int_opt("k")? {
        Some(k) => k,
        None => o.known_ints(1)?.first().copied().unwrap_or(-1),
    };
    let k = o.size(k)?;
    if k > x.dim(axis)? {
        return o.fail(format!("k = {k} of {} elements", x.dim(axis)?));
    }
    let (values, index) = o.cx.top_k(&x, axis, k, o.flag("largest", true)?)?;
    Ok(vec![values, index])
}

fn non_zero(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    if let Some(t) = o.cx.host(&x)? {
        let hits: Vec<usize> = t.scalars().enumerate().filter(|(_, s)| s.as_bool()).map(|(i, _)| i).collect();
        let strides = strides(x.shape());
        let mut out = o.cx.vec_with_capacity(hits.len().saturating_mul(x.rank()))?;
        for (&s, &d) in strides.iter().zip(x.shape()) {
            out.extend(hits.iter().map(|&i| (i / s % d) as i64));
        }
        return one(HostTensor::from_i64(vec![x.rank(), hits.len()], &out).map(Value::known));
    }
    let (n, rank) = (count_nonzero(o, &x)?, x.rank());
    if n == 0 {
        return one(o.cx.full(DType::I64, &[rank, 0], Scalar::Int(0)));
    }
    let at = Value::lazy(o.cx.lazy(&x)?.nonzero_static(n, 0)?);
    one(o.cx.cast(&o.cx.swap(&at, 0, 1)?, DType::I64))
}

/// Number of elements that are not zero; the build stops until it is known.
fn count_nonzero(o: &mut Op<'_, '_>, x: &Value) -> Result<usize> {
    let count = o.computed("count", |o| {
        let zero = o.cx.scalar_like(x, 0.0);
        let is = o.cx.not(&o.cx.eq(x, &zero)?)?;
        let axes: Vec<usize> = (0..x.rank()).collect();
        o.cx.reduce(Tensor::sum, &o.cx.cast(&is, DType::I32)?, &axes, false)
    })?;
    o.size(count.to_i64().first().copied().unwrap_or(0))
}

fn compress(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (mut x, picks) = (o.arg(0)?, o.arg(1)?);
    let axis = match o.int_opt("axis")? {
        Some(a) => o.axis(a, x.rank())?,
        None => {
            x = o.cx.reshape(&x, &[x.len()])?;
            0
        }
    };
    if picks.rank() != 1 || picks.len() > x.dim(axis)? {
        return o.fail(format!("{:?} conditions for axis {axis} of {:?}", picks.shape(), x.shape()));
    }
    let index = match o.cx.host(&picks)? {
        Some(t) => o.cx.ints(&(0..).zip(t.to_i64()).filter(|(_, c)| *c != 0).map(|(i, _)| i).collect::<Vec<_>>())?,
        None => match count_nonzero(o, &picks)? {
            0 => o.cx.ints(&[])?,
            n => Value::lazy(o.cx.lazy(&picks)?.nonzero_static(n, 0)?.reshape(&[n])?),
        },
    };
    one(o.cx.gather(&x, &index, axis))
}

fn reverse_sequence(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, lens) = (o.arg(0)?, o.known_ints(1)?);
    o.want_rank(&x, 2)?;
    let (time, batch) = (o.axis(o.int("time_axis", 0)?, x.rank())?, o.axis(o.int("batch_axis", 1)?, x.rank())?);
    let (t, b) = (x.dim(time)?, x.dim(batch)?);
    if lens.len() != b || time > 1 || batch > 1 || time == batch {
        return o.fail("sequence_lens or axes do not fit");
    }
    let order = if time == 0 { [t, b] } else { [b, t] };
    let mut index = o.cx.vec_with_capacity(t.saturating_mul(b))?;
    for i in 0..order[0] {
        for j in 0..order[1] {
            let (at, len) = if time == 0 { (i, lens[j]) } else { (j, lens[i]) };
            let at = at as i64;
            index.push(if at < len { len - 1 - at } else { at });
        }
    }
    let mut shape = vec![1; x.rank()];
    shape[..2].copy_from_slice(&order);
    let index = Value::known(HostTensor::from_i64(shape, &index)?);
    let index = o.cx.expand(&index, x.shape())?;
    one(o.cx.gather_elements(&x, &index, time))
}

/// Index of the largest (or smallest) element along an axis.
pub(super) fn arg_best(o: &mut Op<'_, '_>, largest: bool) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.axis(o.int("axis", 0)?, x.rank())?;
    let keep = o.flag("keepdims", true)?;
    if x.dim(axis)? == 0 {
        return o.fail("the axis is empty");
    }
    let mut key = match (largest, x.dtype()) {
        (true, _) => x.clone(),
        // The bitwise complement reverses the order, as negation does, but cannot overflow.
        (false, d) if d.is_int() || d == DType::Bool => o.cx.unary(Tensor::bit_not, &x)?,
        (false, _) => o.cx.unary(Tensor::neg, &x)?,
    };
    let last = o.flag("select_last_index", false)?;
    if last {
        key = o.cx.flip(&key, axis)?;
    }
    let at = o.cx.argmax(&key, axis, keep)?;
    if !last {
        return Ok(vec![at]);
    }
    let end = o.cx.scalar_like(&at, (x.dim(axis)? - 1) as f64);
    one(o.cx.sub(&end, &at))
}
