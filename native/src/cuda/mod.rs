//! NVIDIA's GPUs through the driver's own interface. The library is looked for at run time; a machine without one, or without a GPU, gets an
//! error that says so. `GRADLOOM_CUDA_LIBRARY` names another one.
//!
//! All work goes to one stream in order. Kernels are PTX, of which the driver makes machine code; it keeps what it made on disk. Memory comes
//! from the stream's pool where there is one, and readbacks go to pinned memory, so that reading waits in `poll` and `sync` only.

mod driver;

pub use driver::{LIBRARY, use_library};

use crate::steps::{self, Wants};
use driver::{Event, Function, Gpu, Module, Pinned, Stream, error};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::{Source, ptx};
use gradloom_core::target::{Sm, Target};
use gradloom_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Kernels in one module at most: the driver compiles a module on one core.
const MODULE: usize = 32;

/// A GPU of NVIDIA's.
pub struct CudaDevice {
    target: Target,
    description: String,
    bufs: HashMap<BufId, Allocation>,
    kernels: HashMap<KernelId, Kernel>,
    reads: HashMap<Ticket, Reading>,
    next: u32,
    // last, since all others are in its context
    stream: Stream,
}

struct Allocation {
    at: u64,
    bytes: usize,
}

struct Kernel {
    wants: Wants,
    function: Function,
    local: [u32; 3],
    _module: Arc<std::sync::Mutex<Module>>,
}

enum Reading {
    /// Bytes on their way, which are there with the event.
    Bytes(Pinned, Event),
    /// The events between which a submission was done.
    Times(Event, Event),
}

/// The GPUs for people, in the driver's order: `cuda:1` is the second.
///
/// # Errors
/// [`Error::Device`] where there is no driver.
pub fn list() -> Result<Vec<String>> {
    Ok(Gpu::all()?.iter().map(describe).collect())
}

fn describe(g: &Gpu) -> String {
    let ((major, minor), (v, w)) = (g.capability, g.version);
    let size = g.memory >> 20;
    format!(
        "{} (compute capability {major}.{minor}, {} multiprocessors, {size} MB, CUDA {v}.{w})",
        g.name, g.multiprocessors
    )
}

impl CudaDevice {
    /// Opens a GPU of [`list`].
    ///
    /// # Errors
    /// [`Error::Device`] where there is no driver, no such GPU, or one that is too old.
    pub fn new(index: usize) -> Result<CudaDevice> {
        let all = Gpu::all()?;
        let gpu =
            all.get(index).ok_or_else(|| error(format!("there is no GPU {index}: the driver has {}", all.len())))?;
        let (major, minor) = gpu.capability;
        let old =
            || error(format!("{} has compute capability {major}.{minor}; 7.5 is the oldest that works", gpu.name));
        let sm = Sm::of(major, minor).ok_or_else(old)?;
        let target = Target { max_buffer_bytes: gpu.memory, ..Target::cuda("cuda", sm) };
        Ok(CudaDevice {
            target,
            description: describe(gpu),
            bufs: HashMap::new(),
            kernels: HashMap::new(),
            reads: HashMap::new(),
            next: 0,
            stream: Stream::new(gpu)?,
        })
    }

    /// The GPU and its driver, for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// The address of a view.
    fn at(&self, view: &View) -> Result<u64> {
        let a = self.bufs.get(&view.buf).ok_or_else(|| error(format!("{:?} is not allocated", view.buf)))?;
        steps::inside("cuda", view, a.bytes).map(|()| a.at + view.offset as u64)
    }

