//! `gradloom bench`. Timed runs have their inputs and outputs on the device; `io_ms` includes copying both.

use super::json::Json;
use super::style::{self, Styled};
use super::{Cache, Failure, Job, Outcome, Progress, files};
use gradloom::OnnxModel;
use gradloom::io::onnx::Inputs;
use gradloom::io::{HostTensor, npz};
use gradloom::model::read_file;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bounds of the number of timed runs without `--runs`; between them the time decides.
const LEAST_RUNS: usize = 5;
const MOST_RUNS: usize = 300;

/// What `gradloom bench` takes beside the job.
#[derive(clap::Args)]
pub(crate) struct Timing {
    /// Number of timed runs (default: as many as fit into --seconds, 5 to 300)
    #[arg(long)]
    runs: Option<usize>,
    /// Time budget of the timed runs in seconds
    #[arg(long, default_value_t = 1.2)]
    seconds: f64,
    /// Number of untimed warm-up runs
    #[arg(long, default_value_t = 2)]
    warmup: usize,
    /// Expected outputs (.npz); `relerr` is the largest difference, relative to the largest expected value of the output
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Measure each kernel and list them on stderr, slowest first
    #[arg(long)]
    profile: bool,
}

pub(crate) fn bench(job: &Job, how: &Timing, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let start = Instant::now();
    let mut model = job.open(cache, progress)?;
    let load = ms(start);
    let hosts = files::inputs_or_zeros(&job.given, model.model(), progress)?;
    let hosts = files::borrowed(&hosts);
    let start = Instant::now();
    let outputs = model.run(&hosts)?;
    let first = ms(start);
    let compile = model.compile_time().as_secs_f64() * 1e3;
    let cold = model.counters();
    let origin = match (cold.programs, cold.cache_hits) {
        (0, 1..) => "everything from the cache".to_string(),
        (n, hits) => format!("{n} kernels compiled, {hits} entries from the cache"),
    };
    progress.say(format_args!("first run: {first:.1} ms, of which {compile:.1} ms compilation ({origin})"));
    let relerr = how.expect.as_deref().map(|path| difference(&outputs, path)).transpose()?;
    drop(outputs);
    let mut io = Vec::new();
    for _ in 0..2 {
        let start = Instant::now();
        model.run(&hosts)?;
        io.push(ms(start));
    }
    let inputs = model.inputs(&hosts)?;
    for _ in 0..how.warmup {
        model.run_on(&inputs)?;
        model.collect();
    }
    let (mut times, mut cpu) = (Vec::new(), None::<f64>);
    let begin = Instant::now();
    loop {
        let enough = match how.runs {
            Some(n) => times.len() >= n.max(1),
            None => {
                times.len() >= LEAST_RUNS && (times.len() >= MOST_RUNS || begin.elapsed().as_secs_f64() > how.seconds)
            }
        };
        if enough {
            break;
        }
        let (busy, start) = (cpu_ms(), Instant::now());
        let outputs = model.run_on(&inputs)?;
        times.push(ms(start));
        if let (Some(a), Some(b)) = (busy, cpu_ms()) {
            cpu = Some(cpu.map_or(b - a, |c| c.min(b - a)));
        }
        drop(outputs);
        model.collect();
    }
    if how.profile {
        profile(&mut model, &inputs)?;
    }
    times.sort_by(f64::total_cmp);
    io.sort_by(f64::total_cmp);
    let plan = model.plan(&hosts)?.unwrap_or_default();
    let engine = model.engine();
    let flops: u64 = plan.calls.iter().map(|c| engine.program(c.program).map_or(0, |p| p.flops)).sum();
    let bytes: u64 = plan.calls.iter().map(|c| engine.program(c.program).map_or(0, |p| p.bytes)).sum();
    let target = model.engine().device().target().clone();
    Ok(Json::from(vec![
        ("peer", Json::text(format_args!("gradloom {}", target.name))),
        ("model", Json::text(job.model.file_stem().unwrap_or_default().display())),
        ("device", Json::text(&target.name)),
        ("threads", Json::count(target.limits.threads)),
        ("load_ms", Json::Num(load, 3)),
        ("compile_ms", Json::Num(compile, 3)),
        ("first_run_ms", Json::Num(first, 3)),
        ("p50_ms", Json::Num(times[times.len() / 2], 4)),
        ("min_ms", Json::Num(times[0], 4)),
        // The same values under the names that other benchmark runners use
        ("ms_min", Json::Num(times[0], 4)),
        ("ms_med", Json::Num(times[times.len() / 2], 4)),
        ("first_ms", Json::Num(first, 3)),
        ("cpu_ms", cpu.map_or(Json::Null, |c| Json::Num(c, 4))),
        ("io_ms", Json::Num(io[0], 3)),
        ("runs", Json::count(times.len())),
        ("relerr", relerr.map_or(Json::Null, |e| Json::Num(e, 9))),
        ("kernels", Json::count(plan.calls.len())),
        ("gflops", Json::Num(flops as f64 / times[0] / 1e6, 3)),
        ("gbytes_s", Json::Num(bytes as f64 / times[0] / 1e6, 3)),
        ("bytes", Json::count(model.counters().bytes)),
        ("peak_bytes", Json::count(model.counters().peak_bytes)),
        ("arena_bytes", Json::count(plan.arenas.iter().sum())),
        ("arena_bound_bytes", Json::count(plan.arena_bound)),
        ("compiled", Json::count(cold.programs as usize)),
        ("cache_hits", Json::count(cold.cache_hits as usize)),
        ("cache_misses", Json::count(cold.cache_misses as usize)),
        ("fallbacks", Json::count(cold.fallbacks as usize)),
    ]))
}

