//! Estimates the time of one launch of a program on a machine: [`cost`]. In: a program and a target. Out: nanoseconds,
//! what limits them, and bytes moved. It is the only model that the search, the command line and the checks of
//! `npm run bench:model` use; the machine's numbers are in [`Prices`], and nothing here depends on the name of a back
//! end.
//!
//! As in a roofline model there are two parts, of which the larger dominates. Instructions: each loop body has cycles
//! of arithmetic, of loads and of stores, and a latency of dependent accumulations; the cost of an inner loop is
//! multiplied by its iterations. Memory: each accessed region has a footprint, the distinct bytes that the loops walked
//! so far (the inner ones) touch; it is brought into a cache again in each iteration of an outer loop whose body needs
//! more than the cache holds (the reuse model of Ferrante, Sarkar and Thrash, 1991).

use super::{Program, TileAxis};
use crate::target::{Prices, Target};
use crate::uop::mma::Side;
use crate::uop::{Arg, AxisKind, Op, RangeSet, ReduceOp, UOp};
use crate::util::between;
use std::fmt;

/// The resource that limits a kernel most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Starting the kernel.
    Launch,
    /// Arithmetic.
    Arithmetic,
    /// Load instructions.
    Loads,
    /// Store instructions.
    Stores,
    /// The latency of accumulations that depend on each other.
    Latency,
    /// Loop control, and the start of workgroups.
    Loops,
    /// Bytes brought into the cache of this level (0 is L1); those brought into the last level come from memory.
    Bytes(u8),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Launch => "launch",
            Bound::Arithmetic => "arithmetic",
            Bound::Loads => "loads",
            Bound::Stores => "stores",
            Bound::Latency => "latency",
            Bound::Loops => "loops",
            Bound::Bytes(0) => "bytes into L1",
            Bound::Bytes(1) => "bytes into L2",
            Bound::Bytes(_) => "bytes of memory",
        })
    }
}

/// The cost of one launch.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds.
    pub ns: f64,
    /// What limits it.
    pub bound: Bound,
    /// Distinct bytes that are accessed, in whole cache lines.
    pub footprint: f64,
    /// Bytes brought into each cache level and, for stores, written back from it.
    pub moved: [f64; 3],
}

/// Bytes of a cache line.
const LINE: f64 = 64.0;
/// Sets of a cache: lines whose distance is a multiple of so many lines fall into one set and evict each other. The last
/// cache level is not concerned, because processors distribute its lines by a hash of their addresses.
const SETS: f64 = 64.0;

/// A digit of a loop's counter, `counter / div % (end / div)`, and the bytes by which an address grows when the digit
/// grows by one.
#[derive(Clone, Copy, PartialEq)]
struct Digit {
    id: u8,
    div: f64,
    end: f64,
    stride: f64,
}

/// The addresses that one or several instructions access. Only loops that are still open contribute digits; closed ones
/// are in `steps`.
struct Access {
    base: UOp,
    store: bool,
    /// The constant parts of the addresses, in bytes: the least, the largest, and how many different ones there are.
    offsets: (f64, f64, f64),
    digits: Vec<Digit>,
    /// Open ranges that the address depends on in a form other than digits (a gather).
    gather_ranges: RangeSet,
    /// Bytes of an element; `most`: bytes of the whole buffer.
    size: f64,
    most: f64,
    /// Stride in bytes and number of iterations of each tile axis and closed loop; `gather_iterations`: the product of
    /// the iterations of those that lead to arbitrary addresses.
    steps: Vec<(f64, f64)>,
    gather_iterations: f64,
    /// Distinct bytes of the loops closed so far; `moved`: the bytes brought into each cache.
    bytes: f64,
    moved: [f64; 3],
}

