//! How tiles read and write memory: strides, broadcasts, gates, gathers, iota, folds.

use super::build::{Build, Data, noise, stored};
use super::{Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::DType::{self, BF16, Bool, F16, F32, I16, I32, U8};
use gradloom_core::dtype::Scalar;
use gradloom_core::target::Target;
use gradloom_core::uop::{AxisKind, Op, ReduceOp, UOp};

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    out.extend([pad_lanes(t), pad_rows(t), gated_store(t), transpose(t), flip(t), broadcast(t), gather(t), iota(t)]);
    out.extend([unaligned(t), odd_lanes(t), bool_mask(t), scalars(t), outer_product(t)]);
    for dt in [F32, I32, F16, BF16, U8, I16] {
        out.extend([woven(t, dt, 0), woven(t, dt, 3), woven(t, dt, lanes(t) + 4)]);
    }
    for op in [ReduceOp::Add, ReduceOp::Max, ReduceOp::Min, ReduceOp::Mul] {
        out.push(fold_all(t, op));
    }
}

fn lanes(t: &Target) -> usize {
    t.caps.lanes.max(1)
}

/// The lane axis, or nothing on a scalar target.
fn lane_axis(b: &mut Build) -> Vec<(UOp, i64)> {
    match lanes(b.t) {
        1 => Vec::new(),
        l => vec![(b.tile(l, AxisKind::Upcast, true), 1)],
    }
}

/// A lane axis as a value: its iota, or 0 on a scalar target.
fn lane_value(b: &mut Build, axis: &[(UOp, i64)]) -> UOp {
    axis.first().map_or_else(|| b.g.idx(0), |a| a.0)
}

/// One row padded left and right: the gate differs per lane.
fn pad_lanes(t: &Target) -> Sample {
    let (n, before) = (lanes(t).max(2) * 6, 3usize);
    let src = Data::new(F32, n - before - 5, noise);
    let want = Data::new(F32, n, |i| if i >= before && i < n - 5 { src.f(i - before) } else { -0.25 });
    let len = src.values.len() as i64;
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(n / lanes(t));
    let axis = lane_axis(&mut b);
    let base = b.times(i, lanes(t) as i64);
    let lane = lane_value(&mut b, &axis);
    let pos = b.g.binary(Op::Add, base, lane);
    let (lo, hi) = (b.g.idx(before as i64 - 1), b.g.idx(before as i64 + len));
    let (ge, lt) = (b.g.binary(Op::CmpLt, lo, pos), b.g.binary(Op::CmpLt, pos, hi));
    let gate = b.g.binary(Op::And, ge, lt);
    let off = b.plus(base, -(before as i64));
    let at = b.at(x, off, &axis);
    let alt = b.g.float(-0.25, F32);
    let v = b.g.load_gated(at, alt, gate);
    b.store(y, base, &axis, v);
    b.finish("pad_lanes")
}

/// Rows padded: one gate for all lanes of a row.
fn pad_rows(t: &Target) -> Sample {
    let (rows, cols) = (5, lanes(t) * 2);
    let src = Data::new(F32, 3 * cols, noise);
    let want = Data::new(F32, rows * cols, |i| {
        let r = i / cols;
        if (1..4).contains(&r) { src.f(i - cols) } else { 0.0 }
    });
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let r = b.launch(rows);
    let mut axis = vec![(b.tile(2, AxisKind::Upcast, false), lanes(t) as i64)];
    axis.extend(lane_axis(&mut b));
    let (zero, four) = (b.g.idx(0), b.g.idx(4));
    let (ge, lt) = (b.g.binary(Op::CmpLt, zero, r), b.g.binary(Op::CmpLt, r, four));
    let gate = b.g.binary(Op::And, ge, lt);
    let row = b.times(r, cols as i64);
    let off = b.plus(row, -(cols as i64));
    let at = b.at(x, off, &axis);
    let alt = b.g.float(0.0, F32);
    let v = b.g.load_gated(at, alt, gate);
    b.store(y, row, &axis, v);
    b.finish("pad_rows")
}

/// A length that is no multiple of the lanes: the last store is gated.
fn gated_store(t: &Target) -> Sample {
    let steps = 4;
    let n = lanes(t) * steps - lanes(t) / 2 - 1;
    let n = n.max(1);
    let src = Data::new(F32, n, noise);
    let want = Data::new(F32, n + 2, |i| if i < n { src.f(i) * 2.0 } else { 7.0 });
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(steps);
    let axis = lane_axis(&mut b);
    let base = b.times(i, lanes(t) as i64);
    let lane = lane_value(&mut b, &axis);
    let pos = b.g.binary(Op::Add, base, lane);
    let end = b.g.idx(n as i64);
    let gate = b.g.binary(Op::CmpLt, pos, end);
    let at = b.at(x, base, &axis);
    let alt = b.g.float(0.0, F32);
    let v = b.g.load_gated(at, alt, gate);
    let two = b.g.float(2.0, F32);
    let v = b.g.binary(Op::Mul, v, two);
    let to = b.at(y, base, &axis);
    let s = b.g.node(Op::Store, gradloom_core::DType::Void, &[to, v, gate], gradloom_core::uop::Arg::None);
    b.place(s);
    b.finish("gated_store")
}

