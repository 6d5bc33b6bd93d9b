//! Strings, which no device has: a tensor of them is one of i32 codes, the places of the strings in a table of the model. Equal
//! strings have equal codes, so what moves or compares elements takes codes as any numbers; what looks into a string runs on
//! the host. The table only grows, by a string that was not there before.

use super::model::Model;
use super::tensor::TensorProto;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::util::sorted::SortedMap;
use std::sync::{Arc, Mutex, PoisonError};

/// ONNX's number of the element type.
pub(super) const STRING: i32 = 8;

/// Strings by code and codes by string. Code 0 is the empty string, as zeros stand for what is not there.
#[derive(Default)]
pub(super) struct Strings(Mutex<Table>);

#[derive(Default)]
struct Table {
    texts: Vec<Arc<str>>,
    codes: SortedMap<Arc<str>, i32>,
}

impl Strings {
    /// The code of a string.
    pub(super) fn code(&self, text: &str) -> Result<i32> {
        let mut t = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if text.is_empty() {
            return Ok(0);
        }
        if let Some(&code) = t.codes.get(text) {
            return Ok(code);
        }
        let full = |_| Error::value("strings", "a model's table of strings is full");
        let code = i32::try_from(t.texts.len() + 1).map_err(full)?;
        let text: Arc<str> = text.into();
        t.texts.push(text.clone());
        t.codes.insert(text, code);
        Ok(code)
    }

    fn text(&self, code: i64) -> Option<Arc<str>> {
        let t = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match usize::try_from(code).ok()?.checked_sub(1) {
            Some(i) => t.texts.get(i).cloned(),
            None => Some("".into()),
        }
    }

    /// The codes of strings of a file, as bytes.
    pub(super) fn encode(&self, t: &TensorProto, list: &[Vec<u8>]) -> Result<Vec<u8>> {
        let bad = |_| Error::format("onnx", format!("tensor `{}` has a string that is not UTF-8", t.name), None);
        let mut out = Vec::with_capacity(4 * list.len());
        for s in list {
            out.extend(self.code(std::str::from_utf8(s).map_err(bad)?)?.to_le_bytes());
        }
        Ok(out)
    }
}

impl Model {
    /// A tensor of strings, row-major, as this model is fed with it and gives it: i32 codes. See [`Model::texts`].
    ///
    /// # Errors
    /// `E_VALUE` unless there are as many strings as the shape has elements.
    pub fn strings(&self, shape: Vec<usize>, texts: &[impl AsRef<str>]) -> Result<HostTensor> {
        let mut data = Vec::with_capacity(4 * texts.len());
        for t in texts {
            data.extend(self.table().code(t.as_ref())?.to_le_bytes());
        }
        HostTensor::new(DType::I32, shape, data)
    }

    /// The strings of a tensor of codes, row-major.
    ///
    /// # Errors
    /// `E_VALUE` for a number that is no code of this model.
    pub fn texts(&self, codes: &HostTensor) -> Result<Vec<Arc<str>>> {
        let bad = |c: i64| Error::value("strings", format!("{c} is no string of this model"));
        codes.to_i64().into_iter().map(|c| self.table().text(c).ok_or_else(|| bad(c))).collect()
    }
}
