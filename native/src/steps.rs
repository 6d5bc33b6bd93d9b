//! Checks of steps that all GPU back ends share. All steps of a submission are checked before any of them runs, so that
//! an invalid step leaves nothing half done. A back end contributes what a kernel requires ([`KernelSignature`]) and the
//! sizes of its allocations.

use gradloom_core::device::{KernelId, Step, View};
use gradloom_core::render::Source;
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};

/// What a launch must pass to a kernel.
pub(crate) struct KernelSignature {
    /// The kernel's name, for error messages.
    pub(crate) name: String,
    /// The least number of bytes of each buffer.
    bytes: Vec<usize>,
    scalars: usize,
}

impl KernelSignature {
    /// The requirements of the kernel that a source describes.
    pub(crate) fn of(s: &Source) -> KernelSignature {
        let bytes = s.params.iter().map(|p| p.len * p.dtype.size()).collect();
        KernelSignature { name: s.name.clone(), bytes, scalars: s.vars.len() }
    }

    /// Checks a launch's buffers and scalars against the requirements.
    pub(crate) fn check(&self, device: &str, args: &[View], vars: &[u32]) -> Result<()> {
        let fits = self.bytes.len() == args.len() && self.bytes.iter().zip(args).all(|(&n, v)| n <= v.bytes);
        if fits && self.scalars == vars.len() {
            return Ok(());
        }
        let KernelSignature { name, bytes, scalars } = self;
        Err(wrong(device, format!("{name} wants buffers of {bytes:?} bytes and {scalars} scalars")))
    }
}

/// Checks that a view lies inside its allocation of `bytes` bytes.
pub(crate) fn inside(device: &str, view: &View, bytes: usize) -> Result<()> {
    match view.offset.checked_add(view.bytes) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(wrong(device, format!("{view:?} is outside its {bytes} bytes"))),
    }
}

/// Checks that a GPU with target `t` can run a step. `kernel` gives the requirements of a kernel; `view` checks that a
/// view lies inside its allocation.
#[allow(dead_code, reason = "a build without GPUs has none that run steps")]
pub(crate) fn check<'a>(
    step: &Step,
    t: &Target,
    kernel: impl Fn(KernelId) -> Result<&'a KernelSignature>,
    view: impl Fn(&View) -> Result<()>,
) -> Result<()> {
    let (kernel, args, grid, vars) = match step {
        Step::Copy { src, dst } if src.bytes != dst.bytes => {
            return Err(wrong(&t.name, format!("a copy of {} bytes to {}", src.bytes, dst.bytes)));
        }
        Step::Copy { src, dst } => return view(src).and_then(|()| view(dst)),
        Step::Launch { kernel: id, args, grid, vars } => (kernel(*id)?, args, grid, vars),
    };
    kernel.check(&t.name, args, vars)?;
    if grid.iter().zip(t.limits.max_grid).any(|(&n, most)| n > most) {
        return Err(wrong(&t.name, format!("grid {grid:?} is over the device's limit")));
    }
    for v in args {
        view(v)?;
        if !v.offset.is_multiple_of(t.limits.offset_alignment) {
            return Err(wrong(&t.name, format!("{v:?} is not aligned")));
        }
        if v.bytes > t.limits.max_buffer_bytes {
            return Err(wrong(&t.name, format!("{v:?} is over the device's limit")));
        }
    }
    Ok(())
}

fn wrong(device: &str, what: String) -> Error {
    Error::Device { device: device.into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradloom_core::device::BufId;

    #[test]
    fn views_end_inside_their_allocations_and_kernels_get_what_they_want() {
        let view = |offset, bytes| View { buf: BufId(0), offset, bytes };
        assert!(inside("x", &view(4, 12), 16).is_ok());
        assert!(inside("x", &view(8, 12), 16).is_err() && inside("x", &view(usize::MAX, 2), 16).is_err());
        let signature = KernelSignature { name: "sum".into(), bytes: vec![16, 4], scalars: 1 };
        assert!(signature.check("x", &[view(0, 16), view(0, 8)], &[3]).is_ok());
        for (args, vars) in [
            (vec![view(0, 16)], vec![3]),
            (vec![view(0, 16), view(0, 2)], vec![3]),
            (vec![view(0, 16), view(0, 4)], vec![]),
        ] {
            let e = signature.check("x", &args, &vars).unwrap_err().to_string();
            assert!(e.contains("sum wants buffers of [16, 4] bytes and 1 scalars"), "{e}");
        }
    }
}
