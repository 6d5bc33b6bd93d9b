//! GPUs through Vulkan 1.2; kernels are the WGSL renderer's programs, translated to SPIR-V. The loader and its drivers
//! are looked for at run time; on a machine without them opening the device is an error that says so.
//!
//! A submission is one driver call with a command buffer that was recorded once and is reused for equal steps
//! ([`recording`]), preceded by another command buffer if there are uploads. Allocations are places in blocks of memory
//! ([`memory`]). A device that shares the processor's memory is written and read without copies while it is idle. Only
//! `poll` and `sync` wait.

mod commands;
mod find;
mod gpu;
mod kernels;
mod memory;
mod places;
mod recording;
mod spirv;
mod timing;

pub use find::{has_hardware, list};

use crate::canary;
use crate::hazards::{Hazards, Region};
use crate::{steps, upload};
use find::{DeviceCapabilities, Found};
use gpu::Gpu;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View, Write};
use gradloom_core::render::{Source, wgsl};
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use kernels::Kernels;
use memory::MemoryRange;
use places::Places;
use recording::{RecordContext, Recordings};
use std::collections::{HashMap, VecDeque};
use timing::{Clock, Times};

/// The largest part of an upload, in bytes, that is copied through one piece of host memory.
const PART: usize = 8 << 20;
/// The most bytes of uploads that may be in flight.
const MOST_UNDER_WAY: u64 = 64 << 20;

/// A device of a Vulkan driver.
pub struct VulkanDevice {
    target: Target,
    can: DeviceCapabilities,
    description: String,
    identity: String,
    notes: Vec<String>,
    places: Places,
    kernels: Kernels,
    commands: commands::Commands,
    recordings: Recordings,
    clock: Option<Clock>,
    open: Option<OpenCommands>,
    reads: HashMap<Ticket, Reading>,
    /// The host memory of uploads in flight, each with the number of its submission.
    uploads: VecDeque<(u64, MemoryRange)>,
    next: u32,
    gpu: Gpu,
}

/// A command buffer that is being recorded, to be submitted before the next submission.
struct OpenCommands {
    commands: ash::vk::CommandBuffer,
    hazards: Hazards,
}

/// A readback in flight.
enum Reading {
    Bytes(Vec<u8>),
    /// Can be read from device memory when the submission of this number is done.
    There(MemoryRange, usize, u64),
    /// Is copied to host memory by the submission of this number.
    Copied(MemoryRange, usize, u64),
    Times(Times, u64),
}

impl VulkanDevice {
    /// Opens the best device: a discrete GPU if there is one, else an integrated one, else a software driver.
    ///
    /// [`Error::Device`] if there is no driver or no device with Vulkan 1.2, or if the device's arithmetic is wrong.
    pub fn new() -> Result<VulkanDevice> {
        VulkanDevice::with_index(0)
    }

    /// Opens the device at this index of [`list`].
    ///
    /// # Errors
    /// Those of [`VulkanDevice::new`].
    pub fn with_index(index: usize) -> Result<VulkanDevice> {
        let mut found = find::find()?;
        if index >= found.len() {
            return Err(error(format!("there is no device {index}: drivers offer {}", found.len())));
        }
        VulkanDevice::open(found.swap_remove(index))
    }

    /// Opens the device that `wanted` names: its index in [`list`] as a number, else the first one of this vendor
    /// (`nvidia`, `amd`, `intel`, `apple`) or with this as a part of its description, in upper or lower case.
    ///
    /// # Errors
    /// Those of [`VulkanDevice::new`]; [`Error::Device`] with a list of the devices if it names none of them.
    pub fn named(wanted: &str) -> Result<VulkanDevice> {
        let mut found = find::find()?;
        let all: Vec<(&str, u32)> = found.iter().map(|f| (f.description.as_str(), f.vendor)).collect();
        let index = find::index_of(wanted, &all)?;
        VulkanDevice::open(found.swap_remove(index))
    }

