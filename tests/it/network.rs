//! Models that learn: a graph from a file learns as the same layers written with tensors do, adapters leave its weights alone, and the
//! file that is written gives what the network gave. Real models, too.

use super::models::{arrays, error, folder};
use super::weights::{field, node, number};
use gradloom::io::HostTensor;
use gradloom::io::onnx::{Feed, Lora, Model, Network, Train};
use gradloom::optim::{Adam, AdamOpts, Optimizer, Sgd, SgdOpts};
use gradloom::{OnnxModel, Runtime, Session, Tensor};
use gradloom_tests::here;

const ROWS: usize = 16;

fn port(which: u64, name: &str, dims: &[usize]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&d| field(1, &number(1, d as u64))).collect();
    let ty = field(2, &field(1, &[number(1, 1), field(2, &dims)].concat()));
    field(which, &[field(1, name.as_bytes()), ty].concat())
}

fn values(shape: &[usize], seed: usize) -> HostTensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 7919 + seed * 31) % 101) as f32 / 101.0 - 0.5).collect();
    HostTensor::from_f32(shape.to_vec(), &data).expect("a tensor")
}

fn constant(name: &str, t: &HostTensor) -> Vec<u8> {
    let dims: Vec<u8> = t.shape.iter().flat_map(|&d| number(1, d as u64)).collect();
    field(5, &[dims, number(2, 1), field(8, name.as_bytes()), field(9, &t.data)].concat())
}

/// Weights of the network below, in the file's order.
const WEIGHTS: [(&str, &[usize]); 6] =
    [("w1", &[6, 32]), ("b1", &[32]), ("gain", &[32]), ("shift", &[32]), ("w2", &[32, 3]), ("b2", &[3])];

/// Two layers with a norm between them: `[16, 6]` to `[16, 3]`.
fn file() -> Vec<u8> {
    let mut graph = vec![port(11, "x", &[ROWS, 6]), port(12, "y", &[ROWS, 3])];
    graph.extend(WEIGHTS.iter().enumerate().map(|(i, (name, shape))| constant(name, &values(shape, i))));
    graph.extend([
        node("Gemm", &["x", "w1", "b1"], "h"),
        node("Relu", &["h"], "r"),
        node("LayerNormalization", &["r", "gain", "shift"], "n"),
        node("MatMul", &["n", "w2"], "m"),
        node("Add", &["m", "b2"], "y"),
    ]);
    [number(1, 8), field(8, &number(2, 17)), field(7, &graph.concat())].concat()
}

fn tensor(s: &Session, t: &HostTensor) -> Tensor {
    let bytes = gradloom::engine::Bytes::new(t.data.clone());
    Tensor::from_bytes(s, t.dtype, &t.shape, bytes).expect("a tensor")
}

/// Losses of some steps of Adam, where `forward` gives the outputs.
fn losses(rt: &mut Runtime, params: Vec<Tensor>, forward: &dyn Fn(&Tensor) -> Tensor) -> Vec<f32> {
    let s = rt.session().clone();
    let (x, y) = (tensor(&s, &values(&[ROWS, 6], 40)), tensor(&s, &values(&[ROWS, 3], 41)));
    let mut opt = Adam::new(params, 1e-2, AdamOpts::default()).expect("an optimiser");
    let mut out = Vec::new();
    for _ in 0..12 {
        let loss = forward(&x).sub(&y).unwrap().square().unwrap().mean(&[], false).unwrap();
        opt.minimize(&loss).expect("a step");
        let mut all = opt.tensors();
        all.push(loss.clone());
        rt.realize(&all.iter().collect::<Vec<_>>()).expect("a step runs");
        out.push(rt.to_vec::<f32>(&loss).expect("a loss")[0]);
    }
    out
}

#[test]
fn a_loaded_graph_learns_as_the_same_layers_do() {
    let model = Model::parse(file()).expect("a model");
    for device in ["eval", "cpu", "wgpu"] {
        let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { continue };
        let s = rt.session().clone();
        let network = Network::new(&model, &s, &Train::All).expect("a network");
        let params: Vec<(String, Tensor)> = network.parameters();
        assert_eq!(params.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(), WEIGHTS.map(|w| w.0));
        let got = losses(&mut rt, params.iter().map(|p| p.1.clone()).collect(), &|x| {
            network.forward(&[("x", Feed::Tensor(x.clone()))]).expect("outputs").remove(0).1
        });
        let p: Vec<Tensor> = WEIGHTS.iter().enumerate().map(|(i, w)| tensor(&s, &values(w.1, i))).collect();
        let want = losses(&mut rt, p.clone(), &|x| {
            let h = x.matmul(&p[0]).unwrap().add(&p[1]).unwrap().relu().unwrap();
            h.layer_norm(1, Some(&p[2]), Some(&p[3]), 1e-5).unwrap().matmul(&p[4]).unwrap().add(&p[5]).unwrap()
        });
        assert!(want[11] < 0.5 * want[0], "{device}: it learns: {want:?}");
        for (g, w) in got.iter().zip(&want) {
            assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{device}: {got:?}, not {want:?}");
        }
        // what is written has learned
        let learned: Vec<(String, HostTensor)> =
            network.values().unwrap().into_iter().map(|(n, t)| (n, rt.read(&t).unwrap())).collect();
        for ((_, got), want) in learned.iter().zip(&p) {
            assert!(error(got, &rt.read(want).unwrap()) < 1e-4, "{device}");
        }
        let written = Model::parse(model.file_with(&learned).unwrap()).expect("a model");
        let x = values(&[ROWS, 6], 43);
        let y = network.forward(&[("x", Feed::Tensor(tensor(&s, &x)))]).unwrap().remove(0).1;
        let from_file = written.evaluate(&[("x", x)]).unwrap().remove(0).1;
        assert!(error(&rt.read(&y).unwrap(), &from_file) < 1e-5, "{device}");
    }
}

