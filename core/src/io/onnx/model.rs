//! A parsed and checked model: its file, its graph, and the graph's inputs and outputs ([`Port`]).

use std::borrow::Cow;
use std::sync::Arc;

use super::check;
use super::ops::Operators;
use super::proto::{Dim, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfo, parse_model};
use super::strings::{STRING, Strings};
use super::tensor::{ExternalData, NoExternalData, TensorData, TensorProto, dtype_of, elem_name};
use crate::budget::Budget;
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::io::HostTensor;

/// The most elements of an integer input that may be a value input ([`Port::is_value`]), with a plan for each of its
/// values.
const MAX_VALUE_INPUT_ELEMS: usize = 16;

/// A parsed and checked model. It keeps the file's bytes, which hold the weights.
pub struct Model {
    file: Bytes,
    external: Arc<dyn ExternalData + Send + Sync>,
    pub(super) proto: ModelProto,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    operators: Operators,
    is_random: bool,
    strings: Arc<Strings>,
    budget: Budget,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Element type; `None` where the file does not say. Elements of types that no device supports are fed and read in
    /// another dtype: 8-bit floats and integers of 2 and 4 bits as codes of one byte, strings as i32
    /// ([`Model::strings`]).
    pub dtype: Option<DType>,
    /// ONNX's number of the element type (`TensorProto.DataType`), 0 where the file does not say.
    pub elem: i32,
    /// Dimensions; `None` where the file does not state the rank.
    pub dims: Option<Vec<Dim>>,
    /// True for a sequence of tensors. Each element is fed and read under the name `name[i]`; the type is that of an
    /// element.
    pub is_sequence: bool,
    /// True if the input may be omitted.
    pub is_optional: bool,
    /// True for a small integer input whose value decides shapes or branches. Feed it as [`super::Feed::Known`]; a plan
    /// then holds for one value of it.
    pub is_value: bool,
}

impl Port {
    /// True for a tensor of strings or a sequence of such tensors.
    pub fn is_string(&self) -> bool {
        self.elem == STRING
    }

    /// Checks a shape against the declared dimensions.
    pub fn accepts(&self, dtype: DType, shape: &[usize]) -> Result<()> {
        let bad = |what: String| Err(Error::Input { name: self.name.clone(), what });
        if let Some(want) = self.dtype.filter(|&d| d != dtype) {
            return bad(format!("dtype {dtype} was given, {want} is wanted"));
        }
        let Some(dims) = &self.dims else { return Ok(()) };
        let fits = |(d, &n): (&Dim, &usize)| !matches!(*d, Dim::Value(v) if v >= 0 && v as u64 != n as u64);
        if dims.len() != shape.len() || !dims.iter().zip(shape).all(fits) {
            return bad(format!("shape {shape:?} was given, {} is wanted", show_dims(dims)));
        }
        Ok(())
    }
}

/// Dimensions as text: `[1, batch, ?]`.
pub fn show_dims(dims: &[Dim]) -> String {
    let show = |d: &Dim| match d {
        Dim::Value(v) if *v >= 0 => v.to_string(),
        Dim::Param(name) => name.clone(),
        _ => "?".to_owned(),
    };
    format!("[{}]", dims.iter().map(show).collect::<Vec<_>>().join(", "))
}

impl Model {
    /// Parses and checks a model whose weights are all in the model file.
    pub fn parse(file: impl Into<Bytes>) -> Result<Model> {
        Model::parse_with(file, Arc::new(NoExternalData))
    }

    /// Parses and checks a model whose weights may lie in other files.
    pub fn parse_with(file: impl Into<Bytes>, external: Arc<dyn ExternalData + Send + Sync>) -> Result<Model> {
        Model::parse_of(file.into(), external, Operators::all())
    }

