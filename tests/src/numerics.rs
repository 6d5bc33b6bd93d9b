//! The numeric contract: a grid of operators at the edges of their types, what is wanted of them, and what may differ.
//!
//! `fixtures/numerics/cases.txt` has torch's values (`conformance/numerics.py`); `edges.onnx` and `edges.npz` are a graph of ONNX operators
//! with onnxruntime's (`conformance/numerics_onnx.py`); `differences.txt` lists what may differ, with the reason. Running things is the
//! caller's: natively at once, in a page between awaits.

use gradloom_core::dtype::Scalar;
use gradloom_core::engine::Bytes;
use gradloom_core::io::{HostTensor, npz};
use gradloom_core::tensor::call::{Value, call};
use gradloom_core::{DType, Error, Result, Session, Tensor};
use std::collections::BTreeMap;

const CASES: &str = include_str!("../fixtures/numerics/cases.txt");
const DIFFERENCES: &str = include_str!("../fixtures/numerics/differences.txt");
/// One graph of ONNX operators.
pub const EDGES: &[u8] = include_bytes!("../fixtures/numerics/edges.onnx");
const EDGES_VALUES: &[u8] = include_bytes!("../fixtures/numerics/edges.npz");

/// An operator, its operands as text, and what is wanted.
pub struct Case {
    /// As torch names it, or `cast:` and a type.
    pub op: &'static str,
    args: Vec<&'static str>,
    wanted: Vec<HostTensor>,
}

/// A line of the differences: where it holds, and why.
pub struct Allowed {
    devices: Vec<String>,
    ops: Vec<String>,
    dtypes: Vec<String>,
    when: Vec<String>,
    why: String,
}

/// Everything that is recorded.
pub struct Grid {
    known: BTreeMap<&'static str, HostTensor>,
    /// What torch was asked.
    pub cases: Vec<Case>,
    /// What may differ.
    pub rules: Vec<Allowed>,
    /// Inputs of [`EDGES`] by name.
    pub edge_inputs: Vec<(String, HostTensor)>,
    edge_outputs: BTreeMap<String, HostTensor>,
}

/// What one element of a result has to do with the wanted one.
struct Pair<'a> {
    device: &'a str,
    op: &'a str,
    dtype: DType,
    got: f64,
    want: f64,
    /// The type of the first operand.
    of: DType,
    /// The elements that it was made of.
    from: Vec<f64>,
}

/// Of one operator and type on one device.
#[derive(Clone, Default)]
pub struct Measured {
    ulp: f64,
    excused: usize,
    missing: bool,
}

impl Measured {
    /// As a cell of the table.
    pub fn cell(&self) -> String {
        let ulp = if self.ulp == 0.0 { "=".to_string() } else { format!("{:.1}", self.ulp.max(0.05)) };
        match (self.missing, self.excused) {
            (true, _) => "-".to_string(),
            (_, 0) => ulp,
            (_, n) => format!("{ulp} + {n}"),
        }
    }
}

/// What was found on a device.
pub struct Tally<'a> {
    grid: &'a Grid,
    device: &'a str,
    /// How often each rule was needed.
    pub used: Vec<usize>,
    /// By operator and type of its first operand.
    pub table: BTreeMap<(String, String), Measured>,
    /// Differences that no rule allows, as texts.
    pub failures: Vec<String>,
}

fn recorded(text: &str) -> HostTensor {
    let parts: Vec<&str> = text.split(':').collect();
    let &[dtype, shape, hex] = parts.as_slice() else { panic!("bad tensor {text}") };
    let shape = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size")).collect();
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal digits");
    let data = (0..hex.len()).step_by(2).map(byte).collect();
    HostTensor::new(DType::from_name(dtype).expect("a dtype"), shape, data).expect("a recorded tensor")
}

fn values(t: &HostTensor) -> Vec<f64> {
    let read = |c: &[u8]| Scalar::read(t.dtype, c).as_f64_of(t.dtype);
    t.data.chunks_exact(t.dtype.size()).map(read).collect()
}

