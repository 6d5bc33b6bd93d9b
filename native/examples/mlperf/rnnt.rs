//! RNN transducer: Graves, "Sequence transduction with recurrent neural networks" (2012), in the form of MLPerf's speech recognition: an encoder
//! of LSTM layers that joins pairs of moments in the middle, a prediction network over the letters so far, and a joint network of both. The loss is
//! the probability of the text by all of its alignments, one diagonal of the lattice of moments and letters after the other.

use super::weights::{Output, Weights};
use gradloom::tensor::PadMode;
use gradloom::{Result, Tensor};

const BATCH: usize = 2;
/// Moments of sound, and numbers of each.
const FRAMES: usize = 12;
const FEATURES: usize = 8;
const HIDDEN: usize = 16;
/// Letters of each text.
const LETTERS: usize = 4;
/// Letters that there are, and last the blank: nothing more is said at this moment.
const SYMBOLS: usize = 11;
const BLANK: usize = SYMBOLS - 1;
/// A finite stand-in for ln 0.
const NEVER: f64 = -1e30;

/// One LSTM layer: `[batch, time, n] -> [batch, time, hidden]`, gates in PyTorch's order.
fn lstm(w: &Weights, x: &Tensor, name: &str, layer: usize) -> Result<Tensor> {
    let [batch, time, inputs] = [0, 1, 2].map(|i| x.shape()[i]);
    let get = |what: &str, shape: &[usize]| w.get(&format!("{name}.{what}_l{layer}"), shape);
    let (own, back) = (get("weight_ih", &[4 * HIDDEN, inputs])?, get("weight_hh", &[4 * HIDDEN, HIDDEN])?);
    let bias = get("bias_ih", &[4 * HIDDEN])?.add(get("bias_hh", &[4 * HIDDEN])?)?;
    // what comes in is multiplied for all moments at once
    let given = x.linear(&own, Some(&bias))?;
    let zero = Tensor::zeros(&w.session, x.dtype(), &[batch, HIDDEN])?;
    let (mut h, mut c, mut out) = (zero.clone(), zero, Vec::with_capacity(time));
    for t in 0..time {
        let gates = given.select_at(1, t as i64)?.add(h.linear(&back, None)?)?.chunk(4, 1)?;
        let (i, f, g, o) = (gates[0].sigmoid()?, gates[1].sigmoid()?, gates[2].tanh()?, gates[3].sigmoid()?);
        c = f.mul(&c)?.add(i.mul(g)?)?;
        h = o.mul(c.tanh()?)?;
        out.push(h.clone());
    }
    Tensor::stack(&out.iter().collect::<Vec<_>>(), 1)
}

/// `[batch, frames, features] -> [batch, frames / 2, hidden]`.
fn encode(w: &Weights, x: &Tensor) -> Result<Tensor> {
    let x = lstm(w, x, "before", 0)?;
    let x = lstm(w, &x, "before", 1)?;
    let pairs = x.reshape(&[BATCH, FRAMES / 2, 2 * HIDDEN])?;
    lstm(w, &pairs, "after", 0)
}

/// What the letters so far make likely, from none of them on: `[batch, letters] -> [batch, letters + 1, hidden]`.
fn predict(w: &Weights, text: &Tensor) -> Result<Tensor> {
    let table = w.get("embed.weight", &[SYMBOLS - 1, HIDDEN])?;
    let x = table.embedding(text)?.pad_zeros(&[(0, 0), (1, 0), (0, 0)])?;
    lstm(w, &x, "predict", 0)
}

/// Logits of each symbol at each moment after each letter: `[batch, moments, letters + 1, symbols]`.
fn joint(w: &Weights, sound: &Tensor, text: &Tensor) -> Result<Tensor> {
    let (sound, text) = (w.linear(sound, "from_sound", HIDDEN)?, w.linear(text, "from_text", HIDDEN)?);
    w.linear(&sound.unsqueeze(2)?.add(text.unsqueeze(1)?)?.relu()?, "out", SYMBOLS)
}

/// `-ln P(text)`, the mean over the batch. On diagonal `n` lie the places `(t, u)` with `t + u = n`; one is reached from `(t - 1, u)` by a blank
/// and from `(t, u - 1)` by letter `u - 1`.
pub(crate) fn loss(logits: &Tensor, text: &Tensor) -> Result<Tensor> {
    let (moments, letters) = (logits.shape()[1], text.shape()[1]);
    let p = logits.log_softmax(3)?;
    let blank = p.select_at(3, BLANK as i64)?;
    let index = text.unsqueeze(1)?.unsqueeze(3)?.expand(&[text.shape()[0], moments, letters, 1])?;
    let letter = p.narrow(2, 0, letters)?.gather(3, &index)?.squeeze(3)?;
    // rows are letters here: row u of diagonal n is moment n - u
    let diagonal = |of: &Tensor, n: usize, rows: usize| -> Result<Tensor> {
        let one = |u: usize| match n.checked_sub(u).filter(|t| *t < moments) {
            Some(t) => of.select_at(1, t as i64)?.select_at(1, u as i64),
            None => Tensor::full(of.session(), NEVER, of.dtype(), &[of.shape()[0]]),
        };
        let all = (0..rows).map(one).collect::<Result<Vec<_>>>()?;
        Tensor::stack(&all.iter().collect::<Vec<_>>(), 1)
    };
    let mut alpha = Tensor::zeros(logits.session(), p.dtype(), &[text.shape()[0], 1])?;
    alpha = alpha.pad(&[(0, 0), (0, letters as i64)], PadMode::Constant, NEVER)?;
    for n in 1..moments + letters {
        let stay = alpha.add(diagonal(&blank, n - 1, letters + 1)?)?;
        let say = alpha.narrow(1, 0, letters)?.add(diagonal(&letter, n - 1, letters)?)?;
        let say = say.pad(&[(0, 0), (1, 0)], PadMode::Constant, NEVER)?;
        alpha = stay.maximum(NEVER)?.logaddexp(&say.maximum(NEVER)?)?;
    }
    let end = blank.select_at(1, moments as i64 - 1)?.select_at(1, letters as i64)?;
    alpha.select_at(1, letters as i64)?.add(end)?.neg()?.mean(&[], false)
}

pub(crate) fn network(w: &Weights) -> Result<Output> {
    let sound = w.input("sound", &[BATCH, FRAMES, FEATURES])?;
    let text = w.labels("text", &[BATCH, LETTERS], SYMBOLS - 1)?;
    let prediction = joint(w, &encode(w, &sound)?, &predict(w, &text)?)?;
    let loss = loss(&prediction, &text)?;
    Ok(Output { prediction, loss })
}
