//! The shuffled order of a data set's examples.

use gradloom_core::io::dataset;
use wasm_bindgen::prelude::wasm_bindgen;

/// A permutation of the numbers below `len`, determined by seed and epoch.
#[wasm_bindgen]
pub fn shuffled(len: u32, seed: f64, epoch: u32) -> Vec<u32> {
    dataset::shuffled(len as usize, seed as u64, epoch).into_iter().map(|i| i as u32).collect()
}
