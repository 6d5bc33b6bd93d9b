//! Training of low-rank adapters (LoRA) beside a model whose weights are frozen: texts in, the loss of a batch out, and
//! in the end the learned values as an adapter.
//!
//! Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021); names, initial values, scale and
//! files are those of Hugging Face's PEFT. Complete texts are read at once, without the caches that generation uses,
//! and activations are not rounded, because rounding has no gradient. Never here: the optimiser and the loop over
//! steps; these belong to the host.

use super::adapter::{Adapter, Slot, Term, row_in_model};
use super::context::{ChunkContext, Texts};
use super::decoder::Decoder;
use super::names;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::json;
use crate::io::safetensors;
use crate::tensor::{Tensor, threefry2x32};
use crate::util::decimal::Shown;

/// Which adapters are trained, and how they begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// The rank: rows of `A`, columns of `B`.
    pub rank: usize,
    /// The scale of the product `B A`, multiplied by the rank.
    pub alpha: f64,
    /// Suffixes of names of matrices, as PEFT's `target_modules` (`q_proj`) or GGUF's names (`attn_q`). If empty, all
    /// matrices of all layers.
    pub targets: Vec<String>,
    /// The seed of the initial values and of the order of texts.
    pub seed: u64,
}

impl Default for Lora {
    fn default() -> Lora {
        Lora { rank: 8, alpha: 16.0, targets: Vec::new(), seed: 0 }
    }
}

/// Schedules of the learning rate, as in Hugging Face's `get_scheduler`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateSchedule {
    /// The rate stays the same.
    #[default]
    Constant,
    /// The rate falls linearly to 0 after the last step.
    Linear,
    /// The rate follows half a cosine down to 0.
    Cosine,
}

impl RateSchedule {
    /// The factor of the learning rate at a step (counted from 0) of `steps`. It rises linearly from 0 over the first
    /// `warmup` steps, then follows the schedule.
    pub fn factor(self, step: usize, warmup: usize, steps: usize) -> f64 {
        if step < warmup {
            return step as f64 / warmup as f64;
        }
        let share = (step - warmup) as f64 / steps.saturating_sub(warmup).max(1) as f64;
        match self {
            RateSchedule::Constant => 1.0,
            RateSchedule::Linear => (1.0 - share).max(0.0),
            RateSchedule::Cosine => (1.0 + (std::f64::consts::PI * share.min(1.0)).cos()) / 2.0,
        }
    }
}

/// The matrices of a layer that can be adapted, by GGUF's names.
const MATRICES: &[&str] = &["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

/// A model with adapters that are trained.
pub struct Learner {
    /// The frozen model; its `slots` hold the parameters.
    decoder: Decoder,
    lora: Lora,
}

/// A batch of texts and its loss.
pub struct TrainingBatch {
    /// `[batch, time]`, i32: the token ids; write them before each run.
    pub tokens: Tensor,
    /// `[batch * time]`, i32: the token that follows each token, -1 where none counts (padding). Write them
    /// before each run.
    pub targets: Tensor,
    /// `[1]`, f32: the mean negative log-likelihood of the targets. It is differentiable in [`Learner::parameters`].
    pub loss: Tensor,
}

/// The result of training.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The adapter, ready for use.
    pub adapter: Adapter,
    /// PEFT's `adapter_config.json`.
    pub config: String,
    /// PEFT's `adapter_model.safetensors`.
    pub file: Vec<u8>,
    /// The state of the host's optimiser, with which a later run can continue: a safetensors file with the unscaled
    /// factors, their moments, and the number of steps.
    pub state: Vec<u8>,
}

fn bad(what: String) -> Error {
    Error::value("finetune", what)
}

