//! numpy's `.npy` format: one array. Reads versions 1 to 3, either byte order, C or Fortran order; writes little-endian
//! C order.
//!
//! numpy has no bf16: it is written as the two-byte void type `<V2`, as the ml_dtypes package does, and read back as
//! bf16. Structured, string and object arrays are errors. Spec: numpy.lib.format's documentation.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::bytes::Cursor;
use super::{HostTensor, MAX_RANK, byte_count};
use crate::dtype::DType;
use crate::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header in bytes; numpy refuses longer ones too.
const MAX_HEADER: usize = 10_000;

fn err(what: impl Into<String>, at: usize) -> Error {
    Error::format("npy", what, Some(at as u64))
}

/// Reads one array from a whole file.
pub fn read(file: &[u8]) -> Result<HostTensor> {
    let mut c = Cursor::new(file, "npy");
    if c.take(MAGIC.len())? != MAGIC {
        return Err(err("no numpy magic", 0));
    }
    let len = match (c.u8()?, c.u8()?) {
        (1, _) => c.u16()? as usize,
        (2 | 3, _) => c.u32()? as usize,
        (major, minor) => return Err(err(format!("version {major}.{minor} is unknown"), 6)),
    };
    if len > MAX_HEADER {
        return Err(err(format!("a header of {len} bytes"), c.pos()));
    }
    let at = c.pos();
    let header = std::str::from_utf8(c.take(len)?).map_err(|_| err("the header is not UTF-8", at))?;
    let header = Header::parse(header).map_err(|what| err(what, at))?;
    let (dtype, swap) = dtype_of(&header.descr)?;
    let size = byte_count(dtype, &header.shape).ok_or_else(|| err("the array's size overflows", at))?;
    let start = c.pos();
    let raw = c.take(size)?;
    if c.pos() != file.len() {
        return Err(err("bytes after the array", c.pos()));
    }
    let mut data = if header.fortran { c_order(raw, &header.shape, dtype.size()) } else { raw.to_vec() };
    if swap {
        data.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    if dtype == DType::Bool && data.iter().any(|&b| b > 1) {
        return Err(err("a bool that is neither 0 nor 1", start));
    }
    Ok(HostTensor { dtype, shape: header.shape, data })
}

/// The bytes of a file with this array.
pub fn write(t: &HostTensor) -> Result<Vec<u8>> {
    let descr = match t.dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::Void => return Err(err("void can not be written", 0)),
    };
    let dims: Vec<String> = t.shape.iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", dims.join(", "));
    // The data starts at a multiple of 64 bytes.
    let pad = (10 + header.len() + 1).next_multiple_of(64) - (10 + header.len() + 1);
    header.push_str(&" ".repeat(pad));
    header.push('\n');
    let len = u16::try_from(header.len()).map_err(|_| err("too many dimensions to write", 0))?;
    let mut out = Vec::with_capacity(10 + header.len() + t.data.len());
    out.extend(MAGIC);
    out.extend([1, 0]);
    out.extend(len.to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(&t.data);
    Ok(out)
}

/// The dtype of a numpy type string, and whether its bytes must be swapped.
fn dtype_of(descr: &str) -> Result<(DType, bool)> {
    let (order, kind) = match descr.split_at_checked(1) {
        Some((o @ ("<" | ">" | "|" | "="), kind)) => (o, kind),
        _ => ("<", descr),
    };
    let dtype = match kind {
        "b1" | "?" => DType::Bool,
        "i1" => DType::I8,
        "u1" => DType::U8,
        "i2" => DType::I16,
        "u2" => DType::U16,
        "i4" => DType::I32,
        "u4" => DType::U32,
        "i8" => DType::I64,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "V2" => DType::BF16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        _ => return Err(Error::Unsupported { what: format!("numpy dtype `{descr}`"), context: "npy".to_owned() }),
    };
    Ok((dtype, order == ">"))
}

/// Copies an array from Fortran to C order.
fn c_order(raw: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for d in shape {
        strides.push(stride);
        stride *= d;
    }
    let mut index = vec![0usize; shape.len()];
    let mut at = 0usize; // the element `index` points to
    while out.len() < raw.len() {
        out.extend(raw.get(at * size..(at + 1) * size).unwrap_or_default());
        for ((i, &d), &s) in index.iter_mut().zip(shape).zip(&strides).rev() {
            *i += 1;
            at += s;
            if *i < d {
                break;
            }
            at -= *i * s;
            *i = 0;
        }
    }
    out
}

#[derive(Default)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Parses a header, which is the literal of a Python dictionary.
    fn parse(text: &str) -> Result<Header, String> {
        let mut p = Literal { rest: text };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        p.expect("{")?;
        while !p.eat("}") {
            let key = p.string()?;
            p.expect(":")?;
            let twice = match key {
                "descr" => descr.replace(p.string().map_err(|_| "the dtype is structured")?.to_owned()).is_some(),
                "fortran_order" => fortran.replace(p.bool()?).is_some(),
                "shape" => shape.replace(p.tuple()?).is_some(),
                _ => return Err(format!("unknown key `{key}`")),
            };
            if twice {
                return Err(format!("the key `{key}` appears twice"));
            }
            if !p.eat(",") {
                p.expect("}")?;
                break;
            }
        }
        if !p.rest.trim().is_empty() {
            return Err("text after the header".to_owned());
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Header { descr, fortran, shape }),
            _ => Err("the header lacks descr, fortran_order or shape".to_owned()),
        }
    }
}

