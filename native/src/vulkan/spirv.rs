//! Translates WGSL to SPIR-V with naga.
//!
//! Accesses are not clamped to their arrays: programs stay inside their buffers, which the IR's spec checks and
//! `cpu:guarded` tests.

use super::error;
use super::find::DeviceCapabilities;
use gradloom_core::Result;
use naga::back::spv::{
    Capability, Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec,
};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// The words of a SPIR-V module with the entry point `main`.
pub(super) fn translate(name: &str, wgsl: &str, can: &DeviceCapabilities) -> Result<Vec<u32>> {
    // naga enables subgroups without the directive; and since one kernel may read and write parts of one buffer, all
    // are declared read_write
    let text = wgsl.replace("enable subgroups;", "").replace("var<storage, read>", "var<storage, read_write>");
    let bad = |e: String| error(format!("{name}: {e}"));
    let module = naga::front::wgsl::parse_str(&text).map_err(|e| bad(e.emit_to_string(&text)))?;
    // Unpacking words of two f16 is an instruction that every driver has, whether it supports f16 arithmetic or not
    let mut allowed = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    allowed.set(Capabilities::SHADER_FLOAT16, can.f16);
    allowed.set(Capabilities::SUBGROUP, can.subgroup > 0);
    let info = Validator::new(ValidationFlags::all(), allowed).validate(&module);
    let info = info.map_err(|e| bad(e.emit_to_string(&text)))?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = Options {
        lang_version: (1, 3),
        flags: WriterFlags::empty(),
        // Resources keep the bindings that the text gives them
        fake_missing_bindings: true,
        capabilities: Some(capabilities(can)),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        use_storage_input_output_16: false,
        ..Options::default()
    };
    let entry = PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".into() };
    let words = write_vec(&module, &info, &options, Some(&entry)).map_err(|e| bad(e.to_string()))?;
    let halves = words.windows(2).any(|w| w == [CAPABILITY, Capability::Float16 as u32]);
    let kept = can.special.iter().flatten().copied().filter(|&bits| bits == 32 || halves);
    Ok(keep_special_values(words, &kept.collect::<Vec<_>>()))
}

/// Instruction words: the opcode, in the first two with the number of words above it (SPIR-V specification,
/// "Binary Form").
const CAPABILITY: u32 = 2 << 16 | 17;
const EXECUTION_MODE: u32 = 4 << 16 | 16;
const EXTENSION: u32 = 10;
const ENTRY_POINT: u32 = 15;
/// `SignedZeroInfNanPreserve`: the number of the capability and that of the execution mode.
const PRESERVE: [u32; 2] = [4466, 4461];
/// The number of words before the first instruction.
const HEADER: usize = 5;

/// Requests that infinities and NaN are preserved for floats of these widths. Without it a compiler may turn a
/// comparison and a select into a minimum that loses NaN, as NVIDIA's does.
fn keep_special_values(words: Vec<u32>, widths: &[u32]) -> Vec<u32> {
    if widths.is_empty() {
        return words;
    }
    let (head, mut rest) = words.split_at(HEADER.min(words.len()));
    let mut out = head.to_vec();
    out.extend([CAPABILITY, PRESERVE[0]]);
    let mut is_asked = false;
    while let Some(&first) = rest.first() {
        let (one, next) = rest.split_at((first >> 16).clamp(1, rest.len() as u32) as usize);
        let op = first & 0xffff;
        if !is_asked && first != CAPABILITY {
            // The extension follows the capabilities
            let name = b"SPV_KHR_float_controls\0\0";
            out.push((1 + name.len() as u32 / 4) << 16 | EXTENSION);
            out.extend(name.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])));
            is_asked = true;
        }
        out.extend_from_slice(one);
        if op == ENTRY_POINT {
            out.extend(widths.iter().flat_map(|&bits| [EXECUTION_MODE, one[2], PRESERVE[1], bits]));
        }
        rest = next;
    }
    out
}

fn capabilities(can: &DeviceCapabilities) -> naga::FastHashSet<Capability> {
    let mut all = vec![Capability::Shader];
    if can.f16 {
        all.extend([Capability::Float16, Capability::StorageBuffer16BitAccess]);
        all.push(Capability::UniformAndStorageBuffer16BitAccess);
    }
    if can.subgroup > 0 {
        all.extend([Capability::GroupNonUniform, Capability::GroupNonUniformShuffle]);
    }
    if can.dots {
        all.extend([Capability::DotProduct, Capability::DotProductInput4x8BitPacked]);
    }
    all.into_iter().collect()
}
