//! The vector-Jacobian product of every tensor op: given the gradient of a node, the gradients of its sources.
//!
//! | op | why there is no gradient |
//! |---|---|
//! | Const, Buffer, Param, Var, Iota | no sources |
//! | Trunc | piecewise constant: zero almost everywhere |
//! | any op with a non-float result, such as comparisons | not a function to real numbers |
//! | Bitcast, casts from or to integers | not a function of real numbers |
//! | Detach | that is its meaning, unless it has a gradient of its own |
//! | indices of Gather and Scatter, Where's condition | integers and bools |

use super::{Flow, constant, ordered, spread};
use crate::rewrite::substitute;
use crate::uop::{Arg, Axes, Graph, Op, Pairs, ReduceOp, UOp};
use crate::{Error, Result};
use rustc_hash::FxHashMap;
use smallvec::smallvec;
use std::f64::consts::LN_2;

/// `(source, gradient)` for each source of `u` that gets one, given `dy`, the gradient of `u`.
pub(super) fn vjp(g: &mut Graph, u: UOp, dy: UOp) -> Result<Flow> {
    let src = g.srcs(u);
    let op = g.op(u);
    if src.is_empty() {
        return Ok(Flow::new());
    }
    let x = src[0];
    let one = |dx: UOp| -> Result<Flow> { Ok(smallvec![(x, dx)]) };
    let shape = g.shape(x).clone();
    match (op, g.arg(u).clone()) {
        // ---- movement: the inverse movement
        (Op::Reshape, _) => one(g.reshape(dy, &shape)),
        (Op::Permute, Arg::Axes(axes)) => {
            let mut inverse: Axes = axes.clone();
            axes.iter().enumerate().for_each(|(i, &a)| inverse[a as usize] = i as u8);
            one(g.permute(dy, &inverse))
        }
        (Op::Expand, Arg::Shape(wide)) => {
            let axes: Axes = (0..shape.len()).filter(|&i| shape[i] != wide[i]).map(|i| i as u8).collect();
            one(g.reduce(dy, ReduceOp::Add, &axes))
        }
        (Op::Pad, Arg::Pairs(p)) => {
            let keep: Pairs = shape.iter().zip(&p).map(|(n, (before, _))| (*before, before + n)).collect();
            one(g.shrink(dy, &keep))
        }
        (Op::Shrink, Arg::Pairs(p)) => {
            let back: Pairs = shape.iter().zip(&p).map(|(n, (begin, end))| (*begin, n - end)).collect();
            one(g.pad(dy, &back))
        }
        (Op::Flip, Arg::Axes(axes)) => one(g.flip(dy, &axes)),
        (Op::Contiguous, _) => one(dy),
        (Op::Gather, Arg::Axes(axes)) => one(ordered::gather(g, dy, src[1], &shape, axes[0])),
        (Op::Scatter, Arg::Scatter(how, axis)) => Ok(ordered::scatter(g, u, dy, how, axis)),
        (Op::Scan, Arg::Reduce(op, axes)) => Ok(ordered::scan(g, u, dy, op, axes[0])),
        // ---- reductions
        (Op::Reduce, Arg::Reduce(op, axes)) => one(reduce(g, u, x, dy, op, &axes)),
        // ---- unary
        (Op::Cast, _) if g.dtype(x).is_float() => {
            let dt = g.dtype(x);
            one(g.cast(dy, dt))
        }
        (Op::Neg, _) => one(g.unary(Op::Neg, dy)),
        (Op::Exp2, _) => {
            let ln2 = constant(g, LN_2, u);
            let slope = g.binary(Op::Mul, u, ln2);
            one(g.binary(Op::Mul, dy, slope))
        }
        (Op::Log2, _) => {
            let ln2 = constant(g, LN_2, u);
            let slope = g.binary(Op::Mul, x, ln2);
            one(g.binary(Op::Div, dy, slope))
        }
        (Op::Sin, _) => {
            let cos = g.unary(Op::Cos, x);
            one(g.binary(Op::Mul, dy, cos))
        }
        (Op::Cos, _) => {
            let sin = g.unary(Op::Sin, x);
            let slope = g.unary(Op::Neg, sin);
            one(g.binary(Op::Mul, dy, slope))
        }
        (Op::Tan, _) => {
            let square = g.binary(Op::Mul, u, u);
            let unit = constant(g, 1.0, u);
            let slope = g.binary(Op::Add, square, unit);
            one(g.binary(Op::Mul, dy, slope))
        }
        (Op::Sqrt, _) => {
            let two = constant(g, 2.0, u);
            let slope = g.binary(Op::Mul, u, two);
            one(g.binary(Op::Div, dy, slope))
        }
        (Op::Recip, _) => {
            let square = g.binary(Op::Mul, u, u);
            let slope = g.unary(Op::Neg, square);
            one(g.binary(Op::Mul, dy, slope))
        }
        // ---- binary
        (Op::Add, _) => Ok(smallvec![(x, dy), (src[1], dy)]),
        (Op::Sub, _) => {
            let minus = g.unary(Op::Neg, dy);
            Ok(smallvec![(x, dy), (src[1], minus)])
        }
        (Op::Mul, _) => {
            let (dx, dz) = (g.binary(Op::Mul, dy, src[1]), g.binary(Op::Mul, dy, x));
            Ok(smallvec![(x, dx), (src[1], dz)])
        }
        (Op::Div, _) => {
            let dx = g.binary(Op::Div, dy, src[1]);
            // d(x/z)/dz = -(x/z)/z
            let dz = g.binary(Op::Mul, dx, u);
            let dz = g.unary(Op::Neg, dz);
            Ok(smallvec![(x, dx), (src[1], dz)])
        }
        (Op::Pow, _) => Ok(power(g, u, dy)),
        (Op::Imod, _) if g.dtype(u).is_float() => {
            // x minus an integer multiple of z
            let whole = g.binary(Op::Sub, x, u);
            let times = g.binary(Op::Div, whole, src[1]);
            let half = constant(g, 0.5, u);
            let (up, down) = (g.binary(Op::Add, times, half), g.binary(Op::Sub, times, half));
            let zero = constant(g, 0.0, u);
            let negative = g.binary(Op::CmpLt, times, zero);
            let near = g.select(negative, down, up);
            let times = g.unary(Op::Trunc, near);
            let dz = g.binary(Op::Mul, dy, times);
            let dz = g.unary(Op::Neg, dz);
            Ok(smallvec![(x, dy), (src[1], dz)])
        }
        (Op::Max, _) => {
            let (a, b) = (beyond(g, x, src[1], u), beyond(g, src[1], x, u));
            Ok(smallvec![(x, less(g, src[1], a, dy)), (src[1], less(g, x, b, dy))])
        }
        (Op::Min, _) => {
            let (a, b) = (beyond(g, x, src[1], u), beyond(g, src[1], x, u));
            Ok(smallvec![(x, less(g, a, src[1], dy)), (src[1], less(g, b, x, dy))])
        }
        // ---- ternary
        (Op::Where, _) => {
            let zero = constant(g, 0.0, u);
            let (a, b) = (g.select(x, dy, zero), g.select(x, zero, dy));
            Ok(smallvec![(src[1], a), (src[2], b)])
        }
        // ---- a gradient of its own
        (Op::Detach, _) if src.len() > 1 => {
            let n = g.memory_len(dy);
            let flat = g.reshape(dy, &[n]);
            let pairs: Vec<(UOp, UOp)> = src[2..].chunks_exact(2).map(|p| (p[0], p[1])).collect();
            let rules: Vec<UOp> = pairs.iter().map(|p| p.1).collect();
            let grads = substitute(g, &rules, &FxHashMap::from_iter([(src[1], flat)]));
            Ok(pairs.iter().zip(grads).map(|(p, dx)| (p.0, dx)).collect())
        }
        // ---- state: an assign of the whole storage hides what was there
        (Op::After, _) => after(g, u, dy),
        (Op::Trunc | Op::Cast | Op::Bitcast | Op::Detach, _) => Ok(Flow::new()),
        _ if !g.dtype(u).is_float() => Ok(Flow::new()),
        (op, _) => Err(Error::Unsupported { what: "gradient".into(), context: format!("op {}", op.name()) }),
    }
}

