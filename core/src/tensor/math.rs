//! Unary mathematics. The graph has nodes for exp2, log2, sin, cos, tan, sqrt, recip and trunc; all other functions are
//! compositions of these and of minimax polynomials fitted for f32. The relative error of each polynomial is below
//! 4e-9, so that the rounding of f32 dominates; f64 uses the same polynomials.
//!
//! Where a function selects between two formulas, the argument of each is first limited to the interval where it is
//! valid. Otherwise the formula that was not selected could overflow and put a NaN into the gradient. Integers are
//! converted to f32 first, except where the function is defined on integers (abs, neg, sign, square, floor ...).

use super::Tensor;
use crate::uop::Op;
use crate::{DType, Error, Result};
use std::f64::consts::{FRAC_PI_2, LN_2, LOG2_E, LOG10_2, PI};

/// Coefficients of erf(x)/x as a polynomial in x^2 on [0, 1].
const ERF_SMALL: [f64; 7] = [
    1.128379165726714,
    -0.3761262582422034,
    0.11283585148487073,
    -0.0268538119309714,
    0.005188327678681982,
    -0.0008010193569258915,
    7.85386118009673e-05,
];
/// Coefficients of ln(erfc(x)) as a polynomial in x on [1, 4.1].
const LN_ERFC: [f64; 8] = [
    0.00018803612614793619,
    -1.1295784061721845,
    -0.6332199266798006,
    -0.10841854331564152,
    0.025208236457001904,
    -0.004204554759073312,
    0.00044133501767755734,
    -2.168674085510099e-05,
];
/// Coefficients of atan(x)/x as a polynomial in x^2 on [0, tan(pi/8)^2].
const ATAN: [f64; 6] = [
    0.9999999994122813,
    -0.333333080814159,
    0.19998238209401523,
    -0.14240430217417605,
    0.1057579370167,
    -0.06040186913940705,
];
/// Coefficients of asin(x)/x as a polynomial in x^2 on [0, 1/4].
const ASIN: [f64; 7] = [
    1.000000000260745,
    0.16666656768997012,
    0.0750061226886829,
    0.04450169704999949,
    0.03191149434562427,
    0.014101565805677554,
    0.03793605845587826,
];
/// Coefficients of sinh(x)/x as a polynomial in x^2 on [0, 1].
const SINH: [f64; 5] =
    [1.0000000000498794, 0.16666666417587725, 0.00833335323102337, 0.00019835709793894298, 2.8190392030020088e-06];
/// Coefficients of (exp(x)-1)/x as a polynomial in x on [-1/2, 1/2].
const EXPM1: [f64; 7] = [
    0.9999999998308395,
    0.5000000426104955,
    0.16666668357627287,
    0.04166530389843718,
    0.008333052127581494,
    0.0013997782840354832,
    0.0001999682952425831,
];

/// tanh(x)/x as a quotient of two polynomials in x^2, numerator and denominator, for |x| up to 9.01; error 7e-9.
const TANH: [&[f64]; 2] = [
    &[
        1.0,
        0.1308458298444748,
        0.00310459453612566,
        1.116096700570779e-05,
        -2.0252191035297074e-08,
        5.2909489289820755e-11,
        -8.522264111857775e-14,
    ],
    &[1.0, 0.4641790986061096, 0.02449772320687771, 0.0002547073527239263],
];
/// The Taylor series of tanh(x)/x in x^2, for f64 near zero.
const TANH_SERIES: [f64; 5] = [1.0, -1.0 / 3.0, 2.0 / 15.0, -17.0 / 315.0, 62.0 / 2835.0];

/// The Taylor series of `2 atanh(z) / z` in `z^2`; error 2e-9 for |z| up to 1/3.
const TWO_ATANH: [f64; 8] = [2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0, 2.0 / 15.0];

impl Tensor {
    /// Applies `f`. f16 and bf16 are computed in f32 and rounded once at the end; integers and bools are converted to
    /// f32 and give f32.
    pub(super) fn in_f32(&self, f: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        match self.dtype() {
            dt @ (DType::F16 | DType::BF16) => f(&self.cast(DType::F32)?)?.cast(dt),
            _ => f(&self.to_float()?),
        }
    }

