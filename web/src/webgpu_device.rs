//! The WebGPU device through web-sys: pipelines are compiled asynchronously and in parallel, bind group layouts are
//! cached by signature and bind groups by their bindings, a plan is one pass and one submit (bounded, so that no submit
//! occupies the GPU for long), launch scalars are in one uniform buffer with dynamic offsets, and readbacks are
//! asynchronous. Buffers are in `webgpu_memory`; `webgpu_open` creates the device.
//!
//! Errors that WebGPU reports later (out of memory, a shader that does not compile, a lost device) are returned by the
//! next call.

use crate::js::{self, object, text};
use crate::scheduler::Pace;
use crate::signal::Signal;
use crate::webgpu_memory::{BufferRange, Buffers, scoped};
use crate::webgpu_open::{limit, target};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::wgsl::WgslRenderer;
use gradloom_core::render::{Code, Renderer, Source};
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use js_sys::{Array, Function, Object, Reflect, Uint8Array};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{
    GpuBindGroup, GpuBindGroupLayout, GpuBuffer, GpuCommandEncoder, GpuComputePassEncoder, GpuComputePipeline,
    GpuDevice, GpuErrorFilter, GpuPipelineLayout, GpuQueue, gpu_buffer_usage as usage, gpu_map_mode, gpu_shader_stage,
};

/// Limits of one command buffer: after this many bytes moved, or launches, the commands so far are submitted. How much is
/// submitted in all before the page continues is decided by time (`scheduler.rs`).
const SUBMIT_BYTES: usize = 64 << 20;
const SUBMIT_LAUNCHES: usize = 256;
/// How many calls of `submit` may be pending when another one is made: the GPU then has the next work ready when one
/// ends.
const MAX_PENDING_SUBMITS: usize = 2;
/// Bytes of the uniform buffer.
const UNIFORM_BYTES: usize = 256 << 10;
/// Number of cached bind groups at which the cache is cleared.
const MAX_GROUPS: usize = 8192;

/// State that asynchronous events write and the device reads.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) signal: Signal,
    compiling: Cell<usize>,
    /// Number of calls of `submit` whose work is not known to be done.
    pending_submits: Cell<usize>,
    error: RefCell<Option<Error>>,
    lost: RefCell<Option<String>>,
    pipelines: RefCell<Vec<Option<GpuComputePipeline>>>,
    reads: RefCell<FxHashMap<u32, Option<Result<Vec<u8>>>>>,
    staging: RefCell<Vec<(usize, GpuBuffer)>>,
}

impl Shared {
    /// Stores the first error until a call returns it.
    pub(crate) fn fail(&self, e: Error) {
        self.error.borrow_mut().get_or_insert(e);
        self.signal.fire();
    }

    /// Marks the device as lost, keeping the first known reason.
    fn lose(&self, why: String) {
        self.signal.lose(&why);
        self.lost.borrow_mut().get_or_insert(if why.is_empty() { "no reason given".into() } else { why });
    }

