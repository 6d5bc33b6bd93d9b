//! The buffers of a session on the engine's device: they are uploaded before their first use, packed for kernels that
//! read them in another order, read back, and kept between runs. A call that fails leaves the session's data as it was,
//! so that a later attempt finds it.
//! Never: plans, graphs.

use super::exec::{Engine, Loaded, Packed};
use super::state::{RootId, State};
use crate::device::{BufId, Device, Step, Ticket, View};
use crate::dtype::Scalar;
use crate::util::sort;
use crate::{DType, Error, Result};
use std::sync::Arc;

/// A constant of at most this many bytes keeps its host copy after the upload, so that it can be uploaded again.
const KEPT_HOST_COPY_BYTES: usize = 1 << 14;

/// A session buffer that is partly uploaded.
pub(super) struct PartialUpload {
    id: u32,
    buf: BufId,
    bytes: usize,
    done: usize,
}

impl Engine {
    /// Checks that this engine belongs to `state`. Buffer ids are unique within a session only: an engine with buffers
    /// of two sessions would give one of them the other's data. When its session is gone, an engine drops that
    /// session's buffers and accepts the next one.
    pub(super) fn belong_to(&mut self, state: &State) -> Result<()> {
        if self.session.as_ref().is_some_and(|s| Arc::ptr_eq(s, state.identity())) {
            return Ok(());
        }
        if self.session.as_ref().is_some_and(|s| Arc::strong_count(s) > 1) {
            return Err(other_session());
        }
        let mut ids: Vec<u32> =
            self.buffers.keys().chain(self.packed.keys()).chain(self.recipes.keys()).copied().collect();
        sort::ascending(&mut ids);
        ids.into_iter().for_each(|id| self.drop_buffer(id));
        self.drop_partial_upload();
        self.session = Some(state.identity().clone());
        Ok(())
    }

    /// The device memory of a realized value, whose elements are stored there as the target stores them. Writing to
    /// this memory changes the value.
    pub fn view(&mut self, state: &mut State, root: RootId) -> Result<View> {
        self.belong_to(state)?;
        let u = state.node(root);
        let id = state
            .storage(u)
            .and_then(|s| state.buffer_below(s))
            .and_then(|b| state.buffer_id(b))
            .ok_or_else(|| Error::Internal("read of a value that is not realized".into()))?;
        let stored = self.device.target().stored_as(state.graph.dtype(u))?;
        let bytes = state.graph.memory_len(u) * stored.size();
        Ok(View { buf: self.buffer(state, id)?, offset: 0, bytes })
    }

    /// [`Engine::view`] for a host that passes the memory on to others, who may write to it without telling the engine.
    /// The engine therefore forgets what it knew of the contents, and the value keeps this memory as long as it lives.
    pub fn lend(&mut self, state: &mut State, root: RootId) -> Result<View> {
        let view = self.view(state, root)?;
        let below = state.storage(state.node(root)).and_then(|s| state.buffer_below(s));
        if let Some(id) = below.and_then(|b| state.buffer_id(b)) {
            self.changed(state, id);
        }
        Ok(view)
    }

    /// Makes memory of the host, which the device knows as `buf`, the memory of a new session buffer. It is freed with
    /// the buffer and never enters the pool.
    pub fn use_memory(&mut self, state: &mut State, id: u32, buf: BufId) -> Result<()> {
        self.belong_to(state)?;
        let info = state.buffer(id).ok_or_else(|| Error::Internal(format!("buffer {id} is gone")))?;
        let bytes = info.len.saturating_mul(self.device.target().stored_as(info.dtype)?.size());
        self.counters.bytes += bytes;
        self.counters.peak_bytes = self.counters.peak_bytes.max(self.counters.bytes);
        self.buffers.insert(id, (buf, bytes));
        self.borrowed.insert(id);
        Ok(())
    }

    /// Starts reading a realized value back.
    pub fn read(&mut self, state: &mut State, root: RootId) -> Result<(Ticket, DType, usize)> {
        let view = self.view(state, root)?;
        let u = state.node(root);
        Ok((self.device.read(view)?, state.graph.dtype(u), state.graph.memory_len(u)))
    }

    /// The bytes of a readback in the value's own dtype; `None` while they are not there.
    pub fn poll(&mut self, ticket: Ticket, dtype: DType) -> Result<Option<Vec<u8>>> {
        let stored = self.device.target().stored_as(dtype)?;
        Ok(self.device.poll(ticket)?.map(|b| match stored == dtype {
            true => b,
            false => convert(&b, stored, dtype),
        }))
    }

    /// Overwrites a realized buffer with host data of its own dtype.
    pub fn write(&mut self, state: &mut State, id: u32, data: &[u8]) -> Result<()> {
        self.belong_to(state)?;
        let buf = self.buffer(state, id)?;
        let dtype = state.buffer(id).map_or(DType::U8, |b| b.dtype);
        let stored = self.device.target().stored_as(dtype)?;
        self.changed(state, id);
        if dtype == stored {
            return self.device.upload(buf, 0, data);
        }
        self.device.upload(buf, 0, &convert(data, dtype, stored))
    }