/// `out[j, i] = x[i, j]`: strided lanes in, contiguous lanes out.
fn transpose(t: &Target) -> Sample {
    let l = lanes(t);
    let (rows, cols) = (l * 2, 6);
    let src = Data::new(F32, rows * cols, noise);
    let want = Data::new(F32, rows * cols, |k| src.f((k % rows) * cols + k / rows));
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let j = b.launch(cols);
    let reg = b.tile(2, AxisKind::Upcast, false);
    let lane = lane_axis(&mut b);
    let mut ins = vec![(reg, (l * cols) as i64)];
    let mut outs = vec![(reg, l as i64)];
    for &(r, _) in &lane {
        ins.push((r, cols as i64));
        outs.push((r, 1));
    }
    let v = b.load(x, j, &ins, F32);
    let at = b.times(j, rows as i64);
    b.store(y, at, &outs, v);
    b.finish("transpose")
}

/// Rows of two inputs by turns, some lanes more than a register has: the elements of one lie between those of the other.
fn woven(t: &Target, dt: DType, more: usize) -> Sample {
    let more = if t.caps.has_local || t.caps.lanes <= 1 { 0 } else { more };
    let (n, rows) = (lanes(t) + more, 3);
    let value = |i: usize| (i * 5 % 97) as f64;
    let (first, second) = (Data::new(dt, rows * n, value), Data::new(dt, rows * n, |i| value(i + 31)));
    let both: Vec<f64> = (0..2 * rows * n).map(|i| if i % 2 == 0 { first.f(i / 2) } else { second.f(i / 2) }).collect();
    let held = stored(t, dt);
    let all = Data::new(held, 2 * rows * n, |i| if i < rows * n { first.f(i) } else { second.f(i - rows * n) });
    let mut b = Build::new(t);
    let (x, y) = (b.input(all), b.output(Data::new(held, 2 * rows * n, |i| both[i])));
    let row = b.launch(rows);
    let turn = b.tile(2, AxisKind::Upcast, false);
    let lane = if n > 1 { Some(b.tile(n, AxisKind::Upcast, true)) } else { None };
    let strides = |of_turn: usize, of_lane: i64| -> Vec<(UOp, i64)> {
        [(turn, of_turn as i64)].into_iter().chain(lane.map(|l| (l, of_lane))).collect()
    };
    let (from, to) = (b.times(row, n as i64), b.times(row, 2 * n as i64));
    let v = b.load(x, from, &strides(rows * n, 1), dt);
    b.store(y, to, &strides(1, 2), v);
    b.finish(&format!("woven_{dt}_{more}"))
}

/// Reversed: negative lane stride.
fn flip(t: &Target) -> Sample {
    let l = lanes(t);
    let n = 4 * l;
    let src = Data::new(F32, n, noise);
    let want = Data::new(F32, n, |i| src.f(n - 1 - i));
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(4);
    let lane = lane_axis(&mut b);
    let back: Vec<(UOp, i64)> = lane.iter().map(|&(r, _)| (r, -1)).collect();
    let to = b.times(i, l as i64);
    let end = b.g.idx(n as i64 - 1);
    let from = b.g.binary(Op::Sub, end, to);
    let v = b.load(x, from, &back, F32);
    b.store(y, to, &lane, v);
    b.finish("flip")
}

/// Row plus column: operands with different tile axes.
fn broadcast(t: &Target) -> Sample {
    let l = lanes(t);
    let (rows, cols) = (6, 2 * l);
    let (a, c) = (Data::new(F32, rows, noise), Data::new(F32, cols, |i| noise(i + 50)));
    let want = Data::new(F32, rows * cols, |k| a.f(k / cols) - c.f(k % cols));
    let mut b = Build::new(t);
    let (x, z, y) = (b.input(a), b.input(c), b.output(want));
    let i = b.launch(rows / 3 * 2);
    // launch = 2 row blocks x 2 column blocks
    let two = b.g.idx(2);
    let (rb, cb) = (b.g.binary(Op::Idiv, i, two), b.g.binary(Op::Imod, i, two));
    let reg = b.tile(3, AxisKind::Upcast, false);
    let lane = lane_axis(&mut b);
    let row = b.times(rb, 3);
    let col = b.times(cb, l as i64);
    let av = b.load(x, row, &[(reg, 1)], F32);
    let cv = b.load(z, col, &lane, F32);
    let v = b.g.binary(Op::Sub, av, cv);
    let at = b.lin(row, cols as i64, col);
    let mut strides = vec![(reg, cols as i64)];
    strides.extend(lane);
    b.store(y, at, &strides, v);
    b.finish("broadcast")
}

