//! What streams through memory. Results that no cache holds are written past the caches: else each of their lines is read
//! before it is written.
//!
//! Fetching ahead: a kernel that reads a row several times waits for memory at the first time only, and the processor then
//! fetches nothing while it computes. So where a row is read for the last time, the same place of the next one is fetched.

use super::lower::{Lower, Point};
use super::machine::Machine;
use super::mir::Mem;
use crate::analysis::affine;
use crate::codegen::Program;
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use rustc_hash::FxHashMap;

/// Bytes of a row: below, the processor is ahead by itself; above, the row would be gone before it is read.
const ROW: std::ops::RangeInclusive<i64> = 1 << 10..=256 << 10;
/// Smaller operands stay in the caches.
const LARGE: usize = 1 << 20;
/// Results of so many bytes are not in a cache when somebody reads them.
const HUGE: usize = 32 << 20;
/// Bytes of a cache line, which buffers are aligned to.
const LINE: usize = 64;

/// The loads that are the last ones of a row which earlier loads read too, and the distance to the next row in bytes.
pub(in crate::render) fn find(p: &Program) -> FxHashMap<UOp, i32> {
    let g = &p.g;
    let Some(grid) = p.launch_range(AxisKind::Grid(0)) else { return FxHashMap::default() };
    // per parameter and row: the last load, and how many there are
    let mut rows: FxHashMap<(u32, i64), (UOp, usize)> = FxHashMap::default();
    for &u in p.order.iter().filter(|&&u| g.op(u) == Op::Load && g.src(u).len() == 1) {
        let index = g.src_at(u, 0);
        let Some(slot) = p.slot(u) else { continue };
        let param = &p.params[slot as usize];
        let Some(step) = affine(g, g.src_at(index, 1)).stride(g, grid) else { continue };
        let bytes = step.saturating_mul(param.dtype.size() as i64);
        let streamed = param.len.saturating_mul(param.dtype.size()) >= LARGE && !param.written;
        if ROW.contains(&bytes) && streamed && p.lane_stride(index, !0) == 1 {
            let seen = rows.entry((slot, bytes)).or_insert((u, 0));
            *seen = (u, seen.1 + 1);
        }
    }
    rows.into_iter().filter(|(_, (_, n))| *n > 1).map(|((_, bytes), (u, _))| (u, bytes as i32)).collect()
}

/// What a scalar index is known to be a multiple of.
fn multiple(g: &Graph, u: UOp) -> i64 {
    let of = |i: usize| multiple(g, g.src_at(u, i));
    match g.op(u) {
        Op::Const => g.const_int(u).unwrap_or(1).abs(),
        Op::Add | Op::Sub | Op::Min | Op::Max => gcd(of(0), of(1)),
        Op::Mul => of(0).saturating_mul(of(1)),
        Op::Shl => {
            g.const_int(g.src_at(u, 1)).filter(|c| (0..31).contains(c)).map_or(1, |c| of(0).saturating_mul(1 << c))
        }
        _ => 1,
    }
}

pub(in crate::render) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

impl<M: Machine> Lower<'_, M> {
    /// If results are written past the caches: what the offset of this address is a multiple of.
    pub(in crate::render) fn past_caches(&self, index: UOp) -> Option<i64> {
        let g = self.g;
        let param = &self.p.params[self.p.slot(index)? as usize];
        let bytes = param.len.saturating_mul(param.dtype.size());
        let huge = bytes >= HUGE && !param.read && param.dtype.size() == 4;
        huge.then(|| multiple(g, g.src_at(index, 1)))
    }

    /// Do `w` lanes from `off` on begin where a whole vector may be written past the caches?
    pub(in crate::render) fn on_line(&self, index: UOp, unit: i64, pt: &Point, off: usize, w: usize) -> bool {
        let Arg::Strides(list) = self.g.arg(index) else { return false };
        let at = list.iter().map(|(id, stride)| {
            let i = self.p.tiles.iter().position(|t| t.id == *id).expect("a tile axis of the program");
            stride * if self.p.tiles[i].lane { off as i64 } else { pt.0[i] as i64 }
        });
        gcd(unit, at.sum()) % w as i64 == 0
    }

    /// Fetches what the next step of the grid reads, beside a load of `w` lanes from `m` on.
    pub(in crate::render) fn fetch_ahead(&mut self, load: UOp, m: Mem, off: usize, w: usize) {
        let Some(&bytes) = self.ahead.get(&load) else { return };
        let size = self.g.dtype(load).size();
        if w * size >= LINE || (off * size).is_multiple_of(LINE) {
            let disp = m.disp.saturating_add(bytes);
            M::prefetch(self, Mem { disp, ..m });
        }
    }
}
