//! Execution order: a kernel runs after those that make what it reads, and before those that overwrite it.

use super::Kernel;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// A buffer at a version; each assign into it makes the next one.
pub type State = (usize, u32);

/// A kernel with what orders it.
pub struct Pending {
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
