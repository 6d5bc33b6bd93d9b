//! Whole kernels: matmul tiles, row reductions, softmax, scratch memory, nested loops.

use super::build::{Build, Data, noise};
use super::tiles::with_nan;
use super::{Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::DType::{F32, I32, I64, Void};
use gradloom_core::target::{Lang, Target};
use gradloom_core::uop::{Arg, AxisKind, Op, ReduceOp, Space, UOp};

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    out.extend([matmul(t, 8, 32, 13), matmul(t, 4, 64, 64), row_sum(t), row_max(t), unrolled(t), softmax(t)]);
    out.extend([nested(t), int_sum(t), long_sum(t), window(t), copy_once(t)]);
    if t.has_op(Op::Exp2, F32) {
        out.push(exp_sum(t));
    }
    if t.caps.has_local {
        out.extend([workgroup(t), grid3(t)]);
    } else {
        out.push(private(t));
    }
}

fn lanes(t: &Target) -> usize {
    t.caps.lanes.max(1)
}

/// `c[m, n] = sum_k a[m, k] * b[k, n]`, tile 4 x 2*lanes.
pub fn matmul(t: &Target, m: usize, n: usize, k: usize) -> Sample {
    let (l, tm) = (lanes(t), 4);
    let tn = if n.is_multiple_of(2 * l) { 2 } else { 1 };
    let (a, w) = (Data::new(F32, m * k, noise), Data::new(F32, k * n, |i| noise(i + 77)));
    let want = Data::new(F32, m * n, |i| (0..k).map(|q| a.f(i / n * k + q) * w.f(q * n + i % n)).sum());
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 1.0 };
    let (x, z, y) = (b.input(a), b.input(w), b.output(want));
    let blocks = n / (tn * l);
    let g = b.launch(m / tm * blocks);
    let nb = b.g.idx(blocks as i64);
    let (mb, nb) = (b.g.binary(Op::Idiv, g, nb), b.g.binary(Op::Imod, g, nb));
    let (mi, ni) = (b.tile(tm, AxisKind::Upcast, false), b.tile(tn, AxisKind::Upcast, false));
    let mut ns = vec![(ni, l as i64)];
    if l > 1 {
        ns.push((b.tile(l, AxisKind::Upcast, true), 1));
    }
    let zero = b.g.float(0.0, F32);
    let axes: Vec<UOp> = [mi].into_iter().chain(ns.iter().map(|s| s.0)).collect();
    let acc = b.acc(0, zero, &axes);
    let r = b.open(k, AxisKind::Reduce);
    let row = b.times(mb, (tm * k) as i64);
    let col = b.times(nb, (tn * l) as i64);
    let at_a = b.g.binary(Op::Add, row, r);
    let at_b = b.lin(r, n as i64, col);
    let (av, bv) = (b.load(x, at_a, &[(mi, k as i64)], F32), b.load(z, at_b, &ns, F32));
    let u = b.mul_add(acc, av, bv);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    let at = b.lin(mb, (tm * n) as i64, col);
    let mut strides = vec![(mi, n as i64)];
    strides.extend(ns);
    b.store(y, at, &strides, v);
    b.finish(&format!("matmul_{m}_{n}_{k}"))
}

/// Row reduction: a loop with an accumulator per lane and register (Accum), folded at the end.
fn reduce_rows(t: &Target, op: ReduceOp, src: Data, want: Data, name: &str) -> Sample {
    let (l, regs) = (lanes(t), 2);
    let rows = want.values.len();
    let cols = src.values.len() / rows;
    let dt = src.dt;
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 1.0 };
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(rows);
    let reg = b.tile(regs, AxisKind::Accum, false);
    let mut axes = vec![(reg, l as i64)];
    if l > 1 {
        axes.push((b.tile(l, AxisKind::Accum, true), 1));
    }
    let ranges: Vec<UOp> = axes.iter().map(|a| a.0).collect();
    let init = b.g.constant(op.identity(dt), dt);
    let init = if op == ReduceOp::Max && dt == F32 { b.g.float(f64::NEG_INFINITY, F32) } else { init };
    let acc = b.acc(0, init, &ranges);
    let r = b.open(cols / (regs * l), AxisKind::Reduce);
    let base = b.times(i, cols as i64);
    let at = b.lin(r, (regs * l) as i64, base);
    let v = b.load(x, at, &axes, dt);
    let u = b.update(acc, v, op);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    let v = b.fold(v, &ranges, op);
    b.store(y, i, &[], v);
    b.finish(name)
}

