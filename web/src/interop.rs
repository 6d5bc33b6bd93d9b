//! What a WebGPU device shares with the page: buffers of the page as tensors, and tensors as buffers for the page's own shaders. No element
//! is copied, and none goes over the host. Part of what pages on WebGPU load.

use crate::args::dtype;
use crate::face::{Inner, Runtime, Side, throw};
use crate::webgpu_memory::Buffers;
use gradloom_core::tensor::Tensor;
use gradloom_core::{Error, Result};
use js_sys::Array;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// What the device has allocated.
fn buffers(inner: &Inner) -> Result<&Rc<RefCell<Buffers>>> {
    match &inner.side {
        Side::WebGpu(_, buffers) => Ok(buffers),
        Side::Wasm(_) => Err(Error::Internal("this device has no GPU buffers".into())),
    }
}

#[wasm_bindgen]
impl Runtime {
    /// A tensor whose elements are the first bytes of a buffer of the page.
    #[wasm_bindgen(js_name = fromGpuBuffer)]
    pub fn from_gpu_buffer(&self, buffer: JsValue, dt: &str, shape: &[u32]) -> std::result::Result<u32, JsValue> {
        let inner = &self.inner;
        let make = || -> Result<Tensor> {
            let (dt, shape) = (dtype(dt)?, shape.iter().map(|&n| n as usize).collect::<Vec<_>>());
            let t = Tensor::empty(&inner.session, dt, &shape)?;
            let mut engine = inner.engine.borrow_mut();
            let stored = engine.device().target().stored_as(dt)?;
            if stored != dt {
                let what = format!("elements of {dt} are stored as {stored} on this device");
                return Err(Error::DType { op: "fromGPUBuffer", dtype: dt, why: what });
            }
            let buf = buffers(inner)?.borrow_mut().borrowed(buffer, t.numel() * dt.size())?;
            let mut state = inner.session.state();
            let id = state.storage(state.node(t.root())).and_then(|u| state.buffer_id(u));
            let id = id.ok_or_else(|| Error::Internal("an empty tensor is no buffer".into()))?;
            engine.use_memory(&mut state, id, buf)?;
            drop(state);
            Ok(t)
        };
        Ok(inner.keep(make().map_err(throw)?))
    }

    /// `[buffer, offset, size, dtype]` of a tensor, which is computed first unless `abort` fires.
    #[wasm_bindgen(js_name = gpuBuffer)]
    pub async fn gpu_buffer(&self, id: u32, abort: JsValue) -> std::result::Result<Array, JsValue> {
        let inner = self.inner.clone();
        let t = inner.tensor(id).map_err(throw)?;
        inner.realize(vec![t.root()], &abort).await.map_err(throw)?;
        let shared = || -> Result<Array> {
            let mut engine = inner.engine.borrow_mut();
            let stored = engine.device().target().stored_as(t.dtype())?;
            let view = engine.lend(&mut inner.session.state(), t.root())?;
            let (_, gpu, _) = buffers(&inner)?.borrow().view(&view)?;
            Ok(Array::of4(&gpu, &(view.offset as f64).into(), &(view.bytes as f64).into(), &stored.name().into()))
        };
        shared().map_err(throw)
    }
}
