//! How work and the page share the one thread that they have: work goes in pieces, the page has its turn every some
//! milliseconds, and between two pieces it is seen whether the caller gave up. An `AbortSignal` fires in the page's turns only.

use crate::js::{is_aborted, now, turn_of_page};
use gradloom_core::device::Device;
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
}

impl Default for Pace {
    fn default() -> Self {
        Pace { end: Arc::default(), rate: Cell::new(FIRST_RATE) }
    }
}

fn is_over(end: &AtomicU64) -> bool {
    now() >= f64::from_bits(end.load(Ordering::Relaxed))
}

impl Pace {
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

    /// How much of a run to submit at once: all of it, unless somebody may end it.
    pub(crate) fn portion(&self, abort: &JsValue) -> u64 {
        if abort.is_object() { (self.rate.get() * SLICE_MS) as u64 } else { u64::MAX }
    }

    /// Submits a run. One that overwrites what was there before is not left half done.
    pub(crate) async fn submit(&self, engine: &RefCell<Engine>, run: &mut Running, abort: &JsValue) -> Result<()> {
        loop {
            let start = now();
            let done = {
                let mut engine = engine.borrow_mut();
                let done = engine.submit_some(run, self.portion(abort))?;
                self.learn(engine.device(), abort, start)?;
                done
            };
            if done {
                return Ok(());
            }
            self.breathe_if(run.may_stop(), abort).await?;
        }
    }

    /// Learns from a portion that was submitted since `start`, once the device is done with it where that can be said.
    pub(crate) fn learn(&self, device: &mut dyn Device, abort: &JsValue, start: f64) -> Result<()> {
        if abort.is_object() {
            device.sync()?;
            let took = now() - start;
            let change = if took < SLICE_MS / 2.0 { 2.0 } else { SLICE_MS / took };
            self.rate.set((self.rate.get() * change).clamp(LEAST_RATE, MOST_RATE));
        }
        Ok(())
    }
}
