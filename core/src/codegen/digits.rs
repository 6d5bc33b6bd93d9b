//! Splits loops (strip-mining) whose index is divided or taken modulo a constant in an address, so that addresses
//! become linear, as vectors, tiles and staged copies need them. Example: in a convolution of two groups a loop `c`
//! over 64 channels is used as `c / 32` and `c % 32`; it becomes two loops of length 2 and 32, one for each digit of
//! `c`.
//!
//! A transposed convolution, like the input gradient of a strided one, reads an element only where
//! `(w + k) % stride == 0`, for the output position `w` and the filter tap `k`. The loops over `w` and `k` are split as
//! well: the loop over `w % stride` (the phase) becomes a loop of its own, and in each phase the loop over taps runs
//! only over those that satisfy the condition.
//!
//! In: a kernel with fused loops, before opts are chosen (pass `split-axes`). Out: the same kernel with more loops and
//! fewer divisions.

use super::axes::{Kernel, PastEnd};
use crate::Result;
use crate::rules::{conjuncts, nonzero_conditions, sum_of_ranges};
use crate::target::HAS_DOTS;
use crate::uop::{Arg, AxisKind, Graph, Op, RangeArg, RangeSet, ReduceOp, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most splits per kernel. Each split leaves fewer divisions, so the limit only bounds the compile time.
const MOST_SPLITS: usize = 12;

/// A split of loops after which an address needs no division by `by`.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The address divides the index of one output loop.
    Digit { range: UOp, by: usize },
    /// The address takes `±out ± tap + rest` modulo `by`, where `out` is an output loop, `tap` a reduced loop, and each
    /// comes with its sign. The terms of the reduction are zero wherever the node `remainder` is not zero.
    Phase { out: (UOp, i64), tap: (UOp, i64), rest: i64, by: usize, remainder: UOp },
}

/// Splits loops as long as each split reduces the number of divisions.
pub(super) fn split(k: &mut Kernel) {
    if k.count_divmod() == 0 || k.role.is_rows() {
        return;
    }
    let all = k.count_divmod();
    for _ in 0..MOST_SPLITS {
        let before = k.count_divmod();
        let mut better = None;
        for cut in cuts(k) {
            let mut trial = k.clone();
            // an error means that the kernel would have too many axes: then it is left as it is
            if apply(&mut trial, cut).unwrap_or(false) && trial.count_divmod() < before {
                better = Some(trial);
                break;
            }
        }
        match better {
            Some(trial) => *k = trial,
            None => break,
        }
    }
    if k.count_divmod() < all {
        drop_gates_past_end(k);
    }
}

/// Removes unnecessary conditions from the gates of loads after a loop was rounded up: results past the loop's end are
/// not stored, so a load for them needs no mask if its address is inside the buffer for all values of the loops.
fn drop_gates_past_end(k: &mut Kernel) {
    let g = &mut k.g;
    let stores = g.srcs(k.sink);
    let unstored = |g: &Graph, c: UOp| {
        stores.iter().all(|&s| g.src(s).get(2).is_some_and(|&gate| conjuncts(g, gate).contains(&c)))
    };
    let mut map = FxHashMap::default();
    for u in g.reachable(&[k.sink]) {
        let (Op::Load, &[index, alt, gate]) = (g.op(u), &g.srcs(u)[..]) else { continue };
        let Arg::Param { len, .. } = *g.arg(g.src_at(index, 0)) else { continue };
        let (least, most) = g.bounds(g.src_at(index, 1));
        let rest: SmallVec<[UOp; 8]> = conjuncts(g, gate).into_iter().filter(|&c| !unstored(g, c)).collect();
        if least >= 0 && most < len as i64 {
            let rest = rest.into_iter().reduce(|a, b| g.binary(Op::And, a, b));
            let src = rest.map_or(vec![index], |rest| vec![index, alt, rest]);
            map.insert(u, g.with_src(u, &src));
        }
    }
    if !map.is_empty() {
        k.replace(&map);
    }
}

