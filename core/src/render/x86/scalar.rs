//! Elementwise operations on scalars: floats in xmm, integers and bools (0 or 1) in general registers. A general register
//! holds a 32-bit or narrower value extended to 32 bits, with the upper half clear.

use super::Lower;
use super::Opnd;
use super::table::{V3, cmp};
use crate::render::linear::lower::{Point, Val, wide};
use crate::render::linear::mir::{Base, Mem, Size, VReg};
use crate::uop::{Op, UOp};
use crate::{DType, Result};
use iced_x86::{Code, Register};

fn x(r: VReg) -> Opnd {
    Opnd::R(r, Size::X)
}

fn d(r: VReg) -> Opnd {
    Opnd::R(r, Size::D)
}

fn q(r: VReg) -> Opnd {
    Opnd::R(r, Size::Q)
}

/// A general register at the size of `dt`.
fn sized(r: VReg, dt: DType) -> Opnd {
    Opnd::R(r, if wide(dt) { Size::Q } else { Size::D })
}

/// The opcode `narrow` for operands of at most 32 bits, `full` for those of 64 bits.
fn form(dt: DType, narrow: Code, full: Code) -> Code {
    if wide(dt) { full } else { narrow }
}

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
                let (x, y) = (self.demand(src[1], pt, off, 1)?, self.demand(src[2], pt, off, 1)?);
                Ok(Val::R(self.select(dt, c, x, y)?))
            }
            Op::MulAdd => {
                let (b, c) = (self.demand(src[1], pt, off, 1)?, self.demand(src[2], pt, off, 1)?);
                let r = self.fresh(dt, 1);
                if dt == DType::F32 || dt == DType::F64 {
                    self.move_to(r, c, dt, 1);
                    self.fma_scalar(dt, r, a, b)?;
                } else {
                    let m = self.binary_scalar(Op::Mul, dt, a, b, None)?;
                    return Ok(Val::R(self.binary_scalar(Op::Add, dt, Val::R(m), c, None)?));
                }
                Ok(Val::R(r))
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
                Ok(Val::R(self.binary_scalar(op, sdt, a, b, None)?))
            }
        }
    }

    /// Normalises a scalar to a narrow dtype: integers wrap to its width, floats are rounded to its precision.
    pub(super) fn narrow_scalar_to(&mut self, dt: DType, r: VReg) -> VReg {
        let code = match dt {
            DType::I8 => Code::Movsx_r32_rm8,
            DType::U8 => Code::Movzx_r32_rm8,
            DType::I16 => Code::Movsx_r32_rm16,
            DType::U16 => Code::Movzx_r32_rm16,
            DType::F16 | DType::BF16 => return self.narrow_to(dt, 1, r),
            _ => return r,
        };
        let t = self.f.reg(Size::Q);
        let from = if dt.size() == 1 { Opnd::R(r, Size::B) } else { Opnd::R(r, Size::W) };
        self.f.emit(code, &[d(t), from], 1, !1, 9);
        t
    }

    fn unary_scalar(&mut self, op: Op, dt: DType, a: Val) -> Result<Val> {
        if !dt.is_float() {
            let r = self.fresh(dt, 1);
            self.move_to(r, a, dt, 1);
            self.f.update(form(dt, Code::Neg_rm32, Code::Neg_rm64), &[sized(r, dt)]);
            return Ok(Val::R(self.narrow_scalar_to(dt, r)));
        }
        let r = self.f.reg(Size::X);
        let double = dt == DType::F64;
        let a = self.reg(a, dt, 1)?;
        match op {
            Op::Neg => {
                let sign = self.pair(1 << 63, 1 << 31, dt);
                self.v3(V3::Xor, 1, r, a, sign);
            }
            Op::Sqrt if double => self.f.def(Code::VEX_Vsqrtsd_xmm_xmm_xmmm64, &[x(r), x(a), x(a)]),
            Op::Sqrt => self.f.def(Code::VEX_Vsqrtss_xmm_xmm_xmmm32, &[x(r), x(a), x(a)]),
            Op::Trunc if double => {
                self.f.def(Code::VEX_Vroundsd_xmm_xmm_xmmm64_imm8, &[x(r), x(a), x(a), Opnd::I8(11)]);
            }
            Op::Trunc => self.f.def(Code::VEX_Vroundss_xmm_xmm_xmmm32_imm8, &[x(r), x(a), x(a), Opnd::I8(11)]),
            Op::Recip => {
                let one = self.constant(crate::dtype::Scalar::float(1.0), dt, 1);
                return Ok(Val::R(self.binary_scalar(Op::Div, dt, one, Val::R(a), None)?));
            }
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        }
        Ok(Val::R(self.narrow_scalar_to(dt, r)))
    }

    /// A 16-byte constant of repeated 64-bit (f64) or 32-bit patterns.
    pub(super) fn pair(&mut self, full: u64, half: u32, dt: DType) -> Val {
        if dt == DType::F64 { self.pool(&full.to_le_bytes().repeat(2)) } else { self.lanes_of(half, 4) }
    }

    /// `acc += a * b`, f32 or f64.
    pub(super) fn fma_scalar(&mut self, dt: DType, acc: VReg, a: Val, b: Val) -> Result<()> {
        let (a, b) = (self.reg(a, dt, 1)?, self.opnd(b, 1));
        let code = if wide(dt) { Code::VEX_Vfmadd231sd_xmm_xmm_xmmm64 } else { Code::VEX_Vfmadd231ss_xmm_xmm_xmmm32 };
        self.f.update(code, &[x(acc), x(a), b]);
        Ok(())
    }

    /// A binary op on scalars of `dt`, into `into` if given (which may be `a`).
    pub(super) fn binary_scalar(
        &mut self,
        op: Op,
        dt: DType,
        mut a: Val,
        mut b: Val,
        into: Option<VReg>,
    ) -> Result<VReg> {
        if op.is_commutative() && !matches!(a, Val::R(_)) {
            std::mem::swap(&mut a, &mut b);
        }
        let r = if dt.is_float() { self.float_scalar(op, dt, a, b)? } else { self.int_scalar(op, dt, a, b)? };
        if let Some(t) = into
            && t != r
        {
            self.move_to(t, Val::R(r), dt, 1);
            return Ok(t);
        }
        Ok(r)
    }

    fn float_scalar(&mut self, op: Op, dt: DType, a: Val, b: Val) -> Result<VReg> {
        let a = self.reg(a, dt, 1)?;
        let double = dt == DType::F64;
        let pick = |s, full| if double { full } else { s };
        let code = match op {
            Op::Add => pick(Code::VEX_Vaddss_xmm_xmm_xmmm32, Code::VEX_Vaddsd_xmm_xmm_xmmm64),
            Op::Sub => pick(Code::VEX_Vsubss_xmm_xmm_xmmm32, Code::VEX_Vsubsd_xmm_xmm_xmmm64),
            Op::Mul => pick(Code::VEX_Vmulss_xmm_xmm_xmmm32, Code::VEX_Vmulsd_xmm_xmm_xmmm64),
            Op::Div => pick(Code::VEX_Vdivss_xmm_xmm_xmmm32, Code::VEX_Vdivsd_xmm_xmm_xmmm64),
            Op::Max => pick(Code::VEX_Vmaxss_xmm_xmm_xmmm32, Code::VEX_Vmaxsd_xmm_xmm_xmmm64),
            Op::Min => pick(Code::VEX_Vminss_xmm_xmm_xmmm32, Code::VEX_Vminsd_xmm_xmm_xmmm64),
            Op::CmpLt => return self.float_flag(cmp::LT, dt, a, b),
            Op::CmpEq => return self.float_flag(cmp::EQ, dt, a, b),
            Op::CmpNe => return self.float_flag(cmp::NE, dt, a, b),
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        };
        let r = self.f.reg(Size::X);
        let bo = self.opnd(b, 1);
        self.f.def(code, &[x(r), x(a), bo]);
        if matches!(op, Op::Max | Op::Min) {
            let nan = self.float_mask(cmp::UNORDERED, dt, a, Val::R(a));
            return Ok(self.blend(nan, Val::R(a), r, 1));
        }
        Ok(self.narrow_scalar_to(dt, r))
    }

    /// A float comparison as an xmm mask.
    pub(super) fn float_mask(&mut self, pred: u8, dt: DType, a: VReg, b: Val) -> VReg {
        let code = match dt {
            DType::F64 => Code::VEX_Vcmpsd_xmm_xmm_xmmm64_imm8,
            _ => Code::VEX_Vcmpss_xmm_xmm_xmmm32_imm8,
        };
        let (m, b) = (self.f.reg(Size::X), self.opnd(b, 1));
        self.f.def(code, &[x(m), x(a), b, Opnd::I8(pred)]);
        m
    }

    fn float_flag(&mut self, pred: u8, dt: DType, a: VReg, b: Val) -> Result<VReg> {
        let m = self.float_mask(pred, dt, a, b);
        let r = self.f.reg(Size::Q);
        self.f.emit(Code::VEX_Vmovd_rm32_xmm, &[d(r), x(m)], 1, !1, 9);
        self.f.update(Code::And_rm32_imm32, &[d(r), Opnd::I32(1)]);
        Ok(r)
    }

    fn int_scalar(&mut self, op: Op, dt: DType, a: Val, b: Val) -> Result<VReg> {
        let a = self.reg(a, dt, 1)?;
        let flag = dt == DType::Bool;
        if op.is_compare() {
            return self.int_flag(op, dt, a, b);
        }
        let r = self.f.reg(Size::Q);
        let immediate = |v: i64| {
            let v = if wide(dt) { i32::try_from(v).ok() } else { Some(v as i32) };
            v.map(|v| if wide(dt) { Opnd::Q32(v) } else { Opnd::I32(v) })
        };
        let two = |l: &mut Self, imm: Code, full_imm: Code, reg: Code, full: Code| -> Result<()> {
            l.move_to(r, Val::R(a), dt, 1);
            match b {
                Val::I(v) if immediate(v).is_some() => {
                    let i = immediate(v).expect("checked");
                    l.f.update(form(dt, imm, full_imm), &[sized(r, dt), i]);
                }
                _ => {
                    let b = l.reg(b, dt, 1)?;
                    l.f.update(form(dt, reg, full), &[sized(r, dt), sized(b, dt)]);
                }
            }
            Ok(())
        };
        match op {
            Op::Add | Op::Or | Op::Max if flag => {
                two(self, Code::Or_rm32_imm32, Code::Or_rm64_imm32, Code::Or_r32_rm32, Code::Or_r64_rm64)?
            }
            Op::Mul | Op::And | Op::Min if flag => {
                two(self, Code::And_rm32_imm32, Code::And_rm64_imm32, Code::And_r32_rm32, Code::And_r64_rm64)?
            }
            Op::Add => match b {
                Val::R(b) => {
                    let m = Mem { index: Some(b), ..Mem::at(Base::Reg(a), 0) };
                    self.f.def(form(dt, Code::Lea_r32_m, Code::Lea_r64_m), &[sized(r, dt), Opnd::M(m)]);
                }
                Val::I(v) if i32::try_from(v).is_ok() => {
                    let m = Mem::at(Base::Reg(a), v as i32);
                    self.f.def(form(dt, Code::Lea_r32_m, Code::Lea_r64_m), &[sized(r, dt), Opnd::M(m)]);
                }
                _ => two(self, Code::Add_rm32_imm32, Code::Add_rm64_imm32, Code::Add_r32_rm32, Code::Add_r64_rm64)?,
            },
            Op::Sub => two(self, Code::Sub_rm32_imm32, Code::Sub_rm64_imm32, Code::Sub_r32_rm32, Code::Sub_r64_rm64)?,
            Op::And => two(self, Code::And_rm32_imm32, Code::And_rm64_imm32, Code::And_r32_rm32, Code::And_r64_rm64)?,
            Op::Or => two(self, Code::Or_rm32_imm32, Code::Or_rm64_imm32, Code::Or_r32_rm32, Code::Or_r64_rm64)?,
            Op::Xor => two(self, Code::Xor_rm32_imm32, Code::Xor_rm64_imm32, Code::Xor_r32_rm32, Code::Xor_r64_rm64)?,
            Op::Mul => match b {
                Val::I(v) if v > 0 && (v as u64).is_power_of_two() => {
                    let n = v.trailing_zeros() as u8;
                    self.move_to(r, Val::R(a), dt, 1);
                    if n > 0 {
                        self.f.update(form(dt, Code::Shl_rm32_imm8, Code::Shl_rm64_imm8), &[sized(r, dt), Opnd::I8(n)]);
                    }
                }
                Val::I(v) if immediate(v).is_some() => {
                    let i = immediate(v).expect("checked");
                    let code = form(dt, Code::Imul_r32_rm32_imm32, Code::Imul_r64_rm64_imm32);
                    self.f.def(code, &[sized(r, dt), sized(a, dt), i]);
                }
                _ => {
                    let b = self.reg(b, dt, 1)?;
                    self.move_to(r, Val::R(a), dt, 1);
                    self.f.update(form(dt, Code::Imul_r32_rm32, Code::Imul_r64_rm64), &[sized(r, dt), sized(b, dt)]);
                }
            },
            Op::Max | Op::Min => {
                let b = self.reg(b, dt, 1)?;
                self.move_to(r, Val::R(a), dt, 1);
                self.f.compare(form(dt, Code::Cmp_r32_rm32, Code::Cmp_r64_rm64), sized(a, dt), sized(b, dt));
                let code = match (op == Op::Max, dt.is_signed()) {
                    (true, true) => form(dt, Code::Cmovl_r32_rm32, Code::Cmovl_r64_rm64),
                    (true, false) => form(dt, Code::Cmovb_r32_rm32, Code::Cmovb_r64_rm64),
                    (false, true) => form(dt, Code::Cmovg_r32_rm32, Code::Cmovg_r64_rm64),
                    (false, false) => form(dt, Code::Cmova_r32_rm32, Code::Cmova_r64_rm64),
                };
                self.f.update(code, &[sized(r, dt), sized(b, dt)]);
                return Ok(r);
            }
            Op::Shl | Op::Shr => {
                let bits = dt.bits() as i64;
                if let Val::I(n) = b {
                    let n = Opnd::I8((n & (bits - 1)) as u8);
                    self.move_to(r, Val::R(a), dt, 1);
                    let code = match (op, dt.is_signed()) {
                        (Op::Shl, _) => form(dt, Code::Shl_rm32_imm8, Code::Shl_rm64_imm8),
                        (_, true) => form(dt, Code::Sar_rm32_imm8, Code::Sar_rm64_imm8),
                        (_, false) => form(dt, Code::Shr_rm32_imm8, Code::Shr_rm64_imm8),
                    };
                    self.f.update(code, &[sized(r, dt), n]);
                } else {
                    let b = self.reg(b, dt, 1)?;
                    let n = self.f.reg(Size::Q);
                    self.f.copy(Code::Mov_r64_rm64, q(n), q(b));
                    self.f.update(Code::And_rm32_imm32, &[d(n), Opnd::I32(bits as i32 - 1)]);
                    let code = match (op, dt.is_signed()) {
                        (Op::Shl, _) => form(dt, Code::VEX_Shlx_r32_rm32_r32, Code::VEX_Shlx_r64_rm64_r64),
                        (_, true) => form(dt, Code::VEX_Sarx_r32_rm32_r32, Code::VEX_Sarx_r64_rm64_r64),
                        (_, false) => form(dt, Code::VEX_Shrx_r32_rm32_r32, Code::VEX_Shrx_r64_rm64_r64),
                    };
                    self.f.emit(code, &[sized(r, dt), sized(a, dt), sized(n, dt)], 1, !1, 1);
                }
            }
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        }
        Ok(self.narrow_scalar_to(dt, r))
    }

    fn int_flag(&mut self, op: Op, dt: DType, a: VReg, b: Val) -> Result<VReg> {
        let r = self.f.reg(Size::Q);
        let b = match b {
            Val::I(v) if !wide(dt) => Ok(Opnd::I32(v as i32)),
            Val::I(v) if i32::try_from(v).is_ok() => Ok(Opnd::Q32(v as i32)),
            v => Err(self.reg(v, dt, 1)?),
        };
        match b {
            Ok(i) => self.f.read(form(dt, Code::Cmp_rm32_imm32, Code::Cmp_rm64_imm32), &[sized(a, dt), i]),
            Err(b) => self.f.compare(form(dt, Code::Cmp_r32_rm32, Code::Cmp_r64_rm64), sized(a, dt), sized(b, dt)),
        }
        let code = match (op, dt.is_signed()) {
            (Op::CmpEq, _) => Code::Sete_rm8,
            (Op::CmpNe, _) => Code::Setne_rm8,
            (_, true) => Code::Setl_rm8,
            _ => Code::Setb_rm8,
        };
        let flag = self.f.reg(Size::Q);
        self.f.def(code, &[Opnd::R(flag, Size::B)]);
        self.f.emit(Code::Movzx_r32_rm8, &[d(r), Opnd::R(flag, Size::B)], 1, !1, 9);
        Ok(r)
    }

    /// `c ? x : y`.
    pub(super) fn select(&mut self, dt: DType, c: VReg, xv: Val, y: Val) -> Result<VReg> {
        if dt.is_float() {
            let (xv, y) = (self.reg(xv, dt, 1)?, self.reg(y, dt, 1)?);
            let (n, m) = (self.f.reg(Size::Q), self.f.reg(Size::X));
            self.f.copy(Code::Mov_r64_rm64, q(n), q(c));
            self.f.update(Code::Neg_rm64, &[q(n)]);
            self.f.def(Code::VEX_Vmovq_xmm_rm64, &[x(m), q(n)]);
            return Ok(self.blend(m, Val::R(xv), y, 1));
        }
        let (xv, r) = (self.reg(xv, dt, 1)?, self.f.reg(Size::Q));
        self.move_to(r, y, dt, 1);
        self.f.read(Code::Test_rm32_r32, &[d(c), d(c)]);
        self.f.update(Code::Cmovne_r64_rm64, &[q(r), q(xv)]);
        Ok(r)
    }

    /// `a / c` or `a % c` for `0 <= a < 2^31` and a constant `c > 0`: a shift, or a multiplication by the fixed-point
    /// reciprocal.
    fn divide_positive(&mut self, op: Op, dt: DType, a: Val, c: u32) -> Result<Val> {
        let a = self.reg(a, dt, 1)?;
        if c == 1 {
            return Ok(if op == Op::Idiv { Val::R(a) } else { Val::I(0) });
        }
        let r = self.f.reg(Size::Q);
        if c.is_power_of_two() {
            self.f.copy(Code::Mov_r64_rm64, q(r), q(a));
            if op == Op::Idiv {
                self.f.update(Code::Shr_rm32_imm8, &[d(r), Opnd::I8(c.trailing_zeros() as u8)]);
            } else {
                self.f.update(Code::And_rm32_imm32, &[d(r), Opnd::I32(c as i32 - 1)]);
            }
            return Ok(Val::R(r));
        }
        // exact for 31-bit numerators: m = ceil(2^(31+s) / c), s = ceil(log2 c)
        let s = 32 - (c - 1).leading_zeros();
        let m = (1u64 << (31 + s)).div_ceil(c as u64);
        self.move_to(r, Val::I(m as i64), DType::I64, 1);
        self.f.update(Code::Imul_r64_rm64, &[q(r), q(a)]);
        self.f.update(Code::Shr_rm64_imm8, &[q(r), Opnd::I8(31 + s as u8)]);
        if op == Op::Idiv {
            return Ok(Val::R(r));
        }
        let (p, t) = (self.f.reg(Size::Q), self.f.reg(Size::Q));
        self.f.def(Code::Imul_r32_rm32_imm32, &[d(p), d(r), Opnd::I32(c as i32)]);
        self.f.copy(Code::Mov_r64_rm64, q(t), q(a));
        self.f.update(Code::Sub_r32_rm32, &[d(t), d(p)]);
        Ok(Val::R(t))
    }

    /// The machine's division, preceded by tests for the cases that trap there but are defined for `Op::Idiv` and
    /// `Op::Imod`: a divisor of 0 (`x / 0 = x`, `x % 0 = 0`), and -1, by which the least integer overflows.
    fn divide(&mut self, op: Op, dt: DType, a: Val, b: Val, constant: Option<i64>) -> Result<VReg> {
        let (a, b, r) = (self.reg(a, dt, 1)?, self.reg(b, dt, 1)?, self.f.reg(Size::Q));
        let quotient = op == Op::Idiv;
        let (done, minus) = (self.f.new_label(), self.f.new_label());
        if constant.is_none_or(|c| c == 0) {
            // x / 0 = x, x % 0 = 0
            self.move_to(r, if quotient { Val::R(a) } else { Val::I(0) }, dt, 1);
            self.f.read(form(dt, Code::Test_rm32_r32, Code::Test_rm64_r64), &[sized(b, dt), sized(b, dt)]);
            self.f.jump(Code::Je_rel32_64, done);
        }
        let may_wrap = dt.is_signed() && constant.is_none_or(|c| c == -1);
        if may_wrap {
            let i = if wide(dt) { Opnd::Q32(-1) } else { Opnd::I32(-1) };
            self.f.read(form(dt, Code::Cmp_rm32_imm32, Code::Cmp_rm64_imm32), &[sized(b, dt), i]);
            self.f.jump(Code::Je_rel32_64, minus);
        }
        let (ax, dx) = if wide(dt) { (Register::RAX, Register::RDX) } else { (Register::EAX, Register::EDX) };
        let mov = form(dt, Code::Mov_r32_rm32, Code::Mov_r64_rm64);
        self.f.emit(mov, &[Opnd::P(ax), sized(a, dt)], 1, !1, 1);
        if dt.is_signed() {
            self.f.emit(form(dt, Code::Cdq, Code::Cqo), &[], 0, 0, 9);
            self.f.read(form(dt, Code::Idiv_rm32, Code::Idiv_rm64), &[sized(b, dt)]);
        } else {
            self.f.emit(Code::Xor_r32_rm32, &[Opnd::P(Register::EDX), Opnd::P(Register::EDX)], 1, 0, 9);
            self.f.read(form(dt, Code::Div_rm32, Code::Div_rm64), &[sized(b, dt)]);
        }
        self.f.def(mov, &[sized(r, dt), Opnd::P(if quotient { ax } else { dx })]);
        if may_wrap {
            self.f.jump(Code::Jmp_rel32_64, done);
            self.f.label(minus);
            self.move_to(r, if quotient { Val::R(a) } else { Val::I(0) }, dt, 1);
            if quotient {
                self.f.update(form(dt, Code::Neg_rm32, Code::Neg_rm64), &[sized(r, dt)]);
            }
        }
        self.f.label(done);
        Ok(self.narrow_scalar_to(dt, r))
    }
}
