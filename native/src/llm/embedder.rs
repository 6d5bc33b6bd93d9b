//! Runs encoders from files: embeddings of texts, and scores of pairs of texts (cross-encoders).

use super::background::Background;
use super::{Activations, Encoder, LoadOptions, Pack, USED, best_activations, files, inputs_of, no_weights, packs};
use crate::contain::contain;
use crate::text::Tokenizer;
use crate::{NativeHost, Runtime};
use gradloom_core::device::Device;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Counters, Replay};
use gradloom_core::tensor::{ConstantCache, Tensor};
use gradloom_core::text::Encoding;
use gradloom_core::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The most tokens of a text where the caller does not say; models for longer texts need much memory for these.
const CAPACITY: usize = 2048;

/// An encoder on a device.
pub struct Embedder {
    rt: Runtime,
    encoder: Encoder,
    /// The plans by the number of tokens that they read.
    ready: BTreeMap<usize, Ready>,
    /// Constants that were computed from its weights, shared by all plans.
    folded: ConstantCache,
    known: Background<files::Text>,
}

/// A graph with its plan.
struct Ready {
    pack: Pack,
    replay: Replay,
    /// Tensors that keep the plan's inputs alive.
    _held: Vec<Tensor>,
}

impl Embedder {
    /// Is the model in this file or folder an encoder? Others are for [`super::LanguageModel`].
    pub fn is_for(path: &Path) -> Result<bool> {
        contain(|| files::is_encoder(path))
    }

    /// Loads a GGUF file (of a split model any file), or a folder with `config.json`, safetensors and tokenizer files. Of
    /// the options, capacity and activations matter.
    pub fn load(path: &Path, device: Box<dyn Device>, host: NativeHost, options: &LoadOptions) -> Result<Embedder> {
        let activations = options.activations.unwrap_or_else(|| best_activations(device.target()));
        let rt = Runtime::with_host(device, host);
        let session = rt.session().clone();
        let capacity = if options.capacity == 0 { CAPACITY } else { options.capacity };
        let (encoder, known) = contain(|| match path.is_dir() {
            true => files::encoder_from_folder(path, &session, capacity),
            false => files::encoder_from_gguf(path, &session, capacity, activations),
        })?;
        let encoder = if activations == Activations::F16 { encoder.with_half_precision()? } else { encoder };
        Ok(Embedder { rt, encoder, ready: BTreeMap::new(), folded: ConstantCache::default(), known })
    }

    /// The model's encoder, which has its graphs and hyperparameters.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Counts of what the engine did so far.
    pub fn counters(&self) -> Counters {
        self.rt.counters()
    }

    /// Its tokenizer.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` and others that say why its files have none that is supported.
    pub fn need_tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        self.known.get().0.as_ref().map_err(Error::clone)
    }

    /// A score as a relevance from 0 to 1: the chance that the logistic function makes of it.
    pub fn relevance(score: f32) -> f64 {
        1.0 / (1.0 + (-f64::from(score)).exp())
    }

    /// A vector of each text.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for a cross-encoder, `E_VALUE` for a text that is empty or longer than the capacity.
    pub fn embed(&mut self, texts: &[Encoding]) -> Result<Vec<Vec<f32>>> {
        if self.encoder.labels().is_some() {
            let context = "a cross-encoder, which gives scores of pairs: it is for reranking".into();
            return Err(Error::Unsupported { what: "embedding texts".into(), context });
        }
        self.values(texts)
    }

    /// The score of each pair of texts: the larger, the more relevant; no bounds.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for a model that has not exactly one score, `E_VALUE` for a pair that is longer than the capacity.
    pub fn scores(&mut self, pairs: &[Encoding]) -> Result<Vec<f32>> {
        self.check_scores()?;
        Ok(self.values(pairs)?.concat())
    }

    /// Checks that the model has one score for a pair.
    pub(crate) fn check_scores(&self) -> Result<()> {
        let context = match self.encoder.labels() {
            Some(1) => return Ok(()),
            Some(n) => format!("a classifier with {n} classes"),
            None => "an encoder without a classification head: it is for embeddings".into(),
        };
        Err(Error::Unsupported { what: "scores of pairs".into(), context })
    }

    /// The vector or the scores of each text.
    pub(crate) fn values(&mut self, texts: &[Encoding]) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
        if let Some(n) = lengths.iter().find(|&&n| n == 0 || n > self.encoder.capacity()) {
            let capacity = self.encoder.capacity();
            return Err(Error::value("embed", format!("a text of {n} tokens with room for {capacity}")));
        }
        let (mut rest, mut out) = (texts, Vec::with_capacity(texts.len()));
        for (n, count) in packs(&lengths) {
            let (now, later) = rest.split_at(count);
            let values = self.pack(n, &now.iter().collect::<Vec<_>>())?;
            out.extend(values.chunks_exact(self.encoder.outputs()).take(count).map(<[f32]>::to_vec));
            rest = later;
        }
        Ok(out)
    }

    /// Runs a plan that reads `n` tokens; makes it if this is the first time.
    fn pack(&mut self, n: usize, texts: &[&Encoding]) -> Result<Vec<f32>> {
        let inputs = self.encoder.inputs(n, texts)?;
        self.rt.engine().set_var(USED, Scalar::Int(inputs.used as i64));
        let ints = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|i| i.to_le_bytes()).collect() };
        let shares: Vec<u8> = inputs.shares.iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = [ints(&inputs.tokens), ints(&inputs.kinds), ints(&inputs.positions), ints(&inputs.texts), shares];
        let write = |rt: &mut Runtime, p: &Pack| {
            let tensors = [&p.tokens, &p.kinds, &p.positions, &p.texts, &p.shares];
            tensors.into_iter().zip(&all).try_for_each(|(t, bytes)| rt.write(t, bytes))
        };
        if let Some(ready) = self.ready.get(&n) {
            write(&mut self.rt, &ready.pack)?;
            self.rt.replay(&ready.replay)?;
        } else {
            let pack = self.encoder.pack(n)?;
            write(&mut self.rt, &pack)?;
            let values: Vec<&Tensor> = vec![&pack.values];
            let changing = [&pack.tokens, &pack.kinds, &pack.positions, &pack.texts, &pack.shares];
            let changing = no_weights(&self.rt, &values, changing.into_iter());
            self.rt.load(&values, &changing, &mut self.folded)?;
            let replay = self.rt.realize(&values)?;
            let held = inputs_of(&self.rt, &values, &replay);
            self.ready.insert(n, Ready { pack, replay, _held: held });
        }
        let values = self.ready.get(&n).map(|r| r.pack.values.clone());
        let bytes = self.rt.fetch(&values.ok_or_else(|| Error::Internal("a plan was made".into()))?)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}
