//! The sample programs and the engine on the devices of `gradloom-web`, called from node and from a page.
#![cfg(target_arch = "wasm32")]
#![allow(missing_docs, reason = "exports of a test module")]

mod engine;

use engine::{Host, now};
use gradloom_core::device::EvalDevice;
use gradloom_core::io::onnx::{Model, NoExternalData, inspect};
use gradloom_core::render::wasm::Wasm;
use gradloom_core::render::wgsl::WgslRenderer;
use gradloom_core::{DType, Error, Session};
use gradloom_tests::graphs::{self, Outcome, Program};
use gradloom_tests::mutants::{Mutant, Mutants, budget, differ};
use gradloom_tests::numerics::{EDGES, Grid, Tally};
use gradloom_tests::onnx_suite::{self, Case};
use gradloom_tests::opinfo::{self, Sample};
use gradloom_tests::runner::{run_samples, run_samples_async};
use gradloom_web::signal::Signal;
use gradloom_web::wasm_device::{WasmDevice, has_relaxed_simd};
use gradloom_web::webgpu_device::WebGpuDevice;
use js_sys::{Array, Uint8Array};
use std::collections::BTreeMap;
use std::sync::Arc;
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

fn js(e: gradloom_core::Error) -> JsError {
    JsError::new(&format!("{}: {e}", e.code()))
}

fn wasm(workers: &Array) -> Result<WasmDevice, JsError> {
    let mut device = WasmDevice::new(workers.length() > 0).map_err(js)?;
    if workers.length() > 0 {
        device.add_threads(workers).map_err(js)?;
    }
    Ok(device)
}

/// All samples on the WASM device; how many there were. With workers on their threads too.
#[wasm_bindgen(js_name = samplesOnWasm)]
pub fn samples_on_wasm(workers: &Array) -> Result<u32, JsError> {
    Ok(run_samples(&mut wasm(workers)?, &Wasm) as u32)
}

/// All samples on WebGPU; how many there were, or nothing where there is no adapter.
#[wasm_bindgen(js_name = samplesOnWebGpu)]
pub async fn samples_on_web_gpu(hardware: bool) -> Result<Option<u32>, JsError> {
    let Some(mut device) = WebGpuDevice::request(hardware).await.map_err(js)? else { return Ok(None) };
    let signal = device.signal();
    let n = run_samples_async(&mut device, &WgslRenderer, || signal.wait()).await;
    Ok(Some(n as u32))
}

/// An engine on a device of this host.
#[wasm_bindgen]
pub struct TestEngine(Host);

#[wasm_bindgen]
impl TestEngine {
    #[wasm_bindgen(js_name = onWasm)]
    pub fn on_wasm(workers: &Array) -> Result<TestEngine, JsError> {
        let device = wasm(workers)?;
        let signal: Signal = device.signal();
        Ok(TestEngine(Host::new(Box::new(device), signal)))
    }

    #[wasm_bindgen(js_name = onWebGpu)]
    pub async fn on_web_gpu() -> Result<Option<TestEngine>, JsError> {
        let Some(device) = WebGpuDevice::request(false).await.map_err(js)? else { return Ok(None) };
        let signal = device.signal();
        Ok(Some(TestEngine(Host::new(Box::new(device), signal))))
    }

    /// Runs a model on its input, compares with what is expected, and reports as JSON.
    pub async fn model(
        &mut self,
        file: Vec<u8>,
        input: Vec<u8>,
        expected: Vec<u8>,
        repeat: u32,
    ) -> Result<String, JsError> {
        self.0.model(file, &input, &expected, repeat).await.map_err(js)
    }

    /// GFLOP/s of a square matmul.
    pub async fn matmul(&mut self, n: u32, repeat: u32) -> Result<f64, JsError> {
        self.0.matmul(n as usize, repeat).await.map_err(js)
    }
}

/// A fresh device of the page or of node.
async fn host(webgpu: bool) -> Result<Host, JsError> {
    if webgpu {
        let none = || JsError::new("E_DEVICE: no WebGPU adapter");
        return TestEngine::on_web_gpu().await?.map(|e| e.0).ok_or_else(none);
    }
    Ok(TestEngine::on_wasm(&Array::new())?.0)
}

/// Cases of the ONNX backend suite, each on a fresh device.
#[wasm_bindgen]
pub struct OnnxSuite(Vec<Case>);

#[wasm_bindgen]
impl OnnxSuite {
    /// Reads the cases of a zip file.
    #[wasm_bindgen(constructor)]
    pub fn new(file: &[u8]) -> Result<OnnxSuite, JsError> {
        onnx_suite::read(file).map(OnnxSuite).map_err(js)
    }

