//! ONNX models changed by their structure, for every operator that we have, with values for those that are small enough to be run.
//! A seed gives the same model on every host. What must hold of one, its user decides.

mod mutate;

use crate::message::{Constant, GRAPH_NODE, Message, NODE_OP, graph, model_of, model_with};
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::proto::Dim;
use gradloom_core::io::onnx::{Report, supported};
use gradloom_core::io::zip::Zip;
use gradloom_core::uop::random::Rng;
use gradloom_core::{Budget, DType};
use std::collections::BTreeSet;

/// The suites, of one or few nodes a model, that changed models come from: files in `tests/fixtures/onnx`.
pub const SUITES: [&str; 5] = ["contrib", "dynamic", "ml", "opset", "slice"];
/// Elements of the largest value of a model that is run.
const MOST_ELEMS: usize = 20_000;
/// Bytes of the largest model that is changed.
const MOST_BYTES: usize = 6000;

/// Where changed models come from.
pub struct Mutants {
    /// Operators as domain and name.
    ops: Vec<(&'static str, &'static str)>,
    /// By operator, models that have it.
    seeds: Vec<Vec<Message>>,
}

/// A changed model.
pub struct Mutant {
    /// The operator that the model was chosen for, as its place in [`Mutants::ops`]. A change may have taken it out.
    pub op: usize,
    /// The model file.
    pub file: Vec<u8>,
    /// Are there infinities, NaN and the largest numbers among its attributes and inputs? Then values differ by the order of sums and
    /// by the products that are added without being rounded, and only that a run ends well can be asked for.
    pub edges: bool,
    /// Goes on with the seed's numbers.
    rng: Rng,
}

impl Mutants {
    /// From the files of [`SUITES`], and models of one node for each operator.
    pub fn new<'a>(suites: impl IntoIterator<Item = &'a [u8]>) -> gradloom_core::Result<Mutants> {
        let ops: Vec<(&str, &str)> = supported().collect();
        let mut seeds: Vec<Vec<Message>> = ops.iter().map(|(domain, op)| of_one_node(domain, op)).collect();
        for file in suites {
            let zip = Zip::parse(file)?;
            for e in zip.entries().iter().filter(|e| e.name.ends_with("model.onnx") && e.size < MOST_BYTES as u64) {
                let Some(m) = Message::read(&zip.read(e)?) else { continue };
                let Some((_, g)) = graph(&m) else { continue };
                let names = g.places(GRAPH_NODE).into_iter().filter_map(|p| Some(g.inner(p)?.text(NODE_OP)));
                let names: BTreeSet<String> = names.collect();
                for (of, _) in seeds.iter_mut().zip(&ops).filter(|(_, o)| names.contains(o.1)) {
                    of.push(m.clone());
                }
            }
        }
        Ok(Mutants { ops, seeds })
    }

    /// The operators, as domain and name.
    pub fn ops(&self) -> &[(&'static str, &'static str)] {
        &self.ops
    }

    /// The model of a seed.
    pub fn get(&self, seed: u64) -> Mutant {
        let mut rng = Rng(seed);
        let (op, edges) = (rng.below(self.ops.len()), rng.once_in(3));
        let from = &self.seeds[op][rng.below(self.seeds[op].len())];
        Mutant { op, file: mutate::mutate(&mut rng, from, &self.ops, edges).bytes(), edges, rng }
    }
}

fn of_one_node(domain: &str, op: &str) -> Vec<Message> {
    let (f, n): (u64, u64) = (1, 7);
    let operands = [
        vec![(f, vec![2, 3, 4])],
        vec![(f, vec![2, 3]), (f, vec![2, 3])],
        vec![(f, vec![2, 4, 5, 5]), (f, vec![4, 4, 3, 3]), (f, vec![4])],
        vec![(n, vec![2, 3]), (n, vec![3])],
        vec![(f, vec![3, 4]), (n, vec![2])],
        vec![(f, vec![2, 3, 4]), (f, vec![2, 3, 4]), (f, vec![2, 3, 4]), (f, vec![4]), (n, vec![1])],
    ];
    let own = PARTICULAR.iter().filter(|p| p.0 == op);
    let own = own.map(|(_, elem, dims, constants, attributes)| {
        let inputs: Vec<_> = (!dims.is_empty()).then(|| (*elem, dims.to_vec())).into_iter().collect();
        model_with(domain, op, &inputs, constants, attributes)
    });
    operands.iter().map(|inputs| model_of(domain, op, inputs)).chain(own).collect()
}

