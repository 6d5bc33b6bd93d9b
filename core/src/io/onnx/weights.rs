//! Finds the weights of a model: float tensors that nodes multiply with, add or look up, as layers use their learned
//! parameters. In: a checked graph. Out: names, shapes and dtypes of the weights, and for each how a low-rank adapter
//! can be applied.
//!
//! An ONNX file does not distinguish weights from other constants, but operators do: [`LEARNED`] lists the inputs that
//! layers learn, and operators that only move elements ([`MOVES`]) are followed through. A tensor with one element is
//! taken for a plain constant (a scale factor, a bound), except where it is added as a bias.

use super::check;
use super::model::Model;
use super::proto::{AttrValue, FunctionProto, NodeProto};
use super::tensor::{TensorData, TensorProto, elem_name, is_code_type};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::util::sort;

/// A tensor of a model that can be trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its name in the file.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// The dtype in which the file stores it.
    pub dtype: DType,
}

/// How a low-rank term is applied to a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdapterForm {
    /// Each multiplying node is built once more with the adapter's first factor in the weight's place; the weight is
    /// `[in, out]`, as for MatMul.
    Columns,
    /// As `Columns`, for a weight `[out, in, ..]`, as for Conv.
    Rows,
    /// The low-rank product is added to the weight, for all its uses.
    Sum,
}

/// How a constant is used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Role {
    /// It is an input that a layer learns.
    learned: bool,
    /// A layer multiplies its input with it (MatMul, Gemm, Conv).
    pub(super) multiplied: bool,
    /// The way that fits all nodes that use it; `None` if they differ or one needs the sum.
    direct: Option<AdapterForm>,
    uses: usize,
    steps: usize,
}

impl Role {
    /// True for a float tensor that layers learn.
    pub(super) fn is_weight(&self, t: &TensorProto) -> bool {
        self.learned && float(t).is_some()
    }

    /// How an adapter is applied.
    pub(super) fn adapter_form(&self) -> AdapterForm {
        self.direct.unwrap_or(AdapterForm::Sum)
    }
}

/// The inputs that layers learn: domain, operator, and a mask with bit `i` for input `i`.
const LEARNED: &[(&str, &str, u32)] = &[
    ("", "MatMul", 0b11),
    ("", "Gemm", 0b111),
    ("", "Conv", 0b110),
    ("", "ConvTranspose", 0b110),
    ("", "Einsum", u32::MAX),
    ("", "Gather", 0b1),
    ("", "Add", 0b11),
    ("", "Sub", 0b11),
    ("", "Mul", 0b11),
    ("", "Div", 0b11),
    ("", "Sum", u32::MAX),
    ("", "PRelu", 0b10),
    ("", "BatchNormalization", 0b110),
    ("", "InstanceNormalization", 0b110),
    ("", "GroupNormalization", 0b110),
    ("", "LayerNormalization", 0b110),
    ("", "SimplifiedLayerNormalization", 0b10),
    ("", "RMSNormalization", 0b10),
    ("", "LSTM", 0b1000_1110),
    ("", "GRU", 0b1110),
    ("", "RNN", 0b1110),
    ("com.microsoft", "FusedMatMul", 0b11),
    ("com.microsoft", "TransposeMatMul", 0b11),
    ("com.microsoft", "FusedConv", 0b110),
    ("com.microsoft", "SkipLayerNormalization", 0b11100),
    ("com.microsoft", "SkipSimplifiedLayerNormalization", 0b1100),
    ("com.microsoft", "EmbedLayerNormalization", 0b111_1100),
    ("com.microsoft", "GroupNorm", 0b110),
    ("com.microsoft", "BiasGelu", 0b10),
    ("com.microsoft", "FastGelu", 0b10),
    ("com.microsoft", "Attention", 0b110),
];

/// Operators whose results are elements of their first input (of all inputs for `Concat`), moved or cast.
#[rustfmt::skip]
const MOVES: &[&str] = &[
    "Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Slice", "Concat", "Split", "Tile", "Cast",
];

/// The most uses that are followed for one constant, a guard against files with endless chains of uses.
const MAX_STEPS: usize = 1 << 10;

/// All uses of values: the value's name, the node, and the index among the node's inputs; sorted by name.
type Uses<'m> = Vec<(&'m str, &'m NodeProto, usize)>;

