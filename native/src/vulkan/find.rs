//! Finds the devices that Vulkan's drivers offer, and reads their capabilities.

use super::error;
use ash::vk;
use gradloom_core::Result;
use gradloom_core::target::{Caps, Limits, Target};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

/// The most storage buffers of one kernel; more than any of our kernels has.
const MOST_BUFFERS: u32 = 64;
/// Vendors of GPUs by their PCI numbers, since not every device's name contains its vendor's.
const VENDORS: [(&str, u32); 4] = [("amd", 0x1002), ("apple", 0x106b), ("intel", 0x8086), ("nvidia", 0x10de)];

/// The Vulkan loader with its drivers.
pub(super) struct Instance {
    pub(super) raw: ash::Instance,
    _entry: ash::Entry,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: whatever was made of it holds it, and so is gone
        unsafe { self.raw.destroy_instance(None) }
    }
}

/// A device that is not opened yet.
pub(super) struct Found {
    pub(super) instance: Arc<Instance>,
    pub(super) physical: vk::PhysicalDevice,
    pub(super) family: u32,
    pub(super) description: String,
    pub(super) vendor: u32,
    pub(super) target: Target,
    pub(super) can: DeviceCapabilities,
    /// Identifies the driver and its version.
    pub(super) identity: String,
    rank: (u8, u64),
}

/// Capabilities beyond the required ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceCapabilities {
    pub(super) f16: bool,
    /// The number of threads in the smallest subgroup whose threads can exchange values (shuffle); 0 without shuffles.
    pub(super) subgroup: u32,
    /// Whether there is an instruction for dot products of words of four bytes.
    pub(super) dots: bool,
    /// For which widths of floats (in bits) infinities, NaN and the sign of zero are preserved if a shader requests it.
    pub(super) special: [Option<u32>; 2],
    /// The nanoseconds of one clock tick, and the number of valid bits; `None` without a clock.
    pub(super) clock: Option<(f32, u32)>,
    /// Whether the device uses the processor's memory, which it reads at full speed.
    pub(super) shares_memory: bool,
    /// The device's memory in bytes.
    pub(super) heap_bytes: u64,
    pub(super) uniform_alignment: u64,
}

/// The devices of all drivers, described for users, with their memory in bytes; the best first, so
/// `vulkan:1` is the second.
///
/// # Errors
/// [`gradloom_core::Error::Device`] if there is none.
pub fn list() -> Result<Vec<(String, u64)>> {
    Ok(find()?.into_iter().map(|f| (f.description, f.can.heap_bytes)).collect())
}

/// Is the best device hardware rather than a software driver? No device is opened to answer this.
pub fn has_hardware() -> bool {
    find().is_ok_and(|found| found.first().is_some_and(|f| !f.target.machine.software))
}

/// The index of the device that `wanted` names, of devices given by description and vendor: its index as a number, else
/// the first one of a vendor, or with `wanted` as a part of its description, in upper or lower case. The error lists all
/// devices.
pub(super) fn index_of(wanted: &str, devices: &[(&str, u32)]) -> Result<usize> {
    let wanted = wanted.trim().to_lowercase();
    let vendor = VENDORS.iter().find(|v| v.0 == wanted).map(|v| v.1);
    let is_named = |d: &(&str, u32)| vendor == Some(d.1) || d.0.to_lowercase().contains(&wanted);
    let found = match wanted.parse::<usize>() {
        Ok(index) => Some(index).filter(|&i| i < devices.len()),
        Err(_) if wanted.is_empty() => None,
        Err(_) => devices.iter().position(is_named),
    };
    found.ok_or_else(|| {
        let all = devices.iter().enumerate().map(|(i, d)| format!("vulkan:{i}, {}", d.0));
        error(format!("there is no device `{wanted}`; drivers offer {}", all.collect::<Vec<_>>().join("; ")))
    })
}

pub(super) fn find() -> Result<Vec<Found>> {
    let instance = shared_instance()?;
    // SAFETY: the instance lives
    let physical = unsafe { instance.raw.enumerate_physical_devices() };
    let physical = physical.map_err(|e| error(format!("drivers give no devices: {e}")))?;
    let mut found = Vec::new();
    let mut refused = Vec::new();
    for p in physical {
        match describe(&instance, p) {
            Ok(f) => found.push(f),
            Err(why) => refused.push(why),
        }
    }
    if found.is_empty() {
        let why = match refused.is_empty() {
            true => "a Vulkan loader without a driver: install that of the GPU, or Mesa's to use the processor".into(),
            false => format!("no device of use: {}", refused.join("; ")),
        };
        return Err(error(why));
    }
    found.sort_by(|a, b| b.rank.cmp(&a.rank));
    Ok(found)
}

