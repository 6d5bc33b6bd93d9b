//! Targets that tests change.

use gradloom_core::target::Target;

/// A target that `change` has changed.
pub fn changed(mut t: Target, change: impl FnOnce(&mut Target)) -> Target {
    change(&mut t);
    t
}

/// WebGPU on a hardware GPU with f16 and subgroups of 32 threads.
pub fn wgsl_hardware() -> Target {
    changed(Target::wgsl("webgpu").with_f16().with_subgroup(32), |t| t.limits.workgroup_bytes = 32768)
}
