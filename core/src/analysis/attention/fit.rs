//! How a target computes attention in one loop over blocks of keys, if it does. In: the parts of a kernel, and the target. Out: a [`Way`], by matrix
//! tiles where the target has them for these dtypes, and else by tiles of registers whose factors lie in workgroup memory. The scheduler asks
//! before it joins kernels, and code generation when it makes the loop.
//!
//! The sides of a tile of registers are those of least cost among all that there is room for: loads and multiply-adds of vectors are counted for a
//! block of keys, with what filling its arrays takes, and divided by the scores that it has.

use super::Attention;
use crate::DType;
use crate::analysis::affine;
use crate::analysis::product::is_half;
use crate::target::{MatrixTile, Target};
use crate::uop::mma::{BUILT, Digit, Layout, PANEL, PIECE, Side, Spread};
use crate::uop::{AxisKind, Graph, Op, UOp};
use smallvec::SmallVec;

/// Columns of values, and terms of a score, for which there are registers.
const MOST_COLUMNS: usize = 128;
/// Elements after each row in workgroup memory.
const ROW_PADDING: usize = 8;
/// Nodes of an element that is computed anew for each block.
const MOST_NODES: usize = 64;

/// How both products of the loop are computed.
pub enum Way<'a> {
    /// By a tile that subgroups multiply.
    Matrix(&'a MatrixTile),
    /// By tiles whose right factors lie in workgroup memory.
    Panels(Box<Panels>),
    /// By tiles that each thread holds in registers.
    Registers(Registers),
}

/// How the kernel becomes one loop over keys on this target, if that pays: its rows are many enough, and a thread has registers for the columns.
pub fn way<'a>(g: &Graph, a: &Attention, t: &'a Target) -> Option<Way<'a>> {
    let outer = g.reachable(&[a.sum]).into_iter();
    let mut outer = outer.filter(|&r| g.op(r) == Op::Range && g.kind(r) == AxisKind::Loop && r != a.axes[3]);
    let [_, _, terms, columns] = a.lens(g);
    if !t.has_local || columns.max(terms) > MOST_COLUMNS || !outer.all(|r| g.depends(a.product, r)) {
        return None;
    }
    if BUILT && let Some(panels) = panels(g, a, t) {
        return Some(Way::Panels(Box::new(panels)));
    }
    if BUILT && let Some(tile) = tile(g, a, t) {
        let [m, n, k] = tile.sides();
        let wide = columns.is_multiple_of(n) && terms.is_multiple_of(k);
        return (wide && a.lens(g)[0] >= m && block(g, a, t, tile).is_some()).then_some(Way::Matrix(tile));
    }
    registers(g, a, t).map(Way::Registers)
}

/// The tile that both products of the kernel use, where the target has one: threads hold what it multiplies, and a product lies in their
/// registers as the left factor of the next one does, its columns being what that sums over.
fn tile<'a>(g: &Graph, a: &Attention, t: &'a Target) -> Option<&'a MatrixTile> {
    let plain = |&u: &UOp| g.op(u) == Op::Load && g.src(u).len() == 1;
    let fits = |tile: &&MatrixTile| {
        let l = &tile.layout;
        let turned = |d: &Digit| if d.side == Side::N { Digit { side: Side::K, ..*d } } else { *d };
        let threads = l.c.threads.iter().map(turned).eq(l.a.threads.iter().copied());
        let (own, more) = l.a.registers.split_at(l.c.registers.len().min(l.a.registers.len()));
        // what is left are further products side by side
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
    let found = t.matrix_tiles.iter().find(fits).filter(|_| a.elements.iter().all(plain));
    found.filter(|tile| tile.layout.threads() == t.subgroup as usize)
}

/// Tiles whose right factors lie in workgroup memory, in panels: queries do, too, and weights are in the registers in which scores are computed.
pub struct Panels {
    /// The product of queries and keys of a block, and that of weights and values. Each is one op, of as many instructions as it takes.
    pub layouts: [Layout; 2],
    /// Keys of a block.
    pub keys: usize,
    /// Subgroups of a workgroup, each with a tile's rows.
    pub subgroups: usize,
}

