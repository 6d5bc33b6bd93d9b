//! If, Loop and Scan. Bodies are built inline: loops are unrolled.

use crate::util::sorted::SortedMap;

use super::super::build::run_graph;
use super::super::proto::{Dim, GraphProto, NodeProto, TypeProto, ValueInfo};
use super::super::stage::{Frame, LoopState};
use super::super::tensor::dtype_of;
use super::super::value::Value;
use super::{AttrValue, Op, OpDef, any_op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;

pub(super) static OPS: &[OpDef] = &[any_op("If", 0, if_)];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[any_op("Loop", 3, loop_), any_op("Scan", 0, scan)];

fn run(o: &mut Op<'_, '_>, graph: &GraphProto, values: SortedMap<String, Value>) -> Result<Vec<Value>> {
    run_graph(o.cx, graph, o.scope, values, o.depth, o.opset)
}

/// The subgraph in the attribute of that name.
pub(super) fn body<'n>(o: &Op<'n, '_>, name: &str) -> Result<&'n GraphProto> {
    let node: &'n NodeProto = o.node;
    let found = node.attributes.iter().find_map(|a| match &a.value {
        AttrValue::Graph(g) if a.name == name => Some(&**g),
        _ => None,
    });
    found.map_or_else(|| o.fail(format!("the graph `{name}` is missing")), Ok)
}

/// Builds one iteration of a body. If the build stops inside it, the state is saved so that it resumes in this
/// iteration.
pub(super) fn run_iteration(
    o: &mut Op<'_, '_>,
    body: &GraphProto,
    inputs: Vec<Value>,
    loop_state: &mut LoopState,
) -> Result<Vec<Value>> {
    o.cx.step()?;
    let values = body.inputs.iter().map(|i| i.name.clone()).zip(inputs).collect();
    let out = run(o, body, values);
    if out.is_err() {
        o.cx.save(|| Frame::Loop(std::mem::take(loop_state)));
    }
    out
}

/// With a known condition only the taken branch is built. Otherwise both are built on trial and each output is
/// selected; where their outputs do not match, the build stops until the condition is known.
fn if_(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let cond = o.arg(0)?;
    if cond.len() != 1 || cond.dtype() != DType::Bool || !cond.is_tensor() {
        return o.fail(format!("the condition is {} {:?}, not one bool", cond.dtype(), cond.shape()));
    }
    let (then, other) = (body(o, "then_branch")?, body(o, "else_branch")?);
    if let Some(known) = o.cx.host(&cond)? {
        let taken = if known.data.first().is_some_and(|&b| b != 0) { then } else { other };
        return run(o, taken, SortedMap::new());
    }
    o.cx.trials += 1;
    let both = run(o, then, SortedMap::new()).and_then(|a| Ok((a, run(o, other, SortedMap::new())?)));
    o.cx.trials -= 1;
    let fits = |a: &Value, b: &Value| {
        a.is_tensor() && b.is_tensor() && (a.shape(), a.dtype(), a.code_type()) == (b.shape(), b.dtype(), b.code_type())
    };
    let Some((a, b)) = both.ok().filter(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| fits(a, b))) else {
        return o.unknown(0);
    };
    let cond = o.cx.reshape(&cond, &[])?;
    let pick = |(a, b): (&Value, &Value)| Ok(o.cx.select(&cond, a, b)?.with_code_type(a.code_type()));
    a.iter().zip(&b).map(pick).collect()
}

/// Unrolls a loop. A condition that only a device can compute is computed and read after every iteration.
fn loop_(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let body = body(o, "body")?;
    let trips = o.known_ints_opt(0)?.and_then(|t| t.first().copied()).unwrap_or(i64::MAX);
    let n = o.args.len().saturating_sub(2);
    if body.inputs.len() != n + 2 || body.outputs.len() < n + 1 {
        return o.fail("the body's inputs and outputs do not fit");
    }
    let mut t = o.cx.take_loop_state().unwrap_or_else(|| LoopState {
        done: 0,
        state: (2..o.args.len()).map(|i| o.opt(i).unwrap_or_else(Value::absent)).collect(),
        lists: vec![Vec::new(); body.outputs.len() - n - 1],
        go: o.opt(1),
    });
    while (t.done as i64) < trips {
        if let Some(go) = &t.go {
            let Some(go) = o.cx.host(go)? else {
                let e = o.unknown_value(go);
                o.cx.save(|| Frame::Loop(t));
                return e;
            };
            if go.data.iter().all(|&b| b == 0) {
                break;
            }
        }
        let number = Value::known(HostTensor::from_i64(vec![], &[t.done as i64])?);
        let yes = o.cx.full(DType::Bool, &[], Scalar::Int(1))?;
        let inputs = [number, yes].into_iter().chain(t.state.iter().cloned()).collect();
        let mut out = run_iteration(o, body, inputs, &mut t)?;
        for (list, v) in t.lists.iter_mut().zip(out.split_off(n + 1)) {
            list.push(v);
        }
        t.state = out.split_off(1);
        t.go = out.pop();
        t.done += 1;
    }
    let mut out = t.state;
    for (list, info) in t.lists.iter().zip(&body.outputs[n + 1..]) {
        out.push(stack(o, list, 0, info)?);
    }
    Ok(out)
}

