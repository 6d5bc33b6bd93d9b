//! Chooses the opts of a kernel from estimates, without compiling alternatives: [`choose`]. In: a kernel with settled
//! loops, and a target. Out: a list of opts. Attention, row kernels, byte products, matrix tiles, GPU tiles and
//! elementwise kernels have files of their own beside this one and are selected by the kernel's role. This file has
//! contractions on vectors: each candidate register tile gets a cost in cycles, from the loads and registers that it
//! needs, and the cheapest one is taken.

use super::{Level, Opt, Staging, chain, recurrence, rows, wide};
use crate::DType;
use crate::analysis::{Affine, Role, affine};
use crate::codegen::axes::Kernel;
use crate::codegen::live::{self, SampleLengths};
use crate::rules::conjuncts;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Graph, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// A load or store as the cost estimates of this module see it.
pub(super) struct Access {
    pub(super) affine: Affine,
    /// Ranges that the address depends on.
    pub(super) ranges: RangeSet,
    pub(super) gated: RangeSet,
    /// Ranges that the address depends on only through a division by a small constant (1 to 8): adjacent iterations
    /// read the same element.
    pub(super) shared_by_neighbours: RangeSet,
    /// Slot of the parameter, if this is the only load from it.
    pub(super) slot: Option<u32>,
    /// The operand is constant across runs, so a packed copy of it can be made outside the kernel.
    pub(super) constant: bool,
    /// Size of the parameter in bytes.
    pub(super) bytes: usize,
    /// Size of an element in bytes.
    pub(super) size: usize,
    /// Costs of converting elements to the lanes' 32 bits, in units of a vector load ([`Machine::narrow`]): of a vector,
    /// and of an element that is repeated in all lanes.
    pub(super) conversion: [f64; 2],
    pub(super) store: bool,
}

impl Access {
    /// Does the address or the gate depend on this range?
    pub(super) fn has(&self, id: u8) -> bool {
        (self.ranges | self.gated) >> id & 1 == 1
    }
}

/// The kernel as the cost estimates of this module see it.
pub(super) struct View<'a> {
    pub(super) k: &'a Kernel,
    pub(super) t: &'a Target,
    pub(super) out_axes: Vec<UOp>,
    /// The loops of the reduction with the most iterations (the main reduction).
    pub(super) reduce_axes: Vec<UOp>,
    pub(super) inner: Vec<Access>,
    pub(super) store: Option<Access>,
    /// True on CPUs with vectors, if elements may be computed twice: the last tile of an axis may overlap the one
    /// before it, and operands may be staged.
    pub(super) may_overlap_and_stage: bool,
    /// Operations on the result of the reduction (the epilogue); counted only for software GPUs.
    pub(super) after: usize,
    /// The output axes that may become lanes, if not all of them may.
    pub(super) lanes: Option<RangeSet>,
    /// The axes that get no lanes because of wide values ([`wide::scalar_ranges`]).
    pub(super) scalar_ranges: RangeSet,
    /// For strided transposed convolutions on CPUs: the loops over filter taps whose number of iterations depends on
    /// the phase (the output position modulo the stride, `digits.rs`), and the loops over phases. They get no lanes,
    /// tiles or unrolling, so that each phase runs only the taps that contribute to it.
    phase_ranges: RangeSet,
    /// Length and id of each range, by node: a cache, because they are looked up very often.
    axes: Vec<(usize, u8)>,
    /// Typical lengths of loops whose number of needed iterations depends on launch scalars.
    sample_lengths: SampleLengths,
}

/// See [`Access::shared_by_neighbours`].
fn shared_by_neighbours(g: &Graph, at: UOp) -> RangeSet {
    let (mut divided, mut other): (RangeSet, RangeSet) = (0, 0);
    for u in g.reachable(&[at]) {
        let small = matches!(g.op(u), Op::FloorDiv | Op::Idiv | Op::Shr)
            && g.const_int(g.src_at(u, 1)).is_some_and(|c| (1..=8).contains(&c));
        for &r in g.src(u).iter().filter(|&&s| g.op(s) == Op::Range) {
            *(if small { &mut divided } else { &mut other }) |= g.ranges(r);
        }
    }
    divided & !other
}

/// Picks opts for a kernel.
pub fn choose(k: &Kernel, t: &Target) -> Vec<Opt> {
    let t = &*wide::target_for(k, t);
    let v = View::new(k, t);
    if let Some(opts) = v.dots().or_else(|| v.dot_bytes()).or_else(|| v.matrix()).or_else(|| v.words_of_rows()) {
        return opts;
    }
    let mut opts = Vec::new();
    let vector = v.vectorisable();
    let all_axes = vector && v.scalar_ranges == 0;
    if k.role == Role::Chain {
        opts = chain::choose(k, t);
    } else if k.role == Role::Recurrence {
        opts = recurrence::choose(k, t);
    } else if matches!(k.role, Role::Rows | Role::Attention) {
        opts = rows::choose(k, t);
    } else if let Some(tiled) = v.multi_buffered().or_else(|| v.tiled(all_axes)) {
        return tiled;
    } else if !v.reduce_axes.is_empty() {
        v.contraction(vector, &mut opts);
    } else if vector {
        v.elementwise(&mut opts);
    }
    if t.caps.has_local {
        v.launch(&mut opts);
    }
    // a software GPU fetches every vector component separately, so memory order does not matter, and a copy is one more
    // kernel to compile
    if !k.role.is_rows() && !v.reduce_axes.is_empty() && !v.emulated() {
        v.pack(&mut opts);
    }
    opts
}

