//! Attention in one kernel, a part of the module that is loaded with models that have attention, on GPUs: see
//! `xtask/src/wasm.rs`.

use wasm_bindgen::prelude::*;

/// Enables attention in one kernel, for all devices of this instance that it is faster on.
#[wasm_bindgen(js_name = fuseAttention)]
pub fn fuse_attention() {
    gradloom_core::codegen::attention::enable();
}
