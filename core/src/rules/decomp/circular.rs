//! sin, cos and tan without branches, for every finite argument: f32 to 2 ulp, f64 to about 1e-15.
//!
//! The argument is reduced to a multiple of pi/2 and a remainder of at most about pi/4 by the method of Payne and Hanek
//! (1983). Of the product of x and 2/pi only the bits around the binary point matter, so the bits of 2/pi that
//! contribute to these are selected and multiplied in integer arithmetic. This costs the same for every x, has no
//! rounding that a compiler could undo, and needs no integers wider than the float: double-width products are made of
//! halves. An |x| below pi/4 is its own remainder.

use super::build::Build;
use crate::DType;
use crate::uop::{Op, UOp};
use std::f64::consts::FRAC_PI_4;

/// The bits of 2/pi, from the bit of weight 1 on, in words of 32 bits. f32 needs six of them, f64 all.
const TWO_OVER_PI: [u32; 36] = [
    0x517C_C1B7,
    0x2722_0A94,
    0xFE13_ABE8,
    0xFA9A_6EE0,
    0x6DB1_4ACC,
    0x9E21_C820,
    0xFF28_B1D5,
    0xEF5D_E2B0,
    0xDB92_371D,
    0x2126_E970,
    0x0324_9775,
    0x04E8_C90E,
    0x7F0E_F58E,
    0x5894_D39F,
    0x7441_1AFA,
    0x975D_A242,
    0x74CE_3813,
    0x5A2F_BF20,
    0x9CC8_EB1C,
    0xC1A9_9CFA,
    0x4E42_2FC5,
    0xDEFC_941D,
    0x8FFC_4BFF,
    0xEF02_CC07,
    0xF797_88C5,
    0xAD05_368F,
    0xB69B_3F67,
    0x93E5_84DB,
    0xA7A3_1FB3,
    0x4F2F_F516,
    0xBA93_DD63,
    0xF5F2_F8BD,
    0x9E83_9CFB,
    0xC529_4975,
    0x35FD_AFD8,
    0x8FC6_AE84,
];
/// `sin(r) = r + r^3*S(r^2)` and `cos(r) = 1 - r^2/2 + r^4*C(r^2)` on |r| <= pi/4. Errors: 2^-27.9 and 2^-33.1 (f32),
/// 2^-66 and 2^-70 (f64).
const SIN_F32: [f64; 3] = [-0.16666653752326965, 0.008332131430506706, -0.00019510838319547474];
const COS_F32: [f64; 3] = [0.04166664555668831, -0.0013887305976822972, 2.4431203200947493e-05];
const SIN_F64: [f64; 7] = [
    -0.16666666666666666,
    0.008333333333333331,
    -0.0001984126984126506,
    2.7557319219335453e-06,
    -2.5052106231157904e-08,
    1.605853141458901e-10,
    -7.586685070091267e-13,
];
const COS_F64: [f64; 7] = [
    0.041666666666666664,
    -0.0013888888888888887,
    2.4801587301584645e-05,
    -2.755731922140076e-07,
    2.0876755790363397e-09,
    -1.1470460773969325e-11,
    4.7458652037874553e-14,
];
/// `tan(r) = r + r^3*T(r^2)` on |r| <= pi/4. Errors: 2^-29.1 (f32), 2^-60 (f64).
const TAN_F32: [f64; 7] = [
    0.3333335518836975,
    0.13332496583461761,
    0.05407852679491043,
    0.02118733897805214,
    0.011079210788011551,
    -0.00021662646431032832,
    0.0045263818465173244,
];
const TAN_F64: [f64; 16] = [
    0.3333333333333333,
    0.13333333333333372,
    0.053968253968202096,
    0.02186948853891238,
    0.008863235453124558,
    0.003592129325888302,
    0.0014558202206067109,
    0.0005901345700281672,
    0.00023855369379580015,
    9.915045041175708e-05,
    3.295835707852145e-05,
    2.886732819860582e-05,
    -1.2412811917471037e-05,
    2.138002923321689e-05,
    -1.0655382668529153e-05,
    4.151570790761106e-06,
];
/// pi/2 divided by the weight of the second highest bit of a word (2^30 or 2^62): a head with few mantissa bits, the
/// rest, and their sum.
const UNIT_F32: [f64; 3] = [1.4626948541263118e-09, 2.2322513846054215e-13, 1.462918119976564e-09];
const UNIT_F64: [f64; 3] = [3.4061215779352946e-19, 2.1512600287971257e-28, 3.4061215800865545e-19];

