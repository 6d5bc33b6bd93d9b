//! A character language model (textgenrnn) from its Keras weights, and texts that it writes.

use gradloom::engine::Bytes;
use gradloom::io::json::Json;
use gradloom::io::npz;
use gradloom::nn::{Embedding, Linear, Lstm, Module, StateDict};
use gradloom::tensor::Sampling;
use gradloom::{Error, Result, Runtime, Session, Tensor};
use std::collections::BTreeMap;

/// Characters that the model sees.
const TIME: usize = 40;
/// The mark around a text.
const MARK: &str = "<s>";

/// Embeddings, two LSTM layers on them, and the mean of all three over time, weighted by attention.
pub(crate) struct CharacterModel {
    embedding: Embedding,
    layers: [Lstm; 2],
    attention: Tensor,
    output: Linear,
    /// Characters by their numbers; 0 fills.
    characters: BTreeMap<i64, String>,
}

impl CharacterModel {
    /// Of `weights.npz` and `vocab.json`.
    pub(crate) fn read(session: &Session, weights: &[u8], vocabulary: &[u8]) -> Result<CharacterModel> {
        let all = npz::read(weights)?;
        let get = |name: &str| -> Result<Tensor> {
            let name = format!("{name}:0");
            let missing = || Error::Input { name: name.clone(), what: "missing from the weights".into() };
            let (_, t) = all.iter().find(|a| a.0 == name).ok_or_else(missing)?;
            Tensor::from_bytes(session, t.dtype, &t.shape, Bytes::new(t.data.clone()))
        };
        let json = Json::parse(vocabulary)?;
        let bad = || Error::value("vocabulary", "an object of characters and their numbers is needed");
        let characters = json.as_object().ok_or_else(bad)?.iter();
        let characters = characters.map(|(c, n)| Some((n.as_f64()? as i64, c.clone()))).collect::<Option<_>>();
        // cuDNN's numbers in Keras' shapes `[in, 4 * hidden]`: below the shape of a gate's columns lies its matrix [hidden, in]
        let lstm = |name: &str| -> Result<Lstm> {
            let matrices = |what: &str| -> Result<Tensor> {
                let columns = get(&format!("{name}.{what}"))?;
                let (inputs, gates) = (columns.dim(0)?, columns.dim(1)?);
                let gates = columns.reshape(&[inputs, 4, gates / 4])?.transpose(0, 1)?;
                gates.contiguous().reshape(&[gates.numel() / inputs, inputs])
            };
            let (ih, hh) = (matrices("kernel")?, matrices("recurrent_kernel")?);
            let bias = get(&format!("{name}.bias"))?.chunk(2, 0)?;
            let layer = Lstm::new(session, ih.dim(1)?, hh.dim(1)?, 1)?;
            let names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"];
            let tensors = [ih, hh, bias[0].clone(), bias[1].clone()];
            let dict: StateDict = names.into_iter().map(str::to_string).zip(tensors).collect();
            layer.load_state_dict(&dict)?;
            Ok(layer)
        };
        Ok(CharacterModel {
            embedding: Embedding { weight: get("embedding.embeddings")?, padding: None },
            layers: [lstm("rnn_1")?, lstm("rnn_2")?],
            attention: get("attention.attention_W")?,
            characters: characters.ok_or_else(bad)?,
            output: Linear { weight: get("output.kernel")?.t()?, bias: Some(get("output.bias")?) },
        })
    }

    /// Characters `[batch, time]` to the logits of the next one, `[batch, characters]`.
    pub(crate) fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let words = self.embedding.forward(ids)?;
        let first = self.layers[0].forward(&words, None)?.0;
        let second = self.layers[1].forward(&first, None)?.0;
        let all = Tensor::cat(&[&words, &first, &second], 2)?;
        let weight = all.matmul(&self.attention)?.softmax(1)?;
        self.output.forward(&all.mul(&weight)?.sum(&[1], false)?)
    }

    fn number(&self, character: &str) -> Result<i64> {
        let unknown = || Error::value("character", format!("the model does not know `{character}`"));
        self.characters.iter().find(|c| c.1 == character).map(|c| *c.0).ok_or_else(unknown)
    }

    /// At most `limit` characters that go on after `start`, each drawn from the logits. The same seed gives the same text.
    pub(crate) fn write(
        &self,
        rt: &mut Runtime,
        start: &str,
        how: &Sampling,
        seed: u32,
        limit: usize,
    ) -> Result<String> {
        let session = rt.session().clone();
        // a text begins and ends with the same mark
        let mark = self.number(MARK)?;
        let mut ids = vec![0; TIME];
        ids.push(mark);
        for c in start.chars() {
            ids.push(self.number(&c.to_string())?);
        }
        let mut text = start.to_string();
        for step in 0..limit {
            let last = Tensor::new(&session, &ids[ids.len() - TIME..], &[1, TIME])?;
            let key = Tensor::new(&session, &[seed, step as u32], &[2])?;
            let next = self.forward(&last)?.sample(how, None, Some(&key))?;
            let next = i64::from(rt.to_vec::<i32>(&next)?[0]);
            if next == mark {
                break;
            }
            text.push_str(self.characters.get(&next).map_or("", String::as_str));
            ids.push(next);
        }
        Ok(text)
    }
}
