//! Apple's GPUs through Metal, on macOS. The device is the system's default GPU; on a machine without one opening it is
//! an error that says so.
//!
//! A submission is one command buffer, in which each kernel begins when the one before it is done. Buffers are shared
//! with the processor: it writes them directly when the work that uses them is done, and reads them as snapshots. Only
//! `poll`, `sync` and uploads wait.

mod kernels;

use crate::steps;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::Source;
use gradloom_core::target::{Caps, Limits, Target};
use gradloom_core::{DType, Error, Result};
use kernels::Kernel;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSOperatingSystemVersion, NSProcessInfo};
use objc2_metal::{
    MTLBlitCommandEncoder as _, MTLBuffer, MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandEncoder as _,
    MTLCommandQueue, MTLComputeCommandEncoder, MTLCreateSystemDefaultDevice, MTLDevice, MTLGPUFamily,
    MTLResourceOptions, MTLSize,
};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::ptr::NonNull;

type Gpu = Retained<ProtocolObject<dyn MTLDevice>>;
type Shared = Retained<ProtocolObject<dyn MTLBuffer>>;
type Commands = Retained<ProtocolObject<dyn MTLCommandBuffer>>;

/// The most bytes of launch scalars that can be passed within a launch (`setBytes`).
const SCALAR_BYTES: usize = 4096;

/// One of Apple's GPUs.
pub struct MetalDevice {
    target: Target,
    description: String,
    gpu: Gpu,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    bufs: HashMap<BufId, Allocation>,
    kernels: HashMap<KernelId, Kernel>,
    reads: HashMap<Ticket, Reading>,
    /// The submissions in flight, the oldest first, with their numbers.
    pending: VecDeque<(u64, Commands)>,
    submitted: u64,
    next: u32,
}

struct Allocation {
    buffer: Shared,
    bytes: usize,
    /// The number of the last submission that uses it.
    used: u64,
}

enum Reading {
    /// A snapshot of so many bytes, complete when the submission of this number is done.
    Bytes(Shared, usize, u64),
    /// A submission whose times are wanted.
    Times(Commands, u64),
}

// SAFETY: Metal's devices, queues, buffers, pipelines and committed command buffers may be used from any thread, and this one is used by one
// thread at a time, since all its methods that change or read what these hold take it alone
unsafe impl Send for MetalDevice {}

impl MetalDevice {
    /// Opens the system's default GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if there is none.
    pub fn new() -> Result<MetalDevice> {
        let gpu = MTLCreateSystemDefaultDevice().ok_or_else(|| error("this Mac has no GPU that Metal knows"))?;
        let queue = gpu.newCommandQueue().ok_or_else(|| error("the GPU gives no command queue"))?;
        Ok(MetalDevice {
            target: target(&gpu),
            description: gpu.name().to_string(),
            gpu,
            queue,
            bufs: HashMap::new(),
            kernels: HashMap::new(),
            reads: HashMap::new(),
            pending: VecDeque::new(),
            submitted: 0,
            next: 0,
        })
    }

    /// The GPU's name, for users.
    pub fn description(&self) -> &str {
        &self.description
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn allocation(&self, view: &View) -> Result<&Allocation> {
        let a = self.bufs.get(&view.buf).ok_or_else(|| error(format!("{:?} is not allocated", view.buf)))?;
        steps::inside("metal", view, a.bytes).map(|()| a)
    }

    fn check(&self, step: &Step) -> Result<()> {
        if let Step::Launch { vars, .. } = step
            && size_of_val(&vars[..]) > SCALAR_BYTES
        {
            return Err(error(format!("{} scalars are over the device's limit", vars.len())));
        }
        let signature = |id| self.kernel(id).map(|k| &k.signature);
        steps::check(step, &self.target, signature, |v| self.allocation(v).map(|_| ()))
    }

    fn kernel(&self, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| error(format!("{id:?} is not compiled")))
    }

    fn shared(&self, bytes: usize) -> Result<Shared> {
        let refused = || Error::OutOfMemory { device: "metal".into(), bytes: bytes as u64 };
        let size = bytes.max(1).checked_next_multiple_of(16).filter(|&n| n <= self.target.limits.max_buffer_bytes);
        let made =
            self.gpu.newBufferWithLength_options(size.ok_or_else(refused)?, MTLResourceOptions::StorageModeShared);
        made.ok_or_else(refused)
    }

