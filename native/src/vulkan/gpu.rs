//! An opened device: its queue, its submissions and their progress, and its errors.
//!
//! Submissions are numbered; a timeline semaphore holds the number of the last one that is done.

use super::find::{Found, Instance};
use super::{error, lost};
use ash::vk;
use gradloom_core::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The Vulkan handles that all other objects are made with.
pub(super) struct Gpu {
    pub(super) device: ash::Device,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    queue: vk::Queue,
    pub(super) family: u32,
    timeline: vk::Semaphore,
    submitted: AtomicU64,
    done: AtomicU64,
    /// The reason why the device is lost, if it is.
    lost: OnceLock<String>,
    _instance: Arc<Instance>,
}

impl Gpu {
    pub(super) fn open(found: &Found) -> Result<Gpu> {
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(found.family).queue_priorities(&priorities)];
        let mut old = vk::PhysicalDeviceVulkan11Features::default()
            .storage_buffer16_bit_access(found.can.f16)
            .uniform_and_storage_buffer16_bit_access(found.can.f16);
        let mut two =
            vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true).shader_float16(found.can.f16);
        let mut three = vk::PhysicalDeviceVulkan13Features::default().shader_integer_dot_product(found.can.dots);
        let mut what =
            vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut old).push_next(&mut two);
        if found.can.dots {
            what = what.push_next(&mut three);
        }
        let raw = &found.instance.raw;
        // SAFETY: the device offers this queue and these features
        let device = unsafe { raw.create_device(found.physical, &what, None) };
        let device = device.map_err(|e| error(format!("{} does not open: {e}", found.description)))?;
        // SAFETY: the queue was asked for
        let queue = unsafe { device.get_device_queue(found.family, 0) };
        // SAFETY: the device is one of this instance's
        let memory = unsafe { raw.get_physical_device_memory_properties(found.physical) };
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let what = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores were asked for
        let timeline = unsafe { device.create_semaphore(&what, None) };
        let gpu = Gpu {
            device,
            memory,
            queue,
            family: found.family,
            timeline: *timeline.as_ref().unwrap_or(&vk::Semaphore::null()),
            submitted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            lost: OnceLock::new(),
            _instance: found.instance.clone(),
        };
        timeline.map_err(|e| gpu.failed("a semaphore", e))?;
        Ok(gpu)
    }

    /// An error if the device is lost; it stays lost for good.
    pub(super) fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |why| Err(lost(why)))
    }

    /// Converts the error of a driver call; `what` names what was being made or done.
    pub(super) fn failed(&self, what: &str, e: vk::Result) -> Error {
        match e {
            vk::Result::ERROR_DEVICE_LOST => {
                self.lose(format!("{what}: {e}"));
                self.alive().err().unwrap_or_else(|| error("it is lost"))
            }
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
                Error::OutOfMemory { device: "vulkan".into(), bytes: 0 }
            }
            e => error(format!("{what}: {e}")),
        }
    }

    /// Marks the device as lost: every later call fails.
    pub(super) fn lose(&self, why: String) {
        let _ = self.lost.set(why);
    }

    /// Submits command buffers in this order; returns the submission's number.
    pub(super) fn submit(&self, buffers: &[vk::CommandBuffer]) -> Result<u64> {
        self.alive()?;
        let number = [self.submitted() + 1];
        let signals = [self.timeline];
        let mut numbers = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&number);
        let work =
            [vk::SubmitInfo::default().command_buffers(buffers).signal_semaphores(&signals).push_next(&mut numbers)];
        // SAFETY: the buffers are recorded, none of them is in flight, and only the thread that has the device comes here
        let sent = unsafe { self.device.queue_submit(self.queue, &work, vk::Fence::null()) };
        sent.map_err(|e| self.failed("a submission", e))?;
        self.submitted.store(number[0], Ordering::Relaxed);
        Ok(number[0])
    }

    /// The number of the last submission.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Is the submission of this number done?
    pub(super) fn reached(&self, number: u64) -> bool {
        if self.done.load(Ordering::Relaxed) < number && self.alive().is_ok() {
            // SAFETY: the semaphore is one of the device's
            match unsafe { self.device.get_semaphore_counter_value(self.timeline) } {
                Ok(done) => self.done.store(done, Ordering::Relaxed),
                Err(e) => drop(self.failed("its clock", e)),
            }
        }
        // A lost device will do nothing more, so nothing is left to wait for
        self.done.load(Ordering::Relaxed) >= number || self.alive().is_err()
    }

    /// Waits for the submission of this number.
    pub(super) fn wait(&self, number: u64) -> Result<()> {
        if !self.reached(number) {
            let (semaphores, numbers) = ([self.timeline], [number]);
            let what = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&numbers);
            // SAFETY: the semaphore is one of the device's
            let waited = unsafe { self.device.wait_semaphores(&what, u64::MAX) };
            waited.map_err(|e| self.failed("waiting", e))?;
            self.done.fetch_max(number, Ordering::Relaxed);
        }
        self.alive()
    }

    /// The index of a memory type that has all properties of `must`, and as many of `wish` as possible, where earlier
    /// wishes count more.
    pub(super) fn memory_type(
        &self,
        allowed: u32,
        must: vk::MemoryPropertyFlags,
        wish: &[(vk::MemoryPropertyFlags, bool)],
    ) -> Result<u32> {
        let types = &self.memory.memory_types[..self.memory.memory_type_count as usize];
        let score = |flags: vk::MemoryPropertyFlags| {
            wish.iter().rev().enumerate().map(|(i, w)| usize::from(flags.contains(w.0) == w.1) << i).sum::<usize>()
        };
        let fits = |&i: &usize| allowed >> i & 1 == 1 && types[i].property_flags.contains(must);
        // Of equal types the first one, since drivers list the preferred type first
        let best = (0..types.len()).filter(fits).rev().max_by_key(|&i| score(types[i].property_flags));
        best.map(|i| i as u32).ok_or_else(|| error(format!("no memory with the properties {:#x}", must.as_raw())))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: what was made of the device is gone, and nothing is in flight once it is idle
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_semaphore(self.timeline, None);
            self.device.destroy_device(None);
        }
    }
}
