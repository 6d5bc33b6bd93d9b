//! Gradients of Gather, Scatter and Scan, in linear time. Each is made of the same ops: the gradient of a gather is a
//! scatter, that of a scatter gathers, and that of a scan is a scan from the other end.

use super::{Flow, constant, spread};
use crate::uop::{Arg, Axes, Graph, Op, ReduceOp, ScatterMode, Shape, UOp};
use smallvec::smallvec;

const ADD: ScatterMode = ScatterMode::Combine(ReduceOp::Add);

/// Gradient of `Gather(x, index)`: every element of `x` gets the sum of the gradients of all reads of it.
pub(super) fn gather(g: &mut Graph, dy: UOp, index: UOp, shape: &Shape, axis: u8) -> UOp {
    let zero = constant(g, 0.0, dy);
    if g.shape(index)[axis as usize] == 1 {
        // with one index for each slice a mask does it, which fuses with other ops
        let hit = hits(g, index, shape, axis);
        let dy = g.expand(dy, shape);
        return g.select(hit, dy, zero);
    }
    let zeros = spread(g, zero, shape);
    put(g, ADD, axis, zeros, index, dy)
}

/// A mask that is true at the one index of each slice.
fn hits(g: &mut Graph, index: UOp, shape: &Shape, axis: u8) -> UOp {
    let dt = g.dtype(index);
    let iota = counted(g, shape, axis);
    let iota = g.cast(iota, dt);
    let index = g.expand(index, shape);
    g.binary(Op::CmpEq, index, iota)
}

/// `0, 1, ..` along an axis of `shape`, i32.
fn counted(g: &mut Graph, shape: &Shape, axis: u8) -> UOp {
    let (mut ones, n) = (Shape::from_elem(1, shape.len()), shape[axis as usize]);
    ones[axis as usize] = n;
    let iota = g.node(Op::Iota, crate::DType::I32, &[], Arg::Shape(smallvec![n]));
    let iota = g.reshape(iota, &ones);
    g.expand(iota, shape)
}

fn put(g: &mut Graph, how: ScatterMode, axis: u8, x: UOp, index: UOp, src: UOp) -> UOp {
    let dt = g.dtype(x);
    g.node(Op::Scatter, dt, &[x, index, src], Arg::Scatter(how, axis))
}

/// The element of `v` at the index of each update of a Scatter. `v` has the shape of the Scatter's target.
fn take(g: &mut Graph, v: UOp, index: UOp, axis: u8) -> UOp {
    let (shape, updates) = (g.shape(v).clone(), g.shape(index).clone());
    let pair = |a: usize| (0, if a == axis as usize { shape[a] } else { updates[a] });
    let v = g.shrink(v, &(0..shape.len()).map(pair).collect::<Vec<_>>());
    let dt = g.dtype(v);
    g.node(Op::Gather, dt, &[v, index], Arg::Axes(smallvec![axis]))
}

/// Gradients of a Scatter's old values and of its updates.
pub(super) fn scatter(g: &mut Graph, u: UOp, dy: UOp, how: ScatterMode, axis: u8) -> Flow {
    let (x, index, src) = (g.src_at(u, 0), g.src_at(u, 1), g.src_at(u, 2));
    let shape = g.shape(u).clone();
    let (zero, one) = (constant(g, 0.0, dy), constant(g, 1.0, dy));
    match how {
        ScatterMode::Combine(ReduceOp::Add) => {
            let ds = take(g, dy, index, axis);
            smallvec![(x, dy), (src, ds)]
        }
        ScatterMode::Unique => {
            let src = g.shape(src).clone();
            let zeros = spread(g, zero, &src);
            let dx = put(g, how, axis, dy, index, zeros);
            let ds = take(g, dy, index, axis);
            smallvec![(x, dx), (g.src_at(u, 2), ds)]
        }
        ScatterMode::Overwrite => {
            // the number of the last update of each element
            let updates = g.shape(index).clone();
            let order = counted(g, &updates, axis);
            let none = g.int(-1, crate::DType::I32);
            let all = spread(g, none, &shape);
            let last = put(g, how, axis, all, index, order);
            let least = g.int(0, crate::DType::I32);
            let kept = g.binary(Op::CmpLt, last, least);
            let dx = g.select(kept, dy, zero);
            let (won, dy) = (take(g, last, index, axis), take(g, dy, index, axis));
            let won = g.binary(Op::CmpEq, won, order);
            let ds = g.select(won, dy, zero);
            smallvec![(x, dx), (src, ds)]
        }
        ScatterMode::Combine(ReduceOp::Max | ReduceOp::Min) => {
            // equal values share the gradient evenly
            let best = take(g, u, index, axis);
            let (hit_x, hit_s) = (g.binary(Op::CmpEq, x, u), g.binary(Op::CmpEq, src, best));
            let (ones_x, ones_s) = (g.select(hit_x, one, zero), g.select(hit_s, one, zero));
            let count = put(g, ADD, axis, ones_x, index, ones_s);
            let part = g.binary(Op::Div, dy, count);
            let dx = g.select(hit_x, part, zero);
            let part = take(g, part, index, axis);
            let ds = g.select(hit_s, part, zero);
            smallvec![(x, dx), (src, ds)]
        }
        ScatterMode::Combine(ReduceOp::Mul) => {
            // the derivative by one factor is the product of the others. It is zero if any other factor is zero; so
            // products are made of the nonzero factors, and the number of zeros decides whether they count
            let (zero_x, zero_s) = (g.binary(Op::CmpEq, x, zero), g.binary(Op::CmpEq, src, zero));
            let (safe_x, safe_s) = (g.select(zero_x, one, x), g.select(zero_s, one, src));
            let product = put(g, how, axis, safe_x, index, safe_s);
            let (ones_x, ones_s) = (g.select(zero_x, one, zero), g.select(zero_s, one, zero));
            let zeros = put(g, ADD, axis, ones_x, index, ones_s);
            let (single, none) = (g.binary(Op::CmpEq, zeros, one), g.binary(Op::CmpEq, zeros, zero));
            let (single, none) = (g.select(single, product, zero), g.select(none, product, zero));
            let part = |g: &mut Graph, is_zero: UOp, single: UOp, none: UOp, safe: UOp, dy: UOp| {
                let quotient = g.binary(Op::Div, none, safe);
                let others = g.select(is_zero, single, quotient);
                g.binary(Op::Mul, dy, others)
            };
            let dx = part(g, zero_x, single, none, safe_x, dy);
            let [single, none, dy] = [single, none, dy].map(|v| take(g, v, index, axis));
            let ds = part(g, zero_s, single, none, safe_s, dy);
            smallvec![(x, dx), (src, ds)]
        }
    }
}

