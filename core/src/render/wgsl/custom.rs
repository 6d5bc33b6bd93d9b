//! Kernels that users write in WGSL. Input: the op, its params and a target. Output: the user's code, unchanged, with
//! the data that a launch needs, or an error that says why this device cannot run it. The code is not parsed here; the
//! device's compiler reports errors in it.

use crate::codegen::ParamInfo;
use crate::render::{Code, Source};
use crate::target::Target;
use crate::uop::custom::Custom;
use crate::uop::{Graph, UOp};
use crate::{Error, Result};

/// The source of a user's kernel over `params`, and its launch grid. `Unsupported` if it exceeds the target's limits of
/// buffers or workgroups.
pub(super) fn source(c: &Custom, g: &Graph, params: &[UOp], t: &Target) -> Result<(Source, [u32; 3])> {
    let refused = |what: String| Err(Error::Unsupported { what, context: format!("device {}", t.name) });
    if params.len() > t.limits.max_buffers {
        return refused(format!(
            "custom kernel `{}` with {} buffers, {} at most",
            c.name,
            params.len(),
            t.limits.max_buffers
        ));
    }
    if c.grid.iter().zip(t.limits.max_grid).any(|(&n, most)| n > most) {
        return refused(format!(
            "custom kernel `{}` with {:?} workgroups, {:?} at most",
            c.name, c.grid, t.limits.max_grid
        ));
    }
    let info = |(i, &p): (usize, &UOp)| {
        let written = i < c.outputs;
        ParamInfo { dtype: g.dtype(p), len: g.memory_len(p), read: !written, written }
    };
    let params = params.iter().enumerate().map(info).collect();
    let code = Code::Text(c.code.to_string());
    let source = Source { name: c.name.to_string(), code, local: [1; 3], params, vars: Vec::new(), scratch: 0 };
    Ok((source, c.grid))
}
