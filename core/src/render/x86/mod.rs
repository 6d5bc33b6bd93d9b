//! x86-64 machine code, encoded by iced-x86: AVX2 with FMA and F16C, or AVX-512 with 16 lanes and, where the processor
//! has them, its dot-product instructions. `machine` implements the machine of the linear program (`render/linear`);
//! `vector`, `wide`, `scalar`, `cast`, `memory`, `permute`, `transpose`, `predicate`, `reduce` and `dot` select instructions,
//! and `encode` makes bytes of them. Kernels follow the System V ABI.

mod cast;
mod dot;
mod encode;
mod machine;
mod memory;
mod permute;
mod predicate;
mod reduce;
mod scalar;
mod table;
mod transpose;
mod vector;
mod wide;

use super::linear::{self, build};
use super::{Code, Renderer};
use crate::codegen::Program;
use crate::target::Target;
use crate::{Error, Result};
use machine::X64;

type Lower<'a> = linear::lower::Lower<'a, X64>;
type Func = linear::mir::Func<X64>;
type Inst = linear::mir::Inst<X64>;
type Item = linear::mir::Item<X64>;
type Opnd = linear::mir::Opnd<X64>;

/// Renders for [`crate::target::Lang::X86`].
#[derive(Clone, Copy, Default, Debug)]
pub struct X86;

impl Renderer for X86 {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        let isa = t.caps.isa.ok_or_else(|| Error::Internal(format!("target {} is no x86-64", t.name)))?;
        let (f, numbers) = build(p, X64 { isa })?;
        encode::encode(&f, &numbers).map(Code::Bytes)
    }
}
