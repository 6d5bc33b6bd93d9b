//! Parses the protobuf messages of an ONNX file into plain Rust structs. Names are owned strings, weights stay ranges
//! of the file.
//!
//! Only structure is checked here (wire types, UTF-8, sizes, depth, memory); `check` and `build` decide whether the
//! graph makes sense. Memory is limited to four times the file plus 64 MiB, whatever the file claims. Spec: onnx.proto
//! of <https://github.com/onnx/onnx>, IR versions 3 to 13.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::tensor::{TensorProto, parse_tensor};
use crate::error::{Error, Result};
use crate::io::protobuf::{Field, Message};

/// A whole model.
#[derive(Clone, Debug, Default)]
pub struct ModelProto {
    /// Version of the file format.
    pub ir_version: i64,
    /// The tool that wrote the file.
    pub producer: String,
    /// Operator set versions by domain; `""` is `ai.onnx`.
    pub opsets: Vec<OpsetId>,
    /// The graph.
    pub graph: GraphProto,
    /// Functions local to the model.
    pub functions: Vec<FunctionProto>,
    /// Free-form strings.
    pub metadata: Vec<(String, String)>,
}

/// A version of an operator set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpsetId {
    /// The domain; `""` is `ai.onnx`.
    pub domain: String,
    /// The version.
    pub version: i64,
}

/// A graph or subgraph.
#[derive(Clone, Debug, Default)]
pub struct GraphProto {
    /// Its name.
    pub name: String,
    /// Its nodes. The specification requires topological order, but not every exporter keeps it.
    pub nodes: Vec<NodeProto>,
    /// Its inputs; old files list initializers here too.
    pub inputs: Vec<ValueInfo>,
    /// Its outputs.
    pub outputs: Vec<ValueInfo>,
    /// Declared types of intermediate values.
    pub value_info: Vec<ValueInfo>,
    /// Constant tensors by name.
    pub initializers: Vec<TensorProto>,
    /// Names of sparse initializers, which are not supported.
    pub sparse_initializers: Vec<String>,
}

/// One operation.
#[derive(Clone, Debug, Default)]
pub struct NodeProto {
    /// Its name, often empty.
    pub name: String,
    /// The operator.
    pub op_type: String,
    /// The operator's domain; `""` is `ai.onnx`.
    pub domain: String,
    /// Names of the inputs; an empty one is an omitted optional input.
    pub inputs: Vec<String>,
    /// Names of the outputs; an empty one is not wanted.
    pub outputs: Vec<String>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// One named attribute.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: AttrValue,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub enum AttrValue {
    /// FLOAT
    Float(f32),
    /// INT
    Int(i64),
    /// STRING; ONNX does not promise UTF-8.
    Str(Vec<u8>),
    /// TENSOR
    Tensor(Box<TensorProto>),
    /// GRAPH: a subgraph of If, Loop or Scan.
    Graph(Box<GraphProto>),
    /// FLOATS
    Floats(Vec<f32>),
    /// INTS
    Ints(Vec<i64>),
    /// STRINGS
    Strings(Vec<Vec<u8>>),
    /// TENSORS
    Tensors(Vec<TensorProto>),
    /// GRAPHS
    Graphs(Vec<GraphProto>),
    /// Inside a function: the value of the caller's attribute of this name.
    Ref(String),
    /// A kind that is not supported: sparse tensors and type protos.
    Unsupported(&'static str),
}

/// A named value of a graph.
#[derive(Clone, Debug, Default)]
pub struct ValueInfo {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TypeProto,
}

/// The declared type of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TypeProto {
    /// Nothing.
    #[default]
    Unknown,
    /// A dense tensor.
    Tensor {
        /// ONNX's number of the element type; 0 is unknown.
        elem: i32,
        /// Its dimensions, if the rank is known.
        dims: Option<Vec<Dim>>,
    },
    /// A list of values of one type.
    Sequence(Box<TypeProto>),
    /// An optional value.
    Optional(Box<TypeProto>),
    /// `map` or `sparse tensor`.
    Other(&'static str),
}

/// One dimension of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A fixed size; some exporters write negative numbers for unknown sizes.
    Value(i64),
    /// A symbolic name.
    Param(String),
    /// Nothing is known.
    Unknown,
}

