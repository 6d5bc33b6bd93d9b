//! Buffers of the WebGPU device: sizes padded to whole words, freed ones kept for the next allocation of their size, and
//! error scopes around creation, since out of memory is reported later.

use crate::js::{self, object, text};
use crate::webgpu_device::{Shared, failed};
use gradloom_core::device::{BufId, View};
use gradloom_core::util::decimal::Shown;
use gradloom_core::{Error, Result};
use js_sys::Uint8Array;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{GpuBuffer, GpuDevice, GpuErrorFilter, GpuQueue, gpu_buffer_usage as usage};

/// Freed bytes kept for reuse.
const KEEP_BYTES: usize = 256 << 20;

struct Buffer {
    /// Identity of the GPU buffer, for caches: ids of allocations are reused.
    id: u32,
    gpu: GpuBuffer,
    /// Bytes asked for.
    bytes: usize,
    /// Bytes of the GPU buffer.
    size: usize,
    /// The byte of the GPU buffer that is this one's first; 0 unless it is the page's.
    start: usize,
    /// Is it the page's? Then it is neither reused nor destroyed.
    lent: bool,
}

/// Where a view is.
pub(crate) struct Place {
    /// Identity of the GPU buffer.
    pub(crate) id: u32,
    pub(crate) gpu: GpuBuffer,
    /// The first byte of it.
    pub(crate) at: usize,
    /// Bytes, in whole words.
    pub(crate) bytes: usize,
}

/// Allocations and what is kept of freed ones.
pub(crate) struct Buffers {
    device: GpuDevice,
    queue: GpuQueue,
    shared: Rc<Shared>,
    max: usize,
    live: Vec<Option<Buffer>>,
    kept: Vec<Buffer>,
    kept_bytes: usize,
    /// Reused buffers that must be zeroed before anything else is done.
    stale: Vec<GpuBuffer>,
    next: u32,
}

