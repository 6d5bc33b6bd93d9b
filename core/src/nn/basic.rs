//! Linear and bilinear maps, PReLU, kinds of dropout, and sequences of layers.

use super::{Layer, Mode, Module, Role, bias_init, each, join};
use crate::tensor::{Session, Tensor};
use crate::util::decimal::Shown;
use crate::{DType, Error, Result};

/// A linear map: `x W^T + b`.
pub struct Linear {
    /// Weights `[out, in]`.
    pub weight: Tensor,
    /// Bias `[out]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A map from `inputs` to `outputs` features, with torch's initial distribution: uniform within `1/sqrt(in)` of 0.
    pub fn new(session: &Session, inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = Tensor::kaiming_uniform(session, 5f64.sqrt(), &[outputs, inputs])?.to_storage()?;
        Ok(Linear { weight, bias: Some(bias_init(session, inputs, &[outputs])?) })
    }

    /// This layer without a bias.
    pub fn without_bias(mut self) -> Linear {
        self.bias = None;
        self
    }

    /// Applies the map: `[.., in] -> [.., out]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

impl Module for Linear {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight)), ("bias", self.bias.as_ref())]);
    }
}

impl Layer for Linear {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

/// Dropout: in training, zeroes elements with probability `p` and multiplies the others by `1/(1-p)`.
pub struct Dropout {
    /// Probability in `[0, 1)`.
    pub p: f64,
}

impl Module for Dropout {
    fn visit(&self, _: &str, _: &mut dyn FnMut(&str, Role, &Tensor)) {}
}

impl Layer for Dropout {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if mode == Mode::Train { x.dropout(self.p) } else { Ok(x.clone()) }
    }
}

/// Dropout of whole channels of `[batch, channels, ..]` with probability `p` in training: torch's `Dropout1d`, `2d` and
/// `3d`.
pub struct ChannelDropout {
    /// Probability in `[0, 1)`.
    pub p: f64,
}

impl Module for ChannelDropout {
    fn visit(&self, _: &str, _: &mut dyn FnMut(&str, Role, &Tensor)) {}
}

impl Layer for ChannelDropout {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if mode == Mode::Eval {
            return Ok(x.clone());
        }
        let mut shape = x.shape();
        shape.iter_mut().skip(2).for_each(|n| *n = 1);
        let keep = Tensor::ones(x.session(), x.want_float("dropout")?, &shape)?.dropout(self.p)?;
        x.mul(keep)
    }
}

/// Alpha dropout, which keeps the mean and the variance, for networks with SELU (Klambauer et al. 2017).
pub struct AlphaDropout {
    /// Probability in `[0, 1)`.
    pub p: f64,
}

impl Module for AlphaDropout {
    fn visit(&self, _: &str, _: &mut dyn FnMut(&str, Role, &Tensor)) {}
}

impl Layer for AlphaDropout {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        if !(0.0..1.0).contains(&self.p) {
            return Err(Error::value("dropout", format!("probability {} is not in [0, 1)", Shown(self.p))));
        }
        if mode == Mode::Eval || self.p == 0.0 {
            return Ok(x.clone());
        }
        // the value of a dropped element: the limit of SELU at minus infinity
        let low = -1.0507009873554805 * 1.6732632423543772;
        let a = 1.0 / ((1.0 - self.p) * (1.0 + self.p * low * low)).sqrt();
        let kept = Tensor::bernoulli(x.session(), 1.0 - self.p, &x.shape())?;
        kept.select(x, low)?.mul(a)?.sub(a * low * self.p)
    }
}

/// `max(x, 0) + w min(x, 0)` with a learned slope `w`, one for all channels or one for each.
pub struct PRelu {
    /// Slopes, `[1]` or `[channels]`.
    pub weight: Tensor,
}

impl PRelu {
    /// `count` slopes (1, or the number of channels), initially 1/4.
    pub fn new(session: &Session, count: usize) -> Result<PRelu> {
        Ok(PRelu { weight: Tensor::full(session, 0.25, DType::F32, &[count])?.to_storage()? })
    }

    /// Applies it; the shape stays, and channels are axis 1.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let channels = self.weight.numel();
        let slope = match x.rank() {
            0 | 1 => self.weight.clone(),
            rank if channels > 1 => {
                let mut shape = vec![1i64; rank];
                shape[1] = channels as i64;
                self.weight.reshape(&shape)?
            }
            _ => self.weight.clone(),
        };
        x.prelu(&slope)
    }
}

impl Module for PRelu {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight))]);
    }
}

impl Layer for PRelu {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

/// A bilinear map: `x^T W_k y + b_k` for each output k.
pub struct Bilinear {
    /// Weights `[out, left, right]`.
    pub weight: Tensor,
    /// Bias `[out]`.
    pub bias: Option<Tensor>,
}

impl Bilinear {
    /// A map with torch's initial distribution: uniform within `1/sqrt(left)` of 0.
    pub fn new(session: &Session, left: usize, right: usize, outputs: usize) -> Result<Bilinear> {
        let weight = bias_init(session, left, &[outputs, left, right])?;
        Ok(Bilinear { weight, bias: Some(bias_init(session, left, &[outputs])?) })
    }

    /// Applies the map: `[.., left]` and `[.., right]` give `[.., out]`.
    pub fn forward(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        x.bilinear(y, &self.weight, self.bias.as_ref())
    }
}

impl Module for Bilinear {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight)), ("bias", self.bias.as_ref())]);
    }
}

/// Layers that are applied in order. A layer's tensors are named by its position; functions without parameters count as
/// positions too.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Item>,
}

enum Item {
    Layer(Box<dyn Layer + Send + Sync>),
    Function(Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>),
}

impl Sequential {
    /// A sequence without layers.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer.
    pub fn layer(mut self, layer: impl Layer + Send + Sync + 'static) -> Sequential {
        self.layers.push(Item::Layer(Box::new(layer)));
        self
    }

    /// Appends a function: `.function(Tensor::relu)`, `.function(|x| x.max_pool(&PoolOpts::new(&[2, 2])))`.
    pub fn function(mut self, f: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static) -> Sequential {
        self.layers.push(Item::Function(Box::new(f)));
        self
    }
}

impl Module for Sequential {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        for (i, item) in self.layers.iter().enumerate() {
            if let Item::Layer(layer) = item {
                layer.visit(&join(prefix, &i.to_string()), f);
            }
        }
    }
}

impl Layer for Sequential {
    fn apply(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, item| match item {
            Item::Layer(layer) => layer.apply(&x, mode),
            Item::Function(f) => f(&x),
        })
    }
}