/// Cycles of storing one vector of two interleaved registers ([`View::interleaves`]): one for the shuffle and one for
/// the store. The prices in `codegen/cost.rs` are means over many instructions. By those a shuffle would cost more than
/// a store, and tiles that take twice as long would be chosen.
const INTERLEAVED_STORE: f64 = 2.0;

/// Bytes of a memory page: the hardware prefetcher does not cross its end.
const PAGE: usize = 4096;
/// The most scalar loads that an unrolled loop body may hold for vector lanes whose addresses are not contiguous (a
/// gather). Within one body the processor overlaps their latencies; in separate loop iterations they would wait for
/// each other.
const MAX_GATHERED_LOADS_UNROLLED: usize = 64;
/// The most loads in a loop body whose tile has more than one row or more than four registers: the code of a long
/// expression for a larger tile would not stay decoded in the processor.
const MOST_LOADS: usize = 160;
/// A reduction with fewer iterations than this is unrolled anyway, so its loads are in one body already.
const MIN_GATHER_STEPS: usize = 9;
/// Factor on the cost of a tile whose rows are 64 kB or more apart: they share no page, and they compete for the same
/// sets of the caches.
const FAR_ROWS: f64 = 1.05;
/// Factor on the cost of a tile whose rows lie in more cache lines than the first-level cache keeps
/// ([`View::exceeds_l1_lines`]): in Node a 1x1 convolution with stride 2 took 27 milliseconds with three image rows in
/// its tile, and 15 with three adjacent pixels of one row. x86 does not use this factor, because it has a price for
/// each line (`refetch.rs`); it was not measured on AArch64.
const ROWS_BEYOND_L1: f64 = 1.25;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Tile {
    pub(super) lane: Option<UOp>,
    /// Elements along the lane axis; `vectors` is the number of registers that they fill.
    pub(super) width: usize,
    pub(super) vectors: usize,
    pub(super) ups: [(Option<UOp>, usize); 2],
    cost: f64,
}

