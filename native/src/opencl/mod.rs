//! OpenCL devices: GPUs of most vendors, and processors (pocl). The library is looked for at run time; on a machine
//! without one, or without a driver, opening the device is an error that says so.
//!
//! All work is in order on one queue. The kernels of a batch are compiled in a few units on all cores, and the driver's
//! binaries are kept in the cache of compiled code, so that a second start compiles nothing. A kernel takes each buffer
//! with the offset of the view in it. Only `poll` and `sync` wait.

mod find;
mod kernels;

pub use find::list;

use crate::binaries::Binaries;
use crate::canary;
use crate::{steps, upload};
use find::{DeviceCapabilities, Found, NEWER, OLDEST};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View, Write};
use gradloom_core::render::{Source, gpu_c, wgsl};
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use kernels::{Compiler, Kernel};
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::types::{CL_FALSE, CL_TRUE};
use std::collections::HashMap;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The pattern that zeroes memory; sizes of buffers are multiples of it.
const ZEROS: [u8; 16] = [0; 16];

/// A device of an OpenCL driver.
pub struct OpenClDevice {
    target: Target,
    description: String,
    driver: String,
    compiler: Compiler,
    notes: Vec<String>,
    can: DeviceCapabilities,
    bufs: HashMap<BufId, Allocation>,
    kernels: HashMap<KernelId, Kernel>,
    reads: HashMap<Ticket, Reading>,
    next: u32,
    queue: CommandQueue,
    context: Context,
}

struct Allocation {
    buffer: Buffer<u8>,
    bytes: usize,
}

enum Reading {
    /// Bytes that the driver writes until the event is reached.
    Bytes(Vec<u8>, Event),
    /// The events before and after a timed submission.
    Times(Event, Event),
}

impl OpenClDevice {
    /// Opens the best device: a GPU rather than a processor.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no driver or no device.
    pub fn new() -> Result<OpenClDevice> {
        OpenClDevice::with_index(0)
    }

    /// Opens the device at this index of [`list`].
    ///
    /// # Errors
    /// Those of [`OpenClDevice::new`].
    pub fn with_index(index: usize) -> Result<OpenClDevice> {
        let mut found = find::find()?;
        if index >= found.len() {
            return Err(error(format!("there is no device {index}: drivers offer {}", found.len())));
        }
        OpenClDevice::open(found.swap_remove(index))
    }

    fn open(found: Found) -> Result<OpenClDevice> {
        let context = Context::from_device(&found.device).map_err(|e| failed("a context", e))?;
        #[allow(deprecated, reason = "the call that replaced it came with OpenCL 2.0")]
        let queue =
            CommandQueue::create_default(&context, CL_QUEUE_PROFILING_ENABLE).map_err(|e| failed("a queue", e))?;
        let driver = format!("{}\n{}", found.description, found.options);
        let mut device = OpenClDevice {
            target: found.target,
            description: found.description,
            compiler: Compiler {
                options: found.options,
                binaries: Binaries::of(driver.clone()),
                translated: AtomicUsize::new(0),
            },
            driver,
            notes: found.notes,
            can: found.can,
            bufs: HashMap::new(),
            kernels: HashMap::new(),
            reads: HashMap::new(),
            next: 0,
            queue,
            context,
        };
        if !found.processor {
            device.claim();
        }
        Ok(device)
    }

    /// Makes kernels as for a hardware GPU, so that they can be tested on a processor. Dot products of words of bytes
    /// are computed byte by byte if the driver has no instruction for them.
    pub fn as_hardware(&mut self) {
        self.target = self.target.clone().as_hardware().with_words();
        self.claim();
    }

    /// Lets kernels use the optional features that the driver reports.
    fn claim(&mut self) {
        let DeviceCapabilities { dots, subgroup } = self.can;
        if !dots && subgroup == 0 {
            return;
        }
        let plain = (self.compiler.options.clone(), self.driver.clone());
        self.compiler.options = plain.0.replace(OLDEST, NEWER);
        self.driver = format!("{}\n{}", self.description, self.compiler.options);
        self.compiler.binaries = Binaries::of(self.driver.clone());
        if dots {
            self.target = self.target.clone().with_words();
        }
        if subgroup > 0 {
            // Values are exchanged along the first dimension: this is tested in a workgroup that is one row of threads,
            // and in one of several rows, each of which may be subgroups of its own
            let exchanged = [([64, 1, 1], subgroup), ([8, 8, 1], subgroup.min(8))].iter().all(|&(local, wanted)| {
                // A driver that cannot run the probe is treated as one without subgroups
                let found = canary::subgroups(self, gpu_c::subgroup_probe(subgroup, local)).unwrap_or_default();
                wgsl::subgroup(&found, wanted) == wanted
            });
            self.target.caps.subgroup = if exchanged { subgroup } else { 0 };
        }
    }

