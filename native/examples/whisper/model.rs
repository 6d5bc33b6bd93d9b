//! Whisper: an encoder of sound and a decoder of text, from `nn` modules. The decoder keeps the keys and values of the
//! tokens so far in tensors of fixed size that each step updates in place, so that every step is the same compiled plan.

use gradloom::dtype::Scalar;
use gradloom::nn::{LayerNorm, Linear, StateDict};
use gradloom::tensor::{Attention, ConvOpts, Session};
use gradloom::{DType, Error, Result, Runtime, Tensor};

/// Begins every transcript.
const START: i64 = 50257;
/// Ends it.
pub(crate) const END: i64 = 50256;
/// No time stamps between the words.
const NO_TIMES: i64 = 50362;
/// A lone blank, which may not come first.
const BLANK: i64 = 220;

/// `softmax(q k^T) v` with its four projections.
struct Heads {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
}

struct Block {
    heads: Heads,
    norm: LayerNorm,
    /// Attention to the sound, in the decoder.
    cross: Option<(Heads, LayerNorm)>,
    up: Linear,
    down: Linear,
    last_norm: LayerNorm,
}

/// Keys and values `[1, heads, positions, width / heads]`.
struct Memory {
    keys: Tensor,
    values: Tensor,
}

/// The model of a state dict with the names of Hugging Face's `WhisperForConditionalGeneration`.
pub(crate) struct Whisper {
    session: Session,
    conv: [Linear; 2],
    sound_positions: Tensor,
    encoder: Vec<Block>,
    encoder_norm: LayerNorm,
    words: Tensor,
    positions: Tensor,
    decoder: Vec<Block>,
    decoder_norm: LayerNorm,
    width: usize,
}

struct Weights<'a>(&'a StateDict);

impl Weights<'_> {
    fn get(&self, name: &str) -> Result<Tensor> {
        let missing = || Error::Input { name: name.to_string(), what: "missing from the state dict".into() };
        self.0.get(name).ok_or_else(missing)?.cast(DType::F32)
    }

    fn linear(&self, name: &str) -> Result<Linear> {
        let bias = format!("{name}.bias");
        let bias = if self.0.contains_key(&bias) { Some(self.get(&bias)?) } else { None };
        Ok(Linear { weight: self.get(&format!("{name}.weight"))?, bias })
    }

    fn norm(&self, name: &str) -> Result<LayerNorm> {
        let get = |what: &str| self.get(&format!("{name}.{what}"));
        Ok(LayerNorm { weight: Some(get("weight")?), bias: Some(get("bias")?), dims: 1, eps: 1e-5 })
    }

    fn heads(&self, name: &str) -> Result<Heads> {
        let part = |p: &str| self.linear(&format!("{name}.{p}_proj"));
        Ok(Heads { query: part("q")?, key: part("k")?, value: part("v")?, out: part("out")? })
    }

    /// The blocks `{side}.layers.0`, `.1` ... as far as there are any.
    fn blocks(&self, side: &str) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        loop {
            let at = |name: &str| format!("{side}.layers.{}.{name}", blocks.len());
            if !self.0.contains_key(&at("fc1.weight")) {
                return Ok(blocks);
            }
            let cross = if self.0.contains_key(&at("encoder_attn.q_proj.weight")) {
                Some((self.heads(&at("encoder_attn"))?, self.norm(&at("encoder_attn_layer_norm"))?))
            } else {
                None
            };
            let block = Block {
                heads: self.heads(&at("self_attn"))?,
                norm: self.norm(&at("self_attn_layer_norm"))?,
                cross,
                up: self.linear(&at("fc1"))?,
                down: self.linear(&at("fc2"))?,
                last_norm: self.norm(&at("final_layer_norm"))?,
            };
            blocks.push(block);
        }
    }
}

/// `[1, time, width]` to `[1, heads, time, 64]`: every Whisper has heads of 64.
fn split(x: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    x.reshape(&[1, shape[1], shape[2] / 64, 64])?.transpose(1, 2)
}

