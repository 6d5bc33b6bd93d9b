//! Reads and writes zip archives as `.npz` and `.pt` files use them: entries are stored or deflated, with zip64 where
//! sizes need it.
//!
//! The central directory is authoritative, and every local header must agree with it. Refused are encryption, other
//! compression methods, spanned archives, names that repeat or leave the archive (`..`, absolute, `\`), entries that
//! overlap each other or the directory, and contents larger than declared. A declared size is an upper bound, never a
//! reason to allocate more than the input's size justifies. Spec: PKWARE APPNOTE 6.3.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::util::sort;
use std::borrow::Cow;

use super::bytes::Cursor;
use crate::budget::Budget;
use crate::error::{Error, Result};

/// The largest ratio of unpacked to packed size of an entry that is accepted above [`FREE_SIZE`].
pub const MAX_RATIO: u64 = 1000;
/// All deflated entries together may be this many times as large as the file without being charged to the budget.
pub const FREE_RATIO: u64 = 32;
/// Unpacked size in bytes up to which the ratio is not checked: deflate reduces an all-zero array to a thousandth of
/// its size.
pub const FREE_SIZE: u64 = 64 << 20;
/// The largest unpacked size of all entries together, in bytes.
pub const MAX_TOTAL: u64 = 8 << 30;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;

/// An archive: its bytes and its parsed directory.
#[derive(Clone, Debug)]
pub struct Zip<'a> {
    file: &'a [u8],
    entries: Vec<Entry>,
}

/// One file of an archive.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its path.
    pub name: String,
    /// Its size when unpacked.
    pub size: u64,
    packed: u64,
    start: u64,
    deflated: bool,
    crc: u32,
}

impl Entry {
    /// The byte range of the content in the archive, if it is stored uncompressed.
    pub fn stored_range(&self) -> Option<std::ops::Range<usize>> {
        let range = usize::try_from(self.start).ok()?..usize::try_from(self.start.checked_add(self.packed)?).ok()?;
        (!self.deflated).then_some(range)
    }
}

fn err(what: impl Into<String>, at: u64) -> Error {
    Error::format("zip", what, Some(at))
}

impl<'a> Zip<'a> {
    /// Reads and checks the directory. Contents are not read.
    pub fn parse(file: &'a [u8]) -> Result<Zip<'a>> {
        let (count, size, start) = directory(file)?;
        let mut c = Cursor::at(file, start, "zip")?;
        // An entry takes at least 46 bytes of the directory.
        if count > size / 46 || size > file.len() as u64 {
            return Err(err(format!("{count} entries in a directory of {size} bytes"), start));
        }
        let mut entries = Vec::with_capacity(count as usize);
        let mut areas = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (entry, local) = central_entry(&mut c)?;
            let entry = locate(file, entry, local)?;
            areas.push((local, entry.start + entry.packed));
            entries.push(entry);
        }
        if c.pos() as u64 != start + size {
            return Err(err("the directory's size is wrong", start));
        }
        areas.push((start, start + size));
        sort::ascending(&mut areas);
        if let Some(w) = areas.windows(2).find(|w| w.first().map(|a| a.1) > w.last().map(|b| b.0)) {
            return Err(err("two entries overlap", w.last().map_or(0, |b| b.0)));
        }
        let mut names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
        sort::ascending(&mut names);
        if let Some(&[twice, _]) = names.windows(2).find(|w| w.first() == w.last()) {
            return Err(err(format!("the name `{twice}` appears twice"), start));
        }
        let total = entries.iter().try_fold(0u64, |n, e| n.checked_add(e.size));
        if total.is_none_or(|n| n > MAX_TOTAL) {
            return Err(err("the contents are too large", start));
        }
        // Many entries that are each below [`FREE_SIZE`] can be as large together as one that is above it.
        let unpacked = entries.iter().filter(|e| e.deflated).fold(0u64, |n, e| n.saturating_add(e.size));
        let free = (file.len() as u64).saturating_mul(FREE_RATIO);
        Budget::default().host_bytes(unpacked.saturating_sub(free)).grant()?;
        Ok(Zip { file, entries })
    }