/// A function local to the model.
#[derive(Clone, Debug, Default)]
pub struct FunctionProto {
    /// Its name, used as an operator type.
    pub name: String,
    /// Its domain.
    pub domain: String,
    /// Its variant.
    pub overload: String,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    /// Names of its outputs.
    pub outputs: Vec<String>,
    /// Names of attributes that a caller must give.
    pub attributes: Vec<String>,
    /// Attributes with defaults.
    pub defaults: Vec<Attribute>,
    /// Its nodes.
    pub nodes: Vec<NodeProto>,
    /// Operator set versions that its nodes use.
    pub opsets: Vec<OpsetId>,
}

/// The memory that a parse may still use.
pub(super) struct Budget {
    left: usize,
}

impl Budget {
    pub(super) fn of(file: &[u8]) -> Budget {
        Budget { left: file.len().saturating_mul(4).saturating_add(64 << 20) }
    }

    pub(super) fn charge(&mut self, bytes: usize, f: &Field<'_>) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(bad("too many parts for the size of the file", f)),
        }
        Ok(())
    }

    /// Appends to a list. Charges twice the element's size, since a growing vector doubles its capacity.
    pub(super) fn push<T>(&mut self, list: &mut Vec<T>, item: T, f: &Field<'_>) -> Result<()> {
        self.charge(2 * size_of::<T>(), f)?;
        list.push(item);
        Ok(())
    }

    pub(super) fn string(&mut self, f: &Field<'_>) -> Result<String> {
        let s = f.str()?;
        self.charge(s.len(), f)?;
        Ok(s.to_owned())
    }

    fn push_string(&mut self, list: &mut Vec<String>, f: &Field<'_>) -> Result<()> {
        let s = self.string(f)?;
        self.push(list, s, f)
    }
}

pub(super) fn bad(what: impl Into<String>, f: &Field<'_>) -> Error {
    Error::format("onnx", what, Some(f.at as u64))
}

/// Turns an error of the protobuf reader into one about the ONNX format.
pub(super) fn as_onnx(e: Error) -> Error {
    match e {
        Error::Format { what, at, .. } => Error::Format { format: "onnx", what, at },
        e => e,
    }
}

/// Parses a model file.
pub fn parse_model(file: &[u8]) -> Result<ModelProto> {
    model(file, &mut Budget::of(file)).map_err(as_onnx)
}

fn model(file: &[u8], b: &mut Budget) -> Result<ModelProto> {
    let mut m = Message::new(file);
    let mut model = ModelProto::default();
    let mut graph = None;
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => model.ir_version = f.i64()?,
            2 => model.producer = b.string(&f)?,
            7 if graph.is_some() => return Err(bad("the model has two graphs", &f)),
            7 => graph = Some(parse_graph(f.message()?, b)?),
            8 => {
                let id = opset(f.message()?, b)?;
                b.push(&mut model.opsets, id, &f)?;
            }
            14 => {
                let pair = string_pair(f.message()?, b)?;
                b.push(&mut model.metadata, pair, &f)?;
            }
            25 => {
                let function = function(f.message()?, b)?;
                b.push(&mut model.functions, function, &f)?;
            }
            _ => {}
        }
    }
    model.graph = graph.ok_or_else(|| Error::format("onnx", "the file holds no graph", None))?;
    if model.opsets.is_empty() {
        return Err(Error::format("onnx", "the file names no operator set", None));
    }
    Ok(model)
}

fn opset(mut m: Message<'_>, b: &mut Budget) -> Result<OpsetId> {
    let mut id = OpsetId::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => id.domain = domain(&f, b)?,
            2 => id.version = f.i64()?,
            _ => {}
        }
    }
    Ok(id)
}

/// The domain of an operator or operator set; `ai.onnx` is another name for the empty domain.
fn domain(f: &Field<'_>, b: &mut Budget) -> Result<String> {
    let name = b.string(f)?;
    Ok(if name == "ai.onnx" { String::new() } else { name })
}

pub(super) fn string_pair(mut m: Message<'_>, b: &mut Budget) -> Result<(String, String)> {
    let mut pair = (String::new(), String::new());
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => pair.0 = b.string(&f)?,
            2 => pair.1 = b.string(&f)?,
            _ => {}
        }
    }
    Ok(pair)
}

