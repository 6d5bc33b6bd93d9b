//! The reference interpreters, against which every backend is tested. They are written to be plain and exact rather
//! than fast.
//!
//! - [`scalar`]: one elementwise op on constants (constant folding uses it), and expressions over given leaves;
//! - [`tensor`]: whole tensor graphs on host bytes;
//! - [`program`]: linear programs, with every memory access checked.
//!
//! The semantics are those of every device: integers wrap; `x/0 = x`, `x%0 = 0`; a shift count is taken modulo the
//! width; casts from float to integer saturate, and NaN gives 0; max and min propagate NaN; f16 and bf16 ops are
//! computed in f32 and rounded after each op. Reductions of floats in tensor graphs are accumulated in f64, so that the
//! reference is more accurate than any device.

mod lanes;
pub mod program;
pub mod scalar;
pub mod tensor;
mod view;

pub use program::eval_program;
pub use scalar::{eval_alu, eval_exprs};
pub use tensor::{Evaluated, HostValue, eval_graph, eval_tensor};

#[cfg(test)]
mod tests;
