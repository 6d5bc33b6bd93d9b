//! The CPU device: every sample program through the x86-64 emitter, in both instruction sets and with threads.
#![cfg(all(unix, target_arch = "x86_64"))]

use gradloom::cpu::{CpuDevice, detect};
use gradloom_core::render::x86::X86;
use gradloom_core::target::Isa;
use gradloom_tests::runner::run_samples;

fn conformance(isa: Isa, threads: usize) {
    if detect().is_none_or(|have| have < isa) {
        eprintln!("this machine has no {isa:?}: not tested");
        return;
    }
    let mut dev = CpuDevice::with_isa(isa, threads).expect("the device opens");
    assert!(run_samples(&mut dev, &X86) > 100);
}

#[test]
fn samples_avx2() {
    conformance(Isa::Avx2, 1);
}

#[test]
fn samples_avx512() {
    conformance(Isa::Avx512, 1);
}

#[test]
fn samples_threads() {
    conformance(Isa::Avx2, 3);
}
