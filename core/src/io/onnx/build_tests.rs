//! Tests of the importer: small models, encoded here, that run on the host and as lazy tensors through the reference
//! interpreter; and models that must be refused.

use std::sync::Arc;

use super::tests::{field, number};
use super::*;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};
use crate::uop::UOp;
use crate::uop::eval::eval_tensor;

/// Encodes an attribute: name, type number, value field.
pub(super) fn attr(name: &str, kind: u64, value: Vec<u8>) -> Vec<u8> {
    field(5, &[field(1, name.as_bytes()), number(20, kind), value].concat())
}

pub(super) fn int(name: &str, v: i64) -> Vec<u8> {
    attr(name, 2, number(3, v as u64))
}

pub(super) fn ints(name: &str, v: &[i64]) -> Vec<u8> {
    attr(name, 7, v.iter().flat_map(|&v| number(8, v as u64)).collect())
}

pub(super) fn subgraph(name: &str, g: &[u8]) -> Vec<u8> {
    attr(name, 5, field(6, g))
}

/// Encodes a node: `node("Add", "a b", "c", &[])`; `_` is an omitted input.
pub(super) fn node(op: &str, inputs: &str, outputs: &str, attrs: &[Vec<u8>]) -> Vec<u8> {
    let list = |n: u32, names: &str| -> Vec<u8> {
        names.split_whitespace().flat_map(|s| field(n, s.trim_matches('_').as_bytes())).collect()
    };
    let name = format!("n_{}", outputs.split_whitespace().next().unwrap_or(""));
    let body = [list(1, inputs), list(2, outputs), field(3, name.as_bytes()), field(4, op.as_bytes()), attrs.concat()];
    field(1, &body.concat())
}

/// Encodes a typed value: `port(11, "x", 1, &[2, -1])` is an input, 12 an output; negative dimensions become symbols.
pub(super) fn port(which: u32, name: &str, elem: u64, dims: &[i64]) -> Vec<u8> {
    let dim = |&d: &i64| field(1, &if d < 0 { field(2, format!("d{}", -d).as_bytes()) } else { number(1, d as u64) });
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let ty = field(2, &field(1, &[number(1, elem), field(2, &shape)].concat()));
    field(which, &[field(1, name.as_bytes()), ty].concat())
}

pub(super) fn constant(name: &str, t: &HostTensor) -> Vec<u8> {
    let elem = if t.dtype == DType::I64 { 7 } else { 1 };
    let dims: Vec<u8> = t.shape.iter().flat_map(|&d| number(1, d as u64)).collect();
    field(5, &[dims, number(2, elem), field(8, name.as_bytes()), field(9, &t.data)].concat())
}

pub(super) fn f32s(shape: &[usize], v: &[f32]) -> HostTensor {
    HostTensor::from_f32(shape.to_vec(), v).unwrap()
}

pub(super) fn i64s(shape: &[usize], v: &[i64]) -> HostTensor {
    HostTensor::from_i64(shape.to_vec(), v).unwrap()
}

pub(super) fn file(parts: &[Vec<u8>]) -> Vec<u8> {
    [number(1, 8), field(8, &number(2, 17)), field(7, &parts.concat())].concat()
}

pub(super) fn parse(parts: &[Vec<u8>]) -> Result<Model> {
    Model::parse(file(parts))
}

/// Builds the model as lazy tensors and evaluates these with the reference interpreter. Inputs that must be known are
/// fed as known values.
fn lazy(model: Model, inputs: &[(&str, HostTensor)]) -> Result<Vec<HostTensor>> {
    let session = Session::new();
    let model = Arc::new(model);
    let mut feeds = Vec::new();
    for (name, t) in inputs {
        let known = model.inputs().iter().any(|p| p.name == *name && p.is_value);
        let bytes = crate::engine::Bytes::new(t.data.clone());
        let tensor = Tensor::from_bytes(&session, t.dtype, &t.shape, bytes)?;
        feeds.push((*name, if known { Feed::Known(t.clone()) } else { Feed::Tensor(tensor) }));
    }
    let out = Bound::new(model, &session).build(&feeds)?;
    let state = session.state();
    let roots: Vec<_> = out.iter().map(|(_, t)| state.node(t.root())).collect();
    let mut bytes = |id| state.buffer(id).and_then(|b| b.host.as_ref().map(|h| h.to_vec()));
    let values = eval_tensor(&state.graph, &roots, &mut bytes, &|_| None)?;
    values.into_iter().map(|v| HostTensor::new(v.dtype, v.shape.to_vec(), v.data)).collect()
}

/// Runs the model both ways and expects exactly the same elements.
fn run(parts: &[Vec<u8>], inputs: &[(&str, HostTensor)], expected: &[HostTensor]) {
    let model = parse(parts).unwrap();
    let host: Vec<HostTensor> = model.evaluate(inputs).unwrap().into_iter().map(|o| o.1).collect();
    assert_eq!(host, expected, "host");
    assert_eq!(lazy(model, inputs).unwrap(), expected, "lazy");
}

