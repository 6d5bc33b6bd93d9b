//! Elementwise operators: arithmetic, comparison, logic, casts and activations.

use super::super::prim::{Binary, Unary};
use super::super::value::{Cx, Value};
use super::{Op, OpDef, any_op, float_op, op};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    op("Abs", 0, |o| un(o, Tensor::abs)),
    op("Neg", 0, |o| un(o, Tensor::neg)),
    float_op("Exp", 1, 0, |o| un(o, Tensor::exp)),
    float_op("Log", 1, 0, |o| un(o, Tensor::log)),
    float_op("Sqrt", 1, 0, |o| un(o, Tensor::sqrt)),
    float_op("Reciprocal", 1, 0, |o| un(o, Tensor::reciprocal)),
    float_op("Sin", 1, 0, |o| un(o, Tensor::sin)),
    float_op("Cos", 1, 0, |o| un(o, Tensor::cos)),
    float_op("Tanh", 1, 0, |o| un(o, Tensor::tanh)),
    float_op("Sigmoid", 1, 0, |o| un(o, Tensor::sigmoid)),
    op("Erf", 0, |o| un(o, Tensor::erf)),
    float_op("Floor", 1, 0, |o| un(o, Tensor::floor)),
    float_op("Ceil", 1, 0, |o| un(o, Tensor::ceil)),
    float_op("Round", 1, 0, |o| un(o, Tensor::round)),
    op("Sign", 0, |o| un(o, Tensor::sign)),
    op("Not", 0, |o| un(o, Tensor::bit_not)),
    op("BitwiseNot", 0, |o| un(o, Tensor::bit_not)),
    op("IsNaN", 0, |o| un(o, Tensor::isnan)),
    op("IsInf", 0, is_inf),
    op("Add", 0, |o| bin(o, Cx::add)),
    op("Sub", 0, |o| bin(o, Cx::sub)),
    op("Mul", 0, |o| bin(o, Cx::mul)),
    op("Div", 0, |o| bin(o, Cx::div)),
    op("And", 0, |o| bin(o, Cx::and)),
    op("Or", 0, |o| bin(o, Cx::or)),
    op("Xor", 0, |o| bin(o, Cx::xor)),
    op("BitwiseAnd", 0, |o| bin(o, Cx::and)),
    op("BitwiseOr", 0, |o| bin(o, Cx::or)),
    op("BitwiseXor", 0, |o| bin(o, Cx::xor)),
    op("Equal", 0, |o| bin(o, Cx::eq)),
    op("Less", 0, |o| bin(o, Cx::lt)),
    op("Greater", 0, |o| compare(o, true, false)),
    op("LessOrEqual", 0, |o| compare(o, false, true)),
    op("GreaterOrEqual", 0, |o| compare(o, true, true)),
    op("Pow", 0, pow),
    op("Mod", 0, modulo),
    op("Max", 0, |o| variadic(o, Cx::max)),
    op("Min", 0, |o| variadic(o, Cx::min)),
    float_op("Sum", 0xffffffff, 0, |o| variadic(o, Cx::add)),
    float_op("Mean", 0xffffffff, 0, |o| {
        let sum = variadic(o, Cx::add)?.swap_remove(0);
        one(o.cx.with(Cx::div, &sum, o.args.len() as f64))
    }),
    op("Where", 0, |o| one(o.cx.select(&o.arg(0)?, &o.arg(1)?, &o.arg(2)?))),
    any_op("Identity", 0, |o| one(o.arg(0))),
    op("Clip", 0, clip),
    op("Relu", 0, |o| one(o.cx.with(Cx::max, &o.arg(0)?, 0.0))),
    float_op("LeakyRelu", 1, 0, |o| {
        let (x, a) = (o.arg(0)?, o.float("alpha", 0.01)?);
        one(o.cx.in_f32(&x, &|x| leaky(o.cx, x, &o.cx.scalar_like(x, a))))
    }),
    op("PRelu", 0, prelu),
    float_op("Elu", 1, 0, |o| {
        let alpha = o.float("alpha", 1.0)?;
        one(elu(o.cx, &o.arg(0)?, alpha, 1.0, 1.0))
    }),
    float_op("HardSigmoid", 1, 0, |o| {
        let (a, b) = (o.float("alpha", 0.2)?, o.float("beta", 0.5)?);
        one(o.cx.in_f32(&o.arg(0)?, &|x| hard_sigmoid(o.cx, x, a, b)))
    }),
    float_op("HardSwish", 1, 0, |o| {
        one(o.cx.in_f32(&o.arg(0)?, &|x| o.cx.mul(x, &hard_sigmoid(o.cx, x, 1.0 / 6.0, 0.5)?)))
    }),
    float_op("Softplus", 1, 0, |o| one(softplus(o.cx, &o.arg(0)?))),
    float_op("Softsign", 1, 0, |o| {
        one(o.cx.in_f32(&o.arg(0)?, &|x| o.cx.div(x, &o.cx.with(Cx::add, &o.cx.unary(Tensor::abs, x)?, 1.0)?)))
    }),
    float_op("Mish", 1, 0, |o| un(o, Tensor::mish)),
    float_op("Swish", 1, 0, |o| {
        let (x, a) = (o.arg(0)?, o.float("alpha", 1.0)?);
        one(swish(o.cx, &x, a))
    }),
    float_op("Gelu", 1, 0, gelu),
];

