//! Cost of cache lines that a tile has to fetch into the L1 cache again because the cache does not keep them until the
//! next tile: weights, which are contiguous; an operand that all lanes share, of which each step of a sum reads other
//! lines; and results that are not contiguous, each of which is stored to a line of its own.

use super::heuristic::{Access, Tile, View};
use crate::uop::UOp;
use smallvec::SmallVec;

impl View<'_> {
    /// Cycles that a tile waits for lines which the L1 cache did not keep: during the whole sum for what it reads, and
    /// at the end for what it stores.
    pub(super) fn refetched(&self, tile: &Tile) -> [f64; 2] {
        // WebAssembly with its narrow vectors is limited by other things: forty blocks took as long with the tiles that
        // this chooses
        let priced = cfg!(feature = "x86") && self.may_overlap_and_stage && self.t.caps.memory_operands;
        let Some(lane) = tile.lane.filter(|l| priced && self.out_axes.contains(l)) else { return [0.0; 2] };
        let caches = self.t.machine.caches;
        let [next, alone] = caches.l2_line_cycles;
        let steps = self.reduce_axes.iter().fold(1.0, |n, &r| n * self.len(r) as f64);
        let (mut read, mut stored, mut in_a_set) = (0.0, 0.0, 0.0);
        for a in self.inner.iter().chain(&self.store) {
            let (lines, sets) = self.lines(a, tile);
            in_a_set += lines / sets;
            let apart = !matches!(a.affine.stride(&self.k.g, lane), Some(1) | None) && !self.is_interleaved(a, tile);
            match a.has(self.id(lane)) {
                true if a.store && apart => {
                    let resident = a.bytes as f64 <= self.t.machine.resident_bytes;
                    stored += lines * if resident { alone } else { caches.memory_line_cycles[1] };
                }
                true if !a.store && self.reuse(a, tile) > 1 => read += lines * next,
                // the prefetcher brings the next line of a sequential stream in time
                false if !a.constant && !self.follows_lines(a) => read += (lines - steps).max(0.0) * alone,
                _ => {}
            }
        }
        if in_a_set > caches.l1_sets_ways[1] as f64 { [read, stored] } else { [0.0; 2] }
    }

    /// Does a sum read such an operand sequentially, line after line, so that the hardware prefetches it? An address
    /// with digits of an axis counts as sequential, because it mostly is.
    fn follows_lines(&self, a: &Access) -> bool {
        let follows = |r: UOp| self.step(a, r).is_none_or(|s| (1..64).contains(&s) && s * self.len(r) >= 64);
        self.reduce_axes.iter().any(|&r| a.has(self.id(r)) && follows(r))
    }

    /// Stride of an access along an axis, in bytes.
    fn step(&self, a: &Access, r: UOp) -> Option<usize> {
        a.affine.stride(&self.k.g, r).map(|s| (s.unsigned_abs() as usize).saturating_mul(a.size))
    }

    /// The lines that an access touches in all steps of a tile, and the number of sets of the cache over which they
    /// spread.
    fn lines(&self, a: &Access, tile: &Tile) -> (f64, f64) {
        let ups = tile.ups.iter().filter_map(|u| Some((u.0?, u.1)));
        let reds = self.reduce_axes.iter().filter(|_| !a.store).map(|&r| (r, self.len(r)));
        let axes = ups.chain(tile.lane.map(|l| (l, tile.width))).chain(reds).filter(|x| a.has(self.id(x.0)));
        // a constant operand is packed in the order in which it is read
        if a.constant {
            let lines = (axes.map(|x| x.1).product::<usize>() * a.size).div_ceil(64) as f64;
            return (lines, (self.t.machine.caches.l1_sets_ways[0] as f64).min(lines));
        }
        let mut strided: SmallVec<[(usize, usize); 8]> = SmallVec::new();
        let mut dense = 0;
        for (r, n) in axes {
            match self.step(a, r) {
                Some(step) if step < 64 => dense += step * (n - 1),
                // overlapping windows share lines
                step => match strided.iter_mut().find(|x| Some(x.0) == step) {
                    Some(x) => x.1 += n - 1,
                    None => strided.push((step.unwrap_or(64), n)),
                },
            }
        }
        let dense = 1.0 + dense as f64 / 64.0;
        let caches = self.t.machine.caches;
        let lines = strided.iter().fold(dense, |all, x| all * x.1 as f64);
        let sets = strided.iter().fold(dense, |all, &(step, n)| all * n.min(caches.sets_of(step)) as f64);
        (lines, sets.min(caches.l1_sets_ways[0] as f64))
    }
}

