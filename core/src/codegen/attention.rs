//! Lowers attention to one loop over blocks of keys. In: a kernel with three reductions over the same keys
//! ([`crate::analysis::attention`]): the maximum of a row's scores, the sum of their exponentials below it, and the sum
//! of these exponentials times values. Out: a loop in which each iteration computes the scores of a block of keys, with
//! three accumulators: the running maximum, and both sums, which are multiplied by `exp(old - new)` when the maximum
//! has grown (Milakov and Gimelshein 2018; Dao et al. 2022). The rows of keys and values that a block needs are staged
//! in workgroup memory.
//!
//! Both products use matrix tiles, and then no score leaves a thread's registers, because the result of the first tile
//! is the left factor of the second one; or else they use register tiles ([`registers`]). This file is shared by both:
//! a register tile also has a layout, that of the threads that share its rows.
//!
//! A row whose scores are all minus infinity so far has no finite maximum to subtract; zero is subtracted instead, so
//! that its sums stay zero, and their quotient is NaN at the end, as it is without this lowering.

mod panels;
mod registers;

use super::axes::{Kernel, Stats};
use super::matrix::Fragment;
use super::reduce::{LoopInfo, exchange};
use super::stage::place_in;
use crate::analysis::attention::{Attention, Registers, Strategy, block, choose_strategy, find};
use crate::analysis::product::is_half;
use crate::analysis::{Role, affine};
use crate::rewrite::substitute1;
use crate::rules::decomp::exp_below_zero;
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::mma::{Layout, MATRIX_TILES_ENABLED, Side};
use crate::uop::{Arg, Axes, AxisKind, Graph, Op, ReduceOp, Space, UOp};
use crate::{DType, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::OnceLock;

type Ranges = SmallVec<[UOp; 4]>;

/// The most 32-bit registers of a thread for all matrices together.
const REGISTERS: usize = 128;
/// The most subgroups of a workgroup; they share the staged keys and values.
const SUBGROUPS: usize = 8;

/// Function pointers that [`enable`] sets at run time, as in [`super::live`], so that only the GPU part of a
/// WebAssembly module contains this code.
struct Hooks {
    is_one: fn(&Kernel, &Target) -> bool,
    lower: fn(&mut Kernel, &Target, &mut FxHashMap<u8, LoopInfo>, &mut Stats) -> Result<()>,
}

static HOOKS: OnceLock<Box<Hooks>> = OnceLock::new();

/// Enables attention in one kernel on devices that support it. Only WebAssembly modules have to call it; native builds
/// always have it enabled.
pub fn enable() {
    crate::schedule::attention::enable();
    HOOKS.get_or_init(|| Box::new(Hooks { is_one: is_one_in, lower: lower_in }));
}

fn hooks() -> Option<&'static Hooks> {
    if cfg!(not(target_arch = "wasm32")) {
        enable();
    }
    HOOKS.get().map(|hooks| &**hooks)
}

/// Will the kernel be lowered to one loop over keys? Then no opts are chosen and its axes are neither merged nor split.
pub(super) fn is_one(k: &Kernel, t: &Target) -> bool {
    k.role == Role::Attention && hooks().is_some_and(|hooks| (hooks.is_one)(k, t))
}

/// Lowers a kernel that is attention, if that pays on the target.
pub(super) fn lower(k: &mut Kernel, t: &Target, loops: &mut FxHashMap<u8, LoopInfo>, stats: &mut Stats) -> Result<()> {
    match hooks() {
        Some(hooks) if k.role == Role::Attention => (hooks.lower)(k, t, loops, stats),
        _ => Ok(()),
    }
}

fn is_one_in(k: &Kernel, t: &Target) -> bool {
    find(&k.g, k.sink).is_some_and(|a| choose_strategy(&k.g, &a, t).is_some())
}

fn lower_in(k: &mut Kernel, t: &Target, loops: &mut FxHashMap<u8, LoopInfo>, stats: &mut Stats) -> Result<()> {
    let Some(a) = find(&k.g, k.sink) else { return Ok(()) };
    let Some(strategy) = choose_strategy(&k.g, &a, t) else { return Ok(()) };
    // the kernel computes the scores three times; the loop computes them once
    let outer: u64 = k.ranges_of(AxisKind::Loop).iter().map(|&r| k.g.range_len(r) as u64).product();
    let [_, keys, terms, columns] = a.lens(&k.g).map(|n| n as u64);
    stats.flops = stats.flops.saturating_sub(4 * outer / columns.max(1) * keys * terms);
    let gone = [a.axes[0], a.axes[3]].map(|r| k.g.range_arg(r).id);
    k.needed_iterations.retain(|t| !gone.contains(&t.id));
    let layout = match &strategy {
        Strategy::Matrix(tile) => tile.layout.clone(),
        Strategy::Panels(p) if MATRIX_TILES_ENABLED => return panels::lower(k, t, a, &strategy, p, loops),
        Strategy::Panels(_) => return Ok(()),
        Strategy::Registers(r) => r.layout(),
    };
    Loop::new(k, t, a, &strategy, [&layout; 2], None)?.lower(k, t, loops)
}

