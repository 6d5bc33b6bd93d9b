//! The speeds of rotary embeddings (Su et al. 2021), and how configurations stretch them for long texts: linearly, as
//! Llama 3 does, YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024). Formulas are those of the transformers library.

use super::arch::Arch;
use super::config::{Config, Source, unsupported};
use super::err;
use crate::error::Result;
use crate::util::decimal::Shown;
use std::f64::consts::TAU;

/// The tensors of a GGUF file by whose values the speeds of rotations are divided: in all texts, in texts that may be
/// longer than those of the first training, and in shorter ones.
pub const FACTORS: [&str; 3] = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// A rotary embedding.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// How many elements of a head are rotated, the first ones.
    pub width: usize,
    /// Of each pair of elements, the angle in radians by which a token's rotation exceeds that of the token before it.
    pub speeds: Vec<f32>,
    /// The factor of sines and cosines.
    pub factor: f64,
    /// The most tokens of a text in the first training.
    pub first: usize,
    /// The speeds in models with room for more tokens than that.
    pub long: Option<Vec<f32>>,
}

impl Rope {
    fn new(base: f64, width: usize) -> Rope {
        let speed = |i: usize| base.powf(-(2.0 * i as f64) / width as f64) as f32;
        Rope { width, speeds: (0..width / 2).map(speed).collect(), factor: 1.0, first: 0, long: None }
    }

    fn divided(&self, by: impl Fn(usize, f64) -> f64) -> Vec<f32> {
        let one = |(i, &s): (usize, &f32)| (f64::from(s) / by(i, f64::from(s))) as f32;
        self.speeds.iter().enumerate().map(one).collect()
    }

    fn divided_by(&self, list: &[f64]) -> Result<Vec<f32>> {
        if list.len() != self.speeds.len() || list.iter().any(|f| f.is_nan() || *f <= 0.0) {
            return Err(err(format!("{} factors of rotations for {} elements", list.len(), self.width)));
        }
        Ok(self.divided(|i, _| list[i]))
    }

    /// Decides for the speeds of a model with room for so many tokens.
    pub(super) fn fix(&mut self, capacity: usize) -> Result<()> {
        let Some(speeds) = self.long.take() else { return Ok(()) };
        if speeds.len() != self.speeds.len() {
            return Err(err("the factors of rotations for long texts are missing"));
        }
        if capacity > self.first {
            self.speeds = speeds;
        }
        Ok(())
    }
}

impl Config {
    /// Divides the speeds of layers with global attention by the factors in tensors of a GGUF file ([`FACTORS`]).
    pub(super) fn set_factors(&mut self, all: &[(String, Vec<f64>)]) -> Result<()> {
        let of = |i: usize| all.iter().find(|f| f.0 == FACTORS[i]).map(|f| f.1.as_slice());
        let rope = &mut self.rope[0];
        if let Some(by) = of(1) {
            rope.long = Some(rope.divided_by(by)?);
        }
        for by in [of(0), of(2)].into_iter().flatten() {
            rope.speeds = rope.divided_by(by)?;
        }
        if !self.arch.has_local_rotations() {
            self.rope[1] = self.rope[0].clone();
        }
        Ok(())
    }
}