    /// The names of all cases.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|c| c.name.clone()).collect()
    }

    /// Runs a case: nothing if it passes, else what is wrong. A refusal is an error.
    pub async fn run(&self, i: usize, webgpu: bool) -> Result<Option<String>, JsError> {
        let case = self.0.get(i).ok_or_else(|| JsError::new("there is no such case"))?;
        host(webgpu).await?.case(case).await.map_err(js)
    }
}

/// Samples of torch's operator tests, on one device until it is renewed.
#[wasm_bindgen]
pub struct TorchSuite {
    samples: Vec<(Sample, DType)>,
    host: Host,
    session: Session,
}

#[wasm_bindgen]
impl TorchSuite {
    /// The samples on a fresh device.
    pub async fn on(webgpu: bool) -> Result<TorchSuite, JsError> {
        let samples = opinfo::samples().into_iter().flat_map(|s| s.dtypes().iter().map(move |&dt| (s, dt)));
        Ok(TorchSuite { samples: samples.collect(), host: host(webgpu).await?, session: Session::new() })
    }

    /// Operator, line and element type of each.
    pub fn names(&self) -> Vec<String> {
        self.samples.iter().map(|(s, dt)| format!("{} {} {dt}", s.name, s.line)).collect()
    }

    /// Runs a sample: a word for the outcome, a space and the reason.
    pub async fn run(&mut self, i: usize) -> Result<String, JsError> {
        let &(sample, dtype) = self.samples.get(i).ok_or_else(|| JsError::new("there is no such sample"))?;
        let signal = &self.host.signal;
        let outcome = opinfo::run_async(&mut self.host.engine, &self.session, sample, dtype, &|| signal.wait()).await;
        let (what, why) = outcome.words();
        Ok(format!("{what} {why}"))
    }
}

/// Does the WASM device fuse products and sums here?
#[wasm_bindgen(js_name = hasRelaxedSimd)]
pub fn relaxed_simd() -> bool {
    has_relaxed_simd()
}

/// The numeric contract on a fresh device, as lines: `! ` and a text for each difference that is not listed, `? ` and the reason of each
/// listed difference of this device that nothing needs, and the measured table: `torch` or `onnx`, operator, type and cell, with tabs.
#[wasm_bindgen]
pub async fn numerics(webgpu: bool) -> Result<Vec<String>, JsError> {
    let grid = Grid::read();
    let name = if webgpu { "webgpu" } else { "wasm" };
    let (mut torch, mut onnx) = (Tally::new(&grid, name), Tally::new(&grid, name));
    let session = Session::new();
    let mut host = host(webgpu).await?;
    let made: Vec<_> = grid.cases.iter().map(|c| grid.outputs(&session, c)).collect();
    let lists: Vec<_> = made.iter().map(|m| m.clone().unwrap_or_default()).collect();
    for ((case, made), got) in grid.cases.iter().zip(made).zip(host.values(&lists).await) {
        torch.case(case, made.and(got));
    }
    let model = Arc::new(Model::parse(EDGES.to_vec()).map_err(js)?);
    onnx.edges(&host.outputs(&session, model, &grid.edge_inputs).await.map_err(js)?);
    let mut lines = Vec::new();
    for (i, rule) in grid.rules.iter().enumerate() {
        let idle = torch.used[i] + onnx.used[i] == 0;
        lines.extend(rule.of(name).filter(|_| idle).map(|why| format!("? {why}")));
    }
    for (kind, tally) in [("torch", torch), ("onnx", onnx)] {
        lines.extend(tally.failures.iter().map(|f| format!("! {f}")));
        lines.extend(tally.table.iter().map(|((op, of), m)| format!("{kind}\t{op}\t{of}\t{}", m.cell())));
    }
    Ok(lines)
}

/// Random programs of the frontend, on one device until it is renewed.
#[wasm_bindgen]
pub struct Programs {
    host: Host,
    session: Session,
    compared: u32,
}

#[wasm_bindgen]
impl Programs {
    /// On a fresh device.
    pub async fn on(webgpu: bool) -> Result<Programs, JsError> {
        Ok(Programs { host: host(webgpu).await?, session: Session::new(), compared: 0 })
    }

    /// Programs whose values were compared so far: not those that the device lacks a dtype of.
    #[wasm_bindgen(getter)]
    pub fn compared(&self) -> u32 {
        self.compared
    }

    /// Runs the program of a seed: nothing if its values are the evaluator's or the device lacks a dtype of it, else a shorter program
    /// that fails too, and how.
    pub async fn run(&mut self, seed: u64) -> Option<String> {
        let mut program = Program::random(seed);
        let mut what = self.wrong(&program).await?;
        loop {
            let mut next = None;
            for p in program.shorter() {
                if let Some(w) = self.wrong(&p).await {
                    next = Some((p, w));
                    break;
                }
            }
            match next {
                Some(shorter) => (program, what) = shorter,
                None => return Some(format!("{}# seed {seed}: {what}", program.describe())),
            }
        }
    }

