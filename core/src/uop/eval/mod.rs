//! The reference interpreters: the oracle of every backend, plain and exact rather than fast.
//!
//! - [`scalar`]: one elementwise op on constants (constant folding uses it), and expressions over given leaves;
//! - [`tensor`]: whole tensor graphs on host bytes;
//! - [`program`]: linear programs, with every memory access checked.
//!
//! Semantics, the same on every device: ints wrap; `x/0 = x`, `x%0 = 0`; shifts take their count modulo the width;
//! float to int saturates with NaN giving 0; max and min propagate NaN; f16 and bf16 ops are computed in f32 and
//! rounded per op. Sums and products of floats are carried in f64 here, so that the oracle is the most accurate of
//! all.

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
