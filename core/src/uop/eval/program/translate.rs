//! Translates the nodes of a program into instructions of the interpreter: assigns registers and storage, links loops
//! with their ends, and works out which element of each operand tile an element of the result takes ([`Align`]).
//! Example: for `c[i, j] = a[j] + b[i, j]` the operand a has the map `0, 1, .., 0, 1, ..`.

use crate::dtype::Scalar;
use crate::uop::eval::lanes::Lanes;
use crate::uop::mma::{Distribution, Layout, MATRIX_TILES_ENABLED, Side};
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, Space, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use smallvec::SmallVec;

/// Which element of an operand each element of its user takes.
pub(super) enum Align {
    /// The user has the operand's tile axes: element `i` takes element `i`.
    Same,
    /// The user's element `i` takes the operand's element `map[i]`.
    Map(Vec<u32>),
}

/// An operand: the register that holds it, and its alignment to the user.
pub(super) struct Operand {
    pub(super) reg: usize,
    pub(super) align: Align,
}

/// The storage that an address points into: where it is, its dtype and its number of elements.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) place: Place,
    pub(super) dt: DType,
    pub(super) len: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Place {
    Arg(usize),
    Workgroup(usize),
    Private(usize),
}

pub(super) enum Code {
    /// Nothing to do: the value is known before the run, or there is none.
    Ready,
    Launch(AxisKind),
    /// A loop: the register of its bound, and the position of its End.
    Loop {
        bound: usize,
        end: usize,
    },
    End {
        start: usize,
    },
    Alu {
        op: Op,
        dt: DType,
        src: SmallVec<[Operand; 3]>,
        sdt: SmallVec<[DType; 3]>,
    },
    Index {
        offset: Operand,
        add: Vec<i64>,
    },
    Load {
        mem: Memory,
        at: Operand,
        gated: Option<(Operand, Operand)>,
    },
    Store {
        mem: Memory,
        at: Operand,
        value: Operand,
        gate: Option<Operand>,
        n: usize,
    },
    Acc {
        init: Operand,
    },
    /// An accumulator's update, one step per folded element; a step has the value to combine, or both factors.
    Update {
        acc: usize,
        op: ReduceOp,
        dt: DType,
        steps: Vec<SmallVec<[Operand; 2]>>,
    },
    Copy {
        from: usize,
    },
    Fold {
        op: ReduceOp,
        dt: DType,
        parts: Vec<Operand>,
    },
    Barrier,
    Mma(Box<Mma>),
    LoadMatrix(Box<LoadMatrix>),
}

/// A load of 8 by 8 matrices by a whole subgroup ([`Op::LoadMatrix`]).
pub(super) struct LoadMatrix {
    pub(super) mem: Memory,
    pub(super) thread: Operand,
    /// The address of the thread's row, for every element of the result.
    pub(super) at: Operand,
    /// For each element of the result, the number of the register that holds it.
    pub(super) registers: Vec<u32>,
    /// Are the matrices transposed?
    pub(super) transposed: bool,
}

/// A product of matrix tiles ([`Op::Mma`]).
pub(super) struct Mma {
    pub(super) layout: Layout,
    pub(super) dt: DType,
    /// The dtype of the factors.
    pub(super) sdt: DType,
    pub(super) thread: Operand,
    /// For each register of a factor, its operand, aligned to the result; for a factor in memory the address where it
    /// begins.
    pub(super) factors: [Vec<Operand>; 2],
    /// The storage of the factors that lie in workgroup memory.
    pub(super) memory: [Option<Memory>; 2],
    /// For each element of the result, the number of the product's register that holds it.
    pub(super) registers: Vec<u32>,
    /// Which thread and register hold each element of a factor:
    /// [`Distribution::slots`](crate::uop::mma::Distribution::slots).
    pub(super) slots: [Vec<usize>; 2],
}

