//! A best-fit allocator of ranges in a space that only grows, such as the addresses of a memory or the entries of a
//! table. It does not touch what is stored there.

use super::sorted::SortedMap;

/// Free ranges below the end of the space.
#[derive(Clone, Debug)]
pub struct Heap {
    align: usize,
    end: usize,
    free: SortedMap<usize, usize>,
    used: usize,
    peak: usize,
}

/// An allocated range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it starts.
    pub at: usize,
    /// The first `stale` bytes were allocated before, and the rest is new.
    pub stale: usize,
}

impl Heap {
    /// An empty space that starts at `base`; every block starts and ends at a multiple of `align`, a power of two.
    pub fn new(base: usize, align: usize) -> Heap {
        Heap { align, end: base.next_multiple_of(align), free: SortedMap::new(), used: 0, peak: 0 }
    }

    /// End of all ranges that were ever allocated: the space must reach this far.
    pub fn end(&self) -> usize {
        self.end
    }

    /// How much is allocated at present.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The most that was allocated at the same time.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// How far the space must reach for a block of `len`: grow it to this before [`Heap::alloc`]. `None` on overflow.
    pub fn reach(&self, len: usize) -> Option<usize> {
        let len = self.round(len)?;
        match self.fit(len) {
            Some(_) => Some(self.end),
            None => self.tail().checked_add(len),
        }
    }

    /// Allocates `len`, at least one unit of the alignment. `None` if the addresses do not suffice.
    pub fn alloc(&mut self, len: usize) -> Option<Block> {
        let len = self.round(len)?;
        let block = match self.fit(len) {
            Some(at) => {
                let size = self.free.remove(&at)?;
                if size > len {
                    self.free.insert(at + len, size - len);
                }
                Block { at, stale: len }
            }
            None => {
                let at = self.tail();
                let new_end = at.checked_add(len)?;
                self.free.remove(&at);
                let stale = self.end - at;
                self.end = new_end;
                Block { at, stale }
            }
        };
        self.used += len;
        self.peak = self.peak.max(self.used);
        Some(block)
    }

    /// Frees a block of `len` that `alloc` returned at `at`.
    pub fn free(&mut self, at: usize, len: usize) {
        let Some(len) = self.round(len) else { return };
        self.used -= len;
        let (mut start, mut stop) = (at, at + len);
        if let Some((&a, &n)) = self.free.last_below(&at)
            && a + n == at
        {
            self.free.remove(&a);
            start = a;
        }
        if let Some(n) = self.free.remove(&stop) {
            stop += n;
        }
        self.free.insert(start, stop - start);
    }

    fn round(&self, len: usize) -> Option<usize> {
        len.max(1).checked_next_multiple_of(self.align)
    }

    /// The smallest free range that holds `len`.
    fn fit(&self, len: usize) -> Option<usize> {
        self.free.iter().filter(|(_, n)| **n >= len).min_by_key(|(_, n)| **n).map(|(&a, _)| a)
    }

    /// Where a block that grows the space starts: at the last free range if that reaches the end, else at the end.
    fn tail(&self) -> usize {
        match self.free.last_key_value() {
            Some((&a, &n)) if a + n == self.end => a,
            _ => self.end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_overlap_and_space_is_found_again() {
        let mut h = Heap::new(100, 64);
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut x = 12345u32;
        for turn in 0..4000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            if turn % 3 < 2 && live.len() < 40 || live.is_empty() {
                let len = (x >> 16) as usize % 5000;
                let reach = h.reach(len).unwrap();
                let end = h.end();
                let b = h.alloc(len).unwrap();
                assert_eq!(b.at % 64, 0);
                assert_eq!(h.end(), reach.max(end));
                assert_eq!(b.stale, (len.max(1).next_multiple_of(64)).min(end.saturating_sub(b.at)));
                assert!(b.at >= 100 && b.at + len <= h.end());
                for &(a, n) in &live {
                    assert!(b.at + len.max(1) <= a || a + n.max(1) <= b.at, "{b:?} overlaps {a} {n}");
                }
                live.push((b.at, len));
            } else {
                let (a, n) = live.swap_remove((x >> 8) as usize % live.len());
                h.free(a, n);
            }
        }
        assert!(h.end() < 40 * 5064 * 2, "fragmented: {}", h.end());
        for (a, n) in live {
            h.free(a, n);
        }
        assert_eq!(h.used(), 0);
        assert_eq!(h.free.len(), 1);
    }

    #[test]
    fn too_much_is_refused() {
        let mut h = Heap::new(0, 64);
        assert_eq!(h.alloc(usize::MAX), None);
        assert_eq!(h.reach(usize::MAX), None);
        assert!(h.alloc(64).is_some());
        assert_eq!(h.alloc(usize::MAX - 64), None);
    }
}
