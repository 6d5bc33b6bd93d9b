//! A model's hyperparameters, from the metadata of a GGUF file or from a `config.json`. What a file does not say is
//! what llama.cpp or the transformers library take then. A value that changes results and that the decoder does not
//! have is an error that names it.

use super::arch::{ARCHES, Act, Arch, HeadNorm, IMAGES, Norm, PositionEncoding, RotaryPairs};
use super::err;
use super::mamba::Ssm;
use super::rope::{Rope, rotations};
use crate::error::{Error, Result};
use crate::io::gguf::{Gguf, Value};
use crate::io::json::Json;
use crate::util::decimal::Shown;

/// Counts above this are refused as errors of the file: tables are sized by them before any weight is looked at.
const MOST: usize = 1 << 24;

/// The hyperparameters of a model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The architecture.
    pub arch: &'static Arch,
    /// Number of layers (blocks).
    pub layers: usize,
    /// Elements of a token's hidden state.
    pub width: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_width: usize,
    /// The context length in tokens that the model was trained for.
    pub context: usize,
    /// Added to the variance or mean square in normalisations.
    pub eps: f64,
    /// The rotary embeddings of layers with global attention, and of layers with a window.
    pub rope: [Rope; 2],
    /// The number of last tokens that layers with a window attend to.
    pub window: Option<usize>,
    /// Of each layer, whether it has global attention although the model has a window.
    pub global: Vec<bool>,
    /// The factor of attention scores.
    pub scale: f64,
    /// The soft cap of attention scores.
    pub score_cap: Option<f64>,
    /// The soft cap of logits.
    pub logit_cap: Option<f64>,
    /// The bound of the elements of queries, keys and values.
    pub clip: Option<f64>,
    /// Of each layer, whether its queries and keys are not rotated; empty if all layers' are.
    pub unrotated: Vec<bool>,
    /// The sizes of layers that have a state (`Arch::recurrent`).
    pub ssm: Option<Ssm>,
    /// The experts of feed-forward networks that are mixtures.
    pub experts: Option<Experts>,
    /// Whether heads are normalised, if the architecture lets files choose (`HeadNorm::Own`).
    pub head_norms: bool,
    /// Whether attention and the feed-forward network read the same normalised input
    /// (`Block::Parallel`).
    pub parallel: bool,
    /// The activation of feed-forward networks.
    pub act: Act,
    /// Whether the configuration says that the output matrix is not the embedding's transpose.
    pub untied: bool,
    /// Whether the configuration says that the projections of attention, and of feed-forward networks, have no biases.
    pub unbiased: [bool; 2],
    /// Whether the configuration is from a GGUF file.
    pub gguf: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// The number of experts.
    pub count: usize,
    /// How many of them a token chooses.
    pub used: usize,
    /// Whether the shares of the chosen ones are divided by their sum.
    pub normalised: bool,
}

/// The tokens that end a text, as the metadata of a GGUF file names them.
pub fn ends(file: &Gguf) -> Vec<u32> {
    let keys = ["eos_token_id", "eot_token_id", "eom_token_id"].map(|k| format!("tokenizer.ggml.{k}"));
    let ids = keys.iter().filter_map(|k| file.get(k).and_then(Value::as_u64));
    ids.filter_map(|id| u32::try_from(id).ok()).collect()
}

/// The tokens that end a text, as a `config.json` or a `generation_config.json` names them.
pub fn ends_of(file: &[u8]) -> Result<Vec<u32>> {
    let file = Json::parse(file)?;
    let ids = match file.get("eos_token_id") {
        Some(Json::Array(list)) => list.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    };
    Ok(ids.into_iter().filter_map(Json::as_u64).filter_map(|id| u32::try_from(id).ok()).collect())
}

