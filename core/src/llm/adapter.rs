//! Low-rank adapters (LoRA) of language models: a product `B A x` that is added to what a matrix product `W x` gives.
//!
//! Sources: the files of Hugging Face's PEFT (`adapter_config.json`, `adapter_model.safetensors`) and llama.cpp's
//! adapters in GGUF; Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021).
//!
//! In the graph an adapter is two buffers, `A` and `B`, beside each matrix that any of the loaded adapters changes.
//! Their rank is the largest rank of these adapters; adapters of a lower rank are padded with zeros, and "no adapter"
//! is all zeros. So the graph, its plans and its kernels are the same whichever adapter is in use, and switching only
//! writes buffers. Without an adapter the product of zeros is still computed; with rank 16 and width 2048 that is about
//! a hundredth of the work. A scale of 0 instead of zeros would save none of that work, and would give NaN where a
//! factor is infinite.

use super::arch::{Arch, PositionEncoding, RotaryPairs};
use super::config::Config;
use super::decoder::Decoder;
use super::{err, names};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::gguf::{Gguf, Value};
use crate::io::json::Json;
use crate::io::safetensors::SafeTensors;
use crate::tensor::Tensor;

/// A loaded adapter: the terms that it adds to products with matrices.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(super) terms: Vec<Term>,
    /// Whether the rows of query and key matrices are in GGUF's order.
    pub(super) gguf: bool,
    /// `lora_alpha` of its file: the scale multiplied by the rank.
    pub(super) alpha: Option<f64>,
}

/// The term `B A x` that is added to `W x`.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The name of the matrix `W`, as in GGUF.
    pub(super) weight: String,
    /// `[rank, inputs]`.
    pub(super) a: Vec<f32>,
    /// `[outputs, rank]`, already multiplied by the scale.
    pub(super) b: Vec<f32>,
    pub(super) rank: usize,
}

/// The buffers of adapters beside one matrix.
pub(super) struct Slot {
    pub(super) weight: String,
    /// `[rank, inputs]` and `[outputs, rank]`, f32.
    pub(super) a: Tensor,
    pub(super) b: Tensor,
    /// The factor of the product `B A x`; 1 where `b` includes the scale.
    pub(super) scale: f64,
}

fn bad(what: String) -> Error {
    err(format!("adapter: {what}"))
}

fn lacks(what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), context: "an adapter of a language model".to_owned() }
}

/// One of the two factors of a term, as a file has it.
struct Half {
    weight: String,
    is_b: bool,
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Half {
    fn new(weight: String, is_b: bool, t: &crate::io::HostTensor) -> Half {
        Half { weight, is_b, shape: t.shape.clone(), values: t.to_f64().iter().map(|&x| x as f32).collect() }
    }
}

impl Adapter {
    /// Reads PEFT's two files for a model of this architecture; all terms are multiplied by `scale`.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for anything beyond plain LoRA (DoRA, biases, whole modules, embeddings), `E_MODEL` for a factor
    /// without the other.
    pub fn from_peft(arch: &Arch, config: &[u8], file: &[u8], scale: f64) -> Result<Adapter> {
        let config = Json::parse(config)?;
        let is = |key: &str| matches!(config.get(key), Some(Json::Bool(true)));
        if config.get("peft_type").and_then(Json::as_str).is_some_and(|t| !t.eq_ignore_ascii_case("lora"))
            || is("use_dora")
        {
            return Err(lacks("an adapter that is no LoRA"));
        }
        let number = |key: &str| config.get(key).and_then(Json::as_f64);
        let alpha = number("lora_alpha").ok_or_else(|| bad("`adapter_config.json` has no `lora_alpha`".into()))?;
        let index = SafeTensors::parse(file)?;
        let mut halves = Vec::new();
        let mut alphas = Vec::new();
        for e in &index.entries {
            let name = e.name.strip_prefix("base_model.model.").unwrap_or(&e.name);
            let parts = [".lora_A.", ".lora_B."].map(|m| name.split_once(m));
            let (is_b, stem) = match parts {
                [Some((stem, _)), _] => (false, stem),
                [_, Some((stem, _))] => (true, stem),
                _ => return Err(lacks(&format!("the tensor `{}`", e.name))),
            };
            let weight = names::translate(arch, &format!("{stem}.weight"));
            let weight = weight.ok_or_else(|| bad(format!("`{stem}` is no matrix of architecture {}", arch.name)))?;
            if !is_b {
                alphas.push((weight.clone(), pattern(&config, stem)?.unwrap_or(alpha)));
            }
            halves.push(Half::new(weight, is_b, &e.to_host(file)?));
        }
        let of = |weight: &str, rank: usize| {
            let alpha = alphas.iter().find(|a| a.0 == weight).map_or(alpha, |a| a.1);
            scale * alpha / if is("use_rslora") { (rank as f64).sqrt() } else { rank as f64 }
        };
        Ok(Adapter { terms: joined(halves, &of)?, gguf: false, alpha: Some(alpha) })
    }

