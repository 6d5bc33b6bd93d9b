//! Row kernels through scheduler and code generation: several reductions one after the other, each with lanes of its own,
//! values that are kept, results that share a loop.

use super::build::noise;
use super::{Data, Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::DType::F32;
use gradloom_core::codegen::compile;
use gradloom_core::schedule::schedule;
use gradloom_core::target::Target;
use gradloom_core::uop::{Graph, Op, ReduceOp, UOp};

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    for (rows, row) in [(5, 100), (3, 256), (70, 12), (2, 1000), (3, 333)] {
        out.push(softmax(t, rows, row, 1));
        out.push(norm(t, rows, row));
    }
    out.push(softmax(t, 33, 40, 0));
    out.push(step(t, 96));
    if !t.caps.has_local && t.limits.threads == 1 {
        // rows and keys that tiles divide, and that they do not
        for (rows, keys, width) in [(32, 64, 32), (7, 37, 20), (19, 130, 48)] {
            out.push(attention(t, rows, keys, width));
        }
    }
}

pub(super) fn sample(name: String, t: &Target, g: &Graph, roots: &[UOp], inputs: Vec<Data>, want: Vec<Data>) -> Sample {
    let s = schedule(g, roots, inputs.len(), t).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(s.kernels.len(), 1, "{name} is one kernel");
    let k = &s.kernels[0];
    let mut program = compile(&k.ast, t, None).unwrap_or_else(|e| panic!("{name}: {e}"));
    program.name = name;
    let (written, _) = k.split_args();
    let result = |b: usize| s.roots.iter().position(|&r| r == b).map(|i| &want[i]);
    let data = k.args.iter().map(|&b| match inputs.get(b) {
        Some(x) => x.clone(),
        None => Data::new(F32, s.buffers[b].len, |_| -7.0),
    });
    let wants = k.args.iter().map(|b| result(*b).filter(|_| written.contains(b)).map(|w| w.values.clone()));
    let (data, want) = (data.collect(), wants.collect());
    Sample { program, data, want, vars: Vec::new(), tol: Tol::Rel { rel: 1e-5, floor: 0.1 } }
}

/// The parameter in a slot.
pub(super) fn input(g: &mut Graph, slot: u32, n: usize) -> UOp {
    let x = g.param(slot, F32, n);
    g.reshape(x, &[n])
}

pub(super) fn data(n: usize, of: impl Fn(usize) -> f64) -> Data {
    Data::new(F32, n, of)
}

pub(super) fn spread(g: &mut Graph, x: UOp, op: ReduceOp, axis: u8, shape: &[usize]) -> UOp {
    let r = g.reduce(x, op, &[axis]);
    g.expand(r, shape)
}

/// Over the last axis or the first.
fn softmax(t: &Target, rows: usize, row: usize, axis: u8) -> Sample {
    let (mut g, shape) = (Graph::new(), [rows, row]);
    let x = input(&mut g, 0, rows * row);
    let x = g.reshape(x, &shape);
    let max = spread(&mut g, x, ReduceOp::Max, axis, &shape);
    let d = g.binary(Op::Sub, x, max);
    let c = g.float(std::f64::consts::LOG2_E, F32);
    let d = g.binary(Op::Mul, d, c);
    let e = g.unary(Op::Exp2, d);
    let sum = spread(&mut g, e, ReduceOp::Add, axis, &shape);
    let y = g.binary(Op::Div, e, sum);
    let x = data(rows * row, noise);
    let (n, stride, step) = if axis == 1 { (row, row, 1) } else { (rows, 1, row) };
    let want = Data::new(F32, rows * row, |i| {
        let start = if axis == 1 { i / row * stride } else { i % row };
        let at = |k: usize| x.f(start + k * step);
        let max = (0..n).map(at).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..n).map(|k| (at(k) - max).exp()).sum();
        (x.f(i) - max).exp() / sum
    });
    sample(format!("rows_softmax_{rows}_{row}_{axis}"), t, &g, &[y], vec![x], vec![want])
}

