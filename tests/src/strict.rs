//! An allocator that ends the program if it is asked where that is forbidden: in a
//! signal handler, on a hot path.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with an eye on who asks.
#[derive(Debug)]
pub struct Strict;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Does something during which this thread must not ask for memory, nor give any back.
/// Where [`Strict`] is not the program's allocator, nobody minds.
pub fn forbid<R>(work: impl FnOnce() -> R) -> R {
    let before = FORBIDDEN.replace(true);
    let result = work();
    FORBIDDEN.set(before);
    result
}

fn mind() {
    if FORBIDDEN.get() {
        let said = b"memory was asked for where that is forbidden\n";
        // SAFETY: writes constant bytes; what becomes of that is no matter.
        unsafe { libc::write(libc::STDERR_FILENO, said.as_ptr().cast(), said.len()) };
        std::process::abort();
    }
}

// SAFETY: passes everything on to the system's allocator, or ends the program.
unsafe impl GlobalAlloc for Strict {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        mind();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        mind();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
