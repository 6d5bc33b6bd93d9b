//! Gradients of every op of the tensor table against finite differences in f64, on the samples of torch's operator tests: of
//! first order, and of second order (the gradient of the gradient). Along one random direction a sample, so every element of
//! every input takes part.

use super::host::{data, eval};
use super::opinfo::picked;
use super::tensor;
use gradloom_core::tensor::call::Value;
use gradloom_core::{DType, Result, Session, Tensor};
use gradloom_tests::opinfo::{Case, Types, outputs, samples};
use std::collections::{BTreeMap, BTreeSet};

/// Step of the differences. Smaller ones drown in what f64 rounds away, larger ones in the third derivative.
const STEP: f64 = 1e-5;

/// Operators whose gradient is not the derivative of what they compute, and why.
const BY_RULE: &[(&str, &str)] = &[
    ("bfloat16", "rounds; the gradient passes through"),
    ("half", "rounds; the gradient passes through"),
    ("float", "rounds; the gradient passes through"),
    ("_native_batch_norm_legit", "the saved statistics have no gradient, as in torch"),
    ("native_batch_norm", "the saved statistics have no gradient, as in torch"),
    ("native_layer_norm", "the saved statistics have no gradient, as in torch"),
    ("nn.functional.max_unpool1d", "where two values share a place both get its gradient, as in torch"),
    ("nn.functional.max_unpool2d", "where two values share a place both get its gradient, as in torch"),
    ("nn.functional.max_unpool3d", "where two values share a place both get its gradient, as in torch"),
    ("linalg.cholesky", "a triangle is read, the gradient is symmetric, as in torch"),
    ("linalg.eigh", "a triangle is read, the gradient is symmetric, as in torch"),
    ("linalg.eigvalsh", "a triangle is read, the gradient is symmetric, as in torch"),
    ("linalg.matrix_sqrth", "a triangle is read, the gradient is symmetric, as in torch"),
    ("linalg.pinv", "a triangle is read if hermitian, the gradient is of the whole, as in torch; pinverse is without"),
    ("linalg.lstsq", "the singular values have no gradient, as in torch"),
];

/// How a sample's gradient compares.
enum Verdict {
    /// It is the difference quotient.
    Right,
    /// The one-sided quotients differ: a kink or a jump, where there is no derivative.
    Kink,
    Wrong(String),
}

/// Directions for the inputs of a case.
fn direction(s: &Session, inputs: &[Tensor], seed: u32) -> Vec<Tensor> {
    let one =
        |(i, t): (usize, &Tensor)| tensor(s, &data(seed + i as u32, t.numel(), -1.0, 1.0), &t.shape(), DType::F64);
    inputs.iter().enumerate().map(one).collect()
}

fn moved(inputs: &[Tensor], along: &[Tensor], by: f64) -> Result<Vec<Tensor>> {
    inputs.iter().zip(along).map(|(x, d)| x.add(d.mul(by)?)).collect()
}

/// `sum(a * b)` over all inputs, and `sum(|a|)`.
fn product(a: &[Tensor], b: &[Tensor]) -> Result<(Tensor, Tensor)> {
    let sum = |mut parts: Vec<Tensor>| {
        let first = parts.swap_remove(0);
        parts.iter().try_fold(first, |sum, p| sum.add(p))
    };
    let dot = a.iter().zip(b).map(|(a, b)| a.mul(b)?.sum(&[], false)).collect::<Result<Vec<_>>>()?;
    let size = a.iter().map(|a| a.abs()?.sum(&[], false)).collect::<Result<Vec<_>>>()?;
    Ok((sum(dot)?, sum(size)?))
}

/// The value with its float tensors replaced by the next ones.
fn substitute(v: &Value, new: &mut std::slice::Iter<'_, Tensor>) -> Value {
    match v {
        Value::Tensor(t) if t.dtype().is_float() => Value::Tensor(new.next().expect("as many as there were").clone()),
        Value::List(l) => Value::List(l.iter().map(|v| substitute(v, new)).collect()),
        v => v.clone(),
    }
}

/// The scalar that is differentiated: the sample's loss, or the slope of it along a direction.
fn scalar(s: &Session, c: &Case, inputs: &[Tensor], order: usize) -> Result<Option<Tensor>> {
    let mut left = inputs.iter();
    let args: Vec<_> = c.args.iter().map(|v| substitute(v, &mut left)).collect();
    let named: Vec<_> = c.named.iter().map(|(n, v)| (*n, substitute(v, &mut left))).collect();
    let outs = outputs(s, c.sample.name, &args, &named)?;
    let Some(loss) = c.loss(s, &outs, DType::F64)? else { return Ok(None) };
    if order == 1 {
        return Ok(Some(loss));
    }
    let grads = loss.grad(&inputs.iter().collect::<Vec<_>>())?;
    Ok(Some(product(&grads, &direction(s, inputs, 555))?.0))
}

