//! Models from files, run to their end: the blocking face of [`onnx::Runner`].

use crate::NativeHost;
use crate::tune::Tuned;
use gradloom_core::device::Device;
use gradloom_core::engine::{Counters, Engine, Plan};
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{self, ExternalData, Input, Inputs, Model, Runner};
use gradloom_core::io::tflite;
use gradloom_core::io::weights::Format;
use gradloom_core::tensor::{Session, Tensor};
use gradloom_core::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An ONNX model on a device.
pub struct OnnxModel {
    engine: Engine,
    runner: Runner,
    compile: Duration,
}

/// Reads a whole file; the error names it.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::Input { name: path.display().to_string(), what: e.to_string() })
}

/// The bytes of a model file as ONNX, and where its other files are.
fn open(path: &Path) -> Result<(Vec<u8>, Arc<Folder>)> {
    let mut bytes = read_file(path)?;
    if tflite::is_tflite(&bytes) {
        bytes = tflite::to_onnx(&bytes)?;
    }
    let weights = match Format::of(&bytes) {
        Ok(Format::Gguf) => Some("GGUF"),
        Ok(Format::Torch) => Some("PyTorch"),
        Ok(Format::Npz) => Some("npz"),
        // a model may have this byte there by chance, but not zeros before it
        Ok(Format::SafeTensors) if bytes[4..8] == [0; 4] => Some("safetensors"),
        _ => None,
    };
    if let Some(kind) = weights {
        let what = format!("it holds weights ({kind}) and no graph: an ONNX or TensorFlow Lite file is wanted");
        return Err(Error::Input { name: path.display().to_string(), what });
    }
    Ok((bytes, Arc::new(Folder(path.parent().map_or_else(PathBuf::new, Path::to_path_buf)))))
}

/// Parses a model file, ONNX or TensorFlow Lite, with weights in other files of its folder if it has such.
pub fn parse(path: &Path) -> Result<Model> {
    let (bytes, folder) = open(path)?;
    Model::parse_with(bytes, folder)
}

/// What is supported of a model file, before any run; open dimensions have the sizes given for their names, or 1.
pub fn inspect(path: &Path, sizes: &BTreeMap<String, usize>) -> Result<onnx::Report> {
    let (bytes, folder) = open(path)?;
    onnx::inspect(bytes, folder, sizes)
}

impl OnnxModel {
    /// Loads a model file onto a device.
    pub fn load(path: &Path, device: Box<dyn Device>) -> Result<OnnxModel> {
        Ok(OnnxModel::new(parse(path)?, device))
    }

    /// A parsed model on a device.
    pub fn new(model: Model, device: Box<dyn Device>) -> OnnxModel {
        OnnxModel::with_host(model, device, NativeHost::new())
    }