    /// The entries in the order of the directory.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// An entry's content, borrowed if it is stored and unpacked if it is deflated; its checksum is verified.
    pub fn read(&self, entry: &Entry) -> Result<Cow<'a, [u8]>> {
        let bad = |what: &str| err(format!("`{}`: {what}", entry.name), entry.start);
        let packed = Cursor::at(self.file, entry.start, "zip")?.take(entry.packed as usize)?;
        let content = if entry.deflated {
            let size = usize::try_from(entry.size).map_err(|_| bad("too large for this machine"))?;
            Cow::Owned(inflate(packed, size).ok_or_else(|| bad("the deflated data is corrupt"))?)
        } else {
            Cow::Borrowed(packed)
        };
        if content.len() as u64 != entry.size {
            return Err(bad("its size is not the declared one"));
        }
        if crc32(&content) != entry.crc {
            return Err(bad("the checksum is wrong"));
        }
        Ok(content)
    }
}

/// Unpacks at most `size` bytes. The buffer grows with the data that really arrives, so a wrong declared size costs
/// nothing.
fn inflate(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    miniz_oxide::inflate::decompress_to_vec_with_limit(packed, size).ok()
}

/// Finds the central directory: (entries, bytes, offset).
fn directory(file: &[u8]) -> Result<(u64, u64, u64)> {
    // The end record has 22 bytes and is followed by a comment of at most 65,535, which must end with the file.
    let first = file.len().saturating_sub(22 + 65_535);
    let mut at = file.len().checked_sub(22).ok_or_else(|| err("too short", 0))?;
    loop {
        let mut c = Cursor::at(file, at as u64, "zip")?;
        if c.u32()? == END {
            let mut tail = Cursor::at(file, at as u64 + 20, "zip")?;
            if tail.u16()? as usize == file.len() - at - 22 {
                break;
            }
        }
        if at == first {
            return Err(err("no end-of-directory record", file.len() as u64));
        }
        at -= 1;
    }
    let mut c = Cursor::at(file, at as u64 + 4, "zip")?;
    let (disk, dir_disk, here, count) = (c.u16()?, c.u16()?, c.u16()?, c.u16()?);
    let (size, start) = (c.u32()?, c.u32()?);
    let end = at as u64;
    let wide = count == u16::MAX || size == u32::MAX || start == u32::MAX;
    if wide && end >= 20 {
        let mut c = Cursor::at(file, end - 20, "zip")?;
        if c.u32()? == LOCATOR64 {
            c.u32()?;
            return directory64(file, c.u64()?, end - 20);
        }
    }
    if disk != 0 || dir_disk != 0 || here != count {
        return Err(err("a spanned archive", end));
    }
    let (size, start) = (u64::from(size), u64::from(start));
    if start + size > end {
        return Err(err("the directory lies outside the file", end));
    }
    Ok((u64::from(count), size, start))
}

fn directory64(file: &[u8], at: u64, end: u64) -> Result<(u64, u64, u64)> {
    let mut c = Cursor::at(file, at, "zip")?;
    if c.u32()? != END64 {
        return Err(err("no zip64 end-of-directory record", at));
    }
    c.take(12)?; // record size, versions
    let (disk, dir_disk, here, count) = (c.u32()?, c.u32()?, c.u64()?, c.u64()?);
    let (size, start) = (c.u64()?, c.u64()?);
    if disk != 0 || dir_disk != 0 || here != count || at > end {
        return Err(err("a spanned archive", at));
    }
    match start.checked_add(size) {
        Some(n) if n <= at => Ok((count, size, start)),
        _ => Err(err("the directory lies outside the file", at)),
    }
}

