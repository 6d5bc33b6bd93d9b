//! Zeroed allocations aligned to a cache line. Large ones ask for huge pages: one that is streamed through would else wait
//! for the translation of each of its pages (measured on 500 MB: 33 instead of 21 GB/s).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every buffer.
const ALIGN: usize = 64;

/// Readable bytes after the end. Kernels take every second element of whole vectors, of which the last may begin inside of the
/// buffer and end outside; what is read there is not used.
const SLACK: usize = 64;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Bytes of a page: no smaller than any system's.
#[cfg(target_os = "linux")]
const PAGE: usize = 64 << 10;

/// One allocation.
pub(super) struct Block {
    start: NonNull<u8>,
    len: usize,
    /// `None`: pages of their own.
    layout: Option<Layout>,
}

impl Block {
    /// `None` if the system has no such memory.
    pub(super) fn zeroed(len: usize) -> Option<Block> {
        if len >= HUGE
            && let Some(start) = huge_pages(len)
        {
            return Some(Block { start, len, layout: None });
        }
        let layout = Layout::from_size_align(len.checked_next_multiple_of(ALIGN)?.checked_add(SLACK)?, ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { start, len, layout: Some(layout) })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Address of a byte inside (or one past the end).
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "offset outside of its buffer");
        // SAFETY: checked to be inside of the allocation.
        unsafe { self.start.as_ptr().add(offset) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes are owned by this block; no kernel runs while it is borrowed, because the
        // device runs kernels to their end inside `submit`, which borrows the device mutably.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.layout {
            // SAFETY: allocated with this layout in `zeroed`.
            Some(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            None => unmap(self.start, self.len),
        }
    }
}

/// Bytes of the whole pages that `len` bytes and the slack take.
#[cfg(target_os = "linux")]
fn pages(len: usize) -> Option<usize> {
    len.checked_add(SLACK)?.checked_next_multiple_of(PAGE)
}

/// Zero pages for `len` bytes that begin at a huge page; `None` where the system has no such.
#[cfg(target_os = "linux")]
fn huge_pages(len: usize) -> Option<NonNull<u8>> {
    let (read_write, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let whole = pages(len)?.checked_add(HUGE)?;
    // SAFETY: a fresh private mapping; no existing memory is touched.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), whole, read_write, own, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base = base as usize;
    let (start, end) = (base.next_multiple_of(HUGE), base + whole);
    let used = start + pages(len)?;
    // SAFETY: both parts, and what is advised about, lie in the mapping made above, which nobody else knows.
    unsafe {
        if start > base {
            libc::munmap(base as *mut libc::c_void, start - base);
        }
        if end > used {
            libc::munmap(used as *mut libc::c_void, end - used);
        }
        libc::madvise(start as *mut libc::c_void, len, libc::MADV_HUGEPAGE);
    }
    NonNull::new(start as *mut u8)
}

#[cfg(not(target_os = "linux"))]
fn huge_pages(_len: usize) -> Option<NonNull<u8>> {
    None
}

/// Gives the pages of [`huge_pages`] back.
#[cfg(target_os = "linux")]
fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: mapped in `huge_pages` for this many bytes, and the block that owns it is going.
    unsafe { libc::munmap(start.as_ptr().cast(), pages(len).unwrap_or(len)) };
}

#[cfg(not(target_os = "linux"))]
fn unmap(_start: NonNull<u8>, _len: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_size_are_zero_aligned_and_whole() {
        for len in [0, 1, 4096, HUGE - 1, HUGE, HUGE + 1, HUGE + 65_536, 3 * HUGE + 12_345] {
            let mut b = Block::zeroed(len).unwrap();
            assert!(b.bytes().iter().all(|&x| x == 0));
            assert_eq!(b.at(0) as usize % ALIGN, 0);
            b.bytes_mut().fill(7);
            assert_eq!(b.bytes().iter().map(|&x| usize::from(x)).sum::<usize>(), 7 * len);
            // SAFETY: the slack is readable.
            let after: u8 = (0..SLACK).map(|i| unsafe { b.at(len).add(i).read_volatile() }).fold(0, |a, x| a | x);
            assert!(after == 0 || after == 7);
        }
    }
}
