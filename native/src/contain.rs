//! Catches panics: a panic, which is a bug of this library, becomes [`Error::Internal`] of one call or one model and
//! does not end the process.
//!
//! State that a panic interrupted is never used again: its owner refuses further work, and what it shares with others
//! (threads, the cache) is restored by guards of its own. Programs compiled with `panic = "abort"` do not have this
//! protection.

use gradloom_core::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Runs `f` and turns a panic in it into an error with the panic's message. For calls whose state, if any,
/// is dropped on an error.
pub fn contain<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // State that `f` holds is not used after a panic: see above
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::Internal(message(&*panic))))
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_string()
}

/// Whether a panic has interrupted work on an object, and the panic's message.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<String>);

impl Health {
    /// Runs `f` unless a panic came before; remembers a panic in it.
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
