//! Adapters that learn from texts: the optimiser and the loop over steps, which [`gradloom_core::llm`] leaves to the host.

use super::{LanguageModel, Learned, Lora, Rates, Windows};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::safetensors::{self, SafeTensors};
use gradloom_core::optim::{Adam, Optimizer, clip_grad_norm};
use gradloom_core::tensor::Tensor;
use gradloom_core::{DType, Error, Result};

/// How an adapter learns.
#[derive(Clone, Debug)]
pub struct Finetune {
    /// Which adapters learn.
    pub lora: Lora,
    /// An adapter of the model, by name, that goes on learning from where it is: rank, alpha and matrices are its own then. Moments of the
    /// optimiser, which its file has not got, begin anew, unless there is a `state`.
    pub from: Option<String>,
    /// The [`Learned::state`] of the run that `from` is of: it goes on as if it had never ended.
    pub state: Option<Vec<u8>>,
    /// Steps of the optimiser, those before a `state` among them.
    pub steps: usize,
    /// Texts of a step.
    pub batch: usize,
    /// Tokens of each: longer texts are cut to pieces.
    pub time: usize,
    /// The learning rate of AdamW.
    pub rate: f64,
    /// How it changes after the first `warmup` steps, over which it rises from 0.
    pub rates: Rates,
    /// Steps over which the rate rises.
    pub warmup: usize,
    /// What parameters lose by themselves in a step, times the rate.
    pub weight_decay: f64,
    /// Gradients whose norm is larger are made as long as this.
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
            rates: Rates::Constant,
            warmup: 0,
            weight_decay: 0.0,
            most_norm: 1.0,
        }
    }
}

impl LanguageModel {
    /// Trains an adapter on texts of at least two tokens, by AdamW. Weights and the adapters that are there stay as they are. `on_step` is told
    /// each step's number and loss, and says whether to go on. Use [`LanguageModel::add_adapter`] to put what comes back into use.
    ///
    /// # Errors
    /// `E_VALUE` for no texts, unknown tokens, options that cannot be, and targets that no matrix has; those of [`Decoder::learner_from`].
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
        let windows = Windows::new(texts, how.time.min(self.decoder.room()), how.lora.seed)?;
        let time = windows.longest();
        let learner = match &how.from {
            Some(name) => {
                let none = || Error::value("finetune", format!("no adapter is called `{name}`"));
                let adapter = self.adapters.iter().find(|a| a.0 == *name).map(|a| &a.1).ok_or_else(none)?;
                self.decoder.learner_from(&how.lora, adapter)?
            }
            None => self.decoder.learner(&how.lora)?,
        };
        let lesson = learner.lesson(how.batch, time)?;
        let session = self.rt.session().clone();
        let lr = Tensor::variable_f32(&session, "finetune rate");
        let mut opt = Adam::decoupled(learner.parameters(), &lr, how.weight_decay)?;
        let mut all = opt.tensors();
        self.rt.realize(&all.iter().collect::<Vec<_>>())?;
        let held = all.clone();
        let begin = how.state.as_ref().map_or(Ok(0), |state| self.restore(&held, state, how))?;
        let grads = lesson.loss.grad(&opt.parameters().iter().collect::<Vec<_>>())?;
        opt.step(&clip_grad_norm(&grads, how.most_norm, 2.0)?.0)?;
        let shown = Tensor::empty(&session, DType::F32, &[1])?;
        shown.assign(&lesson.loss)?;
        all.push(shown.clone());
        let bytes = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|t| t.to_le_bytes()).collect() };
        let mut replay = None;
        for step in begin..how.steps {
            let rate = how.rate * how.rates.factor(step, how.warmup, how.steps);
            self.rt.engine().set_var("finetune rate", Scalar::float(rate));
            let [tokens, targets] = windows.batch(step, how.batch, time);
            self.rt.write(&lesson.tokens, &bytes(&tokens))?;
            self.rt.write(&lesson.targets, &bytes(&targets))?;
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

    /// The values of an optimiser's tensors, as [`Optimizer::tensors`] has them, in a file.
    fn state_of(&mut self, tensors: &[Tensor]) -> Result<Vec<u8>> {
        let values = tensors.iter().map(|t| self.rt.fetch(t)).collect::<Result<Vec<_>>>()?;
        let names = names(tensors.len());
        let shapes: Vec<Vec<usize>> = tensors.iter().map(Tensor::shape).collect();
        let rows = names.iter().zip(&shapes).zip(&values).map(|((n, s), v)| (n.as_str(), DType::F32, &s[..], &v[..]));
        safetensors::write(&rows.collect::<Vec<_>>(), &[("format", "pt")])
    }

    /// Puts them back; the steps that were done.
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

/// What the file of a state calls the number of steps.
const STEPS: &str = "step";

/// Names of an optimiser's tensors: of each parameter its value and its two moments, and the steps.
fn names(tensors: usize) -> Vec<String> {
    let each = tensors / 3;
    let of = |kind: &'static str| (0..each).map(move |i| format!("{i}.{kind}"));
    let all = ["value", "exp_avg", "exp_avg_sq"].into_iter().flat_map(of);
    all.chain([STEPS.to_owned()]).collect()
}
