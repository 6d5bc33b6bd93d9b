//! Program -> the body of a WebAssembly function with SIMD128, and the module that holds the kernels of a plan.
//!
//! A kernel is a function `(bufs, vars, lo, hi)` of four i32: the address of a table of buffer addresses by slot, the address
//! of its 4-byte launch scalars, and the slice of the grid to run. Its only other inputs are memory 0 and global 0, the
//! address of this thread's scratch memory. Memory must be readable for [`SLACK`] bytes before and after every buffer: masked
//! loads at edges have no branches. `link` makes a module out of bodies, `driver` one that runs them.
//!
//! How a tile is held: a lane axis whose extent is a multiple of 4 is a row of v128 if an element has at most 32 bits
//! (bool as masks, narrow integers widened, f16 and bf16 as their bits), else four locals a chunk; any other axis is one
//! local per index. Values are written on demand, one element of a tile at a time, where a store or an accumulator asks for
//! them: so few are alive at once, which is what sixteen vector registers need. What a loop needs from outside it is
//! written before the loop opens.
//!
//! Never: the driver's JavaScript side, allocation, anything of a browser.

mod dot;
mod driver;
mod emit;
mod func;
mod layout;
mod link;
mod memory;
mod scalar;
mod steps;
mod text;
mod value;
mod vector;

pub use driver::{DriverStep, MAX_THREADS, STEP_WORDS, SYNC_BYTES, driver};
pub use layout::SLACK;
pub use link::{MAX_PAGES, link, relaxed_simd_probe};
pub use text::instructions;

use super::{Code, Renderer};
use crate::codegen::Program;
use crate::target::Target;
use crate::{Error, Result};

/// The WebAssembly renderer. The code it gives is a [`Kernel`] in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wasm;

/// A rendered kernel: what [`link`] takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Encoded function body, without its length.
    pub body: Vec<u8>,
    /// Scratch memory that a call needs.
    pub scratch: u32,
    /// About how much work a launch is: operations, or bytes if they are more.
    pub work: u32,
}

impl Kernel {
    /// Bytes before the body in [`Kernel::to_bytes`].
    pub(super) const HEAD: usize = 8;

    /// As bytes: the scratch size and the work (little endian), then the body.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [self.scratch.to_le_bytes(), self.work.to_le_bytes()].concat();
        out.extend_from_slice(&self.body);
        out
    }

    /// Inverse of [`Kernel::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Kernel> {
        let (scratch, rest) = bytes.split_first_chunk::<4>()?;
        let (work, body) = rest.split_first_chunk::<4>()?;
        Some(Kernel { body: body.to_vec(), scratch: u32::from_le_bytes(*scratch), work: u32::from_le_bytes(*work) })
    }
}

impl Renderer for Wasm {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        Ok(Code::Bytes(render(p, t)?.to_bytes()))
    }
}

/// Renders one program.
pub fn render(p: &Program, t: &Target) -> Result<Kernel> {
    emit::Emit::new(p, t)?.run()
}

fn unsupported(what: impl Into<String>, p: &Program) -> Error {
    Error::Unsupported { what: what.into(), context: format!("kernel {} on wasm", p.name) }
}
