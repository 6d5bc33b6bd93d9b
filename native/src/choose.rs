//! Chooses the device that `auto` means, translates device names, describes the devices of this machine,
//! and measures their speed.
//!
//! `auto` asks the drivers and takes the first hardware GPU, never one that is emulated in software; if there is none,
//! it takes the processor.

use crate::devices::{self, NAMES};
use crate::{NativeHost, Runtime, Tensor};
use gradloom_core::device::Device;
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use std::time::Instant;

/// The environment variable that names the device for `auto`. It accepts our names and those of tinygrad: `CPU`,
/// `CUDA:1`, `CL`, `CPU:LLVM`.
pub const DEVICE_VARIABLE: &str = "DEV";

/// The GPU back ends that `auto` tries, the fastest first. Metal has to be named: it has not been tested on
/// its hardware yet.
const GPUS: [&str; 3] = ["cuda", "vulkan", "wgpu"];
/// The devices that `auto` tries on processors for which there is no machine-code emitter, the fastest first.
const OTHERS: [&str; 3] = ["llvm", "c", "eval"];

/// The device that `auto` chose.
pub struct Choice {
    /// The device.
    pub device: Box<dyn Device>,
    /// The reason in a sentence, where the choice is not the expected one.
    pub reason: Option<String>,
}

/// Chooses the device for `auto`: the one that [`DEVICE_VARIABLE`] names, else a hardware GPU, else machine code for
/// this processor, else a device that works without an emitter.
///
/// # Errors
/// The errors of opening the device that the variable names.
pub fn choose(threads: usize) -> Result<Choice> {
    if let Some(name) = std::env::var(DEVICE_VARIABLE).ok().filter(|n| !n.trim().is_empty()) {
        let name = canonical(&name);
        if name != "auto" {
            return Ok(Choice { device: devices::open(&name, threads)?, reason: None });
        }
    }
    let gpu = GPUS.into_iter().filter(|name| may_be_hardware(name)).find_map(|name| {
        let device = devices::open(name, threads).ok()?;
        (!device.target().machine.software).then_some(device)
    });
    match gpu.map_or_else(|| devices::open("cpu", threads), Ok) {
        Ok(device) => Ok(Choice { device, reason: None }),
        Err(why) => without_emitter(&why, &|name| devices::open(name, threads)),
    }
}

