//! One constant value. Equality is bitwise on a canonical form, so that constants intern: every NaN is one NaN, -0.0 and
//! 0.0 differ. An `Int` always lies in the range of the dtype it was made for (u64 above i64::MAX is stored wrapped).

use super::DType;
use crate::util::decimal::Shown;
use half::{bf16, f16};

/// A constant: an integer (also bool, as 0 or 1) or a float held as f64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Integers and bool. A u64 is stored as its i64 bit pattern.
    Int(i64),
    /// Floats, already rounded to the dtype they were made for.
    Float(u64),
}

impl Scalar {
    /// A float constant (not yet rounded to a dtype), NaN canonicalised.
    pub fn float(v: f64) -> Scalar {
        Scalar::Float(if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() })
    }

    /// The value as f64 (ints converted as signed; use [`Scalar::as_f64_of`] for u64).
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Int(i) => i as f64,
            Scalar::Float(b) => f64::from_bits(b),
        }
    }

    /// The value as f64, reading an `Int` as the given dtype (matters for u64 only).
    pub fn as_f64_of(self, dt: DType) -> f64 {
        match self {
            Scalar::Int(i) if dt == DType::U64 => i as u64 as f64,
            s => s.as_f64(),
        }
    }

    /// The integer value; floats truncate and saturate.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Int(i) => i,
            Scalar::Float(b) => f64::from_bits(b) as i64,
        }
    }

    /// True for any nonzero value, including NaN.
    pub fn as_bool(self) -> bool {
        match self {
            Scalar::Int(i) => i != 0,
            Scalar::Float(b) => f64::from_bits(b) != 0.0,
        }
    }

    /// Is this the integer or float `v`?
    pub fn is(self, v: i64) -> bool {
        match self {
            Scalar::Int(i) => i == v,
            Scalar::Float(b) => f64::from_bits(b) == v as f64 && (v != 0 || b == 0),
        }
    }

    /// Rounds or wraps a value of dtype `from` into dtype `to` with the conversion rules of every device:
    /// float to int truncates and saturates (NaN is 0), int to int wraps, to bool is `!= 0`.
    pub fn cast(self, from: DType, to: DType) -> Scalar {
        if to == DType::Bool {
            return Scalar::Int(self.as_bool() as i64);
        }
        if let (Scalar::Int(i), DType::F16 | DType::BF16 | DType::F32) = (self, to) {
            // one rounding to f32: through f64 a value beyond 2^53 could be rounded twice
            let v = if from == DType::U64 { i as u64 as f32 } else { i as f32 };
            return Scalar::float(round_float(v as f64, to));
        }
        if to.is_float() {
            return Scalar::float(round_float(self.as_f64_of(from), to));
        }
        match self {
            Scalar::Int(i) => Scalar::Int(wrap_int(i, to)),
            Scalar::Float(b) => {
                let v = f64::from_bits(b);
                if v.is_nan() {
                    return Scalar::Int(0);
                }
                let Some((lo, hi)) = to.int_range() else { return self };
                // `as i128` truncates; every range bound fits i128
                Scalar::Int((v as i128).clamp(lo, hi) as i64)
            }
        }
    }

    /// Makes a constant of `dt` from an f64 given by a user or a loader.
    pub fn from_f64(v: f64, dt: DType) -> Scalar {
        Scalar::float(v).cast(DType::F64, dt)
    }

    /// Makes a constant of `dt` from an i64.
    pub fn from_i64(v: i64, dt: DType) -> Scalar {
        Scalar::Int(v).cast(DType::I64, dt)
    }

    /// Reads one little-endian element of `dt` from the start of `bytes`.
    pub fn read(dt: DType, bytes: &[u8]) -> Scalar {
        fn n<const N: usize>(b: &[u8]) -> [u8; N] {
            let mut a = [0; N];
            a.copy_from_slice(&b[..N]);
            a
        }
        match dt {
            DType::Void => Scalar::Int(0),
            DType::Bool => Scalar::Int((bytes[0] != 0) as i64),
            DType::I8 => Scalar::Int(bytes[0] as i8 as i64),
            DType::U8 => Scalar::Int(bytes[0] as i64),
            DType::I16 => Scalar::Int(i16::from_le_bytes(n(bytes)) as i64),
            DType::U16 => Scalar::Int(u16::from_le_bytes(n(bytes)) as i64),
            DType::I32 => Scalar::Int(i32::from_le_bytes(n(bytes)) as i64),
            DType::U32 => Scalar::Int(u32::from_le_bytes(n(bytes)) as i64),
            DType::I64 | DType::U64 => Scalar::Int(i64::from_le_bytes(n(bytes))),
            DType::F16 => Scalar::float(f16::from_le_bytes(n(bytes)).to_f64()),
            DType::BF16 => Scalar::float(bf16::from_le_bytes(n(bytes)).to_f64()),
            DType::F32 => Scalar::float(f32::from_le_bytes(n(bytes)) as f64),
            DType::F64 => Scalar::float(f64::from_le_bytes(n(bytes))),
        }
    }

    /// Writes the value as one little-endian element of `dt` to the start of `out`.
    pub fn write(self, dt: DType, out: &mut [u8]) {
        match dt {
            DType::Void => {}
            DType::Bool => out[0] = self.as_bool() as u8,
            DType::F16 => out[..2].copy_from_slice(&f16::from_f64(self.as_f64()).to_le_bytes()),
            DType::BF16 => out[..2].copy_from_slice(&bf16::from_f64(self.as_f64()).to_le_bytes()),
            DType::F32 => out[..4].copy_from_slice(&(self.as_f64() as f32).to_le_bytes()),
            DType::F64 => out[..8].copy_from_slice(&self.as_f64().to_le_bytes()),
            _ => out[..dt.size()].copy_from_slice(&self.as_i64().to_le_bytes()[..dt.size()]),
        }
    }
}

