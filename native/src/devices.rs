//! Opens devices by name. Each back end adds its line to [`open`] and to [`NAMES`].

use crate::choose::{canonical, choose};
use crate::contain::contain;
use gradloom_core::device::{Device, EvalDevice, NullDevice};
use gradloom_core::target::{Isa, MatrixTile, Sm, Target};
use gradloom_core::{Error, Result};

/// Every name that [`open`] accepts, in order of preference, with a description for users.
pub const NAMES: &[(&str, &str)] = &[
    ("cpu", "machine code for this processor"),
    ("cpu:avx2", "the same, held to AVX2"),
    ("cpu:avx512", "the same, held to AVX-512 without dot products"),
    ("cpu:neon", "the same on AArch64, held to what each such processor has"),
    (
        "cpu:guarded",
        "the same, with a page that nobody may touch behind each buffer, to find kernels that leave theirs",
    ),
    ("wgpu", "GPU through Vulkan, Metal or Direct3D 12"),
    ("wgpu:hardware", "the same, with kernels as for hardware even if a processor emulates the GPU"),
    ("metal", "GPU of Apple's through Metal, on macOS"),
    ("vulkan", "GPU through Vulkan; `vulkan:1` is the second there is, `vulkan:amd` the first of that vendor or name"),
    ("vulkan:hardware", "the same, with kernels as for hardware even if a processor emulates the GPU"),
    ("cuda", "GPU of NVIDIA's through its driver; `cuda:1` is the second there is"),
    ("opencl", "GPU or processor through OpenCL; `opencl:1` is the second there is"),
    ("opencl:hardware", "the same, with kernels as for hardware even if it is a processor"),
    ("llvm", "LLVM, if it is installed (libLLVM 15 to 22)"),
    ("inkwell", "LLVM 22, linked into this build"),
    ("c", "C through the system's compiler"),
    ("c:metal", "kernels for Metal, compiled as C++ for this processor by clang, to test them"),
    ("c:cuda", "kernels in CUDA C++, in the same way"),
    ("c:hip", "kernels in HIP C++, in the same way"),
    ("eval", "reference interpreter"),
    ("null", "compiles for the processor and runs nothing"),
    ("null:arm64", "compiles for AArch64 and runs nothing"),
    ("null:wgsl", "writes shaders for a GPU with WebGPU's least limits, and runs nothing"),
    ("null:wgsl-hardware", "the same for a common GPU: with subgroups and f16"),
    ("null:wgsl-software", "the same for a GPU that a processor emulates"),
    ("null:tiles", "compiles for a GPU that multiplies matrix tiles, and runs nothing"),
    ("null:cuda", "writes PTX for a GPU of compute capability 9.0, and runs nothing"),
    ("null:wasm", "compiles to WebAssembly and runs nothing"),
];

/// Opens a device by its name, in upper or lower case; `auto` opens what [`crate::choose`] chooses. `threads` is the
/// number of threads of CPU devices; 0 means one per core.
///
/// A panic in a driver becomes `E_INTERNAL`.
pub fn open(name: &str, threads: usize) -> Result<Box<dyn Device>> {
    contain(|| open_named(&canonical(name), threads))
}

