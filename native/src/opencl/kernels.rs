//! Kernels: texts to what the driver launches.

use super::{error, failed};
use gradloom_core::Result;
use gradloom_core::device::View;
use gradloom_core::render::{Source, gpu_c};
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::program::Program;

/// Kernels in one unit at least, where there are so many: the driver's compiler takes as long for the common text.
const LEAST: usize = 4;
/// Lines of the compiler's log that go into an error.
const LINES: usize = 30;

/// What is kept of a source.
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) kernel: opencl3::kernel::Kernel,
    pub(super) local: [u32; 3],
    /// Bytes that each buffer must have.
    needs: Vec<usize>,
    vars: usize,
}

impl Kernel {
    pub(super) fn check(&self, args: &[View], vars: &[u32]) -> Result<()> {
        let fits = self.needs.len() == args.len() && self.needs.iter().zip(args).all(|(&n, v)| n <= v.bytes);
        if fits && self.vars == vars.len() {
            return Ok(());
        }
        Err(error(format!("{} wants buffers of {:?} bytes and {} scalars", self.name, self.needs, self.vars)))
    }
}

/// Compiles a batch, a part on each core.
pub(super) fn compile(context: &Context, options: &str, sources: &[Source]) -> Result<Vec<Kernel>> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let part = sources.len().div_ceil(threads).max(LEAST);
    let made: Vec<Result<Vec<Kernel>>> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            sources.chunks(part).map(|sources| scope.spawn(move || build(context, options, sources))).collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err(error("the driver's compiler panicked")))).collect()
    });
    Ok(made.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn build(context: &Context, options: &str, sources: &[Source]) -> Result<Vec<Kernel>> {
    let named = || sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let unit = gpu_c::unit(sources)?;
    let mut program = Program::create_from_source(context, &unit).map_err(|e| failed("a program", e))?;
    if let Err(e) = program.build(context.devices(), options) {
        let log = program.get_build_log(context.default_device()).unwrap_or_default();
        let log: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).take(LINES).collect();
        return Err(error(format!("the driver's compiler refuses {}: {e}\n{}", named(), log.join("\n"))));
    }
    let kernel = |(i, s): (usize, &Source)| {
        let wrong = |e: ClError| failed(&s.name, e);
        Ok(Kernel {
            name: s.name.clone(),
            kernel: opencl3::kernel::Kernel::create(&program, &gpu_c::kernel_name(i)).map_err(wrong)?,
            local: s.local,
            needs: s.params.iter().map(|p| p.len * p.dtype.size()).collect(),
            vars: s.vars.len(),
        })
    };
    sources.iter().enumerate().map(kernel).collect()
}
