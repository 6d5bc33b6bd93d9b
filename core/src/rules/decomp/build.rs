//! A builder for expressions in one float dtype and the integer dtype of its bits, from which the decompositions are
//! made.

use crate::DType;
use crate::uop::{Graph, Op, UOp};

/// The parameters of a float dtype that bit manipulation needs.
#[derive(Clone, Copy)]
pub(super) struct Format {
    pub(super) float: DType,
    pub(super) bits: DType,
    pub(super) signed: DType,
    /// Explicit mantissa bits.
    pub(super) mantissa: u32,
    pub(super) bias: i64,
    /// 1.5 * 2^mantissa: adding it to a float rounds that to an integer, which is then in the low bits of the sum.
    pub(super) magic: f64,
    pub(super) magic_bits: i64,
}

/// binary32.
pub(super) const F32: Format = Format {
    float: DType::F32,
    bits: DType::U32,
    signed: DType::I32,
    mantissa: 23,
    bias: 127,
    magic: 12_582_912.0,
    magic_bits: 0x4B40_0000,
};

/// binary64.
pub(super) const F64: Format = Format {
    float: DType::F64,
    bits: DType::U64,
    signed: DType::I64,
    mantissa: 52,
    bias: 1023,
    magic: 6_755_399_441_055_744.0,
    magic_bits: 0x4338_0000_0000_0000,
};

impl Format {
    /// The format of a dtype for which there are polynomials: f32 or f64.
    pub(super) fn of(dt: DType) -> Option<Format> {
        match dt {
            DType::F32 => Some(F32),
            DType::F64 => Some(F64),
            _ => None,
        }
    }
}

/// A graph and the format of the expressions to build. Methods whose names begin with `u` work on the bits as unsigned
/// integers that wrap; the others work on floats.
pub(super) struct Build<'a> {
    pub(super) g: &'a mut Graph,
    pub(super) f: Format,
    /// Is the code for a compiler that may reassociate floats, as shader compilers do?
    pub(super) shader: bool,
}

impl Build<'_> {
    pub(super) fn c(&mut self, v: f64) -> UOp {
        self.g.float(v, self.f.float)
    }
    pub(super) fn add(&mut self, x: UOp, y: UOp) -> UOp {
        self.g.binary(Op::Add, x, y)
    }
    pub(super) fn sub(&mut self, x: UOp, y: UOp) -> UOp {
        self.g.binary(Op::Sub, x, y)
    }
    pub(super) fn mul(&mut self, x: UOp, y: UOp) -> UOp {
        self.g.binary(Op::Mul, x, y)
    }
    pub(super) fn addc(&mut self, x: UOp, c: f64) -> UOp {
        let c = self.c(c);
        self.add(x, c)
    }
    pub(super) fn mulc(&mut self, x: UOp, c: f64) -> UOp {
        let c = self.c(c);
        self.mul(x, c)
    }
    /// `x * c + y`: a product and a sum that may fuse.
    pub(super) fn muladdc(&mut self, x: UOp, c: f64, y: UOp) -> UOp {
        let m = self.mulc(x, c);
        self.add(m, y)
    }
    pub(super) fn less(&mut self, x: UOp, y: UOp) -> UOp {
        self.g.binary(Op::CmpLt, x, y)
    }
    pub(super) fn select(&mut self, c: UOp, x: UOp, y: UOp) -> UOp {
        self.g.select(c, x, y)
    }
    /// `coeffs[0] + x*coeffs[1] + ..` by Horner's rule.
    pub(super) fn poly(&mut self, x: UOp, coeffs: &[f64]) -> UOp {
        let (&last, rest) = coeffs.split_last().expect("a polynomial has coefficients");
        let mut acc = self.c(last);
        for &k in rest.iter().rev() {
            let m = self.mul(acc, x);
            acc = self.addc(m, k);
        }
        acc
    }
    /// `max(x, lo)`; NaN stays NaN.
    pub(super) fn not_below(&mut self, x: UOp, lo: f64) -> UOp {
        let lo = self.c(lo);
        let below = self.less(x, lo);
        self.select(below, lo, x)
    }
    /// `min(max(x, lo), hi)`; NaN stays NaN.
    pub(super) fn clamp(&mut self, x: UOp, lo: f64, hi: f64) -> UOp {
        let bounded = self.g.op(x) == Op::Min && {
            let bound = self.g.const_val(self.g.src_at(x, 1)).map(|c| c.as_f64_of(self.f.float));
            bound.is_some_and(|c| c <= hi)
        };
        let y = self.not_below(x, lo);
        if bounded {
            return y;
        }
        let hi = self.c(hi);
        let above = self.less(hi, y);
        self.select(above, hi, y)
    }

    pub(super) fn bits(&mut self, x: UOp) -> UOp {
        self.g.bitcast(x, self.f.bits)
    }
    pub(super) fn float(&mut self, x: UOp) -> UOp {
        self.g.bitcast(x, self.f.float)
    }
    pub(super) fn uc(&mut self, v: i64) -> UOp {
        self.g.int(v, self.f.bits)
    }
    pub(super) fn uadd(&mut self, x: UOp, v: i64) -> UOp {
        let c = self.uc(v);
        self.g.binary(Op::Add, x, c)
    }
    pub(super) fn uand(&mut self, x: UOp, v: i64) -> UOp {
        let c = self.uc(v);
        self.g.binary(Op::And, x, c)
    }
    pub(super) fn shl(&mut self, x: UOp, n: u32) -> UOp {
        let c = self.uc(n as i64);
        self.g.binary(Op::Shl, x, c)
    }
    pub(super) fn shr(&mut self, x: UOp, n: u32) -> UOp {
        let c = self.uc(n as i64);
        self.g.binary(Op::Shr, x, c)
    }

    /// `x * y + z`: a product and a sum that may fuse.
    pub(super) fn muladd(&mut self, x: UOp, y: UOp, z: UOp) -> UOp {
        let m = self.mul(x, y);
        self.add(m, z)
    }
    /// The sign bit.
    pub(super) fn sign_bit(&self) -> i64 {
        -1 << (self.f.bits.bits() - 1)
    }
    /// `-x` by flipping the sign bit, so that a shader compiler does not see a negation that it could combine with
    /// other terms.
    pub(super) fn minus(&mut self, x: UOp) -> UOp {
        let (bits, sign) = (self.bits(x), self.uc(self.sign_bit()));
        let turned = self.g.binary(Op::Xor, bits, sign);
        self.float(turned)
    }

    /// Rounds x, |x| < 2^(mantissa - 1), to the nearest integer n. Returns a word whose low half holds `n + add`, and n
    /// as a float.
    pub(super) fn round(&mut self, x: UOp, add: i64) -> (UOp, UOp) {
        let magic = self.f.magic + add as f64;
        let t = self.addc(x, magic);
        let bits = self.bits(t);
        let rounded = if self.shader {
            // not `t - magic`: a shader compiler may simplify that to x
            let n = self.uadd(bits, -self.f.magic_bits - add);
            self.int_to_float(n)
        } else {
            self.addc(t, -magic)
        };
        (bits, rounded)
    }

    /// The float value of a two's complement integer that is given as bits.
    pub(super) fn int_to_float(&mut self, n: UOp) -> UOp {
        let n = self.g.bitcast(n, self.f.signed);
        self.g.cast(n, self.f.float)
    }
}
