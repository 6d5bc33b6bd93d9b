//! Which values of a kernel are wider than 32 bits. Targets with vectors of such values ([`Caps::wide_vectors`]) compute
//! them in half as many lanes, and those that address memory one by one.
//!
//! [`Caps::wide_vectors`]: crate::target::Caps::wide_vectors

use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Op, RangeSet, UOp};
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// Is there a renderer with vectors of wide values? Pages download nothing of what follows from that.
const COMPILED: bool = cfg!(any(feature = "x86", feature = "llvm", feature = "c"));

/// The target as a kernel sees it: with half as many lanes if it computes vectors of wide values.
pub(super) fn target_for<'a>(k: &Kernel, t: &'a Target) -> Cow<'a, Target> {
    let wide = COMPILED && t.caps.wide_vectors && !wide_values(k).1.is_empty();
    if wide { Cow::Owned(t.for_wide_values()) } else { Cow::Borrowed(t) }
}

/// The lanes of a vector where `n` lanes of an axis are computed at once: fewer where a value of the target cannot have as
/// many ([`Caps::most_lanes`]).
///
/// [`Caps::most_lanes`]: crate::target::Caps::most_lanes
pub(in crate::codegen) fn lanes_of_a_vector(k: &Kernel, t: &Target, n: usize) -> usize {
    let limited = cfg!(any(feature = "llvm", feature = "c")) && t.caps.most_lanes.is_some();
    let most = if limited { target_for(k, t).caps.most_lanes } else { None };
    most.map_or(n, |most| most.min(1 << n.trailing_zeros()))
}

/// The axes on which values depend whose lanes would be computed one by one: addresses of 64 bits and, on targets
/// without vectors of them, all values wider than 32 bits.
pub(super) fn scalar_ranges(k: &Kernel, t: &Target) -> RangeSet {
    let (addresses, values) = wide_values(k);
    let others = if t.caps.wide_vectors { Vec::new() } else { values };
    addresses.into_iter().chain(others).fold(0, |m, u| m | k.g.ranges(u))
}

/// The values wider than 32 bits: those that compute addresses, and the others. Where no target has vectors of them, it
/// makes no difference, and all are among the first.
pub(super) fn wide_values(k: &Kernel) -> (Vec<UOp>, Vec<UOp>) {
    let g = &k.g;
    let nodes = k.nodes();
    let wide: Vec<UOp> = nodes.iter().copied().filter(|&u| g.dtype(u).size() > 4).collect();
    if wide.is_empty() || !COMPILED {
        return (wide, Vec::new());
    }
    let offsets: Vec<UOp> = nodes.iter().filter(|&&u| g.op(u) == Op::Index).map(|&u| g.src_at(u, 1)).collect();
    let addresses: FxHashSet<UOp> = g.reachable(&offsets).into_iter().collect();
    wide.into_iter().partition(|u| addresses.contains(u))
}
