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

/// A device with what prints its kernels.
fn pair(device: impl Device + 'static) -> Result<Pair> {
    let renderer = device.renderer();
    Ok((Box::new(device), Box::new(renderer)))
}

device_suite!(eval, "eval", eval_device());
device_suite!(c, "c", c_device());
device_suite!(c_metal, "c:metal", host("metal"));
device_suite!(c_cuda, "c:cuda", host("cuda"));
device_suite!(c_hip, "c:hip", host("hip"));
device_suite!(vulkan, "vulkan", vulkan_device());
device_suite!(vulkan_hardware, "vulkan:hardware", vulkan_as_hardware());
#[cfg(target_os = "linux")]
device_suite!(cuda, "cuda", cuda_device(0));
#[cfg(target_os = "linux")]
device_suite!(cuda_sm75, "cuda:2", cuda_device(2));
#[cfg(target_os = "linux")]
device_suite!(cuda_sm86, "cuda:3", cuda_device(3));
#[cfg(target_os = "linux")]
device_suite!(cuda_sm90, "cuda:1", cuda_device(1));
device_suite!(opencl, "opencl", opencl_device());
device_suite!(opencl_hardware, "opencl:hardware", opencl_as_hardware());
#[cfg(unix)]
device_suite!(llvm, "llvm", llvm_device());
#[cfg(all(unix, feature = "inkwell"))]
device_suite!(inkwell, "inkwell", inkwell_device());
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
device_suite!(cpu, "cpu", cpu_device());
#[cfg(target_arch = "aarch64")]
device_suite!(cpu_neon, "cpu:neon", neon_device());
#[cfg(feature = "wgpu")]
device_suite!(wgpu, "wgpu", wgpu_device());
#[cfg(feature = "wgpu")]
device_suite!(wgpu_hardware, "wgpu:hardware", wgpu_as_hardware());

fn eval_device() -> Result<Pair> {
    Ok((Box::new(EvalDevice::default()), Box::new(conformance::EvalRenderer)))
}

#[cfg(target_arch = "x86_64")]
fn cpu_device() -> Result<Pair> {
    let none = || gradloom_core::Error::Device { device: "cpu".into(), what: "no AVX2".into() };
    let isa = gradloom::cpu::detect().ok_or_else(none)?;
    pair(gradloom::cpu::CpuDevice::with_isa(isa, 2)?)
}

#[cfg(target_arch = "aarch64")]
fn cpu_device() -> Result<Pair> {
    pair(gradloom::cpu::CpuDevice::new(2)?)
}

#[cfg(target_arch = "aarch64")]
fn neon_device() -> Result<Pair> {
    pair(gradloom::cpu::CpuDevice::neon(2)?)
}

fn c_device() -> Result<Pair> {
    pair(gradloom::c::CDevice::new()?)
}

/// What a driver's compiler made is in the cache: a device that is opened later gives it no text, and computes the same.
#[test]
fn a_second_start_of_opencl_compiles_nothing() {
    use gradloom_tests::programs::samples;
    let folder = std::env::temp_dir().join(format!("gradloom-opencl-{}", std::process::id()));
    for start in 0..2 {
        let Some(mut device) = here::device("opencl", gradloom::opencl::OpenClDevice::new()) else { return };
        device.cache_in(&folder);
        let target = device.target().clone();
        let some: Vec<_> = samples(&target).into_iter().step_by(50).collect();
        let source = |s: &gradloom_tests::programs::Sample| {
            let code = gradloom_core::render::render(&s.program, &target).expect("a text");
            gradloom_core::render::Source::new(&s.program, code)
        };
        let kernels = device.compile(&some.iter().map(source).collect::<Vec<_>>()).expect("samples compile");
        assert_eq!(device.translated() == 0, start == 1, "start {start}: {} texts", device.translated());
        for (s, &kernel) in some.iter().zip(&kernels) {
            s.check(&runner::run_one(&mut device, s, kernel).expect("a sample runs")).expect("its known results");
        }
    }
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
}

