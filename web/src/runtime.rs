//! The interface to JavaScript: a [`Runtime`] is one device with one session. Tensors are integer ids here (the
//! TypeScript package wraps them), which keeps the binding code small; every tensor op is called through
//! [`Runtime::op`].
//!
//! Asynchronous work runs one piece at a time: a graph must not be compacted while another part of the page is between
//! planning and running.

use crate::args::{budget_of, dtype, name_of};
use crate::cache_host::{self, Store, WebHost};
use crate::file::FileBuffer;
use crate::js::{is_aborted, now, now_or_promise, set};
use crate::ops;
use crate::scheduler::{Executor, Scheduler};
use crate::signal::Signal;
use crate::threads::Handle;
use crate::tune::Tuner;
use crate::values::{self, DeviceCounters, DeviceInfo, ModelInfo, Port, TunedKernel, to_js};
use crate::wasm_device::WasmDevice;
use crate::webgpu_device::WebGpuDevice;
use crate::webgpu_memory::Buffers;
use gradloom_core::device::Device;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Bytes, Counters, Engine, Replay, RootId};
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{Input, Model, NoExternalData, Operators, Run, Runner};
use gradloom_core::io::safetensors;
use gradloom_core::tensor::{Session, Tensor, wire};
use gradloom_core::{DType, Error, Result};
use js_sys::WebAssembly::Memory;
use js_sys::{Array, Uint8Array};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tsify::Ts;
use wasm_bindgen::prelude::*;

/// A device, its session, and the tables of tensors and models that JavaScript refers to by id.
#[wasm_bindgen]
pub struct Runtime {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: RefCell<Engine>,
    pub(crate) session: Session,
    tensors: RefCell<Slab<Tensor>>,
    models: RefCell<Slab<Rc<RefCell<Runner>>>>,
    /// Fires when the device has made progress.
    pub(crate) signal: Signal,
    /// Milliseconds that the device spent compiling within synchronous calls.
    device_ms: Rc<Cell<f64>>,
    times: Cell<Times>,
    groups: Array,
    /// Reads outputs with padding for the largest lengths; set once a model has variable lengths.
    pub(crate) read_padded: Cell<Option<ReadPadded>>,
    pub(crate) locked: Cell<bool>,
    unlocked: Signal,
    pub(crate) scheduler: Scheduler,
    pub(crate) device_kind: DeviceKind,
}

/// Reads a value that lies in a larger array (`lengths.rs`) without the padding around it; `None` for other values.
pub(crate) type ReadPadded = fn(&Rc<Inner>, &Tensor) -> Option<Pin<Box<dyn Future<Output = Result<Vec<u8>>>>>>;

/// The kind of device, with the objects that are shared with JavaScript.
pub(crate) enum DeviceKind {
    /// The browser's `GPUDevice`, and its allocations.
    WebGpu(JsValue, Rc<RefCell<Buffers>>),
    /// Worker threads, if there are any, and the memory that holds all buffers.
    Wasm(Option<Handle>, Memory),
}

/// Milliseconds spent on planning and generating code, on waiting for the device to compile it, and on running.
#[derive(Clone, Copy, Default)]
struct Times {
    plan: f64,
    device: f64,
    run: f64,
}

impl Times {
    fn minus(self, t: Times) -> Times {
        Times { plan: self.plan - t.plan, device: self.device - t.device, run: self.run - t.run }
    }
}

/// Values by id; ids of freed values are reused.
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T: Clone> Slab<T> {
    fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, t: T) -> u32 {
        match self.free.pop() {
            Some(i) => {
                self.items[i as usize] = Some(t);
                i
            }
            None => {
                self.items.push(Some(t));
                self.items.len() as u32 - 1
            }
        }
    }

    fn get(&self, i: u32, what: &str) -> Result<T> {
        let gone = || Error::value("dispose", format!("this {what} was disposed"));
        self.items.get(i as usize).cloned().flatten().ok_or_else(gone)
    }

    fn remove(&mut self, i: u32) -> Option<T> {
        let t = self.items.get_mut(i as usize)?.take()?;
        self.free.push(i);
        Some(t)
    }
}

/// Converts an error to a JavaScript `Error` with a stable `code`.
pub(crate) fn throw(e: Error) -> JsValue {
    let js: JsValue = js_sys::Error::new(&e.to_string()).into();
    set(&js, "code", &e.code().into());
    js
}

