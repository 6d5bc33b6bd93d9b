//! The GPU kernel languages that look like C (OpenCL C, Metal, CUDA C++, HIP C++): one printer, and for each language a
//! [`Table`](table::Table) in a file of its own. A new language needs a file beside `opencl.rs`, a [`Lang`] with its
//! line here, and a `Target`.
//!
//! Interface: a kernel has the program's name. The buffer of a slot is the parameter `p{slot}`, followed, in languages
//! whose drivers cannot pass a pointer into the middle of an allocation, by `o{slot}`, a 64-bit offset in bytes. Launch
//! scalars come after all buffers, as values of 4 bytes. Grid(d) is the workgroup's number, Local(d) the thread's
//! number in its workgroup. Kernels of one compilation unit may share a name: see [`unit`].
//!
//! Values are scalars of types named after dtypes (`f32`, `u8`), or vectors of 2 or 4 of them over the lane axis.
//! Arithmetic goes lane by lane, except for floats in languages with vector arithmetic; the purpose of vectors is that
//! contiguous elements are loaded and stored at once. f16 and bf16 are held as their bits. A bool is a `bool`, but in
//! memory and in vectors a byte of 0 or 1. An array whose every access is of whole vectors is declared as an array of
//! vectors.

mod cuda;
mod dialect;
mod hip;
mod metal;
mod opencl;
mod table;

pub use opencl::subgroup_probe;

use super::cstyle::{Dots, Memory, Ptr, Walk, memory_type, pointers, vector_width};
use super::{Code, Renderer, Source};
use crate::codegen::Program;
use crate::target::{Lang, Target};
use crate::uop::{Arg, AxisKind, Space};
use crate::{DType, Error, Result};
use dialect::{GpuC, element_type, vector};
use std::fmt::Write as _;
use table::{Buffer, Kernel, Table};

/// The renderer of one of these languages.
pub struct GpuCRenderer {
    lang: Lang,
    table: &'static Table,
}

static RENDERERS: [GpuCRenderer; 4] = [
    GpuCRenderer { lang: Lang::OpenCl, table: &opencl::TABLE },
    GpuCRenderer { lang: Lang::Metal, table: &metal::TABLE },
    GpuCRenderer { lang: Lang::CudaC, table: &cuda::TABLE },
    GpuCRenderer { lang: Lang::Hip, table: &hip::TABLE },
];

/// The renderer of a language, if it is one of these.
pub fn of(lang: Lang) -> Option<&'static GpuCRenderer> {
    RENDERERS.iter().find(|r| r.lang == lang)
}