    /// Reads llama.cpp's file for a model of this architecture; all terms are multiplied by `scale`.
    ///
    /// # Errors
    /// `E_MODEL` for a file that holds no adapter, or the adapter of another architecture.
    pub fn from_gguf(arch: &Arch, file: &[u8], scale: f64) -> Result<Adapter> {
        let index = Gguf::parse(file)?;
        let text = |key: &str| index.get(key).and_then(Value::as_str);
        if text("adapter.type") != Some("lora") {
            return Err(bad("the GGUF file holds no LoRA adapter".into()));
        }
        if text("general.architecture").is_some_and(|a| a != arch.name) {
            let own = text("general.architecture").unwrap_or_default();
            return Err(bad(format!("it is of architecture {own}, the model of {}", arch.name)));
        }
        let alpha = index.get("adapter.lora.alpha").and_then(Value::as_f64).unwrap_or(0.0);
        let mut halves = Vec::new();
        for e in &index.entries {
            let parts = [".lora_a", ".lora_b"].map(|m| e.name.strip_suffix(m));
            let (is_b, weight) = match parts {
                [Some(weight), _] => (false, weight),
                [_, Some(weight)] => (true, weight),
                _ => return Err(lacks(&format!("the tensor `{}`", e.name))),
            };
            if weight == "token_embd.weight" {
                return Err(lacks("an adapted embedding"));
            }
            halves.push(Half::new(weight.to_owned(), is_b, &e.to_host(file)?));
        }
        let of = |_: &str, rank: usize| if alpha == 0.0 { scale } else { scale * alpha / rank as f64 };
        Ok(Adapter { terms: joined(halves, &of)?, gguf: true, alpha: (alpha != 0.0).then_some(alpha) })
    }
}

/// The alpha that `alpha_pattern` has for a module. Its keys are names of modules, or suffixes of names.
fn pattern(config: &Json, stem: &str) -> Result<Option<f64>> {
    let Some(list) = config.get("alpha_pattern").and_then(Json::as_object) else { return Ok(None) };
    if let Some((key, _)) =
        list.iter().find(|(k, _)| !k.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)))
    {
        return Err(lacks(&format!("the pattern `{key}` of `alpha_pattern`")));
    }
    let fits = |key: &str| stem == key || stem.strip_suffix(key).is_some_and(|rest| rest.ends_with('.'));
    Ok(list.iter().find(|(key, _)| fits(key)).and_then(|(_, alpha)| alpha.as_f64()))
}

/// Pairs up the factors of the terms.
fn joined(halves: Vec<Half>, scale: &dyn Fn(&str, usize) -> f64) -> Result<Vec<Term>> {
    let (b, a): (Vec<Half>, Vec<Half>) = halves.into_iter().partition(|h| h.is_b);
    if a.is_empty() || a.len() != b.len() {
        return Err(bad(format!("{} matrices A and {} matrices B", a.len(), b.len())));
    }
    let mut terms = Vec::with_capacity(a.len());
    for a in a {
        let b = b.iter().find(|b| b.weight == a.weight);
        let b = b.ok_or_else(|| bad(format!("`{}` has a matrix A and no B", a.weight)))?;
        let (&[rank, _], &[_, columns]) = (&a.shape[..], &b.shape[..]) else {
            return Err(bad(format!("`{}` has factors of shape {:?} and {:?}", a.weight, a.shape, b.shape)));
        };
        if rank != columns || rank == 0 {
            return Err(bad(format!("`{}` has factors of shape {:?} and {:?}", a.weight, a.shape, b.shape)));
        }
        let by = scale(&a.weight, rank) as f32;
        let b = b.values.iter().map(|x| x * by).collect();
        terms.push(Term { weight: a.weight, a: a.values, b, rank });
    }
    Ok(terms)
}

