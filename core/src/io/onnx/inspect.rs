//! A dry run: builds each node of a model without a device, and continues after a node that is refused.

use crate::util::sorted::SortedMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::build::{Scope, run_node};
use super::check;
use super::model::{Model, Port, port};
use super::ops::Operators;
use super::proto::{Dim, TypeProto, ValueInfo, parse_model};
use super::tensor::{ExternalData, dtype_of, elem_name, is_code_type};
use super::value::{Constants, Cx, Value};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::tensor::{Session, Tensor};
use crate::util::gather;

/// What can be said about a model without running it.
pub struct Report {
    /// The model. Inputs and outputs of refused types are missing.
    pub model: Model,
    /// Its nodes in execution order.
    pub nodes: Vec<NodeReport>,
    /// Problems other than nodes of the main graph: types of inputs and outputs, operators inside subgraphs and
    /// functions.
    pub problems: Vec<String>,
    /// The sizes assumed for symbolic and unknown dimensions: input, dimension, size.
    pub sizes: Vec<(String, String, usize)>,
}

/// The result for one node.
pub struct NodeReport {
    /// Its name and operator.
    pub node: String,
    /// `Conv`, `com.microsoft.Attention` ..
    pub op: String,
    /// Names of its outputs, with types and shapes if known.
    pub outputs: Vec<(String, Option<(String, Vec<usize>)>)>,
    /// Whether it is supported.
    pub state: State,
}

/// Whether a node is supported.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It was built.
    Supported,
    /// It is supported; its results are known once the values are that they depend on, at run time.
    AtRunTime,
    /// Its operator is supported. Nothing more is known, because an input comes from a node that is refused, or that is
    /// only built at run time.
    Follows,
    /// Why it fails with the sizes assumed for unknown dimensions; it may work with other sizes.
    Unfit(String),
    /// Why it is refused.
    Refused(String),
}

impl Report {
    /// True if nothing is refused.
    pub fn is_supported(&self) -> bool {
        self.problems.is_empty() && !self.nodes.iter().any(|n| matches!(n.state, State::Refused(_)))
    }
}

/// Inspects a model file. Symbolic dimensions get the size given for their name (`batch`), or else 1. An error if the
/// file is not a model, or its graph is not valid.
pub fn inspect(
    file: impl Into<Bytes>,
    external: Arc<dyn ExternalData + Send + Sync>,
    sizes: &BTreeMap<String, usize>,
) -> Result<Report> {
    let file = file.into();
    let mut proto = parse_model(&file)?;
    check::sort(&mut proto)?;
    let mut problems: Vec<String> = check::too_new(&proto).into_iter().collect();
    let constants: BTreeSet<&str> = gather(proto.graph.initializers.iter().map(|t| t.name.as_str()));
    let mut ports = |list: &[ValueInfo]| -> Vec<Port> {
        let (good, bad): (Vec<_>, Vec<_>) = list.iter().map(port).partition(Result::is_ok);
        problems.extend(bad.into_iter().filter_map(Result::err).map(|e| e.to_string()));
        good.into_iter().filter_map(Result::ok).collect()
    };
    let given: Vec<ValueInfo> =
        proto.graph.inputs.iter().filter(|i| !constants.contains(i.name.as_str())).cloned().collect();
    let (inputs, outputs) = (ports(&given), ports(&proto.graph.outputs));
    let missing = check::missing(&proto, Operators::all())?;
    let own: BTreeSet<String> = gather(proto.graph.nodes.iter().map(check::describe));
    for (op, nodes) in &missing {
        problems.extend(nodes.iter().filter(|n| !own.contains(*n)).map(|n| format!("operator {op} (node {n})")));
    }
    let model = Model::of(file, external, proto, inputs, outputs, Operators::all());
    let (nodes, sizes) = dry_run(&model, sizes)?;
    Ok(Report { model, nodes, problems, sizes })
}

