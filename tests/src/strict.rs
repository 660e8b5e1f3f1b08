//! An allocator that ends the program if it is called where that is forbidden: in a signal handler,
//! or on a hot path. It also refuses memory when a test wants that.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which also checks whether the calling thread may allocate.
#[derive(Debug)]
pub struct Strict;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    /// Number of requests to grant before one is refused. `None` refuses nothing.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    /// Whether all later requests are refused, too.
    static FOR_GOOD: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<u64> = const { Cell::new(0) };
}

/// Runs `work` while the thread's request number `n` for memory is refused, and with `for_good`
/// each later one, too. Returns whether there was such a request.
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

/// Runs `work`, during which this thread must not allocate or free memory. This has no effect if
/// [`Strict`] is not the program's allocator.
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

// SAFETY: every call is passed on to the system's allocator with unchanged arguments, is refused
// with a null pointer, or ends the program.
unsafe impl GlobalAlloc for Strict {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        mind();
        if refuses() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's guarantees are those that `System` requires, and the arguments are
        // unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        mind();
        // SAFETY: the caller's guarantees are those that `System` requires, and the arguments are
        // unchanged.
        unsafe { System.dealloc(memory, layout) }
    }
}
