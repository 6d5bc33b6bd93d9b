//! The order in which kernels run. In: kernels with the versions of buffers that each reads and writes. Out: a list in which a kernel comes
//! after those that make what it reads and before those that overwrite it, and early where it lets go of more memory than it takes.
//! Assigns that each read what another one overwrites have no such order: [`knots`] finds them, and the caller stores their values first.

use super::Kernel;
use crate::uop::{Graph, Op, UOp};
use crate::util::gather;
use crate::util::sorted::SortedSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

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
pub fn edges(pending: &[Pending]) -> Vec<SortedSet<usize>> {
    let n = pending.len();
    let mut writers: FxHashMap<State, Vec<usize>> = FxHashMap::default();
    let mut readers: FxHashMap<State, Vec<usize>> = FxHashMap::default();
    for (i, p) in pending.iter().enumerate() {
        p.writes.iter().for_each(|&w| writers.entry(w).or_default().push(i));
        for &r in &p.reads {
            readers.entry(r).or_default().push(i);
        }
    }
    let mut then: Vec<SortedSet<usize>> = vec![SortedSet::new(); n];
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
pub fn knots(g: &Graph, pending: &[Pending]) -> Vec<UOp> {
    let then = edges(pending);
    let mut before: Vec<SortedSet<usize>> = vec![SortedSet::new(); pending.len()];
    for (i, set) in then.iter().enumerate() {
        for &j in set {
            before[j].insert(i);
        }
    }
    let mut ready: Vec<usize> = (0..pending.len()).filter(|&i| before[i].is_empty()).collect();
    let mut left: SortedSet<usize> = gather((0..pending.len()).filter(|&i| !before[i].is_empty()));
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
        let assigns = |i: usize| g.op(pending[i].node) == Op::Store;
        let Some(&i) = circle.iter().find(|&&i| assigns(i)) else { return found };
        found.push(pending[i].node);
        left.remove(&i);
        ready.push(i);
    }
}

/// Sorts kernels topologically, keeping the given order among independent ones, except that a kernel goes first which lets go
/// of as much temporary memory as it takes, or more: the gradient of a weight follows the gradient of its layer, and what the layer
/// kept is free again. `temp_bytes` says what a buffer takes while it is needed: nothing unless it is temporary.
pub fn order(pending: Vec<Pending>, temp_bytes: impl Fn(usize) -> usize) -> Vec<Kernel> {
    let n = pending.len();
    let then = edges(&pending);
    let mut waits = vec![0usize; n];
    for set in &then {
        for &j in set.iter() {
            waits[j] += 1;
        }
    }
    let mut memory = Memory::new(&pending, temp_bytes);
    let mut ready: SortedSet<usize> = gather((0..n).filter(|&i| waits[i] == 0));
    let mut order = Vec::with_capacity(n);
    while let Some(i) = memory.next(&ready).or_else(|| ready.first().copied()) {
        ready.remove(&i);
        order.push(i);
        memory.ran(i, &pending[i]);
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

/// Which kernels would free memory if they ran next.
struct Memory<F> {
    temp_bytes: F,
    /// Of each buffer, how many kernels still read it, and the sum of their numbers: the last one is known.
    left: FxHashMap<usize, (usize, usize)>,
    /// What each kernel takes.
    takes: Vec<usize>,
    /// What it is the last to read.
    frees: Vec<usize>,
    /// Those that free what they take, ready or not.
    good: SortedSet<usize>,
}

impl<F: Fn(usize) -> usize> Memory<F> {
    fn new(pending: &[Pending], temp_bytes: F) -> Memory<F> {
        let mut left: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        for (i, p) in pending.iter().enumerate() {
            for b in buffers_read(p) {
                let at = left.entry(b).or_default();
                *at = (at.0 + 1, at.1 + i);
            }
        }
        // several kernels fill one buffer together: a part each
        let written = || pending.iter().flat_map(|p| &p.writes).map(|w| w.0);
        let mut writers = vec![0usize; written().max().map_or(0, |b| b + 1)];
        written().for_each(|b| writers[b] += 1);
        let takes = pending.iter().map(|p| p.writes.iter().map(|w| temp_bytes(w.0) / writers[w.0]).sum()).collect();
        let frees = vec![0; pending.len()];
        let mut m = Memory { temp_bytes, left, takes, frees, good: SortedSet::new() };
        let single: Vec<(usize, usize)> = m.left.iter().filter(|l| l.1.0 == 1).map(|(b, l)| (*b, l.1)).collect();
        single.into_iter().for_each(|(b, last)| m.last_reader(b, last));
        m
    }

    fn last_reader(&mut self, buffer: usize, i: usize) {
        let bytes = (self.temp_bytes)(buffer);
        self.frees[i] += bytes;
        if bytes > 0 && self.frees[i] >= self.takes[i] {
            self.good.insert(i);
        }
    }

    /// The first kernel that is ready and frees memory.
    fn next(&self, ready: &SortedSet<usize>) -> Option<usize> {
        let (few, many) = if ready.len() < self.good.len() { (ready, &self.good) } else { (&self.good, ready) };
        few.iter().copied().find(|i| many.contains(i))
    }

    fn ran(&mut self, i: usize, p: &Pending) {
        self.good.remove(&i);
        for b in buffers_read(p) {
            let Some(at) = self.left.get_mut(&b) else { continue };
            *at = (at.0 - 1, at.1 - i);
            if let (1, last) = *at {
                self.last_reader(b, last);
            }
        }
    }
}

/// Each buffer that a kernel reads, once.
fn buffers_read(p: &Pending) -> impl Iterator<Item = usize> {
    gather::<SortedSet<_>, _>(p.reads.iter().map(|r| r.0)).into_iter()
}
