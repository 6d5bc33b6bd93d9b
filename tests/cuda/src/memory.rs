//! Memory of the emulated GPU: allocations at addresses with gaps between them, so that an access outside of one is seen. What is allocated in
//! a stream's order belongs to the pool, which keeps what is freed; what exceeds its threshold goes back when somebody waits.

use std::collections::BTreeMap;

/// Bytes between two allocations at least.
const GAP: u64 = 4096;
/// Addresses begin at multiples of it.
const ALIGNMENT: u64 = 512;
/// Bytes that the GPU has.
const TOTAL: usize = 4 << 30;

/// An allocation, and whether it is the pool's.
struct Block {
    bytes: Vec<u8>,
    pooled: bool,
}

/// The pool of allocations in a stream's order.
#[derive(Default)]
pub(crate) struct Pool {
    /// The bytes that it may have when somebody waits, in use or not.
    pub(crate) threshold: u64,
    /// The bytes that it has.
    reserved: u64,
    /// How many pieces of each size were freed and not given back. An allocation takes one of exactly its size; a real pool also divides them.
    kept: BTreeMap<usize, usize>,
}

impl Pool {
    /// Takes a piece of this size; false if there is none.
    fn reuse(&mut self, bytes: usize) -> bool {
        let Some(pieces) = self.kept.get_mut(&bytes) else { return false };
        *pieces -= 1;
        if *pieces == 0 {
            self.kept.remove(&bytes);
        }
        true
    }
}

/// All allocations, by address.
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Block>,
    next: u64,
    total: usize,
    /// Bytes of allocations, and what the pool keeps.
    used: usize,
    pub(crate) pool: Pool,
}

impl Default for Memory {
    /// `GRADLOOM_EMULATED_BYTES` says how many bytes the GPU has, if not what is usual.
    fn default() -> Memory {
        let other = std::env::var("GRADLOOM_EMULATED_BYTES").ok().and_then(|v| v.parse().ok());
        Memory::of(other.unwrap_or(TOTAL))
    }
}

impl Memory {
    /// A memory of so many bytes.
    pub(crate) fn of(total: usize) -> Memory {
        Memory { blocks: BTreeMap::new(), next: 0x7f00_0000_0000, total, used: 0, pool: Pool::default() }
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The address of new bytes, which hold anything; `None` where there is no room.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<u64> {
        if bytes > self.total - self.used {
            return None;
        }
        self.used += bytes;
        self.add(bytes, false)
    }

    /// The same from the pool.
    pub(crate) fn allocate_pooled(&mut self, bytes: usize) -> Option<u64> {
        if !self.pool.reuse(bytes) {
            if bytes > self.total - self.used {
                return None;
            }
            self.used += bytes;
            self.pool.reserved += bytes as u64;
        }
        self.add(bytes, true)
    }

    fn add(&mut self, bytes: usize, pooled: bool) -> Option<u64> {
        if bytes == 0 {
            return None;
        }
        let at = self.next;
        self.next = (at + bytes as u64 + GAP).next_multiple_of(ALIGNMENT);
        self.blocks.insert(at, Block { bytes: vec![0xA5; bytes], pooled });
        Some(at)
    }

    /// False for an address that is none of an allocation.
    pub(crate) fn free(&mut self, at: u64) -> bool {
        let Some(block) = self.blocks.remove(&at) else { return false };
        match block.pooled {
            true => *self.pool.kept.entry(block.bytes.len()).or_default() += 1,
            false => self.used -= block.bytes.len(),
        }
        true
    }

    /// The bytes that the pool has, in use or not.
    pub(crate) fn reserved(&self) -> u64 {
        self.pool.reserved
    }

    /// Gives back what the pool keeps, down to so many bytes.
    pub(crate) fn trim(&mut self, keep: u64) {
        while self.pool.reserved > keep
            && let Some((&bytes, _)) = self.pool.kept.last_key_value()
        {
            self.pool.reuse(bytes);
            self.pool.reserved -= bytes as u64;
            self.used -= bytes;
        }
    }

    fn find(&self, at: u64, bytes: usize) -> Option<(u64, usize)> {
        let (&start, block) = self.blocks.range(..=at).next_back()?;
        let offset = usize::try_from(at - start).ok()?;
        (offset.checked_add(bytes)? <= block.bytes.len()).then_some((start, offset))
    }

    /// Bytes at an address, if they are inside one allocation.
    pub(crate) fn get(&self, at: u64, bytes: usize) -> Option<&[u8]> {
        let (start, offset) = self.find(at, bytes)?;
        self.blocks.get(&start)?.bytes.get(offset..offset + bytes)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let (start, offset) = self.find(at, bytes)?;
        self.blocks.get_mut(&start)?.bytes.get_mut(offset..offset + bytes)
    }
}