    /// Overwrites a part of a buffer, starting at byte `at`. The data is in the dtype in which the device stores the
    /// buffer.
    pub fn write_part(&mut self, state: &mut State, id: u32, at: usize, data: &[u8]) -> Result<()> {
        self.belong_to(state)?;
        let buf = self.buffer(state, id)?;
        self.changed(state, id);
        self.device.upload(buf, at, data)
    }

    /// The address of the first `bytes` of a buffer in the device's memory
    /// ([`Device::place`](crate::device::Device::place)), for the caller to write there.
    pub fn place(&mut self, state: &mut State, id: u32, bytes: usize) -> Result<Option<usize>> {
        self.belong_to(state)?;
        let buf = self.buffer(state, id)?;
        self.changed(state, id);
        self.device.place(buf, bytes)
    }

    /// Forgets all that depends on a buffer's contents, because they change: host bytes, recipe and packed copies.
    pub(super) fn changed(&mut self, state: &mut State, id: u32) {
        if let Some(info) = state.buffer_mut(id) {
            (info.host, info.constant) = (None, false);
        }
        self.recipes.remove(&id);
        self.drop_copies(id);
    }

    pub(super) fn copy_of(&self, id: u32, key: u128) -> Option<&Packed> {
        self.packed.get(&id)?.iter().find(|c| c.key == key)
    }

    fn drop_copies(&mut self, id: u32) {
        for copy in self.packed.remove(&id).unwrap_or_default() {
            self.pool.put(copy.buf, copy.bytes);
        }
    }

    /// The packed copy of a session buffer that the kernel `key` makes; made on first use. The original leaves the
    /// device if it can be uploaded or recomputed.
    pub(super) fn packed(&mut self, state: &mut State, id: u32, key: u128) -> Result<View> {
        if let Some(&Packed { buf, bytes, .. }) = self.copy_of(id, key) {
            return Ok(View { buf, offset: 0, bytes });
        }
        let from = self.whole(state, id)?;
        let lost = || Error::Internal("a copying program is not on the device".into());
        let Loaded { kernel, compiled, .. } = self.programs.get(&key).ok_or_else(lost)?;
        let (kernel, grid, to) = (*kernel, compiled.grid, &compiled.source.params[0]);
        let bytes = to.len * to.dtype.size();
        let buf = self.alloc(bytes)?;
        let to = View { buf, offset: 0, bytes };
        let step = Step::Launch { kernel, args: vec![to, from], grid, vars: Vec::new() };
        if let Err(e) = self.give(&[step]) {
            self.free(vec![(buf, bytes)]);
            return Err(e);
        }
        self.counters.launches += 1;
        self.packed.entry(id).or_default().push(Packed { key, buf, bytes });
        if (self.recipes.contains_key(&id) || state.buffer(id).is_some_and(|b| b.host.is_some()))
            && let Some(old) = self.buffers.remove(&id)
        {
            self.free(vec![old]);
        }
        Ok(to)
    }

    /// The device memory of a whole session buffer.
    pub(super) fn whole(&mut self, state: &mut State, id: u32) -> Result<View> {
        let buf = self.buffer(state, id)?;
        Ok(View { buf, offset: 0, bytes: self.buffers[&id].1 })
    }

    /// Drops session buffers that nothing reaches any more. Their memory is kept for the next runs; [`Engine::trim`]
    /// returns it to the device.
    pub fn collect(&mut self, state: &mut State) {
        let dead = state.compact();
        if self.belong_to(state).is_ok() {
            dead.into_iter().for_each(|id| self.drop_buffer(id));
        }
    }

    /// Bytes of free device memory that are kept for the next runs.
    pub fn idle_bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Returns all device memory that is kept for the next runs to the device: free buffers, and the arenas of plans.
    pub fn trim(&mut self) {
        self.trim_pool();
        self.unbind();
        let arenas = std::mem::take(&mut self.arenas).into_iter().filter(|a| a.1 > 0).collect();
        self.free(arenas);
    }

    /// Returns free buffers to the device. During a run its arenas are in use.
    fn trim_pool(&mut self) {
        let all = self.pool.clear();
        self.free(all);
    }

    pub(super) fn free(&mut self, buffers: Vec<(BufId, usize)>) {
        for (buf, bytes) in buffers {
            self.device.free(buf);
            self.counters.bytes -= bytes;
        }
    }

    /// The device buffer of a session buffer, uploaded if it was only on the host.
    pub(super) fn buffer(&mut self, state: &mut State, id: u32) -> Result<BufId> {
        self.compute_again(state, &[id])?;
        if let Some(&(buf, _)) = self.buffers.get(&id) {
            return Ok(buf);
        }
        self.upload_some(state, id, usize::MAX)?;
        Ok(self.buffers[&id].0)
    }