impl Decoder {
    /// Creates adapters beside this model. They change nothing at first: `A` is uniform in ±1 /
    /// sqrt(inputs), and `B` is 0.
    ///
    /// # Errors
    /// `E_VALUE` for a rank of 0, or for a target that names no matrix.
    pub fn learner(&self, lora: &Lora) -> Result<Learner> {
        if lora.rank == 0 || lora.rank > 1 << 16 || !lora.alpha.is_finite() {
            return Err(bad(format!("a rank of {} with alpha {}", lora.rank, Shown(lora.alpha))));
        }
        let arch = self.config().arch;
        let mut found = vec![false; lora.targets.len()];
        let mut slots = Vec::new();
        for layer in 0..self.config().layers {
            for part in MATRICES {
                let weight = format!("blk.{layer}.{part}.weight");
                if !self.has_weight(&weight) {
                    continue;
                }
                let module = names::module(arch, layer, part, self.is_joined(layer));
                let is = |t: &String| *t == *part || *t == module || module.ends_with(&format!(".{t}"));
                lora.targets.iter().zip(&mut found).for_each(|(t, found)| *found |= is(t));
                if lora.targets.is_empty() || lora.targets.iter().any(is) {
                    let (outputs, inputs) = self.matrix(&weight)?;
                    let random = uniform(lora.seed, slots.len() as u32, lora.rank * inputs);
                    let bound = 1.0 / (inputs.max(1) as f64).sqrt();
                    let a: Vec<f32> = random.iter().map(|x| ((2.0 * x - 1.0) * bound) as f32).collect();
                    let s = self.session();
                    let a = Tensor::new(s, &a, &[lora.rank, inputs])?;
                    let b = Tensor::new(s, &vec![0f32; lora.rank * outputs], &[outputs, lora.rank])?;
                    slots.push(Slot { weight, a, b, scale: lora.alpha / lora.rank as f64 });
                }
            }
        }
        if let Some((target, _)) = lora.targets.iter().zip(&found).find(|f| !f.1) {
            let known: Vec<String> = MATRICES.iter().map(|p| names::module(arch, 0, p, self.is_joined(0))).collect();
            return Err(bad(format!(
                "no matrix is called `{target}`; those of the first layer are {}",
                known.join(", ")
            )));
        }
        Ok(Learner { decoder: self.with_training_adapters(slots), lora: lora.clone() })
    }

    /// Creates adapters that continue from a given one: rank, alpha and matrices are the adapter's, and only the seed
    /// of `lora` is used.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an adapter with different ranks or one of a matrix outside of the layers, `E_MODEL` for an
    /// adapter of another model.
    pub fn learner_from(&self, lora: &Lora, adapter: &Adapter) -> Result<Learner> {
        let lacks = |what: String| Error::Unsupported { what, context: "an adapter that goes on learning".into() };
        let rank = adapter.terms.first().map_or(0, |t| t.rank);
        if let Some(t) = adapter.terms.iter().find(|t| t.rank != rank) {
            return Err(lacks(format!("matrices of ranks {rank} and {}", t.rank)));
        }
        let lora = Lora { rank, alpha: adapter.alpha.unwrap_or(rank as f64), targets: Vec::new(), seed: lora.seed };
        let scale = lora.alpha / rank.max(1) as f64;
        let all = (0..self.config().layers).flat_map(|layer| MATRICES.iter().map(move |part| (layer, part)));
        let known: Vec<String> = all.map(|(layer, part)| format!("blk.{layer}.{part}.weight")).collect();
        if let Some(t) = adapter.terms.iter().find(|t| !known.contains(&t.weight)) {
            return Err(lacks(format!("an adapted `{}`", t.weight)));
        }
        let mut slots = Vec::with_capacity(adapter.terms.len());
        for t in known.iter().filter_map(|weight| adapter.terms.iter().find(|t| t.weight == *weight)) {
            let [a, b] = self.factors(t, adapter.gguf)?;
            // The stored factors include the scale. A scale of 0 cannot be divided out; then the product adds nothing,
            // and factors stay as they are
            let b: Vec<f32> = b.iter().map(|x| if scale == 0.0 { *x } else { x / scale as f32 }).collect();
            let (s, inputs) = (self.session(), a.len() / rank);
            let a = Tensor::new(s, &a, &[rank, inputs])?;
            let outputs = b.len() / rank;
            let b = Tensor::new(s, &b, &[outputs, rank])?;
            slots.push(Slot { weight: t.weight.clone(), a, b, scale });
        }
        Ok(Learner { decoder: self.with_training_adapters(slots), lora })
    }

