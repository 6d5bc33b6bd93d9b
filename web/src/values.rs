//! The plain objects that are passed to JavaScript. Each type is defined once, here: serde creates the objects
//! (serde-wasm-bindgen), and tsify the TypeScript types that the package uses. Integers are `f64`, the only number type
//! with ordinary arithmetic in JavaScript.

use gradloom_core::engine::Counters;
use gradloom_core::io::onnx::proto::Dim;
use gradloom_core::io::onnx::{Drift as NodeDrift, Port as ModelPort};
use serde::Serialize;
use tsify::{Ts, Tsify};
use wasm_bindgen::JsValue;

/// Converts a value to its JavaScript object.
pub(crate) fn to_js<T: Tsify + Serialize>(value: impl Into<T>) -> Result<Ts<T>, JsValue> {
    value.into().into_ts().map_err(|e| JsValue::from_str(&e.to_string()))
}

/// Converts each value of a list.
pub(crate) fn to_js_list<T: Tsify + Serialize>(
    values: impl IntoIterator<Item = impl Into<T>>,
) -> Result<Vec<Ts<T>>, JsValue> {
    values.into_iter().map(to_js).collect()
}

/// The properties of a started device.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct DeviceInfo {
    #[tsify(type = "\"webgpu\" | \"wasm\"")]
    pub(crate) kind: &'static str,
    /// Number of threads that it computes with.
    pub(crate) threads: f64,
    /// Number of 32-bit elements in a vector.
    pub(crate) lanes: f64,
    /// True for WebGPU that is emulated on the CPU.
    pub(crate) software: bool,
    pub(crate) relaxed_simd: bool,
    pub(crate) max_buffer_bytes: f64,
    /// Defects of its driver, and how kernels work around them.
    pub(crate) notes: Vec<String>,
}

/// Memory use and counters of a device.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCounters {
    /// Bytes that the device holds now, and the most it ever held.
    pub(crate) bytes: f64,
    pub(crate) peak_bytes: f64,
    /// Live tensor handles.
    pub(crate) tensors: f64,
    /// Numbers of plans made, plans found in the cache, kernels compiled, and kernels launched.
    pub(crate) plans: f64,
    pub(crate) plan_hits: f64,
    pub(crate) programs: f64,
    pub(crate) launches: f64,
}

impl DeviceCounters {
    pub(crate) fn new(c: Counters, tensors: usize) -> DeviceCounters {
        DeviceCounters {
            bytes: c.bytes as f64,
            peak_bytes: c.peak_bytes as f64,
            tensors: tensors as f64,
            plans: c.plans as f64,
            plan_hits: c.plan_hits as f64,
            programs: c.programs as f64,
            launches: c.launches as f64,
        }
    }
}

/// The result of tuning one kernel.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct TunedKernel {
    pub(crate) name: String,
    /// A text line for `init({ tuned })`, valid on all machines with a device of this kind; undefined if nothing faster
    /// was found.
    pub(crate) line: Option<String>,
    /// Number of launches before tuning.
    pub(crate) launches: f64,
    /// Milliseconds per launch before and after tuning; equal if nothing faster was found.
    pub(crate) before_ms: f64,
    pub(crate) after_ms: f64,
    /// Number of candidates tried, and how many of them were rejected for wrong results.
    pub(crate) tried: f64,
    pub(crate) wrong: f64,
}

/// A size, the name of a symbolic dimension, or null for an unknown dimension.
#[derive(Serialize, Tsify)]
#[serde(untagged)]
pub enum Dimension {
    Size(f64),
    Symbol(String),
    Unknown,
}

impl From<&Dim> for Dimension {
    fn from(d: &Dim) -> Dimension {
        match d {
            Dim::Value(v) if *v >= 0 => Dimension::Size(*v as f64),
            Dim::Param(name) => Dimension::Symbol(name.clone()),
            _ => Dimension::Unknown,
        }
    }
}

/// An input or output as declared in the model file.
#[derive(Serialize, Tsify)]
#[tsify(missing_as_null)]
pub struct Port {
    pub(crate) name: String,
    /// null if the file does not declare it.
    pub(crate) dtype: Option<&'static str>,
    /// Sizes, names of symbolic dimensions, or null for unknown dimensions; null as a whole if even the rank is not
    /// declared.
    pub(crate) shape: Option<Vec<Dimension>>,
    /// True for a sequence of tensors: its elements are passed and returned as `name[0]`, `name[1]`, ..
    pub(crate) sequence: bool,
    /// True if the input may be omitted.
    pub(crate) optional: bool,
}

impl From<&ModelPort> for Port {
    fn from(p: &ModelPort) -> Port {
        Port {
            name: p.name.clone(),
            dtype: if p.is_string() { Some("string") } else { p.dtype.map(|dt| dt.name()) },
            shape: p.dims.as_ref().map(|dims| dims.iter().map(Dimension::from).collect()),
            sequence: p.is_sequence,
            optional: p.is_optional,
        }
    }
}

/// The properties of a model as declared in its file.
#[derive(Serialize, Tsify)]
#[tsify(missing_as_null)]
pub struct ModelInfo {
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    pub(crate) nodes: f64,
    pub(crate) parameters: f64,
    pub(crate) opset: f64,
    /// Does it have nodes that may be attention?
    pub(crate) attends: bool,
}

/// The deviation of a value between two runs.
#[derive(Serialize, Tsify)]
#[tsify(missing_as_null)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub(crate) value: String,
    /// The node that computes the value; null if none does.
    pub(crate) node: Option<String>,
    /// The largest absolute difference, and the largest relative to the reference element.
    pub(crate) max_abs: f64,
    pub(crate) max_rel: f64,
    /// The index of the element that deviates most, with both values.
    pub(crate) index: f64,
    pub(crate) got: f64,
    pub(crate) want: f64,
    /// Whether the deviation exceeds the tolerance.
    pub(crate) drifts: bool,
}

impl From<NodeDrift> for Drift {
    fn from(d: NodeDrift) -> Drift {
        let (index, got, want) = d.at;
        Drift {
            value: d.value,
            node: d.node,
            max_abs: d.max_abs,
            max_rel: d.max_rel,
            index: index as f64,
            got,
            want,
            drifts: d.drifts,
        }
    }
}
