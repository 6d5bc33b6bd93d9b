//! NVIDIA's GPUs through the CUDA driver API. The library is looked for at run time; on a machine without one, or
//! without a GPU, opening the device is an error that says so. `GRADLOOM_CUDA_LIBRARY` names a library to use instead.
//!
//! All work is in order on one stream. Kernels are PTX, which the driver compiles to machine code, a part of each batch
//! on each core; the code is kept in the cache of compiled code. A repeated submission is one graph (`graphs.rs`).
//! Memory comes from the GPU's memory pool where the driver has pools. Uploads and readbacks use pinned memory
//! (`staging.rs`), so that the host waits only in `poll` and `sync`. After an error that leaves the context unusable
//! every call is [`Error::Lost`] with that error.

mod driver;
mod graphs;
mod kernels;
mod staging;

pub use driver::{LIBRARY, use_library};
pub use graphs::Launches;

use crate::binaries::Binaries;
use crate::{steps, upload};
use driver::{Event, Gpu, Pinned, Stream, error, of_kernel};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View, Write};
use gradloom_core::render::Source;
use gradloom_core::target::{Sm, Target};
use gradloom_core::{Error, Result};
use graphs::{Graphs, Node};
use kernels::{Compiler, Kernel};
use staging::{Readbacks, Uploads};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The oldest driver version that has all functions that are called.
const OLDEST: (u32, u32) = (12, 0);

/// A GPU of NVIDIA's.
pub struct CudaDevice {
    target: Target,
    description: String,
    bufs: HashMap<BufId, Allocation>,
    kernels: HashMap<KernelId, Kernel>,
    reads: HashMap<Ticket, Reading>,
    graphs: Graphs,
    uploads: Uploads,
    readbacks: Readbacks,
    compiler: Compiler,
    next: u32,
    // Last, so that it is dropped last: all others belong to its context
    stream: Stream,
}

struct Allocation {
    at: u64,
    bytes: usize,
}

enum Reading {
    /// Bytes being copied to pinned memory; the copy is done when the event is reached.
    Bytes(Pinned, usize, Event),
    /// The events before and after a timed submission.
    Times(Event, Event),
}

/// The GPUs, described for users, with their memory in bytes, in the driver's order: `cuda:1` is the second.
///
/// # Errors
/// [`Error::Device`] if there is no driver.
pub fn list() -> Result<Vec<(String, u64)>> {
    Ok(Gpu::all()?.iter().map(|g| (describe(g), g.memory as u64)).collect())
}

/// Is there a GPU, through the system's own driver rather than an emulator? No device is opened to answer this.
pub fn has_hardware() -> bool {
    !driver::is_named() && Gpu::all().is_ok_and(|all| !all.is_empty())
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
    /// Opens the GPU at this index of [`list`].
    ///
    /// # Errors
    /// [`Error::Device`] if there is no driver, no such GPU, or if either is too old.
    pub fn new(index: usize) -> Result<CudaDevice> {
        let all = Gpu::all()?;
        let gpu =
            all.get(index).ok_or_else(|| error(format!("there is no GPU {index}: the driver has {}", all.len())))?;
        let (major, minor) = gpu.capability;
        let old =
            || error(format!("{} has compute capability {major}.{minor}; 7.5 is the oldest that works", gpu.name));
        let sm = Sm::of(major, minor).ok_or_else(old)?;
        let (v, w) = gpu.version;
        if gpu.version < OLDEST {
            let (oldest, _) = OLDEST;
            return Err(error(format!("the driver is of CUDA {v}.{w}; {oldest}.0 is the oldest that works")));
        }
        // What this GPU has; other GPUs of the same compute capability have more or less
        let mut target = Target::cuda("cuda", sm);
        target.limits.max_buffer_bytes = gpu.memory;
        target.machine.processors = gpu.multiprocessors as usize;
        if let Some(copies) = &mut target.caps.copies {
            copies.bytes = copies.bytes.min(gpu.shared);
        }
        Ok(CudaDevice {
            target,
            compiler: Compiler::new(Binaries::of(describe(gpu))),
            description: describe(gpu),
            bufs: HashMap::new(),
            kernels: HashMap::new(),
            reads: HashMap::new(),
            graphs: Graphs::default(),
            uploads: Uploads::default(),
            readbacks: Readbacks::default(),
            next: 0,
            stream: Stream::new(gpu)?,
        })
    }

    /// The GPU and its driver, described for users.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Caches machine code in this folder instead of the user's.
    pub fn cache_in(&mut self, folder: &Path) {
        self.compiler.binaries = Binaries::within(folder, self.description.clone());
    }

    /// The number of modules that the driver has compiled so far; 0 if all machine code was in the cache.
    pub fn translated(&self) -> usize {
        self.compiler.translated.load(Ordering::Relaxed)
    }

    /// The counts of what the driver was asked to start so far.
    pub fn launches(&self) -> Launches {
        self.graphs.launches
    }

    /// The bytes of the GPU's memory that this process has in the driver's memory pool, in use or not; 0 if the driver
    /// has no pools.
    ///
    /// # Errors
    /// [`Error::Lost`] if the device is lost.
    pub fn pool_bytes(&self) -> Result<u64> {
        self.stream.pool_bytes()
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
        let signature = |id| self.kernel(id).map(|k| &k.signature);
        steps::check(step, &self.target, signature, |v| self.at(v).map(|_| ()))
    }

    /// Runs steps; as a graph if the same submission occurred before.
    fn run(&mut self, steps: &[Step]) -> Result<()> {
        self.stream.alive()?;
        // All checks come first, so that an invalid step leaves nothing half done
        steps.iter().try_for_each(|step| self.check(step))?;
        if let Some(nodes) = self.nodes(steps)? {
            // SAFETY: the steps were checked, so each is what `launch` and `copy` run
            if unsafe { self.graphs.run(&self.stream, nodes) }? {
                return Ok(());
            }
        }
        self.step_by_step(steps)
    }

    /// Launches checked steps one by one.
    fn step_by_step(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
                Step::Copy { src, dst } => self.copy(src, dst)?,
            }
        }
        self.graphs.launches.steps += steps.len() as u64;
        Ok(())
    }

    /// The nodes for those checked steps that do anything; `None` if a copy overlaps itself and needs temporary memory.
    fn nodes(&self, steps: &[Step]) -> Result<Option<Vec<Node>>> {
        let mut nodes = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                Step::Launch { grid, .. } if grid.contains(&0) => {}
                Step::Launch { kernel, args, grid, vars } => {
                    let k = self.kernel(*kernel)?;
                    let pointers = args.iter().map(|v| self.at(v)).collect::<Result<Vec<u64>>>()?;
                    let uses = pointers.iter().zip(args).zip(&k.written);
                    nodes.push(Node::Launch {
                        kernel: *kernel,
                        grid: *grid,
                        block: k.local,
                        function: k.function,
                        buffers: uses.map(|((&at, v), &written)| (at, v.bytes as u64, written)).collect(),
                        pointers,
                        scalars: vars.clone(),
                    });
                }
                Step::Copy { src, dst } => {
                    let (from, to, bytes) = (self.at(src)?, self.at(dst)?, src.bytes.min(dst.bytes));
                    if bytes == 0 || from == to {
                        continue;
                    }
                    if overlap(from, to, bytes) {
                        return Ok(None);
                    }
                    nodes.push(Node::Copy { from, to, bytes });
                }
            }
        }
        Ok(Some(nodes))
    }

    fn launch(&self, kernel: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let k = self.kernel(kernel)?;
        let pointers = args.iter().map(|v| self.at(v)).collect::<Result<Vec<u64>>>()?;
        // SAFETY: the code was rendered from a checked program that takes these parameters and whose accesses stay inside them; each view
        // holds as many bytes as the program's parameter, and the kernel holds its module
        unsafe { self.stream.launch(&k.function, grid, k.local, &pointers, vars) }
            .map_err(|e| of_kernel(&k.signature.name, e))
    }

    fn copy(&mut self, src: &View, dst: &View) -> Result<()> {
        let bytes = src.bytes.min(dst.bytes);
        let (from, to) = (self.at(src)?, self.at(dst)?);
        if bytes == 0 || from == to {
            return Ok(());
        }
        if overlap(from, to, bytes) {
            let middle = self.stream.allocate(bytes)?;
            let done = self.stream.copy(from, middle, bytes).and_then(|()| self.stream.copy(middle, to, bytes));
            self.stream.free(middle);
            return done;
        }
        self.stream.copy(from, to, bytes)
    }
}