pub(super) struct Inst {
    pub(super) u: UOp,
    /// The register that receives its value.
    pub(super) reg: Option<usize>,
    pub(super) code: Code,
}

pub(super) struct Translated {
    pub(super) insts: Vec<Inst>,
    /// The contents of the registers when a thread starts.
    pub(super) initial: Vec<Option<Lanes>>,
    /// Size in bytes of each scratch array, by space.
    pub(super) workgroup: Vec<usize>,
    pub(super) private: Vec<usize>,
    pub(super) local: [usize; 3],
}

/// A tile axis: range id and extent.
type Axis = (u8, usize);

struct Translator<'a> {
    g: &'a Graph,
    /// Extent of each tile range, by id.
    tiles: [Option<usize>; 128],
    reg: Vec<Option<usize>>,
    memory: Vec<Option<Memory>>,
}

fn internal(u: UOp, g: &Graph, what: impl std::fmt::Display) -> Error {
    Error::Internal(format!("{u:?} = {}: {what}", g.op(u).name()))
}

pub(super) fn translate(g: &Graph, order: &[UOp], args: &[Vec<u8>], vars: &[(&str, Scalar)]) -> Result<Translated> {
    let reachable = g.reachable(order);
    let n = reachable.last().map_or(0, |u| u.0 as usize + 1);
    let mut t = Translator { g, tiles: [None; 128], reg: vec![None; n], memory: vec![None; n] };
    // extents come from the ranges in use; a range that occurs only in the strides of an Index is looked up in the
    // whole graph
    let mut known = 0u128;
    for u in reachable.iter().copied().chain(g.iter()).filter(|&u| g.op(u) == Op::Range) {
        let r = g.range_arg(u);
        if known >> r.id & 1 == 0 && r.kind.is_tile() {
            t.tiles[r.id as usize] = g.const_int(g.src_at(u, 0)).map(|n| n.max(0) as usize);
        }
        known |= 1 << r.id;
    }
    let mut out = Translated {
        insts: Vec::new(),
        initial: Vec::new(),
        workgroup: Vec::new(),
        private: Vec::new(),
        local: [1; 3],
    };
    let placed: rustc_hash::FxHashSet<UOp> = order.iter().copied().collect();
    let floating = reachable.iter().copied().filter(|u| !placed.contains(u));
    let mut open: Vec<usize> = Vec::new();
    for u in floating.chain(order.iter().copied()) {
        let code = match (g.op(u), g.arg(u)) {
            (Op::Param | Op::Scratch, _) => {
                t.memory[u.0 as usize] = Some(storage(g, u, args, &mut out)?);
                continue;
            }
            (Op::Sink, _) => continue,
            (Op::Const, Arg::Const(c)) => {
                let v = Lanes::splat(*c, g.dtype(u), 1);
                t.define(u, Some(v), &mut out);
                Code::Ready
            }
            (Op::Var, Arg::Var { name, .. }) => {
                let v = vars
                    .iter()
                    .find(|v| *v.0 == **name)
                    .ok_or_else(|| Error::Input { name: name.to_string(), what: "no value".into() })?;
                t.define(u, Some(Lanes::splat(v.1, g.dtype(u), 1)), &mut out);
                Code::Ready
            }
            (Op::Range, Arg::Range(r)) if r.kind.is_tile() => {
                let n = t.tiles[r.id as usize].unwrap_or(0);
                t.define(u, Some(Lanes::Int((0..n as i64).collect())), &mut out);
                Code::Ready
            }
            (Op::Range, Arg::Range(r)) if r.kind.is_launch() => {
                if let AxisKind::Local(d) = r.kind {
                    out.local[d as usize] = g.const_int(g.src_at(u, 0)).map_or(1, |n| n.max(0) as usize);
                }
                t.define(u, None, &mut out);
                Code::Launch(r.kind)
            }
            _ if !placed.contains(&u) => return Err(internal(u, g, "is used but has no place in the order")),
            (Op::Range, _) => {
                open.push(out.insts.len());
                t.define(u, None, &mut out);
                Code::Loop { bound: t.register(u, g.src_at(u, 0))?, end: usize::MAX }
            }
            (Op::End, _) => {
                let start = open.pop().filter(|&at| out.insts[at].u == g.src_at(u, 0));
                let Some(start) = start else {
                    return Err(internal(u, g, format!("does not close the innermost loop {:?}", g.src_at(u, 0))));
                };
                let here = out.insts.len();
                if let Code::Loop { end, .. } = &mut out.insts[start].code {
                    *end = here;
                }
                Code::End { start }
            }
            _ => {
                let code = t.translate(u)?;
                if matches!(code, Code::Alu { .. } | Code::Index { .. } | Code::Load { .. } | Code::Acc { .. })
                    || matches!(code, Code::Copy { .. } | Code::Fold { .. } | Code::Mma(_) | Code::LoadMatrix(_))
                {
                    t.define(u, None, &mut out);
                }
                code
            }
        };
        out.insts.push(Inst { u, reg: t.reg[u.0 as usize], code });
    }
    match open.pop() {
        Some(at) => Err(internal(out.insts[at].u, g, "is a loop without an End")),
        None => Ok(out),
    }
}

