//! `gradloom bench`.

use super::json::Json;
use super::{Job, Outcome, Progress, files};
use std::time::Instant;

pub(crate) fn bench(job: &Job, runs: usize, warmup: usize, progress: Progress) -> Outcome<Json> {
    let start = Instant::now();
    let mut model = job.open(progress)?;
    let load = start.elapsed().as_secs_f64() * 1e3;
    let inputs = files::inputs_or_zeros(job, model.model(), progress)?;
    let inputs = files::borrowed(&inputs);
    let start = Instant::now();
    model.run(&inputs)?;
    let first = start.elapsed().as_secs_f64() * 1e3;
    let compile = model.compile_time().as_secs_f64() * 1e3;
    progress.say(format_args!("first run {first:.1} ms, of it {compile:.1} ms to compile"));
    for _ in 0..warmup {
        model.run(&inputs)?;
    }
    let mut times = Vec::with_capacity(runs.max(1));
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        model.run(&inputs)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let p50 = times[times.len() / 2];
    let plan = model.plan(&inputs)?.unwrap_or_default();
    let engine = model.engine();
    let flops: u64 = plan.calls.iter().map(|c| engine.program(c.program).map_or(0, |p| p.flops)).sum();
    let target = model.engine().device().target().clone();
    Ok(Json::from(vec![
        ("model", Json::text(job.model.display())),
        ("device", Json::text(target.name)),
        ("threads", Json::count(target.threads)),
        ("load_ms", Json::Num(load, 3)),
        ("compile_ms", Json::Num(compile, 3)),
        ("first_run_ms", Json::Num(first, 3)),
        ("p50_ms", Json::Num(p50, 3)),
        ("min_ms", Json::Num(times[0], 3)),
        ("runs", Json::count(times.len())),
        ("kernels", Json::count(plan.calls.len())),
        ("gflops", Json::Num(flops as f64 / p50 / 1e6, 3)),
        ("peak_bytes", Json::count(model.counters().peak_bytes)),
    ]))
}
