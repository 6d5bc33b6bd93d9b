//! A model's hyperparameters, from the metadata of a GGUF file or from a `config.json`.

use super::arch::{ARCHES, Arch, HeadNorm, Norm, PositionEncoding, RotaryPairs};
use super::err;
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
    /// Whether attention and the feed-forward network read the same normalised input
    /// (`Block::Parallel`).
    pub parallel: bool,
    /// Whether the configuration is from a GGUF file.
    pub gguf: bool,
}

/// A rotary embedding.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// How many elements of a head are rotated, the first ones.
    pub width: usize,
    /// Of each pair of elements, the angle in radians by which a token's rotation exceeds that of the token before it.
    pub speeds: Vec<f32>,
    /// The factor of sines and cosines.
    pub factor: f64,
}

impl Rope {
    fn new(base: f64, width: usize) -> Rope {
        let speed = |i: usize| base.powf(-(2.0 * i as f64) / width as f64) as f32;
        Rope { width, speeds: (0..width / 2).map(speed).collect(), factor: 1.0 }
    }

    fn divided(mut self, by: impl Fn(usize, f64) -> f64) -> Rope {
        self.speeds.iter_mut().enumerate().for_each(|(i, s)| *s = (f64::from(*s) / by(i, f64::from(*s))) as f32);
        self
    }
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
trait Source {
    fn number(&self, key: &str) -> Option<f64>;
    fn text(&self, key: &str) -> Option<String>;
    fn numbers(&self, key: &str) -> Option<Vec<f64>>;

    fn count(&self, key: &str) -> Result<usize> {
        self.some(key)?.ok_or_else(|| err(format!("the configuration lacks `{key}`")))
    }

    fn some(&self, key: &str) -> Result<Option<usize>> {
        let Some(n) = self.number(key) else { return Ok(None) };
        match n >= 0.0 && n <= MOST as f64 && n.fract() == 0.0 {
            true => Ok(Some(n as usize)),
            false => Err(err(format!("`{key}` is {n}"))),
        }
    }
}

impl Config {
    /// Reads the metadata of a GGUF file.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an architecture, or a part of one, that is not supported; `E_MODEL` for values
    /// that are missing or wrong.
    pub fn from_gguf(file: &Gguf) -> Result<Config> {
        let name = file.get("general.architecture").and_then(Value::as_str).ok_or_else(|| err("no architecture"))?;
        let arch = ARCHES.iter().find(|a| a.name == name).ok_or_else(|| unknown(name))?;
        let speeds = file.entry("rope_factors_short.weight").is_some();
        if speeds {
            return Err(unsupported(arch, "rotations with factors for long texts"));
        }
        Config::new(arch, &FromGguf { file, arch: name })
    }

    /// Reads a `config.json`.
    pub fn from_json(file: &[u8]) -> Result<Config> {
        let file = Json::parse(file)?;
        let classes = file.get("architectures").and_then(Json::as_array).unwrap_or_default();
        let class = classes.first().and_then(Json::as_str).ok_or_else(|| err("`architectures` names none"))?;
        let arch = ARCHES.iter().find(|a| a.classes.contains(&class)).ok_or_else(|| unknown(class))?;
        Config::new(arch, &FromJson(&file))
    }

    fn new(arch: &'static Arch, s: &dyn Source) -> Result<Config> {
        let (width, heads) = (s.count("hidden_size")?, s.count("num_attention_heads")?);
        let kv_heads = s.some("num_key_value_heads")?.unwrap_or(heads);
        let layers = s.count("num_hidden_layers")?;
        let context = s.count("max_position_embeddings")?;
        let head_width = s.some("head_dim")?.unwrap_or(width / heads.max(1));
        if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 || head_width == 0 || layers > 1 << 12 {
            return Err(err(format!("{heads} heads, {kv_heads} of keys, {head_width} wide, in {layers} layers")));
        }
        let eps = match arch.norm {
            Norm::Rms => s.number("rms_norm_eps"),
            Norm::Layer | Norm::Plain => s.number("layer_norm_eps"),
        };
        let global_every = arch.global_every;
        let window = s.some("sliding_window")?.filter(|&w| w > 0 && w < context);
        let scale = match s.number("query_pre_attn_scalar") {
            Some(n) if n > 0.0 => 1.0 / n.sqrt(),
            _ => 1.0 / (head_width as f64).sqrt(),
        };
        if s.number("clip_qkv").is_some_and(|n| n > 0.0) {
            return Err(unsupported(arch, "limits of queries, keys and values"));
        }
        let mut config = Config {
            arch,
            layers,
            width,
            heads,
            kv_heads,
            head_width,
            context,
            eps: eps.unwrap_or(1e-5),
            rope: [Rope::default(), Rope::default()],
            window,
            global: (0..layers).map(|i| global_every > 0 && (i + 1) % global_every == 0).collect(),
            scale,
            score_cap: s.number("attn_logit_softcapping").filter(|&c| c > 0.0),
            logit_cap: s.number("final_logit_softcapping").filter(|&c| c > 0.0),
            parallel: s.number("use_parallel_residual").is_some_and(|p| p != 0.0),
            gguf: s.text("gguf").is_some(),
        };
        if let PositionEncoding::Rotary(_) = arch.positions {
            config.rope = rotations(arch, s, head_width)?;
        }
        Ok(config)
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
            HeadNorm::Each => Some(self.head_width),
            HeadNorm::All => Some(heads * self.head_width),
        }
    }
}