    fn check(&self) -> Result<()> {
        if let Some(why) = &*self.lost.borrow() {
            return Err(Error::Lost { device: "webgpu".into(), what: why.clone() });
        }
        match self.error.borrow_mut().take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}

/// Bind group layouts and the pipeline layout of a signature.
struct Layout {
    buffers: GpuBindGroupLayout,
    pipeline: GpuPipelineLayout,
}

struct Kernel {
    name: String,
    code: String,
    written: Vec<bool>,
    vars: usize,
    layout: usize,
    /// The variant for launches in which one buffer is both read and written: all bindings are declared as written.
    alias: Option<(usize, GpuComputePipeline)>,
}

/// A WebGPU device.
pub struct WebGpuDevice {
    pub(crate) target: Target,
    pub(crate) notes: Vec<String>,
    device: GpuDevice,
    /// Whether this package created the device. A device of the page may report errors of the page's own work and is
    /// not destroyed with this one.
    owns_device: bool,
    queue: GpuQueue,
    shared: Rc<Shared>,
    pace: Rc<Pace>,
    buffers: Rc<RefCell<Buffers>>,
    kernels: Vec<Option<Kernel>>,
    layouts: Vec<Layout>,
    layout_ids: FxHashMap<(Vec<bool>, usize), usize>,
    groups: FxHashMap<(usize, Vec<(u32, usize, usize)>), GpuBindGroup>,
    uniform: GpuBuffer,
    uniform_layouts: FxHashMap<usize, (GpuBindGroupLayout, GpuBindGroup)>,
    uniform_align: usize,
    next_ticket: u32,
    _on_error: Closure<dyn FnMut(JsValue)>,
}

pub(crate) fn failed(what: impl Into<String>) -> Error {
    Error::Device { device: "webgpu".into(), what: what.into() }
}

impl WebGpuDevice {
    pub(crate) fn new(device: GpuDevice, owns_device: bool) -> Result<WebGpuDevice> {
        let limits: JsValue = device.limits().into();
        let target = target(&limits);
        let shared = Rc::new(Shared::default());
        let lost = shared.clone();
        let promise = JsFuture::from(device.lost());
        spawn_local(async move {
            let why = match promise.await {
                Ok(info) => js::get(&info, "message").as_string().unwrap_or_default(),
                Err(e) => text(&e),
            };
            lost.lose(why);
        });
        let errors = shared.clone();
        let on_error = Closure::new(move |event: JsValue| {
            errors.fail(failed(text(&js::get(&event, "error"))));
        });
        if owns_device {
            js::set(&device, "onuncapturederror", on_error.as_ref());
        }
        let descriptor =
            object(&[("size", (UNIFORM_BYTES as u32).into()), ("usage", (usage::UNIFORM | usage::COPY_DST).into())]);
        let uniform = device.create_buffer(descriptor.unchecked_ref()).map_err(|e| failed(text(&e)))?;
        let queue = device.queue();
        let buffers = Buffers::new(device.clone(), queue.clone(), shared.clone(), target.limits.max_buffer_bytes);
        let buffers = Rc::new(RefCell::new(buffers));
        Ok(WebGpuDevice {
            target,
            notes: Vec::new(),
            queue,
            shared,
            pace: Pace::new(),
            buffers,
            kernels: Vec::new(),
            layouts: Vec::new(),
            layout_ids: FxHashMap::default(),
            groups: FxHashMap::default(),
            uniform,
            uniform_layouts: FxHashMap::default(),
            uniform_align: limit(&limits, "minUniformBufferOffsetAlignment", 256),
            next_ticket: 0,
            _on_error: on_error,
            owns_device,
            device,
        })
    }

    /// Fires when a pipeline, a readback, an error or a loss has arrived.
    pub fn signal(&self) -> Signal {
        self.shared.signal.clone()
    }

    /// How fast submits are done.
    pub(crate) fn pace(&self) -> Rc<Pace> {
        self.pace.clone()
    }

    /// The browser's `GPUDevice`.
    pub fn gpu(&self) -> JsValue {
        self.device.clone().into()
    }

    /// Its allocations, for sharing with the page.
    pub(crate) fn buffers(&self) -> Rc<RefCell<Buffers>> {
        self.buffers.clone()
    }

    /// Returns an error that has been reported since, or the loss.
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// The layout of a signature: which slots are written, and how many vec4 of launch scalars there are.
    fn layout(&mut self, written: &[bool], vars: usize) -> usize {
        let words = vars.div_ceil(4);
        let key = (written.to_vec(), words);
        if let Some(&i) = self.layout_ids.get(&key) {
            return i;
        }
        let entries: Array = written
            .iter()
            .enumerate()
            .map(|(i, &w)| {
                let kind = if w { "storage" } else { "read-only-storage" };
                binding(i as u32, &[("type", kind.into())])
            })
            .collect();
        let buffers = self.device.create_bind_group_layout(object(&[("entries", entries.into())]).unchecked_ref());
        let buffers = match buffers {
            Ok(l) => l,
            Err(e) => {
                self.shared.fail(failed(text(&e)));
                return 0;
            }
        };
        let groups = Array::of1(&buffers);
        if words > 0 {
            groups.push(&self.uniform_group(words).0);
        }
        let pipeline =
            self.device.create_pipeline_layout(object(&[("bindGroupLayouts", groups.into())]).unchecked_ref());
        self.layouts.push(Layout { buffers, pipeline });
        self.layout_ids.insert(key, self.layouts.len() - 1);
        self.layouts.len() - 1
    }

