//! Cache hints for data that streams through memory: non-temporal stores and software prefetches.
//!
//! Results that are too large for the caches are written with non-temporal stores; ordinary stores would first read
//! each cache line that they overwrite.
//!
//! A kernel that reads a row of an operand several times misses the cache only in the first pass, and in the later
//! passes, while it computes, the hardware prefetcher fetches nothing. So the last load of each row element also
//! prefetches the same position of the next row, the one of the next grid step. The hardware prefetcher does not follow
//! a loop body either that jumps between cache lines, as with quantised weights whose blocks are stored as several
//! streams; there every line's position in the next row is prefetched.

use super::lower::{Lower, Point};
use super::machine::Machine;
use super::mir::Mem;
use crate::analysis::affine;
use crate::codegen::Program;
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::util::sort::ascending;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Row sizes in bytes for which prefetching pays: for shorter rows the hardware prefetcher keeps ahead, and of longer
/// ones the prefetched lines would be evicted before they are read.
const PREFETCH_ROW_BYTES: std::ops::RangeInclusive<i64> = 1 << 10..=256 << 10;
/// Operands of fewer bytes are not prefetched, because they stay in the caches.
const MIN_PREFETCH_BYTES: usize = 1 << 20;
/// Results of at least this many bytes are written with non-temporal stores, because they would not be in a cache any
/// more when the next kernel reads them.
const MIN_NON_TEMPORAL_BYTES: usize = 32 << 20;
/// Bytes of a cache line. Buffers are aligned to it.
const LINE: usize = 64;

/// A load of a part of a row: the loops that move it within the row with their strides, and the element of the row at
/// which it begins.
struct Part {
    load: UOp,
    along: SmallVec<[(UOp, i64); 6]>,
    begin: i64,
}

/// The loads that should prefetch the next row, with the distance to that row in bytes. They are loads of rows that
/// earlier loads read too: the last load of such a row or, if the row's cache lines are mostly not read in order, one
/// load for each line.
pub(in crate::render) fn prefetches(p: &Program) -> FxHashMap<UOp, i32> {
    let g = &p.g;
    let Some(grid) = p.launch_range(AxisKind::Grid(0)) else { return FxHashMap::default() };
    // by parameter slot and row length in elements; loads are in program order
    let mut rows: FxHashMap<(u32, i64), Vec<Part>> = FxHashMap::default();
    for &u in p.order.iter().filter(|&&u| g.op(u) == Op::Load && g.src(u).len() == 1) {
        let index = g.src_at(u, 0);
        let Some(slot) = p.slot(u) else { continue };
        let param = &p.params[slot as usize];
        let at = affine(g, g.src_at(index, 1));
        let Some(step) = at.stride(g, grid) else { continue };
        let bytes = step.saturating_mul(param.dtype.size() as i64);
        let streamed = param.len.saturating_mul(param.dtype.size()) >= MIN_PREFETCH_BYTES && !param.written;
        if PREFETCH_ROW_BYTES.contains(&bytes) && streamed && p.lane_stride(index, !0) == 1 {
            let mut along = at.terms;
            ascending(&mut along);
            rows.entry((slot, step)).or_default().push(Part { load: u, along, begin: at.constant });
        }
    }
    let mut distances = FxHashMap::default();
    for ((slot, step), parts) in rows.into_iter().filter(|(_, parts)| parts.len() > 1) {
        let size = p.params[slot as usize].dtype.size() as i64;
        let Some(last) = parts.last() else { continue };
        let mut add = |p: &Part| distances.insert(p.load, (step * size) as i32);
        // loads that advance along the row with the same loops as the last one
        let together: Vec<&Part> = parts.iter().filter(|p| p.along == last.along).collect();
        // consecutive lines are left to the hardware prefetcher
        let next = |w: &&[&Part]| (w[1].begin - w[0].begin) * size == LINE as i64;
        let in_order =
            together.is_sorted_by_key(|p| p.begin) || 2 * together.windows(2).filter(next).count() > together.len();
        let lanes = p.tile(last.load).iter().find(|a| a.lane).map_or(1, |a| a.len);
        if in_order || lanes as i64 * size > LINE as i64 {
            add(last);
            continue;
        }
        // excludes a part whose position in the next row another load reads in this iteration: it will be in the cache
        let again = |p: &&&Part| !together.iter().any(|q| q.begin == p.begin + step);
        let mut lines = FxHashSet::default();
        let mut first = |p: &&&Part| lines.insert((p.begin * size).div_euclid(LINE as i64));
        together.iter().rev().filter(again).filter(&mut first).for_each(|p| _ = add(p));
    }
    distances
}

/// A number that a scalar index is known to be a multiple of.
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
    /// If the parameter of this access is written with non-temporal stores, a number of elements that the access's
    /// offset is a multiple of; otherwise `None`.
    pub(in crate::render) fn non_temporal_alignment(&self, index: UOp) -> Option<i64> {
        let g = self.g;
        let param = &self.p.params[self.p.slot(index)? as usize];
        let bytes = param.len.saturating_mul(param.dtype.size());
        let huge = bytes >= MIN_NON_TEMPORAL_BYTES && !param.read && param.dtype.size() >= 4;
        huge.then(|| multiple(g, g.src_at(index, 1)))
    }

    /// Do the `w` lanes from `off` begin at a multiple of `w` elements, as a non-temporal vector store requires?
    pub(in crate::render) fn is_vector_aligned(&self, index: UOp, unit: i64, pt: &Point, off: usize, w: usize) -> bool {
        let Arg::Strides(list) = self.g.arg(index) else { return false };
        let at = list.iter().map(|(id, stride)| {
            let i = self.p.tiles.iter().position(|t| t.id == *id).expect("a tile axis of the program");
            stride * if self.p.tiles[i].lane { off as i64 } else { pt.0[i] as i64 }
        });
        gcd(unit, at.sum()) % w as i64 == 0
    }

    /// Beside a load of `w` lanes from `m`, prefetches what the next grid step will read, once for each cache line.
    pub(in crate::render) fn prefetch_next_row(&mut self, load: UOp, m: Mem, off: usize, w: usize) {
        let Some(&bytes) = self.prefetch_distance.get(&load) else { return };
        let size = self.g.dtype(load).size();
        if w * size >= LINE || (off * size).is_multiple_of(LINE) {
            let disp = m.disp.saturating_add(bytes);
            M::prefetch(self, Mem { disp, ..m });
        }
    }
}
