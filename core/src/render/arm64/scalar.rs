//! Elementwise operations on scalars: floats in vector registers, integers and bools (0 or 1) in general registers. A general
//! register holds a 32-bit or narrower value extended to 32 bits, with the upper half clear.

use super::table::{self, Code, cond};
use super::{Lower, Opnd};
use crate::dtype::Scalar;
use crate::render::linear::lower::{Point, Val, wide};
use crate::render::linear::mir::VReg;
use crate::uop::{Op, UOp};
use crate::{DType, Result};

impl Lower<'_> {
    /// An elementwise op at one lane.
    pub(super) fn alu_scalar(&mut self, u: UOp, pt: &Point, off: usize) -> Result<Val> {
        let g = self.g;
        let (op, dt, src) = (g.op(u), g.dtype(u), g.srcs(u));
        let sdt = g.dtype(*src.last().expect("an operand"));
        let a = self.demand(src[0], pt, off, 1)?;
        match op {
            Op::Cast => self.cast_scalar(sdt, dt, a),
            Op::Bitcast => self.bitcast_scalar(sdt, dt, a),
            Op::Where => {
                let c = self.reg(a, DType::Bool, 1)?;
                let (x, y) = (self.demand_reg(src[1], pt, off, 1)?, self.demand_reg(src[2], pt, off, 1)?);
                Ok(Val::R(self.select(dt, c, x, y)))
            }
            Op::MulAdd => {
                let (b, c) = (self.demand(src[1], pt, off, 1)?, self.demand(src[2], pt, off, 1)?);
                if dt == DType::F32 || dt == DType::F64 {
                    let (a, b, c) = (self.reg(a, dt, 1)?, self.reg(b, dt, 1)?, self.reg(c, dt, 1)?);
                    let r = self.vector();
                    let ops = [r, a, b, c].map(|r| self.opnd(r));
                    self.f.def(table::double(table::FMADD, wide(dt)), &ops);
                    return Ok(Val::R(r));
                }
                let m = self.binary_scalar(Op::Mul, dt, a, b)?;
                Ok(Val::R(self.binary_scalar(Op::Add, dt, Val::R(m), c)?))
            }
            op if op.is_unary() => self.unary_scalar(op, dt, a),
            Op::Idiv | Op::Imod => {
                let b = self.demand(src[1], pt, off, 1)?;
                let divisor = g.const_int(src[1]);
                let (lo, hi) = g.bounds(src[0]);
                if let (Some(c), true) = (divisor, lo >= 0 && hi <= i32::MAX as i64)
                    && (1..=i32::MAX as i64).contains(&c)
                {
                    return self.divide_positive(op, dt, a, c as u32);
                }
                Ok(Val::R(self.divide(op, dt, a, b, divisor)?))
            }
            _ => {
                let b = self.demand(src[1], pt, off, 1)?;
                Ok(Val::R(self.binary_scalar(op, sdt, a, b)?))
            }
        }
    }

    /// Normalises a scalar to a narrow dtype: integers wrap to its width, floats are rounded to its precision.
    pub(super) fn narrow_scalar_to(&mut self, dt: DType, r: VReg) -> VReg {
        match dt {
            DType::I8 | DType::I16 => self.field(table::SBFM, r, 0, dt.bits() as i32 - 1),
            DType::U8 | DType::U16 => self.field(table::UBFM, r, 0, dt.bits() as i32 - 1),
            DType::F16 => {
                let h = self.emit_vector2(table::FCVT_H_S, r);
                self.emit_vector2(table::FCVT_S_H, h)
            }
            DType::BF16 => self.narrow_to(dt, r),
            _ => r,
        }
    }

    fn unary_scalar(&mut self, op: Op, dt: DType, a: Val) -> Result<Val> {
        let a = self.reg(a, dt, 1)?;
        if !dt.is_float() {
            let r = self.emit_general2(table::full(table::NEG, wide(dt)), a);
            return Ok(Val::R(self.narrow_scalar_to(dt, r)));
        }
        let code = match op {
            Op::Neg => table::FNEG,
            Op::Sqrt => table::FSQRT,
            Op::Trunc => table::FRINTZ,
            Op::Recip => {
                let one = self.constant(Scalar::float(1.0), dt, 1);
                return Ok(Val::R(self.binary_scalar(Op::Div, dt, one, Val::R(a))?));
            }
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        };
        let r = self.emit_vector2(table::double(code, wide(dt)), a);
        Ok(Val::R(self.narrow_scalar_to(dt, r)))
    }

    /// A binary op on scalars of `dt`.
    pub(super) fn binary_scalar(&mut self, op: Op, dt: DType, mut a: Val, mut b: Val) -> Result<VReg> {
        if op.is_commutative() && matches!(a, Val::I(_)) {
            std::mem::swap(&mut a, &mut b);
        }
        let a = self.reg(a, dt, 1)?;
        if dt.is_float() {
            let b = self.reg(b, dt, 1)?;
            return self.float_scalar(op, dt, a, b);
        }
        self.int_scalar(op, dt, a, b)
    }

    fn float_scalar(&mut self, op: Op, dt: DType, a: VReg, b: VReg) -> Result<VReg> {
        let code = match op {
            Op::Add => table::FADD,
            Op::Sub => table::FSUB,
            Op::Mul => table::FMUL,
            Op::Div => table::FDIV,
            Op::Max => table::FMAX,
            Op::Min => table::FMIN,
            Op::CmpLt | Op::CmpEq | Op::CmpNe => {
                self.f.read(table::double(table::FCMP, wide(dt)), &[self.opnd(a), self.opnd(b)]);
                return Ok(self.flag(match op {
                    Op::CmpLt => cond::MI,
                    Op::CmpEq => cond::EQ,
                    _ => cond::NE,
                }));
            }
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        };
        let r = self.emit_vector3(table::double(code, wide(dt)), a, b);
        Ok(if matches!(op, Op::Max | Op::Min) { r } else { self.narrow_scalar_to(dt, r) })
    }

    fn int_scalar(&mut self, op: Op, dt: DType, a: VReg, b: Val) -> Result<VReg> {
        let whole = wide(dt);
        let form = |c: Code| table::full(c, whole);
        if op.is_compare() {
            match b {
                Val::I(n) => self.compare_constant(whole, a, n),
                b => {
                    let b = self.reg(b, dt, 1)?;
                    self.compare(whole, a, b);
                }
            }
            return Ok(self.flag(match op {
                Op::CmpEq => cond::EQ,
                Op::CmpNe => cond::NE,
                _ if dt.is_signed() => cond::LT,
                _ => cond::LO,
            }));
        }
        let flag = dt == DType::Bool;
        let r = match (op, b) {
            (Op::Add, Val::I(n)) if (0..4096).contains(&n) && !flag => {
                self.emit_general_imm(form(table::ADD_IMM), a, n as i32)
            }
            (Op::Add, Val::I(n)) if (-4095..0).contains(&n) => {
                self.emit_general_imm(form(table::SUB_IMM), a, -n as i32)
            }
            (Op::Sub, Val::I(n)) if (0..4096).contains(&n) => self.emit_general_imm(form(table::SUB_IMM), a, n as i32),
            (Op::Mul, Val::I(n)) if n > 0 && (n as u64).is_power_of_two() && !flag => {
                self.shift_left(whole, a, n.trailing_zeros() as i32)
            }
            (Op::Shl, Val::I(n)) => self.shift_left(whole, a, (n & (dt.bits() as i64 - 1)) as i32),
            (Op::Shr, Val::I(n)) => {
                let n = (n & (dt.bits() as i64 - 1)) as i32;
                let code = if dt.is_signed() { table::SBFM } else { table::UBFM };
                self.field(table::full_field(code, whole), a, n, if whole { 63 } else { 31 })
            }
            (Op::Max | Op::Min, b) if !flag => {
                let b = self.reg(b, dt, 1)?;
                self.compare(whole, a, b);
                let keep = match (op == Op::Max, dt.is_signed()) {
                    (true, true) => cond::GT,
                    (true, false) => cond::HI,
                    (false, true) => cond::LT,
                    (false, false) => cond::LO,
                };
                return Ok(self.conditional_select(form(table::CSEL), a, b, keep));
            }
            (op, b) => {
                let b = self.reg(b, dt, 1)?;
                let code = match op {
                    Op::Add | Op::Or | Op::Max if flag => table::ORR,
                    Op::Mul | Op::And | Op::Min if flag => table::AND,
                    Op::Add => table::ADD,
                    Op::Sub => table::SUB,
                    Op::Mul => table::MUL,
                    Op::And => table::AND,
                    Op::Or => table::ORR,
                    Op::Xor => table::EOR,
                    Op::Shl | Op::Shr => return Ok(self.shift_by(op, dt, a, b)),
                    _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
                };
                self.emit_general3(form(code), a, b)
            }
        };
        Ok(self.narrow_scalar_to(dt, r))
    }

    /// `a << n`.
    pub(super) fn shift_left(&mut self, whole: bool, a: VReg, n: i32) -> VReg {
        let bits = if whole { 64 } else { 32 };
        self.field(table::full_field(table::UBFM, whole), a, (bits - n) % bits, bits - 1 - n)
    }

    fn shift_by(&mut self, op: Op, dt: DType, a: VReg, n: VReg) -> VReg {
        // the instruction takes the shift count modulo 32 or 64
        let n = match dt.bits() {
            32 | 64 => n,
            bits => self.field(table::UBFM, n, 0, bits.trailing_zeros() as i32 - 1),
        };
        let code = match op {
            Op::Shl => table::LSLV,
            _ if dt.is_signed() => table::ASRV,
            _ => table::LSRV,
        };
        let r = self.emit_general3(table::full(code, wide(dt)), a, n);
        self.narrow_scalar_to(dt, r)
    }

    /// `c ? x : y`.
    pub(super) fn select(&mut self, dt: DType, c: VReg, x: VReg, y: VReg) -> VReg {
        self.compare_constant(false, c, 0);
        let code = if dt.is_float() { table::double(table::FCSEL, wide(dt)) } else { table::full(table::CSEL, true) };
        self.conditional_select(code, x, y, cond::NE)
    }

    /// `a / c` or `a % c` for `0 <= a < 2^31` and a constant `c > 0`: a shift, or a multiplication by the fixed-point
    /// reciprocal.
    fn divide_positive(&mut self, op: Op, dt: DType, a: Val, c: u32) -> Result<Val> {
        let a = self.reg(a, dt, 1)?;
        if c == 1 {
            return Ok(if op == Op::Idiv { Val::R(a) } else { Val::I(0) });
        }
        if c.is_power_of_two() {
            let n = c.trailing_zeros() as i32;
            let (from, to) = if op == Op::Idiv { (n, 31) } else { (0, n - 1) };
            return Ok(Val::R(self.field(table::UBFM, a, from, to)));
        }
        // exact for 31-bit numerators: m = ceil(2^(31+s) / c), s = ceil(log2 c)
        let s = 32 - (c - 1).leading_zeros();
        let m = (1u64 << (31 + s)).div_ceil(c as u64);
        let by = self.general();
        self.set(by, m as i64);
        let product = self.emit_general3(table::full(table::MUL, true), a, by);
        let q = self.field(table::full_field(table::UBFM, true), product, 31 + s as i32, 63);
        if op == Op::Idiv {
            return Ok(Val::R(q));
        }
        let c_ = self.general();
        self.set(c_, c as i64);
        Ok(Val::R(self.multiply_subtract(false, a, q, c_)))
    }

    /// `a - q * b`.
    fn multiply_subtract(&mut self, whole: bool, a: VReg, q: VReg, b: VReg) -> VReg {
        let r = self.general();
        let ops: [Opnd; 4] = [r, q, b, a].map(|r| self.opnd(r));
        self.f.def(table::full(table::MSUB, whole), &ops);
        r
    }

    /// The machine's division, which never traps. It gives 0 for a divisor of 0, so that `Op::Idiv`'s `x / 0 = x` and
    /// `Op::Imod`'s `x % 0 = 0` are selected separately; the least integer divided by -1 is itself, as the ops define
    /// it.
    fn divide(&mut self, op: Op, dt: DType, a: Val, b: Val, constant: Option<i64>) -> Result<VReg> {
        let (a, b, whole) = (self.reg(a, dt, 1)?, self.reg(b, dt, 1)?, wide(dt));
        let code = if dt.is_signed() { table::SDIV } else { table::UDIV };
        let mut r = self.emit_general3(table::full(code, whole), a, b);
        if op == Op::Imod {
            r = self.multiply_subtract(whole, a, r, b);
        }
        if constant.is_none_or(|c| c == 0) {
            let other = match op {
                Op::Idiv => a,
                _ => self.reg(Val::I(0), dt, 1)?,
            };
            self.compare_constant(whole, b, 0);
            r = self.conditional_select(table::full(table::CSEL, whole), other, r, cond::EQ);
        }
        Ok(self.narrow_scalar_to(dt, r))
    }
}
