//! How work and the page share the one thread that they have: work goes in pieces, the page has its turn every some
//! milliseconds, and between two pieces it is seen whether the caller gave up. An `AbortSignal` fires in the page's turns only.
//! What many short pieces of work take in one turn of the page counts together: a program that waits for one result after the other may
//! never leave its turn, because what it waits for is there at once.
//! A GPU is shared too: it has little to do at a time that the page cannot take back, so that the page is drawn meanwhile.

use crate::js::{is_aborted, now, turn_of_page};
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

/// Milliseconds of work after which the page has its turn: half of a frame, since the piece under way is not cut, and what came before it in the same
/// turn, building a graph, say, is not known.
const SLICE_MS: f64 = 8.0;
/// What is left of the longest piece of planning with each piece that follows, where the next one is guessed.
const FADES: f64 = 0.8;
/// Milliseconds from a submission to a GPU until it takes the next one; that the last one is done comes some milliseconds late.
const GPU_SLICE_MS: f64 = 20.0;
/// Runs begin as if a device did so much work in a millisecond, in the engine's units, and no device is taken for slower.
const FIRST_RATE: f64 = 1e6;
const LEAST_RATE: f64 = 1e5;
const MOST_RATE: f64 = 1e12;
/// What adding a node to a graph takes of the page's turn, the first time that code runs.
const NODE_MS: f64 = 0.01;
/// Nodes that were added since the last work, from which on it begins in another turn.
const MANY_NODES: usize = 256;

/// Who does the work of runs.
pub(crate) enum By {
    /// A GPU, which is given it in portions.
    Gpu {
        /// Work that it gets done in a millisecond: a guess that each run makes better.
        rate: Cell<f64>,
        /// Fires when it got further.
        signal: Signal,
    },
    /// The page's own thread, alone or with others, until then: a device looks at the clock itself. Threads go on meanwhile.
    Page { limit: Rc<Cell<f64>>, alone: bool },
}

/// The slices of one device's work.
pub(crate) struct Pace {
    /// The end of the slice that work has now, in bits of milliseconds.
    end: Arc<AtomicU64>,
    /// Whether the page's turn in which that slice began is not over yet.
    same_turn: Rc<Cell<bool>>,
    /// Those of the graph when the last work ended.
    nodes: Cell<usize>,
    /// How many milliseconds the next piece of planning may take: as those before it, the last ones above all.
    piece: Cell<f64>,
    by: By,
    seen: Rc<Seen>,
}

/// Whether somebody looks at the steps of runs, each alone, and how many of them are not over.
#[derive(Default)]
pub(crate) struct Seen {
    looks: Cell<bool>,
    under_way: Cell<u32>,
    over: Signal,
}

impl Seen {
    /// Somebody looks, or nobody.
    pub(crate) fn set(&self, looks: bool) {
        self.looks.set(looks);
    }

    /// A step was submitted whose end is not seen yet.
    pub(crate) fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// One is over.
    pub(crate) fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.over.fire();
    }
}

impl By {
    /// A GPU whose signal is given.
    pub(crate) fn gpu(signal: Signal) -> By {
        By::Gpu { rate: Cell::new(FIRST_RATE), signal }
    }
}

fn is_over(end: &AtomicU64) -> bool {
    now() >= f64::from_bits(end.load(Ordering::Relaxed))
}

impl Pace {
    pub(crate) fn new(by: By) -> Pace {
        Pace {
            end: Arc::default(),
            same_turn: Rc::default(),
            nodes: Cell::default(),
            piece: Cell::default(),
            by,
            seen: Rc::default(),
        }
    }

    /// For whoever looks at steps.
    pub(crate) fn seen(&self) -> Rc<Seen> {
        self.seen.clone()
    }

    /// Until the end of every step that somebody looks at.
    pub(crate) async fn caught_up(&self) {
        while self.seen.under_way.get() > 0 {
            self.seen.over.wait().await;
        }
    }

    /// What the engine looks at: whether the slice is over.
    pub(crate) fn interrupt(&self) -> Interrupt {
        let end = self.end.clone();
        Interrupt::asking(move || Ok(if is_over(&end) { Go::Pause } else { Go::On }))
    }

    /// Work begins: in the slice of the page's turn, if it has one.
    pub(crate) fn begin(&self) {
        if !self.same_turn.get() {
            self.slice();
        }
    }

    /// As [`Pace::begin`], on a graph of so many nodes. Nobody measured how long the page took to add to it, so if that is much, work begins in the
    /// page's next turn.
    pub(crate) async fn begin_on(&self, nodes: usize) {
        let added = nodes.saturating_sub(self.nodes.get());
        if added >= MANY_NODES && !self.same_turn.get() {
            // it never rejects
            let _ = JsFuture::from(turn_of_page()).await;
        } else if !self.same_turn.get() {
            self.slice_of(SLICE_MS - added as f64 * NODE_MS);
        }
        self.begin();
    }

    /// Work ended, and left so many nodes in the graph.
    pub(crate) fn left(&self, nodes: usize) {
        self.nodes.set(nodes);
    }

    /// A slice begins, which is that of all work until the page has its next turn.
    fn slice(&self) {
        self.slice_of(SLICE_MS);
    }

