//! Memory of the host that the GPU reads and writes by itself, so that neither uploads nor readbacks make the host wait: a few blocks that
//! uploads go through in turn, and blocks for readbacks, which are kept because the driver takes long to make one.

use super::driver::{Event, Pinned, Stream};
use gradloom_core::Result;

/// Bytes of a block that uploads go through.
const BLOCK: usize = 4 << 20;
/// Blocks of uploads.
const BLOCKS: usize = 4;
/// Uploads begin at multiples of it in their block.
const ALIGNMENT: usize = 64;
/// Bytes of readbacks' blocks that are kept while nobody has them.
const KEPT: usize = 64 << 20;
/// The smallest block of a readback.
const LEAST: usize = 4096;

/// What uploads go through.
#[derive(Default)]
pub(super) struct Uploads {
    blocks: Vec<Block>,
    /// The block that is being filled.
    at: usize,
}

struct Block {
    memory: Pinned,
    used: usize,
    /// Behind the copies from it, once it is full.
    done: Option<Event>,
}

impl Uploads {
    /// Starts a copy of bytes to the GPU. They are read when this returns.
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

    /// A block with so much room; `None` where the host gives no such memory.
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

/// Blocks of readbacks that nobody has.
#[derive(Default)]
pub(super) struct Readbacks {
    idle: Vec<Pinned>,
    bytes: usize,
}

impl Readbacks {
    /// A block of so many bytes at least.
    pub(super) fn take(&mut self, stream: &Stream, bytes: usize) -> Result<Pinned> {
        let size = bytes.max(LEAST).next_power_of_two();
        if let Some(i) = self.idle.iter().position(|p| p.bytes() == size) {
            self.bytes -= size;
            return Ok(self.idle.swap_remove(i));
        }
        stream.pinned(size)
    }

    /// Takes a block back from which everything was read.
    pub(super) fn give(&mut self, block: Pinned) {
        if self.bytes + block.bytes() <= KEPT {
            self.bytes += block.bytes();
            self.idle.push(block);
        }
    }
}