/// The lock that serialises asynchronous work; dropping it lets the next piece start.
pub(crate) struct LockGuard(Rc<Inner>);

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.locked.set(false);
        self.0.unlocked.fire();
    }
}

impl Inner {
    pub(crate) async fn lock(self: &Rc<Inner>) -> LockGuard {
        while self.locked.replace(true) {
            self.unlocked.wait().await;
        }
        LockGuard(self.clone())
    }

    /// Waits until every kernel is compiled.
    pub(crate) async fn wait_compiled(&self) -> Result<()> {
        if self.engine.borrow_mut().ready()? {
            return Ok(()); // the usual case: reading the clock would take longer than this check
        }
        let start = now();
        while !self.engine.borrow_mut().ready()? {
            self.signal.wait().await;
        }
        self.add_times(Times { device: now() - start, ..Times::default() });
        Ok(())
    }

    /// Waits until a run can continue: its kernels are compiled, and the values it reads have arrived.
    async fn wait_ready(&self, runner: &RefCell<Runner>, run: &mut Run) -> Result<()> {
        if runner.borrow().ready(&mut self.engine.borrow_mut(), run)? {
            return Ok(()); // as in `wait_compiled`
        }
        let start = now();
        while !runner.borrow().ready(&mut self.engine.borrow_mut(), run)? {
            self.signal.wait().await;
        }
        let waited = now() - start;
        self.add_times(if run.reads() {
            Times { run: waited, ..Times::default() }
        } else {
            Times { device: waited, ..Times::default() }
        });
        Ok(())
    }

    fn add_times(&self, t: Times) {
        let Times { plan, device, run } = self.times.get();
        self.times.set(Times { plan: plan + t.plan, device: device + t.device, run: run + t.run });
    }

    /// Runs a piece of planning and records its time; compilation by the device in between counts as the device's time.
    fn time_planning<T>(&self, work: impl FnOnce() -> T) -> T {
        let (start, before) = (now(), self.device_ms.get());
        let out = work();
        let (took, device) = (now() - start, self.device_ms.get() - before);
        self.scheduler.record_planning(took);
        self.add_times(Times { plan: took - device, device, run: 0.0 });
        out
    }

    pub(crate) fn time_running<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = now();
        let out = work();
        self.add_times(Times { run: now() - start, ..Times::default() });
        out
    }

    /// Computes roots; the result can repeat the computation.
    pub(crate) async fn realize(self: &Rc<Inner>, roots: Vec<RootId>, abort: &JsValue) -> Result<Replay> {
        let _guard = self.lock().await;
        let nodes = self.session.state().graph.len();
        self.scheduler.begin_with_nodes(nodes).await;
        self.scheduler.yield_if_due(abort).await?;
        let mut starting = self.time_planning(|| self.engine.borrow_mut().begin(&mut self.session.state(), &roots))?;
        let pending = loop {
            self.scheduler.yield_before_planning(abort).await?;
            if let Some(done) = self.time_planning(|| self.engine.borrow_mut().go_on(&mut starting))? {
                break done;
            }
        };
        self.wait_compiled().await?;
        self.scheduler.yield_if_due(abort).await?;
        // worker threads may still be busy with the previous run, and allocation would block on them
        self.scheduler.wait_idle(&self.engine).await?;
        while !self.time_running(|| self.engine.borrow_mut().bring(&mut self.session.state(), &pending))? {
            self.scheduler.set_deadline(true);
            self.scheduler.wait_for_capacity(&self.engine, false, abort).await?;
            self.scheduler.yield_if_due(abort).await?;
        }
        let launch = || self.engine.borrow_mut().launch(&mut self.session.state(), pending);
        let mut run = self.time_running(launch)?;
        let start = now();
        self.scheduler.submit(&self.engine, &mut run, abort).await?;
        self.add_times(Times { run: now() - start, ..Times::default() });
        let mut engine = self.engine.borrow_mut();
        let mut state = self.session.state();
        let replay = self.time_running(|| engine.concluded(&mut state, run))?;
        if state.wants_compaction() || state.wants_memory() {
            engine.collect(&mut state);
        }
        self.scheduler.record_nodes(state.graph.len());
        Ok(replay)
    }

    /// Computes those of these tensors that are not computed yet. Planning is skipped if all are, such as a model's
    /// outputs or data from the host: finding that there is nothing to compute takes longer than reading a few values.
    pub(crate) async fn compute(self: &Rc<Inner>, tensors: &[Tensor], abort: &JsValue) -> Result<()> {
        if self.locked.get() || is_aborted(abort) || tensors.iter().any(|t| t.buffer().is_none()) {
            self.realize(tensors.iter().map(Tensor::root).collect(), abort).await?;
        }
        Ok(())
    }

    pub(crate) fn tensor(&self, id: u32) -> Result<Tensor> {
        self.tensors.borrow().get(id, "tensor")
    }

    pub(crate) fn add_tensor(&self, t: Tensor) -> u32 {
        self.tensors.borrow_mut().add(t)
    }

    /// A loaded model.
    pub(crate) fn runner(&self, id: u32) -> Result<Rc<RefCell<Runner>>> {
        self.models.borrow().get(id, "model")
    }

    /// Parses a model with a set of supported operators.
    pub(crate) fn parse(
        &self,
        file: &FileBuffer,
        every_value: bool,
        budget: &JsValue,
        operators: Operators,
    ) -> Result<u32> {
        let model = Model::parse_of(file.bytes.clone().into(), Arc::new(NoExternalData), operators)?;
        let mut model = model.with_budget(budget_of(budget));
        if every_value {
            model = model.with_every_value();
        }
        Ok(self.add_runner(Runner::new(Arc::new(model), &self.session)))
    }

    pub(crate) fn add_runner(&self, runner: Runner) -> u32 {
        self.models.borrow_mut().add(Rc::new(RefCell::new(runner)))
    }
}

