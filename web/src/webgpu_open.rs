//! Opens the WebGPU device: on an adapter requested from the host, or on a device that the page created. Its
//! capabilities are read from its limits and features, and tested by shaders (`canary`); missing features of the page's
//! device are worked around. Nothing is computed here otherwise.

use crate::js::{self, object, text};
use crate::webgpu_device::{WebGpuDevice, failed};
use gradloom_core::device::canary;
use gradloom_core::device::{Device, Step, View};
use gradloom_core::render::Source;
use gradloom_core::render::wgsl;
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use js_sys::{Array, Function, Object};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::GpuDevice;

/// Limits that are requested at the adapter's maximum.
const LIMITS: [&str; 11] = [
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
    "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupSizeX",
    "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ",
    "maxComputeWorkgroupsPerDimension",
    "minStorageBufferOffsetAlignment",
    "minUniformBufferOffsetAlignment",
];

/// Features that are requested if the adapter has them.
const FEATURES: [&str; 3] = ["shader-f16", "subgroups", "timestamp-query"];

impl WebGpuDevice {
    /// Requests an adapter and a device. `None` where there is no WebGPU or no adapter. With `hardware`, kernels are
    /// generated as for a hardware GPU, so that tests on a software adapter cover them.
    pub async fn request(hardware: bool) -> Result<Option<WebGpuDevice>> {
        let Some(gpu) = crate::probe::gpu() else { return Ok(None) };
        let options = object(&[("powerPreference", "high-performance".into())]);
        let adapter = call_async(&gpu, "requestAdapter", &options).await?;
        if !adapter.is_object() {
            return Ok(None);
        }
        let (limits, features) = (js::get(&adapter, "limits"), js::get(&adapter, "features"));
        let wanted = Object::new();
        for name in LIMITS {
            let v = js::get(&limits, name);
            if v.as_f64().is_some() {
                js::set(&wanted, name, &v);
            }
        }
        let list: Array = FEATURES.into_iter().filter(|f| set_has(&features, f)).map(JsValue::from).collect();
        let descriptor = object(&[("requiredLimits", wanted.into()), ("requiredFeatures", list.into())]);
        let device: GpuDevice = call_async(&adapter, "requestDevice", &descriptor).await?.unchecked_into();
        let fallback = js::get(&adapter, "isFallbackAdapter").is_truthy();
        let device = WebGpuDevice::new(device, true)?;
        device.detect_capabilities(&js::get(&adapter, "info"), fallback, hardware).await.map(Some)
    }

    /// Opens a device that the page created: nothing is requested from it, and it is never destroyed.
    pub async fn from_page_device(device: JsValue, hardware: bool) -> Result<WebGpuDevice> {
        let other = |_| Error::value("init", "gpuDevice is not a GPUDevice");
        let device: GpuDevice = device.dyn_into().map_err(other)?;
        let info = js::get(&device, "adapterInfo");
        let device = WebGpuDevice::new(device, false)?;
        // a device that is already lost reports it by then
        let _ = JsFuture::from(js::yield_to_event_loop()).await;
        device.check()?;
        device.detect_capabilities(&info, false, hardware).await
    }

    /// Determines the capabilities of a new device.
    async fn detect_capabilities(mut self, info: &JsValue, fallback: bool, hardware: bool) -> Result<WebGpuDevice> {
        let features = js::get(&self.gpu(), "features");
        let language = crate::probe::gpu().map_or(JsValue::UNDEFINED, |gpu| js::get(&gpu, "wgslLanguageFeatures"));
        let fallback = fallback || js::get(info, "isFallbackAdapter").is_truthy();
        let name = format!("{} {}", string_property(info, "vendor"), string_property(info, "architecture"));
        let emulated = fallback || name.contains("swiftshader") || name.contains("llvmpipe");
        let software = emulated && !hardware;
        if emulated {
            let target = self.target.clone().emulated();
            self.target = if hardware { target.as_hardware() } else { target };
        }
        if !software && set_has(&features, "shader-f16") {
            self.target = self.target.clone().with_f16();
        }
        if !software && set_has(&language, "packed_4x8_integer_dot_product") {
            self.target = self.target.clone().with_words();
        }
        if !software && set_has(&features, "subgroups") {
            // if the driver fails to run the probe, subgroups are not used
            let found = self.run_shaders(&[wgsl::subgroup_probe()]).await.unwrap_or_default();
            let found = found.first().map_or(&[][..], Vec::as_slice);
            self.target.caps.subgroup = wgsl::subgroup(found, limit(info, "subgroupMinSize", 4) as u32);
        }
        // the canaries test hardware drivers; `auto` opens an emulated device only to recognise it, and no feature is
        // used there that could be wrong
        if !software {
            self.notes = match self.run_shaders(&canary::sources(&self.target)).await {
                Ok(answers) => canary::judge(&mut self.target, &answers)?,
                // a defect then shows up as the error of a kernel
                Err(e) => vec![format!("its answers are not known: {e}")],
            };
        }
        Ok(self)
    }

