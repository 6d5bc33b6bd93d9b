//! Vectors of 64-bit lanes: f64, i64 and u64. Moves, masked moves, selects and bitwise operations treat a vector of `w`
//! such lanes as one of `2 w` words, so that they share the code for 32-bit lanes; arithmetic and conversions are here.
//! A mask is computed in 32-bit lanes, as everywhere, and widened where it is used.

use super::table::{self, V3, W3, cmp};
use super::{Lower, Opnd};
use crate::render::linear::lower::{Point, Val, vec_size, wide};
use crate::render::linear::mir::{Size, VReg};
use crate::target::Isa;
use crate::uop::{Op, ReduceOp, UOp};
use crate::{DType, Result};
use iced_x86::{Code, Register};

/// Has the operation no vector form, so that its lanes are computed one by one?
pub(super) fn is_lanewise(isa: Isa, op: Op, from: DType, to: DType) -> bool {
    let (float, whole) = (|dt: DType| dt.is_float(), |dt: DType| wide(dt) && !dt.is_float());
    match op {
        Op::Idiv | Op::Imod => true,
        // AVX2 converts signed 32-bit integers only
        Op::Cast if float(from) != float(to) && isa < Isa::Avx512 => {
            whole(from) || whole(to) || from == DType::U32 || to == DType::U32
        }
        _ => false,
    }
}

/// A vector register of `w` 64-bit lanes.
fn v(r: VReg, w: usize) -> Opnd {
    Opnd::R(r, vec_size(2 * w))
}

/// A vector register of `w` 32-bit lanes.
fn half(r: VReg, w: usize) -> Opnd {
    Opnd::R(r, vec_size(w))
}

