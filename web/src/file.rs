//! Copies a file into the module in portions of some megabytes, so that a large one does not block the page. Portions
//! may come in any order, since parts of a file are read by several requests at once.

use crate::runtime::throw;
use gradloom_core::Error;
use std::sync::Arc;
use wasm_bindgen::prelude::*;

/// The bytes of a file that have been copied so far.
#[wasm_bindgen]
pub struct FileBuffer {
    pub(crate) bytes: Arc<Vec<u8>>,
}

#[wasm_bindgen]
impl FileBuffer {
    /// Reserves memory for a file of this many bytes.
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: f64) -> Result<FileBuffer, JsValue> {
        let mut list = Vec::new();
        let full = |_| throw(Error::OutOfMemory { device: "host".into(), bytes: bytes as u64 });
        list.try_reserve_exact(bytes as usize).map_err(full)?;
        Ok(FileBuffer { bytes: list.into() })
    }

    /// Writes the bytes from position `at` on; call this before the file is read.
    pub fn write(&mut self, at: f64, part: &[u8]) {
        let start = at as usize;
        let end = start + part.len();
        if let Some(bytes) = Arc::get_mut(&mut self.bytes).filter(|bytes| end <= bytes.capacity()) {
            // Only a portion that arrives before its predecessors leaves a gap to fill: zeroing the whole file at the
            // start would block the page.
            bytes.resize(end.max(bytes.len()), 0);
            bytes[start..end].copy_from_slice(part);
        }
    }
}