fn row_sum(t: &Target) -> Sample {
    let (rows, cols) = (4, 96);
    let src = Data::new(F32, rows * cols, noise);
    let want = Data::new(F32, rows, |r| (0..cols).map(|c| src.f(r * cols + c)).sum());
    reduce_rows(t, ReduceOp::Add, src, want, "row_sum")
}

/// One row has a NaN and must give NaN; one is all minus infinity.
fn row_max(t: &Target) -> Sample {
    let (rows, cols) = (4, 96);
    let mut src = with_nan(Data::new(F32, rows * cols, noise), 2 * cols + 41);
    for v in &mut src.values[3 * cols..] {
        *v = gradloom_core::dtype::Scalar::float(f64::NEG_INFINITY);
    }
    let want = Data::new(F32, rows, |r| match r {
        2 => f64::NAN,
        _ => (0..cols).map(|c| src.f(r * cols + c)).fold(f64::NEG_INFINITY, f64::max),
    });
    reduce_rows(t, ReduceOp::Max, src, want, "row_max")
}

fn int_sum(t: &Target) -> Sample {
    let (rows, cols) = (4, 96);
    let src = Data::new(I32, rows * cols, |i| (i * 7919 % 1000) as f64 * 1e6 - 5e8);
    let want = Data {
        dt: I32,
        values: (0..rows)
            .map(|r| {
                let s: i64 = (0..cols).map(|c| src.values[r * cols + c].as_i64()).sum();
                super::alu::wrap(s as i128, I32)
            })
            .collect(),
    };
    reduce_rows(t, ReduceOp::Add, src, want, "int_sum")
}

fn long_sum(t: &Target) -> Sample {
    let (rows, cols) = (2, 96);
    let src = Data::new(I64, rows * cols, |i| (i as f64 - 90.0) * 1e12);
    let want = Data::new(I64, rows, |r| (0..cols).map(|c| src.f(r * cols + c)).sum());
    reduce_rows(t, ReduceOp::Add, src, want, "long_sum")
}

/// An accumulator without the unrolled axis: each update folds 4 values in order.
fn unrolled(t: &Target) -> Sample {
    let l = lanes(t);
    let (k, n) = (12, 2 * l);
    let src = Data::new(F32, k * n, noise);
    let want = Data::new(F32, n, |c| (0..k).map(|q| src.f(q * n + c)).sum());
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 1.0 };
    let (x, y) = (b.input(src), b.output(want));
    let g = b.launch(2);
    let un = b.tile(4, AxisKind::Unroll, false);
    let lane = if l > 1 { vec![(b.tile(l, AxisKind::Upcast, true), 1)] } else { vec![] };
    let zero = b.g.float(0.0, F32);
    let axes: Vec<UOp> = lane.iter().map(|a| a.0).collect();
    let acc = b.acc(0, zero, &axes);
    let r = b.open(k / 4, AxisKind::Reduce);
    let col = b.times(g, l as i64);
    let at = b.lin(r, 4 * n as i64, col);
    let mut strides = vec![(un, n as i64)];
    strides.extend(&lane);
    let v = b.load(x, at, &strides, F32);
    let u = b.update(acc, v, ReduceOp::Add);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    b.store(y, col, &lane, v);
    b.finish("unrolled")
}

