//! A network that PyTorch exported learns as it does in PyTorch: losses of thirty steps of each way of training (`tests/zoo/finetune.py`), with
//! convolutions, norms, an embedding, attention, and weights that the file turns before it multiplies with them.

use super::models::{arrays, error};
use gradloom::engine::Bytes;
use gradloom::io::HostTensor;
use gradloom::io::onnx::{Feed, Lora, Model, Network, Train};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Sgd, SgdOpts};
use gradloom::{Runtime, Session, Tensor};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

const STEPS: usize = 30;
const BATCHES: usize = 3;
/// How far a loss may be off; the largest is 1.7.
const LIMIT: f64 = 5e-6;

fn fixture(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/finetune").join(file)
}

struct Recorded(Vec<(String, HostTensor)>);

impl Recorded {
    fn get(&self, name: &str) -> &HostTensor {
        &self.0.iter().find(|a| a.0 == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    fn tensor(&self, s: &Session, name: &str) -> Tensor {
        let t = self.get(name);
        Tensor::from_bytes(s, t.dtype, &t.shape, Bytes::new(t.data.clone())).unwrap()
    }
}

type Make = fn(Vec<Tensor>) -> Box<dyn Optimizer>;

fn everything(params: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(Adam::new(params, 0.003, AdamOpts::default()).unwrap())
}

fn some(params: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(Sgd::new(params, 0.05, SgdOpts { momentum: 0.9, nesterov: true, ..SgdOpts::default() }).unwrap())
}

fn lora(params: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(Adam::new(params, 0.01, AdamOpts { weight_decay: 0.02, decoupled: true, ..AdamOpts::default() }).unwrap())
}

fn check(device: &str) {
    let recorded = Recorded(arrays(&fixture("losses.npz")));
    let model = Model::parse(std::fs::read(fixture("network.onnx")).unwrap()).unwrap();
    let named = Train::Named(vec!["up.*".into(), "head.*".into()]);
    let adapters = Train::Lora(Lora { rank: 2, alpha: 6.0, patterns: vec![] });
    let ways: [(&str, Train, usize, Make); 3] =
        [("everything", Train::All, 22, everything), ("some", named, 4, some), ("lora", adapters, 16, lora)];
    for (way, train, count, optimiser) in ways {
        let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
        let s = rt.session().clone();
        let network = Network::new(&model, &s, &train).unwrap();
        let params = network.parameters();
        assert_eq!(params.len(), count, "{way}: {:?}", params.iter().map(|p| &p.0).collect::<Vec<_>>());
        for (name, p) in params.iter().filter(|p| p.0.ends_with("lora_A")) {
            p.set(&recorded.tensor(&s, name).to_storage().unwrap()).unwrap();
        }
        let mut opt = optimiser(params.into_iter().map(|p| p.1).collect());
        let want = recorded.get(way).to_f64();
        let mut got = Vec::new();
        for step in 0..STEPS {
            let i = step % BATCHES;
            let given = |name: &str| recorded.tensor(&s, &format!("{name}{i}"));
            let feeds = [("image", Feed::Tensor(given("image"))), ("words", Feed::Tensor(given("words")))];
            let logits = || network.forward(&feeds).unwrap().remove(0).1;
            // what was read is a value, through which no gradient goes: the loss is of others
            if step == 0 {
                assert!(error(&rt.read(&logits()).unwrap(), recorded.get("logits")) < 1e-5, "{way} on {device}");
            }
            let loss = logits().cross_entropy(&given("labels"), None, 0.0).unwrap();
            opt.minimize(&loss).unwrap();
            rt.realize(&opt.tensors().iter().chain([&loss]).collect::<Vec<_>>()).unwrap();
            got.push(f64::from(rt.to_vec::<f32>(&loss).unwrap()[0]));
        }
        let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(want.len() == STEPS && off <= LIMIT, "{way} on {device}: off by {off}: {got:?}, not {want:?}");
        println!("{way} on {device}: losses off PyTorch's by {off:.1e} at most");
        // batches and steps matter: a loss is far from that of the step before
        assert!((1..STEPS).all(|i| (want[i] - want[i - 1]).abs() > 100.0 * LIMIT), "{way}");
    }
}

#[test]
fn a_network_of_pytorchs_learns_as_there_on_cpu() {
    check("cpu");
}

#[cfg(feature = "wgpu")]
#[test]
fn a_network_of_pytorchs_learns_as_there_on_wgpu() {
    check("wgpu");
}