/// Flattens all but the first axis through Shape, Gather and Concat, and multiplies.
fn flatten_model() -> Vec<Vec<u8>> {
    vec![
        port(11, "x", 1, &[-1, 2, -2]),
        port(12, "y", 1, &[-1, 3]),
        constant("zero", &i64s(&[], &[0])),
        constant("rest", &i64s(&[1], &[-1])),
        constant("w", &f32s(&[4, 3], &[1., 0., 0., 0., 1., 0., 0., 0., 1., 1., 1., 1.])),
        // Deliberately out of order.
        node("MatMul", "flat w", "y", &[]),
        node("Reshape", "x shape", "flat", &[]),
        node("Concat", "batch1 rest", "shape", &[int("axis", 0)]),
        node("Unsqueeze", "batch axes", "batch1", &[]),
        node("Gather", "dims zero", "batch", &[int("axis", 0)]),
        node("Shape", "x", "dims", &[]),
        constant("axes", &i64s(&[1], &[0])),
        // An unknown operator whose result is not used.
        node("Nonsense", "x", "dead", &[]),
    ]
}

#[test]
fn shapes_fold_and_nodes_are_sorted() {
    let x = f32s(&[2, 2, 2], &[1., 2., 3., 4., 5., 6., 7., 8.]);
    let y = f32s(&[2, 3], &[5., 6., 7., 13., 14., 15.]);
    run(&flatten_model(), &[("x", x)], &[y]);
    let model = parse(&flatten_model()).unwrap();
    assert!(!model.inputs()[0].is_value, "shapes do not carry values");
    assert_eq!(
        model.inputs()[0].dims,
        Some(vec![proto::Dim::Param("d1".into()), proto::Dim::Value(2), proto::Dim::Param("d2".into())])
    );
    assert_eq!(model.nodes().len(), 6);
}

fn branch(op: &str) -> Vec<u8> {
    [node(op, "x x", "r", &[]), port(12, "r", 1, &[2])].concat()
}

#[test]
fn a_known_condition_takes_one_branch_and_a_lazy_one_selects() {
    let known = [
        port(11, "x", 1, &[2]),
        port(11, "sr", 7, &[]),
        port(12, "y", 1, &[2]),
        constant("rate", &i64s(&[], &[16000])),
        node("Equal", "sr rate", "cond", &[]),
        node("If", "cond", "y", &[subgraph("then_branch", &branch("Add")), subgraph("else_branch", &branch("Mul"))]),
    ];
    let model = parse(&known).unwrap();
    let flags: Vec<bool> = model.inputs().iter().map(|p| p.is_value).collect();
    assert_eq!(flags, [false, true]);
    let x = f32s(&[2], &[3., -1.]);
    run(&known, &[("x", x.clone()), ("sr", i64s(&[], &[16000]))], &[f32s(&[2], &[6., -2.])]);
    run(&known, &[("x", x.clone()), ("sr", i64s(&[], &[8000]))], &[f32s(&[2], &[9., 1.])]);
    let lazily = [
        port(11, "x", 1, &[2]),
        port(12, "y", 1, &[2]),
        constant("limit", &f32s(&[], &[0.])),
        node("ReduceSum", "x", "sum", &[int("keepdims", 0)]),
        node("Less", "sum limit", "cond", &[]),
        node("If", "cond", "y", &[subgraph("then_branch", &branch("Add")), subgraph("else_branch", &branch("Mul"))]),
    ];
    assert!(!parse(&lazily).unwrap().inputs()[0].is_value);
    run(&lazily, &[("x", x)], &[f32s(&[2], &[9., 1.])]);
    run(&lazily, &[("x", f32s(&[2], &[-3., 1.]))], &[f32s(&[2], &[-6., 2.])]);
    let uneven = [
        &lazily[..5],
        &[node(
            "If",
            "cond",
            "y",
            &[
                subgraph("then_branch", &branch("Add")),
                subgraph("else_branch", &[node("ReduceSum", "x", "r", &[]), port(12, "r", 1, &[1])].concat()),
            ],
        )],
    ]
    .concat();
    let e = lazy(parse(&uneven).unwrap(), &[("x", f32s(&[2], &[1., 2.]))]).unwrap_err();
    assert!(matches!(&e, Error::Model { node: Some(n), .. } if n.contains("n_y") && n.contains("If")), "{e}");
}

#[test]
fn loops_unroll() {
    let body = [
        port(11, "i", 7, &[]),
        port(11, "go", 9, &[]),
        port(11, "acc", 1, &[2]),
        node("Add", "acc x", "next", &[]),
        node("Identity", "go", "again", &[]),
        port(12, "again", 9, &[]),
        port(12, "next", 1, &[2]),
        port(12, "next", 1, &[2]),
    ]
    .concat();
    let parts = [
        port(11, "x", 1, &[2]),
        port(12, "last", 1, &[2]),
        port(12, "all", 1, &[3, 2]),
        constant("trips", &i64s(&[], &[3])),
        node("Loop", "trips _ x", "last all", &[subgraph("body", &body)]),
    ];
    let expected = [f32s(&[2], &[4., 8.]), f32s(&[3, 2], &[2., 4., 3., 6., 4., 8.])];
    run(&parts, &[("x", f32s(&[2], &[1., 2.]))], &expected);
    let mut endless = parts.clone();
    endless[3] = constant("trips", &i64s(&[], &[i64::MAX]));
    let e = parse(&endless).unwrap().evaluate(&[("x", f32s(&[2], &[1., 2.]))]).unwrap_err();
    assert!(matches!(e, Error::Budget { .. }), "{e}");
}

