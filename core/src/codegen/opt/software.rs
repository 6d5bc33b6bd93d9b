//! The cost of a tile on a GPU that a CPU emulates (SwiftShader, lavapipe). Such an adapter fetches every component of
//! a vector separately, wherever it is in memory, and its compiler takes about as long for one such access as for four
//! multiply-adds of vectors: the length of a kernel counts beside its speed.

use super::heuristic::{Access, Tile, View};
use crate::analysis::work::work;
use crate::uop::UOp;

/// Milliseconds to compile a load or store of one component (`COMPILE_ACCESS`) and an operation on vectors
/// (`COMPILE_OP`).
const COMPILE_ACCESS: f64 = 0.6;
const COMPILE_OP: f64 = 0.17;
/// Nanoseconds that a thread takes to execute them, and for the control of one loop iteration (`RUN_LOOP`).
const RUN_ACCESS: f64 = 2.5;
const RUN_OP: f64 = 1.6;
const RUN_LOOP: f64 = 10.0;
/// The number of runs over which the time to compile is spread. It is small, because a user waits longest for the first
/// run.
const RUNS: f64 = 8.0;
/// Factor on the cost of an access with a gate.
const GATED: f64 = 1.4;
/// Milliseconds to compile the extraction of a component from a vector.
const COMPILE_PART: f64 = 0.05;
/// The most accumulator vectors of a tile: larger tiles are slower to compile and not faster.
const TILE: usize = 16;
/// The most iterations of a loop that is unrolled as a whole because its windows overlap.
const WINDOW: usize = 4;
/// The most vectors in the body of an unrolled loop.
pub(super) const BODY: usize = 8;

impl View<'_> {
    /// Is the target a GPU that a CPU emulates?
    pub(super) fn emulated(&self) -> bool {
        self.t.caps.has_local && self.t.machine.software
    }

    /// The innermost loop of the reduction, if it is short and its windows of some operand overlap along the lanes:
    /// unrolled as a whole, it loads each component once.
    pub(super) fn window(&self, tile: &Tile) -> Option<UOp> {
        let (r, lane) = (*self.reduce_axes.last()?, tile.lane.filter(|l| self.out_axes.contains(l))?);
        let slides = self.inner.iter().any(|a| self.slides(a, lane, r));
        (self.emulated() && slides && self.len(r) <= WINDOW).then_some(r)
    }

    fn slides(&self, a: &Access, lane: UOp, r: UOp) -> bool {
        let stride = |r: UOp| a.affine.stride(&self.k.g, r);
        stride(lane) == Some(1) && stride(r) == Some(1)
    }

    /// Components that a thread loads from `a` per step.
    fn components(&self, a: &Access, tile: &Tile) -> f64 {
        let ups = tile.ups.iter().filter(|u| u.0.is_some_and(|r| a.ranges >> self.id(r) & 1 == 1));
        let rows: usize = ups.map(|u| u.1).product();
        let along = tile.lane.filter(|l| a.ranges >> self.id(*l) & 1 == 1);
        let lanes = if along.is_some() { self.t.caps.lanes * tile.vectors } else { 1 };
        let gated = if a.gated == 0 { 1.0 } else { GATED };
        match self.window(tile) {
            Some(r) if along.is_some_and(|l| self.slides(a, l, r)) => {
                let n = self.len(r);
                (rows * (lanes + n - 1)) as f64 / n as f64 * gated
            }
            _ => (rows * lanes) as f64 * gated,
        }
    }

    /// Milliseconds to compile the kernel and run it [`RUNS`] times; `None` for tiles that are too large.
    pub(super) fn emulated_cost(&self, tile: &Tile) -> Option<f64> {
        let lanes = self.t.caps.lanes;
        let accs = tile.ups.iter().map(|u| u.1).product::<usize>() * tile.vectors;
        if accs > TILE {
            return None;
        }
        let loads: f64 = self.inner.iter().map(|a| self.components(a, tile)).sum();
        let steps: usize = self.reduce_axes.iter().map(|&r| self.len(r)).product();
        let outs: usize = self.out_axes.iter().map(|&r| self.len(r)).product();
        let reduced = tile.lane.is_some_and(|l| self.reduce_axes.contains(&l));
        let (stored, iterations) = match (tile.lane, reduced) {
            (None, _) => (accs, steps),
            (Some(_), true) => (accs, steps.div_ceil(lanes * tile.vectors)),
            (Some(_), false) => (accs * lanes, steps),
        };
        // the epilogue works on whole vectors only where the lanes are results
        let after = self.after as f64 * if reduced { (accs / tile.vectors) as f64 + 3.0 } else { accs as f64 };
        let padded = |l: UOp| (self.len(l).next_multiple_of(lanes * tile.vectors)) as f64 / self.len(l) as f64;
        let waste = tile.lane.filter(|l| self.out_axes.contains(l)).map_or(1.0, padded);
        let threads = waste * outs.div_ceil(if reduced { stored / tile.vectors } else { stored }.max(1)) as f64;
        let stored = (if reduced { stored / tile.vectors } else { stored }) as f64;
        let parts = tile.lane.is_some_and(|l| self.store_stride(l).is_some_and(|s| s != 1));
        let parts = if parts { stored * COMPILE_PART } else { 0.0 };
        let taps = self.window(tile).map_or(1.0, |r| self.len(r) as f64);
        let compile = (loads * taps + stored) * COMPILE_ACCESS + (accs as f64 * taps + after) * COMPILE_OP + parts;
        let each = iterations as f64 * (loads * RUN_ACCESS + accs as f64 * RUN_OP + RUN_LOOP / taps);
        let run = threads * (each + stored * RUN_ACCESS + after * RUN_OP) / 1e6;
        Some(compile + RUNS * run)
    }

    /// The cost of the operations after the reduction, in operations of an emulated GPU.
    pub(super) fn count_after(k: &crate::codegen::axes::Kernel, inside: &[UOp]) -> usize {
        let g = &k.g;
        let inside: rustc_hash::FxHashSet<_> = inside.iter().copied().collect();
        let own = |u: &UOp| !inside.contains(u) && g.op(*u).is_alu() && g.dtype(*u).is_float();
        k.nodes().into_iter().filter(own).map(|u| work(g.op(u)).emulated as usize).sum()
    }
}
