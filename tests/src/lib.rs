//! Shared material of the integration tests: hand-built programs with known results and the code that runs them on a
//! device. Nothing here is published.

pub mod conformance;
pub mod programs;
pub mod runner;