    /// Caches binaries in this folder instead of the user's.
    pub fn cache_in(&mut self, folder: &Path) {
        self.compiler.binaries = Binaries::within(folder, self.driver.clone());
    }

    /// The number of texts that the driver has compiled so far; 0 if all binaries were in the cache.
    pub fn translated(&self) -> usize {
        self.compiler.translated.load(Ordering::Relaxed)
    }

    /// The names of the device and its driver, for users.
    pub fn description(&self) -> &str {
        &self.description
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn allocation(&self, view: &View) -> Result<&Allocation> {
        let a = self.bufs.get(&view.buf).ok_or_else(|| error(format!("{:?} is not allocated", view.buf)))?;
        steps::inside("opencl", view, a.bytes).map(|()| a)
    }

    fn check(&self, step: &Step) -> Result<()> {
        let signature = |id| self.kernel(id).map(|k| &k.signature);
        steps::check(step, &self.target, signature, |v| self.allocation(v).map(|_| ()))
    }

    fn kernel(&self, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| error(format!("{id:?} is not compiled")))
    }

    fn launch(&self, kernel: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let k = self.kernel(kernel)?;
        let wrong = |e: ClError| failed(&k.signature.name, e);
        for (i, view) in args.iter().enumerate() {
            let (buffer, offset) = (self.allocation(view)?.buffer.get(), view.offset as u64);
            // SAFETY: the renderer's kernels take a buffer and a 64-bit offset for each slot, and the driver copies both
            unsafe { k.kernel.set_arg(2 * i as u32, &buffer).map_err(wrong)? };
            // SAFETY: the same
            unsafe { k.kernel.set_arg(2 * i as u32 + 1, &offset).map_err(wrong)? };
        }
        for (i, bits) in vars.iter().enumerate() {
            // SAFETY: launch scalars follow the buffers and are of four bytes
            unsafe { k.kernel.set_arg((2 * args.len() + i) as u32, bits).map_err(wrong)? };
        }
        let local = k.local.map(|n| n as usize);
        let global: [usize; 3] = std::array::from_fn(|d| grid[d] as usize * local[d]);
        // SAFETY: the code was rendered from a checked program whose accesses stay inside its parameters, each view holds as many bytes as
        // the program's parameter and lies inside its allocation, and both arrays of sizes have three elements
        let launched = unsafe {
            self.queue.enqueue_nd_range_kernel(k.kernel.get(), 3, ptr::null(), global.as_ptr(), local.as_ptr(), &[])
        };
        launched.map(|_| ()).map_err(wrong)
    }

    fn copy(&mut self, src: &View, dst: &View) -> Result<()> {
        let bytes = src.bytes.min(dst.bytes);
        if bytes == 0 || src == dst {
            return Ok(());
        }
        let overlaps = src.buf == dst.buf && src.offset < dst.offset + bytes && dst.offset < src.offset + bytes;
        if overlaps {
            // The driver's call requires ranges that do not overlap
            let between = self.alloc(bytes)?;
            let middle = View { buf: between, offset: 0, bytes };
            let done = self.copy(src, &middle).and_then(|()| self.copy(&middle, dst));
            self.free(between);
            return done;
        }
        let from = self.allocation(src)?.buffer.get();
        let to = self.allocation(dst)?.buffer.get();
        // SAFETY: both ranges are inside their allocations, and do not overlap
        let copied = unsafe {
            opencl3::command_queue::enqueue_copy_buffer(
                self.queue.get(),
                from,
                to,
                src.offset,
                dst.offset,
                bytes,
                0,
                ptr::null(),
            )
        };
        copied.map(|event| drop(Event::new(event))).map_err(|code| failed("a copy", ClError(code)))
    }

    fn run(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
                Step::Copy { src, dst } => self.copy(src, dst)?,
            }
        }
        Ok(())
    }

    fn marker(&self) -> Result<Event> {
        // SAFETY: it waits for no events but those before it in the queue
        unsafe { self.queue.enqueue_marker_with_wait_list(&[]) }.map_err(|e| failed("a marker", e))
    }
}

impl Drop for OpenClDevice {
    /// Waits first: the driver may still write to the memory of readbacks.
    fn drop(&mut self) {
        let _ = self.queue.finish();
    }
}