/// Stacks values along a new axis. Without values, an empty tensor of the shape that the body declares.
fn stack(o: &Op<'_, '_>, list: &[Value], axis: i64, info: &ValueInfo) -> Result<Value> {
    let Some(first) = list.first() else {
        let TypeProto::Tensor { elem, dims: Some(dims) } = &info.ty else {
            return o.unsupported("a scan output of no turns whose shape the body does not say");
        };
        let Some(dtype) = dtype_of(*elem) else { return o.unsupported("a scan output of no turns") };
        let size = |d: &Dim| if let Dim::Value(n) = d { usize::try_from(*n).unwrap_or(0) } else { 0 };
        let mut shape: Vec<usize> = dims.iter().map(size).collect();
        shape.insert(o.axis(axis, dims.len() + 1)?, 0);
        return o.cx.full(dtype, &shape, Scalar::from_i64(0, dtype));
    };
    if list.iter().any(|v| !v.is_tensor()) {
        return o.fail("a scan output is no tensor");
    }
    let axis = o.axis(axis, first.rank() + 1)?;
    let wide = |v: &Value| {
        let mut shape = v.shape().to_vec();
        shape.insert(axis, 1);
        o.cx.reshape(v, &shape)
    };
    let parts = list.iter().map(wide).collect::<Result<Vec<_>>>()?;
    Ok(o.cx.concat(&parts, axis)?.with_code_type(first.code_type()))
}

/// Unrolls a scan: one iteration for each slice of its inputs.
fn scan(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let body = body(o, "body")?;
    // In operator set 8 Scan has a batch axis and optional sequence lengths.
    if o.opset < 9 {
        return scan_batches(o, body);
    }
    let args = (0..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    scan_once(o, body, args)
}

/// Scans each batch on its own and stacks the results.
fn scan_batches(o: &mut Op<'_, '_>, body: &GraphProto) -> Result<Vec<Value>> {
    if o.opt(0).is_some() {
        return o.unsupported("sequence lengths");
    }
    let args = (1..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    let batch = args.first().and_then(|a| a.shape().first().copied()).unwrap_or(0);
    if batch == 0 || args.iter().any(|a| a.shape().first() != Some(&batch)) {
        return o.fail("the inputs differ in batches");
    }
    let mut t = o.cx.take_loop_state().unwrap_or_default();
    while t.done < batch {
        let one = args
            .iter()
            .map(|a| o.cx.reshape(&o.cx.narrow(a, 0, t.done, 1)?, a.shape_in(1..)?))
            .collect::<Result<_>>()?;
        let out = scan_once(o, body, one);
        if out.is_err() {
            o.cx.save(|| Frame::Loop(std::mem::take(&mut t)));
        }
        let out = out?;
        t.lists.resize(out.len(), Vec::new());
        for (list, v) in t.lists.iter_mut().zip(out) {
            list.push(v);
        }
        t.done += 1;
    }
    t.lists.iter().zip(&body.outputs).map(|(list, info)| stack(o, list, 0, info)).collect()
}

fn scan_once(o: &mut Op<'_, '_>, body: &GraphProto, mut args: Vec<Value>) -> Result<Vec<Value>> {
    let scans = o.size(o.int("num_scan_inputs", 0)?)?;
    let Some(states) = args.len().checked_sub(scans).filter(|_| scans > 0) else {
        return o.fail(format!("{scans} of {} inputs are scanned", args.len()));
    };
    if body.inputs.len() != args.len() || body.outputs.len() < states {
        return o.fail("the body's inputs and outputs do not fit");
    }
    let inputs = args.split_off(states);
    let results = body.outputs.len() - states;
    let list = |name: &str, n: usize| -> Result<Vec<i64>> {
        let old = if name == "scan_input_directions" && o.has("directions") { "directions" } else { name };
        let v = o.ints_opt(old)?.unwrap_or_else(|| vec![0; n]);
        if v.len() == n { Ok(v) } else { o.fail(format!("`{name}` has {} numbers for {n}", v.len())) }
    };
    let (in_axes, in_back) = (list("scan_input_axes", scans)?, list("scan_input_directions", scans)?);
    let (out_axes, out_back) = (list("scan_output_axes", results)?, list("scan_output_directions", results)?);
    let axes = inputs.iter().zip(&in_axes).map(|(v, &a)| o.axis(a, v.rank())).collect::<Result<Vec<_>>>()?;
    let turns = inputs[0].dim(axes[0])?;
    if inputs.iter().zip(&axes).any(|(v, &a)| v.extent(a) != turns) {
        return o.fail("the scanned inputs differ in length");
    }
    let mut t = o.cx.take_loop_state().unwrap_or_else(|| LoopState {
        state: args,
        lists: vec![Vec::new(); results],
        ..LoopState::default()
    });
    while t.done < turns {
        let mut values = t.state.clone();
        for ((v, &a), &back) in inputs.iter().zip(&axes).zip(&in_back) {
            let mut shape = v.shape().to_vec();
            shape.remove(a);
            let at = if back != 0 { turns - 1 - t.done } else { t.done };
            values.push(o.cx.reshape(&o.cx.narrow(v, a, at, 1)?, &shape)?);
        }
        let mut out = run_iteration(o, body, values, &mut t)?;
        for (list, v) in t.lists.iter_mut().zip(out.split_off(states)) {
            list.push(v);
        }
        t.state = out;
        t.done += 1;
    }
    let mut out = t.state;
    for (i, list) in t.lists.iter_mut().enumerate() {
        if out_back[i] != 0 {
            list.reverse();
        }
        out.push(stack(o, list, out_axes[i], &body.outputs[states + i])?);
    }
    Ok(out)
}
