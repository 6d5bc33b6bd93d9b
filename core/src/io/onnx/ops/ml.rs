//! Operators of `ai.onnx.ml` that are tensor computations: scalers, encoders, linear models and support vector
//! machines. Details that the specification leaves open (ties, one score for two classes) follow onnxruntime; what it
//! specifies is followed where onnxruntime deviates (a post-transform of one score).

use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::{Op, OpDef, ml, strings};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    ml("Scaler", |o| {
        let x = floats(o, 0)?;
        let (offset, scale) = (row(o, "offset")?, row(o, "scale")?);
        one(o.cx.mul(&o.cx.sub(&x, &offset)?, &scale))
    }),
    ml("Normalizer", normalizer),
    ml("Imputer", imputer),
    ml("FeatureVectorizer", |o| {
        let mut parts = Vec::new();
        let widths = o.ints_opt("inputdimensions")?;
        for i in 0..o.args.len() {
            let x = matrix(o, i)?;
            let width = x.dim(1)?;
            let wanted = widths.as_ref().and_then(|w| w.get(i)).map_or(Ok(width), |&w| o.size(w))?;
            let x = o.cx.narrow(&x, 1, 0, width.min(wanted))?;
            let zero = Scalar::float(0.0);
            parts.push(o.cx.pad(&x, &[0, 0], &[0, wanted.saturating_sub(width)], zero)?);
        }
        one(o.cx.concat(&parts, 1))
    }),
    ml("OneHotEncoder", |o| {
        let x = o.arg(0)?;
        let cats = labels(o, "cats_int64s", "cats_strings")?;
        if x.code_type() != cats.code_type() {
            return o.fail("categories and elements are of different types");
        }
        let x = o.cx.reshape(&o.cx.cast(&x, cats.dtype())?, &[x.shape(), &[1]].concat())?;
        let hit = o.cx.eq(&x, &cats)?;
        one(o.cx.cast(&hit, DType::F32))
    }),
    ml("LabelEncoder", label_encoder),
    ml("LinearRegressor", |o| {
        let scores = linear(o, o.size(o.int("targets", 1)?)?)?;
        let kind = o.str("post_transform", "NONE")?;
        one(post_transform(o, &scores, &kind))
    }),
    ml("LinearClassifier", |o| {
        let labels = labels(o, "classlabels_ints", "classlabels_strings")?;
        let n = o.floats_opt("coefficients")?.map_or(0, |c| c.len()) / matrix(o, 0)?.dim(1)?.max(1);
        let scores = linear(o, n)?;
        classify(o, &scores, &labels, Second::Complement)
    }),
    ml("SVMRegressor", svm_regressor),
    ml("SVMClassifier", svm_classifier),
];

/// An input as f32.
pub(super) fn floats(o: &Op<'_, '_>, i: usize) -> Result<Value> {
    o.cx.cast(&o.arg(i)?, DType::F32)
}

/// An input as an f32 matrix; a vector becomes one row.
pub(super) fn matrix(o: &Op<'_, '_>, i: usize) -> Result<Value> {
    let x = floats(o, i)?;
    match *x.shape() {
        [n] => o.cx.reshape(&x, &[1, n]),
        [_, _] => Ok(x),
        _ => o.fail(format!("a matrix is wanted, not {:?}", x.shape())),
    }
}

fn table(o: &Op<'_, '_>, shape: &[usize], v: &[f32]) -> Result<Value> {
    if crate::io::element_count(shape) != Some(v.len()) {
        return o.fail(format!("{} numbers for {shape:?}", v.len()));
    }
    HostTensor::from_f32(shape.to_vec(), v).map(Value::known)
}

/// A list attribute as a vector.
fn row(o: &Op<'_, '_>, name: &str) -> Result<Value> {
    let v = o.floats_opt(name)?.unwrap_or_default();
    table(o, &[v.len()], &v)
}