/// The rotary embeddings of layers with global attention, and of layers with a window.
pub(super) fn rotations(arch: &Arch, s: &dyn Source, head_width: usize, context: usize) -> Result<[Rope; 2]> {
    let part = s.number("partial_rotary_factor").unwrap_or(1.0);
    let width = s.some("rope_width")?.unwrap_or((head_width as f64 * part) as usize);
    if width == 0 || width % 2 != 0 || width > head_width {
        return Err(err(format!("{width} elements of heads of {head_width} are rotated")));
    }
    let own = arch.has_local_rotations();
    let base = s.number("rope_theta").unwrap_or(10_000.0);
    let local = s.number("rope_local_base_freq").unwrap_or(if own { 10_000.0 } else { base });
    if !(base > 1.0 && local > 1.0) {
        return Err(err(format!("a base of rotations of {}, {}", Shown(base), Shown(local))));
    }
    let is_scaled = s.text("rope_local.rope_type").is_some_and(|kind| kind != "default" || !own);
    if is_scaled || (local != base && !own) {
        return Err(unsupported(arch, "rotations of their own (`rope_local_base_freq`) in layers with a window"));
    }
    let gguf = s.text("gguf").is_some();
    let of = |key: &str| s.number(&format!("rope_scaling.{key}"));
    let need = |key: &str| {
        let lacks = || err(format!("the configuration lacks a positive `rope_scaling.{key}`"));
        of(key).filter(|&n| n > 0.0).ok_or_else(lacks)
    };
    let kind = match (s.text("rope_scaling.rope_type"), of("factor").filter(|&f| f != 0.0 && f != 1.0)) {
        // The first files of Phi 3 call it so
        (Some(kind), _) if arch.name == "phi3" && matches!(kind.as_str(), "su" | "yarn") => "longrope".into(),
        (Some(kind), _) => kind,
        (None, None) => String::new(),
        // As in llama.cpp; other programs name the kind
        (None, Some(_)) if gguf => "linear".into(),
        (None, Some(_)) => return Err(unsupported(arch, "rotations scaled by a factor (`rope_scaling`) of no kind")),
    };
    let top = s.number("original_max_position_embeddings");
    let first = top.or_else(|| of("original_max_position_embeddings")).unwrap_or(context as f64);
    let old = || {
        let wrong = || err(format!("`original_max_position_embeddings` is {}", Shown(first)));
        Some(first).filter(|&n| n > 1.0).ok_or_else(wrong)
    };
    // GGUF files of Phi 3 name no kind, and have factors as tensors
    let mut rope = Rope { first: first as usize, ..Rope::new(base, width) };
    match kind.as_str() {
        "" | "default" | "none" => {}
        "linear" => {
            let by = need("factor")?;
            rope.speeds = rope.divided(|_, _| by);
        }
        "llama3" => {
            let (factor, low, high) = (need("factor")?, need("low_freq_factor")?, need("high_freq_factor")?);
            let old = old()?;
            rope.speeds = rope.divided(|_, speed| {
                let turns = old * speed / TAU;
                match (turns < low, turns > high) {
                    (true, _) => factor,
                    (_, true) => 1.0,
                    _ => {
                        let part = (turns - low) / (high - low);
                        1.0 / ((1.0 - part) / factor + part)
                    }
                }
            });
        }
        "yarn" => {
            let (old, factor) = (old()?, need("factor")?);
            let beta = |key: &str, default: f64| of(key).filter(|&b| b != 0.0).unwrap_or(default);
            // The index of the pair of elements that makes so many turns in the texts of the first training
            let at = |turns: f64| width as f64 * (old / (turns * TAU)).ln() / (2.0 * base.ln());
            let (mut low, mut high) = (at(beta("beta_fast", 32.0)), at(beta("beta_slow", 1.0)));
            if of("truncate") != Some(0.0) {
                (low, high) = (low.floor(), high.ceil());
            }
            (low, high) = (low.max(0.0), high.min(width as f64 - 1.0));
            let span = if low == high { 0.001 } else { high - low };
            rope.speeds = rope.divided(|i, _| {
                let part = ((i as f64 - low) / span).clamp(0.0, 1.0);
                1.0 / (part / factor + (1.0 - part))
            });
            let grown = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
            let given = |key: &str| of(key).filter(|&n| n != 0.0);
            rope.factor = match (of("attention_factor"), given("mscale").zip(given("mscale_all_dim"))) {
                (Some(factor), _) => factor,
                (None, Some((one, all))) => grown(one) / grown(all),
                (None, None) => grown(1.0),
            };
        }
        // The factors are tensors
        "longrope" if gguf => rope.long = Some(Vec::new()),
        "longrope" => {
            let old = old()?;
            let list = |key: &str| {
                let lacks = || err(format!("the configuration lacks the list `rope_scaling.{key}`"));
                rope.divided_by(&s.numbers(&format!("rope_scaling.{key}")).ok_or_else(lacks)?)
            };
            let (short, long) = (list("short_factor")?, list("long_factor")?);
            let factor = of("factor").unwrap_or(context as f64 / old);
            let grown = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / old.ln()).sqrt() };
            rope.factor = of("attention_factor").unwrap_or(grown);
            (rope.speeds, rope.long) = (short, Some(long));
        }
        kind => return Err(unsupported(arch, &format!("rotations scaled by `{kind}`"))),
    }
    // Files of llama.cpp have this factor beside the others
    rope.factor *= s.number("rope_attn_factor").filter(|&f| f != 0.0).unwrap_or(1.0);
    if !rope.factor.is_finite() || rope.speeds.iter().any(|s| !s.is_finite()) {
        return Err(err("the rotations of the configuration are no numbers"));
    }
    let window = if own { Rope::new(local, width) } else { rope.clone() };
    Ok([rope, window])
}
