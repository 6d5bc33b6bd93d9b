//! Decides how a target computes attention in one loop over blocks of keys, if it does. In: the parts of a kernel, and
//! the target. Out: a [`Strategy`]: matrix tiles where the target has them for these dtypes, otherwise register tiles
//! whose factors lie in workgroup memory. The scheduler asks for each kernel that it has fused as attention, and leaves
//! it unfused if there is none; code generation asks when it makes the loop.
//!
//! The sides of a register tile are the cheapest among all that fit into registers and workgroup memory. The cost
//! counts vector loads and multiply-adds for a block of keys and the filling of its arrays, divided by the number of
//! scores in the block.

use super::Attention;
use crate::DType;
use crate::analysis::affine;
use crate::analysis::product::is_half;
use crate::target::{MatrixTile, Target};
use crate::uop::mma::{Digit, Distribution, Layout, MATRIX_TILES_ENABLED, PANEL_ROW_ELEMS, SWIZZLE_CHUNK_ELEMS, Side};
use crate::uop::{AxisKind, Graph, Op, UOp};
use smallvec::SmallVec;

/// The most columns of the values, and terms of a score, for which threads have registers.
const MOST_COLUMNS: usize = 128;
/// Elements of padding after each row of a block in workgroup memory.
const ROW_PADDING: usize = 8;
/// The most nodes of an expression for an element of queries, keys or values, as it is recomputed for each block.
const MOST_NODES: usize = 64;

/// How the two matrix products of the loop are computed.
pub enum Strategy<'a> {
    /// By matrix tiles that a subgroup multiplies from registers.
    Matrix(&'a MatrixTile),
    /// By matrix tiles whose right factors lie in workgroup memory.
    Panels(Box<Panels>),
    /// By ordinary multiply-adds on a tile of registers in each thread.
    Registers(Registers),
}

/// How the kernel becomes one loop over keys on this target. `None` if that does not pay, because it has too few rows
/// or a thread has too few registers for the columns.
pub fn choose_strategy<'a>(g: &Graph, a: &Attention, t: &'a Target) -> Option<Strategy<'a>> {
    let outer = g.reachable(&[a.sum]).into_iter();
    let mut outer = outer.filter(|&r| g.op(r) == Op::Range && g.kind(r) == AxisKind::Loop && r != a.axes[3]);
    let [_, _, terms, columns] = a.lens(g);
    if !t.caps.has_local || columns.max(terms) > MOST_COLUMNS || !outer.all(|r| g.depends(a.product, r)) {
        return None;
    }
    if MATRIX_TILES_ENABLED && let Some(panels) = panels(g, a, t) {
        return Some(Strategy::Panels(Box::new(panels)));
    }
    if MATRIX_TILES_ENABLED && let Some(tile) = tile(g, a, t) {
        let [m, n, k] = tile.sides();
        let wide = columns.is_multiple_of(n) && terms.is_multiple_of(k);
        return (wide && a.lens(g)[0] >= m && block(g, a, t, tile).is_some()).then_some(Strategy::Matrix(tile));
    }
    registers(g, a, t).map(Strategy::Registers)
}

/// The matrix tile that both products use, if the target has one: threads hold its factors in registers, and the result
/// of the first product is laid out in registers as the left factor of the second one is, with its columns as the
/// summed axis.
fn tile<'a>(g: &Graph, a: &Attention, t: &'a Target) -> Option<&'a MatrixTile> {
    let plain = |&u: &UOp| g.op(u) == Op::Load && g.src(u).len() == 1;
    let fits = |tile: &&MatrixTile| {
        let l = &tile.layout;
        let turned = |d: &Digit| if d.side == Side::N { Digit { side: Side::K, ..*d } } else { *d };
        let threads = l.c.threads.iter().map(turned).eq(l.a.threads.iter().copied());
        let (own, more) = l.a.registers.split_at(l.c.registers.len().min(l.a.registers.len()));
        // the remaining registers must belong to further products side by side
        let mut step = l.len(Side::N);
        let beside = more.iter().all(|d| {
            let next = d.side == Side::K && d.step as usize == step;
            step *= d.len as usize;
            next
        });
        let factors = a.elements.iter().chain([&a.weight]).all(|&u| g.dtype(u) == tile.factors);
        let held = !l.in_memory() && tile.sums == DType::F32 && factors;
        held && threads && beside && l.c.registers.iter().map(turned).eq(own.iter().copied())
    };
    let found = t.caps.matrix_tiles.iter().find(fits).filter(|_| a.elements.iter().all(plain));
    found.filter(|tile| tile.layout.threads() == t.caps.subgroup as usize)
}

