//! Renderers: each turns a kernel's program, which code generation has lowered to the target's operations, into source
//! text or machine code of one language. Pure: no device handles and no rewriting of tensor operations.

#[cfg(feature = "arm64")]
pub mod arm64;
#[cfg(feature = "c")]
pub mod c;
#[cfg_attr(
    not(all(feature = "arm64", feature = "c", feature = "llvm")),
    allow(dead_code, reason = "not every language needs all of it")
)]
mod cstyle;
#[cfg(feature = "gpu-c")]
pub mod gpu_c;
#[cfg(any(feature = "arm64", feature = "x86"))]
mod linear;
#[cfg(feature = "llvm")]
pub mod llvm;
#[cfg(feature = "ptx")]
pub mod ptx;
pub mod wasm;
pub mod wgsl;
#[cfg(feature = "x86")]
pub mod x86;

use crate::codegen::Program;
use crate::target::{Lang, Target};
use crate::uop::custom::Custom;
use crate::uop::{Graph, UOp};
use crate::{DType, Error, Result};

/// A rendered kernel with what a device needs to compile and launch it.
#[derive(Clone)]
pub struct Source {
    /// The kernel's name.
    pub name: String,
    /// Text or bytes.
    pub code: Code,
    /// Workgroup size.
    pub local: [u32; 3],
    /// Parameter types, lengths (elements) and whether the kernel writes them, by slot.
    pub params: Vec<crate::codegen::ParamInfo>,
    /// dtypes of the launch scalars, in the order in which they are passed.
    pub vars: Vec<DType>,
    /// Bytes of scratch memory, aligned to 64, that the device must pass to the kernel for each thread; on GPUs, bytes
    /// of workgroup memory.
    pub scratch: usize,
}

/// Rendered code.
#[derive(Clone)]
pub enum Code {
    /// Source text: WGSL, C, LLVM IR, PTX, or one of the GPU languages that look like C (`gpu_c`).
    Text(String),
    /// Machine code (position independent), or an encoded WebAssembly function body.
    Bytes(Vec<u8>),
    /// The program itself, for the interpreter and the NULL device.
    Program(std::sync::Arc<Program>),
}

/// A renderer of one language.
pub trait Renderer: Sync {
    /// Renders a program for a target. Fails only with `Error::Unsupported`.
    fn render(&self, p: &Program, t: &Target) -> Result<Code>;

    /// Source of a kernel that a user wrote in this language, with its launch grid. `params` are the buffers in the
    /// order of their slots. `None` for languages that have no user-written kernels.
    fn custom(&self, _kernel: &Custom, _g: &Graph, _params: &[UOp], _t: &Target) -> Result<Option<(Source, [u32; 3])>> {
        Ok(None)
    }
}

impl<R: Renderer + ?Sized> Renderer for &'static R {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        (**self).render(p, t)
    }

    fn custom(&self, kernel: &Custom, g: &Graph, params: &[UOp], t: &Target) -> Result<Option<(Source, [u32; 3])>> {
        (**self).custom(kernel, g, params, t)
    }
}

impl Source {
    /// Packs rendered code with what a device must know about the program.
    pub fn new(p: &Program, code: Code) -> Source {
        Source {
            name: p.name.clone(),
            code,
            local: p.local,
            params: p.params.clone(),
            vars: p.vars.iter().map(|v| v.dtype).collect(),
            scratch: match p.workgroup_arrays().1 {
                bytes if crate::uop::mma::MATRIX_TILES_ENABLED && bytes > 0 => bytes,
                _ => p.scratch().1,
            },
        }
    }
}

/// The renderer for interpreting devices: its code is the program itself.
pub struct Interpreted;

impl Renderer for Interpreted {
    fn render(&self, p: &Program, _t: &Target) -> Result<Code> {
        Ok(Code::Program(std::sync::Arc::new(p.clone())))
    }
}

/// Takes the place of a renderer that this build leaves out; it refuses every program.
struct Missing;

impl Renderer for Missing {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        Err(Error::Unsupported { what: format!("renderer for {:?}", t.lang), context: p.name.clone() })
    }
}

/// The renderer of a language. This function links every renderer into the binary; the devices of browser builds name
/// their renderer directly instead, so that each wasm module contains only the one that it uses.
pub fn of(lang: Lang) -> &'static dyn Renderer {
    match lang {
        Lang::Wgsl => &wgsl::WgslRenderer,
        Lang::Wasm => &wasm::Wasm,
        #[cfg(feature = "c")]
        Lang::C => &c::CRenderer,
        #[cfg(feature = "llvm")]
        Lang::Llvm => &llvm::LlvmRenderer,
        #[cfg(feature = "ptx")]
        Lang::Ptx => &ptx::Ptx,
        #[cfg(feature = "x86")]
        Lang::X86 => &x86::X86,
        #[cfg(feature = "arm64")]
        Lang::Arm64 => &arm64::Arm64,
        Lang::Eval => &Interpreted,
        #[cfg(feature = "gpu-c")]
        lang => gpu_c::of(lang).map_or(&Missing, |r| r),
        #[cfg(not(feature = "gpu-c"))]
        _ => &Missing,
    }
}

/// Renders with the renderer of the target's language.
pub fn render(p: &Program, t: &Target) -> Result<Code> {
    of(t.lang).render(p, t)
}