    /// Layout and bind group of the uniform buffer, seen as `words` vec4 at a dynamic offset.
    fn uniform_group(&mut self, words: usize) -> (GpuBindGroupLayout, GpuBindGroup) {
        if let Some(g) = self.uniform_layouts.get(&words) {
            return g.clone();
        }
        let entry = binding(0, &[("type", "uniform".into()), ("hasDynamicOffset", true.into())]);
        let layout: GpuBindGroupLayout = match self
            .device
            .create_bind_group_layout(object(&[("entries", Array::of1(&entry).into())]).unchecked_ref())
        {
            Ok(l) => l,
            Err(e) => {
                self.shared.fail(failed(text(&e)));
                JsValue::UNDEFINED.unchecked_into()
            }
        };
        let resource = object(&[("buffer", self.uniform.clone().into()), ("size", (words as u32 * 16).into())]);
        let entry = object(&[("binding", 0.into()), ("resource", resource.into())]);
        let descriptor = object(&[("layout", layout.clone().into()), ("entries", Array::of1(&entry).into())]);
        let group = self.device.create_bind_group(descriptor.unchecked_ref());
        self.uniform_layouts.insert(words, (layout, group));
        self.uniform_layouts[&words].clone()
    }

    fn pipeline_descriptor(&self, name: &str, code: &str, layout: usize) -> Object {
        let module = self.device.create_shader_module(object(&[("code", code.into())]).unchecked_ref());
        let compute = object(&[("module", module.into()), ("entryPoint", "main".into())]);
        object(&[
            ("label", name.into()),
            ("layout", self.layouts[layout].pipeline.clone().into()),
            ("compute", compute.into()),
        ])
    }

    /// The bind group of these views for a layout, cached.
    fn group(&mut self, layout: usize, args: &[View]) -> Result<GpuBindGroup> {
        let mut key = Vec::with_capacity(args.len());
        for v in args {
            let place = self.buffers.borrow().view(v)?;
            key.push((place.id, place.at, place.bytes));
        }
        let key = (layout, key);
        if let Some(g) = self.groups.get(&key) {
            return Ok(g.clone());
        }
        let entries = Array::new();
        for (i, v) in args.iter().enumerate() {
            let place = self.buffers.borrow().view(v)?;
            let resource = object(&[
                ("buffer", place.gpu.into()),
                ("offset", (place.at as f64).into()),
                ("size", (place.bytes as f64).into()),
            ]);
            entries.push(&object(&[("binding", (i as u32).into()), ("resource", resource.into())]));
        }
        let layout = self.layouts[layout].buffers.clone();
        let descriptor = object(&[("layout", layout.into()), ("entries", entries.into())]);
        let group = self.device.create_bind_group(descriptor.unchecked_ref());
        if self.groups.len() >= MAX_GROUPS {
            self.groups.clear();
        }
        self.groups.insert(key, group.clone());
        Ok(group)
    }

    /// Pipeline and layout of a launch. WebGPU forbids a buffer to be read-only in one binding of a dispatch and
    /// written in another; such a launch uses a pipeline variant that declares all bindings as written.
    fn pipeline(&mut self, kernel: KernelId, args: &[View]) -> Result<(GpuComputePipeline, usize, usize)> {
        let i = kernel.0 as usize;
        let Some(Some(k)) = self.kernels.get(i) else { return Err(failed(format!("{kernel:?} is not compiled"))) };
        if k.written.len() != args.len() {
            return Err(failed(format!("{} takes {} buffers, not {}", k.name, k.written.len(), args.len())));
        }
        let mut alias = false;
        for (a, _) in args.iter().zip(&k.written).filter(|(_, w)| **w) {
            for (b, _) in args.iter().zip(&k.written).filter(|(_, w)| !**w) {
                match self.buffers.borrow().overlap(a, b) {
                    Some(true) => return Err(failed(format!("{} reads and writes {a:?}", k.name))),
                    Some(false) => alias = true,
                    None => {}
                }
            }
        }
        let vars = k.vars;
        if !alias {
            let p = self.shared.pipelines.borrow()[i].clone();
            let layout = k.layout;
            return p.map(|p| (p, layout, vars)).ok_or_else(|| failed("submitted before the kernels are compiled"));
        }
        if let Some((layout, p)) = &k.alias {
            return Ok((p.clone(), *layout, vars));
        }
        let (name, code) = (k.name.clone(), k.code.replace("var<storage, read>", "var<storage, read_write>"));
        let layout = self.layout(&vec![true; args.len()], vars);
        let descriptor = self.pipeline_descriptor(&name, &code, layout);
        let p = self.device.create_compute_pipeline(descriptor.unchecked_ref());
        if let Some(Some(k)) = self.kernels.get_mut(i) {
            k.alias = Some((layout, p.clone()));
        }
        Ok((p, layout, vars))
    }

