//! Emits the statements of a program in its execution order: loops, accumulators and stores. All other values are
//! emitted on demand, when a statement first asks for one, and are then kept in a local until their scope closes.
//!
//! A value belongs to the scope (function or loop body) in which it stands in the order, and is *pending* until it is
//! emitted. A pending value that is used later is forced, that is emitted early, where emitting it later would be wrong
//! or more work: before a loop opens, before a store to the memory that it loads from, and before the accumulator that
//! it reads changes.

use super::dot::PairKey;
use super::func::{BUFS, Func, HI, LO, VARS, at, fits_lane, val_type};
use super::layout::{Form, Info, Layout};
use super::steps::Step;
use super::{Kernel, unsupported};
use crate::codegen::Program;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Op, UOp};
use crate::{DType, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wasm_encoder::{BlockType, ValType};

/// After a reduction loop its accumulators are stored to scratch memory if they take at least this many v128; fewer
/// stay in locals.
const MIN_SPILLED_ACCS: usize = 6;

/// Stands for a local that is not assigned yet.
pub(super) const NONE: u32 = u32::MAX;

/// The key under which the local of an address is kept: pointer, offset, element of the offset's tile, and a constant
/// in bytes.
pub(super) type AddrKey = (UOp, UOp, u32, i64);

#[derive(Default)]
pub(super) struct Scope {
    slots: Vec<u32>,
    addrs: Vec<AddrKey>,
    pairs: Vec<PairKey>,
    pending: Vec<UOp>,
    accs: Vec<UOp>,
    pub(super) range: Option<UOp>,
    /// The byte position at which the loop's instructions begin, and the addresses that it increments.
    pub(super) start: usize,
    pub(super) steps: Vec<Step>,
    guarded: bool,
}

/// State of rendering one program.
pub(super) struct Emit<'a> {
    pub(super) p: &'a Program,
    pub(super) fma: bool,
    pub(super) f: Func,
    pub(super) layout: Layout,
    /// The local of each slot (element of a value), or [`NONE`].
    pub(super) vals: Vec<u32>,
    /// The tile point whose element is being emitted: the index along each tile axis, by range id.
    pub(super) tile_point: [u32; 128],
    /// The chunk of the lane axis that is being emitted.
    pub(super) chunk: u32,
    pub(super) addrs: FxHashMap<AddrKey, u32>,
    /// The local of each pair vector that was loaded for a dot product.
    pub(super) pairs: FxHashMap<PairKey, u32>,
    pub(super) consts: FxHashMap<i128, u32>,
    /// The local with the address of each parameter and scratch array.
    pub(super) pointers: FxHashMap<UOp, u32>,
    /// Number of `if`s around the code that is being emitted.
    pub(super) branches: u32,
    /// By slot: the byte offset at which a finished accumulator was stored, from the address in `spill_base`.
    pub(super) spilled_accs: FxHashMap<u32, u64>,
    /// The local with the address of the memory for finished accumulators.
    pub(super) spill_base: u32,
    /// By accumulator: the position in the order of its last update.
    last_updates: FxHashMap<UOp, u32>,
    pub(super) scopes: Vec<Scope>,
    pub(super) ranges: FxHashMap<UOp, u32>,
    vars: FxHashMap<UOp, u32>,
    cursor: u32,
}