/// The loops and layouts of the new kernel.
struct Loop<'a> {
    a: Attention,
    /// The tile that computes scores.
    layout: &'a Layout,
    /// The register tiles, if no matrix tiles are used.
    registers: Option<Registers>,
    /// The factors are read from panels in workgroup memory.
    panels: bool,
    /// Rows and columns of a tile of scores, and the number of keys over which one product with values sums.
    sides: [usize; 3],
    /// Number of keys in a block.
    keys: usize,
    /// The index of a thread in its subgroup.
    thread: UOp,
    /// The fragments that a thread holds of queries, keys, scores, values, and the sum of weighted values. Scores are
    /// the left factor of the second product.
    query: Fragment<'a>,
    key: Fragment<'a>,
    score: Fragment<'a>,
    value: Fragment<'a>,
    sum: Fragment<'a>,
    /// Register axes over several adjacent tiles of scores, which together form one left factor of the second product.
    adjacent_tiles: Ranges,
    /// The first row of a workgroup; the offset from it of a subgroup's tile; and the axis over tiles that a subgroup
    /// has one below the other.
    first: UOp,
    row: UOp,
    tiles: Option<UOp>,
    /// The axis over tiles of columns of the result.
    column: UOp,
    /// The last row of a workgroup's block of rows; it may be past the end.
    last: UOp,
    /// The loop over blocks of keys.
    block_range: UOp,
    /// Whether the last block has rows, and keys, past the end.
    uneven: [bool; 2],
    /// The target has an instruction by which a subgroup loads matrices from workgroup memory.
    loads: bool,
}

/// The arrays in workgroup memory; queries and values are staged only if there is room.
struct Arrays {
    queries: Option<UOp>,
    keys: UOp,
    values: Option<UOp>,
}

impl<'a> Loop<'a> {
    fn new(
        k: &mut Kernel,
        t: &Target,
        a: Attention,
        strategy: &Strategy<'_>,
        layouts: [&'a Layout; 2],
        first: Option<UOp>,
    ) -> Result<Loop<'a>> {
        let [layout, value_layout] = layouts;
        let [rows, keys, _, columns] = a.lens(&k.g);
        let mut sides = [Side::M, Side::N, Side::K].map(|s| layout.len(s));
        let (registers, block, subgroups, below) = match strategy {
            Strategy::Registers(r) => (Some(*r), r.keys(), r.threads[0], 1),
            Strategy::Matrix(tile) if MATRIX_TILES_ENABLED => {
                let block = block(&k.g, &a, t, tile).unwrap_or(keys);
                let [subgroups, below] = subgroups(k, t, &a, layout, block);
                (None, block, subgroups, below)
            }
            Strategy::Panels(p) => (None, p.keys, p.subgroups, 1),
            Strategy::Matrix(_) => (None, keys, 1, 1),
        };
        let panels = MATRIX_TILES_ENABLED && layout.in_memory();
        let thread = match layout.threads() {
            1 => k.g.idx(0),
            n => k.new_range(n, AxisKind::Local(0), false)?,
        };
        let [query, key, score] = [&layout.a, &layout.b, &layout.c].map(|s| Fragment::new(k, s, thread));
        let (mut query, mut key, mut score) = (query?, key?, score?);
        let mut value = Fragment::new(k, &value_layout.b, thread)?;
        let mut sum = Fragment::new(k, &value_layout.c, thread)?;
        let mut adjacent_tiles = Ranges::new();
        if let Some(r) = &registers {
            sides[2] = block;
            // a kernel has only one lane axis, so all fragments share it
            let lane = k.new_range(r.lanes, AxisKind::Upcast, true)?;
            for f in [&mut key, &mut score, &mut value, &mut sum] {
                f.registers[0] = lane;
            }
            query.registers[0] = score.registers[1];
            if r.vectors > 1 {
                adjacent_tiles.push(k.new_range(r.vectors, AxisKind::Upcast, false)?);
            }
        } else if !panels {
            let more = &layout.a.registers[layout.c.registers.len()..];
            let more = more.iter().map(|d| k.new_range(d.len as usize, AxisKind::Upcast, false));
            adjacent_tiles = more.collect::<Result<Ranges>>()?;
        }
        // both products have their rows in the same registers
        for (i, d) in layout.c.registers.iter().enumerate() {
            if d.side == Side::M {
                sum.registers[i] = score.registers[i];
            }
        }
        let [m, n] = [sides[0], value_layout.len(Side::N)];
        let group = m * subgroups * below;
        let first = match first {
            Some(first) => first,
            None => scaled(k, rows.div_ceil(group), AxisKind::Loop, group)?,
        };
        let last = k.g.idx(group as i64 - 1);
        let last = k.g.binary(Op::Add, first, last);
        let mut row = match subgroups {
            1 => k.g.idx(0),
            _ => scaled(k, subgroups, AxisKind::Local(0), m * below)?,
        };
        let tiles = match below {
            1 => None,
            n => Some(k.new_range(n, AxisKind::Upcast, false)?),
        };
        if let Some(r) = tiles {
            let offset = times(&mut k.g, r, m);
            row = k.g.binary(Op::Add, row, offset);
        }
        let column = match columns / n {
            1 => k.g.idx(0),
            n => k.new_range(n, AxisKind::Upcast, false)?,
        };
        let block_range = k.new_range(keys.div_ceil(block), AxisKind::Reduce, false)?;
        let uneven = [!rows.is_multiple_of(group), !keys.is_multiple_of(block)];
        let loads = t.caps.copies.is_some() && registers.is_none();
        Ok(Loop {
            a,
            layout,
            registers,
            panels,
            sides,
            keys: block,
            thread,
            query,
            key,
            score,
            value,
            sum,
            adjacent_tiles,
            first,
            row,
            tiles,
            column,
            last,
            block_range,
            uneven,
            loads,
        })
    }

