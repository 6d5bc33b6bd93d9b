//! Loads and stores. Contiguous lanes are one instruction; other lanes, and lanes with a gate each, go one by one. A
//! gate that is one scalar for all lanes selects the address of zeros where the alternative is zero, otherwise it is a
//! branch.

use super::table::{self, cond};
use super::{Lower, Opnd};
use crate::render::linear::Gate;
use crate::render::linear::address::is_word;
use crate::render::linear::lower::{Point, Val};
use crate::render::linear::mir::{Base, Mem, SelectedPointer, VReg};
use crate::uop::UOp;
use crate::{DType, Result};
use smallvec::SmallVec;

impl Lower<'_> {
    pub(super) fn load(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let (index, dt) = (self.g.src_at(u, 0), self.g.dtype(u));
        if w == 1 {
            return self.load_lane(u, pt, off);
        }
        let gate = match self.gate(u, pt, off, w) {
            Gate::Open => None,
            Gate::Closed => return self.demand(self.g.src_at(u, 1), pt, off, w),
            Gate::Conditional(gate) => Some(gate),
        };
        let lane_gate = gate.is_some_and(|g| self.tiles[g.0 as usize].lane > 0);
        if !self.contiguous(index) || lane_gate {
            return self.pack(dt, |l, i| l.load_lane(u, pt, off + i));
        }
        let m = self.address(index, pt, off)?;
        let Some(gate) = gate else {
            self.prefetch_next_row(u, m, off, w);
            return self.load_vector(dt, m).map(Val::R);
        };
        let alt_node = self.g.src_at(u, 1);
        if self.g.const_val(alt_node).is_some_and(|c| c.is(0)) {
            let m = self.select_address(gate, pt, off, m)?;
            return self.load_vector(dt, m).map(Val::R);
        }
        let (alt, r) = (self.demand(alt_node, pt, off, w)?, self.vector());
        self.move_to(r, alt, dt, w);
        let skip = self.skip_unless_gate(gate, pt, off)?;
        let v = self.load_vector(dt, m)?;
        self.move_to(r, Val::R(v), dt, w);
        self.f.label(skip);
        Ok(Val::R(r))
    }

    /// The address `m` if a scalar condition holds, otherwise that of a block of zeros, without a branch. Loads near
    /// each other under the same condition share the selected pointer.
    pub(super) fn select_address(&mut self, gate: UOp, pt: &Point, off: usize, m: Mem) -> Result<Mem> {
        // the largest distance in bytes of loads that share a pointer
        const SHARE_DISTANCE: i32 = 224;
        let condition = self.demand_reg(gate, pt, off, 1)?;
        let shareable = |c: &&SelectedPointer| {
            let same_base = Mem { disp: c.mem.disp, ..m } == c.mem;
            same_base && c.condition == condition && (m.disp - c.mem.disp).abs() <= SHARE_DISTANCE
        };
        if let Some(c) = self.f.selected_pointers.iter().find(shareable) {
            return Ok(Mem::at(Base::Reg(c.pointer), m.disp - c.mem.disp));
        }
        let zeros = self.f.pool.intern(&[0; 2 * SHARE_DISTANCE as usize + 64]) + SHARE_DISTANCE;
        let pointer = self.pointer(m);
        let other = self.general();
        self.f.def(table::ADR, &[self.opnd(other), Opnd::M(Mem::at(Base::Pool, zeros))]);
        self.compare_constant(false, condition, 0);
        let pointer = self.conditional_select(table::full(table::CSEL, true), pointer, other, cond::NE);
        self.f.selected_pointers.push(SelectedPointer { condition, mem: m, pointer });
        Ok(Mem::at(Base::Reg(pointer), 0))
    }

    /// Computes an address into a register.
    fn pointer(&mut self, m: Mem) -> VReg {
        // accesses through the selected pointer start at offset 0, so the whole address is added up
        let Mem { base: Base::Reg(base), disp, .. } = m else { unreachable!("the address of a buffer") };
        let mut r = base;
        if let Some(index) = m.index {
            let shift = Opnd::I32(m.scale.trailing_zeros() as i32);
            let sum = self.general();
            let ops = [self.opnd(sum), self.opnd(r), self.opnd(index), shift];
            self.f.def(table::full(table::ADD_SHIFTED, true), &ops);
            r = sum;
        }
        match disp {
            0 => r,
            1..4096 => self.emit_general_imm(table::full(table::ADD_IMM, true), r, disp),
            -4095..0 => self.emit_general_imm(table::full(table::SUB_IMM, true), r, -disp),
            _ => {
                let c = self.general();
                self.set(c, disp as i64);
                self.emit_general3(table::full(table::ADD, true), r, c)
            }
        }
    }

    /// Loads one lane.
    fn load_lane(&mut self, u: UOp, pt: &Point, off: usize) -> Result<Val> {
        let (index, dt) = (self.g.src_at(u, 0), self.g.dtype(u));
        let gate = match self.gate(u, pt, off, 1) {
            Gate::Open => None,
            Gate::Closed => return self.demand(self.g.src_at(u, 1), pt, off, 1),
            Gate::Conditional(gate) => Some(gate),
        };
        let m = self.address(index, pt, off)?;
        let Some(gate) = gate else {
            return Ok(self.load_scalar(dt, m));
        };
        let alt = self.demand(self.g.src_at(u, 1), pt, off, 1)?;
        let r = self.fresh(dt, 1);
        self.move_to(r, alt, dt, 1);
        let skip = self.skip_unless_gate(gate, pt, off)?;
        let v = self.load_scalar(dt, m);
        self.move_to(r, v, dt, 1);
        self.f.label(skip);
        Ok(Val::R(r))
    }

    /// Loads one element, extended to 32 bits if it is narrower.
    pub(super) fn load_scalar(&mut self, dt: DType, m: Mem) -> Val {
        let r = self.fresh(dt, 1);
        let code = match dt {
            DType::Bool => {
                self.access_into(table::LDRB, r, m);
                self.compare_constant(false, r, 0);
                return Val::R(self.flag(cond::NE));
            }
            DType::F16 | DType::BF16 => {
                self.access_into(table::LDR_H, r, m);
                return Val::R(match dt {
                    DType::F16 => self.emit_vector2(table::FCVT_S_H, r),
                    _ => self.emit_vector_imm(table::SHL_V, r, 32 + 16),
                });
            }
            DType::I8 => table::LDRSB,
            DType::U8 => table::LDRB,
            DType::I16 => table::LDRSH,
            DType::U16 => table::LDRH,
            DType::F32 => table::LDR_S,
            DType::F64 => table::LDR_D,
            _ if dt.size() == 8 => table::LDR_X,
            _ => table::LDR_W,
        };
        self.access_into(code, r, m);
        Val::R(r)
    }

    /// Loads four contiguous elements, extended to 32 bits if they are narrower.
    fn load_vector(&mut self, dt: DType, m: Mem) -> Result<VReg> {
        let code = match dt.size() {
            1 => table::LDR_S,
            2 => table::LDR_D,
            _ => table::LDR_Q,
        };
        let r = self.vector();
        self.access_into(code, r, m);
        Ok(match dt {
            DType::Bool => {
                let half = self.emit_vector2(table::UXTL_8, r);
                let full = self.emit_vector2(table::UXTL_16, half);
                self.emit_vector3(table::CMTST_V, full, full)
            }
            DType::U8 => {
                let half = self.emit_vector2(table::UXTL_8, r);
                self.emit_vector2(table::UXTL_16, half)
            }
            DType::I8 => {
                let half = self.emit_vector2(table::SXTL_8, r);
                self.emit_vector2(table::SXTL_16, half)
            }
            DType::U16 => self.emit_vector2(table::UXTL_16, r),
            DType::I16 => self.emit_vector2(table::SXTL_16, r),
            DType::F16 => self.emit_vector2(table::FCVTL, r),
            DType::BF16 => self.emit_vector2(table::SHLL_16, r),
            _ => r,
        })
    }

    /// Loads one 32-bit element into all lanes; `None` if it is gated or narrower.
    pub(super) fn load_broadcast(&mut self, u: UOp, pt: &Point) -> Result<Option<Val>> {
        let dt = self.g.dtype(u);
        if !is_word(dt) || self.gate(u, pt, 0, 1) != Gate::Open {
            return Ok(None);
        }
        let m = self.address(self.g.src_at(u, 0), pt, 0)?;
        let s = self.vector();
        self.access_into(table::LDR_S, s, m);
        Ok(Some(Val::R(self.emit_vector2(table::DUP_S, s))))
    }

    pub(super) fn store(&mut self, u: UOp) -> Result<()> {
        let src: SmallVec<[UOp; 4]> = self.g.srcs(u);
        let (index, value, gate) = (src[0], src[1], src.get(2).copied());
        let dt = self.g.dtype(value);
        let tile = self.tiles[u.0 as usize].clone();
        if let Some(axis) = self.p.woven(u) {
            return self.store_interleaved(index, value, &tile, axis.id);
        }
        // all lanes may store to one address: then they store in order, and the last one's value stays
        let contiguous = self.tiles[index.0 as usize].lane > 0 && self.contiguous(index);
        let lane_gate = gate.is_some_and(|g| self.tiles[g.0 as usize].lane > 0);
        for pt in tile.points() {
            for (off, w) in self.parts(tile.lane, dt) {
                if w == 1 || !contiguous || lane_gate {
                    for i in off..off + w {
                        self.store_lane(index, value, gate, &pt, i)?;
                    }
                    continue;
                }
                let v = self.demand_reg(value, &pt, off, w)?;
                let m = self.address(index, &pt, off)?;
                let skip = gate.map(|g| self.skip_unless_gate(g, &pt, off)).transpose()?;
                self.store_vector(dt, m, v);
                if let Some(l) = skip {
                    self.f.label(l);
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_scalar(&mut self, dt: DType, m: Mem, v: VReg) {
        let (code, v) = match dt {
            DType::F32 => (table::STR_S, v),
            DType::F64 => (table::STR_D, v),
            DType::F16 => (table::STR_H, self.emit_vector2(table::FCVT_H_S, v)),
            DType::BF16 => (table::STR_H, self.emit_vector_imm(table::USHR_V, v, 64 - 16)),
            _ => match dt.size() {
                1 => (table::STRB, v),
                2 => (table::STRH, v),
                4 => (table::STR_W, v),
                _ => (table::STR_X, v),
            },
        };
        self.store_from(code, v, m);
    }

    pub(super) fn store_vector(&mut self, dt: DType, m: Mem, v: VReg) {
        let (code, v) = match dt {
            DType::F16 => (table::STR_D, self.emit_vector2(table::FCVTN, v)),
            DType::BF16 => {
                let high = self.emit_vector_imm(table::USHR_V, v, 64 - 16);
                (table::STR_D, self.emit_vector2(table::XTN_16, high))
            }
            DType::Bool => {
                let bits = self.emit_vector_imm(table::USHR_V, v, 64 - 31);
                let half = self.emit_vector2(table::XTN_16, bits);
                (table::STR_S, self.emit_vector2(table::XTN_8, half))
            }
            _ => match dt.size() {
                1 => {
                    let half = self.emit_vector2(table::XTN_16, v);
                    (table::STR_S, self.emit_vector2(table::XTN_8, half))
                }
                2 => (table::STR_D, self.emit_vector2(table::XTN_16, v)),
                _ => (table::STR_Q, v),
            },
        };
        self.store_from(code, v, m);
    }
}
