//! Estimates for the scheduler: whether recomputing a value wherever it is read is cheaper than storing it in a kernel
//! of its own, what the parts of a join cost, and whether a recurrence is a loop. All that the scheduler prices in
//! nanoseconds, it prices here, by bytes moved, operations and launches of the target ([`Machine`]). No loop has been
//! chosen at this point, so the estimates are rough: they separate options whose times are far apart, and where they
//! are close either will do. What finished programs cost is another model (`codegen/cost.rs`).

use crate::target::{Machine, Target};

/// A value of more operations than this is never recomputed, however few elements it has, as programs would grow
/// without bound.
const MOST_OPS: u32 = 64;
/// A value of up to this many operations is always recomputed if a row is reduced over it and also read elementwise.
/// Cutting it would split a row kernel ([`super::rows`]) in two, and the second pass over the row reads from a cache.
const ROW_OPS: u32 = 12;
/// The most operations of an operand of a contraction that are recomputed at each of its many loads.
const OPERAND_OPS: u32 = 1;

/// Prices of a target; times are in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    /// A further kernel ([`Machine::extra_kernel`]).
    kernel: f64,
    /// A further launch of a program that there is anyway.
    launch: f64,
    /// Moving a byte from or to memory.
    ns_per_byte: f64,
    /// One operation on one element.
    ns_per_op: f64,
    /// Loading an element from a cache.
    load: f64,
    /// The extra time of a multiply-add whose operand is read through padding: at least, and where the results of one
    /// vector share the operand.
    padded_load_ns: [f64; 2],
    /// Lanes of a vector, and threads of a launch.
    lanes: u64,
    threads: usize,
}

/// A value that could be recomputed where it is read.
pub(super) struct Value {
    /// Number of elements, and bytes of each.
    pub(super) len: u64,
    pub(super) size: usize,
    /// Operations for one element, and the number of buffers that they read.
    pub(super) ops: u32,
    pub(super) buffers: usize,
    /// Bytes of those buffers that one pass reads.
    pub(super) read: u64,
    /// Passes over the value: one for each kernel that reads it, and for each different index path within a kernel.
    pub(super) readers: usize,
    /// Elements read in all passes. Repeats by inner loops on which the value does not depend are not counted, since it
    /// is hoisted out of these.
    pub(super) wanted: u64,
    /// Is the value reduced and also read elsewhere?
    pub(super) is_row_operand: bool,
    /// Is it an operand of a contraction, read in its innermost loop?
    pub(super) operand: bool,
}

impl Costs {
    /// The prices of a target; they are close to the bounds in docs/performance.md.
    pub(super) fn of(t: &Target) -> Costs {
        let Machine { ns_per_byte, ns_per_op, load, padded_load_ns, .. } = t.machine;
        let (kernel, launch, lanes) = (t.machine.extra_kernel, t.machine.prices.launch, t.caps.lanes as u64);
        let threads = t.limits.threads.max(1);
        Costs { kernel, launch, ns_per_byte, ns_per_op, load, padded_load_ns, lanes, threads }
    }

    /// `ops` operations on each of so many elements.
    pub(super) fn compute(&self, elems: f64, ops: u32) -> f64 {
        elems * f64::from(ops) * self.ns_per_op
    }

    /// Choosing from one more part for each element of a join: a load under a mask of two comparisons, and a select.
    pub(super) fn choose_part(&self, elems: f64) -> f64 {
        elems * 4.0 * (self.ns_per_op + self.load)
    }

    /// One more store of so many bytes in a kernel that computes them anyway.
    pub(super) fn store(&self, bytes: f64) -> f64 {
        bytes * self.ns_per_byte
    }

    /// A kernel that stores a part of so many bytes: reading and writing them, and one more launch of a program that
    /// parts of one shape share.
    pub(super) fn part_kernel(&self, bytes: f64) -> f64 {
        self.launch + 2.0 * bytes * self.ns_per_byte
    }

    /// Is a step of `work` multiply-adds computed on one thread, in a loop over the steps, as fast as by two kernels
    /// on all threads?
    pub(super) fn loops_over_steps(&self, work: u64) -> bool {
        let gained = 1.0 - 1.0 / self.threads as f64;
        // weights are packed and read with several rows at once: a multiply-add takes as long as one operation
        work as f64 * self.ns_per_op * gained <= 2.0 * self.kernel
    }

    /// Is it cheaper to store an operand of `bytes` once, with its padding, than to test at each of so many
    /// multiply-adds whether it reads the padding? `results` is the number of results at one position that share each
    /// element.
    pub(super) fn store_padding(&self, bytes: u64, multiply_adds: u64, results: u64) -> bool {
        // what a masked load costs is shared by the results that it goes into: those at one position, or a vector of
        // positions, where there are fewer results than half a vector; two vectors of results pay for a packed panel
        let [general, one_vector] = self.padded_load_ns;
        let padded = match results {
            n if 2 * n < self.lanes => one_vector,
            n if n < 2 * self.lanes => one_vector * self.lanes as f64 / n as f64,
            _ => general,
        };
        multiply_adds as f64 * padded > self.kernel + 2.0 * bytes as f64 * self.ns_per_byte
    }

    /// Is recomputing the value where it is read no more expensive than storing it once and loading it there?
    pub(super) fn recompute(&self, v: &Value) -> bool {
        if v.operand {
            return v.ops <= OPERAND_OPS;
        }
        if v.is_row_operand && v.ops <= ROW_OPS {
            return true;
        }
        let (len, wanted) = (v.len as f64, v.wanted as f64);
        let once = f64::from(v.ops) * self.ns_per_op + v.buffers as f64 * self.load;
        // a reader moves a 4-byte word for each element and computes meanwhile
        let moves = 4.0 * self.ns_per_byte;
        let passes = |bytes: u64| v.readers as f64 * bytes as f64 * self.ns_per_byte;
        let stored = v.len.saturating_mul(v.size as u64);
        let inside = wanted * once.max(moves) + passes(v.read);
        let kernel = self.kernel + (len * once).max((v.read + stored) as f64 * self.ns_per_byte);
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
        Value { len, size, ops, buffers, read: 4 * len, readers, wanted, is_row_operand: false, operand: false }
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
        // four lanes compute less in the time of a byte than sixteen, and both less than a GPU
        let most = targets().map(|c| (1..=MOST_OPS).take_while(|&ops| c.recompute(&shared(1 << 22, ops))).count());
        assert!(most[2] < most[1] && most[1] < most[0] && most[0] < most[3], "{most:?}");
    }

    /// A convolution window of 81 positions over an input map that one result reads, and over one that many results
    /// share.
    #[test]
    fn padding_that_one_vector_of_results_shares_is_stored_sooner() {
        let (bytes, taps) = (4 * 32 * 64 * 64, 81 * 56 * 56 * 32);
        let stored = targets().map(|c| [1, c.lanes, 4 * c.lanes].map(|results| c.store_padding(bytes, taps, results)));
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
