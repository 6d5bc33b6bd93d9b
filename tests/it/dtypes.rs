//! Which inputs of ONNX operators must be floats. `fixtures/onnx/float_inputs.txt` says it of all operators of the packages onnx and
//! onnxruntime (`conformance/float_inputs.py`); ours refuse integers in these places and in no others.

use gradloom_core::io::onnx::{Bound, Feed, Model, supported};
use gradloom_core::{Budget, DType, Session, Tensor};
use gradloom_tests::message::{
    GRAPH_INPUT, GRAPH_NODE, GRAPH_OUTPUT, MODEL_GRAPH, Message, NODE_DOMAIN, NODE_INPUT, NODE_OP, NODE_OUTPUT,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Positions, and the first of those that have no end.
#[derive(Default)]
struct Floats {
    at: Vec<usize>,
    from: Option<usize>,
}

impl Floats {
    fn has(&self, i: usize) -> bool {
        self.at.contains(&i) || self.from.is_some_and(|f| i >= f)
    }
}

fn recorded() -> BTreeMap<(&'static str, &'static str), Floats> {
    let line = |l: &'static str| {
        let &[domain, name, list] = l.split('\t').collect::<Vec<_>>().as_slice() else { panic!("bad line {l}") };
        let mut floats = Floats::default();
        for p in list.split(' ') {
            match p.strip_suffix('+') {
                Some(p) => floats.from = Some(p.parse().expect("a position")),
                None => floats.at.push(p.parse().expect("a position")),
            }
        }
        ((if domain == "ai.onnx" { "" } else { domain }, name), floats)
    };
    include_str!("../fixtures/onnx/float_inputs.txt").lines().map(line).collect()
}

/// One node with inputs `x0`, `x1`, .. that may be of any dtype.
fn model((domain, op): (&str, &str), inputs: usize) -> Model {
    let names: Vec<String> = (0..inputs).map(|i| format!("x{i}")).collect();
    let node = names.iter().fold(Message::default(), |m, n| m.with(NODE_INPUT, n.clone()));
    let node = node.with(NODE_OUTPUT, "y").with(NODE_OP, op).with(NODE_DOMAIN, domain);
    let value = |n: &str| Message::default().with(1, n).bytes();
    let graph = Message::default().with(GRAPH_NODE, node.bytes()).with(2, "g");
    let graph = names.iter().fold(graph, |m, n| m.with(GRAPH_INPUT, value(n)));
    let graph = graph.with(GRAPH_OUTPUT, value("y"));
    let opset = |domain: &str, version| Message::default().with(1, domain).with_number(2, version).bytes();
    let model = Message::default().with_number(1, 8).with(8, opset("", 23));
    let model = if domain.is_empty() { model } else { model.with(8, opset(domain, 1)) };
    let file = model.with(MODEL_GRAPH, graph.bytes()).bytes();
    Model::parse(file)
        .unwrap_or_else(|e| panic!("{op}: {e}"))
        .with_budget(Budget { host_bytes: 1 << 20, ..Budget::default() })
}

/// What is said of integers at one input, if anything, where all others are floats.
fn complaint(bound: &Bound, session: &Session, inputs: usize, at: usize) -> Option<String> {
    let tensor = |i| Tensor::zeros(session, if i == at { DType::I32 } else { DType::F32 }, &[2, 2]).expect("zeros");
    let names: Vec<String> = (0..inputs).map(|i| format!("x{i}")).collect();
    let feeds: Vec<(&str, Feed)> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), Feed::Tensor(tensor(i).clone()))).collect();
    let e = bound.build(&feeds).err()?;
    let text = e.to_string();
    if !text.contains("a float input is wanted") {
        return None;
    }
    assert_eq!(e.code(), "E_MODEL", "{text}");
    Some(text)
}

#[test]
fn integers_are_refused_where_floats_alone_are_taken() {
    let recorded = recorded();
    let none = Floats::default();
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for op in supported() {
        let floats = recorded.get(&op).unwrap_or(&none);
        let inputs = floats.at.iter().chain(&floats.from).max().map_or(3, |n| n + 2);
        let session = Session::new();
        let bound = Bound::new(Arc::new(model(op, inputs)), &session);
        for at in 0..inputs {
            let said = complaint(&bound, &session, inputs, at);
            match (&said, floats.has(at)) {
                (Some(text), true) => {
                    let named = text.contains(op.1) && text.contains(&format!("input {at} is i32"));
                    refused += 1;
                    if !named {
                        wrong.push(format!("{op:?}: {text}"));
                    }
                }
                (None, true) => wrong.push(format!("{op:?} takes integers as input {at}")),
                (Some(_), false) => wrong.push(format!("{op:?} takes no integers as input {at}")),
                (None, false) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused > 250, "only {refused} inputs were refused");
}