/// Keys of a block: with more of them sums are multiplied less often, and threads have registers for no more. Parts of blocks, each with a softmax of
/// its own or with one for all, so that more is multiplied while exponentials are computed, were slower on an H200 (447 and 440 TFLOP/s, this 476).
const KEYS: [usize; 2] = [128, 64];
/// Blocks that there is room for: one is computed with, one is copied, and products of the turn before still read one.
const BLOCKS: usize = 3;

impl Panels {
    /// Rows of a workgroup.
    pub fn group(&self) -> usize {
        self.subgroups * self.layouts[0].len(Side::M)
    }
}

/// The sides of such tiles, where the target has them, and copies of whole rows that go on by themselves.
fn panels(g: &Graph, a: &Attention, t: &Target) -> Option<Panels> {
    let copies = t.copies?;
    let [rows, keys, terms, columns] = a.lens(g);
    let of = |tile: &&MatrixTile| {
        let factors = a.elements.iter().chain([&a.weight]).all(|&u| g.dtype(u) == tile.factors);
        tile.layout.in_memory() && tile.sums == DType::F32 && factors
    };
    let side = t.matrix_tiles.iter().find(of)?.layout.len(Side::M);
    let [_, _, term, column] = a.axes;
    let whole = a.elements.iter().zip([term, term, column]).all(|(&u, along)| {
        let plain = g.op(u) == Op::Load && g.src(u).len() == 1;
        plain && {
            let at = affine(g, g.src_at(g.src_at(u, 0), 1));
            let aligned = at.terms.iter().all(|&(r, c)| r == along || c % PIECE as i64 == 0);
            let one = at.stride(g, along) == Some(1) && at.tangled == 0 && at.others.is_empty();
            one && aligned && at.constant % PIECE as i64 == 0
        }
    });
    if !whole || rows < side || terms % PANEL != 0 || columns % PANEL != 0 {
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
    let values = format!("n1x{PANEL} k1x{n} n{PANEL}x{} @{n}", columns / PANEL);
    let sums = format!("k2x4 m1x8 m16x4 | k1x2 m8x2 k8x{}; {values}; {}", n / 8, product(columns));
    Some(Panels { layouts: [Layout::read(&scores)?, Layout::read(&sums)?], keys: n, subgroups })
}

/// Keys of a block of the loop, whose keys and values have room in workgroup memory: there are two blocks at least.
pub fn block(g: &Graph, a: &Attention, t: &Target, tile: &MatrixTile) -> Option<usize> {
    let ([_, keys, terms, columns], step) = (a.lens(g), tile.layout.len(Side::K));
    // without copies that go on by themselves an element may be a word
    let size = if t.copies.is_some() { 2 } else { 4 };
    let fits = |n: usize| n * (terms + columns + 2 * ROW_PADDING) * size <= t.workgroup_bytes;
    [64, 32, 16].into_iter().find(|&n| n < keys && n % step == 0 && fits(n))
}

/// A tile of registers: each thread has some rows of a block's scores, and of their columns one or more vectors; threads of one row lie side by side.
/// It has the same rows of the sum of weighted values, and as many vectors of columns as these have. What a thread needs of other threads' weights
/// comes through workgroup memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Threads one below the other, and side by side.
    pub threads: [usize; 2],
    /// Rows of a thread.
    pub rows: usize,
    /// Vectors of keys of a thread.
    pub vectors: usize,
    /// Elements of a vector.
    pub lanes: usize,
    /// Are the queries of the workgroup and the values of the block in workgroup memory too, as the keys are?
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

    /// Elements of the array of weights from those of one key to those of the next: one more than rows, so that neighbours are in different banks.
    pub fn pitch(&self) -> usize {
        self.group() + 1
    }

    /// What the threads of one row hold of a factor's rows, of the columns of the other one and of the product. They sum over terms one by one.
    pub fn layout(&self) -> Layout {
        let digit = |side, step: usize, len: usize| Digit { side, step: step as u8, len: len as u8 };
        let rows = digit(Side::M, 1, self.rows);
        let near = digit(Side::N, 1, self.lanes);
        let threads = SmallVec::from_slice(&[digit(Side::N, self.lanes, self.threads[1])]);
        let spread =
            |threads, registers: &[Digit]| Spread { threads, registers: SmallVec::from_slice(registers), panel: 0 };
        Layout {
            a: spread(SmallVec::new(), &[rows]),
            b: spread(threads.clone(), &[near]),
            c: spread(threads, &[near, rows]),
        }
    }

    /// Bytes of workgroup memory.
    fn bytes(&self, [terms, columns]: [usize; 2]) -> usize {
        let [queries, values] = self.staged.map(usize::from);
        let filled = terms * self.keys() + queries * terms * self.group() + values * self.keys() * columns;
        // the maximum and the sum of a row are made of parts
        let parts = if self.threads[1] > 1 { 2 * self.threads[1] * self.group() } else { 0 };
        4 * (filled + self.pitch() * self.keys() + parts)
    }

    /// Turns of all loops that a thread goes through for so many keys, at most.
    fn turns(&self, keys: usize, [terms, columns]: [usize; 2]) -> usize {
        let threads = self.threads[0] * self.threads[1];
        let filled = (terms + columns) * self.keys() / threads;
        keys.div_ceil(self.keys()) * (1 + terms + self.keys() + filled)
    }

    /// Operations on vectors for a vector of scores, on average, in `heads` matrices of so many rows.
    fn cost(&self, heads: usize, rows: usize, [terms, columns]: [usize; 2], t: &Target) -> f64 {
        let w = t.machine.workgroups;
        let [far, fill, softmax, turn] = w.attention;
        let full = w.full[0].max(w.full[1] * t.processors);
        let [queries, values] = self.staged;
        let wide = columns / (self.lanes * self.threads[1]);
        let (r, v, threads) = (self.rows, self.vectors, self.threads[0] * self.threads[1]);
        // what is read from memory by threads that are no neighbours there
        let query = if queries { r } else { far * r };
        let scores = terms * (r * v + query + v);
        let sums = self.keys() * (r * wide + r + wide);
        let filled = self.keys() * (terms + if values { columns } else { 0 }) / self.lanes;
        let body = (scores + sums + fill * filled / threads + r * v * softmax + turn) as f64;
        let groups = rows.div_ceil(self.group());
        let idle = (full as f64 / (heads * groups * threads) as f64).max(1.0);
        let idle = idle * (self.bytes([terms, columns]) as f64 / (threads * w.memory[1]) as f64).max(1.0);
        body / (r * v) as f64 * (groups * self.group()) as f64 / rows as f64 * idle
    }
}