fn dry_run(model: &Model, sizes: &BTreeMap<String, usize>) -> Result<(Vec<NodeReport>, Vec<(String, String, usize)>)> {
    let (constants, session) = (Constants::default(), Session::new());
    let mut cx = Cx::new(model, &constants, session.clone());
    let mut scope = Scope { values: SortedMap::new(), parent: None };
    let (mut taken, mut guessed) = (Vec::new(), false);
    for t in &model.proto.graph.initializers {
        if let Ok(v) = cx.constant(t) {
            scope.values.insert(t.name.clone(), v);
        }
    }
    for p in model.inputs() {
        let (Some(dtype), Some(dims)) = (p.dtype, &p.dims) else { continue };
        let mut shape = Vec::new();
        for (i, d) in dims.iter().enumerate() {
            shape.push(match d {
                Dim::Value(n) if *n >= 0 => usize::try_from(*n).unwrap_or(usize::MAX),
                Dim::Param(name) => {
                    guessed |= !sizes.contains_key(name);
                    let n = sizes.get(name).copied().unwrap_or(1);
                    taken.push((p.name.clone(), name.clone(), n));
                    n
                }
                _ => {
                    guessed = true;
                    taken.push((p.name.clone(), format!("axis {i}"), 1));
                    1
                }
            });
        }
        let one = unknown(&cx, dtype, p.elem, &shape)?;
        scope.values.insert(p.name.clone(), if p.is_sequence { Value::sequence(dtype, vec![one]) } else { one });
    }
    let mut nodes = Vec::new();
    for n in model.nodes() {
        let dot = if n.domain.is_empty() { "" } else { "." };
        let mut report = NodeReport {
            node: check::describe(n),
            op: format!("{}{dot}{}", n.domain, n.op_type),
            outputs: n.outputs.iter().filter(|o| !o.is_empty()).map(|o| (o.clone(), None)).collect(),
            state: State::Follows,
        };
        let known = check::used(std::slice::from_ref(n), &[]).iter().all(|i| i.is_empty() || scope.get(i).is_some());
        let is_op = check::function(&model.proto.functions, n).is_some()
            || model.operators().find(&n.domain, &n.op_type).is_some();
        if !is_op {
            report.state = State::Refused(format!("operator {} is not supported", report.op));
        } else if known {
            match run_node(&mut cx, n, &scope, model.opset(), 0) {
                Ok(made) => {
                    report.state = State::Supported;
                    for (name, v) in n.outputs.iter().zip(made).filter(|(o, _)| !o.is_empty()) {
                        scope.values.insert(name.clone(), v);
                    }
                }
                Err(e) => {
                    let lacks = matches!(e, Error::Unsupported { .. });
                    report.state = match cx.take_stop() {
                        Some(_) => State::AtRunTime,
                        None if guessed && !lacks => State::Unfit(plain(e, n)),
                        None => State::Refused(plain(e, n)),
                    };
                    cx.frames.clear();
                    cx.computed_for_node.clear();
                }
            }
        }
        for (name, what) in &mut report.outputs {
            if let (None, Some((dtype, elem, shape))) = (scope.get(name), declared(model, name)) {
                let v = unknown(&cx, dtype, elem, &shape)?;
                scope.values.insert(name.clone(), v);
            }
            *what = scope.get(name).filter(|v| v.is_tensor()).map(|v| (type_name(v), v.shape().to_vec()));
        }
        nodes.push(report);
    }
    Ok((nodes, taken))
}

/// The error's text without the node's name.
fn plain(e: Error, n: &super::proto::NodeProto) -> String {
    let text = check::name_node(e, n).to_string();
    let own = [format!(" (node {})", check::describe(n))];
    own.iter().fold(text, |t, o| t.replace(o.as_str(), ""))
}

fn type_name(v: &Value) -> String {
    if v.code_type() != 0 { elem_name(v.code_type()).to_owned() } else { v.dtype().name().to_owned() }
}

/// A value of this type and shape that is not known on the host.
fn unknown(cx: &Cx<'_>, dtype: DType, elem: i32, shape: &[usize]) -> Result<Value> {
    cx.check_shape(shape)?;
    let v = Value::lazy(Tensor::over_buffer(&cx.session, dtype, shape, None));
    Ok(if is_code_type(elem) { v.with_code_type(elem) } else { v })
}

/// Type and shape that the file declares for an intermediate value, if both are complete.
fn declared(model: &Model, name: &str) -> Option<(DType, i32, Vec<usize>)> {
    let info = model.proto.graph.value_info.iter().find(|i| i.name == name)?;
    let TypeProto::Tensor { elem, dims: Some(dims) } = &info.ty else { return None };
    let size = |d: &Dim| if let Dim::Value(n) = d { usize::try_from(*n).ok() } else { None };
    Some((dtype_of(*elem)?, *elem, dims.iter().map(size).collect::<Option<Vec<_>>>()?))
}
