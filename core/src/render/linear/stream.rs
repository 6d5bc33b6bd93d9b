//! What streams through memory. Results that no cache holds are written past the caches: else each of their lines is read
//! before it is written.
//!
//! Fetching ahead: a kernel that reads a row several times waits for memory at the first time only, and the processor then
//! fetches nothing while it computes. So where a row is read for the last time, the same place of the next one is fetched.
//! It fetches nothing ahead either where a body jumps from line to line, as for codes of which a block has several streams: there each
//! line's place in the next row is fetched.

use super::lower::{Lower, Point};
use super::machine::Machine;
use super::mir::Mem;
use crate::analysis::affine;
use crate::codegen::Program;
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::util::sort::ascending;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Bytes of a row: below, the processor is ahead by itself; above, the row would be gone before it is read.
const ROW: std::ops::RangeInclusive<i64> = 1 << 10..=256 << 10;
/// Smaller operands stay in the caches.
const LARGE: usize = 1 << 20;
/// Results of so many bytes are not in a cache when somebody reads them.
const HUGE: usize = 32 << 20;
/// Bytes of a cache line, which buffers are aligned to.
const LINE: usize = 64;

/// A load of a part of a row: the loops along which it goes there, and how many elements from the row's first one it begins.
struct Part {
    load: UOp,
    along: SmallVec<[(UOp, i64); 6]>,
    begin: i64,
}

/// The loads that are the last ones of a row which earlier loads read too, and the distance to the next row in bytes: one load, or one for each
/// line of a row whose lines are mostly not read one after the other.
pub(in crate::render) fn find(p: &Program) -> FxHashMap<UOp, i32> {
    let g = &p.g;
    let Some(grid) = p.launch_range(AxisKind::Grid(0)) else { return FxHashMap::default() };
    // per parameter, in the order of the program
    let mut rows: FxHashMap<(u32, i64), Vec<Part>> = FxHashMap::default();
    for &u in p.order.iter().filter(|&&u| g.op(u) == Op::Load && g.src(u).len() == 1) {
        let index = g.src_at(u, 0);
        let Some(slot) = p.slot(u) else { continue };
        let param = &p.params[slot as usize];
        let at = affine(g, g.src_at(index, 1));
        let Some(step) = at.stride(g, grid) else { continue };
        let bytes = step.saturating_mul(param.dtype.size() as i64);
        let streamed = param.len.saturating_mul(param.dtype.size()) >= LARGE && !param.written;
        if ROW.contains(&bytes) && streamed && p.lane_stride(index, !0) == 1 {
            let mut along = at.terms;
            ascending(&mut along);
            rows.entry((slot, step)).or_default().push(Part { load: u, along, begin: at.constant });
        }
    }
    let mut ahead = FxHashMap::default();
    for ((slot, step), parts) in rows.into_iter().filter(|(_, parts)| parts.len() > 1) {
        let size = p.params[slot as usize].dtype.size() as i64;
        let Some(last) = parts.last() else { continue };
        let mut add = |p: &Part| ahead.insert(p.load, (step * size) as i32);
        // those that go through the row together
        let together: Vec<&Part> = parts.iter().filter(|p| p.along == last.along).collect();
        // from one line to the next the processor is ahead by itself
        let next = |w: &&[&Part]| (w[1].begin - w[0].begin) * size == LINE as i64;
        let in_order =
            together.is_sorted_by_key(|p| p.begin) || 2 * together.windows(2).filter(next).count() > together.len();
        let lanes = p.tile(last.load).iter().find(|a| a.lane).map_or(1, |a| a.len);
        if in_order || lanes as i64 * size > LINE as i64 {
            add(last);
            continue;
        }
        // what another load has read in this turn is there in the next one
        let again = |p: &&&Part| !together.iter().any(|q| q.begin == p.begin + step);
        let mut lines = FxHashSet::default();
        let mut first = |p: &&&Part| lines.insert((p.begin * size).div_euclid(LINE as i64));
        together.iter().rev().filter(again).filter(&mut first).for_each(|p| _ = add(p));
    }
    ahead
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
