//! Conversions: float to int truncates and saturates with NaN giving 0, as the instructions do; int to narrower int wraps, to bool is
//! `!= 0`.

use super::Lower;
use super::table::{self, cond};
use crate::dtype::Scalar;
use crate::render::linear::lower::{Val, wide};
use crate::render::linear::mir::VReg;
use crate::uop::Op;
use crate::{DType, Result};

impl Lower<'_> {
    /// A conversion between types of 32-bit lanes.
    pub(super) fn cast_vector(&mut self, from: DType, to: DType, a: VReg) -> Result<VReg> {
        if from == DType::Bool {
            let one = self.lanes(if to.is_float() { 1f32.to_bits() } else { 1 });
            return Ok(if to == DType::Bool { a } else { self.emit_vector3(table::AND_V, a, one) });
        }
        if to == DType::Bool {
            let zero = self.lanes(0);
            return self.binary_vector(Op::CmpNe, from, Val::R(a), Val::R(zero), None);
        }
        Ok(match (from.is_float(), to.is_float()) {
            (true, true) if to == DType::F32 => a,
            (true, true) | (false, false) => self.narrow_to(to, a),
            (false, true) => {
                let code = if from.is_signed() { table::SCVTF_V } else { table::UCVTF_V };
                let r = self.emit_vector2(code, a);
                self.narrow_to(to, r)
            }
            (true, false) => {
                let signed = to.is_signed();
                let r = self.emit_vector2(if signed { table::FCVTZS_V } else { table::FCVTZU_V }, a);
                if to.size() == 4 {
                    return Ok(r);
                }
                let (lo, hi) = to.int_range().unwrap_or_default();
                let hi = self.lanes(hi as u32);
                if !signed {
                    return Ok(self.emit_vector3(table::UMIN_V, r, hi));
                }
                let (lo, r) = (self.lanes(lo as u32), self.emit_vector3(table::SMIN_V, r, hi));
                self.emit_vector3(table::SMAX_V, r, lo)
            }
        })
    }

    pub(super) fn cast_scalar(&mut self, from: DType, to: DType, a: Val) -> Result<Val> {
        let a = self.reg(a, from, 1)?;
        if to == DType::Bool {
            let zero = self.constant(Scalar::from_i64(0, from), from, 1);
            return Ok(Val::R(self.binary_scalar(Op::CmpNe, from, Val::R(a), zero)?));
        }
        Ok(Val::R(match (from.is_float(), to.is_float()) {
            (true, true) => {
                let r = match (wide(from), wide(to)) {
                    (true, true) => return Ok(Val::R(a)),
                    (false, true) => self.emit_vector2(table::FCVT_D_S, a),
                    (true, false) => self.emit_vector2(table::FCVT_S_D, a),
                    (false, false) => a,
                };
                if to == DType::F32 { r } else { self.narrow_scalar_to(to, r) }
            }
            (false, false) => self.int_to_int(from, to, a),
            (false, true) => {
                let code = if from.is_signed() { table::SCVTF } else { table::UCVTF };
                let r = self.emit_vector2(table::double(table::full(code, wide(from)), wide(to)), a);
                self.narrow_scalar_to(to, r)
            }
            (true, false) => self.float_to_int(from, to, a)?,
        }))
    }

    fn int_to_int(&mut self, from: DType, to: DType, a: VReg) -> VReg {
        match () {
            // the upper half is clear already
            _ if wide(to) && (wide(from) || !from.is_signed()) => a,
            _ if wide(to) => self.field(table::full_field(table::SBFM, true), a, 0, 31),
            _ if to.size() < 4 => self.narrow_scalar_to(to, a),
            _ if !wide(from) => a,
            _ => self.field(table::UBFM, a, 0, 31),
        }
    }

    fn float_to_int(&mut self, from: DType, to: DType, a: VReg) -> Result<VReg> {
        let signed = to.is_signed();
        let code = if signed { table::FCVTZS } else { table::FCVTZU };
        let r = self.emit_general2(table::double(table::full(code, wide(to)), wide(from)), a);
        if to.size() >= 4 {
            return Ok(r);
        }
        let (lo, hi) = to.int_range().unwrap_or_default();
        let mut clamp = |r: VReg, limit: i128, keep: u8| -> Result<VReg> {
            let c = self.reg(Val::I(limit as i64), DType::I32, 1)?;
            self.compare(false, r, c);
            Ok(self.conditional_select(table::CSEL, r, c, keep))
        };
        if !signed {
            return clamp(r, hi, cond::LO);
        }
        let r = clamp(r, hi, cond::LT)?;
        clamp(r, lo, cond::GT)
    }

    pub(super) fn bitcast_scalar(&mut self, from: DType, to: DType, a: Val) -> Result<Val> {
        let a = self.reg(a, from, 1)?;
        Ok(Val::R(match (from.is_float(), to.is_float()) {
            (false, false) if wide(to) => a,
            (false, false) => self.narrow_scalar_to(to, a),
            (true, true) if from == to => a,
            (true, true) => {
                let bits = self.bitcast_scalar(from, DType::U16, Val::R(a))?;
                return self.bitcast_scalar(DType::U16, to, bits);
            }
            (true, false) => {
                let v = if from == DType::F16 { self.emit_vector2(table::FCVT_H_S, a) } else { a };
                let code = table::FMOV_W_S;
                let r = self.emit_general2(bits_form(code, wide(from)), v);
                match from {
                    DType::BF16 => {
                        let high = self.field(table::UBFM, r, 16, 31);
                        self.narrow_scalar_to(to, high)
                    }
                    DType::F16 => self.narrow_scalar_to(to, r),
                    _ => r,
                }
            }
            (false, true) => {
                let bits = match to {
                    DType::BF16 => self.shift_left(false, a, 16),
                    DType::F16 => self.field(table::UBFM, a, 0, 15),
                    _ => a,
                };
                let v = self.emit_vector2(bits_form(table::FMOV_S_W, wide(to)), bits);
                if to == DType::F16 { self.emit_vector2(table::FCVT_S_H, v) } else { v }
            }
        }))
    }
}

/// Moves 32 or 64 bits between a general and a vector register.
fn bits_form(code: table::Code, whole: bool) -> table::Code {
    table::double(table::full(code, whole), whole)
}