/// `out[i] = table[idx[i]]`, 0 where the index is outside: a tile offset and a tile gate.
fn gather(t: &Target) -> Sample {
    let n = 4 * lanes(t);
    let table = Data::new(F32, 11, noise);
    let idx = Data::new(I32, n, |i| (i * 7 % 15) as f64 - 2.0);
    let want = Data::new(F32, n, |i| {
        let k = idx.f(i);
        if (0.0..11.0).contains(&k) { table.f(k as usize) } else { 0.0 }
    });
    let mut b = Build::new(t);
    let (x, ix, y) = (b.input(table), b.input(idx), b.output(want));
    let i = b.launch(4);
    let lane = lane_axis(&mut b);
    let base = b.times(i, lanes(t) as i64);
    let k = b.load(ix, base, &lane, I32);
    let (neg, end) = (b.g.idx(-1), b.g.idx(11));
    let (ge, lt) = (b.g.binary(Op::CmpLt, neg, k), b.g.binary(Op::CmpLt, k, end));
    let gate = b.g.binary(Op::And, ge, lt);
    let at = b.g.index(x, k);
    let alt = b.g.float(0.0, F32);
    let v = b.g.load_gated(at, alt, gate);
    b.store(y, base, &lane, v);
    b.finish("gather")
}

/// Tile ranges used as values.
fn iota(t: &Target) -> Sample {
    let l = lanes(t);
    let n = 12 * l;
    let want = Data::new(I32, n, |i| (i * i) as f64);
    let mut b = Build::new(t);
    let y = b.output(want);
    let i = b.launch(4);
    let reg = b.tile(3, AxisKind::Upcast, false);
    let lane = lane_axis(&mut b);
    let base = b.times(i, 3 * l as i64);
    let row = b.lin(reg, l as i64, base);
    let lv = lane_value(&mut b, &lane);
    let pos = b.g.binary(Op::Add, row, lv);
    let v = b.g.binary(Op::Mul, pos, pos);
    let mut strides = vec![(reg, l as i64)];
    strides.extend(lane);
    b.store(y, base, &strides, v);
    b.finish("iota")
}

/// Contiguous lanes from an address that is not a multiple of the lanes.
fn unaligned(t: &Target) -> Sample {
    let l = lanes(t);
    let src = Data::new(F32, 5 * l + 1, noise);
    let want = Data::new(F32, 5 * l, |i| src.f(i + 1));
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(5);
    let lane = lane_axis(&mut b);
    let base = b.times(i, l as i64);
    let from = b.plus(base, 1);
    let v = b.load(x, from, &lane, F32);
    b.store(y, base, &lane, v);
    b.finish("unaligned")
}

/// A lane axis whose extent is no register width, over bytes.
fn odd_lanes(t: &Target) -> Sample {
    let n = if t.caps.lanes > 1 { 3 } else { 1 };
    let src = Data::new(U8, 4 * n, |i| (i * 37 % 256) as f64);
    let want = Data::new(U8, 4 * n, |i| 255.0 - src.f(i));
    let (m_in, m_out) = (Data { dt: stored(t, U8), ..src }, Data { dt: stored(t, U8), ..want });
    let mut b = Build::new(t);
    let (x, y) = (b.input(m_in), b.output(m_out));
    let i = b.launch(4);
    let axis = if n > 1 { vec![(b.tile(n, AxisKind::Upcast, true), 1)] } else { vec![] };
    let base = b.times(i, n as i64);
    let v = b.load(x, base, &axis, U8);
    let c = b.g.int(255, U8);
    let v = b.g.binary(Op::Sub, c, v);
    b.store(y, base, &axis, v);
    b.finish("odd_lanes")
}

