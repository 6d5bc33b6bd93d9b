//! The WGSL renderer: prints a program as a compute shader (W3C WGSL, as the compilers naga and Tint accept it).
//!
//! Interface: group 0 binding i is buffer slot i; group 1 binding 0, present only if the program has launch scalars, is
//! a uniform `array<vec4<u32>, N>` of them; the entry point is `main`; Grid(d) is `workgroup_id`, Local(d) is
//! `local_invocation_id`.
//!
//! Values are bool, i32, u32 and f32, as scalars or vec2/vec4 over the lane axis. 8- and 16-bit integers are held in
//! i32/u32 and wrapped after each op, f16 and bf16 are held in f32 and rounded after each op, and i64/u64 are
//! `vec2<u32>` (low, high) with functions that are printed if used. f64 is not supported. In memory several elements of
//! a narrow dtype share a word ([`memory`]).
//!
//! No shader relies on out-of-bounds accesses, and no constant expression overflows or gives an Inf or NaN, which WGSL
//! forbids. Tests for NaN look at the bits, because a shader compiler may assume that there are no NaNs.

mod alu;
mod custom;
mod dialect;
mod helpers;
mod layout;
mod long;
mod memory;

use super::cstyle::{Ptr, Walk, pointers};
use super::{Code, Renderer, Source};
use crate::codegen::{ParamInfo, Program};
use crate::target::Target;
use crate::uop::custom::Custom;
use crate::uop::{Arg, AxisKind, Graph, Space, UOp};
use crate::{DType, Error, Result};
use dialect::Wgsl;
use std::fmt::Write as _;

/// The WGSL renderer.
pub struct WgslRenderer;

impl Renderer for WgslRenderer {
    fn custom(&self, kernel: &Custom, g: &Graph, params: &[UOp], t: &Target) -> Result<Option<(Source, [u32; 3])>> {
        t.caps.custom_kernels.then(|| custom::source(kernel, g, params, t)).transpose()
    }

    fn render(&self, p: &Program, t: &Target) -> Result<Code> {
        check(p, t)?;
        let mut w = Walk::new(p, Wgsl::new(t.caps.f16_arrays));
        w.dots = layout::dots(p, t);
        let mut head = String::new();
        for (slot, info) in p.params.iter().enumerate() {
            let node = pointers(p).into_iter().find(|&u| p.slot(u) == Some(slot as u32));
            let (name, access) = (format!("b{slot}"), if info.written { "read_write" } else { "read" });
            let (width, memory) = layout::memory(p, node, info.dtype, info.len, t, &w.dots);
            let ptr = Ptr { name, dt: info.dtype, width, memory };
            let element = w.d.element_type(&ptr);
            let _ = writeln!(head, "@group(0) @binding({slot}) var<storage, {access}> b{slot}: array<{element}>;");
            if let Some(node) = node {
                w.ptrs.insert(node, ptr);
            }
        }
        if !p.vars.is_empty() {
            let n = p.vars.len().div_ceil(4);
            let _ = writeln!(head, "@group(1) @binding(0) var<uniform> vars: array<vec4<u32>, {n}>;");
        }
        let mut private = String::new();
        for u in pointers(p) {
            if let Arg::Scratch { id, len, space } = *p.g.arg(u) {
                let (name, dt) = (format!("s{id}"), p.g.dtype(u));
                let (width, memory) = layout::memory(p, Some(u), dt, len, t, &w.dots);
                let ptr = Ptr { name: name.clone(), dt, width, memory };
                let (element, len) = (w.d.element_type(&ptr), len / width);
                let _ = match space {
                    Space::Workgroup => writeln!(head, "var<workgroup> {name}: array<{element}, {len}>;"),
                    Space::Subgroup(_) => continue,
                    Space::Private => writeln!(private, "  var {name}: array<{element}, {len}>;"),
                };
                w.ptrs.insert(u, ptr);
            }
        }
        for &u in &p.order {
            if let Some(kind) = w.launch(u) {
                let (builtin, name, d) = match kind {
                    AxisKind::Grid(d) => ("group", format!("g{d}"), d),
                    AxisKind::Local(d) => ("thread", format!("l{d}"), d),
                    _ => unreachable!("launch kinds are Grid and Local"),
                };
                w.line(&format!("let {name} = i32({builtin}.{});", ["x", "y", "z"][d.min(2) as usize]));
                w.name(u, &name);
            }
            if let Arg::Var { name, .. } = p.g.arg(u) {
                let Some(i) = p.vars.iter().position(|v| v.name == *name) else {
                    return Err(Error::Internal(format!("{}: launch scalar {name} is not listed", p.name)));
                };
                let ty = dialect::scalar_type(p.g.dtype(u));
                w.line(&format!("let n{i} = bitcast<{ty}>(vars[{}].{});", i / 4, ["x", "y", "z", "w"][i % 4]));
                w.name(u, &format!("n{i}"));
            }
            w.node(u)?;
        }
        w.close_all();
        let [x, y, z] = p.local;
        let mut text: String = w.d.extensions.iter().map(|e| format!("enable {e};\n")).collect();
        text.push_str(&head);
        text.push_str(&w.d.helpers());
        let _ = write!(
            text,
            "@compute @workgroup_size({x}, {y}, {z})\nfn main(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(local_invocation_id) thread: vec3<u32>) {{\n{private}{}}}\n",
            w.body
        );
        Ok(Code::Text(text))
    }
}

/// A kernel that finds out which threads of a workgroup can exchange values by subgroup shuffles; WGSL does not specify
/// which threads form a subgroup. Each of [`PROBE_THREADS`] threads of a workgroup writes for how many bits of its
/// number, from the lowest on, a shuffle reached the thread whose number differs in that bit.
pub fn subgroup_probe() -> Source {
    let code = "enable subgroups;
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@compute @workgroup_size(8, 8)
fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32) {
  var n = 0u;
  var right = true;
  for (var bit = 1u; bit < 64u; bit = bit << 1u) {
    right = (subgroupShuffleXor(i, bit) == (i ^ bit)) & right & (bit < size);
    n += u32(right);
  }
  b0[i] = n;
}
";
    Source {
        name: "subgroups".into(),
        code: Code::Text(code.into()),
        local: [8, PROBE_THREADS as u32 / 8, 1],
        params: vec![ParamInfo { dtype: DType::U32, len: PROBE_THREADS, read: false, written: true }],
        vars: Vec::new(),
        scratch: 0,
    }
}

/// Number of threads, and of results, of [`subgroup_probe`].
pub const PROBE_THREADS: usize = 64;

/// The value for `Caps::subgroup` that follows from the results of [`subgroup_probe`], on an adapter whose
/// subgroups have at least `least` threads.
pub fn subgroup(results: &[u8], least: u32) -> u32 {
    let bits = results.chunks_exact(4).map(|b| b[0]).min().unwrap_or(0);
    (1u32 << bits.min(6)).min(least.checked_ilog2().map_or(0, |bits| 1 << bits))
}

/// Refuses programs with dtypes that WGSL or the target lacks.
fn check(p: &Program, t: &Target) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported { what, context: format!("wgsl, {}", p.name) });
    for &u in &p.order {
        if p.g.dtype(u) == DType::F64 || p.g.src(u).iter().any(|&s| p.g.dtype(s) == DType::F64) {
            return refuse("f64".into());
        }
    }
    for (i, info) in p.params.iter().enumerate() {
        if !t.caps.storage.has(info.dtype) {
            return refuse(format!("{} in memory (buffer {i})", info.dtype));
        }
    }
    Ok(())
}