/// The Vulkan instance of the process. It keeps the drivers loaded, because some can be loaded a few dozen times only.
fn shared_instance() -> Result<Arc<Instance>> {
    static SHARED: Mutex<Option<Arc<Instance>>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(instance) = &*shared {
        return Ok(instance.clone());
    }
    let made = Arc::new(instance()?);
    *shared = Some(made.clone());
    Ok(made)
}

fn instance() -> Result<Instance> {
    // SAFETY: the loader is the system's own library
    let entry = unsafe { ash::Entry::load() };
    let entry = entry.map_err(|_| error("no Vulkan library on this machine: install the driver of the GPU"))?;
    let name = c"gradloom";
    let app = vk::ApplicationInfo::default().engine_name(name).application_name(name).api_version(vk::API_VERSION_1_3);
    // SAFETY: the loader is loaded
    let offered = unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
    let portable = ash::khr::portability_enumeration::NAME;
    let has_portable = offered.iter().any(|e| e.extension_name_as_c_str() == Ok(portable));
    let extensions = if has_portable { vec![portable.as_ptr()] } else { Vec::new() };
    let flags = if has_portable {
        vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR
    } else {
        vk::InstanceCreateFlags::empty()
    };
    let what =
        vk::InstanceCreateInfo::default().application_info(&app).enabled_extension_names(&extensions).flags(flags);
    // SAFETY: the description and what it points to live until the call returns
    let raw = unsafe { entry.create_instance(&what, None) };
    let raw = raw.map_err(|e| {
        error(match e {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
                "a Vulkan loader without a driver: install that of the GPU, or Mesa's to use the processor".into()
            }
            e => format!("Vulkan does not start: {e}"),
        })
    })?;
    Ok(Instance { raw, _entry: entry })
}

/// Reads the properties of a device, or gives the reason why it cannot be used.
fn describe(instance: &Arc<Instance>, physical: vk::PhysicalDevice) -> std::result::Result<Found, String> {
    let raw = &instance.raw;
    // SAFETY: the device is one of this instance's
    let plain = unsafe { raw.get_physical_device_properties(physical) };
    let name = text(&plain.device_name);
    if plain.api_version < vk::API_VERSION_1_2 {
        return Err(format!("{name} has a driver older than Vulkan 1.2"));
    }
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut subgroups = vk::PhysicalDeviceSubgroupProperties::default();
    let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
    let mut third = vk::PhysicalDeviceMaintenance3Properties::default();
    let mut floats = vk::PhysicalDeviceFloatControlsProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut driver).push_next(&mut subgroups);
    all = all.push_next(&mut third).push_next(&mut floats);
    let newer = plain.api_version >= vk::API_VERSION_1_3;
    if newer {
        all = all.push_next(&mut sizes);
    }
    // SAFETY: the chain is of structures of the driver's version
    unsafe { raw.get_physical_device_properties2(physical, &mut all) };
    let mut old = vk::PhysicalDeviceVulkan11Features::default();
    let mut two = vk::PhysicalDeviceVulkan12Features::default();
    let mut three = vk::PhysicalDeviceVulkan13Features::default();
    let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut old).push_next(&mut two);
    if newer {
        features = features.push_next(&mut three);
    }
    // SAFETY: the same
    unsafe { raw.get_physical_device_features2(physical, &mut features) };
    let version = text(&driver.driver_info);
    let version = if version.is_empty() { plain.driver_version.to_string() } else { version };
    let description = format!("{name} ({} {version})", text(&driver.driver_name));
    if two.timeline_semaphore == vk::FALSE {
        return Err(format!("{description} has no timeline semaphores"));
    }
    // SAFETY: the device is one of this instance's
    let families = unsafe { raw.get_physical_device_queue_family_properties(physical) };
    let family = families.iter().position(|f| f.queue_flags.contains(vk::QueueFlags::COMPUTE));
    let family = family.ok_or_else(|| format!("{description} computes nothing"))?;
    // SAFETY: the same
    let memory = unsafe { raw.get_physical_device_memory_properties(physical) };
    let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
    let own = heaps.iter().filter(|h| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)).map(|h| h.size).max();
    let heap_bytes = own.unwrap_or(0);
    let kind = plain.device_type;
    let exchanges = subgroups.supported_operations.contains(vk::SubgroupFeatureFlags::SHUFFLE)
        && subgroups.supported_stages.contains(vk::ShaderStageFlags::COMPUTE);
    let least = if newer { sizes.min_subgroup_size } else { subgroups.subgroup_size };
    let bits = families[family].timestamp_valid_bits;
    let can = DeviceCapabilities {
        f16: two.shader_float16 & old.storage_buffer16_bit_access & old.uniform_and_storage_buffer16_bit_access != 0,
        subgroup: if exchanges { least } else { 0 },
        special: [
            (16, floats.shader_signed_zero_inf_nan_preserve_float16),
            (32, floats.shader_signed_zero_inf_nan_preserve_float32),
        ]
        .map(|(bits, has)| (has != vk::FALSE).then_some(bits)),
        dots: three.shader_integer_dot_product != 0,
        clock: (bits > 0).then_some((plain.limits.timestamp_period, bits)),
        shares_memory: matches!(kind, vk::PhysicalDeviceType::INTEGRATED_GPU | vk::PhysicalDeviceType::CPU),
        heap_bytes,
        uniform_alignment: plain.limits.min_uniform_buffer_offset_alignment.max(16),
    };
    let class = match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => 4,
        vk::PhysicalDeviceType::INTEGRATED_GPU => 3,
        vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
        vk::PhysicalDeviceType::CPU => 0,
        _ => 1,
    };
    Ok(Found {
        instance: instance.clone(),
        physical,
        family: family as u32,
        target: target(&plain.limits, kind, third.max_memory_allocation_size.min(heap_bytes)),
        can,
        identity: format!("{description} {:x} {:x} {:x?}", plain.vendor_id, plain.device_id, plain.pipeline_cache_uuid),
        description,
        vendor: plain.vendor_id,
        rank: (class, heap_bytes),
    })
}

