//! Language models against transformers: logits, and the tokens that they choose.

use gradloom::llm::{Activations, LanguageModel, LoadOptions, Sampler, SamplingOptions, Stream};
use gradloom::{DType, Error, NativeHost, Result};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::HostTensor;
use gradloom_core::io::gguf::{self, Data, Gguf, Kind, Value};
use gradloom_core::io::json::{self, Json};
use gradloom_core::io::safetensors::{self, SafeTensors};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm")
}

/// What transformers computed.
struct Expected {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    first: Vec<f64>,
    last: Vec<f64>,
}

fn expected(name: &str) -> Expected {
    let file = std::fs::read(folder().join(name).join("expected.json")).expect("a file");
    let file = Json::parse(&file).expect("JSON");
    let list = |key: &str| file.get(key).and_then(Json::as_array).expect("a list").to_vec();
    let ids = |key: &str| list(key).iter().map(|i| i.as_u64().expect("a token") as u32).collect();
    let floats = |key: &str| list(key).iter().map(|i| i.as_f64().expect("a number")).collect();
    Expected { prompt: ids("prompt"), tokens: ids("tokens"), first: floats("first"), last: floats("last") }
}

fn load(path: &Path, device: &str, capacity: usize) -> Option<LanguageModel> {
    let is_cuda = device == "cuda";
    if is_cuda {
        crate::emulator::load();
    }
    let options = LoadOptions { capacity, activations: is_cuda.then_some(Activations::F32), ..LoadOptions::default() };
    let device = here::device(device, gradloom::open(device, 2))?;
    let made = LanguageModel::load_with(path, device, NativeHost::without_cache(), &options);
    Some(made.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

pub(super) fn close(what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let most = want.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= 1e-4 * most, "{what}: logit {i} is {g}, not {w}");
    }
}

fn greedy() -> Sampler {
    Sampler::new(&SamplingOptions::default()).expect("options")
}

/// The first `n` tokens after the prompt.
fn follows(path: &Path, device: &str, want: &Expected, n: usize) {
    let what = format!("{} on {device}", path.display());
    let Some(mut m) = load(path, device, 0) else { return };
    m.begin(&want.prompt).unwrap_or_else(|e| panic!("{what}: {e}"));
    close(&what, &m.logits().expect("logits"), &want.first);
    let (mut got, mut programs) = (Vec::new(), Vec::new());
    let counted = |m: &mut LanguageModel, got: &mut Vec<u32>, n: usize| {
        m.generate(n, &mut greedy(), false, |_, t| {
            got.push(t);
            Ok(true)
        })
        .unwrap_or_else(|e| panic!("{what}: {e}"));
        m.counters().programs
    };
    programs.push(counted(&mut m, &mut got, 3));
    m.read(&got[2..]).expect("reads on");
    programs.push(counted(&mut m, &mut got, n - 3));
    assert_eq!(got, want.tokens[..n], "{what}");
    assert_eq!(programs[0], programs[1], "{what}: kernels were compiled for later tokens");
    if n == want.tokens.len() {
        close(&what, &m.logits().expect("logits"), &want.last);
    }
}

fn both(name: &str) {
    let want = expected(name);
    follows(&folder().join(name), "cpu", &want, want.tokens.len());
    follows(&folder().join(format!("{name}.gguf")), "cpu", &want, want.tokens.len());
}

macro_rules! models {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            both(stringify!($name));
        })*
    };
}

models!(llama, llama3, mistral, qwen2, qwen3, phi3, gemma, gemma2, gemma3, olmo, olmo2, stablelm, gpt2);
models!(qwen2yarn, phi3long, smollm3, olmoclip, stablelm2, mixtral, qwen2moe, qwen3moe, olmoe, mamba);

