//! Activation functions, all elementwise. Definitions and default constants are those of torch and ONNX.

use super::Tensor;
use crate::Result;

/// Coefficients of the normal distribution's tail `erfc(a / sqrt 2) / 2`, which is `e^(-a^2 / 2) * t * polynomial(t)`
/// with `t = 1 / (1 + 0.35 a)`; the relative error is 3.2e-8 for every a >= 0.
const NORMAL_TAIL: [f64; 9] = [
    0.139621302485466,
    0.1398635357618332,
    0.11982118338346481,
    0.10555292665958405,
    -0.023213393986225128,
    0.15932124853134155,
    -0.25584039092063904,
    0.1440316140651703,
    -0.029158029705286026,
];

impl Tensor {
    /// `max(x, 0)`; the gradient at 0 is 0.
    pub fn relu(&self) -> Result<Tensor> {
        self.maximum(0)
    }

    /// `min(max(x, 0), 6)`.
    pub fn relu6(&self) -> Result<Tensor> {
        self.clamp(0, 6)
    }

    /// `x` if positive, else `slope * x`.
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        self.in_f32(&|x| x.prelu(&Tensor::full(x.session(), slope, x.dtype(), &[])?))
    }

    /// `x` if positive, else `slope * x` with a tensor of slopes that broadcasts.
    pub fn prelu(&self, slope: &Tensor) -> Result<Tensor> {
        self.gt(0)?.select(self, self.mul(slope)?)
    }

    /// `x` if positive, else `alpha * (e^x - 1)`.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.in_f32(&|x| x.gt(0)?.select(x, x.minimum(0)?.expm1()?.mul(alpha)?))
    }

    /// `scale * elu(x, alpha)` with the constants that make a network self-normalising (Klambauer et al. 2017).
    pub fn selu(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.elu(1.6732632423543772)?.mul(1.0507009873554805))
    }

    /// Continuously differentiable elu: `max(0, x) + min(0, alpha * (e^(x/alpha) - 1))`.
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        self.in_f32(&|x| x.gt(0)?.select(x, x.minimum(0)?.div(alpha)?.expm1()?.mul(alpha)?))
    }

    /// `(x < 0, e^-|x|)`, from which functions with exponentials on both sides are computed without overflow. The
    /// absolute value is written as a selection, so that the slope at 0 is that of the right side.
    fn exp_neg_abs(&self) -> Result<(Tensor, Tensor)> {
        let negative = self.lt(0)?;
        let e = negative.select(self, self.neg()?)?.exp()?;
        Ok((negative, e))
    }

    /// `1 / (1 + e^-x)`, computed as `e^x / (1 + e^x)` below zero: no intermediate value is infinite, so the gradient
    /// is not NaN either.
    pub fn sigmoid(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let (negative, e) = x.exp_neg_abs()?;
            negative.select(&e, 1)?.div(e.add(1)?)
        })
    }

    /// `ln(sigmoid(x))`, without overflow.
    pub fn log_sigmoid(&self) -> Result<Tensor> {
        self.neg()?.softplus(1.0)?.neg()
    }

    /// `x * sigmoid(x)`, also called swish.
    pub fn silu(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.mul(x.sigmoid()?))
    }

    /// `x * tanh(softplus(x))`, computed with a single exponential: `tanh(ln y) = (y^2 - 1) / (y^2 + 1)`.
    pub fn mish(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let (negative, e) = x.exp_neg_abs()?;
            let (below, above) = (e.add(2)?.mul(&e)?, e.mul(2)?.add(1)?);
            let rest = negative.select(2, e.square()?.mul(2)?)?;
            let num = negative.select(below, above)?;
            x.mul(num.div(num.add(rest)?)?)
        })
    }

    /// `ln(1 + e^(beta x)) / beta`, without overflow.
    pub fn softplus(&self, beta: f64) -> Result<Tensor> {
        self.in_f32(&|x| {
            let x = x.mul(beta)?;
            let (negative, e) = x.exp_neg_abs()?;
            negative.select(0, &x)?.add(e.log1p_of_unit()?)?.mul(1.0 / beta)
        })
    }

    /// `x / (1 + |x|)`.
    pub fn softsign(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.div(x.abs()?.add(1)?))
    }

    /// `clamp(alpha * x + beta, 0, 1)`; torch uses alpha 1/6 and beta 0.5, ONNX's default for alpha is 0.2.
    pub fn hard_sigmoid(&self, alpha: f64, beta: f64) -> Result<Tensor> {
        self.in_f32(&|x| x.mul(alpha)?.add(beta)?.clamp(0, 1))
    }

    /// `x * clamp(x/6 + 0.5, 0, 1)`.
    pub fn hard_swish(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.mul(x.hard_sigmoid(1.0 / 6.0, 0.5)?))
    }

    /// `clamp(x, min, max)`.
    pub fn hard_tanh(&self, min: f64, max: f64) -> Result<Tensor> {
        self.clamp(min, max)
    }

    /// `x/2 * (1 + erf(x / sqrt 2))`, computed from the tail of the normal distribution, so that the error is a few ulp
    /// even for large negative numbers.
    pub fn gelu(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let negative = x.lt(0)?;
            let a = negative.select(x.neg()?, x)?;
            let t = a.mul(0.35)?.add(1)?.reciprocal()?;
            let e = x.square()?.mul(-0.5)?.exp()?;
            let tail = e.mul(&t)?.mul(t.polynomial(&NORMAL_TAIL)?)?;
            x.mul(negative.select(&tail, tail.neg()?.add(1)?)?)
        })
    }

    /// The tanh approximation of gelu: `x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))`.
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        self.in_f32(&|x| {
            let inner = x.square()?.mul(0.044715)?.add(1)?.mul(x)?.mul(1.5957691216057308)?;
            x.mul(inner.sigmoid()?)
        })
    }

    /// `x * sigmoid(1.702 x)`.
    pub fn quick_gelu(&self) -> Result<Tensor> {
        self.in_f32(&|x| x.mul(x.mul(1.702)?.sigmoid()?))
    }
}
