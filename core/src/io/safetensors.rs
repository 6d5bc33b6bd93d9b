//! safetensors: named tensors in one file. Tensors are read as ranges of the file; writing is deterministic.
//!
//! Layout: u64 header length, a JSON header `{name: {dtype, shape, data_offsets}}`, then the data. Files are accepted
//! exactly if the format's own library accepts them: entries tile the data without gap or overlap, and sizes match
//! shapes. Spec: <https://huggingface.co/docs/safetensors>.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::util::sort;
use std::ops::Range;

use super::bytes::Cursor;
use super::json::{self, Json};
use super::{HostTensor, MAX_RANK, byte_count};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::tensor::{Session, Tensor};

/// The tensors of a whole file in a session, with their names, in the order of their data. They share the file's bytes
/// until a device needs them.
pub fn tensors(session: &Session, file: impl Into<Bytes>) -> Result<Vec<(String, Tensor)>> {
    let file = file.into();
    let index = SafeTensors::parse(&file)?;
    let one = |e: Entry| {
        let range = e.range.start as usize..e.range.end as usize;
        let bytes = file.slice(range).ok_or_else(|| err("a tensor lies outside of the file"))?;
        Ok((e.name, Tensor::from_bytes(session, e.dtype, &e.shape, bytes)?))
    };
    index.entries.into_iter().map(one).collect()
}

/// The longest header that is accepted, in bytes.
pub const MAX_HEADER: u64 = 100_000_000;

/// The index of a safetensors file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SafeTensors {
    /// The free-form `__metadata__` strings.
    pub metadata: Vec<(String, String)>,
    /// The tensors in the order of their data.
    pub entries: Vec<Entry>,
}

/// One tensor of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its name, unique in the file.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Byte range of its data, relative to the start of the file.
    pub range: Range<u64>,
}

fn err(what: impl Into<String>) -> Error {
    Error::format("safetensors", what, None)
}

const NAMES: [(&str, DType); 13] = [
    ("BOOL", DType::Bool),
    ("U8", DType::U8),
    ("I8", DType::I8),
    ("U16", DType::U16),
    ("I16", DType::I16),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("U32", DType::U32),
    ("I32", DType::I32),
    ("F32", DType::F32),
    ("U64", DType::U64),
    ("I64", DType::I64),
    ("F64", DType::F64),
];

/// Size of the header in bytes, including its length field, from the first 8 bytes of a file of `file_len` bytes.
pub fn header_len(start: &[u8], file_len: u64) -> Result<u64> {
    let n = Cursor::new(start, "safetensors").u64()?;
    if n > MAX_HEADER || n > file_len.saturating_sub(8) {
        return Err(Error::format("safetensors", format!("a header of {n} bytes in a file of {file_len}"), Some(0)));
    }
    Ok(n + 8)
}

impl SafeTensors {
    /// Reads the index of a whole file.
    pub fn parse(file: &[u8]) -> Result<SafeTensors> {
        SafeTensors::parse_header(file, file.len() as u64)
    }

    /// Reads the index from the start of a file of `file_len` bytes, at least [`header_len`] bytes of it, so that
    /// weights can be streamed.
    pub fn parse_header(start: &[u8], file_len: u64) -> Result<SafeTensors> {
        let data_start = header_len(start, file_len)?;
        let header = Cursor::at(start, 8, "safetensors")?.take(data_start as usize - 8)?;
        if header.first() != Some(&b'{') {
            return Err(Error::format("safetensors", "the header does not start with `{`", Some(8)));
        }
        let header = Json::parse(header).map_err(|e| match e {
            Error::Format { what, at, .. } => Error::Format { format: "safetensors", what, at: at.map(|o| o + 8) },
            e => e,
        })?;
        let mut index = SafeTensors::default();
        for (name, value) in header.as_object().unwrap_or_default() {
            if name == "__metadata__" {
                for (k, v) in value.as_object().ok_or_else(|| err("`__metadata__` is not an object"))? {
                    let v = v.as_str().ok_or_else(|| err(format!("metadata `{k}` is not a string")))?;
                    index.metadata.push((k.clone(), v.to_owned()));
                }
            } else {
                index.entries.push(entry(name, value, data_start, file_len)?);
            }
        }
        sort::by_key(&mut index.entries, |e| (e.range.start, e.range.end));
        let mut end = data_start;
        for e in &index.entries {
            if e.range.start != end {
                let how = if e.range.start < end { "overlaps another" } else { "leaves a gap before it" };
                return Err(err(format!("the data of `{}` {how}", e.name)));
            }
            end = e.range.end;
        }
        if end != file_len {
            return Err(err(format!("the tensors end at byte {end} of {file_len}")));
        }
        Ok(index)
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }
}

