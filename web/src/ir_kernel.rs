//! User-written kernels in the text form of the IR. Only this file refers to the parser and the validation of the IR,
//! so that these become a part of the module which is loaded only for such kernels: see `xtask/src/split.rs`.

use crate::runtime::{Runtime, throw};
use gradloom_core::Result;
use gradloom_core::tensor::{IrKernel, Tensor};
use js_sys::Array;
use wasm_bindgen::prelude::*;

/// A parsed and validated kernel.
#[wasm_bindgen]
pub struct IrKernelHandle(IrKernel);

#[wasm_bindgen]
impl IrKernelHandle {
    /// The parameters, `[dtype, elements]` each: the output, then the inputs.
    pub fn params(&self) -> Array {
        self.0.params().iter().map(|&(dt, len)| Array::of2(&dt.name().into(), &(len as f64).into())).collect()
    }
}

#[wasm_bindgen]
impl Runtime {
    /// Parses and validates a kernel.
    #[wasm_bindgen(js_name = parseIrKernel)]
    pub fn parse_ir_kernel(&self, name: &str, text: &str) -> std::result::Result<IrKernelHandle, JsValue> {
        IrKernel::parse(name, text).map(IrKernelHandle).map_err(throw)
    }

    /// Applies a kernel to tensors, lazily; the result has the given shape.
    #[wasm_bindgen(js_name = launchIrKernel)]
    pub fn launch_ir_kernel(
        &self,
        kernel: &IrKernelHandle,
        ids: &[u32],
        shape: &[u32],
    ) -> std::result::Result<u32, JsValue> {
        let launch = || -> Result<Tensor> {
            let inputs = ids.iter().map(|&id| self.inner.tensor(id)).collect::<Result<Vec<_>>>()?;
            let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
            kernel.0.launch(&self.inner.session, &inputs.iter().collect::<Vec<_>>(), &shape)
        };
        Ok(self.inner.add_tensor(launch().map_err(throw)?))
    }
}
