//! Elementwise operations: the choice between vector instructions and lane-by-lane code, and the vector instructions.
//! Masks are 32-bit lanes of all ones or all zeros.

use super::Lower;
use super::Opnd;
use super::table::{self, ShiftImm, V2, V3, cmp};
use crate::render::linear::lower::{Point, Val, vec_size, wide};
use crate::render::linear::mir::{Size, VReg};
use crate::uop::{Op, UOp};
use crate::{DType, Result};
use iced_x86::{Code, Register};

/// The constant that `exp2` adds to its argument to round it to an integer in the low mantissa bits: 1.5 * 2^23, plus
/// twice the exponent's bias (254).
const EXP_MAGIC: f32 = 12_583_166.0;

impl Lower<'_> {
    /// An elementwise op at one element.
    pub(super) fn alu(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let g = self.g;
        let (op, dt, src) = (g.op(u), g.dtype(u), g.srcs(u));
        let sdt = g.dtype(*src.last().expect("an operand"));
        if matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Cos | Op::Tan | Op::Pow | Op::FloorDiv | Op::FloorMod) {
            return Err(self.unsupported(format!("op {}", op.name())));
        }
        match op {
            Op::DotBytes | Op::DotPairs => return self.dot_words(u, pt, off, w),
            Op::LookupBytes => return self.lookup_bytes(u, pt, off, w),
            _ => {}
        }
        if w == 1 {
            return self.alu_scalar(u, pt, off);
        }
        if wide(dt) || src.iter().any(|&s| wide(g.dtype(s))) {
            return self.alu_wide(u, pt, off, w);
        }
        if !vectorised(op, sdt, dt) {
            return self.pack(dt, w, |l, i| l.alu_scalar(u, pt, off + i));
        }
        if let Some((max, first, second)) = self.match_min_max(u) {
            let b = self.demand(second, pt, off, w)?;
            let (a, d) = (self.demand_reg(first, pt, off, w)?, self.fresh(dt, w));
            self.v3(if max { V3::MaxPs } else { V3::MinPs }, w, d, a, b);
            return Ok(Val::R(d));
        }
        if w == 16
            && matches!(op, Op::Mul | Op::MulAdd)
            && let Some((p, t)) = self.match_scale_by_power(src[0], src[1])
        {
            let (p, t) = (self.demand_reg(p, pt, off, w)?, self.demand_reg(t, pt, off, w)?);
            let (n, d) = (self.fresh(dt, w), self.fresh(dt, w));
            let magic = self.lanes_of(EXP_MAGIC.to_bits(), w);
            self.v3(V3::SubPs, w, n, t, magic);
            let ops = [d, p, n].map(|r| Opnd::R(r, Size::Z));
            self.f.def(Code::EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er, &ops);
            if op == Op::Mul {
                return Ok(Val::R(d));
            }
            let c = self.demand(src[2], pt, off, w)?;
            let sum = self.fresh(dt, w);
            self.v3(V3::AddPs, w, sum, d, c);
            return Ok(Val::R(sum));
        }
        if op == Op::Where && w == 16 {
            let condition = self.predicate(src[0], u, pt, off)?;
            let (x, y) = (self.demand(src[1], pt, off, w)?, self.demand_reg(src[2], pt, off, w)?);
            self.predicate_to_k1(&condition);
            return Ok(Val::R(self.blend_under_k1(x, y)));
        }
        let a = self.demand(src[0], pt, off, w)?;
        Ok(match op {
            Op::Cast => self.cast_vector(sdt, dt, w, a)?,
            Op::Bitcast => {
                let a = self.reg(a, sdt, w)?;
                Val::R(self.narrow_to(dt, w, a))
            }
            op if op.is_unary() => {
                let v = self.unary_vector(op, dt, w, a)?;
                Val::R(self.narrow_to(dt, w, v))
            }
            Op::Where => {
                let mask = self.reg(a, DType::Bool, w)?;
                let (x, y) = (self.demand(src[1], pt, off, w)?, self.demand_reg(src[2], pt, off, w)?);
                Val::R(self.blend(mask, x, y, w))
            }
            Op::MulAdd => {
                let (b, c) = (self.demand(src[1], pt, off, w)?, self.demand(src[2], pt, off, w)?);
                Val::R(self.mul_add(dt, w, a, b, c)?)
            }
            Op::Shl | Op::Shr if g.const_int(src[1]).is_some() => {
                let n = g.const_int(src[1]).unwrap_or(0) & (dt.bits() as i64 - 1);
                let (a, d) = (self.reg(a, dt, w)?, self.f.reg(vec_size(w)));
                let shift = match op {
                    Op::Shl => ShiftImm::Shl,
                    _ if dt.is_signed() => ShiftImm::Sar,
                    _ => ShiftImm::Shr,
                };
                self.shift(shift, w, d, a, n as u8);
                Val::R(if op == Op::Shl { self.narrow_to(dt, w, d) } else { d })
            }
            _ => {
                let b = self.demand_mem(src[1], u, pt, off, w)?;
                let number = |s: UOp| g.const_val(s).is_some_and(|c| !c.as_f64().is_nan());
                if sdt.is_float() && matches!(op, Op::Max | Op::Min) && number(src[1]) {
                    // the instruction max(c, x) gives x if either is NaN, and c is not NaN
                    let (c, d) = (self.reg(b, sdt, w)?, self.fresh(dt, w));
                    self.v3(if op == Op::Max { V3::MaxPs } else { V3::MinPs }, w, d, c, a);
                    return Ok(Val::R(d));
                }
                Val::R(self.binary_vector(op, sdt, w, a, b, None)?)
            }
        })
    }

    /// Matches `a * b` as `p * 2^n` and returns p and t, where `t = n + EXP_MAGIC`. `exp2` scales by 2^n in two
    /// factors, whose exponents are the two halves of n; one `vscalefps` does the same.
    fn match_scale_by_power(&self, a: UOp, b: UOp) -> Option<(UOp, UOp)> {
        let g = self.g;
        let power = |u: UOp| -> Option<UOp> {
            let shifted = (g.op(u) == Op::Bitcast && g.dtype(u) == DType::F32).then(|| g.src_at(u, 0))?;
            let shl = g.op(shifted) == Op::Shl && g.const_int(g.src_at(shifted, 1)) == Some(23);
            shl.then(|| g.src_at(shifted, 0))
        };
        let either = |x: UOp, y: UOp| power(y).map(|e| (x, e)).or_else(|| power(x).map(|e| (y, e)));
        let (inner, rest) = either(a, b)?;
        if g.op(inner) != Op::Mul || g.op(rest) != Op::Sub {
            return None;
        }
        let (p, half) = either(g.src_at(inner, 0), g.src_at(inner, 1))?;
        let bits = g.src_at(rest, 0);
        let halves = g.src_at(rest, 1) == half && g.op(half) == Op::Shr && g.src_at(half, 0) == bits;
        if !halves || g.const_int(g.src_at(half, 1)) != Some(1) || g.op(bits) != Op::Bitcast {
            return None;
        }
        let t = g.src_at(bits, 0);
        let magic = |u: &UOp| g.const_val(*u).is_some_and(|c| c.as_f64() == EXP_MAGIC as f64);
        (matches!(g.op(t), Op::Add | Op::MulAdd) && g.src(t).last().is_some_and(magic)).then_some((p, t))
    }

    /// Matches `a < b ? b : a` (a maximum) and `a < b ? a : b` (a minimum): whether it is the maximum, and the operands
    /// of `vmaxps` or `vminps`, which give their second operand unless the first is greater (less).
    fn match_min_max(&self, u: UOp) -> Option<(bool, UOp, UOp)> {
        let g = self.g;
        let [cond, x, y] = *g.src(u) else { return None };
        if g.op(u) != Op::Where || g.dtype(u) != DType::F32 || g.op(cond) != Op::CmpLt {
            return None;
        }
        let (a, b) = (g.src_at(cond, 0), g.src_at(cond, 1));
        ((x, y) == (b, a) || (x, y) == (a, b)).then_some((x == b, x, y))
    }

    /// A vector operand of `by`: a memory operand if `u` is a plain load with no other use.
    pub(super) fn demand_mem(&mut self, u: UOp, by: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        if self.g.op(u) == Op::Load
            && self.used_once(u, by)
            && let Some(m) = self.plain_load(u, pt, off, w)?
        {
            return Ok(Val::M(m));
        }
        self.demand(u, pt, off, w)
    }

    /// Emits a three-operand vector instruction; its last operand may be memory.
    pub(super) fn v3(&mut self, op: V3, w: usize, d: VReg, a: VReg, b: Val) {
        let size = vec_size(w);
        let b = self.opnd(b, w);
        self.f.def(table::v3(op, w), &[Opnd::R(d, size), Opnd::R(a, size), b]);
    }

    pub(super) fn opnd(&self, v: Val, w: usize) -> Opnd {
        match v {
            Val::R(r) => Opnd::R(r, vec_size(w)),
            Val::M(m) => Opnd::M(m),
            Val::I(i) => Opnd::I64(i),
        }
    }

    pub(super) fn v2(&mut self, op: V2, w: usize, d: VReg, a: Val) {
        let a = self.opnd(a, w);
        self.f.def(table::v2(op, w), &[Opnd::R(d, vec_size(w)), a]);
    }

    pub(super) fn shift(&mut self, op: ShiftImm, w: usize, d: VReg, a: VReg, n: u8) {
        let size = vec_size(w);
        self.f.emit(table::shift_imm(op, w), &[Opnd::R(d, size), Opnd::R(a, size), Opnd::I8(n)], 1, !1, 9);
    }

    /// Normalises 32-bit lanes to a narrow dtype: integers wrap to its width, floats are rounded to its precision.
    pub(super) fn narrow_to(&mut self, dt: DType, w: usize, v: VReg) -> VReg {
        let d = match dt {
            DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::F16 | DType::BF16 => self.f.reg(vec_size(w)),
            _ => return v,
        };
        let bits = 32 - dt.bits() as u8;
        match dt {
            DType::I8 | DType::I16 => {
                self.shift(ShiftImm::Shl, w, d, v, bits);
                let e = self.f.reg(vec_size(w));
                self.shift(ShiftImm::Sar, w, e, d, bits);
                return e;
            }
            DType::U8 | DType::U16 => {
                let mask = self.lanes_of(u32::MAX >> bits, w);
                self.v3(V3::And, w, d, v, mask);
            }
            DType::F16 => {
                let half = match w {
                    16 => Size::Y,
                    _ => Size::X,
                };
                let h = self.f.reg(half);
                let code = table::to_f16(w);
                self.f.emit(code, &[Opnd::R(h, half), Opnd::R(v, vec_size(w)), Opnd::I8(0)], 1, !1, 9);
                self.f.def(table::v2(V2::LoadF16, w), &[Opnd::R(d, vec_size(w)), Opnd::R(h, half)]);
            }
            _ => return self.round_bf16(w, v),
        }
        d
    }

    /// Rounds f32 to the nearest bf16, ties to even; NaN stays NaN.
    fn round_bf16(&mut self, w: usize, v: VReg) -> VReg {
        let t: [VReg; 6] = std::array::from_fn(|_| self.f.reg(vec_size(w)));
        let (one, half) = (self.lanes_of(1, w), self.lanes_of(0x7fff, w));
        let (keep, nan) = (self.lanes_of(0xffff_0000, w), self.lanes_of(0x7fc0_0000, w));
        self.shift(ShiftImm::Shr, w, t[0], v, 16);
        self.v3(V3::And, w, t[1], t[0], one);
        self.v3(V3::Add, w, t[2], t[1], half);
        self.v3(V3::Add, w, t[3], t[2], Val::R(v));
        self.v3(V3::And, w, t[4], t[3], keep);
        let mask = self.compare_floats(cmp::UNORDERED, w, v, Val::R(v));
        self.blend(mask, nan, t[4], w)
    }

    /// Compares floats, giving a mask vector.
    pub(super) fn compare_floats(&mut self, pred: u8, w: usize, a: VReg, b: Val) -> VReg {
        let (d, size) = (self.f.reg(vec_size(w)), vec_size(w));
        let b = self.opnd(b, w);
        match w {
            16 => {
                let code = Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae;
                self.f.emit(code, &[Opnd::P(Register::K1), Opnd::R(a, size), b, Opnd::I8(pred)], 1, !1, 2);
                self.f.def(Code::EVEX_Vpmovm2d_zmm_kr, &[Opnd::R(d, size), Opnd::P(Register::K1)]);
            }
            8 => self
                .f
                .def(Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8, &[Opnd::R(d, size), Opnd::R(a, size), b, Opnd::I8(pred)]),
            _ => self
                .f
                .def(Code::VEX_Vcmpps_xmm_xmm_xmmm128_imm8, &[Opnd::R(d, size), Opnd::R(a, size), b, Opnd::I8(pred)]),
        }
        d
    }

    /// Sets k1 in the lanes where a register of 16 floats is NaN.
    fn unordered_to_k1(&mut self, a: VReg) {
        let a = Opnd::R(a, Size::Z);
        let ops = [Opnd::P(Register::K1), a, a, Opnd::I8(cmp::UNORDERED)];
        self.f.emit(Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, &ops, 1, !1, 9);
    }

    /// Compares integers, `a == b` or signed `a > b`, giving a mask vector.
    fn compare_ints(&mut self, equal: bool, w: usize, a: VReg, b: Val) -> VReg {
        let (d, size) = (self.f.reg(vec_size(w)), vec_size(w));
        let b = self.opnd(b, w);
        if w == 16 {
            let code = match equal {
                true => Code::EVEX_Vpcmpeqd_kr_k1_zmm_zmmm512b32,
                false => Code::EVEX_Vpcmpgtd_kr_k1_zmm_zmmm512b32,
            };
            self.f.emit(code, &[Opnd::P(Register::K1), Opnd::R(a, size), b], 1, !1, 2);
            self.f.def(Code::EVEX_Vpmovm2d_zmm_kr, &[Opnd::R(d, size), Opnd::P(Register::K1)]);
            return d;
        }
        let code = match (equal, w) {
            (true, 8) => Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256,
            (true, _) => Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128,
            (false, 8) => Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256,
            (false, _) => Code::VEX_Vpcmpgtd_xmm_xmm_xmmm128,
        };
        self.f.def(code, &[Opnd::R(d, size), Opnd::R(a, size), b]);
        d
    }

    /// `k1 ? x : y` in each of sixteen lanes.
    fn blend_under_k1(&mut self, x: Val, y: VReg) -> VReg {
        let (d, x) = (self.f.reg(Size::Z), self.opnd(x, 16));
        let ops = [Opnd::R(d, Size::Z), Opnd::R(y, Size::Z), x];
        self.f.emit(Code::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32, &ops, 1, !1, 2).masked = true;
        d
    }

    /// `mask ? x : y` per lane.
    pub(super) fn blend(&mut self, mask: VReg, x: Val, y: VReg, w: usize) -> VReg {
        if w == 16 {
            self.mask_to_k1(mask);
            return self.blend_under_k1(x, y);
        }
        let (d, size) = (self.f.reg(vec_size(w)), vec_size(w));
        let x = self.opnd(x, w);
        let (d_, y_, m_) = (Opnd::R(d, size), Opnd::R(y, size), Opnd::R(mask, size));
        match w {
            8 => _ = self.f.emit(Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm, &[d_, y_, x, m_], 1, !1, 2),
            _ => _ = self.f.emit(Code::VEX_Vblendvps_xmm_xmm_xmmm128_xmm, &[d_, y_, x, m_], 1, !1, 2),
        }
        d
    }

    pub(super) fn mask_to_k1(&mut self, mask: VReg) {
        let ops = [Opnd::P(Register::K1), Opnd::R(mask, Size::Z)];
        self.f.emit(Code::EVEX_Vpmovd2m_kr_zmm, &ops, 1, !1, 9);
    }

    fn unary_vector(&mut self, op: Op, dt: DType, w: usize, a: Val) -> Result<VReg> {
        let d = self.f.reg(vec_size(w));
        match op {
            Op::Neg if dt.is_float() => {
                let (a, sign) = (self.reg(a, dt, w)?, self.lanes_of(1 << 31, w));
                self.v3(V3::Xor, w, d, a, sign);
            }
            Op::Neg => {
                let zero = self.lanes_of(0, w);
                let zero = self.reg(zero, dt, w)?;
                self.v3(V3::Sub, w, d, zero, a);
            }
            Op::Sqrt => self.v2(V2::Sqrt, w, d, a),
            Op::Recip => {
                let one = self.lanes_of(1f32.to_bits(), w);
                let one = self.reg(one, dt, w)?;
                self.v3(V3::DivPs, w, d, one, a);
            }
            Op::Trunc => {
                let code = match w {
                    16 => Code::EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae,
                    8 => Code::VEX_Vroundps_ymm_ymmm256_imm8,
                    _ => Code::VEX_Vroundps_xmm_xmmm128_imm8,
                };
                let a = self.opnd(a, w);
                self.f.def(code, &[Opnd::R(d, vec_size(w)), a, Opnd::I8(11)]);
            }
            _ => return Err(self.unsupported(format!("op {}", op.name()))),
        }
        Ok(d)
    }

    /// A binary op on vectors of `dt`, into `into` if given (which may be `a`).
    pub(super) fn binary_vector(
        &mut self,
        op: Op,
        dt: DType,
        w: usize,
        mut a: Val,
        mut b: Val,
        into: Option<VReg>,
    ) -> Result<VReg> {
        if op.is_commutative() && matches!(a, Val::M(_)) && !matches!(b, Val::M(_)) {
            std::mem::swap(&mut a, &mut b);
        }
        let exact = matches!(dt, DType::F32 | DType::I32 | DType::U32 | DType::Bool) || op.is_compare();
        let d = match into {
            Some(r) if exact => r,
            _ => self.f.reg(vec_size(w)),
        };
        let a = self.reg(a, dt, w)?;
        let float = dt.is_float();
        let plain = match (op, dt) {
            (Op::Add | Op::Or | Op::Max, DType::Bool) => Some(V3::Or),
            (Op::Mul | Op::And | Op::Min, DType::Bool) => Some(V3::And),
            (Op::CmpNe, DType::Bool) => Some(V3::Xor),
            (Op::CmpLt, DType::Bool) => Some(V3::AndNot),
            (Op::Add, _) => Some(if float { V3::AddPs } else { V3::Add }),
            (Op::Sub, _) => Some(if float { V3::SubPs } else { V3::Sub }),
            (Op::Mul, _) => Some(if float { V3::MulPs } else { V3::Mul }),
            (Op::Div, _) if float => Some(V3::DivPs),
            (Op::And, _) => Some(V3::And),
            (Op::Or, _) => Some(V3::Or),
            (Op::Xor, _) => Some(V3::Xor),
            (Op::Max, _) if !float => Some(if dt.is_signed() { V3::MaxS } else { V3::MaxU }),
            (Op::Min, _) if !float => Some(if dt.is_signed() { V3::MinS } else { V3::MinU }),
            _ => None,
        };
        if let Some(v) = plain {
            self.v3(v, w, d, a, b);
        } else {
            match op {
                Op::Max | Op::Min => {
                    // the instruction max(b, a) gives a if either is NaN, so b's own NaN must be put back. An
                    // accumulator is always `a`, so that the comparison does not depend on the step before
                    let v = if op == Op::Max { V3::MaxPs } else { V3::MinPs };
                    let b = self.reg(b, dt, w)?;
                    if w == 16 {
                        let size = vec_size(w);
                        self.unordered_to_k1(b);
                        self.v3(v, w, d, b, Val::R(a));
                        let ops = [Opnd::R(d, size), Opnd::R(b, size)];
                        self.f.emit(table::copy(w), &ops, 1, !0, 1).masked = true;
                        return Ok(self.into(into, d, w));
                    }
                    let t = self.f.reg(vec_size(w));
                    let nan = self.compare_floats(cmp::UNORDERED, w, b, Val::R(b));
                    self.v3(v, w, t, b, Val::R(a));
                    let r = self.blend(nan, Val::R(b), t, w);
                    return Ok(self.into(into, r, w));
                }
                Op::Shl | Op::Shr => {
                    let (n, mask) = (self.reg(b, dt, w)?, self.lanes_of(dt.bits() - 1, w));
                    let c = self.f.reg(vec_size(w));
                    self.v3(V3::And, w, c, n, mask);
                    let v = match op {
                        Op::Shl => V3::Shl,
                        _ if dt.is_signed() => V3::Sar,
                        _ => V3::Shr,
                    };
                    self.v3(v, w, d, a, Val::R(c));
                }
                Op::CmpLt | Op::CmpEq | Op::CmpNe => return self.compare_vector(op, dt, w, a, b),
                _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
            }
        }
        let rounds = !matches!(op, Op::Max | Op::Min | Op::And | Op::Or | Op::Xor | Op::Shr) && !op.is_compare();
        let r = if rounds { self.narrow_to(dt, w, d) } else { d };
        Ok(self.into(into, r, w))
    }

    fn into(&mut self, into: Option<VReg>, r: VReg, w: usize) -> VReg {
        match into {
            Some(d) if d != r => {
                let size = vec_size(w);
                self.f.copy(table::copy(w), Opnd::R(d, size), Opnd::R(r, size));
                d
            }
            _ => r,
        }
    }

    fn compare_vector(&mut self, op: Op, dt: DType, w: usize, a: VReg, b: Val) -> Result<VReg> {
        if dt.is_float() {
            let pred = match op {
                Op::CmpLt => cmp::LT,
                Op::CmpEq => cmp::EQ,
                _ => cmp::NE,
            };
            return Ok(self.compare_floats(pred, w, a, b));
        }
        if op != Op::CmpLt {
            let m = self.compare_ints(true, w, a, b);
            return if op == Op::CmpEq { Ok(m) } else { self.not(w, m) };
        }
        let b = self.reg(b, dt, w)?;
        if dt != DType::U32 {
            return Ok(self.compare_ints(false, w, b, Val::R(a)));
        }
        let sign = self.lanes_of(1 << 31, w);
        let (x, y) = (self.f.reg(vec_size(w)), self.f.reg(vec_size(w)));
        self.v3(V3::Xor, w, x, a, sign);
        self.v3(V3::Xor, w, y, b, sign);
        Ok(self.compare_ints(false, w, y, Val::R(x)))
    }

    pub(super) fn not(&mut self, w: usize, m: VReg) -> Result<VReg> {
        let (d, ones) = (self.f.reg(vec_size(w)), self.lanes_of(u32::MAX, w));
        self.v3(V3::Xor, w, d, m, ones);
        Ok(d)
    }

    /// `a * b + c`.
    fn mul_add(&mut self, dt: DType, w: usize, a: Val, b: Val, c: Val) -> Result<VReg> {
        if dt != DType::F32 {
            let p = self.binary_vector(Op::Mul, dt, w, a, b, None)?;
            return self.binary_vector(Op::Add, dt, w, Val::R(p), c, None);
        }
        let d = self.f.reg(vec_size(w));
        let (a, b) = if matches!(a, Val::M(_)) { (b, a) } else { (a, b) };
        let a = self.reg(a, dt, w)?;
        if let (Val::M(_), Val::R(_)) = (c, b) {
            self.move_to(d, Val::R(a), dt, w);
            let (b, c) = (self.opnd(b, w), self.opnd(c, w));
            self.f.update(table::v3(V3::Fma213, w), &[Opnd::R(d, vec_size(w)), b, c]);
        } else {
            self.move_to(d, c, dt, w);
            self.fma_vector(w, d, a, b);
        }
        Ok(d)
    }

    /// `acc += a * b` for f32.
    pub(super) fn fma_vector(&mut self, w: usize, acc: VReg, a: VReg, b: Val) {
        let (size, b) = (vec_size(w), self.opnd(b, w));
        self.f.update(table::v3(V3::Fma231, w), &[Opnd::R(acc, size), Opnd::R(a, size), b]);
    }

    /// Broadcasts a scalar to all lanes.
    pub(super) fn splat(&mut self, s: VReg, dt: DType, w: usize) -> VReg {
        if wide(dt) {
            return self.splat_wide(s, dt, w);
        }
        let (d, size) = (self.f.reg(vec_size(w)), vec_size(w));
        let x = if dt.is_float() {
            s
        } else {
            let mut s = s;
            if dt == DType::Bool {
                let n = self.f.reg(Size::Q);
                self.f.copy(Code::Mov_r64_rm64, Opnd::R(n, Size::Q), Opnd::R(s, Size::Q));
                self.f.update(Code::Neg_rm32, &[Opnd::R(n, Size::D)]);
                s = n;
            }
            if w == 16 {
                let code = Code::EVEX_Vpbroadcastd_zmm_k1z_r32;
                self.f.emit(code, &[Opnd::R(d, size), Opnd::R(s, Size::D)], 1, !1, 9);
                return d;
            }
            let x = self.f.reg(Size::X);
            self.f.def(Code::VEX_Vmovd_xmm_rm32, &[Opnd::R(x, Size::X), Opnd::R(s, Size::D)]);
            x
        };
        let code = match w {
            16 => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
            8 => Code::VEX_Vpbroadcastd_ymm_xmmm32,
            _ => Code::VEX_Vpbroadcastd_xmm_xmmm32,
        };
        self.f.def(code, &[Opnd::R(d, size), Opnd::R(x, Size::X)]);
        d
    }

    /// Builds a vector from scalars that `lane` computes one by one.
    pub(super) fn pack(
        &mut self,
        dt: DType,
        w: usize,
        mut lane: impl FnMut(&mut Self, usize) -> Result<Val>,
    ) -> Result<Val> {
        if wide(dt) {
            return self.pack_wide(dt, w, lane);
        }
        let mut whole: Option<VReg> = None;
        for q in 0..w / 4 {
            let mut quad = None;
            for i in 0..4 {
                let v = lane(self, q * 4 + i)?;
                quad = Some(self.insert_lane(quad, v, dt, i as u8)?);
            }
            let quad = quad.expect("four lanes");
            whole = Some(match (whole, w) {
                (None, _) => quad,
                (Some(x), 8) => {
                    let d = self.f.reg(Size::Y);
                    let ops = [Opnd::R(d, Size::Y), Opnd::R(x, Size::Y), Opnd::R(quad, Size::X), Opnd::I8(1)];
                    self.f.def(Code::VEX_Vinsertf128_ymm_ymm_xmmm128_imm8, &ops);
                    d
                }
                (Some(x), _) => {
                    let d = self.f.reg(Size::Z);
                    let ops = [Opnd::R(d, Size::Z), Opnd::R(x, Size::Z), Opnd::R(quad, Size::X), Opnd::I8(q as u8)];
                    self.f.def(Code::EVEX_Vinsertf32x4_zmm_k1z_zmm_xmmm128_imm8, &ops);
                    d
                }
            });
        }
        let v = whole.expect("lanes");
        if dt != DType::Bool {
            return Ok(Val::R(v));
        }
        let (zero, d) = (self.lanes_of(0, w), self.f.reg(vec_size(w)));
        let zero = self.reg(zero, dt, w)?;
        self.v3(V3::Sub, w, d, zero, Val::R(v));
        Ok(Val::R(d))
    }

    fn insert_lane(&mut self, quad: Option<VReg>, v: Val, dt: DType, i: u8) -> Result<VReg> {
        let d = self.f.reg(Size::X);
        let float = dt.is_float();
        let v = match v {
            Val::I(_) => Val::R(self.reg(v, dt, 1)?),
            v => v,
        };
        let src = match v {
            Val::R(r) => Opnd::R(r, if float { Size::X } else { Size::D }),
            v => self.opnd(v, 4),
        };
        let x = |r| Opnd::R(r, Size::X);
        match (quad, float) {
            (None, true) => match v {
                Val::R(r) => return Ok(r),
                _ => self.f.def(Code::VEX_Vmovss_xmm_m32, &[x(d), src]),
            },
            (None, false) => self.f.def(Code::VEX_Vmovd_xmm_rm32, &[x(d), src]),
            (Some(q), true) => {
                self.f.def(Code::VEX_Vinsertps_xmm_xmm_xmmm32_imm8, &[x(d), x(q), src, Opnd::I8(i << 4)]);
            }
            (Some(q), false) => {
                self.f.def(Code::VEX_Vpinsrd_xmm_xmm_rm32_imm8, &[x(d), x(q), src, Opnd::I8(i)]);
            }
        }
        Ok(d)
    }

    /// Extracts lane `i` of a part as a scalar.
    pub(super) fn extract(&mut self, u: UOp, pt: &Point, v: Val, (off, w): (usize, usize), i: usize) -> Result<Val> {
        let dt = self.g.dtype(u);
        let v = self.reg(v, dt, w)?;
        if wide(dt) {
            return Ok(Val::R(self.extract_wide(v, dt, w, i)));
        }
        let key = (u, self.tiles[u.0 as usize].elem(pt), (off + i / 4 * 4) as u16, 4);
        let quad = match self.cached(key).filter(|_| w > 4) {
            Some(Val::R(r)) => r,
            _ => {
                let q = self.quad(v, w, i / 4);
                if w > 4 {
                    self.remember(key, Val::R(q));
                }
                q
            }
        };
        Ok(Val::R(self.lane_of_quad(quad, dt, (i % 4) as u8)))
    }

    /// The `q`-th group of four lanes of a register, as an xmm.
    pub(super) fn quad(&mut self, v: VReg, w: usize, q: usize) -> VReg {
        if w == 4 || w == 8 && q == 0 {
            return v;
        }
        let d = self.f.reg(Size::X);
        let ops = [Opnd::R(d, Size::X), Opnd::R(v, vec_size(w)), Opnd::I8(q as u8)];
        let code = match w {
            16 => Code::EVEX_Vextractf32x4_xmmm128_k1z_zmm_imm8,
            _ => Code::VEX_Vextractf128_xmmm128_ymm_imm8,
        };
        self.f.emit(code, &ops, 1, !1, 9);
        d
    }

    fn lane_of_quad(&mut self, quad: VReg, dt: DType, i: u8) -> VReg {
        if dt.is_float() {
            if i == 0 {
                return quad;
            }
            let d = self.f.reg(Size::X);
            let ops = [Opnd::R(d, Size::X), Opnd::R(quad, Size::X), Opnd::I8(i)];
            self.f.def(Code::VEX_Vpermilps_xmm_xmmm128_imm8, &ops);
            return d;
        }
        let d = self.f.reg(Size::Q);
        let ops = [Opnd::R(d, Size::D), Opnd::R(quad, Size::X), Opnd::I8(i)];
        self.f.emit(Code::VEX_Vpextrd_rm32_xmm_imm8, &ops, 1, !1, 9);
        if dt == DType::Bool {
            self.f.update(Code::And_rm32_imm32, &[Opnd::R(d, Size::D), Opnd::I32(1)]);
        }
        d
    }
}

/// Does the operation have a vector form? Otherwise the lanes are computed one by one.
fn vectorised(op: Op, from: DType, to: DType) -> bool {
    match op {
        Op::Idiv | Op::Imod => false,
        Op::Cast => !(from.is_float() && to == DType::U32),
        Op::Bitcast => from.is_float() == to.is_float() || from.size() == 4,
        _ => true,
    }
}
