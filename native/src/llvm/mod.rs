//! The processor as a device through LLVM, which is found at run time: it cross-checks our own code generator, and
//! serves processors that this one does not support. Memory and threads are those of the CPU device.
//!
//! LLVM's optimiser (`default<O2>`) and code generator compile for exactly this processor; its linker loads the objects
//! into memory that is never writable and executable at the same time. Kernels of a batch are compiled in parallel.

mod api;
mod jit;
#[cfg(feature = "inkwell")]
mod linked;

use crate::cpu::{CpuDevice, Function, Maker};
use api::Api;
pub use api::{NAMES, VARIABLE};
use gradloom_core::Result;
use gradloom_core::render::{Code, Source};
use gradloom_core::target::Target;
use jit::{Host, Jit, error};
#[cfg(feature = "inkwell")]
pub use linked::open as open_linked;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device for this machine with `threads` threads (0: one per core). If no LLVM is installed, the error
/// says what was tried.
pub fn open(threads: usize) -> Result<CpuDevice> {
    let api = Api::get()?;
    let (lanes, registers) = crate::vectors::vectors();
    let target = Target::llvm(lanes, registers, crate::cpu::threads(threads));
    let maker = Llvm { api, host: Host::new(api), jit: Jit::new(api)?, threads: target.limits.threads, made: 0 };
    CpuDevice::made(target, Box::new(maker))
}

/// The LLVM library and the processor that it compiles for.
pub fn description() -> Result<String> {
    let api = Api::get()?;
    Ok(jit::describe(api, &Host::new(api)))
}

struct Llvm {
    api: &'static Api,
    host: Host,
    jit: Arc<Jit>,
    threads: usize,
    /// The number of kernels compiled so far, which makes symbols unique.
    made: usize,
}

// SAFETY: the text is the renderer's, verified, compiled for this processor in the C calling convention; the linker keeps the
// code until `Linked` is dropped.
unsafe impl Maker for Llvm {
    fn make(&mut self, sources: &[Source]) -> Result<Vec<Function>> {
        let mut texts = Vec::with_capacity(sources.len());
        for s in sources {
            let Code::Text(text) = &s.code else { return Err(error(format!("{} is not LLVM IR", s.name))) };
            self.made += 1;
            texts.push((text.as_str(), s.name.as_str(), format!("gradloom_{}", self.made)));
        }
        let (api, host) = (self.api, &self.host);
        let objects = in_parallel(self.threads, &texts, |(text, name, symbol)| {
            Ok((symbol.clone(), jit::compile(api, host, text, name, symbol)?))
        })?;
        let (linked, entries) = self.jit.link(&objects)?;
        let code = Arc::new(linked);
        Ok(entries.into_iter().map(|entry| Function { entry, _code: code.clone() }).collect())
    }
}

/// Applies `f` to every item on up to `threads` threads. Results are in order; an error is the first one in that order.
fn in_parallel<T: Sync, R: Send>(threads: usize, items: &[T], f: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.iter().map(f).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
            done.push((i, f(item)));
        }
        done
    };
    let mut all: Vec<(usize, Result<R>)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for t in others {
            match t.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|d| d.0);
    all.into_iter().map(|d| d.1).collect()
}
