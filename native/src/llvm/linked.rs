//! The LLVM device with the LLVM that this binary is linked to (feature `inkwell`): `default<O2>`, then MCJIT.
//!
//! MCJIT ignores the target machine that ran the passes, so the processor must be in each function's attributes:
//! otherwise the code is for the oldest processor of the architecture and several times slower.

use super::error;
use crate::cpu::{CpuDevice, Function, Maker};
use gradloom_core::Result;
use gradloom_core::render::{Code, Source};
use gradloom_core::target::Target;
use inkwell::OptimizationLevel;
use inkwell::attributes::AttributeLoc;
use inkwell::context::Context;
use inkwell::execution_engine::ExecutionEngine;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target as Machine, TargetMachine};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A device for this machine with `threads` threads (0: one per core).
pub fn open(threads: usize) -> Result<CpuDevice> {
    Machine::initialize_native(&InitializationConfig::default()).map_err(error)?;
    let (lanes, registers) = crate::vectors::vectors();
    let target = Target { name: "inkwell".into(), ..Target::llvm(lanes, registers, crate::cpu::threads(threads)) };
    CpuDevice::made(target, Box::new(Linked))
}

/// The only LLVM context. Functions may outlive the device that compiled them, and need their context; so it is never
/// freed. Only one thread at a time may use it or its objects.
struct Whole(&'static Context);

// SAFETY: LLVM's contexts belong to no thread; the lock around this one gives it to one thread at a time.
unsafe impl Send for Whole {}

fn context() -> MutexGuard<'static, Whole> {
    static CONTEXT: OnceLock<Mutex<Whole>> = OnceLock::new();
    let whole = CONTEXT.get_or_init(|| Mutex::new(Whole(Box::leak(Box::new(Context::create())))));
    whole.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An engine with compiled code; it is freed under the lock of its context.
struct Held(Option<ExecutionEngine<'static>>);

// SAFETY: it is not used until it is dropped, which is done under the lock of its context, on whatever thread.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let _lock = context();
        self.0 = None;
    }
}

struct Linked;

// SAFETY: the text is the renderer's, verified, compiled for this processor in the C calling convention; the engine keeps the
// code until it is dropped.
unsafe impl Maker for Linked {
    fn make(&mut self, sources: &[Source]) -> Result<Vec<Function>> {
        let (cpu, features) = (TargetMachine::get_host_cpu_name(), TargetMachine::get_host_cpu_features());
        let (cpu, features) = (cpu.to_string_lossy(), features.to_string_lossy());
        let triple = TargetMachine::get_default_triple();
        let machine = Machine::from_triple(&triple)
            .map_err(|e| error(e.to_string()))?
            .create_target_machine(
                &triple,
                &cpu,
                &features,
                OptimizationLevel::Default,
                RelocMode::PIC,
                CodeModel::JITDefault,
            )
            .ok_or_else(|| error("LLVM does not know this machine"))?;
        sources.iter().map(|s| compile(s, &machine, &cpu, &features)).collect()
    }
}

fn compile(s: &Source, machine: &TargetMachine, cpu: &str, features: &str) -> Result<Function> {
    let bad = |what: &str, why: String| error(format!("{}: {what}: {why}", s.name));
    let Code::Text(text) = &s.code else { return Err(error(format!("{} is not LLVM IR", s.name))) };
    let lock = context();
    let context = lock.0;
    // The parser requires a zero after the text, which must be part of the buffer
    let buffer = MemoryBuffer::create_from_memory_range_copy(format!("{text}\0").as_bytes(), &s.name);
    let module = context.create_module_from_ir(buffer).map_err(|e| bad("the IR does not parse", e.to_string()))?;
    module.verify().map_err(|e| bad("the IR is invalid", e.to_string()))?;
    let f = module.get_function(&s.name).ok_or_else(|| bad("the IR", "has no function of this name".into()))?;
    for (key, value) in [("target-cpu", cpu), ("target-features", features)] {
        f.add_attribute(AttributeLoc::Function, context.create_string_attribute(key, value));
    }
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    module
        .run_passes("default<O2>", machine, PassBuilderOptions::create())
        .map_err(|e| bad("the optimiser", e.to_string()))?;
    let engine: ExecutionEngine<'static> =
        module.create_jit_execution_engine(OptimizationLevel::Default).map_err(|e| bad("MCJIT", e.to_string()))?;
    let entry = engine.get_function_address(&s.name).map_err(|e| bad("MCJIT", e.to_string()))?;
    Ok(Function { entry: entry as *const u8, _code: Arc::new(Held(Some(engine))) })
}