#[cfg(all(test, feature = "x86"))]
mod tests {
    use super::super::heuristic::choose;
    use crate::DType::F32;
    use crate::codegen::axes::Kernel;
    use crate::schedule::schedule;
    use crate::target::{Isa, Target};
    use crate::uop::{Graph, Op, ReduceOp};

    /// The strides of the result's axes along which the chosen tile has several elements, for a transposed convolution
    /// of 2x2 with a stride of 2, from `from` to `to` channels of `side` by `side`.
    fn rows(interleaved_stores: bool, from: usize, to: usize, side: usize) -> Vec<usize> {
        let mut t = Target::x86(Isa::Avx512, 1);
        t.caps.interleaved_stores = interleaved_stores;
        let mut g = Graph::new();
        // for each channel: rows, phases of rows, columns, phases of columns
        let all = [to, side, 2, side, 2, from];
        let (x, w) = (g.param(0, F32, from * side * side), g.param(1, F32, from * to * 4));
        let (x, w) = (g.reshape(x, &[from, side, 1, side, 1, 1]), g.reshape(w, &[from, to, 2, 2, 1, 1]));
        let (x, w) = (g.permute(x, &[4, 1, 2, 3, 5, 0]), g.permute(w, &[1, 4, 2, 5, 3, 0]));
        let (x, w) = (g.expand(x, &all), g.expand(w, &all));
        let product = g.binary(Op::Mul, x, w);
        let sum = g.reduce(product, ReduceOp::Add, &[5]);
        let mut ast = schedule(&g, &[sum], 2, &t).unwrap().kernels.remove(0).ast;
        ast.constants.extend([2]);
        let mut k = Kernel::new(&ast);
        k.settle_axes();
        let strides: Vec<(u8, usize)> = {
            let index = k.g.src_at(k.store(), 0);
            let affine = crate::analysis::affine(&k.g, k.g.src_at(index, 1));
            let outs = k.row_loops().0;
            outs.iter().map(|&r| (k.g.range_arg(r).id, affine.stride(&k.g, r).unwrap_or(0) as usize)).collect()
        };
        let opts = choose(&k, &t);
        let cut = |id: u8| opts.iter().any(|o| o.axis() == Some(id) && o.cuts(super::super::Part::Upcast).is_some());
        strides.into_iter().filter(|x| cut(x.0)).map(|x| x.1).collect()
    }

    #[test]
    fn rows_of_a_tile_are_neighbours_where_lines_would_be_fetched_again() {
        // measured on Emerald Rapids: 513 microseconds with tiles over several image rows, 267 with neighbours in a row
        for (from, to, side) in [(96, 32, 20), (64, 32, 40), (128, 64, 20)] {
            let strides = rows(false, from, to, side);
            let row = 2 * side;
            assert!(strides.iter().all(|&s| s <= row), "{from} to {to}, {side}: {strides:?}");
        }
    }

    #[test]
    fn tiles_have_both_phases_where_lanes_are_pixels() {
        // 147 microseconds with elements stored one by one, 54 with whole vectors
        for (from, to, side) in [(24, 12, 56), (64, 32, 40), (32, 16, 64)] {
            let strides = rows(true, from, to, side);
            assert!(strides.contains(&1), "{from} to {to}, {side}: {strides:?}");
            assert!(!rows(false, from, to, side).contains(&1));
        }
    }
}