fn open_named(name: &str, threads: usize) -> Result<Box<dyn Device>> {
    match name {
        "auto" => Ok(choose(threads)?.device),
        "cpu" => open_cpu(None, threads),
        "cpu:avx2" => open_cpu(Some(Isa::Avx2), threads),
        "cpu:avx512" => open_cpu(Some(Isa::Avx512), threads),
        "cpu:neon" => open_neon(threads),
        "cpu:guarded" => open_guarded(threads),
        "wgpu" => open_wgpu(false),
        "wgpu:hardware" => open_wgpu(true),
        "metal" => open_metal(),
        "vulkan" => open_vulkan("0", false),
        "vulkan:hardware" => open_vulkan("0", true),
        "cuda" => open_cuda(0),
        "opencl" => open_opencl(0, false),
        "opencl:hardware" => open_opencl(0, true),
        "llvm" => open_llvm(threads),
        "inkwell" => open_inkwell(threads),
        "c" => Ok(Box::new(crate::c::CDevice::new()?)),
        "eval" => Ok(Box::new(EvalDevice::default())),
        "null" => Ok(Box::new(NullDevice::new(Target::x86(Isa::Avx2, threads.max(1))))),
        "null:arm64" => Ok(Box::new(NullDevice::new(Target { name: name.into(), ..Target::arm64(threads.max(1)) }))),
        "null:wgsl" => Ok(Box::new(NullDevice::new(Target::wgsl(name)))),
        "null:wgsl-hardware" => {
            let mut large = Target::wgsl(name).with_f16().with_words().with_subgroup(32);
            large.limits.workgroup_bytes = 32 << 10;
            large.limits.max_buffer_bytes = 1 << 30;
            Ok(Box::new(NullDevice::new(large)))
        }
        "null:wgsl-software" => Ok(Box::new(NullDevice::new(Target::wgsl(name).emulated()))),
        "null:tiles" => {
            let tiles = [MatrixTile::sm80(), MatrixTile::subgroup_matrix()].concat();
            Ok(Box::new(NullDevice::new(Target::matrix(name, tiles))))
        }
        "null:cuda" => Ok(Box::new(NullDevice::new(Target::cuda(name, Sm::of(9, 0).expect("the table has it"))))),
        "null:wasm" => {
            Ok(Box::new(NullDevice::new(Target { name: name.into(), ..Target::wasm(true, threads.max(1)) })))
        }
        _ => {
            if let Some(wanted) = name.strip_prefix("vulkan:") {
                return open_vulkan(wanted, false);
            }
            if let Some(index) = name.strip_prefix("cuda:").and_then(|n| n.parse().ok()) {
                return open_cuda(index);
            }
            if let Some(index) = name.strip_prefix("opencl:").and_then(|n| n.parse().ok()) {
                return open_opencl(index, false);
            }
            if let Some(language) = name.strip_prefix("c:").filter(|_| NAMES.iter().any(|n| n.0 == name)) {
                return Ok(Box::new(crate::c::CDevice::host(language)?));
            }
            let known: Vec<&str> = NAMES.iter().map(|n| n.0).collect();
            let what = format!("no device `{name}`; there are auto, {}", known.join(", "));
            Err(Error::Device { device: name.into(), what })
        }
    }
}

#[cfg(all(any(unix, windows), target_arch = "x86_64"))]
fn open_cpu(isa: Option<Isa>, threads: usize) -> Result<Box<dyn Device>> {
    use crate::cpu::CpuDevice;
    Ok(match isa {
        Some(isa) => Box::new(CpuDevice::with_isa(isa, threads)?),
        None => Box::new(CpuDevice::new(threads)?),
    })
}

#[cfg(all(any(unix, windows), target_arch = "aarch64"))]
fn open_cpu(isa: Option<Isa>, threads: usize) -> Result<Box<dyn Device>> {
    match isa {
        Some(isa) => Err(Error::Unsupported { what: format!("{isa:?} on AArch64"), context: "device cpu".into() }),
        None => Ok(Box::new(crate::cpu::CpuDevice::new(threads)?)),
    }
}

#[cfg(not(all(any(unix, windows), any(target_arch = "aarch64", target_arch = "x86_64"))))]
fn open_cpu(_isa: Option<Isa>, _threads: usize) -> Result<Box<dyn Device>> {
    let what = "machine code for a processor other than x86-64 and AArch64";
    Err(Error::Unsupported { what: what.into(), context: "device cpu".into() })
}

#[cfg(all(any(unix, windows), target_arch = "aarch64"))]
fn open_neon(threads: usize) -> Result<Box<dyn Device>> {
    Ok(Box::new(crate::cpu::CpuDevice::neon(threads)?))
}

