//! Element types: names, sizes, promotion, and scalar values with exact conversion semantics.
//!
//! Promotion follows the JAX lattice: `bool < {i8,u8} < ... < i64/u64 < {f16,bf16} < f32 < f64`, with mixed
//! signed/unsigned of one width going to the next signed width (u64 with any signed type goes to f32).
//! Conversions are those every device implements: float to int truncates and saturates with NaN giving 0, int to
//! narrower int wraps, anything to bool is `!= 0`.

mod scalar;
pub use scalar::Scalar;

/// The element type of a tensor or of a value in the IR.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum DType {
    /// No value: stores, loop ends, sinks.
    Void,
    /// One byte in memory, 0 or 1.
    Bool,
    /// Two's complement 8 bit.
    I8,
    /// Two's complement 16 bit.
    I16,
    /// Two's complement 32 bit; the default integer and the default index type.
    I32,
    /// Two's complement 64 bit.
    I64,
    /// Unsigned 8 bit.
    U8,
    /// Unsigned 16 bit.
    U16,
    /// Unsigned 32 bit.
    U32,
    /// Unsigned 64 bit.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of an f32.
    BF16,
    /// IEEE 754 binary32; the default float.
    F32,
    /// IEEE 754 binary64.
    F64,
}

use DType::*;

impl DType {
    /// Every dtype that can back storage, narrow to wide within a kind.
    pub const ALL: [DType; 13] = [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64];

    /// Bytes of one element in memory (`Void` is 0).
    pub const fn size(self) -> usize {
        match self {
            Void => 0,
            Bool | I8 | U8 => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }

    /// Bits of one element (`Bool` counts 1).
    pub const fn bits(self) -> u32 {
        if matches!(self, Bool) { 1 } else { 8 * self.size() as u32 }
    }

    /// The short name: `f32`, `i64`, `bool` ...
    pub const fn name(self) -> &'static str {
        match self {
            Void => "void",
            Bool => "bool",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// Inverse of [`DType::name`].
    pub fn from_name(name: &str) -> Option<DType> {
        [Void].into_iter().chain(DType::ALL).find(|d| d.name() == name)
    }

    /// f16, bf16, f32 or f64.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// Any signed or unsigned integer; not bool.
    pub const fn is_int(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }

    /// A two's complement integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64)
    }

    /// An unsigned integer.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// Smallest and largest value of an integer or bool type as i128, `None` for floats and void.
    pub const fn int_range(self) -> Option<(i128, i128)> {
        match self {
            Bool => Some((0, 1)),
            I8 | I16 | I32 | I64 => Some((-(1i128 << (self.bits() - 1)), (1i128 << (self.bits() - 1)) - 1)),
            U8 | U16 | U32 | U64 => Some((0, (1i128 << self.bits()) - 1)),
            _ => None,
        }
    }

    /// The type both operands of a binary op are cast to.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        match (a, b) {
            (Void, x) | (Bool, x) => x,
            (F16, BF16) => F32,
            (x, y) if y.is_float() => {
                if x.is_float() && x.size() > y.size() {
                    x
                } else {
                    y
                }
            }
            (x, y) if x.is_signed() == y.is_signed() => {
                if x.size() >= y.size() {
                    x
                } else {
                    y
                }
            }
            (signed, unsigned) => {
                // a < b in enum order, so `signed` is the signed one
                let need = if unsigned.size() >= signed.size() { unsigned.size() * 2 } else { signed.size() };
                match need {
                    2 => I16,
                    4 => I32,
                    8 => I64,
                    _ => F32,
                }
            }
        }
    }

    /// The dtype in which products that are summed are computed: f32 for 16-bit floats, the accumulator's dtype for
    /// narrow integers.
    pub const fn product_dtype(self) -> DType {
        match self {
            F16 | BF16 => F32,
            d => d.sum_dtype(),
        }
    }

    /// The type a sum over this type accumulates in and returns: f16/bf16 keep their type (codegen accumulates in f32).
    pub const fn sum_dtype(self) -> DType {
        match self {
            Bool | I8 | I16 => I32,
            U8 | U16 => U32,
            x => x,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_commutative_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a), "{a} {b}");
            }
        }
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(U32.promote(I64), I64);
        assert_eq!(U64.promote(I64), F32);
        assert_eq!(I64.promote(F16), F16);
        assert_eq!(F16.promote(BF16), F32);
    }
}
