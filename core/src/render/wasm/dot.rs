//! Dot products of pairs of narrow integers: an i32 update `acc += a * b` is emitted as `i32x4.dot_i16x8_s` and an
//! addition, where it is folded over an axis of length 2 (the pair) that is contiguous in memory in both factors. The
//! pairs of a factor either follow each other lane by lane, as in a packed panel, or are one pair for all lanes.

use super::emit::{Emit, NONE};
use super::func::at;
use super::layout::{Form, within_slack};
use crate::uop::{Op, UOp};
use crate::{DType, Result};
use smallvec::SmallVec;
use wasm_encoder::ValType;

/// The key of a loaded pair vector: the load, the number of its element, and the chunk of lanes.
pub(super) type PairKey = (UOp, u32, u32);

impl Emit<'_> {
    /// The axis of length 2 over which an AccMulAdd can be emitted as dot products of pairs, if there is one.
    pub(super) fn pairs_of(&self, u: UOp) -> Option<u8> {
        let g = &self.p.g;
        let [acc, a, b] = *g.src(u) else { return None };
        if g.op(u) != Op::AccMulAdd || g.dtype(acc) != DType::I32 || self.info(acc).form != Form::Vec {
            return None;
        }
        let own = &self.info(acc).axes;
        let mut folded = self.info(u).axes.iter().filter(|a| a.1 == 2 && !own.contains(a));
        folded.find(|f| [a, b].iter().all(|&x| self.has_pairs(x, f.0))).map(|f| f.0)
    }

    fn has_pairs(&self, x: UOp, axis: u8) -> bool {
        let g = &self.p.g;
        let load = g.src_at(x, 0);
        if g.op(x) != Op::Cast || g.op(load) != Op::Load {
            return false;
        }
        let (index, lane) = (g.src_at(load, 0), self.info(load).lane);
        let varies = |u: UOp| self.info(u).lane || self.info(u).axes.iter().any(|a| a.0 == axis);
        if let [_, alt, gate] = *g.src(load) {
            let whole = self.info(gate).axes.iter().all(|a| a.0 != axis) && (lane || !self.info(gate).lane);
            if !whole || !within_slack(self.p, index) || g.const_val(alt).is_none_or(|c| !c.is(0)) {
                return false;
            }
        }
        let info = self.info(load);
        // elements that are already in locals must not be loaded again, since memory may have changed
        let unread = (0..info.count * if lane { self.chunks() } else { 1 })
            .all(|n| self.vals.get((info.slot + n) as usize).is_none_or(|&v| v == NONE));
        let narrow = match g.dtype(load) {
            DType::I16 => true,
            DType::I8 | DType::U8 => lane,
            _ => false,
        };
        narrow
            && unread
            && self.p.stride(index, axis) == 1
            && !varies(g.src_at(index, 1))
            && (!lane || self.p.lane_stride(index, self.layout.lanes) == 2)
    }

    /// Emits the update as dot products over the pairs of `axis`.
    pub(super) fn update_pairs(&mut self, u: UOp, axis: u8) -> Result<()> {
        let src = self.p.g.srcs(u);
        let (ui, ai) = (self.info(u).axes.clone(), self.info(src[0]).axes.clone());
        let mut axes: SmallVec<[(u8, u32); 4]> =
            ui.into_iter().filter(|a| a.0 != axis && !ai.iter().any(|b| b.0 == a.0)).collect();
        axes.extend(ai);
        for n in 0..axes.iter().map(|a| a.1).product() {
            self.set_tile_point(&axes, n);
            self.tile_point[axis as usize] = 0;
            for c in 0..self.chunks() {
                self.chunk = c;
                let local = self.vals[self.slot(src[0], 0) as usize];
                self.pair(src[1])?;
                self.pair(src[2])?;
                self.f.w().i32x4_dot_i16x8_s().local_get(local).i32x4_add().local_set(local);
            }
        }
        Ok(())
    }

    /// Pushes four pairs of a factor as a vector of i16: one pair per lane, or the same pair in all lanes.
    fn pair(&mut self, x: UOp) -> Result<()> {
        let g = &self.p.g;
        let load = g.src_at(x, 0);
        let (src, dt, info) = (g.srcs(load), g.dtype(load), self.info(load));
        let lane = info.lane;
        let key = (load, self.number(&info.axes), if lane { self.chunk } else { 0 });
        if let Some(&local) = self.pairs.get(&key) {
            self.f.w().local_get(local);
            return Ok(());
        }
        let offset = self.push_addr(src[0], src.len() > 1)?;
        match (lane, dt) {
            (false, _) => self.f.w().v128_load32_splat(at(offset, 2)),
            (_, DType::I8) => self.f.w().v128_load8x8_s(at(offset, 1)),
            (_, DType::U8) => self.f.w().v128_load8x8_u(at(offset, 1)),
            _ => self.f.w().v128_load(at(offset, 2)),
        };
        if let Some(&gate) = src.get(2) {
            self.vec(gate)?;
            self.f.w().v128_and();
        }
        let local = self.f.local(ValType::V128);
        self.f.w().local_tee(local);
        self.remember_pair(key, local);
        Ok(())
    }
}
