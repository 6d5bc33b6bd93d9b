//! The LLVM IR renderer: prints a program as text with vector types and opaque pointers (LLVM 15 and later). It serves
//! processors for which there is no native emitter, and as a comparison for the emitter of x86-64.
//!
//! Interface, as on x86: `void NAME(ptr bufs, ptr vars, i32 lo, i32 hi, ptr scratch)`; Grid(0) is the loop `lo..hi`.
//! The text does not name a processor: whoever compiles it sets the target triple, `target-cpu` and `target-features`
//! (without them LLVM assumes the oldest processor of the architecture).
//!
//! Bools are `i1` (`i8` in memory); f16 and bf16 are held as their bits (`i16`), and only casts interpret them. Loop
//! counters and accumulators are stack slots, which LLVM promotes to registers. There are no fast-math flags: only
//! `llvm.fmuladd` may be fused.

mod alu;
mod dialect;

use super::cstyle::{Ptr, Walk};
use super::{Code, Renderer};
use crate::codegen::Program;
use crate::target::Target;
use crate::uop::{Arg, Op};
use crate::{Error, Result};
use dialect::Llvm;

/// The LLVM IR renderer.
pub struct LlvmRenderer;

impl Renderer for LlvmRenderer {
    fn render(&self, p: &Program, _t: &Target) -> Result<Code> {
        let mut w = Walk::new(p, Llvm::default());
        for slot in 0..p.params.len() {
            w.d.parameter(slot);
        }
        let (scratch, _) = p.scratch();
        for u in super::cstyle::pointers(p) {
            let dt = p.g.dtype(u);
            match *p.g.arg(u) {
                Arg::Param { slot, .. } => w.ptrs.insert(u, Ptr::elements(format!("%b{slot}"), dt)),
                Arg::Scratch { id, .. } => {
                    w.d.scratch(id, scratch.iter().find(|s| s.0 == u).map_or(0, |s| s.1));
                    w.ptrs.insert(u, Ptr::elements(format!("%s{id}"), dt))
                }
                _ => None,
            };
        }
        for &u in &p.order {
            if w.launch(u).is_some() {
                let g = w.d.grid_loop();
                w.open("");
                w.name(u, &g);
            }
            if let Arg::Var { name, .. } = p.g.arg(u) {
                let Some(i) = p.vars.iter().position(|v| v.name == *name) else {
                    return Err(Error::Internal(format!("{}: launch scalar {name} is not listed", p.name)));
                };
                let e = w.d.launch_scalar(p.g.dtype(u), i);
                w.name(u, &e);
            }
            if p.g.op(u) == Op::Barrier {
                continue; // a barrier has no effect, since one thread runs the whole slice
            }
            w.node(u)?;
        }
        w.close_all();
        Ok(Code::Text(w.d.module(&p.name)))
    }
}
