//! What it costs to compute a value where it is read, and to store it in a kernel of its own: bytes moved, operations and
//! launches, in nanoseconds of a target. An estimate before any loop is chosen, so a rough one; it decides between ways whose times are far
//! apart, and where they are close either will do.

use crate::target::{Machine, Target};

/// More operations than this are not computed twice, however few elements there are: programs would grow without end.
const MOST_OPS: u32 = 64;
/// What is summed along a row and read again may stay in one kernel ([`super::rows`]), whose second look at the row is at a cache:
/// so many operations are computed again rather than cutting it in two.
const ROW_OPS: u32 = 12;
/// An operand of a contraction is loaded many times: so much may be computed at each load, however often that is.
const OPERAND_OPS: u32 = 1;

/// What a target takes for each, in ns.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    /// A kernel: launch, and on processors the threads that meet.
    launch: f64,
    /// A byte from or to memory.
    byte: f64,
    /// An operation on an element.
    op: f64,
    /// A load of an element from a cache.
    load: f64,
    /// What a multiply-add takes longer for reading through padding, and the same where one vector's results share what is read.
    padded: [f64; 2],
    /// Bytes that a cache of the core's own keeps for the next kernel.
    near: f64,
    /// Elements of a vector.
    lanes: u64,
}

/// A value that could be computed where it is read.
pub(super) struct Value {
    /// Elements, and bytes of each.
    pub(super) len: u64,
    pub(super) size: usize,
    /// Operations of an element, and the buffers that these read.
    pub(super) ops: u32,
    pub(super) buffers: usize,
    /// Elements of those buffers that one pass reads, in bytes.
    pub(super) read: u64,
    /// Passes over it: kernels, or places of one that go through it in different ways.
    pub(super) readers: usize,
    /// Elements wanted in all, but for repeats by inner loops that it does not depend on.
    pub(super) wanted: u64,
    /// Is it reduced, and read besides?
    pub(super) row: bool,
    /// Is it wanted in the innermost loop of a contraction?
    pub(super) operand: bool,
}

impl Costs {
    /// Those of a target, near the bounds in docs/performance.md.
    pub(super) fn of(t: &Target) -> Costs {
        let Machine { launch, byte, op, load, padded, near, .. } = t.machine;
        Costs { launch, byte, op, load, padded, near, lanes: t.lanes as u64 }
    }

    /// Is storing an operand of `bytes` with its padding, once, cheaper than looking at each of so many multiply-adds whether it reads
    /// the padding? Each element goes into so many `results` at one place.
    pub(super) fn store_padding(&self, bytes: u64, multiply_adds: u64, results: u64) -> bool {
        // half a vector of results are few rows to share a mask; a whole one may be its lanes
        let few = 2 * results <= self.lanes || results <= self.lanes && bytes as f64 <= self.near;
        let padded = self.padded[usize::from(few)];
        multiply_adds as f64 * padded > self.launch + 2.0 * bytes as f64 * self.byte
    }

    /// Is computing the value where it is read no dearer than storing it once and loading it there?
    pub(super) fn recompute(&self, v: &Value) -> bool {
        if v.operand {
            return v.ops <= OPERAND_OPS;
        }
        if v.row && v.ops <= ROW_OPS {
            return true;
        }
        let (len, wanted) = (v.len as f64, v.wanted as f64);
        let once = f64::from(v.ops) * self.op + v.buffers as f64 * self.load;
        // a reader moves a word for each element, and computes meanwhile
        let moves = 4.0 * self.byte;
        let passes = |bytes: u64| v.readers as f64 * bytes as f64 * self.byte;
        let stored = v.len.saturating_mul(v.size as u64);
        let inside = wanted * once.max(moves) + passes(v.read);
        let kernel = self.launch + (len * once).max((v.read + stored) as f64 * self.byte);
        v.ops <= MOST_OPS && inside <= kernel + wanted * self.load.max(moves) + passes(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Isa;

    /// An elementwise value of `ops` operations over one buffer, with two readers.
    fn shared(len: u64, ops: u32) -> Value {
        let (size, buffers, readers, wanted) = (4, 1, 2, 2 * len);
        Value { len, size, ops, buffers, read: 4 * len, readers, wanted, row: false, operand: false }
    }

    fn targets() -> [Costs; 4] {
        let (avx512, avx2) = (Target::x86(Isa::Avx512, 1), Target::x86(Isa::Avx2, 1));
        [avx512, avx2, Target::wasm(true, 1), Target::wgsl("gpu")].map(|t| Costs::of(&t))
    }

    #[test]
    fn few_operations_are_cheaper_than_memory_and_many_are_not() {
        for costs in &targets()[..3] {
            assert!(costs.recompute(&shared(1 << 22, 2)));
            assert!(!costs.recompute(&shared(1 << 22, 60)));
        }
        // a processor of four lanes computes less in the time of a byte than one of sixteen, and both less than a GPU
        let most = targets().map(|c| (1..=MOST_OPS).take_while(|&ops| c.recompute(&shared(1 << 22, ops))).count());
        assert!(most[2] < most[1] && most[1] < most[0] && most[0] < most[3], "{most:?}");
    }

    /// A window of 81 taps over a map of its own, and of a map that many results share.
    #[test]
    fn padding_that_one_vector_of_results_shares_is_stored_sooner() {
        let (bytes, taps) = (4 * 32 * 64 * 64, 81 * 56 * 56 * 32);
        let stored = targets().map(|c| [1, c.lanes, c.lanes + 1].map(|results| c.store_padding(bytes, taps, results)));
        assert_eq!((stored[0], stored[3]), ([true, true, false], [false; 3]));
    }

    #[test]
    fn small_values_are_not_worth_a_launch() {
        for costs in targets() {
            assert!(costs.recompute(&shared(64, MOST_OPS)));
            assert!(!costs.recompute(&shared(64, MOST_OPS + 1)));
        }
    }

    #[test]
    fn what_many_rows_want_is_stored() {
        let wide = |rows: u64| Value { wanted: rows << 12, readers: 1, ..shared(1 << 12, 20) };
        let [avx512, avx2, wasm, _] = targets();
        for costs in [avx512, avx2, wasm] {
            assert!(costs.recompute(&wide(1)));
            assert!(!costs.recompute(&wide(4096)));
        }
        let operand = |ops: u32| Value { operand: true, ..shared(64, ops) };
        assert!(targets().iter().all(|c| c.recompute(&operand(1)) && !c.recompute(&operand(2))));
    }
}