/// A parser for the part of Python's literal syntax that headers use.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(format!("`{token}` expected in the header")) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        for quote in ["'", "\""] {
            if self.eat(quote) {
                let (text, rest) = self.rest.split_once(quote).ok_or("a string without end in the header")?;
                self.rest = rest;
                return Ok(text);
            }
        }
        Err("a string expected in the header".to_owned())
    }

    fn bool(&mut self) -> Result<bool, String> {
        match (self.eat("True"), self.eat("False")) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            _ => Err("True or False expected in the header".to_owned()),
        }
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect("(")?;
        let mut dims = Vec::new();
        while !self.eat(")") {
            self.rest = self.rest.trim_start();
            let n = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, rest) = self.rest.split_at(n);
            dims.push(digits.parse().map_err(|_| "a bad dimension in the header".to_owned())?);
            self.rest = rest;
            self.eat("L"); // Python 2's long
            if dims.len() > MAX_RANK {
                return Err("too many dimensions".to_owned());
            }
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::io::testing::mutate;

    const C_ORDER: &[u8] = include_bytes!("../../../tests/fixtures/io/c_f32.npy");
    const FORTRAN: &[u8] = include_bytes!("../../../tests/fixtures/io/fortran_i16_v2.npy");
    const BIG: &[u8] = include_bytes!("../../../tests/fixtures/io/big_f64_v3.npy");

    #[test]
    fn arrays_of_numpy_are_read() {
        let c = read(C_ORDER).unwrap();
        assert_eq!(c, HostTensor::from_f32(vec![2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap());
        let f = read(FORTRAN).unwrap();
        assert_eq!((f.dtype, &*f.shape), (DType::I16, &[2, 3, 4][..]));
        assert_eq!(f.to_i64(), (0..24).collect::<Vec<_>>());
        let b = read(BIG).unwrap();
        assert_eq!((b.shape.len(), b.to_f64()), (0, vec![-1.25]));
    }

    #[test]
    fn writing_gives_numpys_bytes() {
        assert_eq!(write(&read(C_ORDER).unwrap()).unwrap(), C_ORDER);
        for dtype in DType::ALL {
            for shape in [vec![], vec![0], vec![3], vec![2, 1, 3]] {
                let n = crate::io::element_count(&shape).unwrap();
                let t = HostTensor::new(dtype, shape, vec![1; n * dtype.size()]).unwrap();
                let file = write(&t).unwrap();
                assert_eq!(read(&file).unwrap(), t);
                assert_eq!((file.len() - t.data.len()) % 64, 0);
            }
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        for file in [C_ORDER, FORTRAN, BIG] {
            for n in 0..file.len() {
                assert!(read(&file[..n]).is_err(), "at {n}");
            }
        }
    }

    #[test]
    fn hostile_headers_are_errors() {
        let make = |header: &str| {
            let mut f = b"\x93NUMPY\x01\x00".to_vec();
            f.extend((header.len() as u16).to_le_bytes());
            f.extend(header.as_bytes());
            f.extend([0; 8]);
            read(&f)
        };
        assert!(make("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}").is_ok());
        assert!(make("{\"shape\":(2L,),'fortran_order':True,'descr':'f4',}").is_ok());
        for bad in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999, 99999999999)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '<f4', 'shape': (2,)}",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
            "{",
            "",
        ] {
            assert!(make(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mutations_never_panic() {
        for file in [C_ORDER, FORTRAN, BIG] {
            mutate(file, 10_000, |m| drop(read(m)));
        }
    }
}
