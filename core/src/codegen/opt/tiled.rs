//! Opts for contractions on hardware GPUs for which neither `matrix.rs` nor `multi_buffered.rs` has opts. In: a
//! contraction of two operands that can be staged. Out: opts with which a workgroup computes a tile of rows and
//! columns, and stages the operands in workgroup memory one block of the reduction at a time. Software adapters do not
//! use this: there a barrier costs more than staging saves.

use super::heuristic::{Access, View};
use super::{Level, Opt};
use crate::analysis::product::sides;
use crate::codegen::axes::Kernel;
use crate::codegen::stage;
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Op, UOp};

/// Usual number of reduction steps that are staged at a time.
const BLOCK: usize = 16;
/// The most multiply-adds of vectors in an unrolled loop body.
const BODY: usize = 128;

/// How a workgroup's tile is divided among its threads.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rows of a thread, and vectors of columns of a thread.
    rows: usize,
    vectors: usize,
    /// Threads along the rows, along the columns, and along a second axis of columns.
    down: usize,
    across: usize,
    deep: usize,
    cost: f64,
}

/// The operands and axes of a contraction: `a` depends on the rows, `b` on the columns.
struct Axes<'a> {
    a: &'a Access,
    b: &'a Access,
    row: UOp,
    col: UOp,
    second: Option<UOp>,
}

