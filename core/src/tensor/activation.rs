//! Activation functions, elementwise. Definitions and default constants are those of torch and ONNX.

use super::Tensor;
use crate::{DType, Result};
use std::f64::consts::{FRAC_1_SQRT_2, LOG2_E};

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
        self.to_float()?.prelu(&Tensor::full(self.session(), slope, self.to_float()?.dtype(), &[])?)
    }

    /// `x` if positive, else `slope * x` with a slope tensor that broadcasts.
    pub fn prelu(&self, slope: &Tensor) -> Result<Tensor> {
        self.gt(0)?.select(self, self.mul(slope)?)
    }

    /// `x` if positive, else `alpha * (e^x - 1)`.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.gt(0)?.select(self, self.minimum(0)?.expm1()?.mul(alpha)?)
    }

    /// `scale * elu(x, alpha)` with the self-normalising constants.
    pub fn selu(&self) -> Result<Tensor> {
        self.elu(1.6732632423543772)?.mul(1.0507009873554805)
    }

    /// `max(0, x) + min(0, alpha * (e^(x/alpha) - 1))`.
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        self.gt(0)?.select(self, self.minimum(0)?.div(alpha)?.expm1()?.mul(alpha)?)
    }

    /// `1 / (1 + e^-x)`. The exponent is limited so that its gradient never sees an infinity.
    pub fn sigmoid(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let top = match x.dtype() {
            DType::F16 => 15.0,
            DType::F64 => 1020.0,
            _ => 126.0,
        };
        x.mul(-LOG2_E)?.minimum(top)?.exp2()?.add(1)?.reciprocal()
    }

    /// `ln(sigmoid(x))`, without overflow.
    pub fn log_sigmoid(&self) -> Result<Tensor> {
        self.neg()?.softplus(1.0)?.neg()
    }

    /// `x * sigmoid(x)`, also called swish.
    pub fn silu(&self) -> Result<Tensor> {
        self.mul(self.sigmoid()?)
    }

    /// `x * tanh(softplus(x))`.
    pub fn mish(&self) -> Result<Tensor> {
        self.mul(self.softplus(1.0)?.tanh()?)
    }

    /// `ln(1 + e^(beta x)) / beta`, without overflow.
    pub fn softplus(&self, beta: f64) -> Result<Tensor> {
        let x = self.to_float()?.mul(beta)?;
        // written with selections, so that the slope at 0 is 1/2
        let negative = x.lt(0)?;
        let tail = negative.select(&x, x.neg()?)?.exp()?.add(1)?.log()?;
        negative.select(0, &x)?.add(tail)?.mul(1.0 / beta)
    }

    /// `x / (1 + |x|)`.
    pub fn softsign(&self) -> Result<Tensor> {
        self.div(self.abs()?.add(1)?)
    }

    /// `clamp(alpha * x + beta, 0, 1)`; torch has alpha 1/6 and beta 0.5, ONNX alpha 0.2 by default.
    pub fn hard_sigmoid(&self, alpha: f64, beta: f64) -> Result<Tensor> {
        self.to_float()?.mul(alpha)?.add(beta)?.clamp(0, 1)
    }

    /// `x * clamp(x/6 + 0.5, 0, 1)`.
    pub fn hard_swish(&self) -> Result<Tensor> {
        self.mul(self.hard_sigmoid(1.0 / 6.0, 0.5)?)
    }

    /// `clamp(x, min, max)`.
    pub fn hard_tanh(&self, min: f64, max: f64) -> Result<Tensor> {
        self.clamp(min, max)
    }

    /// `x/2 * (1 + erf(x / sqrt 2))`.
    pub fn gelu(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        x.mul(0.5)?.mul(x.mul(FRAC_1_SQRT_2)?.erf()?.add(1)?)
    }

    /// The tanh approximation of gelu: `x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))`.
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        let inner = x.square()?.mul(0.044715)?.add(1)?.mul(&x)?.mul(1.5957691216057308)?;
        x.mul(inner.sigmoid()?)
    }

    /// `x * sigmoid(1.702 x)`.
    pub fn quick_gelu(&self) -> Result<Tensor> {
        let x = self.to_float()?;
        x.mul(x.mul(1.702)?.sigmoid()?)
    }
}
