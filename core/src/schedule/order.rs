//! Orders kernels. In: kernels with the versions of buffers that each reads and writes. Out: a list in which each
//! kernel comes after those that make what it reads and before those that overwrite it, and early if it frees more
//! memory than it allocates.
//!
//! Assigns of which each reads what another one overwrites, such as `a.assign(b)` and `b.assign(a)`, have no such
//! order: [`cyclic_assigns`] finds them, and the caller materialises their values first.

use super::Kernel;
use crate::uop::{Graph, Op, UOp};
use crate::util::gather;
use crate::util::sorted::SortedSet;
use crate::{Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A buffer and its version; each assign to the buffer makes the next version.
pub type State = (usize, u32);

/// A kernel with the states that determine its place in the order.
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

/// For each kernel the kernels that must run after it.
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

/// The assigns that have to be broken out of cycles, in which each kernel reads what another one overwrites. Once the
/// values of these assigns are computed into temporaries first, no cycle remains.
pub fn cyclic_assigns(g: &Graph, pending: &[Pending]) -> Vec<UOp> {
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
        // follow dependencies back from any kernel that still waits until one repeats: that one lies on a cycle, and
        // every cycle contains an assign
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

/// Sorts kernels topologically. Independent kernels keep their given order, except that a kernel runs first if it frees
/// at least as much temporary memory as it allocates: the gradient of a weight then follows the gradient of its layer,
/// and the activations kept for it are freed early. `temp_bytes` gives the bytes of a temporary buffer, and 0 for any
/// other.
///
/// # Errors
/// `E_INTERNAL` if kernels wait for each other in a circle.
pub fn order(pending: Vec<Pending>, temp_bytes: impl Fn(usize) -> usize) -> Result<Vec<Kernel>> {
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
    if order.len() != n {
        return Err(Error::Internal(format!("{} of {n} kernels wait for each other", n - order.len())));
    }
    let mut slots: Vec<Option<Kernel>> = pending.into_iter().map(|p| Some(p.kernel)).collect();
    Ok(order.into_iter().filter_map(|i| slots[i].take()).collect())
}

/// Tracks which kernels would free memory if they ran next.
struct Memory<F> {
    temp_bytes: F,
    /// For each buffer the number of kernels that have yet to read it and the sum of their indices, so that the last
    /// one's index is known when one is left.
    left: FxHashMap<usize, (usize, usize)>,
    /// Bytes that each kernel allocates.
    takes: Vec<usize>,
    /// Bytes that each kernel frees: of the buffers of which it is the last reader.
    frees: Vec<usize>,
    /// Kernels that free at least what they allocate, whether they are ready to run or not.
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
        // if several kernels fill one buffer, each allocates its share of it
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

    /// The first kernel that is ready and frees at least what it allocates.
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

/// The buffers that a kernel reads, without repeats.
fn buffers_read(p: &Pending) -> impl Iterator<Item = usize> {
    gather::<SortedSet<_>, _>(p.reads.iter().map(|r| r.0)).into_iter()
}