/// Prints a line for each program of the plan: share of the time, milliseconds of all its launches, number
/// of launches, rates, name.
fn profile(model: &mut OnnxModel, inputs: &Inputs) -> Outcome<()> {
    let Some((plan, times)) = model.profile(inputs, 5)? else { return Ok(()) };
    let mut rows: Vec<(u128, f64, usize)> = Vec::new();
    for (call, t) in plan.calls.iter().zip(&times) {
        match rows.iter_mut().find(|r| r.0 == call.program) {
            Some(r) => (r.1, r.2) = (r.1 + t, r.2 + 1),
            None => rows.push((call.program, *t, 1)),
        }
    }
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = times.iter().sum();
    anstream::eprintln!("{}", Styled(style::TITLE, "share       ms  launches  GFLOP/s     GB/s  kernel"));
    for (key, t, n) in rows {
        let Some(p) = model.engine().program(key) else { continue };
        let rate = |work: u64| work as f64 * n as f64 / t / 1e9;
        let (flops, bytes) = (rate(p.flops), rate(p.bytes));
        let (share, ms) = (t / all * 100.0, t * 1e3);
        let name = Styled(style::NAME, &p.source.name);
        anstream::eprintln!("{share:4.1}% {ms:8.3} {n:9} {flops:8.1} {bytes:8.1}  {name}");
    }
    Ok(())
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The processor time of all threads so far in milliseconds, if the system tells: unlike wall time it does not include
/// waiting for a busy core.
#[cfg(unix)]
fn cpu_ms() -> Option<f64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `t` alone
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    (status == 0).then(|| t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6)
}

#[cfg(windows)]
fn cpu_ms() -> Option<f64> {
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the call writes to these four alone
    let status = unsafe { GetProcessTimes(GetCurrentProcess(), created, ended, kernel, user) };
    // In units of 100 ns
    let ticks = |t: &FILETIME| u64::from(t.dwHighDateTime) << 32 | u64::from(t.dwLowDateTime);
    (status != 0).then(|| (ticks(&times[2]) + ticks(&times[3])) as f64 / 1e4)
}

#[cfg(not(any(unix, windows)))]
fn cpu_ms() -> Option<f64> {
    None
}

/// The largest difference over all outputs, each relative to the largest expected value of that output. Infinite if a
/// difference is NaN.
fn difference(outputs: &[(String, HostTensor)], path: &Path) -> Outcome<f64> {
    let wanted = npz::read(&read_file(path)?).map_err(|e| Failure(format!("{}: {e}", path.display())))?;
    let mut worst = 0.0f64;
    for (name, want) in &wanted {
        let Some((_, got)) = outputs.iter().find(|(n, _)| n == name) else {
            return Err(Failure(format!("the model has no output `{name}`")));
        };
        let (got, want) = (got.to_f64(), want.to_f64());
        if got.len() != want.len() {
            return Err(Failure(format!("output `{name}` has {} elements, {} are wanted", got.len(), want.len())));
        }
        let scale = want.iter().fold(0.0f64, |m, v| m.max(v.abs())) + 1e-9;
        for (g, w) in got.iter().zip(&want) {
            let d = (g - w).abs() / scale;
            worst = if d.is_nan() { f64::INFINITY } else { worst.max(d) };
        }
    }
    Ok(worst)
}
