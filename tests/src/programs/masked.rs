//! Reductions under masks made of positions, whose loops end where the mask leaves nothing: rows that are masked as a whole
//! too, and NaN and Inf where they do and do not count.

use super::build::noise;
use super::rows::{data, input, sample, spread};
use super::{Data, Sample};
use crate::nodes::MakeNodes;
use gradloom_core::DType::{F32, I32};
use gradloom_core::target::Target;
use gradloom_core::uop::{Arg, Axes, Graph, Op, Pairs, ReduceOp, Shape, UOp};

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    for (rows, cols, shift) in [(200, 200, 0), (70, 131, -20), (33, 300, 2), (150, 64, 7)] {
        out.push(triangle(t, rows, cols, shift, ReduceOp::Add));
        out.push(triangle(t, rows, cols, shift, ReduceOp::Max));
    }
    // lanes that run backwards under a mask, and masks that leave out what lies far from the buffer
    for (before, after, turned) in [(3, 3, true), (21, 0, true), (0, 40, false), (5003, 7, false), (5003, 7, true)] {
        out.push(placed(t, 37, before, after, turned));
    }
    // every other element under a condition that whole vectors share, and one that they do not
    for n in [1536, 74] {
        out.push(sorted(t, n));
    }
    if !t.caps.has_local && t.limits.threads == 1 {
        for (rows, keys, width, shift) in [(64, 64, 16, 0), (70, 70, 32, 0), (33, 80, 17, -47), (96, 96, 24, 19)] {
            out.push(attention(t, rows, keys, width, shift));
        }
    }
}

/// An identifier in C.
fn name(what: &str, sizes: &[usize], shift: i64) -> String {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    format!("masked_{what}_{}_{}{}", sizes.join("_"), if shift < 0 { "m" } else { "" }, shift.abs())
}

/// `column + shift <= row`
fn allowed(g: &mut Graph, rows: usize, cols: usize, shift: i64) -> UOp {
    let mut iota = |n: usize| g.node(Op::Iota, I32, &[], Arg::Shape(Shape::from_slice(&[n])));
    let (i, j) = (iota(rows), iota(cols));
    let (i, j) = (g.reshape(i, &[rows, 1]), g.reshape(j, &[1, cols]));
    let shift = g.int(shift, I32);
    let j = g.binary(Op::Add, j, shift);
    let (i, j) = (g.expand(i, &[rows, cols]), g.expand(j, &[rows, cols]));
    let after = g.binary(Op::CmpLt, i, j);
    let yes = g.bool(true);
    g.binary(Op::CmpNe, after, yes)
}

/// What the mask leaves of row `r`.
fn left(cols: usize, shift: i64, r: usize) -> usize {
    (r as i64 - shift + 1).clamp(0, cols as i64) as usize
}

/// Numbers with NaN in the last row's last column, and where masks hide it in the first.
fn odd(rows: usize, cols: usize, shift: i64) -> Data {
    let hidden = (cols - 1, left(cols, shift, 0) < cols);
    data(rows * cols, |i| if i == rows * cols - 1 || (i == hidden.0 && hidden.1) { f64::NAN } else { noise(i) })
}

fn kept(g: &mut Graph, x: UOp, (rows, cols, shift): (usize, usize, i64), shape: &[usize], alt: f64) -> UOp {
    let mask = allowed(g, rows, cols, shift);
    let wide: Vec<usize> = [vec![1; shape.len() - 3], vec![rows, cols, 1]].concat();
    let mask = g.reshape(mask, &wide);
    let mask = g.expand(mask, shape);
    let alt = g.float(alt, F32);
    g.node(Op::Where, F32, &[mask, x, alt], Arg::None)
}

/// The sum or the largest of what the mask leaves of each row.
fn triangle(t: &Target, rows: usize, cols: usize, shift: i64, op: ReduceOp) -> Sample {
    let (mut g, shape) = (Graph::new(), [rows, cols, 1]);
    let x = input(&mut g, 0, rows * cols);
    let x = g.reshape(x, &shape);
    let none = if op == ReduceOp::Add { 0.0 } else { f64::NEG_INFINITY };
    let y = kept(&mut g, x, (rows, cols, shift), &shape, none);
    let y = g.reduce(y, op, &[1]);
    let x = odd(rows, cols, shift);
    let want = Data::new(F32, rows, |r| {
        let row = (0..left(cols, shift, r)).map(|k| x.f(r * cols + k));
        let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        if op == ReduceOp::Add { row.sum() } else { row.fold(none, larger) }
    });
    sample(name(&format!("{op:?}").to_lowercase(), &[rows, cols], shift), t, &g, &[y], vec![x], vec![want])
}

