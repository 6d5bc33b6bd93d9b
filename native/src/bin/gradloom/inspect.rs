//! `gradloom inspect` and `gradloom devices`.

use super::json::Json;
use super::{Outcome, inspect};
use gradloom::io::onnx::{Port, show_dims};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn inspect(path: &Path) -> Outcome<Json> {
    let m = gradloom::model::parse(path)?;
    let mut ops: BTreeMap<String, usize> = BTreeMap::new();
    for n in m.nodes() {
        let name = if n.domain.is_empty() { n.op_type.clone() } else { format!("{}.{}", n.domain, n.op_type) };
        *ops.entry(name).or_default() += 1;
    }
    let ops = ops.into_iter().map(|(k, n)| Json::from(vec![("op", Json::Text(k)), ("nodes", Json::count(n))]));
    Ok(Json::from(vec![
        ("model", Json::text(path.display())),
        ("producer", Json::text(m.producer())),
        ("opset", Json::Int(m.opset())),
        ("parameters", Json::Int(m.parameters() as i64)),
        ("inputs", Json::List(m.inputs().iter().map(inspect::port).collect())),
        ("outputs", Json::List(m.outputs().iter().map(inspect::port).collect())),
        ("ops", Json::List(ops.collect())),
    ]))
}

fn port(p: &Port) -> Json {
    Json::from(vec![
        ("name", Json::text(&p.name)),
        ("dtype", p.dtype.map_or(Json::Null, Json::text)),
        ("shape", p.dims.as_ref().map_or(Json::Null, |d| Json::Text(show_dims(d)))),
    ])
}

pub(crate) fn devices() -> Json {
    let rows = gradloom::devices::available().into_iter().map(|(name, what, open)| {
        Json::from(vec![
            ("name", Json::text(name)),
            ("available", Json::Bool(open.is_ok())),
            ("what", Json::text(what)),
            ("why_not", open.err().map_or(Json::Null, Json::text)),
        ])
    });
    Json::List(rows.collect())
}
