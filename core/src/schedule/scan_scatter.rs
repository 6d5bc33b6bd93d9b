//! Prepares scans and scatters before scheduling. Sums and products of 16-bit floats are computed in f32. What would
//! take one thread too long is split into pieces for several threads, if the results of pieces can be combined. The
//! order of elements within a piece and the order of pieces are fixed, so that results are the same in every run.

use crate::DType;
use crate::dtype::Scalar;
use crate::target::Target;
use crate::uop::{Arg, Axes, Graph, Op, ReduceOp, ScatterMode, Shape, UOp};
use smallvec::smallvec;

/// A scan of at most this many elements stays whole on a GPU.
const GPU_MAX_WHOLE_SCAN: usize = 1024;
/// A scan of at most this many elements stays whole on a CPU.
const CPU_MAX_WHOLE_SCAN: usize = 1 << 16;
/// Rows that keep a GPU busy. With at least this many, one thread scans each row; the updates of a scatter are split
/// into pieces for up to four times as many threads.
const GPU_BUSY_ROWS: usize = 1024;
/// The fewest updates of a scatter that one thread of a GPU processes in order.
const MIN_UPDATES_PER_THREAD: usize = 256;
/// The most elements of the partial results of a scatter, all pieces together.
const MAX_PARTIAL_ELEMS: usize = 1 << 24;

/// `Scan(src..)` over the axis.
pub(super) fn scan(g: &mut Graph, src: &[UOp], op: ReduceOp, axis: u8, t: &Target) -> UOp {
    let dt = g.dtype(src[0]);
    if let Some(wide) = wider(ScatterMode::Combine(op), dt) {
        let src: Vec<UOp> = src.iter().map(|&s| g.cast(s, wide)).collect();
        let out = scan(g, &src, op, axis, t);
        return g.cast(out, dt);
    }
    let a = axis as usize;
    let shape = g.shape(src[0]).clone();
    let n = shape[a];
    if n <= 1 {
        return src[0];
    }
    let rows = g.numel(src[0]) / n as u64;
    let blocks = match (src.len() == 1 && regroups(op, dt), t.caps.has_local) {
        (false, _) => 1,
        (true, true) if n > GPU_MAX_WHOLE_SCAN && rows < GPU_BUSY_ROWS as u64 => {
            n.div_ceil(((n as f64).sqrt() as usize).next_power_of_two())
        }
        (true, false) if n > CPU_MAX_WHOLE_SCAN && rows < t.limits.threads as u64 && t.caps.lanes > 1 => {
            4 * t.limits.threads
        }
        (true, true) => n.div_ceil(t.limits.max_loop_iterations as usize),
        _ => 1,
    };
    if blocks < 2 && n > t.limits.max_loop_iterations as usize {
        return scan_in_order(g, src, op, axis, t.limits.max_loop_iterations as usize);
    }
    if blocks < 2 {
        return g.node(Op::Scan, dt, src, Arg::Reduce(op, Axes::from_slice(&[axis])));
    }
    let size = n.div_ceil(blocks);
    let x = cut(g, src[0], a, blocks, size);
    let within = scan(g, &[x], op, axis + 1, t);
    // the scan of all blocks before each block
    let last = window(g, within, a + 1, size - 1, 1);
    let last = window(g, last, a, 0, blocks - 1);
    let before = scan(g, &[last], op, axis, t);
    let before = padded(g, before, a, (1, 0), op.identity(dt));
    let whole = g.shape(within).clone();
    let before = g.expand(before, &whole);
    let out = g.binary(op.op(), before, within);
    let mut flat = shape;
    flat[a] = blocks * size;
    let out = g.reshape(out, &flat);
    window(g, out, a, 0, n)
}

