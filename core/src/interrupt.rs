//! Lets a caller pause or end long work: the work checks an [`Interrupt`] between its pieces, and the interrupt says
//! whether to continue. There is no clock and there are no threads here: a caller that has them passes a closure that
//! looks at them.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The answer of an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// Continue.
    On,
    /// Save what is done, if that is possible here, and return: the caller has something else to do.
    Pause,
}

/// A means to end work. Clones share their state; the default never ends anything.
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<Inner>>);

struct Inner {
    aborted: AtomicBool,
    ask: Box<dyn Fn() -> Result<Go> + Send + Sync>,
}

impl Interrupt {
    /// An interrupt that only [`Interrupt::abort`] fires.
    pub fn new() -> Interrupt {
        Interrupt::asking(|| Ok(Go::On))
    }

    /// An interrupt that also calls `ask` at each check: for a deadline, a budget, or the end of a time slice.
    pub fn asking(ask: impl Fn() -> Result<Go> + Send + Sync + 'static) -> Interrupt {
        Interrupt(Some(Arc::new(Inner { aborted: AtomicBool::new(false), ask: Box::new(ask) })))
    }

    /// Can it fire? False for the default.
    pub fn can_fire(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the work at its next check. May be called from any thread.
    pub fn abort(&self) {
        if let Some(inner) = &self.0 {
            inner.aborted.store(true, Ordering::Relaxed);
        }
    }

    /// Asks whether to continue or to pause.
    ///
    /// # Errors
    /// [`Error::Aborted`] once it was fired, and the errors of the closure.
    pub fn look(&self) -> Result<Go> {
        match &self.0 {
            None => Ok(Go::On),
            Some(inner) if inner.aborted.load(Ordering::Relaxed) => Err(Error::Aborted),
            Some(inner) => (inner.ask)(),
        }
    }

    /// Asks whether to continue, where there is nothing to pause.
    ///
    /// # Errors
    /// As [`Interrupt::look`].
    pub fn check(&self) -> Result<()> {
        self.look().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_what_asks_and_nothing_else() {
        assert_eq!(Interrupt::default().look(), Ok(Go::On));
        let (i, other) = (Interrupt::new(), Interrupt::new());
        let same = i.clone();
        assert_eq!(i.check(), Ok(()));
        same.abort();
        assert_eq!((i.check(), other.check()), (Err(Error::Aborted), Ok(())));
        assert_eq!(Interrupt::asking(|| Ok(Go::Pause)).look(), Ok(Go::Pause));
        assert_eq!(Interrupt::asking(|| Err(Error::Aborted)).check(), Err(Error::Aborted));
    }
}
