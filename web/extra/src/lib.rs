//! What few pages need. `cargo xtask wasm` compiles this crate once for each feature, to a wasm module that the npm package
//! loads when it is first used, so that the module every page downloads stays small. A module shares nothing with it but
//! bytes. The crate is empty on every target but wasm32.
#![cfg(target_arch = "wasm32")]
#![allow(unreachable_pub, reason = "wasm-bindgen exports are public items of private modules")]

#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "encoder")]
mod encoder;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "forms")]
mod forms;
#[cfg(feature = "llm")]
mod llm;
#[path = "../../src/math.rs"]
mod math;
#[cfg(any(feature = "encoder", feature = "llm"))]
mod model;
#[cfg(feature = "ops")]
mod ops;
#[cfg(any(feature = "text", feature = "encoder", feature = "llm"))]
mod text;

use gradloom_core::Error;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// Runs once when the module starts: a panic is thrown as an Error with its message and place. Nothing of this module runs after
/// that, so the frames it leaves behind do not matter.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| wasm_bindgen::throw_str(&info.to_string())));
}

/// An error as JavaScript sees it: an Error with a stable `code`.
#[allow(dead_code, reason = "every feature uses it")]
fn throw(e: Error) -> JsValue {
    let js: JsValue = js_sys::Error::new(&e.to_string()).into();
    // an Error takes any property
    let _ = js_sys::Reflect::set(&js, &"code".into(), &e.code().into());
    js
}