    fn lower(&self, k: &mut Kernel, t: &Target, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<()> {
        let dt = DType::F32;
        let steps = self.keys / self.sides[2];
        if let Some(end) = self.end(k) {
            k.ends.push((k.g.range_arg(self.block_range).id, end));
        }
        let arrays = match &self.registers {
            Some(r) => self.arrays(k, r)?,
            None => Arrays { queries: None, keys: self.staged(k, 1)?, values: Some(self.staged(k, 2)?) },
        };
        let rows: Ranges = self.rows();
        let scores: Vec<UOp> = (0..steps).map(|i| self.scores(k, &arrays, i)).collect::<Result<_>>()?;
        // the running maximum of each row
        let none = k.g.float(f64::NEG_INFINITY, dt);
        let m = accumulator(k, none, &rows);
        let old = k.g.node(Op::AccRead, dt, &[m, self.block_range], Arg::None);
        let mut new = self.folded(k, &scores, ReduceOp::Max)?;
        new = self.across(k, new, ReduceOp::Max, t)?;
        new = k.g.binary(Op::Max, old, new);
        let (nothing, zero) = (k.g.binary(Op::CmpEq, new, none), k.g.float(0.0, dt));
        let below = k.g.select(nothing, zero, new);
        let weights: Vec<UOp> = scores.iter().map(|&s| self.weight(k, s, below, t)).collect();
        let shrink = self.exp(k, old, below, t);
        // both sums
        let columns: Ranges =
            self.sum.registers.iter().copied().chain(self.tiles).chain(range(&k.g, self.column)).collect();
        let (l, o) = (accumulator(k, zero, &rows), accumulator(k, zero, &columns));
        let own = self.folded(k, &weights, ReduceOp::Add)?;
        let mut body: SmallVec<[UOp; 8]> = SmallVec::from_slice(&[self.block_range]);
        body.push(update(k, l, shrink, ReduceOp::Mul, 0));
        body.push(update(k, o, shrink, ReduceOp::Mul, 0));
        body.push(update(k, l, own, ReduceOp::Add, 0));
        for (i, &w) in weights.iter().enumerate() {
            body.push(match (&self.registers, arrays.values) {
                (Some(r), values) => self.summed(k, r, [o, w], values, t, loops)?,
                (None, values) => {
                    let product = self.weighted(k, w, values.unwrap_or(w), i)?;
                    update(k, o, product, ReduceOp::Add, i)
                }
            });
        }
        // the next iteration reads it
        body.push(update(k, m, new, ReduceOp::Max, 0));
        self.finish_loop(k, t, loops, &body, [l, o])
    }

    /// Closes the loop over keys around this body, and stores the result: the sum of weighted values over the sum of
    /// weights, each combined over the threads that share a row.
    fn finish_loop(
        &self,
        k: &mut Kernel,
        t: &Target,
        loops: &mut FxHashMap<u8, LoopInfo>,
        body: &[UOp],
        sums: [UOp; 2],
    ) -> Result<()> {
        let end = k.g.node(Op::End, DType::Void, body, Arg::None);
        loops.insert(k.g.range_arg(self.block_range).id, LoopInfo { parent: None, around: 0 });
        let weights = k.g.node(Op::AccRead, DType::F32, &[sums[0], end], Arg::None);
        let weights = self.across(k, weights, ReduceOp::Add, t)?;
        let mut values = k.g.node(Op::AccRead, DType::F32, &[sums[1], end], Arg::None);
        if self.a.scales[1] != 1.0 {
            let by = k.g.float(self.a.scales[1], DType::F32);
            values = k.g.binary(Op::Mul, values, by);
        }
        self.store(k, weights, values)
    }

    /// The number of iterations after which no row of the workgroup has unmasked keys, if a mask is a comparison of row
    /// and key indices.
    fn end(&self, k: &mut Kernel) -> Option<UOp> {
        let [row, key, _, _] = self.a.axes;
        let mut end: Option<UOp> = None;
        for (_, _, margin) in self.index_masks(k) {
            let zero = k.g.idx(0);
            let own = substitute1(&mut k.g, margin, &[(key, zero), (row, self.last)].into_iter().collect());
            end = Some(end.map_or(own, |e| k.g.binary(Op::Min, e, own)));
        }
        let (more, block) = (k.g.idx(self.keys as i64 - 1), k.g.idx(self.keys as i64));
        let end = k.g.binary(Op::Add, end?, more);
        let end = k.g.binary(Op::FloorDiv, end, block);
        Some(simplify_with(&mut k.g, end, &mut k.memo))
    }

    /// The masking conditions that compare indices. Each comes with the truth value that it has where a key counts, and
    /// with a number that is positive exactly there; the number decreases by one from key to key and does not decrease
    /// from row to row.
    fn index_masks(&self, k: &mut Kernel) -> Vec<(UOp, bool, UOp)> {
        let [row, key, _, _] = self.a.axes;
        let mut found = Vec::new();
        // conditions, and the truth value that each has where a key counts
        let mut conds: SmallVec<[(UOp, bool); 4]> = SmallVec::new();
        let mut at = self.a.score;
        loop {
            let none = |g: &Graph, u: UOp| g.const_val(u).is_some_and(|c| c.as_f64() == f64::NEG_INFINITY);
            at = match (k.g.op(at), k.g.src(at)) {
                (Op::Cast, &[x]) => x,
                (Op::Where, &[c, x, y]) if none(&k.g, y) => {
                    conds.push((c, true));
                    x
                }
                (Op::Where, &[c, x, y]) if none(&k.g, x) => {
                    conds.push((c, false));
                    y
                }
                _ => break,
            };
        }
        while let Some((c, holds)) = conds.pop() {
            let src = k.g.srcs(c);
            // y - x is positive where a key counts
            let (x, y, more) = match (k.g.op(c), src.as_slice()) {
                (Op::And, &[p, q]) if holds => {
                    conds.extend([(p, true), (q, true)]);
                    continue;
                }
                (Op::Xor, &[not, yes]) if k.g.const_int(yes) == Some(1) => {
                    conds.push((not, !holds));
                    continue;
                }
                (Op::CmpLt, &[x, y]) if holds => (x, y, 0),
                (Op::CmpLt, &[y, x]) => (x, y, 1),
                _ => continue,
            };
            if k.g.dtype(x) != DType::I32 {
                continue;
            }
            let more = k.g.idx(more);
            let margin = k.g.binary(Op::Sub, y, x);
            let margin = k.g.binary(Op::Add, margin, more);
            let margin = simplify_with(&mut k.g, margin, &mut k.memo);
            let a = affine(&k.g, margin);
            let loaded = k.g.reachable(&[margin]).into_iter().any(|u| matches!(k.g.op(u), Op::Load | Op::Reduce));
            if loaded || a.stride(&k.g, key) != Some(-1) || a.stride(&k.g, row).is_none_or(|s| s < 0) {
                continue;
            }
            found.push((c, holds, margin));
        }
        found
    }

    /// The register axes along the rows of the scores that a thread holds.
    fn rows(&self) -> Ranges {
        let digits = self.layout.c.registers.iter().zip(&self.score.registers);
        digits.filter(|(d, _)| d.side == Side::M).map(|(_, &r)| r).chain(self.tiles).collect()
    }

    /// The register axes along the scores of one row that a thread holds.
    fn columns(&self) -> Ranges {
        let digits = self.layout.c.registers.iter().zip(&self.score.registers);
        digits.filter(|(d, _)| d.side == Side::N).map(|(_, &r)| r).chain(self.adjacent_tiles.iter().copied()).collect()
    }

    /// The row of an element of a fragment, which may be past the end, and its offset from the first row of the
    /// workgroup.
    fn rows_of(&self, k: &mut Kernel, f: &Fragment<'_>) -> [UOp; 2] {
        let place = f.place(&mut k.g, Side::M);
        let inside = k.g.binary(Op::Add, self.row, place);
        [k.g.binary(Op::Add, self.first, inside), inside]
    }

    /// The row of an element of a fragment, clamped to the last row.
    fn row_of(&self, k: &mut Kernel, f: &Fragment<'_>) -> UOp {
        let [at, _] = self.rows_of(k, f);
        self.clamped(k, 0, at)
    }

    /// An index along rows (0) or keys (1), clamped to the last valid one.
    fn clamped(&self, k: &mut Kernel, axis: usize, at: UOp) -> UOp {
        if !self.uneven[axis] {
            return at;
        }
        let last = k.g.idx(k.g.range_len(self.a.axes[axis]) as i64 - 1);
        k.g.binary(Op::Min, at, last)
    }

    /// The index of the `i`-th key of the current block.
    fn key_of(&self, k: &mut Kernel, i: UOp) -> UOp {
        let first = times(&mut k.g, self.block_range, self.keys);
        k.g.binary(Op::Add, first, i)
    }

    /// An element of the queries, keys or values. It is zero for keys past the end, and also for rows past the end if
    /// queries are copied to panels.
    fn element(&self, k: &mut Kernel, which: usize, at: UOp, along: UOp) -> UOp {
        let (own, [row, key, terms, columns]) = (self.a.elements[which], self.a.axes);
        let axes = [[row, terms], [key, terms], [key, columns]][which];
        let plain = k.g.op(own) == Op::Load && k.g.src(own).len() == 1;
        let none = self.uneven[which.min(1)] && (which > 0 || self.panels);
        let place = if none && plain { at } else { self.clamped(k, which.min(1), at) };
        let map = [(axes[0], place), (axes[1], along)].into_iter().collect();
        let mut value = substitute1(&mut k.g, own, &map);
        if none {
            let (n, zero) = (k.g.idx(k.g.range_len(axes[0]) as i64), k.g.float(0.0, k.g.dtype(own)));
            let gate = k.g.binary(Op::CmpLt, at, n);
            let index = k.g.src_at(value, 0);
            value = if plain { k.g.load_gated(index, zero, gate) } else { k.g.select(gate, value, zero) };
        }
        simplify_with(&mut k.g, value, &mut k.memo)
    }

    /// The staged array of a block's keys or values, with one row for each key.
    fn staged(&self, k: &mut Kernel, which: usize) -> Result<UOp> {
        let [_, _, terms, columns] = self.a.axes;
        let along = if which == 1 { terms } else { columns };
        let row = k.new_range(self.keys, AxisKind::Fill, false)?;
        let own = k.new_range(k.g.range_len(along), AxisKind::Fill, false)?;
        let at = self.key_of(k, row);
        let value = self.element(k, which, at, own);
        Ok(k.g.node(Op::Stage, k.g.dtype(value), &[value, row, own], Arg::Number(1)))
    }

    /// The fragment of a tile's right factor, read from a staged array whose rows are keys; the tile's columns or its
    /// summed dimension are along them.
    fn right(&self, k: &mut Kernel, f: &Fragment<'_>, stage: UOp, [row, column]: [UOp; 2], sides: [UOp; 2]) -> UOp {
        let [rows, columns] = [1, 2].map(|i| k.g.range_len(k.g.src_at(stage, i)));
        let at = place_in(&mut k.g, stage, &[(row, rows), (column, columns)]);
        let at = simplify_with(&mut k.g, at, &mut k.memo);
        let index = k.g.index(stage, at);
        let x = k.g.load(index);
        let axes = [(sides[0], Side::N), (sides[1], Side::K)];
        if self.loads
            && let Some(loaded) = f.load(k, x, axes)
        {
            return loaded;
        }
        let map = axes.into_iter().map(|(r, side)| (r, f.place(&mut k.g, side))).collect();
        let x = substitute1(&mut k.g, x, &map);
        simplify_with(&mut k.g, x, &mut k.memo)
    }

    /// The scores of the `i`-th group of keys of a block, of as many keys as one product with values sums over.
    fn scores(&self, k: &mut Kernel, arrays: &Arrays, i: usize) -> Result<UOp> {
        let [_, n, terms] = self.sides;
        // offset of the key in the block
        let first = self.adjacent_tile_offset(k, i * terms, n);
        let mut product = match &self.registers {
            Some(_) => self.terms(k, arrays, first)?,
            None => self.tiles_of(k, arrays, first)?,
        };
        if self.a.scales[0] != 1.0 {
            let by = k.g.float(self.a.scales[0], DType::F32);
            product = k.g.binary(Op::Mul, product, by);
        }
        self.score_of(k, product, first)
    }

    /// The kernel's score expression with `product` in place of its sum of products, and minus infinity for keys past
    /// the end.
    fn score_of(&self, k: &mut Kernel, product: UOp, first: UOp) -> Result<UOp> {
        let mut score = self.score_expr(k, self.a.score, product, first);
        if self.uneven[1] {
            let at = self.key_at(k, first);
            let all = k.g.idx(k.g.range_len(self.a.axes[1]) as i64);
            let (there, none) = (k.g.binary(Op::CmpLt, at, all), k.g.float(f64::NEG_INFINITY, DType::F32));
            score = k.g.select(there, score, none);
        }
        Ok(simplify_with(&mut k.g, score, &mut k.memo))
    }

    /// The index of each score's key, which may be past the end.
    fn key_at(&self, k: &mut Kernel, first: UOp) -> UOp {
        let column = self.score.place(&mut k.g, Side::N);
        let block = times(&mut k.g, self.block_range, self.keys);
        [first, column].into_iter().fold(block, |s, x| k.g.binary(Op::Add, s, x))
    }

    /// The expression `score` with `product` in place of the kernel's sum of products, for the row and key of each
    /// element.
    fn score_expr(&self, k: &mut Kernel, score: UOp, product: UOp, first: UOp) -> UOp {
        let at = self.key_at(k, first);
        let key = self.clamped(k, 1, at);
        let row = self.row_of(k, &self.score);
        let score = widened(&mut k.g, score, self.a.product, product);
        let half = k.g.cast(product, k.g.dtype(self.a.product));
        let map = [(self.a.axes[0], row), (self.a.axes[1], key), (self.a.product, half)].into_iter().collect();
        let score = substitute1(&mut k.g, score, &map);
        simplify_with(&mut k.g, score, &mut k.memo)
    }

    /// Products of queries and keys, computed by matrix tiles.
    fn tiles_of(&self, k: &mut Kernel, arrays: &Arrays, first: UOp) -> Result<UOp> {
        let [n, terms] = [Side::N, Side::K].map(|s| self.layout.len(s));
        let step = match k.g.range_len(self.a.axes[2]) / terms {
            1 => k.g.idx(0),
            n => k.new_range(n, AxisKind::Unroll, false)?,
        };
        let from = times(&mut k.g, step, terms);
        let sides = [k.new_range(n, AxisKind::Tile, false)?, k.new_range(terms, AxisKind::Dot, false)?];
        let (row, column) = (k.g.binary(Op::Add, first, sides[0]), k.g.binary(Op::Add, from, sides[1]));
        let right = self.right(k, &self.key, arrays.keys, [row, column], sides);
        let (row, place) = (self.row_of(k, &self.query), self.query.place(&mut k.g, Side::K));
        let term = k.g.binary(Op::Add, from, place);
        let map = [(self.a.axes[0], row), (self.a.axes[2], term)].into_iter().collect();
        let left = substitute1(&mut k.g, self.a.elements[0], &map);
        let left = simplify_with(&mut k.g, left, &mut k.memo);
        let product = self.mma(k, left, right, [&self.query.registers, &self.key.registers, &self.score.registers]);
        let over = range(&k.g, step);
        Ok(k.g.reduce_over(product, ReduceOp::Add, &over))
    }

    /// `first` plus the offset of each of the adjacent tiles of `n` columns that form one left factor.
    fn adjacent_tile_offset(&self, k: &mut Kernel, first: usize, n: usize) -> UOp {
        let (mut at, mut step) = (k.g.idx(first as i64), n);
        for &r in &self.adjacent_tiles {
            let offset = times(&mut k.g, r, step);
            at = k.g.binary(Op::Add, at, offset);
            step *= k.g.range_len(r);
        }
        at
    }

    /// One product of matrix tiles.
    fn mma(&self, k: &mut Kernel, left: UOp, right: UOp, registers: [&[UOp]; 3]) -> UOp {
        let mut src: SmallVec<[UOp; 16]> = SmallVec::from_slice(&[left, right, self.thread]);
        registers.iter().for_each(|list| src.extend_from_slice(list));
        k.g.node(Op::Mma, DType::F32, &src, Arg::Mma(Box::new(self.layout.clone())))
    }

    /// Weights times values, for the `i`-th group of keys of a block.
    fn weighted(&self, k: &mut Kernel, weights: UOp, stage: UOp, i: usize) -> Result<UOp> {
        let [_, n, terms] = self.sides;
        let (columns, keys) = (k.new_range(n, AxisKind::Tile, false)?, k.new_range(terms, AxisKind::Dot, false)?);
        let (first, from) = (k.g.idx((i * terms) as i64), times(&mut k.g, self.column, n));
        let (row, column) = (k.g.binary(Op::Add, first, keys), k.g.binary(Op::Add, from, columns));
        let right = self.right(k, &self.value, stage, [row, column], [columns, keys]);
        let left = k.g.cast(weights, k.g.dtype(self.a.elements[2]));
        let own: Ranges = self.score.registers.iter().chain(&self.adjacent_tiles).copied().collect();
        Ok(self.mma(k, left, right, [&own, &self.value.registers, &self.sum.registers]))
    }

    /// The weight of a score: its exponential below the maximum. A weight is rounded to 16 bits, so a fast approximate
    /// power is used if the target has one.
    fn weight(&self, k: &mut Kernel, score: UOp, below: UOp, t: &Target) -> UOp {
        if !t.has_rough_powers() || !t.caps.fma || self.registers.is_some() {
            return self.exp(k, score, below, t);
        }
        let by = k.g.src_at(k.g.src_at(self.a.exp, 0), 1);
        let less = k.g.binary(Op::Mul, below, by);
        let less = k.g.unary(Op::Neg, less);
        let power = k.g.node(Op::MulAdd, DType::F32, &[score, by, less], Arg::None);
        k.g.node(Op::Exp2, DType::F32, &[power], Arg::Number(16))
    }

    /// The exponential of a score minus the maximum.
    fn exp(&self, k: &mut Kernel, score: UOp, below: UOp, t: &Target) -> UOp {
        let by = k.g.src_at(k.g.src_at(self.a.exp, 0), 1);
        let shifted = k.g.binary(Op::Sub, score, below);
        let power = k.g.binary(Op::Mul, shifted, by);
        let exp = k.g.unary(Op::Exp2, power);
        exp_below_zero(&mut k.g, exp, t).unwrap_or(exp)
    }

    /// The reduction over the elements of a row that a thread holds.
    fn folded(&self, k: &mut Kernel, parts: &[UOp], op: ReduceOp) -> Result<UOp> {
        let columns = self.columns();
        let mut all: Option<UOp> = None;
        for &x in parts {
            let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[x]);
            src.extend_from_slice(&columns);
            let x =
                if columns.is_empty() { x } else { k.g.node(Op::Fold, DType::F32, &src, Arg::Reduce(op, Axes::new())) };
            all = Some(all.map_or(x, |all| k.g.binary(op.op(), all, x)));
        }
        Ok(all.unwrap_or_else(|| k.g.float(0.0, DType::F32)))
    }

