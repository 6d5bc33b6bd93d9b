//! Known answers for the interpreters.

mod tensor;