/// Matrix tiles whose right factors lie in workgroup memory, in panels. The queries lie there as well; the weights stay
/// in the registers in which the scores were computed.
pub struct Panels {
    /// The layouts of the product of queries with a block's keys, and of the product of weights with values. Each
    /// product is one op, of as many instructions as it takes.
    pub layouts: [Layout; 2],
    /// Keys of a block.
    pub keys: usize,
    /// Subgroups of a workgroup, each of which computes the rows of one tile.
    pub subgroups: usize,
}

/// Sizes of a block in keys, the preferred first. With larger blocks the sums are rescaled less often, and threads have
/// registers for no more than 128. Splitting blocks into parts, each with its own softmax or with one for all, so that
/// products overlap with exponentials, was slower on an H200 (447 and 440 TFLOP/s, against 476).
const KEYS: [usize; 2] = [128, 64];
/// Blocks for which workgroup memory is reserved: one that is computed with, one that is being copied, and one that
/// products of the previous iteration still read.
const BLOCKS: usize = 3;

impl Panels {
    /// Rows of a workgroup.
    pub fn group(&self) -> usize {
        self.subgroups * self.layouts[0].len(Side::M)
    }
}

/// The panels for this kernel, if the target has such matrix tiles and asynchronous copies of whole rows.
fn panels(g: &Graph, a: &Attention, t: &Target) -> Option<Panels> {
    let copies = t.caps.copies?;
    let [rows, keys, terms, columns] = a.lens(g);
    let of = |tile: &&MatrixTile| {
        let factors = a.elements.iter().chain([&a.weight]).all(|&u| g.dtype(u) == tile.factors);
        tile.layout.in_memory() && tile.sums == DType::F32 && factors
    };
    let side = t.caps.matrix_tiles.iter().find(of)?.layout.len(Side::M);
    let [_, _, term, column] = a.axes;
    let whole = a.elements.iter().zip([term, term, column]).all(|(&u, along)| {
        let plain = g.op(u) == Op::Load && g.src(u).len() == 1;
        plain && {
            let at = affine(g, g.src_at(g.src_at(u, 0), 1));
            let aligned = at.terms.iter().all(|&(r, c)| r == along || c % SWIZZLE_CHUNK_ELEMS as i64 == 0);
            let one = at.stride(g, along) == Some(1) && at.non_affine_ranges == 0 && at.others.is_empty();
            one && aligned && at.constant % SWIZZLE_CHUNK_ELEMS as i64 == 0
        }
    });
    if !whole || rows < side || terms % PANEL_ROW_ELEMS != 0 || columns % PANEL_ROW_ELEMS != 0 {
        return None;
    }
    let subgroups = if rows > side { 2 } else { 1 };
    let fits = |n: &usize| {
        let blocks = BLOCKS.min(keys.div_ceil(*n));
        2 * n <= keys && (blocks * n * (terms + columns) + subgroups * side * terms) * 2 <= copies.bytes
    };
    let n = KEYS.into_iter().find(fits)?;
    let rows = subgroups * side;
    let product = |n: usize| format!("n2x4 m1x8 m16x4 | n1x2 m8x2 n8x{}", n / 8);
    let scores = format!("k1x{terms} m1x{side} @{rows}; k1x{terms} n1x{n} @{n}; {}", product(n));
    let values = format!("n1x{PANEL_ROW_ELEMS} k1x{n} n{PANEL_ROW_ELEMS}x{} @{n}", columns / PANEL_ROW_ELEMS);
    let sums = format!("k2x4 m1x8 m16x4 | k1x2 m8x2 k8x{}; {values}; {}", n / 8, product(columns));
    Some(Panels { layouts: [Layout::read(&scores)?, Layout::read(&sums)?], keys: n, subgroups })
}

