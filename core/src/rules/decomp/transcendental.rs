//! exp, exp2 and log2 without branches or tables, for f32 (2 ulp or better) and f64 (about 1e-15); and the rule set of
//! all transcendental functions.
//!
//! Polynomials are minimax fits (Remez, 60 digits) of the stated form. The comment at each gives the largest relative
//! error of the polynomial in exact arithmetic, for f32 and for f64. The accuracy does not depend on whether products
//! and sums are fused.

use super::build::{Build, Format};
use super::{circular, power};
use crate::DType;
use crate::dtype::Scalar;
use crate::rewrite::rules;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, UOp};
use std::f64::consts::LOG2_E;

rules! {
    /// Polynomial forms of the functions that the target lacks.
    pub static TRANSCENDENTAL(g, u, t: Target) = {
        // exp(x) arrives as exp2(x * log2(e)); rounding that product would cost up to 40 ulp, so it is not computed
        wide: (Exp2 (x * (# c))) if { is_eval_exp(g, u, t) } => { exp_in_f64(g, x, c) };
        exp:  (Exp2 (x * (# c))) if { needs_decomposition(g, u, t) } => { exp_of(g, x, c, t) };
        exp2: (Exp2 x) if { needs_decomposition(g, u, t) }           => { build_with(g, x, t, exp2) };
        log2: (Log2 x) if { needs_decomposition(g, u, t) }           => { build_with(g, x, t, log2) };
        pow:  (Pow x y) if { needs_decomposition(g, u, t) }          => { power::pow(g, x, y, t) };
        sin:  (Sin x) if { needs_decomposition(g, u, t) }            => { build_with(g, x, t, circular::sin) };
        cos:  (Cos x) if { needs_decomposition(g, u, t) }            => { build_with(g, x, t, circular::cos) };
        tan:  (Tan x) if { needs_decomposition(g, u, t) }            => { build_with(g, x, t, circular::tan) };
    }
}

fn needs_decomposition(g: &Graph, u: UOp, t: &Target) -> bool {
    computes_without(g, u, t) && *g.arg(u) == Arg::None
}

/// Does the target compute in the node's dtype, but lack its op?
fn computes_without(g: &Graph, u: UOp, t: &Target) -> bool {
    t.caps.arithmetic.has(g.dtype(u)) && !t.has_op(g.op(u), g.dtype(u))
}

fn build_with(g: &mut Graph, x: UOp, t: &Target, f: fn(&mut Build<'_>, UOp) -> UOp) -> Option<UOp> {
    let format = Format::of(g.dtype(x))?;
    Some(f(&mut Build { g, f: format, shader: t.caps.reassociates }, x))
}

/// `2^f = 1 + f*C(f)` on |f| <= 1/2: 2^-28.9, 2^-64.
const EXP2_F32: [f64; 6] = [
    0.6931471824645996,
    0.24022647738456726,
    0.055503323674201965,
    0.00961843691766262,
    0.0013398875016719103,
    0.0001535336341476068,
];
const EXP2_F64: [f64; 12] = [
    std::f64::consts::LN_2,
    0.24022650695910072,
    0.05550410866482169,
    0.00961812910762833,
    0.0013333558146392695,
    0.00015403530393640557,
    1.5252733854314516e-05,
    1.3215486595041493e-06,
    1.0178051943573073e-07,
    7.054974431188168e-09,
    4.4565702630559693e-10,
    2.5625485147197482e-11,
];
/// `e^r = 1 + r + r^2*Q(r)` on |r| <= log(2)/2: 2^-28.3, 2^-64.
const EXP_F32: [f64; 5] =
    [0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368715643882751, 0.0013814597623422742];
const EXP_F64: [f64; 11] = [
    0.5,
    0.16666666666666682,
    0.041666666666666095,
    0.008333333333317042,
    0.001388888888911565,
    0.00019841269896365358,
    2.4801586926526672e-05,
    2.755723488022067e-06,
    2.755758198031068e-07,
    2.5112030537481355e-08,
    2.08265762077132e-09,
];
/// `log(1+f) = f - f^2/2 + f^3*P(f)` on sqrt(1/2) <= 1+f < sqrt(2): 2^-27.4.
const LOG_F32: [f64; 8] = [
    0.3333333134651184,
    -0.2500081956386566,
    0.20001225173473358,
    -0.1662335842847824,
    0.14201787114143372,
    -0.13160204887390137,
    0.1276138722896576,
    -0.07634197920560837,
];
/// `2*atanh(s) = 2s + s^3*R(s^2)` with s = f/(2+f): 2^-58.
const LOG_F64: [f64; 7] = [
    0.6666666666666734,
    0.39999999999414654,
    0.28571428742391847,
    0.22222198572815374,
    0.18183564343338965,
    0.15314050141982863,
    0.14795953620869226,
];
/// log(2) in two parts: the first ends in enough zero bits for its product with an exponent to be exact, the second is
/// the rest.
const LN2_F32: [f64; 2] = [0.693359375, -0.00021219444005469057];
const LN2_F64: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];

/// A result that may be subnormal is computed 2^SUBNORMAL_SCALE_EXP times too large and then scaled down, so that it is
/// rounded only once.
const SUBNORMAL_SCALE_EXP: i64 = 64;

pub(super) fn is_f32(b: &Build<'_>) -> bool {
    b.f.float == DType::F32
}

/// `p * 2^n`, where the low half of the word `bits` holds `n + 2*bias`. It multiplies by two powers of two, each of
/// which is a normal float, so that subnormal results are rounded only once.
pub(super) fn scale(b: &mut Build<'_>, p: UOp, bits: UOp) -> UOp {
    // two biased exponents whose sum is that of the low half; the upper bits of the word are shifted out
    let half = b.shr(bits, 1);
    let rest = b.g.binary(Op::Sub, bits, half);
    let (e1, e2) = (b.shl(half, b.f.mantissa), b.shl(rest, b.f.mantissa));
    let (s1, s2) = (b.float(e1), b.float(e2));
    let p = b.mul(p, s1);
    b.mul(p, s2)
}

fn exp2(b: &mut Build<'_>, x: UOp) -> UOp {
    let (lo, hi) = if is_f32(b) { (-151.0, 129.0) } else { (-1076.0, 1025.0) };
    let x = b.clamp(x, lo, hi);
    let (bits, n) = b.round(x, 2 * b.f.bias);
    let f = b.sub(x, n);
    exp2_of(b, f, bits)
}

/// `2^(f + n)` for |f| not much above 1/2, with n in `bits` as in [`scale`].
pub(super) fn exp2_of(b: &mut Build<'_>, f: UOp, bits: UOp) -> UOp {
    let c = if is_f32(b) { b.poly(f, &EXP2_F32) } else { b.poly(f, &EXP2_F64) };
    let p = b.mul(f, c);
    let p = b.addc(p, 1.0);
    scale(b, p, bits)
}

/// `p * 2^n` for n <= 0, where the low half of the word `bits` holds `n + bias + SUBNORMAL_SCALE_EXP`. The first
/// product is 2^SUBNORMAL_SCALE_EXP too large, so that it is a normal float; the second scales it down to its
/// magnitude, which may be subnormal.
fn scale_down(b: &mut Build<'_>, p: UOp, bits: UOp) -> UOp {
    let e = b.shl(bits, b.f.mantissa);
    let s = b.float(e);
    let p = b.mul(p, s);
    b.mulc(p, 2f64.powi(-SUBNORMAL_SCALE_EXP as i32))
}

/// Is it `Exp2(x * log2(e))`, which is `e^x`, and not marked yet, for a target that has no exponential?
pub(crate) fn is_exponential(g: &Graph, u: UOp, t: &Target) -> bool {
    needs_decomposition(g, u, t) && exponent(g, u).is_some()
}

/// The x of `Exp2(x * log2(e))`.
fn exponent(g: &Graph, u: UOp) -> Option<UOp> {
    let product = g.src_at(u, 0);
    let is_log2_e = |c: UOp| g.const_val(c) == Some(Scalar::from_f64(LOG2_E, g.dtype(u)));
    (g.op(product) == Op::Mul && is_log2_e(g.src_at(product, 1))).then(|| g.src_at(product, 0))
}

/// A cheaper expansion of `u`, if it is `Exp2(x * log2(e))`, for an x that is known to be at most zero or NaN. `None`
/// if it is another power or the target has the op.
pub(crate) fn exp_below_zero(g: &mut Graph, u: UOp, t: &Target) -> Option<UOp> {
    let (x, f) = (exponent(g, u).filter(|_| computes_without(g, u, t))?, Format::of(g.dtype(u))?);
    Some(exp(&mut Build { g, f, shader: t.caps.reassociates }, x, true))
}

/// Is it `e^x` in f32 for the interpreter target? That target has `Exp2`, but the product with log2(e) must not be
/// rounded to f32 first, so `exp_in_f64` computes both in f64.
pub(super) fn is_eval_exp(g: &Graph, u: UOp, t: &Target) -> bool {
    let product = g.src_at(u, 0);
    t.has_op(Op::Exp2, DType::F64)
        && *g.arg(u) == Arg::None
        && g.op(product) == Op::Mul
        && g.dtype(u) == DType::F32
        && {
            let c = g.const_val(g.src_at(product, 1));
            [LOG2_E, -LOG2_E].iter().any(|&v| c == Some(Scalar::from_f64(v, DType::F32)))
        }
}

fn exp_in_f64(g: &mut Graph, x: UOp, c: UOp) -> Option<UOp> {
    let sign = g.const_val(c)?.as_f64().signum();
    let (wide, factor) = (g.cast(x, DType::F64), g.float(sign * LOG2_E, DType::F64));
    let product = g.binary(Op::Mul, wide, factor);
    let power = g.unary(Op::Exp2, product);
    Some(g.cast(power, DType::F32))
}

/// `Exp2(x * c)` as an exponential of x or -x if c is log2(e) or its negative, else `None`.
fn exp_of(g: &mut Graph, x: UOp, c: UOp, t: &Target) -> Option<UOp> {
    let dt = g.dtype(x);
    let f = Format::of(dt)?;
    let c = g.const_val(c)?;
    let x = match c {
        _ if c == Scalar::from_f64(LOG2_E, dt) => x,
        _ if c == Scalar::from_f64(-LOG2_E, dt) => g.unary(Op::Neg, x),
        _ => return None,
    };
    let shader = t.caps.reassociates;
    if !is_negated_abs(g, x) {
        return Some(exp(&mut Build { g, f, shader }, x, false));
    }
    let size = g.src_at(x, 1);
    let b = &mut Build { g, f, shader };
    let (bits, sign) = (b.bits(size), b.uc(1i64 << (f.bits.bits() - 1)));
    let minus = b.g.binary(Op::Or, bits, sign);
    let minus = b.float(minus);
    Some(exp(b, minus, true))
}

/// Is it `x < 0 ? x : -x`, which is `-|x|`? Setting the sign bit of x computes the same, but for the sign of a zero.
fn is_negated_abs(g: &Graph, u: UOp) -> bool {
    let &[negative, x, minus] = g.src(u) else { return false };
    let neg = g.op(u) == Op::Where && g.op(minus) == Op::Neg && g.src_at(minus, 0) == x;
    neg && g.op(negative) == Op::CmpLt && g.src_at(negative, 0) == x && is_zero(g, g.src_at(negative, 1))
}

fn is_zero(g: &Graph, u: UOp) -> bool {
    g.const_val(u).is_some_and(|c| c.as_f64_of(g.dtype(u)) == 0.0)
}

/// `e^x`, as `2^n * e^r` with `x = n * log(2) + r`.
fn exp(b: &mut Build<'_>, x: UOp, below_zero: bool) -> UOp {
    let (lo, hi) = if is_f32(b) { (-105.0, 89.0) } else { (-746.0, 710.0) };
    let x = if below_zero { b.not_below(x, lo) } else { b.clamp(x, lo, hi) };
    let y = b.mulc(x, LOG2_E);
    let (bits, n) = b.round(y, b.f.bias + if below_zero { SUBNORMAL_SCALE_EXP } else { b.f.bias });
    let ln2 = if is_f32(b) { LN2_F32 } else { LN2_F64 };
    let r = b.muladdc(n, -ln2[0], x);
    // a shader compiler may add up the two factors of n, so the second product uses -n in disguise
    let r = if b.shader {
        let n = b.minus(n);
        b.muladdc(n, ln2[1], r)
    } else {
        b.muladdc(n, -ln2[1], r)
    };
    let q = if is_f32(b) { b.poly(r, &EXP_F32) } else { b.poly(r, &EXP_F64) };
    let q = b.mul(q, r);
    let q = b.addc(q, 1.0);
    let p = b.mul(q, r);
    let p = b.addc(p, 1.0);
    if below_zero { scale_down(b, p, bits) } else { scale(b, p, bits) }
}

/// `x = m * 2^e` with sqrt(1/2) <= m < sqrt(2) and an integer e, for positive finite x. For 0 and infinity m is 1.
pub(super) fn mantissa_and_exponent(b: &mut Build<'_>, x: UOp) -> (UOp, UOp) {
    let f = b.f;
    // denormals are scaled into the normal range
    let tiny = b.c(2f64.powi(1 - f.bias as i32));
    let small = b.less(x, tiny);
    let scaled = b.mulc(x, (1u64 << f.mantissa) as f64);
    let y = b.select(small, scaled, x);
    let half_root = if is_f32(b) { 0x3F35_04F3 } else { 0x3FE6_A09E_667F_3BCD };
    let bits = b.bits(y);
    let j = b.uadd(bits, (f.bias << f.mantissa) - half_root);
    let fraction = b.uand(j, (1i64 << f.mantissa) - 1);
    let m = b.uadd(fraction, half_root);
    let m = b.float(m);
    let e = b.shr(j, f.mantissa);
    let e = if is_f32(b) {
        let e = b.uadd(e, -f.bias);
        b.int_to_float(e)
    } else {
        let e = b.uadd(e, f.magic_bits);
        let e = b.float(e);
        b.addc(e, -(f.magic + f.bias as f64))
    };
    let (down, zero) = (b.c(-(f.mantissa as f64)), b.c(0.0));
    let shift = b.select(small, down, zero);
    (m, b.add(e, shift))
}

fn log2(b: &mut Build<'_>, x: UOp) -> UOp {
    let (m, e) = mantissa_and_exponent(b, x);
    let zero = b.c(0.0);
    let d = b.addc(m, -1.0);
    let log = if is_f32(b) { log2_near_one_f32(b, d, e) } else { log2_near_one_f64(b, d, e) };
    // infinity and NaN stay; 0 gives -infinity, and negative numbers give NaN
    let inf = b.c(f64::INFINITY);
    let finite = b.less(x, inf);
    let log = b.select(finite, log, x);
    let (minus_inf, nan) = (b.c(f64::NEG_INFINITY), b.c(f64::NAN));
    let is_zero = b.g.binary(Op::CmpEq, x, zero);
    let odd = b.select(is_zero, minus_inf, nan);
    let positive = b.less(zero, x);
    b.select(positive, log, odd)
}

/// `log2(1 + d) + e`; the largest terms are added last, for accuracy.
fn log2_near_one_f32(b: &mut Build<'_>, d: UOp, e: UOp) -> UOp {
    let d2 = b.mul(d, d);
    let d3 = b.mul(d2, d);
    let p = b.poly(d, &LOG_F32);
    let p = b.mul(p, d3);
    let y = b.muladdc(d2, -0.5, p);
    let z = b.mulc(y, LOG2_E - 1.0);
    let z = b.muladdc(d, LOG2_E - 1.0, z);
    let z = b.add(z, y);
    let z = b.add(z, d);
    b.add(z, e)
}

/// `log2(1 + d) + e`, with the logarithm as in fdlibm: `log(1 + d) = d - (d^2/2 - s*(d^2/2 + R))`.
fn log2_near_one_f64(b: &mut Build<'_>, d: UOp, e: UOp) -> UOp {
    let two_d = b.addc(d, 2.0);
    let s = b.g.binary(Op::Div, d, two_d);
    let z = b.mul(s, s);
    let r = b.poly(z, &LOG_F64);
    let r = b.mul(r, z);
    let half = b.mulc(d, 0.5);
    let half = b.mul(half, d);
    let t = b.add(half, r);
    let t = b.mul(s, t);
    let t = b.sub(half, t);
    let log = b.sub(d, t);
    b.muladdc(log, LOG2_E, e)
}
