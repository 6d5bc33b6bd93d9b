//! Program -> text or bytes. Pure: no device handles, no rewriting of tensor ops. One renderer per language.

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

/// What a device compiles.
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
    /// Launch scalars, in the order they are passed.
    pub vars: Vec<DType>,
    /// Bytes of scratch memory that each thread gives the kernel, aligned to 64; on GPUs bytes of workgroup memory.
    pub scratch: usize,
}

/// Rendered code.
#[derive(Clone)]
pub enum Code {
    /// WGSL, C, LLVM IR, PTX, or a kernel language like C.
    Text(String),
    /// Machine code (position independent), or an encoded WebAssembly function body.
    Bytes(Vec<u8>),
    /// The program itself, for the interpreter and the NULL device.
    Program(std::sync::Arc<Program>),
}

/// Prints programs of one language.
pub trait Renderer: Sync {
    /// Renders a program for a target. Fails only with `Error::Unsupported`.
    fn render(&self, p: &Program, t: &Target) -> Result<Code>;

    /// What a user wrote in its language, over params in the order of their slots, with its grid. `None` for languages in which no user writes.
    ///
    /// # Errors
    /// `Error::Unsupported` beyond the target's limits.
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
                bytes if crate::uop::mma::BUILT && bytes > 0 => bytes,
                _ => p.scratch().1,
            },
        }
    }
}

/// Gives the program itself, for what interprets it.
pub struct Interpreted;

impl Renderer for Interpreted {
    fn render(&self, p: &Program, _t: &Target) -> Result<Code> {
        Ok(Code::Program(std::sync::Arc::new(p.clone())))
    }
}

/// Stands for renderers that this build leaves out.
struct Missing;

impl Renderer for Missing {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        Err(Error::Unsupported { what: format!("renderer for {:?}", t.lang), context: p.name.clone() })
    }
}

/// The renderer of a language. It refers to all of them: devices in a page name theirs instead, so that each is loaded with its renderer
/// and without the others.
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
