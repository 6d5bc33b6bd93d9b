//! Runs model files: the blocking interface of [`onnx::Runner`].

use crate::contain::{Health, contain};
use crate::limits::Limits;
use crate::tune::Tuned;
use crate::{NativeHost, handles};
use gradloom_core::device::Device;
use gradloom_core::engine::{Counters, Engine, Plan};
use gradloom_core::interrupt::Interrupt;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{self, ExternalData, Input, Inputs, Model, Runner};
use gradloom_core::io::tflite;
use gradloom_core::io::weights::Format;
use gradloom_core::schedule::Ast;
use gradloom_core::tensor::{Session, Tensor};
use gradloom_core::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An ONNX model on a device. It may move to other threads, and several models may run on several threads at a time.
///
/// A panic in a call, which is a bug of this library, is returned as `E_INTERNAL`, and so is every later call of this
/// model; other models continue to work.
pub struct OnnxModel {
    parts: Parts,
    health: Health,
}

struct Parts {
    engine: Engine,
    runner: Runner,
    compile: Duration,
    limits: Limits,
}

/// Reads a whole file. The error contains the file's name.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::Input { name: path.display().to_string(), what: e.to_string() })
}

/// Reads a whole regular file that another file or a folder named. A pipe is an error, rather than a wait.
pub(crate) fn read_regular(path: &Path) -> Result<Vec<u8>> {
    let bad = |e: std::io::Error| Error::Input { name: path.display().to_string(), what: e.to_string() };
    let mut bytes = Vec::new();
    handles::open_regular(path).and_then(|mut f| f.read_to_end(&mut bytes)).map_err(bad)?;
    Ok(bytes)
}

/// Reads a model file as ONNX; also gives access to its external data files.
fn open(path: &Path, files: &DataFiles) -> Result<(Vec<u8>, Arc<Folder>)> {
    let mut bytes = read_file(path)?;
    if tflite::is_tflite(&bytes) {
        bytes = tflite::to_onnx(&bytes)?;
    }
    let weights = match Format::of(&bytes) {
        Ok(Format::Gguf) => Some("GGUF"),
        Ok(Format::Torch) => Some("PyTorch"),
        Ok(Format::Npz) => Some("npz"),
        // An ONNX model may have the byte of safetensors there by chance, but not four zeros before it
        Ok(Format::SafeTensors) if bytes[4..8] == [0; 4] => Some("safetensors"),
        _ => None,
    };
    if let Some(kind) = weights {
        let instead = if kind == "GGUF" { "; a language model is run by `gradloom generate` or `chat`" } else { "" };
        let what =
            format!("it holds weights ({kind}) and no graph: an ONNX or TensorFlow Lite file is wanted{instead}");
        return Err(Error::Input { name: path.display().to_string(), what });
    }
    let folder = Folder { path: path.parent().map_or_else(PathBuf::new, Path::to_path_buf), files: files.clone() };
    Ok((bytes, Arc::new(folder)))
}

/// Parses a model file, ONNX or TensorFlow Lite; weights may be in other files of its folder.
pub fn parse(path: &Path) -> Result<Model> {
    parse_with(path, &DataFiles::default())
}

/// As [`parse`]; `files` restricts which files may hold weights.
pub fn parse_with(path: &Path, files: &DataFiles) -> Result<Model> {
    contain(|| {
        let (bytes, folder) = open(path, files)?;
        Model::parse_with(bytes, folder)
    })
}

/// Reports which parts of a model file are supported, without running it. Symbolic dimensions have the sizes given for
/// their names, or 1.
pub fn inspect(path: &Path, sizes: &BTreeMap<String, usize>) -> Result<onnx::Report> {
    inspect_with(path, &DataFiles::default(), sizes)
}

/// As [`inspect`]; `files` restricts which files may hold weights.
pub fn inspect_with(path: &Path, files: &DataFiles, sizes: &BTreeMap<String, usize>) -> Result<onnx::Report> {
    contain(|| {
        let (bytes, folder) = open(path, files)?;
        onnx::inspect(bytes, folder, sizes)
    })
}

impl OnnxModel {
    /// Loads a model file onto a device.
    pub fn load(path: &Path, device: Box<dyn Device>) -> Result<OnnxModel> {
        let model = parse(path)?;
        contain(|| Ok(OnnxModel::new(model, device)))
    }

    /// Puts a parsed model onto a device.
    pub fn new(model: Model, device: Box<dyn Device>) -> OnnxModel {
        OnnxModel::with_host(model, device, NativeHost::new())
    }

    /// The same, with a cache of the caller's choice.
    pub fn with_host(model: Model, device: Box<dyn Device>, host: NativeHost) -> OnnxModel {
        let session = Session::for_target(device.target());
        let parts = Parts {
            engine: Engine::with_host(device, Box::new(host)),
            runner: Runner::new(Arc::new(model), &session),
            compile: Duration::ZERO,
            limits: Limits::default(),
        };
        OnnxModel { parts, health: Health::default() }
    }

