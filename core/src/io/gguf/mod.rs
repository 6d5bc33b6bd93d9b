//! GGUF: metadata and tensors in one file, plain or in ggml's quantised blocks.
//!
//! [`Gguf`] is the parsed index; [`tensors`] makes tensors whose blocks stay quantised in memory and are decoded by the
//! kernels that read them; [`write`] writes a file. Layout of a file: header, metadata, tensor index, then the aligned
//! data. Versions 2 and 3 are read, little-endian only. Every length is checked against the file before anything is
//! allocated; tensors may neither overlap nor lie outside the file. Spec:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
#![deny(clippy::unwrap_used)]

mod blocks;
mod graph;
mod kinds;
mod packed;
mod planes;
mod quantize;
#[cfg(test)]
mod tests;
mod words;
mod write;

pub use graph::{Matrix, matrices, matrices_of, matrix_of, tensor_of, tensors};
pub use kinds::Kind;
pub use packed::Packed;
pub use quantize::{quantize_q4_0, quantize_q4_k, quantize_q8_0};
pub use words::{Activations, IntegerMatrix, Use};
pub use write::{Data, write};

use super::bytes::Cursor;
use super::{HostTensor, element_count};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::util::sort;
use std::ops::Range;

const MAGIC: &[u8] = b"GGUF";
/// Longest key or tensor name that is accepted, in bytes.
const MAX_NAME: usize = 1 << 16;
/// Longest string value that is accepted, in bytes.
const MAX_STRING: u64 = 64 << 20;
/// Largest alignment of the tensor data that is accepted, in bytes.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// Largest rank of a tensor that is accepted.
const MAX_DIMS: u32 = 8;

fn err(what: impl Into<String>) -> Error {
    Error::format("gguf", what, None)
}

/// A metadata value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A number or bool of that dtype.
    Scalar(DType, Scalar),
    /// A string.
    Str(String),
    /// Numbers or bools: a tensor of rank 1.
    Array(HostTensor),
    /// An array of strings.
    Strings(Vec<String>),
}

impl Value {
    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Str(s) = self { Some(s) } else { None }
    }

    /// The strings, if it is an array of them.
    pub fn as_strings(&self) -> Option<&[String]> {
        if let Value::Strings(s) = self { Some(s) } else { None }
    }

    /// The value, if it is an integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Scalar(DType::U64, Scalar::Int(i)) => Some(*i as u64),
            Value::Scalar(dt, Scalar::Int(i)) if dt.is_int() => u64::try_from(*i).ok(),
            _ => None,
        }
    }

    /// The value, if it is a bool.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Scalar(DType::Bool, s) = self { Some(s.as_bool()) } else { None }
    }

    /// The value as f64, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Scalar(DType::Bool, _) => None,
            Value::Scalar(dt, s) => Some(s.as_f64_of(*dt)),
            _ => None,
        }
    }

    /// The elements, if it is an array of numbers or bools.
    pub fn as_array(&self) -> Option<&HostTensor> {
        if let Value::Array(a) = self { Some(a) } else { None }
    }
}

/// One tensor of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its name, unique in the file.
    pub name: String,
    /// How its elements are stored.
    pub kind: Kind,
    /// Extents, outermost first (the file has them innermost first).
    pub shape: Vec<usize>,
    /// Byte range of its data, relative to the start of the file.
    pub range: Range<u64>,
}

/// The index of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Gguf {
    /// Keys and values in file order.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in file order.
    pub entries: Vec<Entry>,
}

impl Gguf {
    /// Reads the index of a whole file.
    pub fn parse(file: &[u8]) -> Result<Gguf> {
        Gguf::parse_header(file, file.len() as u64)
    }

