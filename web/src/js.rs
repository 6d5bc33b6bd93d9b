//! Small helpers over JavaScript values.

use js_sys::{Array, Function, Object, Promise, Reflect};
use std::task::{Context, Poll, Waker};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::future_to_promise;

/// `{key: value, ..}`.
pub(crate) fn object(entries: &[(&str, JsValue)]) -> Object {
    let o = Object::new();
    for (k, v) in entries {
        set(&o, k, v);
    }
    o
}

/// `o[key] = value`; plain objects never refuse.
pub(crate) fn set(o: &JsValue, key: &str, value: &JsValue) {
    let _ = Reflect::set(o, &key.into(), value);
}

/// `o[key]`, undefined if there is no such thing.
pub(crate) fn get(o: &JsValue, key: &str) -> JsValue {
    Reflect::get(o, &key.into()).unwrap_or(JsValue::UNDEFINED)
}

/// What a thrown value says: the message of an Error or a GPUError, or the value itself.
pub(crate) fn text(e: &JsValue) -> String {
    let message = get(e, "message").as_string();
    message.or_else(|| e.as_string()).unwrap_or_else(|| format!("{e:?}"))
}

/// What work gives that never has to wait, or a promise of it: a promise and its turns cost more than a small kernel does. It is polled a first
/// time here, where nothing wakes it, and again once it is the promise's; so what it waits for must look again whenever it is polled.
pub(crate) fn at_once(work: impl Future<Output = Result<JsValue, JsValue>> + 'static) -> Result<JsValue, JsValue> {
    let mut work = Box::pin(work);
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Ok(future_to_promise(work).into()),
    }
}

/// Is this a page's own thread, which must not wait?
pub(crate) fn is_page() -> bool {
    get(&js_sys::global(), "document").is_object()
}

/// Resolves when the page has done what it had to do: input, timers, messages.
pub(crate) fn turn_of_page() -> Promise {
    Promise::new(&mut |done, _| {
        let global = js_sys::global();
        let called = match get(&global, "setImmediate").dyn_into::<Function>() {
            Ok(immediate) => immediate.call1(&global, &done).is_ok(),
            // a timer would come some milliseconds later
            Err(_) => message(&global, &done).is_ok(),
        };
        if !called {
            let _ = done.call0(&JsValue::UNDEFINED);
        }
    })
}

fn message(global: &JsValue, done: &Function) -> Result<(), JsValue> {
    let make: Function = get(global, "MessageChannel").dyn_into()?;
    let channel = Reflect::construct(&make, &Array::new())?;
    set(&get(&channel, "port1"), "onmessage", done);
    let port = get(&channel, "port2");
    get(&port, "postMessage").dyn_into::<Function>()?.call1(&port, &0.into()).map(|_| ())
}

/// Has an `AbortSignal` fired? What is none has not.
pub(crate) fn is_aborted(signal: &JsValue) -> bool {
    signal.is_object() && get(signal, "aborted").is_truthy()
}

#[wasm_bindgen]
extern "C" {
    /// Milliseconds of a clock that only goes forward.
    #[wasm_bindgen(js_namespace = performance)]
    pub(crate) fn now() -> f64;
}

/// The same clock as a function that modules import.
pub(crate) fn clock() -> JsValue {
    let performance = get(&js_sys::global(), "performance");
    get(&performance, "now").unchecked_into::<Function>().bind0(&performance).into()
}
