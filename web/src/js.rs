//! Small helpers over JavaScript values.

use js_sys::{Object, Reflect};
use wasm_bindgen::{JsCast, JsValue};

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

/// Is this a page's own thread, which must not wait?
pub(crate) fn is_page() -> bool {
    get(&js_sys::global(), "document").is_object()
}

/// Milliseconds of a clock that only goes forward.
pub(crate) fn now() -> f64 {
    let clock = get(&js_sys::global(), "performance");
    let now = get(&clock, "now").dyn_into::<js_sys::Function>();
    now.ok().and_then(|f| f.call0(&clock).ok()).and_then(|v| v.as_f64()).unwrap_or_else(js_sys::Date::now)
}
