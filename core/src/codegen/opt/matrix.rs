//! Opts that lead to matrix tiles, where the target has some for a contraction's dtypes: the axes that only one operand has become rows and
//! columns, an axis of the reduction becomes what a tile sums over, each rounded up where the tile does not divide it. A subgroup then
//! computes several tiles side by side, so that what it loads is used more than once, and a workgroup is a few subgroups.

use super::Opt;
use super::heuristic::View;
use crate::analysis::product::sides;
use crate::codegen::matrix::{self, factors, takes};
use crate::target::MatrixTile;
use crate::uop::UOp;

/// How much more work than without tiles is still faster with them: they multiply several times as fast.
const PADDED: f64 = 4.0;
/// Tiles along each side of what a subgroup computes at most, and elements of the product that a thread holds at most.
const SIDE: usize = 4;
const HELD: usize = 64;
/// Subgroups that keep a GPU busy.
const BUSY: usize = 512;
/// Threads of a workgroup.
const GROUP: usize = 128;

/// A tile and the axes that it is laid on.
struct Choice<'a> {
    tile: &'a MatrixTile,
    axes: [UOp; 3],
    /// Products with rounded axes, for each one without.
    work: f64,
}

impl View<'_> {
    /// Opts that use a matrix tile, if there is one for the kernel.
    pub(super) fn matrix(&self) -> Option<Vec<Opt>> {
        if !self.t.has_tiles() {
            return None;
        }
        let [sum] = *self.k.reduces() else { return None };
        let (pair, _) = factors(&self.k.g, sum)?;
        let mut best: Option<Choice<'_>> = None;
        for tile in self.t.matrix_tiles.iter().filter(|tile| takes(tile, &self.k.g, pair, sum)) {
            for c in [pair, [pair[1], pair[0]]].into_iter().filter_map(|pair| self.lay(tile, pair)) {
                if c.work <= PADDED && best.as_ref().is_none_or(|b| c.work < b.work) {
                    best = Some(c);
                }
            }
        }
        let opts = self.tile_opts(&best?);
        // a kernel for which the tile does not do after all is compiled as any other
        let mut trial = self.k.clone();
        trial.apply_all(&opts, self.t).and_then(|()| matrix::lower(&mut trial, self.t)).ok()?;
        Some(opts)
    }

    /// The axes on which rounding to the tile's sides wastes least.
    fn lay<'a>(&self, tile: &'a MatrixTile, [a, b]: [UOp; 2]) -> Option<Choice<'a>> {
        let g = &self.k.g;
        let pair = [g.ranges(a), g.ranges(b)];
        let [rows, columns] = sides(g, &self.outs, pair).own;
        let [m, n, k] = tile.sides();
        let waste = |r: UOp, side: usize| self.len(r).next_multiple_of(side) as f64 / self.len(r) as f64;
        let least = |axes: &[UOp], side: usize| {
            // of equals the last: its elements are neighbours
            axes.iter().copied().rev().min_by(|&p, &q| waste(p, side).total_cmp(&waste(q, side)))
        };
        let (row, column) = (least(&rows, m)?, least(&columns, n)?);
        let terms = least(&sides(g, &self.reds, pair).both, k)?;
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
        let others: usize = self.outs.iter().filter(|r| !c.axes.contains(r)).map(|&r| self.len(r)).product();
        // a square block loads least for each product, so that both sides grow in turn
        let (mut block, held) = ([1, 1], c.tile.layout.c.held());
        for i in [0, 1, 0, 1] {
            let fits = block[i] < SIDE && left[i].is_multiple_of(2) && 2 * held * block[0] * block[1] <= HELD;
            if fits && others * left[0] * left[1] >= 2 * BUSY {
                block[i] *= 2;
                left[i] /= 2;
            }
        }
        put(Opt::upcast, row, block[0]);
        put(Opt::upcast, column, block[1]);
        if self.t.has_local {
            let subgroups = (GROUP.min(self.t.max_local_total as usize) / c.tile.layout.threads()).max(1);
            let down = power_of_two_in(left[0], subgroups.div_ceil(2));
            put(Opt::local, row, down);
            put(Opt::local, column, power_of_two_in(left[1], subgroups / down));
        }
        opts
    }
}

/// The largest power of two that divides `n` and is not above `most`.
fn power_of_two_in(n: usize, most: usize) -> usize {
    1 << n.trailing_zeros().min(most.ilog2())
}
