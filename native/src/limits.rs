//! Limits for blocking calls: a handle that interrupts them, and a deadline for building and compiling.

use gradloom_core::interrupt::{Go, Interrupt};
use gradloom_core::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limits of a model or a runtime.
#[derive(Default)]
pub struct Limits {
    compile: Option<Duration>,
    /// The deadline of the building or compiling in progress.
    until: Arc<Mutex<Option<Instant>>>,
}

impl Limits {
    /// Makes the interrupt that the engine checks: it fires when `handle` does, or when compiling has taken
    /// longer than `compile`.
    pub(crate) fn set(&mut self, handle: &Interrupt, compile: Option<Duration>) -> Interrupt {
        self.compile = compile;
        let (handle, until) = (handle.clone(), self.until.clone());
        let ms = compile.map_or(0, |d| d.as_millis() as u64);
        Interrupt::asking(move || {
            let go = handle.look()?;
            match *until.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(end) if Instant::now() > end => Err(Error::Deadline { ms }),
                _ => Ok(go),
            }
        })
    }

    /// Starts the time limit of building and compiling.
    pub(crate) fn begin(&self) {
        self.put(self.compile.and_then(|d| Instant::now().checked_add(d)));
    }

    /// Ends that time limit: running a model is not limited.
    pub(crate) fn end(&self) {
        self.put(None);
    }

    /// Runs `work` under the time limit.
    pub(crate) fn with_deadline<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.begin();
        let out = work();
        self.end();
        out
    }

    fn put(&self, end: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

/// An interrupt that fires when this much time has passed, whatever is being done.
pub fn deadline(after: Duration) -> Interrupt {
    let (end, ms) = (Instant::now().checked_add(after), after.as_millis() as u64);
    Interrupt::asking(move || match end {
        Some(end) if Instant::now() > end => Err(Error::Deadline { ms }),
        _ => Ok(Go::On),
    })
}
