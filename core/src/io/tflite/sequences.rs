//! Operators on sequences and index sets: recurrent layers, cumulative sums, scattering, one-hot vectors, ranges, and
//! logical reductions.

use super::Cx;
use super::ops::{Op, TO_FIRST, known, last, real};
use super::write::Attr;
use crate::error::Result;

/// Translates an operator that this file handles; `None` for any other.
pub(super) fn one(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<Option<String>> {
    let name = &op.out.name;
    Ok(Some(match op.name {
        "ADD_N" => {
            let inputs = (0..op.inputs.len()).map(|i| real(cx, op, i)).collect::<Result<Vec<_>>>()?;
            cx.node("Sum", &inputs, &[], name)
        }
        "CUMSUM" => {
            let inputs = [real(cx, op, 0)?, cx.stored(op.want(1)?)?];
            let attrs =
                [("exclusive", Attr::Int(i64::from(op.bool(0)?))), ("reverse", Attr::Int(i64::from(op.bool(1)?)))];
            cx.node("CumSum", &inputs, &attrs, name)
        }
        "LOCAL_RESPONSE_NORMALIZATION" => local_response_normalization(cx, op)?,
        "ONE_HOT" => one_hot(cx, op)?,
        "RANGE" => {
            let inputs = [real(cx, op, 0)?, real(cx, op, 1)?, real(cx, op, 2)?];
            cx.node("Range", &inputs, &[], name)
        }
        "RANK" => {
            let rank = cx.tensor(op.want(0)? as i32)?.shape.len() as i32;
            cx.constant(6, &[], &rank.to_le_bytes())?
        }
        "REDUCE_ALL" | "REDUCE_ANY" => {
            let kind = if op.name == "REDUCE_ALL" { "ReduceMin" } else { "ReduceMax" };
            let axes = known(cx, op, 1)?;
            let inputs = [real(cx, op, 0)?, cx.ints(&axes)?];
            cx.node(kind, &inputs, &[("keepdims", Attr::Int(i64::from(op.bool(0)?)))], name)
        }
        "REVERSE_SEQUENCE" => {
            let lengths = cx.stored(op.want(1)?)?;
            let lengths = cx.node("Cast", &[lengths], &[("to", Attr::Int(7))], name);
            let attrs = [("time_axis", Attr::Int(op.int(0, 0)?)), ("batch_axis", Attr::Int(op.int(1, 0)?))];
            let inputs = [real(cx, op, 0)?, lengths];
            cx.node("ReverseSequence", &inputs, &attrs, name)
        }
        "SCATTER_ND" => {
            // Updates with the same index are added.
            let shape = known(cx, op, 2)?;
            let (at, updates, shape) = (real(cx, op, 0)?, real(cx, op, 1)?, cx.ints(&shape)?);
            let at = cx.node("Cast", &[at], &[("to", Attr::Int(7))], name);
            let zeros = zeros(cx, op, shape)?;
            cx.node("ScatterND", &[zeros, at, updates], &[("reduction", Attr::Text("add"))], name)
        }
        "UNIDIRECTIONAL_SEQUENCE_LSTM" => lstm(cx, op)?,
        "WHERE" if op.inputs.len() == 1 => {
            let x = real(cx, op, 0)?;
            let at = cx.node("NonZero", &[x], &[], name);
            cx.node("Transpose", &[at], &[("perm", Attr::Ints(vec![1, 0]))], name)
        }
        "ZEROS_LIKE" => {
            let x = cx.stored(op.want(0)?)?;
            let shape = cx.node("Shape", &[x], &[], name);
            zeros(cx, op, shape)?
        }
        _ => return Ok(None),
    }))
}

/// Zeros of the element type in which the operator computes, f32 for floats of any width and for quantised tensors.
fn zeros(cx: &mut Cx<'_>, op: &Op<'_>, shape: String) -> Result<String> {
    let elem = if op.out.kind == 1 || op.out.is_quantised() { 1 } else { op.out.elem()? };
    let zero = cx.float(0.0)?;
    let zero = cx.node("Cast", &[zero], &[("to", Attr::Int(i64::from(elem)))], &op.out.name);
    Ok(cx.node("Expand", &[zero, shape], &[], &op.out.name))
}

/// Divides by a power of the bias plus alpha times the sum of squares over `2 * radius + 1` channels.
fn local_response_normalization(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let Some(size) = op.int(0, 0)?.checked_mul(2).map(|n| n + 1).filter(|n| (1..1 << 16).contains(n)) else {
        return op.refuse("such a radius");
    };
    let x = cx.real(op.want(0)?, &TO_FIRST)?;
    let attrs = [
        ("size", Attr::Int(size)),
        ("bias", Attr::Float(op.float(1)?)),
        // ONNX divides alpha by the number of channels.
        ("alpha", Attr::Float(op.float(2)? * size as f32)),
        ("beta", Attr::Float(op.float(3)?)),
    ];
    let y = cx.node("LRN", &[x], &attrs, &op.out.name);
    Ok(last(cx, op, y))
}

fn one_hot(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let name = &op.out.name;
    let (at, depth) = (real(cx, op, 0)?, known(cx, op, 1)?);
    let depth = cx.ints(&depth)?;
    let axes = cx.ints(&[0])?;
    let mut values = Vec::new();
    for i in [3, 2] {
        let value = real(cx, op, i)?;
        values.push(cx.node("Unsqueeze", &[value, axes.clone()], &[], name));
    }
    let values = cx.node("Concat", &values, &[("axis", Attr::Int(0))], name);
    Ok(cx.node("OneHot", &[at, depth, values], &[("axis", Attr::Int(op.int(0, 0)?))], name))
}

/// A layer of long short-term memory without peepholes, projection and layer norms. Its inputs, by number: the
/// sequence, 4 weights of it and 4 recurrent ones (in the order input, forget, cell, output), 3 peepholes, 4 biases,
/// projection and its bias, and the states, which are zero when a run begins.
fn lstm(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let name = &op.out.name;
    let extra = [9, 10, 11, 16, 17, 20, 21, 22, 23];
    if extra.into_iter().any(|i| op.input(i).is_some()) || op.input(1).is_none() {
        return op.refuse("peepholes, projections, norms or coupled gates");
    }
    if op.byte(0)? != 4 || op.float(1)? != 0.0 || op.float(2)? != 0.0 {
        return op.refuse("clipping, or an activation other than tanh");
    }
    let steps_first = op.bool(3)?;
    let &[hidden, _] = &cx.tensor(op.want(5)? as i32)?.shape[..] else { return op.refuse("such recurrent weights") };
    let axes = cx.ints(&[0])?;
    // ONNX has the gates in the order input, output, forget, cell, in one tensor with an axis of directions.
    let joined = |cx: &mut Cx<'_>, first: usize| -> Result<String> {
        let gates = [0, 3, 1, 2].map(|gate| real(cx, op, first + gate));
        let gates = gates.into_iter().collect::<Result<Vec<_>>>()?;
        let all = cx.node("Concat", &gates, &[("axis", Attr::Int(0))], name);
        Ok(cx.node("Unsqueeze", &[all, axes.clone()], &[], name))
    };
    let (weights, recurrent) = (joined(cx, 1)?, joined(cx, 5)?);
    let bias = joined(cx, 12)?;
    let pads = cx.ints(&[0, 0, 0, 4 * hidden as i64])?;
    let bias = cx.node("Pad", &[bias, pads], &[], name);
    let mut x = real(cx, op, 0)?;
    let swap = |cx: &mut Cx<'_>, x: String| cx.node("Transpose", &[x], &[("perm", Attr::Ints(vec![1, 0, 2]))], name);
    if !steps_first {
        x = swap(cx, x);
    }
    let y = cx.node("LSTM", &[x, weights, recurrent, bias], &[("hidden_size", Attr::Int(hidden as i64))], name);
    let direction = cx.ints(&[1])?;
    let y = cx.node("Squeeze", &[y, direction], &[], name);
    Ok(if steps_first { y } else { swap(cx, y) })
}
