//! The names of weights. Code uses GGUF's names throughout; names of safetensors files are translated to these.

use super::arch::{Arch, Block, PositionEncoding};

/// Parts of a layer: the name in safetensors files of most models, and GGUF's name.
const PARTS: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The same pairs for GPT-2.
const GPT2_PARTS: &[(&str, &str)] = &[
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// Weights outside of layers: the name in safetensors files, and GGUF's name.
const NON_LAYER_WEIGHTS: &[(&str, &str)] = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("wte", "token_embd"),
    ("wpe", "position_embd"),
    ("ln_f", "output_norm"),
];

/// GGUF's name for a weight of a safetensors file; `None` for a tensor that no model reads.
pub(super) fn translate(arch: &Arch, name: &str) -> Option<String> {
    let name = name.strip_prefix("model.").or_else(|| name.strip_prefix("transformer.")).unwrap_or(name);
    let (stem, kind) = name.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "weight" | "bias"))?;
    let of = |list: &[(&str, &str)], stem: &str| list.iter().find(|p| p.0 == stem).map(|p| p.1.to_owned());
    let Some(rest) = stem.strip_prefix("layers.").or_else(|| stem.strip_prefix("h.")) else {
        return Some(format!("{}.{kind}", of(NON_LAYER_WEIGHTS, stem)?));
    };
    let (layer, part) = rest.split_once('.')?;
    let part = match (part, arch.block) {
        // In some models this is the norm of attention's output, in others that of the feed-forward network's input
        ("post_attention_layernorm", Block::After | Block::Both) => "post_attention_norm".to_owned(),
        ("post_attention_layernorm", _) => "ffn_norm".to_owned(),
        _ => of(PARTS, part).or_else(|| of(GPT2_PARTS, part))?,
    };
    Some(format!("blk.{layer}.{part}.{kind}"))
}

/// Does GPT-2 store this weight transposed, as `[inputs, outputs]`?
pub(super) fn is_transposed(name: &str) -> bool {
    ["c_attn.weight", "c_proj.weight", "c_fc.weight"].iter().any(|n| name.ends_with(n))
}

/// Does the transformers library store the matrices of this architecture transposed, as `[inputs, outputs]`?
pub(super) fn is_transposed_in(arch: &Arch) -> bool {
    arch.positions == PositionEncoding::Learned
}

/// The transformers library's name for the module of a layer's matrix. `is_joined` says that gate and up
/// projection are one matrix.
pub(super) fn module(arch: &Arch, layer: usize, part: &str, is_joined: bool) -> String {
    let (list, layers) = match is_transposed_in(arch) {
        true => (GPT2_PARTS, "transformer.h"),
        false => (PARTS, "model.layers"),
    };
    let name = match part {
        "ffn_up" if is_joined && !is_transposed_in(arch) => "mlp.gate_up_proj",
        "ffn_up" if !is_transposed_in(arch) => "mlp.up_proj",
        _ => list.iter().find(|p| p.1 == part).map_or(part, |p| p.0),
    };
    format!("{layers}.{layer}.{name}")
}

/// The module's name in PEFT's `target_modules`: its last component, or the last two where several modules
/// end with the same one.
pub(super) fn target<'a>(arch: &Arch, module: &'a str) -> &'a str {
    let from = module.rfind('.').unwrap_or_default();
    let from = if is_transposed_in(arch) { module[..from].rfind('.').unwrap_or_default() } else { from };
    module[from..].trim_start_matches('.')
}
