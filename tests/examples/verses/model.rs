//! A llama (Touvron et al. 2023) for training: no caches, all logits, the output is the embedding's transpose. Its tensors have the
//! names of transformers.

use gradloom::engine::Bytes;
use gradloom::io::safetensors;
use gradloom::tensor::Attention;
use gradloom::{DType, Error, Result, Session, Tensor};
use std::sync::Arc;

pub(crate) const WORDS: usize = 2048;
pub(crate) const WIDTH: usize = 192;
pub(crate) const INNER: usize = 512;
pub(crate) const LAYERS: usize = 4;
pub(crate) const HEADS: usize = 6;
pub(crate) const KV_HEADS: usize = 3;
pub(crate) const HEAD: usize = WIDTH / HEADS;
pub(crate) const CONTEXT: usize = 512;
pub(crate) const EPS: f64 = 1e-5;
pub(crate) const BASE: f64 = 10_000.0;

/// Names and tensors, in the order of a file.
pub(crate) struct Llama {
    pub(crate) tensors: Vec<(String, Tensor)>,
}

/// The matrices of a layer: name, outputs, inputs.
pub(crate) const MATRICES: [(&str, usize, usize); 7] = [
    ("self_attn.q_proj", WIDTH, WIDTH),
    ("self_attn.k_proj", KV_HEADS * HEAD, WIDTH),
    ("self_attn.v_proj", KV_HEADS * HEAD, WIDTH),
    ("self_attn.o_proj", WIDTH, WIDTH),
    ("mlp.gate_proj", INNER, WIDTH),
    ("mlp.up_proj", INNER, WIDTH),
    ("mlp.down_proj", WIDTH, INNER),
];

impl Llama {
    /// With random weights.
    pub(crate) fn new(s: &Session) -> Result<Llama> {
        let mut tensors = Vec::new();
        let drawn = |shape: [usize; 2], std: f64| Tensor::normal(s, 0.0, std, &shape)?.to_storage();
        let ones = || Tensor::ones(s, DType::F32, &[WIDTH])?.to_storage();
        tensors.push(("model.embed_tokens.weight".to_string(), drawn([WORDS, WIDTH], 0.02)?));
        for i in 0..LAYERS {
            for (name, outputs, inputs) in MATRICES {
                let ends = name.ends_with("o_proj") || name.ends_with("down_proj");
                let std = if ends { 0.5 / (LAYERS as f64).sqrt() } else { 1.0 } / (inputs as f64).sqrt();
                tensors.push((format!("model.layers.{i}.{name}.weight"), drawn([outputs, inputs], std)?));
            }
            for name in ["input_layernorm", "post_attention_layernorm"] {
                tensors.push((format!("model.layers.{i}.{name}.weight"), ones()?));
            }
        }
        tensors.push(("model.norm.weight".to_string(), ones()?));
        Ok(Llama { tensors })
    }

    /// Of a file that was written before.
    pub(crate) fn read(s: &Session, file: &[u8]) -> Result<Llama> {
        let file = Arc::new(file.to_vec());
        let list = safetensors::tensors(s, file)?;
        let own = |t: &Tensor| t.to_storage();
        Ok(Llama { tensors: list.iter().map(|(n, t)| Ok((n.clone(), own(t)?))).collect::<Result<_>>()? })
    }

    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        self.tensors.iter().map(|t| t.1.clone()).collect()
    }

    fn get(&self, name: &str) -> Result<&Tensor> {
        let missing = || Error::value("verses", format!("`{name}` is missing"));
        self.tensors.iter().find(|t| t.0 == name).map(|t| &t.1).ok_or_else(missing)
    }

    /// Tokens `[batch, time]` to logits `[batch * time, words]`.
    pub(crate) fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let (batch, time) = (tokens.dim(0)?, tokens.dim(1)?);
        let embedding = self.get("model.embed_tokens.weight")?;
        let turns = turns(tokens.session(), time)?;
        let mut x = embedding.embedding(&tokens.reshape(&[batch * time])?)?;
        for i in 0..LAYERS {
            let get = |name: &str| self.get(&format!("model.layers.{i}.{name}.weight"));
            let y = x.rms_norm(1, Some(get("input_layernorm")?), EPS)?;
            let head = |name: &str, heads: usize| -> Result<Tensor> {
                y.linear(get(name)?, None)?.reshape(&[batch, time, heads, HEAD])?.transpose(1, 2)
            };
            let q = rotated(&head("self_attn.q_proj", HEADS)?, &turns)?;
            let k = rotated(&head("self_attn.k_proj", KV_HEADS)?, &turns)?;
            let v = head("self_attn.v_proj", KV_HEADS)?;
            let how = Attention { causal: true, ..Attention::default() };
            let y = q.attention(&k, &v, &how)?.transpose(1, 2)?.reshape(&[batch * time, WIDTH])?;
            x = x.add(y.linear(get("self_attn.o_proj")?, None)?)?;
            let y = x.rms_norm(1, Some(get("post_attention_layernorm")?), EPS)?;
            let gate = y.linear(get("mlp.gate_proj")?, None)?.silu()?;
            let y = gate.mul(y.linear(get("mlp.up_proj")?, None)?)?.linear(get("mlp.down_proj")?, None)?;
            x = x.add(y)?;
        }
        x.rms_norm(1, Some(self.get("model.norm.weight")?), EPS)?.linear(embedding, None)
    }
}

/// Cosines and sines `[time, HEAD / 2]`.
fn turns(s: &Session, time: usize) -> Result<[Tensor; 2]> {
    let half = HEAD / 2;
    let angle = |at: usize| at as f64 / half as f64;
    let all = |f: fn(f64) -> f64| -> Result<Tensor> {
        let list = (0..time * half).map(|i| f((i / half) as f64 * BASE.powf(-angle(i % half))) as f32);
        let data = list.flat_map(f32::to_le_bytes).collect();
        Tensor::from_bytes(s, DType::F32, &[time, half], Bytes::new(data))
    };
    Ok([all(f64::cos)?, all(f64::sin)?])
}

/// Element i and i + half of each head are turned together.
fn rotated(x: &Tensor, [cos, sin]: &[Tensor; 2]) -> Result<Tensor> {
    let parts = x.chunk(2, -1)?;
    let (a, b) = (&parts[0], &parts[1]);
    Tensor::cat(&[&a.mul(cos)?.sub(b.mul(sin)?)?, &b.mul(cos)?.add(a.mul(sin)?)?], -1)
}