/// A reduced argument: `|x| = quarter * pi/2 + r + error` up to multiples of 2 pi, with |r| not much above pi/4 and a
/// small correction `error`. The quarter is given modulo 4.
struct Reduced {
    quarter: UOp,
    r: UOp,
    error: UOp,
}

pub(super) fn sin(b: &mut Build<'_>, x: UOp) -> UOp {
    let reduced = reduce(b, x);
    let v = in_quarter(b, &reduced, reduced.quarter);
    with_sign_of(b, v, x)
}

pub(super) fn cos(b: &mut Build<'_>, x: UOp) -> UOp {
    let reduced = reduce(b, x);
    let next = b.uadd(reduced.quarter, 1);
    in_quarter(b, &reduced, next)
}

/// The sine of the remainder plus `quarter` times pi/2.
fn in_quarter(b: &mut Build<'_>, reduced: &Reduced, quarter: UOp) -> UOp {
    let (s, c) = series(b, reduced);
    let even = is_even(b, quarter);
    let v = b.select(even, s, c);
    let half = b.uand(quarter, 2);
    let sign = b.shl(half, b.f.bits.bits() as u32 - 2);
    let v = b.bits(v);
    let v = b.g.binary(Op::Xor, v, sign);
    b.float(v)
}

pub(super) fn tan(b: &mut Build<'_>, x: UOp) -> UOp {
    let reduced = reduce(b, x);
    let Reduced { quarter, r, error } = reduced;
    let r2 = b.mul(r, r);
    let p = if b.f.float == DType::F32 { b.poly(r2, &TAN_F32) } else { b.poly(r2, &TAN_F64) };
    let p = b.mul(p, r2);
    let p = b.mul(p, r);
    // tan(r + e) = r + (r^3*T + e * (1 + tan(r)^2))
    let rough = b.add(p, r);
    let slope = b.mul(rough, rough);
    let moved = b.mul(slope, error);
    let moved = b.add(moved, error);
    let p = b.add(p, moved);
    let t = b.add(p, r);
    let lost = b.sub(t, r);
    let lost = b.sub(p, lost);
    // in odd quarters the result is -1 / (t + lost)
    let mut inverse = b.g.unary(Op::Recip, t);
    if b.shader {
        // A shader's division may be off by 2.5 ulp, so a step of Newton's method follows. In it 1 - t * inverse is the
        // sum of products of halves, each of which is exact with or without fused multiply-add.
        let ((t1, t2), (i1, i2)) = (split_mantissa(b, t), split_mantissa(b, inverse));
        let mut miss = b.c(1.0);
        for (x, y) in [(t1, i1), (t1, i2), (t2, i1), (t2, i2)] {
            let product = b.mul(x, y);
            miss = b.sub(miss, product);
        }
        let miss = b.mul(inverse, miss);
        inverse = b.add(inverse, miss);
    }
    let fix = b.mul(inverse, lost);
    let fix = b.mul(inverse, fix);
    let inverse = b.sub(fix, inverse);
    let even = is_even(b, quarter);
    let v = b.select(even, t, inverse);
    with_sign_of(b, v, x)
}

/// An f32 as the sum of two numbers of 12 bits each.
fn split_mantissa(b: &mut Build<'_>, v: UOp) -> (UOp, UOp) {
    let all = b.bits(v);
    let high = b.uand(all, !0xfff);
    let high = b.float(high);
    (high, b.sub(v, high))
}

/// `v`, negated if x has its sign bit set.
fn with_sign_of(b: &mut Build<'_>, v: UOp, x: UOp) -> UOp {
    let sign = -1i64 << (b.f.bits.bits() - 1);
    let all = b.bits(x);
    let sign = b.uand(all, sign);
    let v = b.bits(v);
    let v = b.g.binary(Op::Xor, v, sign);
    b.float(v)
}

fn is_even(b: &mut Build<'_>, quarter: UOp) -> UOp {
    let (one, zero) = (b.uand(quarter, 1), b.uc(0));
    b.g.binary(Op::CmpEq, one, zero)
}

