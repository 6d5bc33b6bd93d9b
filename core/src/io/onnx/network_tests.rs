//! Tests of trainable models: which tensors are weights, adapters, and files with new values. Training itself is tested
//! in `tests/it/network.rs`.

use super::build_tests::{attr, constant, f32s, file, int, ints, node, port};
use super::tests::{field, number};
use super::weights::matches;
use super::*;
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};
use crate::uop::eval::eval_tensor;
use std::sync::Arc;

/// Encodes an initializer of any element type.
fn typed(name: &str, elem: u64, dims: &[usize], data: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&d| number(1, d as u64)).collect();
    field(5, &[dims, number(2, elem), field(8, name.as_bytes()), field(9, data)].concat())
}

/// Encodes a `Constant` node.
fn given(name: &str, t: &HostTensor) -> Vec<u8> {
    let dims: Vec<u8> = t.shape.iter().flat_map(|&d| number(1, d as u64)).collect();
    let tensor = field(5, &[dims, number(2, 1), field(9, &t.data)].concat());
    node("Constant", "", name, &[attr("value", 4, tensor)])
}

fn read(session: &Session, list: &[Tensor]) -> Result<Vec<HostTensor>> {
    let state = session.state();
    let roots: Vec<_> = list.iter().map(|t| state.node(t.root())).collect();
    let mut bytes = |id| state.buffer(id).and_then(|b| b.host.as_ref().map(|h| h.to_vec()));
    let values = eval_tensor(&state.graph, &roots, &mut bytes, &|_| None)?;
    values.into_iter().map(|v| HostTensor::new(v.dtype, v.shape.to_vec(), v.data)).collect()
}

fn close(what: &str, got: &HostTensor, want: &HostTensor) {
    assert_eq!((got.dtype, &got.shape), (want.dtype, &want.shape), "{what}");
    for (g, w) in got.to_f64().iter().zip(want.to_f64()) {
        assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{what}: {g}, not {w}");
    }
}

fn ramp(shape: &[usize], by: f32) -> HostTensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(0..n).map(|i| ((i * 7 + 3) % 11) as f32 * by - 0.4).collect::<Vec<_>>())
}

/// A model with a convolution and batch normalisation, matrices multiplied by each kind of operator, an embedding that
/// is also used transposed, and plain constants.
fn mixed() -> Vec<Vec<u8>> {
    vec![
        port(11, "x", 1, &[1, 3, 4, 4]),
        port(12, "y", 1, &[1, 5]),
        port(12, "z", 1, &[1, 3]),
        constant("conv.w", &ramp(&[4, 3, 3, 3], 0.1)),
        constant("conv.b", &ramp(&[4], 0.1)),
        constant("bn.scale", &ramp(&[4], 0.3)),
        constant("bn.bias", &ramp(&[4], 0.1)),
        constant("bn.mean", &ramp(&[4], 0.1)),
        constant("bn.var", &f32s(&[4], &[1.0, 2.0, 0.5, 1.5])),
        constant("root", &f32s(&[], &[0.7])),
        constant("lin.w", &ramp(&[4, 6], 0.2)),
        constant("gemm.w", &ramp(&[5, 6], 0.15)),
        constant("gemm.c", &ramp(&[5], 0.1)),
        constant("one", &f32s(&[1], &[0.25])),
        node("Conv", "x conv.w conv.b", "c", &[ints("pads", &[1, 1, 1, 1])]),
        node("BatchNormalization", "c bn.scale bn.bias bn.mean bn.var", "n", &[]),
        node("GlobalAveragePool", "n", "p", &[]),
        node("Flatten", "p", "f", &[]),
        node("Mul", "f root", "s", &[]),
        node("MatMul", "s lin.w", "m", &[]),
        node("Gemm", "m gemm.w gemm.c", "g", &[int("transB", 1)]),
        node("Add", "g one", "y", &[]),
        given("table", &ramp(&[3, 5], 0.2)),
        node("Transpose", "table", "turned", &[ints("perm", &[1, 0])]),
        node("MatMul", "g turned", "z", &[]),
    ]
}