    /// Are gate and up projection stored as one matrix?
    fn is_joined(&self, layer: usize) -> bool {
        !self.has_weight(&format!("blk.{layer}.ffn_gate.weight"))
    }
}

impl Learner {
    /// The parameters, f32: `A` and `B` of each adapted matrix in turn. Realize them before the first step.
    pub fn parameters(&self) -> Vec<Tensor> {
        self.decoder.slots.iter().flat_map(|s| [s.a.clone(), s.b.clone()]).collect()
    }

    /// Builds the graph of the loss of `batch` texts of `time` tokens.
    ///
    /// # Errors
    /// `E_VALUE` for no text, or for more tokens than the model's caches would hold.
    pub fn training_batch(&self, batch: usize, time: usize) -> Result<TrainingBatch> {
        let (d, capacity) = (&self.decoder, self.decoder.capacity());
        if batch == 0 || time == 0 || time > capacity || batch.saturating_mul(time) > 1 << 24 {
            return Err(bad(format!("{batch} texts of {time} tokens, with room for {capacity}")));
        }
        let s = d.session();
        let tokens = Tensor::empty(s, DType::I32, &[batch, time])?;
        let targets = Tensor::empty(s, DType::I32, &[batch * time])?;
        let x = d.hidden_states(&tokens.flatten(0, -1)?, &d.training_context(batch, time)?)?;
        let logits = d.output(&x)?;
        // Cross entropy of class numbers, written out: the tensor method handles more cases, whose code would make
        // downloads for the browser larger
        let target = targets.reshape(&[batch * time, 1])?;
        let classes = Tensor::arange(s, 0.0, logits.dim(1)? as f64, 1.0, DType::I32)?;
        let log_probs = target.eq(classes)?.select(logits.log_softmax(-1)?, 0)?;
        let count = targets.ge(0)?.cast(DType::F32)?.sum(&[], false)?;
        let loss = log_probs.sum(&[], false)?.neg()?.div(count)?.reshape(&[1])?;
        Ok(TrainingBatch { tokens, targets, loss })
    }

    /// The adapter that has these values of [`Learner::parameters`].
    ///
    /// # Errors
    /// `E_VALUE` if the values do not fit the parameters.
    pub fn learned(&self, values: Vec<Vec<f32>>) -> Result<Learned> {
        let d = &self.decoder;
        let (slots, config) = (&d.slots, d.config());
        let fits =
            |(s, v): (&Slot, &[Vec<f32>])| matches!(v, [a, b] if a.len() == s.a.numel() && b.len() == s.b.numel());
        if values.len() != 2 * slots.len() || !slots.iter().zip(values.chunks(2)).all(fits) {
            return Err(bad("these are not the values of the parameters".into()));
        }
        let (mut files, mut terms, mut modules) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, pair) in slots.iter().zip(values.chunks(2)) {
            let [a, b] = pair else { continue };
            let (outputs, inputs) = d.matrix(&slot.weight)?;
            let rank = self.lora.rank;
            let (layer, part) = slot.weight["blk.".len()..].split_once('.').unwrap_or_default();
            let part = part.strip_suffix(".weight").unwrap_or(part);
            let layer = layer.parse().unwrap_or_default();
            let module = names::module(config.arch, layer, part, d.is_joined(layer));
            // PEFT's order of rows
            let rows = (0..outputs).flat_map(|row| &b[row_in_model(config, &slot.weight, row) * rank..][..rank]);
            let file = |half: &str| format!("base_model.model.{module}.{half}.weight");
            let bytes = |list: Vec<f32>| list.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            files.push((file("lora_A"), vec![rank, inputs], bytes(a.clone())));
            files.push((file("lora_B"), vec![outputs, rank], bytes(rows.copied().collect())));
            let target = names::target(config.arch, &module).to_owned();
            if !modules.contains(&target) {
                modules.push(target);
            }
            let scaled = b.iter().map(|x| x * slot.scale as f32).collect();
            terms.push(Term { weight: slot.weight.clone(), a: a.clone(), b: scaled, rank });
        }
        let list: Vec<_> =
            files.iter().map(|(n, shape, bytes)| (n.as_str(), DType::F32, &shape[..], &bytes[..])).collect();
        let file = safetensors::write(&list, &[("format", "pt")])?;
        let adapter = Adapter { terms, gguf: config.gguf, alpha: Some(self.lora.alpha) };
        Ok(Learned { adapter, config: self.config(&modules), file, state: Vec::new() })
    }

    fn config(&self, modules: &[String]) -> String {
        let mut list = String::new();
        for m in modules {
            list.push_str(if list.is_empty() { "" } else { ", " });
            json::write_str(&mut list, m);
        }
        let (rank, alpha, transposed) =
            (self.lora.rank, Shown(self.lora.alpha), names::is_transposed_in(self.decoder.config().arch));
        format!(
            r#"{{
 "peft_type": "LORA",
 "task_type": "CAUSAL_LM",
 "base_model_name_or_path": null,
 "r": {rank},
 "lora_alpha": {alpha},
 "lora_dropout": 0.0,
 "target_modules": [{list}],
 "bias": "none",
 "fan_in_fan_out": {transposed},
 "use_dora": false,
 "use_rslora": false,
 "inference_mode": true
}}
"#
        )
    }
}

