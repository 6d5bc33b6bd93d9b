//! Strings, which no device supports: a tensor of strings is represented by i32 codes, indices into a table of the
//! model. Equal strings have equal codes, so operators that move or compare elements work on codes as on numbers;
//! operators that look into strings run on the host. The table only grows, when a new string appears.

use super::model::Model;
use super::tensor::TensorProto;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::util::sorted::SortedMap;
use std::sync::{Arc, Mutex, PoisonError};

/// ONNX's number of the string element type.
pub(super) const STRING: i32 = 8;

/// The table of strings and their codes. Code 0 is the empty string, so that zero padding means empty strings.
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

    /// The little-endian codes of a tensor's strings from a file.
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
    /// The tensor of i32 codes, row-major, by which this model is fed strings and returns them; [`Model::texts`] is the
    /// inverse.
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

    /// The strings of a tensor of codes, row-major; the inverse of [`Model::strings`].
    ///
    /// # Errors
    /// `E_VALUE` for a number that is no code of this model.
    pub fn texts(&self, codes: &HostTensor) -> Result<Vec<Arc<str>>> {
        let bad = |c: i64| Error::value("strings", format!("{c} is no string of this model"));
        codes.to_i64().into_iter().map(|c| self.table().text(c).ok_or_else(|| bad(c))).collect()
    }
}
