//! Reads FlatBuffers as far as a fixed schema needs: tables, vectors and strings, with every offset checked. Spec:
//! <https://flatbuffers.dev/internals/>.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::error::{Error, Result};

/// A table: its fields are addressed by slot, their index in the schema.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    file: &'a [u8],
    at: usize,
    fields: &'a [u8],
}

/// A vector of `len` elements that begins at byte `at`.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    file: &'a [u8],
    at: usize,
    pub(super) len: usize,
}

fn bad(at: usize) -> Error {
    Error::format("tflite", "an offset lies outside the file", Some(at as u64))
}

fn array<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let end = at.checked_add(N).ok_or_else(|| bad(at))?;
    file.get(at..end).and_then(|b| b.try_into().ok()).ok_or_else(|| bad(at))
}

/// The position that the forward offset stored at `at` points to.
fn target(file: &[u8], at: usize) -> Result<usize> {
    at.checked_add(u32::from_le_bytes(array(file, at)?) as usize).filter(|&t| t < file.len()).ok_or_else(|| bad(at))
}

impl<'a> Table<'a> {
    /// The root table of a file.
    pub(super) fn root(file: &'a [u8]) -> Result<Table<'a>> {
        Table::at(file, target(file, 0)?)
    }

    fn at(file: &'a [u8], at: usize) -> Result<Table<'a>> {
        let back = i64::from(i32::from_le_bytes(array(file, at)?));
        let start = (at as i64).checked_sub(back).and_then(|v| usize::try_from(v).ok()).ok_or_else(|| bad(at))?;
        let len = usize::from(u16::from_le_bytes(array(file, start)?));
        let end = start.checked_add(len).ok_or_else(|| bad(start))?;
        Ok(Table { file, at, fields: file.get(start..end).ok_or_else(|| bad(start))? })
    }

    /// The position of a field; `None` if it is absent, so that it has its default.
    fn field(&self, slot: usize) -> Option<usize> {
        let at = slot.checked_mul(2)?.checked_add(4)?;
        let offset = usize::from(u16::from_le_bytes(array(self.fields, at).ok()?));
        if offset == 0 { None } else { self.at.checked_add(offset) }
    }

    fn number<const N: usize, T>(&self, slot: usize, default: T, read: fn([u8; N]) -> T) -> Result<T> {
        self.field(slot).map_or(Ok(default), |at| array(self.file, at).map(read))
    }

    pub(super) fn i8(&self, slot: usize) -> Result<i8> {
        self.number(slot, 0, i8::from_le_bytes)
    }

    pub(super) fn i32(&self, slot: usize, default: i32) -> Result<i32> {
        self.number(slot, default, i32::from_le_bytes)
    }

    pub(super) fn u64(&self, slot: usize) -> Result<u64> {
        self.number(slot, 0, u64::from_le_bytes)
    }

    pub(super) fn f32(&self, slot: usize) -> Result<f32> {
        self.number(slot, 0.0, f32::from_le_bytes)
    }

    pub(super) fn bool(&self, slot: usize) -> Result<bool> {
        self.i8(slot).map(|v| v != 0)
    }

    pub(super) fn table(&self, slot: usize) -> Result<Option<Table<'a>>> {
        self.field(slot).map(|at| Table::at(self.file, target(self.file, at)?)).transpose()
    }

    /// A vector whose elements have `size` bytes; an absent one is empty.
    pub(super) fn list(&self, slot: usize, size: usize) -> Result<List<'a>> {
        let Some(at) = self.field(slot) else { return Ok(List { file: self.file, at: 0, len: 0 }) };
        let at = target(self.file, at)?;
        let len = u32::from_le_bytes(array(self.file, at)?) as usize;
        let start = at.saturating_add(4);
        let end = len.checked_mul(size).and_then(|n| n.checked_add(start));
        end.filter(|&e| e <= self.file.len()).ok_or_else(|| bad(at))?;
        Ok(List { file: self.file, at: start, len })
    }

    pub(super) fn bytes(&self, slot: usize) -> Result<&'a [u8]> {
        let l = self.list(slot, 1)?;
        self.file.get(l.at..l.at.saturating_add(l.len)).ok_or_else(|| bad(l.at))
    }

    pub(super) fn text(&self, slot: usize) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(slot)?).map_err(|_| Error::format("tflite", "a name is not UTF-8", None))
    }

    pub(super) fn i32s(&self, slot: usize) -> Result<Vec<i32>> {
        let l = self.list(slot, 4)?;
        (0..l.len).map(|i| array(l.file, l.place(i, 4)).map(i32::from_le_bytes)).collect()
    }

    pub(super) fn i64s(&self, slot: usize) -> Result<Vec<i64>> {
        let l = self.list(slot, 8)?;
        (0..l.len).map(|i| array(l.file, l.place(i, 8)).map(i64::from_le_bytes)).collect()
    }
}

impl<'a> List<'a> {
    fn place(&self, i: usize, size: usize) -> usize {
        self.at.saturating_add(i.saturating_mul(size))
    }

    /// The table at an index of a vector of tables.
    pub(super) fn table(&self, i: usize) -> Result<Table<'a>> {
        if i >= self.len {
            return Err(Error::format("tflite", format!("index {i} is out of range for {}", self.len), None));
        }
        Table::at(self.file, target(self.file, self.place(i, 4))?)
    }
}
