//! A device that compiles and runs nothing, but counts and checks what it is asked to do: for tests of plans, and for
//! renderers whose hardware is not available.

use super::{BufId, Device, KernelId, Step, Ticket, View};
use crate::render::Source;
use crate::target::Target;
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// What a [`NullDevice`] was asked to do.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Kernels compiled.
    pub kernels: usize,
    /// Kernel launches.
    pub launches: usize,
    /// Copies between buffers.
    pub copies: usize,
    /// Bytes uploaded.
    pub uploaded: usize,
}

/// A device without hardware for any target. Reads give zeros.
pub struct NullDevice {
    target: Target,
    buffers: FxHashMap<BufId, usize>,
    kernels: FxHashMap<KernelId, Vec<usize>>,
    reads: FxHashMap<Ticket, usize>,
    next: u32,
    counts: Counts,
}

impl NullDevice {
    /// A device with the given target.
    pub fn new(target: Target) -> NullDevice {
        NullDevice {
            target,
            buffers: FxHashMap::default(),
            kernels: FxHashMap::default(),
            reads: FxHashMap::default(),
            next: 0,
            counts: Counts::default(),
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn bad(&self, what: impl Into<String>) -> Error {
        Error::Device { device: self.target.name.clone(), what: what.into() }
    }

    fn check(&self, v: &View) -> Result<()> {
        match (self.buffers.get(&v.buf), v.offset.checked_add(v.bytes)) {
            (Some(&len), Some(end)) if end <= len => Ok(()),
            _ => Err(self.bad(format!("{v:?} is no part of a buffer"))),
        }
    }
}

impl Device for NullDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let id = BufId(self.id());
        self.buffers.insert(id, bytes);
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        self.buffers.remove(&buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.check(&View { buf, offset, bytes: data.len() })?;
        self.counts.uploaded += data.len();
        Ok(())
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.counts.kernels += sources.len();
        let mut ids = Vec::with_capacity(sources.len());
        for s in sources {
            let id = KernelId(self.id());
            self.kernels.insert(id, s.params.iter().map(|p| p.len * p.dtype.size()).collect());
            ids.push(id);
        }
        Ok(ids)
    }

    fn release(&mut self, kernel: KernelId) {
        self.kernels.remove(&kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        for s in steps {
            match s {
                Step::Launch { kernel, args, .. } => {
                    let need = self.kernels.get(kernel).ok_or_else(|| self.bad(format!("no kernel {}", kernel.0)))?;
                    if need.len() != args.len() || need.iter().zip(args).any(|(n, v)| v.bytes < *n) {
                        return Err(self.bad(format!("arguments of kernel {} do not fit", kernel.0)));
                    }
                    args.iter().try_for_each(|v| self.check(v))?;
                    self.counts.launches += 1;
                }
                Step::Copy { src, dst } => {
                    self.check(src)?;
                    self.check(dst)?;
                    self.counts.copies += 1;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.check(&view)?;
        let t = Ticket(self.id());
        self.reads.insert(t, view.bytes);
        Ok(t)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        match self.reads.remove(&ticket) {
            Some(n) => Ok(Some(vec![0; n])),
            None => Err(self.bad(format!("no readback {}", ticket.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_checks() {
        let mut d = NullDevice::new(Target::eval());
        let a = d.alloc(64).unwrap();
        d.upload(a, 32, &[1; 32]).unwrap();
        assert!(d.upload(a, 33, &[1; 32]).is_err());
        let v = View { buf: a, offset: 0, bytes: 32 };
        d.submit(&[Step::Copy { src: v, dst: View { offset: 32, ..v } }]).unwrap();
        assert_eq!(d.counts(), Counts { copies: 1, uploaded: 32, ..Counts::default() });
        let t = d.read(v).unwrap();
        assert_eq!(d.poll(t).unwrap(), Some(vec![0; 32]));
        assert!(d.poll(t).is_err());
        d.free(a);
        assert!(d.read(v).is_err());
    }
}