/// Mean and variance, scaled by a weight per column.
fn norm(t: &Target, rows: usize, row: usize) -> Sample {
    let (mut g, shape) = (Graph::new(), [rows, row]);
    let (x, w) = (input(&mut g, 0, rows * row), input(&mut g, 1, row));
    let (x, w) = (g.reshape(x, &shape), g.reshape(w, &[1, row]));
    let w = g.expand(w, &shape);
    let share = g.float(1.0 / row as f64, F32);
    let mean = spread(&mut g, x, ReduceOp::Add, 1, &shape);
    let mean = g.binary(Op::Mul, mean, share);
    let d = g.binary(Op::Sub, x, mean);
    let square = g.binary(Op::Mul, d, d);
    let var = spread(&mut g, square, ReduceOp::Add, 1, &shape);
    let var = g.binary(Op::Mul, var, share);
    let eps = g.float(1e-3, F32);
    let var = g.binary(Op::Add, var, eps);
    let root = g.unary(Op::Sqrt, var);
    let y = g.binary(Op::Div, d, root);
    let y = g.binary(Op::Mul, y, w);
    let (x, w) = (data(rows * row, noise), data(row, |i| noise(i + 5)));
    let want = Data::new(F32, rows * row, |i| {
        let at = |k: usize| x.f(i / row * row + k);
        let mean = (0..row).map(at).sum::<f64>() / row as f64;
        let var = (0..row).map(|k| (at(k) - mean).powi(2)).sum::<f64>() / row as f64;
        (x.f(i) - mean) / (var + 1e-3).sqrt() * w.f(i % row)
    });
    sample(format!("rows_norm_{rows}_{row}"), t, &g, &[y], vec![x, w], vec![want])
}

/// Two assigns, the second of what the first made.
fn step(t: &Target, n: usize) -> Sample {
    let mut g = Graph::new();
    let [p, m, d] = [0, 1, 2].map(|i| g.param(i, F32, n));
    let assign = |g: &mut Graph, x: UOp, v: UOp| {
        let store = g.store(x, v);
        g.after(x, &[store])
    };
    let half = g.float(0.5, F32);
    let v = g.binary(Op::Mul, m, half);
    let v = g.binary(Op::Add, v, d);
    let m = assign(&mut g, m, v);
    let v = g.binary(Op::Sub, p, m);
    let p = assign(&mut g, p, v);
    let x: Vec<Data> = (0..3).map(|k| Data::new(F32, n, |i| noise(i + 31 * k))).collect();
    let moved = |i: usize| 0.5 * x[1].f(i) + x[2].f(i);
    let want = vec![Data::new(F32, n, moved), Data::new(F32, n, |i| x[0].f(i) - moved(i))];
    sample("rows_step".into(), t, &g, &[m, p], x, want)
}

/// Two heads that share keys and values, with a mask: scores, softmax, product in one kernel.
fn attention(t: &Target, rows: usize, keys: usize, width: usize) -> Sample {
    const HEADS: usize = 2;
    let mut g = Graph::new();
    let [q, k, v, mask] = [HEADS * rows * width, keys * width, keys * width, rows * keys];
    let lens = [q, k, v, mask];
    let [q, k, v, mask] = [0, 1, 2, 3].map(|i| input(&mut g, i as u32, lens[i]));
    let product = [HEADS, rows, keys, width];
    let q = g.reshape(q, &[HEADS, rows, 1, width]);
    let k = g.reshape(k, &[1, 1, keys, width]);
    let (q, k) = (g.expand(q, &product), g.expand(k, &product));
    let s = g.binary(Op::Mul, q, k);
    let s = g.reduce(s, ReduceOp::Add, &[3]);
    let shape = [HEADS, rows, keys, 1];
    let mask = g.reshape(mask, &[1, rows, keys, 1]);
    let mask = g.expand(mask, &shape);
    let s = g.binary(Op::Add, s, mask);
    let max = spread(&mut g, s, ReduceOp::Max, 2, &shape);
    let d = g.binary(Op::Sub, s, max);
    let c = g.float(std::f64::consts::LOG2_E, F32);
    let d = g.binary(Op::Mul, d, c);
    let e = g.unary(Op::Exp2, d);
    let sum = spread(&mut g, e, ReduceOp::Add, 2, &shape);
    let p = g.binary(Op::Div, e, sum);
    let (p, v) = (g.expand(p, &product), g.reshape(v, &[1, 1, keys, width]));
    let v = g.expand(v, &product);
    let y = g.binary(Op::Mul, p, v);
    let y = g.reduce(y, ReduceOp::Add, &[2]);
    let causal = |i: usize| if i % keys > i / keys + keys.saturating_sub(rows) { f64::NEG_INFINITY } else { noise(i) };
    let x: Vec<Data> = (0..4).map(|k| data(lens[k], |i| if k == 3 { causal(i) } else { noise(i + 31 * k) })).collect();
    let want = Data::new(F32, HEADS * rows * width, |i| {
        let (row, at) = (i / width, i % width);
        let dot = |k: usize| (0..width).map(|j| x[0].f(row * width + j) * x[1].f(k * width + j)).sum::<f64>();
        let scores: Vec<f64> = (0..keys).map(|k| dot(k) + x[3].f(row % rows * keys + k)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
        scores.iter().enumerate().map(|(k, s)| (s - max).exp() / sum * x[2].f(k * width + at)).sum()
    });
    sample(format!("rows_attention_{rows}_{keys}_{width}"), t, &g, &[y], x, vec![want])
}
