//! Kernels that users write in WGSL. Input: the code, the input tensors under the names that the code uses, and names,
//! dtypes and shapes of the outputs. Output: lazy tensors; the kernel runs when one of them is realized, in order with
//! all other kernels. The storage bindings are declared here, so that the code names its operands and never a binding.

use super::{Session, Tensor, check_len};
use crate::target::Target;
use crate::uop::custom::Custom;
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Error, Result};
use std::fmt::Write as _;

/// The operation named in errors.
const OP: &str = "customKernel";

/// A WGSL kernel and what it is launched with.
///
/// The name of each tensor is declared as a global array: `array<f32>`, `array<i32>` or `array<u32>` for tensors of
/// that dtype, `array<i32>` for bool, `array<vec2<u32>>` for i64 and u64, and `array<u32>` for dtypes of 8 and 16 bits,
/// several of which share a word, the first in the lowest bits.
pub struct CustomKernel<'a> {
    /// The kernel's name in messages.
    pub name: &'a str,
    /// WGSL functions, with `main` as the entry point. The code must write every element of its outputs.
    pub code: &'a str,
    /// Number of workgroups along x, y and z.
    pub workgroups: [u32; 3],
    /// The tensors that the kernel reads, by name.
    pub inputs: &'a [(&'a str, &'a Tensor)],
    /// The tensors that the kernel writes: name, dtype and shape.
    pub outputs: &'a [(&'a str, DType, Vec<usize>)],
}

impl Tensor {
    /// The outputs of a user's kernel, in order. A device that cannot run such code reports `E_UNSUPPORTED` when they
    /// are realized. They have no gradient; [`Tensor::custom_grad`] gives them one.
    ///
    /// # Errors
    /// `E_VALUE` for no outputs, outputs without elements, a workgroup count of 0, and for names that are not valid in
    /// WGSL or occur twice; `E_UNSUPPORTED` for dtypes that shaders cannot store.
    pub fn custom_kernel(session: &Session, kernel: &CustomKernel<'_>) -> Result<Vec<Tensor>> {
        let CustomKernel { name, workgroups, inputs, outputs, .. } = kernel;
        if outputs.is_empty() || outputs.iter().any(|o| o.2.contains(&0)) {
            return Err(Error::value(OP, format!("kernel `{name}` makes no elements")));
        }
        if workgroups.contains(&0) {
            return Err(Error::value(OP, format!("kernel `{name}` has {workgroups:?} workgroups")));
        }
        let code = kernel.module()?;
        for (_, x) in *inputs {
            if !x.session().is(session) {
                return Err(Error::value(OP, "the tensors belong to different sessions"));
            }
        }
        let mut outs = Vec::with_capacity(outputs.len());
        for (_, dtype, shape) in *outputs {
            check_len(OP, shape)?;
            outs.push(Tensor::over_buffer(session, *dtype, shape, None));
        }
        let rows: Vec<Tensor> = inputs.iter().map(|(_, x)| x.in_memory()).collect();
        let mut s = session.state();
        let buffers: Vec<UOp> = outs.iter().filter_map(|t| s.storage(s.node(t.root()))).collect();
        let src: Vec<UOp> = buffers.iter().copied().chain(rows.iter().map(|t| s.node(t.root()))).collect();
        let arg = Custom { name: (*name).into(), code: code.into(), grid: *workgroups, outputs: outs.len(), ir: None };
        let op = s.graph.node(Op::Custom, DType::Void, &src, Arg::Custom(Box::new(arg)));
        for ((t, &buffer), (_, _, shape)) in outs.iter().zip(&buffers).zip(*outputs) {
            let after = s.graph.after(buffer, &[op]);
            let node = s.graph.reshape(after, shape);
            s.set_node(t.root(), node);
        }
        drop(s);
        Ok(outs)
    }

    /// The tensor as a flat array in memory: its storage where it has some, otherwise a copy to be stored.
    pub(super) fn in_memory(&self) -> Tensor {
        let held = {
            let s = self.session().state();
            s.storage(s.node(self.root())).filter(|&u| s.graph.memory_len(u) == s.graph.memory_len(s.node(self.root())))
        };
        match held {
            Some(u) => Tensor::from_node(self.session(), u),
            None => self.map(|g, u| {
                let (dt, len) = (g.dtype(u), g.memory_len(u));
                let row = g.reshape(u, &[len]);
                g.node(Op::Contiguous, dt, &[row], Arg::None)
            }),
        }
    }
}

impl CustomKernel<'_> {
    /// The WGSL module: declarations of the storage bindings, followed by the user's code.
    fn module(&self) -> Result<String> {
        let target = Target::wgsl("WGSL");
        let names = self.outputs.iter().map(|o| (o.0, o.1, "read_write"));
        let names = names.chain(self.inputs.iter().map(|(name, t)| (*name, t.dtype(), "read")));
        let mut text = String::new();
        let mut seen: Vec<&str> = vec!["main"];
        for (binding, (name, dtype, access)) in names.enumerate() {
            let mut chars = name.chars();
            let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
            if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') || seen.contains(&name) {
                return Err(Error::value(OP, format!("`{name}` is no name of its own for an array in WGSL")));
            }
            seen.push(name);
            let element = match target.stored_as(dtype)? {
                dt @ (DType::F32 | DType::I32 | DType::U32) => dt.name(),
                DType::I64 | DType::U64 => "vec2<u32>",
                _ => "u32",
            };
            let _ = writeln!(text, "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;");
        }
        text.push_str(self.code);
        Ok(text)
    }
}
