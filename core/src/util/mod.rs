//! Small helpers that know nothing of the compiler. Never: anything of ours.

pub mod blake2b;
pub mod case;
pub mod decimal;
mod gather;
pub mod heap;
pub mod lru;
mod rows;
pub mod sort;
pub mod sorted;

pub use gather::gather;
pub use rows::rows;
