//! Regions of huge pages from which allocations of less than one are cut. A network's weights are many tensors of some hundred
//! kilobytes that are read once a run: with pages of 4 KiB the processor waits for a translation every few rows. In a virtual machine,
//! where a translation takes two walks, a product of a vector and a matrix of 600 kB took three times as long as one of 2.4 MB.
//!
//! A region is given back to the system when nothing of it is in use, but for one that waits for what comes next.

use super::{HUGE, map_huge};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Allocations of fewer bytes are left to the heap.
pub(super) const LEAST: usize = 16 << 10;
/// Bytes of a region.
const REGION: usize = 8 * HUGE;
/// Parts lie so far apart that equal ones do not begin in the same set of a cache.
const APART: usize = 192;
/// Alignment of parts.
const ALIGN: usize = 64;

/// Some huge pages.
struct Region {
    start: NonNull<u8>,
    /// Bytes to unmap.
    bytes: usize,
    /// Parts that are not in use, by offset: no two of them touch.
    free: Vec<(usize, usize)>,
    /// From here on nothing was ever written, so that it is zero.
    fresh: usize,
}

// SAFETY: a region is reached through the lock alone; its parts belong to whom they are given.
unsafe impl Send for Region {}

static REGIONS: Mutex<Vec<Region>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Region>> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that an allocation takes.
fn whole(len: usize) -> usize {
    len.next_multiple_of(ALIGN) + APART
}

impl Region {
    fn new() -> Option<Region> {
        let (start, bytes) = map_huge(REGION)?;
        Some(Region { start, bytes, free: vec![(0, REGION)], fresh: 0 })
    }

    /// Zeroed bytes, from the first place where there are enough.
    fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let n = whole(len);
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

    /// Joins a part with the free ones beside it.
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

/// Zeroed bytes, aligned to a cache line; none if the system has no more.
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

/// Takes back what [`take`] gave.
pub(super) fn give_back(start: NonNull<u8>, len: usize) {
    let mut all = all();
    if let Some((r, at)) = all.iter_mut().find_map(|r| r.offset(start).map(|at| (r, at))) {
        r.give_back(at, whole(len));
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
        let lens = [LEAST, 100_000, 777_777, HUGE - 1, 64 << 10];
        let parts: Vec<_> = lens.iter().map(|&n| r.take(n).unwrap()).collect();
        for (i, (&p, &n)) in parts.iter().zip(&lens).enumerate() {
            assert_eq!(p.as_ptr() as usize % ALIGN, 0);
            // SAFETY: `n` bytes at `p` were given above, and are nobody else's.
            let bytes = unsafe { std::slice::from_raw_parts_mut(p.as_ptr(), n) };
            assert!(bytes.iter().all(|&x| x == 0), "zero, and not what the part before was filled with");
            bytes.fill(i as u8 + 1);
        }
        // in another order: holes between parts are joined
        for i in [1, 3, 2, 0, 4] {
            let at = r.offset(parts[i]).unwrap();
            r.give_back(at, whole(lens[i]));
        }
        assert!(r.is_empty(), "{:?}", r.free);
        let again = r.take(2 * HUGE - APART).unwrap();
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(again.as_ptr(), 2 * HUGE - APART) };
        assert!(bytes.iter().all(|&x| x == 0), "what was used before is zeroed");
        assert!(r.take(REGION).is_none(), "no more than there is");
        r.give_back(0, whole(2 * HUGE - APART));
        assert!(r.is_empty());
    }
}
