//! Makes kernels from OpenCL C with the driver's compiler.

use super::{error, failed};
use crate::binaries::Binaries;
use crate::steps::KernelSignature;
use gradloom_core::Result;
use gradloom_core::render::{Source, gpu_c};
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::program::Program;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least number of kernels in one compilation unit, if there are that many: the compiler takes as long for the text
/// that all units share.
const LEAST: usize = 4;
/// The most kernels in one compilation unit: PoCL processes all code of a unit again for each kernel that it compiles.
const MOST: usize = 16;
/// The most lines of the compiler's log in an error.
const LINES: usize = 30;

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) kernel: opencl3::kernel::Kernel,
    pub(super) local: [u32; 3],
}

/// The driver's compiler, with a cache of its results.
pub(super) struct Compiler {
    pub(super) options: String,
    pub(super) binaries: Binaries,
    /// The number of texts that were compiled because their binary was not in the cache.
    pub(super) translated: AtomicUsize,
}

/// Compiles a batch on all cores, a part at a time on each.
pub(super) fn compile(context: &Context, compiler: &Compiler, sources: &[Source]) -> Result<Vec<Kernel>> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let part = sources.len().div_ceil(threads).clamp(LEAST, MOST);
    let parts: Vec<&[Source]> = sources.chunks(part).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Result<Vec<Kernel>>)> {
        let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let own = taken.map_while(|i| Some((i, parts.get(i)?)));
        own.map(|(i, sources)| (i, build(context, compiler, sources))).collect()
    };
    let mut made: Vec<(usize, Result<Vec<Kernel>>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(parts.len())).map(|_| scope.spawn(work)).collect();
        let panicked = |_| vec![(0, Err(error("the driver's compiler panicked")))];
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(panicked)).collect()
    });
    made.sort_by_key(|m| m.0);
    Ok(made.into_iter().map(|m| m.1).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The program of a text, from the binary that the driver made earlier, if the cache has it.
fn known(context: &Context, compiler: &Compiler, unit: &str) -> Option<Program> {
    let binary = compiler.binaries.get(unit)?;
    // SAFETY: this driver made the binary of this text for this device: the key says so, and the store holds what we put there alone
    let mut program = unsafe { Program::create_from_binary(context, context.devices(), &[&binary]) }.ok()?;
    program.build(context.devices(), &compiler.options).ok()?;
    Some(program)
}

fn build(context: &Context, compiler: &Compiler, sources: &[Source]) -> Result<Vec<Kernel>> {
    let unit = gpu_c::unit(sources)?;
    let program = match known(context, compiler, &unit) {
        Some(program) => program,
        None => {
            compiler.translated.fetch_add(1, Ordering::Relaxed);
            let program = translate(context, &compiler.options, &unit, sources)?;
            // Some drivers compile every kernel again to answer this
            if compiler.binaries.are_kept()
                && let Some(binary) = program.get_binaries().ok().and_then(|all| all.into_iter().next())
            {
                compiler.binaries.put(&unit, binary);
            }
            program
        }
    };
    let kernel = |(i, s): (usize, &Source)| {
        let wrong = |e: ClError| failed(&s.name, e);
        Ok(Kernel {
            signature: KernelSignature::of(s),
            kernel: opencl3::kernel::Kernel::create(&program, &gpu_c::kernel_name(i)).map_err(wrong)?,
            local: s.local,
        })
    };
    sources.iter().enumerate().map(kernel).collect()
}

/// Compiles a text with the driver's compiler.
fn translate(context: &Context, options: &str, unit: &str, sources: &[Source]) -> Result<Program> {
    let named = || sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut program = Program::create_from_source(context, unit).map_err(|e| failed("a program", e))?;
    if let Err(e) = program.build(context.devices(), options) {
        let log = program.get_build_log(context.default_device()).unwrap_or_default();
        let log: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).take(LINES).collect();
        return Err(error(format!("the driver's compiler refuses {}: {e}\n{}", named(), log.join("\n"))));
    }
    Ok(program)
}