    fn finish(&self, commands: &mut PendingCommands) {
        if let Some(p) = commands.pass.take() {
            p.end();
        }
        if let Some(e) = commands.encoder.take() {
            if !commands.scalars.is_empty() {
                let _ = self.queue.write_buffer_with_u32_and_u8_slice(&self.uniform, 0, &commands.scalars);
                commands.scalars.clear();
            }
            self.queue.submit(&[e.finish()]);
        }
        (commands.bytes, commands.launches) = (0, 0);
    }
}

/// Recorded commands that are not submitted yet.
#[derive(Default)]
struct PendingCommands {
    encoder: Option<GpuCommandEncoder>,
    pass: Option<GpuComputePassEncoder>,
    scalars: Vec<u8>,
    bytes: usize,
    launches: usize,
}

impl PendingCommands {
    fn encoder(&mut self, device: &GpuDevice) -> GpuCommandEncoder {
        self.encoder.get_or_insert_with(|| device.create_command_encoder()).clone()
    }
}

fn binding(i: u32, buffer: &[(&str, JsValue)]) -> Object {
    object(&[
        ("binding", i.into()),
        ("visibility", gpu_shader_stage::COMPUTE.into()),
        ("buffer", object(buffer).into()),
    ])
}

impl Device for WebGpuDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn renderer(&self) -> &'static dyn Renderer {
        &WgslRenderer
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        self.shared.check()?;
        self.buffers.borrow_mut().alloc(bytes)
    }

    fn free(&mut self, buf: BufId) {
        let gone = self.buffers.borrow_mut().free(buf);
        if let Some(id) = gone {
            self.groups.retain(|key, _| key.1.iter().all(|v| v.0 != id));
        }
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.shared.check()?;
        self.buffers.borrow_mut().upload(buf, offset, data)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.shared.check()?;
        let mut ids = Vec::with_capacity(sources.len());
        for s in sources {
            let Code::Text(code) = &s.code else { return Err(failed(format!("{} is not WGSL", s.name))) };
            let written: Vec<bool> = s.params.iter().map(|p| p.written).collect();
            let layout = self.layout(&written, s.vars.len());
            // an invalid shader rejects the pipeline's promise; the report of the shader module would only repeat the
            // error, so it is caught and dropped
            self.device.push_error_scope(GpuErrorFilter::Validation);
            let descriptor = self.pipeline_descriptor(&s.name, code, layout);
            // create the futures before the task is spawned, here and below: a rejected promise without a handler would
            // be reported to the page as unhandled
            let promise = JsFuture::from(self.device.create_compute_pipeline_async(descriptor.unchecked_ref()));
            let scope = JsFuture::from(self.device.pop_error_scope());
            let id = self.kernels.len();
            self.shared.pipelines.borrow_mut().push(None);
            self.shared.compiling.set(self.shared.compiling.get() + 1);
            let (shared, name) = (self.shared.clone(), s.name.clone());
            spawn_local(async move {
                let reported = scope.await.ok().map(JsValue::from).filter(JsValue::is_object);
                let result = promise.await;
                shared.compiling.set(shared.compiling.get() - 1);
                match result {
                    Ok(p) => shared.pipelines.borrow_mut()[id] = Some(p.unchecked_into()),
                    Err(e) => {
                        let why = reported.map_or_else(|| text(&e), |r| text(&r));
                        shared.fail(failed(format!("kernel {name} does not compile: {why}")));
                    }
                }
                shared.signal.fire();
            });
            let (name, code) = (s.name.clone(), code.clone());
            self.kernels.push(Some(Kernel { name, code, written, vars: s.vars.len(), layout, alias: None }));
            ids.push(KernelId(id as u32));
        }
        Ok(ids)
    }

    fn compile_bytes(&self) -> usize {
        // a call takes a millisecond of the page's thread, and the browser compiles in other threads
        1
    }

    fn ready(&mut self) -> Result<bool> {
        self.shared.check()?;
        Ok(self.shared.compiling.get() == 0)
    }

    fn release(&mut self, kernel: KernelId) {
        if let Some(k) = self.kernels.get_mut(kernel.0 as usize) {
            *k = None;
            self.shared.pipelines.borrow_mut()[kernel.0 as usize] = None;
        }
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.shared.check()?;
        if self.owns_device {
            return self.encode(steps);
        }
        let (device, shared) = (self.device.clone(), self.shared.clone());
        scoped(&device, &shared, 0, || Ok(self.encode(steps)))?
    }

    fn has_room(&mut self) -> Result<bool> {
        self.shared.check()?;
        Ok(self.shared.pending_submits.get() < MAX_PENDING_SUBMITS)
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.shared.check()?;
        self.buffers.borrow_mut().flush();
        let BufferRange { gpu: buffer, at, bytes, .. } = self.buffers.borrow().view(&view)?;
        let staging = self.staging(bytes)?;
        let encoder = self.device.create_command_encoder();
        encoder
            .copy_buffer_to_buffer_with_f64_and_f64_and_f64(&buffer, at as f64, &staging.1, 0.0, bytes as f64)
            .map_err(|e| failed(text(&e)))?;
        self.queue.submit(&[encoder.finish()]);
        let promise = JsFuture::from(staging.1.map_async_with_f64_and_f64(gpu_map_mode::READ, 0.0, bytes as f64));
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.shared.reads.borrow_mut().insert(ticket, None);
        let shared = self.shared.clone();
        spawn_local(async move {
            let mapped = promise.await;
            let out = mapped
                .and_then(|_| staging.1.get_mapped_range_with_f64_and_f64(0.0, bytes as f64))
                .map(|range| {
                    let mut out = vec![0; view.bytes];
                    Uint8Array::new(&range).subarray(0, view.bytes as u32).copy_to(&mut out);
                    staging.1.unmap();
                    out
                })
                .map_err(|e| {
                    // a lost device does this, perhaps before it reports the loss
                    shared.lose(format!("readback: {}", text(&e)));
                    failed("a readback failed")
                });
            if out.is_ok() {
                shared.staging.borrow_mut().push(staging);
            }
            shared.reads.borrow_mut().insert(ticket, Some(out));
            shared.signal.fire();
        });
        Ok(Ticket(ticket))
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        let mut reads = self.shared.reads.borrow_mut();
        match reads.get_mut(&ticket.0) {
            None => Err(failed(format!("{ticket:?} is not a readback"))),
            Some(slot) => match slot.take() {
                Some(r) => {
                    reads.remove(&ticket.0);
                    // results of a plan that failed are not valid
                    self.shared.check()?;
                    r.map(Some)
                }
                None => self.shared.check().map(|()| None),
            },
        }
    }
}