    /// Runs shaders and returns what they write to their first buffers. The other buffers are the canaries' inputs, and
    /// a word of zeros.
    async fn run_shaders(&mut self, sources: &[Source]) -> Result<Vec<Vec<u8>>> {
        let kernels = self.compile(sources)?;
        while !self.ready()? {
            self.signal().wait().await;
        }
        let questions = canary::questions();
        let mut views = Vec::new();
        for bytes in [questions.len(), 4].into_iter().chain(sources.iter().map(|s| 4 * s.params[0].len)) {
            views.push(View { buf: self.alloc(bytes)?, offset: 0, bytes });
        }
        self.upload(views[0].buf, 0, &questions)?;
        let mut steps = Vec::new();
        for ((source, &kernel), &answer) in sources.iter().zip(&kernels).zip(&views[2..]) {
            let args = [answer, views[0], views[1]][..source.params.len()].to_vec();
            steps.push(Step::Launch { kernel, args, grid: [1; 3], vars: Vec::new() });
        }
        self.submit(&steps)?;
        let tickets = views[2..].iter().map(|&v| self.read(v)).collect::<Result<Vec<_>>>()?;
        let mut answers = Vec::new();
        for ticket in tickets {
            answers.push(loop {
                if let Some(found) = self.poll(ticket)? {
                    break found;
                }
                self.signal().wait().await;
            });
        }
        views.iter().for_each(|v| self.free(v.buf));
        kernels.into_iter().for_each(|k| self.release(k));
        Ok(answers)
    }
}

pub(crate) fn limit(limits: &JsValue, name: &str, default: usize) -> usize {
    js::get(limits, name).as_f64().map_or(default, |v| v.min(usize::MAX as f64) as usize)
}

fn string_property(o: &JsValue, key: &str) -> String {
    js::get(o, key).as_string().unwrap_or_default()
}

async fn call_async(o: &JsValue, name: &str, arg: &JsValue) -> Result<JsValue> {
    let f: Function = js::get(o, name).unchecked_into();
    let promise = f.call1(o, arg).map_err(|e| failed(text(&e)))?;
    JsFuture::from(js_sys::Promise::resolve(&promise)).await.map_err(|e| failed(text(&e)))
}

pub(crate) fn target(limits: &JsValue) -> Target {
    let mut t = Target::wgsl("webgpu").with_custom_kernels();
    let n = |name, default| limit(limits, name, default);
    let side = n("maxComputeWorkgroupsPerDimension", 65535) as u32;
    t.limits.max_grid = [side; 3];
    t.limits.max_local = ["maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ"]
        .map(|name| n(name, 64) as u32);
    t.limits.max_local_total = n("maxComputeInvocationsPerWorkgroup", 256) as u32;
    t.limits.workgroup_bytes = n("maxComputeWorkgroupStorageSize", 16384);
    t.limits.max_buffers = n("maxStorageBuffersPerShaderStage", 8);
    t.limits.max_buffer_bytes = n("maxStorageBufferBindingSize", 128 << 20).min(n("maxBufferSize", 256 << 20));
    t.limits.offset_alignment = n("minStorageBufferOffsetAlignment", 256);
    t
}

/// Whether a set of names contains this one.
fn set_has(set: &JsValue, name: &str) -> bool {
    let has = js::get(set, "has").dyn_into::<Function>();
    has.is_ok_and(|has| has.call1(set, &name.into()).is_ok_and(|v| v.is_truthy()))
}
