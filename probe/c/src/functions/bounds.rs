//! Where the stack of a thread lies.
//!
//! The C library would say, but allocates for it; the kernel's list of mappings
//! can be read anywhere.

use probe::c::Mapping;

use super::frames::Range;

/// Space below the main thread's stack that is taken for its own: it grows, and
/// nobody says how far.
const GROWTH: usize = 1 << 30;

/// The stack of the calling thread, while `sp` is the stack pointer; empty where
/// nobody knows.
pub(super) fn own(sp: usize) -> Range {
    // SAFETY: no preconditions.
    let (this, pid, tid) =
        unsafe { (libc::pthread_self() as usize, libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    // The thread's own data lie at the upper end of a stack that the C library
    // has made; the process's first thread has a stack that the kernel has made.
    let first = libc::c_long::from(pid) == tid;
    let mut labelled = Range::EMPTY;
    let mut last_end = 0;
    let mut found = Range::EMPTY;
    probe::c::each_mapping(|&Mapping { start, end, path, .. }| {
        if (start..end).contains(&this) && (!first || (start..end).contains(&sp)) {
            // What lies above may be mapped together with it.
            found = Range { start, end: this };
        }
        if path == b"[stack]" {
            labelled = Range { start: last_end.max(end.saturating_sub(GROWTH)), end };
        }
        last_end = end;
    });
    if found.end != 0 || !first { found } else { labelled }
}
