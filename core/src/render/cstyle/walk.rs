//! The walk over a program: takes its nodes in execution order and prints statements.

use super::access::aligned;
use super::value::{Point, Val, coordinate, points, with};
use super::window::WindowLoads;
use super::{Alu, At, Dialect, Dots, Ptr};
use crate::codegen::{Program, TileAxis};
use crate::dtype::Scalar;
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, Space, UOp};
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// State of a walk over one program.
pub(in crate::render) struct Walk<'p, D> {
    pub(in crate::render) p: &'p Program,
    pub(in crate::render) d: D,
    /// Pointers by Param or Scratch node.
    pub(in crate::render) ptrs: FxHashMap<UOp, Ptr>,
    /// The byte dot products of the program.
    pub(in crate::render) dots: Dots,
    pub(super) vals: FxHashMap<UOp, Val>,
    /// Loads that are only the sources of asynchronous copies to workgroup memory.
    copied: FxHashSet<UOp>,
    /// Nodes computed for a mask alone, which prints them ([`super::masks`]).
    pub(super) mask_only: FxHashSet<UOp>,
    /// Statements so far.
    pub(in crate::render) body: String,
    pub(super) windows: WindowLoads,
    pub(super) depth: usize,
    temps: usize,
}

impl<'p, D: Dialect> Walk<'p, D> {
    pub(in crate::render) fn new(p: &'p Program, d: D) -> Self {
        let (ptrs, vals) = (FxHashMap::default(), FxHashMap::default());
        let (dots, windows, body) = (Dots::default(), WindowLoads::default(), String::new());
        let is_copy = |u: UOp| MATRIX_TILES_ENABLED && p.g.op(u) == Op::Store && *p.g.arg(u) != Arg::None;
        let copies = p.order.iter().filter(|&&u| is_copy(u));
        let copied = copies.map(|&u| p.g.src_at(u, 1)).collect();
        let mask_only = FxHashSet::default();
        Walk { p, d, ptrs, dots, vals, copied, mask_only, body, windows, depth: 1, temps: 0 }
    }

    /// Adds a statement.
    pub(in crate::render) fn line(&mut self, s: &str) {
        if s.is_empty() {
            return;
        }
        for _ in 0..self.depth {
            self.body.push_str("  ");
        }
        self.body.push_str(s);
        self.body.push('\n');
    }

    /// Opens a block, whose first line is `head`.
    pub(in crate::render) fn open(&mut self, head: &str) {
        self.line(head);
        self.depth += 1;
    }

    /// Closes every block that is open.
    pub(in crate::render) fn close_all(&mut self) {
        while self.depth > 1 {
            self.close();
        }
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.windows.close(self.depth);
        let s = self.d.close();
        self.line(&s);
    }

    /// Gives a scalar node its expression: launch indices and launch scalars.
    pub(in crate::render) fn name(&mut self, u: UOp, expr: &str) {
        self.vals.insert(u, Val::scalar(expr.to_string()));
    }

    /// Prints one node; launch ranges and Var must have been named before.
    pub(in crate::render) fn node(&mut self, u: UOp) -> Result<()> {
        if self.dot_node(u)? || MATRIX_TILES_ENABLED && (self.mask_only.contains(&u) || self.masked(u)?) {
            return Ok(());
        }
        let g = &self.p.g;
        match g.op(u) {
            Op::Const | Op::Param | Op::Var | Op::Scratch | Op::Index | Op::Sink => Ok(()),
            Op::After => match self.vals.get(&g.src_at(u, 0)).cloned() {
                Some(v) => {
                    self.vals.insert(u, v);
                    Ok(())
                }
                None => Ok(()),
            },
            Op::Range => self.range(u),
            Op::End => {
                self.close();
                Ok(())
            }
            Op::Load if self.copied.contains(&u) => Ok(()),
            Op::Load => match self.subgroup(g.src_at(u, 0)) {
                Some(bits) => self.shuffle(u, bits),
                None => self.load(u),
            },
            Op::LoadMatrix if MATRIX_TILES_ENABLED => self.load_matrices(u),
            Op::Store if self.subgroup(u).is_some() => Ok(()),
            Op::Store if MATRIX_TILES_ENABLED && *g.arg(u) != Arg::None => self.copy(u),
            Op::Store => self.store(u),
            Op::Acc => self.acc(u),
            Op::Mma if MATRIX_TILES_ENABLED => self.mma(u),
            Op::AccUpdate | Op::AccMulAdd => match self.multiplied(u).filter(|_| MATRIX_TILES_ENABLED) {
                Some(product) => self.update_mma(u, product),
                None => self.update(u),
            },
            Op::AccRead => self.read(u),
            Op::Fold => self.fold(u),
            Op::Barrier if g.src(u).first().is_some_and(|&s| g.op(s) == Op::Store && self.subgroup(s).is_some()) => {
                Ok(())
            }
            Op::Barrier => {
                let pending = if let Arg::Number(n) = g.arg(u) { Some(*n) } else { None };
                let s = self.d.barrier(pending)?;
                self.line(s);
                Ok(())
            }
            op if op.is_alu() => self.alu(u),
            op => Err(Error::Internal(format!("{op:?} in program {}", self.p.name))),
        }
    }

