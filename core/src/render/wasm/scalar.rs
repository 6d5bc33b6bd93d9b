//! Scalar code: constants, arithmetic and casts of every dtype. Operands are on the WebAssembly stack.

use super::emit::Emit;
use super::func::val_type;
use super::unsupported;
use super::vector::scalar_bits;
use crate::dtype::Scalar;
use crate::uop::{Op, UOp};
use crate::{DType, Result};
use wasm_encoder::{Ieee32, Ieee64, ValType};

use DType::*;

impl Emit<'_> {
    /// Pushes a constant.
    pub(super) fn scalar_const(&mut self, u: UOp) {
        let dt = self.p.g.dtype(u);
        let bits = scalar_bits(self.p.g.const_val(u).unwrap_or(Scalar::Int(0)), dt);
        match val_type(dt) {
            ValType::I64 => self.f.w().i64_const(bits as i64),
            ValType::F32 => self.f.w().f32_const(Ieee32::new(bits as u32)),
            ValType::F64 => self.f.w().f64_const(Ieee64::new(bits)),
            _ => self.f.w().i32_const(bits as i32),
        };
    }

    fn no_scalar(&self, op: Op, dt: DType) -> crate::Error {
        unsupported(format!("{} on {dt}", op.name()), self.p)
    }

    pub(super) fn scalar_unary(&mut self, op: Op, dt: DType) -> Result<()> {
        match (op, dt) {
            (Op::Neg, F32) => self.f.w().f32_neg(),
            (Op::Neg, F64) => self.f.w().f64_neg(),
            (Op::Sqrt, F32) => self.f.w().f32_sqrt(),
            (Op::Sqrt, F64) => self.f.w().f64_sqrt(),
            (Op::Trunc, F32) => self.f.w().f32_trunc(),
            (Op::Trunc, F64) => self.f.w().f64_trunc(),
            (Op::Recip, F32 | F64) => {
                let t = self.f.local(val_type(dt));
                self.f.w().local_set(t);
                match dt {
                    F32 => self.f.w().f32_const(1f32.into()).local_get(t).f32_div(),
                    _ => self.f.w().f64_const(1f64.into()).local_get(t).f64_div(),
                };
                self.f.release(t);
                return Ok(());
            }
            (Op::Neg, Bool) => return Ok(()),
            (Op::Neg, I64 | U64) => self.f.w().i64_const(-1).i64_mul(),
            (Op::Neg, _) if dt.is_int() => {
                self.f.w().i32_const(-1).i32_mul();
                self.scalar_wrap(dt);
                return Ok(());
            }
            _ => return Err(self.no_scalar(op, dt)),
        };
        Ok(())
    }

    /// Emits a binary op on operands of `dt`; comparisons give 0 or 1.
    pub(super) fn scalar_binary(&mut self, op: Op, dt: DType) -> Result<()> {
        let mut w = self.f.w();
        match dt {
            F32 => match op {
                Op::Add => w.f32_add(),
                Op::Sub => w.f32_sub(),
                Op::Mul => w.f32_mul(),
                Op::Div => w.f32_div(),
                Op::Max => w.f32_max(),
                Op::Min => w.f32_min(),
                Op::CmpLt => w.f32_lt(),
                Op::CmpEq => w.f32_eq(),
                Op::CmpNe => w.f32_ne(),
                _ => return Err(self.no_scalar(op, dt)),
            },
            F64 => match op {
                Op::Add => w.f64_add(),
                Op::Sub => w.f64_sub(),
                Op::Mul => w.f64_mul(),
                Op::Div => w.f64_div(),
                Op::Max => w.f64_max(),
                Op::Min => w.f64_min(),
                Op::CmpLt => w.f64_lt(),
                Op::CmpEq => w.f64_eq(),
                Op::CmpNe => w.f64_ne(),
                _ => return Err(self.no_scalar(op, dt)),
            },
            Bool => match op {
                Op::Add | Op::Or | Op::Max => w.i32_or(),
                Op::Mul | Op::And | Op::Min => w.i32_and(),
                Op::Xor | Op::CmpNe | Op::Sub => w.i32_xor(),
                Op::CmpEq => w.i32_eq(),
                Op::CmpLt => w.i32_lt_u(),
                _ => return Err(self.no_scalar(op, dt)),
            },
            I64 | U64 => return self.int64(op, dt),
            _ if dt.is_int() => return self.int32(op, dt),
            _ => return Err(self.no_scalar(op, dt)),
        };
        Ok(())
    }

    fn int32(&mut self, op: Op, dt: DType) -> Result<()> {
        let unsigned = dt.is_unsigned();
        let mut w = self.f.w();
        match op {
            Op::Add => w.i32_add(),
            Op::Sub => w.i32_sub(),
            Op::Mul => w.i32_mul(),
            Op::And => w.i32_and(),
            Op::Or => w.i32_or(),
            Op::Xor => w.i32_xor(),
            Op::CmpEq => w.i32_eq(),
            Op::CmpNe => w.i32_ne(),
            Op::CmpLt if unsigned => w.i32_lt_u(),
            Op::CmpLt => w.i32_lt_s(),
            Op::Shl | Op::Shr => {
                if dt.bits() < 32 {
                    w.i32_const(dt.bits() as i32 - 1).i32_and();
                }
                match op {
                    Op::Shl => w.i32_shl(),
                    _ if unsigned => w.i32_shr_u(),
                    _ => w.i32_shr_s(),
                }
            }
            Op::Max | Op::Min | Op::Idiv | Op::Imod => {
                let (a, b) = (self.f.local(ValType::I32), self.f.local(ValType::I32));
                let mut w = self.f.w();
                w.local_set(b).local_set(a).local_get(a);
                match op {
                    Op::Max | Op::Min => {
                        w.local_get(b).local_get(a).local_get(b);
                        match (op, unsigned) {
                            (Op::Max, true) => w.i32_gt_u(),
                            (Op::Max, false) => w.i32_gt_s(),
                            (_, true) => w.i32_lt_u(),
                            (_, false) => w.i32_lt_s(),
                        };
                        w.select();
                    }
                    // a divisor of 0 is replaced by 1, which gives x/0 = x and x%0 = 0
                    Op::Imod => {
                        w.i32_const(1).local_get(b).local_get(b).i32_eqz().select();
                        if unsigned {
                            w.i32_rem_u()
                        } else {
                            w.i32_rem_s()
                        };
                    }
                    _ if unsigned => {
                        w.i32_const(1).local_get(b).local_get(b).i32_eqz().select().i32_div_u();
                    }
                    // so is a divisor of -1, since division by it traps for the smallest integer; the quotient is the
                    // negated dividend
                    _ => {
                        w.i32_const(1).local_get(b).local_get(b).i32_const(1).i32_add().i32_const(2).i32_lt_u();
                        w.select().i32_div_s().local_set(a);
                        w.i32_const(0).local_get(a).i32_sub().local_get(a);
                        w.local_get(b).i32_const(-1).i32_eq().select();
                    }
                }
                self.f.release(a);
                self.f.release(b);
                self.scalar_wrap(dt);
                return Ok(());
            }
            _ => return Err(self.no_scalar(op, dt)),
        };
        if matches!(op, Op::Add | Op::Sub | Op::Mul | Op::Shl) {
            self.scalar_wrap(dt);
        }
        Ok(())
    }

    fn int64(&mut self, op: Op, dt: DType) -> Result<()> {
        let unsigned = dt == U64;
        let mut w = self.f.w();
        match op {
            Op::Add => w.i64_add(),
            Op::Sub => w.i64_sub(),
            Op::Mul => w.i64_mul(),
            Op::And => w.i64_and(),
            Op::Or => w.i64_or(),
            Op::Xor => w.i64_xor(),
            Op::CmpEq => w.i64_eq(),
            Op::CmpNe => w.i64_ne(),
            Op::CmpLt if unsigned => w.i64_lt_u(),
            Op::CmpLt => w.i64_lt_s(),
            Op::Shl => w.i64_shl(),
            Op::Shr if unsigned => w.i64_shr_u(),
            Op::Shr => w.i64_shr_s(),
            Op::Max | Op::Min | Op::Idiv | Op::Imod => {
                let (a, b) = (self.f.local(ValType::I64), self.f.local(ValType::I64));
                let mut w = self.f.w();
                w.local_set(b).local_set(a).local_get(a);
                match op {
                    Op::Max | Op::Min => {
                        w.local_get(b).local_get(a).local_get(b);
                        match (op, unsigned) {
                            (Op::Max, true) => w.i64_gt_u(),
                            (Op::Max, false) => w.i64_gt_s(),
                            (_, true) => w.i64_lt_u(),
                            (_, false) => w.i64_lt_s(),
                        };
                        w.select();
                    }
                    Op::Imod => {
                        w.i64_const(1).local_get(b).local_get(b).i64_eqz().select();
                        if unsigned {
                            w.i64_rem_u()
                        } else {
                            w.i64_rem_s()
                        };
                    }
                    _ if unsigned => {
                        w.i64_const(1).local_get(b).local_get(b).i64_eqz().select().i64_div_u();
                    }
                    _ => {
                        w.i64_const(1).local_get(b).local_get(b).i64_const(1).i64_add().i64_const(2).i64_lt_u();
                        w.select().i64_div_s().local_set(a);
                        w.i64_const(0).local_get(a).i64_sub().local_get(a);
                        w.local_get(b).i64_const(-1).i64_eq().select();
                    }
                }
                self.f.release(a);
                self.f.release(b);
                return Ok(());
            }
            _ => return Err(self.no_scalar(op, dt)),
        };
        Ok(())
    }

    /// Wraps an i32 to the range of a narrow integer.
    fn scalar_wrap(&mut self, dt: DType) {
        match dt {
            I8 => self.f.w().i32_extend8_s(),
            I16 => self.f.w().i32_extend16_s(),
            U8 => self.f.w().i32_const(0xff).i32_and(),
            U16 => self.f.w().i32_const(0xffff).i32_and(),
            _ => return,
        };
    }

    pub(super) fn scalar_bitcast(&mut self, from: DType, to: DType) -> Result<()> {
        match (val_type(from), val_type(to)) {
            (ValType::F32, ValType::I32) => self.f.w().i32_reinterpret_f32(),
            (ValType::I32, ValType::F32) => self.f.w().f32_reinterpret_i32(),
            (ValType::F64, ValType::I64) => self.f.w().i64_reinterpret_f64(),
            (ValType::I64, ValType::F64) => self.f.w().f64_reinterpret_i64(),
            (a, b) if a != b => return Err(unsupported(format!("bitcast {from} to {to}"), self.p)),
            _ => {
                match to {
                    Bool => _ = self.f.w().i32_const(0).i32_ne(),
                    F16 => self.scalar_wrap(I16),
                    BF16 => self.scalar_wrap(U16),
                    _ => self.scalar_wrap(to),
                }
                return Ok(());
            }
        };
        Ok(())
    }

    pub(super) fn scalar_cast(&mut self, from: DType, to: DType) -> Result<()> {
        if from == to {
            return Ok(());
        }
        // f16 and bf16 have only vector code
        if matches!(from, F16 | BF16) {
            self.splat(from);
            self.vec_cast(from, F32)?;
            self.extract(F32, 0);
            return self.scalar_cast(F32, to);
        }
        if matches!(to, F16 | BF16) {
            self.scalar_cast(from, F32)?;
            self.splat(F32);
            self.vec_cast(F32, to)?;
            self.extract(to, 0);
            return Ok(());
        }
        let mut w = self.f.w();
        match (val_type(from), to) {
            (ValType::F32, F64) => w.f64_promote_f32(),
            (ValType::F32, Bool) => w.f32_const(0f32.into()).f32_ne(),
            (ValType::F32, I64) => w.i64_trunc_sat_f32_s(),
            (ValType::F32, U64) => w.i64_trunc_sat_f32_u(),
            (ValType::F32, U32) => w.i32_trunc_sat_f32_u(),
            (ValType::F32, I32) => w.i32_trunc_sat_f32_s(),
            (ValType::F64, F32) => w.f32_demote_f64(),
            (ValType::F64, Bool) => w.f64_const(0f64.into()).f64_ne(),
            (ValType::F64, I64) => w.i64_trunc_sat_f64_s(),
            (ValType::F64, U64) => w.i64_trunc_sat_f64_u(),
            (ValType::F64, U32) => w.i32_trunc_sat_f64_u(),
            (ValType::F64, I32) => w.i32_trunc_sat_f64_s(),
            (t @ (ValType::F32 | ValType::F64), _) => {
                if t == ValType::F32 {
                    w.i32_trunc_sat_f32_s()
                } else {
                    w.i32_trunc_sat_f64_s()
                };
                let (lo, hi) = to.int_range().unwrap_or((0, 0));
                self.f.w().i32_const(lo as i32);
                self.int32(Op::Max, I32)?;
                self.f.w().i32_const(hi as i32);
                return self.int32(Op::Min, I32);
            }
            (ValType::I64, F32) if from == U64 => w.f32_convert_i64_u(),
            (ValType::I64, F32) => w.f32_convert_i64_s(),
            (ValType::I64, F64) if from == U64 => w.f64_convert_i64_u(),
            (ValType::I64, F64) => w.f64_convert_i64_s(),
            (ValType::I64, I64 | U64) => &mut w,
            (ValType::I64, Bool) => w.i64_const(0).i64_ne(),
            (ValType::I64, _) => {
                w.i32_wrap_i64();
                self.scalar_wrap(to);
                return Ok(());
            }
            (_, F32) if from == U32 => w.f32_convert_i32_u(),
            (_, F32) => w.f32_convert_i32_s(),
            (_, F64) if from == U32 => w.f64_convert_i32_u(),
            (_, F64) => w.f64_convert_i32_s(),
            (_, I64 | U64) if from == U32 => w.i64_extend_i32_u(),
            (_, I64 | U64) => w.i64_extend_i32_s(),
            (_, Bool) => w.i32_const(0).i32_ne(),
            _ => {
                self.scalar_wrap(to);
                return Ok(());
            }
        };
        Ok(())
    }
}