    /// Uploads about `most` further bytes of a session buffer that is only on the host. True once all of it is on the
    /// device.
    pub(super) fn upload_some(&mut self, state: &mut State, id: u32, most: usize) -> Result<bool> {
        let info = state.buffer_mut(id).ok_or_else(|| Error::Internal(format!("buffer {id} is gone")))?;
        let (dtype, len) = (info.dtype, info.len);
        let stored = self.device.target().stored_as(dtype)?;
        let bytes = len.saturating_mul(stored.size());
        let (buf, from) = match self.partial_upload.take_if(|h| h.id == id) {
            Some(h) => (h.buf, h.done),
            None => {
                self.drop_partial_upload();
                let is_filled = stored == dtype && info.host.as_ref().is_some_and(|data| data.len() == bytes);
                (self.alloc_with(bytes, is_filled)?, 0)
            }
        };
        if let Some(data) = &info.host {
            // data that needs no conversion is uploaded in parts
            let len = data.len();
            let end = if stored == dtype { from.saturating_add(most).min(len) } else { len };
            let done = if stored != dtype {
                self.device.upload(buf, 0, &convert(data, dtype, stored))
            } else if let (Some((made, step)), (0, true)) = (data.made(), (from, end == len)) {
                self.device.upload_made(buf, len, step, &|at, out| made.write(at, out))
            } else {
                self.device.upload(buf, from, &data[from..end])
            };
            self.partial_upload = Some(PartialUpload { id, buf, bytes, done: end });
            if let Err(e) = done {
                self.drop_partial_upload();
                return Err(e);
            }
            if end < len {
                return Ok(false);
            }
            self.partial_upload = None;
            data.release_hint();
        }
        // the host bytes are kept, for another upload, if something else holds them anyway or they are few
        if !(info.constant && info.host.as_ref().is_some_and(|b| b.is_shared() || b.len() <= KEPT_HOST_COPY_BYTES)) {
            info.host = None;
        }
        self.buffers.insert(id, (buf, bytes));
        Ok(true)
    }

    fn drop_partial_upload(&mut self) {
        let partial_upload = self.partial_upload.take();
        self.free(partial_upload.map(|h| (h.buf, h.bytes)).into_iter().collect());
    }

    pub(super) fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        self.alloc_with(bytes, false)
    }

    /// Allocates a device buffer. `is_filled` says that all of it is written before anything is read.
    pub(super) fn alloc_with(&mut self, bytes: usize, is_filled: bool) -> Result<BufId> {
        let max = self.device.target().limits.max_buffer_bytes;
        if bytes > max {
            return Err(Error::OutOfMemory { device: self.device.target().name.clone(), bytes: bytes as u64 });
        }
        if let Some(buf) = self.pool.take(bytes) {
            return Ok(buf);
        }
        let over = |e: &Engine| e.counters.bytes.saturating_add(bytes) > e.memory_limit;
        if over(self) {
            self.trim_pool();
        }
        if over(self) {
            return Err(Error::OutOfMemory { device: self.device.target().name.clone(), bytes: bytes as u64 });
        }
        let alloc = if is_filled { <dyn Device>::alloc_to_fill } else { <dyn Device>::alloc };
        let buf = match alloc(&mut *self.device, bytes.max(4)) {
            Err(Error::OutOfMemory { .. }) => {
                self.trim_pool();
                alloc(&mut *self.device, bytes.max(4))?
            }
            buf => buf?,
        };
        self.counters.bytes += bytes;
        self.counters.peak_bytes = self.counters.peak_bytes.max(self.counters.bytes);
        Ok(buf)
    }

    pub(super) fn arena(&mut self, i: usize, bytes: usize) -> Result<()> {
        if let Some(&(buf, have)) = self.arenas.get(i) {
            if have >= bytes {
                return Ok(());
            }
            self.unbind();
            if have > 0 {
                self.arenas[i].1 = 0;
                self.free(vec![(buf, have)]);
            }
            let buf = self.alloc(bytes)?;
            self.arenas[i] = (buf, bytes);
            return Ok(());
        }
        let buf = self.alloc(bytes)?;
        self.unbind();
        self.arenas.push((buf, bytes));
        Ok(())
    }

    pub(super) fn drop_buffer(&mut self, id: u32) {
        if self.partial_upload.as_ref().is_some_and(|h| h.id == id) {
            self.drop_partial_upload();
        }
        if let Some((buf, bytes)) = self.buffers.remove(&id) {
            match self.borrowed.remove(&id) {
                true => self.free(vec![(buf, bytes)]),
                false => self.pool.put(buf, bytes),
            }
        }
        self.recipes.remove(&id);
        self.drop_copies(id);
    }
}

pub(super) fn other_session() -> Error {
    Error::value("engine", "a tensor of another session: an engine computes those of one session")
}

/// Converts elements between dtypes on the host.
fn convert(data: &[u8], from: DType, to: DType) -> Vec<u8> {
    let mut out = vec![0; data.len() / from.size() * to.size()];
    for (i, o) in data.chunks_exact(from.size()).zip(out.chunks_exact_mut(to.size())) {
        Scalar::read(from, i).cast(from, to).write(to, o);
    }
    out
}
