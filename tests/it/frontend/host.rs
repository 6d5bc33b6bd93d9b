//! Evaluation on the host by the reference interpreter, and the numbers that the fixtures are made of.

use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Bytes, Engine, RootId};
use gradloom_core::uop::eval::eval_graph;
use gradloom_core::uop::{Op, UOp};
use gradloom_core::{DType, Result, Tensor};
use gradloom_tests::nodes::MakeNodes;
pub(crate) use gradloom_tests::opinfo::{Got as Value, data, tensor};

/// The tensors' values. All belong to one session; launch variables are 3.
pub(crate) fn eval(tensors: &[&Tensor]) -> Vec<Value> {
    let Some(first) = tensors.first() else { return Vec::new() };
    let s = first.session().state();
    let roots: Vec<UOp> = tensors.iter().map(|t| s.node(t.root())).collect();
    let mut bytes = |id: u32| {
        let b = s.buffer(id)?;
        Some(b.host.as_ref().map_or_else(|| vec![0; b.len * b.dtype.size()], |h| h.to_vec()))
    };
    let out = eval_graph(&s.graph, &roots, &mut bytes, &|_| Some(Scalar::Int(3))).expect("a checked graph evaluates");
    let read = |dt: DType, data: &[u8]| -> Vec<f64> {
        data.chunks_exact(dt.size()).map(|c| Scalar::read(dt, c).as_f64_of(dt)).collect()
    };
    out.values
        .into_iter()
        .map(|v| Value { dtype: v.dtype, shape: v.shape.to_vec(), values: read(v.dtype, &v.data) })
        .collect()
}

/// The tensors' values by way of an engine: scheduled, compiled and run on its device.
pub(crate) fn eval_on(engine: &mut Engine, tensors: &[&Tensor]) -> Result<Vec<Value>> {
    let Some(first) = tensors.first() else { return Ok(Vec::new()) };
    let mut s = first.session().state();
    let roots: Vec<RootId> = tensors.iter().map(|t| t.root()).collect();
    engine.set_var("n", Scalar::Int(3));
    let pending = engine.start(&mut s, &roots)?;
    while !engine.ready()? {}
    engine.finish(&mut s, pending)?;
    let mut out = Vec::new();
    for &root in &roots {
        let shape = s.graph.shape(s.node(root)).to_vec();
        let (ticket, dtype, len) = engine.read(&mut s, root)?;
        let bytes = loop {
            if let Some(bytes) = engine.poll(ticket, dtype)? {
                break bytes;
            }
        };
        let values: Vec<f64> =
            bytes.chunks_exact(dtype.size()).map(|c| Scalar::read(dtype, c).as_f64_of(dtype)).collect();
        assert_eq!(values.len(), len);
        out.push(Value { dtype, shape, values });
    }
    Ok(out)
}

/// Runs the tensors as an engine does: computes them with every other live value that reads what they overwrite, keeps
/// the results in buffers, and lets all live values use those.
pub(crate) fn realize(tensors: &[&Tensor]) {
    let Some(first) = tensors.first() else { return };
    let mut s = first.session().state();
    let mut nodes: Vec<UOp> = tensors.iter().map(|t| s.node(t.root())).collect();
    let stale: Vec<UOp> = s.readers_of_overwritten(&nodes).into_iter().map(|id| s.node(id)).collect();
    nodes.extend(stale);
    nodes.sort_unstable();
    nodes.dedup();
    let mut bytes = |id: u32| {
        let b = s.buffer(id)?;
        Some(b.host.as_ref().map_or_else(|| vec![0; b.len * b.dtype.size()], |h| h.to_vec()))
    };
    let out = eval_graph(&s.graph, &nodes, &mut bytes, &|_| Some(Scalar::Int(3))).expect("a checked graph evaluates");
    for (id, data) in out.writes {
        s.buffer_mut(id).expect("a stored buffer lives").host = Some(Bytes::new(data));
    }
    // every assign that ran is done
    let ran: Vec<UOp> = s.graph.value_nodes(&nodes).into_iter().filter(|&u| s.graph.op(u) == Op::After).collect();
    let mut map: Vec<(UOp, UOp)> = ran.into_iter().filter_map(|u| Some((u, s.buffer_below(u)?))).collect();
    for (u, v) in nodes.into_iter().zip(out.values) {
        if s.storage(u).is_none() {
            let len = s.graph.memory_len(u);
            let buffer = s.add_buffer(v.dtype, len, Some(Bytes::new(v.data)));
            let shape = s.graph.shape(u).clone();
            let node = s.graph.reshape(buffer, &shape);
            map.push((u, node));
        }
    }
    s.substitute(&map.into_iter().collect()).expect("values in the shapes of their nodes");
}