impl std::fmt::Debug for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Float(b) => write!(f, "{:?}", Shown(f64::from_bits(*b))),
        }
    }
}

fn round_float(v: f64, dt: DType) -> f64 {
    match dt {
        DType::F16 => f16::from_f64(v).to_f64(),
        DType::BF16 => bf16::from_f64(v).to_f64(),
        DType::F32 => v as f32 as f64,
        _ => v,
    }
}

fn wrap_int(v: i64, dt: DType) -> i64 {
    match dt {
        DType::I8 => v as i8 as i64,
        DType::I16 => v as i16 as i64,
        DType::I32 => v as i32 as i64,
        DType::U8 => v as u8 as i64,
        DType::U16 => v as u16 as i64,
        DType::U32 => v as u32 as i64,
        _ => v,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_saturate_wrap_and_round() {
        let f = |v: f64, to| Scalar::float(v).cast(DType::F32, to).as_i64();
        assert_eq!(f(300.7, DType::U8), 255);
        assert_eq!(f(-1.5, DType::I32), -1);
        assert_eq!(f(f64::NAN, DType::I64), 0);
        assert_eq!(Scalar::Int(257).cast(DType::I32, DType::U8), Scalar::Int(1));
        assert_eq!(Scalar::Int(-1).cast(DType::U64, DType::F64).as_f64(), u64::MAX as f64);
        assert_eq!(Scalar::float(0.1).cast(DType::F64, DType::F32).as_f64(), 0.1f32 as f64);
        // just above half way between two f32, but exactly half way once rounded to f64
        let v = (1i64 << 62) + (1i64 << 38) + 1;
        assert_eq!(Scalar::Int(v).cast(DType::I64, DType::F32).as_f64(), v as f32 as f64);
        assert_ne!(v as f32, v as f64 as f32);
    }

    #[test]
    fn every_dtype_round_trips_through_bytes() {
        for dt in DType::ALL {
            for v in [0.0, 1.0, 100.0] {
                let s = Scalar::from_f64(v, dt);
                let mut b = [0u8; 8];
                s.write(dt, &mut b);
                assert_eq!(Scalar::read(dt, &b), s, "{dt} {v}");
            }
        }
    }
}
