//! The persistent cache: implements the core's [`Host`] on the package's store (`web/ts/src/cache.ts`), whose entries
//! are read ahead when the device starts and written in the background. Nothing here waits.

use gradloom_core::engine::Host;
use gradloom_core::engine::cache::{self, Kind};
use gradloom_core::target::Target;
use js_sys::{Array, Uint8Array};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    /// The store of entries by group and key.
    pub type Store;

    #[wasm_bindgen(method)]
    fn get(this: &Store, group: &str, key: &str) -> Option<Uint8Array>;

    #[wasm_bindgen(method)]
    fn put(this: &Store, group: &str, key: &str, bytes: Uint8Array);
}

/// The [`Host`] of an engine in a page.
pub(crate) struct WebHost {
    store: Store,
    groups: [String; 2],
}

/// The group names of a target's entries: one for this build alone, and one shared by all builds (tuned opts).
pub(crate) fn groups(t: &Target) -> [String; 2] {
    [format!("build-{:032x}", cache::space(t)), format!("opts-{:032x}", cache::opts_space(t))]
}

/// The group names as a JavaScript array.
pub(crate) fn group_names(t: &Target) -> Array {
    groups(t).iter().map(JsValue::from).collect()
}

impl WebHost {
    pub(crate) fn new(store: Store, t: &Target) -> WebHost {
        WebHost { store, groups: groups(t) }
    }

    fn group(&self, kind: Kind) -> &str {
        &self.groups[usize::from(kind == Kind::Opts)]
    }
}

impl Host for WebHost {
    fn load(&mut self, kind: Kind, key: u128) -> Option<Vec<u8>> {
        Some(self.store.get(self.group(kind), &format!("{key:032x}"))?.to_vec())
    }

    fn save(&mut self, kind: Kind, key: u128, bytes: Vec<u8>) {
        self.store.put(self.group(kind), &format!("{key:032x}"), Uint8Array::from(bytes.as_slice()));
    }
}