    /// Reads the index from the start of a file of `file_len` bytes, so that weights can be streamed. The length of the
    /// index is not known in advance: an error may mean that `start` is too short.
    pub fn parse_header(start: &[u8], file_len: u64) -> Result<Gguf> {
        let mut c = Cursor::new(start, "gguf");
        if c.take(4)? != MAGIC {
            return Err(err("no GGUF magic"));
        }
        let version = c.u32()?;
        if !matches!(version, 2 | 3) {
            let what = if version & 0xffff == 0 { "big-endian GGUF".into() } else { format!("GGUF version {version}") };
            return Err(Error::Unsupported { what, context: "gguf".into() });
        }
        let (tensors, pairs) = (c.u64()?, c.u64()?);
        // The smallest metadata pair takes 13 bytes and the smallest tensor entry 24, so larger counts cannot be true.
        let left = start.len() as u64;
        if pairs > left / 13 || tensors > left / 24 {
            return Err(c.error(format!("truncated: {tensors} tensors and {pairs} pairs in {left} bytes")));
        }
        let mut metadata = Vec::with_capacity(pairs as usize);
        for _ in 0..pairs {
            let key = name(&mut c)?;
            let kind = c.u32()?;
            metadata.push((key, value(&mut c, kind)?));
        }
        distinct(metadata.iter().map(|m| m.0.as_str()))?;
        let mut gguf = Gguf { metadata, entries: Vec::with_capacity(tensors as usize) };
        for _ in 0..tensors {
            gguf.entries.push(entry(&mut c)?);
        }
        distinct(gguf.entries.iter().map(|e| e.name.as_str()))?;
        let alignment = match gguf.get("general.alignment") {
            None => 32,
            Some(Value::Scalar(DType::U32, Scalar::Int(a))) => *a as u64,
            Some(_) => return Err(err("`general.alignment` is not a u32")),
        };
        if !is_alignment(alignment) {
            return Err(err(format!("an alignment of {alignment}")));
        }
        let data = (c.pos() as u64).next_multiple_of(alignment);
        place(&mut gguf.entries, data, alignment, file_len)?;
        Ok(gguf)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|m| m.0 == key).map(|m| &m.1)
    }

    /// The tensor of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// Index of this file, from 0, and number of files of a split model: `(0, 1)` for a model in one file.
    pub fn part(&self) -> (u64, u64) {
        let of = |key: &str| self.get(key).and_then(Value::as_u64);
        (of("split.no").unwrap_or(0), of("split.count").unwrap_or(1).max(1))
    }

    /// Adds the tensors of the next file of a split model to this index of the first file; `already` files were added
    /// before. The ranges stay relative to each tensor's own file.
    ///
    /// # Errors
    /// `E_FORMAT` for a file of another model, a file out of order, and a tensor name that is already present.
    pub fn extend(&mut self, next: Gguf, already: u64) -> Result<()> {
        let (of, (number, count)) = (self.part().1, next.part());
        if count != of || number != already + 1 {
            return Err(err(format!("file {} of {count} comes as file {} of {of}", number + 1, already + 2)));
        }
        self.entries.extend(next.entries);
        distinct(self.entries.iter().map(|e| e.name.as_str()))
    }

    /// Checks that the tensors of all files of a split model are present.
    ///
    /// # Errors
    /// `E_FORMAT` if some are missing.
    pub fn check_whole(&self) -> Result<()> {
        let (wanted, have) = (self.get("split.tensors.count").and_then(Value::as_u64), self.entries.len() as u64);
        match wanted.filter(|&n| n != have) {
            Some(n) => Err(err(format!("{have} of {n} tensors are there; a split model has its files side by side"))),
            None => Ok(()),
        }
    }
}

impl Entry {
    /// This tensor's bytes in `file`.
    pub fn bytes<'a>(&self, file: &'a [u8]) -> Result<&'a [u8]> {
        let range = usize::try_from(self.range.start).ok().zip(usize::try_from(self.range.end).ok());
        range.and_then(|(a, b)| file.get(a..b)).ok_or_else(|| err(format!("`{}` lies outside the file", self.name)))
    }

    /// A decoded copy of this tensor: plain elements keep their dtype, quantised blocks become f32.
    pub fn to_host(&self, file: &[u8]) -> Result<HostTensor> {
        decode(self.kind, &self.shape, self.bytes(file)?)
    }
}

/// The elements of a tensor from its bytes alone (read by range): plain elements keep their dtype, blocks become f32.
pub fn decode(kind: Kind, shape: &[usize], bytes: &[u8]) -> Result<HostTensor> {
    if size(kind, shape) != Some(bytes.len() as u64) {
        return Err(err(format!("{} bytes do not hold shape {shape:?} of {}", bytes.len(), kind.name())));
    }
    match kind.plain() {
        Some(dtype) => HostTensor::new(dtype, shape.to_vec(), bytes.to_vec()),
        None => HostTensor::from_f32(shape.to_vec(), &blocks::dequantize(kind, bytes)),
    }
}

/// Size of a tensor in bytes; `None` when that overflows or a row is not a whole number of blocks.
fn size(kind: Kind, shape: &[usize]) -> Option<u64> {
    let n = element_count(shape)?;
    let row = shape.last().copied().unwrap_or(1);
    if row % kind.block_elems() != 0 {
        return None;
    }
    let bytes = (n as u64 / kind.block_elems() as u64).checked_mul(kind.block_bytes() as u64)?;
    Some(bytes).filter(|&b| b <= isize::MAX as u64)
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut names: Vec<&str> = names.collect();
    sort::ascending(&mut names);
    match names.windows(2).find(|w| w.first() == w.last()) {
        Some(&[twice, _]) => Err(err(format!("the name `{twice}` appears twice"))),
        _ => Ok(()),
    }
}

fn text<'a>(c: &mut Cursor<'a>, max: u64) -> Result<&'a [u8]> {
    let n = c.u64()?;
    if n > max {
        return Err(c.error(format!("a string of {n} bytes")));
    }
    c.take(n as usize)
}

fn name(c: &mut Cursor<'_>) -> Result<String> {
    let bytes = text(c, MAX_NAME as u64)?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| c.error("a name is not UTF-8"))
}