/// Sine and cosine of the remainder r + error.
fn series(b: &mut Build<'_>, reduced: &Reduced) -> (UOp, UOp) {
    let &Reduced { r, error, .. } = reduced;
    let single = b.f.float == DType::F32;
    let r2 = b.mul(r, r);
    // sin(r + e) = r + (r^3*S + e)
    let s = if single { b.poly(r2, &SIN_F32) } else { b.poly(r2, &SIN_F64) };
    let s = b.mul(s, r2);
    let s = b.mul(s, r);
    let s = b.add(s, error);
    let s = b.add(s, r);
    // cos(r + e) = 1 + (r^4*C - r*e - r^2/2)
    let c = if single { b.poly(r2, &COS_F32) } else { b.poly(r2, &COS_F64) };
    let c = b.mul(c, r2);
    let c = b.addc(c, -0.5);
    let c = b.mul(c, r2);
    let re = b.mul(r, error);
    let c = b.sub(c, re);
    let c = b.addc(c, 1.0);
    (s, c)
}

/// Reduces |x| to a quarter and a remainder.
fn reduce(b: &mut Build<'_>, x: UOp) -> Reduced {
    let f = b.f;
    let width = f.bits.bits() as u32;
    let all = b.bits(x);
    let bits = b.uand(all, !(-1i64 << (width - 1)));
    let magnitude = b.float(bits);
    // |x| = m * 2^(e - width + 1) with an integer m whose top bit is set; for |x| from pi/4 to 1, e is 0 and the top bit
    // of m is clear
    let below_one = {
        let one = b.uc(f.bias << f.mantissa);
        b.less(bits, one)
    };
    let fraction = b.uand(bits, (1i64 << f.mantissa) - 1);
    let implicit = b.uc(1i64 << f.mantissa);
    let m = b.g.binary(Op::Or, fraction, implicit);
    let (full, half) = (b.shl(m, width - 1 - f.mantissa), b.shl(m, width - 2 - f.mantissa));
    let m = b.select(below_one, half, full);
    let e = b.shr(bits, f.mantissa);
    let e = b.uadd(e, -f.bias);
    let zero = b.uc(0);
    let e = b.select(below_one, zero, e);

    // |x| * 2/pi modulo 4 as a fixed-point number of three words, with the binary point after the two highest bits; the
    // lowest word is below the precision that is needed and is not computed
    let [t0, t1, t2] = bits_of_two_over_pi(b, e);
    let m_halves = halves(b, m);
    let top = b.g.binary(Op::Mul, m, t0);
    let (carried, middle) = (high_product(b, m_halves, t1), b.g.binary(Op::Mul, m, t1));
    let rest = high_product_nearly(b, m_halves, t2);
    let low = b.g.binary(Op::Add, middle, rest);
    let wrapped = b.less(low, middle);
    let wrapped = b.g.cast(wrapped, f.bits);
    let high = b.g.binary(Op::Add, top, carried);
    let high = b.g.binary(Op::Add, high, wrapped);

    // the nearest quarter, and the signed distance to it
    let rounded = b.uadd(high, 1i64 << (width - 3));
    let quarter = b.shr(rounded, width - 2);
    let left = b.uand(rounded, (1i64 << (width - 2)) - 1);
    let left = b.uadd(left, -(1i64 << (width - 3)));
    // the distance as a sum of four exact floats, the first two of which have so few bits that their products are exact
    let cut = |b: &mut Build<'_>, n: UOp, low: u32| {
        let up = b.uadd(n, 1i64 << (low - 1));
        let up = b.uand(up, -1i64 << low);
        (up, b.g.binary(Op::Sub, n, up))
    };
    let (first, left) = cut(b, left, width / 2 + 3);
    let (second, third) = cut(b, left, width / 4 + 1);
    let fourth = b.shr(low, 1);
    let [first, second, third, fourth] = [first, second, third, fourth].map(|n| b.int_to_float(n));
    let [part, tail, whole] = if f.float == DType::F32 { UNIT_F32 } else { UNIT_F64 };
    let (one, two) = (b.mulc(first, part), b.mulc(second, part));
    let sum = b.add(one, two);
    let lost = b.sub(sum, one);
    let lost = b.sub(two, lost);
    let more = b.mulc(fourth, whole * 2f64.powi(1 - width as i32));
    let more = b.muladdc(third, whole, more);
    let both = b.add(first, second);
    let more = b.muladdc(both, tail, more);
    let more = b.add(more, lost);
    let r = b.add(sum, more);
    let error = b.sub(r, sum);
    let error = b.sub(more, error);

    let limit = b.c(FRAC_PI_4);
    let small = b.less(magnitude, limit);
    let r = b.select(small, magnitude, r);
    let (nothing, nan) = (b.c(0.0), b.c(f64::NAN));
    let error = b.select(small, nothing, error);
    let quarter = b.select(small, zero, quarter);
    let inf = b.c(f64::INFINITY);
    let finite = b.less(magnitude, inf);
    Reduced { quarter, r: b.select(finite, r, nan), error }
}

