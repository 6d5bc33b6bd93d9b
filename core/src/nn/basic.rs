//! Linear, embedding, dropout, and layers in a row.

use super::{Layer, Mode, Module, Role, bias_init, each, join};
use crate::Result;
use crate::tensor::{Session, Tensor};

/// `x W^T + b`.
pub struct Linear {
    /// `[out, in]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// With torch's initial distribution: uniform within `1/sqrt(in)`.
    pub fn new(session: &Session, inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = Tensor::kaiming_uniform(session, 5f64.sqrt(), &[outputs, inputs])?.to_storage()?;
        Ok(Linear { weight, bias: Some(bias_init(session, inputs, &[outputs])?) })
    }

    /// The same without a bias.
    pub fn without_bias(mut self) -> Linear {
        self.bias = None;
        self
    }

    /// `[.., in] -> [.., out]`.
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

/// A table of vectors, looked up by number.
pub struct Embedding {
    /// `[vocabulary, width]`.
    pub weight: Tensor,
}

impl Embedding {
    /// Normally distributed vectors.
    pub fn new(session: &Session, vocabulary: usize, width: usize) -> Result<Embedding> {
        Ok(Embedding { weight: Tensor::randn(session, &[vocabulary, width])?.to_storage()? })
    }

    /// Integers `[..] -> [.., width]`; out of range gives zeros.
    pub fn forward(&self, index: &Tensor) -> Result<Tensor> {
        self.weight.embedding(index)
    }
}

impl Module for Embedding {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(&str, Role, &Tensor)) {
        each(prefix, Role::Parameter, f, &[("weight", Some(&self.weight))]);
    }
}

impl Layer for Embedding {
    fn apply(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.forward(x)
    }
}

/// Zeroes elements with probability `p` in training.
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

/// Layers one after another, named by their position; functions without parameters count as positions too.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Item>,
}

enum Item {
    Layer(Box<dyn Layer + Send + Sync>),
    Function(fn(&Tensor) -> Result<Tensor>),
}

impl Sequential {
    /// No layers.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// One more layer.
    pub fn layer(mut self, layer: impl Layer + Send + Sync + 'static) -> Sequential {
        self.layers.push(Item::Layer(Box::new(layer)));
        self
    }

    /// One more function: `.function(Tensor::relu)`.
    pub fn function(mut self, f: fn(&Tensor) -> Result<Tensor>) -> Sequential {
        self.layers.push(Item::Function(f));
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
