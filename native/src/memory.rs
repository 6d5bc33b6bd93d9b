//! Zeroed allocations that are aligned to a cache line. Large ones ask the system for huge pages, and smaller ones
//! share regions that do ([`regions`]): with small pages a buffer that is streamed through waits for the address
//! translation of each page (measured on 500 MB: 33 instead of 21 GB/s). Guarded allocations end at the end of a page,
//! before a page without access rights: a kernel that reads or writes past its buffer crashes there.

#[cfg(target_os = "linux")]
mod regions;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// The alignment of every buffer in bytes.
const ALIGN: usize = 64;

/// The size of a huge page in bytes.
const HUGE: usize = 2 << 20;
/// A page size in bytes that is a multiple of every system's.
#[cfg(any(unix, windows))]
const PAGE: usize = 64 << 10;

/// How a device allocates its buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Guard {
    /// No guard page; aligned to a cache line.
    #[default]
    None,
    /// Followed by a page without access rights. Such a buffer is aligned only as its length is, unless it is large.
    After,
}

/// How an allocation is freed.
enum Kind {
    Heap(Layout),
    /// Pages that belong to this allocation alone.
    #[cfg(any(unix, windows))]
    Pages {
        base: NonNull<u8>,
        bytes: usize,
    },
    /// A part of a region of huge pages.
    #[cfg(target_os = "linux")]
    Part,
}

/// One allocation.
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
    kind: Kind,
}

// SAFETY: the memory is the block's alone, and may be freed on any thread.
unsafe impl Send for Block {}

impl Block {
    /// Allocates `len` bytes; `None` if the system refuses.
    pub(crate) fn new(len: usize, guard: Guard) -> Option<Block> {
        match guard {
            Guard::None => Block::zeroed(len),
            Guard::After => Block::guarded(len),
        }
    }

    /// As [`Block::new`] without a guard page.
    pub(crate) fn zeroed(len: usize) -> Option<Block> {
        #[cfg(target_os = "linux")]
        if len >= HUGE
            && let Some(block) = huge_pages(len)
        {
            return Some(block);
        }
        #[cfg(target_os = "linux")]
        if (regions::MIN_BYTES..HUGE).contains(&len)
            && let Some(start) = regions::take(len)
        {
            return Some(Block { start, len, kind: Kind::Part });
        }
        let layout = Layout::from_size_align(len.max(1).checked_next_multiple_of(ALIGN)?, ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { start, len, kind: Kind::Heap(layout) })
    }

    #[cfg(any(unix, windows))]
    fn guarded(len: usize) -> Option<Block> {
        let whole = len.max(1).checked_next_multiple_of(PAGE)?;
        let bytes = whole.checked_add(PAGE)?;
        let base = system::map(bytes)?;
        // SAFETY: the last page of the mapping made above, which nobody else knows; `len` bytes before it are its own.
        let start = unsafe {
            let guard = base.as_ptr().add(whole);
            if !system::forbid(guard, PAGE) {
                system::unmap(base, bytes);
                return None;
            }
            // Large buffers stay aligned to a cache line, as kernels may require for stores that bypass the caches
            let room = if len >= HUGE { len.next_multiple_of(ALIGN) } else { len };
            NonNull::new(guard.sub(room))?
        };
        Some(Block { start, len, kind: Kind::Pages { base, bytes } })
    }

    #[cfg(not(any(unix, windows)))]
    fn guarded(_len: usize) -> Option<Block> {
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of a byte inside the allocation, or of its end.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "offset outside of its buffer");
        // SAFETY: checked to be inside of the allocation.
        unsafe { self.start.as_ptr().add(offset) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes are owned by this block; no kernel runs while it is borrowed, because the
        // device runs kernels to their end inside `submit`, which borrows the device mutably.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.kind {
            // SAFETY: allocated with this layout in `zeroed`.
            Kind::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            #[cfg(any(unix, windows))]
            // SAFETY: a mapping of this many bytes that belongs to this block, which is going.
            Kind::Pages { base, bytes } => unsafe { system::unmap(base, bytes) },
            #[cfg(target_os = "linux")]
            Kind::Part => regions::give_back(self.start, self.len),
        }
    }
}