fn storage(g: &Graph, u: UOp, args: &[Vec<u8>], out: &mut Translated) -> Result<Memory> {
    let dt = g.dtype(u);
    match g.arg(u) {
        Arg::Param { slot, len } => {
            let have = args.get(*slot as usize).map_or(0, Vec::len);
            if have < len * dt.size() {
                let what = format!("{have} bytes given, {len} elements of {dt} wanted");
                return Err(Error::Input { name: format!("parameter {slot}"), what });
            }
            Ok(Memory { place: Place::Arg(*slot as usize), dt, len: *len })
        }
        Arg::Scratch { len, space, .. } => {
            let own = *space == Space::Private;
            let list = if own { &mut out.private } else { &mut out.workgroup };
            list.push(len * dt.size());
            let i = list.len() - 1;
            let place = if own { Place::Private(i) } else { Place::Workgroup(i) };
            Ok(Memory { place, dt, len: *len })
        }
        a => Err(internal(u, g, format!("has argument {a:?}"))),
    }
}

impl Translator<'_> {
    /// Assigns `u` a register that holds this value when a thread starts.
    fn define(&mut self, u: UOp, value: Option<Lanes>, out: &mut Translated) {
        self.reg[u.0 as usize] = Some(out.initial.len());
        out.initial.push(value);
    }

    fn register(&self, user: UOp, s: UOp) -> Result<usize> {
        self.reg[s.0 as usize].ok_or_else(|| internal(user, self.g, format!("{s:?} has no value at this place")))
    }

    /// The tile axes of a value in the order of their ids, in which its elements are row-major.
    fn axes(&self, u: UOp) -> SmallVec<[Axis; 6]> {
        let open = self.g.ranges(u);
        (0..128u8).filter(|id| open >> id & 1 == 1).filter_map(|id| Some((id, self.tiles[id as usize]?))).collect()
    }

    fn operand(&self, user: UOp, s: UOp, space: &[Axis]) -> Result<Operand> {
        let axes = self.axes(s);
        let align = if axes[..] == *space { Align::Same } else { Align::Map(align(space, &axes, &[])) };
        Ok(Operand { reg: self.register(user, s)?, align })
    }

    /// For each point of the axes `folded`, the operand `s` at that point, aligned to the axes `space` of its user.
    fn folded(&self, user: UOp, s: UOp, space: &[Axis], folded: &[Axis]) -> Result<Vec<Operand>> {
        let (axes, reg) = (self.axes(s), self.register(user, s)?);
        let n: usize = folded.iter().map(|a| a.1).product();
        let point = |mut k: usize| {
            let mut at: SmallVec<[(u8, usize); 4]> = SmallVec::new();
            for &(id, n) in folded.iter().rev() {
                at.push((id, k % n));
                k /= n;
            }
            at
        };
        Ok((0..n).map(|k| Operand { reg, align: Align::Map(align(space, &axes, &point(k))) }).collect())
    }

    fn mem(&self, u: UOp, mut p: UOp) -> Result<Memory> {
        while matches!(self.g.op(p), Op::Index | Op::After) {
            p = self.g.src_at(p, 0);
        }
        self.memory[p.0 as usize].ok_or_else(|| internal(u, self.g, format!("{p:?} is not a pointer")))
    }

    fn translate(&self, u: UOp) -> Result<Code> {
        let (g, dt) = (self.g, self.g.dtype(u));
        let src = g.src(u);
        let axes = self.axes(u);
        let operand = |i: usize| self.operand(u, src[i], &axes);
        Ok(match (g.op(u), g.arg(u)) {
            (op, _) if op.is_alu() => Code::Alu {
                op,
                dt,
                src: (0..src.len()).map(operand).collect::<Result<_>>()?,
                sdt: src.iter().map(|&s| g.dtype(s)).collect(),
            },
            (Op::Index, arg) => {
                let n: usize = axes.iter().map(|a| a.1).product();
                let mut add = vec![0i64; n];
                if let Arg::Strides(strides) = arg {
                    for &(id, stride) in strides {
                        let Some(len) = self.tiles[id as usize] else {
                            return Err(internal(u, g, format!("stride over range {id}, which is no tile axis")));
                        };
                        let at = align(&axes, &[(id, len)], &[]);
                        add.iter_mut().zip(at).for_each(|(a, i)| *a += stride * i as i64);
                    }
                }
                self.mem(u, src[0])?;
                Code::Index { offset: operand(1)?, add }
            }
            (Op::Load, _) => {
                let mem = self.mem(u, src[0])?;
                if mem.dt != dt {
                    return Err(internal(u, g, format!("loads {dt} from storage of {}", mem.dt)));
                }
                let gated = if src.len() == 3 { Some((operand(1)?, operand(2)?)) } else { None };
                Code::Load { mem, at: operand(0)?, gated }
            }
            (Op::Store, _) => {
                let mem = self.mem(u, src[0])?;
                if mem.dt != g.dtype(src[1]) {
                    return Err(internal(u, g, format!("stores {} to storage of {}", g.dtype(src[1]), mem.dt)));
                }
                let gate = if src.len() == 3 { Some(operand(2)?) } else { None };
                let n = axes.iter().map(|a| a.1).product();
                Code::Store { mem, at: operand(0)?, value: operand(1)?, gate, n }
            }
            (Op::Acc, _) => Code::Acc { init: operand(0)? },
            (Op::AccUpdate | Op::AccMulAdd, arg) => {
                let space = self.axes(src[0]);
                let mut folded: Vec<Axis> = Vec::new();
                for &s in &src[1..] {
                    let more: Vec<Axis> =
                        self.axes(s).into_iter().filter(|a| !space.contains(a) && !folded.contains(a)).collect();
                    folded.extend(more);
                }
                sort::ascending(&mut folded);
                let x = self.folded(u, src[1], &space, &folded)?;
                let steps = if g.op(u) == Op::AccMulAdd {
                    let y = self.folded(u, src[2], &space, &folded)?;
                    x.into_iter().zip(y).map(|(x, y)| SmallVec::from_iter([x, y])).collect()
                } else {
                    x.into_iter().map(|x| SmallVec::from_iter([x])).collect()
                };
                let op = if let Arg::Reduce(op, _) = arg { *op } else { ReduceOp::Add };
                Code::Update { acc: self.register(u, src[0])?, op, dt: g.dtype(src[0]), steps }
            }
            (Op::AccRead | Op::After, _) if self.reg[src[0].0 as usize].is_some() => {
                Code::Copy { from: self.register(u, src[0])? }
            }
            (Op::After, _) => Code::Ready,
            (Op::Fold, Arg::Reduce(op, _)) => {
                let folded: Vec<Axis> = src[1..].iter().map(|&r| (g.range_arg(r).id, g.range_len(r))).collect();
                Code::Fold { op: *op, dt, parts: self.folded(u, src[0], &axes, &folded)? }
            }
            (Op::Barrier, _) => Code::Barrier,
            (Op::Mma, Arg::Mma(layout)) if MATRIX_TILES_ENABLED => Code::Mma(Box::new(self.mma(u, layout)?)),
            (Op::LoadMatrix, Arg::Number(flag)) if MATRIX_TILES_ENABLED => {
                let ranges = src[2..].iter().rev().map(|&r| (g.range_arg(r).id, g.range_len(r)));
                let registers = align(&axes, &ranges.collect::<Vec<Axis>>(), &[]);
                let (mem, thread) = (self.mem(u, src[0])?, self.operand(u, src[1], &[])?);
                let transposed = *flag == 1;
                Code::LoadMatrix(Box::new(LoadMatrix { mem, thread, at: operand(0)?, registers, transposed }))
            }
            (_, arg) => return Err(internal(u, g, format!("[{arg:?}] is no op of a program"))),
        })
    }
}

