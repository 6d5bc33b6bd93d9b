//! Tests of the program interpreter on programs written by hand in the form that codegen gives them.

use super::{f32s, to_f32, to_i32};
use crate::dtype::Scalar;
use crate::uop::eval::eval_program;
use crate::uop::mma::Layout;
use crate::uop::{Arg, Axes, AxisKind, Graph, Op, RangeArg, ReduceOp, Space, UOp};
use crate::{DType, Error};
use AxisKind::*;

struct P {
    g: Graph,
    order: Vec<UOp>,
}

impl P {
    fn new() -> P {
        P { g: Graph::new(), order: Vec::new() }
    }

    /// Appends a node to the execution order.
    fn put(&mut self, u: UOp) -> UOp {
        self.order.push(u);
        u
    }

    fn range(&mut self, len: usize, id: u8, kind: AxisKind) -> UOp {
        let u = self.g.range_with(len, RangeArg { id, kind, lane: kind == Upcast && id == 9 });
        self.put(u)
    }

    fn int(&mut self, v: i64) -> UOp {
        self.g.int(v, DType::I32)
    }

    fn bin(&mut self, op: Op, x: UOp, y: UOp) -> UOp {
        let u = self.g.binary(op, x, y);
        self.put(u)
    }

    /// `x * c`.
    fn times(&mut self, x: UOp, c: i64) -> UOp {
        let c = self.int(c);
        self.bin(Op::Mul, x, c)
    }

    fn index(&mut self, ptr: UOp, offset: UOp, strides: &[(u8, i64)]) -> UOp {
        let dt = self.g.dtype(ptr);
        let arg = if strides.is_empty() { Arg::None } else { Arg::Strides(strides.iter().copied().collect()) };
        let u = self.g.node(Op::Index, dt, &[ptr, offset], arg);
        self.put(u)
    }

    fn load(&mut self, ptr: UOp, offset: UOp, strides: &[(u8, i64)]) -> UOp {
        let i = self.index(ptr, offset, strides);
        let u = self.g.load(i);
        self.put(u)
    }

    fn store(&mut self, ptr: UOp, offset: UOp, strides: &[(u8, i64)], v: UOp) {
        let i = self.index(ptr, offset, strides);
        let u = self.g.store(i, v);
        self.put(u);
    }

    fn node(&mut self, op: Op, dt: DType, src: &[UOp], arg: Arg) -> UOp {
        let u = self.g.node(op, dt, src, arg);
        self.put(u)
    }

    fn run(&self, args: &mut [Vec<u8>], grid: [u32; 3]) -> Result<(), Error> {
        eval_program(&self.g, &self.order, args, &[("n", Scalar::Int(3))], grid)
    }
}

#[test]
fn register_tiled_matmul() {
    let (m, n, k) = (4, 8, 6);
    let mut p = P::new();
    let c = p.g.param(0, DType::F32, m * n);
    let a = p.g.param(1, DType::F32, m * k);
    let b = p.g.param(2, DType::F32, k * n);
    let gi = p.range(m / 2, 0, Grid(0));
    let gj = p.range(n / 4, 1, Loop);
    let (ti, tj) = (p.range(2, 8, Upcast), p.range(4, 9, Upcast));
    let zero = p.g.float(0.0, DType::F32);
    let acc = p.node(Op::Acc, DType::F32, &[zero, ti, tj], Arg::Acc(0));
    let kk = p.range(k / 2, 2, Reduce);
    p.range(2, 3, Unroll);
    let row = p.times(gi, 2 * k as i64);
    let k0 = p.times(kk, 2);
    let at = p.bin(Op::Add, row, k0);
    let x = p.load(a, at, &[(3, 1), (8, k as i64)]);
    let krow = p.times(kk, 2 * n as i64);
    let col = p.times(gj, 4);
    let at = p.bin(Op::Add, krow, col);
    let y = p.load(b, at, &[(3, n as i64), (9, 1)]);
    let up = p.node(Op::AccMulAdd, DType::Void, &[acc, x, y], Arg::None);
    let end = p.node(Op::End, DType::Void, &[kk, up], Arg::None);
    let v = p.node(Op::AccRead, DType::F32, &[acc, end], Arg::None);
    let row = p.times(gi, 2 * n as i64);
    let at = p.bin(Op::Add, row, col);
    p.store(c, at, &[(8, n as i64), (9, 1)], v);
    p.node(Op::End, DType::Void, &[gj], Arg::None);
    let av: Vec<f32> = (0..m * k).map(|i| i as f32 - 5.0).collect();
    let bv: Vec<f32> = (0..k * n).map(|i| (i * i % 11) as f32).collect();
    let mut args = [vec![0xAA; m * n * 4], f32s(&av), f32s(&bv)];
    p.run(&mut args, [(m / 2) as u32, 1, 1]).unwrap();
    let want: Vec<f32> = (0..m * n).map(|i| (0..k).map(|l| av[i / n * k + l] * bv[l * n + i % n]).sum()).collect();
    assert_eq!(to_f32(&args[0]), want);
}

