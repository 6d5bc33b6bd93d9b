//! Buffers of the WebGPU device: sizes are padded to whole words, freed buffers are kept for later allocations of their
//! size, and creation is wrapped in error scopes, since out of memory is reported asynchronously.

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

/// The most bytes of freed buffers that are kept for reuse.
const MAX_POOL_BYTES: usize = 256 << 20;

struct Buffer {
    /// Identity of the GPU buffer, for caches, since ids of allocations are reused.
    id: u32,
    gpu: GpuBuffer,
    /// Bytes requested.
    bytes: usize,
    /// Bytes of the GPU buffer.
    size: usize,
    /// Offset of this buffer within the GPU buffer; 0 unless it belongs to the page.
    start: usize,
    /// Whether the GPU buffer belongs to the page; then it is neither reused nor destroyed.
    page_owned: bool,
}

/// The location of a view.
pub(crate) struct BufferRange {
    /// Identity of the GPU buffer.
    pub(crate) id: u32,
    pub(crate) gpu: GpuBuffer,
    /// Offset of the first byte.
    pub(crate) at: usize,
    /// Bytes, in whole words.
    pub(crate) bytes: usize,
}

/// All allocations, and freed buffers kept for reuse.
pub(crate) struct Buffers {
    device: GpuDevice,
    queue: GpuQueue,
    shared: Rc<Shared>,
    max: usize,
    live: Vec<Option<Buffer>>,
    pool: Vec<Buffer>,
    pool_bytes: usize,
    /// Reused buffers that have to be zeroed before any further command.
    unzeroed: Vec<GpuBuffer>,
    next: u32,
}

impl Buffers {
    pub(crate) fn new(device: GpuDevice, queue: GpuQueue, shared: Rc<Shared>, max: usize) -> Buffers {
        let (live, pool, unzeroed) = (Vec::new(), Vec::new(), Vec::new());
        Buffers { device, queue, shared, max, live, pool, pool_bytes: 0, unzeroed, next: 0 }
    }

    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let size = bytes.max(16).checked_next_multiple_of(16).filter(|&s| s <= self.max);
        let Some(size) = size else {
            return Err(Error::OutOfMemory { device: "webgpu".into(), bytes: bytes as u64 });
        };
        let reused = self.pool.iter().rposition(|b| b.size == size).map(|at| self.pool.swap_remove(at));
        let (id, gpu) = match reused {
            Some(b) => {
                self.pool_bytes -= size;
                self.unzeroed.push(b.gpu.clone());
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
        Ok(self.insert(Buffer { id, gpu, bytes, size, start: 0, page_owned: false }))
    }

    fn insert(&mut self, buffer: Buffer) -> BufId {
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

    /// Registers a range of a buffer that belongs to the page, from byte `start` on, which must be a multiple of
    /// `align`.
    ///
    /// # Errors `E_VALUE` for a value that is no buffer, a buffer that is mapped, too small or lacks a required usage,
    /// and for an invalid start.
    pub(crate) fn register_page_buffer(
        &mut self,
        buffer: JsValue,
        bytes: usize,
        start: f64,
        align: usize,
    ) -> Result<BufId> {
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
        // for a size that exceeds this integer type the first bytes count
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
        // WebGPU tracks usage per buffer, so two tensors on one buffer share its identity
        let known = self.live.iter().flatten().find(|b| b.gpu == gpu).map(|b| b.id);
        let id = known.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        Ok(self.insert(Buffer { id, gpu, bytes, size: needed, start: start as usize, page_owned: true }))
    }

    fn live(&self, v: &View) -> Option<&Buffer> {
        self.live.get(v.buf.0 as usize)?.as_ref()
    }

    /// Whether two views overlap; `None` if they are in different GPU buffers.
    pub(crate) fn overlap(&self, a: &View, b: &View) -> Option<bool> {
        let (x, y) = (self.live(a)?, self.live(b)?);
        let (from, to) = (x.start + a.offset, y.start + b.offset);
        (x.id == y.id).then(|| from < to + b.bytes && to < from + a.bytes)
    }

    /// Frees an allocation; returns the identity of the GPU buffer if it is no longer used.
    pub(crate) fn free(&mut self, buf: BufId) -> Option<u32> {
        let b = self.live.get_mut(buf.0 as usize).and_then(Option::take)?;
        if b.page_owned {
            let gone = !self.live.iter().flatten().any(|other| other.id == b.id);
            return gone.then_some(b.id);
        }
        self.unzeroed.retain(|s| *s != b.gpu);
        if self.pool_bytes + b.size <= MAX_POOL_BYTES {
            self.pool_bytes += b.size;
            self.pool.push(b);
            return None;
        }
        b.gpu.destroy();
        Some(b.id)
    }

    /// The location of a view.
    pub(crate) fn view(&self, v: &View) -> Result<BufferRange> {
        let Some(b) = self.live(v) else {
            return Err(failed(format!("{:?} is not allocated", v.buf)));
        };
        match v.offset.checked_add(v.bytes) {
            Some(end) if end <= b.bytes && v.offset % 4 == 0 => {
                let bytes = v.bytes.max(4).next_multiple_of(4);
                Ok(BufferRange { id: b.id, gpu: b.gpu.clone(), at: b.start + v.offset, bytes })
            }
            _ => Err(failed(format!("{v:?} is not in the {} bytes of its buffer", b.bytes))),
        }
    }

    /// Zeroes reused buffers, before the commands that follow.
    pub(crate) fn flush(&mut self) {
        if self.unzeroed.is_empty() {
            return;
        }
        let encoder = self.device.create_command_encoder();
        for b in self.unzeroed.drain(..) {
            encoder.clear_buffer(&b);
        }
        self.queue.submit(&[encoder.finish()]);
    }

    pub(crate) fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let BufferRange { gpu, at: offset, .. } = self.view(&View { buf, offset, bytes: data.len() })?;
        if self.unzeroed.contains(&gpu) {
            self.flush();
        }
        // whole words first, then the rest in one padded word: nothing else uses the last word of a buffer
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

/// Creates an object within error scopes; errors that they catch are returned by the next call.
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
                // on a lost device the promise rejects; the loss is reported elsewhere
                _ => {}
            }
        });
    }
    // a RangeError means that the host itself is out of memory
    made.map_err(|_| Error::OutOfMemory { device: "webgpu".into(), bytes: bytes as u64 })
}