    /// The reduction over all threads that hold elements of the row.
    fn across(&self, k: &mut Kernel, mut part: UOp, op: ReduceOp, t: &Target) -> Result<UOp> {
        if self.registers.is_some() {
            return self.joined(k, part, op, t);
        }
        let mut bit = 1usize;
        for d in &self.layout.c.threads {
            let end = bit * d.len as usize;
            while bit < end {
                if d.side == Side::N {
                    let b = k.g.int(bit as i64, k.g.dtype(self.thread));
                    let other = k.g.binary(Op::Xor, self.thread, b);
                    let other = exchange(k, part, self.thread, other, Space::Subgroup(bit as u8), t)?;
                    part = k.g.binary(op.op(), part, other);
                }
                bit *= 2;
            }
        }
        Ok(part)
    }

    /// Stores the kernel's result, computed from both sums.
    fn store(&self, k: &mut Kernel, l: UOp, o: UOp) -> Result<()> {
        let g = &mut k.g;
        let (store, dt) = (g.src_at(k.sink, 0), g.dtype(self.a.sum));
        let mut sum = o;
        for &f in &self.a.factors {
            let f = g.cast(f, DType::F32);
            sum = g.binary(Op::Mul, sum, f);
        }
        let sum = g.cast(sum, dt);
        // the factors contain the sum of exponentials
        let value = g.src_at(store, 1);
        let value = substitute1(g, value, &[(self.a.sum, sum)].into_iter().collect());
        let (place, n) = (self.sum.place(g, Side::N), self.sides[1]);
        let from = times(g, self.column, n);
        let column = g.binary(Op::Add, from, place);
        let row = self.row_of(k, &self.sum);
        let map = [(self.a.axes[0], row), (self.a.axes[3], column), (self.a.norm, l)].into_iter().collect();
        let value = substitute1(&mut k.g, value, &map);
        let index = k.g.src_at(store, 0);
        let index = substitute1(&mut k.g, index, &map);
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[index, value]);
        if self.uneven[0] {
            let ([at, _], n) = (self.rows_of(k, &self.sum), k.g.idx(k.g.range_len(self.a.axes[0]) as i64));
            src.push(k.g.binary(Op::CmpLt, at, n));
        }
        let store = k.g.node(Op::Store, DType::Void, &src, Arg::None);
        let sink = k.g.sink(&[store]);
        k.sink = simplify_with(&mut k.g, sink, &mut k.memo);
        Ok(())
    }
}