fn normalizer(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = floats(o, 0)?;
    o.want_rank(&x, 1)?;
    let last = [x.nth_last(1)?];
    let cx = &o.cx;
    let size = match o.str("norm", "MAX")?.as_str() {
        "MAX" => cx.reduce(Tensor::max, &x, &last, true)?,
        "L1" => cx.reduce(Tensor::sum, &cx.unary(Tensor::abs, &x)?, &last, true)?,
        "L2" => cx.unary(Tensor::sqrt, &cx.reduce(Tensor::sum, &cx.mul(&x, &x)?, &last, true)?)?,
        other => return o.fail(format!("the norm `{other}` is unknown")),
    };
    let none = cx.eq(&size, &cx.scalar_like(&size, 0.0))?;
    one(cx.div(&x, &cx.select(&none, &cx.scalar_like(&size, 1.0), &size)?))
}

fn imputer(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let (new, is) = if x.dtype().is_float() {
        let old = o.float("replaced_value_float", 0.0)?;
        let is = match old.is_nan() {
            true => o.cx.unary(Tensor::isnan, &x)?,
            false => o.cx.eq(&x, &o.cx.scalar_like(&x, old))?,
        };
        (o.cx.cast(&row(o, "imputed_value_floats")?, x.dtype())?, is)
    } else {
        let old = HostTensor::from_i64(vec![], &[o.int("replaced_value_int64", 0)?])?;
        let new = o.cx.ints(&o.ints_opt("imputed_value_int64s")?.unwrap_or_default())?;
        let old = o.cx.cast(&Value::known(old), x.dtype())?;
        (o.cx.cast(&new, x.dtype())?, o.cx.eq(&x, &old)?)
    };
    if new.len() != 1 && x.shape().last() != Some(&new.len()) {
        return o.fail(format!("{} values for {:?}", new.len(), x.shape()));
    }
    one(o.cx.select(&is, &o.cx.expand(&new, x.shape())?, &x))
}

/// The keys or values of an encoder, from whichever attribute holds them.
fn list(o: &Op<'_, '_>, part: &str) -> Result<Option<Value>> {
    if let Some(v) = o.ints_opt(&format!("{part}_int64s"))? {
        return o.cx.ints(&v).map(Some);
    }
    if let Some(v) = o.floats_opt(&format!("{part}_floats"))? {
        return table(o, &[v.len()], &v).map(Some);
    }
    let texts = o.strs(&format!("{part}_strings"))?;
    match o.tensor_opt(&format!("{part}_tensor"))? {
        Some(t) => Value::constant(t).map(Some),
        None if texts.is_empty() => Ok(None),
        None => strings::value(o, vec![texts.len()], &texts).map(Some),
    }
}

fn label_encoder(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let (Some(keys), Some(values)) = (list(o, "keys")?, list(o, "values")?) else { return o.fail("no keys or values") };
    let n = keys.len();
    if values.len() != n || n == 0 {
        return o.fail(format!("{n} keys for {} values", values.len()));
    }
    if x.code_type() != keys.code_type() {
        return o.fail("keys and elements are of different types");
    }
    let (codes, keys, values) = (values.code_type(), o.cx.reshape(&keys, &[n])?, o.cx.reshape(&values, &[n])?);
    let default = match o.tensor_opt("default_tensor")? {
        Some(t) => Value::constant(t)?,
        None if codes != 0 => strings::value(o, vec![], &[o.str("default_string", "_Unused")?])?,
        None if values.dtype().is_float() => o.cx.scalar(values.dtype(), o.float("default_float", -0.0)?),
        None => Value::known(HostTensor::from_i64(vec![], &[o.int("default_int64", -1)?])?),
    };
    let default = o.cx.reshape(&o.cx.cast(&default, values.dtype())?, &[1])?;
    // The index of the first key that equals the element, or `n` for the default.
    let wide = o.cx.reshape(&o.cx.cast(&x, keys.dtype())?, &[x.shape(), &[1]].concat())?;
    let mut hit = o.cx.eq(&wide, &keys)?;
    if keys.dtype().is_float() {
        let both = o.cx.and(&o.cx.unary(Tensor::isnan, &wide)?, &o.cx.unary(Tensor::isnan, &keys)?)?;
        hit = o.cx.or(&hit, &both)?;
    }
    let places = o.cx.ints(&(0..n as i64).collect::<Vec<_>>())?;
    let at = o.cx.select(&hit, &places, &o.cx.scalar_like(&places, n as f64))?;
    let at = o.cx.reduce(Tensor::min, &at, &[x.rank()], false)?;
    let found = o.cx.gather(&o.cx.concat(&[values, default], 0)?, &at, 0)?;
    Ok(vec![found.with_code_type(codes)])
}

