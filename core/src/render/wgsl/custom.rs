//! Kernels that users write, on their way to the device. In: the op with its params, a target. Out: its code as it is, with what a launch
//! needs; or why this device does not run it. The code is not read: the device's compiler says what is wrong with it.

use crate::codegen::ParamInfo;
use crate::render::{Code, Source};
use crate::target::Target;
use crate::uop::custom::Custom;
use crate::uop::{Graph, UOp};
use crate::{Error, Result};

/// A kernel over params within the limits of the target.
pub(super) fn source(c: &Custom, g: &Graph, params: &[UOp], t: &Target) -> Result<(Source, [u32; 3])> {
    let refused = |what: String| Err(Error::Unsupported { what, context: format!("device {}", t.name) });
    if params.len() > t.max_buffers {
        return refused(format!("custom kernel `{}` with {} buffers, {} at most", c.name, params.len(), t.max_buffers));
    }
    if c.grid.iter().zip(t.max_grid).any(|(&n, most)| n > most) {
        return refused(format!("custom kernel `{}` with {:?} workgroups, {:?} at most", c.name, c.grid, t.max_grid));
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
