//! The PTX renderer: prints a program in the virtual assembly language of NVIDIA's GPUs (NVIDIA, Parallel Thread
//! Execution ISA), which the driver compiles to machine code.
//!
//! Interface: `.visible .entry NAME(.param .u64 pb0.., .param .s32 n0..)`: a pointer for each buffer slot, then the
//! launch scalars. Grid(d) is `%ctaid`, Local(d) is `%tid`; a block has the number of threads that the program asks
//! for.
//!
//! A value is a register of one of six classes (`func.rs`), and a vector is a list of registers; only loads and stores
//! have vector instructions. A gated load is one instruction under a predicate, not a branch. Almost all branches are
//! those of loops; where a loop contains a barrier, a shuffle or a matrix tile, all threads of a block take its
//! branches together. Workgroup arrays of at most 48 kB in total are declared in the kernel; larger ones are parts of
//! the dynamic shared memory whose size the launch sets ([`dynamic_shared_bytes`]).

mod alu;
mod dialect;
mod func;

use super::cstyle::{Dots, Ptr, Walk, pointers, vector_width};
use super::{Code, Renderer, Source};
use crate::codegen::Program;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Op, Space as Memory, UOp};
use crate::{DType, Error, Result};
use func::{Class, Func, Space};

/// The PTX renderer.
pub struct Ptx;

const DIMENSIONS: [char; 3] = ['x', 'y', 'z'];

impl Renderer for Ptx {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        let refuse = |what: &str| Err(Error::Unsupported { what: what.into(), context: format!("ptx, {}", p.name) });
        let Some(sm) = t.caps.sm else { return refuse("a GPU of unknown compute capability") };
        let mut w = Walk::new(p, Func::new(sm));
        if t.caps.dots.is_some() {
            // PTX memory is byte-addressed, so words may be read from any array at aligned addresses
            w.dots = Dots::find(p, &|_| true);
        }
        let in_memory = |&u: &UOp| matches!(p.g.arg(u), Arg::Mma(layout) if layout.in_memory());
        w.d.products = p.order.iter().any(in_memory).then(func::Products::default);
        w.d.split = splits_barrier(p);
        if w.d.products.is_some() {
            w.find_masks();
        }
        let mut parameters = Vec::new();
        let wide = |_: DType, lanes: usize| matches!(lanes, 2 | 4);
        for (slot, info) in p.params.iter().enumerate() {
            parameters.push(format!(".param .u64 pb{slot}"));
            let Some(node) = pointers(p).into_iter().find(|&u| p.slot(u) == Some(slot as u32)) else { continue };
            w.d.buffer(&format!("b{slot}"), !info.written);
            let width = match w.dots.quads(p, node, info.len) {
                true => 16,
                false => vector_width(p, node, info.dtype, info.len, &wide),
            };
            w.ptrs.insert(node, Ptr { width, ..Ptr::elements(format!("b{slot}"), info.dtype) });
        }
        for (i, var) in p.vars.iter().enumerate() {
            let ty = if var.dtype == DType::F32 { "f32" } else { "s32" };
            parameters.push(format!(".param .{ty} n{i}"));
        }
        let (arrays, all) = p.workgroup_arrays();
        for u in pointers(p) {
            let Arg::Scratch { id, len, space } = *p.g.arg(u) else { continue };
            let dt = p.g.dtype(u);
            let (name, kind) = match space {
                Memory::Workgroup => (format!("s{id}"), Space::Shared),
                Memory::Private => (format!("l{id}"), Space::Local),
                Memory::Subgroup(_) => continue,
            };
            match arrays.iter().find(|a| a.0 == u) {
                Some(&(_, at)) if all > MAX_STATIC_SHARED => w.d.dynamic_array(&name, at),
                _ => w.d.array(&name, kind, len * dt.size()),
            }
            let width = vector_width(p, u, dt, len, &wide);
            w.ptrs.insert(u, Ptr { width, ..Ptr::elements(name, dt) });
        }
        for &u in &p.order {
            if let Some(kind) = w.launch(u) {
                let (special, d) = match kind {
                    AxisKind::Grid(d) => ("ctaid", d),
                    AxisKind::Local(d) => ("tid", d),
                    _ => return Err(Error::Internal(format!("launch axis {kind:?} in {}", p.name))),
                };
                let special = format!("%{special}.{}", DIMENSIONS[d.min(2) as usize]);
                let name = match p.g.dtype(u) {
                    DType::I64 => {
                        let n = w.d.op(Class::B32, "mov.u32", &[&special]);
                        w.d.op(Class::B64, "cvt.u64.u32", &[&n])
                    }
                    _ => w.d.op(Class::B32, "mov.u32", &[&special]),
                };
                w.name(u, &name);
            }
            if let Arg::Var { name, .. } = p.g.arg(u) {
                let Some(i) = p.vars.iter().position(|v| v.name == *name) else {
                    return Err(Error::Internal(format!("{}: launch scalar {name} is not listed", p.name)));
                };
                let (class, ty) = if p.g.dtype(u) == DType::F32 { (Class::F32, "f32") } else { (Class::B32, "s32") };
                let x = w.d.op(class, &format!("ld.param.{ty}"), &[&format!("[n{i}]")]);
                w.name(u, &x);
            }
            w.node(u)?;
        }
        w.close_all();
        Ok(Code::Text(w.d.module(&p.name, &parameters, p.local)))
    }
}

