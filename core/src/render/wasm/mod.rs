//! The WebAssembly renderer: turns a program into the body of a function with SIMD128 instructions, and links the
//! kernels of a plan into a module.
//!
//! A kernel is a function `(bufs, vars, lo, hi)` of four i32: the address of a table of buffer addresses by slot, the
//! address of its 4-byte launch scalars, and the slice `lo..hi` of the grid to compute. Its only other inputs are
//! memory 0 and global 0, the address of this thread's scratch memory. Memory must be readable for [`SLACK`] bytes
//! before and after every buffer, because masked loads at edges read first and mask afterwards, without a branch.
//! `link` makes a module of kernel bodies, `driver` the module that runs them.
//!
//! How a tile is held in locals: a lane axis whose extent is a multiple of 4 is cut into *chunks* of four lanes. A
//! chunk is a v128 if an element has at most 32 bits (bools as masks, narrow integers widened, f16 and bf16 as their
//! bits), else four scalar locals. Any other axis has one local per index. Code is emitted on demand: a store or an
//! accumulator update asks for one element of a tile at a time, and its operands are emitted there. So few values are
//! live at once, as the sixteen vector registers of x86 require. Values from outside a loop that are needed in it are
//! emitted before the loop.
//!
//! What must not be here: the driver's JavaScript side, allocation, anything of a browser.

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

/// The WebAssembly renderer. The code that it returns is a [`Kernel`] as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wasm;

/// A rendered kernel: what [`link`] takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Encoded function body, without its length.
    pub body: Vec<u8>,
    /// Bytes of scratch memory that a call needs.
    pub scratch: u32,
    /// Estimated work of a launch: the number of its operations or of the bytes that it moves, whichever is larger.
    pub work: u32,
}

impl Kernel {
    /// Number of bytes before the body in [`Kernel::to_bytes`].
    pub(super) const HEAD: usize = 8;

    /// The kernel as bytes: the scratch size and the work (little-endian), then the body.
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