/// `x * transpose(coefficients) + intercepts`: `[n, targets]`.
fn linear(o: &Op<'_, '_>, targets: usize) -> Result<Value> {
    let x = matrix(o, 0)?;
    let w = table(o, &[targets, x.dim(1)?], &o.floats_opt("coefficients")?.unwrap_or_default())?;
    let y = o.cx.matmul(&x, &o.cx.swap(&w, 0, 1)?)?;
    match o.floats_opt("intercepts")? {
        Some(b) if !b.is_empty() => o.cx.add(&y, &table(o, &[targets], &b)?),
        _ => Ok(y),
    }
}

/// The labels of a classifier: integers or strings.
pub(super) fn labels(o: &Op<'_, '_>, ints: &str, texts: &str) -> Result<Value> {
    match (o.ints_opt(ints)?, o.strs(texts)?) {
        (Some(list), _) if !list.is_empty() => o.cx.ints(&list),
        (_, list) if !list.is_empty() => strings::value(o, vec![list.len()], &list),
        _ => o.fail("there are no labels"),
    }
}

/// How the score of the first of two classes follows from a single score, which is that of the second class.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Second {
    /// 1 minus the score. The second class wins if the score is above 0.
    Complement,
    /// 1 minus the score. The second class wins if the score is above 0.5.
    Probability,
    /// The negated score. The second class wins if the score is above 0.
    Negative,
}

/// The predicted labels, and the transformed scores, for scores `[n, classes]`.
pub(super) fn classify(o: &mut Op<'_, '_>, scores: &Value, labels: &Value, second: Second) -> Result<Vec<Value>> {
    let kind = o.str("post_transform", "NONE")?;
    let cx = &o.cx;
    let label = |at: &Value| Ok(cx.gather(labels, at, 0)?.with_code_type(labels.code_type()));
    if scores.dim(1)? == 1 && labels.len() == 2 {
        let limit = if second == Second::Probability { 0.5 } else { 0.0 };
        let wins = cx.lt(&cx.scalar_like(scores, limit), scores)?;
        let wins = cx.reshape(&cx.cast(&wins, DType::I64)?, &[scores.dim(0)?])?;
        let both = match (kind.as_str(), second) {
            ("NONE", Second::Negative) => cx.concat(&[cx.unary(Tensor::neg, scores)?, scores.clone()], 1)?,
            ("LOGISTIC", Second::Negative) => {
                cx.unary(Tensor::sigmoid, &cx.concat(&[cx.unary(Tensor::neg, scores)?, scores.clone()], 1)?)?
            }
            ("NONE" | "LOGISTIC", _) => {
                let p = if kind == "NONE" { scores.clone() } else { cx.unary(Tensor::sigmoid, scores)? };
                cx.concat(&[cx.sub(&cx.scalar_like(&p, 1.0), &p)?, p], 1)?
            }
            _ => return o.unsupported(format!("{kind} of one score for two classes")),
        };
        return Ok(vec![label(&wins)?, both]);
    }
    if scores.dim(1)? != labels.len() {
        return o.fail(format!("{} labels for {:?} scores", labels.len(), scores.shape()));
    }
    let best = cx.argmax(scores, 1, false)?;
    Ok(vec![label(&best)?, post_transform(o, scores, &kind)?])
}

/// Applies the `post_transform` attribute to scores `[n, classes]`.
pub(super) fn post_transform(o: &Op<'_, '_>, x: &Value, kind: &str) -> Result<Value> {
    let cx = &o.cx;
    match kind {
        "NONE" => Ok(x.clone()),
        "LOGISTIC" => cx.unary(Tensor::sigmoid, x),
        "SOFTMAX" => softmax(cx, x, None),
        "SOFTMAX_ZERO" => {
            let used = cx.not(&cx.eq(x, &cx.scalar_like(x, 0.0))?)?;
            softmax(cx, x, Some(&cx.cast(&used, x.dtype())?))
        }
        "PROBIT" => probit(cx, x),
        other => o.fail(format!("the transform `{other}` is unknown")),
    }
}