/// Three words of the bits of 2/pi, beginning with the bit of weight `2^(width - e)`.
fn bits_of_two_over_pi(b: &mut Build<'_>, e: UOp) -> [UOp; 3] {
    let width = b.f.bits.bits() as u32;
    let word = |i: usize| match (i, width) {
        (0, _) => 0,
        (_, 32) => i64::from(TWO_OVER_PI[i - 1]),
        _ => (u64::from(TWO_OVER_PI[2 * i - 2]) << 32 | u64::from(TWO_OVER_PI[2 * i - 1])) as i64,
    };
    // e is at most the bias; its upper bits are the number of the first word, its lower bits a shift
    let upper = (b.f.bias as u64 + 1).ilog2() - width.ilog2();
    let count = (1usize << upper) + 3;
    let mut words: Vec<UOp> = (0..count).map(|i| b.uc(word(i))).collect();
    for bit in (0..upper).rev() {
        let set = b.uand(e, 1i64 << (bit + width.ilog2()));
        let zero = b.uc(0);
        let set = b.g.binary(Op::CmpNe, set, zero);
        let step = 1usize << bit;
        words = (0..words.len() - step).map(|i| b.select(set, words[i + step], words[i])).collect();
    }
    let by = b.uand(e, i64::from(width) - 1);
    let back = b.uc(i64::from(width) - 1);
    let back = b.g.binary(Op::Xor, by, back);
    [0, 1, 2].map(|i| {
        let upper = b.g.binary(Op::Shl, words[i], by);
        // in two steps, because shift counts are modulo the width, so a shift by the whole width would not shift at all
        let lower = b.shr(words[i + 1], 1);
        let lower = b.g.binary(Op::Shr, lower, back);
        b.g.binary(Op::Or, upper, lower)
    })
}

/// The upper and the lower half of a word.
fn halves(b: &mut Build<'_>, x: UOp) -> (UOp, UOp) {
    let half = b.f.bits.bits() as u32 / 2;
    (b.shr(x, half), b.uand(x, (1i64 << half) - 1))
}

/// The upper word of the double-width product of two words, the first of which is given as halves.
fn high_product(b: &mut Build<'_>, (xh, xl): (UOp, UOp), y: UOp) -> UOp {
    let (yh, yl) = halves(b, y);
    let mul = |b: &mut Build<'_>, x: UOp, y: UOp| b.g.binary(Op::Mul, x, y);
    let add = |b: &mut Build<'_>, x: UOp, y: UOp| b.g.binary(Op::Add, x, y);
    let lowest = mul(b, xl, yl);
    let (carry, _) = halves(b, lowest);
    let one = mul(b, xl, yh);
    let one = add(b, one, carry);
    let (one_high, one_low) = halves(b, one);
    let other = mul(b, xh, yl);
    let other = add(b, other, one_low);
    let (other_high, _) = halves(b, other);
    let highest = mul(b, xh, yh);
    let sum = add(b, highest, one_high);
    add(b, sum, other_high)
}

/// An approximation of [`high_product`] without the product of the lower halves: at most 3 too small.
fn high_product_nearly(b: &mut Build<'_>, (xh, xl): (UOp, UOp), y: UOp) -> UOp {
    let (yh, yl) = halves(b, y);
    let mut sum = b.g.binary(Op::Mul, xh, yh);
    for (x, y) in [(xh, yl), (xl, yh)] {
        let product = b.g.binary(Op::Mul, x, y);
        let (high, _) = halves(b, product);
        sum = b.g.binary(Op::Add, sum, high);
    }
    sum
}