    fn kernel(&self, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| error(format!("{id:?} is not compiled")))
    }

    fn check(&self, step: &Step) -> Result<()> {
        let wants = |id| self.kernel(id).map(|k| &k.wants);
        steps::check(step, &self.target, wants, |v| self.at(v).map(|_| ()))
    }

    fn run(&mut self, steps: &[Step]) -> Result<()> {
        // everything that can be wrong with a step comes first, so that a bad one leaves nothing half done
        steps.iter().try_for_each(|step| self.check(step))?;
        for step in steps {
            match step {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
                Step::Copy { src, dst } => self.copy(src, dst)?,
            }
        }
        Ok(())
    }

    fn launch(&self, kernel: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let k = self.kernel(kernel)?;
        let mut pointers = args.iter().map(|v| self.at(v)).collect::<Result<Vec<u64>>>()?;
        // SAFETY: the code was rendered from a checked program that takes these parameters and whose accesses stay inside them; each view
        // holds as many bytes as the program's parameter, and the kernel holds its module
        unsafe { self.stream.launch(&k.function, grid, k.local, &mut pointers, &mut vars.to_vec()) }
            .map_err(|e| error(format!("{}: {e}", k.wants.name)))
    }

    fn copy(&mut self, src: &View, dst: &View) -> Result<()> {
        let bytes = src.bytes.min(dst.bytes);
        let (from, to) = (self.at(src)?, self.at(dst)?);
        if bytes == 0 || from == to {
            return Ok(());
        }
        if from < to + bytes as u64 && to < from + bytes as u64 {
            let middle = self.stream.allocate(bytes)?;
            let done = self.stream.copy(from, middle, bytes).and_then(|()| self.stream.copy(middle, to, bytes));
            self.stream.free(middle);
            return done;
        }
        self.stream.copy(from, to, bytes)
    }

    fn build(&self, sources: &[Source]) -> Result<Vec<Kernel>> {
        let module = self.stream.module(&ptx::unit(sources)?).map_err(|e| {
            let names: Vec<&str> = sources.iter().map(|s| s.name.as_str()).collect();
            error(format!("{}: {e}", names.join(", ")))
        })?;
        let module = Arc::new(std::sync::Mutex::new(module));
        let kernel = |(i, s): (usize, &Source)| {
            let held = module.lock().unwrap_or_else(|e| e.into_inner());
            let function = self.stream.function(&held, &ptx::kernel_name(i))?;
            drop(held);
            Ok(Kernel { wants: Wants::of(s), function, local: s.local, _module: module.clone() })
        };
        sources.iter().enumerate().map(kernel).collect()
    }
}

impl Drop for CudaDevice {
    /// The driver may still use what is dropped.
    fn drop(&mut self) {
        let _ = self.stream.wait();
        for (_, a) in self.bufs.drain() {
            self.stream.free(a.at);
        }
    }
}

impl Device for CudaDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let refused = || Error::OutOfMemory { device: "cuda".into(), bytes: bytes as u64 };
        // a multiple of what one instruction stores, since vectors may begin at the last element
        let size = bytes.max(1).checked_next_multiple_of(16);
        let size = size.filter(|&n| n <= self.target.max_buffer_bytes).ok_or_else(refused)?;
        let at = self.stream.allocate(size)?;
        let id = BufId(self.id());
        self.bufs.insert(id, Allocation { at, bytes });
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        if let Some(a) = self.bufs.remove(&buf) {
            self.stream.free(a.at);
        }
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.at(&View { buf, offset, bytes: data.len() })?;
        if data.is_empty() { Ok(()) } else { self.stream.upload(at, data) }
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut ids = Vec::with_capacity(sources.len());
        for part in sources.chunks(MODULE) {
            for kernel in self.build(part)? {
                let id = KernelId(self.id());
                self.kernels.insert(id, kernel);
                ids.push(id);
            }
        }
        Ok(ids)
    }

    fn release(&mut self, kernel: KernelId) {
        if let Some(k) = self.kernels.remove(&kernel)
            && Arc::strong_count(&k._module) == 1
        {
            // what was launched is done before its code goes
            let _ = self.stream.wait();
        }
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.run(steps)
    }

    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        steps.iter().try_for_each(|step| self.check(step))?;
        let begin = self.stream.event()?;
        self.run(steps)?;
        let end = self.stream.event()?;
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Times(begin, end));
        Ok(Some(ticket))
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let at = self.at(&view)?;
        let mut to = self.stream.pinned(view.bytes)?;
        if view.bytes > 0 {
            self.stream.download(at, &mut to)?;
        }
        let event = self.stream.event()?;
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Bytes(to, event));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        match self.reads.remove(&ticket) {
            Some(Reading::Bytes(bytes, event)) => {
                self.stream.reach(&event)?;
                Ok(Some(bytes.to_vec()))
            }
            Some(Reading::Times(begin, end)) => {
                self.stream.reach(&end)?;
                let ns = self.stream.between(&begin, &end)?;
                Ok(Some([0u64.to_le_bytes(), ns.to_le_bytes()].concat()))
            }
            None => Err(error(format!("{ticket:?} is spent"))),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.stream.wait()
    }
}