    fn range(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let kind = g.kind(u);
        if kind.is_tile() || self.vals.contains_key(&u) {
            return Ok(());
        }
        if !kind.is_loop() {
            return Err(Error::Unsupported { what: format!("launch axis {kind:?}"), context: self.p.name.clone() });
        }
        // the letter is not `i`: with id 8 the name would be `i8`, a type
        let name = format!("k{}", g.range_arg(u).id);
        let bound = self.scalar(g.src_at(u, 0), &Point::new())?;
        let head = self.d.loop_head(&name, g.dtype(u), &bound);
        self.open(&head);
        let e = self.d.get(&name, g.dtype(u), 1);
        self.name(u, &e);
        Ok(())
    }

    // ---- operands

    /// The value of a node; constants and tile ranges, which the order does not contain, are made here.
    pub(super) fn val(&mut self, u: UOp) -> Result<Val> {
        if let Some(v) = self.vals.get(&u) {
            return Ok(v.clone());
        }
        let g = &self.p.g;
        let v = match g.op(u) {
            Op::Const => {
                let c = g.const_val(u).unwrap_or(Scalar::Int(0));
                Val::scalar(self.d.literal(c, g.dtype(u)))
            }
            Op::Range if g.kind(u).is_tile() => {
                let id = g.range_arg(u).id;
                let Some(axis) = self.p.tiles.iter().copied().find(|t| t.id == id) else {
                    return Err(Error::Internal(format!("tile axis {id} is not listed in {}", self.p.name)));
                };
                let dt = g.dtype(u);
                let mut names: Vec<String> = (0..axis.len).map(|i| self.d.literal(Scalar::Int(i as i64), dt)).collect();
                let vector = axis.lane && self.d.vector(dt, axis.len);
                if vector {
                    names = vec![self.d.pack(&names, dt)];
                }
                Val { axes: SmallVec::from_slice(&[axis]), vector, names }
            }
            op => return Err(Error::Internal(format!("{op:?} {u:?} used before its place in {}", self.p.name))),
        };
        self.vals.insert(u, v.clone());
        Ok(v)
    }

    /// One element of a value as a scalar expression.
    pub(super) fn scalar(&mut self, u: UOp, point: &Point) -> Result<String> {
        let v = self.val(u)?;
        let lane = v.lane().filter(|_| v.vector);
        let name = self.read_register(u, v.at(point), lane.map_or(1, |a| a.len));
        Ok(match lane {
            Some(a) => self.d.lane(&name, self.p.g.dtype(u), a.len, coordinate(point, a.id)),
            None => name,
        })
    }

    /// A value over the lane axis as one vector expression.
    pub(super) fn vector(&mut self, u: UOp, point: &Point, lane: TileAxis) -> Result<String> {
        let v = self.val(u)?;
        let dt = self.p.g.dtype(u);
        if v.lane().is_none() {
            let x = self.read_register(u, v.at(point), 1);
            return Ok(self.d.splat(&x, dt, lane.len));
        }
        if v.vector {
            return Ok(self.read_register(u, v.at(point), lane.len));
        }
        let xs: Vec<String> = (0..lane.len).map(|i| self.read_register(u, v.at(&with(point, lane.id, i)), 1)).collect();
        Ok(self.d.pack(&xs, dt))
    }

