//! Weights from files: whole files, sharded files, or single tensors without reading the rest of the file.

use crate::contain::contain;
use crate::handles;
use crate::mapped::map_file;
use crate::model::{read_file, read_regular};
use gradloom_core::engine::Bytes;
use gradloom_core::io::gguf::{self, Gguf};
use gradloom_core::io::safetensors::{self, SafeTensors};
use gradloom_core::io::{HostTensor, weights};
use gradloom_core::tensor::{Session, Tensor};
use gradloom_core::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// The tensors of a file (safetensors, GGUF, npz, `torch.save`), or of all files that a `.safetensors.index.json`
/// lists. Those lie beside the index; they may be symbolic links, as in download caches, and only safetensors files are
/// accepted.
pub fn load(path: &Path, session: &Session) -> Result<Vec<(String, Tensor)>> {
    contain(|| load_all(path, session, false))
}

/// The same with the files mapped into memory. They must stay unchanged for as long as the tensors live.
pub(crate) fn mapped(path: &Path, session: &Session) -> Result<Vec<(String, Tensor)>> {
    load_all(path, session, true)
}

fn load_all(path: &Path, session: &Session, map: bool) -> Result<Vec<(String, Tensor)>> {
    if path.extension().is_none_or(|e| e != "json") {
        return weights::tensors(session, if map { map_file(path)? } else { Bytes::new(read_file(path)?) });
    }
    let bytes = read_file(path)?;
    let index = safetensors::shards(&bytes)?;
    let mut files: Vec<&String> = index.iter().map(|e| &e.1).collect();
    files.sort_unstable();
    files.dedup();
    let mut out = Vec::with_capacity(index.len());
    for file in files {
        let path = path.with_file_name(file);
        let bytes = if map && path.is_file() { map_file(&path)? } else { Bytes::new(read_regular(&path)?) };
        let shard = safetensors::tensors(session, bytes)?;
        out.extend(shard.into_iter().filter(|t| index.iter().any(|e| e.0 == t.0 && e.1 == *file)));
    }
    match index.iter().find(|e| out.iter().all(|t| t.0 != e.0)) {
        Some((name, file)) => Err(Error::format("safetensors", format!("`{file}` lacks the tensor `{name}`"), None)),
        None => Ok(out),
    }
}

/// A safetensors or GGUF file of which only the index is in memory.
pub struct WeightFile {
    file: File,
    index: Index,
}

enum Index {
    SafeTensors(SafeTensors),
    Gguf(Gguf),
}

/// The number of bytes that are read first; enough for most indices, otherwise more is read.
const START: u64 = 1 << 20;

impl WeightFile {
    /// Reads the index of a file.
    pub fn open(path: &Path) -> Result<WeightFile> {
        contain(|| WeightFile::index(path))
    }

    fn index(path: &Path) -> Result<WeightFile> {
        let bad = |e: std::io::Error| Error::Input { name: path.display().to_string(), what: e.to_string() };
        let mut file = handles::open_regular(path).map_err(bad)?;
        let len = file.metadata().map_err(bad)?.len();
        let mut n = START.min(len);
        loop {
            let start = read(&mut file, 0..n)?;
            if !start.starts_with(b"GGUF") {
                let header = safetensors::header_len(&start, len)?;
                let start = if header > n { read(&mut file, 0..header)? } else { start };
                let index = Index::SafeTensors(SafeTensors::parse_header(&start, len)?);
                return Ok(WeightFile { file, index });
            }
            match Gguf::parse_header(&start, len) {
                Ok(index) => return Ok(WeightFile { file, index: Index::Gguf(index) }),
                Err(e) if n == len => return Err(e),
                Err(_) => n = n.saturating_mul(4).min(len),
            }
        }
    }

    /// The names of the tensors in file order.
    pub fn names(&self) -> Vec<&str> {
        match &self.index {
            Index::SafeTensors(i) => i.entries.iter().map(|e| e.name.as_str()).collect(),
            Index::Gguf(i) => i.entries.iter().map(|e| e.name.as_str()).collect(),
        }
    }

    /// Reads one tensor and nothing else of the file. Block-quantised GGUF tensors become f32.
    pub fn read(&mut self, name: &str) -> Result<HostTensor> {
        let missing = || Error::Input { name: name.to_owned(), what: "the file has no such tensor".into() };
        contain(|| match &self.index {
            Index::SafeTensors(i) => {
                let e = i.get(name).ok_or_else(missing)?;
                HostTensor::new(e.dtype, e.shape.clone(), read(&mut self.file, e.range.clone())?)
            }
            Index::Gguf(i) => {
                let e = i.entry(name).ok_or_else(missing)?;
                gguf::decode(e.kind, &e.shape, &read(&mut self.file, e.range.clone())?)
            }
        })
    }
}

fn read(file: &mut File, range: Range<u64>) -> Result<Vec<u8>> {
    let bad = |e: std::io::Error| Error::Input { name: "weights".into(), what: e.to_string() };
    file.seek(SeekFrom::Start(range.start)).map_err(bad)?;
    let mut out = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut out).map_err(bad)?;
    if out.len() as u64 != range.end - range.start {
        return Err(Error::format("weights", "the file ends within a tensor", Some(range.end)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_and_single_tensors_are_read() {
        let folder = std::env::temp_dir().join(format!("gradloom-weights-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let t = |v: f32| HostTensor::from_f32(vec![1], &[v]).unwrap();
        for (file, names) in [("m-1.safetensors", ["a", "b"]), ("m-2.safetensors", ["c", "d"])] {
            let list = names.map(|n| (n, t(f32::from(n.as_bytes()[0]))));
            let list: Vec<_> = list.iter().map(|(n, t)| (*n, t)).collect();
            std::fs::write(folder.join(file), weights::write(weights::Format::SafeTensors, &list).unwrap()).unwrap();
            let file = folder.join("x.gguf");
            std::fs::write(&file, weights::write(weights::Format::Gguf, &list).unwrap()).unwrap();
            let mut one = WeightFile::open(&file).unwrap();
            assert_eq!(one.names(), names);
            assert_eq!(one.read(names[1]).unwrap(), *list[1].1);
            assert!(one.read("e").is_err());
        }
        let index = folder.join("m.safetensors.index.json");
        let map = |c: &str| format!(r#"{{"weight_map":{{"a":"m-1.safetensors","c":"{c}"}}}}"#);
        std::fs::write(&index, map("m-2.safetensors")).unwrap();
        let session = Session::new();
        let names: Vec<String> = load(&index, &session).unwrap().into_iter().map(|t| t.0).collect();
        assert_eq!(names, ["a", "c"]);
        std::fs::write(&index, map("m-1.safetensors")).unwrap();
        assert!(load(&index, &session).is_err());
        let mut one = WeightFile::open(&folder.join("m-2.safetensors")).unwrap();
        assert_eq!(one.read("d").unwrap(), t(100.0));
        // Not every system removes files that are mapped
        drop((one, session));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
