//! Opts for chain kernels, in which rows are kept in local arrays between contractions (attention). In: such a kernel.
//! Out: opts that compute several rows at once, so that the contractions have register tiles, and put lanes along each
//! array, each reduction of a row and the result.

use super::picked::{Loaded, Picked};
use super::{Level, Opt, Part, Staging};
use crate::analysis::{affine, product};
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{AxisKind, UOp};

/// The most multiply-adds in an unrolled loop body.
const BODY: usize = 96;
/// Latency of a multiply-add in cycles.
const LATENCY: f64 = 4.0;
/// The number of tiles that must read an operand for a staged copy of it to pay.
const REUSE: usize = 4;
/// Parts per thread into which work is divided where threads would otherwise wait for the last one.
const PARTS: usize = 4;

/// Chooses the opts.
pub(super) fn choose(k: &Kernel, t: &Target) -> Vec<Opt> {
    let (outer, row) = k.row_loops();
    let Some(&rows) = outer.last() else { return Vec::new() };
    let len = |r: UOp| k.g.range_len(r);
    let Some(&wide) = row.iter().max_by_key(|&&r| len(r)) else { return Vec::new() };
    let (products, sums): (Vec<UOp>, Vec<UOp>) = k.reduces().into_iter().partition(|&r| is_product(k, r));
    // the axes that get lanes: those of local arrays, of reductions over a row, and of the result
    let mut along: Vec<UOp> = k.ranges_of(AxisKind::Fill);
    along.extend(sums.iter().filter_map(|&r| k.g.src(r).get(1).copied()));
    along.push(wide);
    let high = if shares(k, &products, rows) { len(rows) } else { 1 };
    let Some((height, width)) = tile(t, high, &along.iter().map(|&r| len(r)).collect::<Vec<_>>()) else {
        return Vec::new();
    };
    let mut out = Picked::new(k, t);
    let id = |r: UOp| k.g.range_arg(r).id;
    if height > 1 {
        out.push(Opt::upcast(id(rows), height));
    }
    let body = BODY / (height * width / t.caps.lanes).max(1);
    for &r in products.iter().flat_map(|&p| k.g.src(p)[1..].last()) {
        if let Some(f) = [4, 2].into_iter().find(|&f| f <= body && len(r).is_multiple_of(f)) {
            out.push(Opt::unroll(id(r), f));
        }
    }
    for &r in &along {
        if k.g.kind(r).is_reduce() && !len(r).is_multiple_of(width) {
            out.push(Opt::pad(id(r), width));
        }
        // the loops of arrays have new numbers where rows became a tile
        out.push(Opt::lane(id(r), width));
    }
    out.panels(id(rows));
    out.opts
}

/// Is the reduction a sum of products in which one factor does not depend on all of its ranges (a contraction, in which
/// factors are reused)?
fn is_product(k: &Kernel, r: UOp) -> bool {
    let differs = |s: UOp| k.g.ranges(s) != k.g.ranges(k.g.src_at(r, 0));
    product::factors(&k.g, r).is_some_and(|pair| pair.into_iter().any(differs))
}

/// Is some factor of the products independent of the row, so that several rows at once read it only once?
fn shares(k: &Kernel, products: &[UOp], rows: UOp) -> bool {
    let id = k.g.range_arg(rows).id;
    products.iter().flat_map(|&p| k.g.srcs(k.g.src_at(p, 0))).any(|s| !has_id(k, s, id))
}

