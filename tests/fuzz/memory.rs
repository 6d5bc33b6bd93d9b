//! Bytes that a thread asks for, whatever other threads do at the same time: what is told of one file must not depend on the tests beside it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
pub(crate) struct Counting;

fn count(bytes: usize) {
    // a thread that ends has no counter any more
    let _ = ASKED.try_with(|asked| asked.set(asked.get().wrapping_add(bytes)));
}

// SAFETY: every call goes to the system's allocator as it came. The counter needs no memory and has no destructor, so counting
// neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What this thread has asked for so far, in all.
fn asked() -> usize {
    ASKED.with(Cell::get)
}

/// What this thread asks for from now on.
pub(crate) struct Asked(usize);

impl Asked {
    pub(crate) fn now() -> Asked {
        Asked(asked())
    }

    /// Bytes, those that were given back included.
    pub(crate) fn bytes(&self) -> usize {
        asked().wrapping_sub(self.0)
    }
}

#[test]
fn a_thread_counts_its_own() {
    let here = Asked::now();
    let there = std::thread::spawn(|| {
        let own = Asked::now();
        drop(vec![1u8; 1 << 20]);
        own.bytes()
    });
    let there = there.join().expect("the thread ends");
    assert!(there >= 1 << 20, "{there}");
    assert!(here.bytes() < 1 << 20, "{}", here.bytes());
}