    fn open(found: Found) -> Result<VulkanDevice> {
        let gpu = Gpu::open(&found)?;
        let mut device = VulkanDevice {
            places: Places::new(&gpu, &found.can)?,
            kernels: Kernels::new(&gpu, &found.identity)?,
            commands: commands::Commands::new(&gpu)?,
            recordings: Recordings::default(),
            clock: found.can.clock.map(Clock::new),
            open: None,
            reads: HashMap::new(),
            uploads: VecDeque::new(),
            next: 0,
            target: found.target,
            can: found.can,
            description: found.description,
            identity: found.identity,
            notes: Vec::new(),
            gpu,
        };
        if !device.target.machine.software {
            device.claim();
        }
        device.trust()?;
        Ok(device)
    }

    /// Asks the driver test questions, and removes from the target the features that it gets wrong.
    fn trust(&mut self) -> Result<()> {
        let driver = self.identity.clone();
        (self.target, self.notes) = canary::examine_once(self, &driver)?;
        Ok(())
    }

    /// Makes kernels as for a hardware GPU, so that they can be tested on a software driver; only the limit of loop
    /// iterations stays the driver's. If the driver gets anything of this wrong, the target stays as it was.
    pub fn as_hardware(&mut self) {
        let plain = self.target.clone();
        self.claim();
        if self.trust().is_err() {
            self.target = plain;
        }
    }

    fn claim(&mut self) {
        // The shader compiler provides them for every driver; a driver without the instruction computes
        // them byte by byte
        self.target = self.target.clone().as_hardware().with_words();
        if self.can.subgroup > 0 {
            // A driver that cannot run the probe is treated as one without subgroups
            let found = canary::subgroups(self, wgsl::subgroup_probe()).unwrap_or_default();
            self.target.caps.subgroup = wgsl::subgroup(&found, self.can.subgroup);
        }
        if self.can.f16 {
            self.target = self.target.clone().with_f16();
        }
    }

