//! Architectures of encoders, which read a text as a whole, and the names of their weights. What is not described here is
//! seen from the weights: tables of token types and of distances, biases, and a classification head.

use super::arch::{Act, Arch, Block, Feed, HeadNorm, LLAMA, Norm, PositionEncoding, RotaryPairs};
use super::config::{Config, unsupported};
use crate::error::Result;
use crate::io::json::Json;

/// Devlin et al. 2019. GGUF files give RoBERTa's name as `bert`, too.
const BERT: Arch = Arch {
    name: "bert",
    classes: &["BertModel", "BertForMaskedLM", "BertForSequenceClassification"],
    norm: Norm::Layer,
    block: Block::Sum,
    feed: Feed::Plain(Act::Gelu),
    positions: PositionEncoding::Learned,
    heads: HeadNorm::None,
    causal: false,
    eps: 1e-12,
    ..LLAMA
};

/// Liu et al. 2019, Conneau et al. 2020: as BERT, with positions counted from the number of the padding token.
const ROBERTA: Arch = Arch {
    name: "roberta",
    classes: &[
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "XLMRobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
    ],
    ..BERT
};

/// Song et al. 2020: as RoBERTa, with a bias of attention scores by the distance of two tokens, the same in all layers.
const MPNET: Arch =
    Arch { name: "mpnet", classes: &["MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification"], ..BERT };

/// Nussbaum et al. 2024: as BERT, with rotations for positions, and gated feed-forward networks.
const NOMIC_BERT: Arch = Arch {
    name: "nomic-bert",
    classes: &["NomicBertModel"],
    feed: Feed::Gated(Act::Silu),
    positions: PositionEncoding::Rotary(RotaryPairs::Halves),
    ..BERT
};

/// All supported architectures of encoders.
pub const ENCODERS: &[Arch] = &[BERT, ROBERTA, MPNET, NOMIC_BERT];

/// The prefixes of names in safetensors files.
const PREFIXES: &[&str] = &["bert.", "roberta.", "mpnet."];

/// Weights outside of layers: the name in safetensors files, and GGUF's name.
const NON_LAYER_WEIGHTS: &[(&str, &str)] = &[
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("emb_ln", "token_embd_norm"),
    ("encoder.relative_attention_bias", "distance_bias"),
];

/// Parts of a layer: the name in safetensors files, and GGUF's name.
const PARTS: &[(&str, &str)] = &[
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
    // MPNet
    ("attention.attn.q", "attn_q"),
    ("attention.attn.k", "attn_k"),
    ("attention.attn.v", "attn_v"),
    ("attention.attn.o", "attn_output"),
    ("attention.LayerNorm", "attn_output_norm"),
    // Nomic's own code, then the transformers library
    ("attn.Wqkv", "attn_qkv"),
    ("attn.out_proj", "attn_output"),
    ("norm1", "attn_output_norm"),
    ("mlp.fc11", "ffn_up"),
    ("mlp.fc12", "ffn_gate"),
    ("mlp.fc2", "ffn_down"),
    ("norm2", "layer_output_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "attn_output_norm"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.down_proj", "ffn_down"),
    ("post_mlp_layernorm", "layer_output_norm"),
];

/// Heads of classifiers: the name in safetensors files, and GGUF's name. BERT's is the pooler and one matrix, RoBERTa's and
/// MPNet's two matrices.
const HEADS: &[(&str, &str)] = &[
    ("pooler.dense", "cls"),
    ("classifier", "cls.output"),
    ("classifier.dense", "cls"),
    ("classifier.out_proj", "cls.output"),
];

/// What other tasks than embeddings read, and tables that are no weights.
const IGNORED: &[&str] = &[
    "pooler.",
    "cls.predictions.",
    "cls.seq_relationship.",
    "lm_head.",
    "embeddings.position_ids",
    "embeddings.token_type_ids",
];

