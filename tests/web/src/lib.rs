//! The sample programs and the engine on the devices of `gradloom-web`, called from node and from a page.
#![cfg(target_arch = "wasm32")]
#![allow(missing_docs, reason = "exports of a test module")]

use gradloom_core::render::wasm::Wasm;
use gradloom_core::render::wgsl::WgslRenderer;
use gradloom_tests::runner::{run_samples, run_samples_async};
use gradloom_web::wasm_device::WasmDevice;
use gradloom_web::webgpu_device::WebGpuDevice;
use js_sys::Array;
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

fn js(e: gradloom_core::Error) -> JsError {
    JsError::new(&format!("{}: {e}", e.code()))
}

/// All samples on the WASM device; how many there were. With workers on their threads too.
#[wasm_bindgen(js_name = samplesOnWasm)]
pub fn samples_on_wasm(workers: &Array) -> Result<u32, JsError> {
    let mut device = WasmDevice::new(workers.length() > 0).map_err(js)?;
    if workers.length() > 0 {
        device.add_threads(workers).map_err(js)?;
    }
    Ok(run_samples(&mut device, &Wasm) as u32)
}

/// All samples on WebGPU; how many there were, or nothing where there is no adapter.
#[wasm_bindgen(js_name = samplesOnWebGpu)]
pub async fn samples_on_web_gpu() -> Result<Option<u32>, JsError> {
    let Some(mut device) = WebGpuDevice::request().await.map_err(js)? else { return Ok(None) };
    let signal = device.watch().signal();
    let n = run_samples_async(&mut device, &WgslRenderer, || signal.wait()).await;
    Ok(Some(n as u32))
}