/// A row among zeros, its elements in the order of memory or turned round.
fn placed(t: &Target, n: usize, before: usize, after: usize, turned: bool) -> Sample {
    let mut g = Graph::new();
    let mut y = input(&mut g, 0, n);
    if turned {
        y = g.node(Op::Flip, F32, &[y], Arg::Axes(Axes::from_slice(&[0])));
    }
    let y = g.pad(y, &[(before, after)]);
    let x = data(n, noise);
    let at = |i: usize| if turned { n - 1 - i } else { i };
    let inside = |i: usize| (before..before + n).contains(&i);
    let want = data(before + n + after, |i| if inside(i) { x.f(at(i - before)) } else { 0.0 });
    let what = if turned { "turned" } else { "placed" };
    sample(name(what, &[n, before, after], 0), t, &g, &[y], vec![x], vec![want])
}

/// The even elements, then the odd ones.
fn sorted(t: &Target, n: usize) -> Sample {
    let mut g = Graph::new();
    let x = input(&mut g, 0, n);
    let x = g.reshape(x, &[n / 2, 2]);
    let [even, odd] = [0, 1].map(|c| {
        let one = g.node(Op::Shrink, F32, &[x], Arg::Pairs(Pairs::from_slice(&[(0, n / 2), (c, c + 1)])));
        let one = g.reshape(one, &[n / 2]);
        g.pad(one, &[if c == 0 { (0, n / 2) } else { (n / 2, 0) }])
    });
    let y = g.binary(Op::Add, even, odd);
    let x = data(n, noise);
    let want = data(n, |i| x.f(if i < n / 2 { 2 * i } else { 2 * (i - n / 2) + 1 }));
    sample(name("sorted", &[n], 0), t, &g, &[y], vec![x], vec![want])
}

fn exp_of(g: &mut Graph, s: UOp, axis: u8, shape: &[usize]) -> UOp {
    let max = spread(g, s, ReduceOp::Max, axis, shape);
    let d = g.binary(Op::Sub, s, max);
    let c = g.float(std::f64::consts::LOG2_E, F32);
    let d = g.binary(Op::Mul, d, c);
    g.unary(Op::Exp2, d)
}

/// The weights of what is left of a row: all NaN if that is nothing, or has NaN in it.
fn weights(scores: &[f64], left: usize) -> Vec<f64> {
    let top = scores[..left].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bad = left == 0 || scores[..left].iter().any(|s| s.is_nan());
    let sum: f64 = scores[..left].iter().map(|s| (s - top).exp()).sum();
    let one = |(k, s): (usize, &f64)| if k < left { (s - top).exp() / sum } else { 0.0 };
    scores.iter().enumerate().map(one).map(|p| if bad { f64::NAN } else { p }).collect()
}

/// Attention whose queries look at no key after theirs. One query is NaN.
fn attention(t: &Target, rows: usize, keys: usize, width: usize, shift: i64) -> Sample {
    const HEADS: usize = 2;
    let mut g = Graph::new();
    let lens = [HEADS * rows * width, keys * width, keys * width];
    let [q, k, v] = [0, 1, 2].map(|i| input(&mut g, i as u32, lens[i]));
    let product = [HEADS, rows, keys, width];
    let q = g.reshape(q, &[HEADS, rows, 1, width]);
    let k = g.reshape(k, &[1, 1, keys, width]);
    let (q, k) = (g.expand(q, &product), g.expand(k, &product));
    let s = g.binary(Op::Mul, q, k);
    let s = g.reduce(s, ReduceOp::Add, &[3]);
    let shape = [HEADS, rows, keys, 1];
    let s = kept(&mut g, s, (rows, keys, shift), &shape, f64::NEG_INFINITY);
    let e = exp_of(&mut g, s, 2, &shape);
    let sum = spread(&mut g, e, ReduceOp::Add, 2, &shape);
    let p = g.binary(Op::Div, e, sum);
    let (p, v) = (g.expand(p, &product), g.reshape(v, &[1, 1, keys, width]));
    let v = g.expand(v, &product);
    let y = g.binary(Op::Mul, p, v);
    let y = g.reduce(y, ReduceOp::Add, &[2]);
    let q = data(lens[0], |i| if i == 3 * width { f64::NAN } else { noise(i) });
    let x = vec![q, data(lens[1], |i| noise(i + 31)), data(lens[2], |i| noise(i + 62))];
    let want = Data::new(F32, HEADS * rows * width, |i| {
        let (row, at) = (i / width, i % width);
        let dot = |k: usize| (0..width).map(|j| x[0].f(row * width + j) * x[1].f(k * width + j)).sum::<f64>();
        let scores: Vec<f64> = (0..keys).map(dot).collect();
        let p = weights(&scores, left(keys, shift, row % rows));
        p.iter().enumerate().map(|(k, p)| p * x[2].f(k * width + at)).sum()
    });
    sample(name("attention", &[rows, keys, width], shift), t, &g, &[y], x, vec![want])
}
