//! Weights that are computed from the weights of a file (projections side by side, scales folded in) are on the device once,
//! like those that are used as they are, and come back when another plan wants them in another order.

use gradloom::model::OnnxModel;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::Model;

const WIDTH: usize = 192;

fn varint(mut v: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while v > 127 {
        out.push(v as u8 | 128);
        v >>= 7;
    }
    out.push(v as u8);
    out
}

pub(crate) fn number(n: u64, v: u64) -> Vec<u8> {
    [varint(n << 3), varint(v)].concat()
}

pub(crate) fn field(n: u64, body: &[u8]) -> Vec<u8> {
    [varint(n << 3 | 2), varint(body.len() as u64), body.to_vec()].concat()
}

pub(crate) fn node(op: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|i| field(1, i.as_bytes())).collect();
    field(1, &[inputs, field(2, output.as_bytes()), field(4, op.as_bytes())].concat())
}

fn port(which: u64, name: &str) -> Vec<u8> {
    let dims = [field(1, &field(2, b"rows")), field(1, &number(1, WIDTH as u64))].concat();
    let ty = field(2, &field(1, &[number(1, 1), field(2, &dims)].concat()));
    field(which, &[field(1, name.as_bytes()), ty].concat())
}

fn weight(name: &str, shape: &[usize], seed: usize) -> Vec<u8> {
    let n: usize = shape.iter().product();
    let data: Vec<u8> =
        (0..n).flat_map(|i| ((((i * 7919 + seed * 31) % 101) as f32 - 50.0) / 40.0).to_le_bytes()).collect();
    let dims: Vec<u8> = shape.iter().flat_map(|&d| number(1, d as u64)).collect();
    field(5, &[dims, number(2, 1), field(8, name.as_bytes()), field(9, &data)].concat())
}

/// Two projections that are joined, and one that takes in a scale a channel.
fn file() -> Vec<u8> {
    let mut graph = vec![field(2, b"g"), port(11, "x"), port(12, "y")];
    graph.extend(["q", "k", "o"].iter().enumerate().map(|(i, n)| weight(n, &[WIDTH, WIDTH], i)));
    graph.push(weight("s", &[WIDTH], 7));
    graph.extend([
        node("MatMul", &["x", "q"], "xq"),
        node("MatMul", &["x", "k"], "xk"),
        node("Softmax", &["xq"], "sq"),
        node("Softmax", &["xk"], "sk"),
        node("Add", &["sq", "sk"], "sum"),
        node("MatMul", &["sum", "o"], "so"),
        node("Mul", &["so", "s"], "y"),
    ]);
    [number(1, 8), field(8, &number(2, 17)), field(7, &graph.concat())].concat()
}

/// The outputs for inputs of several sizes, the first of them twice, and the bytes on the device after each.
fn runs(device: &str) -> Vec<(Vec<f32>, usize)> {
    let device = gradloom::devices::open(device, 1).expect("the device");
    let mut model = OnnxModel::new(Model::parse(file()).expect("a model"), device);
    let mut out = Vec::new();
    for rows in [64, 1, 7, 64] {
        let x: Vec<f32> = (0..rows * WIDTH).map(|i| ((i * 37) % 53) as f32 / 53.0 - 0.5).collect();
        let x = HostTensor::from_f32(vec![rows, WIDTH], &x).expect("an input");
        let y = model.run(&[("x", x)]).expect("a run").remove(0).1;
        let y = y.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
        model.engine().trim();
        out.push((y, model.counters().bytes));
    }
    out
}

#[test]
fn weights_made_of_weights_are_on_the_device_once() {
    let want = runs("eval");
    let got = runs("cpu");
    let weights = 3 * WIDTH * WIDTH * 4;
    for ((y, _), (w, _)) in got.iter().zip(&want) {
        assert!(y.iter().zip(w).all(|(a, b)| (a - b).abs() < 1e-4), "values");
        assert!(y.iter().any(|v| v.abs() > 0.1), "only zeros");
    }
    let (first, again) = (got[0].1, got[3].1);
    assert!((weights..weights * 3 / 2).contains(&first), "{first} bytes for {weights} of weights");
    assert!(again < 7 * weights / 2, "{again} bytes for {weights} of weights in three orders");
}