/// Softmax over the classes; classes with weight 0 take no part.
fn softmax(cx: &Cx<'_>, x: &Value, weight: Option<&Value>) -> Result<Value> {
    let top = cx.reduce(Tensor::max, x, &[1], true)?;
    let mut e = cx.unary(Tensor::exp, &cx.sub(x, &top)?)?;
    if let Some(w) = weight {
        e = cx.mul(&e, w)?;
    }
    let sum = cx.reduce(Tensor::sum, &e, &[1], true)?;
    let none = cx.eq(&sum, &cx.scalar_like(&sum, 0.0))?;
    cx.div(&e, &cx.select(&none, &cx.scalar_like(&sum, 1.0), &sum)?)
}

/// The quantile of the normal distribution, by Winitzki's approximation of the inverse error function.
fn probit(cx: &Cx<'_>, p: &Value) -> Result<Value> {
    const A: f64 = 0.147;
    let x = cx.with(Cx::sub, &cx.with(Cx::mul, p, 2.0)?, 1.0)?;
    let log = cx.unary(Tensor::log, &cx.sub(&cx.scalar_like(&x, 1.0), &cx.mul(&x, &x)?)?)?;
    let half = cx.with(Cx::add, &cx.with(Cx::mul, &log, 0.5)?, 2.0 / (std::f64::consts::PI * A))?;
    let inner = cx.sub(&cx.mul(&half, &half)?, &cx.with(Cx::mul, &log, 1.0 / A)?)?;
    let size = cx.unary(Tensor::sqrt, &cx.sub(&cx.unary(Tensor::sqrt, &inner)?, &half)?)?;
    cx.with(Cx::mul, &cx.mul(&cx.unary(Tensor::sign, &x)?, &size)?, std::f64::consts::SQRT_2)
}

/// The kernel function between all rows of two matrices: `[n, f]`, `[m, f]` -> `[n, m]`.
fn kernel(o: &Op<'_, '_>, x: &Value, y: &Value) -> Result<Value> {
    let cx = &o.cx;
    let params = o.floats_opt("kernel_params")?.unwrap_or_default();
    let param = |i: usize| f64::from(params.get(i).copied().unwrap_or(0.0));
    let (gamma, coef, degree) = (param(0), param(1), param(2));
    let dot = cx.matmul(x, &cx.swap(y, 0, 1)?)?;
    let affine = || cx.with(Cx::add, &cx.with(Cx::mul, &dot, gamma)?, coef);
    match o.str("kernel_type", "LINEAR")?.as_str() {
        "LINEAR" => Ok(dot),
        "POLY" => cx.with(Cx::pow, &affine()?, degree),
        "SIGMOID" => cx.unary(Tensor::tanh, &affine()?),
        "RBF" => {
            let (n, m, f) = (x.dim(0)?, y.dim(0)?, x.dim(1)?);
            let gap = cx.sub(&cx.reshape(x, &[n, 1, f])?, &cx.reshape(y, &[1, m, f])?)?;
            let far = cx.reduce(Tensor::sum, &cx.mul(&gap, &gap)?, &[2], false)?;
            cx.unary(Tensor::exp, &cx.with(Cx::mul, &far, -gamma)?)
        }
        other => o.fail(format!("the kernel `{other}` is unknown")),
    }
}

