//! Small helpers that know nothing of the compiler. Never: anything of ours.

pub mod heap;
pub mod sort;