/// An endless loop that grows a sequence copies more elements in every iteration; the budget must count these copies.
#[test]
fn a_loop_that_grows_a_sequence_ends() {
    let name = |which: u32, name: &str| field(which, &field(1, name.as_bytes()));
    let body = [
        name(11, "i"),
        name(11, "go"),
        name(11, "list"),
        node("SequenceInsert", "list x", "longer", &[]),
        node("Identity", "go", "again", &[]),
        name(12, "again"),
        name(12, "longer"),
    ]
    .concat();
    let parts = |trips: i64| {
        [
            port(11, "x", 1, &[2]),
            port(12, "n", 7, &[]),
            constant("trips", &i64s(&[], &[trips])),
            node("SequenceEmpty", "", "none", &[]),
            node("Loop", "trips _ none", "all", &[subgraph("body", &body)]),
            node("SequenceLength", "all", "n", &[]),
        ]
    };
    let x = f32s(&[2], &[1., 2.]);
    run(&parts(1000), &[("x", x.clone())], &[i64s(&[], &[1000])]);
    let e = parse(&parts(i64::MAX)).unwrap().evaluate(&[("x", x)]).unwrap_err();
    assert!(matches!(e, Error::Budget { .. }), "{e}");
}

/// A grid of 30 axes has 2^30 combinations of taps, in a file of some hundred bytes.
#[test]
fn a_grid_of_many_axes_is_refused() {
    let x = f32s(&[1; 32], &[1.]);
    let mut shape = vec![1; 32];
    shape[31] = 30;
    let grid = f32s(&shape, &[0.; 30]);
    let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
    let ports = [port(11, "x", 1, &[1; 32]), port(11, "grid", 1, &dims), port(12, "y", 1, &[1; 32])];
    let model = parse(&[ports.concat(), node("GridSample", "x grid", "y", &[])]).unwrap();
    let e = model.evaluate(&[("x", x), ("grid", grid)]).unwrap_err();
    assert!(matches!(e, Error::Budget { .. }), "{e}");
}

#[test]
fn functions_of_the_model_are_inlined() {
    let body = [
        field(1, b"Scale"),
        field(4, b"v"),
        field(5, b"r"),
        field(7, &node("LeakyRelu", "v", "r", &[attr("alpha", 1, field(21, b"slope"))])[2..]),
        field(10, b"mine"),
    ]
    .concat();
    let call = [
        &node("Scale", "x", "y", &[attr("slope", 1, [&[0x15][..], &0.5f32.to_le_bytes()].concat())])[2..],
        &field(7, b"mine"),
    ]
    .concat();
    let graph = [port(11, "x", 1, &[2]), port(12, "y", 1, &[2]), field(1, &call)].concat();
    let model = Model::parse([field(8, &number(2, 17)), field(7, &graph), field(25, &body)].concat()).unwrap();
    let x = f32s(&[2], &[2., -2.]);
    assert_eq!(model.evaluate(&[("x", x)]).unwrap()[0].1, f32s(&[2], &[2., -1.]));
    // A function that calls itself.
    let own = [&node("Scale", "v", "r", &[])[2..], &field(7, b"mine")].concat();
    let body = [field(1, b"Scale"), field(4, b"v"), field(5, b"r"), field(7, &own), field(10, b"mine")].concat();
    let e = Model::parse([field(8, &number(2, 17)), field(7, &graph), field(25, &body)].concat()).err().unwrap();
    assert!(e.to_string().contains("calls itself"), "{e}");
}

#[test]
fn inputs_are_checked() {
    let model = || parse(&flatten_model()).unwrap();
    let x = |shape: &[usize]| f32s(shape, &vec![1.; shape.iter().product()]);
    let fails = |inputs: &[(&str, HostTensor)], what: &str| {
        let e = model().evaluate(inputs).unwrap_err();
        assert!(matches!(e, Error::Input { .. }) && e.to_string().contains(what), "{e}");
        assert_eq!(lazy(model(), inputs).unwrap_err(), e);
    };
    fails(&[], "missing");
    fails(&[("x", x(&[1, 2, 2])), ("z", x(&[1]))], "no such input");
    fails(&[("x", x(&[1, 2, 2])), ("x", x(&[1, 2, 2]))], "twice");
    fails(&[("x", i64s(&[1, 2, 2], &[1; 4]))], "dtype");
    fails(&[("x", x(&[1, 3, 2]))], "shape");
    fails(&[("x", x(&[1, 2]))], "shape");
    // A shape that the declaration allows but the graph does not.
    let e = lazy(model(), &[("x", x(&[1, 2, 3]))]).unwrap_err();
    assert!(matches!(&e, Error::Model { node: Some(n), .. } if n.contains("MatMul")), "{e}");
    // One symbol with two sizes.
    let parts =
        [port(11, "a", 1, &[-1]), port(11, "b", 1, &[-1]), port(12, "c", 1, &[-1]), node("Add", "a b", "c", &[])];
    let e = parse(&parts).unwrap().evaluate(&[("a", x(&[1])), ("b", x(&[4]))]).unwrap_err();
    assert!(e.to_string().contains("`d1` is 4 here and 1 in `a`"), "{e}");
}