/// Max, then sum of differences, then a normalised store: three loops over one row.
fn softmax(t: &Target) -> Sample {
    let l = lanes(t);
    let (rows, cols) = (3, 4 * l);
    let src = Data::new(F32, rows * cols, noise);
    let row = |r: usize| (0..cols).map(move |c| r * cols + c);
    let want = Data::new(F32, rows * cols, |i| {
        let r = i / cols;
        let m = row(r).map(|j| src.f(j)).fold(f64::NEG_INFINITY, f64::max);
        let s: f64 = row(r).map(|j| (src.f(j) - m) * (src.f(j) - m)).sum();
        (src.f(i) - m) / s
    });
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 0.01 };
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(rows);
    let base = b.times(i, cols as i64);
    let acc_lane = if l > 1 { vec![(b.tile(l, AxisKind::Accum, true), 1)] } else { vec![] };
    let axes: Vec<UOp> = acc_lane.iter().map(|a| a.0).collect();
    let ninf = b.g.float(f64::NEG_INFINITY, F32);
    let acc = b.acc(0, ninf, &axes);
    let r = b.open(4, AxisKind::Reduce);
    let at = b.lin(r, l as i64, base);
    let v = b.load(x, at, &acc_lane, F32);
    let u = b.update(acc, v, ReduceOp::Max);
    let e = b.end(r, &[u]);
    let m = b.read(acc, &[e]);
    let m = b.fold(m, &axes, ReduceOp::Max);
    b.place(m);
    let zero = b.g.float(0.0, F32);
    let acc = b.acc(1, zero, &axes);
    let r = b.open(4, AxisKind::Reduce);
    let at = b.lin(r, l as i64, base);
    let v = b.load(x, at, &acc_lane, F32);
    let d = b.g.binary(Op::Sub, v, m);
    let u = b.mul_add(acc, d, d);
    let e = b.end(r, &[u]);
    let s = b.read(acc, &[e]);
    let s = b.fold(s, &axes, ReduceOp::Add);
    let inv = b.g.unary(Op::Recip, s);
    b.place(inv);
    let r = b.open(4, AxisKind::Loop);
    let at = b.lin(r, l as i64, base);
    let v = b.load(x, at, &acc_lane, F32);
    let d = b.g.binary(Op::Sub, v, m);
    let q = b.g.binary(Op::Mul, d, inv);
    let s = b.store(y, at, &acc_lane, q);
    b.end(r, &[s]);
    b.finish("softmax")
}

/// `log2(sum(exp2(x)))` per row, on targets with these functions.
fn exp_sum(t: &Target) -> Sample {
    let n = 8;
    let src = Data::new(F32, 4 * n, noise);
    let want = Data::new(F32, 4, |r| (0..n).map(|c| src.f(r * n + c).exp2()).sum::<f64>().log2());
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 1.0 };
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(4);
    let zero = b.g.float(0.0, F32);
    let acc = b.acc(0, zero, &[]);
    let r = b.open(n, AxisKind::Reduce);
    let at = b.lin(i, n as i64, r);
    let v = b.load(x, at, &[], F32);
    let v = b.g.unary(Op::Exp2, v);
    let u = b.update(acc, v, ReduceOp::Add);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    let v = b.g.unary(Op::Log2, v);
    b.store(y, i, &[], v);
    b.finish("exp_sum")
}

/// A reduction inside an output loop inside the launch: the accumulator starts anew each time round.
fn nested(t: &Target) -> Sample {
    let (rows, mids, k) = (4, 3, 5);
    let src = Data::new(F32, rows * mids * k, noise);
    let want = Data::new(F32, rows * mids, |i| 1.0 + (0..k).map(|q| src.f(i * k + q)).sum::<f64>());
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 1.0 };
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(rows);
    let j = b.open(mids, AxisKind::Loop);
    let one = b.g.float(1.0, F32);
    let acc = b.acc(0, one, &[]);
    let r = b.open(k, AxisKind::Reduce);
    let row = b.lin(i, mids as i64, j);
    let at = b.lin(row, k as i64, r);
    let v = b.load(x, at, &[], F32);
    let u = b.update(acc, v, ReduceOp::Add);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    let s = b.store(y, row, &[], v);
    b.end(j, &[s]);
    b.finish("nested")
}

/// 1-d convolution with a gate in the reduction loop: an unaligned gated lane load.
fn window(t: &Target) -> Sample {
    let l = lanes(t);
    let n = 4 * l;
    let (src, w) = (Data::new(F32, n, noise), Data::new(F32, 3, |i| noise(i + 5)));
    let want =
        Data::new(F32, n, |i| (0..3).filter(|q| i + q >= 1 && i + q - 1 < n).map(|q| src.f(i + q - 1) * w.f(q)).sum());
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-5, floor: 1.0 };
    let (x, z, y) = (b.input(src), b.input(w), b.output(want));
    let g = b.launch(4);
    let lane = if l > 1 { vec![(b.tile(l, AxisKind::Upcast, true), 1)] } else { vec![] };
    let axes: Vec<UOp> = lane.iter().map(|a| a.0).collect();
    let zero = b.g.float(0.0, F32);
    let acc = b.acc(0, zero, &axes);
    let r = b.open(3, AxisKind::Reduce);
    let base = b.times(g, l as i64);
    let at = b.g.binary(Op::Add, base, r);
    let at = b.plus(at, -1);
    let pos = axes.first().map_or(at, |&lane| b.g.binary(Op::Add, at, lane));
    let (neg, end) = (b.g.idx(-1), b.g.idx(n as i64));
    let (ge, lt) = (b.g.binary(Op::CmpLt, neg, pos), b.g.binary(Op::CmpLt, pos, end));
    let gate = b.g.binary(Op::And, ge, lt);
    let from = b.at(x, at, &lane);
    let v = b.g.load_gated(from, zero, gate);
    let wv = b.load(z, r, &[], F32);
    let u = b.mul_add(acc, v, wv);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    b.store(y, base, &lane, v);
    b.finish("window")
}

