//! Opts for recurrences, kernels with a loop over steps whose intermediate values are kept in local arrays. In: such a
//! kernel. Out: opts that give lanes to the longest axis of each array and of the states, compute all states at once,
//! give each array a register tile, and pack weights in the order in which the tiles read them. Nothing is moved across
//! the loop over steps: an iteration reads all of what the one before stored.

use super::picked::{Loaded, Picked};
use super::{Level, Opt, Staging};
use crate::analysis::affine;
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Op, UOp};
use std::sync::OnceLock;

/// The most vectors along an axis that has lanes: all of these axes have the same number of lanes, and the result's
/// needs many registers for each vector.
const MAX_VECTORS: usize = 4;
/// Registers beside the accumulators, for operands that are loaded where they are used.
const SPARE_REGISTERS: usize = 6;
/// What a loop body costs beside its loads, in units of a vector load.
const LOOP: f64 = 0.25;
/// The most multiply-adds in a loop body.
const BODY: usize = 64;

type Choose = fn(&Kernel, &Target) -> Vec<Opt>;

/// [`choose_in`], set at run time: see [`crate::schedule::recurrence`].
static CHOOSE: OnceLock<Choose> = OnceLock::new();

/// Enables kernels that loop over the steps of a recurrence. Only WebAssembly modules have to call it; native builds
/// always have them enabled.
pub fn enable() {
    crate::schedule::recurrence::enable();
    CHOOSE.get_or_init(|| choose_in);
}

/// Chooses the opts.
pub(super) fn choose(k: &Kernel, t: &Target) -> Vec<Opt> {
    if cfg!(not(target_arch = "wasm32")) {
        enable();
    }
    CHOOSE.get().map_or(Vec::new(), |choose| choose(k, t))
}

fn choose_in(k: &Kernel, t: &Target) -> Vec<Opt> {
    let mut out = Picked::new(k, t);
    // the loop over the states is the last one: all of them are computed from the same values
    if let Some(&states) = k.ranges_of(AxisKind::Loop).last().filter(|&&r| is_over_states(k, r)) {
        out.push(Opt::upcast(out.id(states), k.g.range_len(states)));
    }
    let arrays: Vec<UOp> = out.k.nodes().into_iter().filter(|&u| out.k.g.op(u) == Op::Stage).collect();
    let axes: Vec<Vec<UOp>> = arrays.iter().map(|&u| out.k.g.src(u)[1..].to_vec()).collect();
    let mut along: Vec<Option<UOp>> = axes.iter().map(|list| longest(k, list)).collect();
    along.push(longest(k, &out.k.ranges_of(AxisKind::Loop)));
    let lengths: Vec<usize> = along.iter().flatten().map(|&r| k.g.range_len(r)).collect();
    let divides = |v: &usize| lengths.iter().all(|n| n.is_multiple_of(v * t.caps.lanes));
    // the last vector of an axis may begin before the end of the one before
    let overlaps = || lengths.iter().all(|&n| n >= t.caps.lanes).then_some(1);
    let vectors = (1..=MAX_VECTORS).rev().find(divides).or_else(overlaps);
    let Some(vectors) = vectors.filter(|_| t.caps.lanes > 1) else {
        out.unroll((1, 1));
        return out.opts;
    };
    for &r in along.iter().flatten() {
        out.push(Opt::lane(out.id(r), vectors * t.caps.lanes));
    }
    let mut tiles = vec![(1, vectors)];
    for (list, &wide) in axes.iter().zip(&along) {
        let Some(wide) = wide else { continue };
        let (n, by) = (k.g.range_len(wide), vectors * t.caps.lanes);
        let left = if n.is_multiple_of(by) { n / by } else { 1 };
        let rows = list.iter().copied().filter(|&r| r != wide).max_by_key(|&r| k.g.range_len(r));
        let (height, width) = tile(t, rows.map_or(1, |r| k.g.range_len(r)), left, vectors);
        if let Some(rows) = rows.filter(|_| height > 1) {
            out.push(Opt::upcast(out.id(rows), height));
        }
        if width > 1 {
            out.push(Opt::upcast(out.id(wide), width));
        }
        tiles.push((height, width * vectors));
    }
    out.unroll(tiles.into_iter().max_by_key(|x| x.0 * x.1).unwrap_or((1, vectors)));
    out.pack();
    out.opts
}

/// Is it the loop over the states, whose elements lie further apart in the result than steps do?
fn is_over_states(k: &Kernel, r: UOp) -> bool {
    let to = affine(&k.g, k.g.src_at(k.g.src_at(k.store(), 0), 1));
    let stride = |r: &UOp| to.stride(&k.g, *r).unwrap_or(0);
    k.ranges_of(AxisKind::Walk).iter().all(|w| stride(w) < stride(&r))
}

fn longest(k: &Kernel, axes: &[UOp]) -> Option<UOp> {
    axes.iter().copied().max_by_key(|&r| k.g.range_len(r))
}

/// The rows, and the groups of `vectors` vectors in each, that a register tile has: of the tiles that the registers hold
/// the one with the fewest loads for each multiply-add.
fn tile(t: &Target, rows: usize, groups: usize, vectors: usize) -> (usize, usize) {
    let mut best = (f64::INFINITY, 1, 1);
    for height in (1..=8).filter(|&h| rows.is_multiple_of(h)) {
        for width in (1..=8).filter(|&w| groups.is_multiple_of(w)) {
            let (loads, all) =
                (height as f64 * t.machine.broadcast + (width * vectors) as f64, height * width * vectors);
            let cost = (loads + LOOP) / all as f64;
            let fits = registers(t, height, width * vectors, 1) <= t.caps.vector_registers;
            if (fits || height * width == 1) && cost < best.0 {
                best = (cost, height, width);
            }
        }
    }
    (best.1, best.2)
}

/// The vector registers that a loop body of `iterations` takes with a tile of `height` rows of `width` vectors. Where
/// all loads come before the arithmetic, everything loaded is in registers at once.
fn registers(t: &Target, height: usize, width: usize, iterations: usize) -> usize {
    let loaded = if t.machine.hoists_loads { iterations * (height + width) } else { SPARE_REGISTERS };
    height * width + loaded
}

impl Picked<'_> {
    /// Unrolls each reduction; the largest tile has this many rows and vectors in a row.
    fn unroll(&mut self, (height, width): (usize, usize)) {
        let fits = |f: usize| {
            f * height * width <= BODY && registers(self.t, height, width, f) <= self.t.caps.vector_registers
        };
        let factors: Vec<usize> = [4, 2].into_iter().filter(|&f| fits(f)).collect();
        for r in self.k.reduces() {
            let Some(&last) = self.k.g.src(r)[1..].last() else { continue };
            let n = self.k.g.range_len(last);
            if let Some(&f) = factors.iter().find(|&&f| n.is_multiple_of(f)) {
                self.push(Opt::unroll(self.id(last), f));
            }
        }
    }

    /// Packs the weights that are the same in every run.
    fn pack(&mut self) {
        let k = self.k.clone();
        for Loaded { load: u, slot, number } in self.loads() {
            let is_matrix = matches!(k.g.arg(k.g.src_at(k.g.src_at(u, 0), 0)), Arg::Param { .. })
                && k.ranges().iter().any(|&r| k.g.kind(r).is_reduce() && k.g.depends(u, r));
            if is_matrix && k.constants.contains(&slot) {
                let staging = Staging { param: slot, load: number, level: Level::Outside, separate_windows: true };
                self.push(Opt::Stage(staging));
            }
        }
    }
}