/// Products of 16-bit floats and of what else the language has tiles for, by matrix tiles: a device that has them gives what the evaluator
/// gives, whether a tile divides the shape or not.
#[test]
fn matrix_tiles_are_printed_as_they_are_meant() {
    use gradloom::{DType, Runtime, Tensor};
    let nvidia = [DType::F16, DType::BF16, DType::F64];
    for (name, made, dtypes) in [
        ("c:metal", host("metal"), &[DType::F16, DType::BF16, DType::F32][..]),
        ("c:cuda", host("cuda"), &nvidia),
        ("c:hip", host("hip"), &[DType::F16, DType::BF16]),
        #[cfg(target_os = "linux")]
        ("cuda", cuda_device(0), &nvidia),
        #[cfg(target_os = "linux")]
        ("cuda:1", cuda_device(1), &nvidia),
        #[cfg(target_os = "linux")]
        ("cuda:2", cuda_device(2), &nvidia[..1]),
    ] {
        let Some((device, _)) = here::device(name, made) else { continue };
        let mut devices = [Runtime::on(device), Runtime::on(Box::new(EvalDevice::default()))];
        for &dtype in dtypes {
            for [m, n, k] in [[32, 32, 32], [48, 16, 80], [33, 17, 20]] {
                let [got, want] = [0, 1].map(|i| {
                    let s = devices[i].session().clone();
                    let values = |rows: usize, columns: usize, seed: usize| {
                        let of = |i: usize| ((i * 7919 + seed) % 1009 % 7) as f32 - 3.0;
                        let all: Vec<f32> = (0..rows * columns).map(of).collect();
                        Tensor::new(&s, &all, &[rows, columns]).and_then(|t| t.cast(dtype)).expect("a tensor")
                    };
                    let (x, y) = (values(m, k, 1).contiguous(), values(k, n, 613).contiguous());
                    devices[i].realize(&[&x, &y]).expect("operands");
                    let z = x.matmul(&y).and_then(|z| z.cast(DType::F32)).expect("a product");
                    devices[i].to_vec::<f32>(&z).expect("a result")
                });
                assert_eq!(got, want, "{name} {dtype} {m}x{n}x{k}");
                assert!(want.iter().any(|&x| x != 0.0));
            }
        }
    }
}

/// Arrays of 16-bit floats of any length, which are words of two where a shader has no such arrays, are read and written.
#[test]
fn sixteen_bit_floats_of_any_length_are_read_by_shaders() {
    use gradloom::{DType, Runtime, Tensor};
    let vulkan: fn() -> Result<Pair> = vulkan_device;
    let devices: &[(&str, fn() -> Result<Pair>)] = &[
        ("vulkan", vulkan),
        ("vulkan:hardware", vulkan_as_hardware),
        #[cfg(feature = "wgpu")]
        ("wgpu", wgpu_device),
    ];
    for (name, make) in devices {
        let Some((device, _)) = here::device(name, make()) else { continue };
        let mut both = [Runtime::on(device), Runtime::on(Box::new(EvalDevice::default()))];
        for n in [1, 2, 3, 4, 5, 6, 8, 12, 33] {
            let [got, want] = [0, 1].map(|i| {
                let values: Vec<f32> = (0..n).map(|i| i as f32 * 0.25 - 1.0).collect();
                let x =
                    Tensor::new(both[i].session(), &values, &[n]).and_then(|x| x.cast(DType::F16)).expect("a tensor");
                let x = x.contiguous();
                both[i].realize(&[&x]).expect("a buffer");
                let y = x.mul(3.0).and_then(|y| y.cast(DType::F16)?.contiguous().cast(DType::F32)).expect("a graph");
                both[i].to_vec::<f32>(&y).expect("a result")
            });
            assert_eq!(got, want, "{name} {n}");
        }
    }
}

/// Kernels in a language of GPUs, compiled as C++ and run on the processor.
fn host(language: &str) -> Result<Pair> {
    pair(gradloom::c::CDevice::host(language)?)
}

fn vulkan_device() -> Result<Pair> {
    pair(gradloom::vulkan::VulkanDevice::new()?)
}

fn vulkan_as_hardware() -> Result<Pair> {
    let mut device = gradloom::vulkan::VulkanDevice::new()?;
    device.as_hardware();
    pair(device)
}

/// The device with a number over the emulator.
#[cfg(target_os = "linux")]
fn cuda_device(number: usize) -> Result<Pair> {
    crate::emulator::load();
    pair(gradloom::cuda::CudaDevice::new(number)?)
}

fn opencl_device() -> Result<Pair> {
    pair(gradloom::opencl::OpenClDevice::new()?)
}

fn opencl_as_hardware() -> Result<Pair> {
    let mut device = gradloom::opencl::OpenClDevice::new()?;
    device.as_hardware();
    pair(device)
}

#[cfg(unix)]
fn llvm_device() -> Result<Pair> {
    pair(gradloom::llvm::open(2)?)
}

#[cfg(all(unix, feature = "inkwell"))]
fn inkwell_device() -> Result<Pair> {
    pair(gradloom::llvm::open_linked(2)?)
}

#[cfg(feature = "wgpu")]
fn wgpu_as_hardware() -> Result<Pair> {
    let mut device = gradloom::wgpu::WgpuDevice::new()?;
    device.as_hardware();
    pair(device)
}

#[cfg(feature = "wgpu")]
fn wgpu_device() -> Result<Pair> {
    pair(gradloom::wgpu::WgpuDevice::new()?)
}

