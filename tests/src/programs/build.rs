//! Putting a program together by hand: build expressions with [`Graph`]'s constructors, then `place` them in order.

use super::{Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::codegen::{ParamInfo, Program, VarInfo};
use gradloom_core::dtype::Scalar;
use gradloom_core::target::{Lang, Target};
use gradloom_core::uop::{Arg, AxisKind, Graph, Op, RangeArg, ReduceOp, UOp};
use gradloom_core::{DType, codegen::TileAxis};

/// Values of one dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Element type.
    pub dt: DType,
    /// Elements.
    pub values: Vec<Scalar>,
}

impl Data {
    /// `n` values made by `f`, converted to `dt`.
    pub fn new(dt: DType, n: usize, f: impl Fn(usize) -> f64) -> Data {
        Data { dt, values: (0..n).map(|i| Scalar::from_f64(f(i), dt)).collect() }
    }

    /// The bytes in memory.
    pub fn bytes(&self) -> Vec<u8> {
        let size = self.dt.size();
        let mut out = vec![0; size * self.values.len()];
        for (v, b) in self.values.iter().zip(out.chunks_mut(size)) {
            v.write(self.dt, b);
        }
        out
    }

    /// Inverse of [`Data::bytes`].
    pub fn from_bytes(dt: DType, bytes: &[u8]) -> Data {
        Data { dt, values: bytes.chunks_exact(dt.size()).map(|b| Scalar::read(dt, b)).collect() }
    }

    /// Value `i` as f64.
    pub fn f(&self, i: usize) -> f64 {
        self.values[i].as_f64_of(self.dt)
    }
}

/// The dtype that a target keeps in memory for `dt`: itself, or the 32-bit type that holds all its values.
pub fn stored(t: &Target, dt: DType) -> DType {
    use DType::*;
    match dt {
        _ if t.lang != Lang::Wgsl => dt,
        Bool | I8 | I16 => I32,
        U8 | U16 => U32,
        F16 | BF16 => F32,
        _ => dt,
    }
}

/// A reproducible value in `-1..1` with few bits, so that float sums and products of some hundred are near exact.
pub(super) fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((x >> 40) % 255) as f64 / 128.0 - 0.9921875
}

/// A program under construction.
pub struct Build<'a> {
    /// The graph; make nodes with its constructors.
    pub g: Graph,
    /// The target.
    pub t: &'a Target,
    order: Vec<UOp>,
    placed: Vec<bool>,
    params: Vec<ParamInfo>,
    vars: Vec<VarInfo>,
    tiles: Vec<TileAxis>,
    grid: [u32; 3],
    local: [u32; 3],
    ids: u8,
    loops: Vec<UOp>,
    data: Vec<Data>,
    want: Vec<Option<Vec<Scalar>>>,
    var_values: Vec<u32>,
    /// Tolerance of the finished sample.
    pub tol: Tol,
}

