//! Kernels with staged operands, through the whole of code generation: tiles of a matmul and of convolutions, blocked and
//! packed in different ways, of lengths that nothing divides.

use super::build::noise;
use super::{Data, Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::DType::{self, F32};
use gradloom_core::codegen::{Level, Opt, Staging, compile};
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::uop::{AxisKind, Graph, Op, ReduceOp, UOp};

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    if t.caps.has_local {
        out.extend([false, true].map(|transposed| shared(t, transposed)));
        out.extend([true, false].map(|transposed| shared_edges(t, transposed)));
        out.extend([1, 2].map(|stride| shared_halo(t, stride)));
        out.extend([(12, false), (12, true), (13, true)].map(|(w, all)| window(t, w, all)));
        // the heuristic's choice
        out.push(matmul(t, "tiled_128", [128, 128, 40], false, F32, None));
        out.push(matmul(t, "tiled_edges", [130, 67, 33], true, F32, None));
        out.push(padded_conv(t, "tiled_conv", 1, 64, None));
        return;
    }
    out.extend([false, true].map(|transposed| panels(t, transposed)));
    out.push(whole(t));
    out.push(short(t));
    for (stride, kind) in [(1, AxisKind::Loop), (2, AxisKind::Loop), (2, AxisKind::Reduce)] {
        out.extend([false, true].map(|apart| conv(t, stride, kind, apart)));
    }
}

fn lanes(t: &Target) -> usize {
    t.caps.lanes.max(2)
}

fn linear(g: &mut Graph, terms: &[(UOp, usize)]) -> UOp {
    let mut at = g.idx(0);
    for &(r, stride) in terms {
        let stride = g.idx(stride as i64);
        let x = g.binary(Op::Mul, r, stride);
        at = g.binary(Op::Add, at, x);
    }
    at
}

fn sample(name: &str, t: &Target, ast: &Ast, opts: Option<&[Opt]>, inputs: Vec<Data>, want: Data) -> Sample {
    let mut program = compile(ast, t, opts).unwrap_or_else(|e| panic!("{name}: {e}"));
    program.name = name.into();
    let mut data = vec![Data::new(want.dt, want.values.len(), |_| -7.0)];
    let mut wants = vec![Some(want.values)];
    wants.extend(inputs.iter().map(|_| None));
    data.extend(inputs);
    Sample { program, data, want: wants, vars: Vec::new(), tol: Tol::Rel { rel: 1e-5, floor: 1.0 } }
}

/// `y[i, j] = sum_k a[i, k] * b[k, j]`, or `b[j, k]`; ranges 0, 1, 2.
fn matmul(t: &Target, name: &str, [m, n, k]: [usize; 3], transposed: bool, dt: DType, opts: Option<&[Opt]>) -> Sample {
    let mut g = Graph::new();
    let (i, j) = (g.range(m, 0, AxisKind::Loop), g.range(n, 1, AxisKind::Loop));
    let r = g.range(k, 2, AxisKind::Reduce);
    let (sk, sj) = if transposed { (1, k) } else { (n, 1) };
    let load = |g: &mut Graph, slot: u32, len: usize, terms: &[(UOp, usize)]| {
        let (p, at) = (g.param(slot, dt, len), linear(g, terms));
        let index = g.index(p, at);
        let v = g.load(index);
        g.cast(v, F32)
    };
    let a = load(&mut g, 1, m * k, &[(i, k), (r, 1)]);
    let b = load(&mut g, 2, n * k, &[(r, sk), (j, sj)]);
    let x = g.binary(Op::Mul, a, b);
    let sum = g.reduce_over(x, ReduceOp::Add, &[r]);
    let (p, at) = (g.param(0, F32, m * n), linear(&mut g, &[(i, n), (j, 1)]));
    let index = g.index(p, at);
    let store = g.store(index, sum);
    let sink = g.sink(&[store]);
    let (a, b) = (Data::new(dt, m * k, noise), Data::new(dt, n * k, |i| noise(i + 11)));
    let want = Data::new(F32, m * n, |e| {
        let (i, j) = (e / n, e % n);
        (0..k).map(|q| a.f(i * k + q) * b.f(q * sk + j * sj)).sum()
    });
    sample(name, t, &Ast::new(g, sink), opts, vec![a, b], want)
}

