//! AArch64 machine code: NEON with four lanes of 32 bits and fused multiply-add, which every AArch64 processor has, and
//! dot products of bytes, which most have. `machine` implements the machine of the linear program (`render/linear`);
//! `scalar`, `vector`, `cast`, `memory` and `dot` select instructions, `table` has their instruction words, and
//! `encode` makes bytes of them. Kernels follow the Procedure Call Standard (AAPCS64).

mod cast;
mod dot;
mod encode;
#[cfg(test)]
mod encoding_tests;
mod machine;
mod memory;
mod scalar;
mod table;
mod vector;

use super::linear::{self, build};
use super::{Code, Renderer};
use crate::Result;
use crate::codegen::Program;
use crate::target::Target;
use machine::A64;

type Lower<'a> = linear::lower::Lower<'a, A64>;
type Func = linear::mir::Func<A64>;
type Inst = linear::mir::Inst<A64>;
type Opnd = linear::mir::Opnd<A64>;

/// Renders for [`crate::target::Lang::Arm64`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Arm64;

impl Renderer for Arm64 {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        let (f, numbers) = build(p, A64 { dots: t.caps.dots.is_some() })?;
        encode::encode(&f, &numbers).map(Code::Bytes)
    }
}