/// Folders have a tensor for each expert. They become one when the model is loaded, not when a token is read.
#[test]
fn experts_of_a_folder_are_stacked_once() {
    let launches = |path: &Path| {
        let mut m = load(path, "cpu", 64)?;
        m.begin(&[3]).expect("read");
        let before = m.counters().launches;
        m.read(&[4]).expect("read");
        Some(m.counters().launches - before)
    };
    let counts = [folder().join("qwen3moe"), folder().join("qwen3moe.gguf")].map(|path| launches(&path));
    assert_eq!(counts[0], counts[1]);
}

/// The folder of a model that also reads images: its language model is nested in the configuration.
#[test]
fn gemma3images() {
    let want = expected("gemma3images");
    follows(&folder().join("gemma3images"), "cpu", &want, want.tokens.len());
}

/// In a model with room for no longer texts than those of its first training.
#[test]
fn short_texts_have_the_rotations_of_short_texts() {
    let temp = temp("short");
    let file = std::fs::read(folder().join("phi3long/expected.json")).expect("a file");
    let file = Json::parse(&file).expect("JSON");
    let want: Vec<f64> =
        file.get("short").and_then(Json::as_array).expect("a list").iter().filter_map(Json::as_f64).collect();
    let path = changed(&temp, "phi3long", &[("original_max_position_embeddings", "64")], &[]);
    // The same in GGUF, whose factor of rotations is the larger training's
    let count = |n: i64| Value::Scalar(DType::U32, Scalar::Int(n));
    let factor = (1.0 + (256.0f64 / 64.0).ln() / 64.0f64.ln()).sqrt();
    let gguf = changed_gguf(
        &temp,
        "phi3long",
        &[
            ("phi3.rope.scaling.original_context_length", count(64)),
            ("phi3.rope.scaling.attn_factor", Value::Scalar(DType::F32, Scalar::float(factor))),
        ],
        &[],
    );
    for path in [path, gguf] {
        let Some(got) = logits_of(&path, "phi3long") else { return };
        assert!(apart(&got, &want) < 1e-4, "{}", path.display());
        let Some(mut long) = load(&path, "cpu", 65) else { return };
        long.begin(&expected("phi3long").prompt).expect("read");
        let long: Vec<f64> = long.logits().expect("logits").iter().map(|x| f64::from(*x)).collect();
        assert!(apart(&long, &want) > 1e-3, "{}", path.display());
    }
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn other_devices_choose_the_same_tokens() {
    for (device, n) in [("cpu:guarded", 24), ("cpu:avx2", 24), ("llvm", 12), ("c", 6), ("wgpu", 12), ("eval", 12)] {
        follows(&folder().join("llama.gguf"), device, &expected("llama"), n);
    }
    for (device, n) in [("cpu:guarded", 24), ("c", 6), ("wgpu", 12), ("vulkan", 12), ("cuda", 6), ("eval", 8)] {
        follows(&folder().join("mamba.gguf"), device, &expected("mamba"), n);
    }
}

#[test]
fn what_texts_have_in_common_is_read_once() {
    let Some(mut m) = load(&folder().join("llama.gguf"), "cpu", 64) else { return };
    let want = expected("llama");
    let prompt = &want.prompt;
    m.begin(prompt).expect("read");
    let mut other = prompt[..20].to_vec();
    other.extend([5, 6, 7]);
    m.begin(&other).expect("read");
    let got = m.logits().expect("logits");
    let Some(mut fresh) = load(&folder().join("llama.gguf"), "cpu", 64) else { return };
    fresh.begin(&other).expect("read");
    let all: Vec<f64> = fresh.logits().expect("logits").iter().map(|x| f64::from(*x)).collect();
    close("a text that begins as the one before", &got, &all);
    m.begin(prompt).expect("read");
    close("the first one again", &m.logits().expect("logits"), &want.first);
}

#[test]
fn draws_are_decided_by_the_seed() {
    let Some(mut m) = load(&folder().join("llama.gguf"), "cpu", 64) else { return };
    let mut draw = |seed: u64| -> Vec<u32> {
        let how = SamplingOptions {
            temperature: 1.5,
            top_k: 20,
            top_p: 0.95,
            repetition: 1.1,
            seed,
            ..SamplingOptions::default()
        };
        let mut out = Vec::new();
        m.begin(&[2, 3, 4]).expect("read");
        let mut sampler = Sampler::new(&how).expect("options");
        m.generate(20, &mut sampler, false, |_, t| {
            out.push(t);
            Ok(true)
        })
        .expect("generates");
        out
    };
    let (a, b, c) = (draw(1), draw(1), draw(2));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let of = |path: &Path, capacity: usize| {
        let device = gradloom::open("eval", 1).expect("a device");
        LanguageModel::load(path, device, NativeHost::without_cache(), capacity).err().expect("it loads").to_string()
    };
    let temp = std::env::temp_dir().join(format!("gradloom-llm-{}", std::process::id()));
    std::fs::create_dir_all(&temp).expect("a folder");
    let config = std::fs::read_to_string(folder().join("llama/config.json")).expect("a file");
    let weights = temp.join("model.safetensors");
    std::fs::copy(folder().join("llama/model.safetensors"), &weights).expect("a copy");
    let with = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        std::fs::write(temp.join("config.json"), config.replace(from, to)).expect("a file");
        of(&temp, 0)
    };
    let e = with("LlamaForCausalLM", "RwkvForCausalLM");
    assert!(e.contains("RwkvForCausalLM") && e.contains("qwen3"), "{e}");
    let e = with("\"default\"", "\"dynamic\"");
    assert!(e.contains("dynamic") && e.contains("llama"), "{e}");
    let e = with("\"default\"", "\"yarn\"");
    assert!(e.contains("rope_scaling.factor"), "{e}");
    let e = with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    assert!(e.contains("blk.2.attn_output.weight"), "{e}");
    let e = with("\"num_attention_heads\": 4", "\"num_attention_heads\": 0");
    assert!(e.contains("0 heads"), "{e}");
    std::fs::write(temp.join("x.gguf"), b"nothing").expect("a file");
    assert!(of(&temp.join("x.gguf"), 0).contains("GGUF"));
    std::fs::remove_dir_all(&temp).expect("removed");
    let Some(mut m) = load(&folder().join("llama.gguf"), "eval", 16) else { return };
    assert_eq!(m.begin(&[]).unwrap_err().code(), "E_VALUE");
    assert_eq!(m.begin(&[48]).unwrap_err().code(), "E_VALUE");
    assert_eq!(m.begin(&[3; 17]).unwrap_err().code(), "E_VALUE");
    m.begin(&[3; 16]).expect("there is room");
}

