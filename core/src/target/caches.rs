//! Cache sizes and latencies of one CPU core, read by the code that chooses opts: how much data stays in each cache
//! from one use to the next, and how many cycles a miss costs. A line has 64
//! bytes.

/// The caches of one CPU core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Caches {
    /// Number of sets of the L1 cache, and lines in a set (its associativity).
    pub l1_sets_ways: [usize; 2],
    /// Bytes that a packed panel of an operand may have so that it stays in the L2 cache: most of that cache.
    pub panel: usize,
    /// Bytes of an operand that is read again for each panel and still comes from a cache rather than from memory: a
    /// part of the L3 cache.
    pub l3_share_bytes: usize,
    /// Cycles to load a line from memory: while a kernel reads one row, and while it reads several rows side by side.
    pub memory_line_cycles: [f64; 2],
    /// Cycles to load a line that misses in L1 and hits in L2: one that follows the line loaded before, and one on its
    /// own.
    pub l2_line_cycles: [f64; 2],
    /// Cycles to load a line that misses in L1, where such loads alternate with lines from memory.
    pub l1_miss_mixed_cycles: f64,
}

impl Caches {
    /// Number of sets of the L1 cache over which lines are spread whose addresses are `step` bytes apart.
    pub fn sets_of(&self, step: usize) -> usize {
        let sets = self.l1_sets_ways[0];
        if step.is_multiple_of(64) && step > 0 { sets / gcd(sets, step / 64) } else { sets }
    }

    /// Appends all numbers in a fixed order, for the text from which cache keys are made.
    pub(super) fn numbers(&self, out: &mut Vec<f64>) {
        let &Caches { l1_sets_ways, panel, l3_share_bytes, memory_line_cycles, l2_line_cycles, l1_miss_mixed_cycles } =
            self;
        out.extend([l1_sets_ways[0], l1_sets_ways[1], panel, l3_share_bytes].map(|n| n as f64));
        let [memory, l2] = [memory_line_cycles, l2_line_cycles];
        out.extend_from_slice(&[memory[0], memory[1], l2[0], l2[1], l1_miss_mixed_cycles]);
    }

    /// Measured on Zen 4: one row came from memory at 33 GB/s, and eight rows side by side at 20. Products of a vector
    /// with a matrix of f16 read the matrix at 12.5 GB/s one row at a time and at 20 four rows at a time where L1 does
    /// not keep the vector; where it does, at 21 one row at a time. `l2_line_cycles` was measured on Emerald Rapids,
    /// with transposed convolutions.
    pub const ZEN4: Caches = Caches {
        l1_sets_ways: [64, 8],
        panel: 768 << 10,
        l3_share_bytes: 4 << 20,
        memory_line_cycles: [7.0, 11.0],
        l2_line_cycles: [1.5, 3.0],
        l1_miss_mixed_cycles: 9.0,
    };
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
