//! Trains adapters on texts: the optimiser and the loop over steps, which [`gradloom_core::llm`] leaves to the host.

use super::{LanguageModel, Learned, Lora, RateSchedule, Windows};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::safetensors::{self, SafeTensors};
use gradloom_core::optim::{Adam, Optimizer, clip_grad_norm};
use gradloom_core::tensor::Tensor;
use gradloom_core::{DType, Error, Result};

/// Options of training an adapter.
#[derive(Clone, Debug)]
pub struct Finetune {
    /// Which adapters are trained, and how they begin.
    pub lora: Lora,
    /// The name of an adapter of the model to continue from; rank, alpha and matrices are then its own. The optimiser's
    /// moments, which its file lacks, begin at zero, unless there is a `state`.
    pub from: Option<String>,
    /// The [`Learned::state`] of the run that made `from`: training continues as if it had never ended.
    pub state: Option<Vec<u8>>,
    /// The number of optimiser steps, including those before a `state`.
    pub steps: usize,
    /// The number of texts in a step.
    pub batch: usize,
    /// The length of these in tokens; longer texts are cut into pieces.
    pub time: usize,
    /// The learning rate of AdamW.
    pub rate: f64,
    /// The schedule of the rate after the first `warmup` steps, in which it rises from 0.
    pub schedule: RateSchedule,
    /// The number of steps in which the rate rises.
    pub warmup: usize,
    /// Decoupled weight decay: the share that parameters lose in each step, divided by the rate.
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to this norm.
    pub most_norm: f64,
}

impl Default for Finetune {
    fn default() -> Finetune {
        let lora = Lora::default();
        Finetune {
            lora,
            from: None,
            state: None,
            steps: 100,
            batch: 4,
            time: 128,
            rate: 2e-4,
            schedule: RateSchedule::Constant,
            warmup: 0,
            weight_decay: 0.0,
            most_norm: 1.0,
        }
    }
}