    /// Runs a program as it is written: nothing if its values are the evaluator's, else what is wrong.
    #[wasm_bindgen(js_name = runText)]
    pub async fn run_text(&mut self, text: &str) -> Result<Option<String>, JsError> {
        let program = Program::parse(text).ok_or_else(|| JsError::new("that is no program"))?;
        Ok(self.wrong(&program).await)
    }

    async fn wrong(&mut self, program: &Program) -> Option<String> {
        let signal = &self.host.signal;
        let outcome = graphs::run_async(&mut self.host.engine, &self.session, program, &|| signal.wait()).await;
        self.compared += u32::from(!matches!(outcome, Outcome::Refused));
        match outcome {
            Outcome::Wrong(what) => Some(what),
            Outcome::Same | Outcome::Refused => None,
        }
    }
}

const SEED: u64 = 11;

/// ONNX models changed by their structure, on one device until it is renewed.
#[wasm_bindgen]
pub struct ChangedModels {
    mutants: Mutants,
    host: Host,
    session: Session,
    webgpu: bool,
    device_ms: f64,
}

#[wasm_bindgen]
impl ChangedModels {
    /// On a fresh device, from the bytes of the suites that models are taken from.
    pub async fn on(webgpu: bool, suites: Vec<Uint8Array>) -> Result<ChangedModels, JsError> {
        let files: Vec<Vec<u8>> = suites.iter().map(Uint8Array::to_vec).collect();
        let mutants = Mutants::new(files.iter().map(Vec::as_slice)).map_err(js)?;
        Ok(ChangedModels { mutants, host: host(webgpu).await?, session: Session::new(), webgpu, device_ms: 0.0 })
    }

    /// Milliseconds that the device took for the last model that was run, compiling included.
    #[wasm_bindgen(getter, js_name = deviceMs)]
    pub fn device_ms(&self) -> f64 {
        self.device_ms
    }

    /// Takes a fresh device.
    pub async fn renew(&mut self) -> Result<(), JsError> {
        self.host = host(self.webgpu).await?;
        self.session = Session::new();
        Ok(())
    }

    /// The model of a seed.
    pub fn file(&self, seed: u64) -> Vec<u8> {
        self.mutants.get(seed).file
    }

    /// The operator that the model of a seed is about.
    pub fn op(&self, seed: u64) -> String {
        self.mutants.ops()[self.mutants.get(seed).op].1.to_owned()
    }

    /// Inspects the model of a seed and runs it if it is supported and small. A word for the outcome: `refused` if it is not run or
    /// nobody can run it, `run`, or what is wrong.
    pub async fn run(&mut self, seed: u64) -> String {
        let mutant = self.mutants.get(seed);
        self.mutant(mutant).await
    }

    /// The same for a file that was kept.
    #[wasm_bindgen(js_name = runFile)]
    pub async fn run_file(&mut self, file: Vec<u8>) -> String {
        self.mutant(Mutant::kept(file)).await
    }

    async fn mutant(&mut self, mut m: Mutant) -> String {
        let report = inspect(m.file.clone(), Arc::new(NoExternalData), &BTreeMap::new());
        let Some(inputs) = report.ok().and_then(|r| m.feeds(&r)) else { return "refused".to_owned() };
        let model = match Model::parse(m.file.clone()) {
            Ok(model) => Arc::new(model.with_budget(budget())),
            Err(e) => return format!("inspected, but not parsed: {e}"),
        };
        // both draw the same random numbers
        let alone = Session::new();
        self.session.manual_seed(SEED);
        alone.manual_seed(SEED);
        let start = now();
        let got = self.host.outputs(&self.session, model.clone(), &inputs).await;
        self.device_ms = now() - start;
        let mut oracle = Host::new(Box::<EvalDevice>::default(), Signal::default());
        match (got, oracle.outputs(&alone, model, &inputs).await) {
            (Err(Error::Internal(what)), _) | (_, Err(Error::Internal(what))) => format!("internal error: {what}"),
            (Ok(_), Ok(_)) if m.edges => "run".to_owned(),
            (Ok(got), Ok(want)) => differ(&got, &want).unwrap_or_else(|| "run".to_owned()),
            (Err(Error::Unsupported { .. }), _) | (Err(_), Err(_)) => "refused".to_owned(),
            (Err(e), Ok(_)) => format!("only the device says {e}"),
            (Ok(_), Err(e)) => format!("only the evaluator says {e}"),
        }
    }
}
