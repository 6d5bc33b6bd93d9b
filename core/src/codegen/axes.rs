//! The kernel that code generation works on: a graph whose loops are nodes (ranges). In: a kernel of the scheduler
//! ([`Kernel::new`]). [`Kernel::apply`] applies an opt: it splits, rounds up, swaps or fuses ranges by rebuilding the
//! graph on new ranges, and returns an error with the reason where an opt does not fit. Out: ranges that have become
//! vector lanes, registers, threads or launch dimensions.

use super::in_bounds::stays_inside;
use super::live::{LaunchDim, NeededIterations};
use super::opt::{Opt, Part, lanes_of_a_vector};
use super::pack::Pack;
use super::program::ParamInfo;
use crate::analysis::Role;
use crate::rewrite::{Memo, substitute1};
use crate::rules::simplify_with;
use crate::schedule::Ast;
use crate::target::Target;
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Arg, AxisKind, Graph, Op, RangeArg, RangeSet, ReduceOp, UOp, graph::MAX_RANGES};
use crate::util::sort;
use crate::{Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What happens to loads in the iterations that rounding an axis up has added past its end.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum PastEnd {
    /// They are masked: nothing past the end is read.
    Masked,
    /// They may run without a mask if their addresses stay inside the buffer and they only contribute to results that
    /// are not stored.
    Readable,
}

/// A kernel graph being optimised.
#[derive(Clone)]
pub struct Kernel {
    /// The kernel's own graph; it is dropped after compilation.
    pub g: Graph,
    /// The Sink node; its sources are the Stores, all over the same output loops.
    pub sink: UOp,
    /// The kind of kernel (contraction, row kernel, elementwise, …) as the scheduler made it; opts do not change it.
    pub role: Role,
    /// The lowest range id that is not in use.
    pub next_id: u8,
    /// Launch grid, set by `map_launch`.
    pub grid: [u32; 3],
    /// Workgroup size, set by `map_launch`.
    pub local: [u32; 3],
    /// All tile ranges, set when addresses are split: from then on a range may occur only in the strides of an Index,
    /// and no longer as a node.
    pub tiles: Vec<UOp>,
    /// Results of simplification, kept across passes; they stay valid because nodes never change.
    pub memo: Memo,
    /// Slots of parameters that are constant across runs (weights), so that a packed copy may be made of them.
    pub constants: Vec<u32>,
    /// The packed copies that this kernel reads.
    pub packs: Vec<Pack>,
    /// Every buffer that a launch passes, by slot, including those whose uses the passes have removed.
    pub params: Vec<ParamInfo>,
    /// For ranges by id: first the condition that must hold for an iteration to have an effect; after the pass
    /// `mask-ends` the bound at which the loop ends ([`super::reach`]).
    pub loop_limits: Vec<(u8, UOp)>,
    /// The ends of further loops, by range id: a scalar computed from the surrounding loops.
    pub ends: Vec<(u8, UOp)>,
    /// The ranges in `loop_limits` that are loops over filter taps of a strided transposed convolution, where the
    /// number of taps depends on the phase (the output position modulo the stride; [`super::digits`]).
    pub taps: RangeSet,
    /// Innermost loops that follow one another, each with Stores of its own: an innermost loop that was split at its
    /// borders ([`super::peel`]).
    pub peeled_loops: Vec<UOp>,
    /// Conditions on the output loops: only iterations in which all of them hold compute something that is read later.
    pub needed_conditions: Vec<UOp>,
    /// The number of iterations that `needed_conditions` leave of each loop ([`super::live`]), once opts are applied.
    pub needed_iterations: Vec<NeededIterations>,
    /// The size of each launch dimension as a function of the launch scalars, where that can be less than in `grid`.
    pub extents: [LaunchDim; 3],
}

/// The work of a kernel, counted before optimisation.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Float operations per launch.
    pub flops: u64,
    /// Bytes per launch, if each buffer element that is accessed is moved once.
    pub bytes: u64,
}

