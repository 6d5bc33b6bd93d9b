//! Files that few pages read or write, by way of those that the main module reads and writes itself: weights as safetensors,
//! models as ONNX; and files of image data sets.

use crate::throw;
use gradloom_core::engine::Bytes;
use gradloom_core::io::gguf::{self, Entry, Gguf};
use gradloom_core::io::images::{self, Cifar};
use gradloom_core::io::tflite;
use gradloom_core::io::torch::Torch;
use gradloom_core::io::weights::{self, Format};
use gradloom_core::io::{HostTensor, npy, npz, safetensors};
use gradloom_core::tensor::{Session, wire};
use gradloom_core::{Error, Result};
use wasm_bindgen::prelude::*;

/// The tensors of a file of torch.save or of an npz, as a safetensors file.
#[wasm_bindgen(js_name = toSafetensors)]
pub fn to_safetensors(file: &[u8]) -> std::result::Result<Vec<u8>, JsValue> {
    let convert = || -> Result<Vec<u8>> {
        let list: Vec<(String, HostTensor)> = match Format::of(file)? {
            Format::Npz => npz::read(file)?,
            Format::Torch => {
                let index = Torch::parse(file)?;
                index.entries.iter().map(|e| Ok((e.name.clone(), index.to_host(file, e)?))).collect::<Result<_>>()?
            }
            Format::SafeTensors | Format::Gguf => {
                return Err(Error::value("weights", "the main module reads this file"));
            }
        };
        write(Format::SafeTensors, &list)
    };
    convert().map_err(throw)
}

/// The index of a GGUF file. Its tensors are computed of blocks, in graphs that are made here and go to the main module as bytes.
#[wasm_bindgen]
pub struct GgufIndex(Gguf);

#[wasm_bindgen]
impl GgufIndex {
    /// Of the first bytes of a file of `len`. An error may mean that they are too few: nothing tells in advance how many it takes.
    #[wasm_bindgen(constructor)]
    pub fn new(start: &[u8], len: f64) -> std::result::Result<GgufIndex, JsValue> {
        Gguf::parse_header(start, len as u64).map(GgufIndex).map_err(throw)
    }

    /// Each tensor's `[name, start, end]`: where its bytes lie in the file.
    pub fn entries(&self) -> js_sys::Array {
        let at = |n: u64| JsValue::from_f64(n as f64);
        let one = |e: &Entry| js_sys::Array::of3(&(&e.name).into(), &at(e.range.start), &at(e.range.end));
        self.0.entries.iter().map(one).collect()
    }

    /// What computes the tensor of that number of its bytes. `draws` is how far the main module's random stream is.
    pub fn graph(&self, number: usize, bytes: &[u8], draws: u32) -> std::result::Result<Vec<u8>, JsValue> {
        let run = || -> Result<Vec<u8>> {
            let missing = || Error::value("weights", "there is no such tensor");
            let entry = self.0.entries.get(number).ok_or_else(missing)?;
            if entry.range.end - entry.range.start != bytes.len() as u64 {
                return Err(Error::value("weights", "these are not all bytes of the tensor"));
            }
            let session = Session::new();
            session.state().draws = draws;
            let tensor = gguf::tensor_of(&session, entry, &Bytes::new(bytes.to_vec()))?;
            wire::write(&session, &[tensor], &[])
        };
        run().map_err(throw)
    }
}

/// A model of TensorFlow Lite as an ONNX file.
#[wasm_bindgen(js_name = tfliteToOnnx)]
pub fn tflite_to_onnx(file: &[u8]) -> std::result::Result<Vec<u8>, JsValue> {
    tflite::to_onnx(file).map_err(throw)
}

/// The tensors of a safetensors file, as a file of another format.
#[wasm_bindgen(js_name = fromSafetensors)]
pub fn from_safetensors(file: &[u8], format: &str) -> std::result::Result<Vec<u8>, JsValue> {
    let convert = || -> Result<Vec<u8>> {
        let unknown = || Error::value("saveWeights", format!("there is no format `{format}`"));
        let format = Format::of_name(&format!(".{format}")).ok_or_else(unknown)?;
        let index = safetensors::SafeTensors::parse(file)?;
        let mut list = Vec::with_capacity(index.entries.len());
        for e in &index.entries {
            list.push((e.name.clone(), e.to_host(file)?));
        }
        write(format, &list)
    };
    convert().map_err(throw)
}

/// An IDX file (MNIST and its kin, gzipped or not): dtype, sizes and little-endian bytes.
#[wasm_bindgen]
pub fn idx(file: &[u8]) -> std::result::Result<js_sys::Array, JsValue> {
    images::idx(file).map(|t| parts(&t)).map_err(throw)
}

/// An npy file, as [`idx`] gives it.
#[wasm_bindgen]
pub fn npy(file: &[u8]) -> std::result::Result<js_sys::Array, JsValue> {
    npy::read(file).map(|t| parts(&t)).map_err(throw)
}

/// A binary file of CIFAR-10 or CIFAR-100: images and classes, each as [`idx`] gives them.
#[wasm_bindgen]
pub fn cifar(file: &[u8], classes: u32) -> std::result::Result<js_sys::Array, JsValue> {
    let set = if classes == 10 { Cifar::Ten } else { Cifar::Hundred };
    let both = images::cifar(file, set).map_err(throw)?;
    Ok(js_sys::Array::of2(&parts(&both.images), &parts(&both.labels)))
}

fn parts(t: &HostTensor) -> js_sys::Array {
    let shape: js_sys::Array = t.shape.iter().map(|&n| JsValue::from_f64(n as f64)).collect();
    js_sys::Array::of3(&t.dtype.name().into(), &shape, &js_sys::Uint8Array::from(t.data.as_slice()))
}

fn write(format: Format, list: &[(String, HostTensor)]) -> Result<Vec<u8>> {
    weights::write(format, &list.iter().map(|(n, t)| (n.as_str(), t)).collect::<Vec<_>>())
}
