//! Tunes kernels on this machine: drives the core's search with a clock and a device, and lets the engine adopt what is
//! faster. The clock is the device's own if it has one ([`seconds`]). Every candidate first runs once on random data,
//! and its results must agree with those of the unoptimised program.

use gradloom_core::Result;
use gradloom_core::codegen::Opt;
use gradloom_core::device::{Device, Step};
use gradloom_core::engine::search::Search;
use gradloom_core::engine::{Bench, Compiled, Engine, Trying};
use gradloom_core::schedule::Ast;
use std::time::{Duration, Instant};

/// A candidate is run at least this often, and for at least the time below, unless it is clearly slower.
const LEAST_RUNS: usize = 3;
const RUN_TIME: Duration = Duration::from_millis(4);
/// A candidate must take less than this share of the time; smaller gains are noise.
const GAIN: f64 = 0.97;

/// Shorter work is repeated within a submission that the device times, so that the host's launches do not count.
const SHORT_S: f64 = 2e-4;
/// The most repetitions in a submission.
const MOST_REPEATS: usize = 64;

/// The result for one kernel.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The kernel's key.
    pub key: u128,
    /// The name of the best program.
    pub name: String,
    /// The opts of the best program; the heuristic's if none is faster.
    pub opts: Vec<Opt>,
    /// The opts as a line for [`Engine::add_tuned`].
    pub line: String,
    /// The number of calls of the kernel in a run.
    pub calls: usize,
    /// Seconds per call with the heuristic's opts.
    pub before: f64,
    /// Seconds per call with the best opts.
    pub after: f64,
    /// The number of candidates that were tried.
    pub trials: usize,
    /// Candidates whose results differed from the unoptimised program's.
    pub wrong: usize,
}

impl Tuned {
    /// Was anything found that is faster than the heuristic's opts?
    pub fn gained(&self) -> bool {
        self.after < self.before
    }
}

/// Seconds, and whose clock measured them.
enum Took {
    ByDevice(f64),
    ByHost(f64),
}

/// Tunes kernels of an engine within a time budget; each kernel is given with its number of calls. A kernel gets a
/// share of the budget in proportion to the time that all its calls take. Calls `report` when a kernel is done.
pub fn tune(
    engine: &mut Engine,
    kernels: &[(u128, Ast, usize)],
    budget: Duration,
    mut report: impl FnMut(&Tuned),
) -> Result<Vec<Tuned>> {
    let end = Instant::now() + budget;
    let mut shares = Vec::new();
    for (key, ast, calls) in kernels {
        // Finding out which kernels matter must not use up the budget
        if Instant::now() + budget.mul_f64(0.7) > end && !shares.is_empty() {
            break;
        }
        let Some(compiled) = engine.program(*key).cloned() else { continue };
        let bench = Bench::new(engine.device(), &compiled)?;
        let seconds = time(&bench, engine.device(), &compiled, f64::INFINITY);
        bench.free(engine.device());
        shares.push((seconds? * *calls as f64, *key, ast, *calls));
    }
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut left: f64 = shares.iter().map(|s| s.0).sum();
    let mut out = Vec::new();
    for (share, key, ast, calls) in shares {
        let now = Instant::now();
        if now >= end && !out.is_empty() {
            break;
        }
        let stop =
            now + end.saturating_duration_since(now).mul_f64((share / left.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0));
        left -= share;
        if let Some(done) = one(engine, key, ast, calls, stop)? {
            report(&done);
            out.push(done);
        }
    }
    Ok(out)
}

/// The seconds that steps take: between timestamps of the device if it has a clock, else from their submission until
/// they are done.
///
/// # Errors
/// The device's.
pub fn seconds(dev: &mut dyn Device, steps: &[Step]) -> Result<f64> {
    let once = match measure(dev, steps)? {
        Took::ByDevice(s) if s < SHORT_S => s,
        Took::ByDevice(s) | Took::ByHost(s) => return Ok(s),
    };
    // A power of two, since devices keep what they recorded for each number of steps
    let n = ((SHORT_S / once).ceil() as usize).next_power_of_two().min(MOST_REPEATS);
    match measure(dev, &vec![steps; n].concat())? {
        Took::ByDevice(s) => Ok(once.min(s / n as f64)),
        Took::ByHost(_) => Ok(once),
    }
}