/// The values that both kinds of files have, under the keys of `config.json`.
pub(super) trait Source {
    fn number(&self, key: &str) -> Option<f64>;
    fn numbers(&self, key: &str) -> Option<Vec<f64>>;
    fn text(&self, key: &str) -> Option<String>;
    /// Of each layer, whether it has global attention although the model has a window, if the file has a list of that.
    fn global(&self, arch: &Arch, layers: usize) -> Result<Option<Vec<bool>>>;

    fn count(&self, key: &str) -> Result<usize> {
        self.some(key)?.ok_or_else(|| err(format!("the configuration lacks `{key}`")))
    }

    fn some(&self, key: &str) -> Result<Option<usize>> {
        let Some(n) = self.number(key) else { return Ok(None) };
        match n >= 0.0 && n <= MOST as f64 && n.fract() == 0.0 {
            true => Ok(Some(n as usize)),
            false => Err(err(format!("`{key}` is {}", Shown(n)))),
        }
    }
}

/// Values that change results and that the decoder does not have: the key, the values that change nothing, and what all
/// others stand for.
const REFUSED: &[(&str, &[f64], &str)] = &[
    ("expert_weights_scale", &[0.0, 1.0], "factor of experts' shares"),
    ("expert_gating_func", &[0.0, 1.0], "choice of experts by another function than softmax"),
    ("expert_group_count", &[0.0, 1.0], "groups of experts"),
    ("scale_attn_weights", &[1.0], "attention scores without a factor"),
    ("scale_attn_by_inverse_layer_idx", &[0.0], "factors of attention scores for each layer"),
    ("attention_multiplier", &[0.0], "factor of attention scores"),
    ("embedding_multiplier", &[0.0, 1.0], "factor of embeddings"),
    ("residual_multiplier", &[0.0, 1.0], "factor of what layers add"),
    ("logit_scale", &[0.0, 1.0], "factor of logits"),
    ("logits_scaling", &[0.0, 1.0], "factor of logits"),
    ("yarn_ext_factor", &[-1.0, 1.0], "mixed rotations"),
    ("yarn_attn_factor", &[1.0], "factor of rotations"),
    ("yarn_log_multiplier", &[0.0], "factor of rotations"),
    ("alibi_bias", &[0.0], "biases of attention by distance"),
    ("use_bidirectional_attention", &[0.0], "attention to later tokens"),
    ("is_causal", &[1.0], "attention to other tokens"),
    ("add_cross_attention", &[0.0], "attention to another text"),
];

/// What is taken where a file does not have the key: the class in a `config.json` or the architecture of a GGUF file,
/// the key, and the value. (A null in a `config.json` is a value.)
const DEFAULTS: &[(&str, &str, f64)] = &[
    ("MistralForCausalLM", "sliding_window", 4096.0),
    ("Qwen2ForCausalLM", "sliding_window", 4096.0),
    ("Qwen2ForCausalLM", "max_window_layers", 28.0),
    ("Qwen3ForCausalLM", "sliding_window", 4096.0),
    ("Qwen3ForCausalLM", "max_window_layers", 28.0),
    ("Gemma2ForCausalLM", "sliding_window", 4096.0),
    ("Gemma2ForCausalLM", "query_pre_attn_scalar", 256.0),
    ("Gemma2ForCausalLM", "attn_logit_softcapping", 50.0),
    ("Gemma2ForCausalLM", "final_logit_softcapping", 30.0),
    ("gemma2", "sliding_window", 4096.0),
    ("gemma2", "attn_logit_softcapping", 50.0),
    ("gemma2", "final_logit_softcapping", 30.0),
    // What folders of models that also read images leave out
    ("Gemma3ForCausalLM", "num_attention_heads", 8.0),
    ("Gemma3ForCausalLM", "num_key_value_heads", 4.0),
    ("Gemma3ForCausalLM", "head_dim", 256.0),
    ("Gemma3ForCausalLM", "max_position_embeddings", 131072.0),
    ("Gemma3ForCausalLM", "sliding_window", 4096.0),
    ("Gemma3ForCausalLM", "query_pre_attn_scalar", 256.0),
    ("Gemma3ForCausalLM", "rope_theta", 1e6),
    ("StableLmForCausalLM", "partial_rotary_factor", 0.25),
    ("Phi3ForCausalLM", "original_max_position_embeddings", 4096.0),
    ("SmolLM3ForCausalLM", "rope_theta", 2e6),
    ("SmolLM3ForCausalLM", "no_rope_layer_interval", 4.0),
    ("smollm3", "no_rope_layer_interval", 4.0),
    ("MixtralForCausalLM", "rope_theta", 1e6),
    ("MixtralForCausalLM", "norm_topk_prob", 1.0),
    ("llama", "norm_topk_prob", 1.0),
    ("qwen3moe", "norm_topk_prob", 1.0),
];

