//! Special functions: error functions, gamma and related functions, Bessel functions. Each is put together from
//! polynomials fitted in f64 (`fits`); in f32 the absolute error is about 1e-7 of the function's size. Each formula
//! gets only arguments of its own interval, so that one that is not selected cannot put a NaN into a gradient. Integers
//! give f32.

mod fits;

use super::Tensor;
use crate::{Error, Result};
use fits::*;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_4, LN_2, PI};

/// B_2k / (2k)! for k = 1..=6 (Bernoulli numbers), the coefficients of the Euler-Maclaurin formula.
const EULER: [f64; 6] = [
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.0876756987868098e-08,
    -5.284190138687493e-10,
];

impl Tensor {
    /// Evaluates a fitted polynomial in `t`, where `t` runs over [-1, 1] as `self` runs over `lo..=hi`; arguments
    /// outside are clamped. More than 16 coefficients are those of Chebyshev polynomials.
    fn eval_fit(&self, lo: f64, hi: f64, c: &[f64]) -> Result<Tensor> {
        let t = self.clamp(lo, hi)?.sub((hi + lo) / 2.0)?.mul(2.0 / (hi - lo))?;
        if c.len() > 16 {
            // Clenshaw's recurrence
            let twice = t.mul(2)?;
            let (mut now, mut before) = (t.zeros_like()?, t.zeros_like()?);
            for &k in c[1..].iter().rev() {
                (now, before) = (twice.mul(&now)?.sub(before)?.add(k)?, now);
            }
            return t.mul(now)?.sub(before)?.add(c[0]);
        }
        let (last, rest) = c.split_last().expect("a polynomial has coefficients");
        let mut acc = t.mul(*last)?;
        for (i, &k) in rest.iter().enumerate().rev() {
            acc = acc.add(k)?;
            if i > 0 {
                acc = acc.mul(&t)?;
            }
        }
        Ok(acc)
    }

    /// A constant of shape `[]` in this dtype.
    fn constant_like(&self, v: f64) -> Result<Tensor> {
        Tensor::full(self.session(), v, self.dtype(), &[])
    }

    // ---- error functions

