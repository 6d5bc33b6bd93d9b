//! Operators on what they do not expect: every case of the conformance slices with other ranks, dtypes, lengths and numbers for
//! each input, with inputs missing and twice, and with other attributes. Each build ends, with values or with an error.

use gradloom_core::engine::Bytes;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{Bound, Feed, Model};
use gradloom_core::{Budget, DType, Session, Tensor};
use gradloom_tests::hostile::{changed_nodes, changed_tensors, one_node, untyped};
use gradloom_tests::onnx_suite::read;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once};

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Notes where this thread panics, and says nothing; other threads' panics go where they went.
fn with_hook<T>(body: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let old = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                return old(info);
            }
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
            let what = info.payload_as_str().unwrap_or_default().to_owned();
            PLACE.set(Some(format!("{place}: {what}")));
        }));
    });
    QUIET.set(true);
    let out = body();
    QUIET.set(false);
    out
}

/// Where it panicked, if it did.
fn panics(body: impl FnOnce()) -> Option<String> {
    PLACE.take();
    let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
    failed.then(|| PLACE.take().unwrap_or_default())
}

/// Builds a model on these inputs, as lazy tensors and as values known to the build.
fn build(file: &[u8], inputs: &[(String, HostTensor)]) {
    let Ok(model) = Model::parse(file.to_vec()) else { return };
    let model = Arc::new(model.with_budget(Budget { host_bytes: 1 << 20, nodes: 1 << 12, ..Budget::default() }));
    let session = Session::new();
    let bound = Bound::new(model.clone(), &session);
    let lazy = |(name, t): &(String, HostTensor)| -> Option<(String, Feed)> {
        let t = Tensor::from_bytes(&session, t.dtype, &t.shape, Bytes::new(t.data.clone())).ok()?;
        Some((name.clone(), Feed::Tensor(t)))
    };
    let lists = [
        inputs.iter().filter_map(lazy).collect::<Vec<_>>(),
        inputs.iter().map(|(n, t)| (n.clone(), Feed::Known(t.clone()))).collect(),
    ];
    for feeds in lists {
        let feeds: Vec<(&str, Feed)> = feeds.iter().map(|(n, f)| (n.as_str(), f.clone())).collect();
        if let Err(e) = bound.build(&feeds) {
            assert!(e.code() != "E_INTERNAL", "{e}");
        }
    }
}

/// Of the changes of all cases one in so many is tried.
const EVERY: usize = 7;

/// The changes of every case of a file.
fn check(file: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx");
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut at, mut tried) = (0, 0);
    for case in read(&std::fs::read(folder.join(file)).unwrap()).unwrap() {
        let Ok(model) = Model::parse(case.model.clone()) else { continue };
        let Some(Ok((inputs, _))) = case.sets(&model).next() else { continue };
        if inputs.iter().map(|i| i.1.len()).sum::<usize>() > 1 << 14 {
            continue;
        }
        let Some(open) = untyped(&case.model) else { continue };
        let file = open.bytes();
        let mut run = |what: String, file: &[u8], inputs: &[(String, HostTensor)]| {
            at += 1;
            if at % EVERY != 0 {
                return;
            }
            tried += 1;
            if let Some(place) = with_hook(|| panics(|| build(file, inputs))) {
                found.entry(place).or_insert((0, format!("{}, {what}", case.name))).0 += 1;
            }
        };
        for i in 0..inputs.len() {
            for t in changed_tensors(&inputs[i].1) {
                let mut changed = inputs.clone();
                let what = format!("input {i} {} {:?}", t.dtype, t.shape);
                changed[i].1 = t;
                run(what, &file, &changed);
            }
        }
        for (i, changed) in changed_nodes(&open).iter().enumerate() {
            run(format!("change {i}"), changed, &inputs);
        }
    }
    let list: Vec<String> =
        found.iter().map(|(place, (n, first))| format!("{place} ({n} times, first {first})")).collect();
    assert!(tried > least, "{file}: {tried} models were tried");
    println!("{file}: {tried} models");
    assert!(list.is_empty(), "{file}: {} of {tried} models panic:\n{}", list.len(), list.join("\n"));
}

/// Node by node: an operator whose input has a rank that it can not have says so, with its name.
#[test]
fn a_box_without_axes_is_an_error_that_names_the_node() {
    let boxes = HostTensor::from_f32(vec![], &[1.0]).unwrap();
    let batch = HostTensor::from_i64(vec![1], &[0]).unwrap();
    let file = one_node("RoiAlign", &["x", "c0", "c1"], 1, &[], &[boxes, batch]);
    let model = Arc::new(Model::parse(file).unwrap());
    let session = Session::new();
    let x = Tensor::zeros(&session, DType::F32, &[1, 1, 4, 4]).unwrap();
    let e = Bound::new(model, &session).build(&[("x", Feed::Tensor(x))]).err().expect("a scalar is no list of boxes");
    assert_eq!(e.code(), "E_MODEL");
    assert!(e.to_string().contains("the_RoiAlign") && e.to_string().contains("boxes"), "{e}");
}

#[test]
fn no_change_of_a_model_panics() {
    for (file, least) in
        [("slice.zip", 3000), ("contrib.zip", 1500), ("dynamic.zip", 100), ("ml.zip", 100), ("opset.zip", 100)]
    {
        check(file, least);
    }
}