impl Lower<'_> {
    /// An elementwise operation whose result or operands are 64 bits wide, at `w` lanes of the result.
    pub(super) fn alu_wide(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let g = self.g;
        let (op, dt, src) = (g.op(u), g.dtype(u), g.srcs(u));
        let from = g.dtype(*src.last().expect("an operand"));
        if 2 * w > self.max_w {
            let halves = [off, off + w / 2].map(|off| self.alu_wide(u, pt, off, w / 2));
            let [low, high] = halves;
            let (low, high) = (self.reg(low?, dt, w / 2)?, self.reg(high?, dt, w / 2)?);
            return Ok(Val::R(self.join(low, high, w)));
        }
        if is_lanewise(self.m.isa, op, from, dt) {
            return self.pack(dt, w, |l, i| l.alu_scalar(u, pt, off + i));
        }
        if op == Op::Where {
            let mask = self.lane_mask(src[0], dt, pt, off, w)?;
            let (x, y) = (self.demand(src[1], pt, off, w)?, self.demand_reg(src[2], pt, off, w)?);
            return Ok(Val::R(self.blend(mask, x, y, 2 * w)));
        }
        let a = self.demand(src[0], pt, off, w)?;
        Ok(Val::R(match op {
            Op::Cast => self.cast_wide(from, dt, w, a)?,
            Op::Bitcast => self.reg(a, from, w)?,
            Op::MulAdd => {
                let (b, c) = (self.demand(src[1], pt, off, w)?, self.demand(src[2], pt, off, w)?);
                if !dt.is_float() {
                    let product = self.binary_wide(Op::Mul, dt, w, a, b, None)?;
                    return Ok(Val::R(self.binary_wide(Op::Add, dt, w, Val::R(product), c, None)?));
                }
                let d = self.fresh(dt, w);
                let (a, b) = if matches!(a, Val::M(_)) { (b, a) } else { (a, b) };
                let a = self.reg(a, dt, w)?;
                if let (Val::M(_), Val::R(_)) = (c, b) {
                    self.move_to(d, Val::R(a), dt, w);
                    let (b, c) = (self.opnd(b, 2 * w), self.opnd(c, 2 * w));
                    self.f.update(table::w3(W3::Fma213, 2 * w), &[v(d, w), b, c]);
                } else {
                    self.move_to(d, c, dt, w);
                    self.w3(W3::Fma231, w, d, a, b);
                }
                d
            }
            op if op.is_unary() => self.unary_wide(op, dt, w, a)?,
            Op::Shl | Op::Shr if g.const_int(src[1]).is_some_and(|n| (0..64).contains(&n)) => {
                let n = g.const_int(src[1]).unwrap_or(0) as u8;
                let a = self.reg(a, dt, w)?;
                let shifted = self.shift_wide(op == Op::Shl, w, a, n);
                match op == Op::Shr && dt.is_signed() {
                    true => {
                        let sign = self.quads(1 << (63 - n), w);
                        self.extend_sign(w, shifted, sign)?
                    }
                    false => shifted,
                }
            }
            _ => {
                let b = self.demand_mem(src[1], u, pt, off, w)?;
                self.binary_wide(op, from, w, a, b, None)?
            }
        }))
    }

    /// A constant in each of `w` 64-bit lanes.
    fn quads(&mut self, bits: u64, w: usize) -> Val {
        self.pool(&bits.to_le_bytes().repeat(w))
    }

    /// Emits a three-operand operation on 64-bit lanes; with a multiply-add, `d` is the third factor or summand.
    pub(super) fn w3(&mut self, op: W3, w: usize, d: VReg, a: VReg, b: Val) {
        let ops = [v(d, w), v(a, w), self.opnd(b, 2 * w)];
        match op {
            W3::Fma231 | W3::Fma213 => self.f.update(table::w3(op, 2 * w), &ops),
            _ => self.f.def(table::w3(op, 2 * w), &ops),
        }
    }

    fn shift_wide(&mut self, left: bool, w: usize, a: VReg, n: u8) -> VReg {
        let d = self.f.reg(vec_size(2 * w));
        self.f.emit(table::wide_shift_imm(left, 2 * w), &[v(d, w), v(a, w), Opnd::I8(n)], 1, !1, 9);
        d
    }

    /// Completes an arithmetic shift: after a logical one, the bits above `sign` (where the sign bit has come to) become
    /// copies of it.
    fn extend_sign(&mut self, w: usize, shifted: VReg, sign: Val) -> Result<VReg> {
        let sign = self.reg(sign, DType::I64, w)?;
        let [t, d] = [0; 2].map(|_| self.f.reg(vec_size(2 * w)));
        self.v3(V3::Xor, 2 * w, t, shifted, Val::R(sign));
        self.w3(W3::Sub, w, d, t, Val::R(sign));
        Ok(d)
    }

    /// The condition `gate` as a mask over lanes of `dt`.
    pub(super) fn lane_mask(&mut self, gate: UOp, dt: DType, pt: &Point, off: usize, w: usize) -> Result<VReg> {
        let mask = self.demand_reg(gate, pt, off, w)?;
        Ok(if wide(dt) { self.widen(mask, true, w) } else { mask })
    }

    /// Extends 32-bit lanes to 64 bits.
    fn widen(&mut self, a: VReg, signed: bool, w: usize) -> VReg {
        let d = self.f.reg(vec_size(2 * w));
        let code = match (w, signed) {
            (8, true) => Code::EVEX_Vpmovsxdq_zmm_k1z_ymmm256,
            (8, false) => Code::EVEX_Vpmovzxdq_zmm_k1z_ymmm256,
            (_, true) => Code::VEX_Vpmovsxdq_ymm_xmmm128,
            (_, false) => Code::VEX_Vpmovzxdq_ymm_xmmm128,
        };
        self.f.def(code, &[v(d, w), half(a, w)]);
        d
    }

    /// The low 32 bits of each lane.
    fn low_words(&mut self, a: VReg, w: usize) -> VReg {
        let d = self.f.reg(vec_size(w));
        if w == 8 {
            self.f.emit(Code::EVEX_Vpmovqd_ymmm256_k1z_zmm, &[half(d, w), v(a, w)], 1, !1, 9);
            return d;
        }
        let high = self.subvector(a, 8, 4, 4);
        let ops = [half(d, w), half(a, w), half(high, w), Opnd::I8(0x88)];
        self.f.def(Code::VEX_Vshufps_xmm_xmm_xmmm128_imm8, &ops);
        d
    }

    /// Lanes `at..at + w` of a vector of `of` 32-bit lanes.
    pub(super) fn subvector(&mut self, a: VReg, of: usize, at: usize, w: usize) -> VReg {
        if w == 4 {
            return self.quad(a, of, at / 4);
        }
        // the low half is copied too: instructions for shorter vectors reach only half of the registers
        let d = self.f.reg(Size::Y);
        let ops = [Opnd::R(d, Size::Y), Opnd::R(a, Size::Z), Opnd::I8((at / 8) as u8)];
        self.f.emit(Code::EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8, &ops, 1, !1, 9);
        d
    }

    /// One vector of two halves, of `w` 32-bit lanes together.
    fn join(&mut self, low: VReg, high: VReg, w: usize) -> VReg {
        let d = self.f.reg(vec_size(w));
        let code = match w {
            16 => Code::EVEX_Vinsertf64x4_zmm_k1z_zmm_ymmm256_imm8,
            _ => Code::VEX_Vinsertf128_ymm_ymm_xmmm128_imm8,
        };
        self.f.def(code, &[half(d, w), half(low, w), half(high, w / 2), Opnd::I8(1)]);
        d
    }

    fn unary_wide(&mut self, op: Op, dt: DType, w: usize, a: Val) -> Result<VReg> {
        let d = self.fresh(dt, w);
        match op {
            Op::Neg if dt.is_float() => {
                let (a, sign) = (self.reg(a, dt, w)?, self.quads(1 << 63, w));
                self.v3(V3::Xor, 2 * w, d, a, sign);
            }
            Op::Neg => {
                let zero = self.quads(0, w);
                let zero = self.reg(zero, dt, w)?;
                self.w3(W3::Sub, w, d, zero, a);
            }
            Op::Sqrt => {
                let a = self.opnd(a, 2 * w);
                let wide = Code::EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er;
                self.f.def(if w == 8 { wide } else { Code::VEX_Vsqrtpd_ymm_ymmm256 }, &[v(d, w), a]);
            }
            Op::Recip => {
                let one = self.quads(1f64.to_bits(), w);
                let one = self.reg(one, dt, w)?;
                self.w3(W3::DivPd, w, d, one, a);
            }
            Op::Trunc => {
                let a = self.opnd(a, 2 * w);
                let wide = Code::EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae;
                let code = if w == 8 { wide } else { Code::VEX_Vroundpd_ymm_ymmm256_imm8 };
                self.f.def(code, &[v(d, w), a, Opnd::I8(11)]);
            }
            _ => return Err(self.unsupported(format!("op {}", op.name()))),
        }
        Ok(d)
    }

    /// A binary operation on `w` lanes of `dt` (two or more), into `into` if given (which may be `a`). A comparison
    /// gives a mask of 32-bit lanes.
    pub(super) fn binary_wide(
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
        let a = self.reg(a, dt, w)?;
        let float = dt.is_float();
        let plain = match op {
            Op::Add => Some(if float { W3::AddPd } else { W3::Add }),
            Op::Sub => Some(if float { W3::SubPd } else { W3::Sub }),
            Op::Mul if float => Some(W3::MulPd),
            Op::Div if float => Some(W3::DivPd),
            _ => None,
        };
        let bitwise = match op {
            Op::And => Some(V3::And),
            Op::Or => Some(V3::Or),
            Op::Xor => Some(V3::Xor),
            _ => None,
        };
        let d = into.unwrap_or_else(|| self.fresh(dt, w));
        if let Some(plain) = plain {
            self.w3(plain, w, d, a, b);
            return Ok(d);
        }
        if let Some(bitwise) = bitwise {
            self.v3(bitwise, 2 * w, d, a, b);
            return Ok(d);
        }
        let r = match op {
            Op::Max | Op::Min if float => {
                // the instruction max(b, a) gives a if either is NaN, so b's own NaN must be put back
                let (b, t) = (self.reg(b, dt, w)?, self.fresh(dt, w));
                self.w3(if op == Op::Max { W3::MaxPd } else { W3::MinPd }, w, t, b, Val::R(a));
                let nan = self.compare_doubles(cmp::UNORDERED, w, b, Val::R(b));
                self.blend(nan, Val::R(b), t, 2 * w)
            }
            Op::Max | Op::Min => {
                let b = self.reg(b, dt, w)?;
                let less = self.less_wide(dt, w, a, b);
                let (x, y) = if op == Op::Max { (b, a) } else { (a, b) };
                self.blend(less, Val::R(x), y, 2 * w)
            }
            Op::Mul => {
                let b = self.reg(b, dt, w)?;
                self.multiply_wide(w, a, b)
            }
            Op::Shl | Op::Shr => {
                let (n, mask, c) = (self.reg(b, dt, w)?, self.quads(63, w), self.fresh(dt, w));
                self.v3(V3::And, 2 * w, c, n, mask);
                let t = self.fresh(dt, w);
                self.w3(if op == Op::Shl { W3::Shl } else { W3::Shr }, w, t, a, Val::R(c));
                if op == Op::Shr && dt.is_signed() {
                    let (top, sign) = (self.quads(1 << 63, w), self.fresh(dt, w));
                    let top = self.reg(top, dt, w)?;
                    self.w3(W3::Shr, w, sign, top, Val::R(c));
                    self.extend_sign(w, t, Val::R(sign))?
                } else {
                    t
                }
            }
            Op::CmpLt | Op::CmpEq | Op::CmpNe => return self.compare_wide(op, dt, w, a, b),
            _ => return Err(self.unsupported(format!("op {} on {dt}", op.name()))),
        };
        if into.is_some() {
            self.move_to(d, Val::R(r), dt, w);
            return Ok(d);
        }
        Ok(r)
    }

    /// The low 64 bits of products of 64-bit integers: with 32-bit digits, `low low + (low high + high low) 2^32`.
    fn multiply_wide(&mut self, w: usize, a: VReg, b: VReg) -> VReg {
        let (high_a, high_b) = (self.shift_wide(false, w, a, 32), self.shift_wide(false, w, b, 32));
        let [p, q, s, low, d] = [0; 5].map(|_| self.f.reg(vec_size(2 * w)));
        self.w3(W3::MulLow, w, p, high_a, Val::R(b));
        self.w3(W3::MulLow, w, q, a, Val::R(high_b));
        self.w3(W3::Add, w, s, p, Val::R(q));
        let s = self.shift_wide(true, w, s, 32);
        self.w3(W3::MulLow, w, low, a, Val::R(b));
        self.w3(W3::Add, w, d, low, Val::R(s));
        d
    }

    /// Compares, giving a mask of 32-bit lanes.
    fn compare_wide(&mut self, op: Op, dt: DType, w: usize, a: VReg, b: Val) -> Result<VReg> {
        let mask = if dt.is_float() {
            let how = match op {
                Op::CmpLt => cmp::LT,
                Op::CmpEq => cmp::EQ,
                _ => cmp::NE,
            };
            self.compare_doubles(how, w, a, b)
        } else {
            let b = self.reg(b, dt, w)?;
            match op {
                Op::CmpLt => self.less_wide(dt, w, a, b),
                _ => self.compare_quads(true, w, a, b),
            }
        };
        let narrow = self.low_words(mask, w);
        if op == Op::CmpNe && !dt.is_float() { self.not(w, narrow) } else { Ok(narrow) }
    }

    /// Compares f64, giving a mask of 64-bit lanes.
    fn compare_doubles(&mut self, how: u8, w: usize, a: VReg, b: Val) -> VReg {
        let (d, b) = (self.f.reg(vec_size(2 * w)), self.opnd(b, 2 * w));
        match w {
            8 => {
                let code = Code::EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae;
                self.f.emit(code, &[Opnd::P(Register::K1), v(a, w), b, Opnd::I8(how)], 1, !1, 2);
                self.f.def(Code::EVEX_Vpmovm2q_zmm_kr, &[v(d, w), Opnd::P(Register::K1)]);
            }
            4 => self.f.def(Code::VEX_Vcmppd_ymm_ymm_ymmm256_imm8, &[v(d, w), v(a, w), b, Opnd::I8(how)]),
            _ => self.f.def(Code::VEX_Vcmppd_xmm_xmm_xmmm128_imm8, &[v(d, w), v(a, w), b, Opnd::I8(how)]),
        }
        d
    }

    /// Compares 64-bit integers, `a == b` or signed `a > b`, giving a mask of 64-bit lanes.
    fn compare_quads(&mut self, equal: bool, w: usize, a: VReg, b: VReg) -> VReg {
        let d = self.f.reg(vec_size(2 * w));
        let code = match (w, equal) {
            (8, true) => Code::EVEX_Vpcmpeqq_kr_k1_zmm_zmmm512b64,
            (8, false) => Code::EVEX_Vpcmpgtq_kr_k1_zmm_zmmm512b64,
            (4, true) => Code::VEX_Vpcmpeqq_ymm_ymm_ymmm256,
            (4, false) => Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256,
            (_, true) => Code::VEX_Vpcmpeqq_xmm_xmm_xmmm128,
            (_, false) => Code::VEX_Vpcmpgtq_xmm_xmm_xmmm128,
        };
        if w == 8 {
            self.f.emit(code, &[Opnd::P(Register::K1), v(a, w), v(b, w)], 1, !1, 2);
            self.f.def(Code::EVEX_Vpmovm2q_zmm_kr, &[v(d, w), Opnd::P(Register::K1)]);
        } else {
            self.f.def(code, &[v(d, w), v(a, w), v(b, w)]);
        }
        d
    }

    /// `a < b` of 64-bit integers, as a mask of 64-bit lanes.
    fn less_wide(&mut self, dt: DType, w: usize, a: VReg, b: VReg) -> VReg {
        if dt.is_signed() {
            return self.compare_quads(false, w, b, a);
        }
        // with the highest bit flipped, unsigned numbers are in the order of signed ones
        let sign = self.quads(1 << 63, w);
        let [x, y] = [a, b].map(|r| {
            let d = self.f.reg(vec_size(2 * w));
            self.v3(V3::Xor, 2 * w, d, r, sign);
            d
        });
        self.compare_quads(false, w, y, x)
    }

    fn cast_wide(&mut self, from: DType, to: DType, w: usize, a: Val) -> Result<VReg> {
        if to == DType::Bool {
            let a = self.reg(a, from, w)?;
            let zero = self.quads(0, w);
            return self.compare_wide(Op::CmpNe, from, w, a, zero);
        }
        let a = self.reg(a, from, w)?;
        if from == DType::Bool {
            let one = if to.is_float() { 1f64.to_bits() } else { 1 };
            let (mask, one, d) = (self.widen(a, true, w), self.quads(one, w), self.fresh(to, w));
            self.v3(V3::And, 2 * w, d, mask, one);
            return Ok(d);
        }
        Ok(match (from.is_float(), to.is_float(), wide(from), wide(to)) {
            (false, false, true, true) => a,
            (false, false, true, false) => {
                let low = self.low_words(a, w);
                self.narrow_to(to, w, low)
            }
            (false, false, false, _) => self.widen(a, from.is_signed(), w),
            (true, true, false, _) => self.to_doubles(a, w),
            (true, true, true, _) => {
                let d = self.f.reg(vec_size(w));
                let wide = Code::EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er;
                self.f.def(if w == 8 { wide } else { Code::VEX_Vcvtpd2ps_xmm_ymmm256 }, &[half(d, w), v(a, w)]);
                self.narrow_to(to, w, d)
            }
            (false, true, false, _) => {
                let d = self.fresh(to, w);
                let code = match (w, from == DType::U32) {
                    (8, true) => Code::EVEX_Vcvtudq2pd_zmm_k1z_ymmm256b32_er,
                    (_, true) => Code::EVEX_Vcvtudq2pd_ymm_k1z_xmmm128b32,
                    (8, false) => Code::EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er,
                    (_, false) => Code::VEX_Vcvtdq2pd_ymm_xmmm128,
                };
                self.f.def(code, &[v(d, w), half(a, w)]);
                d
            }
            (false, true, true, true) => {
                let d = self.fresh(to, w);
                let code = match (w, from.is_signed()) {
                    (8, true) => Code::EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er,
                    (8, false) => Code::EVEX_Vcvtuqq2pd_zmm_k1z_zmmm512b64_er,
                    (_, true) => Code::EVEX_Vcvtqq2pd_ymm_k1z_ymmm256b64,
                    (_, false) => Code::EVEX_Vcvtuqq2pd_ymm_k1z_ymmm256b64,
                };
                self.f.def(code, &[v(d, w), v(a, w)]);
                d
            }
            (false, true, true, false) => {
                let d = self.f.reg(vec_size(w));
                let code = match (w, from.is_signed()) {
                    (8, true) => Code::EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er,
                    (8, false) => Code::EVEX_Vcvtuqq2ps_ymm_k1z_zmmm512b64_er,
                    (_, true) => Code::EVEX_Vcvtqq2ps_xmm_k1z_ymmm256b64,
                    (_, false) => Code::EVEX_Vcvtuqq2ps_xmm_k1z_ymmm256b64,
                };
                self.f.def(code, &[half(d, w), v(a, w)]);
                self.narrow_to(to, w, d)
            }
            (true, false, is_wide, _) => {
                let doubles = if is_wide { a } else { self.to_doubles(a, w) };
                self.doubles_to_int(to, w, doubles)
            }
        })
    }

    fn to_doubles(&mut self, a: VReg, w: usize) -> VReg {
        let d = self.f.reg(vec_size(2 * w));
        let wide = Code::EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae;
        self.f.def(if w == 8 { wide } else { Code::VEX_Vcvtps2pd_ymm_xmmm128 }, &[v(d, w), half(a, w)]);
        d
    }

    /// Truncates and saturates; NaN gives 0.
    fn doubles_to_int(&mut self, to: DType, w: usize, a: VReg) -> VReg {
        let ordered = self.compare_doubles(cmp::ORDERED, w, a, Val::R(a));
        let number = self.f.reg(vec_size(2 * w));
        self.v3(V3::And, 2 * w, number, a, Val::R(ordered));
        let clamp = |l: &mut Self, op: W3, a: VReg, limit: f64| {
            let (limit, d) = (l.quads(limit.to_bits(), w), l.f.reg(vec_size(2 * w)));
            l.w3(op, w, d, a, limit);
            d
        };
        let (lo, hi) = to.int_range().unwrap_or_default();
        match to {
            DType::I64 => {
                // an out-of-range value converts to the least integer: flip its bits to the largest
                let limit = self.quads(9_223_372_036_854_775_808f64.to_bits(), w);
                let large = self.compare_doubles(cmp::GE, w, number, limit);
                let [t, d] = [0; 2].map(|_| self.f.reg(vec_size(2 * w)));
                let wide = Code::EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae;
                let code = if w == 8 { wide } else { Code::EVEX_Vcvttpd2qq_ymm_k1z_ymmm256b64 };
                self.f.def(code, &[v(t, w), v(number, w)]);
                self.v3(V3::Xor, 2 * w, d, t, Val::R(large));
                d
            }
            DType::U64 => {
                // an out-of-range value converts to the largest integer
                let positive = clamp(self, W3::MaxPd, number, 0.0);
                let d = self.f.reg(vec_size(2 * w));
                let wide = Code::EVEX_Vcvttpd2uqq_zmm_k1z_zmmm512b64_sae;
                let code = if w == 8 { wide } else { Code::EVEX_Vcvttpd2uqq_ymm_k1z_ymmm256b64 };
                self.f.def(code, &[v(d, w), v(positive, w)]);
                d
            }
            _ => {
                let above = clamp(self, W3::MaxPd, number, lo as f64);
                let within = clamp(self, W3::MinPd, above, hi as f64);
                let d = self.f.reg(vec_size(w));
                let code = match (w, to == DType::U32) {
                    (8, true) => Code::EVEX_Vcvttpd2udq_ymm_k1z_zmmm512b64_sae,
                    (_, true) => Code::EVEX_Vcvttpd2udq_xmm_k1z_ymmm256b64,
                    (8, false) => Code::EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae,
                    (_, false) => Code::VEX_Vcvttpd2dq_xmm_ymmm256,
                };
                self.f.def(code, &[half(d, w), v(within, w)]);
                d
            }
        }
    }

    pub(super) fn splat_wide(&mut self, s: VReg, dt: DType, w: usize) -> VReg {
        let d = self.fresh(dt, w);
        let mut x = s;
        if !dt.is_float() {
            x = self.f.reg(Size::X);
            self.f.def(Code::VEX_Vmovq_xmm_rm64, &[Opnd::R(x, Size::X), Opnd::R(s, Size::Q)]);
        }
        let code = if w == 8 { Code::EVEX_Vpbroadcastq_zmm_k1z_xmmm64 } else { Code::VEX_Vpbroadcastq_ymm_xmmm64 };
        self.f.def(code, &[v(d, w), Opnd::R(x, Size::X)]);
        d
    }

    /// Builds a vector of 64-bit lanes from scalars that `lane` computes one by one.
    pub(super) fn pack_wide(
        &mut self,
        dt: DType,
        w: usize,
        mut lane: impl FnMut(&mut Self, usize) -> Result<Val>,
    ) -> Result<Val> {
        let x = |r| Opnd::R(r, Size::X);
        let mut pair = |l: &mut Self, at: usize| -> Result<VReg> {
            let [a, b] = [lane(l, at)?, lane(l, at + 1)?];
            let (a, b, d) = (l.reg(a, dt, 1)?, l.reg(b, dt, 1)?, l.f.reg(Size::X));
            if dt.is_float() {
                l.f.def(Code::VEX_Vunpcklpd_xmm_xmm_xmmm128, &[x(d), x(a), x(b)]);
            } else {
                let low = l.f.reg(Size::X);
                l.f.def(Code::VEX_Vmovq_xmm_rm64, &[x(low), Opnd::R(a, Size::Q)]);
                let ops = [x(d), x(low), Opnd::R(b, Size::Q), Opnd::I8(1)];
                l.f.def(Code::VEX_Vpinsrq_xmm_xmm_rm64_imm8, &ops);
            }
            Ok(d)
        };
        let mut fours = Vec::with_capacity(2);
        for at in (0..w).step_by(4) {
            let (low, high) = (pair(self, at)?, pair(self, at + 2)?);
            fours.push(self.join(low, high, 8));
        }
        Ok(Val::R(match *fours {
            [low, high] => self.join(low, high, 16),
            _ => fours[0],
        }))
    }

    /// Lane `i` of `w` as a scalar.
    pub(super) fn extract_wide(&mut self, a: VReg, dt: DType, w: usize, i: usize) -> VReg {
        let pair = self.quad(a, 2 * w, i / 2);
        let x = |r| Opnd::R(r, Size::X);
        if !dt.is_float() {
            let d = self.f.reg(Size::Q);
            let ops = [Opnd::R(d, Size::Q), x(pair), Opnd::I8((i % 2) as u8)];
            self.f.emit(Code::VEX_Vpextrq_rm64_xmm_imm8, &ops, 1, !1, 9);
            return d;
        }
        if i % 2 == 0 {
            return pair;
        }
        let d = self.f.reg(Size::X);
        self.f.def(Code::VEX_Vpermilpd_xmm_xmmm128_imm8, &[x(d), x(pair), Opnd::I8(1)]);
        d
    }

    pub(super) fn reduce_wide_lanes(&mut self, op: ReduceOp, dt: DType, w: usize, mut a: VReg) -> Result<Val> {
        if w == 8 {
            let [low, high] = [0, 8].map(|at| self.subvector(a, 16, at, 8));
            a = self.binary_wide(op.op(), dt, 4, Val::R(low), Val::R(high), None)?;
        }
        let high = self.subvector(a, 8, 4, 4);
        a = self.binary_wide(op.op(), dt, 2, Val::R(a), Val::R(high), None)?;
        let swapped = self.f.reg(Size::X);
        let ops = [Opnd::R(swapped, Size::X), Opnd::R(a, Size::X), Opnd::I8(1)];
        self.f.def(Code::VEX_Vpermilpd_xmm_xmmm128_imm8, &ops);
        a = self.binary_wide(op.op(), dt, 2, Val::R(a), Val::R(swapped), None)?;
        Ok(Val::R(if dt.is_float() { a } else { self.extract_wide(a, dt, 2, 0) }))
    }
}