fn new_runtime(
    device: Box<dyn Device>,
    device_kind: DeviceKind,
    executor: Executor,
    signal: Signal,
    device_ms: Rc<Cell<f64>>,
    store: Option<Store>,
) -> Runtime {
    let groups = cache_host::group_names(device.target());
    let session = Session::for_target(device.target());
    let mut engine = match store {
        Some(s) => {
            let host = WebHost::new(s, device.target());
            Engine::with_host(device, Box::new(host))
        }
        None => Engine::new(device),
    };
    engine.keep_graphs();
    let scheduler = Scheduler::new(executor);
    engine.set_interrupt(scheduler.interrupt());
    Runtime {
        inner: Rc::new(Inner {
            engine: RefCell::new(engine),
            session,
            tensors: RefCell::new(Slab::new()),
            models: RefCell::new(Slab::new()),
            signal,
            device_ms,
            times: Cell::default(),
            groups,
            read_padded: Cell::default(),
            locked: Cell::new(false),
            unlocked: Signal::default(),
            scheduler,
            device_kind,
        }),
    }
}

/// The WebGPU device of this browser, or undefined where there is none; or the page's own `page_device`, which stays
/// the page's. Compiled code is kept in `store`, if given.
#[wasm_bindgen(js_name = webgpuRuntime)]
pub async fn webgpu_runtime(
    store: Option<Store>,
    hardware: bool,
    page_device: JsValue,
) -> std::result::Result<Option<Runtime>, JsValue> {
    let device = match page_device.is_undefined() {
        true => WebGpuDevice::request(hardware).await.map_err(throw)?,
        false => Some(WebGpuDevice::from_page_device(page_device, hardware).await.map_err(throw)?),
    };
    let Some(device) = device else { return Ok(None) };
    let (signal, device_kind) = (device.signal(), DeviceKind::WebGpu(device.gpu(), device.buffers()));
    let executor = Executor::gpu(signal.clone(), device.pace());
    Ok(Some(new_runtime(Box::new(device), device_kind, executor, signal, Rc::default(), store)))
}

/// The WebAssembly device with the given worker threads; single-threaded without workers or without shared memory.
#[wasm_bindgen(js_name = wasmRuntime)]
pub fn wasm_runtime(shared: bool, workers: &Array, store: Option<Store>) -> std::result::Result<Runtime, JsValue> {
    let mut device = WasmDevice::new(shared).map_err(throw)?;
    if shared && workers.length() > 0 {
        device.add_threads(workers).map_err(throw)?;
    }
    let (signal, compile_ms, threads, memory) =
        (device.signal(), device.compile_ms(), device.threads(), device.memory());
    let executor = Executor::MainThread { deadline: device.deadline(), single_threaded: threads.is_none() };
    Ok(new_runtime(Box::new(device), DeviceKind::Wasm(threads, memory), executor, signal, compile_ms, store))
}

