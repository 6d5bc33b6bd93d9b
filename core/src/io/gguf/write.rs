//! Writes GGUF, version 3. The same content gives the same bytes.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{ARRAY, Kind, NUMBERS, STRING, Value, distinct, err, is_alignment, size};
use crate::dtype::DType;
use crate::error::Result;

/// A tensor to write, its bytes as they are stored in the file.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Its name.
    pub name: &'a str,
    /// The element or block type of `bytes`.
    pub kind: Kind,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Elements or blocks.
    pub bytes: &'a [u8],
}

/// The bytes of a file with this metadata and these tensors.
pub fn write(metadata: &[(&str, Value)], tensors: &[Data<'_>]) -> Result<Vec<u8>> {
    distinct(metadata.iter().map(|m| m.0))?;
    distinct(tensors.iter().map(|t| t.name))?;
    let alignment = match metadata.iter().find(|m| m.0 == "general.alignment").map(|m| &m.1) {
        Some(Value::Scalar(DType::U32, s)) if is_alignment(s.as_i64() as u64) => s.as_i64() as usize,
        Some(v) => return Err(err(format!("an alignment of {v:?}"))),
        None => 32,
    };
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        text(&mut out, key);
        put(&mut out, value)?;
    }
    let mut offset = 0usize;
    for t in tensors {
        if size(t.kind, t.shape) != Some(t.bytes.len() as u64) {
            let (n, kind) = (t.bytes.len(), t.kind.name());
            return Err(err(format!("tensor `{}`: {n} bytes do not hold shape {:?} of {kind}", t.name, t.shape)));
        }
        text(&mut out, t.name);
        out.extend((t.shape.len() as u32).to_le_bytes());
        t.shape.iter().rev().for_each(|&d| out.extend((d as u64).to_le_bytes()));
        out.extend(t.kind.id().to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset = (offset + t.bytes.len()).next_multiple_of(alignment);
    }
    out.reserve(offset + alignment);
    for t in tensors {
        out.resize(out.len().next_multiple_of(alignment), 0);
        out.extend(t.bytes);
    }
    out.resize(out.len().next_multiple_of(alignment), 0);
    Ok(out)
}

fn text(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn number(dtype: DType) -> Result<u32> {
    let id = NUMBERS.iter().find(|n| n.1 == dtype).map(|n| n.0);
    id.ok_or_else(|| err(format!("metadata of {dtype} can not be written")))
}

fn put(out: &mut Vec<u8>, value: &Value) -> Result<()> {
    match value {
        Value::Scalar(dtype, s) => {
            out.extend(number(*dtype)?.to_le_bytes());
            let mut raw = vec![0; dtype.size()];
            s.write(*dtype, &mut raw);
            out.extend(raw);
        }
        Value::Str(s) => {
            out.extend(STRING.to_le_bytes());
            text(out, s);
        }
        Value::Array(a) => {
            out.extend(ARRAY.to_le_bytes());
            out.extend(number(a.dtype)?.to_le_bytes());
            out.extend((a.len() as u64).to_le_bytes());
            out.extend(&a.data);
        }
        Value::Strings(list) => {
            out.extend(ARRAY.to_le_bytes());
            out.extend(STRING.to_le_bytes());
            out.extend((list.len() as u64).to_le_bytes());
            list.iter().for_each(|s| text(out, s));
        }
    }
    Ok(())
}