impl<'a> Emit<'a> {
    pub(super) fn new(p: &'a Program, t: &Target) -> Result<Emit<'a>> {
        let layout = Layout::new(p);
        let vals = vec![NONE; layout.slots as usize];
        Ok(Emit {
            p,
            fma: t.caps.relaxed_simd,
            f: Func::new(),
            layout,
            vals,
            tile_point: [0; 128],
            chunk: 0,
            addrs: FxHashMap::default(),
            pairs: FxHashMap::default(),
            consts: FxHashMap::default(),
            pointers: FxHashMap::default(),
            branches: 0,
            spilled_accs: FxHashMap::default(),
            spill_base: NONE,
            last_updates: FxHashMap::default(),
            scopes: vec![Scope::default()],
            ranges: FxHashMap::default(),
            vars: FxHashMap::default(),
            cursor: 0,
        })
    }

    pub(super) fn run(mut self) -> Result<Kernel> {
        let scratch = self.declare()?;
        for (at, &u) in self.p.order.iter().enumerate() {
            if matches!(self.p.g.op(u), Op::AccUpdate | Op::AccMulAdd) {
                self.last_updates.insert(self.p.g.src_at(u, 0), at as u32);
            }
        }
        for (at, &u) in self.p.order.iter().enumerate() {
            self.cursor = at as u32;
            self.statement(u)?;
        }
        while self.scopes.len() > 1 {
            self.close()?;
        }
        if self.spill_base != NONE {
            self.f.prologue().global_get(0).i32_const(scratch as i32).i32_add().local_set(self.spill_base);
        }
        let scratch = scratch + 16 * self.spilled_accs.len() as u32;
        let work = u32::try_from(self.p.flops.max(self.p.bytes)).unwrap_or(u32::MAX);
        Ok(Kernel { body: self.f.finish(), scratch, work })
    }

    pub(super) fn info(&self, u: UOp) -> &Info {
        &self.layout.info[u.0 as usize]
    }

    /// Emits the code that reads pointers and launch scalars at the start of a call; returns the bytes of the scratch
    /// arrays.
    fn declare(&mut self) -> Result<u32> {
        let p = self.p;
        let mut scratch = 0u64;
        for u in p.g.reachable(&p.order) {
            match (p.g.op(u), p.g.arg(u)) {
                (Op::Param, Arg::Param { slot, .. }) => {
                    let l = self.f.pinned(ValType::I32);
                    self.f.prologue().local_get(BUFS).i32_load(at(*slot as u64 * 4, 4)).local_set(l);
                    self.pointers.insert(u, l);
                }
                (Op::Scratch, Arg::Scratch { len, .. }) => {
                    let l = self.f.pinned(ValType::I32);
                    self.f.prologue().global_get(0).i32_const(scratch as i32).i32_add().local_set(l);
                    self.pointers.insert(u, l);
                    scratch = (scratch + (*len as u64) * p.g.dtype(u).size() as u64).next_multiple_of(64);
                }
                (Op::Var, Arg::Var { name, .. }) => {
                    let Some(i) = p.vars.iter().position(|v| v.name == *name) else {
                        return Err(unsupported(format!("variable {name} that is not an argument"), p));
                    };
                    let l = self.f.pinned(val_type(p.g.dtype(u)));
                    let mut w = self.f.prologue();
                    w.local_get(VARS);
                    match p.g.dtype(u) {
                        DType::F32 => w.f32_load(at(i as u64 * 4, 4)),
                        _ => w.i32_load(at(i as u64 * 4, 4)),
                    };
                    w.local_set(l);
                    self.vars.insert(u, l);
                    self.top().pending.push(u);
                }
                _ => {}
            }
        }
        u32::try_from(scratch).map_err(|_| unsupported("scratch memory beyond 4 GiB", p))
    }

    fn statement(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        match g.op(u) {
            Op::Range if g.kind(u).is_tile() => Ok(()),
            Op::Range => self.open(u),
            Op::End => self.close(),
            Op::Acc => self.declare_acc(u),
            Op::AccUpdate | Op::AccMulAdd => self.update(u),
            Op::Store => self.store(u),
            Op::Barrier | Op::Const | Op::Param | Op::Scratch | Op::Var | Op::Sink => Ok(()),
            Op::After if self.p.is_pointer(u) => Ok(()),
            _ if g.dtype(u) == DType::Void => Err(unsupported(format!("op {}", g.op(u).name()), self.p)),
            // The links of chains of dot products, for all elements of the tile one link after the other. If a whole
            // chain were computed on demand, what its links multiply with would be live until the other chains' turn.
            Op::DotPairs if self.info(u).form == Form::Vec => self.force(u),
            _ => {
                self.top().pending.push(u);
                Ok(())
            }
        }
    }

    fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("the function's scope is never closed")
    }

    /// The local of a loop index or a launch scalar, if `u` is one that is in scope.
    pub(super) fn index_local(&self, u: UOp) -> Option<u32> {
        self.ranges.get(&u).or_else(|| self.vars.get(&u)).copied()
    }

    /// Remembers the local of a slot until the scope closes.
    pub(super) fn remember(&mut self, slot: u32, local: u32) {
        self.vals[slot as usize] = local;
        self.top().slots.push(slot);
    }