impl Buffers {
    pub(crate) fn new(device: GpuDevice, queue: GpuQueue, shared: Rc<Shared>, max: usize) -> Buffers {
        let (live, kept, stale) = (Vec::new(), Vec::new(), Vec::new());
        Buffers { device, queue, shared, max, live, kept, kept_bytes: 0, stale, next: 0 }
    }

    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let size = bytes.max(16).checked_next_multiple_of(16).filter(|&s| s <= self.max);
        let Some(size) = size else {
            return Err(Error::OutOfMemory { device: "webgpu".into(), bytes: bytes as u64 });
        };
        let reused = self.kept.iter().rposition(|b| b.size == size).map(|at| self.kept.swap_remove(at));
        let (id, gpu) = match reused {
            Some(b) => {
                self.kept_bytes -= size;
                self.stale.push(b.gpu.clone());
                (b.id, b.gpu)
            }
            None => {
                let d = object(&[
                    ("size", (size as f64).into()),
                    ("usage", (usage::STORAGE | usage::COPY_SRC | usage::COPY_DST).into()),
                ]);
                self.next += 1;
                let make = || self.device.create_buffer(d.unchecked_ref());
                (self.next, scoped(&self.device, &self.shared, bytes, make)?)
            }
        };
        Ok(self.placed(Buffer { id, gpu, bytes, size, start: 0, lent: false }))
    }

    fn placed(&mut self, buffer: Buffer) -> BufId {
        let slot = match self.live.iter().position(Option::is_none) {
            Some(i) => {
                self.live[i] = Some(buffer);
                i
            }
            None => {
                self.live.push(Some(buffer));
                self.live.len() - 1
            }
        };
        BufId(slot as u32)
    }

    /// Bytes of a buffer of the page from `start` on, which is a multiple of `align`. It stays the page's.
    ///
    /// # Errors
    /// `E_VALUE` for what is no buffer, is mapped, is too small or was made without a usage that is needed, and for other starts.
    pub(crate) fn borrowed(&mut self, buffer: JsValue, bytes: usize, start: f64, align: usize) -> Result<BufId> {
        let bad = |what: String| Error::value("fromGPUBuffer", what);
        let gpu: GpuBuffer = buffer.dyn_into().map_err(|_| bad("the first argument is not a GPUBuffer".into()))?;
        for (flag, name) in [(usage::STORAGE, "STORAGE"), (usage::COPY_SRC, "COPY_SRC"), (usage::COPY_DST, "COPY_DST")]
        {
            if gpu.usage() & flag == 0 {
                return Err(bad(format!("the buffer was made without GPUBufferUsage.{name}")));
            }
        }
        if js::get(&gpu, "mapState").as_string().is_some_and(|s| s != "unmapped") {
            return Err(bad("the buffer is mapped: unmap it first".into()));
        }
        // of more bytes than are counted here the first ones
        let (size, needed) = (gpu.size() as usize, bytes.max(4).next_multiple_of(4));
        if !(start >= 0.0 && start % align as f64 == 0.0 && start + needed as f64 <= size as f64) {
            let start = Shown(start);
            return Err(bad(format!(
                "it has {size} bytes; {needed} from {start} on are wanted, a multiple of {align}"
            )));
        }
        if needed > self.max {
            return Err(Error::OutOfMemory { device: "webgpu".into(), bytes: bytes as u64 });
        }
        // two tensors over one buffer are one to WebGPU
        let known = self.live.iter().flatten().find(|b| b.gpu == gpu).map(|b| b.id);
        let id = known.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        Ok(self.placed(Buffer { id, gpu, bytes, size: needed, start: start as usize, lent: true }))
    }

    fn live(&self, v: &View) -> Option<&Buffer> {
        self.live.get(v.buf.0 as usize)?.as_ref()
    }

    /// Whether two views have bytes in common, if they are parts of one GPU buffer.
    pub(crate) fn meet(&self, a: &View, b: &View) -> Option<bool> {
        let (x, y) = (self.live(a)?, self.live(b)?);
        let (from, to) = (x.start + a.offset, y.start + b.offset);
        (x.id == y.id).then(|| from < to + b.bytes && to < from + a.bytes)
    }

    /// Frees an allocation; the id of the GPU buffer if it is gone.
    pub(crate) fn free(&mut self, buf: BufId) -> Option<u32> {
        let b = self.live.get_mut(buf.0 as usize).and_then(Option::take)?;
        if b.lent {
            let gone = !self.live.iter().flatten().any(|other| other.id == b.id);
            return gone.then_some(b.id);
        }
        self.stale.retain(|s| *s != b.gpu);
        if self.kept_bytes + b.size <= KEEP_BYTES {
            self.kept_bytes += b.size;
            self.kept.push(b);
            return None;
        }
        b.gpu.destroy();
        Some(b.id)
    }

    /// Where a view is among the GPU buffers.
    pub(crate) fn view(&self, v: &View) -> Result<Place> {
        let Some(b) = self.live(v) else {
            return Err(failed(format!("{:?} is not allocated", v.buf)));
        };
        match v.offset.checked_add(v.bytes) {
            Some(end) if end <= b.bytes && v.offset % 4 == 0 => {
                let bytes = v.bytes.max(4).next_multiple_of(4);
                Ok(Place { id: b.id, gpu: b.gpu.clone(), at: b.start + v.offset, bytes })
            }
            _ => Err(failed(format!("{v:?} is not in the {} bytes of its buffer", b.bytes))),
        }
    }

    /// Zeroes reused buffers, ahead of the commands that follow.
    pub(crate) fn flush(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        let encoder = self.device.create_command_encoder();
        for b in self.stale.drain(..) {
            encoder.clear_buffer(&b);
        }
        self.queue.submit(&[encoder.finish()]);
    }

    pub(crate) fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let Place { gpu, at: offset, .. } = self.view(&View { buf, offset, bytes: data.len() })?;
        if self.stale.contains(&gpu) {
            self.flush();
        }
        // whole words, then the rest in one padded with what may be lost: nothing else lives in a buffer's last word
        let whole = data.len() / 4 * 4;
        let write = |at: usize, bytes: &[u8]| {
            let array = Uint8Array::from(bytes);
            self.queue.write_buffer_with_f64_and_u8_array(&gpu, at as f64, &array).map_err(|e| failed(text(&e)))
        };
        if whole > 0 {
            self.queue
                .write_buffer_with_f64_and_u8_slice(&gpu, offset as f64, &data[..whole])
                .map_err(|e| failed(text(&e)))?;
        }
        if whole < data.len() {
            let mut last = [0u8; 4];
            last[..data.len() - whole].copy_from_slice(&data[whole..]);
            write(offset + whole, &last)?;
        }
        Ok(())
    }
}

/// Creates something under error scopes; what they catch is kept for the next call.
pub(crate) fn scoped<T>(
    device: &GpuDevice,
    shared: &Rc<Shared>,
    bytes: usize,
    make: impl FnOnce() -> std::result::Result<T, JsValue>,
) -> Result<T> {
    device.push_error_scope(GpuErrorFilter::OutOfMemory);
    device.push_error_scope(GpuErrorFilter::Validation);
    let made = make();
    for memory in [false, true] {
        let (promise, shared) = (JsFuture::from(device.pop_error_scope()), shared.clone());
        spawn_local(async move {
            match promise.await {
                Ok(e) if e.is_object() && memory => {
                    shared.fail(Error::OutOfMemory { device: "webgpu".into(), bytes: bytes as u64 });
                }
                Ok(e) if e.is_object() => shared.fail(failed(js::text(&e))),
                // a lost device rejects; that is reported elsewhere
                _ => {}
            }
        });
    }
    // a RangeError: the host itself has no room
    made.map_err(|_| Error::OutOfMemory { device: "webgpu".into(), bytes: bytes as u64 })
}
