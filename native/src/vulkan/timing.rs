//! Timestamps of the device before and after a submission.

use super::commands::Commands;
use super::gpu::Gpu;
use ash::vk;
use gradloom_core::Result;

/// The device's clock, with a pool of queries for its timestamps.
pub(super) struct Clock {
    count_ns: f32,
    mask: u64,
    free: Vec<Times>,
}

/// Queries for two timestamps.
pub(super) struct Times(vk::QueryPool);

impl Clock {
    /// A clock with `count_ns` nanoseconds per tick and `bits` valid bits.
    pub(super) fn new((count_ns, bits): (f32, u32)) -> Clock {
        Clock { count_ns, mask: u64::MAX >> (64 - bits.clamp(1, 64)), free: Vec::new() }
    }

    /// Makes command buffers that record the time before and after what is submitted between them.
    pub(super) fn begin(
        &mut self,
        gpu: &Gpu,
        commands: &mut Commands,
    ) -> Result<(Times, vk::CommandBuffer, vk::CommandBuffer)> {
        let times = match self.free.pop() {
            Some(times) => times,
            None => {
                let what = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(2);
                // SAFETY: the description lives until the call returns
                let made = unsafe { gpu.device.create_query_pool(&what, None) };
                Times(made.map_err(|e| gpu.failed("a clock", e))?)
            }
        };
        let (before, after) = (commands.begin(gpu)?, commands.begin(gpu)?);
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: both buffers are being recorded, and the pool has two times
        unsafe {
            gpu.device.cmd_reset_query_pool(before, times.0, 0, 2);
            gpu.device.cmd_write_timestamp(before, stage, times.0, 0);
            gpu.device.cmd_write_timestamp(after, stage, times.0, 1);
        }
        commands.end(gpu, before)?;
        commands.end(gpu, after)?;
        Ok((times, before, after))
    }

    /// Both timestamps in nanoseconds, in the format of [`gradloom_core::device::Device::submit_timed`];
    /// the submission must be done.
    pub(super) fn end(&mut self, gpu: &Gpu, times: Times) -> Result<Vec<u8>> {
        let mut counts = [0u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the pool has two times of 64 bits
        let got = unsafe { gpu.device.get_query_pool_results(times.0, 0, &mut counts, flags) };
        self.free.push(times);
        got.map_err(|e| gpu.failed("a clock", e))?;
        let [from, to] = counts;
        let ns = |count: u64| (count as f64 * f64::from(self.count_ns)) as u64;
        let from_ns = ns(from & self.mask);
        // A clock with few valid bits may have wrapped around in between
        let until_ns = from_ns + ns(to.wrapping_sub(from) & self.mask);
        Ok([from_ns.to_le_bytes(), until_ns.to_le_bytes()].concat())
    }

    /// Frees everything; the device must be idle.
    pub(super) fn clear(&mut self, gpu: &Gpu, left: impl Iterator<Item = Times>) {
        // SAFETY: no submission that uses them is in flight
        self.free.drain(..).chain(left).for_each(|t| unsafe { gpu.device.destroy_query_pool(t.0, None) });
    }
}
