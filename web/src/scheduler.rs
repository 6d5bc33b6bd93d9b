//! Scheduling of work on a page's main thread, which it shares with the page: work runs in pieces of some milliseconds,
//! and between pieces the event loop runs (the page can react) and an `AbortSignal` is checked, which can only fire
//! while the event loop runs. The time of all work within one task of the event loop counts together: a program that
//! awaits one available result after another may never leave its task, since such promises resolve in microtasks. On a
//! GPU, which the page needs for drawing, only a bounded amount of work is submitted at a time, as submitted work
//! cannot be withdrawn.

use crate::js::{is_aborted, now, yield_to_event_loop};
use crate::signal::Signal;
use gradloom_core::engine::{Engine, Running};
use gradloom_core::interrupt::{Go, Interrupt};
use gradloom_core::util::between;
use gradloom_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::{JsFuture, spawn_local};

/// Milliseconds of work after which the event loop runs: half of a frame, since the current piece is not interrupted,
/// and the time of earlier work in the same task, such as building a graph, is unknown.
const SLICE_MS: f64 = 8.0;
/// The decay, per piece of planning, of the longest duration seen, by which the duration of the next piece is
/// predicted.
const PREDICTION_DECAY: f64 = 0.8;
/// The target duration in milliseconds of one portion of work on a GPU.
const GPU_SLICE_MS: f64 = 20.0;
/// The initial estimate of a GPU's throughput, in the engine's units of work per millisecond, and the bounds of the
/// estimate.
const INITIAL_RATE: f64 = 1e6;
const MIN_RATE: f64 = 1e5;
const MAX_RATE: f64 = 1e12;
/// The estimated milliseconds for adding a node to a graph when that code runs for the first time.
const NODE_MS: f64 = 0.01;
/// If at least this many nodes were added since the last work, the next work starts in a new task of the event loop.
const MANY_NODES: usize = 256;

/// What executes the work of runs.
pub(crate) enum Executor {
    /// A GPU, to which work is submitted in portions.
    Gpu {
        pace: Rc<Pace>,
        /// Fires when the GPU has made progress.
        signal: Signal,
    },
    /// The page's own thread, alone or with worker threads. The device itself stops at the time `deadline`; worker
    /// threads continue meanwhile.
    MainThread { deadline: Rc<Cell<f64>>, single_threaded: bool },
}

/// How fast a GPU works, measured by when its submits end. They end in the order in which they were made, so each has run
/// since the later of its own beginning and the end of the one before.
pub(crate) struct Pace {
    /// Estimated work per millisecond.
    rate: Cell<f64>,
    /// The number of submits so far, and when the last one of them that is known to be done ended.
    submits: Cell<u64>,
    last_end: Cell<f64>,
    /// The work of submits that are not done, by their numbers, and of all portions before.
    work: RefCell<Vec<(u64, u64)>>,
    total: Cell<u64>,
}

impl Pace {
    pub(crate) fn new() -> Rc<Pace> {
        let rate = Cell::new(INITIAL_RATE);
        let (submits, last_end, total) = (Cell::default(), Cell::default(), Cell::default());
        Rc::new(Pace { rate, submits, last_end, work: RefCell::default(), total })
    }

    /// Numbers a submit.
    pub(crate) fn begin(&self) -> (u64, f64) {
        self.submits.set(self.submits.get() + 1);
        (self.submits.get(), now())
    }

    /// The last submit was a portion of a run, after which the engine has submitted this much work in all.
    fn submitted(&self, total: u64) {
        let work = total.wrapping_sub(self.total.replace(total));
        self.work.borrow_mut().push((self.submits.get(), work));
    }

    /// A submit is done. Its duration is not taken as it is where it is so short that most of it is the delay of the
    /// message, or when a single measurement says that the GPU became faster.
    pub(crate) fn end(&self, (number, start): (u64, f64)) {
        let end = now();
        let took = end - start.max(self.last_end.replace(end));
        let mut all = self.work.borrow_mut();
        let work = all.iter().find(|w| w.0 == number).map_or(0, |w| w.1);
        all.retain(|w| w.0 > number);
        let (rate, measured) = (self.rate.get(), work as f64 / took.max(1.0));
        let next = match took < GPU_SLICE_MS / 2.0 {
            _ if work == 0 => rate,
            true => measured.max(rate).min(2.0 * rate),
            false if measured < rate => measured,
            false => (rate + measured) / 2.0,
        };
        self.rate.set(between(next, MIN_RATE, MAX_RATE));
    }
}

/// The time slices of one device's work.
pub(crate) struct Scheduler {
    /// The end of the current slice: milliseconds as the bits of an f64.
    slice_end: Arc<AtomicU64>,
    /// Whether the task of the event loop in which the slice began is still running.
    same_task: Rc<Cell<bool>>,
    /// The number of nodes of the graph when the last work ended.
    nodes: Cell<usize>,
    /// The predicted duration of the next piece of planning in milliseconds: a decaying maximum of those before.
    predicted_planning_ms: Cell<f64>,
    executor: Executor,
    step_tracker: Rc<StepTracker>,
}

