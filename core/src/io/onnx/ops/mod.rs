//! The tables of ONNX operators, and the accessors that operators share: inputs, attributes and operator set version.

mod attention;
mod cast;
mod contrib;
mod control;
mod detect;
mod elementwise;
mod index;
mod loss;
mod ml;
mod moe;
mod nn;
mod norm;
mod packed;
mod quant;
mod random;
mod reduce;
mod resize;
mod rnn;
mod sample;
mod sequence;
mod shape;
mod signal;
mod strings;
mod trees;

use super::build::Scope;
use super::check::describe;
use super::proto::{AttrValue, NodeProto};
use super::stage::{Call, Continuation};
use super::tensor::TensorProto;
use super::value::{Cx, Value};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::util::sort;
use std::sync::Arc;

/// Builds one node; returns its outputs in order.
pub(super) type Build = fn(&mut Op<'_, '_>) -> Result<Vec<Value>>;

/// The definition of one operator.
pub(super) struct OpDef {
    pub(super) domain: &'static str,
    pub(super) name: &'static str,
    /// Bit `i` is set if the value of input `i` must be known when the graph is built; where it is not, the build stops
    /// for it. Bit 31 also stands for all later inputs.
    pub(super) known: u32,
    /// Bit `i` is set if input `i` is a float tensor in every operator set. Bit 31 also stands for all later inputs.
    pub(super) floats: u32,
    /// True if it runs on the host, on known values. The build then continues with its results as inputs, whatever
    /// their values; only their shapes matter.
    pub(super) host: bool,
    /// True if it accepts sequences and optionals without a value.
    pub(super) any: bool,
    /// True if it draws random numbers.
    pub(super) draws: bool,
    pub(super) build: Build,
}

const fn op(name: &'static str, known: u32, build: Build) -> OpDef {
    float_op(name, 0, known, build)
}

/// An operator with inputs that must be floats.
const fn float_op(name: &'static str, floats: u32, known: u32, build: Build) -> OpDef {
    OpDef { domain: "", name, known, floats, host: false, any: false, draws: false, build }
}

/// An operator that runs on the host.
const fn host_op(name: &'static str, build: Build) -> OpDef {
    OpDef { host: true, ..op(name, u32::MAX, build) }
}

/// An operator of the domain `ai.onnx.ml` (classical machine learning).
const fn ml(name: &'static str, build: Build) -> OpDef {
    OpDef { domain: "ai.onnx.ml", ..op(name, 0, build) }
}

/// An operator that accepts sequences and optionals without a value.
const fn any_op(name: &'static str, known: u32, build: Build) -> OpDef {
    OpDef { any: true, ..op(name, known, build) }
}

/// An operator that draws random numbers.
const fn random_op(name: &'static str, known: u32, build: Build) -> OpDef {
    OpDef { draws: true, ..op(name, known, build) }
}

/// Operators that most networks use, one table per file.
static USUAL: [&[OpDef]; 11] = [
    elementwise::OPS,
    shape::OPS,
    index::OPS,
    reduce::OPS,
    nn::OPS,
    norm::OPS,
    quant::OPS,
    resize::OPS,
    control::OPS,
    cast::OPS,
    random::OPS,
];

/// Operators that few networks use.
static RARE: [&[OpDef]; 22] = [
    rnn::OPS,
    elementwise::RARE,
    shape::RARE,
    nn::RARE,
    quant::RARE,
    control::RARE,
    cast::RARE,
    random::RARE,
    index::RARE,
    norm::RARE,
    packed::OPS,
    moe::OPS,
    attention::OPS,
    contrib::OPS,
    sample::OPS,
    signal::OPS,
    loss::OPS,
    detect::OPS,
    sequence::OPS,
    ml::OPS,
    trees::OPS,
    strings::OPS,
];

/// The set of operators that a model may use. The tables are reachable only through this type, so a binary that links
/// only the usual set contains no code of the others.
#[derive(Clone, Copy)]
pub struct Operators {
    usual: &'static [&'static [OpDef]],
    rare: &'static [&'static [OpDef]],
}

