//! Tuning on the machine at hand: drives the core's search with a clock and a device, and lets the engine adopt what is
//! faster. Every candidate runs once on random data and is compared with the program without opts before it counts.

use gradloom_core::DType;
use gradloom_core::device::{Device, KernelId, Step, View};
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::search::Search;
use gradloom_core::engine::{Compiled, Engine};
use gradloom_core::{Error, Result};
use std::time::{Duration, Instant};

/// A candidate runs so often at least, and so long in all, unless it is clearly slower.
const LEAST_RUNS: usize = 3;
const RUN_TIME: Duration = Duration::from_millis(4);
/// Faster by less than this is noise.
const GAIN: f64 = 0.97;

/// What came of one kernel.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The kernel's key.
    pub key: u128,
    /// The name of the best program.
    pub name: String,
    /// Calls in a run.
    pub calls: usize,
    /// Seconds with the heuristic's opts.
    pub before: f64,
    /// Seconds with the best.
    pub after: f64,
    /// Candidates timed, and how many of them gave wrong results.
    pub trials: usize,
    /// Candidates whose results differed from the unoptimised program's.
    pub wrong: usize,
}

/// Tunes kernels of an engine that keeps them, each given with its number of calls, within a wall budget: the longer a
/// kernel takes in all, the more of it. Reports each as it is done.
pub fn tune(
    engine: &mut Engine,
    kernels: &[(u128, usize)],
    budget: Duration,
    mut report: impl FnMut(&Tuned),
) -> Result<Vec<Tuned>> {
    let end = Instant::now() + budget;
    let mut shares = Vec::new();
    for &(key, calls) in kernels {
        let Some(compiled) = engine.program(key).cloned() else { continue };
        let bench = Bench::new(engine.device(), &compiled)?;
        let seconds = bench.time(engine.device(), &compiled, f64::INFINITY);
        bench.free(engine.device());
        shares.push((seconds? * calls as f64, key, calls));
    }
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left: f64 = shares.iter().map(|s| s.0).sum();
    let mut out = Vec::new();
    for (share, key, calls) in shares {
        let now = Instant::now();
        if now >= end && !out.is_empty() {
            break;
        }
        let stop =
            now + end.saturating_duration_since(now).mul_f64((share / left.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0));
        left -= share;
        if let Some(done) = one(engine, key, calls, stop)? {
            report(&done);
            out.push(done);
        }
    }
    Ok(out)
}

/// Tunes one kernel until a point in time.
fn one(engine: &mut Engine, key: u128, calls: usize, stop: Instant) -> Result<Option<Tuned>> {
    let Some(ast) = engine.kernel(key).cloned() else { return Ok(None) };
    let target = engine.device().target().clone();
    let mut search = Search::new(&ast, &target)?;
    let reference = search.reference()?;
    let bench = Bench::new(engine.device(), &reference)?;
    let wanted = bench.results(engine.device(), &reference)?;
    let mut best: Option<(f64, Compiled)> = None;
    let mut wrong = 0;
    while Instant::now() < stop || search.trials() == 0 {
        let Some(trial) = search.ask() else { break };
        let limit = best.as_ref().map_or(f64::INFINITY, |b| b.0);
        let dev = engine.device();
        let seconds = match bench.results(dev, &trial.compiled) {
            Ok(got) if bench.agree(&wanted, &got) => bench.time(dev, &trial.compiled, limit).ok(),
            Ok(_) => {
                wrong += 1;
                None
            }
            Err(_) => None,
        };
        if seconds.is_some_and(|s| s < limit) {
            best = seconds.map(|s| (s, trial.compiled));
        }
        search.tell(seconds);
    }
    // noise favours the last of many: the two that matter are timed again, in turn
    let mut result = None;
    if let (Some((after, compiled)), Some(before)) = (best, search.heuristic()) {
        let opts = search.best().map(|b| b.0.to_vec()).unwrap_or_default();
        let (mut before, mut after) = (before, after);
        let mut name = compiled.source.name.clone();
        if after < before * GAIN {
            let first = gradloom_core::engine::plan::compile(&ast, &target, None)?;
            (before, after) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..3 {
                before = before.min(bench.time(engine.device(), &first, f64::INFINITY)?);
                after = after.min(bench.time(engine.device(), &compiled, f64::INFINITY)?);
            }
            if after < before * GAIN {
                engine.adopt(key, &opts, compiled)?;
            } else {
                name = first.source.name.clone();
                after = before;
            }
        } else {
            after = before;
        }
        result = Some(Tuned { key, name, calls, before, after, trials: search.trials(), wrong });
    }
    bench.free(engine.device());
    Ok(result)
}

/// Buffers for one kernel, with the same data for every candidate.
struct Bench {
    args: Vec<View>,
    types: Vec<(DType, bool)>,
    data: Vec<Vec<u8>>,
    vars: usize,
}

