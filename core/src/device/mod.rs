//! The interface to hardware, which `native` and `web` implement. Object safe. Calls never block except where a
//! platform offers no other way (reading back natively), and never await.

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
        /// The kernel.
        kernel: KernelId,
        /// Buffers by slot.
        args: Vec<View>,
        /// The launch grid.
        grid: [u32; 3],
        /// Launch scalars as raw 4-byte values.
        vars: Vec<u32>,
    },
    /// Copy bytes between allocations.
    Copy {
        /// Source.
        src: View,
        /// Destination.
        dst: View,
    },
}

/// `Send`, except in a WebAssembly module: there, devices and hosts hold JavaScript values, which must stay on their
/// thread.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaySend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaySend for T {}

/// `Send`, except in a WebAssembly module: there, devices and hosts hold JavaScript values, which must stay on their
/// thread.
#[cfg(target_arch = "wasm32")]
pub trait MaySend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaySend for T {}

/// Writes the bytes from the given offset on into a slice.
pub type Write<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// A device. Errors are `Error::Device`, `Error::Lost` and `Error::OutOfMemory`.
pub trait Device: MaySend {
    /// What the device can do.
    fn target(&self) -> &Target;

    /// The renderer that prints its kernels.
    fn renderer(&self) -> &'static dyn Renderer {
        render::of(self.target().lang)
    }

    /// What the driver gets wrong and how kernels avoid it, one line each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Allocates bytes that are zero.
    fn alloc(&mut self, bytes: usize) -> Result<BufId>;

    /// Allocates bytes of undefined values: the caller writes all of them before anything reads one.
    fn alloc_to_fill(&mut self, bytes: usize) -> Result<BufId> {
        self.alloc(bytes)
    }

    /// Frees an allocation once submitted work that uses it is done.
    fn free(&mut self, buf: BufId);

    /// Copies host bytes to an allocation, ordered with submitted steps.
    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()>;

    /// Fills the first `len` bytes of a buffer by calls of `write`, each with an offset and memory for the bytes from
    /// there on, whose length is a multiple of `step`. Ordered with submitted steps.
    fn upload_made(&mut self, buf: BufId, len: usize, step: usize, write: &Write<'_>) -> Result<()> {
        let _ = step;
        let mut all = vec![0; len];
        write(0, &mut all);
        self.upload(buf, 0, &all)
    }

    /// The address in the device's memory of the first `bytes` of a buffer, once no submitted work uses them: for a
    /// host that writes data from outside of this process's memory there itself. `None` on a device that does not offer
    /// this.
    fn place(&mut self, buf: BufId, bytes: usize) -> Result<Option<usize>> {
        let _ = (buf, bytes);
        Ok(None)
    }

    /// Starts compiling kernels; they may be named in `submit` once [`Device::ready`] is true.
    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>>;

    /// Bytes of code for one call of [`Device::compile`]. Between two calls the caller may do something else.
    fn compile_bytes(&self) -> usize {
        usize::MAX
    }

    /// Are all kernels compiled? Errors of compilation are returned here. Synchronous devices are always ready.
    fn ready(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Releases a kernel.
    fn release(&mut self, kernel: KernelId);

    /// Runs steps, with the effect of running them one after the other. Returns before they are done where the platform
    /// allows.
    fn submit(&mut self, steps: &[Step]) -> Result<()>;

    /// Continues submitted work that needs the caller's thread, for as long as the host allows. True once nothing is
    /// left to do; always true on a device that does not need the caller.
    fn work(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Abandons submitted work that is not done, where the device can. The contents of what it was to write are
    /// undefined then.
    fn stop(&mut self) {}

    /// [`Device::submit`] with times from the device's own clock: the ticket's bytes are two little-endian u64,
    /// nanoseconds at the beginning and at the end. `None` if the device has no clock; the steps are submitted all the
    /// same.
    fn submit_timed(&mut self, steps: &[Step]) -> Result<Option<Ticket>> {
        self.submit(steps).map(|()| None)
    }

    /// Should a caller that can wait submit more work? False while enough work is queued to keep the device busy, so
    /// that other users of the device need not wait for more.
    fn has_room(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Starts reading bytes back, ordered after everything submitted.
    fn read(&mut self, view: View) -> Result<Ticket>;

    /// The bytes of a readback, or `None` while they are not there. A ticket is spent once it returned `Some`.
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>>;

    /// Waits until everything submitted is done, where the platform can block; elsewhere does nothing.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}
