//! Tests of the ONNX reader against files of the onnx package and against hostile ones.

use super::proto::*;
use super::tensor::{self, *};
use crate::error::{Error, Result};
use crate::io::testing::mutate;

const PARTS: &[u8] = include_bytes!("../../../../tests/fixtures/io/parts.onnx");

/// Encodes one length-delimited field.
pub(super) fn field(number: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(u64::from(number << 3 | 2), &mut out);
    varint(body.len() as u64, &mut out);
    out.extend(body);
    out
}

pub(super) fn number(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(u64::from(number << 3), &mut out);
    varint(value, &mut out);
    out
}

pub(super) fn varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Encodes a tensor message: dims, element type, raw data.
fn raw(dims: &[i64], elem: u64, data: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&d| number(1, d as u64)).collect();
    [dims, number(2, elem), field(9, data)].concat()
}

#[test]
fn a_model_of_the_onnx_package_is_read() {
    let m = parse_model(PARTS).unwrap();
    assert_eq!((m.ir_version, m.producer.as_str()), (9, "gradloom fixtures"));
    assert_eq!(m.opsets[0], OpsetId { domain: String::new(), version: 17 });
    assert_eq!(m.metadata, [("key".to_owned(), "value".to_owned())]);
    assert_eq!(m.functions[0].nodes[0].op_type, "Add");
    let g = &m.graph;
    let dims = vec![Dim::Param("batch".to_owned()), Dim::Unknown, Dim::Value(3)];
    assert_eq!(g.inputs[0].ty, TypeProto::Tensor { elem: 1, dims: Some(dims) });
    assert_eq!(g.outputs[0].ty, TypeProto::Tensor { elem: 1, dims: None });
    let AttrValue::Graph(then) = &g.nodes[0].attributes[0].value else { panic!() };
    assert_eq!(then.nodes[0].op_type, "Constant");
    let n = &g.nodes[2];
    assert_eq!(n.inputs, ["xx", "", "picked"]);
    let a = |name: &str| &n.attributes.iter().find(|a| a.name == name).unwrap().value;
    assert!(matches!(a("f"), AttrValue::Float(0.5)));
    assert!(matches!(a("i"), AttrValue::Int(-3)));
    assert!(matches!(a("s"), AttrValue::Str(s) if s == b"text"));
    assert!(matches!(a("floats"), AttrValue::Floats(v) if v == &[1.0, 2.0]));
    assert!(matches!(a("ints"), AttrValue::Ints(v) if v == &[1, -1]));
    assert!(matches!(a("strings"), AttrValue::Strings(v) if v.len() == 2));
    assert!(matches!(a("t"), AttrValue::Tensor(t) if t.shape == [3]));
    assert!(matches!(a("ts"), AttrValue::Tensors(t) if t.len() == 1));
}

