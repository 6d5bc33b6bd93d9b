//! Whether long work is to go on: it asks between its pieces, and whoever started it answers. There is no clock and there
//! are no threads here: a caller that has them brings a closure that looks at them.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a caller answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// Go on.
    On,
    /// Save what is done, if that is possible here, and come back: the caller has something else to do.
    Pause,
}

/// A way to end work. Clones are the same one; the default never ends anything.
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<Inner>>);

struct Inner {
    aborted: AtomicBool,
    ask: Box<dyn Fn() -> Result<Go> + Send + Sync>,
}

impl Interrupt {
    /// One that [`Interrupt::abort`] fires.
    pub fn new() -> Interrupt {
        Interrupt::asking(|| Ok(Go::On))
    }

    /// One that also asks whenever it is looked at: a deadline, a budget, the end of a time slice.
    pub fn asking(ask: impl Fn() -> Result<Go> + Send + Sync + 'static) -> Interrupt {
        Interrupt(Some(Arc::new(Inner { aborted: AtomicBool::new(false), ask: Box::new(ask) })))
    }

    /// Can it end anything?
    pub fn can_fire(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the work at its next look. May be called from any thread.
    pub fn abort(&self) {
        if let Some(inner) = &self.0 {
            inner.aborted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether to go on, or to pause.
    ///
    /// # Errors
    /// [`Error::Aborted`] once it was fired, and what the closure says.
    pub fn look(&self) -> Result<Go> {
        match &self.0 {
            None => Ok(Go::On),
            Some(inner) if inner.aborted.load(Ordering::Relaxed) => Err(Error::Aborted),
            Some(inner) => (inner.ask)(),
        }
    }

    /// The same where there is nothing to pause.
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