impl Heads {
    fn memory(&self, x: &Tensor) -> Result<Memory> {
        Ok(Memory { keys: split(&self.key.forward(x)?)?, values: split(&self.value.forward(x)?)? })
    }

    fn attend(&self, x: &Tensor, m: &Memory, mask: Option<&Tensor>) -> Result<Tensor> {
        let q = split(&self.query.forward(x)?)?;
        let y = q.attention(&m.keys, &m.values, &Attention { mask, ..Attention::default() })?;
        self.out.forward(&y.transpose(1, 2)?.flatten(2, 3)?)
    }
}

impl Block {
    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        x.add(&self.down.forward(&self.up.forward(&self.last_norm.forward(x)?)?.gelu()?)?)
    }
}

impl Whisper {
    /// Takes the weights; nothing is computed yet.
    pub(crate) fn new(session: &Session, dict: &StateDict) -> Result<Whisper> {
        let w = Weights(dict);
        let words = w.get("model.decoder.embed_tokens.weight")?;
        Ok(Whisper {
            session: session.clone(),
            conv: [w.linear("model.encoder.conv1")?, w.linear("model.encoder.conv2")?],
            sound_positions: w.get("model.encoder.embed_positions.weight")?,
            encoder: w.blocks("model.encoder")?,
            encoder_norm: w.norm("model.encoder.layer_norm")?,
            width: words.dim(1)?,
            words,
            positions: w.get("model.decoder.embed_positions.weight")?,
            decoder: w.blocks("model.decoder")?,
            decoder_norm: w.norm("model.decoder.layer_norm")?,
        })
    }

    /// `[1, 80, 3000]` to the features of the sound, `[1, 1500, width]`.
    pub(crate) fn encode(&self, mel: &Tensor) -> Result<Tensor> {
        let [first, second] = &self.conv;
        let conv = ConvOpts::new().padding(&[1]);
        let x = mel.conv(&first.weight, first.bias.as_ref(), &conv)?.gelu()?;
        let x = x.conv(&second.weight, second.bias.as_ref(), &conv.stride(&[2]))?.gelu()?;
        let mut x = x.transpose(1, 2)?.add(&self.sound_positions)?;
        for b in &self.encoder {
            let y = b.norm.forward(&x)?;
            x = x.add(&b.heads.attend(&y, &b.heads.memory(&y)?, None)?)?;
            x = b.feed_forward(&x)?;
        }
        self.encoder_norm.forward(&x)
    }

    /// The logits `[1, time, words]` of all tokens `[1, time]` at once, as in training.
    #[allow(dead_code)] // the test's, not the program's
    pub(crate) fn logits(&self, tokens: &Tensor, sound: &Tensor) -> Result<Tensor> {
        let time = tokens.dim(1)?;
        let mut x = self.words.embedding(tokens)?.add(&self.positions.narrow(0, 0, time)?)?;
        for b in &self.decoder {
            let y = b.norm.forward(&x)?;
            let q = split(&b.heads.query.forward(&y)?)?;
            let m = b.heads.memory(&y)?;
            let y = q.attention(&m.keys, &m.values, &Attention { causal: true, ..Attention::default() })?;
            x = x.add(&b.heads.out.forward(&y.transpose(1, 2)?.flatten(2, 3)?)?)?;
            if let Some((cross, norm)) = &b.cross {
                x = x.add(&cross.attend(&norm.forward(&x)?, &cross.memory(sound)?, None)?)?;
            }
            x = b.feed_forward(&x)?;
        }
        self.decoder_norm.forward(&x)?.linear(&self.words, None)
    }

