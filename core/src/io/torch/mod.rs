//! Reads weights that `torch.save` wrote: zip archives, and the format before PyTorch 1.6. No code in a file is
//! executed.
//!
//! Tensors are found in dictionaries, lists and tuples, also nested, and named by the path to them:
//! `model.conv.weight`. Other plain values (numbers, strings) are skipped; an object of any class is an error that
//! names it. A storage shared by several tensors is read once; strides are honoured.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

mod pickle;
#[cfg(test)]
mod tests;

use super::bytes::Cursor;
use super::zip::Zip;
use super::{HostTensor, byte_count};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::tensor::{Session, Tensor};
use crate::util::sort;
use pickle::{Machine, Value, View, err};
use std::ops::Range;

/// The deepest nesting of containers that is accepted.
const MAX_DEPTH: usize = 32;
/// The most values below the root, counting each path to one.
const MAX_TENSORS: usize = 1 << 20;
/// The magic number of the old format, as the bytes of a pickled long.
const OLD_MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// Bytes that copies of strided tensors may take in addition to four times the file.
const FREE_BYTES: usize = 64 << 20;

/// The tensors of a file.
#[derive(Debug)]
pub struct Torch {
    /// In file order.
    pub entries: Vec<Entry>,
    /// The byte range of each storage in the file.
    storages: Vec<Range<usize>>,
}

/// One tensor: a strided view of a storage.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The path to it, its parts joined by dots.
    pub name: String,
    view: View,
}

impl Entry {
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.view.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.view.shape
    }
}

/// The tensors of a whole file in a session, with their names, in file order. Contiguous tensors share the file's
/// bytes, and equal views of one storage (tied weights) become one tensor.
pub fn tensors(session: &Session, file: &Bytes) -> Result<Vec<(String, Tensor)>> {
    let index = Torch::parse(file)?;
    let mut out: Vec<(String, Tensor)> = Vec::with_capacity(index.entries.len());
    let mut known: Vec<(&View, usize)> = Vec::new();
    for (i, e) in index.entries.iter().enumerate() {
        let twin = known.binary_search_by_key(&order(&e.view), |k| order(k.0));
        let of = twin.ok().and_then(|t| known.get(t)).filter(|k| *k.0 == e.view).and_then(|k| out.get(k.1));
        if let Some((_, t)) = of {
            let t = t.clone();
            out.push((e.name.clone(), t));
            continue;
        }
        known.insert(twin.unwrap_or_else(|at| at), (&e.view, i));
        let range = index.contiguous(e).filter(|r| {
            let bits = e.dtype() == DType::Bool && file.get(r.clone()).is_none_or(|b| b.iter().any(|&b| b > 1));
            !bits
        });
        let bytes = match range.and_then(|r| file.slice(r)) {
            Some(bytes) => bytes,
            None => Bytes::new(index.to_host(file, e)?.data),
        };
        out.push((e.name.clone(), Tensor::from_bytes(session, e.dtype(), e.shape(), bytes)?));
    }
    Ok(out)
}

fn order(v: &View) -> (usize, u64) {
    (v.storage, v.offset)
}

