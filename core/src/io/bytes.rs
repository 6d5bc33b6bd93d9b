//! A bounds-checked little-endian cursor. All binary headers in `io` are read through it, so no loader indexes raw
//! bytes.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::error::{Error, Result};

/// Reads forward through a slice; every error carries the format's name and the offset.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    buf: &'a [u8],
    pos: usize,
    format: &'static str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(buf: &'a [u8], format: &'static str) -> Cursor<'a> {
        Cursor { buf, pos: 0, format }
    }

    /// A cursor at an absolute offset; an error if that lies outside the buffer.
    pub(crate) fn at(buf: &'a [u8], pos: u64, format: &'static str) -> Result<Cursor<'a>> {
        match usize::try_from(pos) {
            Ok(pos) if pos <= buf.len() => Ok(Cursor { buf, pos, format }),
            _ => Err(Error::format(format, "an offset lies outside the file", Some(pos))),
        }
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::format(self.format, what, Some(self.pos as u64))
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.pos.checked_add(n);
        let Some((end, part)) = end.and_then(|e| self.buf.get(self.pos..e).map(|p| (e, p))) else {
            let left = self.buf.len().saturating_sub(self.pos);
            return Err(self.error(format!("truncated: {n} bytes wanted, {left} left")));
        };
        self.pos = end;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut a = [0; N];
        a.copy_from_slice(self.take(N)?);
        Ok(a)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