fn uses_of(nodes: &[NodeProto]) -> Uses<'_> {
    fn collect<'m>(nodes: &'m [NodeProto], out: &mut Uses<'m>) {
        for n in nodes {
            out.extend(n.inputs.iter().enumerate().map(|(i, name)| (name.as_str(), n, i)));
            check::subgraphs(n).for_each(|g| collect(&g.nodes, out));
        }
    }
    let mut out = Vec::new();
    collect(nodes, &mut out);
    sort::by_key(&mut out, |u| u.0);
    out
}

/// Matches a name against a pattern in which `*` stands for any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

impl Model {
    /// The weights that can be trained, in the file's order: float tensors that layers multiply with, add or look up.
    /// The running means and variances of batch normalisation are not weights, nor are quantised tensors.
    pub fn weights(&self) -> Vec<Weight> {
        let listed = self.roles().into_iter().filter(|(t, role)| role.is_weight(t));
        listed.filter_map(|(t, _)| Some(Weight { name: t.name, shape: t.shape, dtype: float_of(t.elem)? })).collect()
    }

    /// The constants of the main graph, including those of `Constant` nodes (by the name of their output).
    pub(super) fn constants(&self) -> Vec<TensorProto> {
        let mut out = self.proto.graph.initializers.clone();
        for n in self.nodes() {
            out.extend(constant_of(n));
        }
        out
    }

    /// The numbers that the file stores for its main graph, by name and in the file's order: weights and all other
    /// constants except strings.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for element types that are not read, and the errors of files in which weights lie.
    pub fn stored_tensors(&self) -> Result<Vec<(String, HostTensor)>> {
        let all = self.constants().into_iter().filter(|t| !matches!(t.data, TensorData::Strings(_)));
        all.map(|t| {
            let held = HostTensor::new(t.dtype()?, t.shape.clone(), self.bytes(&t)?.into_owned())?;
            Ok((t.name, held))
        })
        .collect()
    }

    /// The constants of the main graph with the way each is used.
    pub(super) fn roles(&self) -> Vec<(TensorProto, Role)> {
        let uses = uses_of(self.nodes());
        let of = |t: TensorProto| {
            let mut role = Role::default();
            let is_single_element = t.shape.iter().all(|&n| n == 1);
            let it = Walk { functions: &self.proto.functions, is_single_element, scalar: t.shape.is_empty() };
            it.walk(&uses, &t.name, 0, &mut role);
            (t, role)
        };
        self.constants().into_iter().map(of).collect()
    }

    /// Indices of the constants in `all` that patterns select, in order. A pattern with `*` selects candidates only; an
    /// exact name may be that of any float constant.
    ///
    /// # Errors
    /// `E_DTYPE` for the name of a tensor that holds no floats, `E_VALUE` for a pattern that selects nothing.
    pub(super) fn choose(
        &self,
        patterns: &[String],
        all: &[(TensorProto, Role)],
        is_candidate: &dyn Fn(&TensorProto, &Role) -> bool,
    ) -> Result<Vec<usize>> {
        let mut chosen = vec![false; all.len()];
        for pattern in patterns {
            let exact = !pattern.contains('*');
            let (mut found, mut refused) = (false, None);
            for (i, (t, role)) in all.iter().enumerate().filter(|(_, (t, _))| matches(pattern, &t.name)) {
                if float(t).is_none() {
                    refused = refused.or(Some(t));
                } else if exact || is_candidate(t, role) {
                    (chosen[i], found) = (true, true);
                }
            }
            match refused {
                _ if found => {}
                Some(t) => return Err(no_float(t)),
                None => {
                    let names = all.iter().filter(|(t, r)| float(t).is_some() && is_candidate(t, r));
                    let names: Vec<&str> = names.map(|(t, _)| t.name.as_str()).collect();
                    let some = names.iter().take(4).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
                    let more = names.len().saturating_sub(4);
                    let what = format!("no weight is called `{pattern}`; there are {some} and {more} more");
                    return Err(Error::value("train", what));
                }
            }
        }
        Ok((0..all.len()).filter(|&i| chosen[i]).collect())
    }

    /// The error for a model with nothing to train; it names the largest constant that holds no floats, if that is
    /// larger than 16 elements.
    pub(super) fn nothing_to_train(&self) -> Error {
        let size = |t: &&TensorProto| t.shape.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let all = self.constants();
        match all.iter().filter(|t| float(t).is_none()).max_by_key(size).filter(|t| size(t) > 16) {
            Some(t) => no_float(t),
            None => Error::value("train", "the model has no weights".to_owned()),
        }
    }
}