impl Torch {
    /// Reads the index of a whole file.
    pub fn parse(file: &[u8]) -> Result<Torch> {
        if file.starts_with(b"PK") { new_format(file) } else { old_format(file) }
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// The byte range of an entry's elements in the file, if they are contiguous in C order.
    fn contiguous(&self, e: &Entry) -> Option<Range<usize>> {
        if e.view.shape.contains(&0) {
            return Some(0..0);
        }
        let mut expected = 1u64;
        for (&d, &s) in e.view.shape.iter().zip(&e.view.strides).rev() {
            if d != 1 && s != expected {
                return None;
            }
            expected = expected.checked_mul(d as u64)?;
        }
        let size = e.dtype().size();
        let start =
            self.storages.get(e.view.storage)?.start + usize::try_from(e.view.offset).ok()?.checked_mul(size)?;
        Some(start..start.checked_add(byte_count(e.dtype(), e.shape())?)?)
    }

    /// A copy of a tensor in C order.
    pub fn to_host(&self, file: &[u8], e: &Entry) -> Result<HostTensor> {
        let outside = || err(format!("`{}` lies outside of its storage", e.name));
        let size = e.dtype().size();
        let bytes = byte_count(e.dtype(), e.shape()).ok_or_else(outside)?;
        let mut data = match self.contiguous(e) {
            Some(r) => file.get(r).ok_or_else(outside)?.to_vec(),
            None => {
                let storage =
                    self.storages.get(e.view.storage).and_then(|r| file.get(r.clone())).ok_or_else(outside)?;
                strided(storage, &e.view, size, bytes)
            }
        };
        if e.dtype() == DType::Bool {
            data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        HostTensor::new(e.dtype(), e.shape().to_vec(), data)
    }
}

/// Copies a strided view, all of whose elements are known to lie inside the storage.
fn strided(storage: &[u8], v: &View, size: usize, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    let mut index = vec![0usize; v.shape.len()];
    let mut at = v.offset as usize;
    while out.len() < bytes {
        out.extend(storage.get(at * size..(at + 1) * size).unwrap_or_default());
        for ((i, &d), &s) in index.iter_mut().zip(&v.shape).zip(&v.strides).rev() {
            *i += 1;
            at += s as usize;
            if *i < d {
                break;
            }
            at -= *i * s as usize;
            *i = 0;
        }
    }
    out
}

fn new_format(file: &[u8]) -> Result<Torch> {
    let zip = Zip::parse(file)?;
    let index = zip.entries().iter().find(|e| e.name.ends_with("/data.pkl"));
    let index =
        index.ok_or_else(|| err("an archive without `data.pkl`: TorchScript and other archives are not read"))?;
    let folder = index.name.trim_end_matches("data.pkl");
    let little = |e| zip.read(e).map(|order| &*order == b"little");
    if !zip.get(&format!("{folder}byteorder")).map_or(Ok(true), little)? {
        return Err(Error::Unsupported { what: "big-endian storages".into(), context: "torch".into() });
    }
    if zip.get(&format!("{folder}constants.pkl")).is_some() {
        return Err(Error::Unsupported { what: "a TorchScript archive".into(), context: "torch".into() });
    }
    let text = zip.read(index)?;
    let mut machine = Machine::default();
    let root = machine.run(&mut Cursor::new(&text, "torch"), text.len())?;
    let mut ranges = Vec::with_capacity(machine.storages.len());
    for s in &machine.storages {
        let name = format!("{folder}data/{}", s.key);
        let entry = zip.get(&name).ok_or_else(|| err(format!("the storage `{name}` is missing")))?;
        zip.read(entry)?; // only to verify the checksum
        let range = entry.stored_range();
        ranges.push(range.ok_or_else(|| err(format!("the storage `{name}` is compressed")))?);
    }
    finish(file, &machine, &root, ranges)
}

fn old_format(file: &[u8]) -> Result<Torch> {
    let mut c = Cursor::new(file, "torch");
    let mut machine = Machine::default();
    let magic = machine.run(&mut c, 0).map_err(|_| err("neither a zip archive nor a pickle of torch"))?;
    if !matches!(&magic, Value::Long(raw) if **raw == OLD_MAGIC) {
        return Err(err("neither a zip archive nor a file with the magic number of the old format"));
    }
    if !matches!(machine.run(&mut c, 0)?, Value::Int(1001)) {
        return Err(err("an unknown version of the old format"));
    }
    machine.run(&mut c, 0)?; // the writer's integer sizes and byte order
    let root = machine.run(&mut c, file.len())?;
    let keys = machine.run(&mut c, file.len())?;
    let keys = match keys {
        Value::List(i) => machine.lists.get(i).cloned().unwrap_or_default(),
        _ => return Err(err("the list of storages is missing")),
    };
    let mut ranges = vec![None; machine.storages.len()];
    for key in keys {
        let Value::Str(key) = key else { return Err(err("a storage without a key")) };
        let (i, storage) = machine
            .storages
            .iter()
            .enumerate()
            .find(|(_, s)| *s.key == *key)
            .ok_or_else(|| err(format!("nothing uses the storage `{key}`")))?;
        let elems = c.u64()?;
        if elems != storage.elems {
            return Err(c.error(format!("storage `{key}` has {elems} elements, not {}", storage.elems)));
        }
        let bytes = byte_len(storage).ok_or_else(|| c.error("a storage's size overflows"))?;
        let start = c.pos();
        c.take(bytes)?;
        if let Some(r) = ranges.get_mut(i) {
            *r = Some(start..start + bytes);
        }
    }
    let ranges = ranges.into_iter().collect::<Option<_>>().ok_or_else(|| err("a storage is missing"))?;
    finish(file, &machine, &root, ranges)
}

fn byte_len(s: &pickle::Storage) -> Option<usize> {
    usize::try_from(s.elems).ok()?.checked_mul(s.dtype.map_or(1, DType::size))
}

/// Names the tensors below the root, and checks that each lies inside its storage.
fn finish(file: &[u8], m: &Machine, root: &Value, storages: Vec<Range<usize>>) -> Result<Torch> {
    for (s, r) in m.storages.iter().zip(&storages) {
        if byte_len(s).is_none_or(|n| n > r.len()) {
            return Err(err(format!("storage `{}` is shorter than it says", s.key)));
        }
    }
    let mut torch = Torch { entries: Vec::new(), storages };
    let mut left = MAX_TENSORS;
    collect(m, root, "", MAX_DEPTH, &mut left, &mut torch.entries)?;
    let mut names: Vec<&str> = torch.entries.iter().map(|e| e.name.as_str()).collect();
    sort::ascending(&mut names);
    if let Some(&[twice, _]) = names.windows(2).find(|w| w.first() == w.last()) {
        return Err(err(format!("two tensors are named `{twice}`")));
    }
    let mut copies = file.len().saturating_mul(4).saturating_add(FREE_BYTES);
    for e in &torch.entries {
        let held = torch.storages.get(e.view.storage).map_or(0, |r| r.len());
        let bytes = extent(&e.view).filter(|&n| n <= held as u64).and_then(|_| byte_count(e.dtype(), e.shape()));
        let bytes = bytes.ok_or_else(|| err(format!("`{}` lies outside of its storage", e.name)))?;
        if torch.contiguous(e).is_none() {
            copies = copies.checked_sub(bytes).ok_or_else(|| err("strided tensors are far larger than their file"))?;
        }
    }
    Ok(torch)
}

/// The offset in bytes just after the last element of a view.
fn extent(v: &View) -> Option<u64> {
    if v.shape.contains(&0) {
        return Some(0);
    }
    let mut last = v.offset;
    for (&d, &s) in v.shape.iter().zip(&v.strides) {
        last = last.checked_add((d as u64 - 1).checked_mul(s)?)?;
    }
    last.checked_add(1)?.checked_mul(v.dtype.size() as u64)
}

fn collect(m: &Machine, v: &Value, path: &str, depth: usize, left: &mut usize, out: &mut Vec<Entry>) -> Result<()> {
    *left = left.checked_sub(1).ok_or_else(|| err("too many values"))?;
    let join = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
    let Some(below) = depth.checked_sub(1) else { return Err(err(format!("`{path}` is nested too deep"))) };
    match v {
        Value::Tensor(view) => {
            let name = if path.is_empty() { "tensor" } else { path };
            out.push(Entry { name: name.to_owned(), view: (**view).clone() });
        }
        Value::Dict(i) => {
            for (k, v) in m.dicts.get(*i).into_iter().flatten() {
                match k {
                    Value::Str(k) => collect(m, v, &join(k), below, left, out)?,
                    Value::Int(k) => collect(m, v, &join(&k.to_string()), below, left, out)?,
                    _ => {}
                }
            }
        }
        Value::List(_) | Value::Tuple(_) => {
            let items: &[Value] = match v {
                Value::List(i) => m.lists.get(*i).map_or(&[], |l| l),
                Value::Tuple(i) => m.tuples.get(*i).map_or(&[], |t| t),
                _ => &[],
            };
            for (k, v) in items.iter().enumerate() {
                collect(m, v, &join(&k.to_string()), below, left, out)?;
            }
        }
        _ => {}
    }
    Ok(())
}