async fn run_model(
    inner: Rc<Inner>,
    id: u32,
    inputs: Array,
    progress: Option<js_sys::Function>,
    abort: JsValue,
) -> std::result::Result<JsValue, JsValue> {
    let runner = inner.runner(id).map_err(throw)?;
    let names: Vec<String> = inputs.iter().map(|i| name_of(i.unchecked_ref())).collect();
    let mut given: Vec<(&str, Input)> = Vec::with_capacity(names.len());
    for (name, i) in names.iter().zip(inputs.iter()) {
        let input = inner.input(&runner, name, i.unchecked_ref(), &given, &abort).await.map_err(throw)?;
        given.push((name, input));
    }
    // reading a tensor yields, and other runs may then take inputs that this one has checked: so check again after each
    // read
    loop {
        let unfit = runner.borrow().unfit(&given).map_err(throw)?;
        let Some(&i) = unfit.first() else { break };
        let Input::Tensor(t) = &given[i].1 else { break };
        let t = t.clone();
        given[i].1 = Input::Host(inner.host_tensor(t, &abort).await.map_err(throw)?);
    }
    let inputs = runner.borrow().inputs(given).map_err(throw)?;
    let tell = |phase: &str| {
        if let Some(f) = &progress {
            let _ = f.call1(&JsValue::NULL, &phase.into());
        }
    };
    let _guard = inner.lock().await;
    inner.scheduler.begin();
    inner.scheduler.yield_if_due(&abort).await.map_err(throw)?;
    tell("compile");
    let (times, counters) = (inner.times.get(), inner.engine.borrow().counters());
    let begin = || runner.borrow_mut().begin_in_pieces(&mut inner.engine.borrow_mut(), inputs);
    let mut run = inner.time_planning(begin).map_err(throw)?;
    let mut told = false;
    loop {
        if run.plans() {
            told = false;
        } else if !run.is_submitting() {
            inner.wait_ready(&runner, &mut run).await.map_err(throw)?;
            if !std::mem::replace(&mut told, true) {
                tell("run");
            }
        }
        let (plans, brings, submits) = (run.folds(), run.uploads(), run.is_submitting() || run.replays());
        if brings || run.replays() {
            // worker threads may still be busy with an earlier run, and this piece would block on them
            inner.scheduler.wait_idle(&inner.engine).await.map_err(throw)?;
        }
        inner.scheduler.set_deadline(true);
        let work = inner.scheduler.portion();
        let piece = || runner.borrow_mut().step_once(&mut inner.engine.borrow_mut(), &mut run, work);
        let out = if plans { inner.time_planning(piece) } else { inner.time_running(piece) };
        if submits {
            inner.scheduler.measure_portion(&inner.engine);
        }
        let Some(out) = out.map_err(throw)? else {
            if brings || submits {
                let waits = now();
                let may_stop = submits && run.may_stop();
                inner.scheduler.wait_for_capacity(&inner.engine, may_stop, &abort).await.map_err(throw)?;
                inner.add_times(Times { run: now() - waits, ..Times::default() });
            }
            inner.scheduler.yield_if_due_abortable(run.may_stop(), &abort).await.map_err(throw)?;
            continue;
        };
        let on_host = matches!(inner.device_kind, DeviceKind::Wasm(..));
        let number = runner.borrow().repeatable().filter(|_| on_host).unwrap_or_default();
        inner.scheduler.wait_for_steps().await;
        // worker threads may still be running; where it can be measured, the run's time covers all of their work
        inner.time_running(|| inner.engine.borrow_mut().device().sync()).map_err(throw)?;
        let mut numbers = timing(inner.times.get().minus(times), counters, inner.engine.borrow().counters());
        let known = out.iter().map(|o| &o.0).eq(runner.borrow().model().outputs().iter().map(|p| &p.name));
        let names = || out.iter().map(|o| JsValue::from(&o.0)).collect::<Array>().into();
        let names = if known { JsValue::UNDEFINED } else { names() };
        numbers.extend(out.into_iter().map(|o| f64::from(inner.add_tensor(o.1))));
        // a plain array: making a typed array takes longer than adding so few numbers one by one
        let numbers: Array = numbers.into_iter().map(JsValue::from).collect();
        return Ok(Array::of3(&numbers, &names, &JsValue::from(number as f64)).into());
    }
}