    /// The expression for a register of `u`; accumulators are variables and must be read.
    fn read_register(&mut self, u: UOp, name: &str, lanes: usize) -> String {
        match self.p.g.op(u) {
            Op::Acc | Op::Mma => self.d.get(name, self.p.g.dtype(u), lanes),
            _ => name.to_string(),
        }
    }

    // ---- definitions

    /// The points of a result's registers, its lane axis, and whether it is kept in vectors.
    pub(super) fn layout(&self, axes: &[TileAxis], dt: DType) -> (Vec<Point>, Option<TileAxis>, bool) {
        let lane = axes.last().copied().filter(|a| a.lane);
        let regs = &axes[..axes.len() - lane.is_some() as usize];
        let vector = lane.is_some_and(|a| self.d.vector(dt, a.len));
        (points(&Point::new(), regs), lane, vector)
    }

    pub(super) fn bind(&mut self, name: String, dt: DType, lanes: usize, expr: &str) -> String {
        let Some(s) = self.d.bind(&name, dt, lanes, expr) else { return expr.to_string() };
        self.line(&s);
        name
    }

    pub(super) fn temp(&mut self, dt: DType, lanes: usize, expr: &str) -> String {
        self.temps += 1;
        self.bind(format!("t{}", self.temps), dt, lanes, expr)
    }

    /// Defines `u` by an expression per register: `whole(point)` for a vector of lanes if it can, else `one(point)` for
    /// each lane or for a value without lanes.
    fn define(
        &mut self,
        u: UOp,
        whole: &mut dyn FnMut(&mut Self, &Point, TileAxis) -> Result<Option<String>>,
        one: &mut dyn FnMut(&mut Self, &Point) -> Result<String>,
    ) -> Result<()> {
        let (axes, dt) = (self.p.tile(u), self.p.g.dtype(u));
        let (regs, lane, vector) = self.layout(&axes, dt);
        let many = regs.len() > 1;
        let mut names = Vec::new();
        for (k, point) in regs.iter().enumerate() {
            let base = if many { format!("v{}_{k}", u.0) } else { format!("v{}", u.0) };
            let Some(lane) = lane else {
                let e = one(self, point)?;
                names.push(self.bind(base, dt, 1, &e));
                continue;
            };
            if vector && let Some(e) = whole(self, point, lane)? {
                names.push(self.bind(base, dt, lane.len, &e));
                continue;
            }
            let mut xs = Vec::new();
            for i in 0..lane.len {
                let e = one(self, &with(point, lane.id, i))?;
                xs.push(self.bind(format!("{base}_l{i}"), dt, 1, &e));
            }
            if vector {
                let e = self.d.pack(&xs, dt);
                names.push(self.bind(base, dt, lane.len, &e));
            } else {
                names.extend(xs);
            }
        }
        self.vals.insert(u, Val { axes, vector, names });
        Ok(())
    }

    pub(super) fn alu_of(&self, u: UOp) -> Alu {
        let g = &self.p.g;
        let src = g.src(u);
        let values = if g.op(u) == Op::Where { 1 } else { 0 };
        let negates = |x: UOp, y: UOp| g.op(x) == Op::Neg && g.src_at(x, 0) == y;
        Alu {
            op: g.op(u),
            from: g.dtype(src[values]),
            to: g.dtype(u),
            same: src.len() == 2 && src[0] == src[1],
            opposite: src.len() == 2 && (negates(src[0], src[1]) || negates(src[1], src[0])),
            positive: src.len() == 2 && !g.dtype(src[1]).is_float() && g.bounds(src[1]).0 > 0,
            second_is_not_nan: src.len() == 2
                && g.const_val(src[1]).is_some_and(|c| !c.as_f64_of(g.dtype(src[1])).is_nan()),
            zero_source: src
                .iter()
                .take(2)
                .position(|&s| g.const_val(s).is_some_and(|c| c.as_f64_of(g.dtype(s)) == 0.0)),
            no_wrap: matches!(g.dtype(u), DType::I32 | DType::I64) && no_wrap(g, u),
        }
    }

