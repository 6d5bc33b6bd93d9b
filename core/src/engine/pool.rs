//! A pool of free device buffers. Each run allocates new outputs, so that results never alias; buffers of results that
//! were dropped are reused by later runs that need the same sizes, which saves the system work (page faults, zeroing).
//! A buffer that was not reused during a whole further run is returned to the device.

use crate::device::BufId;
use rustc_hash::FxHashMap;

/// Free buffers by size.
#[derive(Default)]
pub(super) struct Pool {
    free: FxHashMap<usize, Vec<(BufId, u64)>>,
    /// Number of runs so far.
    now: u64,
}

impl Pool {
    /// A buffer of exactly this size, if there is one.
    pub(super) fn take(&mut self, bytes: usize) -> Option<BufId> {
        let list = self.free.get_mut(&bytes)?;
        let (buf, _) = list.pop()?;
        if list.is_empty() {
            self.free.remove(&bytes);
        }
        Some(buf)
    }

    /// Adds a buffer to which nothing refers any more.
    pub(super) fn put(&mut self, buf: BufId, bytes: usize) {
        self.free.entry(bytes).or_default().push((buf, self.now));
    }

    /// Ends a run. Removes and returns the buffers, with their sizes, that two runs had no use for.
    pub(super) fn age(&mut self) -> Vec<(BufId, usize)> {
        let oldest = self.now.saturating_sub(1);
        self.now += 1;
        self.drain(|since| since < oldest)
    }

    /// Bytes of all buffers in the pool.
    pub(super) fn bytes(&self) -> usize {
        self.free.iter().map(|(bytes, list)| bytes * list.len()).sum()
    }

    /// Removes and returns all buffers, with their sizes.
    pub(super) fn clear(&mut self) -> Vec<(BufId, usize)> {
        self.drain(|_| true)
    }

    fn drain(&mut self, mut old: impl FnMut(u64) -> bool) -> Vec<(BufId, usize)> {
        let mut out = Vec::new();
        self.free.retain(|&bytes, list| {
            list.retain(|&(buf, since)| {
                let goes = old(since);
                if goes {
                    out.push((buf, bytes));
                }
                !goes
            });
            !list.is_empty()
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_by_size_and_leave_after_two_runs() {
        let mut p = Pool::default();
        p.put(BufId(1), 16);
        p.put(BufId(2), 32);
        assert_eq!(p.take(64), None);
        assert_eq!(p.take(16), Some(BufId(1)));
        assert_eq!(p.take(16), None);
        assert!(p.age().is_empty());
        assert!(p.age().is_empty());
        assert_eq!(p.age(), vec![(BufId(2), 32)]);
        p.put(BufId(3), 8);
        assert_eq!(p.clear(), vec![(BufId(3), 8)]);
        assert_eq!(p.take(8), None);
    }
}
