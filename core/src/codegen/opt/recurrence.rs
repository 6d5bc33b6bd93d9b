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
/// Registers beside the accumulators, for operands that are loaded where they are used: at least so many.
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
    let sums: Vec<Sum> = arrays.iter().zip(&along).filter_map(|(&u, &wide)| Sum::of(k, u, wide?)).collect();
    let cost = |v: &usize| -> f64 { sums.iter().map(|s| s.tile(t, *v).cost * s.terms as f64).sum() };
    let vectors = (1..=MAX_VECTORS).rev().filter(divides).min_by(|a, b| cost(a).total_cmp(&cost(b))).or_else(overlaps);
    let Some(vectors) = vectors.filter(|_| t.caps.lanes > 1) else {
        out.unroll((1, 1));
        return out.opts;
    };
    for &r in along.iter().flatten() {
        out.push(Opt::lane(out.id(r), vectors * t.caps.lanes));
    }
    let mut tiles = vec![(1, vectors)];
    for sum in &sums {
        let Tile { height, width, .. } = sum.tile(t, vectors);
        if let Some(rows) = sum.rows.filter(|_| height > 1) {
            out.push(Opt::upcast(out.id(rows), height));
        }
        if width > 1 {
            out.push(Opt::upcast(out.id(sum.wide), width));
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

/// An array whose elements are sums (a state's products with the weights), or other values: what the choice of its
/// register tile depends on.
struct Sum {
    /// The axis along which the array has lanes, and the longest one of the others.
    wide: UOp,
    rows: Option<UOp>,
    /// Their lengths.
    lengths: (usize, usize),
    /// The number of terms of all its elements' sums; an element that is no sum counts as one term.
    terms: usize,
    /// Bytes of the matrix that it is multiplied with, which all rows share.
    bytes: usize,
}

/// A register tile: its rows, and the groups of vectors in each row.
struct Tile {
    height: usize,
    width: usize,
    /// What its loads cost for each multiply-add of a vector, in units of a vector load.
    cost: f64,
}

impl Sum {
    fn of(k: &Kernel, stage: UOp, wide: UOp) -> Option<Sum> {
        let g = &k.g;
        let axes = &g.src(stage)[1..];
        let rows = axes.iter().copied().filter(|&r| r != wide).max_by_key(|&r| g.range_len(r));
        let lengths = (g.range_len(wide), rows.map_or(1, |r| g.range_len(r)));
        let inside = g.reachable(&[g.src_at(stage, 0)]).into_iter().filter(|&u| g.op(u) == Op::Reduce);
        let reduced = inside.flat_map(|u| g.src(u)[1..].to_vec()).filter(|&r| g.kind(r).is_reduce());
        let depth = reduced.map(|r| g.range_len(r)).max().unwrap_or(1);
        let elements = axes.iter().map(|&r| g.range_len(r)).fold(1, usize::saturating_mul);
        let bytes = lengths.0.saturating_mul(depth).saturating_mul(g.dtype(stage).size());
        Some(Sum { wide, rows, lengths, terms: elements.saturating_mul(depth), bytes })
    }

    /// Of the tiles that the registers hold, with groups of `vectors` vectors, the one whose loads cost least for each
    /// multiply-add. The operand of the vectors comes from the cache in which it fits, once for each tile in a column.
    /// Where tiles do not divide the array, the last one begins before the end of the one before.
    fn tile(&self, t: &Target, vectors: usize) -> Tile {
        let (groups, rows) = (self.lengths.0.div_ceil(vectors * t.caps.lanes), self.lengths.1);
        let prices = t.machine.prices;
        let missed = prices.caches.iter().filter(|(capacity, _)| self.bytes as f64 > *capacity).map(|(_, ns)| ns);
        let vector_bytes = (t.caps.lanes * size_of::<f32>()) as f64;
        let vector = 1.0 + missed.sum::<f64>() * vector_bytes / (prices.cycle * prices.vector_load);
        let mut best = Tile { height: 1, width: 1, cost: f64::INFINITY };
        for height in 1..=rows.min(8) {
            for width in 1..=groups.min(8) {
                let loads = height as f64 * t.machine.broadcast + (width * vectors) as f64 * vector;
                let tiles = rows.div_ceil(height) * groups.div_ceil(width);
                let cost = (loads + LOOP) * tiles as f64 / (rows * groups * vectors) as f64;
                let fits = registers(t, height, width * vectors, 1) <= t.caps.vector_registers;
                if (fits || height * width == 1) && cost < best.cost {
                    best = Tile { height, width, cost };
                }
            }
        }
        best
    }
}

/// The vector registers that a loop body of `iterations` takes with a tile of `height` rows of `width` vectors. Where
/// all loads come before the arithmetic, everything loaded is in registers at once; elsewhere the elements of all rows
/// are, with two vectors.
fn registers(t: &Target, height: usize, width: usize, iterations: usize) -> usize {
    let loaded = if t.machine.hoists_loads { iterations * (height + width) } else { SPARE_REGISTERS.max(height + 2) };
    height * width + loaded
}

impl Picked<'_> {
    /// Unrolls each reduction; the largest tile has this many rows and vectors in a row.
    fn unroll(&mut self, (height, width): (usize, usize)) {
        let fits = |f: usize| {
            f * height * width <= BODY && registers(self.t, height, width, f) <= self.t.caps.vector_registers
        };
        let factors: Vec<usize> = [4, 3, 2].into_iter().filter(|&f| fits(f)).collect();
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