/// Do the two ranges of `bytes` bytes overlap?
fn overlap(from: u64, to: u64, bytes: usize) -> bool {
    from < to + bytes as u64 && to < from + bytes as u64
}

impl Drop for CudaDevice {
    /// Waits first: the driver may still use what is dropped.
    fn drop(&mut self) {
        let _ = self.stream.wait();
        self.graphs.clear();
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
        // A multiple of 16 bytes, the most that one instruction stores, since vectors may begin at the last element
        let size = bytes.max(1).checked_next_multiple_of(16);
        let size = size.filter(|&n| n <= self.target.limits.max_buffer_bytes).ok_or_else(refused)?;
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
        self.uploads.send(&self.stream, at, data)
    }

    fn upload_made(&mut self, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
        upload::upload(self, buf, len, step, write)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.stream.alive()?;
        let made = kernels::compile(&self.stream, &self.compiler, sources)?;
        let mut ids = Vec::with_capacity(made.len());
        for kernel in made {
            let id = KernelId(self.id());
            self.kernels.insert(id, kernel);
            ids.push(id);
        }
        Ok(ids)
    }

    fn release(&mut self, kernel: KernelId) {
        self.graphs.forget_kernel(kernel);
        if let Some(k) = self.kernels.remove(&kernel)
            && k.is_last()
        {
            // Launches that use its code must be done before the module is unloaded
            let _ = self.stream.wait();
        }
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.run(steps)
    }

    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        steps.iter().try_for_each(|step| self.check(step))?;
        let begin = self.stream.event()?;
        self.step_by_step(steps)?;
        let end = self.stream.event()?;
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Times(begin, end));
        Ok(Some(ticket))
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let at = self.at(&view)?;
        let mut to = self.readbacks.take(&self.stream, view.bytes)?;
        if view.bytes > 0 {
            self.stream.download(at, &mut to, view.bytes)?;
        }
        let event = self.stream.event()?;
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Bytes(to, view.bytes, event));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        let spent = || error(format!("{ticket:?} is spent"));
        // the block stays in the list until the copy into it has ended, also when waiting for that fails
        match self.reads.get(&ticket).ok_or_else(spent)? {
            Reading::Bytes(_, _, event) | Reading::Times(_, event) => self.stream.reach(event)?,
        }
        match self.reads.remove(&ticket).ok_or_else(spent)? {
            Reading::Bytes(block, bytes, _) => {
                let read = block.to_vec(bytes);
                self.readbacks.give(block);
                Ok(Some(read))
            }
            Reading::Times(begin, end) => {
                let ns = self.stream.between(&begin, &end)?;
                Ok(Some([0u64.to_le_bytes(), ns.to_le_bytes()].concat()))
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.stream.wait()
    }
}