/// A scan as a sequence of scans of at most `most` elements, each continuing from the last result of the one before.
fn scan_in_order(g: &mut Graph, src: &[UOp], op: ReduceOp, axis: u8, most: usize) -> UOp {
    let (a, dt) = (axis as usize, g.dtype(src[0]));
    let shape = g.shape(src[0]).clone();
    let n = shape[a];
    let mut whole: Option<UOp> = None;
    for from in (0..n).step_by(most) {
        let len = most.min(n - from);
        let mut part: Vec<UOp> = src.iter().map(|&s| window(g, s, a, from, len)).collect();
        if let Some(whole) = whole {
            let mut before = window(g, whole, a, from - 1, 1);
            if let Some(&factor) = part.get(1) {
                let factor = window(g, factor, a, 0, 1);
                before = g.binary(Op::Mul, before, factor);
            }
            let own = window(g, part[0], a, 0, 1);
            let first = g.binary(op.op(), before, own);
            part[0] = joined(g, first, part[0], a, 1);
        }
        let next = g.node(Op::Scan, dt, &part, Arg::Reduce(op, Axes::from_slice(&[axis])));
        whole = Some(match whole {
            None => next,
            Some(whole) => {
                let next = padded(g, next, a, (from, 0), Scalar::Int(0));
                let both = joined(g, whole, next, a, from);
                g.node(Op::Contiguous, dt, &[both], Arg::None)
            }
        });
    }
    whole.unwrap_or(src[0])
}

/// The elements of `x` before `end`, and those of `y` from `end` on. `x` has at least `end` elements along the axis.
fn joined(g: &mut Graph, x: UOp, y: UOp, axis: usize, end: usize) -> UOp {
    let shape = g.shape(y).clone();
    let padding = shape[axis] - end;
    let x = padded(g, x, axis, (0, padding), Scalar::Int(0));
    let at = positions_along(g, &shape, axis);
    let end = splat(g, Scalar::Int(end as i64), DType::I32, &shape);
    let early = g.binary(Op::CmpLt, at, end);
    g.select(early, x, y)
}

/// `Scatter(x, index, src)` over the axis.
pub(super) fn scatter(g: &mut Graph, src: [UOp; 3], how: ScatterMode, axis: u8, t: &Target) -> UOp {
    let [x, index, values] = src;
    let dt = g.dtype(x);
    if let Some(wide) = wider(how, dt) {
        let src = [g.cast(x, wide), index, g.cast(values, wide)];
        let out = scatter(g, src, how, axis, t);
        return g.cast(out, dt);
    }
    let a = axis as usize;
    let (shape, updates) = (g.shape(x).clone(), g.shape(index).clone());
    let (m, others) = (updates[a], g.memory_len(index) / updates[a].max(1));
    let share =
        if t.caps.has_local && others > 0 { (GPU_BUSY_ROWS * 4 / others).min(m / MIN_UPDATES_PER_THREAD) } else { 1 };
    let pieces = share.min(MAX_PARTIAL_ELEMS / g.memory_len(x).max(1));
    if pieces < 2 {
        return scatter_in_order(g, src, how, axis, t);
    }
    match how {
        ScatterMode::Combine(op) if regroups(op, dt) => {
            let size = m.div_ceil(pieces);
            let nothing = op.identity(dt);
            let values = padded(g, values, a, (0, pieces * size - m), nothing);
            let index = padded(g, index, a, (0, pieces * size - m), Scalar::Int(0));
            let (index, values) = (cut(g, index, a, pieces, size), cut(g, values, a, pieces, size));
            let mut each = shape.clone();
            each.insert(a, pieces);
            let start = splat(g, nothing, dt, &each);
            let parts = scatter_in_order(g, [start, index, values], how, axis + 1, t);
            let all = g.reduce(parts, op, &[axis]);
            let all = g.reshape(all, &shape);
            g.binary(op.op(), x, all)
        }
        ScatterMode::Overwrite => {
            // the number of the last update of each element
            let order = positions_along(g, &updates, a);
            let none = splat(g, Scalar::Int(-1), DType::I32, &shape);
            let last = scatter(g, [none, index, order], ScatterMode::Combine(ReduceOp::Max), axis, t);
            let padding: Vec<(usize, usize)> =
                shape.iter().zip(&updates).enumerate().map(|(i, (n, u))| (0, if i == a { 0 } else { n - u })).collect();
            let values = g.pad(values, &padding);
            let new = g.node(Op::Gather, dt, &[values, last], Arg::Axes(smallvec![axis]));
            let least = splat(g, Scalar::Int(0), DType::I32, &shape);
            let kept = g.binary(Op::CmpLt, last, least);
            g.select(kept, x, new)
        }
        _ => scatter_in_order(g, src, how, axis, t),
    }
}

