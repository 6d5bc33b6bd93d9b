//! Detects the features of this AArch64 processor, and opens the device for it.

use super::CpuDevice;
use super::machine::Machine;
use gradloom_core::Result;
use gradloom_core::target::Target;
use std::arch::is_aarch64_feature_detected;

impl CpuDevice {
    /// This machine with `threads` threads (0: one per core); uses dot products of bytes if the processor has them.
    pub fn new(threads: usize) -> Result<CpuDevice> {
        if !is_aarch64_feature_detected!("dotprod") {
            return CpuDevice::neon(threads);
        }
        CpuDevice::made(Target::arm64(super::threads(threads)).with_words(), Box::new(Machine))
    }

    /// The same, restricted to the instructions that every AArch64 processor has.
    pub fn neon(threads: usize) -> Result<CpuDevice> {
        CpuDevice::made(Target::arm64(super::threads(threads)), Box::new(Machine))
    }
}