/// The number of rows and the width in lanes of the tile.
fn tile(t: &Target, rows: usize, along: &[usize]) -> Option<(usize, usize)> {
    let short = *along.iter().min()?;
    let issue = t.machine.multiply_add;
    let waste = |n: usize, f: usize| (n.div_ceil(f) * f) as f64 / n as f64;
    let mut best: Option<(f64, usize, usize)> = None;
    for vectors in (1..=4).filter(|v| v * t.caps.lanes <= short) {
        for height in (1..=8usize).filter(|&h| h <= rows) {
            let accs = height * vectors;
            if accs + vectors + 1 > t.caps.vector_registers {
                continue;
            }
            let cycles = (accs as f64 * issue).max((height + vectors) as f64 / 2.0).max(LATENCY) + 0.7;
            let wasted: f64 = along.iter().map(|&n| waste(n, vectors * t.caps.lanes)).sum::<f64>() / along.len() as f64;
            let cost = cycles / accs as f64 * wasted * waste(rows, height);
            if best.is_none_or(|b| cost < b.0) {
                best = Some((cost, height, vectors * t.caps.lanes));
            }
        }
    }
    best.map(|b| (b.1, b.2))
}

impl Picked<'_> {
    /// Stages the operands that many tiles share in packed panels, outside the loops over the rows of these tiles.
    fn panels(&mut self, rows: u8) {
        let k = self.k.clone();
        let outer = k.row_loops().0;
        for Loaded { load: u, slot, number } in self.loads() {
            let index = k.g.src_at(u, 0);
            let has = |r: UOp| k.g.depends(u, r);
            let all = k.ranges();
            let Some(lane) = all.iter().copied().find(|&r| k.g.range_arg(r).lane && has(r)) else { continue };
            let step =
                all.iter().copied().filter(|&r| k.g.kind(r).is_reduce() && has(r)).max_by_key(|&r| k.g.range_len(r));
            let (Some(step), false) = (step, has_id(&k, u, rows)) else { continue };
            let address = affine(&k.g, k.g.src_at(index, 1));
            let packed =
                address.stride(&k.g, lane) == Some(1) && address.stride(&k.g, step).is_some_and(|s| s.abs() <= 64);
            if packed {
                continue;
            }
            let around = outer.iter().rposition(|&r| has(r));
            let (before, inside) = outer.split_at(around.map_or(0, |i| i + 1));
            let times = |loops: &[UOp]| loops.iter().map(|&r| k.g.range_len(r)).product::<usize>();
            // a thread fills its own panels; where threads would wait, the tiles that share one are divided among more
            let (panels, threads) = (times(before), self.t.limits.threads.max(1));
            let waits = panels.next_multiple_of(threads) * 4 > panels * 5;
            let parts = if waits { (PARTS * threads).div_ceil(panels) } else { 1 };
            if times(inside) < REUSE * parts {
                continue;
            }
            let divided = inside.first().copied().filter(|&r| parts > 1 && k.g.range_len(r) >= parts);
            let is_split =
                divided.is_some_and(|r| self.split_rows(k.g.range_arg(r).id, k.g.range_len(r).div_ceil(parts)));
            let around = if is_split { divided } else { around.map(|i| outer[i]) };
            let level = around.map_or(Level::Outside, |r| Level::In(k.g.range_arg(r).id));
            self.push(Opt::Stage(Staging { param: slot, load: number, level, separate_windows: true }));
        }
    }

    /// Splits a loop over rows into blocks of this length, unless it is split already, and returns whether it is. The
    /// loop in a block is a new one, which comes last of all, and is moved to the place before the loops over the
    /// elements of a row.
    fn split_rows(&mut self, rows: u8, len: usize) -> bool {
        let is_split = |p: &Self| p.opts.iter().any(|o| o.axis() == Some(rows) && o.cuts(Part::Loop).is_some());
        if is_split(self) {
            return true;
        }
        let mut place = self.k.next_id;
        self.push(Opt::split(rows, len));
        if !is_split(self) {
            return false;
        }
        for r in self.k.row_loops().1.into_iter().rev() {
            let before = self.id(r);
            self.push(Opt::swap(before, place));
            place = before;
        }
        true
    }
}

fn has_id(k: &Kernel, u: UOp, id: u8) -> bool {
    k.g.ranges(u) >> id & 1 == 1
}
