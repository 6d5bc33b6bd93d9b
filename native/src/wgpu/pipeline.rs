//! Kernels: shader modules, their pipelines in two variants, and the caches of bind groups.

use super::memory::Memory;
use super::{Gpu, error};
use ::wgpu as gpu;
use gradloom_core::Result;
use gradloom_core::device::{BufId, KernelId, View};
use gradloom_core::render::{Code, Source};
use std::collections::HashMap;

/// Bind groups kept before the cache is emptied; a plan has a few hundred.
const MAX_GROUPS: usize = 8192;

/// A compiled pipeline and the layout of its buffers.
#[derive(Clone)]
pub(super) struct Variant {
    pub(super) pipeline: gpu::ComputePipeline,
    layout: gpu::BindGroupLayout,
    /// All bindings are writable.
    shared: bool,
}

/// What is kept of a source.
pub(super) struct Kernel {
    name: String,
    text: String,
    /// Bytes that each buffer must have.
    needs: Vec<usize>,
    written: Vec<bool>,
    vars: usize,
    exact: Option<Variant>,
    shared: Option<Variant>,
}

impl Kernel {
    pub(super) fn check(&self, args: &[View], vars: &[u32]) -> Result<()> {
        let fits = self.needs.len() == args.len() && self.needs.iter().zip(args).all(|(&n, v)| n <= v.bytes);
        if fits && self.vars == vars.len() {
            return Ok(());
        }
        Err(error(format!("{} wants buffers of {:?} bytes and {} scalars", self.name, self.needs, self.vars)))
    }

    /// Is a buffer both written and read through another binding?
    pub(super) fn conflict(&self, args: &[View]) -> bool {
        let written = |b: BufId| args.iter().zip(&self.written).any(|(v, &w)| w && v.buf == b);
        args.iter().zip(&self.written).any(|(v, &w)| !w && written(v.buf))
    }
}

/// All kernels of a device.
#[derive(Default)]
pub(super) struct Kernels {
    kernels: HashMap<KernelId, Kernel>,
    groups: HashMap<(KernelId, bool, Vec<View>), gpu::BindGroup>,
    layouts: HashMap<Vec<bool>, gpu::BindGroupLayout>,
    uniform_layouts: HashMap<usize, gpu::BindGroupLayout>,
    uniform_groups: HashMap<usize, gpu::BindGroup>,
    next: u32,
}