/// The rotary embeddings of layers with global attention, and of layers with a window.
fn rotations(arch: &Arch, s: &dyn Source, head_width: usize) -> Result<[Rope; 2]> {
    let part = s.number("partial_rotary_factor").unwrap_or(1.0);
    let width = s.some("rope_width")?.unwrap_or((head_width as f64 * part) as usize);
    if width == 0 || width % 2 != 0 || width > head_width {
        return Err(err(format!("{width} elements of heads of {head_width} are rotated")));
    }
    let base = s.number("rope_theta").unwrap_or(10_000.0);
    let local = s.number("rope_local_base_freq").unwrap_or(if arch.global_every == 6 { 10_000.0 } else { base });
    if !(base > 1.0 && local > 1.0) {
        return Err(err(format!("a base of rotations of {}, {}", Shown(base), Shown(local))));
    }
    let plain = Rope::new(base, width);
    let of = |key: &str| s.number(&format!("rope_scaling.{key}"));
    let need = |key: &str| of(key).ok_or_else(|| err(format!("the configuration lacks `rope_scaling.{key}`")));
    let kind = s.text("rope_scaling.rope_type").unwrap_or_default();
    let global = match (s.numbers("rope_freqs"), kind.as_str()) {
        (Some(f), _) if f.len() == width / 2 => plain.divided(|i, _| f[i]),
        (Some(f), _) => return Err(err(format!("{} factors of rotations for {width} elements", f.len()))),
        (None, "" | "default" | "none") => plain,
        (None, "linear") => {
            let by = need("factor")?;
            plain.divided(|_, _| by)
        }
        (None, "llama3") => {
            let (factor, low, high) = (need("factor")?, need("low_freq_factor")?, need("high_freq_factor")?);
            let old = need("original_max_position_embeddings")?;
            plain.divided(|_, speed| {
                let turns = old * speed / std::f64::consts::TAU;
                match (turns < low, turns > high) {
                    (true, _) => factor,
                    (_, true) => 1.0,
                    _ => {
                        let part = (turns - low) / (high - low);
                        1.0 / ((1.0 - part) / factor + part)
                    }
                }
            })
        }
        (None, kind) => return Err(unsupported(arch, &format!("rotations scaled by `{kind}`"))),
    };
    let window = if arch.global_every == 6 { Rope::new(local, width) } else { global.clone() };
    Ok([global, window])
}

fn unknown(name: &str) -> Error {
    let known: Vec<&str> = ARCHES.iter().map(|a| a.name).collect();
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
    ("sliding_window", "attention.sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("use_parallel_residual", "use_parallel_residual"),
    ("clip_qkv", "attention.clamp_kqv"),
];

impl FromGguf<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        let of = KEYS.iter().find(|k| k.0 == key)?.1;
        self.file.get(&format!("{}.{of}", self.arch))
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
        let value = self.value(key)?;
        value.as_bool().map(f64::from).or_else(|| value.as_f64())
    }

    fn text(&self, key: &str) -> Option<String> {
        if key == "gguf" {
            return Some("yes".into());
        }
        self.value(key)?.as_str().map(String::from)
    }

    fn numbers(&self, _: &str) -> Option<Vec<f64>> {
        None
    }
}

struct FromJson<'a>(&'a Json);

impl FromJson<'_> {
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
        let file = self.0;
        let rope = |key: &str| {
            // Newer files have all values of rotations in one object, some of them in one object for each kind of layer
            let all = file.get("rope_parameters")?;
            all.get("full_attention").unwrap_or(all).get(key)
        };
        match key {
            "rope_local_base_freq" => {
                let local = || file.get("rope_parameters")?.get("sliding_attention")?.get("rope_theta");
                file.get(key).or_else(local)
            }
            "rope_theta" | "partial_rotary_factor" => rope(key).or_else(|| file.get(key)),
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
        let value = self.value(key)?;
        if key == "sliding_window" && matches!(self.0.get("use_sliding_window"), Some(Json::Bool(false))) {
            return None;
        }
        match value {
            Json::Bool(b) => Some(f64::from(u8::from(*b))),
            v => v.as_f64(),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.value(key)?.as_str().map(String::from)
    }

    fn numbers(&self, _: &str) -> Option<Vec<f64>> {
        None
    }
}

impl Config {
    /// Divides the rotation speeds of layers with global attention by the factors in a tensor of a GGUF file
    /// ([`super::FACTORS`]).
    pub(super) fn set_factors(&mut self, by: &[f64]) -> Result<()> {
        let rope = std::mem::take(&mut self.rope[0]);
        if by.len() != rope.speeds.len() || by.iter().any(|f| f.is_nan() || *f <= 0.0) {
            return Err(err(format!("{} factors of rotations for {} elements", by.len(), rope.width)));
        }
        self.rope[0] = rope.divided(|i, _| by[i]);
        if self.arch.global_every != 6 {
            self.rope[1] = self.rope[0].clone();
        }
        Ok(())
    }
}
