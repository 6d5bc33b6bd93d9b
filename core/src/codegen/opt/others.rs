//! Other orders of a kernel's loops, where only the program tells whether they cost less: [`super::super::compile`] makes it of each and keeps
//! the cheapest. In: a kernel without reductions and the opts that were chosen for it. Out: lists of opts to try besides.
//!
//! A condition on a loop, as where tensors are joined or padded, costs a branch or a mask in each turn of the loops inside. If the loop is
//! the innermost one, its first and last turns get code of their own (`codegen/borders.rs`), and what only these turns compute is in
//! that code alone; but then memory is gone through in larger steps. For x86 so far: a page would have to download the cost model.

use super::{Opt, Part};
use crate::analysis::Role;
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Op, UOp};

/// Loops that are tried.
const MOST: usize = 2;

/// Opts beside the chosen ones: a loop that conditions are about becomes the innermost one.
pub(in crate::codegen) fn reordered(k: &Kernel, t: &Target, chosen: &[Opt]) -> Vec<Vec<Opt>> {
    let g = &k.g;
    let built = cfg!(any(feature = "x86", test)) && t.memory_operands;
    if !built || t.has_local || k.role != Role::Elementwise || chosen.iter().any(|o| matches!(o, Opt::Swap { .. })) {
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
