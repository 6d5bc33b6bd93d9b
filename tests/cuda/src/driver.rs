//! Devices, memory, streams and events: the driver's functions by their own names, as far as gradloom's device calls them. Work of a stream
//! waits until somebody waits for it (`stream.rs`).
//!
//! There is a device for each of some compute capabilities, with one memory and one pool. `GRADLOOM_EMULATED_SM` (such as 89) gives all another
//! one, `GRADLOOM_EMULATED_BYTES` another memory.

use crate::module::SHARED;
use crate::state::{INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, driver, give, state};
use crate::stream::{Event, Stream, Work};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Compute capabilities times ten.
const DEVICES: [c_int; 6] = [80, 90, 75, 86, 100, 120];

/// The handle of the pool, and its attributes.
const POOL: usize = 16;
const RELEASE_THRESHOLD: c_uint = 4;
const RESERVED: c_uint = 5;

fn capability(device: c_int) -> c_int {
    let other = std::env::var("GRADLOOM_EMULATED_SM").ok().and_then(|v| v.parse().ok());
    other.unwrap_or(DEVICES.get(device as usize).copied().unwrap_or(DEVICES[0]))
}

/// Bytes of shared memory that a kernel may ask for (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
fn shared(device: c_int) -> usize {
    match capability(device) {
        ..80 => 64 << 10,
        80 | 87 => 163 << 10,
        ..90 => 99 << 10,
        90..120 => SHARED,
        _ => 99 << 10,
    }
}