impl<'a> Build<'a> {
    /// An empty program for a target.
    pub fn new(t: &'a Target) -> Build<'a> {
        Build {
            g: Graph::new(),
            t,
            order: Vec::new(),
            placed: Vec::new(),
            params: Vec::new(),
            vars: Vec::new(),
            tiles: Vec::new(),
            grid: [1; 3],
            local: [1; 3],
            ids: 0,
            loops: Vec::new(),
            data: Vec::new(),
            want: Vec::new(),
            var_values: Vec::new(),
            tol: Tol::Exact,
        }
    }

    /// The next parameter, read, with its content.
    pub fn input(&mut self, data: Data) -> UOp {
        let (dt, len) = (data.dt, data.values.len());
        self.data.push(data);
        self.want.push(None);
        self.params.push(ParamInfo { dtype: dt, len, read: true, written: false });
        self.g.param(self.params.len() as u32 - 1, dt, len)
    }

    /// The next parameter, written, with the content that it must have at the end; it starts as sevens.
    pub fn output(&mut self, want: Data) -> UOp {
        let start = Data::new(want.dt, want.values.len(), |_| 7.0);
        let p = self.input(start);
        let slot = self.params.len() - 1;
        self.params[slot].written = true;
        self.params[slot].read = false;
        self.want[slot] = Some(want.values);
        p
    }

    /// A launch scalar and its value.
    pub fn var(&mut self, name: &str, dt: DType, (min, max): (i64, i64), bits: u32) -> UOp {
        self.vars.push(VarInfo { name: name.into(), dtype: dt, min, max });
        self.var_values.push(bits);
        self.g.node(Op::Var, dt, &[], Arg::Var { name: name.into(), min, max })
    }

    fn id(&mut self) -> u8 {
        self.ids += 1;
        self.ids - 1
    }

    /// A launch axis, placed. Grid(d) and Local(d) of extent `n`.
    pub fn launch_axis(&mut self, kind: AxisKind, n: usize) -> UOp {
        match kind {
            AxisKind::Grid(d) => self.grid[d as usize] = n as u32,
            AxisKind::Local(d) => self.local[d as usize] = n as u32,
            _ => panic!("{kind:?} is not a launch axis"),
        }
        let id = self.id();
        let r = self.g.range(n, id, kind);
        self.place(r)
    }

    /// One index `0..n` over the whole launch: Grid(0), times Local(0) where there is one.
    pub fn launch(&mut self, n: usize) -> UOp {
        let local =
            if self.t.caps.has_local { [8, 4, 2, 1].into_iter().find(|l| n.is_multiple_of(*l)).unwrap() } else { 1 };
        let grid = self.launch_axis(AxisKind::Grid(0), n / local);
        if !self.t.caps.has_local {
            return grid;
        }
        let thread = self.launch_axis(AxisKind::Local(0), local);
        let c = self.g.idx(local as i64);
        let base = self.g.binary(Op::Mul, grid, c);
        self.g.binary(Op::Add, base, thread)
    }

    /// A counted loop, opened here.
    pub fn open(&mut self, n: usize, kind: AxisKind) -> UOp {
        let id = self.id();
        let r = self.g.range(n, id, kind);
        self.place(r);
        self.loops.push(r);
        r
    }

    /// A tile axis.
    pub fn tile(&mut self, n: usize, kind: AxisKind, lane: bool) -> UOp {
        let id = self.id();
        self.tiles.push(TileAxis { id, len: n, lane });
        self.g.range_with(n, RangeArg { id, kind, lane })
    }

    /// `a * c + b` of indices.
    pub fn lin(&mut self, a: UOp, c: i64, b: UOp) -> UOp {
        let c = self.g.idx(c);
        let m = self.g.binary(Op::Mul, a, c);
        self.g.binary(Op::Add, m, b)
    }

    /// `a * c` of indices.
    pub fn times(&mut self, a: UOp, c: i64) -> UOp {
        let c = self.g.idx(c);
        self.g.binary(Op::Mul, a, c)
    }

    /// `a + c` of indices.
    pub fn plus(&mut self, a: UOp, c: i64) -> UOp {
        let c = self.g.idx(c);
        self.g.binary(Op::Add, a, c)
    }

    /// An address with tile strides.
    pub fn at(&mut self, ptr: UOp, offset: UOp, strides: &[(UOp, i64)]) -> UOp {
        let dt = self.g.dtype(ptr);
        let mut list: Vec<(u8, i64)> = strides.iter().map(|(r, s)| (self.g.range_arg(*r).id, *s)).collect();
        list.sort();
        let arg = if list.is_empty() { Arg::None } else { Arg::Strides(list.into_iter().collect()) };
        self.g.node(Op::Index, dt, &[ptr, offset], arg)
    }

    /// An ungated load of `dt` from storage of its stored type.
    pub fn load(&mut self, ptr: UOp, offset: UOp, strides: &[(UOp, i64)], dt: DType) -> UOp {
        let i = self.at(ptr, offset, strides);
        let v = self.g.load(i);
        self.g.cast(v, dt)
    }

    /// Stores `value`, converted to the memory type; placed.
    pub fn store(&mut self, ptr: UOp, offset: UOp, strides: &[(UOp, i64)], value: UOp) -> UOp {
        let i = self.at(ptr, offset, strides);
        let dt = self.g.dtype(ptr);
        let v = self.g.cast(value, dt);
        let s = self.g.store(i, v);
        self.place(s)
    }

    /// A register tile, declared here.
    pub fn acc(&mut self, id: u32, init: UOp, axes: &[UOp]) -> UOp {
        let dt = self.g.dtype(init);
        let src: Vec<UOp> = [init].iter().chain(axes).copied().collect();
        let a = self.g.node(Op::Acc, dt, &src, Arg::Acc(id));
        self.place(a)
    }

    /// `acc = acc op x`, placed.
    pub fn update(&mut self, acc: UOp, x: UOp, op: ReduceOp) -> UOp {
        let u = self.g.node(Op::AccUpdate, DType::Void, &[acc, x], Arg::Reduce(op, Default::default()));
        self.place(u)
    }

    /// `acc += a * b`, placed.
    pub fn mul_add(&mut self, acc: UOp, a: UOp, b: UOp) -> UOp {
        let u = self.g.node(Op::AccMulAdd, DType::Void, &[acc, a, b], Arg::None);
        self.place(u)
    }

    /// Closes a loop.
    pub fn end(&mut self, range: UOp, body: &[UOp]) -> UOp {
        let src: Vec<UOp> = [range].iter().chain(body).copied().collect();
        let e = self.g.node(Op::End, DType::Void, &src, Arg::None);
        assert_eq!(self.loops.pop(), Some(range), "loops nest");
        self.place(e)
    }

    /// The accumulator's value after `deps`.
    pub fn read(&mut self, acc: UOp, deps: &[UOp]) -> UOp {
        let dt = self.g.dtype(acc);
        let src: Vec<UOp> = [acc].iter().chain(deps).copied().collect();
        self.g.node(Op::AccRead, dt, &src, Arg::None)
    }

    /// Reduces tile axes of a value.
    pub fn fold(&mut self, x: UOp, axes: &[UOp], op: ReduceOp) -> UOp {
        let dt = self.g.dtype(x);
        let src: Vec<UOp> = [x].iter().chain(axes).copied().collect();
        self.g.node(Op::Fold, dt, &src, Arg::Reduce(op, Default::default()))
    }

    /// Puts a node here in execution order, after those of its sources that have no place yet.
    pub fn place(&mut self, u: UOp) -> UOp {
        self.placed.resize(self.g.len(), false);
        if self.placed[u.0 as usize] {
            return u;
        }
        self.placed[u.0 as usize] = true;
        for s in self.g.srcs(u) {
            self.place(s);
        }
        let tile_range = self.g.op(u) == Op::Range && self.g.kind(u).is_tile();
        if !matches!(self.g.op(u), Op::Const | Op::Param | Op::Scratch) && !tile_range {
            // index arithmetic that does not depend on the open loops goes before them, where later code sees it too
            let outer = self
                .loops
                .iter()
                .position(|&l| self.pure(u) && self.g.op(u) != Op::Range && self.g.ranges(u) & self.inner(l) == 0);
            let at = outer.and_then(|k| self.order.iter().position(|&o| o == self.loops[k]));
            self.order.insert(at.unwrap_or(self.order.len()), u);
        }
        u
    }

    /// The range ids of an open loop and of those inside it.
    fn inner(&self, from: UOp) -> u128 {
        self.loops.iter().skip_while(|&&l| l != from).fold(0, |m, &l| m | self.g.ranges(l))
    }

    /// Is it made of arithmetic on ranges and scalars only?
    fn pure(&self, u: UOp) -> bool {
        let op = self.g.op(u);
        let leaf = matches!(op, Op::Const | Op::Range | Op::Var | Op::Param | Op::Scratch);
        leaf || ((op.is_alu() || op == Op::Index) && self.g.src(u).iter().all(|&s| self.pure(s)))
    }

    /// The finished sample.
    pub fn finish(self, name: &str) -> Sample {
        let mut params = self.params;
        for &u in &self.order {
            if self.g.op(u) == Op::Load
                && let Arg::Param { slot, .. } = self.g.arg(self.g.src_at(self.g.src_at(u, 0), 0))
            {
                params[*slot as usize].read = true;
            }
        }
        let bytes = params.iter().map(|p| (p.len * p.dtype.size()) as u64).sum();
        let program = Program {
            name: name.into(),
            g: self.g,
            order: self.order,
            params,
            vars: self.vars,
            grid: self.grid,
            extents: Default::default(),
            local: self.local,
            tiles: self.tiles,
            flops: 0,
            bytes,
            packs: Vec::new(),
            opts: Vec::new(),
            refused: 0,
        };
        Sample { program, data: self.data, want: self.want, vars: self.var_values, tol: self.tol }
    }
}
