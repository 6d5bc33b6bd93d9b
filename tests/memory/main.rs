//! A process that runs the same thing a thousand times holds no more memory at the end than near the beginning: the
//! heap by its allocator's own count, the device's buffers by the engine's. A binary of its own, because the allocator
//! counts for a whole process. And small models that ask for much: each ends with an error that says so, and little was allocated.

use gradloom::model::OnnxModel;
use gradloom::nn::{Layer, Linear, Mode, Module, Sequential};
use gradloom::optim::{Adam, AdamOpts, Optimizer};
use gradloom::{Runtime, Tensor};
use gradloom_core::io::json::Json;
use gradloom_core::io::onnx::{Bound, Feed, Model};
use gradloom_core::io::{HostTensor, npz};
use gradloom_core::text::{ChatOptions, ChatTemplate};
use gradloom_core::{Budget, Session};
use gradloom_tests::hostile::one_node;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Tests count one after the other.
static ALONE: Mutex<()> = Mutex::new(());

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

/// A model that is run in a new shape each time: plans and kernels of shapes that were not used for long are forgotten. With
/// room for few of them nothing else may grow either: what is held after 1,500 shapes is what was held after 500.
fn many_shapes(cache_bytes: Option<usize>, most: isize, growth: isize) {
    const SHAPES: usize = 1500;
    let mut rt = Runtime::open("cpu", 1).expect("the cpu device");
    if let Some(bytes) = cache_bytes {
        rt.engine().set_cache_bytes(bytes);
    }
    let s = rt.session().clone();
    let w = Tensor::new(&s, &[0.25f32; 64], &[8, 8]).unwrap();
    // the most that is held in each third: plans go several at a time
    let mut held = [0isize; 3];
    let region = Region::new(ALLOCATOR);
    for n in 1..=SHAPES {
        let x = Tensor::new(&s, &vec![1.0f32; n * 8], &[n, 8]).unwrap();
        let y = x.matmul(&w).unwrap().softmax(-1).unwrap().matmul(&w).unwrap().sum(&[0], false).unwrap();
        let got = rt.to_vec::<f32>(&y).unwrap();
        assert!(got.iter().all(|v| (v / n as f32 - 0.25).abs() < 1e-4), "{n}: {got:?}");
        drop((x, y));
        rt.collect();
        let change = region.change();
        let now = change.bytes_allocated as isize - change.bytes_deallocated as isize;
        let third = &mut held[(n - 1) * 3 / SHAPES];
        *third = now.max(*third);
    }
    let (kept, forgotten) = (rt.engine().cached_bytes(), rt.counters().plans_forgotten);
    println!("{held:?} bytes at most in 500 shapes each; {kept} kept by estimate, {forgotten} plans forgotten");
    // without a bound each shape would keep about 320 kB, 480 MB in all
    assert!(held[2] < most, "{held:?} bytes at most in 500 shapes each");
    assert!(held[2] - held[0] < growth, "{held:?} bytes at most in 500 shapes each");
}

#[test]
fn a_thousand_runs_hold_no_more_than_a_few() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    a_model("silero_vad_op18_ifless");
    a_model("hibari_oov");
    a_training_step();
    many_shapes(None, 60 << 20, 2 << 20);
    many_shapes(Some(4 << 20), 5 << 20, 256 << 10);
}

/// What a refused model may allocate before it is refused.
const REFUSED: usize = 64 << 20;

/// Wants an error of one of these codes, and little allocated.
fn refused<T>(what: &str, codes: &[&str], body: impl FnOnce() -> gradloom::Result<T>) {
    let region = Region::new(ALLOCATOR);
    let result = body();
    let bytes = region.change().bytes_allocated;
    let Err(e) = result else { panic!("{what} is not refused") };
    assert!(codes.contains(&e.code()), "{what}: {e}");
    assert!(!e.to_string().contains("18446744073709551615"), "{what}: {e}");
    assert!(bytes < REFUSED, "{what}: {bytes} bytes were allocated before `{e}`");
}

fn ints(v: &[i64]) -> HostTensor {
    HostTensor::from_i64(vec![v.len()], v).unwrap()
}

fn number(v: i64) -> HostTensor {
    HostTensor::from_i64(vec![], &[v]).unwrap()
}

