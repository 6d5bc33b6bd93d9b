//! Elementwise operations: the choice between vector instructions and lane-by-lane code, and the vector instructions.
//! Masks are 32-bit lanes of all ones or all zeros.

use super::table::{self, Code};
use super::{Lower, Opnd};
use crate::render::linear::lower::{Point, Val, wide};
use crate::render::linear::mir::VReg;
use crate::uop::{Op, UOp};
use crate::{DType, Result};

impl Lower<'_> {
    /// An elementwise op at one element.
    pub(super) fn alu(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let g = self.g;
        let (op, dt, src) = (g.op(u), g.dtype(u), g.srcs(u));
        let sdt = g.dtype(*src.last().expect("an operand"));
        if matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Cos | Op::Tan | Op::Pow | Op::FloorDiv | Op::FloorMod) {
            return Err(self.unsupported(format!("op {}", op.name())));
        }
        if op == Op::LookupBytes {
            return self.lookup_bytes(u, pt, off, w);
        }
        if w == 1 {
            return self.alu_scalar(u, pt, off);
        }
        let vectors = match op {
            Op::Idiv | Op::Imod => false,
            Op::Bitcast => sdt.is_float() == dt.is_float() || sdt.size() == 4,
            _ => true,
        };
        if !vectors || wide(dt) || src.iter().any(|&s| wide(g.dtype(s))) {
            return self.pack(dt, |l, i| l.alu_scalar(u, pt, off + i));
        }
        let a = self.demand_reg(src[0], pt, off, w)?;
        let r = match op {
            Op::Cast => self.cast_vector(sdt, dt, a)?,
            Op::Bitcast => self.narrow_to(dt, a),
            op if op.is_unary() => {
                let r = self.unary_vector(op, dt, a)?;
                self.narrow_to(dt, r)
            }
            Op::Where => {
                let (x, y) = (self.demand_reg(src[1], pt, off, w)?, self.demand_reg(src[2], pt, off, w)?);
                self.blend(a, x, y)
            }
            Op::MulAdd => {
                let (b, c) = (self.demand_reg(src[1], pt, off, w)?, self.demand(src[2], pt, off, w)?);
                if dt == DType::F32 {
                    let d = self.vector();
                    self.move_to(d, c, dt, w);
                    let ops = [d, a, b].map(|r| self.opnd(r));
                    self.f.update(table::FMLA_V, &ops);
                    d
                } else {
                    let p = self.binary_vector(Op::Mul, dt, Val::R(a), Val::R(b), None)?;
                    self.binary_vector(Op::Add, dt, Val::R(p), c, None)?
                }
            }
            Op::Shl | Op::Shr if g.const_int(src[1]).is_some() => {
                let n = (g.const_int(src[1]).unwrap_or(0) & (dt.bits() as i64 - 1)) as i32;
                match op {
                    _ if n == 0 => a,
                    Op::Shl => {
                        let r = self.emit_vector_imm(table::SHL_V, a, 32 + n);
                        self.narrow_to(dt, r)
                    }
                    _ if dt.is_signed() => self.emit_vector_imm(table::SSHR_V, a, 64 - n),
                    _ => self.emit_vector_imm(table::USHR_V, a, 64 - n),
                }
            }
            _ => {
                let b = self.demand(src[1], pt, off, w)?;
                self.binary_vector(op, sdt, Val::R(a), b, None)?
            }
        };
        Ok(Val::R(r))
    }

    /// The op [`Op::LookupBytes`]; scalars are computed in the first lane of a vector.
    fn lookup_bytes(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let index = self.g.src_at(u, 0);
        let Some(table) = self.g.lookup_table(u) else {
            return Err(self.unsupported("a lookup in a computed table".into()));
        };
        let mut at = self.demand_reg(index, pt, off, w)?;
        if w == 1 {
            at = self.emit_vector2(table::FMOV_S_W, at);
        }
        if let Some(mask) = self.g.lookup_mask(index) {
            let mask = self.lanes(mask);
            at = self.emit_vector3(table::AND_V, at, mask);
        }
        let (from, bytes) = (self.pool(&table), self.vector());
        self.move_to(bytes, from, DType::I32, 4);
        let found = self.emit_vector3(table::TBL_V, bytes, at);
        Ok(Val::R(if w == 1 { self.emit_general2(table::FMOV_W_S, found) } else { found }))
    }

    /// Normalises 32-bit lanes to a narrow dtype: integers wrap to its width, floats are rounded to its precision.
    pub(super) fn narrow_to(&mut self, dt: DType, v: VReg) -> VReg {
        let bits = 32 - dt.bits() as i32;
        match dt {
            DType::I8 | DType::I16 => {
                let t = self.emit_vector_imm(table::SHL_V, v, 32 + bits);
                self.emit_vector_imm(table::SSHR_V, t, 64 - bits)
            }
            DType::U8 | DType::U16 => {
                let t = self.emit_vector_imm(table::SHL_V, v, 32 + bits);
                self.emit_vector_imm(table::USHR_V, t, 64 - bits)
            }
            DType::F16 => {
                let h = self.emit_vector2(table::FCVTN, v);
                self.emit_vector2(table::FCVTL, h)
            }
            DType::BF16 => self.round_bf16(v),
            _ => v,
        }
    }

    /// A constant in all lanes.
    pub(super) fn lanes(&mut self, bits: u32) -> VReg {
        let (c, r) = (self.lanes_of(bits, 4), self.vector());
        self.move_to(r, c, DType::I32, 4);
        r
    }

    /// Rounds f32 to the nearest bf16, ties to even; NaN stays NaN.
    fn round_bf16(&mut self, v: VReg) -> VReg {
        let (one, half, nan) = (self.lanes(1), self.lanes(0x7fff), self.lanes(0x7fc0_0000));
        let high = self.emit_vector_imm(table::USHR_V, v, 64 - 16);
        let odd = self.emit_vector3(table::AND_V, high, one);
        let more = self.emit_vector3(table::ADD_V, odd, half);
        let sum = self.emit_vector3(table::ADD_V, more, v);
        let kept = self.emit_vector_imm(table::USHR_V, sum, 64 - 16);
        let kept = self.emit_vector_imm(table::SHL_V, kept, 32 + 16);
        let number = self.emit_vector3(table::FCMEQ_V, v, v);
        self.blend(number, kept, nan)
    }

    /// `mask ? x : y` per lane.
    pub(super) fn blend(&mut self, mask: VReg, x: VReg, y: VReg) -> VReg {
        let d = self.vector();
        self.move_to(d, Val::R(mask), DType::I32, 4);
        let ops = [d, x, y].map(|r| self.opnd(r));
        self.f.update(table::BSL_V, &ops);
        d
    }

    fn unary_vector(&mut self, op: Op, dt: DType, a: VReg) -> Result<VReg> {
        let code = match op {
            Op::Neg if dt.is_float() => table::FNEG_V,
            Op::Neg => table::NEG_V,
            Op::Sqrt => table::FSQRT_V,
            Op::Trunc => table::FRINTZ_V,
            Op::Recip => {
                let one = self.lanes(1f32.to_bits());
                return Ok(self.emit_vector3(table::FDIV_V, one, a));
            }
            _ => return Err(self.unsupported(format!("op {}", op.name()))),
        };
        Ok(self.emit_vector2(code, a))
    }

    /// A binary operation on vectors of `dt`. The result is in `into` where that is possible, otherwise in a fresh
    /// register.
    pub(super) fn binary_vector(&mut self, op: Op, dt: DType, a: Val, b: Val, into: Option<VReg>) -> Result<VReg> {
        let (a, b) = (self.reg(a, dt, 4)?, self.reg(b, dt, 4)?);
        let float = dt.is_float();
        let (code, x, y) = match (op, dt) {
            (Op::Add | Op::Or | Op::Max, DType::Bool) => (table::ORR_V, a, b),
            (Op::Mul | Op::And | Op::Min, DType::Bool) => (table::AND_V, a, b),
            (Op::CmpNe, DType::Bool) => (table::EOR_V, a, b),
            (Op::CmpLt, DType::Bool) => (table::BIC_V, b, a),
            (Op::Add, _) => (if float { table::FADD_V } else { table::ADD_V }, a, b),
            (Op::Sub, _) => (if float { table::FSUB_V } else { table::SUB_V }, a, b),
            (Op::Mul, _) => (if float { table::FMUL_V } else { table::MUL_V }, a, b),
            (Op::Div, _) if float => (table::FDIV_V, a, b),
            (Op::And, _) => (table::AND_V, a, b),
            (Op::Or, _) => (table::ORR_V, a, b),
            (Op::Xor, _) => (table::EOR_V, a, b),
            (Op::Max, _) if float => (table::FMAX_V, a, b),
            (Op::Min, _) if float => (table::FMIN_V, a, b),
            (Op::Max, _) => (if dt.is_signed() { table::SMAX_V } else { table::UMAX_V }, a, b),
            (Op::Min, _) => (if dt.is_signed() { table::SMIN_V } else { table::UMIN_V }, a, b),
            (Op::CmpLt, _) if float => (table::FCMGT_V, b, a),
            (Op::CmpLt, _) if dt.is_signed() => (table::CMGT_V, b, a),
            (Op::CmpLt, _) => (table::CMHI_V, b, a),
            (Op::CmpEq | Op::CmpNe, _) => (if float { table::FCMEQ_V } else { table::CMEQ_V }, a, b),
            (Op::Shl | Op::Shr, _) => return Ok(self.shift_lanes(op, dt, a, b)),
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        };
        if op == Op::CmpNe && dt != DType::Bool {
            let equal = self.emit_vector3(code, x, y);
            return Ok(self.emit_vector2(table::NOT_V, equal));
        }
        let rounds = !matches!(op, Op::Max | Op::Min | Op::And | Op::Or | Op::Xor) && !op.is_compare();
        let exact = !rounds || dt.size() == 4 || dt == DType::Bool;
        let d = into.filter(|_| exact).unwrap_or_else(|| self.vector());
        self.f.def(code, &[self.opnd(d), self.opnd(x), self.opnd(y)]);
        Ok(if rounds { self.narrow_to(dt, d) } else { d })
    }

    fn shift_lanes(&mut self, op: Op, dt: DType, a: VReg, n: VReg) -> VReg {
        let mask = self.lanes(dt.bits() - 1);
        let mut n = self.emit_vector3(table::AND_V, n, mask);
        if op == Op::Shr {
            n = self.emit_vector2(table::NEG_V, n);
        }
        let code = if op == Op::Shr && dt.is_signed() { table::SSHL_V } else { table::USHL_V };
        let r = self.emit_vector3(code, a, n);
        if op == Op::Shl { self.narrow_to(dt, r) } else { r }
    }

    /// Builds a vector from four scalars that `lane` computes one by one.
    pub(super) fn pack(&mut self, dt: DType, mut lane: impl FnMut(&mut Self, usize) -> Result<Val>) -> Result<Val> {
        let d = self.vector();
        let mut scalars = Vec::with_capacity(4);
        for i in 0..4 {
            let v = lane(self, i)?;
            scalars.push(self.reg(v, dt, 1)?);
        }
        let float = dt.is_float();
        let (first, set): (Code, Code) =
            if float { (table::DUP_S, table::INS_S) } else { (table::DUP_W, table::INS_W) };
        for (i, s) in scalars.into_iter().enumerate() {
            match i {
                0 => self.f.def(first, &[self.opnd(d), self.opnd(s)]),
                _ => self.f.update(set, &[self.opnd(d), self.opnd(s), Opnd::I32(table::lane(i))]),
            }
        }
        Ok(Val::R(if dt == DType::Bool { self.emit_vector2(table::NEG_V, d) } else { d }))
    }

    /// Extracts one lane as a scalar.
    pub(super) fn lane_of(&mut self, v: VReg, dt: DType, i: usize) -> VReg {
        if dt.is_float() {
            return if i == 0 { v } else { self.emit_vector_imm(table::DUP_LANE, v, table::lane(i)) };
        }
        let r = self.emit_general_imm(table::UMOV, v, table::lane(i));
        if dt == DType::Bool { self.field(table::UBFM, r, 0, 0) } else { r }
    }
}