/// Reads one directory record: the entry, and the offset of its local header.
fn central_entry(c: &mut Cursor<'_>) -> Result<(Entry, u64)> {
    let at = c.pos() as u64;
    if c.u32()? != CENTRAL {
        return Err(err("a directory entry expected", at));
    }
    c.take(4)?; // versions
    let (flags, method) = (c.u16()?, c.u16()?);
    c.take(4)?; // time
    let crc = c.u32()?;
    let (mut packed, mut size) = (u64::from(c.u32()?), u64::from(c.u32()?));
    let (name_len, extra_len, comment_len) = (c.u16()?, c.u16()?, c.u16()?);
    c.take(8)?; // disk, attributes
    let mut local = u64::from(c.u32()?);
    let name = std::str::from_utf8(c.take(name_len.into())?).map_err(|_| err("a name is not UTF-8", at))?;
    let extra = c.take(extra_len.into())?;
    c.take(comment_len.into())?;
    if flags & (1 | 1 << 6 | 1 << 13) != 0 {
        return Err(err(format!("`{name}` is encrypted"), at));
    }
    if !matches!(method, 0 | 8) {
        return Err(Error::Unsupported { what: format!("zip method {method}"), context: format!("entry `{name}`") });
    }
    check_name(name, at)?;
    let mut wide = None;
    for field in [&mut size, &mut packed, &mut local] {
        if *field == u64::from(u32::MAX) {
            let fields = match &mut wide {
                Some(fields) => fields,
                none => none.insert(zip64_fields(extra, at)?),
            };
            *field = fields.u64().map_err(|_| err("zip64 sizes are missing", at))?;
        }
    }
    let deflated = method == 8;
    if !deflated && packed != size {
        return Err(err(format!("`{name}` is stored with two sizes"), at));
    }
    if size > FREE_SIZE && size / MAX_RATIO > packed {
        return Err(err(format!("`{name}` would grow from {packed} to {size} bytes"), at));
    }
    Ok((Entry { name: name.to_owned(), size, packed, start: 0, deflated, crc }, local))
}

/// Finds the zip64 extra field: 8-byte values, present only for the sizes that need them, in the order of the header.
fn zip64_fields(extra: &[u8], at: u64) -> Result<Cursor<'_>> {
    let missing = |_| err("zip64 sizes are missing", at);
    let mut c = Cursor::new(extra, "zip");
    loop {
        let (id, len) = (c.u16().map_err(missing)?, c.u16().map_err(missing)?);
        let body = c.take(len.into()).map_err(missing)?;
        if id == 1 {
            return Ok(Cursor::new(body, "zip"));
        }
    }
}

/// Checks that a path stays inside the archive's folder and means the same on every system. A colon after more than one
/// letter (a drive) is allowed: Keras' tensors are named `kernel:0`.
fn check_name(name: &str, at: u64) -> Result<()> {
    let bad = name.is_empty()
        || name.starts_with('/')
        || name.contains(['\\', '\0'])
        || name.as_bytes().get(1) == Some(&b':')
        || name.split('/').any(|part| part == "..");
    if bad { Err(err(format!("the name {name:?} is not allowed"), at)) } else { Ok(()) }
}

/// Checks the local header at `at` against the directory, and sets where the entry's content starts.
fn locate(file: &[u8], mut entry: Entry, at: u64) -> Result<Entry> {
    let bad = |what: &str| err(format!("`{}`: {what}", entry.name), at);
    let mut c = Cursor::at(file, at, "zip")?;
    if c.u32()? != LOCAL {
        return Err(bad("no local header"));
    }
    c.take(2)?;
    let (flags, method) = (c.u16()?, c.u16()?);
    c.take(4)?;
    let (crc, packed, size) = (c.u32()?, c.u32()?, c.u32()?);
    let (name_len, extra_len) = (c.u16()?, c.u16()?);
    if c.take(name_len.into())? != entry.name.as_bytes() || (method == 8) != entry.deflated {
        return Err(bad("its local header disagrees with the directory"));
    }
    c.take(extra_len.into())?;
    // Bit 3: the sizes follow the content, and may be zero in the header.
    let later = flags & 8 != 0;
    let same = |local: u32, dir: u64| local == u32::MAX || u64::from(local) == dir || (later && local == 0);
    if !same(packed, entry.packed) || !same(size, entry.size) || !(crc == entry.crc || (later && crc == 0)) {
        return Err(bad("its local header disagrees with the directory"));
    }
    entry.start = c.pos() as u64;
    match entry.start.checked_add(entry.packed) {
        Some(end) if end <= file.len() as u64 => Ok(entry),
        _ => Err(err(format!("`{}` ends outside the file", entry.name), at)),
    }
}