/// Whether `debug` watches each step of runs individually, and how many watched steps have not ended.
#[derive(Default)]
pub(crate) struct StepTracker {
    enabled: Cell<bool>,
    pending: Cell<u32>,
    step_ended: Signal,
}

impl StepTracker {
    /// Turns watching of steps on or off.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.set(enabled);
    }

    /// Counts a step as submitted and not ended.
    pub(crate) fn begin(&self) {
        self.pending.set(self.pending.get() + 1);
    }

    /// Counts a step as ended.
    pub(crate) fn end(&self) {
        self.pending.set(self.pending.get() - 1);
        self.step_ended.fire();
    }
}

impl Executor {
    /// A GPU with its signal of progress.
    pub(crate) fn gpu(signal: Signal, pace: Rc<Pace>) -> Executor {
        Executor::Gpu { pace, signal }
    }
}

fn is_over(end: &AtomicU64) -> bool {
    now() >= f64::from_bits(end.load(Ordering::Relaxed))
}

impl Scheduler {
    pub(crate) fn new(executor: Executor) -> Scheduler {
        Scheduler {
            slice_end: Arc::default(),
            same_task: Rc::default(),
            nodes: Cell::default(),
            predicted_planning_ms: Cell::default(),
            executor,
            step_tracker: Rc::default(),
        }
    }

    /// The shared state for watching steps.
    pub(crate) fn step_tracker(&self) -> Rc<StepTracker> {
        self.step_tracker.clone()
    }

    /// Waits until all watched steps have ended.
    pub(crate) async fn wait_for_steps(&self) {
        while self.step_tracker.pending.get() > 0 {
            self.step_tracker.step_ended.wait().await;
        }
    }

    /// The interrupt for the engine, which pauses work at the end of the slice.
    pub(crate) fn interrupt(&self) -> Interrupt {
        let end = self.slice_end.clone();
        Interrupt::asking(move || Ok(if is_over(&end) { Go::Pause } else { Go::On }))
    }

    /// Begins work: in the slice that lasts, or in a new one. A slice may outlast its task, since finding out that the
    /// task has ended takes a message, which costs more than a small run.
    pub(crate) fn begin(&self) {
        if !self.same_task.get() && now() >= f64::from_bits(self.slice_end.load(Ordering::Relaxed)) {
            self.start_slice();
        }
    }

    /// [`Scheduler::begin`] for work that is not divided: the time at which it begins. `None` if the event loop has to
    /// run first, or if each step of the work is watched.
    pub(crate) fn begin_short(&self) -> Option<f64> {
        self.begin();
        self.set_deadline(true);
        let start = now();
        let is_free = start < f64::from_bits(self.slice_end.load(Ordering::Relaxed));
        (is_free && !self.step_tracker.enabled.get()).then_some(start)
    }

    /// [`Scheduler::begin`] for a graph of `nodes` nodes. The time that the page spent on adding nodes was not
    /// measured: if they are many, work begins in the next task.
    pub(crate) async fn begin_with_nodes(&self, nodes: usize) {
        let added = nodes.saturating_sub(self.nodes.get());
        if added >= MANY_NODES && !self.same_task.get() {
            // it never rejects
            let _ = JsFuture::from(yield_to_event_loop()).await;
        } else if !self.same_task.get() {
            self.start_slice_of(SLICE_MS - added as f64 * NODE_MS);
        }
        self.begin();
    }

    /// Records the number of nodes of the graph at the end of work.
    pub(crate) fn record_nodes(&self, nodes: usize) {
        self.nodes.set(nodes);
    }

    /// Begins a slice, which lasts for all work until the event loop runs again.
    fn start_slice(&self) {
        self.start_slice_of(SLICE_MS);
    }

    fn start_slice_of(&self, ms: f64) {
        self.slice_end.store((now() + ms).to_bits(), Ordering::Relaxed);
        if self.same_task.replace(true) {
            return;
        }
        let same_task = self.same_task.clone();
        spawn_local(async move {
            // it never rejects
            let _ = JsFuture::from(yield_to_event_loop()).await;
            same_task.set(false);
        });
    }

    /// Call this between two pieces of work: lets the event loop run if the slice is over. An error if the caller
    /// aborted.
    pub(crate) async fn yield_if_due(&self, abort: &JsValue) -> Result<()> {
        self.yield_if_due_within(0.0, abort).await
    }

