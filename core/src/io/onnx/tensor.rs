//! Constant tensors of ONNX files (`TensorProto`): where their elements are, including data outside the model file.
//!
//! Sizes are checked against shapes while parsing, so every [`TensorProto`] is consistent.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::borrow::Cow;

use super::proto::{Budget, as_onnx, bad, string_pair};
use super::strings::STRING;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::protobuf::{Field, Message, Span};
use crate::io::{HostTensor, MAX_RANK, byte_count, element_count};

/// A constant.
#[derive(Clone, Debug, Default)]
pub struct TensorProto {
    /// Its name; empty for tensors in attributes.
    pub name: String,
    /// ONNX's number of the element type.
    pub elem: i32,
    /// Extents.
    pub shape: Vec<usize>,
    /// Where the elements are.
    pub data: TensorData,
}

/// Where the elements of a constant are.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// Little-endian elements in the model file.
    File(Span),
    /// Little-endian elements that had to be decoded.
    Owned(Vec<u8>),
    /// A range of another file.
    External(ExternalRef),
    /// Strings.
    Strings(Vec<Vec<u8>>),
    /// Elements of a type that is not supported (such as complex numbers); an error when they are requested.
    Unsupported,
}

impl Default for TensorData {
    fn default() -> TensorData {
        TensorData::Owned(Vec::new())
    }
}

/// A range of another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalRef {
    /// A relative path that stays below the model's folder; validated.
    pub location: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, exactly what the tensor's shape needs.
    pub len: u64,
}

/// Access to the other files of a model, implemented by the caller that loads it. Locations are already checked to be
/// relative and free of `..`; an implementation that opens files must still not follow links out of the model's folder.
pub trait ExternalData {
    /// The size of a file in bytes.
    fn size(&self, location: &str) -> Result<u64>;
    /// Exactly `len` bytes from `offset`; the range lies inside [`ExternalData::size`].
    fn read(&self, location: &str, offset: u64, len: u64) -> Result<Vec<u8>>;
}

/// No external data, for models that consist of one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExternalData;

impl ExternalData for NoExternalData {
    fn size(&self, location: &str) -> Result<u64> {
        let context = "the model was given as bytes, without its other files".to_owned();
        Err(Error::Unsupported { what: format!("external data `{location}`"), context })
    }

    fn read(&self, location: &str, _offset: u64, _len: u64) -> Result<Vec<u8>> {
        self.size(location).map(|_| Vec::new())
    }
}

/// The dtype in which elements of an ONNX type are held; `None` for unsupported types.
pub fn dtype_of(elem: i32) -> Option<DType> {
    Some(match elem {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        // Strings are held as indices into the model's table of strings.
        8 => DType::I32,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        // 8-bit floats are held as their bit patterns; narrower elements are unpacked to bytes.
        17..=21 | 23..=25 => DType::U8,
        22 | 26 => DType::I8,
        _ => return None,
    })
}

/// True for element types that no device supports and that are held as codes: 8-bit floats and narrower types in one
/// byte, strings as indices.
pub fn is_code_type(elem: i32) -> bool {
    elem == STRING || (17..=26).contains(&elem)
}

/// Bits per element of a type of which files pack several elements into a byte.
pub fn packed_bits(elem: i32) -> Option<u32> {
    match elem {
        21..=23 => Some(4),
        25 | 26 => Some(2),
        _ => None,
    }
}

/// Bytes that `count` elements take in a file; `size` if they are not packed.
fn stored_bytes(elem: i32, count: usize, size: usize) -> usize {
    packed_bits(elem).map_or(size, |bits| count.div_ceil(8 / bits as usize))
}

/// ONNX's name of an element type.
pub fn elem_name(elem: i32) -> &'static str {
    const NAMES: [&str; 28] = [
        "undefined",
        "float",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "string",
        "bool",
        "float16",
        "double",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "uint4",
        "int4",
        "float4e2m1",
        "float8e8m0",
        "uint2",
        "int2",
        "float6e2m3",
    ];
    usize::try_from(elem).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("unknown")
}

