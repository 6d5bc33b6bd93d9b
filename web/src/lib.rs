//! gradloom in JavaScript hosts: what `wasm-bindgen` exports, and the drivers that wait for the browser. No tensor logic
//! here: that is the core's. The crate is empty on every target but wasm32.
#![cfg(target_arch = "wasm32")]
#![allow(unreachable_pub, reason = "wasm-bindgen exports are public items of private modules")]

mod data;
mod face;
mod js;
mod ops;
mod probe;
pub mod signal;
mod store;
mod threads;
mod train;
mod tune;
pub mod wasm_device;
pub mod webgpu_device;
mod webgpu_memory;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs once when the module starts: a panic becomes a console error with its message and place.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}

/// The version of this build.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}
