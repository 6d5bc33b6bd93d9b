//! Sliding windows over an operand that no other tile reads, as in a depthwise convolution: a row of a tile reads at
//! one tap what the row before reads at the next tap. In: a contraction and a candidate tile. Out: the axis whose taps
//! are unrolled together, so that each row is loaded once, and a staged copy (`stage`) of operands that have a mask.
//! For machines whose emitter shares such loads (`render/linear/share.rs`).

use super::heuristic::{Access, Tile, View};
use super::{Level, Opt, Staging};
use crate::uop::UOp;
use std::cmp::Reverse;

/// The most multiply-adds in the body of a loop over such windows.
const BODY: usize = 128;
/// Windows with at most this many taps are unrolled as a whole anyway.
const UNROLLED_TAPS: usize = 3;

/// A window that slides over the rows of a tile.
#[derive(Clone, Copy)]
pub(super) struct Slide {
    /// The axis of the reduction along which the window slides.
    pub(super) taps: UOp,
    /// Rows of the tile along that axis; may be 1.
    pub(super) rows: usize,
    /// Number of taps by which a row is offset from the one before (the stride).
    step: usize,
    /// The lanes are not contiguous in memory; only a transposing copy makes them so.
    transposed: bool,
}

impl View<'_> {
    /// The window of the factor `a` of a product that slides over the rows of a tile, if no other tile reads these
    /// elements.
    pub(super) fn sliding_rows(&self, a: &Access, tile: &Tile) -> Option<Slide> {
        let lane =
            tile.lane.filter(|l| self.may_overlap_and_stage && self.shares_loads() && self.out_axes.contains(l))?;
        let stride = |r: UOp| a.affine.stride(&self.k.g, r).filter(|&s| s > 0);
        let up = |r: UOp| tile.ups.iter().find(|u| u.0 == Some(r)).map_or(1, |u| u.1);
        let alone =
            self.reuse(a, tile) == 1 && tile.ups.iter().all(|u| u.1 == 1 || u.0.is_some_and(|r| a.has(self.id(r))));
        let transposed = self.is_transposed(a, tile);
        if self.inner.len() != 2 || a.constant || !(stride(lane) == Some(1) || transposed) || !alone {
            return None;
        }
        let along = |r: UOp| {
            let steps = |x: UOp| stride(r).zip(stride(x)).filter(|(s, x)| s % x == 0).map(|(s, x)| (s / x) as usize);
            self.reduce_axes.iter().find_map(|&x| Some((x, steps(x).filter(|&n| n < self.len(x))?)))
        };
        let slides = self.out_axes.iter().filter(|&&r| r != lane).filter_map(|&r| {
            let (taps, step) = along(r)?;
            Some(Slide { taps, rows: up(r), step, transposed })
        });
        slides.max_by_key(|s| s.rows).filter(|s| self.len(s.taps) > UNROLLED_TAPS)
    }

    /// Is the stride of the lanes in `a` at least as large as the extent of a window, so that a copy can transpose `a`
    /// to make the lanes contiguous?
    pub(super) fn is_transposed(&self, a: &Access, tile: &Tile) -> bool {
        let stride = |r: UOp| a.affine.stride(&self.k.g, r);
        let reach = self.reduce_axes.iter().map(|&r| stride(r).map(|s| s.saturating_mul(self.len(r) as i64)));
        let reach = reach.max().flatten();
        tile.lane.and_then(stride).zip(reach).is_some_and(|(s, reach)| s > 2 && s >= reach)
    }

    /// The number of contiguous elements that a window reads as it slides along its row. If they fill vectors, a copy
    /// transposes them in registers instead of element by element.
    fn row_of(&self, a: &Access, tile: &Tile) -> usize {
        let stride = |r: UOp| a.affine.stride(&self.k.g, r);
        let Some(taps) = self.reduce_axes.iter().find(|&&r| stride(r) == Some(1)).map(|&r| self.len(r)) else {
            return 0;
        };
        let slides = self.out_axes.iter().filter(|&&r| Some(r) != tile.lane);
        let steps = slides.filter_map(|&r| Some((usize::try_from(stride(r)?).ok()?, self.len(r))));
        taps + steps.filter(|x| x.0 > 0 && x.0 < taps).map(|x| x.0 * (x.1 - 1)).sum::<usize>()
    }

    /// Does a copy of `a` transpose whole vectors in registers?
    pub(super) fn transposes_in_registers(&self, a: &Access, tile: &Tile) -> bool {
        self.is_transposed(a, tile) && self.row_of(a, tile) >= tile.width
    }

    /// Cost per step of loading such rows: directly from memory, and from a copy, which has no masks. Without masks
    /// each row is loaded once, if all taps are in the loop's body and there are registers for the rows.
    pub(super) fn sliding_cost(&self, a: &Access, tile: &Tile) -> Option<[f64; 2]> {
        let slide = self.sliding_rows(a, tile)?;
        let all: usize = tile.ups.iter().map(|u| u.1).product();
        let (taps, rows, width) = (self.len(slide.taps), slide.rows, tile.width.min(self.t.caps.lanes));
        // most such vectors straddle two cache lines
        let whole = self.vector_load(tile);
        let lines = if slide.transposed { 1.0 } else { 1.0 + (width * 4) as f64 / 64.0 };
        let each = (all * tile.vectors) as f64 * whole * lines;
        let read = ((rows - 1) * slide.step + taps).min(rows * taps);
        let once = if self.shares(tile, slide.taps) { read as f64 / (rows * taps) as f64 } else { 1.0 };
        let rounded_up = width == self.t.caps.lanes && tile.lane.is_some_and(|l| self.len(l) < tile.width);
        let there = match () {
            () if slide.transposed => self.access_cost(a, tile, self.t.caps.lanes),
            () if a.gated != 0 || rounded_up => each,
            () => once * each,
        };
        Some([there, once * each])
    }

    /// Cost of loading a vector of a tile, in half cycles: one, or two where a multiply-add of the widest vectors takes
    /// a whole cycle, because such a machine also loads only one of them per cycle.
    pub(super) fn vector_load(&self, tile: &Tile) -> f64 {
        if tile.width >= self.t.caps.lanes { 2.0 * self.t.machine.multiply_add } else { 1.0 }
    }

    /// The fraction of loads that remain of an operand that all lanes share: the results along an axis read at one tap
    /// what their neighbours read at the next, and a body with all taps loads each element once, if there are registers
    /// for a row.
    pub(super) fn taps_share(&self, a: &Access, tile: &Tile) -> f64 {
        let results = tile.ups.iter().map(|u| u.1).product::<usize>() * tile.vectors;
        let stride = |r: UOp| a.affine.stride(&self.k.g, r).filter(|&s| s != 0);
        let taps = self.reduce_axes.last().copied().filter(|&r| (2..=self.unrolled(results)).contains(&self.len(r)));
        let Some(taps) = taps.filter(|_| self.shares_loads() && tile.lane.is_some_and(|l| !a.has(self.id(l)))) else {
            return 1.0;
        };
        let row = tile.ups.iter().find(|u| u.1 > 1 && u.0.is_some_and(|r| stride(r) == stride(taps)));
        let Some(&(_, row)) = row.filter(|_| stride(taps).is_some()) else { return 1.0 };
        let read = row + self.len(taps) - 1;
        if results + read + tile.vectors >= self.registers() {
            1.0
        } else {
            read as f64 / (row * self.len(taps)) as f64
        }
    }

    /// The axis whose taps share the rows of a tile, if there is one.
    pub(super) fn shared_rows(&self, tile: &Tile) -> Option<UOp> {
        let slides = self.inner.iter().find_map(|a| self.sliding_rows(a, tile));
        slides.filter(|s| s.rows > 1 && self.shares(tile, s.taps)).map(|s| s.taps)
    }

    /// Does the machine's emitter share loads? The condition on the build keeps this code out of browser builds, which
    /// have no such machine.
    fn shares_loads(&self) -> bool {
        cfg!(feature = "x86") && self.t.caps.memory_operands
    }

    /// Are there registers for everything that all taps of a tile's rows read, and is the unrolled body short enough?
    fn shares(&self, tile: &Tile, r: UOp) -> bool {
        let rows: usize = tile.ups.iter().map(|u| u.1).product();
        let registers = if tile.width < self.t.caps.lanes { 16.min(self.registers()) } else { self.registers() };
        self.len(r) * rows * tile.vectors <= BODY && (2 * rows + 1) * tile.vectors < registers
    }

    /// Is `a` read by one tile only, but through overlapping windows, so that staging a copy of it is cheaper? The
    /// factors are those of a tile's cost, which counts half of what is read and two thirds of what is copied.
    pub(super) fn is_staged_once(&self, a: &Access, tile: &Tile) -> bool {
        let staged = self.staged_cost(a, tile).filter(|s| !s.separate_windows);
        self.shares_loads()
            && self.reuse(a, tile) == 1
            && staged.is_some_and(|s| s.read / 2.0 + s.copy / 1.5 < self.plain_cost(a, tile) / 2.0)
    }

    /// Appends the opt that stages an operand that only one tile reads.
    pub(super) fn stage_once(&self, a: &Access, tile: &Tile, opts: &mut Vec<Opt>) {
        let (level, _) = self.copied_once(a, tile);
        opts.push(Opt::Stage(Staging { param: a.slot.unwrap_or(0), load: 0, level, separate_windows: false }));
    }

    /// The level at which a copy of an operand that only one tile reads is made, and the number of elements copied in
    /// all. The tiles along an axis whose windows overlap share a copy, if it takes at most three quarters of the L1
    /// cache. A transposed copy may take the L2 cache: transposing takes longer than fetching the copy from there.
    pub(super) fn copied_once(&self, a: &Access, tile: &Tile) -> (Level, usize) {
        let loops: Vec<UOp> = self.out_axes.iter().copied().filter(|&r| self.tiles_of(r, tile) > 1).collect();
        let first = self.t.machine.prices.caches[0].0 as usize * 3 / 4;
        let capacity = if self.is_transposed(a, tile) { self.t.machine.caches.panel } else { first } / a.size;
        // elements that are copied in all, if the copies are made inside of the first `i` loops
        let copied = |i: usize| {
            let (_, elems) = self.panel(a, tile, &loops[i..]);
            let times = loops[..i].iter().fold(elems, |n, &r| n.saturating_mul(self.tiles_of(r, tile)));
            (elems > capacity && i < loops.len(), times, Reverse(i))
        };
        let all = (loops.len().min(1)..=loops.len()).map(copied).min();
        let (_, elems, Reverse(i)) = all.unwrap_or((false, 0, Reverse(loops.len())));
        (i.checked_sub(1).map_or(Level::Outside, |i| Level::In(self.id(loops[i]))), elems)
    }
}