impl Access {
    /// How much smaller caches are for this access than for others, because its lines fall into a part of their sets: 1,
    /// or up to [`SETS`] if lines of one column of a matrix are accessed, whose distance is a power of two.
    fn crowding(&self) -> f64 {
        let (mut run, mut apart) = (LINE, f64::INFINITY);
        for &(stride, n) in &self.steps {
            if stride < LINE {
                run = run.max(stride * n);
            } else {
                // the largest power of two that divides the distance in lines; fractions of lines spread out
                let lines = stride / LINE;
                let power = if lines.fract() > 0.0 { 1.0 } else { shifted(f64::from((lines as u64).trailing_zeros())) };
                apart = apart.min(power);
            }
        }
        if apart.is_finite() && self.gather_iterations == 1.0 { (apart.min(SETS) * LINE / run).max(1.0) } else { 1.0 }
    }

    fn touched(&self) -> f64 {
        let (lo, hi, n) = self.offsets;
        let between = if n > 1.0 { ((hi - lo) / (n - 1.0), n) } else { (0.0, 1.0) };
        let (mut run, mut runs) = (self.size, 1.0);
        let mut last = (0.0, 1.0);
        let mut done = 0u64;
        // the smallest strides first
        let least = |done: u64| {
            let all = std::iter::once(&between).chain(&self.steps).take(64).enumerate();
            all.filter(|s| done >> s.0 & 1 == 0).min_by(|a, b| a.1.0.total_cmp(&b.1.0))
        };
        while let Some((i, &(stride, n))) = least(done) {
            done |= 1 << i;
            if runs == 1.0 && stride <= LINE.max(run) {
                run += stride * (n - 1.0);
            } else if stride < last.0 * last.1 {
                // overlapping windows
                let more = stride * (n - 1.0) / last.0;
                runs *= (last.1 + more) / last.1;
                last.1 += more;
            } else {
                runs *= n;
                last = (stride, n);
            }
        }
        (run.max(LINE) * runs * self.gather_iterations).min(self.most)
    }

    /// Accounts for `n` iterations of the part of a loop in which its counter advances by `from` (one digit of the
    /// counter). `body` is the number of bytes that one iteration of it touches.
    fn repeat(&mut self, id: u8, from: f64, n: f64, body: f64, m: &Prices) {
        let here = |d: &&Digit| d.id == id && d.div <= from && from < d.end;
        let stride: f64 = self.digits.iter().filter(here).map(|d| d.stride * from / d.div).sum();
        if stride > 0.0 {
            self.steps.push((stride, n));
        }
        if self.gather_ranges >> id & 1 == 1 {
            self.gather_iterations *= n;
        }
        // what the body touches of this buffer needs as much of a cache as if it were larger
        let crowded = self.bytes * self.crowding();
        self.bytes = self.touched();
        for (level, moved) in self.moved.iter_mut().enumerate() {
            let kept = kept(m, level, body, crowded);
            *moved = kept * self.bytes.min(*moved * n) + (1.0 - kept) * *moved * n;
        }
    }
}

/// The fraction of the bytes touched by a loop's body that a cache still holds in the next iteration; `crowded` is the
/// size of the cache that one access needs for itself.
fn kept(m: &Prices, level: usize, body: f64, crowded: f64) -> f64 {
    let need = if level + 1 < m.caches.len() { body.max(crowded) } else { body };
    between(2.0 - need / m.caches[level].0, 0.0, 1.0)
}

/// A loop that is open at the present node of the walk.
#[derive(Default)]
struct Frame {
    id: u8,
    len: f64,
    /// Cycles of loop control per iteration.
    loop_control: f64,
    /// Cycles per iteration of the body's arithmetic, loads and stores; `wait`: of a dependence on the previous
    /// iteration; `inside`: of the loops inside.
    issue: [f64; 3],
    wait: f64,
    inside: f64,
    /// Accumulators, and how often each is updated in one iteration.
    chains: Vec<(UOp, f64)>,
    accesses: Vec<Access>,
    /// Cycles, by the resource that limits them, in the order of [`BOUNDS`].
    by: [f64; 5],
}

