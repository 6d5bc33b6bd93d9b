//! A sentence embedding model (BERT, 6 layers) from its safetensors file, built of `nn` modules.

use crate::models::{arrays, error, folder};
use gradloom::io::safetensors;
use gradloom::nn::{Embedding, LayerNorm, Linear, StateDict};
use gradloom::tensor::Attention;
use gradloom::{DType, Result, Runtime, Tensor};
use gradloom_tests::here;
use std::path::Path;
use std::sync::Arc;

const HEADS: usize = 12;

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    attention_norm: LayerNorm,
    up: Linear,
    down: Linear,
    norm: LayerNorm,
}

struct MiniLm {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

fn linear(d: &StateDict, name: &str) -> Linear {
    Linear { weight: d[&format!("{name}.weight")].clone(), bias: Some(d[&format!("{name}.bias")].clone()) }
}

fn norm(d: &StateDict, name: &str) -> LayerNorm {
    let get = |what: &str| Some(d[&format!("{name}.{what}")].clone());
    LayerNorm { weight: get("weight"), bias: get("bias"), dims: 1, eps: 1e-12 }
}

impl MiniLm {
    fn new(d: &StateDict) -> MiniLm {
        let embedding =
            |name: &str| Embedding { weight: d[&format!("embeddings.{name}.weight")].clone(), padding: None };
        let layer = |i: usize| {
            let at = |name: &str| format!("encoder.layer.{i}.{name}");
            Layer {
                query: linear(d, &at("attention.self.query")),
                key: linear(d, &at("attention.self.key")),
                value: linear(d, &at("attention.self.value")),
                output: linear(d, &at("attention.output.dense")),
                attention_norm: norm(d, &at("attention.output.LayerNorm")),
                up: linear(d, &at("intermediate.dense")),
                down: linear(d, &at("output.dense")),
                norm: norm(d, &at("output.LayerNorm")),
            }
        };
        MiniLm {
            words: embedding("word_embeddings"),
            positions: embedding("position_embeddings"),
            types: embedding("token_type_embeddings"),
            norm: norm(d, "embeddings.LayerNorm"),
            layers: (0..6).map(layer).collect(),
        }
    }

    /// `[batch, time]` ids and mask give the hidden states `[batch, time, 384]` and unit embeddings `[batch, 384]`.
    fn forward(&self, ids: &Tensor, mask: &Tensor) -> Result<(Tensor, Tensor)> {
        let (batch, time) = (ids.shape()[0], ids.shape()[1]);
        let positions = Tensor::arange(ids.session(), 0.0, time as f64, 1.0, DType::I64)?;
        let types = positions.mul(0)?;
        let x = self.words.forward(ids)?.add(&self.positions.forward(&positions)?)?;
        let mut x = self.norm.forward(&x.add(&self.types.forward(&types)?)?)?;
        let seen = mask.to_bool()?.reshape(&[batch, 1, 1, time])?;
        for l in &self.layers {
            let heads = |w: &Linear, x: &Tensor| -> Result<Tensor> {
                w.forward(x)?.reshape(&[batch, time, HEADS, 384 / HEADS])?.transpose(1, 2)
            };
            let (q, k, v) = (heads(&l.query, &x)?, heads(&l.key, &x)?, heads(&l.value, &x)?);
            let y = q.attention(&k, &v, &Attention { mask: Some(&seen), ..Attention::default() })?;
            let y = l.output.forward(&y.transpose(1, 2)?.flatten(2, 3)?)?;
            x = l.attention_norm.forward(&x.add(&y)?)?;
            let y = l.down.forward(&l.up.forward(&x)?.gelu()?)?;
            x = l.norm.forward(&x.add(&y)?)?;
        }
        let weight = mask.cast(DType::F32)?.unsqueeze(-1)?;
        let mean = x.mul(&weight)?.sum(&[1], false)?.div(&weight.sum(&[1], false)?)?;
        let embedding = mean.normalize(2.0, -1, 1e-12)?;
        Ok((x, embedding))
    }
}

fn check(device: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/models/minilm_l6_v2/model.safetensors");
    let Ok(bytes) = std::fs::read(&file) else {
        // `npm test` fetches it and sets this
        assert!(std::env::var_os("GRADLOOM_MODELS").is_none(), "{} is missing", file.display());
        return here::left_out("minilm", "run `node scripts/fetch-models.mjs minilm` first");
    };
    let Some(mut rt) = here::device(device, Runtime::open(device, 2)) else { return };
    let dict: StateDict = safetensors::tensors(rt.session(), Arc::new(bytes)).unwrap().into_iter().collect();
    let model = MiniLm::new(&dict);
    let dir = folder("minilm_l6_v2");
    let input = |name: &str| {
        let t = arrays(&dir.join("input.npz")).into_iter().find(|a| a.0 == name).unwrap().1;
        Tensor::from_bytes(rt.session(), t.dtype, &t.shape, gradloom::engine::Bytes::new(t.data)).unwrap()
    };
    let (ids, mask) = (input("input_ids"), input("attention_mask"));
    let (hidden, embedding) = model.forward(&ids, &mask).unwrap();
    rt.realize(&[&hidden, &embedding]).unwrap();
    for (name, want) in arrays(&dir.join("expected.npz")) {
        let got = rt.read(if name == "hidden" { &hidden } else { &embedding }).unwrap();
        let e = error(&got, &want);
        assert!(e <= 1e-3, "minilm on {device}, `{name}`: off by {e:.1e}");
    }
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn minilm_runs_on_the_processor() {
    check("cpu");
}

#[test]
#[cfg(feature = "wgpu")]
fn minilm_runs_on_wgpu() {
    check("wgpu");
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn sentences_go_from_text_to_embedding() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/models/minilm_l6_v2");
    let Ok(bytes) = std::fs::read(model.join("model.safetensors")) else {
        assert!(std::env::var_os("GRADLOOM_MODELS").is_none(), "{} is missing", model.display());
        return;
    };
    let tokenizer = gradloom::text::load(&model.join("tokenizer.json")).unwrap();
    let mut rt = Runtime::open("cpu", 2).unwrap();
    let dict: StateDict = safetensors::tensors(rt.session(), Arc::new(bytes)).unwrap().into_iter().collect();
    let net = MiniLm::new(&dict);
    let mut embed = |text: &str| -> Vec<f32> {
        let ids: Vec<i64> = tokenizer.encode(text).unwrap().into_iter().map(i64::from).collect();
        let shape = [1, ids.len()];
        let ids = Tensor::new(rt.session(), &ids, &shape).unwrap();
        let mask = Tensor::ones(rt.session(), DType::I64, &shape).unwrap();
        rt.to_vec(&net.forward(&ids, &mask).unwrap().1).unwrap()
    };
    let want = arrays(&folder("minilm_l6_v2").join("expected.npz")).into_iter().find(|a| a.0 == "embedding").unwrap().1;
    let texts = ["A cat sits on the mat.", "A kitten is resting on a rug.", "The stock market fell sharply today."]
        .map(&mut embed);
    for (got, want) in texts.iter().zip(want.to_f64().chunks(384)) {
        let cosine: f64 = got.iter().zip(want).map(|(x, y)| f64::from(*x) * y).sum();
        assert!((cosine - 1.0).abs() < 1e-4, "a cosine of {cosine} with what onnxruntime gives");
    }
    let cosine = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
    assert!((cosine(&texts[0], &texts[1]) - 0.655).abs() < 1e-3 && (cosine(&texts[0], &texts[2]) - 0.091).abs() < 1e-3);
}