    fn alu(&mut self, u: UOp) -> Result<()> {
        let src = self.p.g.srcs(u);
        let a = self.alu_of(u);
        let constant = src.iter().all(|&s| self.p.g.op(s) == Op::Const);
        self.define(
            u,
            &mut |w, point, lane| {
                if !src.iter().all(|&s| w.d.vector(w.p.g.dtype(s), lane.len)) {
                    return Ok(None);
                }
                let xs = src.iter().map(|&s| w.vector(s, point, lane)).collect::<Result<Vec<_>>>()?;
                w.d.alu(a, &xs, lane.len)
            },
            &mut |w, point| {
                let mut xs = src.iter().map(|&s| w.scalar(s, point)).collect::<Result<Vec<_>>>()?;
                let zero_divisor = matches!(a.op, Op::Idiv | Op::Imod) && !a.positive;
                for (i, x) in xs.iter_mut().enumerate() {
                    // a language may reject constant expressions that overflow, so operands become variables
                    if constant || (zero_divisor && i == 1 && w.p.g.op(src[1]) == Op::Const) {
                        w.temps += 1;
                        let name = format!("t{}", w.temps);
                        let dt = w.p.g.dtype(src[i]);
                        let s = w.d.variable(&name, dt, 1, x);
                        w.line(&s);
                        *x = w.d.get(&name, dt, 1);
                    }
                }
                w.scalar_op(a, &xs)
            },
        )
    }

    /// The expression of a scalar op, which every language must have.
    pub(super) fn scalar_op(&mut self, a: Alu, xs: &[String]) -> Result<String> {
        self.d.alu(a, xs, 1)?.ok_or_else(|| Error::Unsupported {
            what: format!("{:?} {} -> {}", a.op, a.from, a.to),
            context: self.p.name.clone(),
        })
    }

    // ---- memory

    /// The pointer and address of an Index at a point, without the stride along `lane`.
    pub(super) fn address(&mut self, index: UOp, point: &Point, lane: Option<TileAxis>) -> Result<(Ptr, At)> {
        let g = &self.p.g;
        let (mut base, offset) = (g.src_at(index, 0), g.src_at(index, 1));
        while g.op(base) == Op::After {
            base = g.src_at(base, 0);
        }
        let Some(ptr) = self.ptrs.get(&base).cloned() else {
            return Err(Error::Internal(format!("unknown pointer {base:?} in {}", self.p.name)));
        };
        let mut plus = 0;
        if let Arg::Strides(list) = g.arg(index) {
            for &(id, stride) in list {
                if lane.is_none_or(|a| a.id != id) {
                    plus += stride * coordinate(point, id) as i64;
                }
            }
        }
        if let Some(c) = g.const_int(offset) {
            let zero = self.d.literal(Scalar::Int(0), DType::I32);
            return Ok((ptr, At { base: zero, dt: DType::I32, plus: plus + c }));
        }
        let dt = g.dtype(offset);
        Ok((ptr, At { base: self.scalar(offset, point)?, dt, plus }))
    }

    /// Does a value depend on an axis?
    pub(super) fn depends(&self, u: UOp, axis: TileAxis) -> bool {
        self.p.g.ranges(u) >> axis.id & 1 == 1
    }

    /// Are the lanes of an Index contiguous in memory?
    fn contiguous(&self, index: UOp, lane: TileAxis) -> bool {
        self.p.stride(index, lane.id) == 1 && !self.depends(self.p.g.src_at(index, 1), lane)
    }