fn default_of(owner: &str, key: &str) -> Option<f64> {
    DEFAULTS.iter().find(|d| d.0 == owner && d.1 == key).map(|d| d.2)
}

impl Config {
    /// Reads the metadata of a GGUF file.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an architecture, or a part of one, that is not supported; `E_MODEL` for values
    /// that are missing or wrong.
    pub fn from_gguf(file: &Gguf) -> Result<Config> {
        Config::of_gguf(file, ARCHES)
    }

    /// Reads the metadata of a GGUF file of one of these architectures.
    pub(super) fn of_gguf(file: &Gguf, arches: &'static [Arch]) -> Result<Config> {
        let name = file.get("general.architecture").and_then(Value::as_str).ok_or_else(|| err("no architecture"))?;
        let arch = arches.iter().find(|a| a.name == name).ok_or_else(|| unknown(name, arches))?;
        let mut config = Config::new(arch, &FromGguf { file, arch: name })?;
        // llama.cpp asks the weights alone: StableLM 3B calls itself parallel, and has a norm for each of the two parts
        config.parallel &= file.entry("blk.0.ffn_norm.weight").is_none();
        Ok(config)
    }

    /// Reads a `config.json`.
    ///
    /// # Errors
    /// As for [`Config::from_gguf`].
    pub fn from_json(file: &[u8]) -> Result<Config> {
        Config::of_json(&Json::parse(file)?, ARCHES)
    }

    /// Reads a `config.json` of one of these architectures.
    pub(super) fn of_json(file: &Json, arches: &'static [Arch]) -> Result<Config> {
        let class = class(file)?;
        let arch = arches.iter().find(|a| a.classes.contains(&class)).ok_or_else(|| unknown(class, arches))?;
        match file.get("text_config").filter(|_| class == IMAGES) {
            Some(text) => Config::new(arch, &FromJson { file: text, class: arch.classes[0] }),
            None => Config::new(arch, &FromJson { file, class }),
        }
    }

