//! gradloom-core: the whole compiler, from the lazy tensor API to rendered kernels. It has no IO, clock, threads or
//! vendor crates. Modules are arranged in floors, and each imports only from the floors below its own (a test enforces
//! this).
#![forbid(unsafe_code)]

pub mod analysis;
pub mod budget;
pub mod codegen;
pub mod device;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod grad;
pub mod interrupt;
pub mod io;
pub mod llm;
pub mod nn;
pub mod optim;
pub mod render;
pub mod rewrite;
pub mod rules;
pub mod schedule;
pub mod target;
pub mod tensor;
pub mod text;
pub mod uop;
pub mod util;

pub use budget::Budget;
pub use dtype::DType;
pub use error::{Error, Result};
pub use tensor::{Session, Tensor};
