//! The trained model as files: safetensors with a `config.json`, and GGUF in F16, Q8_0, Q4_0 and Q4_K.

use crate::model::{BASE, CONTEXT, EPS, HEAD, HEADS, INNER, KV_HEADS, LAYERS, Llama, WIDTH, WORDS};
use crate::read;
use gradloom::dtype::Scalar;
use gradloom::io::gguf::{self, Data, Kind, Value};
use gradloom::io::json::Json;
use gradloom::io::{HostTensor, safetensors};
use gradloom::{DType, Error, Result, Runtime};
use std::path::Path;

/// Writes all files beside the tokenizer.
pub(crate) fn write(rt: &mut Runtime, net: &Llama, folder: &Path) -> Result<()> {
    let mut tensors = Vec::new();
    for (name, t) in &net.tensors {
        tensors.push((name.as_str(), HostTensor::new(DType::F32, t.shape(), rt.fetch(t)?)?));
    }
    let list: Vec<_> = tensors.iter().map(|(n, t)| (*n, t.dtype, &*t.shape, &*t.data)).collect();
    put(folder, "model.safetensors", &safetensors::write(&list, &[("format", "pt")])?)?;
    put(folder, "config.json", config().as_bytes())?;
    let metadata = metadata(folder)?;
    for (kind, name) in [(Kind::F16, "f16"), (Kind::Q8_0, "q8_0"), (Kind::Q4_0, "q4_0"), (Kind::Q4_K, "q4_k")] {
        put(folder, &format!("verses-{name}.gguf"), &file(&metadata, &tensors, kind)?)?;
    }
    Ok(())
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).map_err(|e| Error::value("write", format!("{}: {e}", path.display())))
}

fn config() -> String {
    format!(
        r#"{{
 "architectures": ["LlamaForCausalLM"],
 "model_type": "llama",
 "vocab_size": {WORDS},
 "hidden_size": {WIDTH},
 "intermediate_size": {INNER},
 "num_hidden_layers": {LAYERS},
 "num_attention_heads": {HEADS},
 "num_key_value_heads": {KV_HEADS},
 "head_dim": {HEAD},
 "max_position_embeddings": {CONTEXT},
 "rms_norm_eps": {EPS:e},
 "rope_theta": {BASE:?},
 "hidden_act": "silu",
 "tie_word_embeddings": true,
 "bos_token_id": 0,
 "eos_token_id": 1,
 "dtype": "float32"
}}
"#
    )
}