impl WebGpuDevice {
    /// Encodes and submits the steps.
    fn encode(&mut self, steps: &[Step]) -> Result<()> {
        self.buffers.borrow_mut().flush();
        let mut commands = PendingCommands::default();
        for step in steps {
            match step {
                Step::Launch { kernel, args, grid, vars } => {
                    if grid.contains(&0) {
                        continue;
                    }
                    let (pipeline, layout, n_vars) = self.pipeline(*kernel, args)?;
                    if vars.len() != n_vars {
                        return Err(failed(format!("{kernel:?} takes {n_vars} scalars, not {}", vars.len())));
                    }
                    let group = self.group(layout, args)?;
                    let words = n_vars.div_ceil(4);
                    if commands.scalars.len() + words * 16 + self.uniform_align > UNIFORM_BYTES {
                        self.finish(&mut commands);
                    }
                    let encoder = commands.encoder(&self.device);
                    let pass = commands.pass.get_or_insert_with(|| encoder.begin_compute_pass()).clone();
                    pass.set_pipeline(&pipeline);
                    pass.set_bind_group(0, Some(&group));
                    if words > 0 {
                        let at = commands.scalars.len().next_multiple_of(self.uniform_align);
                        commands.scalars.resize(at, 0);
                        commands.scalars.extend(vars.iter().flat_map(|v| v.to_le_bytes()));
                        commands.scalars.resize(at + words * 16, 0);
                        let group = self.uniform_group(words).1;
                        set_dynamic(&pass, &group, at as u32)?;
                    }
                    pass.dispatch_workgroups_with_workgroup_count_y_and_workgroup_count_z(grid[0], grid[1], grid[2]);
                    commands.launches += 1;
                    commands.bytes += args.iter().map(|a| a.bytes).sum::<usize>();
                }
                Step::Copy { src, dst } => {
                    let encoder = commands.encoder(&self.device);
                    if let Some(p) = commands.pass.take() {
                        p.end();
                    }
                    let (from, to) = (self.buffers.borrow().view(src)?, self.buffers.borrow().view(dst)?);
                    let bytes = from.bytes;
                    if src.bytes != dst.bytes || to.bytes < bytes {
                        return Err(failed(format!("copy of {} bytes to {}", src.bytes, dst.bytes)));
                    }
                    encoder
                        .copy_buffer_to_buffer_with_f64_and_f64_and_f64(
                            &from.gpu,
                            from.at as f64,
                            &to.gpu,
                            to.at as f64,
                            bytes as f64,
                        )
                        .map_err(|e| failed(text(&e)))?;
                    commands.bytes += 2 * bytes;
                }
            }
            if commands.bytes > SUBMIT_BYTES || commands.launches >= SUBMIT_LAUNCHES {
                self.finish(&mut commands);
            }
        }
        self.finish(&mut commands);
        self.shared.pending_submits.set(self.shared.pending_submits.get() + 1);
        let (shared, done) = (self.shared.clone(), JsFuture::from(self.queue.on_submitted_work_done()));
        let (pace, submit) = (self.pace.clone(), self.pace.begin());
        spawn_local(async move {
            // on a lost device the promise may reject: then nothing is pending on it either
            let _ = done.await;
            pace.end(submit);
            shared.pending_submits.set(shared.pending_submits.get() - 1);
            shared.signal.fire();
        });
        Ok(())
    }