/// The possible splits, in graph order of the divisions.
fn cuts(k: &Kernel) -> Vec<Cut> {
    let g = &k.g;
    let mut out = Vec::new();
    let mut nodes = k.nodes();
    if HAS_DOTS && nodes.iter().any(|&u| g.op(u).is_dot()) {
        // rows that are adjacent in memory become lanes, and what is read once per result must not split their loop:
        // only divisions below the sums count
        let sums: Vec<UOp> = k.reduces().iter().map(|&r| g.src_at(r, 0)).collect();
        nodes = g.reachable(&sums);
    }
    for u in nodes.into_iter().filter(|&u| matches!(g.op(u), Op::FloorDiv | Op::FloorMod)) {
        let Some(by) = g.const_int(g.src_at(u, 1)).filter(|c| (2..=1 << 20).contains(c)) else { continue };
        let Some((terms, rest)) = sum_of_ranges(g, g.src_at(u, 0)) else { continue };
        let odd: SmallVec<[(UOp, i64); 4]> = terms.into_iter().filter(|t| t.1 % by != 0).collect();
        let sign = |a: i64| match a.rem_euclid(by) {
            1 => Some(1),
            a if a == by - 1 => Some(-1),
            _ => None,
        };
        let is = |r: UOp, kind: AxisKind| g.kind(r) == kind;
        match odd[..] {
            [(range, 1)] if is(range, AxisKind::Loop) && rest % by == 0 && g.range_len(range) as i64 % by == 0 => {
                out.push(Cut::Digit { range, by: by as usize });
            }
            [a, b] if g.op(u) == Op::FloorMod && is(a.0, AxisKind::Loop) != is(b.0, AxisKind::Loop) => {
                let (w, tap) = if is(a.0, AxisKind::Loop) { (a, b) } else { (b, a) };
                if let (Some(x), Some(y), true) = (sign(w.1), sign(tap.1), is(tap.0, AxisKind::Reduce)) {
                    out.push(Cut::Phase { out: (w.0, x), tap: (tap.0, y), rest, by: by as usize, remainder: u });
                }
            }
            _ => {}
        }
    }
    out
}

/// Performs a split; false if it is not possible.
fn apply(k: &mut Kernel, cut: Cut) -> Result<bool> {
    match cut {
        Cut::Digit { range, by } => {
            let (n, id, inner) = (k.g.range_len(range), k.g.range_arg(range).id, k.next_id);
            if n == by {
                return Ok(false);
            }
            match k.split(range, by, AxisKind::Loop, false, false) {
                Some(done) => done?,
                None => return Ok(false),
            }
            // if one load depends on both new loops, they are nested directly; otherwise the digit is a phase of the
            // result and goes outside
            let inside = read_with(k, id) >> inner & 1 == 1;
            move_loop(k, id, inner, inside);
            Ok(true)
        }
        Cut::Phase { out, tap, rest, by, remainder } => match vanishes(k, tap.0, remainder) {
            true => phase(k, out, tap, rest, by),
            false => Ok(false),
        },
    }
}

/// The union of the ranges of all loads that depend on this range.
fn read_with(k: &Kernel, id: u8) -> RangeSet {
    let loads = k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Load);
    loads.map(|u| k.g.ranges(u)).filter(|r| r >> id & 1 == 1).fold(0, |all, r| all | r)
}

/// Moves the output loop `inner` in the loop nest: directly inside `outer`, or outside all loops that loads depend on
/// together with `outer`.
fn move_loop(k: &mut Kernel, outer: u8, inner: u8, inside: bool) {
    let mut order = k.ranges_of(AxisKind::Loop);
    let ids: SmallVec<[u8; 8]> = order.iter().map(|&r| k.g.range_arg(r).id).collect();
    let Some(from) = ids.iter().position(|&i| i == inner) else { return };
    let moved = order.remove(from);
    let set = if inside { 1 << outer } else { read_with(k, outer) | 1 << outer };
    let Some(at) = order.iter().position(|&r| set >> k.g.range_arg(r).id & 1 == 1) else { return };
    order.insert(if inside { at + 1 } else { at }, moved);
    k.renumber(&order, &ids);
}