/// Operators that few networks use.
pub(super) static RARE: &[OpDef] = &[
    float_op("Tan", 1, 0, |o| un(o, Tensor::tan)),
    float_op("Asin", 1, 0, |o| un(o, Tensor::asin)),
    float_op("Acos", 1, 0, |o| un(o, Tensor::acos)),
    float_op("Atan", 1, 0, |o| un(o, Tensor::atan)),
    float_op("Sinh", 1, 0, |o| un(o, Tensor::sinh)),
    float_op("Cosh", 1, 0, |o| un(o, Tensor::cosh)),
    float_op("Asinh", 1, 0, |o| un(o, Tensor::asinh)),
    float_op("Acosh", 1, 0, |o| un(o, Tensor::acosh)),
    float_op("Atanh", 1, 0, |o| un(o, Tensor::atanh)),
    op("BitShift", 0, bit_shift),
    float_op("ThresholdedRelu", 1, 0, |o| {
        let (x, a) = (o.arg(0)?, o.float("alpha", 1.0)?);
        one(thresholded_relu(o.cx, &x, a))
    }),
    float_op("Selu", 1, 0, |o| {
        let (alpha, gamma) = (o.float("alpha", 1.673_263_192_176_818_8)?, o.float("gamma", 1.050_701_022_148_132_3)?);
        one(elu(o.cx, &o.arg(0)?, alpha, gamma, 1.0))
    }),
    float_op("Celu", 1, 0, |o| {
        let alpha = o.float("alpha", 1.0)?;
        one(elu(o.cx, &o.arg(0)?, alpha, 1.0, alpha))
    }),
    op("Shrink", 0, shrink),
    super::contrib::float_ms("Gelu", 1, 0, gelu),
    super::contrib::float_ms("QuickGelu", 1, 0, |o| {
        let (x, a) = (o.arg(0)?, o.float("alpha", 1.702)?);
        one(swish(o.cx, &x, a))
    }),
];

/// The outputs of an operator that has one.
pub(super) fn one(v: Result<Value>) -> Result<Vec<Value>> {
    v.map(|v| vec![v])
}

fn un(o: &mut Op<'_, '_>, f: Unary) -> Result<Vec<Value>> {
    one(o.cx.unary(f, &o.arg(0)?))
}

fn bin<'m>(o: &mut Op<'_, 'm>, f: Binary<'m>) -> Result<Vec<Value>> {
    let (a, b) = operands(o)?;
    one(f(o.cx, &a, &b))
}

/// Both operands. In operator sets below 7, the attribute `axis` says where the right operand's axes align with the
/// left one's.
fn operands(o: &Op<'_, '_>) -> Result<(Value, Value)> {
    let (a, b) = (o.arg(0)?, o.arg(1)?);
    let Some(axis) = o.int_opt("axis")?.filter(|_| o.opset < 7) else { return Ok((a, b)) };
    let axis = o.axis(axis, a.rank())?;
    let after = a.rank().saturating_sub(axis + b.rank());
    let shape = [b.shape(), &vec![1; after]].concat();
    Ok((a, o.cx.reshape(&b, &shape)?))
}

