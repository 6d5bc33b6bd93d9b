//! The names of weights. Code uses GGUF's names throughout; names of safetensors files are translated to these. A
//! weight that the decoder would not read is an error, since the model it is a part of computes with it.

use super::arch::{Arch, Block, Feed, HeadNorm, IMAGES, Norm, PositionEncoding};
use super::config::{Config, unsupported};
use super::mamba;
use crate::error::{Error, Result};

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
    ("mlp.gate", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
];

/// Parts that safetensors files have as one tensor for each expert or head, where the decoder and GGUF have one for
/// all: what precedes and follows the number, and GGUF's name.
const NUMBERED: &[(&str, &str, &str)] = &[
    ("mlp.experts.", ".gate_proj", "ffn_gate_exps"),
    ("mlp.experts.", ".up_proj", "ffn_up_exps"),
    ("mlp.experts.", ".down_proj", "ffn_down_exps"),
    ("block_sparse_moe.experts.", ".w1", "ffn_gate_exps"),
    ("block_sparse_moe.experts.", ".w3", "ffn_up_exps"),
    ("block_sparse_moe.experts.", ".w2", "ffn_down_exps"),
    ("self_attn.q_layernorm.norms.", "", "attn_q_norm"),
    ("self_attn.k_layernorm.norms.", "", "attn_k_norm"),
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

/// GGUF's name for a weight of a safetensors file; `None` for a tensor that does not matter.
///
/// # Errors
/// `E_UNSUPPORTED` for a tensor that no decoder reads.
pub(super) fn own_name(arch: &Arch, name: &str) -> Result<Option<String>> {
    match translate(arch, name) {
        None if !is_harmless(arch, name) => Err(unread_error(arch, name)),
        own => Ok(own),
    }
}

/// Is this a buffer that old versions of the transformers library wrote beside the weights, and that is computed from
/// the configuration? These are the speeds of rotations and tables made of them, and of GPT-2 the causal mask and the
/// score of masked tokens.
fn is_harmless(arch: &Arch, name: &str) -> bool {
    let rotations = ["rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"];
    let masks = [".attn.bias", ".attn.masked_bias"];
    // What reads images does not change what texts give
    let images = ["vision_tower.", "multi_modal_projector."];
    let own = name.strip_prefix("model.").unwrap_or(name);
    arch.classes.contains(&IMAGES) && images.iter().any(|start| own.starts_with(start))
        || rotations.iter().any(|end| name.ends_with(end))
        || (arch.positions == PositionEncoding::Learned && masks.iter().any(|end| name.ends_with(end)))
}

/// The error for a tensor that a decoder does not read.
pub(super) fn unread_error(arch: &Arch, name: &str) -> Error {
    unsupported(arch, &format!("tensor `{name}`"))
}

/// The first of these weights that the decoder of this configuration does not read.
pub(super) fn unread<'a>(c: &Config, names: &[&'a str]) -> Option<&'a str> {
    names.iter().copied().filter(|name| !is_read(c, name, names)).min()
}

fn is_read(c: &Config, name: &str, names: &[&str]) -> bool {
    if c.arch.recurrent {
        return mamba::is_read(c.layers, name);
    }
    let Some((stem, kind)) = name.rsplit_once('.') else { return false };
    let (is_weight, is_bias) = (kind == "weight", kind == "bias");
    let is_norm = match c.arch.norm {
        Norm::Rms => is_weight,
        Norm::Layer => is_weight || is_bias,
        Norm::Plain => false,
    };
    let Some((layer, part)) = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        return match stem {
            "token_embd" => is_weight,
            "position_embd" => is_weight && c.arch.positions == PositionEncoding::Learned,
            "output_norm" => is_norm,
            "output" => is_weight || (is_bias && names.contains(&"output.weight")),
            _ => false,
        };
    };
    if !layer.parse::<usize>().is_ok_and(|i| i < c.layers && i.to_string() == layer) {
        return false;
    }
    let has = |part: &str| names.contains(&&*format!("blk.{layer}.{part}.weight"));
    let block = c.arch.block;
    let is_matrix = |group: usize| is_weight || (is_bias && !c.unbiased[group]);
    match part {
        "attn_norm" => is_norm && block != Block::After,
        "ffn_norm" => is_norm && block != Block::After && !(block == Block::Parallel && c.parallel),
        "post_attention_norm" | "post_ffw_norm" => is_norm && matches!(block, Block::After | Block::Both),
        "attn_q_norm" | "attn_k_norm" if c.arch.heads == HeadNorm::Own => is_weight && c.head_norms,
        "attn_q_norm" | "attn_k_norm" => is_norm && c.arch.heads != HeadNorm::None,
        "attn_qkv" => is_matrix(0) && has(part),
        "attn_q" | "attn_k" | "attn_v" => is_matrix(0) && !has("attn_qkv"),
        "attn_output" => is_matrix(0),
        "ffn_gate_inp" | "ffn_gate_exps" | "ffn_up_exps" | "ffn_down_exps" => {
            is_weight && c.experts.is_some() && has("ffn_gate_inp")
        }
        "ffn_gate_inp_shexp" | "ffn_gate_shexp" | "ffn_up_shexp" | "ffn_down_shexp" => {
            is_weight && c.arch.name == "qwen2moe" && has("ffn_gate_inp") && has("ffn_gate_inp_shexp")
        }
        _ if has("ffn_gate_inp") => false,
        "ffn_gate" => is_matrix(1) && has(part) && matches!(c.arch.feed, Feed::Gated(_)),
        "ffn_up" | "ffn_down" => is_matrix(1),
        _ => false,
    }
}