    /// Remembers the local of an address until the scope closes.
    pub(super) fn remember_addr(&mut self, key: AddrKey, local: u32) {
        if self.branches > 0 {
            return;
        }
        self.addrs.insert(key, local);
        self.top().addrs.push(key);
    }

    /// Remembers the local of a pair vector until the scope closes.
    pub(super) fn remember_pair(&mut self, key: PairKey, local: u32) {
        self.pairs.insert(key, local);
        self.top().pairs.push(key);
    }

    fn open(&mut self, r: UOp) -> Result<()> {
        let g = &self.p.g;
        let (kind, bound) = (g.kind(r), g.src_at(r, 0));
        self.force_pending(|_, _| true)?;
        let wide = g.dtype(r) == DType::I64;
        let local = self.f.pinned(val_type(g.dtype(r)));
        let grid = kind.is_launch();
        if grid && kind != AxisKind::Grid(0) {
            return Err(unsupported(format!("launch axis {kind:?}"), self.p));
        }
        let guarded = grid || g.bounds(bound).0 < 1;
        if grid {
            self.f.w().local_get(LO);
            if wide {
                self.f.w().i64_extend_i32_u();
            }
        } else if wide {
            self.f.w().i64_const(0);
        } else {
            self.f.w().i32_const(0);
        }
        self.f.w().local_set(local);
        self.scopes.push(Scope { range: Some(r), guarded, start: self.f.len(), ..Scope::default() });
        if guarded {
            self.f.w().block(BlockType::Empty);
            self.push_before_end(r, local)?;
            self.f.w().i32_eqz().br_if(0);
        }
        self.f.w().loop_(BlockType::Empty);
        self.ranges.insert(r, local);
        self.top().pending.push(r);
        Ok(())
    }

    /// Pushes whether the loop index in `local` is below the loop's bound.
    fn push_before_end(&mut self, r: UOp, local: u32) -> Result<()> {
        let g = &self.p.g;
        let wide = g.dtype(r) == DType::I64;
        self.f.w().local_get(local);
        if g.kind(r).is_launch() {
            self.f.w().local_get(HI);
            if wide {
                self.f.w().i64_extend_i32_u();
            }
        } else {
            self.scalar(g.src_at(r, 0), 0)?;
        }
        if wide {
            self.f.w().i64_lt_s();
        } else {
            self.f.w().i32_lt_s();
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let scope = self.scopes.pop().expect("a loop is open");
        let r = scope.range.expect("only the function's own scope has no range");
        let local = self.ranges[&r];
        for slot in scope.slots {
            let l = std::mem::replace(&mut self.vals[slot as usize], NONE);
            self.f.release(l);
        }
        for key in scope.addrs {
            if let Some(l) = self.addrs.remove(&key) {
                self.f.release(l);
            }
        }
        for key in scope.pairs {
            if let Some(l) = self.pairs.remove(&key) {
                self.f.release(l);
            }
        }
        self.increment_addresses(scope.steps);
        if self.p.g.dtype(r) == DType::I64 {
            self.f.w().local_get(local).i64_const(1).i64_add().local_set(local);
        } else {
            self.f.w().local_get(local).i32_const(1).i32_add().local_set(local);
        }
        self.push_before_end(r, local)?;
        self.f.w().br_if(0).end();
        if scope.guarded {
            self.f.w().end();
        }
        self.ranges.remove(&r);
        if self.p.g.kind(r).is_reduce() {
            self.spill_accs();
        }
        Ok(())
    }

    /// Stores accumulators that will not be updated again to scratch memory. An engine that lacks registers for them in
    /// the code after the loop would spill them where they are defined, which is in each iteration of the loop; storing
    /// them here ends their live ranges.
    fn spill_accs(&mut self) {
        let over = |e: &Emit<'_>, acc: UOp| {
            let i = e.info(acc);
            let ready = i.form == Form::Vec && i.last_use > e.cursor && !e.spilled_accs.contains_key(&i.slot);
            ready && e.last_updates.get(&acc).is_some_and(|&at| at < e.cursor)
        };
        let accs = self.top().accs.clone().into_iter().filter(|&acc| over(self, acc));
        let slots: Vec<u32> = accs
            .flat_map(|acc| {
                let i = self.info(acc);
                i.slot..i.slot + i.count * if i.lane { self.chunks() } else { 1 }
            })
            .collect();
        if slots.len() < MIN_SPILLED_ACCS {
            return;
        }
        if self.spill_base == NONE {
            self.spill_base = self.f.pinned(ValType::I32);
        }
        for slot in slots {
            let offset = 16 * self.spilled_accs.len() as u64;
            self.f.w().local_get(self.spill_base).local_get(self.vals[slot as usize]).v128_store(at(offset, 16));
            self.spilled_accs.insert(slot, offset);
        }
    }