/// The distance in units in the last place of what is wanted, where infinity follows the largest number.
fn ulps(got: f64, want: f64, dtype: DType) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    let (mantissa, lowest, highest) = match dtype {
        DType::F32 => (23, -126, 128),
        DType::F16 => (10, -14, 16),
        DType::BF16 => (7, -126, 128),
        _ => return f64::INFINITY,
    };
    if got.is_nan() || want.is_nan() {
        return f64::INFINITY;
    }
    let finite = |v: f64| if v.is_infinite() { v.signum() * 2f64.powi(highest) } else { v };
    let exponent = want.abs().log2().floor().clamp(lowest as f64, highest as f64 - 1.0) as i32;
    (finite(got) - finite(want)).abs() / 2f64.powi(exponent - mantissa)
}

fn is_subnormal(v: f64, dtype: DType) -> bool {
    let least = if dtype == DType::F16 { 2f64.powi(-14) } else { f64::from(f32::MIN_POSITIVE) };
    dtype.is_float() && v != 0.0 && v.abs() < least
}

impl Allowed {
    fn names(&self, device: &str, op: &str, dtype: &str) -> bool {
        let has = |list: &[String], name: &str| list.iter().any(|l| l == "*" || l == name);
        has(&self.devices, device) && has(&self.ops, op) && has(&self.dtypes, dtype)
    }

    fn covers(&self, p: &Pair<'_>) -> bool {
        let holds = |when: &String| {
            let (word, number) = when.rsplit_once(' ').unwrap_or((when, ""));
            match (word, number.parse::<f64>()) {
                ("ulp", Ok(n)) => ulps(p.got, p.want, p.dtype) <= n,
                ("within", Ok(n)) => (p.got - p.want).abs() <= n,
                ("above", Ok(n)) => p.from.iter().any(|v| v.abs() > n),
                _ => match when.as_str() {
                    "any" => true,
                    "sign of zero" => p.got == p.want,
                    "subnormal" => {
                        [p.got, p.want].iter().any(|&v| is_subnormal(v, p.dtype))
                            || p.from.iter().any(|&v| is_subnormal(v, p.of))
                    }
                    "NaN" => p.from.iter().any(|v| v.is_nan()),
                    "infinity" => p.from.iter().any(|v| v.is_infinite()),
                    "zero" => p.from.contains(&0.0),
                    other => panic!("differences.txt: `{other}` is no condition"),
                },
            }
        };
        self.names(p.device, p.op, &p.dtype.to_string()) && self.when.iter().all(holds)
    }

    /// Is it needed wherever the grid is run, and why?
    pub fn everywhere(&self) -> Option<&str> {
        (self.devices == ["*"]).then_some(self.why.as_str())
    }

    /// Does it name this device, and why?
    pub fn of(&self, device: &str) -> Option<&str> {
        self.devices.iter().any(|d| d == device).then_some(self.why.as_str())
    }

    /// As a row of the table.
    pub fn row(&self) -> String {
        let list = |l: &[String]| if l[0] == "*" { "all".to_string() } else { l.join(", ") };
        let [devices, ops, dtypes, when] = [&self.devices, &self.ops, &self.dtypes, &self.when].map(|l| list(l));
        format!("| {devices} | {ops} | {dtypes} | {when} | {} |", self.why)
    }
}

fn allowed(text: &str) -> Vec<Allowed> {
    let list = |t: &str| t.split(',').map(|t| t.trim().to_string()).collect::<Vec<_>>();
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|line| {
            let f: Vec<&str> = line.split('|').map(str::trim).collect();
            let &[devices, ops, dtypes, when, why] = f.as_slice() else { panic!("differences.txt: bad line {line}") };
            let [devices, ops, dtypes, when] = [devices, ops, dtypes, when].map(list);
            Allowed { devices, ops, dtypes, when, why: why.to_string() }
        })
        .collect()
}