/// The tensor of a `Constant` node, under the name of the node's output.
pub(super) fn constant_of(n: &NodeProto) -> Option<TensorProto> {
    let value =
        n.attributes.iter().find(|a| a.name == "value").filter(|_| n.op_type == "Constant" && n.domain.is_empty());
    match (&value?.value, n.outputs.first()) {
        (AttrValue::Tensor(t), Some(name)) => Some(TensorProto { name: name.clone(), ..(**t).clone() }),
        _ => None,
    }
}

fn float_of(elem: i32) -> Option<DType> {
    super::tensor::dtype_of(elem).filter(|d| d.is_float() && !is_code_type(elem))
}

/// The dtype of a float tensor; `None` for other tensors.
fn float(t: &TensorProto) -> Option<DType> {
    t.dtype().ok().and_then(|_| float_of(t.elem))
}

fn no_float(t: &TensorProto) -> Error {
    let dtype = super::tensor::dtype_of(t.elem).unwrap_or(DType::Void);
    let why = format!("`{}` holds {}, and what is trained holds floats", t.name, elem_name(t.elem));
    Error::DType { op: "train", dtype, why }
}

/// A walk over the uses of one constant. `is_single_element`: it has one element. `scalar`: it has rank 0.
struct Walk<'m> {
    functions: &'m [FunctionProto],
    is_single_element: bool,
    scalar: bool,
}

impl Walk<'_> {
    /// Visits the uses of a value, and of the results of operators that only move its elements.
    fn walk(&self, uses: &Uses<'_>, name: &str, depth: usize, role: &mut Role) {
        let first = uses.partition_point(|u| u.0 < name);
        for (_, node, at) in uses.iter().skip(first).take_while(|u| u.0 == name) {
            role.steps += 1;
            if role.steps > MAX_STEPS {
                return;
            }
            if let Some(f) = check::function(self.functions, node) {
                role.note(None);
                if let Some(name) = f.inputs.get(*at).filter(|_| depth < check::MAX_CALLS) {
                    self.walk(&uses_of(&f.nodes), name, depth + 1, role);
                }
                continue;
            }
            let op = node.op_type.as_str();
            if node.domain.is_empty() && MOVES.contains(&op) && (*at == 0 || op == "Concat") {
                role.note(None);
                if depth < check::MAX_CALLS {
                    node.outputs.iter().filter(|o| !o.is_empty()).for_each(|o| self.walk(uses, o, depth + 1, role));
                }
                continue;
            }
            let row = LEARNED.iter().find(|r| r.0 == node.domain && r.1 == op);
            let number = self.is_single_element
                && matches!(op, "Add" | "Sub" | "Mul" | "Div" | "Sum")
                && (op != "Add" || self.scalar);
            role.learned |= row.is_some_and(|r| r.2 >> (*at).min(31) & 1 == 1) && !number;
            role.multiplied |= *at == 1 && row.is_some() && matches!(op, "MatMul" | "Gemm" | "Conv");
            role.note(if depth == 0 && *at == 1 { direct(node) } else { None });
        }
    }
}

impl Role {
    /// Records one more use, and the way that fits it (`None`: only the sum does).
    fn note(&mut self, form: Option<AdapterForm>) {
        self.direct = if self.uses == 0 || self.direct == form { form } else { None };
        self.uses += 1;
    }
}

/// How an adapter is applied to a node's product with its second input, if the node can be built again with another
/// matrix there.
fn direct(n: &NodeProto) -> Option<AdapterForm> {
    let int = |name: &str, default: i64| match n.attributes.iter().find(|a| a.name == name).map(|a| &a.value) {
        Some(AttrValue::Int(v)) => *v,
        None => default,
        Some(_) => -1,
    };
    match n.op_type.as_str() {
        _ if !n.domain.is_empty() => None,
        "MatMul" => Some(AdapterForm::Columns),
        "Gemm" if int("transB", 0) == 0 => Some(AdapterForm::Columns),
        "Gemm" => Some(AdapterForm::Rows),
        "Conv" if int("group", 1) == 1 => Some(AdapterForm::Rows),
        _ => None,
    }
}