impl Decoder {
    /// The same model with buffers for these adapters; none of them is in use yet. Call it before any graph is made,
    /// and realize [`Decoder::adapter_buffers`] together with the caches.
    ///
    /// # Errors
    /// `E_MODEL` for an adapter of a matrix that the model lacks, or has in another shape.
    pub fn with_adapters(mut self, adapters: &[Adapter]) -> Result<Decoder> {
        self.set_adapters(adapters)?;
        Ok(self)
    }

    /// Do the existing buffers have the matrices and the rank that this adapter needs?
    pub fn has_capacity_for(&self, adapter: &Adapter) -> bool {
        let rank = |s: &Slot| s.a.shape().first().copied().unwrap_or_default();
        adapter.terms.iter().all(|t| self.slots.iter().any(|s| s.weight == t.weight && rank(s) >= t.rank))
    }

    /// Makes buffers for these adapters in place of the existing ones. Graphs that were made before do not
    /// use the new buffers.
    ///
    /// # Errors
    /// As for [`Decoder::with_adapters`]; the existing buffers are then kept.
    pub fn set_adapters(&mut self, adapters: &[Adapter]) -> Result<()> {
        let mut ranks: Vec<(&str, usize)> = Vec::new();
        for t in adapters.iter().flat_map(|a| &a.terms) {
            self.sides(t)?;
            match ranks.iter_mut().find(|r| r.0 == t.weight) {
                Some(r) => r.1 = r.1.max(t.rank),
                None => ranks.push((&t.weight, t.rank)),
            }
        }
        let mut slots = Vec::with_capacity(ranks.len());
        for (weight, rank) in ranks {
            let (outputs, inputs) = self.matrix(weight)?;
            let zeros = |shape: [usize; 2]| Tensor::zeros(self.session(), DType::F32, &shape)?.to_storage();
            slots.push(Slot {
                weight: weight.to_owned(),
                a: zeros([rank, inputs])?,
                b: zeros([outputs, rank])?,
                scale: 1.0,
            });
        }
        self.slots = slots;
        Ok(())
    }

    /// The buffers of adapters. They are not frozen like weights, because switching writes them.
    pub fn adapter_buffers(&self) -> Vec<&Tensor> {
        self.slots.iter().flat_map(|s| [&s.a, &s.b]).collect()
    }

    /// What to write so that this adapter, or none, is in use: the bytes of each of
    /// [`Decoder::adapter_buffers`], in their order.
    pub fn adapter_bytes(&self, adapter: Option<&Adapter>) -> Vec<Vec<u8>> {
        let mut out = Vec::with_capacity(2 * self.slots.len());
        for s in &self.slots {
            let slot_rank = s.a.shape().first().copied().unwrap_or(1);
            let (mut a, mut b) = (vec![0.0; s.a.numel()], vec![0.0; s.b.numel()]);
            let term = adapter.and_then(|x| x.terms.iter().find(|t| t.weight == s.weight).map(|t| (x, t)));
            if let Some((adapter, t)) = term {
                self.fill(t, adapter.gguf, slot_rank, &mut a, &mut b);
            }
            out.extend([a, b].map(|list| list.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()));
        }
        out
    }

    /// Writes the factors of a term into buffers of rank `slot_rank`, with rows in the model's order.
    fn fill(&self, t: &Term, gguf: bool, slot_rank: usize, a: &mut [f32], b: &mut [f32]) {
        a.iter_mut().zip(&t.a).for_each(|(to, from)| *to = *from);
        let rows = t.b.len() / t.rank;
        for (row, to) in b.chunks_exact_mut(slot_rank).enumerate() {
            let from = row_in_adapter(self.config(), gguf, &t.weight, row).min(rows - 1);
            to.iter_mut().zip(&t.b[from * t.rank..][..t.rank]).for_each(|(to, from)| *to = *from);
        }
    }