    /// A load of adjacent elements along a register axis, from an array of vectors: one vector load per `width`
    /// elements.
    fn load_quads(&mut self, u: UOp, width: usize, along: TileAxis) -> Result<()> {
        let src = self.p.g.srcs(u);
        let (axes, dt) = (self.p.tile(u), self.p.g.dtype(u));
        let mut names = Vec::new();
        let all = points(&Point::new(), &axes);
        let mut whole: FxHashMap<Point, String> = FxHashMap::default();
        for (k, point) in all.iter().enumerate() {
            let at = coordinate(point, along.id);
            let first = with(point, along.id, at / width * width);
            let name = match whole.get(&first) {
                Some(name) => name.clone(),
                None => {
                    let (p, at) = self.address(src[0], &first, None)?;
                    let e = match (src.get(1), src.get(2)) {
                        (Some(&alt), Some(&gate)) => {
                            let (c, x) = (self.scalar(gate, &first)?, self.scalar(alt, &first)?);
                            let x = self.d.splat(&x, dt, width);
                            self.d.load_gated(&p, &at, width, &c, &x)
                        }
                        _ => self.d.load(&p, &at, width),
                    };
                    let name = self.bind(format!("v{}_{k}", u.0), dt, width, &e);
                    whole.insert(first, name.clone());
                    name
                }
            };
            names.push(self.d.lane(&name, dt, width, at % width));
        }
        self.vals.insert(u, Val { axes, vector: false, names });
        Ok(())
    }

    fn load(&mut self, u: UOp) -> Result<()> {
        let src = self.p.g.srcs(u);
        let index = src[0];
        let (alt, gate) = (src.get(1).copied(), src.get(2).copied());
        let width = self.ptrs.get(&self.p.base(u)).map_or(1, |p| p.width);
        if width > 1
            && let Some(along) = self.p.quad_axis(u, width)
        {
            return self.load_quads(u, width, along);
        }
        let shares_elements = self.shares_elements(u);
        let last = self.p.slot(index).map(|s| self.p.params[s as usize].len.saturating_sub(1));
        self.define(
            u,
            &mut |w, point, lane| {
                let (p, at) = w.address(index, point, Some(lane))?;
                let spread = !w.depends(index, lane);
                if !spread && !w.contiguous(index, lane) {
                    return Ok(None);
                }
                let (Some(alt), Some(gate)) = (alt, gate) else {
                    if spread {
                        let x = w.d.load(&p, &at, 1);
                        return Ok(Some(w.d.splat(&x, p.dt, lane.len)));
                    }
                    if shares_elements && w.d.loads_elements(&p, lane.len) {
                        return w.window(u, point, lane, None).map(Some);
                    }
                    return Ok(Some(w.d.load(&p, &at, lane.len)));
                };
                // the gate depends on the window too, so shared elements are loaded without it
                if shares_elements && !spread && w.d.loads_elements(&p, lane.len) && last.is_some() {
                    let (x, a) = (w.window(u, point, lane, last)?, w.vector(alt, point, lane)?);
                    let m = if w.depends(gate, lane) { w.vector(gate, point, lane)? } else { w.scalar(gate, point)? };
                    return w.combine(Alu::plain(Op::Where, p.dt), &[m, x, a], lane.len).map(Some);
                }
                if w.depends(gate, lane) {
                    if spread {
                        return Ok(None);
                    }
                    let (m, a) = (w.vector(gate, point, lane)?, w.vector(alt, point, lane)?);
                    return Ok(w.d.load_masked(&p, &at, lane.len, &m, &a));
                }
                if spread {
                    return Ok(None);
                }
                let (c, a) = (w.scalar(gate, point)?, w.vector(alt, point, lane)?);
                Ok(Some(w.d.load_gated(&p, &at, lane.len, &c, &a)))
            },
            &mut |w, point| {
                let (p, at) = w.address(index, point, None)?;
                let (Some(alt), Some(gate)) = (alt, gate) else { return Ok(w.d.load(&p, &at, 1)) };
                let (c, a) = (w.scalar(gate, point)?, w.scalar(alt, point)?);
                Ok(w.d.load_gated(&p, &at, 1, &c, &a))
            },
        )
    }

    /// The bits of [`Space::Subgroup`] if `u` accesses such memory.
    fn subgroup(&self, u: UOp) -> Option<u8> {
        match self.p.g.arg(self.p.base(u)) {
            Arg::Scratch { space: Space::Subgroup(bits), .. } => Some(*bits),
            _ => None,
        }
    }