/// A panel of each operand, at levels of their own, under loops that changed places.
fn panels(t: &Target, transposed: bool) -> Sample {
    let l = lanes(t);
    let dt = if transposed { F32 } else { DType::I16 };
    let opts = [
        Opt::upcast(0, 3),
        Opt::lane(1, 2 * l),
        Opt::split(1, 2),
        Opt::swap(0, 1),
        Opt::unroll(2, 2),
        Opt::stage(2, Level::In(0)),
        Opt::stage(1, Level::In(1)),
    ];
    let name = if transposed { "stage_panels_t" } else { "stage_panels" };
    matmul(t, name, [11, 7 * l + 3, 4 * l + 6], transposed, dt, Some(&opts))
}

/// Tiles of both operands in workgroup memory, step by step.
fn shared(t: &Target, transposed: bool) -> Sample {
    let opts = [
        Opt::lane(1, 4),
        Opt::local(1, 8),
        Opt::upcast(0, 4),
        Opt::local(0, 4),
        Opt::split(2, 8),
        Opt::unroll(7, 4),
        Opt::stage(1, Level::In(2)),
        Opt::stage(2, Level::In(2)),
    ];
    let name = if transposed { "shared_tiles_t" } else { "shared_tiles" };
    matmul(t, name, [32, 64, 24], transposed, F32, Some(&opts))
}

/// Lengths that nothing divides: padded outputs, a padded reduction, more threads than there is to copy.
fn shared_edges(t: &Target, transposed: bool) -> Sample {
    let opts = [
        Opt::pad(0, 16),
        Opt::pad(1, 32),
        Opt::pad(2, 6),
        Opt::lane(1, 4),
        Opt::upcast(1, 2),
        Opt::local(1, 4),
        Opt::upcast(0, 2),
        Opt::local(0, 8),
        Opt::split(2, 6),
        Opt::stage(1, Level::In(2)),
        Opt::stage(2, if transposed { Level::In(2) } else { Level::Outside }),
    ];
    let name = if transposed { "shared_edges_t" } else { "shared_edges" };
    matmul(t, name, [29, 33, 21], transposed, F32, Some(&opts))
}

/// Windows of a convolution that threads share, over all input channels or one at a time.
fn shared_halo(t: &Target, stride: usize) -> Sample {
    let level = if stride == 1 { Level::In(3) } else { Level::Outside };
    let opts = [
        Opt::pad(2, 8),
        Opt::lane(2, 4),
        Opt::local(2, 2),
        Opt::upcast(1, 3),
        Opt::pad(0, 8),
        Opt::upcast(0, 2),
        Opt::local(0, 2),
        Opt::unroll(5, 3),
        Opt::stage(1, level),
        Opt::stage(2, level),
    ];
    padded_conv(t, &format!("shared_halo_{stride}"), stride, 13, Some(&opts))
}

/// Windows of a padded convolution side by side, and with `all` their rows too: elements that several of them share.
fn window(t: &Target, w: usize, all: bool) -> Sample {
    let mut opts = vec![Opt::pad(2, 4), Opt::lane(2, 4), Opt::upcast(1, 2), Opt::unroll(5, 3)];
    if all {
        opts.push(Opt::unroll(4, 3));
    }
    padded_conv(t, &format!("window_{w}_{}", if all { "all" } else { "row" }), 1, w, Some(&opts))
}

/// One operand as a whole, the other a row at a time.
fn whole(t: &Target) -> Sample {
    let l = lanes(t);
    let opts = [Opt::lane(1, l), Opt::stage(2, Level::Outside), Opt::stage(1, Level::In(0))];
    matmul(t, "stage_whole", [5, 3 * l + 1, 2 * l + 1], true, F32, Some(&opts))
}

/// Axes shorter than a vector, and a reduction in two loops with a stage between them.
fn short(t: &Target) -> Sample {
    let opts = [Opt::upcast(0, 2), Opt::split(2, 3), Opt::stage(2, Level::In(2)), Opt::stage(1, Level::In(0))];
    matmul(t, "stage_short", [4, 5, 12], false, F32, Some(&opts))
}

