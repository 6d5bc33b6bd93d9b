//! ONNX files that are not what their operators expect: good models whose nodes, attributes and inputs are changed one at a
//! time. Whoever reads this module decides what must hold of them; here they are only made.

use crate::message::{
    GRAPH_INPUT, GRAPH_NODE, MODEL_GRAPH, Message, NODE_ATTRIBUTE, NODE_INPUT, Wire, graph, put_varint, varint,
};
use gradloom_core::DType;
use gradloom_core::dtype::Scalar;
use gradloom_core::io::HostTensor;

/// A model whose inputs may be of any dtype and rank: what it says of their types is gone. None of bytes that are no model.
pub fn untyped(file: &[u8]) -> Option<Message> {
    let model = Message::read(file)?;
    let (at, mut graph) = graph(&model)?;
    for input in graph.places(GRAPH_INPUT) {
        let mut info = graph.inner(input)?;
        // a tensor's type alone: a sequence keeps its own
        let tensors = |ty: &usize| info.inner(*ty).is_some_and(|ty| !ty.places(1).is_empty());
        let gone: Vec<usize> = info.places(2).into_iter().filter(tensors).collect();
        gone.iter().rev().for_each(|&ty| info = info.without(ty));
        graph.set_inner(input, &info);
    }
    Some(model.exchanged(at, &graph))
}

/// Numbers that no operator expects.
pub const NUMBERS: [i64; 9] = [0, -1, 1, 3, 1 << 26, i32::MAX as i64, 1 << 40, i64::MAX, i64::MIN];

/// Files that differ from this one in an attribute or an input of one node.
pub fn changed_nodes(model: &Message) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let Some((at, graph)) = graph(model) else { return out };
    for place in graph.places(GRAPH_NODE) {
        let Some(node) = graph.inner(place) else { continue };
        let mut add = |node: &Message| out.push(model.exchanged(at, &graph.exchanged(place, node)).bytes());
        for input in node.places(NODE_INPUT) {
            let mut less = node.clone();
            less.0[input].1 = Wire::Bytes(Vec::new());
            add(&less);
            // one input more, and one twice
            let mut more = node.clone();
            more.0.insert(input, node.0[input].clone());
            add(&more);
        }
        if let Some(&last) = node.places(NODE_INPUT).last() {
            add(&node.without(last));
        }
        for a in node.places(NODE_ATTRIBUTE) {
            add(&node.without(a));
            for changed in node.inner(a).iter().flat_map(changed_attributes) {
                add(&node.exchanged(a, &changed));
            }
        }
    }
    out
}

fn changed_attributes(attr: &Message) -> Vec<Message> {
    let mut out = Vec::new();
    for (i, (field, value)) in attr.0.iter().enumerate() {
        let mut set = |v: Wire| {
            let mut changed = attr.clone();
            changed.0[i].1 = v;
            out.push(changed);
        };
        match (field, value) {
            (3 | 8, Wire::Number(_)) => NUMBERS.iter().for_each(|&n| set(Wire::Number(n as u64))),
            // packed
            (8, Wire::Bytes(b)) => {
                let mut at = 0;
                let list: Vec<u64> = std::iter::from_fn(|| varint(b, &mut at)).collect();
                for (k, n) in (0..list.len()).flat_map(|k| NUMBERS.map(|n| (k, n as u64))) {
                    let mut bytes = Vec::new();
                    list.iter().enumerate().for_each(|(j, &v)| put_varint(&mut bytes, if j == k { n } else { v }));
                    set(Wire::Bytes(bytes));
                }
            }
            (2, Wire::Four(_)) => {
                for v in [0.0f32, -1.0, 1e-30, 1e30, f32::NAN, f32::INFINITY] {
                    set(Wire::Four(v.to_le_bytes()));
                }
            }
            (4, Wire::Bytes(_)) => {
                set(Wire::Bytes(Vec::new()));
                set(Wire::Bytes(b"x".to_vec()));
            }
            _ => continue,
        }
        if *field == 8 {
            out.push(attr.without(i));
            let mut more = attr.clone();
            more.0.insert(i, attr.0[i].clone());
            out.push(more);
        }
    }
    out
}

