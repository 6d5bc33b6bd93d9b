//! The processor as a device: kernels are functions that a thread pool runs over slices of the grid. Buffers are host
//! memory, and all calls are synchronous. A [`Maker`] makes the functions: `machine` from the code of the x86-64 and
//! AArch64 renderers, `crate::llvm` through LLVM.

#[cfg(target_arch = "aarch64")]
mod arm64;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod code;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod machine;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod pages;
mod pool;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::memory::{Block, Guard};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View, Write};
use gradloom_core::render::Source;
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use pool::{Job, Pool};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
#[cfg(target_arch = "x86_64")]
pub use x86::detect;

/// A kernel that takes less than this (the sum over all threads) runs on one thread: waking the others
/// would cost more than they save.
const PARALLEL_NANOS: f32 = 20_000.0;
/// The same decision before a kernel has been timed, by the bytes of its buffers.
const PARALLEL_BYTES: usize = 64 << 10;

/// The number of threads that `wanted` means: 0 is one per core.
pub(crate) fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    }
}

/// A compiled function: its address, and the owner of its code.
pub(crate) struct Function {
    /// The first instruction; callable with the calling convention of kernels.
    pub entry: *const u8,
    /// Owns the code; dropped when the kernel is released.
    pub _code: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the entry is the address of code that nobody writes and that lives as long as `_code`; any thread may run it.
unsafe impl Send for Function {}

/// Makes functions from rendered kernels.
///
/// # Safety
/// Each function does what its source says and is callable as `fn(bufs, vars, lo, hi, scratch)`, as long as its `_code` lives.
pub(crate) unsafe trait Maker: Send {
    /// Makes one function per source.
    fn make(&mut self, sources: &[Source]) -> Result<Vec<Function>>;
}

struct Kernel {
    function: Function,
    /// The least number of bytes of each buffer.
    params: Vec<usize>,
    vars: usize,
    /// Bytes of scratch memory per thread.
    scratch: usize,
    /// Nanoseconds of all threads together: a moving average over earlier launches.
    cost: Option<f32>,
}

/// The native CPU.
pub struct CpuDevice {
    target: Target,
    maker: Box<dyn Maker>,
    pool: Arc<Pool>,
    buffers: HashMap<BufId, Block>,
    kernels: HashMap<KernelId, Kernel>,
    reads: HashMap<Ticket, Vec<u8>>,
    /// The scratch memory of the calling thread.
    scratch: Option<Block>,
    guard: Guard,
    next: u32,
}

impl CpuDevice {
    /// A device for `target` whose functions `maker` makes, with the target's number of threads.
    pub(crate) fn made(target: Target, maker: Box<dyn Maker>) -> Result<CpuDevice> {
        Ok(CpuDevice {
            pool: Pool::shared(target.limits.threads)?,
            target,
            maker,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            reads: HashMap::new(),
            scratch: None,
            guard: Guard::None,
            next: 0,
        })
    }

