//! numpy's `.npz` format: a zip archive of `.npy` files. Reads what `savez` and `savez_compressed` write; writes what
//! `np.load` reads.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::zip::Zip;
use super::{HostTensor, npy, zip};
use crate::error::{Error, Result};
use crate::util::sort;

/// All arrays in file order, with their names (without `.npy`).
pub fn read(file: &[u8]) -> Result<Vec<(String, HostTensor)>> {
    let zip = Zip::parse(file)?;
    let mut arrays = Vec::with_capacity(zip.entries().len());
    for entry in zip.entries() {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name);
        let array = npy::read(&zip.read(entry)?).map_err(|e| match e {
            Error::Format { what, at, .. } => Error::format("npz", format!("array `{name}`: {what}"), at),
            Error::Unsupported { what, .. } => Error::Unsupported { what, context: format!("npz array `{name}`") },
            e => e,
        })?;
        arrays.push((name.to_owned(), array));
    }
    Ok(arrays)
}

/// The bytes of a file with these named arrays. The same arrays give the same bytes.
pub fn write(arrays: &[(&str, &HostTensor)]) -> Result<Vec<u8>> {
    let files: Vec<(String, Vec<u8>)> =
        arrays.iter().map(|(n, t)| Ok((format!("{n}.npy"), npy::write(t)?))).collect::<Result<_>>()?;
    let mut names: Vec<&str> = arrays.iter().map(|a| a.0).collect();
    sort::ascending(&mut names);
    if let Some(&[twice, _]) = names.windows(2).find(|w| w.first() == w.last()) {
        return Err(Error::format("npz", format!("the name `{twice}` appears twice"), None));
    }
    zip::write(&files.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect::<Vec<_>>())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::io::testing::mutate;

    const STORED: &[u8] = include_bytes!("../../../tests/fixtures/io/stored.npz");
    const PACKED: &[u8] = include_bytes!("../../../tests/fixtures/io/packed.npz");

    #[test]
    fn archives_of_numpy_are_read() {
        for file in [STORED, PACKED] {
            let arrays = read(file).unwrap();
            let names: Vec<_> = arrays.iter().map(|a| a.0.as_str()).collect();
            assert_eq!(names, ["x", "flags", "empty"]);
            assert_eq!(arrays[0].1.dtype, DType::F32);
            assert_eq!(arrays[0].1.to_f64(), (0..60).map(|i| f64::from(i % 7)).collect::<Vec<_>>());
            assert_eq!(arrays[1].1.data, [1, 0]);
            assert_eq!(arrays[2].1.shape, [0, 3]);
        }
        let list = read(STORED).unwrap();
        let again = write(&list.iter().map(|(n, t)| (n.as_str(), t)).collect::<Vec<_>>()).unwrap();
        assert_eq!(read(&again).unwrap(), list);
    }

    #[test]
    fn truncations_and_mutations_never_panic() {
        for file in [STORED, PACKED] {
            for n in 0..file.len() {
                assert!(read(&file[..n]).is_err(), "at {n}");
            }
            mutate(file, 5_000, |m| drop(read(m)));
        }
    }
}
