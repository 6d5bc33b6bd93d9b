//! Conversions between plain JavaScript objects and the core's types.

use crate::js::get;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::proto::Dim;
use gradloom_core::{Budget, DType, Error, Result};
use js_sys::{Array, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};

pub(crate) fn dtype(name: &str) -> Result<DType> {
    DType::from_name(name).ok_or_else(|| Error::value("dtype", format!("there is no dtype `{name}`")))
}

/// A dimension as a number, the name of a symbolic dimension, or null if the file leaves it unknown.
pub(crate) fn dimension(d: &Dim) -> JsValue {
    match d {
        Dim::Value(v) if *v >= 0 => (*v as f64).into(),
        Dim::Param(name) => name.into(),
        _ => JsValue::NULL,
    }
}

/// The default budget with the limits that are given.
pub(crate) fn budget_of(given: &JsValue) -> Budget {
    let mut b = Budget::default();
    let fields = [
        ("hostBytes", &mut b.host_bytes),
        ("nodes", &mut b.nodes),
        ("outputs", &mut b.outputs),
        ("tensorElems", &mut b.tensor_elems),
    ];
    for (name, limit) in fields {
        if let Some(n) = get(given, name).as_f64() {
            *limit = n as u64;
        }
    }
    b
}

/// The name of an input. Inputs are arrays rather than objects: reading by index costs a fraction of reading
/// properties, whose names are converted between the languages each time.
pub(crate) fn name_of(i: &Array) -> String {
    i.get(0).as_string().unwrap_or_default()
}

/// The tensor id of an input `[name, id]`.
pub(crate) fn id_of(i: &Array) -> Option<u32> {
    i.get(1).as_f64().map(|id| id as u32)
}

/// Reads a list of sizes.
pub(crate) fn shape_of(list: &JsValue) -> Vec<usize> {
    list.unchecked_ref::<Array>().iter().map(|n| n.as_f64().unwrap_or(0.0).max(0.0) as usize).collect()
}

/// The bytes of an input `[name, dtype, shape, data]`.
pub(crate) fn bytes_of(i: &Array) -> Option<Uint8Array> {
    i.get(3).dyn_into().ok()
}

/// Reads an input `[name, dtype, shape, data]`.
pub(crate) fn host_input(i: &Array) -> Result<(String, HostTensor)> {
    let name = name_of(i);
    let t = host_value(&name, i)?;
    Ok((name, t))
}

/// The value of an input `[name, dtype, shape, data]`.
pub(crate) fn host_value(name: &str, i: &Array) -> Result<HostTensor> {
    let shape = shape_of(&i.get(2));
    let dt = dtype(&i.get(1).as_string().unwrap_or_default())?;
    let data = bytes_of(i).map(|d| d.to_vec()).unwrap_or_default();
    HostTensor::new(dt, shape, data).map_err(|e| Error::Input { name: name.to_owned(), what: e.to_string() })
}
