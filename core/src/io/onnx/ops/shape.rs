//! Operators that move elements or create constants: shapes, slices, padding, concatenation.

use super::super::proto::AttrValue;
use super::super::value::{FOLD_SHAPES, Value};
use super::elementwise::one;
use super::{Op, OpDef, float_op, op, strings};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::{Tensor, broadcast_shape};
use crate::util::decimal::Shown;
use std::cmp::Ordering;

pub(super) static OPS: &[OpDef] = &[
    op("Shape", 0, shape),
    op("Size", 0, |o| one(HostTensor::from_i64(vec![], &[o.arg(0)?.len() as i64]).map(Value::known))),
    op("Reshape", 2, reshape),
    op("Flatten", 0, flatten),
    op("Squeeze", 2, squeeze),
    op("Unsqueeze", 2, unsqueeze),
    op("Transpose", 0, transpose),
    op("Expand", 2, |o| {
        let (x, shape) = (o.arg(0)?, o.sizes(&o.known_ints(1)?)?);
        let shape = broadcast_shape("expand", x.shape(), &shape)?;
        one(o.cx.expand(&x, &shape))
    }),
    float_op("Tile", 4, 6, tile),
    op("Concat", 0, |o| {
        let parts = (0..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
        let rank = parts.first().map_or(0, Value::rank);
        let axis = o.axis(o.int("axis", 1)?, rank)?;
        one(o.cx.concat(&parts, axis))
    }),
    op("Split", 2, split),
    op("Slice", 30, slice),
    op("Pad", 14, pad),
    op("Constant", 0, constant),
    op("ConstantOfShape", 1, |o| {
        let shape = o.sizes(&o.known_ints(0)?)?;
        let value = o.tensor_opt("value")?.map(|t| o.cx.model.tensor(t)).transpose()?;
        let (dtype, v) = match &value {
            None => (DType::F32, Scalar::float(0.0)),
            Some(t) => match t.scalars().next() {
                Some(s) if t.len() == 1 => (t.dtype, s),
                _ => return o.fail("the value is not one element"),
            },
        };
        one(o.cx.full(dtype, &shape, v))
    }),
    op("Range", 7, range),
    op("DepthToSpace", 0, depth_to_space),
    op("SpaceToDepth", 0, space_to_depth),
    op("Trilu", 2, trilu),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    super::contrib::float_ms("Pad", 5, 14, pad),
    super::contrib::ms("Range", 7, range),
    op("EyeLike", 0, eye_like),
    super::contrib::ms("Trilu", 2, trilu),
];

fn shape(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let rank = x.rank() as i64;
    let clip = |i: i64| (if i < 0 { i.saturating_add(rank) } else { i }).clamp(0, rank) as usize;
    let (start, end) = (clip(o.int("start", 0)?), clip(o.int("end", rank)?));
    let dims: Vec<i64> = x.shape().get(start..end).unwrap_or_default().iter().map(|&d| d as i64).collect();
    one(o.cx.ints(&dims))
}

fn reshape(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let Some(want) = o.ints_either("shape", 1)? else { return o.fail("no shape is given") };
    let zero_is_zero = o.flag("allowzero", false)?;
    let mut shape = Vec::with_capacity(want.len());
    let mut free = None;
    for (i, &d) in want.iter().enumerate() {
        shape.push(match d {
            -1 if free.replace(i).is_some() => return o.fail("two dimensions are -1"),
            -1 => 1,
            0 if !zero_is_zero => match x.shape().get(i) {
                Some(&d) => d,
                None => return o.fail(format!("dimension {i} is 0, but the input has only {} axes", x.rank())),
            },
            d => o.size(d)?,
        });
    }
    if let Some(i) = free {
        let rest = o.cx.check_shape(&shape)?;
        if rest == 0 || x.len() % rest != 0 {
            return o.fail(format!("shape {:?} does not fit {want:?}", x.shape()));
        }
        shape[i] = x.len() / rest;
    }
    one(o.cx.reshape(&x, &shape))
}

fn flatten(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let rank = x.rank() as i64;
    let axis = o.int("axis", 1)?;
    let at = if axis < 0 { axis.saturating_add(rank) } else { axis };
    if !(0..=rank).contains(&at) {
        return o.fail(format!("axis {axis} is out of range for rank {rank}"));
    }
    let (a, b) = x.shape().split_at(at as usize);
    one(o.cx.reshape(&x, &[a.iter().product(), b.iter().product()]))
}

fn squeeze(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axes = match o.ints_either("axes", 1)? {
        Some(axes) => o.axes(&axes, x.rank())?,
        None => (0..x.rank()).filter(|&a| x.extent(a) == 1).collect(),
    };
    if let Some(&a) = axes.iter().find(|&&a| x.extent(a) != 1) {
        return o.fail(format!("axis {a} of {:?} is not 1", x.shape()));
    }
    let shape: Vec<usize> = (0..x.rank()).filter(|a| !axes.contains(a)).map(|a| x.extent(a)).collect();
    one(o.cx.reshape(&x, &shape))
}

fn unsqueeze(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let Some(axes) = o.ints_either("axes", 1)? else { return o.fail("no axes are given") };
    let rank = x.rank() + axes.len();
    let axes = o.axes(&axes, rank)?;
    let mut own = x.shape().iter();
    let shape: Vec<usize> =
        (0..rank).map(|i| if axes.contains(&i) { 1 } else { own.next().copied().unwrap_or(1) }).collect();
    one(o.cx.reshape(&x, &shape))
}

fn transpose(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let order = match o.ints_opt("perm")? {
        None => (0..x.rank()).rev().collect(),
        Some(perm) => {
            let order = perm.iter().map(|&a| o.axis(a, x.rank())).collect::<Result<Vec<_>>>()?;
            if o.axes(&perm, x.rank())?.len() != x.rank() {
                return o.fail(format!("perm {perm:?} does not fit rank {}", x.rank()));
            }
            order
        }
    };
    one(o.cx.permute(&x, &order))
}

fn tile(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let mut repeats = vec![1; x.rank()];
    let given = o.sizes(&o.known_ints(1)?)?;
    if o.opset < 6 {
        let axis = o.known_ints(2)?;
        let axis = o.axis(axis.first().copied().unwrap_or(0), x.rank())?;
        repeats[axis] = given.first().copied().unwrap_or(1);
    } else if given.len() == x.rank() {
        repeats = given;
    } else {
        return o.fail(format!("{} repeats for rank {}", given.len(), x.rank()));
    }
    one(repeat(o, &x, &repeats))
}

fn repeat(o: &Op<'_, '_>, x: &Value, repeats: &[usize]) -> Result<Value> {
    let pairs = || x.shape().iter().zip(repeats);
    let narrow: Vec<usize> = pairs().flat_map(|(&d, _)| [1, d]).collect();
    let wide: Vec<usize> = pairs().flat_map(|(&d, &r)| [r, d]).collect();
    let out: Option<Vec<usize>> = pairs().map(|(&d, &r)| d.checked_mul(r)).collect();
    let Some(out) = out else { return o.fail("the repeated size overflows") };
    o.cx.check_shape(&out)?;
    if wide.len() > crate::io::MAX_RANK {
        return o.unsupported(format!("rank {}", x.rank()));
    }
    o.cx.reshape(&o.cx.expand(&o.cx.reshape(x, &narrow)?, &wide)?, &out)
}

fn split(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.axis(o.int("axis", 0)?, x.rank())?;
    let n = x.dim(axis)?;
    let lens = match o.ints_either("split", 1)? {
        Some(lens) => o.sizes(&lens)?,
        None => {
            let parts = o.size(o.int("num_outputs", o.node.outputs.len() as i64)?)?;
            o.cx.budget.outputs(parts as u64).grant()?;
            if parts == 0 || parts > n.max(1) {
                return o.fail(format!("{n} elements can not be split in {parts}"));
            }
            let each = n.div_ceil(parts);
            (0..parts).map(|i| each.min(n.saturating_sub(i * each))).collect()
        }
    };
    if lens.iter().try_fold(0usize, |s, &l| s.checked_add(l)) != Some(n) {
        return o.fail(format!("parts {lens:?} do not add up to {n}"));
    }
    let mut at = 0;
    let mut out = Vec::with_capacity(lens.len());
    for len in lens {
        out.push(o.cx.narrow(&x, axis, at, len)?);
        at += len;
    }
    Ok(out)
}

fn slice(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let (starts, ends) = match (o.ints_either("starts", 1)?, o.ints_either("ends", 2)?) {
        (Some(s), Some(e)) if s.len() == e.len() => (s, e),
        _ => return o.fail("starts and ends do not fit"),
    };
    let all: Vec<i64> = (0..starts.len() as i64).collect();
    let axes = o.ints_either("axes", 3)?.unwrap_or(all);
    let steps = o.known_ints_opt(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if axes.len() != starts.len() || steps.len() != starts.len() {
        return o.fail("starts, ends, axes and steps differ in length");
    }
    o.axes(&axes, x.rank())?;
    let (mut start, mut len, mut step) = (vec![0; x.rank()], x.shape().to_vec(), vec![1; x.rank()]);
    for (i, &axis) in axes.iter().enumerate() {
        let a = o.axis(axis, x.rank())?;
        let n = x.dim(a)? as i64;
        let wrap = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        let s = steps[i];
        // As in numpy, a slice with a negative step starts at n - 1 at most and may end before 0.
        let (from, to) = match s {
            0 => return o.fail("a step of 0"),
            1.. => (wrap(starts[i]).clamp(0, n), wrap(ends[i]).clamp(0, n)),
            _ => (wrap(starts[i]).clamp(-1, n - 1), wrap(ends[i]).clamp(-1, n - 1)),
        };
        let span = if s > 0 { to - from } else { from - to };
        len[a] = if span <= 0 { 0 } else { (span as u64).div_ceil(s.unsigned_abs()) as usize };
        start[a] = if len[a] == 0 { 0 } else { from as usize };
        // A step larger than the axis takes one element.
        step[a] = s.clamp(-n.max(1), n.max(1)) as isize;
    }
    one(o.cx.slice(&x, &start, &len, &step))
}

fn pad(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let name = if o.has("paddings") { "paddings" } else { "pads" };
    let Some(pads) = o.ints_either(name, 1)? else { return o.fail("no pads are given") };
    let axes = match o.known_ints_opt(3)? {
        Some(axes) => axes.iter().map(|&a| o.axis(a, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return o.fail(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    let mut amounts = vec![(0i64, 0i64); x.rank()];
    for (i, &a) in axes.iter().enumerate() {
        amounts[a] = (pads[i], pads[i + axes.len()]);
    }
    let mode = o.str("mode", "constant")?;
    // Negative padding crops.
    let (mut start, mut len) = (vec![0; x.rank()], x.shape().to_vec());
    for (a, (before, after)) in amounts.iter_mut().enumerate() {
        let cut = (o.size((*before).min(0).saturating_neg())?, o.size((*after).min(0).saturating_neg())?);
        match len[a].checked_sub(cut.0).and_then(|n| n.checked_sub(cut.1)) {
            Some(n) => (start[a], len[a]) = (cut.0, n),
            None => return o.fail(format!("axis {a} of {:?} is too short to cut", x.shape())),
        }
        (*before, *after) = ((*before).max(0), (*after).max(0));
    }
    let x = o.cx.slice(&x, &start, &len, &vec![1; x.rank()])?;
    let before = o.sizes(&amounts.iter().map(|p| p.0).collect::<Vec<_>>())?;
    let after = o.sizes(&amounts.iter().map(|p| p.1).collect::<Vec<_>>())?;
    if mode == "constant" {
        let value = match (o.float_opt("value")?, o.opt(2)) {
            (Some(v), _) => Scalar::from_f64(v, x.dtype()),
            (None, None) => Scalar::from_i64(0, x.dtype()),
            (None, Some(v)) => match o.cx.host(&v)?.map(|t| t.scalars().next()) {
                Some(Some(s)) if v.dtype() == x.dtype() => s,
                Some(_) => return o.fail("the pad value is not one element of the input's dtype"),
                None => return o.unknown(2),
            },
        };
        return one(o.cx.pad(&x, &before, &after, value));
    }
    let padded: Vec<usize> = (0..x.rank()).filter(|&a| before[a] + after[a] > 0).collect();
    for &a in &padded {
        let n = x.dim(a)?;
        let fits = match mode.as_str() {
            "reflect" | "wrap" => true,
            "edge" => n > 0,
            _ => return o.fail(format!("the mode `{mode}` is unknown")),
        };
        if !fits || n == 0 {
            return o.fail(format!("axis {a} of {:?} can not be padded by {} and {}", x.shape(), before[a], after[a]));
        }
    }
    match repeated(o, &x, &before, &after, &mode)? {
        Some(y) => one(Ok(y)),
        None => one(mirrored(o, x, &before, &after, &mode)),
    }
}

/// Pads a tensor of repeated elements (nearest-neighbour upsampling) by padding the original and repeating the result.
/// Convolutions recognise repeated tensors, and less is stored. `None` where that is not equivalent.
fn repeated(o: &Op<'_, '_>, x: &Value, before: &[usize], after: &[usize], mode: &str) -> Result<Option<Value>> {
    if x.is_known() || !matches!(mode, "edge" | "reflect") {
        return Ok(None);
    }
    let (image, times) = o.cx.lazy(x)?.repeat_source();
    // Reflection beyond the repetitions of the border element reads other elements.
    let fits = |a: usize| times[a] > 1 && (mode == "edge" || before[a].max(after[a]) < times[a]);
    if !(0..x.rank()).all(|a| before[a] + after[a] == 0 || fits(a)) {
        return Ok(None);
    }
    let more = |counts: &[usize]| counts.iter().zip(&times).map(|(n, t)| n.div_ceil(*t)).collect::<Vec<_>>();
    let (first, last) = (more(before), more(after));
    let mut y = mirrored(o, Value::lazy(image), &first, &last, "edge")?;
    for (a, &t) in times.iter().enumerate().filter(|x| *x.1 > 1) {
        y = Value::lazy(o.cx.lazy(&y)?.repeat_interleave(t, a as i64)?);
    }
    let start: Vec<usize> = (0..x.rank()).map(|a| first[a] * times[a] - before[a]).collect();
    let len: Vec<usize> = x.shape().iter().enumerate().map(|(a, n)| n + before[a] + after[a]).collect();
    o.cx.slice(&y, &start, &len, &vec![1; x.rank()]).map(Some)
}

/// Pads axes with elements of the tensor, two axes per stored tensor: the second axis is padded inside each part of the
/// first one. With more axes in one expression, each element would have to select among all combinations of parts.
fn mirrored(o: &Op<'_, '_>, mut x: Value, before: &[usize], after: &[usize], mode: &str) -> Result<Value> {
    let along = |x: &Value, a: usize, inner: &dyn Fn(&Value) -> Result<Value>| {
        mirror(o, x, a, [before[a], after[a]], mode, inner)
    };
    let padded: Vec<usize> = (0..x.rank()).filter(|&a| before[a] + after[a] > 0).collect();
    for (i, pair) in padded.rchunks(2).enumerate() {
        if i > 0 {
            x = o.cx.stored(&x)?;
        }
        let last = pair[pair.len() - 1];
        x = along(&x, last, &|part| match pair {
            &[first, _] => along(part, first, &|x| Ok(x.clone())),
            _ => Ok(part.clone()),
        })?;
    }
    Ok(x)
}

/// Pads one axis with elements of the tensor. Short padding is made of slices that are concatenated; longer padding is
/// a gather with reflected or wrapped indices. `inner` is applied to each part.
fn mirror(
    o: &Op<'_, '_>,
    x: &Value,
    a: usize,
    [before, after]: [usize; 2],
    mode: &str,
    inner: &dyn Fn(&Value) -> Result<Value>,
) -> Result<Value> {
    let n = x.dim(a)?;
    o.cx.check_shape(&[before, after, n].map(|v| v.max(1)))?;
    let mut shape = x.shape().to_vec();
    let mut parts = Vec::new();
    match mode {
        "edge" => {
            for (at, count) in [(0, before), (n - 1, after)] {
                shape[a] = count;
                parts.push(o.cx.expand(&o.cx.narrow(x, a, at, 1)?, &shape)?);
            }
        }
        "reflect" if before < n && after < n => {
            parts.push(o.cx.flip(&o.cx.narrow(x, a, 1, before)?, a)?);
            parts.push(o.cx.flip(&o.cx.narrow(x, a, n - 1 - after, after)?, a)?);
        }
        "wrap" if before <= n && after <= n => {
            parts.push(o.cx.narrow(x, a, n - before, before)?);
            parts.push(o.cx.narrow(x, a, 0, after)?);
        }
        _ => {
            let at = |i: i64| {
                let m = n as i64;
                if mode == "wrap" || n == 1 {
                    return i.rem_euclid(m);
                }
                let i = i.rem_euclid(2 * m - 2);
                if i < m { i } else { 2 * m - 2 - i }
            };
            let mut index = o.cx.vec_with_capacity(n.saturating_add(before).saturating_add(after))?;
            index.extend((-(before as i64)..(n + after) as i64).map(at));
            return o.cx.gather(&inner(x)?, &o.cx.ints(&index)?, a);
        }
    }
    parts.insert(1, x.clone());
    parts.retain(|p| p.extent(a) > 0);
    o.cx.concat(&parts.iter().map(inner).collect::<Result<Vec<_>>>()?, a)
}

fn constant(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let Some(a) = o.node.attributes.iter().find(|a| a.name.starts_with("value") || a.name == "sparse_value") else {
        return o.fail("it has no value");
    };
    let value = match (&*a.name, &a.value) {
        ("value", AttrValue::Tensor(t)) => o.cx.constant(t),
        ("value_int", AttrValue::Int(i)) => HostTensor::from_i64(vec![], &[*i]).map(Value::known),
        ("value_ints", AttrValue::Ints(v)) => o.cx.ints(v),
        ("value_float", AttrValue::Float(v)) => HostTensor::from_f32(vec![], &[*v]).map(Value::known),
        ("value_string", _) => strings::value(o, vec![], &[o.str("value_string", "")?]),
        ("value_strings", AttrValue::Strings(v)) => strings::value(o, vec![v.len()], &o.strs("value_strings")?),
        ("value_floats", AttrValue::Floats(v)) => HostTensor::from_f32(vec![v.len()], v).map(Value::known),
        (name, _) => return o.unsupported(format!("attribute `{name}`")),
    };
    one(value)
}

fn range(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut v = Vec::new();
    let dtype = o.arg(0)?.dtype();
    for i in 0..3 {
        // The operator of `com.microsoft` may omit the delta.
        if i == 2 && o.opt(2).is_none() && !o.node.domain.is_empty() {
            v.push(Scalar::from_i64(1, dtype));
            continue;
        }
        let Some(t) = o.cx.host(&o.arg(i)?)? else { return o.unknown(i) };
        match t.scalars().next() {
            Some(s) if t.len() == 1 && t.dtype == dtype => v.push(s),
            _ => return o.fail("start, limit and delta are not scalars of one dtype"),
        }
    }
    let (start, limit, delta) = (v[0], v[1], v[2]);
    let count = if dtype.is_float() {
        ((limit.as_f64() - start.as_f64()) / delta.as_f64()).ceil().max(0.0)
    } else {
        let (a, b, d) = (i128::from(start.as_i64()), i128::from(limit.as_i64()), i128::from(delta.as_i64()));
        if d == 0 {
            return o.fail("a delta of 0");
        }
        let span = if d > 0 { b - a } else { a - b };
        if span <= 0 { 0.0 } else { ((span + d.abs() - 1) / d.abs()) as f64 }
    };
    if count.is_nan() || count > (1 << 24) as f64 {
        return o.fail(format!("a range of {} elements", Shown(count)));
    }
    if o.cx.is_of_lengths() && !dtype.is_float() && count > FOLD_SHAPES as f64 {
        let (start, limit, delta) = (start.as_f64(), limit.as_f64(), delta.as_f64());
        return one(Tensor::arange(&o.cx.session, start, limit, delta, dtype).map(Value::lazy));
    }
    let at = |i: usize| {
        if dtype.is_float() {
            Scalar::from_f64(start.as_f64() + i as f64 * delta.as_f64(), dtype)
        } else {
            Scalar::from_i64(start.as_i64().wrapping_add(delta.as_i64().wrapping_mul(i as i64)), dtype)
        }
    };
    one(o.cx.table(dtype, &[count as usize], at))
}

/// A mask that is true where `column - row` equals `k` or, for triangles, is above (`Greater`) or below (`Less`) it as
/// well.
fn diagonal(o: &Op<'_, '_>, rows: usize, columns: usize, k: i64, or: Ordering) -> Result<Value> {
    o.cx.check_shape(&[rows, columns])?;
    if o.cx.is_of_lengths() && rows.saturating_mul(columns) > FOLD_SHAPES {
        let row = Tensor::iota(&o.cx.session, rows)?.reshape(&[rows, 1])?.add(k)?;
        let column = Tensor::iota(&o.cx.session, columns)?;
        return match or {
            Ordering::Equal => column.eq(&row),
            Ordering::Greater => column.ge(&row),
            Ordering::Less => column.le(&row),
        }
        .map(Value::lazy);
    }
    let test = |d: i64| d == k || d.cmp(&k) == or;
    if rows.saturating_mul(columns) > 1 << 26 {
        return o.unsupported(format!("a mask of {rows} x {columns}"));
    }
    let width = columns.max(1);
    o.cx.table(DType::Bool, &[rows, columns], |i| Scalar::Int(i64::from(test((i % width) as i64 - (i / width) as i64))))
}

fn eye_like(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let [rows, columns] = *x.shape() else { return o.fail("the input is not a matrix") };
    let (dtype, k) = (o.dtype_attr("dtype", x.dtype())?, o.int("k", 0)?);
    let mask = diagonal(o, rows, columns, k, Ordering::Equal)?;
    one(o.cx.cast(&mask, dtype))
}

fn trilu(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    o.want_rank(&x, 2)?;
    let k = o.known_ints_opt(1)?.and_then(|k| k.first().copied()).unwrap_or(0);
    let (rows, columns) = (x.dim(x.nth_last(2)?)?, x.dim(x.nth_last(1)?)?);
    let upper = o.flag("upper", true)?;
    let mask = diagonal(o, rows, columns, k, if upper { Ordering::Greater } else { Ordering::Less })?;
    one(o.cx.select(&mask, &x, &o.cx.scalar_like(&x, 0.0)))
}

fn block(o: &Op<'_, '_>, x: &Value) -> Result<(usize, [usize; 4])> {
    let b = o.size(o.int("blocksize", 0)?)?;
    match *x.shape() {
        [n, c, h, w] if b > 0 && b < 1 << 16 => Ok((b, [n, c, h, w])),
        _ => o.fail(format!("block size {b} with shape {:?}", x.shape())),
    }
}

fn depth_to_space(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let (b, [n, c, h, w]) = block(o, &x)?;
    if c % (b * b) != 0 {
        return o.fail(format!("{c} channels do not hold blocks of {b}"));
    }
    let c = c / (b * b);
    let (split, order): ([usize; 6], _) = match o.str("mode", "DCR")?.as_str() {
        "DCR" => ([n, b, b, c, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, c, b, b, h, w], [0, 1, 4, 2, 5, 3]),
        mode => return o.fail(format!("the mode `{mode}` is unknown")),
    };
    let y = o.cx.permute(&o.cx.reshape(&x, &split)?, &order)?;
    one(o.cx.reshape(&y, &[n, c, h * b, w * b]))
}

fn space_to_depth(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let (b, [n, c, h, w]) = block(o, &x)?;
    if h % b != 0 || w % b != 0 {
        return o.fail(format!("{h} x {w} is not made of blocks of {b}"));
    }
    let y = o.cx.reshape(&x, &[n, c, h / b, b, w / b, b])?;
    let order = match o.str("mode", "DCR")?.as_str() {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        mode => return o.fail(format!("the mode `{mode}` is unknown")),
    };
    let y = o.cx.permute(&y, &order)?;
    one(o.cx.reshape(&y, &[n, c * b * b, h / b, w / b]))
}
