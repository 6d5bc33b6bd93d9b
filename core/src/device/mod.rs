//! The seam to hardware: what `native` and `web` implement. Object safe, never blocks except where a platform offers no
//! other way (native readback), never awaits.

pub mod canary;
pub mod eval;
pub mod null;

pub use eval::EvalDevice;
pub use null::NullDevice;

use crate::Result;
use crate::render::{self, Renderer, Source};
use crate::target::Target;

/// A device allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct BufId(pub u32);

/// A compiled kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct KernelId(pub u32);

/// A readback in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Ticket(pub u32);

/// Part of an allocation, from a byte offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The allocation.
    pub buf: BufId,
    /// Byte offset, a multiple of the target's `offset_alignment`.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

/// One step of a plan, in order. Plain data.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Run a kernel.
    Launch {
        /// Which.
        kernel: KernelId,
        /// Buffers by slot.
        args: Vec<View>,
        /// Grid.
        grid: [u32; 3],
        /// Launch scalars as raw 4-byte values.
        vars: Vec<u32>,
    },
    /// Copy bytes between allocations.
    Copy {
        /// From.
        src: View,
        /// To.
        dst: View,
    },
}

/// `Send` where there are threads to send to. In a page, devices and hosts hold values of JavaScript, which stay on their thread.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaySend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaySend for T {}

/// `Send` where there are threads to send to. In a page, devices and hosts hold values of JavaScript, which stay on their thread.
#[cfg(target_arch = "wasm32")]
pub trait MaySend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaySend for T {}

/// Writes bytes, from the given one on.
pub type Write<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// A device. Errors are `Error::Device` and `Error::OutOfMemory`.
pub trait Device: MaySend {
    /// What it can do.
    fn target(&self) -> &Target;

    /// What prints its kernels.
    fn renderer(&self) -> &'static dyn Renderer {
        render::of(self.target().lang)
    }

    /// What its driver gets wrong, and how kernels go without it: a line each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Allocates zeroed bytes.
    fn alloc(&mut self, bytes: usize) -> Result<BufId>;

    /// Allocates bytes of any values: the caller writes all of them before anything reads one.
    fn alloc_to_fill(&mut self, bytes: usize) -> Result<BufId> {
        self.alloc(bytes)
    }

    /// Frees an allocation once submitted work that uses it is done.
    fn free(&mut self, buf: BufId);

    /// Copies host bytes in, ordered with submitted steps.
    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()>;

    /// Has the first `len` bytes of a buffer written by `write`, which is given where in them to begin and memory for them: `step` bytes or
    /// several times as many. Ordered with submitted steps.
    fn upload_made(&mut self, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
        let _ = step;
        let mut all = vec![0; len];
        write(0, &mut all);
        self.upload(buf, 0, &all)
    }

    /// Where in the device's memory the first `bytes` of a buffer lie, once nothing that was submitted uses them: for a host that writes there
    /// itself what lies outside of this process's memory. Nothing where it cannot.
    fn place(&mut self, buf: BufId, bytes: usize) -> Result<Option<usize>> {
        let _ = (buf, bytes);
        Ok(None)
    }

    /// Starts compiling kernels; they may be named in `submit` once [`Device::ready`] is true.
    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>>;

    /// Bytes of code that are worth one call of [`Device::compile`]: its caller may do something else between two.
    fn compile_bytes(&self) -> usize {
        usize::MAX
    }

    /// Are all kernels compiled? Errors of compilation come out here. True at once for synchronous devices.
    fn ready(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Releases a kernel.
    fn release(&mut self, kernel: KernelId);

    /// Runs the steps in order, as if one after the other. Returns before they are done where the platform allows.
    fn submit(&mut self, steps: &[Step]) -> Result<()>;

    /// Goes on with what was submitted where the caller's own thread has to, for as long as the host gave it time. True once nothing of it is
    /// left to do, and where the device does without the caller.
    fn work(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Gives up what was submitted and is not done, where the device can. What that was to write holds anything.
    fn stop(&mut self) {}

    /// The same as [`Device::submit`], timed by the device's own clock. The ticket's bytes are two little-endian u64: nanoseconds at the beginning
    /// and at the end. `None` where it has none: the steps were submitted all the same.
    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        self.submit(steps).map(|()| None)
    }

    /// Should a caller that can wait submit more now? False while enough is under way that the device does not idle, which others
    /// may be waiting for too.
    fn has_room(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Starts reading bytes back, ordered after everything submitted.
    fn read(&mut self, view: View) -> Result<Ticket>;

    /// The bytes, once they are there. A ticket is spent when it returned `Some`.
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>>;

    /// Waits until everything submitted is done, where the platform can block; elsewhere does nothing.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}