    /// Emits the pending values of the innermost scope that are used from here on and that `choose` selects.
    fn force_pending(&mut self, choose: impl Fn(&Emit<'a>, UOp) -> bool) -> Result<()> {
        let cursor = self.cursor;
        let mut pending = std::mem::take(&mut self.top().pending);
        let mut i = 0;
        while i < pending.len() {
            let u = pending[i];
            if self.info(u).last_use < cursor {
                pending.swap_remove(i);
            } else if choose(self, u) {
                pending.remove(i);
                self.force(u)?;
            } else {
                i += 1;
            }
        }
        let mut rest = std::mem::replace(&mut self.top().pending, pending);
        self.top().pending.append(&mut rest);
        Ok(())
    }

    fn force(&mut self, u: UOp) -> Result<()> {
        if self.p.g.op(u) == Op::Index {
            return self.force_address(u);
        }
        let info = self.info(u).clone();
        let saved = (self.tile_point, self.chunk);
        let chunks = if info.lane { self.chunks() } else { 1 };
        for n in 0..info.count {
            self.set_tile_point(&info.axes, n);
            for c in 0..chunks {
                self.chunk = c;
                match info.form {
                    Form::Inline => {}
                    Form::Vec => self.vec(u)?,
                    Form::Lanes => {
                        for lane in 1..4 {
                            self.scalar(u, lane)?;
                            self.f.w().drop();
                        }
                        self.scalar(u, 0)?;
                    }
                    Form::Scalar if info.splat == NONE => self.scalar(u, 0)?,
                    Form::Scalar => {
                        self.vec(u)?;
                        if info.scalar_use {
                            self.f.w().drop();
                            self.scalar(u, 0)?;
                        }
                    }
                }
                if info.form != Form::Inline {
                    self.f.w().drop();
                }
            }
        }
        (self.tile_point, self.chunk) = saved;
        Ok(())
    }

    /// Number of v128 that the lane axis takes.
    pub(super) fn chunks(&self) -> u32 {
        self.layout.chunks
    }

    /// Sets the current tile point to number `n` of these axes, in row-major order.
    pub(super) fn set_tile_point(&mut self, axes: &[(u8, u32)], mut n: u32) {
        for &(id, len) in axes.iter().rev() {
            self.tile_point[id as usize] = n % len;
            n /= len;
        }
    }

    /// The row-major number of the current tile point along these axes.
    pub(super) fn number(&self, axes: &[(u8, u32)]) -> u32 {
        axes.iter().fold(0, |n, &(id, len)| n * len + self.tile_point[id as usize])
    }

    /// The slot of a value at the current tile point and chunk; `lane` counts within the chunk.
    pub(super) fn slot(&self, u: UOp, lane: usize) -> u32 {
        let i = self.info(u);
        let n = self.number(&i.axes);
        match i.form {
            Form::Vec => i.slot + n * self.chunks() + self.chunk,
            Form::Lanes => i.slot + (n * self.chunks() + self.chunk) * 4 + lane as u32,
            _ => i.slot + n,
        }
    }

    fn declare_acc(&mut self, u: UOp) -> Result<()> {
        let init = self.p.g.src_at(u, 0);
        let info = self.info(u).clone();
        let chunks = if info.lane { self.chunks() } else { 1 };
        let t = if info.form == Form::Vec { ValType::V128 } else { val_type(self.p.g.dtype(u)) };
        let lanes = if info.form == Form::Lanes { 4 } else { 1 };
        for n in 0..info.count {
            self.set_tile_point(&info.axes, n);
            for c in 0..chunks {
                self.chunk = c;
                for lane in 0..lanes {
                    if info.form == Form::Vec {
                        self.vec(init)?;
                    } else {
                        self.scalar(init, lane)?;
                    }
                    let local = self.f.local(t);
                    self.f.w().local_set(local);
                    let slot = self.slot(u, lane);
                    self.remember(slot, local);
                }
            }
        }
        self.top().accs.push(u);
        Ok(())
    }

    /// Emits an `AccUpdate` or `AccMulAdd`. The axes that the accumulator lacks are outermost, so that few operands are
    /// live at once.
    fn update(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let (acc, op) = (g.src_at(u, 0), g.op(u));
        self.force_pending(|e, v| e.p.g.op(v) == Op::AccRead && e.p.g.src_at(v, 0) == acc)?;
        if let Some(axis) = self.pairs_of(u) {
            return self.update_pairs(u, axis);
        }
        let (ui, ai) = (self.info(u).clone(), self.info(acc).clone());
        let mut axes: SmallVec<[(u8, u32); 4]> =
            ui.axes.iter().filter(|a| !ai.axes.iter().any(|b| b.0 == a.0)).copied().collect();
        axes.extend(ai.axes.iter().copied());
        let chunks = if ui.lane { self.chunks() } else { 1 };
        let dt = g.dtype(acc);
        let reduce = match g.arg(u) {
            Arg::Reduce(r, _) => r.op(),
            _ => Op::Add,
        };
        let lanes = if ui.lane && ai.form != Form::Vec { 4 } else { 1 };
        for n in 0..axes.iter().map(|a| a.1).product() {
            self.set_tile_point(&axes, n);
            for c in 0..chunks {
                self.chunk = c;
                for lane in 0..lanes {
                    let slot = self.slot(acc, lane);
                    let local = self.vals[slot as usize];
                    self.update_one(u, op, reduce, dt, local, (ai.form != Form::Vec).then_some(lane))?;
                }
            }
        }
        Ok(())
    }

    fn update_one(&mut self, u: UOp, op: Op, reduce: Op, dt: DType, local: u32, lane: Option<usize>) -> Result<()> {
        let src = self.p.g.srcs(u);
        match (op, lane) {
            (Op::AccMulAdd, None) => {
                self.vec(src[1])?;
                self.vec(src[2])?;
                self.vec_mul_add(dt, |f| {
                    f.w().local_get(local);
                })?;
            }
            (Op::AccMulAdd, Some(l)) => {
                self.scalar(src[1], l)?;
                self.scalar(src[2], l)?;
                self.scalar_binary(Op::Mul, dt)?;
                self.f.w().local_get(local);
                self.scalar_binary(Op::Add, dt)?;
            }
            (_, None) => {
                self.f.w().local_get(local);
                self.vec(src[1])?;
                self.vec_binary(reduce, dt)?;
            }
            (_, Some(l)) => {
                self.f.w().local_get(local);
                self.scalar(src[1], l)?;
                self.scalar_binary(reduce, dt)?;
            }
        }
        self.f.w().local_set(local);
        Ok(())
    }

    fn store(&mut self, u: UOp) -> Result<()> {
        let root = self.root(u);
        self.force_pending(|e, v| e.p.g.op(v) == Op::Load && e.root(v) == root)?;
        let info = self.info(u).clone();
        let chunks = if info.lane { self.chunks() } else { 1 };
        let woven = self.p.woven(u).map(|axis| axis.id).filter(|_| info.lane);
        for n in 0..info.count {
            self.set_tile_point(&info.axes, n);
            // `store_interleaved` at index 0 of the axis stores the elements of index 1 as well
            if woven.is_some_and(|id| self.tile_point[id as usize] == 1) {
                continue;
            }
            for c in 0..chunks {
                self.chunk = c;
                match woven {
                    Some(id) => self.store_interleaved(u, id)?,
                    None => self.store_one(u, info.lane)?,
                }
            }
        }
        Ok(())
    }

    /// The parameter or scratch array that a load or store accesses.
    fn root(&self, mut u: UOp) -> UOp {
        while matches!(self.p.g.op(u), Op::Index | Op::Load | Op::Store | Op::After) {
            u = self.p.g.src_at(u, 0);
        }
        u
    }

    /// Is the value held in v128: does it have the lane axis and elements of at most 32 bits?
    pub(super) fn is_vec(&self, u: UOp) -> bool {
        self.info(u).lane && fits_lane(self.p.g.dtype(u))
    }
}
