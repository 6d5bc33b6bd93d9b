//! Makes compute pipelines from shaders. The driver's pipeline cache is kept on disk.

use super::find::DeviceCapabilities;
use super::gpu::Gpu;
use super::{error, spirv};
use crate::cache;
use crate::steps::KernelSignature;
use crate::store::Store;
use ash::vk;
use gradloom_core::Result;
use gradloom_core::device::KernelId;
use gradloom_core::render::{Code, Source};
use gradloom_core::util::blake2b;
use std::collections::HashMap;
use std::sync::Arc;

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) pipeline: vk::Pipeline,
    pub(super) layout: vk::PipelineLayout,
    /// Of each buffer, whether the kernel writes it.
    pub(super) written: Vec<bool>,
}

/// All kernels of a device.
pub(super) struct Kernels {
    kernels: HashMap<KernelId, Kernel>,
    layouts: HashMap<usize, vk::DescriptorSetLayout>,
    /// The descriptor set layout of launch scalars.
    pub(super) scalars: vk::DescriptorSetLayout,
    pipeline_layouts: HashMap<(usize, bool), vk::PipelineLayout>,
    cache: vk::PipelineCache,
    store: Option<Arc<Store>>,
    key: u128,
    stored_bytes: usize,
    /// Released pipelines, each to be destroyed when the submission of this number is done.
    pending_release: Vec<(u64, vk::Pipeline)>,
    next: u32,
}

impl Kernels {
    pub(super) fn new(gpu: &Gpu, identity: &str) -> Result<Kernels> {
        let store = cache::default_folder().and_then(|folder| Store::open(&folder, cache::LIMIT).ok());
        let key = blake2b::digest(format!("vulkan pipelines {identity}").as_bytes());
        let known = store.as_ref().and_then(|s| s.load(key)).unwrap_or_default();
        let what = vk::PipelineCacheCreateInfo::default().initial_data(&known);
        // SAFETY: the description lives until the call returns; a driver ignores data that is not its own
        let cache = unsafe { gpu.device.create_pipeline_cache(&what, None) };
        let cache = cache.map_err(|e| gpu.failed("a cache of pipelines", e))?;
        let mut kernels = Kernels {
            kernels: HashMap::new(),
            layouts: HashMap::new(),
            scalars: vk::DescriptorSetLayout::null(),
            pipeline_layouts: HashMap::new(),
            cache,
            store,
            key,
            stored_bytes: known.len(),
            pending_release: Vec::new(),
            next: 0,
        };
        kernels.scalars = set_layout(gpu, 1, vk::DescriptorType::UNIFORM_BUFFER_DYNAMIC)?;
        Ok(kernels)
    }