/// Values of a `config.json` that change results and that the encoder does not have: the key and the values that change
/// nothing.
const REFUSED: &[(&str, &[&str])] = &[
    ("position_embedding_type", &["\"absolute\"", "\"rope\"", "\"rotary\""]),
    ("is_decoder", &["false"]),
    ("prenorm", &["false"]),
    ("use_rms_norm", &["false"]),
    ("parallel_block", &["false"]),
    ("rotary_emb_interleaved", &["false"]),
    ("rotary_emb_scale_base", &["null"]),
    ("activation_function", &["\"swiglu\""]),
    ("num_experts", &["0"]),
];

/// Refuses a `config.json` with a value that no encoder has.
pub(super) fn refuse(arch: &Arch, config: &Json) -> Result<()> {
    for (key, neutral) in REFUSED {
        let Some(value) = config.get(key).filter(|v| **v != Json::Null) else { continue };
        let mut text = String::new();
        crate::io::json::write(&mut text, value);
        if !neutral.contains(&text.as_str()) {
            return Err(unsupported(arch, &format!("`{key}` {text}")));
        }
    }
    Ok(())
}

/// GGUF's name for a weight of a safetensors file; `None` for a tensor that does not matter. `classifies` says that
/// the model has a classification head.
///
/// # Errors
/// `E_UNSUPPORTED` for a tensor that no encoder reads.
pub(super) fn own_name(arch: &Arch, name: &str, classifies: bool) -> Result<Option<String>> {
    let unread = || unsupported(arch, &format!("tensor `{name}`"));
    let rest = PREFIXES.iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name);
    let (stem, kind) =
        rest.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "weight" | "bias")).unwrap_or((rest, ""));
    let of = |list: &'static [(&str, &str)], stem: &str| list.iter().find(|p| p.0 == stem).map(|p| p.1);
    if let Some(own) = of(NON_LAYER_WEIGHTS, stem).or_else(|| of(HEADS, stem).filter(|_| classifies)) {
        return Ok(Some(format!("{own}.{kind}")));
    }
    if IGNORED.iter().any(|start| rest.starts_with(start)) {
        return Ok(None);
    }
    let layer = ["encoder.layer.", "encoder.layers.", "layers."].iter().find_map(|start| stem.strip_prefix(start));
    let (layer, part) = layer.and_then(|rest| rest.split_once('.')).ok_or_else(unread)?;
    let part = of(PARTS, part).ok_or_else(unread)?;
    Ok(Some(format!("blk.{layer}.{part}.{kind}")))
}

/// Does the encoder of this configuration read a weight of this name?
pub(super) fn is_read(c: &Config, name: &str) -> bool {
    let Some((stem, kind)) = name.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "weight" | "bias")) else {
        return false;
    };
    let is_weight = kind == "weight";
    let Some((layer, part)) = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        return match stem {
            "token_embd" | "token_types" | "distance_bias" => is_weight,
            "position_embd" => is_weight && c.arch.positions == PositionEncoding::Learned,
            "token_embd_norm" | "cls" | "cls.output" => true,
            _ => false,
        };
    };
    let is_layer = layer.parse::<usize>().is_ok_and(|i| i < c.layers && i.to_string() == layer);
    is_layer
        && match part {
            "attn_q" | "attn_k" | "attn_v" | "attn_qkv" | "attn_output" | "attn_output_norm" => true,
            "ffn_up" | "ffn_down" | "layer_output_norm" => true,
            "ffn_gate" => matches!(c.arch.feed, Feed::Gated(_)),
            _ => false,
        }
}

/// The number of the first position in the table of a folder's model.
pub(super) fn first_position(arch: &Arch, config: &Json) -> usize {
    match arch.name {
        "roberta" => config.get("pad_token_id").and_then(Json::as_u64).map_or(2, |n| (n as usize).saturating_add(1)),
        // Whatever the configuration says
        "mpnet" => 2,
        _ => 0,
    }
}
