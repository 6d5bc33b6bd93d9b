//! A stand-in for NVIDIA's driver: its functions, as far as gradloom's device calls them, over an interpreter of the PTX that gradloom's
//! renderer prints. The device loads it in the driver's place, so that all of it runs on a machine without a GPU, and kernels that leave
//! their memory are found. It knows nothing of gradloom: instructions mean what NVIDIA's documents say (Parallel Thread Execution ISA).
//!
//! Text comes in (`parse.rs`), becomes instructions whose arithmetic is a function (`alu.rs`), and is run by threads of blocks
//! (`exec.rs`); `memory.rs` holds the GPU's memory and `stream.rs` what it has to do. `driver.rs`, `module.rs` and `graph.rs` export the
//! functions.

mod alu;
mod banks;
pub mod direct;
pub mod driver;
mod exec;
pub mod graph;
mod memory;
pub mod module;
mod parse;
mod races;
mod state;
mod stream;

pub use banks::Wavefronts;

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