    fn slice_of(&self, ms: f64) {
        self.end.store((now() + ms).to_bits(), Ordering::Relaxed);
        if self.same_turn.replace(true) {
            return;
        }
        let same_turn = self.same_turn.clone();
        spawn_local(async move {
            // it never rejects
            let _ = JsFuture::from(turn_of_page()).await;
            same_turn.set(false);
        });
    }

    /// Between two pieces of work: the page has its turn when a slice is over. An error if the caller gave up.
    pub(crate) async fn breathe(&self, abort: &JsValue) -> Result<()> {
        self.breathe_before(0.0, abort).await
    }

    /// The same before a piece of planning, which nobody can stop: where it would not end with the slice, if it takes as long as others did, it
    /// begins in the page's next turn.
    pub(crate) async fn breathe_before_piece(&self, abort: &JsValue) -> Result<()> {
        self.breathe_before(self.piece.get().min(SLICE_MS), abort).await
    }

    async fn breathe_before(&self, ms: f64, abort: &JsValue) -> Result<()> {
        if now() + ms >= f64::from_bits(self.end.load(Ordering::Relaxed)) {
            // it never rejects
            let _ = JsFuture::from(turn_of_page()).await;
            self.slice();
        }
        if is_aborted(abort) { Err(Error::Aborted) } else { Ok(()) }
    }

    /// A piece of planning took so many milliseconds.
    pub(crate) fn took(&self, ms: f64) {
        self.piece.set(ms.max(FADES * self.piece.get()));
    }

    /// Before a result is handed over: the page has its turn first if work took half of the slice, since what the caller does with the result,
    /// building the graph of the next training step, say, may take as long again.
    pub(crate) async fn leave(&self) {
        let end = f64::from_bits(self.end.load(Ordering::Relaxed));
        if self.same_turn.get() && now() >= end - SLICE_MS / 2.0 {
            // it never rejects
            let _ = JsFuture::from(turn_of_page()).await;
        }
    }

    /// As [`Pace::breathe`], for work that goes on to its end where it may not stop.
    pub(crate) async fn breathe_if(&self, may_stop: bool, abort: &JsValue) -> Result<()> {
        match self.breathe(abort).await {
            Err(Error::Aborted) if !may_stop => Ok(()),
            out => out,
        }
    }

    /// Tells a device that works on the page's thread until when it may: to the end of the slice. Where nobody waits for what other threads
    /// do, there is no end.
    pub(crate) fn allow(&self, waits: bool) {
        if let By::Page { limit, alone } = &self.by {
            let ends = waits || *alone;
            limit.set(if ends { f64::from_bits(self.end.load(Ordering::Relaxed)) } else { f64::INFINITY });
        }
    }

    /// How much of a run to submit at once.
    pub(crate) fn portion(&self) -> u64 {
        match &self.by {
            _ if self.seen.looks.get() => 0,
            By::Gpu { rate, .. } => (rate.get() * GPU_SLICE_MS) as u64,
            // all that may be given up, then all that may not
            By::Page { .. } => u64::MAX - 1,
        }
    }

    /// Submits a run. One that overwrites what was there before is not left half done.
    pub(crate) async fn submit(&self, engine: &RefCell<Engine>, run: &mut Running, abort: &JsValue) -> Result<()> {
        loop {
            // threads may still be at the portion before, and a device that is given another one waits for its end without a break
            self.done(engine).await?;
            self.allow(abort.is_object());
            let start = now();
            if engine.borrow_mut().submit_some(run, self.portion())? {
                self.caught_up().await;
                return Ok(());
            }
            self.submitted(engine, Some(start), run.may_stop(), abort).await?;
            self.breathe_if(run.may_stop(), abort).await?;
        }
    }

    /// After some work was submitted, at `start` if it was a portion of a run: until the device can take more. An error if the caller gave up
    /// what may be given up.
    pub(crate) async fn submitted(
        &self,
        engine: &RefCell<Engine>,
        start: Option<f64>,
        may_stop: bool,
        abort: &JsValue,
    ) -> Result<()> {
        self.caught_up().await;
        match &self.by {
            By::Gpu { rate, signal } => {
                while !engine.borrow_mut().device().has_room()? {
                    signal.wait().await;
                }
                if let Some(start) = start {
                    // the next portion is as much as the device gets done in time
                    let took = now() - start;
                    let change = if took < GPU_SLICE_MS / 2.0 { 2.0 } else { GPU_SLICE_MS / took };
                    rate.set(between(rate.get() * change, LEAST_RATE, MOST_RATE));
                }
            }
            By::Page { .. } => {
                while !engine.borrow_mut().device().work()? {
                    if let Err(e) = self.breathe_if(may_stop, abort).await {
                        engine.borrow_mut().device().stop();
                        return Err(e);
                    }
                    self.allow(true);
                }
            }
        }
        Ok(())
    }

    /// Until everything submitted is done, where the page's thread would wait for it otherwise.
    pub(crate) async fn done(&self, engine: &RefCell<Engine>) -> Result<()> {
        if let By::Page { .. } = self.by {
            self.allow(true);
            self.submitted(engine, None, false, &JsValue::UNDEFINED).await?;
        }
        Ok(())
    }
}
