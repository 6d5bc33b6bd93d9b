//! Kernels that users write, on their way to the device. In: the kernel graph of one, a target. Out: its code as it is, with what a launch
//! needs; or why this device does not run it. The code is not read: the device's compiler says what is wrong with it.

use super::plan::Compiled;
use crate::codegen::ParamInfo;
use crate::render::{Code, Source};
use crate::target::Target;
use crate::uop::{Arg, Graph, UOp};
use crate::{Error, Result};

/// The kernel `u`, whose sources are params in the order of their slots.
///
/// # Errors
/// `E_UNSUPPORTED` on devices that take no code of users, and beyond their limits.
pub(super) fn compiled(g: &Graph, u: UOp, t: &Target) -> Result<Compiled> {
    let Arg::Custom(c) = g.arg(u) else { return Err(Error::Internal("a custom kernel without code".into())) };
    let refused = |what: String| Err(Error::Unsupported { what, context: format!("device {}", t.name) });
    if !t.custom_kernels {
        return refused(format!("custom kernel `{}`, which is code in WGSL", c.name));
    }
    let params: Vec<ParamInfo> = (0usize..)
        .zip(g.src(u))
        .map(|(i, &p)| ParamInfo {
            dtype: g.dtype(p),
            len: g.memory_len(p),
            read: i >= c.outputs,
            written: i < c.outputs,
        })
        .collect();
    if params.len() > t.max_buffers {
        return refused(format!("custom kernel `{}` with {} buffers, {} at most", c.name, params.len(), t.max_buffers));
    }
    if c.grid.iter().zip(t.max_grid).any(|(&n, most)| n > most) {
        return refused(format!("custom kernel `{}` with {:?} workgroups, {:?} at most", c.name, c.grid, t.max_grid));
    }
    let bytes =
        params.iter().map(|p| (p.len as u64).saturating_mul(p.dtype.size() as u64)).fold(0, u64::saturating_add);
    let code = Code::Text(c.code.to_string());
    let source = Source { name: c.name.to_string(), code, local: [1; 3], params, vars: Vec::new(), scratch: 0 };
    Ok(Compiled { source, grid: c.grid, vars: Vec::new(), flops: 0, bytes, packs: Vec::new(), program: None })
}