/// No launch range at all.
fn copy_once(t: &Target) -> Sample {
    let src = Data::new(F32, 3, noise);
    let mut b = Build::new(t);
    let (x, y) = (b.input(src.clone()), b.output(src));
    let r = b.open(3, AxisKind::Loop);
    let v = b.load(x, r, &[], F32);
    let s = b.store(y, r, &[], v);
    b.end(r, &[s]);
    b.finish("copy_once")
}

/// Workgroup memory: each thread writes one element, all read their neighbour's after the barrier.
fn workgroup(t: &Target) -> Sample {
    let n = 16;
    let src = Data::new(F32, 3 * n, noise);
    let want = Data::new(F32, 3 * n, |i| src.f(i / n * n + n - 1 - i % n));
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let (g, th) = (b.launch_axis(AxisKind::Grid(0), 3), b.launch_axis(AxisKind::Local(0), n));
    let mem = b.g.node(Op::Scratch, F32, &[], Arg::Scratch { id: 0, len: n, space: Space::Workgroup });
    let at = b.lin(g, n as i64, th);
    let v = b.load(x, at, &[], F32);
    let s = b.store(mem, th, &[], v);
    let bar = b.g.node(Op::Barrier, Void, &[s], Arg::None);
    b.place(bar);
    let last = b.g.idx(n as i64 - 1);
    let other = b.g.binary(Op::Sub, last, th);
    let v = b.load(mem, other, &[], F32);
    b.store(y, at, &[], v);
    b.finish("workgroup")
}

/// All three grid and local dimensions.
fn grid3(t: &Target) -> Sample {
    let dims = [2usize, 3, 2];
    let loc = [2usize, 2, 2];
    let n: usize = dims.iter().chain(&loc).product();
    let want = Data::new(I32, n, |i| i as f64);
    let mut b = Build::new(t);
    let y = b.output(want);
    let mut at = b.g.idx(0);
    for d in 0..3u8 {
        let g = b.launch_axis(AxisKind::Grid(d), dims[d as usize]);
        at = b.lin(at, dims[d as usize] as i64, g);
    }
    for d in 0..3u8 {
        let l = b.launch_axis(AxisKind::Local(d), loc[d as usize]);
        at = b.lin(at, loc[d as usize] as i64, l);
    }
    b.store(y, at, &[], at);
    b.finish("grid3")
}

/// Private scratch, filled once per slice and read with another stride.
fn private(t: &Target) -> Sample {
    let l = lanes(t);
    let n = 2 * l;
    let src = Data::new(F32, 3 * n, noise);
    let want = Data::new(F32, 3 * n, |i| src.f(i / n * n + n - 1 - i % n));
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let g = b.launch(3);
    let mem = b.g.node(Op::Scratch, F32, &[], Arg::Scratch { id: 0, len: n, space: Space::Private });
    let lane = if l > 1 { vec![(b.tile(l, AxisKind::Upcast, true), 1)] } else { vec![] };
    let row = b.times(g, n as i64);
    let i = b.open(2, AxisKind::Loop);
    let at = b.lin(i, l as i64, row);
    let v = b.load(x, at, &lane, F32);
    let to = b.times(i, l as i64);
    let s = b.store(mem, to, &lane, v);
    b.end(i, &[s]);
    let j = b.open(n, AxisKind::Loop);
    let last = b.g.idx(n as i64 - 1);
    let from = b.g.binary(Op::Sub, last, j);
    let v = b.load(mem, from, &[], F32);
    let at = b.g.binary(Op::Add, row, j);
    let s = b.store(y, at, &[], v);
    b.end(j, &[s]);
    debug_assert!(t.lang != Lang::Wgsl);
    b.finish("private")
}
