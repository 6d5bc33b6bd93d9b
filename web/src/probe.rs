//! Detection of WebGPU: `navigator.gpu` in a page or a worker, an adapter, a device, and their properties as plain
//! data.

use crate::values::to_js;
use js_sys::{Array, Reflect};
use serde::Serialize;
use tsify::{Ts, Tsify};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Gpu, GpuAdapter, GpuDevice};

/// `navigator.gpu`, or `None` where the host has no WebGPU.
pub(crate) fn gpu() -> Option<Gpu> {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).ok()?;
    let gpu = Reflect::get(&navigator, &"gpu".into()).ok()?;
    gpu.is_object().then(|| gpu.unchecked_into())
}

/// The properties of an adapter and its device.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct WebGpuProbe {
    pub(crate) vendor: String,
    /// True for an adapter emulated on the CPU; undefined if the host does not report it.
    pub(crate) fallback: Option<bool>,
    pub(crate) max_buffer_size: f64,
    pub(crate) features: Vec<String>,
}

/// Requests an adapter and a device. Resolves to undefined if the host has no WebGPU or gives no adapter.
#[wasm_bindgen(js_name = probeWebGpu)]
pub async fn probe_web_gpu() -> Result<Option<Ts<WebGpuProbe>>, JsValue> {
    let Some(gpu) = gpu() else { return Ok(None) };
    let adapter: JsValue = JsFuture::from(gpu.request_adapter()).await?.into();
    if !adapter.is_object() {
        return Ok(None);
    }
    let adapter: GpuAdapter = adapter.unchecked_into();
    let device: GpuDevice = JsFuture::from(adapter.request_device()).await?.unchecked_into();
    let features = Array::from(&device.features()).iter().filter_map(|f| f.as_string()).collect();
    let probe = WebGpuProbe {
        vendor: adapter.info().vendor(),
        fallback: Reflect::get(&adapter.info(), &"isFallbackAdapter".into())?.as_bool(),
        max_buffer_size: device.limits().max_buffer_size(),
        features,
    };
    device.destroy();
    to_js(probe).map(Some)
}