    /// Applies `f` to two tensors, with the dtypes of [`Tensor::in_f32`].
    pub(super) fn in_f32_with(&self, rhs: &Tensor, f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let (x, y) = (self.to_float()?, rhs.to_float()?);
        match x.dtype().promote(y.dtype()) {
            dt @ (DType::F16 | DType::BF16) => f(&x.cast(DType::F32)?, &y.cast(DType::F32)?)?.cast(dt),
            _ => f(&x, &y),
        }
    }

    fn float_unary(&self, op: Op) -> Result<Tensor> {
        Ok(self.to_float()?.map(|g, u| g.unary(op, u)))
    }

    /// `c[0] + c[1]*x + ..` by Horner's rule.
    pub(super) fn polynomial(&self, c: &[f64]) -> Result<Tensor> {
        let (last, rest) = c.split_last().expect("a polynomial has coefficients");
        let mut acc = self.mul(*last)?;
        for (i, &k) in rest.iter().enumerate().rev() {
            acc = acc.add(k)?;
            if i > 0 {
                acc = acc.mul(self)?;
            }
        }
        Ok(acc)
    }

    // ---- signs and rounding

    /// `-self`.
    pub fn neg(&self) -> Result<Tensor> {
        let x = if self.dtype() == DType::Bool { self.cast(DType::I32)? } else { self.clone() };
        Ok(x.map(|g, u| g.unary(Op::Neg, u)))
    }

    /// Absolute value. The smallest signed integer wraps to itself; unsigned integers and bools are unchanged.
    pub fn abs(&self) -> Result<Tensor> {
        match self.dtype() {
            dt if dt.is_unsigned() || dt == DType::Bool => Ok(self.clone()),
            // code generation recognises `max(x, -x)` of f32 and f64 as one instruction
            dt @ (DType::F16 | DType::BF16) => self.cast(DType::F32)?.abs()?.cast(dt),
            _ => self.maximum(self.neg()?),
        }
    }

    /// Sign: -1, 0 or 1 in the tensor's dtype; NaN stays NaN.
    pub fn sign(&self) -> Result<Tensor> {
        let one = self.ones_like()?;
        match self.dtype() {
            DType::Bool => Ok(self.clone()),
            dt if dt.is_unsigned() => self.minimum(1),
            _ => self.gt(0)?.select(&one, self.lt(0)?.select(one.neg()?, self)?),
        }
    }