#[cfg(not(all(any(unix, windows), target_arch = "aarch64")))]
fn open_neon(_threads: usize) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported { what: "a processor other than AArch64".into(), context: "device cpu:neon".into() })
}

#[cfg(all(any(unix, windows), any(target_arch = "aarch64", target_arch = "x86_64")))]
fn open_guarded(threads: usize) -> Result<Box<dyn Device>> {
    Ok(Box::new(crate::cpu::CpuDevice::new(threads)?.with_guard(crate::memory::Guard::After)))
}

#[cfg(not(all(any(unix, windows), any(target_arch = "aarch64", target_arch = "x86_64"))))]
fn open_guarded(threads: usize) -> Result<Box<dyn Device>> {
    open_cpu(None, threads)
}

#[cfg(unix)]
fn open_llvm(threads: usize) -> Result<Box<dyn Device>> {
    Ok(Box::new(crate::llvm::open(threads)?))
}

#[cfg(not(unix))]
fn open_llvm(_threads: usize) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported { what: "a system that is no unix".into(), context: "device llvm".into() })
}

#[cfg(all(unix, feature = "inkwell"))]
fn open_inkwell(threads: usize) -> Result<Box<dyn Device>> {
    Ok(Box::new(crate::llvm::open_linked(threads)?))
}

#[cfg(not(all(unix, feature = "inkwell")))]
fn open_inkwell(_threads: usize) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported {
        what: "linked LLVM in this build: it lacks the feature `inkwell`".into(),
        context: "device inkwell".into(),
    })
}

#[cfg(feature = "wgpu")]
fn open_wgpu(hardware: bool) -> Result<Box<dyn Device>> {
    let mut device = crate::wgpu::WgpuDevice::new()?;
    if hardware {
        device.as_hardware();
    }
    Ok(Box::new(device))
}

#[cfg(not(feature = "wgpu"))]
fn open_wgpu(_hardware: bool) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported {
        what: "GPUs in this build: it lacks the feature `wgpu`".into(),
        context: "device wgpu".into(),
    })
}

#[cfg(feature = "vulkan")]
fn open_vulkan(wanted: &str, hardware: bool) -> Result<Box<dyn Device>> {
    let mut device = crate::vulkan::VulkanDevice::named(wanted)?;
    if hardware {
        device.as_hardware();
    }
    Ok(Box::new(device))
}

#[cfg(not(feature = "vulkan"))]
fn open_vulkan(_wanted: &str, _hardware: bool) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported {
        what: "Vulkan in this build: it lacks the feature `vulkan`".into(),
        context: "device vulkan".into(),
    })
}

#[cfg(feature = "cuda")]
fn open_cuda(index: usize) -> Result<Box<dyn Device>> {
    Ok(Box::new(crate::cuda::CudaDevice::new(index)?))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_index: usize) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported {
        what: "CUDA in this build: it lacks the feature `cuda`".into(),
        context: "device cuda".into(),
    })
}

#[cfg(feature = "opencl")]
fn open_opencl(index: usize, hardware: bool) -> Result<Box<dyn Device>> {
    let mut device = crate::opencl::OpenClDevice::with_index(index)?;
    if hardware {
        device.as_hardware();
    }
    Ok(Box::new(device))
}

#[cfg(not(feature = "opencl"))]
fn open_opencl(_index: usize, _hardware: bool) -> Result<Box<dyn Device>> {
    Err(Error::Unsupported {
        what: "OpenCL in this build: it lacks the feature `opencl`".into(),
        context: "device opencl".into(),
    })
}

#[cfg(target_os = "macos")]
fn open_metal() -> Result<Box<dyn Device>> {
    Ok(Box::new(crate::metal::MetalDevice::new()?))
}

#[cfg(not(target_os = "macos"))]
fn open_metal() -> Result<Box<dyn Device>> {
    Err(Error::Unsupported { what: "a system that is not macOS".into(), context: "device metal".into() })
}