/// The number of keys in a block whose keys and values fit workgroup memory, such that the loop has at least two
/// blocks.
pub fn block(g: &Graph, a: &Attention, t: &Target, tile: &MatrixTile) -> Option<usize> {
    let ([_, keys, terms, columns], step) = (a.lens(g), tile.layout.len(Side::K));
    // without asynchronous copies an element may take a 4-byte word
    let size = if t.caps.copies.is_some() { 2 } else { 4 };
    let fits = |n: usize| n * (terms + columns + 2 * ROW_PADDING) * size <= t.limits.workgroup_bytes;
    [64, 32, 16].into_iter().find(|&n| n < keys && n % step == 0 && fits(n))
}

/// A register tile. Each thread computes some rows of a block's scores and one or more vectors of their columns; the
/// threads of one row have consecutive numbers. It computes the same rows of the sum of weighted values, and its share
/// of their columns. The weights that a thread needs from other threads are exchanged through workgroup memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Number of threads along the rows, and along the columns.
    pub threads: [usize; 2],
    /// Rows of a thread.
    pub rows: usize,
    /// Vectors of keys of a thread.
    pub vectors: usize,
    /// Elements of a vector.
    pub lanes: usize,
    /// Are the workgroup's queries, and the block's values, copied to workgroup memory too, as the keys always are?
    pub staged: [bool; 2],
}

impl Registers {
    /// Rows of a workgroup.
    pub fn group(&self) -> usize {
        self.threads[0] * self.rows
    }

    /// Keys of a block.
    pub fn keys(&self) -> usize {
        self.threads[1] * self.lanes * self.vectors
    }

    /// The stride from one key to the next in the array of weights, in elements: one more than its rows, so that
    /// consecutive keys are in different memory banks.
    pub fn pitch(&self) -> usize {
        self.group() + 1
    }

    /// The layout of the tile over the threads of one row: which rows and columns of the factors and of the product
    /// each holds. Terms are summed one by one.
    pub fn layout(&self) -> Layout {
        let digit = |side, step: usize, len: usize| Digit { side, step: step as u8, len: len as u8 };
        let rows = digit(Side::M, 1, self.rows);
        let lane = digit(Side::N, 1, self.lanes);
        let threads = SmallVec::from_slice(&[digit(Side::N, self.lanes, self.threads[1])]);
        let distribution = |threads, registers: &[Digit]| {
            let registers = SmallVec::from_slice(registers);
            Distribution { threads, registers, panel: 0 }
        };
        Layout {
            a: distribution(SmallVec::new(), &[rows]),
            b: distribution(threads.clone(), &[lane]),
            c: distribution(threads, &[lane, rows]),
        }
    }

    /// Bytes of workgroup memory that the tile needs.
    fn bytes(&self, [terms, columns]: [usize; 2]) -> usize {
        let [queries, values] = self.staged.map(usize::from);
        let filled = terms * self.keys() + queries * terms * self.group() + values * self.keys() * columns;
        // the maximum and the sum of a row are reduced across its threads
        let parts = if self.threads[1] > 1 { 2 * self.threads[1] * self.group() } else { 0 };
        4 * (filled + self.pitch() * self.keys() + parts)
    }

    /// An upper bound on the iterations of all loops that a thread executes for this many keys.
    fn loop_iterations(&self, keys: usize, [terms, columns]: [usize; 2]) -> usize {
        let threads = self.threads[0] * self.threads[1];
        let filled = (terms + columns) * self.keys() / threads;
        keys.div_ceil(self.keys()) * (1 + terms + self.keys() + filled)
    }

