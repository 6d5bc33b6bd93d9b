//! Keeps what drivers' compilers made in the user's cache of compiled code: looked up by driver and source text, an
//! entry is a binary. An entry belongs to one driver of one device and to one text, so it is never out of date; one
//! that the driver rejects is made again.

use crate::cache;
use crate::store::Store;
use gradloom_core::util::blake2b;
use std::path::Path;
use std::sync::Arc;

/// The cached binaries of one driver.
pub(crate) struct Binaries {
    store: Option<Arc<Store>>,
    /// The driver and its compile options, which determine the binary.
    driver: String,
}

impl Binaries {
    /// The cache in the user's folder; without effect where caching is switched off or the folder is not safe.
    pub(crate) fn of(driver: String) -> Binaries {
        cache::default_folder()
            .map_or_else(|| Binaries { store: None, driver: driver.clone() }, |f| Binaries::within(&f, driver.clone()))
    }

    /// The cache in the given folder.
    pub(crate) fn within(folder: &Path, driver: String) -> Binaries {
        Binaries { store: Store::open(folder, cache::LIMIT).ok(), driver }
    }

    /// Is there a folder to keep binaries in?
    pub(crate) fn are_kept(&self) -> bool {
        self.store.is_some()
    }

    /// The binary that was made of this text.
    pub(crate) fn get(&self, text: &str) -> Option<Vec<u8>> {
        self.store.as_ref()?.load(self.key(text))
    }

    /// Keeps the binary that was made of this text.
    pub(crate) fn put(&self, text: &str, binary: Vec<u8>) {
        if let Some(store) = &self.store {
            store.save(self.key(text), binary);
        }
    }

    fn key(&self, text: &str) -> u128 {
        let length = self.driver.len() as u64;
        blake2b::digest(
            &[b"driver's binary\0", &length.to_le_bytes()[..], self.driver.as_bytes(), text.as_bytes()].concat(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_of_its_driver_and_its_text() {
        let folder = std::env::temp_dir().join(format!("gradloom-binaries-{}", std::process::id()));
        let one = Binaries::within(&folder, "a".into());
        one.put("bc", vec![1, 2, 3]);
        drop(one);
        let [one, other] = ["a", "ab"].map(|driver| Binaries::within(&folder, driver.into()));
        assert_eq!(one.get("bc"), Some(vec![1, 2, 3]));
        assert_eq!((one.get("b"), other.get("c"), other.get("bc")), (None, None, None));
        drop((one, other));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
