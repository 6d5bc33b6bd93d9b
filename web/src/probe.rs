//! Finding WebGPU: `navigator.gpu` from a page or a worker, an adapter, a device, and what they can do as plain data.

use js_sys::{Array, Object, Reflect};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Gpu, GpuAdapter, GpuDevice};

/// `navigator.gpu`, or nothing where the host has no WebGPU.
pub(crate) fn gpu() -> Option<Gpu> {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).ok()?;
    let gpu = Reflect::get(&navigator, &"gpu".into()).ok()?;
    gpu.is_object().then(|| gpu.unchecked_into())
}

/// Asks for an adapter and a device. Resolves to `{vendor, fallback, maxBufferSize, features}`, or to null where the host
/// has no WebGPU or gives no adapter.
#[wasm_bindgen(js_name = probeWebGpu)]
pub async fn probe_web_gpu() -> Result<JsValue, JsValue> {
    let Some(gpu) = gpu() else { return Ok(JsValue::NULL) };
    let adapter: JsValue = JsFuture::from(gpu.request_adapter()).await?.into();
    if !adapter.is_object() {
        return Ok(JsValue::NULL);
    }
    let adapter: GpuAdapter = adapter.unchecked_into();
    let device: GpuDevice = JsFuture::from(adapter.request_device()).await?.unchecked_into();
    let result = Object::new();
    let set = |key: &str, value: JsValue| Reflect::set(&result, &key.into(), &value).map(|_| ());
    set("vendor", adapter.info().vendor().into())?;
    set("fallback", Reflect::get(&adapter.info(), &"isFallbackAdapter".into())?)?;
    set("maxBufferSize", device.limits().max_buffer_size().into())?;
    set("features", Array::from(&device.features()).into())?;
    device.destroy();
    Ok(result.into())
}
