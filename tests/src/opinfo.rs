//! torch's own operator tests: samples of every OpInfo entry that the tensor table has, called by torch's name with torch's
//! arguments; results and gradients against torch's (see `fixtures/opinfo/make.py`). On every device, native or of a page.

use crate::runner::block;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Bytes, Engine, RootId};
use gradloom_core::tensor::call::{Value, call, table};
use gradloom_core::{DType, Error, Result, Session, Tensor};
use std::collections::BTreeSet;
use std::future::{Future, ready};

/// Operators whose gradients differ from torch's by design: it gives one to the triangle that is not read.
const OTHER_GRADIENT: &[&str] = &["cholesky_inverse", "cholesky_solve"];

/// Operators with as many results as the data say: they come with their count.
const COUNTED: &[&str] = &["nonzero", "argwhere", "masked_select", "unique", "unique_consecutive"];

/// A tensor's value.
pub struct Got {
    /// Its element type.
    pub dtype: DType,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its elements.
    pub values: Vec<f64>,
}

/// A line of the recorded samples.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Its number, from 1.
    pub line: usize,
    /// torch's name of the operator.
    pub name: &'static str,
    fields: [&'static str; 4],
}

/// The element types that a sample's tensors are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Types {
    /// Of float tensors.
    pub float: DType,
    /// Of tensors that torch's tests have in int64.
    pub int: DType,
}

/// A sample with its tensors in a session.
pub struct Case {
    /// The sample.
    pub sample: Sample,
    tolerance: (f64, f64),
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Named arguments.
    pub named: Vec<(&'static str, Value)>,
    outs: Vec<Wanted>,
    /// One entry a float tensor among the arguments; none where torch has none.
    grads: Vec<Option<Wanted>>,
    /// The float tensors among the arguments, in order.
    pub inputs: Vec<Tensor>,
}

struct Wanted {
    float: bool,
    shape: Vec<usize>,
    values: Vec<f64>,
}

struct Reader<'a> {
    session: &'a Session,
    types: Types,
    inputs: Vec<Tensor>,
}

/// Every recorded sample of an operator that the table has.
pub fn samples() -> Vec<Sample> {
    let known: BTreeSet<&str> = table().flat_map(|e| e.names.iter().copied()).collect();
    recorded().filter(|s| known.contains(s.name)).collect()
}

/// Every recorded sample.
pub fn recorded() -> impl Iterator<Item = Sample> {
    let lines = include_str!("../fixtures/opinfo/cases.txt").lines().enumerate();
    lines.filter(|(_, text)| !text.starts_with('#')).map(|(i, text)| {
        let f: Vec<&'static str> = text.split('\t').collect();
        let &[name, tolerance, args, outs, grads] = f.as_slice() else { panic!("bad line {text}") };
        Sample { line: i + 1, name, fields: [tolerance, args, outs, grads] }
    })
}

impl Sample {
    fn has(&self, letter: &str) -> bool {
        self.fields[1].split([' ', ',', '[', '=']).any(|t| t.starts_with(letter))
    }

    /// The element types that a sample is run with: f32 and f64, i32 and i64, or bool, by what torch's test has.
    pub fn dtypes(&self) -> &'static [DType] {
        match () {
            () if self.has("f:") => &[DType::F32, DType::F64],
            () if self.has("i:") || self.has("l:") => &[DType::I32, DType::I64],
            () if self.has("b:") || self.has("u:") => &[DType::Bool],
            () => &[DType::F32],
        }
    }

    /// The sample's tensors in a session.
    pub fn read(self, session: &Session, types: Types) -> Case {
        let [tolerance, args, outs, grads] = self.fields;
        let mut numbers = tolerance.split(' ').map(|t| t.parse().expect("a tolerance"));
        let mut r = Reader { session, types, inputs: Vec::new() };
        let (mut list, mut named) = (Vec::new(), Vec::new());
        for a in args.split(' ').filter(|a| !a.is_empty()) {
            match a.split_once('=') {
                Some((n, v)) if n.chars().all(|c| c.is_alphanumeric() || c == '_') => named.push((n, r.value(v))),
                _ => list.push(r.value(a)),
            }
        }
        let grads = grads.split(' ').filter(|g| !g.is_empty()).map(|g| (g != "none").then(|| wanted(g))).collect();
        Case {
            sample: self,
            tolerance: (numbers.next().expect("two"), numbers.next().expect("two")),
            args: list,
            named,
            outs: outs.split(' ').filter(|o| !o.is_empty()).map(wanted).collect(),
            grads,
            inputs: r.inputs,
        }
    }
}