/// GGUF's name for a weight of a safetensors file; `None` for a tensor that no decoder reads.
pub(super) fn translate(arch: &Arch, name: &str) -> Option<String> {
    if arch.recurrent {
        return mamba::translate(name);
    }
    let starts: &[&str] = match arch.classes.contains(&IMAGES) {
        true => &["language_model.", "model.", "language_model."],
        false => &["model.", "transformer."],
    };
    let name = starts.iter().fold(name, |name, start| name.strip_prefix(start).unwrap_or(name));
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
        _ => of(PARTS, part).or_else(|| of(GPT2_PARTS, part)).or_else(|| numbered(arch, part))?,
    };
    Some(format!("blk.{layer}.{part}.{kind}"))
}

fn numbered(arch: &Arch, part: &str) -> Option<String> {
    let one = |(start, end, own): &(&str, &str, &str)| {
        let number = part.strip_prefix(start)?.strip_suffix(end)?;
        let fits = if own.starts_with("ffn") { arch.experts } else { arch.heads == HeadNorm::Own };
        number.parse::<usize>().ok().filter(|n| fits && n.to_string() == number)?;
        Some(format!("{own}.{number}"))
    };
    NUMBERED.iter().find_map(one)
}

/// The name of the tensor that a tensor `blk.0.part.7.weight` is a slice of, and the slice's number.
pub(super) fn slice_of(own: &str) -> Option<(String, usize)> {
    let (stem, number) = own.strip_suffix(".weight")?.rsplit_once('.')?;
    let number = number.parse().ok().filter(|_| stem.matches('.').count() == 2)?;
    Some((format!("{stem}.weight"), number))
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

#[cfg(test)]
mod tests {
    use super::super::arch::ARCHES;
    use super::*;

    #[test]
    fn names_of_files_become_those_of_gguf() {
        let own = |arch: &str, name: &str| {
            let arch = ARCHES.iter().find(|a| a.name == arch).expect("known");
            own_name(arch, name).map_err(|e| e.to_string())
        };
        for name in
            ["language_model.model.layers.3.mlp.up_proj.weight", "model.language_model.layers.3.mlp.up_proj.weight"]
        {
            assert_eq!(own("gemma3", name).expect("read").expect("used"), "blk.3.ffn_up.weight");
            assert!(own("llama", name).is_err());
        }
        for name in ["vision_tower.x.weight", "model.vision_tower.x.bias", "model.multi_modal_projector.y"] {
            assert_eq!(own("gemma3", name), Ok(None));
            assert!(own("llama", name).is_err());
        }
        let expert = "model.layers.2.block_sparse_moe.experts.11.w2.weight";
        assert_eq!(own("mixtral", expert).expect("read").expect("used"), "blk.2.ffn_down_exps.11.weight");
        assert!(own("llama", expert).is_err() && own("mixtral", &expert.replace("11", "011")).is_err());
        assert_eq!(slice_of("blk.2.ffn_down_exps.11.weight"), Some(("blk.2.ffn_down_exps.weight".into(), 11)));
        assert_eq!(slice_of("blk.2.ffn_down_exps.weight"), None);
    }
}