/// CRC-32 (IEEE), with eight table lookups for each eight bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    static TABLE: [[u32; 256]; 8] = crc_table();
    let t = |i: usize, b: u32| TABLE.get(i).and_then(|t| t.get((b & 255) as usize)).copied().unwrap_or_default();
    let mut crc = !0u32;
    let mut chunks = bytes.chunks_exact(8);
    for c in &mut chunks {
        let mut w = [0; 8];
        w.copy_from_slice(c);
        let w = u64::from_le_bytes(w) ^ u64::from(crc);
        let (lo, hi) = (w as u32, (w >> 32) as u32);
        crc = t(7, lo)
            ^ t(6, lo >> 8)
            ^ t(5, lo >> 16)
            ^ t(4, lo >> 24)
            ^ t(3, hi)
            ^ t(2, hi >> 8)
            ^ t(1, hi >> 16)
            ^ t(0, hi >> 24);
    }
    for &b in chunks.remainder() {
        crc = t(0, crc ^ u32::from(b)) ^ (crc >> 8);
    }
    !crc
}

#[allow(clippy::indexing_slicing)] // evaluated at compile time
const fn crc_table() -> [[u32; 256]; 8] {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut k = 0;
        while k < 8 {
            c = if c & 1 != 0 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
            k += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = t[0][(t[k - 1][i] & 255) as usize] ^ (t[k - 1][i] >> 8);
            i += 1;
        }
        k += 1;
    }
    t
}