/// The gradient of order `order` of a sample; none where no output is a float.
fn check(s: &Session, c: &Case, order: usize) -> Result<Option<Verdict>> {
    let along = direction(s, &c.inputs, 777);
    let Some(here) = scalar(s, c, &c.inputs, order)? else { return Ok(None) };
    let at = |by: f64| Ok(scalar(s, c, &moved(&c.inputs, &along, by)?, order)?.expect("the same loss"));
    let (ahead, behind): (Tensor, Tensor) = (at(STEP)?, at(-STEP)?);
    let grads = here.grad(&c.inputs.iter().collect::<Vec<_>>())?;
    let (slope, size) = product(&grads, &along)?;
    let v: Vec<f64> = eval(&[&here, &ahead, &behind, &slope, &size]).iter().map(|v| v.values[0]).collect();
    let &[here, ahead, behind, slope, size] = v.as_slice() else { unreachable!("five values") };
    let quotient = (ahead - behind) / (2.0 * STEP);
    let limit = 2e-4 * size.max(quotient.abs()) + 1e-9 * here.abs() / STEP + 1e-6;
    if (quotient - slope).abs() <= limit {
        return Ok(Some(Verdict::Right));
    }
    // a sample at a kink, or one that leaves the function's domain
    let (right, left) = ((ahead - here) / STEP, (here - behind) / STEP);
    if !v.iter().all(|v| v.is_finite()) || (right - left).abs() > 0.1 * (quotient - slope).abs() {
        return Ok(Some(Verdict::Kink));
    }
    // a jump that is the same on both sides: the quotient grows as the step shrinks
    let near: (Tensor, Tensor) = (at(STEP / 16.0)?, at(-STEP / 16.0)?);
    let near: Vec<f64> = eval(&[&near.0, &near.1]).iter().map(|v| v.values[0]).collect();
    let closer = (near[0] - near[1]) / (2.0 * STEP / 16.0);
    if closer.abs() > 4.0 * quotient.abs() {
        return Ok(Some(Verdict::Kink));
    }
    Ok(Some(Verdict::Wrong(format!("{}: gradient {slope:e}, differences {quotient:e} (of {size:e})", c.sample.line))))
}

/// Checks every sample; the operators with a right one, and what is wrong by operator.
fn run(order: usize) -> (BTreeSet<&'static str>, BTreeMap<&'static str, Vec<String>>) {
    let (mut right, mut wrong) = (BTreeSet::new(), BTreeMap::<&str, Vec<String>>::new());
    let mut kinks = BTreeMap::<&str, usize>::new();
    let picked = picked();
    let session = Session::new();
    let known: BTreeSet<&str> = BY_RULE.iter().map(|r| r.0).collect();
    let types = Types { float: DType::F64, int: DType::I32 };
    for sample in samples().into_iter().filter(|s| picked(s.name) && !known.contains(s.name)) {
        let c = sample.read(&session, types);
        if c.inputs.is_empty() {
            continue;
        }
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&session, &c, order)));
        session.compact();
        match verdict {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(Verdict::Right))) => {
                right.insert(sample.name);
            }
            Ok(Ok(Some(Verdict::Kink))) => *kinks.entry(sample.name).or_default() += 1,
            Ok(Ok(Some(Verdict::Wrong(e)))) => wrong.entry(sample.name).or_default().push(e),
            Ok(Err(e)) => wrong.entry(sample.name).or_default().push(format!("{}: {e}", sample.line)),
            Err(_) => wrong.entry(sample.name).or_default().push(format!("{}: a panic", sample.line)),
        }
    }
    kinks.retain(|name, _| !right.contains(name));
    eprintln!("order {order}: {} operators right; only at kinks: {kinks:?}", right.len());
    (right, wrong)
}

fn report(wrong: &BTreeMap<&'static str, Vec<String>>) {
    let text: Vec<String> = wrong.iter().map(|(n, l)| format!("{n}\n    {}", l.join("\n    "))).collect();
    assert!(wrong.is_empty(), "{} operators differ:\n{}", wrong.len(), text.join("\n"));
}

#[test]
fn gradients_of_the_table_are_finite_differences() {
    let (right, wrong) = run(1);
    report(&wrong);
    assert!(right.len() > 400 || std::env::var("GRADLOOM_OP").is_ok(), "only {}", right.len());
}

#[test]
fn gradients_of_gradients_of_the_table_are_finite_differences() {
    let (right, wrong) = run(2);
    report(&wrong);
    assert!(right.len() > 400 || std::env::var("GRADLOOM_OP").is_ok(), "only {}", right.len());
}