impl Decoder {
    /// Positions and masks of a batch of complete texts.
    fn training_context(&self, batch: usize, time: usize) -> Result<ChunkContext> {
        let count = Tensor::arange(self.session(), 0.0, time as f64, 1.0, DType::I32)?;
        let at = count.reshape(&[1, time])?.expand(&[batch, time])?.reshape(&[batch * time])?;
        let newest = at.reshape(&[batch * time, 1])?;
        let mut context = self.context_for(at, Texts::Whole(batch), &newest, None)?;
        // The causal mask within a text, and the same with the model's window
        let (row, col) = (count.reshape(&[time, 1])?, count);
        let all = col.le(&row)?;
        let window = match self.config().window {
            Some(w) => all.logical_and(col.add(w)?.gt(&row)?)?,
            None => all.clone(),
        };
        context.masks = [all, window];
        Ok(context)
    }

    /// Attention of queries `[heads, n, width]` over keys and values `[kv heads, n, width]`, each text by
    /// itself: `[n, heads, width]`.
    pub(super) fn attend_whole(&self, [q, k, v]: [&Tensor; 3], mask: &Tensor, batch: usize) -> Result<Tensor> {
        let c = self.config();
        let (n, d, kv, group) = (q.dim(1)?, c.head_width, c.kv_heads, c.heads / c.kv_heads);
        let time = n / batch;
        let q = q.reshape(&[kv, group, batch, time, d])?.permute(&[2, 0, 1, 3, 4])?;
        let q = q.reshape(&[batch * kv, group * time, d])?;
        let each = |t: &Tensor| t.reshape(&[kv, batch, time, d])?.transpose(0, 1)?.reshape(&[batch * kv, time, d]);
        let scores = self.capped(q.matmul(&each(k)?.transpose(1, 2)?)?)?;
        let scores = scores.reshape(&[batch * kv, group, time, time])?;
        let weights = mask.reshape(&[1, 1, time, time])?.select(scores, f64::NEG_INFINITY)?.softmax(-1)?;
        let y = weights.reshape(&[batch * kv, group * time, time])?.matmul(&each(v)?)?;
        y.reshape(&[batch, kv, group, time, d])?.permute(&[0, 3, 1, 2, 4])?.reshape(&[n, c.heads, d])
    }
}

/// Uniform random numbers in [0, 1); `stream` distinguishes the matrices of an adapter.
fn uniform(seed: u64, stream: u32, n: usize) -> Vec<f64> {
    let key = [seed as u32, (seed >> 32) as u32];
    (0..n as u32).map(|i| f64::from(threefry2x32(key, [i, stream.wrapping_add(1)])[0]) / 2f64.powi(32)).collect()
}

