//! Tensor methods by name, as JavaScript calls them, on arguments that nobody means: each ends soon with lazy tensors or an error,
//! and what it gives compiles or is refused.

use crate::findings::Run;
use crate::memory::Asked;
use crate::panics::panics;
use gradloom::Runtime;
use gradloom_core::tensor::call::{Entry, Value, call, table};
use gradloom_core::uop::random::Rng;
use gradloom_core::{DType, Error, Session, Tensor};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Calls of an ordinary run; of so many that give tensors one is compiled.
const ROUNDS: u64 = 30_000;
const COMPILE_ONE_IN: u64 = 10;
/// What a call may ask for: tensors are lazy.
const MOST_BYTES: usize = 256 << 20;
/// Far longer than any call takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls after which a session is made anew: it keeps the nodes of its tensors.
const SESSION_ROUNDS: u64 = 200;

const EDGES: [i64; 14] = [0, 1, -1, 2, -2, 3, 5, 100, -100, 1 << 31, 1 << 40, i64::MAX, i64::MIN, i32::MAX as i64];
const FLOATS: [f64; 9] = [0.0, -0.0, 1.0, -0.5, 2.5, 1e30, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
const TEXTS: [&str; 14] = [
    "",
    "mean",
    "sum",
    "none",
    "linear",
    "bilinear",
    "nearest",
    "reflect",
    "constant",
    "ij,jk->ik",
    "a b -> b a",
    "(a b) -> a",
    "f16",
    "é",
];
const TYPES: [DType; 7] = [DType::F32, DType::F16, DType::I64, DType::I32, DType::U8, DType::Bool, DType::F64];
const SHAPES: [&[usize]; 12] = [
    &[],
    &[1],
    &[3],
    &[0],
    &[2, 3],
    &[3, 3],
    &[0, 4],
    &[2, 3, 4],
    &[1, 2, 5, 5],
    &[2, 2, 3, 3],
    &[1, 1, 2, 2, 3],
    &[1, 1, 1, 1, 1, 2],
];

fn tensor(r: &mut Rng, s: &Session) -> Value {
    let (shape, dt) = (r.pick(&SHAPES), if r.once_in(2) { DType::F32 } else { r.pick(&TYPES) });
    let data: Vec<f32> = (0..shape.iter().product()).map(|i| ((i * 7) % 5) as f32 - 1.0).collect();
    let made = Tensor::new(s, &data, shape).and_then(|t| t.cast(dt));
    made.map_or(Value::None, Value::Tensor)
}

fn list(r: &mut Rng, mut one: impl FnMut(&mut Rng) -> Value) -> Value {
    let n = r.below(5);
    Value::List((0..n).map(|_| one(r)).collect())
}

fn whole(r: &mut Rng) -> Value {
    // small for the most part, so that more than the first check is reached
    Value::Int(if r.once_in(4) { r.pick(&EDGES) } else { r.below(7) as i64 - 2 })
}

/// A value for a parameter of this type, seldom of another one.
fn argument(r: &mut Rng, s: &Session, ty: &str) -> Value {
    if r.once_in(16) {
        return match r.below(6) {
            0 => Value::None,
            1 => tensor(r, s),
            2 => Value::Bool(r.once_in(2)),
            3 => Value::Text(r.pick(&TEXTS).to_owned()),
            4 => list(r, whole),
            _ => Value::Float(r.pick(&FLOATS)),
        };
    }
    match ty {
        "Tensor" => tensor(r, s),
        "boolean" => Value::Bool(r.once_in(2)),
        "string" => Value::Text(r.pick(&TEXTS).to_owned()),
        "DType" => Value::DType(r.pick(&TYPES)),
        "readonly Tensor[]" => list(r, |r| tensor(r, s)),
        "number | readonly number[]" if !r.once_in(3) => list(r, whole),
        "Tensor | number | boolean" if r.once_in(2) => tensor(r, s),
        "unknown" if r.once_in(2) => tensor(r, s),
        _ if r.once_in(4) => Value::Float(r.pick(&FLOATS)),
        _ => whole(r),
    }
}

fn show(entry: &Entry, args: &[Value]) -> String {
    let mut out = format!("{}(", entry.names[0]);
    for (a, p) in args.iter().zip(entry.params.iter().filter(|p| !p.ty.is_empty())) {
        let _ = write!(out, "{}: ", p.name);
        match a {
            Value::Tensor(t) => _ = write!(out, "{} {:?}, ", t.dtype(), t.shape()),
            other => _ = write!(out, "{other:?}, "),
        }
    }
    out + ")"
}

/// Calls once: what it gives, or what is wrong.
fn called(s: &Session, entry: &Entry, args: &[Value]) -> Result<Option<Vec<Tensor>>, String> {
    let (asked, start) = (Asked::now(), Instant::now());
    let out = panics(|| call(s, entry.names[0], args, &[]))?;
    let (bytes, time) = (asked.bytes(), start.elapsed());
    if bytes > MOST_BYTES {
        return Err(format!("{bytes} bytes"));
    }
    if time > PATIENCE {
        return Err(format!("a call of {time:?}"));
    }
    match out {
        Ok(tensors) => Ok(Some(tensors)),
        Err(Error::Internal(what)) => Err(format!("internal error: {what}")),
        Err(_) => Ok(None),
    }
}

/// Compiles what was given, for a processor that runs nothing.
fn compiled(s: &mut Runtime, tensors: &[Tensor]) -> Result<(), String> {
    let start = Instant::now();
    let out = panics(|| s.realize(&tensors.iter().collect::<Vec<_>>()).map(drop))?;
    if start.elapsed() > PATIENCE {
        return Err(format!("compiled for {:?}", start.elapsed()));
    }
    match out {
        Err(Error::Internal(what)) => Err(format!("internal error when compiled: {what}")),
        _ => Ok(()),
    }
}

#[test]
fn methods_on_any_arguments_end() {
    let mut run = Run::new("calls", ROUNDS);
    let table: Vec<&Entry> = table().collect();
    let mut runtime = Runtime::open("null", 1).expect("a device that runs nothing");
    let (mut gave, mut refused, mut known) = (vec![0u64; table.len()], 0, BTreeSet::new());
    for round in 0.. {
        if !run.goes_on(round) {
            break;
        }
        if round % SESSION_ROUNDS == 0 {
            runtime = Runtime::open("null", 1).expect("a device that runs nothing");
        }
        let mut r = Rng(run.seed.wrapping_mul(1 << 40).wrapping_add(round));
        let which = r.below(table.len());
        let (entry, s) = (table[which], runtime.session().clone());
        let params = entry.params.iter().filter(|p| !p.ty.is_empty());
        let args: Vec<Value> =
            params.map(|p| if p.optional && r.once_in(2) { Value::None } else { argument(&mut r, &s, p.ty) }).collect();
        let text = show(entry, &args);
        let found = called(&s, entry, &args).and_then(|out| match out {
            Some(tensors) => {
                gave[which] += 1;
                // what nobody could hold is not compiled
                let few = tensors
                    .iter()
                    .all(|t| t.shape().iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_some_and(|n| n < 1 << 20));
                if few && r.below(COMPILE_ONE_IN as usize) == 0 { compiled(&mut runtime, &tensors) } else { Ok(()) }
            }
            None => {
                refused += 1;
                Ok(())
            }
        });
        if let Err(what) = found {
            if known.insert(format!("{} {}", entry.names[0], what.split_whitespace().next().unwrap_or(""))) {
                run.found(&format!("{}-{round}.txt", entry.names[0]), text.as_bytes(), &format!("{text}: {what}"));
            }
            runtime = Runtime::open("null", 1).expect("a device that runs nothing");
        }
    }
    let never: Vec<&str> = table.iter().zip(&gave).filter(|(_, n)| **n == 0).map(|(e, _)| e.names[0]).collect();
    println!("methods that never gave a tensor: {}", never.join(" "));
    run.end(&format!("{} calls gave tensors, {refused} were refused", gave.iter().sum::<u64>()));
}
