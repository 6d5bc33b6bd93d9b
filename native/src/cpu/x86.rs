//! Detects this x86-64 processor's instruction set, and opens the device for it.

use super::CpuDevice;
use super::machine::Machine;
use gradloom_core::target::{Isa, Machine as Numbers, Target};
use gradloom_core::{Error, Result};
use std::arch::x86_64::__cpuid;

/// The best instruction set of this machine; `None` if it lacks AVX2, FMA, F16C or BMI2.
pub fn detect() -> Option<Isa> {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi2");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match () {
        _ if !avx2 => None,
        _ if !avx512 => Some(Isa::Avx2),
        _ if !is_x86_feature_detected!("avx512vnni") => Some(Isa::Avx512),
        _ if !is_x86_feature_detected!("avx512bf16") => Some(Isa::Avx512Vnni),
        _ => Some(Isa::Avx512Bf16),
    }
}

/// The numbers of this processor for cost estimates.
fn numbers(t: &Target) -> Numbers {
    let vendor = __cpuid(0);
    // The vendor's name is in these registers, in this order
    let letters = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
    let version = __cpuid(1).eax;
    let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    let wide = match letters.as_slice() {
        b"GenuineIntel" => true,
        // Zen 5 is family 26
        b"AuthenticAMD" => family >= 26,
        _ => false,
    };
    if wide { Numbers::wide_x86(t.caps.lanes, t.caps.vector_registers) } else { t.machine }
}

impl CpuDevice {
    /// This machine with `threads` threads (0: one per core). Fails where the instruction set is too old.
    pub fn new(threads: usize) -> Result<CpuDevice> {
        let isa = detect().ok_or_else(|| Error::Unsupported {
            what: "CPU without AVX2, FMA, F16C and BMI2".into(),
            context: "device cpu".into(),
        })?;
        CpuDevice::with_isa(isa, threads)
    }

    /// The same, restricted to an instruction set, which the machine must have.
    pub fn with_isa(isa: Isa, threads: usize) -> Result<CpuDevice> {
        if detect().is_none_or(|have| have < isa) {
            return Err(Error::Unsupported { what: format!("instruction set {isa:?}"), context: "device cpu".into() });
        }
        let target = Target::x86(isa, super::threads(threads));
        CpuDevice::made(Target { machine: numbers(&target), ..target }, Box::new(Machine))
    }
}