/// Opens the first of [`OTHERS`] that can be opened; `why` is the error of the emitter's device.
fn without_emitter(why: &Error, open: &dyn Fn(&str) -> Result<Box<dyn Device>>) -> Result<Choice> {
    let mut failed = None;
    for name in OTHERS {
        match open(name) {
            Ok(device) => return Ok(Choice { device, reason: Some(format!("computing with {name}, because {why}")) }),
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    Err(failed.unwrap_or_else(|| why.clone()))
}

/// Is the back end worth opening? Answers no where a check that is cheaper than opening it shows that there
/// is no hardware.
fn may_be_hardware(name: &str) -> bool {
    match name {
        #[cfg(feature = "cuda")]
        "cuda" => crate::cuda::has_hardware(),
        #[cfg(feature = "vulkan")]
        "vulkan" => has_nodes("/dev".as_ref()) && crate::vulkan::has_hardware(),
        // On other systems wgpu uses Vulkan, which was asked already
        "wgpu" => cfg!(feature = "wgpu") && (cfg!(any(windows, target_vendor = "apple")) || !cfg!(feature = "vulkan")),
        _ => NAMES.iter().any(|n| n.0 == name),
    }
}

/// Does this folder (`/dev`) have a file of a GPU driver? Asking the drivers themselves takes tens of milliseconds,
/// since the software driver is one of them. On systems other than Linux only the drivers know, so the answer is yes.
#[cfg(feature = "vulkan")]
fn has_nodes(folder: &std::path::Path) -> bool {
    // Graphics cards; NVIDIA's drivers; Windows' GPU in its Linux subsystem; GPUs of single-board computers
    // and telephones
    const NODES: [&str; 8] = ["dri", "nvidia", "nvhost", "nvgpu", "dxg", "kgsl", "mali", "pvr"];
    let Ok(files) = std::fs::read_dir(folder) else { return true };
    let is_node = |f: std::fs::DirEntry| NODES.iter().any(|n| f.file_name().to_string_lossy().starts_with(n));
    !cfg!(target_os = "linux") || files.filter_map(std::result::Result::ok).any(is_node)
}

/// The name as [`devices::open`] accepts it: in lower case, and tinygrad's names translated.
pub fn canonical(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let (kind, rest) = name.split_once(':').map_or((name.as_str(), None), |(k, r)| (k, Some(r)));
    let kind = match (kind, rest) {
        ("cpu", Some("llvm")) => return "llvm".into(),
        ("cpu", Some("clang")) => return "c".into(),
        ("cpu", Some("x86")) => return "cpu".into(),
        ("cl" | "gpu", _) => "opencl",
        ("clang", _) => "c",
        ("python", _) => "eval",
        ("webgpu", _) => "wgpu",
        (kind, _) => kind,
    };
    rest.map_or(kind.into(), |rest| format!("{kind}:{rest}"))
}

/// A device of this machine, or the reason why it is not available.
pub struct Row {
    /// The name that [`devices::open`] accepts.
    pub name: String,
    /// A description for users.
    pub what: String,
    /// What the opened device reports, or the error of opening it.
    pub open: Result<About>,
}

/// What a device reports about itself.
pub struct About {
    /// The names of the device and of its driver, if it has a driver.
    pub driver: Option<String>,
    /// Its memory in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// Its capabilities and limits.
    pub target: Target,
    /// What its driver gets wrong, a sentence each.
    pub notes: Vec<String>,
}

/// Every device that [`devices::open`] accepts, and all further devices that the drivers offer.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for &(name, what) in NAMES {
        let drivers = drivers(name);
        rows.push(row(name.into(), what.into(), drivers.first()));
        for (i, driver) in drivers.iter().enumerate().skip(1).filter(|_| !name.contains(':')) {
            rows.push(row(format!("{name}:{i}"), "another device of the same drivers".into(), Some(driver)));
        }
    }
    rows
}

fn row(name: String, what: String, driver: Option<&(String, Option<u64>)>) -> Row {
    let about = |device: Box<dyn Device>| About {
        driver: driver.map(|d| d.0.clone()),
        memory_bytes: match driver {
            Some(driver) => driver.1,
            None => {
                if device.target().caps.has_local {
                    None
                } else {
                    host_memory_bytes()
                }
            }
        },
        target: device.target().clone(),
        notes: device.notes().to_vec(),
    };
    let open = devices::open(&name, 0).map(about);
    Row { name, what, open }
}

/// The devices that a back end's drivers offer, each with its memory in bytes.
fn drivers(name: &str) -> Vec<(String, Option<u64>)> {
    match name.split(':').next() {
        #[cfg(feature = "vulkan")]
        Some("vulkan") => crate::vulkan::list().unwrap_or_default().into_iter().map(|d| (d.0, Some(d.1))).collect(),
        #[cfg(feature = "cuda")]
        Some("cuda") => crate::cuda::list().unwrap_or_default().into_iter().map(|d| (d.0, Some(d.1))).collect(),
        #[cfg(feature = "opencl")]
        Some("opencl") => crate::opencl::list().unwrap_or_default().into_iter().map(|d| (d, None)).collect(),
        _ => Vec::new(),
    }
}

/// The memory of this machine in bytes, where the system tells it.
#[cfg(windows)]
fn host_memory_bytes() -> Option<u64> {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
    let mut all = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: the call writes to a structure of the length that stands in it
    let status = unsafe { GlobalMemoryStatusEx(&mut all) };
    (status != 0).then_some(all.ullTotalPhys)
}

/// The memory of this machine in bytes, where `/proc/meminfo` tells it.
#[cfg(not(windows))]
fn host_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse::<u64>();
    Some(kib.ok()? << 10)
}

/// The measured speed of a device.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Operations per second in a square f32 matrix product.
    pub flops_per_s: f64,
    /// Bytes read and written per second in an f32 addition.
    pub bytes_per_s: f64,
}

