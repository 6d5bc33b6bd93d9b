//! Opts for attention on GPUs: a workgroup owns a tile of rows and walks blocks of keys and values, which go through workgroup memory as the
//! scores of a block do. In: a kernel whose rows are kept in local arrays. Out: the opts that cut each loop over keys into blocks, which
//! the pass `online-softmax` joins, and that say which threads and registers have which rows, keys and columns of the result.

use super::chain::is_product;
use super::{Level, Opt, Staging};
use crate::codegen::axes::Kernel;
use crate::codegen::{online, shared};
use crate::target::Target;
use crate::uop::{AxisKind, Op, RangeSet, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;

/// Cycles of an exponential, of a barrier, and of a copy from memory, in vector instructions.
const EXP: f64 = 12.0;
const BARRIER: f64 = 20.0;
const COPY: f64 = 3.0;
/// Elements of the least that is read of memory at once.
const SECTOR: f64 = 8.0;
/// Threads that keep a GPU busy.
const BUSY: f64 = 16384.0;
/// Plans that are tried, best first.
const MOST_PLANS: usize = 8;
/// Most multiply-adds of vectors in the body of a loop.
const BODY: usize = 64;

/// Rows of queries, keys, and what is summed and computed along them.
#[derive(Clone, Copy)]
struct Shape {
    /// Rows that share keys, and how many times there are so many.
    rows: usize,
    groups: usize,
    keys: usize,
    /// Terms of a score, and columns of the result.
    terms: usize,
    columns: usize,
    /// How many times there are so many columns.
    beside: usize,
}

/// How a workgroup divides its tile.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rows of a thread, and vectors of keys and columns.
    rows: usize,
    keys: usize,
    columns: usize,
    /// Threads along rows, and along keys and columns.
    down: usize,
    across: usize,
    /// Do keys and values go through workgroup memory?
    staged: bool,
    cost: f64,
}

/// Picks opts for such a kernel: those of the best plan that fits it.
pub(super) fn choose(k: &Kernel, t: &Target) -> Vec<Opt> {
    let (outer, row) = k.row_loops();
    let len = |r: UOp| k.g.range_len(r);
    let (Some(&rows), Some(&column)) = (outer.last(), row.iter().max_by_key(|&&r| len(r))) else { return Vec::new() };
    let beside: Vec<UOp> = row.iter().copied().filter(|&r| r != column).collect();
    let products: Vec<UOp> = k.reduces().into_iter().filter(|&r| is_product(k, r)).collect();
    let (Some(&fill), &[first, _]) = (k.ranges_of(AxisKind::Fill).first(), &products[..]) else { return Vec::new() };
    let shape = Shape {
        rows: len(rows),
        groups: outer[..outer.len() - 1].iter().map(|&r| len(r)).product(),
        keys: len(fill),
        terms: k.g.src(first)[1..].iter().map(|&r| len(r)).product(),
        columns: len(column),
        beside: beside.iter().map(|&r| len(r)).product(),
    };
    let mut plans = plans(shape, t);
    sort::by(&mut plans, |a, b| a.cost.total_cmp(&b.cost));
    plans.truncate(MOST_PLANS);
    // one thread, which always fits
    let columns = shape.columns.div_ceil(t.lanes);
    plans.push(Plan { rows: 1, keys: 1, columns, down: 1, across: 1, staged: false, cost: f64::INFINITY });
    plans.into_iter().find_map(|p| Picked::new(k, t).all(p, rows, column, &beside, first)).unwrap_or_default()
}

/// All that the target's limits allow.
fn plans(s: Shape, t: &Target) -> Vec<Plan> {
    let mut out = Vec::new();
    let powers = |most: usize| (0..).map(|i| 1usize << i).take_while(move |&n| n <= most);
    for across in powers((t.max_local[0] as usize).min(32)) {
        let columns = s.columns.div_ceil(t.lanes * across);
        let held = columns * s.beside;
        for (down, rows, keys) in powers(t.max_local[1] as usize)
            .flat_map(|down| powers(8).flat_map(move |rows| powers(4).map(move |keys| (down, rows, keys))))
        {
            let fits = down * across <= t.max_local_total as usize
                && rows * down < 2 * s.rows
                && t.lanes * across * keys < 2 * s.keys.max(t.lanes)
                && rows * held.max(keys) + held.max(keys) + rows.div_ceil(t.lanes) + 2 <= t.vector_registers;
            for staged in [true, false] {
                let mut p = Plan { rows, keys, columns, down, across, staged, cost: 0.0 };
                if fits && p.bytes(s, t) <= t.workgroup_bytes {
                    p.cost = p.cost(s, t);
                    out.push(p);
                }
            }
        }
    }
    out
}

