//! Models with rarely used operators. Only this file refers to them, so that they become a part of the module which is
//! loaded only for such models: see `xtask/src/split.rs`.

use crate::file::FileBuffer;
use crate::runtime::{Runtime, throw};
use gradloom_core::io::onnx::Operators;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
impl Runtime {
    /// [`Runtime::onnx`] with every supported operator. The error lists all unsupported nodes.
    #[wasm_bindgen(js_name = onnxRare)]
    pub fn onnx_rare(
        &self,
        file: &FileBuffer,
        every_value: bool,
        budget: &JsValue,
    ) -> std::result::Result<u32, JsValue> {
        gradloom_core::codegen::opt::recurrence::enable();
        self.inner.parse(file, every_value, budget, Operators::all()).map_err(throw)
    }
}