#[test]
fn later_steps_compile_nothing() {
    let model = Model::parse(file()).expect("a model");
    let Some(mut rt) = here::device("cpu", Runtime::open("cpu", 2)) else { return };
    let s = rt.session().clone();
    let lora = Lora { rank: 4, alpha: 8.0, patterns: vec![] };
    let network = Network::new(&model, &s, &Train::Lora(lora)).expect("a network");
    let params: Vec<Tensor> = network.parameters().into_iter().map(|p| p.1).collect();
    let x = tensor(&s, &values(&[ROWS, 6], 40));
    let mut opt = Sgd::new(params, 0.1, SgdOpts::default()).unwrap();
    let mut programs = Vec::new();
    for _ in 0..5 {
        let y = network.forward(&[("x", Feed::Tensor(x.clone()))]).unwrap().remove(0).1;
        let loss = y.square().unwrap().mean(&[], false).unwrap();
        opt.minimize(&loss).unwrap();
        rt.realize(&opt.tensors().iter().chain([&loss]).collect::<Vec<_>>()).unwrap();
        programs.push(rt.counters().programs);
    }
    // the first values of adapters are computed with the first step
    assert_eq!(programs[1], programs[4], "{programs:?}");
}

/// Some steps on a real model: its outputs are those expected before, its loss falls, and the file that is written is the network.
fn learns(name: &str, train: &Train, rate: f64) {
    let Some(mut rt) = here::device("cpu", Runtime::open("cpu", 2)) else { return };
    let s = rt.session().clone();
    let dir = folder(name);
    let bytes = std::fs::read(dir.join("model.onnx")).expect("a model");
    let model = Model::parse(bytes.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let network = Network::new(&model, &s, train).unwrap_or_else(|e| panic!("{name}: {e}"));
    let inputs = arrays(&dir.join("input.npz"));
    let feeds: Vec<(&str, Feed)> = inputs
        .iter()
        .map(|(n, t)| {
            let known = model.input(n).expect("an input").is_value;
            (n.as_str(), if known { Feed::Known(t.clone()) } else { Feed::Tensor(tensor(&s, t)) })
        })
        .collect();
    let forward = || network.forward(&feeds).unwrap_or_else(|e| panic!("{name}: {e}"));
    let expected = arrays(&dir.join("expected.npz"));
    let fresh = forward();
    for (output, want) in &expected {
        let got = &fresh.iter().find(|o| o.0 == *output).expect("an output").1;
        assert!(error(&rt.read(got).unwrap(), want) < 1e-3, "{name}: `{output}` before any step");
    }
    let params: Vec<Tensor> = network.parameters().into_iter().map(|p| p.1).collect();
    let mut opt = Adam::new(params, rate, AdamOpts::default()).unwrap();
    let mut losses = Vec::new();
    for _ in 0..4 {
        let y = forward().remove(0).1;
        let loss = y.square().unwrap().mean(&[], false).unwrap();
        opt.minimize(&loss).unwrap_or_else(|e| panic!("{name}: {e}"));
        rt.realize(&opt.tensors().iter().chain([&loss]).collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{name}: {e}"));
        losses.push(rt.to_vec::<f32>(&loss).unwrap()[0]);
    }
    assert!(losses[3] < losses[0], "{name}: {losses:?}");
    let changed: Vec<(String, HostTensor)> =
        network.values().unwrap().into_iter().map(|(n, t)| (n, rt.read(&t).unwrap())).collect();
    let written = model.file_with(&changed).unwrap();
    let written = Model::parse(written).unwrap_or_else(|e| panic!("{name}: {e}"));
    let outputs = forward();
    let mut plain = OnnxModel::new(written, gradloom::open("cpu", 2).unwrap());
    let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    for ((output, got), (_, want)) in outputs.iter().zip(plain.run(&inputs).unwrap()) {
        let e = error(&rt.read(got).unwrap(), &want);
        assert!(e < 1e-3, "{name}: `{output}` of the written file is off by {e:.1e}");
    }
    if let Train::Lora(_) = train {
        assert_eq!(network.model().file_with(&[]).unwrap(), bytes, "{name}: the model is what it was");
    }
}

#[test]
fn real_models_learn() {
    for (name, rate) in [("ppocr_cls", 1e-3), ("magika", 1e-3), ("zoo_t5_encoder", 1e-3)] {
        learns(name, &Train::All, rate);
        learns(name, &Train::Lora(Lora { rank: 4, alpha: 4.0, patterns: vec![] }), rate);
    }
}

#[test]
fn a_quantised_model_names_what_cannot_learn() {
    let bytes = std::fs::read(folder("style_predict_qdq").join("model.onnx")).expect("a model");
    let model = Model::parse(bytes).expect("a model");
    let quantised = model.graph().initializers.iter().find(|t| t.elem == 3 || t.elem == 2).expect("quantised weights");
    let e = Network::new(&model, &Session::new(), &Train::Named(vec![quantised.name.clone()])).err().expect("refused");
    let text = e.to_string();
    assert!(text.contains(&quantised.name) && text.contains("int8"), "{text}");
}
