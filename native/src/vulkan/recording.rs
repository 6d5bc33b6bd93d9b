//! Submissions as recorded command buffers, which are kept: running a plan again is one driver call.
//!
//! A recording is looked up by its steps and the memory ranges of their buffers, not by buffer ids: the results of a
//! run take the memory of those of the run before. Launch scalars are in memory of the recording and are written before
//! each run. A recording whose last run is not finished is not submitted again; another one is made of the same steps.

use super::commands::{self, Commands, barrier};
use super::gpu::Gpu;
use super::kernels::Kernels;
use super::memory::MemoryRange;
use super::places::Places;
use crate::hazards::{Hazards, Region};
use ash::vk;
use gradloom_core::Result;
use gradloom_core::device::{KernelId, Step, View};
use std::collections::HashMap;

/// The most steps of all kept recordings together.
const MOST_STEPS: usize = 32_768;
/// The most recordings of the same steps.
const MAX_COPIES: usize = 3;

/// Recorded steps.
struct Recording {
    commands: vk::CommandBuffer,
    sets: vk::DescriptorPool,
    scalars: Option<MemoryRange>,
    /// Temporary memory for copies whose source and destination overlap.
    temporaries: Vec<MemoryRange>,
    kernels: Vec<KernelId>,
    blocks: Vec<u32>,
    steps: usize,
    /// The number of its last submission.
    number: u64,
}

/// The recordings of a device.
#[derive(Default)]
pub(super) struct Recordings {
    kept: HashMap<Vec<u64>, Vec<Recording>>,
    steps: usize,
    pending_release: Vec<Recording>,
}

/// The device's parts that recording needs.
pub(super) struct RecordContext<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) kernels: &'a mut Kernels,
    pub(super) places: &'a mut Places,
    pub(super) commands: &'a mut Commands,
    pub(super) uniform_alignment: u64,
}

impl Recordings {
    /// The command buffer for these steps; the caller submits it with the given number.
    pub(super) fn prepare(&mut self, cx: &mut RecordContext, steps: &[Step], number: u64) -> Result<vk::CommandBuffer> {
        let key = key(cx.places, steps)?;
        let alike = self.kept.entry(key).or_default();
        let free = alike.iter().position(|r| cx.gpu.reached(r.number));
        let at = match free {
            Some(at) => at,
            None if alike.len() < MAX_COPIES => {
                let made = record(cx, steps)?;
                self.steps += made.steps;
                alike.push(made);
                alike.len() - 1
            }
            None => {
                let oldest = (0..alike.len()).min_by_key(|&i| alike[i].number).unwrap_or(0);
                cx.gpu.wait(alike[oldest].number)?;
                oldest
            }
        };
        let recording = &mut alike[at];
        recording.number = number;
        if let Some(place) = recording.scalars {
            let (bytes, ..) = scalars(steps, cx.uniform_alignment);
            cx.places.upload.write(&place, 0, &bytes);
        }
        let commands = recording.commands;
        self.bound(number);
        Ok(commands)
    }

    /// Forgets the least recently used recordings while there are too many steps.
    fn bound(&mut self, number: u64) {
        while self.steps > MOST_STEPS {
            let last = |r: &Vec<Recording>| r.iter().map(|r| r.number).max().unwrap_or(0);
            let oldest = self.kept.iter().min_by_key(|(_, r)| last(r)).filter(|(_, r)| last(r) < number);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.forget(|k, _| *k == key);
        }
    }

    /// Forgets the recordings that use a kernel.
    pub(super) fn forget_kernel(&mut self, kernel: KernelId) {
        self.forget(|_, r| r.kernels.binary_search(&kernel).is_ok());
    }

    /// Forgets the recordings that use a block of memory.
    pub(super) fn forget_block(&mut self, block: u32) {
        self.forget(|_, r| r.blocks.binary_search(&block).is_ok());
    }

    fn forget(&mut self, which: impl Fn(&Vec<u64>, &Recording) -> bool) {
        for (key, alike) in &mut self.kept {
            let mut i = 0;
            while i < alike.len() {
                if which(key, &alike[i]) {
                    self.steps -= alike[i].steps;
                    self.pending_release.push(alike.swap_remove(i));
                } else {
                    i += 1;
                }
            }
        }
        self.kept.retain(|_, alike| !alike.is_empty());
    }

    /// Frees forgotten recordings that are done.
    pub(super) fn sweep(&mut self, gpu: &Gpu, places: &mut Places, commands: &mut Commands) {
        let mut i = 0;
        while i < self.pending_release.len() {
            if gpu.reached(self.pending_release[i].number) {
                let r = self.pending_release.swap_remove(i);
                commands.give(r.number, r.commands);
                release(gpu, places, &r);
            } else {
                i += 1;
            }
        }
    }

    /// Frees everything; the device must be idle.
    pub(super) fn clear(&mut self, gpu: &Gpu, places: &mut Places) {
        let all = self.kept.drain().flat_map(|k| k.1).chain(self.pending_release.drain(..));
        all.for_each(|r| release(gpu, places, &r));
    }
}

