//! BERT: Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for language understanding" (2018), with both of its
//! losses: words that were masked, and whether the second sentence follows the first. Names are those of Hugging Face's `BertForPreTraining`.

use super::weights::{Output, Weights};
use gradloom::tensor::Attention;
use gradloom::{DType, Result, Tensor};

const BATCH: usize = 2;
const TIME: usize = 12;
const WORDS: usize = 40;
const WIDTH: usize = 32;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const EPS: f64 = 1e-12;
/// A word that is not to be guessed.
const KNOWN: i64 = -100;

/// `[batch, time, width] -> [batch, heads, time, width / heads]`.
fn heads(x: &Tensor) -> Result<Tensor> {
    x.reshape(&[BATCH, TIME, HEADS, WIDTH / HEADS])?.transpose(1, 2)
}

/// Attention, then two linear layers; each is added to what it was given, and the sum normalised.
fn layer(w: &Weights, x: &Tensor, mask: &Tensor, name: &str) -> Result<Tensor> {
    let at = |part: &str| format!("{name}.{part}");
    let part = |which: &str| heads(&w.linear(x, &at(&format!("attention.self.{which}")), WIDTH)?);
    let opts = Attention { mask: Some(mask), ..Attention::default() };
    let y = part("query")?.attention(&part("key")?, &part("value")?, &opts)?;
    let y = y.transpose(1, 2)?.reshape(&[BATCH, TIME, WIDTH])?;
    let y = w.linear(&y, &at("attention.output.dense"), WIDTH)?;
    let x = w.layer_norm(&x.add(y)?, &at("attention.output.LayerNorm"), EPS)?;
    let y = w.linear(&x, &at("intermediate.dense"), 4 * WIDTH)?.gelu()?;
    let y = w.linear(&y, &at("output.dense"), WIDTH)?;
    w.layer_norm(&x.add(y)?, &at("output.LayerNorm"), EPS)
}

/// Words, the sentence each is in, and which of them there are, to `[batch, time, width]`.
fn encode(w: &Weights, words: &Tensor, sentences: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let table = |name: &str, rows| w.get(&format!("bert.embeddings.{name}_embeddings.weight"), &[rows, WIDTH]);
    let x = table("word", WORDS)?.embedding(words)?.add(table("position", TIME)?)?;
    let x = x.add(table("token_type", 2)?.embedding(sentences)?)?;
    let mut x = w.layer_norm(&x, "bert.embeddings.LayerNorm", EPS)?;
    for i in 0..LAYERS {
        x = layer(w, &x, mask, &format!("bert.encoder.layer.{i}"))?;
    }
    Ok(x)
}

pub(crate) fn network(w: &Weights) -> Result<Output> {
    let words = w.labels("words", &[BATCH, TIME], WORDS)?;
    let place = Tensor::arange(&w.session, 0.0, TIME as f64, 1.0, DType::I32)?.unsqueeze(0)?;
    // the first six words are one sentence, and the second text ends two words early
    let sentences = place.ge(6)?.cast(DType::I32)?.expand(&[BATCH, TIME])?;
    let lengths = Tensor::new(&w.session, &[TIME as i32, TIME as i32 - 2], &[BATCH, 1])?;
    let mask = place.lt(&lengths)?.reshape(&[BATCH, 1, 1, TIME])?;
    let x = encode(w, &words, &sentences, &mask)?;

    let first = w.linear(&x.select_at(1, 0)?, "bert.pooler.dense", WIDTH)?.tanh()?;
    let follows = w.linear(&first, "cls.seq_relationship", 2)?;
    let y = w.linear(&x, "cls.predictions.transform.dense", WIDTH)?.gelu()?;
    let y = w.layer_norm(&y, "cls.predictions.transform.LayerNorm", EPS)?;
    // words are guessed by the table that they were looked up in
    let table = w.get("bert.embeddings.word_embeddings.weight", &[WORDS, WIDTH])?;
    let prediction = y.linear(&table, Some(&w.get("cls.predictions.bias", &[WORDS])?))?;

    let masked = place.modulo(3)?.eq(1)?.expand(&[BATCH, TIME])?;
    let targets = masked.select(&words, KNOWN)?.reshape(&[BATCH * TIME])?;
    let guesses = prediction.reshape(&[BATCH * TIME, WORDS])?.cross_entropy(&targets, Some(KNOWN), 0.0)?;
    let next = Tensor::new(&w.session, &[0i32, 1], &[BATCH])?;
    let loss = guesses.add(follows.cross_entropy(&next, None, 0.0)?)?;
    Ok(Output { prediction, loss })
}