/// `[planMs, deviceMs, runMs, plansMade, plansCached, kernelsCompiled, kernelsCached, fallbacks]` of some work: the
/// differences of times and counters between its start and end. JavaScript adds the names, since creating an object
/// here would cost as much as a small kernel.
fn timing(t: Times, from: Counters, to: Counters) -> Vec<f64> {
    let n = |f: fn(&Counters) -> u64| (f(&to) - f(&from)) as f64;
    let hits = |c: &Counters| c.cache_hits - c.programs_cached;
    let made = |c: &Counters| c.plans - (c.cache_hits - c.programs_cached);
    let (compiled, cached, fallbacks) = (n(|c| c.programs), n(|c| c.programs_cached), n(|c| c.fallbacks));
    vec![t.plan, t.device, t.run, n(made), n(hits), compiled, cached, fallbacks]
}

fn shape_array(shape: &[usize]) -> Array {
    shape.iter().map(|&n| JsValue::from(n as f64)).collect()
}

#[wasm_bindgen]
impl Runtime {
    /// Properties of the device.
    pub fn info(&self) -> std::result::Result<Ts<DeviceInfo>, JsValue> {
        let mut engine = self.inner.engine.borrow_mut();
        let notes = engine.device().notes().iter().map(ToString::to_string).collect();
        let t = engine.device().target();
        to_js(DeviceInfo {
            kind: if matches!(self.inner.device_kind, DeviceKind::WebGpu(..)) { "webgpu" } else { "wasm" },
            threads: t.limits.threads as f64,
            lanes: t.caps.lanes as f64,
            software: t.machine.software,
            relaxed_simd: t.caps.relaxed_simd,
            max_buffer_bytes: t.limits.max_buffer_bytes as f64,
            notes,
        })
    }

    /// Whether the device is lost, so that nothing can be computed with it or read from it.
    pub fn lost(&self) -> bool {
        self.inner.signal.is_lost()
    }

    /// Registers a function that receives the reason if the device is lost.
    #[wasm_bindgen(js_name = whenLost)]
    pub fn when_lost(&self, tell: js_sys::Function) {
        self.inner.signal.when_lost(tell);
    }

    /// The browser's `GPUDevice`, which the package destroys if this wasm instance ends; undefined on the WASM device.
    pub fn gpu(&self) -> JsValue {
        match &self.inner.device_kind {
            DeviceKind::WebGpu(gpu, _) => gpu.clone(),
            DeviceKind::Wasm(..) => JsValue::UNDEFINED,
        }
    }

    /// Reports that a worker of this device has ended.
    #[wasm_bindgen(js_name = workerGone)]
    pub fn worker_gone(&self, worker: &JsValue) {
        if let DeviceKind::Wasm(Some(threads), _) = &self.inner.device_kind {
            threads.remove_worker(worker);
        }
    }

    /// Recreates a model of another runtime, whose device is lost, on this one. Its weights are still in this
    /// instance's memory.
    #[wasm_bindgen(js_name = recreateModel)]
    pub fn recreate_model(&self, from: &Runtime, id: u32) -> std::result::Result<u32, JsValue> {
        let runner = from.inner.runner(id).map_err(throw)?;
        let model = runner.borrow().model().clone();
        let again = Runner::new(model, &self.inner.session);
        Ok(self.inner.add_runner(again))
    }

    /// Memory use and counters of the device.
    pub fn counters(&self) -> std::result::Result<Ts<DeviceCounters>, JsValue> {
        let live = self.inner.tensors.borrow().items.iter().flatten().count();
        to_js(DeviceCounters::new(self.inner.engine.borrow().counters(), live))
    }

    /// The same numbers as a run's timing (`runModel`), totalled since the start, followed by the number of kernels
    /// that tuning replaced.
    pub fn stats(&self) -> Vec<f64> {
        let c = self.inner.engine.borrow().counters();
        let mut out = timing(self.inner.times.get(), Counters::default(), c);
        out.push(c.adopted as f64);
        out
    }

    /// The groups of cache entries that this device uses.
    #[wasm_bindgen(js_name = cacheGroups)]
    pub fn cache_groups(&self) -> Array {
        self.inner.groups.clone()
    }

