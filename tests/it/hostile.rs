//! Operators on what they do not expect: every case of the conformance slices with other ranks, dtypes, lengths and numbers for
//! each input, with inputs missing and twice, and with other attributes; and tensor methods on arguments of any rank and value. Each
//! ends, with values or with an error.

use gradloom_core::tensor::call::{Value, call, table};
use gradloom_core::{DType, Session, Tensor};
use gradloom_core::engine::Bytes;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::{Bound, Feed, Model};
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

/// Builds a model on these inputs, as lazy tensors, as values known to the build, and if wanted on the host.
fn build(file: &[u8], inputs: &[(String, HostTensor)], on_host: bool) {
    let Ok(model) = Model::parse(file.to_vec()) else { return };
    let model = Arc::new(model);
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
    if on_host {
        let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        drop(model.evaluate(&inputs));
    }
}

/// Every change of every case of a file.
fn check(file: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx");
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut tried = 0;
    for case in read(&std::fs::read(folder.join(file)).unwrap()).unwrap() {
        let Ok(model) = Model::parse(case.model.clone()) else { continue };
        let Some(Ok((inputs, _))) = case.sets(&model).next() else { continue };
        if inputs.iter().map(|i| i.1.len()).sum::<usize>() > 1 << 14 {
            continue;
        }
        let open = untyped(&case.model);
        let file = open.bytes();
        let mut run = |what: String, file: &[u8], inputs: &[(String, HostTensor)], on_host: bool| {
            tried += 1;
            if let Some(place) = with_hook(|| panics(|| build(file, inputs, on_host))) {
                found.entry(place).or_insert((0, format!("{}, {what}", case.name))).0 += 1;
            }
        };
        for i in 0..inputs.len() {
            for t in changed_tensors(&inputs[i].1) {
                let mut changed = inputs.clone();
                let what = format!("input {i} {} {:?}", t.dtype, t.shape);
                changed[i].1 = t;
                run(what, &file, &changed, false);
            }
        }
        for (i, changed) in changed_nodes(&open).iter().enumerate() {
            run(format!("change {i}"), changed, &inputs, false);
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
        [("slice.zip", 10_000), ("contrib.zip", 10_000), ("dynamic.zip", 500), ("ml.zip", 1000), ("opset.zip", 1000)]
    {
        check(file, least);
    }
}

/// Numbers that repeat from run to run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

const MODES: [&str; 14] = [
    "mean", "sum", "none", "nearest", "linear", "bilinear", "bicubic", "constant", "reflect", "zeros", "add", "amax", "ij,jk->ik", "bogus",
];

/// A tensor that often has the shape of the one before it.
fn any_tensor(rng: &mut Rng, session: &Session, shape: &mut Vec<usize>) -> Tensor {
    if rng.below(3) == 0 {
        *shape = (0..rng.below(6)).map(|_| rng.pick(&[0, 1, 2, 2, 3, 3, 4, 5])).collect();
    }
    let dtype = rng.pick(&[DType::F32, DType::F32, DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8]);
    let n = shape.iter().product::<usize>() * dtype.size();
    let bytes = (0..n).map(|_| rng.pick(&[0, 0, 1])).collect();
    Tensor::from_bytes(session, dtype, shape, Bytes::new(bytes)).unwrap()
}

fn any_value(rng: &mut Rng, session: &Session, ty: &str, shape: &mut Vec<usize>) -> Value {
    if ty.starts_with('[') {
        return Value::List(ty.split(',').map(|_| any_value(rng, session, "Tensor", shape)).collect());
    }
    if let Some(item) = ty.strip_suffix("[]") {
        return Value::List((0..rng.below(5)).map(|_| any_value(rng, session, item, shape)).collect());
    }
    let number = |rng: &mut Rng| Value::Int(rng.pick(&[0, 1, 1, 2, 2, 3, -1, -1, -2, 4, 7, 100, i64::MIN]));
    match ty {
        _ if rng.below(40) == 0 => Value::None,
        "boolean" => Value::Bool(rng.below(2) == 0),
        "string" => Value::Text(rng.pick(&MODES).to_owned()),
        "DType" => Value::DType(rng.pick(&[DType::F32, DType::I32, DType::Bool, DType::F64])),
        "Tensor" => Value::Tensor(any_tensor(rng, session, shape)),
        _ if ty.contains("Tensor") && rng.below(2) == 0 => Value::Tensor(any_tensor(rng, session, shape)),
        _ if ty.contains("[]") && rng.below(2) == 0 => Value::List((0..rng.below(5)).map(|_| number(rng)).collect()),
        _ if rng.below(4) == 0 => Value::Float(rng.pick(&[0.0, 0.5, -1.5, 1e30, f64::NAN, f64::INFINITY])),
        _ => number(rng),
    }
}

/// All of the tensor methods, on arguments of their types and of any rank, length and value.
#[test]
fn no_arguments_of_a_method_panic() {
    let mut rng = Rng(7);
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for entry in table() {
        let mut shape = vec![2, 3];
        for _ in 0..150 {
            let session = Session::new();
            let args: Vec<Value> = entry
                .params
                .iter()
                .filter(|p| !p.ty.is_empty())
                .map(|p| if p.optional && rng.below(2) == 0 { Value::None } else { any_value(&mut rng, &session, p.ty, &mut shape) })
                .collect();
            let name = entry.names[0];
            if let Some(place) = with_hook(|| panics(|| drop(call(&session, name, &args, &[])))) {
                found.entry(place).or_insert((0, format!("{name} {args:?}"))).0 += 1;
            }
        }
    }
    let list: Vec<String> = found
        .iter()
        .map(|(place, (n, first))| format!("{place} ({n} times, first {})", first.chars().take(300).collect::<String>()))
        .collect();
    assert!(list.is_empty(), "{} places:\n{}", list.len(), list.join("\n"));
}
