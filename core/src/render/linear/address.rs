//! Turns the offset of an access into a machine address: base register + index register * element size + displacement.
//! Constant addends and the strides of tile axes go into the displacement, so that the elements of a tile share one
//! index register.

use super::lower::{Lower, Point, Val, wide};
use super::machine::Machine;
use super::mir::{Base, Mem, Size, VReg};
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Result};

/// Do elements of this dtype have the same 32 bits in memory as in a vector lane?
pub(in crate::render) fn is_word(dt: DType) -> bool {
    matches!(dt, DType::F32 | DType::I32 | DType::U32)
}

impl<M: Machine> Lower<'_, M> {
    /// A scalar index at one element of a tile, as a 64-bit register or a constant. A negative 32-bit value is
    /// sign-extended; values that cannot be negative have a clear upper half already.
    pub(in crate::render) fn index64(&mut self, u: UOp, pt: &Point, off: usize) -> Result<Val> {
        let dt = self.g.dtype(u);
        let off = if self.tiles[u.0 as usize].lane == 0 { 0 } else { off };
        let key = (u, self.tiles[u.0 as usize].elem(pt), off as u16, 0);
        if let Some(v) = self.cached(key) {
            return Ok(v);
        }
        let v = self.demand(u, pt, off, 1)?;
        if matches!(v, Val::I(_)) || wide(dt) || dt.is_unsigned() || self.g.bounds(u).0 >= 0 {
            return Ok(v);
        }
        let s = self.reg(v, dt, 1)?;
        let r = M::sign_extend(self, s);
        if self.tiles[u.0 as usize].lane == 0 {
            self.remember(key, Val::R(r));
        }
        Ok(Val::R(r))
    }

    /// An offset in elements, split into a register and a constant.
    pub(in crate::render) fn offset(&mut self, mut u: UOp, pt: &Point, off: usize) -> Result<(Option<VReg>, i64)> {
        let mut more = 0i64;
        // a constant addend moves to the displacement if the sum in 32 bits can neither overflow nor change its sign
        while self.g.op(u) == Op::Add
            && let [x, c] = *self.g.src(u)
            && let (Some(c), (lo, hi)) = (self.g.const_int(c), self.g.bounds(x))
            && lo >= 0
            && hi.saturating_add(c) <= i32::MAX as i64
            && lo + c >= i32::MIN as i64
        {
            more += c;
            u = x;
        }
        Ok(match self.index64(u, pt, off)? {
            Val::I(v) => (None, more + v),
            Val::R(r) => (Some(r), more),
            v => (Some(self.reg(v, DType::I64, 1)?), more),
        })
    }

    /// The address of lane `off`.
    pub(in crate::render) fn address(&mut self, index: UOp, pt: &Point, off: usize) -> Result<Mem> {
        let (reg, disp) = self.offset(self.g.src_at(index, 1), pt, off)?;
        self.fixed_address(index, pt, off, reg, disp)
    }

    /// The address of lane `off` when the offset is `reg + disp` elements.
    pub(in crate::render) fn fixed_address(
        &mut self,
        index: UOp,
        pt: &Point,
        off: usize,
        mut reg: Option<VReg>,
        mut disp: i64,
    ) -> Result<Mem> {
        let g = self.g;
        let mut ptr = g.src_at(index, 0);
        while g.op(ptr) == Op::After {
            ptr = g.src_at(ptr, 0);
        }
        let size = g.dtype(index).size() as i64;
        if let Arg::Strides(list) = g.arg(index) {
            for (id, stride) in list {
                let at = self.p.tiles.iter().position(|t| t.id == *id).expect("a tile axis of the program");
                let i = if self.p.tiles[at].lane { off as i64 } else { pt.0[at] as i64 };
                disp += stride * i;
            }
        }
        let mut bytes = disp * size;
        if i32::try_from(bytes.abs() + i32::MAX as i64 / 2).is_err() {
            let r = self.f.reg(Size::Q);
            self.move_to(r, Val::I(disp), DType::I64, 1);
            if let Some(i) = reg {
                M::add64(self, r, i);
            }
            (reg, bytes) = (Some(r), 0);
        }
        let base = match g.arg(ptr) {
            Arg::Param { slot, .. } => Base::Reg(self.params[slot]),
            Arg::Scratch { .. } => {
                let (r, at) = self.scratch[&ptr];
                bytes += at as i64;
                Base::Reg(r)
            }
            _ => return Err(self.unsupported(format!("an address from {}", g.op(ptr).name()))),
        };
        Ok(Mem { index: reg, scale: size as u8, ..Mem::at(base, bytes as i32) })
    }

    /// Are the elements of neighbouring lanes adjacent in memory?
    pub(in crate::render) fn contiguous(&self, index: UOp) -> bool {
        let offset = self.g.src_at(index, 1);
        self.tiles[offset.0 as usize].lane == 0 && self.p.lane_stride(index, !0) == 1
    }

    /// The distance of neighbouring lanes in memory, in elements, if it is the same for all lanes.
    pub(in crate::render) fn lane_stride(&self, index: UOp) -> Option<i64> {
        let offset = self.g.src_at(index, 1);
        (self.tiles[offset.0 as usize].lane == 0).then(|| self.p.lane_stride(index, !0))
    }
}