/// Reads the index of a model in several files (`model.safetensors.index.json`): each tensor's name with the file that
/// holds it. File names that would leave the index's folder are refused.
pub fn shards(index: &[u8]) -> Result<Vec<(String, String)>> {
    let json = Json::parse(index)?;
    let map = json.get("weight_map").and_then(Json::as_object).ok_or_else(|| err("an index without `weight_map`"))?;
    let one = |(name, file): &(String, Json)| {
        let file = file.as_str().unwrap_or_default();
        if file.is_empty() || file.starts_with('.') || file.contains(['/', '\\', ':', '%', '?', '#', '\0']) {
            return Err(err(format!("the index has the file name {file:?} for `{name}`")));
        }
        Ok((name.clone(), file.to_owned()))
    };
    map.iter().map(one).collect()
}

impl Entry {
    /// This tensor's bytes in `file`.
    pub fn bytes<'a>(&self, file: &'a [u8]) -> Result<&'a [u8]> {
        let range = usize::try_from(self.range.start).ok().zip(usize::try_from(self.range.end).ok());
        range.and_then(|(a, b)| file.get(a..b)).ok_or_else(|| err(format!("`{}` lies outside the file", self.name)))
    }

    /// A copy of this tensor.
    pub fn to_host(&self, file: &[u8]) -> Result<HostTensor> {
        HostTensor::new(self.dtype, self.shape.clone(), self.bytes(file)?.to_vec())
    }
}

fn entry(name: &str, value: &Json, data_start: u64, file_len: u64) -> Result<Entry> {
    let bad = |what: &str| err(format!("tensor `{name}`: {what}"));
    for (key, _) in value.as_object().ok_or_else(|| bad("not an object"))? {
        if !matches!(key.as_str(), "dtype" | "shape" | "data_offsets") {
            return Err(bad(&format!("unknown key `{key}`")));
        }
    }
    let dtype = value.get("dtype").and_then(Json::as_str).ok_or_else(|| bad("no dtype"))?;
    let Some(&(_, dtype)) = NAMES.iter().find(|(n, _)| *n == dtype) else {
        return Err(Error::Unsupported {
            what: format!("dtype {dtype}"),
            context: format!("safetensors tensor `{name}`"),
        });
    };
    let dims = value.get("shape").and_then(Json::as_array).ok_or_else(|| bad("no shape"))?;
    if dims.len() > MAX_RANK {
        return Err(bad("too many dimensions"));
    }
    let dim = |d: &Json| d.as_u64().and_then(|d| usize::try_from(d).ok());
    let shape: Vec<usize> = dims.iter().map(dim).collect::<Option<_>>().ok_or_else(|| bad("a bad dimension"))?;
    let size = byte_count(dtype, &shape).ok_or_else(|| bad("its size overflows"))?;
    let offsets = value.get("data_offsets").and_then(Json::as_array).unwrap_or_default();
    let (Some(a), Some(b), 2) =
        (offsets.first().and_then(Json::as_u64), offsets.last().and_then(Json::as_u64), offsets.len())
    else {
        return Err(bad("data_offsets are not two offsets"));
    };
    if a > b || b > file_len - data_start || b - a != size as u64 {
        return Err(bad(&format!("offsets {a}..{b} do not fit shape {shape:?} of {dtype}")));
    }
    Ok(Entry { name: name.to_owned(), dtype, shape, range: data_start + a..data_start + b })
}

