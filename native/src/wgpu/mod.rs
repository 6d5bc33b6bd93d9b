//! GPUs through wgpu (Vulkan, Metal, Direct3D 12): the WGSL renderer's programs on an adapter of this machine.
//!
//! The target has the adapter's limits. Pipelines and bind groups are cached. A submission is one command buffer; its
//! launch scalars are in one uniform buffer with dynamic offsets. Only `poll` and `sync` wait.

mod memory;
mod pipeline;

use crate::canary;
use crate::steps;
use ::wgpu as gpu;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::{Source, wgsl};
use gradloom_core::target::{Limits, Target};
use gradloom_core::{Error, Result};
use memory::Memory;
use pipeline::Kernels;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

/// A GPU, or a software Vulkan driver.
pub struct WgpuDevice {
    target: Target,
    info: gpu::AdapterInfo,
    gpu: Gpu,
    memory: Memory,
    kernels: Kernels,
    uniforms: gpu::Buffer,
    uniform_step: usize,
    notes: Vec<String>,
}

/// The wgpu handles that all other objects are made with, the first error outside of any error scope, and the reason
/// why the device is lost, if it is.
pub(crate) struct Gpu {
    device: gpu::Device,
    queue: gpu::Queue,
    stray: Arc<Mutex<Option<String>>>,
    lost: Arc<OnceLock<String>>,
}

impl Gpu {
    /// Runs `f` in an error scope, and gives the error that occurred in it.
    fn scoped<T>(&self, filter: gpu::ErrorFilter, f: impl FnOnce(&gpu::Device) -> T) -> (T, Option<gpu::Error>) {
        let scope = self.device.push_error_scope(filter);
        let value = f(&self.device);
        (value, block_on(scope.pop()))
    }

    /// An error if the device is lost; it stays lost for good.
    fn alive(&self) -> Result<()> {
        match self.lost.get() {
            Some(what) => Err(Error::Lost { device: "wgpu".into(), what: what.clone() }),
            None => Ok(()),
        }
    }

    /// The same, and also the first error outside of error scopes since the last call.
    fn check(&self) -> Result<()> {
        self.alive()?;
        let mut stray = self.stray.lock().unwrap_or_else(|e| e.into_inner());
        match stray.take() {
            Some(what) => Err(error(what)),
            None => Ok(()),
        }
    }

    /// Waits until all submitted work is done.
    fn wait(&self) -> Result<()> {
        let waited = self.device.poll(gpu::PollType::wait_indefinitely());
        self.check()?;
        waited.map(|_| ()).map_err(|e| error(e.to_string()))
    }
}

