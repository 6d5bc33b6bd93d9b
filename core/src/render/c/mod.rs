//! C99 with GCC vector extensions: the portable CPU fallback, and an independent implementation to test the
//! machine-code emitters against.
//!
//! The interface of a kernel is that of x86: `void NAME(void* const* bufs, const unsigned* vars, unsigned lo, unsigned
//! hi, unsigned char* scratch)`; Grid(0) is the loop `lo..hi`. Compile with `-fwrapv -fno-math-errno` and without
//! `-ffast-math`.
//!
//! A value over the lane axis is a GCC vector: because of [`Caps::most_lanes`], lane axes have the length of the
//! processor's vectors or a smaller power of two. A bool vector is an i32 vector of 0 and -1. f16 and bf16 values are held
//! as their bits (`u16`); only casts interpret them. Preprocessor guards surround the text of each type and helper
//! function, so that the sources of several kernels can be concatenated into one compilation unit.
//!
//! [`Caps::most_lanes`]: crate::target::Caps::most_lanes
//!
//! For a target of one lane there are no vectors, signed integers that might overflow are added and multiplied as
//! unsigned ones, and functions have the names of the standard headers: with `GL_STANDARD` defined before the prelude
//! the text is plain C99.

mod alu;
mod dialect;
mod helpers;
mod masked;

use super::cstyle::{Ptr, Walk, memory_type};
use super::{Code, Renderer};
use crate::codegen::Program;
use crate::target::Target;
use crate::uop::{Arg, Op};
use crate::{Error, Result};
use dialect::C;
pub use helpers::prelude;

/// The C renderer.
pub struct CRenderer;

/// A kernel without the prelude, which a unit of several kernels has only once.
pub struct Function {
    /// Declarations of the vector types that it uses, one text for each type; the text of a type is the same in every
    /// kernel.
    pub types: Vec<String>,
    /// Its definition, beginning with `void`.
    pub text: String,
}

impl Renderer for CRenderer {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        let f = Function::new(p, t)?;
        Ok(Code::Text([prelude(), f.types.concat(), f.text].concat()))
    }
}

impl Function {
    /// Prints one kernel: standard C for a target without vectors.
    pub fn new(p: &Program, t: &Target) -> Result<Function> {
        let mut w = Walk::new(p, C::new(t));
        for (slot, info) in p.params.iter().enumerate() {
            let ty = memory_type(info.dtype);
            let (name, constant) = (format!("b{slot}"), if info.written { "" } else { "const " });
            w.line(&format!("{constant}{ty}* {name} = ({constant}{ty}*)bufs[{slot}];"));
        }
        let (scratch, _) = p.scratch();
        for u in super::cstyle::pointers(p) {
            let dt = p.g.dtype(u);
            match *p.g.arg(u) {
                Arg::Param { slot, .. } => w.ptrs.insert(u, Ptr::elements(format!("b{slot}"), dt)),
                Arg::Scratch { id, .. } => {
                    let (ty, at) = (memory_type(dt), scratch.iter().find(|s| s.0 == u).map_or(0, |s| s.1));
                    w.line(&format!("{ty}* s{id} = ({ty}*)(scratch + {at});"));
                    w.ptrs.insert(u, Ptr::elements(format!("s{id}"), dt))
                }
                _ => None,
            };
        }
        for &u in &p.order {
            if w.launch(u).is_some() {
                w.open("for (unsigned g = lo; g < hi; g++) {");
                w.line("const i32 g0 = (i32)g;");
                w.name(u, "g0");
            }
            if let Arg::Var { name, .. } = p.g.arg(u) {
                let Some(i) = p.vars.iter().position(|v| v.name == *name) else {
                    return Err(Error::Internal(format!("{}: launch scalar {name} is not listed", p.name)));
                };
                let e = w.d.launch_scalar(p.g.dtype(u), i);
                w.name(u, &e);
            }
            if p.g.op(u) == Op::Barrier {
                continue; // one thread runs the whole range of the grid
            }
            w.node(u)?;
        }
        w.close_all();
        let types = w.d.types();
        let text = format!(
            "void {}(void* const* bufs, const unsigned* vars, unsigned lo, unsigned hi, unsigned char* scratch) {{\n  \
             (void)bufs; (void)vars; (void)lo; (void)hi; (void)scratch;\n{}}}\n",
            p.name, w.body
        );
        Ok(Function { types, text })
    }
}