/// The number of subgroups of a workgroup, and of tiles one below the other in each subgroup.
fn subgroups(k: &Kernel, t: &Target, a: &Attention, layout: &Layout, block: usize) -> [usize; 2] {
    let ([rows, _, terms, columns], m) = (a.lens(&k.g), layout.len(Side::M));
    let all: usize = k.ranges_of(AxisKind::Loop).iter().map(|&r| k.g.range_len(r)).product();
    let heads = all / (rows * columns).max(1);
    let (mut below, mut subgroups) = (1, 1);
    // as many rows per workgroup as leave work for all processors, because rows share the staged arrays
    let busy = |rows_of: usize| heads * rows.div_ceil(rows_of) >= t.machine.processors.max(1);
    let most = SUBGROUPS.min(t.limits.max_local_total as usize / layout.threads());
    while 2 * subgroups <= most && m * subgroups < rows && (subgroups < 4 || busy(2 * m * subgroups)) {
        subgroups *= 2;
    }
    let held = m * (columns + block) / layout.threads() + m * terms / layout.threads() / 2;
    if 2 * held <= REGISTERS && busy(2 * m * subgroups) && m * subgroups < rows {
        below = 2;
    }
    [subgroups, below]
}

/// The score expression in f32, with `sum` in place of the sum of products. Neither the sum nor intermediate results
/// are rounded to 16 bits on the way.
fn widened(g: &mut Graph, u: UOp, product: UOp, sum: UOp) -> UOp {
    if u == product {
        return sum;
    }
    let (half, src) = (g.dtype(u) != DType::F32, g.srcs(u));
    match (g.op(u), src.as_slice()) {
        (Op::Cast, &[x]) if g.dtype(x) == DType::F32 || is_half(g.dtype(x)) => widened(g, x, product, sum),
        (Op::Where, &[c, x, y]) => {
            let [x, y] = [x, y].map(|x| widened(g, x, product, sum));
            g.select(c, x, y)
        }
        (op @ (Op::Add | Op::Sub | Op::Mul | Op::Max | Op::Min), &[x, y]) => {
            let [x, y] = [x, y].map(|x| widened(g, x, product, sum));
            g.binary(op, x, y)
        }
        (op, src) if !half && op.is_alu() && src.iter().all(|&x| g.dtype(x) == DType::F32) => {
            let src: SmallVec<[UOp; 4]> = src.iter().map(|&x| widened(g, x, product, sum)).collect();
            g.with_src(u, &src)
        }
        _ => g.cast(u, DType::F32),
    }
}

