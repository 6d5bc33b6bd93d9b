//! A file on its way into the module, some megabytes at a time: the page would wait while all of a large one is copied.

use crate::face::throw;
use gradloom_core::Error;
use std::sync::Arc;
use wasm_bindgen::prelude::*;

/// The bytes of a file, as far as they have come.
#[wasm_bindgen]
pub struct Parts {
    pub(crate) bytes: Arc<Vec<u8>>,
}

#[wasm_bindgen]
impl Parts {
    /// Memory for a file of so many bytes.
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: f64) -> Result<Parts, JsValue> {
        let mut list = Vec::new();
        let full = |_| throw(Error::OutOfMemory { device: "host".into(), bytes: bytes as u64 });
        list.try_reserve_exact(bytes as usize).map_err(full)?;
        Ok(Parts { bytes: list.into() })
    }

    /// The next of them, before anybody reads it.
    pub fn push(&mut self, part: &[u8]) {
        if let Some(bytes) = Arc::get_mut(&mut self.bytes) {
            bytes.extend_from_slice(part);
        }
    }
}
