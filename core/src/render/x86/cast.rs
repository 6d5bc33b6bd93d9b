//! Conversions: float to int truncates and saturates with NaN giving 0, int to narrower int wraps, to bool is `!= 0`.

use super::Lower;
use super::Opnd;
use super::table::{ShiftImm, V2, V3, cmp};
use crate::dtype::Scalar;
use crate::render::linear::lower::{Val, vec_size, wide};
use crate::render::linear::mir::{Size, VReg};
use crate::uop::Op;
use crate::{DType, Result};
use iced_x86::Code;

fn x(r: VReg) -> Opnd {
    Opnd::R(r, Size::X)
}

fn d(r: VReg) -> Opnd {
    Opnd::R(r, Size::D)
}

fn q(r: VReg) -> Opnd {
    Opnd::R(r, Size::Q)
}

impl Lower<'_> {
    /// A conversion between types of 32-bit lanes.
    pub(super) fn cast_vector(&mut self, from: DType, to: DType, w: usize, a: Val) -> Result<Val> {
        if from == DType::Bool {
            let one = if to.is_float() { 1f32.to_bits() } else { 1 };
            let (a, one, r) = (self.reg(a, from, w)?, self.lanes_of(one, w), self.f.reg(vec_size(w)));
            self.v3(V3::And, w, r, a, one);
            return Ok(Val::R(r));
        }
        if to == DType::Bool {
            let (a, zero) = (self.reg(a, from, w)?, self.lanes_of(0, w));
            return Ok(Val::R(match from.is_float() {
                true => self.compare_floats(cmp::NE, w, a, zero),
                false => self.binary_vector(Op::CmpNe, from, w, Val::R(a), zero, None)?,
            }));
        }
        match (from.is_float(), to.is_float()) {
            (true, true) => {
                let a = self.reg(a, from, w)?;
                Ok(Val::R(if to == DType::F32 { a } else { self.narrow_to(to, w, a) }))
            }
            (false, false) => {
                let a = self.reg(a, from, w)?;
                Ok(Val::R(self.narrow_to(to, w, a)))
            }
            (false, true) => {
                let r = self.f.reg(vec_size(w));
                if from == DType::U32 {
                    // both 16-bit halves convert exactly, so that only the last addition rounds
                    let a = self.reg(a, from, w)?;
                    let t: [VReg; 5] = std::array::from_fn(|_| self.f.reg(vec_size(w)));
                    let (mask, scale) = (self.lanes_of(0xffff, w), self.lanes_of(65536f32.to_bits(), w));
                    self.v3(V3::And, w, t[0], a, mask);
                    self.shift(ShiftImm::Shr, w, t[1], a, 16);
                    self.v2(V2::IntToFloat, w, t[2], Val::R(t[0]));
                    self.v2(V2::IntToFloat, w, t[3], Val::R(t[1]));
                    self.v3(V3::MulPs, w, t[4], t[3], scale);
                    self.v3(V3::AddPs, w, r, t[4], Val::R(t[2]));
                } else {
                    self.v2(V2::IntToFloat, w, r, a);
                }
                Ok(Val::R(self.narrow_to(to, w, r)))
            }
            (true, false) => self.float_to_int_vector(to, w, a),
        }
    }

    fn float_to_int_vector(&mut self, to: DType, w: usize, a: Val) -> Result<Val> {
        let a = self.reg(a, DType::F32, w)?;
        let t: [VReg; 4] = std::array::from_fn(|_| self.f.reg(vec_size(w)));
        let ordered = self.compare_floats(cmp::ORDERED, w, a, Val::R(a));
        self.v3(V3::And, w, t[0], a, Val::R(ordered));
        let r = self.f.reg(vec_size(w));
        if to == DType::I32 {
            // an out-of-range value converts to the least integer: flip its bits to the largest
            let limit = self.lanes_of(2147483648f32.to_bits(), w);
            let large = self.compare_floats(cmp::GE, w, t[0], limit);
            self.v2(V2::FloatToInt, w, t[1], Val::R(t[0]));
            self.v3(V3::Xor, w, r, t[1], Val::R(large));
        } else {
            let (lo, hi) = to.int_range().unwrap_or_default();
            let (lo, hi) = (self.lanes_of((lo as f32).to_bits(), w), self.lanes_of((hi as f32).to_bits(), w));
            self.v3(V3::MaxPs, w, t[1], t[0], lo);
            self.v3(V3::MinPs, w, t[2], t[1], hi);
            self.v2(V2::FloatToInt, w, r, Val::R(t[2]));
        }
        Ok(Val::R(r))
    }

    pub(super) fn cast_scalar(&mut self, from: DType, to: DType, a: Val) -> Result<Val> {
        let a = self.reg(a, from, 1)?;
        if to == DType::Bool {
            let zero = self.constant(Scalar::from_i64(0, from), from, 1);
            return Ok(Val::R(self.binary_scalar(Op::CmpNe, from, Val::R(a), zero, None)?));
        }
        Ok(Val::R(match (from.is_float(), to.is_float()) {
            (true, true) => self.float_to_float(from, to, a),
            (false, false) => self.int_to_int(from, to, a),
            (false, true) => {
                let mid = if to == DType::F64 { DType::F64 } else { DType::F32 };
                let r = self.int_to_float(from, mid, a);
                self.narrow_scalar_to(to, r)
            }
            (true, false) => self.float_to_int(from, to, a)?,
        }))
    }

    fn float_to_float(&mut self, from: DType, to: DType, a: VReg) -> VReg {
        let r = self.f.reg(Size::X);
        match (from == DType::F64, to == DType::F64) {
            (true, true) => return a,
            (false, true) => {
                let zero = self.zero();
                self.f.def(Code::VEX_Vcvtss2sd_xmm_xmm_xmmm32, &[x(r), x(zero), x(a)]);
            }
            (true, false) => {
                let zero = self.zero();
                self.f.def(Code::VEX_Vcvtsd2ss_xmm_xmm_xmmm64, &[x(r), x(zero), x(a)]);
            }
            (false, false) => return if to == DType::F32 { a } else { self.narrow_scalar_to(to, a) },
        }
        self.narrow_scalar_to(to, r)
    }

    /// An xmm of zeros, as the first operand of conversions that copy their upper part from it.
    fn zero(&mut self) -> VReg {
        let z = self.f.reg(Size::X);
        self.f.emit(Code::VEX_Vxorps_xmm_xmm_xmmm128, &[x(z), x(z), x(z)], 7, 0, 9);
        z
    }

    fn int_to_int(&mut self, from: DType, to: DType, a: VReg) -> VReg {
        if wide(to) {
            if wide(from) || !from.is_signed() {
                return a; // the upper half is clear already
            }
            let r = self.f.reg(Size::Q);
            self.f.def(Code::Movsxd_r64_rm32, &[q(r), d(a)]);
            return r;
        }
        if to.size() < 4 {
            return self.narrow_scalar_to(to, a);
        }
        if !wide(from) {
            return a;
        }
        let r = self.f.reg(Size::Q);
        self.f.def(Code::Mov_r32_rm32, &[d(r), d(a)]);
        r
    }

    fn int_to_float(&mut self, from: DType, to: DType, a: VReg) -> VReg {
        let (r, zero) = (self.f.reg(Size::X), self.zero());
        let double = to == DType::F64;
        let (narrow, full) = match double {
            true => (Code::VEX_Vcvtsi2sd_xmm_xmm_rm32, Code::VEX_Vcvtsi2sd_xmm_xmm_rm64),
            false => (Code::VEX_Vcvtsi2ss_xmm_xmm_rm32, Code::VEX_Vcvtsi2ss_xmm_xmm_rm64),
        };
        match from {
            DType::I64 | DType::U32 => self.f.def(full, &[x(r), x(zero), q(a)]),
            DType::U64 => {
                // halve, keeping the lost bit sticky for rounding, then convert and double
                let (big, done) = (self.f.new_label(), self.f.new_label());
                let (h, low) = (self.f.reg(Size::Q), self.f.reg(Size::Q));
                self.f.read(Code::Test_rm64_r64, &[q(a), q(a)]);
                self.f.jump(Code::Js_rel32_64, big);
                self.f.def(full, &[x(r), x(zero), q(a)]);
                self.f.jump(Code::Jmp_rel32_64, done);
                self.f.label(big);
                self.f.copy(Code::Mov_r64_rm64, q(h), q(a));
                self.f.update(Code::Shr_rm64_imm8, &[q(h), Opnd::I8(1)]);
                self.f.copy(Code::Mov_r64_rm64, q(low), q(a));
                self.f.update(Code::And_rm32_imm32, &[d(low), Opnd::I32(1)]);
                self.f.update(Code::Or_r64_rm64, &[q(h), q(low)]);
                self.f.def(full, &[x(r), x(zero), q(h)]);
                let add = if double { Code::VEX_Vaddsd_xmm_xmm_xmmm64 } else { Code::VEX_Vaddss_xmm_xmm_xmmm32 };
                self.f.def(add, &[x(r), x(r), x(r)]);
                self.f.label(done);
            }
            _ => self.f.def(narrow, &[x(r), x(zero), d(a)]),
        }
        r
    }

    fn float_to_int(&mut self, from: DType, to: DType, a: VReg) -> Result<VReg> {
        // all go through f64, which represents each bound of the integer type exactly, or the next number past it
        let a = self.float_to_float(from, DType::F64, a);
        let ordered = self.float_mask(cmp::ORDERED, DType::F64, a, Val::R(a));
        let (v, r) = (self.f.reg(Size::X), self.f.reg(Size::Q));
        self.v3(V3::And, 1, v, a, Val::R(ordered));
        let f = |l: &mut Self, c: f64| l.pool(&c.to_le_bytes());
        let (two63, two64) = (9223372036854775808.0, 18446744073709551616.0);
        match to {
            DType::I64 => {
                let limit = f(self, two63);
                let large = self.float_mask(cmp::GE, DType::F64, v, limit);
                self.f.def(Code::VEX_Vcvttsd2si_r64_xmmm64, &[q(r), x(v)]);
                let m = self.bits(large);
                self.f.update(Code::Xor_r64_rm64, &[q(r), q(m)]);
            }
            DType::U64 => {
                let zero = f(self, 0.0);
                let (limit, shift) = (f(self, two64), f(self, two63));
                let (p, low, s, high) =
                    (self.f.reg(Size::X), self.f.reg(Size::X), self.f.reg(Size::Q), self.f.reg(Size::Q));
                let zo = self.opnd(zero, 1);
                self.f.def(Code::VEX_Vmaxsd_xmm_xmm_xmmm64, &[x(p), x(v), zo]);
                // r = int(p); if that overflowed, r = 2^63 and the rest is int(p - 2^63)
                self.f.def(Code::VEX_Vcvttsd2si_r64_xmmm64, &[q(r), x(p)]);
                let so = self.opnd(shift, 1);
                self.f.def(Code::VEX_Vsubsd_xmm_xmm_xmmm64, &[x(low), x(p), so]);
                self.f.def(Code::VEX_Vcvttsd2si_r64_xmmm64, &[q(high), x(low)]);
                self.f.copy(Code::Mov_r64_rm64, q(s), q(r));
                self.f.update(Code::Sar_rm64_imm8, &[q(s), Opnd::I8(63)]);
                self.f.update(Code::And_r64_rm64, &[q(high), q(s)]);
                self.f.update(Code::Or_r64_rm64, &[q(r), q(high)]);
                let large = self.float_mask(cmp::GE, DType::F64, p, limit);
                let m = self.bits(large);
                self.f.update(Code::Or_r64_rm64, &[q(r), q(m)]);
            }
            _ => {
                let (lo, hi) = to.int_range().unwrap_or_default();
                let (lo, hi) = (f(self, lo as f64), f(self, hi as f64));
                let (p, c) = (self.f.reg(Size::X), self.f.reg(Size::X));
                let (lo, hi) = (self.opnd(lo, 1), self.opnd(hi, 1));
                self.f.def(Code::VEX_Vmaxsd_xmm_xmm_xmmm64, &[x(p), x(v), lo]);
                self.f.def(Code::VEX_Vminsd_xmm_xmm_xmmm64, &[x(c), x(p), hi]);
                self.f.def(Code::VEX_Vcvttsd2si_r64_xmmm64, &[q(r), x(c)]);
                let t = self.f.reg(Size::Q);
                self.f.def(Code::Mov_r32_rm32, &[d(t), d(r)]);
                return Ok(t);
            }
        }
        Ok(r)
    }

    /// The low 64 bits of an xmm.
    fn bits(&mut self, v: VReg) -> VReg {
        let r = self.f.reg(Size::Q);
        self.f.emit(Code::VEX_Vmovq_rm64_xmm, &[q(r), x(v)], 1, !1, 9);
        r
    }

    pub(super) fn bitcast_scalar(&mut self, from: DType, to: DType, a: Val) -> Result<Val> {
        let a = self.reg(a, from, 1)?;
        let half = |dt: DType| matches!(dt, DType::F16 | DType::BF16);
        match (from.is_float(), to.is_float()) {
            (false, false) if wide(to) => Ok(Val::R(a)),
            (false, false) => Ok(Val::R(self.narrow_scalar_to(to, a))),
            (true, true) if from == to => Ok(Val::R(a)),
            (true, true) => {
                let bits = self.bitcast_scalar(from, DType::U16, Val::R(a))?;
                self.bitcast_scalar(DType::U16, to, bits)
            }
            (true, false) => {
                let (r, mut v) = (self.f.reg(Size::Q), a);
                if from == DType::F16 {
                    v = self.f.reg(Size::X);
                    self.f.emit(Code::VEX_Vcvtps2ph_xmmm64_xmm_imm8, &[x(v), x(a), Opnd::I8(0)], 1, !1, 9);
                }
                if wide(from) {
                    self.f.emit(Code::VEX_Vmovq_rm64_xmm, &[q(r), x(v)], 1, !1, 9);
                } else {
                    self.f.emit(Code::VEX_Vmovd_rm32_xmm, &[d(r), x(v)], 1, !1, 9);
                }
                if from == DType::BF16 {
                    self.f.update(Code::Shr_rm32_imm8, &[d(r), Opnd::I8(16)]);
                }
                Ok(Val::R(if half(from) { self.narrow_scalar_to(to, r) } else { r }))
            }
            (false, true) => {
                let r = self.f.reg(Size::X);
                if wide(to) {
                    self.f.def(Code::VEX_Vmovq_xmm_rm64, &[x(r), q(a)]);
                    return Ok(Val::R(r));
                }
                let mut v = a;
                if to == DType::BF16 {
                    v = self.f.reg(Size::Q);
                    self.f.copy(Code::Mov_r64_rm64, q(v), q(a));
                    self.f.update(Code::Shl_rm32_imm8, &[d(v), Opnd::I8(16)]);
                }
                self.f.def(Code::VEX_Vmovd_xmm_rm32, &[x(r), d(v)]);
                if to == DType::F16 {
                    let t = self.f.reg(Size::X);
                    self.f.def(Code::VEX_Vcvtph2ps_xmm_xmmm64, &[x(t), x(r)]);
                    return Ok(Val::R(t));
                }
                Ok(Val::R(r))
            }
        }
    }
}