impl TensorProto {
    /// The dtype of the elements, or an error that names the tensor.
    pub fn dtype(&self) -> Result<DType> {
        let readable = self.data != TensorData::Unsupported;
        dtype_of(self.elem).filter(|_| readable).ok_or_else(|| Error::Unsupported {
            what: format!("element type {}", elem_name(self.elem)),
            context: format!("tensor `{}`", self.name),
        })
    }

    /// The bytes of another file that `r` names.
    pub(super) fn external_bytes(&self, r: &ExternalRef, external: &dyn ExternalData) -> Result<Vec<u8>> {
        let fail = |what: String| Error::format("onnx", format!("tensor `{}` {what}", self.name), None);
        let size = external.size(&r.location)?;
        if r.offset > size || r.len > size - r.offset {
            return Err(fail(format!("lies outside its file `{}` of {size} bytes", r.location)));
        }
        let bytes = external.read(&r.location, r.offset, r.len)?;
        if bytes.len() as u64 != r.len {
            return Err(fail(format!("has {} bytes, and {} came from its file `{}`", r.len, bytes.len(), r.location)));
        }
        Ok(bytes)
    }

    /// The elements, little-endian. `file` is the slice that was parsed.
    pub fn bytes<'a>(&'a self, file: &'a [u8], external: &dyn ExternalData) -> Result<Cow<'a, [u8]>> {
        match &self.data {
            TensorData::File(span) => Ok(Cow::Borrowed(span.of(file)?)),
            TensorData::Owned(bytes) => Ok(Cow::Borrowed(bytes)),
            TensorData::External(r) => {
                let bytes = self.external_bytes(r, external)?;
                if packed_bits(self.elem).is_some() {
                    return Ok(Cow::Owned(unpack(&bytes, element_count(&self.shape).unwrap_or(0), self.elem)));
                }
                if self.dtype()? == DType::Bool && bytes.iter().any(|&b| b > 1) {
                    return Err(Error::format(
                        "onnx",
                        format!("tensor `{}`: a bool that is not 0 or 1", self.name),
                        None,
                    ));
                }
                Ok(Cow::Owned(bytes))
            }
            TensorData::Strings(_) | TensorData::Unsupported => Err(Error::Unsupported {
                what: format!("bytes of element type {}", elem_name(self.elem)),
                context: format!("tensor `{}`", self.name),
            }),
        }
    }

    /// A copy of the tensor.
    pub fn to_host(&self, file: &[u8], external: &dyn ExternalData) -> Result<HostTensor> {
        HostTensor::new(self.dtype()?, self.shape.clone(), self.bytes(file, external)?.into_owned())
    }
}

/// Parses a file that is one serialized `TensorProto`, the format of ONNX's own test data.
pub fn parse(file: &[u8]) -> Result<TensorProto> {
    parse_tensor(Message::new(file), &mut Budget::of(file)).map_err(as_onnx)
}

/// The fields of a tensor apart from typed element lists.
#[derive(Default)]
struct Head {
    tensor: TensorProto,
    raw: Option<Span>,
    external: Vec<(String, String)>,
    is_external: bool,
}

pub(super) fn parse_tensor(m: Message<'_>, b: &mut Budget) -> Result<TensorProto> {
    let at = m.span().start as u64;
    let Head { mut tensor, raw, external, is_external } = head(m, b)?;
    let fail = |what: String| Error::format("onnx", what, Some(at));
    let name = tensor.name.clone();
    let (elem, count) = (tensor.elem, element_count(&tensor.shape));
    let count = count.ok_or_else(|| fail(format!("tensor `{name}`: the size of {:?} overflows", tensor.shape)))?;
    if elem == 8 {
        tensor.data = TensorData::Strings(strings(m, count, b)?);
        return Ok(tensor);
    }
    let Some(dtype) = dtype_of(elem) else {
        tensor.data = TensorData::Unsupported;
        return Ok(tensor);
    };
    let size = byte_count(dtype, &tensor.shape)
        .ok_or_else(|| fail(format!("tensor `{name}`: the size of {:?} overflows", tensor.shape)))?;
    let stored = stored_bytes(elem, count, size);
    if is_external {
        tensor.data = TensorData::External(external_ref(&name, &external, stored as u64).map_err(fail)?);
        return Ok(tensor);
    }
    let wrong = |got: usize| fail(format!("tensor `{name}`: {got} bytes for {} {:?}", elem_name(elem), tensor.shape));
    tensor.data = match raw {
        Some(span) if span.len != stored => return Err(wrong(span.len)),
        Some(span) if packed_bits(elem).is_some() => TensorData::Owned(unpack(m.slice(span)?, count, elem)),
        Some(span) => {
            if dtype == DType::Bool && m.slice(span)?.iter().any(|&v| v > 1) {
                return Err(fail(format!("tensor `{name}`: a bool that is not 0 or 1")));
            }
            TensorData::File(span)
        }
        None => typed(m, elem, dtype, count, &name, b)?,
    };
    Ok(tensor)
}