#[test]
fn every_way_to_store_elements_is_read() {
    let m = parse_model(PARTS).unwrap();
    let get = |name: &str| m.graph.initializers.iter().find(|t| t.name == name).unwrap();
    let values = |name: &str| get(name).to_host(PARTS, &NoExternalData).unwrap().to_f64();
    assert_eq!(values("raw_f32"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(matches!(get("raw_f32").data, TensorData::File(_)));
    assert!(matches!(get("float_data").data, TensorData::File(_)), "packed floats are not copied");
    assert_eq!(values("float_data"), [0.5, -1.0, 2.0]);
    assert_eq!(values("int64_data"), [-1.0, (1u64 << 40) as f64]);
    assert_eq!(values("int32_data"), [-5.0, 7.0]);
    assert_eq!(values("int8_data"), [-5.0, 7.0]);
    assert_eq!(values("u8_data"), [255.0, 7.0]);
    assert_eq!(values("bool_data"), [1.0, 0.0]);
    assert_eq!(values("f16_data"), [1.0, -2.0]);
    assert_eq!(values("double_data"), [0.1]);
    assert_eq!(values("u64_data"), [u64::MAX as f64]);
    assert_eq!(values("u32_data"), [f64::from(u32::MAX)]);
    assert_eq!(values("int4_data"), [-8.0, 7.0, -1.0]);
    assert_eq!((get("scalar").shape.len(), values("scalar")), (0, vec![3.0]));
    assert!(values("none").is_empty());
    assert!(matches!(&get("text").data, TensorData::Strings(s) if s[1] == b"bc"));
    assert_eq!(get("text").to_host(PARTS, &NoExternalData).unwrap_err().code(), "E_UNSUPPORTED");
}

/// A single external file of 64 bytes.
struct OneFile;

impl ExternalData for OneFile {
    fn size(&self, location: &str) -> Result<u64> {
        assert_eq!(location, "weights/a.bin");
        Ok(64)
    }

    fn read(&self, _location: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        Ok((offset..offset + len).map(|i| i as u8).collect())
    }
}

fn external(pairs: &[(&str, &str)]) -> Result<TensorProto> {
    let pairs: Vec<u8> =
        pairs.iter().flat_map(|(k, v)| field(13, &[field(1, k.as_bytes()), field(2, v.as_bytes())].concat())).collect();
    tensor::parse(&[number(1, 4), number(2, 1), number(14, 1), pairs].concat())
}

#[test]
fn external_data_is_contained() {
    let m = parse_model(PARTS).unwrap();
    let outside = m.graph.initializers.last().unwrap();
    assert_eq!(outside.to_host(PARTS, &OneFile).unwrap().data, (16..32).collect::<Vec<u8>>());
    assert_eq!(outside.to_host(PARTS, &NoExternalData).unwrap_err().code(), "E_UNSUPPORTED");
    for location in [
        "",
        "/etc/passwd",
        "../a",
        "a/../../b",
        "..",
        "a\\b",
        "C:a",
        "a//b",
        "a/",
        "a\0b",
        "a/.. /b",
        "b.",
        "%2e%2e/a",
        "a?b",
        "a\nb",
    ] {
        let e = external(&[("location", location)]).unwrap_err();
        assert_eq!(e.code(), "E_FORMAT", "{location:?}");
    }
    for bad in [
        &[("location", "a"), ("length", "8")][..],
        &[("location", "a"), ("offset", "-1")],
        &[("location", "a"), ("offset", "18446744073709551616")],
        &[("location", "a"), ("offset", "18446744073709551615")],
        &[("location", "a"), ("offset", "+1")],
        &[("offset", "0")],
    ] {
        assert!(external(bad).is_err(), "{bad:?}");
    }
    // beyond the end of the file
    let far = external(&[("location", "weights/a.bin"), ("offset", "49")]).unwrap();
    assert!(far.bytes(&[], &OneFile).is_err());
    let fits = external(&[("location", "weights/a.bin"), ("offset", "48")]).unwrap();
    assert!(fits.bytes(&[], &OneFile).is_ok());
}

#[test]
fn sizes_are_checked_against_shapes() {
    assert!(tensor::parse(&raw(&[2], 1, &[0; 8])).is_ok());
    for (dims, elem, len) in [
        (&[2i64][..], 1, 7),
        (&[2], 1, 9),
        (&[-2], 1, 8),
        (&[i64::MIN], 1, 0),
        (&[1 << 62, 4], 1, 0),
        (&[0, 1 << 62, 1 << 62], 1, 0),
        (&[1 << 40], 1, 8),
        (&[1; 40], 1, 4),
        (&[3], 22, 1),
    ] {
        let e = tensor::parse(&raw(dims, elem, &vec![0; len])).unwrap_err();
        assert!(matches!(e, Error::Format { format: "onnx", at: Some(_), .. }), "{dims:?}: {e}");
    }
    assert!(tensor::parse(&raw(&[1], 9, &[2])).is_err(), "a bool of 2");
    let typed = |dims: i64, elem: u64, values: &[u64]| {
        let v: Vec<u8> = values.iter().flat_map(|&v| number(5, v)).collect();
        tensor::parse(&[number(1, dims as u64), number(2, elem), v].concat())
    };
    assert!(typed(2, 6, &[1, u64::MAX]).is_ok());
    assert!(typed(1, 2, &[256]).is_err());
    assert!(typed(1, 3, &[128]).is_err());
    assert!(typed(1, 6, &[1 << 40]).is_err());
    assert!(typed(1, 6, &[1, 2]).is_err());
    assert!(typed(3, 6, &[1, 2]).is_err());
}

#[test]
fn every_truncation_of_a_model_is_an_error() {
    // The last top-level fields are optional, so once the graph was read, a file may end at a boundary between
    // top-level fields.
    let mut boundaries = vec![];
    let mut m = crate::io::protobuf::Message::new(PARTS);
    while let Some(_f) = m.next_field().unwrap() {
        boundaries.push(m.span().start);
    }
    for n in 0..PARTS.len() {
        match parse_model(&PARTS[..n]) {
            Ok(_) => assert!(boundaries.contains(&n), "at {n}"),
            Err(e) => assert_eq!(e.code(), "E_FORMAT", "at {n}"),
        }
    }
}

#[test]
fn hostile_structures_are_errors() {
    let graph = field(7, &field(2, b"g"));
    let opset = field(8, &number(2, 17));
    assert!(parse_model(&[graph.clone(), opset.clone()].concat()).is_ok());
    assert!(parse_model(&[graph.clone(), graph.clone(), opset.clone()].concat()).is_err());
    assert!(parse_model(&graph).is_err());
    assert!(parse_model(&opset).is_err());
    // Deeply nested attributes: graph -> node -> attribute -> graph ...
    let mut nested = Vec::new();
    for _ in 0..200 {
        nested = field(1, &field(5, &[field(1, b"body"), field(6, &nested), number(20, 5)].concat()));
    }
    let e = parse_model(&[field(7, &nested), opset.clone()].concat()).unwrap_err();
    assert!(e.to_string().contains("too deeply"), "{e}");
    // A node that consists of 2-byte fields must not take a hundred times the memory of the file.
    let many: Vec<u8> = std::iter::repeat_n(field(1, b""), 1 << 20).flatten().collect();
    let e = parse_model(&[field(7, &many), opset].concat()).unwrap_err();
    assert!(e.to_string().contains("too many parts"), "{e}");
}

#[test]
fn mutations_never_panic() {
    mutate(PARTS, 8_000, |m| {
        if let Ok(model) = parse_model(m) {
            model.graph.initializers.iter().for_each(|t| drop(t.to_host(m, &NoExternalData)));
        }
    });
}
