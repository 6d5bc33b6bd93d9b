//! Lowers a program to machine instructions over virtual registers.
//!
//! Memory effects, loops and accumulators are emitted in the program's order. A pure value is computed on demand, one
//! element of its tile at a time, when its first user needs it, unless a user lies in another loop level: then it is
//! computed at its own position in the order. So an epilogue needs registers for one element of the tile at a time, not
//! for all of them.
//!
//! An element of a value is a [`Point`] on its register axes together with a part `(offset, width)` of its lane axis.
//! Values of 32 bits or less live in 32-bit lanes (narrow integers extended, f16 and bf16 as f32, bool as masks);
//! 64-bit values in vectors of half as many lanes, or in scalars, one per lane. A user with 64-bit lanes may ask for a
//! half of the lanes that a narrower value is otherwise computed in.

use super::machine::Machine;
use super::mir::{Base, Func, Item, Mem, Size, VReg};
use crate::codegen::Program;
use crate::dtype::Scalar;
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The most tile axes of a program.
const MAX_TILES: usize = 16;

/// The longest chain of values computed on demand, which is a recursion over their sources. Every value at this depth
/// is computed at its own position in the order instead, so that the recursion needs little stack.
const MAX_DEPTH: u32 = 40;

/// Where the value of one element is: in a register, in memory (constants, loads with one use), or a constant scalar
/// integer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::render) enum Val {
    R(VReg),
    M(Mem),
    I(i64),
}

/// An element of a tile: an index for each tile axis, in the order of `Program::tiles`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(in crate::render) struct Point(pub(in crate::render) [u16; MAX_TILES]);

/// The tile axes of a value.
#[derive(Clone, Default, Debug)]
pub(in crate::render) struct Tile {
    /// Register axes, outermost first: each as its position in `Program::tiles` and its extent.
    pub(in crate::render) regs: SmallVec<[(u8, u16); 4]>,
    /// Extent of the lane axis, 0 if the value has none.
    pub(in crate::render) lane: usize,
}

impl Tile {
    /// The element's number in row-major order.
    pub(in crate::render) fn elem(&self, pt: &Point) -> u32 {
        self.regs.iter().fold(0, |n, &(a, len)| n * len as u32 + pt.0[a as usize] as u32)
    }

    /// All elements, the first axis outermost.
    pub(in crate::render) fn points(&self) -> Vec<Point> {
        points(&self.regs, Point::default())
    }
}

/// All points over `axes`; the indices on other axes are those of `base`.
pub(in crate::render) fn points(axes: &[(u8, u16)], base: Point) -> Vec<Point> {
    let mut out = vec![base];
    for &(a, len) in axes {
        out = out
            .into_iter()
            .flat_map(|p| {
                (0..len).map(move |i| {
                    let mut q = p;
                    q.0[a as usize] = i;
                    q
                })
            })
            .collect();
    }
    out
}

/// An argument of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::render) enum Argument {
    /// The array of buffer pointers, by slot.
    Bufs,
    /// Launch scalars.
    Vars,
    /// The range `lo..hi` of the grid's loop, 32 bits each.
    Lo,
    Hi,
    /// Memory for scratch arrays.
    Scratch,
}

/// Key of the cache of computed values: node, element, lane offset, and width (0 for an index extended to 64 bits).
type Key = (UOp, u32, u16, u8);

