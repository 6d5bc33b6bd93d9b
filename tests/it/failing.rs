//! Devices that refuse a call: memory that is not there, an upload, a compiler, a launch or a read that fails. Whichever call it is,
//! the run ends with a typed error, the next one has the right numbers, and no more is held than if nothing had happened.

use super::models::{arrays, folder};
use gradloom::{NativeHost, OnnxModel, Runtime};
use gradloom_core::device::{Device, EvalDevice};
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::Model;
use gradloom_core::optim::{Adam, AdamOpts, Optimizer};
use gradloom_core::target::{Lang, Target};
use gradloom_core::{DType, Result, Session, Tensor};
use gradloom_tests::failing::{Call, Failing, Faults, Lasts};
use gradloom_tests::hostile::one_node;
use std::path::{Path, PathBuf};

/// Something that runs on a device again and again.
trait Job {
    /// All its numbers.
    fn run(&mut self) -> Result<Vec<HostTensor>>;
    /// Gives back what the next run does not need.
    fn collect(&mut self);
    /// Does a run that failed let go of its inputs?
    fn drops_inputs(&self) -> bool;
}

struct Program {
    rt: Runtime,
    results: Vec<Tensor>,
}

impl Job for Program {
    fn run(&mut self) -> Result<Vec<HostTensor>> {
        self.rt.realize(&self.results.iter().collect::<Vec<_>>())?;
        self.results.iter().map(|t| self.rt.read(t)).collect()
    }

    fn collect(&mut self) {
        self.rt.collect();
    }

    fn drops_inputs(&self) -> bool {
        false
    }
}

struct Network {
    model: OnnxModel,
    inputs: Vec<(String, HostTensor)>,
}

