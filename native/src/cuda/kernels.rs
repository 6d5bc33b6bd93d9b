//! Makes kernels: the driver's compiler translates PTX to machine code on all cores, unless the code is in the cache;
//! then the driver loads it.

use super::driver::{Function, Module, Stream, error, of_kernel};
use crate::binaries::Binaries;
use crate::steps::KernelSignature;
use gradloom_core::Result;
use gradloom_core::render::{Source, ptx};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most kernels of one module: the driver compiles a module on a single core.
const MODULE: usize = 32;

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) function: Function,
    pub(super) local: [u32; 3],
    /// For each buffer, whether the kernel writes it.
    pub(super) written: Vec<bool>,
    module: Arc<Mutex<Module>>,
}

impl Kernel {
    /// Is this the last kernel of its module, so that the module is unloaded with it?
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.module) == 1
    }
}

/// Machine code that the driver's compiler made before.
pub(super) struct Compiler {
    pub(super) binaries: Binaries,
    /// The number of modules that were compiled because their machine code was not in the cache.
    pub(super) translated: AtomicUsize,
}

impl Compiler {
    pub(super) fn new(binaries: Binaries) -> Compiler {
        Compiler { binaries, translated: AtomicUsize::new(0) }
    }
}

/// Compiles a batch, divided among all cores.
pub(super) fn compile(stream: &Stream, compiler: &Compiler, sources: &[Source]) -> Result<Vec<Kernel>> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let part = sources.len().div_ceil(threads).clamp(1, MODULE);
    let parts: Vec<&[Source]> = sources.chunks(part).collect();
    let mut made = Vec::with_capacity(sources.len());
    for some in parts.chunks(threads) {
        let built: Vec<Result<Vec<Kernel>>> = std::thread::scope(|scope| {
            let workers: Vec<_> = some.iter().map(|s| scope.spawn(|| build(stream, compiler, s))).collect();
            let none = |_| Err(error("the driver's compiler panicked"));
            workers.into_iter().map(|w| w.join().unwrap_or_else(none)).collect()
        });
        for kernels in built {
            made.extend(kernels?);
        }
    }
    Ok(made)
}

/// The module of a PTX text, from the machine code that the driver made earlier if the cache has it.
fn module(stream: &Stream, compiler: &Compiler, unit: &str) -> Result<Module> {
    if let Some(code) = compiler.binaries.get(unit)
        && let Ok(module) = stream.module(&code)
    {
        return Ok(module);
    }
    compiler.translated.fetch_add(1, Ordering::Relaxed);
    let code = stream.assemble(unit)?;
    let module = stream.module(&code)?;
    compiler.binaries.put(unit, code);
    Ok(module)
}

fn build(stream: &Stream, compiler: &Compiler, sources: &[Source]) -> Result<Vec<Kernel>> {
    let module = module(stream, compiler, &ptx::unit(sources)?).map_err(|e| {
        let names: Vec<&str> = sources.iter().map(|s| s.name.as_str()).collect();
        of_kernel(&names.join(", "), e)
    })?;
    let module = Arc::new(Mutex::new(module));
    let kernel = |(i, s): (usize, &Source)| {
        let held = module.lock().unwrap_or_else(PoisonError::into_inner);
        let function = stream.function(&held, &ptx::kernel_name(i), ptx::dynamic_shared_bytes(s.scratch))?;
        drop(held);
        let written = s.params.iter().map(|p| p.written).collect();
        Ok(Kernel { signature: KernelSignature::of(s), function, local: s.local, written, module: module.clone() })
    };
    sources.iter().enumerate().map(kernel).collect()
}