impl Kernels {
    pub(super) fn get(&self, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| error(format!("{id:?} is not compiled")))
    }

    /// Compiles the variant that a launch with separate buffers takes.
    pub(super) fn compile(&mut self, gpu: &Gpu, s: &Source) -> Result<KernelId> {
        let Code::Text(text) = &s.code else { return Err(error(format!("{} is not WGSL", s.name))) };
        let id = KernelId(self.next);
        self.next += 1;
        let kernel = Kernel {
            name: s.name.clone(),
            text: text.clone(),
            needs: s.params.iter().map(|p| p.len * p.dtype.size()).collect(),
            written: s.params.iter().map(|p| p.written).collect(),
            vars: s.vars.len(),
            exact: None,
            shared: None,
        };
        self.kernels.insert(id, kernel);
        if let Err(e) = self.variant(gpu, id, false) {
            self.kernels.remove(&id);
            return Err(e);
        }
        Ok(id)
    }

    pub(super) fn release(&mut self, id: KernelId) {
        self.kernels.remove(&id);
        self.groups.retain(|k, _| k.0 != id);
    }

    pub(super) fn forget_buffer(&mut self, buf: BufId) {
        self.groups.retain(|k, _| k.2.iter().all(|v| v.buf != buf));
    }

    pub(super) fn forget_uniforms(&mut self) {
        self.uniform_groups.clear();
    }

    /// The pipeline for launches whose bindings do or do not share buffers, compiled when first needed.
    pub(super) fn variant(&mut self, gpu: &Gpu, id: KernelId, shared: bool) -> Result<Variant> {
        let k = self.get(id)?;
        if let Some(v) = if shared { &k.shared } else { &k.exact } {
            return Ok(v.clone());
        }
        let (mut text, mut written, vars) = (k.text.clone(), k.written.clone(), k.vars);
        if shared {
            text = text.replace("var<storage, read>", "var<storage, read_write>");
            written.fill(true);
        }
        let name = k.name.clone();
        let (variant, e) =
            gpu.scoped(gpu::ErrorFilter::Validation, |_| self.build(gpu, &name, &text, &written, vars, shared));
        if let Some(e) = e {
            return Err(error(format!("{name}: {e}")));
        }
        if let Some(k) = self.kernels.get_mut(&id) {
            *(if shared { &mut k.shared } else { &mut k.exact }) = Some(variant.clone());
        }
        Ok(variant)
    }

    fn build(&mut self, gpu: &Gpu, name: &str, text: &str, written: &[bool], vars: usize, shared: bool) -> Variant {
        let layout = self.layout(gpu, written);
        let uniforms = (vars > 0).then(|| self.uniform_layout(gpu, vars));
        let d = &gpu.device;
        let source = gpu::ShaderSource::Wgsl(text.into());
        // SAFETY: the only check that is off is the bound on loop counts, and our loops count to a constant or to a launch
        // scalar; accesses stay checked
        let module = unsafe {
            d.create_shader_module_trusted(
                gpu::ShaderModuleDescriptor { label: Some(name), source },
                gpu::ShaderRuntimeChecks { force_loop_bounding: false, ..gpu::ShaderRuntimeChecks::checked() },
            )
        };
        let pipeline_layout = d.create_pipeline_layout(&gpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout), uniforms.as_ref()][..1 + uniforms.is_some() as usize],
            immediate_size: 0,
        });
        let compilation_options =
            gpu::PipelineCompilationOptions { zero_initialize_workgroup_memory: false, ..Default::default() };
        let pipeline = d.create_compute_pipeline(&gpu::ComputePipelineDescriptor {
            label: Some(name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options,
            cache: None,
        });
        Variant { pipeline, layout, shared }
    }

    fn layout(&mut self, gpu: &Gpu, written: &[bool]) -> gpu::BindGroupLayout {
        let make = || {
            let entries: Vec<_> = written
                .iter()
                .enumerate()
                .map(|(i, &w)| entry(i as u32, gpu::BufferBindingType::Storage { read_only: !w }, false))
                .collect();
            gpu.device.create_bind_group_layout(&gpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
        };
        self.layouts.entry(written.to_vec()).or_insert_with(make).clone()
    }

    fn uniform_layout(&mut self, gpu: &Gpu, vars: usize) -> gpu::BindGroupLayout {
        let make = || {
            let entries = [entry(0, gpu::BufferBindingType::Uniform, true)];
            gpu.device.create_bind_group_layout(&gpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
        };
        self.uniform_layouts.entry(vars.div_ceil(4)).or_insert_with(make).clone()
    }

    /// The group of launch scalars, to be set with the launch's offset.
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

    /// Empties the cache of bind groups if it has grown too large; not between `bind` and `bound`.
    pub(super) fn trim(&mut self) {
        if self.groups.len() >= MAX_GROUPS {
            self.groups.clear();
        }
    }

    /// Makes the bind group of a launch, unless it is there.
    pub(super) fn bind(
        &mut self,
        gpu: &Gpu,
        memory: &Memory,
        id: KernelId,
        variant: &Variant,
        args: &[View],
    ) -> Result<()> {
        let key = (id, variant.shared, args.to_vec());
        if self.groups.contains_key(&key) {
            return Ok(());
        }
        let mut entries = Vec::new();
        for (i, v) in args.iter().enumerate() {
            let size = std::num::NonZeroU64::new(v.bytes as u64);
            let binding = gpu::BufferBinding { buffer: memory.buffer(v.buf)?, offset: v.offset as u64, size };
            entries.push(gpu::BindGroupEntry { binding: i as u32, resource: gpu::BindingResource::Buffer(binding) });
        }
        let what = gpu::BindGroupDescriptor { label: None, layout: &variant.layout, entries: &entries };
        let (group, e) = gpu.scoped(gpu::ErrorFilter::Validation, |d| d.create_bind_group(&what));
        if let Some(e) = e {
            return Err(error(e.to_string()));
        }
        self.groups.insert(key, group);
        Ok(())
    }

    /// The bind group that `bind` made.
    pub(super) fn bound(&self, id: KernelId, variant: &Variant, args: &[View]) -> Result<&gpu::BindGroup> {
        let key = (id, variant.shared, args.to_vec());
        self.groups.get(&key).ok_or_else(|| error("bind group is gone"))
    }
}

fn entry(binding: u32, ty: gpu::BufferBindingType, has_dynamic_offset: bool) -> gpu::BindGroupLayoutEntry {
    gpu::BindGroupLayoutEntry {
        binding,
        visibility: gpu::ShaderStages::COMPUTE,
        ty: gpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
        count: None,
    }
}
