//! Memory in blocks: a block is one buffer of the driver with its memory, and allocations are places in it.
//!
//! Drivers take a tenth of a millisecond to make a block, and allow only 4096 allocations. A freed place may be reused
//! at once, because the device's queue runs commands in order; an empty block is destroyed when all earlier submissions
//! are done.

use super::gpu::Gpu;
use crate::hazards::Region;
use ash::vk;
use gradloom_core::{Error, Result};
use std::collections::BTreeMap;

/// The alignment of places in bytes: the largest offset alignment that Vulkan's limits permit a driver to require.
const STEP: u64 = 256;
/// The size of a block in bytes, unless a single allocation is larger than half of it.
const BLOCK: u64 = 64 << 20;

/// A range of bytes in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct MemoryRange {
    pub(super) block: u32,
    pub(super) offset: u64,
    /// The number of bytes, a multiple of four.
    pub(super) bytes: u64,
}

impl From<MemoryRange> for Region {
    fn from(p: MemoryRange) -> Region {
        Region { space: p.block, offset: p.offset, bytes: p.bytes }
    }
}

struct Block {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    bytes: u64,
    mapped: Option<Mapped>,
    /// Free parts: offset to length in bytes.
    free: BTreeMap<u64, u64>,
}

/// The address at which the host sees a block.
struct Mapped(*mut u8);

// SAFETY: it is memory of the device's, which any thread may use that has the block
unsafe impl Send for Mapped {}
// SAFETY: what a shared reference allows is reading
unsafe impl Sync for Mapped {}

impl Block {
    fn is_empty(&self) -> bool {
        self.free.first_key_value() == Some((&0, &self.bytes))
    }

    /// Takes bytes from the first free part that is large enough.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&at, &len) = self.free.iter().find(|(_, len)| **len >= bytes)?;
        self.free.remove(&at);
        if len > bytes {
            self.free.insert(at + bytes, len - bytes);
        }
        Some(at)
    }

    fn give(&mut self, mut at: u64, mut len: u64) {
        if let Some(after) = self.free.remove(&(at + len)) {
            len += after;
        }
        if let Some((&before, &n)) = self.free.range(..at).next_back()
            && before + n == at
        {
            self.free.remove(&before);
            (at, len) = (before, len + n);
        }
        self.free.insert(at, len);
    }
}

/// All blocks of one memory type.
pub(super) struct Pool {
    kind: u32,
    usage: vk::BufferUsageFlags,
    mapped: bool,
    block_bytes: u64,
    most_bytes: u64,
    blocks: BTreeMap<u32, Block>,
    bytes: u64,
    next: u32,
    /// Unused blocks, each to be destroyed when the submission of this number is done.
    pending_release: Vec<(u64, Block)>,
}

impl Pool {
    /// A pool of the memory type `kind`, mapped into the host's memory if `mapped`. Its blocks are numbered `first`,
    /// `first + 3`, …, so that no other pool has the same numbers.
    pub(super) fn new(gpu: &Gpu, kind: u32, usage: vk::BufferUsageFlags, mapped: bool, first: u32) -> Pool {
        let heap = gpu.memory.memory_types[kind as usize].heap_index as usize;
        let most_bytes = gpu.memory.memory_heaps[heap].size;
        let block_bytes = BLOCK.min(most_bytes / 16).next_multiple_of(STEP);
        Pool {
            kind,
            usage,
            mapped,
            block_bytes,
            most_bytes,
            blocks: BTreeMap::new(),
            bytes: 0,
            next: first,
            pending_release: Vec::new(),
        }
    }

    /// Takes a place of at least `bytes` bytes.
    pub(super) fn take(&mut self, gpu: &Gpu, bytes: u64) -> Result<MemoryRange> {
        let refused = || Error::OutOfMemory { device: "vulkan".into(), bytes };
        // Views are rounded up to whole words, so an empty view at the end needs a word after it
        let bytes = bytes.checked_add(4).and_then(|b| b.checked_next_multiple_of(STEP)).ok_or_else(refused)?;
        let whole = bytes > self.block_bytes / 2;
        if !whole {
            for (&block, b) in &mut self.blocks {
                if let Some(offset) = b.take(bytes) {
                    return Ok(MemoryRange { block, offset, bytes });
                }
            }
        }
        let size = if whole { bytes } else { self.block_bytes };
        if self.bytes.checked_add(size).is_none_or(|all| all > self.most_bytes) {
            return Err(refused());
        }
        let made = self.block(gpu, size).or_else(|e| match e {
            Error::OutOfMemory { .. } if !self.pending_release.is_empty() => {
                gpu.wait(gpu.submitted())?;
                self.sweep(gpu);
                self.block(gpu, size)
            }
            e => Err(e),
        });
        let mut made = made.map_err(|e| if matches!(e, Error::OutOfMemory { .. }) { refused() } else { e })?;
        made.take(bytes).ok_or_else(refused)?;
        let block = self.next;
        self.next += 3;
        self.bytes += size;
        self.blocks.insert(block, made);
        Ok(MemoryRange { block, offset: 0, bytes })
    }

