//! Modules and their kernels, and machine code: the driver's functions for them. The emulator's machine code is the text of the module behind
//! a mark of its own.

use crate::parse;
use crate::state::{
    INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NOT_FOUND, SUCCESS, State, driver, give, state,
};
use crate::stream::{Launch, Work};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// Options of the compiler: where its words go, and how many there is room for.
const ERROR_LOG: c_uint = 5;
const ERROR_LOG_BYTES: c_uint = 6;
/// The kind of input that is a text.
const PTX: c_uint = 1;
/// The attribute of a function that says how much shared memory a launch may give it.
const MAX_SHARED: c_uint = 8;
/// Bytes of shared memory that a launch may give without asking, and after it.
const UNASKED: usize = 48 << 10;
pub(crate) const SHARED: usize = 227 << 10;
/// Begins machine code of the emulator; the length of the text follows.
const MARK: &[u8; 8] = b"\x7fEMUPTX\n";

/// Machine code that is being made, and where its caller wants words.
#[derive(Default)]
pub(crate) struct Link {
    log: Option<(usize, usize)>,
    texts: Vec<u8>,
    made: Vec<u8>,
}

/// Where the caller of a compiler wants its words, of these options.
///
/// # Safety
/// There are `n` of each.
unsafe fn log_of(n: c_uint, names: *const c_uint, values: *const usize) -> Option<(usize, usize)> {
    // SAFETY: the index is below `n`
    let value = |name| (0..n as usize).find(|&i| unsafe { *names.add(i) } == name).map(|i| unsafe { *values.add(i) });
    value(ERROR_LOG).zip(value(ERROR_LOG_BYTES))
}

/// Says what the compiler has to say.
///
/// # Safety
/// The log is as long as it says.
unsafe fn say(log: Option<(usize, usize)>, what: &str) {
    if let Some((log, room)) = log
        && room > 0
    {
        let text = &what.as_bytes()[..what.len().min(room - 1)];
        // SAFETY: the text is shorter than the log
        let log = unsafe { std::slice::from_raw_parts_mut(log as *mut u8, text.len() + 1) };
        log[..text.len()].copy_from_slice(text);
        log[text.len()] = 0;
    }
}

/// The text of machine code, or of what is text already.
///
/// # Safety
/// It is machine code of the emulator, or ends with a zero.
unsafe fn text_of<'a>(image: *const c_char) -> Result<&'a str, String> {
    // SAFETY: a text ends with a zero, and a mark is compared byte by byte up to the first that differs
    let marked = (0..MARK.len()).all(|i| unsafe { *image.add(i) } as u8 == MARK[i]);
    let bytes = match marked {
        true => {
            // SAFETY: what was made has its length behind the mark
            let len = unsafe { image.add(MARK.len()).cast::<u64>().read_unaligned() } as usize;
            // SAFETY: and so many bytes behind that
            unsafe { std::slice::from_raw_parts(image.add(MARK.len() + 8).cast(), len) }
        }
        // SAFETY: the caller says so
        false => unsafe { CStr::from_ptr(image) }.to_bytes(),
    };
    std::str::from_utf8(bytes).map_err(|e| e.to_string())
}

impl State {
    /// A launch with its parameters read.
    ///
    /// # Safety
    /// There are as many parameters as the function has, of its sizes.
    pub(crate) unsafe fn launch_of(
        &self,
        function: usize,
        grid: [u32; 3],
        block: [u32; 3],
        shared: c_uint,
        parameters: *const *const c_void,
    ) -> Option<Launch> {
        let entry = self.functions.get(&function)?.clone();
        let shared = shared as usize;
        if shared > self.allowed.get(&function).copied().unwrap_or(UNASKED) {
            return None;
        }
        let read = |(i, &bytes): (usize, &usize)| {
            // SAFETY: the caller says so
            unsafe {
                let at = *parameters.add(i);
                if bytes == 8 { at.cast::<u64>().read() } else { at.cast::<u32>().read().into() }
            }
        };
        let bits = entry.parameters.iter().enumerate().map(read).collect();
        Some(Launch { entry, grid, block, shared, bits })
    }
}

driver! {
    cuModuleLoadDataEx(module: *mut usize, image: *const c_char, n: c_uint, names: *const c_uint, values: *const usize) {
        if image.is_null() {
            return INVALID_VALUE;
        }
        match text_of(image).and_then(parse::module) {
            Ok(entries) => {
                let mut state = state();
                let handle = state.handle();
                state.modules.insert(handle, entries.into_iter().map(|(name, e)| (name, Arc::new(e))).collect());
                give(module, handle)
            }
            Err(what) => {
                say(log_of(n, names, values), &what);
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
    cuFuncSetAttribute(function: usize, attribute: c_uint, value: c_int) {
        let mut state = state();
        let fits = value >= 0 && value as usize <= SHARED && attribute == MAX_SHARED;
        if !fits || !state.functions.contains_key(&function) {
            return INVALID_VALUE;
        }
        state.allowed.insert(function, value as usize);
        SUCCESS
    }

    cuLinkCreate_v2(n: c_uint, names: *const c_uint, values: *const usize, link: *mut usize) {
        let mut state = state();
        let handle = state.handle();
        state.links.insert(handle, Link { log: log_of(n, names, values), ..Link::default() });
        give(link, handle)
    }
    cuLinkAddData_v2(
        link: usize, kind: c_uint, data: *const u8, bytes: usize, name: *const c_char, n: c_uint, names: *const c_uint,
        values: *const usize
    ) {
        if kind != PTX || data.is_null() || bytes == 0 {
            return INVALID_IMAGE;
        }
        // the zero at its end counts
        let text = std::slice::from_raw_parts(data, bytes - 1);
        let mut state = state();
        let Some(link) = state.links.get_mut(&link) else { return INVALID_HANDLE };
        let parsed = std::str::from_utf8(text).map_err(|e| e.to_string()).and_then(parse::module);
        match parsed {
            Ok(_) => { link.texts.extend_from_slice(text); SUCCESS }
            Err(what) => { say(link.log, &what); INVALID_PTX }
        }
    }
    cuLinkComplete(link: usize, image: *mut *const u8, bytes: *mut usize) {
        let mut state = state();
        let Some(link) = state.links.get_mut(&link) else { return INVALID_HANDLE };
        link.made = [&MARK[..], &(link.texts.len() as u64).to_le_bytes(), &link.texts].concat();
        match give(image, link.made.as_ptr()) {
            SUCCESS => give(bytes, link.made.len()),
            code => code,
        }
    }
    cuLinkDestroy(link: usize) {
        if state().links.remove(&link).is_some() { SUCCESS } else { INVALID_HANDLE }
    }

    cuLaunchKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: usize, parameters: *const *const c_void, extra: *const *const c_void
    ) {
        let mut state = state();
        match state.launch_of(function, [gx, gy, gz], [bx, by, bz], shared, parameters) {
            Some(launch) => state.enqueue(stream, Work::Launch(launch)),
            None => INVALID_HANDLE,
        }
    }
}
