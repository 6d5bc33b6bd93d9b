//! Finds the devices that OpenCL's drivers offer, and reads their capabilities.

use super::error;
use gradloom_core::Result;
use gradloom_core::target::{Limits, Target};
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device};
use opencl3::error_codes::ClError;
use opencl3::platform::get_platforms;
use std::sync::Mutex;

/// Error codes of the OpenCL loader: it has no library, or no platform.
const NO_LIBRARY: i32 = -2000;
const NO_PLATFORM: i32 = -1001;

/// Bits of `CL_DEVICE_SINGLE_FP_CONFIG`.
const SUBNORMALS: u64 = 1;
const EXACT_QUOTIENTS: u64 = 1 << 7;

/// The compiler options for the language version that all drivers support, and for the one with the optional features.
pub(super) const OLDEST: &str = "-cl-std=CL1.2";
/// See [`OLDEST`].
pub(super) const NEWER: &str = "-cl-std=CL3.0";

/// Held while drivers are queried: pocl 3.1 offers no device to a thread that asks while another thread makes it start.
static FINDING: Mutex<()> = Mutex::new(());

/// A device that is not opened yet.
pub(super) struct Found {
    pub(super) device: Device,
    pub(super) target: Target,
    pub(super) description: String,
    /// The options for compiling its kernels.
    pub(super) options: String,
    pub(super) notes: Vec<String>,
    pub(super) can: DeviceCapabilities,
    /// Whether it is a processor.
    pub(super) processor: bool,
    rank: (u8, u64),
}

/// The optional features that kernels for hardware GPUs may use on a device.
#[derive(Clone, Copy, Default)]
pub(super) struct DeviceCapabilities {
    /// Whether it has `cl_khr_integer_dot_product`, dot products of words of four bytes.
    pub(super) dots: bool,
    /// The subgroup size that a kernel can request and exchange values in; 0 without such exchanges.
    pub(super) subgroup: u32,
}

impl DeviceCapabilities {
    fn ask(d: &Device) -> DeviceCapabilities {
        // Both come with OpenCL C 3.0; a driver for 1.2 does not know the query
        let versions = d.opencl_c_all_versions().unwrap_or_default();
        if !versions.iter().any(|v| v.version >> MAJOR >= 3) {
            return DeviceCapabilities::default();
        }
        let all = d.extensions().unwrap_or_default();
        let has = |name: &str| all.split_whitespace().any(|e| e == name);
        // Sizes are of type size_t
        let sizes = d.get_data(SUBGROUP_SIZES).unwrap_or_default();
        let sizes = sizes.chunks_exact(size_of::<usize>()).filter_map(|b| b.try_into().ok().map(usize::from_ne_bytes));
        let size = sizes.filter(|n| n.is_power_of_two() && *n <= LARGEST).max().unwrap_or(0) as u32;
        let exchange = has("cl_khr_subgroup_shuffle") && has("cl_intel_required_subgroup_size");
        DeviceCapabilities { dots: has("cl_khr_integer_dot_product"), subgroup: if exchange { size } else { 0 } }
    }
}

/// The position of the major number in a version word.
const MAJOR: u32 = 22;
/// `CL_DEVICE_SUB_GROUP_SIZES_INTEL`.
const SUBGROUP_SIZES: u32 = 0x4108;
/// The largest subgroup size to use: where there is a choice, threads of larger subgroups have fewer registers each.
const LARGEST: usize = 32;

/// The devices of all drivers, described for users, the best first: `opencl:1` is the second.
///
/// # Errors
/// [`gradloom_core::Error::Device`] if there is none.
pub fn list() -> Result<Vec<String>> {
    Ok(find()?.into_iter().map(|f| f.description).collect())
}

pub(super) fn find() -> Result<Vec<Found>> {
    let _one = FINDING.lock().unwrap_or_else(|e| e.into_inner());
    let platforms = get_platforms().map_err(|e| match e.0 {
        NO_LIBRARY => {
            error("no OpenCL library on this machine: install a driver, or ocl-icd and pocl to use the processor")
        }
        NO_PLATFORM => {
            error("an OpenCL library without a driver: install that of the GPU, or pocl to use the processor")
        }
        _ => error(format!("OpenCL gives no platforms: {e}")),
    })?;
    let mut found = Vec::new();
    let mut refused = Vec::new();
    for platform in &platforms {
        // A platform without devices reports that as an error
        for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let device = Device::new(id);
            match describe(&device) {
                Ok(Ok(f)) => found.push(f),
                Ok(Err(why)) => refused.push(why),
                Err(e) => refused.push(format!("a device that does not say what it is ({e})")),
            }
        }
    }
    if found.is_empty() {
        let why = if refused.is_empty() { "no device".into() } else { refused.join("; ") };
        return Err(error(format!("OpenCL drivers offer no device of use: {why}")));
    }
    found.sort_by(|a, b| b.rank.cmp(&a.rank));
    Ok(found)
}

/// Reads the properties of a device, or gives the reason why it cannot be used.
fn describe(d: &Device) -> std::result::Result<std::result::Result<Found, String>, ClError> {
    let kind = d.dev_type()?;
    let (name, driver) = (d.name()?, d.driver_version()?);
    let description = format!("{} ({}, driver {})", name.trim(), d.vendor()?.trim(), driver.trim());
    let usable = d.available()? && d.compiler_available()? && d.endian_little()?;
    if !usable {
        return Ok(Err(format!("{description} is not available, has no compiler, or is big-endian")));
    }
    let floats = d.single_fp_config()?;
    let mut notes = Vec::new();
    let mut options = String::from(OLDEST);
    if floats & EXACT_QUOTIENTS != 0 {
        options.push_str(" -cl-fp32-correctly-rounded-divide-sqrt");
    } else {
        notes.push("quotients are within 2.5 ulp and square roots within 3".into());
    }
    if floats & SUBNORMALS == 0 {
        notes.push("subnormal numbers are zero".into());
    }
    let plain = Target::opencl("opencl");
    let plain = if d.double_fp_config().unwrap_or(0) != 0 { plain.with_f64() } else { plain };
    let plain = if kind & CL_DEVICE_TYPE_CPU != 0 { plain.emulated_without_loop_limit() } else { plain };
    let sizes = d.max_work_item_sizes()?;
    let size = |i: usize| sizes.get(i).map_or(1, |&n| u32::try_from(n).unwrap_or(u32::MAX));
    let limits = Limits {
        max_local: [size(0), size(1), size(2)],
        max_local_total: u32::try_from(d.max_work_group_size()?).unwrap_or(u32::MAX),
        workgroup_bytes: usize::try_from(d.local_mem_size()?).unwrap_or(usize::MAX),
        // A buffer takes a pointer and an offset, and some bytes are left for launch scalars
        max_buffers: (d.max_parameter_size()? / 16).saturating_sub(8).clamp(1, 64),
        max_buffer_bytes: usize::try_from(d.max_mem_alloc_size()?).unwrap_or(usize::MAX),
        ..plain.limits
    };
    let target = Target { limits, ..plain };
    let class = match kind {
        k if k & CL_DEVICE_TYPE_GPU != 0 => 2,
        k if k & CL_DEVICE_TYPE_CPU != 0 => 0,
        _ => 1,
    };
    let speed = u64::from(d.max_compute_units()?) * u64::from(d.max_clock_frequency()?);
    let (can, processor) = (DeviceCapabilities::ask(d), class == 0);
    let rank = (class, speed);
    Ok(Ok(Found { device: Device::new(d.id()), target, description, options, notes, can, processor, rank }))
}