#[test]
fn small_models_that_ask_for_much_are_refused_before_they_get_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const LARGE: i64 = i32::MAX as i64;
    let floats = |v: &[f32]| HostTensor::from_f32(vec![v.len()], v).unwrap();
    let none = || floats(&[]);
    let window = |op: &str| (op.to_owned(), one_node(op, &["c0"], 1, &[], &[number(LARGE)]), vec![]);
    let wide = 1 << 26;
    let models: Vec<(String, Vec<u8>, Vec<usize>)> = vec![
        window("HannWindow"),
        window("HammingWindow"),
        window("BlackmanWindow"),
        (
            "MelWeightMatrix".into(),
            one_node(
                "MelWeightMatrix",
                &["c0", "c1", "c2", "c3", "c4"],
                1,
                &[],
                &[number(1 << 14), number(1 << 16), number(8000), floats(&[0.0]), floats(&[4000.0])],
            ),
            vec![],
        ),
        ("Split".into(), one_node("Split", &["x"], 1, &[("num_outputs", wide)], &[]), vec![wide as usize]),
        (
            "SplitToSequence".into(),
            one_node("SplitToSequence", &["x", "c0"], 1, &[], &[number(1)]),
            vec![wide as usize],
        ),
        (
            "Resize".into(),
            one_node("Resize", &["x", "", "", "c0"], 1, &[], &[ints(&[1, 1, 1, 100_000_000])]),
            vec![1, 1, 1, 2],
        ),
        ("Resize of scales".into(), one_node("Resize", &["x", "", "c0"], 1, &[], &[floats(&[1e8])]), vec![2]),
        ("Upsample".into(), one_node("Upsample", &["x", "c0"], 1, &[], &[floats(&[1e8])]), vec![2]),
        ("ConstantOfShape".into(), one_node("ConstantOfShape", &["c0"], 1, &[], &[ints(&[LARGE, LARGE])]), vec![]),
        (
            "Range".into(),
            one_node("Range", &["c0", "c1", "c2"], 1, &[], &[number(0), number(i64::MAX), number(1)]),
            vec![],
        ),
        ("EyeLike".into(), one_node("EyeLike", &["x"], 1, &[], &[]), vec![1 << 15, 1 << 15]),
        ("Tile".into(), one_node("Tile", &["x", "c0"], 1, &[], &[ints(&[1 << 40])]), vec![2]),
        ("Expand".into(), one_node("Expand", &["x", "c0"], 1, &[], &[ints(&[LARGE, LARGE])]), vec![1]),
        ("Pad".into(), one_node("Pad", &["x", "c0"], 1, &[], &[ints(&[1 << 40, 1 << 40])]), vec![1]),
        (
            "OneHot".into(),
            one_node("OneHot", &["x", "c0", "c1"], 1, &[], &[number(LARGE), floats(&[0.0, 1.0])]),
            vec![2, 2],
        ),
        ("Gather".into(), one_node("Gather", &["x", "c0"], 1, &[], &[none()]), vec![]),
    ];
    for (name, file, shape) in models {
        let model = Arc::new(Model::parse(file).unwrap());
        let session = Session::new();
        let x = Tensor::zeros(&session, gradloom::DType::F32, &shape).unwrap();
        let feeds: Vec<(&str, Feed)> = model.inputs().iter().map(|_| ("x", Feed::Tensor(x.clone()))).collect();
        refused(&name, &["E_BUDGET", "E_MODEL", "E_UNSUPPORTED"], || Bound::new(model.clone(), &session).build(&feeds));
    }
    let double = "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}";
    let messages = Json::Array(Vec::new());
    refused("a text that doubles", &["E_FORMAT"], || {
        ChatTemplate::new(double)?.apply(&messages, &ChatOptions::default())
    });
    let long = "{% for i in range(9000) %}{{ 'x' * 1000 }}{% endfor %}";
    refused("a long text", &["E_BUDGET"], || ChatTemplate::new(long)?.apply(&messages, &ChatOptions::default()));
}

#[test]
fn a_budget_of_ones_own_holds() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = one_node("HannWindow", &["c0"], 1, &[], &[number(1000)]);
    let build = |budget: Budget| {
        let model = Arc::new(Model::parse(file.clone()).unwrap().with_budget(budget));
        Bound::new(model, &Session::new()).build(&[]).map(|out| out[0].1.shape())
    };
    assert_eq!(build(Budget::default()).unwrap(), [1000]);
    let e = build(Budget { host_bytes: 3999, ..Budget::default() }).unwrap_err();
    assert!(e.to_string().contains("the_HannWindow") && e.to_string().contains("host_bytes"), "{e}");
    assert!(matches!(e, gradloom::Error::Budget { limit: 3999, wanted: 4000, .. }));
    let e = build(Budget { tensor_elems: 999, ..Budget::default() }).unwrap_err();
    assert_eq!(e.code(), "E_BUDGET");
}
