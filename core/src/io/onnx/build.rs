//! Builds an ONNX graph as lazy tensors: runs its nodes in order, with concrete shapes.

use crate::util::sorted::SortedMap;
use std::sync::Arc;

use super::check;
use super::model::{Model, Port};
use super::network::{adapt, adapter_of};
use super::ops::Op;
use super::proto::{AttrValue, Attribute, Dim, GraphProto, NodeProto};
use super::stage::{Build, Frame, Step};
use super::strings::STRING;
use super::tensor::{TensorData, TensorProto, elem_name, is_code_type};
use super::value::{Constants, Cx, FOLD_SHAPES, NodeTrace, Value};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};

/// What a caller feeds an input with.
#[derive(Clone)]
pub enum Feed {
    /// A tensor, whose value may change between runs of the same plan.
    Tensor(Tensor),
    /// A value that is built into the graph as a constant.
    Known(HostTensor),
}

/// A model in a session. Its weights become tensors of the session once, however often the model is built.
pub struct Bound {
    model: Arc<Model>,
    session: Session,
    constants: Arc<Constants>,
}

/// The named values of one level of nested graphs; lookups continue in the parent.
pub(super) struct Scope<'s> {
    pub(super) values: SortedMap<String, Value>,
    pub(super) parent: Option<&'s Scope<'s>>,
}

impl Scope<'_> {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).or_else(|| self.parent?.get(name))
    }
}

impl Bound {
    /// Binds a model to a session. Nothing is computed or copied yet.
    pub fn new(model: Arc<Model>, session: &Session) -> Bound {
        Bound { model, session: session.clone(), constants: Arc::default() }
    }