impl LanguageModel {
    /// Trains an adapter on texts of at least two tokens, with AdamW. Weights and loaded adapters do not change.
    /// `on_step` gets each step's number and loss, and returns whether to go on. Pass the result's adapter to
    /// [`LanguageModel::add_adapter`] to use it.
    ///
    /// # Errors
    /// `E_VALUE` for no texts, unknown tokens, invalid options, and targets that name no matrix; those of
    /// [`Decoder::learner_from`].
    ///
    /// [`Decoder::learner_from`]: super::Decoder::learner_from
    pub fn finetune(
        &mut self,
        texts: &[Vec<u32>],
        how: &Finetune,
        mut on_step: impl FnMut(usize, f64) -> bool,
    ) -> Result<Learned> {
        texts.iter().try_for_each(|t| self.check(t))?;
        if !(how.rate >= 0.0 && how.weight_decay >= 0.0 && how.most_norm > 0.0) {
            let what = format!("a rate of {}, a decay of {}, a norm of {}", how.rate, how.weight_decay, how.most_norm);
            return Err(Error::value("finetune", what));
        }
        let windows = Windows::new(texts, how.time.min(self.decoder.capacity()), how.lora.seed)?;
        let time = windows.longest();
        let learner = match &how.from {
            Some(name) => {
                let none = || Error::value("finetune", format!("no adapter is called `{name}`"));
                let adapter = self.adapters.iter().find(|a| a.0 == *name).map(|a| &a.1).ok_or_else(none)?;
                self.decoder.learner_from(&how.lora, adapter)?
            }
            None => self.decoder.learner(&how.lora)?,
        };
        let batch = learner.training_batch(how.batch, time)?;
        let session = self.rt.session().clone();
        let lr = Tensor::variable_f32(&session, "finetune rate");
        let mut opt = Adam::decoupled(learner.parameters(), &lr, how.weight_decay)?;
        let mut all = opt.tensors();
        self.rt.realize(&all.iter().collect::<Vec<_>>())?;
        let held = all.clone();
        let begin = how.state.as_ref().map_or(Ok(0), |state| self.restore(&held, state, how))?;
        let grads = batch.loss.grad(&opt.parameters().iter().collect::<Vec<_>>())?;
        opt.step(&clip_grad_norm(&grads, how.most_norm, 2.0)?.0)?;
        let shown = Tensor::empty(&session, DType::F32, &[1])?;
        shown.assign(&batch.loss)?;
        all.push(shown.clone());
        let bytes = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|t| t.to_le_bytes()).collect() };
        let mut replay = None;
        for step in begin..how.steps {
            let rate = how.rate * how.schedule.factor(step, how.warmup, how.steps);
            self.rt.engine().set_var("finetune rate", Scalar::float(rate));
            let [tokens, targets] = windows.batch(step, how.batch, time);
            self.rt.write(&batch.tokens, &bytes(&tokens))?;
            self.rt.write(&batch.targets, &bytes(&targets))?;
            match &replay {
                Some(replay) => drop(self.rt.replay(replay)?),
                None => replay = Some(self.rt.realize(&all.iter().collect::<Vec<_>>())?),
            }
            let got = self.rt.fetch(&shown)?;
            let loss = got.first_chunk().map_or(f32::NAN, |b| f32::from_le_bytes(*b));
            if !loss.is_finite() {
                let what = format!("the loss is {loss} at step {step}: a smaller rate may help");
                return Err(Error::value("finetune", what));
            }
            if !on_step(step, f64::from(loss)) {
                break;
            }
        }
        let read = |t: &Tensor| -> Result<Vec<f32>> {
            let bytes = self.rt.fetch(t)?;
            Ok(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
        };
        let values = learner.parameters().iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok(Learned { state: self.state_of(&held)?, ..learner.learned(values)? })
    }

    /// Writes the optimiser's tensors, in the order of [`Optimizer::tensors`], to a safetensors file.
    fn state_of(&mut self, tensors: &[Tensor]) -> Result<Vec<u8>> {
        let values = tensors.iter().map(|t| self.rt.fetch(t)).collect::<Result<Vec<_>>>()?;
        let names = names(tensors.len());
        let shapes: Vec<Vec<usize>> = tensors.iter().map(Tensor::shape).collect();
        let rows = names.iter().zip(&shapes).zip(&values).map(|((n, s), v)| (n.as_str(), DType::F32, &s[..], &v[..]));
        safetensors::write(&rows.collect::<Vec<_>>(), &[("format", "pt")])
    }

    /// Restores the optimiser's tensors from such a file; returns the number of steps that were done.
    fn restore(&mut self, tensors: &[Tensor], file: &[u8], how: &Finetune) -> Result<usize> {
        let bad = |what: String| Error::value("finetune", what);
        if how.from.is_none() {
            return Err(bad("a state is of an adapter that goes on learning".into()));
        }
        let index = SafeTensors::parse(file)?;
        let mut done = 0.0;
        for (name, t) in names(tensors.len()).iter().zip(tensors) {
            let entry = index.get(name).filter(|e| e.dtype == DType::F32 && e.shape == t.shape());
            let entry = entry.ok_or_else(|| bad(format!("the state is of another adapter: it lacks `{name}`")))?;
            let range = entry.range.start as usize..entry.range.end as usize;
            let bytes = file.get(range).ok_or_else(|| bad("the state is cut off".into()))?;
            self.rt.write(t, bytes)?;
            if name == STEPS {
                done = bytes.first_chunk().map_or(0.0, |b| f32::from_le_bytes(*b));
            }
        }
        match done {
            n if n >= 0.0 && (n as usize) < how.steps => Ok(n as usize),
            n => Err(bad(format!("{n} steps are done, {} are wanted in all", how.steps))),
        }
    }
}

/// The name of the step count in the state file.
const STEPS: &str = "step";

/// The names of an optimiser's tensors: the values of all parameters, their first and second moments, and
/// the step count.
fn names(tensors: usize) -> Vec<String> {
    let each = tensors / 3;
    let of = |kind: &'static str| (0..each).map(move |i| format!("{i}.{kind}"));
    let all = ["value", "exp_avg", "exp_avg_sq"].into_iter().flat_map(of);
    all.chain([STEPS.to_owned()]).collect()
}