    fn new(arch: &'static Arch, s: &dyn Source) -> Result<Config> {
        for (key, neutral, what) in REFUSED {
            let neutral = if *key == "is_causal" { &[f64::from(u8::from(arch.causal))] } else { *neutral };
            if let Some(n) = s.number(key).filter(|n| !neutral.contains(n)) {
                return Err(unsupported(arch, &format!("{what}: `{key}` is {}", Shown(n))));
            }
        }
        if arch.recurrent {
            return Config::recurrent(arch, s);
        }
        let (width, heads) = (s.count("hidden_size")?, s.count("num_attention_heads")?);
        let kv_heads = s.some("num_key_value_heads")?.unwrap_or(heads);
        let layers = s.count("num_hidden_layers")?;
        let context = s.count("max_position_embeddings")?;
        let head_width = s.some("head_dim")?.unwrap_or(width / heads.max(1));
        if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 || head_width == 0 || layers > 1 << 12 {
            return Err(err(format!("{heads} heads, {kv_heads} of keys, {head_width} wide, in {layers} layers")));
        }
        let gguf = s.text("gguf").is_some();
        let clip = s.number("clip_qkv").filter(|&c| c != 0.0);
        let head_norms = s.number("qk_layernorm").map_or(gguf, |n| n != 0.0);
        if let Some(c) = clip.filter(|&c| !matches!(arch.name, "olmo" | "olmoe") || c.is_nan() || c < 0.0) {
            return Err(unsupported(arch, &format!("limits of queries, keys and values: `clip_qkv` is {}", Shown(c))));
        }
        if head_norms && !gguf && arch.heads != HeadNorm::Own {
            return Err(unsupported(arch, "normalised queries and keys (`qk_layernorm`)"));
        }
        let eps = match arch.norm {
            Norm::Rms => "rms_norm_eps",
            Norm::Layer | Norm::Plain => "layer_norm_eps",
        };
        let lacks = || err(format!("the configuration lacks `{eps}`"));
        let eps = s.number(eps).or((!gguf).then_some(arch.eps)).ok_or_else(lacks)?;
        // With a window as long as the context all layers attend to the same tokens, but perhaps by other rotations
        let matters = |&w: &usize| w > 0 && (w < context || arch.has_local_rotations());
        let window = s.some("sliding_window")?.filter(matters);
        let global_every = s.some("sliding_window_pattern")?.or(arch.global_every);
        let global = match (s.global(arch, layers)?, global_every) {
            (Some(list), _) if list.len() >= layers => list,
            (Some(list), _) => return Err(err(format!("{} of {layers} layers have a kind of attention", list.len()))),
            (None, Some(n)) => (0..layers).map(|i| n > 0 && (i + 1) % n == 0).collect(),
            (None, None) if window.is_some() => {
                return Err(unsupported(arch, "attention window (`sliding_window`) in layers that are not named"));
            }
            (None, None) => vec![true; layers],
        };
        let act = match s.text(arch.act_key) {
            Some(name) => Act::named(&name).ok_or_else(|| unsupported(arch, &format!("activation `{name}`")))?,
            None => arch.feed.act(),
        };
        // Qwen 2 and GPT-2 have biases whatever a configuration says
        let lacks_bias = |key: &str| s.number(key) == Some(0.0) && !matches!(arch.name, "qwen2" | "qwen2moe" | "gpt2");
        let scale = match s.number("query_pre_attn_scalar") {
            Some(n) if n > 0.0 => 1.0 / n.sqrt(),
            _ => 1.0 / (head_width as f64).sqrt(),
        };
        let mut config = Config {
            arch,
            layers,
            width,
            heads,
            kv_heads,
            head_width,
            context,
            eps,
            rope: [Rope::default(), Rope::default()],
            window,
            global,
            scale,
            score_cap: s.number("attn_logit_softcapping").filter(|&c| c > 0.0),
            logit_cap: s.number("final_logit_softcapping").filter(|&c| c > 0.0),
            clip,
            unrotated: unrotated(arch, s, layers)?,
            ssm: None,
            experts: experts(arch, s, gguf)?,
            head_norms,
            parallel: s.number("use_parallel_residual").is_some_and(|p| p != 0.0),
            act,
            untied: s.number("tie_word_embeddings") == Some(0.0),
            unbiased: [lacks_bias("attention_bias") || lacks_bias("use_qkv_bias"), lacks_bias("mlp_bias")],
            gguf,
        };
        if let PositionEncoding::Rotary(_) = arch.positions {
            config.rope = rotations(arch, s, head_width, context)?;
        }
        Ok(config)
    }

