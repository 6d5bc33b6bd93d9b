//! Finds where the values of two runs differ: makes every value of a model an output, and reports the differences node
//! by node.

use super::check;
use super::model::Model;
use super::proto::ValueInfo;
use crate::dtype::DType;
use crate::io::HostTensor;
use crate::util::sort;
use crate::util::sorted::SortedMap;
use rustc_hash::FxHashMap;

/// The difference between a value and its expected value.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The node that computes it; `None` if no node of the main graph does.
    pub node: Option<String>,
    /// The value's name.
    pub value: String,
    /// The largest absolute difference; infinite if one element is NaN where the other is not, or if types or shapes
    /// differ.
    pub max_abs: f64,
    /// The largest difference relative to the expected element.
    pub max_rel: f64,
    /// Index of the element with the largest absolute difference, its value, and the expected value.
    pub at: (usize, f64, f64),
    /// True if the difference exceeds the tolerance.
    pub drifts: bool,
}

impl Model {
    /// This model with the values of all nodes of its main graph as outputs, in execution order, followed by its own
    /// outputs.
    pub fn with_every_value(&self) -> Model {
        let mut proto = self.proto.clone();
        let own: Vec<ValueInfo> = std::mem::take(&mut proto.graph.outputs);
        let info = |name: &String| ValueInfo { name: name.clone(), ..ValueInfo::default() };
        for n in proto.graph.nodes.iter().filter(|n| n.op_type != "Constant") {
            let new = n.outputs.iter().filter(|o| !o.is_empty() && own.iter().all(|p| p.name != **o));
            proto.graph.outputs.extend(new.map(info));
        }
        let mut outputs: Vec<_> = proto.graph.outputs.iter().filter_map(|o| super::model::port(o).ok()).collect();
        outputs.extend(self.outputs().iter().cloned());
        proto.graph.outputs.extend(own);
        self.with_graph(proto, outputs)
    }

    /// Compares each value of `got` with the value of the same name in `want`, in the order of the nodes. A value
    /// drifts if an element differs by more than `tolerance` times the larger of the expected element's magnitude and
    /// the mean magnitude of all expected elements. For 16-bit floats the tolerance is at least 1/512 (f16) or 1/64
    /// (bf16).
    pub fn drifts(&self, got: &[(String, HostTensor)], want: &[(String, HostTensor)], tolerance: f64) -> Vec<Drift> {
        let want: FxHashMap<&str, &HostTensor> = want.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let mut place: SortedMap<&str, usize> = SortedMap::new();
        for (i, n) in self.nodes().iter().enumerate() {
            place.extend(n.outputs.iter().map(|o| (o.as_str(), i)));
        }
        // Elements of a sequence are named `name[i]`.
        let node = |name: &str| place.get(name).or_else(|| place.get(name.rsplit_once('[')?.0)).copied();
        let mut list: Vec<(usize, Drift)> = Vec::new();
        for (name, g) in got {
            let at = node(name);
            let drift = |max_abs, max_rel, element, drifts| Drift {
                node: at.map(|i| check::describe(&self.nodes()[i])),
                value: name.clone(),
                max_abs,
                max_rel,
                at: element,
                drifts,
            };
            let d = match want.get(name.as_str()) {
                Some(w) if (w.dtype, &w.shape) == (g.dtype, &g.shape) => {
                    let (abs, rel, element, drifts) = distance(g, w, tolerance);
                    drift(abs, rel, element, drifts)
                }
                _ => drift(f64::INFINITY, f64::INFINITY, (0, 0.0, 0.0), true),
            };
            list.push((at.unwrap_or(usize::MAX), d));
        }
        sort::by_key(&mut list, |d| d.0);
        list.into_iter().map(|d| d.1).collect()
    }
}

/// The largest absolute and relative difference, the element that differs most, and whether any is out of tolerance.
fn distance(got: &HostTensor, want: &HostTensor, tolerance: f64) -> (f64, f64, (usize, f64, f64), bool) {
    let (g, w) = (got.to_f64(), want.to_f64());
    let finite: Vec<f64> = w.iter().filter(|v| v.is_finite()).map(|v| v.abs()).collect();
    let mean = finite.iter().sum::<f64>() / finite.len().max(1) as f64;
    let parts = match want.dtype {
        DType::F16 => tolerance.max(1.0 / 512.0),
        DType::BF16 => tolerance.max(1.0 / 64.0),
        d if d.is_float() => tolerance,
        _ => 0.0,
    };
    let (mut abs, mut rel, mut at, mut drifts) = (0.0, 0.0, (0, 0.0, 0.0), false);
    for (i, (&g, &w)) in g.iter().zip(&w).enumerate() {
        if g == w || g.is_nan() && w.is_nan() {
            continue;
        }
        let d = (g - w).abs();
        let d = if d.is_nan() { f64::INFINITY } else { d };
        if d > abs {
            (abs, at) = (d, (i, g, w));
        }
        rel = f64::max(rel, d / w.abs().max(f64::MIN_POSITIVE));
        drifts |= d > parts * w.abs().max(mean);
    }
    (abs, rel, at, drifts)
}