/// Bool tiles in memory, and as conditions of a broadcast Where.
fn bool_mask(t: &Target) -> Sample {
    let l = lanes(t);
    let n = 4 * l;
    let mask = Data::new(Bool, n, |i| (i % 3 == 0) as u8 as f64);
    let src = Data::new(F32, n, noise);
    let want = Data::new(F32, n, |i| if i % 3 == 0 { src.f(i) } else { -1.5 });
    let flags = Data::new(Bool, n, |i| (i % 3 != 0 || src.f(i) < 0.0) as u8 as f64);
    let mem = stored(t, Bool);
    let mut b = Build::new(t);
    let (m, x) = (b.input(Data { dt: mem, ..mask }), b.input(src));
    let (y, f) = (b.output(want), b.output(Data { dt: mem, ..flags }));
    let i = b.launch(4);
    let lane = lane_axis(&mut b);
    let at = b.times(i, l as i64);
    let cond = b.load(m, at, &lane, Bool);
    let v = b.load(x, at, &lane, F32);
    let alt = b.g.float(-1.5, F32);
    let w = b.g.select(cond, v, alt);
    b.store(y, at, &lane, w);
    let (yes, zero) = (b.g.bool(true), b.g.float(0.0, F32));
    let not = b.g.binary(Op::Xor, cond, yes);
    let neg = b.g.binary(Op::CmpLt, v, zero);
    let or = b.g.binary(Op::Or, not, neg);
    b.store(f, at, &lane, or);
    b.finish("bool_mask")
}

/// Launch scalars of both dtypes: `out[i] = x[i + shift] * scale`.
fn scalars(t: &Target) -> Sample {
    let l = lanes(t);
    let n = 4 * l;
    let (shift, scale) = (5, 1.5f32);
    let src = Data::new(F32, n + 8, noise);
    let want = Data::new(F32, n, |i| src.f(i + shift) * scale as f64);
    let mut b = Build::new(t);
    let (x, y) = (b.input(src), b.output(want));
    let sv = b.var("shift", I32, (0, 8), shift as u32);
    let fv = b.var("scale", F32, (0, 0), scale.to_bits());
    let i = b.launch(4);
    let lane = lane_axis(&mut b);
    let at = b.times(i, l as i64);
    let from = b.g.binary(Op::Add, at, sv);
    let v = b.load(x, from, &lane, F32);
    let v = b.g.binary(Op::Mul, v, fv);
    b.store(y, at, &lane, v);
    b.finish("scalars")
}

/// Registers on both axes of the output, one operand without lanes.
fn outer_product(t: &Target) -> Sample {
    let l = lanes(t);
    let (a, c) = (Data::new(F32, 4, noise), Data::new(F32, 2 * l, |i| noise(i + 9)));
    let want = Data::new(F32, 8 * l, |k| a.f(k / (2 * l)) * c.f(k % (2 * l)));
    let mut b = Build::new(t);
    b.tol = Tol::of(F32);
    let (x, z, y) = (b.input(a), b.input(c), b.output(want));
    let m = b.tile(4, AxisKind::Upcast, false);
    let n = b.tile(2, AxisKind::Upcast, false);
    let lane = lane_axis(&mut b);
    let zero = b.g.idx(0);
    let mut ns = vec![(n, l as i64)];
    ns.extend(lane);
    let (av, cv) = (b.load(x, zero, &[(m, 1)], F32), b.load(z, zero, &ns, F32));
    let v = b.g.binary(Op::Mul, av, cv);
    let mut strides = ns.clone();
    strides.push((m, 2 * l as i64));
    b.store(y, zero, &strides, v);
    b.finish("outer_product")
}

/// A fold over a register axis and the lane axis at once.
fn fold_all(t: &Target, op: ReduceOp) -> Sample {
    let (l, regs, rows) = (lanes(t), 3, 4);
    let cols = l * regs;
    let unit = |i: usize| if op == ReduceOp::Mul { 1.0 + noise(i).round() * 0.5 } else { noise(i) };
    let src = Data::new(F32, rows * cols, unit);
    let want = Data::new(F32, rows, |r| {
        let row = (0..cols).map(|c| src.f(r * cols + c));
        match op {
            ReduceOp::Add => row.sum(),
            ReduceOp::Mul => row.product(),
            ReduceOp::Max => row.fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::Min => row.fold(f64::INFINITY, f64::min),
        }
    });
    let mut b = Build::new(t);
    b.tol = Tol::Rel { rel: 1e-6, floor: 1.0 };
    let (x, y) = (b.input(src), b.output(want));
    let i = b.launch(rows);
    let reg = b.tile(regs, AxisKind::Accum, false);
    let mut axes = vec![(reg, l as i64)];
    if l > 1 {
        axes.push((b.tile(l, AxisKind::Accum, true), 1));
    }
    let at = b.times(i, cols as i64);
    let v = b.load(x, at, &axes, F32);
    let ranges: Vec<UOp> = axes.iter().map(|a| a.0).collect();
    let v = b.fold(v, &ranges, op);
    b.store(y, i, &[], v);
    b.finish(&format!("fold_{op:?}").to_lowercase())
}

/// NaN anywhere, for tests of max and min.
pub(super) fn with_nan(mut d: Data, at: usize) -> Data {
    d.values[at] = Scalar::float(f64::NAN);
    d
}