    /// The names of the device and its driver, for users.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The device's memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.can.heap_bytes
    }

    /// Marks the device as lost, as if the driver had reset it, to test what follows a loss.
    #[doc(hidden)]
    pub fn destroy(&self) {
        self.gpu.lose("destroyed".into());
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Is all work done that was given to the device?
    fn is_idle(&self) -> bool {
        self.open.is_none() && self.gpu.reached(self.gpu.submitted())
    }

    /// May the host write directly to the device's memory at this moment?
    fn is_writable(&self) -> bool {
        self.places.device.is_mapped() && self.is_idle()
    }

    /// The number of the submission that commands recorded at this moment will belong to.
    fn next_submission(&self) -> u64 {
        self.gpu.submitted() + u64::from(self.open.is_some())
    }

    /// The open command buffer, after a barrier if these uses require one.
    fn opened(&mut self, uses: &[(Region, bool)]) -> Result<ash::vk::CommandBuffer> {
        if self.open.is_none() {
            self.open = Some(OpenCommands { commands: self.commands.begin(&self.gpu)?, hazards: Hazards::default() });
        }
        let open = self.open.as_mut().ok_or_else(|| error("no commands"))?;
        if open.hazards.wait_before(uses) {
            commands::barrier(&self.gpu, open.commands);
        }
        Ok(open.commands)
    }

    /// Submits the open command buffer, and then the given ones.
    fn send(&mut self, then: &[ash::vk::CommandBuffer]) -> Result<()> {
        let mut all = Vec::with_capacity(1 + then.len());
        if let Some(open) = self.open.take() {
            self.commands.end(&self.gpu, open.commands)?;
            self.commands.give(self.gpu.submitted() + 1, open.commands);
            all.push(open.commands);
        }
        all.extend_from_slice(then);
        if !all.is_empty() {
            self.gpu.submit(&all)?;
        }
        Ok(())
    }

    /// Completes readbacks that were to read device memory in place, before that memory changes.
    fn settle(&mut self) -> Result<()> {
        let waiting = self.reads.iter().filter_map(|(&t, r)| match r {
            Reading::There(place, bytes, number) => Some((t, *place, *bytes, *number)),
            _ => None,
        });
        for (ticket, place, bytes, number) in waiting.collect::<Vec<_>>() {
            let now = match self.gpu.reached(number) {
                true => Reading::Bytes(self.places.device.read(&place, 0, bytes)),
                false => self.copy_out(place, bytes)?,
            };
            self.reads.insert(ticket, now);
        }
        Ok(())
    }

    /// Records a copy to host memory in the open command buffer.
    fn copy_out(&mut self, place: MemoryRange, bytes: usize) -> Result<Reading> {
        let there = self.places.readback.take(&self.gpu, bytes as u64)?;
        let commands = self.opened(&[(place.into(), false), (there.into(), true)])?;
        let from = (self.places.device.buffer(&place), place.offset);
        commands::copy(&self.gpu, commands, from, (self.places.readback.buffer(&there), there.offset), bytes as u64);
        Ok(Reading::Copied(there, bytes, self.next_submission()))
    }

    /// Frees the host memory of uploads that are done.
    fn sweep(&mut self) {
        while let Some(&(number, place)) = self.uploads.front()
            && number <= self.gpu.submitted()
            && self.gpu.reached(number)
        {
            self.uploads.pop_front();
            self.places.upload.give(place, number);
        }
        self.recordings.sweep(&self.gpu, &mut self.places, &mut self.commands);
        self.kernels.sweep(&self.gpu);
        self.places.sweep(&self.gpu);
    }

    /// Uploads a part through host memory.
    fn upload_part(&mut self, to: MemoryRange, data: &[u8]) -> Result<()> {
        self.sweep();
        let under_way: u64 = self.uploads.iter().map(|u| u.1.bytes).sum();
        if under_way > MOST_UNDER_WAY {
            self.send(&[])?;
            self.gpu.wait(self.uploads[self.uploads.len() / 2].0)?;
            self.sweep();
        }
        let from = self.places.upload.take(&self.gpu, data.len() as u64)?;
        self.places.upload.write(&from, 0, data);
        let commands = self.opened(&[(to.into(), true)])?;
        let at = (self.places.upload.buffer(&from), from.offset);
        commands::copy(&self.gpu, commands, at, (self.places.device.buffer(&to), to.offset), data.len() as u64);
        self.uploads.push_back((self.next_submission(), from));
        Ok(())
    }

    /// Checks everything that can be wrong with a step.
    fn check(&self, step: &Step) -> Result<()> {
        let signature = |id| self.kernels.get(id).map(|k| &k.signature);
        steps::check(step, &self.target, signature, |v| self.places.place(v).map(|_| ()))
    }

    /// The command buffer for these steps. All steps are checked first, so that an invalid one leaves
    /// nothing half done.
    fn prepare(&mut self, steps: &[Step]) -> Result<ash::vk::CommandBuffer> {
        self.gpu.alive()?;
        steps.iter().try_for_each(|step| self.check(step))?;
        self.settle()?;
        self.sweep();
        let mut context = RecordContext {
            gpu: &self.gpu,
            kernels: &mut self.kernels,
            places: &mut self.places,
            commands: &mut self.commands,
            uniform_alignment: self.can.uniform_alignment,
        };
        self.recordings.prepare(&mut context, steps, self.gpu.submitted() + 1)
    }
}

