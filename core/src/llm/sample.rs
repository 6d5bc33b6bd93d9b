//! Chooses a token from logits on the host: penalties, temperature, truncation to the most likely tokens, and a random
//! draw that depends on a seed only.

use super::grammar::Matcher;
use crate::error::{Error, Result};
use crate::tensor::threefry2x32;
use crate::util::sort;

/// Options of sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 always chooses the most likely token.
    pub temperature: f64,
    /// Only this many of the most likely tokens remain; 0 keeps all.
    pub top_k: usize,
    /// Only the most likely tokens whose probabilities add up to this remain; 1 keeps all.
    pub top_p: f64,
    /// Only tokens remain whose probability is at least this share of the most likely one's; 0 keeps all.
    pub min_p: f64,
    /// The repetition penalty: divides positive logits of tokens that occur in the text, prompt included, and
    /// multiplies negative ones; 1 has no effect.
    pub repetition: f64,
    /// Subtracted from the logits of tokens that were generated before; 0 has no effect.
    pub presence: f64,
    /// Subtracted from the logit of a token once for each time that it was generated; 0 has no effect.
    pub frequency: f64,
    /// Added to the logits of these tokens; negative infinity forbids a token.
    pub bias: Vec<(u32, f32)>,
    /// The seed of the random draws.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition: 1.0,
            presence: 0.0,
            frequency: 0.0,
            bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Chooses one token after the other, with the state that penalties and grammars need.
pub struct Sampler {
    options: SamplingOptions,
    /// Of each token, whether it occurs in the text, and how often it was generated.
    seen: Vec<(bool, u32)>,
    draws: u32,
    /// The grammar that constrains the text, and the tokens that may end the text where the grammar allows it.
    grammar: Option<(Matcher, Vec<u32>)>,
    /// The first error of the grammar.
    failed: Option<Error>,
}

impl Sampler {
    /// # Errors
    /// `E_VALUE` for options out of range.
    pub fn new(options: &SamplingOptions) -> Result<Sampler> {
        let c = options;
        let bad = |what: &str| Err(Error::value("sample", what.to_string()));
        match () {
            _ if !(c.temperature >= 0.0 && c.temperature.is_finite()) => bad("the temperature is negative"),
            _ if !(c.top_p > 0.0 && c.top_p <= 1.0) => bad("top-p is not in (0, 1]"),
            _ if !(0.0..=1.0).contains(&c.min_p) => bad("min-p is not in [0, 1]"),
            _ if !(c.repetition > 0.0 && c.repetition.is_finite()) => bad("the repetition penalty is not positive"),
            _ if !c.presence.is_finite() => bad("the presence penalty is not a number"),
            _ if !c.frequency.is_finite() => bad("the frequency penalty is not a number"),
            _ if c.bias.iter().any(|b| b.1.is_nan() || b.1 == f32::INFINITY) => bad("a bias is not a number"),
            _ => Ok(Sampler { options: options.clone(), seen: Vec::new(), draws: 0, grammar: None, failed: None }),
        }
    }

    /// Is the choice always the most likely token by the plain logits, so that the host need not read them?
    pub fn is_greedy(&self) -> bool {
        let c = &self.options;
        self.grammar.is_none()
            && c.temperature == 0.0
            && c.repetition == 1.0
            && c.presence == 0.0
            && c.frequency == 0.0
            && c.bias.is_empty()
    }

    /// From now on allows only tokens that continue the text according to a grammar, and the tokens `ends`
    /// where the text may end.
    pub fn constrain(&mut self, matcher: Matcher, ends: &[u32]) {
        self.grammar = Some((matcher, ends.to_vec()));
    }

    /// Is the text complete according to its grammar, so that nothing can follow?
    pub fn is_complete(&self) -> bool {
        self.grammar.as_ref().is_some_and(|f| f.0.is_complete())
    }

