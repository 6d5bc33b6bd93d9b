//! Records a run: the engine plans a model for a target, on a device that has none of the target's hardware. What the
//! engine computes before the actual run (folded and packed weights) is evaluated by that device; the steps of the run
//! itself are kept and not executed.

use super::{Buffer, Place, Port, Recording, Step};
use gradloom_core::device::{self, BufId, Device, EvalDevice, KernelId, Ticket, View};
use gradloom_core::engine::Engine;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{Input, Model, Runner};
use gradloom_core::render::{Code, Interpreted, Renderer, Source};
use gradloom_core::target::Target;
use gradloom_core::tensor::{Session, Tensor};
use gradloom_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of the recording device.
struct RecorderState {
    eval: EvalDevice,
    sources: Vec<Source>,
    sizes: BTreeMap<BufId, usize>,
    /// Whether steps are kept instead of executed.
    keeps: bool,
    steps: Vec<device::Step>,
}

/// The recording device.
struct Recorder {
    target: Target,
    state: Arc<Mutex<RecorderState>>,
}

fn lock(state: &Mutex<RecorderState>) -> MutexGuard<'_, RecorderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for Recorder {
    fn target(&self) -> &Target {
        &self.target
    }

    fn renderer(&self) -> &'static dyn Renderer {
        &Interpreted
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let mut t = lock(&self.state);
        let buf = t.eval.alloc(bytes)?;
        t.sizes.insert(buf, bytes);
        Ok(buf)
    }

    fn free(&mut self, buf: BufId) {
        lock(&self.state).eval.free(buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        lock(&self.state).eval.upload(buf, offset, data)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut t = lock(&self.state);
        t.sources.extend_from_slice(sources);
        t.eval.compile(sources)
    }

    // Programs stay known after their release
    fn release(&mut self, _: KernelId) {}

    fn submit(&mut self, steps: &[device::Step]) -> Result<()> {
        let mut t = lock(&self.state);
        if t.keeps {
            t.steps.extend_from_slice(steps);
            return Ok(());
        }
        t.eval.submit(steps)
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        lock(&self.state).eval.read(view)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        lock(&self.state).eval.poll(ticket)
    }
}

/// An input or output of the model: its port, and its memory.
struct Edge {
    port: Port,
    view: View,
}

/// Plans a model for inputs of these shapes and records the run. Values of inputs matter only where they
/// determine shapes.
///
/// # Errors
/// The errors of planning, and [`Error::Unsupported`] for what requires a device in between: shapes that depend on
/// computed values, random numbers, strings.
pub fn record(model: Model, target: &Target, inputs: &[(&str, HostTensor)]) -> Result<Recording> {
    let refuse = |what: &str| Err(Error::Unsupported { what: what.into(), context: "export".into() });
    if model.is_random() {
        return refuse("random numbers: a run would draw the same ones every time");
    }
    if let Some(port) = model.inputs().iter().chain(model.outputs()).find(|p| p.is_string()) {
        return refuse(&format!("strings (`{}`)", port.name));
    }
    let state = RecorderState {
        eval: EvalDevice::new(target.clone()),
        sources: Vec::new(),
        sizes: BTreeMap::new(),
        keeps: false,
        steps: Vec::new(),
    };
    let state = Arc::new(Mutex::new(state));
    let recorder = Recorder { target: target.clone(), state: state.clone() };
    let mut engine = Engine::with_host(Box::new(recorder), Box::new(crate::NativeHost::without_cache()));
    let mut runner = Runner::new(Arc::new(model), &Session::new());
    let inputs = runner.inputs(inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect())?;
    let mut run = runner.begin_in_pieces(&mut engine, inputs.clone())?;
    let outputs = loop {
        if let Some(why) = run.asked() {
            return refuse(&format!("a shape that depends on what is computed: {why}"));
        }
        lock(&state).keeps = run.is_submitting() && !run.folds();
        if let Some(outputs) = runner.step_once(&mut engine, &mut run, u64::MAX)? {
            break outputs;
        }
    };
    let mut edge = |name: &str, t: &Tensor| {
        let view = engine.view(&mut runner.session().state(), t.root())?;
        let dtype = t.dtype();
        let port = Port { name: name.into(), dtype, stored: target.stored_as(dtype)?, shape: t.shape() };
        Ok(Edge { port, view })
    };
    let given: Vec<Edge> = inputs.tensors().filter_map(|(name, t)| Some(edge(name, t?))).collect::<Result<_>>()?;
    let made: Vec<Edge> = outputs.iter().map(|(name, t)| edge(name, t)).collect::<Result<_>>()?;
    recording(&mut lock(&state), target, given, made)
}