impl View<'_> {
    /// Opts that tile the kernel, if it is a large enough contraction.
    pub(super) fn tiled(&self, vector: bool) -> Option<Vec<Opt>> {
        let steps: usize = self.reduce_axes.iter().map(|&r| self.len(r)).product();
        if self.t.machine.software
            || !vector
            || self.t.caps.lanes != 4
            || self.k.reduces().len() != 1
            || steps < BLOCK / 2
        {
            return None;
        }
        let axes = self.operands()?;
        let plan = self.plan(&axes)?;
        // the longest block for which the operands fit in workgroup memory
        [4 * BLOCK, 2 * BLOCK, BLOCK, BLOCK / 2, BLOCK / 4, 1]
            .into_iter()
            .find_map(|block| self.opts(&axes, plan, block))
    }

    /// Two operands, each of which depends on an output axis that the other does not depend on.
    fn operands(&self) -> Option<Axes<'_>> {
        let staged: Vec<&Access> = self.inner.iter().filter(|a| a.slot.is_some()).collect();
        let mut best: Option<(i64, Axes)> = None;
        for &a in &staged {
            for &b in &staged {
                let mut found = sides(&self.k.g, &self.out_axes, [a.ranges | a.gated, b.ranges | b.gated]);
                found.own.iter_mut().for_each(|list| list.retain(|r| self.len(*r) > 1));
                let [rows, cols] = found.own;
                let longest = |list: &[UOp], but: Option<UOp>| {
                    list.iter().copied().filter(|&r| Some(r) != but).max_by_key(|&r| self.len(r))
                };
                let Some(row) = longest(&rows, None) else { continue };
                // lanes go along the axis that is contiguous in the result, or else in the operand
                let contiguity = |r: UOp| {
                    let store = self.store_stride(r).map_or(2, |s| i64::from(s != 1));
                    (store, i64::from(b.affine.stride(&self.k.g, r) != Some(1)))
                };
                let Some(col) = cols.iter().copied().filter(|&r| self.len(r) >= 4).min_by_key(|&r| contiguity(r))
                else {
                    continue;
                };
                let order = contiguity(col).0 * 2 + contiguity(col).1;
                if best.as_ref().is_none_or(|x| order < x.0) {
                    best = Some((order, Axes { a, b, row, col, second: longest(&cols, Some(col)) }));
                }
            }
        }
        best.map(|x| x.1)
    }

    fn plan(&self, x: &Axes) -> Option<Plan> {
        let w = self.t.machine.workgroups;
        let (nr, nc) = (self.len(x.row), self.len(x.col));
        let ns = x.second.map_or(1, |r| self.len(r));
        let rest: usize = self
            .out_axes
            .iter()
            .filter(|&&r| r != x.row && r != x.col && Some(r) != x.second)
            .map(|&r| self.len(r))
            .product();
        let most = (self.t.limits.max_local_total as usize).min(256);
        let aligned = x.b.gated >> self.id(x.col) & 1 == 0 && nc % 4 == 0;
        let read = if aligned { 1.0 } else { 2.5 };
        let divisors = |n: usize, most: usize| (1..=most).filter(move |&f| n.is_multiple_of(f) || f.is_power_of_two());
        let mut best: Option<Plan> = None;
        for (rows, vectors) in [(8, 2), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)] {
            for across in divisors(nc.div_ceil(4 * vectors), 16) {
                for deep in divisors(ns, 8) {
                    for down in [2, 4, 8, 16, 32] {
                        let threads = down * across * deep;
                        let dims = self.t.limits.max_local;
                        if threads < 32
                            || threads > most
                            || [across, deep, down].iter().zip(dims).any(|(&n, m)| n > m as usize)
                        {
                            continue;
                        }
                        let (tr, tc) = (rows * down, 4 * vectors * across);
                        let pieces = nr.div_ceil(tr) * nc.div_ceil(tc) * ns.div_ceil(deep) * rest;
                        let done = (pieces * tr * tc * deep) as f64 / (nr * nc * ns * rest) as f64;
                        let warps = threads.next_multiple_of(32) as f64 / threads as f64;
                        let work = (4 * rows * vectors) as f64;
                        let local = 4.0 * ((rows as f64 / 4.0).max(1.0) + vectors as f64 * read);
                        let copied = 3.0 * (tr + tc * deep) as f64 / threads as f64;
                        let mut idle = (w.busy_tiles[0] as f64 / (pieces * threads) as f64).max(1.0);
                        if MATRIX_TILES_ENABLED && let n @ 1.. = self.t.machine.processors {
                            // the last round of workgroups may occupy only a few processors
                            idle = idle.max((pieces.div_ceil(n) * n) as f64 / pieces as f64);
                        }
                        let cost = done * warps * idle * (work + local + copied) / work;
                        // work that only comes from rounding up does not count towards occupancy
                        let wanted = (nr * nc * ns * rest).div_ceil(4 * rows * vectors);
                        let enough = pieces * threads >= w.least_tiles[0]
                            && wanted >= w.least_tiles[1] * self.t.machine.processors;
                        if enough && best.is_none_or(|b| cost < b.cost) {
                            best = Some(Plan { rows, vectors, down, across, deep, cost });
                        }
                    }
                }
            }
        }
        best
    }

    fn opts(&self, x: &Axes, p: Plan, block: usize) -> Option<Vec<Opt>> {
        let mut trial = self.k.clone();
        let mut opts = Vec::new();
        let mut put = |trial: &mut Kernel, opt: Opt| -> Option<()> {
            if !matches!(opt, Opt::Cut { by: 1, .. } | Opt::Pad { to: 1, .. }) {
                trial.apply(&opt, self.t).ok()?;
                opts.push(opt);
            }
            Some(())
        };
        let (row, col) = (self.id(x.row), self.id(x.col));
        let len = |k: &Kernel, id: u8| k.range_by_id(id).map_or(1, |r| k.g.range_len(r));
        // each thread has adjacent rows
        if !self.len(x.row).is_multiple_of(p.rows) {
            put(&mut trial, Opt::pad(row, p.rows * p.down))?;
        }
        put(&mut trial, Opt::upcast(row, p.rows))?;
        put(&mut trial, Opt::pad(row, p.down))?;
        put(&mut trial, Opt::local(row, p.down))?;
        if let Some(second) = x.second {
            put(&mut trial, Opt::pad(self.id(second), p.deep))?;
            put(&mut trial, Opt::local(self.id(second), p.deep))?;
        }
        // neighbouring threads have adjacent vectors
        if !self.len(x.col).is_multiple_of(4) {
            put(&mut trial, Opt::pad(col, 4 * p.across * p.vectors))?;
        }
        put(&mut trial, Opt::lane(col, 4))?;
        put(&mut trial, Opt::pad(col, p.across * p.vectors))?;
        if p.across > 1 && len(&trial, col) == p.across {
            put(&mut trial, Opt::local(col, p.across))?;
        } else {
            put(&mut trial, Opt::local(col, p.across))?;
            put(&mut trial, Opt::upcast(col, p.vectors))?;
        }
        let level = self.blocked(&mut trial, p, block, &mut put)?;
        for a in [x.a, x.b] {
            put(&mut trial, Opt::stage(a.slot?, level))?;
        }
        let stages = trial.nodes().into_iter().filter(|&u| trial.g.op(u) == Op::Stage);
        let bytes: usize = stages.map(|u| stage::elems(&trial.g, u) * 4).sum();
        (bytes <= self.t.limits.workgroup_bytes.min(self.t.machine.workgroups.memory[0])).then_some(opts)
    }

    /// Cuts the reduction into blocks of about `block` steps, and returns the level of the loop over blocks.
    fn blocked(
        &self,
        trial: &mut Kernel,
        p: Plan,
        block: usize,
        put: &mut impl FnMut(&mut Kernel, Opt) -> Option<()>,
    ) -> Option<Level> {
        let mut axes = self.reduce_axes.iter().copied();
        let first = axes.next()?;
        let inner: usize = axes.map(|r| self.len(r)).product();
        let n = self.len(first);
        let want = block.div_ceil(inner);
        let mut id = self.id(first);
        let mut level = Level::Outside;
        let mut steps = n;
        if n > want {
            let fits = (want.div_ceil(2)..=want).rev().find(|f| n.is_multiple_of(*f));
            steps = match fits {
                Some(f) => f,
                None => {
                    put(trial, Opt::pad(id, want))?;
                    want
                }
            };
            level = Level::In(id);
            if steps > 1 {
                let next = trial.next_id;
                put(trial, Opt::split(id, steps))?;
                id = next;
            }
        }
        // short windows, or a few steps of a loop, are unrolled
        let mut budget = (BODY / (p.rows * p.vectors)).clamp(1, 9);
        let last = self.reduce_axes.len() - 1;
        for (i, &r) in self.reduce_axes.iter().enumerate().rev() {
            let (axis, n) = if i == 0 { (id, steps) } else { (self.id(r), self.len(r)) };
            if i == 0 && level == Level::In(id) {
                break; // the loop over blocks itself
            }
            if n <= budget {
                put(trial, Opt::unroll(axis, n))?;
                budget /= n;
                continue;
            }
            if let Some(f) = [4, 2].into_iter().find(|&f| i == last && f <= budget && n.is_multiple_of(f)) {
                put(trial, Opt::unroll(axis, f))?;
            }
            break;
        }
        Some(level)
    }
}