/// Writes an archive of stored entries. The same input gives the same bytes: times are fixed to 1980-01-01.
pub fn write(entries: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let too_large = |_| err("too large to write without zip64", 0);
    let mut out = Vec::with_capacity(entries.iter().map(|(n, b)| n.len() * 2 + b.len() + 76).sum::<usize>() + 22);
    let mut directory = Vec::new();
    for (name, bytes) in entries {
        check_name(name, 0)?;
        let offset = u32::try_from(out.len()).map_err(too_large)?;
        let size = u32::try_from(bytes.len()).map_err(too_large)?;
        let name_len = u16::try_from(name.len()).map_err(|_| err("a name is too long", 0))?;
        // version 20, flags (bit 11: UTF-8), stored, time, date; then crc, sizes, name and extra lengths
        let mut common = Vec::with_capacity(26);
        for v in [20u16, 1 << 11, 0, 0, 0x21] {
            common.extend(v.to_le_bytes());
        }
        for v in [crc32(bytes), size, size] {
            common.extend(v.to_le_bytes());
        }
        common.extend(name_len.to_le_bytes());
        common.extend([0; 2]);
        out.extend(LOCAL.to_le_bytes());
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(*bytes);
        directory.extend(CENTRAL.to_le_bytes());
        directory.extend(20u16.to_le_bytes());
        directory.extend(&common);
        directory.extend([0; 10]); // comment, disk, attributes
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = u32::try_from(out.len()).map_err(too_large)?;
    let size = u32::try_from(directory.len()).map_err(too_large)?;
    let count = u16::try_from(entries.len()).map_err(too_large)?;
    out.extend(directory);
    out.extend(END.to_le_bytes());
    out.extend([0; 4]);
    for v in [count, count] {
        out.extend(v.to_le_bytes());
    }
    out.extend(size.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::io::testing::mutate;

    /// One stored, one deflated and one zip64 entry, written by Python's zipfile.
    const SAMPLE: &[u8] = include_bytes!("../../../tests/fixtures/io/small.zip");

    fn all(file: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
        let zip = Zip::parse(file)?;
        zip.entries().iter().map(|e| Ok((e.name.clone(), zip.read(e)?.into_owned()))).collect()
    }

    fn offsets(file: &[u8], signature: u32) -> Vec<usize> {
        (0..file.len() - 3).filter(|&i| file[i..i + 4] == signature.to_le_bytes()).collect()
    }

    #[test]
    fn an_archive_of_python_is_read() {
        let files = all(SAMPLE).unwrap();
        assert_eq!(files[0], ("stored.txt".to_owned(), b"as it is".to_vec()));
        assert_eq!(files[1].0, "dir/deflated.txt");
        assert_eq!(files[1].1, b"abc".repeat(400));
        assert_eq!(files[2], ("wide.bin".to_owned(), vec![7; 100]));
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn archives_round_trip() {
        let list: [(&str, &[u8]); 3] = [("a.npy", b"one"), ("b", b""), ("d/e", &[9; 1000])];
        let file = write(&list).unwrap();
        let back = all(&file).unwrap();
        for ((n, b), (m, c)) in list.iter().zip(&back) {
            assert_eq!((n, *b), (&m.as_str(), c.as_slice()));
        }
        assert_eq!(all(&write(&[]).unwrap()).unwrap(), []);
        assert!(write(&[("../a", b"")]).is_err());
    }

    #[test]
    fn every_truncation_is_an_error() {
        for n in 0..SAMPLE.len() {
            assert!(all(&SAMPLE[..n]).is_err(), "at {n}");
        }
    }

    #[test]
    fn hostile_archives_are_errors() {
        assert!(all(&write(&[("a", b"1"), ("a", b"2")]).unwrap()).is_err(), "a name twice");
        for name in ["/abc.x", "../a.x", "a/../b", "..", "C:abc", "a\\bcd"] {
            let good = "x".repeat(name.len());
            let mut file = write(&[(&good, b"1")]).unwrap();
            for i in 0..file.len() - name.len() {
                if &file[i..i + name.len()] == good.as_bytes() {
                    file[i..i + name.len()].copy_from_slice(name.as_bytes());
                }
            }
            assert!(all(&file).is_err(), "{name}");
        }
        // Two directory entries refer to one local header.
        let mut file = write(&[("a", b"1"), ("b", b"1")]).unwrap();
        let second = offsets(&file, CENTRAL)[1];
        file[second + 42..second + 46].fill(0);
        file[second + 46] = b'a';
        assert!(all(&file).is_err(), "overlap");
        // In this order: declared sizes beyond the data, encryption, another method, a wrong checksum.
        let base = write(&[("a", b"12345678")]).unwrap();
        let dir = offsets(&base, CENTRAL)[0];
        for (at, value) in [(24, 200u8), (20, 200), (8, 1), (10, 12), (16, 0)] {
            let mut file = base.clone();
            file[dir + at] = value;
            assert!(all(&file).is_err(), "{at}");
        }
        let mut flipped = base.clone();
        flipped[32] ^= 1;
        assert!(all(&flipped).is_err(), "content");
    }

    #[test]
    fn a_deflated_entry_may_not_exceed_its_declared_size() {
        let mut file = SAMPLE.to_vec();
        for (signature, at, name_at) in [(LOCAL, 22, 30), (CENTRAL, 24, 46)] {
            let entry = offsets(&file, signature).into_iter().find(|&o| file[o + name_at] == b'd').unwrap();
            file[entry + at..entry + at + 4].copy_from_slice(&600u32.to_le_bytes());
        }
        assert!(Zip::parse(&file).is_ok());
        assert!(all(&file).is_err());
    }

    #[test]
    fn mutations_never_panic() {
        mutate(SAMPLE, 20_000, |m| drop(all(m)));
    }

    #[test]
    fn many_entries_that_grow_a_thousand_times_are_refused_together() {
        let part = vec![0u8; 64 << 10];
        let names: Vec<String> = (0..10).map(|i| format!("{i}.npy")).collect();
        let mut file = write(&names.iter().map(|n| (n.as_str(), &part[..])).collect::<Vec<_>>()).unwrap();
        // Each entry claims to be deflated, with an unpacked size of 60 MiB.
        for at in 0..file.len() - 4 {
            let (method, size) = match &file[at..at + 4] {
                b"PK\x03\x04" => (at + 8, at + 22),
                b"PK\x01\x02" => (at + 10, at + 24),
                _ => continue,
            };
            file[method] = 8;
            file[size..size + 4].copy_from_slice(&(60u32 << 20).to_le_bytes());
        }
        let e = Zip::parse(&file).err().expect("600 MiB of 640 kB");
        assert_eq!(e.code(), "E_BUDGET", "{e}");
    }
}