/// Frees everything of a recording but its command buffer.
fn release(gpu: &Gpu, places: &mut Places, r: &Recording) {
    // SAFETY: no submission of the recording is in flight
    unsafe { gpu.device.destroy_descriptor_pool(r.sets, None) };
    r.scalars.iter().for_each(|p| _ = places.upload.give(*p, gpu.submitted()));
    r.temporaries.iter().for_each(|p| _ = places.device.give(*p, gpu.submitted()));
}

/// The lookup key of steps: kernels, grids and the memory ranges of buffers, but not the values of scalars.
fn key(places: &Places, steps: &[Step]) -> Result<Vec<u64>> {
    let mut key = Vec::with_capacity(16 * steps.len());
    let put = |key: &mut Vec<u64>, v: &View| -> Result<()> {
        let p = places.place(v)?;
        key.extend([u64::from(p.block), p.offset, v.bytes as u64]);
        Ok(())
    };
    for step in steps {
        match step {
            Step::Launch { kernel, args, grid, vars } => {
                key.extend([u64::from(kernel.0), args.len() as u64, vars.len() as u64]);
                key.extend(grid.map(u64::from));
                args.iter().try_for_each(|v| put(&mut key, v))?;
            }
            Step::Copy { src, dst } => {
                key.push(u64::MAX);
                put(&mut key, src)?;
                put(&mut key, dst)?;
            }
        }
    }
    Ok(key)
}

/// The scalars of all launches in the layout of a recording's memory, the offset of each step's scalars, and the
/// largest number of bytes that a launch reads.
fn scalars(steps: &[Step], alignment: u64) -> (Vec<u8>, Vec<u32>, u64) {
    let (mut bytes, mut offsets, mut longest) = (Vec::<u8>::new(), Vec::new(), 0);
    for step in steps {
        let vars: &[u32] = if let Step::Launch { vars, .. } = step { vars } else { &[] };
        offsets.push(bytes.len() as u32);
        if !vars.is_empty() {
            longest = longest.max(vars.len().div_ceil(4) as u64 * 16);
            bytes.extend(vars.iter().flat_map(|v| v.to_le_bytes()));
            bytes.resize(bytes.len().next_multiple_of(alignment as usize), 0);
        }
    }
    (bytes, offsets, longest)
}

/// Records steps that were checked before.
fn record(cx: &mut RecordContext, steps: &[Step]) -> Result<Recording> {
    let mut r = Recording {
        commands: vk::CommandBuffer::null(),
        sets: vk::DescriptorPool::null(),
        scalars: None,
        temporaries: Vec::new(),
        kernels: Vec::new(),
        blocks: Vec::new(),
        steps: steps.len(),
        number: 0,
    };
    if let Err(e) = fill(cx, steps, &mut r) {
        if r.commands != vk::CommandBuffer::null() {
            cx.commands.give(0, r.commands);
        }
        release(cx.gpu, cx.places, &r);
        return Err(e);
    }
    r.kernels.sort_unstable();
    r.kernels.dedup();
    r.blocks.sort_unstable();
    r.blocks.dedup();
    Ok(r)
}

fn fill(cx: &mut RecordContext, steps: &[Step], r: &mut Recording) -> Result<()> {
    let (bytes, offsets, longest) = scalars(steps, cx.uniform_alignment);
    if longest > 0 {
        r.scalars = Some(cx.places.upload.take(cx.gpu, bytes.len() as u64 + longest)?);
    }
    let sets = Sets::make(cx, steps, r, longest)?;
    let buffer = cx.commands.begin(cx.gpu)?;
    r.commands = buffer;
    let (mut hazards, mut pipeline) = (Hazards::default(), vk::Pipeline::null());
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Copy { src, dst } => copy(cx, buffer, &mut hazards, src, dst, r)?,
            Step::Launch { kernel, args, grid, vars } if !grid.contains(&0) => {
                let k = cx.kernels.get(*kernel)?;
                let uses = args.iter().zip(&k.written).map(|(v, &w)| Ok((Region::from(cx.places.place(v)?), w)));
                if hazards.wait_before(&uses.collect::<Result<Vec<_>>>()?) {
                    barrier(cx.gpu, buffer);
                }
                let dynamic = [offsets[i]];
                let (chosen, dynamic) = match vars.is_empty() {
                    true => (vec![sets.of_step[i]], &dynamic[..0]),
                    false => (vec![sets.of_step[i], sets.scalars], &dynamic[..]),
                };
                let at = vk::PipelineBindPoint::COMPUTE;
                // SAFETY: pipeline, layout and sets are the device's and fit each other, and the grid is within its limits
                unsafe {
                    if pipeline != k.pipeline {
                        cx.gpu.device.cmd_bind_pipeline(buffer, at, k.pipeline);
                    }
                    cx.gpu.device.cmd_bind_descriptor_sets(buffer, at, k.layout, 0, &chosen, dynamic);
                    cx.gpu.device.cmd_dispatch(buffer, grid[0], grid[1], grid[2]);
                }
                pipeline = k.pipeline;
                r.kernels.push(*kernel);
            }
            Step::Launch { .. } => {}
        }
    }
    cx.commands.end(cx.gpu, buffer)
}

