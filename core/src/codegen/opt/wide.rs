//! Which values of a kernel are wider than 32 bits. Targets with vectors of such values ([`Caps::wide_vectors`]) compute
//! them in half as many lanes, and those that address memory one by one.
//!
//! [`Caps::wide_vectors`]: crate::target::Caps::wide_vectors

use crate::codegen::axes::Kernel;
use crate::uop::{Op, UOp};
use rustc_hash::FxHashSet;

/// The values wider than 32 bits: those that compute addresses, and the others.
pub(super) fn wide_values(k: &Kernel) -> (Vec<UOp>, Vec<UOp>) {
    let g = &k.g;
    let nodes = k.nodes();
    let wide: Vec<UOp> = nodes.iter().copied().filter(|&u| g.dtype(u).size() > 4).collect();
    if wide.is_empty() {
        return (wide, Vec::new());
    }
    let offsets: Vec<UOp> = nodes.iter().filter(|&&u| g.op(u) == Op::Index).map(|&u| g.src_at(u, 1)).collect();
    let addresses: FxHashSet<UOp> = g.reachable(&offsets).into_iter().collect();
    wide.into_iter().partition(|u| addresses.contains(u))
}
