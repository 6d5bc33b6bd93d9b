//! Opts that use matrix tiles, if the target has tiles for a contraction's dtypes. In: a contraction. Out: opts with
//! which an axis that only one operand depends on becomes the tile's rows, one that only the other depends on its
//! columns, and an axis of the reduction its summed dimension, each rounded up if the tile does not divide it. A
//! subgroup computes several adjacent tiles, so that what it loads is used more than once, and a workgroup consists of
//! a few subgroups.

use super::gpu::power_of_two_in;
use super::heuristic::View;
use super::{Level, Opt};
use crate::analysis::product::{sides, terms_of};
use crate::codegen::matrix::{self, takes};
use crate::target::MatrixTile;
use crate::uop::{Op, UOp};

/// For tiles without staging: the most tiles along each dimension of a subgroup's block, and the most elements of the
/// product that a thread holds.
const SIDE: usize = 4;
const HELD: usize = 64;
/// Threads of a workgroup, without staging.
const GROUP: usize = 128;

/// What a workgroup computes: the tiles of each subgroup along rows and columns, the subgroups along rows and columns,
/// and the steps of a tile (multiples of its summed dimension) that are copied at a time.
struct Block {
    tiles: [usize; 2],
    subgroups: [usize; 2],
    steps: usize,
}

const fn block(tiles: [usize; 2], subgroups: [usize; 2], steps: usize) -> Block {
    Block { tiles, subgroups, steps }
}

/// The blocks that are tried for staged factors. A thread's registers hold at most 128 elements of the product. Where
/// they leave no room for a second workgroup on a processor, the workgroup memory is free for more steps.
const BLOCKS: [Block; 11] = [
    block([4, 8], [2, 4], 4),
    block([4, 8], [4, 2], 4),
    block([4, 8], [2, 2], 2),
    block([4, 4], [2, 2], 2),
    block([2, 8], [2, 2], 2),
    block([2, 4], [2, 2], 2),
    block([2, 2], [2, 2], 4),
    block([1, 8], [1, 4], 2),
    block([1, 4], [1, 4], 2),
    block([1, 2], [1, 4], 2),
    block([1, 2], [1, 1], 4),
];
/// The blocks that are tried for tiles that read their factors from workgroup memory, for which a subgroup has 128
/// threads. Two such subgroups keep the matrix unit busy.
const BLOCKS_IN_MEMORY: [Block; 6] = [
    block([1, 1], [2, 1], 4),
    block([2, 1], [2, 1], 4),
    block([1, 1], [1, 2], 4),
    block([1, 1], [1, 1], 4),
    block([2, 1], [1, 1], 4),
    block([1, 2], [1, 1], 4),
];
/// The most elements of the product that a thread of such a subgroup holds.
const HELD_IN_MEMORY: usize = 128;
/// The fewest blocks of steps for which workgroup memory must have room, so that copies run ahead.
const LEAST_BLOCKS: usize = 3;

/// A tile, and the axes of the kernel that become its dimensions.
struct Choice<'a> {
    tile: &'a MatrixTile,
    axes: [UOp; 3],
    /// Factor by which rounding up the axes increases the number of products.
    work: f64,
}