/// `c = a b` with a of 8 by 4 and b of 4 by 8, computed by that many threads, which are numbered from `first` on.
fn multiply_tiles(threads: usize, first: i64) -> Result<Vec<f32>, Error> {
    let mut p = P::new();
    let [c, a, b] = [(0, 64), (1, 32), (2, 32)].map(|(slot, n)| p.g.param(slot, DType::F32, n));
    let (lane, column) = (p.range(threads, 0, Local(0)), p.range(2, 1, Upcast));
    let four = p.int(4);
    let (row, step) = (p.bin(Op::Idiv, lane, four), p.bin(Op::Imod, lane, four));
    // the row-major order of a's elements is the order of the threads that hold them
    let x = p.load(a, lane, &[]);
    let at = p.times(step, 8);
    let at = p.bin(Op::Add, at, row);
    let y = p.load(b, at, &[]);
    let first = p.int(first);
    let number = p.bin(Op::Add, lane, first);
    let layout = Layout::read("k1x4 m1x8 |; k1x4 n1x8 |; n2x4 m1x8 | n1x2").unwrap();
    let product = p.node(Op::Mma, DType::F32, &[x, y, number, column], Arg::Mma(Box::new(layout)));
    let at = p.times(lane, 2);
    p.store(c, at, &[(1, 1)], product);
    let values = |n: i32| f32s(&(0..n).map(|i| (i * 7 % 11 - 5) as f32).collect::<Vec<_>>());
    let mut args = [f32s(&[0.0; 64]), values(32), values(32)];
    p.run(&mut args, [1, 1, 1])?;
    Ok(to_f32(&args[0]))
}

#[test]
fn threads_of_a_subgroup_multiply_what_they_hold() {
    let value = |i: i32| (i * 7 % 11 - 5) as f32;
    let want: Vec<f32> = (0..64).map(|i| (0..4).map(|k| value(i / 8 * 4 + k) * value(k * 8 + i % 8)).sum()).collect();
    assert_eq!(multiply_tiles(32, 0).unwrap(), want);
    let e = |threads, first| multiply_tiles(threads, first).unwrap_err().to_string();
    assert!(e(16, 0).contains("16 threads multiply in subgroups of 32"), "{}", e(16, 0));
    assert!(e(32, 1).contains("thread 0 of a subgroup has another number"), "{}", e(32, 1));
}

#[test]
fn folds_are_pairwise_and_updates_in_order() {
    // 1e8 + 1 - 1e8 + 1 in f32: pairwise (1e8 + 1) + (-1e8 + 1) = 0, in order ((1e8 + 1) - 1e8) + 1 = 1
    let mut p = P::new();
    let x = p.g.param(0, DType::F32, 4);
    let out = p.g.param(1, DType::F32, 3);
    let r = p.range(4, 0, Unroll);
    let zero = p.int(0);
    let v = p.load(x, zero, &[(0, 1)]);
    let add = || Arg::Reduce(ReduceOp::Add, Axes::new());
    let f = p.node(Op::Fold, DType::F32, &[v, r], add());
    p.store(out, zero, &[], f);
    let init = p.g.float(0.0, DType::F32);
    let acc = p.node(Op::Acc, DType::F32, &[init], Arg::Acc(0));
    let up = p.node(Op::AccUpdate, DType::Void, &[acc, v], add());
    let s = p.node(Op::AccRead, DType::F32, &[acc, up], Arg::None);
    let one = p.int(1);
    p.store(out, one, &[], s);
    let m = p.node(Op::Fold, DType::F32, &[v, r], Arg::Reduce(ReduceOp::Min, Axes::new()));
    let two = p.int(2);
    p.store(out, two, &[], m);
    let mut args = [f32s(&[1e8, 1.0, -1e8, 1.0]), vec![0; 12]];
    p.run(&mut args, [1; 3]).unwrap();
    assert_eq!(to_f32(&args[1]), [0.0, 1.0, -1e8]);
}

