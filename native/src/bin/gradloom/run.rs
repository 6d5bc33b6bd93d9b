//! `gradloom run`.

use super::json::Json;
use super::{Cache, Job, Outcome, Progress, files};
use gradloom::io::HostTensor;
use std::path::Path;
use std::time::Instant;

/// Values shown of an output that is not written to a file.
const SHOWN: usize = 8;

pub(crate) fn run(job: &Job, outputs: Option<&Path>, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let mut model = job.open(cache, progress)?;
    let inputs = files::inputs(job, model.model())?;
    let start = Instant::now();
    let out = model.run(&files::borrowed(&inputs))?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let (compile, c) = (model.compile_time().as_secs_f64() * 1e3, model.counters());
    progress.say(format_args!("compiled in {compile:.1} ms, {} kernel launches, {ms:.1} ms in all", c.launches));
    if let Some(path) = outputs {
        files::write(path, &out)?;
        progress.say(format_args!("wrote {}", path.display()));
    }
    let list = out.iter().map(|(name, t)| describe(name, t)).collect();
    Ok(Json::from(vec![
        ("device", Json::text(&model.engine().device().target().name)),
        ("compile_ms", Json::Num(compile, 3)),
        ("total_ms", Json::Num(ms, 3)),
        ("outputs", Json::List(list)),
    ]))
}

fn describe(name: &str, t: &HostTensor) -> Json {
    let shape = t.shape.iter().map(|&n| Json::count(n)).collect();
    let first = t.to_f64().into_iter().take(SHOWN).map(|v| Json::Num(v, 6)).collect();
    Json::from(vec![
        ("name", Json::text(name)),
        ("dtype", Json::text(t.dtype)),
        ("shape", Json::List(shape)),
        ("first", Json::List(first)),
    ])
}
