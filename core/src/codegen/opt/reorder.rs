//! Alternative loop orders for kernels where only the cost of the finished program tells which order is better:
//! [`super::super::compile`] compiles each alternative and keeps the cheapest. In: a kernel without reductions and the
//! opts that were chosen for it. Out: further lists of opts.
//!
//! A condition on a loop, as where tensors are concatenated or padded, costs a branch or a mask in each iteration of
//! the loops inside it. If that loop is the innermost one, its first and last iterations get separate code
//! (`codegen/peel.rs`), and only that code has the condition; but then memory is accessed with larger strides. So
//! far only for x86: a browser build would have to download the cost model.

use super::{Opt, Part};
use crate::analysis::Role;
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Op, UOp};

/// The most alternatives per kernel.
const MOST: usize = 2;

/// Lists of opts that extend the chosen ones: in each, one loop on which conditions depend is swapped with the
/// innermost one.
pub(in crate::codegen) fn reordered(k: &Kernel, t: &Target, chosen: &[Opt]) -> Vec<Vec<Opt>> {
    let g = &k.g;
    let built = cfg!(any(feature = "x86", test)) && t.caps.memory_operands;
    if !built || t.caps.has_local || k.role != Role::Elementwise || chosen.iter().any(|o| matches!(o, Opt::Swap { .. }))
    {
        return Vec::new();
    }
    let part = |id: u8, part: Part| chosen.iter().find(|o| o.axis() == Some(id)).and_then(|o| o.cuts(part));
    let lane = chosen.iter().find(|o| o.cuts(Part::Lane).is_some()).and_then(Opt::axis);
    let left = |&r: &UOp| {
        let id = g.range_arg(r).id;
        let inside = part(id, Part::Lane).or(part(id, Part::Upcast)).unwrap_or(1);
        g.range_len(r) > inside
    };
    let loops: Vec<u8> = k.row_loops().0.into_iter().filter(left).map(|r| g.range_arg(r).id).collect();
    let Some((&last, outer)) = loops.split_last() else { return Vec::new() };
    let conditions = k.nodes().into_iter().filter(|&u| g.op(u) == Op::CmpLt).fold(0, |all, u| {
        let own = g.ranges(u);
        if lane.is_some_and(|l| own >> l & 1 == 1) { all } else { all | own }
    });
    let about = outer.iter().filter(|&&r| conditions >> r & 1 == 1 && Some(r) != lane);
    about.take(MOST).map(|&r| [chosen, &[Opt::swap(r, last)]].concat()).collect()
}