fn wanted(text: &str) -> Wanted {
    let blob: &[u8] = include_bytes!("../fixtures/opinfo/values.bin");
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
    let values = blob[at..at + n * size]
        .chunks_exact(size)
        .map(|c| match letter {
            "f" => f32::from_le_bytes(c.try_into().expect("4 bytes")) as f64,
            "i" => i32::from_le_bytes(c.try_into().expect("4 bytes")) as f64,
            "l" => i64::from_le_bytes(c.try_into().expect("8 bytes")) as f64,
            _ => c[0] as f64,
        })
        .collect();
    Wanted { float: letter == "f", shape, values }
}

/// A tensor of `dtype` with storage; devices need not know f64.
pub fn tensor(session: &Session, values: &[f64], shape: &[usize], dtype: DType) -> Tensor {
    let mut bytes = vec![0; values.len() * dtype.size()];
    for (v, out) in values.iter().zip(bytes.chunks_exact_mut(dtype.size())) {
        Scalar::from_f64(*v, dtype).write(dtype, out);
    }
    Tensor::from_bytes(session, dtype, shape, Bytes::new(bytes)).expect("the values fill the shape")
}

/// `n` numbers in `lo..hi`, the same as in `make.py`.
pub fn data(seed: u32, n: usize, lo: f64, hi: f64) -> Vec<f64> {
    (0..n as u32)
        .map(|i| {
            let mut h =
                i.wrapping_mul(0x9E37_79B1).wrapping_add(seed.wrapping_mul(0x85EB_CA77)).wrapping_add(0x1656_67B1);
            h ^= h >> 15;
            h = h.wrapping_mul(0x2C1B_3C6D);
            h ^= h >> 12;
            h = h.wrapping_mul(0x297A_2D39);
            h ^= h >> 15;
            lo + (hi - lo) * (h as f64 / 4294967296.0)
        })
        .collect()
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
            b'.' if text == ".f32" => Value::DType(self.types.float),
            b'.' => Value::DType(DType::from_name(&text[1..]).expect("a dtype")),
            b'n' if text == "none" => Value::None,
            b't' if text == "true" => Value::Bool(true),
            b'f' if text == "false" => Value::Bool(false),
            b'f' | b'i' | b'l' | b'u' | b'b' if text.as_bytes().get(1) == Some(&b':') => {
                let w = wanted(text);
                let dtype = match first {
                    b'f' => self.types.float,
                    b'i' => self.types.int,
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
pub fn outputs(s: &Session, name: &str, args: &[Value], named: &[(&str, Value)]) -> Result<Vec<Tensor>> {
    canonical(name, call(s, name, args, named)?)
}

impl Case {
    /// A weighted sum of the float outputs in `dtype`, where torch's are finite; none if there is nothing to sum.
    pub fn loss(&self, session: &Session, outs: &[Tensor], dtype: DType) -> Result<Option<Tensor>> {
        let mut loss = None::<Tensor>;
        for (i, (o, w)) in outs.iter().zip(&self.outs).enumerate() {
            // where torch's result is not finite its gradient was left out of the sum
            if !o.dtype().is_float() || o.numel() == 0 || o.shape() != w.shape {
                continue;
            }
            let seed = data(999 + i as u32, o.numel(), -1.0, 1.0);
            let seed: Vec<f64> =
                seed.iter().zip(&w.values).map(|(s, v)| if v.is_finite() { *s } else { 0.0 }).collect();
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

    /// The outputs and gradients as tensors, those in `dtype` where the sample has floats.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn build(&self, session: &Session, dtype: DType) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let outs = outputs(session, self.sample.name, &self.args, &self.named)?;
        if self.grads.iter().all(Option::is_none) {
            return Ok((outs, Vec::new()));
        }
        let Some(loss) = self.loss(session, &outs, dtype)? else { return Ok((outs, Vec::new())) };
        let targets: Vec<&Tensor> = self.inputs.iter().collect();
        let grads = loss.grad(&targets)?;
        Ok((outs, grads))
    }

    /// What is wrong with the values of the first `outs` tensors, which are outputs, and the rest, which are gradients. `base`
    /// is the error that is allowed beyond torch's own, of the largest value.
    pub fn check(&self, mut values: Vec<Got>, outs: usize, base: f64) -> Vec<String> {
        let mut list = Vec::new();
        if COUNTED.contains(&self.sample.name) {
            let count = values[1].values[0] as usize;
            let v = &mut values[0];
            let row: usize = v.shape[1..].iter().product();
            v.shape[0] = count;
            v.values.truncate(count * row);
        }
        if values.len() < self.outs.len() {
            list.push(format!("{} results, torch has {}", values.len(), self.outs.len()));
        }
        for (i, (v, w)) in values.iter().zip(&self.outs).enumerate() {
            let kind = if w.float || v.dtype.is_float() { Kind::Value } else { Kind::Exact };
            list.extend(close(v, w, self.tolerance.0, base, kind).err().map(|e| format!("out{i} {e}")));
        }
        let grads = values.get(outs..).unwrap_or(&[]);
        for (i, (w, v)) in self.grads.iter().zip(grads).enumerate() {
            if let Some(w) = w
                && !OTHER_GRADIENT.contains(&self.sample.name)
            {
                let close = close(v, w, self.tolerance.1, 4.0 * base, Kind::Gradient);
                list.extend(close.err().map(|e| format!("grad{i} {e}")));
            }
        }
        list
    }
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

/// What a device makes of a sample.
pub enum Outcome {
    /// torch's values and gradients.
    Pass,
    /// Other ones.
    Wrong(String),
    /// A typed error before anything ran.
    Refused(String),
    /// Any other error.
    Broken(String),
}

impl Outcome {
    /// A word for it, and the reason.
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Outcome::Pass => ("pass", ""),
            Outcome::Wrong(why) => ("WRONG", why),
            Outcome::Refused(why) => ("refused", why),
            Outcome::Broken(why) => ("BROKEN", why),
        }
    }
}

/// A sample in one of its [`Sample::dtypes`] on a device that blocks.
pub fn run(engine: &mut Engine, session: &Session, sample: Sample, dtype: DType) -> Outcome {
    block(run_async(engine, session, sample, dtype, &|| ready(())))
}

/// The same where waiting must be awaited. All samples of an engine belong to one session.
pub async fn run_async<F: Future<Output = ()>>(
    engine: &mut Engine,
    session: &Session,
    sample: Sample,
    dtype: DType,
    wait: &impl Fn() -> F,
) -> Outcome {
    let types = Types {
        float: if dtype.is_float() { dtype } else { DType::F32 },
        int: if dtype == DType::I64 { dtype } else { DType::I32 },
    };
    let outcome = async {
        let case = sample.read(session, types);
        let (outs, grads) = case.build(session, types.float)?;
        let all: Vec<&Tensor> = outs.iter().chain(&grads).collect();
        let values = values(engine, &all, wait).await?;
        Ok::<_, Error>(case.check(values, outs.len(), 1e-5))
    };
    let outcome = match outcome.await {
        Ok(wrong) if wrong.is_empty() => Outcome::Pass,
        Ok(wrong) => Outcome::Wrong(wrong.join("; ")),
        Err(e @ Error::Unsupported { .. }) => Outcome::Refused(e.to_string()),
        Err(e) => Outcome::Broken(format!("{e} [{}]", e.code())),
    };
    engine.collect(&mut session.state());
    outcome
}

/// The tensors' values by way of an engine: scheduled, compiled and run on its device.
async fn values<F: Future<Output = ()>>(
    engine: &mut Engine,
    tensors: &[&Tensor],
    wait: &impl Fn() -> F,
) -> Result<Vec<Got>> {
    let Some(first) = tensors.first() else { return Ok(Vec::new()) };
    let session = first.session();
    let roots: Vec<RootId> = tensors.iter().map(|t| t.root()).collect();
    let pending = engine.start(&mut session.state(), &roots)?;
    while !engine.ready()? {
        wait().await;
    }
    engine.finish(&mut session.state(), pending)?;
    let mut out = Vec::new();
    for t in tensors {
        let (ticket, dtype, _) = engine.read(&mut session.state(), t.root())?;
        let bytes = loop {
            if let Some(bytes) = engine.poll(ticket, dtype)? {
                break bytes;
            }
            wait().await;
        };
        let values = bytes.chunks_exact(dtype.size()).map(|c| Scalar::read(dtype, c).as_f64_of(dtype)).collect();
        out.push(Got { dtype, shape: t.shape(), values });
    }
    Ok(out)
}