impl View<'_> {
    /// Opts that use a matrix tile, if the target has one for the kernel and it pays.
    pub(super) fn matrix(&self) -> Option<Vec<Opt>> {
        if !self.t.has_tiles() {
            return None;
        }
        let [sum] = *self.k.reduces() else { return None };
        let pair = terms_of(&self.k.g, sum)?.pair;
        // if lowering to the tile fails in a trial, the kernel is compiled without it
        let does = |opts: &Vec<Opt>| {
            let mut trial = self.k.clone();
            trial.apply_all(opts, self.t).and_then(|()| matrix::lower(&mut trial, self.t)).is_ok()
        };
        if let Some(opts) = self.in_memory(sum, pair).filter(does) {
            return Some(opts);
        }
        let mut best: Option<Choice<'_>> = None;
        let held = |tile: &&MatrixTile| !tile.layout.in_memory() && takes(tile, &self.k.g, pair, sum);
        for tile in self.t.caps.matrix_tiles.iter().filter(held) {
            for c in [pair, [pair[1], pair[0]]].into_iter().filter_map(|pair| self.lay(tile, pair)) {
                if c.work <= self.t.machine.workgroups.tiles && best.as_ref().is_none_or(|b| c.work < b.work) {
                    best = Some(c);
                }
            }
        }
        let best = best?;
        self.staged(&best, pair).filter(does).or_else(|| Some(self.tile_opts(&best)).filter(does))
    }

    /// Do tiles divide the axes, and are both factors plain loads, so that they can be copied to workgroup memory
    /// unchanged?
    fn whole(&self, c: &Choice<'_>, pair: [UOp; 2]) -> bool {
        let g = &self.k.g;
        let divides = c.axes.iter().zip(c.tile.sides()).all(|(&r, side)| self.len(r).is_multiple_of(side));
        let loads = pair.iter().all(|&u| g.op(u) == Op::Load);
        divides && loads && g.dtype(pair[0]).size() == 2 && self.reduce_axes.len() == 1
    }

    /// Cost of a block: the number of rounds in which the processors compute all workgroups, times the cost of one,
    /// which `each` gives per element from its rows and columns. Infinite if the block does not divide the axes.
    fn cost(&self, c: &Choice<'_>, b: &Block, each: impl Fn(f64, f64) -> f64) -> f64 {
        let [m, n, _] = c.tile.sides();
        let left = [self.len(c.axes[0]) / m, self.len(c.axes[1]) / n];
        let sides = [0, 1].map(|i| b.tiles[i] * b.subgroups[i]);
        if (0..2).any(|i| !left[i].is_multiple_of(sides[i])) {
            return f64::INFINITY;
        }
        let others: usize = self.out_axes.iter().filter(|r| !c.axes.contains(r)).map(|&r| self.len(r)).product();
        let groups = others * (left[0] / sides[0]) * (left[1] / sides[1]);
        let waves = groups.div_ceil(self.t.machine.processors.max(1)) as f64;
        let (rows, columns) = ((sides[0] * m) as f64, (sides[1] * n) as f64);
        waves * rows * columns * each(rows, columns)
    }

    /// Opts for a tile that reads its factors from workgroup memory, where they are copied some blocks of the sum
    /// ahead.
    fn in_memory(&self, sum: UOp, pair: [UOp; 2]) -> Option<Vec<Opt>> {
        let w = self.t.machine.workgroups;
        let copies = self.t.caps.copies?;
        let takes = |tile: &&MatrixTile| tile.layout.in_memory() && takes(tile, &self.k.g, pair, sum);
        let mut best: Option<(f64, Choice<'_>, &Block)> = None;
        for tile in self.t.caps.matrix_tiles.iter().filter(takes) {
            for c in [pair, [pair[1], pair[0]]].into_iter().filter_map(|pair| self.lay(tile, pair)) {
                let ([m, n, k], terms) = (tile.sides(), self.len(c.axes[2]));
                let fits = |b: &&Block| {
                    let (rows, columns) = (b.tiles[0] * b.subgroups[0] * m, b.tiles[1] * b.subgroups[1] * n);
                    let held = b.tiles[0] * b.tiles[1] * tile.layout.c.held();
                    let n_blocks = terms / (b.steps * k);
                    let room = n_blocks.min(LEAST_BLOCKS) * (rows + columns) * b.steps * k * 2 <= copies.bytes;
                    room && n_blocks > 0 && terms.is_multiple_of(b.steps * k) && held <= HELD_IN_MEMORY
                };
                if !self.whole(&c, pair) {
                    continue;
                }
                for b in BLOCKS_IN_MEMORY.iter().filter(fits) {
                    let each = |rows: f64, columns: f64| {
                        let bytes = (rows + columns) as usize * (terms * 2).min(copies.blocks * b.steps * k * 2);
                        let alone = (rows * columns) as usize >= w.registers || 2 * bytes > copies.bytes;
                        let begins = if alone { w.tile_begins / terms as f64 } else { 0.0 };
                        (w.tile_rows[2] * (1.0 / rows + 1.0 / columns)).max(1.0) + begins
                    };
                    let cost = self.cost(&c, b, each);
                    if cost.is_finite() && best.as_ref().is_none_or(|best| cost < best.0) {
                        best = Some((cost, Choice { tile, axes: c.axes, work: c.work }, b));
                    }
                }
            }
        }
        let (_, c, b) = best?;
        self.block_opts(&c, b, b.steps, pair)
    }

    /// Opts that also copy the factors of a workgroup's tiles to workgroup memory, some blocks of the sum ahead, if the
    /// target can and tiles divide the axes.
    fn staged(&self, c: &Choice<'_>, pair: [UOp; 2]) -> Option<Vec<Opt>> {
        let w = self.t.machine.workgroups;
        let copies = self.t.caps.copies?;
        if !self.whole(c, pair) {
            return None;
        }
        let ([m, n, k], terms) = (c.tile.sides(), self.len(c.axes[2]));
        let cost = |b: &Block| {
            self.cost(c, b, |rows, columns| {
                let edges = |x: f64, y: f64| 1.0 / x + 1.0 / y;
                let part = edges((b.tiles[0] * m) as f64, (b.tiles[1] * n) as f64);
                let alone = if (rows * columns) as usize >= w.registers { w.tile_begins / terms as f64 } else { 0.0 };
                1.0 + w.tile_rows[0] * edges(rows, columns) + w.tile_rows[1] * part + alone
            })
        };
        let best = BLOCKS.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).filter(|b| cost(b).is_finite())?;
        let (rows, columns) = (best.tiles[0] * best.subgroups[0] * m, best.tiles[1] * best.subgroups[1] * n);
        let bytes = |steps: usize| (rows + columns) * (steps * k + 8) * 2;
        let fits = |s: &usize| (terms / k).is_multiple_of(*s) && LEAST_BLOCKS * bytes(*s) <= copies.bytes;
        let steps = [best.steps, 2, 1].into_iter().find(fits)?;
        self.block_opts(c, best, steps, pair).filter(|_| terms / k > steps)
    }

    /// The opts for a tile, a workgroup's block, and the staging of its factors.
    fn block_opts(&self, c: &Choice<'_>, b: &Block, steps: usize, pair: [UOp; 2]) -> Option<Vec<Opt>> {
        let [m, n, k] = c.tile.sides();
        let [row, column, terms] = c.axes.map(|r| self.id(r));
        let mut opts = vec![Opt::tile(row, m), Opt::tile(column, n), Opt::tile(terms, k)];
        let mut put = |o: Opt| opts.extend(Some(o).filter(|o| !matches!(o, Opt::Cut { by: 1, .. })));
        for (axis, i) in [(row, 0), (column, 1)] {
            put(Opt::upcast(axis, b.tiles[i]));
        }
        for (axis, i) in [(row, 0), (column, 1)] {
            put(Opt::local(axis, b.subgroups[i]));
        }
        let whole = self.len(c.axes[2]) == steps * k;
        if whole && steps > 1 {
            opts.push(Opt::unroll(terms, steps));
        } else if steps > 1 {
            // the inner axis of a split gets the next free id
            let mut trial = self.k.clone();
            trial.apply_all(&opts, self.t).ok()?;
            opts.extend([Opt::split(terms, steps), Opt::unroll(trial.next_id, steps)]);
        }
        for u in pair {
            let slot = self.k.slot_below(self.k.g.src_at(u, 0))?;
            opts.push(Opt::stage(slot, if whole { Level::Outside } else { Level::In(terms) }));
        }
        Some(opts)
    }

    /// For each dimension of the tile, the axis on which rounding up wastes least.
    fn lay<'a>(&self, tile: &'a MatrixTile, [a, b]: [UOp; 2]) -> Option<Choice<'a>> {
        let g = &self.k.g;
        let pair = [g.ranges(a), g.ranges(b)];
        let [rows, columns] = sides(g, &self.out_axes, pair).own;
        let [m, n, k] = tile.sides();
        let waste = |r: UOp, side: usize| self.len(r).next_multiple_of(side) as f64 / self.len(r) as f64;
        let least = |axes: &[UOp], side: usize| {
            // among equals the last one, along which elements are contiguous
            axes.iter().copied().rev().min_by(|&p, &q| waste(p, side).total_cmp(&waste(q, side)))
        };
        let (row, column) = (least(&rows, m)?, least(&columns, n)?);
        let terms = least(&sides(g, &self.reduce_axes, pair).both, k)?;
        let work = waste(row, m) * waste(column, n) * waste(terms, k);
        Some(Choice { tile, axes: [row, column, terms], work })
    }

    fn tile_opts(&self, c: &Choice<'_>) -> Vec<Opt> {
        let mut opts = Vec::new();
        let mut put = |make: fn(u8, usize) -> Opt, r: UOp, n: usize| {
            if n > 1 {
                opts.push(make(self.id(r), n));
            }
        };
        let sides = c.tile.sides();
        for (&r, side) in c.axes.iter().zip(sides) {
            if !self.len(r).is_multiple_of(side) {
                put(Opt::pad, r, side);
            }
            put(Opt::tile, r, side);
        }
        let [row, column, _] = c.axes;
        let mut left = [self.len(row).div_ceil(sides[0]), self.len(column).div_ceil(sides[1])];
        let others: usize = self.out_axes.iter().filter(|r| !c.axes.contains(r)).map(|&r| self.len(r)).product();
        // a square block needs the fewest loads per product, so both dimensions grow alternately
        let (mut block, held) = ([1, 1], c.tile.layout.c.held());
        for i in [0, 1, 0, 1] {
            let fits = block[i] < SIDE && left[i].is_multiple_of(2) && 2 * held * block[0] * block[1] <= HELD;
            if fits && others * left[0] * left[1] >= 2 * self.t.machine.workgroups.busy_tiles[1] {
                block[i] *= 2;
                left[i] /= 2;
            }
        }
        put(Opt::upcast, row, block[0]);
        put(Opt::upcast, column, block[1]);
        if self.t.caps.has_local {
            let subgroups = (GROUP.min(self.t.limits.max_local_total as usize) / c.tile.layout.threads()).max(1);
            let down = power_of_two_in(left[0], subgroups.div_ceil(2));
            put(Opt::local, row, down);
            put(Opt::local, column, power_of_two_in(left[1], subgroups / down));
        }
        opts
    }
}