/// Seconds that one timed run should take at least.
const LONG_ENOUGH_S: f64 = 0.02;
/// The number of timed runs, of which the fastest counts.
const RUNS: usize = 5;
/// The largest side of a matrix, and the largest length of a vector, in elements.
const MAX_SIZES: (usize, usize) = (4096, 1 << 24);

/// Times a matrix product and an addition. Their sizes grow until a run takes [`LONG_ENOUGH_S`].
///
/// # Errors
/// The errors of opening the device and of running it.
pub fn measure(name: &str, threads: usize) -> Result<Measured> {
    let mut rt = Runtime::with_host(devices::open(name, threads)?, NativeHost::without_cache());
    let most_elems = rt.engine().device().target().limits.max_buffer_bytes / 4;
    let mut n = 64;
    let flops_per_s = loop {
        let data = vec![0.5f32; n * n];
        let a = Tensor::new(rt.session(), &data, &[n, n])?;
        let b = Tensor::new(rt.session(), &data, &[n, n])?;
        let s = fastest_s(&mut rt, &a.matmul(&b)?)?;
        if s > LONG_ENOUGH_S || 2 * n > MAX_SIZES.0 || 4 * n * n > most_elems {
            break 2.0 * (n as f64).powi(3) / s;
        }
        n *= 2;
    };
    let mut n = 1 << 12;
    let bytes_per_s = loop {
        let x = Tensor::new(rt.session(), &vec![0.5f32; n], &[n])?;
        let s = fastest_s(&mut rt, &x.add(1.0)?)?;
        if s > LONG_ENOUGH_S || 4 * n > MAX_SIZES.1.min(most_elems) {
            break 8.0 * n as f64 / s;
        }
        n *= 4;
    };
    Ok(Measured { flops_per_s, bytes_per_s })
}

fn fastest_s(rt: &mut Runtime, t: &Tensor) -> Result<f64> {
    let replay = rt.realize(&[t])?;
    rt.engine().device().sync()?;
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        rt.replay(&replay)?;
        rt.engine().device().sync()?;
        let s = start.elapsed().as_secs_f64();
        best = best.min(s);
        if s > 10.0 * LONG_ENOUGH_S {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradloom_core::device::EvalDevice;

    #[test]
    fn names_are_taken_in_any_case_and_of_tinygrad() {
        let names = ["CPU", " Cuda:1 ", "CL", "GPU:2", "CPU:LLVM", "CPU:CLANG", "WEBGPU", "PYTHON", "cpu:AVX2"];
        let ours = ["cpu", "cuda:1", "opencl", "opencl:2", "llvm", "c", "wgpu", "eval", "cpu:avx2"];
        assert_eq!(names.map(canonical), ours);
    }

    #[test]
    fn what_computes_without_an_emitter_says_so() {
        let why = Error::Device { device: "cpu".into(), what: "no AVX2".into() };
        let open = |name: &str| match name {
            "llvm" => Err(Error::Device { device: "llvm".into(), what: "not installed".into() }),
            _ => Ok(Box::new(EvalDevice::default()) as Box<dyn Device>),
        };
        let chosen = without_emitter(&why, &open).unwrap();
        let reason = chosen.reason.unwrap();
        assert!(reason.starts_with("computing with c, because") && reason.contains("no AVX2"), "{reason}");
        let none = |name: &str| Err(Error::Device { device: name.into(), what: "not installed".into() });
        assert!(without_emitter(&why, &none).is_err());
    }

    #[test]
    #[cfg(all(feature = "vulkan", target_os = "linux"))]
    fn drivers_are_asked_where_a_gpu_has_a_file() {
        let folder = std::env::temp_dir().join(format!("gradloom-nodes-{}", std::process::id()));
        assert!(has_nodes(&folder.join("none")), "what cannot be read says nothing");
        for (name, is_gpu) in [("null", false), ("tty0", false), ("nvidiactl", true)] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), []).unwrap();
            assert_eq!(has_nodes(&folder), is_gpu, "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn auto_is_no_emulated_gpu() {
        assert!(!choose(1).unwrap().device.target().machine.software);
    }
}
