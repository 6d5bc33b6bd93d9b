//! Models with operators that few networks have. They are reached from here alone, so that they are a part of the module which is loaded for
//! such a model: see `xtask/src/split.rs`.

use crate::face::{Runtime, throw};
use crate::file::Parts;
use gradloom_core::io::onnx::Operators;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
impl Runtime {
    /// As [`Runtime::onnx`], for every operator that is supported. Throws with all that is unsupported, by node.
    #[wasm_bindgen(js_name = onnxRare)]
    pub fn onnx_rare(&self, file: &Parts, every_value: bool, budget: &JsValue) -> std::result::Result<u32, JsValue> {
        self.inner.parse(file, every_value, budget, Operators::all()).map_err(throw)
    }
}
