//! Limits of the work that a blocking call does: a handle that ends it, and how long building and compiling may take.

use gradloom_core::interrupt::{Go, Interrupt};
use gradloom_core::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limits of a model or of a runtime.
#[derive(Default)]
pub struct Limits {
    compile: Option<Duration>,
    /// When the compiling that is under way must be over.
    until: Arc<Mutex<Option<Instant>>>,
}

impl Limits {
    /// What an engine looks at: `handle`, and these limits.
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

    /// Building and compiling begins.
    pub(crate) fn begin(&self) {
        self.put(self.compile.and_then(|d| Instant::now().checked_add(d)));
    }

    /// It is over: what follows may take as long as it takes.
    pub(crate) fn end(&self) {
        self.put(None);
    }

    /// Does some building or compiling.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.begin();
        let out = work();
        self.end();
        out
    }

    fn put(&self, end: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

/// An interrupt that fires once so much time has passed, whatever the work is at.
pub fn deadline(after: Duration) -> Interrupt {
    let (end, ms) = (Instant::now().checked_add(after), after.as_millis() as u64);
    Interrupt::asking(move || match end {
        Some(end) if Instant::now() > end => Err(Error::Deadline { ms }),
        _ => Ok(Go::On),
    })
}