impl Device for VulkanDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        self.gpu.alive()?;
        let refused = || Error::OutOfMemory { device: "vulkan".into(), bytes: bytes as u64 };
        if bytes > self.target.limits.max_buffer_bytes {
            return Err(refused());
        }
        self.settle()?;
        let (id, place) = self.places.alloc(&self.gpu, bytes)?;
        if self.is_writable() {
            self.places.device.zero(&place);
            return Ok(id);
        }
        let commands = self.opened(&[(place.into(), true)])?;
        let buffer = self.places.device.buffer(&place);
        // SAFETY: the place is inside the buffer, and begins and ends at words
        unsafe { self.gpu.device.cmd_fill_buffer(commands, buffer, place.offset, place.bytes, 0) };
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        // A failure will show in the next call that returns a result
        let _ = self.settle();
        let next_submission = self.next_submission();
        if let Some(block) = self.places.free(buf, next_submission) {
            self.recordings.forget_block(block);
        }
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.gpu.alive()?;
        let to = self.places.place(&View { buf, offset, bytes: data.len() })?;
        self.settle()?;
        if self.is_writable() {
            self.places.device.write(&to, 0, data);
            return Ok(());
        }
        for (i, part) in data.chunks(PART).enumerate() {
            self.upload_part(
                MemoryRange { offset: to.offset + (i * PART) as u64, bytes: part.len() as u64, ..to },
                part,
            )?;
        }
        Ok(())
    }

    fn upload_made(&mut self, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
        upload::upload(self, buf, len, step, write)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.gpu.alive()?;
        self.kernels.compile(&self.gpu, &self.can, sources)
    }

    fn release(&mut self, kernel: KernelId) {
        self.recordings.forget_kernel(kernel);
        self.kernels.release(&self.gpu, kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        let commands = self.prepare(steps)?;
        self.send(&[commands])
    }

    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        if self.clock.is_none() {
            return self.submit(steps).map(|()| None);
        }
        // Work that was recorded before must not be timed, so it is submitted first
        self.gpu.alive()?;
        self.settle()?;
        self.send(&[])?;
        let commands = self.prepare(steps)?;
        let Some(clock) = &mut self.clock else { return Ok(None) };
        let (times, before, after) = clock.begin(&self.gpu, &mut self.commands)?;
        self.send(&[before, commands, after])?;
        let number = self.gpu.submitted();
        [before, after].into_iter().for_each(|c| self.commands.give(number, c));
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, Reading::Times(times, number));
        Ok(Some(ticket))
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.gpu.alive()?;
        let place = self.places.place(&view)?;
        let reading = if view.bytes == 0 {
            Reading::Bytes(Vec::new())
        } else if self.places.device.is_mapped() {
            self.send(&[])?;
            Reading::There(place, view.bytes, self.gpu.submitted())
        } else {
            let copied = self.copy_out(place, view.bytes)?;
            self.send(&[])?;
            copied
        };
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, reading);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        let number = match self.reads.get(&ticket) {
            Some(Reading::Bytes(_)) => 0,
            Some(Reading::There(.., n) | Reading::Copied(.., n) | Reading::Times(_, n)) => *n,
            None => return Err(error(format!("{ticket:?} is spent"))),
        };
        if number > self.gpu.submitted() {
            self.send(&[])?;
        }
        if number > 0 {
            self.gpu.wait(number)?;
        }
        match self.reads.remove(&ticket) {
            Some(Reading::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Reading::There(place, bytes, _)) => Ok(Some(self.places.device.read(&place, 0, bytes))),
            Some(Reading::Copied(place, bytes, _)) => {
                let read = self.places.readback.read(&place, 0, bytes);
                self.places.readback.give(place, number);
                Ok(Some(read))
            }
            Some(Reading::Times(times, _)) => match &mut self.clock {
                Some(clock) => clock.end(&self.gpu, times).map(Some),
                None => Ok(None),
            },
            None => Ok(None),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.gpu.alive()?;
        self.send(&[])?;
        self.gpu.wait(self.gpu.submitted())
    }
}

impl Drop for VulkanDevice {
    fn drop(&mut self) {
        // SAFETY: the device is open
        let _ = unsafe { self.gpu.device.device_wait_idle() };
        self.recordings.clear(&self.gpu, &mut self.places);
        if let Some(clock) = &mut self.clock {
            let left = self.reads.drain().filter_map(|r| if let Reading::Times(t, _) = r.1 { Some(t) } else { None });
            clock.clear(&self.gpu, left);
        }
        self.commands.clear(&self.gpu);
        self.kernels.clear(&self.gpu);
        self.places.clear(&self.gpu);
    }
}

pub(super) fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "vulkan".into(), what: what.into() }
}

fn lost(why: &str) -> Error {
    Error::Lost { device: "vulkan".into(), what: why.into() }
}