pub(in crate::render) struct Lower<'a, M: Machine> {
    pub(in crate::render) p: &'a Program,
    pub(in crate::render) g: &'a Graph,
    pub(in crate::render) f: Func<M>,
    pub(in crate::render) m: M,
    /// 32-bit lanes of the widest vector register.
    pub(in crate::render) max_w: usize,
    /// The nodes of the order and their sources.
    used: Vec<UOp>,
    /// Position of each node in `order`; `u32::MAX` for nodes that are not in it.
    pub(in crate::render) position: Vec<u32>,
    /// The straight-line block that each node is in: blocks are separated by the begins and ends of loops.
    block_of: Vec<u32>,
    pub(in crate::render) tiles: Vec<Tile>,
    users: Vec<SmallVec<[UOp; 4]>>,
    /// Blocks that store to scratch memory.
    stored_in: FxHashSet<u32>,
    pub(in crate::render) eager: Vec<bool>,
    /// 64-bit values whose lanes are computed one by one: all of them on a machine without 64-bit lanes, otherwise those
    /// that address memory, and those that only operations without a vector form compute or use.
    lanewise: Vec<bool>,
    /// Does the program have lanes of 64-bit values on a machine that computes vectors of them? Their users ask for other
    /// numbers of lanes than those of narrower values.
    has_wide_lanes: bool,
    /// Values to compute together, in this order, when the first of them (the key) is reached: interleaved chains of
    /// dot products.
    interleaved: FxHashMap<UOp, Vec<UOp>>,
    cache: FxHashMap<Key, Val>,
    cached_in_loop: Vec<Vec<Key>>,
    pub(in crate::render) params: FxHashMap<u32, VReg>,
    /// For each scratch array the register that holds the address of scratch memory, and the array's offset in bytes.
    pub(in crate::render) scratch: FxHashMap<UOp, (VReg, i32)>,
    pub(in crate::render) accs: FxHashMap<UOp, Vec<Vec<VReg>>>,
    /// Position in `order` of the last node that changes an accumulator.
    pub(in crate::render) last_change: FxHashMap<UOp, u32>,
    /// Loads that also prefetch for the next grid step, with the distance in bytes ([`super::stream`]).
    pub(in crate::render) prefetch_distance: FxHashMap<UOp, i32>,
    loops: Vec<Loop>,
    grid: Option<Slice>,
}

/// An open loop.
struct Loop {
    range: UOp,
    counter: VReg,
    /// The limit, unless it is a constant.
    limit: Option<VReg>,
    top: u32,
    end: u32,
}

/// The arguments `lo` and `hi`, and the label after the grid's loop.
#[derive(Clone, Copy)]
struct Slice {
    lo: VReg,
    hi: VReg,
    end: u32,
}

/// Lowers a program for a machine.
pub(in crate::render) fn lower<M: Machine>(p: &Program, m: M) -> Result<Func<M>> {
    if p.tiles.len() > MAX_TILES {
        return Err(unsupported::<M>(format!("{} tile axes", p.tiles.len()), p));
    }
    let g = &p.g;
    let n = g.len();
    // the graph may hold nodes that the program does not use
    let mut tiles = vec![Tile::default(); n];
    let mut seen = vec![false; n];
    let mut used = Vec::new();
    for u in p.order.iter().flat_map(|u| g.src(*u).iter().chain([u])) {
        if std::mem::replace(&mut seen[u.0 as usize], true) {
            continue;
        }
        used.push(*u);
        for a in p.tile(*u) {
            let at = p.tiles.iter().position(|x| x.id == a.id).expect("a tile axis of the program");
            match a.lane {
                true => tiles[u.0 as usize].lane = a.len,
                false => tiles[u.0 as usize].regs.push((at as u8, a.len as u16)),
            }
        }
    }
    let mut l = Lower {
        p,
        g,
        f: Func::new(),
        m,
        max_w: m.lanes(),
        used,
        position: vec![u32::MAX; n],
        block_of: vec![u32::MAX; n],
        tiles,
        users: vec![SmallVec::new(); n],
        stored_in: FxHashSet::default(),
        eager: vec![false; n],
        lanewise: vec![false; n],
        has_wide_lanes: false,
        interleaved: FxHashMap::default(),
        cache: FxHashMap::default(),
        cached_in_loop: vec![Vec::new()],
        params: FxHashMap::default(),
        scratch: FxHashMap::default(),
        accs: FxHashMap::default(),
        last_change: FxHashMap::default(),
        prefetch_distance: super::stream::prefetches(p),
        loops: Vec::new(),
        grid: None,
    };
    l.analyse();
    l.run()?;
    Ok(l.f)
}

fn unsupported<M: Machine>(what: String, p: &Program) -> Error {
    Error::Unsupported { what, context: format!("kernel {}, {}", p.name, M::NAME) }
}

/// Are values of this dtype 64 bits wide?
pub(in crate::render) fn wide(dt: DType) -> bool {
    dt.size() == 8
}