fn target(l: &vk::PhysicalDeviceLimits, kind: vk::PhysicalDeviceType, most_bytes: u64) -> Target {
    let plain = Target::wgsl("vulkan");
    let plain = if kind == vk::PhysicalDeviceType::CPU { plain.emulated_without_loop_limit() } else { plain };
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let buffers = l.max_per_stage_descriptor_storage_buffers.min(l.max_descriptor_set_storage_buffers);
    let limits = Limits {
        max_grid: l.max_compute_work_group_count.map(|n| n.min(i32::MAX as u32)),
        max_local: l.max_compute_work_group_size,
        max_local_total: l.max_compute_work_group_invocations,
        workgroup_bytes: l.max_compute_shared_memory_size as usize,
        max_buffers: buffers.min(l.max_per_stage_resources.saturating_sub(1)).min(MOST_BUFFERS) as usize,
        max_buffer_bytes: size(u64::from(l.max_storage_buffer_range).min(most_bytes)),
        // 16, so that a view whose elements are vec4 begins at a whole element
        offset_alignment: size(l.min_storage_buffer_offset_alignment).max(16),
        ..plain.limits
    };
    Target { caps: Caps { shared_allocations: true, ..plain.caps }, limits, ..plain }
}

/// The string in an array of fixed length, up to its zero byte.
fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |s| s.to_string_lossy().trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_chosen_by_number_vendor_or_part_of_their_names() {
        let all = [
            ("Tesla T4 (NVIDIA 470.256)", 0x10de),
            ("AMD Radeon RX 7900 XTX (RADV NAVI31) (radv Mesa 24.0.5)", 0x1002),
            ("Intel(R) Arc(tm) A770 Graphics (DG2) (Intel open-source Mesa driver Mesa 24.0.5)", 0x8086),
            ("NVIDIA GeForce RTX 4090 (NVIDIA 550.54)", 0x10de),
            ("llvmpipe (LLVM 15.0.6, 256 bits) (llvmpipe Mesa 22.3.6 (LLVM 15.0.6))", 0x10005),
        ];
        for (wanted, index) in [
            ("0", 0),
            ("4", 4),
            ("nvidia", 0),
            ("NVIDIA GeForce", 3),
            ("amd", 1),
            ("Intel", 2),
            ("llvmpipe", 4),
            (" rx 7900 ", 1),
            ("arc", 2),
            ("radv", 1),
        ] {
            assert_eq!(index_of(wanted, &all).unwrap(), index, "{wanted}");
        }
        // A number is an index alone
        for wanted in ["5", "4090", "-1", "toaster", "apple", ""] {
            let e = index_of(wanted, &all).unwrap_err();
            assert_eq!(e.code(), "E_DEVICE");
            let text = e.to_string();
            assert!(text.contains(&format!("`{wanted}`")), "{text}");
            for (i, (description, _)) in all.iter().enumerate() {
                assert!(text.contains(&format!("vulkan:{i}, {description}")), "{text}");
            }
        }
    }
}
