//! What crosses to JavaScript as plain objects. Each kind is defined once, here: serde makes the objects (serde-wasm-bindgen), and tsify
//! the types that the package's TypeScript uses. Whole numbers are `f64`, since JavaScript has no other that arithmetic takes.

use gradloom_core::engine::Counters;
use gradloom_core::io::onnx::proto::Dim;
use gradloom_core::io::onnx::{Drift as NodeDrift, Port as ModelPort};
use serde::Serialize;
use tsify::{Ts, Tsify};
use wasm_bindgen::JsValue;

/// As JavaScript gets it.
pub(crate) fn plain<T: Tsify + Serialize>(value: impl Into<T>) -> Result<Ts<T>, JsValue> {
    value.into().into_ts().map_err(|e| JsValue::from_str(&e.to_string()))
}

/// Each of a list.
pub(crate) fn list<T: Tsify + Serialize>(
    values: impl IntoIterator<Item = impl Into<T>>,
) -> Result<Vec<Ts<T>>, JsValue> {
    values.into_iter().map(plain).collect()
}

/// A device that runs.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct DeviceInfo {
    #[tsify(type = "\"webgpu\" | \"wasm\"")]
    pub(crate) kind: &'static str,
    /// Threads it computes with.
    pub(crate) threads: f64,
    /// Numbers of 32 bits in a vector.
    pub(crate) lanes: f64,
    /// True for WebGPU that a processor emulates.
    pub(crate) software: bool,
    pub(crate) relaxed_simd: bool,
    pub(crate) max_buffer_bytes: f64,
    /// What its driver gets wrong, and how kernels go without it.
    pub(crate) notes: Vec<String>,
}

/// What a device holds and did.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct Holds {
    /// Bytes the device holds, and the most it ever held.
    pub(crate) bytes: f64,
    pub(crate) peak_bytes: f64,
    /// Live tensor handles.
    pub(crate) tensors: f64,
    /// Plans made, plans found in the cache, kernels compiled and launched.
    pub(crate) plans: f64,
    pub(crate) plan_hits: f64,
    pub(crate) programs: f64,
    pub(crate) launches: f64,
}

impl Holds {
    pub(crate) fn new(c: Counters, tensors: usize) -> Holds {
        Holds {
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

/// What came of tuning a kernel.
#[derive(Serialize, Tsify)]
#[serde(rename_all = "camelCase")]
pub struct TunedKernel {
    pub(crate) name: String,
    /// A line for `init({ tuned })`, here and on other machines with such a device; undefined if nothing faster was found.
    pub(crate) line: Option<String>,
    /// Launches before it was tuned.
    pub(crate) launches: f64,
    /// Milliseconds of a launch; equal if nothing faster was found.
    pub(crate) before_ms: f64,
    pub(crate) after_ms: f64,
    /// Candidates tried, and how many of them gave other numbers and were dropped.
    pub(crate) tried: f64,
    pub(crate) wrong: f64,
}

/// A size, a symbol's name, or null for what is open.
#[derive(Serialize, Tsify)]
#[serde(untagged)]
pub enum Dimension {
    Size(f64),
    Symbol(String),
    Open,
}

impl From<&Dim> for Dimension {
    fn from(d: &Dim) -> Dimension {
        match d {
            Dim::Value(v) if *v >= 0 => Dimension::Size(*v as f64),
            Dim::Param(name) => Dimension::Symbol(name.clone()),
            _ => Dimension::Open,
        }
    }
}

/// An input or output as the model file declares it.
#[derive(Serialize, Tsify)]
#[tsify(missing_as_null)]
pub struct Port {
    pub(crate) name: String,
    /// null where the file does not say.
    pub(crate) dtype: Option<&'static str>,
    /// A size, a symbol's name, or null for what is open; the whole is null where the file does not even say how many.
    pub(crate) shape: Option<Vec<Dimension>>,
    /// A sequence: its elements are given and read as `name[0]`, `name[1]` ..
    pub(crate) sequence: bool,
    /// It may be left out.
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

/// What a model's file says of it.
#[derive(Serialize, Tsify)]
#[tsify(missing_as_null)]
pub struct ModelInfo {
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    pub(crate) nodes: f64,
    pub(crate) parameters: f64,
    pub(crate) opset: f64,
}

/// How far a value of one run is from that of another.
#[derive(Serialize, Tsify)]
#[tsify(missing_as_null)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub(crate) value: String,
    /// The node that gives it; null if none does.
    pub(crate) node: Option<String>,
    /// The largest difference, and the largest in parts of the right element.
    pub(crate) max_abs: f64,
    pub(crate) max_rel: f64,
    /// The element that is furthest off.
    pub(crate) index: f64,
    pub(crate) got: f64,
    pub(crate) want: f64,
    /// Is that more than the tolerance?
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
