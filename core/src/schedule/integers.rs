//! Rewrites sums of products of dequantised bytes to integer arithmetic: `sum((x - zx) * sx * (w - zw) * sw)` is
//! `(sum(x * w) - zx * sum(w) - zw * sum(x) + n * zx * zw) * sx * sw`, if scales (`sx`, `sw`) and zero points (`zx`,
//! `zw`) are the same for all `n` terms of a sum. In: a tensor graph. Out: the graph with such sums rewritten. It is one
//! of the passes over a model's graph (`engine/passes.rs`).
//!
//! `sum(x * w)` is exact in i32, and processors have instructions for it. One operand is computed in each run
//! (activations) and stored in the form that the instruction takes ([`Dots`]). The other operand is constant and signed
//! (weights); its sum `sum(w)` is computed once, ahead of all runs.
//!
//! The computed operand is stored with the summed axis last (the channels of a convolution), so that the instruction
//! finds its operands at consecutive addresses. Padding writes the zero point around it. Nothing here knows which layer
//! a graph computes, only that a value is a scaled and shifted byte.

use crate::DType;
use crate::analysis::constant::constants;
use crate::analysis::product::factors;
use crate::analysis::reshape::{Group, group_of};
use crate::target::{Dots, Target};
use crate::uop::{Arg, Axes, Graph, Op, Pairs, ReduceOp, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;

/// The most nodes of one operand that a search visits.
const MAX_LOOK: usize = 64;

/// Limit for rounding a summed axis up to whole groups of [`Dots::group`] elements: the added zeros may be at most this
/// fraction (numerator, denominator) of the axis.
const MOST_ADDED: (usize, usize) = (2, 5);

/// The layout in which bytes are stored.
#[derive(Clone, Copy)]
struct ByteLayout {
    /// The axis that becomes the last, contiguous one.
    last: usize,
    /// Length of that axis in memory, with the zeros that round it up.
    len: usize,
}

/// A sum that can be computed in integers.
struct Found {
    /// The bytes that each run computes, and the layout in which to store them.
    base: UOp,
    layout: ByteLayout,
    /// Is the sum over consecutive bytes, so that an instruction for sums of products applies?
    is_contiguous_sum: bool,
    /// The axis of the product that is rounded up, and its new length.
    round_up: Option<(usize, usize)>,
}

/// An operand as `(bytes - zero) * scale`, all of one shape; zero (i32) and scale (f32) may be scalars.
#[derive(Clone, Copy)]
struct Quantised {
    bytes: UOp,
    zero: Option<UOp>,
    scale: Option<UOp>,
}

/// Rewrites such sums below `roots` to integers and gives the new roots, or `None` if there are no such sums. `inputs`
/// are the buffers whose contents differ from run to run.
pub fn in_integers(g: &mut Graph, roots: &[UOp], inputs: &[u32], t: &Target) -> Option<Vec<UOp>> {
    let Dots { group, stored: dt } = t.caps.dots?;
    let nodes = g.value_nodes(roots);
    let fixed = constants(g, &nodes, inputs);
    let mut stores: FxHashMap<UOp, ByteLayout> = FxHashMap::default();
    let mut sums: FxHashMap<UOp, Option<(usize, usize)>> = FxHashMap::default();
    for &u in &nodes {
        if let Some(found) = candidate(g, u, &fixed, group)
            && let first = fixed[g.src_at(g.src_at(u, 0), 0).0 as usize]
            && operands(g, u, first).is_some()
        {
            stores.entry(found.base).or_insert(found.layout);
            // without sums over consecutive bytes, products of bytes that are stored in 16 bits are no faster than
            // products of floats
            if found.is_contiguous_sum || dt != DType::I16 {
                sums.insert(u, found.round_up);
            }
        }
    }
    if sums.is_empty() {
        return None;
    }
    let mut map = vec![UOp(u32::MAX); g.len()];
    for u in nodes {
        let src: SmallVec<[UOp; 4]> = g.srcs(u).iter().map(|s| map[s.0 as usize]).collect();
        // a Detach that carries a gradient keeps sources that this pass has not visited: only its value is needed
        let mut v = if src.contains(&UOp(u32::MAX)) { src[0] } else { g.with_src(u, &src) };
        if let Some(&round_up) = sums.get(&u) {
            let fixed_first = fixed[g.src_at(g.src_at(u, 0), 0).0 as usize];
            v = sum(g, v, fixed_first, round_up, dt).unwrap_or(v);
        }
        if let Some(layout) = stores.get(&u) {
            v = stored(g, v, layout, dt);
        }
        map[u.0 as usize] = v;
    }
    Some(roots.iter().map(|r| map[r.0 as usize]).collect())
}

/// How to compute `u`, if it is a sum of products of bytes that each run computes and constant bytes, and if integers
/// pay.
fn candidate(g: &Graph, u: UOp, fixed: &[bool], group: usize) -> Option<Found> {
    let Arg::Reduce(_, axes) = g.arg(u) else { return None };
    let (product, [mut x, mut w]) = (g.src_at(u, 0), factors(g, u)?);
    if !matches!(g.dtype(u), DType::F32 | DType::I32) {
        return None;
    }
    if fixed[x.0 as usize] {
        (x, w) = (w, x);
    }
    if fixed[x.0 as usize] || !fixed[w.0 as usize] {
        return None;
    }
    let shape = g.shape(product).clone();
    let terms: usize = axes.iter().map(|&a| shape[a as usize]).product();
    if g.dtype(u) == DType::F32 && terms.checked_mul(255 * 128).is_none_or(|n| n > i32::MAX as usize) {
        return None;
    }
    path(g, w)?;
    let to_x = path(g, x)?;
    let base = *to_x.last()?;
    let plain = |a: usize| follow(g, &to_x, a).filter(|_| shape[a] > 1);
    let summed = axes.iter().filter_map(|&a| Some((a as usize, plain(a as usize)?)));
    let summed = summed.max_by_key(|x| shape[x.0]);
    let is_contiguous_sum = summed.is_some();
    let (round_up, last) = match summed {
        Some((a, last)) => {
            let (n, to) = (shape[a], shape[a].next_multiple_of(group));
            let few = n == to || g.shape(base)[last] == n && (to - n) * MOST_ADDED.1 <= n * MOST_ADDED.0;
            (Some((a, to)).filter(|_| n < to), Some(last).filter(|_| few && varies(g, w, a))?)
        }
        // no axis is summed over consecutive bytes, as in a depthwise convolution: the axis along which weights differ
        // goes last
        None => {
            let own = (0..shape.len()).filter(|&a| !axes.contains(&(a as u8)) && varies(g, w, a));
            (None, own.filter_map(|a| Some((shape[a], plain(a)?))).max()?.1)
        }
    };
    let len = round_up.map_or(g.shape(base)[last], |w| w.1);
    Some(Found { base, layout: ByteLayout { last, len }, is_contiguous_sum, round_up })
}

/// The chain of nodes from an operand down to its bytes, which come last.
fn path(g: &Graph, u: UOp) -> Option<Vec<UOp>> {
    let mut look = MAX_LOOK;
    let mut out = Vec::new();
    descend(g, u, &mut out, &mut look).then_some(out)
}

fn descend(g: &Graph, mut u: UOp, out: &mut Vec<UOp>, look: &mut usize) -> bool {
    loop {
        if *look == 0 {
            return false;
        }
        *look -= 1;
        out.push(u);
        let (op, dt) = (g.op(u), g.dtype(u));
        let byte = matches!(dt, DType::I8 | DType::U8);
        if (byte || dt == DType::I16) && is_buffer(g, u) {
            return true;
        }
        if op.is_movement() {
            u = g.src_at(u, 0);
            continue;
        }
        match op {
            Op::Cast if byte && keeps_value(g, u) => u = g.src_at(u, 0),
            Op::Cast if matches!(dt, DType::F32 | DType::I32) && g.dtype(g.src_at(u, 0)) != DType::I16 => {
                u = g.src_at(u, 0)
            }
            Op::Sub if !byte => u = g.src_at(u, 0),
            Op::Add | Op::Mul if !byte && (op == Op::Add || dt == DType::F32) => {
                let len = out.len();
                if descend(g, g.src_at(u, 0), out, look) {
                    return true;
                }
                out.truncate(len);
                u = g.src_at(u, 1);
            }
            _ => return byte && op != Op::Const,
        }
    }
}

/// Is it a whole buffer, up to reshape?
fn is_buffer(g: &Graph, mut u: UOp) -> bool {
    while g.op(u) == Op::Reshape {
        u = g.src_at(u, 0);
    }
    matches!(g.op(u), Op::Buffer | Op::Contiguous)
}

/// Does this cast to a byte keep the value? It does for the casts that [`stored`] makes, to shift or narrow a byte.
fn keeps_value(g: &Graph, u: UOp) -> bool {
    let x = g.src_at(u, 0);
    let (lo, hi) = g.bounds(x);
    let fits = g.dtype(u).int_range().is_some_and(|r| i128::from(lo) >= r.0 && i128::from(hi) <= r.1);
    let whole = match g.dtype(x) {
        DType::I32 => matches!(g.op(x), Op::Sub | Op::Add),
        DType::I16 => true,
        _ => false,
    };
    fits && whole
}

/// Follows axis `a` of the first node of a path down to the bytes at its end. `None` if it is not one axis there.
fn follow(g: &Graph, path: &[UOp], mut a: usize) -> Option<usize> {
    for &u in &path[..path.len() - 1] {
        a = below(g, u, a)?;
    }
    Some(a)
}

/// The axis of a node's source that carries its axis `a`: all of it, or the fastest-varying part of it, whose elements
/// are neighbours.
fn below(g: &Graph, u: UOp, a: usize) -> Option<usize> {
    let same = |p: &(usize, usize), n: usize| *p == (0, n);
    Some(match (g.op(u), g.arg(u)) {
        (Op::Permute, Arg::Axes(axes)) => axes[a] as usize,
        (Op::Reshape, _) => {
            let Group { from: mine, to: theirs } = group_of(g.shape(g.src_at(u, 0)), g.shape(u), a);
            let long = |shape: &[usize], at: Range<usize>| at.filter(|&i| shape[i] != 1).collect::<Vec<_>>();
            let inner = long(g.shape(g.src_at(u, 0)), mine);
            *inner.first().filter(|_| inner.len() == 1 && long(g.shape(u), theirs).last() == Some(&a))?
        }
        (Op::Expand, _) if g.shape(g.src_at(u, 0))[a] != g.shape(u)[a] => return None,
        (Op::Pad, Arg::Pairs(p)) => Some(a).filter(|_| p[a] == (0, 0))?,
        (Op::Shrink, Arg::Pairs(p)) => Some(a).filter(|_| same(&p[a], g.shape(g.src_at(u, 0))[a]))?,
        (Op::Flip, Arg::Axes(axes)) => Some(a).filter(|_| !axes.contains(&(a as u8)))?,
        _ => a,
    })
}

/// Does a value vary along its axis `a`?
fn varies(g: &Graph, u: UOp, a: usize) -> bool {
    let mut stack: SmallVec<[(UOp, usize); 8]> = SmallVec::from_elem((u, a), 1);
    let mut look = MAX_LOOK;
    while let Some((u, a)) = stack.pop() {
        if g.shape(u).is_empty() || g.shape(u)[a] == 1 || g.op(u) == Op::Const {
            continue;
        }
        if look == 0 {
            return true;
        }
        look -= 1;
        match g.op(u) {
            Op::Expand if g.shape(g.src_at(u, 0))[a] == 1 => {}
            Op::Reshape if below(g, u, a).is_none() => {
                let inner = group_of(g.shape(g.src_at(u, 0)), g.shape(u), a).from;
                stack.extend(inner.map(|i| (g.src_at(u, 0), i)));
            }
            Op::Shrink | Op::Flip => stack.push((g.src_at(u, 0), a)),
            op if op.is_movement() => match below(g, u, a) {
                Some(a) => stack.push((g.src_at(u, 0), a)),
                None => return true,
            },
            op if op.is_alu() => stack.extend(g.src(u).iter().map(|&s| (s, a))),
            _ => return true,
        }
    }
    false
}

/// Materialises bytes as `dt` in this layout, and gives the value that they had, with its dtype and order of axes.
fn stored(g: &mut Graph, u: UOp, layout: &ByteLayout, dt: DType) -> UOp {
    let rank = g.shape(u).len() as u8;
    let last = layout.last as u8;
    let order: Axes = (0..rank).filter(|&a| a != last).chain([last]).collect();
    let mut back: Axes = order.clone();
    (0..rank).for_each(|i| back[order[i as usize] as usize] = i);
    let from = g.dtype(u);
    let n = g.shape(u)[layout.last];
    if from == dt && is_buffer(g, u) && last + 1 == rank && n == layout.len {
        return u;
    }
    let by = match (from, dt) {
        (DType::I8, DType::U8) => 128,
        (DType::U8, DType::I8) => -128,
        _ => 0,
    };
    let bytes = if by == 0 { g.cast(u, dt) } else { flip_signedness(g, u, by, dt) };
    let bytes = g.permute(bytes, &order);
    let mut padding: Pairs = (0..rank).map(|_| (0, 0)).collect();
    padding[rank as usize - 1].1 = layout.len - n;
    let bytes = match n == layout.len {
        true => bytes,
        // padding selects between zero and the value, and selects are 32 bits wide
        false => {
            let wide = g.cast(bytes, DType::I32);
            let wide = g.pad(wide, &padding);
            g.cast(wide, dt)
        }
    };
    let bytes = g.node(Op::Contiguous, dt, &[bytes], Arg::None);
    let mut own: Pairs = g.shape(bytes).iter().map(|&n| (0, n)).collect();
    own[rank as usize - 1].1 = n;
    let bytes = g.shrink(bytes, &own);
    let bytes = g.permute(bytes, &back);
    if by == 0 { g.cast(bytes, from) } else { flip_signedness(g, bytes, -by, from) }
}

/// Converts between signed and unsigned bytes by adding `by`, 128 or -128.
fn flip_signedness(g: &mut Graph, u: UOp, by: i64, to: DType) -> UOp {
    // an earlier cast to a byte only drops high bits, which the cast below drops as well, so it can be skipped
    let cast = g.op(u) == Op::Cast && g.dtype(g.src_at(u, 0)) == DType::I32;
    let wide = if cast { g.src_at(u, 0) } else { g.cast(u, DType::I32) };
    let c = g.idx(by.abs());
    let sum = g.binary(if by < 0 { Op::Sub } else { Op::Add }, wide, c);
    g.cast(sum, to)
}

/// The bytes, zero point and scale of an operand. With `signed` its bytes are made i8.
fn quantised(g: &mut Graph, u: UOp, signed: bool) -> Option<Quantised> {
    let path = path(g, u)?;
    let base = *path.last()?;
    let mut c = Quantised { bytes: base, zero: None, scale: None };
    if signed && g.dtype(base) == DType::U8 {
        c = Quantised { bytes: flip_signedness(g, base, -128, DType::I8), zero: Some(g.idx(-128)), scale: None };
    }
    for at in path.windows(2).rev() {
        c = apply_node(g, at[0], at[1], c)?;
    }
    Some(c)
}

/// Applies the node `u` to the operand that its source `below` is, and gives the result in the same form.
fn apply_node(g: &mut Graph, u: UOp, below: UOp, c: Quantised) -> Option<Quantised> {
    let other = || g.src(u).iter().copied().find(|&s| s != below);
    let int = g.dtype(u) == DType::I32;
    Some(match (g.op(u), g.arg(u).clone()) {
        (Op::Pad, Arg::Pairs(pairs)) => {
            let mut one = |x: Option<UOp>| x.map_or(Some(None), |x| single(g, x).map(Some));
            let (zero, scale) = (one(c.zero)?, one(c.scale)?);
            Quantised { bytes: padded(g, c.bytes, &pairs, zero)?, zero, scale }
        }
        (op, _) if op.is_movement() => {
            let mut go = |x: UOp| match g.shape(x).is_empty() {
                true => x,
                false => g.node(op, g.dtype(x), &[x], g.arg(u).clone()),
            };
            Quantised { bytes: go(c.bytes), zero: c.zero.map(&mut go), scale: c.scale.map(&mut go) }
        }
        (Op::Cast, _) if c.scale.is_none() || !int => c,
        (Op::Sub | Op::Add, _) if c.scale.is_none() => {
            let z = other()?;
            let z = whole_zero_point(g, z)?;
            let adds = g.op(u) == Op::Sub;
            let zero = c.zero.unwrap_or_else(|| g.idx(0));
            let zero = match (g.const_int(zero), g.const_int(z)) {
                (Some(a), Some(b)) => g.idx(if adds { a + b } else { a - b }),
                _ => g.binary(if adds { Op::Add } else { Op::Sub }, zero, z),
            };
            Quantised { zero: Some(zero), ..c }
        }
        (Op::Mul, _) => {
            let s = other()?;
            let scale = c.scale.map_or(s, |own| g.binary(Op::Mul, own, s));
            Quantised { scale: Some(scale), ..c }
        }
        _ => return None,
    })
}

/// The scalar of which all elements of a value are copies.
fn single(g: &mut Graph, mut u: UOp) -> Option<UOp> {
    while g.numel(u) != 1 && g.op(u).is_movement() && g.op(u) != Op::Pad {
        u = g.src_at(u, 0);
    }
    (g.numel(u) == 1).then(|| if g.op(u) == Op::Const { u } else { g.reshape(u, &[]) })
}

/// A zero point as i32: an integer tensor of at most 32 bits, or a constant with a whole value.
fn whole_zero_point(g: &mut Graph, u: UOp) -> Option<UOp> {
    let mut path: SmallVec<[UOp; 8]> = SmallVec::new();
    let mut x = u;
    while g.op(x).is_movement() || g.op(x) == Op::Cast && !g.dtype(x).is_int() {
        path.push(x);
        x = g.src_at(x, 0);
    }
    if let Some(c) = g.const_val(x) {
        let v = c.as_f64();
        let padded = path.iter().any(|&p| g.op(p) == Op::Pad);
        return (v.trunc() == v && v.abs() <= 1e6 && !padded).then(|| g.idx(v as i64));
    }
    if !g.dtype(x).is_int() || g.dtype(x).size() > 4 || g.dtype(x) == DType::U32 {
        return None;
    }
    let mut out = g.cast(x, DType::I32);
    for &p in path.iter().rev().filter(|&&p| g.op(p).is_movement()).collect::<SmallVec<[_; 8]>>() {
        out = g.node(g.op(p), DType::I32, &[out], g.arg(p).clone());
    }
    Some(out)
}

/// Pads bytes with the zero point, which stands for the value 0.
fn padded(g: &mut Graph, bytes: UOp, pairs: &[(usize, usize)], zero: Option<UOp>) -> Option<UOp> {
    let dt = g.dtype(bytes);
    let zero = zero.filter(|&z| g.const_int(z) != Some(0));
    let Some(zero) = zero else { return Some(g.pad(bytes, pairs)) };
    let (lo, hi) = g.bounds(zero);
    let range = dt.int_range()?;
    if (lo as i128) < range.0 || hi as i128 > range.1 {
        return None;
    }
    // pads in the order of axes in which the bytes lie in memory
    let order = match (g.op(bytes), g.arg(bytes)) {
        (Op::Permute, Arg::Axes(order)) => order.clone(),
        _ => (0..pairs.len() as u8).collect(),
    };
    let mut inner = Pairs::from_slice(pairs);
    order.iter().zip(pairs).for_each(|(&a, &p)| inner[a as usize] = p);
    let mut x = if g.op(bytes) == Op::Permute { g.src_at(bytes, 0) } else { bytes };
    // the zeros that round an axis up stay behind it
    let own: Pairs = g.shape(x).iter().zip(&inner).map(|(&n, p)| (0, n + p.0 + p.1)).collect();
    if g.op(x) == Op::Shrink && g.op(g.src_at(x, 0)) == Op::Contiguous {
        let all = g.src_at(x, 0);
        let mut cut = g.shape(x).iter().zip(g.shape(all)).map(|(a, b)| a != b);
        if inner.iter().all(|&pad| !cut.next().unwrap_or(true) || pad == (0, 0)) {
            x = all;
        }
    }
    let zero = match g.const_int(zero) {
        Some(c) => g.int(c, dt),
        None => g.cast(zero, dt),
    };
    // the subtraction may wrap around, and the addition wraps back
    let x = g.binary(Op::Sub, x, zero);
    let x = g.pad(x, &inner);
    let x = g.binary(Op::Add, x, zero);
    let x = g.node(Op::Contiguous, dt, &[x], Arg::None);
    let x = g.shrink(x, &own);
    Some(g.permute(x, &order))
}

/// The computed operand and the constant one of a sum of products, if it can be computed in integers without overflow.
fn operands(g: &mut Graph, u: UOp, fixed_first: bool) -> Option<(Quantised, Quantised)> {
    let Arg::Reduce(_, axes) = g.arg(u).clone() else { return None };
    let product = g.src_at(u, 0);
    let (mut x, mut w) = (g.src_at(product, 0), g.src_at(product, 1));
    if fixed_first {
        (x, w) = (w, x);
    }
    let (x, w) = (quantised(g, x, false)?, quantised(g, w, true)?);
    let shape = g.shape(product).clone();
    let parts = [x.zero, x.scale, w.zero, w.scale];
    let same = |v: UOp| axes.iter().all(|&a| !varies(g, v, a as usize));
    let whole = *g.shape(x.bytes) == shape && *g.shape(w.bytes) == shape;
    if !whole || g.dtype(w.bytes) != DType::I8 || !parts.into_iter().flatten().all(same) {
        return None;
    }
    let n: usize = axes.iter().map(|&a| shape[a as usize]).product();
    let most = |c: &Quantised| {
        let (b, z) = (g.bounds(c.bytes), c.zero.map_or((0, 0), |z| g.bounds(z)));
        (b.1 - z.0).abs().max((b.0 - z.1).abs()).min(1 << 31)
    };
    let limit = i128::from(most(&x)) * i128::from(most(&w)) * n as i128;
    (g.dtype(u) == DType::I32 || limit <= i128::from(i32::MAX)).then_some((x, w))
}

/// Builds the integer form of the sum of products `u`, whose computed bytes are stored as `dt`.
fn sum(g: &mut Graph, u: UOp, fixed_first: bool, round_up: Option<(usize, usize)>, dt: DType) -> Option<UOp> {
    let Arg::Reduce(_, axes) = g.arg(u).clone() else { return None };
    let (x, w) = operands(g, u, fixed_first).filter(|o| g.dtype(o.0.bytes) == dt)?;
    let (shape, out) = (g.shape(g.src_at(u, 0)).clone(), g.shape(u).clone());
    let n: usize = axes.iter().map(|&a| shape[a as usize]).product();
    let [zx, zw] = [x.zero, w.zero].map(|z| z.filter(|&z| g.const_int(z) != Some(0)));
    let total = |g: &mut Graph, bytes: UOp| {
        let own = narrowed(g, bytes, &[]);
        let wide = g.cast(own, DType::I32);
        let (axes, repeated): (Axes, Axes) = axes.iter().copied().partition(|&a| g.shape(own)[a as usize] > 1);
        let sum = g.reduce(wide, ReduceOp::Add, &axes);
        let times = g.idx(repeated.iter().map(|&a| shape[a as usize] as i64).product());
        g.binary(Op::Mul, sum, times)
    };
    let mut bytes = [x.bytes, w.bytes];
    if let Some((a, to)) = round_up {
        let mut padding: Pairs = shape.iter().map(|_| (0, 0)).collect();
        padding[a].1 = to - shape[a];
        // weights are stored with their zeros, once: kept as a mask, the zeros would be optimised out of the sum again
        let own = narrowed(g, w.bytes, &[]);
        let own = g.pad(own, &padding);
        let own = g.node(Op::Contiguous, DType::I8, &[own], Arg::None);
        let mut wide = shape.clone();
        wide[a] = to;
        bytes = [widened(g, x.bytes, a, to)?, g.expand(own, &wide)];
    }
    let [a, b] = bytes.map(|v| g.cast(v, DType::I32));
    let product = g.binary(Op::Mul, a, b);
    let mut sum = g.reduce(product, ReduceOp::Add, &axes);
    let mut correction: Option<UOp> = None;
    if let Some(z) = zx {
        let (z, all) = (narrowed(g, z, &axes), total(g, w.bytes));
        correction = Some(joined(g, Op::Mul, z, all));
    }
    if let Some(z) = zw {
        let (z, mut all) = (narrowed(g, z, &axes), total(g, x.bytes));
        if let Some(zx) = zx {
            let (zx, n) = (narrowed(g, zx, &axes), g.idx(n as i64));
            let zeros = g.binary(Op::Mul, zx, n);
            all = joined(g, Op::Sub, all, zeros);
        }
        let term = joined(g, Op::Mul, z, all);
        correction = Some(correction.map_or(term, |l| joined(g, Op::Add, l, term)));
    }
    if let Some(correction) = correction {
        let correction = spread(g, correction, &out);
        sum = g.binary(Op::Sub, sum, correction);
    }
    if g.dtype(u) == DType::I32 {
        return Some(sum);
    }
    let sum = g.cast(sum, DType::F32);
    let [sx, sw] = [x.scale, w.scale].map(|s| s.map(|s| narrowed(g, s, &axes)));
    let scale = match (sx, sw) {
        (Some(x), Some(w)) => Some(joined(g, Op::Mul, x, w)),
        (x, w) => x.or(w),
    };
    Some(match scale {
        Some(s) => {
            let s = spread(g, s, &out);
            g.binary(Op::Mul, sum, s)
        }
        None => sum,
    })
}

/// Widens axis `a` of stored bytes to `to` elements, by including those that were stored behind the ones in view.
fn widened(g: &mut Graph, u: UOp, a: usize, to: usize) -> Option<UOp> {
    let mut path: SmallVec<[(UOp, usize); 16]> = SmallVec::new();
    let (mut x, mut at) = (u, a);
    loop {
        let n = g.shape(x)[at];
        if n == to {
            break;
        }
        let inner = match (g.op(x), g.arg(x)) {
            (Op::Shrink, Arg::Pairs(p)) if p[at] == (0, n) && g.shape(g.src_at(x, 0))[at] == to => at,
            (op, _) if op.is_movement() => {
                below(g, x, at).filter(|&i| g.shape(g.src_at(x, 0))[i] == n && path.len() < MAX_LOOK)?
            }
            _ => return None,
        };
        path.push((x, at));
        (x, at) = (g.src_at(x, 0), inner);
    }
    for (u, a) in path.into_iter().rev() {
        let mut arg = g.arg(u).clone();
        match &mut arg {
            Arg::Shape(s) => s[a] = to,
            Arg::Pairs(p) if g.op(u) == Op::Shrink => p[a] = (0, to),
            _ => {}
        }
        x = g.node(g.op(u), g.dtype(u), &[x], arg);
    }
    Some(x)
}

/// Shrinks a value to one element along each axis along which it does not vary, and along each of `axes`.
fn narrowed(g: &mut Graph, u: UOp, axes: &[u8]) -> UOp {
    let shape = g.shape(u).clone();
    let one = |a: usize| axes.contains(&(a as u8)) || !varies(g, u, a);
    let pairs: Pairs = shape.iter().enumerate().map(|(a, &n)| if one(a) { (0, n.min(1)) } else { (0, n) }).collect();
    g.shrink(u, &pairs)
}

/// Combines two narrowed values, expanded to their smallest common shape.
fn joined(g: &mut Graph, op: Op, x: UOp, y: UOp) -> UOp {
    let (a, b) = (g.shape(x).clone(), g.shape(y).clone());
    if a.is_empty() || b.is_empty() {
        return g.binary(op, x, y);
    }
    let shape: SmallVec<[usize; 6]> = a.iter().zip(&b).map(|(&m, &n)| m.max(n)).collect();
    let (x, y) = (g.expand(x, &shape), g.expand(y, &shape));
    g.binary(op, x, y)
}

/// Expands a narrowed value to `shape`.
fn spread(g: &mut Graph, u: UOp, shape: &[usize]) -> UOp {
    if g.shape(u).is_empty() { u } else { g.expand(u, shape) }
}
