//! A character language model (textgenrnn: two LSTM layers and an average weighted by attention) from its Keras weights.

use crate::models::{arrays, error, folder};
use gradloom::engine::Bytes;
use gradloom::nn::{Embedding, Linear, Lstm, Module, StateDict};
use gradloom::{Result, Runtime, Session, Tensor};
use std::path::Path;

struct CharacterModel {
    embedding: Embedding,
    layers: [Lstm; 2],
    attention: Tensor,
    output: Linear,
}

impl CharacterModel {
    fn read(session: &Session, file: &Path) -> Result<CharacterModel> {
        let get = |name: &str| -> Result<Tensor> {
            let all = arrays(file);
            let (_, t) = all.into_iter().find(|a| a.0 == format!("{name}:0")).unwrap();
            Tensor::from_bytes(session, t.dtype, &t.shape, Bytes::new(t.data))
        };
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
            assert!(layer.load_state_dict(&dict)?.is_empty());
            Ok(layer)
        };
        Ok(CharacterModel {
            embedding: Embedding { weight: get("embedding.embeddings")?, padding: None },
            layers: [lstm("rnn_1")?, lstm("rnn_2")?],
            attention: get("attention.attention_W")?,
            output: Linear { weight: get("output.kernel")?.t()?, bias: Some(get("output.bias")?) },
        })
    }

    /// Characters `[batch, time]` to the logits of the next one, `[batch, characters]`.
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let words = self.embedding.forward(ids)?;
        let first = self.layers[0].forward(&words, None)?.0;
        let second = self.layers[1].forward(&first, None)?.0;
        let all = Tensor::cat(&[&words, &first, &second], 2)?;
        let weight = all.matmul(&self.attention)?.softmax(1)?;
        self.output.forward(&all.mul(&weight)?.sum(&[1], false)?)
    }
}

fn check(device: &str) {
    let dir = folder("textgenrnn");
    let mut rt = Runtime::open(device, 2).unwrap();
    let model = CharacterModel::read(rt.session(), &dir.join("weights.npz")).unwrap();
    let ids = arrays(&dir.join("input.npz")).remove(0).1;
    let shape = [1, ids.shape[0]];
    let ids = Tensor::from_bytes(rt.session(), ids.dtype, &shape, Bytes::new(ids.data)).unwrap();
    let logits = model.forward(&ids).unwrap().flatten(0, -1).unwrap();
    let e = error(&rt.read(&logits).unwrap(), &arrays(&dir.join("expected.npz"))[0].1);
    assert!(e <= 1e-3, "textgenrnn on {device}: off by {e:.1e}");
    let c = rt.counters();
    assert!(c.launches >= 160 && c.programs <= 20, "80 steps share kernels: {c:?}");
}

#[test]
#[cfg(all(unix, target_arch = "x86_64"))]
fn textgenrnn_runs_on_the_processor() {
    check("cpu");
}

#[test]
#[cfg(feature = "wgpu")]
fn textgenrnn_runs_on_wgpu() {
    check("wgpu");
}