    /// The most likely tokens, one after the other, for the features of a sound; without those that begin and end it.
    pub(crate) fn transcribe(&self, rt: &mut Runtime, sound: &Tensor) -> Result<Vec<i64>> {
        let limit = self.positions.dim(0)?;
        let (mut own, mut heard) = (Vec::new(), Vec::new());
        for b in &self.decoder {
            let empty = || Tensor::zeros(&self.session, DType::F32, &[1, self.width / 64, limit, 64])?.to_storage();
            own.push(Memory { keys: empty()?, values: empty()? });
            if let Some((cross, _)) = &b.cross {
                let m = cross.memory(sound)?;
                heard.push(Memory { keys: m.keys.contiguous(), values: m.values.contiguous() });
            }
        }
        let stored = own.iter().chain(&heard).flat_map(|m| [&m.keys, &m.values]);
        rt.realize(&stored.collect::<Vec<_>>())?;
        let (mut said, mut next) = (Vec::new(), START);
        for at in 0..limit {
            let choice = self.step(rt, at, next, &own, &heard, said.is_empty())?;
            next = match at {
                0 => NO_TIMES,
                _ if choice == END => break,
                _ => {
                    said.push(choice);
                    choice
                }
            };
        }
        Ok(said)
    }

    /// One token in, the most likely next one out; keys and values go to their place `at`.
    fn step(
        &self,
        rt: &mut Runtime,
        at: usize,
        token: i64,
        own: &[Memory],
        heard: &[Memory],
        first: bool,
    ) -> Result<i64> {
        let limit = self.positions.dim(0)?;
        let place = Tensor::variable(&self.session, "place", 0, limit as i32 - 1)?;
        rt.engine().set_var("place", Scalar::Int(at as i64));
        let token = Tensor::new(&self.session, &[token], &[1, 1])?;
        let slots = Tensor::arange(&self.session, 0.0, limit as f64, 1.0, DType::I32)?;
        let seen = slots.le(&place)?.reshape(&[1, 1, 1, limit])?;
        let here = slots.eq(&place)?.reshape(&[1, 1, limit, 1])?;
        let mut x = self.words.embedding(&token)?.add(&self.positions.index_select(0, &place.reshape(&[1])?)?)?;
        for (i, b) in self.decoder.iter().enumerate() {
            let y = b.norm.forward(&x)?;
            let new = b.heads.memory(&y)?;
            own[i].keys.assign(&here.select(&new.keys, &own[i].keys)?)?;
            own[i].values.assign(&here.select(&new.values, &own[i].values)?)?;
            x = x.add(&b.heads.attend(&y, &own[i], Some(&seen))?)?;
            if let Some((cross, norm)) = &b.cross {
                x = x.add(&cross.attend(&norm.forward(&x)?, &heard[i], None)?)?;
            }
            x = b.feed_forward(&x)?;
        }
        let mut logits = self.decoder_norm.forward(&x)?.linear(&self.words, None)?.flatten(0, -1)?;
        if first {
            let ids = Tensor::arange(&self.session, 0.0, self.words.dim(0)? as f64, 1.0, DType::I64)?;
            let banned = ids.eq(BLANK)?.logical_or(&ids.eq(END)?)?;
            logits = logits.masked_fill(&banned, f64::NEG_INFINITY)?;
        }
        let choice = logits.argmax(0, false)?;
        let mut all: Vec<&Tensor> = own.iter().flat_map(|m| [&m.keys, &m.values]).collect();
        all.push(&choice);
        rt.realize(&all)?;
        Ok(i64::from(rt.to_vec::<i32>(&choice)?[0]))
    }
}

/// The text of tokens: `vocabulary.txt`, one token a line, in the byte alphabet of GPT-2.
pub(crate) struct Words(Vec<String>);

impl Words {
    /// One token a line.
    pub(crate) fn read(file: &[u8]) -> Words {
        Words(String::from_utf8_lossy(file).lines().map(str::to_string).collect())
    }

    /// The text of tokens; unknown ones are left out.
    pub(crate) fn text(&self, tokens: &[i64]) -> String {
        // printable Latin-1 stands for itself, the other bytes for the characters from U+0100 on, in their order
        let own = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let rest: Vec<u8> = (0..=255u32).filter(|&b| !own(b)).map(|b| b as u8).collect();
        let byte = |c: char| match c as u32 {
            c if c < 256 && own(c) => Some(c as u8),
            c => rest.get((c as usize).checked_sub(256)?).copied(),
        };
        let known = tokens.iter().filter_map(|&t| self.0.get(usize::try_from(t).ok()?));
        let bytes: Vec<u8> = known.flat_map(|w| w.chars().filter_map(byte)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
