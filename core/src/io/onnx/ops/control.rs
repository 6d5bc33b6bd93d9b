//! If and Loop.

use std::collections::BTreeMap;

use super::super::build::run_graph;
use super::super::proto::GraphProto;
use super::super::value::Value;
use super::{Op, OpDef, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;

pub(super) static OPS: &[OpDef] = &[op("If", 0, if_), op("Loop", 3, loop_)];

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