impl Bench {
    fn new(dev: &mut dyn Device, c: &Compiled) -> Result<Bench> {
        let mut b = Bench { args: Vec::new(), types: Vec::new(), data: Vec::new(), vars: c.vars.len() };
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        for p in &c.source.params {
            let bytes = p.len * p.dtype.size();
            let buf = match dev.alloc(bytes.max(4)) {
                Ok(buf) => buf,
                Err(e) => {
                    b.free(dev);
                    return Err(e);
                }
            };
            b.args.push(View { buf, offset: 0, bytes });
            b.types.push((p.dtype, p.written));
            b.data.push(random(p.dtype, p.len, &mut seed));
        }
        for (view, data) in b.args.iter().zip(&b.data) {
            dev.upload(view.buf, 0, data)?;
        }
        Ok(b)
    }

    fn free(&self, dev: &mut dyn Device) {
        self.args.iter().for_each(|a| dev.free(a.buf));
    }

    fn step(&self, kernel: KernelId, c: &Compiled) -> Step {
        Step::Launch { kernel, args: self.args.clone(), grid: c.grid, vars: vec![1; self.vars] }
    }

    fn compile(&self, dev: &mut dyn Device, c: &Compiled) -> Result<KernelId> {
        if c.source.params.len() != self.args.len() {
            return Err(Error::Internal("a candidate has other parameters".into()));
        }
        let ids = dev.compile(std::slice::from_ref(&c.source))?;
        while !dev.ready()? {
            std::thread::yield_now();
        }
        ids.first().copied().ok_or_else(|| Error::Internal("one source, one kernel".into()))
    }

    /// What a program writes, starting from the same data each time.
    fn results(&self, dev: &mut dyn Device, c: &Compiled) -> Result<Vec<Vec<u8>>> {
        let kernel = self.compile(dev, c)?;
        let written = || self.args.iter().zip(&self.types).enumerate().filter(|(_, (_, t))| t.1);
        let mut run = || -> Result<Vec<Vec<u8>>> {
            for (i, (view, _)) in written() {
                dev.upload(view.buf, 0, &self.data[i])?;
            }
            dev.submit(&[self.step(kernel, c)])?;
            let mut out = Vec::new();
            for (_, (view, _)) in written() {
                let ticket = dev.read(*view)?;
                dev.sync()?;
                out.push(loop {
                    if let Some(bytes) = dev.poll(ticket)? {
                        break bytes;
                    }
                });
            }
            Ok(out)
        };
        let out = run();
        dev.release(kernel);
        out
    }

    /// The least seconds of some runs; of few if it is far above `limit`.
    fn time(&self, dev: &mut dyn Device, c: &Compiled, limit: f64) -> Result<f64> {
        let kernel = self.compile(dev, c)?;
        let step = self.step(kernel, c);
        let begin = Instant::now();
        let mut best = f64::INFINITY;
        let mut runs = 0;
        let mut failed = None;
        while runs < LEAST_RUNS || begin.elapsed() < RUN_TIME {
            let start = Instant::now();
            if let Err(e) = dev.submit(std::slice::from_ref(&step)).and_then(|()| dev.sync()) {
                failed = Some(e);
                break;
            }
            best = best.min(start.elapsed().as_secs_f64());
            runs += 1;
            let slow = best > limit * 2.0 || limit.is_infinite() && begin.elapsed() > RUN_TIME * 5;
            if slow && (runs > 1 || best > RUN_TIME.as_secs_f64()) {
                break;
            }
        }
        dev.release(kernel);
        failed.map_or(Ok(best), Err)
    }

    /// Are results the same, up to the order of sums?
    fn agree(&self, want: &[Vec<u8>], got: &[Vec<u8>]) -> bool {
        let types = self.types.iter().filter(|t| t.1).map(|t| t.0);
        types.zip(want.iter().zip(got)).all(|(dtype, (want, got))| same(dtype, want, got))
    }
}

fn same(dtype: DType, want: &[u8], got: &[u8]) -> bool {
    if !dtype.is_float() {
        return want == got;
    }
    let tolerance = match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        _ => 2e-2,
    };
    let value = |b: &[u8], i: usize| Scalar::read(dtype, &b[i * dtype.size()..]).as_f64();
    let n = want.len() / dtype.size();
    let scale = (0..n).map(|i| value(want, i).abs()).filter(|v| v.is_finite()).fold(0.0, f64::max).max(1e-30);
    want.len() == got.len()
        && (0..n).all(|i| {
            let (a, b) = (value(want, i), value(got, i));
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * scale
        })
}

/// Numbers of modest size: floats within 1, whole numbers below 4.
fn random(dtype: DType, len: usize, seed: &mut u64) -> Vec<u8> {
    let mut out = vec![0; len * dtype.size()];
    for bytes in out.chunks_exact_mut(dtype.size()) {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let bits = *seed >> 40;
        let value = match dtype {
            DType::Bool => Scalar::Int((bits & 1) as i64),
            d if d.is_float() => Scalar::float(bits as f64 / (1 << 23) as f64 - 1.0),
            _ => Scalar::Int((bits & 3) as i64),
        };
        value.write(dtype, bytes);
    }
    out
}
