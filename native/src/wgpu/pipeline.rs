//! Compute pipelines, and the caches of layouts and bind groups.
//!
//! WebGPU does not let one dispatch use a buffer both as read-only and as writable, and kernels that read and write one
//! arena do just that. So every binding is declared writable, which is allowed as long as written ranges do not overlap
//! others.

use super::memory::{Memory, words};
use super::{Gpu, error};
use crate::steps::KernelSignature;
use ::wgpu as gpu;
use gradloom_core::Result;
use gradloom_core::device::{BufId, KernelId, View};
use gradloom_core::render::{Code, Source};
use std::collections::HashMap;

/// The number of bind groups at which the cache is emptied; a plan has a few hundred.
const MAX_GROUPS: usize = 8192;

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) pipeline: gpu::ComputePipeline,
    layout: gpu::BindGroupLayout,
}

/// All kernels of a device.
#[derive(Default)]
pub(super) struct Kernels {
    kernels: HashMap<KernelId, Kernel>,
    groups: HashMap<(KernelId, Vec<View>), gpu::BindGroup>,
    layouts: HashMap<usize, gpu::BindGroupLayout>,
    uniform_layouts: HashMap<usize, gpu::BindGroupLayout>,
    uniform_groups: HashMap<usize, gpu::BindGroup>,
    next: u32,
}

impl Kernels {
    pub(super) fn get(&self, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| error(format!("{id:?} is not compiled")))
    }

    /// Compiles a batch on all cores: drivers take milliseconds to tens of milliseconds for a pipeline.
    pub(super) fn compile(&mut self, gpu: &Gpu, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut jobs = Vec::new();
        for s in sources {
            let Code::Text(text) = &s.code else { return Err(error(format!("{} is not WGSL", s.name))) };
            // naga enables subgroups without the directive
            let text = text.replace("var<storage, read>", "var<storage, read_write>").replace("enable subgroups;", "");
            let layout = self.layout(gpu, s.params.len());
            let uniforms = (!s.vars.is_empty()).then(|| self.uniform_layout(gpu, s.vars.len()));
            jobs.push((s, text, layout, uniforms));
        }
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len()).max(1);
        let made: Vec<Vec<Result<Kernel>>> = std::thread::scope(|scope| {
            let part = jobs.len().div_ceil(threads).max(1);
            let workers: Vec<_> = jobs
                .chunks(part)
                .map(|jobs| {
                    scope.spawn(move || jobs.iter().map(|(s, t, l, u)| build(gpu, s, t, l, u.as_ref())).collect())
                })
                .collect();
            workers
                .into_iter()
                .map(|w| w.join().unwrap_or_else(|_| vec![Err(error("the driver's compiler panicked"))]))
                .collect()
        });
        let made = made.into_iter().flatten().collect::<Result<Vec<Kernel>>>()?;
        let mut out = Vec::new();
        for kernel in made {
            let id = KernelId(self.next);
            self.next += 1;
            self.kernels.insert(id, kernel);
            out.push(id);
        }
        Ok(out)
    }

    pub(super) fn release(&mut self, id: KernelId) {
        self.kernels.remove(&id);
        self.groups.retain(|k, _| k.0 != id);
    }

    pub(super) fn forget_buffer(&mut self, buf: BufId) {
        self.groups.retain(|k, _| k.1.iter().all(|v| v.buf != buf));
    }

    pub(super) fn forget_uniforms(&mut self) {
        self.uniform_groups.clear();
    }

    fn layout(&mut self, gpu: &Gpu, buffers: usize) -> gpu::BindGroupLayout {
        let make = || {
            let kind = gpu::BufferBindingType::Storage { read_only: false };
            let entries: Vec<_> = (0..buffers as u32).map(|i| entry(i, kind, false)).collect();
            gpu.device.create_bind_group_layout(&gpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
        };
        self.layouts.entry(buffers).or_insert_with(make).clone()
    }

    fn uniform_layout(&mut self, gpu: &Gpu, vars: usize) -> gpu::BindGroupLayout {
        let make = || {
            let entries = [entry(0, gpu::BufferBindingType::Uniform, true)];
            gpu.device.create_bind_group_layout(&gpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
        };
        self.uniform_layouts.entry(vars.div_ceil(4)).or_insert_with(make).clone()
    }

    /// The bind group of launch scalars; it is set with the launch's offset.
    pub(super) fn uniform_group(&mut self, gpu: &Gpu, uniforms: &gpu::Buffer, vars: usize) -> gpu::BindGroup {
        let layout = self.uniform_layout(gpu, vars);
        let make = || {
            let size = std::num::NonZeroU64::new(vars.div_ceil(4) as u64 * 16);
            let resource = gpu::BindingResource::Buffer(gpu::BufferBinding { buffer: uniforms, offset: 0, size });
            let entries = [gpu::BindGroupEntry { binding: 0, resource }];
            gpu.device.create_bind_group(&gpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries })
        };
        self.uniform_groups.entry(vars.div_ceil(4)).or_insert_with(make).clone()
    }

    /// Empties the cache of bind groups if it has grown too large. Must not be called between `bind` and `bound`.
    pub(super) fn trim(&mut self) {
        if self.groups.len() >= MAX_GROUPS {
            self.groups.clear();
        }
    }

    /// Makes the bind group of a launch, unless it is cached.
    pub(super) fn bind(&mut self, gpu: &Gpu, memory: &Memory, id: KernelId, args: &[View]) -> Result<()> {
        let key = (id, args.to_vec());
        if self.groups.contains_key(&key) {
            return Ok(());
        }
        let mut entries = Vec::new();
        for (i, v) in args.iter().enumerate() {
            let size = std::num::NonZeroU64::new(words(v.bytes));
            let binding = gpu::BufferBinding { buffer: memory.buffer(v.buf)?, offset: v.offset as u64, size };
            entries.push(gpu::BindGroupEntry { binding: i as u32, resource: gpu::BindingResource::Buffer(binding) });
        }
        let what = gpu::BindGroupDescriptor { label: None, layout: &self.get(id)?.layout, entries: &entries };
        let (group, e) = gpu.scoped(gpu::ErrorFilter::Validation, |d| d.create_bind_group(&what));
        if let Some(e) = e {
            return Err(error(e.to_string()));
        }
        self.groups.insert(key, group);
        Ok(())
    }

    /// The bind group that `bind` made.
    pub(super) fn bound(&self, id: KernelId, args: &[View]) -> Result<&gpu::BindGroup> {
        let key = (id, args.to_vec());
        self.groups.get(&key).ok_or_else(|| error("bind group is gone"))
    }
}

