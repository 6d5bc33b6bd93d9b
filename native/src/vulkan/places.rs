//! The allocations of a device, and the host memory through which bytes are uploaded and read back.

use super::error;
use super::find::DeviceCapabilities;
use super::gpu::Gpu;
use super::memory::{MemoryRange, Pool};
use crate::steps;
use ash::vk;
use gradloom_core::Result;
use gradloom_core::device::{BufId, View};
use std::collections::HashMap;

/// All memory of a device.
pub(super) struct Places {
    bufs: HashMap<BufId, (MemoryRange, usize)>,
    /// Memory that kernels use.
    pub(super) device: Pool,
    /// Memory that the host writes: uploads and launch scalars.
    pub(super) upload: Pool,
    /// Memory that the host reads.
    pub(super) readback: Pool,
    next: u32,
}

impl Places {
    pub(super) fn new(gpu: &Gpu, can: &DeviceCapabilities) -> Result<Places> {
        use vk::BufferUsageFlags as U;
        use vk::MemoryPropertyFlags as P;
        let seen = P::HOST_VISIBLE | P::HOST_COHERENT;
        let work = U::STORAGE_BUFFER | U::TRANSFER_SRC | U::TRANSFER_DST;
        // For buffers of such usage drivers allow every memory type that is not reserved for images
        let all = u32::MAX;
        let shared =
            gpu.memory_type(all, P::DEVICE_LOCAL | seen | P::HOST_CACHED, &[]).ok().filter(|_| can.shares_memory);
        let own = gpu.memory_type(all, P::DEVICE_LOCAL, &[(seen, false), (P::LAZILY_ALLOCATED, false)]);
        let kind = shared.map_or(own, Ok)?;
        let up = gpu.memory_type(all, seen, &[(P::DEVICE_LOCAL, false), (P::HOST_CACHED, false)])?;
        let down = gpu.memory_type(all, seen, &[(P::HOST_CACHED, true), (P::DEVICE_LOCAL, false)])?;
        Ok(Places {
            bufs: HashMap::new(),
            device: Pool::new(gpu, kind, work, shared.is_some(), 0),
            upload: Pool::new(gpu, up, U::TRANSFER_SRC | U::UNIFORM_BUFFER, true, 1),
            readback: Pool::new(gpu, down, U::TRANSFER_DST, true, 2),
            next: 0,
        })
    }

    pub(super) fn alloc(&mut self, gpu: &Gpu, bytes: usize) -> Result<(BufId, MemoryRange)> {
        let place = self.device.take(gpu, bytes as u64)?;
        let id = BufId(self.next);
        self.next += 1;
        self.bufs.insert(id, (place, bytes));
        Ok((id, place))
    }

    /// Frees an allocation when the submission `after` is done. Returns the number of its block if that is removed.
    pub(super) fn free(&mut self, buf: BufId, after: u64) -> Option<u32> {
        let (place, _) = self.bufs.remove(&buf)?;
        self.device.give(place, after)
    }

    /// The place of a view, rounded up to whole words; an error if the view is not inside its allocation.
    pub(super) fn place(&self, v: &View) -> Result<MemoryRange> {
        let (p, size) = self.bufs.get(&v.buf).ok_or_else(|| error(format!("{:?} is not allocated", v.buf)))?;
        steps::inside("vulkan", v, *size)?;
        let bytes = (v.bytes as u64).max(1).next_multiple_of(4);
        Ok(MemoryRange { block: p.block, offset: p.offset + v.offset as u64, bytes })
    }

    pub(super) fn sweep(&mut self, gpu: &Gpu) {
        [&mut self.device, &mut self.upload, &mut self.readback].into_iter().for_each(|p| p.sweep(gpu));
    }

    pub(super) fn clear(&mut self, gpu: &Gpu) {
        [&mut self.device, &mut self.upload, &mut self.readback].into_iter().for_each(|p| p.clear(gpu));
    }
}