    /// Cost in vector operations for each vector of scores, averaged over `heads` matrices of `rows` rows each.
    fn cost(&self, heads: usize, rows: usize, [terms, columns]: [usize; 2], t: &Target) -> f64 {
        let w = t.machine.workgroups;
        let [scattered_load, fill, softmax, per_iteration] = w.attention;
        let full = w.full[0].max(w.full[1] * t.machine.processors);
        let [queries, values] = self.staged;
        let wide = columns / (self.lanes * self.threads[1]);
        let (r, v, threads) = (self.rows, self.vectors, self.threads[0] * self.threads[1]);
        // queries that are not staged are loaded element by element, from addresses that are not adjacent across
        // threads
        let query = if queries { r } else { scattered_load * r };
        let scores = terms * (r * v + query + v);
        let sums = self.keys() * (r * wide + r + wide);
        let filled = self.keys() * (terms + if values { columns } else { 0 }) / self.lanes;
        let body = (scores + sums + fill * filled / threads + r * v * softmax + per_iteration) as f64;
        let groups = rows.div_ceil(self.group());
        let idle = (full as f64 / (heads * groups * threads) as f64).max(1.0);
        let idle = idle * (self.bytes([terms, columns]) as f64 / (threads * w.memory[1]) as f64).max(1.0);
        body / (r * v) as f64 * (groups * self.group()) as f64 / rows as f64 * idle
    }
}

/// The cheapest register tile for a kernel whose scores, if they were stored, would not stay in a cache until they are
/// read.
fn registers(g: &Graph, a: &Attention, t: &Target) -> Option<Registers> {
    let [rows, keys, terms, columns] = a.lens(g);
    let outer = g.reachable(&[a.product]).into_iter().filter(|&r| g.op(r) == Op::Range && g.kind(r) == AxisKind::Loop);
    let heads = outer.map(|r| g.range_len(r)).product::<usize>() / rows.max(1);
    let lanes = t.caps.lanes;
    let scores = (heads * rows).saturating_mul(keys).saturating_mul(DType::F32.size());
    let computed = a.elements.iter().any(|&u| {
        let nodes = g.reachable(&[u]);
        nodes.len() > MOST_NODES || nodes.iter().any(|&x| g.op(x) == Op::Reduce) || !g.dtype(u).is_float()
    });
    let floats = [a.product, a.sum].iter().all(|&u| g.dtype(u) == DType::F32 || is_half(g.dtype(u)));
    // an emulated GPU pays for each barrier and has large caches: there this made attention with 6 heads and 1500 keys
    // 1.8 times as slow
    if t.machine.software || lanes < 2 || computed || !floats || scores as f64 <= t.machine.resident_bytes {
        return None;
    }
    let sides = [terms, columns];
    let mut best: Option<(f64, Registers)> = None;
    for threads in [64, 128, 256] {
        for side in [1, 2, 4, 8].into_iter().filter(|n| columns.is_multiple_of(lanes * n)) {
            let wide = columns / (lanes * side);
            for (rows_of, vectors) in [1, 2, 4, 8].into_iter().flat_map(|r| [1, 2, 4].map(|v| (r, v))) {
                for staged in [[true, true], [true, false], [false, true], [false, false]] {
                    let r = Registers { threads: [threads / side, side], rows: rows_of, vectors, lanes, staged };
                    let held = rows_of * (wide + vectors) + wide.max(vectors) + rows_of.div_ceil(lanes);
                    let fits = held <= t.caps.vector_registers
                        && threads <= t.limits.max_local_total as usize
                        && r.keys() < keys
                        && r.group() < 2 * rows
                        && r.bytes(sides) <= t.limits.workgroup_bytes
                        && r.loop_iterations(keys, sides) < t.limits.max_loop_iterations as usize;
                    let cost = r.cost(heads, rows, sides, t);
                    if fits && best.is_none_or(|b| cost < b.0) {
                        best = Some((cost, r));
                    }
                }
            }
        }
    }
    best.map(|b| b.1)
}
