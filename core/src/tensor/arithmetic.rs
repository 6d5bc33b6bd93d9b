//! More elementwise arithmetic: functions that C's math library, numpy or torch have beyond the operators.

use super::{Operand, Tensor};
use crate::{DType, Error, Result};
use std::f64::consts::{FRAC_PI_2, PI};

impl Tensor {
    /// Limits elements to `min..=max`; either bound may be a tensor, a scalar or absent. As in torch, `max` wins where
    /// the bounds cross.
    pub fn clamp_to(&self, min: Option<Operand>, max: Option<Operand>) -> Result<Tensor> {
        let mut t = self.clone();
        // selections instead of maximum and minimum: an element equal to a bound then gets the whole gradient, as in
        // torch
        if let Some(lo) = min {
            let lo = t.bound(&lo)?;
            t = t.lt(&lo)?.select(&lo, &t)?;
        }
        if let Some(hi) = max {
            let hi = t.bound(&hi)?;
            t = t.gt(&hi)?.select(&hi, &t)?;
        }
        Ok(t)
    }

    /// A bound of [`Tensor::clamp_to`] as a tensor; a scalar becomes a constant of shape `[]` in the promoted dtype.
    fn bound(&self, o: &Operand) -> Result<Tensor> {
        match o {
            Operand::Tensor(t) => Ok(t.clone()),
            scalar => Tensor::full(self.session(), scalar, scalar.promote(self.dtype()), &[]),
        }
    }

    /// The larger of two elements; where one of them is NaN, the other one.
    pub fn fmax(&self, rhs: &Tensor) -> Result<Tensor> {
        self.isnan()?.select(rhs, rhs.isnan()?.select(self, self.maximum(rhs)?)?)
    }

    /// The smaller of two elements; where one of them is NaN, the other one.
    pub fn fmin(&self, rhs: &Tensor) -> Result<Tensor> {
        self.isnan()?.select(rhs, rhs.isnan()?.select(self, self.minimum(rhs)?)?)
    }