/// Which buffer of the recording each buffer of the run is, as far as known.
struct BufferMap {
    known: BTreeMap<BufId, Buffer>,
    constants: Vec<BufId>,
    arenas: Vec<usize>,
}

fn recording(state: &mut RecorderState, target: &Target, given: Vec<Edge>, made: Vec<Edge>) -> Result<Recording> {
    let steps = std::mem::take(&mut state.steps);
    let mut buffers = BufferMap { known: BTreeMap::new(), constants: Vec::new(), arenas: Vec::new() };
    for (i, e) in given.iter().enumerate() {
        buffers.known.insert(e.view.buf, Buffer::Input(i));
    }
    let written = written(state, &steps);
    // An output with a buffer of its own is computed there; any other output is copied to its buffer at the end
    let mut copied = Vec::new();
    for (i, e) in made.iter().enumerate() {
        let whole = e.view.offset == 0 && state.sizes.get(&e.view.buf).is_some_and(|&n| n == e.view.bytes.max(4));
        let own = whole && written.contains(&e.view.buf) && !buffers.known.contains_key(&e.view.buf);
        if own {
            buffers.known.insert(e.view.buf, Buffer::Output(i));
        } else {
            copied.push(i);
        }
    }
    let mut kernels: Vec<KernelId> = Vec::new();
    let mut out = Vec::with_capacity(steps.len() + copied.len());
    for step in &steps {
        out.push(match step {
            device::Step::Launch { kernel, args, grid, vars } => {
                let known = kernels.iter().position(|k| k == kernel);
                let kernel = known.unwrap_or_else(|| {
                    kernels.push(*kernel);
                    kernels.len() - 1
                });
                let args = args.iter().map(|v| buffers.place(state, &written, v)).collect();
                Step::Launch { kernel, args, grid: *grid, vars: vars.clone() }
            }
            device::Step::Copy { src, dst } => {
                Step::Copy { from: buffers.place(state, &written, src), to: buffers.place(state, &written, dst) }
            }
        });
    }
    for i in copied {
        let bytes = made[i].port.bytes();
        let from = buffers.place(state, &written, &View { bytes, ..made[i].view });
        out.push(Step::Copy { from, to: Place { buffer: Buffer::Output(i), offset: 0, bytes } });
    }
    let program = |k: &KernelId| match state.sources.get(k.0 as usize).map(|s| &s.code) {
        Some(Code::Program(p)) => Ok(p.clone()),
        _ => Err(Error::Internal(format!("{k:?} is not a program"))),
    };
    let kernels = kernels.iter().map(program).collect::<Result<_>>()?;
    let constants = buffers.constants.iter().map(|&buf| contents(state, buf)).collect::<Result<_>>()?;
    Ok(Recording {
        target: target.clone(),
        kernels,
        constants,
        arenas: buffers.arenas,
        inputs: given.into_iter().map(|e| e.port).collect(),
        outputs: made.into_iter().map(|e| e.port).collect(),
        steps: out,
    })
}

/// The buffers that are written by steps.
fn written(state: &RecorderState, steps: &[device::Step]) -> Vec<BufId> {
    let mut list = Vec::new();
    for step in steps {
        match step {
            device::Step::Launch { kernel, args, .. } => {
                let params = state.sources.get(kernel.0 as usize).map_or(&[][..], |s| &s.params);
                list.extend(args.iter().zip(params).filter(|(_, p)| p.written).map(|(v, _)| v.buf));
            }
            device::Step::Copy { dst, .. } => list.push(dst.buf),
        }
    }
    list.sort_unstable();
    list.dedup();
    list
}

fn contents(state: &mut RecorderState, buf: BufId) -> Result<Vec<u8>> {
    let bytes = state.sizes.get(&buf).copied().unwrap_or(0);
    let ticket = state.eval.read(View { buf, offset: 0, bytes })?;
    state.eval.poll(ticket)?.ok_or_else(|| Error::Internal(format!("{buf:?} has no contents")))
}

impl BufferMap {
    fn place(&mut self, state: &RecorderState, written: &[BufId], v: &View) -> Place {
        let buffer = *self.known.entry(v.buf).or_insert_with(|| {
            if written.binary_search(&v.buf).is_ok() {
                self.arenas.push(state.sizes.get(&v.buf).copied().unwrap_or(0));
                Buffer::Arena(self.arenas.len() - 1)
            } else {
                self.constants.push(v.buf);
                Buffer::Constant(self.constants.len() - 1)
            }
        });
        Place { buffer, offset: v.offset, bytes: v.bytes }
    }
}
