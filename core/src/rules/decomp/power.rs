//! Powers: `x^y = 2^(y * log2 x)`, with the logarithm and the product in double-width arithmetic, so that the result is
//! within 1.5 ulp. The special values are those of C's `pow`.
//!
//! A double-width number is an unevaluated sum of two floats: a *head*, the lower half of whose mantissa bits is zero,
//! and a *rest*. The product of two heads is exact, and so is that of a head and the difference between a number and
//! its head, so it does not matter whether a compiler fuses them with sums. Heads are made by masking bits, which
//! shader compilers do not simplify; and no two exact products in a sum share a factor, since a shader compiler would
//! factor it out.

use super::build::{Build, Format};
use super::transcendental::{exp2_of, is_f32, mantissa_and_exponent};
use crate::dtype::Scalar;
use crate::target::Target;
use crate::uop::{Graph, Op, UOp};
use std::f64::consts::LOG2_E;

/// The coefficients of `log2((2 + s) / (2 - s)) = s * (A + z * (B + z * C(z)))` with `z = s^2`, for `|s| < 0.344`.
struct Log {
    /// A, as its nearest float and the rest.
    a: [f64; 2],
    /// B, as a head and the rest.
    b: [f64; 2],
    /// The polynomial C.
    c: &'static [f64],
    /// A magnitude of exponents beyond which `2^exponent` is infinite or zero.
    end: f64,
}

/// The relative error of the logarithm is 2^-33.8.
const LOG_F32: Log = Log {
    a: [1.4426950216293335, 1.925963033500011e-08],
    b: [0.120208740234375, 1.584650635777507e-05],
    c: &[0.018033694475889206, 0.003219259437173605, 0.0006494949921034276],
    end: 160.0,
};
/// The relative error of the logarithm is 2^-70.
const LOG_F64: Log = Log {
    a: [LOG2_E, 2.0355273740931033e-17],
    b: [0.12022458575665951, 9.840874428618621e-10],
    c: &[
        0.01803368801111204,
        0.0032203014305558124,
        0.0006261697225919698,
        0.00012808017162189335,
        2.7093846103118222e-05,
        5.87099094228002e-06,
        1.2884802364753734e-06,
        3.226191257343149e-07,
    ],
    end: 1200.0,
};

/// Number of low mantissa bits that are zero in a head.
fn head_zero_bits(f: Format) -> u32 {
    f.mantissa / 2 + 1
}

fn head(b: &mut Build<'_>, x: UOp) -> UOp {
    let mask = -1 << head_zero_bits(b.f);
    if let Some(v) = b.g.const_val(x).map(|c| c.as_f64_of(b.f.float)) {
        let head = match is_f32(b) {
            true => f32::from_bits((v as f32).to_bits() & mask as u32) as f64,
            false => f64::from_bits(v.to_bits() & mask as u64),
        };
        return b.c(head);
    }
    let bits = b.bits(x);
    let bits = b.uand(bits, mask);
    b.float(bits)
}

/// `log2(m) + e` as a head and a rest, for m near 1 and an integer e.
fn log2(b: &mut Build<'_>, m: UOp, e: UOp) -> [UOp; 2] {
    let k = if is_f32(b) { LOG_F32 } else { LOG_F64 };
    // s = f / (1 + f/2); its rest is the remainder of the division, f - sh * (1 + f/2), times the inverse
    let f = b.addc(m, -1.0);
    let half = b.mulc(f, 0.5);
    let d = b.addc(half, 1.0);
    let inverse = b.g.unary(Op::Recip, d);
    let s = b.mul(f, inverse);
    let sh = head(b, s);
    let minus = b.minus(sh);
    let hh = head(b, half);
    let hl = b.sub(hh, half);
    let left = b.sub(f, sh);
    let left = b.muladd(minus, hh, left);
    let left = b.muladd(sh, hl, left);
    let sl = b.mul(left, inverse);
    // z = zh + zl
    let z = b.mul(sh, sh);
    let zh = head(b, z);
    let zl = b.sub(z, zh);
    let s = b.add(sh, sl);
    let twice = b.add(s, sh);
    let zl = b.muladd(twice, sl, zl);
    let z = b.add(zh, zl);
    // q = A + z*B + z^2*C. B is multiplied with zh and with zl; for zl it is changed by one part in 2^mantissa, which
    // does not matter, so that a shader compiler cannot factor B out of the two products
    let p = b.poly(z, k.c);
    let p = b.mul(p, z);
    let p = b.addc(p, k.b[1]);
    let p = b.mul(p, z);
    let p = b.addc(p, k.a[1]);
    let another = k.b[0] * (1.0 + 2f64.powi(-(b.f.mantissa as i32)));
    let p = b.muladdc(zl, another, p);
    let q = b.muladdc(zh, k.b[0], p);
    let q = b.addc(q, k.a[0]);
    let qh = head(b, q);
    let a = b.c(k.a[0]);
    let ql = b.sub(a, qh);
    let ql = b.muladdc(zh, k.b[0], ql);
    let ql = b.add(ql, p);
    // e + s*q
    let rest = b.mul(sl, q);
    let rest = b.muladd(ql, sh, rest);
    let sum = b.muladd(sh, qh, e);
    let lh = head(b, sum);
    let ll = b.sub(e, lh);
    let ll = b.muladd(sh, qh, ll);
    [lh, b.add(ll, rest)]
}