#[test]
fn graphs_that_can_not_be_built_are_refused() {
    let io = [port(11, "x", 1, &[2]), port(12, "y", 1, &[2])].concat();
    let fails = |nodes: &[Vec<u8>], what: &str| {
        let e = parse(&[&[io.clone()][..], nodes].concat()).err().unwrap();
        assert!(e.to_string().contains(what), "{e}");
        e
    };
    let e = fails(&[node("Add", "x b", "a", &[]), node("Neg", "a", "b", &[]), node("Neg", "b", "y", &[])], "cycle");
    assert!(matches!(&e, Error::Model { node: Some(n), .. } if n.contains("n_a") || n.contains("n_b")), "{e}");
    fails(&[node("Add", "x y", "y", &[])], "cycle");
    fails(&[node("Add", "x nowhere", "y", &[])], "`nowhere` is not defined");
    fails(&[node("Neg", "x", "y", &[]), node("Abs", "x", "y", &[])], "`y` is produced twice");
    fails(&[], "`y` is not defined");
    let deep = subgraph("then_branch", &[node("Foo", "x", "r", &[]), port(12, "r", 1, &[2])].concat());
    let e = fails(
        &[
            node("Foo", "x", "a", &[]),
            node("Bar", "a", "b", &[]),
            node("Less", "x x", "c", &[]),
            node("If", "c", "d", &[deep, subgraph("else_branch", &branch("Add"))]),
            node("Add", "b d", "y", &[]),
        ],
        "Bar (node `n_b` (Bar)); Foo (node `n_a` (Foo), `n_r` (Foo))",
    );
    assert_eq!(e.code(), "E_UNSUPPORTED");
    // A cycle inside a branch.
    let looped = [node("Neg", "q", "r", &[]), node("Neg", "r", "q", &[]), port(12, "r", 1, &[2])].concat();
    fails(
        &[
            node("Less", "x x", "c", &[]),
            node("If", "c", "y", &[subgraph("then_branch", &looped), subgraph("else_branch", &branch("Add"))]),
        ],
        "cycle",
    );
}

#[test]
fn absurd_sizes_are_errors_and_cost_nothing() {
    let io = [port(11, "x", 1, &[2]), port(12, "y", 1, &[])].concat();
    let big = i64s(&[3], &[1 << 40, 1 << 40, 1 << 40]);
    let large = i64s(&[2], &[1 << 16, 1 << 16]);
    for (shape, nodes) in [
        (&big, vec![node("ConstantOfShape", "s", "y", &[])]),
        (&large, vec![node("ConstantOfShape", "s", "y", &[])]),
        (&big, vec![node("Expand", "x s", "y", &[])]),
        (&big, vec![node("Reshape", "x s", "y", &[])]),
        (&i64s(&[1], &[1 << 62]), vec![node("Tile", "x s", "y", &[])]),
        (&i64s(&[2], &[1 << 62, 1 << 62]), vec![node("Pad", "x s", "y", &[])]),
        (&i64s(&[], &[i64::MAX]), vec![node("Range", "s s s", "r", &[]), node("Range", "zero s one", "y", &[])]),
        (&i64s(&[1], &[i64::MIN]), vec![node("Unsqueeze", "x s", "y", &[])]),
        (&i64s(&[1], &[i64::MAX]), vec![node("TopK", "x s", "y", &[])]),
    ] {
        let scalars = [constant("zero", &i64s(&[], &[0])), constant("one", &i64s(&[], &[1]))].concat();
        let parts = [vec![io.clone(), scalars, constant("s", shape)], nodes].concat();
        let e = lazy(parse(&parts).unwrap(), &[("x", f32s(&[2], &[1., 2.]))]).unwrap_err();
        let node = match &e {
            Error::Model { node, .. } | Error::Budget { node, .. } => node.as_deref(),
            _ => None,
        };
        assert!(node.is_some_and(|n| n.contains("n_y")), "{e}");
    }
    for attrs in [
        ints("kernel_shape", &[1 << 40]),
        [ints("kernel_shape", &[1]), ints("pads", &[1 << 62, 1 << 62])].concat(),
        [ints("kernel_shape", &[2]), ints("dilations", &[i64::MAX])].concat(),
        [ints("kernel_shape", &[1]), ints("strides", &[0])].concat(),
        ints("kernel_shape", &[-1]),
    ] {
        let io = [port(11, "x", 1, &[1, 1, 4]), port(12, "y", 1, &[])].concat();
        let parts = [io, node("MaxPool", "x", "y", &[attrs])];
        assert!(lazy(parse(&parts).unwrap(), &[("x", f32s(&[1, 1, 4], &[1.; 4]))]).is_err());
    }
}

/// Encodes a node of the domain `com.microsoft`.
fn contrib(op: &str, inputs: &str, outputs: &str) -> Vec<u8> {
    field(1, &[&node(op, inputs, outputs, &[])[2..], &field(7, b"com.microsoft")].concat())
}