impl Kernel {
    /// Starts from a scheduled kernel.
    pub fn new(ast: &Ast) -> Kernel {
        let mut g = Graph::new();
        let roots = g.import(&ast.g, &ast.roots(), |_, _| None);
        let (sink, needed_conditions) = (roots[0], roots[1..].to_vec());
        let next_id = g.iter().filter(|&u| g.op(u) == Op::Range).map(|u| g.range_arg(u).id + 1).max().unwrap_or(0);
        let (tiles, memo, packs) = (Vec::new(), Memo::new(), Vec::new());
        let params = ParamInfo::all(&g, sink);
        Kernel {
            g,
            sink,
            role: ast.role,
            next_id,
            grid: [1; 3],
            local: [1; 3],
            tiles,
            memo,
            constants: ast.constants.clone(),
            packs,
            params,
            loop_limits: Vec::new(),
            ends: Vec::new(),
            taps: 0,
            peeled_loops: Vec::new(),
            needed_conditions,
            needed_iterations: Vec::new(),
            extents: Default::default(),
        }
    }

    /// The nodes that the sink depends on, sources before their users.
    pub fn nodes(&self) -> Vec<UOp> {
        self.g.reachable(&[self.sink])
    }

    /// All ranges in use, by id.
    pub fn ranges(&self) -> Vec<UOp> {
        let mut r: Vec<UOp> = self.nodes().into_iter().filter(|&u| self.g.op(u) == Op::Range).collect();
        sort::by_key(&mut r, |&u| self.g.range_arg(u).id);
        r
    }

    /// Ranges of a kind, by id.
    pub fn ranges_of(&self, kind: AxisKind) -> Vec<UOp> {
        self.ranges().into_iter().filter(|&r| self.g.kind(r) == kind).collect()
    }

    /// The output loops, in two parts: those that every reduction is nested in, and those over which the results of a
    /// reduction are used (the second loop over a row in a row kernel).
    pub fn row_loops(&self) -> (Vec<UOp>, Vec<UOp>) {
        let inside = self.reduces().into_iter().fold(!0, |m: RangeSet, r| m & self.g.ranges(r));
        self.ranges_of(AxisKind::Loop).into_iter().partition(|&r| inside >> self.g.range_arg(r).id & 1 == 1)
    }

    /// Reductions in use, inner ones first.
    pub fn reduces(&self) -> Vec<UOp> {
        self.nodes().into_iter().filter(|&u| self.g.op(u) == Op::Reduce).collect()
    }

    /// The first Store. All Stores of a kernel write the same index of their buffers.
    pub fn store(&self) -> UOp {
        self.g.src_at(self.sink, 0)
    }

    /// The range with this id.
    pub fn range_by_id(&self, id: u8) -> Option<UOp> {
        self.ranges().into_iter().find(|&r| self.g.range_arg(r).id == id)
    }

    /// Replaces nodes everywhere and simplifies.
    pub fn replace(&mut self, map: &FxHashMap<UOp, UOp>) {
        self.carry(map);
        let sink = substitute1(&mut self.g, self.sink, map);
        self.sink = simplify_with(&mut self.g, sink, &mut self.memo);
    }

    /// Applies a substitution of ranges to `loop_limits`, `ends` and `needed_conditions` too.
    fn carry(&mut self, map: &FxHashMap<UOp, UOp>) {
        for i in 0..self.loop_limits.len() {
            let cond = substitute1(&mut self.g, self.loop_limits[i].1, map);
            self.loop_limits[i].1 = simplify_with(&mut self.g, cond, &mut self.memo);
        }
        for i in 0..self.ends.len() {
            let end = substitute1(&mut self.g, self.ends[i].1, map);
            self.ends[i].1 = simplify_with(&mut self.g, end, &mut self.memo);
        }
        for i in 0..self.needed_conditions.len() {
            self.needed_conditions[i] = substitute1(&mut self.g, self.needed_conditions[i], map);
        }
    }

    pub(super) fn new_range(&mut self, len: usize, kind: AxisKind, lane: bool) -> Result<UOp> {
        if self.next_id as usize >= MAX_RANGES {
            return Err(Error::Unsupported {
                what: "a kernel with more than 128 axes".into(),
                context: "codegen".into(),
            });
        }
        self.next_id += 1;
        Ok(self.g.range_with(len, RangeArg { id: self.next_id - 1, kind, lane }))
    }

