//! Small helpers that know nothing of the compiler. Never: anything of ours.

pub mod blake2b;
pub mod case;
pub mod decimal;
mod gather;
pub mod heap;
pub mod lru;
mod rows;
pub mod sort;
pub mod sorted;

pub use gather::gather;
pub use rows::rows;

/// The number, or the bound that it is beyond; NaN stays. As std's `clamp`, which brings along what writes floats, for the message of a panic.
pub fn between(v: f64, low: f64, high: f64) -> f64 {
    match () {
        () if v < low => low,
        () if v > high => high,
        () => v,
    }
}