const BOUNDS: [Bound; 5] = [Bound::Arithmetic, Bound::Loads, Bound::Stores, Bound::Latency, Bound::Loops];

impl Frame {
    /// Cycles of one iteration without the loops inside; they are also added to the resource that limits them.
    fn body(&mut self, m: &Prices) -> f64 {
        let chain = self.chains.iter().map(|c| c.1).fold(0.0, f64::max) * m.latency;
        let [a, b, c] = self.issue;
        let all = [a, b, c, self.wait + chain];
        let most = largest(&all);
        // the other classes of instructions do not overlap completely with the slowest one
        let cycles = all[most] + m.mixed * (a + b + c - if most < 3 { all[most] } else { 0.0 });
        self.by[most] += cycles;
        cycles
    }
}

fn largest(all: &[f64]) -> usize {
    (0..all.len()).fold(0, |best, i| if all[i] > all[best] { i } else { best })
}

struct Walk<'a> {
    p: &'a Program,
    t: &'a Target,
    m: &'a Prices,
    frames: Vec<Frame>,
    /// Axes whose terms one dot-product instruction adds up.
    dots: RangeSet,
    /// Vectors of accumulators for which there are no registers.
    spilled: f64,
}

/// The cost of a launch on a target.
pub fn cost(p: &Program, t: &Target) -> Cost {
    let (g, m) = (&p.g, t.machine.prices);
    let is_dot = |u: &UOp| g.op(*u) == Op::Range && g.kind(*u) == AxisKind::Dot;
    let dots = g.iter().filter(is_dot).fold(0, |set, u| set | g.ranges(u));
    let mut w = Walk { p, t, m, frames: vec![Frame::default()], dots, spilled: 0.0 };
    let registers: f64 = p.order.iter().filter(|&&u| g.op(u) == Op::Acc).map(|&u| w.vectors(u)).sum();
    w.spilled = (registers + 2.0 - t.caps.vector_registers as f64).max(0.0);
    p.order.iter().for_each(|&u| w.visit(u));
    while w.frames.len() > 1 {
        w.close();
    }
    let mut f = w.frames.pop().unwrap_or_default();
    let cycles = f.inside + f.body(m);
    let (share, start) = launch(p, t);
    let core = cycles * m.cycle * share;
    let footprint: f64 = f.accesses.iter().map(|a| a.bytes).sum();
    let (mut moved, mut bytes) = ([0.0; 3], [0.0; 3]);
    for level in 0..3 {
        for a in &f.accesses {
            // a stored line is brought in and written back
            let ways = if a.store { 2.0 } else { 1.0 };
            moved[level] += ways * a.moved[level] * (1.0 - kept(m, level, footprint, a.bytes * a.crowding()));
        }
        bytes[level] = moved[level] * m.caches[level].1 * share;
    }
    let memory: f64 = bytes.iter().sum();
    let work = core.max(memory) + m.overlap * core.min(memory);
    let bound = match () {
        () if start > work => Bound::Launch,
        () if memory > core => Bound::Bytes(largest(&bytes) as u8),
        () => BOUNDS[largest(&f.by)],
    };
    Cost { ns: start + work, bound, footprint, moved }
}

/// The fraction of all work that the slowest thread does (all threads of a GPU count as one), and the nanoseconds of
/// starting the launch.
fn launch(p: &Program, t: &Target) -> (f64, f64) {
    let m = t.machine.prices;
    let all = |n: [u32; 3]| n.iter().map(|&n| f64::from(n)).product::<f64>();
    let (grid, group) = (all(p.grid), all(p.local));
    let start = m.launch + m.argument * p.params.len() as f64;
    if t.caps.has_local {
        let whole = (group / m.warp).ceil() * m.warp / group;
        return (whole.max(m.busy / (grid * group)), start);
    }
    let share = (grid / t.limits.threads.max(1) as f64).ceil() / grid;
    (share, if share < 1.0 { start + m.fork_join } else { start })
}