    /// Searches for faster kernels among those launched so far, for `ms` milliseconds of work. `request_slot` is called
    /// before each piece of work and resolves when there is time for it, to false if tuning should end. With
    /// `without_opts`, kernels are first compiled without opts.
    pub async fn tune(
        &self,
        ms: f64,
        request_slot: js_sys::Function,
        without_opts: bool,
    ) -> std::result::Result<Vec<Ts<TunedKernel>>, JsValue> {
        let list = Tuner::new(self.inner.clone(), request_slot, ms, without_opts).run().await.map_err(throw)?;
        values::to_js_list(list)
    }

    /// Limits the bytes of device memory that tensors may take.
    #[wasm_bindgen(js_name = setMemoryLimit)]
    pub fn set_memory_limit(&self, bytes: f64) {
        self.inner.engine.borrow_mut().set_memory_limit(bytes as usize);
    }

    /// Registers tuned opts for kernels compiled from now on, in the line format that `tune` returns.
    #[wasm_bindgen(js_name = addTuned)]
    pub fn add_tuned(&self, lines: &str) -> std::result::Result<usize, JsValue> {
        self.inner.engine.borrow_mut().add_tuned(lines).map_err(throw)
    }

    /// Creates a tensor from host bytes (little-endian elements).
    pub fn tensor(&self, dt: &str, shape: &[u32], data: Vec<u8>) -> std::result::Result<u32, JsValue> {
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let make = || -> Result<Tensor> {
            let host = HostTensor::new(dtype(dt)?, shape, data)?;
            Tensor::from_bytes(&self.inner.session, host.dtype, &host.shape, Bytes::new(host.data))
        };
        Ok(self.inner.add_tensor(make().map_err(throw)?))
    }

    /// Runs a tensor op by name: operands are ids, all other arguments numbers (see `ops`).
    pub fn op(&self, name: &str, ids: &[u32], nums: &[f64]) -> std::result::Result<Vec<u32>, JsValue> {
        let run = || -> Result<Vec<u32>> {
            let operands = ids.iter().map(|&i| self.inner.tensor(i)).collect::<Result<Vec<_>>>()?;
            let out = ops::run(&self.inner.session, name, &operands, nums)?;
            Ok(out.into_iter().map(|t| self.inner.add_tensor(t)).collect())
        };
        run().map_err(throw)
    }

    /// `[seed, draws]` of the random stream.
    pub fn random(&self) -> Vec<f64> {
        let s = self.inner.session.state();
        vec![s.seed as f64, f64::from(s.draws)]
    }

    /// Adds a graph that another wasm module built (see `tensor::wire`), with these tensors as its inputs.
    pub fn graph(&self, bytes: &[u8], ids: &[u32]) -> std::result::Result<Vec<u32>, JsValue> {
        let read = || -> Result<Vec<u32>> {
            let inputs = ids.iter().map(|&i| self.inner.tensor(i)).collect::<Result<Vec<_>>>()?;
            let outs = wire::read(&self.inner.session, bytes, &inputs)?;
            Ok(outs.into_iter().map(|t| self.inner.add_tensor(t)).collect())
        };
        read().map_err(throw)
    }

    /// Frees a tensor.
    pub fn free(&self, id: u32) {
        let gone = self.inner.tensors.borrow_mut().remove(id);
        drop(gone);
    }

    /// Declares a tensor a constant weight: kernels may read a packed copy of it.
    pub fn freeze(&self, id: u32) -> std::result::Result<(), JsValue> {
        self.inner.tensor(id).map(|t| t.freeze()).map_err(throw)
    }

    /// The tensor's shape.
    pub fn shape(&self, id: u32) -> std::result::Result<Array, JsValue> {
        Ok(shape_array(&self.inner.tensor(id).map_err(throw)?.shape()))
    }

    /// The tensor's dtype, as its index in `DType::ALL`: a text would take longer than reading a few elements.
    pub fn dtype(&self, id: u32) -> std::result::Result<u32, JsValue> {
        let own = self.inner.tensor(id).map_err(throw)?.dtype();
        Ok(DType::ALL.iter().position(|&dt| dt == own).unwrap_or_default() as u32)
    }