    /// Sets limits for later calls: `handle` interrupts runs, and building and compiling for one run may take at most
    /// `compile`, if given. An interrupted run returns [`Error::Aborted`] or [`Error::Deadline`], and does not affect
    /// the next one.
    pub fn set_limits(&mut self, handle: &Interrupt, compile: Option<Duration>) {
        let interrupt = self.parts.limits.set(handle, compile);
        self.parts.engine.set_interrupt(interrupt);
    }

    /// Sets which lengths of inputs are launch scalars, so that one plan serves all their values. Without
    /// this call none are.
    ///
    /// # Errors
    /// `E_VALUE` for bounds of a dimension that no input has.
    pub fn set_lengths(&mut self, lengths: onnx::Lengths) -> Result<()> {
        self.parts.runner.set_lengths(lengths)
    }

    /// Notes about the model that its user may want to know.
    pub fn notes(&self) -> Vec<String> {
        self.parts.runner.notes()
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.parts.runner.model()
    }

    /// The engine: counters, programs. Calls on it directly are not protected against panics.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.parts.engine
    }

    /// Counts of what the engine did so far.
    pub fn counters(&self) -> Counters {
        self.parts.engine.counters()
    }

    /// The time spent so far on everything but runs of the whole model: graphs, plans, kernels, constants.
    pub fn compile_time(&self) -> Duration {
        self.parts.compile
    }

    /// Runs the model. Outputs are in the order of the file.
    pub fn run(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Vec<(String, HostTensor)>> {
        self.health.guard(|| self.parts.run(inputs))
    }

    /// Uploads inputs as tensors on the device, for [`OnnxModel::run_on`].
    pub fn inputs(&self, inputs: &[(&str, HostTensor)]) -> Result<Inputs> {
        self.health.guard(|| self.parts.inputs(inputs))
    }

    /// The same for inputs that are host data or outputs of earlier runs; the latter stay on the device (a state, a KV
    /// cache). An output that a run cannot use in this way ([`Runner::take`]) is read back first.
    pub fn inputs_of(&mut self, inputs: Vec<(&str, Input)>) -> Result<Inputs> {
        self.health.guard(|| self.parts.inputs_of(inputs))
    }

    /// Runs the model on inputs on the device, and waits for the end. The outputs stay on the device.
    pub fn run_on(&mut self, inputs: &Inputs) -> Result<Vec<(String, Tensor)>> {
        self.health.guard(|| self.parts.run_on(inputs))
    }

    /// Frees the device memory of outputs that were dropped.
    pub fn collect(&mut self) {
        // A failure will show in the next call that returns a result
        let _ = self.health.guard(|| {
            self.parts.collect();
            Ok(())
        });
    }

    /// The plan for inputs of these shapes. Runs the model once.
    pub fn plan(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Option<Plan>> {
        self.health.guard(|| self.parts.plan(inputs))
    }

    /// The distinct kernels for inputs of these shapes, as the scheduler makes them.
    pub fn kernels(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Vec<Ast>> {
        self.health.guard(|| {
            self.parts.engine.keep_graphs();
            self.parts.plan(inputs)?;
            Ok(self.parts.engine.kernels()?.into_iter().map(|(_, ast, _)| ast).collect())
        })
    }

    /// The plan for inputs that were run before, and for each of its calls the shortest time in seconds
    /// over some rounds.
    pub fn profile(&mut self, inputs: &Inputs, rounds: usize) -> Result<Option<(Plan, Vec<f64>)>> {
        self.health.guard(|| self.parts.profile(inputs, rounds))
    }

    /// Searches for faster kernels for inputs of these shapes during `budget`, and uses them from then on; so do later
    /// processes that share the cache. The model must not have been run before.
    pub fn tune(
        &mut self,
        inputs: &[(&str, HostTensor)],
        budget: Duration,
        report: impl FnMut(&Tuned),
    ) -> Result<Vec<Tuned>> {
        self.health.guard(|| self.parts.tune(inputs, budget, report))
    }

    /// Adds opts that were tuned elsewhere, as lines of text ([`Engine::add_tuned`]), for kernels that are
    /// compiled from now on.
    pub fn add_tuned(&mut self, lines: &str) -> Result<usize> {
        self.health.guard(|| self.parts.engine.add_tuned(lines))
    }

    /// Reads an output of this model back. A tensor of another session is an error.
    pub fn read(&mut self, t: &Tensor) -> Result<HostTensor> {
        self.health.guard(|| self.parts.read(t))
    }
}

impl Parts {
    fn run(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Vec<(String, HostTensor)>> {
        let values = self.values(inputs);
        // Also after a failure: if memory was short, the next run needs what this one took
        self.runner.collect(&mut self.engine);
        values
    }

    fn values(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Vec<(String, HostTensor)>> {
        let inputs = self.inputs(inputs)?;
        let outputs = self.submit(&inputs)?;
        outputs.iter().map(|(n, t)| Ok((n.clone(), self.read(t)?))).collect()
    }

    fn inputs(&self, inputs: &[(&str, HostTensor)]) -> Result<Inputs> {
        self.runner.inputs(inputs.iter().map(|(name, t)| (*name, Input::Host(t.clone()))).collect())
    }

    fn inputs_of(&mut self, inputs: Vec<(&str, Input)>) -> Result<Inputs> {
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
        for i in self.runner.unfit(&list)? {
            if let Input::Tensor(t) = &list[i].1 {
                let t = t.clone();
                list[i].1 = Input::Host(self.read(&t)?);
            }
        }
        self.runner.inputs(list)
    }

    fn run_on(&mut self, inputs: &Inputs) -> Result<Vec<(String, Tensor)>> {
        let outputs = self.submit(inputs)?;
        self.engine.device().sync()?;
        Ok(outputs)
    }

    fn collect(&mut self) {
        self.runner.collect(&mut self.engine);
    }

    fn plan(&mut self, inputs: &[(&str, HostTensor)]) -> Result<Option<Plan>> {
        let tensors = self.inputs(inputs)?;
        drop(self.submit(&tensors)?);
        Ok(self.runner.replay(inputs).map(|r| r.plan().clone()))
    }

    fn profile(&mut self, inputs: &Inputs, rounds: usize) -> Result<Option<(Plan, Vec<f64>)>> {
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

    fn tune(
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

    fn submit(&mut self, inputs: &Inputs) -> Result<Vec<(String, Tensor)>> {
        let mut start = Instant::now();
        let mut run = self.limits.with_deadline(|| self.runner.begin_on(&mut self.engine, inputs))?;
        loop {
            while !self.runner.ready(&mut self.engine, &mut run)? {
                if run.reads() {
                    self.engine.device().sync()?;
                }
                std::thread::yield_now();
            }
            self.compile += start.elapsed();
            start = Instant::now();
            if run.folds() {
                self.limits.begin();
            }
            let out = self.runner.step(&mut self.engine, &mut run);
            self.limits.end();
            if let Some(out) = out? {
                return Ok(out);
            }
        }
    }

    /// A tensor that can be read back: the tensor itself, or a copy of it if it is a view.
    fn readable(&mut self, t: &Tensor) -> Result<Tensor> {
        if t.is_readable() {
            return Ok(t.clone());
        }
        let copy = t.contiguous();
        let pending = self.engine.start(&mut self.runner.session().state(), &[copy.root()])?;
        while !self.engine.ready()? {
            std::thread::yield_now();
        }
        self.engine.finish(&mut self.runner.session().state(), pending)?;
        Ok(copy)
    }

    fn read(&mut self, t: &Tensor) -> Result<HostTensor> {
        if !t.session().is(self.runner.session()) {
            return Err(Error::Input { name: "read".into(), what: "the tensor is another model's".into() });
        }
        let copy = self.readable(t)?;
        let (ticket, dtype, boxed) = self.engine.read_box(&mut self.runner.session().state(), copy.root())?;
        self.engine.device().sync()?;
        loop {
            if let Some(data) = self.engine.poll(ticket, dtype)? {
                let data = match boxed {
                    Some(b) => b.cut(&data, dtype),
                    None => data,
                };
                return HostTensor::new(dtype, t.shape(), data);
            }
            std::thread::yield_now();
        }
    }
}

/// Which files beside a model's own may be read as its weights. Of these only the ones that the model names are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataFiles {
    /// Regular files below the model's folder: no symbolic or hard links, and no path with a component that begins with
    /// a dot. The model decides which of these files are read as weights, so keep models in folders of their own.
    #[default]
    Beneath,
    /// Only these files, named as the model names them: relative to its folder. They are trusted like the model file,
    /// so they may be links or hidden.
    Only(Vec<String>),
}

/// The other files of a model's folder, as the source of external data.
struct Folder {
    path: PathBuf,
    files: DataFiles,
}

impl Folder {
    fn open(&self, location: &str) -> Result<File> {
        let plain = |name: &str| -> PathBuf {
            Path::new(name).components().filter(|c| !matches!(c, Component::CurDir)).collect()
        };
        let file = match &self.files {
            DataFiles::Beneath => handles::open_beneath(&self.path, location),
            DataFiles::Only(names) if names.iter().any(|n| plain(n) == plain(location)) => {
                handles::open_regular(&self.path.join(location))
            }
            DataFiles::Only(_) => Err(std::io::Error::other("it is not among the files that the model may read")),
        };
        file.map_err(|e| Error::Input { name: location.to_string(), what: format!("external data: {e}") })
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