impl Walk<'_> {
    fn lane(&self, u: UOp) -> Option<TileAxis> {
        self.p.tile(u).iter().find(|a| a.lane).copied()
    }

    /// Vector registers that a lane axis fills with elements of `size` bytes.
    fn wide(&self, a: TileAxis, size: usize) -> f64 {
        (a.len * size.max(4)).div_ceil(self.t.caps.lanes.max(1) * 4) as f64
    }

    /// Vector registers that a value fills.
    fn vectors(&self, u: UOp) -> f64 {
        let size = self.p.g.dtype(u).size();
        let axes = self.p.tile(u);
        let own = axes.iter().filter(|a| self.dots >> a.id & 1 == 0);
        own.map(|a| if a.lane { self.wide(*a, size) } else { a.len as f64 }).product()
    }

    fn add(&mut self, kind: usize, cycles: f64) {
        if let Some(f) = self.frames.last_mut() {
            f.issue[kind] += cycles;
        }
    }

    fn visit(&mut self, u: UOp) {
        let (g, m) = (&self.p.g, self.m);
        let cycles = match g.op(u) {
            Op::Range if !g.kind(u).is_tile() => return self.open(u),
            Op::End => return self.close(),
            Op::Load | Op::Store => return self.access(u),
            Op::AccMulAdd | Op::AccUpdate => return self.accumulate(u),
            Op::Mma if self.t.has_tiles() => self.multiply(u),
            Op::Fold => {
                let across = g.src(u)[1..].iter().any(|&r| self.lane(r).is_some());
                let (all, left) = (self.vectors(g.src_at(u, 0)), self.vectors(u));
                let halves = if across { f64::from(self.t.caps.lanes.ilog2()) } else { 0.0 };
                (all - left).max(0.0) * m.arithmetic + left * halves * m.horizontal_step
            }
            Op::Div | Op::Recip | Op::Sqrt if g.dtype(u).is_float() => self.vectors(u) * m.divide,
            Op::Div | Op::Idiv | Op::Imod => {
                self.p.tile(u).iter().map(|a| a.len).product::<usize>() as f64 * m.integer_divide
            }
            // a comparison, a select, and a test for NaN
            Op::Max | Op::Min if g.dtype(u).is_float() => 3.0 * self.vectors(u) * m.arithmetic,
            op if op.is_alu() => {
                let vector = self.lane(u).is_some() || g.dtype(u).is_float();
                self.vectors(u) * if vector { m.arithmetic } else { m.scalar }
            }
            _ => return,
        };
        self.add(0, cycles);
    }

    /// Cycles of one thread's part of a product of matrix tiles.
    fn multiply(&self, u: UOp) -> f64 {
        let (g, elems) = (&self.p.g, self.p.tile(u).iter().map(|a| a.len as f64).product::<f64>());
        let Arg::Mma(layout) = g.arg(u) else { return 0.0 };
        let products = elems * layout.len(Side::K) as f64;
        // matrix units for wider elements do at most half as much for each doubling of the width
        let wide = g.dtype(g.src_at(u, 0)).size() as f64 / 2.0;
        products / self.t.caps.lanes as f64 * wide * self.m.matrix
    }

    fn accumulate(&mut self, u: UOp) {
        let (g, m) = (&self.p.g, self.m);
        let acc = g.src_at(u, 0);
        let own = self.vectors(acc);
        let all = g.src(u)[1..].iter().map(|&x| self.vectors(x)).fold(self.vectors(u).max(own), f64::max);
        let each = match (g.op(u), g.arg(u)) {
            (Op::AccMulAdd, _) => m.multiply_add,
            // the matrix instruction also adds
            (_, Arg::Reduce(ReduceOp::Add, _)) if g.op(g.src_at(u, 1)) == Op::Mma => 0.0,
            (_, Arg::Reduce(ReduceOp::Add, _)) => m.arithmetic,
            _ => 3.0 * m.arithmetic,
        };
        let Some(f) = self.frames.last_mut() else { return };
        match f.chains.iter_mut().find(|c| c.0 == acc) {
            Some(c) => c.1 += all / own,
            None => f.chains.push((acc, all / own)),
        }
        f.issue[0] += all * each;
        f.issue[1] += self.spilled * m.spill;
        f.issue[2] += self.spilled * m.spill;
    }

    fn access(&mut self, u: UOp) {
        let (p, g, m) = (self.p, &self.p.g, self.m);
        let (index, store, tile) = (g.src_at(u, 0), g.op(u) == Op::Store, p.tile(u));
        let (base, size) = (p.base(u), g.dtype(index).size().max(1));
        let bytes = size as f64;
        let most = match g.arg(base) {
            Arg::Param { len, .. } | Arg::Scratch { len, .. } => *len as f64 * bytes,
            _ => f64::INFINITY,
        };
        let mut a = Access {
            base,
            store,
            offsets: (0.0, 0.0, 1.0),
            digits: Vec::new(),
            gather_ranges: 0,
            size: bytes,
            most: most.max(LINE),
            steps: Vec::new(),
            gather_iterations: 1.0,
            bytes: 0.0,
            moved: [0.0; 3],
        };
        self.decompose_address(g.src_at(index, 1), &mut a);
        let lane = tile.iter().find(|x| x.lane).copied();
        let dot = tile.iter().find(|x| self.dots >> x.id & 1 == 1).copied();
        let n = self.vectors(u).max(1.0);
        let rows = n / lane.map_or(1.0, |x| self.wide(x, g.dtype(u).size()));
        let parts = rows * lane.map_or(1, |x| x.len) as f64;
        // narrow elements are inserted into their lanes one by one
        let part = parts * if store { m.element_store } else { m.element_load };
        let part = if size < 4 && dot.is_none() { 2.5 * part } else { part };
        let [whole, one] = if store { [m.vector_store, m.element_store] } else { [m.vector_load, m.broadcast] };
        let cycles = match lane {
            None => n * if store { one } else { whole },
            Some(l) => {
                let group = dot.map_or(1, |d| d.len);
                let dense = dot.is_none_or(|d| p.stride(index, d.id) == 1);
                let (stride, indirect) = (p.stride(index, l.id), g.ranges(g.src_at(index, 1)) >> l.id & 1 == 1);
                let slow: f64 = a.digits.iter().filter(|d| d.id == l.id).map(|d| d.stride / d.div / bytes).sum();
                let near = if indirect { a.gather_ranges >> l.id & 1 == 0 && slow <= 2.0 } else { stride.abs() <= 2 };
                match () {
                    () if g.ranges(index) >> l.id & 1 == 0 => rows * one * if dense { 1.0 } else { group as f64 },
                    () if stride == group as i64 && dense && !indirect => n * whole,
                    () if near && self.t.caps.permutes && !store && size >= 4 => n * m.permuted_load,
                    () if store && self.t.caps.interleaved_stores && p.woven(u).is_some() => n * (whole + m.arithmetic),
                    () => part * group as f64,
                }
            }
        };
        let gate = g.src(u).get(2).map_or(0.0, |&gate| match lane {
            Some(l) if g.ranges(gate) >> l.id & 1 == 1 && size >= 4 => n * m.arithmetic,
            Some(l) if g.ranges(gate) >> l.id & 1 == 1 => parts * m.guard,
            _ => rows * m.guard,
        });
        for x in &tile {
            let stride = p.stride(index, x.id).unsigned_abs() as f64 * bytes;
            if stride > 0.0 {
                a.steps.push((stride, x.len as f64));
            }
            if a.gather_ranges >> x.id & 1 == 1 {
                a.gather_iterations *= x.len as f64;
            }
        }
        a.bytes = a.touched();
        a.moved = [a.bytes; 3];
        let Some(f) = self.frames.last_mut() else { return };
        f.issue[if store { 2 } else { 1 }] += cycles + gate;
        join(&mut f.accesses, a);
    }

    /// Splits an address into a constant, digits of loop counters, and ranges that it depends on in other ways.
    fn decompose_address(&self, at: UOp, a: &mut Access) {
        let g = &self.p.g;
        let mut offset = 0.0;
        let mut stack = vec![(at, a.size)];
        while let Some((u, c)) = stack.pop() {
            let by = g.src(u).get(1).and_then(|&x| g.const_int(x)).map(|x| x as f64);
            match (g.op(u), by) {
                (Op::Const, _) => offset += c * g.const_int(u).unwrap_or(0) as f64,
                (Op::Add, _) => stack.extend(g.src(u).iter().map(|&x| (x, c))),
                (Op::Sub, _) => stack.extend([(g.src_at(u, 0), c), (g.src_at(u, 1), -c)]),
                (Op::Mul, Some(by)) => stack.push((g.src_at(u, 0), c * by)),
                (Op::Shl, Some(by)) => stack.push((g.src_at(u, 0), c * shifted(by))),
                (Op::MulAdd, Some(by)) => stack.extend([(g.src_at(u, 0), c * by), (g.src_at(u, 2), c)]),
                (Op::Cast, _) => stack.push((g.src_at(u, 0), c)),
                _ => match self.digit(u) {
                    Some(d) => a.digits.push(Digit { stride: c.abs(), ..d }),
                    None => a.gather_ranges |= g.ranges(u),
                },
            }
        }
        a.offsets = (offset, offset, 1.0);
    }

    /// The value of an integer expression where each range that it depends on is half over: the mean length of a loop
    /// whose end depends on the counters around it, such as the loops over keys that a causal mask ends. The upper bound
    /// where it depends on anything else, or on operations deeper than `depth`.
    fn mean(&self, u: UOp, depth: u32) -> f64 {
        let g = &self.p.g;
        let at = |i: usize| self.mean(g.src_at(u, i), depth - 1);
        match g.op(u) {
            _ if depth == 0 => g.bounds(u).1 as f64,
            Op::Const => g.const_int(u).unwrap_or(1) as f64,
            Op::Range => g.bounds(u).1 as f64 / 2.0,
            Op::Cast => at(0),
            Op::Add => at(0) + at(1),
            Op::Sub => at(0) - at(1),
            Op::Mul => at(0) * at(1),
            Op::MulAdd => at(0) * at(1) + at(2),
            Op::Min => at(0).min(at(1)),
            Op::Max => at(0).max(at(1)),
            Op::Shl => at(0) * shifted(at(1)),
            Op::Shr => (at(0) / shifted(at(1))).floor(),
            Op::Idiv | Op::FloorDiv if at(1) > 0.0 => (at(0) / at(1)).floor(),
            _ => g.bounds(u).1 as f64,
        }
    }

    /// The node as a digit of a loop counter, if it is a range with divisions and remainders by constants; the stride
    /// is filled in by the caller.
    fn digit(&self, mut u: UOp) -> Option<Digit> {
        let g = &self.p.g;
        let (mut div, mut len) = (1.0, f64::INFINITY);
        while g.op(u) != Op::Range {
            let by = g.src(u).get(1).and_then(|&x| g.const_int(x)).map(|x| x as f64);
            match (g.op(u), by) {
                (Op::Cast, _) => {}
                (Op::Idiv | Op::FloorDiv, Some(by)) => div *= by,
                (Op::Shr, Some(by)) => div *= shifted(by),
                (Op::Imod | Op::FloorMod, Some(by)) => len = len.min(by / div),
                (Op::And, Some(by)) => len = len.min((by + 1.0) / div),
                _ => return None,
            }
            u = g.src_at(u, 0);
        }
        let all = (g.bounds(u).1 + 1) as f64;
        Some(Digit { id: g.range_arg(u).id, div, end: (div * len).min(all).max(div), stride: 0.0 })
    }

    fn open(&mut self, u: UOp) {
        let (g, m) = (&self.p.g, self.m);
        let (len, loop_control) = match g.kind(u) {
            AxisKind::Grid(d) => {
                (self.p.grid[d as usize] as f64, if self.t.caps.has_local { m.group } else { m.loop_overhead })
            }
            AxisKind::Local(d) => (self.p.local[d as usize] as f64, 0.0),
            _ => (self.mean(g.src_at(u, 0), 8).max(1.0), m.loop_overhead),
        };
        let wait = if g.kind(u) == AxisKind::Walk { m.store_to_load_latency } else { 0.0 };
        self.frames.push(Frame { id: g.range_arg(u).id, len, loop_control, wait, ..Frame::default() });
    }

    fn close(&mut self) {
        let Some(mut f) = self.frames.pop() else { return };
        let iteration_cycles = f.body(self.m) + f.loop_control + f.inside;
        let (id, len) = (f.id, f.len);
        f.by[4] += f.loop_control;
        // goes through the parts of the counter between digit boundaries, the lowest digit first
        let mut from = 1.0;
        while from < len {
            let digits = f.accesses.iter().flat_map(|a| &a.digits).filter(|d| d.id == id);
            let cuts = digits.flat_map(|d| [d.div, d.end]).filter(|&c| c > from);
            let to = cuts.fold(len, f64::min);
            let body = f.accesses.iter().map(|a| a.bytes).sum();
            f.accesses.iter_mut().for_each(|a| a.repeat(id, from, to / from, body, self.m));
            from = to;
        }
        let Some(outer) = self.frames.last_mut() else { return };
        outer.inside += len * iteration_cycles;
        for (all, own) in outer.by.iter_mut().zip(f.by) {
            *all += len * own;
        }
        for mut a in f.accesses {
            a.digits.retain(|d| d.id != id);
            a.gather_ranges &= !(1 << id);
            join(&mut outer.accesses, a);
        }
    }
}

