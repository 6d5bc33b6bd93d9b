//! torch's own operator tests: samples of every OpInfo entry that the tensor table has, called by torch's name with torch's
//! arguments; results and gradients against torch's (see `fixtures/opinfo/make.py`).

use super::host::{data, eval, eval_on};
use super::{Value as Got, tensor};
use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::{Lang, Target};
use gradloom_core::tensor::call::{Value, call, table};
use gradloom_core::{DType, Result, Session, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Operators whose gradients differ from torch's by design: it gives one to the triangle that is not read.
const OTHER_GRADIENT: &[&str] = &["cholesky_inverse", "cholesky_solve"];

pub(super) struct Case {
    pub(super) line: usize,
    pub(super) name: &'static str,
    tolerance: (f64, f64),
    pub(super) args: Vec<Value>,
    pub(super) named: Vec<(&'static str, Value)>,
    outs: Vec<Wanted>,
    /// One entry a float tensor among the arguments; none where torch has none.
    grads: Vec<Option<Wanted>>,
    /// The float tensors among the arguments, in order.
    pub(super) inputs: Vec<Tensor>,
}

struct Wanted {
    float: bool,
    shape: Vec<usize>,
    values: Vec<f64>,
}

struct Reader<'a> {
    session: &'a Session,
    float: DType,
    inputs: Vec<Tensor>,
}

fn blob() -> &'static [u8] {
    include_bytes!("../../fixtures/opinfo/values.bin")
}

fn wanted(text: &str) -> Wanted {
    let (letter, rest) = text.split_once(':').expect("a tensor");
    let (shape, at) = rest.split_once('@').expect("an offset");
    let shape: Vec<usize> = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size")).collect();
    let at: usize = at.parse().expect("an offset");
    let n: usize = shape.iter().product();
    let size = match letter {
        "b" | "u" => 1,
        "l" => 8,
        _ => 4,
    };
    let bytes = &blob()[at..at + n * size];
    let values = bytes
        .chunks_exact(size)
        .map(|c| match letter {
            "f" => f32::from_le_bytes(c.try_into().unwrap()) as f64,
            "i" => i32::from_le_bytes(c.try_into().unwrap()) as f64,
            "l" => i64::from_le_bytes(c.try_into().unwrap()) as f64,
            _ => c[0] as f64,
        })
        .collect();
    Wanted { float: letter == "f", shape, values }
}

impl Reader<'_> {
    fn value(&mut self, text: &str) -> Value {
        let first = text.as_bytes()[0];
        match first {
            b'[' => {
                let inner = &text[1..text.len() - 1];
                Value::List(split(inner, ',').into_iter().map(|t| self.value(t)).collect())
            }
            b'"' => Value::Text(text[1..text.len() - 1].to_string()),
            b'.' if text == ".f32" => Value::DType(self.float),
            b'.' => Value::DType(DType::from_name(&text[1..]).expect("a dtype")),
            b'n' if text == "none" => Value::None,
            b't' if text == "true" => Value::Bool(true),
            b'f' if text == "false" => Value::Bool(false),
            b'f' | b'i' | b'l' | b'u' | b'b' if text.as_bytes().get(1) == Some(&b':') => {
                let w = wanted(text);
                let dtype = match first {
                    b'f' => self.float,
                    b'i' => DType::I32,
                    b'l' => DType::I64,
                    b'u' => DType::U8,
                    _ => DType::Bool,
                };
                let t = tensor(self.session, &w.values, &w.shape, dtype);
                if w.float {
                    self.inputs.push(t.clone());
                }
                Value::Tensor(t)
            }
            _ => match text.parse::<i64>() {
                Ok(i) => Value::Int(i),
                Err(_) => Value::Float(text.parse().unwrap_or_else(|_| panic!("a number: {text}"))),
            },
        }
    }
}

