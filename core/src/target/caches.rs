//! The caches of a processor's core, for choices of opts: what stays in them from one use to the next, and what it costs where it does not.

/// Caches of a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Caches {
    /// Sets of lines of the first one, and lines of a set.
    pub first: [usize; 2],
    /// Bytes of a panel: most of the second one.
    pub panel: usize,
    /// Bytes of what is read once a panel and still comes from a cache: a part of the last one.
    pub last: usize,
    /// Cycles of a line that comes from memory, of one row and of several rows side by side.
    pub line: [f64; 2],
    /// Cycles of a line that the first one did not keep and the second one has: of one that follows the one before, and of one on its own.
    pub second: [f64; 2],
    /// Cycles of a line that the first one did not keep, where it takes turns with lines from memory.
    pub again: f64,
}

impl Caches {
    /// Sets of the first one over which lines spread that begin so many bytes apart.
    pub fn sets_of(&self, step: usize) -> usize {
        let sets = self.first[0];
        if step.is_multiple_of(64) && step > 0 { sets / gcd(sets, step / 64) } else { sets }
    }

    /// All of them, for keys.
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        let &Caches { first, panel, last, line, second, again } = self;
        first.into_iter().chain([panel, last]).map(|n| n as f64).chain(line).chain(second).chain([again])
    }

    /// Measured on Zen 4: one row came from memory at 33 GB/s, and eight side by side at 20. Matrices of f16 whose vector the first cache does not
    /// keep came at 12.5 GB/s a row at a time, and at 20 four rows at a time; those whose vector it keeps at 21 one at a time. `second` was measured
    /// on Emerald Rapids, by transposed convolutions.
    pub const ZEN4: Caches =
        Caches { first: [64, 8], panel: 768 << 10, last: 4 << 20, line: [7.0, 11.0], second: [1.5, 3.0], again: 9.0 };
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