    /// Brings the loops into the form that opts refer to: neighbouring loops are fused where no address needs more
    /// divisions for it, and a loop is split where that removes divisions from addresses.
    pub fn settle_axes(&mut self) {
        self.merge_axes();
        super::digits::split(self);
    }

    /// Fuses neighbouring output loops, and neighbouring loops of one reduction, wherever addresses need no more
    /// divisions for it.
    pub(super) fn merge_axes(&mut self) {
        loop {
            let mut pairs: Vec<(UOp, UOp)> = Vec::new();
            let outs = self.ranges_of(AxisKind::Loop);
            pairs.extend(outs.windows(2).map(|w| (w[0], w[1])));
            for r in self.reduces() {
                pairs.extend(self.g.src(r)[1..].windows(2).map(|w| (w[0], w[1])));
            }
            if !pairs.into_iter().any(|(a, b)| self.try_merge(a, b)) {
                return;
            }
        }
    }

    /// Fuses two loops, and undoes it if the number of divisions has grown.
    fn try_merge(&mut self, a: UOp, b: UOp) -> bool {
        let (before, old, conditions) = (self.count_divmod(), self.sink, self.needed_conditions.clone());
        if !self.join(a, b) {
            return false;
        }
        if self.count_divmod() > before {
            (self.sink, self.needed_conditions) = (old, conditions);
            return false;
        }
        true
    }

    /// Fuses two loops `a` (outer) and `b` (inner) into `joined`: the old indices become `joined / len(b)` and
    /// `joined % len(b)`. False if they cannot be fused.
    fn join(&mut self, a: UOp, b: UOp) -> bool {
        let (na, nb) = (self.g.range_len(a), self.g.range_len(b));
        if na.checked_mul(nb).is_none_or(|n| n > i32::MAX as usize) {
            return false;
        }
        let arg = self.g.range_arg(a);
        let joined = self.g.range_with(na * nb, arg);
        if self.g.dtype(joined) != self.g.dtype(a) {
            return false;
        }
        let Some(conditions) = self.joined_conditions(a, b, joined, nb) else { return false };
        let n = self.g.idx(nb as i64);
        let (hi, lo) = (self.g.binary(Op::FloorDiv, joined, n), self.g.binary(Op::FloorMod, joined, n));
        let mut map = FxHashMap::default();
        for r in self.reduces() {
            // every reduction must be over both ranges or neither: it will list the fused range once
            if self.g.src(r)[1..].contains(&a) && !self.g.src(r)[1..].contains(&b) {
                return false;
            }
        }
        map.insert(a, hi);
        map.insert(b, lo);
        self.sink = self.merged_sink(a, b, joined, &map);
        self.sink = simplify_with(&mut self.g, self.sink, &mut self.memo);
        self.needed_conditions = conditions;
        true
    }

    /// The sink after the substitution `map`, with `joined` in place of `a` and `b` in the range lists of reductions.
    fn merged_sink(&mut self, a: UOp, b: UOp, joined: UOp, map: &FxHashMap<UOp, UOp>) -> UOp {
        let mut image: FxHashMap<UOp, UOp> = map.clone();
        for u in self.nodes() {
            if image.contains_key(&u) {
                continue;
            }
            let mut src: SmallVec<[UOp; 4]> = SmallVec::new();
            for (i, &s) in self.g.srcs(u).iter().enumerate() {
                if self.g.op(u) == Op::Reduce && i > 0 {
                    if s == a {
                        src.push(joined);
                    } else if s != b {
                        src.push(s);
                    }
                } else {
                    src.push(image.get(&s).copied().unwrap_or(s));
                }
            }
            let v = self.g.with_src(u, &src);
            image.insert(u, v);
        }
        image[&self.sink]
    }

    pub(super) fn count_divmod(&self) -> usize {
        let is = |u: &UOp| matches!(self.g.op(*u), Op::FloorDiv | Op::FloorMod | Op::Idiv | Op::Imod);
        self.nodes().iter().filter(|u| is(u)).count()
    }

