//! gradloom natively: devices, a blocking API, and everything of the core crate.

pub mod c;
#[cfg(all(unix, target_arch = "x86_64"))]
pub mod cpu;

pub use gradloom_core::*;
