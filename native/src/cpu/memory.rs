//! Zeroed allocations aligned to a cache line, with room for a whole vector behind the last element.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every buffer.
const ALIGN: usize = 64;

/// One allocation.
pub(super) struct Block {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

impl Block {
    /// `None` if the system has no such memory.
    pub(super) fn zeroed(len: usize) -> Option<Block> {
        let layout = Layout::from_size_align(len.checked_next_multiple_of(ALIGN)?.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { start, len, layout })
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
        // SAFETY: allocated with this layout in `zeroed`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