impl WgpuDevice {
    /// Opens the adapter that the system prefers for performance. Fails if there is no driver.
    pub fn new() -> Result<WgpuDevice> {
        let wish = gpu::RequestAdapterOptions {
            power_preference: gpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let adapter = block_on(instance().request_adapter(&wish)).map_err(|e| error(format!("no adapter: {e}")))?;
        WgpuDevice::open(&adapter)
    }

    /// Opens an adapter.
    fn open(adapter: &gpu::Adapter) -> Result<WgpuDevice> {
        let limits = adapter.limits();
        let info = adapter.get_info();
        let features = adapter.features() & (gpu::Features::SUBGROUP | gpu::Features::SHADER_F16);
        let wish = gpu::DeviceDescriptor {
            required_limits: limits.clone(),
            required_features: features,
            ..Default::default()
        };
        let (device, queue) = block_on(adapter.request_device(&wish)).map_err(|e| error(e.to_string()))?;
        let stray = Arc::new(Mutex::new(None));
        let sink = stray.clone();
        device.on_uncaptured_error(Arc::new(move |e: gpu::Error| {
            let mut first = sink.lock().unwrap_or_else(|e| e.into_inner());
            first.get_or_insert(e.to_string());
        }));
        let lost = Arc::new(OnceLock::new());
        let why = lost.clone();
        device.set_device_lost_callback(move |reason, text| _ = why.set(format!("{reason:?}: {text}")));
        let uniform_step = (limits.min_uniform_buffer_offset_alignment as usize).max(64);
        let gpu = Gpu { device, queue, stray, lost };
        let uniforms = uniform_buffer(&gpu, 256 * uniform_step);
        let target = target(&limits, &info);
        let mut device = WgpuDevice {
            memory: Memory::new(limits.max_buffer_size),
            kernels: Kernels::default(),
            uniforms,
            uniform_step,
            notes: Vec::new(),
            target,
            info,
            gpu,
        };
        if !device.target.machine.software {
            device.claim();
        }
        device.trust()?;
        Ok(device)
    }

    /// Asks the driver test questions, and removes from the target the features that it gets wrong.
    fn trust(&mut self) -> Result<()> {
        let driver = format!("{:?}", self.info);
        let (target, notes) = canary::examine_once(self, &driver)?;
        (self.target, self.notes) = (target, notes);
        Ok(())
    }

    /// Makes kernels as for a hardware GPU, so that they can be tested on a software driver; only the limit of loop
    /// iterations stays the driver's. If the driver gets anything of this wrong, the target stays as it was.
    pub fn as_hardware(&mut self) {
        let plain = self.target.clone();
        self.claim();
        if self.trust().is_err() {
            self.target = plain;
        }
    }

    fn claim(&mut self) {
        // The shader compiler provides them for every driver; a driver without the instruction computes
        // them byte by byte
        self.target = self.target.clone().as_hardware().with_words();
        if self.gpu.device.features().contains(gpu::Features::SUBGROUP) {
            // A driver that cannot run the probe is treated as one without subgroups
            let found = canary::subgroups(self, wgsl::subgroup_probe()).unwrap_or_default();
            self.target.caps.subgroup = wgsl::subgroup(&found, self.info.subgroup_min_size);
        }
        if self.gpu.device.features().contains(gpu::Features::SHADER_F16) {
            self.target = self.target.clone().with_f16();
        }
    }

    /// Destroys wgpu's device, as if the driver had reset it, to test what follows a loss.
    #[doc(hidden)]
    pub fn destroy(&self) {
        self.gpu.device.destroy();
    }

    /// The names of the adapter and its driver, for users.
    pub fn description(&self) -> String {
        format!("{} ({:?}, {})", self.info.name, self.info.backend, self.info.driver_info)
    }

    /// Checks a step, and makes the bind group of a launch.
    fn prepare(&mut self, step: &Step) -> Result<()> {
        let signature = |id| self.kernels.get(id).map(|k| &k.signature);
        steps::check(step, &self.target, signature, |v| self.memory.check(v))?;
        match step {
            Step::Launch { kernel, args, .. } => self.kernels.bind(&self.gpu, &self.memory, *kernel, args),
            Step::Copy { .. } => Ok(()),
        }
    }

    /// Writes the scalars of all launches to the uniform buffer, one slot each, and returns their offsets.
    fn put_scalars(&mut self, steps: &[Step]) -> Vec<u32> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut offsets = Vec::new();
        for step in steps {
            let vars: &[u32] = if let Step::Launch { vars, .. } = step { vars } else { &[] };
            offsets.push(bytes.len() as u32);
            if !vars.is_empty() {
                bytes.extend(vars.iter().flat_map(|v| v.to_le_bytes()));
                bytes.resize(bytes.len().next_multiple_of(self.uniform_step), 0);
            }
        }
        if bytes.len() as u64 > self.uniforms.size() {
            self.uniforms = uniform_buffer(&self.gpu, bytes.len().next_power_of_two());
            self.kernels.forget_uniforms();
        }
        if !bytes.is_empty() {
            self.gpu.queue.write_buffer(&self.uniforms, 0, &bytes);
        }
        offsets
    }
}