    /// Work per launch.
    pub fn stats(&self) -> Stats {
        let g = &self.g;
        let lens: FxHashMap<u8, u64> =
            self.ranges().iter().map(|&r| (g.range_arg(r).id, g.range_len(r) as u64)).collect();
        let points = |set: RangeSet| -> u64 {
            lens.iter().filter(|(id, _)| set >> **id & 1 == 1).fold(1u64, |p, (_, n)| p.saturating_mul(*n))
        };
        let mut s = Stats::default();
        let mut touched: FxHashMap<(u32, bool), u64> = FxHashMap::default();
        for u in self.nodes() {
            match g.op(u) {
                Op::Reduce => s.flops = s.flops.saturating_add(points(g.ranges(g.src_at(u, 0)) | g.ranges(u))),
                op if op.is_alu() && g.dtype(u).is_float() && !matches!(op, Op::Cast | Op::Bitcast | Op::Where) => {
                    s.flops = s.flops.saturating_add(points(g.ranges(u)));
                }
                Op::Load | Op::Store => {
                    let index = g.src_at(u, 0);
                    let Arg::Param { len, slot } = g.arg(g.src_at(index, 0)) else { continue };
                    let bytes = points(g.ranges(index)).min(*len as u64) * g.dtype(index).size() as u64;
                    // of several accesses to one buffer the largest counts: the others find the bytes in a cache
                    let most = touched.entry((*slot, g.op(u) == Op::Store)).or_default();
                    *most = bytes.max(*most);
                }
                _ => {}
            }
        }
        s.bytes = touched.values().fold(0, |n: u64, b| n.saturating_add(*b));
        s
    }

    /// Applies opts in order.
    pub fn apply_all(&mut self, opts: &[Opt], t: &Target) -> Result<()> {
        opts.iter().try_for_each(|o| self.apply(o, t))
    }

    /// Applies one opt. An opt that does not fit the kernel is an error and not a panic, because opts also come from
    /// caches and users.
    pub fn apply(&mut self, o: &Opt, t: &Target) -> Result<()> {
        let bad = |what: &str| Error::value("opt", format!("{o}: {what}"));
        let Some(axis) = o.axis() else {
            return if let Opt::Stage(what) = o { self.stage(what, t) } else { Ok(()) };
        };
        let r = self.range_by_id(axis).ok_or_else(|| bad("no such axis"))?;
        let kind = self.g.kind(r);
        let filled = kind == AxisKind::Fill && (o.cuts(Part::Lane).is_some() || o.cuts(Part::Upcast).is_some());
        if !matches!(kind, AxisKind::Loop | AxisKind::Reduce) && !filled {
            return Err(bad("the axis is not a loop"));
        }
        match *o {
            Opt::Stage(_) => Ok(()),
            Opt::Keep { .. } if t.caps.has_local => Err(bad("not on a GPU yet")),
            Opt::Keep { .. } => self.keep(r),
            Opt::Pad { to, .. } if t.machine.reads_past_end => self.pad(r, to as usize, PastEnd::Readable),
            Opt::Pad { to, .. } => self.pad_to(r, to as usize),
            Opt::Swap { with, .. } => {
                let other = self.range_by_id(with).filter(|&x| x != r && self.g.kind(x) == kind);
                let other = other.ok_or_else(|| bad("no such axis"))?;
                if kind.is_reduce() && !self.reduced_together(r, other) {
                    return Err(bad("the axes are of different reductions"));
                }
                self.swap(r, other);
                Ok(())
            }
            Opt::Join { with, .. } if MATRIX_TILES_ENABLED && t.caps.has_local => {
                let other = self.range_by_id(with).filter(|&x| x != r && self.g.kind(x) == kind);
                let other = other.filter(|&x| !kind.is_reduce() || self.reduced_together(r, x));
                let other = other.ok_or_else(|| bad("no such axis beside it"))?;
                if self.join(r, other) { Ok(()) } else { Err(bad("the axes cannot be one")) }
            }
            Opt::Join { .. } => Err(bad("only on GPUs, and not in this build")),
            Opt::Cut { by, part, .. } => self.cut_axis(r, by as usize, part, t).map_err(|what| bad(what))?,
        }
    }

