//! Trainable models for JavaScript. Belongs to the module part for training.

use crate::args::{host_input, id_of, name_of};
use crate::runtime::{Inner, Runtime, throw};
use gradloom_core::Result;
use gradloom_core::engine::Bytes;
use gradloom_core::io::onnx::{Feed, Lora, Network, Train};
use gradloom_core::tensor::Tensor;
use js_sys::{Array, Uint8Array};
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// A model with trainable weights or adapters.
#[wasm_bindgen]
pub struct Trained {
    inner: Rc<Inner>,
    network: Network,
}

#[wasm_bindgen]
impl Runtime {
    /// Makes a loaded model trainable: the weights that match `patterns`, or all if there are none; with a rank above 0
    /// low-rank adapters instead.
    pub fn train(
        &self,
        id: u32,
        patterns: Vec<String>,
        rank: usize,
        alpha: f64,
    ) -> std::result::Result<Trained, JsValue> {
        let runner = self.inner.runner(id).map_err(throw)?;
        let train = match (rank, patterns.is_empty()) {
            (0, true) => Train::All,
            (0, false) => Train::Named(patterns),
            _ => Train::Lora(Lora { rank, alpha, patterns }),
        };
        let network = Network::new(runner.borrow().model(), &self.inner.session, &train).map_err(throw)?;
        Ok(Trained { inner: self.inner.clone(), network })
    }
}

#[wasm_bindgen]
impl Trained {
    /// Every weight that can be trained, `[name, dtype, shape]` each.
    pub fn weights(&self) -> Array {
        let shape = |s: &[usize]| s.iter().map(|&n| JsValue::from(n as f64)).collect::<Array>();
        let list = self.network.model().weights();
        list.iter().map(|w| Array::of3(&(&w.name).into(), &w.dtype.name().into(), &shape(&w.shape))).collect()
    }

    /// The trained tensors, `[name, id]` each.
    pub fn parameters(&self) -> Array {
        self.named_ids(self.network.parameters())
    }

    /// The weights that training changed, adapters merged into them, `[name, id]` each.
    pub fn values(&self) -> std::result::Result<Array, JsValue> {
        Ok(self.named_ids(self.network.values().map_err(throw)?))
    }

    /// The outputs, `[name, id]` each, for inputs `[name, id]` or `[name, dtype, shape, data]`.
    pub fn forward(&self, inputs: Array) -> std::result::Result<Array, JsValue> {
        let (mut names, mut feeds) = (Vec::new(), Vec::new());
        for i in inputs.iter() {
            let i: &Array = i.unchecked_ref();
            names.push(name_of(i));
            feeds.push(self.feed(i).map_err(throw)?);
        }
        let list: Vec<(&str, Feed)> = names.iter().map(String::as_str).zip(feeds).collect();
        Ok(self.named_ids(self.network.forward(&list).map_err(throw)?))
    }

    /// The model's file with these values substituted, `[name, dtype, shape, data]` each.
    pub fn file(&self, values: Array) -> std::result::Result<Uint8Array, JsValue> {
        let values = values.iter().map(|v| host_input(v.unchecked_ref())).collect::<Result<Vec<_>>>().map_err(throw)?;
        Ok(Uint8Array::from(&*self.network.model().file_with(&values).map_err(throw)?))
    }
}

impl Trained {
    fn named_ids(&self, list: Vec<(String, Tensor)>) -> Array {
        list.into_iter().map(|(name, t)| Array::of2(&name.into(), &self.inner.add_tensor(t).into())).collect()
    }

    /// Converts an input. Host values of inputs that determine shapes become constants of the graph; all other inputs
    /// may change from run to run.
    fn feed(&self, i: &Array) -> Result<Feed> {
        if let Some(id) = id_of(i) {
            return Ok(Feed::Tensor(self.inner.tensor(id)?));
        }
        let (name, t) = host_input(i)?;
        if self.network.model().input(&name).is_some_and(|p| p.is_value) {
            return Ok(Feed::Known(t));
        }
        Tensor::from_bytes(&self.inner.session, t.dtype, &t.shape, Bytes::new(t.data)).map(Feed::Tensor)
    }
}