/// Shift counts outside `0..width` shift all bits out: the result is 0, or the sign for a signed number shifted right.
fn bit_shift(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, n) = (o.arg(0)?, o.arg(1)?);
    if !x.dtype().is_int() {
        return o.fail(format!("an integer is wanted, not {}", x.dtype()));
    }
    let last = o.cx.scalar_like(&n, f64::from(x.dtype().bits() - 1));
    let above = o.cx.lt(&last, &n)?;
    let out = o.cx.or(&above, &o.cx.lt(&n, &o.cx.scalar_like(&n, 0.0))?)?;
    let inside = o.cx.select(&out, &last, &n)?;
    match o.str("direction", "")?.as_str() {
        "LEFT" => {
            let y = o.cx.shl(&x, &inside)?;
            one(o.cx.select(&out, &o.cx.scalar_like(&x, 0.0), &y))
        }
        "RIGHT" if x.dtype().is_signed() => one(o.cx.shr(&x, &inside)),
        "RIGHT" => {
            let y = o.cx.shr(&x, &inside)?;
            one(o.cx.select(&out, &o.cx.scalar_like(&x, 0.0), &y))
        }
        _ => o.fail("the direction is neither LEFT nor RIGHT"),
    }
}

fn compare(o: &mut Op<'_, '_>, swap: bool, or_equal: bool) -> Result<Vec<Value>> {
    let (a, b) = operands(o)?;
    let (a, b) = if swap { (b, a) } else { (a, b) };
    let less = o.cx.lt(&a, &b)?;
    if !or_equal {
        return Ok(vec![less]);
    }
    // Not `!(b < a)`, since with NaN all comparisons must be false.
    one(o.cx.or(&less, &o.cx.eq(&a, &b)?))
}

fn variadic<'m>(o: &mut Op<'_, 'm>, f: Binary<'m>) -> Result<Vec<Value>> {
    let mut out = o.arg(0)?;
    for i in 1..o.args.len() {
        out = f(o.cx, &out, &o.arg(i)?)?;
    }
    Ok(vec![out])
}

fn is_inf(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    let is = |v: f64| o.cx.eq(&x, &o.cx.scalar_like(&x, v));
    match (o.flag("detect_positive", true)?, o.flag("detect_negative", true)?) {
        (true, true) => one(o.cx.or(&is(f64::INFINITY)?, &is(f64::NEG_INFINITY)?)),
        (true, false) => one(is(f64::INFINITY)),
        (false, true) => one(is(f64::NEG_INFINITY)),
        (false, false) => one(o.cx.full(DType::Bool, x.shape(), crate::dtype::Scalar::Int(0))),
    }
}

fn pow(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (a, b) = operands(o)?;
    // A known exponent lets square roots and small powers do without logarithms.
    if let (true, true, Some(t)) = (b.len() == 1 && b.rank() <= a.rank(), a.dtype().is_float(), o.cx.host(&b)?) {
        return one(o.cx.with(Cx::pow, &a, t.to_f64()[0]));
    }
    // The exponent may have another dtype; the result has the base's.
    if a.dtype().is_int() && b.dtype().is_float() {
        let cx = &o.cx;
        let out = cx.pow(&cx.cast(&a, b.dtype())?, &b)?;
        // An integral power of an integer is an integer, but floating-point rounding may leave it slightly below one.
        let upward = cx.lt(&cx.scalar_like(&b, -1.0), &b)?;
        let whole = cx.and(&upward, &cx.eq(&cx.unary(Tensor::floor, &b)?, &b)?)?;
        let near = cx.unary(Tensor::floor, &cx.with(Cx::add, &out, 0.5)?)?;
        return one(cx.cast(&cx.select(&whole, &near, &out)?, a.dtype()));
    }
    let b = o.cx.cast(&b, a.dtype())?;
    one(o.cx.pow(&a, &b))
}

fn modulo(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (a, b) = operands(o)?;
    let rem = o.cx.rem(&a, &b)?;
    if o.flag("fmod", false)? || a.dtype().is_unsigned() {
        return Ok(vec![rem]);
    }
    // The result must have the divisor's sign: add the divisor where the signs differ and the remainder is not 0.
    let zero = o.cx.scalar_like(&a, 0.0);
    let signs = o.cx.xor(&o.cx.lt(&rem, &zero)?, &o.cx.lt(&b, &zero)?)?;
    let some = o.cx.not(&o.cx.eq(&rem, &zero)?)?;
    one(o.cx.select(&o.cx.and(&signs, &some)?, &o.cx.add(&rem, &b)?, &rem))
}

