//! Constant folding: the value of one elementwise op on constants, as every device computes it (the comments of `Op`
//! and the conversions of `dtype` define it).
//!
//! Arithmetic in f16, bf16 and f32 is done in f64 and rounded once, which gives the correctly rounded result for + - *
//! / and sqrt. Transcendental functions of f64 are not folded, because the libraries of different hosts differ in the
//! last bit, and generated code must be the same on all hosts.

use crate::DType;
use crate::dtype::Scalar;
use crate::target::HAS_DOT_BYTES;
use crate::uop::{Graph, Op, UOp};
use crate::util::trig;
use crate::util::words::{dot_bytes, dot_pairs, lookup_bytes};

/// The value of `op`, with result dtype `dt`, on constants. `None` if the op is not elementwise or its value depends on
/// the host. Ops on parts of words, whose operands are never all constant, are left out with [`HAS_DOT_BYTES`].
pub fn fold(op: Op, dt: DType, src: &[(Scalar, DType)]) -> Option<Scalar> {
    let (x, from) = *src.first()?;
    match (op, src) {
        (Op::Where, &[_, (a, _), (b, _)]) => Some(if x.as_bool() { a } else { b }),
        (Op::MulAdd, &[a, b, c]) => {
            let product = fold(Op::Mul, dt, &[a, b])?;
            fold(Op::Add, dt, &[(product, dt), c])
        }
        (Op::DotBytes, &[(a, _), (b, _), (c, _)]) if HAS_DOT_BYTES => {
            Some(wrap(i128::from(c.as_i64() + dot_bytes(a.as_i64(), b.as_i64())), dt))
        }
        (Op::DotPairs, &[(a, _), (b, _), (c, _)]) if HAS_DOT_BYTES => {
            Some(wrap(i128::from(c.as_i64() + dot_pairs(a.as_i64(), b.as_i64())), dt))
        }
        (Op::LookupBytes, &[(a, _), (t0, _), (t1, _), (t2, _), (t3, _)]) if HAS_DOT_BYTES => {
            Some(Scalar::Int(lookup_bytes(a.as_i64(), [t0, t1, t2, t3].map(Scalar::as_i64))))
        }
        (Op::Cast, [_]) => Some(x.cast(from, dt)),
        (Op::Bitcast, [_]) => bitcast(x, from, dt),
        (_, [_]) if from.is_float() => unary_float(op, dt, x.as_f64()),
        (Op::Neg, [_]) if from.is_int() => Some(wrap(-value(x, from), dt)),
        (Op::Trunc, [_]) => Some(x),
        (_, &[_, (y, _)]) if from.is_float() => binary_float(op, dt, x.as_f64(), y.as_f64()),
        (_, &[_, (y, _)]) => binary_int(op, dt, from, value(x, from), value(y, from)),
        _ => None,
    }
}

/// The value of the elementwise node `u` if all of its sources are constants.
pub fn fold_node(g: &Graph, u: UOp) -> Option<Scalar> {
    let mut vals = [(Scalar::Int(0), DType::Void); 5];
    let src = g.src(u);
    if !g.op(u).is_alu() {
        return None;
    }
    for (v, &s) in vals.iter_mut().zip(src) {
        *v = (g.const_val(s)?, g.dtype(s));
    }
    fold(g.op(u), g.dtype(u), &vals[..src.len()])
}

/// The integer value of a constant of `dt`; a u64 is stored as the i64 with the same bits.
fn value(x: Scalar, dt: DType) -> i128 {
    if dt == DType::U64 { x.as_i64() as u64 as i128 } else { x.as_i64() as i128 }
}

fn wrap(v: i128, dt: DType) -> Scalar {
    Scalar::Int(v as i64).cast(DType::I64, dt)
}

fn bitcast(x: Scalar, from: DType, dt: DType) -> Option<Scalar> {
    let mut bytes = [0; 8];
    x.write(from, &mut bytes);
    let y = Scalar::read(dt, &bytes);
    // constants do not store the payload of a NaN
    (!x.as_f64().is_nan() && !y.as_f64().is_nan()).then_some(y)
}

fn unary_float(op: Op, dt: DType, x: f64) -> Option<Scalar> {
    let libm = |v: f64| (dt != DType::F64).then_some(v);
    let v = match op {
        Op::Neg => -x,
        Op::Sqrt => x.sqrt(),
        Op::Recip => 1.0 / x,
        Op::Trunc => x.trunc(),
        Op::Exp2 => libm(x.exp2())?,
        Op::Log2 => libm(x.log2())?,
        Op::Sin => libm(trig::sin(x))?,
        Op::Cos => libm(trig::cos(x))?,
        Op::Tan => libm(trig::tan(x))?,
        _ => return None,
    };
    Some(Scalar::from_f64(v, dt))
}