/// Replaces `w` by `by * w1 + (p or by - 1 - p)` and `tap` by `by * tap1 + (p - shift) mod by`, where the new loop `p`
/// (the phase) determines both remainders.
fn phase(k: &mut Kernel, out: (UOp, i64), tap: (UOp, i64), rest: i64, by: usize) -> Result<bool> {
    let (w, r) = (out.0, tap.0);
    let (n, taps, c) = (k.g.range_len(w), k.g.range_len(r), by as i64);
    let (id, arg) = (k.g.range_arg(w).id, k.g.range_arg(r));
    if n < by || taps < 2 {
        return Ok(false);
    }
    if n % by != 0 {
        k.pad_to(w, by)?;
    }
    let Some(w) = k.range_by_id(id) else { return Ok(false) };
    // with this shift the sum of both remainders and `rest` is a multiple of `by` for every p
    let shift = match (out.1, tap.1) {
        (1, 1) => rest - 1,
        (-1, -1) => -1 - rest,
        (1, -1) => -rest,
        _ => rest,
    }
    .rem_euclid(c);
    let p = k.new_range(by, AxisKind::Loop, false)?;
    let inner = k.g.range_arg(p).id;
    let outer = k.g.range_with(n.div_ceil(by), RangeArg { id, kind: AxisKind::Loop, lane: false });
    let steps = taps.div_ceil(by);
    let short = k.g.range_with(steps, arg);
    let remainder = if out.1 == tap.1 { k.linear(p, -1, c - 1) } else { p };
    let by_w = k.linear(outer, c, 0);
    let there = k.g.binary(Op::Add, by_w, remainder);
    let mut which = k.linear(short, c, -shift);
    which = k.g.binary(Op::Add, which, p);
    if shift > 0 {
        let (from, zero) = (k.g.idx(shift), k.g.idx(0));
        let (below, next) = (k.g.binary(Op::CmpLt, p, from), k.g.idx(c));
        let next = k.g.select(below, next, zero);
        which = k.g.binary(Op::Add, which, next);
    }
    let image: FxHashMap<UOp, UOp> = [(w, there), (r, which)].into_iter().collect();
    let end = k.g.idx(taps as i64);
    let inside = (taps % by != 0).then(|| k.g.binary(Op::CmpLt, which, end));
    k.restrict(image, [r, short], inside, PastEnd::Masked);
    if let Some(c) = inside {
        k.taps |= 1 << arg.id;
        k.loop_limits.push((arg.id, c));
    }
    move_loop(k, id, inner, false);
    Ok(true)
}

/// Is the range reduced by exactly one reduction, which is a sum whose terms are zero wherever the remainder is not
/// zero?
fn vanishes(k: &Kernel, r: UOp, remainder: UOp) -> bool {
    let g = &k.g;
    let of: SmallVec<[UOp; 2]> = k.reduces().into_iter().filter(|&u| g.src(u)[1..].contains(&r)).collect();
    let [sum] = of[..] else { return false };
    let is_zero = |c: &UOp| {
        let src = g.src(*c);
        g.op(*c) == Op::CmpLt && src[0] == remainder && g.const_int(src[1]) == Some(1)
    };
    matches!(g.arg(sum), Arg::Reduce(ReduceOp::Add, _)) && nonzero_conditions(g, g.src_at(sum, 0)).iter().any(is_zero)
}

impl Kernel {
    /// `r * by + plus`.
    fn linear(&mut self, r: UOp, by: i64, plus: i64) -> UOp {
        let (by, plus) = (self.g.idx(by), self.g.idx(plus));
        let product = self.g.binary(Op::Mul, r, by);
        self.g.binary(Op::Add, product, plus)
    }

    /// Gives the ranges the sorted `ids` in the order of `order`: loops nest in the order of their ids.
    fn renumber(&mut self, order: &[UOp], ids: &[u8]) {
        let mut ids: SmallVec<[u8; 8]> = ids.into();
        sort::ascending(&mut ids);
        let mut image = FxHashMap::default();
        for (&r, &id) in order.iter().zip(&ids) {
            let (n, arg) = (self.g.range_len(r), self.g.range_arg(r));
            image.insert(r, self.g.range_with(n, RangeArg { id, ..arg }));
        }
        self.rebuild(image, |_, _, _| None);
    }
}