fn clip(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut x = o.arg(0)?;
    let limits: [(_, _, Binary<'_>); 2] = [(1, "min", Cx::max), (2, "max", Cx::min)];
    for (i, name, f) in limits {
        if let Some(v) = o.float_opt(name)? {
            x = o.cx.with(f, &x, v)?;
        } else if let Some(v) = o.opt(i) {
            x = f(o.cx, &x, &v)?;
        }
    }
    Ok(vec![x])
}

pub(super) fn leaky(cx: &Cx<'_>, x: &Value, slope: &Value) -> Result<Value> {
    let below = cx.lt(x, &cx.scalar_like(x, 0.0))?;
    cx.select(&below, &cx.mul(x, slope)?, x)
}

pub(super) fn thresholded_relu(cx: &Cx<'_>, x: &Value, limit: f64) -> Result<Value> {
    let above = cx.lt(&cx.scalar_like(x, limit), x)?;
    cx.select(&above, x, &cx.scalar_like(x, 0.0))
}

fn prelu(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, mut slope) = (o.arg(0)?, o.arg(1)?);
    // Operator sets below 7 have one slope for each channel.
    if o.opset < 7 && slope.rank() == 1 && x.rank() > 1 {
        let shape = [&[slope.len()], &vec![1; x.nth_last(2)?][..]].concat();
        slope = o.cx.reshape(&slope, &shape)?;
    }
    one(leaky(o.cx, &x, &slope))
}

/// gamma * (max(x, 0) + min(alpha * (e^(x / scale) - 1), 0))
pub(super) fn elu(cx: &Cx<'_>, x: &Value, alpha: f64, gamma: f64, scale: f64) -> Result<Value> {
    cx.in_f32(x, &|x| {
        let inner = if scale == 1.0 { x.clone() } else { cx.with(Cx::mul, x, 1.0 / scale)? };
        let e = cx.with(Cx::mul, &cx.unary(Tensor::expm1, &inner)?, alpha)?;
        let below = cx.lt(x, &cx.scalar_like(x, 0.0))?;
        let out = cx.select(&below, &e, x)?;
        if gamma == 1.0 { Ok(out) } else { cx.with(Cx::mul, &out, gamma) }
    })
}

pub(super) fn hard_sigmoid(cx: &Cx<'_>, x: &Value, a: f64, b: f64) -> Result<Value> {
    cx.clamp(&cx.with(Cx::add, &cx.with(Cx::mul, x, a)?, b)?, 0.0, 1.0)
}

/// x / (1 + e^(-alpha x))
fn swish(cx: &Cx<'_>, x: &Value, alpha: f64) -> Result<Value> {
    cx.in_f32(x, &|x| cx.mul(x, &cx.unary(Tensor::sigmoid, &cx.with(Cx::mul, x, alpha)?)?))
}

/// log(1 + e^x)
pub(super) fn softplus(cx: &Cx<'_>, x: &Value) -> Result<Value> {
    cx.unary(|x| x.softplus(1.0), x)
}

/// x / 2 * (1 + erf(x / sqrt 2))
pub(super) fn gelu_erf(cx: &Cx<'_>, x: &Value) -> Result<Value> {
    cx.unary(Tensor::gelu, x)
}

/// The approximation of GELU with tanh in place of erf.
pub(super) fn gelu_tanh(cx: &Cx<'_>, x: &Value) -> Result<Value> {
    cx.unary(Tensor::gelu_tanh, x)
}

fn gelu(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let x = o.arg(0)?;
    match o.str("approximate", "none")?.as_str() {
        "none" => one(gelu_erf(o.cx, &x)),
        "tanh" => one(gelu_tanh(o.cx, &x)),
        other => o.fail(format!("the approximation `{other}` is unknown")),
    }
}

fn shrink(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, bias, lambd) = (o.arg(0)?, o.float("bias", 0.0)?, o.float("lambd", 0.5)?);
    let cx = &o.cx;
    let above = cx.lt(&cx.scalar_like(&x, lambd), &x)?;
    let below = cx.lt(&x, &cx.scalar_like(&x, -lambd))?;
    let rest = cx.select(&below, &cx.with(Cx::add, &x, bias)?, &cx.scalar_like(&x, 0.0))?;
    one(cx.select(&above, &cx.with(Cx::sub, &x, bias)?, &rest))
}