/// An operator that works with none of the operands above: element type and sizes of its input, constants, attributes.
type Particular =
    (&'static str, u64, &'static [i64], &'static [Constant<'static>], &'static [(&'static str, &'static [i64])]);

const PARTICULAR: [Particular; 8] = [
    ("AveragePool", 1, &[1, 2, 6, 6], &[], &[("kernel_shape", &[2, 2])]),
    ("Expand", 1, &[3, 1], &[(7, &[2], &[3, 4])], &[]),
    ("CumSum", 1, &[2, 3], &[(7, &[], &[1])], &[]),
    ("Col2Im", 1, &[1, 4, 9], &[(7, &[2], &[4, 4]), (7, &[2], &[2, 2])], &[]),
    (
        "MelWeightMatrix",
        1,
        &[],
        &[(7, &[], &[4]), (7, &[], &[16]), (7, &[], &[8000]), (1, &[], &[0]), (1, &[], &[4000])],
        &[],
    ),
    (
        "QLinearMul",
        2,
        &[2, 3],
        &[
            (1, &[], &[1]),
            (2, &[], &[3]),
            (2, &[3], &[1, 2, 3]),
            (1, &[], &[2]),
            (2, &[], &[0]),
            (1, &[], &[2]),
            (2, &[], &[9]),
        ],
        &[],
    ),
    ("RandomUniform", 1, &[], &[], &[("shape", &[2, 3])]),
    ("RandomNormal", 1, &[], &[], &[("shape", &[2, 3])]),
];

impl Mutant {
    /// A model of a file that was kept.
    pub fn kept(file: Vec<u8>) -> Mutant {
        Mutant { op: 0, file, edges: false, rng: Rng(1) }
    }

    /// Values for the inputs of a model that is supported, if none of its values is known to be large. Those whose sizes are only known
    /// when it runs are limited by [`budget`].
    pub fn feeds(&mut self, report: &Report) -> Option<Vec<(String, HostTensor)>> {
        let few = |s: &[usize]| s.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MOST_ELEMS);
        let known = report.nodes.iter().flat_map(|n| &n.outputs).filter_map(|o| o.1.as_ref());
        if !report.is_supported() || known.into_iter().any(|o| few(&o.1).is_none()) {
            return None;
        }
        let (r, edges, mut inputs) = (&mut self.rng, self.edges, Vec::new());
        for p in report.model.inputs() {
            let dt = p.dtype?;
            let size = |d: &Dim| match d {
                Dim::Value(n) => usize::try_from(*n).ok(),
                _ => Some(1),
            };
            let shape: Vec<usize> = p.dims.as_ref()?.iter().map(size).collect::<Option<_>>()?;
            let mut data = vec![0; few(&shape)? * dt.size()];
            data.chunks_exact_mut(dt.size()).for_each(|b| r.value(dt, edges).write(dt, b));
            inputs.push((p.name.clone(), HostTensor::new(dt, shape, data).ok()?));
        }
        Some(inputs)
    }
}

/// What a changed model may ask for when it is run.
pub fn budget() -> Budget {
    Budget { host_bytes: 1 << 26, nodes: 1 << 12, tensor_elems: 16 * MOST_ELEMS as u64, ..Budget::default() }
}

/// What is wrong with the outputs of a device, beside the evaluator's.
pub fn differ(got: &[(String, HostTensor)], want: &[(String, HostTensor)]) -> Option<String> {
    for ((name, x), (_, y)) in got.iter().zip(want) {
        if x.dtype != y.dtype || x.shape != y.shape {
            return Some(format!("{name} is {} {:?}, not {} {:?}", x.dtype, x.shape, y.dtype, y.shape));
        }
        let exact = !x.dtype.is_float();
        let tolerance = if x.dtype == DType::F16 || x.dtype == DType::BF16 { 5e-2 } else { 2e-3 };
        for (i, (p, q)) in x.to_f64().into_iter().zip(y.to_f64()).enumerate() {
            let near = p == q || p.is_nan() && q.is_nan() || (!exact && (p - q).abs() <= tolerance * q.abs().max(1.0));
            if !near {
                return Some(format!("{name}[{i}] is {p:e}, not {q:e}"));
            }
        }
    }
    None
}
