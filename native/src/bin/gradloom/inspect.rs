//! `gradloom inspect` reports what is supported of a model, `gradloom devices` describes the devices of this machine.

use super::json::Json;
use super::{Failure, Outcome, Progress};
use gradloom::DType;
use gradloom::choose::About;
use gradloom::io::onnx::{NodeReport, Port, State, show_dims};
use gradloom::model::DataFiles;
use gradloom::target::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Parses sizes of open dimensions, each given as NAME=SIZE.
pub(crate) fn sizes(args: &[String]) -> Outcome<BTreeMap<String, usize>> {
    let size = |arg: &String| {
        let size = arg.split_once('=').and_then(|(name, n)| Some((name.to_string(), n.parse().ok()?)));
        size.ok_or_else(|| Failure(format!("--size {arg}: expected NAME=SIZE")))
    };
    args.iter().map(size).collect()
}

pub(crate) fn inspect(path: &Path, sizes: &[String], every: bool, files: &DataFiles) -> Outcome<Json> {
    let known = self::sizes(sizes)?;
    let report = gradloom::model::inspect_with(path, files, &known)?;
    let open: BTreeSet<&str> = report.sizes.iter().map(|(_, dim, _)| dim.as_str()).collect();
    if let Some(name) = known.keys().find(|k| !open.contains(k.as_str())) {
        let names = open.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure(format!("--size {name}: no input has this symbolic dimension; there are: {names}")));
    }
    let m = &report.model;
    let refused = |n: &NodeReport| matches!(n.state, State::Refused(_));
    // By operator: the number of nodes, how many of them are refused, and the dtypes of outputs
    let mut ops: BTreeMap<&str, (usize, usize, BTreeSet<&str>)> = BTreeMap::new();
    for n in &report.nodes {
        let row = ops.entry(&n.op).or_default();
        row.0 += 1;
        row.1 += usize::from(refused(n));
        row.2.extend(n.outputs.iter().filter_map(|o| Some(o.1.as_ref()?.0.as_str())));
    }
    let ops = ops.into_iter().map(|(op, (nodes, refused, dtypes))| {
        Json::from(vec![
            ("op", Json::text(op)),
            ("nodes", Json::count(nodes)),
            ("refused", Json::count(refused)),
            ("dtypes", Json::Text(dtypes.into_iter().collect::<Vec<_>>().join(" "))),
        ])
    });
    let (mut why, mut unfit): (Vec<Json>, Vec<Json>) = (Vec::new(), Vec::new());
    for p in &report.problems {
        why.push(Json::from(vec![("node", Json::text("-")), ("why", Json::text(p))]));
    }
    for n in &report.nodes {
        let row = |text: &String| Json::from(vec![("node", Json::text(&n.node)), ("why", Json::text(text))]);
        match &n.state {
            State::Refused(text) => why.push(row(text)),
            State::Unfit(text) => unfit.push(row(text)),
            _ => {}
        }
    }
    let sizes = report.sizes.iter().map(|(i, d, n)| Json::Text(format!("{d} of {i} = {n}")));
    let mut fields = vec![
        ("model", Json::text(path.display())),
        ("producer", Json::text(m.producer())),
        ("opset", Json::Int(m.opset())),
        ("parameters", Json::Int(m.parameters() as i64)),
        ("supported", Json::Bool(report.is_supported())),
        ("sizes", Json::List(sizes.collect())),
        ("inputs", Json::List(m.inputs().iter().map(port).collect())),
        ("outputs", Json::List(m.outputs().iter().map(port).collect())),
        ("ops", Json::List(ops.collect())),
        ("refused", Json::List(why)),
    ];
    if !unfit.is_empty() {
        fields.push(("not_with_these_sizes", Json::List(unfit)));
    }
    if every {
        fields.push(("nodes", Json::List(report.nodes.iter().map(node).collect())));
    }
    Ok(Json::from(fields))
}

fn node(n: &NodeReport) -> Json {
    let state = match &n.state {
        State::Supported => "supported",
        State::AtRunTime => "supported, built at run time",
        State::Follows => "follows",
        State::Unfit(_) => "not with these sizes",
        State::Refused(_) => "refused",
    };
    let output = |(name, what): &(String, Option<(String, Vec<usize>)>)| match what {
        Some((dtype, shape)) => Json::Text(format!("{name}: {dtype} {shape:?}")),
        None => Json::text(name),
    };
    Json::from(vec![
        ("node", Json::text(&n.node)),
        ("state", Json::text(state)),
        ("outputs", Json::List(n.outputs.iter().map(output).collect())),
    ])
}

fn port(p: &Port) -> Json {
    let mut fields = vec![
        ("name", Json::text(&p.name)),
        ("dtype", if p.is_string() { Json::text("string") } else { p.dtype.map_or(Json::Null, Json::text) }),
        ("shape", p.dims.as_ref().map_or(Json::Null, |d| Json::Text(show_dims(d)))),
    ];
    for (is, name) in [(p.is_sequence, "sequence"), (p.is_optional, "optional")] {
        if is {
            fields.push((name, Json::Bool(true)));
        }
    }
    Json::from(fields)
}

/// Every device with what it reports and, if asked, its measured speed.
pub(crate) fn devices(measure: bool, progress: Progress) -> Json {
    let rows = gradloom::choose::rows().into_iter().map(|row| {
        let (about, why_not) = match row.open {
            Ok(about) => (Some(about), Json::Null),
            Err(why) => (None, Json::text(why)),
        };
        let of = |f: &dyn Fn(&About) -> Json| about.as_ref().map_or(Json::Null, f);
        let mut fields = vec![
            ("name", Json::text(&row.name)),
            ("available", Json::Bool(about.is_some())),
            ("driver", of(&|a| a.driver.as_ref().map_or(Json::Null, Json::text))),
            ("memory_bytes", of(&|a| a.memory_bytes.map_or(Json::Null, |n| Json::count(n as usize)))),
            ("limits", of(&|a| limits(&a.target))),
        ];
        if measure {
            let reached = |_: &About| {
                progress.say(format_args!("measuring {}", row.name));
                measured(&row.name)
            };
            fields.push(("measured", if row.name.starts_with("null") { Json::Null } else { of(&reached) }));
        }
        fields.push(("what", Json::text(&row.what)));
        fields.push(("notes", of(&|a| Json::List(a.notes.iter().map(Json::text).collect()))));
        fields.push(("why_not", why_not));
        Json::from(fields)
    });
    Json::List(rows.collect())
}

fn limits(t: &Target) -> Json {
    let number = Json::count;
    if !t.caps.has_local {
        return Json::from(vec![("threads", number(t.limits.threads)), ("vector_floats", number(t.caps.lanes))]);
    }
    Json::from(vec![
        ("buffer_bytes", number(t.limits.max_buffer_bytes)),
        ("buffers", number(t.limits.max_buffers)),
        ("workgroup_bytes", number(t.limits.workgroup_bytes)),
        ("workgroup_threads", number(t.limits.max_local_total as usize)),
        ("subgroup_threads", number(t.caps.subgroup as usize)),
        ("f16", Json::Bool(t.caps.f16_arrays || t.caps.arithmetic.has(DType::F16))),
        ("emulated", Json::Bool(t.machine.software)),
    ])
}

fn measured(name: &str) -> Json {
    match gradloom::choose::measure(name, 0) {
        Ok(m) => Json::from(vec![
            ("gflops_per_s", Json::Num(m.flops_per_s / 1e9, 2)),
            ("gbytes_per_s", Json::Num(m.bytes_per_s / 1e9, 2)),
        ]),
        Err(e) => Json::text(e),
    }
}
