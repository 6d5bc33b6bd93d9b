//! Random numbers of many distributions, computed from the uniform ones of [`super::random`]. A lazy graph cannot loop
//! until a draw is accepted, so rejection methods make a fixed number of draws and take the first one that is accepted.
//! The chance that none is accepted is below 10^-9 for each element; the result is then the mean.

use super::{Session, Tensor};
use crate::util::decimal::Shown;
use crate::{DType, Error, Result};
use std::f64::consts::{LN_2, PI};

/// Draws of the rejection method for the gamma distribution, which accepts 95% of them.
const GAMMA_ROUNDS: usize = 7;
/// Draws of the rejection method for the Poisson distribution, which accepts 3/4 of them.
const POISSON_ROUNDS: usize = 15;
/// Rates from this one on use the rejection method; for lower ones, waiting times between events are counted.
const POISSON_LARGE: f64 = 10.0;
/// The most events that are counted: at a rate of 10, more occur once in 10^15 draws.
const POISSON_EVENTS: usize = 46;
/// Rates from this one on use a normal distribution corrected for skewness, whose error is below that of f32.
const POISSON_NORMAL: f64 = 1000.0;

/// `Error::Value` unless `v` is positive and finite.
fn positive(op: &'static str, what: &str, v: f64) -> Result<()> {
    if v > 0.0 && v.is_finite() {
        Ok(())
    } else {
        Err(Error::value(op, format!("{what} {} is not positive", Shown(v))))
    }
}

impl Tensor {
    /// Uniform in `(0, 1]`, so that the logarithm is finite.
    fn rand_positive(session: &Session, shape: &[usize]) -> Result<Tensor> {
        Tensor::full(session, 1, DType::F32, &[])?.sub(Tensor::rand(session, shape)?)
    }

    /// Exponential distribution with this rate (the reciprocal of the mean), f32. `Error::Value` unless the rate is
    /// positive.
    pub fn exponential(session: &Session, rate: f64, shape: &[usize]) -> Result<Tensor> {
        positive("exponential", "rate", rate)?;
        Tensor::rand_positive(session, shape)?.log2()?.mul(-LN_2 / rate)
    }

    /// Standard Gumbel distribution (of the maximum of many samples), f32.
    pub fn gumbel(session: &Session, shape: &[usize]) -> Result<Tensor> {
        Tensor::rand_bits(session, shape)?.bits_to_gumbel()
    }

    /// Standard Gumbel distribution from random bits (u32), f32.
    pub(crate) fn bits_to_gumbel(&self) -> Result<Tensor> {
        // the middle of each interval of the uniform numbers, so that neither logarithm is of 0
        self.bits_to_unit()?.add(0.5f64.powi(25))?.log()?.neg()?.log()?.neg()
    }

    /// Laplace distribution, f32. `Error::Value` unless the scale is positive.
    pub fn laplace(session: &Session, mean: f64, scale: f64, shape: &[usize]) -> Result<Tensor> {
        positive("laplace", "scale", scale)?;
        let u = Tensor::rand(session, shape)?.sub(0.5)?;
        let one = Tensor::full(session, 1, DType::F32, &[])?;
        u.sign()?.mul(one.sub(u.abs()?.mul(2)?)?.maximum(0.5f64.powi(24))?.log()?)?.mul(-scale)?.add(mean)
    }

    /// Cauchy distribution, f32. `Error::Value` unless the scale is positive.
    pub fn cauchy(session: &Session, median: f64, scale: f64, shape: &[usize]) -> Result<Tensor> {
        positive("cauchy", "scale", scale)?;
        Tensor::rand(session, shape)?.sub(0.5)?.mul(PI)?.tan()?.mul(scale)?.add(median)
    }

    /// Log-normal distribution: e to the power of a normal number, f32.
    pub fn log_normal(session: &Session, mean: f64, std: f64, shape: &[usize]) -> Result<Tensor> {
        Tensor::normal(session, mean, std, shape)?.exp()
    }

    /// Geometric distribution: the number of trials up to and including the first success, each with probability `p`,
    /// f32. `Error::Value` unless `p` is in (0, 1).
    pub fn geometric(session: &Session, p: f64, shape: &[usize]) -> Result<Tensor> {
        if !(p > 0.0 && p < 1.0) {
            return Err(Error::value("geometric", format!("probability {} is not in (0, 1)", Shown(p))));
        }
        let trials = Tensor::rand_positive(session, shape)?.log2()?.mul(LN_2 / (-p).ln_1p())?;
        trials.ceil()?.maximum(1)
    }