/// May the barrier of the program's loop be split (`Func::split`)? It may in programs of the form of attention: one
/// loop with one barrier, in which two groups of four warps each multiply, compute with the product, and multiply
/// again.
fn splits_barrier(p: &Program) -> bool {
    let held = |&u: &UOp| matches!(p.g.arg(u), Arg::Mma(l) if l.in_memory() && !l.a.in_memory());
    let loops = p.order.iter().filter(|&&u| p.g.op(u) == Op::Range && p.g.kind(u).is_loop()).count();
    let first = p.order.iter().position(|&u| p.g.op(u) == Op::Range && p.g.kind(u).is_loop()).unwrap_or(0);
    let inside = p.order[first..].iter().filter(|&&u| p.g.op(u) == Op::Barrier);
    let numbered = inside.filter(|&&u| matches!(p.g.arg(u), Arg::Number(_))).count();
    p.local == [128, 2, 1] && p.order.iter().any(held) && loops == 1 && numbered == 1
}

/// The most bytes of workgroup memory that a kernel may declare (static shared memory).
const MAX_STATIC_SHARED: usize = 48 << 10;

/// The bytes of dynamic shared memory that the launch of a kernel with `workgroup` bytes of workgroup arrays must
/// provide.
pub fn dynamic_shared_bytes(workgroup: usize) -> usize {
    if workgroup > MAX_STATIC_SHARED { workgroup } else { 0 }
}

/// The text that precedes the name of a kernel.
const ENTRY: &str = ".visible .entry ";

/// The name that [`unit`] gives to the kernel of `sources[i]`.
pub fn kernel_name(i: usize) -> String {
    format!("gl_kernel_{i}")
}

/// Combines several kernels into one module, in which they are renamed ([`kernel_name`]).
///
/// # Errors
/// [`Error::Internal`] if a source is no PTX of this renderer.
pub fn unit(sources: &[Source]) -> Result<String> {
    let mut unit = String::new();
    for (i, s) in sources.iter().enumerate() {
        let Code::Text(text) = &s.code else { return Err(Error::Internal(format!("{} is no text", s.name))) };
        let (head, rest) = text.split_once(ENTRY).unwrap_or((text.as_str(), ""));
        if i == 0 {
            unit.push_str(head);
        } else if head.contains(func::DYNAMIC_SHARED_DECL) && !unit.contains(func::DYNAMIC_SHARED_DECL) {
            unit.push_str(func::DYNAMIC_SHARED_DECL);
        }
        // kernels are renamed, since several kernels of a batch may have the same name
        if let Some((_, body)) = rest.split_once('(') {
            unit.extend([ENTRY, &kernel_name(i), "(", body]);
        } else if i > 0 {
            unit.push_str(text);
        }
    }
    Ok(unit)
}
