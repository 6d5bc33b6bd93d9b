//! Small helpers that know nothing of the compiler. Never: anything of ours.

mod gather;
pub mod heap;
pub mod sort;

pub use gather::gather;