impl Device for OpenClDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let refused = || Error::OutOfMemory { device: "opencl".into(), bytes: bytes as u64 };
        let size = bytes.max(1).checked_next_multiple_of(ZEROS.len());
        let size = size.filter(|&n| n <= self.target.limits.max_buffer_bytes).ok_or_else(refused)?;
        // SAFETY: no memory of the host is given
        let buffer = unsafe { Buffer::<u8>::create(&self.context, CL_MEM_READ_WRITE, size, ptr::null_mut()) };
        let mut buffer = buffer.map_err(|e| out_of_memory(e, bytes))?;
        // SAFETY: the pattern is copied, and the buffer is as large as `size`
        let filled = unsafe { self.queue.enqueue_fill_buffer(&mut buffer, &ZEROS, 0, size, &[]) };
        filled.map_err(|e| out_of_memory(e, bytes))?;
        let id = BufId(self.id());
        self.bufs.insert(id, Allocation { buffer, bytes });
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        // The driver keeps the memory until the commands that use it are done
        self.bufs.remove(&buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.allocation(&View { buf, offset, bytes: data.len() })?;
        if data.is_empty() {
            return Ok(());
        }
        let a = self.bufs.get_mut(&buf).ok_or_else(|| error("buffer is gone"))?;
        // SAFETY: the region is inside the allocation, and the call returns after `data` was read
        let sent = unsafe { self.queue.enqueue_write_buffer(&mut a.buffer, CL_TRUE, offset, data, &[]) };
        sent.map(|_| ()).map_err(|e| failed("an upload", e))
    }

    fn upload_made(&mut self, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
        upload::upload(self, buf, len, step, write)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let made = kernels::compile(&self.context, &self.compiler, sources)?;
        let mut ids = Vec::with_capacity(made.len());
        for kernel in made {
            let id = KernelId(self.id());
            self.kernels.insert(id, kernel);
            ids.push(id);
        }
        Ok(ids)
    }

    fn release(&mut self, kernel: KernelId) {
        self.kernels.remove(&kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        // All checks come first, so that an invalid step leaves nothing half done
        steps.iter().try_for_each(|step| self.check(step))?;
        self.run(steps)?;
        self.queue.flush().map_err(|e| failed("a submission", e))
    }

    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        steps.iter().try_for_each(|step| self.check(step))?;
        let begin = self.marker()?;
        self.run(steps)?;
        let end = self.marker()?;
        self.queue.flush().map_err(|e| failed("a submission", e))?;
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Times(begin, end));
        Ok(Some(ticket))
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let mut bytes = vec![0; view.bytes];
        let buffer = &self.allocation(&view)?.buffer;
        let event = if bytes.is_empty() {
            self.marker()?
        } else {
            // SAFETY: the region is inside the allocation, and the bytes stay where they are until the event: they are in `reads`, which
            // `poll` alone takes them out of, after it waited, and `drop` waits too
            let read = unsafe { self.queue.enqueue_read_buffer(buffer, CL_FALSE, view.offset, &mut bytes, &[]) };
            read.map_err(|e| failed("a readback", e))?
        };
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Bytes(bytes, event));
        self.queue.flush().map_err(|e| failed("a readback", e))?;
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        let event = match self.reads.get(&ticket) {
            Some(Reading::Bytes(_, event) | Reading::Times(_, event)) => event,
            None => return Err(error(format!("{ticket:?} is spent"))),
        };
        event.wait().map_err(|e| failed("a readback", e))?;
        match self.reads.remove(&ticket) {
            Some(Reading::Bytes(bytes, _)) => Ok(Some(bytes)),
            Some(Reading::Times(begin, end)) => {
                let time = |e: &Event| e.profiling_command_end().map_err(|e| failed("a time", e));
                Ok(Some([time(&begin)?.to_le_bytes(), time(&end)?.to_le_bytes()].concat()))
            }
            None => Ok(None),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.queue.finish().map_err(|e| failed("the queue", e))
    }
}

pub(super) fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "opencl".into(), what: what.into() }
}

/// `CL_DEVICE_NOT_AVAILABLE`.
const GONE: i32 = -2;

/// Converts the error of a driver call; `what` names what was being made or done.
fn failed(what: &str, e: ClError) -> Error {
    match e.0 {
        GONE => Error::Lost { device: "opencl".into(), what: format!("{what}: {e}") },
        _ => error(format!("{what}: {e}")),
    }
}

/// Converts the error codes for a lack of memory: of the buffer, of the device's resources, of the host.
fn out_of_memory(e: ClError, bytes: usize) -> Error {
    match e.0 {
        // CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY, CL_INVALID_BUFFER_SIZE
        -4 | -5 | -6 | -61 => Error::OutOfMemory { device: "opencl".into(), bytes: bytes as u64 },
        _ => failed("an allocation", e),
    }
}