    /// Why no token was allowed, if that happened: the vocabulary may lack what the grammar demands.
    pub fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Notes that a token was generated.
    pub fn see(&mut self, token: u32) {
        if let Some((matcher, ends)) = &mut self.grammar
            && !ends.contains(&token)
            && let Err(e) = matcher.take(token)
        {
            self.failed.get_or_insert(e);
        }
        if let Some(s) = self.entry(token) {
            *s = (true, s.1.saturating_add(1));
        }
    }

    /// Notes that a token is in the prompt. Presence and frequency penalties ignore such tokens.
    pub fn see_prompt(&mut self, token: u32) {
        if let Some(s) = self.entry(token) {
            s.0 = true;
        }
    }

    fn entry(&mut self, token: u32) -> Option<&mut (bool, u32)> {
        let at = token as usize;
        // No vocabulary is larger, so a larger number is an error of the caller and must not allocate
        if at >= self.seen.len() && at < 1 << 24 {
            self.seen.resize(at + 1, (false, 0));
        }
        self.seen.get_mut(at)
    }

    /// Chooses the next token. Modifies the logits.
    pub fn choose(&mut self, logits: &mut [f32]) -> u32 {
        let c = &self.options;
        for (x, (_, times)) in logits.iter_mut().zip(&self.seen).filter(|x| x.1.0) {
            let y = f64::from(*x);
            let y = if y > 0.0 { y / c.repetition } else { y * c.repetition };
            let made = if *times > 0 { c.presence } else { 0.0 };
            *x = (y - made - f64::from(*times) * c.frequency) as f32;
        }
        for (token, bias) in &c.bias {
            if let Some(x) = logits.get_mut(*token as usize) {
                *x += bias;
            }
        }
        if let Some((matcher, ends)) = &mut self.grammar {
            match allow(logits, matcher, ends) {
                Ok(()) => {}
                Err(e) => _ = self.failed.get_or_insert(e),
            }
        }
        let best = most_likely(logits);
        if c.temperature == 0.0 {
            return best;
        }
        // Candidates in order of descending probability, as ratios to that of the most likely one
        let most = logits.get(best as usize).copied().unwrap_or_default();
        let probability = |x: f32| (f64::from(x - most) / c.temperature).exp();
        let mut list: Vec<(u32, f64)> = (0u32..).zip(logits.iter().map(|&x| probability(x))).collect();
        list.retain(|x| x.1 >= c.min_p && x.1 > 0.0);
        sort::by(&mut list, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if c.top_k > 0 {
            list.truncate(c.top_k);
        }
        let all: f64 = list.iter().map(|x| x.1).sum();
        let mut sum = 0.0;
        let kept = list.iter().position(|x| {
            sum += x.1;
            sum >= c.top_p * all
        });
        list.truncate(kept.map_or(list.len(), |k| k + 1));
        let all: f64 = list.iter().map(|x| x.1).sum();
        let mut left = self.draw() * all;
        for (token, probability) in &list {
            left -= probability;
            if left < 0.0 {
                return *token;
            }
        }
        list.last().map_or(best, |x| x.0)
    }

    /// A uniform random number in [0, 1).
    fn draw(&mut self) -> f64 {
        let seed = self.options.seed;
        let [a, b] = threefry2x32([seed as u32, (seed >> 32) as u32], [self.draws, 0]);
        self.draws = self.draws.wrapping_add(1);
        (u64::from(a) << 21 ^ u64::from(b) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Sets the logits of all tokens that the grammar forbids here to negative infinity.
fn allow(logits: &mut [f32], matcher: &mut Matcher, ends: &[u32]) -> Result<()> {
    let allowed = matcher.tokens()?;
    let ends = if matcher.may_end() { ends } else { &[] };
    let mut kept: Vec<(usize, f32)> = Vec::new();
    for t in allowed.iter().chain(ends) {
        // A bias of negative infinity or NaN logits must not forbid the last token that the grammar allows
        kept.extend(
            logits.get(*t as usize).map(|x| (*t as usize, if x.is_nan() { f32::MIN } else { x.max(f32::MIN) })),
        );
    }
    if kept.is_empty() {
        return Err(Error::value("grammar", "no token of the vocabulary may come here"));
    }
    logits.fill(f32::NEG_INFINITY);
    kept.into_iter().for_each(|(t, x)| logits[t] = x);
    Ok(())
}

/// The index of the first of the largest logits.
fn most_likely(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] || logits[best].is_nan() {
            best = i;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(options: SamplingOptions, logits: &[f32]) -> Vec<usize> {
        let mut s = Sampler::new(&options).unwrap();
        let mut out = vec![0; logits.len()];
        (0..4000).for_each(|_| out[s.choose(&mut logits.to_vec()) as usize] += 1);
        out
    }

    #[test]
    fn draws_follow_the_chances() {
        let logits = [0.0, (2.0f32).ln(), (4.0f32).ln(), (1.0f32 / 8.0).ln()];
        let warm = SamplingOptions { temperature: 1.0, seed: 7, ..SamplingOptions::default() };
        let all = 7.125;
        for (n, want) in counts(warm.clone(), &logits).iter().zip([1.0, 2.0, 4.0, 0.125]) {
            assert!((*n as f64 / 4000.0 - want / all).abs() < 0.03, "{n} of 4000, not {}", want / all);
        }
        assert_eq!(counts(SamplingOptions { top_k: 2, ..warm.clone() }, &logits)[..1], [0]);
        assert_eq!(counts(SamplingOptions { top_p: 0.5, ..warm.clone() }, &logits), [0, 0, 4000, 0]);
        assert_eq!(counts(SamplingOptions { min_p: 0.3, ..warm.clone() }, &logits)[3], 0);
        assert_eq!(counts(SamplingOptions::default(), &logits), [0, 0, 4000, 0]);
        assert_ne!(counts(warm.clone(), &logits), counts(SamplingOptions { seed: 8, ..warm }, &logits));
    }

    #[test]
    fn penalties_make_what_was_there_less_likely() {
        let mut s = Sampler::new(&SamplingOptions { repetition: 2.0, ..SamplingOptions::default() }).unwrap();
        assert!(!s.is_greedy());
        s.see(1);
        assert_eq!(s.choose(&mut [1.5, 2.0, -1.0]), 0);
        let mut s = Sampler::new(&SamplingOptions { presence: 1.0, ..SamplingOptions::default() }).unwrap();
        s.see(0);
        assert_eq!(s.choose(&mut [-1.0, -1.5, f32::NAN]), 1);
        let mut s =
            Sampler::new(&SamplingOptions { presence: 1.0, frequency: 0.5, ..SamplingOptions::default() }).unwrap();
        s.see_prompt(0);
        assert_eq!(s.choose(&mut [2.0, 1.9]), 0, "what was given is no repetition");
        s.see(0);
        assert_eq!(s.choose(&mut [2.4, 1.0]), 1);
        assert_eq!(s.choose(&mut [2.6, 1.0]), 0);
        s.see(0);
        assert_eq!(s.choose(&mut [2.9, 1.0]), 1, "twice as often costs more");
        let bias = vec![(1, -100.0), (0, f32::NEG_INFINITY), (9, 1.0)];
        let mut s = Sampler::new(&SamplingOptions { bias, ..SamplingOptions::default() }).unwrap();
        assert!(!s.is_greedy());
        assert_eq!(s.choose(&mut [50.0, 3.0, 1.0]), 2);
        assert!(Sampler::new(&SamplingOptions { bias: vec![(1, f32::NAN)], ..SamplingOptions::default() }).is_err());
        assert!(Sampler::new(&SamplingOptions { top_p: 0.0, ..SamplingOptions::default() }).is_err());
    }
}