/// The elements that element `i` of a result was made of: those at its place, or those of its row.
fn sources(inputs: &[Vec<f64>], of: usize, i: usize, columns: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for x in inputs {
        match x.len() {
            n if n == of && columns == 0 => out.push(x[i]),
            n => {
                let rows = if columns == 0 { of } else { of / columns };
                let (row, width) = (if columns == 0 { i } else { i / columns }, n / rows.max(1));
                out.extend(x.get(row * width..(row + 1) * width).unwrap_or(x));
            }
        }
    }
    out
}

impl Grid {
    /// Reads the records.
    pub fn read() -> Grid {
        let mut known = BTreeMap::new();
        let mut cases = Vec::new();
        for line in CASES.lines().filter(|l| !l.starts_with('#')) {
            let f: Vec<&str> = line.split('\t').collect();
            match (line.strip_prefix('@'), f.as_slice()) {
                (Some(_), [name, tensor]) => _ = known.insert(&name[1..], recorded(tensor)),
                (None, [op, args, wanted]) => cases.push(Case {
                    op,
                    args: args.split(' ').collect(),
                    wanted: wanted.split(' ').map(recorded).collect(),
                }),
                _ => panic!("bad line {line}"),
            }
        }
        let arrays = npz::read(EDGES_VALUES).expect("the recorded values");
        let part = |p: &str| -> Vec<(String, HostTensor)> {
            arrays.iter().filter_map(|(n, t)| Some((n.strip_prefix(p)?.to_string(), t.clone()))).collect()
        };
        let (edge_inputs, edge_outputs) = (part("in/"), part("out/").into_iter().collect());
        Grid { known, cases, rules: allowed(DIFFERENCES), edge_inputs, edge_outputs }
    }

    fn tensor(&self, s: &Session, name: &str) -> Tensor {
        let t = &self.known[name];
        Tensor::from_bytes(s, t.dtype, &t.shape, Bytes::new(t.data.clone())).expect("a recorded tensor")
    }

    fn value(&self, s: &Session, text: &str) -> Value {
        match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => match (text.strip_prefix('@'), text.strip_prefix('"')) {
                (Some(name), _) => Value::Tensor(self.tensor(s, name)),
                (_, Some(t)) => Value::Text(t.trim_end_matches('"').to_string()),
                _ => Value::Int(text.parse().expect("a number")),
            },
        }
    }

    /// The tensors of a case.
    pub fn outputs(&self, s: &Session, case: &Case) -> Result<Vec<Tensor>> {
        if let Some(dtype) = case.op.strip_prefix("cast:") {
            let x = self.tensor(s, &case.args[0][1..]);
            return Ok(vec![x.cast(DType::from_name(dtype).expect("a dtype"))?]);
        }
        let (mut args, mut named) = (Vec::new(), Vec::new());
        for a in &case.args {
            match a.split_once('=') {
                Some((n, v)) => named.push((n, self.value(s, v))),
                None => args.push(self.value(s, a)),
            }
        }
        call(s, case.op, &args, &named)
    }
}