/// Inputs and attributes that an operator would ignore are refused, with the node's name.
#[test]
fn inputs_and_attributes_that_nothing_reads_are_refused() {
    let cases = [
        ("MatMulBnb4", "x x x", int("accuracy", 1)),
        ("MatMulBnb4", "x x x x", vec![]),
        (
            "MatMulBnb4",
            "x x x",
            [int("transB", 0), int("K", 1), int("N", 1), int("block_size", 16), int("quant_type", 1)].concat(),
        ),
        ("GatherBlockQuantized", "x x x x x", vec![]),
        ("DynamicQuantizeLSTM", "x x x", int("layout", 1)),
        ("MoE", "x x x _ x _ x", vec![]),
        ("MoE", "x x x _ x", int("use_sparse_mixer", 1)),
        ("QMoE", "x x x x _ x x _ x", vec![]),
        ("QMoE", "x x x x _ x x", int("fc1_expert_weight_bits", 4)),
        ("QEmbedLayerNormalization", "x x x x x x x", int("mask_index_type", 1)),
        ("MultiHeadAttention", "x x x _ _ _ _ _ x", int("num_heads", 1)),
        ("Attention", "x y2", [int("num_heads", 1), int("do_rotary", 1)].concat()),
        ("SkipSimplifiedLayerNormalization", "x x x", vec![]),
    ];
    for (op, inputs, attributes) in cases {
        let outputs = if op.starts_with("Skip") { "y mean" } else { "y" };
        let with = field(1, &[&node(op, inputs, outputs, &[])[2..], &field(7, b"com.microsoft"), &attributes].concat());
        let parts =
            [port(11, "x", 1, &[1, 1, 1]), port(12, "y", 1, &[]), constant("y2", &f32s(&[1, 3], &[1.; 3])), with];
        let e = lazy(parse(&parts).unwrap(), &[("x", f32s(&[1, 1, 1], &[1.]))]).unwrap_err();
        assert!(matches!(&e, Error::Unsupported { context, .. } if context.contains(op)), "{op}: {e}");
    }
}

#[test]
fn operands_that_do_not_fit_are_errors() {
    let u8s = |shape: &[usize], v: &[u8]| HostTensor::new(DType::U8, shape.to_vec(), v.to_vec()).unwrap();
    // A scalar with one zero point for each column.
    let parts = [
        port(11, "x", 1, &[2, 2]),
        port(11, "b", 2, &[]),
        port(11, "z", 2, &[3]),
        port(12, "y", 1, &[]),
        constant("s", &f32s(&[], &[1.])),
        contrib("DynamicQuantizeMatMul", "x b s z", "y"),
    ];
    let inputs = [("x", f32s(&[2, 2], &[1.; 4])), ("b", u8s(&[], &[1])), ("z", u8s(&[3], &[1, 2, 3]))];
    let e = lazy(parse(&parts).unwrap(), &inputs).unwrap_err();
    assert!(matches!(&e, Error::Model { node: Some(n), .. } if n.contains("n_y")), "{e}");
    for pooled in [[1 << 40, 2], [2, i64::MAX], [1 << 31, 0]] {
        let parts = [
            port(11, "x", 1, &[1, 1, 2, 2]),
            port(11, "r", 1, &[1, 5]),
            port(12, "y", 1, &[]),
            node("MaxRoiPool", "x r", "y", &[ints("pooled_shape", &pooled)]),
        ];
        let inputs = [("x", f32s(&[1, 1, 2, 2], &[1.; 4])), ("r", f32s(&[1, 5], &[0., 0., 0., 1., 1.]))];
        let e = lazy(parse(&parts).unwrap(), &inputs).unwrap_err();
        assert!(matches!(&e, Error::Model { node: Some(n), .. } if n.contains("n_y")), "{e}");
    }
    // A sequence length that exceeds the number of steps.
    for lens in [[3, 1], [1, -1]] {
        let parts = [
            port(11, "x", 1, &[2, 2, 1]),
            port(12, "y", 1, &[]),
            constant("w", &f32s(&[1, 1, 1], &[1.])),
            constant("l", &i64s(&[2], &lens)),
            node("RNN", "x w w _ l", "y", &[]),
        ];
        let e = lazy(parse(&parts).unwrap(), &[("x", f32s(&[2, 2, 1], &[1.; 4]))]).unwrap_err();
        assert!(e.to_string().contains("sequence_lens"), "{e}");
    }
}

#[test]
fn newer_operator_sets_are_refused() {
    let graph = [port(11, "x", 1, &[2]), port(12, "y", 1, &[2]), node("Neg", "x", "y", &[])].concat();
    let of = |version: u64| Model::parse([field(8, &number(2, version)), field(7, &graph)].concat());
    assert_eq!(of(28).unwrap().opset(), 28);
    let e = of(29).err().unwrap();
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("operator set 29"), "{e}");
}

/// Constants are folded by other code than devices execute. Tested at the ends of the functions' domains, and near 0
/// where they are almost linear.
#[test]
fn folded_hyperbolic_functions_keep_their_ends() {
    let of = |op: &str, x: &[f32]| {
        let parts = [port(12, "y", 1, &[]), constant("x", &f32s(&[x.len()], x)), node(op, "x", "y", &[])];
        parse(&parts).unwrap().evaluate(&[]).unwrap()[0].1.to_f64()
    };
    assert!(of("Acosh", &[-5., -1., 0., 0.5, f32::NAN]).into_iter().all(f64::is_nan));
    assert_eq!(of("Acosh", &[1., f32::INFINITY]), [0., f64::INFINITY]);
    for op in ["Asinh", "Atanh", "Sinh"] {
        assert_eq!(of(op, &[1e-8, -1e-8, 0.]), [f64::from(1e-8f32), f64::from(-1e-8f32), 0.], "{op}");
    }
    assert_eq!(of("Asinh", &[3e38]), [f64::from(89.28999f32)]);
    assert_eq!(of("Cosh", &[0., -1.]), [1., f64::from(1.543_080_7f32)]);
}

