//! How work and the page share the one thread that they have: work goes in pieces, the page has its turn every some
//! milliseconds, and between two pieces it is seen whether the caller gave up. An `AbortSignal` fires in the page's turns only.
//! A GPU is shared too: it has little to do at a time that the page cannot take back, so that the page is drawn meanwhile.

use crate::js::{is_aborted, now, turn_of_page};
use crate::signal::Signal;
use gradloom_core::engine::{Engine, Running};
use gradloom_core::interrupt::{Go, Interrupt};
use gradloom_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

/// Milliseconds of work after which the page has its turn.
const SLICE_MS: f64 = 10.0;
/// Milliseconds that a portion of a run is meant to take where the page's thread runs it: less than a slice, because a kernel may do
/// several times less in a millisecond than those before it did.
const PORTION_MS: f64 = 4.0;
/// Milliseconds from a submission to a GPU until it takes the next one; that the last one is done comes some milliseconds late.
const GPU_SLICE_MS: f64 = 20.0;
/// Runs begin as if a device did so much work in a millisecond, in the engine's units, and no device is taken for slower.
const FIRST_RATE: f64 = 1e6;
const LEAST_RATE: f64 = 1e5;
const MOST_RATE: f64 = 1e12;

/// The slices of one device's work.
pub(crate) struct Pace {
    /// The end of the slice that work has now, in bits of milliseconds.
    end: Arc<AtomicU64>,
    /// Work that a run gets done in a millisecond: a guess that each run makes better.
    rate: Cell<f64>,
    /// Fires when the device got further.
    signal: Signal,
    /// Do runs go in portions even where nobody may end them? On a GPU, which does them beside the caller.
    always: bool,
}

fn is_over(end: &AtomicU64) -> bool {
    now() >= f64::from_bits(end.load(Ordering::Relaxed))
}

impl Pace {
    /// That of a device whose signal is given.
    pub(crate) fn new(signal: Signal, is_gpu: bool) -> Pace {
        Pace { end: Arc::default(), rate: Cell::new(FIRST_RATE), signal, always: is_gpu }
    }

    /// What the engine looks at: whether the slice is over.
    pub(crate) fn interrupt(&self) -> Interrupt {
        let end = self.end.clone();
        Interrupt::asking(move || Ok(if is_over(&end) { Go::Pause } else { Go::On }))
    }

    /// Work begins.
    pub(crate) fn begin(&self) {
        self.end.store((now() + SLICE_MS).to_bits(), Ordering::Relaxed);
    }

    /// Between two pieces of work: the page has its turn when a slice is over. An error if the caller gave up.
    pub(crate) async fn breathe(&self, abort: &JsValue) -> Result<()> {
        if is_over(&self.end) {
            // it never rejects
            let _ = JsFuture::from(turn_of_page()).await;
            self.begin();
        }
        if is_aborted(abort) { Err(Error::Aborted) } else { Ok(()) }
    }

    /// The same for work that goes on to its end where it may not stop.
    pub(crate) async fn breathe_if(&self, may_stop: bool, abort: &JsValue) -> Result<()> {
        match self.breathe(abort).await {
            Err(Error::Aborted) if !may_stop => Ok(()),
            out => out,
        }
    }

    fn cuts(&self, abort: &JsValue) -> bool {
        self.always || abort.is_object()
    }

    fn portion_ms(&self) -> f64 {
        if self.always { GPU_SLICE_MS } else { PORTION_MS }
    }

    /// How much of a run to submit at once: all of it, unless somebody may end it or it keeps a GPU from the page.
    pub(crate) fn portion(&self, abort: &JsValue) -> u64 {
        if self.cuts(abort) { (self.rate.get() * self.portion_ms()) as u64 } else { u64::MAX }
    }

    /// Submits a run. One that overwrites what was there before is not left half done.
    pub(crate) async fn submit(&self, engine: &RefCell<Engine>, run: &mut Running, abort: &JsValue) -> Result<()> {
        loop {
            let start = now();
            if engine.borrow_mut().submit_some(run, self.portion(abort))? {
                return Ok(());
            }
            self.submitted(engine, Some(start), abort).await?;
            self.breathe_if(run.may_stop(), abort).await?;
        }
    }

    /// After some work was submitted, at `start` if it was a portion of a run: until the device can take more. The next portion is
    /// as much as the device gets done in time.
    pub(crate) async fn submitted(&self, engine: &RefCell<Engine>, start: Option<f64>, abort: &JsValue) -> Result<()> {
        if !self.cuts(abort) {
            return Ok(());
        }
        engine.borrow_mut().device().sync()?;
        while !engine.borrow_mut().device().has_room()? {
            self.signal.wait().await;
        }
        if let Some(start) = start {
            let (took, meant) = (now() - start, self.portion_ms());
            let change = if took < meant / 2.0 { 2.0 } else { meant / took };
            self.rate.set((self.rate.get() * change).clamp(LEAST_RATE, MOST_RATE));
        }
        Ok(())
    }
}
