//! Execution order: a kernel runs after those that make what it reads, and before those that overwrite it.

use super::Kernel;
use crate::uop::UOp;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A buffer at a version; each assign into it makes the next one.
pub type State = (usize, u32);

/// A kernel with what orders it.
pub struct Pending {
    /// The node it computes; a Store for an assign.
    pub node: UOp,
    /// The kernel.
    pub kernel: Kernel,
    /// States read.
    pub reads: Vec<State>,
    /// States written.
    pub writes: SmallVec<[State; 1]>,
}

/// Which kernels must run after each kernel.
pub fn edges(pending: &[Pending]) -> Vec<BTreeSet<usize>> {
    let n = pending.len();
    let mut writers: FxHashMap<State, Vec<usize>> = FxHashMap::default();
    let mut readers: FxHashMap<State, Vec<usize>> = FxHashMap::default();
    for (i, p) in pending.iter().enumerate() {
        p.writes.iter().for_each(|&w| writers.entry(w).or_default().push(i));
        for &r in &p.reads {
            readers.entry(r).or_default().push(i);
        }
    }
    let mut then: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); n];
    for (i, p) in pending.iter().enumerate() {
        for r in &p.reads {
            for &w in writers.get(r).into_iter().flatten() {
                then[w].insert(i);
            }
        }
        for &(buffer, version) in p.writes.iter().filter(|w| w.1 > 0) {
            let before = (buffer, version - 1);
            for &b in readers.get(&before).into_iter().chain(writers.get(&before)).flatten() {
                then[b].insert(i);
            }
        }
    }
    for (i, set) in then.iter_mut().enumerate() {
        set.remove(&i);
    }
    then
}

/// Assigns that cannot run as they are, because each reads what another one of them overwrites: with the values of these
/// computed into memory of their own first, the others are in no circle.
pub fn knots(pending: &[Pending]) -> Vec<UOp> {
    let then = edges(pending);
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); pending.len()];
    for (i, set) in then.iter().enumerate() {
        for &j in set {
            before[j].insert(i);
        }
    }
    let mut ready: Vec<usize> = (0..pending.len()).filter(|&i| before[i].is_empty()).collect();
    let mut left: BTreeSet<usize> = (0..pending.len()).filter(|&i| !before[i].is_empty()).collect();
    let mut found = Vec::new();
    loop {
        while let Some(i) = ready.pop() {
            for &j in &then[i] {
                if before[j].remove(&i) && before[j].is_empty() && left.remove(&j) {
                    ready.push(j);
                }
            }
        }
        // back from any that still waits, until one comes twice: that one is in a circle, and a circle has an assign
        let Some(&first) = left.first() else { return found };
        let mut path = vec![first];
        let circle = loop {
            let waits_for = before[path[path.len() - 1]].iter().copied().find(|i| left.contains(i));
            let Some(next) = waits_for else { return found };
            if let Some(at) = path.iter().position(|&p| p == next) {
                break &path[at..];
            }
            path.push(next);
        };
        let assigns = |i: usize| pending[i].writes.iter().any(|w| w.1 > 0);
        let Some(&i) = circle.iter().find(|&&i| assigns(i)) else { return found };
        found.push(pending[i].node);
        left.remove(&i);
        ready.push(i);
    }
}

/// Sorts kernels topologically, keeping the given order among independent ones.
pub fn order(pending: Vec<Pending>) -> Vec<Kernel> {
    let n = pending.len();
    let then = edges(&pending);
    let mut waits = vec![0usize; n];
    for set in &then {
        for &j in set.iter() {
            waits[j] += 1;
        }
    }
    let mut ready: BTreeSet<usize> = (0..n).filter(|&i| waits[i] == 0).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for &j in &then[i] {
            waits[j] -= 1;
            if waits[j] == 0 {
                ready.insert(j);
            }
        }
    }
    debug_assert_eq!(order.len(), n, "kernels form a cycle");
    let mut slots: Vec<Option<Kernel>> = pending.into_iter().map(|p| Some(p.kernel)).collect();
    order.into_iter().filter_map(|i| slots[i].take()).collect()
}
