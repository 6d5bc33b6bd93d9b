//! Makes callable functions from the bytes of the machine-code renderers.

use super::code::Code;
use super::{Function, Maker};
use gradloom_core::render::{self, Source};
use gradloom_core::{Error, Result};
use std::sync::Arc;

/// Puts machine code into executable pages.
pub(super) struct Machine;

// SAFETY: the bytes are the renderer's, copied as a whole to pages that live as long as `Code`.
unsafe impl Maker for Machine {
    fn make(&mut self, sources: &[Source]) -> Result<Vec<Function>> {
        let bad = |what: String| Error::Device { device: "cpu".into(), what };
        let mut parts = Vec::with_capacity(sources.len());
        for s in sources {
            match &s.code {
                render::Code::Bytes(b) => parts.push(b.as_slice()),
                _ => return Err(bad(format!("kernel {} is not machine code", s.name))),
            }
        }
        let (code, entries) = Code::new(&parts).map_err(|e| bad(format!("executable memory: {e}")))?;
        let code = Arc::new(code);
        Ok(entries.into_iter().map(|at| Function { entry: code.at(at), _code: code.clone() }).collect())
    }
}