impl Job for Network {
    fn run(&mut self) -> Result<Vec<HostTensor>> {
        let inputs: Vec<(&str, HostTensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        Ok(self.model.run(&inputs)?.into_iter().map(|o| o.1).collect())
    }

    fn collect(&mut self) {
        self.model.collect();
        self.model.engine().trim();
    }

    fn drops_inputs(&self) -> bool {
        true
    }
}

/// A folder for compiled kernels, so that each is compiled once.
struct Cache(PathBuf);

impl Cache {
    fn new(name: &str) -> Cache {
        let path = std::env::temp_dir().join(format!("gradloom-failing-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the cache");
        Cache(path)
    }

    fn host(&self) -> NativeHost {
        NativeHost::with_cache(&self.0, 1 << 28).threads(1)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lets every call of every kind fail in its turn. Returns how many failures there were.
fn every_failure(what: &str, make: &dyn Fn(&Faults) -> Box<dyn Job>) -> u32 {
    let faults = Faults::default();
    let mut job = make(&faults);
    let want = job.run().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(job.run().unwrap(), want, "{what}: the second run");
    job.collect();
    let least = faults.live().counts();
    let mut failures = 0;
    for call in Call::ALL {
        for lasts in [Lasts::On, Lasts::Once] {
            for nth in 1.. {
                let place = format!("{what}, {call:?} {nth} {lasts:?}");
                let faults = Faults::default();
                let mut job = make(&faults);
                faults.arm(call, nth, lasts);
                let got = job.run();
                let fired = faults.disarm();
                match got {
                    Ok(got) => {
                        assert!(!fired || (call, lasts) == (Call::Alloc, Lasts::Once), "{place}: no error came of it");
                        assert_eq!(got, want, "{place}");
                    }
                    Err(e) => {
                        assert!(fired, "{place}: {e}");
                        assert_eq!(e.code(), call.code(), "{place}: {e}");
                        job.collect();
                        let held = faults.live().counts();
                        let more = held.iter().zip(&least).any(|(a, b)| a > b);
                        assert!(!more || !job.drops_inputs(), "{place}: {held:?}, not {least:?}, are held");
                        assert_eq!(held[3], 0, "{place}: reads are left");
                    }
                }
                for again in 0..2 {
                    let got = job.run().unwrap_or_else(|e| panic!("{place}: run {again} after it: {e}"));
                    assert_eq!(got, want, "{place}: run {again} after it");
                }
                job.collect();
                let [buffers, bytes, kernels, reads] = faults.live().counts();
                assert_eq!([buffers, bytes, reads], [least[0], least[1], least[3]], "{place}: held after all");
                // a second attempt knows what stays as it is, and may make other kernels, beside those of the first
                assert!((least[2]..=2 * least[2]).contains(&kernels), "{place}: {kernels} kernels, not {}", least[2]);
                if !fired {
                    break;
                }
                failures += 1;
            }
        }
    }
    failures
}

fn open(device: &str) -> Box<dyn Device> {
    match device {
        // a device that stores few dtypes as they are
        "shaders" => Box::new(EvalDevice::new(Target { lang: Lang::Eval, ..Target::wgsl("shaders") })),
        name => gradloom::open(name, 1).expect("a device"),
    }
}

fn program(device: &str, make: fn(&Session) -> Result<Vec<Tensor>>, least: u32) {
    let cache = Cache::new(&format!("{device}-{least}"));
    let failures = every_failure(device, &|faults| {
        let rt = Runtime::with_host(Box::new(Failing::new(open(device), faults)), cache.host());
        let results = make(rt.session()).expect("a graph");
        Box::new(Program { rt, results })
    });
    assert!(failures >= least, "only {failures} calls failed");
}

fn numbers(s: &Session, shape: &[usize]) -> Result<Tensor> {
    let n = shape.iter().product::<usize>();
    let data: Vec<f32> = (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::new(s, &data, shape)
}

/// Kernels in a row, with temporaries between them, of dtypes that not every device has.
fn chain(s: &Session) -> Result<Vec<Tensor>> {
    let x = numbers(s, &[6, 40])?;
    let table = numbers(s, &[50, 8])?.cast(DType::F16)?.to_storage()?;
    let index = Tensor::new(s, &(0..6).map(|i| i * 7u8).collect::<Vec<_>>(), &[6])?;
    let sorted = x.sort(-1, false)?.0;
    let sums = sorted.cumsum(1)?;
    let rows = table.index_select(0, &index)?.cast(DType::F32)?;
    Ok(vec![x.softmax(-1)?.matmul(&numbers(s, &[40, 8])?)?.add(&rows)?, sums, x.mean(&[], false)?])
}

/// A step of training, which overwrites what it reads.
fn step(s: &Session) -> Result<Vec<Tensor>> {
    let (x, w, b) = (numbers(s, &[4, 10])?, numbers(s, &[3, 10])?, numbers(s, &[3])?);
    let loss = x.linear(&w, Some(&b))?.tanh()?.sum(&[], false)?;
    let grads = loss.grad(&[&w, &b])?;
    let mut adam = Adam::new(vec![w.clone(), b.clone()], 1e-2, AdamOpts::default())?;
    adam.step(&grads)?;
    Ok(adam.tensors().into_iter().chain([w, b, loss]).collect())
}

/// A product with weights that stay, which kernels may pack.
fn weights(s: &Session) -> Result<Vec<Tensor>> {
    let (x, w) = (numbers(s, &[64, 96])?, numbers(s, &[96, 128])?);
    let node = w.node();
    s.state().freeze(&[node], &[]);
    let y = x.matmul(&w)?.relu()?;
    Ok(vec![y.matmul(&numbers(s, &[128, 5])?)?, y])
}

#[test]
fn programs_outlive_every_refusal() {
    for (device, least) in [("cpu", 30), ("shaders", 30)] {
        program(device, chain, least);
        program(device, step, least + 1);
        program(device, weights, 20);
    }
}

fn network(name: &str, file: &[u8], inputs: &[(String, HostTensor)], least: u32) {
    let cache = Cache::new(name);
    let failures = every_failure(name, &|faults| {
        let device = Box::new(Failing::new(open("cpu"), faults));
        let model = OnnxModel::with_host(Model::parse(file.to_vec()).expect(name), device, cache.host());
        Box::new(Network { model, inputs: inputs.to_vec() })
    });
    assert!(failures >= least, "{name}: only {failures} calls failed");
}

fn on_disk(name: &str, least: u32) {
    let dir: &Path = &folder(name);
    let file = std::fs::read(dir.join("model.onnx")).expect("a model");
    network(name, &file, &arrays(&dir.join("input.npz")), least);
}

#[test]
fn models_outlive_every_refusal() {
    on_disk("zoo_densenet", 30);
    on_disk("zoo_t5_encoder", 30);
}

/// A run that reads a value back before it can go on.
#[test]
fn a_run_in_stages_outlives_every_refusal() {
    let x = HostTensor::from_f32(vec![200], &(0..200).map(|i| (i % 3) as f32).collect::<Vec<_>>()).unwrap();
    network("NonZero", &one_node("NonZero", &["x"], 1, &[], &[]), &[("x".into(), x)], 10);
}