fn svm_regressor(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = matrix(o, 0)?;
    let width = x.dim(1)?;
    let weights = o.floats_opt("coefficients")?.unwrap_or_default();
    let n = o.size(o.int("n_supports", 0)?)?;
    let y = if n > 0 {
        let support = table(o, &[n, width], &o.floats_opt("support_vectors")?.unwrap_or_default())?;
        o.cx.matmul(&kernel(o, &x, &support)?, &table(o, &[n, 1], &weights)?)?
    } else {
        kernel(o, &x, &table(o, &[1, width], &weights)?)?
    };
    let rho = o.floats_opt("rho")?.and_then(|r| r.first().copied()).unwrap_or(0.0);
    let y = o.cx.with(Cx::add, &y, f64::from(rho))?;
    if o.flag("one_class", false)? {
        let inside = o.cx.lt(&o.cx.scalar_like(&y, 0.0), &y)?;
        return one(o.cx.select(&inside, &o.cx.scalar_like(&y, 1.0), &o.cx.scalar_like(&y, -1.0)));
    }
    let kind = o.str("post_transform", "NONE")?;
    one(post_transform(o, &y, &kind))
}

/// Without support vectors a linear classifier; with them a vote over all pairs of classes.
fn svm_classifier(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let labels = labels(o, "classlabels_ints", "classlabels_strings")?;
    if !o.floats_opt("prob_a")?.unwrap_or_default().is_empty() {
        return o.unsupported("probabilities");
    }
    let per_class = o.sizes(&o.ints_opt("vectors_per_class")?.unwrap_or_default())?;
    let x = matrix(o, 0)?;
    let width = x.dim(1)?;
    let weights = o.floats_opt("coefficients")?.unwrap_or_default();
    let rho = o.floats_opt("rho")?.unwrap_or_default();
    if per_class.is_empty() {
        let w = table(o, &[labels.len(), width], &weights)?;
        let scores = o.cx.with(Cx::add, &kernel(o, &x, &w)?, f64::from(rho.first().copied().unwrap_or(0.0)))?;
        return classify(o, &scores, &labels, Second::Negative);
    }
    let (classes, n) = (per_class.len(), per_class.iter().sum::<usize>());
    if classes != labels.len() || rho.len() != classes * (classes - 1) / 2 || weights.len() != (classes - 1) * n {
        return o.fail("the support vectors do not fit the classes");
    }
    let support = table(o, &[n, width], &o.floats_opt("support_vectors")?.unwrap_or_default())?;
    let similar = kernel(o, &x, &support)?;
    let starts: Vec<usize> = per_class.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    // A column of weights for each pair of classes.
    let pairs: Vec<(usize, usize)> = (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j))).collect();
    let mut columns = o.cx.filled(n.saturating_mul(pairs.len()), 0f32)?;
    let mut votes = o.cx.filled(pairs.len().saturating_mul(classes), [0f32; 2])?;
    for (p, &(i, j)) in pairs.iter().enumerate() {
        for k in starts[i]..starts[i] + per_class[i] {
            columns[k * pairs.len() + p] = weights[(j - 1) * n + k];
        }
        for k in starts[j]..starts[j] + per_class[j] {
            columns[k * pairs.len() + p] = weights[i * n + k];
        }
        votes[p * classes + i][0] = 1.0;
        votes[p * classes + j][1] = 1.0;
    }
    let pairwise = o.cx.matmul(&similar, &table(o, &[n, pairs.len()], &columns)?)?;
    let pairwise = o.cx.add(&pairwise, &table(o, &[pairs.len()], &rho)?)?;
    let first = o.cx.lt(&o.cx.scalar_like(&pairwise, 0.0), &pairwise)?;
    let side = |k: usize| table(o, &[pairs.len(), classes], &votes.iter().map(|v| v[k]).collect::<Vec<_>>());
    let wins = o.cx.matmul(&o.cx.cast(&first, DType::F32)?, &side(0)?)?;
    let losses = o.cx.matmul(&o.cx.cast(&o.cx.not(&first)?, DType::F32)?, &side(1)?)?;
    let best = o.cx.argmax(&o.cx.add(&wins, &losses)?, 1, false)?;
    let label = o.cx.gather(&labels, &best, 0)?.with_code_type(labels.code_type());
    let kind = o.str("post_transform", "NONE")?;
    if kind != "NONE" {
        return o.unsupported(format!("{kind} of votes"));
    }
    // For two classes the scores are the single decision value, negated and as it is.
    let scores = match classes {
        2 => o.cx.concat(&[o.cx.unary(Tensor::neg, &pairwise)?, pairwise], 1)?,
        _ => pairwise,
    };
    Ok(vec![label, scores])
}