    /// Encodes steps into one command buffer and commits it.
    fn run(&mut self, steps: &[Step]) -> Result<Commands> {
        let commands = self.queue.commandBuffer().ok_or_else(|| error("the queue gives no command buffer"))?;
        let mut rest = steps;
        while let Some(first) = rest.first() {
            let copies = matches!(first, Step::Copy { .. });
            let n = rest.iter().take_while(|s| matches!(s, Step::Copy { .. }) == copies).count();
            let (part, later) = rest.split_at(n);
            if copies {
                self.copy(&commands, part)?
            } else {
                self.launch(&commands, part)?
            }
            rest = later;
        }
        self.submitted += 1;
        for step in steps {
            let views: &[View] = match step {
                Step::Launch { args, .. } => args,
                Step::Copy { src, dst } => &[*src, *dst],
            };
            for v in views {
                if let Some(a) = self.bufs.get_mut(&v.buf) {
                    a.used = self.submitted;
                }
            }
        }
        commands.commit();
        self.pending.push_back((self.submitted, commands.clone()));
        Ok(commands)
    }

    fn launch(&self, commands: &Commands, steps: &[Step]) -> Result<()> {
        let encoder = commands.computeCommandEncoder().ok_or_else(|| error("no encoder of kernels"))?;
        let encoded = steps.iter().try_for_each(|step| self.encode(&encoder, step));
        encoder.endEncoding();
        encoded
    }

    fn encode(&self, encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>, step: &Step) -> Result<()> {
        let Step::Launch { kernel, args, grid, vars } = step else { return Ok(()) };
        if grid.contains(&0) {
            return Ok(());
        }
        let k = self.kernel(*kernel)?;
        encoder.setComputePipelineState(&k.pipeline);
        for (i, view) in args.iter().enumerate() {
            let a = self.allocation(view)?;
            // SAFETY: the view lies inside its buffer, and the target has no more buffers than the language's table of arguments
            unsafe { encoder.setBuffer_offset_atIndex(Some(&a.buffer), view.offset, i) };
        }
        if let Some(first) = NonNull::new(vars.as_ptr().cast_mut()).filter(|_| !vars.is_empty()) {
            // SAFETY: as many bytes are read, at once, and the index after the buffers is the last that a kernel has
            unsafe { encoder.setBytes_length_atIndex(first.cast::<c_void>(), size_of_val(&vars[..]), args.len()) };
        }
        let size = |n: [u32; 3]| MTLSize { width: n[0] as usize, height: n[1] as usize, depth: n[2] as usize };
        encoder.dispatchThreadgroups_threadsPerThreadgroup(size(*grid), size(k.local));
        Ok(())
    }

    fn copy(&self, commands: &Commands, steps: &[Step]) -> Result<()> {
        let encoder = commands.blitCommandEncoder().ok_or_else(|| error("no encoder of copies"))?;
        let one = |step: &Step| {
            let Step::Copy { src, dst } = step else { return Ok(()) };
            let bytes = src.bytes.min(dst.bytes);
            let (from, to) = (self.allocation(src)?, self.allocation(dst)?);
            if bytes == 0 || src == dst {
                return Ok(());
            }
            let apart = src.buf != dst.buf || src.offset + bytes <= dst.offset || dst.offset + bytes <= src.offset;
            // The call requires ranges that do not overlap
            let middle = if apart { None } else { Some(self.shared(bytes)?) };
            let (mut at, mut offset) = (&from.buffer, src.offset);
            if let Some(middle) = &middle {
                // SAFETY: both regions are inside their buffers, which differ
                unsafe {
                    encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(at, offset, middle, 0, bytes)
                };
                (at, offset) = (middle, 0);
            }
            // SAFETY: both ranges are inside their buffers, and do not overlap
            unsafe {
                encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                    at, offset, &to.buffer, dst.offset, bytes,
                )
            };
            Ok(())
        };
        let copied = steps.iter().try_for_each(one);
        encoder.endEncoding();
        copied
    }

    /// Waits for the submission of this number and all before it.
    fn wait(&mut self, number: u64) -> Result<()> {
        while let Some((_, commands)) = self.pending.front().filter(|p| p.0 <= number) {
            commands.waitUntilCompleted();
            let failed = commands.status() == MTLCommandBufferStatus::Error;
            let why = commands.error().map(|e| e.localizedDescription().to_string()).unwrap_or_default();
            self.pending.pop_front();
            if failed {
                return Err(Error::Lost { device: "metal".into(), what: format!("a submission: {why}") });
            }
        }
        Ok(())
    }
}