    /// Normal distribution restricted to `[low, high]`, f32. `Error::Value` for an empty interval, one far from the
    /// mean, or a deviation that is not positive.
    pub fn trunc_normal(
        session: &Session,
        mean: f64,
        std: f64,
        low: f64,
        high: f64,
        shape: &[usize],
    ) -> Result<Tensor> {
        positive("trunc_normal", "deviation", std)?;
        let (a, b) = ((low - mean) / std, (high - mean) / std);
        // the inverse of the distribution function in f32 is accurate up to 5 deviations
        if !(low < high && a < 4.5 && b > -4.5) {
            let [low, high, mean] = [low, high, mean].map(Shown);
            return Err(Error::value("trunc_normal", format!("{low}..{high} is empty or far from the mean {mean}")));
        }
        let (a, b) = (a.max(-5.0), b.min(5.0));
        let (lo, hi) = (cumulative(a), cumulative(b));
        let z = Tensor::uniform(session, 2.0 * lo - 1.0, 2.0 * hi - 1.0, shape)?;
        let z = z.clamp(-1.0 + 1e-6, 1.0 - 1e-6)?.erfinv()?.mul(2f64.sqrt())?;
        z.mul(std)?.add(mean)?.clamp(low, high)
    }

    /// Bool: true with the probability that each element gives.
    pub fn bernoulli_of(&self) -> Result<Tensor> {
        self.want_float("bernoulli")?;
        Tensor::rand(self.session(), &self.shape())?.lt(self)
    }

    /// A sample of the gamma distribution whose concentration (positive) each element gives, with scale 1, f32
    /// (Marsaglia and Tsang 2000).
    pub fn gamma_of(&self) -> Result<Tensor> {
        self.want_float("gamma")?;
        let (s, shape) = (self.session(), self.shape());
        let a = self.cast(DType::F32)?;
        let small = a.lt(1)?;
        let d = small.select(a.add(1)?, &a)?.sub(1.0 / 3.0)?;
        let c = d.mul(9)?.rsqrt()?;
        let rounds: Vec<usize> = [GAMMA_ROUNDS].iter().chain(&shape).copied().collect();
        let x = Tensor::randn(s, &rounds)?;
        let u = Tensor::rand_positive(s, &rounds)?;
        let base = c.mul(&x)?.add(1)?;
        let v = base.square()?.mul(&base)?;
        let is_positive = base.gt(0)?;
        let safe = is_positive.select(&v, 1)?;
        // ln u < x^2/2 + d - d v + d ln v
        let limit = x.square()?.mul(0.5)?.add(d.mul(safe.log()?.sub(&safe)?.add(1)?)?)?;
        let accepted = is_positive.logical_and(u.log()?.lt(limit)?)?;
        let g = first(&accepted, &d.mul(&v)?, &d)?;
        let power = Tensor::rand_positive(s, &shape)?.pow(small.select(&a, 1)?.reciprocal()?)?;
        small.select(g.mul(power)?, g)
    }

    /// A sample of the beta distribution for each pair of parameters (positive), f32.
    pub fn beta_of(&self, b: &Tensor) -> Result<Tensor> {
        let (a, b) = self.broadcast_with(b)?;
        let (x, y) = (a.gamma_of()?, b.gamma_of()?);
        x.div(x.add(y)?)
    }

    /// Samples of the Dirichlet distribution: the concentrations along the last axis give shares that sum to 1, f32.
    pub fn dirichlet_of(&self) -> Result<Tensor> {
        let g = self.gamma_of()?;
        g.div(g.sum(&[-1], true)?)
    }

    /// A sample of the Poisson distribution whose rate (not negative) each element gives, f32. Small rates count
    /// waiting times, large ones use Hörmann's transformed rejection (1993), and those above 1,000 a normal
    /// distribution corrected for skewness.
    pub fn poisson_of(&self) -> Result<Tensor> {
        self.want_float("poisson")?;
        let rate = self.cast(DType::F32)?;
        let few = rate.lt(POISSON_LARGE)?.select(&rate, 0)?.poisson_counted()?;
        let is_middle = rate.lt(POISSON_NORMAL)?;
        let many = is_middle.select(&rate, POISSON_LARGE)?.maximum(POISSON_LARGE)?.poisson_rejected()?;
        let z = Tensor::randn(self.session(), &self.shape())?;
        let normal = rate.add(rate.maximum(0)?.sqrt()?.mul(&z)?)?.add(z.square()?.sub(1)?.div(6)?)?.round()?;
        rate.lt(POISSON_LARGE)?.select(few, is_middle.select(many, normal)?)
    }

