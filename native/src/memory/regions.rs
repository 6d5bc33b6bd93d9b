//! Regions of huge pages that serve allocations of less than a huge page. A network's weights are many tensors of some
//! hundred kilobytes, each read once per run: with pages of 4 KiB the processor waits for an address translation every
//! few rows. In a virtual machine, where a translation needs two page walks, a product of a vector and a matrix of 600
//! kB took three times as long as one of 2.4 MB.
//!
//! An unused region is returned to the system, except for one that is kept for the next allocations.

use super::{HUGE, map_huge};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Allocations of fewer bytes are left to the heap.
pub(super) const MIN_BYTES: usize = 16 << 10;
/// The size of a region in bytes.
const REGION: usize = 8 * HUGE;
/// The bytes between parts, so that parts of equal size do not all begin in the same set of a cache.
const PART_GAP_BYTES: usize = 192;
/// The alignment of parts in bytes.
const ALIGN: usize = 64;

/// A region of huge pages.
struct Region {
    start: NonNull<u8>,
    /// The number of bytes to unmap.
    bytes: usize,
    /// The unused parts as (offset, length), sorted by offset; no two of them are adjacent.
    free: Vec<(usize, usize)>,
    /// Nothing was ever written from this offset on, so the memory there is zero.
    fresh: usize,
}

// SAFETY: a region is reached through the lock alone; its parts belong to whom they are given.
unsafe impl Send for Region {}

static REGIONS: Mutex<Vec<Region>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Region>> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of a region that an allocation of `len` bytes occupies.
fn occupied_bytes(len: usize) -> usize {
    len.next_multiple_of(ALIGN) + PART_GAP_BYTES
}

impl Region {
    fn new() -> Option<Region> {
        let (start, bytes) = map_huge(REGION)?;
        Some(Region { start, bytes, free: vec![(0, REGION)], fresh: 0 })
    }

    /// Takes zeroed bytes from the first unused part that is large enough.
    fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let n = occupied_bytes(len);
        let i = self.free.iter().position(|f| f.1 >= n)?;
        let (at, left) = self.free[i];
        match left - n {
            0 => drop(self.free.remove(i)),
            more => self.free[i] = (at + n, more),
        }
        let used = len.min(self.fresh.saturating_sub(at));
        self.fresh = self.fresh.max(at + n);
        // SAFETY: `at + n` bytes are in the region, and nobody else has these.
        unsafe {
            let start = self.start.add(at);
            start.as_ptr().write_bytes(0, used);
            Some(start)
        }
    }

    fn offset(&self, start: NonNull<u8>) -> Option<usize> {
        (start.as_ptr() as usize).checked_sub(self.start.as_ptr() as usize).filter(|&at| at < REGION)
    }

    /// Returns a part and merges it with adjacent unused parts.
    fn give_back(&mut self, at: usize, n: usize) {
        let i = self.free.partition_point(|f| f.0 < at);
        self.free.insert(i, (at, n));
        for j in [i + 1, i] {
            if j > 0 && j < self.free.len() && self.free[j - 1].0 + self.free[j - 1].1 == self.free[j].0 {
                self.free[j - 1].1 += self.free[j].1;
                self.free.remove(j);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.free == [(0, REGION)]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: a mapping of this many bytes that belongs to this region, which is going; none of it is in use.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}

/// Allocates zeroed bytes, aligned to a cache line; `None` if the system refuses.
pub(super) fn take(len: usize) -> Option<NonNull<u8>> {
    let mut all = all();
    if let Some(start) = all.iter_mut().find_map(|r| r.take(len)) {
        return Some(start);
    }
    let mut region = Region::new()?;
    let start = region.take(len);
    all.push(region);
    start
}

/// Frees an allocation of [`take`].
pub(super) fn give_back(start: NonNull<u8>, len: usize) {
    let mut all = all();
    if let Some((r, at)) = all.iter_mut().find_map(|r| r.offset(start).map(|at| (r, at))) {
        r.give_back(at, occupied_bytes(len));
    }
    let mut kept = 0;
    all.retain(|r| {
        kept += usize::from(r.is_empty());
        !r.is_empty() || kept == 1
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zero_apart_and_given_back() {
        let mut r = Region::new().unwrap();
        let lens = [MIN_BYTES, 100_000, 777_777, HUGE - 1, 64 << 10];
        let parts: Vec<_> = lens.iter().map(|&n| r.take(n).unwrap()).collect();
        for (i, (&p, &n)) in parts.iter().zip(&lens).enumerate() {
            assert_eq!(p.as_ptr() as usize % ALIGN, 0);
            // SAFETY: `n` bytes at `p` were given above, and are nobody else's.
            let bytes = unsafe { std::slice::from_raw_parts_mut(p.as_ptr(), n) };
            assert!(bytes.iter().all(|&x| x == 0), "zero, and not what the part before was filled with");
            bytes.fill(i as u8 + 1);
        }
        // in another order: holes between parts are merged
        for i in [1, 3, 2, 0, 4] {
            let at = r.offset(parts[i]).unwrap();
            r.give_back(at, occupied_bytes(lens[i]));
        }
        assert!(r.is_empty(), "{:?}", r.free);
        let again = r.take(2 * HUGE - PART_GAP_BYTES).unwrap();
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(again.as_ptr(), 2 * HUGE - PART_GAP_BYTES) };
        assert!(bytes.iter().all(|&x| x == 0), "what was used before is zeroed");
        assert!(r.take(REGION).is_none(), "no more than there is");
        r.give_back(0, occupied_bytes(2 * HUGE - PART_GAP_BYTES));
        assert!(r.is_empty());
    }
}