fn binary_float(op: Op, dt: DType, x: f64, y: f64) -> Option<Scalar> {
    let nan = x.is_nan() || y.is_nan();
    let v = match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div => x / y,
        Op::Pow if dt != DType::F64 => x.powf(y),
        Op::Imod => x % y,
        Op::Max | Op::Min if nan => f64::NAN,
        Op::Max => {
            if x > y || (x == y && x.is_sign_positive()) {
                x
            } else {
                y
            }
        }
        Op::Min => {
            if x < y || (x == y && x.is_sign_negative()) {
                x
            } else {
                y
            }
        }
        Op::CmpLt => return Some(Scalar::Int((x < y) as i64)),
        Op::CmpEq => return Some(Scalar::Int((x == y) as i64)),
        Op::CmpNe => return Some(Scalar::Int((x != y) as i64)),
        _ => return None,
    };
    Some(Scalar::from_f64(v, dt))
}

fn binary_int(op: Op, dt: DType, from: DType, x: i128, y: i128) -> Option<Scalar> {
    let bits = from.bits() as i128;
    let v = match op {
        Op::Add | Op::Max | Op::Or if from == DType::Bool => x | y,
        Op::Mul | Op::Min | Op::And if from == DType::Bool => x & y,
        Op::CmpLt => (x < y) as i128,
        Op::CmpEq => (x == y) as i128,
        Op::CmpNe => (x != y) as i128,
        Op::Xor => x ^ y,
        _ if from == DType::Bool => return None,
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x.wrapping_mul(y), // the product of two u64 may overflow i128, but its low 64 bits are right
        Op::Idiv | Op::FloorDiv if y == 0 => x,
        Op::Imod | Op::FloorMod if y == 0 => 0,
        Op::Idiv => x / y,
        Op::Imod => x % y,
        Op::FloorDiv => x.div_euclid(y) - (y < 0 && x.rem_euclid(y) != 0) as i128,
        Op::FloorMod => x - y * (x.div_euclid(y) - (y < 0 && x.rem_euclid(y) != 0) as i128),
        Op::Max => x.max(y),
        Op::Min => x.min(y),
        Op::And => x & y,
        Op::Or => x | y,
        Op::Shl => x << y.rem_euclid(bits),
        Op::Shr => x >> y.rem_euclid(bits),
        _ => return None,
    };
    Some(wrap(v, dt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i8s(op: Op, x: i8, y: i8) -> i64 {
        let s = |v: i8| (Scalar::Int(v as i64), DType::I8);
        fold(op, if op.is_compare() { DType::Bool } else { DType::I8 }, &[s(x), s(y)]).unwrap().as_i64()
    }

    #[test]
    fn integer_ops_are_right_on_all_of_i8() {
        for x in i8::MIN..=i8::MAX {
            for y in i8::MIN..=i8::MAX {
                assert_eq!(i8s(Op::Add, x, y), x.wrapping_add(y) as i64);
                assert_eq!(i8s(Op::Sub, x, y), x.wrapping_sub(y) as i64);
                assert_eq!(i8s(Op::Mul, x, y), x.wrapping_mul(y) as i64);
                assert_eq!(i8s(Op::Shl, x, y), x.wrapping_shl(y as u32) as i64);
                assert_eq!(i8s(Op::Shr, x, y), x.wrapping_shr(y as u32) as i64);
                let (q, r) = if y == 0 { (x, 0) } else { (x.wrapping_div(y), x.wrapping_rem(y)) };
                assert_eq!((i8s(Op::Idiv, x, y), i8s(Op::Imod, x, y)), (q as i64, r as i64));
                let floor = |x: i8, y: i8| (x as f64 / y as f64).floor() as i64 as i8;
                let (q, r) = if y == 0 {
                    (x, 0)
                } else {
                    (floor(x, y), (x as i64 - y as i64 * (x as f64 / y as f64).floor() as i64) as i8)
                };
                assert_eq!((i8s(Op::FloorDiv, x, y), i8s(Op::FloorMod, x, y)), (q as i64, r as i64), "{x} {y}");
                assert_eq!(i8s(Op::CmpLt, x, y), (x < y) as i64);
            }
        }
    }

    #[test]
    fn u64_and_floats() {
        let u = |v: u64| (Scalar::Int(v as i64), DType::U64);
        let r = fold(Op::Idiv, DType::U64, &[u(u64::MAX), u(3)]).unwrap();
        assert_eq!(r.as_i64() as u64, u64::MAX / 3);
        let r = fold(Op::Mul, DType::U64, &[u(u64::MAX), u(u64::MAX)]).unwrap();
        assert_eq!(r.as_i64() as u64, 1);
        let f = |v: f32| (Scalar::float(v as f64), DType::F32);
        let r = fold(Op::Add, DType::F32, &[f(0.1), f(0.2)]).unwrap();
        assert_eq!(r.as_f64(), (0.1f32 + 0.2f32) as f64);
        let r = fold(Op::Max, DType::F32, &[f(f32::NAN), f(0.2)]).unwrap();
        assert!(r.as_f64().is_nan());
        assert_eq!(fold(Op::Bitcast, DType::I32, &[f(1.0)]).unwrap().as_i64(), 0x3f80_0000);
        assert_eq!(fold(Op::Sin, DType::F64, &[(Scalar::float(1.0), DType::F64)]), None);
    }
}
