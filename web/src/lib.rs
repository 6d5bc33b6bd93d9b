//! gradloom in JavaScript hosts: the exports of `wasm-bindgen`, and the drivers that wait for the browser. All tensor
//! logic is in the core. The crate is empty on every target but wasm32.
#![cfg(target_arch = "wasm32")]
#![allow(unreachable_pub, reason = "wasm-bindgen exports are public items of private modules")]

mod args;
mod attention;
mod cache_host;
mod data;
mod debug;
mod file;
mod graph;
mod inputs;
mod interop;
mod ir_kernel;
mod js;
mod lengths;
mod math;
mod network;
mod onnx_rare;
mod ops;
mod probe;
mod read;
mod replay;
mod runtime;
mod scheduler;
pub mod signal;
mod threads;
mod train;
mod tune;
mod values;
pub mod wasm_device;
pub mod webgpu_device;
mod webgpu_memory;
mod webgpu_open;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs once when the module starts: makes a panic throw an Error with its message and location. Nothing of this
/// instance runs afterwards, so skipping the clean-up of its stack frames does no harm.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| wasm_bindgen::throw_str(&info.to_string())));
}

/// The version of this build.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}
