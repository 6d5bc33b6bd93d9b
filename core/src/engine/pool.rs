//! Device buffers between two uses. A run allocates its outputs anew, so that results never alias; the buffers of results
//! that were dropped serve the next run of the same sizes, which saves the system's work (page faults, zeroing). What no
//! run has taken during a whole further run goes back to the device.

use crate::device::BufId;
use rustc_hash::FxHashMap;

/// Free buffers by size.
#[derive(Default)]
pub(super) struct Pool {
    free: FxHashMap<usize, Vec<(BufId, u64)>>,
    /// Runs so far.
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

    /// Keeps a buffer that nothing refers to any more.
    pub(super) fn put(&mut self, buf: BufId, bytes: usize) {
        self.free.entry(bytes).or_default().push((buf, self.now));
    }

    /// A run has taken what it needs: buffers that two runs had no use for, with their sizes.
    pub(super) fn age(&mut self) -> Vec<(BufId, usize)> {
        let oldest = self.now.saturating_sub(1);
        self.now += 1;
        self.drain(|since| since < oldest)
    }

    /// Bytes of all that is kept.
    pub(super) fn bytes(&self) -> usize {
        self.free.iter().map(|(bytes, list)| bytes * list.len()).sum()
    }

    /// Everything.
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
