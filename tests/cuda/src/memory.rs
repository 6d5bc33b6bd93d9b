//! Memory of the emulated GPU: allocations at addresses with gaps between them, so that an access outside of one is seen.

use std::collections::BTreeMap;

/// Bytes between two allocations at least.
const GAP: u64 = 4096;
/// Addresses begin at multiples of it.
const ALIGNMENT: u64 = 512;
/// What the GPU has.
pub(crate) const TOTAL: usize = 4 << 30;

/// All allocations, by address.
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Vec<u8>>,
    next: u64,
    used: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { blocks: BTreeMap::new(), next: 0x7f00_0000_0000, used: 0 }
    }
}

impl Memory {
    /// The address of new bytes, which hold anything; `None` where there is no room.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<u64> {
        if bytes == 0 || bytes > TOTAL - self.used {
            return None;
        }
        let at = self.next;
        self.next = (at + bytes as u64 + GAP).next_multiple_of(ALIGNMENT);
        self.used += bytes;
        self.blocks.insert(at, vec![0xA5; bytes]);
        Some(at)
    }

    /// False for an address that is none of an allocation.
    pub(crate) fn free(&mut self, at: u64) -> bool {
        let gone = self.blocks.remove(&at);
        self.used -= gone.as_ref().map_or(0, Vec::len);
        gone.is_some()
    }

    fn find(&self, at: u64, bytes: usize) -> Option<(u64, usize)> {
        let (&start, block) = self.blocks.range(..=at).next_back()?;
        let offset = usize::try_from(at - start).ok()?;
        (offset.checked_add(bytes)? <= block.len()).then_some((start, offset))
    }

    /// Bytes at an address, if they are inside one allocation.
    pub(crate) fn get(&self, at: u64, bytes: usize) -> Option<&[u8]> {
        let (start, offset) = self.find(at, bytes)?;
        self.blocks.get(&start)?.get(offset..offset + bytes)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let (start, offset) = self.find(at, bytes)?;
        self.blocks.get_mut(&start)?.get_mut(offset..offset + bytes)
    }
}