impl<'a> View<'a> {
    pub(super) fn new(k: &'a Kernel, t: &'a Target) -> View<'a> {
        let g = &k.g;
        let out_axes = k.row_loops().0;
        let mut main: Option<(UOp, usize)> = None;
        for r in k.reduces() {
            let work: usize = g.src(r)[1..].iter().map(|&x| g.range_len(x)).product();
            if main.is_none_or(|m| work >= m.1) {
                main = Some((r, work));
            }
        }
        let mut reduce_axes: Vec<UOp> = main.map_or(Vec::new(), |(r, _)| g.src(r)[1..].to_vec());
        reduce_axes.retain(|&r| g.kind(r) != AxisKind::Dot);
        let inside = main.map(|(r, _)| g.reachable(&[g.src_at(r, 0)])).unwrap_or_else(|| k.nodes());
        let all: Vec<UOp> = k.nodes().into_iter().filter(|&u| g.op(u) == Op::Load).collect();
        let only = |s: &u32| all.iter().filter(|&&u| k.slot_below(g.src_at(u, 0)) == Some(*s)).count() == 1;
        let access = |index: UOp, gate: Option<UOp>, store: bool| {
            let slot = k.slot_below(index).filter(only);
            let (affine, ranges) = (affine(g, g.src_at(index, 1)), g.ranges(index));
            let all = gate.map_or(0, |x| g.ranges(x));
            let constant = !store && slot.is_some_and(|s| k.packable(s, index, all, t));
            // a condition in `loop_limits` costs nothing on a CPU: the loop over taps ends before it fails
            let asked = |c: &UOp| t.caps.has_local || !k.loop_limits.iter().any(|x| x.1 == *c);
            let clauses = gate.map_or(SmallVec::new(), |x| conjuncts(g, x));
            let gated = clauses.into_iter().filter(asked).fold(0, |m, c| m | g.ranges(c));
            let len = if let Arg::Param { len, .. } = g.arg(g.src_at(index, 0)) { *len } else { 0 };
            let shared_by_neighbours = shared_by_neighbours(g, g.src_at(index, 1));
            let dt = g.dtype(index);
            let ops = if dt == DType::F16 { f64::from(t.machine.half_ops) } else { 0.0 };
            let conversion = t.machine.narrow.map(|cost| if dt.size() < 4 { cost + ops } else { 0.0 });
            Access {
                affine,
                ranges,
                shared_by_neighbours,
                gated,
                slot,
                constant,
                bytes: len.saturating_mul(dt.size()),
                size: dt.size(),
                conversion,
                store,
            }
        };
        let inner = inside
            .iter()
            .filter(|&&u| g.op(u) == Op::Load)
            .map(|&u| access(g.src_at(u, 0), g.src(u).get(2).copied(), false))
            .collect();
        let st = k.store();
        let store = (g.op(st) == Op::Store).then(|| access(g.src_at(st, 0), g.src(st).get(2).copied(), true));
        let may_overlap_and_stage = !t.caps.has_local && t.caps.lanes > 1 && k.repeatable();
        let after = if t.machine.software { View::count_after(k, &inside) } else { 0 };
        let ranges = k.ranges();
        let mut axes = vec![(0, 0); ranges.iter().max().map_or(0, |r| r.0 as usize + 1)];
        ranges.iter().for_each(|&r| axes[r.0 as usize] = (g.range_len(r), g.range_arg(r).id));
        let phase_ranges = k.loop_limits.iter().filter(|_| !t.caps.has_local).fold(0, |m, x| m | g.ranges(x.1));
        View {
            k,
            t,
            out_axes,
            reduce_axes,
            inner,
            store,
            may_overlap_and_stage,
            after,
            lanes: None,
            scalar_ranges: wide::scalar_ranges(k, t),
            phase_ranges,
            axes,
            sample_lengths: live::sample_lengths(k),
        }
    }

    /// Distance in memory, in elements, between neighbouring results along an axis.
    pub(super) fn store_stride(&self, r: UOp) -> Option<i64> {
        self.store.as_ref().and_then(|a| a.affine.stride(&self.k.g, r))
    }

    pub(super) fn len(&self, r: UOp) -> usize {
        self.axes[r.0 as usize].0
    }

    pub(super) fn id(&self, r: UOp) -> u8 {
        self.axes[r.0 as usize].1
    }

    /// Vector code pays, and renderers support it, only where all arithmetic along the lanes is on 32-bit types, or on
    /// wider ones that have vectors; narrow types may be loaded, stored and cast. Axes such as the rows of a table that
    /// 64-bit indices choose have no lanes ([`View::scalar_ranges`]), but others may.
    fn vectorisable(&self) -> bool {
        let g = &self.k.g;
        if self.t.caps.lanes < 2 {
            return false;
        }
        self.k.nodes().into_iter().all(|u| {
            let dt = g.dtype(u);
            // a constant of a narrow type is the value of a load whose gate is false
            let alt = g.op(u) == Op::Const && self.t.caps.narrow_mask_constants;
            let narrow_memory = alt || matches!(g.op(u), Op::Load | Op::Store | Op::Index | Op::Param | Op::Cast);
            match dt.size() {
                0 | 4 => true,
                1 | 2 => {
                    let narrow = narrow_memory && !self.t.caps.has_local;
                    dt == crate::DType::Bool || narrow || rows::widened(self.k, u, self.t)
                }
                _ => true,
            }
        })
    }

    /// Cost of loading the elements of one access for a whole tile and one step of the reduction, in units of one
    /// vector load.
    pub(super) fn access_cost(&self, a: &Access, tile: &Tile, lanes: usize) -> f64 {
        let g = &self.k.g;
        let mut n = 1.0;
        for (r, f) in tile.ups.iter().filter_map(|&(r, f)| r.map(|r| (r, f))) {
            if a.ranges >> g.range_arg(r).id & 1 == 1 {
                n *= f as f64;
            }
        }
        if a.gated != 0 && !a.constant && self.may_overlap_and_stage && tile.lane.is_none_or(|l| !a.has(self.id(l))) {
            // each scalar load is guarded by a branch
            return n * self.t.machine.guarded_load;
        }
        let whole = self.may_overlap_and_stage && tile.width >= lanes;
        let [converted, repeated] = a.conversion;
        let repeated = if whole { self.t.machine.broadcast } else { 1.0 } + repeated;
        if a.constant {
            return n * if tile.lane.is_some_and(|l| a.has(self.id(l))) { tile.vectors as f64 } else { repeated };
        }
        let Some(lane) = tile.lane else { return n * (1.0 + converted) };
        let id = g.range_arg(lane).id;
        // AVX-512 (16 lanes) has mask registers, which make masked loads cheaper
        let masked = if self.may_overlap_and_stage && lanes < 16 { 3.0 } else { 2.0 };
        let gate_cost = if a.gated >> id & 1 == 0 { 1.0 } else { masked };
        match a.affine.stride(g, lane) {
            Some(0) if a.ranges >> id & 1 == 0 => n * repeated,
            Some(1) => n * tile.vectors as f64 * (gate_cost + converted),
            Some(2) if self.t.caps.permutes => {
                // if the last tile overlaps instead of the axis being rounded up, fewer lanes are masked
                let overlaps = self.len(lane) >= tile.width && self.reuse(a, tile) == 1;
                let gated = if tile.width < lanes || overlaps { 10.0 } else { 12.0 };
                n * tile.vectors as f64 * if gate_cost > 1.0 { gated } else { 2.5 }
            }
            None if self.permutes(a, lane) && gate_cost == 1.0 => n * tile.vectors as f64 * 2.5,
            _ => {
                // lanes that are each on another page are as many separate streams from memory
                let streams = a.affine.stride(g, lane).is_some_and(|s| s.unsigned_abs() as usize * a.size >= PAGE);
                let streams = if self.gathers(lane) && streams && a.bytes as f64 > self.t.machine.resident_bytes {
                    2.0
                } else {
                    1.0
                };
                let gated = if self.gathers(lane) && lanes == 16 { 2.0 } else { 5.0 };
                let each = if self.may_overlap_and_stage && gate_cost > 1.0 { gated } else { 1.5 * gate_cost };
                let miss = self.t.machine.caches.l2_line_cycles[1];
                let each = if self.lanes_evict_lines(a, lane, tile.width) { each + miss } else { each };
                n * tile.vectors as f64 * (lanes as f64 * each * streams + converted)
            }
        }
    }

    /// Are neighbours along an axis at least 64 kB apart, as the images of a batch are?
    pub(super) fn is_far(&self, a: &Access, r: UOp) -> bool {
        const FAR: u64 = 64 << 10;
        !a.constant && a.affine.stride(&self.k.g, r).is_some_and(|s| s.unsigned_abs().saturating_mul(4) >= FAR)
    }

    /// Whether a tile with `rows` rows along `r` reads, over the whole sum, at least as many cache lines as the
    /// first-level cache has, so that none is kept for the next tile, while a tile with one row would need at most half
    /// of them.
    fn exceeds_l1_lines(&self, a: &Access, r: UOp, rows: usize) -> bool {
        let step = |r: UOp| a.affine.stride(&self.k.g, r).map_or(0, |s| s.unsigned_abs() as usize * a.size);
        let (mut windows, mut steps) = (0, 1);
        for &red in self.reduce_axes.iter().filter(|&&red| step(red) >= 64) {
            // overlapping windows share cache lines
            if step(red) == step(r) { windows = self.len(red) - 1 } else { steps *= self.len(red) }
        }
        let kept: usize = self.t.machine.caches.l1_sets_ways.iter().product();
        !a.constant && step(r) >= 64 && (rows + windows) * steps >= kept && (1 + windows) * steps * 2 <= kept
    }

    /// Can the load be made of contiguous vectors whose elements a permutation then distributes to the lanes? True
    /// where adjacent lanes read the same element ([`Access::shared_by_neighbours`]).
    pub(super) fn permutes(&self, a: &Access, lane: UOp) -> bool {
        self.t.caps.permutes && !a.store && a.shared_by_neighbours >> self.id(lane) & 1 == 1
    }

    /// Would lanes along this output axis have to be gathered (the only operand has no stride of -1 to 2 along it), on
    /// a machine that overlaps the latencies of loads within one loop body?
    fn gathers(&self, lane: UOp) -> bool {
        let machine = self.t.machine.parallel_loads && self.out_axes.contains(&lane);
        let steps = self.reduce_axes.iter().fold(1usize, |n, &r| n.saturating_mul(self.len(r)));
        machine
            && steps >= MIN_GATHER_STEPS
            && self.inner.len() == 1
            && self.inner.iter().all(|a| a.affine.stride(&self.k.g, lane).is_some_and(|s| !(-1..=2).contains(&s)))
    }

    /// Cost per step of the reduction of reading an operand directly from memory, without a staged copy.
    pub(super) fn plain_cost(&self, a: &Access, tile: &Tile) -> f64 {
        let cost = self.access_cost(a, tile, self.t.caps.lanes);
        if let Some([plain, _]) = self.sliding_cost(a, tile) {
            return plain;
        }
        match () {
            _ if a.constant => cost * self.panel_distance_factor(self.panel(a, tile, &[]).0),
            _ if self.may_overlap_and_stage && self.thrashes(a, tile) => cost * self.thrashing(),
            _ => cost,
        }
    }

    /// Cycles per step that a tile waits for memory because of operands that are read only once, along rows of a large
    /// operand or in several distant parts: the hardware prefetches one stream better than several.
    fn stream_cost(&self, a: &Access, tile: &Tile) -> f64 {
        const LARGE: f64 = (4 << 20) as f64;
        let has = |r: UOp| a.has(self.id(r));
        // a tile without lanes reads element after element along the sum
        let step = |r: &&UOp| a.affine.stride(&self.k.g, **r) == Some(1);
        let axis = match tile.lane {
            Some(lane) => Some(lane).filter(|&l| has(l)),
            None => self.reduce_axes.iter().copied().find(|r| step(&r)),
        };
        let Some(axis) = axis else { return 0.0 };
        let along = self.reduce_axes.contains(&axis);
        if !self.may_overlap_and_stage || a.constant || self.reuse(a, tile) > 1 {
            return 0.0;
        }
        let stream = |r: UOp| has(r) && (along || self.is_far(a, r));
        let rows: usize = tile.ups.iter().filter(|u| u.0.is_some_and(stream)).map(|u| u.1).product();
        // with several rows, waits begin as soon as the operand exceeds the core's own caches
        let few = if rows > 1 { self.t.machine.resident_bytes } else { LARGE };
        if along && (a.bytes as f64) < few {
            return 0.0;
        }
        // overlapping windows find most of their elements in a cache
        let both = self.out_axes.iter().chain(&self.reduce_axes).filter(|&&r| has(r));
        let count = both.fold(1usize, |n, &r| n.saturating_mul(self.len(r)));
        if !along && (rows == 1 || count > a.bytes / a.size) {
            return 0.0;
        }
        let line = self.t.machine.caches.memory_line_cycles[usize::from(rows > 1)];
        let size = if along { 4 } else { a.size };
        let elements = if tile.lane.is_some() { tile.vectors * self.t.caps.lanes } else { 1 };
        (rows * elements * size) as f64 / 64.0 * line
    }

    /// Cycles per step that a tile waits for an operand that all its rows share. If a row of that operand takes more
    /// than three quarters of the first-level cache, the cache does not keep it beside the other streams: each of its
    /// lines is then fetched from the second-level cache for every tile, in competition with lines from memory.
    fn l1_miss_cost(&self, a: &Access, tile: &Tile) -> f64 {
        let Some(lane) = tile.lane.filter(|l| self.reduce_axes.contains(l) && a.has(self.id(*l))) else { return 0.0 };
        if !self.may_overlap_and_stage
            || a.constant
            || self.reuse(a, tile) <= 1
            || a.affine.stride(&self.k.g, lane) != Some(1)
        {
            return 0.0;
        }
        let axes = self.reduce_axes.iter().filter(|&&r| a.has(self.id(r)));
        let row = axes.fold(a.size, |n, &r| n.saturating_mul(self.len(r)));
        let stays = row <= self.t.machine.prices.caches[0].0 as usize / 4 * 3;
        let lines = (tile.vectors * self.t.caps.lanes * a.size) as f64 / 64.0;
        if stays { 0.0 } else { lines * self.t.machine.caches.l1_miss_mixed_cycles }
    }

    /// Estimated cycles per output vector and step of the reduction. `None` if the tile needs more registers than there
    /// are, or does not cost less than `most`.
    fn tile_cost(&self, tile: &Tile, most: Option<f64>) -> Option<f64> {
        let cheap = |cost: f64| most.is_none_or(|m| cost < m);
        if self.emulated() {
            return self.emulated_cost(tile).filter(|&c| cheap(c));
        }
        let lanes = self.t.caps.lanes;
        let rows: usize = tile.ups.iter().map(|u| u.1).product();
        let accs = rows * tile.vectors;
        // vectors of half the width can only use the first sixteen registers
        let registers = if tile.width < lanes { 16.min(self.registers()) } else { self.registers() };
        if accs >= registers || accs > tile.vectors.min(4) && accs * self.inner.len() > MOST_LOADS {
            return None;
        }
        // a multiply-add can read one operand from memory, so a tile of seven rows of four of the widest registers may
        // take all 32
        let rows_alone =
            tile.vectors == 4 && tile.ups[1].1 == 1 && tile.lane.is_some_and(|l| self.out_axes.contains(&l));
        let packed = |a: &Access| a.constant || tile.lane.is_none_or(|l| !a.has(self.id(l)));
        let full = self.t.caps.memory_operands && lanes == 16 && rows_alone && self.inner.iter().all(packed);
        let fits = |used: usize| used <= registers || full && used == registers + 1;
        // rejects most tiles early: they are too large or too slow even if loads were free, and the costs of loads take
        // time to compute
        let least = accs + self.operand_registers(tile, |_| true);
        let all = full && least == registers + 1;
        if !fits(least) || !cheap(self.scaled(tile, 0.0, 0.0, 0.0, 0.0, all)) {
            return None;
        }
        let staged = |a: &Access, plain: f64| match self.sliding_rows(a, tile) {
            Some(_) if self.reuse(a, tile) == 1 && !self.is_staged_once(a, tile) => None,
            _ => self.staged_cost(a, tile).filter(|s| s.all() < plain),
        };
        let (mut loads, mut copies) = (0.0, 0.0);
        for a in &self.inner {
            let plain = self.plain_cost(a, tile);
            let s = staged(a, plain);
            loads += s.map_or(plain, |s| s.read) * self.taps_share(a, tile);
            copies += s.map_or(0.0, |s| s.copy / 1.5);
        }
        let used = accs + self.operand_registers(tile, |a| a.constant || staged(a, self.plain_cost(a, tile)).is_some());
        if !fits(used) {
            return None;
        }
        let all = full && used == registers + 1;
        let from_memory = self.inner.iter().map(|a| self.stream_cost(a, tile)).sum::<f64>();
        let shared = self.inner.iter().map(|a| self.l1_miss_cost(a, tile)).sum::<f64>();
        let from_memory = if from_memory > 0.0 { from_memory + shared } else { 0.0 };
        // where a load of the widest vectors takes a whole cycle, a tile that reuses no weights across its results
        // waits for them
        let again = |a: &&Access| a.constant && self.reuse(a, tile) > 1 && tile.lane.is_some_and(|l| a.has(self.id(l)));
        let weights = self.inner.iter().filter(again).map(|a| self.access_cost(a, tile, lanes)).sum::<f64>();
        let bound = (loads + weights * (self.vector_load(tile) - 1.0)) / 2.0;
        let [read, stored] = self.refetched(tile);
        let steps = self.reduce_axes.iter().fold(1usize, |n, &r| n.saturating_mul(self.len(r)));
        let waits = from_memory.max(bound).max(read / steps as f64);
        Some(self.scaled(tile, loads, copies, waits, stored, all)).filter(|&c| cheap(c))
    }

    /// Combines the parts of a tile's cost: its loads, the copies to its panels, waits for memory, and the stores of
    /// its results. The result grows with each of them. `all`: the tile takes every register.
    fn scaled(&self, tile: &Tile, loads: f64, copies: f64, from_memory: f64, stored: f64, all: bool) -> f64 {
        let lanes = self.t.caps.lanes;
        let work = (tile.ups.iter().map(|u| u.1).product::<usize>() * tile.vectors) as f64;
        let latency = 4.0; // cycles from one multiply-add into an accumulator to the next into the same one
        let whole = self.may_overlap_and_stage && tile.width >= lanes;
        let issue = if whole { self.t.machine.multiply_add } else { 0.5 };
        let latency = if self.t.caps.has_local { 0.0 } else { latency };
        let cycles = (work * issue).max(loads / 2.0).max(latency).max(from_memory) + 0.7 + 0.02 * loads;
        // the copy runs in a loop of its own, so its cycles do not overlap with the others
        let cycles = cycles + copies;
        let store = self.store.as_ref().map_or(0.0, |a| self.store_cost(a, tile)).max(stored / work);
        let steps: usize = self.reduce_axes.iter().map(|&r| self.len(r)).product();
        let mut per = (cycles / work * if all { 1.02 } else { 1.0 } + store / steps as f64) * self.idle(tile);
        if self.may_overlap_and_stage && tile.lane.is_some_and(|l| self.reduce_axes.contains(&l)) {
            // after the loop the lanes of each result are added up in a tree: a shuffle and an addition for each level
            let halves = (lanes.ilog2() + 1) as f64 * 2.0 + (tile.vectors - 1) as f64;
            per += halves * lanes as f64 / steps as f64;
        }
        if let Some(l) = tile.lane {
            // computation wasted by rounding the axis up
            let (n, unit) = (self.len(l), tile.vectors * lanes);
            per *= self.rounded(l, tile.width, unit);
            if self.may_overlap_and_stage && tile.width * 4 % 64 != 0 && n > tile.width {
                per *= 1.04; // rows of a panel straddle cache lines
            }
        } else {
            per *= lanes as f64;
        }
        for (r, f) in tile.ups.iter().filter_map(|&(r, f)| r.map(|r| (r, f))) {
            per *= self.rounded(r, f, f);
            if self.may_overlap_and_stage && f > 1 && self.inner.iter().any(|a| self.is_far(a, r)) {
                per *= FAR_ROWS;
            }
            if self.may_overlap_and_stage
                && f > 1
                && !self.t.caps.memory_operands
                && self.inner.iter().any(|a| self.exceeds_l1_lines(a, r, f))
            {
                per *= ROWS_BEYOND_L1;
            }
        }
        per
    }

    /// Cycles of storing a vector of results. Elements that are not contiguous are stored one by one, and if their
    /// lines evict each other from the first-level cache, each store waits for its line: with 32 channels of 64 by 64
    /// that took 3.5 times as long as lanes along rows of pixels.
    fn store_cost(&self, a: &Access, tile: &Tile) -> f64 {
        let lanes = self.t.caps.lanes as f64;
        if self.is_interleaved(a, tile) {
            return INTERLEAVED_STORE;
        }
        let step = match tile.lane.and_then(|l| a.affine.stride(&self.k.g, l)) {
            Some(1) | None => return 1.0,
            Some(stride) => stride.unsigned_abs() as usize * a.size,
        };
        let caches = self.t.machine.caches;
        let collide = self.may_overlap_and_stage && tile.width > caches.sets_of(step) * caches.l1_sets_ways[1];
        if collide { lanes * (1.0 + caches.l1_miss_mixed_cycles) } else { lanes }
    }

    /// Does a tile hold the elements that belong between its lanes in memory (stride 2), so that interleaved vectors
    /// can be stored contiguously? Not if the tile is wider than the axis, because lanes are masked then.
    pub(super) fn is_interleaved(&self, a: &Access, tile: &Tile) -> bool {
        let Some(lane) = tile.lane.filter(|&l| self.len(l) >= tile.width) else { return false };
        tile.ups.iter().any(|&(r, n)| n == 2 && r.is_some_and(|r| self.interleaves(a, lane, r)))
    }

    /// Can the two elements along the axis `between` be interleaved with the lanes along `lane` and stored as
    /// contiguous vectors?
    pub(super) fn interleaves(&self, a: &Access, lane: UOp, between: UOp) -> bool {
        let stride = |r: UOp| a.affine.stride(&self.k.g, r);
        let may = self.t.caps.interleaved_stores && a.gated == 0;
        may && a.size < 8 && stride(lane) == Some(2) && stride(between) == Some(1)
    }

    /// Time of covering an axis with tiles of `by` elements, each of which takes as long as `unit` elements, per
    /// element that is needed: the waste of the last tile. For loops of variable length it is the mean over typical
    /// lengths.
    fn rounded(&self, r: UOp, by: usize, unit: usize) -> f64 {
        let over = |n: usize| (n.div_ceil(by) * unit) as f64 / n as f64;
        match self.sample_lengths.iter().find(|u| u.0 == self.id(r)) {
            None => over(self.len(r)),
            Some((_, sample_lengths)) => {
                sample_lengths.iter().map(|&n| over(n)).sum::<f64>() / sample_lengths.len() as f64
            }
        }
    }

    pub(super) fn contraction(&self, vector: bool, opts: &mut Vec<Opt>) {
        let lanes = self.t.caps.lanes;
        let mut best: Option<Tile> = None;
        let mut consider = |tile: Tile| {
            let most = best.map(|b| b.cost * 0.999);
            if let Some(cost) = self.tile_cost(&tile, most) {
                best = Some(Tile { cost, ..tile });
            }
        };
        let rows = |r: UOp| -> SmallVec<[usize; 8]> {
            let n = self.len(r);
            (1..=8usize).filter(|&f| n.is_multiple_of(f) || self.may_overlap_and_stage && f <= n).collect()
        };
        let mut lane_options: Vec<Option<UOp>> = vec![None];
        if vector {
            let outs =
                self.out_axes.iter().copied().filter(|&r| self.len(r) > 1 && self.phase_ranges >> self.id(r) & 1 == 0);
            lane_options.extend(outs.map(Some));
            lane_options.extend(self.reduce_axes.iter().copied().filter(|&r| self.len(r) >= lanes).map(Some));
        }
        lane_options.retain(|l| l.is_none_or(|l| self.scalar_ranges >> self.id(l) & 1 == 0));
        if let Some(may) = self.lanes {
            lane_options.retain(|l| l.is_some_and(|l| may >> self.id(l) & 1 == 1));
        }
        // vectors of half the width, where most lanes of a full one would be empty
        let halves = self.may_overlap_and_stage && self.t.caps.half_vectors && self.lanes.is_none();
        let useful =
            |r: UOp| (self.phase_ranges | self.inner.iter().fold(!0, |m, a| m & a.ranges)) >> self.id(r) & 1 == 0;
        for lane in lane_options {
            let max_vectors = match lane {
                Some(l) if self.gathers(l) && self.len(l) >= lanes => 1,
                Some(l) if self.len(l) >= lanes => {
                    // no operand is reused: wide tiles, so that memory is read in long contiguous runs
                    let wide = self.may_overlap_and_stage && self.out_axes.iter().all(|&r| r == l || !useful(r));
                    let most = if wide && self.out_axes.contains(&l) { self.t.caps.vector_registers / 2 } else { 4 };
                    (self.len(l).div_ceil(lanes)).min(most)
                }
                Some(l) if self.len(l) * 2 <= lanes && !self.t.caps.has_local && !(halves && self.len(l) > 4) => {
                    continue;
                }
                _ => 1,
            };
            let mut others: Vec<UOp> =
                self.out_axes.iter().copied().filter(|&r| Some(r) != lane && useful(r)).collect();
            // pooling windows share no operand, but the latencies of loads for several rows overlap in one loop body
            let pool = self.t.machine.parallel_loads && others.is_empty() && self.inner.iter().all(|a| a.gated != 0);
            if pool && !lane.is_some_and(|l| self.gathers(l)) && lane.is_some_and(|l| self.out_axes.contains(&l)) {
                others.extend(self.out_axes.iter().copied().rev().find(|&r| Some(r) != lane));
            }
            let mut widths: Vec<(usize, usize)> = (1..=max_vectors).map(|v| (v * lanes, v)).collect();
            if lane.is_some_and(|l| halves && self.len(l) <= 8) {
                widths = vec![(8, 1)];
            }
            let hardware = self.t.caps.has_local && !self.t.machine.software;
            if let Some(l) = lane.filter(|l| hardware && self.reduce_axes.contains(l)) {
                // the remaining loop of the reduction is shared by threads, whose number is a power of two
                let n = self.len(l);
                widths.retain(|w| !n.is_multiple_of(2 * lanes) || w.1.is_power_of_two() && n.is_multiple_of(w.0));
            }
            if let Some(n) = lane.filter(|l| self.out_axes.contains(l)).map(|l| self.len(l))
                && self.may_overlap_and_stage
                && n > lanes
                && n <= 4 * lanes
                && n % 8 == 0
                && n % lanes != 0
                && self.lanes.is_none()
            {
                widths.retain(|w| w.0 < n);
                widths.push((n, n.div_ceil(lanes))); // the last register is only partly filled
            }
            // the whole axis in one tile, where narrower tiles would leave a remainder; few rows share its panel, so
            // the panel has to fit in a near cache
            let whole = lane
                .filter(|&l| self.may_overlap_and_stage && self.out_axes.contains(&l))
                .map_or(1, |l| self.len(l) / lanes);
            let steps = self.reduce_axes.iter().fold(1usize, |n, &r| n.saturating_mul(self.len(r)));
            let fits_cache = steps.saturating_mul(whole * lanes * 4) <= self.t.machine.caches.panel / 2;
            if (5..=7).contains(&whole)
                && fits_cache
                && lane.is_some_and(|l| self.len(l) == whole * lanes && !self.gathers(l))
            {
                widths.push((whole * lanes, whole));
            }
            let wide = |l: UOp| self.out_axes.contains(&l) && self.len(l) >= 256 * lanes;
            if others.is_empty() && lane.is_some_and(wide) {
                // no operand is reused
                widths.extend(self.t.machine.extra_tile_widths.iter().map(|&v| (v * lanes, v)));
            }
            for (width, vectors) in widths {
                let base = Tile { lane, width, vectors, ups: [(None, 1), (None, 1)], cost: 0.0 };
                consider(base);
                for (i, &a) in others.iter().enumerate() {
                    for fa in rows(a) {
                        consider(Tile { ups: [(Some(a), fa), (None, 1)], ..base });
                        for &b in &others[i + 1..] {
                            for fb in rows(b) {
                                consider(Tile { ups: [(Some(a), fa), (Some(b), fb)], ..base });
                                consider(Tile { ups: [(Some(b), fb), (Some(a), fa)], ..base });
                            }
                        }
                    }
                }
            }
        }
        let Some(tile) = best else { return };
        if self.streams(&tile, opts) {
            return;
        }
        for (r, f) in tile.ups.iter().filter_map(|&(r, f)| r.map(|r| (r, f))).filter(|x| x.1 > 1) {
            opts.push(Opt::upcast(self.id(r), f));
        }
        if let Some(l) = tile.lane {
            self.lane(l, tile.width, opts);
        }
        self.unroll(&tile, opts);
        if self.may_overlap_and_stage {
            self.block(&tile, opts);
        }
    }

    /// Appends opts that pack constant operands, in the loop order that the opts so far result in.
    pub(super) fn pack(&self, opts: &mut Vec<Opt>) {
        let constants = self.inner.iter().filter(|a| a.constant).filter_map(|a| a.slot);
        let copy = |param: u32| Staging { param, load: 0, level: Level::Outside, separate_windows: true };
        opts.extend(constants.map(|s| Opt::Stage(copy(s))));
    }

    pub(super) fn lane(&self, l: UOp, width: usize, opts: &mut Vec<Opt>) {
        let vectors = width / self.t.caps.lanes;
        let overlaps = self.may_overlap_and_stage && self.out_axes.contains(&l) && self.len(l) >= width;
        if !self.len(l).is_multiple_of(width) && !overlaps {
            opts.push(Opt::pad(self.id(l), width));
        }
        if !self.t.caps.has_local {
            opts.push(Opt::lane(self.id(l), width));
            return;
        }
        // a vector on a GPU is a vec4; further vectors become a register axis
        opts.push(Opt::lane(self.id(l), self.t.caps.lanes));
        if vectors > 1 {
            let reduced = self.k.g.kind(l).is_reduce();
            opts.push(if reduced { Opt::accum(self.id(l), vectors) } else { Opt::upcast(self.id(l), vectors) });
        }
    }

    /// A long sum over one operand that is read once: it is split into several streams, which the hardware prefetches
    /// independently.
    fn streams(&self, tile: &Tile, opts: &mut Vec<Opt>) -> bool {
        const STREAMS: usize = 4;
        let Some(r) = tile.lane.filter(|r| self.reduce_axes.contains(r) && tile.ups.iter().all(|u| u.1 == 1)) else {
            return false;
        };
        let width = (tile.width / 2).max(self.t.caps.lanes);
        let n = self.len(r);
        if !self.may_overlap_and_stage || n < 1 << 16 || !n.is_multiple_of(STREAMS * width) || self.inner.len() != 1 {
            return false;
        }
        opts.push(Opt::split(self.id(r), n / STREAMS));
        opts.push(Opt::accum(self.id(r), STREAMS));
        opts.push(Opt::lane(self.k.next_id, width));
        true
    }

    /// How many iterations of a reduction are unrolled into one loop body, if each has `results` multiply-adds.
    pub(super) fn unrolled(&self, results: usize) -> usize {
        (self.body() / results.max(1)).clamp(1, 9)
    }

    /// Unrolls short innermost reduction loops, so that small windows have no loop overhead.
    fn unroll(&self, tile: &Tile, opts: &mut Vec<Opt>) {
        let accs: usize = tile.ups.iter().map(|u| u.1).product::<usize>() * tile.vectors;
        let mut budget = self.unrolled(accs);
        let loops = self.reduce_axes.iter().filter(|&&r| Some(r) != tile.lane);
        if self.t.machine.hoists_loads && loops.map(|&r| self.len(r)).product::<usize>() > budget {
            // loop overhead is cheaper than spilling registers, so the body is limited to what fits in registers
            let free = self.t.caps.vector_registers.saturating_sub(accs);
            let room = free / self.operand_registers(tile, |_| true).max(1);
            budget = budget.min(room.max(1));
        }
        let window = self.window(tile);
        if let Some(r) = self.shared_rows(tile) {
            opts.push(Opt::unroll(self.id(r), self.len(r)));
            return;
        }
        let steps: usize = self.reduce_axes.iter().map(|&r| self.len(r)).product();
        if steps * accs <= MAX_GATHERED_LOADS_UNROLLED && tile.lane.is_some_and(|l| self.gathers(l)) {
            opts.extend(
                self.reduce_axes
                    .iter()
                    .rev()
                    .filter(|&&r| self.len(r) > 1)
                    .map(|&r| Opt::unroll(self.id(r), self.len(r))),
            );
            return;
        }
        for &r in self.reduce_axes.iter().rev() {
            let n = self.len(r);
            if Some(r) == tile.lane {
                break;
            }
            // skips loops of one iteration, and loops over taps, of which some phases leave iterations out
            if n == 1 || self.phase_ranges >> self.id(r) & 1 == 1 {
                continue;
            }
            if Some(r) == window {
                budget = (budget / n).max(1) * n;
            }
            if n <= budget {
                opts.push(Opt::unroll(self.id(r), n));
                budget /= n;
                continue;
            }
            if let Some(f) = [4usize, 2].into_iter().find(|&f| f <= budget && n.is_multiple_of(f)) {
                opts.push(Opt::unroll(self.id(r), f));
            }
            break;
        }
    }
}