/// `x^y`.
pub(super) fn pow(g: &mut Graph, x: UOp, y: UOp, t: &Target) -> Option<UOp> {
    let f = Format::of(g.dtype(x))?;
    let b = &mut Build { g, f, shader: t.caps.reassociates };
    let end = if is_f32(b) { LOG_F32.end } else { LOG_F64.end };
    let known = b.g.const_val(y).map(|c: Scalar| c.as_f64_of(f.float));
    let (all, sign) = (b.bits(x), b.sign_bit());
    let size = b.uand(all, !sign);
    let size = b.float(size);
    let (zero, one, inf, minus_inf) = (b.c(0.0), b.c(1.0), b.c(f64::INFINITY), b.c(f64::NEG_INFINITY));
    let (m, e) = mantissa_and_exponent(b, size);
    let [lh, ll] = log2(b, m, e);
    let log = b.add(lh, ll);
    let finite = b.less(size, inf);
    let log = b.select(finite, log, size);
    let nothing = b.g.binary(Op::CmpEq, size, zero);
    let log = b.select(nothing, minus_inf, log);
    // the rounded product gives the integer part of the exponent; the exact product minus that is the fraction
    let near = b.mul(y, log);
    let within = b.clamp(near, -end, end);
    let (bits, n) = b.round(within, 2 * f.bias);
    let yh = head(b, y);
    let yl = match known {
        Some(v) => {
            let head = b.g.const_val(yh)?.as_f64_of(f.float);
            b.c(v - head)
        }
        None => b.sub(y, yh),
    };
    let rest = b.mul(y, ll);
    let rest = b.muladd(yl, lh, rest);
    let exact = b.mul(yh, lh);
    let exact = b.sub(exact, n);
    let exact = b.add(exact, rest);
    let far = b.sub(within, n);
    let is_within = b.g.binary(Op::CmpEq, within, near);
    let fraction = b.select(is_within, exact, far);
    let mut power = exp2_of(b, fraction, bits);
    if b.shader && known.is_none() {
        // a shader compiler may turn the comparison and selection of the clamp into a minimum, which loses a NaN
        // exponent
        let lost = b.g.binary(Op::CmpNe, y, y);
        power = b.select(lost, y, power);
    }
    // 1^y and x^0 are 1, even for NaN
    if !known.is_some_and(|v| v.is_finite() && v != 0.0) {
        let (none, unit) = (b.g.binary(Op::CmpEq, y, zero), b.g.binary(Op::CmpEq, size, one));
        let either = b.g.binary(Op::Or, none, unit);
        power = b.select(either, one, power);
    }
    // of a negative x the power has its sign if y is an odd integer, and is NaN if y is not an integer
    let [broken, odd] = match known {
        Some(v) => [v.trunc() != v, v.trunc() == v && (v / 2.0).trunc() != v / 2.0].map(|c| b.g.bool(c)),
        None => {
            let half = b.mulc(y, 0.5);
            let [broken, odd] = [y, half].map(|v| {
                let whole = b.g.unary(Op::Trunc, v);
                b.g.binary(Op::CmpNe, v, whole)
            });
            let yes = b.g.bool(true);
            let whole = b.g.binary(Op::Xor, broken, yes);
            [broken, b.g.binary(Op::And, odd, whole)]
        }
    };
    let may = |b: &Build<'_>, c: UOp| b.g.const_val(c).is_none_or(|c| c.as_bool());
    if may(b, odd) {
        let (own, none) = (b.uand(all, sign), b.uc(0));
        let own = b.select(odd, own, none);
        let bits = b.bits(power);
        let signed = b.g.binary(Op::Or, bits, own);
        power = b.float(signed);
    }
    if may(b, broken) {
        let negative = b.less(x, zero);
        let bad = b.g.binary(Op::And, negative, finite);
        let bad = b.g.binary(Op::And, bad, broken);
        let nan = b.c(f64::NAN);
        power = b.select(bad, nan, power);
    }
    Some(power)
}