#[test]
fn weights_are_told_from_other_constants() {
    let model = Model::parse(file(&mixed())).unwrap();
    let names: Vec<String> = model.weights().into_iter().map(|w| w.name).collect();
    assert_eq!(
        names,
        ["conv.w", "conv.b", "bn.scale", "bn.bias", "lin.w", "gemm.w", "gemm.c", "one", "table"],
        "neither running means nor lone factors"
    );
    assert_eq!(model.weights()[0], Weight { name: "conv.w".into(), shape: vec![4, 3, 3, 3], dtype: DType::F32 });
}

#[test]
fn patterns_match_names() {
    for (pattern, name) in
        [("a", "a"), ("*", ""), ("*", "abc"), ("a*c", "abc"), ("*.w", "l.0.w"), ("l.*.w*", "l.1.w_0")]
    {
        assert!(matches(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [("a", "ab"), ("", "a"), ("a*c", "ab"), ("ab*b", "ab"), ("*.w", "l.b"), ("a*a", "a")] {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn what_cannot_learn_is_refused_by_name() {
    let quantised = file(&[
        port(11, "x", 1, &[1, 4]),
        port(12, "y", 1, &[1, 8]),
        typed("wq", 3, &[4, 8], &[7; 32]),
        constant("scale", &f32s(&[], &[0.1])),
        node("DequantizeLinear", "wq scale", "w", &[]),
        node("MatMul", "x w", "y", &[]),
    ]);
    let model = Model::parse(quantised).unwrap();
    let of = |model: &Model, train: &Train| Network::new(model, &Session::new(), train).err().expect("a refusal");
    let lora = |rank, patterns: &[&str]| {
        Train::Lora(Lora { rank, alpha: 1.0, patterns: patterns.iter().map(|p| (*p).to_owned()).collect() })
    };
    let named = |p: &str| Train::Named(vec![p.to_owned()]);
    for train in [Train::All, named("wq"), named("w*"), lora(2, &[]), lora(2, &["wq"])] {
        let e = of(&model, &train);
        assert!(matches!(e, Error::DType { dtype: DType::I8, .. }), "{e}");
        assert!(e.to_string().contains("`wq` holds int8"), "{e}");
    }
    let model = Model::parse(file(&mixed())).unwrap();
    assert!(of(&model, &named("nothing*")).to_string().contains("there are `conv.w`"));
    assert!(of(&model, &lora(0, &[])).to_string().contains("rank of 0"));
    assert!(of(&model, &lora(2, &["conv.b"])).to_string().contains("`conv.b` of shape [4]"));
    // A pattern selects only weights that can have an adapter.
    let network = Network::new(&model, &Session::new(), &lora(2, &["conv.*"])).unwrap();
    let names: Vec<String> = network.parameters().into_iter().map(|p| p.0).collect();
    assert_eq!(names, ["conv.w.lora_A", "conv.w.lora_B"]);
}

#[test]
fn adapters_can_be_merged() {
    let model = Model::parse(file(&mixed())).unwrap();
    let x = ramp(&[1, 3, 4, 4], 0.3);
    let plain = model.evaluate(&[("x", x.clone())]).unwrap();
    let s = Session::new();
    let network = Network::new(&model, &s, &Train::Lora(Lora { rank: 2, alpha: 3.0, patterns: vec![] })).unwrap();
    let input = Tensor::from_bytes(&s, x.dtype, &x.shape, Bytes::new(x.data.clone())).unwrap();
    let forward = || {
        let out = network.forward(&[("x", Feed::Tensor(input.clone()))]).unwrap();
        read(&s, &out.into_iter().map(|o| o.1).collect::<Vec<_>>()).unwrap()
    };
    let fresh: Vec<(String, Tensor)> = network.parameters();
    assert_eq!(fresh.len(), 8, "a convolution, two matrices, and one that is turned");
    for (i, (_, p)) in fresh.iter().enumerate() {
        let t = ramp(&p.shape(), 0.1 + 0.02 * i as f32);
        p.set(&Tensor::from_bytes(&s, t.dtype, &t.shape, Bytes::new(t.data)).unwrap()).unwrap();
    }
    let adapted = forward();
    assert!(adapted.iter().zip(&plain).all(|(a, p)| a.data != p.1.data), "adapters do something");
    let (names, tensors): (Vec<String>, Vec<Tensor>) = network.values().unwrap().into_iter().unzip();
    let values: Vec<(String, HostTensor)> = names.into_iter().zip(read(&s, &tensors).unwrap()).collect();
    let merged = Model::parse(model.file_with(&values).unwrap()).unwrap();
    for (got, (name, want)) in adapted.iter().zip(merged.evaluate(&[("x", x)]).unwrap()) {
        close(&name, got, &want);
    }
    // The network's model still has the weights of the file.
    assert_eq!(network.model().evaluate(&[("x", ramp(&[1, 3, 4, 4], 0.3))]).unwrap(), plain);
}

/// An external file of eight floats.
struct Eight;

impl ExternalData for Eight {
    fn size(&self, _location: &str) -> Result<u64> {
        Ok(32)
    }

    fn read(&self, _location: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        Ok(f32s(&[8], &[1., 2., 3., 4., 5., 6., 7., 8.]).data[offset as usize..(offset + len) as usize].to_vec())
    }
}

#[test]
fn a_file_with_other_values_keeps_the_rest() {
    let entry = |k: &str, v: &str| field(13, &[field(1, k.as_bytes()), field(2, v.as_bytes())].concat());
    let outside =
        [number(1, 2), number(1, 4), number(2, 1), field(8, b"far"), entry("location", "w.bin"), number(14, 1)];
    let half = typed("half", 10, &[4], &[0; 8]);
    let body = [
        port(11, "x", 1, &[2, 2]),
        port(12, "y", 1, &[2, 4]),
        field(5, &outside.concat()),
        half,
        given("c", &f32s(&[4], &[1., 1., 1., 1.])),
        node("MatMul", "x far", "m", &[]),
        node("Cast", "half", "h", &[int("to", 1)]),
        node("Add", "m c", "a", &[]),
        node("Add", "a h", "y", &[]),
        // A field that the parser does not know.
        field(99, b"kept"),
    ];
    let bytes = [file(&body), field(77, b"kept too")].concat();
    let model = Model::parse_with(bytes.clone(), Arc::new(Eight)).unwrap();
    let x = f32s(&[2, 2], &[1., 0., 0., 1.]);
    let same = model.file_with(&[]).unwrap();
    let alone = Model::parse(same.clone()).expect("no other file is needed");
    assert_eq!(alone.evaluate(&[("x", x.clone())]).unwrap(), model.evaluate(&[("x", x.clone())]).unwrap());
    assert_eq!(alone.file_with(&[]).unwrap(), same, "nothing changes: byte for byte");
    assert!(same.windows(4).any(|w| w == b"kept") && same.ends_with(b"kept too"));
    let new = [("c".to_owned(), f32s(&[4], &[10.; 4])), ("half".to_owned(), f32s(&[4], &[0.5, 1.0, 1.5, 0.1]))];
    let changed = Model::parse(model.file_with(&new).unwrap()).unwrap();
    let y = changed.evaluate(&[("x", x)]).unwrap()[0].1.to_f64();
    // 0.1 rounded to f16.
    let tenth = 0.0999755859375;
    assert_eq!(y, [11.5, 13.0, 14.5, 14.0 + tenth, 15.5, 17.0, 18.5, 18.0 + tenth].map(|v| (v as f32) as f64));
    for (name, value, says) in
        [("none", f32s(&[1], &[0.]), "no tensor is called"), ("c", f32s(&[2], &[0., 0.]), "shape [4]")]
    {
        let e = model.file_with(&[(name.to_owned(), value)]).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    }
}