/// Splits outside of brackets.
fn split(text: &str, by: char) -> Vec<&str> {
    let (mut out, mut depth, mut from) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            // a tensor's sizes are separated by commas too, before its offset
            c if c == by && depth == 0 && (c != ',' || complete(&text[from..i])) => {
                out.push(&text[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    if from < text.len() {
        out.push(&text[from..]);
    }
    out
}

fn complete(item: &str) -> bool {
    item.as_bytes().get(1) != Some(&b':') || item.contains('@')
}

pub(super) fn cases(session: &Session, float: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (line, text) in include_str!("../../fixtures/opinfo/cases.txt").lines().enumerate() {
        let f: Vec<&'static str> = text.split('\t').collect();
        let &[name, tolerance, args, outs, grads] = f.as_slice() else { panic!("bad line {text}") };
        let mut numbers = tolerance.split(' ').map(|t| t.parse().expect("a tolerance"));
        let mut r = Reader { session, float, inputs: Vec::new() };
        let (mut list, mut named) = (Vec::new(), Vec::new());
        for a in args.split(' ').filter(|a| !a.is_empty()) {
            match a.split_once('=') {
                Some((n, v)) if n.chars().all(|c| c.is_alphanumeric() || c == '_') => named.push((n, r.value(v))),
                _ => list.push(r.value(a)),
            }
        }
        let grads = grads.split(' ').filter(|g| !g.is_empty()).map(|g| (g != "none").then(|| wanted(g))).collect();
        out.push(Case {
            line: line + 1,
            name,
            tolerance: (numbers.next().expect("two"), numbers.next().expect("two")),
            args: list,
            named,
            outs: outs.split(' ').filter(|o| !o.is_empty()).map(wanted).collect(),
            grads,
            inputs: r.inputs,
        });
    }
    out
}

/// What is compared where a result is not unique: decompositions put together again.
fn canonical(name: &str, outs: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let k = |t: &Tensor| t.dim(-1);
    Ok(match (name, outs.as_slice()) {
        ("linalg.svd", [u, s, vh]) => {
            let us = u.narrow(-1, 0, k(s)?)?.mul(s.unsqueeze(-2)?)?;
            vec![s.clone(), us.matmul(&vh.narrow(-2, 0, k(s)?)?)?]
        }
        ("svd", [u, s, v]) => {
            let us = u.narrow(-1, 0, k(s)?)?.mul(s.unsqueeze(-2)?)?;
            vec![s.clone(), us.matmul(&v.narrow(-1, 0, k(s)?)?.t()?)?]
        }
        ("linalg.eigh", [l, q]) => vec![l.clone(), q.mul(l.unsqueeze(-2)?)?.matmul(&q.t()?)?],
        _ => outs,
    })
}

/// The outputs of a call, such that they are unique.
pub(super) fn outputs(s: &Session, name: &str, args: &[Value], named: &[(&str, Value)]) -> Result<Vec<Tensor>> {
    canonical(name, call(s, name, args, named)?)
}

/// A weighted sum of the float outputs in `dtype`, where torch's are finite; none if there is nothing to sum.
pub(super) fn loss(session: &Session, c: &Case, outs: &[Tensor], dtype: DType) -> Result<Option<Tensor>> {
    let mut loss = None::<Tensor>;
    for (i, (o, w)) in outs.iter().zip(&c.outs).enumerate() {
        // where torch's result is not finite its gradient was left out of the sum
        if !o.dtype().is_float() || o.numel() == 0 || o.shape() != w.shape {
            continue;
        }
        let seed = data(999 + i as u32, o.numel(), -1.0, 1.0);
        let seed: Vec<f64> = seed.iter().zip(&w.values).map(|(s, v)| if v.is_finite() { *s } else { 0.0 }).collect();
        let finite: Vec<f64> = w.values.iter().map(|v| v.is_finite() as u8 as f64).collect();
        let seed = tensor(session, &seed, &o.shape(), o.dtype());
        let finite = tensor(session, &finite, &o.shape(), DType::Bool);
        let part = finite.select(o, 0)?.mul(seed)?.sum(&[], false)?.cast(dtype)?;
        loss = Some(match loss {
            Some(l) => l.add(part)?,
            None => part,
        });
    }
    Ok(loss)
}

/// The value with its float tensors replaced by the next ones.
pub(super) fn substitute(v: &Value, new: &mut std::slice::Iter<'_, Tensor>) -> Value {
    match v {
        Value::Tensor(t) if t.dtype().is_float() => Value::Tensor(new.next().expect("as many as there were").clone()),
        Value::List(l) => Value::List(l.iter().map(|v| substitute(v, new)).collect()),
        v => v.clone(),
    }
}

/// The outputs and gradients of a case as tensors.
fn build(session: &Session, c: &Case) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let outs = outputs(session, c.name, &c.args, &c.named)?;
    if c.grads.iter().all(Option::is_none) {
        return Ok((outs, Vec::new()));
    }
    let Some(loss) = loss(session, c, &outs, DType::F32)? else { return Ok((outs, Vec::new())) };
    let targets: Vec<&Tensor> = c.inputs.iter().collect();
    let grads = loss.grad(&targets)?;
    Ok((outs, grads))
}

#[derive(PartialEq)]
enum Kind {
    Exact,
    Value,
    /// Where torch has NaN anything goes.
    Gradient,
}

fn close(got: &Got, want: &Wanted, tolerance: f64, base: f64, kind: Kind) -> Result<(), String> {
    let (exact, gradient) = (kind == Kind::Exact, kind == Kind::Gradient);
    if got.shape != want.shape {
        return Err(format!("shape {:?}, torch has {:?}", got.shape, want.shape));
    }
    let scale = want.values.iter().filter(|v| v.is_finite()).fold(0.05f64, |m, v| m.max(v.abs()));
    let limit = if exact { 0.0 } else { scale * (base + 20.0 * tolerance) };
    for (i, (&a, &b)) in got.values.iter().zip(&want.values).enumerate() {
        let skip = gradient && b.is_nan();
        if !(skip
            || a == b
            || a.is_nan() && b.is_nan()
            || (a - b).abs() <= limit + 2e-6 * b.abs() * !exact as u8 as f64)
        {
            return Err(format!("[{i}] {a:e}, torch has {b:e} (of {scale:e}, limit {limit:e})"));
        }
    }
    Ok(())
}

/// Names of the table that the samples use, as the environment variable GRADLOOM_OP picks them by a part of their name.
pub(super) fn picked() -> impl Fn(&str) -> bool {
    let only = std::env::var("GRADLOOM_OP").unwrap_or_default();
    let known: BTreeSet<&str> = table().flat_map(|e| e.names.iter().copied()).collect();
    move |name: &str| known.contains(name) && name.contains(&only)
}

/// Runs every `every`-th sample; what differs, by operator.
fn differences(
    every: usize,
    base: f64,
    run: &mut dyn FnMut(&Session, &[&Tensor]) -> Result<Vec<Got>, String>,
) -> BTreeMap<&'static str, Vec<String>> {
    let session = Session::new();
    let picked = picked();
    let mut errors: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for c in cases(&session, DType::F32).into_iter().filter(|c| picked(c.name)).step_by(every) {
        let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| build(&session, &c)));
        let report = |what: String| format!("{}: {what}", c.line);
        let (outs, grads) = match built {
            Ok(Ok(pair)) => pair,
            Ok(Err(e)) => {
                errors.entry(c.name).or_default().push(report(e.to_string()));
                continue;
            }
            Err(_) => {
                errors.entry(c.name).or_default().push(report("a panic".into()));
                continue;
            }
        };
        let all: Vec<&Tensor> = outs.iter().chain(&grads).collect();
        let mut list = Vec::new();
        match run(&session, &all) {
            // shaders have no f64: a refusal, not a wrong number
            Err(e) if e.contains("unsupported dtype") => {}
            Err(e) => list.push(report(e)),
            Ok(mut values) => {
                trim(c.name, &mut values);
                if values.len() < c.outs.len() {
                    list.push(report(format!("{} results, torch has {}", values.len(), c.outs.len())));
                }
                for (i, (v, w)) in values.iter().zip(&c.outs).enumerate() {
                    if let Err(e) = close(
                        v,
                        w,
                        c.tolerance.0,
                        base,
                        if w.float || v.dtype.is_float() { Kind::Value } else { Kind::Exact },
                    ) {
                        list.push(report(format!("out{i} {e}")));
                    }
                }
                let grads = values.get(outs.len()..).unwrap_or(&[]);
                for (i, (w, v)) in c.grads.iter().zip(grads).enumerate() {
                    if let Some(w) = w
                        && !OTHER_GRADIENT.contains(&c.name)
                        && let Err(e) = close(v, w, c.tolerance.1, 4.0 * base, Kind::Gradient)
                    {
                        list.push(report(format!("grad{i} {e}")));
                    }
                }
            }
        }
        if !list.is_empty() {
            errors.entry(c.name).or_default().extend(list);
        }
    }
    errors
}

