//! A character language model (textgenrnn: two LSTM layers and an average weighted by attention) from its Keras weights: the
//! example of the `gradloom` crate.

use crate::models::{arrays, error, folder};
use gradloom::engine::Bytes;
use gradloom::tensor::Sampling;
use gradloom::{Runtime, Tensor};
use gradloom_tests::here;
use model::CharacterModel;

#[path = "../../native/examples/characters/model.rs"]
mod model;

fn open(rt: &Runtime) -> CharacterModel {
    let read = |name: &str| std::fs::read(folder("textgenrnn").join(name)).unwrap();
    CharacterModel::read(rt.session(), &read("weights.npz"), &read("vocab.json")).unwrap()
}

fn check(device: &str) {
    let dir = folder("textgenrnn");
    let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
    let model = open(&rt);
    let ids = arrays(&dir.join("input.npz")).remove(0).1;
    let shape = [1, ids.shape[0]];
    let ids = Tensor::from_bytes(rt.session(), ids.dtype, &shape, Bytes::new(ids.data)).unwrap();
    let logits = model.forward(&ids).unwrap().flatten(0, -1).unwrap();
    let e = error(&rt.read(&logits).unwrap(), &arrays(&dir.join("expected.npz"))[0].1);
    assert!(e <= 1e-3, "textgenrnn on {device}: off by {e:.1e}");
    // Both LSTMs have 40 steps each. A processor's kernels loop over them; a GPU launches the kernels of every step, which
    // are the same programs.
    let c = rt.counters();
    assert!(c.programs <= 20, "the steps share kernels: {c:?}");
    assert!(if device == "cpu" { c.launches < 80 } else { c.launches >= 160 }, "{c:?}");
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn textgenrnn_runs_on_the_processor() {
    check("cpu");
}

#[test]
#[cfg(feature = "wgpu")]
fn textgenrnn_runs_on_wgpu() {
    check("wgpu");
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn textgenrnn_writes_texts() {
    let mut rt = Runtime::open("cpu", 2).unwrap();
    let model = open(&rt);
    // what numpy gives in f64; the closest two logits of the way are 0.09 apart
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    let best = model.write(&mut rt, "What is", &greedy, 0, 40).unwrap();
    assert_eq!(best, "What is the best state of the state of the stat");
    let how = Sampling { temperature: 0.7, top_k: 12, ..Sampling::default() };
    let mut draw = |how: &Sampling, seed: u32| model.write(&mut rt, "What is", how, seed, 24).unwrap();
    let first = draw(&how, 1);
    assert_eq!(first, draw(&how, 1), "a seed gives a text");
    assert!((2..6).any(|seed| draw(&how, seed) != first), "seeds give texts");
    // one token to choose from is the most likely one
    assert_eq!(draw(&Sampling { top_k: 1, ..how }, 3), best[..31]);
    assert_eq!(draw(&Sampling { top_p: 1e-6, ..how }, 3), best[..31]);
    assert!(model.write(&mut rt, "\u{10ffff}", &how, 1, 1).is_err());
}