/// A device that the driver takes away, before and in the middle of a readback, ends all that is asked of it with an error that says
/// so, and another one can be opened.
#[cfg(feature = "wgpu")]
#[test]
fn a_lost_wgpu_device_says_so() {
    let open = || gradloom::wgpu::WgpuDevice::new().expect("an adapter of wgpu");
    let is_lost = |e: gradloom_core::Error| assert_eq!(e.code(), "E_DEVICE_LOST", "{e}");
    let mut device = open();
    let buf = device.alloc(64).unwrap();
    device.upload(buf, 0, &[7; 64]).unwrap();
    let view = gradloom_core::device::View { buf, offset: 0, bytes: 64 };
    let ticket = device.read(view).unwrap();
    device.destroy();
    // the copy may have been done before
    match device.poll(ticket) {
        Ok(bytes) => assert_eq!(bytes, Some(vec![7; 64])),
        Err(e) => is_lost(e),
    }
    is_lost(device.sync().unwrap_err());
    is_lost(device.alloc(64).unwrap_err());
    is_lost(device.upload(buf, 0, &[7; 64]).unwrap_err());
    is_lost(device.compile(&[]).unwrap_err());
    is_lost(device.submit(&[]).unwrap_err());
    is_lost(device.read(view).unwrap_err());
    let mut again = open();
    let buf = again.alloc(8).unwrap();
    again.upload(buf, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let ticket = again.read(gradloom_core::device::View { buf, offset: 0, bytes: 8 }).unwrap();
    assert_eq!(again.poll(ticket).unwrap(), Some(vec![1, 2, 3, 4, 5, 6, 7, 8]));
}

/// What was submitted before a Vulkan device went away is the last that it says; another one can be opened.
#[test]
fn a_lost_vulkan_device_says_so() {
    use gradloom_core::device::View;
    let open = || gradloom::vulkan::VulkanDevice::new();
    let Some(mut device) = here::device("vulkan", open()) else { return };
    let is_lost = |e: gradloom_core::Error| assert_eq!(e.code(), "E_DEVICE_LOST", "{e}");
    let buf = device.alloc(64).unwrap();
    let view = View { buf, offset: 0, bytes: 64 };
    device.upload(buf, 0, &[7; 64]).unwrap();
    let ticket = device.read(view).unwrap();
    assert_eq!(device.poll(ticket).unwrap(), Some(vec![7; 64]));
    let late = device.read(view).unwrap();
    device.destroy();
    match device.poll(late) {
        Ok(bytes) => assert_eq!(bytes, Some(vec![7; 64])),
        Err(e) => is_lost(e),
    }
    is_lost(device.sync().unwrap_err());
    is_lost(device.alloc(64).unwrap_err());
    is_lost(device.upload(buf, 0, &[7; 64]).unwrap_err());
    is_lost(device.compile(&[]).unwrap_err());
    is_lost(device.submit(&[]).unwrap_err());
    is_lost(device.read(view).unwrap_err());
    assert!(open().unwrap().alloc(8).is_ok());
}

/// A device of Vulkan's is opened by a part of its name or by its number; of one that is not there an error says which are.
#[test]
fn vulkan_devices_are_chosen_by_name() {
    use gradloom::vulkan::{VulkanDevice, list};
    if here::device("vulkan", VulkanDevice::new()).is_none() {
        return;
    }
    let all: Vec<String> = list().unwrap().into_iter().map(|d| d.0).collect();
    // Mesa's software driver where it is, else whatever is first
    let name = |d: &String| d.split_whitespace().next().unwrap_or_default().to_uppercase();
    let name = if all.iter().any(|d| d.contains("llvmpipe")) { "LLVMpipe".into() } else { name(&all[0]) };
    let device = VulkanDevice::named(&name).unwrap();
    assert!(device.description().to_uppercase().contains(&name.to_uppercase()), "{}", device.description());
    for name in [format!("vulkan:{name}"), "vulkan:0".into()] {
        assert_eq!(gradloom::open(&name, 1).unwrap().target().name, "vulkan", "{name}");
    }
    for name in ["vulkan:toaster", "vulkan:99", "vulkan:"] {
        let e = gradloom::open(name, 1).err().expect("there is none");
        assert!(matches!(e, gradloom_core::Error::Device { .. }), "{name}: {e}");
        assert!(all.iter().all(|d| e.to_string().contains(d.as_str())), "{name}: {e}");
    }
}

/// More is allocated and freed than the device has memory for at once, and what is under way keeps its bytes.
#[test]
fn places_of_vulkan_memory_are_used_again() {
    use gradloom_core::device::View;
    let Some(mut device) = here::device("vulkan", gradloom::vulkan::VulkanDevice::new()) else { return };
    let bytes = 40 << 20;
    for i in 0..64u8 {
        let buf = device.alloc(bytes).unwrap();
        device.upload(buf, bytes - 16, &[i + 1; 16]).unwrap();
        let ticket = device.read(View { buf, offset: bytes - 32, bytes: 32 }).unwrap();
        device.free(buf);
        let other = device.alloc(1000).unwrap();
        device.upload(other, 0, &[0xff; 1000]).unwrap();
        assert_eq!(device.poll(ticket).unwrap(), Some([[0; 16], [i + 1; 16]].concat()));
        device.free(other);
    }
}