/// A fixture in a folder of its own, with other values in its `config.json` (none where the value is empty), and with
/// further tensors.
fn changed(temp: &Path, model: &str, values: &[(&str, &str)], added: &[&str]) -> PathBuf {
    let (from, into) = (folder().join(model), temp.join(model));
    std::fs::create_dir_all(&into).expect("a folder");
    let config = Json::parse(&std::fs::read(from.join("config.json")).expect("a file")).expect("JSON");
    let mut fields = config.as_object().expect("an object").to_vec();
    for (key, value) in values {
        fields.retain(|f| f.0 != *key);
        if !value.is_empty() {
            fields.push(((*key).to_owned(), Json::parse(value.as_bytes()).expect("JSON")));
        }
    }
    let mut text = String::new();
    json::write(&mut text, &Json::Object(fields));
    std::fs::write(into.join("config.json"), text).expect("written");
    let file = std::fs::read(from.join("model.safetensors")).expect("a file");
    let index = SafeTensors::parse(&file).expect("safetensors");
    let (shape, zeros) = ([4usize], [0u8; 16]);
    let mut list: Vec<(&str, DType, &[usize], &[u8])> = index
        .entries
        .iter()
        .map(|e| (e.name.as_str(), e.dtype, &e.shape[..], e.bytes(&file).expect("bytes")))
        .collect();
    list.extend(added.iter().map(|name| (*name, DType::F32, &shape[..], &zeros[..])));
    std::fs::write(into.join("model.safetensors"), safetensors::write(&list, &[]).expect("a file")).expect("written");
    into
}

