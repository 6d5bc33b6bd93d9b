//! C99 with GCC vector extensions: the portable CPU fallback and a second opinion on the machine-code emitters.
//!
//! Interface, as on x86: `void NAME(void* const* bufs, const unsigned* vars, unsigned lo, unsigned hi,
//! unsigned char* scratch)`; Grid(0) is the loop `lo..hi`. To be compiled with `-fwrapv -fno-math-errno` and without `-ffast-math`.
//!
//! A value over the lane axis is a GCC vector if the lane count is a power of two. A bool vector is an i32 vector of 0 and
//! -1. f16 and bf16 values are their bits (`u16`); only casts touch them. The text of each type and function is guarded by
//! the preprocessor, so that the sources of several kernels can be compiled as one unit.

mod alu;
mod dialect;
mod helpers;

use super::cstyle::{Ptr, Walk, memory_type};
use super::{Code, Renderer};
use crate::codegen::Program;
use crate::target::Target;
use crate::uop::{Arg, Op};
use crate::{Error, Result};
use dialect::C;
use std::fmt::Write as _;

/// Prints C.
pub struct CRenderer;

impl Renderer for CRenderer {
    fn render(&self, p: &Program, _t: &Target) -> Result<Code> {
        let mut w = Walk::new(p, C::default());
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
                continue; // one thread runs a whole slice
            }
            w.node(u)?;
        }
        w.close_all();
        let mut text = helpers::prelude();
        text.push_str(&w.d.types());
        let _ = write!(
            text,
            "void {}(void* const* bufs, const unsigned* vars, unsigned lo, unsigned hi, unsigned char* scratch) {{\n  \
             (void)bufs; (void)vars; (void)lo; (void)hi; (void)scratch;\n{}}}\n",
            p.name, w.body
        );
        Ok(Code::Text(text))
    }
}
