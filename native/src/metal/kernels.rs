//! Makes compute pipelines from Metal's shading language.

use super::{Gpu, error};
use crate::steps::KernelSignature;
use gradloom_core::Result;
use gradloom_core::render::{Source, gpu_c};
use gradloom_core::target::Target;
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLCompileOptions, MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice as _, MTLLibrary as _,
    MTLPipelineOption,
};

/// The most lines of the compiler's log in an error.
const LINES: usize = 30;

/// A compiled kernel.
pub(super) struct Kernel {
    pub(super) signature: KernelSignature,
    pub(super) pipeline: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    pub(super) local: [u32; 3],
}

/// Compiles a batch as one library. The system caches what it compiled.
pub(super) fn compile(gpu: &Gpu, t: &Target, sources: &[Source]) -> Result<Vec<Kernel>> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let named = || sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let options = MTLCompileOptions::new();
    // Infinities and NaN keep their meaning, and division is correctly rounded; the call that replaced this
    // one needs macOS 15
    #[allow(deprecated, reason = "what replaced it is not in macOS 14")]
    options.setFastMathEnabled(false);
    let unit = NSString::from_str(&gpu_c::unit(sources)?);
    let refused = |e: Retained<NSError>| {
        let log = e.localizedDescription().to_string();
        let log: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).take(LINES).collect();
        error(format!("the compiler refuses {}:\n{}", named(), log.join("\n")))
    };
    let library = gpu.newLibraryWithSource_options_error(&unit, Some(&options)).map_err(refused)?;
    let kernel = |(i, s): (usize, &Source)| {
        let name = NSString::from_str(&gpu_c::kernel_name(i));
        let function = library.newFunctionWithName(&name).ok_or_else(|| error(format!("{} is lost", s.name)))?;
        let threads = s.local.iter().product::<u32>() as usize;
        let descriptor = MTLComputePipelineDescriptor::init(MTLComputePipelineDescriptor::alloc());
        descriptor.setComputeFunction(Some(&function));
        descriptor.setMaxTotalThreadsPerThreadgroup(threads);
        let made = gpu.newComputePipelineStateWithDescriptor_options_reflection_error(
            &descriptor,
            MTLPipelineOption::empty(),
            None,
        );
        let pipeline = made.map_err(|e| error(format!("{}: {}", s.name, e.localizedDescription())))?;
        if pipeline.maxTotalThreadsPerThreadgroup() < threads {
            return Err(error(format!("{} needs too many registers for groups of {threads} threads", s.name)));
        }
        if t.caps.subgroup != 0 && pipeline.threadExecutionWidth() != t.caps.subgroup as usize {
            let width = pipeline.threadExecutionWidth();
            return Err(error(format!("{} runs in subgroups of {width} and not of {}", s.name, t.caps.subgroup)));
        }
        Ok(Kernel { signature: KernelSignature::of(s), pipeline, local: s.local })
    };
    sources.iter().enumerate().map(kernel).collect()
}