/// A padded convolution whose input is staged inside of `level`.
fn conv(t: &Target, stride: usize, level: AxisKind, apart: bool) -> Sample {
    let l = lanes(t);
    let w = 2 * l + 5;
    let ow = (w - 1) / stride + 1;
    let mut opts = vec![Opt::upcast(0, 2), Opt::lane(2, if ow > l { l } else { 2 })];
    let windows = |level| Opt::Stage(Staging { param: 1, load: 0, level, separate_windows: apart });
    match level {
        AxisKind::Loop => opts.extend([Opt::swap(0, 1), windows(Level::In(0)), Opt::stage(2, Level::Outside)]),
        _ => opts.extend([Opt::upcast(1, 3), windows(Level::In(3)), Opt::stage(2, Level::In(3))]),
    }
    let kind = if level == AxisKind::Loop { "loop" } else { "reduce" };
    let name = format!("stage_conv{stride}_{kind}{}", if apart { "_apart" } else { "" });
    padded_conv(t, &name, stride, w, Some(&opts))
}

/// A padded convolution of rows of `w`: `[co, y, x, ci, ky, kx]` are ranges 0 to 5.
fn padded_conv(t: &Target, name: &str, stride: usize, w: usize, opts: Option<&[Opt]>) -> Sample {
    let (co, ci, h, k) = (5usize, 3usize, 6usize, 3usize);
    let (oh, ow) = ((h - 1) / stride + 1, (w - 1) / stride + 1);
    let mut g = Graph::new();
    let lens = [co, oh, ow, ci, k, k];
    let r: Vec<UOp> =
        (0..6u8).map(|i| g.range(lens[i as usize], i, if i < 3 { AxisKind::Loop } else { AxisKind::Reduce })).collect();
    let mut inside = g.bool(true);
    let mut coord = |g: &mut Graph, out: UOp, tap: UOp, n: usize| {
        let at = linear(g, &[(out, stride), (tap, 1)]);
        let minus = g.idx(-1);
        let at = g.binary(Op::Add, at, minus);
        let (n, below) = (g.idx(n as i64), g.binary(Op::CmpLt, minus, at));
        let fits = g.binary(Op::CmpLt, at, n);
        let both = g.binary(Op::And, below, fits);
        inside = g.binary(Op::And, inside, both);
        at
    };
    let (y, x) = (coord(&mut g, r[1], r[4], h), coord(&mut g, r[2], r[5], w));
    let at = linear(&mut g, &[(r[3], h * w), (y, w), (x, 1)]);
    let p = g.param(1, F32, ci * h * w);
    let index = g.index(p, at);
    let zero = g.float(0.0, F32);
    let input = g.load_gated(index, zero, inside);
    let at = linear(&mut g, &[(r[0], ci * k * k), (r[3], k * k), (r[4], k), (r[5], 1)]);
    let p = g.param(2, F32, co * ci * k * k);
    let index = g.index(p, at);
    let weight = g.load(index);
    let product = g.binary(Op::Mul, weight, input);
    let sum = g.reduce_over(product, ReduceOp::Add, &[r[3], r[4], r[5]]);
    let at = linear(&mut g, &[(r[0], oh * ow), (r[1], ow), (r[2], 1)]);
    let p = g.param(0, F32, co * oh * ow);
    let index = g.index(p, at);
    let store = g.store(index, sum);
    let sink = g.sink(&[store]);
    let (xs, ws) = (Data::new(F32, ci * h * w, noise), Data::new(F32, co * ci * k * k, |i| noise(i + 5)));
    let want = Data::new(F32, co * oh * ow, |e| {
        let (o, y, x) = (e / (oh * ow), e / ow % oh, e % ow);
        let tap = |i: usize| {
            let (c, dy, dx) = (i / (k * k), i / k % k, i % k);
            let (iy, ix) = ((y * stride + dy).wrapping_sub(1), (x * stride + dx).wrapping_sub(1));
            if iy < h && ix < w { xs.f((c * h + iy) * w + ix) * ws.f(o * ci * k * k + i) } else { 0.0 }
        };
        (0..ci * k * k).map(tap).sum()
    });
    sample(name, t, &Ast::new(g, sink), opts, vec![xs, ws], want)
}