impl Operators {
    /// Every operator that is supported.
    pub fn all() -> Operators {
        Operators { usual: &USUAL, rare: &RARE }
    }

    /// The operators that most networks use. A browser build with all operators is twice as large in this part.
    pub fn usual() -> Operators {
        Operators { usual: &USUAL, rare: &[] }
    }

    fn list(self) -> impl Iterator<Item = &'static OpDef> {
        self.usual.iter().chain(self.rare).flat_map(|t| t.iter())
    }

    pub(super) fn find(self, domain: &str, name: &str) -> Option<&'static OpDef> {
        self.list().find(|d| d.name == name && d.domain == domain)
    }
}

/// Every operator that is supported: (domain, name).
pub fn supported() -> impl Iterator<Item = (&'static str, &'static str)> {
    Operators::all().list().map(|d| (d.domain, d.name))
}

/// A node that is being built, with its input values and context.
pub(super) struct Op<'a, 'm> {
    pub(super) cx: &'a mut Cx<'m>,
    pub(super) node: &'a NodeProto,
    pub(super) args: Vec<Option<Value>>,
    pub(super) opset: i64,
    pub(super) scope: &'a Scope<'a>,
    /// Nesting depth of function calls.
    pub(super) depth: usize,
}

impl Op<'_, '_> {
    /// An error that names this node.
    pub(super) fn fail<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::Model { what: what.into(), node: Some(describe(self.node)) })
    }

    /// An error for an unsupported part of this operator.
    pub(super) fn unsupported<T>(&self, what: impl Into<String>) -> Result<T> {
        let what = format!("{} of {}", what.into(), self.node.op_type);
        Err(Error::Unsupported { what, context: format!("node {}", describe(self.node)) })
    }

    /// A required input.
    pub(super) fn arg(&self, i: usize) -> Result<Value> {
        match self.opt(i) {
            Some(v) => Ok(v),
            None => self.fail(format!("input {i} is missing")),
        }
    }

    /// An optional input.
    pub(super) fn opt(&self, i: usize) -> Option<Value> {
        self.args.get(i).cloned().flatten()
    }

    /// Replaces an input.
    pub(super) fn set(&mut self, i: usize, v: Value) {
        if let Some(place) = self.args.get_mut(i) {
            *place = Some(v);
        }
    }

    /// True if the node has output `i`.
    pub(super) fn has_output(&self, i: usize) -> bool {
        self.node.outputs.get(i).is_some_and(|n| !n.is_empty())
    }

    /// Refuses inputs and attributes beyond these, since newer files may have some that change the result.
    pub(super) fn allow_only(&self, inputs: usize, attributes: &[&str]) -> Result<()> {
        if let Some(i) = (inputs..self.args.len()).find(|&i| self.opt(i).is_some()) {
            return self.unsupported(format!("input {i}"));
        }
        match self.node.attributes.iter().find(|a| !attributes.contains(&a.name.as_str())) {
            Some(a) => self.unsupported(format!("`{}`", a.name)),
            None => Ok(()),
        }
    }

    fn attr(&self, name: &str) -> Option<&AttrValue> {
        self.node.attributes.iter().find(|a| a.name == name).map(|a| &a.value)
    }

    fn kind<T>(&self, name: &str, want: &str) -> Result<T> {
        self.fail(format!("the attribute `{name}` is not {want}"))
    }

    pub(super) fn int_opt(&self, name: &str) -> Result<Option<i64>> {
        match self.attr(name) {
            None => Ok(None),
            Some(AttrValue::Int(i)) => Ok(Some(*i)),
            Some(_) => self.kind(name, "an integer"),
        }
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.int_opt(name)?.unwrap_or(default))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub(super) fn float_opt(&self, name: &str) -> Result<Option<f64>> {
        match self.attr(name) {
            None => Ok(None),
            Some(AttrValue::Float(v)) => Ok(Some(f64::from(*v))),
            Some(_) => self.kind(name, "a float"),
        }
    }

    pub(super) fn float(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.float_opt(name)?.unwrap_or(default))
    }

    pub(super) fn ints_opt(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.attr(name) {
            None => Ok(None),
            Some(AttrValue::Ints(v)) => Ok(Some(v.clone())),
            Some(_) => self.kind(name, "a list of integers"),
        }
    }

    pub(super) fn floats_opt(&self, name: &str) -> Result<Option<Vec<f32>>> {
        match self.attr(name) {
            None => Ok(None),
            Some(AttrValue::Floats(v)) => Ok(Some(v.clone())),
            Some(_) => self.kind(name, "a list of floats"),
        }
    }

    pub(super) fn str(&self, name: &str, default: &'static str) -> Result<String> {
        match self.attr(name) {
            None => Ok(default.to_owned()),
            Some(AttrValue::Str(s)) => Ok(String::from_utf8_lossy(s).into_owned()),
            Some(_) => self.kind(name, "a string"),
        }
    }

    pub(super) fn strs(&self, name: &str) -> Result<Vec<String>> {
        match self.attr(name) {
            None => Ok(Vec::new()),
            Some(AttrValue::Strings(v)) => Ok(v.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect()),
            Some(_) => self.kind(name, "a list of strings"),
        }
    }

    pub(super) fn tensor_opt(&self, name: &str) -> Result<Option<&TensorProto>> {
        match self.attr(name) {
            None => Ok(None),
            Some(AttrValue::Tensor(t)) => Ok(Some(t)),
            Some(_) => self.kind(name, "a tensor"),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.attr(name).is_some()
    }

    /// An attribute that holds an ONNX element type, as a dtype.
    pub(super) fn dtype_attr(&self, name: &str, default: DType) -> Result<DType> {
        let Some(elem) = self.int_opt(name)? else { return Ok(default) };
        let elem = i32::try_from(elem).unwrap_or(-1);
        match super::tensor::dtype_of(elem).filter(|_| !super::tensor::is_code_type(elem)) {
            Some(d) => Ok(d),
            None => self.unsupported(format!("element type {}", super::tensor::elem_name(elem))),
        }
    }

    /// The integers of an input; stops the build if they are not known.
    pub(super) fn known_ints(&self, i: usize) -> Result<Vec<i64>> {
        let v = self.arg(i)?;
        match self.cx.host(&v)? {
            Some(t) if t.dtype.is_float() => self.fail(format!("input {i} holds floats, not integers")),
            Some(t) => Ok(t.to_i64()),
            None => self.unknown(i),
        }
    }

    /// Stops the build until an input is known.
    pub(super) fn unknown<T>(&self, i: usize) -> Result<T> {
        self.cx.stop(vec![self.arg(i)?], Continuation::Know)?;
        let name = self.node.inputs.get(i).map_or("", |n| n.as_str());
        self.fail(format!("input {i} (`{name}`) depends on the data, but must be known when the graph is built"))
    }

    /// Stops the build until a value inside a node with a body (a condition) is known.
    pub(super) fn unknown_value<T>(&self, v: &Value) -> Result<T> {
        self.cx.stop(vec![v.clone()], Continuation::Know)?;
        self.fail("the condition depends on the data, but must be known when the graph is built")
    }

    /// An intermediate value of the operator that must be known: the build stops for it, and when it resumes, the value
    /// is found under `name`.
    pub(super) fn computed(
        &mut self,
        name: &'static str,
        make: impl FnOnce(&mut Op<'_, '_>) -> Result<Value>,
    ) -> Result<HostTensor> {
        if let Some((_, t)) = self.cx.computed_for_node.iter().find(|f| f.0 == name) {
            return Ok(t.clone());
        }
        let v = make(self)?;
        if let Some(t) = self.cx.host(&v)? {
            return Ok(t);
        }
        self.cx.stop(vec![v], Continuation::Tell(name))?;
        self.fail(format!("the {name} depends on the data, but must be known when the graph is built"))
    }

    /// Refuses inputs of other dtypes where the operator takes floats only.
    pub(super) fn want_floats(&self, def: &OpDef) -> Result<()> {
        let args = self.args.iter().enumerate().filter(|(i, _)| def.floats & (1 << i.min(&31)) != 0);
        args.filter_map(|(i, v)| Some((i, v.as_ref()?))).try_for_each(|(i, v)| match v.dtype() {
            d if d.is_float() => Ok(()),
            d => self.fail(format!("input {i} is {d}, a float input is wanted")),
        })
    }

    /// Stops the build if inputs must be known and are not; asks for all of them at once.
    pub(super) fn ask_for_inputs(&self, def: &'static OpDef) -> Result<()> {
        let must = |i: usize| def.known & (1 << i.min(31)) != 0;
        let is_missing = |(i, v): &(usize, &Option<Value>)| must(*i) && v.as_ref().is_some_and(Value::is_lazy);
        let Some((first, _)) = self.args.iter().enumerate().find(is_missing) else { return Ok(()) };
        let wanted = self.args.iter().enumerate().filter(is_missing).filter_map(|(_, v)| v.clone()).collect();
        let then = if def.host {
            let args = self.args.iter().map(|v| v.clone().map(|v| (!v.is_lazy()).then_some(v))).collect();
            Continuation::Call(Arc::new(Call { node: self.node.clone(), def, opset: self.opset, args }))
        } else {
            Continuation::Know
        };
        self.cx.stop(wanted, then)?;
        let name = self.node.inputs.get(first).map_or("", |n| n.as_str());
        self.fail(format!("input {first} (`{name}`) depends on the data, but must be known when the graph is built"))
    }

    pub(super) fn known_ints_opt(&self, i: usize) -> Result<Option<Vec<i64>>> {
        if self.opt(i).is_some() { self.known_ints(i).map(Some) } else { Ok(None) }
    }

    /// The elements of an optional input as floats; stops the build if they are not known.
    pub(super) fn known_floats_opt(&self, i: usize) -> Result<Option<Vec<f64>>> {
        let Some(v) = self.opt(i) else { return Ok(None) };
        match self.cx.host(&v)? {
            Some(t) => Ok(Some(t.to_f64())),
            None => self.unknown(i),
        }
    }

    /// Integers that are an attribute in old operator sets and an input in newer ones.
    pub(super) fn ints_either(&self, name: &str, i: usize) -> Result<Option<Vec<i64>>> {
        match self.ints_opt(name)? {
            Some(v) => Ok(Some(v)),
            None => self.known_ints_opt(i),
        }
    }

    /// An axis of a tensor of that rank; negative ones count from the end.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let at = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match at.and_then(|a| usize::try_from(a).ok()).filter(|&a| a < rank) {
            Some(a) => Ok(a),
            None => self.fail(format!("axis {axis} is out of range for rank {rank}")),
        }
    }

    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        let mut out = axes.iter().map(|&a| self.axis(a, rank)).collect::<Result<Vec<_>>>()?;
        sort::ascending(&mut out);
        if out.windows(2).any(|w| w[0] == w[1]) {
            return self.fail(format!("axes {axes:?} name one axis twice"));
        }
        Ok(out)
    }

    /// A size that is not negative.
    pub(super) fn size(&self, n: i64) -> Result<usize> {
        // Limited to 31 bits, so that a sum of two sizes does not overflow even where `usize` has 32 bits.
        match i32::try_from(n).ok().and_then(|n| usize::try_from(n).ok()) {
            Some(n) => Ok(n),
            None => self.fail(format!("{n} is not a size")),
        }
    }

    pub(super) fn sizes(&self, v: &[i64]) -> Result<Vec<usize>> {
        v.iter().map(|&n| self.size(n)).collect()
    }

    pub(super) fn want_rank(&self, v: &Value, least: usize) -> Result<()> {
        if v.rank() >= least {
            return Ok(());
        }
        self.fail(format!("an input of rank {least} or more is wanted, not {:?}", v.shape()))
    }
}