fn function(mut m: Message<'_>, b: &mut Budget) -> Result<FunctionProto> {
    let mut function = FunctionProto::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => function.name = b.string(&f)?,
            4 => b.push_string(&mut function.inputs, &f)?,
            5 => b.push_string(&mut function.outputs, &f)?,
            6 => b.push_string(&mut function.attributes, &f)?,
            7 => {
                let node = node(f.message()?, b)?;
                b.push(&mut function.nodes, node, &f)?;
            }
            9 => {
                let id = opset(f.message()?, b)?;
                b.push(&mut function.opsets, id, &f)?;
            }
            10 => function.domain = domain(&f, b)?,
            11 => {
                let default = attribute(f.message()?, b)?;
                b.push(&mut function.defaults, default, &f)?;
            }
            13 => function.overload = b.string(&f)?,
            _ => {}
        }
    }
    Ok(function)
}

/// Parses a graph. Recursion is bounded by the depth limit of [`Message`].
fn parse_graph(mut m: Message<'_>, b: &mut Budget) -> Result<GraphProto> {
    let mut g = GraphProto::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => {
                let node = node(f.message()?, b)?;
                b.push(&mut g.nodes, node, &f)?;
            }
            2 => g.name = b.string(&f)?,
            5 => {
                let tensor = parse_tensor(f.message()?, b)?;
                b.push(&mut g.initializers, tensor, &f)?;
            }
            11..=13 => {
                let info = value_info(f.message()?, b)?;
                let list = match f.number {
                    11 => &mut g.inputs,
                    12 => &mut g.outputs,
                    _ => &mut g.value_info,
                };
                b.push(list, info, &f)?;
            }
            15 => {
                let name = sparse_name(f.message()?, b)?;
                b.push(&mut g.sparse_initializers, name, &f)?;
            }
            _ => {}
        }
    }
    Ok(g)
}

/// The name of a sparse tensor, which is that of its values.
fn sparse_name(mut m: Message<'_>, b: &mut Budget) -> Result<String> {
    while let Some(f) = m.next_field()? {
        if f.number == 1 {
            return Ok(parse_tensor(f.message()?, b)?.name);
        }
    }
    Ok(String::new())
}

fn node(mut m: Message<'_>, b: &mut Budget) -> Result<NodeProto> {
    let mut n = NodeProto::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => b.push_string(&mut n.inputs, &f)?,
            2 => b.push_string(&mut n.outputs, &f)?,
            3 => n.name = b.string(&f)?,
            4 => n.op_type = b.string(&f)?,
            5 => {
                let a = attribute(f.message()?, b)?;
                if n.attributes.iter().any(|other| other.name == a.name) {
                    return Err(bad(format!("the attribute `{}` of node `{}` appears twice", a.name, n.name), &f));
                }
                // The check above is quadratic in their number.
                if n.attributes.len() >= 256 {
                    return Err(bad(format!("node `{}` has too many attributes", n.name), &f));
                }
                b.push(&mut n.attributes, a, &f)?;
            }
            7 => n.domain = domain(&f, b)?,
            _ => {}
        }
    }
    Ok(n)
}

/// The fields of an attribute; its `type` says which one is the value.
#[derive(Default)]
struct Parts {
    name: String,
    kind: i32,
    float: f32,
    int: i64,
    string: Vec<u8>,
    tensor: Option<Box<TensorProto>>,
    graph: Option<Box<GraphProto>>,
    floats: Vec<f32>,
    ints: Vec<i64>,
    strings: Vec<Vec<u8>>,
    tensors: Vec<TensorProto>,
    graphs: Vec<GraphProto>,
    reference: String,
    seen: u32,
}