    fn poisson_counted(&self) -> Result<Tensor> {
        let mut shape = self.shape();
        shape.push(POISSON_EVENTS);
        let at = Tensor::exponential(self.session(), 1.0, &shape)?.cumsum(-1)?;
        at.lt(self.unsqueeze(-1)?)?.cast(DType::F32)?.sum(&[-1], false)
    }

    fn poisson_rejected(&self) -> Result<Tensor> {
        let s = self.session();
        let rounds: Vec<usize> = [POISSON_ROUNDS].iter().chain(&self.shape()).copied().collect();
        let b = self.sqrt()?.mul(2.53)?.add(0.931)?;
        let a = b.mul(0.02483)?.sub(0.059)?;
        let inverse_alpha = b.sub(3.4)?.reciprocal()?.mul(1.1328)?.add(1.1239)?;
        let enough = b.sub(2)?.reciprocal()?.mul(-3.6224)?.add(0.9277)?;
        let u = Tensor::rand(s, &rounds)?.sub(0.5)?;
        let v = Tensor::rand_positive(s, &rounds)?;
        let us = u.abs()?.neg()?.add(0.5)?.maximum(1e-7)?;
        let k = a.mul(2)?.div(&us)?.add(&b)?.mul(&u)?.add(self)?.add(0.43)?.floor()?;
        let quick = us.ge(0.07)?.logical_and(v.le(enough)?)?;
        let possible = k.ge(0)?.logical_and(us.ge(0.013)?.logical_or(v.le(&us)?)?)?;
        let safe = k.maximum(0)?;
        let left = v.mul(inverse_alpha)?.div(a.div(us.square()?)?.add(b)?)?.log()?;
        let right = safe.mul(self.log()?)?.sub(self)?.sub(safe.add(1)?.lgamma()?)?;
        let accepted = quick.logical_or(possible.logical_and(left.le(right)?)?)?;
        first(&accepted, &safe, &self.floor()?)
    }

    /// `n` random category indices for each row of weights along the last axis: `[.., k] -> [.., n]`, i32. The weights
    /// are not negative and not all 0; they need not sum to 1. Without replacement no category occurs twice, and those
    /// of weight 0 come last. `Error::Value` for no categories, or more draws than categories without replacement.
    pub fn multinomial(&self, n: usize, replacement: bool) -> Result<Tensor> {
        self.want_float("multinomial")?;
        let shape = self.shape();
        let Some((&k, batch)) = shape.split_last() else {
            return Err(Error::value("multinomial", "weights need an axis"));
        };
        if k == 0 || (!replacement && n > k) {
            return Err(Error::value("multinomial", format!("{n} of {k} categories")));
        }
        let w = self.cast(DType::F32)?;
        if !replacement {
            // the n earliest arrivals of processes whose rates are the weights (Efraimidis and Spirakis 2006)
            let times = Tensor::exponential(self.session(), 1.0, &shape)?;
            let rate = w.gt(0)?.select(times.div(w.gt(0)?.select(&w, 1)?)?, f64::INFINITY)?;
            return Ok(rate.topk(n, -1, false)?.1);
        }
        let up_to = w.cumsum(-1)?;
        let total = up_to.narrow(-1, k - 1, 1)?;
        let mut wanted = batch.to_vec();
        wanted.push(n);
        let at = Tensor::rand(self.session(), &wanted)?.mul(&total)?;
        let before = |x: Tensor| x.cast(DType::I32)?.sum(&[-1], false);
        let index = before(up_to.unsqueeze(-2)?.le(at.unsqueeze(-1)?)?)?;
        // rounding may give an index past the last category of positive weight
        index.minimum(before(up_to.lt(total)?)?.unsqueeze(-1)?)
    }

    /// A random category index for each row of unnormalised log-probabilities: `[.., k] -> [..]`, i32, by the
    /// Gumbel-max trick.
    pub fn categorical(&self) -> Result<Tensor> {
        self.want_float("categorical")?;
        self.add(Tensor::gumbel(self.session(), &self.shape())?)?.argmax(-1, false)
    }
}

/// For each element, the first accepted value along the first axis (that of the draws), or `otherwise`.
fn first(accepted: &Tensor, values: &Tensor, otherwise: &Tensor) -> Result<Tensor> {
    let rounds = accepted.dim(0)? as i64;
    (0..rounds)
        .rev()
        .try_fold(otherwise.clone(), |rest, i| accepted.select_at(0, i)?.select(values.select_at(0, i)?, rest))
}

/// The standard normal distribution function, error 1e-7 (Abramowitz and Stegun 7.1.26).
fn cumulative(x: f64) -> f64 {
    let z = x.abs() / 2f64.sqrt();
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let upper = 0.5 * p * (-z * z).exp();
    if x < 0.0 { upper } else { 1.0 - upper }
}