    /// A mappable buffer of at least this size, reusing a free one if possible.
    fn staging(&mut self, bytes: usize) -> Result<(usize, GpuBuffer)> {
        let size = bytes.next_power_of_two().max(256);
        let mut free = self.shared.staging.borrow_mut();
        if let Some(i) = free.iter().position(|s| s.0 == size) {
            return Ok(free.swap_remove(i));
        }
        // few sizes are in use at a time, so drop the oldest free buffers
        if free.len() > 8 {
            free.drain(..4).for_each(|(_, b)| b.destroy());
        }
        drop(free);
        let d = object(&[("size", (size as f64).into()), ("usage", (usage::MAP_READ | usage::COPY_DST).into())]);
        let b = scoped(&self.device, &self.shared, size, || self.device.create_buffer(d.unchecked_ref()))?;
        Ok((size, b))
    }
}

impl Drop for WebGpuDevice {
    fn drop(&mut self) {
        if self.owns_device {
            self.device.set_onuncapturederror(None);
            self.device.destroy();
        }
    }
}

fn set_dynamic(pass: &GpuComputePassEncoder, group: &GpuBindGroup, offset: u32) -> Result<()> {
    let f = Reflect::get(pass, &"setBindGroup".into()).map(|f| f.unchecked_into::<Function>());
    let set = f.and_then(|f| f.call3(pass, &1.into(), group, &Array::of1(&offset.into())));
    set.map(|_| ()).map_err(|e| failed(text(&e)))
}