/// Names, numbers, the tokenizer and the chat template.
fn metadata(folder: &Path) -> Result<Vec<(&'static str, Value)>> {
    let bad = |what: &str| Error::value("tokenizer.json", format!("{what} is missing"));
    let tokenizer = Json::parse(&read(&folder.join("tokenizer.json"))?)?;
    let config = Json::parse(&read(&folder.join("tokenizer_config.json"))?)?;
    let model = tokenizer.get("model").ok_or_else(|| bad("`model`"))?;
    let vocabulary = model.get("vocab").and_then(Json::as_object).ok_or_else(|| bad("`vocab`"))?;
    let mut tokens = vec![String::new(); WORDS];
    for (token, id) in vocabulary {
        let id = id.as_u64().and_then(|id| tokens.get_mut(id as usize)).ok_or_else(|| bad("a number"))?;
        id.clone_from(token);
    }
    let merges = model.get("merges").and_then(Json::as_array).ok_or_else(|| bad("`merges`"))?;
    let merge = |m: &Json| -> Option<String> {
        match m {
            Json::Str(s) => Some(s.clone()),
            Json::Array(p) => Some(format!("{} {}", p.first()?.as_str()?, p.get(1)?.as_str()?)),
            _ => None,
        }
    };
    let merges: Option<Vec<String>> = merges.iter().map(merge).collect();
    let template = config.get("chat_template").and_then(Json::as_str).ok_or_else(|| bad("`chat_template`"))?;
    let text = |s: &str| Value::Str(s.into());
    let count = |n: usize| Value::Scalar(DType::U32, Scalar::Int(n as i64));
    let number = |x: f64| Value::Scalar(DType::F32, Scalar::float(x));
    let kinds: Vec<u8> = (0..WORDS as i32).flat_map(|i| if i < 4 { 3i32 } else { 1 }.to_le_bytes()).collect();
    Ok(vec![
        ("general.architecture", text("llama")),
        ("general.name", text("verses")),
        ("general.license", text("public domain")),
        ("llama.block_count", count(LAYERS)),
        ("llama.context_length", count(CONTEXT)),
        ("llama.embedding_length", count(WIDTH)),
        ("llama.feed_forward_length", count(INNER)),
        ("llama.attention.head_count", count(HEADS)),
        ("llama.attention.head_count_kv", count(KV_HEADS)),
        ("llama.attention.layer_norm_rms_epsilon", number(EPS)),
        ("llama.rope.dimension_count", count(HEAD)),
        ("llama.rope.freq_base", number(BASE)),
        ("llama.vocab_size", count(WORDS)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", Value::Strings(tokens)),
        ("tokenizer.ggml.token_type", Value::Array(HostTensor::new(DType::I32, vec![WORDS], kinds)?)),
        ("tokenizer.ggml.merges", Value::Strings(merges.ok_or_else(|| bad("a merge"))?)),
        ("tokenizer.ggml.bos_token_id", count(0)),
        ("tokenizer.ggml.eos_token_id", count(1)),
        ("tokenizer.ggml.add_bos_token", Value::Scalar(DType::Bool, Scalar::Int(1))),
        ("tokenizer.chat_template", text(template)),
    ])
}

fn file(metadata: &[(&'static str, Value)], tensors: &[(&str, HostTensor)], kind: Kind) -> Result<Vec<u8>> {
    let mut list: Vec<(String, Kind, &[usize], Vec<u8>)> = Vec::new();
    for (name, t) in tensors {
        let values: Vec<f32> = t.to_f64().iter().map(|x| *x as f32).collect();
        let values = match name {
            n if n.contains("q_proj") => neighbours(&values, HEADS),
            n if n.contains("k_proj") => neighbours(&values, KV_HEADS),
            _ => values,
        };
        // few numbers, and the table that is read twice, are kept as they matter
        let kind = match (t.shape.len(), kind) {
            (1, _) => Kind::F32,
            (_, Kind::Q4_0) if name.contains("embed") => Kind::Q8_0,
            // only rows of whole blocks: those of the last matrix of feed-forward networks
            (_, Kind::Q4_K) if !t.shape[1].is_multiple_of(256) => Kind::Q8_0,
            (_, kind) => kind,
        };
        let bytes = match kind {
            Kind::Q8_0 => gguf::quantize_q8_0(&values)?,
            Kind::Q4_0 => gguf::quantize_q4_0(&values)?,
            Kind::Q4_K => gguf::quantize_q4_k(&values)?,
            Kind::F16 => HostTensor::from_f32(t.shape.clone(), &values)?.cast(DType::F16).data,
            _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        list.push((own_name(name)?, kind, &t.shape, bytes));
    }
    let data: Vec<Data<'_>> =
        list.iter().map(|(name, kind, shape, bytes)| Data { name, kind: *kind, shape, bytes }).collect();
    gguf::write(metadata, &data)
}

/// Rows of the halves of each head, which are turned together, side by side.
fn neighbours(values: &[f32], heads: usize) -> Vec<f32> {
    let (row, half) = (WIDTH, HEAD / 2);
    let mut out = Vec::with_capacity(values.len());
    for head in 0..heads {
        for i in 0..HEAD {
            let from = head * HEAD + i % 2 * half + i / 2;
            out.extend_from_slice(&values[from * row..][..row]);
        }
    }
    out
}

fn own_name(name: &str) -> Result<String> {
    const NAMES: [(&str, &str); 9] = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    Ok(match name {
        "model.embed_tokens.weight" => "token_embd.weight".into(),
        "model.norm.weight" => "output_norm.weight".into(),
        _ => {
            let found = NAMES.iter().find_map(|(theirs, own)| {
                let rest = name.strip_prefix("model.layers.")?.strip_suffix(".weight")?;
                let layer = rest.strip_suffix(theirs)?.strip_suffix('.')?;
                Some(format!("blk.{layer}.{own}.weight"))
            });
            found.ok_or_else(|| Error::value("export", format!("`{name}` has no name")))?
        }
    })
}