driver! {
    cuInit(flags: c_uint) { SUCCESS }
    cuDriverGetVersion(version: *mut c_int) { give(version, 12090) }
    cuDeviceGetCount(n: *mut c_int) { give(n, DEVICES.len() as c_int) }
    cuDeviceGet(device: *mut c_int, index: c_int) {
        if (0..DEVICES.len() as c_int).contains(&index) { give(device, index) } else { INVALID_DEVICE }
    }
    cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) {
        let text = b"emulated GPU";
        if name.is_null() || len <= text.len() as c_int {
            return INVALID_VALUE;
        }
        for (i, &b) in text.iter().chain(&[0]).enumerate() {
            name.add(i).write(b as c_char);
        }
        SUCCESS
    }
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        match attribute {
            16 => give(value, 1),
            75 => give(value, capability(device) / 10),
            76 => give(value, capability(device) % 10),
            97 => give(value, shared(device) as c_int),
            115 => give(value, 1),
            _ => INVALID_VALUE,
        }
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) { give(bytes, state().memory.total()) }
    cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) { give(context, 8) }
    cuDevicePrimaryCtxRelease_v2(device: c_int) { SUCCESS }
    cuCtxSetCurrent(context: usize) { SUCCESS }
    cuStreamCreate(stream: *mut usize, flags: c_uint) {
        let mut state = state();
        let handle = state.handle();
        state.streams.insert(handle, Stream::default());
        give(stream, handle)
    }
    cuStreamDestroy_v2(stream: usize) {
        let mut state = state();
        state.flush(stream);
        if state.streams.remove(&stream).is_some() { SUCCESS } else { INVALID_HANDLE }
    }
    cuStreamSynchronize(stream: usize) { state().flush(stream) }

    cuMemAlloc_v2(at: *mut u64, bytes: usize) {
        match state().memory.allocate(bytes) {
            Some(address) => give(at, address),
            None => OUT_OF_MEMORY,
        }
    }
    cuMemAllocAsync(at: *mut u64, bytes: usize, stream: usize) {
        match state().memory.allocate_pooled(bytes) {
            Some(address) => give(at, address),
            None => OUT_OF_MEMORY,
        }
    }
    cuMemFree_v2(at: u64) {
        let mut state = state();
        state.flush_all();
        if state.memory.free(at) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemFreeAsync(at: u64, stream: usize) { state().enqueue(stream, Work::Free(at)) }
    cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) {
        if (0..DEVICES.len() as c_int).contains(&device) { give(pool, POOL) } else { INVALID_DEVICE }
    }
    cuMemPoolSetAttribute(pool: usize, attribute: c_uint, value: *const u64) {
        match (pool, attribute, value.as_ref()) {
            (POOL, RELEASE_THRESHOLD, Some(&bytes)) => {
                state().memory.pool.threshold = bytes;
                SUCCESS
            }
            _ => INVALID_VALUE,
        }
    }
    cuMemPoolGetAttribute(pool: usize, attribute: c_uint, value: *mut u64) {
        match (pool, attribute) {
            (POOL, RELEASE_THRESHOLD) => give(value, state().memory.pool.threshold),
            (POOL, RESERVED) => give(value, state().memory.reserved()),
            _ => INVALID_VALUE,
        }
    }
    cuMemPoolTrimTo(pool: usize, keep: usize) {
        if pool != POOL {
            return INVALID_VALUE;
        }
        state().memory.trim(keep as u64);
        SUCCESS
    }
    cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: usize) {
        let mut state = state();
        if state.memory.get(at, bytes).is_none() {
            return INVALID_VALUE;
        }
        state.enqueue(stream, Work::Fill { at, value, bytes })
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: usize) {
        let mut state = state();
        if from.is_null() || state.memory.get(to, bytes).is_none() {
            return INVALID_VALUE;
        }
        // pinned memory is read when its turn comes, other memory before the call returns
        match state.is_pinned(from as usize, bytes) {
            true => state.enqueue(stream, Work::FromPinned { from: from as usize, to, bytes }),
            false => {
                let bytes = std::slice::from_raw_parts(from, bytes).to_vec();
                state.enqueue(stream, Work::Write { to, bytes })
            }
        }
    }
    cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: usize) {
        let mut state = state();
        if to.is_null() || state.memory.get(from, bytes).is_none() {
            return INVALID_VALUE;
        }
        let pinned = state.is_pinned(to as usize, bytes);
        let code = state.enqueue(stream, Work::ToHost { from, to: to as usize, bytes });
        if pinned || code != SUCCESS { code } else { state.flush(stream) }
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        let mut state = state();
        if state.memory.get(from, bytes).is_none() || state.memory.get(to, bytes).is_none() {
            return INVALID_VALUE;
        }
        state.enqueue(stream, Work::Copy { from, to, bytes })
    }
    cuMemAllocHost_v2(at: *mut *mut c_void, bytes: usize) {
        // the size is kept in front of the bytes
        let Some(size) = bytes.checked_add(16) else { return OUT_OF_MEMORY };
        let Ok(layout) = std::alloc::Layout::from_size_align(size, 16) else { return OUT_OF_MEMORY };
        let block = std::alloc::alloc_zeroed(layout);
        if block.is_null() {
            return OUT_OF_MEMORY;
        }
        block.cast::<usize>().write(size);
        state().pinned.insert(block as usize + 16, bytes);
        give(at, block.add(16).cast())
    }
    cuMemFreeHost(at: *mut c_void) {
        if at.is_null() {
            return INVALID_VALUE;
        }
        // the driver waits for what uses it; what is queued would write to memory that is gone
        let code = state().unpin(at as usize);
        if code != SUCCESS {
            return code;
        }
        let block = at.cast::<u8>().sub(16);
        let size = block.cast::<usize>().read();
        if let Ok(layout) = std::alloc::Layout::from_size_align(size, 16) {
            std::alloc::dealloc(block, layout);
        }
        SUCCESS
    }

    cuEventCreate(event: *mut usize, flags: c_uint) {
        let mut state = state();
        let handle = state.handle();
        state.events.insert(handle, Event::default());
        give(event, handle)
    }
    cuEventRecord(event: usize, stream: usize) {
        let mut state = state();
        match state.events.get_mut(&event) {
            Some(at) => { *at = Event { stream, reached: None }; state.enqueue(stream, Work::Record(event)) }
            None => INVALID_HANDLE,
        }
    }
    cuEventSynchronize(event: usize) {
        let mut state = state();
        match state.events.get(&event).map(|e| e.stream) {
            Some(stream) => state.flush(stream),
            None => INVALID_HANDLE,
        }
    }
    cuEventElapsedTime(ms: *mut f32, begin: usize, end: usize) {
        let time = |event| state().events.get(&event).and_then(|e| e.reached);
        match (time(begin), time(end)) {
            (Some(begin), Some(end)) => give(ms, end.duration_since(begin).as_secs_f32() * 1e3),
            _ => INVALID_HANDLE,
        }
    }
    cuEventDestroy_v2(event: usize) {
        if state().events.remove(&event).is_some() { SUCCESS } else { INVALID_HANDLE }
    }
}