    /// The configuration of an architecture without attention.
    fn recurrent(arch: &'static Arch, s: &dyn Source) -> Result<Config> {
        let (width, layers) = (s.count("hidden_size")?, s.count("num_hidden_layers")?);
        let (inner, state, kernel) = (s.count("intermediate_size")?, s.count("state_size")?, s.count("conv_kernel")?);
        let rank = match s.text("time_step_rank").as_deref() {
            Some("auto") => width.div_ceil(16),
            _ => s.count("time_step_rank")?,
        };
        if width == 0 || layers > 1 << 12 || inner == 0 || state == 0 || kernel < 2 || kernel > 1 << 8 || rank == 0 {
            let what = format!("{inner} channels with {state} elements, {kernel} taps and a rank of {rank}");
            return Err(err(format!("{layers} layers, {width} wide, of {what}")));
        }
        if let Some(act) = s.text(arch.act_key).filter(|act| Act::named(act) != Some(Act::Silu)) {
            return Err(unsupported(arch, &format!("activation `{act}`")));
        }
        if s.number("dt_b_c_rms").is_some_and(|n| n != 0.0) {
            return Err(unsupported(arch, "normalised states"));
        }
        let gguf = s.text("gguf").is_some();
        let eps = s.number("rms_norm_eps").or_else(|| s.number("layer_norm_eps"));
        Ok(Config {
            arch,
            layers,
            width,
            heads: 1,
            kv_heads: 1,
            head_width: 1,
            // Folders do not say: a state has no end
            context: s.some("max_position_embeddings")?.unwrap_or(MOST),
            eps: eps.unwrap_or(arch.eps),
            rope: [Rope::default(), Rope::default()],
            window: None,
            global: vec![true; layers],
            scale: 1.0,
            score_cap: None,
            logit_cap: None,
            clip: None,
            unrotated: Vec::new(),
            ssm: Some(Ssm { inner, state, kernel, rank }),
            experts: None,
            head_norms: false,
            parallel: false,
            act: Act::Silu,
            untied: s.number("tie_word_embeddings") == Some(0.0),
            unbiased: [false; 2],
            gguf,
        })
    }

    /// Which elements of a head are rotated as a pair, given the order in which the model's file stores the
    /// rows of the projections.
    pub fn pairs(&self) -> RotaryPairs {
        match self.arch.positions {
            PositionEncoding::Rotary(pairs) if self.gguf => pairs,
            _ => RotaryPairs::Halves,
        }
    }

    /// The number of elements that queries or keys are normalised over; `None` if they are not normalised.
    pub(super) fn norm_width(&self, heads: usize) -> Option<usize> {
        match self.arch.heads {
            HeadNorm::None => None,
            HeadNorm::Each | HeadNorm::Own => Some(self.head_width),
            HeadNorm::All => Some(heads * self.head_width),
        }
    }
}

/// Of each layer, whether its queries and keys are not rotated.
fn unrotated(arch: &Arch, s: &dyn Source, layers: usize) -> Result<Vec<bool>> {
    if arch.name != "smollm3" {
        return Ok(Vec::new());
    }
    let every = s.some("no_rope_layer_interval")?.unwrap_or(0);
    match s.numbers("no_rope_layers") {
        Some(list) if list.len() < layers => Err(err(format!("{} of {layers} layers are rotated or not", list.len()))),
        Some(list) => Ok(list.iter().map(|&is_rotated| is_rotated == 0.0).collect()),
        None => Ok((0..layers).map(|i| every > 0 && (i + 1) % every == 0).collect()),
    }
}

fn experts(arch: &Arch, s: &dyn Source, gguf: bool) -> Result<Option<Experts>> {
    let count = s.some("num_local_experts")?.or(s.some("num_experts")?).unwrap_or(0);
    if count == 0 {
        return Ok(None);
    }
    // Mixtral's GGUF files call themselves Llama
    if !(arch.experts || gguf && arch.name == "llama") {
        return Err(unsupported(arch, &format!("mixture of experts: `num_experts` is {count}")));
    }
    let used = s.count("num_experts_per_tok")?;
    if used == 0 || used > count {
        return Err(err(format!("a token chooses {used} of {count} experts")));
    }
    let normalised = s.number("norm_topk_prob").is_some_and(|n| n != 0.0);
    Ok(Some(Experts { count, used, normalised }))
}

