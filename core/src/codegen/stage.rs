//! Staging: the elements that an operand contributes to a tile are copied to a local array at a chosen position of the
//! loop nest, and read from there. Packed panels of a matmul and halo tiles of a convolution are made this way.
//! Whatever makes an access expensive (strides, gates) is then paid once, in the copy.
//!
//! [`Kernel::stage`], which opts call, replaces a load by reads of an [`Op::Stage`] node; [`Kernel::keep`] makes such a
//! node of a value that several loops compute. [`lower`], a pass, replaces each of these nodes by storage, the loops
//! that fill it, and loads that are ordered after them.

use super::axes::Kernel;
use super::kept;
use super::matrix;
use super::opt::{Level, Staging};
use super::reduce::LoopInfo;
use crate::analysis::{Affine, affine};
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::mma::{MATRIX_TILES_ENABLED, PANEL_ROW_ELEMS, SWIZZLE_CHUNK_ELEMS};
use crate::uop::{Arg, AxisKind, Graph, Op, RangeArg, Space, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most elements of a staged array.
const MAX_ELEMS: usize = 1 << 26;
/// The most values in the body of a reduction for which [`Kernel::repeated`] looks for equal values in other loops.
const MAX_COMPARED_VALUES: usize = 64;
/// Bytes of padding after each row of an array in workgroup memory, so that rows begin in different banks.
const ROW_PADDING: usize = 16;
/// Is code compiled in for processors that transpose squares of elements in registers?
const TRANSPOSES: bool = cfg!(any(feature = "x86", test));
/// Rows that a transposing copy holds in registers at a time.
const ROWS: usize = 8;

impl Kernel {
    /// Applies [`super::Opt::Stage`]: the load is packed outside the kernel if it may be, and otherwise reads a local
    /// array. On GPUs the threads of a workgroup share the array.
    pub(super) fn stage(&mut self, what: &Staging, t: &Target) -> Result<()> {
        let threads = t.caps.has_local;
        let bad = |why: &str| Error::value("opt", format!("{}: {why}", super::Opt::Stage(*what)));
        let &Staging { param: slot, level, separate_windows, .. } = what;
        let load = self.load_of(slot, what.load).ok_or_else(|| bad("no such load"))?;
        // on a GPU `Level::Outside` can also mean an array that the workgroup shares; only `separate_windows` asks for
        // a packed copy there
        let packed = level == Level::Outside && self.constants.contains(&slot) && (!threads || separate_windows);
        if packed && self.load_of(slot, 1).is_none() {
            let closed = self.ranges_inside(load, level, false).ok_or_else(|| bad("no such loop"))?;
            return self.pack(load, slot, &closed);
        }
        let mut closed = self.ranges_inside(load, level, threads).ok_or_else(|| bad("no such loop"))?;
        if closed.is_empty() {
            return Err(bad("nothing to copy"));
        }
        let tiled = MATRIX_TILES_ENABLED && closed.iter().any(|&r| self.g.kind(r) == AxisKind::Tile);
        let panels = tiled && matrix::in_memory(self, t);
        let row = match tiled {
            true => rows_of(&self.g, load, &mut closed, panels),
            false if MATRIX_TILES_ENABLED && threads && t.caps.copies.is_some() => self.in_order(load, &mut closed),
            false => None,
        };
        if panels && row.is_none() {
            return Err(bad("no rows of panels"));
        }
        let axes = axes_of(&self.g, load, &closed, !separate_windows && !tiled);
        let mut elems = 1usize;
        let (mut map, mut own) = (FxHashMap::default(), SmallVec::<[UOp; 4]>::new());
        let mut places: SmallVec<[(UOp, usize); 4]> = SmallVec::new();
        for axis in &axes {
            elems = elems.checked_mul(axis.len).filter(|&e| e <= MAX_ELEMS).ok_or_else(|| bad("too large"))?;
            let r = axis.members[0].0;
            let tile = axis.members.len() == 1 && matches!(self.g.kind(r), AxisKind::Upcast | AxisKind::Accum);
            own.push(if tile && !threads { r } else { self.new_range(axis.len, AxisKind::Fill, false)? });
            for &(m, _) in &axis.members[1..] {
                let zero = self.g.int(0, self.g.dtype(m));
                map.insert(m, zero);
            }
            map.insert(r, own[own.len() - 1]);
            let mut place = self.g.idx(0);
            for &(m, times) in &axis.members {
                let x = self.g.cast(m, DType::I32);
                let times = self.g.idx(times);
                let x = self.g.binary(Op::Mul, x, times);
                place = self.g.binary(Op::Add, place, x);
            }
            places.push((place, axis.len));
        }
        let transposes = TRANSPOSES && t.caps.permutes && !threads;
        // each element is converted once, in the copy, rather than for each tile that reads it
        let load = if transposes { self.converted(load) } else { load };
        let dt = self.g.dtype(load);
        let mut value = substitute1(&mut self.g, load, &map);
        if transposes {
            self.join_contiguous(&mut value, &mut own, &mut places)?;
        }
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[value]);
        src.extend_from_slice(&own);
        let arg = row.map_or(Arg::None, |n| Arg::Number(n as u32 + if panels { IN_PANELS } else { 0 }));
        let stage = self.g.node(Op::Stage, dt, &src, arg);
        let at = match panel_rows(&self.g, stage) {
            Some(all) => {
                let (rows, row) = places.split_at(places.len() - row.unwrap_or(0));
                let (rows, at) = (number(&mut self.g, rows), number(&mut self.g, row));
                in_panels(&mut self.g, rows, at, all)
            }
            None => place_in(&mut self.g, stage, &places),
        };
        let index = self.g.index(stage, at);
        let from_stage = self.g.load(index);
        self.replace(&[(load, from_stage)].into_iter().collect());
        Ok(())
    }

    /// The load with this index among a parameter's loads, in graph order; `None` if the kernel also stores to the
    /// parameter.
    fn load_of(&self, slot: u32, number: u16) -> Option<UOp> {
        let writes = |&s: &UOp| self.g.op(s) == Op::Store && self.slot_below(self.g.src_at(s, 0)) == Some(slot);
        if self.g.src(self.sink).iter().any(writes) {
            return None; // a copy would not see what the kernel stores
        }
        let loads = self.nodes().into_iter().filter(|&u| {
            let from = |s: &u32| *s == slot;
            self.g.op(u) == Op::Load && self.slot_below(self.g.src_at(u, 0)).as_ref().is_some_and(from)
        });
        loads.into_iter().nth(number as usize)
    }

    /// The conversion of a 16-bit float to f32, if that is all the load is used for, or else the load.
    fn converted(&self, load: UOp) -> UOp {
        let g = &self.g;
        let users: SmallVec<[UOp; 4]> = self.nodes().into_iter().filter(|&u| g.src(u).contains(&load)).collect();
        match users[..] {
            [u] if g.op(u) == Op::Cast && is_half(g.dtype(load)) && g.dtype(u) == DType::F32 => u,
            _ => load,
        }
    }

    /// Where a loaded value is contiguous along a loop that was split into two neighbouring axes of the array, as the
    /// loop of a contraction that is unrolled: makes one axis of both again, if whole vectors fill it and not its part.
    /// `own`: the axes of the array; `places`: where the kernel reads it along each, and their lengths.
    fn join_contiguous(
        &mut self,
        value: &mut UOp,
        own: &mut SmallVec<[UOp; 4]>,
        places: &mut SmallVec<[(UOp, usize); 4]>,
    ) -> Result<()> {
        let g = &self.g;
        let (Some(load), Some(lane)) = (loaded(g, *value), self.ranges().into_iter().find(|&r| g.range_arg(r).lane))
        else {
            return Ok(());
        };
        let (offset, width) = (affine(g, g.src_at(g.src_at(load, 0), 1)), g.range_len(lane));
        let joins = |&i: &usize| {
            let (outer, inner, n) = (own[i - 1], own[i], places[i].1);
            [outer, inner].into_iter().all(|r| g.kind(r) == AxisKind::Fill)
                && offset.stride(g, inner) == Some(1)
                && offset.stride(g, outer) == Some(n as i64)
                && n < width
                && (places[i - 1].1 * n).is_multiple_of(width)
        };
        let Some(i) = (1..own.len()).find(joins) else { return Ok(()) };
        let (outer, inner, n) = (places[i - 1], places[i].0, places[i].1);
        let both = self.new_range(outer.1 * n, AxisKind::Fill, false)?;
        let by = self.g.idx(n as i64);
        let parts = [(own[i - 1], Op::FloorDiv), (own[i], Op::FloorMod)];
        let map = parts.map(|(r, op)| (r, self.g.binary(op, both, by))).into_iter().collect();
        *value = substitute1(&mut self.g, *value, &map);
        *value = simplify_with(&mut self.g, *value, &mut self.memo);
        own.drain(i..=i);
        own[i - 1] = both;
        places.drain(i..=i);
        let rows = self.g.binary(Op::Mul, outer.0, by);
        places[i - 1] = (self.g.binary(Op::Add, rows, inner), outer.1 * n);
        Ok(())
    }

    /// The slot of the parameter that an Index addresses.
    pub(super) fn slot_below(&self, index: UOp) -> Option<u32> {
        let mut ptr = self.g.src_at(index, 0);
        while self.g.op(ptr) == Op::After {
            ptr = self.g.src_at(ptr, 0);
        }
        match self.g.arg(ptr) {
            Arg::Param { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    /// Does the load have no lanes, and read vectors of contiguous elements along an unrolled axis of the reduction?
    fn reads_steps(&self, load: UOp, closed: &[UOp]) -> bool {
        let g = &self.g;
        let a = affine(g, g.src_at(g.src_at(load, 0), 1));
        let next = |&&r: &&UOp| a.stride(g, r) == Some(1) && g.kind(r) == AxisKind::Unroll;
        let lane = closed.iter().any(|&r| g.range_arg(r).lane);
        !lane && closed.iter().find(next).is_some_and(|&r| g.range_len(r).is_multiple_of(4))
    }

    /// The ranges that a value depends on and that are nested inside `level`, outermost first: output loops, reduced
    /// loops, tile axes, lanes. If the threads of a workgroup share the array (`threads`), they count as nested in
    /// every loop.
    fn ranges_inside(&self, value: UOp, level: Level, threads: bool) -> Option<Vec<UOp>> {
        let g = &self.g;
        let mut reduced: Vec<UOp> = Vec::new();
        for r in self.reduces() {
            reduced.extend(g.src(r)[1..].iter().filter(|x| !reduced.contains(x)).collect::<Vec<_>>());
        }
        let place = |r: UOp| {
            let a = g.range_arg(r);
            let at = reduced.iter().position(|&x| x == r).unwrap_or(0);
            match a.kind {
                AxisKind::Dot => (5, 0),
                _ if a.lane => (4, 0),
                AxisKind::Local(_) if threads => (2, usize::from(u8::MAX) + a.id as usize),
                AxisKind::Tile if threads => (3, a.id as usize),
                AxisKind::Upcast | AxisKind::Accum => (3, a.id as usize),
                AxisKind::Reduce | AxisKind::Unroll => (2, at),
                // neighbouring threads read neighbouring elements, so their axis is innermost
                AxisKind::Local(_) => (3, usize::MAX),
                _ => (1, a.id as usize),
            }
        };
        let limit = match level {
            Level::Outside if threads => (1, usize::MAX),
            Level::Outside => (0, 0),
            Level::In(r) => {
                place(self.range_by_id(r).filter(|&r| matches!(g.kind(r), AxisKind::Loop | AxisKind::Reduce))?)
            }
        };
        let mut out: Vec<UOp> = self.ranges();
        out.retain(|&r| g.depends(value, r) && place(r) > limit);
        sort::by_key(&mut out, |&r| place(r));
        if threads && self.reads_steps(value, &out) {
            sort::by_key(&mut out, |&r| g.kind(r).is_reduce());
        }
        Some(out)
    }
}

impl Kernel {
    /// Gives local arrays that are filled inside the tile axis `r` this axis as their first one. A product is then
    /// computed for the whole tile at once, any other value for one point of the axis after the other.
    pub(super) fn widen(&mut self, r: UOp) -> Result<()> {
        let id = self.g.range_arg(r).id;
        let inside = |g: &Graph, u: UOp| g.ranges(u) >> id & 1 == 1;
        let n = self.g.range_len(r);
        let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut wide: FxHashMap<UOp, UOp> = FxHashMap::default();
        for u in self.nodes() {
            let src: SmallVec<[UOp; 4]> = self.g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
            let mut v = self.g.with_src(u, &src);
            if self.g.op(v) == Op::Stage && inside(&self.g, v) {
                let (mut value, mut own) = (src[0], r);
                if !self.stages_product(v) {
                    own = self.new_range(n, AxisKind::Fill, false)?;
                    let mut map = wide.clone();
                    map.insert(r, own);
                    value = substitute1(&mut self.g, value, &map);
                }
                let mut places: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[value, own]);
                places.extend_from_slice(&src[1..]);
                v = self.g.node(Op::Stage, self.g.dtype(u), &places, Arg::None);
                wide.insert(v, v);
            }
            if self.g.op(v) == Op::Index && wide.contains_key(&src[0]) {
                let len = self.g.src(src[0])[2..].iter().map(|&p| self.g.bounds(p).1 + 1).product();
                let len = self.g.idx(len);
                let row = self.g.cast(r, DType::I32);
                let row = self.g.binary(Op::Mul, row, len);
                let at = self.g.binary(Op::Add, row, src[1]);
                v = self.g.index(src[0], at);
            }
            image.insert(u, v);
        }
        if !wide.is_empty() {
            self.sink = simplify_with(&mut self.g, image[&self.sink], &mut self.memo);
        }
        Ok(())
    }

    /// Is the staged value itself a reduction over the row (a product), and not only computed from results of such
    /// reductions?
    pub(super) fn stages_product(&self, stage: UOp) -> bool {
        let g = &self.g;
        let own = g.src(stage)[1..].iter().fold(0, |m, &p| m | g.ranges(p));
        let mut stack: SmallVec<[UOp; 8]> = SmallVec::from_elem(g.src_at(stage, 0), 1);
        let mut seen = rustc_hash::FxHashSet::default();
        while let Some(u) = stack.pop() {
            if g.op(u) == Op::Reduce && g.ranges(u) & own != 0 {
                return true;
            }
            if g.op(u) != Op::Stage && seen.insert(u) {
                stack.extend_from_slice(g.src(u));
            }
        }
        false
    }
}

/// A value that is computed along several axes of the same length.
pub(super) struct Repeated {
    /// The value, and the axis along which it is computed.
    pub(super) first: (UOp, UOp),
    /// The nodes that are the same value along other axes, and these axes.
    pub(super) others: Vec<(UOp, UOp)>,
}

impl Kernel {
    /// Applies [`super::Opt::Keep`].
    pub(super) fn keep(&mut self, r: UOp) -> Result<()> {
        let id = self.g.range_arg(r).id;
        let bad = |what: &str| Error::value("opt", format!("keep {id}: {what}"));
        let found = self.repeated(r).ok_or_else(|| bad("nothing is computed twice"))?;
        let n = self.g.range_len(r);
        if n > MAX_ELEMS {
            return Err(bad("too large"));
        }
        let open = self.g.ranges(found.first.0);
        if self.ranges().iter().any(|&x| self.g.kind(x).is_tile() && open >> self.g.range_arg(x).id & 1 == 1) {
            return Err(bad("the value is a tile"));
        }
        let own = self.new_range(n, AxisKind::Fill, false)?;
        let (value, dt) = (found.first.0, self.g.dtype(found.first.0));
        let map = [(r, own)].into_iter().collect();
        let value = substitute1(&mut self.g, value, &map);
        let stage = self.g.node(Op::Stage, dt, &[value, own], Arg::None);
        let mut map = FxHashMap::default();
        for (v, along) in found.others.into_iter().chain([found.first]) {
            let index = self.g.index(stage, along);
            map.insert(v, self.g.load(index));
        }
        self.replace(&map);
        Ok(())
    }

    /// The largest subexpression of the reduction over `r` (which has no other range) that is also computed along other
    /// axes.
    pub(super) fn repeated(&mut self, r: UOp) -> Option<Repeated> {
        let nodes = self.nodes();
        let of = nodes.iter().copied().find(|&u| self.g.op(u) == Op::Reduce && self.g.src(u)[1..] == [r])?;
        let mut live = vec![false; self.g.len()];
        nodes.iter().for_each(|u| live[u.0 as usize] = true);
        let (id, n, dt) = (self.g.range_arg(r).id, self.g.range_len(r), self.g.dtype(r));
        let axes: Vec<UOp> = self.ranges();
        let same = |k: &Kernel, x: UOp| x != r && k.g.range_len(x) == n && k.g.dtype(x) == dt;
        let axes: Vec<UOp> = axes.into_iter().filter(|&x| same(self, x)).collect();
        let inside = |g: &Graph, u: UOp| g.ranges(u) >> id & 1 == 1;
        let mut inner = self.g.reachable(&[self.g.src_at(of, 0)]);
        inner.retain(|&u| inside(&self.g, u) && self.g.op(u).is_alu() && !self.g.dtype(u).is_int());
        for &v in inner.iter().rev().take(MAX_COMPARED_VALUES) {
            let mut others = Vec::new();
            for &x in &axes {
                // a value that depends on both axes is not the same row computed twice
                if self.g.depends(v, x) {
                    continue;
                }
                let map = [(r, x)].into_iter().collect();
                let there = substitute1(&mut self.g, v, &map);
                let there = simplify_with(&mut self.g, there, &mut self.memo);
                if live.get(there.0 as usize) == Some(&true) {
                    others.push((there, x));
                }
            }
            if !others.is_empty() {
                return Some(Repeated { first: (v, r), others });
            }
        }
        None
    }
}

impl Kernel {
    /// Orders the axes of an array that the threads of a workgroup fill by their strides in memory, so that
    /// neighbouring threads read neighbouring addresses. Axes of results go inside those of the reduction, or outside
    /// if vectors are read along the reduction. If threads read several rows of the array at once, these rows need
    /// padding between them: then the result is the number of axes that form a row.
    fn in_order(&self, load: UOp, closed: &mut [UOp]) -> Option<usize> {
        let (g, steps) = (&self.g, self.reads_steps(load, closed));
        let at = affine(g, g.src_at(g.src_at(load, 0), 1));
        let distance = |r: UOp| at.stride(g, r).map_or(i64::MAX, i64::abs);
        let tangled = |side: bool| closed.iter().any(|&r| g.kind(r).is_reduce() == side && at.stride(g, r).is_none());
        let tangled = [tangled(false), tangled(true)];
        let place = |r: UOp| match g.kind(r) {
            // several ranges are digits of one index: elements of a thread are outermost, then threads, then lanes
            kind if tangled[usize::from(kind.is_reduce())] => match kind {
                _ if g.range_arg(r).lane => 0,
                AxisKind::Local(_) | AxisKind::Unroll => 1,
                _ => 2,
            },
            _ => distance(r),
        };
        sort::by_key(closed, |&r| (g.kind(r).is_reduce() == steps, std::cmp::Reverse(place(r))));
        if !steps {
            // threads that share a sum read several rows at the same time
            let shares = |r: UOp| !g.kind(r).is_reduce() && self.reduces().iter().any(|&u| g.src(u)[1..].contains(&r));
            let last = closed.iter().rposition(|&r| shares(r));
            return last.map(|i| closed.len() - i - 1).filter(|&n| n > 0);
        }
        let reduced: Vec<UOp> = closed.iter().copied().filter(|&r| g.kind(r).is_reduce()).collect();
        let row = reduced.iter().map(|&r| g.range_len(r)).product::<usize>() * g.dtype(load).size();
        (reduced.len() < closed.len() && row % (2 * ROW_PADDING) == 0).then_some(reduced.len())
    }
}

/// Orders the axes of a factor of matrix tiles by their strides in memory. The result is how many of the last axes form
/// a row of contiguous elements, if unpadded rows would all begin in the same bank of workgroup memory: a matrix load
/// reads pieces of several rows at once. With `panels` it is the axes of any row whose length is a multiple of the
/// panel width, if the number of rows is a multiple of 8, the number of rows over which the order of pieces repeats.
fn rows_of(g: &Graph, load: UOp, closed: &mut [UOp], panels: bool) -> Option<usize> {
    if g.dtype(load).size() != 2 {
        return None;
    }
    let a = affine(g, g.src_at(g.src_at(load, 0), 1));
    let strides: Option<Vec<i64>> = closed.iter().map(|&r| a.stride(g, r).filter(|&s| s > 0)).collect();
    strides?;
    sort::by_key(closed, |&r| std::cmp::Reverse(a.stride(g, r)));
    let (mut run, mut n) = (1, 0);
    for &r in closed.iter().rev() {
        let side = closed.last().is_some_and(|&last| g.kind(last).is_reduce() == g.kind(r).is_reduce());
        if a.stride(g, r) != Some(run) || !side {
            break;
        }
        run *= g.range_len(r) as i64;
        n += 1;
    }
    if panels {
        let rows: usize = closed[..closed.len() - n].iter().map(|&r| g.range_len(r)).product();
        return (n < closed.len() && run % PANEL_ROW_ELEMS as i64 == 0 && rows.is_multiple_of(8)).then_some(n);
    }
    (n < closed.len() && run % 16 == 0).then_some(n)
}

/// An axis of a staged array: one range, or several that the value depends on only through one sum, like `2*y + ky`.
struct StageAxis {
    /// The ranges with their factors in the sum; the first has factor 1.
    members: SmallVec<[(UOp, i64); 2]>,
    /// Number of values of the sum.
    len: usize,
}

/// The axes of an array that holds `value` for all points of `closed`. With `join`, ranges are combined into one axis
/// where their sum has fewer values than there are points, as for the overlapping windows of a convolution.
fn axes_of(g: &Graph, value: UOp, closed: &[UOp], join: bool) -> Vec<StageAxis> {
    let sums = if join { sums(g, value) } else { Vec::new() };
    let one = |&r: &UOp| Some(StageAxis { members: SmallVec::from_iter([(r, 1)]), len: g.range_len(r) });
    let mut axes: Vec<Option<StageAxis>> = closed.iter().map(one).collect();
    for sum in &sums {
        let mut terms: Vec<(i64, usize)> = Vec::new();
        for (i, &r) in closed.iter().enumerate() {
            terms.push((sum.factor(r), i));
        }
        terms.retain(|t| t.0 > 0);
        sort::ascending(&mut terms);
        for pair in 1..terms.len() {
            let ((small, i), (large, j)) = (terms[pair - 1], terms[pair]);
            // the axis that holds the range at the moment
            let home = |axes: &[Option<StageAxis>], i: usize| {
                axes.iter().position(|a| a.as_ref().is_some_and(|a| a.members.iter().any(|m| m.0 == closed[i])))
            };
            let (Some(a), Some(b)) = (home(&axes, i), home(&axes, j)) else { continue };
            let (Some(x), Some(y)) = (&axes[a], &axes[b]) else { continue };
            // the factors that the first members of both axes have in this sum
            let (fx, fy) = (sum.factor(x.members[0].0), sum.factor(y.members[0].0));
            if a == b || fx <= 0 || fy % fx != 0 || fy / fx >= x.len as i64 || small <= 0 || large <= 0 {
                continue;
            }
            let mut members = x.members.clone();
            members.extend(y.members.iter().map(|m| (m.0, m.1 * (fy / fx))));
            let joined = sums.iter().all(|s| {
                let unit = s.factor(members[0].0);
                members.iter().all(|m| s.factor(m.0) == unit * m.1)
            });
            if joined {
                let len = x.len + (fy / fx) as usize * (y.len - 1);
                // the combined axis takes the position of the inner one
                let (keep, drop) = (a.max(b), a.min(b));
                axes[keep] = Some(StageAxis { members, len });
                axes[drop] = None;
            }
        }
    }
    axes.into_iter().flatten().collect()
}

/// The maximal affine expressions of ranges among the integer nodes that a value is computed from.
fn sums(g: &Graph, value: UOp) -> Vec<Affine> {
    let mut out = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    let mut roots = vec![value];
    while let Some(root) = roots.pop() {
        if !seen.insert(root) {
            continue;
        }
        if !g.dtype(root).is_int() {
            roots.extend_from_slice(g.src(root));
            continue;
        }
        let sum = affine(g, root);
        sum.others.iter().for_each(|&u| roots.extend_from_slice(g.src(u)));
        if !sum.terms.is_empty() {
            out.push(sum);
        }
    }
    out
}

/// Added to the argument of a Stage node whose array is stored in panels; the rest of the argument is the number of
/// axes of a row.
pub(super) const IN_PANELS: u32 = 256;

/// How many of the last axes of a Stage form a row, if the array is not simply row-major.
fn row_axes(g: &Graph, stage: UOp) -> Option<usize> {
    match g.arg(stage) {
        Arg::Number(n) if MATRIX_TILES_ENABLED => Some((*n % IN_PANELS) as usize),
        _ => None,
    }
}

/// The number of rows of each panel, if the Stage is stored in panels.
pub(super) fn panel_rows(g: &Graph, stage: UOp) -> Option<usize> {
    let n = row_axes(g, stage).filter(|_| matches!(g.arg(stage), Arg::Number(n) if *n >= IN_PANELS))?;
    let axes = &g.src(stage)[1..];
    Some(axes[..axes.len() - n].iter().map(|&r| g.range_len(r)).product())
}

/// Elements from the start of a row to the start of the next one (the pitch), for rows with padding.
fn pitch(g: &Graph, stage: UOp, row: usize) -> usize {
    row.saturating_add(ROW_PADDING / g.dtype(stage).size().max(1))
}

/// Elements of a Stage, including the padding of rows.
pub(super) fn elems(g: &Graph, stage: UOp) -> usize {
    let lens = |axes: &[UOp]| axes.iter().map(|&r| g.range_len(r)).fold(1, usize::saturating_mul);
    let axes = &g.src(stage)[1..];
    let Some(n) = row_axes(g, stage).filter(|_| panel_rows(g, stage).is_none()) else { return lens(axes) };
    let (rows, row) = axes.split_at(axes.len() - n);
    lens(rows).saturating_mul(pitch(g, stage, lens(row)))
}

/// The address in a Stage of the element with these indices along its axes; each index comes with the length of its
/// axis.
pub(super) fn place_in(g: &mut Graph, stage: UOp, places: &[(UOp, usize)]) -> UOp {
    let Some(n) = row_axes(g, stage) else { return number(g, places) };
    let (rows, row) = places.split_at(places.len() - n);
    let pitch = pitch(g, stage, row.iter().map(|p| p.1).product());
    let (rows, at) = (number(g, rows), number(g, row));
    if let Some(all) = panel_rows(g, stage) {
        return in_panels_filled(g, rows, at, all);
    }
    let pitch = g.idx(pitch as i64);
    let rows = g.binary(Op::Mul, rows, pitch);
    g.binary(Op::Add, rows, at)
}

/// The address to which an element is copied in panels. The pieces of a row are permuted by the row's number (a
/// swizzle), so that reading the same piece of several rows hits different banks.
fn in_panels_filled(g: &mut Graph, rows: UOp, at: UOp, all: usize) -> UOp {
    let [eight, piece] = [8, SWIZZLE_CHUNK_ELEMS as i64].map(|n| g.idx(n));
    let within = g.binary(Op::FloorMod, at, piece);
    let own = g.binary(Op::FloorDiv, at, piece);
    let turn = g.binary(Op::FloorMod, rows, eight);
    let order = g.binary(Op::FloorMod, own, eight);
    let order = g.binary(Op::Xor, order, turn);
    let (first, order) = (g.binary(Op::Sub, at, within), g.binary(Op::Mul, order, piece));
    let wide = g.idx(PANEL_ROW_ELEMS as i64);
    let before = g.binary(Op::FloorDiv, first, wide);
    let before = g.binary(Op::Mul, before, wide);
    let at = g.binary(Op::Add, order, within);
    let at = g.binary(Op::Add, before, at);
    in_panels(g, rows, at, all)
}

/// The address of element `at` of a row in panels: a panel holds [`PANEL_ROW_ELEMS`] contiguous elements of each of its
/// `rows` rows, and the rest of a row is in the following panels.
fn in_panels(g: &mut Graph, row: UOp, at: UOp, rows: usize) -> UOp {
    let (wide, whole) = (g.idx(PANEL_ROW_ELEMS as i64), g.idx((rows * PANEL_ROW_ELEMS) as i64));
    let panel = g.binary(Op::FloorDiv, at, wide);
    let panel = g.binary(Op::Mul, panel, whole);
    let within = g.binary(Op::FloorMod, at, wide);
    let row = g.binary(Op::Mul, row, wide);
    let row = g.binary(Op::Add, row, within);
    g.binary(Op::Add, panel, row)
}

/// The row-major linear index over `axes`.
pub(super) fn row_major(g: &mut Graph, axes: &[UOp]) -> UOp {
    let places: SmallVec<[(UOp, usize); 8]> = axes.iter().map(|&r| (r, g.bounds(r).1 as usize + 1)).collect();
    number(g, &places)
}

fn number(g: &mut Graph, places: &[(UOp, usize)]) -> UOp {
    let mut at = g.idx(0);
    for &(place, len) in places {
        let n = g.idx(len as i64);
        let place = if g.dtype(place) == DType::I32 { place } else { g.cast(place, DType::I32) };
        at = g.binary(Op::Mul, at, n);
        at = g.binary(Op::Add, at, place);
    }
    at
}

/// Lowers every Stage to scratch memory that a loop nest fills. The loops are added to `loops`.
pub(super) fn lower(k: &mut Kernel, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<()> {
    if !k.nodes().iter().any(|&u| k.g.op(u) == Op::Stage) {
        return Ok(());
    }
    let mut n = 0;
    kept::store_in_sums(k, &mut n);
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut homes: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in k.nodes() {
        let src: SmallVec<[UOp; 4]> = k.g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
        let mut v = k.g.with_src(u, &src);
        if k.g.op(v) == Op::Stage {
            let home = reusable_array(k, u).and_then(|other| homes.get(&other).copied());
            let scratch = home.unwrap_or_else(|| {
                let len = k.g.src(u)[1..].iter().map(|&r| k.g.bounds(r).1 as usize + 1).product();
                k.g.node(Op::Scratch, k.g.dtype(u), &[], Arg::Scratch { id: n, len, space: Space::Private })
            });
            homes.insert(u, scratch);
            v = fill(k, v, scratch, home.is_some(), loops)?;
            n += 1;
        }
        image.insert(u, v);
    }
    k.sink = image[&k.sink];
    k.sink = simplify_with(&mut k.g, k.sink, &mut k.memo);
    Ok(())
}

/// An array whose storage the Stage can reuse in place: each element is overwritten only after its last read.
fn reusable_array(k: &mut Kernel, stage: UOp) -> Option<UOp> {
    let places: Vec<UOp> = k.g.src(stage)[1..].to_vec();
    let own = row_major(&mut k.g, &places);
    let own = simplify_with(&mut k.g, own, &mut k.memo);
    let g = &k.g;
    // overlapping tiles are computed twice and would read overwritten elements; copies may swap their loops
    if g.op(g.src_at(stage, 0)) == Op::Load || g.reachable(&places).into_iter().any(|u| g.op(u) == Op::Min) {
        return None;
    }
    let inside = g.reachable(&[g.src_at(stage, 0)]);
    let reads = |u: UOp| g.op(u) == Op::Index && g.op(g.src_at(u, 0)) == Op::Stage;
    let here = inside.iter().copied().find(|&u| reads(u) && g.src_at(u, 1) == own)?;
    let other = g.src_at(here, 0);
    let len = |s: UOp| g.src(s)[1..].iter().map(|&r| g.bounds(r).1 + 1).product::<i64>();
    let last = k.nodes().into_iter().filter(|&u| reads(u) && g.src_at(u, 0) == other).all(|u| inside.contains(&u));
    let apart = |u: UOp| !reads(u) || g.src_at(u, 0) != other || u == here || before(g, &places, own, g.src_at(u, 1));
    (last && len(other) == len(stage) && g.dtype(other) == g.dtype(stage) && inside.iter().all(|&u| apart(u)))
        .then_some(other)
}

/// Is `at` read outside the loop over the array's last axis, and in the same row of the array as `own`?
fn before(g: &Graph, places: &[UOp], own: UOp, at: UOp) -> bool {
    let Some((&last, rows)) = places.split_last() else { return false };
    let (mine, theirs) = (affine(g, own), affine(g, at));
    let rows: Vec<UOp> = g.reachable(rows).into_iter().filter(|&r| g.op(r) == Op::Range).collect();
    let same = rows.iter().all(|&r| mine.stride(g, r).is_some() && mine.stride(g, r) == theirs.stride(g, r));
    let others = theirs.terms.iter().filter(|t| !rows.contains(&t.0));
    let most: i64 = others.map(|&(r, c)| if c < 0 { i64::MAX / 256 } else { c * (g.range_len(r) as i64 - 1) }).sum();
    same && theirs.non_affine_ranges == 0
        && g.ranges(at) & g.ranges(last) == 0
        && g.bounds(at).0 == 0
        && most <= g.bounds(last).1
}

/// Does any node of `value` depend on both ranges, as a reduction with lanes of its own does?
fn uses_both(g: &Graph, value: UOp, a: UOp, b: UOp) -> bool {
    let both = 1 << g.range_arg(a).id | 1 << g.range_arg(b).id;
    g.reachable(&[value]).into_iter().any(|u| g.ranges(u) & both == both)
}

fn is_half(dt: DType) -> bool {
    matches!(dt, DType::F16 | DType::BF16)
}

/// The load that a value is, or that it is converted from.
fn loaded(g: &Graph, value: UOp) -> Option<UOp> {
    match g.op(value) {
        Op::Load => Some(value),
        Op::Cast if TRANSPOSES && g.op(g.src_at(value, 0)) == Op::Load => Some(g.src_at(value, 0)),
        _ => None,
    }
}

/// Fills a Stage in `scratch`, and returns the storage ordered after the loops that fill it. `in_place`: the storage is
/// another array's that is overwritten in place, so no element may be computed twice.
fn fill(k: &mut Kernel, stage: UOp, scratch: UOp, in_place: bool, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<UOp> {
    let open = k.g.ranges(stage);
    let mut value = k.g.src_at(stage, 0);
    let places: Vec<UOp> = k.g.src(stage)[1..].to_vec();
    // the first axis becomes the outermost loop
    let ranges_in = |p: &UOp| k.g.reachable(&[*p]).into_iter().filter(|&r| k.g.op(r) == Op::Range);
    let axes: Vec<UOp> = places.iter().flat_map(ranges_in).collect();
    let mut at = row_major(&mut k.g, &places);
    let mut nest: Vec<(i64, UOp)> = Vec::new();
    let load = loaded(&k.g, value);
    let stride = |k: &Kernel, r: UOp| affine(&k.g, k.g.src_at(k.g.src_at(load?, 0), 1)).stride(&k.g, r);
    let is_lane = |r: &UOp| k.g.range_arg(*r).lane;
    let lane = axes.iter().copied().find(is_lane).or_else(|| k.ranges().into_iter().find(is_lane));
    for &r in axes.iter().filter(|&&r| k.g.kind(r) == AxisKind::Fill) {
        nest.push((stride(k, r).map_or(0, i64::abs), r));
    }
    // for a load, vectors run along the axis that is contiguous in memory
    let along = axes.iter().copied().find(|&r| stride(k, r) == Some(1));
    // a computed value gets vectors along the last axis, along which it is stored contiguously
    let last = places.last().copied().filter(|&r| k.g.op(r) == Op::Range && load.is_none());
    let along = along.or(last);
    if let (Some(lane), Some(r)) = (lane, along)
        && !k.g.range_arg(r).lane
        && k.g.kind(r) == AxisKind::Fill
        && k.g.range_len(r) >= k.g.range_len(lane)
        && !(in_place && !k.g.range_len(r).is_multiple_of(k.g.range_len(lane)))
        && (axes.contains(&lane) || !uses_both(&k.g, value, r, lane))
    {
        let mut map = FxHashMap::default();
        if axes.contains(&lane) {
            // the lanes of the reader are rows of this copy (a transposition)
            let n = k.g.range_len(lane);
            let rows = if n.is_multiple_of(ROWS) { ROWS } else { 1 };
            let mut row = k.g.idx(0);
            if n > rows {
                row = k.new_range(n / rows, AxisKind::Fill, false)?;
                nest.push((stride(k, lane).unwrap_or(0) * rows as i64, row));
            }
            if rows > 1 {
                let inner = k.new_range(rows, AxisKind::Upcast, false)?;
                let f = k.g.idx(rows as i64);
                row = k.g.binary(Op::Mul, row, f);
                row = k.g.binary(Op::Add, row, inner);
            }
            map.insert(lane, row);
        }
        let (n, w) = (k.g.range_len(r), k.g.range_len(lane));
        let arg = k.g.range_arg(r);
        let outer = k.g.range_with(n.div_ceil(w), RangeArg { id: arg.id, kind: AxisKind::Fill, lane: false });
        let whole = k.cut(outer, n, w, lane);
        map.insert(r, whole);
        // arrays that the value reads are filled already, with lanes of their own
        let filled = |u: &UOp| k.g.op(*u) == Op::After && map.keys().all(|&r| !k.g.depends(*u, r));
        let filled: Vec<UOp> = k.g.reachable(&[value]).into_iter().filter(filled).collect();
        map.extend(filled.into_iter().map(|u| (u, u)));
        value = substitute1(&mut k.g, value, &map);
        at = substitute1(&mut k.g, at, &map);
        if let Some(x) = nest.iter_mut().find(|x| x.1 == r) {
            x.1 = outer;
        }
    }
    // the axis with the smallest stride in memory is innermost
    sort::by_key(&mut nest, |x| std::cmp::Reverse(x.0));
    let index = k.g.index(scratch, at);
    let mut done = k.g.store(index, value);
    done = simplify_with(&mut k.g, done, &mut k.memo);
    let around = k.g.ranges(done) & open;
    let inside = k.g.ranges(done);
    nest.retain(|x| inside >> k.g.range_arg(x.1).id & 1 == 1);
    for (i, &(_, r)) in nest.iter().enumerate() {
        let parent = i.checked_sub(1).map(|p| k.g.range_arg(nest[p].1).id);
        loops.insert(k.g.range_arg(r).id, LoopInfo { parent, around });
    }
    for &(_, r) in nest.iter().rev() {
        done = k.g.node(Op::End, DType::Void, &[r, done], Arg::None);
    }
    let mut deps: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[done]);
    let is_open = |u: &UOp| k.g.op(*u) == Op::Range && around >> k.g.range_arg(*u).id & 1 == 1;
    deps.extend(k.g.reachable(&[done]).into_iter().filter(is_open));
    Ok(k.g.after(scratch, &deps))
}