fn head(mut m: Message<'_>, b: &mut Budget) -> Result<Head> {
    let mut h = Head::default();
    while let Some(f) = m.next_field()? {
        match f.number {
            1 => f.varints(|d| {
                let d = i64::try_from(d).ok().and_then(|d| usize::try_from(d).ok());
                let d = d.filter(|&d| d as u64 <= i64::MAX as u64).ok_or_else(|| bad("a negative dimension", &f))?;
                if h.tensor.shape.len() >= MAX_RANK {
                    return Err(bad("too many dimensions", &f));
                }
                b.push(&mut h.tensor.shape, d, &f)
            })?,
            2 => h.tensor.elem = f.i32()?,
            3 => return Err(bad("a tensor in segments", &f)),
            8 => h.tensor.name = b.string(&f)?,
            9 => h.raw = Some(f.span()?),
            13 => {
                let pair = string_pair(f.message()?, b)?;
                b.push(&mut h.external, pair, &f)?;
            }
            14 => h.is_external = f.i32()? == 1,
            _ => {}
        }
    }
    Ok(h)
}

fn strings(mut m: Message<'_>, count: usize, b: &mut Budget) -> Result<Vec<Vec<u8>>> {
    let mut list = Vec::new();
    let at = m.span().start as u64;
    while let Some(f) = m.next_field()? {
        if f.number == 6 {
            let s = f.bytes()?;
            b.charge(s.len(), &f)?;
            b.push(&mut list, s.to_vec(), &f)?;
        }
    }
    if list.len() != count {
        return Err(Error::format("onnx", format!("{} strings for a tensor of {count}", list.len()), Some(at)));
    }
    Ok(list)
}

/// Elements in one of the typed fields (`float_data`, `int32_data`, …). A single packed run of floats stays a range of
/// the file.
fn typed(mut m: Message<'_>, elem: i32, dtype: DType, count: usize, name: &str, b: &mut Budget) -> Result<TensorData> {
    let at = m.span().start as u64;
    let field = match dtype {
        DType::F32 => 4,
        DType::I64 => 7,
        DType::F64 => 10,
        DType::U32 | DType::U64 => 11,
        _ => 5,
    };
    let mut out: Vec<u8> = Vec::new();
    let mut packed: Option<Span> = None;
    let size = dtype.size();
    while let Some(f) = m.next_field()? {
        if f.number != field {
            continue;
        }
        let one = match field {
            4 => f.single32().map(|v| v.to_vec()),
            10 => f.single64().map(|v| v.to_vec()),
            _ => {
                element_varints(&f, elem, dtype, count, &mut out, b)?;
                continue;
            }
        };
        if let Some(v) = one {
            b.charge(2 * size, &f)?;
            out.extend(v);
        } else if out.is_empty() && packed.is_none() {
            if size == 4 {
                f.fixed32s()?
            } else {
                f.fixed64s()?
            };
            packed = Some(f.span()?);
        } else {
            // Several packed runs in one field are rare, but legal.
            if let Some(first) = packed.take() {
                out.extend(m.slice(first)?);
            }
            let more = if size == 4 { f.fixed32s()? } else { f.fixed64s()? };
            b.charge(2 * more.len(), &f)?;
            out.extend(more);
        }
    }
    let wrong = |got: usize| {
        let what = format!("tensor `{name}`: {got} elements where its shape wants {count}");
        Error::format("onnx", what, Some(at))
    };
    if let Some(span) = packed {
        return if span.len == count * size { Ok(TensorData::File(span)) } else { Err(wrong(span.len / size)) };
    }
    if packed_bits(elem).is_some() {
        if out.len() != stored_bytes(elem, count, count) {
            return Err(wrong(out.len()));
        }
        return Ok(TensorData::Owned(unpack(&out, count, elem)));
    }
    if out.len() != count * size { Err(wrong(out.len() / size)) } else { Ok(TensorData::Owned(out)) }
}