impl Device for WgpuDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        // A lost device would return buffers as well
        self.gpu.alive()?;
        self.memory.alloc(&self.gpu, bytes)
    }

    fn free(&mut self, buf: BufId) {
        self.kernels.forget_buffer(buf);
        self.memory.free(buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.memory.upload(&self.gpu, View { buf, offset, bytes: data.len() }, data)?;
        self.gpu.check()
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.gpu.alive()?;
        self.kernels.compile(&self.gpu, sources)
    }

    fn release(&mut self, kernel: KernelId) {
        self.kernels.release(kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.gpu.check()?;
        self.kernels.trim();
        // All checks come first, so that an invalid step leaves nothing half done
        steps.iter().try_for_each(|step| self.prepare(step))?;
        let offsets = self.put_scalars(steps);
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        let mut at = 0;
        while at < steps.len() {
            if let Step::Copy { src, dst } = &steps[at] {
                self.memory.copy(&self.gpu, &mut encoder, src, dst)?;
                at += 1;
                continue;
            }
            let mut pass = encoder.begin_compute_pass(&Default::default());
            while let Some(Step::Launch { kernel, args, grid, vars }) = steps.get(at) {
                pass.set_pipeline(&self.kernels.get(*kernel)?.pipeline);
                pass.set_bind_group(0, self.kernels.bound(*kernel, args)?, &[]);
                if !vars.is_empty() {
                    let group = self.kernels.uniform_group(&self.gpu, &self.uniforms, vars.len());
                    pass.set_bind_group(1, &group, &[offsets[at]]);
                }
                pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
                at += 1;
            }
        }
        self.gpu.queue.submit([encoder.finish()]);
        self.gpu.check()
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let ticket = self.memory.read(&self.gpu, view)?;
        self.gpu.check()?;
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        self.memory.poll(&self.gpu, ticket)
    }

    fn sync(&mut self) -> Result<()> {
        self.gpu.wait()
    }
}

fn uniform_buffer(gpu: &Gpu, bytes: usize) -> gpu::Buffer {
    gpu.device.create_buffer(&gpu::BufferDescriptor {
        label: None,
        size: bytes as u64,
        usage: gpu::BufferUsages::UNIFORM | gpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

fn target(l: &gpu::Limits, info: &gpu::AdapterInfo) -> Target {
    let plain = Target::wgsl("wgpu").with_custom_kernels();
    let emulated = info.device_type == gpu::DeviceType::Cpu;
    let largest = l.max_buffer_size.min(l.max_storage_buffer_binding_size);
    let plain = if emulated { plain.emulated() } else { plain };
    let limits = Limits {
        max_grid: [l.max_compute_workgroups_per_dimension; 3],
        max_local: [l.max_compute_workgroup_size_x, l.max_compute_workgroup_size_y, l.max_compute_workgroup_size_z],
        max_local_total: l.max_compute_invocations_per_workgroup,
        workgroup_bytes: l.max_compute_workgroup_storage_size as usize,
        max_buffers: l.max_storage_buffers_per_shader_stage.min(l.max_bindings_per_bind_group) as usize,
        max_buffer_bytes: usize::try_from(largest).unwrap_or(usize::MAX),
        // 16, so that a view whose elements are vec4 begins at a whole element
        offset_alignment: (l.min_storage_buffer_offset_alignment as usize).max(16),
        ..plain.limits
    };
    Target { limits, ..plain }
}

pub(crate) fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "wgpu".into(), what: what.into() }
}

/// The wgpu instance of the process. It keeps the drivers loaded, since loading one takes longer than opening a device.
fn instance() -> &'static gpu::Instance {
    static SHARED: OnceLock<gpu::Instance> = OnceLock::new();
    SHARED.get_or_init(|| gpu::Instance::new(gpu::InstanceDescriptor::new_without_display_handle()))
}

/// Polls a future until it is ready. On native platforms wgpu's futures are ready at once, or become ready
/// by themselves.
fn block_on<T>(f: impl Future<Output = T>) -> T {
    let mut f = pin!(f);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match f.as_mut().poll(&mut cx) {
            Poll::Ready(v) => return v,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