#[test]
fn slices_and_pads_are_numpys() {
    let parts = [
        port(11, "x", 1, &[5]),
        port(12, "back", 1, &[]),
        port(12, "steps", 1, &[]),
        port(12, "mirror", 1, &[]),
        port(12, "cut", 1, &[]),
        constant("last", &i64s(&[1], &[-1])),
        constant("first", &i64s(&[1], &[i64::MIN])),
        constant("zero", &i64s(&[1], &[0])),
        constant("two", &i64s(&[1], &[2])),
        constant("far", &i64s(&[1], &[i64::MAX])),
        constant("ends", &i64s(&[2], &[2, 1])),
        constant("less", &i64s(&[2], &[-1, 1])),
        node("Slice", "x last first zero last", "back", &[]),
        node("Slice", "x zero far zero two", "steps", &[]),
        node("Pad", "x ends", "mirror", &[attr("mode", 3, field(4, b"reflect"))]),
        node("Pad", "x less", "cut", &[]),
    ];
    let expected = [
        f32s(&[5], &[5., 4., 3., 2., 1.]),
        f32s(&[3], &[1., 3., 5.]),
        f32s(&[8], &[3., 2., 1., 2., 3., 4., 5., 4.]),
        f32s(&[5], &[2., 3., 4., 5., 0.]),
    ];
    run(&parts, &[("x", f32s(&[5], &[1., 2., 3., 4., 5.]))], &expected);
}

#[test]
fn mutated_models_never_panic() {
    let whole = file(&flatten_model());
    let x = f32s(&[2, 2, 2], &[1.; 8]);
    crate::io::testing::mutate(&whole, 4_000, |m| {
        if let Ok(model) = Model::parse(m.to_vec()) {
            let _ = lazy(model, &[("x", x.clone())]);
        }
    });
}

/// Transposed convolutions whose results do not overlap take another code path; tested with one group and two.
#[test]
fn transposed_convolutions_with_the_kernel_of_their_stride() {
    let x = f32s(&[1, 2, 2, 1], &[1.0, 2.0, 10.0, 20.0]);
    let w: Vec<f32> = (1..=12).map(|v| v as f32).collect();
    for (groups, outs) in [(1, 3), (2, 6)] {
        let parts = [
            node("ConvTranspose", "x w", "y", &[ints("strides", &[2, 1]), int("group", groups)]),
            constant("w", &f32s(&[2, 3, 2, 1], &w)),
            port(11, "x", 1, &[1, 2, 2, 1]),
            port(12, "y", 1, &[1, outs, 4, 1]),
        ];
        let mut want = vec![0.0; outs as usize * 4];
        for c in 0..2 {
            for (o, y, k) in (0..12).map(|i| (i / 4, i / 2 % 2, i % 2)) {
                let to = if groups == 1 { o } else { c * 3 + o };
                want[to * 4 + y * 2 + k] += [1.0, 2.0, 10.0, 20.0][c * 2 + y] * w[(c * 3 + o) * 2 + k];
            }
        }
        run(&parts, &[("x", x.clone())], &[f32s(&[1, outs as usize, 4, 1], &want)]);
    }
}