/// The value whose comparison tells whether `x` was selected over `other`. Against a constant the result `u` tells it
/// as well, so that the input of a relu need not be kept for the backward pass.
fn beyond(g: &Graph, x: UOp, other: UOp, u: UOp) -> UOp {
    if g.const_val(other).is_some() { u } else { x }
}

/// The gradients `y x^(y-1)` and `x^y ln |x|`, with two slopes set to zero: by `x` where `y` is 0, as the power is then
/// constant, and by `y` where `x` is 0, unless `y` is negative.
fn power(g: &mut Graph, u: UOp, dy: UOp) -> Flow {
    let (x, y) = (g.src_at(u, 0), g.src_at(u, 1));
    let (zero, unit, ln2) = (constant(g, 0.0, u), constant(g, 1.0, u), constant(g, LN_2, u));
    let less = match g.const_val(y) {
        Some(c) => constant(g, c.as_f64_of(g.dtype(y)) - 1.0, u),
        None => g.binary(Op::Sub, y, unit),
    };
    let one_less = g.binary(Op::Pow, x, less);
    let slope = g.binary(Op::Mul, y, one_less);
    let flat = g.binary(Op::CmpEq, y, zero);
    let slope = g.select(flat, zero, slope);
    let dx = g.binary(Op::Mul, dy, slope);
    let minus = g.unary(Op::Neg, x);
    let size = g.binary(Op::Max, x, minus);
    let log = g.unary(Op::Log2, size);
    let log = g.binary(Op::Mul, log, ln2);
    let slope = g.binary(Op::Mul, u, log);
    let (nothing, falls) = (g.binary(Op::CmpEq, x, zero), g.binary(Op::CmpLt, y, zero));
    let slope_at_nothing = g.select(falls, slope, zero);
    let slope = g.select(nothing, slope_at_nothing, slope);
    let dz = g.binary(Op::Mul, dy, slope);
    smallvec![(x, dx), (y, dz)]
}

