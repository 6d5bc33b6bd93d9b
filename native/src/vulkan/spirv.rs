//! WGSL to SPIR-V, through naga.
//!
//! Accesses are not clamped to their arrays: programs stay inside their parameters, which the spec checks and `cpu:guarded` tests.

use super::error;
use super::find::Can;
use gradloom_core::Result;
use naga::back::spv::{
    Capability, Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec,
};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// The words of a module with the entry point `main`.
pub(super) fn translate(name: &str, wgsl: &str, can: &Can) -> Result<Vec<u32>> {
    // naga has subgroups without being asked, and one kernel may read and write parts of one buffer
    let text = wgsl.replace("enable subgroups;", "").replace("var<storage, read>", "var<storage, read_write>");
    let bad = |e: String| error(format!("{name}: {e}"));
    let module = naga::front::wgsl::parse_str(&text).map_err(|e| bad(e.emit_to_string(&text)))?;
    // words that hold two 16-bit floats are unpacked by an instruction that every driver has, whether it computes with such floats or not
    let mut allowed = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    allowed.set(Capabilities::SHADER_FLOAT16, can.f16);
    allowed.set(Capabilities::SUBGROUP, can.subgroup > 0);
    let info = Validator::new(ValidationFlags::all(), allowed).validate(&module);
    let info = info.map_err(|e| bad(e.emit_to_string(&text)))?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = Options {
        lang_version: (1, 3),
        flags: WriterFlags::empty(),
        // every resource stays where the text has it
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
    write_vec(&module, &info, &options, Some(&entry)).map_err(|e| bad(e.to_string()))
}

fn capabilities(can: &Can) -> naga::FastHashSet<Capability> {
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