    /// A load of a value that another thread of the subgroup has just stored: `After(scratch, Barrier(Store(index,
    /// value)))`.
    fn shuffle(&mut self, u: UOp, bits: u8) -> Result<()> {
        let g = &self.p.g;
        let barrier = g.src_at(g.src_at(g.src_at(u, 0), 0), 1);
        let value = g.src_at(g.src_at(barrier, 0), 1);
        let dt = g.dtype(value);
        self.define(
            u,
            &mut |w, point, lane| {
                let x = w.vector(value, point, lane)?;
                w.d.shuffle(&x, dt, lane.len, bits).map(Some)
            },
            &mut |w, point| {
                let x = w.scalar(value, point)?;
                w.d.shuffle(&x, dt, 1, bits)
            },
        )
    }

    fn store(&mut self, u: UOp) -> Result<()> {
        let src = self.p.g.srcs(u);
        let (index, value, gate) = (src[0], src[1], src.get(2).copied());
        let axes = self.p.tile(u);
        let (regs, lane, vector) = self.layout(&axes, self.p.g.dtype(value));
        let along = if MATRIX_TILES_ENABLED && lane.is_none() { self.neighbours(index, gate, &axes) } else { None };
        for point in &regs {
            if let Some((axis, n)) = along {
                let at = coordinate(point, axis.id);
                if at % n == 0 {
                    self.store_neighbours(u, point, axis.id, at..at + n)?;
                }
                continue;
            }
            if let Some(lane) = lane.filter(|&a| vector && self.contiguous(index, a))
                && self.store_whole(index, value, gate, point, lane)?
            {
                continue;
            }
            for i in 0..lane.map_or(1, |a| a.len) {
                let point = lane.map_or_else(|| point.clone(), |a| with(point, a.id, i));
                let (p, at) = self.address(index, &point, None)?;
                let x = self.scalar(value, &point)?;
                let gate = gate.map(|c| self.scalar(c, &point)).transpose()?;
                let s = match gate {
                    Some(c) => self.d.store_gated(&p, &at, 1, &x, &c),
                    None => self.d.store(&p, &at, 1, &x),
                };
                self.line(&s);
            }
        }
        Ok(())
    }

    /// The register axis along which a store without lanes writes adjacent elements, and how many are stored at a time.
    fn neighbours(&self, index: UOp, gate: Option<UOp>, axes: &[TileAxis]) -> Option<(TileAxis, usize)> {
        let g = &self.p.g;
        let along = axes.iter().copied().find(|a| self.p.stride(index, a.id) == 1)?;
        let moves = |u: UOp| g.ranges(u) >> along.id & 1 == 1;
        let whole = |n: &usize| along.len.is_multiple_of(*n) && aligned(self.p, index, &[along.id], *n);
        let invariant = !moves(g.src_at(index, 1)) && !gate.is_some_and(moves);
        let n = [4, 2].into_iter().filter(|&n| self.d.wants_vector_store(g.dtype(index), n)).find(whole)?;
        invariant.then_some((along, n))
    }

    /// Stores the registers along an axis as one vector.
    fn store_neighbours(&mut self, u: UOp, point: &Point, axis: u8, places: std::ops::Range<usize>) -> Result<()> {
        let src = self.p.g.srcs(u);
        let (p, at) = self.address(src[0], point, None)?;
        let lanes = places.len();
        let all = places.map(|i| self.scalar(src[1], &with(point, axis, i))).collect::<Result<Vec<_>>>()?;
        let x = self.d.pack(&all, self.p.g.dtype(src[1]));
        let p = Ptr { width: lanes, ..p };
        let s = match src.get(2) {
            Some(&c) => {
                let c = self.scalar(c, point)?;
                self.d.store_gated(&p, &at, lanes, &x, &c)
            }
            None => self.d.store(&p, &at, lanes, &x),
        };
        self.line(&s);
        Ok(())
    }

