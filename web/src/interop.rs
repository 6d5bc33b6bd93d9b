//! Sharing a WebGPU device with the page: tensors on the page's buffers, buffers of tensors for the page's own shaders,
//! and WGSL kernels that the page wrote. No elements are copied. Belongs to the module parts for WebGPU.

use crate::args::{dtype, id_of, name_of, shape_of};
use crate::runtime::{DeviceKind, Inner, Runtime, throw};
use crate::webgpu_memory::Buffers;
use gradloom_core::tensor::{CustomKernel, Tensor};
use gradloom_core::{Error, Result};
use js_sys::Array;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::*;

/// The device's allocations.
fn buffers(inner: &Inner) -> Result<&Rc<RefCell<Buffers>>> {
    match &inner.device_kind {
        DeviceKind::WebGpu(_, buffers) => Ok(buffers),
        DeviceKind::Wasm(..) => Err(Error::Internal("this device has no GPU buffers".into())),
    }
}

#[wasm_bindgen]
impl Runtime {
    /// A tensor on the bytes of a buffer of the page from `offset` on.
    #[wasm_bindgen(js_name = fromGpuBuffer)]
    pub fn from_gpu_buffer(
        &self,
        buffer: JsValue,
        dt: &str,
        shape: &[u32],
        offset: f64,
    ) -> std::result::Result<u32, JsValue> {
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
            let align = engine.device().target().limits.offset_alignment;
            let buf =
                buffers(inner)?.borrow_mut().register_page_buffer(buffer, t.numel() * dt.size(), offset, align)?;
            let mut state = inner.session.state();
            let id = state.storage(state.node(t.root())).and_then(|u| state.buffer_id(u));
            let id = id.ok_or_else(|| Error::Internal("an empty tensor is no buffer".into()))?;
            engine.use_memory(&mut state, id, buf)?;
            drop(state);
            Ok(t)
        };
        Ok(inner.add_tensor(make().map_err(throw)?))
    }

    /// Adds a WGSL kernel to the graph and gives its outputs. Inputs are `[name, id]`, outputs `[name, dtype, shape]`.
    #[wasm_bindgen(js_name = customKernel)]
    pub fn custom_kernel(
        &self,
        name: &str,
        code: &str,
        workgroups: &[u32],
        inputs: &Array,
        outputs: &Array,
    ) -> std::result::Result<Vec<u32>, JsValue> {
        let inner = &self.inner;
        let make = || -> Result<Vec<u32>> {
            let (mut tensors, mut made) = (Vec::new(), Vec::new());
            for i in inputs.iter() {
                let i: Array = i.unchecked_into();
                tensors.push((name_of(&i), inner.tensor(id_of(&i).unwrap_or(u32::MAX))?));
            }
            for o in outputs.iter() {
                let o: Array = o.unchecked_into();
                made.push((name_of(&o), dtype(&o.get(1).as_string().unwrap_or_default())?, shape_of(&o.get(2))));
            }
            let inputs: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
            let outputs: Vec<_> = made.iter().map(|(name, dt, shape)| (name.as_str(), *dt, shape.clone())).collect();
            let workgroups = [0, 1, 2].map(|i| workgroups.get(i).copied().unwrap_or(1));
            let kernel = CustomKernel { name, code, workgroups, inputs: &inputs, outputs: &outputs };
            let out = Tensor::custom_kernel(&inner.session, &kernel)?;
            Ok(out.into_iter().map(|t| inner.add_tensor(t)).collect())
        };
        make().map_err(throw)
    }

    /// The buffer of a tensor, `[buffer, offset, size, dtype]`; the tensor is computed first unless `abort` fires.
    #[wasm_bindgen(js_name = gpuBuffer)]
    pub async fn gpu_buffer(&self, id: u32, abort: JsValue) -> std::result::Result<Array, JsValue> {
        let inner = self.inner.clone();
        let t = inner.tensor(id).map_err(throw)?;
        inner.realize(vec![t.root()], &abort).await.map_err(throw)?;
        let shared = || -> Result<Array> {
            let mut engine = inner.engine.borrow_mut();
            let stored = engine.device().target().stored_as(t.dtype())?;
            let view = engine.lend(&mut inner.session.state(), t.root())?;
            let place = buffers(&inner)?.borrow().view(&view)?;
            Ok(Array::of4(&place.gpu, &(place.at as f64).into(), &(view.bytes as f64).into(), &stored.name().into()))
        };
        shared().map_err(throw)
    }
}
