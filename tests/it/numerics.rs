//! The numeric contract: what operators give at the edges of their types, on every device that is here, against torch's values.
//!
//! `fixtures/numerics/cases.txt` is written by `conformance/numerics.py`. `fixtures/numerics/differences.txt` lists what may
//! differ, with the reason: anything else is a failure. With `BLESS=1`, `docs/numerics.md` is written from both and from what
//! was measured (`npm run numerics`).

use gradloom::Runtime;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::Bytes;
use gradloom_core::tensor::call::{Value, call};
use gradloom_core::{DType, Error, Result, Session, Tensor};
use gradloom_tests::here;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const DEVICES: [&str; 6] = ["eval", "cpu", "cpu:avx2", "llvm", "c", "wgpu"];

/// Elements as they were recorded.
#[derive(Clone)]
struct Recorded {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

struct Case<'a> {
    op: &'a str,
    args: Vec<&'a str>,
    wanted: Vec<Recorded>,
}

/// A line of the differences: where it holds, and why.
struct Allowed {
    devices: Vec<String>,
    ops: Vec<String>,
    dtypes: Vec<String>,
    when: Vec<String>,
    why: String,
}

/// What one element of a result has to do with the wanted one.
struct Pair<'a> {
    device: &'a str,
    op: &'a str,
    dtype: DType,
    got: f64,
    want: f64,
    /// The elements that it was made of.
    from: Vec<f64>,
}

/// Of one operator and type on one device.
#[derive(Clone, Default)]
struct Measured {
    ulp: f64,
    excused: usize,
    missing: bool,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn recorded(text: &str) -> Recorded {
    let parts: Vec<&str> = text.split(':').collect();
    let &[dtype, shape, hex] = parts.as_slice() else { panic!("bad tensor {text}") };
    let shape = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size")).collect();
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal digits");
    let bytes = (0..hex.len()).step_by(2).map(byte).collect();
    Recorded { dtype: DType::from_name(dtype).expect("a dtype"), shape, bytes }
}

impl Recorded {
    fn values(&self) -> Vec<f64> {
        let read = |c: &[u8]| Scalar::read(self.dtype, c).as_f64_of(self.dtype);
        self.bytes.chunks_exact(self.dtype.size()).map(read).collect()
    }

    fn tensor(&self, s: &Session) -> Tensor {
        Tensor::from_bytes(s, self.dtype, &self.shape, Bytes::new(self.bytes.clone())).expect("a recorded tensor")
    }
}

fn value(s: &Session, known: &BTreeMap<&str, Recorded>, text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match (text.strip_prefix('@'), text.strip_prefix('"')) {
            (Some(name), _) => Value::Tensor(known[name].tensor(s)),
            (_, Some(t)) => Value::Text(t.trim_end_matches('"').to_string()),
            _ => Value::Int(text.parse().expect("a number")),
        },
    }
}

/// The tensors of a case.
fn outputs(s: &Session, known: &BTreeMap<&str, Recorded>, case: &Case<'_>) -> Result<Vec<Tensor>> {
    if let Some(dtype) = case.op.strip_prefix("cast:") {
        let x = known[&case.args[0][1..]].tensor(s);
        return Ok(vec![x.cast(DType::from_name(dtype).expect("a dtype"))?]);
    }
    let (mut args, mut named) = (Vec::new(), Vec::new());
    for a in &case.args {
        match a.split_once('=') {
            Some((n, v)) => named.push((n, value(s, known, v))),
            None => args.push(value(s, known, a)),
        }
    }
    call(s, case.op, &args, &named)
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
                    "subnormal" => p.from.iter().chain([&p.got, &p.want]).any(|&v| is_subnormal(v, p.dtype)),
                    "NaN" => p.from.iter().any(|v| v.is_nan()),
                    "infinity" => p.from.iter().any(|v| v.is_infinite()),
                    "zero" => p.from.contains(&0.0),
                    other => panic!("differences.txt: `{other}` is no condition"),
                },
            }
        };
        self.names(p.device, p.op, &p.dtype.to_string()) && self.when.iter().all(holds)
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
                out.extend_from_slice(&x[row * width..(row + 1) * width]);
            }
        }
    }
    out
}

fn read(rt: &mut Runtime, t: &Tensor) -> Result<Recorded> {
    let h = rt.read(t)?;
    Ok(Recorded { dtype: h.dtype, shape: h.shape, bytes: h.data })
}