/// Tunes one kernel until the time `stop`.
fn one(engine: &mut Engine, key: u128, ast: &Ast, calls: usize, stop: Instant) -> Result<Option<Tuned>> {
    let target = engine.device().target().clone();
    let known = engine.tuned(key);
    let mut search = Search::new(ast, &target, engine.device().renderer(), known.as_deref())?;
    let reference = search.reference()?;
    let bench = Bench::new(engine.device(), &reference)?;
    let wanted = results(&bench, engine.device(), &reference)?;
    let mut best: Option<(f64, Compiled)> = None;
    let mut wrong = 0;
    while Instant::now() < stop || search.trials() == 0 {
        let Some(trial) = search.ask() else { break };
        let limit = best.as_ref().map_or(f64::INFINITY, |b| b.0);
        let dev = engine.device();
        let seconds = match results(&bench, dev, &trial.compiled) {
            Ok(got) if bench.agree(&wanted, &got) => time(&bench, dev, &trial.compiled, limit).ok(),
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
    // With many candidates noise favours the winner, so it and the heuristic's program are timed again, alternately
    let mut result = None;
    if let (Some((after, compiled)), Some(before)) = (best, search.heuristic()) {
        let mut opts = search.best().map(|b| b.0.to_vec()).unwrap_or_default();
        let (mut before, mut after) = (before, after);
        let mut name = compiled.source.name.clone();
        if after < before * GAIN {
            let first = gradloom_core::engine::plan::compile(ast, &target, engine.device().renderer(), None)?;
            (before, after) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..3 {
                before = before.min(time(&bench, engine.device(), &first, f64::INFINITY)?);
                after = after.min(time(&bench, engine.device(), &compiled, f64::INFINITY)?);
            }
            if after < before * GAIN {
                engine.adopt(key, &opts, compiled)?;
            } else {
                name = first.source.name.clone();
                after = before;
                opts = search.chosen().to_vec();
            }
        } else {
            after = before;
            opts = search.chosen().to_vec();
        }
        let line = engine.tuned_line(key, &opts);
        result = Some(Tuned { key, name, opts, line, calls, before, after, trials: search.trials(), wrong });
    }
    bench.free(engine.device());
    Ok(result)
}

fn compile(bench: &Bench, dev: &mut dyn Device, c: &Compiled) -> Result<Trying> {
    let trying = bench.compile(dev, c)?;
    while !dev.ready()? {
        std::thread::yield_now();
    }
    Ok(trying)
}

/// The results of a program, which starts from the same data each time.
fn results(bench: &Bench, dev: &mut dyn Device, c: &Compiled) -> Result<Vec<Vec<u8>>> {
    let trying = compile(bench, dev, c)?;
    let mut run = || -> Result<Vec<Vec<u8>>> {
        bench.reset(dev)?;
        dev.submit(trying.first())?;
        let mut out = Vec::new();
        for view in bench.written() {
            let ticket = dev.read(view)?;
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
    trying.free(dev);
    out
}

/// The shortest time of several runs in seconds; of only a few runs if the program is far slower than `limit`.
fn time(bench: &Bench, dev: &mut dyn Device, c: &Compiled, limit: f64) -> Result<f64> {
    let trying = compile(bench, dev, c)?;
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut runs = 0;
    let mut failed = dev.submit(trying.first()).err();
    while failed.is_none() && (runs < LEAST_RUNS || begin.elapsed() < RUN_TIME) {
        match seconds(dev, trying.again()) {
            Ok(s) => best = best.min(s),
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
        runs += 1;
        let slow = best > limit * 2.0 || limit.is_infinite() && begin.elapsed() > RUN_TIME * 5;
        if slow && (runs > 1 || best > RUN_TIME.as_secs_f64()) {
            break;
        }
    }
    trying.free(dev);
    failed.map_or(Ok(best), Err)
}

/// Runs steps once.
fn measure(dev: &mut dyn Device, steps: &[Step]) -> Result<Took> {
    let start = Instant::now();
    let ticket = dev.submit_timed(steps)?;
    dev.sync()?;
    let waited = start.elapsed().as_secs_f64();
    let Some(ticket) = ticket else { return Ok(Took::ByHost(waited)) };
    let times = loop {
        match dev.poll(ticket)? {
            Some(times) => break times,
            None => std::thread::yield_now(),
        }
    };
    let at = |i: usize| times.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    Ok(match (at(0), at(1)) {
        (Some(from), Some(to)) if to > from => Took::ByDevice((to - from) as f64 / 1e9),
        // A clock that did not advance says nothing
        _ => Took::ByHost(waited),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradloom_core::Error;
    use gradloom_core::device::{BufId, KernelId, NullDevice, Ticket, View};
    use gradloom_core::render::Source;
    use gradloom_core::target::{Isa, Target};

    /// A device that says that each step takes so many nanoseconds, if it says anything.
    struct Clock {
        device: NullDevice,
        step_ns: Option<u64>,
        submitted: Vec<usize>,
    }

    impl Device for Clock {
        fn target(&self) -> &Target {
            self.device.target()
        }

        fn alloc(&mut self, bytes: usize) -> Result<BufId> {
            self.device.alloc(bytes)
        }

        fn free(&mut self, buf: BufId) {
            self.device.free(buf);
        }

        fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
            self.device.upload(buf, offset, data)
        }

        fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
            self.device.compile(sources)
        }

        fn release(&mut self, kernel: KernelId) {
            self.device.release(kernel);
        }

        fn submit(&mut self, steps: &[Step]) -> Result<()> {
            self.submitted.push(steps.len());
            Ok(())
        }

        fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
            self.submit(steps)?;
            Ok(self.step_ns.map(|_| Ticket(0)))
        }

        fn read(&mut self, view: View) -> Result<Ticket> {
            self.device.read(view)
        }

        fn poll(&mut self, _: Ticket) -> Result<Option<Vec<u8>>> {
            let none = || Error::Device { device: "clock".into(), what: "no time".into() };
            let steps = *self.submitted.last().ok_or_else(none)? as u64;
            let ns = self.step_ns.ok_or_else(none)? * steps;
            Ok(Some([100u64.to_le_bytes(), (100 + ns).to_le_bytes()].concat()))
        }
    }

    fn time_of(step_ns: Option<u64>) -> (f64, Vec<usize>) {
        let device = NullDevice::new(Target::x86(Isa::Avx2, 1));
        let mut clock = Clock { device, step_ns, submitted: Vec::new() };
        let view = View { buf: BufId(0), offset: 0, bytes: 4 };
        let took = seconds(&mut clock, &[Step::Copy { src: view, dst: view }]).unwrap();
        (took, clock.submitted)
    }

    #[test]
    fn a_device_with_a_clock_is_believed_and_short_work_repeated() {
        assert_eq!(time_of(Some(3_000_000)), (3e-3, vec![1]));
        assert_eq!(time_of(Some(50_000)), (5e-5, vec![1, 4]));
        assert_eq!(time_of(Some(10)), (1e-8, vec![1, MOST_REPEATS]));
        for none in [None, Some(0)] {
            let (took, submitted) = time_of(none);
            assert!(took < 1.0 && submitted == [1], "{took} {submitted:?}");
        }
    }
}
