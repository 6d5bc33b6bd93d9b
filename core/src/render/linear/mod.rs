//! What machine-code back ends share: a program is lowered to a linear program of the machine's instructions over virtual
//! registers (`lower`, `address`, `gate`, `store`, `reduce`, `dot`, `stream`; `mir`), what a loop computes several times is shared
//! (`share`), constants go out of loops (`hoist`), and registers are given by a linear scan (`alloc`). A machine is an
//! implementation of [`machine::Machine`], which selects instructions, and an encoder: one folder beside this one.
//!
//! A kernel is `extern "C" fn(bufs: *const *mut u8, vars: *const u32, lo: u32, hi: u32, scratch: *mut u8)`: pointers
//! by slot, launch scalars, the slice of the grid, memory for scratch arrays. The bytes are position independent with the
//! entry at their start; they hold their constants, so they need no relocation and can be kept.

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

/// The linear program of a kernel, with the number of each virtual register.
pub(super) fn build<M: machine::Machine>(p: &Program, m: M) -> Result<(mir::Func<M>, Vec<u8>)> {
    let mut f = lower::lower(p, m)?;
    share::values(&mut f, m);
    hoist::constants(&mut f, m);
    let numbers = alloc::allocate(&mut f, m)?;
    Ok((f, numbers))
}