    /// The same, with a cache of the caller's choice.
    pub fn with_host(model: Model, device: Box<dyn Device>, host: NativeHost) -> OnnxModel {
        OnnxModel {
            engine: Engine::with_host(device, Box::new(host)),
            runner: Runner::new(Arc::new(model), &Session::new()),
            compile: Duration::ZERO,
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.runner.model()
    }

    /// The engine: counters, programs.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// What the engine did so far.
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Time spent so far on everything but running the whole model: graphs, plans, kernels, constants.
    pub fn compile_time(&self) -> Duration {
        self.compile
    }

    /// Runs the model; outputs in the order of the file.
    pub fn run(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Vec<(String, HostTensor)>> {
        let inputs = self.inputs(inputs)?;
        let outputs = self.submit(&inputs)?;
        drop(inputs);
        let values = outputs.iter().map(|(n, t)| Ok((n.clone(), self.read(t)?))).collect();
        drop(outputs);
        self.runner.collect(&mut self.engine);
        values
    }

    /// Inputs as tensors on the device, for [`OnnxModel::run_on`].
    pub fn inputs(&self, inputs: &[(&str, HostTensor)]) -> Result<Inputs> {
        self.runner.inputs(inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect())
    }

    /// The same, of host data and of outputs of earlier runs, which stay where they are: a state, a cache of keys and values.
    /// What a run cannot use so ([`Runner::take`]) is read back.
    pub fn inputs_of(&mut self, inputs: Vec<(&str, Input)>) -> Result<Inputs> {
        let mut list: Vec<(&str, Input)> = Vec::with_capacity(inputs.len());
        for (name, input) in inputs {
            let input = match input {
                Input::Tensor(t) => match self.runner.take(name, &t, &list) {
                    Some(input) => input,
                    None => Input::Host(self.read(&t)?),
                },
                input => input,
            };
            list.push((name, input));
        }
        self.runner.inputs(list)
    }

    /// Runs the model on inputs that stay on the device, to the end; the outputs stay there too.
    pub fn run_on(&mut self, inputs: &Inputs) -> Result<Vec<(String, Tensor)>> {
        let outputs = self.submit(inputs)?;
        self.engine.device().sync()?;
        Ok(outputs)
    }

    /// Frees the device memory of outputs that were dropped.
    pub fn collect(&mut self) {
        self.runner.collect(&mut self.engine);
    }

    /// The plan for inputs of these shapes. Runs it once.
    pub fn plan(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Option<Plan>> {
        let tensors = self.inputs(inputs)?;
        drop(self.submit(&tensors)?);
        Ok(self.runner.replay(inputs).map(|r| r.plan().clone()))
    }

    /// The plan for inputs that were run before, and the least seconds of each of its calls over some rounds.
    pub fn profile(&mut self, inputs: &Inputs, rounds: usize) -> Result<Option<(Plan, Vec<f64>)>> {
        let begin = Instant::now();
        let mut best: Option<(Plan, Vec<f64>)> = None;
        for _ in 0..rounds.max(1) {
            let mut clock = || begin.elapsed().as_secs_f64();
            let Some((plan, times)) = self.runner.time_calls(&mut self.engine, inputs, &mut clock)? else {
                return Ok(None);
            };
            self.collect();
            match &mut best {
                Some((_, least)) => least.iter_mut().zip(times).for_each(|(a, b)| *a = a.min(b)),
                None => best = Some((plan, times)),
            }
        }
        Ok(best)
    }

    /// Searches for faster kernels for inputs of these shapes, for so long, and uses them from then on; so do later
    /// processes that share the cache. The model must not have been run before.
    pub fn tune(
        &mut self,
        inputs: &[(&str, HostTensor)],
        budget: Duration,
        report: impl FnMut(&Tuned),
    ) -> Result<Vec<Tuned>> {
        self.engine.keep_graphs();
        let plan = self.plan(inputs)?.unwrap_or_default();
        let calls = |key: u128| plan.calls.iter().filter(|c| c.program == key).count();
        let kernels: Vec<_> = self.engine.kernels()?.into_iter().map(|(key, ast, _)| (key, ast, calls(key))).collect();
        let kernels: Vec<_> = kernels.into_iter().filter(|k| k.2 > 0).collect();
        crate::tune::tune(&mut self.engine, &kernels, budget, report)
    }

    /// Takes opts that were tuned elsewhere, as the lines of a text ([`Engine::add_tuned`]), for what is compiled from now on.
    pub fn add_tuned(&mut self, lines: &str) -> Result<usize> {
        self.engine.add_tuned(lines)
    }

    fn submit(&mut self, inputs: &Inputs) -> Result<Vec<(String, Tensor)>> {
        let mut start = Instant::now();
        let mut run = self.runner.begin_on(&mut self.engine, inputs)?;
        loop {
            while !self.runner.ready(&mut self.engine, &mut run)? {
                if run.reads() {
                    self.engine.device().sync()?;
                }
                std::thread::yield_now();
            }
            self.compile += start.elapsed();
            start = Instant::now();
            if let Some(out) = self.runner.step(&mut self.engine, &mut run)? {
                return Ok(out);
            }
        }
    }

    /// The value of an output of this model; a tensor of another session is an error.
    pub fn read(&mut self, t: &Tensor) -> Result<HostTensor> {
        if !t.session().is(self.runner.session()) {
            return Err(Error::Input { name: "read".into(), what: "the tensor is another model's".into() });
        }
        let (ticket, dtype, _) = self.engine.read(&mut self.runner.session().state(), t.root())?;
        self.engine.device().sync()?;
        loop {
            if let Some(data) = self.engine.poll(ticket, dtype)? {
                return HostTensor::new(dtype, t.shape(), data);
            }
            std::thread::yield_now();
        }
    }
}

/// Weights in other files, none of them outside of the model's folder.
struct Folder(PathBuf);

impl Folder {
    fn open(&self, location: &str) -> Result<File> {
        let bad = |what: String| Error::Input { name: location.to_string(), what };
        let folder = if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 };
        let root = folder.canonicalize().map_err(|e| bad(e.to_string()))?;
        let path = root.join(location).canonicalize().map_err(|e| bad(e.to_string()))?;
        if !path.starts_with(&root) {
            return Err(bad("external data outside of the model's folder".into()));
        }
        File::open(path).map_err(|e| bad(e.to_string()))
    }
}

impl ExternalData for Folder {
    fn size(&self, location: &str) -> Result<u64> {
        let bad = |e: std::io::Error| Error::Input { name: location.to_string(), what: e.to_string() };
        self.open(location)?.metadata().map(|m| m.len()).map_err(bad)
    }

    fn read(&self, location: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        let bad = |e: std::io::Error| Error::Input { name: location.to_string(), what: e.to_string() };
        let mut file = self.open(location)?;
        file.seek(SeekFrom::Start(offset)).map_err(bad)?;
        let mut out = Vec::new();
        file.take(len).read_to_end(&mut out).map_err(bad)?;
        if out.len() as u64 != len {
            return Err(Error::format("onnx", format!("`{location}` ends before byte {}", offset + len), None));
        }
        Ok(out)
    }
}

#[doc(no_inline)]
pub use onnx::Port;