    /// Frees a place whose last use is the submission `after`. Returns the number of its block if that is removed.
    pub(super) fn give(&mut self, place: MemoryRange, after: u64) -> Option<u32> {
        let block = self.blocks.get_mut(&place.block)?;
        block.give(place.offset, place.bytes);
        let empty = |b: &Block| b.is_empty() && b.bytes == self.block_bytes;
        let spare = self.blocks.values().filter(|b| empty(b)).count();
        let block = &self.blocks[&place.block];
        if !block.is_empty() || spare == 1 && block.bytes == self.block_bytes {
            return None;
        }
        let block = self.blocks.remove(&place.block)?;
        self.bytes -= block.bytes;
        self.pending_release.push((after, block));
        Some(place.block)
    }

    /// Destroys unused blocks whose last submission is done.
    pub(super) fn sweep(&mut self, gpu: &Gpu) {
        let mut i = 0;
        while i < self.pending_release.len() {
            if gpu.reached(self.pending_release[i].0) {
                free(gpu, self.pending_release.swap_remove(i).1);
            } else {
                i += 1;
            }
        }
    }

    pub(super) fn buffer(&self, place: &MemoryRange) -> vk::Buffer {
        self.blocks.get(&place.block).map_or(vk::Buffer::null(), |b| b.buffer)
    }

    /// Is the memory mapped into the host's memory?
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Writes to a mapped place that no running submission uses.
    pub(super) fn write(&mut self, place: &MemoryRange, at: u64, data: &[u8]) {
        if let Some(to) = self.address(place, at, data.len()) {
            // SAFETY: the range is inside the place, and the source is other memory
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
        }
    }

    /// Zeroes a mapped place that no running submission uses.
    pub(super) fn zero(&mut self, place: &MemoryRange) {
        if let Some(to) = self.address(place, 0, place.bytes as usize) {
            // SAFETY: the range is the place
            unsafe { std::ptr::write_bytes(to, 0, place.bytes as usize) }
        }
    }

    /// Reads bytes of a mapped place.
    pub(super) fn read(&self, place: &MemoryRange, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        if let Some(from) = self.address(place, at, bytes) {
            // SAFETY: the range is inside the place, and the bytes are as many
            unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), bytes) }
        }
        out
    }

    fn address(&self, place: &MemoryRange, at: u64, bytes: usize) -> Option<*mut u8> {
        let inside = at.checked_add(bytes as u64).is_some_and(|end| end <= place.bytes);
        let block = self.blocks.get(&place.block).filter(|b| inside && place.offset + place.bytes <= b.bytes)?;
        // SAFETY: the offset is inside the block, all of which is mapped
        block.mapped.as_ref().map(|m| unsafe { m.0.add((place.offset + at) as usize) })
    }

    fn block(&self, gpu: &Gpu, bytes: u64) -> Result<Block> {
        let d = &gpu.device;
        let what = vk::BufferCreateInfo::default().size(bytes).usage(self.usage);
        // SAFETY: the description lives until the call returns
        let buffer = unsafe { d.create_buffer(&what, None) }.map_err(|e| gpu.failed("a buffer", e))?;
        let mut block =
            Block { buffer, memory: vk::DeviceMemory::null(), bytes, mapped: None, free: BTreeMap::from([(0, bytes)]) };
        match self.back(gpu, &mut block) {
            Ok(()) => Ok(block),
            Err(e) => {
                free(gpu, block);
                Err(gpu.failed("memory", e))
            }
        }
    }

    /// Allocates memory for the buffer of a block.
    fn back(&self, gpu: &Gpu, block: &mut Block) -> std::result::Result<(), vk::Result> {
        let d = &gpu.device;
        // SAFETY: the buffer is the device's, has no memory yet, and gets as much as it asks for; what is mapped is host-visible
        unsafe {
            let needs = d.get_buffer_memory_requirements(block.buffer);
            let what = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(self.kind);
            block.memory = d.allocate_memory(&what, None)?;
            d.bind_buffer_memory(block.buffer, block.memory, 0)?;
            if self.mapped {
                let at = d.map_memory(block.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
                block.mapped = Some(Mapped(at.cast()));
            }
        }
        Ok(())
    }

    /// Frees everything; the device must be idle.
    pub(super) fn clear(&mut self, gpu: &Gpu) {
        let blocks = std::mem::take(&mut self.blocks).into_values();
        blocks.chain(self.pending_release.drain(..).map(|g| g.1)).for_each(|b| free(gpu, b));
    }
}

fn free(gpu: &Gpu, block: Block) {
    // SAFETY: no submission that uses the block is in flight; memory that is freed is unmapped with it
    unsafe {
        gpu.device.destroy_buffer(block.buffer, None);
        gpu.device.free_memory(block.memory, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_block_join_again() {
        let free = BTreeMap::from([(0, 1024)]);
        let mut b =
            Block { buffer: vk::Buffer::null(), memory: vk::DeviceMemory::null(), bytes: 1024, mapped: None, free };
        let taken: Vec<_> = (0..4).map(|_| b.take(256)).collect();
        assert_eq!(taken, [Some(0), Some(256), Some(512), Some(768)]);
        assert_eq!(b.take(1), None);
        b.give(256, 256);
        b.give(768, 256);
        assert_eq!(b.take(512), None, "what is free lies apart");
        b.give(512, 256);
        assert_eq!(b.take(512), Some(256));
        b.give(0, 256);
        b.give(256, 512);
        assert!(b.is_empty());
    }
}