    /// The factors of a term, with rows in the model's order.
    ///
    /// # Errors
    /// `E_MODEL` for a matrix that the model lacks, or has in another shape.
    pub(super) fn factors(&self, t: &Term, gguf: bool) -> Result<[Vec<f32>; 2]> {
        self.sides(t)?;
        let (mut a, mut b) = (vec![0.0; t.a.len()], vec![0.0; t.b.len()]);
        self.fill(t, gguf, t.rank, &mut a, &mut b);
        Ok([a, b])
    }

    /// Checks a term against its matrix, and gives the numbers of the matrix's outputs and inputs.
    fn sides(&self, t: &Term) -> Result<(usize, usize)> {
        let (outputs, inputs) = self.matrix(&t.weight)?;
        if t.a.len() != t.rank * inputs || t.b.len() != t.rank * outputs {
            let (i, o) = (t.a.len() / t.rank, t.b.len() / t.rank);
            return Err(bad(format!("`{}` is [{outputs}, {inputs}], the adapter is of [{o}, {i}]", t.weight)));
        }
        Ok((outputs, inputs))
    }

    /// Adds the adapter's term to the product `y` of `x` with the matrix `name`, if that matrix can be adapted.
    pub(super) fn adapted(&self, x: &Tensor, name: &str, y: Tensor) -> Result<Tensor> {
        let slot = self.slots.iter().find(|s| s.weight.strip_suffix(".weight") == Some(name));
        let Some(slot) = slot else { return Ok(y) };
        // A kernel of its own: the few numbers are read again for each of the outputs
        let low = x.linear(&slot.a, None)?.contiguous();
        let term = low.linear(&slot.b, None)?;
        y.add(if slot.scale == 1.0 { term } else { term.mul(slot.scale)? })
    }

    /// The numbers of outputs and inputs of a matrix.
    pub(super) fn matrix(&self, name: &str) -> Result<(usize, usize)> {
        // A model's output matrix may be its embedding
        let own = if name == "output.weight" && !self.has_weight(name) { "token_embd.weight" } else { name };
        match self.weight(own)?.shape()[..] {
            [outputs, inputs] => Ok((outputs, inputs)),
            ref shape => Err(bad(format!("`{name}` has shape {shape:?}, and is no matrix"))),
        }
    }
}

/// The row of an adapter's matrix that belongs to a row of the model's. In GGUF files of some models the rows of
/// queries and keys are ordered so that the two rows of a rotated pair are adjacent; in other files they are half a
/// head apart.
fn row_in_adapter(config: &Config, adapter_is_gguf: bool, weight: &str, row: usize) -> usize {
    match config.gguf {
        gguf if gguf == adapter_is_gguf => row,
        true => permute_row(config, weight, row, |at, half| at % 2 * half + at / 2),
        false => permute_row(config, weight, row, interleaved_index),
    }
}

/// The row of the model's matrix that belongs to a row of a file in another format than GGUF.
pub(super) fn row_in_model(config: &Config, weight: &str, row: usize) -> usize {
    match config.gguf {
        true => permute_row(config, weight, row, interleaved_index),
        false => row,
    }
}

/// The position within a head, in GGUF's order, of the row at position `at` in the order of halves.
fn interleaved_index(at: usize, half: usize) -> usize {
    at % half * 2 + at / half
}

/// Moves a row within its head by `place`, if its matrix is one whose rows are ordered differently in the two formats.
fn permute_row(config: &Config, weight: &str, row: usize, place: impl Fn(usize, usize) -> usize) -> usize {
    let is_permuted = weight.ends_with(".attn_q.weight") || weight.ends_with(".attn_k.weight");
    let interleaved = matches!(config.arch.positions, PositionEncoding::Rotary(RotaryPairs::Interleaved));
    let width = config.head_width;
    match is_permuted && interleaved && width >= 2 {
        true => row / width * width + place(row % width, width / 2),
        false => row,
    }
}