/// The model's class in the transformers library.
pub(super) fn class(file: &Json) -> Result<&str> {
    let classes = file.get("architectures").and_then(Json::as_array).unwrap_or_default();
    classes.first().and_then(Json::as_str).ok_or_else(|| err("`architectures` names none"))
}

fn unknown(name: &str, arches: &[Arch]) -> Error {
    let known: Vec<&str> = arches.iter().map(|a| a.name).collect();
    Error::Unsupported { what: format!("architecture `{name}`"), context: format!("known are {}", known.join(", ")) }
}

pub(super) fn unsupported(arch: &Arch, what: &str) -> Error {
    Error::Unsupported { what: what.into(), context: format!("a model of architecture {}", arch.name) }
}

struct FromGguf<'a> {
    file: &'a Gguf,
    arch: &'a str,
}

/// Keys of `config.json`, each with the key of GGUF that follows the architecture's name and a dot.
const KEYS: &[(&str, &str)] = &[
    ("hidden_size", "embedding_length"),
    ("num_hidden_layers", "block_count"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("rope_theta", "rope.freq_base"),
    ("rope_width", "rope.dimension_count"),
    ("rope_scaling.rope_type", "rope.scaling.type"),
    ("rope_scaling.factor", "rope.scaling.factor"),
    ("rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"),
    ("rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast"),
    ("rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow"),
    ("yarn_ext_factor", "rope.scaling.yarn_ext_factor"),
    ("yarn_attn_factor", "rope.scaling.yarn_attn_factor"),
    ("yarn_log_multiplier", "rope.scaling.yarn_log_multiplier"),
    // Old files
    ("rope_scaling.factor", "rope.scale_linear"),
    ("rope_attn_factor", "rope.scaling.attn_factor"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("sliding_window", "attention.sliding_window"),
    ("sliding_window_pattern", "attention.sliding_window_pattern"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("use_parallel_residual", "use_parallel_residual"),
    ("clip_qkv", "attention.clamp_kqv"),
    ("hidden_act", "hidden_activation"),
    ("hidden_activation", "hidden_activation"),
    ("activation_function", "hidden_activation"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("norm_topk_prob", "expert_weights_norm"),
    ("expert_weights_scale", "expert_weights_scale"),
    ("expert_gating_func", "expert_gating_func"),
    ("expert_group_count", "expert_group_count"),
    ("attention_multiplier", "attention.scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logit_scale", "logit_scale"),
    ("alibi_bias", "attention.max_alibi_bias"),
    ("is_causal", "attention.causal"),
    ("intermediate_size", "ssm.inner_size"),
    ("state_size", "ssm.state_size"),
    ("conv_kernel", "ssm.conv_kernel"),
    ("time_step_rank", "ssm.time_step_rank"),
    ("dt_b_c_rms", "ssm.dt_b_c_rms"),
];

impl FromGguf<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        KEYS.iter().filter(|k| k.0 == key).find_map(|k| self.file.get(&format!("{}.{}", self.arch, k.1)))
    }
}

impl Source for FromGguf<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        if key == "query_pre_attn_scalar" {
            // GGUF metadata lacks this value: the largest models of these families differ from the others
            let largest = [("gemma2", 46.0), ("gemma3", 62.0)];
            let odd = largest.iter().any(|l| l.0 == self.arch && self.number("num_hidden_layers") == Some(l.1));
            let width = self.number("hidden_size").zip(self.number("num_attention_heads"));
            return width.filter(|_| odd).map(|(width, heads)| width / heads);
        }
        let Some(value) = self.value(key) else { return default_of(self.arch, key) };
        value.as_bool().map(f64::from).or_else(|| value.as_f64())
    }

    fn numbers(&self, _: &str) -> Option<Vec<f64>> {
        None
    }

    fn text(&self, key: &str) -> Option<String> {
        if key == "gguf" {
            return Some("yes".into());
        }
        self.value(key)?.as_str().map(String::from)
    }

    fn global(&self, _: &Arch, _: usize) -> Result<Option<Vec<bool>>> {
        let list = self.value("sliding_window_pattern").and_then(Value::as_array);
        Ok(list.map(|list| list.scalars().map(|has_window| !has_window.as_bool()).collect()))
    }
}