impl Translator<'_> {
    fn mma(&self, u: UOp, layout: &Layout) -> Result<Mma> {
        let g = self.g;
        let (src, space) = (g.src(u), self.axes(u));
        let (a, rest) = src[3..].split_at(layout.a.axes().len());
        let (b, c) = rest.split_at(layout.b.axes().len());
        // the first digit of a register's number is the fastest, but axes are listed with the fastest last
        let digits = |ranges: &[UOp]| -> Vec<Axis> {
            ranges.iter().rev().map(|&r| (g.range_arg(r).id, g.range_len(r))).collect()
        };
        let factors = [self.folded(u, src[0], &space, &digits(a))?, self.folded(u, src[1], &space, &digits(b))?];
        let slots = [layout.a.slots(Side::M, Side::K), layout.b.slots(Side::K, Side::N)];
        let [Some(of_a), Some(of_b)] = slots else { return Err(internal(u, g, "has elements without a place")) };
        let memory = |i: usize, s: &Distribution| if s.in_memory() { self.mem(u, src[i]).map(Some) } else { Ok(None) };
        let memory = [memory(0, &layout.a)?, memory(1, &layout.b)?];
        Ok(Mma {
            layout: layout.clone(),
            dt: g.dtype(u),
            sdt: g.dtype(src[0]),
            thread: self.operand(u, src[2], &[])?,
            factors,
            memory,
            registers: align(&space, &digits(c), &[]),
            slots: [of_a, of_b],
        })
    }
}

/// For each point of `space`, in row-major order, the row-major number of the point of `axes` with the same
/// coordinates. An axis in `fixed` has the given coordinate, whether `space` has the axis or not; an axis in neither
/// has coordinate 0.
fn align(space: &[Axis], axes: &[Axis], fixed: &[(u8, usize)]) -> Vec<u32> {
    let n: usize = space.iter().map(|a| a.1).product();
    let mut strides: SmallVec<[(u8, usize); 6]> = SmallVec::new();
    let mut stride = 1;
    for &(id, len) in axes.iter().rev() {
        strides.push((id, stride));
        stride *= len;
    }
    let stride_of = |id: u8| strides.iter().find(|s| s.0 == id).map_or(0, |s| s.1);
    let base: usize = fixed.iter().map(|&(id, at)| stride_of(id) * at).sum();
    (0..n)
        .map(|i| {
            let (mut rest, mut at) = (i, base);
            for &(id, len) in space.iter().rev() {
                let own = fixed.iter().all(|f| f.0 != id);
                at += if own { rest % len * stride_of(id) } else { 0 };
                rest /= len;
            }
            at as u32
        })
        .collect()
}
