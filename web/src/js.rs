//! Small helpers over JavaScript values.

use js_sys::{Object, Reflect};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

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

#[wasm_bindgen]
extern "C" {
    /// Milliseconds of a clock that only goes forward.
    #[wasm_bindgen(js_namespace = performance)]
    pub(crate) fn now() -> f64;
}