    /// Rounds toward zero; integers are unchanged.
    pub fn trunc(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.float_unary(Op::Trunc) } else { Ok(self.clone()) }
    }

    /// Rounds toward minus infinity; integers are unchanged.
    pub fn floor(&self) -> Result<Tensor> {
        let t = self.trunc()?;
        if self.dtype().is_float() { self.lt(&t)?.select(t.sub(1)?, &t) } else { Ok(t) }
    }

    /// Rounds toward plus infinity; integers are unchanged.
    pub fn ceil(&self) -> Result<Tensor> {
        let t = self.trunc()?;
        if self.dtype().is_float() { self.gt(&t)?.select(t.add(1)?, &t) } else { Ok(t) }
    }

    /// Rounds to the nearest whole number, halves to the even one; integers are unchanged.
    pub fn round(&self) -> Result<Tensor> {
        let t = self.trunc()?;
        if !self.dtype().is_float() {
            return Ok(t);
        }
        // x - trunc(x) is exact; NaN and infinities fail both comparisons and stay as they are
        let away = self.sub(&t)?.abs()?;
        let half = t.mul(0.5)?;
        let odd = half.ne(half.trunc()?)?;
        let up = away.gt(0.5)?.logical_or(away.eq(0.5)?.logical_and(odd)?)?;
        up.select(t.add(self.sign()?)?, &t)
    }

    /// The fractional part, with the sign of `self`.
    pub fn frac(&self) -> Result<Tensor> {
        self.sub(self.trunc()?)
    }

    // ---- tests

    /// Bool: true for NaN.
    pub fn isnan(&self) -> Result<Tensor> {
        self.ne(self)
    }

    /// Bool: true for plus or minus infinity.
    pub fn isinf(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::full(self.session(), false, DType::Bool, &self.shape());
        }
        self.abs()?.eq(f64::INFINITY)
    }

    /// Bool: true for numbers that are neither NaN nor infinite.
    pub fn isfinite(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Tensor::full(self.session(), true, DType::Bool, &self.shape());
        }
        self.abs()?.lt(f64::INFINITY)
    }

    // ---- powers and exponentials

    /// `self * self`.
    pub fn square(&self) -> Result<Tensor> {
        self.mul(self)
    }

    /// Square root; NaN below zero.
    pub fn sqrt(&self) -> Result<Tensor> {
        self.float_unary(Op::Sqrt)
    }

    /// `1 / self`.
    pub fn reciprocal(&self) -> Result<Tensor> {
        self.float_unary(Op::Recip)
    }

    /// `1 / sqrt(self)`.
    pub fn rsqrt(&self) -> Result<Tensor> {
        self.sqrt()?.reciprocal()
    }

    /// `2^self`.
    pub fn exp2(&self) -> Result<Tensor> {
        self.float_unary(Op::Exp2)
    }

    /// `e^self`. The graph has `2^(self * log2 e)`; back ends recognise this form and compute an exponential that does
    /// not round the product.
    pub fn exp(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.mul(LOG2_E)?.exp2())
    }

    /// `e^self - 1`, accurate near zero.
    pub fn expm1(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let z = x.clamp(-0.5, 0.5)?;
            x.abs()?.lt(0.5)?.select(z.mul(z.polynomial(&EXPM1)?)?, x.exp()?.sub(1)?)
        })
    }

    /// Base-2 logarithm; NaN below zero, -inf at zero.
    pub fn log2(&self) -> Result<Tensor> {
        self.float_unary(Op::Log2)
    }

    /// Natural logarithm; NaN below zero, -inf at zero.
    pub fn log(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.log2()?.mul(LN_2))
    }

    /// Base-10 logarithm; NaN below zero, -inf at zero.
    pub fn log10(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.log2()?.mul(LOG10_2))
    }

    /// `ln(1 + self)`, accurate near zero.
    pub fn log1p(&self) -> Result<Tensor> {
        self.in_f32(&Tensor::log1p_wide)
    }

    /// `ln(1 + self)` for elements in [0, 1].
    pub(super) fn log1p_of_unit(&self) -> Result<Tensor> {
        if self.dtype() == DType::F64 {
            return self.log1p();
        }
        let z = self.div(self.add(2)?)?;
        z.mul(z.square()?.polynomial(&TWO_ATANH)?)
    }

    fn log1p_wide(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        if x.dtype() == DType::F64 {
            let u = x.add(1)?;
            // log(u) * x / (u - 1) undoes the rounding of u = 1 + x; where x vanishes in u, or is very large, that is
            // not needed
            let d = u.sub(1)?;
            let plain = d.eq(0)?;
            let fixed = u.log()?.mul(x.div(plain.select(1, d)?)?)?;
            return plain.select(&x, x.lt(1e8)?.select(fixed, u.log()?)?);
        }
        // a shader compiler may simplify (1 + x) - 1 to x, so near 0 the function is 2 atanh(x / (2 + x)) instead; each
        // branch gets only arguments that belong to it
        let near = x.abs()?.lt(0.5)?;
        let small = near.select(&x, 0)?;
        let z = small.div(small.add(2)?)?;
        let series = z.mul(z.square()?.polynomial(&TWO_ATANH)?)?;
        near.select(series, near.select(0, &x)?.add(1)?.log()?)
    }

    // ---- circular functions

    /// Sine of an angle in radians, for every finite number: error below 2 ulp in f32, 1e-15 in f64.
    pub fn sin(&self) -> Result<Tensor> {
        self.float_unary(Op::Sin)
    }

    /// Cosine of an angle in radians, with the accuracy of [`Tensor::sin`].
    pub fn cos(&self) -> Result<Tensor> {
        self.float_unary(Op::Cos)
    }

    /// Tangent of an angle in radians, with the accuracy of [`Tensor::sin`].
    pub fn tan(&self) -> Result<Tensor> {
        self.float_unary(Op::Tan)
    }

    /// Arc sine, in [-pi/2, pi/2]; NaN outside [-1, 1].
    pub fn asin(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let (small, far, inside) = x.asin_parts()?;
            let far = Tensor::full(x.session(), FRAC_PI_2, far.dtype(), &[])?.sub(far)?;
            inside.select(small, x.lt(0)?.select(far.neg()?, far)?)
        })
    }

    /// Arc cosine, in [0, pi]; NaN outside [-1, 1].
    pub fn acos(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let (small, far, inside) = x.asin_parts()?;
            let constant = |c: f64| Tensor::full(x.session(), c, far.dtype(), &[]);
            let negative = constant(PI)?.sub(&far)?;
            inside.select(constant(FRAC_PI_2)?.sub(small)?, x.lt(0)?.select(negative, &far)?)
        })
    }

    /// `(asin(x), acos(|x|), |x| <= 1/2)`: the first value is valid where the condition holds, the second where it does
    /// not.
    fn asin_parts(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let x = self.to_float()?;
        let series = |x: &Tensor, t: &Tensor| x.mul(t.polynomial(&ASIN)?);
        let inside = x.abs()?.le(0.5)?;
        let z = x.clamp(-0.5, 0.5)?;
        let small = series(&z, &z.square()?)?;
        // acos(x) = 2 asin(sqrt((1-x)/2)); where this is not selected, the root's argument is 1/4, so that its slope
        // stays finite
        let t = inside.select(0.25, x.abs()?.mul(-0.5)?.add(0.5)?)?;
        let far = series(&t.sqrt()?, &t)?.mul(2)?;
        Ok((small, far, inside))
    }

    /// Arc tangent, in [-pi/2, pi/2].
    pub fn atan(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let a = x.abs()?;
            // above tan(3pi/8): pi/2 - atan(1/a); above tan(pi/8): pi/4 + atan((a-1)/(a+1))
            let (far, middle) = (a.gt(2.414213562373095)?, a.gt(0.4142135623730951)?);
            let inverse = a.maximum(2.0)?.reciprocal()?.neg()?;
            let b = a.minimum(4.0)?;
            let between = b.sub(1)?.div(b.add(1)?)?;
            let t = far.select(inverse, middle.select(between, a.minimum(0.5)?)?)?;
            let base = far.select(x.full_like(FRAC_PI_2)?, middle.select(x.full_like(FRAC_PI_2 / 2.0)?, 0)?)?;
            let r = base.add(t.mul(t.square()?.polynomial(&ATAN)?)?)?;
            let signed = x.lt(0)?.select(r.neg()?, r)?;
            // NaN is returned as it is; |x| has no slope at zero, but the function has that of x
            x.isnan()?.logical_or(x.eq(0)?)?.select(x, signed)
        })
    }

    // ---- hyperbolic functions

    /// Hyperbolic sine.
    pub fn sinh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let z = x.clamp(-1, 1)?;
            let small = z.mul(z.square()?.polynomial(&SINH)?)?;
            let (up, down) = x.half_exps()?;
            let large = up.sub(down)?;
            x.abs()?.lt(1)?.select(small, large)
        })
    }

    /// Hyperbolic cosine.
    pub fn cosh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let (up, down) = x.half_exps()?;
            up.add(down)
        })
    }

    /// `e^self / 2` and `e^-self / 2`, each as half the square of `e^(self/2)`: `e^self` may overflow where half of it
    /// does not.
    fn half_exps(&self) -> Result<(Tensor, Tensor)> {
        let half = |x: &Tensor| {
            let e = x.exp()?;
            e.mul(0.5)?.mul(&e)
        };
        let x = self.mul(0.5)?;
        Ok((half(&x)?, half(&x.neg()?)?))
    }

    /// Hyperbolic tangent.
    pub fn tanh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            if x.dtype() == DType::F64 {
                let z = x.clamp(-0.02, 0.02)?;
                let series = z.mul(z.square()?.polynomial(&TANH_SERIES)?)?;
                return x.abs()?.lt(0.02)?.select(series, x.mul(2)?.sigmoid()?.mul(2)?.sub(1)?);
            }
            let z = x.clamp(-9.01, 9.01)?;
            let q = z.square()?;
            // rounding may give a quotient above 1
            z.mul(q.polynomial(&TANH[0])?)?.div(q.polynomial(&TANH[1])?)?.clamp(-1, 1)
        })
    }

    /// Inverse hyperbolic sine.
    pub fn asinh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let a = x.abs()?;
            // log1p(a + a^2/(1 + sqrt(1 + a^2))); from 1e4 on sqrt(1 + a^2) equals a
            let z = a.minimum(1e4)?;
            let q = z.square()?;
            let near = z.add(q.div(q.add(1)?.sqrt()?.add(1)?)?)?.log1p()?;
            let r = a.lt(1e4)?.select(near, a.maximum(1)?.log()?.add(LN_2)?)?;
            let signed = x.lt(0)?.select(r.neg()?, r)?;
            x.eq(0)?.select(x, signed)
        })
    }

    /// Inverse hyperbolic cosine; NaN below 1.
    pub fn acosh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let z = x.minimum(1e4)?;
            let t = z.sub(1)?;
            // ln(x + sqrt(x^2-1)) = log1p(t + sqrt(t (t+2)))
            let near = t.add(t.mul(t.add(2)?)?.sqrt()?)?.log1p()?;
            x.lt(1)?.select(f64::NAN, x.gt(1e4)?.select(x.maximum(1)?.log()?.add(LN_2)?, near)?)
        })
    }

    /// Inverse hyperbolic tangent; NaN outside [-1, 1].
    pub fn atanh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let a = x.abs()?;
            let r = a.mul(2)?.div(a.neg()?.add(1)?)?.log1p()?.mul(0.5)?;
            let signed = x.lt(0)?.select(r.neg()?, r)?;
            // |x| has no slope at zero, but the function has that of x
            x.eq(0)?.select(x, signed)
        })
    }

    // ---- others

    /// The error function; the absolute error is below 1e-7 in f32.
    pub fn erf(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let a = x.abs()?;
            let z = x.clamp(-1, 1)?;
            let small = z.mul(z.square()?.polynomial(&ERF_SMALL)?)?;
            let tail = a.clamp(1, 4.1)?.polynomial(&LN_ERFC)?.exp()?;
            let tail = a.ge(4.1)?.select(0, tail)?;
            let large = Tensor::full(x.session(), 1, x.dtype(), &[])?.sub(tail)?;
            let large = x.lt(0)?.select(large.neg()?, large)?;
            // a NaN fails the comparison, and `small` passes it on
            a.ge(1)?.select(large, small)
        })
    }

    /// The magnitude of `self` with the sign of `sign`; negative zero counts as negative. `Error::DType` for unsigned
    /// integers.
    pub fn copysign(&self, sign: &Tensor) -> Result<Tensor> {
        let a = self.abs()?;
        if self.dtype().is_unsigned() {
            return Err(Error::DType { op: "copysign", dtype: self.dtype(), why: "it has no sign".into() });
        }
        sign.signbit()?.select(a.neg()?, a)
    }

    /// `ln(e^self + e^rhs)`, without overflow.
    pub fn logaddexp(&self, rhs: &Tensor) -> Result<Tensor> {
        self.in_f32_with(rhs, &|x, y| {
            let m = x.maximum(y)?;
            let tail = x.sub(y)?.abs()?.neg()?.exp()?.log1p_of_unit()?;
            // of equal infinities the difference is NaN, but the result is that infinity
            x.eq(y)?.select(m.add(LN_2)?, m.add(tail)?)
        })
    }
}