fn accumulator(k: &mut Kernel, init: UOp, tile: &[UOp]) -> UOp {
    let id = k.g.iter().filter(|&u| k.g.op(u) == Op::Acc).count() as u32;
    let mut src: SmallVec<[UOp; 8]> = SmallVec::from_slice(&[init]);
    src.extend_from_slice(tile);
    k.g.node(Op::Acc, DType::F32, &src, Arg::Acc(id))
}

/// An update of an accumulator. Updates are numbered, because two that are otherwise identical must both count.
fn update(k: &mut Kernel, acc: UOp, x: UOp, op: ReduceOp, number: usize) -> UOp {
    let digits: Axes = (number as u32).to_le_bytes().into_iter().collect();
    let arg = Arg::Reduce(op, if number == 0 { Axes::new() } else { digits });
    k.g.node(Op::AccUpdate, DType::Void, &[acc, x], arg)
}

/// The node in a list if it is a range; an empty list for a constant index.
fn range(g: &Graph, u: UOp) -> Ranges {
    if g.op(u) == Op::Range { SmallVec::from_slice(&[u]) } else { Ranges::new() }
}

fn times(g: &mut Graph, u: UOp, by: usize) -> UOp {
    let by = g.idx(by as i64);
    let by = g.cast(by, g.dtype(u));
    g.binary(Op::Mul, u, by)
}

/// The index of a new range times `by`.
fn scaled(k: &mut Kernel, len: usize, kind: AxisKind, by: usize) -> Result<UOp> {
    if len == 1 {
        return Ok(k.g.idx(0));
    }
    let r = k.new_range(len, kind, false)?;
    Ok(times(&mut k.g, r, by))
}
