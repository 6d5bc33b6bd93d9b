//! Operators that move elements without changing them: slicing, concatenation, gathering, repetition, and blocks of
//! pixels. Operators are given by their names in the schema.

use super::Cx;
use super::ops::{Op, known, real};
use super::write::Attr;
use crate::error::{Error, Result};

/// The most results that one operator may have.
const MAX_PARTS: usize = 4096;

/// Translates an operator with several results; `None` for any other operator.
pub(super) fn translate_multi_output(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<Option<Vec<String>>> {
    let n = op.outputs.len();
    if n > MAX_PARTS {
        return op.refuse(format!("{n} results"));
    }
    let name = &op.out.name;
    Ok(Some(match op.name {
        "TOPK_V2" => {
            let k = known(cx, op, 1)?;
            let inputs = [real(cx, op, 0)?, cx.ints(&k)?];
            let [values, at] = &cx.nodes("TopK", 2, &inputs, &[], name)[..] else { return op.refuse("no results") };
            vec![values.clone(), cx.node("Cast", std::slice::from_ref(at), &[("to", Attr::Int(6))], name)]
        }
        "SPLIT" => {
            let axis = scalar_of(&known(cx, op, 0)?, op)?;
            let x = real(cx, op, 1)?;
            cx.nodes("Split", n, &[x], &[("axis", Attr::Int(axis)), ("num_outputs", Attr::Int(n as i64))], name)
        }
        "SPLIT_V" => {
            let (sizes, axis) = (known(cx, op, 1)?, scalar_of(&known(cx, op, 2)?, op)?);
            let inputs = [real(cx, op, 0)?, cx.ints(&part_sizes(cx, op, &sizes, axis)?)?];
            cx.nodes("Split", n, &inputs, &[("axis", Attr::Int(axis))], name)
        }
        "UNPACK" => {
            let axis = op.int(1, 0)?;
            let x = real(cx, op, 0)?;
            let attrs = [("axis", Attr::Int(axis)), ("num_outputs", Attr::Int(n as i64))];
            let parts = cx.nodes("Split", n, &[x], &attrs, name);
            let axes = cx.ints(&[axis])?;
            parts.into_iter().map(|p| cx.node("Squeeze", &[p, axes.clone()], &[], name)).collect()
        }
        _ => return Ok(None),
    }))
}

fn scalar_of(values: &[i64], op: &Op<'_>) -> Result<i64> {
    match values {
        [v] => Ok(*v),
        _ => op.refuse(format!("{} values for one axis", values.len())),
    }
}

/// The sizes of the parts, with the one that is -1 computed from the others.
fn part_sizes(cx: &Cx<'_>, op: &Op<'_>, sizes: &[i64], axis: i64) -> Result<Vec<i64>> {
    let shape = &cx.tensor(op.want(0)? as i32)?.shape;
    let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
    let all = usize::try_from(axis).ok().and_then(|a| shape.get(a)).map_or(0, |&d| d as i64);
    let known = sizes.iter().filter(|&&s| s >= 0).fold(0i64, |sum, s| sum.saturating_add(*s));
    Ok(sizes.iter().map(|&s| if s < 0 { all.saturating_sub(known).max(0) } else { s }).collect())
}

/// Translates an operator that this file handles; `None` for any other.
pub(super) fn one(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<Option<String>> {
    let name = &op.out.name;
    Ok(Some(match op.name {
        "DEPTH_TO_SPACE" | "SPACE_TO_DEPTH" => {
            let kind = if op.name == "DEPTH_TO_SPACE" { "DepthToSpace" } else { "SpaceToDepth" };
            let x = cx.real(op.want(0)?, &[0, 3, 1, 2])?;
            let y = cx.node(kind, &[x], &[("blocksize", Attr::Int(op.int(0, 1)?))], name);
            cx.node("Transpose", &[y], &[("perm", Attr::Ints(vec![0, 2, 3, 1]))], name)
        }
        "EMBEDDING_LOOKUP" => {
            let inputs = [real(cx, op, 1)?, real(cx, op, 0)?];
            cx.node("Gather", &inputs, &[("axis", Attr::Int(0))], name)
        }
        "GATHER" => {
            if op.int(1, 0)? != 0 {
                return op.refuse("gathering in batches");
            }
            let inputs = [real(cx, op, 0)?, real(cx, op, 1)?];
            cx.node("Gather", &inputs, &[("axis", Attr::Int(op.int(0, 0)?))], name)
        }
        "BATCH_TO_SPACE_ND" | "SPACE_TO_BATCH_ND" => blocks(cx, op)?,
        "STRIDED_SLICE" => strided_slice(cx, op)?,
        "SLICE" => {
            let (begin, size) = (known(cx, op, 1)?, known(cx, op, 2)?);
            let cut = |(b, s): (&i64, &i64)| if *s < 0 { i64::MAX } else { b.saturating_add(*s) };
            let end: Vec<i64> = begin.iter().zip(&size).map(cut).collect();
            let inputs = [real(cx, op, 0)?, cx.ints(&begin)?, cx.ints(&end)?];
            cx.node("Slice", &inputs, &[], name)
        }
        "TILE" => {
            let counts = known(cx, op, 1)?;
            let inputs = [real(cx, op, 0)?, cx.ints(&counts)?];
            cx.node("Tile", &inputs, &[], name)
        }
        "SHAPE" => {
            let x = cx.stored(op.want(0)?)?;
            let shape = cx.node("Shape", &[x], &[], name);
            cx.node("Cast", &[shape], &[("to", Attr::Int(i64::from(op.out.elem()?)))], name)
        }
        "PACK" => {
            let axis = op.int(1, 0)?;
            let at = cx.ints(&[axis])?;
            let mut parts = Vec::new();
            for i in 0..op.inputs.len() {
                let x = real(cx, op, i)?;
                parts.push(cx.node("Unsqueeze", &[x, at.clone()], &[], name));
            }
            cx.node("Concat", &parts, &[("axis", Attr::Int(axis))], name)
        }
        "MIRROR_PAD" => {
            if op.byte(0)? != 0 {
                return op.refuse("padding that repeats the edge");
            }
            let pairs = known(cx, op, 1)?;
            let pads: Vec<i64> = pairs.iter().step_by(2).chain(pairs.iter().skip(1).step_by(2)).copied().collect();
            let inputs = [real(cx, op, 0)?, cx.ints(&pads)?];
            cx.node("Pad", &inputs, &[("mode", Attr::Text("reflect"))], name)
        }
        "REVERSE_V2" => {
            let axes = known(cx, op, 1)?;
            let all = |v: i64| vec![v; axes.len()];
            let inputs =
                [real(cx, op, 0)?, cx.ints(&all(-1))?, cx.ints(&all(i64::MIN))?, cx.ints(&axes)?, cx.ints(&all(-1))?];
            cx.node("Slice", &inputs, &[], name)
        }
        "GATHER_ND" => {
            let (x, at) = (real(cx, op, 0)?, real(cx, op, 1)?);
            let at = cx.node("Cast", &[at], &[("to", Attr::Int(7))], name);
            cx.node("GatherND", &[x, at], &[], name)
        }
        "FILL" | "BROADCAST_TO" => {
            let (x, dims) = if op.name == "FILL" { (1, 0) } else { (0, 1) };
            let shape = known(cx, op, dims)?;
            let inputs = [real(cx, op, x)?, cx.ints(&shape)?];
            cx.node("Expand", &inputs, &[], name)
        }
        _ => return Ok(None),
    }))
}

/// A slice with Python's semantics for each axis; axes with a single index (`shrink_axis_mask`) are removed.
fn strided_slice(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let (mut begin, mut end, step) = (known(cx, op, 1)?, known(cx, op, 2)?, known(cx, op, 3)?);
    let mask = |slot: usize| op.int(slot, 0);
    let (ellipsis, fresh, gone) = (mask(2)?, mask(3)?, mask(4)?);
    if ellipsis != 0 || fresh != 0 || op.bool(5)? {
        return op.refuse("slices with an ellipsis, new axes or offsets");
    }
    let (open_begin, open_end) = (mask(0)?, mask(1)?);
    let mut vanish = Vec::new();
    let ranges = begin.iter_mut().zip(&mut end).zip(&step).enumerate();
    for (axis, ((from, to), &step)) in ranges.take(31) {
        if open_begin >> axis & 1 == 1 {
            *from = if step < 0 { i64::MAX } else { 0 };
        }
        if gone >> axis & 1 == 1 {
            vanish.push(axis as i64);
            *to = if *from == -1 { i64::MAX } else { from.saturating_add(1) };
            continue;
        }
        if open_end >> axis & 1 == 1 {
            *to = if step < 0 { i64::MIN } else { i64::MAX };
        }
    }
    let axes: Vec<i64> = (0..begin.len() as i64).collect();
    let step: Vec<i64> = step.iter().zip(&axes).map(|(&s, &a)| if vanish.contains(&a) { 1 } else { s }).collect();
    let inputs = [real(cx, op, 0)?, cx.ints(&begin)?, cx.ints(&end)?, cx.ints(&axes)?, cx.ints(&step)?];
    let y = cx.node("Slice", &inputs, &[], &op.out.name);
    if vanish.is_empty() {
        return Ok(y);
    }
    let axes = cx.ints(&vanish)?;
    Ok(cx.node("Squeeze", &[y, axes], &[], &op.out.name))
}

/// SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, which move blocks of pixels to the batch axis and back; older files express
/// dilation with them.
fn blocks(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let x = cx.tensor(op.want(0)? as i32)?.shape.clone();
    let (block, pairs) = (known(cx, op, 1)?, known(cx, op, 2)?);
    let (&[n, h, w, c], &[bh, bw], &[top, bottom, left, right]) = (&x[..], &block[..], &pairs[..]) else {
        return op.refuse(format!("blocks {block:?} of shape {x:?}"));
    };
    let (n, h, w, c) = (n as i64, h as i64, w as i64, c as i64);
    let wrong = || Error::format("tflite", format!("blocks {block:?}, {pairs:?} do not fit shape {x:?}"), None);
    if bh < 1 || bw < 1 || pairs.iter().any(|&p| !(0..=1 << 20).contains(&p)) {
        return Err(wrong());
    }
    let name = &op.out.name;
    let x = real(cx, op, 0)?;
    if op.name == "SPACE_TO_BATCH_ND" {
        let (rows, columns) = (h + top + bottom, w + left + right);
        if rows % bh != 0 || columns % bw != 0 {
            return Err(wrong());
        }
        let pads = cx.ints(&[0, top, left, 0, 0, bottom, right, 0])?;
        let padded = cx.node("Pad", &[x, pads], &[], name);
        let split = cx.ints(&[n, rows / bh, bh, columns / bw, bw, c])?;
        let y = cx.node("Reshape", &[padded, split], &[], name);
        let y = cx.node("Transpose", &[y], &[("perm", Attr::Ints(vec![2, 4, 0, 1, 3, 5]))], name);
        let joined = cx.ints(&[-1, rows / bh, columns / bw, c])?;
        return Ok(cx.node("Reshape", &[y, joined], &[], name));
    }
    let each = bh.checked_mul(bw).filter(|&b| n % b == 0).ok_or_else(wrong)?;
    let (rows, columns) = (h.checked_mul(bh).ok_or_else(wrong)?, w.checked_mul(bw).ok_or_else(wrong)?);
    if top + bottom > rows || left + right > columns {
        return Err(wrong());
    }
    let split = cx.ints(&[bh, bw, n / each, h, w, c])?;
    let y = cx.node("Reshape", &[x, split], &[], name);
    let y = cx.node("Transpose", &[y], &[("perm", Attr::Ints(vec![2, 3, 0, 4, 1, 5]))], name);
    let joined = cx.ints(&[n / each, rows, columns, c])?;
    let y = cx.node("Reshape", &[y, joined], &[], name);
    let bounds = [[top, left], [rows - bottom, columns - right], [1, 2]];
    let mut inputs = vec![y];
    for b in bounds {
        inputs.push(cx.ints(&b)?);
    }
    Ok(cx.node("Slice", &inputs, &[], name))
}