/// A string value. Old files may hold bytes that are not UTF-8; these are replaced rather than refused.
fn string(c: &mut Cursor<'_>) -> Result<String> {
    let bytes = text(c, MAX_STRING)?;
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    })
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;
const NUMBERS: [(u32, DType); 11] = [
    (0, DType::U8),
    (1, DType::I8),
    (2, DType::U16),
    (3, DType::I16),
    (4, DType::U32),
    (5, DType::I32),
    (6, DType::F32),
    (7, DType::Bool),
    (10, DType::U64),
    (11, DType::I64),
    (12, DType::F64),
];

fn number(c: &Cursor<'_>, kind: u32) -> Result<DType> {
    let dtype = NUMBERS.iter().find(|n| n.0 == kind).map(|n| n.1);
    dtype.ok_or_else(|| c.error(format!("{kind} is no type of values")))
}

fn value(c: &mut Cursor<'_>, kind: u32) -> Result<Value> {
    match kind {
        STRING => Ok(Value::Str(string(c)?)),
        ARRAY => array(c),
        _ => {
            let dtype = number(c, kind)?;
            let raw = c.take(dtype.size())?;
            check_bools(c, dtype, raw)?;
            Ok(Value::Scalar(dtype, Scalar::read(dtype, raw)))
        }
    }
}

fn array(c: &mut Cursor<'_>) -> Result<Value> {
    let (kind, n) = (c.u32()?, c.u64()?);
    match kind {
        ARRAY => Err(Error::Unsupported { what: "an array of arrays".into(), context: "gguf metadata".into() }),
        STRING => {
            // No capacity is reserved for the claimed length: the list grows as strings are read, each of at least 8
            // bytes.
            let mut list = Vec::new();
            for _ in 0..n {
                list.push(string(c)?);
            }
            Ok(Value::Strings(list))
        }
        _ => {
            let dtype = number(c, kind)?;
            let len = usize::try_from(n).ok().and_then(|n| n.checked_mul(dtype.size()));
            let raw = c.take(len.ok_or_else(|| c.error("an array's size overflows"))?)?;
            check_bools(c, dtype, raw)?;
            Ok(Value::Array(HostTensor { dtype, shape: vec![n as usize], data: raw.to_vec() }))
        }
    }
}

fn check_bools(c: &Cursor<'_>, dtype: DType, raw: &[u8]) -> Result<()> {
    if dtype == DType::Bool && raw.iter().any(|&b| b > 1) {
        return Err(c.error("a bool that is neither 0 nor 1"));
    }
    Ok(())
}

/// Reads one entry of the tensor index. Its range is still relative to the start of the data section.
fn entry(c: &mut Cursor<'_>) -> Result<Entry> {
    let name = name(c)?;
    let rank = c.u32()?;
    if rank > MAX_DIMS {
        return Err(c.error(format!("tensor `{name}` has {rank} dimensions")));
    }
    let mut shape = Vec::with_capacity(rank as usize);
    for _ in 0..rank {
        let d = c.u64()?;
        shape.push(usize::try_from(d).map_err(|_| c.error(format!("tensor `{name}` has a dimension of {d}")))?);
    }
    shape.reverse();
    let id = c.u32()?;
    let kind = Kind::from_id(id).ok_or_else(|| Error::Unsupported {
        what: format!("ggml type {id}"),
        context: format!("gguf tensor `{name}`"),
    })?;
    let offset = c.u64()?;
    let bytes = size(kind, &shape)
        .ok_or_else(|| c.error(format!("tensor `{name}`: shape {shape:?} does not suit {}", kind.name())))?;
    let end = offset.checked_add(bytes).ok_or_else(|| c.error(format!("tensor `{name}` ends nowhere")))?;
    Ok(Entry { name, kind, shape, range: offset..end })
}

/// True if tensor data may be aligned to so many bytes.
fn is_alignment(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes <= MAX_ALIGNMENT
}

/// Makes the ranges of all entries relative to the file, and checks that they are aligned, lie inside it and do not
/// overlap.
fn place(entries: &mut [Entry], data: u64, alignment: u64, file_len: u64) -> Result<()> {
    for e in entries.iter_mut() {
        if e.range.start % alignment != 0 {
            return Err(err(format!("tensor `{}` is not aligned to {alignment}", e.name)));
        }
        let ends = |n: u64| n.checked_add(data).filter(|&n| n <= file_len.max(data));
        let (Some(a), Some(b)) = (ends(e.range.start), ends(e.range.end)) else {
            return Err(err(format!("tensor `{}` lies outside of the file", e.name)));
        };
        e.range = a..b;
    }
    let mut order: Vec<&Entry> = entries.iter().filter(|e| !e.range.is_empty()).collect();
    sort::by_key(&mut order, |e| e.range.start);
    match order.windows(2).find(|w| w.first().map(|e| e.range.end) > w.last().map(|e| e.range.start)) {
        Some(w) => Err(err(format!("the tensors {:?} overlap", w.iter().map(|e| &e.name).collect::<Vec<_>>()))),
        None => Ok(()),
    }
}
