//! What decoders and encoders have in common for JavaScript: buffers that the main module is to make, inputs of graphs, places of
//! tensors in files, and metadata.

use gradloom_core::dtype::{DType, Scalar};
use gradloom_core::io::gguf::{Gguf, Value};
use gradloom_core::llm::{Buffer, Input};
use js_sys::{Array, Object, Reflect, Uint8Array};
use std::ops::Range;
use wasm_bindgen::prelude::*;

/// Lists of metadata that are longer stay here.
const LONG: usize = 64;

/// `[number, dtype, elements, bytes]`; no bytes for zeros.
pub(crate) fn buffers(list: Vec<Buffer>) -> Array {
    let one = |b: Buffer| {
        let bytes = if b.bytes.is_empty() { JsValue::UNDEFINED } else { Uint8Array::from(&*b.bytes).into() };
        Array::of4(&b.number.into(), &b.dtype.name().into(), &(b.len as f64).into(), &bytes)
    };
    list.into_iter().map(one).collect()
}

/// Inputs of a graph: a buffer's number, or `[name, least, most]` of a variable.
pub(crate) fn inputs(list: &[Input]) -> Array {
    let one = |i: &Input| match i {
        Input::Buffer(b) => JsValue::from(*b),
        Input::Variable(name, min, max) => {
            Array::of3(&name.into(), &(*min as f64).into(), &(*max as f64).into()).into()
        }
    };
    list.iter().map(one).collect()
}

/// Each tensor's `[file, start, end]`: where its bytes lie in which file.
pub(crate) fn entries(places: &[(usize, Range<u64>)]) -> Array {
    let at = |n: u64| JsValue::from_f64(n as f64);
    let one = |(file, r): &(usize, Range<u64>)| Array::of3(&(*file as u32).into(), &at(r.start), &at(r.end));
    places.iter().map(one).collect()
}

fn number(dtype: DType, s: Scalar) -> JsValue {
    match dtype {
        DType::Bool => s.as_bool().into(),
        _ => s.as_f64_of(dtype).into(),
    }
}

fn value(v: &Value) -> Option<JsValue> {
    Some(match v {
        Value::Scalar(dtype, s) => number(*dtype, *s),
        Value::Str(s) => s.into(),
        Value::Array(a) if a.len() <= LONG => a.scalars().map(|s| number(a.dtype, s)).collect::<Array>().into(),
        Value::Strings(list) if list.len() <= LONG => list.iter().map(JsValue::from).collect::<Array>().into(),
        _ => return None,
    })
}

/// What a GGUF file says of itself, but for long lists.
pub(crate) fn metadata(index: &Gguf) -> Object {
    let out = Object::new();
    for (key, v) in &index.metadata {
        if let Some(v) = value(v) {
            // a plain object takes any property
            let _ = Reflect::set(&out, &key.into(), &v);
        }
    }
    out
}