    /// Stores contiguous lanes as one vector; false if the language cannot do so under this gate.
    fn store_whole(
        &mut self,
        index: UOp,
        value: UOp,
        gate: Option<UOp>,
        point: &Point,
        lane: TileAxis,
    ) -> Result<bool> {
        let (p, at) = self.address(index, point, Some(lane))?;
        let s = match gate {
            None => {
                let x = self.vector(value, point, lane)?;
                self.d.store(&p, &at, lane.len, &x)
            }
            Some(c) if self.depends(c, lane) => {
                if !self.d.vector(DType::Bool, lane.len) {
                    return Ok(false);
                }
                let (x, m) = (self.vector(value, point, lane)?, self.vector(c, point, lane)?);
                match self.d.store_masked(&p, &at, lane.len, &x, &m) {
                    Some(s) => s,
                    None => return Ok(false),
                }
            }
            Some(c) => {
                let (x, c) = (self.vector(value, point, lane)?, self.scalar(c, point)?);
                self.d.store_gated(&p, &at, lane.len, &x, &c)
            }
        };
        self.line(&s);
        Ok(true)
    }

    // ---- accumulators

    fn acc(&mut self, u: UOp) -> Result<()> {
        let (axes, dt) = (self.p.tile(u), self.p.g.dtype(u));
        let init = self.p.g.src_at(u, 0);
        let (regs, lane, vector) = self.layout(&axes, dt);
        let mut names = Vec::new();
        for point in &regs {
            for i in 0..lane.filter(|_| !vector).map_or(1, |a| a.len) {
                let point = lane.map_or_else(|| point.clone(), |a| with(point, a.id, i));
                let name = format!("a{}_{}", u.0, names.len());
                let (lanes, e) = match lane.filter(|_| vector) {
                    Some(a) => (a.len, self.vector(init, &point, a)?),
                    None => (1, self.scalar(init, &point)?),
                };
                let s = self.d.variable(&name, dt, lanes, &e);
                self.line(&s);
                names.push(name);
            }
        }
        self.vals.insert(u, Val { axes, vector, names });
        Ok(())
    }

    fn update(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let src = g.srcs(u);
        let (acc, operands) = (src[0], &src[1..]);
        let dt = g.dtype(acc);
        let op = match (g.op(u), g.arg(u)) {
            (Op::AccUpdate, Arg::Reduce(op, _)) => op.op(),
            _ => Op::MulAdd,
        };
        let a = Alu::plain(op, dt);
        let target = self.val(acc)?;
        let open = operands.iter().fold(0, |m, &x| m | self.p.g.ranges(x));
        let extra: Vec<TileAxis> = self
            .p
            .tiles
            .iter()
            .copied()
            .filter(|t| open >> t.id & 1 == 1 && !target.axes.iter().any(|a| a.id == t.id))
            .collect();
        let (regs, lane, vector) = self.layout(&target.axes, dt);
        for point in &regs {
            for i in 0..lane.filter(|_| !vector).map_or(1, |a| a.len) {
                let point = lane.map_or_else(|| point.clone(), |a| with(point, a.id, i));
                let name = target.at(&point).to_string();
                for point in points(&point, &extra) {
                    let mut xs = Vec::new();
                    for &x in operands {
                        xs.push(match lane.filter(|_| vector) {
                            Some(a) => self.vector(x, &point, a)?,
                            None => self.scalar(x, &point)?,
                        });
                    }
                    let at = if op == Op::MulAdd { xs.len() } else { 0 };
                    let lanes = lane.filter(|_| vector).map_or(1, |a| a.len);
                    xs.insert(at, self.d.get(&name, dt, lanes));
                    let e = self.combine(a, &xs, lanes)?;
                    let s = self.d.set(&name, dt, lanes, &e);
                    self.line(&s);
                }
            }
        }
        Ok(())
    }

    /// An op on vectors or scalars; lane by lane where the language has no vector form.
    fn combine(&mut self, a: Alu, xs: &[String], lanes: usize) -> Result<String> {
        if lanes == 1 {
            return self.scalar_op(a, xs);
        }
        if let Some(e) = self.d.alu(a, xs, lanes)? {
            return Ok(e);
        }
        let mut parts = Vec::new();
        for i in 0..lanes {
            let one: Vec<String> = xs.iter().map(|x| self.d.lane(x, a.from, lanes, i)).collect();
            parts.push(self.scalar_op(a, &one)?);
        }
        Ok(self.d.pack(&parts, a.to))
    }