/// Reads `int32_data`, `int64_data` and `uint64_data`: varints, narrowed to the element type. 16-bit floats are stored
/// as bit patterns.
fn element_varints(
    f: &Field<'_>,
    elem: i32,
    dtype: DType,
    count: usize,
    out: &mut Vec<u8>,
    b: &mut Budget,
) -> Result<()> {
    let size = dtype.size();
    f.varints(|v| {
        if out.len() >= count * size {
            return Err(bad("more elements than the tensor's shape wants", f));
        }
        b.charge(2 * size, f)?;
        let fits = match dtype {
            DType::I64 | DType::U64 => true,
            DType::U32 => v <= u64::from(u32::MAX),
            DType::F16 | DType::BF16 => v <= 0xffff,
            _ if is_code_type(elem) => v <= 0xff,
            d => {
                // A negative int32 is a varint of ten bytes, or of five from some writers.
                let v = if v <= u64::from(u32::MAX) { i128::from(v as i32) } else { i128::from(v as i64) };
                d.int_range().is_some_and(|(lo, hi)| (lo..=hi).contains(&v))
            }
        };
        if !fits {
            return Err(bad(format!("{} is not a {}", v as i64, elem_name(elem)), f));
        }
        out.extend(v.to_le_bytes().get(..size).unwrap_or_default());
        Ok(())
    })
}

/// Unpacks elements of two or four bits, the low bits of a byte first, to one byte each.
fn unpack(packed: &[u8], count: usize, elem: i32) -> Vec<u8> {
    let bits = packed_bits(elem).unwrap_or(8);
    let signed = matches!(elem, 22 | 26);
    let parts = packed.iter().flat_map(|&p| (0..8 / bits).map(move |i| p << (8 - bits - i * bits))).take(count);
    // Each element is in the top bits of its byte here.
    parts.map(|p| if signed { (p as i8 >> (8 - bits)) as u8 } else { p >> (8 - bits) }).collect()
}

fn external_ref(name: &str, pairs: &[(String, String)], size: u64) -> Result<ExternalRef, String> {
    let get = |key: &str| pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    let number = |key: &str| match get(key) {
        None => Ok(None),
        Some(text) if text.bytes().all(|c| c.is_ascii_digit()) && !text.is_empty() => {
            text.parse::<u64>().map(Some).map_err(|_| format!("tensor `{name}`: the external {key} overflows"))
        }
        Some(text) => Err(format!("tensor `{name}`: the external {key} {text:?} is not a number")),
    };
    let location = get("location").ok_or_else(|| format!("tensor `{name}` is external but names no file"))?;
    check_location(location).map_err(|why| format!("tensor `{name}`: external file {location:?} {why}"))?;
    let (offset, len) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(size));
    if len != size || offset.checked_add(len).is_none() {
        return Err(format!("tensor `{name}`: {len} external bytes at {offset} where its shape wants {size}"));
    }
    Ok(ExternalRef { location: location.to_owned(), offset, len })
}

/// Checks that a location is a plain relative path: nothing that leaves the folder, or that means something else on
/// another operating system.
fn check_location(location: &str) -> Result<(), &'static str> {
    if location.is_empty() || location.len() > 1024 {
        Err("has no usable length")
    } else if location.starts_with('/') {
        Err("is absolute")
    } else if location.contains(['\\', ':', '\0', '*', '?', '%', '#']) || location.chars().any(char::is_control) {
        Err("holds a character that is not allowed")
    } else if location.split('/').any(|part| part == "..") {
        Err("leaves the model's folder")
    } else if location.split('/').any(|part| part.is_empty() || part.ends_with(['.', ' ']) && part != ".") {
        Err("is not a plain path")
    } else {
        Ok(())
    }
}