impl<'a> Tally<'a> {
    /// Nothing yet.
    pub fn new(grid: &'a Grid, device: &'a str) -> Tally<'a> {
        Tally { grid, device, used: vec![0; grid.rules.len()], table: BTreeMap::new(), failures: Vec::new() }
    }

    /// What a case gave.
    pub fn case(&mut self, case: &Case, got: Result<Vec<HostTensor>>) {
        let grid = self.grid;
        let operands: Vec<&HostTensor> =
            case.args.iter().filter_map(|a| a.strip_prefix('@')).map(|n| &grid.known[n]).collect();
        let of = operands.first().map_or(String::new(), |t| t.dtype.to_string());
        let got = match got {
            Ok(got) => got,
            Err(Error::Unsupported { .. }) => {
                self.table.entry((case.op.to_string(), of)).or_default().missing = true;
                return;
            }
            Err(e) => return self.failures.push(format!("{}: {} {of}: {e}", self.device, case.op)),
        };
        let by_row = case.args.contains(&"dim=-1");
        for (got, want) in got.iter().zip(&case.wanted) {
            self.compare(case.op, &operands, by_row, got, want);
        }
    }

    /// What the graph of ONNX operators gave.
    pub fn edges(&mut self, got: &[(String, HostTensor)]) {
        let grid = self.grid;
        for (name, want) in &grid.edge_outputs {
            let (op, of) = (name.split('|').next().unwrap_or(name), name.rsplit('|').next().unwrap_or(""));
            let Some((_, got)) = got.iter().find(|g| g.0 == *name) else {
                self.failures.push(format!("{}: the graph gives no {name}", self.device));
                continue;
            };
            // the operands as the records name them: of one element each, or a row
            let named = |n: &str| grid.edge_inputs.iter().find(|i| i.0 == n).map(|i| &i.1);
            let suffix = if of == "f32" { "" } else { of };
            let pair: &[&str] = match (op, want.shape.as_slice()) {
                ("Resize", _) => &["image"],
                (_, [13] | [13, _]) => &["rows"],
                ("Div", _) if of.starts_with(['i', 'u']) => &["nfloor_divide", "dfloor_divide"],
                ("Mod", _) if name.contains("fmod") && suffix.starts_with(['i', 'u']) => &["nfmod", "dfmod"],
                ("Mod", _) if suffix.starts_with(['i', 'u']) => &["nremainder", "dremainder"],
                _ => &["u", "a", "b", "v", "p", "q"],
            };
            let all = pair.iter().filter_map(|n| named(&format!("{n}{suffix}")).or_else(|| named(n)));
            let operands: Vec<&HostTensor> = all.filter(|t| pair.len() < 6 || t.shape == want.shape).collect();
            self.compare(op, &operands, want.shape.len() == 2, got, want);
        }
    }

    fn compare(&mut self, op: &str, operands: &[&HostTensor], by_row: bool, got: &HostTensor, want: &HostTensor) {
        let first = operands.first().map(|t| t.dtype);
        let of = first.map_or(String::new(), |t| t.to_string());
        if got.dtype != want.dtype || got.shape != want.shape {
            let shapes = (got.dtype, &got.shape, want.dtype, &want.shape);
            return self.failures.push(format!("{}: {op} {of}: {shapes:?}", self.device));
        }
        let entry = self.table.entry((op.to_string(), of)).or_default();
        let inputs: Vec<Vec<f64>> = operands.iter().map(|t| values(t)).collect();
        let (got, wanted) = (values(got), values(want));
        let n = wanted.len();
        let columns = match inputs.iter().any(|x| x.len() != n) || by_row {
            true => want.shape.get(1).copied().unwrap_or(0),
            false => 0,
        };
        for (i, (&g, &w)) in got.iter().zip(&wanted).enumerate() {
            let same = g.is_nan() && w.is_nan() || g == w && (g != 0.0 || g.is_sign_negative() == w.is_sign_negative());
            if same {
                continue;
            }
            let from = sources(&inputs, n, i, columns);
            let (dtype, of) = (want.dtype, first.unwrap_or(want.dtype));
            let pair = Pair { device: self.device, op, dtype, got: g, want: w, of, from };
            match self.grid.rules.iter().position(|r| r.covers(&pair)) {
                Some(rule) => {
                    self.used[rule] += 1;
                    match self.grid.rules[rule].when.iter().any(|w| w.starts_with("ulp")) {
                        true => entry.ulp = entry.ulp.max(ulps(g, w, want.dtype)),
                        false => entry.excused += 1,
                    }
                }
                None => self.failures.push(format!(
                    "{}: {op} {} of {:?}: {g:?}, {w:?} wanted ({} ulp)",
                    self.device,
                    want.dtype,
                    pair.from,
                    ulps(g, w, want.dtype)
                )),
            }
        }
    }
}