    /// [`Scheduler::yield_if_due`] before a piece of planning, which cannot be interrupted: if its predicted duration
    /// exceeds the slice, it begins after the event loop has run.
    pub(crate) async fn yield_before_planning(&self, abort: &JsValue) -> Result<()> {
        self.yield_if_due_within(self.predicted_planning_ms.get().min(SLICE_MS), abort).await
    }

    async fn yield_if_due_within(&self, ms: f64, abort: &JsValue) -> Result<()> {
        if now() + ms >= f64::from_bits(self.slice_end.load(Ordering::Relaxed)) {
            // it never rejects
            let _ = JsFuture::from(yield_to_event_loop()).await;
            self.start_slice();
        }
        if is_aborted(abort) { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Records the duration of a piece of planning in milliseconds.
    pub(crate) fn record_planning(&self, ms: f64) {
        self.predicted_planning_ms.set(ms.max(PREDICTION_DECAY * self.predicted_planning_ms.get()));
    }

    /// Call this before a result is returned: lets the event loop run first if work took half of the slice, since the
    /// caller's next step, such as building the graph of the next training step, may take as long again.
    pub(crate) async fn yield_before_result(&self) {
        let end = f64::from_bits(self.slice_end.load(Ordering::Relaxed));
        if self.same_task.get() && now() >= end - SLICE_MS / 2.0 {
            // it never rejects
            let _ = JsFuture::from(yield_to_event_loop()).await;
        }
    }

    /// [`Scheduler::yield_if_due`], but work that must not stop ignores an abort.
    pub(crate) async fn yield_if_due_abortable(&self, may_stop: bool, abort: &JsValue) -> Result<()> {
        match self.yield_if_due(abort).await {
            Err(Error::Aborted) if !may_stop => Ok(()),
            out => out,
        }
    }

    /// Sets the time until which a device may work on the page's thread: the end of the slice. No limit if worker
    /// threads do the work and nothing waits for it.
    pub(crate) fn set_deadline(&self, waits: bool) {
        if let Executor::MainThread { deadline, single_threaded } = &self.executor {
            let ends = waits || *single_threaded;
            deadline.set(if ends { f64::from_bits(self.slice_end.load(Ordering::Relaxed)) } else { f64::INFINITY });
        }
    }

    /// How much work of a run to submit at once, in the engine's units; 0 submits single steps.
    pub(crate) fn portion(&self) -> u64 {
        match &self.executor {
            _ if self.step_tracker.enabled.get() => 0,
            Executor::Gpu { pace, .. } => (pace.rate.get() * GPU_SLICE_MS) as u64,
            // first everything that may be aborted, then the rest
            Executor::MainThread { .. } => u64::MAX - 1,
        }
    }

    /// Submits a run. A run that overwrites existing buffers is completed even if the caller aborts.
    pub(crate) async fn submit(&self, engine: &RefCell<Engine>, run: &mut Running, abort: &JsValue) -> Result<()> {
        loop {
            // worker threads may still be busy with the previous portion, and submitting another one would block until
            // they are done
            self.wait_idle(engine).await?;
            self.set_deadline(abort.is_object());
            let done = engine.borrow_mut().submit_some(run, self.portion())?;
            self.measure_portion(engine);
            if done {
                self.wait_for_steps().await;
                return Ok(());
            }
            self.wait_for_capacity(engine, run.may_stop(), abort).await?;
            self.yield_if_due_abortable(run.may_stop(), abort).await?;
        }
    }

    /// Call this after a portion of a run was submitted, before anything is awaited: its end will tell the GPU's pace.
    pub(crate) fn measure_portion(&self, engine: &RefCell<Engine>) {
        if let Executor::Gpu { pace, .. } = &self.executor {
            pace.submitted(engine.borrow().counters().work);
        }
    }

    /// Waits, after work was submitted, until the device can take more. An error if the caller aborted work that may be
    /// aborted.
    pub(crate) async fn wait_for_capacity(
        &self,
        engine: &RefCell<Engine>,
        may_stop: bool,
        abort: &JsValue,
    ) -> Result<()> {
        self.wait_for_steps().await;
        match &self.executor {
            Executor::Gpu { signal, .. } => {
                while !engine.borrow_mut().device().has_room()? {
                    signal.wait().await;
                }
            }
            Executor::MainThread { .. } => {
                while !engine.borrow_mut().device().work()? {
                    if let Err(e) = self.yield_if_due_abortable(may_stop, abort).await {
                        engine.borrow_mut().device().stop();
                        return Err(e);
                    }
                    self.set_deadline(true);
                }
            }
        }
        Ok(())
    }

    /// Waits until all submitted work is done, on devices where the page's thread would otherwise block for it.
    pub(crate) async fn wait_idle(&self, engine: &RefCell<Engine>) -> Result<()> {
        if let Executor::MainThread { .. } = self.executor {
            self.set_deadline(true);
            self.wait_for_capacity(engine, false, &JsValue::UNDEFINED).await?;
        }
        Ok(())
    }
}