fn attribute(mut m: Message<'_>, b: &mut Budget) -> Result<Attribute> {
    let at = m.span().start as u64;
    let mut p = Parts::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => p.name = b.string(&f)?,
            2 => p.float = f.f32()?,
            3 => p.int = f.i64()?,
            4 => p.string = bytes(&f, b)?,
            5 => p.tensor = Some(Box::new(parse_tensor(f.message()?, b)?)),
            6 => p.graph = Some(Box::new(parse_graph(f.message()?, b)?)),
            7 => floats(&f, &mut p.floats, b)?,
            8 => f.varints(|v| b.push(&mut p.ints, v as i64, &f))?,
            9 => {
                let s = bytes(&f, b)?;
                b.push(&mut p.strings, s, &f)?;
            }
            10 => {
                let t = parse_tensor(f.message()?, b)?;
                b.push(&mut p.tensors, t, &f)?;
            }
            11 => {
                let g = parse_graph(f.message()?, b)?;
                b.push(&mut p.graphs, g, &f)?;
            }
            20 => p.kind = f.i32()?,
            21 => p.reference = b.string(&f)?,
            _ => {}
        }
        if f.number < 32 {
            p.seen |= 1 << f.number;
        }
    }
    let (name, kind) = (p.name, p.kind);
    let missing = || Error::format("onnx", format!("attribute `{name}` of type {kind} has no value"), Some(at));
    let value = if !p.reference.is_empty() {
        AttrValue::Ref(p.reference)
    } else {
        match if kind == 0 { kind_of(p.seen) } else { kind } {
            1 => AttrValue::Float(p.float),
            2 => AttrValue::Int(p.int),
            3 => AttrValue::Str(p.string),
            4 => AttrValue::Tensor(p.tensor.ok_or_else(missing)?),
            5 => AttrValue::Graph(p.graph.ok_or_else(missing)?),
            6 => AttrValue::Floats(p.floats),
            7 => AttrValue::Ints(p.ints),
            8 => AttrValue::Strings(p.strings),
            9 => AttrValue::Tensors(p.tensors),
            10 => AttrValue::Graphs(p.graphs),
            11 | 12 => AttrValue::Unsupported("sparse tensor"),
            13 | 14 => AttrValue::Unsupported("type"),
            _ => return Err(missing()),
        }
    };
    Ok(Attribute { name, value })
}

/// The type of an attribute by the field that is present; files of IR versions 1 and 2 do not state the type.
fn kind_of(seen: u32) -> i32 {
    (2..=11).find(|n| seen & (1 << n) != 0).map_or(0, |n| n - 1)
}

fn bytes(f: &Field<'_>, b: &mut Budget) -> Result<Vec<u8>> {
    let s = f.bytes()?;
    b.charge(s.len(), f)?;
    Ok(s.to_vec())
}

fn floats(f: &Field<'_>, out: &mut Vec<f32>, b: &mut Budget) -> Result<()> {
    if let Some(one) = f.single32() {
        return b.push(out, f32::from_le_bytes(one), f);
    }
    let packed = f.fixed32s()?;
    b.charge(2 * packed.len(), f)?;
    let value = |c: &[u8]| c.try_into().map(f32::from_le_bytes).unwrap_or_default();
    out.extend(packed.chunks_exact(4).map(value));
    Ok(())
}

fn value_info(mut m: Message<'_>, b: &mut Budget) -> Result<ValueInfo> {
    let mut info = ValueInfo::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => info.name = b.string(&f)?,
            2 => info.ty = type_proto(f.message()?, b)?,
            _ => {}
        }
    }
    Ok(info)
}

fn type_proto(mut m: Message<'_>, b: &mut Budget) -> Result<TypeProto> {
    let mut ty = TypeProto::Unknown;
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => ty = tensor_type(f.message()?, b)?,
            4 => ty = TypeProto::Sequence(Box::new(element_type(f.message()?, b)?)),
            5 => ty = TypeProto::Other("map"),
            8 => ty = TypeProto::Other("sparse tensor"),
            9 => ty = TypeProto::Optional(Box::new(element_type(f.message()?, b)?)),
            _ => {}
        }
    }
    Ok(ty)
}

/// The element type of a sequence or optional. Recursion is bounded by the depth limit of [`Message`].
fn element_type(mut m: Message<'_>, b: &mut Budget) -> Result<TypeProto> {
    let mut ty = TypeProto::Unknown;
    while let Some(f) = m.next_field()? {
        if f.number == 1 {
            ty = type_proto(f.message()?, b)?;
        }
    }
    Ok(ty)
}

fn tensor_type(mut m: Message<'_>, b: &mut Budget) -> Result<TypeProto> {
    let (mut elem, mut dims) = (0, None);
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => elem = f.i32()?,
            2 => {
                let mut shape = f.message()?;
                let list = dims.get_or_insert_with(Vec::new);
                while let Some(d) = shape.next_field()? {
                    if d.number == 1 {
                        let dim = dim(d.message()?, b)?;
                        b.push(list, dim, &d)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(TypeProto::Tensor { elem, dims })
}

fn dim(mut m: Message<'_>, b: &mut Budget) -> Result<Dim> {
    let mut dim = Dim::Unknown;
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => dim = Dim::Value(f.i64()?),
            2 => dim = Some(b.string(&f)?).filter(|s| !s.is_empty()).map_or(Dim::Unknown, Dim::Param),
            _ => {}
        }
    }
    Ok(dim)
}
