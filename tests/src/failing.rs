//! A device that refuses one of its calls, for tests of what such a failure leaves behind; and what it has handed out.

use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::Source;
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// The calls that may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Device::alloc`].
    Alloc,
    /// [`Device::upload`].
    Upload,
    /// [`Device::compile`].
    Compile,
    /// [`Device::submit`] and its kin.
    Submit,
    /// [`Device::read`].
    Read,
    /// [`Device::poll`].
    Poll,
}

impl Call {
    /// Every one.
    pub const ALL: [Call; 6] = [Call::Alloc, Call::Upload, Call::Compile, Call::Submit, Call::Read, Call::Poll];

    /// The code of its error.
    pub fn code(self) -> &'static str {
        if self == Call::Alloc { "E_OUT_OF_MEMORY" } else { "E_DEVICE" }
    }
}

/// How long a failure lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasts {
    /// One call.
    Once,
    /// This one and all later ones of its kind.
    On,
}

/// What a device has handed out and not got back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Buffers, each with its bytes.
    pub buffers: BTreeSet<(u32, usize)>,
    /// Kernels.
    pub kernels: BTreeSet<u32>,
    /// Reads that nobody has taken the bytes of.
    pub reads: BTreeSet<u32>,
}

impl Live {
    /// Numbers of buffers, bytes, kernels and reads.
    pub fn counts(&self) -> [usize; 4] {
        [self.buffers.len(), self.buffers.iter().map(|b| b.1).sum(), self.kernels.len(), self.reads.len()]
    }
}

#[derive(Default)]
struct Inner {
    armed: Option<(Call, u32, Lasts)>,
    fired: bool,
    live: Live,
}

/// The switch of a [`Failing`] device.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Inner>>);

impl Faults {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// From now on the `nth` call of this kind fails, counted from 1.
    pub fn arm(&self, call: Call, nth: u32, lasts: Lasts) {
        let mut inner = self.inner();
        (inner.armed, inner.fired) = (Some((call, nth, lasts)), false);
    }

    /// From now on nothing fails. Did anything?
    pub fn disarm(&self) -> bool {
        let mut inner = self.inner();
        inner.armed = None;
        inner.fired
    }

    /// What is handed out now.
    pub fn live(&self) -> Live {
        self.inner().live.clone()
    }

    fn fails(&self, call: Call) -> bool {
        let mut inner = self.inner();
        let Some((of, left, lasts)) = &mut inner.armed else { return false };
        if *of != call {
            return false;
        }
        if *left > 1 {
            *left -= 1;
            return false;
        }
        if *lasts == Lasts::Once {
            inner.armed = None;
        }
        inner.fired = true;
        true
    }

    fn check(&self, call: Call) -> Result<()> {
        let refused = || Error::Device { device: "failing".into(), what: format!("{call:?} is refused") };
        if self.fails(call) { Err(refused()) } else { Ok(()) }
    }
}

/// A device around another one.
pub struct Failing {
    inner: Box<dyn Device>,
    faults: Faults,
}

impl Failing {
    /// Fails as `faults` says.
    pub fn new(inner: Box<dyn Device>, faults: &Faults) -> Failing {
        Failing { inner, faults: faults.clone() }
    }
}

impl Device for Failing {
    fn target(&self) -> &Target {
        self.inner.target()
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        if self.faults.fails(Call::Alloc) {
            return Err(Error::OutOfMemory { device: "failing".into(), bytes: bytes as u64 });
        }
        let buf = self.inner.alloc(bytes)?;
        self.faults.inner().live.buffers.insert((buf.0, bytes));
        Ok(buf)
    }

    fn free(&mut self, buf: BufId) {
        self.faults.inner().live.buffers.retain(|b| b.0 != buf.0);
        self.inner.free(buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.faults.check(Call::Upload)?;
        self.inner.upload(buf, offset, data)
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        self.faults.check(Call::Compile)?;
        let kernels = self.inner.compile(sources)?;
        self.faults.inner().live.kernels.extend(kernels.iter().map(|k| k.0));
        Ok(kernels)
    }

    fn compile_bytes(&self) -> usize {
        self.inner.compile_bytes()
    }

    fn ready(&mut self) -> Result<bool> {
        self.inner.ready()
    }

    fn release(&mut self, kernel: KernelId) {
        self.faults.inner().live.kernels.remove(&kernel.0);
        self.inner.release(kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        self.faults.check(Call::Submit)?;
        self.inner.submit(steps)
    }

    fn work(&mut self) -> Result<bool> {
        self.inner.work()
    }

    fn stop(&mut self) {
        self.inner.stop();
    }

    fn has_room(&mut self) -> Result<bool> {
        self.inner.has_room()
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.faults.check(Call::Read)?;
        let ticket = self.inner.read(view)?;
        self.faults.inner().live.reads.insert(ticket.0);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        if let Err(e) = self.faults.check(Call::Poll) {
            // a device that cannot give the bytes forgets them
            self.faults.inner().live.reads.remove(&ticket.0);
            return Err(e);
        }
        let data = self.inner.poll(ticket)?;
        if data.is_some() {
            self.faults.inner().live.reads.remove(&ticket.0);
        }
        Ok(data)
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }
}