/// Writes tensors (name, dtype, shape, bytes). They are sorted by element size, largest first, then by name, so that
/// the same content gives the same file and every tensor is aligned to its element size. The header is padded to 8
/// bytes.
pub fn write(tensors: &[(&str, DType, &[usize], &[u8])], metadata: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut order: Vec<_> = tensors.iter().collect();
    sort::by(&mut order, |a, b| b.1.size().cmp(&a.1.size()).then_with(|| a.0.cmp(b.0)));
    let mut names: Vec<&str> = tensors.iter().map(|t| t.0).collect();
    sort::ascending(&mut names);
    if let Some(&[twice, _]) = names.windows(2).find(|w| w.first() == w.last()) {
        return Err(err(format!("the name `{twice}` appears twice")));
    }
    let mut header = String::from("{");
    let comma = |h: &mut String| {
        if h.len() > 1 {
            h.push(',')
        }
    };
    if !metadata.is_empty() {
        header.push_str("\"__metadata__\":{");
        for (i, (k, v)) in metadata.iter().enumerate() {
            header.push_str(if i > 0 { "," } else { "" });
            json::write_str(&mut header, k);
            header.push(':');
            json::write_str(&mut header, v);
        }
        header.push('}');
    }
    let mut offset = 0usize;
    for &&(name, dtype, shape, bytes) in &order {
        if name == "__metadata__" || byte_count(dtype, shape) != Some(bytes.len()) {
            return Err(err(format!("tensor `{name}` can not be written: {dtype} {shape:?}, {} bytes", bytes.len())));
        }
        let Some((dtype, _)) = NAMES.iter().find(|(_, d)| *d == dtype) else {
            return Err(err(format!("tensor `{name}` has no storable dtype")));
        };
        comma(&mut header);
        json::write_str(&mut header, name);
        let end = offset + bytes.len();
        header.push_str(&format!(":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{offset},{end}]}}"));
        offset = end;
    }
    header.push('}');
    header.push_str(" ".repeat(header.len().next_multiple_of(8) - header.len()).as_str());
    let mut out = Vec::with_capacity(8 + header.len() + offset);
    out.extend((header.len() as u64).to_le_bytes());
    out.extend(header.as_bytes());
    for t in order {
        out.extend(t.3);
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::io::testing::mutate;

    /// Written by the python package; see tests/fixtures/README.md.
    const SAMPLE: &[u8] = include_bytes!("../../../tests/fixtures/io/small.safetensors");

    fn with_header(header: &str, data: usize) -> Vec<u8> {
        let mut f = (header.len() as u64).to_le_bytes().to_vec();
        f.extend(header.as_bytes());
        f.resize(f.len() + data, 0);
        f
    }

    #[test]
    fn a_file_of_the_reference_library_is_read() {
        let st = SafeTensors::parse(SAMPLE).unwrap();
        assert_eq!(st.metadata, [("format".to_owned(), "pt".to_owned())]);
        let t = |n: &str| st.get(n).unwrap().to_host(SAMPLE).unwrap();
        assert_eq!(t("weight"), HostTensor::from_f32(vec![2, 3], &[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]).unwrap());
        assert_eq!(t("steps"), HostTensor::from_i64(vec![], &[-7]).unwrap());
        assert_eq!(t("half").to_f64(), [1.0, -2.0, 65504.0]);
        assert_eq!(t("mask").data, [1, 0, 1]);
        assert_eq!(t("none").shape, [0, 4]);
        assert_eq!(st.entries.len(), 5);
    }

    #[test]
    fn writing_round_trips_and_is_deterministic() {
        let st = SafeTensors::parse(SAMPLE).unwrap();
        let mut list: Vec<_> =
            st.entries.iter().map(|e| (&*e.name, e.dtype, &*e.shape, e.bytes(SAMPLE).unwrap())).collect();
        let one = write(&list, &[("format", "pt")]).unwrap();
        list.reverse();
        assert_eq!(write(&list, &[("format", "pt")]).unwrap(), one);
        let again = SafeTensors::parse(&one).unwrap();
        for e in &st.entries {
            assert_eq!(again.get(&e.name).unwrap().to_host(&one).unwrap(), e.to_host(SAMPLE).unwrap());
        }
        assert!(again.entries.iter().all(|e| e.range.start % e.dtype.size() as u64 == 0));
        assert_eq!(SafeTensors::parse(&write(&[], &[]).unwrap()).unwrap().entries, []);
        assert!(write(&[list[0], list[0]], &[]).is_err());
    }

    #[test]
    fn every_truncation_is_an_error() {
        for n in 0..SAMPLE.len() {
            assert!(SafeTensors::parse(&SAMPLE[..n]).is_err(), "at {n}");
        }
        let longer = [SAMPLE, &[0]].concat();
        assert!(SafeTensors::parse(&longer).is_err());
    }

    #[test]
    fn hostile_headers_are_errors() {
        let t = |shape: &str, a: &str, b: &str| {
            format!(r#"{{"x":{{"dtype":"F32","shape":{shape},"data_offsets":[{a},{b}]}}}}"#)
        };
        assert!(SafeTensors::parse(&with_header(&t("[2]", "0", "8"), 8)).is_ok());
        for (shape, a, b) in [
            ("[2]", "0", "9"),
            ("[2]", "8", "0"),
            ("[2]", "-8", "0"),
            ("[4611686018427387904]", "0", "8"),
            ("[0,9223372036854775807,9223372036854775807]", "0", "0"),
            ("[2.0]", "0", "8"),
            ("[2]", "9223372036854775800", "9223372036854775807"),
            ("[[2]]", "0", "8"),
        ] {
            assert!(SafeTensors::parse(&with_header(&t(shape, a, b), 8)).is_err(), "{shape} {a} {b}");
        }
        let two = |o: &str| {
            format!(
                r#"{{"x":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},"y":{{"dtype":"U8","shape":[4],"data_offsets":{o}}}}}"#
            )
        };
        assert!(SafeTensors::parse(&with_header(&two("[4,8]"), 8)).is_ok());
        assert!(SafeTensors::parse(&with_header(&two("[2,6]"), 8)).is_err(), "overlap");
        assert!(SafeTensors::parse(&with_header(&two("[5,9]"), 9)).is_err(), "gap");
        assert!(SafeTensors::parse(&with_header("[]", 0)).is_err());
        let f8 = SafeTensors::parse(&with_header(r#"{"x":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}"#, 1));
        assert_eq!(f8.unwrap_err().code(), "E_UNSUPPORTED");
        let mut huge = with_header("{}", 0);
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(SafeTensors::parse(&huge).is_err());
    }

    #[test]
    fn an_index_names_files_of_its_folder() {
        let index = |file: &str| shards(format!(r#"{{"weight_map":{{"a":"{file}","b":"x.safetensors"}}}}"#).as_bytes());
        let want = [("a".to_owned(), "m-1.safetensors".to_owned()), ("b".to_owned(), "x.safetensors".to_owned())];
        assert_eq!(index("m-1.safetensors").unwrap(), want);
        for bad in ["", "../m", "/m", "a/b", "..", "c:m", "http://x", "%2e%2e", "m?x"] {
            assert!(index(bad).is_err(), "{bad}");
        }
        assert!(shards(b"{}").is_err());
    }

    #[test]
    fn mutations_never_panic() {
        mutate(SAMPLE, 20_000, |m| {
            if let Ok(st) = SafeTensors::parse(m) {
                st.entries.iter().for_each(|e| drop(e.to_host(m).unwrap()));
            }
        });
    }
}
