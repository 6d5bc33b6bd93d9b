//! Decides which recurrences are kernels with a loop over their steps, and unrolls the others: one copy of the step for
//! each step, which is scheduled like any other graph.
//!
//! One kernel computes whole steps one after the other on one thread, so it pays where launching the kernels of a step
//! would take longer than several threads gain. Processors alone run it: on a GPU the threads of all workgroups would
//! have to wait for each other after every step.

use super::Buffers;
use super::cost::Costs;
use super::fuse::Cuts;
use super::order::Pending;
use crate::target::Target;
use crate::uop::recurrence::{self, Recurrence};
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::OnceLock;

/// The multiply-adds of one launch, which cannot be interrupted: a recurrence with more of them is several launches, one
/// after the other, of two steps or more.
const WORK_PER_LAUNCH: u64 = 1 << 22;
/// The most multiply-adds of a step. Where it has more, the recurrence is unrolled: its kernels are computed in slices.
const WORK_PER_STEP: u64 = 1 << 24;

/// The function that lowers recurrences, set at run time, so that a WebAssembly module without recurrences does not
/// contain it: see the table in `codegen/live.rs`.
static LOWER: OnceLock<Kernels> = OnceLock::new();

/// The kernels of the recurrence `u`, in order.
pub(super) type Kernels =
    fn(&Graph, UOp, &Cuts, &Buffers, &FxHashMap<UOp, u32>, &Target) -> crate::Result<Vec<Pending>>;

/// Enables kernels of recurrences; without it all of them are unrolled.
pub(crate) fn enable() {
    LOWER.get_or_init(|| super::lower::recurrence::kernels);
}

/// [`super::lower::recurrence::kernels`], where it is enabled.
pub(super) fn kernels() -> Option<Kernels> {
    if cfg!(not(target_arch = "wasm32")) {
        enable();
    }
    LOWER.get().copied()
}

/// Unrolls the recurrences below `roots` that are not kernels on this target. Returns the new roots.
pub(super) fn unroll(g: &mut Graph, roots: &[UOp], t: &Target) -> Vec<UOp> {
    recurrence::unroll(g, roots, &|r| !is_kernel(r, t))
}

/// Is the recurrence computed by kernels that loop over its steps? A step without reductions has nothing to keep
/// between two loops over its elements.
fn is_kernel(r: &Recurrence, t: &Target) -> bool {
    if t.caps.has_local || r.work == 0 || r.work > WORK_PER_STEP || r.steps < 2 || kernels().is_none() {
        return false;
    }
    Costs::of(t).loops_over_steps(r.work)
}

/// The number of steps in one launch of a recurrence, and the step with which each launch begins. All have as many
/// steps, so that all are the same kernel; the last one may compute steps again that the one before has computed.
pub(super) fn launches(r: &Recurrence) -> (usize, impl Iterator<Item = usize>) {
    let most = (WORK_PER_LAUNCH / r.work.max(1)).clamp(2, r.steps.max(2) as u64) as usize;
    let number = r.steps.div_ceil(most);
    let size = r.steps.div_ceil(number.max(1));
    let last = r.steps - size;
    (size, (0..number).map(move |i| (i * size).min(last)))
}

/// The number of launches of the recurrence `u`, after the one that stores the initial states.
pub(super) fn number_of_launches(g: &Graph, u: UOp) -> u32 {
    match g.arg(u) {
        Arg::Recurrence(r) => launches(r).1.count() as u32,
        _ => 0,
    }
}

/// The nodes of a step whose values are kept in local arrays: each reduction, and what a reduction reads several times
/// and would otherwise compute each time.
pub(super) fn kept(r: &Recurrence) -> FxHashSet<UOp> {
    let g = &*r.body;
    let nodes = g.reachable(&r.next);
    // what depends on states or sequences, and so changes from step to step
    let mut changes = vec![false; g.len()];
    for &u in &nodes {
        changes[u.0 as usize] = match g.arg(u) {
            Arg::Param { slot, .. } => (*slot as usize) < r.states + r.sequences,
            _ => g.src(u).iter().any(|s| changes[s.0 as usize]),
        };
    }
    let mut kept: FxHashSet<UOp> = FxHashSet::default();
    for &u in nodes.iter().filter(|&&u| g.op(u) == Op::Reduce) {
        kept.insert(u);
        let mut stack = vec![(g.src_at(u, 0), false)];
        let mut seen = FxHashSet::default();
        while let Some((x, repeats)) = stack.pop() {
            if !changes[x.0 as usize] || g.op(x) == Op::Reduce || !seen.insert((x, repeats)) {
                continue;
            }
            if g.op(x).is_alu() && repeats {
                kept.insert(x);
                continue;
            }
            let repeats = repeats || g.op(x) == Op::Expand;
            stack.extend(g.src(x).iter().map(|&s| (s, repeats)));
        }
    }
    kept
}
