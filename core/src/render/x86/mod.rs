//! x86-64 machine code through iced-x86: AVX2, FMA and F16C, or AVX-512 with 16 lanes and, where there are, its dot
//! products. Own instruction selection (`lower`, `vector`, `scalar`, `cast`, `memory`, `reduce`, `dot`), constants out of
//! loops (`hoist`), linear-scan registers (`alloc`), encoding (`encode`).
//!
//! A kernel is `extern "sysv64" fn(bufs: *const *mut u8, vars: *const u32, lo: u32, hi: u32, scratch: *mut u8)`: pointers
//! by slot, launch scalars, the slice of the grid, memory for scratch arrays. The bytes are position independent with the
//! entry at their start; they hold their constants, so they need no relocation and can be kept.

mod alloc;
mod cast;
mod dot;
mod encode;
mod gate;
mod hoist;
mod lower;
mod memory;
mod mir;
mod near;
mod reduce;
mod scalar;
mod stream;
mod table;
mod vector;

use super::{Code, Renderer};
use crate::codegen::Program;
use crate::target::{Isa, Target};
use crate::{Error, Result};

/// Renders for [`crate::target::Lang::X86`].
#[derive(Clone, Copy, Default, Debug)]
pub struct X86;

impl Renderer for X86 {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        let isa = t.isa.ok_or_else(|| Error::Internal(format!("target {} is no x86-64", t.name)))?;
        let (f, numbers) = build(p, isa)?;
        encode::encode(&f, &numbers).map(Code::Bytes)
    }
}

fn build(p: &Program, isa: Isa) -> Result<(mir::Func, Vec<u8>)> {
    let mut f = lower::lower(p, isa)?;
    hoist::constants(&mut f, isa >= Isa::Avx512);
    let numbers = alloc::allocate(&mut f, isa >= Isa::Avx512)?;
    Ok((f, numbers))
}