impl Plan {
    fn block(&self, t: &Target) -> usize {
        t.lanes * self.across * self.keys
    }

    /// Of workgroup memory.
    fn bytes(&self, s: Shape, t: &Target) -> usize {
        let scores = 2 * self.rows * self.down * self.block(t);
        let staged =
            if self.staged { self.block(t) * (s.terms + self.columns * s.beside * self.across * t.lanes) } else { 0 };
        4 * (scores + staged)
    }

    /// Vector instructions for each score.
    fn cost(&self, s: Shape, t: &Target) -> f64 {
        let [rows, keys, columns, lanes] = [self.rows, self.keys, self.columns * s.beside, t.lanes].map(|n| n as f64);
        let (block, threads) = (self.block(t), self.down * self.across);
        let steps = block as f64;
        // a vector of workgroup memory takes some multiply-adds' time; keys in memory lie a row apart, so that each element of a vector
        // takes a sector of its own
        let (read, apart) = if self.staged { (2.0, 2.0) } else { (4.0, SECTOR * lanes) };
        let terms = s.terms as f64;
        let scores = terms * (rows * keys + keys * apart + rows);
        let softmax = rows * steps / lanes * 4.0 + rows * keys * (EXP + 4.0);
        let product = steps * (rows * columns + columns * read + rows);
        let copied = if self.staged {
            COPY * steps * (terms / lanes + columns * self.across as f64) / threads as f64
        } else {
            0.0
        };
        let turn = scores + softmax + product + copied + BARRIER * (2.0 + f64::from(u8::from(self.staged)));
        let pieces = s.groups * s.rows.div_ceil(self.rows * self.down);
        let turns = s.keys.div_ceil(block);
        let idle = (BUSY / (pieces * threads) as f64).max(1.0);
        let whole = threads.next_multiple_of(t.subgroup.max(32) as usize) as f64;
        turn * (turns * pieces) as f64 * whole * idle / (s.groups * s.rows * s.keys) as f64
    }
}

/// Opts so far, and the kernel they make.
struct Picked<'a> {
    k: Kernel,
    t: &'a Target,
    opts: Vec<Opt>,
    /// Ranges of the rows of a workgroup.
    tile: RangeSet,
}

