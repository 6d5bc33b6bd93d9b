//! The checks that need a whole graph or program rather than one node: unique range ids, closed reductions, and the
//! order and nesting of a program. Each returns the first node at fault with a message.

use crate::DType;
use crate::uop::graph::MAX_RANGES;
use crate::uop::{Arg, Graph, Op, RangeSet, UOp};
use rustc_hash::FxHashMap;

type CheckResult = std::result::Result<(), (UOp, String)>;

/// No two ranges have the same id, all lane axes have the same length, and no value has two lane axes.
pub(super) fn check_range_ids(g: &Graph, nodes: &[UOp]) -> CheckResult {
    let (mut by_id, mut lane, mut lanes) = ([None; MAX_RANGES], None, 0 as RangeSet);
    for &u in nodes.iter().filter(|&&u| g.op(u) == Op::Range) {
        let r = g.range_arg(u);
        if let Some(other) = by_id[r.id as usize].replace(u).filter(|o| *o != u) {
            return Err((u, format!("{other:?} has the same id")));
        }
        if r.lane {
            lanes |= 1 << r.id;
            if *lane.get_or_insert(g.src_at(u, 0)) != g.src_at(u, 0) {
                return Err((u, "lane axes of two lengths".into()));
            }
        }
    }
    match nodes.iter().find(|&&u| g.dtype(u) != DType::Void && (g.ranges(u) & lanes).count_ones() > 1) {
        Some(&u) => Err((u, "has two lane axes".into())),
        None => Ok(()),
    }
}

/// A Store outside a reduction does not depend on a range that is reduced over.
pub(super) fn check_reduced(g: &Graph, nodes: &[UOp]) -> CheckResult {
    let reduced = nodes.iter().filter(|&&u| g.op(u) == Op::Range && g.kind(u).is_reduce());
    let reduced = reduced.fold(0u128, |m, &u| m | 1 << g.range_arg(u).id);
    for &u in nodes {
        let open = g.ranges(u) & reduced;
        if g.op(u) == Op::Store && open != 0 && !stores_scratch(g, u) {
            return Err((u, format!("range {} is reduced but still open", open.trailing_zeros())));
        }
    }
    Ok(())
}

/// The roots of a kernel are stores or other nodes without a value.
pub(super) fn check_roots(g: &Graph, roots: &[UOp]) -> CheckResult {
    for &r in roots {
        for &s in if g.op(r) == Op::Sink { g.src(r) } else { std::slice::from_ref(&r) } {
            if g.dtype(s) != DType::Void {
                return Err((s, "a kernel's roots are stores".into()));
            }
        }
    }
    Ok(())
}

/// Does the Store write to scratch memory? A tile that is staged there may be filled inside a reduction.
fn stores_scratch(g: &Graph, store: UOp) -> bool {
    let mut p = g.src_at(store, 0);
    while matches!(g.op(p), Op::Index | Op::After) {
        p = g.src_at(p, 0);
    }
    g.op(p) == Op::Scratch
}

/// Sources come before their users and are visible to them, loops nest and are closed, and accumulators are declared
/// once.
pub(super) fn check_program(g: &Graph, order: &[UOp], nodes: &[UOp]) -> CheckResult {
    let tile_ids = g.iter().filter(|&u| g.op(u) == Op::Range && g.kind(u).is_tile());
    let tile_ids = tile_ids.fold(0u128, |m, u| m | 1 << g.range_arg(u).id);
    // by node: the serial number of the loop that was innermost where the node stands in the order, in which it is
    // visible
    const UNPLACED: u32 = u32::MAX;
    let mut scope = vec![UNPLACED; nodes.last().map_or(0, |u| u.0 as usize + 1)];
    let (mut open, mut depth_serial, mut serial) = (Vec::<UOp>::new(), vec![0u32], 0u32);
    let mut accs = FxHashMap::<u32, UOp>::default();
    for &u in order {
        if scope[u.0 as usize] != UNPLACED {
            return Err((u, "is placed twice".into()));
        }
        for (i, &s) in g.src(u).iter().enumerate() {
            let ordering = g.dtype(s) == DType::Void || i > 0 && matches!(g.op(u), Op::AccRead | Op::After | Op::End);
            match scope[s.0 as usize] {
                UNPLACED if may_be_unplaced(g, s) => {}
                UNPLACED => return Err((u, format!("{s:?} is not placed before it"))),
                at if ordering || depth_serial.contains(&at) => {}
                _ => return Err((u, format!("{s:?} is inside a loop that is closed"))),
            }
        }
        match (g.op(u), g.arg(u)) {
            (Op::Range, Arg::Range(r)) if r.kind.is_loop() => {
                open.push(u);
                serial += 1;
                depth_serial.push(serial);
            }
            (Op::End, _) => {
                if open.pop() != Some(g.src_at(u, 0)) {
                    return Err((u, "does not close the innermost loop".into()));
                }
                depth_serial.pop();
            }
            (Op::Acc, Arg::Acc(id)) => {
                if let Some(other) = accs.insert(*id, u) {
                    return Err((u, format!("{other:?} is the same accumulator")));
                }
            }
            (Op::Index, Arg::Strides(s)) => {
                if let Some((id, _)) = s.iter().find(|(id, _)| tile_ids >> id & 1 == 0) {
                    return Err((u, format!("stride over range {id}, which is no tile axis")));
                }
            }
            (Op::Sink, _) => return Err((u, "has no place in a program".into())),
            _ => {}
        }
        scope[u.0 as usize] = *depth_serial.last().expect("the outermost scope stays");
    }
    match open.pop() {
        Some(u) => Err((u, "is a loop without an End".into())),
        None => Ok(()),
    }
}

/// May the node be missing from the execution order? Constants, tile ranges and pointers may.
fn may_be_unplaced(g: &Graph, u: UOp) -> bool {
    match g.op(u) {
        Op::Const | Op::Param | Op::Scratch => true,
        Op::Range => g.kind(u).is_tile(),
        _ => false,
    }
}
