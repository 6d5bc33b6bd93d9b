//! If, Loop and Scan.

use std::collections::BTreeMap;

use super::super::build::run_graph;
use super::super::proto::GraphProto;
use super::super::value::Value;
use super::{Op, OpDef, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;

pub(super) static OPS: &[OpDef] = &[op("If", 0, if_), op("Loop", 3, loop_), op("Scan", 0, scan)];

fn run(o: &mut Op<'_, '_>, graph: &GraphProto, values: BTreeMap<String, Value>) -> Result<Vec<Value>> {
    run_graph(o.cx, graph, o.scope, values, o.depth, o.opset)
}

/// A known condition takes one branch; otherwise both run and each output is selected.
fn if_(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let cond = o.arg(0)?;
    if cond.len() != 1 || cond.dtype() != DType::Bool {
        return o.fail(format!("the condition is {} {:?}, not one bool", cond.dtype(), cond.shape()));
    }
    let node = o.node;
    let _ = (o.graph("then_branch")?, o.graph("else_branch")?);
    let branch = |name: &str| {
        node.attributes.iter().find_map(|a| match &a.value {
            super::AttrValue::Graph(g) if a.name == name => Some(&**g),
            _ => None,
        })
    };
    let (Some(then), Some(other)) = (branch("then_branch"), branch("else_branch")) else {
        return o.fail("a branch is missing");
    };
    if let Some(known) = o.cx.host(&cond)? {
        let taken = if known.data.first().is_some_and(|&b| b != 0) { then } else { other };
        return run(o, taken, BTreeMap::new());
    }
    let a = run(o, then, BTreeMap::new())?;
    let b = run(o, other, BTreeMap::new())?;
    let cond = o.cx.reshape(&cond, &[])?;
    if a.len() != b.len() {
        return o.fail("the branches differ in outputs");
    }
    let mut out = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(&b) {
        if a.shape() != b.shape() || a.dtype() != b.dtype() {
            return o.fail(format!(
                "the condition depends on the data, and the branches give {} {:?} and {} {:?}",
                a.dtype(),
                a.shape(),
                b.dtype(),
                b.shape()
            ));
        }
        out.push(o.cx.select(&cond, a, b)?);
    }
    Ok(out)
}

/// Unrolls a loop whose trip count and condition are known.
fn loop_(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let node = o.node;
    let body = node.attributes.iter().find_map(|a| match &a.value {
        super::AttrValue::Graph(g) if a.name == "body" => Some(&**g),
        _ => None,
    });
    let Some(body) = body else { return o.fail("the body is missing") };
    let trips = o.known_ints_opt(0)?.and_then(|t| t.first().copied()).unwrap_or(i64::MAX);
    let mut go = o.known_ints_opt(1)?.and_then(|c| c.first().copied()).unwrap_or(1) != 0;
    let mut state = (2..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    let n = state.len();
    if body.inputs.len() != n + 2 || body.outputs.len() < n + 1 {
        return o.fail("the body's inputs and outputs do not fit");
    }
    let mut scans: Vec<Vec<Value>> = vec![Vec::new(); body.outputs.len() - n - 1];
    let mut i = 0;
    while go && i < trips {
        o.cx.step()?;
        let turn = Value::known(HostTensor::from_i64(vec![], &[i])?);
        let yes = o.cx.full(DType::Bool, &[], Scalar::Int(1))?;
        let values = body.inputs.iter().map(|i| i.name.clone()).zip([turn, yes].into_iter().chain(state)).collect();
        let mut out = run(o, body, values)?;
        let rest = out.split_off(1);
        let Some(cond) = o.cx.host(&out[0])? else {
            return o.fail("the loop's condition depends on the data");
        };
        go = cond.data.first().is_some_and(|&b| b != 0);
        let (next, found) = rest.split_at(n);
        for (list, v) in scans.iter_mut().zip(found) {
            let shape = [&[1], v.shape()].concat();
            list.push(o.cx.reshape(v, &shape)?);
        }
        state = next.to_vec();
        i += 1;
    }
    for list in scans {
        if list.is_empty() {
            return o.lacks("a scan output of no turns");
        }
        state.push(o.cx.concat(&list, 0)?);
    }
    Ok(state)
}

/// Unrolls a scan: one turn for each slice of its inputs.
fn scan(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let node = o.node;
    let body = node.attributes.iter().find_map(|a| match &a.value {
        super::AttrValue::Graph(g) if a.name == "body" => Some(&**g),
        _ => None,
    });
    let Some(body) = body else { return o.fail("the body is missing") };
    // operator set 8 has a batch axis and lengths
    if o.opset < 9 {
        return scan_batches(o, body);
    }
    let args = (0..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    scan_once(o, body, args)
}

/// Each batch on its own, then stacked.
fn scan_batches(o: &mut Op<'_, '_>, body: &GraphProto) -> Result<Vec<Value>> {
    if o.opt(0).is_some() {
        return o.lacks("sequence lengths");
    }
    let args = (1..o.args.len()).map(|i| o.arg(i)).collect::<Result<Vec<_>>>()?;
    let batch = args.first().and_then(|a| a.shape().first().copied()).unwrap_or(0);
    if batch == 0 || args.iter().any(|a| a.shape().first() != Some(&batch)) {
        return o.fail("the inputs differ in batches");
    }
    let mut out: Vec<Vec<Value>> = Vec::new();
    for b in 0..batch {
        let one =
            args.iter().map(|a| o.cx.reshape(&o.cx.narrow(a, 0, b, 1)?, &a.shape()[1..])).collect::<Result<_>>()?;
        for (i, v) in scan_once(o, body, one)?.into_iter().enumerate() {
            let wide = o.cx.reshape(&v, &[&[1], v.shape()].concat())?;
            if b == 0 {
                out.push(Vec::new());
            }
            out[i].push(wide);
        }
    }
    out.iter().map(|parts| o.cx.concat(parts, 0)).collect()
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
    let turns = inputs[0].shape()[axes[0]];
    if inputs.iter().zip(&axes).any(|(v, &a)| v.shape()[a] != turns) {
        return o.fail("the scanned inputs differ in length");
    }
    let mut found: Vec<Vec<Value>> = vec![Vec::new(); results];
    for i in 0..turns {
        o.cx.step()?;
        let mut values = args;
        for ((v, &a), &back) in inputs.iter().zip(&axes).zip(&in_back) {
            let mut shape = v.shape().to_vec();
            shape.remove(a);
            let at = if back != 0 { turns - 1 - i } else { i };
            values.push(o.cx.reshape(&o.cx.narrow(v, a, at, 1)?, &shape)?);
        }
        let named = body.inputs.iter().map(|i| i.name.clone()).zip(values).collect();
        let mut out = run(o, body, named)?;
        for (list, v) in found.iter_mut().zip(out.split_off(states)) {
            list.push(v);
        }
        args = out;
    }
    for (mut list, (&axis, &back)) in found.into_iter().zip(out_axes.iter().zip(&out_back)) {
        let Some(first) = list.first() else { return o.lacks("a scan output of no turns") };
        let axis = o.axis(axis, first.rank() + 1)?;
        if back != 0 {
            list.reverse();
        }
        let wide = |v: &Value| {
            let mut shape = v.shape().to_vec();
            shape.insert(axis, 1);
            o.cx.reshape(v, &shape)
        };
        let parts = list.iter().map(wide).collect::<Result<Vec<_>>>()?;
        args.push(o.cx.concat(&parts, axis)?);
    }
    Ok(args)
}
