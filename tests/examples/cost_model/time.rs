//! Times of kernels on a device: the least of several launches of some at once, on data of modest size.

use gradloom_core::Result;
use gradloom_core::device::Device;
use gradloom_core::engine::{Bench, Compiled};
use std::time::{Duration, Instant};

/// Clocks and calls of the device are not to be seen: launches of one submission take this long at least.
const GRAIN: Duration = Duration::from_micros(100);
const MOST_AT_ONCE: usize = 64;
/// Launches are repeated for so long, and so often at least.
const LONG_ENOUGH: Duration = Duration::from_millis(8);
const LEAST_RUNS: usize = 3;
/// One that takes longer is not repeated.
const SLOW: Duration = Duration::from_millis(300);

/// Nanoseconds of a launch.
pub(crate) fn time(dev: &mut dyn Device, c: &Compiled) -> Result<f64> {
    let bench = Bench::new(dev, c)?;
    let out = on_buffers(&bench, dev, c);
    bench.free(dev);
    out
}

fn on_buffers(bench: &Bench, dev: &mut dyn Device, c: &Compiled) -> Result<f64> {
    let trying = bench.compile(dev, c)?;
    while !dev.ready()? {
        std::thread::yield_now();
    }
    let mut run = |steps: &[_]| -> Result<Duration> {
        let start = Instant::now();
        dev.submit(steps)?;
        dev.sync()?;
        Ok(start.elapsed())
    };
    let mut measured = || -> Result<f64> {
        run(trying.first())?;
        let once = run(trying.again())?;
        if once > SLOW {
            return Ok(once.as_nanos() as f64);
        }
        let n = (GRAIN.as_nanos() / once.as_nanos().max(1) + 1).min(MOST_AT_ONCE as u128) as usize;
        let steps = vec![trying.again(); n].concat();
        let (begin, mut runs, mut best) = (Instant::now(), 0, once.as_nanos() as f64);
        while runs < LEAST_RUNS || begin.elapsed() < LONG_ENOUGH {
            best = best.min(run(&steps)?.as_nanos() as f64 / n as f64);
            runs += 1;
        }
        Ok(best)
    };
    let out = measured();
    trying.free(dev);
    out
}