    fn read(&mut self, u: UOp) -> Result<()> {
        let acc = self.p.g.src_at(u, 0);
        self.define(u, &mut |w, p, lane| w.vector(acc, p, lane).map(|x| Some(w.d.read(&x))), &mut |w, p| {
            w.scalar(acc, p).map(|x| w.d.read(&x))
        })
    }

    fn fold(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let x = g.src_at(u, 0);
        let ids: SmallVec<[u8; 4]> = g.src(u)[1..].iter().map(|&r| g.range_arg(r).id).collect();
        let op = match g.arg(u) {
            Arg::Reduce(op, _) => *op,
            _ => ReduceOp::Add,
        };
        let dt = g.dtype(u);
        let a = Alu::plain(op.op(), dt);
        let val = self.val(x)?;
        let folded: Vec<TileAxis> = val.axes.iter().copied().filter(|t| ids.contains(&t.id)).collect();
        let regs: Vec<TileAxis> = folded.iter().copied().filter(|t| !t.lane).collect();
        let lane = folded.iter().copied().find(|t| t.lane);
        self.define(
            u,
            &mut |w, point, axis| {
                let mut xs = Vec::new();
                for p in points(point, &regs) {
                    xs.push(w.vector(x, &p, axis)?);
                }
                w.tree(a, xs, axis.len).map(Some)
            },
            &mut |w, point| {
                if let Some(lane) = lane.filter(|_| val.vector) {
                    let mut xs = Vec::new();
                    for p in points(point, &regs) {
                        xs.push(w.vector(x, &p, lane)?);
                    }
                    let whole = w.tree(a, xs, lane.len)?;
                    let whole = w.temp(dt, lane.len, &whole);
                    let parts = (0..lane.len).map(|i| w.d.lane(&whole, dt, lane.len, i)).collect();
                    return w.tree(a, parts, 1);
                }
                let mut xs = Vec::new();
                for p in points(point, &folded) {
                    xs.push(w.scalar(x, &p)?);
                }
                w.tree(a, xs, 1)
            },
        )
    }

    /// Combines values pairwise. The last expression is returned; the others become named constants.
    fn tree(&mut self, a: Alu, mut xs: Vec<String>, lanes: usize) -> Result<String> {
        while xs.len() > 1 {
            let last = xs.len() == 2;
            let mut next = Vec::new();
            for pair in xs.chunks(2) {
                let [x, y] = pair else {
                    next.push(pair[0].clone());
                    continue;
                };
                let e = self.combine(a, &[x.clone(), y.clone()], lanes)?;
                next.push(if last { e } else { self.temp(a.to, lanes, &e) });
            }
            xs = next;
        }
        Ok(xs.pop().unwrap_or_default())
    }

    /// The launch axis of a range, with its dimension, if it is one.
    pub(in crate::render) fn launch(&self, u: UOp) -> Option<AxisKind> {
        (self.p.g.op(u) == Op::Range).then(|| self.p.g.kind(u)).filter(|k| k.is_launch())
    }
}

/// Does the integer result of `u` fit its dtype for all values of its sources within their bounds?
fn no_wrap(g: &Graph, u: UOp) -> bool {
    let of = |i: usize| {
        let (lo, hi) = g.bounds(g.src_at(u, i));
        (lo as i128, hi as i128)
    };
    let product = |a: (i128, i128), b: (i128, i128)| {
        let all = [a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1];
        (all.iter().copied().fold(i128::MAX, i128::min), all.iter().copied().fold(i128::MIN, i128::max))
    };
    let inside =
        |r: (i128, i128)| g.dtype(u).int_range().is_some_and(|(lo, hi)| lo as i128 <= r.0 && r.1 <= hi as i128);
    match g.op(u) {
        Op::Add => inside((of(0).0 + of(1).0, of(0).1 + of(1).1)),
        Op::Sub => inside((of(0).0 - of(1).1, of(0).1 - of(1).0)),
        Op::Mul => inside(product(of(0), of(1))),
        Op::MulAdd => {
            let p = product(of(0), of(1));
            inside(p) && inside((p.0 + of(2).0, p.1 + of(2).1))
        }
        _ => false,
    }
}