    /// For each of `ids`, 1 if `of` is computed from it, i.e. if a gradient of `of` reaches it.
    pub fn depends(&self, of: u32, ids: &[u32]) -> std::result::Result<Vec<u8>, JsValue> {
        let find = || -> Result<Vec<u8>> {
            let others = ids.iter().map(|&i| self.inner.tensor(i)).collect::<Result<Vec<_>>>()?;
            Ok(self.inner.tensor(of)?.computed_from(&others).into_iter().map(u8::from).collect())
        };
        find().map_err(throw)
    }

    /// Seeds the random stream.
    pub fn seed(&self, seed: f64) {
        self.inner.session.manual_seed(seed as u64);
    }

    /// Sets a launch variable.
    #[wasm_bindgen(js_name = setVar)]
    pub fn set_var(&self, name: &str, value: f64) {
        self.inner.engine.borrow_mut().set_var(name, Scalar::float(value));
    }

    /// A launch variable as a scalar tensor; an integer one has bounds.
    pub fn variable(&self, name: &str, float: bool, min: i32, max: i32) -> std::result::Result<u32, JsValue> {
        let s = &self.inner.session;
        let t = if float { Ok(Tensor::variable_f32(s, name)) } else { Tensor::variable(s, name, min, max) };
        Ok(self.inner.add_tensor(t.map_err(throw)?))
    }

    /// Computes tensors, unless the `AbortSignal` `abort` fires. Returns nothing if that needs no waiting, else a
    /// promise.
    pub fn realize(&self, ids: Vec<u32>, abort: JsValue) -> std::result::Result<JsValue, JsValue> {
        let inner = self.inner.clone();
        now_or_promise(async move {
            let held = ids.iter().map(|&i| inner.tensor(i)).collect::<Result<Vec<_>>>().map_err(throw)?;
            inner.compute(&held, &abort).await.map(|()| JsValue::UNDEFINED).map_err(throw)
        })
    }

    /// Computes a tensor and reads its bytes, unless `abort` fires: a `Uint8Array` if that needs no waiting, else a
    /// promise of it.
    pub fn data(&self, id: u32, abort: JsValue) -> std::result::Result<JsValue, JsValue> {
        let inner = self.inner.clone();
        now_or_promise(async move {
            let t = inner.tensor(id).map_err(throw)?;
            inner.js_bytes(t, &abort).await.map(Into::into).map_err(throw)
        })
    }

    /// Frees the device memory of values that are no longer referenced.
    pub async fn collect(&self) {
        let inner = self.inner.clone();
        let _guard = inner.lock().await;
        let mut engine = inner.engine.borrow_mut();
        engine.collect(&mut inner.session.state());
        engine.trim();
    }

    /// Parses an ONNX model, with `every_value` with the values of all nodes as outputs. Undefined if it has operators
    /// that only [`Runtime::onnx_rare`] may support.
    pub fn onnx(
        &self,
        file: &FileBuffer,
        every_value: bool,
        budget: &JsValue,
    ) -> std::result::Result<Option<u32>, JsValue> {
        match self.inner.parse(file, every_value, budget, Operators::usual()) {
            Err(Error::Unsupported { .. }) => Ok(None),
            other => other.map(Some).map_err(throw),
        }
    }