    /// Replaces NaN by `nan`, and infinities by `posinf` and `neginf`; these default to the largest and the smallest
    /// finite number of the dtype. Integers are unchanged.
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        let dt = self.dtype();
        if !dt.is_float() {
            return Ok(self.clone());
        }
        let top = match dt {
            DType::F16 => 65504.0,
            DType::BF16 => 3.3895313892515355e38,
            DType::F64 => f64::MAX,
            _ => f32::MAX as f64,
        };
        let low = self.eq(f64::NEG_INFINITY)?.select(neginf.unwrap_or(-top), self)?;
        let high = self.eq(f64::INFINITY)?.select(posinf.unwrap_or(top), low)?;
        self.isnan()?.select(nan, high)
    }

    /// `sqrt(x^2 + y^2)` without overflow of the squares; the gradient at the origin is 0.
    pub fn hypot(&self, rhs: &Tensor) -> Result<Tensor> {
        self.in_f32_with(rhs, &Tensor::hypot_wide)
    }

    fn hypot_wide(&self, rhs: &Tensor) -> Result<Tensor> {
        let (x, y) = self.broadcast_with(rhs)?;
        let m = x.abs()?.maximum(y.abs()?)?.detach();
        let (zero, infinite) = (m.eq(0)?, x.isinf()?.logical_or(y.isinf()?)?);
        let scale = zero.logical_or(&infinite)?.select(1, &m)?;
        let sum = x.div(&scale)?.square()?.add(y.div(&scale)?.square()?)?;
        let r = zero.select(1, sum)?.sqrt()?.mul(scale)?;
        // as in C, the result is infinite if either side is, even if the other one is NaN
        infinite.select(f64::INFINITY, zero.select(0, r)?)
    }

    /// The angle of the point with y coordinate `self` and x coordinate `rhs`, in [-pi, pi]; signed zeros and
    /// infinities as in C's `atan2`.
    pub fn atan2(&self, rhs: &Tensor) -> Result<Tensor> {
        self.in_f32_with(rhs, &Tensor::atan2_wide)
    }

    fn atan2_wide(&self, rhs: &Tensor) -> Result<Tensor> {
        let (y, x) = self.broadcast_with(rhs)?;
        let steep = y.abs()?.gt(x.abs()?)?;
        let (num, den) = (steep.select(&x, &y)?, steep.select(&y, &x)?);
        let still = den.eq(0)?;
        let t = num.div(still.select(1, &den)?)?.atan()?;
        // |y| > |x|: +-pi/2 - atan(x/y)
        let half = y.lt(0)?.select(x.full_like(-FRAC_PI_2)?, FRAC_PI_2)?;
        let flat = x.lt(0)?.select(t.add(y.signbit()?.select(x.full_like(-PI)?, PI)?)?, &t)?;
        let r = steep.select(half.sub(&t)?, flat)?;
        // both infinite: the angle of a diagonal, +-pi/4 or +-3pi/4
        let both = x.isinf()?.logical_and(y.isinf()?)?;
        let diagonal = x.lt(0)?.select(x.full_like(3.0 * PI / 4.0)?, PI / 4.0)?;
        let r = both.select(y.lt(0)?.select(diagonal.neg()?, diagonal)?, r)?;
        let origin = y.eq(0)?.logical_and(x.eq(0)?)?;
        let behind = y.signbit()?.select(x.full_like(-PI)?, PI)?;
        origin.select(x.signbit()?.select(behind, &y)?, r)
    }

    /// Bool: true for negative numbers and -0.
    pub fn signbit(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::F32 => self.bitcast(DType::I32)?.lt(0),
            DType::F16 | DType::BF16 => self.cast(DType::F32)?.signbit(),
            DType::F64 => self.bitcast(DType::I64)?.lt(0),
            _ => self.lt(0),
        }
    }

    /// The angle of real numbers in the complex plane: pi for negative ones, 0 for others, NaN for NaN.
    pub fn angle(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let r = x.lt(0)?.select(x.full_like(PI)?, 0)?;
        if self.dtype().is_float() { x.isnan()?.select(&x, r) } else { Ok(r) }
    }

    /// The Heaviside step function: 0 below zero, 1 above, `values` at zero.
    pub fn heaviside(&self, values: &Tensor) -> Result<Tensor> {
        let step = self.gt(0)?.cast(self.dtype())?;
        let r = self.eq(0)?.select(values, step)?;
        if self.dtype().is_float() { self.isnan()?.select(self, r) } else { Ok(r) }
    }

    /// Rounds floats to `decimals` decimal places, halves to even; a negative count rounds to tens, hundreds and so on.
    /// Integers are unchanged.
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        if decimals == 0 || !self.dtype().is_float() {
            return self.round();
        }
        let scale = 10f64.powi(decimals.abs());
        match decimals > 0 {
            true => self.mul(scale)?.round()?.div(scale),
            false => self.div(scale)?.round()?.mul(scale),
        }
    }

    /// Greatest common divisor of integers by Euclid's algorithm, unrolled for as many steps as the dtype can need.
    /// `Error::DType` for others.
    pub fn gcd(&self, rhs: &Tensor) -> Result<Tensor> {
        let dt = self.dtype().promote(rhs.dtype());
        if !dt.is_int() {
            return Err(Error::DType { op: "gcd", dtype: dt, why: "an integer dtype is needed".into() });
        }
        let (mut a, mut b) = self.cast(dt)?.abs()?.broadcast_with(&rhs.cast(dt)?.abs()?)?;
        // the worst case are consecutive Fibonacci numbers, which take 1.44 steps for each bit
        for step in 1..=(dt.bits() * 3).div_ceil(2) {
            let done = b.eq(0)?;
            let r = a.fmod(done.select(1, &b)?)?;
            (a, b) = (done.select(&a, &b)?, done.select(0, r)?);
            // eight steps per kernel, and all these kernels have the same code: on a GPU one 64-bit division is already
            // a page of code
            if step % 8 == 0 {
                (a, b) = (a.contiguous(), b.contiguous());
            }
        }
        Ok(a)
    }

    /// Least common multiple of integers; 0 where either is 0. `Error::DType` for others.
    pub fn lcm(&self, rhs: &Tensor) -> Result<Tensor> {
        let g = self.gcd(rhs)?;
        let zero = g.eq(0)?;
        zero.select(0, self.trunc_div(zero.select(1, g)?)?.mul(rhs)?.abs()?)
    }

    /// The next representable number after each element in the direction of `rhs`. `Error::DType` unless it is a float.
    pub fn nextafter(&self, rhs: &Tensor) -> Result<Tensor> {
        let int = match self.want_float("nextafter")? {
            DType::F32 => DType::I32,
            DType::F64 => DType::I64,
            _ => DType::I16,
        };
        let (x, y) = self.broadcast_with(&rhs.cast(self.dtype())?)?;
        let bits = x.bitcast(int)?;
        let grow = x.lt(&y)?.logical_xor(x.lt(0)?)?;
        let moved = bits.add(grow.select(bits.full_like(1)?, -1)?)?.bitcast(x.dtype())?;
        let tiny = bits.full_like(1)?.bitcast(x.dtype())?;
        let from_zero = y.lt(0)?.select(tiny.neg()?, tiny)?;
        let r = x.eq(0)?.select(from_zero, moved)?;
        let r = x.eq(&y)?.select(&y, x.isnan()?.select(&x, y.isnan()?.select(&y, r)?)?)?.detach();
        // the distance to the next number is a constant to the gradient: the slope is 1
        let still = x.sub(x.detach())?;
        x.isfinite()?.select(r.add(still)?, &r)
    }

    /// Mantissa (magnitude in [0.5, 1)) and exponent (i32) of each number: `x = m * 2^e`. Zero, NaN and infinities give
    /// themselves and 0.
    pub fn frexp(&self) -> Result<(Tensor, Tensor)> {
        let x = self.to_float()?;
        let usable = x.isfinite()?.logical_and(x.ne(0)?)?;
        let safe = usable.select(&x, 1)?;
        let guess = safe.abs()?.log2()?.floor()?.add(1)?.detach();
        // the rounded logarithm may be off by one at powers of two: the mantissa tells, and is corrected
        let m = safe.mul(guess.neg()?.mul(0.5)?.floor()?.exp2()?)?;
        let m = m.mul(guess.neg()?.sub(guess.neg()?.mul(0.5)?.floor()?)?.exp2()?)?;
        let (big, small) = (m.abs()?.ge(1)?, m.abs()?.lt(0.5)?);
        let m = big.select(m.mul(0.5)?, small.select(m.mul(2)?, &m)?)?;
        let e = guess.add(big.cast(x.dtype())?)?.sub(small.cast(x.dtype())?)?;
        Ok((usable.select(m, &x)?, usable.select(e, 0)?.cast(DType::I32)?))
    }

    /// Gated linear unit: the first half along an axis times the sigmoid of the second half. `Error::Value` if the size
    /// is odd.
    pub fn glu(&self, axis: i64) -> Result<Tensor> {
        let n = self.dim(axis)?;
        if n % 2 != 0 {
            return Err(Error::value("glu", format!("axis {axis} of size {n} has no halves")));
        }
        self.narrow(axis, 0, n / 2)?.mul(self.narrow(axis, n / 2, n / 2)?.sigmoid()?)
    }

    /// 0 where `|x| <= lambda`, else `x`.
    pub fn hardshrink(&self, lambda: f64) -> Result<Tensor> {
        self.abs()?.le(lambda)?.select(0, self)
    }

    /// `x` moved toward 0 by `lambda`; 0 where `|x| <= lambda`.
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        let low = self.lt(-lambda)?.select(self.add(lambda)?, self.mul(0)?)?;
        self.gt(lambda)?.select(self.sub(lambda)?, low)
    }

    /// Orthogonal polynomials of degree `n` (an integer tensor that broadcasts; degrees above 20 give degree 20) at
    /// these points, by the three-term recurrence of the family: `chebyshev_t`, `_u`, `_v`, `_w`, `hermite_h`,
    /// `hermite_he`, `laguerre` or `legendre`. `Error::Value` for another name.
    pub fn orthogonal(&self, family: &str, n: &Tensor) -> Result<Tensor> {
        let (x, n) = self.to_float()?.broadcast_with(&n.cast(DType::F32)?)?;
        let mut before = x.ones_like()?;
        let mut now = match family {
            "chebyshev_t" | "hermite_he" | "legendre" => x.clone(),
            "chebyshev_u" | "hermite_h" => x.mul(2)?,
            "chebyshev_v" => x.mul(2)?.sub(1)?,
            "chebyshev_w" => x.mul(2)?.add(1)?,
            "laguerre" => x.neg()?.add(1)?,
            _ => return Err(Error::value("orthogonal", format!("there is no family `{family}`"))),
        };
        let mut out = n.lt(0)?.select(0, n.lt(1)?.select(&before, &now)?)?;
        for k in 1..20 {
            let kf = k as f64;
            let next = match family {
                "hermite_he" => x.mul(&now)?.sub(before.mul(kf)?)?,
                "hermite_h" => x.mul(&now)?.sub(before.mul(kf)?)?.mul(2)?,
                "legendre" => x.mul(&now)?.mul(2.0 * kf + 1.0)?.sub(before.mul(kf)?)?.div(kf + 1.0)?,
                "laguerre" => x.neg()?.add(2.0 * kf + 1.0)?.mul(&now)?.sub(before.mul(kf)?)?.div(kf + 1.0)?,
                _ => x.mul(&now)?.mul(2)?.sub(&before)?,
            };
            (before, now) = (now, next);
            out = n.ge(kf + 1.0)?.select(&now, out)?;
        }
        Ok(out)
    }

    /// The lower regularised incomplete gamma function `P(self, x)`; not differentiable in `self`.
    pub fn igamma(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.igamma_pair(x)?.0)
    }

    /// The upper regularised incomplete gamma function `Q(self, x)`; not differentiable in `self`.
    pub fn igammac(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.igamma_pair(x)?.1)
    }

    /// `(P, Q)`: the power series for P below `x = a + 1`, the continued fraction for Q above; the other one is 1 minus
    /// it.
    fn igamma_pair(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let (a, x) = self.to_float()?.broadcast_with(&x.to_float()?)?;
        let ok = a.gt(0)?.logical_and(x.gt(0)?)?;
        let (sa, sx) = (ok.select(a.detach(), 1)?, ok.select(&x, 1)?);
        let front = sa.mul(sx.log()?)?.sub(&sx)?.sub(sa.lgamma()?)?.exp()?;
        // the series (79 terms) below x = a + 1; above it the continued fraction, evaluated backwards from its 59th
        // term
        let low = sx.lt(sa.add(1)?)?;
        let lx = low.select(&sx, sa.add(1)?)?;
        let (mut term, mut sum) = (sa.reciprocal()?, sa.reciprocal()?);
        for k in 1..80 {
            term = term.mul(lx.div(sa.add(k)?)?)?;
            sum = sum.add(&term)?;
        }
        let hx = low.select(sa.add(1)?, &sx)?;
        let mut fraction = hx.zeros_like()?;
        for k in (1..60).rev() {
            // k (k - a) / (x + 2k + 1 - a - ..)
            let num = sa.neg()?.add(k)?.mul(k)?;
            fraction = num.div(hx.add(2 * k + 1)?.sub(&sa)?.sub(&fraction)?)?;
        }
        let upper = hx.add(1)?.sub(&sa)?.sub(fraction)?.reciprocal()?.mul(&front)?;
        let lower = front.mul(sum)?;
        let one = a.ones_like()?;
        let p = low.select(&lower, one.sub(&upper)?)?;
        let q = low.select(one.sub(&lower)?, upper)?;
        let at_zero = x.eq(0)?.logical_and(a.gt(0)?)?;
        let flat = a.eq(0)?.logical_and(x.gt(0)?)?;
        let edge = |v: Tensor, zero: f64| -> Result<Tensor> {
            let rest = flat.select(one.mul(1.0 - zero)?, f64::NAN)?;
            ok.select(v, at_zero.select(one.mul(zero)?, rest)?)
        };
        Ok((edge(p, 0.0)?, edge(q, 1.0)?))
    }
}
