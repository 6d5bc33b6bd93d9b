//! A process that runs the same thing a thousand times holds no more memory at the end than near the beginning: the
//! heap by its allocator's own count, the device's buffers by the engine's. A binary of its own, because the allocator
//! counts for a whole process.

use gradloom::model::OnnxModel;
use gradloom::nn::{Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer};
use gradloom::{Runtime, Tensor};
use gradloom_core::io::npz;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs before the count begins: caches fill, vectors reach their capacity, the graph is compacted a few times.
const WARM: usize = 300;
const RUNS: usize = 1000;
/// Bytes that the heap may hold more afterwards: the graph's own capacity moves between two compactions.
const NOISE: isize = 64 << 10;

/// Runs something and compares the heap, and `held`, between the warm state and the end.
fn steady(what: &str, mut run: impl FnMut() -> usize) {
    let mut held = 0;
    for _ in 0..WARM {
        held = run();
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..RUNS {
        let now = run();
        assert_eq!(now, held, "{what}: bytes on the device");
    }
    let change = region.change();
    let grown = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    assert!(grown < NOISE, "{what}: {grown} bytes more after {RUNS} runs");
}

fn a_model(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
    let device = gradloom::devices::open("cpu", 1).expect("the cpu device");
    let mut model = OnnxModel::load(&folder.join("model.onnx"), device).expect("a model");
    let inputs = npz::read(&std::fs::read(folder.join("input.npz")).unwrap()).expect("an npz");
    let inputs: Vec<_> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
    steady(name, || {
        model.run(&inputs).expect("a run");
        model.counters().bytes
    });
}

fn a_training_step() {
    let mut rt = Runtime::open("cpu", 1).expect("the cpu device");
    let s = rt.session().clone();
    s.manual_seed(1);
    let net = Sequential::new()
        .layer(Linear::new(&s, 8, 16).unwrap())
        .function(Tensor::tanh)
        .layer(Linear::new(&s, 16, 1).unwrap());
    let mut opt = Adam::new(net.parameters(), 1e-3, AdamOpts::default()).unwrap();
    let mut step = 0;
    steady("a training step", || {
        step += 1;
        let data: Vec<f32> = (0..32).map(|i| ((i * 7 + step) % 13) as f32).collect();
        let x = Tensor::new(&s, &data, &[4, 8]).unwrap();
        let loss = net.apply(&x, Mode::Train).unwrap().square().unwrap().mean(&[], false).unwrap();
        opt.minimize(&loss).unwrap();
        let mut all = opt.tensors();
        all.push(loss.clone());
        rt.realize(&all.iter().collect::<Vec<_>>()).unwrap();
        rt.to_vec::<f32>(&loss).unwrap();
        drop((x, loss, all));
        rt.collect();
        rt.counters().bytes
    });
}

/// A model that is run in a new shape each time: plans and kernels of shapes that were not used for long are forgotten.
fn many_shapes() {
    const SHAPES: usize = 1500;
    let mut rt = Runtime::open("cpu", 1).expect("the cpu device");
    let s = rt.session().clone();
    let w = Tensor::new(&s, &[0.25f32; 64], &[8, 8]).unwrap();
    let mut held = Vec::new();
    let region = Region::new(ALLOCATOR);
    for n in 1..=SHAPES {
        let x = Tensor::new(&s, &vec![1.0f32; n * 8], &[n, 8]).unwrap();
        let y = x.matmul(&w).unwrap().softmax(-1).unwrap().matmul(&w).unwrap().sum(&[0], false).unwrap();
        let got = rt.to_vec::<f32>(&y).unwrap();
        assert!(got.iter().all(|v| (v / n as f32 - 0.25).abs() < 1e-4), "{n}: {got:?}");
        drop((x, y));
        rt.collect();
        if n % 500 == 0 {
            let change = region.change();
            held.push(change.bytes_allocated as isize - change.bytes_deallocated as isize);
        }
    }
    println!("{held:?} bytes after 500, 1000 and 1500 shapes; {} plans forgotten", rt.counters().plans_forgotten);
    assert!(held[2] - held[0] < 4 << 20, "{held:?} bytes after 500, 1000 and 1500 shapes");
}

#[test]
fn a_thousand_runs_hold_no_more_than_a_few() {
    a_model("silero_vad_op18_ifless");
    a_model("hibari_oov");
    a_training_step();
    many_shapes();
}