/// The tile of registers for a kernel whose scores, stored, would not stay in a cache until they are read.
fn registers(g: &Graph, a: &Attention, t: &Target) -> Option<Registers> {
    let [rows, keys, terms, columns] = a.lens(g);
    let outer = g.reachable(&[a.product]).into_iter().filter(|&r| g.op(r) == Op::Range && g.kind(r) == AxisKind::Loop);
    let heads = outer.map(|r| g.range_len(r)).product::<usize>() / rows.max(1);
    let lanes = t.lanes;
    let scores = (heads * rows).saturating_mul(keys).saturating_mul(DType::F32.size());
    let computed = a.elements.iter().any(|&u| {
        let nodes = g.reachable(&[u]);
        nodes.len() > MOST_NODES || nodes.iter().any(|&x| g.op(x) == Op::Reduce) || !g.dtype(u).is_float()
    });
    let floats = [a.product, a.sum].iter().all(|&u| g.dtype(u) == DType::F32 || is_half(g.dtype(u)));
    // a processor that emulates a GPU pays for each barrier and has large caches: attention of 6 heads and 1500 keys took 1.8 times as long so
    if t.software || lanes < 2 || computed || !floats || scores as f64 <= t.machine.kept {
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
                    let fits = held <= t.vector_registers
                        && threads <= t.max_local_total as usize
                        && r.keys() < keys
                        && r.group() < 2 * rows
                        && r.bytes(sides) <= t.workgroup_bytes
                        && r.turns(keys, sides) < t.max_turns as usize;
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