impl Drop for MetalDevice {
    /// Waits first: the GPU may still write to the memory that is freed.
    fn drop(&mut self) {
        let _ = self.wait(u64::MAX);
    }
}

impl Device for MetalDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let buffer = self.shared(bytes)?;
        // SAFETY: the buffer is new, the processor sees it, and it has at least so many bytes
        unsafe { buffer.contents().cast::<u8>().as_ptr().write_bytes(0, buffer.length()) };
        let id = BufId(self.id());
        self.bufs.insert(id, Allocation { buffer, bytes, used: 0 });
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        // Command buffers retain the buffers that they use
        self.bufs.remove(&buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let used = self.allocation(&View { buf, offset, bytes: data.len() })?.used;
        self.wait(used)?;
        let to = self.bufs[&buf].buffer.contents().cast::<u8>();
        // SAFETY: the region is inside the buffer, which nothing on the GPU uses now
        unsafe { to.as_ptr().add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let made = autoreleasepool(|_| kernels::compile(&self.gpu, &self.target, sources))?;
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
        autoreleasepool(|_| self.run(steps)).map(|_| ())
    }

    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        steps.iter().try_for_each(|step| self.check(step))?;
        let commands = autoreleasepool(|_| self.run(steps))?;
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Times(commands, self.submitted));
        Ok(Some(ticket))
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let from = self.allocation(&view)?.buffer.clone();
        let snapshot = self.shared(view.bytes)?;
        autoreleasepool(|_| {
            let commands = self.queue.commandBuffer().ok_or_else(|| error("the queue gives no command buffer"))?;
            let encoder = commands.blitCommandEncoder().ok_or_else(|| error("no encoder of copies"))?;
            if view.bytes > 0 {
                // SAFETY: the region is inside its buffer, and the snapshot is as large
                unsafe {
                    encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                        &from,
                        view.offset,
                        &snapshot,
                        0,
                        view.bytes,
                    )
                };
            }
            encoder.endEncoding();
            commands.commit();
            self.submitted += 1;
            self.pending.push_back((self.submitted, commands));
            Ok(())
        })?;
        if let Some(a) = self.bufs.get_mut(&view.buf) {
            a.used = self.submitted;
        }
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Bytes(snapshot, view.bytes, self.submitted));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        let number = match self.reads.get(&ticket) {
            Some(Reading::Bytes(_, _, number) | Reading::Times(_, number)) => *number,
            None => return Err(error(format!("{ticket:?} is spent"))),
        };
        self.wait(number)?;
        Ok(match self.reads.remove(&ticket) {
            Some(Reading::Bytes(snapshot, bytes, _)) => {
                // SAFETY: the snapshot has so many bytes, and the copy that fills it is done
                let filled = unsafe { std::slice::from_raw_parts(snapshot.contents().cast::<u8>().as_ptr(), bytes) };
                Some(filled.to_vec())
            }
            Some(Reading::Times(commands, _)) => {
                let nanoseconds = |seconds: f64| ((seconds * 1e9) as u64).to_le_bytes();
                Some([nanoseconds(commands.GPUStartTime()), nanoseconds(commands.GPUEndTime())].concat())
            }
            None => None,
        })
    }

    fn sync(&mut self) -> Result<()> {
        self.wait(u64::MAX)
    }
}

/// Reads the capabilities of a GPU.
fn target(gpu: &Gpu) -> Target {
    let plain = Target::metal("metal");
    // Exchanges within subgroups of 32 threads, and matrices, came with this family; its GPUs share the
    // processor's memory
    let apple = gpu.supportsFamily(MTLGPUFamily::Apple7);
    let version = NSOperatingSystemVersion { majorVersion: 14, minorVersion: 0, patchVersion: 0 };
    let bf16 = NSProcessInfo::processInfo().isOperatingSystemAtLeastVersion(version);
    let mut tiles = if apple { plain.caps.matrix_tiles.clone() } else { Vec::new() };
    tiles.retain(|tile| bf16 || tile.factors != DType::BF16);
    let subgroup = if apple { plain.caps.subgroup } else { 0 };
    let (workgroup_bytes, max_buffer_bytes) = (gpu.maxThreadgroupMemoryLength(), gpu.maxBufferLength());
    Target {
        caps: Caps { subgroup, matrix_tiles: tiles, ..plain.caps },
        limits: Limits { workgroup_bytes, max_buffer_bytes, ..plain.limits },
        ..plain
    }
}

fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "metal".into(), what: what.into() }
}
