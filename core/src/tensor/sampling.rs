//! Choosing a token from logits: repetition penalty, temperature, restriction to the most likely tokens, and the random
//! draw. All of it is in the graph and needs no sort: the tokens to keep are those above a threshold, which is found
//! digit by digit.

use super::{Session, Tensor};
use crate::util::decimal::Shown;
use crate::{DType, Error, Result};

/// Options of [`Tensor::sample`]; the defaults draw from the distribution as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The logits are divided by it; 0 takes the most likely token.
    pub temperature: f64,
    /// How many of the most likely tokens may be drawn; 0 for all.
    pub top_k: usize,
    /// Only the most likely tokens whose probabilities together reach this value may be drawn; 1 for all.
    pub top_p: f64,
    /// Only tokens with at least this fraction of the largest probability may be drawn; 0 for all.
    pub min_p: f64,
    /// Above 1 it makes tokens that occurred already less likely, see [`Tensor::repetition_penalty`]; 1 for none.
    pub repetition_penalty: f64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0 }
    }
}

/// Bits of a threshold that are found in one step.
const BITS_PER_STEP: u32 = 4;

impl Tensor {
    /// Draws a token for each row of logits: `[.., vocabulary] -> [..]`, i32. `seen` are the tokens that occurred
    /// already, `[.., n]`; negative ones are ignored. With a `key` (two u32) the draw depends on the key alone, so that
    /// one plan serves every step; without one it is the next draw of the session's random stream.
    ///
    /// # Errors
    /// `E_VALUE` for options out of range, `E_DTYPE` unless the logits are floats.
    pub fn sample(&self, how: &Sampling, seen: Option<&Tensor>, key: Option<&Tensor>) -> Result<Tensor> {
        self.want_float("sample")?;
        if !(how.top_p > 0.0 && how.top_p <= 1.0) {
            return Err(Error::value("sample", format!("top_p is {}, outside (0, 1]", Shown(how.top_p))));
        }
        if !(0.0..=1.0).contains(&how.min_p) {
            return Err(Error::value("sample", format!("min_p is {}, outside [0, 1]", Shown(how.min_p))));
        }
        let mut x = self.cast(DType::F32)?;
        if let Some(seen) = seen.filter(|_| how.repetition_penalty != 1.0) {
            x = x.repetition_penalty(seen, how.repetition_penalty)?;
        }
        if how.temperature == 0.0 {
            return x.argmax(-1, false);
        }
        x = x.temperature(how.temperature)?;
        if how.top_k > 0 {
            x = x.keep_top_k(how.top_k)?;
        }
        if how.top_p < 1.0 {
            x = x.keep_top_p(how.top_p)?;
        }
        if how.min_p > 0.0 {
            x = x.keep_min_p(how.min_p)?;
        }
        match key {
            None => x.categorical(),
            Some(key) => x.add(Tensor::rand_bits_keyed(key, 0, &x.shape())?.bits_to_gumbel()?)?.argmax(-1, false),
        }
    }

    /// The logits divided by a temperature. `Error::Value` unless it is positive.
    pub fn temperature(&self, t: f64) -> Result<Tensor> {
        if !(t > 0.0 && t.is_finite()) {
            return Err(Error::value("temperature", format!("{} is not positive", Shown(t))));
        }
        self.mul(1.0 / t)
    }

    /// Penalises the tokens in `seen` `[.., n]`: their logits are divided by the penalty where positive and multiplied
    /// by it where negative (Keskar et al. 2019). Negative tokens are ignored. `Error::Value` unless the penalty is
    /// positive, `Error::DType` unless tokens are integers.
    pub fn repetition_penalty(&self, seen: &Tensor, penalty: f64) -> Result<Tensor> {
        if !(penalty > 0.0 && penalty.is_finite()) {
            return Err(Error::value("repetition_penalty", format!("{} is not positive", Shown(penalty))));
        }
        if !seen.dtype().is_int() {
            return Err(Error::DType {
                op: "repetition_penalty",
                dtype: seen.dtype(),
                why: "tokens are integers".into(),
            });
        }
        let token = Tensor::iota(self.session(), self.dim(-1)?)?.cast(seen.dtype())?;
        let was = seen.unsqueeze(-1)?.eq(token)?.any(&[-2], false)?;
        was.select(self.gt(0)?.select(self.div(penalty)?, self.mul(penalty)?)?, self)
    }