/// A convolution of an upsampled image adds the weights that read copies of the same element, for all factors, windows
/// and padding.
#[test]
fn convolutions_of_upsampled_images() {
    // Upsampling factors, kernel size, padding (top, left, bottom, right), groups, size of the kernel of added weights
    // (0 where no weights are added).
    let cases = [
        ([2, 2], [3, 3], [1, 1, 1, 1], 1, [4, 4]),
        ([3, 2], [3, 3], [0, 2, 1, 0], 1, [5, 4]),
        ([2, 1], [3, 3], [1, 1, 1, 1], 2, [4, 3]),
        ([4, 2], [5, 2], [2, 0, 2, 1], 1, [8, 3]),
        ([2, 2], [3, 1], [1, 0, 1, 0], 1, [0, 0]),
        ([8, 8], [3, 3], [1, 1, 1, 1], 1, [0, 0]),
        ([1, 1], [3, 3], [1, 1, 1, 1], 1, [0, 0]),
    ];
    let values = |n: usize, seed: usize| (0..n).map(|i| ((i * 7919 + seed * 31 + i / 5) % 13) as f32 - 6.0).collect();
    for (times, taps, pads, groups, sums) in cases {
        let ([ci, co, h, w], [fh, fw], [kh, kw]) = ([4, 6, 3, 4], times, taps);
        let (x, k): (Vec<f32>, Vec<f32>) = (values(ci * h * w, 1), values(co * ci / groups * kh * kw, 2));
        let (oh, ow) = (h * fh + pads[0] + pads[2] + 1 - kh, w * fw + pads[1] + pads[3] + 1 - kw);
        let mut want = vec![0.0; co * oh * ow];
        for (i, y) in want.iter_mut().enumerate() {
            let (o, row, column) = (i / (oh * ow), i / ow % oh, i % ow);
            for j in 0..ci / groups * kh * kw {
                let (c, a, b) = (j / (kh * kw), j / kw % kh, j % kw);
                let c = o / (co / groups) * (ci / groups) + c;
                let at = [row + a, column + b]
                    .iter()
                    .zip(&pads)
                    .map(|(at, p)| at.checked_sub(*p))
                    .collect::<Option<Vec<_>>>();
                if let Some(&[r, s]) = at.as_deref()
                    && r < h * fh
                    && s < w * fw
                {
                    *y += x[(c * h + r / fh) * w + s / fw] * k[o * ci / groups * kh * kw + j];
                }
            }
        }
        let text = |name: &str, v: &str| attr(name, 3, field(4, v.as_bytes()));
        let modes = [
            text("mode", "nearest"),
            text("coordinate_transformation_mode", "asymmetric"),
            text("nearest_mode", "floor"),
        ];
        let parts = [
            node("Resize", "x _ scales", "u", &modes),
            node("Conv", "u k", "y", &[ints("pads", &pads.map(|p| p as i64)), int("group", groups as i64)]),
            constant("scales", &f32s(&[4], &[1.0, 1.0, fh as f32, fw as f32])),
            constant("k", &f32s(&[co, ci / groups, kh, kw], &k)),
            port(11, "x", 1, &[1, ci as i64, h as i64, w as i64]),
            port(12, "y", 1, &[1, co as i64, oh as i64, ow as i64]),
        ];
        run(&parts, &[("x", f32s(&[1, ci, h, w], &x))], &[f32s(&[1, co, oh, ow], &want)]);
        let shared = has_taps(&parts, &x, &[1, ci, h, w], sums);
        assert_eq!(shared, sums != [0, 0], "{times:?} {taps:?}");
    }
}

/// Padding an upsampled image by reflection or edge replication equals upsampling a padded image, as long as the
/// reflection stays within the copies of one element.
#[test]
fn convolutions_of_upsampled_images_with_borders() {
    // Upsampling factors, padding (top, left, bottom, right), mode, size of the kernel of added weights (0 where no
    // weights are added).
    let cases = [
        ([2, 2], [1, 1, 1, 1], "reflect", [4, 4]),
        ([3, 2], [2, 1, 0, 1], "reflect", [5, 4]),
        ([2, 2], [3, 2, 0, 5], "edge", [4, 4]),
        ([2, 2], [2, 2, 2, 2], "reflect", [0, 0]),
    ];
    for ([fh, fw], pads, mode, sums) in cases {
        let [h, w] = [3, 4];
        let x: Vec<f32> = (0..h * w).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let k: Vec<f32> = (0..9).map(|i| (i * 5 % 9) as f32 - 4.0).collect();
        let (ph, pw) = (h * fh + pads[0] + pads[2], w * fw + pads[1] + pads[3]);
        let own = |at: usize, before: usize, n: usize| {
            let at = at as i64 - before as i64;
            let last = n as i64 - 1;
            if mode == "edge" { at.clamp(0, last) as usize } else { (last - (at.abs() - last).abs()) as usize }
        };
        let padded = |r: usize, c: usize| x[own(r, pads[0], h * fh) / fh * w + own(c, pads[1], w * fw) / fw];
        let (oh, ow) = (ph - 2, pw - 2);
        let one = |i: usize| (0..9).map(|j| padded(i / ow + j / 3, i % ow + j % 3) * k[j]).sum::<f32>();
        let want: Vec<f32> = (0..oh * ow).map(one).collect();
        let text = |name: &str, v: &str| attr(name, 3, field(4, v.as_bytes()));
        let modes = [
            text("mode", "nearest"),
            text("coordinate_transformation_mode", "asymmetric"),
            text("nearest_mode", "floor"),
        ];
        let pads = [0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3]].map(|p| p as i64);
        let parts = [
            node("Resize", "x _ scales", "u", &modes),
            node("Pad", "u pads", "p", &[text("mode", mode)]),
            node("Conv", "p k", "y", &[]),
            constant("scales", &f32s(&[4], &[1.0, 1.0, fh as f32, fw as f32])),
            constant("pads", &i64s(&[8], &pads)),
            constant("k", &f32s(&[1, 1, 3, 3], &k)),
            port(11, "x", 1, &[1, 1, h as i64, w as i64]),
            port(12, "y", 1, &[1, 1, oh as i64, ow as i64]),
        ];
        run(&parts, &[("x", f32s(&[1, 1, h, w], &x))], &[f32s(&[1, 1, oh, ow], &want)]);
        assert_eq!(has_taps(&parts, &x, &[1, 1, h, w], sums), sums != [0, 0], "{mode} {fh} {fw}");
    }
}

/// True if any node in the model's graph has a shape that ends with `taps`.
fn has_taps(parts: &[Vec<u8>], x: &[f32], shape: &[usize], taps: [usize; 2]) -> bool {
    let session = Session::new();
    let x = Tensor::new(&session, x, shape).unwrap();
    Bound::new(Arc::new(parse(parts).unwrap()), &session).build(&[("x", Feed::Tensor(x))]).unwrap();
    let state = session.state();
    (0..state.graph.len() as u32).any(|u| state.graph.shape(UOp(u)).ends_with(&taps))
}

