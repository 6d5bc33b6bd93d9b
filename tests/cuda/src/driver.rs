//! The driver's functions by their own names, as far as gradloom's device calls them. All work is done when a call returns. What is wrong
//! with a launch goes to standard error, since the driver has numbers only.
//!
//! `GRADLOOM_EMULATED_SM` (such as 90) is the compute capability times ten; without it that is 8.0.

use crate::exec::{self, Fault};
use crate::memory::{Memory, TOTAL};
use crate::parse::{self, Entry};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

type Code = c_uint;
const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const INVALID_DEVICE: Code = 101;
const INVALID_PTX: Code = 218;
const INVALID_HANDLE: Code = 400;
const NOT_FOUND: Code = 500;
const ILLEGAL_ADDRESS: Code = 700;
const LAUNCH_FAILED: Code = 719;

/// Options of the compiler: where its words go, and how many there is room for.
const ERROR_LOG: c_uint = 5;
const ERROR_LOG_BYTES: c_uint = 6;

#[derive(Default)]
struct State {
    memory: Memory,
    modules: HashMap<usize, HashMap<String, Arc<Entry>>>,
    functions: HashMap<usize, Arc<Entry>>,
    events: HashMap<usize, Option<Instant>>,
    handles: usize,
}

impl State {
    fn handle(&mut self) -> usize {
        self.handles += 16;
        self.handles
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Writes a result to where a caller wants it.
///
/// # Safety
/// `to` is null or may be written to.
unsafe fn give<T>(to: *mut T, value: T) -> Code {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: it is not null, and the caller says the rest
    unsafe { to.write(value) };
    SUCCESS
}

fn capability() -> c_int {
    std::env::var("GRADLOOM_EMULATED_SM").ok().and_then(|v| v.parse().ok()).unwrap_or(80)
}

macro_rules! driver {
    ($($name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {$(
        #[doc = "The driver's function of this name."]
        ///
        /// # Safety
        /// As the driver's documents say.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_unsafe, unused_variables, reason = "the driver's names; not all arguments matter here")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> Code {
            // SAFETY: the caller's pointers are what the driver's documents say
            unsafe { $body }
        }
    )*};
}

driver! {
    cuInit(flags: c_uint) { SUCCESS }
    cuDriverGetVersion(version: *mut c_int) { give(version, 12090) }
    cuDeviceGetCount(n: *mut c_int) { give(n, 1) }
    cuDeviceGet(device: *mut c_int, index: c_int) {
        if index == 0 { give(device, 0) } else { INVALID_DEVICE }
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
            75 => give(value, capability() / 10),
            76 => give(value, capability() % 10),
            115 => give(value, 1),
            _ => INVALID_VALUE,
        }
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) { give(bytes, TOTAL) }
    cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) { give(context, 8) }
    cuDevicePrimaryCtxRelease_v2(device: c_int) { SUCCESS }
    cuCtxSetCurrent(context: usize) { SUCCESS }
    cuStreamCreate(stream: *mut usize, flags: c_uint) {
        let handle = state().handle();
        give(stream, handle)
    }
    cuStreamDestroy_v2(stream: usize) { SUCCESS }
    cuStreamSynchronize(stream: usize) { SUCCESS }

    cuMemAlloc_v2(at: *mut u64, bytes: usize) {
        match state().memory.allocate(bytes) {
            Some(address) => give(at, address),
            None => OUT_OF_MEMORY,
        }
    }
    cuMemAllocAsync(at: *mut u64, bytes: usize, stream: usize) { cuMemAlloc_v2(at, bytes) }
    cuMemFree_v2(at: u64) {
        if state().memory.free(at) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemFreeAsync(at: u64, stream: usize) { cuMemFree_v2(at) }
    cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: usize) {
        match state().memory.get_mut(at, bytes) {
            Some(block) => { block.fill(value); SUCCESS }
            None => INVALID_VALUE,
        }
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: usize) {
        match state().memory.get_mut(to, bytes) {
            Some(block) if !from.is_null() => {
                block.copy_from_slice(std::slice::from_raw_parts(from, bytes));
                SUCCESS
            }
            _ => INVALID_VALUE,
        }
    }
    cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: usize) {
        match state().memory.get(from, bytes) {
            Some(block) if !to.is_null() => {
                std::slice::from_raw_parts_mut(to, bytes).copy_from_slice(block);
                SUCCESS
            }
            _ => INVALID_VALUE,
        }
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        let mut state = state();
        let Some(block) = state.memory.get(from, bytes).map(<[u8]>::to_vec) else { return INVALID_VALUE };
        match state.memory.get_mut(to, bytes) {
            Some(out) => { out.copy_from_slice(&block); SUCCESS }
            None => INVALID_VALUE,
        }
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
        give(at, block.add(16).cast())
    }
    cuMemFreeHost(at: *mut c_void) {
        if at.is_null() {
            return INVALID_VALUE;
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
        state.events.insert(handle, None);
        give(event, handle)
    }
    cuEventRecord(event: usize, stream: usize) {
        match state().events.get_mut(&event) {
            Some(at) => { *at = Some(Instant::now()); SUCCESS }
            None => INVALID_HANDLE,
        }
    }
    cuEventSynchronize(event: usize) {
        if state().events.contains_key(&event) { SUCCESS } else { INVALID_HANDLE }
    }
    cuEventElapsedTime(ms: *mut f32, begin: usize, end: usize) {
        let time = |event| state().events.get(&event).copied().flatten();
        match (time(begin), time(end)) {
            (Some(begin), Some(end)) => give(ms, end.duration_since(begin).as_secs_f32() * 1e3),
            _ => INVALID_HANDLE,
        }
    }
    cuEventDestroy_v2(event: usize) {
        if state().events.remove(&event).is_some() { SUCCESS } else { INVALID_HANDLE }
    }

    cuModuleLoadDataEx(module: *mut usize, image: *const c_char, n: c_uint, names: *const c_uint, values: *const usize) {
        if image.is_null() {
            return INVALID_VALUE;
        }
        let made = CStr::from_ptr(image).to_str().map_err(|e| e.to_string()).and_then(parse::module);
        match made {
            Ok(entries) => {
                let mut state = state();
                let handle = state.handle();
                state.modules.insert(handle, entries.into_iter().map(|(name, e)| (name, Arc::new(e))).collect());
                give(module, handle)
            }
            Err(what) => {
                let value = |name| (0..n as usize).find(|&i| *names.add(i) == name).map(|i| *values.add(i));
                if let (Some(log), Some(room)) = (value(ERROR_LOG), value(ERROR_LOG_BYTES))
                    && room > 0
                {
                    let text = &what.as_bytes()[..what.len().min(room - 1)];
                    let log = std::slice::from_raw_parts_mut(log as *mut u8, text.len() + 1);
                    log[..text.len()].copy_from_slice(text);
                    log[text.len()] = 0;
                }
                INVALID_PTX
            }
        }
    }
    cuModuleUnload(module: usize) {
        if state().modules.remove(&module).is_some() { SUCCESS } else { INVALID_HANDLE }
    }
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        let mut state = state();
        let Some(entries) = state.modules.get(&module) else { return INVALID_HANDLE };
        let Some(entry) = entries.get(CStr::from_ptr(name).to_string_lossy().as_ref()).cloned() else {
            return NOT_FOUND;
        };
        let handle = state.handle();
        state.functions.insert(handle, entry);
        give(function, handle)
    }
    cuLaunchKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: usize, parameters: *const *const c_void, extra: *const *const c_void
    ) {
        let mut state = state();
        let Some(entry) = state.functions.get(&function).cloned() else { return INVALID_HANDLE };
        let mut bits = Vec::new();
        for (i, &bytes) in entry.parameters.iter().enumerate() {
            let at = *parameters.add(i);
            bits.push(if bytes == 8 { at.cast::<u64>().read() } else { at.cast::<u32>().read().into() });
        }
        match exec::launch(&entry, [gx, gy, gz], [bx, by, bz], &bits, &mut state.memory) {
            Ok(()) => SUCCESS,
            Err(Fault::Address(what)) => { eprintln!("emulated GPU: {what}"); ILLEGAL_ADDRESS }
            Err(Fault::Launch(what)) => { eprintln!("emulated GPU: {what}"); LAUNCH_FAILED }
        }
    }
}
