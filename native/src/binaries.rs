//! What compilers of drivers made, kept in the user's cache of compiled code: a driver and a text in, its binary out. An entry is of one
//! driver of one device and of one text, so none is ever out of date; one that the driver does not take is made again.

use crate::cache;
use crate::store::Store;
use gradloom_core::util::blake2b;
use std::path::Path;
use std::sync::Arc;

/// The binaries of one driver.
pub(crate) struct Binaries {
    store: Option<Arc<Store>>,
    /// The driver and how it is asked, of which binaries depend.
    driver: String,
}

impl Binaries {
    /// In the user's folder, unless that is switched off or not safe.
    pub(crate) fn of(driver: String) -> Binaries {
        cache::default_folder()
            .map_or_else(|| Binaries { store: None, driver: driver.clone() }, |f| Binaries::within(&f, driver.clone()))
    }

    /// In a folder.
    pub(crate) fn within(folder: &Path, driver: String) -> Binaries {
        Binaries { store: Store::open(folder, cache::LIMIT).ok(), driver }
    }

    /// Is there a folder for them?
    pub(crate) fn are_kept(&self) -> bool {
        self.store.is_some()
    }

    /// The binary of a text.
    pub(crate) fn get(&self, text: &str) -> Option<Vec<u8>> {
        self.store.as_ref()?.load(self.key(text))
    }

    /// Keeps the binary of a text.
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