    /// `e^(x^2) erfc(x)`, without underflow for large x.
    pub fn erfcx(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let u = x.abs()?.mul(0.5)?.add(1)?.reciprocal()?;
            let right = u.mul(u.eval_fit(0.0, 1.0, &ERFCX)?)?;
            // erfcx(-x) = 2 e^(x^2) - erfcx(x)
            let negative = x.lt(0)?;
            let square = negative.select(x.square()?, 0)?;
            negative.select(square.exp()?.mul(2)?.sub(&right)?, right)
        })
    }

    /// `1 - erf(x)`, with small relative error in the tail.
    pub fn erfc(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let a = x.abs()?;
            let z = a.minimum(30)?;
            let tail = z.erfcx()?.mul(z.square()?.neg()?.exp()?)?;
            let far = x.lt(0)?.select(tail.neg()?.add(2)?, tail)?;
            a.lt(0.5)?.select(x.clamp(-1, 1)?.erf()?.neg()?.add(1)?, far)
        })
    }

    /// The inverse of [`Tensor::erf`]: infinite at -1 and 1, NaN beyond.
    pub fn erfinv(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let a = x.abs()?;
        let inside = a.lt(1)?;
        let safe = inside.select(&x, 0)?;
        // -ln((1-x)(1+x)), since both factors are exact near the ends
        let one = x.constant_like(1.0)?;
        let w = one.sub(&safe)?.mul(one.add(&safe)?)?.log()?.neg()?;
        let middle = w.le(5)?;
        let near = safe.mul(w.eval_fit(1e-12, 5.0, &ERFINV_MID)?)?;
        let r = middle.select(5, w)?.sqrt()?.eval_fit(2.2, 6.2, &ERFINV_TAIL)?;
        let far = safe.lt(0)?.select(r.neg()?, r)?;
        let end = a.eq(1)?.select(x.detach().mul(f64::INFINITY)?, f64::NAN)?;
        inside.select(middle.select(near, far)?, end)
    }

    /// The distribution function of the standard normal distribution.
    pub fn ndtr(&self) -> Result<Tensor> {
        self.to_float()?.mul(-std::f64::consts::FRAC_1_SQRT_2)?.erfc()?.mul(0.5)
    }

    /// The inverse of [`Tensor::ndtr`]: infinite at 0 and 1, NaN outside.
    pub fn ndtri(&self) -> Result<Tensor> {
        let p = self.to_float()?;
        // small probabilities are computed from p itself, which 2p-1 would round away
        let low = p.lt(0.01)?;
        let middle = low.select(0.5, &p)?.mul(2)?.sub(1)?.erfinv()?.mul(std::f64::consts::SQRT_2)?;
        let q = low.logical_and(p.gt(0)?)?.select(&p, 0.005)?;
        let one = p.constant_like(1.0)?;
        let w = q.mul(one.sub(&q)?)?.mul(4)?.log()?.neg()?;
        let w_near = w.le(5)?;
        let r = w.maximum(5)?.sqrt()?.eval_fit(2.2, 6.2, &ERFINV_TAIL)?;
        let near = w.eval_fit(1e-12, 5.0, &ERFINV_MID)?.mul(one.sub(q.mul(2)?)?)?;
        let tail = w_near.select(near, r)?.mul(-std::f64::consts::SQRT_2)?;
        let tail = p.gt(0)?.select(tail, p.eq(0)?.select(f64::NEG_INFINITY, p.constant_like(f64::NAN)?)?)?;
        low.select(tail, middle)
    }

    /// `ln(ndtr(x))`, without underflow for negative numbers of large magnitude.
    pub fn log_ndtr(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let left = x.lt(-1)?;
        let z = left.select(&x, -1)?.mul(-std::f64::consts::FRAC_1_SQRT_2)?;
        let tail = z.erfcx()?.mul(0.5)?.log()?.sub(z.square()?)?;
        let y = left.select(0, &x)?.mul(std::f64::consts::FRAC_1_SQRT_2)?.erfc()?.mul(-0.5)?.log1p()?;
        left.select(tail, y)
    }

    // ---- entropy and related functions

    /// Entropy term `-x ln x`: 0 at 0, -inf for negative numbers.
    pub fn entr(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let positive = x.gt(0)?;
        let value = positive.select(&x, 1)?.log()?.mul(&x)?.neg()?;
        let rest = x.eq(0)?.select(0, x.isnan()?.select(&x, f64::NEG_INFINITY)?)?;
        positive.select(value, rest)
    }

    /// `x ln y`, 0 where x is 0 (unless y is NaN).
    pub fn xlogy(&self, y: &Tensor) -> Result<Tensor> {
        let (x, y) = (self.to_float()?, y.to_float()?);
        let skip = x.eq(0)?.logical_and(y.isnan()?.logical_not()?)?;
        skip.select(0, x.mul(skip.select(1, y)?.log()?)?)
    }

    /// `x ln(1 + y)`, 0 where x is 0 (unless y is NaN).
    pub fn xlog1py(&self, y: &Tensor) -> Result<Tensor> {
        let (x, y) = (self.to_float()?, y.to_float()?);
        let skip = x.eq(0)?.logical_and(y.isnan()?.logical_not()?)?;
        skip.select(0, x.mul(skip.select(1, y)?.log1p()?)?)
    }

    /// `ln(x / (1 - x))`; with `eps`, x is limited to `eps..=1-eps` first.
    pub fn logit(&self, eps: Option<f64>) -> Result<Tensor> {
        let mut x = self.to_float()?;
        if let Some(e) = eps {
            x = x.lt(e)?.select(e, x.gt(1.0 - e)?.select(1.0 - e, &x)?)?;
        }
        let one = x.constant_like(1.0)?;
        x.div(one.sub(&x)?)?.log()
    }

    /// `sin(pi x) / (pi x)`; 1 at 0.
    pub fn sinc(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let zero = x.eq(0)?;
        let z = zero.select(1, &x)?.mul(PI)?;
        // at zero the slope is 0, as that of the constant
        zero.select(1, z.sin()?.div(z)?)
    }

    // ---- gamma and related functions

    /// `sin(pi x)`, computed from the distance to the nearest integer, so that large arguments lose no accuracy.
    fn sin_pi(&self) -> Result<Tensor> {
        let n = self.round()?;
        let half = n.mul(0.5)?;
        let odd = half.ne(half.trunc()?)?;
        let s = self.sub(&n)?.mul(PI)?.sin()?;
        odd.select(s.neg()?, s)
    }

    /// `ln |gamma(x)|`; infinite at 0 and the negative integers.
    pub fn lgamma(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let left = x.lt(0.5)?;
        let one = x.constant_like(1.0)?;
        let z = left.select(one.sub(&x)?, &x)?;
        let first = z.clamp(0.5, 1.5)?;
        let first = first.sub(1)?.mul(first.eval_fit(0.5, 1.5, &LGAMMA_1)?)?;
        let second = z.clamp(1.5, 3.0)?;
        let second = second.sub(2)?.mul(second.eval_fit(1.5, 3.0, &LGAMMA_2)?)?;
        let third = z.eval_fit(3.0, 8.0, &LGAMMA_3)?;
        let big = z.maximum(8)?;
        let r = big.reciprocal()?;
        let series = r.mul(r.square()?.mul(1.0 / 1260.0)?.sub(1.0 / 360.0)?.mul(r.square()?)?.add(1.0 / 12.0)?)?;
        let far = big.sub(0.5)?.mul(big.log()?)?.sub(&big)?.add(0.9189385332046727)?.add(series)?;
        let far = z.isinf()?.select(f64::INFINITY, far)?;
        let right = z.lt(1.5)?.select(first, z.lt(3)?.select(second, z.lt(8)?.select(third, far)?)?)?;
        let safe = left.select(&x, 0.5)?;
        let reflected = safe.sin_pi()?.abs()?.log()?.neg()?.add(PI.ln())?.sub(&right)?;
        let pole = x.le(0)?.logical_and(x.eq(x.trunc()?)?)?;
        pole.select(f64::INFINITY, left.select(reflected, right)?)
    }

    /// The derivative of [`Tensor::lgamma`]; -inf at 0, NaN at the negative integers.
    pub fn digamma(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let left = x.lt(0)?;
        let one = x.constant_like(1.0)?;
        let z = left.select(one.sub(&x)?, &x)?;
        let mut shift = z.reciprocal()?;
        for k in 1..6 {
            shift = shift.add(z.add(k)?.reciprocal()?)?;
        }
        let y = z.add(6)?;
        let q = y.square()?.reciprocal()?;
        let series = q.mul(1.0 / 252.0)?.sub(1.0 / 120.0)?.mul(&q)?.add(1.0 / 12.0)?.mul(&q)?;
        let right = y.log()?.sub(y.reciprocal()?.mul(0.5)?)?.sub(series)?.sub(shift)?;
        let safe = left.select(&x, 0.25)?;
        let n = safe.sub(safe.round()?)?.mul(PI)?;
        let cot = n.cos()?.div(n.sin()?)?;
        let reflected = right.sub(cot.mul(PI)?)?;
        let pole = left.logical_and(x.eq(x.trunc()?)?)?;
        let at_zero = x.eq(0)?;
        at_zero.select(f64::NEG_INFINITY, pole.select(f64::NAN, left.select(reflected, right)?)?)
    }

    /// The Hurwitz zeta function `sum over k >= 0 of (q + k)^-x` for x > 1; NaN for x < 1, infinite at 1.
    pub fn zeta(&self, q: &Tensor) -> Result<Tensor> {
        let (x, q) = (self.to_float()?, q.to_float()?);
        const TERMS: usize = 10;
        let minus = x.neg()?;
        let mut sum = q.pow(&minus)?;
        for k in 1..TERMS {
            sum = sum.add(q.add(k)?.pow(&minus)?)?;
        }
        let a = q.add(TERMS)?;
        let power = a.pow(&minus)?;
        sum = sum.add(power.mul(&a)?.div(x.sub(1)?)?)?.add(power.mul(0.5)?)?;
        // B_2k/(2k)! x (x+1) .. (x+2k-2) a^(-x-2k+1)
        let (mut rising, mut falling) = (x.clone(), power.div(&a)?);
        let inverse = a.square()?.reciprocal()?;
        for (k, &b) in EULER.iter().enumerate() {
            if k > 0 {
                rising = rising.mul(x.add(2 * k - 1)?)?.mul(x.add(2 * k)?)?;
                falling = falling.mul(&inverse)?;
            }
            sum = sum.add(rising.mul(&falling)?.mul(b)?)?;
        }
        let pole = q.le(0)?.logical_and(q.eq(q.trunc()?)?)?;
        let undefined = q.le(0)?.logical_and(x.ne(x.trunc()?)?)?;
        let sum = pole.select(f64::INFINITY, undefined.select(f64::NAN, sum)?)?;
        x.eq(1)?.select(f64::INFINITY, x.lt(1)?.select(f64::NAN, sum)?)
    }

    /// The `n`-th derivative of [`Tensor::digamma`]. `Error::Value` for orders above 30.
    pub fn polygamma(&self, n: usize) -> Result<Tensor> {
        if n == 0 {
            return self.digamma();
        }
        if n > 30 {
            return Err(Error::value("polygamma", format!("order {n} is above 30")));
        }
        let x = self.to_float()?;
        let factorial: f64 = (1..=n).map(|k| k as f64).product();
        let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
        x.constant_like(n as f64 + 1.0)?.expand(&x.shape())?.zeta(&x)?.mul(sign * factorial)
    }

    /// The logarithm of the multivariate gamma function in `p` dimensions.
    pub fn mvlgamma(&self, p: usize) -> Result<Tensor> {
        super::check_repetitions("mvlgamma", p)?;
        let x = self.to_float()?;
        let mut sum = x.full_like((p * p.saturating_sub(1)) as f64 / 4.0 * PI.ln())?;
        for j in 0..p {
            sum = sum.add(x.sub(j as f64 / 2.0)?.lgamma()?)?;
        }
        Ok(sum)
    }

    // ---- Bessel functions

    /// Applies `near` to |x| where it is at most `limit`, and `far` beyond; NaN stays NaN.
    fn piecewise_abs(
        &self,
        limit: f64,
        near: impl FnOnce(&Tensor) -> Result<Tensor>,
        far: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let a = self.abs()?;
        let (n, f) = (near(&a.minimum(limit)?)?, far(&a.maximum(limit)?)?);
        a.isnan()?.select(&a, a.le(limit)?.select(n, f)?)
    }

    /// `e^-|x| I0(x)`.
    pub fn i0e(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let y = x.piecewise_abs(
            8.0,
            |x| x.eval_fit(0.0, 8.0, &I0E_NEAR),
            |x| x.reciprocal()?.mul(8)?.eval_fit(1e-6, 1.0, &I0E_FAR)?.mul(x.rsqrt()?),
        )?;
        // differentiated by formula, because the slope of the fit at 0 is not 0
        y.custom_grad(&[&x], |dy| Ok(vec![dy.mul(x.i1e()?.sub(x.sign()?.mul(&y)?)?)?]))
    }

    /// The modified Bessel function of the first kind, order 0.
    pub fn i0(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let y = x.i0e()?.mul(x.abs()?.exp()?)?;
        y.custom_grad(&[&x], |dy| Ok(vec![dy.mul(x.i1()?)?]))
    }

    /// `e^-|x| I1(x)`.
    pub fn i1e(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let r = x.piecewise_abs(
            8.0,
            |x| x.eval_fit(0.0, 8.0, &I1E_NEAR),
            |x| x.reciprocal()?.mul(8)?.eval_fit(1e-6, 1.0, &I1E_FAR)?.mul(x.rsqrt()?)?.div(x),
        )?;
        r.mul(x)
    }

    /// The modified Bessel function of the first kind, order 1.
    pub fn i1(&self) -> Result<Tensor> {
        self.i1e()?.mul(self.to_float()?.abs()?.exp()?)
    }

    /// `y` for positive arguments, `at_zero` at 0, NaN for negative arguments.
    fn on_positive(&self, y: Tensor, at_zero: f64) -> Result<Tensor> {
        self.gt(0)?.select(y, self.eq(0)?.select(at_zero, self.constant_like(f64::NAN)?)?)
    }

    /// The modified Bessel function of the second kind, order 0.
    pub fn k0(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let p = x.gt(0)?.select(&x, 1)?;
        let y = p.piecewise_abs(
            2.0,
            |x| x.square()?.eval_fit(0.0, 4.0, &K0_NEAR)?.sub(x.mul(0.5)?.log()?.mul(x.i0()?)?),
            |x| x.k_far(&K0_FAR)?.mul(x.neg()?.exp()?),
        )?;
        x.on_positive(y, f64::INFINITY)
    }

    /// The fit of `sqrt(x) e^x K(x)` in `2/x`, divided by `sqrt(x)`: `e^x K(x)` for large x.
    fn k_far(&self, c: &[f64]) -> Result<Tensor> {
        self.reciprocal()?.mul(2)?.eval_fit(1e-6, 1.0, c)?.mul(self.rsqrt()?)
    }

    /// `e^x K0(x)`.
    pub fn k0e(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let p = x.gt(0)?.select(&x, 1)?;
        let y = p.piecewise_abs(2.0, |x| x.k0()?.mul(x.exp()?), |x| x.k_far(&K0_FAR))?;
        x.on_positive(y, f64::INFINITY)
    }

    /// The modified Bessel function of the second kind, order 1.
    pub fn k1(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let p = x.gt(0)?.select(&x, 1)?;
        let y = p.piecewise_abs(
            2.0,
            |x| x.square()?.eval_fit(0.0, 4.0, &K1_NEAR)?.div(x)?.add(x.mul(0.5)?.log()?.mul(x.i1()?)?),
            |x| x.k_far(&K1_FAR)?.mul(x.neg()?.exp()?),
        )?;
        x.on_positive(y, f64::INFINITY)
    }

    /// `e^x K1(x)`.
    pub fn k1e(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let p = x.gt(0)?.select(&x, 1)?;
        let y = p.piecewise_abs(2.0, |x| x.k1()?.mul(x.exp()?), |x| x.k_far(&K1_FAR))?;
        x.on_positive(y, f64::INFINITY)
    }

    /// The asymptotic form of Bessel functions for large x: `sqrt(2 / (pi x)) (P cos a - Q sin a)` with `a = x - phase`
    /// for the first kind, and `(P sin a + Q cos a)` for the second; `p` and `q` are the fits of P and x Q.
    fn bessel_far(&self, phase: f64, p: &[f64], q: &[f64], first: bool) -> Result<Tensor> {
        let r = self.reciprocal()?.mul(8)?.square()?;
        let (p, q) = (r.eval_fit(0.0, 1.0, p)?, r.eval_fit(0.0, 1.0, q)?.div(self)?);
        let angle = self.sub(phase)?;
        let (c, s) = (angle.cos()?, angle.sin()?);
        let sum = if first { p.mul(c)?.sub(q.mul(s)?)? } else { p.mul(s)?.add(q.mul(c)?)? };
        sum.mul(self.mul(PI / 2.0)?.rsqrt()?)
    }

    /// The Bessel function of the first kind, order 0.
    pub fn j0(&self) -> Result<Tensor> {
        self.to_float()?.piecewise_abs(
            8.0,
            |x| x.square()?.eval_fit(0.0, 64.0, &J0_NEAR),
            |x| x.bessel_far(FRAC_PI_4, &J0_P, &J0_Q, true),
        )
    }

    /// The Bessel function of the first kind, order 1.
    pub fn j1(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let y = x.piecewise_abs(
            8.0,
            |x| x.square()?.eval_fit(0.0, 64.0, &J1_NEAR)?.mul(x),
            |x| x.bessel_far(3.0 * FRAC_PI_4, &J1_P, &J1_Q, true),
        )?;
        x.lt(0)?.select(y.neg()?, y)
    }

    /// The Bessel function of the second kind, order 0.
    pub fn y0(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let p = x.gt(0)?.select(&x, 1)?;
        let y = p.piecewise_abs(
            8.0,
            |x| x.square()?.eval_fit(0.0, 64.0, &Y0_NEAR)?.add(x.log()?.mul(x.j0()?)?.mul(FRAC_2_PI)?),
            |x| x.bessel_far(FRAC_PI_4, &J0_P, &J0_Q, false),
        )?;
        x.on_positive(y, f64::NEG_INFINITY)
    }

    /// The Bessel function of the second kind, order 1.
    pub fn y1(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let p = x.gt(0)?.select(&x, 1)?;
        let y = p.piecewise_abs(
            8.0,
            |x| {
                let log = x.log()?.mul(x.j1()?)?.sub(x.reciprocal()?)?.mul(FRAC_2_PI)?;
                x.square()?.eval_fit(1e-4, 64.0, &Y1_NEAR)?.mul(x)?.add(log)
            },
            |x| x.bessel_far(3.0 * FRAC_PI_4, &J1_P, &J1_Q, false),
        )?;
        x.on_positive(y, f64::NEG_INFINITY)
    }

    /// Airy's function Ai.
    pub fn airy_ai(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let phase = |z: &Tensor| z.sqrt()?.mul(z)?.mul(2.0 / 3.0);
        let (right, left) = (x.maximum(1)?, x.neg()?.maximum(3)?);
        let z = phase(&right)?;
        let decay = z.neg()?.exp()?.div(right.sqrt()?.sqrt()?)?;
        let above = z.reciprocal()?.eval_fit(1e-3, 1.5, &AIRY_RIGHT)?.mul(decay)?;
        let z = phase(&left)?;
        let (u, turn) = (z.reciprocal()?, z.sub(FRAC_PI_4)?);
        let part = |c: &[f64]| u.square()?.eval_fit(0.0, 1.0 / 12.0, c);
        let wave = part(&AIRY_P)?.mul(turn.cos()?)?.add(part(&AIRY_Q)?.mul(&u)?.mul(turn.sin()?)?)?;
        let below = wave.div(left.sqrt()?.sqrt()?.mul(PI.sqrt())?)?;
        x.gt(1)?.select(above, x.lt(-3)?.select(below, x.eval_fit(-3.0, 1.0, &AIRY_MID)?)?)
    }

    // ---- others

    /// `log2(2^x + 2^y)`, without overflow.
    pub fn logaddexp2(&self, rhs: &Tensor) -> Result<Tensor> {
        let (x, y) = (self.to_float()?, rhs.to_float()?);
        x.mul(LN_2)?.logaddexp(&y.mul(LN_2)?)?.mul(1.0 / LN_2)
    }
}
