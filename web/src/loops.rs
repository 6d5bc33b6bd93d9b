//! Kernels that pages write as loops in the IR. The reader of texts and the checks of the spec are reached from here alone, so that they are
//! a part of the module which is loaded for such a kernel: see `xtask/src/split.rs`.

use crate::face::{Runtime, throw};
use gradloom_core::Result;
use gradloom_core::tensor::{IrKernel, Tensor};
use js_sys::Array;
use wasm_bindgen::prelude::*;

/// A kernel that was read and checked.
#[wasm_bindgen]
pub struct Loops(IrKernel);

#[wasm_bindgen]
impl Loops {
    /// `[dtype, elements]` of each parameter: what it writes, then what it reads.
    pub fn params(&self) -> Array {
        self.0.params().iter().map(|&(dt, len)| Array::of2(&dt.name().into(), &(len as f64).into())).collect()
    }
}

#[wasm_bindgen]
impl Runtime {
    /// Reads a kernel.
    #[wasm_bindgen(js_name = readLoops)]
    pub fn read_loops(&self, name: &str, text: &str) -> std::result::Result<Loops, JsValue> {
        IrKernel::parse(name, text).map(Loops).map_err(throw)
    }

    /// What a kernel makes of these tensors.
    #[wasm_bindgen(js_name = launchLoops)]
    pub fn launch_loops(&self, kernel: &Loops, ids: &[u32], shape: &[u32]) -> std::result::Result<u32, JsValue> {
        let launch = || -> Result<Tensor> {
            let inputs = ids.iter().map(|&id| self.inner.tensor(id)).collect::<Result<Vec<_>>>()?;
            let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
            kernel.0.launch(&self.inner.session, &inputs.iter().collect::<Vec<_>>(), &shape)
        };
        Ok(self.inner.keep(launch().map_err(throw)?))
    }
}
