//! Values of a row that are kept for later loops and that a sum reads: the loop of the sum stores them as it computes
//! them, so that the row has one loop less. In: a kernel in which [`Kernel::keep`] has made a [`Op::Stage`] node of a
//! value, as of the exponentials of a softmax. Out: the Stage is storage, the sum stores to it, and other loops read it
//! after the sum.

use super::axes::Kernel;
use crate::analysis::affine;
use crate::rewrite::substitute1;
use crate::uop::{Arg, AxisKind, Graph, Op, Space, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Lets a reduction that reads each kept value store it. `next`: the number of the next local array.
pub(super) fn store_in_sums(k: &mut Kernel, next: &mut u32) {
    while let Some(map) = k.nodes().into_iter().find_map(|u| stored_in_sum(k, u, *next)) {
        k.replace(&map);
        *next += 1;
    }
}

/// What a Stage and the first reduction that can store it become. `None` unless this reduction reads each element of the
/// Stage once.
fn stored_in_sum(k: &mut Kernel, stage: UOp, number: u32) -> Option<FxHashMap<UOp, UOp>> {
    let (Op::Stage, Arg::None, &[value, own]) = (k.g.op(stage), k.g.arg(stage), &k.g.srcs(stage)[..]) else {
        return None;
    };
    if k.g.op(own) != Op::Range || k.g.kind(own) != AxisKind::Fill || !k.g.op(value).is_alu() {
        return None;
    }
    // a reduction inside further loops, as of a product with a matrix, would compute the values in each of their turns
    let once = |&u: &UOp| k.g.op(u) == Op::Reduce && k.g.ranges(u) & !k.g.ranges(stage) == 0;
    let sum = k.nodes().into_iter().filter(once).find(|&u| reads(&k.g, u, stage).len() == 1)?;
    let load = reads(&k.g, sum, stage)[0];
    let (at, gate) = (k.g.src_at(k.g.src_at(load, 0), 1), k.g.src(load).get(2).copied());
    let len = elements_in_turn(&k.g, at, &k.g.srcs(sum)[1..])?;
    let n = k.g.range_len(own);
    if len < n || len > n && gate.is_none() {
        return None;
    }
    let g = &mut k.g;
    let at_own = g.cast(at, g.dtype(own));
    let mut value = substitute1(g, value, &[(own, at_own)].into_iter().collect());
    if let Some(gate) = gate {
        value = loaded_under(g, value, at, gate)?;
    }
    let dt = g.dtype(stage);
    let scratch = g.node(Op::Scratch, dt, &[], Arg::Scratch { id: number, len, space: Space::Private });
    let index = g.index(scratch, at);
    let store = g.store(index, value);
    let mut kept = g.after(value, &[store]);
    if let Some(gate) = gate {
        kept = g.select(gate, kept, g.src_at(load, 1));
    }
    let stores = substitute1(g, sum, &[(load, kept)].into_iter().collect());
    let around = g.ranges(stores);
    let is_around = |u: &UOp| g.op(*u) == Op::Range && around >> g.range_arg(*u).id & 1 == 1;
    let outer = g.reachable(&[stores]).into_iter().filter(is_around);
    let deps: SmallVec<[UOp; 4]> = std::iter::once(stores).chain(outer).collect();
    let filled = g.after(scratch, &deps);
    Some([(sum, stores), (stage, filled)].into_iter().collect())
}

/// The loads of a Stage in the body of a reduction.
fn reads(g: &Graph, reduction: UOp, stage: UOp) -> SmallVec<[UOp; 2]> {
    let inside = g.reachable(&[g.src_at(reduction, 0)]).into_iter();
    inside.filter(|&u| g.op(u) == Op::Load && g.src_at(g.src_at(u, 0), 0) == stage).collect()
}

/// The number of different elements that an address takes while each of these ranges runs once, if it takes 0, 1, 2 and
/// so on.
fn elements_in_turn(g: &Graph, at: UOp, ranges: &[UOp]) -> Option<usize> {
    let a = affine(g, at);
    if !a.is_whole() || a.constant != 0 || a.terms.len() != ranges.len() {
        return None;
    }
    let mut terms = a.terms.to_vec();
    crate::util::sort::by_key(&mut terms, |t| t.1);
    let mut len = 1;
    for (r, stride) in terms {
        if stride != len as i64 || !ranges.contains(&r) {
            return None;
        }
        len *= g.range_len(r);
    }
    Some(len)
}

/// The value with the loads that depend on the loops of the address `at` only where the gate is true. `None` if the
/// address of one of them is loaded.
fn loaded_under(g: &mut Graph, value: UOp, at: UOp, gate: UOp) -> Option<UOp> {
    let mut map = FxHashMap::default();
    let inside = |g: &Graph, u: UOp| g.op(u) == Op::Load && g.ranges(u) & g.ranges(at) != 0;
    for u in g.reachable(&[value]) {
        if !inside(g, u) {
            continue;
        }
        let src = g.srcs(u);
        if g.reachable(&[src[0]]).into_iter().any(|u| inside(g, u)) {
            return None;
        }
        let (gate, alt) = match src.get(2) {
            Some(&own) => (g.binary(Op::And, own, gate), src[1]),
            None => (gate, g.constant(crate::dtype::Scalar::Int(0), g.dtype(u))),
        };
        map.insert(u, g.load_gated(src[0], alt, gate));
    }
    Some(substitute1(g, value, &map))
}