/// A scatter whose updates are processed in order by one loop, or by several scatters one after the other if the loop
/// would be too long.
fn scatter_in_order(g: &mut Graph, [x, index, values]: [UOp; 3], how: ScatterMode, axis: u8, t: &Target) -> UOp {
    let (a, dt, most) = (axis as usize, g.dtype(x), t.limits.max_loop_iterations as usize);
    let m = g.shape(index)[a];
    let mut x = x;
    // if all indices differ, updates are independent and run in parallel
    let step = if how == ScatterMode::Unique { m } else { most }.clamp(1, m.max(1));
    for from in (0..m.max(1)).step_by(step) {
        let len = step.min(m - from);
        let (index, values) = (window(g, index, a, from, len), window(g, values, a, from, len));
        x = g.node(Op::Scatter, dt, &[x, index, values], Arg::Scatter(how, axis));
    }
    x
}

/// The dtype in which sums and products are computed, if it is wider than `dt`.
fn wider(how: ScatterMode, dt: DType) -> Option<DType> {
    let sums = matches!(how, ScatterMode::Combine(ReduceOp::Add | ReduceOp::Mul));
    (sums && dt.is_float() && dt.size() == 2).then_some(DType::F32)
}

/// May results of pieces be combined? Not those of a product of floats, which may overflow or underflow in a piece
/// although the whole product would not.
fn regroups(op: ReduceOp, dt: DType) -> bool {
    op != ReduceOp::Mul || !dt.is_float()
}

/// Splits an axis into `pieces` of `size` elements, padded with zeros at its end.
fn cut(g: &mut Graph, x: UOp, axis: usize, pieces: usize, size: usize) -> UOp {
    let mut shape = g.shape(x).clone();
    let padding = pieces * size - shape[axis];
    let x = padded(g, x, axis, (0, padding), Scalar::Int(0));
    shape[axis] = size;
    shape.insert(axis, pieces);
    g.reshape(x, &shape)
}

fn window(g: &mut Graph, x: UOp, axis: usize, from: usize, len: usize) -> UOp {
    let mut pairs: Vec<(usize, usize)> = g.shape(x).iter().map(|&n| (0, n)).collect();
    pairs[axis] = (from, from + len);
    g.shrink(x, &pairs)
}

/// Pads an axis before and after with copies of `with`.
pub(super) fn padded(g: &mut Graph, x: UOp, axis: usize, padding: (usize, usize), with: Scalar) -> UOp {
    if padding == (0, 0) {
        return x;
    }
    let (dt, n) = (g.dtype(x), g.shape(x)[axis]);
    let mut pairs = vec![(0, 0); g.shape(x).len()];
    pairs[axis] = padding;
    let wide = g.pad(x, &pairs);
    if with.as_f64() == 0.0 {
        return wide;
    }
    let shape = g.shape(wide).clone();
    let at = positions_along(g, &shape, axis);
    let (from, to) = (padding.0 as i64, (padding.0 + n) as i64);
    let (from, to) = (splat(g, Scalar::Int(from), DType::I32, &shape), splat(g, Scalar::Int(to), DType::I32, &shape));
    let (early, inside) = (g.binary(Op::CmpLt, at, from), g.binary(Op::CmpLt, at, to));
    let other = splat(g, with, dt, &shape);
    let wide = g.select(inside, wide, other);
    g.select(early, other, wide)
}

/// `0, 1, ..` along an axis of `shape`, i32.
fn positions_along(g: &mut Graph, shape: &[usize], axis: usize) -> UOp {
    let mut ones = Shape::from_elem(1, shape.len());
    ones[axis] = shape[axis];
    let iota = g.node(Op::Iota, DType::I32, &[], Arg::Shape(smallvec![shape[axis]]));
    let iota = g.reshape(iota, &ones);
    g.expand(iota, shape)
}

fn splat(g: &mut Graph, value: Scalar, dt: DType, shape: &[usize]) -> UOp {
    let c = g.constant(value, dt);
    let c = g.reshape(c, &Shape::from_elem(1, shape.len()));
    g.expand(c, shape)
}
