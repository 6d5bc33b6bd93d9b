//! Command buffers, which are reused when their submission is done, and the barriers in them.

use super::gpu::Gpu;
use ash::vk;
use gradloom_core::Result;
use std::collections::VecDeque;

/// The command buffers of a device.
pub(super) struct Commands {
    pool: vk::CommandPool,
    /// Command buffers that may be reused when the submission of this number is done, in ascending order.
    spent: VecDeque<(u64, vk::CommandBuffer)>,
}

impl Commands {
    pub(super) fn new(gpu: &Gpu) -> Result<Commands> {
        let what = vk::CommandPoolCreateInfo::default()
            .queue_family_index(gpu.family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the family is the one that the device was opened with
        let pool = unsafe { gpu.device.create_command_pool(&what, None) };
        Ok(Commands { pool: pool.map_err(|e| gpu.failed("a pool of commands", e))?, spent: VecDeque::new() })
    }

    /// Begins a command buffer with a barrier after everything before it.
    pub(super) fn begin(&mut self, gpu: &Gpu) -> Result<vk::CommandBuffer> {
        let old = self.spent.front().is_some_and(|s| gpu.reached(s.0));
        let buffer = match if old { self.spent.pop_front() } else { None } {
            Some((_, buffer)) => buffer,
            None => {
                let what = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
                // SAFETY: the pool is the device's, and only the thread that has the device comes here
                let made = unsafe { gpu.device.allocate_command_buffers(&what) };
                made.map_err(|e| gpu.failed("commands", e))?[0]
            }
        };
        // SAFETY: the buffer is new, or its last submission is done; beginning resets it
        let begun = unsafe { gpu.device.begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default()) };
        begun.map_err(|e| gpu.failed("commands", e))?;
        barrier(gpu, buffer);
        Ok(buffer)
    }

    /// Ends a command buffer with a barrier that makes its writes visible to the host.
    pub(super) fn end(&self, gpu: &Gpu, buffer: vk::CommandBuffer) -> Result<()> {
        let all = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE);
        let flags = vk::DependencyFlags::empty();
        // SAFETY: the buffer is being recorded
        let ended = unsafe {
            gpu.device.cmd_pipeline_barrier(buffer, all, vk::PipelineStageFlags::HOST, flags, &[memory], &[], &[]);
            gpu.device.end_command_buffer(buffer)
        };
        ended.map_err(|e| gpu.failed("commands", e))
    }

    /// Lets the buffer be reused when the submission of this number is done.
    pub(super) fn give(&mut self, number: u64, buffer: vk::CommandBuffer) {
        let at = self.spent.partition_point(|s| s.0 <= number);
        self.spent.insert(at, (number, buffer));
    }

    /// Frees everything; the device must be idle.
    pub(super) fn clear(&mut self, gpu: &Gpu) {
        self.spent.clear();
        // SAFETY: none of its buffers is in flight
        unsafe { gpu.device.destroy_command_pool(self.pool, None) }
    }
}

/// Records a barrier: later commands wait for all earlier ones and see their writes.
pub(super) fn barrier(gpu: &Gpu, buffer: vk::CommandBuffer) {
    use vk::AccessFlags as A;
    let all = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
    let memory = vk::MemoryBarrier::default()
        .src_access_mask(A::SHADER_WRITE | A::TRANSFER_WRITE)
        .dst_access_mask(A::SHADER_READ | A::SHADER_WRITE | A::UNIFORM_READ | A::TRANSFER_READ | A::TRANSFER_WRITE);
    // SAFETY: the buffer is being recorded
    unsafe {
        gpu.device.cmd_pipeline_barrier(buffer, all, all, vk::DependencyFlags::empty(), &[memory], &[], &[]);
    }
}

/// Records a copy between ranges that do not overlap.
pub(super) fn copy(
    gpu: &Gpu,
    buffer: vk::CommandBuffer,
    (from, at): (vk::Buffer, u64),
    (to, there): (vk::Buffer, u64),
    bytes: u64,
) {
    let region = [vk::BufferCopy { src_offset: at, dst_offset: there, size: bytes }];
    // SAFETY: the caller has checked both ranges, and the buffer is being recorded
    unsafe { gpu.device.cmd_copy_buffer(buffer, from, to, &region) }
}