impl Renderer for GpuCRenderer {
    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        let table = self.table;
        check(p, t, table)?;
        let mut w = Walk::new(p, GpuC::new(table));
        if t.caps.dots.is_some() && table.dot.is_some() {
            w.dots = Dots::of_word_buffers(p);
        }
        let mut parameters = Vec::new();
        let mut buffers = Vec::new();
        for (slot, info) in p.params.iter().enumerate() {
            let node = pointers(p).into_iter().find(|&u| p.slot(u) == Some(slot as u32));
            let ptr = match node {
                Some(u) if w.dots.reads(p, u) => {
                    let width = if w.dots.quads(p, u, info.len) { 16 } else { 4 };
                    Ptr { width, memory: Memory::Words, ..Ptr::elements(format!("b{slot}"), info.dtype) }
                }
                _ => {
                    let fits = |_: DType, lanes| vector(lanes);
                    let width = node.map_or(1, |u| vector_width(p, u, info.dtype, info.len, &fits));
                    Ptr { width, ..Ptr::elements(format!("b{slot}"), info.dtype) }
                }
            };
            let ty = element_type(&mut w.d, &ptr);
            let buffer = Buffer { slot, ty: &ty, written: info.written };
            parameters.push((table.parameter)(&buffer));
            buffers.push((table.view)(&buffer));
            if let Some(node) = node {
                w.ptrs.insert(node, ptr);
            }
        }
        buffers.iter().for_each(|line| w.line(line));
        let scalars: Vec<&str> = p.vars.iter().map(|var| memory_type(var.dtype)).collect();
        parameters.extend((table.scalars)(&scalars, p.params.len()));
        if let Some(statement) = table.scalar {
            scalars.iter().enumerate().for_each(|(i, ty)| w.line(&statement(i, ty)));
        }
        for u in pointers(p) {
            if let Arg::Scratch { id, len, space } = *p.g.arg(u) {
                let dt = p.g.dtype(u);
                let width = vector_width(p, u, dt, len, &|_, lanes| vector(lanes));
                let ptr = Ptr { width, ..Ptr::elements(format!("s{id}"), dt) };
                let (ty, len) = (element_type(&mut w.d, &ptr), len / width);
                match space {
                    Space::Workgroup => w.line(&format!("{} {ty} s{id}[{len}];", table.shared)),
                    Space::Private => w.line(&format!("{ty} s{id}[{len}];")),
                    Space::Subgroup(_) => continue,
                }
                w.ptrs.insert(u, ptr);
            }
        }
        for &u in &p.order {
            if let Some(kind) = w.launch(u) {
                let (words, name, d) = match kind {
                    AxisKind::Grid(d) => (table.group, format!("g{d}"), d),
                    AxisKind::Local(d) => (table.thread, format!("l{d}"), d),
                    _ => return Err(Error::Internal(format!("launch axis {kind:?} in {}", p.name))),
                };
                w.line(&format!("const i32 {name} = (i32){};", words[d.min(2) as usize]));
                w.name(u, &name);
            }
            if let Arg::Var { name, .. } = p.g.arg(u) {
                let Some(i) = p.vars.iter().position(|v| v.name == *name) else {
                    return Err(Error::Internal(format!("{}: launch scalar {name} is not listed", p.name)));
                };
                w.name(u, &format!("n{i}"));
            }
            w.node(u)?;
        }
        w.close_all();
        let f64s = if t.caps.arithmetic.has(DType::F64) { "#define GL_F64\n" } else { "" };
        let (parameters, subgroup) = (parameters.join(", "), w.d.exchanges.then_some(t.caps.subgroup));
        let kernel = Kernel { name: &p.name, local: p.local, parameters: &parameters, subgroup };
        let mut text = format!("#ifndef GL_PRELUDE\n#define GL_PRELUDE\n{f64s}{}#endif\n", (table.prelude)());
        text.push_str(&w.d.types());
        let _ = write!(text, "{} {{\n{}}}\n", (table.kernel)(&kernel), w.body);
        Ok(Code::Text(text))
    }
}

fn check(p: &Program, t: &Target, table: &Table) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported { what, context: format!("{}, {}", table.name, p.name) });
    let double = |u| p.g.dtype(u) == DType::F64;
    if !t.caps.arithmetic.has(DType::F64) && p.order.iter().any(|&u| double(u) || p.g.src(u).iter().any(|&s| double(s)))
    {
        return refuse("f64".into());
    }
    match p.params.iter().find(|info| !t.caps.storage.has(info.dtype)) {
        Some(info) => refuse(format!("{} in memory", info.dtype)),
        None => Ok(()),
    }
}

/// The name of the kernel of `sources[i]` in their [`unit`].
pub fn kernel_name(i: usize) -> String {
    format!("gl_kernel_{i}")
}

/// Joins several kernels into one text for the driver's compiler, which takes about as long for the prelude that they
/// share as for one whole kernel.
pub fn unit(sources: &[Source]) -> Result<String> {
    let mut unit = String::new();
    for (i, s) in sources.iter().enumerate() {
        let Code::Text(text) = &s.code else { return Err(Error::Internal(format!("{} is no text", s.name))) };
        // kernels of one unit may have the same name
        let _ = writeln!(unit, "#define {0} {1}\n{text}#undef {0}", s.name, kernel_name(i));
    }
    Ok(unit)
}
