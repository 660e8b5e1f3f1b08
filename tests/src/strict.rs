//! An allocator that ends the program if it is asked where that is forbidden: in a
//! signal handler, on a hot path. It also refuses memory where a test wants that.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with an eye on who asks.
#[derive(Debug)]
pub struct Strict;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    /// Requests that are answered before one is refused. `None` refuses nothing.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    /// Whether all are refused from there on.
    static FOR_GOOD: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<u64> = const { Cell::new(0) };
}

/// Does something during which the thread's request number `n` for memory is refused, and with
/// `for_good` each one after it; whether there was such a request.
pub fn refuse_from(n: u64, for_good: bool, work: impl FnOnce()) -> bool {
    let before = REFUSED.get();
    FOR_GOOD.set(for_good);
    LEFT.set(Some(n));
    work();
    LEFT.set(None);
    REFUSED.get() != before
}

/// Refuses this thread all requests for memory from now on.
pub fn refuse_all() {
    FOR_GOOD.set(true);
    LEFT.set(Some(0));
}

fn refuses() -> bool {
    match LEFT.get() {
        None => false,
        Some(0) => {
            LEFT.set(FOR_GOOD.get().then_some(0));
            REFUSED.set(REFUSED.get() + 1);
            true
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            false
        }
    }
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
        // SAFETY: reads `said`, which is valid for its length. An error can be ignored.
        unsafe { libc::write(libc::STDERR_FILENO, said.as_ptr().cast(), said.len()) };
        std::process::abort();
    }
}

// SAFETY: passes everything on to the system's allocator, or ends the program.
unsafe impl GlobalAlloc for Strict {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        mind();
        if refuses() {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        mind();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
