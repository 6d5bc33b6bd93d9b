//! Vector code, four lanes at a time: constants, conversions between vectors and scalars, arithmetic, casts. Operands
//! are on the WebAssembly stack.

use super::emit::Emit;
use super::func::Func;
use super::unsupported;
use crate::dtype::Scalar;
use crate::uop::{Op, UOp};
use crate::{DType, Result};
use wasm_encoder::ValType;

use DType::*;

impl Emit<'_> {
    /// The 32 bits of a constant in a lane; a true bool is all ones.
    pub(super) fn lane_bits(&self, u: UOp) -> u32 {
        let dt = self.p.g.dtype(u);
        match self.p.g.const_val(u) {
            Some(v) if dt == Bool => (v.as_bool() as u32).wrapping_neg(),
            Some(v) => scalar_bits(v, dt) as u32,
            None => 0,
        }
    }

    /// Pushes a constant vector; any but zero is held in a local that the prologue sets.
    pub(super) fn vec_const(&mut self, lanes: [u32; 4]) {
        let bits = lanes.iter().rev().fold(0u128, |b, &l| b << 32 | l as u128) as i128;
        if bits == 0 {
            self.f.w().v128_const(0);
            return;
        }
        let local = match self.consts.get(&bits) {
            Some(&l) => l,
            None => {
                let l = self.f.pinned(ValType::V128);
                self.f.prologue().v128_const(bits).local_set(l);
                self.consts.insert(bits, l);
                l
            }
        };
        self.f.w().local_get(local);
    }

    fn vec_splat_const(&mut self, v: u32) {
        self.vec_const([v; 4]);
    }

    /// Replaces the scalar on top of the stack by a vector with it in all lanes.
    pub(super) fn splat(&mut self, dt: DType) {
        match dt {
            F32 => self.f.w().f32x4_splat(),
            Bool => self.f.w().i32x4_splat().i32x4_neg(),
            _ => self.f.w().i32x4_splat(),
        };
    }

    /// Replaces the vector on top of the stack by one of its lanes as a scalar.
    pub(super) fn extract(&mut self, dt: DType, lane: usize) {
        match dt {
            F32 => self.f.w().f32x4_extract_lane(lane as u8),
            Bool => self.f.w().i32x4_extract_lane(lane as u8).i32_const(1).i32_and(),
            _ => self.f.w().i32x4_extract_lane(lane as u8),
        };
    }

    /// Puts the scalar on top of the stack into a lane of the vector below it.
    pub(super) fn replace(&mut self, dt: DType, lane: usize) {
        match dt {
            F32 => self.f.w().f32x4_replace_lane(lane as u8),
            Bool => self.f.w().i32_const(-1).i32_mul().i32x4_replace_lane(lane as u8),
            _ => self.f.w().i32x4_replace_lane(lane as u8),
        };
    }

    fn no_vec(&self, op: Op, dt: DType) -> crate::Error {
        unsupported(format!("{} on {dt}", op.name()), self.p)
    }

    pub(super) fn vec_unary(&mut self, op: Op, dt: DType) -> Result<()> {
        match (op, dt) {
            (Op::Neg, F32) => self.f.w().f32x4_neg(),
            (Op::Sqrt, F32) => self.f.w().f32x4_sqrt(),
            (Op::Trunc, F32) => self.f.w().f32x4_trunc(),
            (Op::Recip, F32) => {
                let t = self.f.local(ValType::V128);
                self.f.w().local_set(t);
                self.vec_splat_const(1f32.to_bits());
                self.f.w().local_get(t).f32x4_div();
                self.f.release(t);
                return Ok(());
            }
            (Op::Neg, Bool) => return Ok(()),
            (Op::Neg, _) if dt.is_int() => {
                self.f.w().i32x4_neg();
                self.vec_wrap(dt);
                return Ok(());
            }
            _ => return Err(self.no_vec(op, dt)),
        };
        Ok(())
    }

    /// A binary op that keeps its dtype.
    pub(super) fn vec_binary(&mut self, op: Op, dt: DType) -> Result<()> {
        self.vec_binary_of(op, dt, dt)
    }

    /// A binary op from `dt` to `out` (bool for comparisons).
    pub(super) fn vec_binary_of(&mut self, op: Op, out: DType, dt: DType) -> Result<()> {
        let mut w = self.f.w();
        match dt {
            F32 => match op {
                Op::Add => w.f32x4_add(),
                Op::Sub => w.f32x4_sub(),
                Op::Mul => w.f32x4_mul(),
                Op::Div => w.f32x4_div(),
                Op::Max | Op::Min => {
                    self.vec_extreme(op);
                    return Ok(());
                }
                Op::CmpLt => w.f32x4_lt(),
                Op::CmpEq => w.f32x4_eq(),
                Op::CmpNe => w.f32x4_ne(),
                _ => return Err(self.no_vec(op, dt)),
            },
            Bool => match op {
                Op::Add | Op::Or | Op::Max => w.v128_or(),
                Op::Mul | Op::And | Op::Min => w.v128_and(),
                Op::Xor | Op::CmpNe | Op::Sub => w.v128_xor(),
                Op::CmpEq => w.v128_xor().v128_not(),
                Op::CmpLt => {
                    // `!x & y`; andnot would need its operands in the other order
                    let t = self.f.local(ValType::V128);
                    self.f.w().local_set(t).v128_not().local_get(t).v128_and();
                    self.f.release(t);
                    return Ok(());
                }
                _ => return Err(self.no_vec(op, dt)),
            },
            _ if dt.is_int() => {
                let unsigned = dt.is_unsigned();
                match op {
                    Op::Add => w.i32x4_add(),
                    Op::Sub => w.i32x4_sub(),
                    Op::Mul => w.i32x4_mul(),
                    Op::Max if unsigned => w.i32x4_max_u(),
                    Op::Max => w.i32x4_max_s(),
                    Op::Min if unsigned => w.i32x4_min_u(),
                    Op::Min => w.i32x4_min_s(),
                    Op::And => w.v128_and(),
                    Op::Or => w.v128_or(),
                    Op::Xor => w.v128_xor(),
                    Op::CmpLt if unsigned => w.i32x4_lt_u(),
                    Op::CmpLt => w.i32x4_lt_s(),
                    Op::CmpEq => w.i32x4_eq(),
                    Op::CmpNe => w.i32x4_ne(),
                    _ => return Err(self.no_vec(op, dt)),
                };
                if matches!(op, Op::Add | Op::Sub | Op::Mul) {
                    self.vec_wrap(out);
                }
                return Ok(());
            }
            F16 | BF16 if op == Op::CmpEq => w.i32x4_eq(),
            _ => return Err(self.no_vec(op, dt)),
        };
        Ok(())
    }

    /// Pushes the maximum or minimum of two f32 values that are not on the stack yet. If one is a constant other than
    /// NaN, the pseudo-maximum will do: it is one instruction, and gives its first operand if that is NaN.
    pub(super) fn vec_max(&mut self, op: Op, a: UOp, b: UOp) -> Result<()> {
        let number = |u: UOp| self.p.g.const_val(u).is_some_and(|v| !v.as_f64().is_nan());
        let (x, y) = if number(a) { (b, a) } else { (a, b) };
        if number(y) {
            return self.vec_pick(op, x, y);
        }
        self.vec(x)?;
        self.vec(y)?;
        self.vec_extreme(op);
        Ok(())
    }

    /// The maximum or minimum of the two f32 vectors on the stack, NaN if either is NaN. The instruction for it,
    /// `f32x4.max`, is not used, because engines expand it to eight machine instructions.
    fn vec_extreme(&mut self, op: Op) {
        let (x, y) = (self.f.local(ValType::V128), self.f.local(ValType::V128));
        self.f.w().local_set(y).local_set(x);
        // x where x is NaN; elsewhere the pseudo-maximum of y and x, which is y where y is NaN
        self.f.w().local_get(x).local_get(y).local_get(x);
        match op {
            Op::Max => self.f.w().f32x4_pmax(),
            _ => self.f.w().f32x4_pmin(),
        };
        self.f.w().local_get(x).local_get(x).f32x4_ne();
        self.vec_select();
        self.f.release(x);
        self.f.release(y);
    }

    /// Pushes `x < y ? y : x` (for Max) or `y < x ? y : x`, which is x if either is NaN.
    pub(super) fn vec_pick(&mut self, op: Op, x: UOp, y: UOp) -> Result<()> {
        self.vec(x)?;
        self.vec(y)?;
        match op {
            Op::Max => self.f.w().f32x4_pmax(),
            _ => self.f.w().f32x4_pmin(),
        };
        Ok(())
    }

    /// Selects, by the mask on top of the stack, lanes of the first operand where the mask is set and else of the
    /// second.
    pub(super) fn vec_select(&mut self) {
        // lanes of masks are all ones or all zeros, for which the relaxed instruction gives the same result and may be
        // cheaper
        match self.fma {
            true => self.f.w().i32x4_relaxed_laneselect(),
            false => self.f.w().v128_bitselect(),
        };
    }

    /// Computes `a * b + c` with a and b on the stack, and c pushed by `push`.
    pub(super) fn vec_mul_add(&mut self, dt: DType, push: impl FnOnce(&mut Func)) -> Result<()> {
        if self.fma && dt == F32 {
            push(&mut self.f);
            self.f.w().f32x4_relaxed_madd();
            return Ok(());
        }
        self.vec_binary(Op::Mul, dt)?;
        push(&mut self.f);
        self.vec_binary(Op::Add, dt)
    }

    /// Shift by the i32 on top of the stack.
    pub(super) fn vec_shift(&mut self, op: Op, dt: DType) -> Result<()> {
        if !dt.is_int() {
            return Err(self.no_vec(op, dt));
        }
        if dt.bits() < 32 {
            self.f.w().i32_const(dt.bits() as i32 - 1).i32_and();
        }
        match op {
            Op::Shl => self.f.w().i32x4_shl(),
            _ if dt.is_unsigned() => self.f.w().i32x4_shr_u(),
            _ => self.f.w().i32x4_shr_s(),
        };
        if op == Op::Shl {
            self.vec_wrap(dt);
        }
        Ok(())
    }

    /// Wraps lanes to the range of a narrow integer.
    fn vec_wrap(&mut self, dt: DType) {
        match dt {
            I8 | I16 => {
                let s = 32 - dt.bits() as i32;
                self.f.w().i32_const(s).i32x4_shl().i32_const(s).i32x4_shr_s();
            }
            U8 | U16 => {
                self.vec_splat_const((1 << dt.bits()) - 1);
                self.f.w().v128_and();
            }
            _ => {}
        }
    }

    pub(super) fn vec_bitcast(&mut self, from: DType, to: DType) {
        match (from, to) {
            (Bool, _) => {
                self.vec_splat_const(1);
                self.f.w().v128_and();
            }
            (_, Bool) => {
                self.f.w().v128_const(0).i32x4_ne();
            }
            (_, F16) => self.vec_wrap(I16),
            (_, BF16) => self.vec_wrap(U16),
            _ if to.size() < 4 => self.vec_wrap(to),
            _ => {}
        }
    }

    pub(super) fn vec_cast(&mut self, from: DType, to: DType) -> Result<()> {
        match (from, to) {
            _ if from == to => {}
            (F16, _) => {
                self.f16_to_f32();
                self.vec_cast(F32, to)?;
            }
            (BF16, _) => {
                self.f.w().i32_const(16).i32x4_shl();
                self.vec_cast(F32, to)?;
            }
            (F32, F16) => self.f32_to_f16(),
            (F32, BF16) => self.f32_to_bf16(),
            (F32, Bool) => {
                self.f.w().v128_const(0).f32x4_ne();
            }
            (F32, U32) => {
                self.f.w().i32x4_trunc_sat_f32x4_u();
            }
            (F32, _) => {
                self.f.w().i32x4_trunc_sat_f32x4_s();
                if to.bits() < 32 {
                    let (lo, hi) = to.int_range().unwrap_or((0, 0));
                    self.vec_splat_const(lo as i32 as u32);
                    self.f.w().i32x4_max_s();
                    self.vec_splat_const(hi as i32 as u32);
                    self.f.w().i32x4_min_s();
                }
            }
            (Bool, _) => {
                self.vec_splat_const(scalar_bits(Scalar::from_i64(1, to), to) as u32);
                self.f.w().v128_and();
            }
            (_, Bool) => {
                self.f.w().v128_const(0).i32x4_ne();
            }
            (U32, F32) => {
                self.f.w().f32x4_convert_i32x4_u();
            }
            (_, F32) => {
                self.f.w().f32x4_convert_i32x4_s();
            }
            (_, F16 | BF16) => {
                self.vec_cast(from, F32)?;
                self.vec_cast(F32, to)?;
            }
            _ if to.bits() < from.bits() || (to.bits() == from.bits() && to.bits() < 32) => self.vec_wrap(to),
            (_, U8 | U16) => self.vec_wrap(to),
            _ => {}
        }
        Ok(())
    }

    /// Converts f16 bits, sign-extended, to f32: sign and magnitude move to their places in one shift, and a multiplication
    /// by 2^112 rebases the exponent, which is right for subnormal numbers too. Infinities and NaNs get the largest
    /// exponent; they are found by comparing integers, because V8 of Node 20 is slow at `f32x4.abs`.
    fn f16_to_f32(&mut self) {
        let h = self.f.local(ValType::V128);
        self.f.w().local_tee(h).i32_const(13).i32x4_shl();
        self.vec_splat_const(0x8fff_e000);
        self.f.w().v128_and();
        self.vec_splat_const((127 + 112) << 23);
        self.f.w().f32x4_mul().local_get(h);
        self.vec_splat_const(0x7c00);
        self.f.w().v128_and();
        self.vec_splat_const(0x7c00);
        self.f.w().i32x4_eq();
        self.vec_splat_const(0x7f80_0000);
        self.f.w().v128_and().v128_or();
        self.f.release(h);
    }

    /// Converts f32 to f16 bits, sign-extended, rounding to nearest even: computes the result for normal, for subnormal
    /// (rounded by adding 0.5) and for too large values, and selects among them.
    fn f32_to_f16(&mut self) {
        let (x, a) = (self.f.local(ValType::V128), self.f.local(ValType::V128));
        self.f.w().local_tee(x);
        self.vec_splat_const(0x7fff_ffff);
        self.f.w().v128_and().local_set(a);
        // too large: infinity, or NaN
        self.vec_splat_const(0x7e00);
        self.vec_splat_const(0x7c00);
        self.f.w().local_get(a);
        self.vec_splat_const(0x7f80_0000);
        self.f.w().i32x4_gt_s().v128_bitselect();
        // subnormal
        self.f.w().local_get(a);
        self.vec_splat_const(0x3f00_0000);
        self.f.w().f32x4_add();
        self.vec_splat_const(0x3f00_0000);
        self.f.w().i32x4_sub();
        // normal
        self.f.w().local_get(a);
        self.vec_splat_const(0xc800_0fff);
        self.f.w().i32x4_add().local_get(a).i32_const(13).i32x4_shr_u();
        self.vec_splat_const(1);
        self.f.w().v128_and().i32x4_add().i32_const(13).i32x4_shr_u();
        // subnormal or normal
        self.f.w().local_get(a);
        self.vec_splat_const(0x3880_0000);
        self.f.w().i32x4_lt_s().v128_bitselect();
        // too large, or one of the others
        self.f.w().local_get(a);
        self.vec_splat_const(0x477f_ffff);
        self.f.w().i32x4_gt_s().v128_bitselect();
        self.f.w().local_get(x).i32_const(16).i32x4_shr_s();
        self.vec_splat_const(0xffff_8000);
        self.f.w().v128_and().v128_or();
        self.f.release(x);
        self.f.release(a);
    }

    fn f32_to_bf16(&mut self) {
        let x = self.f.local(ValType::V128);
        self.f.w().local_tee(x).i32_const(16).i32x4_shr_u();
        self.vec_splat_const(0x40);
        self.f.w().v128_or().local_get(x).local_get(x).i32_const(16).i32x4_shr_u();
        self.vec_splat_const(1);
        self.f.w().v128_and().i32x4_add();
        self.vec_splat_const(0x7fff);
        self.f.w().i32x4_add().i32_const(16).i32x4_shr_u().local_get(x).local_get(x).f32x4_ne().v128_bitselect();
        self.f.release(x);
    }
}

/// The raw bits of a constant, sign-extended for integers and f16.
pub(super) fn scalar_bits(v: Scalar, dt: DType) -> u64 {
    if !dt.is_float() {
        return v.as_i64() as u64;
    }
    let mut b = [0u8; 8];
    v.write(dt, &mut b);
    let bits = u64::from_le_bytes(b);
    if dt == F16 { bits as u16 as i16 as u64 } else { bits }
}
