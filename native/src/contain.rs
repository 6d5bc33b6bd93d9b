//! Panics end here: a bug of ours becomes [`Error::Internal`], of one call or of one model, never of the process.
//!
//! Nothing that a panic interrupted is looked at again: whoever holds it refuses further work, and what is shared with others
//! (threads, the cache) is left in order by its own guards. A program that is compiled with `panic = "abort"` has no such end.

use gradloom_core::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Runs `f`; a panic in it is an error with the panic's message. For calls whose state, if any, is dropped on an error.
pub fn contain<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // what `f` holds is not used after a panic: see above
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::Internal(message(&*panic))))
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_string()
}

/// Whether a panic has interrupted work on something, and which.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<String>);

impl Health {
    /// Runs `f` if no panic came before; remembers one that comes.
    pub(crate) fn guard<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(what) = self.0.get() {
            return Err(Error::Internal(format!("it cannot be used any more since a failure: {what}")));
        }
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
            let what = message(&*panic);
            let _ = self.0.set(what.clone());
            Err(Error::Internal(what))
        })
    }
}