    /// Binds a model of the same file to the same session; the weights are shared.
    pub(super) fn with_model(&self, model: Arc<Model>) -> Bound {
        Bound { model, session: self.session.clone(), constants: self.constants.clone() }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Builds the graph for the shapes of these inputs: one lazy tensor for each output, in the model's order. An error
    /// where the graph depends on values that only a device can compute; [`super::Runner`] handles those.
    pub fn build(&self, feeds: &[(&str, Feed)]) -> Result<Vec<(String, Tensor)>> {
        let feeds = feeds.iter().map(|(n, f)| (n.to_string(), f.clone())).collect();
        match self.go(&mut Build::new(feeds, None), &Interrupt::default())? {
            Step::Done(out) => Ok(out),
            Step::Ask(ask) => Err(ask.error),
            Step::Paused => Err(Error::Internal("nobody asked the build to pause".to_owned())),
        }
    }

    /// Starts or resumes a build.
    pub(super) fn go(&self, build: &mut Build, interrupt: &Interrupt) -> Result<Step> {
        build.go(&self.model, &self.constants, &self.session, interrupt)
    }
}

impl Model {
    /// Runs the model on the host, element by element: slow, exact, and without any device or compiler. A reference for
    /// tests, and a way to check that a file is understood.
    pub fn evaluate(&self, inputs: &[(&str, HostTensor)]) -> Result<Vec<(String, HostTensor)>> {
        let constants = Constants::default();
        let mut cx = Cx::new(self, &constants, Session::default());
        cx.fold_limit = usize::MAX;
        let feeds: Vec<_> = inputs.iter().map(|(n, t)| (*n, Feed::Known(t.clone()))).collect();
        let outputs = run_model(&mut cx, &feeds)?;
        let known = |v: &Value| {
            let missing =
                || Error::Unsupported { what: "evaluation on the host".to_owned(), context: "ONNX".to_owned() };
            cx.host(v)?.ok_or_else(missing)
        };
        outputs.into_iter().map(|(name, v)| Ok((name, known(&v)?))).collect()
    }
}

/// Checks the inputs and builds the main graph.
pub(super) fn run_model(cx: &mut Cx<'_>, feeds: &[(&str, Feed)]) -> Result<Vec<(String, Value)>> {
    let model = cx.model;
    let mut values = SortedMap::new();
    let mut lists: SortedMap<&str, SortedMap<usize, Value>> = SortedMap::new();
    let mut symbols: SortedMap<&str, (usize, &str)> = SortedMap::new();
    for (name, feed) in feeds {
        let bad = |what: String| Error::Input { name: (*name).to_owned(), what };
        let Some((port, place)) = model.place(name) else {
            let show = |p: &Port| format!("{}{}", p.name, if p.is_sequence { "[0..]" } else { "" });
            let names: Vec<String> = model.inputs().iter().map(show).collect();
            return Err(bad(format!("the model has no such input; it has {}", names.join(", "))));
        };
        let value = match feed {
            Feed::Tensor(t) => Value::lazy(t.clone()),
            Feed::Known(t) => Value::known(t.clone()),
        };
        port.accepts(value.dtype(), value.shape())?;
        let value = value.with_code_type(if is_code_type(port.elem) { port.elem } else { 0 });
        for (d, &n) in port.dims.iter().flatten().zip(value.shape()).filter(|_| place.is_none()) {
            let Dim::Param(symbol) = d else { continue };
            let (first, by) = *symbols.or_insert_with(symbol, || (n, &port.name));
            // Symbols without letters or digits, such as `?`, name nothing and need not agree.
            if first != n && symbol.chars().any(|c| c.is_ascii_alphanumeric() || !c.is_ascii()) {
                return Err(bad(format!("dimension `{symbol}` is {n} here and {first} in `{by}`")));
            }
        }
        let old = match place {
            None => values.insert(port.name.clone(), value),
            Some(i) => lists.or_insert_with(&port.name, SortedMap::new).insert(i, value),
        };
        if old.is_some() {
            return Err(bad("it was given twice".to_owned()));
        }
    }
    for p in model.inputs().iter().filter(|p| !values.contains_key(&p.name)).collect::<Vec<_>>() {
        let value = match lists.remove(p.name.as_str()) {
            Some(list) => {
                if list.last_key_value().is_some_and(|(&last, _)| last + 1 != list.len()) {
                    let what = "elements of the sequence are missing".to_owned();
                    return Err(Error::Input { name: p.name.clone(), what });
                }
                Value::sequence(list[&0].dtype(), list.into_values().collect())
            }
            None if p.is_optional => Value::absent(),
            None if p.is_sequence => Value::sequence(p.dtype.unwrap_or(DType::F32), Vec::new()),
            None => return Err(Error::Input { name: p.name.clone(), what: "it is missing".to_owned() }),
        };
        values.insert(p.name.clone(), value);
    }
    values.extend(std::mem::take(&mut cx.trained));
    let scope = Scope { values: SortedMap::new(), parent: None };
    let out = run_graph(cx, &model.proto.graph, &scope, values, 0, model.opset())?;
    let mut named = Vec::with_capacity(out.len());
    for (p, v) in model.outputs().iter().zip(out) {
        match v.items() {
            Some(items) => {
                named.extend(items.iter().enumerate().map(|(i, v)| (format!("{}[{i}]", p.name), v.clone())));
            }
            None if v.is_absent() => {}
            None => named.push((p.name.clone(), v)),
        }
    }
    Ok(named)
}

/// Builds a graph whose inputs are in `values`; its outputs in order.
pub(super) fn run_graph(
    cx: &mut Cx<'_>,
    graph: &GraphProto,
    outer: &Scope<'_>,
    mut values: SortedMap<String, Value>,
    depth: usize,
    opset: i64,
) -> Result<Vec<Value>> {
    for t in &graph.initializers {
        let v = cx.constant(t)?;
        values.or_insert_with(t.name.clone(), || v);
    }
    let mut scope = Scope { values, parent: Some(outer) };
    let outputs: Vec<&str> = graph.outputs.iter().map(|o| o.name.as_str()).collect();
    run_nodes(cx, &graph.nodes, &outputs, &mut scope, opset, depth)?;
    outputs.iter().map(|o| lookup(&scope, o)).collect()
}

fn lookup(scope: &Scope<'_>, name: &str) -> Result<Value> {
    let missing = || Error::Model { what: format!("the value `{name}` was not produced"), node: None };
    scope.get(name).cloned().ok_or_else(missing)
}

/// Builds nodes in order, or resumes at the node where the last attempt stopped.
fn run_nodes(
    cx: &mut Cx<'_>,
    nodes: &[NodeProto],
    outputs: &[&str],
    scope: &mut Scope<'_>,
    opset: i64,
    depth: usize,
) -> Result<()> {
    let mut at = 0;
    if let Some(frame) = cx.frames.pop() {
        let Frame::Nodes { values, at: next, computed_for_node } = frame else {
            return Err(Error::Internal("a graph was resumed as something else".to_owned()));
        };
        (scope.values, at, cx.computed_for_node) = (values, next, computed_for_node);
    }
    while let Some(node) = nodes.get(at) {
        let made = match cx.pace().and_then(|()| run_node(cx, node, scope, opset, depth)) {
            Ok(made) => made,
            Err(e) => {
                let computed_for_node = std::mem::take(&mut cx.computed_for_node);
                cx.save(|| {
                    let used = check::used(&nodes[at..], outputs);
                    let mut values = std::mem::take(&mut scope.values);
                    values.retain(|name, _| used.contains(name));
                    Frame::Nodes { values, at, computed_for_node }
                });
                return Err(check::name_node(e, node));
            }
        };
        cx.computed_for_node.clear();
        cx.made_progress = true;
        if let Some(traces) = &mut cx.traces {
            let node = check::describe(node);
            let shapes = made.iter().map(|v| v.shape().iter().map(|&n| n as i64).collect()).collect();
            let known = |v: &Value| v.data().filter(|t| t.len() <= FOLD_SHAPES).map(|t| t.to_f64());
            let values = made.iter().map(known).collect();
            traces.push(NodeTrace { nodes: cx.session.state().graph.len(), node, shapes, values });
        }
        let wanted = node.outputs.iter().rposition(|o| !o.is_empty()).map_or(0, |i| i + 1);
        if made.len() < wanted {
            let what = format!("output {wanted} of {} is not supported", node.op_type);
            return Err(Error::Unsupported { what, context: format!("node {}", check::describe(node)) });
        }
        for (name, v) in node.outputs.iter().zip(made).filter(|(n, _)| !n.is_empty()) {
            scope.values.insert(name.clone(), v);
        }
        at += 1;
    }
    Ok(())
}

pub(super) fn run_node(
    cx: &mut Cx<'_>,
    node: &NodeProto,
    scope: &Scope<'_>,
    opset: i64,
    depth: usize,
) -> Result<Vec<Value>> {
    let args = node
        .inputs
        .iter()
        .map(|name| if name.is_empty() { Ok(None) } else { lookup(scope, name).map(Some) })
        .collect::<Result<Vec<_>>>()?;
    let code_type = args.iter().flatten().map(Value::code_type).find(|&n| n != 0).unwrap_or(0);
    let model = cx.model;
    if let Some(f) = check::function(&model.proto.functions, node) {
        if depth >= check::MAX_CALLS {
            return Err(Error::Model { what: "functions nest too deeply".to_owned(), node: None });
        }
        let values = f.inputs.iter().cloned().zip(args).filter_map(|(n, v)| Some((n, v?))).collect();
        let mut inner = Scope { values, parent: None };
        let opset = f.opsets.iter().find(|o| o.domain.is_empty()).map_or(opset, |o| o.version);
        let nodes = f.nodes.iter().map(|n| with_attributes(n, node, &f.defaults)).collect::<Vec<_>>();
        let outputs: Vec<&str> = f.outputs.iter().map(String::as_str).collect();
        run_nodes(cx, &nodes, &outputs, &mut inner, opset, depth + 1)?;
        return outputs.iter().map(|o| lookup(&inner, o)).collect();
    }
    let def = model
        .operators()
        .find(&node.domain, &node.op_type)
        .ok_or_else(|| Error::Unsupported { what: format!("operator {}", node.op_type), context: String::new() })?;
    let moves = if code_type == 0 { Some(false) } else { moves_codes(code_type, def.name) };
    let refused =
        || Error::Unsupported { what: format!("{} on {}", elem_name(code_type), def.name), context: String::new() };
    let moves = moves.ok_or_else(refused)?;
    if args.iter().flatten().any(|v| !v.is_tensor()) && !def.any {
        let what = format!("{} takes tensors, not sequences or optionals without a value", def.name);
        return Err(Error::Model { what, node: None });
    }
    let adapter = adapter_of(cx.adapters, node, depth).map(|a| (a, args.clone()));
    let mut op = Op { cx, node, args, opset, scope, depth };
    op.want_floats(def)?;
    op.ask_for_inputs(def)?;
    let mut outputs = (def.build)(&mut op)?;
    if let Some((adapter, args)) = adapter {
        adapt(Op { cx: op.cx, node, args, opset, scope, depth }, def, adapter, &mut outputs)?;
    }
    Ok(if moves { outputs.into_iter().map(|v| v.with_code_type(code_type)).collect() } else { outputs })
}

/// Operators that accept codes of narrow number types and interpret them themselves; likewise for strings, and for
/// both.
#[rustfmt::skip]
const NUMBERS: &[&str] = &[
    "Cast", "CastLike", "BitCast", "QuantizeLinear", "DequantizeLinear", "MatMulNBits", "GatherBlockQuantized",
];
const STRINGS: &[&str] = &["Equal", "StringConcat", "StringNormalizer", "StringSplit", "LabelEncoder", "OneHotEncoder"];
#[rustfmt::skip]
const ANY: &[&str] = &[
    "Shape", "Size", "If", "Loop", "Scan", "SequenceConstruct", "SequenceInsert", "Optional", "SequenceMap",
    "OptionalHasElement",
];
/// Operators that only move elements, so that codes stay codes.
#[rustfmt::skip]
const MOVES: &[&str] = &[
    "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Concat", "Expand", "Gather",
    "GatherElements", "GatherND", "Split", "Tile", "DepthToSpace", "Where",
];

/// Whether an operator's results are codes of the same type as its operands (`code_type`); `None` if it does not accept
/// such codes.
fn moves_codes(code_type: i32, name: &str) -> Option<bool> {
    let own = if code_type == STRING { STRINGS } else { NUMBERS };
    match name {
        _ if own.contains(&name) || ANY.contains(&name) => Some(false),
        _ => MOVES.contains(&name).then_some(true),
    }
}

/// A node of a function, with references to attributes replaced by the caller's attributes or the defaults.
fn with_attributes(n: &NodeProto, caller: &NodeProto, defaults: &[Attribute]) -> NodeProto {
    let mut n = n.clone();
    let resolve = |a: Attribute| {
        let AttrValue::Ref(name) = &a.value else { return Some(a) };
        let found = caller.attributes.iter().chain(defaults).find(|b| b.name == *name)?;
        Some(Attribute { name: a.name, value: found.value.clone() })
    };
    n.attributes = n.attributes.into_iter().filter_map(resolve).collect();
    n
}

impl Cx<'_> {
    /// A constant tensor of the model. Constants inside the model file are shared by all uses and all builds.
    pub(super) fn constant(&self, t: &TensorProto) -> Result<Value> {
        let at = match &t.data {
            TensorData::File(span) => Some((span.start, t.shape.clone())),
            _ => None,
        };
        if let Some(v) = at.as_ref().and_then(|at| self.constants.get(at)) {
            return Ok(v);
        }
        let v = Value::constant(t)?;
        if let Some(at) = at {
            self.constants.insert(at, v.clone());
        }
        Ok(v)
    }
}