    /// Properties of a model as declared in its file.
    #[wasm_bindgen(js_name = modelInfo)]
    pub fn model_info(&self, id: u32) -> std::result::Result<Ts<ModelInfo>, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let runner = runner.borrow();
        let m = runner.model();
        to_js(ModelInfo {
            inputs: m.inputs().iter().map(Port::from).collect(),
            outputs: m.outputs().iter().map(Port::from).collect(),
            nodes: m.nodes().len() as f64,
            parameters: m.parameters() as f64,
            opset: m.opset() as f64,
            attends: m.nodes().iter().any(|n| n.op_type == "Softmax" || n.op_type.contains("Attention")),
        })
    }

    /// Frees a model.
    #[wasm_bindgen(js_name = freeModel)]
    pub fn free_model(&self, id: u32) {
        let gone = self.inner.models.borrow_mut().remove(id);
        drop(gone);
    }

    /// Runs a model on inputs `[name, dtype, shape, data]` or `[name, id]`. Gives `[numbers, names, number]`: the timing
    /// followed by the ids of the outputs, the outputs' names unless they are the model's declared ones, and the number by
    /// which [`Runtime::run_again`] may repeat the run, or 0.
    /// `progress(phase)` is called with `compile` and `run`. Ends when the `AbortSignal` `abort` fires. Returns a
    /// promise only if the run has to wait.
    #[wasm_bindgen(js_name = runModel)]
    pub fn run_model(
        &self,
        id: u32,
        inputs: Array,
        progress: Option<js_sys::Function>,
        abort: JsValue,
    ) -> std::result::Result<JsValue, JsValue> {
        now_or_promise(run_model(self.inner.clone(), id, inputs, progress, abort))
    }

    /// Repeats the run of the model that has this number, with other inputs, given in its order as tensor ids or bytes:
    /// gives the ids of the outputs, followed by the milliseconds that it took. Undefined, and nothing has happened, if
    /// another run came between, or the inputs, work that is pending or the event loop need the long way.
    #[wasm_bindgen(js_name = runAgain)]
    pub fn run_again(&self, id: u32, number: f64, inputs: Array) -> std::result::Result<JsValue, JsValue> {
        let inner = &self.inner;
        let Some(start) = inner.scheduler.begin_short().filter(|_| !inner.locked.get()) else {
            return Ok(JsValue::UNDEFINED);
        };
        // worker threads may still be busy with an earlier run, for which this one would have to wait
        if !inner.engine.borrow_mut().device().work().map_err(throw)? {
            return Ok(JsValue::UNDEFINED);
        }
        let runner = inner.runner(id).map_err(throw)?;
        let give = |(i, (dtype, shape)): (JsValue, &(DType, Vec<usize>))| inner.input_again(&i, *dtype, shape);
        let number = number as u64;
        let given: Vec<_> = match runner.borrow().repeatable_inputs(number) {
            Some(last) => inputs.iter().zip(last).map(give).collect::<Result<_>>().map_err(throw)?,
            None => return Ok(JsValue::UNDEFINED),
        };
        let again = || runner.borrow_mut().again(&mut inner.engine.borrow_mut(), number, given);
        let Some(out) = again().map_err(throw)? else { return Ok(JsValue::UNDEFINED) };
        let run = now() - start;
        inner.add_times(Times { run, ..Times::default() });
        let ids = out.into_iter().map(|t| f64::from(inner.add_tensor(t)));
        Ok(ids.chain([run]).map(JsValue::from).collect::<Array>().into())
    }

    /// The contents of an index of safetensors files: `[[tensor, file]]`.
    pub fn shards(&self, index: &[u8]) -> std::result::Result<Array, JsValue> {
        let list = safetensors::shards(index).map_err(throw)?;
        Ok(list.into_iter().map(|(name, file)| Array::of2(&name.into(), &file.into())).collect())
    }

    /// Serialises tensors to a safetensors file.
    #[wasm_bindgen(js_name = saveWeights)]
    pub async fn save_weights(&self, names: Vec<String>, ids: Vec<u32>) -> std::result::Result<Uint8Array, JsValue> {
        let inner = self.inner.clone();
        let mut hosts = Vec::with_capacity(ids.len());
        for id in ids {
            let t = inner.tensor(id).map_err(throw)?;
            hosts.push(inner.host_tensor(t, &JsValue::UNDEFINED).await.map_err(throw)?);
        }
        let list: Vec<_> = names.iter().zip(&hosts).map(|(n, t)| (n.as_str(), t.dtype, &*t.shape, &*t.data)).collect();
        Ok(Uint8Array::from(&*safetensors::write(&list, &[]).map_err(throw)?))
    }
}

/// The tensors of a safetensors file of `len` bytes, of which at least the header is given: `[name, dtype, shape,
/// start, end]` each, in the order of their data.
#[wasm_bindgen(js_name = safetensorsIndex)]
pub fn safetensors_index(start: &[u8], len: f64) -> std::result::Result<Array, JsValue> {
    let index = safetensors::SafeTensors::parse_header(start, len as u64).map_err(throw)?;
    let at = |n: u64| JsValue::from(n as f64);
    let one = |e: safetensors::Entry| {
        let (name, dt) = (e.name.into(), e.dtype.name().into());
        Array::of5(&name, &dt, &shape_array(&e.shape), &at(e.range.start), &at(e.range.end))
    };
    Ok(index.entries.into_iter().map(one).collect())
}