fn build(
    gpu: &Gpu,
    s: &Source,
    text: &str,
    layout: &gpu::BindGroupLayout,
    uniforms: Option<&gpu::BindGroupLayout>,
) -> Result<Kernel> {
    let source = gpu::ShaderSource::Wgsl(text.into());
    let make = |d: &gpu::Device| {
        // SAFETY: the only check that is off is the bound on loop counts, and our loops count to a constant or to a launch
        // scalar; accesses stay checked
        let module = unsafe {
            d.create_shader_module_trusted(
                gpu::ShaderModuleDescriptor { label: Some(&s.name), source },
                gpu::ShaderRuntimeChecks { force_loop_bounding: false, ..gpu::ShaderRuntimeChecks::checked() },
            )
        };
        let groups = [Some(layout), uniforms];
        let pipeline_layout = d.create_pipeline_layout(&gpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &groups[..1 + uniforms.is_some() as usize],
            immediate_size: 0,
        });
        let options = gpu::PipelineCompilationOptions { zero_initialize_workgroup_memory: false, ..Default::default() };
        d.create_compute_pipeline(&gpu::ComputePipelineDescriptor {
            label: Some(&s.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: options,
            cache: None,
        })
    };
    let (pipeline, e) = gpu.scoped(gpu::ErrorFilter::Validation, make);
    if let Some(e) = e {
        return Err(error(format!("{}: {e}", s.name)));
    }
    Ok(Kernel { signature: KernelSignature::of(s), pipeline, layout: layout.clone() })
}

fn entry(binding: u32, ty: gpu::BufferBindingType, has_dynamic_offset: bool) -> gpu::BindGroupLayoutEntry {
    gpu::BindGroupLayoutEntry {
        binding,
        visibility: gpu::ShaderStages::COMPUTE,
        ty: gpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
        count: None,
    }
}
