//! Weight files mapped into memory: the system reads pages when they are first used, and processes share them.

use crate::handles;
use crate::model::read_file;
use gradloom_core::engine::{Bytes, HostBytes};
use gradloom_core::{Error, Result};
use memmap2::Mmap;
#[cfg(unix)]
use std::ops::Range;
use std::path::Path;

/// A page size in bytes that is a multiple of every system's.
#[cfg(unix)]
const PAGE: usize = 64 << 10;

/// A mapped file.
struct Mapped(Mmap);

impl HostBytes for Mapped {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the whole pages of the range to the system. When they are read again, they come from the system's file
    /// cache or from the file.
    #[cfg(unix)]
    fn release_hint(&self, range: Range<usize>) {
        let (begin, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
        if begin < end {
            // SAFETY: the map shares the file's pages and nothing writes to it, so that what is dropped is there again when it is read.
            let _ = unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, begin, end - begin) };
        }
    }
}

/// The bytes of a file, mapped into memory. The file must stay as it is while they are in use: if it becomes shorter
/// meanwhile, the process ends. What is not a regular file is read instead.
///
/// # Errors
/// `E_INPUT` for a file that cannot be read.
pub(crate) fn map_file(path: &Path) -> Result<Bytes> {
    let bad = |e: std::io::Error| Error::Input { name: path.display().to_string(), what: e.to_string() };
    let known = std::fs::metadata(path).map_err(bad)?;
    if !known.is_file() || known.len() == 0 {
        return read_file(path).map(Bytes::new);
    }
    let file = handles::open_regular(path).map_err(bad)?;
    // SAFETY: nothing here writes to the file, and callers are told that nobody else may.
    let map = unsafe { Mmap::map(&file) };
    match map {
        Ok(map) => {
            // All of it will be read, so the system may start now
            #[cfg(unix)]
            let _ = map.advise(memmap2::Advice::WillNeed);
            Ok(Bytes::of(std::sync::Arc::new(Mapped(map))))
        }
        // Some file systems cannot map files
        Err(_) => read_file(path).map(Bytes::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_rested_are_there_again() {
        let path = std::env::temp_dir().join(format!("gradloom-rest-{}", std::process::id()));
        let all: Vec<u8> = (0..400_000u32).map(|i| (i * 31 >> 3) as u8).collect();
        std::fs::write(&path, &all).unwrap();
        let map = map_file(&path).unwrap();
        for range in [0..400_000, 70_000..250_000, 10..20] {
            let part = map.slice(range.clone()).unwrap();
            part.release_hint();
            assert_eq!(part[..], all[range]);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