/// Results with as many elements as the data say come with their count.
fn trim(name: &str, values: &mut Vec<Got>) {
    if !["nonzero", "argwhere", "masked_select", "unique"].contains(&name) {
        return;
    }
    let count = values[1].values[0] as usize;
    let v = &mut values[0];
    let row: usize = v.shape[1..].iter().product();
    v.shape[0] = count;
    v.values.truncate(count * row);
}

fn check(errors: BTreeMap<&'static str, Vec<String>>) {
    let text: Vec<String> = errors.iter().map(|(n, l)| format!("{n}\n    {}", l.join("\n    "))).collect();
    assert!(errors.is_empty(), "{} operators differ:\n{}", errors.len(), text.join("\n"));
}

/// Every sample through a device.
pub(super) fn on(engine: &mut Engine, every: usize) {
    check(differences(every, 1e-5, &mut |session, t| {
        let run = std::panic::AssertUnwindSafe(|| eval_on(engine, t));
        let out = match std::panic::catch_unwind(run) {
            Ok(values) => values.map_err(|e| e.to_string()),
            Err(_) => Err("a panic".into()),
        };
        engine.collect(&mut session.state());
        out
    }));
}

#[test]
fn opinfo_samples_are_torchs() {
    check(differences(1, 5e-6, &mut |_, t| Ok(eval(t))));
}