impl<'a> Picked<'a> {
    fn new(k: &Kernel, t: &'a Target) -> Picked<'a> {
        Picked { k: k.clone(), t, opts: Vec::new(), tile: 0 }
    }

    fn push(&mut self, opt: Opt) -> Option<()> {
        if !matches!(opt, Opt::Cut { by: 1, .. } | Opt::Pad { to: 1, .. }) {
            self.k.apply(&opt, self.t).ok()?;
            self.opts.push(opt);
        }
        Some(())
    }

    fn id(&self, r: UOp) -> u8 {
        self.k.g.range_arg(r).id
    }

    fn len(&self, id: u8) -> usize {
        self.k.range_by_id(id).map_or(1, |r| self.k.g.range_len(r))
    }

    /// The opts of a plan, if all of them fit.
    fn all(mut self, p: Plan, rows: UOp, column: UOp, beside: &[UOp], first: UOp) -> Option<Vec<Opt>> {
        let lanes = self.t.lanes;
        let block = p.block(self.t);
        let (rows, column) = (self.id(rows), self.id(column));
        let terms: Vec<u8> = self.k.g.src(first)[1..].iter().map(|&r| self.id(r)).collect();
        // every loop over keys: what arrays are filled along, and reductions of what is in them
        let sums: Vec<UOp> = self.k.reduces().into_iter().filter(|&r| r != first).collect();
        let keys: Vec<u8> = self.k.ranges_of(AxisKind::Fill).iter().map(|&r| self.id(r)).collect();
        let scores = keys.iter().position(|id| self.k.g.ranges(first) >> id & 1 == 1)?;
        let mut along = Vec::new();
        for &r in &sums {
            let [of] = self.k.g.src(r)[1..] else { return None };
            along.push((self.id(of), is_product(&self.k, r)));
        }
        // before arrays have rows, whose lengths these are
        for id in keys.iter().chain(along.iter().map(|a| &a.0)).copied() {
            self.push(Opt::pad(id, block))?;
        }
        self.push(Opt::pad(rows, p.rows * p.down))?;
        let before = self.k.next_id;
        self.push(Opt::upcast(rows, p.rows))?;
        self.push(Opt::local(rows, p.down))?;
        self.tile = (before..self.k.next_id).fold(1 << rows, |m, id| m | 1 << id);
        self.push(Opt::pad(column, lanes * p.across * p.columns))?;
        self.push(Opt::lane(column, lanes))?;
        self.push(Opt::local(column, p.across))?;
        self.push(Opt::upcast(column, p.columns))?;
        for &r in beside {
            self.push(Opt::upcast(self.id(r), self.k.g.range_len(r)))?;
        }
        let mut inner = Vec::new();
        for id in keys.iter().chain(along.iter().map(|a| &a.0)).copied() {
            inner.push(if self.len(id) > block { self.k.next_id } else { id });
            if self.len(id) > block {
                self.push(Opt::split(id, block))?;
            }
        }
        let (arrays, reduced) = inner.split_at(keys.len());
        for &id in arrays {
            self.push(Opt::lane(id, lanes))?;
            self.push(Opt::local(id, p.across))?;
            self.push(Opt::upcast(id, p.keys))?;
        }
        for (&id, &(_, product)) in reduced.iter().zip(&along) {
            if !product {
                self.push(Opt::lane(id, lanes))?;
                let n = self.len(id);
                self.push(Opt::unroll(id, n))?;
            }
        }
        if p.staged {
            let last = along.iter().position(|a| a.1)?;
            let level = |outer: u8, inner: u8| if outer == inner { Level::Outside } else { Level::In(outer) };
            self.stage(level(keys[scores], arrays[scores]), *terms.first()?)?;
            self.stage(level(along[last].0, reduced[last]), reduced[last])?;
        }
        // steps of a loop of each product
        let products = [
            (terms.last().copied(), p.rows * p.keys),
            (reduced.iter().zip(&along).find(|x| x.1.1).map(|x| *x.0), p.rows * p.columns),
        ];
        for (id, tile) in products {
            let Some(id) = id else { continue };
            let n = self.len(id);
            let fits = |f: &usize| n.is_multiple_of(*f) && (f * tile <= BODY || *f == 2);
            if let Some(f) = [16, 8, 4, 2].into_iter().find(fits) {
                self.push(Opt::unroll(id, f))?;
            }
        }
        // what the passes after this make of it
        let mut k = self.k.clone();
        let mut loops = rustc_hash::FxHashMap::default();
        k.map_launch(self.t).and_then(|()| online::lower(&mut k, &mut loops)).ok()?;
        let arrays = k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Stage);
        let bytes: usize = arrays.map(|u| shared::elems(&k.g, u) * k.g.dtype(u).size().max(4)).sum();
        (bytes <= self.t.workgroup_bytes).then_some(self.opts)
    }

    /// Copies to workgroup memory what is read along the axis `id` and by all rows.
    fn stage(&mut self, level: Level, id: u8) -> Option<()> {
        let g = &self.k.g;
        let mut numbers: FxHashMap<u32, u16> = FxHashMap::default();
        for u in self.k.nodes().into_iter().filter(|&u| g.op(u) == Op::Load) {
            let Some(param) = self.k.slot_below(g.src_at(u, 0)) else { continue };
            let load = *numbers.entry(param).and_modify(|n| *n += 1).or_insert(0);
            if g.ranges(u) >> id & 1 == 1 && g.ranges(u) & self.tile == 0 {
                return self.push(Opt::Stage(Staging { param, load, level, apart: true }));
            }
        }
        Some(())
    }
}