/// An infinity with weight 0, or one that is not part of a sum, must not make the result NaN.
#[test]
fn infinities_stay_where_they_are() {
    let inf = f32::INFINITY;
    let sum = [
        port(11, "x", 1, &[2, 2]),
        port(12, "y", 1, &[2]),
        node("ReduceLogSumExp", "x", "y", &[ints("axes", &[1]), int("keepdims", 0)]),
    ];
    let x = f32s(&[2, 2], &[-inf, -inf, inf, 1.0]);
    run(&sum, &[("x", x)], &[f32s(&[2], &[-inf, inf])]);
    let scales = |v: &[f32]| constant("scales", &f32s(&[v.len()], v));
    let text = |name: &str, v: &str| attr(name, 3, field(4, v.as_bytes()));
    for (coordinates, want) in [
        ("half_pixel", [1.0, 1.25, 1.75, inf, inf, inf, inf, 4.0]),
        ("asymmetric", [1.0, 1.5, 2.0, inf, inf, inf, 4.0, 4.0]),
    ] {
        let resize = [
            port(11, "x", 1, &[1, 4]),
            port(12, "y", 1, &[1, 8]),
            scales(&[1.0, 2.0]),
            node(
                "Resize",
                "x _ scales",
                "y",
                &[text("mode", "linear"), text("coordinate_transformation_mode", coordinates)],
            ),
        ];
        let x = f32s(&[1, 4], &[1.0, 2.0, inf, 4.0]);
        run(&resize, &[("x", x)], &[f32s(&[1, 8], &want)]);
    }
    let cubic = [
        port(11, "x", 1, &[1, 12]),
        port(12, "y", 1, &[1, 24]),
        scales(&[1.0, 2.0]),
        node("Resize", "x _ scales", "y", &[text("mode", "cubic")]),
    ];
    let mut x = [1.0; 12];
    x[6] = inf;
    let out = lazy(parse(&cubic).unwrap(), &[("x", f32s(&[1, 12], &x))]).unwrap();
    let finite: Vec<bool> = out[0].to_f64().iter().map(|v| v.is_finite()).collect();
    assert_eq!(finite, (0..24).map(|i| !(9..17).contains(&i)).collect::<Vec<_>>(), "{:?}", out[0].to_f64());
}

/// An index out of range on one axis must not read another row: known indices are refused, others read zero.
#[test]
fn indices_out_of_range_on_an_inner_axis() {
    let model = [
        port(11, "x", 1, &[2, 2]),
        port(11, "i", 7, &[4, 2]),
        port(12, "y", 1, &[4]),
        node("GatherND", "x i", "y", &[]),
    ];
    let x = f32s(&[2, 2], &[1., 2., 3., 4.]);
    let i = i64s(&[4, 2], &[0, 2, 1, -3, 1, 1, -1, -2]);
    let inputs = [("x", x), ("i", i)];
    assert_eq!(lazy(parse(&model).unwrap(), &inputs).unwrap(), [f32s(&[4], &[0., 0., 4., 3.])]);
    assert!(parse(&model).unwrap().evaluate(&inputs).is_err());
}

/// Nodes that expand constants of a few kilobytes to very many elements, at least in intermediate values, are not
/// folded: a device computes them.
#[test]
fn what_grows_out_of_small_constants_is_not_folded() {
    let count = |n: usize| (0..n).map(|i| i as f32).collect::<Vec<_>>();
    let gather = [
        constant("x", &f32s(&[1, 4096], &count(4096))),
        constant("i", &i64s(&[4096], &[0; 4096])),
        node("Gather", "x i", "y", &[]),
    ];
    let pool = [
        constant("x", &f32s(&[1, 1, 96, 96], &count(96 * 96))),
        node("MaxPool", "x", "y", &[ints("kernel_shape", &[48, 48])]),
    ];
    for nodes in [gather.concat(), pool.concat()] {
        let model = parse(&[port(12, "y", 1, &[]), nodes]).unwrap();
        let made = Bound::new(Arc::new(model), &Session::new()).build(&[]).unwrap();
        assert_eq!(made[0].1.buffer(), None, "{:?} was computed on the host", made[0].1.shape());
    }
}

#[test]
fn a_model_may_have_the_usual_operators_alone() {
    let of = |op: &str, operators| {
        let inner = [node(op, "x", "y", &[]), port(12, "y", 1, &[4])].concat();
        let branch = |name: &str| subgraph(name, &inner);
        let parts = [
            node("If", "c", "z", &[branch("then_branch"), branch("else_branch")]),
            port(11, "c", 9, &[]),
            port(11, "x", 1, &[4]),
            port(12, "z", 1, &[4]),
        ];
        Model::parse_of(file(&parts).into(), Arc::new(NoExternalData), operators).map(drop)
    };
    for op in ["Relu", "Cos"] {
        of(op, Operators::usual()).unwrap();
    }
    for op in ["RandomNormalLike", "Cosh"] {
        let Err(Error::Unsupported { what, .. }) = of(op, Operators::usual()) else { panic!("{op} is no usual one") };
        assert!(what.contains(op), "{what}");
        of(op, Operators::all()).unwrap();
    }
    let all: Vec<_> = supported().collect();
    let each: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(each.len(), all.len(), "an operator is in two tables");
}