struct FromJson<'a> {
    file: &'a Json,
    /// The model's class in the transformers library.
    class: &'a str,
}

impl FromJson<'_> {
    /// Do configurations of this class turn windows on and off, and are windows off if they do not say?
    fn has_switch(&self) -> bool {
        self.class.starts_with("Qwen") || self.class.starts_with("SmolLM3")
    }

    /// Does the model's class have an attention window, if the configuration says how long it is? The other classes
    /// pay no heed to it.
    fn has_window(&self) -> bool {
        let classes =
            ["MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"];
        match self.has_switch() {
            true => matches!(self.file.get("use_sliding_window"), Some(Json::Bool(true))),
            false => classes.contains(&self.class),
        }
    }

    fn value(&self, key: &str) -> Option<&Json> {
        // GPT-2 has keys of its own
        let old = match key {
            "hidden_size" => "n_embd",
            "num_hidden_layers" => "n_layer",
            "num_attention_heads" => "n_head",
            "max_position_embeddings" => "n_positions",
            "layer_norm_eps" => "layer_norm_epsilon",
            _ => key,
        };
        let file = self.file;
        let rope = |key: &str| {
            // Newer files have all values of rotations in one object, some of them in one object for each kind of layer
            let all = file.get("rope_parameters")?;
            all.get("full_attention").unwrap_or(all).get(key)
        };
        let local = |key: &str| file.get("rope_parameters")?.get("sliding_attention")?.get(key);
        match key {
            "rope_local_base_freq" => file.get(key).or_else(|| local("rope_theta")),
            "rope_local.rope_type" => local("rope_type"),
            "rope_theta" => rope(key).or_else(|| file.get(key)).or_else(|| file.get("rotary_emb_base")),
            "partial_rotary_factor" => rope(key).or_else(|| file.get(key)),
            _ => match key.strip_prefix("rope_scaling.") {
                Some(key) => rope(key).or_else(|| {
                    let old = file.get("rope_scaling")?;
                    old.get(key).or_else(|| old.get("type").filter(|_| key == "rope_type"))
                }),
                None => file.get(key).or_else(|| file.get(old)),
            },
        }
    }
}

impl Source for FromJson<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        if key == "sliding_window" && !self.has_window() {
            return None;
        }
        let Some(value) = self.value(key) else { return default_of(self.class, key) };
        match value {
            Json::Bool(b) => Some(f64::from(u8::from(*b))),
            v => v.as_f64(),
        }
    }

    fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        self.value(key)?.as_array()?.iter().map(Json::as_f64).collect()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.value(key)?.as_str().map(String::from)
    }

    fn global(&self, arch: &Arch, layers: usize) -> Result<Option<Vec<bool>>> {
        let is_global = |kind: &Json| match kind.as_str() {
            Some("full_attention") => Ok(true),
            Some("sliding_attention") => Ok(false),
            kind => Err(unsupported(arch, &format!("layers of type `{}`", kind.unwrap_or_default()))),
        };
        if let Some(kinds) = self.file.get("layer_types").and_then(Json::as_array) {
            return kinds.iter().map(is_global).collect::<Result<_>>().map(Some);
        }
        let is_named = matches!(self.class, "Qwen2ForCausalLM" | "Qwen3ForCausalLM");
        let first = if is_named { self.some("max_window_layers")? } else { None };
        Ok(first.map(|first| (0..layers).map(|i| i < first).collect()))
    }
}
