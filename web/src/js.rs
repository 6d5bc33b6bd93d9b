//! Small helpers over JavaScript values.

use js_sys::{Array, Function, Object, Promise, Reflect};
use std::task::{Context, Poll, Waker};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::future_to_promise;

/// The object `{key: value, ..}`.
pub(crate) fn object(entries: &[(&str, JsValue)]) -> Object {
    let o = Object::new();
    for (k, v) in entries {
        set(&o, k, v);
    }
    o
}

/// Sets `o[key] = value`; this cannot fail on plain objects.
pub(crate) fn set(o: &JsValue, key: &str, value: &JsValue) {
    let _ = Reflect::set(o, &key.into(), value);
}

/// Gets `o[key]`; undefined if there is no such property.
pub(crate) fn get(o: &JsValue, key: &str) -> JsValue {
    Reflect::get(o, &key.into()).unwrap_or(JsValue::UNDEFINED)
}

/// The text of a thrown value: the message of an Error or a GPUError, or the value itself.
pub(crate) fn text(e: &JsValue) -> String {
    let message = get(e, "message").as_string();
    message.or_else(|| e.as_string()).unwrap_or_else(|| format!("{e:?}"))
}

/// Runs asynchronous work: gives the result directly if it completes without waiting, else a promise, since a promise
/// and its tasks cost more than a small kernel does. The work is polled once here with a waker that does nothing, and
/// again as part of the promise; so every future in it must check its condition on every poll.
pub(crate) fn now_or_promise(
    work: impl Future<Output = Result<JsValue, JsValue>> + 'static,
) -> Result<JsValue, JsValue> {
    let mut work = Box::pin(work);
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Ok(future_to_promise(work).into()),
    }
}

/// Whether this is a page's main thread, which must not block.
pub(crate) fn is_main_thread() -> bool {
    get(&js_sys::global(), "document").is_object()
}

/// Resolves after the event loop has processed pending tasks: input, timers, messages.
pub(crate) fn yield_to_event_loop() -> Promise {
    Promise::new(&mut |done, _| {
        let global = js_sys::global();
        let called = match get(&global, "setImmediate").dyn_into::<Function>() {
            Ok(immediate) => immediate.call1(&global, &done).is_ok(),
            // a message instead of a timer, which would fire some milliseconds later
            Err(_) => post_message(&global, &done).is_ok(),
        };
        if !called {
            let _ = done.call0(&JsValue::UNDEFINED);
        }
    })
}

fn post_message(global: &JsValue, done: &Function) -> Result<(), JsValue> {
    let make: Function = get(global, "MessageChannel").dyn_into()?;
    let channel = Reflect::construct(&make, &Array::new())?;
    set(&get(&channel, "port1"), "onmessage", done);
    let port = get(&channel, "port2");
    get(&port, "postMessage").dyn_into::<Function>()?.call1(&port, &0.into()).map(|_| ())
}

/// Whether an `AbortSignal` has fired; false for values that are no signal.
pub(crate) fn is_aborted(signal: &JsValue) -> bool {
    signal.is_object() && get(signal, "aborted").is_truthy()
}

#[wasm_bindgen]
extern "C" {
    /// Milliseconds of a monotonic clock.
    #[wasm_bindgen(js_namespace = performance)]
    pub(crate) fn now() -> f64;
}

/// The same clock as a JavaScript function, which kernel modules import.
pub(crate) fn clock() -> JsValue {
    let performance = get(&js_sys::global(), "performance");
    get(&performance, "now").unchecked_into::<Function>().bind0(&performance).into()
}