/// Gradients of a Scan, made by scans from the other end.
pub(super) fn scan(g: &mut Graph, u: UOp, dy: UOp, op: ReduceOp, axis: u8) -> Flow {
    let (x, factor) = (g.src_at(u, 0), g.src(u).get(1).copied());
    let shape = g.shape(u).clone();
    match (op, factor) {
        (ReduceOp::Add, None) => {
            let dx = backward(g, dy, None, axis);
            smallvec![(x, dx)]
        }
        (ReduceOp::Add, Some(a)) => {
            let dx = backward(g, dy, Some(a), axis);
            let before = moved(g, u, axis, 1);
            let da = g.binary(Op::Mul, dx, before);
            smallvec![(x, dx), (a, da)]
        }
        (ReduceOp::Mul, _) => {
            let sums = backward(g, dy, Some(x), axis);
            let before = moved(g, u, axis, 1);
            let at = counted(g, &shape, axis);
            let (none, one) = (g.int(0, crate::DType::I32), constant(g, 1.0, dy));
            let first = g.binary(Op::CmpEq, at, none);
            let before = g.select(first, one, before);
            let dx = g.binary(Op::Mul, sums, before);
            smallvec![(x, dx)]
        }
        (ReduceOp::Max | ReduceOp::Min, _) => {
            // the index of the latest element that equals the best so far
            let at = counted(g, &shape, axis);
            let best = g.binary(Op::CmpEq, x, u);
            let none = g.int(0, crate::DType::I32);
            let at = g.select(best, at, none);
            let from = along(g, &[at], ReduceOp::Max, axis);
            let zero = constant(g, 0.0, dy);
            let zeros = spread(g, zero, &shape);
            let dx = put(g, ADD, axis, zeros, from, dy);
            smallvec![(x, dx)]
        }
    }
}

fn along(g: &mut Graph, src: &[UOp], op: ReduceOp, axis: u8) -> UOp {
    let dt = g.dtype(src[0]);
    g.node(Op::Scan, dt, src, Arg::Reduce(op, Axes::from_slice(&[axis])))
}

/// `out[i] = dy[i] + a[i + 1] * out[i + 1]`, where all factors `a` are 1 if there are none.
fn backward(g: &mut Graph, dy: UOp, a: Option<UOp>, axis: u8) -> UOp {
    let a = a.map(|a| moved(g, a, axis, -1));
    let src: Vec<UOp> = [Some(dy), a].into_iter().flatten().map(|v| g.flip(v, &[axis])).collect();
    let out = along(g, &src, ReduceOp::Add, axis);
    g.flip(out, &[axis])
}

/// Shifts elements by one along an axis, towards higher indices (`by` = 1) or lower ones (-1), and fills in a zero.
fn moved(g: &mut Graph, v: UOp, axis: u8, by: i64) -> UOp {
    let shape = g.shape(v).clone();
    let n = shape[axis as usize];
    let (from, grow) = if by > 0 { ((0, n - 1), (1, 0)) } else { ((1, n), (0, 1)) };
    let pairs = |own, other: &dyn Fn(usize) -> (usize, usize)| -> Vec<(usize, usize)> {
        shape.iter().enumerate().map(|(i, &n)| if i == axis as usize { own } else { other(n) }).collect()
    };
    let v = g.shrink(v, &pairs(from, &|n| (0, n)));
    g.pad(v, &pairs(grow, &|_| (0, 0)))
}
