//! Writes an ONNX file: only the messages that a translated graph needs.

pub(super) use crate::io::protobuf::Writer as Proto;

/// The value of an attribute.
pub(super) enum Attr<'a> {
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
    Text(&'a str),
}

/// One node.
pub(super) fn node(op: &str, name: &str, inputs: &[String], outputs: &[String], attrs: &[(&str, Attr<'_>)]) -> Proto {
    let mut n = Proto::default();
    inputs.iter().for_each(|i| n.text(1, i));
    outputs.iter().for_each(|o| n.text(2, o));
    n.text(3, name);
    n.text(4, op);
    for (name, value) in attrs {
        let mut a = Proto::default();
        a.text(1, name);
        let kind = match value {
            Attr::Float(v) => {
                a.varint(2 << 3 | 5);
                a.0.extend_from_slice(&v.to_le_bytes());
                1
            }
            Attr::Int(v) => {
                a.int(3, *v);
                2
            }
            Attr::Text(v) => {
                a.text(4, v);
                3
            }
            Attr::Ints(v) => {
                v.iter().for_each(|v| a.int(8, *v));
                7
            }
        };
        a.int(20, kind);
        n.bytes(5, &a.0);
    }
    n
}

/// A constant.
pub(super) fn tensor(name: &str, elem: i32, shape: &[usize], data: &[u8]) -> Proto {
    let mut t = Proto::default();
    shape.iter().for_each(|&d| t.int(1, d as i64));
    t.int(2, i64::from(elem));
    t.text(8, name);
    t.bytes(9, data);
    t
}

/// An input or output; negative dimensions are written as unknown.
pub(super) fn port(name: &str, elem: i32, dims: &[i64]) -> Proto {
    let mut shape = Proto::default();
    for &d in dims {
        let mut dim = Proto::default();
        if d >= 0 {
            dim.int(1, d);
        }
        shape.bytes(1, &dim.0);
    }
    let (mut dense, mut ty, mut info) = (Proto::default(), Proto::default(), Proto::default());
    dense.int(1, i64::from(elem));
    dense.bytes(2, &shape.0);
    ty.bytes(1, &dense.0);
    info.text(1, name);
    info.bytes(2, &ty.0);
    info
}

/// The bytes of a model file with this graph.
pub(super) fn model(graph: &Proto, opset: i64) -> Vec<u8> {
    let mut id = Proto::default();
    id.text(1, "");
    id.int(2, opset);
    let mut m = Proto(Vec::with_capacity(graph.0.len() + 64));
    m.int(1, 10);
    m.text(2, "gradloom tflite");
    m.bytes(8, &id.0);
    m.bytes(7, &graph.0);
    m.0
}