    /// Applies [`Opt::Cut`], or gives the reason why it does not fit.
    fn cut_axis(&mut self, r: UOp, by: usize, part: Part, t: &Target) -> std::result::Result<Result<()>, &'static str> {
        let (kind, reduce, id) = (self.g.kind(r), self.g.kind(r).is_reduce(), self.g.range_arg(r).id);
        let in_stage =
            || self.nodes().into_iter().any(|u| self.g.op(u) == Op::Stage && self.g.ranges(u) >> id & 1 == 1);
        let lanes = if part == Part::Lane { lanes_of_a_vector(self, t, by) } else { by };
        match part {
            Part::Lane | Part::Accum | Part::Unroll | Part::Dot | Part::Tile if in_stage() => {
                return Err("a local array is made in this loop");
            }
            Part::Lane if !self.lane_fits(r, lanes) => return Err("there is a lane axis already"),
            Part::Local if reduce || !t.caps.has_local => return Err("only output axes of a GPU kernel can be local"),
            Part::Group if !t.caps.has_local || !self.can_share(r) => {
                return Err("only reductions outside of all loops can be shared");
            }
            Part::Tile if !t.has_tiles() => return Err("the target has no matrix tiles"),
            Part::Upcast if reduce => return Err("a reduced axis cannot be upcast"),
            Part::Unroll | Part::Accum | Part::Dot if !reduce => return Err("an output axis cannot be unrolled"),
            _ => {}
        }
        let inner = match part {
            Part::Loop => kind,
            Part::Upcast => AxisKind::Upcast,
            Part::Lane | Part::Accum => {
                if reduce {
                    AxisKind::Accum
                } else {
                    AxisKind::Upcast
                }
            }
            Part::Unroll => AxisKind::Unroll,
            Part::Dot => AxisKind::Dot,
            Part::Tile => {
                if reduce {
                    AxisKind::Dot
                } else {
                    AxisKind::Tile
                }
            }
            Part::Local | Part::Group => AxisKind::Local(0),
        };
        let uneven = "the amount does not divide the axis";
        if let Some(threads) = self.common_threads(r, by, part) {
            return self.share_axis(r, threads).ok_or(uneven);
        }
        let overlap = kind == AxisKind::Fill || !reduce && !t.caps.has_local && self.repeatable();
        if lanes == by {
            return self.split(r, by, inner, part == Part::Lane, overlap).ok_or(uneven);
        }
        // first all lanes as registers, then vectors inside of them
        let within = if self.g.range_len(r) == by { id } else { self.next_id };
        let registers = self.split(r, by, inner, false, overlap).ok_or(uneven)?;
        let vectors = self.range_by_id(within).filter(|_| registers.is_ok() && lanes > 1);
        Ok(registers.and_then(|()| vectors.and_then(|v| self.split(v, lanes, inner, true, false)).unwrap_or(Ok(()))))
    }

    /// May an element be computed and stored twice? Not if the kernel reads what it writes, unless that is what an
    /// earlier step of a recurrence has written.
    pub(super) fn repeatable(&self) -> bool {
        if self.role == Role::Recurrence {
            return true;
        }
        let nodes = self.nodes();
        let slots = |op: Op| {
            let of = nodes.iter().filter(move |u| self.g.op(**u) == op);
            of.filter_map(|&u| self.slot_below(self.g.src_at(u, 0))).collect::<Vec<_>>()
        };
        let read = slots(Op::Load);
        !slots(Op::Store).iter().any(|s| read.contains(s))
    }

    /// Can the threads of a workgroup share the reduction over `r`? All of them have to reach the barrier together, so
    /// the reduction has to be outside all loops.
    fn can_share(&self, r: UOp) -> bool {
        let inner = self.ranges_of(AxisKind::Reduce).into_iter().chain(self.row_loops().1);
        let loops = inner.fold(0, |m: RangeSet, x| m | 1 << self.g.range_arg(x).id);
        let of: Vec<UOp> = self.reduces().into_iter().filter(|&u| self.g.src(u)[1..].contains(&r)).collect();
        let threads = |u: UOp| self.g.src(u)[1..].iter().any(|&x| matches!(self.g.kind(x), AxisKind::Local(_)));
        !of.is_empty() && of.iter().all(|&u| self.g.ranges(u) & loops == 0 && !threads(u))
    }

    /// A range of threads of length `by` that already shares another reduction of the row kernel, and can share this
    /// reduction too, or the output loop that reads the results of both.
    fn common_threads(&self, r: UOp, by: usize, part: Part) -> Option<UOp> {
        let reads = || self.row_loops().1.contains(&r);
        if part != Part::Group && !(part == Part::Local && reads()) {
            return None;
        }
        let of = self.reduces().into_iter().flat_map(|u| self.g.srcs(u).into_iter().skip(1).collect::<Vec<_>>());
        let mut shared = of.filter(|&x| matches!(self.g.kind(x), AxisKind::Local(_)));
        let apart = |x: UOp| {
            let uses = self.reduces().into_iter().filter(|&u| self.g.src(u)[1..].contains(&r));
            uses.fold(0, |m: RangeSet, u| m | self.g.ranges(u)) >> self.g.range_arg(x).id & 1 == 0
        };
        shared.find(|&x| self.g.range_len(x) == by && apart(x))
    }

    /// Splits `r` into `outer * threads + thread`, where the range of threads exists already.
    fn share_axis(&mut self, r: UOp, threads: UOp) -> Option<Result<()>> {
        let (n, f) = (self.g.range_len(r), self.g.range_len(threads));
        if n % f != 0 {
            return None;
        }
        let mut closed: SmallVec<[UOp; 2]> = SmallVec::new();
        let mut whole = threads;
        if n > f {
            let arg = self.g.range_arg(r);
            let outer = self.g.range_with(n / f, arg);
            whole = self.cut(outer, n, f, threads);
            closed.push(outer);
        }
        closed.push(threads);
        let image = [(r, whole)].into_iter().collect();
        self.rebuild(image, |_, _, s| (s == r).then(|| closed.clone()));
        Some(Ok(()))
    }

    /// Is every reduction over one of the axes also over the other? Otherwise swapping them would change the result.
    fn reduced_together(&self, a: UOp, b: UOp) -> bool {
        let over = |u: UOp, r: UOp| self.g.src(u)[1..].contains(&r);
        self.reduces().into_iter().all(|u| over(u, a) == over(u, b))
    }

    /// Swaps two loops of one kind. Output loops nest in the order of their ids, so they swap ids; the loops of a
    /// reduction nest in the order in which it lists them.
    fn swap(&mut self, a: UOp, b: UOp) {
        if self.g.kind(a).is_reduce() {
            let other = |s: UOp| if s == a { Some(b) } else { (s == b).then_some(a) };
            return self.rebuild(FxHashMap::default(), |_, _, s| other(s).map(|x| SmallVec::from_iter([x])));
        }
        let (x, y) = (self.g.range_arg(a), self.g.range_arg(b));
        let to_a = self.g.range_with(self.g.range_len(a), y);
        let to_b = self.g.range_with(self.g.range_len(b), x);
        let image: FxHashMap<UOp, UOp> = [(a, to_a), (b, to_b)].into_iter().collect();
        // one rebuild for both ranges: the new nodes may be identical to the old ones, so two substitutions in a row
        // would undo each other
        self.rebuild(image, |_, _, _| None);
    }

    /// The index `outer * w + inner`, kept below `n`: if `w` does not divide `n`, the last tile is moved back and
    /// overlaps the one before it.
    pub(super) fn cut(&mut self, outer: UOp, n: usize, w: usize, inner: UOp) -> UOp {
        let f = self.g.idx(w as i64);
        let mut start = self.g.binary(Op::Mul, outer, f);
        if n % w != 0 {
            let last = self.g.idx((n - w) as i64);
            start = self.g.binary(Op::Min, start, last);
        }
        self.g.binary(Op::Add, start, inner)
    }

    /// Rebuilds the kernel with the nodes in `image` replaced. For the ranges that a reduction lists,
    /// `closed(kernel, reduction, range)` may give the ranges that replace one.
    pub(super) fn rebuild(
        &mut self,
        mut image: FxHashMap<UOp, UOp>,
        closed: impl Fn(&Kernel, UOp, UOp) -> Option<SmallVec<[UOp; 2]>>,
    ) {
        self.carry(&image);
        for u in self.nodes() {
            if image.contains_key(&u) {
                continue;
            }
            let mut src: SmallVec<[UOp; 4]> = SmallVec::new();
            for (i, &s) in self.g.srcs(u).iter().enumerate() {
                match closed(self, u, s).filter(|_| self.g.op(u) == Op::Reduce && i > 0) {
                    Some(list) => src.extend(list),
                    None => src.push(image.get(&s).copied().unwrap_or(s)),
                }
            }
            let v = self.g.with_src(u, &src);
            image.insert(u, v);
        }
        let sink = image[&self.sink];
        self.sink = simplify_with(&mut self.g, sink, &mut self.memo);
    }

    /// May `r` become a lane axis of this length? All lane axes of a kernel have the same length, and no value may
    /// depend on two of them.
    fn lane_fits(&self, r: UOp, len: usize) -> bool {
        let (mut lanes, mut same) = (0, true);
        for x in self.ranges().into_iter().filter(|&x| self.g.range_arg(x).lane) {
            lanes |= 1 << self.g.range_arg(x).id;
            same &= self.g.range_len(x) == len;
        }
        let id = self.g.range_arg(r).id;
        same && (lanes == 0
            || self.nodes().iter().all(|&u| self.g.ranges(u) >> id & 1 == 0 || self.g.ranges(u) & lanes == 0))
    }

    /// Splits `r` into `outer * amount + inner`, where `inner` is a new range of this kind; `None` if `amount` does not
    /// divide its length and overlapping is not allowed.
    pub(super) fn split(
        &mut self,
        r: UOp,
        amount: usize,
        kind: AxisKind,
        lane: bool,
        overlap: bool,
    ) -> Option<Result<()>> {
        let n = self.g.range_len(r);
        if amount < 2 || amount > n || (n % amount != 0 && !overlap) {
            return None;
        }
        let arg = self.g.range_arg(r);
        if n == amount {
            let whole = self.g.range_with(n, RangeArg { id: arg.id, kind, lane });
            let map = [(r, whole)].into_iter().collect();
            self.replace(&map);
            return Some(if kind == AxisKind::Upcast { self.widen(whole) } else { Ok(()) });
        }
        let inner = match self.new_range(amount, kind, lane) {
            Ok(i) => i,
            Err(e) => return Some(Err(e)),
        };
        let outer = self.g.range_with(n.div_ceil(amount), arg);
        let whole = self.cut(outer, n, amount, inner);
        let image = [(r, whole)].into_iter().collect();
        self.rebuild(image, |_, _, s| (s == r).then(|| SmallVec::from_buf([outer, inner])));
        Some(if kind == AxisKind::Upcast { self.widen(inner) } else { Ok(()) })
    }

    /// Rounds the length of an axis up to a multiple of `m`. Loads and stores get a gate, and reductions skip the added
    /// iterations.
    pub(super) fn pad_to(&mut self, r: UOp, m: usize) -> Result<()> {
        self.pad(r, m, PastEnd::Masked)
    }

    fn pad(&mut self, r: UOp, m: usize, past_end: PastEnd) -> Result<()> {
        let n = self.g.range_len(r);
        let padded = n.div_ceil(m.max(1)) * m.max(1);
        if padded == n {
            return Ok(());
        }
        let arg = self.g.range_arg(r);
        let wide = self.g.range_with(padded, arg);
        let limit = self.g.idx(n as i64);
        let inside = self.g.binary(Op::CmpLt, wide, limit);
        self.restrict([(r, wide)].into_iter().collect(), [r, wide], Some(inside), past_end);
        Ok(())
    }

    /// Rebuilds the kernel with the nodes in `image` replaced, and `closed` in place of `r` in the range lists of
    /// reductions. Iterations in which `inside` does not hold correspond to no value of the original `r`: their loads
    /// and stores are gated, and reductions get their identity.
    pub(super) fn restrict(
        &mut self,
        mut image: FxHashMap<UOp, UOp>,
        [r, closed]: [UOp; 2],
        inside: Option<UOp>,
        past_end: PastEnd,
    ) {
        let id = self.g.range_arg(r).id;
        // if `r` is an output axis, results past its end are not stored, so it does not matter what is read for them
        let open = cfg!(feature = "x86") && past_end == PastEnd::Readable;
        let result = open && !self.reduces().iter().any(|&u| self.g.src(u)[1..].contains(&r));
        self.carry(&image);
        for u in self.nodes() {
            if image.contains_key(&u) {
                continue;
            }
            let old = self.g.srcs(u);
            let mut src: SmallVec<[UOp; 4]> = old.iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
            let was = |k: &Kernel, s: UOp| k.g.ranges(s) >> id & 1 == 1;
            let reduces = self.g.op(u) == Op::Reduce && old[1..].contains(&r);
            if reduces {
                for (s, _) in src[1..].iter_mut().zip(&old[1..]).filter(|x| *x.1 == r) {
                    *s = closed;
                }
            }
            if let Some(inside) = inside {
                match self.g.op(u) {
                    Op::Reduce if reduces => {
                        let &Arg::Reduce(op, _) = self.g.arg(u) else { unreachable!("reduce has its arg") };
                        if op != ReduceOp::Add || !self.zero_outside(src[0], inside) {
                            let neutral = self.g.constant(op.identity(self.g.dtype(u)), self.g.dtype(u));
                            src[0] = self.g.select(inside, src[0], neutral);
                        }
                    }
                    Op::Load if result && was(self, old[0]) && stays_inside(&self.g, src[0], src.get(2).copied()) => {}
                    Op::Load if was(self, old[0]) => {
                        let alt = if src.len() == 3 { src[1] } else { self.g.int(0, self.g.dtype(u)) };
                        let gate = if src.len() == 3 { self.g.binary(Op::And, inside, src[2]) } else { inside };
                        src = SmallVec::from_slice(&[src[0], alt, gate]);
                    }
                    // the index may have been folded to a constant while the stored value still depends on the axis, so
                    // all sources are checked
                    Op::Store if old.iter().any(|&s| was(self, s)) => {
                        let gate = if src.len() == 3 { self.g.binary(Op::And, inside, src[2]) } else { inside };
                        src = SmallVec::from_slice(&[src[0], src[1], gate]);
                    }
                    _ => {}
                }
            }
            let v = self.g.with_src(u, &src);
            image.insert(u, v);
        }
        let sink = image[&self.sink];
        self.sink = simplify_with(&mut self.g, sink, &mut self.memo);
    }

    /// Is `x` a product of two values that are zero where `gate` does not hold?
    fn zero_outside(&self, x: UOp, gate: UOp) -> bool {
        let g = &self.g;
        let zero = |mut u: UOp| {
            while g.op(u) == Op::Cast && g.dtype(u).is_float() {
                u = g.src_at(u, 0);
            }
            let src = g.src(u);
            let part = |c: UOp| c == gate || g.op(c) == Op::And && g.src(c).contains(&gate);
            g.op(u) == Op::Load
                && src.len() == 3
                && part(src[2])
                && g.const_val(src[1]).is_some_and(|c| c.as_f64() == 0.0)
        };
        g.op(x) == Op::Mul && g.dtype(x).is_float() && g.src(x).iter().all(|&s| zero(s))
    }

    /// Maps the output loops to the launch: to `Grid` and `Local` dimensions on a GPU, to the loop over the grid on a
    /// CPU.
    pub fn map_launch(&mut self, t: &Target) -> Result<()> {
        if t.caps.has_local { super::opt::launch::gpu(self, t) } else { super::opt::launch::cpu(self, t) }
    }
}
