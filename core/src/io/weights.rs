//! Reads and writes files of named tensors in any supported format. The format is recognised by the first bytes (and
//! the names in a zip archive), never by trying one parser after another.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::zip::Zip;
use super::{HostTensor, gguf, npz, safetensors, torch};
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::tensor::{Session, Tensor};

/// A file format for named tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// [`safetensors`]
    SafeTensors,
    /// [`gguf`]
    Gguf,
    /// [`torch`], old and new format; read only.
    Torch,
    /// [`npz`]
    Npz,
}

impl Format {
    /// The format of a whole file.
    pub fn of(file: &[u8]) -> Result<Format> {
        if file.starts_with(b"GGUF") {
            Ok(Format::Gguf)
        } else if file.get(6..9) == Some(b"\0\0{") {
            // The header's length comes first and may begin with any bytes, even another format's magic number, but its
            // upper bytes are 0.
            Ok(Format::SafeTensors)
        } else if file.starts_with(b"PK") {
            let pickle = Zip::parse(file)?.entries().iter().any(|e| e.name.ends_with("data.pkl"));
            Ok(if pickle { Format::Torch } else { Format::Npz })
        } else if file.starts_with(b"\x80\x02\x8a\x0a") {
            Ok(Format::Torch)
        } else {
            Err(Error::format("weights", "neither safetensors, GGUF, npz nor a file of torch.save", Some(0)))
        }
    }

    /// The format that a file name's extension stands for.
    pub fn of_name(name: &str) -> Option<Format> {
        match name.rsplit_once('.')?.1 {
            "safetensors" => Some(Format::SafeTensors),
            "gguf" => Some(Format::Gguf),
            "npz" => Some(Format::Npz),
            "pt" | "pth" => Some(Format::Torch),
            _ => None,
        }
    }
}

/// The tensors of a whole file in a session, with their names. They share the file's bytes where the format allows it.
pub fn tensors(session: &Session, file: impl Into<Bytes>) -> Result<Vec<(String, Tensor)>> {
    let file = file.into();
    match Format::of(&file)? {
        Format::SafeTensors => safetensors::tensors(session, file),
        Format::Gguf => gguf::tensors(session, &file),
        Format::Torch => torch::tensors(session, &file),
        Format::Npz => {
            let one = |(name, t): (String, HostTensor)| {
                Ok((name, Tensor::from_bytes(session, t.dtype, &t.shape, Bytes::new(t.data))?))
            };
            npz::read(&file)?.into_iter().map(one).collect()
        }
    }
}

/// The bytes of a file with these named tensors.
pub fn write(format: Format, tensors: &[(&str, &HostTensor)]) -> Result<Vec<u8>> {
    match format {
        Format::SafeTensors => {
            let list: Vec<_> =
                tensors.iter().map(|(n, t)| (*n, t.dtype, t.shape.as_slice(), t.data.as_slice())).collect();
            safetensors::write(&list, &[])
        }
        Format::Npz => npz::write(tensors),
        Format::Gguf => {
            let mut list = Vec::with_capacity(tensors.len());
            for (name, t) in tensors {
                let kind = gguf::Kind::of(t.dtype).ok_or_else(|| Error::Unsupported {
                    what: format!("{} in GGUF", t.dtype),
                    context: format!("tensor `{name}`"),
                })?;
                list.push(gguf::Data { name, kind, shape: &t.shape, bytes: &t.data });
            }
            gguf::write(&[], &list)
        }
        Format::Torch => Err(Error::Unsupported { what: "writing of torch files".into(), context: "weights".into() }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart_and_round_trip() {
        let (a, b) = (HostTensor::from_f32(vec![2], &[1.0, 2.0]).unwrap(), HostTensor::from_i64(vec![], &[7]).unwrap());
        for format in [Format::SafeTensors, Format::Npz, Format::Gguf] {
            let file = write(format, &[("a", &a), ("b", &b)]).unwrap();
            assert_eq!(Format::of(&file).unwrap(), format);
            let list = tensors(&Session::new(), file).unwrap();
            let mut shapes: Vec<_> = list.iter().map(|(n, t)| (n.as_str(), t.dtype(), t.shape())).collect();
            shapes.sort_by_key(|s| s.0);
            assert_eq!(shapes, [("a", a.dtype, vec![2]), ("b", b.dtype, vec![])]);
        }
        assert_eq!(Format::of(include_bytes!("../../../tests/fixtures/io/torch_zip.pt")).unwrap(), Format::Torch);
        assert_eq!(Format::of(include_bytes!("../../../tests/fixtures/io/torch_old.pt")).unwrap(), Format::Torch);
        // With a header of 0x4b50 bytes the file begins with "PK", as a zip archive does.
        let text = "x".repeat(0x4b50 - r#"{"__metadata__":{"k":""}}"#.len());
        let file = safetensors::write(&[], &[("k", &text)]).unwrap();
        assert!(file.starts_with(b"PK"));
        assert_eq!(Format::of(&file).unwrap(), Format::SafeTensors);
        assert!(Format::of(b"").is_err() && Format::of(b"\x93NUMPY").is_err());
    }
}