impl<M: Machine> Lower<'_, M> {
    /// The error for a kernel that needs something which this machine does not have.
    pub(in crate::render) fn unsupported(&self, what: String) -> Error {
        unsupported::<M>(what, self.p)
    }

    fn analyse(&mut self) {
        let g = self.g;
        let mut block = 0;
        for (i, &u) in self.p.order.iter().enumerate() {
            let k = u.0 as usize;
            let opens = g.op(u) == Op::Range && !g.kind(u).is_tile();
            block += (opens || g.op(u) == Op::End) as u32;
            self.position[k] = i as u32;
            self.block_of[k] = block;
            if g.op(u) == Op::Store && self.p.slot(u).is_none() {
                self.stored_in.insert(block);
            }
            for s in self.value_sources(u) {
                // a user's sources are visited consecutively, so a repeated user is the last entry
                if self.users[s.0 as usize].last() != Some(&u) {
                    self.users[s.0 as usize].push(u);
                }
            }
            if matches!(g.op(u), Op::Acc | Op::AccUpdate | Op::AccMulAdd) {
                let acc = if g.op(u) == Op::Acc { u } else { g.src_at(u, 0) };
                self.last_change.insert(acc, i as u32);
            }
        }
        self.find_lanewise();
        let mut depth = vec![0u32; g.len()];
        for &u in &self.p.order {
            let k = u.0 as usize;
            let elsewhere = self.users[k].iter().any(|x| self.block_of[x.0 as usize] != self.block_of[k]);
            self.eager[k] = match g.op(u) {
                _ if self.p.is_pointer(u) => false,
                Op::Const => false,
                Op::Load => elsewhere || self.is_written(g.src_at(u, 0), self.block_of[k]),
                Op::AccRead => elsewhere || self.last_change.get(&g.src_at(u, 0)) > Some(&self.position[k]),
                op => elsewhere && (op.is_alu() || matches!(op, Op::Index | Op::Fold | Op::Var | Op::After)),
            };
            if !self.eager[k] && (g.op(u).is_alu() || matches!(g.op(u), Op::Load | Op::Index | Op::Fold)) {
                depth[k] = 1 + g.src(u).iter().map(|s| depth[s.0 as usize]).max().unwrap_or(0);
                if depth[k] >= MAX_DEPTH {
                    (self.eager[k], depth[k]) = (true, 0);
                }
            }
        }
        self.chains();
    }

    /// Finds the 64-bit values that are computed lane by lane (the field `lanewise`).
    fn find_lanewise(&mut self) {
        let (g, m) = (self.g, self.m);
        if m.wide_lanes() == 1 {
            for &u in &self.used {
                self.lanewise[u.0 as usize] = wide(g.dtype(u));
            }
            return;
        }
        // nodes without a vector form, of any width, and nodes that compute addresses
        let (mut scalar, mut addresses) = (vec![false; g.len()], vec![false; g.len()]);
        for &u in self.p.order.iter().rev() {
            let (k, op, dt) = (u.0 as usize, g.op(u), g.dtype(u));
            let from = g.src(u).last().map_or(dt, |&s| g.dtype(s));
            let is_wide = wide(dt) || op.is_alu() && wide(from);
            if op == Op::Index {
                addresses[g.src_at(u, 1).0 as usize] = true;
            } else if addresses[k] && !self.p.is_pointer(u) && op != Op::Load {
                g.src(u).iter().for_each(|s| addresses[s.0 as usize] = true);
            }
            let users = &self.users[k];
            let for_scalars = !users.is_empty() && users.iter().all(|x| scalar[x.0 as usize]);
            let by_itself = op.is_alu() && m.is_lanewise(op, from, dt);
            scalar[k] = is_wide && (addresses[k] || by_itself || for_scalars);
            self.lanewise[k] = wide(dt) && scalar[k];
        }
        // the reads of an accumulator are in the lanes that it has
        for &u in &self.p.order {
            if matches!(g.op(u), Op::AccRead) {
                self.lanewise[u.0 as usize] = self.lanewise[g.src_at(u, 0).0 as usize];
            }
            self.has_wide_lanes |= self.tiles[u.0 as usize].lane > 0 && wide(g.dtype(u));
        }
    }

    /// Interleaves chains of dot products. Each link of a chain adds to the one before and waits for its latency, so
    /// all chains of a straight-line block, for all elements of their tiles, are computed side by side, link by link;
    /// operands that several chains share are then live during one link only. This is done if the chains' sums and the
    /// accumulators fit in three quarters of the vector registers; the last quarter is for the operands.
    fn chains(&mut self) {
        let g = self.g;
        let dot = |u: &UOp| g.op(*u).is_dot();
        if !self.p.order.iter().any(dot) {
            return;
        }
        let elems = |u: UOp| {
            let t = &self.tiles[u.0 as usize];
            t.regs.iter().map(|r| r.1 as usize).product::<usize>() * self.parts(t.lane, g.dtype(u)).len()
        };
        let accs: usize = self.p.order.iter().filter(|&&u| g.op(u) == Op::Acc).map(|&u| elems(u)).sum();
        let room = (self.m.vectors().count_ones() as usize * 3 / 4).saturating_sub(accs);
        // for each block: registers of the sums, and each dot product with the number of links before it in its chain
        let mut pieces: FxHashMap<u32, (usize, Vec<(usize, UOp)>)> = FxHashMap::default();
        let mut links: FxHashMap<UOp, usize> = FxHashMap::default();
        for &u in self.p.order.iter().filter(|u| dot(u)) {
            let block = self.block_of[u.0 as usize];
            let (sums, dots) = pieces.entry(block).or_default();
            let added = |x: &UOp| dot(x) && g.src_at(*x, 2) == u && self.block_of[x.0 as usize] == block;
            if !self.users[u.0 as usize].iter().any(added) {
                *sums += elems(u);
            }
            let before = links.get(&g.src_at(u, 2)).map_or(0, |n| n + 1);
            links.insert(u, before);
            if self.tiles[u.0 as usize].lane > 0 {
                dots.push((before, u));
            }
        }
        for (sums, mut dots) in pieces.into_values().filter(|p| p.0 <= room) {
            dots.iter().for_each(|&(_, u)| self.eager[u.0 as usize] = true);
            let at = |u: UOp| self.position[u.0 as usize] as usize;
            let Some((first, last)) = dots.first().map(|d| d.1).zip(dots.last().map(|d| at(d.1))) else { continue };
            // dot products move forward to the first one, so nothing that they read may be written in between
            let writes = |u: &UOp| matches!(g.op(*u), Op::Store | Op::Acc | Op::AccUpdate | Op::AccMulAdd);
            if sums > 0 && !self.p.order[at(first)..last].iter().any(writes) {
                dots.sort_by_key(|&(before, u)| (before, at(u)));
                self.interleaved.insert(first, dots.into_iter().map(|d| d.1).collect());
            }
        }
    }

    /// The sources whose values a node uses, without those that only order it or name ranges.
    fn value_sources(&self, u: UOp) -> SmallVec<[UOp; 4]> {
        let mut src = self.g.srcs(u);
        match self.g.op(u) {
            Op::End => src.clear(),
            Op::AccRead | Op::Acc | Op::Fold | Op::After => src.truncate(1),
            _ => {}
        }
        src
    }

    /// May the memory of an Index change while its value is kept: a parameter that the kernel writes, or scratch that
    /// this block writes?
    fn is_written(&self, index: UOp, block: u32) -> bool {
        match self.p.slot(index) {
            Some(s) => self.p.params.get(s as usize).is_none_or(|p| p.written),
            None => self.stored_in.contains(&block),
        }
    }

    /// May the memory that `load` read have changed by the time `u` is executed?
    pub(in crate::render) fn changed_since(&self, load: UOp, u: UOp) -> bool {
        let (there, here) = (self.block_of[load.0 as usize], self.block_of[u.0 as usize]);
        self.is_written(self.g.src_at(load, 0), there) || self.p.slot(load).is_none() && there != here
    }

    fn run(&mut self) -> Result<()> {
        self.prologue()?;
        let order = &self.p.order;
        for &u in order {
            match self.g.op(u) {
                Op::Range if !self.g.kind(u).is_tile() => self.open(u)?,
                Op::End => self.close(self.g.src_at(u, 0))?,
                Op::Store => M::store(self, u)?,
                Op::Acc => self.acc(u)?,
                Op::AccUpdate => self.acc_update(u)?,
                Op::AccMulAdd => self.acc_mul_add(u)?,
                _ if self.eager[u.0 as usize] => match self.interleaved.remove(&u) {
                    Some(list) => list.into_iter().try_for_each(|u| self.materialise(u))?,
                    None => self.materialise(u)?,
                },
                _ => {}
            }
        }
        while let Some(range) = self.loops.last().map(|l| l.range) {
            self.close(range)?;
        }
        M::finish(self);
        Ok(())
    }

    /// Loads the arguments into registers: pointers, launch scalars, the range of the grid.
    fn prologue(&mut self) -> Result<()> {
        let [bufs, vars] = [Argument::Bufs, Argument::Vars].map(|a| M::argument(self, a));
        let scratch = (!self.p.scratch().0.is_empty()).then(|| M::argument(self, Argument::Scratch));
        if self.p.launch_range(AxisKind::Grid(0)).is_some() {
            let [lo, hi] = [Argument::Lo, Argument::Hi].map(|a| M::argument(self, a));
            let end = self.f.new_label();
            M::skip_loop(self, Size::D, lo, hi, end);
            self.grid = Some(Slice { lo, hi, end });
        }
        let used = std::mem::take(&mut self.used);
        let mut slots: Vec<u32> = used.iter().filter_map(|&u| self.p.slot_of_param(u)).collect();
        sort::ascending(&mut slots);
        slots.dedup();
        for s in slots {
            let r = self.f.reg(Size::Q);
            M::move_to(self, r, Val::M(Mem::at(Base::Reg(bufs), s as i32 * 8)), DType::I64, 1);
            self.params.insert(s, r);
        }
        for u in used {
            match self.g.arg(u) {
                Arg::Var { name, .. } => {
                    let Some(at) = self.p.vars.iter().position(|v| v.name == *name) else {
                        return Err(Error::Internal(format!("variable {name} is not in the kernel's list")));
                    };
                    let m = Mem::at(Base::Reg(vars), at as i32 * 4);
                    let v = M::load_scalar(self, self.g.dtype(u), m);
                    self.remember((u, 0, 0, 1), v);
                }
                _ => {}
            }
        }
        let (arrays, bytes) = self.p.scratch();
        if bytes > i32::MAX as usize / 2 {
            return Err(self.unsupported(format!("scratch memory of {bytes} bytes")));
        }
        for (u, at) in arrays {
            if let Some(r) = scratch {
                self.scratch.insert(u, (r, at as i32));
            }
        }
        Ok(())
    }

    fn open(&mut self, range: UOp) -> Result<()> {
        let g = self.g;
        let (counter, limit, end) = match g.kind(range) {
            AxisKind::Grid(0) => {
                let s = self.grid.take().ok_or_else(|| Error::Internal("two grid ranges".into()))?;
                (s.lo, Some(s.hi), s.end)
            }
            k if k.is_loop() => {
                let counter = self.f.reg(Size::Q);
                M::move_to(self, counter, Val::I(0), DType::I32, 1);
                let end = self.f.new_label();
                let limit = match g.const_int(g.src_at(range, 0)) {
                    Some(n) if (1..=i32::MAX as i64).contains(&n) => None,
                    _ => {
                        let limit = self.index64(g.src_at(range, 0), &Point::default(), 0)?;
                        let limit = self.reg(limit, DType::I64, 1)?;
                        M::skip_loop(self, Size::Q, counter, limit, end);
                        Some(limit)
                    }
                };
                (counter, limit, end)
            }
            k => return Err(self.unsupported(format!("a {k:?} range"))),
        };
        let top = self.f.new_label();
        self.loops.push(Loop { range, counter, limit, top, end });
        self.f.items.push(Item::LoopBegin);
        self.f.label(top);
        self.cached_in_loop.push(Vec::new());
        self.remember((range, 0, 0, 1), Val::R(counter));
        if self.users[range.0 as usize].iter().any(|x| self.block_of[x.0 as usize] != self.block_of[range.0 as usize]) {
            self.materialise(range)?;
        }
        Ok(())
    }

    fn close(&mut self, range: UOp) -> Result<()> {
        let Some(l) = self.loops.pop().filter(|l| l.range == range) else {
            return Err(Error::Internal("loops of the program do not nest".into()));
        };
        let n = self.g.const_int(self.g.src_at(range, 0)).unwrap_or(1) as i32;
        M::loop_back(self, l.counter, l.limit.ok_or(n), l.top);
        self.f.items.push(Item::LoopEnd);
        self.f.label(l.end);
        for k in self.cached_in_loop.pop().unwrap_or_default() {
            self.cache.remove(&k);
        }
        Ok(())
    }

    pub(in crate::render) fn remember(&mut self, key: Key, v: Val) {
        if self.cache.insert(key, v).is_none()
            && let Some(j) = self.cached_in_loop.last_mut()
        {
            j.push(key);
        }
    }

    pub(in crate::render) fn cached(&self, key: Key) -> Option<Val> {
        self.cache.get(&key).copied()
    }

    /// Splits a lane axis of `len` (0: none) into parts `(offset, width)` of the widest vectors that fit. What is left
    /// over after the last four lanes is scalars.
    pub(in crate::render) fn parts(&self, len: usize, dt: DType) -> SmallVec<[(usize, usize); 4]> {
        self.split(len, if wide(dt) { self.m.wide_lanes() } else { self.max_w })
    }

    /// The parts in which the lanes of a value are computed, along a lane axis of `len`.
    pub(in crate::render) fn parts_of(&self, u: UOp, len: usize) -> SmallVec<[(usize, usize); 4]> {
        if self.lanewise[u.0 as usize] { self.split(len, 1) } else { self.parts(len, self.g.dtype(u)) }
    }

    fn split(&self, len: usize, most: usize) -> SmallVec<[(usize, usize); 4]> {
        let mut out = SmallVec::new();
        let mut off = 0;
        while off < len.max(1) {
            let left = len.max(1) - off;
            let w = [16, 8, 4].into_iter().find(|&w| w <= left && w <= most).unwrap_or(1);
            out.push((off, w));
            off += w;
        }
        out
    }

    /// Computes all elements of a value now, in the forms (scalar, or broadcast to certain widths) that its users will
    /// ask for.
    fn materialise(&mut self, u: UOp) -> Result<()> {
        let (tile, dt) = (self.tiles[u.0 as usize].clone(), self.g.dtype(u));
        if self.g.op(u) == Op::Index {
            let offset = self.g.src_at(u, 1);
            let t = self.tiles[offset.0 as usize].clone();
            if t.lane == 0 {
                for pt in t.points() {
                    self.offset(offset, &pt, 0)?;
                }
            } else {
                self.demand_all(offset, &t)?;
            }
            return Ok(());
        }
        if tile.lane > 0 {
            return self.demand_all(u, &tile);
        }
        let mut widths: SmallVec<[usize; 4]> = SmallVec::new();
        for x in self.users[u.0 as usize].clone() {
            let at = |i: usize| self.g.src(x).get(i) == Some(&u);
            let (lane, xt) = match self.g.op(x) {
                Op::Store => (if at(1) { self.tiles[x.0 as usize].lane } else { 0 }, dt),
                Op::AccUpdate | Op::AccMulAdd | Op::Acc => (self.tiles[self.acc_of(x).0 as usize].lane, dt),
                op if op.is_alu() => (self.tiles[x.0 as usize].lane, self.g.dtype(x)),
                Op::Load if at(1) => (self.tiles[x.0 as usize].lane, dt),
                _ => (0, dt),
            };
            let most = if wide(dt) || wide(xt) { DType::I64 } else { dt };
            for (_, w) in self.parts(lane, most) {
                if !widths.contains(&w) {
                    widths.push(w);
                }
            }
        }
        if self.has_wide_lanes && !widths.contains(&1) {
            // a user may be asked for any number of lanes, which are then copies of the scalar
            widths.insert(0, 1);
        }
        for pt in tile.points() {
            for &w in &widths {
                self.demand(u, &pt, 0, w)?;
            }
        }
        Ok(())
    }

    pub(in crate::render) fn acc_of(&self, x: UOp) -> UOp {
        if self.g.op(x) == Op::Acc { x } else { self.g.src_at(x, 0) }
    }

    fn demand_all(&mut self, u: UOp, tile: &Tile) -> Result<()> {
        for pt in tile.points() {
            for (off, w) in self.parts_of(u, tile.lane) {
                self.demand(u, &pt, off, w)?;
            }
        }
        Ok(())
    }

    /// The value of `u` at an element: lanes `off..off+w`, or the same scalar in all `w` lanes if it has no lane axis.
    pub(in crate::render) fn demand(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let (op, dt) = (self.g.op(u), self.g.dtype(u));
        if let Some(c) = self.g.const_val(u) {
            return Ok(self.constant(c, dt, w));
        }
        let tile = &self.tiles[u.0 as usize];
        let lane = tile.lane;
        let off = if lane == 0 { 0 } else { off };
        if op == Op::Range && self.g.kind(u).is_tile() {
            return Ok(self.iota(u, pt, off, w));
        }
        let key = (u, tile.elem(pt), off as u16, w as u8);
        if let Some(v) = self.cached(key) {
            return Ok(v);
        }
        if matches!(op, Op::CmpLt | Op::And) && dt == DType::Bool {
            if let Some(c) = self.known_value(u, pt, off, if lane == 0 { 1 } else { w }) {
                return Ok(self.constant(Scalar::Int(c as i64), dt, w));
            }
            let unknown = self.unknown_part(u, pt, off, if lane == 0 { 1 } else { w });
            if unknown != u {
                return self.demand(unknown, pt, off, w);
            }
        }
        let v = match lane {
            0 if w > 1 => self.broadcast(u, pt, w)?,
            0 => self.compute(u, pt, off, 1)?,
            _ => {
                let at = |p: &&(usize, usize)| p.0 <= off;
                let (po, pw) = *self.parts_of(u, lane).iter().rev().find(at).expect("parts cover the axis");
                match (w, pw) {
                    (1, 2..) => {
                        // not cached: extracting the lane again is cheaper than keeping it in a register
                        let v = self.demand(u, pt, po, pw)?;
                        return M::extract(self, u, pt, v, (po, pw), off - po);
                    }
                    (2.., 1) => M::pack(self, u, pt, off, w)?,
                    _ if w < pw && self.has_whole_part(u, tile.elem(pt), (po, pw)) => {
                        let v = self.demand_reg(u, pt, po, pw)?;
                        Val::R(M::subvector(self, v, pw, off - po, w)?)
                    }
                    _ => self.compute(u, pt, off, w)?,
                }
            }
        };
        self.remember(key, v);
        Ok(v)
    }

    /// Is a part of a value computed already, or is this no place to compute it again?
    fn has_whole_part(&self, u: UOp, elem: u32, (off, w): (usize, usize)) -> bool {
        let known = self.cached((u, elem, off as u16, w as u8)).is_some();
        known || self.eager[u.0 as usize] || self.g.op(u) == Op::AccRead
    }

    /// Like `demand`, but the value is in a register.
    pub(in crate::render) fn demand_reg(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<VReg> {
        let v = self.demand(u, pt, off, w)?;
        self.reg(v, self.g.dtype(u), w)
    }

    fn compute(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        match self.g.op(u) {
            Op::Load => M::load(self, u, pt, off, w),
            Op::AccRead => self.acc_read(u, pt, off, w),
            Op::Fold => self.fold(u, pt, off, w),
            Op::After => self.demand(self.g.src_at(u, 0), pt, off, w),
            op if op.is_alu() => M::alu(self, u, pt, off, w),
            op => Err(self.unsupported(format!("op {} in a program", op.name()))),
        }
    }

    fn iota(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Val {
        if self.tiles[u.0 as usize].lane == 0 {
            let at = self.tiles[u.0 as usize].regs[0].0;
            return self.constant(Scalar::Int(pt.0[at as usize] as i64), self.g.dtype(u), w);
        }
        if w == 1 {
            return Val::I(off as i64);
        }
        let size = if wide(self.g.dtype(u)) { 8 } else { 4 };
        let bytes: Vec<u8> = (0..w).flat_map(|i| ((off + i) as i64).to_le_bytes().into_iter().take(size)).collect();
        self.pool(&bytes)
    }

    fn broadcast(&mut self, u: UOp, pt: &Point, w: usize) -> Result<Val> {
        let elem = self.tiles[u.0 as usize].elem(pt);
        let dt = self.g.dtype(u);
        if self.g.op(u) == Op::Load
            && self.cached((u, elem, 0, 1)).is_none()
            && !self.eager_scalar(u)
            && let Some(v) = M::load_broadcast(self, u, pt, w)?
        {
            return Ok(v);
        }
        let s = self.demand_reg(u, pt, 0, 1)?;
        Ok(Val::R(M::splat(self, s, dt, w)))
    }

    /// Does some user need the scalar itself, rather than its broadcast?
    fn eager_scalar(&self, u: UOp) -> bool {
        self.users[u.0 as usize].iter().any(|x| {
            let t = self.tiles[x.0 as usize].lane;
            t == 0 && !matches!(self.g.op(*x), Op::AccUpdate | Op::AccMulAdd)
        })
    }

    /// May this load be a memory operand of its only user, so that no register is spent on it?
    pub(in crate::render) fn used_once(&self, u: UOp, by: UOp) -> bool {
        let k = u.0 as usize;
        let same = |a: &Tile, b: &Tile| a.regs.len() == b.regs.len() && a.lane == b.lane;
        !self.eager[k]
            && self.users[k].as_slice() == [by]
            && self.g.src(by).iter().filter(|&&s| s == u).count() == 1
            && same(&self.tiles[k], &self.tiles[by.0 as usize])
    }

    pub(in crate::render) fn pool(&mut self, bytes: &[u8]) -> Val {
        let at = self.f.pool.intern(bytes);
        Val::M(Mem::at(Base::Pool, at))
    }

    /// A constant in the pool: `bits` in each of `w` lanes (in at least 4).
    pub(in crate::render) fn lanes_of(&mut self, bits: u32, w: usize) -> Val {
        let bytes = bits.to_le_bytes().repeat(w.max(4));
        self.pool(&bytes)
    }

    pub(in crate::render) fn constant(&mut self, c: Scalar, dt: DType, w: usize) -> Val {
        let bits = match dt {
            _ if wide(dt) && w > 1 => {
                let bits = if dt.is_float() { c.as_f64().to_bits() } else { c.as_i64() as u64 };
                return self.pool(&bits.to_le_bytes().repeat(w));
            }
            DType::F64 => return self.pool(&c.as_f64().to_le_bytes()),
            _ if dt.is_float() => (c.as_f64() as f32).to_bits(),
            DType::Bool => (c.as_bool() as u32).wrapping_neg(),
            _ => c.as_i64() as u32,
        };
        match (w, dt.is_float()) {
            (1, false) => Val::I(c.as_i64()),
            (1, true) => self.pool(&bits.to_le_bytes()),
            _ => self.lanes_of(bits, w),
        }
    }

    /// A fresh register for `w` lanes of `dt`.
    pub(in crate::render) fn fresh(&mut self, dt: DType, w: usize) -> VReg {
        let size = match (w, dt.is_float()) {
            (1, false) => Size::Q,
            (1, true) => Size::X,
            _ => vec_size(words(dt, w)),
        };
        self.f.reg(size)
    }

    /// Moves a value to a register, unless it is in one.
    pub(in crate::render) fn reg(&mut self, v: Val, dt: DType, w: usize) -> Result<VReg> {
        if let Val::R(r) = v {
            return Ok(r);
        }
        let r = self.fresh(dt, w);
        self.move_to(r, v, dt, w);
        Ok(r)
    }

    /// Copies a value into a register.
    pub(in crate::render) fn move_to(&mut self, r: VReg, v: Val, dt: DType, w: usize) {
        M::move_to(self, r, v, dt, w);
    }
}

/// The number of 32-bit words in `w` lanes of `dt`.
pub(in crate::render) fn words(dt: DType, w: usize) -> usize {
    if wide(dt) { 2 * w } else { w }
}

/// The register size of `w` 32-bit lanes; scalar floats are xmm.
pub(in crate::render) fn vec_size(w: usize) -> Size {
    match w {
        16 => Size::Z,
        8 => Size::Y,
        _ => Size::X,
    }
}

impl Program {
    fn slot_of_param(&self, u: UOp) -> Option<u32> {
        match self.g.arg(u) {
            Arg::Param { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}