fn copy(
    cx: &mut RecordContext,
    buffer: vk::CommandBuffer,
    hazards: &mut Hazards,
    src: &View,
    dst: &View,
    r: &mut Recording,
) -> Result<()> {
    let bytes = src.bytes.min(dst.bytes) as u64;
    if bytes == 0 || src == dst {
        return Ok(());
    }
    let part = |p: MemoryRange| MemoryRange { bytes, ..p };
    let (from, to) = (part(cx.places.place(src)?), part(cx.places.place(dst)?));
    r.blocks.extend([from.block, to.block]);
    let mut one = |places: &Places, from: MemoryRange, to: MemoryRange| {
        if hazards.wait_before(&[(from.into(), false), (to.into(), true)]) {
            barrier(cx.gpu, buffer);
        }
        let at = |p: MemoryRange| (places.device.buffer(&p), p.offset);
        commands::copy(cx.gpu, buffer, at(from), at(to), bytes);
    };
    let overlap = from.block == to.block && from.offset < to.offset + bytes && to.offset < from.offset + bytes;
    if !overlap {
        one(cx.places, from, to);
        return Ok(());
    }
    let temporary = cx.places.device.take(cx.gpu, bytes)?;
    r.temporaries.push(temporary);
    r.blocks.push(temporary.block);
    one(cx.places, from, part(temporary));
    one(cx.places, part(temporary), to);
    Ok(())
}

/// The descriptor sets of a recording.
struct Sets {
    of_step: Vec<vk::DescriptorSet>,
    scalars: vk::DescriptorSet,
}

impl Sets {
    /// Makes a set for each distinct list of buffers, and one for scalars, of which each launch reads up to
    /// `longest` bytes.
    fn make(cx: &mut RecordContext, steps: &[Step], r: &mut Recording, longest: u64) -> Result<Sets> {
        let mut distinct: HashMap<&[View], usize> = HashMap::new();
        let (mut layouts, mut infos, mut of_step) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            let Step::Launch { args, .. } = step else {
                of_step.push(0);
                continue;
            };
            let next = distinct.len();
            let at = *distinct.entry(args.as_slice()).or_insert(next);
            of_step.push(at);
            if at < next {
                continue;
            }
            layouts.push(cx.kernels.layout(cx.gpu, args.len())?);
            let mut of_set = Vec::with_capacity(args.len());
            for v in args {
                let p = cx.places.place(v)?;
                r.blocks.push(p.block);
                let info = vk::DescriptorBufferInfo::default().buffer(cx.places.device.buffer(&p)).offset(p.offset);
                of_set.push(info.range(p.bytes));
            }
            infos.push(of_set);
        }
        let none = vk::DescriptorSet::null();
        if layouts.is_empty() {
            return Ok(Sets { of_step: vec![none; steps.len()], scalars: none });
        }
        if longest > 0 {
            layouts.push(cx.kernels.scalars);
        }
        let d = &cx.gpu.device;
        let buffers = infos.iter().map(|i| i.len() as u32).sum::<u32>().max(1);
        let size = |ty, descriptor_count| vk::DescriptorPoolSize { ty, descriptor_count };
        let sizes =
            [size(vk::DescriptorType::STORAGE_BUFFER, buffers), size(vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC, 1)];
        let what = vk::DescriptorPoolCreateInfo::default().max_sets(layouts.len() as u32).pool_sizes(&sizes);
        // SAFETY: the description lives until the call returns
        r.sets = unsafe { d.create_descriptor_pool(&what, None) }.map_err(|e| cx.gpu.failed("a pool of sets", e))?;
        let what = vk::DescriptorSetAllocateInfo::default().descriptor_pool(r.sets).set_layouts(&layouts);
        // SAFETY: the pool has room for these
        let made = unsafe { d.allocate_descriptor_sets(&what) }.map_err(|e| cx.gpu.failed("sets", e))?;
        let scalars = if longest > 0 { made[made.len() - 1] } else { none };
        let of_scalars: Vec<_> = r
            .scalars
            .iter()
            .map(|p| vk::DescriptorBufferInfo { buffer: cx.places.upload.buffer(p), offset: p.offset, range: longest })
            .collect();
        let write =
            |set, kind, info| vk::WriteDescriptorSet::default().dst_set(set).descriptor_type(kind).buffer_info(info);
        let mut writes: Vec<_> = infos
            .iter()
            .zip(&made)
            .filter(|(i, _)| !i.is_empty())
            .map(|(i, &set)| write(set, vk::DescriptorType::STORAGE_BUFFER, i))
            .collect();
        if longest > 0 {
            writes.push(write(scalars, vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC, &of_scalars));
        }
        // SAFETY: the sets are new, and buffers and ranges were checked
        unsafe { d.update_descriptor_sets(&writes, &[]) };
        Ok(Sets { of_step: of_step.into_iter().map(|i| made[i]).collect(), scalars })
    }
}
