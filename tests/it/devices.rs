//! The conformance suite, once per device.

use gradloom_core::Result;
use gradloom_core::device::{Device, EvalDevice};
use gradloom_core::render::Renderer;
use gradloom_tests::here;
use gradloom_tests::{conformance, runner};

/// Makes a module of tests for a device. `make` gives the device and its renderer, or an error if this machine has none.
macro_rules! device_suite {
    ($module:ident, $name:literal, $make:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn samples_give_known_results() {
                let Some((mut dev, renderer)) = here::device($name, $make) else { return };
                let n = runner::run_samples(&mut *dev, &*renderer);
                assert!(n > 300, "only {n} samples");
            }

            #[test]
            fn memory_keeps_its_promises() {
                let Some((mut dev, renderer)) = here::device($name, $make) else { return };
                conformance::memory(&mut *dev, &*renderer);
            }

            #[test]
            fn misuse_is_an_error() {
                let Some((mut dev, renderer)) = here::device($name, $make) else { return };
                conformance::misuse(&mut *dev, &*renderer);
            }
        }
    };
}

type Pair = (Box<dyn Device>, Box<dyn Renderer>);

device_suite!(eval, "eval", eval_device());
device_suite!(c, "c", c_device());
#[cfg(unix)]
device_suite!(llvm, "llvm", llvm_device());
#[cfg(all(unix, feature = "inkwell"))]
device_suite!(inkwell, "inkwell", inkwell_device());
#[cfg(all(unix, target_arch = "x86_64"))]
device_suite!(cpu, "cpu", cpu_device());
#[cfg(feature = "wgpu")]
device_suite!(wgpu, "wgpu", wgpu_device());
#[cfg(feature = "wgpu")]
device_suite!(wgpu_hardware, "wgpu:hardware", wgpu_as_hardware());

fn eval_device() -> Result<Pair> {
    Ok((Box::new(EvalDevice::default()), Box::new(conformance::EvalRenderer)))
}

#[cfg(all(unix, target_arch = "x86_64"))]
fn cpu_device() -> Result<Pair> {
    let none = || gradloom_core::Error::Device { device: "cpu".into(), what: "no AVX2".into() };
    let isa = gradloom::cpu::detect().ok_or_else(none)?;
    Ok((Box::new(gradloom::cpu::CpuDevice::with_isa(isa, 2)?), Box::new(gradloom_core::render::x86::X86)))
}

fn c_device() -> Result<Pair> {
    Ok((Box::new(gradloom::c::CDevice::new()?), Box::new(gradloom_core::render::c::CRenderer)))
}

#[cfg(unix)]
fn llvm_device() -> Result<Pair> {
    Ok((Box::new(gradloom::llvm::open(2)?), Box::new(gradloom_core::render::llvm::LlvmRenderer)))
}

#[cfg(all(unix, feature = "inkwell"))]
fn inkwell_device() -> Result<Pair> {
    Ok((Box::new(gradloom::llvm::open_linked(2)?), Box::new(gradloom_core::render::llvm::LlvmRenderer)))
}

#[cfg(feature = "wgpu")]
fn wgpu_as_hardware() -> Result<Pair> {
    let mut device = gradloom::wgpu::WgpuDevice::new()?;
    device.as_hardware();
    Ok((Box::new(device), Box::new(gradloom_core::render::wgsl::WgslRenderer)))
}

#[cfg(feature = "wgpu")]
fn wgpu_device() -> Result<Pair> {
    Ok((Box::new(gradloom::wgpu::WgpuDevice::new()?), Box::new(gradloom_core::render::wgsl::WgslRenderer)))
}
