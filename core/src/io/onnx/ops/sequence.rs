//! Operators on sequences and optionals. Both are resolved while the graph is built: a sequence is a list of values, an
//! optional is its value or absent.

use super::super::stage::LoopState;
use super::super::value::Value;
use super::control::{body, run_iteration};
use super::elementwise::one;
use super::{Op, OpDef, any_op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;

pub(super) static OPS: &[OpDef] = &[
    any_op("SequenceEmpty", 0, |o| Ok(vec![Value::sequence(o.dtype_attr("dtype", DType::F32)?, Vec::new())])),
    any_op("SequenceConstruct", 0, |o| {
        let items = (0..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
        one(sequence(o, items))
    }),
    any_op("SequenceAt", 2, |o| {
        let (list, i) = (list(o, 0)?, o.known_ints(1)?);
        let items = list.items().unwrap_or_default();
        let i = place(o, &i, items.len())?;
        match items.get(i) {
            Some(v) => Ok(vec![v.clone()]),
            None => o.fail(format!("element {i} of a sequence of {}", items.len())),
        }
    }),
    any_op("SequenceInsert", 4, |o| {
        let (mut items, v) = (items(o, 0)?, o.arg(1)?);
        let i = match o.known_ints_opt(2)? {
            Some(i) => place(o, &i, items.len())?,
            None => items.len(),
        };
        items.insert(i, v);
        one(sequence(o, items))
    }),
    any_op("SequenceErase", 2, |o| {
        let mut items = items(o, 0)?;
        let i = match o.known_ints_opt(1)? {
            Some(i) => place(o, &i, items.len())?,
            None => items.len().saturating_sub(1),
        };
        if i >= items.len() {
            return o.fail(format!("element {i} of a sequence of {}", items.len()));
        }
        let dtype = items.remove(i).dtype();
        Ok(vec![Value::sequence(dtype, items)])
    }),
    any_op("SequenceLength", 0, |o| {
        let n = length(o, 0)?;
        Ok(vec![o.cx.reshape(&o.cx.ints(&[n as i64])?, &[])?])
    }),
    any_op("SplitToSequence", 2, split),
    any_op("ConcatFromSequence", 0, concat),
    any_op("SequenceMap", 0, map),
    any_op("Optional", 0, |o| Ok(vec![o.opt(0).unwrap_or_else(Value::absent)])),
    any_op("OptionalHasElement", 0, |o| {
        let is = o.opt(0).is_some_and(|v| !v.is_absent());
        one(o.cx.full(DType::Bool, &[], Scalar::Int(i64::from(is))))
    }),
    any_op("OptionalGetElement", 0, |o| {
        let v = o.arg(0)?;
        if v.is_absent() { o.fail("the optional has no value") } else { Ok(vec![v]) }
    }),
];

/// An input that must be a sequence.
fn list(o: &Op<'_, '_>, i: usize) -> Result<Value> {
    let v = o.arg(i)?;
    if v.items().is_some() { Ok(v) } else { o.fail(format!("input {i} is no sequence")) }
}

fn length(o: &Op<'_, '_>, i: usize) -> Result<usize> {
    Ok(list(o, i)?.items().map_or(0, <[Value]>::len))
}

/// The elements of a sequence, to build another one. Long lists count as several nodes, so that an endless loop which
/// appends to a sequence soon reaches the budget.
fn items(o: &mut Op<'_, '_>, i: usize) -> Result<Vec<Value>> {
    let items = list(o, i)?.items().unwrap_or_default().to_vec();
    o.cx.work(items.len() / 64)?;
    Ok(items)
}

/// A sequence of tensors; all must have one dtype.
fn sequence(o: &Op<'_, '_>, items: Vec<Value>) -> Result<Value> {
    let Some(first) = items.first() else { return Ok(Value::sequence(DType::F32, items)) };
    let kind = |v: &Value| (v.dtype(), v.code_type());
    if items.iter().any(|v| !v.is_tensor() || kind(v) != kind(first)) {
        return o.fail("a sequence holds tensors of one type");
    }
    Ok(Value::sequence(first.dtype(), items))
}

/// A position `0 ..= n` in a sequence; negative ones count from the end.
fn place(o: &Op<'_, '_>, i: &[i64], n: usize) -> Result<usize> {
    let &[i] = i else { return o.fail("the position is not one number") };
    let at = if i < 0 { i.checked_add(n as i64) } else { Some(i) };
    match at.and_then(|a| usize::try_from(a).ok()).filter(|&a| a <= n) {
        Some(a) => Ok(a),
        None => o.fail(format!("position {i} is out of range for a sequence of {n}")),
    }
}

fn split(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let axis = o.axis(o.int("axis", 0)?, x.rank())?;
    let n = x.dim(axis)?;
    let whole = o.opt(1).is_some();
    let sizes = match o.known_ints_opt(1)? {
        None => vec![1; o.cx.budget.outputs(n as u64).grant()?],
        Some(v) if o.opt(1).is_some_and(|s| s.rank() == 0) => {
            let size = o.size(v.first().copied().unwrap_or(0))?;
            if size == 0 {
                return o.fail("parts of size 0");
            }
            o.cx.budget.outputs(n.div_ceil(size) as u64).grant()?;
            (0..n.div_ceil(size)).map(|i| size.min(n - i * size)).collect()
        }
        Some(v) => o.sizes(&v)?,
    };
    if sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b)) != Some(n) {
        return o.fail(format!("parts {sizes:?} of {n}"));
    }
    let keep = whole || o.flag("keepdims", true)?;
    let mut shape = x.shape().to_vec();
    shape.remove(axis);
    let mut at = 0;
    let mut items = Vec::with_capacity(sizes.len());
    for size in sizes {
        let part = o.cx.narrow(&x, axis, at, size)?;
        items.push(if keep { part } else { o.cx.reshape(&part, &shape)? });
        at += size;
    }
    Ok(vec![Value::sequence(x.dtype(), items)])
}

fn concat(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut items = items(o, 0)?;
    let new = o.flag("new_axis", false)?;
    let Some(first) = items.first() else { return o.fail("the sequence is empty") };
    let Some(axis) = o.int_opt("axis")? else { return o.fail("the attribute `axis` is missing") };
    let axis = o.axis(axis, first.rank() + usize::from(new))?;
    if new {
        for v in &mut items {
            let mut shape = v.shape().to_vec();
            shape.insert(axis.min(shape.len()), 1);
            *v = o.cx.reshape(v, &shape)?;
        }
    }
    one(o.cx.concat(&items, axis))
}

/// One iteration of the body for each element; inputs that are tensors are the same in every iteration.
fn map(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let body = body(o, "body")?;
    let n = length(o, 0)?;
    let args = (0..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    if args.iter().any(|v| v.items().is_some_and(|i| i.len() != n)) || body.inputs.len() != args.len() {
        return o.fail("the inputs differ in length, or do not fit the body");
    }
    let mut t =
        o.cx.take_loop_state()
            .unwrap_or_else(|| LoopState { lists: vec![Vec::new(); body.outputs.len()], ..LoopState::default() });
    while t.done < n {
        let inputs = args.iter().map(|v| v.items().map_or_else(|| v.clone(), |i| i[t.done].clone())).collect();
        let out = run_iteration(o, body, inputs, &mut t)?;
        for (list, v) in t.lists.iter_mut().zip(out) {
            list.push(v);
        }
        t.done += 1;
    }
    t.lists.into_iter().map(|list| sequence(o, list)).collect()
}
