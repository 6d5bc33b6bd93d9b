//! Buffers, uploads, copies and readbacks.

use super::{Gpu, error};
use crate::steps;
use ::wgpu as gpu;
use gradloom_core::device::{BufId, Ticket, View};
use gradloom_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The most idle staging buffers that are kept for later reads.
const KEPT: usize = 8;

/// The length rounded up to whole words, in bytes. The bytes after a buffer's end in its last word belong to nothing.
pub(super) fn words(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(4)
}

/// Every allocation of a device, and its readbacks in flight.
pub(super) struct Memory {
    bufs: HashMap<BufId, gpu::Buffer>,
    sizes: HashMap<BufId, usize>,
    reads: HashMap<Ticket, Reading>,
    staging: Vec<gpu::Buffer>,
    largest: u64,
    next: u32,
}

struct Reading {
    staging: gpu::Buffer,
    bytes: usize,
    /// 0 while the buffer is being mapped, 1 when it is, 2 when that failed.
    state: Arc<AtomicU8>,
}

impl Memory {
    pub(super) fn new(largest: u64) -> Memory {
        Memory {
            bufs: HashMap::new(),
            sizes: HashMap::new(),
            reads: HashMap::new(),
            staging: Vec::new(),
            largest,
            next: 0,
        }
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn alloc(&mut self, gpu: &Gpu, bytes: usize) -> Result<BufId> {
        use gpu::BufferUsages as U;
        let refused = || Error::OutOfMemory { device: "wgpu".into(), bytes: bytes as u64 };
        let size = (bytes as u64).max(4).checked_next_multiple_of(4).filter(|&s| s <= self.largest);
        let size = size.ok_or_else(refused)?;
        let what = gpu::BufferDescriptor {
            label: None,
            size,
            usage: U::STORAGE | U::COPY_SRC | U::COPY_DST,
            mapped_at_creation: false,
        };
        let ((buf, invalid), short) = gpu.scoped(gpu::ErrorFilter::OutOfMemory, |_| {
            gpu.scoped(gpu::ErrorFilter::Validation, |d| d.create_buffer(&what))
        });
        if short.is_some() {
            return Err(refused());
        }
        if let Some(e) = invalid {
            return Err(error(e.to_string()));
        }
        let id = BufId(self.id());
        self.bufs.insert(id, buf);
        self.sizes.insert(id, bytes);
        Ok(id)
    }

    pub(super) fn free(&mut self, buf: BufId) {
        self.bufs.remove(&buf);
        self.sizes.remove(&buf);
    }

    /// Checks that the view lies inside its allocation and begins at a word.
    pub(super) fn check(&self, v: &View) -> Result<()> {
        let size = *self.sizes.get(&v.buf).ok_or_else(|| error(format!("{:?} is not allocated", v.buf)))?;
        steps::inside("wgpu", v, size)?;
        if !v.offset.is_multiple_of(4) {
            return Err(error(format!("{v:?} does not begin at a word")));
        }
        Ok(())
    }

    pub(super) fn buffer(&self, id: BufId) -> Result<&gpu::Buffer> {
        self.bufs.get(&id).ok_or_else(|| error(format!("{id:?} is not allocated")))
    }

    pub(super) fn upload(&mut self, gpu: &Gpu, v: View, data: &[u8]) -> Result<()> {
        self.check(&v)?;
        let (whole, rest) = data.split_at(data.len() & !3);
        if !whole.is_empty() {
            gpu.queue.write_buffer(self.buffer(v.buf)?, v.offset as u64, whole);
        }
        if !rest.is_empty() {
            let mut word = [0; 4];
            word[..rest.len()].copy_from_slice(rest);
            gpu.queue.write_buffer(self.buffer(v.buf)?, (v.offset + whole.len()) as u64, &word);
        }
        Ok(())
    }

    /// Encodes a copy. A copy within one buffer uses a temporary buffer, because the API allows no other way.
    pub(super) fn copy(&self, gpu: &Gpu, encoder: &mut gpu::CommandEncoder, src: &View, dst: &View) -> Result<()> {
        let n = words(src.bytes.min(dst.bytes));
        if n == 0 {
            return Ok(());
        }
        let (from, to) = (self.buffer(src.buf)?, self.buffer(dst.buf)?);
        if src.buf != dst.buf {
            encoder.copy_buffer_to_buffer(from, src.offset as u64, to, dst.offset as u64, n);
            return Ok(());
        }
        use gpu::BufferUsages as U;
        let usage = U::COPY_SRC | U::COPY_DST;
        let between =
            gpu.device.create_buffer(&gpu::BufferDescriptor { label: None, size: n, usage, mapped_at_creation: false });
        encoder.copy_buffer_to_buffer(from, src.offset as u64, &between, 0, n);
        encoder.copy_buffer_to_buffer(&between, 0, to, dst.offset as u64, n);
        Ok(())
    }

    pub(super) fn read(&mut self, gpu: &Gpu, v: View) -> Result<Ticket> {
        self.check(&v)?;
        let ticket = Ticket(self.id());
        let size = (v.bytes as u64).max(256).next_power_of_two();
        let kept = self.staging.iter().position(|b| b.size() == size);
        let staging = match kept {
            Some(i) => self.staging.swap_remove(i),
            None => gpu.device.create_buffer(&gpu::BufferDescriptor {
                label: None,
                size,
                usage: gpu::BufferUsages::MAP_READ | gpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }),
        };
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        if v.bytes > 0 {
            encoder.copy_buffer_to_buffer(self.buffer(v.buf)?, v.offset as u64, &staging, 0, words(v.bytes));
        }
        gpu.queue.submit([encoder.finish()]);
        let state = Arc::new(AtomicU8::new(0));
        let done = state.clone();
        staging.map_async(gpu::MapMode::Read, 0..size, move |r| {
            done.store(if r.is_ok() { 1 } else { 2 }, Ordering::Release);
        });
        self.reads.insert(ticket, Reading { staging, bytes: v.bytes, state });
        Ok(ticket)
    }

    pub(super) fn poll(&mut self, gpu: &Gpu, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        let r = self.reads.get(&ticket).ok_or_else(|| error(format!("{ticket:?} is spent")))?;
        if r.state.load(Ordering::Acquire) == 0 {
            gpu.wait()?;
        }
        if r.state.load(Ordering::Acquire) != 1 {
            self.reads.remove(&ticket);
            gpu.check()?;
            return Err(error("readback failed"));
        }
        let Some(r) = self.reads.remove(&ticket) else { return Ok(None) };
        let bytes = match r.staging.get_mapped_range(0..r.staging.size()) {
            Ok(range) => range[..r.bytes].to_vec(),
            Err(e) => return Err(error(e.to_string())),
        };
        r.staging.unmap();
        if self.staging.len() < KEPT {
            self.staging.push(r.staging);
        }
        Ok(Some(bytes))
    }
}
