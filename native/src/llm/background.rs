//! A value that a thread computes in the background; whoever needs it waits for it.

use gradloom_core::{Error, Result};
use std::sync::{Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};

/// A value that is being computed or is ready.
pub(super) struct Background<T> {
    made: OnceLock<T>,
    thread: Mutex<Option<JoinHandle<T>>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts to compute it.
    ///
    /// # Errors
    /// `E_DEVICE` if the system cannot start a thread.
    pub(super) fn new(make: impl FnOnce() -> T + Send + 'static) -> Result<Background<T>> {
        let no_thread = |e| Error::Device { device: "cpu".into(), what: format!("no thread: {e}") };
        let thread = Builder::new().name("gradloom-text".into()).spawn(make).map_err(no_thread)?;
        Ok(Background { made: OnceLock::new(), thread: Mutex::new(Some(thread)) })
    }

    /// The value. A panic of the thread is resumed here.
    pub(super) fn get(&self) -> &T {
        self.made.get_or_init(|| {
            let thread = self.thread.lock().unwrap_or_else(|e| e.into_inner()).take();
            let made = thread.expect("it is made once").join();
            made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_value_is_made_once_and_a_panic_of_its_making_is_the_askers() {
        let v = Background::new(|| 7).unwrap();
        assert!(std::ptr::eq(v.get(), v.get()) && *v.get() == 7);
        let bad: Background<u8> = Background::new(|| panic!("no value")).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| *bad.get())).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"no value"));
    }
}
