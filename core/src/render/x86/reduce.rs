//! Reduces all lanes of a vector register to a scalar, by halving it.

use super::{Lower, Opnd};
use crate::render::linear::lower::{Val, wide};
use crate::render::linear::mir::{Size, VReg};
use crate::uop::ReduceOp;
use crate::{DType, Result};
use iced_x86::Code;

impl Lower<'_> {
    /// Reduces all lanes of a register to a scalar.
    pub(super) fn reduce_lanes(&mut self, op: ReduceOp, dt: DType, w: usize, mut v: VReg) -> Result<Val> {
        if w == 1 {
            return Ok(Val::R(v));
        }
        if wide(dt) {
            return self.reduce_wide_lanes(op, dt, w, v);
        }
        if w == 16 {
            let halves = [0, 1].map(|h| {
                let d = self.f.reg(Size::Y);
                let ops = [Opnd::R(d, Size::Y), Opnd::R(v, Size::Z), Opnd::I8(h)];
                self.f.emit(Code::EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8, &ops, 1, !1, 9);
                d
            });
            v = self.binary_vector(op.op(), dt, 8, Val::R(halves[0]), Val::R(halves[1]), None)?;
        }
        if w >= 8 {
            let high = self.quad(v, 8, 1);
            v = self.binary_vector(op.op(), dt, 4, Val::R(v), Val::R(high), None)?;
        }
        for swap in [0x4e, 0xb1] {
            let t = self.f.reg(Size::X);
            let ops = [Opnd::R(t, Size::X), Opnd::R(v, Size::X), Opnd::I8(swap)];
            self.f.def(Code::VEX_Vpermilps_xmm_xmmm128_imm8, &ops);
            v = self.binary_vector(op.op(), dt, 4, Val::R(v), Val::R(t), None)?;
        }
        if dt.is_float() {
            return Ok(Val::R(v));
        }
        let r = self.f.reg(Size::Q);
        self.f.emit(Code::VEX_Vmovd_rm32_xmm, &[Opnd::R(r, Size::D), Opnd::R(v, Size::X)], 1, !1, 9);
        if dt == DType::Bool {
            self.f.update(Code::And_rm32_imm32, &[Opnd::R(r, Size::D), Opnd::I32(1)]);
        }
        Ok(Val::R(r))
    }
}