#[cfg(unix)]
mod system {
    use std::ptr::NonNull;

    /// Maps fresh zeroed pages.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let (read_write, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a fresh private mapping; no existing memory is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read_write, own, -1, 0) };
        if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast()) }
    }

    /// Takes all access rights from pages; false if the system refuses.
    ///
    /// # Safety
    /// The pages are part of a mapping of [`map`], and nobody refers to them.
    pub(super) unsafe fn forbid(start: *mut u8, bytes: usize) -> bool {
        // SAFETY: by contract.
        unsafe { libc::mprotect(start.cast(), bytes, libc::PROT_NONE) == 0 }
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// All of it is a mapping, to which nobody refers.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: by contract.
        unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
    }
}

#[cfg(windows)]
mod system {
    use std::ptr::NonNull;
    use windows_sys::Win32::System::Memory::{
        MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualProtect,
    };

    /// Maps fresh zeroed pages.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: fresh pages; no existing memory is touched.
        let base = unsafe { VirtualAlloc(std::ptr::null(), bytes, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE) };
        NonNull::new(base.cast())
    }

    /// Takes all access rights from pages; false if the system refuses.
    ///
    /// # Safety
    /// The pages are part of a mapping of [`map`], and nobody refers to them.
    pub(super) unsafe fn forbid(start: *mut u8, bytes: usize) -> bool {
        let mut before = 0;
        // SAFETY: by contract.
        unsafe { VirtualProtect(start.cast(), bytes, PAGE_NOACCESS, &mut before) != 0 }
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// It is a whole mapping of [`map`], to which nobody refers.
    pub(super) unsafe fn unmap(base: NonNull<u8>, _bytes: usize) {
        // SAFETY: by contract.
        unsafe { VirtualFree(base.as_ptr().cast(), 0, MEM_RELEASE) };
    }
}

/// Zeroed pages for `len` bytes that begin at the boundary of a huge page; `None` where the system refuses.
#[cfg(target_os = "linux")]
fn huge_pages(len: usize) -> Option<Block> {
    let (start, bytes) = map_huge(len)?;
    Some(Block { start, len, kind: Kind::Pages { base: start, bytes } })
}

/// Maps such pages; also gives the number of bytes to unmap.
#[cfg(target_os = "linux")]
fn map_huge(len: usize) -> Option<(NonNull<u8>, usize)> {
    let bytes = len.checked_next_multiple_of(PAGE)?;
    let whole = bytes.checked_add(HUGE)?;
    let base = system::map(whole)?.as_ptr();
    let before = (base as usize).next_multiple_of(HUGE) - base as usize;
    // SAFETY: both parts, and what is advised about, lie in the mapping made above, which nobody else knows.
    let start = unsafe {
        let start = base.add(before);
        if before > 0 {
            libc::munmap(base.cast(), before);
        }
        if whole > before + bytes {
            libc::munmap(start.add(bytes).cast(), whole - before - bytes);
        }
        libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
        NonNull::new(start)?
    };
    Some((start, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_size_are_zero_aligned_and_whole() {
        for len in [0, 1, 4096, 16_384, 100_000, HUGE - 1, HUGE, HUGE + 1, HUGE + 65_536, 3 * HUGE + 12_345] {
            for guard in [Guard::None, Guard::After] {
                let Some(mut b) = Block::new(len, guard) else {
                    assert!(cfg!(not(any(unix, windows))), "{len} bytes, {guard:?}");
                    continue;
                };
                assert!(b.bytes().iter().all(|&x| x == 0));
                match guard {
                    Guard::None => assert_eq!(b.at(0) as usize % ALIGN, 0),
                    Guard::After => {
                        let room = if len >= HUGE { len.next_multiple_of(ALIGN) } else { len };
                        assert_eq!((b.at(0) as usize + room) % 4096, 0);
                    }
                }
                b.bytes_mut().fill(7);
                assert_eq!(b.bytes().iter().map(|&x| usize::from(x)).sum::<usize>(), 7 * len);
            }
        }
    }
}