/// The same of a GGUF file.
fn changed_gguf(temp: &Path, model: &str, values: &[(&str, Value)], added: &[&str]) -> PathBuf {
    let file = std::fs::read(folder().join(format!("{model}.gguf"))).expect("a file");
    let index = Gguf::parse(&file).expect("a GGUF file");
    let kept = index.metadata.iter().filter(|(key, _)| values.iter().all(|v| v.0 != key.as_str()));
    let mut metadata: Vec<(&str, Value)> = kept.map(|(k, v)| (k.as_str(), v.clone())).collect();
    metadata.extend(values.iter().cloned());
    let (shape, zeros) = ([4usize], [0u8; 16]);
    let mut list: Vec<Data<'_>> = index
        .entries
        .iter()
        .map(|e| Data { name: &e.name, kind: e.kind, shape: &e.shape, bytes: e.bytes(&file).expect("bytes") })
        .collect();
    list.extend(added.iter().map(|name| Data { name, kind: Kind::F32, shape: &shape, bytes: &zeros }));
    let path = temp.join(format!("{model}.gguf"));
    std::fs::write(&path, gguf::write(&metadata, &list).expect("a file")).expect("written");
    path
}

pub(super) fn temp(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gradloom-llm-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

fn loaded(path: &Path) -> Result<LanguageModel> {
    LanguageModel::load(path, gradloom::open("eval", 1)?, NativeHost::without_cache(), 64)
}

fn refused(path: &Path, what: &str) -> Error {
    loaded(path).err().unwrap_or_else(|| panic!("{what} is not refused"))
}

/// Logits after the prompt of a fixture.
fn logits_of(path: &Path, model: &str) -> Option<Vec<f64>> {
    let mut m = load(path, "cpu", 64)?;
    m.begin(&expected(model).prompt).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Some(m.logits().expect("logits").iter().map(|x| f64::from(*x)).collect())
}

/// The largest difference, relative to the largest number.
pub(super) fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0f64, |m, (x, y)| m.max((x - y).abs())) / most
}