#[test]
fn edges_of_every_type_are_as_the_contract_says() {
    let text = std::fs::read_to_string(folder("fixtures/numerics/cases.txt")).expect("the recorded cases");
    let rules = std::fs::read_to_string(folder("fixtures/numerics/differences.txt")).expect("the list of differences");
    let rules = allowed(&rules);
    let mut known = BTreeMap::new();
    let mut cases = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
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
    let mut used = vec![0usize; rules.len()];
    let mut table: BTreeMap<(String, String), BTreeMap<&str, Measured>> = BTreeMap::new();
    let (mut failures, mut devices) = (Vec::new(), Vec::new());
    for device in DEVICES {
        let Some(mut rt) = here::device(device, Runtime::open(device, 1)) else { continue };
        devices.push(device);
        let s = rt.session().clone();
        let made: Vec<Result<Vec<Tensor>>> = cases.iter().map(|c| outputs(&s, &known, c)).collect();
        let all: Vec<&Tensor> = made.iter().flatten().flatten().collect();
        // at once where that works: compilers start seldom then
        _ = rt.realize(&all);
        for (case, outs) in cases.iter().zip(&made) {
            let inputs: Vec<Vec<f64>> =
                case.args.iter().filter_map(|a| a.strip_prefix('@')).map(|n| known[n].values()).collect();
            let from = case
                .args
                .iter()
                .find_map(|a| a.strip_prefix('@'))
                .map_or(String::new(), |n| known[n].dtype.to_string());
            let entry = table.entry((case.op.to_string(), from.clone())).or_default().entry(device).or_default();
            let got = match outs {
                Ok(outs) => outs.iter().map(|t| read(&mut rt, t)).collect::<Result<Vec<_>>>(),
                Err(e) => Err(e.clone()),
            };
            let got = match got {
                Ok(got) => got,
                Err(Error::Unsupported { .. }) => {
                    entry.missing = true;
                    continue;
                }
                Err(e) => {
                    failures.push(format!("{device}: {} {from}: {e}", case.op));
                    continue;
                }
            };
            for (got, want) in got.iter().zip(&case.wanted) {
                if got.dtype != want.dtype || got.shape != want.shape {
                    let shapes = (got.dtype, &got.shape, want.dtype, &want.shape);
                    failures.push(format!("{device}: {} {from}: {shapes:?}", case.op));
                    continue;
                }
                let columns = if inputs.iter().any(|x| x.len() != want.values().len()) || case.args.contains(&"dim=-1")
                {
                    want.shape.get(1).copied().unwrap_or(0)
                } else {
                    0
                };
                let n = want.values().len();
                for (i, (&g, &w)) in got.values().iter().zip(&want.values()).enumerate() {
                    let same = g.is_nan() && w.is_nan()
                        || g == w && (g != 0.0 || g.is_sign_negative() == w.is_sign_negative());
                    let parts = sources(&inputs, n, i, columns);
                    let pair = Pair { device, op: case.op, dtype: want.dtype, got: g, want: w, from: parts };
                    let rule = rules.iter().position(|r| r.covers(&pair));
                    match rule {
                        _ if same => {}
                        Some(rule) => {
                            used[rule] += 1;
                            match rules[rule].when.iter().any(|w| w.starts_with("ulp")) {
                                true => entry.ulp = entry.ulp.max(ulps(g, w, want.dtype)),
                                false => entry.excused += 1,
                            }
                        }
                        None => failures.push(format!(
                            "{device}: {} {} of {:?}: {g:?}, {w:?} wanted ({} ulp)",
                            case.op,
                            want.dtype,
                            pair.from,
                            ulps(g, w, want.dtype)
                        )),
                    }
                }
            }
        }
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(folder("../docs/numerics.md"), document(&table, &devices, &rules)).expect("docs is there");
    }
    if let Some(file) = std::env::var_os("NUMERICS_LOG") {
        std::fs::write(file, failures.join("\n")).expect("a file for the list");
    }
    let first: Vec<&String> = failures.iter().take(40).collect();
    assert!(failures.is_empty(), "{} differences that are not listed:\n{first:#?}", failures.len());
    let idle: Vec<&str> =
        rules.iter().zip(&used).filter(|(r, n)| **n == 0 && r.devices == ["*"]).map(|(r, _)| &*r.why).collect();
    assert!(idle.is_empty(), "differences.txt has lines that nothing needs: {idle:#?}");
}

/// `docs/numerics.md`.
fn document(
    table: &BTreeMap<(String, String), BTreeMap<&str, Measured>>,
    devices: &[&str],
    rules: &[Allowed],
) -> String {
    let mut out = std::fs::read_to_string(folder("fixtures/numerics/contract.md")).expect("the contract's text");
    out.push_str("\n## What may differ\n\n| device | operators | types | when | why |\n|---|---|---|---|---|\n");
    for r in rules {
        let [devices, ops, dtypes, when] = [&r.devices, &r.ops, &r.dtypes, &r.when]
            .map(|l| if l[0] == "*" { "all".to_string() } else { l.join(", ") });
        let _ = writeln!(out, "| {devices} | {ops} | {dtypes} | {when} | {} |", r.why);
    }
    out.push_str("\n## As measured\n\n");
    out.push_str("The largest distance from the wanted value in units in the last place over the edge values; `=` where every \
        result is the wanted one, bit for bit (of NaN any will do); `+ n` where n more results differ as listed above; `-` where \
        the device has no such operator on that type.\n\n| operator | of |");
    devices.iter().for_each(|d| _ = write!(out, " {d} |"));
    let _ = writeln!(out, "\n|---|---|{}", "---|".repeat(devices.len()));
    for ((op, dtype), row) in table {
        let _ = write!(out, "| {} | {dtype} |", op.trim_start_matches("nn.functional."));
        for d in devices {
            let m = row.get(d).cloned().unwrap_or_default();
            let ulp = if m.ulp == 0.0 { "=".to_string() } else { format!("{:.1}", m.ulp.max(0.05)) };
            let text = match (m.missing, m.excused) {
                (true, _) => "-".to_string(),
                (_, 0) => ulp,
                (_, n) => format!("{ulp} + {n}"),
            };
            let _ = write!(out, " {text} |");
        }
        out.push('\n');
    }
    out
}