/// `dy` where `low < high`, else 0. Equal values get half of it each; against a constant (relu, clamp) a tie gets
/// nothing.
fn less(g: &mut Graph, low: UOp, high: UOp, dy: UOp) -> UOp {
    let wins = g.binary(Op::CmpLt, low, high);
    let zero = constant(g, 0.0, dy);
    let mut rest = zero;
    if g.const_val(low).is_none() && g.const_val(high).is_none() {
        let half = constant(g, 0.5, dy);
        let tie = g.binary(Op::CmpEq, low, high);
        let part = g.binary(Op::Mul, dy, half);
        rest = g.select(tie, part, zero);
    }
    g.select(wins, dy, rest)
}

fn reduce(g: &mut Graph, u: UOp, x: UOp, dy: UOp, op: ReduceOp, axes: &[u8]) -> UOp {
    let shape = g.shape(x).clone();
    let wide = |g: &mut Graph, v: UOp| if g.shape(v).is_empty() { spread(g, v, &shape) } else { g.expand(v, &shape) };
    let dy = wide(g, dy);
    match op {
        ReduceOp::Add => dy,
        ReduceOp::Max | ReduceOp::Min => {
            // equal values share the gradient evenly
            let best = wide(g, u);
            let (zero, one) = (constant(g, 0.0, u), constant(g, 1.0, u));
            let hit = g.binary(Op::CmpEq, x, best);
            let hits = g.select(hit, one, zero);
            let count = g.reduce(hits, ReduceOp::Add, axes);
            let count = wide(g, count);
            let part = g.binary(Op::Div, dy, count);
            g.select(hit, part, zero)
        }
        ReduceOp::Mul => {
            // the product of the other factors: y/x where x is not zero. A single zero gets the product of all others.
            // Each of two zeros gets the other zero times the rest: that is zero too, but has a gradient of its own
            let (zero, one, two) = (constant(g, 0.0, u), constant(g, 1.0, u), constant(g, 2.0, u));
            let is_zero = g.binary(Op::CmpEq, x, zero);
            let safe = g.select(is_zero, one, x);
            let rest = g.reduce(safe, ReduceOp::Mul, axes);
            let zeros = g.select(is_zero, one, zero);
            let zeros = g.reduce(zeros, ReduceOp::Add, axes);
            let single = g.binary(Op::CmpEq, zeros, one);
            let pair = g.binary(Op::CmpEq, zeros, two);
            let small = g.select(is_zero, x, zero);
            let small = g.reduce(small, ReduceOp::Add, axes);
            let (single, pair, rest, small) = (wide(g, single), wide(g, pair), wide(g, rest), wide(g, small));
            let other = g.binary(Op::Sub, small, x);
            let other = g.select(pair, other, zero);
            let factor = g.select(single, one, other);
            let rest = g.binary(Op::Mul, factor, rest);
            let y = wide(g, u);
            let quotient = g.binary(Op::Div, y, safe);
            let others = g.select(is_zero, rest, quotient);
            g.binary(Op::Mul, dy, others)
        }
    }
}

/// `After(x, stores..)`: its value is what the last store wrote to all of `x`, or `x` itself if there is no store.
fn after(g: &mut Graph, u: UOp, dy: UOp) -> Result<Flow> {
    let src = g.srcs(u);
    if let Some(Arg::Custom(c)) = src[1..].iter().map(|&s| g.arg(s)).find(|a| matches!(a, Arg::Custom(_))) {
        let context = format!("custom kernel `{}`, which came without one", c.name);
        return Err(Error::Unsupported { what: "gradient".into(), context });
    }
    let stores: Vec<UOp> = src[1..].iter().copied().filter(|&s| g.op(s) == Op::Store).collect();
    let Some(&last) = stores.last() else { return Ok(smallvec![(src[0], dy)]) };
    if stores.len() > 1 || g.src_at(last, 0) != src[0] {
        let context = "a store to part of a buffer".into();
        return Err(Error::Unsupported { what: "gradient".into(), context });
    }
    Ok(smallvec![(g.src_at(last, 1), dy)])
}