#[test]
fn weights_that_the_decoder_does_not_read_are_refused_by_name() {
    let temp = temp("unread");
    for (model, name) in [
        ("llama", "model.layers.0.self_attn.q_norm.weight"),
        ("llama", "model.layers.0.input_layernorm.bias"),
        ("llama", "model.layers.2.mlp.up_proj.weight"),
        ("llama", "model.layers.1.mlp.experts.0.up_proj.weight"),
        ("llama", "model.layers.0.self_attn.q_proj.weight_scale"),
        ("llama", "model.layers.0.post_feedforward_layernorm.weight"),
        ("llama", "vision_tower.embed.weight"),
        ("llama3", "lm_head.bias"),
        ("olmo", "model.norm.weight"),
        ("phi3", "model.layers.0.self_attn.q_proj.weight"),
        ("stablelm", "model.layers.1.self_attn.q_layernorm.norms.0.weight"),
        ("gpt2", "transformer.h.0.crossattention.c_attn.weight"),
        ("gpt2", "transformer.h.0.ln_3.weight"),
    ] {
        let e = refused(&changed(&temp, model, &[], &[name]), name);
        assert_eq!(e.code(), "E_UNSUPPORTED", "{name}: {e}");
        assert!(e.to_string().contains(name) && e.to_string().contains(&model[..4]), "{name}: {e}");
    }
    for (model, name) in [
        ("llama", "blk.0.attn_q_norm.weight"),
        ("llama", "blk.2.attn_q.weight"),
        ("llama", "blk.0.attn_qkv.bias"),
        ("llama", "blk.0.ffn_gate_exps.weight"),
        ("llama", "position_embd.weight"),
        ("qwen3", "cls.output.weight"),
        ("qwen3moe", "blk.0.ffn_gate_exps.weight"),
        ("qwen3moe", "blk.1.ffn_gate.weight"),
        ("qwen3moe", "blk.1.ffn_gate_shexp.weight"),
        ("gpt2", "blk.0.ffn_gate.bias"),
    ] {
        let e = refused(&changed_gguf(&temp, model, &[], &[name]), name);
        assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains(name), "{name}: {e}");
    }
    let e = refused(&changed(&temp, "llama", &[], &["norm.weight"]), "a weight that is there twice");
    assert!(e.code() == "E_MODEL" && e.to_string().contains("`model.norm.weight`"), "{e}");
    let e = refused(
        &changed(&temp, "qwen3", &[("attention_bias", "false")], &["model.layers.0.self_attn.v_proj.bias"]),
        "a bias",
    );
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("v_proj.bias"), "{e}");
    // What is computed anew does not matter
    for (model, names) in [
        ("llama", &["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"][..]),
        ("gpt2", &["transformer.h.0.attn.bias", "h.1.attn.masked_bias"]),
    ] {
        let path = changed(&temp, model, &[], names);
        let (Some(got), Some(want)) = (logits_of(&path, model), logits_of(&folder().join(model), model)) else {
            return;
        };
        assert_eq!(got, want, "{model}");
    }
    // Tied matrices that a configuration says are not
    let path = changed(&temp, "llama3", &[("tie_word_embeddings", "false")], &[]);
    let e = loaded(&path).and_then(|mut m| m.begin(&[3, 4])).expect_err("it has no output matrix");
    assert!(e.code() == "E_MODEL" && e.to_string().contains("output.weight"), "{e}");
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn values_that_the_decoder_does_not_have_are_refused_by_name() {
    let temp = temp("values");
    for (model, key, value, says) in [
        ("llama", "hidden_act", r#""mish""#, "activation `mish`"),
        ("gemma2", "hidden_activation", r#""quick_gelu""#, "activation `quick_gelu`"),
        ("gpt2", "activation_function", r#""tanh""#, "activation `tanh`"),
        ("llama", "num_local_experts", "8", "mixture of experts"),
        ("qwen3", "num_experts", "128", "mixture of experts"),
        ("llama", "clip_qkv", "8.0", "clip_qkv"),
        ("olmo", "clip_qkv", "-8.0", "clip_qkv"),
        ("llama", "qk_layernorm", "true", "qk_layernorm"),
        ("gpt2", "scale_attn_weights", "false", "scale_attn_weights"),
        ("gpt2", "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx"),
        ("llama", "logits_scaling", "8.0", "logits_scaling"),
        ("llama", "residual_multiplier", "0.22", "residual_multiplier"),
        ("llama", "embedding_multiplier", "12", "embedding_multiplier"),
        ("llama", "attention_multiplier", "0.0078125", "attention_multiplier"),
        ("gemma3", "use_bidirectional_attention", "true", "use_bidirectional_attention"),
        ("qwen2", "is_causal", "false", "is_causal"),
        ("qwen3", "layer_types", r#"["linear_attention", "full_attention"]"#, "linear_attention"),
        ("llama", "rope_parameters", r#"{"rope_theta": 1e4, "factor": 2.0}"#, "rope_scaling"),
        ("phi3", "rope_parameters", r#"{"rope_theta": 1e4, "rope_type": "dynamic"}"#, "dynamic"),
        ("llama", "rope_local_base_freq", "1e5", "rope_local_base_freq"),
    ] {
        let e = refused(&changed(&temp, model, &[(key, value)], &[]), key);
        assert_eq!(e.code(), "E_UNSUPPORTED", "{key}: {e}");
        assert!(e.to_string().contains(says) && e.to_string().contains(model), "{key}: {e}");
    }
    let count = |n: i64| Value::Scalar(DType::U32, Scalar::Int(n));
    for (model, key, value, says) in [
        ("qwen3", "qwen3.expert_count", count(8), "mixture of experts"),
        ("qwen3moe", "qwen3moe.expert_gating_func", count(2), "expert_gating_func"),
        ("qwen3moe", "qwen3moe.expert_group_count", count(4), "expert_group_count"),
        ("llama", "llama.attention.scale", Value::Scalar(DType::F32, Scalar::float(0.5)), "attention_multiplier"),
        ("llama", "llama.attention.causal", Value::Scalar(DType::Bool, Scalar::Int(0)), "is_causal"),
        ("llama", "llama.rope.scaling.type", Value::Str("dynamic".into()), "dynamic"),
        ("llama", "llama.hidden_activation", Value::Str("mish".into()), "mish"),
        ("qwen2", "qwen2.attention.sliding_window", count(16), "sliding_window"),
    ] {
        let e = refused(&changed_gguf(&temp, model, &[(key, value)], &[]), key);
        assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains(says), "{key}: {e}");
    }
    let path = changed(&temp, "qwen3", &[("layer_types", r#"["full_attention"]"#)], &[]);
    assert_eq!(refused(&path, "one layer's kind").code(), "E_MODEL");
    for (model, key, value, says) in [
        ("phi3", "rope_parameters", r#"{"rope_theta": 1e4, "rope_type": "longrope"}"#, "short_factor"),
        ("phi3long", "rope_parameters", r#"{"rope_type": "su", "short_factor": [1], "long_factor": [2]}"#, "factors"),
        ("qwen2yarn", "rope_parameters", r#"{"rope_type": "yarn", "factor": -1}"#, "factor"),
        (
            "qwen2yarn",
            "rope_parameters",
            r#"{"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 0}"#,
            "is 0",
        ),
        ("smollm3", "no_rope_layers", "[1, 0]", "2 of 4 layers"),
        ("mixtral", "num_experts_per_tok", "5", "5 of 4 experts"),
        ("mixtral", "num_experts_per_tok", "0", "0 of 4 experts"),
        ("mixtral", "num_experts_per_tok", "", "num_experts_per_tok"),
    ] {
        let e = refused(&changed(&temp, model, &[(key, value)], &[]), key);
        assert!(e.code() == "E_MODEL" && e.to_string().contains(says), "{key}: {e}");
    }
    // Another number of experts than there are is seen when the first graph is made
    for (model, key, value) in [("mixtral", "num_local_experts", "3"), ("olmoe", "num_experts", "9")] {
        let e = loaded(&changed(&temp, model, &[(key, value)], &[])).and_then(|mut m| m.begin(&[3, 4]));
        assert_eq!(e.expect_err("it has other experts").code(), "E_MODEL", "{model}");
    }
    let e = refused(&changed(&temp, "mixtral", &[], &["model.layers.0.block_sparse_moe.experts.5.w1.weight"]), "a gap");
    assert!(e.code() == "E_MODEL" && e.to_string().contains("lacks its part 4"), "{e}");
    std::fs::remove_dir_all(&temp).expect("removed");
}

/// Against numpy (`activations.py`).
#[test]
fn activations_are_those_that_a_configuration_names() {
    let temp = temp("activations");
    let file = std::fs::read(folder().join("activations.json")).expect("a file");
    let file = Json::parse(&file).expect("JSON");
    let logits = |name: &str| {
        let value = format!("\"{name}\"");
        logits_of(&changed(&temp, "gpt2", &[("activation_function", value.as_str())], &[]), "gpt2")
    };
    let Some(own) = logits_of(&folder().join("gpt2"), "gpt2") else { return };
    for name in ["gelu", "relu", "silu"] {
        let list = file.get(name).and_then(Json::as_array).expect("a list");
        let want: Vec<f64> = list.iter().map(|x| x.as_f64().expect("a number")).collect();
        let got = logits(name).expect("a device");
        // the two forms of GELU are 1e-4 apart
        let off = apart(&got, &want);
        assert!(off < 2e-5 && apart(&own, &want) > 5e-5, "{name}: {off}");
    }
    for (name, same) in [("gelu_fast", "gelu_new"), ("gelu_pytorch_tanh", "gelu_new"), ("swish", "silu")] {
        assert_eq!(logits(name), logits(same), "{name}");
    }
    // Gemma's first configurations name another activation than the model has, under a key that does not count
    let path = changed(&temp, "gemma", &[("hidden_act", r#""gelu""#), ("hidden_activation", "null")], &[]);
    assert_eq!(logits_of(&path, "gemma"), logits_of(&folder().join("gemma"), "gemma"));
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn layers_have_the_windows_and_rotations_that_files_say() {
    let temp = temp("windows");
    let json = |model: &str, values: &[(&str, &str)]| logits_of(&changed(&temp, model, values, &[]), model);
    let gguf = |model: &str, values: &[(&str, Value)]| logits_of(&changed_gguf(&temp, model, values, &[]), model);
    let Some(plain) = json("qwen2", &[]) else { return };
    let window = ("sliding_window", "24");
    let used = ("use_sliding_window", "true");
    // Qwen's windows are off unless they are turned on, and begin at a layer
    assert_eq!(json("qwen2", &[window, ("use_sliding_window", "")]).expect("a device"), plain);
    let upper = json("qwen2", &[window, used, ("max_window_layers", "1")]).expect("a device");
    let listed = |list: &str| json("qwen2", &[window, used, ("layer_types", list)]).expect("a device");
    assert!(apart(&upper, &plain) > 1e-3);
    assert_eq!(listed(r#"["full_attention", "sliding_attention"]"#), upper);
    assert!(apart(&listed(r#"["sliding_attention", "full_attention"]"#), &upper) > 1e-3);
    assert_eq!(listed(r#"["full_attention", "full_attention"]"#), plain);
    // Llama has none, whatever a configuration says
    assert_eq!(json("llama", &[window]), json("llama", &[]));
    // The layers with a window in GGUF
    let list = HostTensor::new(DType::Bool, vec![2], vec![1, 0]).expect("a list");
    let got = gguf("mistral", &[("llama.attention.sliding_window_pattern", Value::Array(list))]).expect("a device");
    let kinds = r#"["sliding_attention", "full_attention"]"#;
    let want = json("mistral", &[("layer_types", kinds)]).expect("a device");
    let all = json("mistral", &[]).expect("a device");
    assert!(apart(&got, &want) < 1e-4 && apart(&got, &all) > 1e-3);
    // Gemma 3 has rotations of their own in layers with a window, also if the window is longer than all texts
    let long = ("sliding_window", "256");
    let longer =
        json("gemma3", &[long, ("rope_local_base_freq", "1e6"), ("rope_parameters", ""), ("rope_theta", "1e6")]);
    let own = json("gemma3", &[long]).expect("a device");
    assert!(apart(&longer.expect("a device"), &own) > 1e-3);
    // llama.cpp divides by a factor whose kind is not named
    let factor = ("llama.rope.scaling.factor", Value::Scalar(DType::F32, Scalar::float(2.0)));
    let scaled = gguf("llama", std::slice::from_ref(&factor)).expect("a device");
    let named = gguf("llama", &[factor, ("llama.rope.scaling.type", Value::Str("linear".into()))]).expect("a device");
    assert_eq!(scaled, named);
    assert!(apart(&scaled, &gguf("llama", &[]).expect("a device")) > 1e-3);
    // StableLM 3B calls itself parallel, and is not
    let parallel = ("stablelm.use_parallel_residual", Value::Scalar(DType::Bool, Scalar::Int(1)));
    assert_eq!(gguf("stablelm", &[parallel]), gguf("stablelm", &[]));
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn a_text_ends_where_a_stop_string_begins() -> Result<()> {
    let letters = |ids: &[u32]| Ok(ids.iter().map(|&i| char::from(b'a' + i as u8)).collect::<String>());
    let mut s = Stream::new(&["cd".into()]);
    let text: Vec<String> = (0..5).map(|i| s.push(i, &letters)).collect::<Result<_>>()?;
    assert_eq!(text.concat() + &s.finish(&letters)?, "ab");
    assert!(s.stopped());
    Ok(())
}
