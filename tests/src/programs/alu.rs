//! What each elementwise op must give on one element, written from the op set's definitions: integers through i128, floats
//! in their own precision.

use gradloom_core::DType;
use gradloom_core::dtype::Scalar;
use gradloom_core::uop::Op;
use gradloom_core::util::trig;

/// The exact integer that a scalar of `dt` stands for.
pub fn int(s: Scalar, dt: DType) -> i128 {
    if dt == DType::U64 { s.as_i64() as u64 as i128 } else { s.as_i64() as i128 }
}

/// Wraps an exact integer into `dt`.
pub fn wrap(v: i128, dt: DType) -> Scalar {
    Scalar::from_i64(v as i64, dt)
}

/// `op` on sources of dtype `dt` (for Where the dtype of the two values).
pub fn alu(op: Op, dt: DType, s: &[Scalar]) -> Scalar {
    let truth = |b: bool| Scalar::Int(b as i64);
    match op {
        Op::Where => return if s[0].as_bool() { s[1] } else { s[2] },
        Op::DotBytes => {
            let byte = |s: Scalar, i: u32| s.as_i64() as i32 >> (8 * i) & 255;
            let products = (0..4).map(|i| i128::from(byte(s[0], i)) * i128::from(byte(s[1], i) as i8));
            return wrap(products.sum::<i128>() + int(s[2], dt), dt);
        }
        Op::DotPairs => {
            let half = |s: Scalar, i: u32| i128::from((s.as_i64() as i32 >> (16 * i)) as i16);
            let products = (0..2).map(|i| half(s[0], i) * half(s[1], i));
            return wrap(products.sum::<i128>() + int(s[2], dt), dt);
        }
        Op::LookupBytes => {
            let table: Vec<u8> = s[1..].iter().flat_map(|t| (t.as_i64() as i32).to_le_bytes()).collect();
            let bytes = (s[0].as_i64() as i32).to_le_bytes().map(|b| table[usize::from(b & 15)]);
            return wrap(i32::from_le_bytes(bytes).into(), dt);
        }
        Op::MulAdd => return alu(Op::Add, dt, &[alu(Op::Mul, dt, &s[..2]), s[2]]),
        _ => {}
    }
    if dt.is_float() {
        let x = s[0].as_f64();
        let y = s.get(1).map_or(0.0, |y| y.as_f64());
        return match op {
            Op::CmpLt => truth(x < y),
            Op::CmpEq => truth(x == y),
            Op::CmpNe => truth(x != y),
            _ => Scalar::from_f64(if dt == DType::F32 { float32(op, x, y) } else { float64(op, x, y) }, dt),
        };
    }
    let (x, y) = (int(s[0], dt), s.get(1).map_or(0, |&y| int(y, dt)));
    if dt == DType::Bool {
        return truth(match op {
            Op::Add | Op::Or | Op::Max => x | y != 0,
            Op::Mul | Op::And | Op::Min => x & y != 0,
            Op::Xor | Op::CmpNe => x != y,
            Op::CmpEq => x == y,
            Op::CmpLt => x < y,
            _ => panic!("{op:?} on bool"),
        });
    }
    let shift = y.rem_euclid(dt.bits() as i128);
    let v = match op {
        Op::Neg => -x,
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x.wrapping_mul(y), // u64 * u64 may leave i128: the low 64 bits are right
        Op::Idiv if y == 0 => x,
        Op::Idiv => x / y,
        Op::Imod if y == 0 => 0,
        Op::Imod => x % y,
        Op::Max => x.max(y),
        Op::Min => x.min(y),
        Op::And => x & y,
        Op::Or => x | y,
        Op::Xor => x ^ y,
        Op::Shl => x << shift,
        Op::Shr => x >> shift,
        Op::CmpLt => return truth(x < y),
        Op::CmpEq => return truth(x == y),
        Op::CmpNe => return truth(x != y),
        _ => panic!("{op:?} on {dt}"),
    };
    wrap(v, dt)
}

fn float32(op: Op, x: f64, y: f64) -> f64 {
    let (x, y) = (x as f32, y as f32);
    (match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div => x / y,
        Op::Pow => f64::from(x).powf(f64::from(y)) as f32,
        Op::Sqrt => x.sqrt(),
        Op::Recip => 1.0 / x,
        Op::Exp2 => x.exp2(),
        Op::Log2 => x.log2(),
        Op::Sin => trig::sin(x.into()) as f32,
        Op::Cos => trig::cos(x.into()) as f32,
        Op::Tan => trig::tan(x.into()) as f32,
        _ => return float64(op, x as f64, y as f64),
    }) as f64
}

fn float64(op: Op, x: f64, y: f64) -> f64 {
    let nan = x.is_nan() || y.is_nan();
    match op {
        Op::Neg => -x,
        Op::Exp2 => x.exp2(),
        Op::Log2 => x.log2(),
        Op::Sin => trig::sin(x),
        Op::Cos => trig::cos(x),
        Op::Tan => trig::tan(x),
        Op::Sqrt => x.sqrt(),
        Op::Recip => 1.0 / x,
        Op::Trunc => x.trunc(),
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div => x / y,
        Op::Pow => x.powf(y),
        Op::Max | Op::Min if nan => f64::NAN,
        Op::Max => x.max(y),
        Op::Min => x.min(y),
        _ => panic!("{op:?} on floats"),
    }
}