    pub(super) fn get(&self, id: KernelId) -> Result<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| error(format!("{id:?} is not compiled")))
    }

    /// The descriptor set layout of `buffers` storage buffers.
    pub(super) fn layout(&mut self, gpu: &Gpu, buffers: usize) -> Result<vk::DescriptorSetLayout> {
        if let Some(&known) = self.layouts.get(&buffers) {
            return Ok(known);
        }
        let made = set_layout(gpu, buffers, vk::DescriptorType::STORAGE_BUFFER)?;
        self.layouts.insert(buffers, made);
        Ok(made)
    }

    fn pipeline_layout(&mut self, gpu: &Gpu, buffers: usize, has_scalars: bool) -> Result<vk::PipelineLayout> {
        if let Some(&known) = self.pipeline_layouts.get(&(buffers, has_scalars)) {
            return Ok(known);
        }
        let sets = [self.layout(gpu, buffers)?, self.scalars];
        let what = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets[..1 + usize::from(has_scalars)]);
        // SAFETY: the layouts are the device's
        let made = unsafe { gpu.device.create_pipeline_layout(&what, None) };
        let made = made.map_err(|e| gpu.failed("a layout", e))?;
        self.pipeline_layouts.insert((buffers, has_scalars), made);
        Ok(made)
    }

    /// Compiles a batch on all cores: drivers take milliseconds to tens of milliseconds for a pipeline.
    pub(super) fn compile(&mut self, gpu: &Gpu, can: &DeviceCapabilities, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut jobs = Vec::new();
        for s in sources {
            let Code::Text(text) = &s.code else { return Err(error(format!("{} is not WGSL", s.name))) };
            jobs.push((s, text, self.pipeline_layout(gpu, s.params.len(), !s.vars.is_empty())?));
        }
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len()).max(1);
        let cache = self.cache;
        let made: Vec<Vec<Result<Kernel>>> = std::thread::scope(|scope| {
            let part = jobs.len().div_ceil(threads).max(1);
            let work = |jobs| move || Vec::from_iter(build_all(gpu, can, cache, jobs));
            let workers: Vec<_> = jobs.chunks(part).map(|jobs| scope.spawn(work(jobs))).collect();
            let panicked = || vec![Err(error("the driver's compiler panicked"))];
            workers.into_iter().map(|w| w.join().unwrap_or_else(|_| panicked())).collect()
        });
        let (mut ids, mut failed) = (Vec::new(), None);
        for kernel in made.into_iter().flatten() {
            match kernel {
                Ok(kernel) => {
                    let id = KernelId(self.next);
                    self.next += 1;
                    self.kernels.insert(id, kernel);
                    ids.push(id);
                }
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        let Some(e) = failed else { return Ok(ids) };
        ids.into_iter().for_each(|id| self.release(gpu, id));
        Err(e)
    }

    pub(super) fn release(&mut self, gpu: &Gpu, id: KernelId) {
        if let Some(kernel) = self.kernels.remove(&id) {
            self.pending_release.push((gpu.submitted(), kernel.pipeline));
        }
    }

    /// Destroys released pipelines whose last submission is done.
    pub(super) fn sweep(&mut self, gpu: &Gpu) {
        let (done, left) = self.pending_release.drain(..).partition(|g| gpu.reached(g.0));
        self.pending_release = left;
        let done: Vec<(u64, vk::Pipeline)> = done;
        // SAFETY: no submission that uses them is in flight, and no recording has them
        done.into_iter().for_each(|g| unsafe { gpu.device.destroy_pipeline(g.1, None) });
    }

    /// Stores the driver's pipeline cache, and frees everything; the device must be idle.
    pub(super) fn clear(&mut self, gpu: &Gpu) {
        // SAFETY: the cache is the device's
        let data = unsafe { gpu.device.get_pipeline_cache_data(self.cache) }.unwrap_or_default();
        if let Some(store) = self.store.take().filter(|_| data.len() > self.stored_bytes) {
            store.save(self.key, data);
        }
        self.pending_release.extend(self.kernels.drain().map(|k| (0, k.1.pipeline)));
        let sets = self.layouts.drain().map(|l| l.1).chain([self.scalars]);
        // SAFETY: the device is idle, and nobody has these handles after this
        unsafe {
            self.pending_release.drain(..).for_each(|g| gpu.device.destroy_pipeline(g.1, None));
            self.pipeline_layouts.drain().for_each(|l| gpu.device.destroy_pipeline_layout(l.1, None));
            sets.for_each(|l| gpu.device.destroy_descriptor_set_layout(l, None));
            gpu.device.destroy_pipeline_cache(self.cache, None);
        }
    }
}

fn set_layout(gpu: &Gpu, n: usize, kind: vk::DescriptorType) -> Result<vk::DescriptorSetLayout> {
    let binding = |i: usize| {
        let b = vk::DescriptorSetLayoutBinding::default().binding(i as u32).descriptor_count(1);
        b.descriptor_type(kind).stage_flags(vk::ShaderStageFlags::COMPUTE)
    };
    let bindings: Vec<_> = (0..n).map(binding).collect();
    let what = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
    // SAFETY: the description lives until the call returns
    let made = unsafe { gpu.device.create_descriptor_set_layout(&what, None) };
    made.map_err(|e| gpu.failed("a layout", e))
}

type Job<'a> = (&'a Source, &'a String, vk::PipelineLayout);

fn build_all<'a>(
    gpu: &Gpu,
    can: &DeviceCapabilities,
    cache: vk::PipelineCache,
    jobs: &'a [Job<'a>],
) -> impl Iterator<Item = Result<Kernel>> {
    jobs.iter().map(move |&(s, text, layout)| build(gpu, can, cache, s, text, layout))
}

fn build(
    gpu: &Gpu,
    can: &DeviceCapabilities,
    cache: vk::PipelineCache,
    s: &Source,
    text: &str,
    layout: vk::PipelineLayout,
) -> Result<Kernel> {
    let words = spirv::translate(&s.name, text, can)?;
    let d = &gpu.device;
    let what = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: the words are a module that naga wrote for what the device has
    let module = unsafe { d.create_shader_module(&what, None) }.map_err(|e| gpu.failed(&s.name, e))?;
    let stage =
        vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE).module(module).name(c"main");
    let what = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
    // SAFETY: module and layout are the device's and fit each other; the driver synchronises the cache
    let made = unsafe { d.create_compute_pipelines(cache, &[what], None) };
    // SAFETY: a pipeline does not need its module
    unsafe { d.destroy_shader_module(module, None) };
    let pipeline = match made {
        Ok(made) => made[0],
        Err((made, e)) => {
            // SAFETY: what came of a failure is null or a pipeline of the device's
            made.into_iter().for_each(|p| unsafe { d.destroy_pipeline(p, None) });
            return Err(gpu.failed(&s.name, e));
        }
    };
    Ok(Kernel {
        signature: KernelSignature::of(s),
        pipeline,
        layout,
        written: s.params.iter().map(|p| p.written).collect(),
    })
}
