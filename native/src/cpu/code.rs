//! Executable pages: written while writable, then made executable and never written again.

use std::io::Error;
use std::ptr::NonNull;

/// Machine code of one or more kernels.
pub(super) struct Code {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages are never written after `new`; reading and running them from several threads is what they are for.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Copies the parts into fresh pages; returns where each begins.
    pub(super) fn new(parts: &[&[u8]]) -> Result<(Code, Vec<usize>), Error> {
        let mut entries = Vec::with_capacity(parts.len());
        let mut bytes = 0usize;
        for p in parts {
            entries.push(bytes);
            bytes = (bytes + p.len()).next_multiple_of(64);
        }
        let bytes = bytes.max(1);
        // SAFETY: a fresh private mapping; no existing memory is touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::other("mapped at address 0"))?;
        let code = Code { start, bytes }; // from here on dropping it unmaps
        for (p, &at) in parts.iter().zip(&entries) {
            // SAFETY: `at + p.len()` is at most `bytes`, and the mapping is writable and ours alone.
            unsafe { std::ptr::copy_nonoverlapping(p.as_ptr(), start.as_ptr().add(at), p.len()) };
        }
        // SAFETY: the mapping is ours; from here on it is only read and run.
        if unsafe { libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_EXEC) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok((code, entries))
    }

    /// Address of a byte.
    pub(super) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.bytes, "entry outside of the code");
        // SAFETY: checked to be inside of the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `new` and nothing can refer to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