    /// The same device with another way to allocate buffers.
    pub fn with_guard(self, guard: Guard) -> CpuDevice {
        CpuDevice { guard, ..self }
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn bad(&self, what: impl Into<String>) -> Error {
        Error::Device { device: self.target.name.clone(), what: what.into() }
    }

    /// The address of a view, after a check that it lies inside its buffer.
    fn pointer(&self, v: &View) -> Result<*mut u8> {
        let block = self.buffers.get(&v.buf).ok_or_else(|| self.bad(format!("no buffer {}", v.buf.0)))?;
        match v.offset.checked_add(v.bytes) {
            Some(end) if end <= block.len() => Ok(block.at(v.offset)),
            _ => Err(self.bad(format!("{v:?} is outside of {} bytes", block.len()))),
        }
    }

    fn launch(&mut self, id: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        let k = self.kernels.get(&id).ok_or_else(|| self.bad(format!("no kernel {}", id.0)))?;
        if args.len() != k.params.len() || vars.len() != k.vars {
            return Err(self.bad(format!("kernel {} got {} buffers and {} scalars", id.0, args.len(), vars.len())));
        }
        let mut pointers = Vec::with_capacity(args.len());
        for (v, need) in args.iter().zip(&k.params) {
            if v.bytes < *need {
                return Err(self.bad(format!("a kernel needs {need} bytes, {v:?} is smaller")));
            }
            pointers.push(self.pointer(v)?);
        }
        if self.scratch.as_ref().is_none_or(|b| b.len() < k.scratch) {
            let refused = Error::OutOfMemory { device: self.target.name.clone(), bytes: k.scratch as u64 };
            self.scratch = Some(Block::new(k.scratch, self.guard).ok_or(refused)?);
        }
        let scratch = self.scratch.as_ref().map_or(std::ptr::null_mut(), |b| b.at(0));
        let parallel = match k.cost {
            Some(nanos) => nanos > PARALLEL_NANOS,
            None => k.params.iter().sum::<usize>() > PARALLEL_BYTES,
        };
        let threads = if parallel { self.pool.threads().min(grid[0] as usize) } else { 1 };
        let begin = Instant::now();
        // SAFETY: the maker made the function of a program with these parameters for this processor; the pointers are to
        // live buffers of at least the sizes it was compiled for, so is `scratch`, and the code outlives the call.
        unsafe {
            let job = Job::new(k.function.entry, &pointers, vars, grid[0], k.scratch);
            self.pool.run(&job, threads, scratch).map_err(Error::Internal)?;
        }
        let nanos = begin.elapsed().as_nanos() as f32 * threads as f32;
        if let Some(k) = self.kernels.get_mut(&id) {
            k.cost = Some(k.cost.map_or(nanos, |c| c * 0.75 + nanos * 0.25));
        }
        Ok(())
    }
}

/// The number of bytes that are copied at once, where several threads copy.
const COPIED: usize = 64 << 10;
/// The least number of bytes that is worth waking a thread, which takes some microseconds.
const WORTH_A_THREAD: usize = 128 << 10;
/// The number of parts for each thread: with several, a thread that starts late writes fewer of them.
const PARTS: usize = 4;

/// Has memory written by the threads of a pool, in parts whose length is a multiple of `step` bytes.
fn in_parts(pool: &Pool, to: &mut [u8], step: usize, write: &Write<'_>) -> Result<()> {
    let threads = pool.threads().min(to.len() / WORTH_A_THREAD).max(1);
    let part = to.len().div_ceil(if threads == 1 { 1 } else { threads * PARTS }).next_multiple_of(step.max(1));
    if threads == 1 || part >= to.len() {
        write(0, to);
        return Ok(());
    }
    let parts: Vec<Mutex<&mut [u8]>> = to.chunks_mut(part).map(Mutex::new).collect();
    let one = |i: u32| {
        let mut own = parts[i as usize].lock().unwrap_or_else(|e| e.into_inner());
        write(i as usize * part, &mut own);
    };
    pool.each(parts.len() as u32, &one).map_err(Error::Internal)
}

impl Device for CpuDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let block = Block::new(bytes, self.guard)
            .ok_or_else(|| Error::OutOfMemory { device: self.target.name.clone(), bytes: bytes as u64 })?;
        let id = BufId(self.id());
        self.buffers.insert(id, block);
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        self.buffers.remove(&buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let bad = self.bad(format!("upload of {} bytes at {offset} to buffer {}", data.len(), buf.0));
        let block = self.buffers.get_mut(&buf).ok_or(bad.clone())?;
        let end = offset.checked_add(data.len()).ok_or(bad.clone())?;
        let to = block.bytes_mut().get_mut(offset..end).ok_or(bad)?;
        in_parts(&self.pool, to, COPIED, &|at, out| out.copy_from_slice(&data[at..][..out.len()]))
    }

    fn upload_made(&mut self, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
        let bad = self.bad(format!("upload of {len} bytes to buffer {}", buf.0));
        let block = self.buffers.get_mut(&buf).ok_or(bad.clone())?;
        in_parts(&self.pool, block.bytes_mut().get_mut(..len).ok_or(bad)?, step, write)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let functions = self.maker.make(sources)?;
        let mut ids = Vec::with_capacity(sources.len());
        for (s, function) in sources.iter().zip(functions) {
            let id = KernelId(self.id());
            let params = s.params.iter().map(|p| p.len * p.dtype.size()).collect();
            let kernel = Kernel { function, params, vars: s.vars.len(), scratch: s.scratch, cost: None };
            self.kernels.insert(id, kernel);
            ids.push(id);
        }
        Ok(ids)
    }

    fn release(&mut self, kernel: KernelId) {
        self.kernels.remove(&kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        for s in steps {
            match s {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
                Step::Copy { src, dst } => {
                    if src.bytes != dst.bytes {
                        return Err(self.bad(format!("copy of {src:?} to {dst:?}")));
                    }
                    let (from, to) = (self.pointer(src)?, self.pointer(dst)?);
                    // SAFETY: both ranges lie in live buffers; `copy` allows them to overlap.
                    unsafe { std::ptr::copy(from, to, src.bytes) };
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.pointer(&view)?;
        let data = self.buffers[&view.buf].bytes()[view.offset..view.offset + view.bytes].to_vec();
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, data);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        match self.reads.remove(&ticket) {
            Some(data) => Ok(Some(data)),
            None => Err(self.bad(format!("no readback {}", ticket.0))),
        }
    }
}
