//! Pages for machine code, for each operating system: they are written while writable and then sealed, which makes them
//! executable and tells the processor that there are new instructions. On Apple's processors such pages must be mapped
//! with `MAP_JIT`, and a thread can either write or execute them.

use std::io::Error;
use std::ptr::NonNull;

/// Fresh pages with a single owner.
pub(super) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages are never written after they were sealed; reading and running them from several threads is what they are for.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps pages for at least one byte, has `write` fill them, and seals them.
    pub(super) fn filled(bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<Pages, Error> {
        let bytes = bytes.max(1);
        let start = system::map(bytes)?;
        let pages = Pages { start, bytes }; // From here on, dropping `pages` unmaps them
        system::begin_writing();
        // SAFETY: the mapping is ours alone, writable, zeroed and of this many bytes.
        write(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) });
        system::seal(start, bytes)?;
        Ok(pages)
    }

    /// The address of a byte.
    pub(super) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.bytes, "entry outside of the code");
        // SAFETY: checked to be inside of the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        system::unmap(self.start, self.bytes);
    }
}

#[cfg(unix)]
mod system {
    use std::io::Error;
    use std::ptr::NonNull;

    #[cfg(not(all(target_vendor = "apple", target_arch = "aarch64")))]
    const FRESH: (i32, i32) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    const FRESH: (i32, i32) =
        (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_JIT);

    pub(super) fn map(bytes: usize) -> Result<NonNull<u8>, Error> {
        // SAFETY: a fresh private mapping; no existing memory is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, FRESH.0, FRESH.1, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::other("mapped at address 0"))
    }

    pub(super) fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: this mapping was made by `map` and nothing can refer to it any more.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }

    #[cfg(not(all(target_vendor = "apple", target_arch = "aarch64")))]
    pub(super) fn begin_writing() {}

    #[cfg(not(all(target_vendor = "apple", target_arch = "aarch64")))]
    pub(super) fn seal(start: NonNull<u8>, bytes: usize) -> Result<(), Error> {
        // SAFETY: the mapping is ours; from here on it is only read and run.
        if unsafe { libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
            return Err(Error::last_os_error());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the range is this mapping.
        unsafe {
            __clear_cache(start.as_ptr().cast(), start.as_ptr().add(bytes).cast());
        }
        Ok(())
    }

    #[cfg(all(target_arch = "aarch64", not(target_vendor = "apple")))]
    unsafe extern "C" {
        /// From the compiler's runtime library: cleans the data cache and invalidates the instruction cache
        /// from `start` to `end`.
        fn __clear_cache(start: *mut std::ffi::c_void, end: *mut std::ffi::c_void);
    }

    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    pub(super) fn begin_writing() {
        // SAFETY: it changes what this thread may do to pages for code; until `seal` it runs none of them.
        unsafe { libc::pthread_jit_write_protect_np(0) };
    }

    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    pub(super) fn seal(start: NonNull<u8>, bytes: usize) -> Result<(), Error> {
        // SAFETY: from here on this thread only reads and runs pages for code; the range is this mapping.
        unsafe {
            libc::pthread_jit_write_protect_np(1);
            sys_icache_invalidate(start.as_ptr().cast(), bytes);
        }
        Ok(())
    }

    #[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
    unsafe extern "C" {
        /// From the system's library: announces new instructions in `bytes` bytes from `start`.
        fn sys_icache_invalidate(start: *mut std::ffi::c_void, bytes: usize);
    }
}

#[cfg(windows)]
mod system {
    use std::io::Error;
    use std::ptr::NonNull;
    use windows_sys::Win32::System::Diagnostics::Debug::FlushInstructionCache;
    use windows_sys::Win32::System::Memory::{
        MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_EXECUTE_READ, PAGE_READWRITE, VirtualAlloc, VirtualFree,
        VirtualProtect,
    };
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    pub(super) fn map(bytes: usize) -> Result<NonNull<u8>, Error> {
        // SAFETY: fresh pages; no existing memory is touched.
        let start = unsafe { VirtualAlloc(std::ptr::null(), bytes, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE) };
        NonNull::new(start.cast::<u8>()).ok_or_else(Error::last_os_error)
    }

    pub(super) fn unmap(start: NonNull<u8>, _bytes: usize) {
        // SAFETY: these pages were made by `map` and nothing can refer to them any more.
        unsafe { VirtualFree(start.as_ptr().cast(), 0, MEM_RELEASE) };
    }

    pub(super) fn begin_writing() {}

    pub(super) fn seal(start: NonNull<u8>, bytes: usize) -> Result<(), Error> {
        let mut before = 0;
        // SAFETY: the pages are ours; from here on they are only read and run.
        let done = unsafe {
            VirtualProtect(start.as_ptr().cast(), bytes, PAGE_EXECUTE_READ, &mut before) != 0
                && FlushInstructionCache(GetCurrentProcess(), start.as_ptr().cast(), bytes) != 0
        };
        if done { Ok(()) } else { Err(Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_was_written() {
        let pages = Pages::filled(5, |b| b.copy_from_slice(&[1, 2, 3, 4, 5])).unwrap();
        // SAFETY: five bytes that are only read.
        assert_eq!(unsafe { std::slice::from_raw_parts(pages.at(0), 5) }, [1, 2, 3, 4, 5]);
        assert!(std::panic::catch_unwind(|| pages.at(5)).is_err());
        Pages::filled(0, |b| assert_eq!(b.len(), 1)).unwrap();
    }
}
