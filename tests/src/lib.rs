//! Shared material of the integration tests: hand-built programs with known results and the code that runs them on a
//! device. Nothing here is published.

pub mod conformance;
pub mod failing;
pub mod graphs;
pub mod here;
pub mod hostile;
pub mod message;
pub mod mutants;
pub mod networks;
pub mod nodes;
pub mod numerics;
pub mod onnx_suite;
pub mod opinfo;
pub mod programs;
pub mod runner;
pub mod targets;

/// The Rust in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