#[test]
fn gates_guard_memory_and_ungated_accesses_are_checked() {
    for gated in [true, false] {
        let mut p = P::new();
        let x = p.g.param(0, DType::I32, 3);
        let out = p.g.param(1, DType::I32, 5);
        let i = p.range(5, 9, Upcast);
        let three = p.int(3);
        let ok = p.bin(Op::CmpLt, i, three);
        let ix = p.index(x, i, &[]);
        let v = if gated {
            let alt = p.int(-7);
            let u = p.g.load_gated(ix, alt, ok);
            p.put(u)
        } else {
            let u = p.g.load(ix);
            p.put(u)
        };
        let io = p.index(out, i, &[]);
        // does not write element 0
        let zero = p.int(0);
        let not0 = p.bin(Op::CmpNe, i, zero);
        let st = p.g.node(Op::Store, DType::Void, &[io, v, not0], Arg::None);
        p.put(st);
        let ints = |v: &[i32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let mut args = [ints(&[10, 20, 30]), ints(&[1, 1, 1, 1, 1])];
        let r = p.run(&mut args, [1; 3]);
        if gated {
            r.unwrap();
            assert_eq!(to_i32(&args[1]), [1, 20, 30, -7, -7]);
        } else {
            let e = r.unwrap_err().to_string();
            assert!(e.contains("element 3 is outside storage of 3"), "{e}");
        }
    }
}

#[test]
fn a_workgroup_sums_through_shared_memory() {
    // out[group] = sum of 8 elements: each of 4 threads adds two, stores, barrier, thread-wise tree in a loop
    let mut p = P::new();
    let x = p.g.param(0, DType::F32, 16);
    let out = p.g.param(1, DType::F32, 2);
    let sh = p.node(Op::Scratch, DType::F32, &[], Arg::Scratch { id: 0, len: 4, space: Space::Workgroup });
    let gr = p.range(2, 0, Grid(0));
    let l = p.range(4, 1, Local(0));
    let base = p.times(gr, 8);
    let at = p.bin(Op::Add, base, l);
    let a = p.load(x, at, &[]);
    let four = p.int(4);
    let at4 = p.bin(Op::Add, at, four);
    let b = p.load(x, at4, &[]);
    let s = p.bin(Op::Add, a, b);
    p.store(sh, l, &[], s);
    p.node(Op::Barrier, DType::Void, &[], Arg::None);
    // two rounds: sh[l] += sh[l ^ (1 << round)], a barrier between the reads and the writes
    let round = p.range(2, 2, Loop);
    let one = p.int(1);
    let bit = p.bin(Op::Shl, one, round);
    let other = p.bin(Op::Xor, l, bit);
    let mine = p.load(sh, l, &[]);
    let theirs = p.load(sh, other, &[]);
    let sum = p.bin(Op::Add, mine, theirs);
    let bar = p.node(Op::Barrier, DType::Void, &[sum], Arg::None);
    p.store(sh, l, &[], sum);
    let bar2 = p.node(Op::Barrier, DType::Void, &[bar], Arg::None);
    p.node(Op::End, DType::Void, &[round, bar2], Arg::None);
    let io = p.index(out, gr, &[]);
    let is = p.index(sh, l, &[(9, 0)]);
    let total = p.g.load(is);
    p.put(total);
    let zero = p.int(0);
    let first = p.bin(Op::CmpEq, l, zero);
    let st = p.g.node(Op::Store, DType::Void, &[io, total, first], Arg::None);
    p.put(st);
    p.g.range_with(1, RangeArg { id: 9, kind: Upcast, lane: true });
    let xs: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let mut args = [f32s(&xs), vec![0; 8]];
    p.run(&mut args, [2, 1, 1]).unwrap();
    assert_eq!(to_f32(&args[1]), [28.0, 92.0]);
}

#[test]
fn loops_with_launch_bounds_and_empty_loops() {
    let mut p = P::new();
    let out = p.g.param(0, DType::I32, 4);
    let n = p.g.node(Op::Var, DType::I32, &[], Arg::Var { name: "n".into(), min: 0, max: 4 });
    let arg = RangeArg { id: 0, kind: Loop, lane: false };
    let i = p.node(Op::Range, DType::I32, &[n], Arg::Range(arg));
    let sq = p.bin(Op::Mul, i, i);
    p.store(out, i, &[], sq);
    p.node(Op::End, DType::Void, &[i], Arg::None);
    let none = p.range(0, 1, Loop);
    p.store(out, none, &[], none);
    p.node(Op::End, DType::Void, &[none], Arg::None);
    let mut args = [vec![0xFF; 16]];
    p.run(&mut args, [1; 3]).unwrap();
    assert_eq!(to_i32(&args[0]), [0, 1, 4, -1]);
}

#[test]
fn wrong_programs_are_internal_errors() {
    let mut p = P::new();
    let out = p.g.param(0, DType::F32, 4);
    let i = p.range(4, 0, Loop);
    let v = p.g.float(1.0, DType::F32);
    p.store(out, i, &[], v);
    let e = p.run(&mut [vec![0; 16]], [1; 3]).unwrap_err().to_string();
    assert!(e.contains("without an End"), "{e}");
    p.node(Op::End, DType::Void, &[i], Arg::None);
    let e = p.run(&mut [vec![0; 15]], [1; 3]).unwrap_err();
    assert!(matches!(e, Error::Input { .. }), "{e}");
    p.run(&mut [vec![0; 16]], [1; 3]).unwrap();
    let bad = p.node(Op::Iota, DType::F32, &[], Arg::Shape([4].into_iter().collect()));
    p.store(out, i, &[], bad);
    let e = p.run(&mut [vec![0; 16]], [1; 3]).unwrap_err().to_string();
    assert!(e.contains("iota"), "{e}");
}