/// The elements of a tensor again and again, until they fill another shape.
fn reshaped(t: &HostTensor, shape: Vec<usize>) -> HostTensor {
    let n = shape.iter().product::<usize>() * t.dtype.size();
    let source = if t.data.is_empty() { vec![0; t.dtype.size()] } else { t.data.clone() };
    HostTensor { dtype: t.dtype, shape, data: source.into_iter().cycle().take(n).collect() }
}

/// Tensors in its place: other ranks, lengths and dtypes, nothing at all, and numbers that are no sizes.
pub fn changed_tensors(t: &HostTensor) -> Vec<HostTensor> {
    let mut shapes: Vec<Vec<usize>> = (0..7).flat_map(|rank| [vec![1; rank], vec![2; rank]]).collect();
    for axis in 0..=t.shape.len() {
        let mut longer = t.shape.clone();
        longer.insert(axis, 1);
        shapes.push(longer);
        for size in [0, 1, 7] {
            let mut other = t.shape.clone();
            if let Some(d) = other.get_mut(axis) {
                *d = size;
                shapes.push(other);
            }
        }
        let mut less = t.shape.clone();
        if axis < less.len() {
            less.remove(axis);
            shapes.push(less);
        }
    }
    shapes.retain(|s| s.iter().product::<usize>() <= 1 << 16);
    let mut out: Vec<HostTensor> = shapes.into_iter().map(|s| reshaped(t, s)).collect();
    for dtype in [DType::F32, DType::F16, DType::F64, DType::I64, DType::I32, DType::U8, DType::Bool] {
        if dtype != t.dtype {
            let list: Vec<Scalar> = t.scalars().map(|s| s.cast(t.dtype, dtype)).collect();
            out.extend(HostTensor::from_scalars(dtype, t.shape.clone(), &list));
        }
    }
    for n in NUMBERS {
        let list = vec![Scalar::from_i64(n, t.dtype); t.len()];
        out.extend(HostTensor::from_scalars(t.dtype, t.shape.clone(), &list));
    }
    out
}

/// A model of one node, of opset 21, whose known inputs are constants `c0`, `c1`, .. and whose other input is `x`.
pub fn one_node(
    op: &str,
    inputs: &[&str],
    outputs: usize,
    attributes: &[(&str, i64)],
    constants: &[HostTensor],
) -> Vec<u8> {
    let mut node = inputs.iter().fold(Message::default(), |m, &name| m.with(1, name));
    node = (0..outputs).fold(node, |m, i| m.with(2, format!("y{i}")));
    node = node.with(3, format!("the_{op}")).with(4, op);
    for (name, v) in attributes {
        node = node.with(5, Message::default().with(1, *name).with_number(3, *v as u64).with_number(20, 2).bytes());
    }
    let mut graph = Message::default().with(1, node.bytes()).with(2, "g");
    for (i, t) in constants.iter().enumerate() {
        let elem = match t.dtype {
            DType::F32 => 1,
            DType::I32 => 6,
            _ => 7,
        };
        let m = t.shape.iter().fold(Message::default(), |m, &d| m.with_number(1, d as u64));
        graph = graph.with(5, m.with_number(2, elem).with(8, format!("c{i}")).with(9, t.data.clone()).bytes());
    }
    if inputs.contains(&"x") {
        graph = graph.with(11, Message::default().with(1, "x").bytes());
    }
    graph = (0..outputs).fold(graph, |g, i| g.with(12, Message::default().with(1, format!("y{i}")).bytes()));
    let opset = Message::default().with_number(2, 21).bytes();
    Message::default().with_number(1, 8).with(8, opset).with(MODEL_GRAPH, graph.bytes()).bytes()
}
