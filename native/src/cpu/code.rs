//! Machine code of kernels in executable pages.

use super::pages::Pages;
use std::io::Error;

/// Machine code of one or more kernels.
pub(super) struct Code(Pages);

impl Code {
    /// Copies the parts into fresh pages; returns the offset of each.
    pub(super) fn new(parts: &[&[u8]]) -> Result<(Code, Vec<usize>), Error> {
        let mut entries = Vec::with_capacity(parts.len());
        let mut bytes = 0usize;
        for p in parts {
            entries.push(bytes);
            bytes = (bytes + p.len()).next_multiple_of(64);
        }
        let pages = Pages::filled(bytes, |to| {
            for (p, &at) in parts.iter().zip(&entries) {
                to[at..at + p.len()].copy_from_slice(p);
            }
        })?;
        Ok((Code(pages), entries))
    }

    /// The address of a byte of the code.
    pub(super) fn at(&self, offset: usize) -> *const u8 {
        self.0.at(offset)
    }
}
