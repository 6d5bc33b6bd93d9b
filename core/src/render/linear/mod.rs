//! The part of machine-code generation that x86-64 and AArch64 share. A program is lowered to a linear list of machine
//! instructions over virtual registers (`lower`, with `address`, `gate`, `store`, `reduce`, `dot` and `stream`; the
//! data types are in `mir`). Then values that an innermost loop computes repeatedly are shared (`share`), constants are
//! hoisted out of loops (`hoist`), and a linear scan assigns physical registers (`alloc`). A machine implements
//! [`machine::Machine`], which selects instructions, and an encoder; each has its folder beside this one.
//!
//! A kernel is `extern "C" fn(bufs: *const *mut u8, vars: *const u32, lo: u32, hi: u32, scratch: *mut u8)`: buffer
//! pointers by slot, launch scalars, the range of the grid to run, and memory for scratch arrays. The code is position
//! independent with its entry at offset 0. It contains its constants, so it needs no relocation and can be cached on
//! disk.

pub(super) mod address;
pub(super) mod alloc;
pub(super) mod dot;
mod gate;
pub(super) mod hoist;
pub(super) mod lower;
pub(super) mod machine;
pub(super) mod mir;
mod reduce;
mod share;
mod store;
pub(super) mod stream;

pub(super) use gate::Gate;

use crate::Result;
use crate::codegen::Program;

/// The linear program of a kernel, and the physical register number of each virtual register.
pub(super) fn build<M: machine::Machine>(p: &Program, m: M) -> Result<(mir::Func<M>, Vec<u8>)> {
    let mut f = lower::lower(p, m)?;
    share::values(&mut f, m);
    hoist::constants(&mut f, m);
    let numbers = alloc::allocate(&mut f, m)?;
    Ok((f, numbers))
}