/// Training texts, cut into pieces of at most `time` tokens.
#[derive(Clone, Debug)]
pub struct Windows {
    /// The tokens of each piece and the one after it, which is the last token's target.
    pieces: Vec<Vec<i32>>,
    seed: u64,
}

impl Windows {
    /// Cuts up all texts that have at least two tokens.
    ///
    /// # Errors
    /// `E_VALUE` if there is none.
    pub fn new(texts: &[Vec<u32>], time: usize, seed: u64) -> Result<Windows> {
        if time == 0 {
            return Err(bad("pieces of no token".into()));
        }
        let mut pieces = Vec::new();
        for text in texts {
            let ends = text.len().saturating_sub(1);
            let piece = |at: usize| text[at..text.len().min(at + time + 1)].iter().map(|&t| t as i32).collect();
            pieces.extend((0..ends).step_by(time).map(piece));
        }
        match pieces.is_empty() {
            true => Err(bad("there is no text of two tokens to learn from".into())),
            false => Ok(Windows { pieces, seed }),
        }
    }

    /// The number of pieces.
    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The number of tokens of the longest piece, which is the length that a batch needs.
    pub fn longest(&self) -> usize {
        self.pieces.iter().map(|p| p.len() - 1).max().unwrap_or_default()
    }

    /// Tokens and targets of a step. In each epoch every piece occurs once, in an order of its own.
    pub fn batch(&self, step: usize, batch: usize, time: usize) -> [Vec<i32>; 2] {
        let (mut tokens, mut targets) = (Vec::with_capacity(batch * time), Vec::with_capacity(batch * time));
        let mut order = (usize::MAX, Vec::new());
        for at in step * batch..(step + 1) * batch {
            let (round, place) = (at / self.count(), at % self.count());
            if order.0 != round {
                order = (round, self.order(round as u32));
            }
            let piece = order.1.get(place).and_then(|&i| self.pieces.get(i)).map_or(&[][..], Vec::as_slice);
            let n = piece.len().saturating_sub(1).min(time);
            tokens.extend_from_slice(&piece[..n]);
            targets.extend_from_slice(&piece[piece.len().min(1)..piece.len().min(n + 1)]);
            tokens.resize(tokens.len() + time - n, 0);
            targets.resize(targets.len() + time - n, -1);
        }
        [tokens, targets]
    }

    /// The order of the pieces in an epoch.
    fn order(&self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.count()).collect();
        let key = [self.seed as u32, (self.seed >> 32) as u32 ^ 0x7e57];
        for i in (1..order.len()).rev() {
            let [draw, _] = threefry2x32(key, [i as u32, round]);
            order.swap(i, (u64::from(draw) * (i as u64 + 1) >> 32) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_comes_once_in_a_round() {
        let texts = [vec![1, 2, 3, 4, 5, 6], vec![9], vec![7, 8], vec![]];
        let w = Windows::new(&texts, 3, 5).unwrap();
        assert_eq!((w.count(), w.longest()), (3, 3));
        let mut rounds = Vec::new();
        for round in 0..6 {
            let mut seen: Vec<[Vec<i32>; 2]> = (0..3).map(|i| w.batch(3 * round + i, 1, 3)).collect();
            rounds.push(seen.clone());
            seen.sort();
            let want = [([1, 2, 3], [2, 3, 4]), ([4, 5, 0], [5, 6, -1]), ([7, 0, 0], [8, -1, -1])];
            assert_eq!(seen, want.map(|(x, y)| [x.to_vec(), y.to_vec()]));
        }
        assert!(rounds.iter().any(|r| *r != rounds[0]), "rounds have orders of their own");
        let [x, y] = w.batch(0, 3, 3);
        assert_eq!(
            (x, y),
            (
                rounds[0].iter().flat_map(|b| b[0].clone()).collect(),
                rounds[0].iter().flat_map(|b| b[1].clone()).collect()
            )
        );
        assert!(Windows::new(&[vec![1]], 3, 0).is_err() && Windows::new(&texts, 0, 0).is_err());
    }
}
