//! gradloom in JavaScript hosts: what `wasm-bindgen` exports, and the drivers that wait for the browser. No tensor logic
//! here: that is the core's. The crate is empty on every target but wasm32.
#![cfg(target_arch = "wasm32")]
#![allow(unreachable_pub, reason = "wasm-bindgen exports are public items of private modules")]

mod args;
mod data;
mod debug;
mod face;
mod file;
mod graph;
mod inputs;
mod interop;
mod js;
mod lengths;
mod loops;
mod math;
mod network;
mod ops;
mod pace;
mod probe;
mod rare;
mod replay;
pub mod signal;
mod store;
mod threads;
mod train;
mod tune;
mod values;
pub mod wasm_device;
pub mod webgpu_device;
mod webgpu_memory;
mod webgpu_open;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs once when the module starts: a panic is thrown as an Error with its message and place. Nothing of this module runs after
/// that, so the frames it leaves behind do not matter.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| wasm_bindgen::throw_str(&info.to_string())));
}

/// The version of this build.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}