    /// As [`Model::parse_with`], with a restricted set of operators; a model that uses others is refused.
    pub fn parse_of(file: Bytes, external: Arc<dyn ExternalData + Send + Sync>, operators: Operators) -> Result<Model> {
        let mut proto = parse_model(&file)?;
        check::check_model(&mut proto, operators)?;
        let constants: Vec<&str> = proto.graph.initializers.iter().map(|t| t.name.as_str()).collect();
        // Files of an ONNX IR version below 4 list initializers as graph inputs too.
        let given = proto.graph.inputs.iter().filter(|i| !constants.contains(&i.name.as_str()));
        let inputs = given.map(port).collect::<Result<Vec<_>>>()?;
        let outputs = proto.graph.outputs.iter().map(port).collect::<Result<_>>()?;
        Ok(Model::of(file, external, proto, inputs, outputs, operators))
    }

    /// A model from a graph that was checked.
    pub(super) fn of(
        file: Bytes,
        external: Arc<dyn ExternalData + Send + Sync>,
        proto: ModelProto,
        mut inputs: Vec<Port>,
        outputs: Vec<Port>,
        operators: Operators,
    ) -> Model {
        let demand = check::demand(&proto, operators);
        for port in &mut inputs {
            // Only small integer inputs qualify: they are shapes, axes or flags, not data.
            let small = |d: &Dim| if let Dim::Value(n) = d { usize::try_from(*n).ok() } else { None };
            let count = |d: &Vec<Dim>| d.iter().map(small).try_fold(1, |n: usize, d| n.checked_mul(d?));
            let few = port.dims.as_ref().and_then(count).is_some_and(|n| n <= MAX_VALUE_INPUT_ELEMS)
                && port.dtype.is_some_and(|d| !d.is_float())
                && port.elem != STRING
                && !port.is_sequence
                && !port.is_optional;
            let at = proto.graph.inputs.iter().position(|i| i.name == port.name);
            port.is_value = few && at.is_some_and(|i| demand.hard.contains(&i) || demand.soft.contains(&i));
        }
        let is_random = check::any_node(&proto, &|n| operators.find(&n.domain, &n.op_type).is_some_and(|o| o.draws));
        let (strings, budget) = (Arc::default(), Budget::default());
        Model { file, external, inputs, outputs, operators, is_random, strings, proto, budget }
    }

    /// This model with another graph, with the same strings and budget.
    pub(super) fn with_graph(&self, proto: ModelProto, outputs: Vec<Port>) -> Model {
        let (file, external, inputs) = (self.file.clone(), self.external.clone(), self.inputs.clone());
        let model = Model::of(file, external, proto, inputs, outputs, self.operators);
        Model { strings: self.strings.clone(), ..model }.with_budget(self.budget)
    }

    /// This model with other limits on what a build or a run of it may allocate; beyond them both fail with `E_BUDGET`.
    pub fn with_budget(mut self, budget: Budget) -> Model {
        self.budget = budget;
        self
    }

    /// The limits on what a build or a run may allocate.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The operators that the model may use.
    pub(super) fn operators(&self) -> Operators {
        self.operators
    }

    /// The inputs that a caller feeds, without initializers.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The input that is fed under this name: the input's own name, or that of a sequence element, `name[i]`.
    pub fn input(&self, name: &str) -> Option<&Port> {
        self.place(name).map(|p| p.0)
    }

    /// The input that is fed under this name, and the index of the element if the input is a sequence.
    pub(super) fn place(&self, name: &str) -> Option<(&Port, Option<usize>)> {
        let find =
            |name: &str, sequence: bool| self.inputs.iter().find(|p| p.name == name && p.is_sequence == sequence);
        if let Some(p) = find(name, false) {
            return Some((p, None));
        }
        let (base, at) = name.strip_suffix(']')?.rsplit_once('[')?;
        Some((find(base, true)?, Some(at.parse().ok()?)))
    }

    /// The outputs.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The version of the `ai.onnx` operator set.
    pub fn opset(&self) -> i64 {
        let find = |domain: &str| self.proto.opsets.iter().find(|o| o.domain == domain).map(|o| o.version);
        find("").unwrap_or(1)
    }

