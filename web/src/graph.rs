//! A model's graph as plain JavaScript objects, with everything that its file declares; conversion of strings to and
//! from codes; and comparison of the values of two runs. Belongs to the module part for models.

use crate::args::{dimension, host_input};
use crate::js::object;
use crate::runtime::{Runtime, throw};
use crate::values::{self, Drift};
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::proto::{AttrValue, Attribute, GraphProto, NodeProto, TypeProto, ValueInfo};
use gradloom_core::io::onnx::tensor::{TensorData, TensorProto, dtype_of, elem_name, is_code_type};
use gradloom_core::{DType, Result};
use js_sys::{Array, Object};
use tsify::Ts;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
impl Runtime {
    /// A model's main graph as `{name, inputs, outputs, nodes, values, initializers}`: the nodes that run, in execution
    /// order.
    #[wasm_bindgen(js_name = modelGraph)]
    pub fn model_graph(&self, id: u32) -> std::result::Result<JsValue, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let runner = runner.borrow();
        Ok(graph(runner.model().graph()).into())
    }

    /// Creates a model with these values as its outputs, which shares the weights.
    #[wasm_bindgen(js_name = withOutputs)]
    pub fn with_outputs(&self, id: u32, names: Vec<String>) -> std::result::Result<u32, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let other = runner.borrow().with_outputs(&names).map_err(throw)?;
        Ok(self.inner.add_runner(other))
    }

    /// Encodes strings as the codes that a model takes.
    #[wasm_bindgen(js_name = encodeStrings)]
    pub fn encode_strings(&self, id: u32, texts: Vec<String>) -> std::result::Result<Vec<u8>, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let t = runner.borrow().model().strings(vec![texts.len()], &texts).map_err(throw)?;
        Ok(t.data)
    }

    /// Decodes such codes to strings.
    #[wasm_bindgen(js_name = decodeStrings)]
    pub fn decode_strings(&self, id: u32, codes: &[u8]) -> std::result::Result<Array, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let codes = HostTensor::new(DType::I32, vec![codes.len() / 4], codes.to_vec()).map_err(throw)?;
        let list = runner.borrow().model().texts(&codes).map_err(throw)?;
        Ok(list.iter().map(|t| JsValue::from_str(t)).collect())
    }

    /// The deviations between the values of two runs, `[[name, dtype, shape, data]]` each, in the order of the model's
    /// nodes.
    pub fn drifts(
        &self,
        id: u32,
        got: Array,
        want: Array,
        tolerance: f64,
    ) -> std::result::Result<Vec<Ts<Drift>>, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let read =
            |list: Array| list.iter().map(|i| host_input(i.unchecked_ref())).collect::<Result<Vec<_>>>().map_err(throw);
        let list = runner.borrow().model().drifts(&read(got)?, &read(want)?, tolerance);
        values::to_js_list(list)
    }
}

fn list<T>(items: &[T], one: impl Fn(&T) -> JsValue) -> JsValue {
    items.iter().map(one).collect::<Array>().into()
}

fn text(bytes: &[u8]) -> JsValue {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// An integer as a JavaScript number if it is exact, else as a BigInt.
fn int(n: i64) -> JsValue {
    if n.unsigned_abs() < 1 << 53 { (n as f64).into() } else { n.into() }
}

fn graph(g: &GraphProto) -> Object {
    let values: Vec<&ValueInfo> = g.inputs.iter().chain(&g.value_info).chain(&g.outputs).collect();
    object(&[
        ("name", (&g.name).into()),
        ("inputs", list(&g.inputs, |v| (&v.name).into())),
        ("outputs", list(&g.outputs, |v| (&v.name).into())),
        ("nodes", list(&g.nodes, node)),
        ("values", list(&values, |v| value(v))),
        ("initializers", list(&g.initializers, tensor)),
    ])
}

fn node(n: &NodeProto) -> JsValue {
    let attributes = Object::new();
    for Attribute { name, value } in &n.attributes {
        crate::js::set(&attributes, name, &attribute(value));
    }
    object(&[
        ("name", (&n.name).into()),
        ("op", (&n.op_type).into()),
        ("domain", (&n.domain).into()),
        ("inputs", list(&n.inputs, |s| s.into())),
        ("outputs", list(&n.outputs, |s| s.into())),
        ("attributes", attributes.into()),
    ])
    .into()
}

fn attribute(v: &AttrValue) -> JsValue {
    match v {
        AttrValue::Float(x) => f64::from(*x).into(),
        AttrValue::Int(n) => int(*n),
        AttrValue::Str(s) => text(s),
        AttrValue::Tensor(t) => tensor(t),
        AttrValue::Graph(g) => graph(g).into(),
        AttrValue::Floats(l) => list(l, |x| f64::from(*x).into()),
        AttrValue::Ints(l) => list(l, |n| int(*n)),
        AttrValue::Strings(l) => list(l, |s| text(s)),
        AttrValue::Tensors(l) => list(l, tensor),
        AttrValue::Graphs(l) => list(l, |g| graph(g).into()),
        AttrValue::Ref(name) => object(&[("attribute", name.into())]).into(),
        AttrValue::Unsupported(_) => JsValue::NULL,
    }
}

fn tensor(t: &TensorProto) -> JsValue {
    let shape = list(&t.shape, |&n| (n as f64).into());
    let bytes = match &t.data {
        TensorData::File(span) => span.len as u64,
        TensorData::Owned(bytes) => bytes.len() as u64,
        TensorData::External(place) => place.len,
        TensorData::Strings(texts) => texts.iter().map(|t| t.len() as u64).sum(),
        TensorData::Unsupported => 0,
    };
    object(&[("name", (&t.name).into()), ("dtype", dtype(t.elem)), ("shape", shape), ("bytes", (bytes as f64).into())])
        .into()
}

/// A value's type, with optional and sequence types unwrapped.
fn value(v: &ValueInfo) -> JsValue {
    let (mut ty, mut sequence) = (&v.ty, false);
    loop {
        ty = match ty {
            TypeProto::Optional(inner) => inner,
            TypeProto::Sequence(inner) => {
                sequence = true;
                inner
            }
            _ => break,
        }
    }
    let (elem, dims) = match ty {
        TypeProto::Tensor { elem, dims } => (*elem, dims.as_ref()),
        _ => (0, None),
    };
    object(&[
        ("name", (&v.name).into()),
        ("dtype", dtype(elem)),
        ("shape", dims.map_or(JsValue::NULL, |d| list(d, dimension))),
        ("sequence", sequence.into()),
    ])
    .into()
}

/// The name of an element type: the package's own, or ONNX's if the package does not have the type.
fn dtype(elem: i32) -> JsValue {
    match (elem, dtype_of(elem)) {
        (0, _) => JsValue::NULL,
        (_, Some(dt)) if !is_code_type(elem) => dt.name().into(),
        _ => elem_name(elem).into(),
    }
}