/// Two to the power of `by`.
fn shifted(by: f64) -> f64 {
    (1u64 << (by as u32).min(63)) as f64
}

/// Adds an access to those of a loop. If the loop has one with the same buffer, digits and strides, they are merged:
/// only their constant offsets differ.
fn join(list: &mut Vec<Access>, a: Access) {
    let same = |b: &&mut Access| {
        (b.base, b.store, b.gather_ranges) == (a.base, a.store, a.gather_ranges)
            && b.digits == a.digits
            && b.steps == a.steps
    };
    let Some(b) = list.iter_mut().find(same) else { return list.push(a) };
    let before = b.bytes;
    for (have, more) in b.moved.iter_mut().zip(a.moved) {
        *have = have.max(more);
    }
    let (lo, hi, n) = b.offsets;
    if a.offsets.0 < lo || a.offsets.1 > hi {
        b.offsets = (lo.min(a.offsets.0), hi.max(a.offsets.1), n + a.offsets.2);
    }
    b.bytes = b.touched().max(a.bytes);
    b.moved.iter_mut().for_each(|m| *m *= b.bytes / before);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::compile;
    use crate::codegen::count::count;
    use crate::schedule::{Ast, schedule};
    use crate::target::Isa;
    use crate::tensor::{Session, Tensor};
    use crate::{DType, Result, engine};

    fn kernel(t: &Target, make: impl Fn(&dyn Fn(DType, &[usize]) -> Tensor) -> Result<Tensor>) -> Ast {
        let s = Session::new();
        let node = make(&|dtype, shape| Tensor::empty(&s, dtype, shape).unwrap()).unwrap().node();
        let (g, roots) = engine::close(&s.state().graph, &[node]);
        let mut list = schedule(&g, &roots, 3, t).unwrap().kernels;
        assert_eq!(list.len(), 1);
        list.remove(0).ast
    }

    fn targets() -> [Target; 5] {
        let (avx2, gpu) = (Target::x86(Isa::Avx2, 1), Target::wgsl("webgpu"));
        [avx2, Target::x86(Isa::Avx512, 2), Target::wasm(true, 1), gpu.clone().emulated(), gpu]
    }

    fn matmul(t: &Target, n: usize) -> Program {
        let ast = kernel(t, |x| x(DType::F32, &[n, n]).matmul(&x(DType::F32, &[n, n])));
        compile(&ast, t, None).unwrap()
    }

    #[test]
    fn a_product_touches_three_matrices_and_multiplies() {
        for t in &targets()[..3] {
            let p = matmul(t, 64);
            let c = cost(&p, t);
            assert_eq!((p.flops, c.footprint), (2 * 64 * 64 * 64, 3.0 * 64.0 * 64.0 * 4.0), "{}", t.name);
            // the last tiles overlap, so some elements are computed twice
            assert!((p.flops..p.flops + p.flops / 8).contains(&count(&p).flops));
            let m = t.machine.prices;
            assert!(c.ns > 64f64.powi(3) / t.caps.lanes as f64 * m.multiply_add * m.cycle / t.limits.threads as f64);
            // everything stays in the L2 cache from one launch to the next
            assert_eq!(c.moved[1..], [0.0; 2]);
        }
        let (t, bound) = (Target::x86(Isa::Avx2, 1), |p: &Program| cost(p, &Target::x86(Isa::Avx2, 1)).bound);
        assert_eq!((bound(&matmul(&t, 4)), bound(&matmul(&t, 512))), (Bound::Launch, Bound::Arithmetic));
    }

    #[test]
    fn softmax_goes_over_a_row_that_the_first_cache_keeps() {
        let t = Target::x86(Isa::Avx2, 1);
        let rows = 1 << 15;
        let ast = kernel(&t, |x| x(DType::F32, &[rows, 1024]).softmax(-1));
        let c = cost(&compile(&ast, &t, None).unwrap(), &t);
        let bytes = (rows * 1024 * 4) as f64;
        // in addition to input and output there is a row of exponentials
        assert!((2.0 * bytes..=2.0 * bytes + 8192.0).contains(&c.footprint), "{}", c.footprint);
        // each input element is brought in once, and storing an output element brings a line in and writes it back
        assert!(c.moved.iter().all(|&m| (2.9 * bytes..=3.1 * bytes).contains(&m)), "{:?} of {bytes}", c.moved);
        assert!(matches!(c.bound, Bound::Bytes(2) | Bound::Arithmetic), "{:?}", c.bound);
    }

    #[test]
    fn a_gather_touches_a_line_for_each_row() {
        let t = Target::x86(Isa::Avx2, 1);
        let ast = kernel(&t, |x| x(DType::F32, &[1 << 20, 8]).embedding(&x(DType::I32, &[512])));
        let c = cost(&compile(&ast, &t, None).unwrap(), &t);
        let rows = 512.0 * LINE;
        assert!((rows..rows + 512.0 * 64.0 * 2.0).contains(&c.footprint), "{}", c.footprint);
    }

    #[test]
    fn more_work_takes_longer() {
        for t in targets() {
            let mut last = 0.0;
            for n in [16, 64, 128, 256, 512, 1024] {
                let c = cost(&matmul(&t, n), &t);
                assert!(c.ns.is_finite() && c.ns > last, "{}: {n}: {c:?} after {last}", t.name);
                last = c.ns;
            }
            let mut last = 0.0;
            for n in [64, 1 << 10, 1 << 14, 1 << 18, 1 << 22] {
                let ast = kernel(&t, |x| x(DType::F32, &[n]).add(&x(DType::F32, &[n]))?.tanh());
                let c = cost(&compile(&ast, &t, None).unwrap(), &t);
                assert!(c.ns.is_finite() && c.ns >= last && c.ns > 0.0, "{}: {n}: {c:?} after {last}", t.name);
                last = c.ns;
            }
        }
    }
}