    /// The tool that wrote the file.
    pub fn producer(&self) -> &str {
        &self.proto.producer
    }

    /// The main graph; its nodes are those that will run, in execution order.
    pub fn graph(&self) -> &GraphProto {
        &self.proto.graph
    }

    /// The nodes of the main graph that will run, in execution order; subgraphs are not listed.
    pub fn nodes(&self) -> &[NodeProto] {
        &self.proto.graph.nodes
    }

    /// The table of strings that string tensors index.
    pub(super) fn table(&self) -> &Strings {
        &self.strings
    }

    /// True if the model draws random numbers.
    pub fn is_random(&self) -> bool {
        self.is_random
    }

    /// Number of parameters: the elements of all initializers of the main graph.
    pub fn parameters(&self) -> u64 {
        let count = |t: &TensorProto| crate::io::element_count(&t.shape).unwrap_or(0) as u64;
        self.proto.graph.initializers.iter().map(count).sum()
    }

    /// The model's file.
    pub(super) fn file_bytes(&self) -> &[u8] {
        &self.file
    }

    /// The bytes of a tensor as they are stored, in the model file or in another one.
    pub(super) fn stored(&self, t: &TensorProto) -> Result<Vec<u8>> {
        let TensorData::External(r) = &t.data else { return Ok(self.bytes(t)?.into_owned()) };
        t.external_bytes(r, &*self.external)
    }

    /// The bytes of a constant tensor; strings as i32 indices into the table of strings.
    pub(super) fn bytes<'a>(&'a self, t: &'a TensorProto) -> Result<Cow<'a, [u8]>> {
        match &t.data {
            TensorData::Strings(list) => self.strings.encode(t, list).map(Cow::Owned),
            _ => t.bytes(&self.file, &*self.external),
        }
    }

    /// As [`Model::bytes`], but shared: a range of the file, or a copy where the bytes are not in the file.
    pub(super) fn shared(&self, t: &TensorProto) -> Result<Bytes> {
        if let TensorData::File(span) = &t.data
            && let Some(end) = span.start.checked_add(span.len)
            && let Some(bytes) = self.file.slice(span.start..end)
        {
            return Ok(bytes);
        }
        Ok(Bytes::new(self.bytes(t)?.into_owned()))
    }

    /// A constant tensor as host data.
    pub(super) fn tensor(&self, t: &TensorProto) -> Result<HostTensor> {
        HostTensor::new(t.dtype()?, t.shape.clone(), self.bytes(t)?.into_owned())
    }
}

pub(super) fn port(info: &ValueInfo) -> Result<Port> {
    let (mut ty, mut is_sequence, mut is_optional) = (&info.ty, false, false);
    loop {
        ty = match ty {
            TypeProto::Optional(inner) if !is_optional && !is_sequence => {
                is_optional = true;
                inner
            }
            TypeProto::Sequence(inner) if !is_sequence => {
                is_sequence = true;
                inner
            }
            _ => break,
        }
    }
    let (elem, dtype, dims) = match ty {
        TypeProto::Unknown => (0, None, None),
        TypeProto::Tensor { elem: 0, dims } => (0, None, dims.clone()),
        TypeProto::Tensor { elem, dims } => {
            let dtype = dtype_of(*elem).ok_or_else(|| Error::Unsupported {
                what: format!("element type {}", elem_name(*elem)),
                context: format!("`{}`", info.name),
            })?;
            (*elem, Some(dtype), dims.clone())
        }
        other => {
            let kind = match other {
                TypeProto::Other(kind) => kind,
                TypeProto::Sequence(_) => "sequence of sequences",
                _ => "sequence of optionals",
            };
            let context = format!("`{}`", info.name);
            return Err(Error::Unsupported { what: format!("values of type {kind}"), context });
        }
    };
    Ok(Port { name: info.name.clone(), dtype, elem, dims, is_sequence, is_optional, is_value: false })
}
