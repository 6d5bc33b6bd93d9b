//! Stores of lanes that are not contiguous, where other elements of the same tile fill the gaps: vectors are transposed
//! or interleaved in registers, so that contiguous vectors are stored.

use super::{Lower, Opnd};
use crate::Result;
use crate::render::linear::lower::{Tile, vec_size, wide};
use crate::render::linear::mir::{Size, VReg};
use crate::uop::{Op, UOp};
use iced_x86::Code;

impl Lower<'_> {
    /// The register axis along which an ungated store is contiguous although its lanes are not. Squares of 8 by 8
    /// elements are then transposed in registers.
    pub(super) fn transposed_axis(&self, u: UOp) -> Option<(u8, u16)> {
        let [index, value] = *self.g.src(u) else { return None };
        let (tile, offset) = (&self.tiles[u.0 as usize], self.g.src_at(index, 1));
        let strided = self.lane_stride(index).is_some_and(|s| s > 1);
        if !strided || !tile.lane.is_multiple_of(8) || wide(self.g.dtype(value)) || !self.computable_by_eight(value) {
            return None;
        }
        let scalar = self.tiles[offset.0 as usize].regs.is_empty();
        let along = |a: &&(u8, u16)| a.1 % 8 == 0 && self.p.stride(index, self.p.tiles[a.0 as usize].id) == 1;
        tile.regs.iter().find(along).copied().filter(|_| scalar)
    }

    /// Can eight lanes of a value be computed at a time, although vectors elsewhere are wider? Values computed at their
    /// own position in the order and accumulators exist in full width only.
    fn computable_by_eight(&self, value: UOp) -> bool {
        let mut stack = vec![value];
        while let Some(u) = stack.pop() {
            let op = self.g.op(u);
            if self.tiles[u.0 as usize].lane > 0 && (self.eager[u.0 as usize] || !(op.is_alu() || op == Op::Load)) {
                return false;
            }
            if op.is_alu() {
                stack.extend_from_slice(self.g.src(u));
            }
        }
        true
    }

    pub(super) fn store_transposed(&mut self, index: UOp, value: UOp, tile: &Tile, axis: (u8, u16)) -> Result<()> {
        let (y, dt) = (|r| Opnd::R(r, Size::Y), self.g.dtype(value));
        for pt in tile.points().into_iter().filter(|p| p.0[axis.0 as usize] % 8 == 0) {
            for off in (0..tile.lane).step_by(8) {
                let mut rows = Vec::with_capacity(8);
                for i in 0..8 {
                    let mut at = pt;
                    at.0[axis.0 as usize] += i;
                    rows.push(self.demand_reg(value, &at, off, 8)?);
                }
                // an 8x8 transpose: interleave pairs of rows, then pairs of pairs, then swap halves
                let mut pairs = Vec::with_capacity(8);
                for two in rows.chunks(2) {
                    for code in [Code::VEX_Vunpcklps_ymm_ymm_ymmm256, Code::VEX_Vunpckhps_ymm_ymm_ymmm256] {
                        let r = self.f.reg(Size::Y);
                        self.f.def(code, &[y(r), y(two[0]), y(two[1])]);
                        pairs.push(r);
                    }
                }
                let mut fours = Vec::with_capacity(8);
                for four in pairs.chunks(4) {
                    for (k, imm) in [(0, 0x44), (0, 0xee), (1, 0x44), (1, 0xee)] {
                        let r = self.f.reg(Size::Y);
                        let ops = [y(r), y(four[k]), y(four[k + 2]), Opnd::I8(imm)];
                        self.f.def(Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8, &ops);
                        fours.push(r);
                    }
                }
                for i in 0..8 {
                    let (a, b) = (fours[i % 4], fours[i % 4 + 4]);
                    let r = self.f.reg(Size::Y);
                    let ops = [y(r), y(a), y(b), Opnd::I8(if i < 4 { 0x20 } else { 0x31 })];
                    self.f.def(Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, &ops);
                    let m = self.address(index, &pt, off + i)?;
                    self.store_vector(dt, 8, m, r);
                }
            }
        }
        Ok(())
    }

    /// Interleaves the lanes of two vectors into two vectors.
    pub(super) fn interleave(&mut self, a: VReg, b: VReg, w: usize) -> [VReg; 2] {
        let size = vec_size(w);
        let v = |r| Opnd::R(r, size);
        if w == 16 {
            return [0u32, 8].map(|from| {
                let order: Vec<u8> = (0..16u32).flat_map(|i| (from + i / 2 + 16 * (i % 2)).to_le_bytes()).collect();
                let order = self.pool(&order);
                // this instruction overwrites the register of the indices
                let r = self.move_to_fresh(order, w);
                self.f.update(Code::EVEX_Vpermi2ps_zmm_k1z_zmm_zmmm512b32, &[v(r), v(a), v(b)]);
                r
            });
        }
        let codes = match w {
            8 => [Code::VEX_Vunpcklps_ymm_ymm_ymmm256, Code::VEX_Vunpckhps_ymm_ymm_ymmm256],
            _ => [Code::VEX_Vunpcklps_xmm_xmm_xmmm128, Code::VEX_Vunpckhps_xmm_xmm_xmmm128],
        };
        let halves = codes.map(|code| {
            let r = self.f.reg(size);
            self.f.def(code, &[v(r), v(a), v(b)]);
            r
        });
        if w == 4 {
            return halves;
        }
        [0x20, 0x31].map(|parts| {
            let r = self.f.reg(size);
            let ops = [v(r), v(halves[0]), v(halves[1]), Opnd::I8(parts)];
            self.f.def(Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, &ops);
            r
        })
    }
}
