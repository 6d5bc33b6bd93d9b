//! `gradloom run`: runs a model on inputs from files, and optionally compares the values of all nodes with
//! those of another device.

use super::json::Json;
use super::{Cache, Job, Outcome, Progress, files};
use gradloom::io::HostTensor;
use gradloom::io::onnx::{Drift, Model};
use gradloom::{NativeHost, OnnxModel};
use std::path::Path;
use std::time::Instant;

/// The number of values shown of an output that is not written to a file.
const SHOWN: usize = 8;

/// The device to compare with, and the tolerance.
pub(crate) struct Reference<'a> {
    pub(crate) device: &'a str,
    pub(crate) tolerance: f64,
}

pub(crate) fn run(
    job: &Job,
    outputs: Option<&Path>,
    compare: Option<Reference<'_>>,
    cache: &Cache,
    progress: Progress,
) -> Outcome<Json> {
    let mut model = job.open(cache, progress)?;
    let inputs = files::inputs(&job.given, model.model())?;
    let start = Instant::now();
    let out = model.run(&files::borrowed(&inputs))?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let (compile, c) = (model.compile_time().as_secs_f64() * 1e3, model.counters());
    progress.say(format_args!("compiled in {compile:.1} ms, {} kernel launches, {ms:.1} ms in total", c.launches));
    if let Some(path) = outputs {
        let (texts, numbers): (Vec<_>, Vec<_>) =
            out.iter().cloned().partition(|(name, _)| is_text(model.model(), name));
        files::write(path, &numbers)?;
        for (name, _) in texts {
            progress
                .say(format_args!("output `{name}` holds strings, which .npz cannot store: printed in full instead"));
        }
        progress.say(format_args!("wrote {}", path.display()));
    }
    let list =
        out.iter().map(|(name, t)| describe(model.model(), name, t, outputs.is_some())).collect::<Outcome<_>>()?;
    let mut fields = vec![
        ("device", Json::text(&model.engine().device().target().name)),
        ("compile_ms", Json::Num(compile, 3)),
        ("total_ms", Json::Num(ms, 3)),
        ("outputs", Json::List(list)),
    ];
    if let Some(reference) = compare {
        fields.extend(against(job, &reference, model.model(), &inputs, &out, progress)?);
    }
    Ok(Json::from(fields))
}

/// Compares the outputs, and the values of all nodes, with those of another device. Nodes run one at a time here, so an
/// error that occurs only where several nodes are one kernel shows in the outputs alone.
fn against(
    job: &Job,
    reference: &Reference<'_>,
    model: &Model,
    inputs: &[(String, HostTensor)],
    out: &[(String, HostTensor)],
    progress: Progress,
) -> Outcome<Vec<(&'static str, Json)>> {
    let values = |device: &str, threads| -> Outcome<Vec<(String, HostTensor)>> {
        progress.say(format_args!("computing all values on {device}"));
        let device = gradloom::open(device, threads)?;
        let mut every = OnnxModel::with_host(model.with_every_value(), device, NativeHost::without_cache());
        Ok(every.run(&files::borrowed(inputs))?)
    };
    let want = values(reference.device, 1)?;
    let whole = model.drifts(out, &want, reference.tolerance);
    let nodes = model.drifts(&values(&job.device, job.threads)?, &want, reference.tolerance);
    let first = nodes.iter().find(|d| d.drifts);
    let worst = nodes.iter().max_by(|a, b| a.max_abs.total_cmp(&b.max_abs));
    let verdict = match (first, whole.iter().any(|d| d.drifts)) {
        (Some(d), _) => format!("{} is the first to drift", d.node.as_deref().unwrap_or(&d.value)),
        (None, true) => "outputs drift, but no node that runs alone".to_string(),
        (None, false) => format!("all {} values agree", nodes.len()),
    };
    Ok(vec![
        ("compared_with", Json::text(reference.device)),
        ("verdict", Json::Text(verdict)),
        ("first_drift", first.map_or(Json::Null, drift)),
        ("worst", worst.map_or(Json::Null, drift)),
        ("output_errors", Json::List(whole.iter().map(drift).collect())),
    ])
}

fn drift(d: &Drift) -> Json {
    let (at, got, want) = d.at;
    let number = |v: f64| if v.is_finite() { Json::Text(format!("{v:.6e}")) } else { Json::text(v) };
    Json::from(vec![
        ("value", Json::text(&d.value)),
        ("node", d.node.as_ref().map_or(Json::Null, Json::text)),
        ("max_abs", number(d.max_abs)),
        ("max_rel", number(d.max_rel)),
        ("at", Json::count(at)),
        ("got", number(got)),
        ("want", number(want)),
    ])
}

/// Does the output, or the sequence of which it is an element (`name[0]`), consist of strings?
fn is_text(model: &Model, name: &str) -> bool {
    let whole = name.split_once('[').map_or(name, |(whole, _)| whole);
    model.outputs().iter().any(|p| (p.name == name || p.name == whole) && p.is_string())
}

/// Describes an output briefly; strings in full if `whole`.
fn describe(model: &Model, name: &str, t: &HostTensor, whole: bool) -> Outcome<Json> {
    let shape = t.shape.iter().map(|&n| Json::count(n)).collect();
    let (dtype, first) = if is_text(model, name) {
        let shown = if whole { usize::MAX } else { SHOWN };
        (Json::text("string"), model.texts(t)?.iter().take(shown).map(Json::text).collect())
    } else {
        (Json::text(t.dtype), t.to_f64().into_iter().take(SHOWN).map(|v| Json::Num(v, 6)).collect())
    };
    Ok(Json::from(vec![
        ("name", Json::text(name)),
        ("dtype", dtype),
        ("shape", Json::List(shape)),
        ("first", Json::List(first)),
    ]))
}
