//! Small general helpers. Never: types of the compiler.

pub mod blake2b;
pub mod case;
pub mod decimal;
mod gather;
pub mod heap;
pub mod lru;
mod rows;
pub mod sort;
pub mod sorted;
pub mod trig;
pub mod words;

pub use gather::gather;
pub use rows::rows;

/// `v` clamped to `low..=high`; NaN stays NaN. Used in place of std's `clamp`, whose panic message adds the code that
/// formats floats to the module.
pub fn between(v: f64, low: f64, high: f64) -> f64 {
    match () {
        () if v < low => low,
        () if v > high => high,
        () => v,
    }
}