    /// Keeps the `k` largest logits of the last axis, and those equal to the least of them; the others become minus
    /// infinity. `Error::Value` for a `k` of 0.
    pub fn keep_top_k(&self, k: usize) -> Result<Tensor> {
        let n = self.dim(-1)?;
        if k == 0 {
            return Err(Error::value("keep_top_k", "k is 0"));
        }
        if k >= n {
            return Ok(self.clone());
        }
        let order = self.want_float("keep_top_k").and_then(|_| self.cast(DType::F32)?.ordered())?;
        let one = Tensor::full(self.session(), 1, DType::I32, &[])?;
        let least = order.threshold(&one, &Tensor::full(self.session(), k as i32, DType::I32, &[])?)?;
        order.ge(least)?.select(self, f64::NEG_INFINITY)
    }

    /// Keeps the logits, along the last axis, of the fewest most likely tokens whose probabilities sum to at least `p`
    /// (Holtzman et al. 2019), and of tokens as likely as the least of them; the others become minus infinity.
    /// `Error::Value` unless `p` is in (0, 1].
    pub fn keep_top_p(&self, p: f64) -> Result<Tensor> {
        if !(p > 0.0 && p <= 1.0) {
            return Err(Error::value("keep_top_p", format!("{} is not in (0, 1]", Shown(p))));
        }
        self.want_float("keep_top_p")?;
        let chance = self.cast(DType::F32)?.softmax(-1)?.contiguous();
        let order = chance.ordered()?;
        let least = order.threshold(&chance, &Tensor::full(self.session(), p, DType::F32, &[])?)?;
        order.ge(least)?.select(self, f64::NEG_INFINITY)
    }

    /// Keeps the logits, along the last axis, of tokens with at least `p` times the largest probability; the others
    /// become minus infinity. `Error::Value` unless `p` is in [0, 1].
    pub fn keep_min_p(&self, p: f64) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::value("keep_min_p", format!("{} is not in [0, 1]", Shown(p))));
        }
        let least = self.max(&[-1], true)?.add(p.ln())?;
        self.ge(least)?.select(self, f64::NEG_INFINITY)
    }

    /// Maps f32 to u32 so that the order is preserved.
    fn ordered(&self) -> Result<Tensor> {
        // adding 0 turns -0 into 0, so that both have the same key
        let bits = self.add(0)?.bitcast(DType::U32)?;
        let negative = bits.shift_right(31)?.ne(0)?;
        bits.bit_xor(negative.select(
            Tensor::full(self.session(), u32::MAX, DType::U32, &[])?,
            Tensor::full(self.session(), 0x8000_0000u32, DType::U32, &[])?,
        )?)
    }

    /// For each row of the last axis of these u32 keys, the largest threshold for which the weights of the keys not
    /// below it sum to at least `wanted`; 0 if there is none.
    fn threshold(&self, weights: &Tensor, wanted: &Tensor) -> Result<Tensor> {
        let s: &Session = self.session();
        let keys = self.contiguous().unsqueeze(-2)?;
        let weights = if weights.rank() == 0 { weights.clone() } else { weights.unsqueeze(-2)? };
        let digits = Tensor::iota(s, 1 << BITS_PER_STEP)?.cast(DType::U32)?;
        let mut found = Tensor::full(s, 0, DType::U32, &[1])?;
        for shift in (0..u32::BITS / BITS_PER_STEP).rev().map(|i| i * BITS_PER_STEP) {
            // one sum for each value of the digit; the sums fall as the threshold grows
            let tried = found.bit_or(digits.shift_left(shift)?)?;
            let sums = keys.ge(tried.unsqueeze(-1)?)?.select(&weights, 0)?.sum(&[-1], false)?;
            let fit = sums.ge(wanted)?.cast(DType::I32)?.sum(&[-1], true)?.sub(1)?.maximum(0)?;
            found = found.bit_or(fit.cast(DType::U32)?.shift_left(shift)?)?.contiguous();
        }
        Ok(found)
    }
}