#[test]
fn the_table_covers_opinfo() {
    let known: BTreeSet<&str> = table().flat_map(|e| e.names.iter().copied()).collect();
    let asked: BTreeSet<&str> =
        include_str!("../../fixtures/opinfo/cases.txt").lines().filter_map(|l| l.split('\t').next()).collect();
    let missing: Vec<&&str> = asked.iter().filter(|n| !known.contains(**n)).collect();
    let have = asked.len() - missing.len();
    eprintln!("{have} of {} operators; missing: {missing:?}", asked.len());
    assert!(have >= 350, "only {have} operators");
}

/// Every other sample, to save time.
#[cfg(all(unix, target_arch = "x86_64"))]
#[test]
fn opinfo_samples_are_torchs_on_the_cpu() {
    let Some(isa) = gradloom::cpu::detect() else { return };
    on(&mut Engine::new(Box::new(gradloom::cpu::CpuDevice::with_isa(isa, 2).expect("a device"))), 2);
}

/// Programs as shaders get them, run by the interpreter: a sample.
#[test]
fn opinfo_samples_are_torchs_with_a_shaders_capabilities() {
    let target = Target { lang: Lang::Eval, ..Target::wgsl("shader") };
    on(&mut Engine::new(Box::new(EvalDevice::new(target))), 9);
}

/// On a GPU or a software driver: a sample, as compiling takes long there.
#[cfg(feature = "wgpu")]
#[test]
fn opinfo_samples_are_torchs_on_wgpu() {
    let Ok(device) = gradloom::wgpu::WgpuDevice::new() else { return };
    on(&mut Engine::new(Box::new(device)), 23);
}
