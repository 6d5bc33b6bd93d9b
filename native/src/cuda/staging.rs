//! Pinned host memory, which the GPU reads and writes on its own, so that the host need not wait for copies: a few
//! blocks that uploads use in turn, and blocks for readbacks, which are kept because the driver is slow to allocate
//! them.

use super::driver::{Event, Pinned, Stream};
use gradloom_core::Result;

/// The size in bytes of a block for uploads.
const BLOCK: usize = 4 << 20;
/// The number of blocks for uploads.
const BLOCKS: usize = 4;
/// The alignment in bytes of uploads within their block.
const ALIGNMENT: usize = 64;
/// The most bytes of idle readback blocks that are kept.
const KEPT: usize = 64 << 20;
/// The size in bytes of the smallest readback block.
const LEAST: usize = 4096;

/// The blocks for uploads.
#[derive(Default)]
pub(super) struct Uploads {
    blocks: Vec<Block>,
    /// The index of the block that is being filled.
    at: usize,
}

struct Block {
    memory: Pinned,
    used: usize,
    /// An event behind all copies from this block, once it is full.
    done: Option<Event>,
}

impl Uploads {
    /// Starts a copy to the GPU. `data` has been read when this returns.
    pub(super) fn send(&mut self, stream: &Stream, at: u64, data: &[u8]) -> Result<()> {
        let mut to = at;
        for part in data.chunks(BLOCK) {
            match self.room(stream, part.len())? {
                Some(block) => {
                    stream.upload_by(to, &mut block.memory, block.used, part)?;
                    block.used += part.len().next_multiple_of(ALIGNMENT);
                }
                None => stream.upload(to, part)?,
            }
            to += part.len() as u64;
        }
        Ok(())
    }

    /// A block with this many free bytes; `None` if the system has no more pinned memory.
    fn room(&mut self, stream: &Stream, bytes: usize) -> Result<Option<&mut Block>> {
        let full = |b: &Block| b.used + bytes > b.memory.bytes();
        if self.blocks.get(self.at).is_none_or(full) {
            if let Some(block) = self.blocks.get_mut(self.at) {
                block.done = Some(stream.event()?);
            }
            if self.blocks.len() < BLOCKS {
                let Ok(memory) = stream.pinned(BLOCK) else { return Ok(None) };
                self.blocks.push(Block { memory, used: 0, done: None });
                self.at = self.blocks.len() - 1;
            } else {
                self.at = (self.at + 1) % BLOCKS;
                let block = &mut self.blocks[self.at];
                if let Some(event) = block.done.take() {
                    stream.reach(&event)?;
                }
                block.used = 0;
            }
        }
        Ok(self.blocks.get_mut(self.at))
    }
}

/// Idle readback blocks.
#[derive(Default)]
pub(super) struct Readbacks {
    idle: Vec<Pinned>,
    bytes: usize,
}

impl Readbacks {
    /// A block of at least this many bytes.
    pub(super) fn take(&mut self, stream: &Stream, bytes: usize) -> Result<Pinned> {
        let size = bytes.max(LEAST).next_power_of_two();
        if let Some(i) = self.idle.iter().position(|p| p.bytes() == size) {
            self.bytes -= size;
            return Ok(self.idle.swap_remove(i));
        }
        stream.pinned(size)
    }

    /// Returns a block whose contents were read.
    pub(super) fn give(&mut self, block: Pinned) {
        if self.bytes + block.bytes() <= KEPT {
            self.bytes += block.bytes();
            self.idle.push(block);
        }
    }
}
