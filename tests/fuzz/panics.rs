//! Panics as values: where one was and what it says.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Where the last panic of this thread was, while it waits for one.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The place and the words of a panic, if there is one.
pub(crate) fn panics<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let other = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let waits =
                PANIC.with_borrow_mut(|p| p.as_mut().map(|p| *p = info.to_string().replace('\n', " ")).is_some());
            if !waits {
                other(info);
            }
        }));
    });
    PANIC.set(Some(String::new()));
    let out = catch_unwind(AssertUnwindSafe(f));
    let text = PANIC.take().unwrap_or_default();
    out.map_err(|_| text)
}
